//! Turns accesses to memory that is gone into exceptions.
//!
//! An array of the package raises by itself once its memory is gone (`deepram/_array.py`). A plain `numpy.ndarray` made
//! from it, a tensor or a memoryview does not know. The memory of a pool that is closed, or of an array that a rollback
//! has removed, therefore stays reserved and inaccessible as long as such a view exists. An access raises a signal, whose
//! handler here puts empty memory in the place, lets the access go on, and makes the interpreter raise an exception in
//! the thread as soon as it executes the next step. After that the memory is inaccessible again.
//!
//! An access to the memory of an open pool that cannot be served (the device is full or a segment is damaged) abandons the
//! pool, as a crash would leave it, because a store must not go elsewhere and be forgotten. The access then becomes an
//! exception in the same way.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use deepram_pool::Pool;
use libc::{c_int, c_void, siginfo_t};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::{error, failure};

/// Ranges that can be watched at a time: pools, views, and arrays removed by rollbacks.
const RANGES: usize = 4096;
/// Accesses that wait to become exceptions, at most.
const EVENTS: usize = 256;
const PAGE: usize = 4096;

/// What a range of addresses is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not in use.
    Free = 0,
    /// The memory of an open pool.
    Open = 1,
    /// The memory of a closed pool.
    Closed = 2,
    /// The memory of an array that a rollback has removed.
    Removed = 3,
    /// The memory of a view.
    View = 4,
    /// The memory of a pool that is being closed: an access waits until it is.
    Closing = 5,
    /// The memory of a pool that was abandoned, because an access could not be served.
    Failed = 6,
}

impl Kind {
    fn of(number: u8) -> Self {
        match number {
            1 => Self::Open,
            2 => Self::Closed,
            3 => Self::Removed,
            4 => Self::View,
            5 => Self::Closing,
            6 => Self::Failed,
            _ => Self::Free,
        }
    }

    /// The class of the exception.
    fn exception(self) -> &'static str {
        match self {
            Self::Free | Self::Closed | Self::Closing => "ClosedError",
            // Only a forked child has such an event.
            Self::Open => "ForkedChildError",
            Self::Removed => "StaleArrayError",
            Self::View => "TokenError",
            Self::Failed => "PoolError",
        }
    }
}

/// A watched range.
struct Slot {
    kind: AtomicU8,
    pid: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Empty memory was put in the place of the range.
    replaced: AtomicBool,
}

impl Slot {
    const fn new() -> Self {
        Self {
            kind: AtomicU8::new(0),
            pid: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            replaced: AtomicBool::new(false),
        }
    }
}

/// An access that becomes an exception. `thread` is 0 while the event is not complete.
struct Event {
    kind: AtomicU8,
    thread: AtomicUsize,
    /// The page of a view that got empty memory.
    page: AtomicUsize,
    /// The start of the range.
    start: AtomicUsize,
}

static SLOTS: [Slot; RANGES] = [const { Slot::new() }; RANGES];
static NEXT_EVENT: AtomicUsize = AtomicUsize::new(0);
static PENDING: [Event; EVENTS] = [const {
    Event {
        kind: AtomicU8::new(0),
        thread: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
    }
}; EVENTS];
/// Open pools by the numbers of their ranges.
static POOLS: Mutex<Vec<(usize, Pool)>> = Mutex::new(Vec::new());

/// Threads in which an exception was raised.
static TOLD: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The handlers that were there before, of SIGSEGV and SIGBUS.
struct Previous(UnsafeCell<[MaybeUninit<libc::sigaction>; 2]>);
// SAFETY: written under the interpreter's lock before the handler of this module is installed, and read afterwards.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new([MaybeUninit::zeroed(), MaybeUninit::zeroed()]));
/// A handler that was there before runs; a second entry ends the process.
static CHAINED: AtomicBool = AtomicBool::new(false);

/// Watches a range until [`forget`]. Returns its number.
///
/// # Errors
/// 4096 ranges are watched already.
pub(crate) fn watch(start: usize, len: usize, kind: Kind) -> PyResult<usize> {
    install();
    for (number, slot) in SLOTS.iter().enumerate() {
        let taken = slot.kind.compare_exchange(0, u8::MAX, AcqRel, Relaxed);
        if taken.is_ok() {
            slot.start.store(start, Relaxed);
            slot.end.store(start + len, Relaxed);
            slot.pid.store(std::process::id(), Relaxed);
            slot.replaced.store(false, Relaxed);
            slot.kind.store(kind as u8, Release);
            return Ok(number);
        }
    }
    let problem = format!(
        "{RANGES} pools, views and arrays removed by rollbacks are in use: delete references to such arrays"
    );
    Err(PyRuntimeError::new_err(problem))
}

/// Changes the kind of a range.
pub(crate) fn set_kind(number: usize, kind: Kind) {
    SLOTS[number].kind.store(kind as u8, Release);
}

/// Stops watching a range.
pub(crate) fn forget(number: usize) {
    SLOTS[number].kind.store(0, Release);
}

/// Registers an open pool, which is abandoned if an access to it cannot be served.
pub(crate) fn add_pool(number: usize, pool: &Pool) {
    if let Ok(mut pools) = POOLS.lock() {
        pools.push((number, pool.clone()));
    }
}

/// Removes an open pool.
pub(crate) fn remove_pool(number: usize) {
    if let Ok(mut pools) = POOLS.lock() {
        pools.retain(|(other, _)| *other != number);
    }
}

/// Marks the range of an array that a rollback has removed, or of a view whose token is gone. Returns its number.
#[pyfunction]
pub(crate) fn mark_gone(start: usize, len: usize) -> PyResult<usize> {
    watch(start, len, Kind::Removed)
}

/// Ends what [`mark_gone`] began, when no view of the array exists any more. Returns whether the memory was left in
/// place; if not, its addresses cannot be used again before the pool closes.
#[pyfunction]
pub(crate) fn unmark_gone(number: usize) -> bool {
    let Some(slot) = SLOTS.get(number) else { return false };
    forget(number);
    !slot.replaced.load(Acquire)
}

/// Installs the handler, unless it is the newest one. The caller holds the interpreter's lock.
pub(crate) fn install() {
    for (at, signal) in [libc::SIGSEGV, libc::SIGBUS].into_iter().enumerate() {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        let handler = on_signal as extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
        // SAFETY: `sigaction` fills `now`. The handler has the signature that SA_SIGINFO demands. The callers hold the
        // interpreter's lock, so `PREVIOUS` is written by one thread, before the handler that reads it is in place.
        unsafe {
            if libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) != 0 {
                continue;
            }
            if now.assume_init_ref().sa_sigaction == handler as usize {
                continue;
            }
            (*PREVIOUS.0.get())[at] = now;
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = handler as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(signal, &raw const new, ptr::null_mut());
        }
    }
}

/// Handles SIGSEGV and SIGBUS. The thread was interrupted by its own access to pool memory, so it holds no lock of the
/// C library or of the interpreter's list of pending calls.
extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` for SIGSEGV and SIGBUS.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Codes up to 0 belong to signals that a process has sent.
    if code > 0 && serve(address) {
        return;
    }
    chain(signal, info, context);
}

/// Lets an access go on, if its memory is gone. Returns `false` for any other access.
fn serve(address: usize) -> bool {
    let within = |slot: &&Slot| {
        (1..=6).contains(&slot.kind.load(Acquire))
            && (slot.start.load(Relaxed)..slot.end.load(Relaxed)).contains(&address)
    };
    // A removed array lies inside an open pool.
    let removed = |slot: &&Slot| within(slot) && Kind::of(slot.kind.load(Acquire)) == Kind::Removed;
    let Some(slot) = SLOTS.iter().find(removed).or_else(|| SLOTS.iter().find(within)) else { return false };
    let is_own = slot.pid.load(Relaxed) == std::process::id();
    let begin = || slot.kind.compare_exchange(Kind::Open as u8, Kind::Closing as u8, AcqRel, Acquire);
    // Of several threads, one abandons the pool.
    if is_own && begin().is_ok() {
        abandon(slot);
    }
    while Kind::of(slot.kind.load(Acquire)) == Kind::Closing {
        // The thread that closes the pool does not need the interpreter's lock, which this thread may hold.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let kind = Kind::of(slot.kind.load(Acquire));
    let (start, end) = (slot.start.load(Relaxed), slot.end.load(Relaxed));
    let (from, len) = if kind == Kind::View { (address / PAGE * PAGE, PAGE) } else { (start, end - start) };
    let replaced = match kind {
        // The access may be one of a long loop over the array, which must not fill memory.
        Kind::Failed => failure::map_scratch(from, len),
        _ => map(from, len, libc::PROT_READ | libc::PROT_WRITE),
    };
    if !replaced {
        return false;
    }
    slot.replaced.store(true, Release);
    let event = &PENDING[NEXT_EVENT.fetch_add(1, Relaxed) % EVENTS];
    event.kind.store(kind as u8, Relaxed);
    event.page.store(if kind == Kind::View { from } else { 0 }, Relaxed);
    event.start.store(start, Relaxed);
    // SAFETY: returns the identity of this thread.
    event.thread.store(unsafe { libc::pthread_self() } as usize, Release);
    // SAFETY: needs neither the interpreter's lock nor a thread state. The list's own lock is free in this thread. A
    // full list already holds this call.
    unsafe { pyo3::ffi::Py_AddPendingCall(Some(raise), ptr::null_mut()) };
    true
}

/// Replaces a range by empty memory with this protection.
fn map(start: usize, len: usize, protection: c_int) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the range is that of a closed pool, of a removed array or of a view (or, in a forked child, of memory that
    // is not mapped there). Nothing but stale references uses it, and its owner only unmaps or drops it later.
    unsafe {
        libc::mmap(ptr::with_exposed_provenance_mut(start), len, protection, flags, -1, 0) != libc::MAP_FAILED
    }
}

/// Makes the interpreter raise the exceptions of all complete events, and the memory inaccessible again. The interpreter
/// calls it in the main thread, with its lock.
extern "C" fn raise(_: *mut c_void) -> c_int {
    Python::attach(|py| {
        for slot in &SLOTS {
            let kind = Kind::of(slot.kind.load(Acquire));
            if matches!(kind, Kind::Closed | Kind::Removed | Kind::Open | Kind::Failed)
                && slot.replaced.load(Acquire)
            {
                let (start, end) = (slot.start.load(Relaxed), slot.end.load(Relaxed));
                map(start, end - start, libc::PROT_NONE);
            }
        }
        let mut result = 0;
        for event in &PENDING {
            let thread = event.thread.swap(0, AcqRel);
            if thread == 0 {
                continue;
            }
            let page = event.page.load(Relaxed);
            if page > 0 {
                map(page, PAGE, libc::PROT_NONE);
            }
            let kind = Kind::of(event.kind.load(Relaxed));
            let failed = (kind == Kind::Failed).then(|| failure::of(event.start.load(Relaxed))).flatten();
            let name = failed.as_ref().map_or(kind.exception(), |failure| &failure.class);
            let Ok(class) = error::class(py, name) else { continue };
            // SAFETY: returns the identity of this thread.
            let here = unsafe { libc::pthread_self() } as usize;
            // SAFETY: the interpreter's lock is held; the class is an exception class that lives as long as its module.
            let reached = thread != here
                && unsafe {
                    pyo3::ffi::PyThreadState_SetAsyncExc(thread as libc::c_ulong as _, class.as_ptr())
                } > 0;
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            let known = told.contains(&thread);
            if reached {
                told.extend((!known).then_some(thread));
            } else if thread == here || !known {
                // A thread that is known ended by the exception of an earlier access.
                match failed {
                    Some(failure) => PyErr::from_type(class, failure.message).restore(py),
                    None => PyErr::from_type(class, ()).restore(py),
                }
                result = -1;
            }
        }
        result
    })
}

/// Abandons an open pool, because an access to it cannot be served. Its range is of the kind `Closing`. The thread that made the
/// access is in no call of the pool, which copies to and from other memory alone, and holds none of its locks.
fn abandon(slot: &Slot) {
    let start = slot.start.load(Relaxed);
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = pools.iter().position(|(number, _)| ptr::eq(&raw const SLOTS[*number], slot));
    let pool = at.map(|at| pools.swap_remove(at).1);
    drop(pools);
    failure::record(start, pool.as_ref().map(Pool::take_errors).unwrap_or_default().last());
    if let Some(pool) = pool {
        // The only error is that of a forked child, which this process is not.
        let _ = pool.abandon();
    }
    slot.kind.store(Kind::Failed as u8, Release);
}

/// Hands a signal to the handler that was there before.
fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let at = usize::from(signal == libc::SIGBUS);
    // SAFETY: `install` wrote the entry before this handler was in place.
    let previous = unsafe { (*PREVIOUS.0.get())[at].assume_init_ref() };
    let again = CHAINED.swap(true, AcqRel);
    if again || previous.sa_sigaction == libc::SIG_DFL || previous.sa_sigaction == libc::SIG_IGN {
        // SAFETY: with the default action the access, or the signal sent again, ends the process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
        }
        return;
    }
    // SAFETY: the handler was installed with the signature that its flags say.
    unsafe {
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                std::mem::transmute(previous.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(previous.sa_sigaction);
            handler(signal);
        }
    }
    CHAINED.store(false, Release);
}
