//! A journaled flash volume: page table, journal and blocks combined (NVMM, Page Table Organization and
//! Software Interface). The pool drives it over a real device, the simulator in virtual time.
//!
//! Reads follow the chain: each segment comes from the newest entry that has it (NVMM, Use of the Bit
//! Vector's Sub-Page Valid Bits).
//!
//! # Contract
//! - The driver writes segments to flash first and records them in the volume afterwards
//!   ([`Volume::apply`]).
//! - Every operation is all or nothing. On [`VolumeError::NotLoaded`] the driver loads the named chunk
//!   of the table ([`Volume::load_chunk`]) and repeats the operation.
//! - A slot counts as live in its block from `apply` until no token and no current page needs it.
//!
//! # Invariants
//! 1. A chain is ordered by stamp, newest first; within one stamp no segment occurs twice.
//! 2. A version superseded in the epoch that wrote it is freed at once; an older one is freed when the
//!    last token that sees it has been dropped and the page is pruned.
//! 3. So a chain has at most one entry for each live version of a segment, and one for each token that
//!    sees a different status.
//! 4. A tombstone (an entry that records a deletion) stays as long as an older entry exists below it.

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

pub use check::Inconsistency;
pub use epochs::RollbackReport;
pub use snapshot::{SnapshotError, VolumeSnapshot};

/// Segments of one page, each as (segment number, slot).
pub type PlacedSegments = Vec<(u8, Slot)>;

/// The configuration of a volume; fixed for its life, except for the retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Size of a segment.
    pub segment: SegmentSize,
    /// Number of virtual pages, at most 2^28.
    pub pages: u32,
    /// Number of page-table entries for older versions; three a page in the paper, more for small
    /// volumes.
    pub upper: u32,
    /// Number of blocks of flash.
    pub blocks: u32,
    /// Number of slots of a block, at least 64, so that every position of every segment fits.
    pub slots_per_block: u16,
    /// The largest stamp, at most 2^24 − 1. Smaller limits are for tests of renumbering.
    pub stamp_limit: u32,
    /// The rule for keeping tokens.
    pub retention: Retention,
}

/// An invalid configuration of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigError {
    /// The name of the invalid value.
    pub field: &'static str,
    /// The value.
    pub value: u64,
    /// The valid range.
    pub expected: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, expected {}", self.field, self.value, self.expected)
    }
}

impl core::error::Error for ConfigError {}

/// The reason for refusing an operation. A refused operation changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeError {
    /// The driver must load this chunk of the table and repeat the operation.
    NotLoaded(ChunkId),
    /// The page is beyond the volume's last page.
    NoPage {
        /// The page.
        page: PageId,
        /// Number of pages of the volume.
        pages: u32,
    },
    /// The page is not allocated.
    NotAllocated(PageId),
    /// The segment number is not valid.
    NoSegment {
        /// The segment.
        segment: u8,
        /// Number of segments of a page.
        per_page: u8,
    },
    /// All entries for older versions are in use; coalescing the longest chains frees some.
    TableFull {
        /// Number of entries needed.
        needed: u32,
        /// Number of entries of the upper region.
        limit: u32,
    },
    /// The slots are not distinct slots of one block of the volume, or cannot hold these segments.
    BadPlacement {
        /// The first invalid slot.
        slot: Slot,
    },
    /// The stamp is newer than the open epoch's, so the segment has no version of it.
    NoVersion {
        /// The page.
        page: PageId,
        /// The segment.
        segment: u8,
    },
    /// No sync returned this token, or a rollback has discarded it.
    UnknownToken {
        /// The token.
        token: Epoch,
        /// The newest live token.
        newest: Epoch,
    },
    /// The token's versions have been reclaimed.
    ReclaimedToken {
        /// The token.
        token: Epoch,
        /// The oldest live token.
        oldest: Epoch,
    },
    /// The newest token cannot be dropped: recovery after a crash returns to it.
    LastToken(Epoch),
    /// All 24-bit stamps are used; [`Volume::renumber`] must run first.
    StampsExhausted,
    /// The page's chain loops, exceeds the longest possible chain, or has a dangling link: the table is
    /// damaged.
    BrokenChain(PageId),
    /// The block counts contradict the table.
    Blocks(BlocksError),
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded(chunk) => write!(f, "table chunk {} is not loaded", chunk.0),
            Self::NoPage { page, pages } => {
                write!(f, "page {page} does not exist: the volume has {pages} pages")
            }
            Self::NotAllocated(page) => write!(f, "page {page} is not allocated"),
            Self::NoSegment { segment, per_page } => {
                write!(f, "segment {segment} does not exist: a page has {per_page} segments")
            }
            Self::TableFull { needed, limit } => write!(
                f,
                "the page table is full: {needed} more entries for older versions are needed, but all {limit} are in use"
            ),
            Self::BadPlacement { slot } => {
                write!(f, "slot {slot} cannot hold its segment: a write needs distinct slots of one block")
            }
            Self::NoVersion { page, segment } => {
                write!(f, "segment {segment} of page {page} has no version of a future epoch")
            }
            Self::UnknownToken { token, newest } => {
                write!(f, "token {token} was never issued or was rolled back; the newest token is {newest}")
            }
            Self::ReclaimedToken { token, oldest } => {
                write!(f, "the versions of token {token} have been reclaimed; the oldest token is {oldest}")
            }
            Self::LastToken(token) => write!(f, "token {token} is the newest token and cannot be dropped"),
            Self::StampsExhausted => {
                write!(f, "all 24-bit stamps are used: the table must be renumbered")
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

/// The location of one version of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The slot.
    pub slot: Slot,
    /// The stamp of the epoch that wrote the version.
    pub stamp: Stamp,
}

/// A journaled flash volume; see the module.
pub struct Volume {
    config: VolumeConfig,
    table: PageTable,
    journal: Journal,
    blocks: Blocks,
    /// Bitmap of the allocated pages.
    allocated: Vec<u64>,
    /// Known length of each page's chain, in entries; saturates at 255.
    lengths: Vec<u8>,
    /// Upper bound of `lengths`: [`Volume::longest_chain`] stops at the first chain of this length.
    longest: u8,
}

impl Volume {
    /// An empty volume.
    ///
    /// # Errors
    /// [`ConfigError`] for the first value that is out of range.
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

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The blocks, for the driver to open, fill and release.
    pub fn blocks_mut(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// The page table.
    #[must_use]
    pub fn table(&self) -> &PageTable {
        &self.table
    }

    /// True if the chunk can be used without loading.
    #[must_use]
    pub fn is_loaded(&self, chunk: ChunkId) -> bool {
        self.table.is_loaded(chunk)
    }

    /// Loads a chunk of the table from its bytes on flash; see [`PageTable::load`].
    ///
    /// # Errors
    /// [`LoadError`] for the first entry that contradicts the table.
    pub fn load_chunk(
        &mut self,
        chunk: ChunkId,
        bytes: &[u8; crate::page_table::CHUNK_BYTES],
    ) -> Result<(), LoadError> {
        self.table.load(chunk, bytes)
    }

    /// The dirty chunks: changed since they were last marked clean.
    #[must_use]
    pub fn dirty_chunks(&self) -> Vec<ChunkId> {
        self.table.dirty()
    }

    /// Sets or clears a chunk's dirty flag. The driver clears it when the chunk's bytes are on flash,
    /// and sets it to move the chunk elsewhere.
    pub fn mark_chunk(&mut self, chunk: ChunkId, dirty: bool) {
        self.table.set_dirty(chunk, dirty);
    }

    /// Memory of all tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.journal.memory_bytes()
            + self.blocks.memory_bytes()
            + self.allocated.capacity() * 8
            + self.lengths.capacity()
    }

    // -- Reading -----------------------------------------------------------------------------

    /// The current version of a segment; `None` if it was never written or the page does not exist.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`], [`VolumeError::NoPage`], [`VolumeError::NoSegment`].
    pub fn lookup(&self, page: PageId, segment: u8) -> Result<Option<Version>, VolumeError> {
        self.find(page, segment, Stamp(MAX_STAMP))
    }

    /// The version of a segment in the state of a token.
    ///
    /// # Errors
    /// As [`Volume::lookup`]; [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`].
    pub fn lookup_at(&self, token: Epoch, page: PageId, segment: u8) -> Result<Option<Version>, VolumeError> {
        let position = self.token_position(token)?;
        self.find(page, segment, self.journal.tokens[position].stamp)
    }

    /// The newest version of a segment with a stamp of at most `stamp`.
    fn find(&self, page: PageId, segment: u8, stamp: Stamp) -> Result<Option<Version>, VolumeError> {
        self.check_page(page)?;
        let size = self.config.segment;
        if segment >= size.per_page() {
            return Err(VolumeError::NoSegment { segment, per_page: size.per_page() });
        }
        for entry in self.chain_entries(page) {
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

    /// A page's current status.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`], [`VolumeError::NoPage`].
    pub fn status(&self, page: PageId) -> Result<Status, VolumeError> {
        self.check_page(page)?;
        Ok(self.table.get(PageTable::head(page))?.status())
    }

    /// A page's status in the state of a token.
    ///
    /// # Errors
    /// As [`Volume::lookup_at`].
    pub fn status_at(&self, token: Epoch, page: PageId) -> Result<Status, VolumeError> {
        let stamp = self.journal.tokens[self.token_position(token)?].stamp;
        self.check_page(page)?;
        for entry in self.chain_entries(page) {
            let entry = entry?;
            if entry.stamp() <= stamp {
                return Ok(entry.status());
            }
        }
        Ok(Status::default())
    }

    /// The stamp of the version that has this segment in this slot; `None` if no version has: the slot
    /// is dead.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn is_live(&self, page: PageId, segment: u8, slot: Slot) -> Result<Option<Stamp>, VolumeError> {
        if page.0 >= self.config.pages || segment >= self.config.segment.per_page() {
            return Ok(None);
        }
        for entry in self.chain_entries(page) {
            let entry = entry?;
            if entry.slot(self.config.segment, segment) == Some(slot) {
                return Ok(Some(entry.stamp()));
            }
        }
        Ok(None)
    }

    /// True if the page is allocated. Needs no chunk.
    #[must_use]
    pub fn is_allocated(&self, page: PageId) -> bool {
        let word = self.allocated.get(page.0 as usize / 64).copied().unwrap_or(0);
        word >> (page.0 % 64) & 1 == 1
    }

    /// Number of allocated pages.
    #[must_use]
    pub fn allocated_pages(&self) -> u32 {
        self.allocated.iter().map(|word| word.count_ones()).sum()
    }

    /// The first page of the lowest run of `n` unallocated pages.
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

    /// Live tokens, oldest first. At least one exists; a new volume has epoch 0, the empty state.
    #[must_use]
    pub fn tokens(&self) -> &[TokenInfo] {
        &self.journal.tokens
    }

    /// The open epoch.
    #[must_use]
    pub fn open_epoch(&self) -> Epoch {
        self.journal.open
    }

    /// The open epoch's stamp.
    #[must_use]
    pub fn open_stamp(&self) -> Stamp {
        self.journal.open_stamp
    }

    /// The epoch of a version with this stamp: the oldest live token that can see it, or the open epoch.
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

    fn token_position(&self, token: Epoch) -> Result<usize, VolumeError> {
        self.journal.position(token).ok_or_else(|| {
            let oldest = self.journal.tokens[0].epoch;
            let newest = self.journal.newest_token().epoch;
            if token < oldest {
                VolumeError::ReclaimedToken { token, oldest }
            } else if token > newest {
                VolumeError::UnknownToken { token, newest }
            } else {
                // Between two live tokens: dropped by the caller, or never issued.
                VolumeError::ReclaimedToken { token, oldest }
            }
        })
    }

    fn block_of(&self, slot: Slot) -> BlockId {
        BlockId((slot.0 / u64::from(self.config.slots_per_block)) as u32)
    }
}
