//! The event loop of a handler thread: processor affinity, the descriptors on which the handler sleeps, and how long it
//! polls for completions before it sleeps (docs/adr/0016).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::thread::CpuSet;

use super::handler_wakeup::PINNED_FOR;
use super::{Backing, Handler};
use deepram_linux::descriptors::open_high;

/// Up to this many processors, each processor has a pinned handler of its own, and a fault wakes all of them.
pub(crate) const MAX_PINNED_HANDLERS: usize = 4;
/// How long a handler polls for completed reads before it sleeps: waking an idle processor takes longer than a device
/// read.
const SPIN_TIME: Duration = Duration::from_micros(150);
/// A longer gap between two polls means that this thread was preempted.
const PREEMPTED_AFTER: Duration = Duration::from_micros(50);
/// Number of sleeps before the handler polls again on a processor that other threads want.
const SLEEPS_AFTER_CONTENTION: u32 = 64;

/// Values that tell epoll events apart; only the stop event is checked.
const OTHER: u64 = 0;
const STOP: u64 = 1;

/// Processors on which this process may run.
pub fn processors() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n)).collect();
    if all.is_empty() { vec![0, 1] } else { all }
}

/// Pins the calling thread to a processor.
pub(crate) fn pin_to_cpu(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    // If the kernel refuses, the thread stays unpinned.
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

/// Creates the epoll descriptor on which a handler sleeps. The given descriptors stay open as long as the handler
/// lives. A queued item wakes one handler; [`super::HandlerGroup`] chooses the handlers that a fault
/// wakes.
///
/// # Errors
/// The kernel refuses the call.
pub(crate) fn create_poll(
    queue: BorrowedFd<'_>,
    stop: BorrowedFd<'_>,
    ring: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    use epoll::{EventData, EventFlags};
    let poll = open_high(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
    let other = EventData::new_u64(OTHER);
    let exclusive = EventFlags::IN | EventFlags::EXCLUSIVE;
    epoll::add(&poll, queue, other, exclusive)?;
    epoll::add(&poll, stop, EventData::new_u64(STOP), EventFlags::IN)?;
    if let Some(ring) = ring {
        epoll::add(&poll, ring, other, EventFlags::IN)?;
    }
    Ok(poll)
}

/// Adds the userfaultfd to a handler's epoll descriptor. With `once`, a fault wakes this handler only if it has woken
/// no other.
///
/// # Errors
/// The kernel refuses the call.
pub(crate) fn add_uffd(poll: &OwnedFd, uffd: &OwnedFd, once: bool) -> rustix::io::Result<()> {
    use epoll::{EventData, EventFlags};
    let flags = if once { EventFlags::IN | EventFlags::EXCLUSIVE } else { EventFlags::IN };
    epoll::add(poll, uffd, EventData::new_u64(OTHER), flags)
}

/// Changes whether faults wake a handler whose userfaultfd was added without `once`. The handler also wakes for faults
/// that wait already.
///
/// # Errors
/// The kernel refuses the call.
pub(crate) fn set_fault_wake_up(poll: &OwnedFd, uffd: &OwnedFd, wakes: bool) -> rustix::io::Result<()> {
    use epoll::{EventData, EventFlags};
    let flags = if wakes { EventFlags::IN } else { EventFlags::empty() };
    epoll::modify(poll, uffd, EventData::new_u64(OTHER), flags)
}

/// Body of a handler thread: serves until it is told to stop and no read is in flight.
pub(super) fn run_handler<B: Backing>(handler: &mut Handler<'_, B>) {
    let poll = handler.group.poll();
    let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(OTHER) };
    let mut events = [empty; 4];
    let mut stopping = false;
    let mut spinner = Spinner::new();
    let pinned_for = Timespec { tv_sec: 0, tv_nsec: PINNED_FOR.subsec_nanos().into() };
    loop {
        if handler.step(stopping) {
            spinner.restart();
            continue;
        }
        let idle = handler.is_idle();
        if stopping && idle {
            return;
        }
        let is_leader = handler.group.is_leader();
        if !idle
            && handler.polls()
            && !handler.group.yields_cpu()
            && spinner.keep_spinning(is_leader, || handler.group.note_contention())
        {
            continue;
        }
        let timeout = (idle && handler.group.has_pinned_any()).then_some(&pinned_for);
        match epoll::wait(poll, &mut events, timeout) {
            Ok(0) => handler.group.unpin(),
            Ok(n) => stopping |= events[..n].iter().any(|event| event.data.u64() == STOP),
            // A signal interrupted the wait, for example because a read completed.
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                handler.group.report_failure("epoll_wait", &error.into());
                return;
            }
        }
        spinner.restart();
    }
}

/// Decides how long a handler polls before it sleeps.
struct Spinner {
    /// Number of times that the thread still sleeps at once instead of polling, because other threads want this
    /// processor.
    contended: u32,
    since: Instant,
    last_poll: Instant,
    /// Involuntary context switches of the thread before it began to poll.
    switches: Option<i64>,
}

/// Number of involuntary context switches of the calling thread. Time that a hypervisor takes from the processor does
/// not count.
fn involuntary_switches() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call stores one structure, for which zeros are a valid value.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nivcsw
    }
}

impl Spinner {
    fn new() -> Self {
        let now = Instant::now();
        Self { contended: 0, since: now, last_poll: now, switches: None }
    }

    /// Restarts the polling time: the handler found work, or has slept.
    fn restart(&mut self) {
        self.since = Instant::now();
        self.last_poll = self.since;
        self.switches = None;
    }

    /// Called when a poll found nothing. Returns whether to poll again; if not, the thread sleeps. A leading handler
    /// gives way only to other threads of this machine, not to a hypervisor that preempts the processor now and then:
    /// sleeping does not help the hypervisor, but delays the thread that waits.
    fn keep_spinning(&mut self, is_leader: bool, contended: impl FnOnce()) -> bool {
        if self.contended == 0 && self.since.elapsed() < SPIN_TIME {
            if is_leader && self.switches.is_none() {
                self.switches = Some(involuntary_switches());
            }
            let preempted = self.last_poll.elapsed() > PREEMPTED_AFTER;
            if preempted
                && (!is_leader || self.switches.is_none_or(|switches| involuntary_switches() > switches))
            {
                self.contended = SLEEPS_AFTER_CONTENTION;
                contended();
            }
            self.last_poll = Instant::now();
            std::hint::spin_loop();
            return true;
        }
        self.contended = self.contended.saturating_sub(1);
        false
    }
}
