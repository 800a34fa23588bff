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

/// Blocks kept back for reclamation: its stream's block and the one after, and the same of the
/// user's stream while the last segments are moved.
const RECLAIM_RESERVE: u32 = 4;
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
    let batch = super::append::buffer_bytes(geometry) as u64 / geometry.segment.bytes();
    slots - slots.div_ceil(batch) - 1
}

/// Segments that a device of this geometry can hold live at once.
pub(crate) fn capacity(geometry: &Geometry) -> u64 {
    let kept = table_blocks(geometry) + RECLAIM_RESERVE;
    u64::from(geometry.blocks.saturating_sub(kept)) * segments_per_block(geometry)
}

impl Store {
    /// Brings `room` up to date with the tables.
    pub(super) fn update_room(&self) {
        let tables = self.lock_tables();
        let chunks = tables.directory.iter().flatten().count() as u64;
        let live = tables.volume.blocks().live_slots().saturating_sub(chunks);
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
            return Ok(());
        }
        let blocks = self.blocks_for(segments as u64);
        self.make_free(log, blocks)?;
        // Coalescing fills blocks, reclaiming takes entries: each after the other until both fit.
        while !self.has_entries(segments) {
            self.make_entries(log, segments)?;
            self.make_free(log, blocks)?;
        }
        if log.broken && log.pending.len() > 64 {
            self.checkpoint(log)?;
        }
        self.spill_pending(log)
    }

    /// Blocks that must be free before `segments` are appended.
    fn blocks_for(&self, segments: u64) -> u32 {
        // A block more for each end of what is being filled, and the reserve stays.
        segments.div_ceil(segments_per_block(&self.geometry)) as u32 + 2 + RECLAIM_RESERVE
    }

    fn free_and_dead(&self) -> (u32, u32) {
        let tables = self.lock_tables();
        let blocks = tables.volume.blocks();
        (blocks.free(), blocks.dead())
    }

    /// Reclaims until `blocks` are free.
    fn make_free(&self, log: &mut Log, blocks: u32) -> Result<()> {
        let mut gained_nothing = 0;
        loop {
            let (free, dead) = self.free_and_dead();
            if free >= blocks {
                return Ok(());
            }
            // A checkpoint gives the dead ones back. Collect a few first, it has its price.
            if dead > 0 && (free + dead >= blocks || dead >= 8 || free <= RECLAIM_RESERVE) {
                self.checkpoint(log)?;
                continue;
            }
            if gained_nothing < 2 && self.reclaim_one(log)? {
                let (_, dead_now) = self.free_and_dead();
                gained_nothing = if dead_now > dead { 0 } else { gained_nothing + 1 };
                continue;
            }
            if dead > 0 {
                self.checkpoint(log)?;
                continue;
            }
            // Nothing dead anywhere: only older tokens can give something up.
            let Some(oldest) = self.droppable() else {
                let segment = self.geometry.block_bytes();
                return Err(self.no_space(u64::from(blocks) * segment, u64::from(free) * segment));
            };
            self.drop_token(log, oldest)?;
            while self.prune(PRUNE_STEP)? {}
            self.update_room();
            gained_nothing = 0;
        }
    }

    /// Whether `segments` new entries fit in the table. A segment needs at most one entry,
    /// coalescing itself a few.
    fn has_entries(&self, segments: usize) -> bool {
        let tables = self.lock_tables();
        let table = tables.volume.table();
        let rest = table.upper_limit() - table.upper_used();
        rest.max(table.upper_at_hand()) as usize >= segments + 64
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
            return Ok(false);
        }
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
        if self.best_victim_share() < 0.75 {
            return self.reclaim_one(log);
        }
        Ok(false)
    }
}
