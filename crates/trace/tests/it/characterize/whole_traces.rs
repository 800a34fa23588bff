//! Every figure of the characterisation against the plain computations: on generated workloads, and on the real traces of
//! the project's shared folder. Distances, policies and classes, which take a search for each access, are compared on the
//! first 20,000 page accesses; all other figures on the whole trace.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use deepram_core::cache::Policy;
use deepram_trace::characterize::{
    Characterization, CharacterizeOptions, Characterizer, Counted, Denominator, Distribution, Histogram,
    HitRatios, PageRange, Precedence, SpatialCounts, Traffic,
};
use deepram_trace::{Item, MemoryAccess, Op, ReadOptions, TraceReader, Workload};

use super::brute_force::{Request, accesses, distinct, histogram, spatial_classes, stack_distances};
use crate::real_traces::trace;

/// Page accesses whose distances and classes are compared.
const PREFIX: u64 = 20_000;

/// The reads and writes of a trace with their pages, and the numbers of other records: trims, flushes, empty ones.
fn requests(items: &[Item], page: u64) -> (Vec<Request>, [u64; 3]) {
    let (mut requests, mut others) = (Vec::new(), [0; 3]);
    for item in items {
        let (device, first, last, bytes, op) = match item {
            Item::Block(r) => (r.device, r.offset / page, (r.offset + r.len.max(1) - 1) / page, r.len, r.op),
            Item::Mem(m) => {
                let op = if m.access == MemoryAccess::Store { Op::Write } else { Op::Read };
                (0, m.addr / page, (m.addr + u64::from(m.size).max(1) - 1) / page, m.size.into(), op)
            }
            Item::Object(o) => (0, o.id, o.id, o.size, o.op),
        };
        match op {
            Op::Trim => others[0] += 1,
            Op::Flush => others[1] += 1,
            Op::Read | Op::Write if bytes == 0 && !matches!(item, Item::Object(_)) => others[2] += 1,
            Op::Read | Op::Write => requests.push(Request {
                range: PageRange { device, first, last },
                bytes,
                write: op == Op::Write,
                time_ps: item.time_ps(),
            }),
        }
    }
    (requests, others)
}

fn pages_of(request: Option<&Request>) -> u64 {
    request.map_or(0, |request| request.range.last - request.range.first + 1)
}

fn characterize(items: &[Item], options: &CharacterizeOptions) -> Characterization {
    let mut characterizer = Characterizer::new(options).unwrap();
    for item in items {
        characterizer.add(item).unwrap();
    }
    characterizer.finish().unwrap()
}

/// Compares all figures.
fn check(name: &str, items: &[Item]) {
    let options = CharacterizeOptions {
        write_only_stack: true,
        window_requests: 100,
        address_window_requests: 700,
        policies: vec![Policy::Lru, Policy::Sieve],
        cache_bytes: vec![8192 * 16, 8192 * 500],
        ..CharacterizeOptions::default()
    };
    let figures = characterize(items, &options);
    let (all, others) = requests(items, options.page_bytes);
    assert!(!all.is_empty(), "{name} has requests");
    assert_eq!([figures.trims, figures.flushes, figures.empty], others, "{name}");
    assert_eq!(figures.records, items.len() as u64, "{name}");
    check_traffic(name, &figures, &all);
    check_times(name, &figures, &all);
    check_sizes(name, &figures, &all);
    check_over_time(name, &figures, &all);
    check_working_sets(name, &figures, &all);
    if !matches!(items.first(), Some(Item::Object(_))) {
        check_addresses(name, &figures, &all);
    }

    let mut prefix = 0;
    let shorter: Vec<Item> = items
        .iter()
        .take_while(|item| {
            prefix += pages_of(requests(std::slice::from_ref(item), options.page_bytes).0.first());
            prefix <= PREFIX
        })
        .copied()
        .collect();
    let figures = characterize(&shorter, &options);
    let (first, _) = requests(&shorter, options.page_bytes);
    check_distances(name, &figures, &first);
    check_policies(name, &figures, &first);
    if matches!(items.first(), Some(Item::Object(_))) {
        assert!(figures.spatial.is_empty(), "{name}: an object has no address");
    } else {
        check_spatial(name, &figures, &first, &options);
    }
}

fn check_traffic(name: &str, figures: &Characterization, all: &[Request]) {
    let (unique, unique_read, unique_write) = distinct(all);
    let traffic = |keep: &dyn Fn(&&Request) -> bool, unique_pages| {
        let kept: Vec<_> = all.iter().filter(keep).collect();
        Traffic {
            requests: kept.len() as u64,
            bytes: kept.iter().map(|request| u128::from(request.bytes)).sum(),
            page_accesses: kept.iter().map(|request| request.pages().count() as u64).sum(),
            unique_pages,
        }
    };
    assert_eq!(figures.all, traffic(&|_| true, unique), "{name}");
    assert_eq!(figures.read, traffic(&|request| !request.write, unique_read), "{name}");
    assert_eq!(figures.write, traffic(&|request| request.write, unique_write), "{name}");
    let writes = all.iter().filter(|request| request.write).count();
    assert_eq!(figures.write_share, Some(writes as f64 / all.len() as f64), "{name}");
}

fn check_times(name: &str, figures: &Characterization, all: &[Request]) {
    let times: Vec<u64> = all.iter().filter_map(|request| request.time_ps).collect();
    let Some(found) = figures.times else {
        assert!(times.is_empty(), "{name}");
        return;
    };
    let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
    assert_eq!((found.first_ps, found.last_ps, found.timed), (first, last, times.len() as u64), "{name}");
    let gaps: Vec<u64> = times.windows(2).filter_map(|pair| pair[1].checked_sub(pair[0])).collect();
    assert_eq!(found.out_of_order as usize, times.len() - 1 - gaps.len(), "{name}");
    let seconds = (last - first) as f64 / 1e12;
    assert_eq!(found.requests_per_s, (last > first).then(|| times.len() as f64 / seconds), "{name}");
    check_distribution(name, figures.interarrival_ps.as_ref(), gaps);
}

fn check_sizes(name: &str, figures: &Characterization, all: &[Request]) {
    let sizes =
        |keep: &dyn Fn(&&Request) -> bool| all.iter().filter(keep).map(|request| request.bytes).collect();
    check_distribution(name, figures.sizes.all.as_ref(), sizes(&|_| true));
    check_distribution(name, figures.sizes.read.as_ref(), sizes(&|request| !request.write));
    check_distribution(name, figures.sizes.write.as_ref(), sizes(&|request| request.write));
}

/// Compares a distribution with the sorted values.
fn check_distribution(name: &str, found: Option<&Distribution>, mut values: Vec<u64>) {
    values.sort_unstable();
    let Some(found) = found else {
        assert!(values.is_empty(), "{name}");
        return;
    };
    assert_eq!(
        (found.count, found.min, found.max),
        (values.len() as u64, values[0], *values.last().unwrap()),
        "{name}"
    );
    let mean = values.iter().map(|value| u128::from(*value)).sum::<u128>() as f64 / values.len() as f64;
    assert_eq!(found.mean, mean, "{name}");
    for (quantile, share) in [(found.p50, 0.5), (found.p90, 0.9), (found.p99, 0.99)] {
        let exact = values[(share * values.len() as f64).ceil() as usize - 1];
        assert!(
            quantile >= exact && quantile as f64 <= exact as f64 * 1.0625,
            "{name}: {quantile} for {exact}"
        );
    }
    let mut next = 0;
    for class in &found.classes {
        assert!(class.from >= next && class.count > 0, "{name}");
        next = class.to.saturating_add(1);
        let inside = values.iter().filter(|value| (class.from..=class.to).contains(*value)).count();
        assert_eq!(class.count, inside as u64, "{name}: {class:?}");
    }
    assert_eq!(found.classes.iter().map(|class| class.count).sum::<u64>(), found.count, "{name}");
}

fn check_over_time(name: &str, figures: &Characterization, all: &[Request]) {
    let timed = all.iter().any(|request| request.time_ps.is_some());
    assert_eq!(figures.over_time_unit, if timed { "ps" } else { "requests" }, "{name}");
    let width = figures.over_time.width;
    let mut bins: BTreeMap<u64, [u128; 4]> = BTreeMap::new();
    for (number, request) in all.iter().enumerate() {
        let time = if timed { request.time_ps } else { Some(number as u64) };
        let Some(time) = time else { continue };
        let bin = bins.entry(time / width).or_default();
        bin[usize::from(request.write)] += 1;
        bin[2 + usize::from(request.write)] += u128::from(request.bytes);
    }
    let found = &figures.over_time.bins;
    assert!(found.len() <= 256, "{name}");
    for (at, bin) in found.iter().enumerate() {
        let expected = bins.remove(&(at as u64)).unwrap_or_default();
        assert_eq!(
            [bin.reads.into(), bin.writes.into(), bin.read_bytes, bin.write_bytes],
            expected,
            "{name}"
        );
    }
    assert!(bins.is_empty(), "{name}: a bin is missing");
    // Half the width would have needed more than 256 bins.
    let last =
        all.iter().enumerate().filter_map(|(n, r)| if timed { r.time_ps } else { Some(n as u64) }).max();
    assert!(width == if timed { 1_000_000_000 } else { 1 } || last.unwrap() / (width / 2) >= 256, "{name}");
}

fn check_working_sets(name: &str, figures: &Characterization, all: &[Request]) {
    assert!(!figures.working_sets.is_empty(), "{name}");
    for set in &figures.working_sets {
        let length = set.window_requests as usize;
        let windows: Vec<_> =
            all.chunks(length).filter(|w| w.len() == length || all.len() < length).collect();
        assert_eq!(set.windows, windows.len() as u64, "{name}, {length}");
        let pages: Vec<_> = windows.iter().map(|window| distinct(window)).collect();
        let mean = pages.iter().map(|pages| pages.0 as f64).sum::<f64>() / pages.len() as f64;
        assert!(
            (set.mean_pages - mean).abs() <= 1e-9 * mean,
            "{name}, {length}: {} for {mean}",
            set.mean_pages
        );
        assert_eq!(Some(set.max_pages), pages.iter().map(|pages| pages.0).max(), "{name}, {length}");
        let kept: Vec<u64> = set.kept.iter().map(|kept| kept.window).collect();
        let expected: Vec<u64> = (0..set.windows).step_by(set.keep as usize).collect();
        assert_eq!(kept, expected, "{name}, {length}");
        assert!(kept.len() <= 512, "{name}");
        for kept in &set.kept {
            assert_eq!((kept.all, kept.read, kept.write), pages[kept.window as usize], "{name}, {length}");
        }
    }
}

fn check_addresses(name: &str, figures: &Characterization, all: &[Request]) {
    let length = figures.addresses.window_requests as usize;
    assert!(!figures.addresses.phases.is_empty(), "{name}");
    let whole = all.len() / length;
    // At most 256 windows are kept: every `keep`-th.
    let mut keep = 1;
    while whole > 256 * keep {
        keep *= 2;
    }
    let phases: BTreeSet<u64> = (1..=5)
        .filter_map(|phase| {
            let end = all.len() * phase / 5;
            (0..whole.max(1))
                .step_by(keep)
                .map(|window| window * length)
                .rfind(|first| whole == 0 || first + length <= end)
        })
        .map(|first| first as u64)
        .collect();
    let found: BTreeSet<u64> = figures.addresses.phases.iter().map(|window| window.first_request).collect();
    assert_eq!(found, phases, "{name}");
    for window in &figures.addresses.phases {
        let first = window.first_request as usize;
        let requests = &all[first..all.len().min(first + length)];
        let mut counts: HashMap<(u32, u64), [u64; 2]> = HashMap::new();
        let size: HashMap<u32, u64> = window.bins.iter().map(|bin| (bin.device, bin.pages)).collect();
        for (page, write) in accesses(requests) {
            let bin = page.1 / size[&page.0];
            counts.entry((page.0, bin * size[&page.0])).or_default()[usize::from(write)] += 1;
        }
        let bins: HashMap<_, _> =
            window.bins.iter().map(|bin| ((bin.device, bin.first_page), [bin.reads, bin.writes])).collect();
        assert_eq!(bins, counts, "{name}, window at {first}");
        assert_eq!(bins.len(), window.bins.len(), "{name}: each bin once");
        // A device's bins are as small as 256 of them allow.
        for (device, size) in size {
            let highest =
                all.iter().filter(|r| r.range.device == device).map(|r| r.range.last).max().unwrap();
            assert!(
                highest / size < 256 && (size == 1 || highest / (size / 2) >= 256),
                "{name}, {size} of {highest}"
            );
        }
    }
}

fn check_distances(name: &str, figures: &Characterization, requests: &[Request]) {
    let (pages, writes): (Vec<_>, Vec<_>) = accesses(requests).into_iter().unzip();
    let expected = histogram(&stack_distances(pages.iter().copied()), &writes);
    let found = figures.distances.as_ref().unwrap();
    for (distance, counts) in found.distances().iter().enumerate() {
        let expected = expected.get(&Some(distance as u32)).copied().unwrap_or_default();
        assert_eq!(*counts, expected, "{name}, distance {distance}");
    }
    let counted: u64 = expected.values().flatten().sum();
    assert_eq!((counted, found.accesses(Counted::All)), (pages.len() as u64, pages.len() as u64), "{name}");
    let first = expected.get(&None).copied().unwrap_or_default();
    assert_eq!([Counted::Reads, Counted::Writes].map(|c| found.first_accesses(c)), first, "{name}");

    for point in &figures.lru {
        check_hit_ratios(name, point, &expected);
    }
    assert_eq!(
        figures.lru.last().unwrap().capacity_pages,
        pages.iter().collect::<HashSet<_>>().len() as u64,
        "{name}"
    );
    for wanted in &figures.capacity_for_hit_ratio {
        let ratio = wanted.hit_ratio;
        let is = |pages: Option<u64>, counted, over, what: &str| {
            let at = |pages| found.hit_ratio(pages, counted, over).unwrap_or(0.0);
            match pages {
                Some(pages) => {
                    assert!(at(pages) >= ratio && at(pages - 1) < ratio, "{name}, {what}, {ratio}")
                }
                None => assert!(at(u64::MAX) < ratio, "{name}, {what}, {ratio}"),
            }
        };
        is(wanted.all, Counted::All, Denominator::AllAccesses, "all");
        is(wanted.write, Counted::Writes, Denominator::AllAccesses, "writes");
        is(wanted.all_rereferences, Counted::All, Denominator::Rereferences, "all again");
        is(wanted.write_rereferences, Counted::Writes, Denominator::Rereferences, "writes again");
    }

    let written: Vec<_> =
        pages.iter().zip(&writes).filter(|(_, write)| **write).map(|(page, _)| *page).collect();
    let distances = stack_distances(written.iter().copied());
    let of_writes = histogram(&distances, &vec![true; distances.len()]);
    for (distance, counts) in figures.distances_of_writes.as_ref().unwrap().distances().iter().enumerate() {
        let expected = of_writes.get(&Some(distance as u32)).copied().unwrap_or_default();
        assert_eq!(*counts, expected, "{name}, only writes, distance {distance}");
    }
}

/// Compares the hit ratios of a capacity with sums over all distances.
fn check_hit_ratios(name: &str, point: &HitRatios, expected: &BTreeMap<Option<u32>, [u64; 2]>) {
    let sum = |keep: &dyn Fn(Option<u32>) -> bool, write: [bool; 2]| {
        let kept = expected.iter().filter(|(distance, _)| keep(**distance));
        kept.map(|(_, count)| u64::from(write[0]) * count[0] + u64::from(write[1]) * count[1]).sum::<u64>()
            as f64
    };
    let hit =
        |distance: Option<u32>| distance.is_some_and(|distance| u64::from(distance) < point.capacity_pages);
    let again = |distance: Option<u32>| distance.is_some();
    let ratio = |over: &dyn Fn(Option<u32>) -> bool, which| {
        let accesses = sum(over, which);
        (accesses > 0.0).then(|| sum(&hit, which) / accesses)
    };
    assert_eq!(point.all, ratio(&|_| true, [true, true]), "{name}");
    assert_eq!(point.read, ratio(&|_| true, [true, false]), "{name}");
    assert_eq!(point.write, ratio(&|_| true, [false, true]), "{name}");
    assert_eq!(point.all_rereferences, ratio(&again, [true, true]), "{name}");
    assert_eq!(point.write_rereferences, ratio(&again, [false, true]), "{name}");
    assert_eq!(point.capacity_bytes, u128::from(point.capacity_pages) * 8192, "{name}");
}

/// LRU misses as the distances say; SIEVE as a list with a hand.
fn check_policies(name: &str, figures: &Characterization, requests: &[Request]) {
    let pages: Vec<_> = accesses(requests).into_iter().map(|(page, _)| page).collect();
    assert_eq!(figures.policies.len(), 4, "{name}");
    for point in &figures.policies {
        let capacity = point.capacity_pages as usize;
        let misses = match point.policy {
            "lru" => {
                let distances = stack_distances(pages.iter().copied());
                distances.iter().filter(|d| d.is_none_or(|d| d as usize >= capacity)).count()
            }
            _ => sieve_misses(&pages, capacity),
        };
        assert_eq!(point.misses, misses as u64, "{name}, {}, {capacity}", point.policy);
        assert_eq!(point.all, Some(1.0 - misses as f64 / pages.len() as f64), "{name}");
    }
}

/// Misses of a list of (page, visited), newest first, in which the hand moves from the oldest to the newest.
fn sieve_misses(pages: &[(u32, u64)], capacity: usize) -> usize {
    let mut list: Vec<((u32, u64), bool)> = Vec::new();
    let (mut hand, mut misses) = (None::<usize>, 0);
    for page in pages {
        if let Some(entry) = list.iter_mut().find(|entry| entry.0 == *page) {
            entry.1 = true;
            continue;
        }
        misses += 1;
        if list.len() == capacity {
            let mut at = hand.unwrap_or(list.len() - 1);
            while list[at].1 {
                list[at].1 = false;
                at = at.checked_sub(1).unwrap_or(list.len() - 1);
            }
            list.remove(at);
            hand = at.checked_sub(1);
        }
        list.insert(0, (*page, false));
        hand = hand.map(|at| at + 1);
    }
    misses
}

fn check_spatial(
    name: &str,
    figures: &Characterization,
    requests: &[Request],
    options: &CharacterizeOptions,
) {
    assert_eq!(figures.spatial.len(), 3, "{name}");
    for report in &figures.spatial {
        let classes =
            spatial_classes(requests, report.setting, Precedence::default(), options.same_direction);
        let mut expected = SpatialCounts::default();
        for (request, class) in requests.iter().zip(classes) {
            let counts = if request.write { &mut expected.write } else { &mut expected.read };
            counts[class as usize] += 1;
        }
        assert_eq!(report.counts, expected, "{name}, {}", report.setting);
        let share = |counts: [u64; 4]| {
            let sum: u64 = counts.iter().sum();
            (sum > 0).then(|| counts.map(|count| count as f64 / sum as f64))
        };
        assert_eq!(report.read, share(expected.read), "{name}");
        assert_eq!(report.write, share(expected.write), "{name}");
        let all = std::array::from_fn(|class| expected.read[class] + expected.write[class]);
        assert_eq!(report.all, share(all), "{name}");
    }
}

#[test]
fn figures_of_generated_workloads_equal_the_plain_computations() {
    for spec in [
        "zipf:theta=0.9,span=256MiB,count=30k,read=0.6,arrival=poisson,rate=20k",
        "mixed:span=64MiB,count=5k",
        "sequential:span=8MiB,count=400",
        "varmail:count=9k",
        "gups:count=3k",
        "uniform:span=1GiB,count=37,read=0",
    ] {
        let items: Vec<Item> = Workload::new(spec, 7).unwrap_or_else(|e| panic!("{e}")).collect();
        check(spec, &items);
    }
}

/// Compares all figures of a real trace; skips it, and says so, where it is not there.
fn check_file(name: &str) {
    let Some(path) = trace(name) else { return };
    let reader = TraceReader::open(path, &ReadOptions::default()).unwrap();
    let items: Vec<Item> = reader.map(|item| item.unwrap()).collect();
    check(name, &items);
}

macro_rules! real_traces {
    ($($test:ident: $($file:literal),+;)+) => {
        $(#[test]
        fn $test() {
            $(check_file($file);)+
        })+
    };
}

real_traces! {
    figures_of_fin1: "block/fin1_first10k.ssdsim.ascii.zst";
    figures_of_mqsim: "block/mqsim_tpcc_small.ssdsim.ascii.zst", "block/mqsim_wsrch_small.ssdsim.ascii.zst";
    figures_of_iozone: "block/disksim_ssd_iozone_100k.disksim.ascii.zst";
    figures_of_cloud_physics: "block/cloudPhysicsIO.vscsi.zst", "block/cloudPhysicsIO.csv.zst";
    figures_of_cachelib: "block/meta_cachelib_block_traces_1.csv.zst";
    figures_of_llm: "block/llm_opt7b_512tok.mqsim.zst";
    figures_of_arc: "cache/arc_OLTP.lis.zst", "cache/arc_P3.lis.zst";
    figures_of_twitter: "cache/twitter_cluster52_1M.csv.zst";
    figures_of_lirs: "cache/lirs_2_pools.trace.gz", "cache/lirs_cpp.trace.gz", "cache/lirs_cs.trace.gz",
        "cache/lirs_gli.trace.gz", "cache/lirs_loop.trace.gz", "cache/lirs_multi1.trace.gz",
        "cache/lirs_multi2.trace.gz", "cache/lirs_multi3.trace.gz", "cache/lirs_ps.trace.gz",
        "cache/lirs_sprite.trace.gz";
    figures_of_spec: "memory/spec_ls_gcc.trace.gz", "memory/spec_ls_gzip.trace.gz", "memory/spec_ls_mcf.trace.gz",
        "memory/spec_ls_swim.trace.gz", "memory/spec_ls_twolf.trace.gz";
}

#[test]
fn a_histogram_of_one_value_is_that_value() {
    let mut histogram = Histogram::default();
    assert_eq!(histogram.distribution(), None);
    histogram.add(1_000_003);
    let found = histogram.distribution().unwrap();
    assert_eq!((found.min, found.p50, found.p99, found.max), (1_000_003, 1_000_003, 1_000_003, 1_000_003));
}
