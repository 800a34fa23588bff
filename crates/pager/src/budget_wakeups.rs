//! Members of a shared budget wake each other's evictors: a process that needs frames, while the whole budget is in use
//! and it has less than its equal part, waits for the members that have more than theirs.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use super::budget::{BudgetMemory, Frames};

/// How often a process that waits for the other members looks for free frames.
const WAIT_INTERVAL: Duration = Duration::from_micros(200);
/// The wait ends if the other members have freed nothing for this long. A device may take most of a second for one write.
/// Members that free nothing for longer may be stopped, or all that they have may be unpaged.
const WAIT_LIMIT: Duration = Duration::from_secs(1);

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
    /// free or none of them frees any. After a wait that they did not end, the process does not wait again before they have
    /// fewer frames. Without a shared budget nothing is done.
    pub(super) fn wait_for_members(&self, more: usize) {
        let Some((budget, member)) = self.shared() else { return };
        let others = || budget.in_use() - self.used() as i64;
        if others() >= self.kept_by_others.load(Relaxed) {
            return;
        }
        let (mut least, mut since) = (others(), Instant::now());
        while !self.are_free(more) {
            if !budget.wake_members_above(self.equal_part(), Some(member)) {
                return;
            }
            if others() < least {
                (least, since) = (others(), Instant::now());
            } else if since.elapsed() >= WAIT_LIMIT {
                self.kept_by_others.store(least, Relaxed);
                return;
            }
            std::thread::sleep(WAIT_INTERVAL);
        }
        self.kept_by_others.store(i64::MAX, Relaxed);
    }
}

fn wake(counter: &AtomicU32) {
    counter.fetch_add(1, SeqCst);
    // A failed call leaves the sleepers to their timeout.
    let _ = futex::wake(counter, futex::Flags::empty(), i32::MAX.cast_unsigned());
}

#[cfg(test)]
mod tests {
    use super::super::budget_members::SharedBudget;
    use super::*;

    /// Two members of a budget of 100 frames, which have 90 and 10.
    fn large_and_small() -> [Frames; 2] {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let frames = [90, 10].map(|charged| {
            let frames = Frames::new(100, Some(budget));
            frames.charge(charged);
            frames
        });
        frames.iter().for_each(|frames| frames.publish(&[0; super::super::stats::ROW_LEN]));
        frames
    }

    #[test]
    fn a_process_waits_for_a_member_whose_device_is_slow() {
        let [large, small] = large_and_small();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(WAIT_LIMIT / 3);
                large.release(20);
            });
            small.wait_for_members(15);
            assert_eq!(large.used(), 70, "the wait has ended before frames were free");
        });
    }

    #[test]
    fn a_process_waits_once_for_a_member_that_frees_nothing() {
        let [large, small] = large_and_small();
        let wake_ups = large.wake_ups();
        small.wait_for_members(15);
        let after = large.wake_ups();
        assert_ne!(after, wake_ups);
        small.wait_for_members(15);
        assert_eq!(large.wake_ups(), after, "it waits again though the member has freed nothing");
        large.release(1);
        small.wait_for_members(5);
        assert_ne!(large.wake_ups(), after, "it does not wait though the member has freed a frame");
    }
}
