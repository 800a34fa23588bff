//! The stages under a lock, and the waiting for orders. Core decides which stage is used for what; see
//! `deepram_core::paging::stages`. Their memory: `deepram_linux::stage_memory`.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deepram_core::paging::stages::{StageOrder, StageTable, stages_of};

use super::fatal::call_failed;
use super::page_table::CHUNK_BYTES;
use deepram_linux::lock::lock;
use deepram_linux::stage_memory::StageMemory;
use deepram_linux::uffd::Uffd;

/// The stages' states, and whether the pager stops.
#[derive(Debug)]
struct SharedTable {
    table: StageTable,
    stopping: bool,
}

/// All stages of a pager.
#[derive(Debug)]
pub(super) struct Stages {
    /// `None`: there are no stages.
    memory: Option<StageMemory>,
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
        let memory = stages_of(frames).filter(|_| wanted).and_then(|count| StageMemory::new(uffd, count));
        let table = StageTable::new(memory.as_ref().map_or(0, StageMemory::count));
        let shared = Mutex::new(SharedTable { table, stopping: false });
        let (ordered, exit) = (Condvar::new(), Mutex::new(()));
        Self { memory, shared, started: Instant::now(), ordered, exit }
    }

    fn table(&self) -> MutexGuard<'_, SharedTable> {
        lock(&self.shared)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether there are stages.
    pub(super) fn any(&self) -> bool {
        self.memory.is_some()
    }

    /// Number of stages.
    pub(super) fn count(&self) -> usize {
        self.memory.as_ref().map_or(0, StageMemory::count)
    }

    /// Whether the system gives huge pages to all fresh memory.
    pub(super) fn always(&self) -> bool {
        self.memory.as_ref().is_some_and(StageMemory::always)
    }

    /// The memory of the stages. Only a pager that has stages claims one.
    pub(super) fn memory(&self) -> &StageMemory {
        self.memory.as_ref().expect("a claimed stage has memory")
    }

    /// Address of a stage.
    pub(super) fn address(&self, stage: usize) -> usize {
        self.memory().address(stage)
    }

    /// Locks the exit stage. Returns its lock and its address.
    pub(super) fn lock_exit(&self) -> (MutexGuard<'_, ()>, usize) {
        (lock(&self.exit), self.address(self.exit_stage()))
    }

    /// Number of the exit stage.
    pub(super) fn exit_stage(&self) -> usize {
        self.count()
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

    /// Gives a claimed stage without a page a page of zeros.
    pub(super) fn populate(&self, uffd: &Uffd, stage: usize) -> io::Result<()> {
        self.memory().populate(uffd, stage)?;
        self.set_has_page(stage, true);
        Ok(())
    }

    /// Returns the memory of a claimed stage to the kernel.
    pub(super) fn drop_page(&self, stage: usize) {
        if let Err(error) = self.memory().discard(stage) {
            call_failed("madvise(MADV_DONTNEED)", self.address(stage), CHUNK_BYTES, &error);
        }
        if stage < self.count() {
            self.set_has_page(stage, false);
        }
    }
}
