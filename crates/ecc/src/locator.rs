//! The error locator: the polynomial whose roots are the inverses of α^p, where p are the powers of x that are wrong.

use crate::arith::{Arith, LANES, Poly};
use crate::syndrome::OddSyndromes;

/// Zeros before S0 = 1, which is at the next index; the sums of Berlekamp and Massey read them.
const BEFORE: usize = 8;

/// Coefficients of the error locator, that of x^0 first, and its degree. `None` if more than t bits are wrong.
///
/// Massey's algorithm for binary codes: in every second step the discrepancy is 0, so these steps are left out.
#[inline(always)]
pub(crate) fn locator<A: Arith>(arith: A, odd: &OddSyndromes, t: usize) -> Option<(Poly, usize)> {
    // syndromes[BEFORE + i] is the syndrome S_i.
    let mut syndromes = [0; BEFORE + 2 * 64 + LANES];
    for (k, &syndrome) in odd[..t].iter().enumerate() {
        syndromes[BEFORE + 2 * k + 1] = syndrome;
    }
    let mut halves = [0; 64 + LANES];
    let mut squares = [0; 64 + LANES];
    // S_2i = S_i², where the S_i up to t are known from earlier rounds.
    let mut known = 1;
    while known <= t {
        let last = (2 * known - 1).min(t);
        let len = last - known + 1;
        halves[..len].copy_from_slice(&syndromes[BEFORE + known..][..len]);
        arith.square(&mut squares, &halves, len);
        for i in 0..len {
            syndromes[BEFORE + 2 * (known + i)] = squares[i];
        }
        known = last + 1;
    }

    let (mut first, mut second, mut third): (Poly, Poly, Poly) = ([0; 72], [0; 72], [0; 72]);
    let (mut locator, mut previous, mut spare) = (&mut first, &mut second, &mut third);
    (locator[0], previous[0]) = (1, 1);
    let (mut degree, mut previous_degree) = (0_usize, 0);
    // The step of the last change of degree, and the inverse of its discrepancy.
    let (mut changed, mut inverse) = (0, 1);
    for step in (1..2 * t).step_by(2) {
        let len = (degree + 1).next_multiple_of(LANES);
        let end = BEFORE + step + 1;
        // A step is larger than the degree, so this reads at most LANES zeros before S_1.
        let discrepancy = arith.convolve(&locator[..len], &syndromes[end - len..end]);
        if discrepancy == 0 {
            continue;
        }
        let (shift, factor) = (step - changed, arith.mul(discrepancy, inverse));
        if 2 * degree < step {
            let next_degree = step - degree;
            if next_degree > t {
                return None;
            }
            spare.copy_from_slice(locator);
            arith.add_scaled(&mut spare[shift..], factor, previous, previous_degree + 1);
            (locator, previous, spare) = (spare, locator, previous);
            (previous_degree, degree) = (degree, next_degree);
            (changed, inverse) = (step, arith.field().invert(discrepancy));
        } else {
            arith.add_scaled(&mut locator[shift..], factor, previous, previous_degree + 1);
        }
    }
    (locator[degree] != 0).then_some((*locator, degree))
}
