//! Stages: frames of 2 MiB beside the program's memory, through which chunks come into it and leave it as huge
//! pages.
//!
//! A stage holds a huge page, or none. What comes is read into a page that a stage holds, and the page moves to its
//! place (`UFFDIO_MOVE`), so that nothing is copied and one call does for 512 pages. What leaves moves into a stage
//! that holds none, is written from there, and leaves the stage a page for what comes next.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::fatal::discard;
use super::ranges::{CHUNK_BYTES, CHUNK_PAGES};
use crate::descriptors::Low;
use crate::lock::lock;
use crate::uffd::Uffd;

/// Most stages: four streams of reads with four chunks each under way or ready.
const MOST: usize = 16;
/// Fewest; where so many are too much of the budget there are none.
const LEAST: usize = 2;
/// Chunks of the budget for each stage beyond those.
const CHUNKS: usize = 16;
/// Chunks of the smallest budget that has stages: with fewer, what leaves for a chunk is missed sooner than the chunk
/// is used up.
pub(super) const SMALL: usize = 32;
/// The first Linux that keeps the write protection of zero pages when it divides a huge page.
const LINUX: (u32, u32) = (6, 18);

/// A chunk that is to come through a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) stage: usize,
    /// Its address.
    pub(super) chunk: usize,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody's.
    Free,
    /// A chunk's that is to be brought, by this order.
    Ordered(u64),
    /// Somebody works with it.
    Busy,
    /// The chunk's bytes are there; of bytes that were read, the sum of them.
    Ready(u64),
}

#[derive(Debug)]
struct Stage {
    state: State,
    /// Whether there is a page, counted as used.
    holds: bool,
    /// The chunk, if it is one's.
    chunk: usize,
    /// When its state became what it is.
    since: Instant,
}

#[derive(Debug, Default)]
struct Desk {
    stages: Vec<Stage>,
    orders: VecDeque<Order>,
    orders_ever: u64,
    stopping: bool,
}

/// All stages of a pager.
#[derive(Debug)]
pub(super) struct Stages {
    /// The mapping, and the first whole 2 MiB of it.
    mapping: (usize, usize),
    first: usize,
    count: usize,
    /// The system gives huge pages to whoever touches fresh memory, not only to those who ask.
    always: bool,
    desk: Mutex<Desk>,
    ordered: Condvar,
    /// The stage through which chunks leave that nothing comes for.
    exit: Mutex<()>,
}

impl Stages {
    /// As many as are good for so many frames; none if they are not `wanted`, or cannot be had: then memory is paged
    /// in pages of 4 KiB alone.
    pub(super) fn new(watch: &Uffd, frames: usize, wanted: bool) -> Self {
        let chunks = frames / CHUNK_PAGES;
        let count = (chunks / CHUNKS).clamp(LEAST, MOST);
        let may =
            wanted && chunks >= SMALL && watch.transfers() && linux().is_some_and(|version| version >= LINUX);
        let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
        let read = |_low| std::fs::read_to_string(enabled).unwrap_or_default();
        let given = if may { read(Low::hold()) } else { String::new() };
        let always = given.contains("[always]");
        let good = always || given.contains("[madvise]");
        let made = if good { map(watch, count).ok() } else { None };
        let (mapping, first, count) = made.map_or(((0, 0), 0, 0), |(mapping, first)| (mapping, first, count));
        let stage = || Stage { state: State::Free, holds: false, chunk: 0, since: Instant::now() };
        let desk = Desk { stages: (0..count).map(|_| stage()).collect(), ..Desk::default() };
        let (ordered, exit) = (Condvar::new(), Mutex::new(()));
        Self { mapping, first, count, always, desk: Mutex::new(desk), ordered, exit }
    }

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether the system gives huge pages to all fresh memory.
    pub(super) fn always(&self) -> bool {
        self.always && self.any()
    }

    /// Where a stage is.
    pub(super) fn address(&self, stage: usize) -> usize {
        assert!(stage <= self.count, "stage {stage} of {}", self.count);
        self.first + stage * CHUNK_BYTES
    }

    /// Where the stage for what leaves is, to whoever holds its lock.
    pub(super) fn exit(&self) -> (std::sync::MutexGuard<'_, ()>, usize) {
        (lock(&self.exit), self.address(self.count))
    }

    /// Its number.
    pub(super) fn exit_number(&self) -> usize {
        self.count
    }

    /// A free stage, one that holds a page if there is one: the caller's from now on.
    pub(super) fn claim(&self) -> Option<usize> {
        let mut desk = lock(&self.desk);
        let free = |stage: &Stage| stage.state == State::Free;
        let with_page = desk.stages.iter().position(|stage| free(stage) && stage.holds);
        let stage = with_page.or_else(|| desk.stages.iter().position(free))?;
        desk.stages[stage].enter(State::Busy);
        Some(stage)
    }

    /// The stage that has been ready and unused longest, and as long as that, with its chunk.
    pub(super) fn stale(&self, age: Duration) -> Option<(usize, usize)> {
        let desk = lock(&self.desk);
        let ready = desk
            .stages
            .iter()
            .enumerate()
            .filter(|(_, stage)| matches!(stage.state, State::Ready(_)) && stage.since.elapsed() > age);
        ready.min_by_key(|(_, stage)| stage.since).map(|(n, stage)| (n, stage.chunk))
    }

    /// A free stage that has held a page so long that nobody needed: the caller's from now on.
    pub(super) fn claim_idle(&self, age: Duration) -> Option<usize> {
        let mut desk = lock(&self.desk);
        let idle = |stage: &Stage| stage.state == State::Free && stage.holds && stage.since.elapsed() > age;
        let stage = desk.stages.iter().position(idle)?;
        desk.stages[stage].enter(State::Busy);
        Some(stage)
    }

    /// Has a chunk brought through a stage that is the caller's.
    pub(super) fn order(&self, stage: usize, chunk: usize) {
        let mut desk = lock(&self.desk);
        desk.orders_ever += 1;
        let number = desk.orders_ever;
        desk.stages[stage].enter(State::Ordered(number));
        desk.stages[stage].chunk = chunk;
        desk.orders.push_back(Order { stage, chunk, number });
        self.ordered.notify_one();
    }

    /// The next order, when there is one; none when the pager stops.
    pub(super) fn next(&self) -> Option<Order> {
        let desk = lock(&self.desk);
        let waiting = |desk: &mut Desk| desk.orders.is_empty() && !desk.stopping;
        let mut desk = self.ordered.wait_while(desk, waiting).unwrap_or_else(PoisonError::into_inner);
        if desk.stopping { None } else { desk.orders.pop_front() }
    }

    /// The next order, if there is one.
    pub(super) fn try_next(&self) -> Option<Order> {
        lock(&self.desk).orders.pop_front()
    }

    /// Whether there are orders that nobody has begun.
    pub(super) fn has_orders(&self) -> bool {
        !lock(&self.desk).orders.is_empty()
    }

    pub(super) fn stop(&self) {
        lock(&self.desk).stopping = true;
        self.ordered.notify_all();
    }

    /// Begins an order: the stage is the caller's, unless the order was withdrawn.
    pub(super) fn begin(&self, order: Order) -> bool {
        let mut desk = lock(&self.desk);
        let stage = &mut desk.stages[order.stage];
        let valid = stage.state == State::Ordered(order.number);
        if valid {
            stage.enter(State::Busy);
        }
        valid
    }

    /// The chunk's bytes are in its stage.
    pub(super) fn ready(&self, stage: usize, sum: u64) {
        lock(&self.desk).stages[stage].enter(State::Ready(sum));
    }

    /// Takes a stage that is ready, for the caller: the sum of its bytes.
    pub(super) fn take_ready(&self, stage: usize) -> Option<u64> {
        let mut desk = lock(&self.desk);
        let State::Ready(sum) = desk.stages[stage].state else { return None };
        desk.stages[stage].enter(State::Busy);
        Some(sum)
    }

    /// The stage is nobody's any more. An order for it that has not begun is withdrawn.
    pub(super) fn release(&self, stage: usize) {
        lock(&self.desk).stages[stage].enter(State::Free);
    }

    pub(super) fn holds(&self, stage: usize) -> bool {
        lock(&self.desk).stages[stage].holds
    }

    pub(super) fn set_holds(&self, stage: usize, holds: bool) {
        lock(&self.desk).stages[stage].holds = holds;
    }

    /// Frames that the stages hold.
    pub(super) fn frames(&self) -> usize {
        lock(&self.desk).stages.iter().filter(|stage| stage.holds).count() * CHUNK_PAGES
    }

    /// Gives a stage that is the caller's and holds none a page of zeros: a huge page, if the kernel has one.
    pub(super) fn populate(&self, watch: &Uffd, stage: usize) -> io::Result<()> {
        // A page that is missing from a stage would be a fault that nobody serves: it comes by way of memory that is not
        // watched.
        let nursery = self.first + (self.count + 1 + stage) * CHUNK_BYTES;
        // SAFETY: memory of the stages, which is the caller's, and holds nothing.
        unsafe { discard(&[(nursery, CHUNK_BYTES)]) };
        // SAFETY: as above.
        let result =
            unsafe { libc::syscall(libc::SYS_madvise, nursery, CHUNK_BYTES, libc::MADV_POPULATE_WRITE) };
        let populated = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: nothing is in the stage.
        let moved = populated.and_then(|()| unsafe { carry(watch, self.address(stage), nursery) }.1);
        if moved.is_err() {
            // SAFETY: as above; what is in either is nobody's.
            unsafe { discard(&[(nursery, CHUNK_BYTES), (self.address(stage), CHUNK_BYTES)]) };
        }
        moved?;
        self.set_holds(stage, true);
        Ok(())
    }

    /// Gives back what a stage, the caller's, has of memory.
    pub(super) fn drop_page(&self, stage: usize) {
        // SAFETY: the stage is the caller's, and what it holds is nobody's.
        unsafe { discard(&[(self.address(stage), CHUNK_BYTES)]) };
        if stage < self.count {
            self.set_holds(stage, false);
        }
    }
}

impl Stage {
    fn enter(&mut self, state: State) {
        self.state = state;
        self.since = Instant::now();
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        let (start, len) = self.mapping;
        if len > 0 {
            // SAFETY: mapped in `map` with this length, unmapped once; nobody has a stage any more.
            unsafe { libc::syscall(libc::SYS_munmap, start, len) };
        }
    }
}

/// Moves a chunk's pages to where none are, as one huge page if they are one. Returns how many bytes have moved, and
/// what stopped it.
///
/// # Safety
/// Nothing is at `to`.
pub(super) unsafe fn carry(watch: &Uffd, to: usize, from: usize) -> (usize, io::Result<()>) {
    // A fault, even one that brought nothing, leaves a table of small pages behind, into which a huge page cannot move.
    // Dropping nothing drops that (Linux 6.14); where it does not, 512 small pages move.
    // SAFETY: the caller's promise.
    unsafe { discard(&[(to, CHUNK_BYTES)]) };
    watch.transfer(to, from, CHUNK_BYTES)
}

/// The kernel's version.
fn linux() -> Option<(u32, u32)> {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().ok()?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Memory for so many stages, one for what leaves, and as many again to get pages from: the mapping, and where stages
/// begin. A forked child does not have it.
fn map(watch: &Uffd, count: usize) -> io::Result<((usize, usize), usize)> {
    let stages = (count + 1) * CHUNK_BYTES;
    let bytes = stages + count * CHUNK_BYTES;
    let len = bytes + CHUNK_BYTES;
    // SAFETY: a new anonymous mapping. By number, for a library that stands before `mmap` itself.
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
            // SAFETY: memory of the new mapping, which nobody uses yet.
            if unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // Not for protection: what moves in from elsewhere may be marked as protected.
        watch.register_missing(first, stages)
    };
    match prepare() {
        Ok(()) => Ok(((start, len), first)),
        Err(error) => {
            // SAFETY: the new mapping, used no more.
            unsafe { libc::syscall(libc::SYS_munmap, start, len) };
            Err(error)
        }
    }
}
