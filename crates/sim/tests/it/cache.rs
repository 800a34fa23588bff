//! Miss counts of real traces against libCacheSim's, and the conversion of traces to cache references.

use std::path::PathBuf;

use deepram_sim::SimError;
use deepram_sim::cache::{POLICIES, Policy, ReferenceString, misses};
use deepram_trace::{Item, MemRef, MemoryAccess, ObjectRef, Op, ReadOptions, Request, TraceReader};

fn references(name: &str) -> Option<ReferenceString> {
    let folder = std::env::var_os("DEEPRAM_TRACES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there (set DEEPRAM_TRACES)", path.display());
        return None;
    }
    // The numbers in ARC and LIRS traces are page numbers.
    let options = ReadOptions { unit_bytes: Some(4096), ..ReadOptions::default() };
    Some(ReferenceString::of(TraceReader::open(path, &options).unwrap(), 4096, usize::MAX).unwrap())
}

#[test]
fn misses_of_real_traces_are_as_many_as_libcachesim_counts() {
    // libCacheSim 0.3.5 from PyPI, unit sizes, its default parameters; clock2 is its Clock with
    // n_bit_counter=2, clock with 1.
    // Trace, capacity, references: misses of lru, fifo, clock, clock2, sieve, s3fifo, arc.
    let golden: &[(&str, usize, usize, [u64; 7])] = &[
        (
            "cache/twitter_cluster52_1M.csv.zst",
            50_000,
            1_000_000,
            [158_807, 174_502, 159_785, 158_935, 158_083, 157_446, 156_500],
        ),
        (
            "cache/arc_OLTP.lis.zst",
            50_000,
            914_145,
            [240_918, 262_967, 236_464, 234_737, 235_800, 235_468, 234_720],
        ),
        (
            "cache/arc_P3.lis.zst",
            50_000,
            3_912_296,
            [3_643_910, 3_622_904, 3_632_658, 3_625_868, 3_290_105, 2_990_965, 3_043_138],
        ),
        (
            "cache/lirs_2_pools.trace.gz",
            993,
            100_000,
            [45_622, 50_106, 45_584, 45_580, 45_680, 45_668, 45_700],
        ),
        ("cache/lirs_cpp.trace.gz", 122, 9_047, [2_197, 3_362, 2_054, 1_966, 2_395, 1_777, 1_776]),
        ("cache/lirs_cs.trace.gz", 140, 6_781, [6_657, 6_657, 6_657, 6_657, 6_657, 6_198, 6_657]),
        ("cache/lirs_gli.trace.gz", 252, 6_015, [5_960, 5_960, 5_960, 5_953, 5_932, 5_055, 5_932]),
        (
            "cache/lirs_loop.trace.gz",
            101,
            505_500,
            [505_500, 505_500, 505_500, 505_500, 505_500, 460_091, 505_500],
        ),
        ("cache/lirs_multi1.trace.gz", 260, 15_858, [8_972, 10_489, 8_864, 8_700, 8_424, 7_961, 8_203]),
        ("cache/lirs_multi2.trace.gz", 568, 26_311, [16_596, 18_473, 16_264, 16_092, 16_796, 12_902, 15_832]),
        ("cache/lirs_multi3.trace.gz", 745, 30_241, [19_507, 21_416, 19_228, 19_127, 18_947, 15_809, 18_456]),
        ("cache/lirs_ps.trace.gz", 308, 10_448, [8_742, 9_174, 8_742, 8_718, 8_693, 4_891, 8_693]),
        (
            "cache/lirs_sprite.trace.gz",
            707,
            133_996,
            [18_121, 24_169, 18_211, 17_515, 24_762, 18_809, 19_429],
        ),
    ];
    for (name, capacity, count, expected) in golden {
        let Some(references) = references(name) else {
            continue;
        };
        assert_eq!(references.len(), *count, "{name}");
        let ours = POLICIES.map(|policy| misses(policy, *capacity, &references));
        assert_eq!(ours, *expected, "{name}");
    }
}

fn taken(items: impl IntoIterator<Item = Item>, most: usize) -> ReferenceString {
    ReferenceString::of(items.into_iter().map(Ok::<_, SimError>), 4096, most).unwrap()
}

fn block(device: u32, offset: u64, len: u64, op: Op) -> Item {
    Item::Block(Request { time_ps: None, device, offset, len, op })
}

#[test]
fn a_request_refers_to_each_page_it_touches() {
    let three = taken([block(0, 4095, 4098, Op::Write), block(0, 4096, 1, Op::Read)], 100);
    assert_eq!((three.as_slice(), three.distinct()), (&[0, 1, 2, 1][..], 3));
    let none = taken([block(0, 0, 4096, Op::Trim), block(0, 0, 0, Op::Flush), block(0, 5, 0, Op::Read)], 100);
    assert!(none.is_empty());
}

#[test]
fn the_same_page_of_two_devices_is_two_pages() {
    let two = taken([block(1, 0, 1, Op::Read), block(2, 0, 1, Op::Read), block(1, 9, 1, Op::Read)], 100);
    assert_eq!(two.as_slice(), [0, 1, 0]);
}

#[test]
fn an_object_is_one_reference_whatever_its_size() {
    let object = |id, op| Item::Object(ObjectRef { time_ps: None, id, size: 1 << 30, op });
    let objects = [object(u64::MAX, Op::Read), object(7, Op::Write), object(u64::MAX, Op::Trim)];
    assert_eq!(taken(objects, 100).as_slice(), [0, 1]);
    let memory = Item::Mem(MemRef { gap: 1, addr: 4092, size: 8, access: MemoryAccess::Load });
    assert_eq!(taken([memory], 100).as_slice(), [0, 1]);
}

#[test]
fn a_request_of_all_bytes_there_are_stops_at_the_most() {
    assert_eq!(taken([block(0, 0, u64::MAX, Op::Read)], 1000).len(), 1000);
}

#[test]
fn a_policy_is_found_by_its_name() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    let error = "lfu".parse::<Policy>().unwrap_err().to_string();
    assert!(error.contains("'lfu'") && error.contains("sieve"), "{error}");
}
