//! Devices and file systems that run full: the operation that needs space fails and reports the space it
//! needed and the space available, all other operations succeed, and no synced data is lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::rig::{Shape, devices};
use crate::common::step::{Runner, Step, Stopped};
use crate::common::survive::{assert_sound, images, reopen};
use crate::common::{MIB, PAGE, SIZES};
use deepram_core::SegmentSize;
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Permissions, Pool, PoolError};
use deepram_testkit::{Crash, seeds};
use rand::RngExt;

use Lifetime::Permanent;

/// A pool whose memory far exceeds its flash.
fn cramped(segment: SegmentSize) -> Shape {
    let flash = Some(MIB + 40 * 64 * segment.bytes());
    Shape { pages: 40 * 64 * segment.bytes() / PAGE * 2, flash, dram: 24 * MIB, ..Shape::small(segment) }
}

fn alloc(pages: u64) -> Step {
    Step::Alloc { controller: 0, pages, lifetime: Permanent }
}

fn start(shape: Shape) -> Runner {
    let (images, world) = shape.create();
    let all = devices(&images);
    let pool = shape.open(&all).unwrap();
    let mut runner = Runner::with(shape, all, pool, world);
    runner.world.kept = 1;
    runner
}

/// Writes whole pages, each with its own byte, until the device is full. Returns the error and the number of
/// pages written.
fn fill(runner: &mut Runner, value: u8, sync_every: usize) -> (PoolError, usize) {
    let pages = runner.world.now.pages.len();
    for page in 0..pages {
        let step = Step::Write { page, at: 0, len: PAGE as usize, value: value.wrapping_add(page as u8) };
        if let Err(Stopped(error)) = runner.step(&step) {
            runner.settle();
            return (error, page);
        }
        if page % sync_every == sync_every - 1
            && let Err(Stopped(error)) = runner.step(&Step::Sync)
        {
            return (error, page);
        }
    }
    panic!("{pages} pages fit: the device should be smaller than the memory");
}

fn assert_no_space(error: &PoolError) {
    let PoolError::NoSpace { needed, available, .. } = error else { panic!("{error}") };
    assert!(needed > available, "{error}");
    let text = error.to_string();
    assert!(text.contains(&needed.to_string()) && text.contains(&available.to_string()), "{text}");
}

fn verify(runner: &Runner, when: &str) {
    runner.world.verify(runner.pool()).unwrap_or_else(|what| panic!("{when}: {what}"));
    assert_sound(runner.pool(), when);
}

#[test]
fn a_full_device_refuses_writes_reads_on_and_works_again_after_freeing() {
    for segment in SIZES {
        for sync_every in [1, 5, 1000] {
            let mut runner = start(cramped(segment));
            let pages = runner.shape.pages;
            runner.step(&alloc(pages)).unwrap();
            runner.step(&Step::Sync).unwrap();
            let (error, _) = fill(&mut runner, 1, sync_every);
            assert_no_space(&error);
            verify(&runner, "full");
            // Every admitted write can be synced.
            runner.step(&Step::Sync).unwrap_or_else(|Stopped(e)| panic!("{segment:?}, {sync_every}: {e}"));
            verify(&runner, "full and synced");
            for _ in 0..40 {
                runner.step(&Step::Free(0)).unwrap();
            }
            runner.step(&Step::Sync).unwrap();
            for page in 0..10 {
                runner.step(&Step::Write { page, at: 100, len: 50_000, value: 9 }).unwrap();
            }
            runner.step(&Step::Sync).unwrap();
            verify(&runner, "after freeing");
            let shape = runner.shape;
            let (gone, worlds) = runner.cut();
            let (pool, _) = reopen(&shape, &devices(&images(&gone, Crash::DropAll)), &worlds, "reopened");
            assert_sound(&pool, "reopened");
        }
    }
}

#[test]
fn a_full_device_survives_a_crash_and_opens_full_again() {
    for segment in SIZES {
        let mut runner = start(cramped(segment));
        let pages = runner.shape.pages;
        runner.step(&alloc(pages)).unwrap();
        let (error, _) = fill(&mut runner, 1, 3);
        assert_no_space(&error);
        let shape = runner.shape;
        let (mut gone, mut worlds) = runner.cut();
        for round in 0..12 {
            let context = format!("{segment:?}, round {round}");
            let all = devices(&images(&gone, Crash::DropAll));
            let (pool, world) = reopen(&shape, &all, &worlds, &context);
            let mut runner = Runner::with(shape, all, pool, world);
            // Fills the space that the previous life left.
            let (error, _) = fill(&mut runner, round, 2);
            assert_no_space(&error);
            (gone, worlds) = runner.cut();
        }
        let all = devices(&images(&gone, Crash::DropAll));
        let (pool, world) = reopen(&shape, &all, &worlds, "last");
        let mut runner = Runner::with(shape, all, pool, world);
        for _ in 0..40 {
            runner.step(&Step::Free(0)).unwrap();
        }
        runner.step(&Step::Sync).unwrap();
        runner.step(&Step::Write { page: 0, at: 0, len: 60_000, value: 3 }).unwrap();
        runner.step(&Step::Sync).unwrap();
        verify(&runner, "after it all");
    }
}

#[test]
fn older_tokens_give_way_before_a_write_fails() {
    for segment in SIZES {
        let blocks = 40;
        let flash = Some(MIB + blocks * 64 * segment.bytes());
        // Memory is a third of the flash, and the pool is asked to keep every token.
        let pages = blocks * 64 * segment.bytes() / PAGE / 3;
        let mut runner = start(Shape { pages, flash, keep: 1000, dram: 24 * MIB, ..Shape::small(segment) });
        runner.step(&alloc(pages)).unwrap();
        let mut rng = seeds::rng(1);
        for round in 0..60 {
            for _ in 0..pages / 2 {
                let page = rng.random_range(0..pages as usize);
                runner
                    .step(&Step::Write { page, at: 0, len: PAGE as usize, value: round })
                    .unwrap_or_else(|Stopped(e)| panic!("{segment:?}, round {round}: {e}"));
            }
            runner.step(&Step::Sync).unwrap_or_else(|Stopped(e)| panic!("{segment:?}, round {round}: {e}"));
        }
        let kept = runner.pool().history().unwrap().len();
        assert!((2..60).contains(&kept), "{kept} tokens are left of 61");
        verify(&runner, "tokens given way");
    }
}

#[test]
fn a_rollback_and_a_dropped_token_make_room() {
    for segment in SIZES {
        let mut runner = start(Shape { keep: 50, ..cramped(segment) });
        let pages = runner.shape.pages;
        runner.step(&alloc(pages)).unwrap();
        runner.step(&Step::Sync).unwrap();
        let token = runner.pool().history().unwrap().last().unwrap().token;
        let (error, _) = fill(&mut runner, 1, 1000);
        assert_no_space(&error);
        runner.pool().rollback(token).unwrap();
        runner.world.rollback(token.0);
        verify(&runner, "rolled back");
        for page in 0..10 {
            runner.step(&Step::Write { page, at: 0, len: PAGE as usize, value: 4 }).unwrap();
        }
        runner.step(&Step::Sync).unwrap();
        verify(&runner, "written again");
    }
}

#[test]
fn the_flash_that_a_pool_chooses_lets_all_memory_be_rewritten_between_two_syncs() {
    for segment in SIZES {
        for pages in [1, 2, 5, 13, 40, 100] {
            let shape = Shape { pages, flash: None, keep: 4, dram: 24 * MIB, ..Shape::small(segment) };
            let mut runner = start(shape);
            runner.step(&alloc(pages)).unwrap();
            for round in 0..6 {
                for page in 0..pages as usize {
                    let step = Step::Write { page, at: 0, len: PAGE as usize, value: round };
                    let told = |Stopped(e)| panic!("{segment:?}, {pages} pages, round {round}: {e}");
                    runner.step(&step).unwrap_or_else(told);
                }
                let told = |Stopped(e)| panic!("{segment:?}, {pages} pages, sync {round}: {e}");
                runner.step(&Step::Sync).unwrap_or_else(told);
            }
            verify(&runner, "rewritten");
        }
    }
}

#[test]
fn memory_is_rewritten_again_and_again_between_two_syncs() {
    for segment in SIZES {
        // More segments than may be dirty at once, so that segments are written back and become dirty again
        // within one epoch.
        let pages = 24 * MIB / PAGE;
        let shape = Shape { pages, flash: None, keep: 4, dram: 24 * MIB, ..Shape::small(segment) };
        let mut runner = start(shape);
        runner.step(&alloc(pages)).unwrap();
        let mut rewrite = |rounds: std::ops::Range<u8>| {
            for (round, page) in rounds.flat_map(|round| (0..pages as usize).map(move |page| (round, page))) {
                let step = Step::Write { page, at: 0, len: PAGE as usize, value: round };
                let told = |Stopped(e)| panic!("{segment:?}, round {round}, page {page}: {e}");
                runner.step(&step).unwrap_or_else(told);
            }
            runner.step(&Step::Sync).unwrap_or_else(|Stopped(e)| panic!("{segment:?}: {e}"));
        };
        rewrite(0..1);
        rewrite(1..6);
        assert!(runner.pool().history().unwrap().len() >= 2, "the previous token must stay");
        verify(&runner, "rewritten");
    }
}

#[test]
fn scattered_small_writes_fill_a_device_without_wedging_it() {
    for segment in SIZES {
        let mut runner = start(cramped(segment));
        let pages = runner.shape.pages;
        runner.step(&alloc(pages)).unwrap();
        runner.step(&Step::Sync).unwrap();
        let mut rng = seeds::rng(5);
        let mut full = 0;
        for _ in 0..3000 {
            let pages = runner.world.now.pages.len();
            let (page, at) = (rng.random_range(0..pages), rng.random_range(0..PAGE / 8) * 8);
            let write = Step::Write { page, at, len: 8, value: rng.random() };
            let step = if rng.random_ratio(1, 4) { Step::Sync } else { write };
            match runner.step(&step) {
                Ok(()) => {}
                Err(Stopped(error)) => {
                    runner.settle();
                    assert_no_space(&error);
                    full += 1;
                    for _ in 0..2 {
                        runner.step(&Step::Free(0)).unwrap();
                    }
                }
            }
        }
        runner.step(&Step::Sync).unwrap();
        verify(&runner, "scattered");
        assert!(segment != SegmentSize::K16 || full > 0, "the device never ran full");
    }
}

#[test]
fn metadata_that_fills_several_headers_goes_before_what_reclamation_moves() {
    // Permission changes write no data, so all of their metadata is pending when the next write has to
    // reclaim.
    for segment in SIZES {
        let mut runner = start(cramped(segment));
        let pages = runner.shape.pages * 2 / 5;
        runner.step(&alloc(pages)).unwrap();
        let changes = 2 * segment.bytes() as usize / 9;
        let mut rng = seeds::rng(11);
        for round in 0..12 {
            let told = |Stopped(e): Stopped| panic!("{segment:?}, round {round}: {e}");
            for _ in 0..changes {
                let permissions = Permissions::read_write(Permanent);
                let page = rng.random_range(0..pages as usize);
                runner.step(&Step::Perms { page, permissions }).unwrap_or_else(told);
            }
            for _ in 0..pages / 4 {
                let page = rng.random_range(0..pages as usize);
                let step = Step::Write { page, at: 0, len: PAGE as usize / 2, value: round };
                runner.step(&step).unwrap_or_else(told);
            }
            runner.step(&Step::Sync).unwrap_or_else(told);
        }
        assert!(runner.pool().stats().blocks_reclaimed > 0, "nothing had to be reclaimed");
        verify(&runner, "reclaimed");
        let shape = runner.shape;
        let (gone, worlds) = runner.cut();
        reopen(&shape, &devices(&images(&gone, Crash::DropAll)), &worlds, "reopened");
    }
}

#[test]
fn a_device_that_gives_out_before_its_size_fails_the_sync_and_loses_nothing() {
    // A sparse file on a full file system: writes fail though the device is long enough.
    let mut runner = start(Shape { pages: 40, flash: Some(32 * MIB), ..Shape::small(SegmentSize::K4) });
    runner.step(&alloc(40)).unwrap();
    runner.step(&Step::Write { page: 1, at: 0, len: 60_000, value: 1 }).unwrap();
    runner.step(&Step::Sync).unwrap();
    runner.devices[0].limit_space(runner.devices[0].used_space() + 100_000);
    for page in 0..8 {
        runner.step(&Step::Write { page, at: 0, len: 60_000, value: 2 }).unwrap();
    }
    for _ in 0..3 {
        let Err(Stopped(PoolError::Device { source, .. })) = runner.step(&Step::Sync) else {
            panic!("the sync should fail: there is no space for it")
        };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        verify(&runner, "refused");
    }
    runner.devices[0].allow_more(100 * MIB);
    runner.step(&Step::Sync).unwrap();
    verify(&runner, "synced in the end");
    let shape = runner.shape;
    let (gone, worlds) = runner.cut();
    reopen(&shape, &devices(&images(&gone, Crash::DropAll)), &worlds, "reopened");
}

/// A small file system for one test, where the test may mount one.
struct SmallFs(PathBuf);

impl SmallFs {
    fn mount(mib: u64) -> Option<(Self, tempfile::TempDir)> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).ok()?;
        let size = format!("size={mib}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "deepram-test"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| (Self(folder.path().to_owned()), folder))
    }
}

impl Drop for SmallFs {
    fn drop(&mut self) {
        // If unmounting fails, the temporary folder stays and shows the failure.
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn creating_a_pool_on_a_full_file_system_says_so_and_leaves_no_file() {
    let Some((fs, _folder)) = SmallFs::mount(24) else {
        eprintln!("skipped: mounting a small tmpfs needs root");
        return;
    };
    let (one, two) = (fs.0.join("one.pool"), fs.0.join("two.pool"));
    let error = Pool::create(&[&one], &CreateOptions::new(64 * MIB)).unwrap_err();
    assert_no_space(&error);
    assert_eq!(files(&fs.0), 0);
    // The second of two devices does not fit: neither file remains.
    let error = Pool::create(&[&one, &two], &CreateOptions::new(4 * MIB)).unwrap_err();
    assert_no_space(&error);
    assert_eq!(files(&fs.0), 0);
    Pool::create(&[&one], &CreateOptions::new(4 * MIB)).unwrap();
    let pool = Pool::open(&[&one], &OpenOptions::new(16 * MIB).mapping(Mapping::Off)).unwrap();
    let addr = pool.alloc(PAGE, Permanent).unwrap();
    // The rest of the file system fills up; the pool's space is already allocated.
    let rest = vec![1; 24 << 20];
    assert!(std::fs::write(fs.0.join("filler"), &rest).is_err());
    pool.write(addr, &[5; 1000]).unwrap();
    pool.sync().unwrap();
    pool.close().unwrap();
}

#[test]
fn a_device_shorter_than_the_pool_is_refused_before_anything_is_written() {
    let shape = Shape::small(SegmentSize::K4);
    let device = deepram_testkit::FaultyDevice::new(2 * MIB);
    let error = Pool::create_on(crate::common::rig::handles(std::slice::from_ref(&device)), &shape.options());
    assert_no_space(&error.unwrap_err());
    assert_eq!(device.ops(), 0);
}
