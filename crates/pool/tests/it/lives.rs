//! The numbers that distinguish one life of a pool from another, and one header from the previous one.
//! `pool-format.md` describes them.

use std::collections::BTreeMap;

use crate::common::rig::{Shape, devices};
use crate::common::step::{Runner, Step};
use crate::common::{MIB, SIZES};
use deepram_pool::Lifetime;
use deepram_testkit::{Failure, FaultyDevice, Image, Op};

fn number(image: &Image, at: u64, bytes: usize) -> u64 {
    let mut field = [0; 8];
    image.read(at, &mut field[..bytes]);
    u64::from_le_bytes(field)
}

/// Generation and incarnation of both header copies.
fn headers(device: &FaultyDevice) -> [(u64, u64); 2] {
    let image = device.newest_image();
    [0, 512 << 10].map(|at| (number(&image, at + 16, 8), number(&image, at + 72, 4)))
}

/// Sequence of the block, block number and batch number of every batch header in the device's blocks.
fn batches(device: &FaultyDevice, segment: u64) -> Vec<(u64, u64, u64)> {
    let image = device.newest_image();
    let slots = (MIB..image.len()).step_by(segment as usize);
    let headers = slots.filter(|&at| number(&image, at, 4) == u64::from(u32::from_le_bytes(*b"DRB1")));
    headers
        .map(|at| (number(&image, at + 36, 8), number(&image, at + 28, 4), number(&image, at + 20, 8)))
        .collect()
}

#[test]
fn each_opening_raises_the_incarnation_and_each_header_the_generation() {
    for segment in SIZES {
        let shape = Shape::small(segment);
        let (images, world) = shape.create();
        let all = devices(&images);
        let newest = |device: &FaultyDevice| headers(device).into_iter().max().unwrap();
        let mut last = newest(&all[0]);
        assert!(last.0 > 0 && last.1 > 0, "{last:?}");
        let pool = shape.open(&all).unwrap();
        let mut runner = Runner::with(shape, all, pool, world);
        runner.step(&Step::Alloc { controller: 0, pages: 2, lifetime: Lifetime::Permanent }).unwrap();
        // By sequence: the life and the block that used it.
        let mut used: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
        for life in 0..6 {
            let opened = newest(&runner.devices[0]);
            assert_eq!(opened.1, last.1 + 1, "{segment:?}, life {life}: the incarnation");
            assert!(opened.0 > last.0, "{segment:?}, life {life}: the generation {opened:?} after {last:?}");
            let known: Vec<_> = batches(&runner.devices[0], segment.bytes());
            for round in 0..4 {
                let before = newest(&runner.devices[0]).0;
                let step = Step::Write { page: 0, at: round * 9000, len: 9000, value: life as u8 };
                runner.step(&step).unwrap();
                runner.step(&Step::Sync).unwrap();
                runner.step(&Step::Compact).unwrap();
                let [first, second] = headers(&runner.devices[0]);
                assert!(first.0.max(second.0) > before, "{segment:?}, life {life}: {first:?}, {second:?}");
            }
            for (sequence, block, seq) in batches(&runner.devices[0], segment.bytes()) {
                if !known.contains(&(sequence, block, seq)) {
                    let owner = used.entry(sequence).or_insert((life, block));
                    assert_eq!(*owner, (life, block), "{segment:?}: sequence {sequence:#x} is used again");
                }
            }
            last = newest(&runner.devices[0]);
            runner.step(&if life % 2 == 0 { Step::Abandon } else { Step::Close }).unwrap();
        }
    }
}

#[test]
fn a_header_is_never_written_over_the_one_that_counts() {
    const PLACES: [u64; 2] = [0, 512 << 10];
    let mut alone = 0;
    for more in 0..2 {
        for n in 1..8 {
            let shape = Shape::small(SIZES[0]);
            let (images, world) = shape.create();
            let all = devices(&images);
            let pool = shape.open(&all).unwrap();
            let mut runner = Runner::with(shape, all, pool, world);
            for step in [Step::Alloc { controller: 0, pages: 1, lifetime: Lifetime::Permanent }, Step::Sync] {
                runner.step(&step).unwrap();
            }
            (0..more).for_each(|_| runner.step(&Step::Compact).unwrap());
            let device = runner.devices[0].clone();
            device.fail_nth(Op::Write, n, Failure::EIO);
            // A failed write of the second copy is not reported.
            let _ = runner.step(&Step::Compact);
            device.heal();
            let [first, second] = headers(&device).map(|(generation, _)| generation);
            if first == second {
                continue;
            }
            alone += 1;
            device.record_writes(true);
            runner.step(&Step::Compact).unwrap();
            let written = device.take_writes().into_iter().find(|(at, _)| PLACES.contains(at)).unwrap();
            let older = PLACES[usize::from(second < first)];
            assert_eq!(written.0, older, "write {n} failed, generations {first} and {second}");
        }
    }
    assert!(alone > 1, "no write that failed left one copy behind the other");
}
