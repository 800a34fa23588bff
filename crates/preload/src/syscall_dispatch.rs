//! Intercepts the system call of a fork by Syscall User Dispatch. `fork` of the C library runs fork handlers, then takes
//! its own locks, then makes the system call. Until the last step faults must be served, because another thread may hold
//! one of these locks while it waits for a fault. deepram gets no callback there, so the kernel sends a signal for
//! each system call of the forking thread (`PR_SET_SYSCALL_USER_DISPATCH`, Linux 5.11). From the call `clone` on,
//! deepram's locks are held, in parent and child.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::fork;
use crate::kernel::{self, Action};
use crate::malloc::{errno, set_errno};
use crate::thread_state::thread_state;

/// Option of `prctl`, and its modes.
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const DISPATCH_ON: usize = 1;
const DISPATCH_OFF: usize = 0;
/// Values of the selector byte that the kernel reads.
pub(crate) const SELECTOR_ALLOW: u8 = 0;
const SELECTOR_BLOCK: u8 = 1;
/// `SYS_USER_DISPATCH`: the reason of the signal.
const SYS_USER_DISPATCH: c_int = 2;
/// Bytes of code from `restore` on that may make system calls at any time.
const RESTORER_BYTES: usize = 16;
const SA_RESTORER: u64 = 0x0400_0000;

/// The number of threads that fork, and the signal's action before the first of them began.
#[derive(Debug)]
pub(crate) struct ForkingThreads {
    threads: usize,
    action: Option<Action>,
}

static FORKING_THREADS: Mutex<ForkingThreads> = Mutex::new(ForkingThreads { threads: 0, action: None });

/// A signal action that calls `handler` with all signals blocked.
pub(crate) fn handler_action(handler: usize, flags: c_int) -> Action {
    let flags = (libc::SA_SIGINFO | flags) as u64 | SA_RESTORER;
    Action { handler, flags, restorer: restorer(), mask: u64::MAX }
}

/// Locks the state; held across the system call, so that the child finds it consistent.
pub(crate) fn lock() -> MutexGuard<'static, ForkingThreads> {
    FORKING_THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ForkingThreads {
    fn thread_begins(&mut self) {
        if self.threads == 0 {
            let handler = handle_sigsys as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
            self.action = Some(kernel::set_action(libc::SIGSYS, &handler_action(handler, 0)));
        }
        self.threads += 1;
    }

    fn thread_ends(&mut self) {
        self.threads = self.threads.saturating_sub(1);
        if self.threads == 0
            && let Some(action) = self.action.take()
        {
            kernel::set_action(libc::SIGSYS, &action);
        }
    }

    /// Updates the state in the child, where no other thread exists.
    pub(crate) fn in_child(&mut self) {
        self.threads = 1;
        if !thread_state().is_forking.get() {
            self.thread_ends();
        }
    }
}

/// From now on until [`end`], this thread's next call of `clone` or `fork` goes to [`fork::at_clone`]. Returns `false`
/// if the kernel does not support it.
pub(crate) fn begin() -> bool {
    let signal = 1_u64 << (libc::SIGSYS - 1);
    // A signal handler of the program would return by a system call that is dispatched too.
    let before = kernel::set_blocked(u64::MAX);
    lock().thread_begins();
    let state = thread_state();
    let selector = state.selector.as_ptr().expose_provenance();
    if kernel::raw(
        libc::SYS_prctl,
        [PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_ON, restorer(), RESTORER_BYTES, selector, 0],
    ) != 0
    {
        lock().thread_ends();
        kernel::set_blocked(before);
        return false;
    }
    state.saved_signals.set(before);
    state.is_forking.set(true);
    kernel::set_blocked(!signal);
    state.selector.set(SELECTOR_BLOCK);
    true
}

/// Ends the dispatch in parent and child, after the fork, or if it failed. Returns whether [`begin`] came before.
pub(crate) fn end() -> bool {
    let state = thread_state();
    state.selector.set(SELECTOR_ALLOW);
    if !state.is_forking.replace(false) {
        return false;
    }
    let before = state.saved_signals.get();
    kernel::set_blocked(u64::MAX);
    // The child starts without dispatch.
    kernel::raw(libc::SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_OFF, 0, 0, 0, 0]);
    lock().thread_ends();
    kernel::set_blocked(before);
    true
}

/// The signal's handler: makes the system call in place of the kernel.
extern "C" fn handle_sigsys(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's structure.
    if unsafe { (*info).si_code } != SYS_USER_DISPATCH {
        return forward_signal(signal, info, context);
    }
    thread_state().selector.set(SELECTOR_ALLOW);
    let before = errno();
    // SAFETY: as above; nothing else accesses it.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let value = |register: c_int| registers[register as usize] as usize;
    let number = value(libc::REG_RAX) as libc::c_long;
    let arguments =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9].map(value);
    let is_fork = match number {
        libc::SYS_clone => arguments[0] as c_int & libc::CLONE_VM == 0,
        number => number == libc::SYS_fork,
    };
    let result = if is_fork { fork::at_clone(number, arguments) } else { kernel::raw(number, arguments) };
    registers[libc::REG_RAX as usize] = result as i64;
    set_errno(before);
    if !is_fork {
        thread_state().selector.set(SELECTOR_BLOCK);
    }
}

/// Forwards a signal that has another cause: a system call filter, or `kill`.
fn forward_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(action) = lock().action else { return };
    match action.handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            kernel::set_action(signal, &action);
            // SAFETY: the signal is delivered when this handler returns, and ends the process, as it would have.
            unsafe { libc::raise(signal) };
        }
        handler => {
            // SAFETY: the program's handler of this signal; one that takes only the number ignores the other arguments.
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

/// Return address of the handler: the kernel restores the thread's registers.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    std::arch::naked_asm!(
        "mov eax, {number}",
        "syscall",
        "ud2", "ud2", "ud2", "ud2", "ud2",
        number = const libc::SYS_rt_sigreturn,
    )
}
