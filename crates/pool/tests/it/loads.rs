//! Loads by call: they leave cold segments out of the DRAM cache until the segments are promoted, and always
//! see the newest store. On devices in memory, without mapping; `loads_threads.rs` tests threads and
//! pointers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::gate::Gated;
use deepram_pool::device::Device;
use deepram_pool::{
    Addr, CreateOptions, Lifetime, LoadOptions, Mapping, OpenOptions, Permissions, Pool, PoolError,
    SegmentSize, ThresholdOptions,
};
use deepram_testkit::{FaultyDevice, Op, seeds};
use rand::RngExt;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 1 << 16;
const SEGMENT: u64 = 4096;
/// Memory of a test's pool, far more than its DRAM cache holds.
const DATA: u64 = 16 * MIB;
/// DRAM budget, half of it for tables and buffers, which leaves some 500 frames.
const DRAM: u64 = 5 * MIB;

fn handles(devices: &[FaultyDevice]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|d| Arc::new(d.clone()) as Arc<dyn Device>).collect()
}

fn options(loads: LoadOptions) -> OpenOptions {
    OpenOptions::new(DRAM).mapping(Mapping::Off).loads(loads)
}

fn word(n: u64) -> u64 {
    (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Creates a pool whose 8-byte word n is `word(n)`, and closes it. Returns its device and the address of word
/// 0.
fn filled(segment: SegmentSize) -> (FaultyDevice, Addr) {
    let device = FaultyDevice::new(80 * MIB);
    let devices = handles(std::slice::from_ref(&device));
    Pool::create_on(devices.clone(), &CreateOptions { segment, ..CreateOptions::new(DATA + MIB) }).unwrap();
    let pool = Pool::open_on(devices, &OpenOptions::new(4 * DRAM).mapping(Mapping::Off)).unwrap();
    let addr = pool.alloc(DATA, Lifetime::Permanent).unwrap();
    let bytes: Vec<u8> = (0..DATA / 8).flat_map(|n| word(n).to_ne_bytes()).collect();
    pool.write(addr, &bytes).unwrap();
    pool.close().unwrap();
    (device, addr)
}

fn open(device: &FaultyDevice, loads: LoadOptions) -> Pool {
    Pool::open_on(handles(std::slice::from_ref(device)), &options(loads)).unwrap()
}

/// Address of word n.
fn at(first: Addr, n: u64) -> Addr {
    first.offset_by(n * 8).unwrap()
}

fn load(pool: &Pool, addr: Addr) -> u64 {
    let mut bytes = [0; 8];
    pool.load(addr, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Fills the DRAM cache with other data, so that no segment of the first MiB stays resident. Also keeps the
/// device buffer in use, with segments that no test uses otherwise, because an unused buffer gives its memory
/// up.
fn push_out(pool: &Pool, first: Addr) {
    let mut bytes = vec![0; PAGE as usize];
    for page in MIB / PAGE..DATA / PAGE {
        pool.read(first.offset_by(page * PAGE).unwrap(), &mut bytes).unwrap();
        load(pool, at(first, 512 * (100 + page / 7)));
    }
}

#[test]
fn a_cold_load_leaves_the_dram_cache_alone_until_it_is_promoted() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions::default());
    assert_eq!(pool.stats().promotion_threshold, 7);
    for use_ in 1..=7 {
        assert_eq!(load(&pool, at(first, 3)), word(3));
        let stats = pool.stats();
        assert_eq!(stats.cold_reads, 1, "one read of the device: {stats:?}");
        assert_eq!(stats.buffer_hits, use_ - 1);
        assert_eq!((stats.resident_segments, stats.promotions), if use_ < 7 { (0, 0) } else { (1, 1) });
        assert_eq!(stats.buffered_segments, u64::from(use_ < 7));
    }
    let reads = device.stats().reads;
    let mut bytes = [0; 8];
    pool.read(at(first, 4), &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), word(4));
    assert_eq!(load(&pool, at(first, 5)), word(5));
    assert_eq!(device.stats().reads, reads, "a promoted segment is resident");
    assert_eq!(pool.stats().buffer_hits, 6);
}

#[test]
fn nothing_is_promoted_where_that_is_off() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions { promotion: None, ..LoadOptions::default() });
    for _ in 0..1000 {
        assert_eq!(load(&pool, at(first, 3)), word(3));
    }
    let stats = pool.stats();
    assert_eq!((stats.resident_segments, stats.promotions, stats.cold_reads), (0, 0, 1));
    assert_eq!(stats.promotion_threshold, 0);
}

#[test]
fn the_threshold_and_the_epoch_are_options() {
    let (device, first) = filled(SegmentSize::K4);
    let threshold = ThresholdOptions { max_threshold: 2, reset_epoch: 3, ..ThresholdOptions::default() };
    let pool = open(&device, LoadOptions { promotion: Some(threshold), ..LoadOptions::default() });
    let loaded = |n: u64| {
        assert_eq!(load(&pool, at(first, n * 512)), word(n * 512));
        (pool.stats().promotions, pool.stats().promotion_threshold)
    };
    // Two uses of three are of a promoted segment: the threshold stays. Then two uses of two: it falls.
    assert_eq!([loaded(0), loaded(1), loaded(1)], [(0, 2), (0, 2), (1, 2)]);
    assert_eq!([loaded(2), loaded(2)], [(1, 2), (2, 2)]);
    let wrong = [
        LoadOptions { depth: 0, ..LoadOptions::default() },
        LoadOptions { buffer: Some(DRAM), ..LoadOptions::default() },
        LoadOptions {
            promotion: Some(ThresholdOptions { max_threshold: 0, ..threshold }),
            ..LoadOptions::default()
        },
        LoadOptions {
            promotion: Some(ThresholdOptions { low_ratio: 0.8, ..threshold }),
            ..LoadOptions::default()
        },
        LoadOptions {
            promotion: Some(ThresholdOptions { reset_epoch: 0, ..threshold }),
            ..LoadOptions::default()
        },
    ];
    pool.abandon().unwrap();
    for loads in wrong {
        let opened = Pool::open_on(handles(std::slice::from_ref(&device)), &options(loads.clone()));
        assert!(matches!(opened, Err(PoolError::Option { .. })), "{loads:?}");
    }
}

#[test]
fn a_fault_of_a_buffered_segment_reads_no_device() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions::default());
    assert_eq!(load(&pool, at(first, 3)), word(3));
    let reads = device.stats().reads;
    pool.store(at(first, 4), &[7; 8]).unwrap();
    assert_eq!(device.stats().reads, reads);
    assert_eq!((load(&pool, at(first, 3)), load(&pool, at(first, 4))), (word(3), u64::from_ne_bytes([7; 8])));
    assert_eq!((pool.stats().buffered_segments, pool.stats().resident_segments), (0, 1));
}

/// Fails if a segment that becomes resident stays in the device buffer.
#[test]
fn a_load_sees_the_newest_store_when_the_segment_is_cold_again() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions::default());
    assert_eq!(load(&pool, at(first, 3)), word(3));
    pool.write(at(first, 3), &[7; 8]).unwrap();
    pool.sync().unwrap();
    push_out(&pool, first);
    let evicted = pool.stats().evictions;
    assert!(evicted > 0);
    let reads = device.stats().reads;
    assert_eq!(load(&pool, at(first, 3)), u64::from_ne_bytes([7; 8]));
    assert!(device.stats().reads > reads, "the segment must be cold");
}

/// Fails if a rollback leaves the device buffer unchanged.
#[test]
fn a_load_after_a_rollback_or_a_free_sees_what_is_there_now() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions { promotion: None, ..LoadOptions::default() });
    let token = pool.sync().unwrap();
    pool.write(at(first, 3), &[7; 8]).unwrap();
    pool.sync().unwrap();
    push_out(&pool, first);
    assert_eq!(load(&pool, at(first, 3)), u64::from_ne_bytes([7; 8]));
    let buffered = pool.stats().buffered_segments;
    pool.rollback(token).unwrap();
    assert_eq!(pool.stats().buffered_segments, buffered - 1);
    assert_eq!(load(&pool, at(first, 3)), word(3));
    assert_eq!(pool.stats().buffered_segments, buffered);
    pool.free(first, PAGE).unwrap();
    assert_eq!(pool.stats().buffered_segments, buffered - 1);
    let mut byte = [0];
    assert!(matches!(pool.load(first, &mut byte), Err(PoolError::NotAllocated { .. })));
    assert_eq!(pool.alloc(PAGE, Lifetime::Permanent).unwrap(), first, "not the lowest free page");
    assert_eq!(load(&pool, at(first, 3)), 0);
}

/// Runs `change` after a load has read the old bytes and before it checks the cache again. The load is a
/// `gather` if `gather` is set.
fn overtaken(gather: bool, change: impl Fn(&Pool, Addr)) -> (u64, u64) {
    let (device, first) = filled(SegmentSize::K4);
    let gate = Gated::new(&device);
    let pool = Pool::open_on(vec![Arc::new(gate.clone())], &options(LoadOptions::default())).unwrap();
    // The needed parts of the tables are read first.
    assert_eq!(load(&pool, at(first, 520)), word(520));
    assert_eq!(load(&pool, at(first, 0)), word(0));
    push_out(&pool, first);
    pool.write(at(first, 3), &word(3).to_ne_bytes()).unwrap();
    pool.sync().unwrap();
    push_out(&pool, first);
    gate.armed.store(true, SeqCst);
    let during = std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            if !gather {
                return load(&pool, at(first, 3));
            }
            let mut bytes = [0; 16];
            pool.gather(&[at(first, 2000), at(first, 3)], 8, &mut bytes).unwrap();
            assert_eq!(bytes[..8], word(2000).to_ne_bytes());
            u64::from_ne_bytes(bytes[8..].try_into().unwrap())
        });
        gate.until_held();
        change(&pool, first);
        gate.let_go();
        loading.join().unwrap()
    });
    assert!(pool.stats().stale_reads >= 1, "{:?}", pool.stats());
    (during, load(&pool, at(first, 3)))
}

/// Fails if an overtaken read puts its bytes into the device buffer.
#[test]
fn a_read_that_a_store_and_its_write_back_overtake_is_repeated() {
    for gather in [false, true] {
        let new = u64::from_ne_bytes([9; 8]);
        let stored = overtaken(gather, |pool, first| {
            pool.write(at(first, 3), &[9; 8]).unwrap();
            // The gather's other segment changes too, as either read may be the held one.
            pool.write(at(first, 2000), &word(2000).to_ne_bytes()).unwrap();
            pool.sync().unwrap();
            push_out(pool, first);
        });
        assert_eq!(stored, (new, new));
        let resident = overtaken(gather, |pool, first| {
            pool.write(at(first, 3), &[9; 8]).unwrap();
            pool.write(at(first, 2000), &word(2000).to_ne_bytes()).unwrap();
        });
        assert_eq!(resident, (new, new));
    }
}

#[test]
fn a_read_that_a_rollback_overtakes_is_repeated() {
    let rolled_back = overtaken(false, |pool, _| {
        // The word was written again before the last token.
        let tokens = pool.history().unwrap();
        pool.rollback(tokens[tokens.len() - 2].token).unwrap();
    });
    assert_eq!(rolled_back, (word(3), word(3)));
}

#[test]
fn a_gather_is_many_loads() {
    seeds::each(4, |seed| {
        let mut rng = seeds::rng(seed);
        for segment in [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16] {
            let (device, first) = filled(segment);
            let slots = rng.random_range(1..40);
            let loads = LoadOptions {
                buffer: Some(slots * segment.bytes()),
                depth: rng.random_range(1..50),
                ..LoadOptions::default()
            };
            let dram = OpenOptions { dram: DRAM / SEGMENT * segment.bytes(), ..options(loads) };
            let pool = Pool::open_on(handles(std::slice::from_ref(&device)), &dram).unwrap();
            for len in [1, 8, 13, 5000, 20_000] {
                let mut resident = [0; 8];
                pool.read(at(first, rng.random_range(0..DATA / 8)), &mut resident).unwrap();
                let mut starts: Vec<u64> =
                    (0..rng.random_range(0..200)).map(|_| rng.random_range(0..DATA - len)).collect();
                // Some addresses repeat, some are adjacent, some are in a resident segment.
                starts.extend(starts.clone().iter().take(20));
                starts.extend((0..starts.len() as u64 / 4).map(|n| n * 8));
                let addresses: Vec<Addr> = starts.iter().map(|&s| first.offset_by(s).unwrap()).collect();
                let mut found = vec![0; starts.len() * len as usize];
                pool.gather(&addresses, len as usize, &mut found).unwrap();
                for (start, found) in starts.iter().zip(found.chunks(len as usize)) {
                    let byte = |n: u64| word(n / 8).to_ne_bytes()[(n % 8) as usize];
                    assert!((*start..).zip(found).all(|(n, found)| byte(n) == *found), "{len} at {start}");
                }
            }
            let stats = pool.stats();
            assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");
        }
    });
}

#[test]
fn a_scatter_is_many_stores_in_order() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions { buffer: Some(64 * SEGMENT), ..LoadOptions::default() });
    let mut rng = seeds::rng(1);
    let mut model: Vec<u8> = (0..DATA / 8).flat_map(|n| word(n).to_ne_bytes()).collect();
    for len in [1_usize, 8, 300, 5000] {
        // Half of the addresses are in a small range, where they overlap.
        let starts: Vec<u64> =
            (0..300).map(|n| rng.random_range(0..if n % 2 == 0 { 9000 } else { DATA - 5000 })).collect();
        let addresses: Vec<Addr> = starts.iter().map(|&s| first.offset_by(s).unwrap()).collect();
        let from: Vec<u8> = (0..300 * len).map(|_| rng.random_range(0..=255)).collect();
        pool.scatter(&addresses, len, &from).unwrap();
        for (&start, from) in starts.iter().zip(from.chunks(len)) {
            model[start as usize..start as usize + len].copy_from_slice(from);
        }
    }
    pool.sync().unwrap();
    let mut found = vec![0; DATA as usize];
    pool.read(first, &mut found).unwrap();
    assert!(found == model);
    pool.close().unwrap();
    open(&device, LoadOptions::default()).load(first, &mut found).unwrap();
    assert!(found == model);
}

#[test]
fn loads_go_to_all_controllers() {
    let devices: Vec<FaultyDevice> = (0..3).map(|_| FaultyDevice::new(20 * MIB)).collect();
    Pool::create_on(handles(&devices), &CreateOptions::new(4 * MIB)).unwrap();
    let large = OpenOptions::new(64 * MIB).mapping(Mapping::Off);
    let pool = Pool::open_on(handles(&devices), &large).unwrap();
    let firsts: Vec<Addr> = (0..3).map(|n| pool.alloc_on(n, 2 * MIB, Lifetime::Permanent).unwrap()).collect();
    let addresses: Vec<Addr> = (0..600).map(|n| firsts[n % 3].offset_by(n as u64 * 3000).unwrap()).collect();
    let words: Vec<u8> = (0..600).flat_map(|n| word(n).to_ne_bytes()).collect();
    pool.scatter(&addresses, 8, &words).unwrap();
    pool.close().unwrap();
    let pool = Pool::open_on(handles(&devices), &large).unwrap();
    let mut found = vec![0; words.len()];
    pool.gather(&addresses, 8, &mut found).unwrap();
    assert_eq!(found, words);
    assert_eq!(pool.stats().resident_segments, 0);
    for device in &devices {
        assert!(device.stats().reads > 100);
    }
}

#[test]
fn damage_and_failures_are_errors_that_name_the_address() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions::default());
    let addresses: Vec<Addr> = (0..100).map(|n| at(first, n * 1024)).collect();
    let mut found = [0; 800];
    pool.gather(&addresses[..50], 8, &mut found[..400]).unwrap();
    device.fail_from(Op::Read, 1, io::ErrorKind::TimedOut);
    let failed = |error: &PoolError| matches!(error, PoolError::Unreadable { .. });
    let error = pool.gather(&addresses, 8, &mut found).unwrap_err();
    assert!(failed(&error) && error.to_string().contains("at address"), "{error}");
    let PoolError::Unreadable { address, source, .. } = error else { unreachable!() };
    assert!(addresses[50..].contains(&address), "{address}");
    assert_eq!(source.kind(), io::ErrorKind::TimedOut);
    assert!(failed(&pool.load(addresses[99], &mut [0; 8]).unwrap_err()));
    assert!(failed(&pool.scatter(&addresses, 8, &found).unwrap_err()));
    // Segments in the device buffer need no device read.
    pool.gather(&addresses[..50], 8, &mut found[..400]).unwrap();
    device.heal();
    pool.gather(&addresses, 8, &mut found).unwrap();
    let expected: Vec<u8> = (0..100).flat_map(|n| word(n * 1024).to_ne_bytes()).collect();
    assert_eq!(found[..], expected[..]);
    pool.abandon().unwrap();

    // The location of word 7 * 1024 on the device.
    let wanted = word(7 * 1024).to_ne_bytes();
    let bytes = device.newest_image().to_vec();
    let places = bytes.chunks(8).enumerate().filter(|(_, bytes)| *bytes == wanted).map(|(n, _)| n * 8);
    places.for_each(|place| device.flip_bit(place as u64 + 4, 3));
    let pool = open(&device, LoadOptions::default());
    for result in [pool.gather(&addresses, 8, &mut found), pool.load(addresses[7], &mut [0; 8])] {
        match result {
            Err(PoolError::Damaged { address, .. }) => assert_eq!(address, addresses[7]),
            other => panic!("{other:?}"),
        }
    }
    pool.gather(&addresses[8..], 8, &mut found[64..]).unwrap();
    assert_eq!(found[64..], expected[64..]);
    assert!(pool.stats().damaged_reads >= 2);
}

#[test]
fn what_may_not_be_loaded_is_an_error() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions::default());
    let beyond = first.offset_by(DATA).unwrap();
    let mut found = [0; 16];
    for result in [
        pool.load(beyond, &mut [0]),
        pool.gather(&[first, beyond], 8, &mut found),
        pool.load(first.offset_by(DATA - 8).unwrap(), &mut found),
        pool.scatter(&[first, beyond], 8, &found.clone()),
    ] {
        match result {
            Err(PoolError::NotAllocated { address }) => assert_eq!(address, beyond),
            other => panic!("{other:?}"),
        }
    }
    for (addresses, len) in [(&[first][..], 8), (&[first, first], 9), (&[first; 17], 1), (&[], 1)] {
        let wrong = |result| matches!(result, Err(PoolError::Option { .. }));
        assert!(
            wrong(pool.gather(addresses, len, &mut found)) && wrong(pool.scatter(addresses, len, &[0; 16]))
        );
    }
    pool.gather(&[], 8, &mut []).unwrap();
    pool.gather(&[first; 3], 0, &mut []).unwrap();
    pool.scatter(&[first; 3], 0, &[]).unwrap();
    assert_eq!(load(&pool, first), word(0));
    let hidden = Permissions { read: false, write: true, lifetime: Lifetime::Permanent };
    pool.setperms(first, 1, hidden).unwrap();
    assert!(matches!(pool.load(first, &mut [0]), Err(PoolError::Permission { .. })));
    assert!(matches!(pool.gather(&[beyond, first][1..], 16, &mut found), Err(PoolError::Permission { .. })));
    pool.scatter(&[first], 8, &[5; 8]).unwrap();
    let other = pool.clone();
    pool.close().unwrap();
    assert!(matches!(other.load(at(first, 1 << 14), &mut [0]), Err(PoolError::Closed)));
    assert!(matches!(other.gather(&[at(first, 1 << 14)], 1, &mut [0]), Err(PoolError::Closed)));
}

#[test]
fn a_buffer_that_nobody_uses_gives_its_memory_back() {
    let (device, first) = filled(SegmentSize::K4);
    let pool = open(&device, LoadOptions { buffer: Some(400 * SEGMENT), ..LoadOptions::default() });
    let addresses: Vec<Addr> = (0..300).map(|n| at(first, n * 512)).collect();
    pool.gather(&addresses, 8, &mut [0; 2400]).unwrap();
    assert_eq!(pool.stats().buffered_segments, 300);
    let mut bytes = vec![0; DATA as usize];
    for _ in 0..20 {
        pool.read(first, &mut bytes).unwrap();
        if pool.stats().buffered_segments == 0 {
            break;
        }
    }
    let stats = pool.stats();
    assert_eq!(stats.buffered_segments, 0, "{stats:?}");
    assert!(stats.dram_bytes <= stats.budget_bytes, "{stats:?}");
    assert_eq!(load(&pool, at(first, 3)), word(3));
}
