//! Timed loads.

use core::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};

/// Ticks of the time-stamp counter for a load from this address, the measurement's own cost included.
///
/// # Safety
/// The byte may be read.
#[inline(never)]
pub(super) unsafe fn ticks(at: u64) -> u64 {
    let at: *const u8 = std::ptr::with_exposed_provenance(at as usize);
    let mut core = 0;
    // SAFETY: every x86-64 processor that this crate knows has the instructions; the byte may be read, as the caller promises.
    unsafe {
        _mm_lfence();
        let begin = _rdtsc();
        _mm_lfence();
        at.read_volatile();
        let end = __rdtscp(&raw mut core);
        _mm_lfence();
        end.wrapping_sub(begin)
    }
}

/// The time-stamp counter.
pub(super) fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { _rdtsc() }
}

/// Whether the byte lies in a page that is in memory and may be read. Does not touch its line.
pub(super) fn is_present(at: u64) -> bool {
    const PAGE: u64 = 4096;
    let page: *mut libc::c_void = std::ptr::with_exposed_provenance_mut((at / PAGE * PAGE) as usize);
    let mut state = 0_u8;
    // SAFETY: the kernel stores one byte for the page.
    if unsafe { libc::mincore(page, PAGE as usize, &raw mut state) } != 0 || state & 1 == 0 {
        return false;
    }
    // A page without access is in memory too. Another line of the page is read by the kernel, which reports a fault.
    let other = (at ^ (PAGE / 2)) as usize;
    let mut byte = 0_u8;
    let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let from = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(other), iov_len: 1 };
    // SAFETY: the kernel copies one byte of this process to `byte`, or fails.
    unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) == 1 }
}
