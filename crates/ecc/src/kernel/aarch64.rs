//! The kernel of AArch64: PMULL.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::fold::{FoldTable, Vector};
use super::products::{ProductArith, Quad};
use super::{Kernel, Parity, find};
use crate::field::Field;
use crate::roots::Roots;
use crate::syndrome::SyndromeTable;

/// True if the processor has the kernel's instructions.
pub(super) fn is_available(kernel: Kernel) -> bool {
    let has = is_aarch64_feature_detected!("aes") && is_aarch64_feature_detected!("pmull");
    kernel == Kernel::Clmul && has
}

/// Encodes with the kernel of this file.
#[derive(Debug)]
pub(crate) struct FoldEncoder {
    table: FoldTable,
}

impl FoldEncoder {
    /// `None` if the processor lacks the kernel's instructions.
    pub(super) fn new(kernel: Kernel, table: FoldTable) -> Option<Self> {
        is_available(kernel).then_some(Self { table })
    }

    pub(super) fn parity(&self, data: &[u8]) -> Parity {
        // SAFETY: `new` has found the instructions.
        unsafe { parity(&self.table, data) }
    }
}

/// Finds errors with the kernel of this file.
#[derive(Debug)]
pub(crate) struct ProductDecoder {
    field: &'static Field,
}

impl ProductDecoder {
    /// `None` if the processor lacks the kernel's instructions.
    pub(super) fn new(kernel: Kernel, field: &'static Field) -> Option<Self> {
        is_available(kernel).then_some(Self { field })
    }

    pub(super) fn roots(&self, syndromes: &SyndromeTable, difference: &Parity, roots: &mut Roots) -> bool {
        // SAFETY: `new` has found the instructions.
        unsafe { find_roots(self.field, syndromes, difference, roots) }
    }
}

/// The parity of the data.
///
/// # Safety
/// [`Kernel::Clmul`] is available.
#[target_feature(enable = "neon,aes")]
unsafe fn parity(table: &FoldTable, data: &[u8]) -> Parity {
    // SAFETY: the caller guarantees the instructions.
    unsafe { table.parity::<Pair, 8>(data, |a, b| words(multiply(a, b))) }
}

/// Finds errors: [`find`] with PMULL.
///
/// # Safety
/// [`Kernel::Clmul`] is available.
#[target_feature(enable = "neon,aes")]
unsafe fn find_roots(
    field: &'static Field,
    syndromes: &SyndromeTable,
    difference: &Parity,
    roots: &mut Roots,
) -> bool {
    // SAFETY: the caller guarantees the instructions.
    let arith = unsafe { ProductArith::<Pair>::new(field) };
    find(arith, syndromes, difference, roots)
}

/// # Safety
/// [`Kernel::Clmul`] is available.
#[inline]
#[target_feature(enable = "neon,aes")]
unsafe fn multiply(a: u64, b: u64) -> uint64x2_t {
    vreinterpretq_u64_p128(vmull_p64(a, b))
}

/// Low word, high word.
#[inline(always)]
fn words(pair: uint64x2_t) -> [u64; 2] {
    // SAFETY: both types have 16 bytes, and every value is valid.
    unsafe { std::mem::transmute(pair) }
}

/// Two words, or four lanes of 32 bits.
#[derive(Clone, Copy)]
struct Pair(uint64x2_t);

impl Pair {
    #[inline(always)]
    fn even(self) -> u64 {
        words(self.0)[0]
    }

    #[inline(always)]
    fn odd(self) -> u64 {
        words(self.0)[1]
    }
}

// SAFETY of the methods below: their callers guarantee the instructions, and the addresses where there are any.
impl Vector for Pair {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { vdupq_n_u64(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { vreinterpretq_u64_u8(vld1q_u8(from)) })
    }

    #[inline(always)]
    unsafe fn swap_bytes(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { vreinterpretq_u64_u8(vrev64q_u8(vreinterpretq_u8_u64(self.0))) })
    }

    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let (even, odd) = (multiply(a.even(), b.even()), multiply(a.odd(), b.odd()));
            Self(veorq_u64(self.0, veorq_u64(even, odd)))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> [u64; 2] {
        words(self.0)
    }
}

// SAFETY of the methods below: their callers guarantee the instructions, and the addresses where there are any.
impl Quad for Pair {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { vdupq_n_u64(0) })
    }

    #[inline(always)]
    unsafe fn single(value: u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { vsetq_lane_u64::<0>(u64::from(value), vdupq_n_u64(0)) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { vreinterpretq_u64_u32(vld1q_u32(from)) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see above.
        unsafe { vst1q_u32(to, vreinterpretq_u32_u64(self.0)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { veorq_u64(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn shift_right(self, bits: u32) -> Self {
        // SAFETY: see above.
        unsafe {
            let shifted = vshlq_u32(vreinterpretq_u32_u64(self.0), vdupq_n_s32(-(bits as i32)));
            Self(vreinterpretq_u64_u32(shifted))
        }
    }

    #[inline(always)]
    unsafe fn even_by_even(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { multiply(self.even(), other.even()) })
    }

    #[inline(always)]
    unsafe fn odd_by_even(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { multiply(self.odd(), other.even()) })
    }

    #[inline(always)]
    unsafe fn odd_by_odd(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { multiply(self.odd(), other.odd()) })
    }

    #[inline(always)]
    unsafe fn join(self, odd: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { vzip1q_u64(self.0, odd.0) })
    }

    #[inline(always)]
    unsafe fn every_second(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let lanes = vuzp1q_u32(vreinterpretq_u32_u64(self.0), vreinterpretq_u32_u64(other.0));
            Self(vreinterpretq_u64_u32(lanes))
        }
    }

    #[inline(always)]
    unsafe fn skip_one(self, next: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let (here, next) = (vreinterpretq_u32_u64(self.0), vreinterpretq_u32_u64(next.0));
            Self(vreinterpretq_u64_u32(vextq_u32::<1>(here, next)))
        }
    }

    #[inline(always)]
    unsafe fn skip_two(self, next: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let (here, next) = (vreinterpretq_u32_u64(self.0), vreinterpretq_u32_u64(next.0));
            Self(vreinterpretq_u64_u32(vextq_u32::<2>(here, next)))
        }
    }

    #[inline(always)]
    unsafe fn before_zeros(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { vreinterpretq_u64_u32(vzip1q_u32(vreinterpretq_u32_u64(self.0), vdupq_n_u32(0))) })
    }

    #[inline(always)]
    unsafe fn after_zeros(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { vreinterpretq_u64_u32(vzip1q_u32(vdupq_n_u32(0), vreinterpretq_u32_u64(self.0))) })
    }

    #[inline(always)]
    unsafe fn first(self) -> u32 {
        self.even() as u32
    }

    #[inline(always)]
    unsafe fn second(self) -> u32 {
        (self.even() >> 32) as u32
    }
}
