//! What a paging system may choose beside its presets.

use serde::Serialize;

/// What a page is read from, and written back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// A mapped file: all data are on the drive from the beginning, each page in its place.
    #[default]
    File,
    /// Anonymous memory: the first touch gives zeros; a page goes to a slot of the swap area when it is
    /// evicted, and slots are given out in order.
    Swap,
}

/// How a thread learns that its page has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// It sleeps; an interrupt wakes it.
    #[default]
    Interrupt,
    /// It holds its core and asks the drive again and again.
    Polling,
}

/// Options of the paging system. The defaults are Linux's (kernel 6, x86-64) where Linux has one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PagingOptions {
    /// Bytes of DRAM that hold pages; 0 for all that the DRAM has. A part of the DRAM may thus be left to
    /// the system itself.
    pub memory_bytes: u64,
    /// What is behind the pages.
    pub backing: Backing,
    /// Interrupts or polling.
    pub completion: Completion,
    /// Pages of the first readahead window of a file: 16 KiB (Linux, VM_READAHEAD_PAGES and the initial
    /// window, as `facts.md` section 7 quotes mm.h).
    pub readahead_least: u32,
    /// Pages of the largest readahead window of a file: 128 KiB; 0 for no readahead.
    pub readahead_most: u32,
    /// A random miss of a file has the `readahead_most` pages around it read, unless the file misses much more
    /// than it hits (Linux, mm/filemap.c); if not, its page alone.
    pub read_around: bool,
    /// Sequential runs that readahead follows at once. Linux has one window for each open file and finds
    /// other runs by marks in pages; assumed to come to this.
    pub readahead_runs: u32,
    /// Pages around a swapped page that are read with it at most: page-cluster 3; 1 for none.
    pub swap_cluster: u32,
    /// Pages that are mapped together if they are in memory when a read of one of them faults:
    /// fault_around_bytes, 64 KiB. Files only; 1 for none.
    pub map_around: u32,
    /// Share of memory that may be dirty before dirty pages of a file are written in the background:
    /// vm.dirty_background_ratio.
    pub dirty_background: f64,
    /// Share of memory that may be dirty, or on its way out, before threads that write to a file wait:
    /// vm.dirty_ratio.
    pub dirty_limit: f64,
    /// Share of memory below which free pages are made in the background. Linux makes it 5/4 of
    /// 4 sqrt(memory in KiB) KiB, 0.17 % of 8 GiB.
    pub free_low: f64,
    /// Share of memory up to which they are made: 3/2 of the same, 0.21 % of 8 GiB.
    pub free_high: f64,
    /// Pages written back with one command at most: SWAP_CLUSTER_MAX, 32.
    pub write_cluster: u32,
    /// Commands that write back at once in the background; assumed, half of what AHCI can queue.
    pub write_commands: u32,
    /// Commands that the host keeps in the drive's queue at most; 0 for as many as the drive takes. 32 is
    /// native command queueing.
    pub queue: u64,
    /// Energy of a bit on the link. The default is that of the transmitter of W. Bae et al., "A 1.93-pJ/Bit
    /// PCI Express Gen4 PHY Transmitter", Electronics 10(1), 2021; the receiver is not in it.
    pub link_pj_per_bit: f64,
}

impl Default for PagingOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 0,
            backing: Backing::File,
            completion: Completion::Interrupt,
            readahead_least: 4,
            readahead_most: 32,
            read_around: true,
            readahead_runs: 16,
            swap_cluster: 8,
            map_around: 16,
            dirty_background: 0.1,
            dirty_limit: 0.2,
            free_low: 0.0017,
            free_high: 0.0021,
            write_cluster: 32,
            write_commands: 16,
            queue: 0,
            link_pj_per_bit: 1.93,
        }
    }
}
