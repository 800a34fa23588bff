//! Stages: 2 MiB frames outside the program's memory, through which chunks enter and leave memory as huge pages.
//!
//! A stage has a huge page, or none. An incoming chunk is read into the huge page of a stage, which is then moved to
//! the chunk's address (`UFFDIO_MOVE`): no bytes are copied, and one call serves 512 pages. A leaving chunk is moved
//! into a stage without a page and written from there; its page stays with the stage for the next incoming chunk.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::fatal::discard;
use super::page_table::{CHUNK_BYTES, CHUNK_PAGES};
use deepram_linux::descriptors::OpenGuard;
use deepram_linux::lock::lock;
use deepram_linux::uffd::Uffd;

/// Largest number of stages: four streams of reads with four chunks each in flight or ready.
const MAX_STAGES: usize = 16;
/// Smallest number of stages; where these would take too much of the budget, there are none.
const MIN_STAGES: usize = 2;
/// One more stage for this many chunks of the budget.
const CHUNKS_PER_STAGE: usize = 16;
/// Chunks of the smallest budget that has stages: with fewer, pages evicted for a chunk are missed before the chunk has
/// been used.
pub(super) const MIN_CHUNKS: usize = 32;
/// The first Linux that keeps the write protection of zero pages when it splits a huge page.
const MIN_LINUX: (u32, u32) = (6, 18);

/// An order to bring a chunk into memory through a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StageOrder {
    pub(super) stage: usize,
    /// Address of the chunk.
    pub(super) chunk: usize,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StageState {
    /// In no use.
    Free,
    /// Assigned to a chunk that is to be brought in, by the order of this number.
    Ordered(u64),
    /// A thread is working with it.
    Busy,
    /// The chunk's bytes have arrived; the value is the checksum of bytes that were read.
    Ready(u64),
}

#[derive(Debug)]
struct Stage {
    state: StageState,
    /// Whether the stage has a huge page, which is charged.
    has_page: bool,
    /// Address of the chunk, if one is assigned.
    chunk: usize,
    /// Time of the last change of state.
    since: Instant,
}

#[derive(Debug, Default)]
struct StageTable {
    stages: Vec<Stage>,
    orders: VecDeque<StageOrder>,
    orders_queued: u64,
    stopping: bool,
}

/// All stages of a pager.
#[derive(Debug)]
pub(super) struct Stages {
    /// The mapping as (start, length), and the address of its first aligned 2 MiB.
    mapping: (usize, usize),
    first: usize,
    count: usize,
    /// Whether the system gives huge pages to all fresh memory, without advice.
    always: bool,
    table: Mutex<StageTable>,
    ordered: Condvar,
    /// Lock of the stage through which chunks leave that no incoming chunk waits for.
    exit: Mutex<()>,
}

impl Stages {
    /// Creates the number of stages that suits the budget of `frames` frames; none if they are not `wanted` or not
    /// possible: memory is then paged in 4 KiB pages only.
    pub(super) fn new(uffd: &Uffd, frames: usize, wanted: bool) -> Self {
        let chunks = frames / CHUNK_PAGES;
        let count = (chunks / CHUNKS_PER_STAGE).clamp(MIN_STAGES, MAX_STAGES);
        let supported = wanted
            && chunks >= MIN_CHUNKS
            && uffd.can_move()
            && linux().is_some_and(|version| version >= MIN_LINUX);
        let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
        let read = |_opening| std::fs::read_to_string(enabled).unwrap_or_default();
        let setting = if supported { read(OpenGuard::acquire()) } else { String::new() };
        let always = setting.contains("[always]");
        let usable = always || setting.contains("[madvise]");
        let mapped = if usable { map(uffd, count).ok() } else { None };
        let (mapping, first, count) =
            mapped.map_or(((0, 0), 0, 0), |(mapping, first)| (mapping, first, count));
        let stage = || Stage { state: StageState::Free, has_page: false, chunk: 0, since: Instant::now() };
        let table = StageTable { stages: (0..count).map(|_| stage()).collect(), ..StageTable::default() };
        let (ordered, exit) = (Condvar::new(), Mutex::new(()));
        Self { mapping, first, count, always, table: Mutex::new(table), ordered, exit }
    }

    /// Whether there are stages.
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// Number of stages.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether the system gives huge pages to all fresh memory.
    pub(super) fn always(&self) -> bool {
        self.always && self.any()
    }

    /// Address of a stage.
    pub(super) fn address(&self, stage: usize) -> usize {
        assert!(stage <= self.count, "stage {stage} of {}", self.count);
        self.first + stage * CHUNK_BYTES
    }

    /// Locks the exit stage. Returns its lock and its address.
    pub(super) fn lock_exit(&self) -> (std::sync::MutexGuard<'_, ()>, usize) {
        (lock(&self.exit), self.address(self.count))
    }

    /// Number of the exit stage.
    pub(super) fn exit_stage(&self) -> usize {
        self.count
    }

    /// Claims a free stage for the caller, preferably one with a page.
    pub(super) fn claim(&self) -> Option<usize> {
        let mut table = lock(&self.table);
        let free = |stage: &Stage| stage.state == StageState::Free;
        let with_page = table.stages.iter().position(|stage| free(stage) && stage.has_page);
        let stage = with_page.or_else(|| table.stages.iter().position(free))?;
        table.stages[stage].set_state(StageState::Busy);
        Some(stage)
    }

    /// The stage that has been ready and unused longest, and for longer than `age`, with its chunk.
    pub(super) fn stale(&self, age: Duration) -> Option<(usize, usize)> {
        let table = lock(&self.table);
        let ready =
            table.stages.iter().enumerate().filter(|(_, stage)| {
                matches!(stage.state, StageState::Ready(_)) && stage.since.elapsed() > age
            });
        ready.min_by_key(|(_, stage)| stage.since).map(|(n, stage)| (n, stage.chunk))
    }

    /// Claims a free stage whose page has not been used for longer than `age`.
    pub(super) fn claim_idle(&self, age: Duration) -> Option<usize> {
        let mut table = lock(&self.table);
        let idle =
            |stage: &Stage| stage.state == StageState::Free && stage.has_page && stage.since.elapsed() > age;
        let stage = table.stages.iter().position(idle)?;
        table.stages[stage].set_state(StageState::Busy);
        Some(stage)
    }

    /// Queues an order to bring a chunk in through a stage that the caller has claimed.
    pub(super) fn queue_order(&self, stage: usize, chunk: usize) {
        let mut table = lock(&self.table);
        table.orders_queued += 1;
        let number = table.orders_queued;
        table.stages[stage].set_state(StageState::Ordered(number));
        table.stages[stage].chunk = chunk;
        table.orders.push_back(StageOrder { stage, chunk, number });
        self.ordered.notify_one();
    }

    /// Waits for the next order; `None` when the pager stops.
    pub(super) fn next_order(&self) -> Option<StageOrder> {
        let table = lock(&self.table);
        let waiting = |table: &mut StageTable| table.orders.is_empty() && !table.stopping;
        let mut table = self.ordered.wait_while(table, waiting).unwrap_or_else(PoisonError::into_inner);
        if table.stopping { None } else { table.orders.pop_front() }
    }

    /// The next order, if one is queued.
    pub(super) fn try_next_order(&self) -> Option<StageOrder> {
        lock(&self.table).orders.pop_front()
    }

    /// Whether orders are queued that no thread has begun.
    pub(super) fn has_orders(&self) -> bool {
        !lock(&self.table).orders.is_empty()
    }

    pub(super) fn stop(&self) {
        lock(&self.table).stopping = true;
        self.ordered.notify_all();
    }

    /// Begins an order: the stage belongs to the caller, unless the order was withdrawn.
    pub(super) fn begin_order(&self, order: StageOrder) -> bool {
        let mut table = lock(&self.table);
        let stage = &mut table.stages[order.stage];
        let valid = stage.state == StageState::Ordered(order.number);
        if valid {
            stage.set_state(StageState::Busy);
        }
        valid
    }

    /// Records that the chunk's bytes are in its stage.
    pub(super) fn mark_ready(&self, stage: usize, checksum: u64) {
        lock(&self.table).stages[stage].set_state(StageState::Ready(checksum));
    }

    /// Claims a ready stage for the caller. Returns the checksum of its bytes.
    pub(super) fn take_ready(&self, stage: usize) -> Option<u64> {
        let mut table = lock(&self.table);
        let StageState::Ready(checksum) = table.stages[stage].state else { return None };
        table.stages[stage].set_state(StageState::Busy);
        Some(checksum)
    }

    /// Frees a stage. An order for it that has not begun is withdrawn.
    pub(super) fn release(&self, stage: usize) {
        lock(&self.table).stages[stage].set_state(StageState::Free);
    }

    pub(super) fn has_page(&self, stage: usize) -> bool {
        lock(&self.table).stages[stage].has_page
    }

    pub(super) fn set_has_page(&self, stage: usize, has_page: bool) {
        lock(&self.table).stages[stage].has_page = has_page;
    }

    /// Frames that the stages hold.
    pub(super) fn frames(&self) -> usize {
        lock(&self.table).stages.iter().filter(|stage| stage.has_page).count() * CHUNK_PAGES
    }

    /// Gives a claimed stage without a page a page of zeros: a huge page, if the kernel has one.
    pub(super) fn populate(&self, uffd: &Uffd, stage: usize) -> io::Result<()> {
        // A fault on a page missing from a stage would never be served: the page is allocated in memory that is not
        // registered, and moved from there.
        let populate_area = self.first + (self.count + 1 + stage) * CHUNK_BYTES;
        // SAFETY: memory of the stages that belongs to the caller and holds nothing.
        unsafe { discard(&[(populate_area, CHUNK_BYTES)]) };
        // SAFETY: as above.
        let result = unsafe {
            libc::syscall(libc::SYS_madvise, populate_area, CHUNK_BYTES, libc::MADV_POPULATE_WRITE)
        };
        let populated = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the stage is empty.
        let moved =
            populated.and_then(|()| unsafe { move_chunk(uffd, self.address(stage), populate_area) }.1);
        if moved.is_err() {
            // SAFETY: as above; the contents of both ranges are not needed.
            unsafe { discard(&[(populate_area, CHUNK_BYTES), (self.address(stage), CHUNK_BYTES)]) };
        }
        moved?;
        self.set_has_page(stage, true);
        Ok(())
    }

    /// Returns the memory of a claimed stage to the kernel.
    pub(super) fn drop_page(&self, stage: usize) {
        // SAFETY: the stage belongs to the caller, and its contents are not needed.
        unsafe { discard(&[(self.address(stage), CHUNK_BYTES)]) };
        if stage < self.count {
            self.set_has_page(stage, false);
        }
    }
}

impl Stage {
    fn set_state(&mut self, state: StageState) {
        self.state = state;
        self.since = Instant::now();
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        let (start, len) = self.mapping;
        if len > 0 {
            // SAFETY: mapped in `map` with this length, unmapped once; no stage is in use any more.
            unsafe { libc::syscall(libc::SYS_munmap, start, len) };
        }
    }
}

/// Moves the pages of a chunk to the missing range at `to`, as one huge page if they are one. Returns the number of
/// bytes moved, with the error that stopped the move.
///
/// # Safety
/// No page is present at `to`.
pub(super) unsafe fn move_chunk(uffd: &Uffd, to: usize, from: usize) -> (usize, io::Result<()>) {
    // A fault, even one that installed nothing, leaves a page-table page behind, which keeps a huge page from moving
    // there. Dropping the empty range removes it (Linux 6.14); on older kernels, 512 4 KiB pages are moved.
    // SAFETY: the caller's promise.
    unsafe { discard(&[(to, CHUNK_BYTES)]) };
    uffd.move_pages(to, from, CHUNK_BYTES)
}

/// The version of the kernel.
fn linux() -> Option<(u32, u32)> {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().ok()?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Maps memory for `count` stages, for the exit stage, and for `count` areas in which pages are allocated. Returns the
/// mapping, and the address of the first stage. A forked child does not have it.
fn map(uffd: &Uffd, count: usize) -> io::Result<((usize, usize), usize)> {
    let stages = (count + 1) * CHUNK_BYTES;
    let bytes = stages + count * CHUNK_BYTES;
    let len = bytes + CHUNK_BYTES;
    // SAFETY: a new anonymous mapping. By number, because a library may interpose `mmap` itself.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::syscall(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if start == -1 {
        return Err(io::Error::last_os_error());
    }
    let start = start as usize;
    let first = start.next_multiple_of(CHUNK_BYTES);
    let prepare = || {
        for (at, len, advice) in [
            (first, bytes, libc::MADV_DONTFORK),
            (first, stages, libc::MADV_NOHUGEPAGE),
            (first + stages, count * CHUNK_BYTES, libc::MADV_HUGEPAGE),
        ] {
            // SAFETY: memory of the new mapping, which no thread uses yet.
            if unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // Without write protection: pages that are moved in may be marked as protected.
        uffd.register_missing(first, stages)
    };
    match prepare() {
        Ok(()) => Ok(((start, len), first)),
        Err(error) => {
            // SAFETY: the new mapping, no longer used.
            unsafe { libc::syscall(libc::SYS_munmap, start, len) };
            Err(error)
        }
    }
}
