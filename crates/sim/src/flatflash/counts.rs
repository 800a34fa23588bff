//! Counters of the FlatFlash systems.

use crate::result::counts;

counts! {
    /// Accesses, pages and lines so far.
    pub struct FlatCounts {
        /// Requests completed.
        pub accesses: u64,
        /// Lookups of the processor's cache.
        pub cpu_lookups: u64,
        /// Hits of the processor's cache.
        pub cpu_hits: u64,
        /// Lookups of the cores' TLBs.
        pub tlb_lookups: u64,
        /// Hits of the TLBs; each miss is a page walk.
        pub tlb_hits: u64,
        /// Lines that missed the processor's cache or were written back from it.
        pub memory_lines: u64,
        /// Memory lines served by DRAM, including lines of pages in flight that had already arrived.
        pub dram_lines: u64,
        /// Lookups of the SSD-Cache (device buffer), by accesses and by pages that the host writes.
        pub buffer_lookups: u64,
        /// Hits of the device buffer.
        pub buffer_hits: u64,
        /// Misses of the device buffer by pages that the host writes, for which flash is not read.
        pub unread_pages: u64,
        /// Lines read over the link.
        pub line_reads: u64,
        /// Lines written over the link.
        pub line_writes: u64,
        /// Stores that waited for room in the write buffer.
        pub posted_waits: u64,
        /// Promotions started.
        pub promotions: u64,
        /// Promotions deferred because the promotion look-aside buffer (PLB) was full.
        pub promotions_deferred: u64,
        /// Lines of promoted pages copied to DRAM.
        pub inbound_lines: u64,
        /// Lines of promoted pages dropped because they were stale.
        pub dropped_lines: u64,
        /// Stores to pages in flight, redirected to DRAM.
        pub redirected_stores: u64,
        /// Lines removed from the processor's cache because their page moved.
        pub moved_lines: u64,
        /// Page faults.
        pub faults: u64,
        /// Pages moved to DRAM.
        pub pages_to_host: u64,
        /// Pages written to the drive.
        pub pages_to_drive: u64,
        /// Pages demoted from DRAM.
        pub demotions: u64,
        /// Page-table entry updates.
        pub pte_updates: u64,
        /// Remap batches: reports of moved pages from the drive to the host.
        pub remap_batches: u64,
        /// Remap batches forced by a shortage of blocks.
        pub forced_batches: u64,
        /// Pages in remap batches.
        pub remapped_pages: u64,
        /// Blocks reclaimed.
        pub reclaims: u64,
        /// Dirty pages of the device buffer written to flash by reclamation.
        pub destaged_by_reclaim: u64,
        /// Flushes.
        pub flushes: u64,
        /// Lines written by flushes.
        pub flushed_lines: u64,
        /// Pages written by flushes.
        pub flushed_pages: u64,
        /// Pages written to persistent regions as blocks.
        pub written_blocks: u64,
        /// Pages of persistent regions programmed, those that reclamation moves not included.
        pub region_programs: u64,
        /// Exceptions of the platform's page protection.
        pub exceptions: u64,
        /// Bytes over the link to the host.
        pub link_bytes_to_host: u64,
        /// Bytes over the link to the drive.
        pub link_bytes_to_drive: u64,
    }
}

impl FlatCounts {
    /// Pages that crossed the link, both ways.
    #[must_use]
    pub fn page_movements(&self) -> u64 {
        self.pages_to_host + self.pages_to_drive
    }
}
