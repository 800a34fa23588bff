//! Chooses which handler thread wakes on a fault: all handlers, or only the leading handler while a single thread
//! faults (docs/adr/0022) or several that share its processor (docs/adr/0058).
//!
//! Waking a handler on another processor costs the faulting thread a quarter of a device read on a virtual machine. So
//! while one thread faults alone, only the leading handler wakes, and the faulting thread is pinned to the leading
//! handler's processor: otherwise the kernel would move the thread to an idle processor, away from the leading handler.
//! The same goes for several threads, as long as they mostly wait for faults (`colocation.rs`).
//! Each handler leads for a trial of some faults; the handler whose reads completed soonest leads afterwards. A thread that
//! has not faulted for [`PINNED_FOR`] gets its own affinity mask back: pinning a thread at each fault anew costs a third of a
//! fault without a read.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use super::colocation::FaultingThreads;
use super::event_loop;
use super::pinned_thread::{PinnedThread, is_own_thread};
use deepram_linux::clock::thread_cpu_ns_of;
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
    /// Whether several faulting threads share the leading handler's processor.
    shares_processor: AtomicBool,
    faulting: Mutex<Faulting>,
    /// The faulting threads that are pinned now.
    pinned: Mutex<Vec<PinnedThread>>,
    /// Number of callers that currently suspend pinning ([`HandlerGroup::suspend_pinning`]).
    suspensions: AtomicUsize,
    on_failure: OnFailure,
}

impl fmt::Debug for HandlerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerGroup").field("members", &self.members).finish_non_exhaustive()
    }
}

/// What is known of the threads that fault, and the choice of the leader.
#[derive(Debug)]
struct Faulting {
    lone: LoneThread,
    threads: FaultingThreads,
    trial: Option<LeaderTrial>,
    /// Leader that the last trial chose, and the time of the choice.
    best: Option<(usize, Instant)>,
    /// Time at which other threads last wanted the leading handler's processor.
    contended: Option<Instant>,
    /// The kernel does not allow a thread to be pinned to any handler's processor.
    cannot_pin: bool,
}

/// The thread that may be faulting alone.
#[derive(Debug, Default)]
struct LoneThread {
    thread: i32,
    /// At most [`LONE_SCORE`].
    score: u32,
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
    /// a fault wakes only one handler. Faulting threads are pinned only if `threads_may_be_pinned`.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn new(
        members: Vec<HandlerPoll>,
        uffd: BorrowedFd<'_>,
        threads_may_be_pinned: bool,
        on_failure: OnFailure,
    ) -> io::Result<Self> {
        let uffd = OpenGuard::acquire().duplicate(uffd)?;
        for HandlerPoll { poll, cpu } in &members {
            event_loop::add_uffd(poll, &uffd, cpu.is_none())?;
        }
        let may_lead =
            threads_may_be_pinned && members.len() > 1 && members.iter().all(|member| member.cpu.is_some());
        Ok(Self {
            members,
            uffd,
            may_lead,
            leader: AtomicUsize::new(ALL_WAKE),
            shares_processor: AtomicBool::new(false),
            faulting: Mutex::new(Faulting {
                lone: LoneThread::default(),
                threads: FaultingThreads::new(Instant::now()),
                trial: None,
                best: None,
                contended: None,
                cannot_pin: false,
            }),
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
    fn note_fault(&self, own_index: usize, thread: i32, now: Instant) -> bool {
        if !self.may_lead || thread == 0 {
            return false;
        }
        let mut faulting = lock(&self.faulting);
        faulting.lone.count_fault(thread);
        if self.may_share_processor() && faulting.threads.count_fault(thread, now, thread_cpu_ns_of) {
            lock(&self.pinned).retain(|of| faulting.threads.contains(of.thread));
        }
        let score = faulting.lone.score;
        let together = faulting.threads.together();
        match self.leader.load(Relaxed) {
            ALL_WAKE if (score == LONE_SCORE || together) && !faulting.cannot_pin => {
                let known = faulting.best.filter(|(_, since)| since.elapsed() < TRIAL_VALID);
                if known.is_none() {
                    faulting.trial = Some(LeaderTrial::new(own_index, self.members.len()));
                }
                self.set_leader(known.map_or(own_index, |(best, _)| best));
            }
            ALL_WAKE => {}
            _ if score < LONE_SCORE_LOST && !together => self.wake_all(&mut faulting),
            leader
                if faulting.trial.is_none()
                    && faulting.best.is_none_or(|(_, since)| since.elapsed() > TRIAL_VALID) =>
            {
                faulting.trial = Some(LeaderTrial::new(leader, self.members.len()));
            }
            _ => {}
        }
        let leads = self.leader.load(Relaxed) == own_index;
        if leads {
            self.shares_processor.store(together, Relaxed);
        }
        leads && (together || faulting.lone.thread == thread)
    }

    /// Whether several faulting threads may share a processor, which is measured with two handlers only.
    fn may_share_processor(&self) -> bool {
        self.members.len() == 2
    }

    /// The leading handler and its processor, if several faulting threads share it now.
    pub(crate) fn shared_processor(&self) -> Option<(usize, usize)> {
        let leader = self.leader.load(Relaxed);
        let member = self.members.get(leader).filter(|_| self.shares_processor.load(Relaxed))?;
        member.cpu.map(|cpu| (leader, cpu))
    }

    /// Records how long the leading handler took for a read that a fault waited for.
    fn note_read_time(&self, own_index: usize, time: Duration) {
        let mut faulting = lock(&self.faulting);
        let Some(trial) = faulting.trial.as_mut().filter(|_| self.leader.load(Relaxed) == own_index) else {
            return;
        };
        trial.samples.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
        if trial.samples.len() == TRIAL_READS {
            let mut samples: Vec<u32> = trial.samples.drain(..).skip(TRIAL_WARM_UP).collect();
            samples.sort_unstable();
            self.finish_turn(&mut faulting, own_index, samples[samples.len() / 2]);
        }
    }

    /// Records the median read time of a handler that has led its part of the trial, and makes the next handler the
    /// leader.
    fn finish_turn(&self, faulting: &mut Faulting, own_index: usize, median: u32) {
        let Some(trial) = &mut faulting.trial else { return };
        trial.samples.clear();
        trial.medians[own_index] = Some(median);
        if let Some(next) = trial.next_untried() {
            return self.set_leader(next);
        }
        let best = trial.best();
        let unfit = trial.medians[best] == Some(u32::MAX);
        faulting.trial = None;
        if unfit {
            faulting.cannot_pin = true;
            return self.wake_all(faulting);
        }
        faulting.best = Some((best, Instant::now()));
        self.set_leader(best);
    }

    /// Pins a waiting thread to the handler's processor, if the thread's affinity mask allows that processor. Unless
    /// several threads share the processor, releases the thread that was pinned before.
    fn pin(&self, own_index: usize, thread: i32) {
        let mut pinned = lock(&self.pinned);
        if self.suspensions.load(SeqCst) > 0
            || pinned.iter().any(|of| (of.handler, of.thread) == (own_index, thread))
        {
            return;
        }
        let shares = self.shares_processor.load(Relaxed);
        pinned.retain(|of| shares && of.thread != thread);
        // The fault may come from another process that reads this process's memory, or from a child that shares it.
        let (Some(cpu), true) = (self.members[own_index].cpu, is_own_thread(thread)) else { return };
        if let Some(new) = PinnedThread::pin(own_index, thread, cpu) {
            return pinned.push(new);
        }
        drop(pinned);
        let mut faulting = lock(&self.faulting);
        if faulting.trial.is_some() {
            self.finish_turn(&mut faulting, own_index, u32::MAX);
        } else {
            faulting.best = None;
            self.wake_all(&mut faulting);
        }
    }

    /// Whether a handler has pinned a thread.
    fn has_pinned(&self, own_index: usize, thread: i32) -> bool {
        lock(&self.pinned).iter().any(|of| (of.handler, of.thread) == (own_index, thread))
    }

    /// Number of threads that a handler has pinned.
    fn pinned_count(&self, own_index: usize) -> usize {
        lock(&self.pinned).iter().filter(|of| of.handler == own_index).count()
    }

    /// Releases the threads that a handler has pinned.
    fn unpin(&self, own_index: usize) {
        lock(&self.pinned).retain(|of| of.handler != own_index);
    }

    /// Gives every thread its own affinity mask back until the result is dropped. Several callers may suspend pinning
    /// at once.
    pub fn suspend_pinning(&self) -> PinningSuspended<'_> {
        self.suspensions.fetch_add(1, SeqCst);
        // A handler about to pin a thread sees the count.
        lock(&self.pinned).clear();
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

    fn wake_all(&self, faulting: &mut Faulting) {
        (faulting.lone.score, faulting.trial) = (0, None);
        self.shares_processor.store(false, Relaxed);
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

/// The affinity of a thread that works for the handlers, as an evictor does: it runs on the processor that the faulting
/// threads share. On another one, each change of a page table entry would interrupt the shared one.
#[derive(Debug, Default)]
pub struct SharedProcessor(Option<PinnedThread>);

impl SharedProcessor {
    /// Moves the calling thread to the processor that the faulting threads of `group` share now, or lets it run anywhere
    /// again. Called before each piece of work.
    pub fn follow(&mut self, group: Option<&HandlerGroup>) {
        let shared = group.and_then(HandlerGroup::shared_processor);
        if shared.map(|(handler, _)| handler) == self.0.as_ref().map(|of| of.handler) {
            return;
        }
        // The thread has its own affinity again before it is pinned anew.
        self.0 = None;
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        self.0 = shared.and_then(|(handler, cpu)| PinnedThread::pin(handler, own, cpu));
    }
}

/// One handler's access to its group.
#[derive(Debug)]
pub struct GroupHandle<'a> {
    group: &'a HandlerGroup,
    own_index: usize,
    /// The threads pinned here that wait for a page.
    waiting: Vec<i32>,
}

impl<'a> GroupHandle<'a> {
    /// The handle of the handler with this index.
    pub fn new(group: &'a HandlerGroup, own_index: usize) -> Self {
        Self { group, own_index, waiting: Vec::new() }
    }

    /// Descriptor on which the handler sleeps.
    pub fn poll(&self) -> &'a OwnedFd {
        &self.group.members[self.own_index].poll
    }

    /// Pins the calling handler thread to its processor, if it has one.
    pub fn pin_handler(&self) {
        self.group.members[self.own_index].cpu.into_iter().for_each(event_loop::pin_to_cpu);
    }

    /// Whether this handler serves faults now. Releases its pinned threads if it does not.
    pub fn is_on_duty(&mut self) -> bool {
        let leader = self.group.leader.load(Relaxed);
        let on_duty = leader == ALL_WAKE || leader == self.own_index;
        if !on_duty {
            self.unpin();
        }
        on_duty
    }

    /// Counts a fault of `thread` that is about to be served. Returns whether the thread is to be pinned here while it
    /// waits.
    pub fn note_fault(&mut self, thread: i32, now: Instant) -> bool {
        let pins = self.group.note_fault(self.own_index, thread, now);
        if !pins {
            self.unpin();
        } else if self.has_pinned(thread) {
            self.note_waiting(thread);
        }
        pins
    }

    /// Whether `thread` is already pinned here.
    pub fn has_pinned(&self, thread: i32) -> bool {
        self.group.has_pinned(self.own_index, thread)
    }

    /// Whether any thread is pinned here.
    pub fn has_pinned_any(&self) -> bool {
        self.group.pinned_count(self.own_index) > 0
    }

    /// Pins the waiting thread here.
    pub fn pin(&mut self, thread: i32) {
        self.group.pin(self.own_index, thread);
        if self.has_pinned(thread) {
            self.note_waiting(thread);
        }
    }

    fn note_waiting(&mut self, thread: i32) {
        if !self.waiting.contains(&thread) {
            self.waiting.push(thread);
        }
    }

    /// Records that `thread` (or, with `None`, any pinned thread) has its page and runs again.
    pub fn note_woken(&mut self, thread: Option<i32>) {
        self.waiting.retain(|waiting| thread.is_some_and(|thread| *waiting != thread));
    }

    /// Whether this handler is the leading handler.
    pub fn is_leader(&self) -> bool {
        self.group.leader.load(Relaxed) == self.own_index
    }

    /// Whether polling for completed reads would only take the processor from other threads: a pinned thread has its
    /// page, or another handler leads and no fault waits for the reads in flight here.
    pub fn yields_cpu(&self) -> bool {
        let leader = self.group.leader.load(Relaxed);
        self.group.pinned_count(self.own_index) > self.waiting.len()
            || (leader != ALL_WAKE && leader != self.own_index)
    }

    /// Records how long a read took that a fault waited for.
    pub fn note_read_time(&self, time: Duration) {
        if self.has_pinned_any() {
            self.group.note_read_time(self.own_index, time);
        }
    }

    /// Records that other threads want the processor.
    pub fn note_contention(&mut self) {
        // Threads that share the processor want it from each other.
        if self.is_leader() && self.group.shared_processor().is_none() {
            let mut faulting = lock(&self.group.faulting);
            if faulting.contended.replace(Instant::now()).is_some_and(|at| at.elapsed() < CONTENTION_WINDOW) {
                faulting.best = None;
                self.group.wake_all(&mut faulting);
            }
        }
    }

    /// Reports that a system call for receiving faults has failed.
    pub fn report_failure(&self, call: &'static str, error: &io::Error) {
        (self.group.on_failure)(call, error);
    }

    /// Releases the threads that are pinned here.
    pub fn unpin(&mut self) {
        self.waiting.clear();
        self.group.unpin(self.own_index);
    }
}

impl Drop for GroupHandle<'_> {
    fn drop(&mut self) {
        self.unpin();
    }
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
