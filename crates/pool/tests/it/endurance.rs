//! Bytes written over the life of a pool, and the limit on background writes.

use std::time::{Duration, Instant};

use deepram_core::Bytes;
use deepram_pool::{CreateOptions, Inspection, Lifetime, Mapping, OpenOptions, Pool};
use deepram_testkit::FaultyDevice;

use crate::common::MIB;
use crate::common::rig::handles;

fn create(options: &CreateOptions) -> FaultyDevice {
    let device = FaultyDevice::new(200 * MIB);
    Pool::create_on(handles(std::slice::from_ref(&device)), options).unwrap();
    device
}

fn open(device: &FaultyDevice, options: &OpenOptions) -> Pool {
    Pool::open_on(handles(std::slice::from_ref(device)), options).unwrap()
}

fn options() -> OpenOptions {
    OpenOptions::new(24 * MIB).mapping(Mapping::Off)
}

fn inspect(device: &FaultyDevice) -> deepram_pool::Endurance {
    Inspection::of(handles(std::slice::from_ref(device))).unwrap().info().endurance
}

fn write_and_sync(pool: &Pool, bytes: u64) {
    let addr = pool.alloc(bytes, Lifetime::Permanent).unwrap();
    pool.write(addr, &vec![0xA5; bytes as usize]).unwrap();
    pool.sync().unwrap();
}

#[test]
fn the_bytes_written_are_counted_over_all_openings() {
    let device = create(&CreateOptions { rated_tbw: Some(1 << 40), ..CreateOptions::new(32 * MIB) });
    let mut before = inspect(&device);
    assert_eq!((before.user, before.rated), (Bytes(0), Some(Bytes(1 << 40))));
    for opening in 1..=3 {
        let pool = open(&device, &options());
        write_and_sync(&pool, 4 * MIB);
        let counted = pool.stats();
        pool.close().unwrap();
        let after = inspect(&device);
        let user = after.user.0 - before.user.0;
        assert!((4 * MIB..5 * MIB).contains(&user), "opening {opening}: {user} bytes for the user");
        let written = after.written.0 - before.written.0;
        assert!(written >= counted.bytes_written && written > user, "opening {opening}: {written} bytes");
        assert!(after.write_amplification().unwrap() > 1.0);
        assert_eq!((after.since_ns, after.most_written), (before.since_ns, after.written));
        before = after;
    }
}

#[test]
fn background_writes_wait_when_the_days_writes_are_used_up_and_syncs_do_not() {
    let device = create(&CreateOptions { writes_per_day: Some(24 * MIB), ..CreateOptions::new(32 * MIB) });
    assert_eq!(inspect(&device).writes_per_day, Some(Bytes(24 * MIB)));
    let pool = open(&device, &options());
    write_and_sync(&pool, 4 * MIB);
    let until = Instant::now() + Duration::from_secs(60);
    while !pool.info().unwrap().endurance.deferring {
        assert!(Instant::now() < until, "4 MiB are four times an hour's share");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(pool.stats().write_deferrals, 1);
    write_and_sync(&pool, 4 * MIB);
    pool.close().unwrap();
    // The limit of an opening replaces that of the pool.
    let pool = open(&device, &options().writes_per_day(0));
    write_and_sync(&pool, 4 * MIB);
    assert_eq!(pool.info().unwrap().endurance.writes_per_day, None);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!pool.info().unwrap().endurance.deferring);
}
