//! HPCC RandomAccess (GUPS).
//!
//! The sequence is a shift register over the polynomial 7: `a' = (a << 1) ^ (7 if a's top bit is
//! set else 0)`, starting after 1. The table has a power of two words of 8 bytes. The update of `a`
//! loads word `a mod words`, XORs it with `a` and stores it. There are four updates per word.

use super::RecordSource;
use super::spec::{Spec, SpecFault};
use crate::record::{Item, MemRef, MemoryAccess};

const POLY: u64 = 7;

/// The number that follows `a` in the sequence.
#[inline]
pub fn hpcc_step(a: u64) -> u64 {
    a << 1 ^ if a >> 63 == 1 { POLY } else { 0 }
}

/// Product of two polynomials over GF(2) modulo x^64 + x^2 + x + 1.
fn multiply(a: u64, mut b: u64) -> u64 {
    let (mut shifted, mut product) = (a, 0);
    while b != 0 {
        if b & 1 == 1 {
            product ^= shifted;
        }
        shifted = hpcc_step(shifted);
        b >>= 1;
    }
    product
}

/// Returns the `n`-th number of the sequence; number 0 is 1. A step multiplies by x, so the result
/// is x^n.
pub fn hpcc_starts(n: u64) -> u64 {
    let (mut power, mut result, mut n) = (2, 1, n);
    while n != 0 {
        if n & 1 == 1 {
            result = multiply(result, power);
        }
        power = multiply(power, power);
        n >>= 1;
    }
    result
}

pub(super) struct Gups {
    streams: Vec<u64>,
    turn: usize,
    mask: u64,
    base: u64,
    gap: u32,
    left: u64,
    store: Option<u64>,
}

impl Gups {
    pub(super) fn new(spec: &Spec) -> Result<Gups, SpecFault> {
        let table = spec.int("table");
        if table < 8 || !table.is_power_of_two() {
            return Err(SpecFault::value("table", "a power of two, at least 8B (HPCC RandomAccess)"));
        }
        let base = spec.int("base");
        if base.checked_add(table).is_none() {
            return Err(SpecFault::Values("base plus table passes 2^64".to_string()));
        }
        let words = table / 8;
        let updates = match spec.int("updates") {
            0 => 4 * words,
            n => n,
        };
        let streams = spec.int_in("streams", 1..=4096)?;
        let start = spec.int("start");
        let share = updates / streams;
        let streams = (0..streams).map(|j| hpcc_starts(start.wrapping_add(share * j))).collect();
        let gap = spec.int_in("gap", 0..=u64::from(u32::MAX))? as u32;
        Ok(Gups { streams, turn: 0, mask: words - 1, base, gap, left: updates, store: None })
    }
}

impl RecordSource for Gups {
    #[inline]
    fn next(&mut self) -> Option<Item> {
        let item = |addr, access| Some(Item::Mem(MemRef { gap: self.gap, addr, size: 8, access }));
        if let Some(addr) = self.store.take() {
            return item(addr, MemoryAccess::Store);
        }
        self.left = self.left.checked_sub(1)?;
        let a = hpcc_step(self.streams[self.turn]);
        self.streams[self.turn] = a;
        self.turn = if self.turn + 1 == self.streams.len() { 0 } else { self.turn + 1 };
        let addr = self.base + (a & self.mask) * 8;
        self.store = Some(addr);
        item(addr, MemoryAccess::Load)
    }

    fn ends(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_follow_the_published_recurrence() {
        let mut a = 1u64;
        let mut values = vec![a];
        for _ in 0..70 {
            a = (a << 1) ^ (if (a as i64) < 0 { 7 } else { 0 });
            values.push(a);
        }
        assert_eq!(values[..4], [1, 2, 4, 8]);
        assert_eq!(values[63..67], [1 << 63, 7, 14, 28]);
        for (n, value) in values.iter().enumerate() {
            assert_eq!(hpcc_starts(n as u64), *value);
        }
    }

    #[test]
    fn a_jump_lands_where_steps_lead() {
        let mut a = hpcc_starts(1_000_000);
        for n in 1_000_001..1_001_000 {
            a = hpcc_step(a);
            assert_eq!(hpcc_starts(n), a);
        }
    }

    #[test]
    fn the_period_divides_what_hpcc_states() {
        // HPCC's PERIOD: 1317624576693539401.
        assert_eq!(hpcc_starts(1_317_624_576_693_539_401), 1);
    }
}
