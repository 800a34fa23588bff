//! The flush methods on aarch64.

use core::arch::asm;

use super::Method;

/// Linux lets programs use `dc civac` and `dc cvac`, and emulates them where the processor traps.
pub(super) fn has(_: Method) -> bool {
    true
}

/// Bytes of the smallest cache line of all data caches, from `CTR_EL0`.
pub(super) fn line() -> usize {
    let register: u64;
    // SAFETY: reads a register that Linux lets programs read.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) register, options(nomem, nostack, preserves_flags)) };
    // Bits 16 to 19: the logarithm of the line in words of 4 bytes.
    4 << (register >> 16 & 0xf)
}

/// # Safety
/// These lines from `first` on, the first byte of one, are mapped and readable. For [`Method::NonTemporal`] they are also
/// writable, and no other thread stores to them meanwhile.
#[inline]
pub(super) unsafe fn flush(method: Method, first: *const u8, lines: usize, line: usize) {
    for n in 0..lines {
        let start = first.wrapping_add(n * line);
        match method {
            Method::Clflush => {
                // SAFETY: a mapped line, as promised by the caller.
                unsafe { asm!("dc civac, {}", in(reg) start, options(nostack, preserves_flags)) };
                fence();
            }
            Method::Clflushopt => {
                // SAFETY: a mapped line, as promised by the caller.
                unsafe { asm!("dc civac, {}", in(reg) start, options(nostack, preserves_flags)) };
            }
            Method::Clwb => {
                // SAFETY: a mapped line, as promised by the caller.
                unsafe { asm!("dc cvac, {}", in(reg) start, options(nostack, preserves_flags)) };
            }
            Method::NonTemporal => {
                for pair in 0..line / 16 {
                    let pair = start.wrapping_add(pair * 16);
                    // SAFETY: aligned bytes of a mapped, writable line to which no other thread stores, as promised by the
                    // caller.
                    unsafe {
                        asm!(
                            "ldp {low}, {high}, [{pair}]",
                            "stnp {low}, {high}, [{pair}]",
                            low = out(reg) _,
                            high = out(reg) _,
                            pair = in(reg) pair,
                            options(nostack, preserves_flags)
                        );
                    }
                }
                // SAFETY: a mapped line, as promised by the caller.
                unsafe { asm!("dc cvac, {}", in(reg) start, options(nostack, preserves_flags)) };
            }
        }
    }
}

#[inline]
pub(super) fn fence() {
    // SAFETY: orders this thread's accesses.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}
