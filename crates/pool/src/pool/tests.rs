//! Tests of states that only code inside the crate can create: a device that has just become full, and panics while
//! locks are held.

use std::sync::mpsc::channel;
use std::time::Duration;

use deepram_core::{Addr, Epoch};

use super::{Lifetime, Permissions, Pool};
use crate::cache::AccessKind;
use crate::error::{PoolError, Result};
use crate::options::{CreateOptions, Mapping, OpenOptions};
use crate::region::WatchError;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 1 << 16;
/// Longer than any operation here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a pool with one page. Returns the pool, the address of the page and the token of the sync after it; `None`
/// where it cannot be mapped.
fn pool(folder: &tempfile::TempDir, mapping: Mapping) -> Option<(Pool, Addr, Epoch)> {
    let path = folder.path().join("pool");
    Pool::create(&[&path], &CreateOptions::new(MIB)).unwrap();
    let pool = match Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(mapping)) {
        Err(PoolError::Watch(WatchError::Unavailable { source })) => {
            eprintln!("skipped: userfaultfd is not available here ({source})");
            return None;
        }
        pool => pool.unwrap(),
    };
    let addr = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    pool.write(addr, b"synced").unwrap();
    let token = pool.sync().unwrap();
    Some((pool, addr, token))
}

/// Returns the protection of an address, as the kernel reports it.
fn protection(at: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(range.0)..number(range.1)).contains(&at)
    });
    of.expect("the region is mapped").split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn pages_that_a_full_device_made_read_only_become_what_their_permissions_say() {
    let folder = tempfile::tempdir().unwrap();
    let Some((pool, addr, _)) = pool(&folder, Mapping::Full) else { return };
    let cache = &pool.owned().unwrap().cache;
    let at = pool.pointer(addr, 8).unwrap().addr();
    let index = cache.index_of(0, addr.page());
    let set = |read, write| {
        pool.setperms(addr, PAGE, Permissions { read, write, lifetime: Lifetime::Permanent }).unwrap();
    };
    set(true, true);
    assert_eq!(protection(at), "rw-p");
    cache.make_page_read_only(&mut cache.lock(), index);
    assert_eq!(protection(at), "r--p");
    set(true, false);
    cache.restore_write_access();
    assert_eq!(protection(at), "r--p", "a read-only page became writable");
    set(true, true);
    cache.make_page_read_only(&mut cache.lock(), index);
    set(false, false);
    cache.restore_write_access();
    assert_eq!(protection(at), "---p", "a hidden page became writable");
    // A store through the mapping would fail, but a write by call may find room on flash.
    set(true, true);
    cache.make_page_read_only(&mut cache.lock(), index);
    pool.write(addr, b"by call").unwrap();
    assert_eq!(protection(at), "rw-p");
    pool.close().unwrap();
}

#[test]
fn a_stopped_pool_copies_nothing_from_memory_that_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let Some((pool, addr, _)) = pool(&folder, Mapping::Full) else { return };
    pool.write(addr, b"dirty").unwrap();
    let cache = &pool.owned().unwrap().cache;
    let segments = cache.take_dirty(0, usize::MAX, &|_| true);
    assert_eq!(segments.len(), 1);
    cache.halt(&mut cache.lock(), "a test stops it");
    let mut buffer = [7; 4096];
    // The memory is inaccessible now: to copy from it would end the process.
    cache.copy_contents(&segments, &[0], &mut [&mut buffer[..]]);
    assert!(buffer.iter().all(|&byte| byte == 7));
}

/// Panics in another thread while it holds the result of `hold`.
fn panic_with<T>(hold: impl FnOnce() -> T + Send) {
    std::thread::scope(|scope| {
        let panicking = scope.spawn(|| {
            let _held = hold();
            panic!("on purpose");
        });
        assert!(panicking.join().is_err());
    });
}

fn is_stopped<T>(result: Result<T>) -> bool {
    matches!(result, Err(PoolError::Stopped { .. }))
}

/// Checks that every call that changes memory, or makes it durable, returns the error, and that the token is intact
/// afterwards.
fn everything_stops(folder: &tempfile::TempDir, pool: Pool, addr: Addr, token: Epoch) {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        let all = Permissions::read_write(Lifetime::Permanent);
        assert!(is_stopped(pool.sync()), "sync");
        assert!(is_stopped(pool.alloc(PAGE, Lifetime::Permanent)), "alloc");
        assert!(is_stopped(pool.free(addr, PAGE)), "free");
        assert!(is_stopped(pool.setperms(addr, PAGE, all)), "setperms");
        assert!(is_stopped(pool.rollback(token)), "rollback");
        assert!(is_stopped(pool.create_pmem_region(addr, PAGE)), "create_pmem_region");
        assert!(is_stopped(pool.persist(addr, 8)), "persist");
        assert!(is_stopped(pool.evict_range(addr, PAGE)), "evict_range");
        assert!(is_stopped(pool.write(addr, b"lost")), "write");
        assert!(is_stopped(pool.read(addr, &mut [0; 8])), "read");
        assert!(is_stopped(pool.load(addr, &mut [0; 8])), "load");
        assert!(is_stopped(pool.gather(&[addr], 8, &mut [0; 8])), "gather");
        assert!(is_stopped(pool.close()), "close");
        done.send(()).unwrap();
    });
    let in_time = ended.recv_timeout(PATIENCE);
    if thread.is_finished() || in_time.is_ok() {
        thread.join().unwrap();
    }
    in_time.expect("a call hangs");
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
    let pool = Pool::open(&[folder.path().join("pool")], &options).unwrap();
    assert_eq!(pool.history().unwrap().last().unwrap().token, token);
    let mut bytes = [0; 6];
    pool.read(addr, &mut bytes).unwrap();
    assert_eq!(&bytes, b"synced");
}

#[test]
fn a_panic_that_leaves_the_cache_half_changed_stops_the_pool() {
    for mapping in [Mapping::Off, Mapping::Full] {
        let folder = tempfile::tempdir().unwrap();
        let Some((pool, addr, token)) = pool(&folder, mapping) else { return };
        panic_with(|| pool.owned().unwrap().cache.lock());
        everything_stops(&folder, pool, addr, token);
    }
}

#[test]
fn a_panic_that_leaves_the_log_half_changed_stops_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let Some((pool, addr, token)) = pool(&folder, Mapping::Off) else { return };
    panic_with(|| pool.owned().unwrap().stores[0].lock_log());
    everything_stops(&folder, pool, addr, token);
}

#[test]
fn threads_that_wait_for_a_change_are_told_when_a_panic_stops_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let Some((pool, addr, token)) = pool(&folder, Mapping::Off) else { return };
    let cache = &pool.owned().unwrap().cache;
    pool.evict_range(addr, PAGE).unwrap();
    // No thread ever ends this fill.
    let index = cache.index_of(0, addr.page());
    assert!(cache.begin_fill(&mut cache.lock(), index, AccessKind::Read).unwrap());
    let (done, ended) = channel();
    let waiting = pool.clone();
    std::thread::spawn(move || done.send(is_stopped(waiting.read(addr, &mut [0; 8]))).unwrap());
    while cache.waiters() == 0 {
        std::thread::yield_now();
    }
    panic_with(|| pool.owned().unwrap().cache.lock());
    assert!(ended.recv_timeout(PATIENCE).expect("the reader hangs"));
    everything_stops(&folder, pool, addr, token);
}

#[test]
fn a_pool_serves_its_statistics_until_it_is_closed() {
    use std::net::TcpStream;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    Pool::create(&[&path], &CreateOptions::new(MIB)).unwrap();
    let any: crate::ListenAddress = "127.0.0.1:0".parse().unwrap();
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off).listen(any.clone());
    let pool = Pool::open(&[&path], &options).unwrap();
    let Some(address @ crate::ListenAddress::Loopback(port)) = pool.listen_address().unwrap() else {
        panic!("no port")
    };
    assert_ne!(address, any);
    TcpStream::connect(port).unwrap();

    let other = folder.path().join("other");
    Pool::create(&[&other], &CreateOptions::new(MIB)).unwrap();
    let taken = OpenOptions::new(16 * MIB).mapping(Mapping::Off).listen(address);
    let error = Pool::open(&[&other], &taken).err().unwrap();
    assert!(matches!(&error, PoolError::Option { option: "listen", .. }), "{error}");
    pool.close().unwrap();
    assert!(TcpStream::connect(port).is_err());
    let pool = Pool::open(&[&other], &taken.mapping(Mapping::Off)).unwrap();
    TcpStream::connect(port).unwrap();
    pool.abandon().unwrap();
    assert!(TcpStream::connect(port).is_err());
}
