//! Options and errors of a characterisation.

use deepram_core::cache::Policy;

use super::sampling::Sampling;
use super::spatial::{Precedence, SpatialSetting};

/// Hit ratios for which the smallest LRU cache is reported (figure 10 of the hybrid SSD cache paper).
pub(super) const HIT_RATIOS: [f64; 4] = [0.6, 0.7, 0.8, 0.9];

/// Most pages of a simulated cache, whose tables take about 50 bytes a page.
const MOST_CACHE_PAGES: u64 = 1 << 28;

/// What to characterise.
#[derive(Clone, Debug)]
pub struct CharacterizeOptions {
    /// Size of a page, in bytes; at least 1. An object is one page whatever its size.
    pub page_bytes: u64,
    /// Settings of the spatial classes.
    pub spatial: Vec<SpatialSetting>,
    /// Order of the spatial classes.
    pub precedence: Precedence,
    /// Compares a read with earlier reads only, and a write with earlier writes only.
    pub same_direction: bool,
    /// All pages, or a sample.
    pub sampling: Sampling,
    /// Adds hit ratios of a stack that only writes move. Not in sampled mode.
    pub write_only_stack: bool,
    /// Shortest window of the working sets, in requests; at least 1.
    pub window_requests: u64,
    /// Window of the accesses over the address space, in requests; at least 1.
    pub address_window_requests: u64,
    /// Policies to simulate. Not with a sample of a fixed number of pages.
    pub policies: Vec<Policy>,
    /// Also computes the misses of the optimal replacement, which keeps 5 bytes for each access to a page. Not with a sample of
    /// a fixed number of pages.
    pub optimum: bool,
    /// Capacities of the simulated caches, in bytes, each at least a page.
    pub cache_bytes: Vec<u64>,
    /// Most pages of one request; a longer one is an error, because its unit is probably wrong.
    pub most_request_pages: u64,
}

impl Default for CharacterizeOptions {
    /// The settings of the paper: pages of 8 KiB, three spatial settings, windows of 10,000 requests over the address
    /// space. No policy is simulated.
    fn default() -> Self {
        Self {
            page_bytes: 8 << 10,
            spatial: SpatialSetting::PAPER.to_vec(),
            precedence: Precedence::default(),
            same_direction: false,
            sampling: Sampling::Exact,
            write_only_stack: false,
            window_requests: 1_000,
            address_window_requests: 10_000,
            policies: Vec::new(),
            optimum: false,
            cache_bytes: [1, 4, 16, 64, 256, 1024].map(|mib| mib << 20).to_vec(),
            most_request_pages: 1 << 24,
        }
    }
}

impl CharacterizeOptions {
    pub(super) fn check(&self) -> Result<(), CharacterizeError> {
        let wrong = |what: &str| Err(CharacterizeError::Option(what.into()));
        let simulates = self.optimum || !self.policies.is_empty();
        if self.page_bytes == 0 {
            return wrong("the page size is 0 bytes; it must be at least 1");
        }
        if self.window_requests == 0 || self.address_window_requests == 0 {
            return wrong("a window has 0 requests; it must have at least 1");
        }
        match self.sampling {
            Sampling::Rate(rate) if !(rate > 0.0 && rate <= 1.0) => {
                return wrong(&format!("the sampling rate is {rate}; it must be above 0 and at most 1"));
            }
            Sampling::Pages(pages) if pages < 64 => {
                return wrong(&format!("the sample has {pages} pages; it must have at least 64"));
            }
            Sampling::Pages(_) if simulates => {
                return wrong(
                    "policies cannot be simulated on a sample of a fixed number of pages; give a rate instead",
                );
            }
            _ => {}
        }
        if self.write_only_stack && self.sampling != Sampling::Exact {
            return wrong("a stack of writes only cannot be combined with a sample");
        }
        if simulates {
            if self.cache_bytes.is_empty() {
                return wrong("policies are to be simulated, but there is no cache size");
            }
            if let Some(bytes) =
                self.cache_bytes.iter().find(|bytes| **bytes / self.page_bytes > MOST_CACHE_PAGES)
            {
                return wrong(&format!(
                    "a cache of {bytes} bytes has {} pages; it may have at most {MOST_CACHE_PAGES}",
                    bytes / self.page_bytes
                ));
            }
            if let Some(bytes) = self.cache_bytes.iter().find(|bytes| **bytes < self.page_bytes) {
                return wrong(&format!(
                    "a cache of {bytes} bytes is smaller than a page of {} bytes",
                    self.page_bytes
                ));
            }
        }
        Ok(())
    }
}

/// An error of a characterisation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CharacterizeError {
    /// An option is out of range, or options exclude each other.
    #[error("{0}")]
    Option(String),
    /// A request touches too many pages.
    #[error(
        "record {record}: a request of {bytes} bytes touches {pages} pages, more than {most}; check the unit of the trace, \
         or choose larger pages"
    )]
    RequestTooLong {
        /// Number of the record, from 1.
        record: u64,
        /// Its length, in bytes.
        bytes: u64,
        /// The pages that it touches.
        pages: u64,
        /// The most pages allowed.
        most: u64,
    },
    /// The trace has too many distinct pages.
    #[error("the trace has more than 2^31 distinct pages; characterise a sample, or choose larger pages")]
    TooManyPages,
}
