//! Flash that wears under a programmable controller: the strength of the error-correcting code and the
//! density of the cells change page by page (flash disk cache, sections 3.1 to 3.3).
//!
//! | file | contents |
//! |---|---|
//! | `fcht` | FlashCache hash table: disk page to flash page |
//! | `fpst` | flash page status table: strength, density, reads, valid, dirty |
//! | `fbst` | flash block status table: wear, pages in use, region, recency |
//! | `fgst` | flash global status table: how fast the cache satisfies requests |
//! | `policy` | the triggers: stronger code, single-level cells, retirement; hot pages; wear-aware replacement |
//!
//! The tables take less than 2 % of the flash. [`crate::disk_cache`] applies the policy.

mod fbst;
mod fcht;
mod fgst;
mod fpst;
mod policy;

pub use fbst::{BlockStatusTable, Region};
pub use fcht::FlashCacheHashTable;
pub use fgst::{GlobalStatus, Level};
pub use fpst::{PageStatus, PageStatusTable};
pub use policy::{
    AccessTimes, Activity, Controller, Reconfiguration, ReliabilityPolicy, Retirement, WearWeights,
};

/// A page of flash, numbered through all blocks. A page of multi-level cells has a number of its own; a
/// page of single-level cells has that of the first of the two pages in whose place it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlashPage(pub u32);

impl FlashPage {
    /// The first of the two pages that share this page's cells.
    #[must_use]
    pub fn first(self) -> FlashPage {
        FlashPage(self.0 & !1)
    }

    /// The other page that shares this page's cells.
    #[must_use]
    pub fn neighbour(self) -> FlashPage {
        FlashPage(self.0 ^ 1)
    }
}

/// Bits that a cell stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Density {
    /// Two bits: two pages share their cells.
    Mlc,
    /// One bit.
    Slc,
}

/// The shape of a flash memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashShape {
    /// Erase blocks.
    pub blocks: u32,
    /// Pages of a block in single-level cells; multi-level cells have twice as many.
    pub slots: u16,
}

impl FlashShape {
    /// Pages of a block in multi-level cells.
    #[must_use]
    pub fn pages_per_block(self) -> u32 {
        2 * u32::from(self.slots)
    }

    /// Pages of all blocks in multi-level cells.
    #[must_use]
    pub fn pages(self) -> u32 {
        self.blocks.saturating_mul(self.pages_per_block())
    }

    /// The block of a page.
    #[must_use]
    #[inline]
    pub fn block(self, page: FlashPage) -> u32 {
        page.0 / self.pages_per_block().max(1)
    }

    /// The page of this number within a block.
    #[must_use]
    #[inline]
    pub fn page(self, block: u32, index: u16) -> FlashPage {
        FlashPage(block * self.pages_per_block() + u32::from(index))
    }

    /// The pages of a block.
    pub fn pages_of(self, block: u32) -> impl Iterator<Item = FlashPage> {
        let first = block * self.pages_per_block();
        (first..first + self.pages_per_block()).map(FlashPage)
    }
}
