//! Block states, and the choice of the block to reclaim.

use std::collections::BTreeSet;

use deepram_core::ftl::{
    BlockInfo, BlockState, Blocks, BlocksError, CostBenefit, Greedy, GreedyOfRandom, TieBreak, VictimPolicy,
    any_block,
};
use deepram_core::units::BlockId;
use proptest::prelude::*;

const SLOTS: u16 = 8;

/// Opens the block, fills it and leaves `live` slots live.
fn filled(blocks: &mut Blocks, block: BlockId, live: u16, sequence: u64) {
    blocks.open_at(block, 0, sequence).unwrap();
    blocks.set_used(block, SLOTS).unwrap();
    blocks.add_live(block, live).unwrap();
    blocks.close(block).unwrap();
}

fn greedy(blocks: &Blocks) -> Option<BlockId> {
    Greedy::default().pick(blocks, 9, &mut any_block)
}

fn cost_benefit(blocks: &Blocks, now: u64) -> Option<BlockId> {
    CostBenefit.pick(blocks, now, &mut any_block)
}

#[test]
fn the_least_worn_free_block_is_opened_first_and_of_equals_the_lowest() {
    let uses = [3, 1, 2, 1].map(|uses| BlockInfo { uses, ..BlockInfo::default() });
    let mut blocks = Blocks::restore(SLOTS, uses.to_vec()).unwrap();
    let order: Vec<_> = (0..4).map(|at| blocks.open(7, at).unwrap().0).collect();
    assert_eq!(order, [1, 3, 2, 0]);
    let info = blocks.info(BlockId(3));
    assert_eq!(info, BlockInfo { state: BlockState::Open(7), used: 0, live: 0, uses: 2, sequence: 1 });
    assert_eq!((blocks.open(0, 4), blocks.open_meta(4), blocks.free()), (None, None, 0));
}

#[test]
fn a_block_without_live_data_is_quarantined_until_released() {
    let mut blocks = Blocks::new(2, SLOTS);
    let block = BlockId(0);
    filled(&mut blocks, block, 3, 9);
    assert_eq!((blocks.free(), blocks.dead(), blocks.live_slots()), (1, 0, 3));
    blocks.sub_live(block, 3).unwrap();
    assert_eq!((blocks.free(), blocks.dead(), blocks.live_slots()), (1, 1, 0));
    assert!(blocks.open_at(block, 0, 0).is_err());
    assert_eq!(blocks.release_dead(), [block]);
    assert_eq!((blocks.free(), blocks.dead()), (2, 0));
    assert_eq!(blocks.info(block), BlockInfo { uses: 1, ..BlockInfo::default() });
    assert!(blocks.release_dead().is_empty());
    // Block 1 is now less worn than the released block.
    assert_eq!(blocks.open(0, 10), Some(BlockId(1)));
}

#[test]
fn an_open_block_without_live_data_is_not_dead_until_closed() {
    let mut blocks = Blocks::new(1, SLOTS);
    let block = blocks.open(0, 1).unwrap();
    assert_eq!((blocks.dead(), blocks.release_dead().len()), (0, 0));
    blocks.close(block).unwrap();
    blocks.close(block).unwrap();
    assert_eq!(blocks.dead(), 1);
}

#[test]
fn a_meta_block_is_dead_only_once_sealed() {
    let mut blocks = Blocks::new(1, SLOTS);
    let block = blocks.open_meta(5).unwrap();
    blocks.set_used(block, 4).unwrap();
    blocks.close(block).unwrap();
    assert_eq!((blocks.info(block).state, blocks.dead()), (BlockState::Meta, 0));
    blocks.seal(block).unwrap();
    assert_eq!((blocks.info(block).state, blocks.dead()), (BlockState::Sealed, 1));
    blocks.seal(block).unwrap();
    blocks.close(block).unwrap();
    assert_eq!(blocks.release_dead(), [block]);
}

#[test]
fn blocks_of_the_driver_are_no_victims() {
    let mut blocks = Blocks::new(2, SLOTS);
    let block = blocks.open_meta(5).unwrap();
    blocks.set_used(block, SLOTS).unwrap();
    blocks.add_live(block, 1).unwrap();
    for _ in 0..2 {
        assert!(blocks.is_driver_owned(block) && !blocks.is_driver_owned(BlockId(1)));
        assert_eq!((greedy(&blocks), cost_benefit(&blocks, 9)), (None, None));
        assert_eq!((blocks.wear_victim(0), blocks.dead()), (None, 0));
        blocks.seal(block).unwrap();
    }
    blocks.sub_live(block, 1).unwrap();
    assert_eq!(blocks.release_dead(), [block]);
    assert!(!blocks.is_driver_owned(block));
}

#[test]
fn retired_blocks_are_out_of_every_count() {
    let mut blocks = Blocks::new(4, SLOTS);
    filled(&mut blocks, BlockId(1), 2, 1);
    filled(&mut blocks, BlockId(2), 0, 1);
    let still = BlocksError::StillLive { block: BlockId(1), live: 2 };
    assert_eq!(blocks.retire(BlockId(1)), Err(still));
    for block in [0, 2, 2] {
        blocks.retire(BlockId(block)).unwrap();
    }
    assert_eq!((blocks.free(), blocks.dead()), (1, 0));
    assert_eq!(blocks.open(0, 2), Some(BlockId(3)));
    assert_eq!((blocks.open(0, 3), blocks.spread()), (None, 0));
    assert!(blocks.add_live(BlockId(2), 1).is_err());
    assert!(!blocks.usable(BlockId(2), 0));
}

#[test]
fn a_refused_change_says_which_block_and_what_would_do() {
    let mut blocks = Blocks::new(2, SLOTS);
    let (open, free, absent) = (blocks.open(0, 1).unwrap(), BlockId(1), BlockId(2));
    blocks.set_used(open, 4).unwrap();
    blocks.add_live(open, 2).unwrap();
    let before = blocks.infos().to_vec();
    for (result, text) in [
        (blocks.open_at(open, 0, 0), "block 0 is Open(0): it must be Free"),
        (blocks.open_at(absent, 0, 0), "there is no block 2"),
        (blocks.set_used(free, 1), "block 1 is Free: it must be Open or Meta"),
        (blocks.set_used(open, 9), "2 live of 9 used slots: it must be 0 <= live <= used <= 8"),
        (blocks.set_used(open, 1), "2 live of 1 used"),
        (blocks.add_live(open, 3), "5 live of 4 used"),
        (blocks.sub_live(open, 3), "-1 live of 4 used"),
        (blocks.add_live(open, u16::MAX), "65537 live"),
        (blocks.add_live(free, 1), "block 1 is Free"),
        (blocks.sub_live(free, 1), "-1 live of 0 used"),
        (blocks.close(free), "must be Open"),
        (blocks.seal(open), "must be Meta"),
        (blocks.retire(open), "block 0 still has 2 live slots"),
        (blocks.mark_bad(open, 8), "block 0 has no slot 8: its slots are 0 to below 8"),
        (blocks.mark_bad(absent, 0), "there is no block 2"),
    ] {
        let error = result.expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
    assert_eq!(blocks.infos(), before);
    assert_eq!(blocks.info(absent).state, BlockState::Retired);
}

#[test]
fn impossible_blocks_are_not_restored() {
    let info = |state, used, live| BlockInfo { state, used, live, ..BlockInfo::default() };
    for wrong in [
        info(BlockState::Closed, 9, 0),
        info(BlockState::Closed, 3, 4),
        info(BlockState::Open(0), 8, 9),
        info(BlockState::Free, 1, 0),
        info(BlockState::Free, 0, 1),
        info(BlockState::Retired, 3, 1),
    ] {
        let infos = vec![BlockInfo::default(), wrong];
        let error = Blocks::restore(SLOTS, infos).expect_err("a wrong block").to_string();
        assert!(error.contains("block 1"), "{error}");
    }
    assert!(
        Blocks::restore(SLOTS, vec![info(BlockState::Retired, 8, 0), info(BlockState::Closed, 8, 8)]).is_ok()
    );
    assert!(Blocks::restore(SLOTS, Vec::new()).unwrap().is_empty());
}

#[test]
fn bad_slots_are_remembered_through_reuse() {
    let mut blocks = Blocks::new(2, SLOTS);
    filled(&mut blocks, BlockId(0), 0, 1);
    blocks.mark_bad(BlockId(0), 5).unwrap();
    blocks.mark_bad(BlockId(0), 5).unwrap();
    blocks.release_dead();
    assert!(!blocks.usable(BlockId(0), 5) && blocks.usable(BlockId(0), 4) && blocks.usable(BlockId(1), 5));
    assert!(!blocks.usable(BlockId(0), SLOTS) && !blocks.usable(BlockId(2), 0));
    assert_eq!((blocks.capacity(BlockId(0)), blocks.capacity(BlockId(1))), (7, 8));
    assert_eq!(blocks.bad_slots().collect::<Vec<_>>(), [(BlockId(0), 5)]);
}

#[test]
fn greedy_takes_the_fewest_live_slots_and_of_equals_the_lowest_block() {
    let mut blocks = Blocks::new(8, SLOTS);
    for (block, live) in [(1, 5), (3, 2), (4, 2), (5, 0), (6, SLOTS)] {
        filled(&mut blocks, BlockId(block), live, 1);
    }
    blocks.open_at(BlockId(0), 0, 1).unwrap();
    let highest = Greedy { ties: TieBreak::Highest }.pick(&blocks, 9, &mut any_block);
    assert_eq!(highest, Some(BlockId(4)));
    let mut held = blocks.clone();
    let mut exclude = BTreeSet::new();
    for expected in [Some(3), Some(4), Some(1), None] {
        let picked = Greedy::default().pick(&blocks, 9, &mut |block| !exclude.contains(&block));
        assert_eq!(picked, expected.map(BlockId));
        assert_eq!(greedy(&held), picked);
        if let Some(picked) = picked {
            exclude.insert(picked);
            held.pin(picked);
        }
    }
    // A held block stays held when its pages die, and is a candidate again when released.
    held.sub_live(BlockId(4), 1).unwrap();
    assert_eq!(greedy(&held), None);
    held.unpin(BlockId(4));
    assert_eq!(greedy(&held), Some(BlockId(4)));
    assert_eq!(held.reclaimable().collect::<Vec<_>>(), [(1, BlockId(4)), (SLOTS, BlockId(6))]);
}

#[test]
fn a_block_in_which_every_good_slot_is_live_is_no_victim() {
    let mut blocks = Blocks::new(1, SLOTS);
    filled(&mut blocks, BlockId(0), SLOTS - 1, 1);
    assert_eq!(greedy(&blocks), Some(BlockId(0)));
    blocks.mark_bad(BlockId(0), 3).unwrap();
    assert_eq!(greedy(&blocks), None);
    assert_eq!(cost_benefit(&blocks, 9), None);
}

#[test]
fn cost_benefit_prefers_an_old_block_to_a_slightly_emptier_new_one() {
    let mut blocks = Blocks::new(3, SLOTS);
    filled(&mut blocks, BlockId(0), 3, 99);
    filled(&mut blocks, BlockId(1), 4, 1);
    filled(&mut blocks, BlockId(2), 4, 1);
    // 100 × (1 - 4/8) / (2 × 4/8) = 50 against 2 × (1 - 3/8) / (2 × 3/8) = 1.67.
    assert_eq!(cost_benefit(&blocks, 100), Some(BlockId(1)));
    assert_eq!(CostBenefit.pick(&blocks, 100, &mut |block| block != BlockId(1)), Some(BlockId(2)));
    assert_eq!(greedy(&blocks), Some(BlockId(0)));
    // A clock that is behind the blocks' times makes every block new; the emptiest block is then the victim.
    assert_eq!(cost_benefit(&blocks, 0), Some(BlockId(0)));
}

#[test]
fn cost_benefit_does_not_overflow() {
    let mut blocks = Blocks::new(2, u16::MAX);
    for (block, live) in [(0, u16::MAX - 1), (1, u16::MAX - 2)] {
        blocks.open_at(BlockId(block), 0, 0).unwrap();
        blocks.set_used(BlockId(block), u16::MAX).unwrap();
        blocks.add_live(BlockId(block), live).unwrap();
        blocks.close(BlockId(block)).unwrap();
    }
    assert_eq!(cost_benefit(&blocks, u64::MAX), Some(BlockId(1)));
}

#[test]
fn the_wear_victim_is_the_least_worn_block_whose_data_sits_still() {
    let closed =
        |uses, live, sequence| BlockInfo { state: BlockState::Closed, used: SLOTS, live, uses, sequence };
    let infos = vec![
        closed(2, 1, 8),
        closed(2, 1, 7),
        closed(1, 0, 1),
        closed(9, 1, 1),
        BlockInfo { uses: 20, state: BlockState::Retired, ..BlockInfo::default() },
    ];
    let blocks = Blocks::restore(SLOTS, infos).unwrap();
    assert_eq!(blocks.spread(), 8);
    // Among blocks with data the wear spread is only 7: the dead block will be free soon anyway.
    assert_eq!(blocks.wear_victim(6), Some(BlockId(1)));
    assert_eq!(blocks.wear_victim(7), None);
    assert_eq!(blocks.wear_victim(8), None);
    assert_eq!(Blocks::new(0, SLOTS).wear_victim(0), None);
}

#[test]
fn opening_by_wear_keeps_the_spread_of_moving_data_at_one() {
    let mut blocks = Blocks::new(5, SLOTS);
    for now in 0..1000 {
        let block = blocks.open(0, now).unwrap();
        blocks.close(block).unwrap();
        blocks.release_dead();
        assert!(blocks.spread() <= 1);
    }
}

#[derive(Debug, Clone)]
enum Change {
    Open(u8),
    OpenMeta,
    OpenAt(u32),
    Use(u32, u16),
    Close(u32),
    Seal(u32),
    Retire(u32),
    Add(u32, u16),
    Sub(u32, u16),
    Release,
    Erase(u32),
    Take(u32),
    Bad(u32, u16),
}

fn change() -> impl Strategy<Value = Change> {
    let (block, count) = (0..7u32, 0..10u16);
    prop_oneof![
        3 => any::<u8>().prop_map(Change::Open),
        1 => Just(Change::OpenMeta),
        1 => block.clone().prop_map(Change::OpenAt),
        4 => (block.clone(), count.clone()).prop_map(|(b, n)| Change::Use(b, n)),
        3 => block.clone().prop_map(Change::Close),
        1 => block.clone().prop_map(Change::Seal),
        1 => (block.clone(), 0..9u8).prop_map(|(b, n)| if n == 0 { Change::Retire(b) } else { Change::Close(b) }),
        4 => (block.clone(), count.clone()).prop_map(|(b, n)| Change::Add(b, n)),
        4 => (block.clone(), count.clone()).prop_map(|(b, n)| Change::Sub(b, n)),
        1 => Just(Change::Release),
        2 => block.clone().prop_map(Change::Erase),
        3 => block.clone().prop_map(Change::Take),
        1 => (block, count).prop_map(|(b, n)| Change::Bad(b, n)),
    ]
}

proptest! {
    #[test]
    fn counts_agree_with_a_recount_after_any_changes(changes in prop::collection::vec(change(), 0..120)) {
        let mut blocks = Blocks::new(6, SLOTS);
        for (now, change) in (0..).zip(changes) {
            let before = blocks.infos().to_vec();
            let refused = match change {
                Change::Open(stream) => {
                    let expected = (0..).map(BlockId).zip(&before)
                        .filter(|(_, info)| info.state == BlockState::Free)
                        .min_by_key(|(block, info)| (info.uses, *block)).map(|(block, _)| block);
                    prop_assert_eq!(blocks.open(stream, now), expected);
                    false
                }
                Change::OpenMeta => {
                    blocks.open_meta(now);
                    false
                }
                Change::OpenAt(block) => blocks.open_at(BlockId(block), 0, now).is_err(),
                Change::Use(block, used) => blocks.set_used(BlockId(block), used).is_err(),
                Change::Close(block) => blocks.close(BlockId(block)).is_err(),
                Change::Seal(block) => blocks.seal(BlockId(block)).is_err(),
                Change::Retire(block) => blocks.retire(BlockId(block)).is_err(),
                Change::Add(block, slots) => blocks.add_live(BlockId(block), slots).is_err(),
                Change::Sub(block, slots) => blocks.sub_live(BlockId(block), slots).is_err(),
                Change::Release => {
                    let dead = blocks.dead() as usize;
                    prop_assert_eq!(blocks.release_dead().len(), dead);
                    false
                }
                Change::Erase(block) => blocks.erase(BlockId(block)).is_err(),
                Change::Take(block) => {
                    let taken = blocks.take(BlockId(block));
                    if let Some(slot) = taken {
                        prop_assert_eq!(slot + 1, blocks.info(BlockId(block)).used);
                    }
                    taken.is_none()
                }
                Change::Bad(block, slot) => blocks.mark_bad(BlockId(block), slot).is_err(),
            };
            if refused {
                prop_assert_eq!(blocks.infos(), &before[..]);
            }

            let infos = blocks.infos();
            let count = |of: &dyn Fn(&BlockInfo) -> bool| infos.iter().filter(|info| of(info)).count();
            let dead = |info: &BlockInfo| matches!(info.state, BlockState::Closed | BlockState::Sealed) && info.live == 0;
            prop_assert_eq!(blocks.free() as usize, count(&|info| info.state == BlockState::Free));
            prop_assert_eq!(blocks.dead() as usize, count(&dead));
            prop_assert_eq!(blocks.live_slots(), infos.iter().map(|info| u64::from(info.live)).sum::<u64>());
            let uses = || infos.iter().filter(|info| info.state != BlockState::Retired).map(|info| info.uses);
            prop_assert_eq!(blocks.spread(), uses().max().unwrap_or(0) - uses().min().unwrap_or(0));
            let with_data = (0..).map(BlockId).zip(infos)
                .filter(|(_, info)| info.state == BlockState::Closed && info.live != 0);
            let victim = with_data.filter(|(block, info)| info.live < blocks.capacity(*block))
                .min_by_key(|(block, info)| (info.live, *block)).map(|(block, _)| block);
            prop_assert_eq!(greedy(&blocks), victim);
            prop_assert_eq!(cost_benefit(&blocks, now).is_some(), victim.is_some());
            let mut number = now as u32;
            let draw = |below| {
                number = number.wrapping_mul(5).wrapping_add(3);
                number % below
            };
            let drawn = GreedyOfRandom { draw }.pick(&blocks, now, &mut any_block);
            prop_assert_eq!(drawn.is_some(), victim.is_some());

            let restored = Blocks::restore(SLOTS, infos.to_vec());
            prop_assert_eq!(restored.map(|blocks| blocks.infos().to_vec()), Ok(infos.to_vec()));
        }
    }
}

#[test]
fn a_block_that_was_opened_for_nothing_is_free_again_at_once_and_no_other_is() {
    let mut blocks = Blocks::new(3, 64);
    let opened = blocks.open(0, 7).unwrap();
    blocks.free_unwritten(opened).unwrap();
    assert_eq!((blocks.free(), blocks.dead()), (3, 0));
    assert_eq!(blocks.info(opened), BlockInfo { uses: 1, ..BlockInfo::default() });
    assert!(matches!(blocks.free_unwritten(opened), Err(BlocksError::WrongState { .. })));
    let closed = blocks.open(0, 8).unwrap();
    blocks.set_used(closed, 1).unwrap();
    blocks.add_live(closed, 1).unwrap();
    assert!(matches!(blocks.free_unwritten(closed), Err(BlocksError::StillLive { .. })));
    blocks.sub_live(closed, 1).unwrap();
    blocks.close(closed).unwrap();
    // The block is dead, but the last durable state may still need it.
    assert!(matches!(blocks.free_unwritten(closed), Err(BlocksError::WrongState { .. })));
}

#[test]
fn without_quarantine_a_dead_block_is_the_best_victim_unless_it_is_held() {
    let mut blocks = Blocks::new(4, SLOTS).without_quarantine();
    for (block, live) in [(1, 3), (2, 1), (3, 2)] {
        filled(&mut blocks, BlockId(block), live, 1);
    }
    blocks.pin(BlockId(2));
    blocks.sub_live(BlockId(2), 1).unwrap();
    assert_eq!((blocks.dead(), greedy(&blocks)), (1, Some(BlockId(3))), "block 2 is dead, but held");
    blocks.unpin(BlockId(2));
    assert_eq!((greedy(&blocks), cost_benefit(&blocks, 9)), (Some(BlockId(2)), Some(BlockId(2))));
    blocks.sub_live(BlockId(1), 3).unwrap();
    assert_eq!(Greedy { ties: TieBreak::Highest }.pick(&blocks, 9, &mut any_block), Some(BlockId(2)));
    assert_eq!(greedy(&blocks), Some(BlockId(1)));
    blocks.erase(BlockId(1)).unwrap();
    assert_eq!(greedy(&blocks), Some(BlockId(2)));
    let restored = Blocks::restore(SLOTS, blocks.infos().to_vec()).unwrap();
    assert_eq!(greedy(&restored), Some(BlockId(3)));
    assert_eq!(greedy(&restored.without_quarantine()), Some(BlockId(2)));
}

#[test]
fn a_dead_block_is_erased_alone_and_lists_do_not_grow_with_the_number_of_erases() {
    let mut blocks = Blocks::new(4, SLOTS);
    filled(&mut blocks, BlockId(3), 1, 1);
    assert!(matches!(blocks.erase(BlockId(3)), Err(BlocksError::StillLive { .. })));
    let settled = blocks.memory_bytes();
    for now in 0..10_000 {
        let block = blocks.open(0, now).unwrap();
        assert!(matches!(blocks.erase(block), Err(BlocksError::WrongState { .. })));
        for slot in 0..SLOTS {
            assert_eq!(blocks.take(block), Some(slot));
        }
        assert_eq!(blocks.take(block), None);
        blocks.close(block).unwrap();
        blocks.sub_live(block, SLOTS).unwrap();
        blocks.erase(block).unwrap();
    }
    assert!(blocks.memory_bytes() < settled + 1024, "{} after {settled}", blocks.memory_bytes());
    assert_eq!((blocks.dead(), blocks.free(), blocks.spread()), (0, 3, 3333));
}
