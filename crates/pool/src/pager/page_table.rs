//! Which memory is managed, and what is known of each page of it.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

use super::PAGE;
use super::spans::Spans;
use crate::lock::lock;

/// Pages whose states share a lock: those of a huge page.
pub(super) const CHUNK_PAGES: usize = 512;
pub(super) const CHUNK_BYTES: usize = CHUNK_PAGES * PAGE;

/// Where a page's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Place {
    /// Nowhere: it was never stored to and reads as zeros.
    #[default]
    Fresh,
    /// On their way into memory. Whoever made it so will install it.
    Coming,
    /// In memory as on the store, at this slot, and write-protected.
    Clean(Slot),
    /// In memory and nowhere else.
    Dirty,
    /// In memory still, write-protected, on their way into the waiting room.
    Leaving,
    /// In the waiting room, in this frame.
    Waiting(u32),
    /// On the store alone.
    Stored(Slot),
}

/// A place on the store: which file, and which page of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    /// How deep the process that wrote it stands among those forked from each other.
    pub(super) file: u8,
    pub(super) number: u32,
}

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Page {
    pub(super) place: Place,
    /// A fault arrived while the page was leaving; who makes it leave has to bring it back.
    pub(super) wanted: bool,
    /// It was stored to after it had been read from the store: so it will be again, and is installed writable.
    /// What is stored to in fresh memory says nothing: all of that is.
    pub(super) stored_to: bool,
    /// Whether it will be is in doubt (`doubts.rs`).
    pub(super) doubted: bool,
    /// It stays in memory.
    pub(super) pinned: bool,
    /// The program cannot read it (`PROT_NONE`), and so the pager cannot in the plain way.
    pub(super) hidden: bool,
    /// What is thought of its being used again: doubled when it comes back from the waiting room, halved when it
    /// leaves that for the store.
    pub(super) heat: u8,
    /// It was read ahead of use.
    pub(super) ahead: bool,
    /// It was read ahead of use, and waits in the room for its first use to be seen.
    pub(super) trigger: Option<Trigger>,
}

/// Why the use of a page is to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// It has the next window read.
    Window,
    /// It tells whether neighbours of missed pages are used (`around.rs`).
    Probe,
}

/// Most heat of a page.
const HOT: u8 = 16;

impl Page {
    /// It came back from the waiting room.
    pub(super) fn warm(&mut self) {
        self.heat = (self.heat * 2).clamp(1, HOT);
    }

    /// It left the waiting room for the store.
    pub(super) fn cool(&mut self) {
        self.heat /= 2;
    }
}

/// Pages under one lock.
#[derive(Debug)]
pub(super) struct Chunk {
    pages: Vec<Page>,
    /// All of them are in memory as one huge page, either all clean or all dirty, or on their way out as such. The
    /// policy knows them by one key ([`super::huge::key`]).
    pub(super) huge: bool,
    /// All of them are to come together, through this stage: until then each is fresh, or each on the store.
    pub(super) staged: Option<usize>,
    /// A fault waits for the stage, and whether any that does is a store.
    pub(super) awaited: Option<bool>,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { pages: vec![Page::default(); CHUNK_PAGES], huge: false, staged: None, awaited: None }
    }
}

impl Deref for Chunk {
    type Target = [Page];

    fn deref(&self) -> &[Page] {
        &self.pages
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [Page] {
        &mut self.pages
    }
}

/// Chunks by their number. A chunk is listed if any page of it is managed, and made when it is first asked
/// for: programs reserve far more than they touch. Its pages that are not managed lie outside all spans.
#[derive(Debug, Default)]
pub(super) struct Layout {
    chunks: BTreeMap<usize, OnceLock<Box<Mutex<Chunk>>>>,
    made: AtomicUsize,
    /// Managed memory.
    spans: Spans,
}

impl Layout {
    /// Whether the address is managed.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.spans.contains(address)
    }

    /// Managed memory in the range, as start and end.
    pub(super) fn within(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        self.spans.within(start, end)
    }

    /// All managed memory, as start and end.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.spans.iter()
    }

    /// Bytes managed.
    pub(super) fn bytes(&self) -> usize {
        self.spans.bytes()
    }

    /// Adds memory, all pages fresh.
    pub(super) fn add(&mut self, start: usize, end: usize) {
        self.remove(start, end);
        let mut chunk = start / CHUNK_BYTES;
        while chunk * CHUNK_BYTES < end {
            self.chunks.entry(chunk).or_default();
            chunk += 1;
        }
        self.spans.insert(start, end);
    }

    /// Takes memory out; its pages are fresh for whoever adds it again.
    pub(super) fn remove(&mut self, start: usize, end: usize) {
        for (from, to) in self.within(start, end) {
            self.each(from, to, |_, page| *page = Page::default());
        }
        self.spans.remove(start, end);
        let chunks: Vec<usize> =
            self.chunks.range(start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)).map(|(n, _)| *n).collect();
        for chunk in chunks {
            let empty = self.within(chunk * CHUNK_BYTES, (chunk + 1) * CHUNK_BYTES).is_empty();
            if empty && self.chunks.remove(&chunk).is_some_and(|chunk| chunk.get().is_some()) {
                self.made.fetch_sub(1, Relaxed);
            }
        }
    }

    /// The chunk of a managed address, and the page's place in it.
    pub(super) fn chunk(&self, address: usize) -> Option<(MutexGuard<'_, Chunk>, usize)> {
        let chunk = self.chunks.get(&(address / CHUNK_BYTES))?.get_or_init(|| {
            self.made.fetch_add(1, Relaxed);
            Box::default()
        });
        Some((lock(chunk), address % CHUNK_BYTES / PAGE))
    }

    /// The pages of the range that share a lock with the first: end of those.
    pub(super) fn chunk_end(address: usize) -> usize {
        (address / CHUNK_BYTES + 1) * CHUNK_BYTES
    }

    /// The chunks that the range touches and of which anything is known, with their addresses.
    pub(super) fn chunks(
        &self,
        start: usize,
        end: usize,
    ) -> impl Iterator<Item = (usize, MutexGuard<'_, Chunk>)> {
        let range = start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES).max(start / CHUNK_BYTES);
        self.chunks.range(range).filter_map(|(n, chunk)| Some((n * CHUNK_BYTES, lock(chunk.get()?))))
    }

    /// Whether all of the range is managed.
    pub(super) fn covers(&self, start: usize, end: usize) -> bool {
        self.spans.covers(start, end)
    }

    /// Calls `f` with the address and state of each page of a managed range that anything is known of: all
    /// others are fresh.
    pub(super) fn each(&self, start: usize, end: usize, f: impl FnMut(usize, &mut Page)) {
        self.visit(start, end, false, f);
    }

    /// As [`Layout::each`], for all pages.
    pub(super) fn every(&self, start: usize, end: usize, f: impl FnMut(usize, &mut Page)) {
        self.visit(start, end, true, f);
    }

    fn visit(&self, start: usize, end: usize, make: bool, mut f: impl FnMut(usize, &mut Page)) {
        let mut at = start;
        while at < end {
            let stop = Self::chunk_end(at).min(end);
            let known = self.chunks.get(&(at / CHUNK_BYTES)).is_some_and(|chunk| chunk.get().is_some());
            if (known || make)
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
        self.made.load(Relaxed) * (CHUNK_PAGES * size_of::<Page>() + size_of::<Mutex<Chunk>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Spans against a set of pages.
        #[test]
        fn spans_are_a_set_of_pages(steps in proptest::collection::vec((any::<bool>(), 0usize..2000, 1usize..900), 1..30)) {
            let mut layout = Layout::default();
            let mut model = std::collections::BTreeSet::new();
            for (add, first, count) in steps {
                let (start, end) = (first * PAGE, (first + count) * PAGE);
                if add {
                    layout.add(start, end);
                    model.extend(first..first + count);
                } else {
                    layout.remove(start, end);
                    model.retain(|page| !(first..first + count).contains(page));
                }
                prop_assert_eq!(layout.bytes(), model.len() * PAGE);
                for page in 0..3000 {
                    prop_assert_eq!(layout.contains(page * PAGE + 7), model.contains(&page), "page {}", page);
                }
                let spans: Vec<_> = layout.all().collect();
                prop_assert!(spans.windows(2).all(|w| w[0].1 < w[1].0), "{:?}", spans);
                for page in &model {
                    prop_assert!(layout.chunk(page * PAGE).is_some());
                }
            }
        }
    }
}
