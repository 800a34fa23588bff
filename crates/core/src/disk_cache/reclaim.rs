//! Reclamation, eviction, wear-aware replacement and flushing of the secondary cache.

use alloc::vec::Vec;

use super::Run;
use super::flash::{FlashCache, Frontier};
use super::options::ReclaimScope;
use super::step::{Cause, Note, PhysicalPage, Step};
use crate::ftl::BlockState;
use crate::reliability::{FlashPage, Region};

impl FlashCache {
    /// Empties a block of a region: reclaims one with enough dead pages, or else evicts the least recently
    /// used one. Returns false if the region has no block to empty.
    pub(super) fn make_room(&mut self, region: Region, run: &mut Run<'_>) -> bool {
        if self.is_reclaimed(region) && self.reclaim_blocks(region, run) {
            return true;
        }
        let regions = [region, if region == Region::Read { Region::Write } else { Region::Read }];
        let regions = if self.is_unified() { &regions[..] } else { &regions[..1] };
        let closed = |block: &u32| self.blocks.state(*block) == BlockState::Closed;
        let oldest = regions.iter().find_map(|region| self.blocks.by_age(*region).find(closed));
        let Some(victim) = oldest.or_else(|| self.blocks.by_age(region).next()) else { return false };
        self.evict(victim, run);
        true
    }

    /// True if blocks of the region are reclaimed; those of the read region of split flash are evicted only.
    fn is_reclaimed(&self, region: Region) -> bool {
        region == Region::Write || self.is_unified()
    }

    /// Reclaims the block with the most dead pages, or all blocks with dead pages. Returns false if none has
    /// enough.
    fn reclaim_blocks(&mut self, region: Region, run: &mut Run<'_>) -> bool {
        let mut victims: Vec<(u16, u32)> = self.reclaimable(region).collect();
        if self.reclaim == ReclaimScope::Greedy {
            let most =
                victims.iter().copied().max_by_key(|(dead, block)| (*dead, core::cmp::Reverse(*block)));
            victims = most.into_iter().collect();
        }
        let found = !victims.is_empty();
        for (_, block) in victims {
            self.reclaim_block(block, region, run);
        }
        found
    }

    /// The candidates of reclamation in a region, by number: dead pages, block (flash disk cache, Figure 4).
    pub fn reclaimable(&self, region: Region) -> impl Iterator<Item = (u16, u32)> + '_ {
        let region = self.region(region);
        let least = if self.is_reclaimed(region) { self.least_dead } else { u16::MAX };
        self.blocks.candidates(region, least)
    }

    fn reclaim_block(&mut self, block: u32, region: Region, run: &mut Run<'_>) {
        let (live, dead) = (self.blocks.live(block), self.blocks.dead(block));
        run.note(Note::Reclaim { region, live, dead });
        for page in self.valid_pages(block) {
            self.move_page(page, None, Cause::Reclaim, run);
        }
        self.erase(block, run);
    }

    /// Reclaims in the background until each region can open enough blocks, or no block has enough dead
    /// pages.
    pub(super) fn reclaim_in_background(&mut self, run: &mut Run<'_>) {
        for region in [Region::Read, Region::Write] {
            // Each round gains a page at least; a region has no more rounds to gain than pages.
            for _ in 0..self.shape.pages() {
                let low = !self.dead && self.openable(region) < self.low_blocks;
                let own = self.region(region) == region && self.is_reclaimed(region);
                if !low || !own || !self.reclaim_blocks(region, run) {
                    break;
                }
            }
        }
    }

    /// Moves a page, to the block in `into` or else within its region. A page that finds no place leaves
    /// the cache.
    fn move_page(&mut self, page: FlashPage, into: Option<&mut Frontier>, cause: Cause, run: &mut Run<'_>) {
        let from = self.physical(page);
        if let Err(failed) = self.read_errors(page, run) {
            run.steps.push(Step::Read(failed));
            return self.lose(page, run);
        }
        let single = self.policy.stays_single(self.pages.get(page));
        let region = self.blocks.region(from.block).unwrap_or(Region::Read);
        let to = match into {
            Some(frontier) => self.take_from(frontier, single, run),
            None => self.allocate_move(region, single, run),
        };
        match to {
            Some(to) => self.moved(from, to, cause, run),
            None => self.drop_page(from, run),
        }
    }

    /// The data of a page that was read move to an empty page.
    pub(super) fn moved(&mut self, from: PhysicalPage, to: FlashPage, cause: Cause, run: &mut Run<'_>) {
        let status = self.pages.get(from.page);
        if let Some(key) = self.vacate(from.page) {
            self.occupy(to, key, status.is_dirty(), status.reads());
            run.steps.push(Step::Move { from, to: self.physical(to), cause });
        }
    }

    /// A page that was read leaves the cache; to the disk if it is dirty.
    pub(super) fn drop_page(&mut self, from: PhysicalPage, run: &mut Run<'_>) {
        let dirty = self.pages.get(from.page).is_dirty();
        if let Some(disk) = self.vacate(from.page) {
            run.note(Note::Drop);
            run.steps.push(if dirty { Step::Flush { from, disk } } else { Step::Read(from) });
        }
    }

    /// The pages of a block leave the cache. Dirty ones go to the disk. Returns their number.
    pub(super) fn drop_pages(&mut self, block: u32, run: &mut Run<'_>) -> u16 {
        let pages = self.valid_pages(block);
        for page in &pages {
            if self.pages.get(*page).is_dirty() {
                self.flush_page(*page, run);
            }
            self.vacate(*page);
        }
        pages.len() as u16
    }

    /// Writes a dirty page to the disk. Returns false if its data are lost.
    fn flush_page(&mut self, page: FlashPage, run: &mut Run<'_>) -> bool {
        let from = self.physical(page);
        let Some(disk) = self.keys.key(page) else { return false };
        if let Err(failed) = self.read_errors(page, run) {
            run.steps.push(Step::Read(failed));
            self.lose(page, run);
            return false;
        }
        self.pages.clean(page);
        self.blocks.cleaned_page(from.block);
        run.steps.push(Step::Flush { from, disk });
        true
    }

    /// Writes up to `most` dirty pages to the disk, in the order of the disk.
    pub(super) fn flush(&mut self, most: u32, run: &mut Run<'_>) -> u32 {
        let dirty_blocks = (0..self.shape.blocks).filter(|block| self.blocks.dirty(*block) > 0);
        let mut dirty: Vec<(u32, FlashPage)> = dirty_blocks
            .flat_map(|block| self.shape.pages_of(block))
            .filter(|page| self.pages.get(*page).is_dirty())
            .filter_map(|page| Some((self.keys.key(page)?, page)))
            .collect();
        dirty.sort_unstable();
        dirty.truncate(most as usize);
        dirty.into_iter().map(|(_, page)| u32::from(self.flush_page(page, run))).sum()
    }

    /// Evicts a block, which is then free, and lets it change places with a less worn one.
    fn evict(&mut self, block: u32, run: &mut Run<'_>) {
        let region = self.blocks.region(block).unwrap_or(Region::Read);
        let pages = self.drop_pages(block, run);
        run.note(Note::Evict { region, pages });
        self.erase(block, run);
        self.level_wear(block, run);
    }

    /// Erases a block without data.
    fn erase(&mut self, block: u32, run: &mut Run<'_>) {
        self.leave_frontier(block);
        if self.blocks.erase(block) {
            run.steps.push(Step::Erase(block));
        }
    }

    /// No region fills this block any more.
    pub(super) fn leave_frontier(&mut self, block: u32) {
        for frontier in &mut self.frontiers {
            *frontier = frontier.filter(|frontier| frontier.block != block);
        }
        self.blocks.close(block);
    }

    /// Lets a free block take over the data of the least worn block, if it is much more worn than that.
    fn level_wear(&mut self, freed: u32, run: &mut Run<'_>) {
        let weights = self.policy.weights;
        let Some(limit) = self.policy.wear_difference else { return };
        let Some((least, block)) = self.blocks.least_worn(freed, weights) else { return };
        let Some(region) = self.blocks.region(block) else { return };
        if self.blocks.wear(freed, weights) - least <= limit || !self.blocks.open_at(freed, region) {
            return;
        }
        run.note(Note::WearSwap);
        let mut frontier = Frontier { block: freed, waiting: None };
        for page in self.valid_pages(block) {
            self.move_page(page, Some(&mut frontier), Cause::Wear, run);
        }
        self.blocks.close(freed);
        self.erase(block, run);
    }
}
