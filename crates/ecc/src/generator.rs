//! The generator polynomial of a code.

use crate::field::Field;

/// A polynomial over GF(2): bit i of the vector of words is the coefficient of x^i.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generator {
    words: Vec<u64>,
    pub(crate) degree: usize,
}

impl Generator {
    /// The product of the minimal polynomials of α, α³, ..., α^(2t−1), each taken once.
    pub(crate) fn new(field: &Field, t: usize) -> Self {
        let mut product = Self { words: vec![1], degree: 0 };
        let mut included = vec![false; field.order as usize];
        for root in (0..t as u32).map(|k| (2 * k + 1) % field.order) {
            if included[root as usize] {
                continue;
            }
            let mut minimal = vec![1_u32];
            let mut conjugate = root;
            while !included[conjugate as usize] {
                included[conjugate as usize] = true;
                // Times x + α^conjugate.
                let alpha = field.exp(conjugate);
                minimal.push(0);
                for i in (0..minimal.len()).rev() {
                    let below = if i == 0 { 0 } else { minimal[i - 1] };
                    minimal[i] = below ^ field.mul(minimal[i], alpha);
                }
                conjugate = conjugate * 2 % field.order;
            }
            product = product.times(&minimal);
        }
        product
    }

    fn times(&self, minimal: &[u32]) -> Self {
        let degree = self.degree + minimal.len() - 1;
        let mut words = vec![0; degree / 64 + 1];
        for i in (0..=self.degree).filter(|&i| self.bit(i)) {
            for (j, &coefficient) in minimal.iter().enumerate() {
                debug_assert!(coefficient <= 1, "a minimal polynomial has coefficients in GF(2)");
                words[(i + j) / 64] ^= u64::from(coefficient) << ((i + j) % 64);
            }
        }
        Self { words, degree }
    }

    pub(crate) fn bit(&self, i: usize) -> bool {
        self.words[i / 64] >> (i % 64) & 1 == 1
    }

    /// The generator times x^(64·words − degree), without its leading term, which is x^(64·words). Word 0 has the
    /// coefficients of the highest powers. `words` is the degree in words, rounded up.
    pub(crate) fn aligned(&self) -> Vec<u64> {
        let words = self.degree.div_ceil(64);
        let mut aligned = vec![0; words];
        for i in (0..self.degree).filter(|&i| self.bit(i)) {
            let from_top = self.degree - 1 - i;
            aligned[from_top / 64] |= 1 << (63 - from_top % 64);
        }
        aligned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_divides_x_to_the_order_minus_1() {
        for (m, strengths) in [(5, 1..=7), (8, 1..=40), (11, 1..=12), (13, 4..=4), (16, 1..=3)] {
            let field = Field::of_degree(m);
            for t in strengths {
                let generator = Generator::new(field, t);
                // x^order mod g, one power of x at a time.
                let mut power = vec![false; generator.degree];
                power[0] = true;
                for _ in 0..field.order {
                    let carry = power[generator.degree - 1];
                    for i in (0..generator.degree).rev() {
                        power[i] = (i > 0 && power[i - 1]) ^ (carry && generator.bit(i));
                    }
                }
                assert!(power[0] && !power[1..].iter().any(|&bit| bit), "m {m}, t {t}");
            }
        }
    }

    #[test]
    fn the_designed_powers_of_alpha_are_roots() {
        for (m, t) in [(5, 3), (8, 20), (13, 12), (14, 40), (15, 64), (16, 64)] {
            let field = Field::of_degree(m);
            let generator = Generator::new(field, t);
            for root in 1..=2 * t as u32 {
                let value = (0..=generator.degree)
                    .filter(|&i| generator.bit(i))
                    .fold(0, |sum, i| sum ^ field.exp((i as u32 * root) % field.order));
                assert_eq!(value, 0, "m {m}, t {t}: α^{root}");
            }
        }
    }

    #[test]
    fn known_generators() {
        // Lin and Costello, table 6.1 (m = 5, which has the same primitive polynomial): (31, 21) and (31, 16).
        let field = Field::of_degree(5);
        assert_eq!(Generator::new(field, 2), Generator { words: vec![0o3551], degree: 10 });
        assert_eq!(Generator::new(field, 3), Generator { words: vec![0o107_657], degree: 15 });
    }
}
