//! What the machine counted, the laws that bind the counts, and the energy.

use deepram_media::{Bytes, bit_energy};

use super::{NvmmMemory, flag};
use crate::dram::DramCounts;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::result::counts;

counts! {
    /// What a flash main memory did. Flash operations are in [`crate::flash::FlashCounts`].
    pub struct NvmmCounts {
        /// Accesses to a block: commands, those that cross blocks counted once for each.
        pub accesses: u64,
        /// Accesses that found their block.
        pub hits: u64,
        /// Accesses that found it on its way.
        pub merged: u64,
        /// Accesses that did not find it.
        pub misses: u64,
        /// Misses that wrote all of their block, so that nothing was fetched.
        pub whole_writes: u64,
        /// Accesses that had to wait for a block, a buffer or free flash before they could even miss.
        pub stalls: u64,
        /// Reads of a set's tags.
        pub tag_reads: u64,
        /// Bursts that they took.
        pub tag_read_bursts: u64,
        /// Bursts of tags written.
        pub tag_writes: u64,
        /// Rows of DRAM opened for tags.
        pub tag_activations: u64,
        /// Bursts of blocks moved to or from DRAM.
        pub data_bursts: u64,
        /// Blocks fetched, ahead or not.
        pub fills: u64,
        /// Of these, blocks never written.
        pub unwritten: u64,
        /// Blocks put into the cache.
        pub inserted: u64,
        /// Blocks that left it for others.
        pub evictions: u64,
        /// Blocks fetched ahead of need.
        pub prefetches: u64,
        /// Of these, blocks used before they left, also while they were on their way.
        pub prefetches_used: u64,
        /// Of these, blocks that left without having been used.
        pub prefetches_wasted: u64,
        /// Blocks that would have been fetched ahead if there had been room.
        pub prefetches_dropped: u64,
        /// Clean blocks that became dirty.
        pub soiled: u64,
        /// Dirty blocks written back because they had to leave.
        pub written_evicted: u64,
        /// Dirty blocks written back with another of their page, which had to leave.
        pub written_along: u64,
        /// Dirty blocks written back while flash was idle.
        pub written_idle: u64,
        /// Dirty blocks written back by a sync.
        pub written_sync: u64,
        /// Versions of pages that write-backs made.
        pub versions: u64,
        /// Syncs that have made their cut.
        pub syncs: u64,
        /// Rollbacks.
        pub rollbacks: u64,
        /// Blocks that rollbacks threw out of the cache.
        pub rolled_back: u64,
        /// Of these, dirty ones.
        pub rolled_back_dirty: u64,
        /// Blocks of flash reclaimed, each one erased in every plane of its stripe.
        pub blocks_reclaimed: u64,
        /// Chains of versions collapsed.
        pub chains_collapsed: u64,
        /// Of the blocks, those emptied because others had worn more.
        pub wear_moves: u64,
        /// States for rollback given up for want of space.
        pub tokens_given_up: u64,
        /// States that the controller made by itself, as no sync did.
        pub own_epochs: u64,
    }
}

/// What had been counted at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Base {
    counts: NvmmCounts,
    flash: FlashCounts,
    channel_bytes: u64,
    bus_busy: Time,
}

impl NvmmMemory {
    /// What it did since measuring began.
    #[must_use]
    pub fn nvmm_counts(&self) -> NvmmCounts {
        self.counts.since(&self.base.counts)
    }

    /// All that is counted, from the first.
    pub(super) fn books(&self) -> Base {
        Base {
            counts: self.counts,
            flash: self.flash,
            channel_bytes: self.channels.bytes(),
            bus_busy: self.channels.bus_busy(),
        }
    }

    /// What its DRAM did since measuring began, entries of the page table left out.
    #[must_use]
    pub fn dram_counts(&self) -> DramCounts {
        self.dram.dram_counts()
    }

    /// The memory's preset.
    #[must_use]
    pub fn preset(&self) -> &deepram_media::Nvmm {
        &self.nvmm
    }

    /// Bytes that have crossed the flash channels since measuring began.
    #[must_use]
    pub fn channel_bytes(&self) -> u64 {
        self.channels.bytes() - self.base.channel_bytes
    }

    /// Share of `time`, since measuring began, in which a flash channel carried something, the mean over
    /// channels.
    #[must_use]
    pub fn channel_use(&self, time: Time) -> f64 {
        let all = time as f64 * self.nvmm.channels as f64;
        if all > 0.0 { (self.channels.bus_busy() - self.base.bus_busy) as f64 / all } else { 0.0 }
    }

    /// Blocks of the cache that are dirty.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty
    }

    /// Times that each block of each plane has been erased in the run, a stripe's planes together.
    pub fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.store.erases().iter().copied()
    }

    /// Blocks taken out of service.
    #[must_use]
    pub fn retired(&self) -> u64 {
        let infos = self.store.volume().blocks().infos();
        infos.iter().filter(|info| info.state == deepram_core::ftl::BlockState::Retired).count() as u64
    }

    /// Segments marked bad.
    #[must_use]
    pub fn bad_segments(&self) -> u64 {
        self.store.volume().blocks().bad_slots().count() as u64
    }

    /// Memory that the simulation's tables take, in bytes, those of the cache's blocks never used counted.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.cache.memory_bytes() + self.flags.capacity() + self.store.memory_bytes()
    }

    /// Energy since measuring began, over `time`, by component, in picojoules, dynamic and static. A memory in flash's place has
    /// the energy of its bits, or none where the preset does not give it, and no standby of its own.
    #[must_use]
    pub fn energy_pj(&self, time: Time) -> Vec<(&'static str, f64, f64)> {
        let (dram, counts) = (&self.nvmm.dram, self.nvmm_counts());
        let flash = self.flash.since(&self.base.flash);
        let all = self.dram.dram_counts();
        let burst = |write| dram.burst_energy(write).0;
        let tags = burst(false) * counts.tag_read_bursts as f64
            + burst(true) * counts.tag_writes as f64
            + dram.row_energy().0 * counts.tag_activations as f64;
        let data = burst(false) * (all.read_bursts - counts.tag_read_bursts) as f64
            + burst(true) * (all.write_bursts - counts.tag_writes) as f64
            + dram.row_energy().0 * (all.activations - counts.tag_activations) as f64;
        let standing = self.dram.energy_pj(time);
        let fixed = |name: &str| standing.iter().filter(|(n, ..)| *n == name).map(|part| part.2).sum::<f64>();
        // An entry from the page table opens a row and reads a burst.
        let mapping = (dram.row_energy().0 + burst(false)) * flash.mapping_misses as f64;
        let mut parts = vec![
            ("dram tags", tags, 0.0),
            ("dram data", data, 0.0),
            ("dram background", 0.0, fixed("dram background")),
            ("dram refresh", 0.0, fixed("dram refresh")),
            ("dram mapping", mapping, 0.0),
        ];
        let nand = self.nvmm.package();
        let segment = self.nvmm.segment.0;
        if self.nvmm.is_flash() {
            let packages = self.nvmm.channels * self.nvmm.packages_per_channel;
            parts.extend(flash.energy_pj(&nand, packages, time));
        } else {
            let bits = |cost: Option<_>, operations: u64| {
                cost.map_or(0.0, |cost| bit_energy(cost, Bytes(segment * operations)).0)
            };
            parts.push(("store read", bits(self.nvmm.store_read_energy, flash.reads()), 0.0));
            parts.push(("store write", bits(self.nvmm.store_write_energy, flash.programs()), 0.0));
        }
        if let Some(cost) = self.nvmm.channel_energy {
            parts.push(("flash io", bit_energy(cost, Bytes(self.channel_bytes())).0, 0.0));
        }
        parts
    }

    /// Checks the whole volume against itself: every chain, slot and count. Slow: it looks at all pages.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    pub fn check_store(&mut self) -> Result<(), SimError> {
        self.store.check()
    }

    pub(super) fn check_books(&self) -> Result<(), SimError> {
        let (c, f) = (&self.counts, &self.flash);
        let waiting = self.parts_waiting();
        law("every access is a hit, merged, or a miss", c.hits + c.merged + c.misses + waiting, c.accesses)?;
        law(
            "every miss but a whole write, and every prefetch, is a fill",
            c.misses - c.whole_writes + c.prefetches,
            c.fills,
        )?;
        let mapped = self.fills_unmapped();
        law(
            "every fill comes from flash, the buffer, or was never written",
            f.host_reads + f.buffer_read_hits + c.unwritten + mapped,
            c.fills,
        )?;
        law(
            "every block put in is there, evicted or rolled back",
            self.cache.len() as u64 + c.evictions + c.rolled_back,
            c.inserted,
        )?;
        law("every miss and prefetch puts a block in", c.misses + c.prefetches, c.inserted)?;
        let count =
            |bit: u8| self.cache.iter().filter(|(frame, _)| self.flags[*frame] & bit != 0).count() as u64;
        law(
            "every prefetch is used, wasted or still there",
            c.prefetches_used + c.prefetches_wasted + count(flag::AHEAD),
            c.prefetches,
        )?;
        law("dirty blocks are counted", count(flag::DIRTY), self.dirty)?;
        let written = c.written_evicted + c.written_along + c.written_idle + c.written_sync;
        law(
            "every block that became dirty was written back, rolled back, or is dirty",
            written + c.rolled_back_dirty + self.dirty,
            c.soiled,
        )?;
        law("every block written back is programmed once", f.host_programs, written)?;
        let bursts = self.dram.all_counts();
        law(
            "every burst of DRAM is of tags or of data",
            c.tag_read_bursts + c.tag_writes + c.data_bursts,
            bursts.read_bursts + bursts.write_bursts,
        )?;
        if self.commands == 0 && self.channels.is_quiet() {
            law(
                "nothing is under way when all is quiet",
                u64::from(self.works.is_empty() && self.fills.is_empty() && self.reclaims.is_empty()),
                1,
            )?;
            law(
                "nobody waits when all is quiet",
                self.stalled.len() as u64 + self.syncs.len() as u64 + waiting,
                0,
            )?;
            law(
                "the write buffer is empty when all is quiet",
                self.buffered + self.in_buffer.len() as u64,
                0,
            )?;
            law(
                "every read and program crosses a channel",
                self.channels.bytes(),
                (f.reads() + f.programs()) * self.nvmm.segment.0,
            )?;
            let stripe = u64::from(self.store.layout.stripe);
            let erases = if self.nvmm.is_flash() { c.blocks_reclaimed * stripe } else { 0 };
            law("every block reclaimed is erased in each plane", f.erases, erases)?;
        }
        self.store.check_counts()
    }

    /// Parts of commands whose tags have not been compared, or that are stalled.
    fn parts_waiting(&self) -> u64 {
        self.tagging + self.stalled.len() as u64
    }
}
