//! A fault followed by a power cut: the next state must not build on the partial results of a failed
//! operation.

use crate::common::rig::{Shape, devices};
use crate::common::step::{Runner, Step, Stopped};
use crate::common::survive::{assert_sound, images, is_power_cut, reopen};
use crate::common::{MIB, SIZES};
use deepram_core::SegmentSize;
use deepram_pool::{Lifetime, PoolError};
use deepram_testkit::{Crash, Failure, FaultyDevice, Op};

const CRASHES: [Crash; 3] = [Crash::DropAll, Crash::KeepAll, Crash::TornLast];

fn start(shape: Shape, steps: &[Step]) -> Runner {
    let (images, world) = shape.create();
    let all = devices(&images);
    let pool = shape.open(&all).unwrap();
    let mut runner = Runner::with(shape, all, pool, world);
    done(&mut runner, steps);
    runner
}

fn done(runner: &mut Runner, steps: &[Step]) {
    for step in steps {
        runner.step(step).unwrap_or_else(|Stopped(error)| panic!("{step:?}: {error}"));
    }
}

fn alloc(pages: u64) -> Step {
    Step::Alloc { controller: 0, pages, lifetime: Lifetime::Permanent }
}

fn write(page: usize, at: u64, len: usize, value: u8) -> Step {
    Step::Write { page, at, len, value }
}

/// The way in which the `n`-th write from now fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// No byte is written, and an error is returned.
    Refused,
    /// All bytes are written, but an error is returned.
    Doubtful,
}

fn inject(device: &FaultyDevice, fault: Fault, n: u64) {
    match fault {
        Fault::Refused => device.fail_nth(Op::Write, n, Failure::EIO),
        Fault::Doubtful => device.short_write(n, usize::MAX),
    }
}

/// Runs a step with a fault in it; the step may return a device error.
fn with_fault(runner: &mut Runner, step: &Step, fault: Fault, n: u64) {
    inject(&runner.devices[0], fault, n);
    if let Err(Stopped(error)) = runner.step(step) {
        assert!(matches!(error, PoolError::Device { .. }), "{step:?}: {error}");
    }
    runner.devices[0].heal();
    runner.settle();
}

/// Cuts the power and checks the images of each kind of crash.
fn cut_and_reopen(runner: Runner, context: &str) {
    let shape = runner.shape;
    let (gone, worlds) = runner.cut();
    for mode in CRASHES {
        let context = format!("{context}, {mode:?}");
        let (pool, _) = reopen(&shape, &devices(&images(&gone, mode)), &worlds, &context);
        assert_sound(&pool, &context);
    }
}

#[test]
fn a_checkpoint_with_a_failed_write_can_be_followed_by_one_that_is_cut() {
    let before =
        [alloc(3), write(0, 0, 30_000, 1), Step::Sync, Step::Compact, write(1, 0, 20_000, 2), Step::Sync];
    let after = [write(2, 0, 9_000, 3), Step::Sync, Step::Compact, write(0, 500, 9_000, 4), Step::Compact];
    for segment in SIZES {
        let shape = Shape::small(segment);
        // The number of checkpoints decides which header copy is written next.
        for more in 0..2 {
            let mut runner = start(shape, &before);
            done(&mut runner, &vec![Step::Compact; more]);
            runner.devices[0].record_writes(true);
            done(&mut runner, &[Step::Compact]);
            let writes = runner.devices[0].take_writes().len() as u64;
            drop(runner);
            for (fault, n) in (1..=writes).flat_map(|n| [(Fault::Refused, n), (Fault::Doubtful, n)]) {
                for operation in 1.. {
                    let context = format!("{segment:?}, {more} more, {fault:?} {n}, cut in {operation}");
                    let mut runner = start(shape, &before);
                    done(&mut runner, &vec![Step::Compact; more]);
                    with_fault(&mut runner, &Step::Compact, fault, n);
                    runner.devices[0].crash_after(operation);
                    let cut = after.iter().any(|step| match runner.step(step) {
                        Ok(()) => false,
                        Err(Stopped(error)) if is_power_cut(&error) => true,
                        Err(Stopped(error)) => panic!("{context}, {step:?}: {error}"),
                    });
                    let cut = cut || runner.devices[0].is_off();
                    cut_and_reopen(runner, &context);
                    if !cut {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_freed_and_allocated_before_a_failed_commit_is_in_the_next_one() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        for fault in [Fault::Refused, Fault::Doubtful] {
            for n in 1..6 {
                let mut runner =
                    start(shape, &[alloc(3), write(0, 0, 9_000, 1), write(1, 0, 9_000, 2), Step::Sync]);
                done(&mut runner, &[Step::Free(0), alloc(1), Step::Free(1), write(0, 100, 5_000, 3)]);
                with_fault(&mut runner, &Step::Sync, fault, n);
                done(&mut runner, &[Step::Sync]);
                cut_and_reopen(runner, &format!("{segment:?}, {fault:?} {n}"));
            }
        }
    }
}

/// A pool whose small line log grows after a few persists.
fn small_line_log() -> (Shape, Vec<Step>, impl Fn(u8) -> [Step; 2]) {
    let shape = Shape { flash: Some(12 * MIB), ..Shape::small(SegmentSize::K4) };
    let persists = |n: u8| {
        let (page, at) = (usize::from(n / 6 % 2), u64::from(n % 6) * 10_000);
        [write(page, at, 10_000, n), Step::Persist { page, at, len: 10_000 }]
    };
    (shape, vec![alloc(2), Step::Region(0), Step::Region(1)], persists)
}

#[test]
fn a_line_log_that_cannot_be_named_while_it_grows_is_named_before_it_is_used() {
    let (shape, before, persists) = small_line_log();
    // Finds the persist that makes the line log grow, and its number of writes.
    let mut runner = start(shape, &before);
    let first = runner.pool().info().unwrap().line_log;
    let mut grows = 0;
    let writes = loop {
        assert!(grows < 100, "a line log of {first} does not grow");
        runner.devices[0].record_writes(true);
        done(&mut runner, &persists(grows));
        let writes = runner.devices[0].take_writes().len() as u64;
        if runner.pool().info().unwrap().line_log > first {
            break writes;
        }
        grows += 1;
    };
    drop(runner);
    for (fault, n) in (1..=writes).flat_map(|n| [(Fault::Refused, n), (Fault::Doubtful, n)]) {
        let mut runner = start(shape, &before);
        (0..grows).for_each(|n| done(&mut runner, &persists(n)));
        let [write, persist] = persists(grows);
        done(&mut runner, &[write]);
        with_fault(&mut runner, &persist, fault, n);
        done(&mut runner, &[persist]);
        (grows + 1..grows + 3).for_each(|n| done(&mut runner, &persists(n)));
        cut_and_reopen(runner, &format!("{fault:?} {n} of {writes}"));
    }
}

#[test]
fn a_line_log_that_ends_before_its_last_known_record_is_an_error() {
    let (shape, before, persists) = small_line_log();
    let mut runner = start(shape, &before);
    runner.devices[0].record_writes(true);
    (0..3).for_each(|n| done(&mut runner, &persists(n)));
    let &(offset, len) = runner.devices[0].take_writes().last().unwrap();
    // The opening writes a checkpoint, which records that the log has three records.
    done(&mut runner, &[Step::Abandon]);
    let (gone, worlds) = runner.cut();
    let image = images(&gone, Crash::DropAll).remove(0);
    reopen(&shape, &[FaultyDevice::from_image(image.clone())], &worlds, "undamaged");
    let is_refused = |damaged: FaultyDevice, what: &str| {
        let error = shape.open(&[damaged]).err().unwrap_or_else(|| panic!("{what} passed as the log end"));
        assert!(error.to_string().contains("of the line log is damaged"), "{what}: {error}");
    };
    for at in [0, 30, len as u64 / 2] {
        let damaged = FaultyDevice::from_image(image.clone());
        damaged.flip_bit(offset + at, 1);
        is_refused(damaged, &format!("a flipped bit in byte {at} of the last record"));
    }
    // A last record of zeros looks as if it had never been written.
    let lost = FaultyDevice::from_image(image);
    lost.overwrite(offset, &vec![0; len]);
    is_refused(lost, "a last record of zeros");
}
