//! Which closed block to reclaim next. The third policy, the block with the longest version
//! chains first (NVMM, Page Table Organization), needs the page table and is the volume's.
//!
//! All policies pass over blocks that hold no live data (they wait for
//! [`Blocks::release_dead`] and need no reclaiming) and blocks where every programmable slot is
//! live: moving their data would free nothing.

use alloc::collections::BTreeSet;

use super::blocks::Blocks;
use crate::units::BlockId;

/// A choice among closed blocks. The same blocks give the same answer; ties go to the lowest
/// number.
pub trait VictimPolicy {
    /// The block to reclaim at `now` (the clock of [`super::BlockInfo::sequence`]), none of
    /// `exclude`; `None` if reclaiming gains nothing.
    fn pick(&self, blocks: &Blocks, now: u64, exclude: &BTreeSet<BlockId>) -> Option<BlockId>;
}

/// What can be gained from, with the live slots.
fn candidates<'a>(
    blocks: &'a Blocks,
    exclude: &'a BTreeSet<BlockId>,
) -> impl Iterator<Item = (u16, BlockId)> + 'a {
    blocks.reclaimable().filter(|(live, block)| !exclude.contains(block) && *live < blocks.capacity(*block))
}

/// The block with the fewest live slots: the least copying now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Greedy;

impl VictimPolicy for Greedy {
    fn pick(&self, blocks: &Blocks, _now: u64, exclude: &BTreeSet<BlockId>) -> Option<BlockId> {
        candidates(blocks, exclude).next().map(|(_, block)| block)
    }
}

/// The block with the highest `age × (1 − u) / 2u`, where `u` is the live part of its slots: cold
/// blocks are worth reclaiming at a higher `u` than hot ones, whose data will die by itself.
///
/// The benefit is that of Rosenblum and Ousterhout, "The Design and Implementation of a
/// Log-Structured File System", ACM TOCS 10(1), 1992, section 3.5. Their cost, `1 + u`, is for
/// reading the whole segment; flash reads and writes the live slots only, `2u`. The age counts
/// from the block's opening. Scans all closed blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct CostBenefit;

impl VictimPolicy for CostBenefit {
    fn pick(&self, blocks: &Blocks, now: u64, exclude: &BTreeSet<BlockId>) -> Option<BlockId> {
        let mut best: Option<(u128, u16, BlockId)> = None;
        for (live, block) in candidates(blocks, exclude) {
            // One more, so that blocks opened just now still differ by their live slots.
            let age = u128::from(now.saturating_sub(blocks.info(block).sequence)) + 1;
            let gain = age * u128::from(blocks.slots_per_block() - live);
            // The factor 1/2 is common to all; gain / live is compared by cross-multiplying:
            // below 2^81 each, so exact.
            let better = best.is_none_or(|(most, its_live, its_block)| {
                let (this, other) = (gain * u128::from(its_live), most * u128::from(live));
                this > other || this == other && block < its_block
            });
            if better {
                best = Some((gain, live, block));
            }
        }
        best.map(|(_, _, block)| block)
    }
}
