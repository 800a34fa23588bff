//! Compaction of the line log: drops the records that a commit covers, and rewrites the newest version of each
//! remaining line at the end of the ring, or in a larger ring. Persists wait for a compaction.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, Release};

use deepram_core::BlockId;
use deepram_core::units::PAGE_BYTES;

use super::super::{Log, Result, Store, space};
use super::LINE;
use super::ring::{RecordPosition, Records, Ring};
use crate::device::SECTOR;
use crate::error::PoolError;
use crate::format::header::Geometry;
use crate::format::line;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// Size of a new ring, in bytes. A device without room for it gets a ring of `RING_SHARE` of the device.
const RING_BYTES: u64 = 16 << 20;
const RING_SHARE: u64 = 64;
/// The least number of blocks in a ring.
const LEAST_BLOCKS: u64 = 2;
/// Size of a record of rewritten lines, in bytes.
const COMPACTED_RECORD_BYTES: usize = 32 << 10;
/// Size of a new ring, as a multiple of the rewritten lines. A ring of which they take more than a quarter is
/// replaced by a larger one.
const GROWTH: u64 = 6;
const LINES_OF_PAGE: u64 = PAGE_BYTES / LINE as u64;

/// Returns the blocks of the smallest first ring on a device of this geometry.
pub(crate) fn ring_blocks(geometry: &Geometry) -> u32 {
    let bytes = RING_BYTES.min(geometry.device_bytes() / RING_SHARE);
    bytes.div_ceil(geometry.block_bytes()).max(LEAST_BLOCKS) as u32
}

/// Returns the bytes that the ring may come to take if `pmem` bytes are persist regions and all of them are persisted
/// between two syncs: the ring grows by [`GROWTH`], and the previous ring exists in addition to the new
/// one.
pub(crate) fn ring_bytes_for(pmem: u64) -> u64 {
    let first = if pmem > 0 { RING_BYTES } else { 0 };
    let lines = (pmem / LINE as u64) as usize;
    first + line::record_bytes(lines) as u64 * (GROWTH + GROWTH / 2)
}

/// The lines that were seen, by page.
#[derive(Default)]
struct SeenLines(HashMap<u64, [u64; LINES_OF_PAGE as usize / 64]>);

impl SeenLines {
    /// Marks a line as seen. Returns whether it is seen for the first time.
    fn is_new(&mut self, line: u64) -> bool {
        let words = self.0.entry(line / LINES_OF_PAGE).or_default();
        let within = line % LINES_OF_PAGE;
        let (word, bit) = (&mut words[within as usize / 64], 1 << (within % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

impl Store {
    /// Makes the ring for the first persist region.
    pub(crate) fn make_ring(&self) -> Result<()> {
        let mut ring = self.lines_ring()?;
        if ring.is_some() {
            return Ok(());
        }
        let mut log = self.lock_log();
        let blocks = match self.take_more_blocks(&mut log, RING_BYTES) {
            Err(PoolError::NoSpace { .. }) => self.take_blocks(&mut log, ring_blocks(&self.geometry))?,
            blocks => blocks?,
        };
        let new = self.new_ring(blocks, 1);
        log.ring = Some(new.root(new.end(), self.lines.retired.load(Relaxed)));
        if let Err(error) = self.checkpoint(&mut log) {
            log.ring = None;
            self.release_blocks(&new.blocks)?;
            return Err(error);
        }
        *ring = Some(new);
        Ok(())
    }

    /// Writes a checkpoint, so that the device describes the line log as it is in memory.
    pub(super) fn checkpoint_lines(&self, log: &mut Log) -> Result<()> {
        self.checkpoint(log)?;
        self.lines.needs_checkpoint.store(false, Release);
        Ok(())
    }

    /// Makes room for the next record.
    pub(super) fn compact_ring(&self, ring: &mut Ring) -> Result<()> {
        let mut log = self.lock_log();
        let retired = self.lines.retired.load(Relaxed);
        let mut start = ring.start_after(retired);
        let many = ring.end().at - start.at > ring.capacity() / 4;
        // On a device with larger sectors, the log cannot go on exactly where its last record ends.
        if ring.is_needed(retired) && (many || !ring.is_aligned()) {
            start = self.rewrite_newest(&mut log, ring, start, retired)?;
            add(&self.counters.line_log_compactions, 1);
        }
        log.ring = Some(ring.root(start, retired));
        // Until the checkpoint is durable, nothing from the old beginning on may be overwritten.
        self.checkpoint_lines(&mut log)?;
        ring.begin_at(start);
        Ok(())
    }

    /// Rewrites the newest version of each line persisted since the last commit. Returns the new beginning of the
    /// log.
    fn rewrite_newest(
        &self,
        log: &mut Log,
        ring: &mut Ring,
        start: RecordPosition,
        retired: u64,
    ) -> Result<RecordPosition> {
        let old = ring.blocks.clone();
        let mut records = Records::new(self, &old);
        let mut places = Vec::new();
        records.walk(start, &mut |header, _| {
            places.extend((header.group > retired).then_some(header.at));
            Ok(())
        })?;
        let mut lines = 0;
        self.newest_lines(&mut records, &places, &mut |_, _| {
            lines += 1;
            Ok(())
        })?;
        // Each block may end with a gap that is too short for a record.
        let each = (COMPACTED_RECORD_BYTES / SECTOR) as u64;
        let sectors = (lines / line::capacity(COMPACTED_RECORD_BYTES) + 1) as u64 * each;
        let sectors = sectors + each * (sectors * SECTOR as u64 / self.geometry.block_bytes() + 2);
        if sectors > ring.free() || sectors > ring.capacity() / 4 {
            match self.take_more_blocks(log, sectors * GROWTH * SECTOR as u64) {
                Ok(blocks) => {
                    let mut larger = self.new_ring(blocks, ring.next);
                    let first = larger.end();
                    let written = self.write_newest(&mut larger, ring.group, &mut records, &places);
                    if written.is_err() {
                        self.release_blocks(&larger.blocks)?;
                    }
                    written?;
                    self.release_blocks(&old)?;
                    *ring = larger;
                    self.require_line_checkpoint();
                    return Ok(first);
                }
                Err(PoolError::NoSpace { .. }) if sectors <= ring.free() => {}
                Err(PoolError::NoSpace { .. }) => return Err(self.line_log_full(lines as u64, ring)),
                Err(error) => return Err(error),
            }
        }
        let first = ring.end();
        let group = ring.group;
        self.write_newest(ring, group, &mut records, &places)?;
        Ok(first)
    }

    /// Visits the newest version of each line in these records.
    fn newest_lines(
        &self,
        records: &mut Records<'_>,
        places: &[u64],
        visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut seen = SeenLines::default();
        for &at in places.iter().rev() {
            let Some((header, record)) = records.at(at)? else {
                return Err(self.inconsistent(format!("the line log has lost its record at sector {at}")));
            };
            for (line, bytes) in line::lines(record, header.lines).rev() {
                if seen.is_new(line) {
                    visit(line, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Rewrites the newest lines of these records as if they were persisted in `group`, their last group.
    fn write_newest(
        &self,
        ring: &mut Ring,
        group: u64,
        records: &mut Records<'_>,
        places: &[u64],
    ) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(COMPACTED_RECORD_BYTES);
        let mut lines = 0;
        self.newest_lines(records, places, &mut |line, bytes| {
            line::put(&mut buffer, lines, line, bytes);
            lines += 1;
            if lines == line::capacity(COMPACTED_RECORD_BYTES) {
                self.write_record(ring, &mut buffer, lines, group)?;
                lines = 0;
            }
            Ok(())
        })?;
        if lines > 0 { self.write_record(ring, &mut buffer, lines, group) } else { Ok(()) }
    }

    /// Takes blocks for a large ring, if all allocated memory can still be rewritten between two syncs: a persist may
    /// fail for lack of space, but must not make a store fail.
    fn take_more_blocks(&self, log: &mut Log, bytes: u64) -> Result<Vec<u32>> {
        let count = bytes.div_ceil(self.geometry.block_bytes()).max(LEAST_BLOCKS);
        let slots = count * u64::from(self.geometry.slots_per_block);
        let memory = 2 * u64::from(self.allocated_pages()) * u64::from(self.geometry.segment.per_page());
        let capacity = space::capacity(&self.geometry);
        if slots + memory > capacity {
            let segment = self.geometry.segment.bytes();
            return Err(self.no_space(slots * segment, capacity.saturating_sub(memory) * segment));
        }
        self.take_blocks(log, count as u32)
    }

    /// Takes blocks for a ring and reserves their space on the device.
    fn take_blocks(&self, log: &mut Log, count: u32) -> Result<Vec<u32>> {
        let bytes = self.geometry.block_bytes();
        self.note_failed_flushes(log);
        self.admit(u64::from(count) * u64::from(self.geometry.slots_per_block))?;
        self.make_blocks_free(log, count)?;
        let mut blocks = Vec::new();
        let mut tables = self.lock_tables();
        for _ in 0..count {
            let Some(block) = tables.volume.blocks_mut().open_meta(log.block_sequence) else { break };
            log.block_sequence += 1;
            let (slots, all) = (self.geometry.slots_per_block, tables.volume.blocks_mut());
            all.set_used(block, slots)
                .and_then(|()| all.add_live(block, slots))
                .and_then(|()| all.seal(block))
                .map_err(|error| self.inconsistent(error.to_string()))?;
            tables.summaries.forget(block.0);
            blocks.push(block.0);
        }
        drop(tables);
        let zeros = AlignedBuf::zeroed(bytes.min(1 << 20) as usize);
        let written = blocks.iter().try_for_each(|&block| {
            let first = self.geometry.offset(u64::from(block) * u64::from(self.geometry.slots_per_block));
            (0..bytes).step_by(zeros.len()).try_for_each(|at| self.device.write(first + at, &zeros))
        });
        self.count_written(bytes * u64::from(count));
        let written = written.map_err(|source| self.device_error("making room for the line log", source));
        if let Err(error) = written.and_then(|()| self.flush_device(log)) {
            self.release_blocks(&blocks)?;
            return Err(error);
        }
        if blocks.len() < count as usize {
            self.release_blocks(&blocks)?;
            return Err(self.no_space(u64::from(count) * bytes, blocks.len() as u64 * bytes));
        }
        self.update_room();
        Ok(blocks)
    }

    /// Releases the blocks of a ring that is no longer used. They become free with the next checkpoint.
    fn release_blocks(&self, blocks: &[u32]) -> Result<()> {
        let mut tables = self.lock_tables();
        for &block in blocks {
            let slots = self.geometry.slots_per_block;
            let released = tables.volume.blocks_mut().sub_live(BlockId(block), slots);
            released.map_err(|error| self.inconsistent(error.to_string()))?;
        }
        drop(tables);
        self.update_room();
        Ok(())
    }
}
