//! Which pages are read before they are used: those that continue a run of misses at equal distances. For the pager,
//! and for the segments of a pool.
//!
//! Three misses at the same distance open a window of a few pages. The first page of a window is its
//! trigger: it is kept out of memory (in the pager's waiting room, in the pool's device buffer), so that its use is
//! seen, and has the next window read, twice as long. A run whose trigger is not used reads nothing more.

use crate::pager::PAGE;

/// Runs followed at once.
const RUNS: usize = 16;
/// Misses further apart, in bytes, belong to different runs: 64 pages of 4 KiB.
const REACH: usize = 64 * PAGE;
/// Pages of the first window.
const FIRST: usize = 8;
/// Pages of the longest window.
const LONGEST: usize = 512;

/// Pages to read: `count` from `first` on, `stride` bytes apart. The first is the trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) first: usize,
    pub(crate) stride: isize,
    pub(crate) count: usize,
}

impl Window {
    /// The page of that number.
    pub(crate) fn page(&self, n: usize) -> usize {
        self.first.wrapping_add_signed(self.stride.wrapping_mul(n.cast_signed()))
    }
}

#[derive(Debug, Clone, Copy)]
struct Run {
    /// The last miss, or the first page behind the last window.
    at: usize,
    /// First and last page that were read with the last miss.
    block: (usize, usize),
    stride: isize,
    /// Misses in line.
    misses: u32,
    /// Pages of the last window.
    window: usize,
    trigger: usize,
}

/// The runs, the one used last at the end.
#[derive(Debug)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    longest: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self::new(LONGEST)
    }
}

impl Runs {
    /// No runs; windows of so many pages at most, and 512.
    pub(crate) fn new(longest: usize) -> Self {
        Self { runs: Vec::new(), longest: longest.min(LONGEST) }
    }

    /// A page was missed: what is to be read beside it.
    pub(crate) fn miss(&mut self, page: usize) -> Option<Window> {
        self.miss_of(page, (page, page))
    }

    /// A page was missed, and is read with its neighbours, from the first of a block to the last. Misses of blocks that follow
    /// each other are in line as if each page had been missed.
    pub(crate) fn miss_of(&mut self, page: usize, block: (usize, usize)) -> Option<Window> {
        // The end of a window that was not read in time, or was evicted.
        if let Some(at) = self.runs.iter().rposition(|run| run.window > 0 && run.at == page) {
            let run = self.runs.remove(at);
            return Some(self.open(page, run.stride, run.window));
        }
        let near = self.runs.iter().rposition(|run| {
            let apart = page.wrapping_sub(run.at).cast_signed();
            run.window == 0 && apart != 0 && apart.unsigned_abs() <= REACH
        });
        let Some(at) = near else {
            self.keep(Run { at: page, block, stride: 0, misses: 1, window: 0, trigger: 0 });
            return None;
        };
        let run = self.runs.remove(at);
        let page_bytes = PAGE.cast_signed();
        let (stride, edge) = match run.block {
            (first, last) if first != last && page == last.wrapping_add(PAGE) => (page_bytes, block.1),
            (first, last) if first != last && page == first.wrapping_sub(PAGE) => (-page_bytes, block.0),
            _ => (page.wrapping_sub(run.at).cast_signed(), page),
        };
        let misses = if stride == run.stride { run.misses + 1 } else { 2 };
        if misses < 3 {
            self.keep(Run { at: page, block, stride, misses, window: 0, trigger: 0 });
            return None;
        }
        Some(self.open(edge, stride, FIRST / 2))
    }

    /// A trigger was used: the next window.
    pub(crate) fn used(&mut self, page: usize) -> Option<Window> {
        let at = self.runs.iter().rposition(|run| run.window > 0 && run.trigger == page)?;
        let run = self.runs.remove(at);
        let behind = run.at.wrapping_add_signed(-run.stride);
        Some(self.open(behind, run.stride, run.window))
    }

    /// Whether a window begins with this page and waits for its use.
    pub(crate) fn awaits(&self, page: usize) -> bool {
        self.runs.iter().any(|run| run.window > 0 && run.trigger == page)
    }

    /// The window behind `page`, twice as long as the last one.
    fn open(&mut self, page: usize, stride: isize, last: usize) -> Window {
        let count = (last * 2).min(self.longest);
        let first = page.wrapping_add_signed(stride);
        let end = first.wrapping_add_signed(stride.wrapping_mul(count.cast_signed()));
        self.keep(Run { at: end, block: (end, end), stride, misses: 3, window: count, trigger: first });
        Window { first, stride, count }
    }

    fn keep(&mut self, run: Run) {
        if self.runs.len() == RUNS {
            self.runs.remove(0);
        }
        self.runs.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(page: usize) -> usize {
        page * PAGE
    }

    #[test]
    fn three_misses_in_line_open_windows_that_double_with_use() {
        for stride in [1isize, 3, -2] {
            let place = |n: usize| at((10_000 + stride * n.cast_signed()).cast_unsigned());
            let mut runs = Runs::default();
            assert_eq!(runs.miss(place(0)), None);
            assert_eq!(runs.miss(place(1)), None);
            let step = stride * PAGE.cast_signed();
            let mut window = runs.miss(place(2)).unwrap();
            let (mut first, mut count) = (3, FIRST);
            for _ in 0..12 {
                assert_eq!(window, Window { first: place(first), stride: step, count });
                window = runs.used(window.first).unwrap();
                first += count;
                count = (count * 2).min(LONGEST);
            }
        }
    }

    #[test]
    fn blocks_that_follow_each_other_are_in_line() {
        for up in [true, false] {
            let mut runs = Runs::default();
            let block = |n: usize| {
                if up { (at(8 * n), at(8 * n + 7)) } else { (at(8 * (90 - n)), at(8 * (90 - n) + 7)) }
            };
            let miss = |n: usize| if up { block(n).0 } else { block(n).1 };
            assert_eq!(runs.miss_of(miss(0), block(0)), None);
            assert_eq!(runs.miss_of(miss(1), block(1)), None);
            let window = runs.miss_of(miss(2), block(2)).unwrap();
            let (first, stride) = if up { (block(3).0, 1) } else { (block(3).1, -1) };
            assert_eq!(window, Window { first, stride: stride * PAGE.cast_signed(), count: FIRST });
        }
    }

    #[test]
    fn strangers_open_nothing_and_a_trigger_counts_once() {
        let mut runs = Runs::default();
        for n in 0..1000 {
            assert_eq!(runs.miss(at(n * 7919 % 100_003 * 100)), None);
        }
        for n in 0..2 {
            assert_eq!(runs.miss(at(500_000 + n)), None);
        }
        let window = runs.miss(at(500_002)).unwrap();
        assert!(runs.used(window.first).is_some());
        assert_eq!(runs.used(window.first), None);
        assert_eq!(runs.used(at(1)), None);
    }
}
