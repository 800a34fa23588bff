//! The results of a memory bench as a table and as JSON: rates, latencies, and ratios to swap, to `mmap` with
//! `MADV_RANDOM` and to the device. Each ratio is taken within a round.

use std::fmt::Write as _;

use deepram_core::Bytes;
use serde::Serialize;

use super::super::latency::Quantiles;
use super::super::{Report, Series};
use super::device::{Device, DeviceRate};
use super::worker::Measurement;
use super::workload::Workload;
use super::{MemoryArgs, Peer, PeerRuns};
use crate::output::Table;

/// Queue depth of the device rate that gathers are compared with.
const GATHER_DEPTH: u32 = 32;

#[derive(Serialize)]
struct MemoryReport<'a> {
    workload: Workload,
    size_bytes: u64,
    dram_bytes: u64,
    threads: u32,
    policy: &'a str,
    latency_timed: bool,
    hints: bool,
    seed: u64,
    machine: Conditions,
    device: Vec<DeviceRate>,
    peers: Vec<PeerRow<'a>>,
    skipped: Vec<MissingPeer<'a>>,
    failed: Vec<MissingPeer<'a>>,
}

/// A peer without measurements.
#[derive(Serialize)]
struct MissingPeer<'a> {
    peer: Peer,
    reason: &'a str,
}

/// Results of one peer.
#[derive(Serialize)]
struct PeerRow<'a> {
    peer: Peer,
    /// Thousand accesses per second; MB/s for a scan.
    rate: Series,
    /// Accesses that waited for the device, as a share of all accesses.
    misses_per_access: Series,
    /// Processor time of the process over its misses; none for scans, whose misses bring many pages.
    processor_us_per_miss: Option<Series>,
    p50_us: Option<Series>,
    p99_us: Option<Series>,
    p999_us: Option<Series>,
    peak_bytes: Option<u64>,
    over_swap: Option<Series>,
    over_mmap_random: Option<Series>,
    over_device: Option<Series>,
    /// Rate of loads by call with promotion over the rate without.
    over_unpromoted: Option<Series>,
    note: Option<&'a str>,
    rounds: &'a [Measurement],
}

/// Kernel settings and load that affect the results.
#[derive(Serialize)]
struct Conditions {
    kernel: String,
    processors: usize,
    /// `None` where the kernel has no such setting.
    huge_pages: Option<String>,
    swap_cluster: Option<String>,
    load: Option<String>,
}

impl Conditions {
    fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled"),
            swap_cluster: read("/proc/sys/vm/page-cluster"),
            load: read("/proc/loadavg"),
        }
    }
}

fn unit(workload: Workload) -> &'static str {
    if workload == Workload::Scan { "MB/s" } else { "k/s" }
}

fn rate(workload: Workload, run: &Measurement) -> f64 {
    let per_second = run.accesses as f64 / run.seconds;
    if workload == Workload::Scan { per_second * 4096.0 / 1e6 } else { per_second / 1e3 }
}

fn rates(workload: Workload, entry: &PeerRuns) -> Vec<f64> {
    entry.rounds.iter().map(|run| rate(workload, run)).collect()
}

/// The series of these values, if there are any.
fn series(name: &str, unit: &'static str, values: impl Iterator<Item = f64>) -> Option<Series> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| Series::new(name, unit, values))
}

/// Ratio of two peers in each round.
fn ratios(name: &str, ours: &[f64], theirs: &[f64]) -> Option<Series> {
    series(name, "x", ours.iter().zip(theirs).map(|(a, b)| a / b))
}

/// Makes the report of a bench.
pub(super) fn report(
    args: &MemoryArgs,
    workload: Workload,
    entries: &[PeerRuns],
    device: &Device,
) -> anyhow::Result<Report> {
    let of = |peer: Peer| {
        let entry = entries.iter().find(|entry| entry.peer == peer);
        entry.map(|entry| rates(workload, entry)).unwrap_or_default()
    };
    let (swap, random, unpromoted) = (of(Peer::Swap), of(Peer::MmapRandom), of(Peer::PoolLoadUnpromoted));
    let device_rate = match workload {
        Workload::Scan => device.sequential(),
        Workload::Gather => device.random(GATHER_DEPTH, false).to_vec(),
        Workload::Reads | Workload::Zipf | Workload::Rows => device.random(args.threads, false).to_vec(),
        Workload::Updates => device.random(args.threads, true).to_vec(),
    };
    let baselines = Baselines { swap: &swap, random: &random, unpromoted: &unpromoted, device: &device_rate };
    let row = |entry| peer_row(entry, workload, &baselines);
    let report = MemoryReport {
        workload,
        size_bytes: args.size.0,
        dram_bytes: args.dram.0,
        threads: args.threads,
        policy: &args.policy,
        latency_timed: !args.no_latency,
        hints: !args.no_hints,
        seed: args.seed,
        machine: Conditions::now(),
        device: device.rates(),
        peers: entries.iter().filter(|entry| !entry.rounds.is_empty()).map(row).collect(),
        skipped: missing(entries, |entry| entry.skipped.as_deref()),
        failed: missing(entries, |entry| entry.failed.as_deref()),
    };
    Report::new(&report, text(&report))
}

fn missing(entries: &[PeerRuns], reason: impl Fn(&PeerRuns) -> Option<&str>) -> Vec<MissingPeer<'_>> {
    entries
        .iter()
        .filter_map(|entry| Some(MissingPeer { peer: entry.peer, reason: reason(entry)? }))
        .collect()
}

/// Rates that a peer is compared with, by round.
struct Baselines<'a> {
    swap: &'a [f64],
    random: &'a [f64],
    unpromoted: &'a [f64],
    device: &'a [f64],
}

/// Results of one peer and its ratios to the baselines.
fn peer_row<'a>(entry: &'a PeerRuns, workload: Workload, baselines: &Baselines<'_>) -> PeerRow<'a> {
    let own = rates(workload, entry);
    let promoted = entry.peer == Peer::PoolLoad;
    let quantile = |name: &str, of: fn(&Quantiles) -> f64| {
        series(name, "us", entry.rounds.iter().filter_map(|run| run.latency.as_ref().map(of)))
    };
    let misses = entry.rounds.iter().map(|run| run.misses as f64 / run.accesses as f64);
    let missed = entry.rounds.iter().filter(|run| run.misses > 0 && workload != Workload::Scan);
    let processor = missed.map(|run| run.processor_s * 1e6 / run.misses as f64);
    PeerRow {
        peer: entry.peer,
        misses_per_access: Series::new("misses", "per access", misses.collect()),
        processor_us_per_miss: series("processor time a miss", "us", processor),
        p50_us: quantile("p50", |q| q.p50_us),
        p99_us: quantile("p99", |q| q.p99_us),
        p999_us: quantile("p99.9", |q| q.p999_us),
        peak_bytes: entry.rounds.iter().filter_map(|run| run.peak_bytes).max(),
        over_swap: ratios("over swap", &own, baselines.swap),
        over_mmap_random: ratios("over mmap-random", &own, baselines.random),
        over_device: ratios("over the device", &own, baselines.device),
        over_unpromoted: promoted
            .then(|| ratios("over pool-load-unpromoted", &own, baselines.unpromoted))
            .flatten(),
        rate: Series::new(entry.peer.name(), unit(workload), own),
        note: entry.note.as_deref(),
        rounds: &entry.rounds,
    }
}

/// A number with three significant digits.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn text(report: &MemoryReport<'_>) -> String {
    let median = |series: &Option<Series>| series.as_ref().map_or("-".into(), |s| number(s.median));
    let unit = unit(report.workload);
    let mut text = format!(
        "{}\n{} of data, {} of DRAM, {} thread{}; medians of rounds, ratios within rounds\n\n",
        report.workload.title(),
        Bytes(report.size_bytes),
        Bytes(report.dram_bytes),
        report.threads,
        if report.threads == 1 { "" } else { "s" },
    );
    let mut table = Table::new(&[
        "<",
        unit,
        "min – max",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "misses",
        "processor µs a miss",
        "× swap",
        "× mmap-random",
        "× device",
        "peak memory",
    ]);
    for row in &report.peers {
        table.row(vec![
            row.peer.name().into(),
            number(row.rate.median),
            format!("{} – {}", number(row.rate.min), number(row.rate.max)),
            median(&row.p50_us),
            median(&row.p99_us),
            median(&row.p999_us),
            format!("{:.3}", row.misses_per_access.median),
            median(&row.processor_us_per_miss),
            median(&row.over_swap),
            median(&row.over_mmap_random),
            median(&row.over_device),
            row.peak_bytes.map_or("-".into(), |bytes| Bytes(bytes).to_string()),
        ]);
    }
    text.push_str(&table.render());
    let mut table = Table::new(&["<device, direct I/O", "", "min – max", "<"]);
    for DeviceRate { series, .. } in &report.device {
        table.row(vec![
            series.name.clone(),
            number(series.median),
            format!("{} – {}", number(series.min), number(series.max)),
            series.unit.into(),
        ]);
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "\n{}", table.render());
    for row in &report.peers {
        if let Some(over) = &row.over_unpromoted {
            let (median, min, max) = (number(over.median), number(over.min), number(over.max));
            let _ = write!(text, "\nwith promotion / without: {median} ({min} – {max})\n");
        }
        if let Some(note) = row.note {
            let _ = write!(text, "\n{}: {note}\n", row.peer.name());
        }
    }
    for (missing, state) in [(&report.skipped, "skipped"), (&report.failed, "failed")] {
        for MissingPeer { peer, reason } in missing {
            let _ = write!(text, "\n{} {state}: {reason}\n", peer.name());
        }
    }
    text
}
