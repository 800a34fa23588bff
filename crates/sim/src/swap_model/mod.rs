//! A model of the pager of `deepram run` on a measured device: memory without a journal, over a swap file.
//!
//! ```text
//!   access ──in memory────────────────────────────────────────────────────────────► hit
//!          ──fresh──────────────► zeros, more of them where memory is filled in order
//!          ──first store to a clean huge page ─► its slots are free
//!          ──in the victim buffer ─► second chance
//!          ──in the swap file ──► read, with its neighbours; a stream is read ahead, and then staged
//!          ──in a staged chunk ─► all of the chunk, as a huge page
//!                evictors: memory ─► victim buffer ─► swap file, in batches
//! ```
//!
//! 1. Every decision about which page moves when is made by [`deepram_core::paging`], which decides for the pager too.
//!    This module carries the decisions out in virtual time: it has no threads, and a page is in transit only while it is
//!    read. The counts of both are equal where nothing depends on time (`crates/sim/tests/it/swap_model.rs`).
//! 2. Software costs are options, to be measured on the machine with `deepram bench predict`. The two evictors and the
//!    handlers' installing of pages that were read ahead take their time beside the program's threads.
//! 3. The system gives huge pages only on request (`madvise`): fresh memory is huge where a stream fills it. A chunk that a fault
//!    or a stager evicts counts as written at once; its time passes. Forks, shared budgets and unpaged memory are not simulated.

mod counts;
mod eviction;
mod fault;
mod frames;
mod huge_pages;
mod reads;

use std::collections::VecDeque;
use std::ops::Range;

use deepram_core::cache::Replacement;
use deepram_core::paging::huge_pages::CHUNK_PAGES;
use deepram_core::paging::victim_buffer::frames_of_buffer;
use deepram_core::paging::{
    DropBehind, FaultAround, Heat, PAGE, PagerPolicy, Streams, SwapSlots, SwapWatermarks, Trigger,
    VictimBuffer,
};
use deepram_core::units::{Bytes, Picos};
use deepram_media::MeasuredFile;

use self::eviction::Batch;
use self::reads::{PendingRead, Read, ReadRequest};
use crate::engine::Time;
use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::host::{Command, Context, Device, Slot};
use crate::measured_device::MeasuredDevice;
use crate::memory_accesses::MemoryAccesses;
use crate::pool_model::PoolModelOptions;
use crate::read_slots::ReadSlots;
use crate::slab::Slab;
use crate::staging::Staging;

pub use counts::SwapModelCounts;

/// Bytes of a page.
const PAGE_BYTES: u64 = PAGE as u64;
/// The fewest frames of a pager.
const LEAST_FRAMES: u64 = 1024;

/// The state of a page; `u32` numbers a slot of the swap file.
type PageState = deepram_core::paging::PageState<u32>;

/// What is known of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    state: PageState,
    /// Of a clean page that arrived alone: it has been stored to since. Clean pages that arrived in a huge page are
    /// write-protected.
    changed: Option<bool>,
    heat: Heat,
    /// It was read ahead and has not been used since.
    unused: bool,
    trigger: Option<Trigger>,
}

/// An event of the model.
#[derive(Debug, Clone, Copy)]
pub enum SwapModelEvent {
    /// The access to the current page is complete.
    Done(Slot),
    /// A thread that has waited for a page repeats its access.
    Retry(Slot),
    /// The bytes of a read have arrived and are installed.
    Read(u32),
    /// An evictor runs.
    Evict(u8),
    /// An evictor's batch is in the swap file.
    Written(u8),
    /// The chunk of this stage has arrived.
    Staged(u32),
}

/// A simulated pager.
pub struct SwapModel {
    options: PoolModelOptions,
    device: MeasuredDevice,
    pages: Vec<Page>,
    policy: Box<dyn Replacement<u64> + Send>,
    buffer: VictimBuffer<u32>,
    slots: SwapSlots,
    watermarks: SwapWatermarks,
    streams: Streams,
    /// Block sizes of misses, and of second chances.
    fault_around: FaultAround,
    return_around: FaultAround,
    /// Frames of pages in memory, on their way there, and in the victim buffer.
    charged: usize,
    /// Chunks of which a page has been touched: they have tables.
    chunks: Vec<bool>,
    known_chunks: usize,
    /// Windows to read ahead, in parts.
    requests: VecDeque<ReadRequest>,
    /// Pages to read ahead of use that have no buffer yet; the first is at the end.
    pending: Vec<PendingRead>,
    read_slots: ReadSlots,
    reads: Slab<Read>,
    /// The times from which on each handler installs pages that were read ahead.
    handlers: Vec<Time>,
    /// The batch of each evictor that is not asleep.
    evictors: [Option<Batch>; SwapWatermarks::EVICTORS],
    /// Accesses that wait for a page on its way into memory, or for its chunk to leave.
    waiting: Vec<(u32, Slot)>,
    staging: Staging,
    /// Evicted pages when each chunk left last as a huge page.
    evicted_at: Vec<Option<u64>>,
    drop_behind: DropBehind,
    /// Chunks that have left; accesses may wait for that.
    chunks_gone: Vec<usize>,
    accesses: MemoryAccesses,
    counts: SwapModelCounts,
    /// The counts when measuring began.
    base: SwapModelCounts,
}

impl SwapModel {
    /// Builds a pager that manages `data` bytes of fresh memory.
    ///
    /// # Errors
    /// Less than 4 MiB of DRAM, or no data.
    pub fn new(file: &MeasuredFile, options: &PoolModelOptions) -> Result<Self, SimError> {
        let mut options = options.clone();
        if options.data.0 == 0 {
            options.data = file.span;
        }
        if options.dram.0 == 0 {
            options.dram = Bytes(options.data.0 / 4);
        }
        let frames = options.dram.0 / PAGE_BYTES;
        if frames < LEAST_FRAMES {
            let least = Bytes(LEAST_FRAMES * PAGE_BYTES);
            let why = format!("{} is too little: use at least {least}", options.dram);
            return Err(SimError::config("dram", why));
        }
        if options.segment.0 != PAGE_BYTES {
            return Err(SimError::config("pool.segment", "a swap file has pages of 4 KiB"));
        }
        let pages = options.data.0.div_ceil(PAGE_BYTES);
        if pages == 0 || pages > u64::from(u32::MAX) {
            return Err(SimError::config("pool.data", "must be 1 to 2^32 - 1 pages"));
        }
        let frames = usize::try_from(frames).unwrap_or(usize::MAX);
        let handlers = options.handlers.max(1) as usize;
        let chunks = pages as usize / CHUNK_PAGES + 2;
        Ok(Self {
            device: MeasuredDevice::new(file),
            pages: vec![Page::default(); pages as usize],
            policy: PagerPolicy::default().build(frames),
            buffer: VictimBuffer::new(frames_of_buffer(frames, false)),
            slots: SwapSlots::default(),
            watermarks: SwapWatermarks { frames },
            streams: Streams::default(),
            fault_around: FaultAround::of_swap(),
            return_around: FaultAround::of_swap(),
            charged: 0,
            chunks: vec![false; chunks],
            known_chunks: 0,
            requests: VecDeque::new(),
            pending: Vec::new(),
            read_slots: ReadSlots::new(handlers, options.dram.0, PAGE_BYTES),
            reads: Slab::new(),
            handlers: vec![0; handlers],
            evictors: [const { None }; SwapWatermarks::EVICTORS],
            waiting: Vec::new(),
            staging: Staging::new(frames, chunks, options.handlers, options.huge_pages),
            evicted_at: vec![None; chunks],
            drop_behind: DropBehind::default(),
            chunks_gone: Vec::new(),
            accesses: MemoryAccesses::new(PAGE_BYTES),
            counts: SwapModelCounts::default(),
            base: SwapModelCounts::default(),
            options,
        })
    }

    /// The counts since measuring began.
    #[must_use]
    pub fn swap_counts(&self) -> SwapModelCounts {
        self.counts.since(&self.base)
    }

    /// The address of a page. Where blocks, chunks and regions begin depends on it.
    fn address(&self, page: u32) -> usize {
        self.options.address.0 as usize + page as usize * PAGE
    }

    /// The number of the page at an address, if it is one of the data.
    fn page_at(&self, address: usize) -> Option<u32> {
        let offset = address.checked_sub(self.options.address.0 as usize)?;
        (offset / PAGE < self.pages.len()).then_some((offset / PAGE) as u32)
    }

    /// The page's key in the replacement policy.
    fn key(&self, page: u32) -> u64 {
        (self.address(page) / PAGE) as u64
    }

    fn complete_at(context: &mut Context<SwapModelEvent>, slot: Slot, software: Time) {
        context.schedule(Picos(context.now().0 + software), SwapModelEvent::Done(slot));
    }

    /// Puts a page into memory: the policy knows it from now on, and the accesses that wait for it go on.
    fn install(&mut self, page: u32, state: PageState, context: &mut Context<SwapModelEvent>) {
        let info = &mut self.pages[page as usize];
        info.state = state;
        info.changed = matches!(state, PageState::Clean(_)).then_some(false);
        let key = self.key(page);
        self.policy.insert(key);
        (0..self.pages[page as usize].heat.touches()).for_each(|_| self.policy.touch(key));
        self.wake(page..page + 1, context);
    }

    /// Lets the accesses that wait for these pages go on. The return from a fault takes half of a fault without a read.
    fn wake(&mut self, pages: Range<u32>, context: &mut Context<SwapModelEvent>) {
        let time = Picos(context.now().0 + self.options.second_chance.0 / 2);
        for (_, slot) in self.waiting.extract_if(.., |(page, _)| pages.contains(page)) {
            context.schedule(time, SwapModelEvent::Retry(slot));
        }
    }
}

impl Device for SwapModel {
    type Event = SwapModelEvent;

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
        context: &mut Context<SwapModelEvent>,
    ) -> Result<(), SimError> {
        if self.accesses.begin(slot, command) {
            self.counts.accesses += 1;
            self.access(slot, context);
        } else {
            context.complete(slot);
        }
        self.run_stagers(context);
        self.wake_for_chunks_gone(context);
        Ok(())
    }

    fn handle(
        &mut self,
        event: SwapModelEvent,
        context: &mut Context<SwapModelEvent>,
    ) -> Result<(), SimError> {
        match event {
            SwapModelEvent::Done(slot) => {
                if self.accesses.advance(slot) {
                    self.counts.accesses += 1;
                    self.access(slot, context);
                } else {
                    context.complete(slot);
                }
            }
            SwapModelEvent::Retry(slot) => self.access(slot, context),
            SwapModelEvent::Read(read) => self.finish_read(read, context),
            SwapModelEvent::Evict(evictor) => self.run_evictor(evictor, context),
            SwapModelEvent::Written(evictor) => self.end_batch(evictor, context),
            SwapModelEvent::Staged(stage) => self.end_order(stage as usize, true, context),
        }
        self.run_stagers(context);
        self.wake_for_chunks_gone(context);
        Ok(())
    }

    fn begin_measuring(&mut self) {
        self.base = self.counts;
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts {
            host_reads: self.counts.bytes_read / PAGE_BYTES,
            host_programs: self.counts.written_back_pages,
            ..FlashCounts::default()
        }
    }

    fn check(&self) -> Result<(), SimError> {
        let of = |is: fn(&PageState) -> bool| self.pages.iter().filter(|page| is(&page.state)).count() as u64;
        let in_memory = of(|state| state.resident().is_some());
        let huge = self.staging.huge_pages();
        let keys = in_memory - (huge * (CHUNK_PAGES - 1)) as u64;
        law("the policy knows the pages and the huge pages in memory", self.policy.len() as u64, keys)?;
        let moving = of(|state| matches!(state, PageState::Incoming | PageState::Evicting));
        let apart = self.buffer.used_frames() + self.staging.pages() * CHUNK_PAGES;
        law(
            "frames in use are those in memory, on their way, in the victim buffer and in stages",
            self.charged as u64,
            in_memory + moving + apart as u64,
        )?;
        let writing = self.evictors.iter().flatten().map(Batch::pages_in_flight).sum::<u64>();
        let stored =
            of(|state| matches!(state, PageState::Clean(_) | PageState::Stored(_) | PageState::Incoming));
        let slots = stored + self.buffered_slots() + writing;
        law("each slot has one page", self.slots.allocated() as u64, slots)?;
        law("no access waits at the end", (self.waiting.len() + self.staging.waiting()) as u64, 0)
    }
}
