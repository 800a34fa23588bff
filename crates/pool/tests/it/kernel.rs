//! The code for real devices, on a simulated kernel that loses, shortens and fails requests, and on the real
//! kernel. The other crash and fault tests run on the same simulated kernel and check the pool's response to
//! such faults.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::rig::{Shape, devices};
use crate::common::step::{Runner, Step};
use crate::common::survive::assert_sound;
use crate::common::{MIB, PAGE};
use deepram_core::SegmentSize;
use deepram_pool::device::{ALIGN, Device, FileDevice};
use deepram_pool::{Addr, CreateOptions, Lifetime, Mapping, OpenOptions, Pool, PoolError};
use deepram_testkit::{AlignedBuf, Crash, FaultyDevice, FaultyKernel};

const LEN: u64 = 1 << 20;

fn path() -> PathBuf {
    "folder/file".into()
}

fn created() -> (FaultyKernel, FileDevice<FaultyKernel>, FaultyDevice) {
    let kernel = FaultyKernel::default();
    let device = FileDevice::create_in(kernel.clone(), &path(), LEN).unwrap();
    let beneath = kernel.device(&path()).unwrap();
    (kernel, device, beneath)
}

fn byte(device: &dyn Device, at: u64) -> u8 {
    let mut page = AlignedBuf::zeroed(ALIGN);
    device.read(at, &mut page).unwrap();
    page[0]
}

#[test]
fn a_file_that_was_created_is_there_with_its_length_after_a_power_cut() {
    let (kernel, _device, _) = created();
    let after = kernel.after_power_cut();
    let found = FileDevice::open_in(after, &path(), true);
    assert_eq!(found.expect("the name is durable").len(), LEN, "and so is the length");
}

#[test]
fn a_file_that_cannot_be_made_durable_is_not_left_behind() {
    // The fsync of the file, then that of its directory.
    for n in [1, 2] {
        let kernel = FaultyKernel::default();
        kernel.fail_fsync(n);
        let error = FileDevice::create_in(kernel.clone(), &path(), LEN).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "fsync {n}");
        let found = FileDevice::open_in(kernel, &path(), true).unwrap_err();
        assert_eq!(found.kind(), std::io::ErrorKind::NotFound, "fsync {n}");
    }
}

#[test]
fn a_durable_write_is_there_after_a_power_cut_and_a_plain_one_after_a_flush() {
    for refused in [false, true] {
        let (kernel, device, beneath) = created();
        if refused {
            kernel.refuse_dsync();
        }
        let page = AlignedBuf::filled(ALIGN, 1);
        device.write(0, &page).unwrap();
        assert_eq!(beneath.durable_image().to_vec()[0], 0, "a plain write is not durable by itself");
        device.flush().unwrap();
        device.write_durable(ALIGN as u64, &page).unwrap();
        let after = FaultyDevice::from_image(beneath.crash_image(Crash::DropAll));
        assert_eq!((byte(&after, 0), byte(&after, ALIGN as u64)), (1, 1), "RWF_DSYNC refused: {refused}");
    }
}

#[test]
fn short_transfers_are_gone_on_with() {
    let (_, device, beneath) = created();
    for sectors in [1, 8, 9, 31] {
        let bytes: Vec<u8> = (0..4 * ALIGN).map(|n| (n / 512 + sectors) as u8).collect();
        let from = AlignedBuf::from(&bytes[..]);
        beneath.short_write(1, sectors);
        device.write(0, &from).unwrap();
        beneath.short_write(1, sectors);
        device.write_durable(4 * ALIGN as u64, &from).unwrap();
        for at in [0, 4 * ALIGN as u64] {
            let mut found = AlignedBuf::zeroed(bytes.len());
            beneath.short_read(1, sectors);
            device.read(at, &mut found).unwrap();
            assert!(found[..] == bytes[..], "{sectors} sectors at {at}");
        }
        let durable = beneath.durable_image().to_vec();
        assert!(durable[4 * ALIGN..][..bytes.len()] == bytes[..], "{sectors} sectors, durably");
    }
    // A write of zero bytes is an error and not an endless loop.
    beneath.short_write(1, 0);
    assert!(device.write(0, &AlignedBuf::zeroed(ALIGN)).is_err());
}

#[test]
fn an_open_file_is_locked_until_it_is_closed() {
    let (kernel, device, _) = created();
    let open = || FileDevice::open_in(kernel.clone(), &path(), true);
    assert_eq!(open().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(device);
    let again = open().unwrap();
    assert_eq!(open().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    again.release();
    open().unwrap();
}

#[test]
fn a_pool_file_that_is_open_can_neither_be_opened_nor_inspected() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("test.pool");
    let device = FileDevice::create(&path, LEN).unwrap();
    assert_eq!(FileDevice::open(&path, false).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(device);
    std::fs::remove_file(&path).unwrap();
    Pool::create(&[&path], &CreateOptions::new(MIB)).unwrap();
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
    let pool = Pool::open(&[&path], &options).unwrap();
    let is_busy = |result: Option<PoolError>| matches!(result, Some(PoolError::Busy { .. }));
    assert!(is_busy(Pool::open(&[&path], &options).err()));
    assert!(is_busy(Pool::inspect(&[&path]).err()));
    pool.close().unwrap();
    Pool::open(&[&path], &options).unwrap();
}

/// A pool with more memory than DRAM, so that segments go through the queues of writes and reads.
fn queued() -> (Runner, Shape) {
    let shape = Shape { pages: 100, flash: Some(40 * MIB), ..Shape::small(SegmentSize::K4) }.least_dram();
    let (images, world) = shape.create();
    let all = devices(&images);
    let pool = shape.open(&all).unwrap();
    let mut runner = Runner::with(shape, all, pool, world);
    runner.step(&Step::Alloc { controller: 0, pages: 90, lifetime: Lifetime::Permanent }).unwrap();
    (runner, shape)
}

#[test]
fn short_and_failed_transfers_of_the_queues_are_mended_or_told() {
    let (mut runner, shape) = queued();
    for round in 0..6_u8 {
        for page in 0..90 {
            if page % 3 == 0 {
                // Shortens a batch in its header or in one of its segments.
                runner.devices[0].short_write(1, 1 + usize::from(round) * 37 + page);
            }
            runner.step(&Step::Write { page, at: 0, len: PAGE as usize, value: round ^ page as u8 }).unwrap();
        }
        runner.step(&Step::Sync).unwrap();
        let addresses: Vec<Addr> = runner
            .world
            .now
            .pages
            .keys()
            .flat_map(|page| (0..16).map(move |n| Addr::from_raw(page + n * 4096)))
            .collect();
        let mut found = vec![0; 8 * addresses.len()];
        runner.devices[0].short_read(1, 1);
        runner.devices[0].short_read(9, 3);
        runner.pool().gather(&addresses, 8, &mut found).unwrap();
        for (addr, found) in addresses.iter().zip(found.chunks(8)) {
            let mut expected = [0; 8];
            runner.world.model.read(addr.raw(), &mut expected);
            assert_eq!(found, expected, "round {round}, {addr:?}");
        }
    }
    assert_sound(runner.pool(), "short transfers");
    let (gone, worlds) = runner.cut();
    let after = devices(&crate::common::survive::images(&gone, Crash::DropAll));
    crate::common::survive::reopen(&shape, &after, &worlds, "short transfers");
}

#[test]
fn submissions_that_the_kernel_refuses_for_a_moment_are_made_again() {
    let (images, world) = {
        let shape = Shape::small(SegmentSize::K4);
        shape.create()
    };
    let shape = Shape::small(SegmentSize::K4);
    let all = devices(&images);
    let kernel = FaultyKernel::with(&all);
    let device = FileDevice::open_in(kernel.clone(), &FaultyKernel::path(0), true).unwrap();
    let pool = Pool::open_on(vec![Arc::new(device)], &shape.open_options()).unwrap();
    let mut runner = Runner::with(shape, all, pool, world);
    runner.step(&Step::Alloc { controller: 0, pages: 6, lifetime: Lifetime::Permanent }).unwrap();
    for round in 0..20 {
        kernel.refuse_submissions(u32::from(round) % 4);
        for page in 0..6 {
            runner.step(&Step::Write { page, at: 0, len: PAGE as usize, value: round }).unwrap();
        }
        runner.devices[0].record_writes(true);
        runner.step(&Step::Sync).unwrap();
        let mut writes = runner.devices[0].take_writes();
        let made = writes.len();
        writes.sort_unstable();
        writes.dedup();
        assert_eq!(made, writes.len(), "no write is repeated, which could overwrite later data");
    }
    runner.world.verify(runner.pool()).unwrap();
    assert_sound(runner.pool(), "refused submissions");
}

/// Requests to the real kernel, checked with a filter that makes chosen calls fail in the thread that
/// installs it.
mod filtered {
    use super::*;

    const EIO: u32 = 5;
    const ANY: u32 = u32::MAX;

    /// Makes a system call of this thread fail with an error from now on; `pwritev2` only where the low bits
    /// of its flags equal `flags`. Returns false where the kernel has no such filters.
    fn fail_call(number: i64, flags: u32, errno: u32) -> bool {
        let load = |offset: usize| libc::sock_filter {
            code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
            jt: 0,
            jf: 0,
            k: offset as u32,
        };
        let jump = |value: u32, no: u8| libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: no,
            k: value,
        };
        let end = |value: u32| libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: value,
        };
        let fail = end(libc::SECCOMP_RET_ERRNO | errno);
        let allow = end(libc::SECCOMP_RET_ALLOW);
        // `seccomp_data`: the number at 0, six arguments of eight bytes from 16 on; flags are the sixth.
        let mut filter = if flags == ANY {
            vec![load(0), jump(number as u32, 1), fail, allow]
        } else {
            vec![load(0), jump(number as u32, 3), load(16 + 5 * 8), jump(flags, 1), fail, allow]
        };
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: neither call reads or writes memory but the program, which is a valid one.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if !installed {
            eprintln!(
                "skipped: seccomp filters are not available here ({})",
                std::io::Error::last_os_error()
            );
        }
        installed
    }

    fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    /// Runs `test` in a thread of its own; the filter ends with the thread.
    fn with_file(test: impl FnOnce(&Path, FileDevice) + Send) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("file");
        let device = FileDevice::create(&path, LEN).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| test(&path, device));
        });
    }

    #[test]
    fn a_durable_write_asks_for_dsync() {
        with_file(|_, device| {
            let page = AlignedBuf::filled(ALIGN, 1);
            if !fail_call(libc::SYS_pwritev2, libc::RWF_DSYNC as u32, EIO) {
                return;
            }
            assert_eq!(errno(device.write_durable(0, &page)), Some(5));
            device.write(0, &page).unwrap();
        });
    }

    #[test]
    fn a_flush_asks_for_fdatasync() {
        with_file(|_, device| {
            if !fail_call(libc::SYS_fdatasync, ANY, EIO) {
                return;
            }
            assert_eq!(errno(device.flush()), Some(5));
        });
    }

    #[test]
    fn where_dsync_is_refused_a_durable_write_is_flushed() {
        with_file(|_, device| {
            if !fail_call(libc::SYS_pwritev2, libc::RWF_DSYNC as u32, libc::EOPNOTSUPP as u32) {
                return;
            }
            device.write_durable(0, &AlignedBuf::filled(ALIGN, 1)).unwrap();
            if !fail_call(libc::SYS_fdatasync, ANY, EIO) {
                return;
            }
            assert_eq!(errno(device.write_durable(0, &AlignedBuf::filled(ALIGN, 1))), Some(5));
        });
    }

    #[test]
    fn a_new_file_is_synced_and_locked() {
        for call in [libc::SYS_fsync, libc::SYS_flock] {
            with_file(|path, _| {
                if !fail_call(call, ANY, EIO) {
                    return;
                }
                let other = path.with_extension("new");
                assert_eq!(errno(FileDevice::create(&other, LEN)), Some(5), "system call {call}");
                assert!(!other.exists(), "a half-made file stays behind");
            });
        }
    }
}
