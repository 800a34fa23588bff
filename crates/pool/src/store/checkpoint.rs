//! Checkpoints: write the tables to flash, then a header that refers to them, then free the blocks that only the old
//! header needed.

use deepram_core::{BlockId, ChunkId};

use super::{CHUNK_BYTES, ChunkLocation, Log, Result, Store, Tables};
use crate::format::codec::crc32c;
use crate::format::header::{Extent, HEADER_OFFSETS, PoolHeader};
use crate::format::root::RootRecord;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// A block of tables with a smaller live share than one part in this many is emptied by rewriting its chunks.
const SPARSE_SHARE: u16 = 4;

/// The new locations of the tables in a checkpoint, and their previous locations.
#[derive(Default)]
struct TableMoves {
    meta: Option<(u32, u16)>,
    root: Vec<Extent>,
    chunks: Vec<(ChunkId, Option<ChunkLocation>, u64)>,
    root_slots: Vec<u64>,
    opened: Vec<u32>,
    may_count: bool,
}

/// Location of a written root record.
struct RootLocation {
    extents: Vec<Extent>,
    len: u64,
    crc: u32,
}

impl Store {
    /// Writes a checkpoint. Its state includes the segments of the open epoch, which recovery discards, so a
    /// checkpoint commits nothing by itself.
    pub(crate) fn checkpoint(&self, log: &mut Log) -> Result<()> {
        self.checkpoint_as(log, false)
    }

    pub(super) fn checkpoint_as(&self, log: &mut Log, clean: bool) -> Result<()> {
        self.ensure_sound()?;
        log.queue.drain();
        self.rewrite_suspect_blocks(log)?;
        self.protect_all(log)?;
        self.mark_sparse_chunks(log)?;
        // The root record says where each stream goes on: recovery would not find blocks that were opened later. If
        // there is no room to open them, no batch may rely on this checkpoint.
        let heads = self.open_heads(log);
        let pending = std::mem::take(&mut log.pending);
        let mut moves = TableMoves { meta: log.meta, root: log.root.clone(), ..TableMoves::default() };
        let result = self.write_tables(log, &mut moves).and_then(|root| {
            // From here on the new header may be valid on the device, whatever the result of the write is.
            moves.may_count = true;
            self.finish_checkpoint(log, root, clean)
        });
        if result.is_ok() {
            log.broken = heads.is_err();
        } else {
            log.pending = pending;
            log.broken = true;
            self.undo_checkpoint(log, moves)?;
        }
        result
    }

    /// Rewrites the live segments of blocks whose flush failed.
    fn rewrite_suspect_blocks(&self, log: &mut Log) -> Result<()> {
        self.note_failed_flushes(log);
        if !log.suspect.is_empty() {
            // If the flush still fails, moving segments is pointless.
            self.flush_device(log)?;
        }
        while let Some(&block) = log.suspect.first() {
            self.empty(log, BlockId(block))?;
            log.suspect.remove(&block);
        }
        Ok(())
    }

    /// Restores the locations of the tables after a failed checkpoint. If the header of that checkpoint may have
    /// reached the device, the new locations stay allocated too.
    fn undo_checkpoint(&self, log: &mut Log, moves: TableMoves) -> Result<()> {
        if let Some((block, written)) = moves.meta.filter(|_| !moves.may_count) {
            let sequence = self.lock_tables().volume.blocks().info(BlockId(block)).sequence;
            log.parity.note_doubtful(block, sequence, Some(written));
        }
        let mut tables = self.lock_tables();
        let tables = &mut *tables;
        for &(chunk, ..) in &moves.chunks {
            tables.volume.mark_chunk(chunk, true);
        }
        if moves.may_count {
            return Ok(());
        }
        for (chunk, old, new) in moves.chunks {
            self.release_slot(tables, new)?;
            tables.directory[chunk.0 as usize] = old;
            if let Some(old) = old {
                self.retake_slot(tables, old.slot)?;
            }
        }
        for slot in moves.root_slots {
            self.release_slot(tables, slot)?;
        }
        for slot in slots(&moves.root) {
            self.retake_slot(tables, slot)?;
        }
        tables.root_slots = slots(&moves.root).count() as u64;
        log.root = moves.root;
        if !moves.opened.is_empty() {
            // The previous block was sealed when it was full.
            log.meta = None;
        } else if let Some((block, index)) = moves.meta {
            log.meta = Some((block, index));
        }
        for block in moves.opened {
            let given = tables.volume.blocks_mut().free_unwritten(BlockId(block));
            given.map_err(|error| self.inconsistent(error.to_string()))?;
        }
        Ok(())
    }

    fn retake_slot(&self, tables: &mut Tables, slot: u64) -> Result<()> {
        let block = BlockId((slot / u64::from(self.geometry.slots_per_block)) as u32);
        tables.volume.blocks_mut().add_live(block, 1).map_err(|error| self.inconsistent(error.to_string()))
    }

    /// Marks the chunks in sparsely used blocks of tables as dirty, so that they are rewritten and such blocks become
    /// free.
    fn mark_sparse_chunks(&self, log: &Log) -> Result<()> {
        let slots = u64::from(self.geometry.slots_per_block);
        let sparse: Vec<ChunkId> = {
            let tables = self.lock_tables();
            let blocks = tables.volume.blocks();
            let current = log.meta.map(|(block, _)| block);
            (0..)
                .zip(&tables.directory)
                .filter_map(|(chunk, location)| {
                    location.map(|location| (ChunkId(chunk), (location.slot / slots) as u32))
                })
                .filter(|&(_, block)| {
                    let live = blocks.info(BlockId(block)).live;
                    Some(block) != current && live < self.geometry.slots_per_block / SPARSE_SHARE
                })
                .map(|(chunk, _)| chunk)
                .collect()
        };
        for chunk in sparse {
            if !self.lock_tables().volume.is_loaded(chunk) {
                self.load_chunk(chunk)?;
            }
            self.lock_tables().volume.mark_chunk(chunk, true);
        }
        Ok(())
    }

    /// Writes the tables and the root record to new locations, and records these in `moves`.
    fn write_tables(&self, log: &mut Log, moves: &mut TableMoves) -> Result<RootLocation> {
        let segment = self.geometry.segment_bytes();
        let mut tables = self.lock_tables();
        let dirty = tables.volume.dirty_chunks();

        for slot in slots(&std::mem::take(&mut log.root)) {
            self.release_slot(&mut tables, slot)?;
        }
        // Locations are chosen before contents are written, because the root record contains the locations too.
        let mut chunks = Vec::with_capacity(dirty.len());
        for chunk in dirty {
            let Some(bytes) = tables.volume.table().bytes(chunk) else { continue };
            let slot = self.take_meta_slot(log, &mut tables, &mut moves.opened)?;
            let location = ChunkLocation { slot, crc: crc32c(&bytes) };
            let old = tables.directory[chunk.0 as usize].replace(location);
            moves.chunks.push((chunk, old, slot));
            if let Some(old) = old {
                self.release_slot(&mut tables, old.slot)?;
            }
            tables.volume.mark_chunk(chunk, false);
            chunks.push((slot, chunk));
        }
        // Taking slots changes the counts of blocks but not the length of the record; the state of the block that the
        // last slots may come from has a fixed size too.
        let length = self.root(log, &tables).encode().len();
        for _ in 0..length.div_ceil(segment) {
            let slot = self.take_meta_slot(log, &mut tables, &mut moves.opened)?;
            moves.root_slots.push(slot);
        }
        let root_slots = &moves.root_slots;
        let extents = extents(root_slots, self.geometry.slots_per_block);
        log.root.clone_from(&extents);
        tables.root_slots = root_slots.len() as u64;
        let record = self.root(log, &tables).encode();
        debug_assert!(record.len().div_ceil(segment) == root_slots.len());
        drop(tables);

        if extents.len() > PoolHeader::MAX_EXTENTS {
            let error = self.inconsistent(format!("the root record is in {} pieces", extents.len()));
            return Err(error);
        }
        // Chunks are encoded one by one as they are written, because all of them at once may take a large part of the
        // DRAM budget. They cannot change while the log is locked.
        let slots: Vec<u64> =
            chunks.iter().map(|(slot, _)| *slot).chain(root_slots.iter().copied()).collect();
        self.write_slots(&slots, &|n, target| match chunks.get(n) {
            Some((_, chunk)) => {
                let bytes = self.lock_tables().volume.table().bytes(*chunk);
                target[..CHUNK_BYTES].copy_from_slice(&bytes.expect("chunks stay loaded"));
                target[CHUNK_BYTES..].fill(0);
            }
            None => {
                let rest = &record[(n - chunks.len()) * segment..];
                let len = rest.len().min(segment);
                target[..len].copy_from_slice(&rest[..len]);
                target[len..].fill(0);
            }
        })?;
        self.flush_device(log)?;
        let mut written: Vec<u32> = moves.opened.clone();
        written.extend(moves.meta.map(|(block, _)| block));
        if self.protect_tables(log, &written) {
            self.flush_device(log)?;
        }
        Ok(RootLocation { extents, len: record.len() as u64, crc: crc32c(&record) })
    }

    /// Writes the header that makes the written tables current.
    fn finish_checkpoint(&self, log: &mut Log, root: RootLocation, clean: bool) -> Result<()> {
        let header = PoolHeader {
            generation: log.generation + 1,
            uuid: self.identity.uuid,
            controller: self.identity.controller,
            controllers: self.identity.controllers,
            geometry: self.geometry,
            base: self.identity.base,
            incarnation: log.incarnation,
            clean,
            root: root.extents,
            root_len: root.len,
            root_crc: root.crc,
            wear: self.wear.counts(),
            limits: self.identity.limits,
        };
        let copies = [header.generation % 2, (header.generation + 1) % 2];
        let [first, second] = copies.map(|copy| HEADER_OFFSETS[copy as usize]);
        // The copies are written one after the other, so that a valid copy exists at any moment.
        self.write_header(log, &header, first)?;
        // The checkpoint is valid with one copy. Without the second copy, damage to the first would be fatal; the
        // next checkpoint tries again.
        let _ = self.write_header(log, &header, second);
        log.generation += 1;
        log.since_checkpoint = 0;
        log.flushed = log.seq - 1;

        // The header is durable, so dead blocks are no longer needed.
        let mut tables = self.lock_tables();
        for block in tables.volume.blocks_mut().release_dead() {
            tables.summaries.forget(block.0);
        }
        drop(tables);
        self.update_room();
        add(&self.counters.checkpoints, 1);
        Ok(())
    }

    fn write_header(&self, log: &mut Log, header: &PoolHeader, offset: u64) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(crate::format::header::HEADER_BYTES);
        buffer.copy_from_slice(&header.encode());
        let written = self.write_durable(offset, &buffer);
        self.note_failed_flushes(log);
        written.map_err(|source| self.device_error("writing the pool header", source))?;
        self.count_written(buffer.len() as u64);
        add(&self.counters.bytes_tables, buffer.len() as u64);
        Ok(())
    }

    fn root(&self, log: &Log, tables: &Tables) -> RootRecord {
        let chunks = (0..)
            .zip(&tables.directory)
            .filter_map(|(chunk, location)| location.map(|h| (ChunkId(chunk), h)));
        RootRecord {
            snapshot: tables.volume.snapshot(),
            retention: tables.volume.config().retention,
            bad: tables.volume.blocks().bad_slots().map(|(block, index)| (block.0, index)).collect(),
            directory: chunks.collect(),
            temporary: tables.temporary.iter().copied().collect(),
            seq: log.seq,
            block_sequence: log.block_sequence,
            heads: log.heads.to_vec(),
            meta: log.meta,
            ring: log.ring.clone(),
        }
    }

    /// Takes a slot for a part of the tables and counts it as live. Blocks opened for it are added to `opened`.
    fn take_meta_slot(&self, log: &mut Log, tables: &mut Tables, opened: &mut Vec<u32>) -> Result<u64> {
        let slots = self.geometry.slots_per_block;
        let (block, index) = match log.meta {
            Some((block, index)) if index < slots => (block, index),
            full => {
                let blocks = tables.volume.blocks_mut();
                if let Some((block, _)) = full {
                    blocks.seal(BlockId(block)).map_err(|e| self.inconsistent(e.to_string()))?;
                }
                log.meta = None;
                let Some(block) = blocks.open_meta(log.block_sequence) else {
                    return Err(self.no_space(self.geometry.block_bytes(), 0));
                };
                log.block_sequence += 1;
                opened.push(block.0);
                (block.0, 0)
            }
        };
        log.meta = Some((block, index + 1));
        let blocks = tables.volume.blocks_mut();
        blocks
            .set_used(BlockId(block), index + 1)
            .and_then(|()| blocks.add_live(BlockId(block), 1))
            .map_err(|error| self.inconsistent(error.to_string()))?;
        Ok(u64::from(block) * u64::from(slots) + u64::from(index))
    }

    fn release_slot(&self, tables: &mut Tables, slot: u64) -> Result<()> {
        let block = BlockId((slot / u64::from(self.geometry.slots_per_block)) as u32);
        tables.volume.blocks_mut().sub_live(block, 1).map_err(|error| self.inconsistent(error.to_string()))
    }

    /// Writes the output of `fill` to each of these slots, consecutive slots in one transfer.
    fn write_slots(&self, slots: &[u64], fill: &dyn Fn(usize, &mut [u8])) -> Result<()> {
        let segment = self.geometry.segment_bytes();
        let most = super::append::buffer_bytes(&self.geometry) / segment;
        let mut buffer = AlignedBuf::zeroed(most * segment);
        let mut done = 0;
        let per_block = u64::from(self.geometry.slots_per_block);
        for run in slots.chunk_by(|a, b| a + 1 == *b && !b.is_multiple_of(per_block)) {
            for part in run.chunks(most) {
                let bytes = &mut buffer[..part.len() * segment];
                for (n, target) in bytes.chunks_exact_mut(segment).enumerate() {
                    fill(done + n, target);
                }
                self.write_run(part[0], bytes)?;
                done += part.len();
            }
        }
        Ok(())
    }

    fn write_run(&self, first: u64, bytes: &[u8]) -> Result<()> {
        self.device
            .write(self.geometry.offset(first), bytes)
            .map_err(|source| self.device_error("writing tables", source))?;
        self.count_written(bytes.len() as u64);
        add(&self.counters.bytes_tables, bytes.len() as u64);
        Ok(())
    }
}

const _: () =
    assert!(CHUNK_BYTES == deepram_core::page_table::CHUNK_BYTES, "a chunk fits the smallest segment");

pub(super) fn slots(extents: &[Extent]) -> impl Iterator<Item = u64> {
    extents.iter().flat_map(|extent| extent.slot..extent.slot + u64::from(extent.slots))
}

/// Returns the extents of these slots. An extent does not cross the end of a block, where parity may follow.
fn extents(slots: &[u64], slots_per_block: u16) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let begins_block = |slot: u64| slot.is_multiple_of(u64::from(slots_per_block));
    for &slot in slots {
        match extents.last_mut() {
            Some(last) if last.slot + u64::from(last.slots) == slot && !begins_block(slot) => last.slots += 1,
            _ => extents.push(Extent { slot, slots: 1 }),
        }
    }
    extents
}
