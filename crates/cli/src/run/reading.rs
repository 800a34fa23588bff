//! What a run is doing, as one reading: from its budget, or from what it answers a request with.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use deepram_pool::pager::{BudgetReading, PAGE, PagerStats, SharedBudget};
use serde_json::{Map, Value, json};

use super::histogram::Histogram;

/// Where readings of a run of this process come from.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    budget: &'static SharedBudget,
    command: String,
}

impl Source {
    pub(crate) fn new(budget: &'static SharedBudget, command: String) -> Self {
        Self { budget, command }
    }

    pub(crate) fn read(&self) -> Reading {
        Reading::of(&self.budget.read(), std::process::id(), self.command.clone())
    }
}

/// A reading.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// The process that is `deepram run`.
    pub(crate) pid: u32,
    /// The program and its arguments.
    pub(crate) command: String,
    /// How long it has been running; of a difference, how long that is.
    pub(crate) time: Duration,
    pub(super) figures: BTreeMap<String, u64>,
    /// Times of faults, in nanoseconds.
    pub(crate) faults: Histogram,
    /// Reads under way when one was submitted, itself included.
    pub(crate) depths: Histogram,
    /// The processes, with the bytes of DRAM that each uses.
    pub(crate) processes: Vec<(u32, u64)>,
}

/// What a reading's figures are, in the order in which they are printed.
pub(super) fn names() -> Vec<(&'static str, &'static str)> {
    let counters = PagerStats::default();
    let named =
        counters.entries().into_iter().map(|(name, _, about)| (name, about.trim().trim_end_matches('.')));
    // What the budget knows for all processes together is told by it.
    let mut all: Vec<_> = named.filter(|(name, _)| !["dram_bytes", "budget_bytes"].contains(name)).collect();
    all.extend([
        ("dram_bytes", "Bytes of DRAM in use"),
        ("dram_peak_bytes", "Most bytes of DRAM in use at once"),
        ("budget_bytes", "Most bytes of DRAM that there may be"),
        ("managed_peak_bytes", "Most bytes managed at once"),
        ("beside_peak_bytes", "Most bytes of DRAM at once that were not paged"),
        ("store_peak_bytes", "Most bytes of the store's files at once"),
        ("processes", "Processes whose memory is paged"),
    ]);
    all
}

/// Whether the figure only ever grows.
pub(super) fn counts(name: &str) -> bool {
    !name.ends_with("_bytes") && name != "processes"
}

impl Reading {
    /// The reading of a budget.
    pub(crate) fn of(budget: &BudgetReading, pid: u32, command: String) -> Self {
        let stats = &budget.stats;
        let entries = stats.entries().into_iter().map(|(name, value, _)| (name.to_owned(), value));
        let mut figures: BTreeMap<String, u64> = entries.collect();
        for (name, value) in [
            ("dram_bytes", budget.used * PAGE as u64),
            ("dram_peak_bytes", budget.peak * PAGE as u64),
            ("budget_bytes", budget.dram),
            ("managed_peak_bytes", budget.peaks.managed_bytes),
            ("beside_peak_bytes", budget.peaks.beside_bytes),
            ("store_peak_bytes", budget.peaks.store_bytes),
            ("processes", budget.processes.len() as u64),
        ] {
            figures.insert(name.into(), value);
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32);
        let ns = |time: &Duration| time.as_nanos() as u64;
        Self {
            pid,
            command,
            time: now.saturating_sub(Duration::from_nanos(budget.began_ns)),
            figures,
            faults: Histogram {
                sum: ns(&stats.fault_time),
                counts: stats.fault_latency.iter().map(|(end, count)| (ns(end), *count)).collect(),
            },
            depths: Histogram {
                sum: stats.queue_depth_sum,
                counts: stats.queue_depth.iter().copied().collect(),
            },
            processes: budget.processes.iter().map(|(pid, used)| (*pid, used * PAGE as u64)).collect(),
        }
    }

    /// The figure of this name, one of [`names`].
    pub(crate) fn figure(&self, name: &str) -> u64 {
        self.figures.get(name).copied().unwrap_or(0)
    }

    /// All faults.
    pub(crate) fn all_faults(&self) -> u64 {
        ["faults_fresh", "faults_read", "faults_returned", "faults_stored"]
            .map(|name| self.figure(name))
            .iter()
            .sum()
    }

    fn share(&self, part: &str, whole: u64) -> Option<f64> {
        (whole > 0).then(|| self.figure(part) as f64 / whole as f64)
    }

    /// Bytes written to the store for each byte of pages that left memory dirty.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        self.share("bytes_written", self.figure("left_dirty") * PAGE as u64)
    }

    /// Of the windows read ahead, the share whose first page was used, and the share of those whose first page
    /// was dropped unused. What is neither is still waiting, or had no first page to be seen.
    pub(crate) fn ahead(&self) -> Option<(f64, f64)> {
        let windows = self.figure("windows");
        Some((self.share("windows_used", windows)?, self.share("windows_wasted", windows)?))
    }

    /// What happened after `before`; what is no count stays as it is.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut all = self.clone();
        all.time = self.time.saturating_sub(before.time);
        for (name, value) in all.figures.iter_mut().filter(|(name, _)| counts(name)) {
            *value = value.saturating_sub(before.figure(name));
        }
        (all.faults, all.depths) = (self.faults.since(&before.faults), self.depths.since(&before.depths));
        all
    }

    /// As one object.
    pub(crate) fn json(&self) -> Value {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |share: f64| self.faults.at(share).map(us);
        let ahead = self.ahead();
        let mut all: Map<String, Value> =
            self.figures.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
        let more = json!({
            "deepram_version": env!("CARGO_PKG_VERSION"),
            "pid": self.pid,
            "command": self.command,
            "seconds": self.time.as_secs_f64(),
            "fault_latency_us": self.faults.counts.iter().map(|(end, count)| (us(*end), count)).collect::<Vec<_>>(),
            "fault_time_us": us(self.faults.sum),
            "fault_us": {
                "mean": self.faults.mean().map(|ns| ns / 1e3),
                "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": at(1.0),
            },
            "queue_depth": self.depths.counts.iter().collect::<Vec<_>>(),
            "queue_depth_sum": self.depths.sum,
            "queue_depth_mean": self.depths.mean(),
            "write_amplification": self.write_amplification(),
            "windows_used_share": ahead.map(|(used, _)| used),
            "windows_wasted_share": ahead.map(|(_, wasted)| wasted),
            "process_dram_bytes": self.processes,
        });
        if let Value::Object(more) = more {
            all.extend(more);
        }
        Value::Object(all)
    }

    /// From what [`Reading::json`] makes.
    ///
    /// # Errors
    /// It is something else, or of another version of deepram.
    pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let all: Value = serde_json::from_slice(text).context("the answer is no JSON")?;
        let version = all["deepram_version"].as_str().context("the answer is not that of a `deepram run`")?;
        if version != env!("CARGO_PKG_VERSION") {
            bail!("the answer is that of deepram {version}; use its own `deepram top`");
        }
        let number =
            |value: &Value, name: &str| value.as_u64().with_context(|| format!("{name} is no number"));
        let histogram = |sum: u64, name: &str, factor: f64| -> anyhow::Result<Histogram> {
            let rows: Vec<(f64, u64)> = serde_json::from_value(all[name].clone()).context(name.to_owned())?;
            ensure!(rows.iter().all(|(end, _)| (0.0..1e15).contains(end)), "{name} has no such value");
            let counts = rows.into_iter().map(|(end, count)| ((end * factor).round() as u64, count));
            Ok(Histogram { sum, counts: counts.collect() })
        };
        let figures = names().into_iter().map(|(name, _)| Ok((name.to_owned(), number(&all[name], name)?)));
        let fault_us = all["fault_time_us"].as_f64().context("fault_time_us is no number")?;
        let seconds = all["seconds"].as_f64().context("seconds is no number")?;
        Ok(Self {
            pid: u32::try_from(number(&all["pid"], "pid")?)?,
            command: all["command"].as_str().context("command is no text")?.into(),
            time: Duration::try_from_secs_f64(seconds)?,
            figures: figures.collect::<anyhow::Result<_>>()?,
            faults: histogram((fault_us * 1e3).round() as u64, "fault_latency_us", 1e3)?,
            depths: histogram(number(&all["queue_depth_sum"], "queue_depth_sum")?, "queue_depth", 1.0)?,
            processes: serde_json::from_value(all["process_dram_bytes"].clone())
                .context("process_dram_bytes")?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A reading with something in every part.
    pub(crate) fn reading() -> Reading {
        let stats = PagerStats {
            faults_fresh: 10,
            faults_read: 30,
            windows: 8,
            windows_used: 6,
            windows_wasted: 1,
            left: 120,
            left_dirty: 100,
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
            peaks: PagerStats { managed_bytes: 1 << 20, ..PagerStats::default() },
            ..BudgetReading::default()
        };
        let mut reading = Reading::of(&budget, 10, "a program".into());
        reading.time = Duration::from_millis(1500);
        reading
    }

    #[test]
    fn what_is_told_is_understood_again() {
        let reading = reading();
        assert_eq!(Reading::parse(reading.json().to_string().as_bytes()).unwrap(), reading);
        assert_eq!(reading.write_amplification(), Some(1.25));
        assert_eq!(reading.ahead(), Some((0.75, 0.125)));
        assert_eq!(reading.json()["fault_us"]["p99"], 64.0);
        assert_eq!(names().len(), reading.figures.len());
    }

    #[test]
    fn what_is_something_else_is_an_error() {
        let right = reading().json();
        for name in
            ["faults_read", "fault_latency_us", "queue_depth", "pid", "command", "seconds", "deepram_version"]
        {
            let mut wrong = right.clone();
            wrong[name] = Value::from(-7.5);
            assert!(Reading::parse(wrong.to_string().as_bytes()).is_err(), "{name}");
        }
        let mut old = right;
        old["deepram_version"] = "0.0.1".into();
        let error = Reading::parse(old.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().contains("deepram 0.0.1"), "{error}");
        assert!(Reading::parse(b"<html>").is_err());
    }

    #[test]
    fn a_difference_is_what_happened_meanwhile() {
        let (early, mut late) = (reading(), reading());
        late.figures.insert("faults_read".into(), 50);
        late.time += Duration::from_secs(2);
        let between = late.since(&early);
        assert_eq!((between.figure("faults_read"), between.figure("faults_fresh")), (20, 0));
        assert_eq!((between.figure("dram_bytes"), between.time), (7 * 4096, Duration::from_secs(2)));
        assert_eq!(between.faults.count(), 0);
    }
}
