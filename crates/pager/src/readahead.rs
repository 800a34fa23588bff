//! Detects streams of misses and computes the readahead windows for them, for the pager and for the segments of a pool.
//!
//! Three misses at equal distances form a stream and open a window of a few pages. The first page of a window is its
//! trigger: the trigger is kept out of memory (in the pager's victim buffer, or in the pool's device buffer), so that
//! its first use causes a fault. That fault opens the next window, which is twice as long. A stream whose trigger is
//! never used reads nothing more.

use crate::PAGE;

/// Number of streams followed at once.
const MAX_STREAMS: usize = 16;
/// Largest distance in bytes between two misses of one stream: 64 pages of 4 KiB.
const MAX_STRIDE: usize = 64 * PAGE;
/// Length of a stream's first window, in 4 KiB pages.
const FIRST_WINDOW: usize = 8;
/// Length of the longest window, in 4 KiB pages.
const MAX_WINDOW: usize = 512;

/// A readahead window: `count` pages from address `first` on, `stride` bytes apart. The page at `first` is the trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Address of the first page.
    pub first: usize,
    /// Distance of two pages, bytes.
    pub stride: isize,
    /// Number of pages.
    pub count: usize,
}

impl Window {
    /// Address of the window's page number `n`.
    pub fn page(&self, n: usize) -> usize {
        self.first.wrapping_add_signed(self.stride.wrapping_mul(n.cast_signed()))
    }
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
    /// Starts without streams. A window has at most `max_window` pages, and never more than [`MAX_WINDOW`].
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
            return Some(self.open_window(page, stream.stride, stream.window));
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
        Some(self.open_window(edge, stride, FIRST_WINDOW / 2))
    }

    /// Records the first use of a trigger. Returns the next window of its stream.
    pub fn record_use(&mut self, page: usize) -> Option<Window> {
        let at = self.streams.iter().rposition(|stream| stream.window > 0 && stream.trigger == page)?;
        let stream = self.streams.remove(at);
        let behind = stream.position.wrapping_add_signed(-stream.stride);
        Some(self.open_window(behind, stream.stride, stream.window))
    }

    /// Whether `page` is the trigger of a window and has not been used yet.
    pub fn is_trigger(&self, page: usize) -> bool {
        self.streams.iter().any(|stream| stream.window > 0 && stream.trigger == page)
    }

    /// Opens the window behind `page`, twice as long as the last one.
    fn open_window(&mut self, page: usize, stride: isize, last: usize) -> Window {
        let count = (last * 2).min(self.max_window);
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

    fn at(page: usize) -> usize {
        page * PAGE
    }

    #[test]
    fn three_misses_at_equal_distances_open_windows_that_double_with_use() {
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
                count = (count * 2).min(MAX_WINDOW);
            }
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
}
