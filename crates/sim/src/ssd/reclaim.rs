//! Reclamation and wear levelling of a drive, and the mapping pages that move with them.

use deepram_media::NandOp;

use super::map::NONE;
use super::parallel::{MAPPING, Operation, ParallelEvent, ParallelSsd, Place, Source, full_error};
use super::pool::Use;
use crate::error::SimError;
use crate::flash::law;
use crate::host::Context;

impl ParallelSsd {
    /// Writes a mapping page anew: its old version is read and merged.
    pub(super) fn write_mapping(
        &mut self,
        page: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let plane = self.home(page);
        let old = self.directory[page as usize];
        let Some((physical, full)) = self.pool.allocate(plane, Use::Mapping, MAPPING | page) else {
            return Err(full_error(context.now(), plane));
        };
        self.pool.invalidate(old);
        self.directory[page as usize] = physical;
        let bytes = self.ssd.nand.page.0 as u32;
        let program = self.new_operation(Operation {
            op: NandOp::Program,
            source: Source::Mapping,
            physical,
            key: page,
            bytes,
            owner: NONE,
            blocked: true,
            copy_back: false,
            place: Place::default(),
        });
        self.pool.read_started(old);
        let read = self.new_operation(Operation {
            op: NandOp::Read,
            source: Source::Merge,
            physical: old,
            key: page,
            bytes,
            owner: program,
            blocked: false,
            copy_back: false,
            place: Place::default(),
        });
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
        if self.pool.free(plane) >= self.reclaim_below.max(self.write_reserve)
            || self.pool.reclaiming(plane) >= self.options.reclaim_at_once.max(1)
        {
            return Ok(());
        }
        match self.pool.victim(plane, self.victim, &mut self.random) {
            Some(block) => self.move_block(block, context),
            None => Ok(()),
        }
    }

    /// Moves what is live in a held block, then erases it.
    pub(super) fn move_block(
        &mut self,
        block: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let pages = self.pool.pages;
        self.moves_left[block as usize] = self.pool.live(block) as u16;
        if self.moves_left[block as usize] == 0 {
            return self.erase_block(block, context);
        }
        for page in block * pages..(block + 1) * pages {
            if !self.is_live(page) {
                continue;
            }
            self.pool.read_started(page);
            let number = self.new_operation(Operation {
                op: NandOp::Read,
                source: Source::Move,
                physical: page,
                key: block,
                bytes: self.ssd.nand.page.0 as u32,
                owner: NONE,
                blocked: false,
                copy_back: self.ssd.copy_back,
                place: Place::default(),
            });
            self.enqueue(number, context)?;
        }
        Ok(())
    }

    pub(super) fn is_live(&self, physical: u32) -> bool {
        let key = self.pool.held(physical);
        if key == NONE {
            false
        } else if key & MAPPING != 0 {
            self.directory[(key & !MAPPING) as usize] == physical
        } else {
            self.map.get(key).0 == physical
        }
    }

    pub(super) fn erase_block(
        &mut self,
        block: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        if self.pool.is_read(block) {
            self.erase_waits[block as usize] = true;
            return Ok(());
        }
        law("an erased block holds no live page", u64::from(self.pool.live(block)), 0)?;
        let number = self.new_operation(Operation {
            op: NandOp::Erase,
            source: Source::Move,
            physical: block * self.pool.pages,
            key: block,
            bytes: 0,
            owner: NONE,
            blocked: false,
            copy_back: false,
            place: Place::default(),
        });
        self.enqueue(number, context)
    }

    pub(super) fn moved(&mut self, block: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let left = &mut self.moves_left[block as usize];
        *left -= 1;
        if *left == 0 { self.erase_block(block, context) } else { Ok(()) }
    }

    /// A page of a block being reclaimed has been read: it goes to the move frontier if it still is live.
    pub(super) fn move_page(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let (from, block) = (operation.physical, operation.key);
        if !self.is_live(from) {
            return self.moved(block, context);
        }
        let key = self.pool.held(from);
        let plane = self.pool.plane_of(from);
        let Some((to, full)) = self.pool.allocate(plane, Use::Move, key) else {
            return Err(full_error(context.now(), plane));
        };
        self.pool.invalidate(from);
        if key & MAPPING != 0 {
            self.directory[(key & !MAPPING) as usize] = to;
        } else {
            let (_, sectors) = self.map.get(key);
            self.map.set(key, to, sectors);
        }
        if operation.copy_back {
            // The array has done both already.
            self.counts.move_programs += 1;
            self.pool.programmed(to);
            self.moved(block, context)?;
        } else {
            let number = self.new_operation(Operation {
                op: NandOp::Program,
                source: Source::Move,
                physical: to,
                key: block,
                bytes: operation.bytes,
                owner: NONE,
                blocked: false,
                copy_back: false,
                place: Place::default(),
            });
            self.enqueue(number, context)?;
        }
        if full {
            self.reclaim(plane, context)?;
        }
        Ok(())
    }

    pub(super) fn erase_over(
        &mut self,
        operation: Operation,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        self.counts.erases += 1;
        let block = operation.key;
        let plane = block / self.pool.blocks;
        let erases = self.pool.erase(block);
        if self.ssd.static_wear_levelling {
            let delta = self.ssd.wear_delta.unwrap_or(100).min(u64::from(u32::MAX)) as u32;
            if erases > delta
                && self.pool.reclaiming(plane) == 0
                && let Some(cold) = self.pool.coldest(plane, erases, delta)
            {
                self.move_block(cold, context)?;
            }
        }
        while !self.stalled[plane as usize].is_empty()
            && self.pool.free(plane) >= self.write_reserve
            && self.pool.has_room(plane, Use::Host)
        {
            if let Some(job) = self.stalled[plane as usize].pop_front() {
                self.stalled_count -= 1;
                self.write_now(job, plane, context)?;
            }
        }
        if !self.stalled[plane as usize].is_empty() && self.pool.reclaiming(plane) == 0 {
            self.reclaim(plane, context)?;
            if self.pool.reclaiming(plane) == 0 {
                return Err(full_error(context.now(), plane));
            }
        }
        Ok(())
    }
}
