//! The flash global status table (FGST): how fast the cache satisfies requests (flash disk cache, section
//! 3.1). The policy uses its counts to weigh the loss of a page.

use crate::units::Picos;

/// The part of the hierarchy that satisfied a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The primary disk cache, in DRAM.
    Dram = 0,
    /// The secondary disk cache, in flash.
    Flash = 1,
    /// The disk.
    Disk = 2,
}

/// The table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GlobalStatus {
    /// Reads satisfied by each [`Level`] since the start.
    pub reads: [u64; 3],
    /// Time of these reads, picoseconds.
    pub times: [u64; 3],
    /// Reads of flash and of the disk that are halved from time to time, as the reads of pages are.
    recent: [u64; 3],
}

impl GlobalStatus {
    /// Counts a read.
    #[inline]
    pub fn count(&mut self, level: Level) {
        self.reads[level as usize] += 1;
        self.recent[level as usize] += 1;
    }

    /// Adds the time of a read that was counted.
    #[inline]
    pub fn add_time(&mut self, level: Level, time: Picos) {
        let sum = &mut self.times[level as usize];
        *sum = sum.saturating_add(time.0);
    }

    /// Halves the recent reads.
    pub fn age(&mut self) {
        self.recent.iter_mut().for_each(|reads| *reads /= 2);
    }

    /// Recent reads that flash and DRAM missed.
    #[must_use]
    pub fn recent_misses(&self) -> u64 {
        self.recent[Level::Disk as usize]
    }

    /// Reads that flash and DRAM missed, as a share of the reads that DRAM missed; 0 without any.
    #[must_use]
    pub fn miss_rate(&self) -> f64 {
        let [_, flash, disk] = self.reads;
        if flash + disk == 0 { 0.0 } else { disk as f64 / (flash + disk) as f64 }
    }
}
