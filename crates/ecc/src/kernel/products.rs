//! Field arithmetic by carry-less multiplication. Elements are in lanes of 32 bits, so that a product of two elements,
//! of 31 bits at most, has room, and one multiplication of a word by an element gives two products. Sums of products
//! are reduced once.

use crate::arith::{Arith, LANES};
use crate::field::Field;

/// A register of four lanes of 32 bits, and the operations that a kernel needs. Even is the pair of lanes 0 and 1, odd
/// that of lanes 2 and 3.
pub(super) trait Quad: Copy {
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn zero() -> Self;

    /// One lane; the others are 0.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn single(value: u32) -> Self;

    /// # Safety
    /// The processor has the instructions of this type, and `from` is the address of four readable values.
    unsafe fn load(from: *const u32) -> Self;

    /// # Safety
    /// The processor has the instructions of this type, and `to` is the address of four writable values.
    unsafe fn store(self, to: *mut u32);

    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn add(self, other: Self) -> Self;

    /// Divides each lane by x^bits.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn shift_right(self, bits: u32) -> Self;

    /// The even pair times the even pair of `other`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn even_by_even(self, other: Self) -> Self;

    /// The odd pair times the even pair of `other`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn odd_by_even(self, other: Self) -> Self;

    /// The odd pair times the odd pair of `other`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn odd_by_odd(self, other: Self) -> Self;

    /// The even pair of `self`, then the even pair of `odd`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn join(self, odd: Self) -> Self;

    /// Lanes 0 and 2 of `self`, then lanes 0 and 2 of `other`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn every_second(self, other: Self) -> Self;

    /// Lanes 1 to 3, then lane 0 of `next`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn skip_one(self, next: Self) -> Self;

    /// Lanes 2 and 3, then lanes 0 and 1 of `next`.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn skip_two(self, next: Self) -> Self;

    /// Lane 0, 0, lane 1, 0.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn before_zeros(self) -> Self;

    /// 0, lane 0, 0, lane 1.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn after_zeros(self) -> Self;

    /// Lane 0.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn first(self) -> u32;

    /// Lane 1.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn second(self) -> u32;
}

/// Arithmetic with the instructions of `Q`.
#[derive(Clone, Copy)]
pub(super) struct ProductArith<Q> {
    field: &'static Field,
    barrett: Q,
    polynomial: Q,
}

/// Two products of pairs by an element: one register for the even pair, one for the odd pair.
#[derive(Clone, Copy)]
struct Products<Q>(Q, Q);

impl<Q: Quad> Products<Q> {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: `ProductArith::new` requires the instructions.
        unsafe { Self(self.0.add(other.0), self.1.add(other.1)) }
    }
}

impl<Q: Quad> ProductArith<Q> {
    /// # Safety
    /// The processor has the instructions of `Q`, for as long as the value is used.
    #[inline(always)]
    pub(super) unsafe fn new(field: &'static Field) -> Self {
        // SAFETY: as for this function.
        unsafe { Self { field, barrett: Q::single(field.barrett), polynomial: Q::single(field.polynomial) } }
    }

    /// Four lanes times an element, not reduced.
    #[inline(always)]
    fn products(x: Q, factor: Q) -> Products<Q> {
        // SAFETY: `new` requires the instructions.
        unsafe { Products(x.even_by_even(factor), x.odd_by_even(factor)) }
    }

    /// Sums of products modulo the field's polynomial (Barrett).
    #[inline(always)]
    fn reduce(self, sums: Products<Q>) -> Q {
        // SAFETY: `new` requires the instructions.
        unsafe { self.reduce_joined(sums.0.join(sums.1)) }
    }

    #[inline(always)]
    fn reduce_joined(self, sums: Q) -> Q {
        // SAFETY: `new` requires the instructions.
        unsafe {
            let above = sums.shift_right(self.field.m);
            let Products(even, odd) = Self::products(above, self.barrett);
            let quotients = even.join(odd).shift_right(self.field.m);
            let Products(even, odd) = Self::products(quotients, self.polynomial);
            sums.add(even.join(odd))
        }
    }

    /// a · b + c · d for elements, as a factor.
    #[inline(always)]
    fn scalar(self, a: Q, b: Q, c: Q, d: Q) -> Q {
        // SAFETY: `new` requires the instructions.
        unsafe { self.reduce_single(a.even_by_even(b).add(c.even_by_even(d))) }
    }

    /// Reduces lane 0; the others are 0.
    #[inline(always)]
    fn reduce_single(self, sum: Q) -> Q {
        // SAFETY: `new` requires the instructions.
        unsafe {
            let quotient = sum.shift_right(self.field.m).even_by_even(self.barrett).shift_right(self.field.m);
            sum.add(quotient.even_by_even(self.polynomial))
        }
    }

    /// Lanes times lanes.
    #[inline(always)]
    fn each(self, a: Q, b: Q) -> Q {
        // (a0 + a1·x^32)·(b0 + b1·x^32): the mixed products are between the others.
        // SAFETY: `new` requires the instructions.
        unsafe { self.reduce_joined(a.even_by_even(b).every_second(a.odd_by_odd(b))) }
    }

    /// Four columns of a sum of rows times factors.
    #[inline(always)]
    fn column<const ROW: usize>(self, factors: &[u32], rows: &[[u32; ROW]], from: usize) -> Q {
        let zero = Self::single(0);
        let mut sums = Products(zero, zero);
        for (&factor, row) in factors.iter().zip(rows) {
            sums = sums.plus(Self::products(Self::load(row, from), Self::single(factor)));
        }
        self.reduce(sums)
    }

    /// Four values from `from` on.
    #[inline(always)]
    fn load(values: &[u32], from: usize) -> Q {
        let values = &values[from..from + LANES];
        // SAFETY: the slice has four values; `new` requires the instructions.
        unsafe { Q::load(values.as_ptr()) }
    }

    /// Values from `from + 1` and from `from + 2` on, for a `from` that is a multiple of [`LANES`].
    ///
    /// Loads that overlap two earlier stores would wait until both have left the store buffer, so the values are joined
    /// from loads of whole registers.
    #[inline(always)]
    fn load_shifted(values: &[u32], from: usize) -> (Q, Q) {
        let (here, next) = (Self::load(values, from), Self::load(values, from + LANES));
        // SAFETY: `new` requires the instructions.
        unsafe { (here.skip_one(next), here.skip_two(next)) }
    }

    #[inline(always)]
    fn store(self, values: &mut [u32], from: usize, value: Q) {
        let values = &mut values[from..from + LANES];
        // SAFETY: the slice has four values; `new` requires the instructions.
        unsafe { value.store(values.as_mut_ptr()) }
    }

    #[inline(always)]
    fn single(value: u32) -> Q {
        // SAFETY: `new` requires the instructions.
        unsafe { Q::single(value) }
    }

    #[inline(always)]
    fn sum(a: Q, b: Q) -> Q {
        // SAFETY: `new` requires the instructions.
        unsafe { a.add(b) }
    }
}

impl<Q: Quad> Arith for ProductArith<Q> {
    #[inline(always)]
    fn field(self) -> &'static Field {
        self.field
    }

    #[inline(always)]
    fn mul(self, a: u32, b: u32) -> u32 {
        self.field.mul(a, b)
    }

    #[inline(always)]
    fn convolve(self, a: &[u32], b: &[u32]) -> u32 {
        // The middle coefficient of (a0 + a1·x^32)·(b0 + b1·x^32) is a0·b1 + a1·b0; the outer products have no bits
        // there.
        // SAFETY: `new` requires the instructions.
        unsafe {
            let mut sum = Q::zero();
            for from in (0..a.len()).step_by(LANES) {
                let (a, b) = (Self::load(a, from), Self::load(b, b.len() - LANES - from));
                sum = sum.add(b.odd_by_even(a)).add(a.odd_by_even(b));
            }
            self.reduce_single(Q::single(sum.second())).first()
        }
    }

    #[inline(always)]
    fn add_scaled(self, sum: &mut [u32], y: &[u32], factor: u32, x: &[u32], len: usize) {
        let factor = Self::single(factor);
        for from in (0..len).step_by(LANES) {
            let scaled = self.reduce(Self::products(Self::load(x, from), factor));
            self.store(sum, from, Self::sum(Self::load(y, from), scaled));
        }
    }

    #[inline(always)]
    fn shift(self, a: &mut [u32], b: &[u32], len: usize) {
        let factor = Self::single(a[0]);
        for from in (0..len).step_by(LANES) {
            let ((a_1, _), (b_1, _)) = (Self::load_shifted(a, from), Self::load_shifted(b, from));
            self.store(a, from, Self::sum(a_1, self.reduce(Self::products(b_1, factor))));
        }
    }

    #[inline(always)]
    fn eliminate(self, a: &mut [u32], b: &[u32], len: usize) {
        let (of_a, of_b) = (Self::single(b[0]), Self::single(a[0]));
        for from in (0..len).step_by(LANES) {
            let ((a_1, _), (b_1, _)) = (Self::load_shifted(a, from), Self::load_shifted(b, from));
            self.store(a, from, self.reduce(Self::products(a_1, of_a).plus(Self::products(b_1, of_b))));
        }
    }

    #[inline(always)]
    fn shift_twice(self, a: &mut [u32], b: &[u32], len: usize) {
        let first = Self::single(a[0]);
        let one = Self::single(1);
        let second = self.scalar(first, Self::single(b[1]), one, Self::single(a[1]));
        for from in (0..len).step_by(LANES) {
            let ((_, a_2), (b_1, b_2)) = (Self::load_shifted(a, from), Self::load_shifted(b, from));
            let sums = Self::products(b_1, second).plus(Self::products(b_2, first));
            self.store(a, from, Self::sum(a_2, self.reduce(sums)));
        }
    }

    #[inline(always)]
    fn eliminate_twice(self, a: &mut [u32], b: &[u32], len: usize) {
        let zero = Self::single(0);
        let (a0, a1, b0, b1) =
            (Self::single(a[0]), Self::single(a[1]), Self::single(b[0]), Self::single(b[1]));
        let (of_a, of_b) = (self.scalar(b0, b0, zero, zero), self.scalar(a0, b0, zero, zero));
        let of_shifted = self.scalar(b0, a1, a0, b1);
        for from in (0..len).step_by(LANES) {
            let ((_, a_2), (b_1, b_2)) = (Self::load_shifted(a, from), Self::load_shifted(b, from));
            let of_b = Self::products(b_2, of_b).plus(Self::products(b_1, of_shifted));
            self.store(a, from, self.reduce(Self::products(a_2, of_a).plus(of_b)));
        }
    }

    #[inline(always)]
    fn divide(self, a: &mut [u32], steps: usize, divisor: &[u32], degree: usize) {
        // Elements are sums of products until they lead. Four leading ones follow from each other in registers, before the
        // rest is changed.
        let divisors = [1, 2, 3].map(|i| Self::single(divisor[i]));
        for step in (0..steps).step_by(LANES) {
            let mut leading = [Self::single(0); LANES];
            for i in 0..LANES {
                let mut sum = Self::single(a[step + i]);
                for j in 0..i {
                    // SAFETY: `new` requires the instructions.
                    sum = unsafe { sum.add(leading[j].even_by_even(divisors[i - j - 1])) };
                }
                leading[i] = self.reduce_single(sum);
            }
            // SAFETY: `new` requires the instructions.
            let quotients = leading.map(|leading| unsafe { leading.first() });
            a[step..step + LANES].copy_from_slice(&quotients);
            for from in (0..degree).step_by(LANES) {
                let mut sums = Products(Self::single(0), Self::single(0));
                for (i, leading) in leading.into_iter().enumerate() {
                    sums = sums.plus(Self::products(Self::load(divisor, from + LANES - i), leading));
                }
                // SAFETY: `new` requires the instructions.
                let scaled = unsafe { sums.0.join(sums.1) };
                let at = step + LANES + from;
                self.store(a, at, Self::sum(Self::load(a, at), scaled));
            }
        }
        for from in (steps..steps + degree).step_by(LANES) {
            self.store(a, from, self.reduce_joined(Self::load(a, from)));
        }
    }

    #[inline(always)]
    fn square(self, squares: &mut [u32], x: &[u32], len: usize) {
        for from in (0..len).step_by(LANES) {
            let x = Self::load(x, from);
            self.store(squares, from, self.each(x, x));
        }
    }

    #[inline(always)]
    fn multiply_each(self, a: &mut [u32], b: &[u32], len: usize) {
        for from in (0..len).step_by(LANES) {
            self.store(a, from, self.each(Self::load(a, from), Self::load(b, from)));
        }
    }

    #[inline(always)]
    fn square_modulo<const ROW: usize>(
        self,
        square: &mut [u32; ROW],
        x: &[u32; ROW],
        rows: &[[u32; ROW]],
        degree: usize,
    ) {
        // Two more than the largest degree, which the last columns read.
        let mut squares = [0; 64 + 2 * LANES];
        self.square(&mut squares, x, degree);
        let reduced = degree / 2;
        for from in (0..degree).step_by(LANES) {
            let sum = self.column(&squares[..reduced], &rows[..reduced], from);
            // The squares of the lower powers go to every second place, the last of which is that of x^0.
            let low = Self::load(&squares, reduced + from / 2);
            // SAFETY: `new` requires the instructions.
            let spread =
                unsafe { if degree.is_multiple_of(2) { low.after_zeros() } else { low.before_zeros() } };
            self.store(square, from, Self::sum(sum, spread));
        }
    }

    #[inline(always)]
    fn combine<const ROW: usize>(
        self,
        sum: &mut [u32; ROW],
        factors: &[u32],
        rows: &[[u32; ROW]],
        len: usize,
    ) {
        for from in (0..len).step_by(LANES) {
            self.store(sum, from, self.column(factors, rows, from));
        }
    }
}
