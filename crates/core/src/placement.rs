//! Placement: assigns the slots of a block to a batch of segments, and finds the page-table entries that
//! refer to them (NVMM, Use of the Bit Vector).
//!
//! An entry can refer to segment `s` at slot `start + k × per_page + s`, for every position `k` of the
//! vector. The segments of a page can therefore share an entry if their `slot − segment` differ by less
//! than `positions` multiples of `per_page`. [`place`] assigns slots such that few entries are needed,
//! [`group`] returns the entries for given slots.
//!
//! Invariant: an entry does not start before its block, so slot `i` of a block can hold only segments 0
//! to `i`.

use alloc::vec::Vec;

use self::layout::{Layout, PageSet, Region};
use crate::units::{PageId, SegmentSize, Slot};

mod layout;

/// A segment of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentRef {
    /// The page.
    pub page: PageId,
    /// The segment's number in the page.
    pub segment: u8,
}

/// The slots assigned to a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// For each segment of the batch its slot, as an index in the block; `None` if the segment does not
    /// fit.
    pub slots: Vec<Option<u32>>,
}

impl Placement {
    /// The index after the last assigned slot; `first` if no slot is assigned.
    #[must_use]
    pub fn end(&self, first: u16) -> u16 {
        self.slots.iter().flatten().map(|&slot| slot as u16 + 1).max().unwrap_or(first).max(first)
    }

    /// The segments that did not fit, by index in the batch.
    pub fn unplaced(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.is_none()).map(|(item, _)| item)
    }
}

/// A planned entry: its starting slot and its bit vector.
#[derive(Debug, Clone, Copy)]
struct Group {
    start: u64,
    bits: u32,
}

impl Group {
    /// Adds a segment whose slot is not below any added before; `first` is the slot minus the segment's
    /// number. Returns false if the vector does not reach the slot or contains the segment already.
    fn join(&mut self, size: SegmentSize, segment: u8, first: u64) -> bool {
        let per_page = u64::from(size.per_page());
        let Some(distance) = first.checked_sub(self.start) else {
            return false;
        };
        let position = distance / per_page;
        if distance % per_page != 0 || position >= u64::from(size.positions()) {
            return false;
        }
        let all_positions =
            (0..size.positions()).fold(0, |all, k| all | 1u32 << (k * size.per_page() + segment));
        if self.bits & all_positions != 0 {
            return false;
        }
        self.bits |= 1 << (position * per_page + u64::from(segment));
        true
    }
}

/// Returns the fewest entries for segments of one page in these slots of the block that starts at
/// `block_first`: (starting slot, bit vector), in the order of their lowest slots. The lowest slot of
/// each entry is at position 0, and later slots join the first entry that reaches them. A segment given
/// twice gets two entries.
///
/// The caller has validated the input: each segment number is below `size.per_page()`, and each slot is
/// at least its segment's number after `block_first`. A segment that no entry can refer to gets none.
#[must_use]
pub fn group(size: SegmentSize, block_first: Slot, placed: &[(u8, Slot)]) -> Vec<(Slot, u32)> {
    let mut by_slot = placed.to_vec();
    by_slot.sort_unstable_by_key(|&(segment, slot)| (slot, segment));
    let mut groups: Vec<Group> = Vec::new();
    for (segment, slot) in by_slot {
        let start = slot.0.checked_sub(u64::from(segment)).filter(|&start| start >= block_first.0);
        let Some(start) = start.filter(|_| segment < size.per_page()) else {
            debug_assert!(false, "segment {segment} in slot {slot:?} of the block from {block_first:?}");
            continue;
        };
        if !groups.iter_mut().any(|group| group.join(size, segment, start)) {
            groups.push(Group { start, bits: 1 << segment });
        }
    }
    groups.into_iter().map(|group| (Slot(group.start), group.bits)).collect()
}

/// Assigns the slots `first` to below `limit` of a block to `items`, which the caller has sorted by page
/// and segment. Each slot for which `usable` is true is assigned at most once, and only to a segment
/// that it can hold.
///
/// The assigned slots are packed as tightly as possible: their range ends as early as it can, and a
/// usable slot in it stays empty only if it can hold none of the segments. Within this constraint the
/// segments of a page need few entries: a page gets one entry where possible, whole pages one after the
/// other, other pages interleaved through the alternative positions; the remaining pages are split, the
/// larger parts first. If not all segments fit below `limit`, as many as possible are placed. An item
/// whose segment number is not valid is not placed.
#[must_use]
pub fn place(
    first: u16,
    limit: u16,
    usable: &dyn Fn(u16) -> bool,
    items: &[SegmentRef],
    size: SegmentSize,
) -> Placement {
    let pages = pages_of(items, size);
    let region = Region::new(first, limit, usable, items, size);
    let mut best = Layout::new(&region, items.len(), size);
    best.fill(&pages, true);
    // Whole pages in contiguous slots leave gaps that are filled with parts of other pages. If this
    // costs extra entries, the alternative positions may need fewer.
    let entries = best.entries(&pages);
    if entries > pages.len() {
        let mut other = Layout::new(&region, items.len(), size);
        other.fill(&pages, false);
        let (placed, others) = (best.placed(), other.placed());
        if others > placed || others == placed && other.entries(&pages) < entries {
            best = other;
        }
    }
    Placement { slots: best.slots }
}

fn pages_of(items: &[SegmentRef], size: SegmentSize) -> Vec<PageSet> {
    let mut pages: Vec<PageSet> = Vec::new();
    let mut last = None;
    for (item, reference) in (0..).zip(items) {
        if reference.segment >= size.per_page() {
            continue;
        }
        let bit = 1 << reference.segment;
        if last != Some(reference.page) || pages.last().is_none_or(|page| page.mask & bit != 0) {
            pages.push(PageSet { mask: 0, items: [0; 16] });
            last = Some(reference.page);
        }
        if let Some(page) = pages.last_mut() {
            page.mask |= bit;
            page.items[usize::from(reference.segment)] = item;
        }
    }
    pages
}
