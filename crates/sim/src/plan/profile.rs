//! What a plan needs to know of a trace, from one pass over it.

use deepram_core::cache::Policy;
use deepram_core::units::Bytes;
use deepram_trace::{FOOTPRINT_PAGE, Item, ObjectPlacement, Op, Summary, TraceError};
use serde::Serialize;

use super::layout::Pieces;
use crate::cache::{ReferenceString, misses};
use crate::error::SimError;

/// References that the hit ratios are computed from, at most: 40 MB of memory.
const MOST_REFERENCES: usize = 10_000_000;
/// Sizes of DRAM that are considered, as divisors of the data.
const DIVISORS: [u64; 6] = [64, 32, 16, 8, 4, 2];
/// The least gain in hit ratio for which a larger DRAM is simulated.
const LEAST_GAIN: f64 = 0.01;

/// A summary of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// Requests: reads, writes, trims and flushes.
    pub requests: u64,
    /// Share of writes among reads and writes.
    pub write_share: f64,
    /// Distinct pages of 4 KiB, bytes.
    pub data_bytes: u64,
    /// Bytes read and written.
    pub traffic_bytes: u64,
    /// Whether the requests have arrival times.
    pub timed: bool,
    /// Whether the records are loads and stores of memory.
    pub memory_references: bool,
    /// DRAM sizes and the LRU hit ratio of each, for which a plan simulates memory systems.
    pub dram: Vec<DramSize>,
    #[serde(skip)]
    pub(super) pieces: Pieces,
}

/// A size of DRAM and its hit ratio under the trace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DramSize {
    /// The size, a multiple of 1 MiB.
    pub bytes: u64,
    /// Share of the references to pages of 4 KiB that hit in LRU of this size, empty at first.
    pub hit_ratio: f64,
}

impl Profile {
    /// The profile of a trace's records.
    ///
    /// # Errors
    /// The first error of the trace; a trace without reads and writes.
    pub fn of(
        items: impl Iterator<Item = Result<Item, TraceError>>,
        objects: ObjectPlacement,
    ) -> Result<Self, SimError> {
        let (mut summary, mut pieces) = (Summary::default(), Pieces::default());
        let mut items = items.inspect(|item| {
            if let Ok(item) = item {
                summary.add(item);
                pieces.add(&item.to_request(&objects));
            }
        });
        let references = ReferenceString::of(&mut items, FOOTPRINT_PAGE, MOST_REFERENCES)?;
        items.try_for_each(|item| item.map(drop))?;
        if references.is_empty() {
            return Err(SimError::config(
                "trace",
                "has no reads and no writes: there is nothing to plan for",
            ));
        }
        let count = |op: Op| summary.block[op as usize].count + summary.object[op as usize].count;
        let memory: u64 = summary.mem.iter().map(|stats| stats.count).sum();
        let stores = summary.mem[deepram_trace::MemoryAccess::Store as usize].count;
        let (reads, writes) = (count(Op::Read) + memory - stores, count(Op::Write) + stores);
        let objects_bytes = summary.distinct_objects() * objects.slot_bytes;
        let data = u64::try_from(summary.footprint_bytes()).unwrap_or(u64::MAX).saturating_add(objects_bytes);
        Ok(Self {
            requests: summary.records,
            write_share: writes as f64 / (reads + writes).max(1) as f64,
            data_bytes: data,
            traffic_bytes: u64::try_from(summary.bytes()).unwrap_or(u64::MAX),
            timed: summary.timed > 0,
            memory_references: memory > 0,
            dram: dram_sizes(data, &references),
            pieces,
        })
    }

    /// The data that the hierarchies hold.
    #[must_use]
    pub fn data(&self) -> Bytes {
        Bytes(self.data_bytes)
    }
}

/// The DRAM sizes worth simulating: parts of the data, without those whose hit ratio is less than one
/// percentage point above that of the next smaller size.
fn dram_sizes(data: u64, references: &ReferenceString) -> Vec<DramSize> {
    let mut sizes: Vec<DramSize> = Vec::new();
    for divisor in DIVISORS {
        let bytes = (data / divisor).div_ceil(1 << 20).max(1) << 20;
        if sizes.last().is_some_and(|smaller| smaller.bytes == bytes) {
            continue;
        }
        let pages = usize::try_from(bytes / FOOTPRINT_PAGE).unwrap_or(usize::MAX);
        let missed = misses(Policy::Lru, pages, references) as f64 / references.len() as f64;
        let hit_ratio = 1.0 - missed;
        if sizes.last().is_none_or(|smaller| hit_ratio >= smaller.hit_ratio + LEAST_GAIN) {
            sizes.push(DramSize { bytes, hit_ratio });
        }
    }
    sizes
}
