//! Flash whose cells wear: the errors of each read, from the model of [`deepram_media::PageErrors`].
//!
//! 1. A page has a factor and a sequence of bits in the order in which they fail. Both depend on the seed
//!    and the page alone, so that two controllers wear the same flash.
//! 2. The bits of a page are those of its cells: multi-level cells store two pages, single-level cells one,
//!    that of the first. When the density changes, the bits last as long as the new density allows.
//! 3. Transient errors come from one stream of random numbers in the order of the reads.

use deepram_core::disk_cache::{FlashReads, PhysicalPage, ReadErrors};
use deepram_core::reliability::Density;
use deepram_media::{BitErrors, DiskCacheServer, FailingBits, Lognormal, PageErrors, PageUse, poisson};
use deepram_trace::workload::Rng;

use crate::engine::Time;

const PICOS_A_DAY: f64 = 86_400e12;

/// The bits of a page that have failed, and the next that fails.
#[derive(Debug, Clone, Copy)]
struct PageBits {
    density: Density,
    failed: u32,
    bits: FailingBits,
    /// Share of the bits that have failed when the next one fails; `None` before the first use.
    next_share: Option<f64>,
    programmed: Time,
}

/// The flash; see the module.
#[derive(Debug, Clone)]
pub struct WearingFlash {
    seed: u64,
    scale: f64,
    factors: Lognormal,
    /// Errors of single-level and multi-level cells.
    errors: [PageErrors; 2],
    transient: bool,
    pages: Vec<PageBits>,
    /// Reads of each block since its last erase.
    block_reads: Vec<u32>,
    random: Rng,
    /// The present, for the age of data.
    now: Time,
    /// Reads, and their errors of both kinds.
    totals: [u64; 3],
}

/// A uniform number below 1 that depends on its arguments alone (the finalizer of SplitMix64, twice).
fn uniform(seed: u64, page: u32, number: u32) -> f64 {
    let mix = |value: u64| {
        let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ value >> 31
    };
    let key = mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15));
    let bits = mix(key ^ (u64::from(page) << 32 | u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

impl WearingFlash {
    /// Fresh flash of a server.
    #[must_use]
    pub fn new(server: &DiskCacheServer, seed: u64) -> Self {
        let blocks = server.blocks();
        let bits = server.mlc.page.0 * 8;
        let of_cells = |endurance| server.errors.of_pages(endurance, bits);
        let model: &BitErrors = &server.errors;
        let errors = [of_cells(server.slc.endurance), of_cells(server.mlc.endurance)];
        let fresh = PageBits {
            density: Density::Mlc,
            failed: 0,
            bits: errors[0].failing_bits(),
            next_share: None,
            programmed: 0,
        };
        Self {
            seed: Rng::new(seed, "flash cells").bits(),
            scale: server.wear_scale.0,
            factors: model.page_factors(),
            errors,
            transient: model.transient.0 + model.retention_day.0 + model.read_disturb.0 > 0.0,
            pages: vec![fresh; (blocks * server.mlc.pages_per_block) as usize],
            block_reads: vec![0; blocks as usize],
            random: Rng::new(seed, "flash reads"),
            now: 0,
            totals: [0; 3],
        }
    }

    /// Sets the present.
    pub(crate) fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    /// A page was programmed.
    pub(crate) fn programmed(&mut self, page: PhysicalPage) {
        self.pages[page.page.0 as usize].programmed = self.now;
    }

    /// A block was erased.
    pub(crate) fn erased(&mut self, block: u32) {
        self.block_reads[block as usize] = 0;
    }

    /// Reads, errors of worn bits, and transient errors since the start.
    #[must_use]
    pub fn totals(&self) -> [u64; 3] {
        self.totals
    }

    fn errors_of(&self, density: Density) -> &PageErrors {
        &self.errors[usize::from(density == Density::Mlc)]
    }

    /// The bits of a page that have failed after so many cycles.
    fn failed(&mut self, page: PhysicalPage, cycles: f64) -> u32 {
        let number = page.page.0;
        let factor = self.factors.quantile(uniform(self.seed, number, 0));
        let errors = &self.errors[usize::from(page.density == Density::Mlc)];
        let state = &mut self.pages[number as usize];
        if state.next_share.is_none() || state.density != page.density {
            let mut bits = errors.failing_bits();
            let next_share = bits.next_share(uniform(self.seed, number, 1));
            *state =
                PageBits { density: page.density, failed: 0, bits, next_share, programmed: state.programmed };
        }
        while let Some(share) = state.next_share
            && errors.lifetime(share, factor) <= cycles
        {
            state.failed += 1;
            state.next_share = state.bits.next_share(uniform(self.seed, number, state.failed + 1));
            if state.next_share.is_none() {
                // All bits have failed.
                state.next_share = Some(1.0);
                break;
            }
        }
        state.failed
    }
}

impl FlashReads for WearingFlash {
    fn read(&mut self, page: PhysicalPage, cycles: u32) -> ReadErrors {
        let cycles = f64::from(cycles) * self.scale;
        let consistent = self.failed(page, cycles);
        let reads = &mut self.block_reads[page.block as usize];
        *reads = reads.saturating_add(1);
        let mut errors = consistent;
        if self.transient {
            let age = self.now.saturating_sub(self.pages[page.page.0 as usize].programmed);
            let used = PageUse { cycles, days: age as f64 / PICOS_A_DAY, reads: f64::from(*reads) };
            let mean = self.errors_of(page.density).expected_transient(used);
            let transient = poisson(mean, self.random.unit());
            errors = errors.saturating_add(transient.min(1 << 20) as u32);
            self.totals[2] += transient;
        }
        self.totals[0] += 1;
        self.totals[1] += u64::from(consistent);
        ReadErrors { errors, consistent }
    }
}
