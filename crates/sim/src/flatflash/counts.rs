//! What the system did.

use crate::result::counts;

counts! {
    /// Accesses, pages and lines so far.
    pub struct FlatCounts {
        /// Requests completed.
        pub accesses: u64,
        /// Lines asked of the processor's cache.
        pub cpu_lookups: u64,
        /// Of these, lines that it held.
        pub cpu_hits: u64,
        /// Translations asked for.
        pub tlb_lookups: u64,
        /// Of these, translations held; the others were walks.
        pub tlb_hits: u64,
        /// Lines that went past the processor's cache.
        pub memory_lines: u64,
        /// Of these, lines of pages in DRAM, or on their way there and in DRAM already.
        pub dram_lines: u64,
        /// Pages looked for in the drive's memory.
        pub buffer_lookups: u64,
        /// Of these, pages that it held.
        pub buffer_hits: u64,
        /// Lines read over the link.
        pub line_reads: u64,
        /// Lines written over the link.
        pub line_writes: u64,
        /// Stores that waited for room in the write buffer.
        pub posted_waits: u64,
        /// Pages whose promotion began.
        pub promotions: u64,
        /// Uses that would have promoted a page, had the look-aside buffer had room.
        pub promotions_deferred: u64,
        /// Lines of promoted pages that the drive sent and DRAM took.
        pub inbound_lines: u64,
        /// Lines that the drive sent and that were stale.
        pub dropped_lines: u64,
        /// Stores to pages in flight, which went to DRAM.
        pub redirected_stores: u64,
        /// Lines that left the processor's cache because their page moved.
        pub moved_lines: u64,
        /// Page faults.
        pub faults: u64,
        /// Pages moved to DRAM.
        pub pages_to_host: u64,
        /// Pages written to the drive.
        pub pages_to_drive: u64,
        /// Pages that left DRAM.
        pub demotions: u64,
        /// Changes of page-table entries.
        pub pte_updates: u64,
        /// Times that the drive told the host of pages that it had moved.
        pub remap_batches: u64,
        /// Of these, times that it was short of blocks.
        pub forced_batches: u64,
        /// Pages that it told of.
        pub remapped_pages: u64,
        /// Blocks reclaimed.
        pub reclaims: u64,
        /// Dirty pages of the drive's memory that reclamation took along.
        pub destaged_by_reclaim: u64,
        /// Flushes.
        pub flushes: u64,
        /// Lines that flushes wrote.
        pub flushed_lines: u64,
        /// Pages that flushes wrote.
        pub flushed_pages: u64,
        /// Pages written to regions as blocks.
        pub written_blocks: u64,
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
