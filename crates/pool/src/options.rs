//! Options for creating and opening a pool.

use std::path::PathBuf;

use deepram_core::migration::ThresholdOptions;
use deepram_core::{Bytes, Epoch, Redundancy, Retention, SegmentSize};

use crate::error::{PoolError, Result};
use crate::format::header::WearLimits;
use crate::memory_controller::{MemoryOptions, Selective};
use crate::pool::MemoryFile;
use crate::store::Sizing;
use deepram_metrics::ListenAddress;
use deepram_pager::{Heuristic, PagerPolicy};

/// The layout of a new pool.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Virtual memory of each controller, in bytes; rounded up to whole pages of 64 KiB.
    pub size: u64,
    /// Flash that each controller uses, in bytes. `None`: 2.4 times the memory, and more for pools below 1 GiB (64 MiB
    /// take 164 MiB), so that the state of the last token and a completely new state fit side by side.
    pub flash: Option<u64>,
    /// Memory of each controller that will become persist regions, in bytes. If `flash` is `None`, the pool adds
    /// space for a line log that holds all lines of these regions.
    pub pmem: u64,
    /// The unit that the flash reads and programs, and the block size of the DRAM cache.
    pub segment: SegmentSize,
    /// The tokens that the pool keeps. The pool also gives up the oldest tokens when the device runs full.
    pub retention: Retention,
    /// Address at which the pool is mapped, a multiple of 64 KiB. `None`: the pool chooses an address, which then
    /// stays the same at every opening.
    pub base: Option<u64>,
    /// Whether a block device may be overwritten that holds a pool, a known file system, or a part of a volume. The
    /// signatures of that content are wiped. A device that is mounted or otherwise in use is never overwritten, and
    /// an existing file is never overwritten.
    pub overwrite: bool,
    /// Parity from which damaged segments are rebuilt: each block is divided into data columns, to which parity columns
    /// are added. As many damaged segments of a stripe, or lost columns of a block, can be rebuilt as there are parity
    /// columns. `None`: damage is detected only.
    pub redundancy: Option<Redundancy>,
    /// Bytes that may be written to each device in its life, as its maker rates it (TBW), from which
    /// [`crate::Endurance`] and `deepram pool info` project a lifetime. `None`: unknown.
    pub rated_tbw: Option<u64>,
    /// Bytes written to each device in a day, above which writes wait that no caller waits for. Every opening of the
    /// pool keeps to it; see [`OpenOptions::writes_per_day`]. `None`: no limit.
    pub writes_per_day: Option<u64>,
    /// Memory controllers, which are created beside the journaled ones: byte-addressable memory whose stores are made in
    /// place. Open the pool with their files too.
    pub memory: Vec<MemoryFile>,
}

impl CreateOptions {
    /// Options for a pool of `size` bytes for each controller, with segments of 4 KiB and the last 8 tokens kept.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self {
            size,
            flash: None,
            pmem: 0,
            segment: SegmentSize::K4,
            retention: Retention::KeepLast(8),
            base: None,
            overwrite: false,
            redundancy: None,
            rated_tbw: None,
            writes_per_day: None,
            memory: Vec::new(),
        }
    }

    pub(crate) fn wear_limits(&self) -> WearLimits {
        WearLimits { rated: self.rated_tbw.unwrap_or(0), per_day: self.writes_per_day.unwrap_or(0) }
    }

    pub(crate) fn sizing(&self) -> Sizing {
        Sizing {
            size: self.size,
            flash: self.flash,
            pmem: self.pmem,
            segment: self.segment,
            redundancy: self.redundancy,
        }
    }
}

/// Whether and how the memory of a pool is mapped for use through pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapping {
    /// The pool is mapped, and system calls may access its memory. Opening fails where userfaultfd is unavailable. Do
    /// not read a file opened with `O_DIRECT` into memory of the pool: bytes that the device stores while the page is
    /// being evicted are lost.
    #[default]
    Full,
    /// The pool is mapped for user code only, which needs no privilege. A system call that accesses memory of the
    /// pool which is not resident fails with `EFAULT`.
    UserOnly,
    /// The pool is not mapped: calls such as [`crate::Pool::read`] and [`crate::Pool::write`] are the only access.
    Off,
}

/// How a pool is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// DRAM budget, in bytes: frames, tables and buffers together.
    pub dram: u64,
    /// Whether and how the pool is mapped.
    pub mapping: Mapping,
    /// Address at which the pool is mapped instead of its own. Pointers that are stored in the pool are then wrong.
    pub base: Option<u64>,
    /// The device buffer that [`crate::Pool::load`] and [`crate::Pool::gather`] read through.
    pub loads: LoadOptions,
    /// The threads that handle page faults on the mapped memory.
    pub faults: FaultOptions,
    /// Replacement policy of the DRAM cache. The pool does not see accesses to a resident segment through a pointer: a
    /// policy learns of the first store to a clean segment and of accesses by call.
    pub policy: PagerPolicy,
    /// Opens the pool at this token and discards everything that the log holds after it. Use this to continue with a
    /// damaged log ([`PoolError::LogDamaged`], [`PoolError::LineLogDamaged`]). The log must hold a commit of the
    /// token, or the token must be that of the last checkpoint. Persisted lines are kept as far as they can be read.
    pub at_token: Option<Epoch>,
    /// Bytes written to each device in a day, above which writes wait that no caller waits for: write-back ahead of a
    /// sync, reclamation ahead of need, wear levelling, and checkpoints that only shorten the log. Syncs, persists and
    /// evictions write in any case. `None`: the limit that the pool was created with; 0: no limit.
    pub writes_per_day: Option<u64>,
    /// How memory controllers make memory durable. The default is the best instruction of the processor, and selective
    /// flushing ([`Selective::Auto`]).
    pub memory: MemoryOptions,
    /// Address at which the pool serves its statistics over HTTP while it is open, in the format of Prometheus and as JSON.
    /// `None`: it does not. `deepram top` shows every open pool of its user in any case.
    pub listen: Option<ListenAddress>,
    /// Existing folder for a record of the pool's faults, of which `deepram trace merge` makes a trace: page faults on the mapped
    /// memory, and the accesses by call to absent segments and the first writes to clean ones. Nothing is read or stored as a
    /// huge page then. `None`: nothing is recorded.
    pub record_faults_to: Option<PathBuf>,
}

/// The threads that handle page faults on the mapped memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultOptions {
    /// Number of handler threads, at most 256; 0: chosen for the machine.
    pub handlers: usize,
    /// Whether each handler keeps many reads in flight with io_uring, where the kernel allows it. Otherwise each
    /// handler reads one segment at a time.
    pub io_uring: bool,
    /// Whether the pool reads segments ahead when page faults follow each other at equal distances.
    pub readahead: bool,
    /// Whether a segment that misses is read with its neighbours where these have been used, if `readahead` is on
    /// (`docs/adr/0047`).
    pub fault_around: bool,
    /// Whether handlers poll for completed reads for a while before they sleep.
    pub polling: bool,
    /// Whether memory that is read in order arrives and leaves as huge pages, if `readahead` is on. Needs Linux 6.18, a
    /// budget of 64 MiB, a base that is a multiple of 2 MiB, and a system that does not forbid huge pages
    /// (`docs/adr/0045`).
    pub huge_pages: bool,
    /// Whether a thread that faults alone, and threads that mostly wait for faults, run on the processor of one handler in
    /// that time. Their page faults then take less time (`docs/adr/0022`) and less processor time (`docs/adr/0058`). A
    /// thread or process that such a thread starts inherits the processor affinity for good, so a program starts them
    /// inside [`crate::Pool::without_pinning`].
    pub pin_faulting_threads: bool,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self {
            handlers: 0,
            io_uring: true,
            readahead: true,
            fault_around: true,
            polling: true,
            huge_pages: true,
            pin_faulting_threads: false,
        }
    }
}

impl FaultOptions {
    /// The heuristics of `deepram bench ablate` that a pool has.
    pub const HEURISTICS: [Heuristic; 5] = [
        Heuristic::Leader,
        Heuristic::Polling,
        Heuristic::Readahead,
        Heuristic::FaultAround,
        Heuristic::HugePages,
    ];

    /// These options with one of [`FaultOptions::HEURISTICS`] turned off; `None`: a pool does not have it.
    #[must_use]
    pub fn without(mut self, off: Heuristic) -> Option<Self> {
        let option = match off {
            Heuristic::Leader => &mut self.pin_faulting_threads,
            Heuristic::Polling => &mut self.polling,
            Heuristic::Readahead => &mut self.readahead,
            Heuristic::FaultAround => &mut self.fault_around,
            Heuristic::HugePages => &mut self.huge_pages,
            Heuristic::SecondChance => return None,
        };
        *option = false;
        Some(self)
    }
}

impl OpenOptions {
    /// Options for a mapped pool with a DRAM budget of `dram` bytes.
    #[must_use]
    pub fn new(dram: u64) -> Self {
        let (mapping, loads, faults) = Default::default();
        let memory = MemoryOptions { selective: Selective::Auto, ..MemoryOptions::default() };
        Self {
            dram,
            mapping,
            base: None,
            loads,
            faults,
            policy: PagerPolicy::default(),
            at_token: None,
            writes_per_day: None,
            memory,
            listen: None,
            record_faults_to: None,
        }
    }

    /// These options with another mapping.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.mapping = mapping;
        self
    }

    /// These options with another device buffer.
    #[must_use]
    pub fn loads(mut self, loads: LoadOptions) -> Self {
        self.loads = loads;
        self
    }

    /// These options with other fault handling.
    #[must_use]
    pub fn faults(mut self, faults: FaultOptions) -> Self {
        self.faults = faults;
        self
    }

    /// These options with [`OpenOptions::at_token`] set: the pool opens at this token and discards the log after it.
    #[must_use]
    pub fn at_token(mut self, token: Epoch) -> Self {
        self.at_token = Some(token);
        self
    }

    /// These options with [`OpenOptions::writes_per_day`] set.
    #[must_use]
    pub fn writes_per_day(mut self, bytes: u64) -> Self {
        self.writes_per_day = Some(bytes);
        self
    }

    /// These options with other ways of making memory controllers durable.
    #[must_use]
    pub fn memory(mut self, memory: MemoryOptions) -> Self {
        self.memory = memory;
        self
    }

    /// These options with [`OpenOptions::listen`] set.
    #[must_use]
    pub fn listen(mut self, address: ListenAddress) -> Self {
        self.listen = Some(address);
        self
    }

    /// These options with another replacement policy.
    #[must_use]
    pub fn policy(mut self, policy: PagerPolicy) -> Self {
        self.policy = policy;
        self
    }
}

/// Sizes the device buffer and sets its promotion policy (FlatFlash, section 3.4). [`Pool::load`](crate::Pool::load)
/// and [`Pool::gather`](crate::Pool::gather) read segments that are not in the DRAM cache through this buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    /// Largest size of the device buffer, in bytes; `None`: 25/64 of the DRAM, as in the paper. The buffer is part of
    /// the DRAM budget and takes at most half of it. The buffer takes memory as it fills, and gives it back while no
    /// thread loads by call.
    pub buffer: Option<u64>,
    /// Number of loads after which a segment is promoted into the DRAM cache and mapped; `None`: never. The default
    /// is the paper's Algorithm 1.
    pub promotion: Option<ThresholdOptions>,
    /// Reads that one gather or scatter keeps in flight: 1 to 1024.
    pub depth: u16,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { buffer: None, promotion: Some(ThresholdOptions::default()), depth: 64 }
    }
}

/// Default size of the device buffer, as a part of the frames. FlatFlash's SSD-Cache is 0.125 % of the drive (section
/// 5), and the drive is 512 times the DRAM (section 5.2). The ratio of buffer to DRAM is therefore 0.64 : 1, which is
/// 25/64 of both together.
const BUFFER_SHARE: (usize, usize) = (25, 64);
const MOST_DEPTH: u16 = 1024;

impl LoadOptions {
    /// Returns the largest number of segments in the device buffer, for a cache of `frames` frames of `segment`
    /// bytes.
    pub(crate) fn slots(&self, frames: usize, segment: usize) -> Result<usize> {
        let wrong = |option, problem| Err(PoolError::Option { option, problem });
        if !(1..=MOST_DEPTH).contains(&self.depth) {
            return wrong(
                "loads.depth",
                format!("{} reads in flight: the number must be 1 to {MOST_DEPTH}", self.depth),
            );
        }
        if let Some(ThresholdOptions {
            low_ratio: low,
            high_ratio: high,
            max_threshold: most,
            reset_epoch: epoch,
            ..
        }) = self.promotion
        {
            let shares = (0.0..=1.0).contains(&low) && (low..=1.0).contains(&high);
            if !shares || most == 0 || epoch == 0 {
                let problem = format!(
                    "low {low}, high {high}, most {most}, epoch {epoch}: must have 0 <= low <= high <= 1, and most and epoch \
                     at least 1"
                );
                return wrong("loads.promotion", problem);
            }
        }
        let Some(bytes) = self.buffer else { return Ok(frames * BUFFER_SHARE.0 / BUFFER_SHARE.1) };
        let slots = (bytes / segment as u64) as usize;
        if slots > frames / 2 {
            let most = Bytes((frames / 2 * segment) as u64);
            return wrong(
                "loads.buffer",
                format!("{} is more than half of the frames, which is {most}", Bytes(bytes)),
            );
        }
        Ok(slots)
    }
}
