//! Roots of a polynomial over GF(2^m) that has only simple roots, all in the field.
//!
//! Degrees 1 and 2 have closed forms. A polynomial f of higher degree is split by traces (Berlekamp 1970): the trace
//! Tr(β·r) of a root r is 0 or 1, so gcd(f, Tr(β·x)) has the roots with trace 0 and the rest has the others. The powers
//! x^(2^i) mod f are computed once; the traces for all β are sums of them, and all subdivisions share the traces. That
//! x^(2^m) = x mod f proves first that f has as many roots as its degree.

use crate::arith::{Arith, Poly};

/// Roots found, at most 64.
#[derive(Debug)]
pub(crate) struct Roots {
    values: [u32; 64],
    count: usize,
}

impl Roots {
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.values[..self.count]
    }

    fn push(&mut self, root: u32) {
        self.values[self.count] = root;
        self.count += 1;
    }
}

/// The roots of a monic polynomial of degree 1 to 64, the leading coefficient first. `None` if it has fewer different
/// roots in the field than its degree, or the root 0.
#[inline(always)]
pub(crate) fn roots<A: Arith>(arith: A, polynomial: &Poly, degree: usize) -> Option<Roots> {
    let mut roots = Roots { values: [0; 64], count: 0 };
    if polynomial[degree] == 0 {
        return None;
    }
    match degree {
        0..=2 => solve(arith, polynomial, degree, &mut roots)?,
        // Less memory is faster to clear.
        3..=16 => split::<A, 16>(arith, polynomial, degree, &mut roots)?,
        _ => split::<A, 64>(arith, polynomial, degree, &mut roots)?,
    }
    Some(roots)
}

/// Solves a monic polynomial of degree 2 or less.
#[inline(always)]
fn solve<A: Arith>(arith: A, polynomial: &Poly, degree: usize, roots: &mut Roots) -> Option<()> {
    let field = arith.field();
    let (a, b) = (polynomial[1], polynomial[2]);
    match degree {
        0 => {}
        1 => roots.push(a),
        _ => {
            if a == 0 {
                return None;
            }
            // x = a·y gives y² + y = b / a².
            let inverse = field.invert(a);
            let half = field.solve_quadratic(arith.mul(b, arith.mul(inverse, inverse)))?;
            let root = arith.mul(a, half);
            roots.push(root);
            roots.push(root ^ a);
        }
    }
    Some(())
}

/// A factor whose roots are not known yet: monic, with the traces that it is still to be split by.
#[derive(Clone, Copy)]
struct Factor<const ROW: usize> {
    degree: usize,
    /// Traces before this one are equal at all roots.
    next_trace: usize,
    /// Coefficients without the leading one.
    tail: [u32; ROW],
}

/// Splits a polynomial of a degree of 3 to `ROW`.
#[inline(always)]
fn split<A: Arith, const ROW: usize>(arith: A, whole: &Poly, degree: usize, roots: &mut Roots) -> Option<()> {
    let m = arith.field().m as usize;
    let powers = frobenius::<A, ROW>(arith, whole, degree)?;
    let mut traces = [[0; ROW]; 16];
    let mut traces_known = 0;

    let mut pending = [Factor { degree: 0, next_trace: 0, tail: [0; ROW] }; 24];
    let mut count = 0;
    let mut factor = *whole;
    let mut factor_degree = degree;
    let mut next_trace = 0;
    loop {
        while factor_degree > 2 {
            // Different roots differ in some trace, so a factor with several roots is split before the traces end.
            if next_trace == m {
                return None;
            }
            if next_trace == traces_known {
                let (sum, coefficients) = (&mut traces[next_trace], &arith.field().traces[next_trace]);
                arith.combine(sum, &coefficients[..m], &powers[..m], degree);
                traces_known += 1;
            }
            let (mut trace, trace_degree) =
                remainder(arith, &traces[next_trace], degree, &factor, factor_degree);
            next_trace += 1;
            if trace_degree == 0 {
                continue;
            }
            let (divisor, divisor_degree) =
                greatest_common_divisor(arith, &factor, factor_degree, &mut trace, trace_degree);
            if divisor_degree == 0 || divisor_degree >= factor_degree {
                return None;
            }
            let quotient = divide(arith, &factor, factor_degree, &divisor, divisor_degree);
            let quotient_degree = factor_degree - divisor_degree;
            // Degrees of 3 and more add up to 64 at most: there is room for all.
            if quotient_degree > 2 {
                let tail = &mut pending[count];
                tail.degree = quotient_degree;
                tail.next_trace = next_trace;
                tail.tail.copy_from_slice(&quotient[1..=ROW]);
                count += 1;
            } else {
                solve(arith, &quotient, quotient_degree, roots)?;
            }
            (factor, factor_degree) = (divisor, divisor_degree);
        }
        solve(arith, &factor, factor_degree, roots)?;
        if count == 0 {
            return Some(());
        }
        count -= 1;
        let next = &pending[count];
        factor = [0; 72];
        factor[0] = 1;
        factor[1..=ROW].copy_from_slice(&next.tail);
        (factor_degree, next_trace) = (next.degree, next.next_trace);
    }
}

/// x^(2^i) mod f for i below m, the coefficient of x^(degree − 1) first. `None` if x^(2^m) is not x mod f, that is, if
/// f has fewer different roots in the field than its degree.
#[inline(always)]
fn frobenius<A: Arith, const ROW: usize>(arith: A, f: &Poly, degree: usize) -> Option<[[u32; ROW]; 16]> {
    let m = arith.field().m as usize;
    // Row i is x^(2·(degree − 1 − i)) mod f, for powers of degree and more.
    let reduced = degree / 2;
    let mut rows = [[0; ROW]; 32];
    let mut power: Poly = [0; 72];
    power[..ROW].copy_from_slice(&f[1..=ROW]);
    for exponent in degree..=2 * degree - 2 {
        if exponent % 2 == 0 {
            rows[degree - 1 - exponent / 2].copy_from_slice(&power[..ROW]);
        }
        arith.shift(&mut power, f, degree);
    }

    let mut powers = [[0; ROW]; 16];
    let last_monomial = (degree - 1).ilog2() as usize;
    for i in 0..=last_monomial.min(m - 1) {
        powers[i][degree - 1 - (1 << i)] = 1;
    }
    let mut squares = [0; ROW];
    let mut next = [0; ROW];
    for i in last_monomial..m {
        arith.square(&mut squares, &powers[i], degree);
        arith.combine(&mut next, &squares[..reduced], &rows[..reduced], degree);
        for (from_top, &square) in squares.iter().enumerate().take(degree).skip(reduced) {
            next[2 * from_top + 1 - degree] ^= square;
        }
        match powers.get_mut(i + 1) {
            Some(power) if i + 1 < m => *power = next,
            _ => return (next == powers[0]).then_some(powers),
        }
    }
    None
}

/// A polynomial below the degree `whole_degree` modulo a monic one, and its degree; the degree of 0 is 0.
#[inline(always)]
fn remainder<A: Arith>(
    arith: A,
    polynomial: &[u32],
    whole_degree: usize,
    factor: &Poly,
    factor_degree: usize,
) -> (Poly, usize) {
    let mut rest: Poly = [0; 72];
    rest[..whole_degree].copy_from_slice(&polynomial[..whole_degree]);
    for step in 0..whole_degree - factor_degree {
        let leading = rest[step];
        arith.add_scaled(&mut rest[step + 1..], leading, &factor[1..], factor_degree);
    }
    trimmed(&rest[whole_degree - factor_degree..whole_degree])
}

/// A polynomial without leading zeros, and its degree; the degree of 0 is 0.
#[inline(always)]
fn trimmed(coefficients: &[u32]) -> (Poly, usize) {
    let last = coefficients.len() - 1;
    let zeros = coefficients.iter().position(|&value| value != 0).unwrap_or(last);
    let mut polynomial = [0; 72];
    polynomial[..=last - zeros].copy_from_slice(&coefficients[zeros..]);
    (polynomial, last - zeros)
}

/// The monic greatest common divisor of two polynomials, and its degree. `b` has a degree of 1 or more.
#[inline(always)]
fn greatest_common_divisor<A: Arith>(
    arith: A,
    a: &Poly,
    a_degree: usize,
    b: &mut Poly,
    b_degree: usize,
) -> (Poly, usize) {
    let (mut a, mut a_degree, mut b, mut b_degree) = (*a, a_degree, *b, b_degree);
    loop {
        // One step takes the leading coefficient of a.
        while a_degree >= b_degree {
            arith.eliminate(&mut a, &b, a_degree);
            a_degree -= 1;
        }
        let (rest, rest_degree) = trimmed(&a[..=a_degree]);
        if rest_degree == 0 {
            if rest[0] != 0 {
                // A constant: the polynomials have no common root.
                return (rest, 0);
            }
            let mut divisor = [0; 72];
            arith.add_scaled(&mut divisor, arith.field().invert(b[0]), &b, b_degree + 1);
            return (divisor, b_degree);
        }
        (a, a_degree, b, b_degree) = (b, b_degree, rest, rest_degree);
    }
}

/// The quotient of a monic polynomial by a monic divisor of it.
#[inline(always)]
fn divide<A: Arith>(arith: A, a: &Poly, a_degree: usize, divisor: &Poly, divisor_degree: usize) -> Poly {
    let mut rest = *a;
    let quotient_degree = a_degree - divisor_degree;
    for step in 0..quotient_degree {
        let leading = rest[step];
        arith.add_scaled(&mut rest[step + 1..], leading, &divisor[1..], divisor_degree);
    }
    let mut quotient = [0; 72];
    quotient[..=quotient_degree].copy_from_slice(&rest[..=quotient_degree]);
    quotient
}
