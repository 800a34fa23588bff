//! Placement of segments in a block, and the entries that result from it.

use std::cell::Cell;
use std::collections::BTreeSet;

use deepram_core::placement::{SegmentRef, group, place};
use deepram_core::units::{PageId, SegmentSize, Slot};
use proptest::prelude::*;

const SIZES: [SegmentSize; 3] = [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16];

/// The segments of the masks, page by page.
fn batch(masks: &[u32], size: SegmentSize) -> Vec<SegmentRef> {
    let pages = (0..).map(PageId).zip(masks);
    pages
        .flat_map(|(page, mask)| {
            let segments = (0..size.per_page()).filter(move |segment| mask >> segment & 1 != 0);
            segments.map(move |segment| SegmentRef { page, segment })
        })
        .collect()
}

/// Returns the entries of all pages, for slots given by [`place`] in a block that begins at `block_first`.
/// Checks that the entries give the slot of each segment.
fn entries(size: SegmentSize, block_first: u64, items: &[SegmentRef], slots: &[Option<u32>]) -> usize {
    let pages: BTreeSet<PageId> = items.iter().map(|item| item.page).collect();
    let mut count = 0;
    for page in pages {
        let placed: Vec<(u8, Slot)> = items
            .iter()
            .zip(slots)
            .filter(|(item, _)| item.page == page)
            .filter_map(|(item, slot)| Some((item.segment, Slot(block_first + u64::from((*slot)?)))))
            .collect();
        let groups = group(size, Slot(block_first), &placed);
        let per_page = u32::from(size.per_page());
        let mut found = Vec::new();
        for &(start, bits) in &groups {
            assert!(start.0 >= block_first);
            let of_group: Vec<_> = (0..32).filter(|bit| bits >> bit & 1 != 0).collect();
            let distinct: BTreeSet<_> = of_group.iter().map(|bit| bit % per_page).collect();
            assert_eq!(distinct.len(), of_group.len(), "one bit a segment");
            assert!(of_group[0] < per_page, "the lowest slot is in place 0");
            found
                .extend(of_group.iter().map(|bit| ((bit % per_page) as u8, Slot(start.0 + u64::from(*bit)))));
        }
        found.sort();
        let mut placed = placed;
        placed.sort();
        assert_eq!(found, placed);
        count += groups.len();
    }
    count
}

#[test]
fn the_worn_page_of_the_paper_is_one_entry() {
    let placed = [(0, 53), (1, 54), (2, 55), (3, 64), (4, 57), (5, 58), (6, 75), (7, 60)];
    let placed = placed.map(|(segment, slot)| (segment, Slot(slot)));
    let bits = [0, 1, 2, 4, 5, 7, 8 + 3, 16 + 6].iter().fold(0u32, |all, bit| all | 1 << bit);
    assert_eq!(group(SegmentSize::K8, Slot(0), &placed), [(Slot(53), bits)]);
}

#[test]
fn segments_2_and_5_share_an_entry_at_the_seven_distances_of_the_paper_only() {
    let mut shared = Vec::new();
    for distance in 1..40 {
        // Either of the two segments may have the lower slot.
        for (low, high) in [(2, 5), (5, 2)] {
            let placed = [(low, Slot(100)), (high, Slot(100 + distance))];
            if group(SegmentSize::K8, Slot(0), &placed).len() == 1 {
                shared.push(distance);
            }
        }
    }
    assert_eq!(shared, [3, 5, 11, 13, 19, 21, 27]);
}

#[test]
fn a_segment_given_twice_makes_two_entries() {
    let placed = [(1, Slot(11)), (1, Slot(3))];
    assert_eq!(group(SegmentSize::K8, Slot(0), &placed), [(Slot(2), 2), (Slot(10), 2)]);
}

#[test]
fn an_entry_may_start_where_its_block_starts() {
    assert_eq!(group(SegmentSize::K8, Slot(64), &[(3, Slot(67))]), [(Slot(64), 8)]);
    assert_eq!(group(SegmentSize::K8, Slot(64), &[]), []);
}

#[test]
fn whole_pages_lie_one_after_the_other() {
    for size in SIZES {
        let items = batch(&[u32::MAX; 5], size);
        for first in [0, 7, 100] {
            let placement = place(first, u16::MAX, &|_| true, &items, size);
            let expected: Vec<_> =
                (0..items.len() as u32).map(|item| Some(item + u32::from(first))).collect();
            assert_eq!(placement.slots, expected);
            assert_eq!(placement.end(first), first + items.len() as u16);
            assert_eq!(placement.unplaced().count(), 0);
        }
    }
}

#[test]
fn a_worn_slot_splits_one_whole_page_not_every_later_one() {
    let items = batch(&[u32::MAX; 100], SegmentSize::K8);
    let placement = place(0, 1024, &|slot| slot != 403, &items, SegmentSize::K8);
    assert_eq!(placement.end(0), 801);
    assert_eq!(entries(SegmentSize::K8, 0, &items, &placement.slots), 101);
}

#[test]
fn parts_of_pages_interleave_without_gaps() {
    // The paper's segments 2 and 5: three such pages in six slots.
    let items = batch(&[0b100100; 3], SegmentSize::K8);
    let placement = place(17, 1024, &|_| true, &items, SegmentSize::K8);
    assert_eq!(placement.slots, [17, 20, 18, 21, 19, 22].map(Some));
    // Every second segment of two pages, every third of three.
    for (mask, pages) in [(0b0101_0101, 2), (0b0100_1001, 3)] {
        let items = batch(&vec![mask; pages], SegmentSize::K8);
        let placement = place(64, 1024, &|_| true, &items, SegmentSize::K8);
        assert_eq!(usize::from(placement.end(64)), 64 + items.len());
        assert_eq!(entries(SegmentSize::K8, 0, &items, &placement.slots), pages);
    }
}

#[test]
fn the_start_of_a_block_takes_low_segments_or_stays_empty() {
    let items = batch(&[0b1010_0000, 0b0000_0010], SegmentSize::K8);
    let placement = place(0, 1024, &|_| true, &items, SegmentSize::K8);
    assert_eq!(placement.slots, [5, 7, 1].map(Some));
    // From slot 6 on there is no such limit.
    let placement = place(7, 1024, &|_| true, &items, SegmentSize::K8);
    assert_eq!(placement.end(7), 10);
}

#[test]
fn a_low_segment_comes_down_so_that_a_high_one_fits_as_well() {
    // Slot 5 is the only one for segment 5; only slots 0 and 1 are left for the others.
    let items = batch(&[0b100001, 0b10], SegmentSize::K8);
    let usable = |slot| [0, 1, 5].contains(&slot);
    let placement = place(0, 6, &usable, &items, SegmentSize::K8);
    assert_eq!(placement.slots, [0, 5, 1].map(Some));
}

#[test]
fn what_does_not_fit_is_left_over_and_pages_stay_whole_if_they_can() {
    let items = batch(&[0xff, 0xff, 0xff], SegmentSize::K8);
    let placement = place(0, 16, &|_| true, &items, SegmentSize::K8);
    assert_eq!(placement.unplaced().collect::<Vec<_>>(), (16..24).collect::<Vec<_>>());
    // A single segment fills the odd slot; no page is split.
    let items = batch(&[0xff, 0xff, 0b100], SegmentSize::K8);
    let placement = place(8, 17, &|_| true, &items, SegmentSize::K8);
    assert_eq!(placement.unplaced().collect::<Vec<_>>(), (8..16).collect::<Vec<_>>());
    assert_eq!(placement.slots[16], Some(16));
}

#[test]
fn a_block_without_room_takes_nothing() {
    let items = batch(&[0xff], SegmentSize::K8);
    for (first, limit) in [(0, 0), (9, 9), (9, 8), (u16::MAX, u16::MAX), (u16::MAX, 0)] {
        let placement = place(first, limit, &|_| true, &items, SegmentSize::K8);
        assert_eq!(placement.slots, [None; 8]);
        assert_eq!(placement.end(first), first);
    }
    assert_eq!(place(0, 64, &|_| false, &items, SegmentSize::K8).slots, [None; 8]);
    assert!(place(0, 64, &|_| true, &[], SegmentSize::K8).slots.is_empty());
}

#[test]
fn a_segment_no_page_has_is_left_over() {
    let items = [SegmentRef { page: PageId(1), segment: 8 }, SegmentRef { page: PageId(1), segment: 255 }];
    assert_eq!(place(0, 64, &|_| true, &items, SegmentSize::K8).slots, [None, None]);
}

#[test]
fn no_more_slots_are_asked_about_than_needed() {
    let asked = Cell::new(0);
    let usable = |_| {
        asked.set(asked.get() + 1);
        true
    };
    let _ = place(10, u16::MAX, &usable, &batch(&[0xff], SegmentSize::K8), SegmentSize::K8);
    assert_eq!(asked.get(), 8);
}

fn size() -> impl Strategy<Value = SegmentSize> {
    prop::sample::select(SIZES.to_vec())
}

proptest! {
    #[test]
    fn every_slot_holds_one_segment_it_can_hold_and_none_is_wasted(
        size in size(),
        masks in prop::collection::vec(
            prop_oneof![Just(0xffff), any::<u16>(), (0..16u32, 0..16u32).prop_map(|(a, b)| 1 << a | 1 << b)],
            0..40,
        ),
        first in prop_oneof![Just(0), 0..20u16, 0..500u16],
        room in 0..700u16,
        worn in prop::collection::btree_set(0..700u16, 0..40),
        worn_start in any::<u16>(),
    ) {
        let masks: Vec<u32> = masks.into_iter().map(u32::from).collect();
        let items = batch(&masks, size);
        let limit = first + room;
        let usable = |slot: u16| !worn.contains(&slot) && (slot >= 16 || worn_start >> slot & 1 == 0);
        let placement = place(first, limit, &usable, &items, size);
        prop_assert_eq!(placement.slots.len(), items.len());

        let mut taken = BTreeSet::new();
        for (item, slot) in items.iter().zip(&placement.slots) {
            let Some(slot) = *slot else { continue };
            prop_assert!(slot >= u32::from(item.segment), "{item:?} in {slot}");
            prop_assert!(slot >= first.into() && slot < limit.into() && usable(slot as u16));
            prop_assert!(taken.insert(slot), "slot {slot} given out twice");
        }
        let end = placement.end(first);
        prop_assert_eq!(u32::from(end), taken.last().map_or(first.into(), |last| last + 1));

        // A slot stays empty only if no segment that is placed higher, or not at all, could use it.
        for empty in (first..limit).filter(|&slot| usable(slot) && !taken.contains(&slot.into())) {
            for (item, slot) in items.iter().zip(&placement.slots) {
                let elsewhere = slot.is_none_or(|slot| slot > empty.into());
                prop_assert!(
                    !elsewhere || u16::from(item.segment) > empty,
                    "slot {empty} is empty, {item:?} in {slot:?}"
                );
            }
        }
        let block_first = 1 << 20;
        let entries = entries(size, block_first, &items, &placement.slots);
        prop_assert!(entries <= taken.len());
        prop_assert_eq!(placement.clone(), place(first, limit, &usable, &items, size));
    }

    #[test]
    fn grouping_finds_the_fewest_entries(
        size in size(),
        slots in prop::collection::btree_set(16..80u64, 1..7),
        segments in Just((0..16u8).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let placed: Vec<(u8, Slot)> = segments
            .into_iter()
            .filter(|&segment| segment < size.per_page())
            .zip(slots)
            .map(|(segment, slot)| (segment, Slot(slot)))
            .collect();
        let fewest = (1..).find(|&count| partition(size, &placed, &mut Vec::new(), count)).unwrap();
        prop_assert_eq!(group(size, Slot(0), &placed).len(), fewest);
    }

    #[test]
    fn hostile_batches_do_no_harm(
        size in size(),
        items in prop::collection::vec((0..4u32, any::<u8>().prop_map(|s| s % 20)), 0..60),
        first in any::<u16>(),
        limit in any::<u16>(),
    ) {
        let items: Vec<_> = items.into_iter().map(|(page, segment)| SegmentRef { page: PageId(page), segment }).collect();
        let placement = place(first, limit, &|_| true, &items, size);
        let taken: Vec<u32> = placement.slots.iter().flatten().copied().collect();
        prop_assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len());
        let possible = items.iter().filter(|item| item.segment < size.per_page()).count();
        if usize::from(limit.saturating_sub(first)) >= possible && first >= 16 {
            prop_assert_eq!(taken.len(), possible);
        }
    }
}

/// Returns whether the rest can be split into at most `count` entries, by exhaustive search.
fn partition(size: SegmentSize, rest: &[(u8, Slot)], parts: &mut Vec<Vec<(u8, Slot)>>, count: usize) -> bool {
    let per_page = u64::from(size.per_page());
    let Some((&item, rest)) = rest.split_first() else {
        return parts.iter().all(|part| {
            let firsts: Vec<u64> = part.iter().map(|&(segment, slot)| slot.0 - u64::from(segment)).collect();
            let start = *firsts.iter().min().unwrap();
            firsts.iter().all(|first| {
                (first - start).is_multiple_of(per_page)
                    && (first - start) / per_page < u64::from(size.positions())
            })
        });
    };
    for at in 0..parts.len() {
        parts[at].push(item);
        if partition(size, rest, parts, count) {
            return true;
        }
        parts[at].pop();
    }
    if parts.len() == count {
        return false;
    }
    parts.push(vec![item]);
    let found = partition(size, rest, parts, count);
    parts.pop();
    found
}
