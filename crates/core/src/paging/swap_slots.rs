//! Which slots of the swap file the pages of a batch get (ADR 15). A slot has the size of a page.
//!
//! Pages that are evicted together get runs of neighbouring slots, one after the other through an extent, so that they are
//! written with few requests, and read with few where they are used together again. The next extent is the one with the most
//! free slots, if seven eighths of it are free; otherwise the file grows by an extent. Disk space is cheap, and a mostly full
//! extent would give short runs.

use alloc::vec::Vec;

/// Slots of an extent: 16 MiB.
pub const EXTENT_SLOTS: u32 = 4096;
const WORDS: usize = EXTENT_SLOTS as usize / 64;

/// The slots of a swap file, by number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwapSlots {
    extents: Vec<Extent>,
    /// Where the search for the next run starts: extent, and slot in it.
    next: (usize, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Extent {
    /// One bit for each slot; set: allocated.
    taken: [u64; WORDS],
    free: u32,
}

impl SwapSlots {
    /// Allocates a run of at most `most` free slots. Returns the first slot and the length, which is at least 1. `grow` makes
    /// room in the file for the extent of this number.
    ///
    /// # Errors
    /// That of `grow`, if no slot is free.
    pub fn allocate<E>(
        &mut self,
        most: u32,
        mut grow: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(u32, u32), E> {
        loop {
            let (at, from) = self.next;
            if let Some(extent) = self.extents.get_mut(at)
                && let Some((first, len)) = extent.run(from, most)
            {
                extent.take(first, len);
                self.next = (at, first + len);
                return Ok((at as u32 * EXTENT_SLOTS + first, len));
            }
            let best = (0..self.extents.len()).max_by_key(|at| self.extents[*at].free);
            let roomy = best.filter(|at| self.extents[*at].free >= EXTENT_SLOTS / 8 * 7);
            let at = match roomy {
                Some(at) => at,
                None => match grow(self.extents.len()) {
                    Ok(()) => {
                        self.extents.push(Extent { taken: [0; WORDS], free: EXTENT_SLOTS });
                        self.extents.len() - 1
                    }
                    Err(error) => best.filter(|at| self.extents[*at].free > 0).ok_or(error)?,
                },
            };
            self.next = (at, 0);
        }
    }

    /// Frees an allocated slot.
    pub fn free(&mut self, slot: u32) {
        let extent = &mut self.extents[(slot / EXTENT_SLOTS) as usize];
        let within = slot % EXTENT_SLOTS;
        debug_assert!(extent.taken[within as usize / 64] >> (within % 64) & 1 == 1, "slot {slot} is free");
        extent.taken[within as usize / 64] &= !(1 << (within % 64));
        extent.free += 1;
    }

    /// The slots that are allocated now.
    #[must_use]
    pub fn taken(&self) -> SlotSet {
        SlotSet(self.extents.iter().map(|extent| extent.taken).collect())
    }

    /// Number of extents in the file.
    #[must_use]
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Number of allocated slots.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.extents.iter().map(|extent| (EXTENT_SLOTS - extent.free) as usize).sum()
    }

    /// Bytes of the tables.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.extents.len() * size_of::<Extent>()
    }
}

/// Slots that were allocated at one moment: a forked child may read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSet(Vec<[u64; WORDS]>);

impl SlotSet {
    /// Whether the slot is one of them.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        let (extent, within) = ((slot / EXTENT_SLOTS) as usize, slot % EXTENT_SLOTS);
        self.0.get(extent).is_some_and(|taken| taken[within as usize / 64] >> (within % 64) & 1 == 1)
    }

    /// Bytes of the table.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.len() * size_of::<[u64; WORDS]>()
    }
}

impl Extent {
    /// The first run of free slots from `from` on, of at most `most` slots.
    fn run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let first = self.find(from, false)?;
        let end = self.find(first, true).unwrap_or(EXTENT_SLOTS);
        Some((first, (end - first).min(most)))
    }

    /// The first slot from `from` on that is allocated (`taken`) or free.
    fn find(&self, from: u32, taken: bool) -> Option<u32> {
        let mut at = from;
        while at < EXTENT_SLOTS {
            let word = self.taken[at as usize / 64];
            let wanted = if taken { word } else { !word } >> (at % 64);
            if wanted != 0 {
                return Some(at + wanted.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn take(&mut self, first: u32, len: u32) {
        for slot in first..first + len {
            self.taken[slot as usize / 64] |= 1 << (slot % 64);
        }
        self.free -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn runs_are_whole_while_slots_are_free_and_a_full_file_is_an_error() {
        let mut slots = SwapSlots::default();
        let one = |extent| if extent == 0 { Ok(()) } else { Err("full") };
        assert_eq!(slots.allocate(256, one), Ok((0, 256)));
        assert_eq!(slots.allocate(4000, one), Ok((256, 3840)));
        assert_eq!(slots.allocate(1, one), Err("full"));
        slots.free(77);
        assert_eq!(slots.allocate(5, one), Ok((77, 1)));
        // An extent that is mostly free is used again before the file grows.
        (0..3700).for_each(|slot| slots.free(slot));
        assert_eq!((slots.allocate(64, |_| Err(())), slots.extents()), (Ok((78, 64)), 1));
    }

    proptest! {
        /// Compares the allocated slots with a set of numbers: no slot is given twice, and a run ends only where a slot is
        /// allocated, the extent ends, or as many were given as asked for.
        #[test]
        fn each_slot_has_one_page(steps in proptest::collection::vec((1u32..200, any::<prop::sample::Index>(), 0usize..250), 1..200)) {
            let mut slots = SwapSlots::default();
            let mut model = BTreeSet::new();
            for (most, at, frees) in steps {
                let (first, len) = slots.allocate(most, |_| Ok::<_, ()>(())).unwrap();
                prop_assert!((1..=most).contains(&len));
                let end = first + len;
                prop_assert!(len == most || end % EXTENT_SLOTS == 0 || model.contains(&end));
                prop_assert!((first..end).all(|slot| model.insert(slot)));
                let from = at.index(model.len());
                let gone: Vec<u32> = model.iter().skip(from).take(frees).copied().collect();
                for slot in gone {
                    slots.free(slot);
                    model.remove(&slot);
                }
                prop_assert_eq!(slots.allocated(), model.len());
                let taken = slots.taken();
                prop_assert!((0..slots.extents() as u32 * EXTENT_SLOTS + 1).all(|slot| taken.contains(slot) == model.contains(&slot)));
            }
        }
    }
}
