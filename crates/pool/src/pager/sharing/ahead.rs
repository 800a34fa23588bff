//! Reading ahead in shared memory. The kernel reads a single page at each fault there (`MADV_RANDOM`): how much it would read
//! otherwise is the drive's setting, and may be more than the budget takes. So the sweeping thread looks for windows that are being
//! used from their beginning on, has the rest of such a window read in one, and the next window with it.

use std::time::{Duration, Instant};

use super::sweep::GROUP;
use super::{PAGE, Segment, WINDOW};

/// Pages at the beginning of a window from which on the rest is read.
const FIRST: usize = 8;
/// The looks take at most this part of the thread's time.
const SHARE: u32 = 5;

/// What is known of a file's windows from the last look.
#[derive(Default)]
pub(super) struct Ahead {
    /// Pages of each that were in DRAM.
    seen: Vec<u16>,
    /// Not to look again before this.
    next: Option<Instant>,
}

impl Ahead {
    /// Looks at all windows, and has those read that are being used in order.
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
        let whole = segment.place(window, 1).1 / PAGE;
        if there > before && (FIRST..whole).contains(&there) && segment.begins_with(window, there) {
            segment.read(window);
            if window + 1 < segment.windows() && segment.cached(window + 1, 1) == 0 {
                segment.read(window + 1);
            }
            self.seen[window as usize] = (WINDOW / PAGE) as u16;
        }
    }
}

impl Segment {
    /// Whether the first pages of a window are in DRAM.
    fn begins_with(&self, window: u64, pages: usize) -> bool {
        let (offset, _) = self.place(window, 1);
        super::sweep::cached(&self.file, offset, pages * PAGE).is_ok_and(|there| there == pages)
    }

    /// Has a window read. The call does not wait for the drive.
    fn read(&self, window: u64) {
        let (offset, len) = self.place(window, 1);
        let len = std::num::NonZeroU64::new(len as u64);
        // Advice: what is not read now is read when it is used.
        let _ = rustix::fs::fadvise(&self.file, offset as u64, len, rustix::fs::Advice::WillNeed);
    }
}
