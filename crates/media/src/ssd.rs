//! Configuration of a solid-state drive: packages on channels, a host link, and the policies of the
//! controller. The simulator implements the drive.

use deepram_core::units::{Bytes, Picos};

use crate::link::Link;
use crate::model::{InvalidFigure, kind, words};
use crate::nand::{Nand, NandOp};
use crate::value::{Bandwidth, Fraction, TransferRate};

words! {
    /// Victim policy of reclamation.
    VictimChoice {
        /// The block with the fewest live pages.
        Greedy = "greedy",
        /// The block with the fewest live pages among a few random ones.
        GreedyOfRandom = "greedy-of-random",
        /// The block with the best ratio of freed space times age to moved pages.
        CostBenefit = "cost-benefit",
        /// The block with the longest version chains (NVMM).
        LongestChain = "longest-chain",
    }
}

words! {
    /// Timing of reclamation.
    ReclaimTiming {
        /// During the write that found too little free space.
        Foreground = "foreground",
        /// Concurrently with host requests.
        Background = "background",
    }
}

words! {
    /// Allocation order of consecutive logical pages, the first letter varying fastest: channel, way
    /// (package), die, plane.
    AllocationOrder {
        /// Channel, way, die, plane.
        Cwdp = "cwdp",
        /// Channel, way, plane, die.
        Cwpd = "cwpd",
        /// Channel, die, way, plane.
        Cdwp = "cdwp",
        /// Channel, plane, way, die.
        Cpwd = "cpwd",
        /// Way, channel, die, plane.
        Wcdp = "wcdp",
        /// Plane, channel, way, die.
        Pcwd = "pcwd",
    }
}

words! {
    /// Allocation pool: the part of the drive from which a logical page may take its physical page.
    AllocationPool {
        /// A package (an element).
        Package = "package",
        /// A plane.
        Plane = "plane",
        /// The whole device.
        Device = "device",
    }
}

kind! {
    /// One solid-state drive.
    Ssd = "ssd";
    parts {
        /// The packages.
        nand: Nand,
        /// The link to the host.
        link: Link,
    }
    fields {
        /// Channels, each a bus of its own.
        channels: u64,
        /// Packages of a channel.
        packages_per_channel: u64,
        /// Parallel operations of a package; its number of dies if not stated.
        parallel_units: Option<u64>,
        /// Share of the raw capacity that is not visible to the host.
        over_provisioning: Fraction,
        /// Share of free space below which reclamation starts.
        reclaim_below: Fraction,
        /// Share of free space below which host writes wait for reclamation.
        reclaim_hard_below: Option<Fraction>,
        /// Victim policy of reclamation.
        victim: VictimChoice,
        /// Timing of reclamation.
        reclaim: ReclaimTiming,
        /// Whether live pages move inside a package without a bus transfer.
        copy_back: bool,
        /// Whether static wear levelling moves cold blocks.
        static_wear_levelling: bool,
        /// Difference of erase counts at which static wear levelling starts.
        wear_delta: Option<u64>,
        /// Allocation order of logical pages.
        spread: AllocationOrder,
        /// Consecutive logical pages before the allocation order advances.
        stride: u64,
        /// Part of the drive to which a logical page may be written.
        allocation_pool: AllocationPool,
        /// Size of a summary in the last page of each block, written when the block is full; absent if
        /// all pages hold data.
        block_summary: Option<Bytes>,
        /// Queue depth: requests that the device accepts from the host at once.
        queue: u64,
        /// Requests that the host interface fetches ahead.
        fetch: Option<u64>,
        /// Whether writes complete in the data cache.
        write_cache: bool,
        /// Size of the data cache; 0 for none.
        data_cache: Bytes,
        /// Pages that the data cache may destage to a plane at once; 1 if absent (MQSim's back pressure).
        destage: Option<u64>,
        /// Size of a row of the data cache's DRAM.
        cache_row: Option<Bytes>,
        /// Transfer rate of the data cache's DRAM.
        cache_rate: Option<TransferRate>,
        /// Size of a burst of the data cache's DRAM.
        cache_burst: Option<Bytes>,
        /// Activate to column command of the data cache's DRAM.
        cache_t_rcd: Option<Picos>,
        /// Column command to data of the data cache's DRAM.
        cache_t_cl: Option<Picos>,
        /// Precharge to activate of the data cache's DRAM.
        cache_t_rp: Option<Picos>,
        /// Whether the whole L2P map is in memory.
        mapping_in_memory: bool,
        /// Size of the mapping cache; 0 if the whole L2P map is in memory.
        mapping_cache: Bytes,
        /// Size of an entry of the L2P map.
        mapping_entry: Bytes,
        /// Controller time of each request.
        controller: Picos,
    }
    derived {
        /// channels x packages x capacity of a package
        raw_capacity: Bytes = |s| s.raw_bytes().0 as f64,
        /// data pages of all blocks x (1 - over-provisioning), in whole pages
        host_capacity: Bytes = |s| s.host_bytes().0 as f64,
        /// channels x bus bandwidth
        bus_bandwidth: Bandwidth = |s| s.channels as f64 * s.nand.bus_bandwidth().0,
        /// link transfer of a page + controller + single read
        read_latency: Picos = |s| s.idle_read().0 as f64,
        /// link transfer of a page + controller + single program
        program_latency: Picos = |s| s.idle_program().0 as f64,
    }
}

impl Ssd {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let raw = self.nand.capacity_of(self.channels, self.packages_per_channel);
        if raw.is_none_or(|Bytes(bytes)| bytes > 1 << 60) {
            return Err(InvalidFigure::new("channels", "the device would exceed 2^60 bytes"));
        }
        if self.over_provisioning.0 >= 1.0 {
            return Err(InvalidFigure::new(
                "over_provisioning",
                "must be less than 1, or no capacity is left for the host",
            ));
        }
        if self.reclaim_below.0 >= 1.0 {
            return Err(InvalidFigure::new("reclaim_below", "must be less than 1"));
        }
        if self.reclaim_hard_below.is_some_and(|hard| hard.0 > self.reclaim_below.0) {
            return Err(InvalidFigure::new("reclaim_hard_below", "must not exceed reclaim_below"));
        }
        let most = self.nand.dies.saturating_mul(self.nand.planes);
        if self.parallel_units.is_some_and(|units| units > most) {
            return Err(InvalidFigure::new(
                "parallel_units",
                format!("must be at most the number of planes of a package, {most}"),
            ));
        }
        if self.mapping_in_memory != (self.mapping_cache.0 == 0) {
            return Err(InvalidFigure::new(
                "mapping_cache",
                "must be 0 if mapping_in_memory is true, and more than 0 otherwise",
            ));
        }
        if self.mapping_entry.0 == 0 || self.mapping_entry.0 > 64 {
            return Err(InvalidFigure::new("mapping_entry", "must be 1 to 64 B"));
        }
        if self.write_cache && self.data_cache.0 == 0 {
            return Err(InvalidFigure::new("data_cache", "must not be 0 if writes complete in it"));
        }
        if self.destage.is_some_and(|pages| pages == 0 || pages > 1 << 20) {
            return Err(InvalidFigure::new("destage", "must be 1 to 2^20"));
        }
        if self.block_summary.is_some() && self.nand.pages_per_block < 2 {
            return Err(InvalidFigure::new("block_summary", "needs blocks of at least 2 pages"));
        }
        Ok(())
    }

    /// Number of packages of the device.
    pub fn packages(&self) -> u64 {
        self.channels * self.packages_per_channel
    }

    /// Number of planes of the device.
    pub fn planes(&self) -> u64 {
        self.packages() * self.nand.dies * self.nand.planes
    }

    /// Number of parallel operations of a package.
    pub fn units_per_package(&self) -> u64 {
        self.parallel_units.unwrap_or(self.nand.dies)
    }

    /// Capacity of all packages.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.packages() * self.nand.package_capacity().0)
    }

    /// Number of data pages of a block: all pages, or all but the summary page.
    pub fn data_pages_per_block(&self) -> u64 {
        self.nand.pages_per_block - u64::from(self.block_summary.is_some())
    }

    /// Host-visible capacity, in whole pages: the data pages without the over-provisioning.
    pub fn host_bytes(&self) -> Bytes {
        let blocks = self.raw_bytes().0 / self.nand.block_bytes().0;
        let pages = blocks * self.data_pages_per_block();
        let seen = (pages as f64 * (1.0 - self.over_provisioning.0)).floor() as u64;
        Bytes(seen * self.nand.page.0)
    }

    /// Size of the whole L2P map of the host-visible capacity.
    pub fn mapping_bytes(&self) -> Bytes {
        Bytes((self.host_bytes().0 / self.nand.page.0).saturating_mul(self.mapping_entry.0))
    }

    /// Latency of a one-page read on an idle device without a cache.
    pub fn idle_read(&self) -> Picos {
        self.controller + self.link.transfer(self.nand.page) + self.nand.idle_latency(NandOp::Read, 1)
    }

    /// Latency of a one-page program on an idle device without a cache.
    pub fn idle_program(&self) -> Picos {
        self.controller + self.link.transfer(self.nand.page) + self.nand.idle_latency(NandOp::Program, 1)
    }

    /// Mean latency, in picoseconds, of a one-page program on an idle device whose blocks end in a
    /// summary page: each data page of the block is charged its share of the summary page's transfer and
    /// program.
    pub fn idle_program_with_summary(&self) -> f64 {
        let plain = self.idle_program().0 as f64;
        match self.block_summary {
            None => plain,
            Some(summary) => {
                let cost = self.nand.transfer(summary) + self.nand.array_time(NandOp::Program);
                plain + cost.0 as f64 / self.data_pages_per_block() as f64
            }
        }
    }
}
