//! A journaled flash volume: page table, journal and blocks as one. The pool drives it over a real
//! device, the simulator in virtual time.
//!
//! # Contract
//! - A driver writes segments to flash first and tells the volume afterwards ([`Volume::apply`]).
//! - Every operation is all or nothing. [`VolumeError::NotLoaded`] asks for a chunk of the table
//!   ([`Volume::load_chunk`]); the operation is then called again.
//! - A slot counts as live in its block from `apply` until no token and no current page needs it.
//!
//! # Invariants
//! 1. A chain is ordered by stamp, newest first; within one stamp no segment comes twice.
//! 2. A version superseded in the epoch that wrote it is freed at once; an older one when the last
//!    token that sees it is given up and the page is pruned.
//! 3. So a chain has at most one entry for each live version of a segment, and one for each token
//!    that sees another status.
//! 4. A tombstone stays as long as anything older stands below it.

mod chain;
mod check;
mod epochs;
mod snapshot;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::addr::MAX_PAGES;
use crate::ftl::blocks::{Blocks, BlocksError};
use crate::journal::{Journal, Retention, TokenInfo};
use crate::page_table::{ChunkId, LoadError, MAX_STAMP, PageTable, Status};
use crate::units::{BlockId, Epoch, PageId, SegmentSize, Slot, Stamp};

pub use check::Problem;
pub use epochs::RollbackReport;
pub use snapshot::{SnapshotError, VolumeSnapshot};

/// Segments of a page, each with its slot.
pub type Placed = Vec<(u8, Slot)>;

/// The fixed properties of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeConfig {
    /// What flash programs at once.
    pub segment: SegmentSize,
    /// Virtual pages, at most 2^28.
    pub pages: u32,
    /// Entries for older versions; three a page in the paper, more for small volumes.
    pub upper: u32,
    /// Blocks of flash.
    pub blocks: u32,
    /// Slots of a block, at least 64 so that every place of every segment fits.
    pub slots_per_block: u16,
    /// The largest stamp, at most 2^24 − 1. Smaller ones are for tests of the wrap guard.
    pub stamp_limit: u32,
    /// Which tokens are kept.
    pub retention: Retention,
}

/// A configuration that no volume can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigError {
    /// Which value.
    pub field: &'static str,
    /// What it is.
    pub value: u64,
    /// What would be right.
    pub expected: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, expected {}", self.field, self.value, self.expected)
    }
}

impl core::error::Error for ConfigError {}

/// Why an operation was not carried out. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeError {
    /// This chunk of the table must be loaded first.
    NotLoaded(ChunkId),
    /// The page lies beyond the volume.
    NoPage {
        /// The page.
        page: PageId,
        /// Pages there are.
        pages: u32,
    },
    /// The page is not allocated.
    NotAllocated(PageId),
    /// A page has no such segment.
    NoSegment {
        /// The segment.
        segment: u8,
        /// Segments a page has.
        per_page: u8,
    },
    /// No entries are left for older versions; coalescing the longest chains frees some.
    TableFull {
        /// Entries needed.
        needed: u32,
        /// Entries that the upper region can hold.
        limit: u32,
    },
    /// The slots given are not distinct slots of one block of the volume, or cannot hold these segments.
    BadPlacement {
        /// The first slot at fault.
        slot: Slot,
    },
    /// The segment has no version of this stamp: the stamp has not come yet.
    NoVersion {
        /// The page.
        page: PageId,
        /// The segment.
        segment: u8,
    },
    /// The token was never given, or belongs to a future that was rolled back.
    UnknownToken {
        /// The token.
        token: Epoch,
        /// The youngest live one.
        newest: Epoch,
    },
    /// The token's versions have been reclaimed.
    ReclaimedToken {
        /// The token.
        token: Epoch,
        /// The oldest live one.
        oldest: Epoch,
    },
    /// The last token cannot be given up: it is what a crash returns to.
    LastToken(Epoch),
    /// The 24-bit stamps are used up; renumber.
    StampsExhausted,
    /// A chain loops or is longer than a chain can be: the table is damaged.
    BrokenChain(PageId),
    /// Block bookkeeping contradicts the table.
    Blocks(BlocksError),
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded(chunk) => write!(f, "table chunk {} is not loaded", chunk.0),
            Self::NoPage { page, pages } => write!(f, "page {page} does not exist: the volume has {pages}"),
            Self::NotAllocated(page) => write!(f, "page {page} is not allocated"),
            Self::NoSegment { segment, per_page } => {
                write!(f, "segment {segment} does not exist: a page has {per_page}")
            }
            Self::TableFull { needed, limit } => write!(
                f,
                "the page table is full: {needed} more entries for older versions are needed, all {limit} are in use"
            ),
            Self::BadPlacement { slot } => {
                write!(
                    f,
                    "slot {slot} cannot take its segment: the slots of a version lie in one block, each once"
                )
            }
            Self::NoVersion { page, segment } => {
                write!(f, "segment {segment} of page {page} has no such version")
            }
            Self::UnknownToken { token, newest } => {
                write!(f, "token {token} was never given, or was rolled back past; the newest is {newest}")
            }
            Self::ReclaimedToken { token, oldest } => {
                write!(f, "the versions of token {token} have been reclaimed; the oldest kept is {oldest}")
            }
            Self::LastToken(token) => write!(f, "token {token} is the last one and cannot be given up"),
            Self::StampsExhausted => {
                write!(f, "the 24-bit time stamps are used up: the table must be renumbered")
            }
            Self::BrokenChain(page) => write!(f, "the version chain of page {page} is damaged"),
            Self::Blocks(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for VolumeError {}

impl From<BlocksError> for VolumeError {
    fn from(error: BlocksError) -> Self {
        Self::Blocks(error)
    }
}

impl From<ChunkId> for VolumeError {
    fn from(chunk: ChunkId) -> Self {
        Self::NotLoaded(chunk)
    }
}

/// Where a version of a segment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Its slot.
    pub slot: Slot,
    /// When it was written.
    pub stamp: Stamp,
}

/// Page table, journal and blocks.
pub struct Volume {
    config: VolumeConfig,
    table: PageTable,
    journal: Journal,
    blocks: Blocks,
    /// One bit a page.
    allocated: Vec<u64>,
    /// Entries of each page's chain, as far as known; saturates.
    lengths: Vec<u8>,
    /// No shorter chain than this is worth looking at in [`Volume::longest_chain`].
    longest: u8,
}

impl Volume {
    /// An empty volume.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn new(config: VolumeConfig) -> Result<Self, ConfigError> {
        let table = Self::table_for(&config)?;
        Ok(Self {
            config,
            table,
            journal: Journal::new(config.stamp_limit, config.retention),
            blocks: Blocks::new(config.blocks, config.slots_per_block),
            allocated: vec![0; (config.pages as usize).div_ceil(64)],
            lengths: vec![0; config.pages as usize],
            longest: 0,
        })
    }

    fn table_for(config: &VolumeConfig) -> Result<PageTable, ConfigError> {
        let wrong = |field, value: u64, expected| Err(ConfigError { field, value, expected });
        if config.pages == 0 || config.pages > MAX_PAGES {
            return wrong("pages", config.pages.into(), "1 to 2^28");
        }
        if config.slots_per_block < 64 || config.slots_per_block > 1 << 14 {
            return wrong("slots per block", config.slots_per_block.into(), "64 to 16384");
        }
        if config.blocks == 0 {
            return wrong("blocks", 0, "at least 1");
        }
        if config.stamp_limit < 3 || config.stamp_limit > MAX_STAMP {
            return wrong("stamp limit", config.stamp_limit.into(), "3 to 2^24 - 1");
        }
        if config.retention == Retention::KeepLast(0) {
            return wrong("tokens kept", 0, "at least 1");
        }
        let slots = u64::from(config.blocks) * u64::from(config.slots_per_block);
        let Some(table) = PageTable::new(config.segment, config.pages, config.upper, slots) else {
            return wrong("blocks or upper entries", slots, "at most 2^34 slots and 2^30 entries");
        };
        Ok(table)
    }

    /// The fixed properties.
    #[must_use]
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The blocks, for the driver that opens, fills and releases them.
    pub fn blocks_mut(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// The page table.
    #[must_use]
    pub fn table(&self) -> &PageTable {
        &self.table
    }

    /// Whether a chunk can be used without loading.
    #[must_use]
    pub fn is_loaded(&self, chunk: ChunkId) -> bool {
        self.table.is_loaded(chunk)
    }

    /// Takes a chunk's bytes from flash; see [`PageTable::load`].
    ///
    /// # Errors
    /// The first entry that cannot be one of this table.
    pub fn load_chunk(
        &mut self,
        chunk: ChunkId,
        bytes: &[u8; crate::page_table::CHUNK_BYTES],
    ) -> Result<(), LoadError> {
        self.table.load(chunk, bytes)
    }

    /// Chunks changed since they were last marked clean.
    #[must_use]
    pub fn dirty_chunks(&self) -> Vec<ChunkId> {
        self.table.dirty()
    }

    /// Sets or clears a chunk's dirty mark: cleared when its bytes are on flash, set when what is
    /// there must be written elsewhere.
    pub fn mark_chunk(&mut self, chunk: ChunkId, dirty: bool) {
        self.table.mark(chunk, dirty);
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.journal.memory_bytes()
            + self.blocks.memory_bytes()
            + self.allocated.capacity() * 8
            + self.lengths.capacity()
    }

    // -- Reading -----------------------------------------------------------------------------

    /// The current version of a segment. `None`: never written, or the page is not there.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`], [`VolumeError::NoPage`], [`VolumeError::NoSegment`].
    pub fn lookup(&self, page: PageId, segment: u8) -> Result<Option<Version>, VolumeError> {
        self.find(page, segment, Stamp(MAX_STAMP))
    }

    /// The version of a segment that a token sees.
    ///
    /// # Errors
    /// As [`Volume::lookup`]; [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`].
    pub fn lookup_at(&self, token: Epoch, page: PageId, segment: u8) -> Result<Option<Version>, VolumeError> {
        let position = self.live(token)?;
        self.find(page, segment, self.journal.tokens[position].stamp)
    }

    /// The newest version of a segment that is not younger than `stamp`.
    fn find(&self, page: PageId, segment: u8, stamp: Stamp) -> Result<Option<Version>, VolumeError> {
        self.check_page(page)?;
        let size = self.config.segment;
        if segment >= size.per_page() {
            return Err(VolumeError::NoSegment { segment, per_page: size.per_page() });
        }
        for entry in self.walk(page) {
            let entry = entry?;
            if entry.stamp() > stamp {
                continue;
            }
            if entry.is_tombstone() {
                break;
            }
            if let Some(slot) = entry.slot(size, segment) {
                return Ok(Some(Version { slot, stamp: entry.stamp() }));
            }
        }
        Ok(None)
    }

    /// A page's status now.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`], [`VolumeError::NoPage`].
    pub fn status(&self, page: PageId) -> Result<Status, VolumeError> {
        self.check_page(page)?;
        Ok(self.table.get(PageTable::head(page))?.status())
    }

    /// A page's status as a token sees it.
    ///
    /// # Errors
    /// As [`Volume::lookup_at`].
    pub fn status_at(&self, token: Epoch, page: PageId) -> Result<Status, VolumeError> {
        let stamp = self.journal.tokens[self.live(token)?].stamp;
        self.check_page(page)?;
        for entry in self.walk(page) {
            let entry = entry?;
            if entry.stamp() <= stamp {
                return Ok(entry.status());
            }
        }
        Ok(Status::default())
    }

    /// The stamp with which the table refers to this slot for this segment; `None` if it does not:
    /// the slot is dead.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn is_live(&self, page: PageId, segment: u8, slot: Slot) -> Result<Option<Stamp>, VolumeError> {
        if page.0 >= self.config.pages || segment >= self.config.segment.per_page() {
            return Ok(None);
        }
        for entry in self.walk(page) {
            let entry = entry?;
            if entry.slot(self.config.segment, segment) == Some(slot) {
                return Ok(Some(entry.stamp()));
            }
        }
        Ok(None)
    }

    /// Whether a page is allocated. Needs no chunk.
    #[must_use]
    pub fn is_allocated(&self, page: PageId) -> bool {
        let word = self.allocated.get(page.0 as usize / 64).copied().unwrap_or(0);
        word >> (page.0 % 64) & 1 == 1
    }

    /// Pages that are allocated.
    #[must_use]
    pub fn allocated_pages(&self) -> u32 {
        self.allocated.iter().map(|word| word.count_ones()).sum()
    }

    /// The first run of `n` pages that are not allocated.
    #[must_use]
    pub fn find_free(&self, n: u32) -> Option<PageId> {
        let mut first = 0;
        let mut page = 0;
        while page < self.config.pages {
            if page % 64 == 0 && self.allocated[page as usize / 64] == u64::MAX {
                page += 64;
                first = page;
                continue;
            }
            if self.is_allocated(PageId(page)) {
                first = page + 1;
            } else if page + 1 - first >= n {
                return Some(PageId(first));
            }
            page += 1;
        }
        None
    }

    // -- Epochs ------------------------------------------------------------------------------

    /// Live tokens, oldest first. There is always one: epoch 0, the empty volume, at first.
    #[must_use]
    pub fn tokens(&self) -> &[TokenInfo] {
        &self.journal.tokens
    }

    /// The epoch that is open.
    #[must_use]
    pub fn open_epoch(&self) -> Epoch {
        self.journal.open
    }

    /// Its stamp.
    #[must_use]
    pub fn open_stamp(&self) -> Stamp {
        self.journal.open_stamp
    }

    /// The epoch that a version with this stamp counts for: the oldest live token that can see it,
    /// or the open epoch.
    #[must_use]
    pub fn epoch_of(&self, stamp: Stamp) -> Epoch {
        self.journal.epoch_of(stamp)
    }

    fn check_page(&self, page: PageId) -> Result<(), VolumeError> {
        if page.0 < self.config.pages {
            Ok(())
        } else {
            Err(VolumeError::NoPage { page, pages: self.config.pages })
        }
    }

    fn live(&self, token: Epoch) -> Result<usize, VolumeError> {
        self.journal.position(token).ok_or_else(|| {
            let oldest = self.journal.tokens[0].epoch;
            let newest = self.journal.last().epoch;
            if token < oldest {
                VolumeError::ReclaimedToken { token, oldest }
            } else if token > newest {
                VolumeError::UnknownToken { token, newest }
            } else {
                // Between two live ones: given up by hand, or never given.
                VolumeError::ReclaimedToken { token, oldest }
            }
        })
    }

    fn block_of(&self, slot: Slot) -> BlockId {
        BlockId((slot.0 / u64::from(self.config.slots_per_block)) as u32)
    }
}
