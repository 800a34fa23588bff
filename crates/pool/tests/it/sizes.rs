//! Numbers from a caller that are too large or otherwise unusable: each is an error, before the pool
//! allocates or creates anything.

use std::sync::Arc;

use deepram_pool::device::{Device, FileDevice};
use deepram_pool::log::TransactionLog;
use deepram_pool::{
    Addr, CreateOptions, FaultOptions, Lifetime, LoadOptions, Mapping, OpenOptions, Pool, PoolError,
    Retention, SegmentSize,
};
use deepram_testkit::FaultyDevice;

const MIB: u64 = 1 << 20;

/// Values around every power of two from 2^40 on, and up to the largest.
fn large() -> impl Iterator<Item = u64> {
    let near = |power: u32| [(1_u64 << power) - 1, 1 << power, (1 << power) + 1, (1 << power) + 65_535];
    (40..64).flat_map(near).chain((0..70_000).step_by(997).map(|n| u64::MAX - n)).chain([u64::MAX - 65_535])
}

fn options() -> OpenOptions {
    OpenOptions::new(16 * MIB).mapping(Mapping::Off)
}

fn device() -> Vec<Arc<dyn Device>> {
    vec![Arc::new(FaultyDevice::new(64 * MIB))]
}

#[test]
fn a_pool_of_an_impossible_size_is_an_error() {
    let device = device();
    for segment in [SegmentSize::K4, SegmentSize::K16] {
        for n in large() {
            let new = CreateOptions { segment, ..CreateOptions::new(4 * MIB) };
            for options in [
                CreateOptions { size: n, ..new.clone() },
                CreateOptions { flash: Some(n), ..new.clone() },
                CreateOptions { pmem: n, ..new.clone() },
                CreateOptions { size: n, pmem: n, ..new.clone() },
                CreateOptions { size: n, flash: Some(n), pmem: n, ..new.clone() },
            ] {
                let error = Pool::create_on(device.clone(), &options).unwrap_err();
                assert!(
                    matches!(error, PoolError::Option { .. } | PoolError::NoSpace { .. }),
                    "{options:?}: {error}"
                );
            }
        }
    }
}

#[test]
fn a_file_of_an_impossible_size_is_an_error_and_not_left_behind() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("file");
    for n in large().filter(|n| *n > 1 << 52) {
        FileDevice::create(&path, n).unwrap_err();
        assert!(!path.exists(), "{n}");
    }
    let device = FileDevice::create(&path, MIB).unwrap();
    for n in large() {
        let mut bytes = [0; 512];
        device.read(n, &mut bytes).unwrap_err();
        device.write(n, &bytes).unwrap_err();
        device.write_durable(n, &bytes).unwrap_err();
    }
    assert_eq!(path.metadata().unwrap().len(), MIB);
}

#[test]
fn a_base_that_cannot_be_mapped_is_refused_at_creation() {
    let here = std::ptr::from_ref(&MIB).addr() as u64 & !0xFFFF;
    let bases =
        large().filter(|n| *n >= 1 << 47).map(|n| n & !0xFFFF).chain([0x1_0000 / 2, 0, 1 << 63, here]);
    for base in bases {
        let options = CreateOptions { base: Some(base), ..CreateOptions::new(4 * MIB) };
        match Pool::create_on(device(), &options) {
            Err(PoolError::Option { option: "base", problem }) => assert!(!problem.is_empty()),
            other => panic!("{base:#x}: {other:?}"),
        }
    }
    // The end of the pool overlaps no mapping, but lies beyond a process's address space.
    let options = CreateOptions { base: Some(0x7FFF_FFF0_0000 - 0x10_0000), ..CreateOptions::new(64 * MIB) };
    let devices = vec![Arc::new(FaultyDevice::new(256 * MIB)) as Arc<dyn Device>];
    assert!(matches!(Pool::create_on(devices, &options), Err(PoolError::Option { option: "base", .. })));
    let options = CreateOptions { base: Some(0x3000_0000_0000), ..CreateOptions::new(4 * MIB) };
    let devices = device();
    Pool::create_on(devices.clone(), &options).unwrap();
    assert_eq!(Pool::open_on(devices, &self::options()).unwrap().info().unwrap().base, 0x3000_0000_0000);
}

#[test]
fn a_pool_opened_with_impossible_numbers_is_an_error_or_works() {
    let devices = device();
    Pool::create_on(devices.clone(), &CreateOptions::new(4 * MIB)).unwrap();
    for n in large() {
        let n_usize = n as usize;
        for options in [
            OpenOptions::new(n).mapping(Mapping::Off),
            options().loads(LoadOptions { buffer: Some(n), ..LoadOptions::default() }),
            options().faults(FaultOptions { handlers: n_usize, ..FaultOptions::default() }),
        ] {
            // A budget above the machine's DRAM is no error: the pool never uses that much.
            if let Ok(pool) = Pool::open_on(devices.clone(), &options) {
                pool.abandon().unwrap();
            }
        }
        let options = OpenOptions { base: Some(n), ..OpenOptions::new(16 * MIB) };
        if n & 0xFFFF != 0 {
            assert!(Pool::open_on(devices.clone(), &options).is_err(), "{n:#x}");
        }
    }
}

#[test]
fn operations_with_impossible_lengths_are_errors() {
    let devices = device();
    Pool::create_on(devices.clone(), &CreateOptions::new(4 * MIB)).unwrap();
    let pool = Pool::open_on(devices, &options()).unwrap();
    let addr = pool.alloc(MIB, Lifetime::Permanent).unwrap();
    pool.create_pmem_region(addr, 64 << 10).unwrap();
    let token = pool.sync().unwrap();
    for n in large() {
        pool.alloc(n, Lifetime::Permanent).unwrap_err();
        pool.alloc_on(n as u32 | 1 << 31, 1, Lifetime::Permanent).unwrap_err();
        pool.free(addr, n).unwrap_err();
        pool.set_root("r", addr, n).unwrap_err();
        pool.will_need(addr, n).unwrap_err();
        pool.evict_range(addr, n).unwrap_err();
        pool.pin(addr, n, true).unwrap_err();
        pool.persist(addr, n).unwrap_err();
        pool.create_pmem_region(addr, n).unwrap_err();
        pool.remove_pmem_region(addr, n).unwrap_err();
        pool.words(addr, n as usize).map(drop).unwrap_err();
        pool.gather(&[addr], n as usize, &mut []).unwrap_err();
        TransactionLog::create(&pool, "log", n).map(drop).unwrap_err();
        pool.rollback(deepram_pool::Epoch(n)).unwrap_err();
        pool.drop_token(deepram_pool::Epoch(n)).unwrap_err();
        pool.read_at(deepram_pool::Epoch(n), addr, &mut [0; 8]).unwrap_err();
        for at in [Addr::from_raw(n | 1 << 47), Addr::from_raw(n)] {
            if at.controller() != 0xF_FFFF {
                pool.read(at, &mut [0; 8]).unwrap_err();
                pool.write(at, &[0; 8]).unwrap_err();
                pool.free(at, 1).unwrap_err();
            }
        }
        // The pool never uses a budget above the machine's DRAM.
        pool.set_dram(n).unwrap();
        pool.set_retention(Retention::Segments(n)).unwrap();
        pool.write(addr, &[1; 8]).unwrap();
        pool.sync().unwrap();
    }
    pool.set_dram(0).unwrap_err();
    assert!(pool.history().unwrap().iter().any(|h| h.token == token));
    pool.close().unwrap();
}
