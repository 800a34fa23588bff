//! The outcome as a table and as JSON: rates, latencies, and ratios to swap, to `mmap` with `MADV_RANDOM` and to the
//! device, each taken within a round.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::latency::Quantiles;
use super::super::{Series, shown};
use super::device::{Device, Rate};
use super::work::Workload;
use super::worker::Done;
use super::{Entry, MemoryArgs, Peer};
use crate::output::{Table, emit_json, emit_text};

/// Requests under way that gathers are compared with.
const GATHER_DEPTH: u32 = 32;

#[derive(Serialize)]
struct Report<'a> {
    workload: Workload,
    size_bytes: u64,
    dram_bytes: u64,
    threads: u32,
    policy: &'a str,
    latency_timed: bool,
    hints: bool,
    seed: u64,
    machine: Machine,
    device: Vec<Rate>,
    peers: Vec<Row<'a>>,
    skipped: Vec<Absent<'a>>,
    failed: Vec<Absent<'a>>,
}

#[derive(Serialize)]
struct Absent<'a> {
    peer: Peer,
    reason: &'a str,
}

/// One competitor.
#[derive(Serialize)]
struct Row<'a> {
    peer: Peer,
    /// Thousand accesses a second; MB/s of a scan.
    rate: Series,
    /// Faults that waited for the device, for each access.
    misses_per_access: Series,
    p50_us: Option<Series>,
    p99_us: Option<Series>,
    p999_us: Option<Series>,
    peak_bytes: Option<u64>,
    over_swap: Option<Series>,
    over_mmap_random: Option<Series>,
    over_device: Option<Series>,
    /// Of loads by call, over the same without promotion.
    over_unpromoted: Option<Series>,
    note: Option<&'a str>,
    rounds: &'a [Done],
}

/// What figures hang on.
#[derive(Serialize)]
struct Machine {
    kernel: String,
    processors: usize,
    /// Settings of the kernel as they are, where it tells.
    huge_pages: Option<String>,
    swap_cluster: Option<String>,
    load: Option<String>,
}

impl Machine {
    fn here() -> Self {
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

fn rate(workload: Workload, done: &Done) -> f64 {
    let per_second = done.accesses as f64 / done.seconds;
    if workload == Workload::Scan { per_second * 4096.0 / 1e6 } else { per_second / 1e3 }
}

fn rates(workload: Workload, entry: &Entry) -> Vec<f64> {
    entry.rounds.iter().map(|done| rate(workload, done)).collect()
}

/// Round by round.
fn ratios(what: &str, ours: &[f64], theirs: &[f64]) -> Option<Series> {
    let values: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    (!values.is_empty()).then(|| Series::new(what, "x", values))
}

pub(super) fn show(
    args: &MemoryArgs,
    workload: Workload,
    entries: &[Entry],
    device: &Device,
) -> anyhow::Result<()> {
    let of = |peer: Peer| {
        let entry = entries.iter().find(|entry| entry.peer == peer);
        entry.map(|entry| rates(workload, entry)).unwrap_or_default()
    };
    let (swap, random, unpromoted) = (of(Peer::Swap), of(Peer::MmapRandom), of(Peer::PoolLoadUnpromoted));
    let limit = match workload {
        Workload::Scan => device.sequential(),
        Workload::Gather => device.random(GATHER_DEPTH, false).to_vec(),
        Workload::Reads | Workload::Zipf => device.random(args.threads, false).to_vec(),
        Workload::Updates => device.random(args.threads, true).to_vec(),
    };
    let others = Others { swap: &swap, random: &random, unpromoted: &unpromoted, limit: &limit };
    let row = |entry| row(entry, workload, &others);
    let report = Report {
        workload,
        size_bytes: args.size.0,
        dram_bytes: args.dram.0,
        threads: args.threads,
        policy: &args.policy,
        latency_timed: !args.no_latency,
        hints: !args.no_hints,
        seed: args.seed,
        machine: Machine::here(),
        device: device.rates(),
        peers: entries.iter().filter(|entry| !entry.rounds.is_empty()).map(row).collect(),
        skipped: absent(entries, |entry| entry.skipped.as_deref()),
        failed: absent(entries, |entry| entry.failed.as_deref()),
    };
    if args.json { emit_json(&report) } else { emit_text(&text(&report)) }
}

fn absent(entries: &[Entry], reason: impl Fn(&Entry) -> Option<&str>) -> Vec<Absent<'_>> {
    entries.iter().filter_map(|entry| Some(Absent { peer: entry.peer, reason: reason(entry)? })).collect()
}

/// What a competitor is compared with, round by round.
struct Others<'a> {
    swap: &'a [f64],
    random: &'a [f64],
    unpromoted: &'a [f64],
    limit: &'a [f64],
}

/// One competitor's row; what it is compared with, round by round.
fn row<'a>(entry: &'a Entry, workload: Workload, others: &Others<'_>) -> Row<'a> {
    let own = rates(workload, entry);
    let promoted = entry.peer == Peer::PoolLoad;
    let quantile = |what: &str, of: fn(&Quantiles) -> f64| {
        let values: Vec<f64> = entry.rounds.iter().filter_map(|done| done.latency.as_ref().map(of)).collect();
        (!values.is_empty()).then(|| Series::new(what, "us", values))
    };
    let misses = entry.rounds.iter().map(|done| done.misses as f64 / done.accesses as f64);
    Row {
        peer: entry.peer,
        misses_per_access: Series::new("misses", "an access", misses.collect()),
        p50_us: quantile("p50", |q| q.p50_us),
        p99_us: quantile("p99", |q| q.p99_us),
        p999_us: quantile("p99.9", |q| q.p999_us),
        peak_bytes: entry.rounds.iter().filter_map(|done| done.peak_bytes).max(),
        over_swap: ratios("over swap", &own, others.swap),
        over_mmap_random: ratios("over mmap-random", &own, others.random),
        over_device: ratios("over the device", &own, others.limit),
        over_unpromoted: promoted
            .then(|| ratios("over pool-load-unpromoted", &own, others.unpromoted))
            .flatten(),
        rate: Series::new(entry.peer.name(), unit(workload), own),
        note: entry.note.as_deref(),
        rounds: &entry.rounds,
    }
}

/// Three digits, as far as they go.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn text(report: &Report<'_>) -> String {
    let median = |series: &Option<Series>| series.as_ref().map_or("-".into(), |s| number(s.median));
    let unit = unit(report.workload);
    let mut text = format!(
        "{}\n{} of data, {} of DRAM, {} thread{}; medians, and ratios of each round\n\n",
        report.workload.about(),
        shown(report.size_bytes),
        shown(report.dram_bytes),
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
        "× swap",
        "× mmap-random",
        "× device",
        "memory at most",
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
            median(&row.over_swap),
            median(&row.over_mmap_random),
            median(&row.over_device),
            row.peak_bytes.map_or("-".into(), shown),
        ]);
    }
    text.push_str(&table.render());
    let mut table = Table::new(&["<the device, past all caches", "", "min – max", "<"]);
    for Rate { series, .. } in &report.device {
        table.row(vec![
            series.what.clone(),
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
            let _ = write!(text, "\npromotion: x {median} ({min} – {max})\n");
        }
        if let Some(note) = row.note {
            let _ = write!(text, "\n{}: {note}\n", row.peer.name());
        }
    }
    for (absent, what) in [(&report.skipped, "skipped"), (&report.failed, "failed")] {
        for Absent { peer, reason } in absent {
            let _ = write!(text, "\n{} {what}: {reason}\n", peer.name());
        }
    }
    text
}
