//! Forks: holds all locks of the library across the fork, then gives the child a pager of its own. Covers `fork`,
//! `_Fork`, which calls no fork handlers, and `clone` where the child has memory of its own ([`mod@clone`]). Meanwhile
//! the forking thread runs on a stack that is not paged: its faults would not be served. The locks are held for the
//! system call only (`syscall_dispatch.rs`): the C library's work before and after it may use managed memory, and so
//! may threads for which it waits.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_linux::descriptors::OpenGuard;
use deepram_pager::{ForkGuard, Pager};
use libc::{c_char, c_int, c_long, c_void, pid_t};

use crate::libc_symbols::interpose;
use crate::library_context::{LibraryGuard, SignalGuard, on_library_stack};
use crate::malloc::{errno, set_errno};
use crate::mappings::{Mappings, mappings};
use crate::stacks::on_unpaged_stack;
use crate::{
    HEAP, arenas, credentials, heap, kernel, large_blocks, lazy_start, libc_symbols::symbol, pager_threads,
    setup, syscall_dispatch,
};

pub mod clone;

/// The locks that are held from before a fork to after it.
struct ForkLocks {
    fork_guard: Option<ForkGuard<'static>>,
    _start: MutexGuard<'static, ()>,
    dispatch: MutexGuard<'static, syscall_dispatch::ForkingThreads>,
    opening: OpenGuard,
    heap: heap::HeapGuard,
    mappings: MutexGuard<'static, Mappings>,
    blocks: large_blocks::BlocksGuard,
    arenas: arenas::ArenasGuard,
    _library: LibraryGuard,
    _signals: SignalGuard,
}

static FORK_LOCKS: Mutex<Option<SendLocks>> = Mutex::new(None);

struct SendLocks(ForkLocks);

// SAFETY: stored and taken by one thread, the one that forks.
unsafe impl Send for SendLocks {}

type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
type Handler = Option<unsafe extern "C" fn()>;

/// Registers the fork handlers, before any other code registers its own: handlers that were registered earlier would
/// run while the locks are held.
pub(crate) fn register_handlers() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the functions exist as long as the library, which is never unloaded.
    let failed = register().is_none_or(|register| unsafe {
        register(Some(prepare), Some(after_in_parent), Some(after_in_child), std::ptr::null_mut()) != 0
    });
    if failed {
        setup::report("fork handlers cannot be registered: a forked child must not use paged memory");
    }
}

fn register() -> Option<Register> {
    symbol!(NEXT = c"__register_atfork");
    // SAFETY: the C library's function of this name.
    NEXT.find().map(|found| unsafe { std::mem::transmute::<*mut c_void, Register>(found) })
}

/// Interposes the C library's `__register_atfork`, which implements `pthread_atfork`. Constructors of libraries call it
/// before this library's constructor runs.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    register_handlers();
    match register() {
        // SAFETY: the caller's arguments.
        Some(register) => unsafe { register(prepare, parent, child, library) },
        None => libc::ENOSYS,
    }
}

/// Called when the C library is about to fork and has called all other handlers.
extern "C" fn prepare() {
    // Where the kernel cannot dispatch the fork's system call, the locks are held from here on. So they are if nothing is to
    // be paged: then no thread waits for a fault while it holds one.
    if !(lazy_start::is_enabled() && syscall_dispatch::begin()) {
        lock_for_fork();
    }
}

extern "C" fn after_in_parent() {
    if !syscall_dispatch::end() {
        resume_parent();
    }
}

extern "C" fn after_in_child() {
    if !syscall_dispatch::end() {
        resume_child();
    }
}

/// Makes the fork's system call with all locks held. Returns its result, in parent and child.
pub(crate) fn at_clone(number: c_long, arguments: [usize; 6]) -> isize {
    on_unpaged_stack(move || {
        lock_for_fork();
        let pid = kernel::raw(number, arguments);
        if pid == 0 {
            resume_child()
        } else {
            resume_parent()
        }
        pid
    })
}

fn lock_for_fork() {
    let (signals, library) = (SignalGuard::new(), LibraryGuard::new());
    // A thread that holds an arena may wait for a fault to be served, and may start the pager.
    let arenas = arenas::lock_for_fork();
    // Either a pager exists, or none is started until the fork is over.
    let start = setup::lock_start();
    // A thread that holds these locks may wait for a fault to be served.
    let blocks = large_blocks::lock_for_fork();
    let fork_guard = match setup::pager().map(Pager::prepare_fork).transpose() {
        Ok(fork_guard) => fork_guard,
        Err(error) => {
            setup::report(&format!("a fork cannot be prepared ({error}): the child must not use its memory"));
            None
        }
    };
    let (mappings, dispatch) = (mappings(), syscall_dispatch::lock());
    // From here on nothing may be allocated.
    let held = ForkLocks {
        fork_guard,
        dispatch,
        opening: OpenGuard::acquire(),
        heap: HEAP.lock_for_fork(),
        mappings,
        blocks,
        arenas,
        _start: start,
        _library: library,
        _signals: signals,
    };
    *FORK_LOCKS.lock().unwrap_or_else(PoisonError::into_inner) = Some(SendLocks(held));
}

fn take_locks() -> Option<ForkLocks> {
    FORK_LOCKS.lock().unwrap_or_else(PoisonError::into_inner).take().map(|held| held.0)
}

fn resume_parent() {
    let Some(ForkLocks {
        _signals,
        _library,
        _start,
        fork_guard,
        dispatch,
        opening,
        heap,
        mappings,
        blocks,
        arenas,
    }) = take_locks()
    else {
        return;
    };
    drop((heap, opening, dispatch, mappings, blocks, arenas));
    if let Some(fork_guard) = fork_guard {
        fork_guard.parent();
    }
}

fn resume_child() {
    let Some(ForkLocks {
        _signals,
        _library,
        _start,
        fork_guard,
        mut dispatch,
        opening,
        heap,
        mut mappings,
        blocks,
        arenas,
    }) = take_locks()
    else {
        return;
    };
    dispatch.in_child();
    pager_threads::reset_in_child();
    credentials::reset_in_child();
    drop((heap, opening, dispatch, blocks, arenas));
    setup::set_pager_process();
    let not_in_child = std::mem::take(&mut mappings.not_in_child);
    for (start, end) in not_in_child.iter() {
        mappings.forget(start, end - start);
    }
    let zero_in_child = mappings.zero_in_child.clone();
    drop(mappings);
    let Some(fork_guard) = fork_guard else { return };
    match fork_guard.child(&not_in_child, &zero_in_child) {
        Ok(pager) => setup::install(pager),
        Err(error) => {
            setup::report(&format!("a forked child cannot page its memory ({error}); the child ends"));
            // SAFETY: without its memory the child must not continue.
            unsafe { libc::_exit(125) }
        }
    }
}

symbol!(NEXT = c"_Fork");

/// Interposes the C library's `_Fork`.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> pid_t {
    let Some(next) = NEXT.find() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    on_library_stack(move || {
        prepare();
        // SAFETY: the C library's function of this name.
        let pid = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> pid_t>(next)() };
        if pid == 0 {
            after_in_child()
        } else {
            preserving_errno(|| after_in_parent())
        }
        pid
    })
}

interpose! {
    on_library_stack;
    fork() -> pid_t, else -1;
    daemon(same_directory: c_int, same_files: c_int) -> c_int, else -1;
    forkpty(terminal: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void) -> pid_t, else -1;
}

/// Calls `f` and keeps the value of `errno`.
fn preserving_errno(f: impl FnOnce()) {
    let saved = errno();
    f();
    set_errno(saved);
}
