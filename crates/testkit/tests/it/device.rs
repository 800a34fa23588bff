//! The injected faults, the checks and the counts of a `FaultyDevice`.

use std::io::ErrorKind;

use deepram_pool::device::Device;
use deepram_testkit::{AlignedBuf, Crash, Failure, FaultyDevice, Image, Op, Stats};

const PAGE: u64 = 4096;

fn page(value: u8) -> AlignedBuf {
    AlignedBuf::filled(4096, value)
}

fn byte(device: &FaultyDevice, offset: u64) -> u8 {
    let mut found = page(0);
    device.read(offset / PAGE * PAGE, &mut found).unwrap();
    found[(offset % PAGE) as usize]
}

#[test]
fn only_the_nth_operation_of_its_kind_fails() {
    let device = FaultyDevice::new(PAGE);
    device.fail_nth(Op::Write, 2, Failure::EIO);
    device.fail_nth(Op::Read, 1, ErrorKind::TimedOut);
    device.write(0, &page(1)).unwrap();
    let error = device.write_durable(0, &page(2)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    device.write(0, &page(3)).unwrap();
    let error = device.read(0, &mut page(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(byte(&device, 0), 3);
    assert_eq!(device.unflushed_writes(), 2);
}

#[test]
fn a_lasting_failure_lasts_until_healed() {
    let device = FaultyDevice::new(PAGE);
    device.fail_from(Op::Flush, 2, ErrorKind::StorageFull);
    device.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(device.flush().unwrap_err().kind(), ErrorKind::StorageFull);
    }
    device.heal();
    device.flush().unwrap();
    assert_eq!(device.ops(), 5);
}

#[test]
fn healing_calls_off_a_power_cut_to_come() {
    let device = FaultyDevice::new(PAGE);
    device.crash_after(1);
    device.heal();
    device.flush().unwrap();
}

#[test]
fn a_short_write_leaves_its_leading_sectors() {
    let device = FaultyDevice::new(PAGE);
    device.short_write(1, 3);
    let error = device.write_durable(0, &page(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WriteZero);
    assert_eq!(byte(&device, 3 * 512 - 1), 1);
    assert_eq!(byte(&device, 3 * 512), 0);
    assert_eq!(device.every_crash().total(), 8);
    device.flush().unwrap();
    assert_eq!(device.every_crash().total(), 1);
    device.write(0, &page(1)).unwrap();
}

#[test]
fn a_full_device_takes_only_pages_that_it_already_holds_until_allowed_more() {
    let device = FaultyDevice::new(8 * PAGE);
    device.limit_space(2 * PAGE);
    device.write(0, &page(1)).unwrap();
    device.write(7 * PAGE, &page(1)).unwrap();
    assert_eq!(device.used_space(), 2 * PAGE);
    let error = device.write(PAGE, &page(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    device.write(0, &page(2)).unwrap();
    device.allow_more(PAGE);
    // Pages 6 and 7 need one new page of space. Pages 3 and 4 need two, and none is left.
    device.write(6 * PAGE, &AlignedBuf::filled(8192, 3)).unwrap();
    device.write(3 * PAGE, &AlignedBuf::filled(8192, 3)).unwrap_err();
    device.allow_more(PAGE);
    device.write(3 * PAGE, &AlignedBuf::filled(8192, 4)).unwrap_err();
    assert_eq!((byte(&device, 3 * PAGE), byte(&device, 4 * PAGE)), (4, 0));
    assert_eq!(device.used_space(), 4 * PAGE);
    device.allow_more(u64::MAX);
    device.write(3 * PAGE, &AlignedBuf::filled(8192, 5)).unwrap();
    assert_eq!(byte(&device, 4 * PAGE), 5);
}

#[test]
fn a_reopened_device_counts_the_space_it_holds() {
    let mut image = Image::new(4 * PAGE);
    image.write(PAGE, &[0]);
    let device = FaultyDevice::from_image(image);
    device.limit_space(PAGE);
    device.write(PAGE, &page(1)).unwrap();
    assert_eq!(device.write(0, &page(1)).unwrap_err().kind(), ErrorKind::StorageFull);
}

#[test]
fn a_flipped_bit_stays_until_it_is_written_again() {
    let device = FaultyDevice::new(PAGE);
    device.flip_bit(100, 7);
    assert_eq!((byte(&device, 99), byte(&device, 100), byte(&device, 101)), (0, 0x80, 0));
    device.heal();
    assert_eq!(device.crash_image(Crash::DropAll).to_vec()[100], 0x80);
    device.write(0, &page(1)).unwrap();
    assert_eq!(byte(&device, 100), 1);
    // Damage under an unflushed write becomes visible only if that write is lost.
    device.flip_bit(100, 0);
    assert_eq!(byte(&device, 100), 1);
    assert_eq!(device.crash_image(Crash::DropAll).to_vec()[100], 0x81);
    device.flush().unwrap();
    assert_eq!(device.durable_image().to_vec(), *page(1));
}

#[test]
fn a_bit_flipped_on_the_way_is_right_on_the_device() {
    let device = FaultyDevice::new(2 * PAGE);
    device.flip_reads(PAGE + 5, 0);
    device.flip_reads(PAGE + 5, 1);
    assert_eq!((byte(&device, 5), byte(&device, PAGE + 5)), (0, 3));
    assert_eq!(device.durable_image(), Image::new(2 * PAGE));
    device.heal();
    assert_eq!(byte(&device, PAGE + 5), 0);
}

#[test]
fn damage_survives_a_crash_and_leaves_the_rest_as_it_was() {
    let device = FaultyDevice::new(PAGE);
    device.write(0, &page(1)).unwrap();
    device.overwrite(510, &[9; 4]);
    assert_eq!(device.ops(), 1);
    assert_eq!([509, 510, 513, 514].map(|at| byte(&device, at)), [1, 9, 9, 1]);
    // Sectors 0 and 1 are settled; the six others stay unflushed.
    assert_eq!(device.every_crash().total(), 64);
    for image in device.every_crash() {
        assert_eq!(image.to_vec()[509..515], [1, 9, 9, 9, 9, 1]);
    }
}

#[test]
fn what_is_not_aligned_or_not_inside_is_refused_and_is_no_operation() {
    let device = FaultyDevice::new(2 * PAGE);
    let two = AlignedBuf::zeroed(8192);
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(device.write(512, &page(1))), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(0, &page(1)[..512])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(0, &two[8..4104])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.read(512, &mut page(0))), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(PAGE, &two)), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(u64::MAX - 4095, &two)), ErrorKind::InvalidInput);
    assert_eq!(kind(device.read(PAGE, &mut two.clone())), ErrorKind::UnexpectedEof);
    assert_eq!((device.ops(), device.stats()), (0, Stats::default()));

    device.allow_any_buffer();
    device.write(0, &two[8..4104]).unwrap();
    assert_eq!(kind(device.write(512, &page(1))), ErrorKind::InvalidInput);
}

#[test]
fn the_counts_are_of_what_succeeded_and_the_record_of_what_was_tried() {
    let device = FaultyDevice::new(4 * PAGE);
    device.write(0, &page(1)).unwrap();
    device.record_writes(true);
    device.write(PAGE, &AlignedBuf::zeroed(8192)).unwrap();
    device.write_durable(0, &page(1)).unwrap();
    device.fail_nth(Op::Write, 1, Failure::ENOSPC);
    device.write(3 * PAGE, &page(1)).unwrap_err();
    device.record_writes(false);
    device.write(0, &page(1)).unwrap();
    device.flush().unwrap();
    device.read(0, &mut AlignedBuf::zeroed(8192)).unwrap();
    assert_eq!(
        device.stats(),
        Stats {
            reads: 1,
            read_bytes: 8192,
            writes: 4,
            written_bytes: 5 * 4096,
            durable_writes: 1,
            flushes: 1,
        }
    );
    assert_eq!(device.take_writes(), [(PAGE, 8192), (0, 4096), (3 * PAGE, 4096)]);
    assert_eq!(device.take_writes(), []);
    device.reset_stats();
    assert_eq!(device.stats(), Stats::default());
    assert_eq!(device.ops(), 6);
}

#[test]
fn a_clone_is_another_handle_on_the_same_device_from_any_thread() {
    let device = FaultyDevice::new(64 * PAGE);
    let boxed: Box<dyn Device> = Box::new(device.clone());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let boxed = &boxed;
            scope.spawn(move || {
                for at in 0..16 {
                    let offset = (u64::from(thread) * 16 + at) * PAGE;
                    boxed.write(offset, &page(thread + 1)).unwrap();
                }
            });
        }
    });
    assert_eq!(device.unflushed_writes(), 64);
    for at in 0..64 {
        assert_eq!(u64::from(byte(&device, at * PAGE)), at / 16 + 1);
    }
    assert_eq!((boxed.len(), boxed.is_empty(), boxed.queue_fd()), (64 * PAGE, false, None));
}

#[test]
fn an_image_is_sparse_and_holes_equal_zeros() {
    let mut image = Image::new(1 << 40);
    image.write((1 << 40) - 3, &[1, 2, 3]);
    image.write(4094, &[1, 2, 3]);
    assert_eq!(image.allocated_bytes(), 3 * 4096);
    let mut found = [9; 6];
    image.read(4092, &mut found);
    assert_eq!(found, [0, 0, 1, 2, 3, 0]);

    let (holes, mut zeros) = (Image::new(4 * PAGE), Image::new(4 * PAGE));
    zeros.write(PAGE, &[0; 4096]);
    assert_eq!(holes, zeros);
    zeros.write(PAGE + 7, &[1]);
    assert_eq!(holes.first_difference(&zeros), Some(PAGE + 7));
    assert_eq!(Image::new(PAGE).first_difference(&zeros), Some(PAGE));
    assert_eq!(Image::from(zeros.to_vec()), zeros);
    assert_eq!(Image::from(zeros.to_vec()).allocated_bytes(), PAGE);
}
