//! The memory of the stages, and the waiting for orders. Core decides which stage is used for what; see
//! `deepram_core::paging::stages`.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deepram_core::paging::stages::{StageOrder, StageTable, stages_of};

use super::fatal::discard;
use super::page_table::CHUNK_BYTES;
use deepram_linux::descriptors::OpenGuard;
use deepram_linux::lock::lock;
use deepram_linux::uffd::Uffd;

/// The first Linux that keeps the write protection of zero pages when it splits a huge page.
const MIN_LINUX: (u32, u32) = (6, 18);

/// The stages' states, and whether the pager stops.
#[derive(Debug)]
struct SharedTable {
    table: StageTable,
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
    shared: Mutex<SharedTable>,
    /// The table's times count from here.
    started: Instant,
    ordered: Condvar,
    /// Lock of the stage through which chunks leave that no incoming chunk waits for.
    exit: Mutex<()>,
}

impl Stages {
    /// Creates the number of stages that suits the budget of `frames` frames; none if they are not `wanted` or not
    /// possible: memory is then paged in 4 KiB pages only.
    pub(super) fn new(uffd: &Uffd, frames: usize, wanted: bool) -> Self {
        let count = stages_of(frames).filter(|_| wanted);
        let supported =
            count.is_some() && uffd.can_move() && linux().is_some_and(|version| version >= MIN_LINUX);
        let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
        let read = |_opening| std::fs::read_to_string(enabled).unwrap_or_default();
        let setting = if supported { read(OpenGuard::acquire()) } else { String::new() };
        let always = setting.contains("[always]");
        let usable = always || setting.contains("[madvise]");
        let count = count.filter(|_| usable);
        let mapped = count.and_then(|count| Some((map(uffd, count).ok()?, count)));
        let ((mapping, first), count) = mapped.unwrap_or((((0, 0), 0), 0));
        let shared = Mutex::new(SharedTable { table: StageTable::new(count), stopping: false });
        let (ordered, exit) = (Condvar::new(), Mutex::new(()));
        Self { mapping, first, count, always, shared, started: Instant::now(), ordered, exit }
    }

    fn table(&self) -> MutexGuard<'_, SharedTable> {
        lock(&self.shared)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
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
    pub(super) fn lock_exit(&self) -> (MutexGuard<'_, ()>, usize) {
        (lock(&self.exit), self.address(self.count))
    }

    /// Number of the exit stage.
    pub(super) fn exit_stage(&self) -> usize {
        self.count
    }

    /// As [`StageTable::claim`].
    pub(super) fn claim(&self) -> Option<usize> {
        self.table().table.claim(self.now())
    }

    /// As [`StageTable::stale`].
    pub(super) fn stale(&self, age: Duration) -> Option<(usize, usize)> {
        self.table().table.stale(age, self.now())
    }

    /// As [`StageTable::claim_idle`].
    pub(super) fn claim_idle(&self, age: Duration) -> Option<usize> {
        self.table().table.claim_idle(age, self.now())
    }

    /// As [`StageTable::queue_order`].
    pub(super) fn queue_order(&self, stage: usize, chunk: usize) {
        self.table().table.queue_order(stage, chunk, self.now());
        self.ordered.notify_one();
    }

    /// Waits for the next order; `None` when the pager stops.
    pub(super) fn next_order(&self) -> Option<StageOrder> {
        let waiting = |shared: &mut SharedTable| !shared.table.has_orders() && !shared.stopping;
        let shared = self.ordered.wait_while(self.table(), waiting);
        let mut shared = shared.unwrap_or_else(PoisonError::into_inner);
        if shared.stopping { None } else { shared.table.next_order() }
    }

    /// As [`StageTable::next_order`].
    pub(super) fn try_next_order(&self) -> Option<StageOrder> {
        self.table().table.next_order()
    }

    /// As [`StageTable::has_orders`].
    pub(super) fn has_orders(&self) -> bool {
        self.table().table.has_orders()
    }

    pub(super) fn stop(&self) {
        self.table().stopping = true;
        self.ordered.notify_all();
    }

    /// As [`StageTable::begin_order`].
    pub(super) fn begin_order(&self, order: StageOrder) -> bool {
        self.table().table.begin_order(order, self.now())
    }

    /// As [`StageTable::mark_ready`].
    pub(super) fn mark_ready(&self, stage: usize, checksum: u64) {
        self.table().table.mark_ready(stage, checksum, self.now());
    }

    /// As [`StageTable::take_ready`].
    pub(super) fn take_ready(&self, stage: usize) -> Option<u64> {
        self.table().table.take_ready(stage, self.now())
    }

    /// As [`StageTable::release`].
    pub(super) fn release(&self, stage: usize) {
        self.table().table.release(stage, self.now());
    }

    /// As [`StageTable::has_page`].
    pub(super) fn has_page(&self, stage: usize) -> bool {
        self.table().table.has_page(stage)
    }

    /// As [`StageTable::set_has_page`].
    pub(super) fn set_has_page(&self, stage: usize, has_page: bool) {
        self.table().table.set_has_page(stage, has_page);
    }

    /// As [`StageTable::may_use`].
    pub(super) fn may_use(&self, stage: usize, share: usize) -> bool {
        self.table().table.may_use(stage, share)
    }

    /// As [`StageTable::frames`].
    pub(super) fn frames(&self) -> usize {
        self.table().table.frames()
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
