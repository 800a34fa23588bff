//! The server with persistent memory: times against closed forms, counts against the workload, file systems against each
//! other.

use deepram_media::{Bytes, Picos, Platform, Registry, Ssd};
use deepram_sim::host::{Device, HostOptions, HostResult, drive};
use deepram_sim::pmem::{PmemDevice, PmemOptions};
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, requests, run, run_clients};
use deepram_trace::workload::Rng;
use deepram_trace::{ObjectPlacement, Op, Request, TraceError, Workload};

const TABLE_IV: [&str; 6] = ["pdram", "pm-lat", "pm-bw", "nvmm-raw", "nvmm-wof", "nvmm-opt"];
/// A gap between requests that leaves every part idle: 1 s.
const IDLE: u64 = 1_000_000_000_000;

fn platform(preset: &str, set: &[&str]) -> Platform {
    Registry::builtin().unwrap().get_with(&format!("platform.{preset}"), set).unwrap()
}

fn device(platform: &Platform) -> PmemDevice {
    let ssd: Ssd = Registry::builtin().unwrap().get("ssd.sata-mlc").unwrap();
    PmemDevice::new(platform, &ssd, &PmemOptions::default(), 1).unwrap()
}

fn at(op: Op, offset: u64, len: u64) -> Request {
    Request { time_ps: None, device: 0, offset, len, op }
}

fn ran(platform: &Platform, requests: Vec<Request>, options: &HostOptions) -> (HostResult, PmemDevice) {
    let mut device = device(platform);
    let host = drive(&mut device, requests.into_iter().map(Ok), options).unwrap();
    device.check().unwrap();
    (host, device)
}

/// The time of the last of these requests, each on an idle server, in picoseconds.
fn last(platform: &Platform, requests: &[Request]) -> u64 {
    let paced = requests.iter().zip(0..);
    let paced = paced.map(|(request, n)| Request { time_ps: Some(n * IDLE), ..*request }).collect();
    let options = HostOptions { warm_up: requests.len() as u64 - 1, ..HostOptions::default() };
    (ran(platform, paced, &options).0.response.max_ns * 1e3).round() as u64
}

fn moved(platform: &Platform, bytes: u64) -> u64 {
    (bytes as f64 / platform.copy.0 * 1e12).round() as u64
}

/// A store of a byte, then a flush of `len` bytes around it.
fn flush_after_store(len: u64) -> [Request; 2] {
    [at(Op::Write, 0, 1), at(Op::Flush, 0, len)]
}

#[test]
fn a_load_that_misses_takes_the_configured_latency_and_at_least_that_of_dram() {
    for latency_ns in [0, 100, 150, 300, 600] {
        let platform = platform("pm-lat", &[&format!("read_latency={latency_ns}ns")]);
        let expected = latency_ns.max(150) * 1000;
        assert_eq!(last(&platform, &[at(Op::Read, 4096, 64)]), expected, "{latency_ns} ns");
        let hit = platform.cache_hit.0 + moved(&platform, 64);
        assert_eq!(last(&platform, &[at(Op::Read, 4096, 64), at(Op::Read, 4096, 64)]), hit);
    }
}

#[test]
fn a_flush_of_every_line_costs_its_lines_and_one_barrier() {
    for lines in [1u64, 16, 1000] {
        for (set, each) in [
            (vec![], 100_000),
            (vec!["flush=clflushopt"], 100_000),
            (vec!["flush=clflushopt", "serial_clflushopt=false"], 10_000),
            (vec!["flush=clwb"], 10_000),
        ] {
            let platform = platform("pdram", &[set.as_slice(), &["barrier=2us"]].concat());
            let expected = platform.call.0 + lines * each + platform.fence.0 + 2_000_000;
            let found = last(&platform, &flush_after_store(lines * 64));
            // The one dirty line is also written, which takes 1.25 ns of the memory, in the shadow of the flush.
            assert_eq!(found, expected, "{lines} lines, {set:?}");
        }
    }
}

#[test]
fn a_weakly_ordered_flush_reads_lines_that_are_not_cached_and_writes_all() {
    let platform = platform("nvmm-wof", &[]);
    let lines = 10_000u64;
    let (_, device) = ran(&platform, flush_after_store(lines * 64).to_vec(), &HostOptions::default());
    let did = device.pmem_counts();
    assert_eq!((did.flush_loads, did.flushed_lines, did.dirty_lines), (lines - 1, lines, 1));
    // The store's fetch, the reads and the writes.
    assert_eq!(did.pmem_lines, 1 + lines - 1 + lines);
    // 128 B a line at 6.4 GB/s are slower than the loads of a core, 30 ns a line, by the bandwidth or not.
    let bound = 300_000 * lines / 10;
    let found = last(&platform, &flush_after_store(lines * 64));
    assert!(found > bound && found < bound + 10_000_000, "{found}, not {bound}");
}

#[test]
fn only_the_line_flush_that_keeps_lines_leaves_them_in_the_cache() {
    for (flush, kept) in [("clflush", false), ("clflushopt", false), ("clwb", true), ("wof", false)] {
        let platform = platform("pdram", &[&format!("flush={flush}")]);
        let [store, sync] = flush_after_store(64);
        let found = last(&platform, &[store, sync, at(Op::Read, 0, 64)]);
        let expected = if kept { platform.cache_hit.0 + moved(&platform, 64) } else { 150_000 };
        assert_eq!(found, expected, "{flush}");
    }
}

#[test]
fn the_barrier_adds_its_latency_once_a_flush() {
    let time = |barrier_us: u64| {
        last(&platform("pdram", &[&format!("barrier={barrier_us}us")]), &flush_after_store(1))
    };
    for barrier in [1, 5, 100] {
        assert_eq!(time(barrier) - time(0), barrier * 1_000_000);
    }
}

#[test]
fn selective_flushing_writes_back_dirty_pages_only_and_each_once() {
    let platform = platform("nvmm-opt", &[]);
    let size = 100 << 20;
    // Pages 3 and 1000; the second flush has nothing to do.
    let requests = vec![
        at(Op::Write, 3 * 4096, 1),
        at(Op::Write, 1000 * 4096 + 4095, 1),
        at(Op::Flush, 0, size),
        at(Op::Flush, 0, size),
    ];
    let (_, device) = ran(&platform, requests.clone(), &HostOptions::default());
    let did = device.pmem_counts();
    assert_eq!((did.flushed_lines, did.dirty_lines, did.pages_dirty), (128, 2, 2));
    assert_eq!(did.pages_examined, 2 * size / 4096);
    let walk = size / 4096 * platform.walk.0;
    let empty = platform.call.0 + walk + platform.fence.0 + platform.barrier.0;
    assert_eq!(last(&platform, &requests), empty);
    // A range within a page leaves its dirty bit set.
    let part = [at(Op::Write, 0, 1), at(Op::Flush, 0, 64), at(Op::Flush, 0, 4096)];
    let (_, device) = ran(&platform, part.to_vec(), &HostOptions::default());
    assert_eq!(device.pmem_counts().flushed_lines, 1 + 64);
}

#[test]
fn the_bandwidth_of_all_cores_is_the_throttled_one() {
    for throttle in [1.0, 0.5, 0.25, 0.125, 0.0625] {
        for (op, lines_moved) in [(Op::Read, 1), (Op::Write, 2)] {
            let platform = platform("pdram", &[&format!("throttle={throttle}"), "cache=2560KiB"]);
            let count = 2000u64;
            let requests = (0..count).map(|n| at(op, n * 65_536, 65_536)).collect();
            let options = HostOptions { threads: 16, ..HostOptions::default() };
            let (host, device) = ran(&platform, requests, &options);
            let rate = device.pmem_counts().pmem_lines as f64 * 64.0 / host.time.seconds();
            let available = 51.2e9 * throttle;
            assert!((rate / available - 1.0).abs() < 0.03, "{op:?} {throttle}: {rate}");
            // A store fetches its line, and writes it back when it is displaced.
            let share = host.bytes_per_s * f64::from(lines_moved) / rate;
            assert!((share - 1.0).abs() < 0.04, "{op:?} {throttle}: {share}");
        }
    }
}

#[test]
fn a_write_by_call_bypasses_the_caches_and_an_fsync_then_flushes_nothing() {
    let base = platform("nvmm-raw", &["mapped=0B"]);
    let requests = vec![at(Op::Write, 0, 8192), at(Op::Flush, 0, 8192)];
    let (_, device) = ran(&base, requests.clone(), &HostOptions::default());
    let did = device.pmem_counts();
    assert_eq!((did.nt_lines, did.missing_lines, did.barriers), (128, 0, 3));
    assert_eq!(did.flushed_lines, base.metadata_lines);
    assert_eq!(last(&base, &requests), base.call.0 + base.fence.0 + base.barrier.0);
    let always = platform("nvmm-raw", &["mapped=0B", "fsync_flush=always"]);
    assert_eq!(last(&always, &requests) - last(&base, &requests), 128 * base.clflush.0);
}

#[test]
fn journaled_stores_write_a_record_and_fsync_safe_ones_flush_the_mapped_files() {
    let store = vec![at(Op::Write, 4096, 1000)];
    let journaled = platform("nvmm-raw", &["mapped=1MiB", "sync=1MiB", "durability=journaled"]);
    let (_, device) = ran(&journaled, store.clone(), &HostOptions::default());
    assert_eq!(device.pmem_counts().nt_lines, (1000 + 64u64).div_ceil(64));
    assert_eq!(device.pmem_counts().syncs, 0);
    let safe = platform("nvmm-raw", &["mapped=1MiB", "sync=1MiB", "durability=fsync-safe"]);
    let (_, device) = ran(&safe, store.clone(), &HostOptions::default());
    assert_eq!((device.pmem_counts().syncs, device.pmem_counts().flushed_lines), (1, 1 << 14));
    let grouped = platform("nvmm-raw", &["mapped=1MiB", "durability=journaled", "group_commit=33ms"]);
    let time = last(&grouped, &[at(Op::Read, 0, 64), store[0]]);
    assert!(time > 33_000_000_000 / 2 && time < 34_000_000_000, "{time}");
}

#[test]
fn an_fsync_of_ext4_writes_the_threads_pages_and_commits() {
    let disk = platform("ext4-disk", &["mapped=0B"]);
    let found = last(&disk, &[at(Op::Write, 8192, 4096), at(Op::Flush, 0, 0)]);
    let d = &disk.disk;
    let data = d.random(Bytes(4096), true).0;
    let journal = d.random(Bytes(8192), true).0 + 2 * d.rotational_latency().0 + d.sequential(Bytes(4096)).0;
    assert_eq!(found, disk.call.0 + disk.block_call.0 + data + journal);
    // Nothing is dirty the second time.
    let requests = [at(Op::Write, 8192, 4096), at(Op::Flush, 0, 0), at(Op::Flush, 0, 0)];
    let (_, device) = ran(&disk, requests.to_vec(), &HostOptions::default());
    assert_eq!((device.pmem_counts().blocks_written, device.pmem_counts().commits), (1 + 2 * 3, 2));
}

#[test]
fn commits_of_waiting_threads_are_one() {
    let ssd = platform("ext4-ssd", &["mapped=0B"]);
    let requests: Vec<Request> =
        (0..400).flat_map(|n| [at(Op::Write, n << 20, 4096), at(Op::Flush, 0, 0)]).collect();
    let commits = |threads| {
        let options = HostOptions { threads, ..HostOptions::default() };
        ran(&ssd, requests.clone(), &options).1.pmem_counts().commits
    };
    assert_eq!(commits(1), 400);
    assert!(commits(16) < 150);
}

#[test]
fn pages_that_the_drive_holds_are_read_once_and_written_pages_need_no_read() {
    let ssd = platform("ext4-ssd", &["mapped=0B", "stored=1MiB", "warm=false"]);
    let requests = vec![
        at(Op::Read, 0, 4096),
        at(Op::Read, 0, 4096),
        at(Op::Write, 8192, 4096),
        at(Op::Write, 16_384, 10),
        at(Op::Read, 2 << 20, 4096),
    ];
    let (_, device) = ran(&ssd, requests, &HostOptions::default());
    // A whole page is written without its old data, a part of one is not; the last page was never written.
    assert_eq!((device.pmem_counts().blocks_read, device.pmem_counts().page_hits), (2, 1));
}

#[test]
fn writers_wait_while_too_many_pages_are_dirty() {
    let disk = platform("ext4-disk", &["mapped=0B", "page_cache=16MiB"]);
    let requests: Vec<Request> = (0..256).map(|n| at(Op::Write, n << 16, 65_536)).collect();
    let (host, device) = ran(&disk, requests, &HostOptions::default());
    let did = device.pmem_counts();
    assert!(did.throttled > 0);
    // All but a fifth of the page cache must have been written to the disk meanwhile.
    assert!(did.blocks_written >= 4096 - 4096 / 5 - 1, "{}", did.blocks_written);
    assert!(host.bytes_per_s < 200e6);
    let wide = platform("ext4-disk", &["mapped=0B"]);
    let requests: Vec<Request> = (0..256).map(|n| at(Op::Write, n << 16, 65_536)).collect();
    assert_eq!(ran(&wide, requests, &HostOptions::default()).1.pmem_counts().blocks_written, 0);
}

#[test]
fn more_threads_than_cores_share_the_cores() {
    let platform = platform("tmpfs", &["cores=4", "program=100us"]);
    for (threads, cores) in [(1, 1.0), (4, 4.0), (32, 4.0)] {
        let requests = vec![at(Op::Read, 0, 64); 4000];
        let options = HostOptions { threads, ..HostOptions::default() };
        let (host, device) = ran(&platform, requests, &options);
        let rate = host.requests_per_s * 100e-6;
        assert!((rate / cores - 1.0).abs() < 0.01, "{threads}: {rate}");
        assert!((device.report(host.time).cores_in_use / cores - 1.0).abs() < 0.02);
    }
}

fn simulated(preset: &str, set: &[&str], workload: &str, threads: u32) -> RunResult {
    let config = SystemConfig {
        preset: preset.into(),
        overrides: set.iter().map(|set| (*set).to_owned()).collect(),
        ..SystemConfig::new(System::Pmem)
    };
    let mut options = RunOptions { workload: workload.into(), ..RunOptions::default() };
    options.host.threads = threads;
    let items = Workload::new(workload, 1).unwrap().map(Ok::<_, TraceError>);
    let nothing = ObjectPlacement { slot_bytes: 0, slots: 0 };
    run(&Registry::builtin().unwrap(), &config, requests(items, nothing), &options).unwrap()
}

#[test]
fn the_workloads_of_the_study_run_on_every_preset_and_more_of_table_iv_is_never_faster_until_it_optimises() {
    let registry = Registry::builtin().unwrap();
    for (workload, set, threads) in [
        ("varmail:files=500,count=6k,threads=16", vec!["mapped=0B"], 16),
        ("fileserver:files=100,count=2k,threads=8", vec!["mapped=0B"], 8),
        ("webserver:files=200,count=6k,threads=16", vec!["mapped=0B"], 16),
        ("ycsb-a:records=1000,count=300", vec!["mapped=16MiB", "sync=16MiB", "durability=fsync-safe"], 1),
        ("ycsb-e:records=1000,count=300", vec!["mapped=16MiB", "sync=16MiB", "durability=journaled"], 1),
    ] {
        let rate = |preset: &str| simulated(preset, &set, workload, threads).throughput_requests_per_s;
        let rates = TABLE_IV.map(rate);
        assert!(rates.windows(2).take(3).all(|pair| pair[0] >= pair[1]), "{workload}: {rates:?}");
        for preset in ["tmpfs", "ext4-ssd", "ext4-disk"] {
            assert!(rate(preset) > 0.0);
        }
    }
    let workload = "tpcc:warehouses=1,log=16MiB";
    for preset in ["nvmm-opt", "tmpfs", "ext4-disk"] {
        let config = SystemConfig {
            preset: preset.into(),
            overrides: vec!["mapped=0B".into(), "pool=32MiB".into()],
            ..SystemConfig::new(System::Pmem)
        };
        let clients =
            deepram_sim::clients::ClientOptions { clients: 8, transactions: 300, ..Default::default() };
        let source = Workload::new(workload, 1).unwrap();
        let result = run_clients(&registry, &config, source, &clients, &RunOptions::default()).unwrap();
        assert!(result.throughput_requests_per_s > 0.0);
        let ratio = result.hit_ratios.iter().find(|ratio| ratio.level == "page cache").unwrap();
        assert!(ratio.hits > 0 && ratio.hits < ratio.lookups, "{preset}");
    }
}

#[test]
fn random_requests_end_and_equal_seeds_give_equal_results() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed, "pmem");
        let mut requests = Vec::new();
        for _ in 0..500 {
            let op = [Op::Read, Op::Write, Op::Write, Op::Flush, Op::Trim][rng.below(5) as usize];
            let (offset, len) = (rng.below(8 << 20), rng.between(1, 40_000));
            requests.push(at(op, offset, if op == Op::Flush && rng.chance(0.5) { 0 } else { len }));
        }
        let presets = [&TABLE_IV[..], &["tmpfs", "ext4-ssd", "ext4-disk"]].concat();
        let preset = presets[rng.below(presets.len() as u64) as usize];
        let durability = ["none", "fsync-safe", "journaled"][rng.below(3) as usize];
        let flush = ["clflush", "clflushopt", "clwb", "wof"][rng.below(4) as usize];
        let durability = format!("durability={durability}");
        let flush = format!("flush={flush}");
        let set = [
            "mapped=4MiB",
            "sync=4MiB",
            "cache=80KiB",
            "page_cache=2MiB",
            "cores=3",
            "stored=2MiB",
            &durability,
            &flush,
        ];
        let platform = platform(preset, &set);
        let options = HostOptions { threads: 5, ..HostOptions::default() };
        let (first, device) = ran(&platform, requests.clone(), &options);
        assert_eq!(first.completed, 500, "seed {seed}, {preset}, {set:?}");
        let (second, other) = ran(&platform, requests, &options);
        assert_eq!((first, device.pmem_counts()), (second, other.pmem_counts()), "seed {seed}");
    }
}

#[test]
fn figures_that_do_not_fit_are_errors_that_name_them() {
    let registry = Registry::builtin().unwrap();
    for (set, word) in [
        ("throttle=0", "throttle"),
        ("throttle=2", "throttle"),
        ("page=3KiB", "page"),
        ("mapped=129GiB", "mapped"),
        ("most_dirty=5%", "most_dirty"),
        ("flush=sometimes", "flush"),
        ("flsh=wof", "flush"),
        ("bandwidth=1B/s", "bandwidth"),
    ] {
        let error = registry.get_with::<Platform>("platform.nvmm-raw", &[set]).unwrap_err().to_string();
        assert!(error.contains(word), "{set}: {error}");
    }
    let odd = SystemConfig { overrides: vec!["cache=1000B".into()], ..SystemConfig::new(System::Pmem) };
    let none = std::iter::empty::<Result<Request, SimError>>();
    let error = run(&registry, &odd, none, &RunOptions::default()).unwrap_err().to_string();
    assert!(error.contains("whole sets"), "{error}");
    assert_eq!(platform("nvmm-raw", &[]).load_latency(), Picos(300_000));
}
