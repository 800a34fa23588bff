//! Reclamation: reads the live data of a block, writes them elsewhere and erases the block; collapses
//! version chains, longest first (NVMM, section Use of Bit Vector); levels wear.

use deepram_core::{BlockId, PageId, Slot, Stamp};

use super::{NvmmEvent, NvmmMemory, OperationPurpose};
use crate::error::SimError;
use crate::flash::law;
use crate::flash_array::OperationClass;
use crate::host::Context;

/// A reclamation under way: a block being emptied, a chain being collapsed, or both.
#[derive(Debug)]
pub(super) struct Reclaim {
    victim: Option<BlockId>,
    /// The page whose version chain is collapsed.
    page: Option<PageId>,
    /// The slots that are read.
    read: Vec<Slot>,
    /// The reclamation is for wear levelling.
    wear: bool,
    /// Outstanding operations of the current step.
    left: u32,
}

impl NvmmMemory {
    pub(super) fn reclaim_if_short(&mut self, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        if self.flash_volume.is_short_of_blocks() || self.flash_volume.is_low_on_entries() {
            self.reclaim(context)
        } else {
            Ok(())
        }
    }

    /// Starts to collapse chains and to empty blocks as needed. If neither can gain anything, drops the
    /// oldest state.
    pub(super) fn reclaim(&mut self, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        while self.reclaims_open < self.options.reclaim_at_once {
            let worthwhile = self.reclaims_since_write <= self.flash_volume.layout.blocks;
            if self.flash_volume.is_low_on_entries() && self.flash_volume.can_collapse_chains() {
                let longest = self.flash_volume.longest_chain()?;
                if longest.is_some_and(|page| self.collapsing.contains(&page)) {
                    return Ok(());
                }
                if longest.is_some() && worthwhile {
                    self.begin_reclaim(None, longest, false, context)?;
                    continue;
                }
                if !self.flash_volume.has_entries() {
                    if self.drop_oldest_state()? {
                        continue;
                    }
                    return self.fail_if_stuck(context);
                }
            }
            if !self.flash_volume.is_short_of_blocks() {
                return Ok(());
            }
            match self.flash_volume.victim()? {
                // Dropping a state that no sync made costs the caller nothing.
                Some((block, _))
                    if self.last_sync.is_none()
                        && self.flash_volume.is_costly(block)
                        && self.drop_oldest_state()? => {}
                Some((block, page)) if self.flash_volume.is_worth_reclaiming(block) && worthwhile => {
                    let page = page.filter(|page| !self.collapsing.contains(page));
                    self.begin_reclaim(Some(block), page, false, context)?;
                }
                _ if self.drop_oldest_state()? => {}
                Some((block, _)) if worthwhile => self.begin_reclaim(Some(block), None, false, context)?,
                _ => return self.fail_if_stuck(context),
            }
        }
        Ok(())
    }

    /// Reports that reclamation can gain nothing, which is an error if the host cannot write and no
    /// reclamation is under way.
    fn fail_if_stuck(&self, context: &Context<NvmmEvent>) -> Result<(), SimError> {
        if self.reclaims_open > 0 || self.flash_volume.can_write() {
            return Ok(());
        }
        Err(SimError::Full {
            time_ps: context.now().0,
            what: "no block can be reclaimed, and the state of the last sync needs the rest".into(),
        })
    }

    /// Drops the oldest state kept for rollback. Returns false if only the last one is left and a sync
    /// made it, or nothing has been written since.
    fn drop_oldest_state(&mut self) -> Result<bool, SimError> {
        let oldest = self.flash_volume.tokens().first().map(|token| token.epoch);
        if self.flash_volume.tokens().len() == 1 {
            if self.last_sync.is_some() || !self.flash_volume.has_written() {
                return Ok(false);
            }
            self.flash_volume.close_epoch(0)?;
            self.counts.automatic_epochs += 1;
        }
        if self.flash_volume.tokens().len() > 1
            && let Some(oldest) = oldest
        {
            self.flash_volume.drop_token(oldest)?;
            self.counts.tokens_dropped += 1;
        }
        Ok(true)
    }

    fn begin_reclaim(
        &mut self,
        victim: Option<BlockId>,
        page: Option<PageId>,
        wear: bool,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        let mut read: Vec<Slot> = Vec::new();
        if let Some(victim) = victim {
            read.extend(self.flash_volume.live_in(victim)?.into_iter().map(|(_, slot, _)| slot));
            self.flash_volume.hold(victim);
        }
        if let Some(page) = page {
            self.collapsing.push(page);
            for (_, placed) in self.flash_volume.coalesce_plan(page)? {
                read.extend(placed.into_iter().map(|(_, slot)| slot));
            }
            read.sort_unstable();
            read.dedup();
        }
        self.reclaims_open += u32::from(!wear);
        self.levelling |= wear;
        let flash: Vec<Slot> = read.iter().copied().filter(|s| !self.in_buffer.contains(&s.0)).collect();
        let left = flash.len() as u32;
        let number = self.reclaims.add(Reclaim { victim, page, read, wear, left });
        for slot in flash {
            self.flash.move_reads += 1;
            let op = self.operations.add(OperationPurpose::MoveRead(number));
            self.channels.submit(
                op,
                OperationClass::Move,
                self.flash_volume.layout.plane(slot),
                context.now().0,
            );
        }
        if left == 0 { self.relocate_live(number, context) } else { Ok(()) }
    }

    pub(super) fn move_read(
        &mut self,
        number: u32,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        if self.end_operation(number) { self.relocate_live(number, context) } else { Ok(()) }
    }

    fn end_operation(&mut self, number: u32) -> bool {
        let Some(reclaim) = self.reclaims.get(number) else { return false };
        reclaim.left -= 1;
        reclaim.left == 0
    }

    /// Writes the live data of a block that has been read to other blocks.
    fn relocate_live(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let Some(reclaim) = self.reclaims.get(number) else { return Ok(()) };
        let (victim, page) = (reclaim.victim, reclaim.page);
        let read = std::mem::take(&mut reclaim.read);
        let mut moved = 0;
        if let Some(page) = page {
            for (stamp, placed) in self.flash_volume.coalesce_plan(page)? {
                // Versions created since the read are not in the controller; the others are moved
                // without them.
                let known: Vec<(u8, Slot)> =
                    placed.into_iter().filter(|(_, slot)| read.binary_search(slot).is_ok()).collect();
                moved += self.relocate(number, page, stamp, &known, context)?;
            }
        }
        let mut live: Vec<(PageId, Stamp, u8, Slot)> = Vec::new();
        let still = victim.map_or(Ok(Vec::new()), |victim| self.flash_volume.live_in(victim))?;
        for (key, slot, stamp) in still {
            let (page, segment) = self.flash_volume.layout.split(key);
            live.push((page, stamp, segment, slot));
        }
        live.sort_unstable();
        for version in live.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let Some(&(page, stamp, ..)) = version.first() else { continue };
            let segments: Vec<(u8, Slot)> = version.iter().map(|v| (v.2, v.3)).collect();
            moved += self.relocate(number, page, stamp, &segments, context)?;
        }
        if let Some(victim) = victim {
            let live = self.flash_volume.volume().blocks().info(victim).live;
            law("an emptied block holds no live segment", live.into(), 0)?;
        }
        match self.reclaims.get(number) {
            Some(reclaim) if moved > 0 => reclaim.left = moved,
            _ => return self.erase(number, context),
        }
        Ok(())
    }

    /// Moves segments of a version. Returns the number moved.
    fn relocate(
        &mut self,
        number: u32,
        page: PageId,
        stamp: Stamp,
        segments: &[(u8, Slot)],
        context: &mut Context<NvmmEvent>,
    ) -> Result<u32, SimError> {
        if segments.is_empty() {
            return Ok(0);
        }
        let mask = segments.iter().fold(0, |mask, (segment, _)| mask | 1 << segment);
        let placed = self.flash_volume.relocate(page, stamp, mask)?;
        for (segment, slot) in &placed {
            if let Some(shadow) = &mut self.shadow
                && let Some((_, old)) = segments.iter().find(|(s, _)| s == segment)
            {
                shadow.copy(*old, *slot);
            }
            self.in_buffer.insert(slot.0);
            self.flash.move_programs += 1;
            let op = self.operations.add(OperationPurpose::MoveProgram { reclaim: number, slot: slot.0 });
            self.channels.submit(
                op,
                OperationClass::Program,
                self.flash_volume.layout.plane(*slot),
                context.now().0,
            );
        }
        Ok(placed.len() as u32)
    }

    pub(super) fn move_programmed(
        &mut self,
        number: u32,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        if self.end_operation(number) { self.erase(number, context) } else { Ok(()) }
    }

    fn erase(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let Some(reclaim) = self.reclaims.get(number) else { return Ok(()) };
        let victim = reclaim.victim.filter(|_| self.nvmm.is_flash());
        let Some(victim) = victim else { return self.victim_freed(number, context) };
        let planes = self.flash_volume.layout.planes(victim);
        reclaim.left = planes.len() as u32;
        for plane in planes {
            self.flash.erases += 1;
            let op = self.operations.add(OperationPurpose::Erase(number));
            self.channels.submit(op, OperationClass::Erase, plane, context.now().0);
        }
        Ok(())
    }

    pub(super) fn erase_ended(
        &mut self,
        number: u32,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        if self.end_operation(number) { self.victim_freed(number, context) } else { Ok(()) }
    }

    fn victim_freed(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let Some(reclaim) = self.reclaims.take(number) else { return Ok(()) };
        if reclaim.wear {
            self.levelling = false;
        } else {
            self.reclaims_open -= 1;
            self.reclaims_since_write += 1;
        }
        self.collapsing.retain(|page| Some(*page) != reclaim.page);
        self.counts.chains_collapsed += u64::from(reclaim.page.is_some());
        if let Some(victim) = reclaim.victim {
            self.counts.blocks_reclaimed += 1;
            if let Some(shadow) = &mut self.shadow {
                let first = self.flash_volume.layout.slot(victim, 0).0;
                shadow.erase(first..first + u64::from(self.flash_volume.layout.slots_per_block));
            }
            self.flash_volume.erased(victim)?;
        }
        self.reclaim_if_short(context)?;
        if !self.levelling
            && let Some(block) = self.flash_volume.wear_victim(self.options.wear_spread)
        {
            self.counts.wear_moves += 1;
            self.begin_reclaim(Some(block), None, true, context)?;
        }
        self.retry_stalled(context)
    }
}
