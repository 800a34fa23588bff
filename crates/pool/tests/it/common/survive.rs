//! Recovery after a power cut: reopens, compares and checks the pool, continues the work, and cuts the power
//! again.

use deepram_pool::{Lifetime, Pool, PoolError};
use deepram_testkit::{Crash, FaultyDevice, Image, POWER_CUT, seeds};
use rand::RngExt;

use super::rig::{Shape, devices};
use super::step::{self, Runner, Step, Stopped};
use super::world::{World, Worlds};

/// The kinds of crash images to test.
pub fn modes(seed: u64, random: u64) -> Vec<Crash> {
    let fixed = [Crash::DropAll, Crash::KeepAll, Crash::TornLast];
    fixed.into_iter().chain((0..random).map(|n| Crash::Random(seed.wrapping_mul(1000) + n))).collect()
}

/// Returns an image of each device after a power cut. With random crashes every device is torn differently.
pub fn images(devices: &[FaultyDevice], crash: Crash) -> Vec<Image> {
    let each = (0..).zip(devices).map(|(n, device)| {
        let crash = match crash {
            Crash::Random(seed) => Crash::Random(seed.wrapping_mul(7) + n),
            other => other,
        };
        device.crash_image(crash)
    });
    each.collect()
}

pub fn is_power_cut(error: &PoolError) -> bool {
    matches!(error, PoolError::Device { source, .. } if source.raw_os_error() == Some(POWER_CUT))
}

/// Opens a pool after a power cut and compares it with the worlds it may be in.
pub fn reopen(shape: &Shape, devices: &[FaultyDevice], worlds: &Worlds, context: &str) -> (Pool, World) {
    let pool = shape.open(devices).unwrap_or_else(|error| panic!("{context}: opening: {error}"));
    let world = worlds.pick(&pool).unwrap_or_else(|what| panic!("{context}: {what}"));
    (pool, world)
}

pub fn assert_sound(pool: &Pool, context: &str) {
    let report = pool.check(&mut |_, _| {}).unwrap_or_else(|error| panic!("{context}: check: {error}"));
    assert!(report.is_sound(), "{context}: {report:?}");
}

/// Steps that every pool must be able to run.
fn go_on(seed: u64) -> Vec<Step> {
    let mut rng = seeds::rng(seed);
    let alloc = Step::Alloc { controller: rng.random(), pages: 1, lifetime: Lifetime::Permanent };
    let mut steps = vec![alloc, Step::Write { page: 7, at: 4000, len: 9000, value: rng.random() }];
    steps.extend((0..4).map(|_| step::random(&mut rng)));
    steps.push(Step::Sync);
    steps.push(Step::Write { page: rng.random_range(0..8), at: 0, len: 5000, value: 1 });
    steps
}

/// Runs steps until one meets the power cut, and returns whether one did. Any other error fails the test.
pub fn run(runner: &mut Runner, steps: &[Step], context: &str) -> bool {
    steps.iter().any(|step| was_cut(runner.step(step), step, context))
}

fn was_cut(outcome: Result<(), Stopped>, step: &Step, context: &str) -> bool {
    match outcome {
        Ok(()) => false,
        Err(Stopped(error)) if is_power_cut(&error) => true,
        Err(Stopped(error)) => panic!("{context}: {step:?}: {error}"),
    }
}

/// As [`run`], on a device that may be full, from before the cut or because of these steps: then freeing
/// pages, as the error advises, must help.
fn run_where_full(runner: &mut Runner, steps: &[Step], context: &str) -> bool {
    steps.iter().any(|step| match runner.step(step) {
        Err(Stopped(PoolError::NoSpace { .. })) => {
            runner.settle();
            let help = [Step::Free(0), Step::Free(0), Step::Sync, step.clone()];
            run(runner, &help, &format!("{context}, full at {step:?}"))
        }
        outcome => was_cut(outcome, step, context),
    })
}

/// Checks that a crash image can be recovered: the opening finds an expected world and no damage, the pool
/// works on, and it survives a second power cut, both afterwards and during the opening.
pub fn survive(shape: &Shape, images: &[Image], worlds: &Worlds, seed: u64, context: &str) {
    let first = devices(images);
    let (pool, world) = reopen(shape, &first, worlds, context);
    assert_sound(&pool, context);
    let mut runner = Runner::with(*shape, first, pool, world.clone());
    assert!(!run_where_full(&mut runner, &go_on(seed), context));
    runner.world.verify(runner.pool()).unwrap_or_else(|what| panic!("{context}, going on: {what}"));
    let (gone, after) = runner.cut();
    again(shape, &gone, &after, seed, &format!("{context}, second cut"));

    // The second cut comes early, mostly during the opening.
    let second = devices(images);
    let hit = (seed % shape.controllers as u64) as usize;
    second[hit].crash_after(1 + seed % 12);
    let context = format!("{context}, cut in recovery");
    let (gone, after) = match shape.open(&second) {
        Ok(pool) => {
            let mut runner = Runner::with(*shape, second, pool, world);
            run_where_full(&mut runner, &go_on(seed), &context);
            runner.cut()
        }
        Err(error) => {
            assert!(is_power_cut(&error), "{context}: {error}");
            second.iter().for_each(FaultyDevice::cut_power);
            (second, Worlds::one(world))
        }
    };
    again(shape, &gone, &after, seed, &context);
}

fn again(shape: &Shape, gone: &[FaultyDevice], worlds: &Worlds, seed: u64, context: &str) {
    let images = images(gone, Crash::Random(seed));
    let (pool, _) = reopen(shape, &devices(&images), worlds, context);
    assert_sound(&pool, context);
}

/// Runs a workload repeatedly, with the power cut in each of its device operations, in every mode. Returns
/// the number of power cuts survived.
pub fn every_operation(shape: &Shape, steps: &[Step], random: u64, name: &str) -> usize {
    let (base, world) = shape.create();
    let mut survived = 0;
    for hit in 0..shape.controllers {
        for op in 1.. {
            let context = format!("{name}, {:?}, cut in operation {op} of device {hit}", shape.segment);
            let all = devices(&base);
            all[hit].crash_after(op);
            let (gone, worlds, was_cut) = match shape.open(&all) {
                Ok(pool) => {
                    let mut runner = Runner::with(*shape, all, pool, world.clone());
                    let was_cut = run(&mut runner, steps, &context);
                    let was_cut = was_cut || runner.devices[hit].is_off();
                    let (gone, worlds) = runner.cut();
                    (gone, worlds, was_cut)
                }
                Err(error) => {
                    assert!(is_power_cut(&error), "{context}: {error}");
                    all.iter().for_each(FaultyDevice::cut_power);
                    (all, Worlds::one(world.clone()), true)
                }
            };
            let mut images_seen: Vec<Vec<Image>> = Vec::new();
            for (n, mode) in (0..).zip(modes(op, random)) {
                let images = images(&gone, mode);
                if images_seen.iter().any(|seen| same(seen, &images)) {
                    continue;
                }
                survive(shape, &images, &worlds, op * 31 + n, &format!("{context}, {mode:?}"));
                images_seen.push(images);
                survived += 1;
            }
            if !was_cut {
                break;
            }
        }
    }
    survived
}

fn same(a: &[Image], b: &[Image]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.first_difference(b).is_none())
}
