//! Energy as the sum that it is: operations x cost + power x time.

use deepram_core::units::Picos;
use std::ops::{Add, AddAssign};

use crate::value::{Amperes, Picojoules, PicojoulesPerBit, Volts, Watts};

/// Energy in picojoules. Costs computed from currents are not whole, so this is a real number; sums are
/// taken in program order and are therefore the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Energy(pub f64);

impl Energy {
    /// The energy in joules.
    pub fn joules(self) -> f64 {
        self.0 * 1e-12
    }

    /// `count` times this cost.
    pub fn times(self, count: u64) -> Energy {
        Energy(self.0 * count as f64)
    }
}

impl Add for Energy {
    type Output = Energy;
    fn add(self, other: Energy) -> Energy {
        Energy(self.0 + other.0)
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, other: Energy) {
        self.0 += other.0;
    }
}

impl From<Picojoules> for Energy {
    fn from(cost: Picojoules) -> Energy {
        Energy(cost.0 as f64)
    }
}

/// Power over time: what leakage, refresh and standby cost. A watt is a picojoule a picosecond.
pub fn power_energy(power: Watts, time: Picos) -> Energy {
    Energy(power.0 * time.0 as f64)
}

/// Supply x current x time.
pub fn current_energy(supply: Volts, current: Amperes, time: Picos) -> Energy {
    Energy(supply.0 * current.0 * time.0 as f64)
}

/// The energy of `bytes` bytes at a cost a bit.
pub fn bit_energy(cost: PicojoulesPerBit, bytes: u64) -> Energy {
    Energy(cost.0 * 8.0 * bytes as f64)
}

/// Operations x cost + power x time.
pub fn total(operations: &[(u64, Energy)], power: Watts, time: Picos) -> Energy {
    operations.iter().fold(power_energy(power, time), |sum, (count, cost)| sum + cost.times(*count))
}
