//! Snapshots: a volume's state as plain values, without the chunks of its page table, for a driver to
//! store on flash.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{ConfigError, Volume, VolumeConfig};
use crate::ftl::blocks::{BlockInfo, Blocks, BlocksError};
use crate::journal::{Journal, Retention, TokenInfo};
use crate::page_table::{ChunkId, LoadError};
use crate::units::{Epoch, Stamp};

/// The state of a volume without its configuration and the chunks of its page table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// The open epoch.
    pub open: Epoch,
    /// The open epoch's stamp.
    pub open_stamp: Stamp,
    /// Live tokens, oldest first.
    pub tokens: Vec<TokenInfo>,
    /// For each token the pages that changed since the previous one.
    pub changed: Vec<Vec<u32>>,
    /// Pages that changed in the open epoch.
    pub open_changed: Vec<u32>,
    /// Number of segments written in the open epoch.
    pub open_segments: u64,
    /// Pages queued for pruning.
    pub to_prune: Vec<u32>,
    /// All blocks, by number.
    pub blocks: Vec<BlockInfo>,
    /// Bitmap of the allocated pages.
    pub allocated: Vec<u64>,
    /// For each chunk of the upper region its number of entries in use.
    pub upper_counts: Vec<u16>,
}

/// A snapshot contradicts itself or the volume's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotError {
    /// The configuration is invalid.
    Config(ConfigError),
    /// The tokens, the lists of changed pages, or the allocation bitmap are invalid.
    Journal(&'static str),
    /// The blocks are invalid.
    Blocks(BlocksError),
    /// The page table's counts or chunks are invalid.
    Table(LoadError),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Journal(problem) => f.write_str(problem),
            Self::Blocks(error) => error.fmt(f),
            Self::Table(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SnapshotError {}

impl Volume {
    /// A snapshot of the current state.
    #[must_use]
    pub fn snapshot(&self) -> VolumeSnapshot {
        let journal = &self.journal;
        VolumeSnapshot {
            open: journal.open,
            open_stamp: journal.open_stamp,
            tokens: journal.tokens.clone(),
            changed: journal.changed.clone(),
            open_changed: journal.open_changed.clone(),
            open_segments: journal.open_segments,
            to_prune: journal.to_prune.clone(),
            blocks: self.blocks.infos().to_vec(),
            allocated: self.allocated.clone(),
            upper_counts: self.table.upper_counts().to_vec(),
        }
    }

    /// Restores a volume from a snapshot. The chunks in `on_flash` are loaded when needed; all others
    /// are empty.
    ///
    /// # Errors
    /// [`SnapshotError`] if the snapshot contradicts the configuration or itself. The snapshot may come
    /// from a damaged or hostile file: every value is validated.
    pub fn restore(
        config: VolumeConfig,
        snapshot: VolumeSnapshot,
        on_flash: &[ChunkId],
    ) -> Result<Self, SnapshotError> {
        let mut table = Self::table_for(&config).map_err(SnapshotError::Config)?;
        check_journal(&config, &snapshot).map_err(SnapshotError::Journal)?;
        if snapshot.blocks.len() != config.blocks as usize {
            return Err(SnapshotError::Journal(
                "the snapshot's number of blocks differs from the configuration's",
            ));
        }
        table.unload(on_flash, &snapshot.upper_counts).map_err(SnapshotError::Table)?;
        let blocks =
            Blocks::restore(config.slots_per_block, snapshot.blocks).map_err(SnapshotError::Blocks)?;
        Ok(Self {
            config,
            table,
            journal: Journal {
                open: snapshot.open,
                open_stamp: snapshot.open_stamp,
                stamp_limit: config.stamp_limit,
                retention: config.retention,
                tokens: snapshot.tokens,
                changed: snapshot.changed,
                open_changed: snapshot.open_changed,
                open_segments: snapshot.open_segments,
                to_prune: snapshot.to_prune,
            },
            blocks,
            allocated: snapshot.allocated,
            lengths: vec![0; config.pages as usize],
            longest: 0,
        })
    }

    /// Changes the rule for keeping tokens; takes effect at the next [`Volume::expired`].
    pub fn set_retention(&mut self, retention: Retention) {
        let retention = match retention {
            Retention::KeepLast(n) => Retention::KeepLast(n.max(1)),
            Retention::Segments(_) => retention,
        };
        self.config.retention = retention;
        self.journal.retention = retention;
    }
}

/// The largest epoch of a snapshot. It leaves 2^63 further epochs: 290,000 years at a million syncs a
/// second.
const MAX_EPOCH: Epoch = Epoch(u64::MAX / 2);

fn check_journal(config: &VolumeConfig, s: &VolumeSnapshot) -> Result<(), &'static str> {
    if s.tokens.is_empty() || s.tokens.len() != s.changed.len() {
        return Err("a snapshot needs at least one token, and one list of changed pages for each token");
    }
    let ordered = s.tokens.windows(2).all(|w| w[0].epoch < w[1].epoch && w[0].stamp < w[1].stamp);
    let last = s.tokens[s.tokens.len() - 1];
    if !ordered || last.epoch >= s.open || last.stamp >= s.open_stamp || s.open_stamp.0 > config.stamp_limit {
        return Err("the epochs and stamps of the tokens are not in ascending order");
    }
    if s.open > MAX_EPOCH {
        return Err("the open epoch exceeds the largest epoch, 2^63 - 1");
    }
    let lists = s.changed.iter().chain([&s.open_changed, &s.to_prune]);
    if lists.flatten().any(|&page| page >= config.pages) {
        return Err("a changed page is beyond the volume's last page");
    }
    let beyond = config.pages % 64;
    let stray = beyond != 0 && s.allocated.last().is_some_and(|word| word >> beyond != 0);
    if s.allocated.len() != (config.pages as usize).div_ceil(64) || stray {
        return Err("the bitmap of allocated pages does not match the volume's size");
    }
    Ok(())
}
