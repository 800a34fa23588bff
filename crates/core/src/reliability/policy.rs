//! The decisions of the driver of a programmable flash controller (flash disk cache, section 3.3; the
//! costs, limits and weights are not published and are ours).
//!
//! 1. *New consistent faults*: a page whose faults leave less than a margin of its code gets a stronger
//!    code, or its cells store one bit instead of two, whichever costs less time. A stronger code delays
//!    each read of the page, and the more worn the page is, the sooner it needs the next one. Single-level
//!    cells are read faster but give up a page, and with it a share of the hits.
//! 2. *Hot pages*: a page of multi-level cells whose reads reach a limit moves to single-level cells.
//! 3. *Retirement*: a single-level page at the strongest code that has new faults.
//! 4. *Wear-aware replacement*: wear = erases + weights x (strength, single-level slots); if the block to
//!    be replaced has much more wear than the least worn one, both change places.

use alloc::vec::Vec;

use super::{Density, PageStatus};

/// Whether strength and density can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// One strength and one density for all pages.
    Fixed,
    /// Strength and density of each page.
    Programmable,
}

/// The unit that is retired when a page fails that has the strongest code and single-level cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retirement {
    /// The block of the page.
    Block,
    /// The cells of the page.
    Page,
}

/// Mean times of accesses, picoseconds, as the driver knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessTimes {
    /// A read of multi-level cells, without decoding.
    pub mlc: u64,
    /// A read of single-level cells, without decoding.
    pub slc: u64,
    /// A read of the disk.
    pub disk: u64,
    /// Decoding at each strength, from 0 on.
    pub decode: Vec<u64>,
}

/// Weights of the wear of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WearWeights {
    /// Erases that one added bit of strength of a page counts as.
    pub strength: f64,
    /// Erases that a single-level slot counts as.
    pub single: f64,
}

/// The recent activity that a decision weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Reads of the page.
    pub reads: u16,
    /// Reads that flash missed.
    pub misses: u64,
    /// Pages that the cache holds.
    pub pages: u64,
}

/// The change of a page with new faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconfiguration {
    /// None.
    Keep,
    /// A code that corrects this many bits.
    Strengthen(u8),
    /// Single-level cells.
    ToSlc,
    /// Out of service.
    Retire,
}

/// The policy.
#[derive(Debug, Clone, PartialEq)]
pub struct ReliabilityPolicy {
    /// Whether strength and density can change.
    pub controller: Controller,
    /// The first strength of each page; the only one of a fixed controller.
    pub strength: u8,
    /// The greatest strength.
    pub strongest: u8,
    /// The first density of each page.
    pub density: Density,
    /// Bits that a code must correct in addition to the consistent faults.
    pub margin: u8,
    /// Reads that make a page hot; `None` if no page moves.
    pub hot_limit: Option<u16>,
    /// What is retired.
    pub retirement: Retirement,
    /// Weights of the wear of a block.
    pub weights: WearWeights,
    /// Difference of wear above which two blocks change places; `None` if they never do.
    pub wear_difference: Option<f64>,
    /// Mean times of accesses.
    pub times: AccessTimes,
}

impl ReliabilityPolicy {
    /// The time of decoding at a strength, picoseconds.
    #[must_use]
    pub fn decode_time(&self, strength: u8) -> u64 {
        let times = &self.times.decode;
        times.get(usize::from(strength)).or(times.last()).copied().unwrap_or(0)
    }

    /// True if a read with this many errors asks for a second one, which tells consistent faults from
    /// transient errors.
    #[must_use]
    pub fn is_suspect(&self, page: PageStatus, errors: u32) -> bool {
        self.controller == Controller::Programmable
            && errors + u32::from(self.margin) > u32::from(page.strength())
    }

    /// The change of a page with this many consistent faults (trigger 1).
    #[must_use]
    pub fn reconfigure(&self, page: PageStatus, consistent: u32, activity: Activity) -> Reconfiguration {
        let strength = page.strength();
        if self.controller == Controller::Fixed {
            let failed = consistent > u32::from(strength);
            return if failed { Reconfiguration::Retire } else { Reconfiguration::Keep };
        }
        let needed = consistent + u32::from(self.margin);
        if consistent == 0 || needed <= u32::from(strength) {
            return Reconfiguration::Keep;
        }
        let stronger = u8::try_from(needed).ok().filter(|needed| *needed <= self.strongest);
        match (stronger, page.density()) {
            (None, Density::Slc) => Reconfiguration::Retire,
            (None, Density::Mlc) => Reconfiguration::ToSlc,
            (Some(stronger), Density::Slc) => Reconfiguration::Strengthen(stronger),
            (Some(stronger), Density::Mlc) => {
                if self.single_level_is_faster(strength, stronger, activity) {
                    Reconfiguration::ToSlc
                } else {
                    Reconfiguration::Strengthen(stronger)
                }
            }
        }
    }

    /// True if single-level cells cost less time than a code of strength `to` in place of `from`.
    ///
    /// Cost of the code: reads x (decode(to) - decode(from)) x (1 + to / strongest). Cost of single-level
    /// cells: misses / pages x disk - reads x (mlc - slc). Both are multiplied by pages x strongest.
    fn single_level_is_faster(&self, from: u8, to: u8, activity: Activity) -> bool {
        let Activity { reads, misses, pages } = activity;
        let (reads, pages, strongest) = (u128::from(reads), u128::from(pages), u128::from(self.strongest));
        let delay = u128::from(self.decode_time(to).saturating_sub(self.decode_time(from)));
        let gain = u128::from(self.times.mlc.saturating_sub(self.times.slc));
        let code = reads * delay * (strongest + u128::from(to)) * pages;
        let faster = reads * gain * strongest * pages;
        let lost = u128::from(misses) * u128::from(self.times.disk) * strongest;
        lost < code + faster
    }

    /// True if a page that was read moves to single-level cells (trigger 2).
    #[must_use]
    pub fn is_hot(&self, page: PageStatus) -> bool {
        self.controller == Controller::Programmable
            && page.density() == Density::Mlc
            && self.hot_limit.is_some_and(|limit| page.reads() >= limit)
    }

    /// True if a page that moves keeps its single-level cells: it still has half of the reads of a hot page.
    #[must_use]
    pub fn stays_single(&self, page: PageStatus) -> bool {
        self.controller == Controller::Programmable
            && page.density() == Density::Slc
            && self.hot_limit.is_some_and(|limit| page.reads() >= limit.div_ceil(2))
    }
}
