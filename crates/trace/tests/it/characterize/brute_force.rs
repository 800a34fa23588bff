//! The definitions, written as plainly as possible: linear searches and sets.

use std::collections::{BTreeMap, BTreeSet};

use deepram_trace::characterize::{PageRange, Precedence, SpatialClass, SpatialSetting};

/// A read or write: its time, pages and length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) range: PageRange,
    pub(super) bytes: u64,
    pub(super) write: bool,
    pub(super) time_ps: Option<u64>,
}

impl Request {
    pub(super) fn pages(&self) -> impl Iterator<Item = (u32, u64)> + use<> {
        let range = self.range;
        (range.first..=range.last).map(move |page| (range.device, page))
    }
}

/// Every page access: the page, and whether it is written.
pub(super) fn accesses(requests: &[Request]) -> Vec<((u32, u64), bool)> {
    requests.iter().flat_map(|request| request.pages().map(|page| (page, request.write))).collect()
}

/// The stack distance of each access: the paper's Algorithm 1, a list that is searched from its front.
pub(super) fn stack_distances<P: PartialEq + Copy>(pages: impl IntoIterator<Item = P>) -> Vec<Option<u32>> {
    let mut list: Vec<P> = Vec::new();
    let distance = |page: P| {
        // The end of the vector is the front of the list.
        let found = list.iter().rev().position(|other| *other == page);
        if let Some(distance) = found {
            list.remove(list.len() - 1 - distance);
        }
        list.push(page);
        found.map(|distance| distance as u32)
    };
    pages.into_iter().map(distance).collect()
}

/// The class of each request, found by comparing it with each request before it.
pub(super) fn spatial_classes(
    requests: &[Request],
    setting: SpatialSetting,
    precedence: Precedence,
    same_direction: bool,
) -> Vec<SpatialClass> {
    let mut classes = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let mut found = BTreeSet::new();
        let from = at.saturating_sub(setting.rod as usize);
        for earlier in &requests[from..at] {
            if earlier.range.device != request.range.device
                || same_direction && earlier.write != request.write
            {
                continue;
            }
            let (a, b) = (earlier.range, request.range);
            if (a.first..=a.last).any(|page| (b.first..=b.last).contains(&page)) {
                found.insert("overlapped");
            } else if b.first > a.last {
                let gap = b.first - a.last - 1;
                if gap == 0 {
                    found.insert("sequential");
                } else if gap <= u64::from(setting.stride_pages) {
                    found.insert("strided");
                }
            }
        }
        let first = precedence.order().into_iter().find(|class| found.contains(class.name()));
        classes.push(first.unwrap_or(SpatialClass::Random));
    }
    classes
}

/// Distinct pages of reads and writes, of reads, and of writes.
pub(super) fn distinct(requests: &[Request]) -> (u64, u64, u64) {
    let pages = |keep: &dyn Fn(&Request) -> bool| {
        let set: BTreeSet<_> =
            requests.iter().filter(|request| keep(request)).flat_map(Request::pages).collect();
        set.len() as u64
    };
    (pages(&|_| true), pages(&|request| !request.write), pages(&|request| request.write))
}

/// Number of accesses by distance: (reads, writes); `None` for first accesses.
pub(super) fn histogram(distances: &[Option<u32>], writes: &[bool]) -> BTreeMap<Option<u32>, [u64; 2]> {
    let mut counts: BTreeMap<_, [u64; 2]> = BTreeMap::new();
    for (distance, write) in distances.iter().zip(writes) {
        counts.entry(*distance).or_default()[usize::from(*write)] += 1;
    }
    counts
}
