//! Memory arrays inside a device: the DRAM and PCM partitions of the hybrid SSD cache (hybrid SSD cache,
//! Table V). Time and energy are those of whole-page accesses, plus leakage.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, total_energy};
use crate::model::{InvalidFigure, kind, words};
use crate::value::{Picojoules, Watts, WattsPerByte};

words! {
    /// Memory technology of an array.
    Cells {
        /// Dynamic memory.
        Dram = "dram",
        /// Phase-change memory.
        Pcm = "pcm",
    }
}

kind! {
    /// One memory array and its tags.
    Array = "array";
    parts {}
    fields {
        /// Memory technology.
        cells: Cells,
        /// Size of the array.
        size: Bytes,
        /// Size of a page: the access that the latencies and energies below apply to.
        page: Bytes,
        /// Bytes that one operation of the array transfers.
        width: Bytes,
        /// Time of a page read.
        read: Picos,
        /// Time of a page write.
        write: Picos,
        /// Energy of a page read.
        read_energy: Picojoules,
        /// Energy of a page write.
        write_energy: Picojoules,
        /// Leakage power of the array.
        leakage: Watts,
        /// Leakage power of the tags, per byte of the array.
        tag_leakage: WattsPerByte,
        /// Endurance of a cell, in writes; absent if cells do not wear.
        endurance: Option<u64>,
    }
    derived {
        /// page over width
        accesses: u64 = |a| (a.page.0 / a.width.0) as f64,
        /// size over page
        pages: u64 = |a| (a.size.0 / a.page.0) as f64,
        /// leakage + tag leakage x size
        total_leakage: Watts = |a| a.static_power().0,
    }
}

impl Array {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if self.width.0 == 0 || self.page.0 == 0 || !self.page.0.is_multiple_of(self.width.0) {
            return Err(InvalidFigure::new("width", "must divide the page size, and neither may be 0"));
        }
        if !self.size.0.is_multiple_of(self.page.0) {
            return Err(InvalidFigure::new("size", "must be a whole number of pages"));
        }
        Ok(())
    }

    /// Leakage power of array and tags.
    pub fn static_power(&self) -> Watts {
        Watts(self.leakage.0 + self.tag_leakage.0 * self.size.0 as f64)
    }

    /// Energy of `reads` page reads and `writes` page writes, and of leakage over `time`.
    pub fn energy(&self, reads: u64, writes: u64, time: Picos) -> Energy {
        total_energy(
            &[(reads, self.read_energy.into()), (writes, self.write_energy.into())],
            self.static_power(),
            time,
        )
    }
}
