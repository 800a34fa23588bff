//! Victim policies of reclamation (garbage collection): each chooses the closed block to reclaim next.
//!
//! No policy chooses a pinned block, a block whose programmable slots are all live (moving its data
//! would free nothing), or, with quarantine, a dead block, which waits for [`Blocks::release_dead`].
//!
//! One more policy, the block with the longest version chains first (NVMM, end of Use of the Bit
//! Vector), needs the page table: [`crate::Volume::longest_chain`].

use super::blocks::Blocks;
use crate::units::BlockId;

/// A filter of victims: true for a block that the caller allows to be reclaimed.
pub type Eligible<'a> = dyn FnMut(BlockId) -> bool + 'a;

/// Chooses a victim among the closed blocks.
pub trait VictimPolicy {
    /// The victim at time `now` (of the clock of [`super::BlockInfo::sequence`]) among the blocks for
    /// which `eligible` is true; `None` if reclamation would free nothing.
    fn pick(&mut self, blocks: &Blocks, now: u64, eligible: &mut Eligible<'_>) -> Option<BlockId>;
}

/// An `eligible` argument of [`VictimPolicy::pick`] that accepts every block.
pub fn any_block(_: BlockId) -> bool {
    true
}

fn frees_space(blocks: &Blocks, live: u16, block: BlockId) -> bool {
    live < blocks.capacity(block)
}

/// The choice among blocks with equally few live slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TieBreak {
    /// The block with the lowest number.
    #[default]
    Lowest,
    /// The block with the highest number.
    Highest,
}

/// Greedy: the victim is the block with the fewest live slots, which needs the least copying.
#[derive(Debug, Clone, Copy, Default)]
pub struct Greedy {
    /// The choice among equals.
    pub ties: TieBreak,
}

impl VictimPolicy for Greedy {
    fn pick(&mut self, blocks: &Blocks, _now: u64, eligible: &mut Eligible<'_>) -> Option<BlockId> {
        // Fast path: the minimum over all candidates is nearly always eligible.
        let candidates = blocks.candidates();
        let fewest = candidates.iter().copied().min()?;
        let found = match self.ties {
            TieBreak::Lowest => candidates.iter().position(|live| *live == fewest),
            TieBreak::Highest => candidates.iter().rposition(|live| *live == fewest),
        };
        let block = BlockId(found? as u32);
        if frees_space(blocks, fewest, block) && eligible(block) {
            return Some(block);
        }
        let wanted = blocks
            .reclaimable()
            .filter(|(live, block)| frees_space(blocks, *live, *block) && eligible(*block));
        match self.ties {
            TieBreak::Lowest => wanted.min(),
            TieBreak::Highest => wanted.min_by_key(|(live, block)| (*live, core::cmp::Reverse(*block))),
        }
        .map(|(_, block)| block)
    }
}

/// Randomised greedy: the victim is the block with the fewest live slots among log2(blocks) blocks drawn
/// at random. Nearly as good as greedy, without a scan of all blocks.
///
/// The d-choices policy of B. Van Houdt, "A mean field model for a class of garbage collection
/// algorithms in flash-based solid state drives", SIGMETRICS 2013.
#[derive(Debug, Clone, Copy)]
pub struct GreedyOfRandom<F> {
    /// The caller's random stream: returns a number drawn uniformly below its argument.
    pub draw: F,
}

impl<F: FnMut(u32) -> u32> VictimPolicy for GreedyOfRandom<F> {
    fn pick(&mut self, blocks: &Blocks, now: u64, eligible: &mut Eligible<'_>) -> Option<BlockId> {
        let count = blocks.len();
        let candidates = blocks.candidates();
        let mut best: Option<(u16, BlockId)> = None;
        let mut drawn = 0;
        // Further draws only while no drawn block qualified, and up to a limit.
        let draws = count.checked_ilog2()?.max(1);
        while drawn < draws || (best.is_none() && drawn < 64 * draws) {
            drawn += 1;
            let id = (self.draw)(count);
            let (live, block) = (*candidates.get(id as usize)?, BlockId(id));
            if frees_space(blocks, live, block)
                && eligible(block)
                && best.is_none_or(|(least, _)| live < least)
            {
                best = Some((live, block));
            }
        }
        match best {
            Some((_, block)) => Some(block),
            None => Greedy::default().pick(blocks, now, eligible),
        }
    }
}

/// Cost-benefit: the victim is the block with the highest `age × (1 − u) / 2u`, where `u` is the live
/// share of its slots. A cold block is worth reclaiming at a higher `u` than a hot one, whose data is
/// soon overwritten. Of equals, the lowest block.
///
/// The benefit is that of Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured
/// File System", ACM TOCS 10(1), 1992, section 3.5. Their cost, `1 + u`, covers reading the whole
/// segment; flash reads and writes only the live slots, `2u`. The age counts from the block's opening.
/// Scans all closed blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct CostBenefit;

impl VictimPolicy for CostBenefit {
    fn pick(&mut self, blocks: &Blocks, now: u64, eligible: &mut Eligible<'_>) -> Option<BlockId> {
        let mut best: Option<(u128, u16, BlockId)> = None;
        for (live, block) in blocks.reclaimable() {
            if !frees_space(blocks, live, block) || !eligible(block) {
                continue;
            }
            // Plus one, so that blocks opened at `now` still differ by their live slots.
            let age = u128::from(now.saturating_sub(blocks.info(block).sequence)) + 1;
            let gain = age * u128::from(blocks.slots_per_block() - live);
            // The common factor 1/2 is left out. gain / live is compared by cross-multiplication, which
            // is exact: both products are below 2^81.
            let better = best.is_none_or(|(best_gain, best_live, _)| {
                gain * u128::from(best_live) > best_gain * u128::from(live)
            });
            if better {
                best = Some((gain, live, block));
            }
        }
        best.map(|(_, _, block)| block)
    }
}
