//! The moment of a fork: the C library's `fork` runs handlers and takes locks of its own, for which threads may wait that wait
//! for faults, and has no place for others between those and the system call. So the kernel is asked to send a signal for each system call
//! of the thread that forks (`PR_SET_SYSCALL_USER_DISPATCH`, Linux 5.11): everything is at rest from the call `clone` on, in
//! parent and child, and faults are served until then.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::fork;
use crate::kernel::{self, Action};
use crate::malloc::{errno, set_errno};
use crate::thread_state::thread_state;

/// Of `prctl`.
const SET_DISPATCH: usize = 59;
const ON: usize = 1;
const OFF: usize = 0;
/// Values of the byte that the kernel looks at.
pub(crate) const LET_THROUGH: u8 = 0;
const SEND: u8 = 1;
/// `SYS_USER_DISPATCH`: why a signal was sent.
const DISPATCHED: c_int = 2;
/// From `restore` on, so many bytes of code may make system calls at any time.
const RESTORER: usize = 16;
const RESTORE: u64 = 0x0400_0000;

/// Threads that fork, and what the signal did before the first of them.
#[derive(Debug)]
pub(crate) struct Forking {
    threads: usize,
    action: Option<Action>,
}

static FORKING: Mutex<Forking> = Mutex::new(Forking { threads: 0, action: None });

/// That a handler of ours is called, with all signals waiting.
pub(crate) fn action(handler: usize, flags: c_int) -> Action {
    let flags = (libc::SA_SIGINFO | flags) as u64 | RESTORE;
    Action { handler, flags, restorer: restorer(), mask: u64::MAX }
}

/// Held across the system call, for the child to find it whole.
pub(crate) fn hold() -> MutexGuard<'static, Forking> {
    FORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Forking {
    fn begins(&mut self) {
        if self.threads == 0 {
            let handler = answer as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
            self.action = Some(kernel::set_action(libc::SIGSYS, &action(handler, 0)));
        }
        self.threads += 1;
    }

    fn ends(&mut self) {
        self.threads = self.threads.saturating_sub(1);
        if self.threads == 0
            && let Some(action) = self.action.take()
        {
            kernel::set_action(libc::SIGSYS, &action);
        }
    }

    /// In the child, where no other thread is.
    pub(crate) fn in_child(&mut self) {
        self.threads = 1;
        if !thread_state().forks.get() {
            self.ends();
        }
    }
}

/// From now on, until [`end`], this thread's next call of `clone` or `fork` is seen by [`fork::at_clone`]. `false` if the kernel
/// cannot do that.
pub(crate) fn begin() -> bool {
    let signal = 1_u64 << (libc::SIGSYS - 1);
    // A handler of the program's would return by a call that goes elsewhere.
    let before = kernel::set_blocked(u64::MAX);
    hold().begins();
    let state = thread_state();
    let selector = state.selector.as_ptr().expose_provenance();
    if kernel::raw(libc::SYS_prctl, [SET_DISPATCH, ON, restorer(), RESTORER, selector, 0]) != 0 {
        hold().ends();
        kernel::set_blocked(before);
        return false;
    }
    state.signals.set(before);
    state.forks.set(true);
    kernel::set_blocked(!signal);
    state.selector.set(SEND);
    true
}

/// In parent and child, after the fork, or where it failed; whether [`begin`] came before.
pub(crate) fn end() -> bool {
    let state = thread_state();
    state.selector.set(LET_THROUGH);
    if !state.forks.replace(false) {
        return false;
    }
    let before = state.signals.get();
    kernel::set_blocked(u64::MAX);
    // In the child it is so already.
    kernel::raw(libc::SYS_prctl, [SET_DISPATCH, OFF, 0, 0, 0, 0]);
    hold().ends();
    kernel::set_blocked(before);
    true
}

/// The signal's handler: answers the system call in the kernel's place.
extern "C" fn answer(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's.
    if unsafe { (*info).si_code } != DISPATCHED {
        return pass_on(signal, info, context);
    }
    thread_state().selector.set(LET_THROUGH);
    let before = errno();
    // SAFETY: as above; nobody else has it.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let value = |register: c_int| registers[register as usize] as usize;
    let number = value(libc::REG_RAX) as libc::c_long;
    let arguments =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9].map(value);
    let forks = match number {
        libc::SYS_clone => arguments[0] as c_int & libc::CLONE_VM == 0,
        number => number == libc::SYS_fork,
    };
    let result = if forks { fork::at_clone(number, arguments) } else { kernel::raw(number, arguments) };
    registers[libc::REG_RAX as usize] = result as i64;
    set_errno(before);
    if !forks {
        thread_state().selector.set(SEND);
    }
}

/// The signal has another cause: a filter for system calls, or somebody sent it.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(action) = hold().action else { return };
    match action.handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            kernel::set_action(signal, &action);
            // SAFETY: it comes when this handler returns, and ends the process, as it would have.
            unsafe { libc::raise(signal) };
        }
        handler => {
            // SAFETY: the program's handler of this signal; one that takes the number alone leaves the others be.
            unsafe {
                std::mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler)(
                    signal, info, context,
                )
            }
        }
    }
}

fn restorer() -> usize {
    restore as *const () as usize
}

/// Where the handler returns to: the kernel restores the thread.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    std::arch::naked_asm!(
        "mov eax, {number}",
        "syscall",
        "ud2", "ud2", "ud2", "ud2", "ud2",
        number = const libc::SYS_rt_sigreturn,
    )
}
