//! A set of addresses, as disjoint spans: of managed or reserved memory, or of memory treated specially at a fork.

use std::collections::BTreeMap;

/// A set of addresses: disjoint spans that do not touch each other.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    /// Start to end of each span.
    all: BTreeMap<usize, usize>,
    /// Number of addresses in the set.
    bytes: usize,
}

impl Spans {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { all: BTreeMap::new(), bytes: 0 }
    }

    /// Adds the addresses from `start` up to `end`.
    pub fn insert(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        self.remove(start, end);
        self.bytes += end - start;
        let (mut start, mut end) = (start, end);
        if let Some((&before, &its_end)) = self.all.range(..start).next_back()
            && its_end == start
        {
            start = before;
        }
        if let Some(after_end) = self.all.remove(&end) {
            end = after_end;
        }
        self.all.insert(start, end);
    }

    /// Removes the addresses from `start` up to `end`.
    pub fn remove(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        self.bytes -= self.within(start, end).iter().map(|(from, to)| to - from).sum::<usize>();
        // Only the last span inside, or the span that contains the whole range, can extend beyond the end.
        let last = self.all.range(..end).next_back().map(|(_, its_end)| *its_end);
        if let Some((_, its_end)) = self.all.range_mut(..start).next_back() {
            *its_end = (*its_end).min(start);
        }
        let inside: Vec<usize> = self.all.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            self.all.remove(&at);
        }
        if let Some(its_end) = last.filter(|its_end| *its_end > end) {
            self.all.insert(end, its_end);
        }
    }

    /// The parts of the range that are in the set, as (start, end), in order.
    #[must_use]
    pub fn within(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let before = self.all.range(..start).next_back();
        let after = self.all.range(start..end.max(start));
        let all = before.into_iter().chain(after).map(|(s, e)| ((*s).max(start), (*e).min(end)));
        all.filter(|(s, e)| s < e).collect()
    }

    /// Whether all addresses of the range are in the set.
    #[must_use]
    pub fn covers(&self, start: usize, end: usize) -> bool {
        start >= end || self.all.range(..=start).next_back().is_some_and(|(_, its_end)| end <= *its_end)
    }

    /// The parts of the range that are not in the set, as (start, end), in order.
    #[must_use]
    pub fn outside(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, to) in self.within(start, end).into_iter().chain([(end, end)]) {
            if at < from {
                gaps.push((at, from));
            }
            at = to;
        }
        gaps
    }

    /// Whether the address is in the set.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.all.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
    }

    /// All spans, as (start, end), in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.all.iter().map(|(start, end)| (*start, *end))
    }

    /// Number of addresses in the set.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spans_are_a_set_of_addresses(
            steps in proptest::collection::vec((any::<bool>(), 0usize..90, 0usize..40, 0usize..120, 0usize..60), 1..40)
        ) {
            let mut spans = Spans::new();
            let mut model = std::collections::BTreeSet::new();
            for (add, start, count, from, len) in steps {
                if add {
                    spans.insert(start, start + count);
                    model.extend(start..start + count);
                } else {
                    spans.remove(start, start + count);
                    model.retain(|at| !(start..start + count).contains(at));
                }
                prop_assert_eq!(spans.bytes(), model.len());
                for at in 0..140 {
                    prop_assert_eq!(spans.contains(at), model.contains(&at), "address {}", at);
                }
                let all: Vec<_> = spans.iter().collect();
                prop_assert!(all.windows(2).all(|w| w[0].1 < w[1].0), "{:?}", all);
                let within: Vec<usize> =
                    spans.within(from, from + len).into_iter().flat_map(|(s, e)| s..e).collect();
                let wanted: Vec<usize> = model.range(from..from + len).copied().collect();
                prop_assert_eq!(within, wanted);
                prop_assert_eq!(spans.covers(from, from + len), (from..from + len).all(|at| model.contains(&at)));
                let outside: Vec<usize> =
                    spans.outside(from, from + len).into_iter().flat_map(|(s, e)| s..e).collect();
                let wanted: Vec<usize> = (from..from + len).filter(|at| !model.contains(at)).collect();
                prop_assert_eq!(outside, wanted);
            }
        }
    }
}
