//! The page map and the mapping cache against plain models.

use std::collections::{BTreeMap, BTreeSet};

use deepram_core::ftl::{MappingCache, MappingLookup, PageMap};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_page_map_is_a_map(changes in prop::collection::vec((0u32..70, 0u32..4), 0..200)) {
        let mut sparse = PageMap::sparse(64, 0);
        let mut full = PageMap::full(64, 0);
        let mut model = BTreeMap::new();
        for (page, value) in changes {
            let old = model.get(&page).copied().unwrap_or(0);
            if page < 64 {
                prop_assert_eq!((sparse.get(page), full.get(page)), (old, old));
                prop_assert_eq!((sparse.set(page, value), full.set(page, value)), (old, old));
                if value == 0 { model.remove(&page); } else { model.insert(page, value); }
            } else {
                prop_assert_eq!((sparse.set(page, value), sparse.get(page)), (0, 0));
            }
            let expected: Vec<(u32, u32)> = model.iter().map(|(page, value)| (*page, *value)).collect();
            let mut found: Vec<(u32, u32)> = sparse.iter().collect();
            found.sort_unstable();
            prop_assert_eq!(found, &expected[..]);
            prop_assert_eq!(full.iter().collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn a_sparse_map_takes_memory_for_what_is_mapped() {
    let mut map = PageMap::sparse(1 << 24, u64::MAX);
    for page in 0..1000 {
        map.set(page * 16_411, u64::from(page));
    }
    assert!(map.memory_bytes() < (1 << 23) + 200_000, "{}", map.memory_bytes());
    assert_eq!(map.iter().count(), 1000);
}

/// The mapping cache as a plain list with a dirty mark on each entry.
#[derive(Default)]
struct Marked {
    /// Oldest first: logical, awaited, dirty.
    entries: Vec<(u32, bool, bool)>,
    arriving: BTreeSet<u32>,
    leaving: BTreeMap<u32, u32>,
}

const PER_PAGE: u32 = 5;

impl Marked {
    fn look_up(&mut self, logical: u32, capacity: usize) -> (MappingLookup, Option<u32>) {
        if let Some(at) = self.entries.iter().position(|entry| entry.0 == logical) {
            if self.entries[at].1 {
                return (MappingLookup::Pending, None);
            }
            let entry = self.entries.remove(at);
            self.entries.push(entry);
            return (MappingLookup::Hit, None);
        }
        let mut write = None;
        if self.entries.len() >= capacity
            && let Some(at) = self.entries.iter().position(|entry| !entry.1)
        {
            let (old, _, dirty) = self.entries.remove(at);
            if dirty {
                let page = old / PER_PAGE;
                for entry in self.entries.iter_mut().filter(|entry| entry.0 / PER_PAGE == page) {
                    entry.2 = false;
                }
                *self.leaving.entry(page).or_insert(0) += 1;
                write = Some(page);
            }
        }
        let page = logical / PER_PAGE;
        let found = if self.leaving.get(&page).is_some_and(|writes| *writes > 0) {
            MappingLookup::Hit
        } else if self.arriving.contains(&page) {
            MappingLookup::Pending
        } else {
            self.arriving.insert(page);
            MappingLookup::Miss
        };
        self.entries.push((logical, found != MappingLookup::Hit, false));
        (found, write)
    }
}

proptest! {
    #[test]
    fn the_mapping_cache_does_what_marks_on_entries_would(
        capacity in 2usize..12,
        steps in prop::collection::vec((0u32..4, 0u32..40), 0..300),
    ) {
        let mut cache = MappingCache::new(capacity, 40, PER_PAGE);
        let mut model = Marked::default();
        let mut grown = capacity;
        for (kind, number) in steps {
            match kind {
                0 | 1 => {
                    let expected = model.look_up(number, grown);
                    grown = grown.max(model.entries.len());
                    prop_assert_eq!(cache.look_up(number), expected);
                }
                2 => {
                    // Only resident entries are changed.
                    if let Some(entry) = model.entries.iter_mut().find(|e| e.0 == number && !e.1) {
                        entry.2 = true;
                        cache.mark_dirty(number);
                    }
                }
                _ => {
                    let page = number / PER_PAGE;
                    if number % 2 == 0 {
                        if model.arriving.remove(&page) {
                            model.entries.iter_mut().filter(|e| e.0 / PER_PAGE == page).for_each(|e| e.1 = false);
                            cache.read_completed(page);
                        }
                    } else if let Some(writes) = model.leaving.get_mut(&page).filter(|writes| **writes > 0) {
                        *writes -= 1;
                        cache.write_completed(page);
                    }
                }
            }
        }
    }
}

#[test]
fn the_least_recently_used_dirty_entry_takes_its_page_with_it() {
    let mut cache = MappingCache::new(2, 100, 10);
    assert_eq!(cache.look_up(1), (MappingLookup::Miss, None));
    assert_eq!(cache.look_up(2), (MappingLookup::Pending, None));
    cache.read_completed(0);
    assert_eq!(cache.look_up(1), (MappingLookup::Hit, None));
    cache.mark_dirty(1);
    cache.mark_dirty(2);
    // Entry 2 is older now. Its eviction writes page 0, which leaves entry 1 clean.
    assert_eq!(cache.look_up(33), (MappingLookup::Miss, Some(0)));
    cache.read_completed(3);
    assert_eq!(cache.look_up(44), (MappingLookup::Miss, None), "entry 1 was clean");
    // Page 0 stays in memory until its write completes.
    assert_eq!(cache.look_up(2).0, MappingLookup::Hit);
    cache.write_completed(0);
}
