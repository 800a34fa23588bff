//! Who wakes at a fault: all handlers, or, while one thread alone faults, one that leads (docs/adr/0022).
//!
//! To wake a handler on another processor costs the faulting thread a quarter of a device read on a virtual machine. So while
//! one thread faults alone only the leader wakes, and the thread is kept on the leader's processor: the kernel would have it
//! go on where nothing runs, away from the leader. Each handler leads for some faults; the one whose reads ended soonest leads
//! from then on. As soon as the leader finds no fault of the thread, the thread is where the program lets it be again.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid};

use crate::descriptors::Low;
use crate::lock::lock;
use crate::serving;

/// A thread faults alone if so many of the faults lately were its own: up from the one, until down to the other.
const ALONE: u32 = 64;
const NOT_ALONE: u32 = 32;
/// What another thread's fault takes from that.
const STRANGER: u32 = 8;
/// Reads for which each handler leads to be measured, and the first of them, which do not count.
const TRIAL: usize = 40;
const SETTLING: usize = 8;
/// Another handler leads only if its reads take less than so many parts of 16 of the first one's.
const BETTER: u32 = 15;
/// How long a measurement is good for.
const GOOD: Duration = Duration::from_secs(1);
/// Others who want the leader's processor again within this time have it: all wake, and who leads next is measured.
const CROWDED: Duration = Duration::from_millis(20);
/// In place of a leader: all wake.
const ALL: usize = usize::MAX;

/// A handler.
#[derive(Debug)]
pub(crate) struct Member {
    /// What it sleeps on ([`serving::interests`]).
    pub(crate) poll: OwnedFd,
    /// The processor that it stays on, if it does.
    pub(crate) home: Option<usize>,
}

/// What becomes of whoever would wait for ever, as a call that tells handlers of faults has failed.
pub(crate) type OnFailure = Box<dyn Fn(&'static str, &io::Error) + Send + Sync>;

/// The handlers of one pager or pool.
pub(crate) struct Crew {
    members: Vec<Member>,
    /// A duplicate of the descriptor of the faults.
    watch: OwnedFd,
    /// Each stays on a processor, there are several, and one may lead.
    may_lead: bool,
    /// Its number, or [`ALL`].
    leader: AtomicUsize,
    lone: Mutex<Lone>,
    /// Held while a thread is kept on a processor.
    keeping: Mutex<()>,
    /// Those who want nobody to be kept.
    wanted: AtomicUsize,
    on_failure: OnFailure,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("members", &self.members).finish_non_exhaustive()
    }
}

/// What is known of a thread that faults alone.
#[derive(Debug, Default)]
struct Lone {
    thread: i32,
    /// Up to [`ALONE`].
    score: u32,
    trial: Option<Trial>,
    /// The leader found best, and when.
    best: Option<(usize, Instant)>,
    /// When others last wanted the leader's processor.
    crowded: Option<Instant>,
    /// Threads cannot be kept anywhere.
    refused: bool,
}

/// Who is measured, and what was found.
#[derive(Debug)]
struct Trial {
    first: usize,
    samples: Vec<u32>,
    /// Nanoseconds of a read, by handler.
    medians: Vec<Option<u32>>,
}

impl Lone {
    fn note(&mut self, thread: i32) {
        if thread == self.thread {
            self.score = (self.score + 1).min(ALONE);
        } else {
            self.score = self.score.saturating_sub(STRANGER);
            if self.score == 0 {
                self.thread = thread;
            }
        }
    }
}

impl Trial {
    fn new(first: usize, members: usize) -> Self {
        Self { first, samples: Vec::with_capacity(TRIAL), medians: vec![None; members] }
    }

    /// The handler that is measured next.
    fn next(&self) -> Option<usize> {
        self.medians.iter().position(Option::is_none)
    }

    /// The one whose reads end soonest; the first unless another is clearly better.
    fn best(&self) -> usize {
        let median = |n: usize| self.medians[n].unwrap_or(u32::MAX);
        let best = (0..self.medians.len()).min_by_key(|n| median(*n)).unwrap_or(self.first);
        let better = u64::from(median(best)) * 16 < u64::from(median(self.first)) * u64::from(BETTER);
        if better { best } else { self.first }
    }
}

impl Crew {
    /// Of these handlers, for the faults of this descriptor. All wake for now; or one does, if they stay nowhere. No thread
    /// is ever kept if there are to be no `leaders`.
    pub(crate) fn new(
        members: Vec<Member>,
        watch: BorrowedFd<'_>,
        leaders: bool,
        on_failure: OnFailure,
    ) -> io::Result<Self> {
        let watch = Low::hold().duplicate(watch)?;
        for Member { poll, home } in &members {
            serving::add_faults(poll, &watch, home.is_none())?;
        }
        let may_lead = leaders && members.len() > 1 && members.iter().all(|member| member.home.is_some());
        Ok(Self {
            members,
            watch,
            may_lead,
            leader: AtomicUsize::new(ALL),
            lone: Mutex::default(),
            keeping: Mutex::default(),
            wanted: AtomicUsize::new(0),
            on_failure,
        })
    }

    /// Descriptors that are open as long as it is.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.members.iter().map(|member| member.poll.as_raw_fd()).chain([self.watch.as_raw_fd()])
    }

    /// A fault of this thread is about to be served by this handler. Whether the thread is to be kept here.
    fn saw(&self, me: usize, thread: i32) -> bool {
        if !self.may_lead || thread == 0 {
            return false;
        }
        let mut lone = lock(&self.lone);
        lone.note(thread);
        match self.leader.load(Relaxed) {
            ALL if lone.score == ALONE && !lone.refused => {
                let known = lone.best.filter(|(_, since)| since.elapsed() < GOOD);
                if known.is_none() {
                    lone.trial = Some(Trial::new(me, self.members.len()));
                }
                self.lead(known.map_or(me, |(best, _)| best));
            }
            ALL => {}
            _ if lone.score < NOT_ALONE => self.wake_all(&mut lone),
            leader if lone.trial.is_none() && lone.best.is_none_or(|(_, since)| since.elapsed() > GOOD) => {
                lone.trial = Some(Trial::new(leader, self.members.len()));
            }
            _ => {}
        }
        self.leader.load(Relaxed) == me && lone.thread == thread
    }

    /// The leader has read what a fault waited for, in this time.
    fn took(&self, me: usize, time: Duration) {
        let mut lone = lock(&self.lone);
        let Some(trial) = lone.trial.as_mut().filter(|_| self.leader.load(Relaxed) == me) else { return };
        trial.samples.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
        if trial.samples.len() == TRIAL {
            let mut samples: Vec<u32> = trial.samples.drain(..).skip(SETTLING).collect();
            samples.sort_unstable();
            self.tried(&mut lone, me, samples[samples.len() / 2]);
        }
    }

    /// What is known of a handler that has led; another one does now.
    fn tried(&self, lone: &mut Lone, me: usize, median: u32) {
        let Some(trial) = &mut lone.trial else { return };
        trial.samples.clear();
        trial.medians[me] = Some(median);
        if let Some(next) = trial.next() {
            return self.lead(next);
        }
        let best = trial.best();
        let unfit = trial.medians[best] == Some(u32::MAX);
        lone.trial = None;
        if unfit {
            lone.refused = true;
            return self.wake_all(lone);
        }
        lone.best = Some((best, Instant::now()));
        self.lead(best);
    }

    /// Keeps a thread that waits on the handler's processor until the result is dropped, if the program lets it run there.
    fn keep(&self, me: usize, thread: i32) -> Option<Kept<'_>> {
        let keeping = match self.keeping.try_lock() {
            Ok(keeping) => keeping,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            // A former leader's still, or asked for.
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.wanted.load(SeqCst) > 0 {
            return None;
        }
        let (pid, home) = (Pid::from_raw(thread)?, self.members[me].home?);
        // The fault may be another process's that looks at this one's memory, or of a child that shares it.
        if !is_ours(thread) {
            return None;
        }
        let mut here = CpuSet::new();
        here.set(home);
        let before = rustix::thread::sched_getaffinity(Some(pid)).ok().filter(|before| before.is_set(home));
        let kept = before
            .filter(|before| *before == here || rustix::thread::sched_setaffinity(Some(pid), &here).is_ok());
        let Some(before) = kept else {
            let mut lone = lock(&self.lone);
            if lone.trial.is_some() {
                self.tried(&mut lone, me, u32::MAX);
            } else {
                lone.best = None;
                self.wake_all(&mut lone);
            }
            return None;
        };
        Some(Kept { thread, here, before, _keeping: keeping })
    }

    /// Every thread is where the program lets it be until the result is dropped. Several may hold this at once.
    pub(crate) fn hold(&self) -> Unkept<'_> {
        self.wanted.fetch_add(1, SeqCst);
        // Whoever keeps a thread lets it go; who is about to sees the count.
        drop(lock(&self.keeping));
        Unkept(self)
    }

    /// This handler wakes at faults, and no other.
    fn lead(&self, leader: usize) {
        // In this order no fault is missed: it wakes at those that wait already.
        self.set(leader, true);
        self.leader.store(leader, Relaxed);
        (0..self.members.len()).filter(|n| *n != leader).for_each(|n| self.set(n, false));
    }

    fn wake_all(&self, lone: &mut Lone) {
        (lone.score, lone.trial) = (0, None);
        self.leader.store(ALL, Relaxed);
        (0..self.members.len()).for_each(|n| self.set(n, true));
    }

    fn set(&self, member: usize, wakes: bool) {
        if let Err(error) = serving::wake_at_faults(&self.members[member].poll, &self.watch, wakes) {
            (self.on_failure)("epoll_ctl of the userfaultfd", &error.into());
        }
    }
}

/// Nobody is kept, until this is dropped.
#[derive(Debug)]
pub(crate) struct Unkept<'a>(&'a Crew);

impl Drop for Unkept<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, SeqCst);
    }
}

/// A thread kept on a processor, until this is dropped.
#[derive(Debug)]
struct Kept<'a> {
    thread: i32,
    here: CpuSet,
    /// Where the program lets it run.
    before: CpuSet,
    _keeping: MutexGuard<'a, ()>,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let thread = Pid::from_raw(self.thread);
        // It may have ended, or somebody else has said where it is to run.
        if self.before != self.here && rustix::thread::sched_getaffinity(thread) == Ok(self.here) {
            let _ = rustix::thread::sched_setaffinity(thread, &self.before);
        }
    }
}

/// A handler's place in the crew.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    crew: &'a Crew,
    me: usize,
    kept: Option<Kept<'a>>,
    /// Who is kept has what it waited for, and the processor, as far as is known.
    runs: bool,
}

impl<'a> Seat<'a> {
    pub(crate) fn new(crew: &'a Crew, me: usize) -> Self {
        Self { crew, me, kept: None, runs: false }
    }

    /// What the handler sleeps on.
    pub(crate) fn poll(&self) -> &'a OwnedFd {
        &self.crew.members[self.me].poll
    }

    /// The handler's thread begins.
    pub(crate) fn begin(&self) {
        self.crew.members[self.me].home.into_iter().for_each(serving::stay_on);
    }

    /// Whether faults are this handler's matter now. Whom it keeps goes free if not, or if the program wants that.
    pub(crate) fn is_on_duty(&mut self) -> bool {
        let leader = self.crew.leader.load(Relaxed);
        let on_duty = leader == ALL || leader == self.me;
        if !on_duty || self.crew.wanted.load(Relaxed) > 0 {
            self.kept = None;
        }
        on_duty
    }

    /// A fault of this thread is about to be served. Whether the thread faults alone and is to be kept here meanwhile.
    pub(crate) fn saw(&mut self, thread: i32) -> bool {
        let alone = self.crew.saw(self.me, thread);
        if !alone {
            self.kept = None;
        } else if self.keeps(thread) {
            self.runs = false;
        }
        alone
    }

    /// Whether the thread is kept here already.
    pub(crate) fn keeps(&self, thread: i32) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.thread == thread)
    }

    /// Keeps the thread, which waits, here.
    pub(crate) fn keep(&mut self, thread: i32) {
        if !self.keeps(thread) {
            self.kept = None;
            self.kept = self.crew.keep(self.me, thread);
        }
        self.runs = false;
    }

    /// The thread, or whoever is kept if none is named, has what it waited for.
    pub(crate) fn woke(&mut self, thread: Option<i32>) {
        self.runs |= thread.is_none_or(|thread| self.keeps(thread));
    }

    /// Whether this handler leads.
    pub(crate) fn leads(&self) -> bool {
        self.crew.leader.load(Relaxed) == self.me
    }

    /// Whether the processor is others' now, and who looks for reads' ends would only take it away: the kept thread's, which
    /// has what it waited for; or anybody's where another handler leads, and reads here are none that a fault waits for.
    pub(crate) fn lends(&self) -> bool {
        let leader = self.crew.leader.load(Relaxed);
        (self.runs && self.kept.is_some()) || (leader != ALL && leader != self.me)
    }

    /// What a fault waited for has been read, in this time.
    pub(crate) fn took(&self, time: Duration) {
        if self.kept.is_some() {
            self.crew.took(self.me, time);
        }
    }

    /// Others want the processor.
    pub(crate) fn is_crowded(&mut self) {
        if self.leads() {
            let mut lone = lock(&self.crew.lone);
            if lone.crowded.replace(Instant::now()).is_some_and(|at| at.elapsed() < CROWDED) {
                lone.best = None;
                self.crew.wake_all(&mut lone);
            }
        }
    }

    /// A call that tells handlers of faults has failed.
    pub(crate) fn failed(&self, call: &'static str, error: &io::Error) {
        (self.crew.on_failure)(call, error);
    }

    /// There is nothing to do.
    pub(crate) fn rest(&mut self) {
        self.kept = None;
    }
}

/// Whether it is a thread of this process.
fn is_ours(thread: i32) -> bool {
    // SAFETY: signal 0 is sent to nobody.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_alone_after_many_faults_of_its_own_and_a_few_of_others() {
        let mut lone = Lone::default();
        // The first tells only who it is.
        (0..=ALONE).for_each(|_| lone.note(7));
        assert_eq!((lone.thread, lone.score), (7, ALONE));
        lone.note(8);
        (0..STRANGER).for_each(|_| lone.note(7));
        assert_eq!((lone.thread, lone.score), (7, ALONE), "one fault of another is made up for");
        for _ in 0..=(ALONE - NOT_ALONE) / STRANGER {
            lone.note(8);
        }
        assert!(lone.score < NOT_ALONE, "{}", lone.score);
    }

    #[test]
    fn threads_that_fault_by_turns_are_never_alone() {
        let mut lone = Lone::default();
        for n in 0..10_000 {
            lone.note(1 + n / 3 % 2);
            assert!(lone.score < NOT_ALONE, "{}", lone.score);
        }
    }

    #[test]
    fn who_leads_is_clearly_better_than_who_led() {
        let trial =
            |medians: [u32; 3]| Trial { first: 1, samples: Vec::new(), medians: medians.map(Some).into() };
        assert_eq!(trial([31_000, 36_000, 40_000]).best(), 0);
        assert_eq!(trial([35_000, 36_000, 34_500]).best(), 1, "as good as");
        assert_eq!(trial([u32::MAX, 36_000, u32::MAX]).best(), 1);
        assert_eq!(trial([u32::MAX, u32::MAX, 90_000]).best(), 2, "the first is no place for the thread");
        assert_eq!(trial([u32::MAX; 3]).best(), 1);
    }
}
