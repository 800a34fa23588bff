//! Checkpoints: the tables go to flash, a header comes to point to them, and what only the old
//! header needed becomes free.

use deepram_core::{BlockId, ChunkId};

use super::{CHUNK_BYTES, Home, Log, Result, Store, Tables};
use crate::buffer::AlignedBuf;
use crate::format::codec::crc32c;
use crate::format::header::{Extent, HEADER_OFFSETS, Header};
use crate::format::root::Root;
use crate::stats::add;

/// A block of tables less full than this is emptied by writing its chunks anew.
const SPARSE_SHARE: u16 = 4;

impl Store {
    /// Writes a checkpoint. The state it holds includes the open epoch's segments, which recovery
    /// takes back; so it commits nothing by itself.
    pub(crate) fn checkpoint(&self, log: &mut Log) -> Result<()> {
        self.checkpoint_as(log, false)
    }

    pub(super) fn checkpoint_as(&self, log: &mut Log, clean: bool) -> Result<()> {
        log.queue.drain();
        self.thin_out(log)?;
        let pending = std::mem::take(&mut log.pending);
        let mut dirty = Vec::new();
        match self.write_tables(log, clean, &mut dirty) {
            Ok(()) => Ok(()),
            Err(error) => {
                // The old header still counts, and what it names is as it was: places are given
                // up in the counts only, and blocks only after a header.
                let mut tables = self.lock_tables();
                for chunk in dirty {
                    tables.volume.mark_chunk(chunk, true);
                }
                drop(tables);
                log.pending = pending;
                log.broken = true;
                Err(error)
            }
        }
    }

    /// Marks the chunks in sparsely used blocks of tables to be written anew, so that such blocks
    /// come free.
    fn thin_out(&self, log: &Log) -> Result<()> {
        let slots = u64::from(self.geometry.slots_per_block);
        let sparse: Vec<ChunkId> = {
            let tables = self.lock_tables();
            let blocks = tables.volume.blocks();
            let current = log.meta.map(|(block, _)| block);
            (0..)
                .zip(&tables.directory)
                .filter_map(|(chunk, home)| home.map(|home| (ChunkId(chunk), (home.slot / slots) as u32)))
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

    fn write_tables(&self, log: &mut Log, clean: bool, dirty: &mut Vec<ChunkId>) -> Result<()> {
        let segment = self.geometry.segment_bytes();
        let mut tables = self.lock_tables();
        *dirty = tables.volume.dirty_chunks();

        for extent in std::mem::take(&mut log.root) {
            for slot in extent.slot..extent.slot + u64::from(extent.slots) {
                self.release_slot(&mut tables, slot)?;
            }
        }
        // Places first, contents after: the root record tells of the places as well.
        let mut chunks = Vec::with_capacity(dirty.len());
        for &chunk in &*dirty {
            let slot = self.take_meta_slot(log, &mut tables)?;
            let Some(bytes) = tables.volume.table().bytes(chunk) else { continue };
            let home = Home { slot, crc: crc32c(&bytes) };
            if let Some(old) = tables.directory[chunk.0 as usize].replace(home) {
                self.release_slot(&mut tables, old.slot)?;
            }
            tables.volume.mark_chunk(chunk, false);
            chunks.push((slot, bytes));
        }
        // Taking slots changes the blocks' counts but not the record's length, up to the block
        // that the last slots may come from, whose state has a fixed size too.
        let length = self.root(log, &tables).encode().len();
        let mut root_slots = Vec::new();
        for _ in 0..length.div_ceil(segment) {
            root_slots.push(self.take_meta_slot(log, &mut tables)?);
        }
        let extents = extents(&root_slots);
        log.root.clone_from(&extents);
        let record = self.root(log, &tables).encode();
        debug_assert!(record.len().div_ceil(segment) == root_slots.len());
        drop(tables);

        if extents.len() > Header::MAX_EXTENTS {
            let error = self.inconsistent(format!("the root record is in {} pieces", extents.len()));
            return Err(error);
        }
        let root_len = record.len() as u64;
        let root_crc = crc32c(&record);
        let pieces = chunks
            .iter()
            .map(|(slot, bytes)| (*slot, &bytes[..]))
            .chain(root_slots.iter().copied().zip(record.chunks(segment)));
        self.write_slots(pieces)?;
        self.flush_device(log)?;

        let header = Header {
            generation: log.generation + 1,
            uuid: self.identity.uuid,
            controller: self.identity.controller,
            controllers: self.identity.controllers,
            geometry: self.geometry,
            base: self.identity.base,
            incarnation: log.incarnation,
            clean,
            root: extents,
            root_len,
            root_crc,
        };
        self.write_header(&header)?;
        log.generation += 1;
        log.broken = false;
        log.since_checkpoint = 0;

        // The header is durable: nothing needs the dead blocks any more.
        let mut tables = self.lock_tables();
        for block in tables.volume.blocks_mut().release_dead() {
            tables.summaries.forget(block.0);
        }
        drop(tables);
        self.update_room();
        add(&self.counters.checkpoints, 1);
        Ok(())
    }

    pub(super) fn write_header(&self, header: &Header) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(crate::format::header::HEADER_BYTES);
        buffer.copy_from_slice(&header.encode());
        let offset = HEADER_OFFSETS[(header.generation % 2) as usize];
        self.device
            .write_durable(offset, &buffer)
            .map_err(|source| self.device_error("writing the pool header", source))?;
        add(&self.counters.bytes_written, buffer.len() as u64);
        add(&self.counters.bytes_tables, buffer.len() as u64);
        Ok(())
    }

    fn root(&self, log: &Log, tables: &Tables) -> Root {
        let chunks =
            (0..).zip(&tables.directory).filter_map(|(chunk, home)| home.map(|h| (ChunkId(chunk), h)));
        Root {
            snapshot: tables.volume.snapshot(),
            retention: tables.volume.config().retention,
            bad: tables.volume.blocks().bad_slots().map(|(block, index)| (block.0, index)).collect(),
            directory: chunks.collect(),
            temporary: tables.temporary.iter().copied().collect(),
            seq: log.seq,
            block_sequence: log.block_sequence,
            heads: log.heads.to_vec(),
            meta: log.meta,
        }
    }

    /// A slot for a piece of the tables, counted as live.
    fn take_meta_slot(&self, log: &mut Log, tables: &mut Tables) -> Result<u64> {
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

    /// Writes pieces of at most a segment to their slots, consecutive ones in one transfer.
    fn write_slots<'a>(&self, pieces: impl Iterator<Item = (u64, &'a [u8])>) -> Result<()> {
        let segment = self.geometry.segment_bytes();
        let most = super::append::buffer_bytes(&self.geometry) / segment;
        let mut buffer = AlignedBuf::zeroed(most * segment);
        let mut run: Option<(u64, usize)> = None;
        for (slot, bytes) in pieces {
            if let Some((first, n)) = run.filter(|&(first, n)| first + n as u64 != slot || n == most) {
                self.write_run(first, &buffer[..n * segment])?;
                run = None;
            }
            let (first, n) = run.unwrap_or((slot, 0));
            let target = &mut buffer[n * segment..(n + 1) * segment];
            target[..bytes.len()].copy_from_slice(bytes);
            target[bytes.len()..].fill(0);
            run = Some((first, n + 1));
        }
        if let Some((first, n)) = run {
            self.write_run(first, &buffer[..n * segment])?;
        }
        Ok(())
    }

    fn write_run(&self, first: u64, bytes: &[u8]) -> Result<()> {
        self.device
            .write(self.geometry.offset(first), bytes)
            .map_err(|source| self.device_error("writing tables", source))?;
        add(&self.counters.bytes_written, bytes.len() as u64);
        add(&self.counters.bytes_tables, bytes.len() as u64);
        Ok(())
    }
}

const _: () =
    assert!(CHUNK_BYTES == deepram_core::page_table::CHUNK_BYTES, "a chunk fits the smallest segment");

fn extents(slots: &[u64]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for &slot in slots {
        match extents.last_mut() {
            Some(last) if last.slot + u64::from(last.slots) == slot => last.slots += 1,
            _ => extents.push(Extent { slot, slots: 1 }),
        }
    }
    extents
}
