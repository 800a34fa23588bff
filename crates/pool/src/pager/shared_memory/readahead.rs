//! Readahead in shared memory. The kernel reads a single page at each fault there (`MADV_RANDOM`): how much it would read
//! otherwise is a setting of the drive, and may be more than the budget takes. So the sweeping thread looks for windows that are
//! used from their first page on, and reads the windows that follow. The kernel does not tell how far a program has come: of each
//! window that is read ahead the first page is left out, and is in DRAM once the program has reached it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sweep::GROUP;
use super::{PAGE, Segment, WINDOW};

/// Pages at the beginning of a window from which on a stream is assumed.
const FIRST: usize = 8;
/// The looks take at most this part of the thread's time.
const SHARE: u32 = 5;
/// Most windows that are read ahead of a stream, and the part of the budget that they may take.
const DEPTH: u64 = 16;
const PART: usize = 8;
/// Most streams of a file that are followed at once.
const STREAMS: usize = 16;
/// A stream that reaches no further window for so long is no longer followed.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// A pass through a file in order.
struct Stream {
    /// The first window that the pass has not reached.
    front: u64,
    /// The first window that is not read ahead.
    end: u64,
    /// Windows to read ahead. Doubled when the pass has overtaken what was read.
    depth: u64,
    /// When it has last reached a window.
    moved: Instant,
}

/// The windows of a file as they were at the last look, and the streams that were found.
#[derive(Default)]
pub(super) struct Ahead {
    /// Pages of each that were in DRAM.
    seen: Vec<u16>,
    /// The earliest time of the next look.
    next: Option<Instant>,
    /// The newest last.
    streams: VecDeque<Stream>,
}

impl Ahead {
    /// Looks at all windows for new streams.
    pub(super) fn look(&mut self, segment: &Segment) {
        let begun = Instant::now();
        if self.next.is_some_and(|next| begun < next) {
            return;
        }
        let windows = segment.windows();
        self.seen.resize(windows as usize, 0);
        let mut at = 0;
        while at < windows {
            let group = (GROUP as u64).min(windows - at);
            if segment.cached(at, group) == 0 {
                self.seen[at as usize..(at + group) as usize].fill(0);
            } else {
                (at..at + group).for_each(|window| self.look_at(segment, window));
            }
            at += group;
        }
        self.next = Some(begun + (begun.elapsed() * SHARE).min(Duration::from_secs(1)));
    }

    fn look_at(&mut self, segment: &Segment, window: u64) {
        let there = segment.cached(window, 1);
        let before = usize::from(std::mem::replace(&mut self.seen[window as usize], there as u16));
        if there > before && there >= FIRST && segment.lacks_its_end(window, there) {
            segment.read(window, 0);
            self.seen[window as usize] = (WINDOW / PAGE) as u16;
            if self.streams.len() == STREAMS {
                self.streams.pop_front();
            }
            self.streams.push_back(Stream {
                front: window + 1,
                end: window + 1,
                depth: 1,
                moved: Instant::now(),
            });
        }
    }

    /// Reads ahead of the streams, with so many pages of DRAM for all that is paged. Returns how soon to look at the streams
    /// again; none if there are none.
    pub(super) fn follow(&mut self, segment: &Segment, dram: usize) -> Option<Duration> {
        let most = ((dram / PART / (WINDOW / PAGE)) as u64).clamp(1, DEPTH);
        self.streams.retain_mut(|stream| {
            stream.follow(segment, most);
            stream.front < segment.windows() && stream.moved.elapsed() < FORGOTTEN
        });
        self.streams.iter().map(|stream| stream.moved.elapsed() / 8).min()
    }
}

impl Stream {
    fn follow(&mut self, segment: &Segment, most: u64) {
        while self.front < self.end && segment.begins_with(self.front, 1) {
            self.front += 1;
            self.moved = Instant::now();
        }
        while self.end < segment.windows().min(self.front + self.depth.min(most)) {
            let there = segment.cached(self.end, 1);
            if there == 0 {
                segment.read(self.end, 1);
            } else if self.front == self.end && segment.lacks_its_end(self.end, there) {
                segment.read(self.end, 0);
                self.front += 1;
                self.depth = most.min(2 * self.depth);
                self.moved = Instant::now();
            } else {
                // A pass through a window in DRAM goes unnoticed. It may be dropped before the pass reaches it.
                break;
            }
            self.end += 1;
        }
    }
}

impl Segment {
    /// Whether the first pages of a window are in DRAM.
    fn begins_with(&self, window: u64, pages: usize) -> bool {
        let (offset, _) = self.place(window, 1);
        super::sweep::cached(&self.file, offset, pages * PAGE).is_ok_and(|there| there == pages)
    }

    /// Whether the pages of a window in DRAM, so many, are its first ones and not all of it.
    fn lacks_its_end(&self, window: u64, pages: usize) -> bool {
        pages * PAGE < self.place(window, 1).1 && self.begins_with(window, pages)
    }

    /// Begins to read a window, but for its first pages. The call does not wait for the drive.
    fn read(&self, window: u64, but: usize) {
        let (offset, len) = self.place(window, 1);
        let len = std::num::NonZeroU64::new((len - len.min(but * PAGE)) as u64);
        if len.is_none() {
            return;
        }
        // Advice: a page that is not read now is read when it is used.
        let _ =
            rustix::fs::fadvise(&self.file, (offset + but * PAGE) as u64, len, rustix::fs::Advice::WillNeed);
    }
}
