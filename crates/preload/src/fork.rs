//! Forks: everything at rest, then a pager of its own for the child. By `fork`, by `_Fork`, which calls no
//! handlers, and by `clone` where the child has memory of its own ([`copy`]). The thread that forks is on a stack that is
//! not paged meanwhile: nobody serves its faults. Everything is at rest for the system call alone (`dispatch.rs`): what the C library
//! does before and after it may use memory, and so may threads for which it waits.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_pool::descriptors::Low;
use deepram_pool::pager::{Forking, Pager};
use libc::{c_char, c_int, c_long, c_void, pid_t};

use crate::inside::{Inside, Quiet, apart};
use crate::malloc::{errno, set_errno};
use crate::marks::{Marks, marks};
use crate::next::stand_before;
use crate::stacks::aside;
use crate::{HEAP, dispatch, early, heap, helpers, kernel, large, next, setup, users};

pub mod copy;

/// What is held from before a fork to after it.
struct Held {
    forking: Option<Forking<'static>>,
    _start: MutexGuard<'static, ()>,
    dispatch: MutexGuard<'static, dispatch::Forking>,
    low: Low,
    heap: heap::Held,
    marks: MutexGuard<'static, Marks>,
    blocks: large::Held,
    _inside: Inside,
    _quiet: Quiet,
}

static HELD: Mutex<Option<Sendable>> = Mutex::new(None);

struct Sendable(Held);

// SAFETY: put there and taken out by one thread, the one that forks.
unsafe impl Send for Sendable {}

type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
type Handler = Option<unsafe extern "C" fn()>;

/// Has forks seen to, before anybody else: handlers that were there first would run while everything is at rest.
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the functions stay as long as the library, which is never unloaded.
    let failed = register().is_none_or(|register| unsafe {
        register(Some(prepare), Some(after_in_parent), Some(after_in_child), std::ptr::null_mut()) != 0
    });
    if failed {
        setup::complain("forks cannot be followed: a forked child may not use paged memory");
    }
}

fn register() -> Option<Register> {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: the C library's function of this name.
    next::find(&NEXT, c"__register_atfork")
        .map(|found| unsafe { std::mem::transmute::<*mut c_void, Register>(found) })
}

/// The C library's: what `pthread_atfork` is made of. Libraries' own constructors call it before ours.
///
/// # Safety
/// As of the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    watch();
    match register() {
        // SAFETY: the caller's.
        Some(register) => unsafe { register(prepare, parent, child, library) },
        None => libc::ENOSYS,
    }
}

/// The C library is about to fork, and has no handlers to call any more.
extern "C" fn prepare() {
    // Where the kernel cannot tell of the moment of the fork, everything is at rest from here on.
    if early::is_wanted() && !dispatch::begin() {
        before();
    }
}

extern "C" fn after_in_parent() {
    if !dispatch::end() {
        parent();
    }
}

extern "C" fn after_in_child() {
    if !dispatch::end() {
        child();
    }
}

/// The fork's system call, made with everything at rest; its result, in parent and child.
pub(crate) fn at_clone(number: c_long, arguments: [usize; 6]) -> isize {
    aside(move || {
        before();
        let pid = kernel::raw(number, arguments);
        if pid == 0 {
            child()
        } else {
            parent()
        }
        pid
    })
}

fn before() {
    if !early::is_wanted() {
        return;
    }
    let (quiet, inside) = (Quiet::new(), Inside::new());
    // There is a pager, or none until the fork is over.
    let start = setup::hold();
    // Whoever has them may wait for a fault to be served.
    let blocks = large::hold();
    let forking = match setup::pager().map(Pager::forking).transpose() {
        Ok(forking) => forking,
        Err(error) => {
            setup::complain(&format!(
                "a fork cannot be followed ({error}): the child must not use its memory"
            ));
            None
        }
    };
    let (marks, dispatch) = (marks(), dispatch::hold());
    // Nothing may be allocated from here on.
    let held = Held {
        forking,
        dispatch,
        low: Low::hold(),
        heap: HEAP.hold(),
        marks,
        blocks,
        _start: start,
        _inside: inside,
        _quiet: quiet,
    };
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Sendable(held));
}

fn take() -> Option<Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).take().map(|held| held.0)
}

fn parent() {
    let Some(Held { _quiet, _inside, _start, forking, dispatch, low, heap, marks, blocks }) = take() else {
        return;
    };
    drop((heap, low, dispatch, marks, blocks));
    if let Some(forking) = forking {
        forking.parent();
    }
}

fn child() {
    let Some(Held { _quiet, _inside, _start, forking, mut dispatch, low, heap, mut marks, blocks }) = take()
    else {
        return;
    };
    dispatch.in_child();
    helpers::forget();
    users::forget();
    drop((heap, low, dispatch, blocks));
    setup::moved();
    let left_out = std::mem::take(&mut marks.left_out);
    for (start, end) in left_out.iter() {
        marks.forget(start, end - start);
    }
    let wiped = marks.wiped.clone();
    drop(marks);
    let Some(forking) = forking else { return };
    match forking.child(&left_out, &wiped) {
        Ok(pager) => setup::install(pager),
        Err(error) => {
            setup::complain(&format!("a forked child cannot page its memory ({error}); it ends here"));
            // SAFETY: without its memory it must not go on.
            unsafe { libc::_exit(125) }
        }
    }
}

static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The C library's.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> pid_t {
    let Some(next) = next::find(&NEXT, c"_Fork") else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    apart(move || {
        prepare();
        // SAFETY: the C library's function of this name.
        let pid = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> pid_t>(next)() };
        if pid == 0 {
            after_in_child()
        } else {
            keeping_errno(|| after_in_parent())
        }
        pid
    })
}

stand_before! {
    apart;
    fork() -> pid_t, else -1;
    daemon(same_directory: c_int, same_files: c_int) -> c_int, else -1;
    forkpty(terminal: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void) -> pid_t, else -1;
}

/// Calls `f` between a call and the look at its error.
fn keeping_errno(f: impl FnOnce()) {
    let before = errno();
    f();
    set_errno(before);
}
