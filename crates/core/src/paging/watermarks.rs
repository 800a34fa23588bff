//! How many frames are kept free ahead of need, how many pages leave together, and when dirty ones are written.
//!
//! Both pagers keep a **headroom** of free frames, so that a fault finds one without waiting. They differ in how a dirty
//! page leaves. In the pager of `deepram run` the evictor writes the dirty pages among its victims, many at a time
//! ([`SwapWatermarks`], ADR 16 and 20). In the pool, where a write is a write to the journal, the evictor drops clean
//! segments only, and another thread makes dirty ones clean, many more at a time ([`PoolWatermarks`], ADR 19).

/// Watermarks of the pager of `deepram run`, over a swap file, with this many frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwapWatermarks {
    /// Number of frames that the process may use.
    pub frames: usize,
}

impl SwapWatermarks {
    /// Threads that evict: one writes while the other chooses victims.
    pub const EVICTORS: usize = 2;
    /// Largest number of pages that are evicted together, and written together if dirty. More would make longer writes,
    /// behind which reads wait.
    pub const BATCH: usize = 64;
    /// Pages that are protected and copied together; a thread that needs one of them waits for all.
    pub const PROTECTED_TOGETHER: usize = 32;
    /// Pages that stay in memory although other memory takes all of the budget: one instruction in each thread may need several
    /// pages at once, and would never complete if each page that arrives evicted another.
    pub const LEAST_PAGED: usize = 64;

    /// Number of frames that are to be freed so that `more` are free, where `used` are in use and `paged` of these hold a page.
    /// [`SwapWatermarks::LEAST_PAGED`] pages stay.
    #[must_use]
    pub fn excess(self, used: usize, paged: usize, more: usize) -> usize {
        (used + more).saturating_sub(self.frames).min(paged.saturating_sub(Self::LEAST_PAGED))
    }

    /// Frames that are kept free ahead of need.
    #[must_use]
    pub fn headroom(self) -> usize {
        (self.frames / 64).clamp(64, 2048)
    }

    /// Number of pages that an evictor evicts together: a whole batch, although one page would do for now, since each round
    /// costs wake-ups and a write.
    #[must_use]
    pub fn batch(self) -> usize {
        Self::BATCH.min(self.frames / 16).max(1)
    }

    /// Free frames with which an evictor lets the threads on its processor run between two batches; with fewer, it goes on.
    #[must_use]
    pub fn enough_to_yield(self) -> usize {
        self.headroom() / 2
    }

    /// Number of pages that a fault evicts at once that lacks `missing` frames, because the evictors were not fast enough.
    #[must_use]
    pub fn batch_of_fault(missing: usize) -> usize {
        missing.min(Self::BATCH)
    }
}

/// Watermarks of the pool's DRAM cache with this many frames, each of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolWatermarks {
    /// Number of frames that the budget leaves besides tables and the handlers' buffers.
    pub frames: usize,
}

impl PoolWatermarks {
    /// The fewest frames with which filling, write-back and staging can make progress at the same time.
    pub const LEAST_FRAMES: usize = 256;
    /// Largest number of segments in one background write-back: a few large writes.
    pub const WRITE_BACK: usize = 2048;
    /// Bytes of a write, at most: large enough for the full sequential rate of any device.
    pub const WRITE_BYTES: usize = 1 << 20;
    /// Writes in flight at once.
    pub const WRITES_IN_FLIGHT: usize = 4;
    /// Largest number of segments dropped under one hold of the lock.
    pub const DROPPED_TOGETHER: usize = 32;
    /// Segments that the evictor drops after each notification. A wake-up for each segment would cost more, and a longer
    /// burst would take the processor from faulting threads.
    const BURST: usize = 256;
    /// Fewest segments that a fault drops if no frame is free: the evictor is behind.
    const DROPPED_BY_FAULT: usize = 4;
    /// Room, in segments, by which the tables may grow.
    pub const GROWTH: usize = 32;
    /// Largest number of staged copies of frozen segments, as a part of the frames.
    const STAGING_SHARE: usize = 16;
    /// Part of the frames that may be pinned; page faults need the others.
    const PINNED_SHARE: usize = 2;

    /// The watermarks where the budget has room for `segments` segments besides its tables, which may grow before the number of
    /// frames is determined again.
    #[must_use]
    pub fn of_room(segments: usize) -> Self {
        Self { frames: segments.saturating_sub(Self::GROWTH) }
    }

    /// Frames that the evictor keeps free ahead of need.
    #[must_use]
    pub fn headroom(self) -> usize {
        (self.frames / 64).clamp(16, 2048)
    }

    /// Number of segments that leave so that `more` frames are free, where `used` are in use.
    #[must_use]
    pub fn missing(self, used: usize, more: usize) -> usize {
        (used + more).saturating_sub(self.frames)
    }

    /// Number of segments that the evictor drops next.
    #[must_use]
    pub fn evictor_drops(self, used: usize) -> usize {
        self.missing(used, self.headroom()).min(Self::DROPPED_TOGETHER)
    }

    /// Number of segments that a fault drops that needs `more` frames; 0 if they are free.
    #[must_use]
    pub fn fault_drops(self, used: usize, more: usize) -> usize {
        match self.missing(used, more) {
            0 => 0,
            missing => missing.clamp(Self::DROPPED_BY_FAULT, Self::DROPPED_TOGETHER),
        }
    }

    /// Whether the evictor may find a segment to drop: the policy would search all segments in vain. `kept` are the segments
    /// that are dirty, being written, being filled or pinned; one that is dirty and being written counts twice, but will be
    /// clean soon.
    #[must_use]
    pub fn may_drop(used_by_segments: usize, kept: usize) -> bool {
        used_by_segments > kept
    }

    /// Whether a fill that has taken a frame notifies the evictor. Not each fill does, since each wake-up has a cost.
    #[must_use]
    pub fn wakes_evictor(self, used: usize) -> bool {
        let burst = Self::BURST.min(self.headroom() / 2);
        self.missing(used, self.headroom()) > burst
    }

    /// Number of dirty segments above which write-back starts on its own. The other half of the frames is clean and can be
    /// dropped while the dirty ones are written.
    #[must_use]
    pub fn dirty_limit(self) -> usize {
        self.frames / 2
    }

    /// Whether dirty segments are to be written in the background; `starved`: frames are needed, and the evictor finds no
    /// clean segment.
    #[must_use]
    pub fn needs_write_back(self, dirty: usize, starved: bool) -> bool {
        dirty > 0 && (starved || dirty > self.dirty_limit())
    }

    /// Largest number of staged copies: a sync's contents of segments that a thread has stored to meanwhile.
    #[must_use]
    pub fn staged_copies(self) -> usize {
        self.frames / Self::STAGING_SHARE
    }

    /// Largest number of pinned segments.
    #[must_use]
    pub fn pinned(self) -> usize {
        self.frames / Self::PINNED_SHARE
    }

    /// Largest number of segments that one hint brings in: it must not use the headroom up.
    #[must_use]
    pub fn announced(self) -> usize {
        self.frames - self.headroom()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headroom_is_a_share_of_the_frames_within_bounds() {
        let swap = [100, 64 << 8, 1 << 24].map(|frames| SwapWatermarks { frames }.headroom());
        assert_eq!(swap, [64, 256, 2048]);
        let pool = [256, 64 << 8, 1 << 24].map(|frames| PoolWatermarks { frames }.headroom());
        assert_eq!(pool, [16, 256, 2048]);
        let batch = [8, 256, 1024, 1 << 20].map(|frames| SwapWatermarks { frames }.batch());
        assert_eq!(batch, [1, 16, 64, 64]);
        let marks = SwapWatermarks { frames: 1000 };
        let excess = [(900, 900, 64), (990, 900, 64), (2000, 80, 1)];
        assert_eq!(excess.map(|(used, paged, more)| marks.excess(used, paged, more)), [0, 54, 16]);
    }

    proptest! {
        /// The evictor and the faults of a pool of clean segments, step by step: no fault waits, and the evictor restores the
        /// headroom whenever it is woken.
        #[test]
        fn the_budget_holds_and_a_woken_evictor_restores_the_headroom(
            frames in PoolWatermarks::LEAST_FRAMES..20_000,
            fills in proptest::collection::vec(1usize..600, 1..100),
        ) {
            let marks = PoolWatermarks { frames };
            let mut used = 0;
            for fills in fills {
                let mut woken = false;
                // Threads fill frames while the evictor does not run.
                for _ in 0..fills {
                    let drops = marks.fault_drops(used, 1);
                    prop_assert_eq!(drops > 0, used == frames);
                    used = used - drops + 1;
                    prop_assert!(used <= frames);
                    woken |= marks.wakes_evictor(used);
                }
                prop_assert!(woken || used + marks.headroom() / 2 <= frames, "{used} used");
                while woken && marks.evictor_drops(used) > 0 {
                    used -= marks.evictor_drops(used);
                }
                prop_assert!(!woken || used + marks.headroom() <= frames);
            }
        }

        #[test]
        fn write_back_starts_above_half_of_the_frames_or_when_the_evictor_starves(frames in 256usize..1 << 20, dirty in 0usize..1 << 20) {
            let marks = PoolWatermarks { frames };
            prop_assert_eq!(marks.needs_write_back(dirty, false), 2 * dirty > frames + 1 || dirty == frames / 2 + 1);
            prop_assert_eq!(marks.needs_write_back(dirty, true), dirty > 0);
        }
    }
}
