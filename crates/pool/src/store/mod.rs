//! One controller: a device, its tables, and the log that fills its blocks.
//!
//! # Invariants
//! 1. Nothing that the durable header reaches (its root record, the table chunks and segments of its tables, the log
//!    since) is overwritten before a newer header is durable: a block whose segments are all dead stays out of use
//!    until the next checkpoint (`checkpoint.rs`).
//! 2. The tables name a slot only after its write has returned.
//! 3. Batches are numbered without gaps. After a failed batch the log is `broken`, and later batches count only after
//!    a checkpoint.
//!
//! Lock order: log, then (the cache, in between), then tables. No device transfer takes place under the tables' lock.

mod append;
mod block_summaries;
mod check;
mod checkpoint;
mod checksum_sites;
mod create;
mod durability;
mod fetch;
mod lines;
mod log_end;
mod pages_and_epochs;
mod parity;
mod reclaim;
mod recover;
mod space;
mod wear;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use deepram_core::{Addr, ChunkId, Epoch, PageId, SegmentSize, Volume, VolumeError};
use uuid::Uuid;

use crate::device::{Device, WriteQueue};
use crate::error::{PoolError, Result};
use crate::format::batch::{Meta, NextBlock};
use crate::format::header::{Extent, Geometry};
use crate::stats::Counters;
use deepram_linux::lock::lock;

pub(crate) use append::{Commit, Stream, WriteItem};
use block_summaries::BlockSummaries;
pub use check::{DamagedSegment, Report};
pub use checksum_sites::{ChecksumKind, ChecksumSite};
pub(crate) use create::{Identity, Sizing};
pub(crate) use fetch::{Fetched, SlotLocation};
pub(crate) use lines::{RecordPosition, RingRoot};
pub use parity::ScrubReport;
pub(crate) use recover::Recovery;

/// Bytes in a table chunk: 256 entries of 16 bytes.
pub(crate) const CHUNK_BYTES: usize = 4096;

/// One controller of a pool.
pub(crate) struct Store {
    device: Arc<dyn Device>,
    geometry: Geometry,
    identity: Identity,
    tables: Mutex<Tables>,
    log: Mutex<Log>,
    lines: lines::Lines,
    flushes: durability::FlushTracker,
    /// The reason why the store has stopped, if it has.
    stopped: OnceLock<String>,
    /// Slots that can still be filled with new segments; see `space.rs`.
    room: AtomicI64,
    /// Damaged slots that were rebuilt for a reader and are to be rewritten, with the sequence of their blocks.
    repairs: Mutex<BTreeMap<u64, u64>>,
    wear: wear::Wear,
    counters: Arc<Counters>,
}

/// The tables of pages and blocks.
struct Tables {
    volume: Volume,
    /// Location of each table chunk on flash, by chunk number.
    directory: Vec<Option<ChunkLocation>>,
    summaries: BlockSummaries,
    /// Temporary pages, which are freed when the pool closes or is next opened.
    temporary: BTreeSet<u32>,
    /// Slots of the root record.
    root_slots: u64,
}

/// Slot and checksum of a table chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkLocation {
    pub(crate) slot: u64,
    pub(crate) crc: u32,
}

/// The append position of the log. The holder of its lock is the only thread that changes the tables.
pub(crate) struct Log {
    queue: WriteQueue,
    heads: [Option<Head>; Stream::COUNT],
    /// Position of the next table chunk: block and slot.
    meta: Option<(u32, u16)>,
    /// Number of the next batch.
    seq: u64,
    /// Every batch up to this number is flushed.
    flushed: u64,
    /// Sequence number of the next block to be opened.
    block_sequence: u64,
    pending: Vec<Meta>,
    broken: bool,
    /// Number of failed flushes and durable writes that the log has noted.
    failed_flushes: u64,
    /// Blocks opened for a stream without a successful write so far: no structure refers to them.
    fresh: BTreeSet<u32>,
    /// Blocks written since the last successful flush.
    unflushed: BTreeSet<u32>,
    /// Blocks written before a failed flush. No later flush makes these writes durable (Linux reports a lost write
    /// once), so the live segments in these blocks must be rewritten.
    suspect: BTreeSet<u32>,
    /// Blocks with damaged segments. They are not reclaimed, so that no data is discarded.
    damaged_blocks: BTreeSet<u32>,
    /// Bytes of log since the last checkpoint.
    since_checkpoint: u64,
    /// Number of the last commit's batch.
    newest_commit: u64,
    /// Number of the newest batch at the last call of [`Store::confirm_commit`].
    idle_since: u64,
    /// Damaged slots that recovery has rebuilt.
    repaired: Vec<recover::RepairedSlot>,
    /// Positions in the line log's ring between which recovery has given up damaged records.
    lost_lines: Option<(u64, u64)>,
    generation: u64,
    incarnation: u32,
    root: Vec<Extent>,
    /// The line log as the next root record will describe it.
    ring: Option<RingRoot>,
    parity: parity::ParityState,
}

/// Position at which a stream writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) block: u32,
    pub(crate) index: u16,
    pub(crate) sequence: u64,
    pub(crate) next: NextBlock,
}

impl Log {
    /// Marks the log as broken: it may not match the tables, and only a checkpoint can go on from it.
    pub(crate) fn mark_broken(&mut self) {
        self.broken = true;
    }
}

impl Store {
    pub(crate) fn segment(&self) -> SegmentSize {
        self.geometry.segment
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Returns the pool address of a segment.
    pub(crate) fn address(&self, page: PageId, segment: u8) -> Addr {
        let offset = u32::from(segment) * self.geometry.segment.bytes() as u32;
        Addr::new(u32::from(self.identity.controller), page.0, offset)
            .expect("a page of the table is below 2^28, a controller below 2^16")
    }

    /// Locks the log; waits for a sync or write-back that holds it.
    pub(crate) fn lock_log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    fn lock_tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    pub(crate) fn device_error(&self, operation: &'static str, source: io::Error) -> PoolError {
        PoolError::Device { device: self.device.name(), operation, source }
    }

    fn inconsistent(&self, what: String) -> PoolError {
        PoolError::Inconsistent { device: self.device.name(), what }
    }

    /// Runs an operation on the tables, and loads the chunks that it needs.
    fn with_tables<T>(
        &self,
        mut operation: impl FnMut(&mut Tables) -> std::result::Result<T, VolumeError>,
    ) -> Result<T> {
        loop {
            let chunk = match operation(&mut self.lock_tables()) {
                Ok(value) => return Ok(value),
                Err(VolumeError::NotLoaded(chunk)) => chunk,
                Err(source) => return Err(self.volume_error(source)),
            };
            self.load_chunk(chunk)?;
        }
    }

    fn volume_error(&self, source: VolumeError) -> PoolError {
        match source {
            VolumeError::UnknownToken { token, .. } | VolumeError::ReclaimedToken { token, .. } => {
                PoolError::Token { token, why: source.to_string() }
            }
            _ => PoolError::Volume { device: self.device.name(), source },
        }
    }

    /// Returns the stamp of the open epoch.
    pub(crate) fn open_stamp(&self) -> u32 {
        self.lock_tables().volume.open_stamp().0
    }

    pub(crate) fn open_epoch(&self) -> Epoch {
        self.lock_tables().volume.open_epoch()
    }

    /// Returns the DRAM that tables and queues take, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.lock_tables();
        // One more buffer for a checkpoint, and the block that reclamation reads at once.
        let buffers = (append::BUFFERS + 1) * append::buffer_bytes(&self.geometry)
            + self.geometry.block_bytes() as usize
            + self.parity_memory_bytes();
        tables.volume.memory_bytes()
            + self.lines.memory_bytes()
            + tables.summaries.memory_bytes()
            + tables.directory.capacity() * size_of::<Option<ChunkLocation>>()
            + buffers
    }

    fn chunk_location(&self, chunk: ChunkId) -> Option<ChunkLocation> {
        self.lock_tables().directory.get(chunk.0 as usize).copied().flatten()
    }

    /// Returns the first half of the pool's uuid, which every batch carries.
    fn uuid_prefix(&self) -> u64 {
        uuid_prefix(self.identity.uuid)
    }
}

fn uuid_prefix(uuid: Uuid) -> u64 {
    uuid.as_u64_pair().0
}
