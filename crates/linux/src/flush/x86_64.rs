//! The flush methods on x86-64.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence, _mm_stream_si64};
use std::sync::LazyLock;

use super::Method;

/// Bits of `ebx` in leaf 7 of `cpuid`.
const CLFLUSHOPT: u32 = 1 << 23;
const CLWB: u32 = 1 << 24;

/// What `cpuid` reports.
struct Features {
    /// Bytes of a cache line.
    line: usize,
    /// `ebx` of leaf 7.
    extended: u32,
}

static FEATURES: LazyLock<Features> = LazyLock::new(|| {
    let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    // Bits 8 to 15: the line in units of 8 bytes.
    let line = (__cpuid(1).ebx >> 8 & 0xff) as usize * 8;
    Features { line, extended }
});

pub(super) fn has(method: Method) -> bool {
    match method {
        // Both belong to SSE2, which every x86-64 processor has.
        Method::Clflush | Method::NonTemporal => true,
        Method::Clflushopt => FEATURES.extended & CLFLUSHOPT != 0,
        Method::Clwb => FEATURES.extended & CLWB != 0,
    }
}

pub(super) fn line() -> usize {
    FEATURES.line
}

/// # Safety
/// The method is available. These lines from `first` on, the first byte of one, are mapped and readable. For
/// [`Method::NonTemporal`] they are also writable, and no other thread stores to them meanwhile.
#[inline]
pub(super) unsafe fn flush(method: Method, first: *const u8, lines: usize, line: usize) {
    let starts = (0..lines).map(|n| first.wrapping_add(n * line));
    match method {
        Method::Clflush => {
            for start in starts {
                // SAFETY: a mapped line, as promised by the caller.
                unsafe { _mm_clflush(start) };
            }
        }
        Method::Clflushopt => {
            for start in starts {
                // SAFETY: a mapped line, as promised by the caller; the processor has the instruction.
                unsafe { asm!("clflushopt [{}]", in(reg) start, options(nostack, preserves_flags)) };
            }
        }
        Method::Clwb => {
            for start in starts {
                // SAFETY: a mapped line, as promised by the caller; the processor has the instruction.
                unsafe { asm!("clwb [{}]", in(reg) start, options(nostack, preserves_flags)) };
            }
        }
        Method::NonTemporal => {
            for word in 0..lines * line / 8 {
                let word = first.wrapping_add(word * 8).cast::<i64>().cast_mut();
                // SAFETY: aligned bytes of a mapped, writable line to which no other thread stores, as promised by the caller.
                unsafe { _mm_stream_si64(word, word.read_volatile()) };
            }
        }
    }
}

#[inline]
pub(super) fn fence() {
    // SAFETY: SSE belongs to every x86-64 processor.
    unsafe { _mm_sfence() };
}
