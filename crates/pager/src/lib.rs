//! The pager: memory of a process that is larger than the DRAM it may use, without a journal behind it.
//!
//! Managed memory is private anonymous memory at any address where its owner has mapped it. A userfaultfd reports its
//! missing pages; handler threads bring them in; evictor threads take pages out ahead of need. The swap file has no
//! name. Memory that is used in order enters and leaves 2 MiB at a time as huge pages (`huge_pages`), without the
//! victim buffer.
//!
//! ```text
//!           first touch           eviction                written, and frame needed
//!   fresh ─────────────► in memory ───────► victim buffer ────────────────────────► swap file
//!                          ▲   ▲  second chance   │                                     │
//!                          │   └──────────────────┘                                     │
//!                          └─────────────────────────── read ───────────────────────────┘
//! ```
//!
//! # Invariants
//! 1. A clean page equals its copy in the swap file until a store changes it, which its checksum shows as it leaves
//!    (`checksum`). It is write-protected instead, so that its first store is seen, in a clean huge page, while accesses are
//!    recorded, and where devices may store to the page. A page that is still equal leaves without being written.
//! 2. A page leaves only while stores to it wait, or atomically by being moved: the copy holds its last contents. Where
//!    devices may store to the page (`direct_io`), which nothing delays, it is moved.
//! 3. A fault waits for one page, the page that it needs, and for no write: frames are free ahead of need. Neighbours
//!    are read with it where they have been used recently (core's `paging::fault_around`), if there are frames for them.
//! 4. Frames in memory and in the victim buffer, tables included, never exceed the budget. If the swap file fails or is
//!    full, pages stay in memory beyond the budget, and the pager reports it: no page is lost.
//! 5. A page's state changes under its chunk's lock. Moving a page takes the address-space lock shared; map, unmap and
//!    fork take it exclusively, so no page is in transit then.
//!
//! Lock order: address space, evictor, chunk, victim buffer; chunk, policy, drop-behind; chunk, stages; address space, shared
//! table.
//! The locks of the readahead streams and of the fault-around regions are taken last and one at a time.

mod budget;
mod budget_members;
mod budget_memory;
mod budget_wakeups;
mod checksum;
mod direct_io;
mod eviction;
mod fatal;
mod fault;
mod fault_recorder;
mod fork;
mod heuristics;
mod huge_page_move;
mod huge_page_staging;
mod huge_pages;
mod page_table;
mod parent_memory;
mod proc_files;
mod readahead_queue;
mod remap;
pub mod service;
mod shared_memory;
mod spans;
mod stats;
mod stop_managing;
mod swap_backing;
mod swap_file;
mod unpaged_memory;
mod victim_buffer;
mod write_back;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_clean_pages;
#[cfg(test)]
mod tests_forks;
#[cfg(test)]
mod tests_huge_pages;

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepram_core::paging::victim_buffer::{frames_of_buffer, frames_of_writes, frames_while_recording};
use deepram_core::paging::{DropBehind, FaultAround, ForkPolicy, Streams, SwapWatermarks};

use self::budget::Frames;
use self::fatal::{AbortOnPanic, discard, fatal};
use self::huge_page_staging::Stages;
use self::huge_pages::HugePageAdvice;
use self::page_table::{PageState, PageTable};
use self::parent_memory::ParentMemory;
use self::proc_files::ProcFiles;
use self::readahead_queue::ReadRequest;
use self::service::{
    BATCH, GroupHandle, Handler, HandlerGroup, HandlerPlan, Handlers, ReadPlan, ReadRequests,
};
use self::shared_memory::SharedMemory;
use self::stats::Counters;
use self::swap_file::SwapFile;
use self::victim_buffer::VictimBuffer;
use self::write_back::WriteBack;

use deepram_linux::lock::lock;
use deepram_linux::message::ShownError;
use deepram_linux::signals::spawn;
use deepram_linux::uffd::{self, Uffd, WatchMode, resident_pages};
use deepram_linux::work_queue::WorkQueue;

pub use deepram_core::paging::PagerPolicy;

pub use budget_members::{Notice, SharedBudget};
pub use budget_memory::{BUDGET_NAME, BudgetReading, BudgetView};
pub use checksum::contents_checksum;
pub use fault_recorder::{Fault, FaultKind, FaultLog, Recorder};
pub use fork::ForkGuard;
pub use heuristics::{Heuristic, Heuristics};
pub use shared_memory::{can_share, is_in_memory};
pub use spans::Spans;
pub use stats::{PagerStats, add};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Stack of a pager thread in bytes.
const STACK: usize = 256 << 10;

/// Starts a thread with this name and all signals blocked.
pub type SpawnThread = fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Options of a pager.
#[derive(Debug, Clone)]
pub struct PagerOptions {
    /// DRAM budget in bytes: frames in memory, victim buffer and tables.
    pub dram: u64,
    /// Whether `dram` covers all anonymous memory of the process (and of the processes that share the budget), paged or
    /// not, up to three quarters of `dram`; otherwise it covers paged memory only.
    pub whole_process: bool,
    /// Directory of the swap file, which is a file without a name in it.
    pub directory: PathBuf,
    /// Largest size of the swap file in bytes.
    pub store_limit: u64,
    /// Replacement policy.
    pub policy: PagerPolicy,
    /// Number of handler threads; 0 chooses it for the machine.
    pub handlers: usize,
    /// Whether each handler has many reads in flight by io_uring, if the kernel allows it, instead of one.
    pub io_uring: bool,
    /// Whether pages are read ahead of use.
    pub readahead: bool,
    /// Whether memory that is used in order enters and leaves as huge pages. Needs a kernel that can move huge pages
    /// (Linux 6.18) and a system that does not forbid them. There are no huge pages with less than 64 MiB of DRAM, or
    /// while faults are recorded.
    pub huge_pages: bool,
    /// Whether a thread that faults alone, and threads that mostly wait for faults, are pinned to the processor of one
    /// handler in that time: their faults then take less time (`docs/adr/0022`) and less processor time (`docs/adr/0058`).
    /// A thread or process that a pinned thread starts would stay pinned for good, so the program must start threads and
    /// processes within [`Pager::without_pinning`].
    pub pin_faulting_threads: bool,
    /// Other heuristics that are turned off ([`PagerOptions::without`]).
    pub off: Heuristics,
    /// The budget that several processes share, if they do; `dram` is then the budget of all of them together.
    pub shared_budget: Option<&'static SharedBudget>,
    /// Directory for the record of the page faults, which [`FaultLog`] reads; `None` records nothing. If no file can be
    /// created there, the pager reports that on standard error and works without a record.
    pub record_faults_to: Option<PathBuf>,
    /// Whether the record has nearly all uses of pages, and not only the faults that paging needs: few pages stay in memory, the
    /// others are in the victim buffer; pages come in one at a time.
    pub record_accesses: bool,
    /// Starts the pager's threads; `None` uses the standard library. Dropping the pager does not wait for threads
    /// started so.
    pub spawn_thread: Option<SpawnThread>,
    /// Called ten times a second by a thread of the pager.
    pub periodic: Option<fn()>,
}

impl PagerOptions {
    /// Default options with a budget of `dram` bytes and a swap file in `directory`.
    #[must_use]
    pub fn new(dram: u64, directory: impl Into<PathBuf>) -> Self {
        Self {
            dram,
            whole_process: false,
            directory: directory.into(),
            store_limit: u64::MAX,
            policy: PagerPolicy::default(),
            handlers: 0,
            io_uring: true,
            readahead: true,
            huge_pages: true,
            pin_faulting_threads: false,
            off: Heuristics::default(),
            shared_budget: None,
            record_faults_to: None,
            record_accesses: false,
            spawn_thread: None,
            periodic: None,
        }
    }

    /// Largest number of frames in the victim buffer of a process with `frames` frames.
    fn frames_of_victim_buffer(&self, frames: usize, shares_with_fork: bool) -> usize {
        if self.record_accesses {
            return frames_while_recording(frames);
        }
        if self.off.contains(Heuristic::SecondChance) {
            return frames_of_writes(frames);
        }
        frames_of_buffer(frames, shares_with_fork)
    }

    /// Whether to use huge pages. A fault for 2 MiB would leave little to record.
    fn wants_huge_pages(&self) -> bool {
        self.huge_pages && self.readahead && self.record_faults_to.is_none()
    }
}

/// The tables and descriptors that must not change while a page is in transit; see invariant 5 of the module.
struct AddressSpace {
    page_table: PageTable,
    uffd: Uffd,
    swap_file: SwapFile,
    advice: HugePageAdvice,
    /// In a forked child that may read its parent's memory.
    parent_memory: Option<ParentMemory>,
}

struct Inner {
    space: RwLock<AddressSpace>,
    policy: Mutex<ForkPolicy<u64>>,
    drop_behind: Mutex<DropBehind>,
    victim_buffer: Mutex<VictimBuffer>,
    stages: Stages,
    streams: Mutex<Streams>,
    /// Block sizes of misses, and of second chances.
    fault_around: Mutex<FaultAround>,
    return_around: Mutex<FaultAround>,
    shared_memory: SharedMemory,
    readahead_queue: WorkQueue<ReadRequest>,
    frames: Frames,
    /// The budget in bytes.
    dram: AtomicUsize,
    evictor: Mutex<eviction::EvictorState>,
    /// Whether this process was forked from a process that is paged too.
    forked: bool,
    /// Whether memory is shared with processes forked from this one, or with its parent.
    shares_with_fork: AtomicBool,
    /// Number of huge pages that are being evicted.
    evicting_chunks: AtomicUsize,
    /// Chooses which handlers a fault wakes; set when the handlers start.
    handler_group: OnceLock<Arc<HandlerGroup>>,
    /// Whether stager threads have been started.
    stagers: AtomicBool,
    /// Number of threads that wait for the address-space lock exclusively.
    waiting_exclusive: AtomicUsize,
    /// Largest size of the handlers' buffers in bytes; set when the handlers start.
    buffers: AtomicUsize,
    stopping: AtomicBool,
    /// Whether the last write to the swap file failed.
    swap_failing: AtomicBool,
    /// Whether devices may store to memory by direct I/O.
    direct_io: AtomicBool,
    /// Time of the last message about a failed write.
    last_complaint: Mutex<Option<Instant>>,
    counters: Counters,
    record: Option<Recorder>,
    proc_files: ProcFiles,
    /// Descriptors of the handlers and evictors.
    descriptors: Mutex<Vec<i32>>,
    /// Write ends of pipes. They show the ancestors, whose swap files this process reads, that it is alive.
    alive_pipes: Vec<i32>,
    options: PagerOptions,
    /// Set by tests to delay steps where other threads rarely come in between.
    #[cfg(test)]
    test_delays: AtomicBool,
}

/// The parts in which a new pager and a forked child's pager differ.
struct PagerParts {
    space: AddressSpace,
    policy: ForkPolicy<u64>,
    victim_buffer: VictimBuffer,
    shared_memory: SharedMemory,
    frames: Frames,
    dram: usize,
    forked: bool,
    direct_io: bool,
    alive_pipes: Vec<i32>,
    options: PagerOptions,
}

/// A pager; see the module. Dropping it stops it and leaves managed memory to the kernel: pages that are not in memory
/// then read as zeros. So the owner of managed memory must keep the pager.
pub struct Pager {
    inner: Arc<Inner>,
    threads: Mutex<Option<Threads>>,
}

/// The threads of a pager.
struct Threads {
    handlers: Handlers,
    evictors: Vec<Option<JoinHandle<()>>>,
}

/// Checks whether memory can be paged on this system.
///
/// # Errors
/// The kernel refuses userfaultfd, or lacks its write protection (Linux 5.7).
pub fn available() -> io::Result<()> {
    Ok(Uffd::new(WatchMode::All).map(drop)?)
}

impl Pager {
    /// Creates a pager that manages no memory yet.
    ///
    /// # Errors
    /// The kernel refuses userfaultfd, no file can be created in the directory, or the budget is below 4 MiB.
    pub fn new(options: PagerOptions) -> io::Result<Self> {
        if options.dram < 4 << 20 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a DRAM budget of {} bytes is too small: the pager needs at least 4 MiB",
                    options.dram
                ),
            ));
        }
        let frames = options.dram as usize / PAGE;
        let inner = Arc::new(Inner::new(PagerParts {
            space: AddressSpace {
                page_table: PageTable::default(),
                uffd: Uffd::new_inheritable(WatchMode::All)?,
                swap_file: SwapFile::create(&options.directory, options.store_limit)?,
                advice: HugePageAdvice::default(),
                parent_memory: None,
            },
            policy: ForkPolicy::new(options.policy.build(frames)),
            victim_buffer: VictimBuffer::new(options.frames_of_victim_buffer(frames, false))?,
            shared_memory: SharedMemory::default(),
            frames: Frames::new(frames, options.shared_budget),
            dram: options.dram as usize,
            forked: false,
            direct_io: false,
            alive_pipes: Vec::new(),
            options,
        })?);
        let pager = Self { inner, threads: Mutex::new(None) };
        *lock(&pager.threads) = Some(pager.inner.start()?);
        Ok(pager)
    }

    /// Starts to page a range of memory. Its contents are kept.
    ///
    /// # Errors
    /// The range is not whole pages, or the kernel refuses to register it.
    ///
    /// # Safety
    /// The range is private anonymous memory of this process. Its owner unmaps it only through [`Pager::release`], and
    /// drops its contents only through [`Pager::drop_contents`]. If it is `fresh`, no thread has touched it.
    pub unsafe fn manage(&self, start: usize, len: usize, fresh: bool) -> io::Result<()> {
        if !start.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) || len == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at {start:#x} are not whole pages of 4 KiB"),
            ));
        }
        let mut space = self.inner.write();
        self.inner.drop_huge_pages(&space, start, start + len);
        // SAFETY: changes how faults are served, not contents. A huge page of the kernel's would make one fault bring
        // in 2 MiB.
        unsafe { libc::syscall(libc::SYS_madvise, start, len, libc::MADV_NOHUGEPAGE) };
        space.uffd.register(start, len)?;
        space.page_table.add(start, start + len);
        space.advice.set(start, start + len, None);
        if !fresh {
            self.inner.track_resident(&space, start, len)?;
        }
        Ok(())
    }

    /// Calls `f` while every thread has its own affinity mask. With [`PagerOptions::pin_faulting_threads`], the program must
    /// start threads and processes, and read or set affinity, through this function.
    pub fn without_pinning<T>(&self, f: impl FnOnce() -> T) -> T {
        let _pinning = self.inner.handler_group.get().map(|group| group.suspend_pinning());
        f()
    }

    /// Whether this address is managed.
    #[must_use]
    pub fn manages(&self, address: usize) -> bool {
        self.inner.read().page_table.contains(address)
    }

    /// Whether any part of the range is managed.
    #[must_use]
    pub fn manages_any(&self, start: usize, len: usize) -> bool {
        !self.inner.read().page_table.within(start, start.saturating_add(len)).is_empty()
    }

    /// The managed parts of the range, as (start, end).
    #[must_use]
    pub fn managed(&self, start: usize, len: usize) -> Vec<(usize, usize)> {
        self.inner.read().page_table.within(start, start.saturating_add(len))
    }

    /// The parts of the range that are not managed, as (start, end).
    #[must_use]
    pub fn unmanaged(&self, start: usize, len: usize) -> Vec<(usize, usize)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, to) in self.inner.read().page_table.within(start, start + len) {
            if at < from {
                gaps.push((at, from));
            }
            at = to;
        }
        if at < start + len {
            gaps.push((at, start + len));
        }
        gaps
    }

    /// Calls `unmap` and stops managing the range, before other memory can be managed there. The contents are lost,
    /// unless `unmap` returns `None`: then the mappings stay managed.
    pub fn release<T>(&self, start: usize, len: usize, unmap: impl FnOnce() -> Option<T>) -> Option<T> {
        let mut space = self.inner.write();
        let result = unmap();
        match result {
            Some(_) => self.inner.forget_unmapped(&mut space, start, start + len),
            None => self.inner.forget_if_unmapped(&mut space, start, start + len),
        }
        result
    }

    /// Drops the contents of the managed parts of the range: they read as zeros (`MADV_DONTNEED`).
    pub fn drop_contents(&self, start: usize, len: usize) {
        let mut space = self.inner.write();
        self.inner.discard_contents(&mut space, start, start + len, false);
    }

    /// Calls `change`, which removes or restores the program's own access to the range (`mprotect`). The pager copies
    /// `unreadable` pages through the kernel.
    pub fn set_unreadable<T>(
        &self,
        start: usize,
        len: usize,
        unreadable: bool,
        change: impl FnOnce() -> T,
    ) -> T {
        let space = self.inner.write();
        self.inner.split_range(&space, start, start + len);
        for (from, to) in space.page_table.within(start, start + len) {
            space.page_table.each(from, to, |_, page| page.unreadable = unreadable);
        }
        change()
    }

    /// Moves the managed parts of a range along with the mapping: `remap` moves the mapping and returns its new start,
    /// or `None` if it stays. `to` is the new address, unless the kernel chooses it. Memory managed at the new address
    /// is forgotten, and so is the part that a shorter mapping loses.
    pub fn remap(
        &self,
        from: usize,
        (len, new_len): (usize, usize),
        to: Option<usize>,
        remap: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let mut space = self.inner.write();
        let moved = self.inner.remap_range(&mut space, from, len.min(new_len), remap);
        match (moved, to) {
            (Some(to), _) if new_len > len => self.inner.forget_unmapped(&mut space, to + len, to + new_len),
            (Some(_), _) if new_len < len => {
                self.inner.forget_unmapped(&mut space, from + new_len, from + len)
            }
            (None, Some(to)) => self.inner.forget_if_unmapped(&mut space, to, to + new_len),
            _ => {}
        }
        moved
    }

    /// Brings the stored pages of the range into memory in the background, as far as frames allow.
    pub fn will_need(&self, start: usize, len: usize) {
        self.inner.will_need(start, len);
    }

    /// Brings the pages that contain these addresses into memory in the background, if they are in the swap file: many
    /// reads in flight at once, one for each page.
    pub fn will_need_pages(&self, addresses: &[usize]) {
        let pages: Vec<usize> = addresses.iter().map(|address| address / PAGE * PAGE).collect();
        self.inner.request_pages(&pages);
    }

    /// Sets whether the managed parts of the range become huge pages from their first touch on (`MADV_HUGEPAGE`), or
    /// never (`MADV_NOHUGEPAGE`). Pages in memory stay as they are. Without advice, memory is huge where the system
    /// gives huge pages to all memory, and where it is used in order.
    pub fn prefer_huge(&self, start: usize, len: usize, huge: bool) {
        let mut space = self.inner.write();
        for (from, to) in space.page_table.within(start, start.saturating_add(len)) {
            space.advice.set(from, to, Some(huge));
        }
    }

    /// Evicts the range; dirty pages are written to the swap file first.
    pub fn evict_range(&self, start: usize, len: usize) {
        self.inner.evict_range(start, len);
    }

    /// Pins the range: brings it into memory at once and keeps it there. Unpins it if not `pinned`.
    pub fn pin(&self, start: usize, len: usize, pinned: bool) {
        let space = self.inner.read();
        for (from, to) in space.page_table.within(start, start + len) {
            if pinned {
                space.page_table.each(from, to, |_, page| page.pinned = true);
            } else {
                space.page_table.each_known(from, to, |_, page| page.pinned = false);
            }
        }
        drop(space);
        if pinned {
            self.inner.will_need(start, len);
        }
    }

    /// The budget in bytes.
    #[must_use]
    pub fn dram(&self) -> usize {
        self.inner.dram.load(Ordering::Relaxed)
    }

    /// Changes the budget, in bytes; it takes effect as pages leave.
    pub fn set_dram(&self, bytes: u64) {
        self.inner.dram.store(bytes as usize, Ordering::Relaxed);
        self.inner.wake_evictors();
    }

    /// Counters since the pager was created.
    #[must_use]
    pub fn stats(&self) -> PagerStats {
        self.inner.stats()
    }

    /// Publishes the counters to the processes that share the budget, and writes out recorded faults. The pager also
    /// does this by itself ten times a second.
    pub fn publish_stats(&self) {
        self.inner.publish();
    }

    /// Descriptors that must stay open as long as memory is managed.
    #[must_use]
    pub fn descriptors(&self) -> Vec<i32> {
        let space = self.inner.read();
        let mut all = space.swap_file.descriptors();
        all.extend(self.inner.thread_descriptors(&space));
        all.extend(self.inner.shared_memory.descriptors());
        all.extend(&self.inner.alive_pipes);
        all.extend(self.inner.frames.descriptors());
        all.extend(self.inner.record.as_ref().map(Recorder::descriptor));
        all
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.inner.stop();
        if let Some(threads) = lock(&self.threads).take() {
            drop(threads.handlers);
            for thread in threads.evictors.into_iter().flatten() {
                // The runtime has reported a panic of the thread already.
                let _ = thread.join();
            }
        }
    }
}

impl Inner {
    fn new(parts: PagerParts) -> io::Result<Self> {
        let PagerParts {
            space,
            policy,
            victim_buffer,
            shared_memory,
            frames,
            dram,
            forked,
            direct_io,
            alive_pipes,
            options,
        } = parts;
        Ok(Self {
            stages: Stages::new(&space.uffd, dram / PAGE, options.wants_huge_pages()),
            space: RwLock::new(space),
            policy: Mutex::new(policy),
            drop_behind: Mutex::default(),
            victim_buffer: Mutex::new(victim_buffer),
            streams: Mutex::default(),
            fault_around: Mutex::new(FaultAround::of_swap()),
            return_around: Mutex::new(FaultAround::of_swap()),
            shared_memory,
            readahead_queue: WorkQueue::new()?,
            frames,
            dram: AtomicUsize::new(dram),
            evictor: Mutex::default(),
            forked,
            shares_with_fork: AtomicBool::new(forked),
            evicting_chunks: AtomicUsize::new(0),
            handler_group: OnceLock::new(),
            stagers: AtomicBool::new(false),
            waiting_exclusive: AtomicUsize::new(0),
            buffers: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            swap_failing: AtomicBool::new(false),
            direct_io: AtomicBool::new(direct_io),
            last_complaint: Mutex::default(),
            counters: Counters::default(),
            record: Recorder::from_options(&options),
            proc_files: ProcFiles::open(),
            descriptors: Mutex::default(),
            alive_pipes,
            options,
            #[cfg(test)]
            test_delays: AtomicBool::new(false),
        })
    }

    /// Starts the threads, and serves faults until all of them have begun: the C library runs the first steps of a new
    /// thread, and may use managed memory for them (the tables of the locale).
    fn start(self: &Arc<Self>) -> io::Result<Threads> {
        let (begun, all) = mpsc::channel();
        let handlers = self.start_handlers(&begun)?;
        let mut evictors = Vec::with_capacity(SwapWatermarks::EVICTORS);
        for n in 0..SwapWatermarks::EVICTORS {
            let (inner, begun) = (Arc::clone(self), begun.clone());
            evictors.push(self.spawn(format!("deepram-evict-{n}"), move || {
                let mut write_back = WriteBack::new(inner.options.io_uring);
                lock(&inner.descriptors).extend(write_back.raw_fd());
                // The receiver is gone if other threads could not be started.
                let _ = begun.send(());
                drop(begun);
                inner.run_evictor(n == 0, &mut write_back);
            })?);
        }
        drop(begun);
        let mut left = handlers.count() + evictors.len();
        let Some(group) = self.handler_group.get() else { unreachable!("the handlers have been started") };
        let requests = ReadRequests::new(None, ReadPlan::new(0, PAGE, false));
        let mut handler = Handler::new(&**self, requests, GroupHandle::new(group, 0));
        while left > 0 {
            match all.recv_timeout(Duration::from_micros(100)) {
                Ok(()) => left -= 1,
                Err(mpsc::RecvTimeoutError::Timeout) => while handler.step(false) {},
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(Threads { handlers, evictors })
    }

    /// Starts the handlers of the fault service. Each sends to `begun` when it has begun.
    fn start_handlers(self: &Arc<Self>, begun: &mpsc::Sender<()>) -> io::Result<Handlers> {
        let ring = |depth| deepram_linux::ring::create(depth, true).filter(|_| self.options.io_uring);
        let plan = HandlerPlan::new(self.options.handlers, self.dram.load(Ordering::Relaxed), PAGE, ring);
        self.buffers.store(plan.buffer_bytes(), Ordering::Relaxed);
        let on_failure =
            Box::new(|call, error: &_| fatal(format_args!("{call} failed ({})", ShownError(error))));
        let handlers = {
            let space = self.read();
            let (requests, uffd) = (self.readahead_queue.ready(), space.uffd.as_fd());
            plan.prepare(requests, uffd, self.options.pin_faulting_threads, on_failure)?
        };
        lock(&self.descriptors).extend(handlers.descriptors());
        // The group is set once for each pager.
        let _ = self.handler_group.set(handlers.group());
        let begun = begun.clone();
        // The receiver is gone if other threads could not be started.
        handlers.start(self, |name, body| self.spawn(name, body), move |_| begun.send(()).unwrap_or(()))
    }

    /// Starts a thread of the pager; returns `None` where the options start it, and it cannot be joined.
    fn spawn(
        &self,
        name: impl Into<String>,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Option<JoinHandle<()>>> {
        let body = || {
            let _guard = AbortOnPanic;
            body();
        };
        match self.options.spawn_thread {
            Some(spawn) => spawn(&name.into(), Box::new(body)).map(|()| None),
            None => spawn(name, Some(STACK), body).map(Some),
        }
    }

    /// Descriptors that the pager's threads use.
    fn thread_descriptors(&self, space: &AddressSpace) -> Vec<i32> {
        let mut all: Vec<i32> = space.uffd.descriptors().collect();
        all.push(self.readahead_queue.ready().as_raw_fd());
        all.extend(self.proc_files.descriptors());
        all.extend(space.parent_memory.iter().map(ParentMemory::descriptor));
        all.extend(lock(&self.descriptors).iter());
        all
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_evictors();
        self.stages.stop();
    }

    #[cfg(test)]
    fn test_delay(&self) {
        if self.test_delays.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes the address-space lock shared, to move pages.
    fn read(&self) -> RwLockReadGuard<'_, AddressSpace> {
        self.space.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the address-space lock exclusively, for map, unmap and fork: no page is in transit then.
    fn write(&self) -> RwLockWriteGuard<'_, AddressSpace> {
        self.waiting_exclusive.fetch_add(1, Ordering::Relaxed);
        let space = self.space.write().unwrap_or_else(PoisonError::into_inner);
        self.waiting_exclusive.fetch_sub(1, Ordering::Relaxed);
        space
    }

    /// Wakes the evictors: there may be pages to evict.
    fn wake_evictors(&self) {
        self.frames.wake_evictors();
    }

    /// Discards the contents of the pages in the range. With `gone`, the frames are freed with their mapping.
    fn discard_contents(&self, space: &mut AddressSpace, start: usize, end: usize, gone: bool) {
        self.drop_huge_pages(space, start, end);
        let mut resident = Vec::new();
        let mut victim_buffer = self.victim_buffer();
        let AddressSpace { page_table, swap_file, .. } = &mut *space;
        for (from, to) in page_table.within(start, end) {
            page_table.each_known(from, to, |address, page| {
                // No page is in transit while the address-space lock is held exclusively.
                let Ok(discarded) = page.state.discard() else {
                    fatal(format_args!("{page:?} at {address:#x} is in transit under the exclusive lock"))
                };
                discarded.slot.into_iter().for_each(|slot| swap_file.free(slot));
                if discarded.resident {
                    resident.push(address);
                }
                if let Some(frame) = discarded.frame {
                    victim_buffer.take(frame).into_iter().for_each(|slot| swap_file.free(slot));
                    self.frames.release(1);
                }
                *page = page_table::PageInfo {
                    pinned: page.pinned,
                    unreadable: page.unreadable,
                    ..page_table::PageInfo::default()
                };
            });
        }
        drop(victim_buffer);
        if !gone {
            let spans: Vec<_> =
                page_table.within(start, end).iter().map(|(from, to)| (*from, to - from)).collect();
            // SAFETY: managed memory, whose owner wants its contents dropped.
            unsafe { discard(&spans) };
        }
        let mut policy = lock(&self.policy);
        for address in &resident {
            policy.remove((address / PAGE) as u64);
        }
        drop(policy);
        self.frames.release(resident.len());
    }

    /// Stops managing a range that is unmapped.
    fn forget_unmapped(&self, space: &mut AddressSpace, start: usize, end: usize) {
        self.discard_contents(space, start, end, true);
        space.page_table.remove(start, end);
        space.advice.set(start, end, None);
    }

    /// As [`Inner::forget_unmapped`], for the parts of the range that are no longer mapped. Some kernels unmap the old
    /// mapping before they refuse the new one.
    fn forget_if_unmapped(&self, space: &mut AddressSpace, start: usize, end: usize) {
        for (from, to) in space.page_table.within(start, end) {
            if !uffd::is_mapped(from, to - from) {
                self.forget_unmapped(space, from, to);
            }
        }
    }

    /// Records which pages of a range that was just registered are in memory already.
    fn track_resident(&self, space: &AddressSpace, start: usize, len: usize) -> io::Result<()> {
        let resident = resident_pages(start, len)?;
        let mut keys = Vec::new();
        space.page_table.each(start, start + len, |address, page| {
            if resident[(address - start) / PAGE] && page.state == PageState::Fresh {
                page.state = PageState::Dirty;
                keys.push((address / PAGE) as u64);
            }
        });
        self.frames.charge(keys.len());
        let mut policy = lock(&self.policy);
        keys.into_iter().for_each(|key| policy.insert(key));
        drop(policy);
        self.wake_evictors();
        Ok(())
    }
}

/// Groups neighbouring pages (sorted addresses) into ranges (start, length).
fn contiguous_ranges(sorted: &[usize]) -> Vec<(usize, usize)> {
    sorted.chunk_by(|a, b| a + PAGE == *b).map(|run| (run[0], run.len() * PAGE)).collect()
}
