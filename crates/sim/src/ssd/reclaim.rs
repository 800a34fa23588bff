//! Reclamation and wear levelling of a drive, and rewrites of mapping pages.

use deepram_media::NandOp;

use super::operation::{Operation, OperationSource};
use super::parallel::{MAPPING, MappingEntry, ParallelEvent, ParallelSsd, full_error};
use crate::error::SimError;
use crate::flash::law;
use crate::flash_array::blocks::{FrontierUse, NONE};
use crate::host::Context;

impl ParallelSsd {
    /// Rewrites a mapping page: its old version is read and merged.
    pub(super) fn write_mapping(
        &mut self,
        page: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let plane = self.plane_of_page(page);
        let old = self.directory[page as usize];
        let Some((address, full)) = self.allocate(plane, FrontierUse::Mapping, MAPPING | page) else {
            return Err(full_error(context.now().0, plane));
        };
        self.planes.invalidate(old)?;
        self.directory[page as usize] = address.physical;
        let bytes = self.ssd.nand.page.0 as u32;
        let program = Operation::new(NandOp::Program, OperationSource::Mapping, address, page, bytes, NONE);
        let program = self.operations.add(Operation { blocked: true, ..program });
        let from = self.planes.address(old);
        self.planes.read_started(from.block);
        let read = Operation::new(NandOp::Read, OperationSource::Merge, from, page, bytes, program);
        let read = self.operations.add(read);
        if full {
            self.reclaim(plane, context)?;
        }
        self.enqueue(program, context)?;
        self.enqueue(read, context)
    }

    /// Starts reclaiming a block of the plane if too few are free.
    pub(super) fn reclaim(
        &mut self,
        plane: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        if self.planes.free(plane) >= self.reclaim_below.max(self.write_reserve)
            || self.planes.reclaiming(plane) >= self.options.reclaim_at_once.max(1)
        {
            return Ok(());
        }
        match self.planes.victim(plane, self.victim, &mut self.random) {
            Some(block) => self.move_block(block, context),
            None => Ok(()),
        }
    }

    /// Moves the live pages of a held block, then erases the block.
    pub(super) fn move_block(
        &mut self,
        block: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let pages = self.planes.pages;
        self.moves_left[block as usize] = self.planes.live(block) as u16;
        if self.moves_left[block as usize] == 0 {
            return self.erase_block(block, context);
        }
        for page in block * pages..(block + 1) * pages {
            if !self.is_live(page) {
                continue;
            }
            let address = self.planes.address(page);
            self.planes.read_started(block);
            let bytes = self.ssd.nand.page.0 as u32;
            let read = Operation::new(NandOp::Read, OperationSource::Move, address, block, bytes, NONE);
            let number = self.operations.add(Operation { copy_back: self.ssd.copy_back, ..read });
            self.enqueue(number, context)?;
        }
        Ok(())
    }

    pub(super) fn is_live(&self, physical: u32) -> bool {
        let key = self.planes.stored_key(physical);
        if key == NONE {
            false
        } else if key & MAPPING != 0 {
            self.directory[(key & !MAPPING) as usize] == physical
        } else {
            self.map.get(key).physical == physical
        }
    }

    pub(super) fn erase_block(
        &mut self,
        block: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        if self.planes.is_read(block) {
            self.erase_waits[block as usize] = true;
            return Ok(());
        }
        law("an erased block holds no live page", u64::from(self.planes.live(block)), 0)?;
        let address = self.planes.address(block * self.planes.pages);
        let erase = Operation::new(NandOp::Erase, OperationSource::Move, address, block, 0, NONE);
        let number = self.operations.add(erase);
        self.enqueue(number, context)
    }

    pub(super) fn page_moved(
        &mut self,
        block: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let left = &mut self.moves_left[block as usize];
        *left -= 1;
        if *left == 0 { self.erase_block(block, context) } else { Ok(()) }
    }

    /// Writes a page that was read from a block being reclaimed to the move frontier, if the page is
    /// still live.
    pub(super) fn move_page(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let (from, block) = (operation.address.physical, operation.key);
        if !self.is_live(from) {
            return self.page_moved(block, context);
        }
        let key = self.planes.stored_key(from);
        let plane = operation.address.plane;
        let Some((to, full)) = self.allocate(plane, FrontierUse::Move, key) else {
            return Err(full_error(context.now().0, plane));
        };
        self.planes.invalidate(from)?;
        if key & MAPPING != 0 {
            self.directory[(key & !MAPPING) as usize] = to.physical;
        } else {
            let at = self.map.get(key);
            self.map.set(key, MappingEntry { physical: to.physical, ..at });
        }
        if operation.copy_back {
            // The array has already performed both the read and the program.
            self.counts.move_programs += 1;
            self.planes.programmed(to)?;
            self.page_moved(block, context)?;
        } else {
            let bytes = operation.bytes;
            let program = Operation::new(NandOp::Program, OperationSource::Move, to, block, bytes, NONE);
            let number = self.operations.add(program);
            self.enqueue(number, context)?;
        }
        if full {
            self.reclaim(plane, context)?;
        }
        Ok(())
    }

    pub(super) fn erase_ended(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        self.counts.erases += 1;
        let block = operation.key;
        let plane = operation.address.plane;
        self.planes.erase(block)?;
        self.note_urgency(plane);
        if self.ssd.static_wear_levelling && self.planes.reclaiming(plane) == 0 {
            let delta = self.ssd.wear_delta.unwrap_or(100).min(u64::from(u32::MAX)) as u32;
            if let Some(cold) = self.planes.wear_victim(plane, delta) {
                self.move_block(cold, context)?;
            }
        }
        self.resume_stalled(plane, context)
    }

    /// Performs the writes that wait for room on the plane, as far as there is room. Where none of its blocks can be reclaimed
    /// now, they wait for the programs that are under way.
    pub(super) fn resume_stalled(
        &mut self,
        plane: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        while !self.stalled[plane as usize].is_empty()
            && self.planes.free(plane) >= self.write_reserve
            && self.planes.has_room(plane, FrontierUse::Host)
        {
            if let Some(job) = self.stalled[plane as usize].pop_front() {
                self.stalled_count -= 1;
                self.write_now(job, plane, context)?;
            }
        }
        if !self.stalled[plane as usize].is_empty() && self.planes.reclaiming(plane) == 0 {
            self.reclaim(plane, context)?;
            if self.planes.reclaiming(plane) == 0 && !self.planes.is_programming(plane) {
                return Err(full_error(context.now().0, plane));
            }
        }
        Ok(())
    }
}
