//! Configuration of a flash main memory (NVMM, Architecture): a DRAM cache with tags in DRAM, a mapping
//! cache, and flash channels. The simulator implements this memory.

use deepram_core::units::{Bytes, Picos};

use crate::dram::{Dram, RowState};
use crate::model::{InvalidFigure, kind};
use crate::nand::{Nand, NandOp};
use crate::value::{Fraction, PicojoulesPerBit};

kind! {
    /// A flash main memory.
    Nvmm = "nvmm";
    parts {
        /// The DRAM of the cache and its tags.
        dram: Dram,
        /// One package of the flash. Its page size is taken to be `segment`.
        nand: Nand,
    }
    fields {
        /// Flash channels.
        channels: u64,
        /// Packages of a channel.
        packages_per_channel: u64,
        /// Size of a segment, the unit of flash reads and programs, and of a block of the DRAM cache: 4,
        /// 8 or 16 KiB.
        segment: Bytes,
        /// Planes over which consecutive slots of a block are striped, channels first. With 1 a block is
        /// one block of one plane, as in the paper's page table; with more it consists of one block of
        /// each plane.
        stripe: u64,
        /// Share of the raw capacity that is not visible to the host.
        spare: Fraction,
        /// Ways of the DRAM cache.
        ways: u64,
        /// Tag and state of a cache block in DRAM, in bytes.
        tag: Bytes,
        /// Controller time of a tag comparison, in addition to the DRAM access for the tags.
        tag_delay: Picos,
        /// Page-table entries in the mapping cache.
        mapping_entries: u64,
        /// Ways of the mapping cache.
        mapping_ways: u64,
        /// Time to fetch an entry from the page table in its dedicated DRAM.
        mapping_miss: Picos,
        /// Evicted dirty blocks that the controller buffers until they are programmed.
        write_buffer: u64,
        /// Read latency of another memory that replaces flash and needs no erase.
        store_read: Option<Picos>,
        /// Write latency of the memory that replaces flash.
        store_write: Option<Picos>,
        /// Read energy per bit of the memory that replaces flash.
        store_read_energy: Option<PicojoulesPerBit>,
        /// Write energy per bit of the memory that replaces flash.
        store_write_energy: Option<PicojoulesPerBit>,
        /// Energy per bit of a flash channel; not counted if absent.
        channel_energy: Option<PicojoulesPerBit>,
    }
    derived {
        /// channels x packages x capacity of a package
        raw_capacity: Bytes = |n| n.raw_bytes().0 as f64,
        /// raw capacity x (1 - spare), in whole pages of 64 KiB
        host_capacity: Bytes = |n| n.host_bytes().0 as f64,
        /// tag bursts and data burst from idle banks + tag delay
        hit_latency: Picos = |n| n.idle_hit().0 as f64,
        /// tag bursts from an idle bank + tag delay + array read + 64 B on the channel
        miss_latency: Picos = |n| n.idle_miss().0 as f64,
    }
}

impl Nvmm {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let raw = self.nand.capacity_of(self.channels, self.packages_per_channel);
        if raw.is_none_or(|Bytes(bytes)| bytes == 0 || bytes > 1 << 50) {
            return Err(InvalidFigure::new(
                "channels",
                "the capacity of all packages must be 1 to 2^50 bytes",
            ));
        }
        if !matches!(self.segment.0, 4096 | 8192 | 16384) {
            return Err(InvalidFigure::new("segment", "must be 4, 8 or 16 KiB"));
        }
        if self.stripe == 0 || !self.planes().is_multiple_of(self.stripe) {
            return Err(InvalidFigure::new(
                "stripe",
                format!("must divide the number of planes, {}", self.planes()),
            ));
        }
        if !(64..=1 << 14).contains(&self.stripe.saturating_mul(self.nand.pages_per_block)) {
            return Err(InvalidFigure::new(
                "stripe",
                "stripe times nand.pages_per_block must be 64 to 16384",
            ));
        }
        if self.spare.0 >= 1.0 {
            return Err(InvalidFigure::new(
                "spare",
                "must be less than 1, or no capacity is left for the host",
            ));
        }
        if !(1..=256).contains(&self.ways) {
            return Err(InvalidFigure::new("ways", "must be 1 to 256"));
        }
        if self.tag.0 > 64 {
            return Err(InvalidFigure::new("tag", "must be at most 64 B"));
        }
        if !(1..=256).contains(&self.mapping_ways) || !self.mapping_entries.is_multiple_of(self.mapping_ways)
        {
            return Err(InvalidFigure::new("mapping_ways", "must be 1 to 256 and divide the entries"));
        }
        if self.mapping_entries == 0 || self.mapping_entries > 1 << 28 {
            return Err(InvalidFigure::new("mapping_entries", "must be 1 to 2^28"));
        }
        if self.write_buffer == 0 {
            return Err(InvalidFigure::new("write_buffer", "must hold at least 1 block"));
        }
        if self.store_read.is_some() != self.store_write.is_some() {
            return Err(InvalidFigure::new(
                "store_write",
                "a memory that replaces flash needs both store_read and store_write",
            ));
        }
        Ok(())
    }

    /// Number of planes of all packages.
    pub fn planes(&self) -> u64 {
        self.channels * self.packages_per_channel * self.nand.dies * self.nand.planes
    }

    /// Capacity of all packages.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.channels * self.packages_per_channel * self.nand.package_capacity().0)
    }

    /// Host-visible capacity.
    pub fn host_bytes(&self) -> Bytes {
        let pages = (self.raw_bytes().0 / 65_536) as f64 * (1.0 - self.spare.0);
        Bytes(pages.floor() as u64 * 65_536)
    }

    /// True if the memory behind the cache is flash, which needs an erase before it is written again.
    pub fn is_flash(&self) -> bool {
        self.store_read.is_none()
    }

    /// The package with the page size set to a segment and the same capacity. Its times are the flash's,
    /// or those of the memory that replaces flash.
    pub fn package(&self) -> Nand {
        let mut nand = self.nand.clone();
        let spare = |bytes: Bytes| Bytes(bytes.0 * self.segment.0 / nand.page.0);
        (nand.spare, nand.spare_on_bus) = (spare(nand.spare), spare(nand.spare_on_bus));
        nand.blocks_per_plane = (nand.blocks_per_plane * nand.page.0 / self.segment.0).max(1);
        nand.page = self.segment;
        if let (Some(read), Some(write)) = (self.store_read, self.store_write) {
            (nand.read, nand.program, nand.erase) = (read, write, Picos(0));
        }
        nand
    }

    /// Number of bursts for the tags of a set.
    pub fn tag_bursts(&self) -> u64 {
        (self.ways * self.tag.0).div_ceil(self.dram.burst_bytes().0.max(1))
    }

    /// Latency of reading and comparing the tags on an idle memory.
    pub fn idle_tags(&self) -> Picos {
        let bursts = self.tag_bursts();
        if bursts == 0 {
            return self.tag_delay;
        }
        // Consecutive bursts use different channels.
        let rounds = bursts.div_ceil(self.dram.channels);
        self.tag_delay + self.idle_burst() + self.dram.burst_span().max(self.dram.t_ccd).times(rounds - 1)
    }

    /// Latency of one burst on an idle memory.
    fn idle_burst(&self) -> Picos {
        match self.dram.flat_read {
            Some(flat) => flat.max(self.dram.burst_span()),
            None => self.dram.access(RowState::Closed, false),
        }
    }

    /// Latency of a cache hit on a line, on an idle memory.
    pub fn idle_hit(&self) -> Picos {
        self.idle_tags() + self.idle_burst()
    }

    /// Latency of a cache miss on a line, on an idle memory and with a hit in the mapping cache, until
    /// the channel has transferred the line.
    pub fn idle_miss(&self) -> Picos {
        let nand = self.package();
        self.idle_tags()
            + nand.command_time(NandOp::Read, 1)
            + nand.array_time(NandOp::Read)
            + nand.read_setup.unwrap_or_default()
            + nand.transfer(Bytes(64))
    }
}
