//! Working set over time: the distinct pages of each window of requests.

use serde::Serialize;

/// Window lengths: the shortest and its multiples.
const MULTIPLES: [u32; 4] = [1, 10, 100, 1000];
/// Most windows of one length that are kept.
const MOST_KEPT: usize = 512;

/// Distinct pages of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WindowPages {
    /// Number of the window, from 0.
    pub window: u64,
    /// Distinct pages.
    pub all: u64,
    /// Distinct pages read.
    pub read: u64,
    /// Distinct pages written.
    pub write: u64,
}

/// Working sets of the windows of one length. Windows follow each other without overlap; the last, incomplete one is left
/// out unless it is the only one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkingSet {
    /// Length of a window, in requests.
    pub window_requests: u64,
    /// Number of windows.
    pub windows: u64,
    /// Mean number of distinct pages.
    pub mean_pages: f64,
    /// Largest number of distinct pages.
    pub max_pages: u64,
    /// Every `keep`-th window.
    pub keep: u64,
    /// The kept windows, in order; at most 512.
    pub kept: Vec<WindowPages>,
}

impl WorkingSet {
    fn new(window_requests: u64) -> Self {
        Self { window_requests, windows: 0, mean_pages: 0.0, max_pages: 0, keep: 1, kept: Vec::new() }
    }

    fn push(&mut self, [all, read, write]: [f64; 3]) {
        let count = |pages: f64| pages.round() as u64;
        let pages =
            WindowPages { window: self.windows, all: count(all), read: count(read), write: count(write) };
        self.windows += 1;
        // The sum, until the end.
        self.mean_pages += all;
        self.max_pages = self.max_pages.max(pages.all);
        if pages.window.is_multiple_of(self.keep) {
            if self.kept.len() == MOST_KEPT {
                self.keep *= 2;
                self.kept.retain(|kept| kept.window.is_multiple_of(self.keep));
            }
            if pages.window.is_multiple_of(self.keep) {
                self.kept.push(pages);
            }
        }
    }

    fn finish(mut self) -> Self {
        self.mean_pages /= self.windows.max(1) as f64;
        self
    }
}

/// Counts the distinct pages of windows of four lengths.
///
/// Each page remembers the shortest window of its last read and of its last write. As the longer windows are made of
/// shorter ones, this tells for every length whether a page is new in its current window.
#[derive(Clone, Debug)]
pub(super) struct WorkingSets {
    /// For each page, one more than the shortest window of its last read and last write; 0 for never.
    last: Vec<[u32; 2]>,
    /// For each length, one more than the shortest window at which the current window began.
    start: [u32; MULTIPLES.len()],
    /// For each length, the distinct pages of the current window: all, read and written.
    current: [[f64; 3]; MULTIPLES.len()],
    /// Distinct pages of the current shortest window by the number of lengths, the shortest first, in whose current window
    /// they are new. A page that is new in a window is new in every window within it.
    new: [[f64; 3]; MULTIPLES.len() + 1],
    sets: [WorkingSet; MULTIPLES.len()],
    /// The current shortest window, plus one.
    now: u32,
    /// Distinct pages read, and written.
    unique: [u64; 2],
}

impl WorkingSets {
    /// Windows of `shortest` requests and of 10, 100 and 1000 times as many.
    pub(super) fn new(shortest: u64) -> Self {
        Self {
            last: Vec::new(),
            start: [1; MULTIPLES.len()],
            current: Default::default(),
            new: Default::default(),
            sets: MULTIPLES.map(|multiple| WorkingSet::new(shortest * u64::from(multiple))),
            now: 1,
            unique: [0; 2],
        }
    }

    /// Brings what is known of these pages into the processor's cache, so that the waits for memory overlap.
    pub(super) fn load(&self, pages: &[u32]) {
        let last = pages.iter().map(|&page| self.last.get(page as usize).map_or(0, |last| last[0]));
        std::hint::black_box(last.fold(0, |all, last| all ^ last));
    }

    /// Counts an access to a page in the shortest window numbered `window`. A page that is new counts as `weight` pages: in
    /// a sample, one divided by the sampling rate of the moment.
    #[inline]
    pub(super) fn add(&mut self, page: u32, write: bool, window: u32, weight: f64) {
        while self.now <= window {
            self.next_window();
        }
        let index = page as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, [0; 2]);
        }
        let last = &mut self.last[index];
        let operation = std::mem::replace(&mut last[usize::from(write)], self.now);
        if operation == self.now {
            return;
        }
        let either = operation.max(last[usize::from(!write)]);
        self.unique[usize::from(write)] += u64::from(operation == 0);
        let lengths = |last: u32| self.start.iter().map(|start| usize::from(last < *start)).sum::<usize>();
        let (all, one) = (lengths(either), lengths(operation));
        self.new[all][0] += weight;
        self.new[one][1 + usize::from(write)] += weight;
    }

    /// Adds the new pages of the current shortest window to the current windows of all lengths.
    fn add_new(&mut self) {
        let mut sum = [0.0; 3];
        for (current, new) in self.current.iter_mut().zip(&self.new[1..]).rev() {
            for ((current, sum), new) in current.iter_mut().zip(&mut sum).zip(new) {
                *sum += new;
                *current += *sum;
            }
        }
        self.new = Default::default();
    }

    fn next_window(&mut self) {
        self.add_new();
        self.now += 1;
        for (at, multiple) in MULTIPLES.into_iter().enumerate() {
            if (self.now - 1).is_multiple_of(multiple) {
                self.sets[at].push(std::mem::take(&mut self.current[at]));
                self.start[at] = self.now;
            }
        }
    }

    /// Forgets a page that has left the sample.
    pub(super) fn remove(&mut self, page: u32) {
        if let Some(last) = self.last.get_mut(page as usize) {
            for (unique, last) in self.unique.iter_mut().zip(std::mem::take(last)) {
                *unique -= u64::from(last > 0);
            }
        }
    }

    /// Distinct pages read, and written.
    pub(super) fn unique(&self) -> [u64; 2] {
        self.unique
    }

    /// The working sets by length, shortest first, of `requests` requests in all. Lengths with no complete window are
    /// left out, but for the shortest.
    pub(super) fn finish(mut self, requests: u64) -> Vec<WorkingSet> {
        let shortest = self.sets[0].window_requests;
        while u64::from(self.now) * shortest <= requests {
            self.next_window();
        }
        if self.sets[0].windows == 0 && requests > 0 {
            self.add_new();
            let only = self.current[0];
            self.sets[0].push(only);
        }
        self.sets.into_iter().filter(|set| set.windows > 0).map(WorkingSet::finish).collect()
    }
}
