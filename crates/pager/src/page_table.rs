//! The pager's page table: which memory is managed, and the state of each 4 KiB page.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

use deepram_core::paging::{self, Heat, huge_pages};

use super::PAGE;
use super::checksum::PageChecksum;
use super::service::Trigger;
use super::spans::Spans;
use deepram_linux::lock::lock;

/// The pages whose states share one lock: those of a huge page.
pub(super) use deepram_core::paging::huge_pages::{CHUNK_BYTES, CHUNK_PAGES};

/// Where a page's bytes are.
pub(super) type PageState = paging::PageState<SwapSlot>;

/// A page of a swap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SwapSlot {
    /// Fork depth of the process that wrote the page: the index of its swap file.
    pub(super) file: u8,
    pub(super) number: u32,
}

impl huge_pages::SwapSlot for SwapSlot {
    fn follows(&self, other: &Self) -> bool {
        self.file == other.file && self.number == other.number + 1
    }
}

/// The state of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PageInfo {
    pub(super) state: PageState,
    /// A fault arrived while the page was in transit; the thread that moves the page wakes the faulting thread.
    pub(super) fault_waiting: bool,
    /// Of a clean page: the checksum of its slot, if the page is not write-protected. Of a page that is not in memory: the
    /// checksum of its slot, if known.
    pub(super) checksum: Option<PageChecksum>,
    /// The page stays in memory.
    pub(super) pinned: bool,
    /// The program cannot read the page (`PROT_NONE`), so the pager reads it through the kernel.
    pub(super) unreadable: bool,
    /// Estimated reuse.
    pub(super) heat: Heat,
    /// The page was read ahead of use, and waits in the victim buffer for its first use to be seen.
    pub(super) trigger: Option<Trigger>,
}

impl PageInfo {
    /// The slot of a clean page, which it equals unless its checksum shows a store.
    pub(super) fn unverified(&self) -> Option<(SwapSlot, PageChecksum)> {
        let PageState::Clean(slot) = self.state else { return None };
        Some((slot, self.checksum?))
    }
}

/// The 512 pages of an aligned 2 MiB range, whose states share one lock.
#[derive(Debug)]
pub(super) struct Chunk {
    pages: Vec<PageInfo>,
    /// The pages are in memory as one huge page, all clean or all dirty, or are leaving as one. The policy has one key
    /// for all of them (`PolicyKey`).
    pub(super) huge: bool,
    /// The stage through which all pages will enter memory together; until then all of them are fresh, or all of them
    /// stored.
    pub(super) staged: Option<usize>,
    /// Set if a fault waits for the stage; `true` if one of the waiting accesses is a store.
    pub(super) waiting_fault: Option<bool>,
    /// Number of pages that had been evicted when the chunk was last evicted as a huge page.
    pub(super) evicted_at: Option<u64>,
}

impl Default for Chunk {
    fn default() -> Self {
        let pages = vec![PageInfo::default(); CHUNK_PAGES];
        Self { pages, huge: false, staged: None, waiting_fault: None, evicted_at: None }
    }
}

impl Deref for Chunk {
    type Target = [PageInfo];

    fn deref(&self) -> &[PageInfo] {
        &self.pages
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [PageInfo] {
        &mut self.pages
    }
}

/// Chunks by number (address / 2 MiB). A chunk is listed if any of its pages is managed, and allocated at its first
/// lookup: programs reserve far more memory than they touch. Its pages that are not managed lie outside all spans.
#[derive(Debug, Default)]
pub(super) struct PageTable {
    chunks: BTreeMap<usize, OnceLock<Box<Mutex<Chunk>>>>,
    allocated: AtomicUsize,
    /// The managed memory.
    spans: Spans,
}

impl PageTable {
    /// Whether the address is managed.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.spans.contains(address)
    }

    /// The managed parts of the range, as (start, end).
    pub(super) fn within(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        self.spans.within(start, end)
    }

    /// All managed memory, as (start, end).
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.spans.iter()
    }

    /// Number of managed bytes.
    pub(super) fn bytes(&self) -> usize {
        self.spans.bytes()
    }

    /// Adds memory; all of its pages are fresh.
    pub(super) fn add(&mut self, start: usize, end: usize) {
        self.remove(start, end);
        let mut chunk = start / CHUNK_BYTES;
        while chunk * CHUNK_BYTES < end {
            self.chunks.entry(chunk).or_default();
            chunk += 1;
        }
        self.spans.insert(start, end);
    }

    /// Removes memory; its pages are fresh if it is added again.
    pub(super) fn remove(&mut self, start: usize, end: usize) {
        for (from, to) in self.within(start, end) {
            self.each_known(from, to, |_, page| *page = PageInfo::default());
        }
        self.spans.remove(start, end);
        let chunks: Vec<usize> =
            self.chunks.range(start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)).map(|(n, _)| *n).collect();
        for chunk in chunks {
            let empty = self.within(chunk * CHUNK_BYTES, (chunk + 1) * CHUNK_BYTES).is_empty();
            if empty && self.chunks.remove(&chunk).is_some_and(|chunk| chunk.get().is_some()) {
                self.allocated.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Locks the chunk of a managed address. Returns it with the page's index in the chunk.
    pub(super) fn chunk(&self, address: usize) -> Option<(MutexGuard<'_, Chunk>, usize)> {
        let chunk = self.chunks.get(&(address / CHUNK_BYTES))?.get_or_init(|| {
            self.allocated.fetch_add(1, Relaxed);
            Box::default()
        });
        Some((lock(chunk), address % CHUNK_BYTES / PAGE))
    }

    /// End address of the chunk that contains `address`.
    pub(super) fn chunk_end(address: usize) -> usize {
        (address / CHUNK_BYTES + 1) * CHUNK_BYTES
    }

    /// Locks, one after the other, the allocated chunks that overlap the range. Yields their addresses and states.
    pub(super) fn chunks(
        &self,
        start: usize,
        end: usize,
    ) -> impl Iterator<Item = (usize, MutexGuard<'_, Chunk>)> {
        let range = start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES).max(start / CHUNK_BYTES);
        self.chunks.range(range).filter_map(|(n, chunk)| Some((n * CHUNK_BYTES, lock(chunk.get()?))))
    }

    /// Whether the whole range is managed.
    pub(super) fn covers(&self, start: usize, end: usize) -> bool {
        self.spans.covers(start, end)
    }

    /// Calls `f` with the address and state of each page of a managed range whose chunk is allocated; all other pages
    /// are fresh.
    pub(super) fn each_known(&self, start: usize, end: usize, f: impl FnMut(usize, &mut PageInfo)) {
        self.visit(start, end, false, f);
    }

    /// As [`PageTable::each_known`], for all pages.
    pub(super) fn each(&self, start: usize, end: usize, f: impl FnMut(usize, &mut PageInfo)) {
        self.visit(start, end, true, f);
    }

    fn visit(&self, start: usize, end: usize, allocate: bool, mut f: impl FnMut(usize, &mut PageInfo)) {
        let mut at = start;
        while at < end {
            let stop = Self::chunk_end(at).min(end);
            let known = self.chunks.get(&(at / CHUNK_BYTES)).is_some_and(|chunk| chunk.get().is_some());
            if (known || allocate)
                && let Some((mut pages, first)) = self.chunk(at)
            {
                for (page, address) in pages[first..].iter_mut().zip((at..stop).step_by(PAGE)) {
                    f(address, page);
                }
            }
            at = stop;
        }
    }

    /// Bytes of the tables.
    pub(super) fn memory_bytes(&self) -> usize {
        self.allocated.load(Relaxed) * (CHUNK_PAGES * size_of::<PageInfo>() + size_of::<Mutex<Chunk>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the table with a set of page numbers.
        #[test]
        fn spans_are_a_set_of_pages(steps in proptest::collection::vec((any::<bool>(), 0usize..2000, 1usize..900), 1..30)) {
            let mut page_table = PageTable::default();
            let mut model = std::collections::BTreeSet::new();
            for (add, first, count) in steps {
                let (start, end) = (first * PAGE, (first + count) * PAGE);
                if add {
                    page_table.add(start, end);
                    model.extend(first..first + count);
                } else {
                    page_table.remove(start, end);
                    model.retain(|page| !(first..first + count).contains(page));
                }
                prop_assert_eq!(page_table.bytes(), model.len() * PAGE);
                for page in 0..3000 {
                    prop_assert_eq!(page_table.contains(page * PAGE + 7), model.contains(&page), "page {}", page);
                }
                let spans: Vec<_> = page_table.all().collect();
                prop_assert!(spans.windows(2).all(|w| w[0].1 < w[1].0), "{:?}", spans);
                for page in &model {
                    prop_assert!(page_table.chunk(page * PAGE).is_some());
                }
            }
        }
    }
}
