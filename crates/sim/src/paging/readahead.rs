//! Readahead: the pages that are read together with a missing one.
//!
//! For a file, windows as in Linux:
//!
//! 1. A miss of the file's first page starts a sequential run. Any other miss that continues no run is
//!    random and is read around: a window of the maximum size with the missing page in its middle, whose
//!    trigger is the first page of its last quarter.
//! 2. Read-around stops while the file misses much more than it hits. A counter rises by one with each
//!    random miss, to 1000 at most, and falls by one with each hit; while it is above 100, a random miss
//!    reads its page alone. A hit is a fault that finds its page in memory. Where a fault maps the pages
//!    around it, each page that it maps counts as a hit, and so does the missing page once it has
//!    arrived, since the kernel then repeats the fault. Random misses of a mapping with fault-around are
//!    therefore read around for ever (seen on 6.18: 113 distant misses were all read around). From 2.6.37
//!    to 3.6 the repeated fault counts without fault-around, too.
//! 3. A miss next to the last miss of a run opens a window of the minimum size at that page, whose
//!    second page is the window's trigger.
//! 4. A use of a trigger page reads the next window. It begins at the end of the last one, has twice its
//!    length up to the maximum, and its first page is the next trigger.
//! 5. A miss at the end of a window means that its trigger was missed: the next window is read at once,
//!    with its second page as trigger.
//!
//! For swap, an aligned cluster around the slot is read. Its size follows the number of pages that were
//! read together with others since the last miss and proved useful: the useful pages plus two, rounded
//! up to a power of two; one slot if no page was useful and the slot is not next to the last one. It
//! shrinks by at most half each time. Kernels before 3.14 always read a cluster of the maximum size.

/// The miss counter above which random misses are read alone, and its maximum (Linux, mm/filemap.c,
/// MMAP_LOTSAMISS).
const LOTS_OF_MISSES: u32 = 100;
const MOST_MISSES: u32 = 10 * LOTS_OF_MISSES;

/// A readahead window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub first: u32,
    /// Number of pages.
    pub len: u32,
    /// The page whose use triggers the read of the next window.
    pub trigger: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct SequentialRun {
    /// The page after the window, or after the last miss if there is no window.
    end: u32,
    /// Length of the window in pages; 0 if there is none.
    len: u32,
    trigger: u32,
}

/// The readahead state of a file.
#[derive(Debug, Clone)]
pub struct Readahead {
    least: u32,
    most: u32,
    limit: usize,
    around: bool,
    /// The miss counter: random misses less hits.
    misses: u32,
    /// Least recently used first.
    runs: Vec<SequentialRun>,
}

impl Readahead {
    /// Windows of `least` to `most` pages for `runs` sequential runs; `around` enables read-around of
    /// random misses.
    #[must_use]
    pub fn new(least: u32, most: u32, runs: u32, around: bool) -> Self {
        let least = least.clamp(1, most.max(1));
        Self { least, most, limit: runs.max(1) as usize, around, misses: 0, runs: Vec::new() }
    }

    /// Records hits of `pages` pages.
    pub fn hit(&mut self, pages: u32) {
        self.misses = self.misses.saturating_sub(pages);
    }

    /// Records a miss of `page`. Returns the window to read, which contains the page.
    pub fn miss(&mut self, page: u32) -> Window {
        let alone = Window { first: page, len: 1, trigger: None };
        if self.most == 0 {
            return alone;
        }
        let found = self.runs.iter().rposition(|run| run.end == page);
        let len = match found.map(|at| self.runs.remove(at).len) {
            Some(0) => self.least,
            Some(len) => len.saturating_mul(2).min(self.most),
            None if page == 0 => self.least,
            None if self.reads_around() => return self.around(page),
            None => {
                self.keep(SequentialRun { end: page.saturating_add(1), len: 0, trigger: 0 });
                return alone;
            }
        };
        let end = page.saturating_add(len);
        // A window of one page is its own trigger once it has been read.
        let trigger = if len > 1 { page + 1 } else { page };
        self.keep(SequentialRun { end, len, trigger });
        Window { first: page, len, trigger: Some(trigger) }
    }

    /// Counts a random miss. Returns true if it is to be read around.
    fn reads_around(&mut self) -> bool {
        self.misses = (self.misses + 1).min(MOST_MISSES);
        self.around && self.misses <= LOTS_OF_MISSES
    }

    fn around(&mut self, page: u32) -> Window {
        let (first, len) = (page.saturating_sub(self.most / 2), self.most);
        let end = first.saturating_add(len);
        let trigger = end - len / 4;
        self.keep(SequentialRun { end, len, trigger });
        // A window of less than four pages has no last quarter.
        Window { first, len, trigger: Some(trigger).filter(|trigger| *trigger < end) }
    }

    /// Records the use of a trigger page. Returns the next window. `known_end` is the first page after
    /// `page` that is not in memory; it is used if the page's run has been dropped.
    pub fn triggered(&mut self, page: u32, known_end: u32) -> Window {
        let found = self.runs.iter().rposition(|run| run.len > 0 && run.trigger == page);
        let (first, len) = match found.map(|at| self.runs.remove(at)) {
            Some(run) => (run.end, run.len),
            None => (known_end, known_end.saturating_sub(page)),
        };
        let len = len.saturating_mul(2).clamp(self.least.min(self.most), self.most.max(1));
        self.keep(SequentialRun { end: first.saturating_add(len), len, trigger: first });
        Window { first, len, trigger: Some(first) }
    }

    fn keep(&mut self, run: SequentialRun) {
        if self.runs.len() == self.limit {
            self.runs.remove(0);
        }
        self.runs.push(run);
    }
}

/// The readahead state of a swap area.
#[derive(Debug, Clone)]
pub struct SwapCluster {
    most: u32,
    adapts: bool,
    useful: u32,
    last: u32,
    slot: u32,
}

impl SwapCluster {
    /// Clusters of at most `most` slots, rounded down to a power of two; of always as many unless the
    /// size `adapts`.
    #[must_use]
    pub fn new(most: u32, adapts: bool) -> Self {
        let most = most.max(1);
        Self { most: 1 << most.ilog2(), adapts, useful: 0, last: 0, slot: u32::MAX }
    }

    /// Records the use of a page that was read together with another.
    pub fn used(&mut self) {
        self.useful = self.useful.saturating_add(1);
    }

    /// Records a miss of `slot`. Returns the first slot and the length of the cluster to read.
    pub fn miss(&mut self, slot: u32) -> (u32, u32) {
        let useful = std::mem::take(&mut self.useful);
        let grown = if !self.adapts {
            self.most
        } else if useful == 0 && slot.abs_diff(self.slot) != 1 {
            1
        } else {
            useful.saturating_add(2).min(self.most).next_power_of_two()
        };
        let len = grown.max(self.last / 2).min(self.most);
        self.last = len;
        self.slot = slot;
        (slot & !(len - 1), len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn window(first: u32, len: u32, trigger: u32) -> Window {
        Window { first, len, trigger: Some(trigger) }
    }

    #[test]
    fn a_scan_from_the_beginning_reads_windows_of_4_8_16_32_and_then_32_pages() {
        let mut readahead = Readahead::new(4, 32, 16, false);
        assert_eq!(readahead.miss(0), window(0, 4, 1));
        for expected in [(1, 4, 8), (4, 12, 16), (12, 28, 32), (28, 60, 32), (60, 92, 32), (92, 124, 32)] {
            let (page, first, len) = expected;
            assert_eq!(readahead.triggered(page, u32::MAX), window(first, len, first));
        }
    }

    #[test]
    fn the_second_of_two_neighbours_opens_a_window_and_strangers_are_read_alone() {
        let mut readahead = Readahead::new(4, 32, 16, false);
        let alone = |page| Window { first: page, len: 1, trigger: None };
        assert_eq!(readahead.miss(1000), alone(1000));
        assert_eq!(readahead.miss(5), alone(5));
        assert_eq!(readahead.miss(1001), window(1001, 4, 1002));
        assert_eq!(readahead.miss(77), alone(77));
        assert_eq!(readahead.triggered(1002, 0), window(1005, 8, 1005));
        // Inside the window, but evicted: read alone.
        assert_eq!(readahead.miss(1003), alone(1003));
        // Its trigger was missed.
        assert_eq!(readahead.miss(1013), window(1013, 16, 1014));
    }

    #[test]
    fn as_many_runs_as_asked_for_are_followed_side_by_side() {
        let mut readahead = Readahead::new(4, 32, 3, false);
        for run in 0..3 {
            readahead.miss(1000 * (run + 1));
        }
        for run in 0..3 {
            let page = 1000 * (run + 1) + 1;
            assert_eq!(readahead.miss(page), window(page, 4, page + 1));
        }
        readahead.miss(9000);
        // The first run was the least recently used and has been dropped; its trigger still counts.
        assert_eq!(readahead.triggered(1002, 1005), window(1005, 6, 1005));
    }

    /// Every window of a scan, against the rules applied by brute force to a set of pages.
    #[test]
    fn any_scan_reads_each_page_once_and_ahead_of_its_use() {
        for (least, most, start) in [(2, 7, 9), (2, 2, 0), (4, 32, 0), (4, 32, 100), (8, 8, 1)] {
            let mut readahead = Readahead::new(least, most, 1, false);
            let mut held: BTreeMap<u32, bool> = BTreeMap::new();
            let (mut misses, mut reads, mut len) = (0, 0, 0);
            for page in start..start + 500 {
                let window = match held.get(&page) {
                    None => {
                        misses += 1;
                        readahead.miss(page)
                    }
                    Some(true) => readahead.triggered(page, u32::MAX),
                    Some(false) => continue,
                };
                let expected = match len {
                    _ if window.trigger.is_none() => 1,
                    0 => least,
                    len => (2 * len).min(most),
                };
                assert_eq!(window.len, expected, "at {page} of {least} {most}");
                len = if window.trigger.is_some() { expected } else { 0 };
                for read in window.first..window.first + window.len {
                    reads += 1;
                    assert!(
                        held.insert(read, window.trigger == Some(read)).is_none(),
                        "{read} is read twice"
                    );
                }
            }
            assert_eq!(misses, if start == 0 { 1 } else { 2 }, "{least} {most}");
            assert_eq!(reads, held.len());
        }
    }

    #[test]
    fn a_random_miss_is_read_around_and_the_last_quarter_goes_on() {
        let mut readahead = Readahead::new(4, 32, 16, true);
        assert_eq!(readahead.miss(1000), window(984, 32, 1008));
        // At the beginning of the file the window begins there.
        assert_eq!(readahead.miss(5), window(0, 32, 24));
        assert_eq!(readahead.triggered(1008, 0), window(1016, 32, 1016));
        // Where the trigger was missed, and where a run begins, it is a run's window.
        assert_eq!(readahead.miss(32), window(32, 32, 33));
        let mut small = Readahead::new(1, 2, 16, true);
        assert_eq!(small.miss(70), Window { first: 69, len: 2, trigger: None });
    }

    #[test]
    fn more_than_a_hundred_misses_beyond_the_hits_are_read_alone_until_hits_come() {
        let mut readahead = Readahead::new(4, 32, 16, true);
        let len = |readahead: &mut Readahead, n: u32| readahead.miss(1000 + 100 * n).len;
        for n in 0..100 {
            assert_eq!(len(&mut readahead, n), 32, "miss {n}");
        }
        assert_eq!(len(&mut readahead, 100), 1);
        readahead.hit(2);
        assert_eq!((len(&mut readahead, 101), len(&mut readahead, 102)), (32, 1));
        // The counter's maximum is 1000, so 900 hits and one for the miss itself bring it back to the
        // limit.
        for n in 103..3000 {
            assert_eq!(len(&mut readahead, n), 1, "miss {n}");
        }
        readahead.hit(900);
        assert_eq!(len(&mut readahead, 3000), 1);
        readahead.hit(2);
        assert_eq!(len(&mut readahead, 3001), 32);
        // Misses that continue a run are not counted.
        let mut scan = Readahead::new(4, 32, 16, true);
        for n in 0..500 {
            scan.miss(1000 + 100 * n);
        }
        assert_eq!(scan.miss(1000 + 100 * 499 + 1), window(50_901, 4, 50_902));
    }

    #[test]
    fn no_window_at_all_if_none_is_wanted() {
        let mut readahead = Readahead::new(4, 0, 4, false);
        for page in 0..50 {
            assert_eq!(readahead.miss(page), Window { first: page, len: 1, trigger: None });
        }
    }

    #[test]
    fn a_swap_cluster_grows_with_its_use_and_shrinks_without() {
        let mut cluster = SwapCluster::new(8, true);
        assert_eq!(cluster.miss(1000), (1000, 1));
        assert_eq!(cluster.miss(1001), (1000, 2));
        cluster.used();
        assert_eq!(cluster.miss(1002), (1000, 4));
        for _ in 0..3 {
            cluster.used();
        }
        assert_eq!(cluster.miss(1013), (1008, 8));
        for expected in [(5004 & !3, 4), (9001 & !1, 2), (20_003, 1), (77, 1)] {
            let slot = match expected.1 {
                4 => 5004,
                2 => 9001,
                _ => expected.0,
            };
            assert_eq!(cluster.miss(slot), expected);
        }
        let mut whole = SwapCluster::new(8, false);
        for (slot, first) in [(1000, 1000), (5007, 5000), (77, 72)] {
            assert_eq!(whole.miss(slot), (first, 8));
        }
        let mut off = SwapCluster::new(1, true);
        off.miss(4);
        assert_eq!(off.miss(5), (5, 1));
    }
}
