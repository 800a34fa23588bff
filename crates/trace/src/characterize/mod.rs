//! Characterises a trace in one pass: traffic, unique data, spatial and temporal locality, working sets, distributions.
//!
//! The figures are those of the hybrid SSD cache paper (section IV), and more. Memory grows with the distinct pages, not
//! with the length of the trace, except for the optimal replacement; a sample of the pages ([`Sampling`]) bounds it for huge traces.
//!
//! | file | figure |
//! |---|---|
//! | `traffic` | requests, bytes and unique pages by operation; read/write mix over time |
//! | `spatial` | overlapped, sequential, strided and random requests |
//! | `stack_distance`, `hit_ratio` | LRU stack distances and the hit ratio of an LRU cache of any size |
//! | `sampling` | the same from a sample of the pages, with the standard error |
//! | `policies`, `optimum` | hit ratios of every replacement policy, by simulation, and of the optimal replacement |
//! | `working_set`, `address_map` | distinct pages and accessed addresses in windows of requests |
//! | `distributions` | request sizes and inter-arrival times |
//! | `page_index` | numbers the pages, for the tables of all others |
//! | `page_figures` | the thread that computes what depends on single pages |
//!
//! ```
//! use deepram_trace::characterize::{CharacterizeOptions, Characterizer, Counted, Denominator};
//! use deepram_trace::Workload;
//!
//! let mut trace = Characterizer::new(&CharacterizeOptions::default())?;
//! for item in Workload::new("zipf:theta=0.99,span=64MiB,count=10k,read=0.5", 1)? {
//!     trace.add(&item)?;
//! }
//! let report = trace.finish()?;
//! let distances = report.distances.expect("all pages were used");
//! assert_eq!(distances.first_accesses(Counted::All), report.all.unique_pages);
//! assert_eq!(distances.hit_ratio(0, Counted::All, Denominator::AllAccesses), Some(0.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address_map;
mod distributions;
mod hit_ratio;
mod optimum;
mod options;
mod page_figures;
mod page_index;
mod policies;
mod report;
mod report_build;
mod sampling;
mod spatial;
mod stack_distance;
mod traffic;
mod working_set;

pub use address_map::{AddressBin, AddressDistribution, AddressWindow, PHASES};
pub use distributions::{Distribution, Histogram, ValueClass};
pub use hit_ratio::{Counted, Denominator, DistanceHistogram};
pub use optimum::OPTIMUM;
pub use options::{CharacterizeError, CharacterizeOptions};
pub use page_index::{Page, PageIndex};
pub use report::{
    CapacityForHitRatio, Characterization, HitRatios, PolicyHitRatios, SampleReport, Sizes, SpatialReport,
    Times,
};
pub use sampling::Sampling;
pub use spatial::{
    MOST_ROD, MOST_STRIDE, PageRange, Precedence, SpatialClass, SpatialClassifier, SpatialCounts,
    SpatialSetting,
};
pub use stack_distance::StackDistances;
pub use traffic::{OverTime, TimeBin, Traffic};
pub use working_set::{WindowPages, WorkingSet};

use crate::record::{Item, MemoryAccess, Op};
use address_map::AddressMap;
use page_figures::{Access, PageFiguresThread};

/// A read or write of at least one byte.
struct DataRequest {
    time_ps: Option<u64>,
    /// Address of the first byte; `None` for an object.
    offset: Option<u64>,
    range: PageRange,
    bytes: u64,
    write: bool,
}

/// Characterises the records passed to [`Characterizer::add`].
pub struct Characterizer {
    options: CharacterizeOptions,
    records: u64,
    /// Reads and writes.
    traffic: [Traffic; 2],
    trims: u64,
    flushes: u64,
    empty: u64,
    times: Option<(u64, u64)>,
    timed: u64,
    out_of_order: u64,
    last_time: Option<u64>,
    spatial: SpatialClassifier,
    sizes: [Histogram; 2],
    interarrival: Histogram,
    by_time: OverTime,
    by_request: OverTime,
    addresses: AddressMap,
    pages: PageFiguresThread,
}

impl Characterizer {
    /// A characterizer without records.
    ///
    /// # Errors
    /// An option is out of range, or options exclude each other.
    pub fn new(options: &CharacterizeOptions) -> Result<Self, CharacterizeError> {
        options.check()?;
        Ok(Self {
            records: 0,
            traffic: Default::default(),
            trims: 0,
            flushes: 0,
            empty: 0,
            times: None,
            timed: 0,
            out_of_order: 0,
            last_time: None,
            spatial: SpatialClassifier::new(&options.spatial, options.precedence, options.same_direction),
            sizes: Default::default(),
            interarrival: Histogram::default(),
            by_time: OverTime::of_time(),
            by_request: OverTime::of_requests(),
            addresses: AddressMap::new(options.address_window_requests),
            pages: PageFiguresThread::new(options),
            options: options.clone(),
        })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// A request touches more pages than [`CharacterizeOptions::most_request_pages`], or the trace has more distinct pages
    /// than can be numbered (2^31).
    pub fn add(&mut self, item: &Item) -> Result<(), CharacterizeError> {
        self.records += 1;
        let Some(request) = self.data_request(item) else {
            return Ok(());
        };
        let pages = request.range.last - request.range.first + 1;
        if pages > self.options.most_request_pages {
            return Err(CharacterizeError::RequestTooLong {
                record: self.records,
                bytes: request.bytes,
                pages,
                most: self.options.most_request_pages,
            });
        }
        // The number of the request, from 0.
        let number = self.requests();
        let write = request.write;
        self.traffic[usize::from(write)].add(request.bytes, pages);
        self.sizes[usize::from(write)].add(request.bytes);
        self.by_request.add(number, request.bytes, write);
        if let Some(time) = request.time_ps {
            self.add_time(time);
            self.by_time.add(time, request.bytes, write);
        }
        if request.offset.is_some() {
            self.spatial.add(request.range, write);
        }
        let window = (number / self.options.window_requests).min(u64::from(u32::MAX - 1)) as u32;
        for page in request.range.first..=request.range.last {
            let page = Page { number: page, device: request.range.device };
            if request.offset.is_some() {
                self.addresses.add(page, write, number);
            }
            self.pages.add(Access { page, write, window })?;
        }
        Ok(())
    }

    /// The record as a read or write of data; counts it and returns `None` if it is none.
    fn data_request(&mut self, item: &Item) -> Option<DataRequest> {
        let (device, offset, bytes, op) = match *item {
            Item::Block(r) => (r.device, Some(r.offset), r.len, r.op),
            Item::Mem(m) => {
                let op = if m.access == MemoryAccess::Store { Op::Write } else { Op::Read };
                (0, Some(m.addr), u64::from(m.size), op)
            }
            Item::Object(o) => (0, None, o.size, o.op),
        };
        match op {
            Op::Read | Op::Write => {}
            Op::Trim => {
                self.trims += 1;
                return None;
            }
            Op::Flush => {
                self.flushes += 1;
                return None;
            }
        }
        let (first, last) = match (*item, offset) {
            (Item::Object(o), _) => (o.id, o.id),
            (_, Some(offset)) if bytes > 0 => {
                (offset / self.options.page_bytes, offset.saturating_add(bytes - 1) / self.options.page_bytes)
            }
            _ => {
                self.empty += 1;
                return None;
            }
        };
        let range = PageRange { device, first, last };
        Some(DataRequest { time_ps: item.time_ps(), offset, range, bytes, write: op == Op::Write })
    }

    fn add_time(&mut self, time: u64) {
        self.timed += 1;
        self.times = Some(self.times.map_or((time, time), |(low, high)| (low.min(time), high.max(time))));
        if let Some(last) = self.last_time.replace(time) {
            match time.checked_sub(last) {
                Some(gap) => self.interarrival.add(gap),
                None => self.out_of_order += 1,
            }
        }
    }

    /// Reads and writes so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.traffic[0].requests + self.traffic[1].requests
    }

    /// Records so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The characterisation of the records added.
    ///
    /// # Errors
    /// The trace has more distinct pages than can be numbered (2^31).
    pub fn finish(self) -> Result<Characterization, CharacterizeError> {
        self.report()
    }
}
