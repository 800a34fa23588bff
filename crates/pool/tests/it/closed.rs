//! A handle on a pool that another handle has closed: every call reports the closed pool, and none touches
//! the devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::calls::{Known, MIB, calls, fill, options};
use crate::scratch::mappable;
use deepram_pool::device::Device;
use deepram_pool::{CreateOptions, Mapping, Pool, PoolError};
use deepram_testkit::FaultyDevice;

fn every_call_is_refused(pool: &Pool, known: &Known) {
    for (name, call) in calls() {
        match call(pool, known) {
            Err(PoolError::Closed) => {}
            other => panic!("{name} on a closed pool: {other:?}"),
        }
    }
}

#[test]
fn a_closed_pool_refuses_every_call_and_leaves_the_device_alone() {
    for mapping in [Mapping::Off, Mapping::Full] {
        if mapping == Mapping::Full && !mappable() {
            continue;
        }
        for abandon in [false, true] {
            let device = FaultyDevice::new(128 * MIB);
            let devices = || vec![Arc::new(device.clone()) as Arc<dyn Device>];
            Pool::create_on(devices(), &CreateOptions::new(16 * MIB)).unwrap();
            let pool = Pool::open_on(devices(), &options().mapping(mapping)).unwrap();
            let known = fill(&pool);
            let other = pool.clone();
            if abandon {
                pool.abandon().unwrap()
            } else {
                pool.close().unwrap()
            }
            let before = device.stats();
            every_call_is_refused(&other, &known);
            other.clone().close().unwrap();
            other.abandon().unwrap();
            assert_eq!(device.stats(), before, "{mapping:?}: a transfer after the pool was closed");
            drop(known);
            let again = Pool::open_on(devices(), &options().mapping(Mapping::Off)).unwrap();
            assert!(again.check(&mut |_, _| {}).unwrap().is_sound());
        }
    }
}

/// A device that counts writes and flushes after it was released.
struct Watched {
    device: FaultyDevice,
    released: AtomicBool,
    late: AtomicUsize,
}

impl Watched {
    fn note(&self) {
        self.late.fetch_add(usize::from(self.released.load(Relaxed)), Relaxed);
    }
}

impl Device for Watched {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
        self.note();
        self.device.write(offset, buf)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.note();
        self.device.flush()
    }

    fn release(&self) {
        self.released.store(true, Relaxed);
    }

    fn name(&self) -> String {
        "watched".into()
    }
}

#[test]
fn threads_that_are_at_work_when_the_pool_is_closed_write_nothing_afterwards() {
    for round in 0..8_u64 {
        let (released, late) = (AtomicBool::new(false), AtomicUsize::new(0));
        let device = Arc::new(Watched { device: FaultyDevice::new(128 * MIB), released, late });
        Pool::create_on(vec![device.clone()], &CreateOptions::new(16 * MIB)).unwrap();
        let pool = Pool::open_on(vec![device.clone()], &options().mapping(Mapping::Off)).unwrap();
        let known = fill(&pool);
        let begun = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (pool, known, begun) = (pool.clone(), &known, &begun);
                scope.spawn(move || {
                    let calls = calls();
                    let mut ends = 0;
                    for n in (thread * 7).. {
                        let (_, call) = calls[n % calls.len()];
                        begun.fetch_add(1, Relaxed);
                        // Memory or tokens that other threads have freed or dropped cause other errors.
                        ends =
                            if matches!(call(&pool, known), Err(PoolError::Closed)) { ends + 1 } else { 0 };
                        if ends == calls.len() {
                            break;
                        }
                    }
                });
            }
            while (begun.load(Relaxed) as u64) < 40 * round {
                std::thread::yield_now();
            }
            let _ = pool.clone().close();
        });
        assert_eq!(device.late.load(Relaxed), 0, "writes and flushes after the device was released");
    }
}
