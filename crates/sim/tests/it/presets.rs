//! Every preset runs, and an impossible configuration is an error that says what would be right.

use deepram_media::{Picos, PresetKind, Registry};
use deepram_sim::host::{HostOptions, Stop};
use deepram_sim::{RunOptions, SimError, System, SystemConfig, run};
use deepram_trace::{Op, Request, Workload};

fn config(system: System, preset: &str, overrides: &[&str]) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    config.preset = preset.into();
    config.overrides = overrides.iter().map(|&text| text.to_owned()).collect();
    config
}

fn requests(count: u64) -> impl Iterator<Item = Result<Request, SimError>> {
    (0..count).map(|n| {
        let op = if n % 3 == 0 { Op::Read } else { Op::Write };
        Ok(Request { time_ps: None, device: 0, offset: (n * 7919 % 5000) * 4096, len: 4096, op })
    })
}

#[test]
fn every_preset_of_a_drive_and_of_dram_runs() {
    let registry = Registry::builtin().unwrap();
    let mut seen = 0;
    for entry in registry.list() {
        let system = match entry.kind {
            PresetKind::Ssd => System::Ssd,
            PresetKind::Dram => System::Dram,
            _ => continue,
        };
        seen += 1;
        let options = RunOptions {
            host: HostOptions { per_thread: 8, ..HostOptions::default() },
            ..RunOptions::default()
        };
        let result = run(&registry, &config(system, &entry.name, &[]), requests(3000), &options)
            .unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        assert_eq!(result.requests, 3000, "{}", entry.name);
        assert!(result.latency.mean_ns > 0.0 && result.energy_total_nj > 0.0, "{}", entry.name);
        assert!(result.to_table().contains(&entry.name));
        assert_eq!(result.config_digest.len(), 64);
    }
    assert!(seen >= 5);
}

#[test]
fn a_generated_workload_runs_open_loop_with_warm_up_and_a_time_series() {
    let registry = Registry::builtin().unwrap();
    let workload =
        Workload::new("uniform:span=64MiB,count=5000,size=8KiB,arrival=poisson,rate=5k", 3).unwrap();
    let objects = deepram_trace::ObjectPlacement { slot_bytes: 0, slots: 0 };
    let requests = deepram_sim::requests(workload.map(Ok::<_, deepram_trace::TraceError>), objects);
    let host = HostOptions { warm_up: 1000, interval: Picos(50_000_000_000), ..HostOptions::default() };
    let options = RunOptions { host, ..RunOptions::default() };
    let result = run(&registry, &config(System::Ssd, "mqsim-s8", &[]), requests, &options).unwrap();
    assert_eq!(result.requests, 4000);
    assert_eq!(result.host.issued, 5000);
    assert_eq!(result.intervals.iter().map(|interval| interval.completed).sum::<u64>(), 4000);
    assert_eq!(result.to_csv().lines().count(), 2 + result.intervals.len());
}

#[test]
fn a_run_can_end_with_the_last_arrival_or_after_a_number_of_requests() {
    let registry = Registry::builtin().unwrap();
    let timed = || {
        (0..100u64).map(|n| {
            Ok(Request { time_ps: Some(n * 1_000), device: 0, offset: n * 8192, len: 8192, op: Op::Write })
        })
    };
    let run_with = |host| {
        let options = RunOptions { host, ..RunOptions::default() };
        run(&registry, &config(System::Ssd, "mqsim-s8", &[]), timed(), &options).unwrap()
    };
    let cut = run_with(HostOptions { stop: Stop::LastArrival, ..HostOptions::default() });
    assert!(cut.host.completed < 100 && cut.simulated_time_ns == 99.0);
    let few = run_with(HostOptions { requests: 10, ..HostOptions::default() });
    assert_eq!(few.requests, 10);
    let early = run_with(HostOptions { until: Picos(49_500), ..HostOptions::default() });
    assert_eq!(early.requests, 50);
}

#[test]
fn what_cannot_be_is_an_error_that_says_what_would_be_right() {
    let registry = Registry::builtin().unwrap();
    let fail = |config: &SystemConfig, host: HostOptions, requests: Vec<Request>| {
        let options = RunOptions { host, ..RunOptions::default() };
        run(&registry, config, requests.into_iter().map(Ok), &options).unwrap_err().to_string()
    };
    let request = |offset, len| vec![Request { time_ps: None, device: 0, offset, len, op: Op::Write }];
    let s8 = config(System::Ssd, "mqsim-s8", &[]);
    for (config, host, requests, words) in [
        (s8.clone(), HostOptions::default(), request(1 << 40, 512), "outside the device"),
        (s8.clone(), HostOptions { threads: 0, ..HostOptions::default() }, request(0, 512), "at least 1"),
        (config(System::Ssd, "mqsim-s9", &[]), HostOptions::default(), vec![], "mqsim-s8"),
        (config(System::Ssd, "mqsim-s8", &["chanels=3"]), HostOptions::default(), vec![], "channels"),
        (
            config(System::Ssd, "mqsim-s8", &["allocation_pool=device"]),
            HostOptions::default(),
            vec![],
            "plane or package",
        ),
        (
            config(System::Ssd, "disksim-ssd", &["over_provisioning=0.00001"]),
            HostOptions::default(),
            vec![],
            "reserve",
        ),
    ] {
        let error = fail(&config, host, requests);
        assert!(error.contains(words), "{error}");
    }
    assert!(System::parse("sdd").unwrap_err().to_string().contains("did you mean ssd"));
}

#[test]
fn addresses_wrap_where_that_is_asked_for() {
    let registry = Registry::builtin().unwrap();
    let host = HostOptions { wrap: true, ..HostOptions::default() };
    let options = RunOptions { host, ..RunOptions::default() };
    let requests = (0..10u64).map(|n| {
        Ok(Request { time_ps: None, device: 0, offset: u64::MAX - 8192 - n, len: 8192, op: Op::Write })
    });
    let result = run(&registry, &config(System::Ssd, "mqsim-s8", &[]), requests, &options).unwrap();
    assert_eq!(result.requests, 10);
}
