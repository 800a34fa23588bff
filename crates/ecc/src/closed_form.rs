//! Closed forms of the roots of polynomials of degree 4 and less over a field of characteristic 2.
//!
//! A quadratic is reduced to y² + y = c and a cubic to z³ + z = c, whose solutions are tabulated for each field. A
//! quartic without cubic term is a product of two quadratics with equal linear terms, which solve a cubic; any other
//! quartic becomes one by a shift that removes the linear term and a reversal.

use crate::arith::Poly;
use crate::field::Field;
use crate::roots::Roots;

/// The largest degree with a closed form here.
pub(crate) const LARGEST_DEGREE: usize = 4;

/// Adds the roots of a monic polynomial of this degree, which is at most [`LARGEST_DEGREE`], the leading coefficient
/// first. `None` if it has fewer different roots in the field than its degree.
pub(crate) fn solve(field: &Field, polynomial: &Poly, degree: usize, roots: &mut Roots) -> Option<()> {
    let &[_, a, b, c, d, ..] = polynomial;
    match degree {
        0 => {}
        1 => roots.push(a),
        2 => quadratic(field, a, b)?.into_iter().for_each(|root| roots.push(root)),
        3 => cubic(field, a, b, c)?.into_iter().for_each(|root| roots.push(root)),
        _ => quartic(field, a, b, c, d)?.into_iter().for_each(|root| roots.push(root)),
    }
    Some(())
}

/// Roots of x² + ax + b.
fn quadratic(field: &Field, a: u32, b: u32) -> Option<[u32; 2]> {
    if a == 0 {
        return None;
    }
    // x = a·y gives y² + y = b / a².
    let root = field.mul(a, field.solve_quadratic(field.divide(b, field.square(a)))?);
    Some([root, root ^ a])
}

/// Roots of x³ + ax² + bx + c.
fn cubic(field: &Field, a: u32, b: u32, c: u32) -> Option<[u32; 3]> {
    // x = y + a removes the quadratic term.
    let linear = field.square(a) ^ b;
    let constant = field.mul(a, b) ^ c;
    if constant == 0 {
        // One root y is 0; the others are equal.
        return None;
    }
    let root = field.solve_cubic(linear, constant)?;
    // The other factor is y² + root·y + root² + linear.
    let [second, third] = quadratic(field, root, field.square(root) ^ linear)?;
    Some([root ^ a, second ^ a, third ^ a])
}

/// Roots of x⁴ + ax³ + bx² + cx + d.
fn quartic(field: &Field, a: u32, b: u32, c: u32, d: u32) -> Option<[u32; 4]> {
    if a == 0 {
        return affine(field, b, c, d);
    }
    // x = y + e with e² = c / a removes the linear term; z = 1 / y then removes the cubic term.
    let square = field.divide(c, a);
    let e = field.square_root(square);
    let constant = field.square(square) ^ field.mul(b, square) ^ d;
    if constant == 0 {
        // y = 0 is a root twice.
        return None;
    }
    let quadratic = field.mul(a, e) ^ b;
    let inverse = field.invert(constant);
    let roots = affine(field, field.mul(quadratic, inverse), field.mul(a, inverse), inverse)?;
    // The constant term 1 / constant is not 0, so no root is.
    Some(roots.map(|z| field.invert(z) ^ e))
}

/// Roots of x⁴ + ax² + bx + c.
fn affine(field: &Field, a: u32, b: u32, c: u32) -> Option<[u32; 4]> {
    if b == 0 {
        // A square: every root is double.
        return None;
    }
    // (x² + px + q)(x² + px + r) with p³ + ap + b = 0, q + r = b / p and qr = c.
    let p = field.solve_cubic(a, b)?;
    let sum = field.divide(b, p);
    let [q, r] = quadratic(field, sum, c)?;
    let ([first, second], [third, fourth]) = (quadratic(field, p, q)?, quadratic(field, p, r)?);
    Some([first, second, third, fourth])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::POLY_LEN;

    /// The monic polynomial with these roots, leading coefficient first.
    fn with_roots(field: &Field, roots: &[u32]) -> Poly {
        let mut polynomial = [0; POLY_LEN];
        polynomial[0] = 1;
        for (degree, &root) in roots.iter().enumerate() {
            for i in (0..=degree).rev() {
                polynomial[i + 1] ^= field.mul(polynomial[i], root);
            }
        }
        polynomial
    }

    fn sorted(field: &Field, polynomial: &Poly, degree: usize) -> Option<Vec<u32>> {
        let mut roots = Roots::default();
        solve(field, polynomial, degree, &mut roots)?;
        let mut roots = roots.as_slice().to_vec();
        roots.sort_unstable();
        Some(roots)
    }

    #[test]
    fn exactly_the_polynomials_with_different_roots_are_solved() {
        for m in [5, 6] {
            let field = Field::of_degree(m);
            for degree in 1..=LARGEST_DEGREE {
                // Every polynomial of the degree, and the roots that trying finds.
                let (mut solved, count) = (0_u64, 1_u64 << (m as usize * degree));
                for number in (0..count).step_by(if degree == 4 && m == 6 { 13 } else { 1 }) {
                    let mut polynomial = [0; POLY_LEN];
                    polynomial[0] = 1;
                    for i in 0..degree {
                        polynomial[i + 1] = (number >> (m as usize * i)) as u32 & field.order;
                    }
                    let value = |x| polynomial[..=degree].iter().fold(0, |sum, &c| field.mul(sum, x) ^ c);
                    let roots: Vec<u32> = (0..=field.order).filter(|&x| value(x) == 0).collect();
                    let expected = (roots.len() == degree).then_some(roots);
                    solved += u64::from(expected.is_some());
                    assert_eq!(
                        sorted(field, &polynomial, degree),
                        expected,
                        "m {m}: {:?}",
                        &polynomial[..=degree]
                    );
                }
                assert!(solved > 0, "m {m}, degree {degree}");
            }
        }
    }

    #[test]
    fn roots_of_every_field_are_found_again() {
        for m in crate::field::DEGREES {
            let field = Field::of_degree(m);
            for degree in 1..=LARGEST_DEGREE as u32 {
                for first in (1..=field.order).step_by(if m < 9 { 1 } else { 37 }) {
                    let mut roots: Vec<u32> =
                        (0..degree).map(|k| (first * (2 * k * k + 1)) % field.order + 1).collect();
                    roots.sort_unstable();
                    roots.dedup();
                    let polynomial = with_roots(field, &roots);
                    assert_eq!(sorted(field, &polynomial, roots.len()), Some(roots), "m {m}");
                }
            }
        }
    }
}
