//! The library's state for each thread. The compiler would access it by `__tls_get_addr`, which reads a table of the
//! thread (the dynamic thread vector) that the loader allocates with the program's allocator: it may be paged. So the
//! state is at a fixed distance from the thread pointer (the initial-exec model), in the block that the C library maps
//! with the thread's stack, or in the main thread's block.

use std::cell::Cell;

use crate::media::ThreadTimer;
use crate::syscall_dispatch::SELECTOR_ALLOW;
use crate::thread_cache::ThreadCache;

/// Zero-initialised for a new thread.
#[repr(C)]
pub(crate) struct ThreadState {
    /// Number of live [`crate::library_context::LibraryGuard`]s.
    pub(crate) library_depth: Cell<u32>,
    /// Number of live [`crate::library_context::SignalGuard`]s.
    pub(crate) signal_guard_depth: Cell<u32>,
    /// Selector byte of Syscall User Dispatch.
    pub(crate) selector: Cell<u8>,
    /// Whether the thread is forking, and `saved_signals` is set.
    pub(crate) is_forking: Cell<bool>,
    /// The thread's signal mask before the fork.
    pub(crate) saved_signals: Cell<u64>,
    /// The timer of a thread whose memory is emulated.
    pub(crate) timer: Cell<*mut ThreadTimer>,
    /// The thread's cache of blocks, see [`crate::thread_cache`].
    pub(crate) cache: Cell<*mut ThreadCache>,
}

const _: () =
    assert!(size_of::<ThreadState>() == 40 && align_of::<ThreadState>() == 8 && SELECTOR_ALLOW == 0);

std::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".hidden deepram_thread_state",
    ".globl deepram_thread_state",
    ".type deepram_thread_state, @object",
    ".size deepram_thread_state, 40",
    "deepram_thread_state:",
    ".zero 40",
    ".popsection",
);

/// The calling thread's state. The reference is valid as long as the thread, and must not be passed to another thread.
#[inline]
pub(crate) fn thread_state() -> &'static ThreadState {
    let state: *const ThreadState;
    // SAFETY: reads the thread pointer and the loader's constant: neither changes while the thread lives. The memory
    // there is the thread's own, of the size and alignment of the type, and zeros are a valid value of it.
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
