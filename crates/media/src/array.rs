//! Arrays inside a device: the DRAM and PCM partitions of the hybrid SSD cache (Table V), whose cost is
//! an access of a whole page and leakage.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, total};
use crate::model::{Fault, kind, words};
use crate::value::{Picojoules, Watts, WattsPerByte};

words! {
    /// What an array is made of.
    Cells {
        /// Dynamic memory.
        Dram = "dram",
        /// Phase-change memory.
        Pcm = "pcm",
    }
}

kind! {
    /// One array and its tags.
    Array = "array";
    parts {}
    fields {
        /// What it is made of.
        cells: Cells,
        /// Bytes of the array.
        size: Bytes,
        /// Bytes that the latencies and energies below are for.
        page: Bytes,
        /// Bytes of one access of the array.
        width: Bytes,
        /// Time of a page read.
        read: Picos,
        /// Time of a page write.
        write: Picos,
        /// Energy of a page read.
        read_energy: Picojoules,
        /// Energy of a page write.
        write_energy: Picojoules,
        /// Power that the array leaks.
        leakage: Watts,
        /// Power that the tags leak, by bytes of the array.
        tag_leakage: WattsPerByte,
        /// Writes that a cell is good for; absent where they do not wear.
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
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.width.0 == 0 || self.page.0 == 0 || !self.page.0.is_multiple_of(self.width.0) {
            return Err(Fault::new("width", "must divide the page, and neither may be 0"));
        }
        if !self.size.0.is_multiple_of(self.page.0) {
            return Err(Fault::new("size", "must be a whole number of pages"));
        }
        Ok(())
    }

    /// Power that array and tags leak.
    pub fn static_power(&self) -> Watts {
        Watts(self.leakage.0 + self.tag_leakage.0 * self.size.0 as f64)
    }

    /// Energy of `reads` page reads, `writes` page writes and `time` of leakage.
    pub fn energy(&self, reads: u64, writes: u64, time: Picos) -> Energy {
        total(
            &[(reads, self.read_energy.into()), (writes, self.write_energy.into())],
            self.static_power(),
            time,
        )
    }
}
