//! Transactions and their logs: closed forms of times, group commit, bytes written, and durability.

use deepram_media::{Picos, Registry};
use deepram_sim::clients::{ClientOptions, Logging};
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, run_clients};
use deepram_trace::Workload;

const SYSTEMS: [System; 3] = [System::FlatFlash, System::UnifiedMMap, System::TraditionalStack];

/// A drive of 32 GiB with verification: every load must return the last store, and every flush must leave the last version
/// on the drive.
fn config(system: System) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    config.preset = "p3700-32gib".into();
    config.flat.verify = true;
    config.overrides = ["cpu_cache=256KiB", "cpu_cache_ways=16"].map(String::from).into();
    config
}

fn simulate(config: &SystemConfig, spec: &str, clients: &ClientOptions) -> Result<RunResult, SimError> {
    let registry = Registry::builtin().unwrap();
    let workload = Workload::new(spec, 5).unwrap();
    run_clients(&registry, config, workload, clients, &RunOptions::default())
}

fn counter(result: &RunResult, name: &str) -> u64 {
    result.counters[name].as_u64().unwrap_or_else(|| panic!("{name} is not a count"))
}

const TPCB: &str = "tpcb:branches=1,grain=row,log=4MiB";

#[test]
fn alone_a_transaction_is_its_work_and_its_log() {
    // The fastest transaction has all of its rows in DRAM or in the processor's cache, so that only work and log remain.
    let options = ClientOptions {
        work: Picos(100_000_000),
        lock: Picos(3_000_000),
        transactions: 200,
        warm_up: 3000,
        ..ClientOptions::default()
    };
    let time = |system, logging| {
        let mut config = config(system);
        config.overrides = ["cpu_cache=64MiB", "cpu_cache_ways=16"].map(String::from).into();
        let spec = "tpcb:branches=1,grain=row,log=4MiB";
        let options = ClientOptions { logging: Some(logging), ..options.clone() };
        simulate(&config, spec, &options).unwrap().latency.min_ns / 1e3
    };
    // Each transaction reads and writes three rows, and writes a fourth: seven accesses.
    let work = 7.0 * 100.0;
    // 414 bytes: seven lines of 0.6 us and a read of 4.8 us behind them. A durable page takes the drive's 20 us.
    let own = time(System::FlatFlash, Logging::Own) - work;
    assert!((0.95 * 9.0..9.0 * 1.2).contains(&own), "{own} us");
    let central = time(System::FlatFlash, Logging::Central) - work;
    assert!((0.95 * 12.0..12.0 * 1.3).contains(&central), "{central} us");
    let page = time(System::UnifiedMMap, Logging::Own) - work;
    assert!((20.0..20.0 * 1.3).contains(&page), "{page} us");
    let page = time(System::UnifiedMMap, Logging::Central) - work;
    assert!((23.0..23.0 * 1.3).contains(&page), "{page} us");
}

#[test]
fn one_log_is_written_for_many_transactions_at_once_and_own_logs_for_one_each() {
    let options = ClientOptions {
        clients: 16,
        work: Picos(100_000),
        transactions: 2000,
        warm_up: 200,
        ..ClientOptions::default()
    };
    for system in SYSTEMS {
        let of = |logging| {
            let options = ClientOptions { logging: Some(logging), ..options.clone() };
            let result = simulate(&config(system), TPCB, &options).unwrap();
            // All transactions of the last group commit end at once, so that up to 15 more are counted.
            assert!((2000..2016).contains(&result.requests), "{}", result.requests);
            let [commits, writes, bytes, written] =
                ["commits", "log_writes", "log_bytes", "log_written_bytes"]
                    .map(|name| counter(&result, name));
            assert_eq!(bytes, commits * (350 + 64));
            assert!(written >= bytes * 9 / 10, "{system:?}: {written} of {bytes}");
            (commits, writes)
        };
        let (commits, writes) = of(Logging::Central);
        assert!(writes * 2 < commits, "{system:?}: {writes} writes for {commits} transactions");
        let (commits, writes) = of(Logging::Own);
        assert_eq!(commits, writes, "{system:?}");
    }
}

#[test]
fn a_lock_that_is_held_long_limits_all_clients_together() {
    let options = ClientOptions {
        clients: 8,
        logging: Some(Logging::Central),
        work: Picos(0),
        lock: Picos(1_000_000_000),
        transactions: 500,
        warm_up: 50,
    };
    for system in SYSTEMS {
        let rate = simulate(&config(system), TPCB, &options).unwrap().throughput_requests_per_s;
        assert!((990.0..=1001.0).contains(&rate), "{system:?}: {rate} a second with a lock of a millisecond");
    }
}

#[test]
fn lines_are_written_once_and_pages_until_they_are_full() {
    let options = ClientOptions { clients: 4, transactions: 3000, ..ClientOptions::default() };
    let logged = |system| {
        let options = ClientOptions { logging: Some(Logging::Own), ..options.clone() };
        simulate(&config(system), TPCB, &options).unwrap()
    };
    // 414 bytes are seven lines. Each record writes one page, or two pages if the record crosses a page border.
    let lines = logged(System::FlatFlash);
    assert_eq!(counter(&lines, "log_written_bytes"), counter(&lines, "commits") * 448);
    let pages = logged(System::UnifiedMMap);
    let each = counter(&pages, "log_written_bytes") as f64 / counter(&pages, "commits") as f64 / 4096.0;
    assert!((1.09..1.11).contains(&each), "{each} pages per record, expected 1 + 414/4096");
    assert_eq!(counter(&pages, "written_blocks"), counter(&pages, "log_written_bytes") / 4096);
}

#[test]
fn what_is_read_only_has_no_log_and_the_same_seed_gives_the_same_result() {
    let options = ClientOptions { clients: 4, transactions: 4000, ..ClientOptions::default() };
    for system in SYSTEMS {
        let spec = "tatp:subscribers=10000,grain=row,log=4MiB";
        let result = simulate(&config(system), spec, &options).unwrap();
        let share = counter(&result, "commits") as f64 / 4000.0;
        // 20 per cent of the transactions write, but some of these find no row.
        assert!((0.14..0.21).contains(&share), "{share}");
        let again = simulate(&config(system), spec, &options).unwrap();
        assert_eq!(result.to_json().unwrap(), again.to_json().unwrap());
    }
}

#[test]
fn a_log_starts_over_and_stays_within_its_bytes() {
    // 1 MiB holds some 2500 records of 414 bytes.
    for system in SYSTEMS {
        for logging in [Logging::Central, Logging::Own] {
            let options = ClientOptions {
                clients: 4,
                logging: Some(logging),
                work: Picos(0),
                transactions: 9000,
                ..ClientOptions::default()
            };
            let spec = "tpcb:branches=1,grain=row,log=1MiB";
            simulate(&config(system), spec, &options).unwrap_or_else(|error| panic!("{system:?}: {error}"));
        }
    }
}

#[test]
fn what_cannot_be_is_an_error() {
    let some = ClientOptions::default();
    for (spec, options, word) in [
        ("gups:table=1MiB", some.clone(), "log"),
        (TPCB, ClientOptions { clients: 0, ..some.clone() }, "clients"),
        (TPCB, ClientOptions { clients: 4000, logging: Some(Logging::Own), ..some.clone() }, "64 KiB"),
        ("tpcb:count=100,grain=row", some, "ends before"),
    ] {
        let error = simulate(&config(System::FlatFlash), spec, &options).unwrap_err().to_string();
        assert!(error.contains(word), "{spec}: {error}");
    }
}
