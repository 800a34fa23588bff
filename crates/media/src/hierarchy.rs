//! Memory made of DRAM and a drive that the processor addresses line by line (FlatFlash), and the two systems
//! that page from such a drive. This is the configuration only; the machine that runs it is in the simulator.

use deepram_core::units::{Bytes, Picos};

use crate::dram::Dram;
use crate::link::Link;
use crate::model::{Fault, kind, words};
use crate::nand::{Nand, NandOp};
use crate::software::Software;
use crate::value::{Fraction, PicojoulesPerBit};

words! {
    /// What a hit in the drive's memory does to a page's predicted interval.
    HitPolicy {
        /// It becomes 0.
        Hit = "hit",
        /// It becomes one less.
        Frequency = "frequency",
    }
}

words! {
    /// Which form of the promotion algorithm.
    Algorithm {
        /// Pages at the threshold or past it are promoted, and epochs have a count of their own.
        Decided = "decided",
        /// As printed.
        Literal = "literal",
    }
}

words! {
    /// Where a page goes that a system that pages has made durable.
    Flushed {
        /// To flash, as soon as a die is free.
        Flash = "flash",
        /// It stays in the drive's memory until its place is needed.
        Buffer = "buffer",
    }
}

kind! {
    /// DRAM and a byte-addressable drive.
    Hierarchy = "hierarchy";
    parts {
        /// The host's memory.
        dram: Dram,
        /// One package of the drive's flash.
        nand: Nand,
        /// The link between host and drive, one direction of it.
        link: Link,
        /// The operating system's path of a fault, of traditional-stack alone.
        software: Software,
    }
    fields {
        /// Channels of flash.
        channels: u64,
        /// Packages on each channel.
        packages_per_channel: u64,
        /// Share of the raw capacity that the host does not see.
        over_provisioning: Fraction,
        /// Size of the drive's memory as a share of what the host sees of the flash.
        buffer_share: Fraction,
        /// Ways of the drive's memory.
        buffer_ways: u64,
        /// Bits of a page's predicted interval.
        rrip_bits: u64,
        /// What a hit does to the interval.
        hit_policy: HitPolicy,
        /// Load of a line that the drive's memory holds, over the link.
        line_read: Picos,
        /// Store of a line, over the link: until it is in the write buffer (posted).
        line_write: Picos,
        /// Moving a page from the drive's memory to the host's.
        promote: Picos,
        /// Changing a page's table entry and the entries of it that processors hold.
        pte_update: Picos,
        /// Walk of the page table to find where a page is.
        walk: Picos,
        /// Pages of a request that are on their way to the drive at once.
        page_writes: u64,
        /// Where pages go that unified-mmap and traditional-stack have made durable. Those of flatflash stay in the
        /// drive's memory, which has a battery.
        flushed: Flushed,
        /// Stores under way that the write buffer takes.
        posted_writes: u64,
        /// Page-table entries that the processor holds (TLB).
        tlb_entries: u64,
        /// Ways of them.
        tlb_ways: u64,
        /// Bytes of the processor's last-level cache.
        cpu_cache: Bytes,
        /// Ways of it.
        cpu_cache_ways: u64,
        /// Time of a line that it holds.
        cpu_cache_hit: Picos,
        /// Entries of the promotion look-aside buffer.
        look_aside: u64,
        /// Time of a look into it, which each line on its way to the drive takes.
        look_aside_lookup: Picos,
        /// Which form of the promotion algorithm.
        algorithm: Algorithm,
        /// Whether the first use of a page promotes it as long as DRAM has frames that no page has had.
        fill_idle: bool,
        /// Share of promoted uses at or below which the threshold goes up.
        low_ratio: Fraction,
        /// Share of promoted uses at or above which the threshold comes down.
        high_ratio: Fraction,
        /// The largest threshold: uses before a page is promoted.
        max_threshold: u64,
        /// Uses after which the threshold begins anew.
        reset_epoch: u64,
        /// Moved pages that the drive remembers until it tells the host of all at once.
        remap_batch: u64,
        /// Free blocks of a die below which writing reclaims a block.
        reserve_blocks: u64,
        /// Background programs of a die beyond which further ones wait.
        write_queue: u64,
        /// Tables beside the page table that a fault of traditional-stack goes through, one walk each.
        indirections: u64,
        /// Bytes of host memory that each of them takes for a page in use.
        indirection_entry: Bytes,
        /// Energy of a bit on the link.
        link_energy: PicojoulesPerBit,
    }
    derived {
        /// channels x packages x capacity of a package
        raw_capacity: Bytes = |h| h.raw_bytes().0 as f64,
        /// raw capacity x (1 - over-provisioning), in whole stripes of blocks
        host_capacity: Bytes = |h| h.host_bytes().0 as f64,
        /// buffer_share x host_capacity, in whole sets
        buffer: Bytes = |h| h.buffer_bytes().0 as f64,
        /// single page read
        flash_read: Picos = |h| h.nand.single(NandOp::Read, 1).0 as f64,
    }
}

/// Bytes of a page, of flash and of memory.
const PAGE: u64 = 4096;

impl Hierarchy {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let raw = [self.channels, self.packages_per_channel]
            .iter()
            .try_fold(self.nand.package_capacity().0, |bytes, n| bytes.checked_mul(*n));
        if raw.is_none_or(|bytes| bytes == 0 || bytes > 1 << 43) {
            return Err(Fault::new("channels", "all packages together must have some bytes, at most 8 TiB"));
        }
        if self.nand.page.0 != PAGE {
            return Err(Fault::new(
                "channels",
                "pages of flash must be 4 KiB, as those of memory: nand.page=4KiB",
            ));
        }
        if !(2..=1 << 14).contains(&self.nand.pages_per_block) {
            return Err(Fault::new("channels", "nand.pages_per_block must be 2 to 16384"));
        }
        let spare = self.blocks_per_die() - self.host_blocks_per_die();
        if self.host_blocks_per_die() == 0 || spare < self.reserve_blocks + 2 {
            return Err(Fault::new(
                "over_provisioning",
                format!(
                    "leaves {spare} of {} blocks of a die beside the data; reserve_blocks and 2 more are needed",
                    self.blocks_per_die()
                ),
            ));
        }
        if self.reserve_blocks == 0 {
            return Err(Fault::new("reserve_blocks", "must be at least 1"));
        }
        for (key, value, most) in [
            ("buffer_ways", self.buffer_ways, 256),
            ("rrip_bits", self.rrip_bits, 8),
            ("tlb_ways", self.tlb_ways, 256),
            ("tlb_entries", self.tlb_entries, 1 << 24),
            ("max_threshold", self.max_threshold, 255),
            ("reset_epoch", self.reset_epoch, 1 << 40),
            ("posted_writes", self.posted_writes, 1 << 16),
            ("page_writes", self.page_writes, 1 << 16),
            ("remap_batch", self.remap_batch, 1 << 20),
            ("write_queue", self.write_queue, 1 << 20),
        ] {
            if value == 0 || value > most {
                return Err(Fault::new(key, format!("must be 1 to {most}")));
            }
        }
        if self.look_aside > 1 << 12 {
            return Err(Fault::new("look_aside", "must be at most 4096"));
        }
        if !self.tlb_entries.is_multiple_of(self.tlb_ways) {
            return Err(Fault::new("tlb_ways", "must divide the entries"));
        }
        if self.low_ratio.0 >= self.high_ratio.0 {
            return Err(Fault::new("low_ratio", "must be less than high_ratio"));
        }
        if self.indirections > 16 || self.indirection_entry.0 > 64 {
            return Err(Fault::new("indirections", "must be at most 16, of at most 64 B a page each"));
        }
        Ok(())
    }

    /// Dies of the drive.
    pub fn dies(&self) -> u64 {
        self.channels * self.packages_per_channel * self.nand.dies
    }

    /// Blocks of a die.
    pub fn blocks_per_die(&self) -> u64 {
        self.nand.planes * self.nand.blocks_per_plane
    }

    /// Blocks of a die that the data of a full drive take.
    pub fn host_blocks_per_die(&self) -> u64 {
        (self.blocks_per_die() as f64 * (1.0 - self.over_provisioning.0)).floor().max(0.0) as u64
    }

    /// Data bytes of all packages.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.channels * self.packages_per_channel * self.nand.package_capacity().0)
    }

    /// Bytes that the host sees.
    pub fn host_bytes(&self) -> Bytes {
        Bytes(self.dies() * self.host_blocks_per_die() * self.nand.block_bytes().0)
    }

    /// Sets of the drive's memory; at least 1.
    pub fn buffer_sets(&self) -> u64 {
        let pages = (self.host_bytes().0 as f64 * self.buffer_share.0 / PAGE as f64).round() as u64;
        (pages / self.buffer_ways.max(1)).max(1)
    }

    /// Bytes of the drive's memory, in whole sets.
    pub fn buffer_bytes(&self) -> Bytes {
        Bytes(self.buffer_sets() * self.buffer_ways * PAGE)
    }
}
