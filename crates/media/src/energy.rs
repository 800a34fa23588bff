//! Energy: operations x energy of each + power x time.

use deepram_core::units::{Bytes, Picos};
use std::ops::{Add, AddAssign};

use crate::value::{Amperes, Picojoules, PicojoulesPerBit, Volts, Watts};

/// Energy in picojoules. Energies computed from currents are not whole, so this is a real number. Sums
/// are taken in program order, so the results are the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Energy(pub f64);

impl Energy {
    /// The energy in joules.
    pub fn joules(self) -> f64 {
        self.0 * 1e-12
    }

    /// `count` times this energy.
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

/// Energy of leakage, refresh or standby: power x time. A watt is a picojoule a picosecond.
pub fn power_energy(power: Watts, time: Picos) -> Energy {
    Energy(power.0 * time.0 as f64)
}

/// Energy of a current: supply voltage x current x time.
pub fn current_energy(supply: Volts, current: Amperes, time: Picos) -> Energy {
    Energy(supply.0 * current.0 * time.0 as f64)
}

/// Energy of moving or storing `bytes` at an energy per bit.
pub fn bit_energy(cost: PicojoulesPerBit, bytes: Bytes) -> Energy {
    Energy(cost.0 * 8.0 * bytes.0 as f64)
}

/// Total energy: the sum of operations x energy of each, plus power x time.
pub fn total_energy(operations: &[(u64, Energy)], power: Watts, time: Picos) -> Energy {
    operations.iter().fold(power_energy(power, time), |sum, (count, cost)| sum + cost.times(*count))
}
