//! Computes and writes the parity of blocks.

use std::ops::Range;
use std::time::Instant;

use deepram_core::BlockId;
use deepram_core::ftl::BlockState;

use super::super::{Log, Result, Store};
use super::{ALL_FINAL, IDLE, MOST_PENDING, ParityIndex, Stripes, code};
use crate::device::SECTOR;
use crate::format::batch::SlotKind;
use crate::format::codec::crc32c;
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// Bytes of data columns in memory at once.
const CHUNK_BYTES: usize = 2 << 20;

/// The parity of some rows of a block: column after column, each as long as the rows.
struct RowParity {
    rows: Range<u16>,
    bytes: AlignedBuf,
}

impl Store {
    /// Returns the parity of the device; `None` without redundancy.
    pub(in crate::store) fn stripes(&self) -> Option<Stripes> {
        Stripes::new(&self.device, &self.geometry, self.uuid_prefix(), self.identity.controller)
    }

    /// Returns the memory that computing parity takes, in bytes.
    pub(in crate::store) fn parity_memory_bytes(&self) -> usize {
        let Some(redundancy) = self.geometry.redundancy else { return 0 };
        let rows = usize::from(redundancy.rows(self.geometry.slots_per_block));
        let parity = rows * usize::from(redundancy.parity()) * self.geometry.segment_bytes();
        // Reed-Solomon keeps a copy of the data columns and of the parity.
        2 * (CHUNK_BYTES + parity) + 4 * self.geometry.parity_index_bytes()
    }

    /// Writes the parity of all blocks, as far as slots are in use. Failures leave blocks without parity, which the
    /// next call tries again: parity protects data, but nothing depends on it.
    ///
    /// # Errors
    /// The slots cannot be made durable.
    pub(in crate::store) fn protect_all(&self, log: &mut Log) -> Result<()> {
        if self.geometry.redundancy.is_none() {
            return Ok(());
        }
        self.flush_log(log)?;
        while self.protect_pending(log) {}
        self.protect_open(log);
        Ok(())
    }

    /// Writes the parity of full blocks if many wait for it.
    pub(in crate::store) fn limit_pending(&self, log: &mut Log) -> Result<()> {
        if log.parity.pending.len() > MOST_PENDING {
            self.flush_log(log)?;
            while self.protect_pending(log) {}
        }
        Ok(())
    }

    /// Writes parity in the background: of one full block, or of the blocks being filled if the log is idle. Returns
    /// whether more full blocks are waiting.
    pub(in crate::store) fn protect_in_background(&self, log: &mut Log) -> Result<bool> {
        if self.geometry.redundancy.is_none() {
            return Ok(false);
        }
        if !log.parity.pending.is_empty() {
            self.flush_log(log)?;
            return Ok(self.protect_pending(log));
        }
        let newest = log.seq - 1;
        match log.parity.idle {
            Some((seen, since)) if seen == newest => {
                if log.parity.protected != newest && since.elapsed() >= IDLE {
                    self.flush_log(log)?;
                    self.protect_open(log);
                    self.flush_device(log)?;
                }
            }
            _ => log.parity.idle = Some((newest, Instant::now())),
        }
        Ok(false)
    }

    /// Writes the parity of the blocks that the streams are filling.
    fn protect_open(&self, log: &mut Log) {
        let heads: Vec<u32> = log.heads.iter().flatten().map(|head| head.block).collect();
        for block in heads {
            let written = self.protect_block(log, block, None);
            self.note_protected(block, written);
        }
        log.parity.protected = log.seq - 1;
    }

    /// Writes the parity of one full block. Returns whether more are waiting.
    fn protect_pending(&self, log: &mut Log) -> bool {
        let Some((block, pending)) = log.parity.pending.pop_first() else { return false };
        let info = self.lock_tables().volume.blocks().info(BlockId(block));
        let in_use = !matches!(info.state, BlockState::Free | BlockState::Retired);
        if in_use && info.sequence == pending.sequence && !log.suspect.contains(&block) {
            let written = self.protect_block(log, block, pending.anew);
            if written.is_err() {
                log.parity.pending.insert(block, pending);
            }
            let failed = written.is_err();
            self.note_protected(block, written);
            if failed {
                return false;
            }
        }
        let is_filled = log.heads.iter().flatten().any(|head| head.block == block)
            || log.meta.is_some_and(|(meta, _)| meta == block);
        if !is_filled {
            log.parity.open.remove(&block);
        }
        !log.parity.pending.is_empty()
    }

    fn note_protected(&self, block: u32, written: Result<()>) {
        if let Err(error) = written {
            add(&self.counters.parity_failures, 1);
            tracing::warn!(device = self.device.name(), block, %error, "a block has no up-to-date parity");
        }
    }

    /// Writes the parity of the blocks of tables, after their tables are durable. Returns whether there were any.
    pub(in crate::store) fn protect_tables(&self, log: &mut Log, blocks: &[u32]) -> bool {
        if self.geometry.redundancy.is_none() {
            return false;
        }
        for &block in blocks {
            // Parity in doubt must be computed anew, which has failed just now.
            if log.parity.pending.contains_key(&block) {
                continue;
            }
            let written = self.protect_block(log, block, None);
            self.note_protected(block, written);
            if log.meta.is_none_or(|(meta, _)| meta != block) {
                log.parity.open.remove(&block);
            }
        }
        !blocks.is_empty()
    }

    /// Returns the number of slots of a block that are in use.
    pub(super) fn used_slots(&self, log: &Log, block: u32) -> u16 {
        match log.meta {
            Some((meta, used)) if meta == block => used,
            _ => self.lock_tables().volume.blocks().info(BlockId(block)).used,
        }
    }

    /// Extends the parity of a block to all slots in use, or computes it anew if `anew` says up to which slot the bytes
    /// are final. The slots are durable.
    pub(super) fn protect_block(&self, log: &mut Log, block: u32, anew: Option<u16>) -> Result<()> {
        let Some(stripes) = self.stripes() else { return Ok(()) };
        let sequence = self.lock_tables().volume.blocks().info(BlockId(block)).sequence;
        let used = self.used_slots(log, block);
        let known = log.parity.open.remove(&block).filter(|index| index.sequence == sequence);
        let mut old: Vec<ParityIndex> = known.into_iter().collect();
        if anew.is_some() || old.is_empty() {
            old = stripes.indexes(block, Some(sequence));
        }
        if used == 0 && old.is_empty() {
            return Ok(());
        }
        let slots = self.geometry.slots_per_block;
        if let Some(newest) = old.first() {
            if let Some(last) = anew {
                self.complete(log, &stripes, &old, last)?;
            } else if newest.covered >= used {
                log.parity.open.insert(block, old.swap_remove(0));
                return Ok(());
            }
        }
        let sectors = ParityIndex::sectors(stripes.redundancy, slots, self.geometry.segment_bytes());
        let (crcs, parity) = match old.first().filter(|_| anew.is_none()) {
            Some(newest) => (newest.slots.clone(), newest.parity.clone()),
            None => (vec![0; usize::from(slots)], vec![0; sectors]),
        };
        let (covered, number) = old.first().map_or((0, 0), |newest| (newest.covered, newest.number));
        let mut index = ParityIndex {
            pool: stripes.pool,
            controller: stripes.controller,
            block,
            sequence,
            number: number + 1,
            covered: used,
            slots: crcs,
            parity,
        };
        let from = if anew.is_some() { 0 } else { covered };
        let computed = self.compute(&stripes, &old, anew.unwrap_or(ALL_FINAL), &mut index, from)?;
        self.write_parity(&stripes, &index, &computed, covered > 0)?;
        log.parity.open.insert(block, index);
        Ok(())
    }

    /// Completes an extension of parity that a power cut interrupted, so that the parity is as the newest index
    /// describes it and the other copy of the index can be overwritten.
    fn complete(
        &self,
        log: &mut Log,
        stripes: &Stripes,
        indexes: &[ParityIndex],
        last_final: u16,
    ) -> Result<()> {
        let Some(newest) = indexes.first().filter(|newest| !self.parity_is_intact(stripes, newest)) else {
            return Ok(());
        };
        let mut same = newest.clone();
        let computed = self.compute(stripes, indexes, last_final, &mut same, 0)?;
        // If a slot has been lost, its bytes cannot become part of the parity.
        if same == *newest {
            self.write_parity(stripes, newest, &computed, true)?;
            self.flush_device(log)?;
        }
        Ok(())
    }

    /// Computes the parity of the rows of the slots from `from` on, and notes all checksums in `index`.
    fn compute(
        &self,
        stripes: &Stripes,
        old: &[ParityIndex],
        last_final: u16,
        index: &mut ParityIndex,
        from: u16,
    ) -> Result<Vec<RowParity>> {
        let data = usize::from(stripes.redundancy.data());
        let each = (CHUNK_BYTES / self.geometry.segment_bytes() / data).max(1) as u16;
        let mut computed = Vec::new();
        for range in stripes.redundancy.rows_of(self.geometry.slots_per_block, from, index.covered) {
            for start in range.clone().step_by(usize::from(each)) {
                let rows = start..range.end.min(start + each);
                computed.push(self.compute_rows(stripes, old, last_final, index, rows)?);
            }
        }
        Ok(computed)
    }

    /// Reads the covered slots of these rows, repairs the damaged ones as far as possible, computes the parity, and
    /// notes all checksums in `index`.
    fn compute_rows(
        &self,
        stripes: &Stripes,
        old: &[ParityIndex],
        last_final: u16,
        index: &mut ParityIndex,
        rows: Range<u16>,
    ) -> Result<RowParity> {
        let segment = self.geometry.segment_bytes();
        let redundancy = stripes.redundancy;
        let all_rows = redundancy.rows(self.geometry.slots_per_block);
        let len = rows.len() * segment;
        let mut data = AlignedBuf::zeroed(len * usize::from(redundancy.data()));
        for (column, bytes) in (0..).zip(data.chunks_exact_mut(len)) {
            let first = column * all_rows + rows.start;
            let end = (column * all_rows + rows.end).min(index.covered);
            if first >= end {
                continue;
            }
            let bytes = &mut bytes[..usize::from(end - first) * segment];
            let at_once = self.device.read(stripes.slot_offset(index.block, first), bytes);
            for (slot, bytes) in (first..end).zip(bytes.chunks_exact_mut(segment)) {
                let read = match &at_once {
                    Ok(()) => Ok(()),
                    Err(_) => self.device.read(stripes.slot_offset(index.block, slot), bytes),
                };
                let old = if slot < last_final { old } else { &[] };
                self.check_slot(stripes, old, index.block, slot, read.is_ok(), bytes)?;
                index.slots[usize::from(slot)] = crc32c(bytes);
            }
            add(&self.counters.bytes_read, bytes.len() as u64);
        }
        let mut bytes = AlignedBuf::zeroed(len * usize::from(redundancy.parity()));
        let columns: Vec<&[u8]> = data.chunks_exact(len).collect();
        code::encode(&columns, &mut bytes.chunks_exact_mut(len).collect::<Vec<_>>());
        let sectors = segment / SECTOR;
        for (column, parity) in bytes.chunks_exact(len).enumerate() {
            let first = (column * usize::from(all_rows) + usize::from(rows.start)) * sectors;
            for (crc, sector) in index.parity[first..].iter_mut().zip(parity.chunks_exact(SECTOR)) {
                *crc = crc32c(sector);
            }
        }
        Ok(RowParity { rows, bytes })
    }

    /// Checks the bytes of a slot before parity is computed from them. Damage must not become part of the parity.
    fn check_slot(
        &self,
        stripes: &Stripes,
        old: &[ParityIndex],
        block: u32,
        slot: u16,
        read: bool,
        bytes: &mut [u8],
    ) -> Result<()> {
        let expected = {
            let mut tables = self.lock_tables();
            let covered = old.iter().find(|old| slot < old.covered).map(|old| old.slots[usize::from(slot)]);
            if tables.volume.blocks().is_driver_owned(BlockId(block)) {
                covered
            } else {
                let record = tables.summaries.get(block, slot).filter(|record| record.kind != SlotKind::Pad);
                record.map(|record| record.crc).or(covered)
            }
        };
        if read && expected.is_none_or(|crc| crc32c(bytes) == crc) {
            return Ok(());
        }
        let mut rebuilt = AlignedBuf::zeroed(bytes.len());
        let accept = |bytes: &[u8]| expected.is_none_or(|crc| crc32c(bytes) == crc);
        if stripes.rebuild(old, slot, &mut rebuilt) && accept(&rebuilt) {
            bytes.copy_from_slice(&rebuilt);
            let first = u64::from(block) * u64::from(self.geometry.slots_per_block);
            return self.rewrite_rebuilt(first + u64::from(slot), &rebuilt);
        }
        if !read {
            bytes.fill(0);
        }
        Ok(())
    }

    /// Writes parity and its index. If earlier parity of the block protects something, the new index is durable before
    /// the parity changes.
    fn write_parity(
        &self,
        stripes: &Stripes,
        index: &ParityIndex,
        computed: &[RowParity],
        extends: bool,
    ) -> Result<()> {
        let mut encoded = AlignedBuf::zeroed(self.geometry.parity_index_bytes());
        index.encode(stripes.redundancy, &mut encoded);
        let failed = |source| self.device_error("writing parity", source);
        let columns = || 0..stripes.redundancy.parity();
        let place = |column| self.geometry.parity_index_offset(index.block, column, index.number % 2);
        if extends {
            for column in columns() {
                self.write_durable(place(column), &encoded).map_err(failed)?;
            }
        }
        let mut written = encoded.len() * columns().len();
        for RowParity { rows, bytes } in computed {
            let len = bytes.len() / columns().len();
            for (column, parity) in columns().zip(bytes.chunks_exact(len)) {
                let offset = self.geometry.parity_offset(index.block, column, rows.start);
                self.device.write(offset, parity).map_err(failed)?;
            }
            written += bytes.len();
        }
        if !extends {
            for column in columns() {
                self.device.write(place(column), &encoded).map_err(failed)?;
            }
        }
        self.count_written(written as u64);
        add(&self.counters.bytes_parity, written as u64);
        Ok(())
    }
}
