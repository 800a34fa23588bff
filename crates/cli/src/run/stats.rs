//! The paging statistics of a run, read from its shared budget or from the answer to a request.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use deepram_pager::{BudgetReading, PAGE, PagerStats, SharedBudget};
use serde_json::{Map, Value, json};

use super::histogram::Histogram;

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

    pub(crate) fn read(&self) -> RunStats {
        RunStats::from_budget(&self.budget.read(), std::process::id(), self.command.clone())
    }
}

/// Statistics of a run at one moment, or of the interval between two moments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunStats {
    /// Process id of `deepram run`.
    pub(crate) pid: u32,
    /// Command line of the program.
    pub(crate) command: String,
    /// Time since the start of the run, or length of the interval.
    pub(crate) time: Duration,
    pub(super) values: BTreeMap<String, u64>,
    /// Page fault latencies, nanoseconds.
    pub(crate) fault_latency: Histogram,
    /// Swap file reads in flight when a read was submitted, that read included.
    pub(crate) queue_depth: Histogram,
    /// Process id of each budget member and its DRAM in use, bytes.
    pub(crate) members: Vec<(u32, u64)>,
}

/// Name and label of each counter and gauge, in the order in which they are printed.
pub(super) fn labels() -> Vec<(&'static str, &'static str)> {
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
    all
}

/// Whether the value is a counter, which only grows, and not a gauge.
pub(super) fn is_counter(name: &str) -> bool {
    !name.ends_with("_bytes") && name != "processes"
}

impl RunStats {
    /// Statistics from a reading of the shared budget.
    pub(crate) fn from_budget(budget: &BudgetReading, pid: u32, command: String) -> Self {
        let stats = &budget.stats;
        let entries = stats.entries().into_iter().map(|(name, value, _)| (name.to_owned(), value));
        let mut values: BTreeMap<String, u64> = entries.collect();
        for (name, value) in [
            ("dram_bytes", budget.used * PAGE as u64),
            ("dram_peak_bytes", budget.peak * PAGE as u64),
            ("budget_bytes", budget.dram),
            ("paged_peak_bytes", budget.peaks.paged_bytes),
            ("unpaged_peak_bytes", budget.peaks.unpaged_bytes),
            ("swap_file_peak_bytes", budget.peaks.swap_file_bytes),
            ("processes", budget.processes.len() as u64),
        ] {
            values.insert(name.into(), value);
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32);
        let ns = |time: &Duration| time.as_nanos() as u64;
        Self {
            pid,
            command,
            time: now.saturating_sub(Duration::from_nanos(budget.began_ns)),
            values,
            fault_latency: Histogram {
                sum: ns(&stats.fault_time),
                counts: stats.fault_latency.iter().map(|(end, count)| (ns(end), *count)).collect(),
            },
            queue_depth: Histogram {
                sum: stats.queue_depth_sum,
                counts: stats.queue_depth.iter().copied().collect(),
            },
            members: budget.processes.iter().map(|(pid, used)| (*pid, used * PAGE as u64)).collect(),
        }
    }

    /// The counter or gauge of this name, one of [`labels`]; 0 if there is none.
    pub(crate) fn value(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// Page faults of all kinds.
    pub(crate) fn all_faults(&self) -> u64 {
        ["faults_fresh", "faults_major", "victim_buffer_hits", "faults_write_protected"]
            .map(|name| self.value(name))
            .iter()
            .sum()
    }

    /// A counter as a share of `whole`; `None` if `whole` is 0.
    fn share(&self, part: &str, whole: u64) -> Option<f64> {
        (whole > 0).then(|| self.value(part) as f64 / whole as f64)
    }

    /// Bytes written to the swap file for each byte of dirty pages evicted. `None` before the first dirty eviction.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        self.share("bytes_written", self.value("evicted_dirty_pages") * PAGE as u64)
    }

    /// Share of the readahead windows whose observed page was used, and share whose observed page was evicted unused.
    /// The other windows have a page in the victim buffer still, or have no observed page.
    pub(crate) fn readahead_shares(&self) -> Option<(f64, f64)> {
        let windows = self.value("readahead_windows");
        Some((
            self.share("readahead_windows_used", windows)?,
            self.share("readahead_windows_wasted", windows)?,
        ))
    }

    /// Statistics of the interval since `before`: counters are differences, gauges keep their values.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut all = self.clone();
        all.time = self.time.saturating_sub(before.time);
        for (name, value) in all.values.iter_mut().filter(|(name, _)| is_counter(name)) {
            *value = value.saturating_sub(before.value(name));
        }
        all.fault_latency = self.fault_latency.since(&before.fault_latency);
        all.queue_depth = self.queue_depth.since(&before.queue_depth);
        all
    }

    /// The statistics as one JSON object: `--stats json` and `/stats.json`.
    pub(crate) fn json(&self) -> Value {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |share: f64| self.fault_latency.quantile(share).map(us);
        let readahead = self.readahead_shares();
        let mut all: Map<String, Value> =
            self.values.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
        let more = json!({
            "deepram_version": env!("CARGO_PKG_VERSION"),
            "pid": self.pid,
            "command": self.command,
            "seconds": self.time.as_secs_f64(),
            "fault_latency_us": self.fault_latency.counts.iter().map(|(end, count)| (us(*end), count)).collect::<Vec<_>>(),
            "fault_time_us": us(self.fault_latency.sum),
            "fault_us": {
                "mean": self.fault_latency.mean().map(|ns| ns / 1e3),
                "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": at(1.0),
            },
            "queue_depth": self.queue_depth.counts.iter().collect::<Vec<_>>(),
            "queue_depth_sum": self.queue_depth.sum,
            "queue_depth_mean": self.queue_depth.mean(),
            "write_amplification": self.write_amplification(),
            "readahead_used_share": readahead.map(|(used, _)| used),
            "readahead_wasted_share": readahead.map(|(_, wasted)| wasted),
            "process_dram_bytes": self.members,
        });
        if let Value::Object(more) = more {
            all.extend(more);
        }
        Value::Object(all)
    }

    /// Parses what [`RunStats::json`] makes.
    ///
    /// # Errors
    /// The text is not such an object, or comes from another version of deepram.
    pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let all: Value = serde_json::from_slice(text).context("the answer is not JSON")?;
        let version =
            all["deepram_version"].as_str().context("the answer does not come from a `deepram run`")?;
        if version != env!("CARGO_PKG_VERSION") {
            bail!("the run belongs to deepram {version}: use the `deepram top` of that version");
        }
        let number =
            |value: &Value, name: &str| value.as_u64().with_context(|| format!("{name} is not a number"));
        let histogram = |sum: u64, name: &str, factor: f64| -> anyhow::Result<Histogram> {
            let rows: Vec<(f64, u64)> = serde_json::from_value(all[name].clone()).context(name.to_owned())?;
            ensure!(
                rows.iter().all(|(end, _)| (0.0..1e15).contains(end)),
                "{name}: a bucket end is out of range"
            );
            let counts = rows.into_iter().map(|(end, count)| ((end * factor).round() as u64, count));
            Ok(Histogram { sum, counts: counts.collect() })
        };
        let values = labels().into_iter().map(|(name, _)| Ok((name.to_owned(), number(&all[name], name)?)));
        let fault_us = all["fault_time_us"].as_f64().context("fault_time_us is not a number")?;
        let seconds = all["seconds"].as_f64().context("seconds is not a number")?;
        Ok(Self {
            pid: u32::try_from(number(&all["pid"], "pid")?)?,
            command: all["command"].as_str().context("command is not a string")?.into(),
            time: Duration::try_from_secs_f64(seconds)?,
            values: values.collect::<anyhow::Result<_>>()?,
            fault_latency: histogram((fault_us * 1e3).round() as u64, "fault_latency_us", 1e3)?,
            queue_depth: histogram(number(&all["queue_depth_sum"], "queue_depth_sum")?, "queue_depth", 1.0)?,
            members: serde_json::from_value(all["process_dram_bytes"].clone())
                .context("process_dram_bytes")?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Statistics with a value in every part.
    pub(crate) fn sample() -> RunStats {
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
        let mut run = RunStats::from_budget(&budget, 10, "a program".into());
        run.time = Duration::from_millis(1500);
        run
    }

    #[test]
    fn json_is_parsed_back_to_the_same_statistics() {
        let stats = sample();
        assert_eq!(RunStats::parse(stats.json().to_string().as_bytes()).unwrap(), stats);
        assert_eq!(stats.write_amplification(), Some(1.25));
        assert_eq!(stats.readahead_shares(), Some((0.75, 0.125)));
        assert_eq!(stats.json()["fault_us"]["p99"], 64.0);
        assert_eq!(labels().len(), stats.values.len());
    }

    #[test]
    fn other_text_is_an_error() {
        let right = sample().json();
        for name in [
            "faults_major",
            "fault_latency_us",
            "queue_depth",
            "pid",
            "command",
            "seconds",
            "deepram_version",
        ] {
            let mut wrong = right.clone();
            wrong[name] = Value::from(-7.5);
            assert!(RunStats::parse(wrong.to_string().as_bytes()).is_err(), "{name}");
        }
        let mut old = right;
        old["deepram_version"] = "0.0.1".into();
        let error = RunStats::parse(old.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().contains("deepram 0.0.1"), "{error}");
        assert!(RunStats::parse(b"<html>").is_err());
    }

    #[test]
    fn an_interval_has_the_differences_of_the_counters() {
        let (early, mut late) = (sample(), sample());
        late.values.insert("faults_major".into(), 50);
        late.time += Duration::from_secs(2);
        let interval = late.since(&early);
        assert_eq!((interval.value("faults_major"), interval.value("faults_fresh")), (20, 0));
        assert_eq!((interval.value("dram_bytes"), interval.time), (7 * 4096, Duration::from_secs(2)));
        assert_eq!(interval.fault_latency.count(), 0);
    }
}
