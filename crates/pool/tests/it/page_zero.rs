//! Page 0 of a controller belongs to the pool: it holds the roots, and no call of a program can read or
//! change it.

use std::sync::Arc;

use crate::calls::{MIB, fill, options};
use deepram_pool::device::Device;
use deepram_pool::{Addr, CreateOptions, Lifetime, Mapping, Permissions, Pool, PoolError, Result};
use deepram_testkit::FaultyDevice;

type At = fn(&Pool, Addr) -> Result<()>;

/// Every call that takes an address.
fn calls_with_an_address() -> Vec<(&'static str, At)> {
    vec![
        ("read", |pool, at| pool.read(at, &mut [0; 8])),
        ("write", |pool, at| pool.write(at, &[0; 128])),
        ("read_at", |pool, at| pool.read_at(pool.history()?[0].token, at, &mut [0; 8])),
        ("load", |pool, at| pool.load(at, &mut [0; 8])),
        ("store", |pool, at| pool.store(at, &[0; 8])),
        ("gather", |pool, at| pool.gather(&[at], 8, &mut [0; 8])),
        ("scatter", |pool, at| pool.scatter(&[at], 8, &[0; 8])),
        ("free", |pool, at| pool.free(at, 8)),
        ("setperms", |pool, at| pool.setperms(at, 8, Permissions::read_write(Lifetime::Permanent))),
        ("permissions", |pool, at| pool.permissions(at).map(drop)),
        ("set_root", |pool, at| pool.set_root("zero", at, 8)),
        ("will_need", |pool, at| pool.will_need(at, 8)),
        ("will_need_pages", |pool, at| pool.will_need_pages(&[at])),
        ("evict_range", |pool, at| pool.evict_range(at, 8)),
        ("pin", |pool, at| pool.pin(at, 8, true)),
        ("create_pmem_region", |pool, at| pool.create_pmem_region(at, 8)),
        ("remove_pmem_region", |pool, at| pool.remove_pmem_region(at, 8)),
        ("is_pmem_region", |pool, at| pool.is_pmem_region(at).map(drop)),
        ("persist", |pool, at| pool.persist(at, 8)),
    ]
}

#[test]
fn no_call_reaches_page_0_of_any_controller() {
    let devices: Vec<FaultyDevice> = (0..2).map(|_| FaultyDevice::new(128 * MIB)).collect();
    let handles =
        || devices.iter().map(|device| Arc::new(device.clone()) as Arc<dyn Device>).collect::<Vec<_>>();
    Pool::create_on(handles(), &CreateOptions::new(16 * MIB)).unwrap();
    let pool = Pool::open_on(handles(), &options().mapping(Mapping::Off)).unwrap();
    let known = fill(&pool);
    // A controller number of all ones refers to the first controller too.
    for controller in [0, 1, 0xF_FFFF] {
        for offset in [0, 8, 65_528] {
            let at = Addr::new(controller, 0, offset).unwrap();
            for (name, call) in calls_with_an_address() {
                match call(&pool, at) {
                    Err(PoolError::NotAllocated { .. }) => {}
                    other => panic!("{name} at {at}: {other:?}"),
                }
            }
        }
    }
    // Addresses below a program's first address are in page 0 as well.
    let before = Addr::new(0, 0, 65_532).unwrap();
    assert!(matches!(pool.write(before, &[0; 8]), Err(PoolError::NotAllocated { .. })));
    let root = pool.root("plain").unwrap();
    assert_eq!((root.addr, root.len), (known.plain, MIB));
    let token = pool.sync().unwrap();
    pool.remove_root("plain").unwrap();
    pool.set_root("again", known.plain, MIB).unwrap();
    pool.sync().unwrap();
    let names = |roots: Vec<deepram_pool::Root>| roots.into_iter().map(|r| r.name).collect::<Vec<_>>();
    assert_eq!(names(pool.roots_at(token).unwrap()), ["plain", "log"]);
    assert_eq!(names(pool.roots().unwrap()), ["again", "log"]);
    pool.close().unwrap();
    let pool = Pool::open_on(handles(), &options().mapping(Mapping::Off)).unwrap();
    assert_eq!(pool.roots().unwrap().iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["again", "log"]);
}
