//! What the threads that serve faults have in common, the pager's and the pool's: where they stay, what they sleep on,
//! and how long they look for something before they do (docs/adr/0016).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::thread::CpuSet;

use crate::crew::Seat;
use crate::descriptors::raised;

/// Up to so many processors each has its handler; all of them wake at a fault.
pub(crate) const FEW: usize = 4;
/// How long a handler looks for the ends of reads without sleeping: a processor that has gone to sleep takes longer to
/// wake than a device takes to answer.
const SPIN: Duration = Duration::from_micros(150);
/// Between two looks somebody else had the processor if they are further apart than this.
const LATE: Duration = Duration::from_micros(50);
/// Sleeps before a crowded processor is tried again.
const SLEEPS: u32 = 64;

/// What an event is about; only the end is asked for.
const OTHER: u64 = 0;
const STOP: u64 = 1;

/// Processors that this process may run on.
pub(crate) fn processors() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n)).collect();
    if all.is_empty() { vec![0, 1] } else { all }
}

/// Keeps the calling thread on a processor.
pub(crate) fn stay_on(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    // Refused: it is then wherever the kernel puts it.
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

/// What a handler sleeps on: descriptors that stay open as long as it lives. A job wakes one handler; whom a fault wakes
/// a [`crate::crew::Crew`] says.
pub(crate) fn interests(
    jobs: BorrowedFd<'_>,
    stop: BorrowedFd<'_>,
    ring: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    use epoll::{EventData, EventFlags};
    let poll = raised(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
    let other = EventData::new_u64(OTHER);
    let exclusive = EventFlags::IN | EventFlags::EXCLUSIVE;
    epoll::add(&poll, jobs, other, exclusive)?;
    epoll::add(&poll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
    if let Some(ring) = ring {
        epoll::add(&poll, ring, other, EventFlags::IN)?;
    }
    Ok(poll)
}

/// Has faults wake a handler: `once` if no other has been woken.
pub(crate) fn add_faults(poll: &OwnedFd, watch: &OwnedFd, once: bool) -> rustix::io::Result<()> {
    use epoll::{EventData, EventFlags};
    let flags = if once { EventFlags::IN | EventFlags::EXCLUSIVE } else { EventFlags::IN };
    epoll::add(poll, watch, EventData::new_u64(OTHER), flags)
}

/// Has faults wake a handler that was added for them not `once`, or not any more. It wakes at those that wait.
pub(crate) fn wake_at_faults(poll: &OwnedFd, watch: &OwnedFd, wakes: bool) -> rustix::io::Result<()> {
    use epoll::{EventData, EventFlags};
    let flags = if wakes { EventFlags::IN } else { EventFlags::empty() };
    epoll::modify(poll, watch, EventData::new_u64(OTHER), flags)
}

/// A handler, seen from its thread.
pub(crate) trait Serve<'a> {
    /// Does what can be done now; whether that was anything. Nothing new is begun if `stopping`, as far as that matters.
    fn step(&mut self, stopping: bool) -> bool;

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool;

    /// Its place among the handlers.
    fn seat(&mut self) -> &mut Seat<'a>;
}

/// Body of a handler's thread: serves until told to stop and nothing is under way.
pub(crate) fn run<'a>(handler: &mut impl Serve<'a>) {
    let poll = handler.seat().poll();
    let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(OTHER) };
    let mut events = [empty; 4];
    let mut stopping = false;
    let mut patience = Patience::new();
    loop {
        if handler.step(stopping) {
            patience.begin();
            continue;
        }
        let idle = handler.is_idle();
        if stopping && idle {
            return;
        }
        let leads = handler.seat().leads();
        if !idle && !handler.seat().lends() && patience.lasts(leads, || handler.seat().is_crowded()) {
            continue;
        }
        if idle {
            handler.seat().rest();
        }
        match epoll::wait(poll, &mut events, None) {
            Ok(n) => stopping |= events[..n].iter().any(|event| event.data.u64() == STOP),
            // A read has ended.
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                handler.seat().failed("epoll_wait", &error.into());
                return;
            }
        }
        patience.begin();
    }
}

/// How long a thread looks for something without sleeping.
struct Patience {
    /// Somebody else wants this processor: so many times more the thread sleeps rather than look.
    crowded: u32,
    since: Instant,
    looked: Instant,
    /// Times that the thread was made to leave its processor, before it began to look.
    left: Option<i64>,
}

/// Times that the calling thread was made to leave its processor for another. A host that takes the processor away is none.
fn times_left() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call stores one structure, of which zeros are a value.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nivcsw
    }
}

impl Patience {
    fn new() -> Self {
        let now = Instant::now();
        Self { crowded: 0, since: now, looked: now, left: None }
    }

    /// Something was found, or the thread has slept.
    fn begin(&mut self) {
        self.since = Instant::now();
        self.looked = self.since;
        self.left = None;
    }

    /// Nothing was found; whether to look again. If not, the thread sleeps. Who `leads` sleeps for others of this machine
    /// alone: a host that takes the processor away now and then has no use for that, and the thread that waits has.
    fn lasts(&mut self, leads: bool, crowded: impl FnOnce()) -> bool {
        if self.crowded == 0 && self.since.elapsed() < SPIN {
            if leads && self.left.is_none() {
                self.left = Some(times_left());
            }
            let late = self.looked.elapsed() > LATE;
            if late && (!leads || self.left.is_none_or(|left| times_left() > left)) {
                self.crowded = SLEEPS;
                crowded();
            }
            self.looked = Instant::now();
            std::hint::spin_loop();
            return true;
        }
        self.crowded = self.crowded.saturating_sub(1);
        false
    }
}
