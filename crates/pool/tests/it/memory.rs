//! Memory controllers: regions, flushing by every method, pools that have one, hostile files.
//! `memory_crashes.rs` loses lines that were not flushed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use deepram_pool::memory::{FlushMethod, MemoryController, MemoryKind, MemoryOptions, Selective};
use deepram_pool::{
    Addr, CreateOptions, Lifetime, Mapping, MemoryFile, OpenOptions, Permissions, Pool, PoolError,
};
use deepram_testkit::seeds;
use rand::RngExt;

const PAGE: u64 = 64 << 10;
const KERNEL_PAGE: u64 = 4096;

/// A memory file without a name, of this much memory.
pub(crate) fn memory_file(size: u64) -> File {
    let fd = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(fd);
    MemoryController::create_in_file(&file, size).unwrap();
    file
}

/// The same file, opened once more: a lock excludes other openings.
pub(crate) fn again(file: &File) -> File {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(true).open(path).unwrap()
}

fn open(file: &File, options: &MemoryOptions) -> MemoryController {
    MemoryController::open_file(again(file), options).unwrap()
}

/// The searches for dirty pages that this machine allows.
pub(crate) fn searches() -> Vec<Selective> {
    let file = memory_file(PAGE);
    let works = |&selective: &Selective| {
        let options = MemoryOptions { selective, ..MemoryOptions::default() };
        let opened = MemoryController::open_file(again(&file), &options);
        opened.map_err(|error| eprintln!("skipped: {error}")).is_ok()
    };
    [Selective::Off, Selective::Scan, Selective::List].into_iter().filter(works).collect()
}

#[test]
fn regions_outlive_an_opening_and_freed_memory_is_zeros() {
    for selective in searches() {
        let options = MemoryOptions { selective, ..MemoryOptions::default() };
        let file = memory_file(16 * PAGE);
        let memory = open(&file, &options);
        let a = memory.create_region("a", 3 * PAGE).unwrap();
        let b = memory.create_region("b", 1).unwrap();
        assert_eq!((a.len, b.len, b.offset), (3 * PAGE, PAGE, a.offset + a.len));
        memory.write(a.offset, &vec![7; 3 * PAGE as usize]).unwrap();
        memory.write(b.offset, b"kept").unwrap();
        memory.flush_all().unwrap();
        memory.remove_region(a.offset).unwrap();
        let not_allocated =
            |result: Result<(), PoolError>| assert!(matches!(result, Err(PoolError::NotAllocated { .. })));
        not_allocated(memory.write(a.offset, &[1]));
        not_allocated(memory.remove_region(a.offset));
        not_allocated(memory.remove_region(b.offset + 1));
        not_allocated(memory.read(b.offset + b.len - 1, &mut [0; 2]));
        assert!(memory.persist(u64::MAX, 2).is_err());
        drop(memory);

        let memory = open(&file, &options);
        assert_eq!(memory.info().regions, std::slice::from_ref(&b));
        assert_eq!(
            (memory.region("a"), memory.region("b"), memory.region("")),
            (None, Some(b.clone()), None)
        );
        let c = memory.create_region("", 3 * PAGE).unwrap();
        assert_eq!(c.offset, a.offset, "the first gap");
        let mut bytes = vec![1; 3 * PAGE as usize];
        memory.read(c.offset, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        // Stores to memory that was freed before are still noticed.
        memory.write(c.offset, &[5]).unwrap();
        let counts = memory.flush(c.offset, c.len).unwrap();
        assert!(counts.lines_written_back >= KERNEL_PAGE / 64, "{counts:?}");
        memory.read(b.offset, &mut bytes[..4]).unwrap();
        assert_eq!(&bytes[..4], b"kept");
    }
}

#[test]
fn what_cannot_be_allocated_says_why() {
    let memory = open(&memory_file(4 * PAGE), &MemoryOptions::default());
    memory.create_region("a", PAGE).unwrap();
    let told = |name: &str, len, words: &str| {
        let error = memory.create_region(name, len).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    told("a", PAGE, "has a region of this name");
    told("b", 4 * PAGE, "no 256 KiB of contiguous free address space");
    told("b", u64::MAX, "contiguous free address space");
    told("b", 0, "0 bytes cannot be allocated");
    told(&"n".repeat(112), PAGE, "at most 111 bytes");
    for size in [0, u64::MAX, 1 << 60] {
        let file = File::from(rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let error = MemoryController::create_in_file(&file, size).unwrap_err().to_string();
        assert!(error.contains("give 64 KiB to just below 16 TiB"), "{error}");
    }
}

#[test]
fn ranges_of_any_length_are_checked_against_the_regions() {
    let memory = open(&memory_file(200 * PAGE), &MemoryOptions::default());
    let regions = [("a", 60), ("b", 50), ("gap", 3), ("c", 80)]
        .map(|(name, pages)| memory.create_region(name, pages * PAGE).unwrap());
    let [a, b, gap, c] = &regions;
    memory.remove_region(gap.offset).unwrap();
    let end = b.offset + b.len;
    for (offset, len, allowed) in [
        (a.offset, a.len + b.len, true),
        (a.offset + 1, a.len + b.len - 1, true),
        (a.offset, a.len + b.len + 1, false),
        (a.offset - 1, 100 * PAGE, false),
        (end - 40 * PAGE, 40 * PAGE, true),
        (end - 40 * PAGE, 44 * PAGE, false),
        (c.offset, c.len, true),
        (c.offset, c.len + 1, false),
        (c.offset, u64::MAX, false),
        (u64::MAX - 5, 3, false),
    ] {
        assert_eq!(memory.flush(offset, len).is_ok(), allowed, "{len} bytes at {offset}");
    }
}

#[test]
fn every_method_and_search_flushes_and_keeps_the_bytes() {
    for selective in searches() {
        for method in FlushMethod::ALL.into_iter().filter(|method| method.is_available()) {
            let options = MemoryOptions { method, selective, barrier: Duration::from_nanos(100) };
            let file = memory_file(8 * PAGE);
            let memory = open(&file, &options);
            assert_eq!((memory.search(), memory.options()), (selective.name(), options));
            let region = memory.create_region("r", 8 * PAGE).unwrap();
            let mut expected = vec![0; region.len as usize];
            seeds::each(3, |seed| {
                let mut rng = seeds::rng(seed);
                for _ in 0..200 {
                    let start = rng.random_range(0..region.len);
                    let len = rng.random_range(0..=(region.len - start).min(20_000));
                    if rng.random_ratio(1, 2) {
                        let part = &mut expected[start as usize..(start + len) as usize];
                        rng.fill(&mut *part);
                        memory.write(region.offset + start, part).unwrap();
                    } else if rng.random_ratio(1, 2) {
                        memory.flush(region.offset + start, len).unwrap();
                    } else {
                        memory.persist(region.offset + start, len).unwrap();
                    }
                }
                let mut bytes = vec![0; region.len as usize];
                memory.read(region.offset, &mut bytes).unwrap();
                assert!(bytes == expected, "{method} {selective:?}");
            });
            drop(memory);
            let mut bytes = vec![0; region.len as usize];
            file.read_exact_at(&mut bytes, region.offset).unwrap();
            assert!(bytes == expected, "{method} {selective:?}");
        }
    }
}

#[test]
fn a_selective_flush_writes_back_dirty_pages_only() {
    for selective in searches().into_iter().filter(|&selective| selective != Selective::Off) {
        // A method that stores must not make the pages dirty again.
        for method in [FlushMethod::best(), FlushMethod::NonTemporal] {
            let options = MemoryOptions { method, selective, ..MemoryOptions::default() };
            let memory = open(&memory_file(64 * PAGE), &options);
            let region = memory.create_region("r", 64 * PAGE).unwrap();
            let lines = |pages: u64| pages * KERNEL_PAGE / 64;
            // Few dirty pages may stay dirty, many are cleared.
            let dirty: Vec<u64> = (0..20).map(|n| n * 3 + 1).collect();
            memory.flush(region.offset, region.len).unwrap();
            for &page in &dirty {
                memory.write(region.offset + page * KERNEL_PAGE + 100, &[1]).unwrap();
            }
            let counts = memory.flush(region.offset, region.len).unwrap();
            assert_eq!(
                (counts.pages_dirty, counts.lines_written_back),
                (20, lines(20)),
                "{selective:?} {method}"
            );
            let counts = memory.flush(region.offset, region.len).unwrap();
            assert_eq!(counts.pages_dirty, 0, "{selective:?} {method}");
            // A part of a page: its lines alone, and the page stays dirty.
            memory.write(region.offset + 5, &[1; 200]).unwrap();
            let counts = memory.flush(region.offset + 70, 10).unwrap();
            assert_eq!((counts.pages_dirty, counts.lines_written_back), (1, 1), "{selective:?} {method}");
            let counts = memory.flush(region.offset, KERNEL_PAGE).unwrap();
            assert_eq!(
                (counts.pages_dirty, counts.lines_written_back),
                (1, lines(1)),
                "{selective:?} {method}"
            );
        }
    }
}

#[test]
fn threads_that_store_and_flush_the_same_pages_keep_their_values() {
    const THREADS: u64 = 4;
    for selective in searches() {
        let options = MemoryOptions { selective, ..MemoryOptions::default() };
        let memory = open(&memory_file(8 * PAGE), &options);
        let region = memory.create_region("r", 8 * PAGE).unwrap();
        let pointer = memory.pointer(region.offset, region.len).unwrap();
        let words = region.len / 8;
        // SAFETY: aligned words of the region, which is mapped as long as `memory`.
        let word = |n: u64| unsafe { AtomicU64::from_ptr(pointer.wrapping_add(n as usize * 8).cast()) };
        let word = |n: u64| -> &AtomicU64 { word(n) };
        let base = pointer.addr();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let memory = &memory;
                scope.spawn(move || {
                    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(base);
                    // SAFETY: as above.
                    let word =
                        |n: u64| unsafe { AtomicU64::from_ptr(pointer.wrapping_add(n as usize * 8).cast()) };
                    for n in 0..3000 {
                        let mine = (n * 97 * THREADS + thread) % words;
                        let mine = mine - mine % THREADS + thread;
                        word(mine).store(n * THREADS + thread, Relaxed);
                        if n % 8 == 0 {
                            memory.flush(region.offset, region.len).unwrap();
                        } else {
                            memory.persist(region.offset + mine * 8, 8).unwrap();
                        }
                        assert_eq!(word(mine).load(Relaxed), n * THREADS + thread);
                    }
                });
            }
        });
        assert!(
            (0..words).all(|n| word(n).load(Relaxed) == 0 || word(n).load(Relaxed) % THREADS == n % THREADS)
        );
    }
}

#[test]
fn the_kernel_stores_to_tracked_pages_on_behalf_of_a_program() {
    for selective in searches() {
        let options = MemoryOptions { selective, ..MemoryOptions::default() };
        let memory = open(&memory_file(4 * PAGE), &options);
        let region = memory.create_region("r", 4 * PAGE).unwrap();
        let pointer = memory.pointer(region.offset, region.len).unwrap();
        memory.flush(region.offset, region.len).unwrap();
        let source = File::open("/proc/self/exe").unwrap();
        // SAFETY: the buffer is the region, which no other thread uses.
        let buffer = unsafe { std::slice::from_raw_parts_mut(pointer, 3 * PAGE as usize) };
        source.read_exact_at(buffer, 0).unwrap();
        let counts = memory.flush(region.offset, region.len).unwrap();
        assert!(counts.lines_written_back >= 3 * PAGE / 64, "{selective:?} {counts:?}");
    }
}

#[test]
fn a_file_behind_a_page_cache_is_refused() {
    let path =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cached-{}", std::process::id()));
    match MemoryController::create(&path, PAGE) {
        Err(PoolError::Memory { problem, .. }) => assert!(problem.contains("page cache"), "{problem}"),
        // The tests may lie on a file system in memory.
        Ok(()) => std::fs::remove_file(&path).unwrap(),
        Err(error) => panic!("{error}"),
    }
    assert!(!path.exists(), "a file is left");
}

#[test]
fn hostile_and_damaged_files_are_errors() {
    let file = memory_file(8 * PAGE);
    let memory = open(&file, &MemoryOptions::default());
    for name in ["a", "b", "c"] {
        memory.create_region(name, PAGE).unwrap();
    }
    drop(memory);
    let mut sound = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut sound, 0).unwrap();
    let put = |bytes: &[u8]| {
        let file = File::from(rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(bytes, 0).unwrap();
        MemoryController::open_file(file, &MemoryOptions::default())
    };
    assert!(put(&sound).is_ok());
    let told = |bytes: &[u8], words: &str| {
        let error = put(bytes).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    told(&[], "does not start with the header");
    told(&[0; 8192], "does not start with the header");
    told(&sound[..sound.len() - 1], "is truncated");
    told(&sound[..PAGE as usize + 10], "is truncated");
    let record = PAGE as usize;
    let mut twice = sound.clone();
    twice.copy_within(record..record + 128, record + 5 * 128);
    told(&twice, "overlap in page 2");
    seeds::each(200, |seed| {
        let mut rng = seeds::rng(seed);
        let mut bytes = sound.clone();
        for _ in 0..rng.random_range(1..20) {
            let own = rng.random_range(0..4096);
            let at = if rng.random_ratio(1, 2) { own } else { record + own };
            bytes[at] = rng.random();
        }
        // Any error, or the regions that are left: never a panic, nor regions that reach beyond the file.
        if let Ok(memory) = put(&bytes) {
            assert!(
                memory.info().regions.iter().all(|region| region.offset + region.len <= bytes.len() as u64)
            );
        }
    });
}

#[test]
fn a_file_that_is_open_is_busy() {
    let file = memory_file(PAGE);
    let memory = open(&file, &MemoryOptions::default());
    let busy = MemoryController::open_file(again(&file), &MemoryOptions::default());
    assert!(matches!(busy, Err(PoolError::Busy { .. })), "{busy:?}");
    drop(memory);
    open(&file, &MemoryOptions::default());
}

/// A pool with one journaled and some memory controllers. Their files go with it.
struct Files {
    folder: tempfile::TempDir,
    shared: tempfile::TempDir,
}

impl Files {
    fn new(memories: usize) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let shared = tempfile::tempdir_in("/dev/shm").unwrap();
        let files = Self { folder, shared };
        let memory = (0..memories).map(|n| MemoryFile { path: files.memory(n), size: 16 * PAGE }).collect();
        let options = CreateOptions { memory, ..CreateOptions::new(16 * PAGE) };
        Pool::create(&[files.pool()], &options).unwrap();
        files
    }

    fn pool(&self) -> std::path::PathBuf {
        self.folder.path().join("data.pool")
    }

    fn memory(&self, n: usize) -> std::path::PathBuf {
        self.shared.path().join(format!("{n}.mem"))
    }

    fn open(&self, memories: &[usize]) -> deepram_pool::Result<Pool> {
        let mut paths: Vec<_> = memories.iter().map(|&n| self.memory(n)).collect();
        paths.push(self.pool());
        Pool::open(&paths, &OpenOptions::new(16 << 20).mapping(Mapping::Off))
    }
}

#[test]
fn a_pool_persists_on_its_memory_controller_in_place() {
    let files = Files::new(2);
    let pool = files.open(&[1, 0]).unwrap();
    let journaled = pool.alloc(PAGE, Lifetime::Permanent).unwrap();
    assert_eq!(journaled.controller(), 0);
    let addr = pool.alloc_on(2, 2 * PAGE, Lifetime::Permanent).unwrap();
    assert_eq!(addr.controller(), 2);
    assert_eq!(pool.memory(2).unwrap().device(), files.memory(1).display().to_string());
    pool.create_pmem_region(addr, 2 * PAGE).unwrap();
    assert!(pool.is_pmem_region(addr).unwrap());
    pool.set_root("counts", addr, 2 * PAGE).unwrap();
    pool.sync().unwrap();
    // Without another sync: by call, by pointer, asynchronously.
    pool.write(addr, b"in place").unwrap();
    pool.persist(addr, 8).unwrap();
    let words = pool.words(addr, 100).unwrap();
    words[50].store(51, Relaxed);
    let persist = pool.persist_async(addr.offset_by(400).unwrap(), 8).unwrap();
    pool.wait(persist).unwrap();
    assert!(pool.is_durable(persist));
    let pointer = pool.pointer(addr, 8).unwrap();
    assert_eq!(pool.address_of(pointer.wrapping_add(9)), Some(addr.offset_by(9).unwrap()));
    let far = addr.offset_by(PAGE).unwrap();
    pool.scatter(&[far, journaled], 4, b"fourfore").unwrap();
    let mut bytes = [0; 8];
    pool.gather(&[journaled, far], 4, &mut bytes).unwrap();
    assert_eq!(&bytes, b"forefour");
    drop(words);
    pool.abandon().unwrap();

    let pool = files.open(&[0, 1]).unwrap();
    let root = pool.root("counts").unwrap();
    assert_eq!(root.addr, addr);
    pool.load(addr, &mut bytes).unwrap();
    assert_eq!(&bytes, b"in place");
    assert_eq!(pool.pointer(addr, 8).unwrap(), pointer, "the same at every opening");
    pool.read(addr.offset_by(400).unwrap(), &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 51);
    let info = pool.info().unwrap().memory;
    assert_eq!(info.iter().map(|memory| memory.allocated.0).collect::<Vec<_>>(), [0, 2 * PAGE]);
    assert!(info.iter().all(|memory| memory.kind == MemoryKind::Emulated && memory.size.0 == 16 * PAGE));
    pool.close().unwrap();
    let inspected = Pool::inspect(&[files.memory(1), files.memory(0), files.pool()]).unwrap();
    assert_eq!(inspected.info().memory, info);
}

#[test]
fn what_in_place_memory_cannot_do_is_an_error_that_says_so() {
    let files = Files::new(1);
    let pool = files.open(&[0]).unwrap();
    let token = pool.sync().unwrap();
    let addr = pool.alloc_on(1, 2 * PAGE, Lifetime::Permanent).unwrap();
    let told = |error: PoolError, words: &str| assert!(error.to_string().contains(words), "{error}");
    told(pool.alloc_on(1, PAGE, Lifetime::Temporary).unwrap_err(), "is permanent");
    told(pool.alloc_on(2, PAGE, Lifetime::Permanent).unwrap_err(), "number of controllers is 2");
    told(pool.alloc_on(1, 100 * PAGE, Lifetime::Permanent).unwrap_err(), "controller 1 has no 6.25 MiB");
    told(pool.rollback(token).unwrap_err(), "without its memory controllers");
    let permissions = Permissions::read_write(Lifetime::Permanent);
    assert_eq!(pool.permissions(addr).unwrap(), permissions);
    for error in [
        pool.setperms(addr, PAGE, permissions).unwrap_err(),
        pool.read_at(token, addr, &mut [0]).unwrap_err(),
        pool.remove_pmem_region(addr, PAGE).unwrap_err(),
        pool.will_need(addr, PAGE).unwrap_err(),
    ] {
        told(error, "stores are made in place: the operation needs a journaled controller");
    }
    told(pool.free(addr, PAGE).unwrap_err(), "whole");
    told(pool.free(addr.offset_by(PAGE).unwrap(), PAGE).unwrap_err(), "from the start");
    told(pool.memory(0).unwrap_err(), "no memory controller: give 1");
    for other in [Addr::new(1, 0, 0).unwrap(), Addr::new(1, 4, 0).unwrap(), Addr::new(2, 4, 0).unwrap()] {
        assert!(matches!(pool.persist(other, 1), Err(PoolError::NotAllocated { .. })), "{other}");
        assert!(matches!(pool.write(other, &[1]), Err(PoolError::NotAllocated { .. })), "{other}");
    }
    pool.free(addr, 2 * PAGE).unwrap();
    assert!(matches!(pool.read(addr, &mut [0]), Err(PoolError::NotAllocated { .. })));
    pool.close().unwrap();
}

#[test]
fn a_pool_opens_with_its_own_memory_controllers_or_with_none() {
    let files = Files::new(2);
    let told = |memories: &[usize], words: &str| match files.open(memories) {
        Ok(_) => panic!("it opens with {memories:?}"),
        Err(error) => assert!(error.to_string().contains(words), "{error}"),
    };
    told(&[0], "2 memory controllers; 1 are given");
    told(&[0, 0], "open as a pool in another process");
    MemoryController::create(&files.memory(7), PAGE).unwrap();
    told(&[7], "does not belong to a pool");
    let other = Files::new(1);
    let paths = [other.memory(0), files.pool()];
    let error = Pool::open(&paths, &OpenOptions::new(16 << 20).mapping(Mapping::Off)).err().unwrap();
    assert!(error.to_string().contains("belongs to another pool"), "{error}");
    files.open(&[]).unwrap().close().unwrap();
    files.open(&[0, 1]).unwrap().close().unwrap();
    // A memory controller that exists already: nothing is created.
    let path = files.folder.path().join("second.pool");
    let memory = [3, 1].map(|n| MemoryFile { path: files.memory(n), size: PAGE }).into();
    let options = CreateOptions { memory, ..CreateOptions::new(16 * PAGE) };
    assert!(matches!(Pool::create(&[&path], &options), Err(PoolError::Exists { .. })));
    assert!(!path.exists() && !files.memory(3).exists() && files.memory(1).exists());
}
