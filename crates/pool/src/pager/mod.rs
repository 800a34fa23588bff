//! The pager: memory of a process that is larger than the DRAM it may use, without a journal behind it.
//!
//! Managed memory is private anonymous memory at whatever address its owner has mapped it. A userfaultfd
//! reports its missing pages; handler threads bring them in; evictor threads take others out ahead of need. The
//! store is a file without a name. What is used in order comes and leaves 2 MiB at a time as huge pages (`huge`), without
//! the waiting room.
//!
//! ```text
//!           first touch            leaves                 written and room wanted
//!   fresh ─────────────► in memory ───────► waiting room ────────────────────────► store
//!                          ▲   ▲  comes back without I/O │                           │
//!                          │   └─────────────────────────┘                           │
//!                          └─────────────────────── read ────────────────────────────┘
//! ```
//!
//! # What holds
//! 1. A page that is clean is write-protected and as on the store. So the first store is seen, and a clean
//!    page leaves without being written.
//! 2. A page leaves only while stores to it wait, or at once by being moved: what goes is its last contents. Where devices may
//!    store to it (`pinned`), which nothing makes wait, it is moved.
//! 3. A fault waits for one page, the one that it needs, and for no write: frames are free ahead of need. Neighbours come with it
//!    where they have been used lately (`around`), if there are frames for them.
//! 4. Frames in memory and in the waiting room are at most the budget's, tables included. If the store
//!    fails or is full, pages stay in memory beyond that, and the pager says so: nothing is lost.
//! 5. A page's state changes under its chunk's lock. Who moves a page holds the ground for reading, so that
//!    who holds it for writing (to map, unmap, fork) finds every page at rest.
//!
//! Lock order: ground, evictor, chunk, room; chunk, policy; chunk, stages; ground, shared table; runs, regions (`around`) by themselves.

mod around;
mod beside;
mod budget;
mod doubts;
mod evict;
mod fatal;
mod fault;
mod fork;
mod handler;
mod huge;
mod jobs;
mod kernel;
mod moves;
mod pinned;
mod ranges;
mod reads;
mod record;
mod remap;
mod returns;
mod room;
mod seats;
mod shared;
mod sharing;
mod spans;
mod stage;
mod stats;
mod store;
mod unmanage;
mod writes;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_huge;

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc,
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepram_core::cache::{AddressOrderClock, Clock2, Fifo, Gclock, Key, Lru, Replacement, S3Fifo, Sieve};

use self::around::Around;
use self::budget::Frames;
use self::doubts::Doubts;
use self::evict::EVICTORS;
use self::fatal::{Alarm, discard, fatal};
use self::handler::{Handler, Handlers, tell};
use self::huge::Advice;
use self::jobs::Jobs;
use self::kernel::Kernel;
use self::ranges::{Layout, Place};
use self::reads::Reads;
use self::record::Recorder;
use self::returns::Returns;
use self::room::Room;
use self::sharing::Sharing;
use self::stage::Stages;
use self::stats::Counters;
use self::store::Store;
use self::writes::Writes;

use crate::ahead::Runs;
use crate::crew::Crew;
use crate::lock::lock;
use crate::signals::spawn;
use crate::uffd::{self, Uffd, WatchMode};

pub use fork::Forking;
pub use record::{Fault, FaultKind, FaultLog};
pub use seats::{Notice, SharedBudget};
pub use shared::{BUDGET_NAME, BudgetReading, BudgetView};
pub use sharing::{can_share, is_in_memory};
pub use spans::Spans;
pub use stats::PagerStats;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Pages of one read ahead of use, and of one fault on fresh memory, at most.
const BATCH: usize = 64;

/// Stack of a thread of the pager: it needs little.
const STACK: usize = 256 << 10;

/// Part of the frames that make up the waiting room. A larger room tells more of what is used, and has more pages
/// come back.
const ROOM_SHARE: usize = 4;

/// Which page leaves when room is needed (`deepram_core::cache`). Use of a page in memory is not seen; what
/// a policy learns of is a page that comes back: it counts as touched as often as it is warm, which doubles each time
/// that it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// A small queue for newcomers, a main one for those that come back.
    S3Fifo,
    /// The one that has been in memory longest.
    Fifo,
    /// The one that came back longest ago.
    Lru,
    /// The oldest that has not come back, as they pass.
    Sieve,
    /// The oldest, after as many rounds as it has come back, up to 3.
    Clock2,
    /// The same, up to 16.
    Gclock,
    /// The next in the order of addresses, after as many rounds as it has come back, up to 16. Measured best
    /// (docs/performance.md): pages that leave together are neighbours, which one call protects.
    #[default]
    Sweep,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 7] = [
        Policy::S3Fifo,
        Policy::Fifo,
        Policy::Lru,
        Policy::Sieve,
        Policy::Clock2,
        Policy::Gclock,
        Policy::Sweep,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::S3Fifo => "s3fifo",
            Policy::Fifo => "fifo",
            Policy::Lru => "lru",
            Policy::Sieve => "sieve",
            Policy::Clock2 => "clock2",
            Policy::Gclock => "gclock",
            Policy::Sweep => "sweep",
        }
    }

    /// An empty one for so many frames.
    pub(crate) fn build<K: Key + Ord + Send + 'static>(
        self,
        frames: usize,
    ) -> Box<dyn Replacement<K> + Send> {
        match self {
            Policy::S3Fifo => Box::new(S3Fifo::new(frames)),
            Policy::Fifo => Box::new(Fifo::new(frames)),
            Policy::Lru => Box::new(Lru::new(frames)),
            Policy::Sieve => Box::new(Sieve::new(frames)),
            Policy::Clock2 => Box::new(Clock2::new(frames)),
            Policy::Gclock => Box::new(Gclock::new(frames)),
            Policy::Sweep => Box::new(AddressOrderClock::new(frames)),
        }
    }
}

/// A name that is no [`Policy`]'s.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is none of {names}", names = Policy::ALL.map(Policy::name).join(", "))]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

/// Starts a thread of this name, which takes no signals.
pub type SpawnThread = fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// How a pager is made.
#[derive(Debug, Clone)]
pub struct PagerOptions {
    /// DRAM in bytes: frames, waiting room, tables.
    pub dram: u64,
    /// Whether `dram` is for all anonymous memory of the process (and of those that share the budget), paged or
    /// not, as far as three quarters of it; if not, it is for what is paged alone.
    pub whole: bool,
    /// Directory of the store, which is a file without a name in it.
    pub directory: PathBuf,
    /// Most bytes of the store.
    pub store_limit: u64,
    /// Who leaves.
    pub policy: Policy,
    /// Threads that serve faults; 0 for as many as are good for the machine.
    pub handlers: usize,
    /// Whether each has many reads under way by io_uring, if the kernel allows it, or one.
    pub ring: bool,
    /// Whether pages are read ahead of use.
    pub ahead: bool,
    /// Whether memory that is used in order comes and leaves as huge pages, where the kernel can move them (Linux 6.18)
    /// and the system does not forbid them; with less than 64 MiB of DRAM, and while faults are recorded, it does not.
    pub huge: bool,
    /// Whether a thread that faults alone is kept on one processor while it does, that of the handler which serves it:
    /// its faults take two thirds of the time so (`docs/adr/0022`). What it starts meanwhile would be kept there for good,
    /// so whoever starts threads or processes does it within [`Pager::unkept`].
    pub keep: bool,
    /// A budget that several processes share, if they do; `dram` is then that of all of them.
    pub shared: Option<&'static SharedBudget>,
    /// A folder for the record of its faults, which [`FaultLog`] reads; none if they are not recorded. If the
    /// folder takes no file, the pager says so on the standard error and works without.
    pub record: Option<PathBuf>,
    /// How threads are started, if not by the standard library. Dropping the pager does not wait for such threads.
    pub spawn: Option<SpawnThread>,
    /// Called ten times a second by a thread of the pager.
    pub look: Option<fn()>,
}

impl PagerOptions {
    /// So much DRAM, and a store in this directory.
    #[must_use]
    pub fn new(dram: u64, directory: impl Into<PathBuf>) -> Self {
        Self {
            dram,
            whole: false,
            directory: directory.into(),
            store_limit: u64::MAX,
            policy: Policy::default(),
            handlers: 0,
            ring: true,
            ahead: true,
            huge: true,
            keep: false,
            shared: None,
            record: None,
            spawn: None,
            look: None,
        }
    }

    /// Whether there are to be huge pages. One fault for 2 MiB would be little to record.
    fn stages(&self) -> bool {
        self.huge && self.ahead && self.record.is_none()
    }
}

/// What who moves pages needs to stand still.
struct Ground {
    layout: Layout,
    watch: Uffd,
    store: Store,
    advice: Advice,
}

struct Inner {
    ground: RwLock<Ground>,
    policy: Mutex<Box<dyn Replacement<u64> + Send>>,
    room: Mutex<Room>,
    stages: Stages,
    runs: Mutex<Runs>,
    around: Around,
    sharing: Sharing,
    jobs: Jobs,
    frames: Frames,
    /// Bytes: the budget.
    dram: AtomicUsize,
    evictor: Mutex<evict::Evictor>,
    returns: Returns,
    doubts: Doubts,
    /// It was forked from a process that is paged too.
    forked: bool,
    /// Memory is shared with processes forked from it, or from which it was forked.
    kin: AtomicBool,
    /// Chunks that are on their way out.
    chunks_leaving: AtomicUsize,
    /// The evictor has work.
    work: (Mutex<bool>, Condvar),
    /// Who of the handlers wakes at a fault; there from their start on.
    crew: OnceLock<Crew>,
    /// There are threads that bring chunks.
    stagers: AtomicBool,
    /// Threads that wait for the ground to be at rest.
    writers: AtomicUsize,
    /// Most bytes of the handlers' buffers; there from their start on.
    buffers: AtomicUsize,
    stopping: AtomicBool,
    /// The store failed when it was last written to.
    overcommitted: AtomicBool,
    /// Devices may store to memory by themselves.
    direct: AtomicBool,
    /// When the pager last said that it did.
    complained: Mutex<Option<Instant>>,
    counters: Counters,
    record: Option<Recorder>,
    kernel: Kernel,
    /// Those of the handlers and evictors.
    descriptors: Mutex<Vec<i32>>,
    /// Pipes that tell the processes whose stores this one reads that it lives.
    lifelines: Vec<i32>,
    options: PagerOptions,
    /// Set by a test that wants others to come in between, where that is rare.
    #[cfg(test)]
    lingering: AtomicBool,
}

/// What a new pager and a forked process's differ in.
struct Parts {
    ground: Ground,
    policy: Box<dyn Replacement<u64> + Send>,
    room: Room,
    sharing: Sharing,
    frames: Frames,
    dram: usize,
    forked: bool,
    direct: bool,
    lifelines: Vec<i32>,
    options: PagerOptions,
}

/// A pager; see the module. Dropping it stops it, and leaves what is managed to the kernel: pages that are
/// not in memory then read as zeros. So whoever has memory managed keeps the pager.
pub struct Pager {
    inner: Arc<Inner>,
    threads: Mutex<Option<Threads>>,
}

/// The threads of a pager.
struct Threads {
    handlers: Handlers,
    others: Vec<Option<JoinHandle<()>>>,
}

/// Whether memory can be paged here at all.
///
/// # Errors
/// The kernel refuses userfaultfd, or lacks write protection by it (Linux 5.7).
pub fn available() -> io::Result<()> {
    Ok(Uffd::new(WatchMode::All).map(drop)?)
}

impl Pager {
    /// A pager that manages nothing yet.
    ///
    /// # Errors
    /// The kernel refuses userfaultfd, the directory takes no file, or the budget is below 4 MiB.
    pub fn new(options: PagerOptions) -> io::Result<Self> {
        if options.dram < 4 << 20 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} bytes of DRAM are too few to page with: at least 4 MiB", options.dram),
            ));
        }
        let frames = options.dram as usize / PAGE;
        let inner = Arc::new(Inner::new(Parts {
            ground: Ground {
                layout: Layout::default(),
                watch: Uffd::lasting(WatchMode::All)?,
                store: Store::create(&options.directory, options.store_limit)?,
                advice: Advice::default(),
            },
            policy: options.policy.build(frames),
            room: Room::new(frames / ROOM_SHARE)?,
            sharing: Sharing::default(),
            frames: Frames::new(frames, options.shared),
            dram: options.dram as usize,
            forked: false,
            direct: false,
            lifelines: Vec::new(),
            options,
        })?);
        let pager = Self { inner, threads: Mutex::new(None) };
        *lock(&pager.threads) = Some(pager.inner.start()?);
        Ok(pager)
    }

    /// Pages this memory from now on. What it holds stays.
    ///
    /// # Errors
    /// The range is not whole pages, or the kernel refuses to watch it.
    ///
    /// # Safety
    /// It is private anonymous memory of this process that its owner unmaps only after [`Pager::release`],
    /// and drops only through [`Pager::drop_contents`]. If it is `fresh`, nobody has touched it.
    pub unsafe fn manage(&self, start: usize, len: usize, fresh: bool) -> io::Result<()> {
        if !start.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) || len == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at {start:#x} are not whole pages of 4 KiB"),
            ));
        }
        let mut ground = self.inner.write();
        self.inner.drop_huge(&ground, start, start + len);
        // SAFETY: changes what faults bring, not contents. The kernel's own huge pages would make one fault bring 2 MiB.
        unsafe { libc::syscall(libc::SYS_madvise, start, len, libc::MADV_NOHUGEPAGE) };
        ground.watch.register(start, len)?;
        ground.layout.add(start, start + len);
        ground.advice.set(start, start + len, None);
        if !fresh {
            self.inner.adopt(&ground, start, len)?;
        }
        Ok(())
    }

    /// Calls `f` while every thread may run where the program lets it. With [`PagerOptions::keep`] whoever starts threads or
    /// processes, or asks where a thread may run, does it so.
    pub fn unkept<T>(&self, f: impl FnOnce() -> T) -> T {
        let _unkept = self.inner.crew.get().map(Crew::hold);
        f()
    }

    /// Whether this address is managed.
    #[must_use]
    pub fn manages(&self, address: usize) -> bool {
        self.inner.read().layout.contains(address)
    }

    /// Whether anything in the range is managed.
    #[must_use]
    pub fn manages_any(&self, start: usize, len: usize) -> bool {
        !self.inner.read().layout.within(start, start.saturating_add(len)).is_empty()
    }

    /// What of the range is managed, as start and end.
    #[must_use]
    pub fn managed(&self, start: usize, len: usize) -> Vec<(usize, usize)> {
        self.inner.read().layout.within(start, start.saturating_add(len))
    }

    /// What of the range is not managed, as start and end.
    #[must_use]
    pub fn unmanaged(&self, start: usize, len: usize) -> Vec<(usize, usize)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, to) in self.inner.read().layout.within(start, start + len) {
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

    /// Calls `unmap` and forgets the range, before any other memory is managed there. Contents are lost, unless `unmap`
    /// returns none: then the mappings stay as they are.
    pub fn release<T>(&self, start: usize, len: usize, unmap: impl FnOnce() -> Option<T>) -> Option<T> {
        let mut ground = self.inner.write();
        let result = unmap();
        match result {
            Some(_) => self.inner.part_with(&mut ground, start, start + len),
            None => self.inner.part_with_unmapped(&mut ground, start, start + len),
        }
        result
    }

    /// Forgets the contents of what is managed in the range: it reads as zeros (`MADV_DONTNEED`).
    pub fn drop_contents(&self, start: usize, len: usize) {
        let mut ground = self.inner.write();
        self.inner.forget(&mut ground, start, start + len, false);
    }

    /// Calls `change`, which takes away or gives the program's own access to the range (`mprotect`).
    pub fn hide<T>(&self, start: usize, len: usize, hidden: bool, change: impl FnOnce() -> T) -> T {
        let ground = self.inner.write();
        self.inner.make_small(&ground, start, start + len);
        for (from, to) in ground.layout.within(start, start + len) {
            ground.layout.every(from, to, |_, page| page.hidden = hidden);
        }
        change()
    }

    /// Moves what is managed of a range to the place to which `remap` moves the mapping; it returns the new
    /// start, or none if the mapping stays. `to` is the new place if it is not the kernel's choice. What is managed there is
    /// forgotten, and so is what a mapping that becomes shorter loses.
    pub fn remap(
        &self,
        from: usize,
        (len, new_len): (usize, usize),
        to: Option<usize>,
        remap: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let mut ground = self.inner.write();
        let moved = self.inner.moved(&mut ground, from, len.min(new_len), remap);
        match (moved, to) {
            (Some(to), _) if new_len > len => self.inner.part_with(&mut ground, to + len, to + new_len),
            (Some(_), _) if new_len < len => self.inner.part_with(&mut ground, from + new_len, from + len),
            (None, Some(to)) => self.inner.part_with_unmapped(&mut ground, to, to + new_len),
            _ => {}
        }
        moved
    }

    /// Brings what is stored of the range into memory, as far as frames allow, in the background.
    pub fn will_need(&self, start: usize, len: usize) {
        self.inner.will_need(start, len);
    }

    /// Brings these pages, given by addresses in them, into memory in the background, as far as they are on the
    /// store: many reads under way at once, one for each page.
    pub fn will_need_pages(&self, addresses: &[usize]) {
        let pages: Vec<usize> = addresses.iter().map(|address| address / PAGE * PAGE).collect();
        self.inner.jobs.pages(&pages);
    }

    /// Whether what is managed in the range is to be huge pages from its first touch on (`MADV_HUGEPAGE`), or never
    /// (`MADV_NOHUGEPAGE`); what is there stays as it is. Where nothing was said, what the system gives to all memory, and
    /// what is used in order, is huge.
    pub fn prefer_huge(&self, start: usize, len: usize, huge: bool) {
        let mut ground = self.inner.write();
        for (from, to) in ground.layout.within(start, start.saturating_add(len)) {
            ground.advice.set(from, to, Some(huge));
        }
    }

    /// Takes the range out of memory, dirty pages to the store first.
    pub fn cold(&self, start: usize, len: usize) {
        self.inner.cold(start, len);
    }

    /// Keeps the range in memory, where it is brought at once, or no longer.
    pub fn pin(&self, start: usize, len: usize, pinned: bool) {
        let ground = self.inner.read();
        for (from, to) in ground.layout.within(start, start + len) {
            if pinned {
                ground.layout.every(from, to, |_, page| page.pinned = true);
            } else {
                ground.layout.each(from, to, |_, page| page.pinned = false);
            }
        }
        drop(ground);
        if pinned {
            self.inner.will_need(start, len);
        }
    }

    /// The budget, in bytes.
    #[must_use]
    pub fn dram(&self) -> usize {
        self.inner.dram.load(Ordering::Relaxed)
    }

    /// Changes the budget, in bytes; takes effect as pages leave.
    pub fn set_dram(&self, bytes: u64) {
        self.inner.dram.store(bytes as usize, Ordering::Relaxed);
        self.inner.nudge();
    }

    /// Counters since it was made.
    #[must_use]
    pub fn stats(&self) -> PagerStats {
        self.inner.stats()
    }

    /// Shows the counters to those that share the budget, and writes out what is recorded; the pager does so by
    /// itself ten times a second.
    pub fn show(&self) {
        self.inner.publish();
    }

    /// Descriptors that must stay open as long as memory is managed.
    #[must_use]
    pub fn descriptors(&self) -> Vec<i32> {
        let ground = self.inner.read();
        let mut all = ground.store.descriptors();
        all.extend(self.inner.serving_descriptors(&ground));
        all.extend(self.inner.sharing.descriptors());
        all.extend(&self.inner.lifelines);
        all.extend(self.inner.frames.descriptors());
        all.extend(self.inner.record.as_ref().map(Recorder::descriptor));
        all
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.inner.stop();
        if let Some(threads) = lock(&self.threads).take() {
            threads.handlers.join();
            for thread in threads.others.into_iter().flatten() {
                // Its panic was reported by the runtime already.
                let _ = thread.join();
            }
        }
    }
}

impl Inner {
    fn new(parts: Parts) -> io::Result<Self> {
        let Parts { ground, policy, room, sharing, frames, dram, forked, direct, lifelines, options } = parts;
        Ok(Self {
            stages: Stages::new(&ground.watch, dram / PAGE, options.stages()),
            ground: RwLock::new(ground),
            policy: Mutex::new(policy),
            room: Mutex::new(room),
            runs: Mutex::default(),
            around: Around::default(),
            sharing,
            jobs: Jobs::new()?,
            frames,
            dram: AtomicUsize::new(dram),
            evictor: Mutex::default(),
            returns: Returns::default(),
            doubts: Doubts::default(),
            forked,
            kin: AtomicBool::new(forked),
            chunks_leaving: AtomicUsize::new(0),
            work: (Mutex::new(false), Condvar::new()),
            crew: OnceLock::new(),
            stagers: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
            buffers: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            overcommitted: AtomicBool::new(false),
            direct: AtomicBool::new(direct),
            complained: Mutex::default(),
            counters: Counters::default(),
            record: Recorder::from_options(&options),
            kernel: Kernel::open(),
            descriptors: Mutex::default(),
            lifelines,
            options,
            #[cfg(test)]
            lingering: AtomicBool::new(false),
        })
    }

    /// Starts the threads, and serves faults until they have begun: a new thread's first steps are the C
    /// library's, which may use managed memory (the locale's tables).
    fn start(self: &Arc<Self>) -> io::Result<Threads> {
        let (begun, all) = mpsc::channel();
        let handlers = Handlers::start(self, &begun)?;
        let mut others = Vec::with_capacity(EVICTORS);
        for n in 0..EVICTORS {
            let (inner, begun) = (Arc::clone(self), begun.clone());
            others.push(self.spawn(format!("deepram-evict-{n}"), move || {
                let mut writes = Writes::new(inner.options.ring);
                lock(&inner.descriptors).extend(writes.raw_fd());
                tell(&begun);
                drop(begun);
                inner.keep_house(n == 0, &mut writes);
            })?);
        }
        drop(begun);
        let mut left = handlers.count() + others.len();
        let mut handler = Handler::new(self, Reads::new(false, 1), self.seat(0));
        while left > 0 {
            match all.recv_timeout(Duration::from_micros(100)) {
                Ok(()) => left -= 1,
                Err(mpsc::RecvTimeoutError::Timeout) => while handler.step() {},
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(Threads { handlers, others })
    }

    /// Starts a thread of the pager; `None` where the options say how, and it cannot be waited for.
    fn spawn(
        &self,
        name: impl Into<String>,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Option<JoinHandle<()>>> {
        let body = || {
            let _alarm = Alarm;
            body();
        };
        match self.options.spawn {
            Some(spawn) => spawn(&name.into(), Box::new(body)).map(|()| None),
            None => spawn(name, Some(STACK), body).map(Some),
        }
    }

    /// Descriptors that its threads use.
    fn serving_descriptors(&self, ground: &Ground) -> Vec<i32> {
        let mut all: Vec<i32> = ground.watch.descriptors().collect();
        all.extend(self.jobs.descriptors());
        all.extend(self.kernel.descriptors());
        all.extend(lock(&self.descriptors).iter());
        all
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.nudge();
        self.jobs.stop();
        self.stages.stop();
    }

    #[cfg(test)]
    fn linger(&self) {
        if self.lingering.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Ground> {
        self.ground.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Ground> {
        self.writers.fetch_add(1, Ordering::Relaxed);
        let ground = self.ground.write().unwrap_or_else(PoisonError::into_inner);
        self.writers.fetch_sub(1, Ordering::Relaxed);
        ground
    }

    /// Tells the evictors that there may be something to do.
    fn nudge(&self) {
        *lock(&self.work.0) = true;
        self.work.1.notify_all();
    }

    /// Forgets pages' contents; `gone`: their frames go with the mapping.
    fn forget(&self, ground: &mut Ground, start: usize, end: usize, gone: bool) {
        self.drop_huge(ground, start, end);
        let mut resident = Vec::new();
        let mut room = self.room();
        let Ground { layout, store, .. } = &mut *ground;
        for (from, to) in layout.within(start, end) {
            layout.each(from, to, |address, page| {
                match page.place {
                    Place::Fresh => {}
                    Place::Clean(slot) => {
                        store.give_up(slot);
                        resident.push(address);
                    }
                    Place::Dirty => resident.push(address),
                    Place::Stored(slot) => store.give_up(slot),
                    Place::Waiting(number) => {
                        if let Some(slot) = room.frame(number).slot {
                            store.give_up(slot);
                        }
                        room.leave(number);
                        self.frames.give(1);
                    }
                    // Nothing moves while the ground is held for writing.
                    Place::Coming | Place::Leaving => fatal(format_args!("{page:?} moves at {address:#x}")),
                }
                *page = ranges::Page { pinned: page.pinned, hidden: page.hidden, ..ranges::Page::default() };
            });
        }
        drop(room);
        if !gone {
            let spans: Vec<_> =
                layout.within(start, end).iter().map(|(from, to)| (*from, to - from)).collect();
            // SAFETY: managed memory, whose owner wants its contents dropped.
            unsafe { discard(&spans) };
        }
        let mut policy = lock(&self.policy);
        for address in &resident {
            policy.remove((address / PAGE) as u64);
        }
        drop(policy);
        self.frames.give(resident.len());
    }

    /// Forgets all about the range, which is unmapped.
    fn part_with(&self, ground: &mut Ground, start: usize, end: usize) {
        self.forget(ground, start, end, true);
        ground.layout.remove(start, end);
        ground.advice.set(start, end, None);
    }

    /// The same for what is not mapped any more. Some kernels unmap what was there before they refuse what was to be there
    /// instead.
    fn part_with_unmapped(&self, ground: &mut Ground, start: usize, end: usize) {
        for (from, to) in ground.layout.within(start, end) {
            if !uffd::is_mapped(from, to - from) {
                self.part_with(ground, from, to);
            }
        }
    }

    /// Takes note of what is in memory already of a range that has just come under management.
    fn adopt(&self, ground: &Ground, start: usize, len: usize) -> io::Result<()> {
        let mut there = vec![0u8; len / PAGE];
        // SAFETY: `there` has a byte for each page of the range.
        let result = unsafe { libc::syscall(libc::SYS_mincore, start, len, there.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut keys = Vec::new();
        ground.layout.every(start, start + len, |address, page| {
            if there[(address - start) / PAGE] & 1 == 1 && page.place == Place::Fresh {
                page.place = Place::Dirty;
                keys.push((address / PAGE) as u64);
            }
        });
        self.frames.take(keys.len());
        let mut policy = lock(&self.policy);
        keys.into_iter().for_each(|key| policy.insert(key));
        drop(policy);
        self.nudge();
        Ok(())
    }
}

/// Neighbouring pages, sorted, as ranges (start, length).
fn runs_of(sorted: &[usize]) -> Vec<(usize, usize)> {
    sorted.chunk_by(|a, b| a + PAGE == *b).map(|run| (run[0], run.len() * PAGE)).collect()
}
