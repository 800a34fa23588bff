//! The drive's flash: dies that read on demand and program in the background, the L2P map, and
//! reclamation by read-modify-write (FlatFlash, section 4).
//!
//! 1. Initially the drive is full: page p, if never written, lies at its home place in die p modulo the
//!    dies. A written page goes to the die with the least background work, and to those with as much in
//!    turn. A die that exceeds its share of live pages by half its spare blocks accepts only pages that
//!    it already holds.
//! 2. All operations go through the shared array ([`crate::flash_array`]), which orders and times them. A
//!    die is one of its planes: planes of a die are not used together.
//! 3. Map, blocks and contents change when a page is written; its program, and the reads, programs and
//!    erases of reclamation, follow in the background. A write waits while more than `write_queue` pages
//!    of its die, with its own, have not been programmed.
//! 4. Where a die is short of free blocks, the block with the fewest live pages is read and written to a
//!    free block; dirty pages of the device buffer take the places of its invalid pages (the caller
//!    supplies them).
//! 5. With translation merged into the host's page table, the host keeps using the old place of a page
//!    that has moved, and the drive remembers the new place. It reports all moved pages to the host in
//!    one batch (lazy remap). Until then no block that holds an old place is erased, since that place
//!    would refer to another page.

mod operations;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use deepram_core::ftl::blocks::{BlockInfo, BlockState, Blocks};
use deepram_core::ftl::page_map::PageMap;
use deepram_core::ftl::victim::{Greedy, VictimPolicy, any_block};
use deepram_core::units::BlockId;
use deepram_media::{Hierarchy, NandOp};

pub(super) use operations::QueueTicket;

use operations::FlashOperation;

use super::shadow::Shadow;
use super::task::Waiter;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::flash_array::{Channels, OpId, OperationClass};
use crate::slab::Slab;

/// The map entry of a page never written: the page lies at its home place.
const UNMOVED: u32 = u32::MAX;

struct Die {
    blocks: Blocks,
    open: Option<BlockId>,
    /// The time that the background work under way takes alone.
    backlog: Time,
    /// Pages written and programmed so far, those of reclamation excluded.
    written: u64,
    programmed: u64,
    /// Blocks that are free, or open again, and whose erase is not over.
    erasing: u32,
    /// Programs that wait for the erase of the open block.
    held: Vec<OpId>,
    /// Waiting writes, in the order of their claims.
    waiting: VecDeque<(QueueTicket, Waiter)>,
}

/// The outcome of a page write.
pub(super) struct ProgramOutcome {
    pub(super) ticket: QueueTicket,
    /// The die, and the number of dirty pages that a block just reclaimed has places for.
    pub(super) spare: (usize, u32),
}

/// The drive's flash and its translation layer.
pub(super) struct DriveFlash {
    /// Times that the operations take alone.
    read: Time,
    program: Time,
    erase: Time,
    pub(super) array: Channels,
    page_bytes: u32,
    operations: Slab<FlashOperation>,
    dies: Vec<Die>,
    /// Pages whose read is over.
    pub(super) pages_read: VecDeque<u32>,
    /// Waits that are over, each with the time of a remap batch that comes after it.
    pub(super) accepted: VecDeque<(Waiter, Time)>,
    per_block: u32,
    blocks: u32,
    host_blocks: u32,
    map: PageMap<u32>,
    back: PageMap<u32>,
    next: usize,
    sequence: u64,
    reserve: u32,
    /// Live pages beyond which a die accepts no page of another die.
    share: u64,
    /// Pages of a die that the write queue holds.
    limit: u64,
    merged: bool,
    batch: usize,
    /// Pages that have moved since the last remap batch: old place, and uses of its block.
    moved: HashMap<u32, (u32, u32)>,
    /// The moved pages, in the order of their moves.
    order: Vec<u32>,
    /// Pages of the remap batch that the host must apply.
    pub(super) remap_batch: Vec<u32>,
    pub(super) batches: u64,
    pub(super) forced: u64,
    pub(super) remapped: u64,
    pub(super) reclaims: u64,
    counts: FlashCounts,
}

impl DriveFlash {
    pub(super) fn new(preset: &Hierarchy, merged: bool) -> Result<Self, SimError> {
        let small = |key: &'static str, value: u64| {
            u32::try_from(value)
                .map_err(|_| SimError::config(key, format!("{value} is too many: use at most 2^32 - 1")))
        };
        let nand = &preset.nand;
        let blocks = small("blocks_per_plane", preset.blocks_per_die())?;
        let host_blocks = small("blocks_per_plane", preset.host_blocks_per_die())?;
        let per_block = small("pages_per_block", nand.pages_per_block)?;
        let dies = preset.dies();
        let places = small("channels", u64::from(blocks) * u64::from(per_block) * dies)?;
        let pages = (u64::from(host_blocks) * u64::from(per_block) * dies) as u32;
        let filled = per_block as u16;
        let full = BlockInfo { state: BlockState::Closed, used: filled, live: filled, uses: 1, sequence: 0 };
        let infos: Vec<BlockInfo> =
            (0..blocks).map(|id| if id < host_blocks { full } else { BlockInfo::default() }).collect();
        let fresh = Blocks::restore(filled, infos).map_err(block_error)?;
        let reserve = small("reserve_blocks", preset.reserve_blocks)?;
        let spare = (blocks - host_blocks).saturating_sub(reserve + 1);
        let share = u64::from(per_block) * (u64::from(host_blocks) + u64::from(spare / 2));
        let program = nand.idle_latency(NandOp::Program, 1).0;
        let die = || Die {
            blocks: fresh.clone(),
            open: None,
            backlog: 0,
            written: 0,
            programmed: 0,
            erasing: 0,
            held: Vec::new(),
            waiting: VecDeque::new(),
        };
        Ok(Self {
            read: nand.idle_latency(NandOp::Read, 1).0,
            program,
            erase: nand.idle_latency(NandOp::Erase, 1).0,
            page_bytes: nand.page.0 as u32,
            array: Channels::new(nand, preset.channels as u32, dies as u32),
            operations: Slab::new(),
            dies: (0..dies).map(|_| die()).collect(),
            pages_read: VecDeque::new(),
            accepted: VecDeque::new(),
            per_block,
            blocks,
            host_blocks,
            map: PageMap::sparse(pages, UNMOVED),
            back: PageMap::sparse(places, UNMOVED),
            next: 0,
            sequence: 0,
            reserve,
            share,
            limit: preset.write_queue,
            merged,
            batch: preset.remap_batch as usize,
            moved: HashMap::new(),
            order: Vec::new(),
            remap_batch: Vec::new(),
            batches: 0,
            forced: 0,
            remapped: 0,
            reclaims: 0,
            counts: FlashCounts::default(),
        })
    }

    pub(super) fn pages(&self) -> u32 {
        self.map.pages() as u32
    }

    pub(super) fn counts(&self) -> FlashCounts {
        FlashCounts { suspensions: self.array.suspensions(), ..self.counts }
    }

    pub(super) fn prefetch(&self, page: u32) {
        self.map.prefetch(page);
    }

    fn number(&self, die: usize, block: u32, slot: u32) -> u32 {
        (die as u32 * self.blocks + block) * self.per_block + slot
    }

    /// Die, block and slot of a place.
    fn split(&self, place: u32) -> (usize, BlockId, u32) {
        let (block, slot) = (place / self.per_block, place % self.per_block);
        ((block / self.blocks) as usize, BlockId(block % self.blocks), slot)
    }

    /// The present place of a page.
    pub(super) fn place(&self, page: u32) -> u32 {
        let place = self.map.get(page);
        if place != UNMOVED {
            return place;
        }
        let dies = self.dies.len() as u32;
        let (die, at) = (page % dies, page / dies);
        self.number(die as usize, at / self.per_block, at % self.per_block)
    }

    /// The page last written to a place, whether or not it is still there.
    fn page_at(&self, place: u32) -> Option<u32> {
        let page = self.back.get(place);
        if page != UNMOVED {
            return Some(page);
        }
        let (die, block, slot) = self.split(place);
        (block.0 < self.host_blocks)
            .then(|| (block.0 * self.per_block + slot) * self.dies.len() as u32 + die as u32)
    }

    /// Writes a page from a frame of the device buffer, at `now`.
    pub(super) fn write(
        &mut self,
        page: u32,
        buffer_frame: usize,
        now: Time,
        at_drive: &dyn Fn(u32) -> bool,
        shadow: &mut Option<Shadow>,
    ) -> Result<ProgramOutcome, SimError> {
        let (at, mut least) = (self.next, Time::MAX);
        let mut chosen = at;
        for turn in 0..self.dies.len() {
            let other = (at + turn) % self.dies.len();
            let left = self.dies[other].backlog;
            if left < least && self.accepts(other, page) {
                (chosen, least) = (other, left);
            }
            if least == 0 {
                break;
            }
        }
        let at = chosen;
        self.next = (at + 1) % self.dies.len();
        let spare = self.write_to(at, page, buffer_frame, now, at_drive, shadow)?;
        let target = self.dies[at].written.saturating_sub(self.limit);
        Ok(ProgramOutcome { ticket: QueueTicket { die: at, target, remap: 0 }, spare: (at, spare) })
    }

    /// True if the page may be written to the die.
    pub(super) fn accepts(&self, at: usize, page: u32) -> bool {
        self.dies[at].blocks.live_slots() < self.share || self.split(self.place(page)).0 == at
    }

    /// Writes a page to a die that accepts it. Returns the places for dirty pages, if a block was
    /// reclaimed.
    pub(super) fn write_to(
        &mut self,
        at: usize,
        page: u32,
        buffer_frame: usize,
        now: Time,
        at_drive: &dyn Fn(u32) -> bool,
        shadow: &mut Option<Shadow>,
    ) -> Result<u32, SimError> {
        let spare = self.open_block(at, now, at_drive, shadow)?;
        let place = self.place_page(at, page, at_drive)?;
        if let Some(shadow) = shadow {
            shadow.buffer_to_flash(buffer_frame, place);
        }
        self.counts.host_programs += 1;
        self.counts.host_pages += 1;
        self.dies[at].written += 1;
        self.submit_background(FlashOperation::Program(at), OperationClass::Program, at, now);
        if self.moved.len() >= self.batch {
            self.send_remap_batch(now, shadow)?;
        }
        Ok(spare.saturating_sub(1))
    }

    /// Opens a block for the die if its open block is full, and reclaims one if free blocks are short.
    /// Returns the places for dirty pages, if a block was reclaimed.
    fn open_block(
        &mut self,
        at: usize,
        now: Time,
        at_drive: &dyn Fn(u32) -> bool,
        shadow: &mut Option<Shadow>,
    ) -> Result<u32, SimError> {
        if let Some(open) = self.dies[at].open {
            if u32::from(self.dies[at].blocks.info(open).used) < self.per_block {
                return Ok(0);
            }
            self.dies[at].blocks.close(open).map_err(block_error)?;
            self.dies[at].open = None;
        }
        if !self.merged {
            self.release(at, now, shadow);
        } else if self.dies[at].blocks.free() <= 1 && self.dies[at].blocks.dead() > 0 {
            self.forced += 1;
            self.send_remap_batch(now, shadow)?;
        }
        let short = self.dies[at].blocks.free() <= self.reserve;
        self.sequence += 1;
        let sequence = self.sequence;
        let Some(open) = self.dies[at].blocks.open(0, sequence) else {
            return Err(SimError::Full { time_ps: now, what: format!("die {at} has no free block") });
        };
        self.dies[at].open = Some(open);
        if short { self.reclaim(at, now, at_drive, shadow) } else { Ok(0) }
    }

    /// Moves the live pages of the block with the fewest into the empty open block. Returns the number
    /// of places left.
    fn reclaim(
        &mut self,
        at: usize,
        now: Time,
        at_drive: &dyn Fn(u32) -> bool,
        shadow: &mut Option<Shadow>,
    ) -> Result<u32, SimError> {
        let picked = Greedy::default().pick(&self.dies[at].blocks, self.sequence, &mut any_block);
        let Some(victim) = picked else { return Ok(0) };
        self.reclaims += 1;
        let mut moved = 0;
        for slot in 0..self.per_block {
            let from = self.number(at, victim.0, slot);
            let Some(page) = self.page_at(from).filter(|page| self.place(*page) == from) else { continue };
            let to = self.place_page(at, page, at_drive)?;
            if let Some(shadow) = shadow {
                shadow.flash_to_flash(from, to);
            }
            moved += 1;
        }
        self.counts.move_reads += u64::from(moved);
        self.counts.move_programs += u64::from(moved);
        self.dies[at].backlog += Time::from(moved) * self.program;
        for _ in 0..moved {
            self.submit_background(FlashOperation::MoveRead(at), OperationClass::Move, at, now);
        }
        Ok(self.per_block - moved)
    }

    /// Assigns the page to the next slot of the die's open block. Returns its place.
    fn place_page(&mut self, at: usize, page: u32, at_drive: &dyn Fn(u32) -> bool) -> Result<u32, SimError> {
        let old = self.place(page);
        let (die, block, _) = self.split(old);
        let uses = self.dies[die].blocks.info(block).uses;
        self.dies[die].blocks.sub_live(block, 1).map_err(block_error)?;
        let open = self.dies[at].open.unwrap_or_default();
        let Some(slot) = self.dies[at].blocks.take(open) else {
            return Err(SimError::Conservation {
                law: "a page is written to a block with room",
                found: format!("die {at}, block {open:?}"),
            });
        };
        let place = self.number(at, open.0, u32::from(slot));
        self.map.set(page, place);
        self.back.set(place, page);
        if self.merged && at_drive(page) {
            self.moved.entry(page).or_insert_with(|| {
                self.order.push(page);
                (old, uses)
            });
        }
        Ok(place)
    }

    /// Records that the host no longer uses an old place of the page, since its page-table entry has
    /// changed.
    pub(super) fn forget(&mut self, page: u32) {
        self.moved.remove(&page);
    }

    /// Reports all moved pages to the host: from now on no old place is in use.
    fn send_remap_batch(&mut self, now: Time, shadow: &mut Option<Shadow>) -> Result<(), SimError> {
        self.batches += 1;
        for page in std::mem::take(&mut self.order) {
            if self.moved.contains_key(&page) {
                self.check_old(page)?;
                self.moved.remove(&page);
                self.remapped += 1;
                self.remap_batch.push(page);
            }
        }
        for at in 0..self.dies.len() {
            self.release(at, now, shadow);
        }
        Ok(())
    }

    /// Erases the die's dead blocks.
    fn release(&mut self, at: usize, now: Time, shadow: &mut Option<Shadow>) {
        if self.dies[at].blocks.dead() == 0 {
            return;
        }
        for block in self.dies[at].blocks.release_dead() {
            self.counts.erases += 1;
            self.dies[at].erasing += 1;
            self.submit_background(FlashOperation::Erase(at), OperationClass::Erase, at, now);
            if let Some(shadow) = shadow {
                for slot in 0..self.per_block {
                    shadow.erase(self.number(at, block.0, slot));
                }
            }
        }
    }

    /// Checks that the old place that the host uses for a page has not been erased.
    fn check_old(&self, page: u32) -> Result<(), SimError> {
        let Some((old, uses)) = self.moved.get(&page).copied() else { return Ok(()) };
        let (die, block, _) = self.split(old);
        let info = self.dies[die].blocks.info(block);
        if info.state == BlockState::Free || info.uses != uses {
            return Err(SimError::Conservation {
                law: "no place that the host still uses is erased",
                found: format!("place {old} of page {page}, in a block {:?}", info.state),
            });
        }
        Ok(())
    }

    /// Erases of each block.
    pub(super) fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        // A block is erased before each use but the first.
        self.dies
            .iter()
            .flat_map(|die| die.blocks.infos())
            .map(|info| info.uses.saturating_sub(u32::from(info.state != BlockState::Free)))
    }

    /// Checks that each page is in one place, each live slot belongs to a page, and old places still
    /// exist.
    pub(super) fn check(&self) -> Result<(), SimError> {
        let live = self.dies.iter().map(|die| die.blocks.live_slots()).sum();
        law("live slots of flash are the pages of the host", live, self.map.pages())?;
        for (page, place) in self.map.iter() {
            if self.page_at(place) != Some(page) {
                return Err(SimError::Conservation {
                    law: "the place of a page holds the page",
                    found: format!("page {page} at {place}, which holds {:?}", self.page_at(place)),
                });
            }
        }
        self.order.iter().try_for_each(|page| self.check_old(*page))
    }
}

fn block_error(error: impl std::fmt::Display) -> SimError {
    SimError::Conservation { law: "blocks are used as their states allow", found: error.to_string() }
}
