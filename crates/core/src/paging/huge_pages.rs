//! Which memory becomes huge pages (ADR 21). Memory that is used in order enters and leaves 2 MiB at a time, in whole chunks
//! of [`CHUNK_PAGES`] pages, through [`super::stages`].
//!
//! A chunk is staged when a stream approaches it: one that fills fresh memory, or one that reads stored pages. It waits in
//! its stage until its first page is touched; that fault moves it into memory and has the next chunks staged.

use alloc::vec::Vec;

use super::{PAGE, PageState, SegmentState, Window};

/// Pages of a chunk.
pub const CHUNK_PAGES: usize = 512;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = CHUNK_PAGES * PAGE;
/// Largest number of runs of neighbouring slots in a staged chunk: with more runs, reading them takes too long.
pub const MAX_RUNS: usize = 16;
/// Length of a window, in pages of 4 KiB, from which on the chunks behind it are staged.
const LONG_WINDOW: usize = 64;
/// Chunks of swap files that are staged ahead of the one in use.
pub const STAGED_AHEAD: usize = 3;
/// Chunks of a pool that are staged ahead of the one in use: a chunk arrives later, since each of its segments is verified.
pub const POOL_STAGED_AHEAD: usize = 6;
/// A first store among this many pages at the start of a chunk belongs to a stream, which will store to the whole chunk.
const NEAR_START: usize = 8;
/// Fresh memory becomes huge at its first touch while one in this many of the frames is free: the kernel would also give
/// huge pages only then.
const FREE_SHARE: usize = 4;
/// Bit that distinguishes the replacement policy's keys of chunks from those of pages.
const CHUNK_KEY: u64 = 1 << 63;

/// The unit that the replacement policy evicts, and its key there: a page, or a huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKey {
    /// The page at this address.
    Page(usize),
    /// The huge page at this address.
    Chunk(usize),
}

impl PolicyKey {
    /// The key as a number, in the order of addresses within each kind.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Page(address) => (address / PAGE) as u64,
            Self::Chunk(address) => (address / PAGE) as u64 | CHUNK_KEY,
        }
    }

    /// The key of this number.
    #[must_use]
    pub fn of(number: u64) -> Self {
        let address = (number & !CHUNK_KEY) as usize * PAGE;
        if number & CHUNK_KEY == 0 { Self::Page(address) } else { Self::Chunk(address) }
    }
}

/// State of a chunk of the pool's memory, of [`CHUNK_BYTES`] bytes.
///
/// ```text
///            staged                        first use               store, or a part is dropped or pinned
///   small ───────────► staged (or waiting) ─────────► huge ────────────────────────────────────────────► small
///     ▲                        │                       │
///     └─────── cancelled ──────┴──── evicted whole ────┘
/// ```
///
/// The segments of a staged chunk are all absent; before one of them is filled by itself, the staging is cancelled. Those of a
/// huge chunk are all resident, clean and not pinned, and have one key in the policy, that of the first segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChunkState {
    /// Each segment is resident or absent by itself.
    #[default]
    Small,
    /// The chunk has this stage. `waits`: a thread waits until its bytes have arrived.
    Staged {
        /// Number of the stage.
        stage: usize,
        /// Whether a thread waits.
        waits: bool,
    },
    /// The chunk is one huge page.
    Huge,
}

impl ChunkState {
    /// Whether the chunk has this stage.
    #[must_use]
    pub fn is_in(self, stage: usize) -> bool {
        matches!(self, Self::Staged { stage: of, .. } if of == stage)
    }
}

/// Whether a chunk of these segments of the pool, none of which is pinned, may be staged: they are mostly absent, and the others
/// may be dropped, as they come back with the rest.
#[must_use]
pub fn segments_may_be_staged(segments: &[SegmentState]) -> bool {
    let absent = segments.iter().filter(|segment| segment.is_absent()).count();
    absent > segments.len() / 2 && segments.iter().all(|segment| segment.is_absent() || segment.may_drop())
}

/// Contents with which a stage is filled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StageSource<S> {
    /// Zeros.
    Fresh,
    /// Runs of neighbouring slots of the swap file, in the order of the pages: (first slot, number of slots).
    Stored(Vec<(S, usize)>),
}

/// A slot of a store.
pub trait SwapSlot: Copy {
    /// Whether this is the slot right behind another.
    fn follows(&self, other: &Self) -> bool;
}

/// The contents with which a chunk of these pages would be staged; `None` if it cannot be staged as it is.
pub fn source<S: SwapSlot>(pages: impl Iterator<Item = PageState<S>> + Clone) -> Option<StageSource<S>> {
    if is_fresh(pages.clone()) {
        return Some(StageSource::Fresh);
    }
    let stored = |page| if let PageState::Stored(slot) = page { Some(slot) } else { None };
    let slots: Option<Vec<S>> = pages.map(stored).collect();
    runs_of_slots(&slots?).map(StageSource::Stored)
}

/// Groups the slots of a chunk's pages into runs of neighbours; `None` if there are too many runs.
#[must_use]
pub fn runs_of_slots<S: SwapSlot>(slots: &[S]) -> Option<Vec<(S, usize)>> {
    let runs = slots.chunk_by(|a, b| b.follows(a)).map(|run| (run[0], run.len()));
    let runs: Vec<(S, usize)> = runs.take(MAX_RUNS + 1).collect();
    (runs.len() <= MAX_RUNS).then_some(runs)
}

/// Whether a chunk of these pages is all fresh.
pub fn is_fresh<S>(mut pages: impl Iterator<Item = PageState<S>>) -> bool {
    pages.all(|page| matches!(page, PageState::Fresh))
}

/// Whether a stream has filled a chunk of these pages.
pub fn is_filled<S>(mut pages: impl Iterator<Item = PageState<S>>) -> bool {
    pages.all(|page| !matches!(page, PageState::Fresh))
}

/// Quick check before [`source`]: whether a chunk of these pages is all fresh, or mostly out of memory with no page dirty or
/// in transit; the pages in DRAM are then dropped, as they come back with the rest. `stays` says of each page whether it
/// stays in memory or cannot be read.
pub fn may_be_staged<S>(pages: impl Iterator<Item = (PageState<S>, bool)>) -> bool {
    let (mut out, mut fresh, mut all) = (0, 0, 0);
    for (page, stays) in pages {
        match page {
            _ if stays => return false,
            PageState::Fresh => fresh += 1,
            PageState::Stored(_) | PageState::InVictimBuffer(_) => out += 1,
            PageState::Clean(_) => {}
            PageState::Incoming | PageState::Dirty | PageState::Evicting => return false,
        }
        all += 1;
        if fresh > 0 && fresh < all {
            return false;
        }
    }
    fresh > 0 || out > CHUNK_PAGES / 2
}

/// The address of the chunk from which on to stage behind a readahead window of pages of `page_bytes`, if the window is long
/// and ascends page by page.
#[must_use]
pub fn chunk_behind(window: Window, page_bytes: usize) -> Option<usize> {
    let streams =
        window.stride == page_bytes.cast_signed() && window.count * page_bytes >= LONG_WINDOW * PAGE;
    streams.then(|| window.page(window.count).next_multiple_of(CHUNK_BYTES))
}

/// Whether a first store to page number `page` of a clean huge page makes all of it dirty. Otherwise the huge page is split,
/// and its pages may leave one by one.
#[must_use]
pub fn first_store_dirties_all(page: usize) -> bool {
    page < NEAR_START
}

/// Number of frames of `frames` that are free where fresh memory becomes huge at its first touch.
#[must_use]
pub fn free_for_huge(frames: usize) -> usize {
    frames / FREE_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use PageState::{Clean, Dirty, Evicting, Fresh, InVictimBuffer, Incoming, Stored};
    use alloc::vec;
    use proptest::prelude::*;

    impl SwapSlot for u32 {
        fn follows(&self, other: &Self) -> bool {
            *self == other + 1
        }
    }

    /// A chunk whose page `n` has the state `state(n)`.
    fn chunk(state: impl Fn(u32) -> PageState<u32>) -> Vec<PageState<u32>> {
        (0..CHUNK_PAGES as u32).map(state).collect()
    }

    fn may(pages: &[PageState<u32>]) -> bool {
        may_be_staged(pages.iter().map(|page| (*page, false)))
    }

    #[test]
    fn a_chunk_is_staged_if_it_is_fresh_or_mostly_out_of_memory_in_few_runs() {
        let fresh = chunk(|_| Fresh);
        assert_eq!((may(&fresh), source(fresh.iter().copied())), (true, Some(StageSource::Fresh)));
        let stored = chunk(|n| Stored(n + n / 100 * 7));
        let runs = [(0, 100), (107, 100), (214, 100), (321, 100), (428, 100), (535, 12)];
        assert_eq!(
            (may(&stored), source(stored.iter().copied())),
            (true, Some(StageSource::Stored(runs.into())))
        );
        let scattered = chunk(|n| Stored(2 * n));
        assert_eq!((may(&scattered), source(scattered.iter().copied())), (true, None));
        for state in [Incoming, Dirty, Evicting, Fresh] {
            let one = chunk(|n| if n == 300 { state } else { Stored(n) });
            assert_eq!((may(&one), source(one.iter().copied())), (false, None), "{state:?}");
            let first = chunk(|n| if n == 0 { state } else { Stored(n) });
            assert!(!may(&first), "{state:?}");
        }
        assert!(!may(&chunk(|n| if n == 300 { Stored(n) } else { Fresh })));
        let mixed = |out| {
            chunk(move |n| if n < out { [Stored(n), InVictimBuffer(n)][n as usize % 2] } else { Clean(n) })
        };
        assert_eq!((may(&mixed(256)), may(&mixed(257))), (false, true));
        assert!(!may_be_staged(stored.iter().zip(0..).map(|(page, n)| (*page, n == 511))), "one page stays");
        assert!(is_filled(mixed(1).into_iter()) && is_fresh(fresh.into_iter()));
    }

    #[test]
    fn segments_are_staged_if_most_are_absent_and_the_others_may_be_dropped() {
        let mut clean = SegmentState::ABSENT;
        clean.end_fill();
        let changed = |change: fn(&mut SegmentState)| {
            let mut segment = clean;
            change(&mut segment);
            segment
        };
        let mut poisoned = SegmentState::ABSENT;
        poisoned.poison();
        let (dirty, filling) = (changed(SegmentState::make_dirty), changed(SegmentState::begin_fill));
        let written = |segment: &mut SegmentState| (segment.make_dirty(), segment.take()).1;
        let frozen = |segment: &mut SegmentState| (segment.make_dirty(), segment.cut()).1;
        let may = |absent: usize, other: SegmentState| {
            let mut chunk = vec![other; 512];
            chunk[512 - absent..].fill(SegmentState::ABSENT);
            segments_may_be_staged(&chunk)
        };
        assert_eq!([256, 257, 512].map(|absent| may(absent, clean)), [false, true, true]);
        for other in [dirty, filling, poisoned, changed(written), changed(frozen)] {
            assert!(!may(511, other), "{other:?}");
        }
    }

    #[test]
    fn chunks_behind_a_long_window_are_staged() {
        let window =
            |stride: isize, count| Window { first: 10 * PAGE, stride: stride * PAGE.cast_signed(), count };
        assert_eq!(chunk_behind(window(1, 64), PAGE), Some(CHUNK_BYTES));
        assert_eq!(chunk_behind(window(1, 512), PAGE), Some(2 * CHUNK_BYTES));
        let short = [window(1, 63), window(2, 64), window(-1, 64)];
        assert_eq!(short.map(|window| chunk_behind(window, PAGE)), [None; 3]);
        let of_16k = [(4, 15), (4, 16), (1, 64)].map(|(stride, count)| window(stride, count));
        assert_eq!(of_16k.map(|window| chunk_behind(window, 4 * PAGE)), [None, Some(CHUNK_BYTES), None]);
        assert_eq!([0, 7, 8, 511].map(first_store_dirties_all), [true, true, false, false]);
        assert_eq!(free_for_huge(4096), 1024);
    }

    proptest! {
        #[test]
        fn a_key_names_one_page_or_one_huge_page(page in 0usize..1 << 51, huge in any::<bool>()) {
            let key = if huge { PolicyKey::Chunk(page / 512 * CHUNK_BYTES) } else { PolicyKey::Page(page * PAGE) };
            prop_assert_eq!(PolicyKey::of(key.number()), key);
        }

        #[test]
        fn runs_are_the_slots_in_order(gaps in proptest::collection::vec(prop_oneof![9 => Just(1u32), 1 => 2u32..9], 1..200)) {
            let mut slot = 0;
            let slots: Vec<u32> = gaps.iter().map(|gap| { slot += gap; slot }).collect();
            let breaks = gaps[1..].iter().filter(|gap| **gap > 1).count();
            let runs = runs_of_slots(&slots);
            prop_assert_eq!(runs.is_some(), breaks < MAX_RUNS);
            if let Some(runs) = runs {
                prop_assert_eq!(runs.len(), breaks + 1);
                let all: Vec<u32> = runs.iter().flat_map(|(first, len)| *first..first + *len as u32).collect();
                prop_assert_eq!(all, slots);
            }
        }
    }
}
