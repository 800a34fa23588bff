//! Options of the paging system that are not part of its presets.

use deepram_core::units::Bytes;
use serde::Serialize;

/// The backing of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// A mapped file: all data are on the drive from the start, at the page's own number.
    #[default]
    File,
    /// Anonymous memory: the first touch zero-fills a page. An evicted page goes to a slot of the swap
    /// area; slots are allocated in order.
    Swap,
}

/// How a thread waits for its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// The thread sleeps until an interrupt wakes it.
    #[default]
    Interrupt,
    /// The thread holds its core and polls the drive.
    Polling,
}

/// Options of the paging system. The defaults are Linux's (kernel 6, x86-64) where Linux has one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PagingOptions {
    /// DRAM for pages, bytes; 0 for the whole DRAM. A smaller value leaves a part of the DRAM to the
    /// system itself.
    #[serde(rename = "memory_bytes", serialize_with = "crate::quantity::bytes")]
    pub memory: Bytes,
    /// The backing of pages.
    pub backing: Backing,
    /// Interrupts or polling.
    pub completion: Completion,
    /// First readahead window of a file, in pages: 16 KiB (Linux, VM_READAHEAD_PAGES and the initial
    /// window, as `facts.md` section 7 quotes mm.h).
    pub readahead_least: u32,
    /// Largest readahead window of a file, in pages: 128 KiB; 0 for no readahead.
    pub readahead_most: u32,
    /// A random miss of a file reads the `readahead_most` pages around it, unless the file misses much
    /// more than it hits (Linux, mm/filemap.c). If false, it reads its page alone.
    pub read_around: bool,
    /// Sequential runs that readahead follows at once. Linux has one window per open file and finds
    /// other runs by marks in pages; this number is assumed to be equivalent.
    pub readahead_runs: u32,
    /// Maximum swap readahead cluster, in pages: page-cluster 3; 1 for no readahead.
    pub swap_cluster: u32,
    /// The cluster's size follows the use of earlier ones. If false, all of it is read at each miss.
    pub swap_cluster_adapts: bool,
    /// Fault-around block size, in pages: a read fault maps all pages of its block that are in memory
    /// (fault_around_bytes, 64 KiB). Files only; 1 for none.
    pub map_around: u32,
    /// Share of memory that may be dirty before dirty pages of a file are written back in the
    /// background: vm.dirty_background_ratio.
    pub dirty_background: f64,
    /// Share of memory that may be dirty or under write-back before threads that write to a file wait:
    /// vm.dirty_ratio.
    pub dirty_limit: f64,
    /// Low watermark of free memory, as a share: background reclaim starts below it. Linux makes it 5/4
    /// of 4 sqrt(memory in KiB) KiB, 0.17 % of 8 GiB.
    pub free_low: f64,
    /// High watermark of free memory, as a share: background reclaim stops at it. Linux makes it 3/2 of
    /// the same, 0.21 % of 8 GiB.
    pub free_high: f64,
    /// Maximum pages per write-back command: SWAP_CLUSTER_MAX, 32.
    pub write_cluster: u32,
    /// Maximum background write-back commands under way; assumed, half of what AHCI can queue.
    pub write_commands: u32,
    /// Maximum commands of the host in the drive's queue; 0 for the drive's own limit. 32 is native
    /// command queueing.
    pub queue: u64,
    /// The fault that is repeated when its page has arrived counts as a hit of the file, so random misses
    /// are read around for ever: Linux 2.6.37 to 3.6 (mended by commit 45cac65b0fcd).
    pub repeated_fault_hits: bool,
    /// Bytes of data that exist before the run, on the drive; 0 for none. The pages of anonymous data
    /// have their swap slots in the order of addresses. (A file has all data on the drive anyway.)
    #[serde(rename = "existing_bytes", serialize_with = "crate::quantity::bytes")]
    pub existing: Bytes,
    /// The memory begins filled up to the high watermark with the first of these data, clean. Anonymous
    /// pages are mapped; a file's pages are in the page cache and not mapped.
    pub resident: bool,
    /// Energy per bit on the link, in picojoules. The default is that of the transmitter of W. Bae et
    /// al., "A 1.93-pJ/Bit PCI Express Gen4 PHY Transmitter", Electronics 10(1), 2021; it excludes the
    /// receiver.
    pub link_pj_per_bit: f64,
}

impl PagingOptions {
    /// Linux up to 3.4: a miss of swap reads its whole aligned cluster (Linux 3.14 adapts its size), a
    /// fault maps no other page (Linux 3.15 does), and a repeated fault counts as a hit.
    #[must_use]
    pub fn linux_3_4() -> Self {
        Self { swap_cluster_adapts: false, map_around: 1, repeated_fault_hits: true, ..Self::default() }
    }
}

impl Default for PagingOptions {
    fn default() -> Self {
        Self {
            memory: Bytes(0),
            backing: Backing::File,
            completion: Completion::Interrupt,
            readahead_least: 4,
            readahead_most: 32,
            read_around: true,
            readahead_runs: 16,
            swap_cluster: 8,
            swap_cluster_adapts: true,
            map_around: 16,
            dirty_background: 0.1,
            dirty_limit: 0.2,
            free_low: 0.0017,
            free_high: 0.0021,
            write_cluster: 32,
            write_commands: 16,
            queue: 0,
            repeated_fault_hits: false,
            existing: Bytes(0),
            resident: false,
            link_pj_per_bit: 1.93,
        }
    }
}
