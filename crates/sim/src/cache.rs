//! Replacement policies on their own: counts the misses of a trace's page or object references in a
//! cache of a fixed capacity, at the speed of the policy itself.
//!
//! ```
//! use deepram_sim::cache::{Policy, ReferenceString, misses};
//!
//! let references = ReferenceString::numbers([1, 2, 3, 1, 2, 4, 1]);
//! assert_eq!(misses(Policy::Lru, 3, &references), 4);
//! ```

use std::collections::HashMap;

pub use deepram_core::cache::Policy;
use deepram_trace::{Item, Op};

/// The policies that are compared with other caches: those that libCacheSim has, too.
pub const POLICIES: [Policy; 7] =
    [Policy::Lru, Policy::Fifo, Policy::Clock, Policy::Clock2, Policy::Sieve, Policy::S3Fifo, Policy::Arc];

/// A page reference string: the references of a trace in order, each to a page or object. Pages and
/// objects are numbered 0, 1, ... in the order of first reference, which keeps sparse ids small and
/// changes no miss count.
#[derive(Debug, Clone, Default)]
pub struct ReferenceString {
    numbers: Vec<u32>,
    distinct: u32,
}

impl ReferenceString {
    /// The reference string of pages or objects with these numbers or ids.
    pub fn numbers(ids: impl IntoIterator<Item = u64>) -> Self {
        let mut references = Self::default();
        let mut seen = HashMap::new();
        for id in ids {
            references.push(&mut seen, (0, id));
        }
        references
    }

    /// The references of a trace's records, `most` at most: one for an access to an object, and one for
    /// each page of `page_bytes` (0 counts as 1) that a block request or a memory reference touches. A
    /// trim or a flush is not a reference.
    ///
    /// # Errors
    /// The first error of the trace.
    pub fn of<E>(
        items: impl IntoIterator<Item = Result<Item, E>>,
        page_bytes: u64,
        most: usize,
    ) -> Result<Self, E> {
        let page_bytes = page_bytes.max(1);
        let mut references = Self::default();
        let mut seen = HashMap::new();
        for item in items {
            let (device, pages) = match item? {
                Item::Object(o) if uses(o.op) => (0, o.id..=o.id),
                Item::Block(r) if uses(r.op) && r.len > 0 => (r.device, pages(r.offset, r.len, page_bytes)),
                Item::Mem(m) => (0, pages(m.addr, u64::from(m.size).max(1), page_bytes)),
                Item::Object(_) | Item::Block(_) => continue,
            };
            for page in pages {
                if references.numbers.len() >= most {
                    return Ok(references);
                }
                references.push(&mut seen, (device, page));
            }
        }
        Ok(references)
    }

    fn push(&mut self, seen: &mut HashMap<(u32, u64), u32>, what: (u32, u64)) {
        let next = self.distinct;
        let number = *seen.entry(what).or_insert(next);
        // `u32` cannot overflow here: each distinct page takes more than 16 bytes of the map, so memory
        // runs out first.
        self.distinct += u32::from(number == next);
        self.numbers.push(number);
    }

    /// The page or object number of each reference, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.numbers
    }

    /// The number of references.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// True if the string has no references.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number of distinct pages or objects.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        u64::from(self.distinct)
    }
}

fn uses(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write)
}

/// The pages that the `len` bytes (at least 1) from `first` on touch.
fn pages(first: u64, len: u64, page_bytes: u64) -> std::ops::RangeInclusive<u64> {
    first / page_bytes..=first.saturating_add(len - 1) / page_bytes
}

/// The number of references that miss in a cache of `capacity` pages or objects (0 counts as 1) that is
/// empty at first.
#[must_use]
pub fn misses(policy: Policy, capacity: usize, references: &ReferenceString) -> u64 {
    policy.build(capacity).access_all(references.as_slice())
}
