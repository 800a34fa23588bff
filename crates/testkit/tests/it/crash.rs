//! The images that a power cut leaves of a `FaultyDevice`, against outcomes counted by hand.

use std::collections::BTreeSet;

use deepram_pool::device::{Device, SECTOR};
use deepram_testkit::{AlignedBuf, Crash, FaultyDevice, Image, seeds};
use rand::RngExt;

const PAGE: u64 = 4096;

fn page(value: u8) -> AlignedBuf {
    AlignedBuf::filled(4096, value)
}

/// Returns one letter for each sector; asserts that no sector is itself torn.
fn sectors(image: &Image) -> String {
    image
        .to_vec()
        .chunks(SECTOR)
        .map(|sector| {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "a torn sector");
            match sector[0] {
                0 => '.',
                letter => char::from(letter),
            }
        })
        .collect()
}

#[test]
fn a_write_is_read_back_before_it_is_durable() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    let mut found = page(0);
    device.read(0, &mut found).unwrap();
    assert_eq!(*found, *page(b'a'));
    assert_eq!(sectors(&device.durable_image()), "........");
    assert_eq!(sectors(&device.newest_image()), "aaaaaaaa");
}

#[test]
fn a_flush_makes_every_earlier_write_durable_and_no_later_one() {
    let device = FaultyDevice::new(2 * PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.flush().unwrap();
    device.write(PAGE, &page(b'b')).unwrap();
    assert_eq!(sectors(&device.crash_image(Crash::DropAll)), "aaaaaaaa........");
    for image in device.every_crash() {
        assert!(sectors(&image).starts_with("aaaaaaaa"));
    }
    device.flush().unwrap();
    assert_eq!(device.unflushed_writes(), 0);
    assert_eq!(device.every_crash().total(), 1);
    assert_eq!(sectors(&device.crash_image(Crash::DropAll)), "aaaaaaaabbbbbbbb");
}

#[test]
fn one_unflushed_write_of_eight_sectors_has_every_subset_of_them_as_outcome() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    let every = device.every_crash();
    assert_eq!(every.total(), 256);
    let found: BTreeSet<String> = every.map(|image| sectors(&image)).collect();
    let expected: BTreeSet<String> = (0..256)
        .map(|subset| (0..8).map(|sector| if subset >> sector & 1 == 1 { 'a' } else { '.' }).collect())
        .collect();
    assert_eq!(found, expected);
}

/// Writes two pages, then the second and a third: sectors 8 to 15 are written twice.
fn two_overlapping_writes() -> FaultyDevice {
    let device = FaultyDevice::new(2 * PAGE);
    device.write(0, &AlignedBuf::filled(8192, b'a')).unwrap();
    device.write(PAGE, &page(b'b')).unwrap();
    device
}

#[test]
fn two_unflushed_writes_of_the_same_page_have_three_outcomes_a_sector() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.write(0, &page(b'b')).unwrap();
    let every = device.every_crash();
    assert_eq!(every.total(), 6561); // 3⁸: neither write, the first, or the second
    let found: Vec<String> = every.map(|image| sectors(&image)).collect();
    assert_eq!(found.len(), 6561);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 6561);
    assert!(found.iter().all(|image| image.chars().all(|s| ".ab".contains(s))));
    assert_eq!(found.first().unwrap(), "........");
    assert_eq!(found.last().unwrap(), "bbbbbbbb");
    // The image applies the first write after the second.
    assert!(found.contains(&"aaaaaaaa".to_owned()));
}

#[test]
fn what_does_not_overlap_has_two_outcomes_a_sector_and_what_does_has_three() {
    assert_eq!(two_overlapping_writes().every_crash().total(), 256 * 6561);
}

#[test]
fn each_mode_leaves_what_its_name_says() {
    let device = two_overlapping_writes();
    let image = |crash| sectors(&device.crash_image(crash));
    assert_eq!(image(Crash::DropAll), "................");
    assert_eq!(image(Crash::Prefix(0)), "................");
    assert_eq!(image(Crash::Prefix(1)), "aaaaaaaaaaaaaaaa");
    assert_eq!(image(Crash::Prefix(2)), "aaaaaaaabbbbbbbb");
    assert_eq!(image(Crash::Prefix(99)), "aaaaaaaabbbbbbbb");
    assert_eq!(image(Crash::KeepAll), "aaaaaaaabbbbbbbb");
    assert_eq!(image(Crash::TornLast), "aaaaaaaabbbbaaaa");
}

#[test]
fn the_last_write_tears_at_each_multiple_of_512_bytes_from_either_end() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.flush().unwrap();
    device.write(0, &page(b'b')).unwrap();
    let torn: Vec<String> = device.crash_images(Crash::TornLast).map(|image| sectors(&image)).collect();
    let expected: Vec<String> = (1..8)
        .map(|new| "b".repeat(new) + &"a".repeat(8 - new))
        .chain((1..8).map(|old| "a".repeat(old) + &"b".repeat(8 - old)))
        .collect();
    assert_eq!(torn, expected);
    assert_eq!(device.crash_images(Crash::TornLast).len(), 14);

    // Writes are torn at byte granularity.
    let image = device.crash_images(Crash::TornLast).next().unwrap().to_vec();
    assert_eq!(image[511], b'b');
    assert_eq!(image[512], b'a');
}

#[test]
fn without_unflushed_writes_nothing_tears() {
    let device = FaultyDevice::new(PAGE);
    assert_eq!(device.crash_images(Crash::TornLast).count(), 0);
    assert_eq!(sectors(&device.crash_image(Crash::TornLast)), "........");
    assert_eq!(device.crash_images(Crash::KeepAll).count(), 1);
}

#[test]
fn a_random_crash_reaches_whole_torn_and_reordered_outcomes_and_only_possible_ones() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.write(0, &page(b'b')).unwrap();
    let possible: BTreeSet<String> = device.every_crash().map(|image| sectors(&image)).collect();
    let found: BTreeSet<String> =
        (0..2000).map(|seed| sectors(&device.crash_image(Crash::Random(seed)))).collect();
    assert!(found.is_subset(&possible));
    for whole in ["........", "aaaaaaaa", "bbbbbbbb"] {
        assert!(found.contains(whole), "never {whole}");
    }
    for new in 1..8 {
        let prefix = "b".repeat(new) + &"a".repeat(8 - new);
        let suffix = "a".repeat(new) + &"b".repeat(8 - new);
        assert!(found.contains(&prefix), "never {prefix}");
        assert!(found.contains(&suffix), "never {suffix}");
    }
    assert!(found.len() > 200, "only {} outcomes", found.len());
}

#[test]
fn the_same_seed_leaves_the_same_image() {
    let images = |seed| {
        let device = two_overlapping_writes();
        (device.crash_image(Crash::Random(seed)), device.crash(&mut seeds::rng(seed)))
    };
    for seed in 0..100 {
        let (a, b) = images(seed);
        assert_eq!(a, b);
        assert_eq!(images(seed), (a, b));
    }
    let distinct: BTreeSet<_> = (0..100).map(|seed| images(seed).0.to_vec()).collect();
    assert!(distinct.len() > 20);
}

#[test]
fn a_durable_write_survives_and_says_nothing_about_earlier_ones() {
    let device = FaultyDevice::new(2 * PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.write_durable(PAGE, &page(b'b')).unwrap();
    assert_eq!(device.unflushed_writes(), 1);
    assert_eq!(sectors(&device.crash_image(Crash::DropAll)), "........bbbbbbbb");
    assert_eq!(device.every_crash().total(), 256);
}

#[test]
fn no_reordering_brings_back_what_a_durable_write_replaced() {
    let device = FaultyDevice::new(2 * PAGE);
    device.write(0, &AlignedBuf::filled(8192, b'a')).unwrap();
    device.write_durable(PAGE, &page(b'b')).unwrap();
    assert_eq!(device.every_crash().total(), 256);
    for image in device.every_crash() {
        assert!(sectors(&image).ends_with("bbbbbbbb"));
    }
    for seed in 0..200 {
        let image = device.crash_image(Crash::Random(seed));
        assert!(sectors(&image).ends_with("bbbbbbbb"));
    }
    device.flush().unwrap();
    assert_eq!(sectors(&device.durable_image()), "aaaaaaaabbbbbbbb");
}

#[test]
fn the_power_cut_fails_its_operation_and_everything_after_it() {
    let device = FaultyDevice::new(PAGE);
    device.crash_after(2);
    device.write(0, &page(b'a')).unwrap();
    assert!(!device.is_off());
    let error = device.write(0, &page(b'b')).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Other);
    assert_eq!(error.to_string(), "simulated power cut");
    assert!(device.is_off());
    assert!(device.flush().is_err());
    assert!(device.write_durable(0, &page(b'c')).is_err());
    assert!(device.read(0, &mut page(0)).is_err());
    device.heal();
    assert!(device.flush().is_err());
    assert_eq!(device.ops(), 2);
    // The cut write may have reached the device; later writes cannot have.
    assert_eq!(sectors(&device.crash_image(Crash::KeepAll)), "bbbbbbbb");
    assert_eq!(device.every_crash().total(), 6561);
}

#[test]
fn a_flush_that_is_cut_promises_nothing() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.crash_after(1);
    device.flush().unwrap_err();
    assert_eq!(device.every_crash().total(), 256);
}

#[test]
fn a_durable_write_that_is_cut_is_unflushed_like_any_other() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.crash_after(1);
    device.write_durable(0, &page(b'b')).unwrap_err();
    assert_eq!(device.every_crash().total(), 6561);
}

#[test]
fn the_power_can_be_cut_between_operations() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    device.cut_power();
    assert!(device.read(0, &mut page(0)).is_err());
    assert_eq!(device.ops(), 1);
    assert_eq!(sectors(&device.crash_image(Crash::KeepAll)), "aaaaaaaa");
}

#[test]
fn after_a_failed_flush_no_later_flush_makes_those_writes_durable() {
    let device = FaultyDevice::new(2 * PAGE);
    device.write(0, &AlignedBuf::filled(8192, b'a')).unwrap();
    device.fail_nth(deepram_testkit::Op::Flush, 1, deepram_testkit::Failure::EIO);
    device.flush().unwrap_err();
    device.flush().unwrap();
    assert_eq!(sectors(&device.crash_image(Crash::DropAll)), "................");
    assert_eq!(sectors(&device.crash_image(Crash::KeepAll)), "aaaaaaaaaaaaaaaa");
    // Pages that are written again and flushed are durable.
    device.write(0, &page(b'b')).unwrap();
    device.flush().unwrap();
    assert_eq!(sectors(&device.crash_image(Crash::DropAll)), "bbbbbbbb........");
    assert_eq!(sectors(&device.crash_image(Crash::KeepAll)), "bbbbbbbbaaaaaaaa");
    assert_eq!(device.every_crash().total(), 256);
}

#[test]
fn a_reopened_image_is_durable_and_apart_from_the_device_it_came_from() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(b'a')).unwrap();
    let reopened = FaultyDevice::from_image(device.crash_image(Crash::KeepAll));
    assert_eq!((reopened.ops(), reopened.unflushed_writes()), (0, 0));
    reopened.write(0, &page(b'b')).unwrap();
    reopened.flush().unwrap();
    assert_eq!(sectors(&device.newest_image()), "aaaaaaaa");
    assert_eq!(sectors(&reopened.durable_image()), "bbbbbbbb");

    let from_bytes = FaultyDevice::from_image(vec![b'c'; 4096]);
    assert_eq!(sectors(&from_bytes.durable_image()), "cccccccc");
}

#[test]
fn whatever_is_done_keeping_all_gives_what_reads_saw() {
    seeds::each(300, |seed| {
        let mut rng = seeds::rng(seed);
        let device = FaultyDevice::new(8 * PAGE);
        for step in 0..40_u8 {
            let first = rng.random_range(0..8_u64);
            let pages = rng.random_range(1..=(8 - first).min(3));
            let buf = AlignedBuf::filled((pages * PAGE) as usize, step + 1);
            let offset = first * PAGE;
            let _ = match rng.random_range(0..12) {
                0..6 => device.write(offset, &buf),
                6..8 => device.write_durable(offset, &buf),
                8 => device.flush(),
                9 => {
                    device.fail_nth(deepram_testkit::Op::Flush, 1, std::io::ErrorKind::Other);
                    device.flush()
                }
                10 => {
                    device.short_write(1, rng.random_range(0..8));
                    device.write_durable(offset, &buf)
                }
                _ => {
                    let at = rng.random_range(0..8 * PAGE - 100);
                    device.overwrite(at, &[step; 100]);
                    Ok(())
                }
            };
            assert_eq!(device.crash_image(Crash::KeepAll), device.newest_image());
            assert_eq!(device.crash_image(Crash::DropAll), device.durable_image());
        }
    });
}

#[test]
fn thousands_of_crash_images_of_a_large_device_are_cheap() {
    let device = FaultyDevice::new(64 << 20);
    let megabyte = AlignedBuf::filled(1 << 20, b'a');
    for at in 0..64 {
        device.write(at << 20, &megabyte).unwrap();
    }
    device.flush().unwrap();
    for at in 0..16 {
        device.write(at * 4 * PAGE, &page(b'b')).unwrap();
    }
    let started = std::time::Instant::now();
    let images: Vec<Image> = (0..5000).map(|seed| device.crash_image(Crash::Random(seed))).collect();
    // All images at once would take 320 GB if they shared no memory.
    assert_eq!(images.len(), 5000);
    // The loop takes well under a second; the bound only tells sharing from copying.
    assert!(started.elapsed().as_secs() < 30);
}
