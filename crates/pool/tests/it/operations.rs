//! Each operation of the software interface, on a device in memory and without mapping.

use std::sync::Arc;

use deepram_pool::device::Device;
use deepram_pool::{
    Addr, CreateOptions, Epoch, Lifetime, Mapping, OpenOptions, Permissions, Pool, PoolError, Retention,
    SegmentSize,
};
use deepram_testkit::FaultyDevice;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 1 << 16;

fn options() -> CreateOptions {
    CreateOptions::new(4 * MIB)
}

fn open_options() -> OpenOptions {
    OpenOptions::new(16 * MIB).mapping(Mapping::Off)
}

fn create(options: &CreateOptions, controllers: usize) -> Vec<FaultyDevice> {
    let devices: Vec<FaultyDevice> = (0..controllers).map(|_| FaultyDevice::new(40 * MIB)).collect();
    Pool::create_on(handles(&devices), options).expect("creating a pool");
    devices
}

fn handles(devices: &[FaultyDevice]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|d| Arc::new(d.clone()) as Arc<dyn Device>).collect()
}

fn open(devices: &[FaultyDevice]) -> Pool {
    Pool::open_on(handles(devices), &open_options()).expect("opening the pool")
}

fn byte(pool: &Pool, addr: Addr) -> u8 {
    let mut byte = [0];
    pool.read(addr, &mut byte).expect("reading");
    byte[0]
}

#[test]
fn what_was_written_is_read_back_now_and_after_reopening() {
    for segment in [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16] {
        let devices = create(&CreateOptions { segment, ..options() }, 1);
        let pool = open(&devices);
        let addr = pool.alloc(3 * PAGE, Lifetime::Permanent).unwrap();
        let data: Vec<u8> = (0..3 * PAGE).map(|n| (n * 7 + n / 251) as u8).collect();
        pool.write(addr, &data).unwrap();
        let mut back = vec![0; data.len()];
        pool.read(addr, &mut back).unwrap();
        assert_eq!(back, data);
        pool.sync().unwrap();
        pool.close().unwrap();
        let pool = open(&devices);
        back.fill(0);
        pool.read(addr, &mut back).unwrap();
        assert_eq!(back, data);
        assert!(pool.check(&mut |_, _| {}).unwrap().is_sound());
    }
}

#[test]
fn memory_never_written_reads_as_zeros() {
    let devices = create(&options(), 1);
    let pool = open(&devices);
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    let mut back = vec![1; PAGE as usize];
    pool.read(addr, &mut back).unwrap();
    assert!(back.iter().all(|&b| b == 0));
}

#[test]
fn a_rollback_returns_to_each_token_in_turn() {
    let devices = create(&options(), 1);
    let pool = open(&devices);
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    let tokens: Vec<Epoch> = (1..=5_u8)
        .map(|n| {
            pool.write(addr.offset_by(u64::from(n)).unwrap(), &[n; 9000]).unwrap();
            pool.sync().unwrap()
        })
        .collect();
    pool.write(addr, &[99; 100]).unwrap();
    for (n, token) in tokens.iter().enumerate().rev() {
        pool.rollback(*token).unwrap();
        assert_eq!(byte(&pool, addr.offset_by(n as u64 + 1).unwrap()), n as u8 + 1);
        assert_eq!(byte(&pool, addr.offset_by(n as u64 + 2).unwrap()), n as u8 + 1);
        assert_eq!(byte(&pool, addr), 0);
        assert_eq!(pool.history().unwrap().last().unwrap().token, *token);
    }
    // A rollback is durable.
    pool.abandon().unwrap();
    let pool = open(&devices);
    assert_eq!(byte(&pool, addr.offset_by(2).unwrap()), 1);
    assert!(matches!(pool.rollback(tokens[3]), Err(PoolError::Token { .. })));
}

#[test]
fn without_a_sync_nothing_survives_being_abandoned() {
    let devices = create(&options(), 1);
    let pool = open(&devices);
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    pool.write(addr, &[1]).unwrap();
    pool.sync().unwrap();
    pool.write(addr, &[2]).unwrap();
    let other = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    pool.abandon().unwrap();
    let pool = open(&devices);
    assert_eq!(byte(&pool, addr), 1);
    assert!(matches!(pool.read(other, &mut [0]), Err(PoolError::NotAllocated { .. })));
}

#[test]
fn temporary_pages_vanish_when_their_creator_ends() {
    let devices = create(&options(), 1);
    let pool = open(&devices);
    let kept = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    let gone = pool.alloc(PAGE, Lifetime::Temporary).unwrap();
    let made_permanent = pool.alloc(PAGE, Lifetime::Temporary).unwrap();
    pool.setperms(made_permanent, PAGE, Permissions::read_write(Lifetime::Permanent)).unwrap();
    pool.sync().unwrap();
    // Both ways of ending a pool.
    pool.abandon().unwrap();
    let pool = open(&devices);
    assert!(matches!(pool.read(gone, &mut [0]), Err(PoolError::NotAllocated { .. })));
    assert_eq!((byte(&pool, kept), byte(&pool, made_permanent)), (0, 0));
    let gone = pool.alloc(PAGE, Lifetime::Temporary).unwrap();
    pool.close().unwrap();
    let pool = open(&devices);
    assert!(matches!(pool.read(gone, &mut [0]), Err(PoolError::NotAllocated { .. })));
}

#[test]
fn permissions_forbid_what_they_say_and_are_rolled_back_too() {
    let devices = create(&options(), 1);
    let pool = open(&devices);
    let addr = pool.alloc(2 * PAGE, Lifetime::Permanent).unwrap();
    let token = pool.sync().unwrap();
    let read_only = Permissions { read: true, write: false, lifetime: Lifetime::Permanent };
    pool.setperms(addr, PAGE, read_only).unwrap();
    assert!(matches!(pool.write(addr, &[1]), Err(PoolError::Permission { .. })));
    assert_eq!(byte(&pool, addr), 0);
    pool.write(addr.offset_by(PAGE).unwrap(), &[1]).unwrap();
    let none = Permissions { read: false, write: false, lifetime: Lifetime::Permanent };
    pool.setperms(addr, PAGE, none).unwrap();
    assert!(matches!(pool.read(addr, &mut [0]), Err(PoolError::Permission { .. })));
    pool.rollback(token).unwrap();
    pool.write(addr, &[1]).unwrap();
    assert_eq!(pool.permissions(addr).unwrap(), Permissions::read_write(Lifetime::Permanent));
}

#[test]
fn freed_pages_are_gone_and_come_back_empty() {
    let devices = create(&options(), 1);
    let pool = open(&devices);
    let addr = pool.alloc(2 * PAGE, Lifetime::Permanent).unwrap();
    pool.write(addr, &[7; 2 * PAGE as usize]).unwrap();
    let token = pool.sync().unwrap();
    pool.free(addr, PAGE).unwrap();
    assert!(matches!(pool.read(addr, &mut [0]), Err(PoolError::NotAllocated { .. })));
    assert!(matches!(pool.free(addr, PAGE), Err(PoolError::NotAllocated { .. })));
    assert_eq!(byte(&pool, addr.offset_by(PAGE).unwrap()), 7);
    let again = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    assert_eq!((again, byte(&pool, again)), (addr, 0));
    pool.sync().unwrap();
    assert_eq!(byte(&pool, again), 0);
    let mut then = [0];
    pool.read_at(token, addr, &mut then).unwrap();
    assert_eq!(then, [7]);
    pool.rollback(token).unwrap();
    assert_eq!(byte(&pool, addr), 7);
}

#[test]
fn roots_are_found_again_synced_and_rolled_back() {
    let devices = create(&options(), 1);
    let pool = open(&devices);
    let a = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    pool.set_root("a", a, 10).unwrap();
    let token = pool.sync().unwrap();
    pool.set_root("a", a, 20).unwrap();
    pool.set_root("b", a, 30).unwrap();
    pool.sync().unwrap();
    pool.abandon().unwrap();
    let pool = open(&devices);
    assert_eq!(pool.root("a").unwrap().len, 20);
    assert_eq!(pool.roots().unwrap().len(), 2);
    pool.remove_root("b").unwrap();
    assert!(matches!(pool.root("b"), Err(PoolError::Root { .. })));
    pool.rollback(token).unwrap();
    assert_eq!(pool.root("a").unwrap().len, 10);
    for name in ["", &"x".repeat(112)] {
        assert!(matches!(pool.set_root(name, a, 1), Err(PoolError::Root { .. })));
    }
    assert!(matches!(pool.set_root("c", Addr::from_raw(1 << 30), 1), Err(PoolError::NotAllocated { .. })));
}

#[test]
fn several_controllers_make_one_pool_with_one_token() {
    let devices = create(&options(), 3);
    let pool = open(&devices);
    let addrs: Vec<Addr> = (0..3).map(|c| pool.alloc_on(c, PAGE, Lifetime::Permanent).unwrap()).collect();
    for (n, addr) in addrs.iter().enumerate() {
        assert_eq!(addr.controller(), n as u32);
        pool.write(*addr, &[n as u8 + 1; 100]).unwrap();
    }
    let token = pool.sync().unwrap();
    for addr in &addrs {
        pool.write(*addr, &[0xEE; 100]).unwrap();
    }
    pool.sync().unwrap();
    pool.rollback(token).unwrap();
    pool.abandon().unwrap();
    let shuffled: Vec<FaultyDevice> = [2, 0, 1].map(|n: usize| devices[n].clone()).to_vec();
    let pool = open(&shuffled);
    for (n, addr) in addrs.iter().enumerate() {
        assert_eq!(byte(&pool, *addr), n as u8 + 1);
    }
    pool.close().unwrap();
    let missing = Pool::open_on(handles(&devices[..2]), &open_options());
    assert!(matches!(missing, Err(PoolError::Mismatch(_))));
    let twice = [devices[0].clone(), devices[0].clone(), devices[1].clone()];
    assert!(matches!(Pool::open_on(handles(&twice), &open_options()), Err(PoolError::Mismatch(_))));
}

#[test]
fn old_tokens_go_as_retention_says_and_say_so() {
    let devices = create(&CreateOptions { retention: Retention::KeepLast(2), ..options() }, 1);
    let pool = open(&devices);
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    let tokens: Vec<Epoch> = (0..6)
        .map(|n| {
            pool.write(addr, &[n]).unwrap();
            pool.sync().unwrap()
        })
        .collect();
    for _ in 0..400 {
        if pool.history().unwrap().len() <= 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(pool.history().unwrap().iter().map(|h| h.token).collect::<Vec<_>>(), tokens[4..]);
    let error = pool.rollback(tokens[0]).unwrap_err().to_string();
    assert!(error.contains("reclaimed") && error.contains(&tokens[4].to_string()), "{error}");
    let never = pool.rollback(Epoch(1000)).unwrap_err().to_string();
    assert!(never.contains("never issued"), "{never}");
    pool.rollback(tokens[4]).unwrap();
    assert_eq!(byte(&pool, addr), 4);
}

#[test]
fn more_data_than_dram_goes_through_and_stays_right() {
    let devices = [FaultyDevice::new(200 * MIB)];
    Pool::create_on(handles(&devices), &CreateOptions::new(32 * MIB)).unwrap();
    let pool = Pool::open_on(handles(&devices), &OpenOptions::new(16 * MIB).mapping(Mapping::Off)).unwrap();
    let addr = pool.alloc(31 * MIB, Lifetime::Permanent).unwrap();
    for round in 0..3_u64 {
        for segment in 0..31 * MIB / 4096 {
            let value = (segment * 31 + round) as u8;
            pool.write(addr.offset_by(segment * 4096).unwrap(), &[value; 4096]).unwrap();
        }
        pool.sync().unwrap();
    }
    for segment in 0..31 * MIB / 4096 {
        assert_eq!(byte(&pool, addr.offset_by(segment * 4096 + 9).unwrap()), (segment * 31 + 2) as u8);
    }
    let stats = pool.stats();
    assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");
    assert!(stats.evictions > 0);
    assert!(pool.check(&mut |_, _| {}).unwrap().is_sound());
}

#[test]
fn a_budget_too_small_for_the_tables_says_what_would_do() {
    let devices = create(&options(), 1);
    let error = Pool::open_on(handles(&devices), &OpenOptions::new(MIB).mapping(Mapping::Off)).err().unwrap();
    let PoolError::Budget { least, .. } = error else { panic!("{error}") };
    let enough = OpenOptions::new(least.0 + MIB).mapping(Mapping::Off);
    Pool::open_on(handles(&devices), &enough).unwrap();
}
