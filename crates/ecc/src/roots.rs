//! Roots of a polynomial over GF(2^m) that has only simple roots, all in the field.
//!
//! Degrees up to 4 have closed forms ([`crate::closed_form`]). A polynomial f of higher degree is split by traces
//! (Berlekamp 1970): the trace Tr(β·r) of a root r is 0 or 1, so gcd(f, Tr(β·x)) has the roots with trace 0 and the rest
//! has the others. The powers x^(2^i) mod f are computed once; the traces for all β are sums of them, and all factors
//! share the traces. That x^(2^m) = x mod f proves first that f has as many roots as its degree.

use crate::arith::{Arith, LANES, POLY_LEN, Poly};
use crate::closed_form::{LARGEST_DEGREE, solve};

/// Roots found, at most 64.
#[derive(Debug)]
pub(crate) struct Roots {
    values: [u32; 64],
    count: usize,
}

impl Default for Roots {
    fn default() -> Self {
        Self { values: [0; 64], count: 0 }
    }
}

impl Roots {
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.values[..self.count]
    }

    pub(crate) fn push(&mut self, root: u32) {
        self.values[self.count] = root;
        self.count += 1;
    }
}

/// Replaces `roots` by the roots of a monic polynomial of degree 1 to 64, the leading coefficient first. `None` if it has
/// fewer different roots in the field than its degree, or the root 0.
#[inline(always)]
pub(crate) fn roots<A: Arith>(arith: A, polynomial: &Poly, degree: usize, roots: &mut Roots) -> Option<()> {
    roots.count = 0;
    if polynomial[degree] == 0 {
        return None;
    }
    match degree {
        0..=LARGEST_DEGREE => solve(arith.field(), polynomial, degree, roots),
        // Less memory is faster to clear.
        5..=16 => split::<A, 16, 8>(arith, polynomial, degree, roots),
        _ => split::<A, 64, 32>(arith, polynomial, degree, roots),
    }
}

/// A factor that is still to be split: monic, without its leading coefficient.
#[derive(Clone, Copy)]
struct Pending<const ROW: usize> {
    degree: usize,
    /// Traces before this one are equal at all roots.
    next_trace: usize,
    tail: [u32; ROW],
}

/// Splits a polynomial of a degree of 5 to `ROW`. `HALF` is half of `ROW`.
#[inline(always)]
fn split<A: Arith, const ROW: usize, const HALF: usize>(
    arith: A,
    whole: &Poly,
    degree: usize,
    roots: &mut Roots,
) -> Option<()> {
    let field = arith.field();
    let m = field.m as usize;
    let mut powers = [[0; ROW]; 16];
    frobenius::<A, ROW, HALF>(arith, whole, degree, &mut powers)?;
    let mut traces = [[0; ROW]; 16];
    let mut traces_known = 0;

    // Degrees of 5 and more add up to 64 at most.
    let mut pending = [Pending { degree: 0, next_trace: 0, tail: [0; ROW] }; 12];
    let mut count = 0;
    let mut factor = *whole;
    let mut factor_degree = degree;
    let mut next_trace = 0;
    let (mut second, mut rest): (Poly, Poly) = ([0; POLY_LEN], [0; POLY_LEN]);
    loop {
        while factor_degree > LARGEST_DEGREE {
            // Different roots differ in some trace, so a factor with several roots is split before the traces end.
            if next_trace == m {
                return None;
            }
            if next_trace == traces_known {
                let (sum, coefficients) = (&mut traces[next_trace], &field.traces[next_trace]);
                arith.combine(sum, &coefficients[..m], &powers[..m], degree);
                traces_known += 1;
            }
            // Zeros in front make the number of steps a multiple of what an operation processes.
            let steps = (degree - factor_degree).next_multiple_of(LANES);
            let front = steps - (degree - factor_degree);
            rest[..front].fill(0);
            rest[front..front + degree].copy_from_slice(&traces[next_trace][..degree]);
            rest[front + degree..].fill(0);
            arith.divide(&mut rest, steps, &factor, factor_degree);
            next_trace += 1;
            second.fill(0);
            second[..factor_degree].copy_from_slice(&rest[steps..steps + factor_degree]);
            let trace_degree = trim(&mut second, factor_degree - 1);
            if trace_degree == 0 {
                continue;
            }
            let mut first = factor;
            let (divisor, divisor_degree) =
                greatest_common_divisor(arith, &mut first, factor_degree, &mut second, trace_degree)?;
            if divisor_degree >= factor_degree {
                return None;
            }
            // The factor becomes the quotient.
            let quotient_degree = factor_degree - divisor_degree;
            let steps = quotient_degree.next_multiple_of(LANES);
            let front = steps - quotient_degree;
            rest[..front].fill(0);
            rest[front..].copy_from_slice(&factor[..POLY_LEN - front]);
            arith.divide(&mut rest, steps, divisor, divisor_degree);
            factor.fill(0);
            factor[..=quotient_degree].copy_from_slice(&rest[front..=steps]);
            if quotient_degree > LARGEST_DEGREE {
                let tail = &mut pending[count];
                tail.degree = quotient_degree;
                tail.next_trace = next_trace;
                tail.tail.copy_from_slice(&factor[1..=ROW]);
                count += 1;
            } else {
                solve(field, &factor, quotient_degree, roots)?;
            }
            (factor, factor_degree) = (*divisor, divisor_degree);
        }
        solve(field, &factor, factor_degree, roots)?;
        if count == 0 {
            return Some(());
        }
        count -= 1;
        let next = &pending[count];
        factor.fill(0);
        factor[0] = 1;
        factor[1..=ROW].copy_from_slice(&next.tail);
        (factor_degree, next_trace) = (next.degree, next.next_trace);
    }
}

/// Writes x^(2^i) mod f for i below m over zeros, the coefficient of x^(degree − 1) first. `None` if x^(2^m) is not x
/// mod f, that is, if f has fewer different roots in the field than its degree.
#[inline(always)]
fn frobenius<A: Arith, const ROW: usize, const HALF: usize>(
    arith: A,
    f: &Poly,
    degree: usize,
    powers: &mut [[u32; ROW]; 16],
) -> Option<()> {
    let m = arith.field().m as usize;
    // Row i is x^(2·(degree − 1 − i)) mod f, for powers of degree and more.
    let reduced = degree / 2;
    let mut rows = [[0; ROW]; HALF];
    let mut power: Poly = [0; POLY_LEN];
    power[..ROW].copy_from_slice(&f[1..=ROW]);
    if degree % 2 == 1 {
        arith.shift(&mut power, f, degree);
    }
    for row in rows[..reduced].iter_mut().rev() {
        row.copy_from_slice(&power[..ROW]);
        arith.shift_twice(&mut power, f, degree);
    }

    let last_monomial = ((degree - 1).ilog2() as usize).min(m - 1);
    for i in 0..=last_monomial {
        powers[i][degree - 1 - (1 << i)] = 1;
    }
    for i in last_monomial..m - 1 {
        let (known, next) = powers.split_at_mut(i + 1);
        arith.square_modulo(&mut next[0], &known[i], &rows, degree);
    }
    let mut last = [0; ROW];
    arith.square_modulo(&mut last, &powers[m - 1], &rows, degree);
    (last == powers[0]).then_some(())
}

/// Drops leading zeros of a polynomial of at most this degree and returns its degree; the degree of 0 is 0.
#[inline(always)]
fn trim(polynomial: &mut Poly, degree: usize) -> usize {
    let zeros = polynomial[..degree].iter().take_while(|&&value| value == 0).count();
    if zeros > 0 {
        polynomial.copy_within(zeros..=degree, 0);
        polynomial[degree + 1 - zeros..=degree].fill(0);
    }
    degree - zeros
}

/// The monic greatest common divisor of two polynomials, and its degree. `None` if it is constant. `b` has a degree of 1
/// or more. Overwrites both.
#[inline(always)]
fn greatest_common_divisor<'a, A: Arith>(
    arith: A,
    mut a: &'a mut Poly,
    mut a_degree: usize,
    mut b: &'a mut Poly,
    mut b_degree: usize,
) -> Option<(&'a mut Poly, usize)> {
    loop {
        // Long division: each step eliminates leading coefficients of a. `fill` then sets those above the new degree to 0.
        let highest = a_degree;
        while a_degree > b_degree {
            arith.eliminate_twice(a, b, a_degree - 1);
            a_degree -= 2;
        }
        if a_degree == b_degree {
            arith.eliminate(a, b, a_degree);
            a_degree -= 1;
        }
        a[a_degree + 1..=highest].fill(0);
        a_degree = trim(a, a_degree);
        if a_degree == 0 {
            if a[0] != 0 {
                return None;
            }
            let inverse = arith.field().invert(b[0]);
            a.fill(0);
            arith.add_scaled(a, &[0; POLY_LEN], inverse, b, b_degree + 1);
            return Some((a, b_degree));
        }
        (a, a_degree, b, b_degree) = (b, b_degree, a, a_degree);
    }
}
