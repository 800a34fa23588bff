//! The paging statistics of a run, read from its shared budget.

use std::time::Duration;

use deepram_linux::clock::monotonic_ns;
use deepram_metrics::{Derived, Form, Histogram, Kind, Metric, Statistics};
use deepram_pager::{BudgetReading, PAGE, PagerStats, SharedBudget};

/// Statistics of a run. The text leaves out gauges of the present once every process has ended.
pub(crate) static RUN_STATISTICS: Kind = Kind {
    name_key: "command",
    prefix: "deepram",
    reads: "Swap file reads",
    metrics,
    derived,
    note,
    hidden: |stats| if stats.value("processes") == 0 { &GAUGES_NOW } else { &[] },
};

/// Gauges that are 0 once every process has ended.
const GAUGES_NOW: [&str; 5] = ["paged_bytes", "dram_bytes", "unpaged_bytes", "swap_file_bytes", "processes"];

/// Reads the statistics of a run that this process has started.
#[derive(Debug, Clone)]
pub(crate) struct StatsSource {
    budget: &'static SharedBudget,
    command: String,
}

impl StatsSource {
    pub(crate) fn new(budget: &'static SharedBudget, command: String) -> Self {
        Self { budget, command }
    }

    pub(crate) fn read(&self) -> Statistics {
        from_budget(&self.budget.read(), std::process::id(), self.command.clone())
    }
}

fn metrics() -> Vec<Metric> {
    let counters = PagerStats::default();
    let named = counters.entries().into_iter().map(|(name, _, label)| (name, label));
    // The budget counts these two for all members together.
    let mut all: Vec<_> = named.filter(|(name, _)| !["dram_bytes", "budget_bytes"].contains(name)).collect();
    all.extend([
        ("dram_bytes", "DRAM in use, bytes"),
        ("dram_peak_bytes", "DRAM in use, peak, bytes"),
        ("budget_bytes", "DRAM budget, bytes"),
        ("paged_peak_bytes", "Paged memory, peak, bytes"),
        ("unpaged_peak_bytes", "Unpaged memory in DRAM, peak, bytes"),
        ("swap_file_peak_bytes", "Swap files, peak, bytes"),
        ("processes", "Budget members (processes with a pager)"),
    ]);
    let is_counter = |name: &str| !name.ends_with("_bytes") && name != "processes";
    all.into_iter().map(|(name, label)| Metric { name, label, is_counter: is_counter(name) }).collect()
}

fn derived(stats: &Statistics) -> Vec<Derived> {
    let share = |name, label, part| {
        let value = stats.share(part, stats.value("readahead_windows"));
        Derived { name, label, form: Form::Share, value }
    };
    let label = "Write amplification (bytes written per dirty byte evicted)";
    let evicted = stats.value("evicted_dirty_pages") * PAGE as u64;
    let value = stats.share("bytes_written", evicted);
    // The other windows have a page in the victim buffer still, or have no observed page.
    vec![
        Derived { name: "write_amplification", label, form: Form::Ratio, value },
        share("readahead_used_share", "Readahead windows used, share", "readahead_windows_used"),
        share(
            "readahead_wasted_share",
            "Readahead windows evicted unused, share",
            "readahead_windows_wasted",
        ),
    ]
}

/// A first line for a run that paged no memory or evicted no page.
fn note(stats: &Statistics) -> Option<&'static str> {
    if stats.value("paged_peak_bytes") == 0 {
        Some("no memory was paged: no process of the run had memory that deepram pages")
    } else if stats.value("evicted_pages") == 0 {
        Some("no page was evicted: all memory fitted in the DRAM budget")
    } else {
        None
    }
}

/// Statistics from a reading of the shared budget.
pub(crate) fn from_budget(budget: &BudgetReading, pid: u32, command: String) -> Statistics {
    let stats = &budget.stats;
    let entries = stats.entries().into_iter().map(|(name, value, _)| (name, value));
    let whole = [
        ("dram_bytes", budget.used * PAGE as u64),
        ("dram_peak_bytes", budget.peak * PAGE as u64),
        ("budget_bytes", budget.dram),
        ("paged_peak_bytes", budget.peaks.paged_bytes),
        ("unpaged_peak_bytes", budget.peaks.unpaged_bytes),
        ("swap_file_peak_bytes", budget.peaks.swap_file_bytes),
        ("processes", budget.processes.len() as u64),
    ];
    Statistics {
        kind: &RUN_STATISTICS,
        pid,
        name: command,
        time: Duration::from_nanos(monotonic_ns().saturating_sub(budget.began_ns)),
        values: entries.chain(whole).map(|(name, value)| (name.to_owned(), value)).collect(),
        fault_latency: Histogram::of_times(stats.fault_time, &stats.fault_latency),
        queue_depth: Histogram {
            sum: stats.queue_depth_sum,
            counts: stats.queue_depth.iter().copied().collect(),
        },
        processes: budget.processes.iter().map(|(pid, used)| (*pid, used * PAGE as u64)).collect(),
    }
}

/// Page faults of all kinds.
pub(crate) fn all_faults(stats: &Statistics) -> u64 {
    ["faults_fresh", "faults_major", "victim_buffer_hits", "faults_write_protected"]
        .map(|name| stats.value(name))
        .iter()
        .sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Statistics with a value in every part.
    pub(crate) fn sample() -> Statistics {
        let stats = PagerStats {
            faults_fresh: 10,
            faults_major: 30,
            readahead_windows: 8,
            readahead_windows_used: 6,
            readahead_windows_wasted: 1,
            evicted_pages: 120,
            evicted_dirty_pages: 100,
            bytes_written: 125 * PAGE as u64,
            fault_latency: [(1189, 10), (64_000, 30)].map(|(ns, n)| (Duration::from_nanos(ns), n)).to_vec(),
            fault_time: Duration::from_nanos(1_500_001),
            queue_depth: vec![(1, 10), (64, 5)],
            queue_depth_sum: 400,
            ..PagerStats::default()
        };
        let budget = BudgetReading {
            used: 7,
            peak: 9,
            dram: 1 << 20,
            processes: vec![(11, 3), (12, 4)],
            stats,
            peaks: PagerStats { paged_bytes: 1 << 20, ..PagerStats::default() },
            ..BudgetReading::default()
        };
        let mut run = from_budget(&budget, 10, "a program".into());
        run.time = Duration::from_millis(1500);
        run
    }

    #[test]
    fn every_metric_has_a_value_and_json_is_parsed_back() {
        let stats = sample();
        assert_eq!(metrics().len(), stats.values.len());
        let kinds = [&RUN_STATISTICS, &deepram_pool::POOL_STATISTICS];
        assert_eq!(Statistics::parse(stats.json().to_string().as_bytes(), &kinds), Ok(stats.clone()));
        assert_eq!(stats.derived("write_amplification"), Some(1.25));
        assert_eq!(stats.derived("readahead_used_share"), Some(0.75));
        assert!(stats.full_text().contains("        75.0 %  Readahead windows used, share\n"));
    }
}
