//! One flush of a range.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::{Geometry, SyncMode};

/// Work that a flush asks of its caller, who carries it out before taking the next step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FlushStep {
    /// Report every dirty page among these to [`RangeFlush::found_dirty`]. Where `clear`, clear the dirty bit of each,
    /// in one atomic step with the look at it.
    Examine {
        /// Numbers of the pages.
        pages: Range<u64>,
        /// Whether the dirty bits are cleared.
        clear: bool,
    },
    /// Write back each line of which this range of addresses contains a byte.
    WriteBack(Range<u64>),
    /// Wait until all lines that this flush has written back are durable. The last step.
    Barrier,
}

/// The work of a flush so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FlushCounts {
    /// Pages whose dirty bit was to be looked at: the walk over the page table.
    pub pages_examined: u64,
    /// Pages that were found dirty.
    pub pages_dirty: u64,
    /// Lines that were to be written back.
    pub lines_written_back: u64,
}

/// The next step, if no dirty pages wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// Write back the whole range.
    EveryLine,
    /// Examine the pages before the whole ones.
    FirstPage,
    WholePages,
    /// Examine the pages after the whole ones.
    LastPage,
    Barrier,
    Done,
}

/// One flush of a range of addresses; see the [module](super).
///
/// ```
/// use deepram_core::persist::{FlushStep, Geometry, RangeFlush, SyncMode};
///
/// let mut flush = RangeFlush::new(Geometry::PAPER, SyncMode::Selective, 4096..3 * 4096 + 100);
/// assert_eq!(flush.next_step(), Some(FlushStep::Examine { pages: 1..3, clear: true }));
/// flush.found_dirty(2..3);
/// assert_eq!(flush.next_step(), Some(FlushStep::WriteBack(2 * 4096..3 * 4096)));
/// assert_eq!(flush.next_step(), Some(FlushStep::Examine { pages: 3..4, clear: false }));
/// assert_eq!(flush.next_step(), Some(FlushStep::Barrier)); // page 3 was not dirty
/// assert_eq!(flush.next_step(), None);
/// assert_eq!(flush.counts().lines_written_back, 64);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RangeFlush {
    geometry: Geometry,
    range: Range<u64>,
    stage: Stage,
    /// Runs of pages that were found dirty and have not been written back.
    dirty: VecDeque<Range<u64>>,
    counts: FlushCounts,
}

impl RangeFlush {
    /// A flush of the bytes at the addresses of `range`. An empty range needs a barrier only, which completes
    /// write-backs of the caller's own.
    #[must_use]
    pub fn new(geometry: Geometry, mode: SyncMode, range: Range<u64>) -> Self {
        let stage = match mode {
            _ if range.is_empty() => Stage::Barrier,
            SyncMode::EveryLine => Stage::EveryLine,
            SyncMode::Selective => Stage::FirstPage,
        };
        Self { geometry, range, stage, dirty: VecDeque::new(), counts: FlushCounts::default() }
    }

    /// Takes the answer to [`FlushStep::Examine`]: one call for each run of adjacent pages that were dirty. Pages outside
    /// of the range are ignored.
    pub fn found_dirty(&mut self, pages: Range<u64>) {
        let within = self.geometry.pages_of(&self.range);
        let pages = pages.start.max(within.start)..pages.end.min(within.end);
        if !pages.is_empty() {
            self.counts.pages_dirty += pages.end - pages.start;
            self.dirty.push_back(pages);
        }
    }

    /// The next step; none if the range is durable.
    pub fn next_step(&mut self) -> Option<FlushStep> {
        if let Some(pages) = self.dirty.pop_front() {
            return Some(self.write_back(self.bytes_of(&pages)));
        }
        loop {
            let whole = self.geometry.whole_pages_of(&self.range);
            let all = self.geometry.pages_of(&self.range);
            let (pages, clear, next) = match self.stage {
                Stage::EveryLine => {
                    self.stage = Stage::Barrier;
                    return Some(self.write_back(self.range.clone()));
                }
                // Without a whole page, these are all pages of the range.
                Stage::FirstPage if whole.is_empty() => (all, false, Stage::Barrier),
                Stage::FirstPage => (all.start..whole.start, false, Stage::WholePages),
                Stage::WholePages => (whole, true, Stage::LastPage),
                Stage::LastPage => (whole.end..all.end, false, Stage::Barrier),
                Stage::Barrier => {
                    self.stage = Stage::Done;
                    return Some(FlushStep::Barrier);
                }
                Stage::Done => return None,
            };
            self.stage = next;
            if !pages.is_empty() {
                self.counts.pages_examined += pages.end - pages.start;
                return Some(FlushStep::Examine { pages, clear });
            }
        }
    }

    /// The work so far.
    #[must_use]
    pub const fn counts(&self) -> FlushCounts {
        self.counts
    }

    /// The bytes of these pages that lie in the range.
    fn bytes_of(&self, pages: &Range<u64>) -> Range<u64> {
        let page = self.geometry.page_bytes();
        // The last page may end beyond the largest address; the range does not.
        let start = pages.start * page;
        let end = pages.end.saturating_mul(page);
        start.max(self.range.start)..end.min(self.range.end)
    }

    fn write_back(&mut self, bytes: Range<u64>) -> FlushStep {
        let lines = self.geometry.lines_of(&bytes);
        self.counts.lines_written_back += lines.end - lines.start;
        FlushStep::WriteBack(bytes)
    }
}
