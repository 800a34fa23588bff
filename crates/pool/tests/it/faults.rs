//! Devices that fail and devices that return wrong data: errors are reported and no synced data is lost,
//! later syncs succeed when the fault has healed, and damaged bytes are an error, never data.

use std::collections::BTreeSet;

use crate::common::rig::{Shape, devices, handles};
use crate::common::step::{self, Runner, Step, Stopped};
use crate::common::survive::{assert_sound, images, reopen};
use crate::common::world::Worlds;
use crate::common::{MIB, PAGE, SIZES};
use deepram_core::SegmentSize;
use deepram_pool::device::Device;
use deepram_pool::fuzzing::{self, ChecksumKind};
use deepram_pool::{Inspection, Lifetime, Pool, PoolError};
use deepram_testkit::{Crash, Failure, FaultyDevice, Op, seeds};
use rand::RngExt;

use Lifetime::Permanent;

fn start(shape: Shape) -> Runner {
    let (images, world) = shape.create();
    let all = devices(&images);
    let pool = shape.open(&all).unwrap();
    Runner::with(shape, all, pool, world)
}

fn workload() -> Vec<Step> {
    let mut steps = vec![Step::Alloc { controller: 0, pages: 3, lifetime: Permanent }];
    let write = |page, at, len, value| Step::Write { page, at, len, value };
    steps.extend([
        write(0, 0, 60_000, 1),
        write(1, 100, 8, 2),
        Step::SetRoot { name: 1, page: 1 },
        Step::Sync,
    ]);
    steps.extend([write(0, 20_000, 30_000, 3), Step::Free(2), Step::Sync, write(1, 0, 9_000, 4)]);
    steps.extend([Step::Compact, Step::Sync, write(0, 0, 5_000, 5), Step::Rollback(1), Step::Sync]);
    steps.extend([write(1, 30_000, 30_000, 6), Step::Compact, write(0, 0, 100, 7), Step::Sync]);
    steps
}

fn is_told(error: &PoolError, context: &str) {
    let PoolError::Device { device, operation, source } = error else { panic!("{context}: {error}") };
    let text = error.to_string();
    assert!(text.contains(device.as_str()) && text.contains(operation), "{context}: {text}");
    assert!(source.raw_os_error() == Some(5) || source.kind() == std::io::ErrorKind::WriteZero, "{text}");
}

/// Runs a workload with one injected fault. A failed step is retried; a lasting fault is healed first. In the
/// end the power is cut, and all unflushed writes are lost. Returns the number of failed steps.
fn with_fault(shape: Shape, lasting: bool, inject: &dyn Fn(&[FaultyDevice]), context: &str) -> usize {
    let mut runner = start(shape);
    inject(&runner.devices);
    let mut failed = 0;
    for step in workload() {
        if let Err(Stopped(error)) = runner.step(&step) {
            failed += 1;
            let context = format!("{context}, {step:?}");
            is_told(&error, &context);
            // A second attempt while the fault lasts: the pool must stay usable.
            if lasting && let Err(Stopped(error)) = runner.step(&step) {
                is_told(&error, &context);
            }
            runner.devices.iter().for_each(FaultyDevice::heal);
            runner.settle();
            runner.world.verify(runner.pool()).unwrap_or_else(|what| panic!("{context}, failed: {what}"));
            runner.step(&step).unwrap_or_else(|Stopped(error)| panic!("{context}, again: {error}"));
        }
    }
    runner.devices.iter().for_each(FaultyDevice::heal);
    runner.step(&Step::Sync).unwrap_or_else(|Stopped(error)| panic!("{context}, last: {error}"));
    runner.world.verify(runner.pool()).unwrap_or_else(|what| panic!("{context}: {what}"));
    assert_sound(runner.pool(), context);
    let (gone, worlds) = runner.cut();
    for mode in [Crash::DropAll, Crash::KeepAll] {
        let (pool, _) = reopen(&shape, &devices(&images(&gone, mode)), &worlds, context);
        assert_sound(&pool, context);
    }
    failed
}

/// Returns the approximate number of operations of a kind in the workload.
fn count(shape: Shape, of: fn(deepram_testkit::Stats) -> u64) -> u64 {
    let mut runner = start(shape);
    let before = of(runner.devices[0].stats());
    for step in workload() {
        runner.step(&step).unwrap();
    }
    of(runner.devices[0].stats()) - before
}

fn each_operation(op: Op, of: fn(deepram_testkit::Stats) -> u64, must_fail: bool) {
    for segment in SIZES {
        for controllers in [1, 2] {
            let shape = Shape { controllers, ..Shape::small(segment) };
            let mut failed = 0;
            for hit in 0..controllers {
                for n in 1..=count(shape, of) + 2 {
                    for lasting in [false, true] {
                        let context = format!("{segment:?}, {op:?} {n} of device {hit}, lasting {lasting}");
                        let inject = |devices: &[FaultyDevice]| match lasting {
                            true => devices[hit].fail_from(op, n, Failure::EIO),
                            false => devices[hit].fail_nth(op, n, Failure::EIO),
                        };
                        failed += with_fault(shape, lasting, &inject, &context);
                    }
                }
            }
            assert!(failed > 0 || !must_fail, "no fault was ever reported");
        }
    }
}

#[test]
fn every_failing_write_is_told_or_mended_and_loses_nothing() {
    each_operation(Op::Write, |s| s.writes, true);
}

#[test]
fn every_failing_flush_is_told_and_what_it_lost_is_written_again() {
    each_operation(Op::Flush, |s| s.flushes, true);
}

#[test]
fn every_failing_read_is_told_and_changes_nothing() {
    // A newly created pool has its tables in memory; a reopened pool does not.
    each_operation(Op::Read, |s| s.reads, false);
}

#[test]
fn short_writes_are_errors_or_mended_and_lose_nothing() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        for n in 1..=count(shape, |s| s.writes) + 2 {
            for sectors in [1, 9] {
                let context = format!("{segment:?}, write {n} cut short after {sectors} sectors");
                with_fault(shape, false, &|d| d[0].short_write(n, sectors), &context);
            }
        }
    }
}

#[test]
fn a_failing_read_of_a_segment_is_an_error_and_the_next_one_works() {
    let shape = Shape::small(SegmentSize::K4);
    let mut runner = start(shape);
    runner.step(&Step::Alloc { controller: 0, pages: 2, lifetime: Permanent }).unwrap();
    runner.step(&Step::Write { page: 1, at: 0, len: 60_000, value: 1 }).unwrap();
    runner.step(&Step::Close).unwrap();
    let page = *runner.world.now.pages.keys().nth(1).unwrap();
    let addr = deepram_pool::Addr::from_raw(page);
    let mut bytes = vec![0; 60_000];
    for n in 1.. {
        runner.devices[0].fail_nth(Op::Read, 1, Failure::EIO);
        match runner.pool().read(addr, &mut bytes[..4000 * n]) {
            Ok(()) => break,
            Err(error) => is_told(&error, "reading"),
        }
        runner.devices[0].heal();
        // Segments that were read are in DRAM, so the next attempt gets further.
        runner.pool().read(addr, &mut bytes[..4000 * n]).unwrap();
        assert!(n < 15, "no read came from DRAM");
        if n == 14 {
            break;
        }
    }
    runner.devices[0].heal();
    runner.world.verify(runner.pool()).unwrap();
}

#[test]
fn a_failed_sync_that_a_crash_follows_leaves_the_last_epoch_or_that_one() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        for (op, n) in (1..6).flat_map(|n| [(Op::Write, n), (Op::Flush, n)]) {
            let mut runner = start(shape);
            let steps = workload();
            for step in &steps[..5] {
                runner.step(step).unwrap();
            }
            runner.step(&steps[5]).unwrap();
            runner.devices[0].fail_from(op, n, Failure::EIO);
            // Large enough for several batches.
            for page in 0..3 {
                let _ = runner.step(&Step::Write { page, at: 0, len: 65_536, value: 9 });
            }
            let failed = runner.step(&Step::Sync).is_err();
            let context = format!("{segment:?}, {op:?} {n}, failed {failed}");
            let (gone, worlds) = runner.cut();
            for mode in [Crash::DropAll, Crash::KeepAll, Crash::TornLast, Crash::Random(n)] {
                let (pool, _) = reopen(&shape, &devices(&images(&gone, mode)), &worlds, &context);
                assert_sound(&pool, &context);
            }
        }
    }
}

#[test]
fn a_device_that_fails_for_long_does_not_use_up_the_pool() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        let mut runner = start(shape);
        runner.step(&Step::Alloc { controller: 0, pages: 6, lifetime: Permanent }).unwrap();
        runner.step(&Step::Write { page: 0, at: 0, len: 60_000, value: 1 }).unwrap();
        runner.step(&Step::Sync).unwrap();
        for (op, n) in [(Op::Write, 1), (Op::Flush, 1), (Op::Write, 2), (Op::Write, 3)] {
            for round in 0..25 {
                let step = Step::Write { page: 1, at: 0, len: 60_000, value: round };
                runner.step(&step).unwrap();
                runner.devices[0].fail_from(op, n, Failure::EIO);
                for _ in 0..3 {
                    if let Err(Stopped(error)) = runner.step(&Step::Sync) {
                        is_told(&error, &format!("{segment:?} {op:?} {n}, round {round}"));
                    }
                }
                runner.devices[0].heal();
            }
            let told = |Stopped(error)| panic!("{segment:?}, after {op:?} {n}: {error}");
            runner.step(&Step::Sync).unwrap_or_else(told);
            runner.world.verify(runner.pool()).unwrap();
            assert_sound(runner.pool(), "healed");
        }
    }
}

#[test]
fn a_write_that_needs_a_frame_fails_with_the_device_instead_of_waiting_for_ever() {
    let segment = SegmentSize::K4;
    let flash = Some(32 * MIB);
    let shape = Shape { pages: 100, flash, ..Shape::small(segment) }.least_dram();
    let mut runner = start(shape);
    runner.step(&Step::Alloc { controller: 0, pages: 100, lifetime: Permanent }).unwrap();
    runner.step(&Step::Sync).unwrap();
    runner.devices[0].fail_from(Op::Write, 1, Failure::EIO);
    let failed = (0..100)
        .find_map(|page| runner.step(&Step::Write { page, at: 0, len: PAGE as usize, value: 3 }).err());
    let Some(Stopped(PoolError::Device { .. })) = failed else { panic!("every write succeeded: {failed:?}") };
    runner.devices[0].heal();
    // The failed write may be partly done, so its extent is unknown. Rewriting all pages gives known
    // contents.
    for page in 0..100 {
        for _ in 0..200 {
            if runner.step(&Step::Write { page, at: 0, len: PAGE as usize, value: 4 }).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    runner.step(&Step::Sync).unwrap();
    runner.world.verify(runner.pool()).unwrap();
}

#[test]
fn random_faults_in_random_workloads_lose_nothing_that_was_synced() {
    seeds::each(60, |seed| {
        let mut rng = seeds::rng(seed);
        let segment = SIZES[(seed % 3) as usize];
        let shape = Shape { controllers: 1 + (seed % 2) as usize, ..Shape::small(segment) };
        let mut runner = start(shape);
        runner.world.kept = 1;
        let mut failed = 0;
        for _ in 0..300 {
            let step = step::random(&mut rng);
            if rng.random_ratio(1, 4) {
                let device = &runner.devices[rng.random_range(0..runner.devices.len())];
                let op = [Op::Write, Op::Write, Op::Flush, Op::Read][rng.random_range(0..4)];
                let n = rng.random_range(1..6);
                match rng.random_range(0..3) {
                    0 => device.fail_nth(op, n, Failure::EIO),
                    1 => device.fail_from(op, n, Failure::EIO),
                    _ => device.short_write(n, rng.random_range(0..20)),
                }
            }
            let Err(Stopped(error)) = runner.step(&step) else { continue };
            failed += 1;
            if !matches!(error, PoolError::NoSpace { .. }) {
                is_told(&error, &format!("{step:?}"));
            }
            runner.devices.iter().for_each(FaultyDevice::heal);
            runner.settle();
            runner.world.verify(runner.pool()).unwrap_or_else(|what| panic!("{step:?} failed: {what}"));
        }
        runner.devices.iter().for_each(FaultyDevice::heal);
        runner.step(&Step::Sync).unwrap();
        assert!(failed > 0);
        let (gone, worlds) = runner.cut();
        let (pool, _) = reopen(&shape, &devices(&images(&gone, Crash::Random(seed))), &worlds, "in the end");
        assert_sound(&pool, "in the end");
    });
}

// -- Damage ------------------------------------------------------------------------------------

/// A pool with a few tokens, closed or left as by a crash.
fn pool_with_history(shape: Shape, closed: bool) -> (FaultyDevice, Worlds) {
    let mut runner = start(shape);
    for step in workload() {
        runner.step(&step).unwrap();
    }
    if closed {
        runner.step(&Step::Close).unwrap();
        let (mut gone, worlds) = (runner.devices.clone(), runner.cut().1);
        // `Close` ends with a reopening, so the image is taken after that opening rather than right after the
        // close.
        let pool = shape.open(&devices(&images(&gone, Crash::KeepAll))[..]);
        drop(pool);
        return (gone.remove(0), worlds);
    }
    let (mut gone, worlds) = runner.cut();
    (gone.remove(0), worlds)
}

/// Checks that each read of a pool returns correct data or an error. Returns the errors.
fn read_everything(pool: &Pool, worlds: &Worlds) -> Vec<PoolError> {
    let world = &worlds.0[0];
    let mut errors = Vec::new();
    for history in pool.history().unwrap() {
        let known = world.model.tokens().any(|t| t == history.token.0);
        let same = known.then(|| {
            world.model.check_token(history.token.0, |addr, buf| {
                if let Err(error) = pool.read_at(history.token, deepram_pool::Addr::from_raw(addr), buf) {
                    errors.push(error);
                    // The bytes are damaged: the comparison continues with the expected ones.
                    let page = world.model.expect(history.token.0).find(|(at, _)| *at == addr);
                    buf.copy_from_slice(&page.expect("asked for by the model").1[..]);
                }
            })
        });
        // The roots are in page 0, which the model does not cover.
        errors.extend(pool.roots_at(history.token).err());
        if let Some(Err(mismatch)) = same {
            panic!("damaged bytes were returned as data: token {}, {mismatch}", history.token);
        }
    }
    // The write-back thread may give up tokens at any time.
    errors.retain(|error| !matches!(error, PoolError::Token { .. }));
    errors
}

#[test]
fn a_flipped_bit_anywhere_is_found_by_a_check_and_never_returned_as_data() {
    for segment in SIZES {
        let shape = Shape { keep: 50, ..Shape::small(segment) };
        let (device, worlds) = pool_with_history(shape, true);
        let image = device.newest_image();
        let sites = fuzzing::sites(&image.to_vec()).expect("a sound pool");
        let kinds: BTreeSet<ChecksumKind> = sites.iter().map(|site| site.kind).collect();
        assert_eq!(kinds.len(), 6, "{kinds:?}");
        let mut rng = seeds::rng(segment.bytes());
        for (n, site) in sites.iter().enumerate() {
            for _ in 0..3 {
                let range = &site.ranges[rng.random_range(0..site.ranges.len())];
                let offset = rng.random_range(range.clone());
                let damaged = FaultyDevice::from_image(image.clone());
                damaged.flip_bit(offset as u64, rng.random_range(0..8));
                let context = format!("{segment:?}, {:?} (site {n}), byte {offset:#x}", site.kind);
                one_flip(&shape, &damaged, &worlds, site.kind, &context);
            }
        }
    }
}

fn one_flip(shape: &Shape, damaged: &FaultyDevice, worlds: &Worlds, kind: ChecksumKind, context: &str) {
    let all = std::slice::from_ref(damaged);
    let inspected = Inspection::of(handles(all));
    if kind == ChecksumKind::Root {
        let Err(error) = inspected else { panic!("{context}: a damaged root record was accepted") };
        assert!(matches!(error, PoolError::DamagedPool { .. }), "{context}: {error}");
        assert!(error.to_string().contains("root record"), "{error}");
        return;
    }
    let inspection = inspected.unwrap_or_else(|error| panic!("{context}: {error}"));
    let report = inspection.check(&mut |_, _| {}).unwrap();
    if matches!(kind, ChecksumKind::Header | ChecksumKind::EmptyBatch | ChecksumKind::Batch) {
        // The other header copy is used; a bare batch has no data that is needed.
        assert!(report.is_sound(), "{context}: {report:?}");
        let copies =
            if kind == ChecksumKind::Header { 0..=0 } else { u64::from(kind == ChecksumKind::Batch)..=1 };
        assert!(copies.contains(&report.damaged_copies), "{context}: {report:?}");
        let (pool, _) = reopen(shape, all, worlds, context);
        pool.repair_headers().unwrap();
        assert_eq!(pool.check(&mut |_, _| {}).unwrap().damaged_copies, 0, "{context}");
        assert_sound(&pool, context);
        return;
    }
    assert!(!report.is_sound(), "{context}: the check found no damage");
    let pool = match shape.open(all) {
        Ok(pool) => pool,
        // Opening may reclaim blocks, and that may need the damaged bytes.
        Err(error) => {
            assert!(matches!(error, PoolError::DamagedPool { .. }), "{context}: {error}");
            return;
        }
    };
    let errors = read_everything(&pool, worlds);
    assert!(!errors.is_empty(), "{context}: every read succeeded");
    for error in errors {
        match error {
            PoolError::Damaged { address, page, epoch, .. } if kind == ChecksumKind::Data => {
                let text =
                    PoolError::Damaged { device: "d".into(), address, page, epoch, offset: 0 }.to_string();
                assert!(
                    text.contains(&format!("page {page}")) && text.contains(&epoch.to_string()),
                    "{text}"
                );
                // The error names the epoch of the oldest token that sees the version; that token may have
                // been given up.
                assert!(report.damaged.iter().any(|d| d.address == address && d.epoch <= epoch));
            }
            PoolError::DamagedPool { .. } if kind == ChecksumKind::Chunk => {}
            other => panic!("{context}: {other}"),
        }
    }
}

#[test]
fn reclamation_keeps_what_is_damaged() {
    let segment = SegmentSize::K4;
    let shape = Shape { keep: 1, ..Shape::small(segment) };
    let mut runner = start(shape);
    runner.world.kept = 1;
    runner.step(&Step::Alloc { controller: 0, pages: 6, lifetime: Permanent }).unwrap();
    // One segment stays, among others that are overwritten soon, so its block is reclaimed early.
    for page in 0..6 {
        runner.step(&Step::Write { page, at: 0, len: 65_536, value: 7 }).unwrap();
    }
    runner.step(&Step::Sync).unwrap();
    runner.step(&Step::Close).unwrap();
    let kept = *runner.world.now.pages.keys().next().unwrap();
    let image = runner.devices[0].newest_image().to_vec();
    let sites = fuzzing::sites(&image).unwrap();
    let mut expected = vec![0; segment.bytes() as usize];
    runner.world.model.read(kept, &mut expected);
    let is_it = |s: &&fuzzing::ChecksumSite| {
        s.kind == ChecksumKind::Data && image[s.ranges[0].clone()] == expected[..]
    };
    let at = sites.iter().find(is_it).expect("the segment must be on the device").ranges[0].start;
    runner.devices[0].flip_bit(at as u64 + 9, 3);
    let mut rng = seeds::rng(1);
    for round in 0..300 {
        let (page, at) = (rng.random_range(1..6), rng.random_range(0..16) * 4096);
        runner.step(&Step::Write { page, at, len: 4096, value: round as u8 }).unwrap();
        if round % 3 == 0 {
            runner.step(&Step::Sync).unwrap();
        }
    }
    runner.pool().compact(&mut |_, _| {}).unwrap();
    let report = runner.pool().check(&mut |_, _| {}).unwrap();
    let there = report.damaged.iter().any(|d| d.offset == at as u64);
    assert!(there, "the damaged segment must be kept, as it may be repairable: {report:?}");
    // Flipping the bit back repairs the segment: no data was lost.
    runner.devices[0].flip_bit(at as u64 + 9, 3);
    runner.world.verify(runner.pool()).unwrap();
}

#[test]
fn a_bit_flipped_on_the_way_is_read_again() {
    let shape = Shape::small(SegmentSize::K4);
    let mut runner = start(shape);
    runner.step(&Step::Alloc { controller: 0, pages: 1, lifetime: Permanent }).unwrap();
    runner.step(&Step::Write { page: 0, at: 0, len: 4096, value: 1 }).unwrap();
    runner.step(&Step::Close).unwrap();
    let page = *runner.world.now.pages.keys().next().unwrap();
    let addr = deepram_pool::Addr::from_raw(page);
    let image = runner.devices[0].newest_image().to_vec();
    let sites = fuzzing::sites(&image).unwrap();
    let data = sites.iter().find(|s| s.kind == ChecksumKind::Data).unwrap().ranges[0].clone();
    for byte in data.step_by(4096) {
        runner.devices[0].flip_reads(byte as u64, 0);
    }
    let error = runner.pool().read(addr, &mut [0; 100]).unwrap_err();
    assert!(matches!(error, PoolError::Damaged { .. }), "{error}");
    runner.devices[0].heal();
    runner.world.verify(runner.pool()).unwrap();
    assert!(runner.devices[0].len() > 0);
}
