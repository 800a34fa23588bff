//! Forks: everything at rest, then a pager of its own for the child.

use std::sync::{Mutex, PoisonError};

use deepram_pool::pager::Forking;

use crate::inside::{self, Inside};
use crate::{HEAP, heap, setup};

/// What is held from before a fork to after it.
struct Held {
    forking: Option<Forking<'static>>,
    heap: heap::Held,
    _inside: Inside,
}

static HELD: Mutex<Option<Sendable>> = Mutex::new(None);

struct Sendable(Held);

// SAFETY: put there and taken out by one thread, the one that forks.
unsafe impl Send for Sendable {}

/// Has forks seen to.
pub(crate) fn watch() {
    // SAFETY: the functions stay as long as the library, which is never unloaded.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    if failed != 0 {
        setup::complain("forks cannot be followed: a forked child may not use paged memory");
    }
}

extern "C" fn before() {
    let Some(pager) = setup::pager() else { return };
    let inside = Inside::enter();
    let forking = match pager.forking() {
        Ok(forking) => Some(forking),
        Err(error) => {
            setup::complain(&format!(
                "a fork cannot be followed ({error}): the child must not use its memory"
            ));
            None
        }
    };
    // Nothing may be allocated from here on.
    let held = Held { forking, heap: HEAP.hold(), _inside: inside };
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Sendable(held));
}

fn take() -> Option<Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).take().map(|held| held.0)
}

extern "C" fn parent() {
    let Some(Held { forking, heap, _inside }) = take() else { return };
    drop(heap);
    if let Some(forking) = forking {
        forking.parent();
    }
}

extern "C" fn child() {
    let Some(Held { forking, heap, _inside }) = take() else { return };
    drop(heap);
    let Some(forking) = forking else { return };
    match inside::starting(|| forking.child()) {
        Ok(pager) => setup::install(pager),
        Err(error) => {
            setup::complain(&format!("a forked child cannot page its memory ({error}); it ends here"));
            // SAFETY: without its memory it must not go on.
            unsafe { libc::_exit(125) }
        }
    }
}
