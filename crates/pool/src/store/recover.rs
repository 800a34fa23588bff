//! Opening: the newest header, its root record, the log since.
//!
//! What is current after a crash is the state of the last commit in the log such that every batch
//! up to it is there and intact, or the checkpoint's last token. Everything later is given up.

use std::collections::BTreeSet;
use std::sync::Arc;

use deepram_core::ftl::State;
use deepram_core::{BlockId, ChunkId, Epoch, PageId, SegmentSize, Status, Volume};

use super::create::Identity;
use super::{Store, Stream, mark};
use crate::buffer::AlignedBuf;
use crate::device::Device;
use crate::error::{PoolError, Result};
use crate::format::VERSION;
use crate::format::batch::{BatchHeader, Meta, NextBlock, SlotKind};
use crate::format::codec::{FormatError, crc32c};
use crate::format::header::{COUNTERS_END, Geometry, HEADER_BYTES, HEADER_OFFSETS, Header, Parsed};
use crate::format::root::Root;
use crate::stats::{Counters, add};

/// A controller as far as it has been read, before it is decided which state to return to.
pub(crate) struct Recovery {
    device: Arc<dyn Device>,
    header: Header,
    root: Root,
    /// Batches since the checkpoint, consecutive, up to the last good commit.
    batches: Vec<BatchHeader>,
    /// The highest number seen, counting those that are given up.
    last_seq: u64,
    counters: Arc<Counters>,
}

impl Recovery {
    /// Reads headers, root record and log of a device.
    pub(crate) fn read(device: Arc<dyn Device>, counters: Arc<Counters>) -> Result<Self> {
        let (header, other_damaged) = read_header(&device)?;
        let needed = header.geometry.device_bytes();
        if device.len() < needed {
            return Err(PoolError::Truncated {
                device: device.name(),
                needed: deepram_core::Bytes(needed),
                have: deepram_core::Bytes(device.len()),
            });
        }
        let root = read_root(&device, &header)?;
        check_root(&root, &header).map_err(|what| PoolError::Inconsistent {
            device: device.name(),
            what: format!("the root record: {what}"),
        })?;
        let mut recovery = Self { device, header, root, batches: Vec::new(), last_seq: 0, counters };
        recovery.read_log(other_damaged)?;
        Ok(recovery)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            uuid: self.header.uuid,
            controller: self.header.controller,
            controllers: self.header.controllers,
            base: self.header.base,
        }
    }

    pub(crate) fn segment(&self) -> SegmentSize {
        self.header.geometry.segment
    }

    pub(crate) fn was_clean(&self) -> bool {
        self.header.clean
    }

    pub(crate) fn name(&self) -> String {
        self.device.name()
    }

    /// The epoch that would be open in the newest state that this device has whole.
    pub(crate) fn newest(&self) -> Epoch {
        let newest = self.batches.iter().rev().find_map(opens);
        newest.unwrap_or(self.root.snapshot.open)
    }

    /// Batches that would be replayed.
    pub(crate) fn batches(&self) -> usize {
        self.batches.len()
    }

    fn read_log(&mut self, other_damaged: bool) -> Result<()> {
        self.last_seq = self.root.seq.saturating_sub(1);
        let mut found = Vec::new();
        let mut beyond = Vec::new();
        for stream in 0..self.root.heads.len() {
            self.read_stream(stream as u8, other_damaged, &mut found, &mut beyond)?;
        }
        found.sort_by_key(|batch| batch.seq);
        self.last_seq = found.last().map_or(self.last_seq, |b| b.seq.max(self.last_seq));
        let run = (self.root.seq..).zip(&found).take_while(|(seq, batch)| batch.seq == *seq).count();
        self.refuse_damage(self.root.seq + run as u64, found[run..].iter().chain(&beyond))?;
        // The last commit counts beneath which nothing is incomplete. What was flushed before it
        // was written cannot be: should it be damaged, reading it will say so.
        let mut good = 0;
        for n in (0..run).rev().filter(|&n| found[n].is_commit()) {
            let mut whole = true;
            for batch in found[..=n].iter().rev().take_while(|b| b.seq > found[n].flushed) {
                whole = whole && self.is_whole(batch)?;
            }
            if whole {
                good = n + 1;
                break;
            }
        }
        found.truncate(good);
        self.batches = found;
        Ok(())
    }

    /// A batch that is not there is where the log ends after a power cut, unless a later one says
    /// that it was flushed: then it is damaged, and what it held must not be lost in silence.
    fn refuse_damage<'a>(
        &self,
        missing: u64,
        mut later: impl Iterator<Item = &'a BatchHeader>,
    ) -> Result<()> {
        if later.all(|batch| batch.seq <= missing || batch.flushed < missing) {
            return Ok(());
        }
        let expected = "there and intact, for it was flushed before a later one was written";
        Err(PoolError::DamagedPool {
            device: self.device.name(),
            what: "the log",
            source: FormatError::Field { what: "log", field: "batch", value: missing, expected },
        })
    }

    /// Batches of a stream in the rest of a block, after one that cannot be read.
    fn read_ahead(
        &self,
        stream: u8,
        place: NextBlock,
        from: u16,
        beyond: &mut Vec<BatchHeader>,
    ) -> Result<()> {
        let geometry = &self.header.geometry;
        if place.block >= geometry.blocks || from >= geometry.slots_per_block {
            return Ok(());
        }
        let segment = geometry.segment_bytes();
        let mut buffer = AlignedBuf::zeroed(usize::from(geometry.slots_per_block - from) * segment);
        let first = u64::from(place.block) * u64::from(geometry.slots_per_block) + u64::from(from);
        self.read_slot(first, &mut buffer)?;
        for (index, bytes) in (from..).zip(buffer.chunks_exact(segment)) {
            if let Ok(batch) = BatchHeader::decode(bytes)
                && self.is_ours(&batch)
                && (batch.stream, batch.block, batch.index) == (stream, place.block, index)
                && batch.block_sequence == place.sequence
            {
                beyond.push(batch);
            }
        }
        Ok(())
    }

    fn is_ours(&self, batch: &BatchHeader) -> bool {
        batch.pool == mark(self.header.uuid) && batch.controller == self.header.controller
    }

    /// Follows a stream from where the checkpoint left it until a batch is not there.
    /// What of it stands behind that goes to `beyond`.
    fn read_stream(
        &self,
        stream: u8,
        other_damaged: bool,
        found: &mut Vec<BatchHeader>,
        beyond: &mut Vec<BatchHeader>,
    ) -> Result<()> {
        let geometry = &self.header.geometry;
        let slots = geometry.slots_per_block;
        let Some(head) = self.root.heads[usize::from(stream)] else { return Ok(()) };
        let (mut block, mut index, mut sequence, mut next) =
            (head.block, head.index, head.sequence, head.next);
        let mut buffer = AlignedBuf::zeroed(geometry.segment_bytes());
        let mut last_seq = self.root.seq.saturating_sub(1);
        loop {
            if index + 2 > slots {
                NextBlock { block, sequence } = next;
                index = 0;
            }
            if block >= geometry.blocks {
                return Ok(());
            }
            let slot = u64::from(block) * u64::from(slots) + u64::from(index);
            self.read_slot(slot, &mut buffer)?;
            let Ok(batch) = BatchHeader::decode(&buffer) else {
                self.read_ahead(stream, NextBlock { block, sequence }, index + 1, beyond)?;
                return self.read_ahead(stream, next, 0, beyond);
            };
            let ours = self.is_ours(&batch);
            let expected = ours
                && batch.stream == stream
                && batch.block == block
                && batch.index == index
                && batch.block_sequence == sequence
                && batch.seq > last_seq
                && batch.seq < COUNTERS_END
                && usize::from(index) + 1 + batch.slots.len() <= usize::from(slots);
            if !expected {
                if ours && other_damaged && batch.generation > self.header.generation {
                    // The damaged header copy was the newer one, and the log has gone on from it.
                    let (stored, computed) = (0, 0);
                    return Err(PoolError::DamagedPool {
                        device: self.device.name(),
                        what: "the newer header copy, and what the older one names has been written over",
                        source: FormatError::Checksum { what: "pool header", stored, computed },
                    });
                }
                return Ok(());
            }
            last_seq = batch.seq;
            index += 1 + batch.slots.len() as u16;
            next = batch.next;
            found.push(batch);
        }
    }

    fn read_slot(&self, slot: u64, buffer: &mut [u8]) -> Result<()> {
        add(&self.counters.bytes_read, buffer.len() as u64);
        self.device.read(self.header.geometry.offset(slot), buffer).map_err(|source| PoolError::Device {
            device: self.device.name(),
            operation: "reading the log",
            source,
        })
    }

    /// Whether every segment of a batch is as its record says.
    fn is_whole(&self, batch: &BatchHeader) -> Result<bool> {
        let segment = self.header.geometry.segment_bytes();
        let first = u64::from(batch.block) * u64::from(self.header.geometry.slots_per_block)
            + u64::from(batch.index)
            + 1;
        let mut buffer = AlignedBuf::zeroed(segment);
        for (slot, record) in (first..).zip(&batch.slots) {
            if record.kind != SlotKind::Pad {
                self.read_slot(slot, &mut buffer)?;
                if crc32c(&buffer) != record.crc {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Builds the controller in the state in which `open` is the open epoch.
    pub(crate) fn finish(self, open: Epoch, summary_bytes: usize) -> Result<Store> {
        let geometry = self.header.geometry;
        let config = geometry.volume_config(self.root.retention);
        let chunks: Vec<ChunkId> = self.root.directory.iter().map(|(chunk, _)| *chunk).collect();
        let device = self.device.name();
        let wrong = |what: String| PoolError::Inconsistent { device: device.clone(), what };
        let mut volume = Volume::restore(config, self.root.snapshot.clone(), &chunks)
            .map_err(|error| wrong(format!("the root record: {error}")))?;
        for &(block, index) in &self.root.bad {
            volume.blocks_mut().mark_bad(BlockId(block), index).map_err(|e| wrong(e.to_string()))?;
        }
        // Blocks that were open and that no batch to be replayed is in are done with. Otherwise
        // every opening would cost the blocks that it opens for the streams.
        let in_use: BTreeSet<u32> = self.batches.iter().map(|batch| batch.block).collect();
        let done: Vec<BlockId> = open_blocks(&volume).filter(|block| !in_use.contains(&block.0)).collect();
        for block in done {
            volume.blocks_mut().close(block).map_err(|e| wrong(e.to_string()))?;
        }
        // As happened when the checkpoint's header had become durable.
        volume.blocks_mut().release_dead();
        let store = Store::assemble(
            Arc::clone(&self.device),
            self.identity(),
            geometry,
            volume,
            summary_bytes,
            Arc::clone(&self.counters),
        );
        {
            let total = u64::from(geometry.blocks) * u64::from(geometry.slots_per_block);
            let mut tables = store.lock_tables();
            for &(chunk, home) in &self.root.directory {
                if home.slot >= total {
                    return Err(wrong(format!("table chunk {} lies beyond the device", chunk.0)));
                }
                tables.directory[chunk.0 as usize] = Some(home);
            }
            let pages = geometry.pages;
            tables.temporary.extend(self.root.temporary.iter().copied().filter(|&page| page < pages));
        }
        if store.open_epoch() > open {
            return Err(wrong(format!(
                "it has gone on to epoch {}, another device of the pool only to {open}",
                store.open_epoch()
            )));
        }
        for batch in &self.batches {
            // Whatever follows the wanted commit is given up.
            if store.open_epoch() == open {
                break;
            }
            store.replay(batch)?;
        }
        if store.open_epoch() != open {
            return Err(wrong(format!("its log ends at epoch {}, not at {open}", store.open_epoch())));
        }
        store.discard_open()?;
        let mut log = store.lock_log();
        log.broken = true;
        log.seq = self.last_seq + 1;
        log.flushed = self.last_seq;
        log.generation = self.header.generation;
        log.incarnation = self.header.incarnation;
        log.block_sequence = self.root.block_sequence;
        log.root.clone_from(&self.header.root);
        log.meta = self.root.meta;
        if let Some(ring) = self.root.ring {
            store.recover_lines(&mut log, ring)?;
        }
        drop(log);
        {
            let mut tables = store.lock_tables();
            tables.root_slots = self.header.root.iter().map(|extent| u64::from(extent.slots)).sum();
            let open: Vec<BlockId> = open_blocks(&tables.volume).collect();
            for block in open {
                let closed = tables.volume.blocks_mut().close(block);
                debug_assert!(closed.is_ok());
            }
        }
        store.update_room();
        Ok(store)
    }
}

fn open_blocks(volume: &Volume) -> impl Iterator<Item = BlockId> {
    let infos = (0..).zip(volume.blocks().infos());
    infos.filter(|(_, info)| matches!(info.state, State::Open(_))).map(|(block, _)| BlockId(block))
}

/// The epoch that is open after a commit.
fn opens(batch: &BatchHeader) -> Option<Epoch> {
    batch.metas.iter().find_map(|meta| match meta {
        Meta::Commit { epoch, .. } => Some(Epoch(epoch.saturating_add(1))),
        Meta::Rollback { open, .. } => Some(Epoch(*open)),
        _ => None,
    })
}

impl Store {
    /// Does in the tables what a batch says.
    fn replay(&self, batch: &BatchHeader) -> Result<()> {
        let block = BlockId(batch.block);
        let used = batch.index + 1 + batch.slots.len() as u16;
        {
            let mut tables = self.lock_tables();
            let blocks = tables.volume.blocks_mut();
            let opened = if blocks.info(block).sequence == batch.block_sequence {
                Ok(())
            } else {
                blocks.open_at(block, batch.stream, batch.block_sequence)
            };
            opened
                .and_then(|()| blocks.set_used(block, used))
                .map_err(|error| self.inconsistent(format!("batch {}: {error}", batch.seq)))?;
        }
        for meta in &batch.metas {
            self.replay_meta(*meta)?;
        }
        let per_page = self.geometry.segment.per_page();
        for record in batch.slots.iter().filter(|r| r.kind != SlotKind::Pad) {
            if record.page >= self.geometry.pages || record.segment >= per_page {
                return Err(self.inconsistent(format!(
                    "batch {} names segment {} of page {}, which do not exist",
                    batch.seq, record.segment, record.page
                )));
            }
        }
        let first =
            u64::from(batch.block) * u64::from(self.geometry.slots_per_block) + u64::from(batch.index) + 1;
        self.apply_records(first, &batch.slots)?;
        for meta in &batch.metas {
            match *meta {
                Meta::Commit { epoch, wall_ns } => {
                    let closed = self.close_epoch(wall_ns)?;
                    if closed != Epoch(epoch) {
                        return Err(self.inconsistent(format!(
                            "batch {} commits epoch {epoch}, {closed} is open",
                            batch.seq
                        )));
                    }
                }
                Meta::Rollback { token, open } => {
                    let pages = self.changed_since(Epoch(token))?;
                    let report = self.with_tables(|t| t.volume.rollback(Epoch(token)))?;
                    if report.open != Epoch(open) {
                        return Err(self.inconsistent(format!(
                            "batch {} rolls back to open epoch {open}, not {}",
                            batch.seq, report.open
                        )));
                    }
                    self.refresh_temporaries(&pages)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn replay_meta(&self, meta: Meta) -> Result<()> {
        let range = |first: u32, count: u32| {
            let end = first.checked_add(count).filter(|&end| end <= self.geometry.pages);
            end.map(|end| first..end).ok_or_else(|| {
                self.inconsistent(format!("the log names pages from {first}, {count} of them"))
            })
        };
        match meta {
            Meta::Status { first, count, status } => {
                let Some(status) = Status::from_bits(status) else {
                    return Err(self.inconsistent(format!("the log has page status {status:#x}")));
                };
                for page in range(first, count)? {
                    self.with_tables(|t| t.volume.set_status(PageId(page), status))?;
                    self.note_temporary(page, status);
                }
            }
            Meta::Delete { first, count } => {
                for page in range(first, count)? {
                    self.with_tables(|t| t.volume.delete(PageId(page)))?;
                    self.note_temporary(page, Status::default());
                }
            }
            Meta::Drop { token } => {
                self.with_tables(|t| t.volume.drop_token(Epoch(token)))?;
                while self.prune(4096)? {}
            }
            Meta::Lines { group } if group >= COUNTERS_END => {
                return Err(self.inconsistent("the log names a group of lines beyond 2^62".into()));
            }
            Meta::Lines { group } => self.lines.note_retired(group),
            Meta::Commit { .. } | Meta::Rollback { .. } => {}
        }
        Ok(())
    }

    /// Takes back what the open epoch did: no sync covers it.
    fn discard_open(&self) -> Result<()> {
        let last = self.tokens().last().map(|t| t.epoch);
        let Some(last) = last else { return Ok(()) };
        let pages = self.changed_since(last)?;
        self.with_tables(|t| t.volume.discard_open())?;
        self.refresh_temporaries(&pages)
    }

    /// Makes a recovered controller ready for writing: from here on the device changes.
    pub(crate) fn resume(&self) -> Result<()> {
        let mut log = self.lock_log();
        log.incarnation = log.incarnation.wrapping_add(1);
        log.block_sequence = u64::from(log.incarnation) << 32;
        for page in self.temporaries() {
            self.delete(&mut log, PageId(page), 1)?;
        }
        self.checkpoint(&mut log)?;
        // Life after life leaves blocks that are hardly filled.
        self.recover_space(&mut log)
    }
}

fn read_header(device: &Arc<dyn Device>) -> Result<(Header, bool)> {
    let mut buffer = AlignedBuf::zeroed(HEADER_BYTES);
    let mut best: Option<Header> = None;
    let mut damage = None;
    let mut future = None;
    for offset in HEADER_OFFSETS {
        if offset + HEADER_BYTES as u64 > device.len() {
            continue;
        }
        device.read(offset, &mut buffer).map_err(|source| PoolError::Device {
            device: device.name(),
            operation: "reading the pool header",
            source,
        })?;
        match Header::parse(&buffer) {
            Parsed::Header(header) => {
                if best.as_ref().is_none_or(|b| b.generation < header.generation) {
                    best = Some(*header);
                }
            }
            Parsed::Foreign => {}
            Parsed::Future(version) => future = Some(version),
            Parsed::Damaged(error) => damage = Some(error),
        }
    }
    if let Some(found) = future {
        return Err(PoolError::FutureVersion { device: device.name(), found, known: VERSION });
    }
    match (best, damage) {
        (Some(header), damage) => Ok((header, damage.is_some())),
        (None, Some(source)) => {
            Err(PoolError::DamagedPool { device: device.name(), what: "the pool header", source })
        }
        (None, None) => Err(PoolError::NotAPool { device: device.name() }),
    }
}

/// What the rest of a recovery relies on and the volume does not check itself.
fn check_root(root: &Root, header: &Header) -> std::result::Result<(), &'static str> {
    let Geometry { blocks, slots_per_block, .. } = header.geometry;
    if [root.seq, root.block_sequence, root.snapshot.open.0].iter().any(|&n| n >= COUNTERS_END) {
        return Err("a counter is beyond 2^62");
    }
    if root.heads.len() != Stream::COUNT {
        return Err("there is not one place to go on from for each stream");
    }
    let heads = root.heads.iter().flatten();
    let mut places = heads.flat_map(|h| [(h.block, h.index), (h.next.block, 0)]).chain(root.meta);
    if places.any(|(block, index)| block >= blocks || index > slots_per_block) {
        return Err("a place to go on from lies beyond the device");
    }
    Ok(())
}

fn read_root(device: &Arc<dyn Device>, header: &Header) -> Result<Root> {
    let damaged = |source| PoolError::DamagedPool { device: device.name(), what: "the root record", source };
    let segment = header.geometry.segment.bytes();
    let mut record = Vec::new();
    for extent in &header.root {
        let len = u64::from(extent.slots) * segment;
        if record.len() as u64 + len > device.len() {
            let (need, have) = (header.root_len as usize, device.len() as usize);
            return Err(damaged(FormatError::Truncated { what: "root record", need, have }));
        }
        let mut buffer = AlignedBuf::zeroed(len as usize);
        device.read(header.geometry.offset(extent.slot), &mut buffer).map_err(|source| {
            PoolError::Device { device: device.name(), operation: "reading the root record", source }
        })?;
        record.extend_from_slice(&buffer);
    }
    record.truncate(header.root_len as usize);
    let computed = crc32c(&record);
    if computed != header.root_crc {
        let stored = header.root_crc;
        return Err(damaged(FormatError::Checksum { what: "root record", stored, computed }));
    }
    Root::decode(&record).map_err(damaged)
}
