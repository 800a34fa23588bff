//! Recovery: reads the newest header, its root record, and the log since.
//!
//! After a crash the state is that of the last commit such that every batch up to it is present and intact, or else
//! the checkpoint's last token. All later batches are discarded. At the end of the log, either a power cut
//! interrupted a write, or a durable batch is damaged; `log_end.rs` distinguishes the two (ADR 26).

use std::collections::BTreeSet;
use std::sync::Arc;

use deepram_core::ftl::BlockState;
use deepram_core::{BlockId, ChunkId, Epoch, PageId, SegmentSize, Status, Volume};

use super::create::Identity;
use super::parity::Stripes;
use super::{Store, Stream, uuid_prefix};
use crate::device::Device;
use crate::error::{PoolError, Result};
use crate::format::VERSION;
use crate::format::batch::{BatchHeader, Meta, SlotKind};
use crate::format::codec::{FormatError, crc32c};
use crate::format::header::{COUNTERS_END, Geometry, HEADER_BYTES, HEADER_OFFSETS, Parsed, PoolHeader};
use crate::format::root::RootRecord;
use crate::stats::{Counters, add};
use deepram_linux::buffer::AlignedBuf;

/// A controller that has been read, before the state to return to is chosen.
pub(crate) struct Recovery {
    pub(super) device: Arc<dyn Device>,
    pub(super) header: PoolHeader,
    pub(super) root: RootRecord,
    /// The parity, with redundancy.
    pub(super) stripes: Option<Stripes>,
    /// The consecutive batches since the checkpoint, up to the last good commit.
    pub(super) batches: Vec<BatchHeader>,
    /// The highest batch number seen, including discarded batches.
    pub(super) last_seq: u64,
    /// A durable batch that cannot be read although the log goes on after it.
    pub(super) damage: Option<LogDamage>,
    /// Slots to be rewritten before any other write: recovery has rebuilt a sector, or a copy of a header.
    pub(super) repaired: Vec<RepairedSlot>,
    counters: Arc<Counters>,
}

/// A durable batch that recovery did not find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogDamage {
    /// Number of the missing batch.
    pub(crate) batch: u64,
    /// The newest token of a later batch, as far as later batches can be found.
    pub(crate) lost: Option<Epoch>,
}

/// A slot whose bytes on the device differ from those that were written.
pub(crate) struct RepairedSlot {
    /// Number of the batch to which the slot belongs.
    pub(crate) batch: u64,
    pub(crate) slot: u64,
    pub(crate) bytes: AlignedBuf,
}

impl Recovery {
    /// Reads the headers, root record and log of a device.
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
        let stripes = Stripes::new(&device, &header.geometry, uuid_prefix(header.uuid), header.controller);
        let (root, rebuilt) = read_root(&device, &header, stripes.as_ref())?;
        check_root(&root, &header).map_err(|what| PoolError::Inconsistent {
            device: device.name(),
            what: format!("the root record: {what}"),
        })?;
        let mut recovery = Self {
            device,
            header,
            root,
            stripes,
            batches: Vec::new(),
            last_seq: 0,
            damage: None,
            repaired: rebuilt,
            counters,
        };
        recovery.read_log(other_damaged)?;
        Ok(recovery)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            uuid: self.header.uuid,
            controller: self.header.controller,
            controllers: self.header.controllers,
            base: self.header.base,
            limits: self.header.limits,
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

    /// Returns the open epoch of the newest complete state on this device.
    pub(crate) fn newest(&self) -> Epoch {
        let newest = self.batches.iter().rev().find_map(opens);
        newest.unwrap_or(self.root.snapshot.open)
    }

    /// Returns the open epoch of the newest state in the log that is the state of `token`.
    pub(crate) fn opened_after(&self, token: Epoch) -> Option<Epoch> {
        self.states().filter(|state| state.token == token).map(|state| state.open).last()
    }

    /// Returns the token of the state in which `open` is the open epoch.
    pub(crate) fn token_before(&self, open: Epoch) -> Option<Epoch> {
        self.states().filter(|state| state.open == open).map(|state| state.token).last()
    }

    /// Iterates over the states in which this device can be opened: that of the checkpoint, then that of each commit.
    fn states(&self) -> impl Iterator<Item = CommittedState> {
        let snapshot = &self.root.snapshot;
        let first =
            snapshot.tokens.last().map(|last| CommittedState { token: last.epoch, open: snapshot.open });
        first.into_iter().chain(self.batches.iter().filter_map(state))
    }

    /// Returns the number of the batch after the last valid one.
    pub(crate) fn next_batch(&self) -> u64 {
        self.batches.last().map_or(self.root.seq, |batch| batch.seq + 1)
    }

    /// Returns the damage to the durable part of the log.
    pub(crate) fn damage(&self) -> Option<&LogDamage> {
        self.damage.as_ref()
    }

    /// Returns the number of batches that an opening would replay.
    pub(crate) fn batches(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn read_slot(&self, slot: u64, buffer: &mut [u8]) -> Result<()> {
        add(&self.counters.bytes_read, buffer.len() as u64);
        self.device.read(self.header.geometry.offset(slot), buffer).map_err(|source| PoolError::Device {
            device: self.device.name(),
            operation: "reading the log",
            source,
        })
    }

    /// Builds the controller in the state in which `open` is the open epoch. With `salvage`, a damaged line log ends
    /// before the damage.
    pub(crate) fn finish(self, open: Epoch, summary_bytes: usize, salvage: bool) -> Result<Store> {
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
        // Seal the open blocks that hold no batch to be replayed. Otherwise every opening would use up the blocks
        // that it opens for the streams.
        let in_use: BTreeSet<u32> = self.batches.iter().map(|batch| batch.block).collect();
        let done: Vec<BlockId> = open_blocks(&volume).filter(|block| !in_use.contains(&block.0)).collect();
        for block in done {
            volume.blocks_mut().close(block).map_err(|e| wrong(e.to_string()))?;
        }
        // The same happened when the checkpoint's header had become durable.
        volume.blocks_mut().release_dead();
        let store = Store::assemble(
            Arc::clone(&self.device),
            self.identity(),
            geometry,
            volume,
            self.header.wear,
            summary_bytes,
            Arc::clone(&self.counters),
        );
        {
            let total = u64::from(geometry.blocks) * u64::from(geometry.slots_per_block);
            let mut tables = store.lock_tables();
            for &(chunk, location) in &self.root.directory {
                if location.slot >= total {
                    return Err(wrong(format!("table chunk {} lies beyond the device", chunk.0)));
                }
                tables.directory[chunk.0 as usize] = Some(location);
            }
            let pages = geometry.pages;
            tables.temporary.extend(self.root.temporary.iter().copied().filter(|&page| page < pages));
        }
        if store.open_epoch() > open {
            return Err(wrong(format!(
                "its open epoch is {}, but that of another device of the pool is only {open}",
                store.open_epoch()
            )));
        }
        for batch in &self.batches {
            // Batches after the wanted commit are discarded.
            if store.open_epoch() == open {
                break;
            }
            store.replay(batch)?;
        }
        if store.open_epoch() != open {
            return Err(wrong(format!("its log ends at epoch {} instead of {open}", store.open_epoch())));
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
            store.recover_lines(&mut log, ring, salvage)?;
        }
        log.repaired = self.repaired;
        // Parity of the blocks that the log has touched since the checkpoint may cover discarded batches, or be missing.
        let heads = self.root.heads.iter().flatten().map(|head| head.block);
        let segments = self.batches.iter().map(|batch| batch.block).chain(heads).map(|block| (block, None));
        for (block, written) in segments.chain(self.root.meta.map(|(block, written)| (block, Some(written))))
        {
            let info = store.lock_tables().volume.blocks().info(BlockId(block));
            if info.state != BlockState::Free {
                log.parity.note_doubtful(block, info.sequence, written);
            }
        }
        drop(log);
        {
            let mut tables = store.lock_tables();
            tables.root_slots = self.header.root.iter().map(|extent| u64::from(extent.slots)).sum();
            let open: Vec<BlockId> = open_blocks(&tables.volume).collect();
            for block in open {
                let closed = tables.volume.blocks_mut().close(block);
                closed.map_err(|error| store.inconsistent(error.to_string()))?;
            }
        }
        store.update_room();
        Ok(store)
    }
}

fn open_blocks(volume: &Volume) -> impl Iterator<Item = BlockId> {
    let infos = (0..).zip(volume.blocks().infos());
    infos.filter(|(_, info)| matches!(info.state, BlockState::Open(_))).map(|(block, _)| BlockId(block))
}

/// The state that a commit makes current: the state of a token, and the epoch that is open in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommittedState {
    pub(super) token: Epoch,
    pub(super) open: Epoch,
}

pub(super) fn state(batch: &BatchHeader) -> Option<CommittedState> {
    batch.metas.iter().find_map(|meta| match *meta {
        Meta::Commit { epoch, .. } => {
            Some(CommittedState { token: Epoch(epoch), open: Epoch(epoch.saturating_add(1)) })
        }
        Meta::Rollback { token, open } => Some(CommittedState { token: Epoch(token), open: Epoch(open) }),
        _ => None,
    })
}

/// Returns the epoch that is open after a commit.
fn opens(batch: &BatchHeader) -> Option<Epoch> {
    state(batch).map(|state| state.open)
}

impl Store {
    /// Applies a batch to the tables.
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
                    "batch {} describes segment {} of page {}, which does not exist",
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
                            "batch {} commits epoch {epoch}, but the open epoch was {closed}",
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
                self.inconsistent(format!(
                    "the log changes {count} pages from page {first}, beyond the last page"
                ))
            })
        };
        match meta {
            Meta::Status { first, count, status } => {
                let Some(status) = Status::from_bits(status) else {
                    return Err(
                        self.inconsistent(format!("the log contains the invalid page status {status:#x}"))
                    );
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
                return Err(self.inconsistent("the log refers to a group of lines beyond 2^62".into()));
            }
            Meta::Lines { group } => self.lines.note_retired(group),
            Meta::Commit { .. } | Meta::Rollback { .. } => {}
        }
        Ok(())
    }

    /// Discards the changes of the open epoch, which no sync covers.
    fn discard_open(&self) -> Result<()> {
        let last = self.tokens().last().map(|t| t.epoch);
        let Some(last) = last else { return Ok(()) };
        let pages = self.changed_since(last)?;
        self.with_tables(|t| t.volume.discard_open())?;
        self.refresh_temporaries(&pages)
    }

    /// Prepares a recovered controller for writing. From here on the device changes.
    pub(crate) fn resume(&self) -> Result<()> {
        let mut log = self.lock_log();
        self.rewrite_repaired(&mut log)?;
        self.erase_lost_lines(&mut log)?;
        log.incarnation = log.incarnation.wrapping_add(1);
        log.block_sequence = u64::from(log.incarnation) << 32;
        for page in self.temporaries() {
            self.delete(&mut log, PageId(page), 1)?;
        }
        self.checkpoint(&mut log)?;
        // A series of openings leaves blocks that are hardly filled.
        self.recover_space(&mut log)
    }
}

fn read_header(device: &Arc<dyn Device>) -> Result<(PoolHeader, bool)> {
    let mut buffer = AlignedBuf::zeroed(HEADER_BYTES);
    let mut best: Option<PoolHeader> = None;
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
        match PoolHeader::parse(&buffer) {
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

/// Checks the values of the root record that recovery relies on and that the volume does not check itself.
fn check_root(root: &RootRecord, header: &PoolHeader) -> std::result::Result<(), &'static str> {
    let Geometry { blocks, slots_per_block, .. } = header.geometry;
    if [root.seq, root.block_sequence, root.snapshot.open.0].iter().any(|&n| n >= COUNTERS_END) {
        return Err("a counter is beyond 2^62");
    }
    if root.heads.len() != Stream::COUNT {
        return Err("the number of stream positions is wrong");
    }
    let heads = root.heads.iter().flatten();
    let mut places = heads.flat_map(|h| [(h.block, h.index), (h.next.block, 0)]).chain(root.meta);
    if places.any(|(block, index)| block >= blocks || index > slots_per_block) {
        return Err("a stream position lies beyond the device");
    }
    Ok(())
}

/// Reads the root record. Returns it with the slots of it that were rebuilt from parity.
fn read_root(
    device: &Arc<dyn Device>,
    header: &PoolHeader,
    stripes: Option<&Stripes>,
) -> Result<(RootRecord, Vec<RepairedSlot>)> {
    let damaged = |source| PoolError::DamagedPool { device: device.name(), what: "the root record", source };
    let segment = header.geometry.segment_bytes();
    let slots: u64 = header.root.iter().map(|extent| u64::from(extent.slots)).sum();
    if slots * segment as u64 > device.len() {
        let (need, have) = (header.root_len as usize, device.len() as usize);
        return Err(damaged(FormatError::Truncated { what: "root record", need, have }));
    }
    let mut record = Vec::new();
    let mut failed = None;
    for extent in &header.root {
        let mut buffer = AlignedBuf::zeroed(extent.slots as usize * segment);
        if let Err(source) = device.read(header.geometry.offset(extent.slot), &mut buffer) {
            failed = Some(source);
        }
        record.extend_from_slice(&buffer[..extent.slots as usize * segment]);
    }
    let len = header.root_len as usize;
    let mut rebuilt = Vec::new();
    if failed.is_some() || crc32c(&record[..len]) != header.root_crc {
        // Parity tells which slots are damaged.
        for (n, slot) in super::checkpoint::slots(&header.root).enumerate() {
            let Some(bytes) = stripes.and_then(|stripes| stripes.mend(slot)) else { continue };
            record[n * segment..(n + 1) * segment].copy_from_slice(&bytes);
            rebuilt.push(RepairedSlot { batch: 0, slot, bytes });
        }
    }
    record.truncate(len);
    let computed = crc32c(&record);
    if computed != header.root_crc {
        if let Some(source) = failed {
            let (device, operation) = (device.name(), "reading the root record");
            return Err(PoolError::Device { device, operation, source });
        }
        let stored = header.root_crc;
        return Err(damaged(FormatError::Checksum { what: "root record", stored, computed }));
    }
    Ok((RootRecord::decode(&record).map_err(damaged)?, rebuilt))
}
