//! Pools with redundancy: any damaged segment of a stripe and any lost column of a block is repaired, also after a
//! power cut at any moment; without redundancy the same damage is reported.

use std::collections::BTreeMap;

use deepram_core::SegmentSize;
use deepram_pool::{Addr, Lifetime, Mapping, OpenOptions, Pool, PoolError, Redundancy};
use deepram_testkit::{Crash, FaultyDevice, Image, Op, seeds};
use rand::RngExt;

use crate::common::rig::{Shape, devices};
use crate::common::step::{Runner, Step};
use crate::common::survive::{assert_sound, every_operation, images, is_power_cut, modes, run};
use crate::common::world::{World, Worlds};
use crate::common::{MIB, PAGE, SIZES};

fn write(page: usize, at: u64, len: usize, value: u8) -> Step {
    Step::Write { page, at, len, value }
}

fn alloc(pages: u64) -> Step {
    Step::Alloc { controller: 0, pages, lifetime: Lifetime::Permanent }
}

/// Data in full blocks and in partly filled ones, of several tokens.
fn steps() -> Vec<Step> {
    let mut steps = vec![alloc(8)];
    for round in 0..3 {
        steps.extend((0..8).map(|page| write(page, 0, 65_536, round * 8 + page as u8)));
        steps.push(Step::Sync);
        steps.push(write(0, 100, 5_000, round));
        steps.push(Step::Sync);
    }
    steps
}

/// A closed pool with this data.
struct Filled {
    shape: Shape,
    image: Image,
    world: World,
}

fn roomy(segment: SegmentSize, redundancy: &str) -> Shape {
    let flash = Some(MIB + 90 * 100 * segment.bytes());
    Shape { flash, pages: 9, ..Shape::with_parity(segment, redundancy) }
}

fn fill(shape: Shape) -> Filled {
    let (base, world) = shape.create();
    let all = devices(&base);
    let pool = shape.open(&all).unwrap();
    let mut runner = Runner::with(shape, all, pool, world);
    for step in steps() {
        runner.step(&step).unwrap();
    }
    runner.step(&Step::Close).unwrap();
    // The step has opened the pool again. Nothing that it wrote since counts.
    runner.pool.take().unwrap().abandon().unwrap();
    let world = runner.world.clone();
    Filled { shape, image: runner.devices[0].newest_image(), world }
}

/// The layout of a pool with redundancy on its device, in bytes.
struct Layout {
    segment: u64,
    /// Distance of two blocks.
    stride: u64,
    /// Data columns, and the size of one.
    data: u64,
    column: u64,
    blocks: u64,
}

const FIRST_BLOCK: u64 = MIB;

impl Layout {
    fn of(filled: &Filled) -> Self {
        let pool = filled.shape.open(&devices(std::slice::from_ref(&filled.image))).unwrap();
        let info = pool.info().unwrap();
        let redundancy = info.redundancy.unwrap();
        let segment = info.segment.bytes();
        let (data, parity) = (u64::from(redundancy.data()), u64::from(redundancy.parity()));
        let (slots, rows) = (info.block.0 / segment, info.column.0 / segment);
        let index = (40 + 4 * (slots + rows * parity * segment / 512)).next_multiple_of(segment);
        let stride = info.block.0 + parity * (2 * index + info.column.0);
        assert_eq!(stride, info.block_with_parity.0);
        let blocks = (info.flash.0 - FIRST_BLOCK) / stride;
        assert_eq!(FIRST_BLOCK + blocks * stride, info.flash.0);
        Self { segment, stride, data, column: info.column.0, blocks }
    }

    /// The ranges of the columns of a block, parity columns last.
    fn columns(&self, block: u64) -> Vec<(u64, u64)> {
        let at = FIRST_BLOCK + block * self.stride;
        let data = self.data * self.column;
        let parity = (self.stride - data) / (self.parity_columns());
        let columns = (0..self.data).map(|n| (at + n * self.column, self.column));
        let parity = (0..self.parity_columns()).map(|n| (at + data + n * parity, parity));
        columns.chain(parity).collect()
    }

    fn parity_columns(&self) -> u64 {
        // A parity column is longer than a data column, and shorter than two.
        (self.stride - self.data * self.column) / self.column
    }
}

fn is_used(image: &Image, at: u64, len: u64) -> bool {
    let mut bytes = vec![0; len as usize];
    image.read(at, &mut bytes);
    bytes.iter().any(|byte| *byte != 0)
}

fn garbage(len: u64) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(97) ^ 0xA5).collect()
}

/// Opens the damaged pool and expects every byte, then scrubs it and expects that no damage is left.
fn expect_repair(filled: &Filled, device: FaultyDevice, context: &str) {
    let all = [device];
    let pool = filled.shape.open(&all).unwrap_or_else(|error| panic!("{context}: {error}"));
    filled.world.verify(&pool).unwrap_or_else(|what| panic!("{context}: {what}"));
    let report = pool.scrub(&mut |_, _| {}).unwrap_or_else(|error| panic!("{context}: scrub: {error}"));
    assert_eq!((report.lost, report.check.is_sound()), (0, true), "{context}: {report:?}");
    let again = pool.scrub(&mut |_, _| {}).unwrap();
    let left = (again.repaired, again.lost, again.parity_rewritten, again.check.repairable);
    assert_eq!(left, (0, 0, 0, 0), "{context}: {again:?}");
    pool.abandon().unwrap();
}

#[test]
fn any_damaged_segment_is_rebuilt_on_reading_and_by_a_scrub() {
    for (segment, redundancy) in SIZES.into_iter().zip(["4+1", "8+1", "3+2"]) {
        let filled = fill(roomy(segment, redundancy));
        let layout = Layout::of(&filled);
        let end = FIRST_BLOCK + layout.blocks * layout.stride;
        let used = (FIRST_BLOCK..end).step_by(layout.segment as usize);
        let used: Vec<u64> = used.filter(|&at| is_used(&filled.image, at, layout.segment)).collect();
        assert!(used.len() > 150, "{} segments", used.len());
        let mut kinds = BTreeMap::<_, u32>::new();
        for (n, &at) in used.iter().enumerate().filter(|(n, _)| n % 3 == 0 || *n > used.len() - 40) {
            let device = FaultyDevice::from_image(filled.image.clone());
            device.overwrite(at, &garbage(layout.segment));
            expect_repair(&filled, device, &format!("{segment:?}, {redundancy}, segment {n} at {at:#x}"));
            *kinds.entry((at - FIRST_BLOCK) % layout.stride / layout.column).or_default() += 1;
        }
        assert!(kinds.len() > layout.data as usize, "every column: {kinds:?}");
    }
}

#[test]
fn any_lost_column_of_a_block_is_rebuilt() {
    for (segment, redundancy) in SIZES.into_iter().zip(["8+1", "4+1", "5+1"]) {
        let filled = fill(roomy(segment, redundancy));
        let layout = Layout::of(&filled);
        let mut lost = 0;
        for block in 0..layout.blocks {
            for (n, (at, len)) in layout.columns(block).into_iter().enumerate() {
                if !is_used(&filled.image, at, len) {
                    continue;
                }
                let device = FaultyDevice::from_image(filled.image.clone());
                device.overwrite(at, &garbage(len));
                expect_repair(&filled, device, &format!("{segment:?}, block {block}, column {n}"));
                lost += 1;
            }
        }
        assert!(lost > 10, "{lost}");
    }
}

#[test]
fn two_lost_columns_are_rebuilt_from_two_parity_columns_and_three_are_reported() {
    let filled = fill(roomy(SegmentSize::K4, "4+2"));
    let layout = Layout::of(&filled);
    assert_eq!(layout.parity_columns(), 2);
    let mut reported = 0;
    for block in 0..layout.blocks {
        let columns = layout.columns(block);
        let used: Vec<_> = columns.iter().filter(|(at, len)| is_used(&filled.image, *at, *len)).collect();
        for (n, first) in used.iter().enumerate() {
            for second in &used[n + 1..] {
                let device = FaultyDevice::from_image(filled.image.clone());
                [first, second].iter().for_each(|(at, len)| device.overwrite(*at, &garbage(*len)));
                expect_repair(&filled, device, &format!("block {block}, {first:?} and {second:?}"));
            }
        }
        if used.len() == columns.len() {
            let device = FaultyDevice::from_image(filled.image.clone());
            used.iter().take(3).for_each(|(at, len)| device.overwrite(*at, &garbage(*len)));
            let opened = filled.shape.open(&[device]);
            let told = match opened {
                Ok(pool) => filled.world.verify(&pool).is_err() || is_dead(&pool),
                Err(error) => matches!(
                    error,
                    PoolError::DamagedPool { .. } | PoolError::LogDamaged { .. } | PoolError::Damaged { .. }
                ),
            };
            // A block that is free now, or no longer needed, holds nothing that could be lost.
            reported += u32::from(told);
        }
    }
    assert!(reported > 1, "{reported}");
}

/// Returns whether a scrub finds the damage, in slots that no token needs.
fn is_dead(pool: &Pool) -> bool {
    pool.scrub(&mut |_, _| {}).unwrap().lost > 0
}

#[test]
fn segments_that_the_device_cannot_read_are_rebuilt() {
    let filled = fill(roomy(SegmentSize::K4, "4+1"));
    for nth in 1..60 {
        let device = FaultyDevice::from_image(filled.image.clone());
        let all = [device];
        let pool = filled.shape.open(&all).unwrap();
        all[0].fail_nth(Op::Read, nth, deepram_testkit::Failure::EIO);
        filled.world.verify(&pool).unwrap_or_else(|what| panic!("read {nth}: {what}"));
        pool.abandon().unwrap();
    }
}

#[test]
fn without_parity_the_same_damage_is_reported_with_page_and_epoch_and_the_rest_is_readable() {
    let segment = SegmentSize::K4;
    let filled = fill(Shape { redundancy: None, ..roomy(segment, "4+1") });
    let pool = filled.shape.open(&devices(std::slice::from_ref(&filled.image))).unwrap();
    let info = pool.info().unwrap();
    drop(pool);
    let mut damaged = 0;
    for block in 0..(info.flash.0 - FIRST_BLOCK) / info.block.0 {
        let at = FIRST_BLOCK + block * info.block.0;
        for slot in [1, 2, 20, 40] {
            let at = at + slot * segment.bytes();
            if !is_used(&filled.image, at, segment.bytes()) {
                continue;
            }
            let device = FaultyDevice::from_image(filled.image.clone());
            device.overwrite(at, &garbage(segment.bytes()));
            let Ok(pool) = filled.shape.open(&[device]) else { continue };
            let report = pool.scrub(&mut |_, _| {}).unwrap();
            assert_eq!((report.repaired, report.check.repairable), (0, 0));
            let mut bytes = vec![0; segment.bytes() as usize];
            let mut found = 0;
            for page in filled.world.now.pages.keys() {
                for within in (0..PAGE).step_by(segment.bytes() as usize) {
                    match pool.read(Addr::from_raw(page + within), &mut bytes) {
                        Ok(()) => {}
                        Err(PoolError::Damaged { page: which, epoch, offset, .. }) => {
                            assert_eq!((u64::from(which), offset), (page / PAGE, at));
                            assert!(epoch.0 > 0 && epoch.0 <= filled.world.open);
                            found += 1;
                        }
                        Err(error) => panic!("slot at {at:#x}: {error}"),
                    }
                }
            }
            assert!(found <= 1, "{found} segments");
            damaged += found;
        }
    }
    assert!(damaged > 3, "{damaged}");
}

#[test]
fn a_pool_with_parity_survives_a_cut_in_every_operation() {
    for (segment, redundancy) in SIZES.into_iter().zip(["4+1", "2+2", "8+1"]) {
        let shape = Shape::with_parity(segment, redundancy);
        let survived = every_operation(&shape, &small_steps(), 4, "parity");
        assert!(survived > 40, "only {survived} power cuts");
    }
}

/// Parity that is extended: every compaction writes a checkpoint, which protects the blocks being filled.
fn small_steps() -> Vec<Step> {
    vec![
        alloc(2),
        write(0, 0, 20_000, 1),
        Step::Sync,
        Step::Compact,
        write(1, 0, 50_000, 2),
        write(0, 5_000, 9_000, 3),
        Step::Sync,
        Step::Compact,
        write(0, 0, 100, 4),
        Step::Sync,
        write(0, 0, 65_000, 5),
    ]
}

/// Damages, in crash images, segments and whole columns that were protected before the work that the cut interrupts.
#[test]
fn damage_after_a_cut_in_any_operation_is_repaired() {
    seeds::each(1, damage_after_every_cut);
}

fn damage_after_every_cut(seed: u64) {
    let mut rng = seeds::rng(seed);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("pool");
    let (mut cases, mut columns, mut on_file) = (0, 0, 0);
    for (segment, redundancy) in
        [(SegmentSize::K4, "4+1"), (SegmentSize::K16, "8+1"), (SegmentSize::K4, "3+2")]
    {
        let filled = fill(roomy(segment, redundancy));
        let layout = Layout::of(&filled);
        let end = FIRST_BLOCK + layout.blocks * layout.stride;
        let used = (FIRST_BLOCK..end).step_by(layout.segment as usize);
        let used: Vec<u64> = used.filter(|&at| is_used(&filled.image, at, layout.segment)).collect();
        let used_columns = (0..layout.blocks).flat_map(|block| layout.columns(block));
        let used_columns: Vec<(u64, u64)> =
            used_columns.filter(|&(at, len)| is_used(&filled.image, at, len)).collect();
        let mut steps = small_steps();
        steps[0] = alloc(1);
        for op in 1.. {
            let context = format!("seed {seed}, {segment:?}, {redundancy}, cut in operation {op}");
            let all = devices(std::slice::from_ref(&filled.image));
            all[0].crash_after(op);
            let (gone, worlds, was_cut) = match filled.shape.open(&all) {
                Ok(pool) => {
                    let mut runner = Runner::with(filled.shape, all, pool, filled.world.clone());
                    let was_cut = run(&mut runner, &steps, &context) || runner.devices[0].is_off();
                    let (gone, worlds) = runner.cut();
                    (gone, worlds, was_cut)
                }
                Err(error) => {
                    assert!(is_power_cut(&error), "{context}: {error}");
                    (all, Worlds::one(filled.world.clone()), true)
                }
            };
            for mode in modes(op, 3) {
                let image = images(&gone, mode).remove(0);
                let is_column = rng.random_bool(0.5);
                let (at, len) = if is_column {
                    used_columns[rng.random_range(0..used_columns.len())]
                } else {
                    (used[rng.random_range(0..used.len())], layout.segment)
                };
                if !is_same(&filled.image, &image, at, len) {
                    continue;
                }
                let context = format!("{context}, {mode:?}, damage of {len} bytes at {at:#x}");
                let device = FaultyDevice::from_image(image);
                device.overwrite(at, &garbage(len));
                columns += u32::from(is_column);
                if cases % 16 == 0 {
                    std::fs::write(&file, device.newest_image().to_vec()).unwrap();
                    let options = OpenOptions::new(filled.shape.dram).mapping(Mapping::Off);
                    let pool = Pool::open(&[&file], &options);
                    expect_state(pool, &worlds, &context);
                    on_file += 1;
                }
                expect_state(filled.shape.open(&[device]), &worlds, &context);
                cases += 1;
            }
            if !was_cut {
                break;
            }
        }
    }
    let counts = format!("{cases} cases, {columns} columns, {on_file} on files");
    assert!(cases > 100 && columns > 40 && on_file > 5, "{counts}");
}

fn is_same(before: &Image, after: &Image, at: u64, len: u64) -> bool {
    let [mut a, mut b] = [vec![0; len as usize], vec![0; len as usize]];
    before.read(at, &mut a);
    after.read(at, &mut b);
    a == b
}

fn expect_state(opened: Result<Pool, PoolError>, worlds: &Worlds, context: &str) {
    let pool = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
    worlds.pick(&pool).unwrap_or_else(|what| panic!("{context}: {what}"));
    let report = pool.scrub(&mut |_, _| {}).unwrap_or_else(|error| panic!("{context}: scrub: {error}"));
    assert!(report.check.is_sound(), "{context}: {report:?}");
    assert_sound(&pool, context);
    pool.abandon().unwrap();
}

#[test]
fn an_idle_pool_gets_parity_without_a_checkpoint() {
    let shape = roomy(SegmentSize::K4, "4+1");
    let (base, _) = shape.create();
    let all = devices(&base);
    let pool = shape.open(&all).unwrap();
    let before = (pool.stats().checkpoints, pool.stats().bytes_parity);
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    pool.write(addr, &[7; 20_000]).unwrap();
    all[0].record_writes(true);
    pool.sync().unwrap();
    let (commit, _) = *all[0].take_writes().last().unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while pool.stats().bytes_parity == before.1 {
        assert!(std::time::Instant::now() < until, "no parity");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(pool.stats().checkpoints, before.0);
    all[0].cut_power();
    drop(pool);
    // The header of the sync's batch and its first segment are lost, one after the other.
    for at in [commit, commit + 4096] {
        let device = FaultyDevice::from_image(images(&all, Crash::KeepAll).remove(0));
        device.overwrite(at, &garbage(4096));
        let pool = shape.open(&[device]).unwrap_or_else(|error| panic!("{at:#x}: {error}"));
        let mut bytes = [0; 20_000];
        pool.read(addr, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 20_000]);
        pool.abandon().unwrap();
    }
}

#[test]
fn a_pool_without_redundancy_keeps_format_3_and_one_with_redundancy_has_4() {
    for (redundancy, version) in [(None, 3_u32), (Redundancy::new(8, 1), 4)] {
        let shape = Shape { redundancy, ..roomy(SegmentSize::K4, "8+1") };
        let (base, _) = shape.create();
        let mut bytes = [0; 4];
        base[0].read(8, &mut bytes);
        assert_eq!(u32::from_le_bytes(bytes), version);
        let pool = shape.open(&devices(&base)).unwrap();
        assert_eq!(pool.info().unwrap().redundancy, redundancy);
    }
}
