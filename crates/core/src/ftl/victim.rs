//! Which closed block to reclaim next. One more policy, the block with the longest version chains
//! first (NVMM, Page Table Organization), needs the page table and is the volume's.
//!
//! All policies pass over blocks that hold no live data (they wait for [`Blocks::release_dead`] and
//! need no reclaiming; unless the blocks are [`Blocks::without_quarantine`]), blocks that are held, and blocks where every
//! programmable slot is live: moving their data would free nothing.

use super::blocks::Blocks;
use crate::units::BlockId;

/// A choice among closed blocks.
pub trait VictimPolicy {
    /// The block to reclaim at `now` (the clock of [`super::BlockInfo::sequence`]), one for which
    /// `eligible` is true; `None` if reclaiming gains nothing.
    fn pick(
        &mut self,
        blocks: &Blocks,
        now: u64,
        eligible: &mut dyn FnMut(BlockId) -> bool,
    ) -> Option<BlockId>;
}

/// For callers to whom all blocks are equal.
pub fn any_block(_: BlockId) -> bool {
    true
}

fn gains(blocks: &Blocks, live: u16, block: BlockId) -> bool {
    live < blocks.capacity(block)
}

/// Of blocks with equally few live slots, which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ties {
    /// The one with the lowest number.
    #[default]
    Lowest,
    /// The one with the highest number.
    Highest,
}

/// The block with the fewest live slots: the least copying now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Greedy {
    /// Of equals, which.
    pub ties: Ties,
}

impl VictimPolicy for Greedy {
    fn pick(
        &mut self,
        blocks: &Blocks,
        _now: u64,
        eligible: &mut dyn FnMut(BlockId) -> bool,
    ) -> Option<BlockId> {
        // Nearly always the first look suffices.
        let candidates = blocks.candidates();
        let fewest = candidates.iter().copied().min()?;
        let found = match self.ties {
            Ties::Lowest => candidates.iter().position(|live| *live == fewest),
            Ties::Highest => candidates.iter().rposition(|live| *live == fewest),
        };
        let block = BlockId(found? as u32);
        if gains(blocks, fewest, block) && eligible(block) {
            return Some(block);
        }
        let wanted =
            blocks.reclaimable().filter(|(live, block)| gains(blocks, *live, *block) && eligible(*block));
        match self.ties {
            Ties::Lowest => wanted.min(),
            Ties::Highest => wanted.min_by_key(|(live, block)| (*live, core::cmp::Reverse(*block))),
        }
        .map(|(_, block)| block)
    }
}

/// The block with the fewest live slots of some drawn at random, as many as the number of blocks has
/// bits: nearly as good as greedy without looking at all of them.
///
/// The d-choices policy of B. Van Houdt, "A mean field model for a class of garbage collection
/// algorithms in flash-based solid state drives", SIGMETRICS 2013.
#[derive(Debug, Clone, Copy)]
pub struct GreedyOfRandom<F> {
    /// A number drawn uniformly below the one given: the caller's randomness.
    pub draw: F,
}

impl<F: FnMut(u32) -> u32> VictimPolicy for GreedyOfRandom<F> {
    fn pick(
        &mut self,
        blocks: &Blocks,
        now: u64,
        eligible: &mut dyn FnMut(BlockId) -> bool,
    ) -> Option<BlockId> {
        let count = blocks.len();
        let candidates = blocks.candidates();
        let mut best: Option<(u16, BlockId)> = None;
        let mut drawn = 0;
        // More than that many only while all of them were out of the question; and not for ever.
        let most = count.checked_ilog2()?.max(1);
        while drawn < most || (best.is_none() && drawn < 64 * most) {
            drawn += 1;
            let id = (self.draw)(count);
            let (live, block) = (*candidates.get(id as usize)?, BlockId(id));
            if gains(blocks, live, block) && eligible(block) && best.is_none_or(|(least, _)| live < least) {
                best = Some((live, block));
            }
        }
        match best {
            Some((_, block)) => Some(block),
            None => Greedy::default().pick(blocks, now, eligible),
        }
    }
}

/// The block with the highest `age × (1 − u) / 2u`, where `u` is the live part of its slots: cold
/// blocks are worth reclaiming at a higher `u` than hot ones, whose data will die by itself. Of
/// equals, the lowest.
///
/// The benefit is that of Rosenblum and Ousterhout, "The Design and Implementation of a
/// Log-Structured File System", ACM TOCS 10(1), 1992, section 3.5. Their cost, `1 + u`, is for
/// reading the whole segment; flash reads and writes the live slots only, `2u`. The age counts
/// from the block's opening. Scans all closed blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct CostBenefit;

impl VictimPolicy for CostBenefit {
    fn pick(
        &mut self,
        blocks: &Blocks,
        now: u64,
        eligible: &mut dyn FnMut(BlockId) -> bool,
    ) -> Option<BlockId> {
        let mut best: Option<(u128, u16, BlockId)> = None;
        for (live, block) in blocks.reclaimable() {
            if !gains(blocks, live, block) || !eligible(block) {
                continue;
            }
            // One more, so that blocks opened just now still differ by their live slots.
            let age = u128::from(now.saturating_sub(blocks.info(block).sequence)) + 1;
            let gain = age * u128::from(blocks.slots_per_block() - live);
            // The factor 1/2 is common to all; gain / live is compared by cross-multiplying:
            // below 2^81 each, so exact.
            let better =
                best.is_none_or(|(most, its_live, _)| gain * u128::from(its_live) > most * u128::from(live));
            if better {
                best = Some((gain, live, block));
            }
        }
        best.map(|(_, _, block)| block)
    }
}
