//! Whole solid-state drives: packages on channels, a host link, and the policies of the controller.
//!
//! This is the configuration only; the machine that runs it is in the simulator.

use deepram_core::units::{Bytes, Picos};

use crate::link::Link;
use crate::model::{Fault, kind, words};
use crate::nand::{Nand, NandOp};
use crate::value::{Bandwidth, Fraction, TransferRate};

words! {
    /// How the block to reclaim is chosen.
    Victim {
        /// The one with the fewest live pages.
        Greedy = "greedy",
        /// The one with the fewest live pages out of a random few.
        GreedyOfRandom = "greedy-of-random",
        /// The best ratio of space gained, times age, to pages moved.
        CostBenefit = "cost-benefit",
        /// The one that holds the longest version chains (NVMM).
        LongestChain = "longest-chain",
    }
}

words! {
    /// When reclamation runs.
    Reclaim {
        /// In the way of the write that found too little space.
        Foreground = "foreground",
        /// Beside host requests.
        Background = "background",
    }
}

words! {
    /// Order in which consecutive logical pages are spread, first letter fastest: channel, way
    /// (package), die, plane.
    Spread {
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
    /// How large the pool is from which a logical page may take its physical page.
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
        /// Packages on a channel.
        packages_per_channel: u64,
        /// Operations that a package works on at once; its dies if not stated.
        parallel_units: Option<u64>,
        /// Share of the raw capacity that the host does not see.
        over_provisioning: Fraction,
        /// Share of free space below which reclamation starts.
        reclaim_below: Fraction,
        /// Share of free space below which host writes wait for reclamation.
        reclaim_hard_below: Option<Fraction>,
        /// How the block to reclaim is chosen.
        victim: Victim,
        /// When reclamation runs.
        reclaim: Reclaim,
        /// Whether live pages move inside a package without crossing the bus.
        copy_back: bool,
        /// Whether cold blocks are moved to even the wear.
        static_wear_levelling: bool,
        /// Difference of erase counts at which static wear levelling starts.
        wear_delta: Option<u64>,
        /// Order in which logical pages are spread.
        spread: Spread,
        /// Logical pages that stay together before the next place in the spread.
        stride: u64,
        /// Where a logical page may be written.
        allocation_pool: AllocationPool,
        /// Bytes that the last page of each block holds about the others, written when the block is
        /// full; absent if all pages hold data.
        block_summary: Option<Bytes>,
        /// Requests that the device takes from the host at once.
        queue: u64,
        /// Requests that the device's host interface fetches ahead.
        fetch: Option<u64>,
        /// Whether writes complete in the data cache.
        write_cache: bool,
        /// Bytes of the data cache; 0 if there is none.
        data_cache: Bytes,
        /// Bytes of a row of the data cache's memory.
        cache_row: Option<Bytes>,
        /// Transfers a second of the data cache's memory.
        cache_rate: Option<TransferRate>,
        /// Bytes that the data cache's memory moves in a burst.
        cache_burst: Option<Bytes>,
        /// Row open to column command of the data cache's memory.
        cache_t_rcd: Option<Picos>,
        /// Column command to data of the data cache's memory.
        cache_t_cl: Option<Picos>,
        /// Row close to row open of the data cache's memory.
        cache_t_rp: Option<Picos>,
        /// Whether the whole mapping is held in memory.
        mapping_in_memory: bool,
        /// Bytes of the mapping cache; 0 if the whole mapping is in memory.
        mapping_cache: Bytes,
        /// Bytes of a mapping entry.
        mapping_entry: Bytes,
        /// Controller time of every request.
        controller: Picos,
    }
    derived {
        /// channels x packages x capacity of a package
        raw_capacity: Bytes = |s| s.raw_bytes().0 as f64,
        /// data pages of all blocks x (1 - over-provisioning), in whole pages
        host_capacity: Bytes = |s| s.host_bytes().0 as f64,
        /// channels x bus bandwidth
        bus_bandwidth: Bandwidth = |s| s.channels as f64 * s.nand.bus_bandwidth(),
        /// link transfer of a page + controller + single read
        read_latency: Picos = |s| s.idle_read().0 as f64,
        /// link transfer of a page + controller + single program
        program_latency: Picos = |s| s.idle_program().0 as f64,
    }
}

impl Ssd {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let raw = [self.channels, self.packages_per_channel]
            .iter()
            .try_fold(self.nand.package_capacity().0, |bytes, n| bytes.checked_mul(*n));
        if raw.is_none_or(|bytes| bytes > 1 << 60) {
            return Err(Fault::new("channels", "the device would exceed 2^60 bytes"));
        }
        if self.over_provisioning.0 >= 1.0 {
            return Err(Fault::new("over_provisioning", "leaves the host nothing"));
        }
        if self.reclaim_below.0 >= 1.0 {
            return Err(Fault::new("reclaim_below", "must be less than 1"));
        }
        if self.reclaim_hard_below.is_some_and(|hard| hard.0 > self.reclaim_below.0) {
            return Err(Fault::new("reclaim_hard_below", "must not exceed reclaim_below"));
        }
        let most = self.nand.dies.saturating_mul(self.nand.planes);
        if self.parallel_units.is_some_and(|units| units > most) {
            return Err(Fault::new("parallel_units", format!("a package has {most} planes and no more")));
        }
        if self.mapping_in_memory != (self.mapping_cache.0 == 0) {
            return Err(Fault::new(
                "mapping_cache",
                "must be 0 if the whole mapping is in memory, and more if it is not",
            ));
        }
        if self.mapping_entry.0 == 0 || self.mapping_entry.0 > 64 {
            return Err(Fault::new("mapping_entry", "must be 1 to 64 B"));
        }
        if self.write_cache && self.data_cache.0 == 0 {
            return Err(Fault::new("data_cache", "must not be 0 if writes complete in it"));
        }
        if self.block_summary.is_some() && self.nand.pages_per_block < 2 {
            return Err(Fault::new("block_summary", "needs blocks of at least 2 pages"));
        }
        Ok(())
    }

    /// Packages of the device.
    pub fn packages(&self) -> u64 {
        self.channels * self.packages_per_channel
    }

    /// Planes of the device.
    pub fn planes(&self) -> u64 {
        self.packages() * self.nand.dies * self.nand.planes
    }

    /// Operations that a package works on at once.
    pub fn units_per_package(&self) -> u64 {
        self.parallel_units.unwrap_or(self.nand.dies)
    }

    /// Data bytes of all packages.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.packages() * self.nand.package_capacity().0)
    }

    /// Pages of a block that can hold data: all of them, or all but the summary.
    pub fn data_pages_per_block(&self) -> u64 {
        self.nand.pages_per_block - u64::from(self.block_summary.is_some())
    }

    /// Bytes that the host sees, in whole pages: the data pages less the over-provisioning.
    pub fn host_bytes(&self) -> Bytes {
        let blocks = self.raw_bytes().0 / self.nand.block_bytes().0;
        let pages = blocks * self.data_pages_per_block();
        let seen = (pages as f64 * (1.0 - self.over_provisioning.0)).floor() as u64;
        Bytes(seen * self.nand.page.0)
    }

    /// Bytes of the whole mapping table of what the host sees.
    pub fn mapping_bytes(&self) -> Bytes {
        Bytes((self.host_bytes().0 / self.nand.page.0).saturating_mul(self.mapping_entry.0))
    }

    /// Time of a one-page read on an idle device without a cache.
    pub fn idle_read(&self) -> Picos {
        self.controller + self.link.transfer(self.nand.page) + self.nand.single(NandOp::Read, 1)
    }

    /// Time of a one-page program on an idle device without a cache.
    pub fn idle_program(&self) -> Picos {
        self.controller + self.link.transfer(self.nand.page) + self.nand.single(NandOp::Program, 1)
    }

    /// Mean time of a one-page program into an idle device whose blocks end in a summary page: each of
    /// the block's data pages bears its share of that page's transfer and program.
    pub fn idle_program_with_summary(&self) -> f64 {
        let plain = self.idle_program().0 as f64;
        match self.block_summary {
            None => plain,
            Some(summary) => {
                let cost = self.nand.transfer(summary) + self.nand.array(NandOp::Program);
                plain + cost.0 as f64 / self.data_pages_per_block() as f64
            }
        }
    }
}
