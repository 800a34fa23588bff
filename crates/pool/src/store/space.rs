//! Space management: how much room the device has, the reserves, and the actions when space runs short.
//!
//! Some blocks are reserved for the tables (a checkpoint writes the new tables before it gives up the old ones) and
//! for reclamation (it moves segments before it frees their block). The rest holds segments: `room` is the number of
//! segments that can still become live before reclamation would be stuck.

use std::sync::atomic::Ordering::Relaxed;

use deepram_core::{Bytes, Epoch};

use super::{Log, Result, Store, Stream};
use crate::error::PoolError;
use crate::format::batch::Meta;
use crate::format::header::Geometry;

/// Blocks that the two streams keep open: the one being filled and the next one, for each.
const HEAD_BLOCKS: u32 = 4;
/// Blocks that moving the segments of one block may take.
const MOVE_BLOCKS: u32 = 2;
/// A block is not reclaimed if less than one part in this many is dead: headers and gaps would take what that gains.
const LEAST_GAIN: u64 = 8;
/// Number of reclaimed blocks without one more free block, after which no space can be gained.
const MAX_FUTILE_RECLAIMS: u32 = 24;
/// Bytes of log after which a checkpoint is due; this bounds the log that an opening after a crash replays.
const CHECKPOINT_BYTES: u64 = 256 << 20;
/// Pages pruned before the log is released to other threads.
const PRUNE_STEP: usize = 512;

/// Returns the largest number of blocks that the tables of a controller may take: every chunk and the root record,
/// twice, because the old ones stay until the new ones are durable.
pub(super) fn table_blocks(geometry: &Geometry) -> u32 {
    let chunks = u64::from(geometry.pages.div_ceil(256)) + u64::from(geometry.upper.div_ceil(256));
    let per_slot = geometry.segment.bytes();
    // The root record: 24 bytes for each block, 16 for each chunk, and for each page a bit and, in lists of changed
    // pages, a few bytes.
    let root = u64::from(geometry.blocks) * 24 + chunks * 16 + u64::from(geometry.pages) * 9 + (1 << 16);
    let slots = 2 * (chunks + root.div_ceil(per_slot));
    slots.div_ceil(u64::from(geometry.slots_per_block)) as u32 + 2
}

/// Returns the number of segments in a block that full batches have filled.
pub(super) fn segments_per_block(geometry: &Geometry) -> u64 {
    let slots = u64::from(geometry.slots_per_block);
    let batch = super::append::batch_slots(geometry) as u64;
    slots - slots.div_ceil(batch) - 1
}

/// Returns the blocks that always stay free, so that a block can be emptied and a checkpoint written; without these
/// two operations no block could become free.
fn reserve(geometry: &Geometry) -> u32 {
    table_blocks(geometry).div_ceil(2) + MOVE_BLOCKS
}

/// Returns the largest number of live slots with which reclaiming a block gains space.
pub(super) fn max_live_to_reclaim(geometry: &Geometry) -> u16 {
    geometry.slots_per_block - geometry.slots_per_block / LEAST_GAIN as u16
}

/// Returns the number of segments that can be live on a device of this geometry. Even if they all lie in blocks just
/// too full to be reclaimed, the remaining blocks suffice for writing.
pub(crate) fn capacity(geometry: &Geometry) -> u64 {
    let slots = u64::from(geometry.slots_per_block);
    let kept = table_blocks(geometry) + HEAD_BLOCKS + reserve(geometry) + MOVE_BLOCKS;
    u64::from(geometry.blocks.saturating_sub(kept))
        * segments_per_block(geometry).min(slots - slots / LEAST_GAIN - 1)
}

impl Store {
    /// Updates `room` from the tables.
    pub(super) fn update_room(&self) {
        let tables = self.lock_tables();
        let chunks = tables.directory.iter().flatten().count() as u64;
        let live = tables.volume.blocks().live_slots().saturating_sub(chunks + tables.root_slots);
        let capacity = capacity(&self.geometry);
        self.room.store(capacity.cast_signed() - live.cast_signed(), Relaxed);
    }

    /// Checks whether `segments` more can become dirty.
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

    /// Gives up old tokens, oldest first, until `segments` more fit or only the last token is left.
    pub(crate) fn drop_old_tokens(&self, log: &mut Log, segments: u64) -> Result<()> {
        while self.admit(segments).is_err() {
            let Some(oldest) = self.droppable() else { break };
            self.give_up_token(log, oldest)?;
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

    /// Gives a token up because space is short.
    fn give_up_token(&self, log: &mut Log, token: Epoch) -> Result<()> {
        tracing::info!(
            device = self.device.name(),
            token = token.0,
            "a token was given up because space is short"
        );
        self.drop_token(log, token)
    }

    /// Gives a token up; the next batch records it in the log.
    pub(crate) fn drop_token(&self, log: &mut Log, token: Epoch) -> Result<()> {
        self.with_tables(|t| t.volume.drop_token(token))?;
        log.pending.push(Meta::Drop { token: token.0 });
        Ok(())
    }

    /// Prunes up to `pages` pages. Returns whether more are waiting.
    pub(super) fn prune(&self, pages: usize) -> Result<bool> {
        Ok(self.with_tables(|t| t.volume.prune_step(pages))? > 0)
    }

    /// Makes sure that `segments` can be appended: free blocks, table entries, and room in headers.
    pub(super) fn prepare_append(&self, log: &mut Log, stream: Stream, segments: usize) -> Result<()> {
        if stream == Stream::Reclaim {
            // Reclamation uses the reserve: a request for more space would call reclamation again.
            return self.spill_pending(log, stream);
        }
        self.limit_pending(log)?;
        let blocks = self.blocks_for(segments as u64);
        self.reclaim_until_free(log, blocks, true)?;
        // Coalescing fills blocks, and reclamation takes table entries: they alternate until both needs are met.
        while !self.has_entries(segments) {
            self.make_entries(log, segments)?;
            self.reclaim_until_free(log, blocks, true)?;
        }
        if log.broken && log.pending.len() > 64 {
            self.checkpoint(log)?;
        }
        self.spill_pending(log, stream)
    }

    /// Makes sure that this many blocks are free beyond those that writing needs.
    pub(super) fn make_blocks_free(&self, log: &mut Log, blocks: u32) -> Result<()> {
        self.reclaim_until_free(log, self.blocks_for(0) + blocks, true)
    }

    /// Compacts the half-filled blocks that earlier openings left, as far as possible.
    pub(super) fn recover_space(&self, log: &mut Log) -> Result<()> {
        match self.reclaim_until_free(log, self.blocks_for(0), false) {
            Err(PoolError::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Returns whether a block can be emptied and a checkpoint written after that. If not, and if a checkpoint would
    /// free a block, writes a checkpoint first.
    pub(super) fn can_move(&self, log: &mut Log) -> Result<bool> {
        let (free, dead) = self.free_and_dead();
        if free <= reserve(&self.geometry) && dead > 0 {
            self.checkpoint(log)?;
        }
        Ok(self.free_and_dead().0 > reserve(&self.geometry))
    }

    /// Returns the number of blocks that must be free before `segments` are appended.
    fn blocks_for(&self, segments: u64) -> u32 {
        // The blocks being filled may be full, and each block may start with a gap.
        segments.div_ceil(segments_per_block(&self.geometry)) as u32 + MOVE_BLOCKS + reserve(&self.geometry)
    }

    fn free_and_dead(&self) -> (u32, u32) {
        let tables = self.lock_tables();
        let blocks = tables.volume.blocks();
        (blocks.free(), blocks.dead())
    }

    /// Reclaims until `blocks` are free; if necessary, and if `give_up` is true, gives up old tokens.
    fn reclaim_until_free(&self, log: &mut Log, blocks: u32, give_up: bool) -> Result<()> {
        let (mut best, mut tries) = (0, 0);
        loop {
            let (free, dead) = self.free_and_dead();
            if free >= blocks {
                return Ok(());
            }
            // A checkpoint frees dead blocks. Since a checkpoint has a cost, collect a few dead blocks first.
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
            if tries <= MAX_FUTILE_RECLAIMS && free >= MOVE_BLOCKS && self.reclaim_one(log)? {
                continue;
            }
            if dead > 0 && tries <= MAX_FUTILE_RECLAIMS {
                self.checkpoint(log)?;
                continue;
            }
            // No block has dead segments: only giving up an older token can free space.
            let Some(oldest) = self.droppable().filter(|_| give_up) else {
                let segment = self.geometry.block_bytes();
                return Err(self.no_space(u64::from(blocks) * segment, u64::from(free) * segment));
            };
            self.give_up_token(log, oldest)?;
            while self.prune(PRUNE_STEP)? {}
            self.update_room();
            tries = 0;
        }
    }

    /// Returns whether `segments` new entries fit into the table. A segment needs at most one entry, and coalescing
    /// itself needs a few.
    fn has_entries(&self, segments: usize) -> bool {
        let tables = self.lock_tables();
        let table = tables.volume.table();
        let rest = table.upper_limit() - table.upper_used();
        rest.max(table.free_upper_entries()) as usize >= segments + 64
    }

    /// Makes room in the table: coalesces the longest chain or, if that gains nothing, gives up the oldest token.
    fn make_entries(&self, log: &mut Log, segments: usize) -> Result<()> {
        if self.coalesce_longest(log)? {
            return Ok(());
        }
        let Some(oldest) = self.droppable() else {
            let limit = self.lock_tables().volume.table().upper_limit();
            let source = deepram_core::VolumeError::TableFull { needed: segments as u32, limit };
            return Err(self.volume_error(source));
        };
        self.give_up_token(log, oldest)?;
        while self.prune(PRUNE_STEP)? {}
        Ok(())
    }

    /// Does background maintenance: expired tokens, pruning and, if it may write now, checkpoints and reclamation
    /// ahead of need. Returns whether more work is waiting.
    pub(crate) fn maintain(&self, may_write: bool) -> bool {
        // As below, an error is returned to the thread that waits for these lines.
        let _ = self.flush_lines();
        // Another thread holds the log for an operation that a caller waits for.
        let Ok(mut log) = self.log.try_lock() else { return false };
        // The same error occurs again in the operation that needs this work; no caller has asked for it yet.
        self.maintain_with(&mut log, may_write).unwrap_or(false)
    }

    fn maintain_with(&self, log: &mut Log, may_write: bool) -> Result<bool> {
        let expired = self.lock_tables().volume.expired();
        if let Some(token) = expired {
            self.drop_token(log, token)?;
        }
        let more = self.prune(PRUNE_STEP)?;
        self.update_room();
        if expired.is_some() || more {
            return Ok(true);
        }
        if may_write && log.since_checkpoint > CHECKPOINT_BYTES {
            self.checkpoint(log)?;
            return self.level_wear(log);
        }
        // One segment for a commit after which the log is idle: it keeps the commit provable, so it never waits.
        self.confirm_commit(log)?;
        self.repair_queued(log)?;
        if self.protect_in_background(log)? {
            return Ok(true);
        }
        if !may_write {
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
        // Only where it pays off: at least a quarter of the block is dead.
        if self.min_live_share() < 0.75 && self.can_move(log)? {
            return self.reclaim_one(log);
        }
        self.level_wear(log)
    }
}
