//! Phase-change memory (PCM): reads and writes of lines, without erase or refresh.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, bit_energy};
use crate::model::{InvalidFigure, kind};
use crate::value::{PicojoulesPerBit, WattsPerByte};

kind! {
    /// A phase-change memory.
    Pcm = "pcm";
    parts {}
    fields {
        /// Size of a line: the unit of access.
        line: Bytes,
        /// Time of a line read.
        read: Picos,
        /// Time of a line write.
        write: Picos,
        /// Energy of reading a bit.
        read_energy: PicojoulesPerBit,
        /// Energy of writing a 0 (crystalline to amorphous).
        write_energy_zero: PicojoulesPerBit,
        /// Energy of writing a 1.
        write_energy_one: PicojoulesPerBit,
        /// Leakage power, per byte of capacity.
        leakage: WattsPerByte,
        /// Endurance of a cell, in writes.
        endurance: u64,
    }
    derived {}
}

impl Pcm {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if self.line.0 == 0 || self.line.0 > 1 << 20 {
            return Err(InvalidFigure::new("line", "must be 1 B to 1 MiB"));
        }
        Ok(())
    }

    /// Time of an access of `bytes`, one line after the other.
    pub fn access(&self, bytes: Bytes, write: bool) -> Picos {
        let lines = bytes.0.div_ceil(self.line.0);
        if write { self.write } else { self.read }.times(lines)
    }

    /// Energy of reading `bytes`, in whole lines.
    pub fn energy_of_read(&self, bytes: Bytes) -> Energy {
        bit_energy(self.read_energy, self.whole_lines(bytes))
    }

    /// Energy of writing `bytes`, in whole lines; `ones` is the share of bits that are 1.
    pub fn energy_of_write(&self, bytes: Bytes, ones: f64) -> Energy {
        let bytes = self.whole_lines(bytes);
        let ones = ones.clamp(0.0, 1.0);
        Energy(
            bit_energy(self.write_energy_one, bytes).0 * ones
                + bit_energy(self.write_energy_zero, bytes).0 * (1.0 - ones),
        )
    }

    fn whole_lines(&self, bytes: Bytes) -> Bytes {
        Bytes(bytes.0.div_ceil(self.line.0).saturating_mul(self.line.0))
    }
}
