//! Creating a controller.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, OnceLock};

use deepram_core::page_table::MAX_STAMP;
use deepram_core::paging::PoolWatermarks;
use deepram_core::{Bytes, Epoch, PageId, Redundancy, Retention, SegmentSize, Status, Volume, VolumeConfig};
use uuid::Uuid;

use super::append::buffer_bytes;
use super::block_summaries::BlockSummaries;
use super::{Log, Store, Stream, Tables};
use crate::device::{Device, WriteQueue};
use crate::error::{PoolError, Result};
use crate::format::header::{FIRST_BLOCK, Geometry, WearCounts, WearLimits};
use crate::stats::Counters;

/// Identity of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uuid: Uuid,
    pub(crate) controller: u16,
    pub(crate) controllers: u16,
    /// Address at which the pool is mapped.
    pub(crate) base: u64,
    pub(crate) limits: WearLimits,
}

/// Sizes of a new controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizing {
    /// Virtual memory, in bytes.
    pub(crate) size: u64,
    /// Flash, in bytes; `None`: enough to rewrite all of memory between two syncs.
    pub(crate) flash: Option<u64>,
    /// Part of the virtual memory that will become persist regions, in bytes.
    pub(crate) pmem: u64,
    pub(crate) segment: SegmentSize,
    pub(crate) redundancy: Option<Redundancy>,
}

/// Largest size of a block, in bytes: large enough for a device's full rate, small enough to reclaim.
const BLOCK_BYTES: u64 = 2 << 20;
/// The same for the data columns of a block with redundancy: large enough for columns of a megabyte.
const STRIPED_BLOCK_BYTES: u64 = 8 << 20;
/// The least number of slots in a block that the page table can work with.
const LEAST_SLOTS: u64 = 64;

impl Sizing {
    /// Returns the geometry for these sizes.
    pub(crate) fn geometry(&self) -> Result<Geometry> {
        let page = deepram_core::units::PAGE_BYTES;
        let pages = self.size.div_ceil(page);
        let most = u64::from(deepram_core::addr::MAX_PAGES);
        if pages == 0 || pages > most {
            return Err(PoolError::Option {
                option: "size",
                problem: format!(
                    "{} is out of range: a controller holds {} to {}",
                    Bytes(self.size),
                    Bytes(page),
                    Bytes(most * page)
                ),
            });
        }
        if self.pmem > self.size {
            let (pmem, size) = (Bytes(self.pmem), Bytes(self.size));
            let problem = format!("{pmem} is more than the memory of a controller, {size}");
            return Err(PoolError::Option { option: "pmem", problem });
        }
        // Page 0 holds the roots.
        let pages = (pages + 1).min(most) as u32;
        let segment = self.segment.bytes();
        let per_page = u32::from(self.segment.per_page());
        // Every segment on flash may need an entry of its own, and every page an entry that holds only a status, as
        // far as the paper's 30-bit index allows.
        let most_upper = (1 << 30) - pages.next_multiple_of(256);
        let upper =
            |blocks: u64, slots: u64| (blocks * slots + u64::from(pages)).min(u64::from(most_upper)) as u32;
        let geometry = |flash: u64| {
            // A small device gets small blocks, so that it has enough of them for reclamation.
            let most = if self.redundancy.is_some() { STRIPED_BLOCK_BYTES } else { BLOCK_BYTES };
            let slots = (flash / 256 / segment).clamp(LEAST_SLOTS, most.max(LEAST_SLOTS * segment) / segment);
            let columns = self.redundancy.map_or(1, |redundancy| u64::from(redundancy.data()));
            let slots = slots.next_multiple_of(columns);
            let mut geometry = Geometry {
                segment: self.segment,
                pages,
                upper: 0,
                blocks: 0,
                slots_per_block: slots as u16,
                redundancy: self.redundancy,
            };
            let blocks = flash.saturating_sub(FIRST_BLOCK) / geometry.block_stride();
            geometry.blocks = blocks.min(u64::from(u32::MAX)) as u32;
            geometry.upper = upper(blocks, slots);
            geometry
        };
        if let Some(flash) = self.flash {
            let geometry = geometry(flash);
            let least = super::space::capacity(&geometry);
            if least < 4 * u64::from(per_page) {
                return Err(PoolError::Option {
                    option: "flash",
                    problem: format!("{} leaves no room for data beside the tables", Bytes(flash)),
                });
            }
            return Ok(geometry);
        }
        // Twice the memory, for the state of the last token and a completely new state; and the line log.
        let need = 2 * u64::from(pages) * u64::from(per_page);
        let mut flash = need * segment + need * segment / 16 + FIRST_BLOCK;
        loop {
            let geometry = geometry(flash);
            let ring = u64::from(super::lines::ring_blocks(&geometry)) * u64::from(geometry.slots_per_block);
            let lines = super::lines::ring_bytes_for(self.pmem).div_ceil(segment);
            if super::space::capacity(&geometry) >= need + need / 64 + ring + lines {
                return Ok(geometry);
            }
            flash += flash / 32;
        }
    }
}

impl Geometry {
    pub(crate) fn volume_config(&self, retention: Retention) -> VolumeConfig {
        VolumeConfig {
            segment: self.segment,
            pages: self.pages,
            upper: self.upper,
            blocks: self.blocks,
            slots_per_block: self.slots_per_block,
            stamp_limit: MAX_STAMP,
            retention,
        }
    }
}

impl Store {
    /// Makes `device` a new, empty controller.
    pub(crate) fn create(
        device: Arc<dyn Device>,
        identity: Identity,
        geometry: Geometry,
        retention: Retention,
        summary_bytes: usize,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let config = geometry.volume_config(retention);
        let volume = Volume::new(config)
            .map_err(|error| PoolError::Option { option: "geometry", problem: error.to_string() })?;
        let wear = WearCounts { since_ns: super::wear::now_ns(), ..WearCounts::default() };
        let store = Self::assemble(device, identity, geometry, volume, wear, summary_bytes, counters);
        let mut log = store.lock_log();
        log.incarnation = 1;
        log.block_sequence = 1 << 32;
        store.set_status(&mut log, PageId(0), 1, Status::new(true, true, true))?;
        let empty = store.close_epoch(0)?;
        // The state of epoch 0 has no page for the roots, so no program could continue from it.
        store.with_tables(|t| t.volume.drop_token(Epoch(empty.0 - 1)))?;
        while store.prune(usize::MAX)? {}
        store.open_heads(&mut log)?;
        // Two checkpoints, so that both header copies are those of this pool.
        store.checkpoint(&mut log)?;
        store.checkpoint(&mut log)?;
        drop(log);
        Ok(store)
    }

    pub(super) fn assemble(
        device: Arc<dyn Device>,
        identity: Identity,
        geometry: Geometry,
        volume: Volume,
        wear: WearCounts,
        summary_bytes: usize,
        counters: Arc<Counters>,
    ) -> Self {
        let queue =
            WriteQueue::new(Arc::clone(&device), PoolWatermarks::WRITES_IN_FLIGHT, buffer_bytes(&geometry));
        let directory = vec![None; volume.table().chunk_count() as usize];
        let store = Self {
            device,
            geometry,
            identity,
            tables: Mutex::new(Tables {
                volume,
                directory,
                summaries: BlockSummaries::new(geometry.blocks, geometry.slots_per_block, summary_bytes),
                temporary: BTreeSet::new(),
                root_slots: 0,
            }),
            log: Mutex::new(Log {
                queue,
                heads: [None; Stream::COUNT],
                meta: None,
                seq: 1,
                flushed: 0,
                block_sequence: 0,
                pending: Vec::new(),
                broken: false,
                failed_flushes: 0,
                fresh: BTreeSet::new(),
                unflushed: BTreeSet::new(),
                suspect: BTreeSet::new(),
                damaged_blocks: BTreeSet::new(),
                since_checkpoint: 0,
                newest_commit: 0,
                idle_since: 0,
                repaired: Vec::new(),
                lost_lines: None,
                generation: 0,
                incarnation: 0,
                root: Vec::new(),
                ring: None,
                parity: super::parity::ParityState::new(geometry.redundancy.is_some()),
            }),
            lines: super::lines::Lines::default(),
            flushes: super::durability::FlushTracker::default(),
            stopped: OnceLock::new(),
            room: AtomicI64::new(0),
            repairs: Mutex::default(),
            wear: super::wear::Wear::new(wear),
            counters,
        };
        store.update_room();
        store
    }

    /// Opens a block for each stream, so that the next checkpoint can record where the log goes on.
    pub(super) fn open_heads(&self, log: &mut Log) -> Result<()> {
        self.head(log, Stream::User)?;
        self.head(log, Stream::Reclaim)?;
        Ok(())
    }
}
