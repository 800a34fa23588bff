//! Small workloads with a power cut in every device operation. After each cut the pool opens at the last
//! epoch whose sync returned, or at the epoch whose commit was in flight.

use crate::common::rig::{Shape, devices, handles};
use crate::common::step::Step;
use crate::common::survive::{every_operation, images, is_power_cut, modes, survive};
use crate::common::world::{World, Worlds};
use crate::common::{PAGE, SIZES};
use deepram_core::SegmentSize;
use deepram_pool::{Lifetime, Permissions, Pool, PoolError};
use deepram_testkit::FaultyDevice;

use Lifetime::{Permanent, Temporary};

fn alloc(pages: u64, lifetime: Lifetime) -> Step {
    Step::Alloc { controller: 0, pages, lifetime }
}

fn write(page: usize, at: u64, len: usize, value: u8) -> Step {
    Step::Write { page, at, len, value }
}

fn persist(page: usize, at: u64, len: u64) -> Step {
    Step::Persist { page, at, len }
}

fn each_size(steps: &[Step], random: u64, name: &str) {
    for segment in SIZES {
        let survived = every_operation(&Shape::small(segment), steps, random, name);
        assert!(survived > 8, "{name}: only {survived} power cuts");
    }
}

#[test]
fn a_first_write_and_its_sync_survive_a_cut_in_every_operation() {
    each_size(&[alloc(1, Permanent), write(0, 10, 8, 1), Step::Sync], 20, "first write");
}

#[test]
fn overwriting_keeps_the_last_synced_bytes() {
    let steps = [
        alloc(2, Permanent),
        write(0, 0, 20_000, 1),
        write(1, 60_000, 5_000, 2),
        Step::Sync,
        write(0, 5_000, 20_000, 3),
        Step::Sync,
        write(0, 0, 30_000, 4),
        write(0, 0, 100, 5),
    ];
    each_size(&steps, 10, "overwrite");
}

#[test]
fn a_rollback_happens_entirely_or_not_at_all() {
    let steps = [
        alloc(1, Permanent),
        write(0, 0, 10_000, 1),
        Step::Sync,
        write(0, 0, 10_000, 2),
        alloc(1, Permanent),
        Step::Sync,
        write(0, 0, 10_000, 3),
        Step::Rollback(1),
        write(0, 500, 10, 4),
        Step::Sync,
    ];
    each_size(&steps, 10, "rollback");
}

#[test]
fn freed_pages_and_permissions_come_with_their_sync() {
    let read_only = Permissions { read: true, write: false, lifetime: Permanent };
    let steps = [
        alloc(3, Permanent),
        write(0, 0, 9_000, 1),
        write(2, 0, 9_000, 2),
        Step::Sync,
        Step::Free(0),
        Step::Perms { page: 0, permissions: read_only },
        Step::Sync,
        alloc(1, Permanent),
        write(0, 0, 100, 3),
        Step::Free(2),
        Step::Sync,
    ];
    each_size(&steps, 10, "free and setperms");
}

#[test]
fn temporary_pages_are_gone_after_every_cut_and_the_others_are_not() {
    let made_temporary = Permissions::read_write(Temporary);
    let steps = [
        alloc(1, Permanent),
        alloc(2, Temporary),
        write(1, 0, 5_000, 1),
        Step::Sync,
        Step::Perms { page: 0, permissions: made_temporary },
        Step::Perms { page: 1, permissions: Permissions::read_write(Permanent) },
        Step::Sync,
        Step::Rollback(1),
        Step::Close,
        alloc(1, Temporary),
        Step::Sync,
        Step::Abandon,
    ];
    each_size(&steps, 6, "temporary pages");
}

#[test]
fn roots_are_what_they_were_at_the_last_sync() {
    let steps = [
        alloc(2, Permanent),
        Step::SetRoot { name: 1, page: 0 },
        Step::Sync,
        Step::SetRoot { name: 1, page: 1 },
        Step::SetRoot { name: 2, page: 0 },
        Step::Sync,
        Step::RemoveRoot(1),
        Step::Sync,
    ];
    each_size(&steps, 10, "roots");
}

#[test]
fn dropped_tokens_and_those_past_retention_take_nothing_else_with_them() {
    let mut steps = vec![alloc(2, Permanent)];
    for n in 0..6 {
        steps.push(write(usize::from(n) % 2, u64::from(n) * 3000, 6_000, n));
        steps.push(Step::Sync);
        if n == 2 {
            steps.push(Step::DropToken(1));
        }
    }
    each_size(&steps, 6, "tokens dropped");
}

#[test]
fn checkpoints_on_demand_commit_nothing_by_themselves() {
    let steps = [
        alloc(2, Permanent),
        write(0, 0, 40_000, 1),
        Step::Sync,
        write(0, 8_000, 20_000, 2),
        Step::Compact,
        write(1, 0, 5_000, 3),
        Step::Compact,
        Step::Sync,
        Step::Compact,
        Step::Close,
        write(1, 0, 5_000, 4),
    ];
    each_size(&steps, 6, "checkpoints");
}

#[test]
fn controllers_commit_and_roll_back_together() {
    let on = |controller| Step::Alloc { controller, pages: 1, lifetime: Permanent };
    let steps = [
        on(0),
        on(1),
        write(0, 0, 9_000, 1),
        write(1, 0, 9_000, 2),
        Step::Sync,
        write(0, 0, 5_000, 3),
        write(1, 0, 5_000, 4),
        Step::Sync,
        write(1, 0, 5_000, 5),
        Step::Rollback(1),
        on(1),
        write(0, 0, 100, 6),
        Step::Sync,
    ];
    for segment in SIZES {
        let shape = Shape { controllers: 2, ..Shape::small(segment) };
        every_operation(&shape, &steps, 10, "two controllers");
    }
}

#[test]
fn persisted_bytes_survive_where_their_epoch_does_not() {
    let steps = [
        alloc(2, Permanent),
        write(0, 0, 9_000, 1),
        Step::Region(0),
        write(0, 100, 64, 2),
        write(1, 0, 100, 3),
        persist(0, 100, 64),
        write(0, 100, 20_000, 4),
        persist(0, 6_000, 10_000),
        Step::Abandon,
        write(0, 130, 8, 5),
        persist(0, 130, 8),
    ];
    each_size(&steps, 10, "persist");
}

#[test]
fn a_sync_takes_over_what_was_persisted_and_a_rollback_takes_it_back() {
    let steps = [
        alloc(1, Permanent),
        Step::Region(0),
        write(0, 0, 300, 1),
        persist(0, 0, 300),
        write(0, 100, 300, 2),
        Step::Sync,
        write(0, 0, 64, 3),
        persist(0, 0, 64),
        Step::Rollback(0),
        write(0, 64, 64, 4),
        persist(0, 64, 1),
        Step::Close,
        write(0, 64, 64, 5),
        persist(0, 0, 500),
        Step::NoRegion(0),
        Step::Free(0),
        Step::Sync,
    ];
    each_size(&steps, 10, "persist, sync, rollback");
}

#[test]
fn persists_on_two_controllers_keep_to_the_epoch_that_both_have() {
    let on = |controller| Step::Alloc { controller, pages: 1, lifetime: Permanent };
    let steps = [
        on(0),
        on(1),
        Step::Region(0),
        Step::Region(1),
        write(0, 0, 100, 1),
        write(1, 0, 100, 2),
        persist(1, 0, 100),
        Step::Sync,
        write(0, 50, 100, 3),
        persist(0, 50, 100),
        Step::Rollback(0),
        write(1, 0, 100, 4),
        persist(1, 0, 100),
    ];
    let shape = Shape { controllers: 2, ..Shape::small(SegmentSize::K4) };
    every_operation(&shape, &steps, 6, "persists on two controllers");
}

#[test]
fn a_full_line_log_is_gathered_and_loses_nothing() {
    // Each persist writes 470 lines; the ring of a small pool holds about twelve.
    let mut steps = vec![alloc(1, Permanent), Step::Region(0)];
    for n in 0..28_u8 {
        let at = u64::from(n % 3) * 9_000;
        steps.extend([write(0, at, 30_000, n), persist(0, at, 30_000)]);
        if n == 13 {
            steps.push(Step::Abandon);
        }
    }
    let shape = Shape::small(SegmentSize::K4);
    let survived = every_operation(&shape, &steps, 2, "gathering");
    assert!(survived > 40, "only {survived} power cuts");
}

#[test]
fn reclamation_on_a_small_device_overwrites_nothing_that_is_needed() {
    // Rewrites memory many times over: blocks are reclaimed and reused.
    let mut steps = vec![alloc(6, Permanent)];
    for n in 0..14_u8 {
        for page in 0..6 {
            let len = if (page + usize::from(n)) % 3 == 0 { 60_000 } else { 9_000 };
            steps.push(write(page, u64::from(n) * 300, len, n));
        }
        steps.push(Step::Sync);
    }
    let shape = Shape { keep: 2, ..Shape::small(SegmentSize::K4) };
    let survived = every_operation(&shape, &steps, 6, "reclamation");
    assert!(survived > 100, "only {survived} power cuts");
}

#[test]
fn every_subset_of_torn_sectors_of_a_small_commit_gives_the_old_state_or_the_new() {
    let shape = Shape::small(SegmentSize::K4);
    let (base, world) = shape.create();
    // One segment and its batch header: the commit is one write of 16 sectors.
    let set_up = |device: &FaultyDevice| {
        let pool = shape.open(std::slice::from_ref(device)).unwrap();
        let mut world = world.clone();
        let addr = pool.alloc(PAGE, Permanent).unwrap();
        world.alloc(addr.raw(), 1, Permanent);
        pool.write(addr, &[1; 4096]).unwrap();
        world.model.write(addr.raw(), &[1; 4096]);
        world.sync(pool.sync().unwrap().0);
        pool.write(addr, &[2; 4096]).unwrap();
        world.model.write(addr.raw(), &[2; 4096]);
        (pool, world)
    };
    let device = devices(&base).remove(0);
    let (pool, world) = set_up(&device);
    device.crash_after(1);
    assert!(is_power_cut(&pool.sync().unwrap_err()));
    drop(pool);
    let mut attempt = world.clone();
    attempt.sync(attempt.open);
    let new = attempt.open;
    let worlds = Worlds(vec![world, attempt]);
    let every = device.every_crash();
    assert_eq!(every.total(), 1 << 16, "the commit is expected to be one write of two segments");
    let mut became_new = 0;
    // Testing all subsets takes minutes, so this takes every 37th: 37 has no common factor with their number.
    for (n, image) in every.enumerate().filter(|(n, _)| n % 37 == 0 || n + 1 == 1 << 16) {
        let pool = shape.open(&devices(&[image])).unwrap_or_else(|e| panic!("subset {n:#x}: {e}"));
        let world = worlds.pick(&pool).unwrap_or_else(|what| panic!("subset {n:#x}: {what}"));
        became_new += u32::from(world.open == new);
        // The filler after the header writes zeros over zeros: only differing sectors can be torn.
        let _ = pool.abandon();
    }
    assert!(became_new > 0, "the subsets must include the whole commit");
}

#[test]
fn a_cut_while_creating_leaves_no_pool_or_an_empty_one() {
    for (controllers, segment) in [(1, SegmentSize::K4), (1, SegmentSize::K16), (2, SegmentSize::K4)] {
        let shape = Shape { controllers, ..Shape::small(segment) };
        let (_, world) = shape.create();
        let (mut empty, mut none) = (0, 0);
        for hit in 0..controllers {
            for op in 1.. {
                let all: Vec<FaultyDevice> =
                    (0..controllers).map(|_| FaultyDevice::new(shape.device_bytes())).collect();
                all[hit].crash_after(op);
                let created = Pool::create_on(handles(&all), &shape.options());
                all.iter().for_each(FaultyDevice::cut_power);
                for mode in modes(op, 4) {
                    let context = format!("{segment:?}, operation {op} of device {hit}, {mode:?}");
                    let images = images(&all, mode);
                    match shape.open(&devices(&images)) {
                        Ok(pool) => {
                            drop(pool);
                            survive(&shape, &images, &Worlds::one(world.clone()), op, &context);
                            empty += 1;
                        }
                        Err(error) => {
                            assert!(created.is_err(), "{context}: created, yet {error}");
                            assert_is_no_pool(&error, &context);
                            none += 1;
                        }
                    }
                }
                if created.is_ok() {
                    break;
                }
            }
        }
        assert!(empty > 0 && none > 0, "{empty} empty pools, {none} files that are no pool");
    }
}

fn assert_is_no_pool(error: &PoolError, context: &str) {
    let clear = matches!(error, PoolError::NotAPool { .. } | PoolError::DamagedPool { .. });
    assert!(clear, "{context}: {error}");
}

#[test]
fn a_new_pool_has_one_token_and_it_is_the_empty_state() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        let (base, world) = shape.create();
        let world: World = world;
        let pool = shape.open(&devices(&base)).unwrap();
        world.verify(&pool).unwrap();
        assert_eq!(pool.history().unwrap().len(), 1);
        let token = pool.history().unwrap()[0].token;
        let addr = pool.alloc(PAGE, Permanent).unwrap();
        pool.set_root("a", addr, 1).unwrap();
        pool.sync().unwrap();
        pool.rollback(token).unwrap();
        assert_eq!(pool.roots().unwrap(), []);
        let addr = pool.alloc(PAGE, Permanent).unwrap();
        pool.set_root("b", addr, 1).unwrap();
    }
}
