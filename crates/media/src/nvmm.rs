//! Flash main memory of the NVMM study: a DRAM cache with its tags, a mapping cache, and the channels of
//! flash behind them. This is the configuration only; the machine that runs it is in the simulator.

use deepram_core::units::{Bytes, Picos};

use crate::dram::{Dram, RowState};
use crate::model::{Fault, kind};
use crate::nand::{Nand, NandOp};
use crate::value::{Fraction, PicojoulesPerBit};

kind! {
    /// A flash main memory.
    Nvmm = "nvmm";
    parts {
        /// The memory of the cache and its tags.
        dram: Dram,
        /// One package of what is behind it. Its page is taken to be `segment` large.
        nand: Nand,
    }
    fields {
        /// Channels of flash.
        channels: u64,
        /// Packages on each channel.
        packages_per_channel: u64,
        /// What flash reads and programs at once, and the block of the DRAM cache: 4, 8 or 16 KiB.
        segment: Bytes,
        /// Planes over which consecutive slots of a block are spread, the channels first. With 1 a block is
        /// one block of one plane, as the page table of the paper has it; with more it is one of each.
        stripe: u64,
        /// Share of the raw capacity that the host does not see.
        spare: Fraction,
        /// Ways of the DRAM cache.
        ways: u64,
        /// Bytes of tag and state that DRAM holds for a block of the cache.
        tag: Bytes,
        /// Controller time of a tag comparison, beside the DRAM access that brings the tags.
        tag_delay: Picos,
        /// Page-table entries in the mapping cache.
        mapping_entries: u64,
        /// Ways of the mapping cache.
        mapping_ways: u64,
        /// Time to fetch an entry from the page table in its dedicated DRAM.
        mapping_miss: Picos,
        /// Dirty blocks evicted that the controller holds until they are programmed.
        write_buffer: u64,
        /// Read latency of a memory other than flash in flash's place: it needs no erase.
        store_read: Option<Picos>,
        /// Its write latency.
        store_write: Option<Picos>,
        /// Its energy of reading a bit.
        store_read_energy: Option<PicojoulesPerBit>,
        /// Its energy of writing a bit.
        store_write_energy: Option<PicojoulesPerBit>,
        /// Energy of moving a bit over a flash channel; not counted if absent.
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
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let raw = [self.channels, self.packages_per_channel]
            .iter()
            .try_fold(self.nand.package_capacity().0, |bytes, n| bytes.checked_mul(*n));
        if raw.is_none_or(|bytes| bytes == 0 || bytes > 1 << 50) {
            return Err(Fault::new("channels", "all packages together must have some bytes, at most 2^50"));
        }
        if !matches!(self.segment.0, 4096 | 8192 | 16384) {
            return Err(Fault::new("segment", "must be 4, 8 or 16 KiB"));
        }
        if self.stripe == 0 || !self.planes().is_multiple_of(self.stripe) {
            return Err(Fault::new("stripe", format!("must divide the {} planes there are", self.planes())));
        }
        if !(64..=1 << 14).contains(&self.stripe.saturating_mul(self.nand.pages_per_block)) {
            return Err(Fault::new("stripe", "times the pages of a block must be 64 to 16384"));
        }
        if self.spare.0 >= 1.0 {
            return Err(Fault::new("spare", "leaves the host nothing"));
        }
        if !(1..=256).contains(&self.ways) {
            return Err(Fault::new("ways", "must be 1 to 256"));
        }
        if self.tag.0 > 64 {
            return Err(Fault::new("tag", "must be at most 64 B"));
        }
        if !(1..=256).contains(&self.mapping_ways) || !self.mapping_entries.is_multiple_of(self.mapping_ways)
        {
            return Err(Fault::new("mapping_ways", "must be 1 to 256 and divide the entries"));
        }
        if self.mapping_entries == 0 || self.mapping_entries > 1 << 28 {
            return Err(Fault::new("mapping_entries", "must be 1 to 2^28"));
        }
        if self.write_buffer == 0 {
            return Err(Fault::new("write_buffer", "must hold at least 1 block"));
        }
        if self.store_read.is_some() != self.store_write.is_some() {
            return Err(Fault::new("store_write", "a memory in flash's place needs both its latencies"));
        }
        Ok(())
    }

    /// Planes of all packages.
    pub fn planes(&self) -> u64 {
        self.channels * self.packages_per_channel * self.nand.dies * self.nand.planes
    }

    /// Data bytes of all packages.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.channels * self.packages_per_channel * self.nand.package_capacity().0)
    }

    /// Bytes that the host sees.
    pub fn host_bytes(&self) -> Bytes {
        let pages = (self.raw_bytes().0 / 65_536) as f64 * (1.0 - self.spare.0);
        Bytes(pages.floor() as u64 * 65_536)
    }

    /// Whether the memory behind the cache is flash, which is erased before it is written again.
    pub fn is_flash(&self) -> bool {
        self.store_read.is_none()
    }

    /// The package with pages as large as a segment, its capacity and all of its times as they are but
    /// for what the memory in flash's place says.
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

    /// Bursts that the tags of a set take.
    pub fn tag_bursts(&self) -> u64 {
        (self.ways * self.tag.0).div_ceil(self.dram.burst_bytes().0.max(1))
    }

    /// Time of the tags on an idle memory, comparison included.
    pub fn idle_tags(&self) -> Picos {
        let bursts = self.tag_bursts();
        if bursts == 0 {
            return self.tag_delay;
        }
        // Bursts that follow each other lie in different channels.
        let rounds = bursts.div_ceil(self.dram.channels);
        self.tag_delay + self.idle_burst() + self.dram.burst_span().max(self.dram.t_ccd).times(rounds - 1)
    }

    /// Time of one burst on an idle memory.
    fn idle_burst(&self) -> Picos {
        match self.dram.flat_read {
            Some(flat) => flat.max(self.dram.burst_span()),
            None => self.dram.access(RowState::Closed, false),
        }
    }

    /// Time of a line that the cache holds, on an idle memory.
    pub fn idle_hit(&self) -> Picos {
        self.idle_tags() + self.idle_burst()
    }

    /// Time of a line that the cache does not hold, on an idle memory, its mapping cached: until the line
    /// has crossed the channel.
    pub fn idle_miss(&self) -> Picos {
        let nand = self.package();
        self.idle_tags()
            + nand.command(NandOp::Read, 1)
            + nand.array(NandOp::Read)
            + nand.read_setup.unwrap_or_default()
            + nand.transfer(Bytes(64))
    }
}
