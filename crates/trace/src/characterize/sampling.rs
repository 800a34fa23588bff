//! Hit ratios of LRU caches from a sample of the pages: spatially hashed sampling (Waldspurger et al., FAST '15).
//!
//! A page is in the sample if its hash is below a threshold. All accesses to a page of the sample are observed, and a
//! stack distance in the sample, divided by the sampling rate, estimates the distance in the trace. With a fixed size,
//! the page with the largest hash leaves when the sample is full; its hash becomes the threshold, and earlier counts are
//! multiplied by the new rate over the old. A sample has more or fewer accesses than its share of the trace, mostly of
//! pages that are used very often; the difference is added to, or taken from, the accesses at distance 0.
//!
//! The standard error is estimated from eight random groups of the sample's pages: each group gives an estimate of its
//! own, and their spread, divided by the square root of eight, is the error of the whole sample.

use std::collections::BinaryHeap;

use super::distributions::{class_bounds, class_of};
use super::hit_ratio::Counted;
use super::page_index::{Page, PageIndex};
use super::stack_distance::StackDistances;

/// Random groups of the sample.
const GROUPS: usize = 8;

/// How the pages of a sample are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// All pages: every figure is exact.
    Exact,
    /// This share of the pages, above 0 and at most 1.
    Rate(f64),
    /// At most this many pages, at least 64.
    Pages(u32),
}

/// Accesses by estimated stack distance and operation.
#[derive(Clone, Debug, Default)]
struct WeightedHistogram {
    /// Reads and writes of each class of distances ([`class_of`]).
    classes: Vec<[f64; 2]>,
    /// All reads and writes, first accesses included.
    sum: [f64; 2],
}

impl WeightedHistogram {
    fn add(&mut self, distance: Option<f64>, write: bool) {
        self.sum[usize::from(write)] += 1.0;
        if let Some(distance) = distance {
            let class = class_of(distance as u64);
            if class >= self.classes.len() {
                self.classes.resize(class + 1, [0.0; 2]);
            }
            self.classes[class][usize::from(write)] += 1.0;
        }
    }

    fn scale(&mut self, factor: f64) {
        for count in self.classes.iter_mut().chain([&mut self.sum]) {
            *count = count.map(|count| count * factor);
        }
    }

    /// Hit ratio of a cache of `capacity` pages, if the sample should have had `expected` accesses.
    fn hit_ratio(&self, capacity: u64, counted: Counted, expected: [f64; 2]) -> f64 {
        let of = |[reads, writes]: [f64; 2]| match counted {
            Counted::All => reads + writes,
            Counted::Reads => reads,
            Counted::Writes => writes,
        };
        let hits: f64 = self
            .classes
            .iter()
            .enumerate()
            .map(|(class, count)| {
                let (low, high) = class_bounds(class);
                let share = (capacity.saturating_sub(low) as f64 / (high - low + 1) as f64).min(1.0);
                of(*count) * share
            })
            .sum();
        let (sum, expected) = (of(self.sum), of(expected));
        ((hits + expected - sum) / expected).clamp(0.0, 1.0)
    }
}

/// A stack with its histogram.
#[derive(Clone, Debug, Default)]
struct Estimator {
    stack: StackDistances,
    histogram: WeightedHistogram,
}

impl Estimator {
    fn add(&mut self, page: u32, write: bool, rate: f64) {
        let distance = self.stack.touch(page);
        self.histogram.add(distance.map(|distance| f64::from(distance) / rate), write);
    }
}

/// Chooses the pages of a sample and estimates hit ratios from their accesses.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Pages with a smaller hash are in the sample, out of 2^64.
    threshold: u128,
    /// Most pages in the sample.
    most: u32,
    /// Hash and number of each page, of a sample with a fixed size.
    by_hash: BinaryHeap<(u64, u32)>,
    /// The page with each number, and its group.
    pages: Vec<(Page, u8)>,
    whole: Estimator,
    groups: Vec<Estimator>,
}

impl Sample {
    /// An empty sample; `None` if all pages are to be used.
    pub(super) fn new(sampling: Sampling) -> Option<Self> {
        let whole = 1u128 << 64;
        let (threshold, most) = match sampling {
            Sampling::Exact => return None,
            Sampling::Rate(rate) => ((rate * whole as f64) as u128, u32::MAX),
            Sampling::Pages(most) => (whole, most),
        };
        Some(Self {
            threshold: threshold.clamp(1, whole),
            most,
            by_hash: BinaryHeap::new(),
            pages: Vec::new(),
            whole: Estimator::default(),
            groups: vec![Estimator::default(); GROUPS],
        })
    }

    /// True if the page is in the sample.
    #[inline]
    pub(super) fn contains(&self, page: Page) -> bool {
        u128::from(page.hash()) < self.threshold
    }

    /// The share of the pages that are in the sample.
    pub(super) fn rate(&self) -> f64 {
        self.threshold as f64 / (1u128 << 64) as f64
    }

    /// Counts an access to the sample's page with this number. Calls `removed` for each page that leaves the sample.
    pub(super) fn add(
        &mut self,
        page: Page,
        number: u32,
        write: bool,
        index: &mut PageIndex,
        mut removed: impl FnMut(u32),
    ) {
        let hash = page.hash();
        // Other bits than those that decide about a small sample's pages.
        let group = (hash % GROUPS as u64) as u8;
        let rate = self.rate();
        self.whole.add(number, write, rate);
        self.groups[usize::from(group)].add(number, write, rate / GROUPS as f64);
        let at = number as usize;
        if self.most == u32::MAX {
            return;
        }
        if at >= self.pages.len() {
            self.pages.resize(at + 1, (Page::default(), u8::MAX));
        }
        if self.pages[at] == (page, group) {
            return;
        }
        self.pages[at] = (page, group);
        self.by_hash.push((hash, number));
        if self.whole.stack.len() <= self.most {
            return;
        }
        while let Some(&(largest, number)) = self.by_hash.peek() {
            if self.whole.stack.len() <= self.most && u128::from(largest) < self.threshold {
                break;
            }
            self.by_hash.pop();
            self.threshold = self.threshold.min(largest.into()).max(1);
            let (page, group) =
                std::mem::replace(&mut self.pages[number as usize], (Page::default(), u8::MAX));
            index.remove(page);
            self.whole.stack.remove(number);
            self.groups[usize::from(group)].stack.remove(number);
            removed(number);
        }
        let factor = self.rate() / rate;
        self.whole.histogram.scale(factor);
        self.groups.iter_mut().for_each(|group| group.histogram.scale(factor));
    }

    /// Estimated hit ratio of an LRU cache of `capacity` pages and its standard error, over `accesses` reads and writes
    /// of the whole trace; `None` without counted accesses.
    pub(super) fn hit_ratio(
        &self,
        capacity: u64,
        counted: Counted,
        accesses: [u64; 2],
    ) -> Option<(f64, f64)> {
        if counted.of(accesses) == 0 {
            return None;
        }
        let expected = accesses.map(|accesses| accesses as f64 * self.rate());
        let estimate = self.whole.histogram.hit_ratio(capacity, counted, expected);
        let expected = expected.map(|expected| expected / GROUPS as f64);
        let estimates =
            self.groups.iter().map(|group| group.histogram.hit_ratio(capacity, counted, expected));
        let groups = GROUPS as f64;
        let mean = estimates.clone().sum::<f64>() / groups;
        let variance = estimates.map(|estimate| (estimate - mean).powi(2)).sum::<f64>() / (groups - 1.0);
        Some((estimate, (variance / groups).sqrt()))
    }

    /// Pages in the sample.
    pub(super) fn len(&self) -> u32 {
        self.whole.stack.len()
    }
}
