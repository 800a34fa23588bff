//! Configuration of a memory of DRAM and a byte-addressable SSD (FlatFlash), and of the two systems that
//! page from such an SSD (unified-mmap and traditional-stack). The simulator implements these systems.

use deepram_core::units::{Bytes, Picos};

use crate::dram::Dram;
use crate::link::Link;
use crate::model::{InvalidFigure, kind, words};
use crate::nand::{Nand, NandOp};
use crate::software::Software;
use crate::value::{Fraction, PicojoulesPerBit};

words! {
    /// Effect of a hit in the SSD-Cache on a page's re-reference prediction value (RRPV).
    HitPolicy {
        /// The RRPV becomes 0.
        Hit = "hit",
        /// The RRPV is decremented.
        Frequency = "frequency",
    }
}

words! {
    /// Which form of the promotion algorithm.
    PromotionAlgorithm {
        /// A page is promoted when its count is at least the threshold; the uses of an epoch are counted
        /// separately.
        Decided = "decided",
        /// The algorithm as printed.
        Literal = "literal",
    }
}

words! {
    /// The destination of a page that a paging system makes durable.
    FlushTarget {
        /// Flash, as soon as a die is free.
        Flash = "flash",
        /// The SSD-Cache, until the page is evicted from it.
        Buffer = "buffer",
    }
}

kind! {
    /// DRAM and a byte-addressable SSD.
    Hierarchy = "hierarchy";
    parts {
        /// The host's memory.
        dram: Dram,
        /// One package of the SSD's flash.
        nand: Nand,
        /// One direction of the link between host and SSD.
        link: Link,
        /// The software path of a page fault; used by traditional-stack only.
        software: Software,
    }
    fields {
        /// Flash channels.
        channels: u64,
        /// Packages of a channel.
        packages_per_channel: u64,
        /// Share of the raw capacity that is not visible to the host.
        over_provisioning: Fraction,
        /// Size of the SSD-Cache, as a share of the host-visible capacity.
        buffer_share: Fraction,
        /// Ways of the SSD-Cache.
        buffer_ways: u64,
        /// Bits of a page's RRPV.
        rrip_bits: u64,
        /// Effect of a hit on the RRPV.
        hit_policy: HitPolicy,
        /// Latency of a load of a line in the SSD-Cache, link included.
        line_read: Picos,
        /// Latency of a posted store of a line to the SSD, until the line is in the write buffer.
        line_write: Picos,
        /// Time to promote a page from the SSD-Cache to DRAM.
        promote: Picos,
        /// Time to update a page-table entry and the TLBs.
        pte_update: Picos,
        /// Time of a page-table walk that finds a page at the SSD.
        walk: Picos,
        /// Time of a page-table walk that finds a page in DRAM.
        walk_dram: Picos,
        /// Time from sending a page to the SSD until it is durable there, on an idle SSD.
        page_write: Picos,
        /// Pages of one request that are in transfer to the SSD at once.
        page_writes: u64,
        /// Destination of pages that unified-mmap and traditional-stack make durable. Those of flatflash
        /// stay in the SSD-Cache, which is battery-backed.
        flushed: FlushTarget,
        /// Posted stores that the write buffer holds.
        posted_writes: u64,
        /// Entries of a core's TLB.
        tlb_entries: u64,
        /// Ways of the TLB.
        tlb_ways: u64,
        /// Size of the processor's last-level cache.
        cpu_cache: Bytes,
        /// Ways of the last-level cache.
        cpu_cache_ways: u64,
        /// Hit latency of the last-level cache.
        cpu_cache_hit: Picos,
        /// Entries of the promotion look-aside buffer (PLB).
        look_aside: u64,
        /// Time of a PLB lookup, added to every access of a line of the SSD.
        look_aside_lookup: Picos,
        /// Form of the promotion algorithm.
        algorithm: PromotionAlgorithm,
        /// Whether the first use of a page promotes it while DRAM has frames that were never used.
        fill_idle: bool,
        /// LwRatio: a promoted share at or below it raises the threshold.
        low_ratio: Fraction,
        /// HiRatio: a promoted share at or above it lowers the threshold.
        high_ratio: Fraction,
        /// MaxThreshold: the largest number of uses before a page is promoted.
        max_threshold: u64,
        /// ResetEpoch: uses after which the threshold is reset.
        reset_epoch: u64,
        /// Protection epoch of the platform that FlatFlash was evaluated on: within an epoch only the
        /// first access to a page at the drive takes the drive's time and is counted. 0 for the hardware
        /// of its design, where every access to the drive does.
        platform_epoch: Picos,
        /// Lazy remapping: moved pages that the SSD records before it notifies the host of all at once.
        remap_batch: u64,
        /// Free blocks of a die below which a write reclaims a block.
        reserve_blocks: u64,
        /// Background programs that a die queues before further ones wait.
        write_queue: u64,
        /// Tables besides the page table that a page fault of traditional-stack walks, one walk each.
        indirections: u64,
        /// Host memory that each of these tables takes for a page in use.
        indirection_entry: Bytes,
        /// Link energy per bit.
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
        flash_read: Picos = |h| h.nand.idle_latency(NandOp::Read, 1).0 as f64,
    }
}

/// Size of a page of flash and of memory, in bytes.
const PAGE: u64 = 4096;

impl Hierarchy {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let raw = self.nand.capacity_of(self.channels, self.packages_per_channel);
        if raw.is_none_or(|Bytes(bytes)| bytes == 0 || bytes > 1 << 43) {
            return Err(InvalidFigure::new(
                "channels",
                "the capacity of all packages must be 1 byte to 8 TiB",
            ));
        }
        if self.nand.page.0 != PAGE {
            return Err(InvalidFigure::new(
                "channels",
                "flash pages must be 4 KiB, as memory pages: set nand.page=4KiB",
            ));
        }
        if !(2..=1 << 14).contains(&self.nand.pages_per_block) {
            return Err(InvalidFigure::new("channels", "nand.pages_per_block must be 2 to 16384"));
        }
        let spare = self.blocks_per_die() - self.host_blocks_per_die();
        if self.host_blocks_per_die() == 0 || spare < self.reserve_blocks + 2 {
            return Err(InvalidFigure::new(
                "over_provisioning",
                format!(
                    "leaves {spare} spare blocks of a die's {}; at least reserve_blocks + 2 are needed",
                    self.blocks_per_die()
                ),
            ));
        }
        if self.reserve_blocks == 0 {
            return Err(InvalidFigure::new("reserve_blocks", "must be at least 1"));
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
                return Err(InvalidFigure::new(key, format!("must be 1 to {most}")));
            }
        }
        if self.look_aside > 1 << 12 {
            return Err(InvalidFigure::new("look_aside", "must be at most 4096"));
        }
        if !self.tlb_entries.is_multiple_of(self.tlb_ways) {
            return Err(InvalidFigure::new("tlb_ways", "must divide the entries"));
        }
        if self.low_ratio.0 >= self.high_ratio.0 {
            return Err(InvalidFigure::new("low_ratio", "must be less than high_ratio"));
        }
        if self.indirections > 16 || self.indirection_entry.0 > 64 {
            return Err(InvalidFigure::new(
                "indirections",
                "must be at most 16, of at most 64 B a page each",
            ));
        }
        Ok(())
    }

    /// Number of dies of the SSD.
    pub fn dies(&self) -> u64 {
        self.channels * self.packages_per_channel * self.nand.dies
    }

    /// Number of blocks of a die.
    pub fn blocks_per_die(&self) -> u64 {
        self.nand.planes * self.nand.blocks_per_plane
    }

    /// Number of blocks of a die that hold data when the SSD is full.
    pub fn host_blocks_per_die(&self) -> u64 {
        (self.blocks_per_die() as f64 * (1.0 - self.over_provisioning.0)).floor().max(0.0) as u64
    }

    /// Capacity of all packages.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.channels * self.packages_per_channel * self.nand.package_capacity().0)
    }

    /// Host-visible capacity.
    pub fn host_bytes(&self) -> Bytes {
        Bytes(self.dies() * self.host_blocks_per_die() * self.nand.block_bytes().0)
    }

    /// Number of sets of the SSD-Cache; at least 1.
    pub fn buffer_sets(&self) -> u64 {
        let pages = (self.host_bytes().0 as f64 * self.buffer_share.0 / PAGE as f64).round() as u64;
        (pages / self.buffer_ways.max(1)).max(1)
    }

    /// Size of the SSD-Cache, in whole sets.
    pub fn buffer_bytes(&self) -> Bytes {
        Bytes(self.buffer_sets() * self.buffer_ways * PAGE)
    }
}
