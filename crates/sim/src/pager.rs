//! The real pool as it would run on a measured device: its cache policy, its fault path and its
//! write-back, over a [`MeasuredFile`] preset. What it predicts can be compared with the pool itself.
//!
//! ```text
//!   access --resident--------------------------------------------> hit
//!          --first store into a clean segment--> protection fault -> hit
//!          --missing--> fault --> read by the device --> install --> hit
//!                         write-back thread: evicts clean segments, writes the longest dirty
//! ```
//!
//! 1. The cache is that of `deepram-pool`: core's [`Clock`] over segments; a headroom of free frames is
//!    kept; if no clean segment can be evicted, or too many are dirty, the segments dirty longest are
//!    written in one batch, large and in sequence.
//! 2. The device works on as many requests at once as its preset says, each for the time that it takes
//!    alone; what is written in sequence takes the interval of its largest size.
//! 3. Software costs are options, to be measured on the machine: `deepram bench predict` does. The defaults are
//!    what it found on the machine of the preset `virtual-ssd`.
//! 4. As a program sees it: an access of several segments touches one after the other. DRAM for the tables of a
//!    pool is not in the budget; syncs, reclamation and reading ahead of use are not simulated.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use deepram_core::cache::{Clock, Replacement};
use deepram_core::units::{Bytes, Picos};
use deepram_media::MeasuredFile;
use deepram_trace::Op;
use serde::Serialize;

use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::host::{Command, Context, Device, Slot};

/// What the machine and the pool bring to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PagerOptions {
    /// Bytes of the data; 0 for as many as the preset was measured over.
    pub data: u64,
    /// Bytes of DRAM that hold segments; 0 for a quarter of the data.
    pub dram: u64,
    /// Bytes of a segment.
    pub segment: u64,
    /// An access to a resident segment.
    pub hit_ps: Time,
    /// What a fault on a missing segment takes beside the device: trap, handler, installing, return.
    pub fault_ps: Time,
    /// The first store into a clean segment: trap, handler, unprotecting, return.
    pub protect_ps: Time,
    /// Processor time of writing one segment back.
    pub flush_ps: Time,
}

impl Default for PagerOptions {
    fn default() -> Self {
        Self {
            data: 0,
            dram: 0,
            segment: 4096,
            hit_ps: 96_000,
            fault_ps: 33_000_000,
            protect_ps: 21_000_000,
            flush_ps: 6_600_000,
        }
    }
}

impl PagerOptions {
    /// Sets the option of that name, as users write it: `fault`, `33us`.
    ///
    /// # Errors
    /// There is no such option, or the value is none for it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SimError> {
        let wrong = |why: String| SimError::config(format!("pool.{key}"), why);
        let (bytes, time) = match key {
            "data" => (&mut self.data, false),
            "segment" => (&mut self.segment, false),
            "hit" => (&mut self.hit_ps, true),
            "fault" => (&mut self.fault_ps, true),
            "first_store" => (&mut self.protect_ps, true),
            "write_back" => (&mut self.flush_ps, true),
            _ => {
                return Err(wrong(
                    "there is none; known: data, segment, hit, fault, first_store, write_back".into(),
                ));
            }
        };
        *bytes = if time {
            value.parse::<Picos>().map_err(|error| wrong(error.to_string()))?.0
        } else {
            value.parse::<Bytes>().map_err(|error| wrong(error.to_string()))?.0
        };
        Ok(())
    }
}

/// Segments of one write-back, as in the pool.
const WRITE_BACK: usize = 2048;
/// Bytes of one write of it.
const WRITE: u64 = 1 << 20;

const RESIDENT: u8 = 1;
const DIRTY: u8 = 2;
const WRITING: u8 = 4;
const LOADING: u8 = 8;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PagerCounts {
    /// Accesses, each of one segment.
    pub accesses: u64,
    /// Of these, to segments that were missing.
    pub missing: u64,
    /// First stores into clean segments.
    pub protected: u64,
    /// Segments dropped.
    pub evictions: u64,
    /// Segments written back.
    pub written: u64,
    /// Faults that waited for a frame.
    pub waited: u64,
}

/// What happens inside.
#[derive(Debug, Clone, Copy)]
pub enum PagerEvent {
    /// An access is over.
    Done(Slot),
    /// The device has read the segment of a fault.
    Read(u32),
    /// A write-back is over.
    Written,
}

/// An access under way.
#[derive(Debug, Clone, Copy)]
struct Access {
    write: bool,
    /// Next byte.
    at: u64,
    end: u64,
}

/// The machine.
pub struct Pager {
    options: PagerOptions,
    frames: u32,
    file: MeasuredFile,
    clock: Clock,
    flags: Vec<u8>,
    resident: u32,
    dirty: VecDeque<u32>,
    dirty_count: u32,
    writing: Vec<u32>,
    /// When each of the device's places is free.
    places: BinaryHeap<Reverse<Time>>,
    /// Accesses of each segment that is being loaded.
    loading: Vec<(u32, Slot, bool)>,
    /// Accesses that wait for a frame.
    waiting: VecDeque<Slot>,
    accesses: Vec<Access>,
    counts: PagerCounts,
    /// What had been counted when measuring began.
    base: PagerCounts,
}

impl Pager {
    /// A pool with nothing in its DRAM cache.
    ///
    /// # Errors
    /// Too few frames, or segments that are no power of two.
    pub fn new(file: &MeasuredFile, options: &PagerOptions) -> Result<Self, SimError> {
        let mut options = options.clone();
        if !options.segment.is_power_of_two() || options.segment > 1 << 20 {
            return Err(SimError::config("pool.segment", "must be a power of two of at most 1 MiB"));
        }
        if options.data == 0 {
            options.data = file.span.0;
        }
        if options.dram == 0 {
            options.dram = options.data / 4;
        }
        let frames = u32::try_from(options.dram / options.segment).unwrap_or(u32::MAX);
        if frames < 64 {
            let least = Bytes(64 * options.segment);
            return Err(SimError::config("dram", format!("{} is too little: {least}", Bytes(options.dram))));
        }
        let segments = options.data.div_ceil(options.segment);
        if segments == 0 || segments > u64::from(u32::MAX) {
            return Err(SimError::config("pool.data", "must be 1 to 2^32 - 1 segments"));
        }
        let width = file.parallelism(false, Bytes(options.segment));
        Ok(Self {
            clock: Clock::new(frames as usize),
            flags: vec![0; segments as usize],
            resident: 0,
            dirty: VecDeque::new(),
            dirty_count: 0,
            writing: Vec::new(),
            places: (0..width).map(|_| Reverse(0)).collect(),
            loading: Vec::new(),
            waiting: VecDeque::new(),
            accesses: Vec::new(),
            counts: PagerCounts::default(),
            base: PagerCounts::default(),
            file: file.clone(),
            frames,
            options,
        })
    }

    /// What happened since measuring began.
    #[must_use]
    pub fn pager_counts(&self) -> PagerCounts {
        let (all, base) = (self.counts, self.base);
        PagerCounts {
            accesses: all.accesses - base.accesses,
            missing: all.missing - base.missing,
            protected: all.protected - base.protected,
            evictions: all.evictions - base.evictions,
            written: all.written - base.written,
            waited: all.waited - base.waited,
        }
    }

    fn headroom(&self) -> u32 {
        (self.frames / 32).clamp(16, 4096)
    }

    /// A request of the device: when it is over.
    fn request(&mut self, from: Time, time: Time) -> Time {
        let free = self.places.pop().map_or(0, |Reverse(free)| free);
        let end = from.max(free) + time;
        self.places.push(Reverse(end));
        end
    }

    fn access(&mut self, slot: Slot, context: &mut Context<PagerEvent>) {
        let Access { write, at, .. } = self.accesses[slot as usize];
        let segment = (at / self.options.segment) as u32;
        let flags = self.flags[segment as usize];
        if flags & LOADING != 0 {
            self.loading.push((segment, slot, write));
            return;
        }
        if flags & RESIDENT == 0 {
            self.load(segment, slot, write, context);
            return;
        }
        let mut time = self.options.hit_ps;
        if write && flags & DIRTY == 0 {
            self.counts.protected += 1;
            time += self.options.protect_ps;
            self.make_dirty(segment);
            self.clock.touch(segment);
            self.keep_house(context);
        }
        context.schedule(context.now() + time, PagerEvent::Done(slot));
    }

    fn make_dirty(&mut self, segment: u32) {
        self.flags[segment as usize] |= DIRTY;
        self.dirty.push_back(segment);
        self.dirty_count += 1;
    }

    fn load(&mut self, segment: u32, slot: Slot, write: bool, context: &mut Context<PagerEvent>) {
        if self.resident >= self.frames {
            self.evict(1);
        }
        if self.resident >= self.frames {
            self.counts.waited += 1;
            self.waiting.push_back(slot);
            self.keep_house(context);
            return;
        }
        self.counts.missing += 1;
        self.resident += 1;
        self.flags[segment as usize] = LOADING;
        self.loading.push((segment, slot, write));
        // Half of the software comes before the device, half after it: only their sum is measured.
        let time = self.file.latency(false, Bytes(self.options.segment)).0;
        let end = self.request(context.now() + self.options.fault_ps / 2, time);
        context.schedule(end + self.options.fault_ps.div_ceil(2), PagerEvent::Read(segment));
    }

    /// Drops up to `n` clean segments; how many.
    fn evict(&mut self, n: u32) -> u32 {
        for dropped in 0..n {
            let flags = &self.flags;
            let Some(segment) = self.clock.victim(&mut |key: u32| flags[key as usize] == RESIDENT) else {
                return dropped;
            };
            self.flags[segment as usize] = 0;
            self.resident -= 1;
            self.counts.evictions += 1;
        }
        n
    }

    /// The write-back thread: one batch at a time.
    fn keep_house(&mut self, context: &mut Context<PagerEvent>) {
        let wanted = (self.resident + self.headroom()).saturating_sub(self.frames);
        let evicted = self.evict(wanted);
        let short = evicted < wanted || self.dirty_count > self.frames / 2;
        if !short || !self.writing.is_empty() || self.dirty_count == 0 {
            return;
        }
        while self.writing.len() < WRITE_BACK {
            let Some(segment) = self.dirty.pop_front() else { break };
            let flags = &mut self.flags[segment as usize];
            if *flags & DIRTY != 0 {
                *flags = *flags & !DIRTY | WRITING;
                self.dirty_count -= 1;
                self.writing.push(segment);
            }
        }
        let bytes = self.writing.len() as u64 * self.options.segment;
        let interval = self.file.completion_interval(true, Bytes(WRITE)).0;
        let device = (u128::from(bytes) * u128::from(interval) / u128::from(WRITE)) as Time;
        let software = self.writing.len() as u64 * self.options.flush_ps;
        // The next write is prepared while the device takes the last: the slower of the two counts.
        let now = context.now();
        let end = self.request(now, device.max(software));
        context.schedule(end, PagerEvent::Written);
    }
}

impl Device for Pager {
    type Event = PagerEvent;

    fn capacity(&self) -> u64 {
        self.options.data
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<PagerEvent>,
    ) -> Result<(), SimError> {
        if !matches!(command.op, Op::Read | Op::Write) || command.len == 0 {
            context.complete(slot);
            return Ok(());
        }
        if self.accesses.len() <= slot as usize {
            self.accesses.resize(slot as usize + 1, Access { write: false, at: 0, end: 0 });
        }
        let (at, end) = (command.offset, command.offset + command.len);
        self.accesses[slot as usize] = Access { write: command.op == Op::Write, at, end };
        self.counts.accesses += 1;
        self.access(slot, context);
        Ok(())
    }

    fn handle(&mut self, event: PagerEvent, context: &mut Context<PagerEvent>) -> Result<(), SimError> {
        match event {
            PagerEvent::Done(slot) => {
                let access = &mut self.accesses[slot as usize];
                access.at = (access.at / self.options.segment + 1) * self.options.segment;
                if access.at < access.end {
                    self.counts.accesses += 1;
                    self.access(slot, context);
                } else {
                    context.complete(slot);
                }
            }
            PagerEvent::Read(segment) => {
                self.flags[segment as usize] = RESIDENT;
                self.clock.insert(segment);
                let mut store = false;
                let mut index = 0;
                while index < self.loading.len() {
                    let (of, slot, write) = self.loading[index];
                    if of == segment {
                        self.loading.swap_remove(index);
                        store |= write;
                        context.schedule(context.now() + self.options.hit_ps, PagerEvent::Done(slot));
                    } else {
                        index += 1;
                    }
                }
                if store {
                    self.make_dirty(segment);
                }
                self.keep_house(context);
            }
            PagerEvent::Written => {
                self.counts.written += self.writing.len() as u64;
                for segment in std::mem::take(&mut self.writing) {
                    self.flags[segment as usize] &= !WRITING;
                }
                self.keep_house(context);
                while self.resident < self.frames {
                    let Some(slot) = self.waiting.pop_front() else { break };
                    self.access(slot, context);
                }
            }
        }
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
        let of = |flag: u8| self.flags.iter().filter(|flags| **flags & flag != 0).count() as u64;
        law(
            "frames in use are resident or loading segments",
            self.resident.into(),
            of(RESIDENT) + of(LOADING),
        )?;
        law("the dirty are counted", self.dirty_count.into(), of(DIRTY))?;
        law(
            "what came and did not go is there",
            self.counts.missing - self.counts.evictions,
            self.resident.into(),
        )?;
        law("nobody waits at the end", self.waiting.len() as u64 + self.loading.len() as u64, 0)
    }
}
