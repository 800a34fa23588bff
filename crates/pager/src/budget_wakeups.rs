//! Members of a shared budget wake each other's evictors: a process that needs frames, while the whole budget is in use
//! and it has less than its equal part, waits for the members that have more than theirs.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use super::budget::{BudgetMemory, Frames};
use deepram_linux::lock::lock;

/// How often a process that waits for the other members looks for free frames.
const WAIT_INTERVAL: Duration = Duration::from_micros(200);
/// The wait ends if the other members have freed nothing for this long: they may be stopped, or all that they have may
/// be unpaged.
const WAIT_LIMIT: Duration = Duration::from_millis(50);
/// After a wait without success, the process does not wait for this long.
const NO_WAIT: Duration = Duration::from_secs(1);

impl BudgetMemory {
    /// Wakes the evictors of all members but `except` that have more than `part` frames. Returns whether there are any.
    pub(super) fn wake_members_above(&self, part: usize, except: Option<usize>) -> bool {
        let mut any = false;
        for member in self.members().filter(|member| Some(*member) != except) {
            let is_process = self.pids[member].load(Relaxed) > 0;
            if is_process && self.frames[member].load(Relaxed) > part as i64 {
                wake(&self.wake_ups[member]);
                any = true;
            }
        }
        any
    }
}

impl Frames {
    /// The counter of wake-ups of this process's evictors, for [`Frames::wait_for_wake_up`].
    pub(super) fn wake_ups(&self) -> u32 {
        self.wake_up_counter().load(SeqCst)
    }

    /// Waits until the evictors are woken, at most for `time`. Returns at once if they were woken after `seen` was read.
    pub(super) fn wait_for_wake_up(&self, seen: u32, time: Duration) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        match futex::wait(self.wake_up_counter(), futex::Flags::empty(), seen, Some(&timeout)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            // Without futexes the evictors poll.
            Err(_) => std::thread::sleep(time.min(Duration::from_millis(10))),
        }
    }

    /// Wakes the evictors of this process.
    pub(super) fn wake_evictors(&self) {
        wake(self.wake_up_counter());
    }

    /// Wakes the members of the shared budget that have more than their equal part, and waits until `more` frames are
    /// free or none of them frees any. Without a shared budget nothing is done.
    pub(super) fn wait_for_members(&self, more: usize) {
        let Some((budget, member)) = self.shared() else { return };
        if lock(&self.no_wait_until).is_some_and(|until| Instant::now() < until) {
            return;
        }
        let over = || budget.in_use() + more as i64 - self.limit() as i64;
        let (mut least, mut since) = (over(), Instant::now());
        while over() > 0 {
            if !budget.wake_members_above(self.equal_part(), Some(member)) {
                return;
            }
            if over() < least {
                (least, since) = (over(), Instant::now());
            } else if since.elapsed() >= WAIT_LIMIT {
                *lock(&self.no_wait_until) = Some(Instant::now() + NO_WAIT);
                return;
            }
            std::thread::sleep(WAIT_INTERVAL);
        }
    }
}

fn wake(counter: &AtomicU32) {
    counter.fetch_add(1, SeqCst);
    // A failed call leaves the sleepers to their timeout.
    let _ = futex::wake(counter, futex::Flags::empty(), i32::MAX.cast_unsigned());
}
