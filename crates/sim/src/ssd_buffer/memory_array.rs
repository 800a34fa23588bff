//! A memory of the buffer in time: one access after the other, each as long as the preset says, and the
//! energy and wear of the accesses.

use deepram_media::{AccessCharge, Array};

use crate::engine::Time;

/// Accesses of a memory, in sectors as they are charged and in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ArrayCounts {
    /// Sectors read and written, as charged: those of the whole page where an access is charged so.
    pub(crate) sectors: [u64; 2],
    /// Accesses: pages read and written, whole or in part.
    pub(crate) pages: [u64; 2],
    /// Time of the accesses.
    pub(crate) busy: Time,
}

impl ArrayCounts {
    fn since(&self, base: &Self) -> Self {
        let minus = |all: [u64; 2], before: [u64; 2]| [all[0] - before[0], all[1] - before[1]];
        Self {
            sectors: minus(self.sectors, base.sectors),
            pages: minus(self.pages, base.pages),
            busy: self.busy - base.busy,
        }
    }
}

const READ: usize = 0;
const WRITE: usize = 1;

/// A serial memory array.
pub(crate) struct MemoryArray {
    array: Array,
    page_sectors: u32,
    /// The time of a read and of a write of each number of sectors.
    times: [Vec<Time>; 2],
    /// The sectors that an access of each number of sectors is charged.
    charged: Vec<u32>,
    /// The end of the last access.
    free: Time,
    counts: ArrayCounts,
    base: ArrayCounts,
}

impl MemoryArray {
    pub(crate) fn new(array: &Array, page_sectors: u32, charge: AccessCharge) -> Self {
        let charged: Vec<u32> = (0..=page_sectors)
            .map(|sectors| if charge == AccessCharge::Page { page_sectors } else { sectors })
            .collect();
        let of_share = |whole: Time| {
            let share = |sectors: &u32| whole * u64::from(*sectors) / u64::from(page_sectors);
            charged.iter().map(share).collect()
        };
        Self {
            times: [of_share(array.read.0), of_share(array.write.0)],
            array: array.clone(),
            page_sectors,
            charged,
            free: 0,
            counts: ArrayCounts::default(),
            base: ArrayCounts::default(),
        }
    }

    #[inline]
    fn access(&mut self, kind: usize, sectors: u32, from: Time) -> Time {
        let time = self.times[kind][sectors as usize];
        self.free = self.free.max(from) + time;
        self.counts.sectors[kind] += u64::from(self.charged[sectors as usize]);
        self.counts.pages[kind] += 1;
        self.counts.busy += time;
        self.free
    }

    /// Reads this number of sectors of a page, not before `from`. Returns the end.
    #[inline]
    pub(crate) fn read(&mut self, sectors: u32, from: Time) -> Time {
        self.access(READ, sectors, from)
    }

    /// Writes this number of sectors of a page, not before `from`. Returns the end.
    #[inline]
    pub(crate) fn write(&mut self, sectors: u32, from: Time) -> Time {
        self.access(WRITE, sectors, from)
    }

    /// Pages written since the start, whole or in part.
    pub(crate) fn total_writes(&self) -> u64 {
        self.counts.pages[WRITE]
    }

    /// The end of the last access.
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    pub(crate) fn begin_measuring(&mut self) {
        self.base = self.counts;
    }

    /// The accesses since measuring began.
    pub(crate) fn counts(&self) -> ArrayCounts {
        self.counts.since(&self.base)
    }

    /// Energy of the accesses and of leakage over `time`, picojoules.
    pub(crate) fn energy_pj(&self, time: Time) -> (f64, f64) {
        let [read, written] = self.counts().sectors.map(|sectors| sectors as f64);
        let a_page = f64::from(self.page_sectors);
        let dynamic =
            (read * self.array.read_energy.0 as f64 + written * self.array.write_energy.0 as f64) / a_page;
        // A watt is a picojoule a picosecond.
        (dynamic, self.array.leakage.0 * time as f64)
    }
}
