//! Room on the device: how much there is, who may have it, and what is done when it runs short.
//!
//! Blocks are kept back for the tables (a checkpoint writes the new before the old is given up)
//! and for reclamation (it moves segments before it frees their block). The rest is for segments:
//! `room` is how many more can become live before nothing could be reclaimed any more.

use std::sync::atomic::Ordering::Relaxed;

use deepram_core::{Bytes, Epoch};

use super::{Log, Result, Store, Stream};
use crate::error::PoolError;
use crate::format::batch::Meta;
use crate::format::header::Geometry;

/// Blocks that the two streams have open: the one being filled and the one after.
const HEADS: u32 = 4;
/// Blocks that moving one block's segments may take.
const MOVE: u32 = 2;
/// A block that is fuller than all but this part is not reclaimed: headers and gaps would eat
/// what that gains.
const LEAST_GAIN: u64 = 8;
/// Blocks reclaimed without one more coming free, after which there is nothing to be had.
const PATIENCE: u32 = 24;
/// Bytes of log after which a checkpoint is due: what an opening after a crash has to go through.
const CHECKPOINT_BYTES: u64 = 256 << 20;
/// Pages pruned before the log is given to somebody else.
const PRUNE_STEP: usize = 512;

/// Blocks that the tables of a controller may take, at most: every chunk and the root record,
/// twice, for the old stay until the new are durable.
pub(super) fn table_blocks(geometry: &Geometry) -> u32 {
    let chunks = u64::from(geometry.pages.div_ceil(256)) + u64::from(geometry.upper.div_ceil(256));
    let per_slot = geometry.segment.bytes();
    // The root record: 24 bytes a block, 16 a chunk, a bit and, in lists of changed pages, a few
    // bytes a page.
    let root = u64::from(geometry.blocks) * 24 + chunks * 16 + u64::from(geometry.pages) * 9 + (1 << 16);
    let slots = 2 * (chunks + root.div_ceil(per_slot));
    slots.div_ceil(u64::from(geometry.slots_per_block)) as u32 + 2
}

/// Segments that a block holds when it is filled by full batches.
pub(super) fn segments_per_block(geometry: &Geometry) -> u64 {
    let slots = u64::from(geometry.slots_per_block);
    let batch = super::append::batch_slots(geometry) as u64;
    slots - slots.div_ceil(batch) - 1
}

/// Blocks that stay free whatever the user writes, so that a block can be emptied and a checkpoint
/// written: without these two nothing would come free any more.
fn reserve(geometry: &Geometry) -> u32 {
    table_blocks(geometry).div_ceil(2) + MOVE
}

/// Live slots of a block, at most, with which reclaiming it gains something.
pub(super) fn worth_moving(geometry: &Geometry) -> u16 {
    geometry.slots_per_block - geometry.slots_per_block / LEAST_GAIN as u16
}

/// Segments that a device of this geometry can hold live at once: with all of them in blocks just
/// too full to be reclaimed, what is left is what writing asks for.
pub(crate) fn capacity(geometry: &Geometry) -> u64 {
    let slots = u64::from(geometry.slots_per_block);
    let kept = table_blocks(geometry) + HEADS + reserve(geometry) + MOVE;
    u64::from(geometry.blocks.saturating_sub(kept))
        * segments_per_block(geometry).min(slots - slots / LEAST_GAIN - 1)
}

impl Store {
    /// Brings `room` up to date with the tables.
    pub(super) fn update_room(&self) {
        let tables = self.lock_tables();
        let chunks = tables.directory.iter().flatten().count() as u64;
        let live = tables.volume.blocks().live_slots().saturating_sub(chunks + tables.root_slots);
        let capacity = capacity(&self.geometry);
        self.room.store(capacity.cast_signed() - live.cast_signed(), Relaxed);
    }

    /// Whether `segments` more can become dirty.
    pub(crate) fn admit(&self, segments: u64) -> Result<()> {
        let room = self.room.load(Relaxed);
        if segments.cast_signed() <= room {
            return Ok(());
        }
        let segment = self.geometry.segment.bytes();
        Err(self.no_space(segments * segment, room.max(0).cast_unsigned() * segment))
    }

    pub(super) fn no_space(&self, needed: u64, available: u64) -> PoolError {
        PoolError::NoSpace { device: self.device.name(), needed: Bytes(needed), available: Bytes(available) }
    }

    /// Gives up old tokens, oldest first, until `segments` more fit or only the last is left.
    pub(crate) fn relieve(&self, log: &mut Log, segments: u64) -> Result<()> {
        while self.admit(segments).is_err() {
            let Some(oldest) = self.droppable() else { break };
            self.drop_token(log, oldest)?;
            while self.prune(PRUNE_STEP)? {}
            self.update_room();
        }
        self.admit(segments)
    }

    fn droppable(&self) -> Option<Epoch> {
        let tables = self.lock_tables();
        let tokens = tables.volume.tokens();
        (tokens.len() > 1).then(|| tokens[0].epoch)
    }

    /// Gives a token up; the next batch says so in the log.
    pub(crate) fn drop_token(&self, log: &mut Log, token: Epoch) -> Result<()> {
        self.with_tables(|t| t.volume.drop_token(token))?;
        log.pending.push(Meta::Drop { token: token.0 });
        Ok(())
    }

    /// Prunes some pages; whether more are waiting.
    pub(super) fn prune(&self, pages: usize) -> Result<bool> {
        Ok(self.with_tables(|t| t.volume.prune_step(pages))? > 0)
    }

    /// Makes sure that `segments` can be appended: free blocks, table entries, room in headers.
    pub(super) fn ready(&self, log: &mut Log, stream: Stream, segments: usize) -> Result<()> {
        if stream == Stream::Reclaim {
            // Lives on the reserve; asking for more would ask for itself.
            return self.spill_pending(log, stream);
        }
        let blocks = self.blocks_for(segments as u64);
        self.make_free(log, blocks, true)?;
        // Coalescing fills blocks, reclaiming takes entries: each after the other until both fit.
        while !self.has_entries(segments) {
            self.make_entries(log, segments)?;
            self.make_free(log, blocks, true)?;
        }
        if log.broken && log.pending.len() > 64 {
            self.checkpoint(log)?;
        }
        self.spill_pending(log, stream)
    }

    /// Makes sure that so many blocks are free beside those that writing needs.
    pub(super) fn make_blocks_free(&self, log: &mut Log, blocks: u32) -> Result<()> {
        self.make_free(log, self.blocks_for(0) + blocks, true)
    }

    /// Puts the blocks in order that an earlier life left half filled, as far as that goes.
    pub(super) fn recover_space(&self, log: &mut Log) -> Result<()> {
        match self.make_free(log, self.blocks_for(0), false) {
            Err(PoolError::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Whether a block can be emptied and a checkpoint be written after that. If not, a checkpoint
    /// comes first, if it makes something free.
    pub(super) fn can_move(&self, log: &mut Log) -> Result<bool> {
        let (free, dead) = self.free_and_dead();
        if free <= reserve(&self.geometry) && dead > 0 {
            self.checkpoint(log)?;
        }
        Ok(self.free_and_dead().0 > reserve(&self.geometry))
    }

    /// Blocks that must be free before `segments` are appended.
    fn blocks_for(&self, segments: u64) -> u32 {
        // The blocks being filled are full, perhaps, and gaps cost something at the start of each.
        segments.div_ceil(segments_per_block(&self.geometry)) as u32 + MOVE + reserve(&self.geometry)
    }

    fn free_and_dead(&self) -> (u32, u32) {
        let tables = self.lock_tables();
        let blocks = tables.volume.blocks();
        (blocks.free(), blocks.dead())
    }

    /// Reclaims until `blocks` are free; if need be and `give_up` says so, gives up old tokens.
    fn make_free(&self, log: &mut Log, blocks: u32, give_up: bool) -> Result<()> {
        let (mut best, mut tries) = (0, 0);
        loop {
            let (free, dead) = self.free_and_dead();
            if free >= blocks {
                return Ok(());
            }
            // A checkpoint gives the dead ones back. Collect a few first, it has its price.
            if dead > 0 && (free + dead >= blocks || dead >= 8 || free <= reserve(&self.geometry)) {
                self.checkpoint(log)?;
                let (_, left) = self.free_and_dead();
                if left < dead {
                    continue;
                }
            }
            if free + dead > best {
                (best, tries) = (free + dead, 0);
            }
            tries += 1;
            if tries <= PATIENCE && free >= MOVE && self.reclaim_one(log)? {
                continue;
            }
            if dead > 0 && tries <= PATIENCE {
                self.checkpoint(log)?;
                continue;
            }
            // Nothing dead anywhere: only older tokens can give something up.
            let Some(oldest) = self.droppable().filter(|_| give_up) else {
                let segment = self.geometry.block_bytes();
                return Err(self.no_space(u64::from(blocks) * segment, u64::from(free) * segment));
            };
            self.drop_token(log, oldest)?;
            while self.prune(PRUNE_STEP)? {}
            self.update_room();
            tries = 0;
        }
    }

    /// Whether `segments` new entries fit in the table. A segment needs at most one entry,
    /// coalescing itself a few.
    fn has_entries(&self, segments: usize) -> bool {
        let tables = self.lock_tables();
        let table = tables.volume.table();
        let rest = table.upper_limit() - table.upper_used();
        rest.max(table.free_upper_entries()) as usize >= segments + 64
    }

    /// Makes some room in the table, for `segments` in the end: brings the longest chain together
    /// or, where that gains nothing, gives up the oldest token.
    fn make_entries(&self, log: &mut Log, segments: usize) -> Result<()> {
        if self.coalesce_longest(log)? {
            return Ok(());
        }
        let Some(oldest) = self.droppable() else {
            let limit = self.lock_tables().volume.table().upper_limit();
            let source = deepram_core::VolumeError::TableFull { needed: segments as u32, limit };
            return Err(self.volume_error(source));
        };
        self.drop_token(log, oldest)?;
        while self.prune(PRUNE_STEP)? {}
        Ok(())
    }

    /// Work that need not wait for anybody, done in the background: expired tokens, pruning,
    /// checkpoints, reclamation ahead of need. Whether there is more of it at hand.
    pub(crate) fn tend(&self) -> bool {
        // As for the rest: whoever waits for these lines is told.
        let _ = self.push_lines();
        // Whoever has the log is doing something that somebody waits for.
        let Ok(mut log) = self.log.try_lock() else { return false };
        // An error here shows again where the work is needed; nobody asked for it yet.
        self.tend_with(&mut log).unwrap_or(false)
    }

    fn tend_with(&self, log: &mut Log) -> Result<bool> {
        let expired = self.lock_tables().volume.expired();
        if let Some(token) = expired {
            self.drop_token(log, token)?;
        }
        let more = self.prune(PRUNE_STEP)?;
        self.update_room();
        if expired.is_some() || more {
            return Ok(true);
        }
        if log.since_checkpoint > CHECKPOINT_BYTES {
            self.checkpoint(log)?;
            return self.level_wear(log);
        }
        self.confirm_commit(log)?;
        let (free, dead) = self.free_and_dead();
        let low = self.blocks_for(0) + self.geometry.blocks / 32;
        if free >= low {
            return Ok(false);
        }
        if dead >= 4 {
            self.checkpoint(log)?;
            return Ok(true);
        }
        // Only where it pays: a block at least a quarter of which is dead.
        if self.best_victim_share() < 0.75 && self.can_move(log)? {
            return self.reclaim_one(log);
        }
        self.level_wear(log)
    }
}
