//! Kernels of x86-64: PCLMULQDQ with registers of 128 bits, VPCLMULQDQ with 256 and 512.

use std::arch::x86_64::*;

use super::fold::{FoldTable, Vector};
use super::products::{ProductArith, Quad};
use super::{Kernel, Parity, find};
use crate::field::Field;
use crate::roots::Roots;
use crate::syndrome::SyndromeTable;

/// True if the processor has the kernel's instructions.
pub(super) fn is_available(kernel: Kernel) -> bool {
    let has_128 = is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1");
    let has_256 = has_128 && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq");
    match kernel {
        Kernel::Clmul => has_128,
        Kernel::Clmul256 => has_256,
        Kernel::Clmul512 => {
            has_256 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
        }
        Kernel::Portable | Kernel::Table => false,
    }
}

/// Encodes with one of the kernels of this file.
#[derive(Debug)]
pub(crate) struct FoldEncoder {
    table: FoldTable,
    parity: unsafe fn(&FoldTable, &[u8]) -> Parity,
}

impl FoldEncoder {
    /// `None` if the processor lacks the kernel's instructions.
    pub(super) fn new(kernel: Kernel, table: FoldTable) -> Option<Self> {
        let parity = match kernel {
            Kernel::Clmul => parity_128,
            Kernel::Clmul256 => parity_256,
            _ => parity_512,
        };
        is_available(kernel).then_some(Self { table, parity })
    }

    pub(super) fn parity(&self, data: &[u8]) -> Parity {
        // SAFETY: `new` has found the instructions.
        unsafe { (self.parity)(&self.table, data) }
    }
}

type Find = unsafe fn(&'static Field, &SyndromeTable, &Parity, &mut Roots) -> bool;

/// Finds errors with one of the kernels of this file.
#[derive(Debug)]
pub(crate) struct ProductDecoder {
    field: &'static Field,
    roots: Find,
}

impl ProductDecoder {
    /// `None` if the processor lacks the kernel's instructions.
    pub(super) fn new(kernel: Kernel, field: &'static Field) -> Option<Self> {
        let roots: Find = if kernel == Kernel::Clmul { roots } else { roots_avx };
        is_available(kernel).then_some(Self { field, roots })
    }

    pub(super) fn roots(&self, syndromes: &SyndromeTable, difference: &Parity, roots: &mut Roots) -> bool {
        // SAFETY: `new` has found the instructions.
        unsafe { (self.roots)(self.field, syndromes, difference, roots) }
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident $vector:ident $pass:literal $features:literal)*) => {
        $(
            $(#[$doc])*
            #[target_feature(enable = $features)]
            unsafe fn $name(table: &FoldTable, data: &[u8]) -> Parity {
                // SAFETY: the caller guarantees the features of this function, which are those of the vector.
                unsafe { table.parity::<$vector, $pass>(data, |a, b| multiply(a, b)) }
            }
        )*
    };
}

kernels! {
    /// The parity of the data, with registers of 128 bits.
    ///
    /// # Safety
    /// [`Kernel::Clmul`] is available.
    parity_128 V128 8 "pclmulqdq,sse4.1,ssse3"
    /// The parity of the data, with registers of 256 bits.
    ///
    /// # Safety
    /// [`Kernel::Clmul256`] is available.
    parity_256 V256 8 "pclmulqdq,sse4.1,ssse3,avx2,vpclmulqdq"
    /// The parity of the data, with registers of 512 bits.
    ///
    /// # Safety
    /// [`Kernel::Clmul512`] is available.
    parity_512 V512 16 "pclmulqdq,sse4.1,ssse3,avx2,vpclmulqdq,avx512f,avx512bw"
}

/// Finds errors: [`find`] with PCLMULQDQ.
///
/// # Safety
/// [`Kernel::Clmul`] is available.
#[target_feature(enable = "pclmulqdq,sse4.1,ssse3")]
unsafe fn roots(
    field: &'static Field,
    syndromes: &SyndromeTable,
    difference: &Parity,
    roots: &mut Roots,
) -> bool {
    // SAFETY: the caller guarantees the features.
    let arith = unsafe { ProductArith::<V128>::new(field) };
    find(arith, syndromes, difference, roots)
}

/// Like [`roots`], for processors with AVX, whose instructions need fewer moves.
///
/// # Safety
/// [`Kernel::Clmul256`] is available.
#[target_feature(enable = "pclmulqdq,sse4.1,ssse3,avx2")]
unsafe fn roots_avx(
    field: &'static Field,
    syndromes: &SyndromeTable,
    difference: &Parity,
    roots: &mut Roots,
) -> bool {
    // SAFETY: the caller guarantees the features.
    let arith = unsafe { ProductArith::<V128>::new(field) };
    find(arith, syndromes, difference, roots)
}

#[inline(always)]
fn multiply(a: u64, b: u64) -> [u64; 2] {
    // SAFETY: only the kernels of this file call this function, and they have the instruction.
    unsafe {
        let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(b as i64));
        words(product)
    }
}

/// Low word, high word.
#[inline(always)]
fn words(pair: __m128i) -> [u64; 2] {
    // SAFETY: both types have 16 bytes, and every value is valid.
    unsafe { std::mem::transmute(pair) }
}

#[derive(Clone, Copy)]
struct V128(__m128i);

// SAFETY of the methods below: their callers guarantee the instructions, and the addresses where there are any.
impl Vector for V128 {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn swap_bytes(self) -> Self {
        // SAFETY: see above.
        unsafe {
            Self(_mm_shuffle_epi8(self.0, _mm_set_epi64x(0x0809_0A0B_0C0D_0E0F, 0x0001_0203_0405_0607)))
        }
    }

    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let (even, odd) = (_mm_clmulepi64_si128::<0>(a.0, b.0), _mm_clmulepi64_si128::<0x11>(a.0, b.0));
            Self(_mm_xor_si128(self.0, _mm_xor_si128(even, odd)))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> [u64; 2] {
        words(self.0)
    }
}

#[derive(Clone, Copy)]
struct V256(__m256i);

// SAFETY of the methods below: their callers guarantee the instructions, and the addresses where there are any.
impl Vector for V256 {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn swap_bytes(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let order = _mm_set_epi64x(0x0809_0A0B_0C0D_0E0F, 0x0001_0203_0405_0607);
            Self(_mm256_shuffle_epi8(self.0, _mm256_broadcastsi128_si256(order)))
        }
    }

    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let even = _mm256_clmulepi64_epi128::<0>(a.0, b.0);
            let odd = _mm256_clmulepi64_epi128::<0x11>(a.0, b.0);
            Self(_mm256_xor_si256(self.0, _mm256_xor_si256(even, odd)))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> [u64; 2] {
        // SAFETY: see above.
        unsafe { words(_mm_xor_si128(_mm256_castsi256_si128(self.0), _mm256_extracti128_si256::<1>(self.0))) }
    }
}

#[derive(Clone, Copy)]
struct V512(__m512i);

// SAFETY of the methods below: their callers guarantee the instructions, and the addresses where there are any.
impl Vector for V512 {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn swap_bytes(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let order = _mm_set_epi64x(0x0809_0A0B_0C0D_0E0F, 0x0001_0203_0405_0607);
            Self(_mm512_shuffle_epi8(self.0, _mm512_broadcast_i32x4(order)))
        }
    }

    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let even = _mm512_clmulepi64_epi128::<0>(a.0, b.0);
            let odd = _mm512_clmulepi64_epi128::<0x11>(a.0, b.0);
            // 0x96 is the sum of all three.
            Self(_mm512_ternarylogic_epi64::<0x96>(self.0, even, odd))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> [u64; 2] {
        // SAFETY: see above.
        unsafe {
            let half =
                _mm256_xor_si256(_mm512_castsi512_si256(self.0), _mm512_extracti64x4_epi64::<1>(self.0));
            V256(half).sum()
        }
    }
}

// SAFETY of the methods below: their callers guarantee the instructions, and the addresses where there are any.
impl Quad for V128 {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    unsafe fn single(value: u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_cvtsi32_si128(value as i32) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: see above.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn shift_right(self, bits: u32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_srl_epi32(self.0, _mm_cvtsi32_si128(bits as i32)) })
    }

    #[inline(always)]
    unsafe fn even_by_even(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_clmulepi64_si128::<0>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn odd_by_even(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_clmulepi64_si128::<0x01>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn odd_by_odd(self, other: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_clmulepi64_si128::<0x11>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn join(self, odd: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_unpacklo_epi64(self.0, odd.0) })
    }

    #[inline(always)]
    unsafe fn every_second(self, other: Self) -> Self {
        // SAFETY: see above.
        unsafe {
            let (low, high) = (_mm_castsi128_ps(self.0), _mm_castsi128_ps(other.0));
            Self(_mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(low, high)))
        }
    }

    #[inline(always)]
    unsafe fn skip_one(self, next: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_alignr_epi8::<4>(next.0, self.0) })
    }

    #[inline(always)]
    unsafe fn skip_two(self, next: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_alignr_epi8::<8>(next.0, self.0) })
    }

    #[inline(always)]
    unsafe fn before_zeros(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_unpacklo_epi32(self.0, _mm_setzero_si128()) })
    }

    #[inline(always)]
    unsafe fn after_zeros(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm_unpacklo_epi32(_mm_setzero_si128(), self.0) })
    }

    #[inline(always)]
    unsafe fn first(self) -> u32 {
        words(self.0)[0] as u32
    }

    #[inline(always)]
    unsafe fn second(self) -> u32 {
        (words(self.0)[0] >> 32) as u32
    }
}
