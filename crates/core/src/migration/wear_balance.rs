//! The balance of wear between PCM and flash (hybrid SSD cache, section V-C): which share of the writes
//! must go to the SSD so that both wear out at the same time, and by how much the writes so far differ.
//!
//! Endurance ratio = size x endurance of the PCM over that of the SSD. Of a period's writes, period /
//! (ratio + 1) are expected at the SSD. The write disparity is the sum over all periods of actual less
//! expected SSD writes, as the paper's formula has it; its text subtracts the other way round.

/// The number of SSD writes that a period is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpectedWrites {
    /// The SSD's share of the writes to PCM and SSD that the period had.
    #[default]
    OfActual,
    /// As printed: the SSD's share of the period's length, whatever the DRAM absorbed.
    OfPeriod,
}

/// The state of the balance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WearBalance {
    expected: ExpectedWrites,
    /// SSD writes of a period: the paper's `SSD_writes`.
    ssd_writes: f64,
    /// The SSD's share of all writes to PCM and SSD.
    ssd_share: f64,
    disparity: f64,
}

impl WearBalance {
    /// The balance before the first write, for periods of `period` writes. `endurance_ratio` is at
    /// least 0.
    #[must_use]
    pub fn new(expected: ExpectedWrites, endurance_ratio: f64, period: u32) -> Self {
        let ssd_share = 1.0 / (endurance_ratio + 1.0);
        Self { expected, ssd_writes: f64::from(period) * ssd_share, ssd_share, disparity: 0.0 }
    }

    /// The SSD writes wanted of a period: `SSD_writes`.
    #[must_use]
    pub fn ssd_writes(&self) -> f64 {
        self.ssd_writes
    }

    /// Actual less expected SSD writes since the start: `WriteDisparity`.
    #[must_use]
    pub fn disparity(&self) -> f64 {
        self.disparity
    }

    /// Ends a period with these numbers of pages written to PCM and to the SSD.
    pub fn end_period(&mut self, pcm_writes: u64, ssd_writes: u64) {
        let expected = match self.expected {
            ExpectedWrites::OfActual => (pcm_writes + ssd_writes) as f64 * self.ssd_share,
            ExpectedWrites::OfPeriod => self.ssd_writes,
        };
        self.disparity += ssd_writes as f64 - expected;
    }
}
