//! Opening: the newest header, its root record, the log since.
//!
//! The state after a crash is that of the last commit in the log such that every batch up to it is there and
//! intact, or the checkpoint's last token. Everything later is given up. Where the log ends, either a power cut
//! interrupted a write, or a batch that was durable is damaged: `log_end.rs` tells which (ADR 26).

use std::collections::BTreeSet;
use std::sync::Arc;

use deepram_core::ftl::BlockState;
use deepram_core::{BlockId, ChunkId, Epoch, PageId, SegmentSize, Status, Volume};

use super::create::Identity;
use super::{Store, Stream};
use crate::buffer::AlignedBuf;
use crate::device::Device;
use crate::error::{PoolError, Result};
use crate::format::VERSION;
use crate::format::batch::{BatchHeader, Meta, SlotKind};
use crate::format::codec::{FormatError, crc32c};
use crate::format::header::{COUNTERS_END, Geometry, HEADER_BYTES, HEADER_OFFSETS, Header, Parsed};
use crate::format::root::Root;
use crate::stats::{Counters, add};

/// A controller as far as it has been read, before it is decided which state to return to.
pub(crate) struct Recovery {
    pub(super) device: Arc<dyn Device>,
    pub(super) header: Header,
    pub(super) root: Root,
    /// Batches since the checkpoint, consecutive, up to the last good commit.
    pub(super) batches: Vec<BatchHeader>,
    /// The highest number seen, counting those that are given up.
    pub(super) last_seq: u64,
    /// A batch that was durable and cannot be read: the log goes on behind it.
    pub(super) damage: Option<LogDamage>,
    /// Slots to be written anew before anything else is: a damaged sector is rebuilt, or a copy of a header.
    pub(super) mended: Vec<MendedSlot>,
    counters: Arc<Counters>,
}

/// A durable batch that recovery did not find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogDamage {
    /// Its number.
    pub(crate) batch: u64,
    /// The newest token that a batch behind it makes, as far as those can be found.
    pub(crate) lost: Option<Epoch>,
}

/// A slot whose bytes on the device differ from what was written there.
pub(crate) struct MendedSlot {
    /// The batch that it is part of.
    pub(crate) batch: u64,
    pub(crate) slot: u64,
    pub(crate) bytes: AlignedBuf,
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
        let (batches, mended) = (Vec::new(), Vec::new());
        let mut recovery =
            Self { device, header, root, batches, last_seq: 0, damage: None, mended, counters };
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

    /// The epoch that is open in the newest state in the log that is the state of `token`.
    pub(crate) fn opened_after(&self, token: Epoch) -> Option<Epoch> {
        self.states().filter(|state| state.token == token).map(|state| state.open).last()
    }

    /// The token of the state in which `open` is the open epoch.
    pub(crate) fn token_before(&self, open: Epoch) -> Option<Epoch> {
        self.states().filter(|state| state.open == open).map(|state| state.token).last()
    }

    /// The states that this device can be opened in: the checkpoint's, then that of each commit.
    fn states(&self) -> impl Iterator<Item = CommittedState> {
        let snapshot = &self.root.snapshot;
        let first =
            snapshot.tokens.last().map(|last| CommittedState { token: last.epoch, open: snapshot.open });
        first.into_iter().chain(self.batches.iter().filter_map(state))
    }

    /// Number of the batch behind the last that counts.
    pub(crate) fn next_batch(&self) -> u64 {
        self.batches.last().map_or(self.root.seq, |batch| batch.seq + 1)
    }

    /// What is damaged of the log that was durable.
    pub(crate) fn damage(&self) -> Option<&LogDamage> {
        self.damage.as_ref()
    }

    /// Batches that would be replayed.
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

    /// Builds the controller in the state in which `open` is the open epoch. With `salvage`, a line log that is
    /// damaged ends before the damage.
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
            store.recover_lines(&mut log, ring, salvage)?;
        }
        log.mended = self.mended;
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

/// What a commit makes current: the state of a token, and the epoch that is open then.
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

/// The epoch that is open after a commit.
fn opens(batch: &BatchHeader) -> Option<Epoch> {
    state(batch).map(|state| state.open)
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
        self.write_mended(&mut log)?;
        self.erase_lost_lines(&mut log)?;
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
