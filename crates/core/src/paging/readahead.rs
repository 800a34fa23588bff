//! Detects streams of misses, and decides how much is read ahead of them (ADR 19, ADR 20).
//!
//! Three misses at equal distances form a stream and open a window of a few pages. The first page of a window is its
//! trigger: the trigger is kept out of memory (in the pager's victim buffer, or in the pool's device buffer), so that
//! its first use causes a fault. That fault opens the next window, which is twice as long. A stream whose trigger is
//! never used reads nothing more.

use alloc::vec::Vec;
use core::ops::Range;

use super::{BATCH, PAGE};

/// Number of streams followed at once.
const MAX_STREAMS: usize = 16;
/// Largest distance in bytes between two misses of one stream: 64 pages of 4 KiB.
const MAX_STRIDE: usize = 64 * PAGE;
/// Length of a stream's first window, in 4 KiB pages.
const FIRST_WINDOW: usize = 8;
/// A window is longer than the one before it by one part in this many.
const GROWTH_SHARE: usize = 2;
/// Length of the longest window, in 4 KiB pages.
const MAX_WINDOW: usize = 512;
/// A cache that drops what was read ahead, and not used, with its other pages has windows of one in this many frames.
const WINDOW_SHARE: usize = 32;

/// A readahead window: `count` pages from address `first` on, `stride` bytes apart. The page at `first` is the trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Address of the first page.
    pub first: usize,
    /// Distance of two pages in bytes.
    pub stride: isize,
    /// Number of pages.
    pub count: usize,
}

impl Window {
    /// Address of the window's page number `n`.
    #[must_use]
    pub fn page(&self, n: usize) -> usize {
        self.first.wrapping_add_signed(self.stride.wrapping_mul(n.cast_signed()))
    }

    /// The window in parts of at most `most` pages, each as a range of page numbers.
    pub fn parts(self, most: usize) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).step_by(most.max(1)).map(move |at| at..(at + most).min(self.count))
    }
}

/// Length of the window behind one of `count` pages.
fn next_length(count: usize) -> usize {
    count + (count / GROWTH_SHARE).max(1)
}

/// Longest window, in pages, for a cache of `frames` frames.
#[must_use]
pub fn max_window(frames: usize) -> usize {
    (frames / WINDOW_SHARE).max(1)
}

/// The fresh pages that one fault brings in with the missed one: how many below it, and how many above it. Memory that is
/// filled in order, upwards or downwards, is filled in ever larger steps: as many pages as have been touched right before, at
/// most [`BATCH`]. `fresh` says of the page at a distance from the missed one whether it is fresh; `None`: the page may not be
/// brought in.
pub fn fresh_pages(fresh: impl Fn(isize) -> Option<bool>) -> (usize, usize) {
    let count = |direction: isize, most: usize, wanted: bool| {
        let pages = (1..=most as isize).map(|distance| fresh(direction * distance));
        pages.take_while(|fresh| *fresh == Some(wanted)).count()
    };
    let (below, above) = (count(-1, BATCH, false), count(1, BATCH, false));
    if above > below { (count(-1, above - 1, true), 0) } else { (0, count(1, below.saturating_sub(1), true)) }
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// Address of the last miss, or of the first page behind the last window.
    position: usize,
    /// First and last page of the block that was read with the last miss.
    block: (usize, usize),
    stride: isize,
    /// Number of consecutive misses at the distance `stride`.
    misses: u32,
    /// Length of the last window in pages; 0 before the first window.
    window: usize,
    trigger: usize,
}

/// The streams being followed, ordered by last use; the most recent is at the end.
#[derive(Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    max_window: usize,
}

impl Default for Streams {
    fn default() -> Self {
        Self::new(MAX_WINDOW)
    }
}

impl Streams {
    /// Starts without streams. A window has at most `max_window` pages, and never more than 512.
    #[must_use]
    pub fn new(max_window: usize) -> Self {
        Self { streams: Vec::new(), max_window: max_window.min(MAX_WINDOW) }
    }

    /// Records a miss of a single page. Returns the window to read, if the miss completes a stream.
    pub fn record_miss(&mut self, page: usize) -> Option<Window> {
        self.record_block_miss(page, (page, page))
    }

    /// Records a miss of `page`, which is read together with the pages of `block` (first and last page). Misses in
    /// adjacent blocks continue a stream as if every page of the blocks had been missed. Returns the window to read, if
    /// the miss completes a stream.
    pub fn record_block_miss(&mut self, page: usize, block: (usize, usize)) -> Option<Window> {
        // The miss is the page behind a window that was not read in time, or was evicted.
        if let Some(at) = self.streams.iter().rposition(|stream| stream.window > 0 && stream.position == page)
        {
            let stream = self.streams.remove(at);
            return Some(self.open_window(page, stream.stride, next_length(stream.window)));
        }
        let near = self.streams.iter().rposition(|stream| {
            let apart = page.wrapping_sub(stream.position).cast_signed();
            stream.window == 0 && apart != 0 && apart.unsigned_abs() <= MAX_STRIDE
        });
        let Some(at) = near else {
            self.insert(Stream { position: page, block, stride: 0, misses: 1, window: 0, trigger: 0 });
            return None;
        };
        let stream = self.streams.remove(at);
        let page_bytes = PAGE.cast_signed();
        let (stride, edge) = match stream.block {
            (first, last) if first != last && page == last.wrapping_add(PAGE) => (page_bytes, block.1),
            (first, last) if first != last && page == first.wrapping_sub(PAGE) => (-page_bytes, block.0),
            _ => (page.wrapping_sub(stream.position).cast_signed(), page),
        };
        let misses = if stride == stream.stride { stream.misses + 1 } else { 2 };
        if misses < 3 {
            self.insert(Stream { position: page, block, stride, misses, window: 0, trigger: 0 });
            return None;
        }
        Some(self.open_window(edge, stride, FIRST_WINDOW))
    }

    /// Whether a stream leads to `page`: it is in the last window of a stream, or the page behind it.
    #[must_use]
    pub fn is_expected(&self, page: usize) -> bool {
        self.streams.iter().any(|stream| {
            let apart = page.wrapping_sub(stream.trigger).cast_signed();
            let at = |stride| usize::try_from(apart / stride).is_ok_and(|n| n <= stream.window);
            stream.window > 0 && apart % stream.stride == 0 && at(stream.stride)
        })
    }

    /// Records the first use of a trigger. Returns the next window of its stream.
    pub fn record_use(&mut self, page: usize) -> Option<Window> {
        let at = self.streams.iter().rposition(|stream| stream.window > 0 && stream.trigger == page)?;
        let stream = self.streams.remove(at);
        let behind = stream.position.wrapping_add_signed(-stream.stride);
        Some(self.open_window(behind, stream.stride, next_length(stream.window)))
    }

    /// Records a fault of which it is not known whether it is a miss or the first use of a trigger. Returns the window to
    /// read.
    pub fn record_fault(&mut self, page: usize) -> Option<Window> {
        self.record_use(page).or_else(|| self.record_miss(page))
    }

    /// Whether `page` is the trigger of a window and has not been used yet.
    #[must_use]
    pub fn is_trigger(&self, page: usize) -> bool {
        self.streams.iter().any(|stream| stream.window > 0 && stream.trigger == page)
    }

    /// Opens the window behind `page`, of `count` pages if that is not too long.
    fn open_window(&mut self, page: usize, stride: isize, count: usize) -> Window {
        let count = count.min(self.max_window);
        let first = page.wrapping_add_signed(stride);
        let end = first.wrapping_add_signed(stride.wrapping_mul(count.cast_signed()));
        self.insert(Stream {
            position: end,
            block: (end, end),
            stride,
            misses: 3,
            window: count,
            trigger: first,
        });
        Window { first, stride, count }
    }

    fn insert(&mut self, stream: Stream) {
        if self.streams.len() == MAX_STREAMS {
            self.streams.remove(0);
        }
        self.streams.push(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn at(page: usize) -> usize {
        page * PAGE
    }

    #[test]
    fn three_misses_at_equal_distances_open_windows_that_grow_with_use() {
        for stride in [1isize, 3, -2] {
            let place = |n: usize| at((10_000 + stride * n.cast_signed()).cast_unsigned());
            let mut streams = Streams::default();
            assert_eq!(streams.record_miss(place(0)), None);
            assert_eq!(streams.record_miss(place(1)), None);
            let step = stride * PAGE.cast_signed();
            let mut window = streams.record_miss(place(2)).unwrap();
            let (mut first, mut count) = (3, FIRST_WINDOW);
            for _ in 0..12 {
                assert_eq!(window, Window { first: place(first), stride: step, count });
                window = streams.record_use(window.first).unwrap();
                first += count;
                count = (count + count / GROWTH_SHARE).min(MAX_WINDOW);
            }
        }
    }

    #[test]
    fn the_pages_of_the_last_window_and_the_one_behind_it_are_expected() {
        for stride in [1isize, 3, -2] {
            let place = |n: isize| at((10_000 + stride * n).cast_unsigned());
            let mut streams = Streams::default();
            let window = (0..3).filter_map(|n| streams.record_miss(place(n))).next().unwrap();
            let expected = |streams: &Streams| -> Vec<isize> {
                (-50..50).filter(|n| streams.is_expected(place(*n))).collect()
            };
            assert_eq!(expected(&streams), (3..=3 + FIRST_WINDOW.cast_signed()).collect::<Vec<_>>());
            assert!(stride == 1 || !streams.is_expected(place(4) + PAGE));
            let next = streams.record_use(window.first).unwrap();
            let first = 3 + FIRST_WINDOW.cast_signed();
            assert_eq!(expected(&streams), (first..=first + next.count.cast_signed()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn misses_in_adjacent_blocks_form_a_stream() {
        for up in [true, false] {
            let mut streams = Streams::default();
            let block = |n: usize| {
                if up { (at(8 * n), at(8 * n + 7)) } else { (at(8 * (90 - n)), at(8 * (90 - n) + 7)) }
            };
            let miss = |n: usize| if up { block(n).0 } else { block(n).1 };
            assert_eq!(streams.record_block_miss(miss(0), block(0)), None);
            assert_eq!(streams.record_block_miss(miss(1), block(1)), None);
            let window = streams.record_block_miss(miss(2), block(2)).unwrap();
            let (first, stride) = if up { (block(3).0, 1) } else { (block(3).1, -1) };
            assert_eq!(window, Window { first, stride: stride * PAGE.cast_signed(), count: FIRST_WINDOW });
        }
    }

    #[test]
    fn random_misses_open_no_window_and_a_trigger_counts_once() {
        let mut streams = Streams::default();
        for n in 0..1000 {
            assert_eq!(streams.record_miss(at(n * 7919 % 100_003 * 100)), None);
        }
        for n in 0..2 {
            assert_eq!(streams.record_miss(at(500_000 + n)), None);
        }
        let window = streams.record_miss(at(500_002)).unwrap();
        assert!(streams.record_use(window.first).is_some());
        assert_eq!(streams.record_use(window.first), None);
        assert_eq!(streams.record_use(at(1)), None);
    }

    #[test]
    fn the_parts_of_a_window_are_the_window() {
        let window = Window { first: at(9), stride: 1, count: 130 };
        assert!(window.parts(64).eq([0..64, 64..128, 128..130]));
        assert!(Window { count: 64, ..window }.parts(64).eq(core::iter::once(0..64)));
    }

    #[test]
    fn a_fault_brings_in_as_many_fresh_pages_as_were_touched_before_it() {
        // Touched pages on one side, and fresh ones on the other.
        for direction in [-1, 1] {
            let page = |touched: isize, room: isize| {
                fresh_pages(|distance| match distance * direction {
                    back if (-touched..0).contains(&back) => Some(false),
                    ahead if (1..=room).contains(&ahead) => Some(true),
                    _ => None,
                })
            };
            let cases = [(0, 9, 0), (1, 9, 0), (5, 9, 4), (64, 9, 9), (64, 99, 63), (99, 99, 63), (64, 0, 0)];
            for (touched, room, expected) in cases {
                let expected = if direction > 0 { (0, expected) } else { (expected, 0) };
                assert_eq!(page(touched, room), expected, "{touched} touched, {room} fresh");
            }
        }
        assert_eq!(fresh_pages(|distance| Some(distance != -1 && distance.abs() != 2)), (0, 1));
        assert_eq!((max_window(10), max_window(3200)), (1, 100));
    }

    /// A program's stream: its stride in pages, and how far it has come.
    struct Program {
        first: usize,
        stride: isize,
        next: usize,
        /// Pages that have been read ahead, from `next` on; the first one is a trigger if `waits`.
        ahead: usize,
        waits: bool,
        window: usize,
    }

    impl Program {
        fn page(&self, n: usize) -> usize {
            at((self.first.cast_signed() + self.stride * n.cast_signed()).cast_unsigned())
        }
    }

    proptest! {
        /// Each stream gets the windows that it would get alone, however the steps of the streams are mixed: the third miss
        /// reads 8 pages, the first use of each window half as many more as before.
        #[test]
        fn streams_do_not_disturb_each_other(
            strides in proptest::collection::vec(prop_oneof![1isize..64, -63isize..0], 1..=MAX_STREAMS),
            steps in proptest::collection::vec(any::<prop::sample::Index>(), 1..3000),
            longest in 8usize..600,
        ) {
            let mut streams = Streams::new(longest);
            let longest = longest.min(MAX_WINDOW);
            let mut programs: Vec<Program> = strides
                .iter()
                .zip(1..)
                .map(|(stride, n)| Program { first: n << 24, stride: *stride, next: 0, ahead: 0, waits: false, window: 0 })
                .collect();
            for step in steps {
                let program = step.get(&programs);
                let (page, second) = (program.page(program.next), program.page(program.next + 1));
                let found = if program.ahead == 0 {
                    Some(streams.record_miss(page))
                } else if program.waits {
                    prop_assert!(streams.is_trigger(page));
                    Some(streams.record_use(page))
                } else {
                    prop_assert!(!streams.is_trigger(page));
                    None
                };
                let program = &mut programs[step.index(strides.len())];
                let stride = program.stride * PAGE.cast_signed();
                if let Some(found) = found {
                    let expected = if program.next < 2 {
                        None
                    } else {
                        let grown = program.window + program.window / GROWTH_SHARE;
                        program.window = if program.window == 0 { FIRST_WINDOW } else { grown }.min(longest);
                        let first = if program.ahead == 0 { second } else { program.page(program.next + program.ahead) };
                        program.ahead += program.window + usize::from(program.ahead == 0);
                        Some(Window { first, stride, count: program.window })
                    };
                    prop_assert_eq!(found, expected);
                    program.waits = false;
                }
                program.next += 1;
                program.ahead = program.ahead.saturating_sub(1);
                // The next page is the trigger of the last window if only that window is left.
                program.waits = program.ahead > 0 && program.ahead == program.window;
            }
        }
    }

    #[test]
    fn the_stream_that_was_used_least_recently_is_forgotten() {
        let mut streams = Streams::default();
        let mut triggers = vec![];
        for n in 0..=MAX_STREAMS {
            let page = |m: usize| at((n + 1) * 100_000 + m);
            (0..2).for_each(|m| assert_eq!(streams.record_miss(page(m)), None));
            triggers.push(streams.record_miss(page(2)).unwrap().first);
        }
        assert_eq!(streams.record_use(triggers[0]), None);
        assert!(triggers[1..].iter().all(|trigger| streams.record_use(*trigger).is_some()));
    }
}
