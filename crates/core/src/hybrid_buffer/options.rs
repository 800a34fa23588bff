//! Options of a hybrid write buffer.

use crate::migration::{CoolnessForm, ExpectedWrites, FilterDecay, HotnessForm};

/// One of the two memories of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The DRAM partition, which is volatile.
    Dram = 0,
    /// The PCM partition, which keeps its data without power and wears out.
    Pcm = 1,
}

/// The organisation of the buffer (hybrid SSD cache, section III and Figure 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// One partition, of DRAM.
    DramOnly,
    /// One partition, of PCM.
    PcmOnly,
    /// 2L: pages enter DRAM, retire to PCM, and then go to flash.
    TwoLevel,
    /// TS: flat; pages enter PCM, hot ones move to DRAM, victims of both go to flash.
    ToSsd,
    /// TP: as TS, but victims of DRAM go to PCM unless they are cold.
    ToPcm,
}

impl Scheme {
    /// True if the hotness and coolness thresholds decide.
    #[must_use]
    pub fn is_flat(self) -> bool {
        matches!(self, Scheme::ToSsd | Scheme::ToPcm)
    }

    /// The memory that a page enters.
    pub(super) fn entry(self) -> Memory {
        match self {
            Scheme::DramOnly | Scheme::TwoLevel => Memory::Dram,
            Scheme::PcmOnly | Scheme::ToSsd | Scheme::ToPcm => Memory::Pcm,
        }
    }
}

/// The choice of the hotness threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hotness {
    /// Algorithm 2.
    Adaptive(HotnessForm),
    /// Algorithm 2, its registers scaled from the pages of a period to the resident pages.
    Scaled(HotnessForm),
    /// A constant.
    Fixed(u8),
}

/// The choice of the coolness threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coolness {
    /// Algorithm 3.
    Adaptive(CoolnessForm),
    /// No wear control: every page enters the PCM.
    Off,
}

/// Options of a hybrid write buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HybridOptions {
    /// Organisation.
    pub scheme: Scheme,
    /// Pages of the DRAM partition.
    pub dram_pages: u32,
    /// Pages of the PCM partition.
    pub pcm_pages: u32,
    /// Sectors of a page, 1 to 32.
    pub page_sectors: u32,
    /// Length of a period, page writes; at least 1.
    pub period: u32,
    /// Page reads count towards the length of a period, as "page accesses" can be read.
    pub reads_end_periods: bool,
    /// The hotness threshold.
    pub hotness: Hotness,
    /// The coolness threshold.
    pub coolness: Coolness,
    /// Writes that the PCM endures for each write that the SSD endures.
    pub endurance_ratio: f64,
    /// The SSD writes that a period is compared with.
    pub expected: ExpectedWrites,
    /// The change of the admission filters at a period's end.
    pub decay: FilterDecay,
    /// Size of each Bloom filter, bytes.
    pub filter_bytes: u32,
    /// Bits that a Bloom filter sets for a page.
    pub filter_hashes: u32,
    /// The memory that receives the write that promotes its page.
    pub promoting_write: Memory,
    /// 2L: a write of a page in PCM moves it back to DRAM; otherwise it is written in place.
    pub write_hit_moves: bool,
    /// A page that moves between the memories starts with a count of 1; otherwise it keeps its count.
    pub move_resets_count: bool,
    /// A partial write of a page that is not in the buffer reads the rest of the page from flash;
    /// otherwise only the written sectors are valid.
    pub fetch_on_write: bool,
}

impl HybridOptions {
    /// The sectors of a whole page.
    #[must_use]
    pub fn full_page(&self) -> u32 {
        u32::MAX >> (32 - self.page_sectors.clamp(1, 32))
    }
}
