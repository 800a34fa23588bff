//! Configuration of a server's disk cache: DRAM, flash and a hard disk (flash disk cache). The simulator
//! implements the system.

use deepram_core::units::{Bytes, Picos};

use crate::bit_errors::BitErrors;
use crate::disk::Disk;
use crate::dram::Dram;
use crate::ecc::Ecc;
use crate::model::{InvalidFigure, kind, words};
use crate::nand::{Cell, Nand};
use crate::value::{Bandwidth, Factor, Fraction};

words! {
    /// Regions of the flash.
    FlashRegions {
        /// One region for reads and writes.
        Unified = "unified",
        /// A read region and a write region.
        Split = "split",
    }
}

words! {
    /// The controller of the flash.
    FlashController {
        /// One code strength and one density for all pages.
        Fixed = "fixed",
        /// Code strength and density of each page.
        Programmable = "programmable",
    }
}

words! {
    /// The unit that is retired when a page fails that has the strongest code and single-level cells.
    RetiredUnit {
        /// The page's block.
        Block = "block",
        /// The page's cells.
        Page = "page",
    }
}

words! {
    /// The blocks that one reclamation handles.
    ReclaimedBlocks {
        /// The block with the most dead pages.
        Greedy = "greedy",
        /// All blocks with dead pages.
        All = "all",
    }
}

kind! {
    /// A disk cache of DRAM and flash in front of a hard disk.
    DiskCacheServer = "server";
    parts {
        /// The server's memory.
        dram: Dram,
        /// A flash package whose cells store one bit.
        slc: Nand,
        /// The same package with two bits a cell.
        mlc: Nand,
        /// Bit errors of the flash.
        errors: BitErrors,
        /// Error correction of the flash controller.
        ecc: Ecc,
        /// The disk.
        disk: Disk,
    }
    fields {
        /// DRAM that is the primary disk cache.
        dram_cache: Bytes,
        /// Flash that is the secondary disk cache, with two bits a cell; 0 for none.
        flash: Bytes,
        /// Flash channels.
        channels: u64,
        /// Dies of a channel.
        dies: u64,
        /// Regions of the flash.
        regions: FlashRegions,
        /// Share of the flash that is the write region, if it is split.
        write_share: Fraction,
        /// Blocks that one reclamation handles.
        reclaim: ReclaimedBlocks,
        /// Fewest dead pages of a block that is reclaimed, as a share of its pages; a region without such a block evicts one.
        least_dead: Fraction,
        /// Background reclamation begins when a region can open fewer blocks.
        low_blocks: u64,
        /// Interval at which dirty pages of DRAM are written to flash; 0 for never.
        write_back_period: Picos,
        /// Interval at which dirty pages of flash are written to the disk; 0 for never.
        flush_period: Picos,
        /// Pages being written to flash at once before requests that cause more of them wait.
        write_back_queue: u64,
        /// Controller.
        controller: FlashController,
        /// First density of all pages.
        density: Cell,
        /// Bits that the first code of all pages corrects.
        strength: u64,
        /// Whether the check bits of the strongest code must fit into the spare bytes of a page.
        check_spare: bool,
        /// Bits that a code must correct in addition to the consistent faults of its page.
        margin: u64,
        /// Whether hot pages move to single-level cells.
        migrate_hot: bool,
        /// Reads of a page that make it hot.
        hot_limit: u64,
        /// Flash reads after which the reads of all pages are halved.
        age_reads: u64,
        /// Unit that is retired when a page fails that has the strongest code and single-level cells.
        retirement: RetiredUnit,
        /// Whether a much worn block and the least worn one change places.
        wear_swap: bool,
        /// Difference of wear above which they do.
        wear_difference: Factor,
        /// Erases that a bit of added strength of a page counts as.
        wear_strength: Factor,
        /// Erases that a single-level slot counts as.
        wear_single: Factor,
        /// Factor by which cells wear faster than rated, to see a lifetime in a short run.
        wear_scale: Factor,
        /// Processor time of a request before it is served.
        software: Picos,
        /// Network bandwidth of the server.
        network: Bandwidth,
        /// Whether the disk stops when it is idle.
        standby: bool,
        /// Idle time after which it stops.
        standby_after: Picos,
        /// Time to start it again.
        spin_up: Picos,
    }
    derived {
        /// flash over the size of a block
        blocks: u64 = |c| c.blocks() as f64,
    }
}

impl DiskCacheServer {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let fail = |key, message: String| Err(InvalidFigure::new(key, message));
        let (slc, mlc) = (&self.slc, &self.mlc);
        if (slc.cell, mlc.cell) != (Cell::Slc, Cell::Mlc) || slc.page != mlc.page {
            return fail(
                "slc",
                "slc and mlc must be one part with one and two bits a cell, and equal pages".into(),
            );
        }
        if mlc.pages_per_block != 2 * slc.pages_per_block {
            return fail("mlc", "a block must have twice as many pages as with one bit a cell".into());
        }
        if self.density == Cell::Tlc {
            return fail("density", "must be slc or mlc".into());
        }
        if self.dram_cache.0 < mlc.page.0 || self.dram_cache > self.dram.total_capacity() {
            let most = self.dram.total_capacity().0;
            return fail("dram_cache", format!("must be a page at least, and at most the DRAM of {most} B"));
        }
        if !(self.write_share.0 > 0.0 && self.write_share.0 < 1.0) {
            return fail("write_share", "must be more than 0 and less than 1".into());
        }
        if self.network.0 < 1.0 {
            return fail("network", "must be at least 1 B/s".into());
        }
        if self.wear_scale.0 < 1e-6 || self.wear_scale.0 > 1e9 {
            return fail("wear_scale", "must be 0.000001 to 1000000000".into());
        }
        if self.channels.saturating_mul(self.dies) > 1 << 16 {
            return fail("dies", "channels x dies must be at most 65536".into());
        }
        if self.strength > 64 || self.margin > 64 || self.hot_limit > 65_535 {
            return fail(
                "strength",
                "strength and margin are at most 64 bits, hot_limit at most 65535".into(),
            );
        }
        let room = self.ecc.strongest_in(mlc.page, Bytes(mlc.spare.0.min(slc.spare.0)));
        let wanted = self.strongest();
        if self.check_spare && self.flash.0 > 0 && room < wanted {
            return fail(
                "check_spare",
                format!(
                    "a code of {wanted} bits does not fit into the spare bytes, which hold {room}; or set it to false"
                ),
            );
        }
        Ok(())
    }

    /// The strength of the strongest code in use.
    pub fn strongest(&self) -> u64 {
        match self.controller {
            FlashController::Fixed => self.strength,
            FlashController::Programmable => self.ecc.strongest.max(self.strength),
        }
    }

    /// Erase blocks of the flash.
    pub fn blocks(&self) -> u64 {
        self.flash.0 / self.mlc.block_bytes().0.max(1)
    }
}
