//! What the library keeps of each thread. The compiler would reach it by `__tls_get_addr`, which reads a table of the thread (the
//! dynamic thread vector) that the loader allocates like a program: it may be paged. So this is memory at a fixed distance from the
//! thread's pointer (the initial-exec model), in the block that the C library maps with the thread's stack, or in the main
//! thread's.

use std::cell::Cell;

use crate::dispatch::LET_THROUGH;

/// Zeros for a new thread.
#[repr(C)]
pub(crate) struct ThreadState {
    /// Calls of [`crate::inside::Inside`] that have not ended.
    pub(crate) inside: Cell<u32>,
    /// Calls of [`crate::inside::Quiet`] that have not ended.
    pub(crate) quiet: Cell<u32>,
    /// What the kernel does with the thread's system calls.
    pub(crate) selector: Cell<u8>,
    /// Whether the thread forks, and `signals` is set.
    pub(crate) forks: Cell<bool>,
    /// The signals that waited before the fork.
    pub(crate) signals: Cell<u64>,
}

const _: () = assert!(size_of::<ThreadState>() == 24 && align_of::<ThreadState>() == 8 && LET_THROUGH == 0);

std::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".hidden deepram_thread_state",
    ".globl deepram_thread_state",
    ".type deepram_thread_state, @object",
    ".size deepram_thread_state, 24",
    "deepram_thread_state:",
    ".zero 24",
    ".popsection",
);

/// The calling thread's. The reference is good as long as the thread, and must not be given to another.
#[inline]
pub(crate) fn thread_state() -> &'static ThreadState {
    let state: *const ThreadState;
    // SAFETY: reads the thread's pointer and the loader's constant: neither changes while the thread lives. All of the memory
    // there is the thread's own, of the size and alignment of the type, and zeros are values of it.
    unsafe {
        std::arch::asm!(
            "mov {state}, qword ptr fs:[0]",
            "add {state}, qword ptr [rip + deepram_thread_state@GOTTPOFF]",
            state = out(reg) state,
            options(pure, nomem, nostack),
        );
        &*state
    }
}
