//! The timer of each thread: it raises a signal when the thread has used some processor time. It raises none while the thread
//! sleeps, and the kernel delivers it when the thread returns to its own code, so no system call is interrupted by it.

use std::sync::OnceLock;

use libc::{c_int, c_void};

use super::stall::{self, Stalls};
use crate::thread_state::thread_state;
use crate::{kernel, setup};

/// The signal: a real-time one near the end of the range, which programs rarely use.
pub(super) const SIGNAL: c_int = 62;
/// Bytes of the stack for the signal's handler.
const STACK_BYTES: usize = 128 << 10;

/// What belongs to a thread.
pub(crate) struct ThreadTimer {
    timer: libc::timer_t,
    pub(super) stalls: Stalls,
    /// Address of the alternate signal stack, if the thread had none.
    stack: Option<usize>,
}

impl ThreadTimer {
    /// Lets the signal be raised when the thread has used this much processor time.
    pub(super) fn arm(&self, nanos: i64) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let when =
            libc::itimerspec { it_interval: none, it_value: libc::timespec { tv_nsec: nanos, ..none } };
        // SAFETY: the timer exists.
        unsafe { libc::timer_settime(self.timer, 0, &raw const when, std::ptr::null_mut()) };
    }
}

/// Starts the timer of the calling thread. In a forked child, whose timers are gone, starts a new one.
pub(super) fn begin_thread() {
    let Some(speed) = stall::speed() else { return };
    let state = thread_state();
    let Some(timer) = new_timer() else {
        return setup::report("a thread runs at full speed: the kernel refuses a timer for it");
    };
    let existing = state.timer.get();
    if !existing.is_null() {
        // SAFETY: the thread's own, in a child that has a copy of it.
        let thread = unsafe { &mut *existing };
        thread.timer = timer;
        return thread.begin();
    }
    match Stalls::new(speed) {
        Ok(stalls) => {
            let thread = Box::into_raw(Box::new(ThreadTimer { timer, stalls, stack: new_signal_stack() }));
            state.timer.set(thread);
            if let Some(key) = key() {
                // SAFETY: the key exists; the value is not null, so the destructor is called when the thread ends.
                unsafe { libc::pthread_setspecific(key, thread.cast()) };
            }
            // SAFETY: the thread's own.
            unsafe { &mut *thread }.begin();
        }
        Err(error) => {
            // SAFETY: the timer exists and is not used any more.
            unsafe { libc::timer_delete(timer) };
            setup::report(&format!("a thread runs at full speed: {error}"));
        }
    }
}

impl ThreadTimer {
    fn begin(&mut self) {
        self.stalls.begin();
        self.arm(stall::TICK_NS);
    }
}

fn new_timer() -> Option<libc::timer_t> {
    // SAFETY: zeros are valid values of both; the kernel fills the timer.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = kernel::gettid();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        let made = libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut event, &raw mut timer);
        (made == 0).then_some(timer)
    }
}

/// Gives the thread an alternate signal stack, unless it has one: its own stack may be too small for the handler.
fn new_signal_stack() -> Option<usize> {
    // SAFETY: zeros are a valid value; the kernel fills it.
    unsafe {
        let mut old: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &raw mut old);
        if old.ss_flags & libc::SS_DISABLE == 0 {
            return None;
        }
        let at = kernel::reserve(STACK_BYTES, kernel::READ_WRITE)?;
        let new = libc::stack_t {
            ss_sp: std::ptr::with_exposed_provenance_mut(at),
            ss_flags: 0,
            ss_size: STACK_BYTES,
        };
        libc::sigaltstack(&raw const new, std::ptr::null_mut());
        Some(at)
    }
}

/// The key whose destructor ends a thread's timer.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the C library fills the key; the destructor exists as long as the library.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(end_thread)) } == 0).then_some(key)
    })
}

/// Called when a thread ends.
unsafe extern "C" fn end_thread(thread: *mut c_void) {
    let thread: *mut ThreadTimer = thread.cast();
    // SAFETY: made by `begin_thread` for this thread, which uses it no more: its timer is deleted, and a signal that is
    // pending finds no timer.
    let thread = unsafe {
        libc::timer_delete((*thread).timer);
        thread_state().timer.set(std::ptr::null_mut());
        Box::from_raw(thread)
    };
    if let Some(at) = thread.stack {
        // SAFETY: zeros are a valid value.
        let mut none: libc::stack_t = unsafe { std::mem::zeroed() };
        none.ss_flags = libc::SS_DISABLE;
        // SAFETY: the thread does not run on the stack.
        unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) };
        kernel::munmap(at, STACK_BYTES);
    }
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// The start of a thread that gets a timer: what `pthread_create` is called with instead of the program's function and its
/// argument.
pub(crate) fn with_timer(start: Start, argument: *mut c_void) -> (Start, *mut c_void) {
    if stall::speed().is_none() {
        return (start, argument);
    }
    (begin_and_call, Box::into_raw(Box::new((start, argument))).cast())
}

extern "C" fn begin_and_call(both: *mut c_void) -> *mut c_void {
    // SAFETY: made by `with_timer`, for this thread alone.
    let (start, argument) = *unsafe { Box::from_raw(both.cast::<(Start, *mut c_void)>()) };
    begin_thread();
    start(argument)
}
