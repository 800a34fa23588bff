//! Volumes, case by case.

use deepram_core::page_table::{CHUNK_BYTES, PageTable};
use deepram_core::{
    BlockId, ChunkId, ConfigError, Entry, Epoch, PageId, Retention, SegmentSize, Slot, Stamp, Status,
    Version, Volume, VolumeConfig, VolumeError, VolumeSnapshot,
};

const CONFIG: VolumeConfig = VolumeConfig {
    segment: SegmentSize::K8,
    pages: 300,
    upper: 600,
    blocks: 64,
    slots_per_block: 64,
    stamp_limit: 1000,
    retention: Retention::KeepLast(100),
};
/// Index of the first entry of the table's upper region.
const UPPER: u32 = 512;
const RW: Status = Status::new(false, true, true);
const RO: Status = Status::new(true, true, false);

/// Opens block 0 and hands all of its slots out.
fn volume(config: VolumeConfig) -> Volume {
    let mut volume = Volume::new(config).unwrap();
    open(&mut volume, 0);
    volume
}

fn open(volume: &mut Volume, block: u32) {
    volume.blocks_mut().open_at(BlockId(block), 0, 1).unwrap();
    volume.blocks_mut().set_used(BlockId(block), 64).unwrap();
}

/// A page whose segments 0, 1, 2, … are written in one epoch each, in slots of `block`.
fn written_in_steps(volume: &mut Volume, page: PageId, block: u64, steps: u8) {
    volume.set_status(page, RW).unwrap();
    for step in 0..steps {
        volume.apply(page, &[(step, Slot(64 * block + 10 * u64::from(step) + 8))]).unwrap();
        volume.close_epoch(0).unwrap();
    }
}

fn entry(volume: &Volume, index: u32) -> Entry {
    volume.table().get(index).unwrap()
}

fn length(volume: &Volume, page: PageId) -> u32 {
    let mut index = PageTable::head(page);
    let mut entries = u32::from(entry(volume, index).in_use());
    while volume.table().is_link(entry(volume, index).previous()) {
        index = entry(volume, index).previous();
        entries += 1;
    }
    entries
}

fn slot(version: Result<Option<Version>, VolumeError>) -> Option<u64> {
    version.unwrap().map(|v| v.slot.0)
}

fn prune(volume: &mut Volume) {
    while volume.prune_step(7).unwrap() > 0 {}
}

/// Returns the snapshot and chunks of a volume that was restored from these chunks and has loaded none of
/// them.
fn stored(volume: &Volume) -> (VolumeSnapshot, Vec<(ChunkId, [u8; CHUNK_BYTES])>) {
    let chunks = (0..volume.table().chunk_count()).map(ChunkId);
    (volume.snapshot(), chunks.filter_map(|c| Some((c, volume.table().bytes(c)?))).collect())
}

// -- The table --------------------------------------------------------------------------------

#[test]
fn the_fourth_version_joins_the_chain_as_in_the_figure_of_the_paper() {
    // NVMM, Page Table Organization, figure "NVMM Page Table": page 0x123ABCD there, 0xCD here.
    let (page, other) = (PageId(0xCD), PageId(0xCE));
    let mut volume = volume(CONFIG);
    volume.set_status(page, RW).unwrap();
    volume.set_status(other, RW).unwrap();
    let mut versions = Vec::new();
    for version in 1..=4_u64 {
        volume.apply(page, &[(0, Slot(8 * version)), (1, Slot(8 * version + 1))]).unwrap();
        versions.push(entry(&volume, page.0));
        volume.close_epoch(0).unwrap();
        if version == 2 {
            // An entry of another page takes the next free entry in between.
            volume.apply(other, &[(0, Slot(60))]).unwrap();
        }
    }
    let [v1, v2, v3, v4] = versions[..] else { unreachable!() };
    // v1 took the first entry of the upper region, v2 the one after the other page's entry, v3 the next one.
    assert_eq!(entry(&volume, page.0), v4);
    assert_eq!(v4.previous(), UPPER + 3);
    assert_eq!(entry(&volume, UPPER + 3), v3);
    assert_eq!(v3.previous(), UPPER + 2);
    assert_eq!(entry(&volume, UPPER + 2), v2);
    assert_eq!(v2.previous(), UPPER);
    assert_eq!(entry(&volume, UPPER), v1);
    assert!(!volume.table().is_link(v1.previous()));
    assert_eq!(entry(&volume, UPPER + 1).status(), RW);
    assert_eq!([v1, v2, v3, v4].map(|v| v.start().0), [8, 16, 24, 32]);
    assert_eq!([v1, v2, v3, v4].map(|v| v.stamp().0), [1, 2, 3, 4]);
    // The copied entry is unchanged, and so is its pointer.
    for (n, old) in (0..).zip([v1, v2, v3]) {
        for segment in [0, 1] {
            let seen = volume.lookup_at(Epoch(n + 1), page, segment);
            assert_eq!(slot(seen), old.slot(SegmentSize::K8, segment).map(|s| s.0));
        }
    }
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn each_segment_comes_from_the_newest_entry_that_holds_it() {
    let page = PageId(3);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 3);
    volume.apply(page, &[(1, Slot(50))]).unwrap();
    assert_eq!([0, 1, 2, 3].map(|s| slot(volume.lookup(page, s))), [Some(8), Some(50), Some(28), None]);
    assert_eq!([0, 1, 2].map(|s| slot(volume.lookup_at(Epoch(2), page, s))), [Some(8), Some(18), None]);
    assert_eq!(volume.is_live(page, 1, Slot(18)), Ok(Some(Stamp(2))));
    assert_eq!(volume.is_live(page, 1, Slot(19)), Ok(None));
}

#[test]
fn what_is_written_twice_in_an_epoch_frees_the_first_slot_at_once() {
    let page = PageId(3);
    let mut volume = volume(CONFIG);
    volume.set_status(page, RW).unwrap();
    volume.apply(page, &[(0, Slot(8)), (1, Slot(9))]).unwrap();
    volume.apply(page, &[(1, Slot(17))]).unwrap();
    assert_eq!(volume.blocks().live_slots(), 2);
    assert_eq!(volume.is_live(page, 1, Slot(9)), Ok(None));
    volume.apply(page, &[(0, Slot(24)), (1, Slot(25))]).unwrap();
    assert_eq!((volume.blocks().live_slots(), length(&volume, page)), (2, 1));
    assert_eq!(volume.table().upper_used(), 0);
}

#[test]
fn writing_no_segment_changes_nothing() {
    let page = PageId(3);
    let mut volume = volume(CONFIG);
    volume.set_status(page, RW).unwrap();
    let before = stored(&volume);
    volume.apply(page, &[]).unwrap();
    volume.relocate(page, volume.open_stamp(), &[]).unwrap();
    assert_eq!(stored(&volume), before);
    assert_eq!(volume.status(page), Ok(RW));
}

#[test]
fn a_page_deleted_is_gone_now_and_there_for_its_tokens() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 2);
    volume.delete(page).unwrap();
    assert_eq!((volume.lookup(page, 0), volume.status(page)), (Ok(None), Ok(Status::default())));
    assert!(!volume.is_allocated(page));
    assert_eq!(volume.find_free(300), Some(PageId(0)));
    assert_eq!(volume.delete(page), Err(VolumeError::NotAllocated(page)));
    assert_eq!(volume.apply(page, &[(0, Slot(50))]), Err(VolumeError::NotAllocated(page)));
    assert_eq!(slot(volume.lookup_at(Epoch(2), page, 1)), Some(18));
    assert_eq!(volume.status_at(Epoch(2), page), Ok(RW));
    // A new page of the same number shows no data of the old page.
    volume.set_status(page, RO).unwrap();
    volume.apply(page, &[(1, Slot(50))]).unwrap();
    assert_eq!((slot(volume.lookup(page, 0)), slot(volume.lookup(page, 1))), (None, Some(50)));
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn a_page_that_comes_and_goes_within_an_epoch_leaves_nothing() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    for _ in 0..100_000 {
        volume.set_status(page, RW).unwrap();
        volume.apply(page, &[(0, Slot(8))]).unwrap();
        volume.delete(page).unwrap();
    }
    assert_eq!((volume.blocks().live_slots(), length(&volume, page)), (0, 0));
    assert!(volume.snapshot().open_changed.len() <= 8, "its changes are noted repeatedly");
    volume.close_epoch(0).unwrap();
    assert_eq!(volume.tokens()[1].pages_changed, 1);
}

#[test]
fn a_status_that_is_not_allocated_deletes() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    volume.set_status(page, RW).unwrap();
    volume.apply(page, &[(0, Slot(8))]).unwrap();
    volume.set_status(page, Status::default()).unwrap();
    assert_eq!((volume.blocks().live_slots(), volume.is_allocated(page)), (0, false));
    // The page is readable, but not allocated.
    volume.set_status(page, Status::from_bits(4).unwrap()).unwrap();
    assert_eq!((volume.status(page), length(&volume, page)), (Ok(Status::default()), 0));
    written_in_steps(&mut volume, page, 0, 1);
    volume.set_status(page, Status::from_bits(4).unwrap()).unwrap();
    assert_eq!(volume.status(page), Ok(Status::default()));
    assert_eq!(slot(volume.lookup_at(Epoch(1), page, 0)), Some(8));
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn a_page_made_and_deleted_for_ever_does_not_lengthen_its_chain() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 1);
    // Token 1 is kept and the tokens after it are given up, so its data stays below all later versions.
    for _ in 0..200 {
        volume.delete(page).unwrap();
        let deleted = volume.close_epoch(0).unwrap();
        volume.set_status(page, RO).unwrap();
        volume.close_epoch(0).unwrap();
        volume.drop_token(deleted).unwrap();
        volume.set_status(page, RW).unwrap();
        while volume.tokens().len() > 3 {
            volume.drop_token(volume.tokens()[2].epoch).unwrap();
        }
        prune(&mut volume);
        assert!(length(&volume, page) <= 5, "{} entries", length(&volume, page));
        assert_eq!(volume.check().unwrap(), []);
    }
    assert_eq!(slot(volume.lookup_at(Epoch(1), page, 0)), Some(8));
}

#[test]
fn a_status_costs_no_entry_of_its_own_where_the_version_below_can_carry_it() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    for round in 0..5 {
        volume.set_status(page, RW).unwrap();
        volume.apply(page, &[(0, Slot(8 * round))]).unwrap();
        let written = volume.close_epoch(0).unwrap();
        volume.set_status(page, RO).unwrap();
        volume.close_epoch(0).unwrap();
        volume.delete(page).unwrap();
        volume.close_epoch(0).unwrap();
        volume.drop_token(written).unwrap();
        if round > 0 {
            // The token of the previous round's deletion.
            volume.drop_token(Epoch(3 * round)).unwrap();
        }
        prune(&mut volume);
        assert_eq!(volume.check().unwrap(), []);
        // A tombstone and the version below it for each round.
        assert_eq!(length(&volume, page), 2 * (round as u32 + 1));
    }
    for round in 0..5 {
        let token = Epoch(3 * round + 2);
        assert_eq!(slot(volume.lookup_at(token, page, 0)), Some(8 * round));
        assert_eq!(volume.status_at(token, page), Ok(RO));
    }
}

#[test]
fn of_a_page_deleted_nothing_is_left_when_no_token_sees_it() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 3);
    volume.delete(page).unwrap();
    volume.close_epoch(0).unwrap();
    for token in 0..=3 {
        assert!(length(&volume, page) > 1);
        volume.drop_token(Epoch(token)).unwrap();
        prune(&mut volume);
    }
    assert_eq!((length(&volume, page), volume.table().upper_used()), (0, 0));
    assert_eq!((volume.blocks().live_slots(), volume.check().unwrap()), (0, vec![]));
}

#[test]
fn a_long_chain_stays_readable_when_most_tokens_are_given_up_at_once() {
    let page = PageId(9);
    let mut volume = volume(VolumeConfig { retention: Retention::KeepLast(1), ..CONFIG });
    volume.set_status(page, RW).unwrap();
    for epoch in 0..63 {
        if epoch > 0 {
            open(&mut volume, epoch);
        }
        // Every segment gets an entry of its own.
        for segment in 0..8 {
            let slot = 64 * u64::from(epoch) + 10 + 2 * u64::from(segment);
            volume.apply(page, &[(segment, Slot(slot))]).unwrap();
        }
        volume.close_epoch(0).unwrap();
    }
    assert_eq!(length(&volume, page), 63 * 8);
    let current = [0, 1, 2, 3, 4, 5, 6, 7].map(|s| volume.lookup(page, s).unwrap());
    while let Some(token) = volume.expired() {
        volume.drop_token(token).unwrap();
    }
    // The version is read before it is pruned, and pruned without an error.
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|s| volume.lookup(page, s).unwrap()), current);
    prune(&mut volume);
    assert!(length(&volume, page) <= 9);
    assert_eq!((volume.check().unwrap(), volume.blocks().live_slots()), (vec![], 8));
}

#[test]
fn the_first_run_of_free_pages_that_is_long_enough_is_found() {
    let mut volume = volume(CONFIG);
    for page in (0..200).filter(|p| ![5, 70, 71].contains(p)) {
        volume.set_status(PageId(page), RW).unwrap();
    }
    assert_eq!(volume.allocated_pages(), 197);
    let found = [1, 2, 3, 100, 101].map(|n| volume.find_free(n).map(|p| p.0));
    assert_eq!(found, [Some(5), Some(70), Some(200), Some(200), None]);
}

// -- Tokens -----------------------------------------------------------------------------------

#[test]
fn rolling_back_to_a_token_given_up_fails_and_so_does_one_never_given() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 4);
    volume.drop_token(Epoch(0)).unwrap();
    volume.drop_token(Epoch(2)).unwrap();
    let before = stored(&volume);
    for token in [Epoch(0), Epoch(2)] {
        let reclaimed = VolumeError::ReclaimedToken { token, oldest: Epoch(1) };
        assert_eq!(volume.rollback(token), Err(reclaimed));
        assert_eq!(volume.lookup_at(token, page, 0), Err(reclaimed));
        assert_eq!(volume.status_at(token, page), Err(reclaimed));
        assert_eq!(volume.changed_since(token), Err(reclaimed));
        assert_eq!(volume.drop_token(token), Err(reclaimed));
    }
    for token in [Epoch(5), Epoch(6), Epoch(u64::MAX)] {
        let unknown = VolumeError::UnknownToken { token, newest: Epoch(4) };
        assert_eq!(volume.rollback(token), Err(unknown));
        assert_eq!(volume.lookup_at(token, page, 0), Err(unknown));
    }
    assert_eq!(stored(&volume), before);

    // Token 3 is rolled back: it counts as never given, and its number is not reused.
    assert_eq!(volume.rollback(Epoch(1)).map(|r| r.open), Ok(Epoch(6)));
    let unknown = VolumeError::UnknownToken { token: Epoch(3), newest: Epoch(1) };
    assert_eq!(volume.rollback(Epoch(3)), Err(unknown));
    assert_eq!(volume.close_epoch(0), Ok(Epoch(6)));
}

#[test]
fn the_last_token_cannot_be_given_up() {
    let mut volume = volume(CONFIG);
    assert_eq!(volume.drop_token(Epoch(0)), Err(VolumeError::LastToken(Epoch(0))));
    volume.close_epoch(0).unwrap();
    volume.drop_token(Epoch(0)).unwrap();
    assert_eq!(volume.drop_token(Epoch(1)), Err(VolumeError::LastToken(Epoch(1))));
    volume.set_retention(Retention::KeepLast(0));
    assert_eq!((volume.expired(), volume.config().retention), (None, Retention::KeepLast(1)));
}

#[test]
fn a_rollback_goes_back_over_tokens_given_up_in_between() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 4);
    volume.set_status(PageId(20), RW).unwrap();
    for token in [3, 2] {
        volume.drop_token(Epoch(token)).unwrap();
        prune(&mut volume);
    }
    assert_eq!(volume.changed_since(Epoch(1)), Ok(vec![page, PageId(20)]));
    let report = volume.rollback(Epoch(1)).unwrap();
    assert_eq!((report.pages, volume.blocks().live_slots()), (2, 1));
    assert_eq!([0, 1, 2, 3].map(|s| slot(volume.lookup(page, s))), [Some(8), None, None, None]);
    assert!(!volume.is_allocated(PageId(20)));
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn discarding_the_open_epoch_keeps_its_number() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 1);
    let before = stored(&volume);
    volume.apply(page, &[(0, Slot(40)), (5, Slot(45))]).unwrap();
    volume.delete(page).unwrap();
    volume.set_status(PageId(8), RW).unwrap();
    volume.discard_open().unwrap();
    assert_eq!(stored(&volume).0, before.0);
    assert_eq!(volume.open_epoch(), Epoch(2));
    assert_eq!(slot(volume.lookup(page, 0)), Some(8));
}

#[test]
fn a_token_tells_what_was_written_since_the_one_before_even_if_that_is_given_up() {
    let mut volume = volume(CONFIG);
    for epoch in 1..=3_u64 {
        for page in [0, epoch as u32] {
            volume.set_status(PageId(page), RW).unwrap();
            volume.apply(PageId(page), &[(0, Slot(16 * epoch + u64::from(page)))]).unwrap();
        }
        volume.close_epoch(epoch * 100).unwrap();
    }
    volume.drop_token(Epoch(2)).unwrap();
    let told: Vec<_> =
        volume.tokens().iter().map(|t| (t.epoch.0, t.wall_ns, t.pages_changed, t.segments_written)).collect();
    assert_eq!(told, [(0, 0, 0, 0), (1, 100, 2, 2), (3, 300, 3, 4)]);
}

#[test]
fn tokens_beyond_the_retention_expire_oldest_first() {
    let mut volume = volume(VolumeConfig { retention: Retention::Segments(3), ..CONFIG });
    let page = PageId(9);
    written_in_steps(&mut volume, page, 0, 3);
    assert_eq!(volume.expired(), None, "3 segments are within the limit");
    volume.apply(page, &[(3, Slot(50))]).unwrap();
    assert_eq!(volume.expired(), Some(Epoch(0)));
    volume.drop_token(Epoch(0)).unwrap();
    assert_eq!(volume.expired(), None);
    volume.set_retention(Retention::KeepLast(1));
    assert_eq!(volume.expired(), Some(Epoch(1)));
}

// -- Refusals ---------------------------------------------------------------------------------

#[test]
fn slots_that_cannot_hold_their_segments_are_refused() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    open(&mut volume, 1);
    volume.set_status(page, RW).unwrap();
    let before = stored(&volume);
    let total = 64 * 64;
    let far = (1_u64 << 32) * 64;
    let cases: [&[(u8, Slot)]; 8] = [
        &[(5, Slot(4))],
        &[(0, Slot(63)), (1, Slot(64))],
        &[(0, Slot(8)), (1, Slot(8))],
        &[(0, Slot(8)), (0, Slot(9))],
        &[(0, Slot(total))],
        &[(1, Slot(far + 9))],
        &[(1, Slot(9)), (2, Slot(far + 10))],
        &[(0, Slot(u64::MAX))],
    ];
    for placed in cases {
        let refused = volume.apply(page, placed);
        assert!(matches!(refused, Err(VolumeError::BadPlacement { .. })), "{placed:?}: {refused:?}");
    }
    let no_segment = VolumeError::NoSegment { segment: 8, per_page: 8 };
    assert_eq!(volume.apply(page, &[(8, Slot(40))]), Err(no_segment));
    assert_eq!(volume.lookup(page, 8), Err(no_segment));
    let no_page = VolumeError::NoPage { page: PageId(300), pages: 300 };
    assert_eq!(volume.apply(PageId(300), &[(0, Slot(8))]), Err(no_page));
    assert_eq!(volume.lookup(PageId(300), 0), Err(no_page));
    assert_eq!(volume.set_status(PageId(300), RW), Err(no_page));
    assert_eq!(
        volume.delete(PageId(u32::MAX)),
        Err(VolumeError::NoPage { page: PageId(u32::MAX), pages: 300 })
    );
    // Block 2 is free; no slot of block 3 was handed out.
    volume.blocks_mut().open_at(BlockId(3), 0, 1).unwrap();
    for block in [2, 3] {
        let refused = volume.apply(page, &[(0, Slot(64 * block + 8))]);
        assert!(matches!(refused, Err(VolumeError::Blocks(_))), "{refused:?}");
    }
    volume.blocks_mut().release_dead();
    assert_eq!(stored(&volume).1, before.1);
    assert_eq!(volume.lookup(page, 0), Ok(None));
}

#[test]
fn what_cannot_be_moved_is_left_alone() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 3);
    volume.apply(page, &[(0, Slot(50))]).unwrap();
    let before = stored(&volume);
    // In this order: a version never written, one written later, and one that is gone while token 1 sees an
    // older one in its place.
    volume.relocate(page, Stamp(3), &[(7, Slot(60))]).unwrap();
    volume.relocate(page, Stamp(1), &[(1, Slot(60))]).unwrap();
    volume.relocate(page, Stamp(3), &[(0, Slot(60))]).unwrap();
    assert_eq!(stored(&volume), before);
    for stamp in [5, u32::MAX] {
        let early = Err(VolumeError::NoVersion { page, segment: 0 });
        assert_eq!(volume.relocate(page, Stamp(stamp), &[(0, Slot(60))]), early);
    }
    assert_eq!(stored(&volume), before);
    volume.relocate(page, Stamp(1), &[(0, Slot(60))]).unwrap();
    assert_eq!(slot(volume.lookup_at(Epoch(3), page, 0)), Some(60));
    assert_eq!(slot(volume.lookup(page, 0)), Some(50));

    // The page was deleted since: no older version reappears, not even one that only waits to be pruned.
    volume.close_epoch(0).unwrap();
    volume.delete(page).unwrap();
    volume.close_epoch(0).unwrap();
    for token in 0..=4 {
        volume.drop_token(Epoch(token)).unwrap();
    }
    volume.relocate(page, Stamp(5), &[(0, Slot(61))]).unwrap();
    assert_eq!((volume.lookup(page, 0), volume.is_live(page, 0, Slot(61))), (Ok(None), Ok(None)));
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn a_move_logged_before_its_version_was_pruned_does_not_touch_an_older_one() {
    // Versions of stamps 1, 2 and 3; token 2 is given up, so version 2 is garbage. Reclamation
    // moved it before it was pruned; the replayed log prunes first.
    let page = PageId(9);
    for pruned_first in [false, true] {
        let mut volume = volume(CONFIG);
        volume.set_status(page, RW).unwrap();
        for at in [8, 18, 28] {
            volume.apply(page, &[(0, Slot(at))]).unwrap();
            volume.close_epoch(0).unwrap();
        }
        volume.drop_token(Epoch(2)).unwrap();
        if pruned_first {
            prune(&mut volume);
        }
        volume.relocate(page, Stamp(2), &[(0, Slot(40))]).unwrap();
        prune(&mut volume);
        assert_eq!(slot(volume.lookup_at(Epoch(1), page, 0)), Some(8));
        assert_eq!(slot(volume.lookup(page, 0)), Some(28));
        assert_eq!((volume.blocks().live_slots(), volume.check().unwrap()), (2, vec![]));
    }
}

#[test]
fn a_full_table_refuses_and_changes_nothing_until_chains_are_shortened() {
    let mut volume = volume(VolumeConfig { upper: 256, retention: Retention::KeepLast(1), ..CONFIG });
    for page in 0..128 {
        let block = page / 2 % 64;
        if page % 2 == 0 && block > 0 {
            open(&mut volume, block);
        }
        let first = u64::from(block) * 64 + u64::from(page % 2) * 32;
        volume.set_status(PageId(page), RW).unwrap();
        for segment in 0..3 {
            volume.apply(PageId(page), &[(segment, Slot(first + 9 * u64::from(segment) + 3))]).unwrap();
            if segment < 2 {
                volume.close_epoch(0).unwrap();
            }
            while let Some(token) = volume.expired() {
                volume.drop_token(token).unwrap();
            }
        }
        prune(&mut volume);
    }
    assert_eq!(volume.table().upper_used(), 256);
    volume.close_epoch(0).unwrap();
    let page = PageId(0);
    let before = stored(&volume);
    let full = VolumeError::TableFull { needed: 1, limit: 256 };
    assert_eq!(volume.apply(page, &[(7, Slot(31))]), Err(full));
    assert_eq!(
        volume.apply(page, &[(6, Slot(30)), (7, Slot(25))]),
        Err(VolumeError::TableFull { needed: 2, limit: 256 })
    );
    assert_eq!(volume.set_status(page, RO), Err(full));
    assert_eq!(volume.delete(page), Err(full));
    assert_eq!(stored(&volume), before);
    // A page without older versions needs no such chunk.
    volume.set_status(PageId(200), RW).unwrap();

    let (longest, entries) = volume.longest_chain().unwrap();
    assert_eq!((longest, entries), (page, 3));
    // Two tokens are live, so nothing can be coalesced across them before the older token is given up.
    volume.drop_token(volume.tokens()[0].epoch).unwrap();
    prune(&mut volume);
    for (stamp, segments) in volume.coalesce_plan(longest).unwrap() {
        let placed: Vec<_> =
            segments.iter().map(|&(segment, _)| (segment, Slot(40 + u64::from(segment)))).collect();
        volume.relocate(longest, stamp, &placed).unwrap();
    }
    assert_eq!(length(&volume, page), 1);
    volume.apply(page, &[(7, Slot(31))]).unwrap();
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn an_operation_asks_for_the_chunks_it_needs_before_it_changes_anything() {
    let page = PageId(290);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 3);
    let (snapshot, chunks) = stored(&volume);
    let on_flash: Vec<ChunkId> = chunks.iter().map(|(chunk, _)| *chunk).collect();
    assert_eq!(on_flash, [ChunkId(1), ChunkId(2)]);
    type Operation = fn(&mut Volume) -> Result<(), VolumeError>;
    const PAGE: PageId = PageId(290);
    let operations: [(&str, &[u32], Operation); 14] = [
        ("status", &[1], |v| v.status(PAGE).map(drop)),
        ("lookup", &[1], |v| v.lookup(PAGE, 2).map(drop)),
        ("lookup of an older one", &[1, 2], |v| v.lookup(PAGE, 0).map(drop)),
        ("lookup_at", &[1, 2], |v| v.lookup_at(Epoch(1), PAGE, 0).map(drop)),
        ("is_live", &[1, 2], |v| v.is_live(PAGE, 0, Slot(8)).map(drop)),
        ("apply", &[1, 2], |v| v.apply(PAGE, &[(0, Slot(50))])),
        ("relocate", &[1, 2], |v| v.relocate(PAGE, Stamp(1), &[(0, Slot(50))])),
        ("set_status", &[1, 2], |v| v.set_status(PAGE, RO)),
        ("delete", &[1, 2], |v| v.delete(PAGE)),
        ("coalesce_plan", &[1, 2], |v| v.coalesce_plan(PAGE).map(drop)),
        ("rollback", &[1, 2], |v| v.rollback(Epoch(1)).map(drop)),
        ("renumber", &[1, 2], Volume::renumber),
        ("check", &[1, 2], |v| v.check().map(drop)),
        ("a new page", &[1], |v| v.set_status(PageId(289), RO)),
    ];
    for (name, needed, operation) in operations {
        let mut volume = Volume::restore(CONFIG, snapshot.clone(), &on_flash).unwrap();
        for &chunk in needed {
            let before = stored(&volume);
            assert_eq!(operation(&mut volume), Err(VolumeError::NotLoaded(ChunkId(chunk))), "{name}");
            assert_eq!(stored(&volume), before, "{name}");
            let (_, bytes) = chunks.iter().find(|(c, _)| c.0 == chunk).unwrap();
            volume.load_chunk(ChunkId(chunk), bytes).unwrap();
        }
        assert_eq!(operation(&mut volume), Ok(()), "{name}");
    }
    // Two cases need no chunk: a page whose chunk is empty, and queries that the page map answers.
    let mut volume = Volume::restore(CONFIG, snapshot, &on_flash).unwrap();
    volume.set_status(PageId(0), RW).unwrap();
    assert!(volume.is_allocated(page));
}

#[test]
fn a_configuration_out_of_range_is_refused_by_name() {
    let field = |config| match Volume::new(config) {
        Err(ConfigError { field, .. }) => field,
        Ok(_) => "none",
    };
    assert_eq!(field(CONFIG), "none");
    assert_eq!(field(VolumeConfig { pages: 0, ..CONFIG }), "pages");
    assert_eq!(field(VolumeConfig { pages: (1 << 28) + 1, ..CONFIG }), "pages");
    assert_eq!(field(VolumeConfig { blocks: 0, ..CONFIG }), "blocks");
    assert_eq!(field(VolumeConfig { slots_per_block: 63, ..CONFIG }), "slots per block");
    assert_eq!(field(VolumeConfig { stamp_limit: 1 << 24, ..CONFIG }), "stamp limit");
    assert_eq!(field(VolumeConfig { stamp_limit: 2, ..CONFIG }), "stamp limit");
    assert_eq!(field(VolumeConfig { retention: Retention::KeepLast(0), ..CONFIG }), "tokens kept");
    assert_eq!(field(VolumeConfig { upper: u32::MAX, ..CONFIG }), "blocks or upper entries");
    assert_eq!(
        field(VolumeConfig { blocks: u32::MAX, slots_per_block: 1 << 14, ..CONFIG }),
        "blocks or upper entries"
    );
}

// -- Stamps -----------------------------------------------------------------------------------

#[test]
fn when_stamps_run_out_a_sync_fails_until_they_are_numbered_anew() {
    let page = PageId(9);
    let mut volume = volume(VolumeConfig { stamp_limit: 5, ..CONFIG });
    written_in_steps(&mut volume, page, 0, 4);
    assert!(volume.needs_renumber());
    volume.apply(page, &[(4, Slot(50))]).unwrap();
    let before = stored(&volume);
    assert_eq!(volume.close_epoch(0), Err(VolumeError::StampsExhausted));
    // There are as many tokens as stamps, so renumbering frees no stamp.
    assert_eq!(volume.renumber(), Err(VolumeError::StampsExhausted));
    assert_eq!(stored(&volume), before);

    volume.drop_token(Epoch(2)).unwrap();
    volume.renumber().unwrap();
    assert_eq!((volume.open_stamp(), volume.open_epoch()), (Stamp(4), Epoch(5)));
    let stamps: Vec<_> = volume.tokens().iter().map(|t| (t.epoch.0, t.stamp.0)).collect();
    assert_eq!(stamps, [(0, 0), (1, 1), (3, 2), (4, 3)]);
    // A version counts for the first token that sees it.
    let versions = [0, 1, 2, 3, 4].map(|s| volume.lookup(page, s).unwrap().unwrap().stamp.0);
    assert_eq!(versions, [1, 2, 2, 3, 4]);
    assert_eq!(volume.close_epoch(0), Ok(Epoch(5)));
    assert!(volume.needs_renumber());
    assert_eq!(slot(volume.lookup_at(Epoch(1), page, 0)), Some(8));
    assert_eq!(slot(volume.lookup_at(Epoch(1), page, 1)), None);
    assert_eq!(volume.rollback(Epoch(3)).map(|r| r.open), Ok(Epoch(7)));
    assert_eq!((slot(volume.lookup(page, 2)), slot(volume.lookup(page, 3))), (Some(28), None));
    assert_eq!(volume.check().unwrap(), []);
}

#[test]
fn a_rollback_gives_stamps_back_but_no_epochs() {
    let page = PageId(9);
    let mut volume = volume(VolumeConfig { stamp_limit: 5, ..CONFIG });
    written_in_steps(&mut volume, page, 0, 4);
    assert!(volume.needs_renumber());
    volume.rollback(Epoch(2)).unwrap();
    assert!(!volume.needs_renumber());
    assert_eq!((volume.open_stamp(), volume.open_epoch()), (Stamp(3), Epoch(6)));
}

// -- Chains -----------------------------------------------------------------------------------

#[test]
fn the_longest_chain_is_coalesced_first() {
    let mut volume = volume(VolumeConfig { retention: Retention::KeepLast(1), ..CONFIG });
    open(&mut volume, 1);
    open(&mut volume, 2);
    open(&mut volume, 3);
    let pages = [(PageId(4), 2), (PageId(7), 5), (PageId(8), 3)];
    for (block, (page, steps)) in (0..).zip(pages) {
        written_in_steps(&mut volume, page, block, steps);
    }
    while let Some(token) = volume.expired() {
        volume.drop_token(token).unwrap();
    }
    prune(&mut volume);
    let mut order = Vec::new();
    let mut next = 64 * 3 + 8;
    while let Some((page, entries)) = volume.longest_chain().filter(|(_, entries)| *entries > 1) {
        order.push((page, entries));
        let plan = volume.coalesce_plan(page).unwrap();
        let [(stamp, segments)] = &plan[..] else { panic!("one token, one version: {plan:?}") };
        assert_eq!(segments.len(), entries as usize);
        let placed: Vec<_> = segments.iter().map(|&(s, _)| (s, Slot(next + u64::from(s)))).collect();
        volume.relocate(page, *stamp, &placed).unwrap();
        next += 8;
        assert_eq!((length(&volume, page), volume.coalesce_plan(page).unwrap()), (1, vec![]));
    }
    assert_eq!(order, [(PageId(7), 5), (PageId(8), 3), (PageId(4), 2)]);
    assert_eq!((volume.table().upper_used(), volume.blocks().live_slots()), (0, 10));
    let live = [0, 1, 2, 3].map(|block| volume.blocks().info(BlockId(block)).live);
    assert_eq!(live, [0, 0, 0, 10], "the blocks that held the scattered chains have no live slot");
}

#[test]
fn coalescing_goes_no_further_than_live_tokens_allow_and_starts_with_the_oldest() {
    let page = PageId(9);
    let mut volume = volume(CONFIG);
    written_in_steps(&mut volume, page, 0, 5);
    volume.apply(page, &[(5, Slot(60))]).unwrap();
    for token in [1, 3, 4] {
        volume.drop_token(Epoch(token)).unwrap();
    }
    // Tokens 0, 2 and 5: versions 1 and 2 coalesce, and so do 3 to 5; the open epoch's version stays alone.
    let plan = volume.coalesce_plan(page).unwrap();
    let old = (Stamp(2), vec![(0, Slot(8)), (1, Slot(18))]);
    let new = (Stamp(5), vec![(2, Slot(28)), (3, Slot(38)), (4, Slot(48))]);
    assert_eq!(plan, [old, new]);

    // Versions before a deletion are not coalesced with versions after it either.
    let (page, mut volume) = (PageId(9), self::volume(CONFIG));
    written_in_steps(&mut volume, page, 0, 1);
    volume.delete(page).unwrap();
    volume.close_epoch(0).unwrap();
    volume.set_status(page, RW).unwrap();
    volume.apply(page, &[(1, Slot(60))]).unwrap();
    volume.close_epoch(0).unwrap();
    for token in 0..=2 {
        volume.drop_token(Epoch(token)).unwrap();
    }
    assert_eq!((length(&volume, page), volume.coalesce_plan(page)), (3, Ok(vec![])));
}

#[test]
fn a_worn_block_holds_a_version_through_the_alternative_places() {
    // The paper's example as the volume stores it: start 53 in a block of 128 slots.
    let page = PageId(9);
    let mut volume = Volume::new(VolumeConfig { slots_per_block: 128, ..CONFIG }).unwrap();
    volume.blocks_mut().open_at(BlockId(0), 0, 1).unwrap();
    volume.blocks_mut().set_used(BlockId(0), 128).unwrap();
    volume.set_status(page, RW).unwrap();
    let slots = [53, 54, 55, 64, 57, 58, 75, 60];
    let placed: Vec<_> = (0..).zip(slots).map(|(segment, slot)| (segment, Slot(slot))).collect();
    volume.apply(page, &placed).unwrap();
    let head = entry(&volume, page.0);
    assert_eq!(head.start(), Slot(53));
    assert_eq!(head.vector().to_string(), "11101101 00010000 00000010 00000000");
    assert_eq!((length(&volume, page), volume.blocks().live_slots()), (1, 8));
    for (segment, at) in (0..).zip(slots) {
        assert_eq!(slot(volume.lookup(page, segment)), Some(at));
    }
}
