//! Damage between a crash and the opening after it: no acknowledged data is dropped silently. A bit flipped
//! anywhere is repaired or causes an error that names the lost data; so does the loss of whole segments of
//! the log.

use crate::common::rig::{Shape, devices};
use crate::common::step::{self, Runner, Step};
use crate::common::survive::{assert_sound, images};
use crate::common::world::Worlds;
use crate::common::{MIB, SIZES};
use deepram_core::SegmentSize;
use deepram_pool::{Epoch, Lifetime, Pool, PoolError};
use deepram_testkit::{Crash, FaultyDevice, Image, seeds};
use rand::{Rng, RngExt};

/// A pool that ended in a crash, and every write since it was opened.
struct Crashed {
    shape: Shape,
    image: Image,
    worlds: Worlds,
    writes: Vec<(u64, usize)>,
}

fn crash(shape: Shape, steps: impl IntoIterator<Item = Step>) -> Crashed {
    let (base, world) = shape.create();
    let all = devices(&base);
    let pool = shape.open(&all).unwrap();
    let mut runner = Runner::with(shape, all, pool, world);
    runner.world.kept = 1;
    runner.devices[0].record_writes(true);
    for step in steps {
        runner.step(&step).unwrap_or_else(|step::Stopped(error)| panic!("{step:?}: {error}"));
    }
    let writes = runner.devices[0].take_writes();
    let (gone, worlds) = runner.cut();
    Crashed { shape, image: images(&gone, Crash::KeepAll).remove(0), worlds, writes }
}

impl Crashed {
    /// Opens the pool with this damage. Either every acknowledged byte is present, or an error names the
    /// loss.
    fn open(&self, damage: impl Fn(&FaultyDevice), context: &str) -> Result<Pool, PoolError> {
        let device = FaultyDevice::from_image(self.image.clone());
        damage(&device);
        let pool = self.shape.open(std::slice::from_ref(&device))?;
        let world = &self.worlds.0[0];
        let (last, open) =
            (pool.history().unwrap().last().unwrap().token.0, pool.info().unwrap().open_epoch.0);
        assert_eq!((last, open), (world.last_token(), world.open), "{context}: a sync was dropped");
        match self.worlds.pick(&pool) {
            Ok(_) => {}
            // Damage to a segment is an error when it is read.
            Err(what) => assert!(what.contains("Damaged {") || what.contains("damaged"), "{context}: {what}"),
        }
        Ok(pool)
    }

    fn is_told(&self, error: &PoolError, context: &str) {
        let told = matches!(
            error,
            PoolError::LogDamaged { .. }
                | PoolError::LineLogDamaged { .. }
                | PoolError::DamagedPool { .. }
                | PoolError::Damaged { .. }
        );
        assert!(told, "{context}: {error}");
    }
}

fn write(page: usize, at: u64, len: usize, value: u8) -> Step {
    Step::Write { page, at, len, value }
}

/// Syncs of batches that fill whole blocks, and small ones.
fn large_and_small(shape: Shape) -> Crashed {
    let mut steps = vec![Step::Alloc { controller: 0, pages: 8, lifetime: Lifetime::Permanent }];
    for round in 0..5 {
        steps.extend((0..8).map(|page| write(page, 0, 65_536, round * 8 + page as u8)));
        steps.push(Step::Sync);
        steps.push(write(0, 100, 5_000, round));
        steps.push(Step::Sync);
    }
    crash(shape, steps)
}

fn roomy(segment: SegmentSize) -> Shape {
    Shape { pages: 9, flash: Some(MIB + 120 * 64 * segment.bytes()), keep: 3, ..Shape::small(segment) }
}

#[test]
fn a_bit_flipped_in_any_batch_header_is_mended() {
    for segment in SIZES {
        let crashed = large_and_small(roomy(segment));
        for &(offset, len) in &crashed.writes {
            for byte in [0, 5, 40, 200, segment.bytes() / 2 + 30] {
                let context = format!("{segment:?}, write of {len} bytes at {offset:#x}, byte {byte}");
                let pool = crashed.open(|device| device.flip_bit(offset + byte, 3), &context);
                let pool = pool.unwrap_or_else(|error| panic!("{context}: {error}"));
                pool.repair_headers().unwrap();
                assert_sound(&pool, &context);
            }
        }
    }
}

#[test]
fn a_lost_batch_header_is_an_error_that_names_the_lost_tokens_unless_it_is_the_newest() {
    for segment in SIZES {
        let crashed = large_and_small(roomy(segment));
        let last = crashed.worlds.0[0].last_token();
        let mut damaged = 0;
        for (n, &(offset, _)) in crashed.writes.iter().enumerate() {
            let is_newest = n + 1 == crashed.writes.len();
            let context = format!("{segment:?}, write {n} at {offset:#x}");
            let lose =
                |device: &FaultyDevice| device.overwrite(offset, &vec![0xA5; segment.bytes() as usize]);
            let device = FaultyDevice::from_image(crashed.image.clone());
            lose(&device);
            let all = std::slice::from_ref(&device);
            let error = match crashed.shape.open(all) {
                Ok(pool) if is_newest => {
                    assert_eq!(pool.history().unwrap().last().unwrap().token.0, last - 1, "{context}");
                    continue;
                }
                Ok(pool) => {
                    panic!("{context}: opened: {:?} {:?}", pool.history().unwrap().last(), crashed.writes)
                }
                Err(error) => error,
            };
            let PoolError::LogDamaged { kept, lost, .. } = error else { panic!("{context}: {error}") };
            assert_eq!(lost, Some(Epoch(last)), "{context}: {error}");
            assert!(kept < Epoch(last) && error.to_string().contains("--repair"), "{context}: {error}");
            // On request the pool continues from the token before the damage.
            let options = crashed.shape.open_options().at_token(kept);
            let pool = Pool::open_on(crate::common::rig::handles(all), &options).unwrap();
            assert_eq!(pool.history().unwrap().last().unwrap().token, kept, "{context}");
            assert_sound(&pool, &context);
            let addr = pool.alloc(4096, Lifetime::Permanent).unwrap();
            pool.write(addr, &[7; 4096]).unwrap();
            let token = pool.sync().unwrap();
            pool.abandon().unwrap();
            let pool = crashed.shape.open(all).unwrap_or_else(|error| panic!("{context}, after: {error}"));
            assert_eq!(pool.history().unwrap().last().unwrap().token, token, "{context}");
            damaged += 1;
        }
        assert!(damaged > 10, "{damaged}");
    }
}

#[test]
fn one_damaged_sector_of_the_newest_small_sync_is_rebuilt() {
    for segment in SIZES {
        let mut steps = vec![Step::Alloc { controller: 0, pages: 8, lifetime: Lifetime::Permanent }];
        steps.extend([write(0, 0, 60_000, 1), Step::Sync]);
        steps.extend([write(1, 0, 30_000, 2), write(3, 60_000, 500, 3), Step::Sync]);
        let crashed = crash(roomy(segment), steps);
        let &(offset, len) = crashed.writes.last().unwrap();
        for sector in 0..len as u64 / 512 {
            let context = format!("{segment:?}, sector {sector} of {len} bytes");
            let garbage = |device: &FaultyDevice| device.overwrite(offset + sector * 512, &[0xA5; 512]);
            let pool = crashed.open(garbage, &context).unwrap_or_else(|e| panic!("{context}: {e}"));
            pool.repair_headers().unwrap();
            assert_sound(&pool, &context);
            assert_eq!(pool.check(&mut |_, _| {}).unwrap().damaged_copies, 0, "{context}");
        }
    }
}

#[test]
fn more_damage_to_the_newest_small_sync_is_an_error_once_a_later_batch_confirms_it() {
    let segment = SegmentSize::K4;
    let steps = [
        Step::Alloc { controller: 0, pages: 2, lifetime: Lifetime::Permanent },
        write(0, 0, 30_000, 1),
        Step::Sync,
    ];
    let shape = roomy(segment);
    let (base, world) = shape.create();
    let all = devices(&base);
    let mut runner = Runner::with(shape, all, shape.open(&devices(&base)).unwrap(), world);
    runner.pool = Some(shape.open(&runner.devices).unwrap());
    runner.devices[0].record_writes(true);
    for step in &steps {
        runner.step(step).unwrap();
    }
    let commit = *runner.devices[0].take_writes().last().unwrap();
    // A background thread confirms the commit when the log has been idle for a moment.
    let confirmed = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        runner.devices[0].take_writes()
    });
    let confirmed =
        confirmed.take(1500).find(|writes| !writes.is_empty()).expect("an idle commit is confirmed");
    assert_eq!(confirmed.len(), 1, "one empty batch: {confirmed:?}");
    let (gone, worlds) = runner.cut();
    let image = images(&gone, Crash::DropAll).remove(0);
    let crashed = Crashed { shape, image, worlds, writes: vec![commit] };
    let lose = |slots: std::ops::Range<u64>| {
        move |device: &FaultyDevice| {
            for slot in slots.clone() {
                device.overwrite(commit.0 + slot * 4096, &[0xA5; 4096]);
            }
        }
    };
    let error = crashed.open(lose(0..1), "header").err().expect("its header is lost");
    assert!(matches!(error, PoolError::LogDamaged { .. }), "{error}");
    let pool = crashed.open(lose(1..4), "segments").expect("damaged segments are errors when they are read");
    assert_eq!(pool.check(&mut |_, _| {}).unwrap().damaged.len(), 3);
}

#[test]
fn any_damaged_sector_of_the_newest_line_records_is_an_error_that_can_be_gone_on_from() {
    let segment = SegmentSize::K4;
    let mut steps =
        vec![Step::Alloc { controller: 0, pages: 2, lifetime: Lifetime::Permanent }, Step::Region(0)];
    for n in 0..12 {
        steps.extend([
            write(0, n * 700, 600, n as u8),
            Step::Persist { page: 0, at: n * 700, len: 40 * n + 1 },
        ]);
    }
    let crashed = crash(roomy(segment), steps);
    let records = &crashed.writes[crashed.writes.len() - 12..];
    for (n, &(offset, len)) in records.iter().enumerate() {
        for sector in 0..len as u64 / 512 {
            let context = format!("record {n}, sector {sector}");
            let device = FaultyDevice::from_image(crashed.image.clone());
            device.flip_bit(offset + sector * 512 + 300, 1);
            let all = std::slice::from_ref(&device);
            let error = crashed.shape.open(all).err().unwrap_or_else(|| panic!("{context}: opened"));
            let PoolError::LineLogDamaged { kept, .. } = error else { panic!("{context}: {error}") };
            let options = crashed.shape.open_options().at_token(kept);
            let pool = Pool::open_on(crate::common::rig::handles(all), &options).unwrap();
            let page = *crashed.worlds.0[0].now.pages.keys().next().unwrap();
            for before in 0..n as u64 {
                let mut byte = [0; 1];
                pool.read(deepram_pool::Addr::from_raw(page + before * 700), &mut byte).unwrap();
                assert_eq!(byte, [before as u8], "{context}: record {before} is kept");
            }
            pool.write(deepram_pool::Addr::from_raw(page), &[99]).unwrap();
            pool.persist(deepram_pool::Addr::from_raw(page), 1).unwrap();
            pool.abandon().unwrap();
            let pool = crashed.shape.open(all).unwrap_or_else(|error| panic!("{context}, after: {error}"));
            let mut byte = [0; 1];
            pool.read(deepram_pool::Addr::from_raw(page), &mut byte).unwrap();
            assert_eq!(byte, [99], "{context}");
        }
    }
}

/// A random life of a pool with one device.
fn random_life(seed: u64, rng: &mut impl Rng) -> Crashed {
    let segment = SIZES[(seed % 3) as usize];
    let mut steps =
        vec![Step::Alloc { controller: 0, pages: 4, lifetime: Lifetime::Permanent }, Step::Region(0)];
    for _ in 0..rng.random_range(5..60) {
        let step = step::random(rng);
        // No step that frees memory which later steps persist, and none that reopens the pool: the writes
        // since the first opening are recorded.
        let steady = matches!(
            step,
            Step::Write { .. } | Step::Persist { .. } | Step::Sync | Step::SetRoot { .. } | Step::Rollback(_)
        );
        if steady {
            steps.push(step);
        }
    }
    crash(roomy(segment), steps)
}

#[test]
fn random_flipped_bits_drop_nothing_that_was_acknowledged() {
    let flips = std::env::var("DEEPRAM_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(240);
    let (mut errors, mut harmless) = (0, 0);
    // Ten flips for each pool; of every three, one in a batch header or line record, one in any recent write,
    // one anywhere.
    seeds::each(flips / 10, |seed| {
        let mut rng = seeds::rng(seed);
        let crashed = random_life(seed, &mut rng);
        for n in 0..10 {
            let (offset, len) = crashed.writes[rng.random_range(0..crashed.writes.len())];
            let byte = match n % 3 {
                0 => offset + rng.random_range(0..len.min(crashed.shape.segment.bytes() as usize)) as u64,
                1 => offset + rng.random_range(0..len) as u64,
                _ => rng.random_range(0..crashed.image.len()),
            };
            let bit = rng.random_range(0..8);
            let context = format!("flip {n}: bit {bit} of byte {byte:#x}");
            match crashed.open(|device| device.flip_bit(byte, bit), &context) {
                Ok(_) => harmless += 1,
                Err(error) => {
                    crashed.is_told(&error, &context);
                    errors += 1;
                }
            }
        }
    });
    println!("{harmless} flips were harmless or repaired, {errors} were errors");
}
