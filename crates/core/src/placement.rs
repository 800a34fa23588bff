//! Where in a block the segments of a batch go (NVMM, Use of the Bit Vector), and which table
//! entries that makes.
//!
//! One entry can refer to segment `s` in slot `start + k × per_page + s` for any place `k` of
//! the vector. So the segments of a page share an entry if their `slot − segment` differ by
//! multiples of `per_page`, by fewer than `places` of them. [`place`] looks for slots that need
//! few entries, [`group`] finds the entries for given slots.
//!
//! An entry's start can't lie before its block, so slot `i` of a block can hold segments 0 to `i`
//! only.

use alloc::vec::Vec;

use self::layout::{Layout, PageSet, Region};
use crate::units::{PageId, SegmentSize, Slot};

mod layout;

/// A segment to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentRef {
    /// Its page.
    pub page: PageId,
    /// Its number in the page.
    pub segment: u8,
}

/// Where each item of a batch goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// For each item its slot, as an index in the block; `None` if it does not fit.
    pub slots: Vec<Option<u32>>,
}

impl Placement {
    /// The index behind the last slot given out, or `first` if none is.
    #[must_use]
    pub fn end(&self, first: u16) -> u16 {
        self.slots.iter().flatten().map(|&slot| slot as u16 + 1).max().unwrap_or(first).max(first)
    }

    /// The items (by position in the batch) that did not fit.
    pub fn left_over(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.is_none()).map(|(item, _)| item)
    }
}

/// One entry to be: where it starts, and its bits.
#[derive(Debug, Clone, Copy)]
struct Group {
    start: u64,
    bits: u32,
}

impl Group {
    /// Adds the segment in a slot not below any added before, if the vector reaches so far and
    /// does not have the segment yet.
    fn join(&mut self, size: SegmentSize, segment: u8, first: u64) -> bool {
        let per_page = u64::from(size.per_page());
        let Some(ahead) = first.checked_sub(self.start) else {
            return false;
        };
        let place = ahead / per_page;
        if ahead % per_page != 0 || place >= u64::from(size.places()) {
            return false;
        }
        let anywhere = (0..size.places()).fold(0, |all, k| all | 1u32 << (k * size.per_page() + segment));
        if self.bits & anywhere != 0 {
            return false;
        }
        self.bits |= 1 << (place * per_page + u64::from(segment));
        true
    }
}

/// The entries for segments of one page that lie in these slots of the block beginning at
/// `block_first`, as (start, bits), in the order of their lowest slots. The fewest possible: the
/// lowest slot of each is in place 0, and later slots join where the vector reaches them. A
/// segment given twice gets two entries.
///
/// The caller has checked what it was given: each segment below the page's number of them, and at
/// least as many slots between `block_first` and a slot as its segment's number. What no entry can
/// express has none.
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

/// Assigns slots from `first` up to below `limit` of a block to the items, which the caller has
/// sorted by page and segment. Only slots for which `usable` is true are used, each once, and each
/// only for a segment it can hold.
///
/// The slots used are as tightly packed as possible: the range ends as early as it can, and up to
/// there a usable slot stays empty only where it can't hold any of the segments. Within that, the
/// segments of a page get few entries: pages are laid in one piece where possible, whole ones one
/// after the other, else interleaved through the alternative places; what still does not fit is
/// split, larger parts first. If not everything fits below `limit`, as much as possible does.
/// An item whose segment no page has does not fit anywhere.
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
    // Whole pages in unbroken runs leave the remnants of runs to be filled with parts of others.
    // Where that cost entries, the alternative places may do better.
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
