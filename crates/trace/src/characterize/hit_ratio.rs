//! Hit ratios of an LRU cache of any size, from the stack distances of all accesses.

/// The accesses that a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Reads and writes.
    All,
    /// Reads.
    Reads,
    /// Writes.
    Writes,
}

impl Counted {
    /// The sum of the counted ones of `[reads, writes]`.
    pub(super) fn of(self, [reads, writes]: [u64; 2]) -> u64 {
        match self {
            Self::All => reads + writes,
            Self::Reads => reads,
            Self::Writes => writes,
        }
    }
}

/// The accesses over which a hit ratio is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denominator {
    /// All accesses; a first access to a page is a miss at any cache size.
    AllAccesses,
    /// All accesses but the first to each page.
    Rereferences,
}

/// Accesses by stack distance and operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistanceHistogram {
    /// Reads and writes of each distance.
    counts: Vec<[u64; 2]>,
    /// Reads and writes that are the first access to their page.
    first: [u64; 2],
}

impl DistanceHistogram {
    /// Counts an access. `None` is the first access to a page.
    #[inline]
    pub fn add(&mut self, distance: Option<u32>, write: bool) {
        let count = match distance {
            None => &mut self.first,
            Some(distance) => {
                let at = distance as usize;
                if at >= self.counts.len() {
                    self.counts.resize((at + 1).max(2 * self.counts.len()), [0; 2]);
                }
                &mut self.counts[at]
            }
        };
        count[usize::from(write)] += 1;
    }

    /// Accesses of each distance, as `[reads, writes]`; the last entries may be 0.
    #[must_use]
    pub fn distances(&self) -> &[[u64; 2]] {
        &self.counts
    }

    /// First accesses to a page.
    #[must_use]
    pub fn first_accesses(&self, counted: Counted) -> u64 {
        counted.of(self.first)
    }

    /// All accesses.
    #[must_use]
    pub fn accesses(&self, counted: Counted) -> u64 {
        self.accesses_over(counted, Denominator::AllAccesses)
    }

    fn accesses_over(&self, counted: Counted, over: Denominator) -> u64 {
        let again: u64 = self.counts.iter().map(|count| counted.of(*count)).sum();
        match over {
            Denominator::AllAccesses => again + counted.of(self.first),
            Denominator::Rereferences => again,
        }
    }

    /// Hits in LRU caches of these capacities, in pages, in ascending order.
    #[must_use]
    pub fn hits(&self, capacities: &[u64], counted: Counted) -> Vec<u64> {
        let (mut sum, mut at) = (0, 0);
        let mut hits = Vec::with_capacity(capacities.len());
        for &capacity in capacities {
            let end = usize::try_from(capacity).unwrap_or(usize::MAX).min(self.counts.len());
            sum += self.counts[at.min(end)..end].iter().map(|count| counted.of(*count)).sum::<u64>();
            at = at.max(end);
            hits.push(sum);
        }
        hits
    }

    /// Hit ratio of an LRU cache of `capacity` pages; `None` without accesses.
    #[must_use]
    pub fn hit_ratio(&self, capacity: u64, counted: Counted, over: Denominator) -> Option<f64> {
        let accesses = self.accesses_over(counted, over);
        (accesses > 0).then(|| self.hits(&[capacity], counted)[0] as f64 / accesses as f64)
    }

    /// The smallest capacity, in pages, of an LRU cache with at least this hit ratio; `None` if no cache reaches it.
    #[must_use]
    pub fn capacity_for(&self, hit_ratio: f64, counted: Counted, over: Denominator) -> Option<u64> {
        let accesses = self.accesses_over(counted, over) as f64;
        let mut hits = 0;
        for (distance, count) in self.counts.iter().enumerate() {
            hits += counted.of(*count);
            if hits > 0 && hits as f64 >= hit_ratio * accesses {
                return Some(distance as u64 + 1);
            }
        }
        None
    }
}
