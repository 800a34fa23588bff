//! Requests, bytes and distinct pages by operation, and their course over time.

use serde::Serialize;

/// Most bins of [`OverTime`].
const MOST_BINS: u64 = 256;
/// First width of a bin: 1 ms, in picoseconds.
const FIRST_WIDTH_PS: u64 = 1_000_000_000;

/// What one operation, or all, transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Requests.
    pub requests: u64,
    /// Sum of their lengths.
    pub bytes: u128,
    /// Pages touched, each request counted with every page that it touches.
    pub page_accesses: u64,
    /// Distinct pages; an estimate in sampled mode.
    pub unique_pages: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, bytes: u64, pages: u64) {
        self.requests += 1;
        self.bytes += u128::from(bytes);
        self.page_accesses += pages;
    }

    /// Mean length of a request, in bytes; `None` without requests.
    #[must_use]
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.bytes as f64 / self.requests as f64)
    }
}

/// Requests and bytes of one bin of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeBin {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u128,
    /// Bytes written.
    pub write_bytes: u128,
}

impl TimeBin {
    fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
    }
}

/// Read/write mix over time, in at most 256 bins. The width of the bins doubles as the trace grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverTime {
    /// Width of a bin: picoseconds, or requests in a trace without times.
    pub width: u64,
    /// The bins, from time or request 0 on.
    pub bins: Vec<TimeBin>,
}

impl OverTime {
    /// Bins of time.
    pub(super) fn of_time() -> Self {
        Self { width: FIRST_WIDTH_PS, bins: Vec::new() }
    }

    /// Bins of requests.
    pub(super) fn of_requests() -> Self {
        Self { width: 1, bins: Vec::new() }
    }

    /// Counts a request at a time, in the unit of the width.
    pub(super) fn add(&mut self, time: u64, bytes: u64, write: bool) {
        while time / self.width >= MOST_BINS {
            self.bins = self
                .bins
                .chunks(2)
                .map(|pair| {
                    let mut sum = pair[0];
                    pair.iter().skip(1).for_each(|bin| sum.merge(bin));
                    sum
                })
                .collect();
            self.width *= 2;
        }
        let at = (time / self.width) as usize;
        if at >= self.bins.len() {
            self.bins.resize(at + 1, TimeBin::default());
        }
        let (reads, writes) = (u64::from(!write), u64::from(write));
        let bytes = u128::from(bytes);
        self.bins[at].merge(&TimeBin {
            reads,
            writes,
            read_bytes: bytes * u128::from(reads),
            write_bytes: bytes * u128::from(writes),
        });
    }
}
