//! Long random workloads on small devices, so that reclamation, checkpoints, coalescing and retirement of
//! tokens all take place, with the power cut anywhere. A failing run prints its seed.

use crate::common::rig::{Shape, devices};
use crate::common::step::{self, Runner, Step, Stopped};
use crate::common::survive::{assert_sound, images, is_power_cut, reopen, survive};
use crate::common::world::Worlds;
use crate::common::{MIB, SIZES};
use deepram_pool::{Lifetime, PoolError, Stats};
use deepram_testkit::{Crash, seeds};
use rand::{Rng, RngExt};

/// Maximum number of steps in one life.
const STEPS: usize = 2500;
/// Power cuts of one pool, one after another.
const LIVES: usize = 4;

fn shape(seed: u64, rng: &mut impl Rng) -> Shape {
    let segment = SIZES[(seed % 3) as usize];
    // The flash ranges from tight to ample; tight pools must give up older tokens all the time.
    let blocks = rng.random_range(16..45);
    if seed % 5 == 4 {
        // More memory than DRAM: segments are written back and evicted before the sync that commits them.
        let flash = Some(MIB + (blocks + 60) * 64 * segment.bytes());
        let pages = 512 / u64::from(segment.per_page());
        return Shape { pages, flash, keep: 4, ..Shape::small(segment) }.least_dram();
    }
    Shape {
        controllers: 1 + usize::from(seed % 4 == 3),
        pages: rng.random_range(6..14),
        flash: Some(MIB + blocks * 64 * segment.bytes()),
        keep: rng.random_range(1..12),
        ..Shape::small(segment)
    }
}

/// Event counts over all seeds, to detect a workload that no longer exercises a mechanism.
#[derive(Default, Debug)]
struct Seen {
    cuts: u64,
    in_opening: u64,
    blocks_reclaimed: u64,
    checkpoints: u64,
    evictions: u64,
    full: u64,
    lines_persisted: u64,
    line_log_compactions: u64,
}

impl Seen {
    fn add(&mut self, stats: &Stats) {
        self.blocks_reclaimed += stats.blocks_reclaimed;
        self.checkpoints += stats.checkpoints;
        self.evictions += stats.evictions;
        self.lines_persisted += stats.lines_persisted;
        self.line_log_compactions += stats.line_log_compactions;
    }
}

/// Runs one life: steps until the power is cut.
fn live(runner: &mut Runner, persists: bool, rng: &mut impl Rng, seen: &mut Seen) -> bool {
    for _ in 0..STEPS {
        let step = match rng.random_range(0..600) {
            0 => Step::Close,
            1 => Step::Abandon,
            2..590 if persists => persisting(rng),
            _ => step::random(rng),
        };
        match runner.step(&step) {
            Ok(()) => {}
            Err(Stopped(error)) if is_power_cut(&error) => return true,
            Err(Stopped(PoolError::NoSpace { .. })) => {
                seen.full += 1;
                runner.settle();
                make_room(runner);
            }
            Err(Stopped(error)) => panic!("{step:?}: {error}"),
        }
        if runner.pool.is_none() {
            return true;
        }
    }
    false
}

/// Frees pages, as the error message advises.
fn make_room(runner: &mut Runner) {
    for _ in 0..2 {
        match runner.step(&Step::Free(0)) {
            Ok(()) => {}
            Err(Stopped(error)) => assert!(is_power_cut(&error), "freeing: {error}"),
        }
    }
}

/// Steps that fill the line log, with rare syncs to empty it.
fn persisting(rng: &mut impl Rng) -> Step {
    let (page, at) = (rng.random_range(0..2), rng.random_range(0..40_000));
    match rng.random_range(0..40) {
        0 if rng.random_ratio(1, 8) => Step::Region(page),
        1 => Step::Alloc { controller: rng.random(), pages: 1, lifetime: Lifetime::Permanent },
        2..20 => Step::Write { page, at, len: 20_000, value: rng.random() },
        _ => Step::Persist { page, at, len: [64, 5_000, 20_000][rng.random_range(0..3)] },
    }
}

fn run(seed: u64, seen: &mut Seen) {
    let mut rng = seeds::rng(seed);
    let shape = shape(seed, &mut rng);
    let (mut images_now, mut world) = shape.create();
    // The device may run full; older tokens are then given up.
    world.kept = 1;
    for life in 0..LIVES {
        let context = format!("seed {seed}, life {life}, {shape:?}");
        let all = devices(&images_now);
        let hit = rng.random_range(0..all.len());
        let most = [20, 300, 3000][rng.random_range(0..3)];
        all[hit].crash_after(rng.random_range(1..most));
        let (gone, worlds) = match shape.open(&all) {
            Ok(pool) => {
                let mut runner = Runner::with(shape, all, pool, world);
                let cut = live(&mut runner, seed % 6 == 5, &mut rng, seen);
                if let (Some(pool), false) = (&runner.pool, cut) {
                    runner.world.verify(pool).unwrap_or_else(|what| panic!("{context}: {what}"));
                    assert_sound(pool, &context);
                }
                if let Some(pool) = &runner.pool {
                    seen.add(&pool.stats());
                }
                runner.cut()
            }
            Err(error) => {
                assert!(is_power_cut(&error), "{context}: {error}");
                seen.in_opening += 1;
                all.iter().for_each(deepram_testkit::FaultyDevice::cut_power);
                (all, Worlds::one(world))
            }
        };
        seen.cuts += 1;
        let mode = match rng.random_range(0..6) {
            0 => Crash::DropAll,
            1 => Crash::KeepAll,
            2 => Crash::TornLast,
            _ => Crash::Random(rng.random()),
        };
        images_now = images(&gone, mode);
        let context = format!("{context}, {mode:?}");
        // The next life starts, on copies, from the state that this cut left.
        survive(&shape, &images_now, &worlds, seed * 100 + life as u64, &context);
        let after = devices(&images_now);
        let (pool, now) = reopen(&shape, &after, &worlds, &context);
        world = now;
        pool.abandon().unwrap();
        images_now = after.iter().map(deepram_testkit::FaultyDevice::newest_image).collect();
    }
}

#[test]
fn random_workloads_survive_power_cuts_anywhere_again_and_again() {
    let mut seen = Seen::default();
    let mut runs = 0;
    seeds::each(60, |seed| {
        run(seed, &mut seen);
        runs += 1;
    });
    if runs > 1 {
        let enough = seen.evictions > 0
            && seen.full > 0
            && seen.lines_persisted > 1000
            && seen.line_log_compactions > 0
            && seen.blocks_reclaimed > 100
            && seen.checkpoints > 500
            && seen.in_opening > 0;
        assert!(enough, "the workloads no longer reach what they should: {seen:?}");
    }
}

#[test]
fn memory_rewritten_over_and_over_stays_right_while_blocks_are_reclaimed() {
    let mut reclaimed = 0;
    seeds::each(6, |seed| {
        let segment = SIZES[(seed % 3) as usize];
        let shape = Shape { keep: 2, pages: 10, ..Shape::small(segment) };
        let shape = Shape { flash: Some(MIB + 26 * 64 * segment.bytes()), ..shape };
        let (images, world) = shape.create();
        let all = devices(&images);
        let pool = shape.open(&all).unwrap();
        let mut runner = Runner::with(shape, all, pool, world);
        runner.world.kept = 1;
        let mut rng = seeds::rng(seed);
        runner.step(&Step::Alloc { controller: 0, pages: 9, lifetime: Lifetime::Permanent }).unwrap();
        for round in 0..300 {
            for _ in 0..rng.random_range(1..20) {
                let (page, at, value) = (rng.random_range(0..9), rng.random_range(0..60_000), rng.random());
                let len = [8, 8, 8, 20_000][rng.random_range(0..4)];
                runner.step(&Step::Write { page, at, len, value }).unwrap();
            }
            runner.step(&Step::Sync).unwrap();
            if round % 40 == 39 {
                runner.world.verify(runner.pool()).unwrap_or_else(|what| panic!("round {round}: {what}"));
                assert_sound(runner.pool(), "rewriting");
            }
        }
        let stats = runner.pool().stats();
        assert!(stats.checkpoints > 3, "{stats:?}");
        reclaimed += stats.blocks_reclaimed;
    });
    assert!(reclaimed > 0, "nothing was ever reclaimed");
}
