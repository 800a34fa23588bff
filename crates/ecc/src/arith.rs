//! Arithmetic on vectors of field elements. The decoder is generic over it.

use crate::field::Field;

/// Elements that an operation may process at once. Operations on `len` elements read and write as many as `len`
/// rounded up to a multiple of this number, or read one multiple more where they say so.
pub(crate) const LANES: usize = 4;

/// Length of a polynomial: degree 64 and below, and what operations read beyond.
pub(crate) const POLY_LEN: usize = 72;

/// Coefficients of a polynomial, the leading one first. All beyond the degree are 0.
pub(crate) type Poly = [u32; POLY_LEN];

/// Operations on vectors of elements of one field.
pub(crate) trait Arith: Copy {
    /// The field.
    fn field(self) -> &'static Field;

    /// a · b.
    fn mul(self, a: u32, b: u32) -> u32;

    /// Σ a\[i\] · b\[n − 1 − i\] over slices of one length n, a multiple of [`LANES`].
    fn convolve(self, a: &[u32], b: &[u32]) -> u32;

    /// sum\[i\] = y\[i\] + factor · x\[i\] for i < len.
    fn add_scaled(self, sum: &mut [u32], y: &[u32], factor: u32, x: &[u32], len: usize);

    /// a\[i\] = a\[i + 1\] + a\[0\] · b\[i + 1\] for i < len: a times x modulo a monic b. Reads more.
    fn shift(self, a: &mut [u32], b: &[u32], len: usize);

    /// [`shift`](Self::shift) twice. Reads more.
    fn shift_twice(self, a: &mut [u32], b: &[u32], len: usize);

    /// a\[i\] = b\[0\] · a\[i + 1\] + a\[0\] · b\[i + 1\] for i < len: one step of division without inversion. Reads
    /// more.
    fn eliminate(self, a: &mut [u32], b: &[u32], len: usize);

    /// [`eliminate`](Self::eliminate) twice, with `len + 1` and `len` elements. Reads more.
    fn eliminate_twice(self, a: &mut [u32], b: &[u32], len: usize);

    /// Long division by a monic divisor: the first `steps` elements, a multiple of [`LANES`], become the quotient, the
    /// next `degree` the remainder, leading coefficients first.
    fn divide(self, a: &mut [u32], steps: usize, divisor: &[u32], degree: usize);

    /// squares\[i\] = x\[i\]² for i < len.
    fn square(self, squares: &mut [u32], x: &[u32], len: usize);

    /// a\[i\] = a\[i\] · b\[i\] for i < len.
    fn multiply_each(self, a: &mut [u32], b: &[u32], len: usize);

    /// The square of a polynomial below the degree `degree`, modulo one of this degree. Row i is x^(2·(degree − 1 − i))
    /// modulo the same polynomial, for the `degree / 2` powers that reach the degree.
    fn square_modulo<const ROW: usize>(
        self,
        square: &mut [u32; ROW],
        x: &[u32; ROW],
        rows: &[[u32; ROW]],
        degree: usize,
    );

    /// sum\[i\] = Σ factors\[k\] · rows\[k\]\[i\] for i < len.
    fn combine<const ROW: usize>(
        self,
        sum: &mut [u32; ROW],
        factors: &[u32],
        rows: &[[u32; ROW]],
        len: usize,
    );
}

/// Arithmetic with tables of logarithms.
#[derive(Clone, Copy)]
pub(crate) struct LogArith(pub(crate) &'static Field);

/// Multiplies by one factor.
#[derive(Clone, Copy)]
struct Factor {
    field: &'static Field,
    log: Option<u32>,
}

impl Factor {
    fn new(field: &'static Field, factor: u32) -> Self {
        Self { field, log: (factor != 0).then(|| field.log(factor)) }
    }

    fn times(self, x: u32) -> u32 {
        match self.log {
            Some(log) if x != 0 => self.field.exp(log + self.field.log(x)),
            _ => 0,
        }
    }
}

impl Arith for LogArith {
    fn field(self) -> &'static Field {
        self.0
    }

    fn mul(self, a: u32, b: u32) -> u32 {
        self.0.mul(a, b)
    }

    fn convolve(self, a: &[u32], b: &[u32]) -> u32 {
        a.iter().zip(b.iter().rev()).fold(0, |sum, (&a, &b)| sum ^ self.0.mul(a, b))
    }

    fn add_scaled(self, sum: &mut [u32], y: &[u32], factor: u32, x: &[u32], len: usize) {
        let factor = Factor::new(self.0, factor);
        for ((sum, &y), &x) in sum[..len].iter_mut().zip(y).zip(x) {
            *sum = y ^ factor.times(x);
        }
    }

    fn shift(self, a: &mut [u32], b: &[u32], len: usize) {
        let factor = Factor::new(self.0, a[0]);
        for i in 0..len {
            a[i] = a[i + 1] ^ factor.times(b[i + 1]);
        }
    }

    fn eliminate(self, a: &mut [u32], b: &[u32], len: usize) {
        let (of_a, of_b) = (Factor::new(self.0, b[0]), Factor::new(self.0, a[0]));
        for i in 0..len {
            a[i] = of_a.times(a[i + 1]) ^ of_b.times(b[i + 1]);
        }
    }

    fn shift_twice(self, a: &mut [u32], b: &[u32], len: usize) {
        let first = Factor::new(self.0, a[0]);
        let second = Factor::new(self.0, a[1] ^ first.times(b[1]));
        for i in 0..len {
            a[i] = a[i + 2] ^ first.times(b[i + 2]) ^ second.times(b[i + 1]);
        }
    }

    fn eliminate_twice(self, a: &mut [u32], b: &[u32], len: usize) {
        let of_a = Factor::new(self.0, self.0.square(b[0]));
        let of_b = Factor::new(self.0, self.0.mul(a[0], b[0]));
        let of_shifted = Factor::new(self.0, self.0.mul(b[0], a[1]) ^ self.0.mul(a[0], b[1]));
        for i in 0..len {
            a[i] = of_a.times(a[i + 2]) ^ of_b.times(b[i + 2]) ^ of_shifted.times(b[i + 1]);
        }
    }

    fn divide(self, a: &mut [u32], steps: usize, divisor: &[u32], degree: usize) {
        for step in 0..steps {
            let leading = Factor::new(self.0, a[step]);
            for (rest, &x) in a[step + 1..=step + degree].iter_mut().zip(&divisor[1..]) {
                *rest ^= leading.times(x);
            }
        }
    }

    fn square(self, squares: &mut [u32], x: &[u32], len: usize) {
        for (square, &x) in squares[..len].iter_mut().zip(x) {
            *square = self.0.square(x);
        }
    }

    fn multiply_each(self, a: &mut [u32], b: &[u32], len: usize) {
        for (a, &b) in a[..len].iter_mut().zip(b) {
            *a = self.0.mul(*a, b);
        }
    }

    fn square_modulo<const ROW: usize>(
        self,
        square: &mut [u32; ROW],
        x: &[u32; ROW],
        rows: &[[u32; ROW]],
        degree: usize,
    ) {
        let mut squares = [0; ROW];
        self.square(&mut squares, x, degree);
        let reduced = degree / 2;
        self.combine(square, &squares[..reduced], &rows[..reduced], degree);
        for i in reduced..degree {
            square[2 * i + 1 - degree] ^= squares[i];
        }
    }

    fn combine<const ROW: usize>(
        self,
        sum: &mut [u32; ROW],
        factors: &[u32],
        rows: &[[u32; ROW]],
        len: usize,
    ) {
        sum.fill(0);
        for (&factor, row) in factors.iter().zip(rows) {
            let factor = Factor::new(self.0, factor);
            if factor.log.is_some() {
                for (sum, &x) in sum[..len].iter_mut().zip(row) {
                    *sum ^= factor.times(x);
                }
            }
        }
    }
}
