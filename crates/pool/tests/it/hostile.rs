//! Files that are not a pool, are incomplete, or are made to do harm: opening one returns an error that names
//! the problem, and has no other effect.

#[path = "../../../../fuzz/harness.rs"]
mod harness;

use std::sync::OnceLock;

use crate::common::rig::{Shape, devices, handles};
use crate::common::{MIB, PAGE, SIZES};
use crate::own_process::in_own_process;
use deepram_core::SegmentSize;
use deepram_pool::fuzzing::{self, ChecksumKind};
use deepram_pool::{FORMAT_VERSION, Inspection, Lifetime, Mapping, OpenOptions, Pool, PoolError};
use deepram_testkit::{FaultyDevice, Image, seeds};
use proptest::prelude::*;
use rand::{Rng, RngExt};

const SECOND_HEADER: usize = 512 * 1024;

/// Returns the error of opening; checks that inspecting gives the same error.
fn refused(shape: &Shape, images: &[Image], context: &str) -> PoolError {
    let inspected = Inspection::of(handles(&devices(images))).err();
    let inspected = inspected.unwrap_or_else(|| panic!("{context}: inspection accepted it as a pool"));
    let opened = shape.open(&devices(images)).err().unwrap_or_else(|| panic!("{context}: opening succeeded"));
    assert_eq!(opened.to_string(), inspected.to_string(), "{context}");
    opened
}

fn one_pool(shape: &Shape) -> Image {
    let (images, _) = shape.create();
    let all = devices(&images);
    let pool = shape.open(&all).unwrap();
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    pool.write(addr, &[1; 30_000]).unwrap();
    pool.close().unwrap();
    all[0].newest_image()
}

#[test]
fn a_file_that_is_no_pool_is_called_that() {
    let shape = Shape::small(SegmentSize::K4);
    let mut random = vec![0; 2 << 20];
    seeds::rng(1).fill_bytes(&mut random);
    let text = b"not a pool\n".repeat(100_000)[..1 << 20].to_vec();
    for bytes in [vec![], vec![0; 4096], vec![0; 3 << 20], random, text] {
        let len = bytes.len();
        let error = refused(&shape, &[Image::from(bytes)], "foreign");
        let PoolError::NotAPool { .. } = error else { panic!("{len} bytes: {error}") };
        assert!(error.to_string().contains("pool create"), "{error}");
    }
}

#[test]
fn files_on_a_file_system_are_refused_the_same_way() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
    let (empty, odd, none) =
        (folder.path().join("empty"), folder.path().join("odd"), folder.path().join("none"));
    std::fs::write(&empty, []).unwrap();
    std::fs::write(&odd, b"seven b").unwrap();
    for path in [&empty, &odd] {
        let error = Pool::open(&[path], &options).err().unwrap();
        assert!(matches!(error, PoolError::NotAPool { .. }), "{error}");
    }
    for path in [folder.path(), none.as_path()] {
        let error = Pool::open(&[path], &options).err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, PoolError::Device { .. }), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
}

#[test]
fn a_pool_cut_short_anywhere_is_called_truncated() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        let whole = one_pool(&shape).to_vec();
        let lens = (0..whole.len()).step_by(256 * 1024).chain((0..64).map(|n| n * 4096));
        for len in lens.chain([whole.len() - 4096]) {
            let len = len / 4096 * 4096;
            let error = refused(&shape, &[Image::from(whole[..len].to_vec())], "cut short");
            match error {
                PoolError::NotAPool { .. } if len < 4096 => {}
                PoolError::Truncated { needed, have, .. } => {
                    assert_eq!((needed.0, have.0), (whole.len() as u64, len as u64), "{error}");
                }
                other => panic!("{segment:?}, {len} bytes: {other}"),
            }
        }
    }
}

#[test]
fn a_pool_of_a_later_format_is_left_to_a_later_deepram() {
    let shape = Shape::small(SegmentSize::K4);
    let mut image = one_pool(&shape);
    let sites = fuzzing::sites(&image.to_vec()).unwrap();
    for (n, site) in sites.iter().filter(|site| site.kind == ChecksumKind::Header).enumerate() {
        let start = site.ranges[0].start;
        image.write(start as u64 + 8, &(FORMAT_VERSION + 7).to_le_bytes());
        let bytes = image.to_vec();
        let sum = fuzzing::checksum(site, &|range| bytes[range].to_vec());
        image.write(site.checksum_at[0] as u64, &sum.to_le_bytes());
        // One copy of a newer version is enough to refuse the pool: a newer program wrote it.
        let error = refused(&shape, &[image.clone()], "future");
        let PoolError::FutureVersion { found, known, .. } = error else { panic!("copy {n}: {error}") };
        assert_eq!((found, known), (FORMAT_VERSION + 7, FORMAT_VERSION));
    }
}

#[test]
fn devices_of_different_pools_or_twice_the_same_do_not_make_one() {
    let shape = Shape { controllers: 2, ..Shape::small(SegmentSize::K4) };
    let (mine, _) = shape.create();
    let (other, _) = shape.create();
    let alone = Shape { controllers: 1, ..shape };
    let cases: [(&[Image], &str); 4] = [
        (&[mine[0].clone(), other[1].clone()], "different pools"),
        (&[mine[0].clone(), mine[0].clone()], "given twice"),
        (&[mine[1].clone()], "missing"),
        (&[mine[0].clone()], "2 devices, 1"),
    ];
    for (images, says) in cases {
        let error = refused(&alone, images, says);
        assert!(matches!(error, PoolError::Mismatch(_)) && error.to_string().contains(says), "{error}");
    }
    assert!(matches!(Pool::open_on(vec![], &shape.open_options()), Err(PoolError::Mismatch(_))));
}

#[test]
fn a_header_copied_onto_another_pool_does_not_open_its_data() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        let (mine, other) = (one_pool(&shape).to_vec(), one_pool(&shape).to_vec());
        let mut mixed = mine.clone();
        for start in [0, SECOND_HEADER] {
            mixed[start..start + 4096].copy_from_slice(&other[start..start + 4096]);
        }
        // The root record is the first structure found wrong, unless both pools' root records happen to be
        // equal.
        match shape.open(&devices(&[Image::from(mixed)])) {
            Err(PoolError::DamagedPool { .. }) => {}
            Ok(pool) => {
                let report = pool.check(&mut |_, _| {}).unwrap();
                assert!(!report.is_sound(), "the batches carry another pool's identity");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_damaged_header_or_root_record_says_which_it_is() {
    let shape = Shape::small(SegmentSize::K4);
    let mut bytes = one_pool(&shape).to_vec();
    for start in [0, SECOND_HEADER] {
        bytes[start + 100] ^= 1;
    }
    let error = refused(&shape, &[Image::from(bytes)], "headers");
    assert!(matches!(error, PoolError::DamagedPool { what: "the pool header", .. }), "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
}

static BASES: OnceLock<Vec<harness::Base>> = OnceLock::new();

fn bases() -> &'static [harness::Base] {
    // The limit ends the test if a hostile file makes the pool allocate memory without bound. Each test that
    // calls this function runs in its own process.
    BASES.get_or_init(|| {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = Rlimit { current: Some(6 << 30), maximum: getrlimit(Resource::As).maximum };
        setrlimit(Resource::As, limit).expect("lowering a limit");
        harness::bases()
    })
}

#[test]
fn a_pool_made_to_do_harm_is_opened_or_refused() {
    in_own_process!();
    let cases = ProptestConfig::default().cases.max(1500);
    proptest!(ProptestConfig { cases, ..ProptestConfig::default() }, |(input in prop::collection::vec(any::<u8>(), 1..120))| {
        harness::run(bases(), &input);
    });
}

#[test]
fn every_awkward_number_in_every_field_is_survived() {
    in_own_process!();
    // The fields of headers, root record and first batches one by one: their structures are dense
    // enough that single fields matter most.
    let bases = bases();
    let mut opened = 0;
    for base in 0..bases.len() as u8 {
        for (kind, end) in [(0_u8, 96), (1, 256), (3, 120), (4, 120)] {
            for at in (0..end as u16).step_by(2) {
                let how = [40_u8, 60, 80][usize::from(at) / 2 % 3];
                let [low, high] = at.to_le_bytes();
                opened += u32::from(harness::run(
                    bases,
                    &[base, kind, 0, 0, how, low, high, (at % 12) as u8, 0, 0],
                ));
            }
        }
    }
    assert!(opened > 0);
}

#[test]
fn an_image_left_alone_opens() {
    in_own_process!();
    seeds::each(4, |seed| {
        let base = &bases()[seed as usize % bases().len()];
        assert!(base.sites.len() > 10);
        let mut rng = seeds::rng(seed);
        // Changes whose checksums are not recomputed are damage: opening returns an error or survives it.
        let mut input = vec![seed as u8, rng.random(), rng.random(), rng.random()];
        input.extend([rng.random(), 0, 0, 0, 1]);
        harness::run(bases(), &input);
        let device = FaultyDevice::from_image(base.image.clone());
        let report = Inspection::of(handles(std::slice::from_ref(&device))).unwrap();
        assert!(report.check(&mut |_, _| {}).unwrap().is_sound());
    });
}
