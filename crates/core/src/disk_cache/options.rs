//! The options of a disk cache.

use core::fmt;

use crate::reliability::{FlashShape, ReliabilityPolicy};

/// The blocks that one reclamation handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimScope {
    /// The block with the most dead pages.
    Greedy,
    /// All blocks with dead pages (flash disk cache, Figure 4).
    All,
}

/// The options.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskCacheOptions {
    /// Pages of the primary cache, in DRAM.
    pub dram_pages: u32,
    /// The flash of the secondary cache; without blocks there is none.
    pub shape: FlashShape,
    /// Share of the blocks that are the write region; `None` for one region of reads and writes.
    pub write_share: Option<f64>,
    /// The blocks that one reclamation handles.
    pub reclaim: ReclaimScope,
    /// The fewest dead pages of a block that is reclaimed, at least one. A region without such a block
    /// evicts its least recently used block.
    pub least_dead: u16,
    /// Background reclamation begins when a region can open fewer blocks than this.
    pub low_blocks: u32,
    /// Flash reads after which the reads of all pages are halved; 0 if they never are.
    pub age_reads: u64,
    /// Strength and density.
    pub policy: ReliabilityPolicy,
}

/// The fewest blocks of flash that is one region: two, and one to move pages to.
pub const FEWEST_BLOCKS: u32 = 3;
/// The fewest blocks of flash that is split.
pub const FEWEST_SPLIT_BLOCKS: u32 = 5;

/// Options that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionsError {
    /// The primary cache has no page.
    NoDram,
    /// The flash has blocks, but too few of them or none with pages.
    FewBlocks {
        /// Blocks of the flash.
        blocks: u32,
        /// Blocks that it needs.
        least: u32,
    },
    /// The flash has more pages than page numbers.
    ManyPages,
    /// A share is no share, or a strength exceeds the strongest.
    OutOfRange {
        /// The option.
        option: &'static str,
        /// The valid range.
        range: &'static str,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDram => f.write_str("the primary cache needs at least one page of DRAM"),
            Self::FewBlocks { blocks, least } => {
                write!(
                    f,
                    "flash of {blocks} blocks is too small; it needs {least} blocks with pages, or none"
                )
            }
            Self::ManyPages => {
                f.write_str("the flash has more than 2^31 pages, or a block more than 32767 slots")
            }
            Self::OutOfRange { option, range } => write!(f, "{option} must be {range}"),
        }
    }
}

impl core::error::Error for OptionsError {}

impl DiskCacheOptions {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        if self.dram_pages == 0 {
            return Err(OptionsError::NoDram);
        }
        let FlashShape { blocks, slots } = self.shape;
        let least = if self.write_share.is_some() { FEWEST_SPLIT_BLOCKS } else { FEWEST_BLOCKS };
        if blocks > 0 && (blocks < least || slots == 0) {
            return Err(OptionsError::FewBlocks { blocks, least });
        }
        if u64::from(blocks) * 2 * u64::from(slots) > 1 << 31 || slots > 1 << 14 {
            return Err(OptionsError::ManyPages);
        }
        if self.write_share.is_some_and(|share| !(share > 0.0 && share < 1.0)) {
            return Err(OptionsError::OutOfRange {
                option: "write_share",
                range: "more than 0 and less than 1",
            });
        }
        let policy = &self.policy;
        if policy.strength == 0 || policy.strength > policy.strongest {
            return Err(OptionsError::OutOfRange { option: "strength", range: "1 to the strongest" });
        }
        Ok(())
    }
}
