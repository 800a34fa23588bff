//! Readahead in shared memory. The kernel reads a single page at each fault there (`MADV_RANDOM`): its own readahead is
//! a setting of the drive, and may exceed the budget. So the sweeping thread detects windows that are used from their
//! first page on, and reads the windows that follow. The kernel does not report how far a program has come: the first
//! page of each window that is read ahead is left out, and is in DRAM once the program has reached it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sweep::GROUP_WINDOWS;
use super::{PAGE, SharedFile, WINDOW};

/// Pages in DRAM at the start of a window from which on a stream is assumed.
const MIN_PAGES: usize = 8;
/// Detection waits this many times its own duration before it runs again.
const DETECTION_PAUSE: u32 = 5;
/// Largest number of windows read ahead of a stream; together they take at most one in `DRAM_SHARE` of the budget.
const MAX_DEPTH: u64 = 16;
const DRAM_SHARE: usize = 8;
/// Largest number of streams followed at once in a file.
const MAX_STREAMS: usize = 16;
/// A stream that reaches no new window for this long is no longer followed.
const FORGET_AFTER: Duration = Duration::from_secs(1);

/// A sequential pass through a file.
struct Stream {
    /// The first window that the pass has not reached.
    front: u64,
    /// The first window that is not read ahead.
    end: u64,
    /// Number of windows to read ahead; doubled when the pass has overtaken them.
    depth: u64,
    /// Time at which the pass last reached a new window.
    moved: Instant,
}

/// The readahead state of a file.
#[derive(Default)]
pub(super) struct FileReadahead {
    /// Number of pages of each window that were in DRAM at the last detection.
    seen: Vec<u16>,
    /// Earliest time of the next detection.
    next: Option<Instant>,
    /// Streams, the newest at the end.
    streams: VecDeque<Stream>,
}

impl FileReadahead {
    /// Checks all windows of a file for new streams.
    pub(super) fn detect_streams(&mut self, shared_file: &SharedFile) {
        let begun = Instant::now();
        if self.next.is_some_and(|next| begun < next) {
            return;
        }
        let windows = shared_file.windows();
        self.seen.resize(windows as usize, 0);
        let mut at = 0;
        while at < windows {
            let group = (GROUP_WINDOWS as u64).min(windows - at);
            if shared_file.cached(at, group) == 0 {
                self.seen[at as usize..(at + group) as usize].fill(0);
            } else {
                (at..at + group).for_each(|window| self.check_window(shared_file, window));
            }
            at += group;
        }
        self.next = Some(begun + (begun.elapsed() * DETECTION_PAUSE).min(Duration::from_secs(1)));
    }

    fn check_window(&mut self, shared_file: &SharedFile, window: u64) {
        let cached = shared_file.cached(window, 1);
        let before = usize::from(std::mem::replace(&mut self.seen[window as usize], cached as u16));
        if cached > before && cached >= MIN_PAGES && shared_file.is_begun_only(window, cached) {
            shared_file.start_read(window, 0);
            self.seen[window as usize] = (WINDOW / PAGE) as u16;
            if self.streams.len() == MAX_STREAMS {
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

    /// Reads ahead of the streams; paged memory has `dram` pages of DRAM. Returns the time after which to call it
    /// again; `None` if there are no streams.
    pub(super) fn follow(&mut self, shared_file: &SharedFile, dram: usize) -> Option<Duration> {
        let most = ((dram / DRAM_SHARE / (WINDOW / PAGE)) as u64).clamp(1, MAX_DEPTH);
        self.streams.retain_mut(|stream| {
            stream.follow(shared_file, most);
            stream.front < shared_file.windows() && stream.moved.elapsed() < FORGET_AFTER
        });
        self.streams.iter().map(|stream| stream.moved.elapsed() / 8).min()
    }
}

impl Stream {
    fn follow(&mut self, shared_file: &SharedFile, most: u64) {
        while self.front < self.end && shared_file.has_first_pages(self.front, 1) {
            self.front += 1;
            self.moved = Instant::now();
        }
        while self.end < shared_file.windows().min(self.front + self.depth.min(most)) {
            let cached = shared_file.cached(self.end, 1);
            if cached == 0 {
                shared_file.start_read(self.end, 1);
            } else if self.front == self.end && shared_file.is_begun_only(self.end, cached) {
                shared_file.start_read(self.end, 0);
                self.front += 1;
                self.depth = most.min(2 * self.depth);
                self.moved = Instant::now();
            } else {
                // A pass through a window that is in DRAM is not seen. The window may be dropped before the pass
                // reaches it.
                break;
            }
            self.end += 1;
        }
    }
}

impl SharedFile {
    /// Whether the first `pages` pages of a window are in DRAM.
    fn has_first_pages(&self, window: u64, pages: usize) -> bool {
        let (offset, _) = self.location(window, 1);
        super::sweep::cached(&self.file, offset, pages * PAGE).is_ok_and(|cached| cached == pages)
    }

    /// Whether the `pages` pages of a window that are in DRAM are its first ones, and not all of the window.
    fn is_begun_only(&self, window: u64, pages: usize) -> bool {
        pages * PAGE < self.location(window, 1).1 && self.has_first_pages(window, pages)
    }

    /// Starts to read a window, without its first `skip` pages. The call does not wait for the drive.
    fn start_read(&self, window: u64, skip: usize) {
        let (offset, len) = self.location(window, 1);
        let len = std::num::NonZeroU64::new((len - len.min(skip * PAGE)) as u64);
        if len.is_none() {
            return;
        }
        // Advice only: a page that is not read now is read when it is used.
        let _ =
            rustix::fs::fadvise(&self.file, (offset + skip * PAGE) as u64, len, rustix::fs::Advice::WillNeed);
    }
}
