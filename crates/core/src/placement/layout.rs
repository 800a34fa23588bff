//! The search for slots of [`super::place`].

use alloc::vec;
use alloc::vec::Vec;

use super::{SegmentRef, group};
use crate::units::{SegmentSize, Slot};

/// The segments of one page that are to be placed together.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageSet {
    pub(super) mask: u32,
    /// For each segment in the mask its index in the batch.
    pub(super) items: [u32; 16],
}

/// The slots that a packed placement fills. They follow from a simpler problem in which every segment
/// has its own entry: in ascending order each usable slot takes a segment if a remaining one fits there.
pub(super) struct Region {
    /// Bit `i` of the words: slot `i` of the block must be filled. One word more than needed.
    free: Vec<u64>,
    /// The index after the last of these slots.
    end: u32,
}

impl Region {
    pub(super) fn new(
        first: u16,
        limit: u16,
        usable: &dyn Fn(u16) -> bool,
        items: &[SegmentRef],
        size: SegmentSize,
    ) -> Self {
        let mut counts = [0; 16];
        for item in items.iter().filter(|item| item.segment < size.per_page()) {
            counts[usize::from(item.segment)] += 1;
        }
        let total: usize = counts.iter().sum();
        let (mut filled, mut end) = (0, 0);
        let mut free = vec![0; usize::from(limit) / 64 + 2];
        for slot in first..limit {
            if filled == total {
                break;
            }
            let index = usize::from(slot);
            let fitting: usize = counts.iter().take(index + 1).sum();
            if fitting > filled && usable(slot) {
                free[index / 64] |= 1 << (index % 64);
                filled += 1;
                end = u32::from(slot) + 1;
            }
        }
        Self { free, end }
    }
}

/// A placement under construction.
pub(super) struct Layout {
    size: SegmentSize,
    free: Vec<u64>,
    end: u32,
    pub(super) slots: Vec<Option<u32>>,
}

impl Layout {
    pub(super) fn new(region: &Region, items: usize, size: SegmentSize) -> Self {
        Self { size, free: region.free.clone(), end: region.end, slots: vec![None; items] }
    }

    pub(super) fn placed(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn all_segments(&self) -> u32 {
        (1 << self.size.per_page()) - 1
    }

    /// The 32 slots from `start` on; bit `i` is set if slot `start + i` is free.
    fn window(&self, start: u32) -> u32 {
        let (word, shift) = (start as usize / 64, start % 64);
        let pair = u128::from(self.free[word]) | u128::from(self.free[word + 1]) << 64;
        (pair >> shift) as u32
    }

    /// The segments that have a free position under an entry with this start.
    fn reach(&self, start: u32) -> u32 {
        let window = self.window(start);
        let per_page = u32::from(self.size.per_page());
        (0..u32::from(self.size.positions())).fold(0, |all, position| all | window >> (position * per_page))
            & self.all_segments()
    }

    /// The slot of a segment under an entry with this start: its lowest free position.
    fn slot(&self, start: u32, segment: u32) -> Option<u32> {
        let window = self.window(start) >> segment;
        let per_page = u32::from(self.size.per_page());
        let position = (0..u32::from(self.size.positions()))
            .find(|position| window >> (position * per_page) & 1 != 0)?;
        Some(start + segment + position * per_page)
    }

    /// The lowest start of an entry that reaches a free slot.
    fn lowest_start(&self) -> u32 {
        let word = self.free.iter().position(|&word| word != 0).unwrap_or(self.free.len());
        let lowest = word as u32 * 64 + self.free.get(word).map_or(0, |word| word.trailing_zeros());
        lowest.saturating_sub(u32::from(self.size.per_page()) - 1)
    }

    /// The first start from `from` on under which all segments of the mask have a free position;
    /// position 0 if `contiguous`.
    fn first_fit(&self, mask: u32, from: u32, contiguous: bool) -> Option<u32> {
        (from.max(self.lowest_start())..self.end).find(|&start| {
            let there = if contiguous { self.window(start) } else { self.reach(start) };
            mask & !there == 0
        })
    }

    /// The best start among the `per_page` starts from the first fit on: one with all segments at
    /// position 0 if it exists, and of several the one whose last slot is lowest, which leaves the
    /// fewest gaps.
    fn tightest(&self, mask: u32, first: u32) -> u32 {
        let last = |start: u32| segments(mask).filter_map(|segment| self.slot(start, segment)).max();
        (first..self.end.min(first + u32::from(self.size.per_page())))
            .filter(|&start| mask & !self.reach(start) == 0)
            .min_by_key(|&start| (mask & !self.window(start) != 0, last(start)))
            .unwrap_or(first)
    }

    /// Assigns slots to the segments in the mask under an entry with this start.
    fn take(&mut self, page: &PageSet, mask: u32, start: u32) {
        for segment in segments(mask) {
            if let Some(slot) = self.slot(start, segment) {
                self.set(page.items[segment as usize], slot);
            }
        }
    }

    fn set(&mut self, item: u32, slot: u32) {
        self.free[slot as usize / 64] &= !(1 << (slot % 64));
        self.slots[item as usize] = Some(slot);
    }

    pub(super) fn fill(&mut self, pages: &[PageSet], contiguous: bool) {
        let all = self.all_segments();
        let free_slots: u32 = self.free.iter().map(|word| word.count_ones()).sum();
        let items: u32 = pages.iter().map(|page| page.mask.count_ones()).sum();
        // The largest pages first; equal masks together, so that each search continues where the last
        // one ended.
        let mut order: Vec<&PageSet> = pages.iter().collect();
        order.sort_by_key(|page| (core::cmp::Reverse(page.mask.count_ones()), page.mask));
        if contiguous {
            let mut from = 0;
            order.retain(|page| {
                let fit = (page.mask == all).then(|| self.first_fit(all, from, true)).flatten();
                let Some(start) = fit else {
                    return true;
                };
                self.take(page, all, start);
                from = start;
                false
            });
        }
        let (mut single_segments, mut split_pages) = (Vec::new(), Vec::new());
        let (mut mask, mut from) = (0, Some(0));
        for page in order {
            if page.mask != mask {
                (mask, from) = (page.mask, Some(0));
            }
            if mask.count_ones() == 1 {
                single_segments.push(page);
                continue;
            }
            from = from.and_then(|from| self.first_fit(mask, from, false));
            match from {
                Some(first) => self.take(page, mask, self.tightest(mask, first)),
                None => split_pages.push(page),
            }
        }
        // A single segment always costs one entry, so parts of pages choose their slots first. If not
        // all segments fit, single segments go first: placing a whole page is better than placing a part
        // of one.
        if items > free_slots {
            self.fill_parts(&single_segments);
            self.fill_parts(&split_pages);
        } else {
            self.fill_parts(&split_pages);
            self.fill_parts(&single_segments);
        }
        self.fill_block_start(pages);
    }

    /// Places pages in several parts, the largest possible part first.
    fn fill_parts(&mut self, pages: &[&PageSet]) {
        for page in pages {
            let mut mask = page.mask;
            while mask != 0 {
                let Some((start, part)) = self.largest_part(mask) else {
                    break;
                };
                self.take(page, part, start);
                mask &= !part;
            }
        }
    }

    /// The start under which the most segments of the mask have a free position, and these segments.
    fn largest_part(&self, mask: u32) -> Option<(u32, u32)> {
        let mut best = (0, 0u32);
        for start in self.lowest_start()..self.end {
            let part = self.reach(start) & mask;
            if part.count_ones() > best.1.count_ones() {
                best = (start, part);
                if part == mask {
                    break;
                }
            }
        }
        (best.1 != 0).then_some(best)
    }

    /// Fills free slots at the start of the block. Such a slot is free although every slot of the region
    /// can be filled, because the low segments that it can hold were placed in higher slots. Moving such
    /// a segment down frees a higher slot for an unplaced segment.
    fn fill_block_start(&mut self, pages: &[PageSet]) {
        let Some(mut slot) = self.highest_free() else {
            return;
        };
        let mut segment_of = vec![0; self.slots.len()];
        let mut unplaced = Vec::new();
        for page in pages {
            for segment in segments(page.mask) {
                let item = page.items[segment as usize];
                segment_of[item as usize] = segment;
                if self.slots[item as usize].is_none() {
                    unplaced.push((segment, item));
                }
            }
        }
        unplaced.sort_unstable();
        for (segment, item) in unplaced {
            while slot < segment {
                let highest = (0..self.slots.len())
                    .filter(|&other| segment_of[other] <= slot)
                    .max_by_key(|&other| self.slots[other])
                    .and_then(|other| Some((other, self.slots[other].filter(|&its_slot| its_slot > slot)?)));
                let Some((other, its_slot)) = highest else {
                    debug_assert!(false, "every slot of a region can be filled");
                    return;
                };
                self.set(other as u32, slot);
                slot = its_slot;
            }
            self.set(item, slot);
            match self.highest_free() {
                Some(next) => slot = next,
                None => return,
            }
        }
    }

    fn highest_free(&self) -> Option<u32> {
        let word = self.free.iter().rposition(|&word| word != 0)?;
        Some(word as u32 * 64 + self.free[word].ilog2())
    }

    pub(super) fn entries(&self, pages: &[PageSet]) -> usize {
        let mut entries = 0;
        for page in pages {
            let placed: Vec<(u8, Slot)> = segments(page.mask)
                .filter_map(|segment| {
                    let slot = self.slots[page.items[segment as usize] as usize]?;
                    Some((segment as u8, Slot(slot.into())))
                })
                .collect();
            entries += group(self.size, Slot(0), &placed).len();
        }
        entries
    }
}

/// The numbers of the set bits.
fn segments(mask: u32) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    core::iter::from_fn(move || {
        let segment = (rest != 0).then(|| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(segment)
    })
}
