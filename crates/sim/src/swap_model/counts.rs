//! Counters of the simulated pager, under the names that the statistics of `deepram run` have for them.

use serde::Serialize;

macro_rules! counts {
    ($($(#[doc = $doc:expr])+ $name:ident,)+) => {
        /// Counters of the simulated pager.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
        pub struct SwapModelCounts {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl SwapModelCounts {
            /// The counts since an earlier time.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name - earlier.$name,)+ }
            }
        }
    };
}

counts! {
    /// Accesses, counted once for each page.
    accesses,
    /// Page faults on fresh pages (never written).
    faults_fresh,
    /// Major page faults (page read from the swap file).
    faults_major,
    /// Page faults served from the victim buffer.
    victim_buffer_hits,
    /// Write-protection faults (first write to a write-protected clean page).
    faults_write_protected,
    /// Pages read ahead.
    readahead_pages,
    /// Pages read ahead that were used before they left DRAM. `deepram run` cannot count these.
    readahead_pages_used,
    /// Readahead windows.
    readahead_windows,
    /// Readahead windows used.
    readahead_windows_used,
    /// Readahead windows evicted unused.
    readahead_windows_wasted,
    /// Pages evicted.
    evicted_pages,
    /// Dirty pages evicted.
    evicted_dirty_pages,
    /// Dirty pages written to the swap file.
    written_back_pages,
    /// Page faults that had to evict a page first.
    eviction_stalls,
    /// Reads from the swap file.
    reads,
    /// Read from the swap file, bytes.
    bytes_read,
    /// Writes to the swap file.
    writes,
    /// Huge pages moved into memory.
    huge_pages,
}
