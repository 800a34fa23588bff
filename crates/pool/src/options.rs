//! What a caller chooses when a pool is created or opened.

use deepram_core::{Retention, SegmentSize};

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
        }
    }

    pub(crate) fn sizing(&self) -> Sizing {
        Sizing { size: self.size, flash: self.flash, pmem: self.pmem, segment: self.segment }
    }
}

/// Whether a pool is seen through ordinary pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapping {
    /// Mapped; opening fails where userfaultfd cannot be had.
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
}

impl OpenOptions {
    /// Mapped, with so much DRAM.
    #[must_use]
    pub fn new(dram: u64) -> Self {
        Self { dram, mapping: Mapping::default(), base: None }
    }

    /// The same with another mapping.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.mapping = mapping;
        self
    }
}
