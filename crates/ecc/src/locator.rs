//! The error locator: the polynomial whose roots are the inverses of α^p, where p are the powers of x that are wrong.

use crate::arith::{Arith, LANES, POLY_LEN, Poly};
use crate::syndrome::OddSyndromes;

/// Zeros before the coefficient of x^0 and before the place of S_0, which is 0 too. Sums with shifted values read them.
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
    let mut squares = [0; 64 + LANES];
    // S_2i = S_i², where the S_i up to t are known from earlier rounds.
    let mut known = 1;
    while known <= t {
        let last = (2 * known - 1).min(t);
        let len = last - known + 1;
        arith.square(&mut squares, &syndromes[BEFORE + known..], len);
        for i in 0..len {
            syndromes[BEFORE + 2 * (known + i)] = squares[i];
        }
        known = last + 1;
    }

    let mut polynomials = [[0; BEFORE + POLY_LEN]; 3];
    let [mut locator, mut previous, mut spare] = polynomials.each_mut();
    (locator[BEFORE], previous[BEFORE]) = (1, 1);
    let (mut degree, mut previous_degree) = (0_usize, 0);
    // The step of the last change of degree, and the inverse of its discrepancy.
    let (mut changed, mut inverse) = (0, 1);
    for step in (1..2 * t).step_by(2) {
        let len = (degree + 1).next_multiple_of(LANES);
        let end = BEFORE + step + 1;
        // A step is larger than the degree, so this reads at most LANES zeros before S_1.
        let discrepancy = arith.convolve(&locator[BEFORE..BEFORE + len], &syndromes[end - len..end]);
        if discrepancy == 0 {
            continue;
        }
        let grows = 2 * degree < step;
        let next_degree = if grows { step - degree } else { degree };
        if next_degree > t {
            return None;
        }
        let mut shift = step - changed;
        if shift > BEFORE {
            previous.copy_within(BEFORE..BEFORE + previous_degree + 1, shift);
            previous[BEFORE..shift].fill(0);
            previous_degree += shift - BEFORE;
            (changed, shift) = (step - BEFORE, BEFORE);
        }
        // The locator plus a multiple of x^shift times the previous one.
        let factor = arith.mul(discrepancy, inverse);
        let shifted = &previous[BEFORE - shift..];
        arith.add_scaled(&mut spare[BEFORE..], &locator[BEFORE..], factor, shifted, next_degree + 1);
        (locator, spare) = (spare, locator);
        if grows {
            (previous, spare) = (spare, previous);
            (previous_degree, degree) = (degree, next_degree);
            (changed, inverse) = (step, arith.field().invert(discrepancy));
        }
    }
    let mut coefficients = [0; POLY_LEN];
    coefficients[..=degree].copy_from_slice(&locator[BEFORE..=BEFORE + degree]);
    (coefficients[degree] != 0).then_some((coefficients, degree))
}
