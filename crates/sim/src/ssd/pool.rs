//! Blocks of planes: which are free, being filled, full; how many live pages each has; which to reclaim.
//!
//! ```text
//!          take               all pages written           moved and erased
//!   free ---------> frontier ---------------------> full --------------------> free
//!                                                                 \-- worn out --> retired
//! ```
//!
//! 1. A plane has up to three frontiers: for host data, for data moved by reclamation, for the mapping.
//! 2. Free blocks are taken least worn first, of equals in the order in which they became free.
//! 3. A block is reclaimed only when it is full, no program of it is under way, and nobody else reclaims
//!    it. It is erased only when no page in it is live and no read of it is under way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use deepram_media::Victim;

use super::map::NONE;
use crate::rng::Stream;

/// Set in a block's live count while it may not be reclaimed, so that it is never the smallest.
const HELD: u16 = 1 << 15;
const LIVE: u16 = HELD - 1;

/// What a frontier is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Host = 0,
    Move = 1,
    Mapping = 2,
}

/// Where the next page of a use goes.
#[derive(Debug, Clone, Copy)]
struct Frontier {
    block: u32,
    next: u32,
}

#[derive(Debug, Clone)]
struct PlaneState {
    frontiers: [Frontier; 3],
    /// Blocks never used yet start here.
    fresh: u32,
    returned: BinaryHeap<Reverse<(u32, u64, u32)>>,
    free: u32,
    /// Blocks being reclaimed.
    reclaiming: u32,
}

/// All planes.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) blocks: u32,
    pub(crate) pages: u32,
    planes: Vec<PlaneState>,
    live: Vec<u16>,
    programming: Vec<u16>,
    reading: Vec<u16>,
    written: Vec<u16>,
    erased: Vec<u32>,
    opened: Vec<u64>,
    retired: Vec<bool>,
    /// What each physical page was last written with.
    backward: Vec<u32>,
    sequence: u64,
    endurance: u32,
    /// The fewest free blocks that any plane ever had.
    lowest: u32,
}

impl Pool {
    pub(crate) fn new(planes: u32, blocks: u32, pages: u32, endurance: u32) -> Self {
        let count = planes as usize * blocks as usize;
        let none = Frontier { block: NONE, next: 0 };
        Self {
            blocks,
            pages,
            planes: vec![
                PlaneState {
                    frontiers: [none; 3],
                    fresh: 0,
                    returned: BinaryHeap::new(),
                    free: blocks,
                    reclaiming: 0,
                };
                planes as usize
            ],
            live: vec![HELD; count],
            programming: vec![0; count],
            reading: vec![0; count],
            written: vec![0; count],
            erased: vec![0; count],
            opened: vec![0; count],
            retired: vec![false; count],
            backward: vec![0; count * pages as usize],
            sequence: 0,
            endurance,
            lowest: blocks,
        }
    }

    /// Takes blocks out of service before the first use: bad from the factory.
    pub(crate) fn retire_fresh(&mut self, block: u32) {
        let plane = (block / self.blocks) as usize;
        if !self.retired[block as usize] && self.planes[plane].fresh <= block % self.blocks {
            self.retired[block as usize] = true;
            self.planes[plane].free -= 1;
            self.lowest = self.lowest.min(self.planes[plane].free);
        }
    }

    pub(crate) fn plane_of(&self, physical: u32) -> u32 {
        physical / self.pages / self.blocks
    }

    pub(crate) fn block_of(&self, physical: u32) -> u32 {
        physical / self.pages
    }

    /// Free blocks of a plane.
    #[inline]
    pub(crate) fn free(&self, plane: u32) -> u32 {
        self.planes[plane as usize].free
    }

    /// The fewest free blocks that any plane ever had.
    #[inline]
    pub(crate) fn lowest(&self) -> u32 {
        self.lowest
    }

    pub(crate) fn reclaiming(&self, plane: u32) -> u32 {
        self.planes[plane as usize].reclaiming
    }

    pub(crate) fn erased(&self) -> &[u32] {
        &self.erased
    }

    /// What the physical page was last written with.
    #[inline]
    pub(crate) fn held(&self, physical: u32) -> u32 {
        self.backward[physical as usize].wrapping_sub(1)
    }

    fn take(&mut self, plane: u32) -> Option<u32> {
        let first = plane * self.blocks;
        let state = &mut self.planes[plane as usize];
        while state.fresh < self.blocks && self.retired[(first + state.fresh) as usize] {
            state.fresh += 1;
        }
        let block = if state.fresh < self.blocks {
            state.fresh += 1;
            first + state.fresh - 1
        } else {
            state.returned.pop()?.0.2
        };
        state.free -= 1;
        self.lowest = self.lowest.min(state.free);
        self.sequence += 1;
        self.opened[block as usize] = self.sequence;
        Some(block)
    }

    /// Opens the first block of each use.
    pub(crate) fn open_frontiers(&mut self, mapping: bool) {
        for plane in 0..self.planes.len() as u32 {
            for use_ in 0..if mapping { 3 } else { 2 } {
                if let Some(block) = self.take(plane) {
                    self.planes[plane as usize].frontiers[use_] = Frontier { block, next: 0 };
                }
            }
        }
    }

    /// The next physical page of a plane for this use, now holding `key`, and whether its block is full
    /// with it (the next one is opened at once); `None` if there is no free block. Its program is
    /// counted as under way.
    #[inline]
    pub(crate) fn allocate(&mut self, plane: u32, use_: Use, key: u32) -> Option<(u32, bool)> {
        if self.planes[plane as usize].frontiers[use_ as usize].block == NONE {
            let block = self.take(plane)?;
            self.planes[plane as usize].frontiers[use_ as usize] = Frontier { block, next: 0 };
        }
        let frontier = &mut self.planes[plane as usize].frontiers[use_ as usize];
        let (block, page) = (frontier.block, frontier.next);
        frontier.next += 1;
        let full = frontier.next == self.pages;
        if full {
            let block = self.take(plane).unwrap_or(NONE);
            self.planes[plane as usize].frontiers[use_ as usize] = Frontier { block, next: 0 };
        }
        let physical = block * self.pages + page;
        self.live[block as usize] += 1;
        self.written[block as usize] += 1;
        self.programming[block as usize] += 1;
        self.backward[physical as usize] = key.wrapping_add(1);
        Some((physical, full))
    }

    /// True if a page of this use can be had.
    pub(crate) fn has_room(&self, plane: u32, use_: Use) -> bool {
        let state = &self.planes[plane as usize];
        state.free > 0 || state.frontiers[use_ as usize].block != NONE
    }

    /// The page is dead.
    #[inline]
    pub(crate) fn invalidate(&mut self, physical: u32) {
        self.live[(physical / self.pages) as usize] -= 1;
    }

    /// A program of the page is over.
    #[inline]
    pub(crate) fn programmed(&mut self, physical: u32) {
        let block = (physical / self.pages) as usize;
        self.programming[block] -= 1;
        if self.programming[block] == 0 && u32::from(self.written[block]) == self.pages {
            self.live[block] &= LIVE;
        }
    }

    #[inline]
    pub(crate) fn read_started(&mut self, physical: u32) {
        self.reading[(physical / self.pages) as usize] += 1;
    }

    /// A read of the page is over; true if no other of its block is under way.
    #[inline]
    pub(crate) fn read_done(&mut self, physical: u32) -> bool {
        let reading = &mut self.reading[(physical / self.pages) as usize];
        *reading -= 1;
        *reading == 0
    }

    pub(crate) fn is_read(&self, block: u32) -> bool {
        self.reading[block as usize] > 0
    }

    /// Chooses the block of a plane to reclaim, and holds it; `None` if none would gain anything.
    pub(crate) fn victim(&mut self, plane: u32, policy: Victim, random: &mut Stream) -> Option<u32> {
        let first = plane * self.blocks;
        let live = &self.live[first as usize..(first + self.blocks) as usize];
        let full = self.pages as u16;
        let gains = |index: u32| live[index as usize] < full;
        let index = match policy {
            // The longest chain needs the versions of a journal; such a drive is refused before.
            Victim::Greedy | Victim::LongestChain => {
                let fewest = live.iter().copied().min()?;
                let index = live.iter().position(|count| *count == fewest)? as u32;
                gains(index).then_some(index)?
            }
            Victim::GreedyOfRandom => {
                // As many candidates as the number of blocks has bits; more if all of them are held.
                let tries = self.blocks.ilog2().max(1);
                let mut best: Option<u32> = None;
                let mut drawn = 0;
                while drawn < tries || (best.is_none() && drawn < 64 * self.blocks) {
                    drawn += 1;
                    let index = random.below(u64::from(self.blocks)) as u32;
                    if gains(index) && best.is_none_or(|b| live[index as usize] < live[b as usize]) {
                        best = Some(index);
                    }
                }
                match best {
                    Some(index) => index,
                    None => (0..self.blocks).find(|index| gains(*index))?,
                }
            }
            Victim::CostBenefit => {
                // Age x (1 - u) / 2u as deepram_core::ftl::CostBenefit has it.
                let mut best: Option<(u128, u32, u32)> = None;
                for index in (0..self.blocks).filter(|index| gains(*index)) {
                    let count = u32::from(live[index as usize]);
                    let age = u128::from(self.sequence - self.opened[(first + index) as usize]) + 1;
                    let gain = age * u128::from(self.pages - count);
                    let better =
                        best.is_none_or(|(most, its, _)| gain * u128::from(its) > most * u128::from(count));
                    if better {
                        best = Some((gain, count, index));
                    }
                }
                best?.2
            }
        };
        let block = first + index;
        self.hold(block);
        Some(block)
    }

    fn hold(&mut self, block: u32) {
        self.live[block as usize] |= HELD;
        self.planes[(block / self.blocks) as usize].reclaiming += 1;
    }

    /// The least worn full block of a plane if it is more than `delta` erases behind `erases`; holds it.
    pub(crate) fn coldest(&mut self, plane: u32, erases: u32, delta: u32) -> Option<u32> {
        let first = plane * self.blocks;
        let block = (first..first + self.blocks)
            .filter(|block| self.live[*block as usize] & HELD == 0)
            .min_by_key(|block| (self.erased[*block as usize], *block))?;
        if erases.saturating_sub(self.erased[block as usize]) <= delta {
            return None;
        }
        self.hold(block);
        Some(block)
    }

    /// Live pages of a block.
    pub(crate) fn live(&self, block: u32) -> u32 {
        u32::from(self.live[block as usize] & LIVE)
    }

    /// The block is erased: free, or retired if it is worn out. Returns its erases.
    pub(crate) fn erase(&mut self, block: u32) -> u32 {
        let index = block as usize;
        let first = index * self.pages as usize;
        self.backward[first..first + self.pages as usize].fill(0);
        self.live[index] = HELD;
        self.written[index] = 0;
        self.erased[index] += 1;
        let erases = self.erased[index];
        let state = &mut self.planes[(block / self.blocks) as usize];
        state.reclaiming -= 1;
        if erases >= self.endurance {
            self.retired[index] = true;
        } else {
            state.free += 1;
            self.sequence += 1;
            state.returned.push(Reverse((erases, self.sequence, block)));
        }
        erases
    }

    /// Blocks out of service.
    pub(crate) fn retired(&self) -> u64 {
        self.retired.iter().filter(|retired| **retired).count() as u64
    }

    /// Live pages of all blocks.
    pub(crate) fn live_pages(&self) -> u64 {
        self.live.iter().map(|live| u64::from(live & LIVE)).sum()
    }

    /// Fills the rest of a frontier's block with dead pages and opens the next: for preconditioning.
    pub(crate) fn waste(&mut self, plane: u32, use_: Use) {
        let frontier = self.planes[plane as usize].frontiers[use_ as usize];
        if frontier.block == NONE {
            return;
        }
        let block = frontier.block as usize;
        self.written[block] = self.pages as u16;
        if self.programming[block] == 0 {
            self.live[block] &= LIVE;
        }
        let block = self.take(plane).unwrap_or(NONE);
        self.planes[plane as usize].frontiers[use_ as usize] = Frontier { block, next: 0 };
    }

    /// True if a block is free: never opened since its last erase.
    pub(crate) fn is_free(&self, block: u32) -> bool {
        self.written[block as usize] == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_core::BlockId;
    use deepram_core::ftl::{BlockInfo, Blocks, CostBenefit, Greedy, State, VictimPolicy};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// The arrays here are the fast form of what core's `Blocks` keeps in trees.
        #[test]
        fn the_victim_is_the_one_that_the_policies_of_core_choose(
            blocks in prop::collection::vec((1u16..=16, 1u64..1000, any::<bool>()), 2..40),
        ) {
            let count = blocks.len() as u32;
            let now = 1000;
            let infos: Vec<BlockInfo> = blocks
                .iter()
                .map(|(live, sequence, closed)| BlockInfo {
                    state: if *closed { State::Closed } else { State::Open(0) },
                    used: 16,
                    live: *live,
                    uses: 1,
                    sequence: *sequence,
                })
                .collect();
            let core = Blocks::restore(16, infos).unwrap();
            let mut pool = Pool::new(1, count, 16, u32::MAX);
            pool.sequence = now;
            for (index, (live, sequence, closed)) in blocks.iter().enumerate() {
                pool.live[index] = live | if *closed { 0 } else { HELD };
                pool.opened[index] = *sequence;
            }
            let none = BTreeSet::new();
            let mut random = Stream::new(1, "test");
            let greedy = pool.clone().victim(0, Victim::Greedy, &mut random).map(BlockId);
            prop_assert_eq!(greedy, Greedy.pick(&core, now, &none));
            let benefit = pool.clone().victim(0, Victim::CostBenefit, &mut random).map(BlockId);
            prop_assert_eq!(benefit, CostBenefit.pick(&core, now, &none));
            // A random choice gains something whenever something can be gained.
            let some = pool.clone().victim(0, Victim::GreedyOfRandom, &mut random);
            prop_assert_eq!(some.is_some(), greedy.is_some());
        }
    }
}
