//! The fields GF(2^m), m = 5 to 16. An element is a polynomial in α of degree below m: bit i is the coefficient of α^i.

use std::sync::OnceLock;

/// Smallest and largest degree of a field.
pub(crate) const DEGREES: std::ops::RangeInclusive<u32> = 5..=16;

/// The primitive polynomials of the Linux kernel's BCH (m = 5 to 15) and x^16 + x^12 + x^3 + x + 1. Bit i is the
/// coefficient of x^i.
const PRIMITIVE: [u32; 12] =
    [0x25, 0x43, 0x83, 0x11D, 0x211, 0x409, 0x805, 0x1053, 0x201B, 0x402B, 0x8003, 0x1100B];

/// A field with its tables.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) m: u32,
    /// The primitive polynomial, whose root is α.
    pub(crate) polynomial: u32,
    /// 2^m − 1, the order of α.
    pub(crate) order: u32,
    /// floor(x^2m / polynomial), for Barrett's reduction of products.
    pub(crate) barrett: u32,
    /// α^i for i below twice the order, so that the sum of two logarithms is an index.
    exp: Box<[u16]>,
    /// The logarithm of each element; that of 0 is unused.
    log: Box<[u16]>,
    /// Pivots of the linear map y ↦ y² + y: an image, and a y that has this image. The leading bits of the images
    /// differ and decrease.
    halves: Vec<(u32, u32)>,
    /// For each c a z with z³ + z = c, or 0.
    cubes: Box<[u16]>,
    /// Row k holds (α^k)^(2^i) for i below m: the coefficients of the trace of α^k·x as a polynomial of x.
    pub(crate) traces: Vec<[u32; 16]>,
}

impl Field {
    /// The field of degree `m`, which must be one of [`DEGREES`]. Each field is built once.
    pub(crate) fn of_degree(m: u32) -> &'static Self {
        static FIELDS: [OnceLock<Field>; 12] = [const { OnceLock::new() }; 12];
        FIELDS[(m - DEGREES.start()) as usize].get_or_init(|| Self::new(m))
    }

    fn new(m: u32) -> Self {
        let polynomial = PRIMITIVE[(m - DEGREES.start()) as usize];
        let order = (1_u32 << m) - 1;
        let mut exp = vec![0; 2 * order as usize].into_boxed_slice();
        let mut log = vec![0; order as usize + 1].into_boxed_slice();
        let mut element = 1_u32;
        for power in 0..order {
            exp[power as usize] = element as u16;
            exp[(power + order) as usize] = element as u16;
            log[element as usize] = power as u16;
            element <<= 1;
            if element >> m == 1 {
                element ^= polynomial;
            }
        }
        let mut field = Self {
            m,
            polynomial,
            order,
            barrett: quotient(m, polynomial),
            exp,
            log,
            halves: Vec::new(),
            cubes: Box::new([]),
            traces: Vec::new(),
        };
        field.halves = field.pivots();
        field.cubes = vec![0; order as usize + 1].into_boxed_slice();
        for z in 1..=order {
            let c = field.mul(field.square(z), z) ^ z;
            field.cubes[c as usize] = z as u16;
        }
        field.traces = (0..m)
            .map(|k| {
                let mut row = [0; 16];
                row[0] = 1 << k;
                for i in 1..m as usize {
                    row[i] = field.square(row[i - 1]);
                }
                row
            })
            .collect();
        field
    }

    /// Gaussian elimination of the images of 1, α, ... under y ↦ y² + y.
    fn pivots(&self) -> Vec<(u32, u32)> {
        let mut pivots: Vec<(u32, u32)> = Vec::new();
        for bit in 1..self.m {
            let (mut image, mut y) = (self.square(1 << bit) ^ 1 << bit, 1 << bit);
            for &(pivot, of) in &pivots {
                if image ^ pivot < image {
                    (image, y) = (image ^ pivot, y ^ of);
                }
            }
            // The kernel of the map is {0, 1}, so images of α and its powers are independent.
            debug_assert_ne!(image, 0);
            let at = pivots.partition_point(|&(pivot, _)| pivot > image);
            pivots.insert(at, (image, y));
        }
        pivots
    }

    /// α^power, for a power below twice the order.
    #[inline]
    pub(crate) fn exp(&self, power: u32) -> u32 {
        u32::from(self.exp[power as usize])
    }

    /// The logarithm of an element other than 0.
    #[inline]
    pub(crate) fn log(&self, element: u32) -> u32 {
        debug_assert_ne!(element, 0);
        u32::from(self.log[element as usize])
    }

    #[inline]
    pub(crate) fn mul(&self, a: u32, b: u32) -> u32 {
        if a == 0 || b == 0 { 0 } else { self.exp(self.log(a) + self.log(b)) }
    }

    #[inline]
    pub(crate) fn square(&self, a: u32) -> u32 {
        if a == 0 { 0 } else { self.exp(2 * self.log(a)) }
    }

    /// 1 / a, for an element other than 0.
    #[inline]
    pub(crate) fn invert(&self, a: u32) -> u32 {
        self.exp(self.order - self.log(a))
    }

    /// A y with y² + y = c; the other one is y + 1. `None` if no element of the field has this property.
    pub(crate) fn solve_quadratic(&self, mut c: u32) -> Option<u32> {
        let mut y = 0;
        for &(image, of) in &self.halves {
            // The exclusive or is smaller exactly where the leading bit of the image is set.
            if c ^ image < c {
                (c, y) = (c ^ image, y ^ of);
            }
        }
        (c == 0).then_some(y)
    }

    /// a / b, for a b other than 0.
    #[inline]
    pub(crate) fn divide(&self, a: u32, b: u32) -> u32 {
        if a == 0 { 0 } else { self.exp(self.log(a) + self.order - self.log(b)) }
    }

    /// The square root of a.
    pub(crate) fn square_root(&self, a: u32) -> u32 {
        if a == 0 {
            return 0;
        }
        let log = self.log(a);
        self.exp(if log.is_multiple_of(2) { log / 2 } else { (log + self.order) / 2 })
    }

    /// A y with y³ + a·y + b = 0, for a b other than 0. `None` if there is none, or if a is 0 and there are fewer than
    /// three.
    pub(crate) fn solve_cubic(&self, a: u32, b: u32) -> Option<u32> {
        if a == 0 {
            let log = self.log(b);
            return (self.order.is_multiple_of(3) && log.is_multiple_of(3)).then(|| self.exp(log / 3));
        }
        // y = √a·z gives z³ + z = b / (a·√a).
        let root = self.square_root(a);
        match u32::from(self.cubes[self.divide(b, self.mul(a, root)) as usize]) {
            0 => None,
            z => Some(self.mul(root, z)),
        }
    }
}

/// floor(x^2m / polynomial).
fn quotient(m: u32, polynomial: u32) -> u32 {
    let (mut rest, mut quotient) = (1_u64 << (2 * m), 0);
    for shift in (0..=m).rev() {
        if rest >> (m + shift) & 1 == 1 {
            rest ^= u64::from(polynomial) << shift;
            quotient |= 1 << shift;
        }
    }
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication of polynomials, bit by bit.
    fn product(field: &Field, a: u32, b: u32) -> u32 {
        let mut product = (0..16).fold(0, |sum, bit| sum ^ if b >> bit & 1 == 1 { a << bit } else { 0 });
        for bit in (field.m..32).rev() {
            if product >> bit & 1 == 1 {
                product ^= field.polynomial << (bit - field.m);
            }
        }
        product
    }

    #[test]
    fn tables_multiply_as_polynomials_do() {
        for m in DEGREES {
            let field = Field::of_degree(m);
            let step = if m <= 8 { 1 } else { 251 };
            for a in (0..=field.order).step_by(step) {
                for b in (0..=field.order).step_by(step) {
                    assert_eq!(field.mul(a, b), product(field, a, b), "m {m}: {a} · {b}");
                }
            }
            for a in 1..=field.order {
                assert_eq!(product(field, a, field.invert(a)), 1, "m {m}: 1 / {a}");
                assert_eq!(field.square(a), product(field, a, a), "m {m}: {a}²");
            }
        }
    }

    #[test]
    fn a_quadratic_has_a_solution_exactly_where_the_trace_is_0() {
        for m in DEGREES {
            let field = Field::of_degree(m);
            for c in 0..=field.order {
                let mut trace = 0;
                let mut power = c;
                for _ in 0..m {
                    trace ^= power;
                    power = field.square(power);
                }
                let solution = field.solve_quadratic(c);
                assert_eq!(solution.is_some(), trace == 0, "m {m}: {c}");
                if let Some(y) = solution {
                    assert_eq!(field.square(y) ^ y, c, "m {m}: {c}");
                }
            }
        }
    }

    #[test]
    fn a_cubic_has_a_solution_where_some_element_solves_it() {
        for m in [5, 6, 9, 10] {
            let field = Field::of_degree(m);
            for a in (0..=field.order).step_by(7) {
                let mut solutions = vec![0; field.order as usize + 1];
                for y in 0..=field.order {
                    solutions[(field.mul(field.square(y), y) ^ field.mul(a, y)) as usize] += 1;
                }
                for b in 1..=field.order {
                    match field.solve_cubic(a, b) {
                        Some(y) => {
                            assert_eq!(field.mul(field.square(y), y) ^ field.mul(a, y), b, "m {m}: {a}")
                        }
                        None if a == 0 => assert!(solutions[b as usize] < 3, "m {m}: {b}"),
                        None => assert_eq!(solutions[b as usize], 0, "m {m}: {a}, {b}"),
                    }
                }
            }
        }
    }

    #[test]
    fn square_roots_and_quotients_invert() {
        for m in DEGREES {
            let field = Field::of_degree(m);
            for a in 0..=field.order {
                assert_eq!(field.square(field.square_root(a)), a, "m {m}: √{a}");
                assert_eq!(field.mul(field.divide(a, 3), 3), a, "m {m}: {a} / 3");
            }
        }
    }

    #[test]
    fn rows_of_traces_hold_the_conjugates_of_a_basis() {
        for m in DEGREES {
            let field = Field::of_degree(m);
            for (k, row) in field.traces.iter().enumerate() {
                for (i, &value) in row[..m as usize].iter().enumerate() {
                    assert_eq!(value, field.exp((k as u32 * (1 << i)) % field.order), "m {m}");
                }
            }
        }
    }
}
