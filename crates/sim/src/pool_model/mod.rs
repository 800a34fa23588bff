//! A model of this project's pool on a measured device: its cache policy, its fault path and its
//! write-back, over a [`MeasuredFile`] preset. Its predictions can be compared with the pool itself.
//!
//! ```text
//!   access --resident--------------------------------------------> hit
//!          --first store into a clean segment--> protection fault -> hit
//!          --missing--> fault --> read by the device --> install --> hit
//!                 stream of misses --> windows are read ahead --> chunks are staged, and arrive as huge pages
//!                         evictor: drops clean segments; write-back: writes dirty ones by address
//! ```
//!
//! 1. The cache decides as that of `deepram-pool`, by the same code of [`deepram_core::paging`]: which
//!    segment is dropped ([`PagerPolicy`]), how many and when ([`PoolWatermarks`]), and which dirty segments
//!    are written next ([`DirtySet`]): in the order of their addresses, in batches of large sequential
//!    writes. Which segments are read ahead is decided by [`deepram_core::paging::Streams`]; neighbours on flash are read together.
//! 2. A request takes its measured latency, many at once are completed at the measured rate, and reads wait behind the writes
//!    that were sent before them.
//! 3. Software costs are options, to be measured on the machine with `deepram bench predict`. The
//!    defaults were measured on the machine of the preset `virtual-ssd`.
//! 4. Streams move as huge pages, by the same code of core ([`deepram_core::paging::huge_pages`]): chunks of 2 MiB that arrive
//!    through stages and leave whole. The first store to one divides it, which takes no time here.
//! 5. An access of several segments touches them one after another, as a program would. The DRAM of a
//!    pool's tables is not part of the budget. Syncs and reclamation are not simulated.

mod huge_pages;
mod options;
mod readahead;
mod write_back;

use deepram_core::units::{Bytes, Picos};
use std::collections::VecDeque;

use deepram_core::cache::Replacement;
use deepram_core::paging::huge_pages::CHUNK_BYTES;
use deepram_core::paging::readahead::max_window;
use deepram_core::paging::segment_state::{SegmentFault, SegmentState};
use deepram_core::paging::{DirtySet, PAGE, PagerPolicy, PoolWatermarks};
use deepram_media::MeasuredFile;
use serde::Serialize;

use self::readahead::{Readahead, Run};
use self::write_back::WriteBack;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::host::{Command, Context, Device, Slot};
use crate::measured_device::MeasuredDevice;
use crate::memory_accesses::{MemoryAccess, MemoryAccesses};
use crate::slab::Slab;
use crate::staging::Staging;

pub(crate) use options::POOL_KEYS;
pub use options::{PoolBacking, PoolModelOptions};

/// The fewest frames of a simulated pool. A real one, whose frames also hold staged copies, needs more.
const LEAST_FRAMES: usize = 64;

/// Counters of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PoolModelCounts {
    /// Accesses, counted once for each segment.
    pub accesses: u64,
    /// Faults on missing segments.
    pub missing: u64,
    /// Protection faults: first stores into clean segments.
    pub first_stores: u64,
    /// Segments evicted.
    pub evictions: u64,
    /// Segments written back.
    pub written: u64,
    /// Faults that waited for a free frame.
    pub frame_waits: u64,
    /// Segments read ahead.
    pub readahead_segments: u64,
    /// Readahead windows.
    pub readahead_windows: u64,
    /// Reads from the device.
    pub reads: u64,
    /// Huge pages moved into memory.
    pub huge_pages: u64,
}

/// An event of the model.
#[derive(Debug, Clone, Copy)]
pub enum PoolModelEvent {
    /// The access to the current segment is complete.
    Done(Slot),
    /// The device has read the segment of a fault.
    Read(u32),
    /// A run that was read ahead is installed.
    ReadAhead(u32),
    /// Software has prepared the next write of a write-back batch.
    WritePrepared,
    /// The oldest write in flight is complete.
    Written,
    /// The chunk of this stage has arrived.
    Staged(u32),
    /// An access that has waited for a chunk begins again.
    Retry(Slot),
}

/// A simulated pool.
pub struct PoolModel {
    options: PoolModelOptions,
    watermarks: PoolWatermarks,
    policy: Box<dyn Replacement<u32> + Send>,
    segments: Vec<SegmentState>,
    /// Frames in use: resident segments and those being loaded.
    resident: usize,
    /// Part of `resident`: segments being loaded.
    filling: usize,
    dirty: DirtySet,
    /// The segment at which write-back goes on.
    write_back_cursor: u32,
    /// Frames are needed, and no clean segment is left to drop.
    starved: bool,
    write_back: WriteBack,
    device: MeasuredDevice,
    readahead: Readahead,
    /// Runs that are being read ahead.
    runs: Slab<Run>,
    /// Accesses that wait for a segment being loaded: segment, slot, whether it is a store.
    loading: Vec<(u32, Slot, bool)>,
    /// Accesses that wait for a frame.
    waiting: VecDeque<Slot>,
    staging: Staging,
    /// Part of the faults on missing segments: those on staged ones, which arrive with their chunk.
    staged_faults: u64,
    /// Segments that were read into stages and have not been moved into memory.
    not_installed: u64,
    accesses: MemoryAccesses,
    counts: PoolModelCounts,
    /// The counts when measuring began.
    base: PoolModelCounts,
}

impl PoolModel {
    /// Builds a pool with an empty DRAM cache.
    ///
    /// # Errors
    /// Fewer than 64 frames, or a segment size that is not a power of two.
    pub fn new(file: &MeasuredFile, options: &PoolModelOptions) -> Result<Self, SimError> {
        let mut options = options.clone();
        if !options.segment.0.is_power_of_two() || options.segment.0 > 1 << 20 {
            return Err(SimError::config("pool.segment", "must be a power of two of at most 1 MiB"));
        }
        if options.data.0 == 0 {
            options.data = file.span;
        }
        if options.dram.0 == 0 {
            options.dram = Bytes(options.data.0 / 4);
        }
        let frames = usize::try_from(options.dram.0 / options.segment.0).unwrap_or(usize::MAX);
        if frames < LEAST_FRAMES {
            let least = Bytes(LEAST_FRAMES as u64 * options.segment.0);
            return Err(SimError::config(
                "dram",
                format!("{} is too little: use at least {least}", options.dram),
            ));
        }
        let segments = options.data.0.div_ceil(options.segment.0);
        if segments == 0 || segments > u64::from(u32::MAX) {
            return Err(SimError::config("pool.data", "must be 1 to 2^32 - 1 segments"));
        }
        let most_frames = frames.min(segments as usize);
        options.budget = options.budget.max(options.dram);
        let budget = usize::try_from(options.budget.0 / options.segment.0).unwrap_or(usize::MAX);
        let longest = max_window(budget.min(segments as usize));
        Ok(Self {
            policy: PagerPolicy::default().build(most_frames),
            segments: vec![SegmentState::ABSENT; segments as usize],
            resident: 0,
            filling: 0,
            dirty: DirtySet::new(segments as usize),
            write_back_cursor: 0,
            starved: false,
            write_back: WriteBack::default(),
            device: MeasuredDevice::new(file),
            readahead: Readahead::new(&options, longest, segments as usize),
            runs: Slab::new(),
            loading: Vec::new(),
            waiting: VecDeque::new(),
            staging: Staging::new(
                usize::try_from(options.budget.0 / PAGE as u64).unwrap_or(usize::MAX),
                usize::try_from(options.data.0 / CHUNK_BYTES as u64).unwrap_or(0),
                options.handlers,
                options.huge_pages,
            ),
            staged_faults: 0,
            not_installed: 0,
            accesses: MemoryAccesses::new(options.segment.0),
            counts: PoolModelCounts::default(),
            base: PoolModelCounts::default(),
            watermarks: PoolWatermarks { frames },
            options,
        })
    }

    /// The counts since measuring began.
    #[must_use]
    pub fn pool_counts(&self) -> PoolModelCounts {
        let (all, base) = (self.counts, self.base);
        PoolModelCounts {
            accesses: all.accesses - base.accesses,
            missing: all.missing - base.missing,
            first_stores: all.first_stores - base.first_stores,
            evictions: all.evictions - base.evictions,
            written: all.written - base.written,
            frame_waits: all.frame_waits - base.frame_waits,
            readahead_segments: all.readahead_segments - base.readahead_segments,
            readahead_windows: all.readahead_windows - base.readahead_windows,
            reads: all.reads - base.reads,
            huge_pages: all.huge_pages - base.huge_pages,
        }
    }

    fn access(&mut self, slot: Slot, context: &mut Context<PoolModelEvent>) {
        let MemoryAccess { write, at, .. } = self.accesses.get(slot);
        let segment = (at / self.options.segment.0) as u32;
        let state = self.segments[segment as usize];
        match state.fault() {
            SegmentFault::Dropped => return self.loading.push((segment, slot, write)),
            SegmentFault::Fill if self.fault_on_staged(segment, write, slot, context) => return,
            SegmentFault::Fill => return self.load(segment, slot, write, context),
            SegmentFault::Resident => {}
        }
        let mut time = self.options.hit.0;
        if write && !state.is_open_for_stores() {
            self.counts.first_stores += 1;
            time += self.options.protect.0;
            self.make_dirty(segment);
            self.policy.touch(segment);
            self.run_write_back(context);
        }
        context.schedule(Picos(context.now().0 + time), PoolModelEvent::Done(slot));
    }

    fn make_dirty(&mut self, segment: u32) {
        self.split(segment);
        self.segments[segment as usize].make_dirty();
        self.dirty.insert(segment);
    }

    /// Whether a frame is free, after dropping clean segments if necessary.
    fn make_room(&mut self, now: Picos) -> bool {
        loop {
            let drops = self.watermarks.fault_drops(self.used(), 1);
            if drops > 0 && self.evict(drops, None) == 0 && !self.shed(now) {
                return false;
            }
            if drops == 0 {
                return true;
            }
        }
    }

    /// Lets the accesses that wait for a segment that does not arrive begin again.
    fn repeat_accesses(&mut self, segment: u32, context: &mut Context<PoolModelEvent>) {
        let waiting = self.loading.extract_if(.., |(of, ..)| *of == segment).collect::<Vec<_>>();
        waiting.into_iter().for_each(|(_, slot, _)| self.access(slot, context));
    }

    fn load(&mut self, segment: u32, slot: Slot, write: bool, context: &mut Context<PoolModelEvent>) {
        if !self.make_room(context.now()) {
            self.counts.frame_waits += 1;
            self.waiting.push_back(slot);
            self.run_evictor(context);
            return;
        }
        self.counts.missing += 1;
        self.begin_fill(segment);
        self.loading.push((segment, slot, write));
        let is_trigger = self.readahead.take_trigger(segment);
        let block = self.track_miss(segment, is_trigger, context.now());
        // Half of the software time passes before the device's, half after it; only their sum is measured. A trigger's
        // bytes are in DRAM.
        let sent = context.now().0 + self.options.fault.0 / 2;
        let read = if is_trigger {
            sent
        } else {
            self.counts.reads += 1;
            self.device.request(sent, false, self.options.segment.0)
        };
        context.schedule(Picos(read + self.options.fault.0.div_ceil(2)), PoolModelEvent::Read(segment));
        if block.len() > 1 {
            self.fault_around(block, segment, context.now());
        }
        if self.watermarks.wakes_evictor(self.used()) {
            self.run_evictor(context);
        }
        self.read_ahead(context);
    }

    fn begin_fill(&mut self, segment: u32) {
        self.resident += 1;
        self.filling += 1;
        self.segments[segment as usize].begin_fill();
        self.check_budget();
    }

    fn check_budget(&self) {
        debug_assert!(self.used() <= self.watermarks.frames, "{} frames are in use", self.used());
    }

    /// Frames in use: those of segments, those of triggers, which are kept apart, and those of stages.
    fn used(&self) -> usize {
        self.resident + self.readahead.triggers() + self.staging.pages() * self.chunk_segments()
    }

    /// Evicts about `n` clean segments, a huge page as a whole; through the stage `spare` if given, whose page it then becomes.
    /// Returns the number evicted.
    fn evict(&mut self, n: usize, spare: Option<usize>) -> usize {
        let kept = self.dirty.len() + self.write_back.len() + self.filling;
        if !PoolWatermarks::may_drop(self.resident, kept) {
            return 0;
        }
        let mut dropped = 0;
        while dropped < n {
            let segments = &self.segments;
            let mut eligible = |key: u32| segments[key as usize].may_drop();
            let Some(segment) = self.policy.victim(&mut eligible) else { break };
            let (count, huge) = self.drop_victim(segment, spare);
            dropped += count;
            if huge && spare.is_some() {
                break;
            }
        }
        dropped
    }

    /// Runs the evictor until the headroom is restored or no clean segment is left, and write-back if it has
    /// work then. The evictor takes no time: it is a thread of its own, and dropping a segment takes a
    /// fraction of a fault.
    fn run_evictor(&mut self, context: &mut Context<PoolModelEvent>) {
        self.starved = loop {
            let drops = self.watermarks.evictor_drops(self.used());
            if drops == 0 {
                break false;
            }
            if self.evict(drops, None) == 0 {
                break true;
            }
        };
        self.shed_idle_stages(context.now());
        self.run_write_back(context);
    }

    /// Continues the accesses that wait for a frame, as far as frames are free.
    fn retry_waiting(&mut self, context: &mut Context<PoolModelEvent>) {
        while self.used() < self.watermarks.frames {
            let Some(slot) = self.waiting.pop_front() else { break };
            self.access(slot, context);
        }
    }

    /// Installs a segment, which lets the accesses that wait for it go on.
    fn end_fill(&mut self, segment: u32, context: &mut Context<PoolModelEvent>) {
        self.filling -= 1;
        self.segments[segment as usize].end_fill();
        self.policy.insert(segment);
        let mut store = false;
        let mut index = 0;
        while index < self.loading.len() {
            let (of, slot, write) = self.loading[index];
            if of == segment {
                self.loading.swap_remove(index);
                store |= write;
                context.schedule(Picos(context.now().0 + self.options.hit.0), PoolModelEvent::Done(slot));
            } else {
                index += 1;
            }
        }
        if store {
            self.make_dirty(segment);
            self.run_write_back(context);
        }
    }

    /// A segment that was filled for a read is clean, and can be dropped.
    fn go_on_if_starved(&mut self, context: &mut Context<PoolModelEvent>) {
        if self.starved {
            self.run_evictor(context);
            self.retry_waiting(context);
        }
    }
}

impl Device for PoolModel {
    type Event = PoolModelEvent;

    fn capacity(&self) -> Bytes {
        self.options.data
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<PoolModelEvent>,
    ) -> Result<(), SimError> {
        if self.accesses.begin(slot, command) {
            self.counts.accesses += 1;
            self.access(slot, context);
        } else {
            context.complete(slot);
        }
        self.run_stagers(context);
        Ok(())
    }

    fn handle(
        &mut self,
        event: PoolModelEvent,
        context: &mut Context<PoolModelEvent>,
    ) -> Result<(), SimError> {
        match event {
            PoolModelEvent::Done(slot) => {
                if self.accesses.advance(slot) {
                    self.counts.accesses += 1;
                    self.access(slot, context);
                } else {
                    context.complete(slot);
                }
            }
            PoolModelEvent::Read(segment) => {
                self.end_fill(segment, context);
                self.go_on_if_starved(context);
            }
            PoolModelEvent::ReadAhead(run) => {
                self.finish_run(run, context);
                self.go_on_if_starved(context);
                self.read_ahead(context);
            }
            PoolModelEvent::WritePrepared => self.send_write(context),
            PoolModelEvent::Written => self.end_write(context),
            PoolModelEvent::Staged(stage) => {
                self.end_order(stage as usize, true, context);
                self.go_on_if_starved(context);
            }
            PoolModelEvent::Retry(slot) => self.access(slot, context),
        }
        self.run_stagers(context);
        Ok(())
    }

    fn begin_measuring(&mut self) {
        self.base = self.counts;
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts {
            host_reads: self.counts.missing,
            host_programs: self.counts.written,
            ..FlashCounts::default()
        }
    }

    fn check(&self) -> Result<(), SimError> {
        let of =
            |is: fn(SegmentState) -> bool| self.segments.iter().filter(|state| is(**state)).count() as u64;
        law(
            "frames in use are resident or loading segments",
            self.resident as u64,
            of(SegmentState::is_resident) + of(SegmentState::is_filling),
        )?;
        law(
            "the dirty count is that of the dirty segments",
            self.dirty.len() as u64,
            of(SegmentState::is_dirty),
        )?;
        law(
            "segments loaded and not evicted are in memory",
            self.counts.missing - self.staged_faults + self.counts.readahead_segments
                - self.not_installed
                - self.counts.evictions,
            self.resident as u64 + self.readahead.kept_apart(),
        )?;
        let huge = self.staging.huge_pages();
        let small = self.resident - self.filling - huge * self.chunk_segments();
        law(
            "the policy knows the segments and the huge pages",
            self.policy.len() as u64,
            (small + huge) as u64,
        )?;
        let waiting = self.waiting.len() + self.loading.len() + self.staging.waiting();
        law("no access waits at the end", waiting as u64, 0)
    }
}
