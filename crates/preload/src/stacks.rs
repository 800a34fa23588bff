//! Stacks of the library's own. What is inside the library may hold what the pager needs to serve a fault, so the
//! stack that it runs on must not be paged: that of a coroutine, or one for signals, may be.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::kernel;

/// Of each stack.
const STACK: usize = 1 << 20;
/// Stacks that are kept for who comes next.
const KEPT: usize = 64;
/// Of addresses that are paged, or are not, together.
const BLOCK: usize = 2 << 20;
/// Bits of an address.
const ADDRESS: u32 = 47;

static FREE: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];
/// A bit for each block of addresses: memory there was paged at some time. Only ever set, so that no lock is needed to ask.
static PAGED: [AtomicU64; (1 << ADDRESS) / BLOCK / 64] =
    [const { AtomicU64::new(0) }; (1 << ADDRESS) / BLOCK / 64];

/// Memory that is paged from now on.
pub(crate) fn note_paged(start: usize, len: usize) {
    for block in start / BLOCK..(start + len).div_ceil(BLOCK) {
        if let Some(word) = PAGED.get(block / 64) {
            word.fetch_or(1 << (block % 64), Relaxed);
        }
    }
}

fn may_be_paged(address: usize) -> bool {
    let block = address / BLOCK;
    PAGED.get(block / 64).is_some_and(|word| word.load(Relaxed) >> (block % 64) & 1 == 1)
}

/// What is called on another stack, and what came of it. It lies at that stack's end.
struct Call<F, T> {
    body: Option<F>,
    result: Option<T>,
}

extern "C" fn call<F: FnOnce() -> T, T>(of: *mut Call<F, T>) {
    // SAFETY: `aside` made it, and waits.
    let of = unsafe { &mut *of };
    of.result = of.body.take().map(|body| body());
}

/// Calls `body` on a stack that is not paged. It takes along all that it needs: nothing of it is on the caller's.
pub(crate) fn aside<T>(body: impl FnOnce() -> T + 'static) -> T {
    let here = 0_u8;
    if !may_be_paged((&raw const here).addr()) {
        return body();
    }
    match take() {
        Some(stack) => on(stack, body),
        // Without memory for a stack the program is near its end.
        None => body(),
    }
}

fn on<T, F: FnOnce() -> T>(stack: usize, body: F) -> T {
    let of = std::ptr::with_exposed_provenance_mut::<Call<F, T>>(stack);
    // SAFETY: memory of ours that nobody else uses, aligned to a page and much larger.
    unsafe { of.write(Call { body: Some(body), result: None }) };
    // SAFETY: `call` runs on our stack and returns; a callee keeps r12, in which the caller's stack is kept.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {call}",
            "mov rsp, r12",
            top = in(reg) stack + STACK,
            call = in(reg) call::<F, T> as extern "C" fn(*mut Call<F, T>),
            in("rdi") of,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    // SAFETY: as above; `call` has returned.
    let result = unsafe { (*of).result.take() };
    give(stack);
    let Some(result) = result else { unreachable!("what is called returns") };
    result
}

fn take() -> Option<usize> {
    let free = FREE.iter().map(|slot| slot.swap(0, Acquire)).find(|stack| *stack != 0);
    free.or_else(|| kernel::reserve(STACK))
}

fn give(stack: usize) {
    let kept = FREE.iter().any(|slot| slot.compare_exchange(0, stack, Release, Relaxed).is_ok());
    if !kept {
        kernel::munmap(stack, STACK);
    }
}
