//! Chooses which handler thread wakes on a fault: all handlers, or only the leading handler while a single thread
//! faults (docs/adr/0022).
//!
//! Waking a handler on another processor costs the faulting thread a quarter of a device read on a virtual machine. So
//! while one thread faults alone, only the leading handler wakes, and the faulting thread is pinned to the leading
//! handler's processor: otherwise the kernel would move the thread to an idle processor, away from the leading handler.
//! Each handler leads for a trial of some faults; the handler whose reads completed soonest leads afterwards. A thread that
//! has not faulted for [`PINNED_FOR`] gets its own affinity mask back: pinning a thread at each fault anew costs a third of a
//! fault without a read.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid};

use super::event_loop;
use deepram_linux::descriptors::OpenGuard;
use deepram_linux::lock::lock;

/// Scores at which a thread counts as faulting alone, and below which it no longer does. The score is the number of
/// recent faults that were the thread's own.
const LONE_SCORE: u32 = 64;
const LONE_SCORE_LOST: u32 = 32;
/// Points that a fault of another thread takes from the score.
const OTHER_THREAD_PENALTY: u32 = 8;
/// Reads in the trial of each handler as leader, and the first of these reads, which are not counted.
const TRIAL_READS: usize = 40;
const TRIAL_WARM_UP: usize = 8;
/// Another handler becomes leader only if its median read time is below this many sixteenths of the first leader's.
const BETTER_SIXTEENTHS: u32 = 15;
/// How long the result of a trial stays valid.
const TRIAL_VALID: Duration = Duration::from_secs(1);
/// If other threads want the leading handler's processor twice within this time, all handlers wake again and the next
/// leader is chosen by a new trial.
const CONTENTION_WINDOW: Duration = Duration::from_millis(20);
/// How long a thread that no longer faults stays pinned.
pub(super) const PINNED_FOR: Duration = Duration::from_millis(20);
/// Value of `leader` when all handlers wake.
const ALL_WAKE: usize = usize::MAX;

/// One handler, as the group sees it.
#[derive(Debug)]
pub struct HandlerPoll {
    /// Descriptor on which the handler sleeps ([`event_loop::create_poll`]).
    pub poll: OwnedFd,
    /// Processor to which the handler is pinned, if any.
    pub cpu: Option<usize>,
}

/// Called when a system call that reports faults to the handlers has failed: faulting threads would otherwise wait for
/// ever.
pub type OnFailure = Box<dyn Fn(&'static str, &io::Error) + Send + Sync>;

/// The handlers of one pager or pool.
pub struct HandlerGroup {
    members: Vec<HandlerPoll>,
    /// Duplicate of the userfaultfd.
    uffd: OwnedFd,
    /// Whether one handler may lead: there are several handlers, and each is pinned to a processor.
    may_lead: bool,
    /// Index of the leading handler, or [`ALL_WAKE`].
    leader: AtomicUsize,
    lone: Mutex<LoneThread>,
    /// The faulting thread that is pinned now.
    pinned: Mutex<Option<PinnedThread>>,
    /// Number of callers that currently suspend pinning ([`HandlerGroup::suspend_pinning`]).
    suspensions: AtomicUsize,
    on_failure: OnFailure,
}

impl fmt::Debug for HandlerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerGroup").field("members", &self.members).finish_non_exhaustive()
    }
}

/// Statistics about the thread that may be faulting alone.
#[derive(Debug, Default)]
struct LoneThread {
    thread: i32,
    /// At most [`LONE_SCORE`].
    score: u32,
    trial: Option<LeaderTrial>,
    /// Leader that the last trial chose, and the time of the choice.
    best: Option<(usize, Instant)>,
    /// Time at which other threads last wanted the leading handler's processor.
    contended: Option<Instant>,
    /// The kernel does not allow the thread to be pinned to any handler's processor.
    cannot_pin: bool,
}

/// A trial in progress: the read times of each handler as leader.
#[derive(Debug)]
struct LeaderTrial {
    first: usize,
    samples: Vec<u32>,
    /// Median time of a read in nanoseconds, by handler.
    medians: Vec<Option<u32>>,
}

impl LoneThread {
    fn count_fault(&mut self, thread: i32) {
        if thread == self.thread {
            self.score = (self.score + 1).min(LONE_SCORE);
        } else {
            self.score = self.score.saturating_sub(OTHER_THREAD_PENALTY);
            if self.score == 0 {
                self.thread = thread;
            }
        }
    }
}

impl LeaderTrial {
    fn new(first: usize, members: usize) -> Self {
        Self { first, samples: Vec::with_capacity(TRIAL_READS), medians: vec![None; members] }
    }

    /// Index of the next handler to measure.
    fn next_untried(&self) -> Option<usize> {
        self.medians.iter().position(Option::is_none)
    }

    /// Index of the handler with the shortest median; the first leader unless another is clearly better.
    fn best(&self) -> usize {
        let median = |n: usize| self.medians[n].unwrap_or(u32::MAX);
        let best = (0..self.medians.len()).min_by_key(|n| median(*n)).unwrap_or(self.first);
        let better =
            u64::from(median(best)) * 16 < u64::from(median(self.first)) * u64::from(BETTER_SIXTEENTHS);
        if better { best } else { self.first }
    }
}

impl HandlerGroup {
    /// Creates the group of `members` for the faults of `uffd`. All handlers wake at first; if a handler is not pinned,
    /// a fault wakes only one handler. Faulting threads are pinned only if `lone_threads_may_be_pinned`.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn new(
        members: Vec<HandlerPoll>,
        uffd: BorrowedFd<'_>,
        lone_threads_may_be_pinned: bool,
        on_failure: OnFailure,
    ) -> io::Result<Self> {
        let uffd = OpenGuard::acquire().duplicate(uffd)?;
        for HandlerPoll { poll, cpu } in &members {
            event_loop::add_uffd(poll, &uffd, cpu.is_none())?;
        }
        let may_lead = lone_threads_may_be_pinned
            && members.len() > 1
            && members.iter().all(|member| member.cpu.is_some());
        Ok(Self {
            members,
            uffd,
            may_lead,
            leader: AtomicUsize::new(ALL_WAKE),
            lone: Mutex::default(),
            pinned: Mutex::default(),
            suspensions: AtomicUsize::new(0),
            on_failure,
        })
    }

    /// Descriptors that stay open as long as the group.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.members.iter().map(|member| member.poll.as_raw_fd()).chain([self.uffd.as_raw_fd()])
    }

    /// Counts a fault of `thread` that handler `own_index` is about to serve. Returns whether the thread is to be
    /// pinned to this handler's processor.
    fn note_fault(&self, own_index: usize, thread: i32) -> bool {
        if !self.may_lead || thread == 0 {
            return false;
        }
        let mut lone = lock(&self.lone);
        lone.count_fault(thread);
        match self.leader.load(Relaxed) {
            ALL_WAKE if lone.score == LONE_SCORE && !lone.cannot_pin => {
                let known = lone.best.filter(|(_, since)| since.elapsed() < TRIAL_VALID);
                if known.is_none() {
                    lone.trial = Some(LeaderTrial::new(own_index, self.members.len()));
                }
                self.set_leader(known.map_or(own_index, |(best, _)| best));
            }
            ALL_WAKE => {}
            _ if lone.score < LONE_SCORE_LOST => self.wake_all(&mut lone),
            leader
                if lone.trial.is_none()
                    && lone.best.is_none_or(|(_, since)| since.elapsed() > TRIAL_VALID) =>
            {
                lone.trial = Some(LeaderTrial::new(leader, self.members.len()));
            }
            _ => {}
        }
        self.leader.load(Relaxed) == own_index && lone.thread == thread
    }

    /// Records how long the leading handler took for a read that a fault waited for.
    fn note_read_time(&self, own_index: usize, time: Duration) {
        let mut lone = lock(&self.lone);
        let Some(trial) = lone.trial.as_mut().filter(|_| self.leader.load(Relaxed) == own_index) else {
            return;
        };
        trial.samples.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
        if trial.samples.len() == TRIAL_READS {
            let mut samples: Vec<u32> = trial.samples.drain(..).skip(TRIAL_WARM_UP).collect();
            samples.sort_unstable();
            self.finish_turn(&mut lone, own_index, samples[samples.len() / 2]);
        }
    }

    /// Records the median read time of a handler that has led its part of the trial, and makes the next handler the
    /// leader.
    fn finish_turn(&self, lone: &mut LoneThread, own_index: usize, median: u32) {
        let Some(trial) = &mut lone.trial else { return };
        trial.samples.clear();
        trial.medians[own_index] = Some(median);
        if let Some(next) = trial.next_untried() {
            return self.set_leader(next);
        }
        let best = trial.best();
        let unfit = trial.medians[best] == Some(u32::MAX);
        lone.trial = None;
        if unfit {
            lone.cannot_pin = true;
            return self.wake_all(lone);
        }
        lone.best = Some((best, Instant::now()));
        self.set_leader(best);
    }

    /// Pins a waiting thread to the handler's processor, if the thread's affinity mask allows that processor. Releases the
    /// thread that was pinned before.
    fn pin(&self, own_index: usize, thread: i32) {
        let mut pinned = lock(&self.pinned);
        if self.suspensions.load(SeqCst) > 0
            || pinned.as_ref().is_some_and(|of| (of.handler, of.thread) == (own_index, thread))
        {
            return;
        }
        *pinned = None;
        // The fault may come from another process that reads this process's memory, or from a child that shares it.
        let (Some(cpu), true) = (self.members[own_index].cpu, is_own_thread(thread)) else { return };
        *pinned = PinnedThread::pin(own_index, thread, cpu);
        if pinned.is_some() {
            return;
        }
        drop(pinned);
        let mut lone = lock(&self.lone);
        if lone.trial.is_some() {
            self.finish_turn(&mut lone, own_index, u32::MAX);
        } else {
            lone.best = None;
            self.wake_all(&mut lone);
        }
    }

    /// The thread that a handler has pinned.
    fn pinned_by(&self, own_index: usize) -> Option<i32> {
        lock(&self.pinned).as_ref().filter(|of| of.handler == own_index).map(|of| of.thread)
    }

    /// Releases the thread that a handler has pinned.
    fn unpin(&self, own_index: usize) {
        drop(lock(&self.pinned).take_if(|of| of.handler == own_index));
    }

    /// Gives every thread its own affinity mask back until the result is dropped. Several callers may suspend pinning
    /// at once.
    pub fn suspend_pinning(&self) -> PinningSuspended<'_> {
        self.suspensions.fetch_add(1, SeqCst);
        // A handler about to pin a thread sees the count.
        *lock(&self.pinned) = None;
        PinningSuspended(self)
    }

    /// Makes this handler the only one that faults wake.
    fn set_leader(&self, leader: usize) {
        // The new leader is added before the others are removed, so no fault is missed: the leader also wakes for
        // faults that wait already.
        self.set_wakes(leader, true);
        self.leader.store(leader, Relaxed);
        (0..self.members.len()).filter(|n| *n != leader).for_each(|n| self.set_wakes(n, false));
    }

    fn wake_all(&self, lone: &mut LoneThread) {
        (lone.score, lone.trial) = (0, None);
        self.leader.store(ALL_WAKE, Relaxed);
        (0..self.members.len()).for_each(|n| self.set_wakes(n, true));
    }

    fn set_wakes(&self, member: usize, wakes: bool) {
        if let Err(error) = event_loop::set_fault_wake_up(&self.members[member].poll, &self.uffd, wakes) {
            (self.on_failure)("epoll_ctl of the userfaultfd", &error.into());
        }
    }
}

/// Suspends pinning until dropped.
#[derive(Debug)]
pub struct PinningSuspended<'a>(&'a HandlerGroup);

impl Drop for PinningSuspended<'_> {
    fn drop(&mut self) {
        self.0.suspensions.fetch_sub(1, SeqCst);
    }
}

/// A thread that is pinned to the processor of a handler until this is dropped.
#[derive(Debug)]
struct PinnedThread {
    handler: usize,
    thread: i32,
    cpu_set: CpuSet,
    /// The affinity mask that the program gave the thread.
    allowed: CpuSet,
}

impl PinnedThread {
    /// Pins a thread of this process; `None` if its affinity mask does not allow the processor.
    fn pin(handler: usize, thread: i32, cpu: usize) -> Option<Self> {
        let pid = Pid::from_raw(thread)?;
        let mut cpu_set = CpuSet::new();
        cpu_set.set(cpu);
        let allowed =
            rustix::thread::sched_getaffinity(Some(pid)).ok().filter(|allowed| allowed.is_set(cpu))?;
        let pinned = allowed == cpu_set || rustix::thread::sched_setaffinity(Some(pid), &cpu_set).is_ok();
        pinned.then_some(Self { handler, thread, cpu_set, allowed })
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        let thread = Pid::from_raw(self.thread);
        // The thread may have ended, or the program may have changed its affinity.
        if self.allowed != self.cpu_set && rustix::thread::sched_getaffinity(thread) == Ok(self.cpu_set) {
            let _ = rustix::thread::sched_setaffinity(thread, &self.allowed);
        }
    }
}

/// One handler's access to its group.
#[derive(Debug)]
pub struct GroupHandle<'a> {
    group: &'a HandlerGroup,
    own_index: usize,
    /// Whether the pinned thread has its page and is probably running on this processor.
    pinned_is_running: bool,
}

impl<'a> GroupHandle<'a> {
    /// The handle of the handler with this index.
    pub fn new(group: &'a HandlerGroup, own_index: usize) -> Self {
        Self { group, own_index, pinned_is_running: false }
    }

    /// Descriptor on which the handler sleeps.
    pub fn poll(&self) -> &'a OwnedFd {
        &self.group.members[self.own_index].poll
    }

    /// Pins the calling handler thread to its processor, if it has one.
    pub fn pin_handler(&self) {
        self.group.members[self.own_index].cpu.into_iter().for_each(event_loop::pin_to_cpu);
    }

    /// Whether this handler serves faults now. Releases the pinned thread if it does not.
    pub fn is_on_duty(&mut self) -> bool {
        let leader = self.group.leader.load(Relaxed);
        let on_duty = leader == ALL_WAKE || leader == self.own_index;
        if !on_duty {
            self.unpin();
        }
        on_duty
    }

    /// Counts a fault of `thread` that is about to be served. Returns whether the thread faults alone and is to be
    /// pinned here while it waits.
    pub fn note_fault(&mut self, thread: i32) -> bool {
        let alone = self.group.note_fault(self.own_index, thread);
        if !alone {
            self.unpin();
        } else if self.has_pinned(thread) {
            self.pinned_is_running = false;
        }
        alone
    }

    /// Whether `thread` is already pinned here.
    pub fn has_pinned(&self, thread: i32) -> bool {
        self.group.pinned_by(self.own_index) == Some(thread)
    }

    /// Whether any thread is pinned here.
    pub fn has_pinned_any(&self) -> bool {
        self.group.pinned_by(self.own_index).is_some()
    }

    /// Pins the waiting thread here.
    pub fn pin(&mut self, thread: i32) {
        self.group.pin(self.own_index, thread);
        self.pinned_is_running = false;
    }

    /// Records that `thread` (or, with `None`, the pinned thread) has its page and runs again.
    pub fn note_woken(&mut self, thread: Option<i32>) {
        self.pinned_is_running |= thread.is_none_or(|thread| self.has_pinned(thread));
    }

    /// Whether this handler is the leading handler.
    pub fn is_leader(&self) -> bool {
        self.group.leader.load(Relaxed) == self.own_index
    }

    /// Whether polling for completed reads would only take the processor from other threads: the pinned thread has its
    /// page, or another handler leads and no fault waits for the reads in flight here.
    pub fn yields_cpu(&self) -> bool {
        let leader = self.group.leader.load(Relaxed);
        (self.pinned_is_running && self.has_pinned_any()) || (leader != ALL_WAKE && leader != self.own_index)
    }

    /// Records how long a read took that a fault waited for.
    pub fn note_read_time(&self, time: Duration) {
        if self.has_pinned_any() {
            self.group.note_read_time(self.own_index, time);
        }
    }

    /// Records that other threads want the processor.
    pub fn note_contention(&mut self) {
        if self.is_leader() {
            let mut lone = lock(&self.group.lone);
            if lone.contended.replace(Instant::now()).is_some_and(|at| at.elapsed() < CONTENTION_WINDOW) {
                lone.best = None;
                self.group.wake_all(&mut lone);
            }
        }
    }

    /// Reports that a system call for receiving faults has failed.
    pub fn report_failure(&self, call: &'static str, error: &io::Error) {
        (self.group.on_failure)(call, error);
    }

    /// Releases the thread that is pinned here.
    pub fn unpin(&mut self) {
        self.group.unpin(self.own_index);
    }
}

impl Drop for GroupHandle<'_> {
    fn drop(&mut self) {
        self.unpin();
    }
}

/// Whether the thread belongs to this process.
fn is_own_thread(thread: i32) -> bool {
    // SAFETY: signal 0 checks the target without sending anything.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_alone_after_many_faults_of_its_own_and_a_few_of_others() {
        let mut lone = LoneThread::default();
        // The first fault only identifies the thread.
        (0..=LONE_SCORE).for_each(|_| lone.count_fault(7));
        assert_eq!((lone.thread, lone.score), (7, LONE_SCORE));
        lone.count_fault(8);
        (0..OTHER_THREAD_PENALTY).for_each(|_| lone.count_fault(7));
        assert_eq!(
            (lone.thread, lone.score),
            (7, LONE_SCORE),
            "the score recovers from one fault of another thread"
        );
        for _ in 0..=(LONE_SCORE - LONE_SCORE_LOST) / OTHER_THREAD_PENALTY {
            lone.count_fault(8);
        }
        assert!(lone.score < LONE_SCORE_LOST, "{}", lone.score);
    }

    #[test]
    fn threads_that_fault_by_turns_are_never_alone() {
        let mut lone = LoneThread::default();
        for n in 0..10_000 {
            lone.count_fault(1 + n / 3 % 2);
            assert!(lone.score < LONE_SCORE_LOST, "{}", lone.score);
        }
    }

    #[test]
    fn a_new_leader_is_clearly_better_than_the_first() {
        let trial = |medians: [u32; 3]| LeaderTrial {
            first: 1,
            samples: Vec::new(),
            medians: medians.map(Some).into(),
        };
        assert_eq!(trial([31_000, 36_000, 40_000]).best(), 0);
        assert_eq!(trial([35_000, 36_000, 34_500]).best(), 1, "as good as");
        assert_eq!(trial([u32::MAX, 36_000, u32::MAX]).best(), 1);
        assert_eq!(
            trial([u32::MAX, u32::MAX, 90_000]).best(),
            2,
            "the thread cannot run on the first handler's processor"
        );
        assert_eq!(trial([u32::MAX; 3]).best(), 1);
    }
}
