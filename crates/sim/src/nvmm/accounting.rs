//! The memory's counters, the conservation laws that bind them, and the energy.

use deepram_core::units::Picos;
use deepram_media::{Bytes, bit_energy};

use super::{NvmmMemory, flag};
use crate::dram::DramCounts;
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::result::counts;

counts! {
    /// Counters of a flash main memory. Flash operations are in [`crate::flash::FlashCounts`].
    pub struct NvmmCounts {
        /// Accesses to blocks: commands, counted once for each block that they touch.
        pub accesses: u64,
        /// Accesses that hit in the cache.
        pub hits: u64,
        /// Accesses to a block whose fill was under way.
        pub merged: u64,
        /// Accesses that missed.
        pub misses: u64,
        /// Misses that wrote their whole block, so nothing was fetched.
        pub whole_writes: u64,
        /// Accesses that waited for a cache frame, a write-buffer entry or free flash before their miss
        /// could be handled.
        pub stalls: u64,
        /// Reads of a set's tags.
        pub tag_reads: u64,
        /// Bursts of tag reads.
        pub tag_read_bursts: u64,
        /// Bursts of tag writes.
        pub tag_writes: u64,
        /// DRAM rows opened for tags.
        pub tag_activations: u64,
        /// Bursts of block data read or written.
        pub data_bursts: u64,
        /// Blocks fetched, for a miss or a prefetch.
        pub fills: u64,
        /// Fetched blocks that had never been written.
        pub unwritten: u64,
        /// Blocks inserted into the cache.
        pub inserted: u64,
        /// Blocks evicted from the cache.
        pub evictions: u64,
        /// Blocks prefetched.
        pub prefetches: u64,
        /// Prefetched blocks that were used, also while their fill was under way.
        pub prefetches_used: u64,
        /// Prefetched blocks that were evicted unused.
        pub prefetches_wasted: u64,
        /// Prefetches dropped for want of a cache frame.
        pub prefetches_dropped: u64,
        /// Clean blocks that became dirty.
        pub dirtied: u64,
        /// Dirty blocks written back at their eviction.
        pub written_evicted: u64,
        /// Dirty blocks written back with an evicted block of the same page.
        pub written_with_evicted: u64,
        /// Dirty blocks written back early, while flash was idle.
        pub written_idle: u64,
        /// Dirty blocks written back by a sync.
        pub written_sync: u64,
        /// Page versions created by write-backs.
        pub versions: u64,
        /// Syncs that have closed their epoch.
        pub syncs: u64,
        /// Rollbacks.
        pub rollbacks: u64,
        /// Blocks that rollbacks discarded from the cache.
        pub rolled_back: u64,
        /// Dirty blocks that rollbacks discarded.
        pub rolled_back_dirty: u64,
        /// Flash blocks reclaimed; each is erased in every plane of its stripe.
        pub blocks_reclaimed: u64,
        /// Version chains collapsed.
        pub chains_collapsed: u64,
        /// Blocks emptied by wear levelling.
        pub wear_moves: u64,
        /// Tokens dropped for want of space.
        pub tokens_dropped: u64,
        /// Epochs that the controller closed by itself, before the first sync.
        pub automatic_epochs: u64,
    }
}

/// All counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Baseline {
    counts: NvmmCounts,
    flash: FlashCounts,
    channel_bytes: u64,
    bus_busy: Time,
}

impl NvmmMemory {
    /// The counts since measuring began.
    #[must_use]
    pub fn nvmm_counts(&self) -> NvmmCounts {
        self.counts.since(&self.base.counts)
    }

    /// All counters since the start of the run.
    pub(super) fn totals(&self) -> Baseline {
        Baseline {
            counts: self.counts,
            flash: self.flash,
            channel_bytes: self.channels.bytes(),
            bus_busy: self.channels.bus_busy(),
        }
    }

    /// DRAM operations since measuring began, without reads of page-table entries.
    #[must_use]
    pub fn dram_counts(&self) -> DramCounts {
        self.dram.dram_counts()
    }

    /// The preset.
    #[must_use]
    pub fn preset(&self) -> &deepram_media::Nvmm {
        &self.nvmm
    }

    /// Bytes that have crossed the flash channels since measuring began.
    #[must_use]
    pub fn channel_bytes(&self) -> u64 {
        self.channels.bytes() - self.base.channel_bytes
    }

    /// Utilisation of the flash channels since measuring began: the share of `time` in which a channel
    /// was busy, averaged over the channels.
    #[must_use]
    pub fn channel_use(&self, time: Picos) -> f64 {
        let all = time.0 as f64 * self.nvmm.channels as f64;
        if all > 0.0 { (self.channels.bus_busy() - self.base.bus_busy) as f64 / all } else { 0.0 }
    }

    /// Dirty blocks in the cache.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty
    }

    /// Erases of each block in the run; the planes of a stripe count once.
    pub fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.flash_volume.erases().iter().copied()
    }

    /// Retired blocks.
    #[must_use]
    pub fn retired(&self) -> u64 {
        let infos = self.flash_volume.volume().blocks().infos();
        infos.iter().filter(|info| info.state == deepram_core::ftl::BlockState::Retired).count() as u64
    }

    /// Segments marked bad.
    #[must_use]
    pub fn bad_segments(&self) -> u64 {
        self.flash_volume.volume().blocks().bad_slots().count() as u64
    }

    /// Host memory of the simulation's tables, in bytes, including entries of cache blocks never used.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.cache.memory_bytes() + self.flags.capacity() + self.flash_volume.memory_bytes()
    }

    /// Energy since measuring began, over `time`, by component, in picojoules, dynamic and static. A
    /// memory in place of flash has the energy of its bits, or none where the preset does not give it,
    /// and no standby energy.
    #[must_use]
    pub fn energy_pj(&self, time: Picos) -> Vec<(&'static str, f64, f64)> {
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
        // A page-table entry opens a row and reads a burst.
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

    /// Checks the consistency of the whole volume: every chain, slot and count. Slow: visits all pages.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    pub fn check_store(&mut self) -> Result<(), SimError> {
        self.flash_volume.check()
    }

    pub(super) fn check_accounting(&self) -> Result<(), SimError> {
        let (c, f) = (&self.counts, &self.flash);
        let waiting = self.parts_waiting();
        law(
            "every access is a hit, a merge with a fill, or a miss",
            c.hits + c.merged + c.misses + waiting,
            c.accesses,
        )?;
        law(
            "every miss except whole-block writes, and every prefetch, is a fill",
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
            "every inserted block is cached, evicted or rolled back",
            self.cache.len() as u64 + c.evictions + c.rolled_back,
            c.inserted + self.prefilled,
        )?;
        law("every miss and prefetch inserts a block", c.misses + c.prefetches, c.inserted)?;
        let count =
            |bit: u8| self.cache.iter().filter(|(frame, _)| self.flags[*frame] & bit != 0).count() as u64;
        law(
            "every prefetched block is used, wasted or still cached",
            c.prefetches_used + c.prefetches_wasted + count(flag::AHEAD),
            c.prefetches,
        )?;
        law("the dirty count is that of the dirty blocks", count(flag::DIRTY), self.dirty)?;
        let written = c.written_evicted + c.written_with_evicted + c.written_idle + c.written_sync;
        law(
            "every block that became dirty was written back, rolled back, or is dirty",
            written + c.rolled_back_dirty + self.dirty,
            c.dirtied,
        )?;
        law("every block written back is programmed once", f.host_programs, written)?;
        let bursts = self.dram.all_counts();
        law(
            "every DRAM burst carries tags or data",
            c.tag_read_bursts + c.tag_writes + c.data_bursts,
            bursts.read_bursts + bursts.write_bursts,
        )?;
        if self.commands == 0 && self.channels.is_quiet() {
            law(
                "no operation is under way in a quiet memory",
                u64::from(self.operations.is_empty() && self.fills.is_empty() && self.reclaims.is_empty()),
                1,
            )?;
            law(
                "no access waits in a quiet memory",
                self.stalled.len() as u64 + self.syncs.len() as u64 + waiting,
                0,
            )?;
            law(
                "the write buffer is empty in a quiet memory",
                self.buffered + self.in_buffer.len() as u64,
                0,
            )?;
            law(
                "every read and program crosses a channel",
                self.channels.bytes(),
                (f.reads() + f.programs()) * self.nvmm.segment.0,
            )?;
            let stripe = u64::from(self.flash_volume.layout.stripe);
            let erases = if self.nvmm.is_flash() { c.blocks_reclaimed * stripe } else { 0 };
            law("every block reclaimed is erased in each plane", f.erases, erases)?;
        }
        self.flash_volume.check_counts()
    }

    /// Command parts whose tag comparison is under way or that are stalled.
    fn parts_waiting(&self) -> u64 {
        self.tagging + self.stalled.len() as u64
    }
}
