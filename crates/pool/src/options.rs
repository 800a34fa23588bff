//! What a caller chooses when a pool is created or opened.

use deepram_core::migration::ThresholdOptions;
use deepram_core::{Bytes, Epoch, Retention, SegmentSize};

use crate::error::{PoolError, Result};
use crate::pager::Policy;
use crate::store::Sizing;

/// How a new pool is laid out.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Memory that each controller offers, in bytes; rounded up to whole pages of 64 KiB.
    pub size: u64,
    /// Flash that each controller uses, in bytes. `None`: a little over twice the size, so that
    /// the last token's state and an entirely new one fit side by side.
    pub flash: Option<u64>,
    /// Memory of each controller that will be persist regions, in bytes: `flash`, if it is `None`, gets room
    /// for a line log that holds all of their lines.
    pub pmem: u64,
    /// What is read, cached and written at once.
    pub segment: SegmentSize,
    /// Which tokens are kept; older ones also go when the device runs full.
    pub retention: Retention,
    /// Address at which the pool is mapped; `None` for one of our choice, the same at every
    /// opening. A multiple of 64 KiB.
    pub base: Option<u64>,
    /// Whether a block device may be overwritten that holds a pool, a known file system, or a part of a volume: its marks
    /// are wiped then. What is mounted or in use in another way is never overwritten, and neither is a file.
    pub overwrite: bool,
}

impl CreateOptions {
    /// A pool of `size` bytes a controller, with 4 KiB segments and the last 8 tokens kept.
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
        }
    }

    pub(crate) fn sizing(&self) -> Sizing {
        Sizing { size: self.size, flash: self.flash, pmem: self.pmem, segment: self.segment }
    }
}

/// Whether a pool is seen through ordinary pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapping {
    /// Mapped; opening fails where userfaultfd cannot be had. Files opened for direct I/O (`O_DIRECT`) must not be read into
    /// memory of the pool: what a device stores while the page leaves is lost.
    #[default]
    Full,
    /// Mapped for user code alone, which needs no privilege: a system call that is given memory
    /// of the pool fails with `EFAULT` where it is not resident.
    UserOnly,
    /// Not mapped: `read` and `write` only.
    Off,
}

/// How a pool is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// DRAM that the pool may use, in bytes: frames, tables and buffers together.
    pub dram: u64,
    /// Whether it is mapped.
    pub mapping: Mapping,
    /// Address to map at instead of the pool's own; pointers kept in the pool are then wrong.
    pub base: Option<u64>,
    /// How `load` and `gather` treat segments that are not in the DRAM cache.
    pub loads: LoadOptions,
    /// How faults of the mapped address are served.
    pub faults: FaultOptions,
    /// Which segment leaves the DRAM cache; `None` for CLOCK with one bit (`deepram_core::cache::Clock`). The use of
    /// a resident segment through a pointer is not seen: a policy learns of first stores and of accesses by call.
    pub policy: Option<Policy>,
    /// Opens the pool at this token and gives up whatever the log says after it: how to go on where the log is
    /// damaged ([`PoolError::LogDamaged`], [`PoolError::LineLogDamaged`]). A commit of the token must be in the log, or
    /// the token be that of the last checkpoint. Lines that were persisted are kept as far as they can be read.
    pub at_token: Option<Epoch>,
}

/// The threads that serve the faults of the mapped address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultOptions {
    /// Threads; 0 for as many as are good for the machine, at most 256.
    pub handlers: usize,
    /// Whether each has many reads under way by io_uring, if the kernel allows it, or one.
    pub ring: bool,
    /// Whether segments are read ahead of use, where misses follow each other at equal distances.
    pub ahead: bool,
    /// Whether a thread that faults alone is kept on one processor while it does, that of the handler which serves it:
    /// its faults take two thirds of the time so (`docs/adr/0022`). What it starts meanwhile would be kept there for good,
    /// so whoever starts threads or processes does it within [`crate::Pool::unkept`].
    pub keep: bool,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self { handlers: 0, ring: true, ahead: true, keep: false }
    }
}

impl OpenOptions {
    /// Mapped, with so much DRAM.
    #[must_use]
    pub fn new(dram: u64) -> Self {
        let (mapping, loads, faults) = Default::default();
        Self { dram, mapping, base: None, loads, faults, policy: None, at_token: None }
    }

    /// The same with another mapping.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.mapping = mapping;
        self
    }

    /// The same with other loads by call.
    #[must_use]
    pub fn loads(mut self, loads: LoadOptions) -> Self {
        self.loads = loads;
        self
    }

    /// The same with faults served in another way.
    #[must_use]
    pub fn faults(mut self, faults: FaultOptions) -> Self {
        self.faults = faults;
        self
    }

    /// The same at this token, giving up whatever the log says after it.
    #[must_use]
    pub fn at_token(mut self, token: Epoch) -> Self {
        self.at_token = Some(token);
        self
    }

    /// The same with another replacement policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }
}

/// The device buffer, through which [`Pool::load`](crate::Pool::load) and [`Pool::gather`](crate::Pool::gather) read
/// segments that are not in the DRAM cache, and when such a segment is promoted into it (FlatFlash, section 3.4).
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    /// The most memory that the buffer may take, in bytes; `None` for 25/64 of the DRAM, as in the paper. It is part of
    /// the DRAM budget, is taken as it is needed, goes back while nobody loads by call, and is half of the budget at
    /// most.
    pub buffer: Option<u64>,
    /// After how many loads a segment moves into the DRAM cache and is mapped; `None`: never. By default as in the
    /// paper's Algorithm 1.
    pub promotion: Option<ThresholdOptions>,
    /// Reads that one gather or scatter has under way at once: 1 to 1024.
    pub depth: u16,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { buffer: None, promotion: Some(ThresholdOptions::default()), depth: 64 }
    }
}

/// The buffer's part of the frames, if it is not given. FlatFlash's SSD-Cache has 0.125 % of the drive (section 5), and
/// the drive is 512 times its DRAM (section 5.2): 0.64 : 1, 25 of 64 of both together.
const BUFFER_SHARE: (usize, usize) = (25, 64);
const MOST_DEPTH: u16 = 1024;

impl LoadOptions {
    /// Segments that the buffer holds at most, of so many frames.
    pub(crate) fn slots(&self, frames: usize, segment: usize) -> Result<usize> {
        let wrong = |option, problem| Err(PoolError::Option { option, problem });
        if !(1..=MOST_DEPTH).contains(&self.depth) {
            return wrong("loads.depth", format!("{} reads under way: 1 to {MOST_DEPTH}", self.depth));
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
                    "low {low}, high {high}, most {most}, epoch {epoch}: 0 <= low <= high <= 1, and at least 1 each of \
                     the others"
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
                format!("{} is more than half of the frames, {most}", Bytes(bytes)),
            );
        }
        Ok(slots)
    }
}
