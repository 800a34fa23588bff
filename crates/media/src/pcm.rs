//! Phase-change memory: read and write at line grain, no erase, no refresh.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, bit_energy};
use crate::model::{Fault, kind};
use crate::value::{PicojoulesPerBit, WattsPerByte};

kind! {
    /// A phase-change memory.
    Pcm = "pcm";
    parts {}
    fields {
        /// Bytes of one access.
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
        /// Power that it leaks, by capacity.
        leakage: WattsPerByte,
        /// Writes that a cell is good for.
        endurance: u64,
    }
    derived {}
}

impl Pcm {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.line.0 == 0 || self.line.0 > 1 << 20 {
            return Err(Fault::new("line", "must be 1 B to 1 MiB"));
        }
        Ok(())
    }

    /// Time of `bytes`, line after line.
    pub fn access(&self, bytes: Bytes, write: bool) -> Picos {
        let lines = bytes.0.div_ceil(self.line.0);
        if write { self.write } else { self.read }.times(lines)
    }

    /// Energy of reading `bytes`, in whole lines.
    pub fn energy_of_read(&self, bytes: Bytes) -> Energy {
        bit_energy(self.read_energy, self.whole_lines(bytes))
    }

    /// Energy of writing `bytes`, in whole lines, of whose bits the share `ones` is 1.
    pub fn energy_of_write(&self, bytes: Bytes, ones: f64) -> Energy {
        let bytes = self.whole_lines(bytes);
        let ones = ones.clamp(0.0, 1.0);
        Energy(
            bit_energy(self.write_energy_one, bytes).0 * ones
                + bit_energy(self.write_energy_zero, bytes).0 * (1.0 - ones),
        )
    }

    fn whole_lines(&self, bytes: Bytes) -> u64 {
        bytes.0.div_ceil(self.line.0).saturating_mul(self.line.0)
    }
}
