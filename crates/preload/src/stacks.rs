//! Stacks of the library's own. A thread in the library may hold a lock that the pager needs to serve a fault, so its
//! stack must not be paged; the stack of a coroutine, or an alternate signal stack, may be.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::kernel;

/// Bytes of each stack.
const STACK_BYTES: usize = 1 << 20;
/// Largest number of unused stacks that are kept for reuse.
const MAX_FREE: usize = 64;
/// Bytes of addresses that share one bit of `PAGED`.
const BLOCK: usize = 2 << 20;
/// Bits of a user-space address.
const ADDRESS_BITS: u32 = 47;

static FREE: [AtomicUsize; MAX_FREE] = [const { AtomicUsize::new(0) }; MAX_FREE];
/// One bit for each block of addresses: set if memory there was paged at some time. Bits are never cleared, so that
/// reading needs no lock.
static PAGED: [AtomicU64; (1 << ADDRESS_BITS) / BLOCK / 64] =
    [const { AtomicU64::new(0) }; (1 << ADDRESS_BITS) / BLOCK / 64];

/// Records that memory is paged from now on.
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

/// A function that is called on another stack, and its result. It lies at that stack's end.
struct Call<F, T> {
    body: Option<F>,
    result: Option<T>,
}

extern "C" fn call<F: FnOnce() -> T, T>(of: *mut Call<F, T>) {
    // SAFETY: `run_on` made it, and waits.
    let of = unsafe { &mut *of };
    of.result = of.body.take().map(|body| body());
}

/// Calls `body` on a stack that is not paged. `body` must own all that it needs: nothing of it may be on the caller's
/// stack.
pub(crate) fn on_unpaged_stack<T>(body: impl FnOnce() -> T + 'static) -> T {
    let here = 0_u8;
    if !may_be_paged((&raw const here).addr()) {
        return body();
    }
    match take_stack() {
        Some(stack) => run_on(stack, body),
        // Without memory for a stack, the program is near its end.
        None => body(),
    }
}

fn run_on<T, F: FnOnce() -> T>(stack: usize, body: F) -> T {
    let of = std::ptr::with_exposed_provenance_mut::<Call<F, T>>(stack);
    // SAFETY: memory of the library that nothing else uses, aligned to a page and much larger.
    unsafe { of.write(Call { body: Some(body), result: None }) };
    // SAFETY: `call` runs on the new stack and returns; a callee preserves r12, which holds the caller's stack pointer.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {call}",
            "mov rsp, r12",
            top = in(reg) stack + STACK_BYTES,
            call = in(reg) call::<F, T> as extern "C" fn(*mut Call<F, T>),
            in("rdi") of,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    // SAFETY: as above; `call` has returned.
    let result = unsafe { (*of).result.take() };
    give_back(stack);
    let Some(result) = result else { unreachable!("the called function returns") };
    result
}

fn take_stack() -> Option<usize> {
    let free = FREE.iter().map(|slot| slot.swap(0, Acquire)).find(|stack| *stack != 0);
    free.or_else(|| kernel::reserve(STACK_BYTES, kernel::READ_WRITE))
}

fn give_back(stack: usize) {
    let stored = FREE.iter().any(|slot| slot.compare_exchange(0, stack, Release, Relaxed).is_ok());
    if !stored {
        kernel::munmap(stack, STACK_BYTES);
    }
}
