//! Formats the paging statistics of a run: text, JSON, Prometheus, and the live line of `deepram run --live`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use deepram_core::Bytes;
use deepram_pager::PAGE;

use super::StatsFormat;
use super::histogram::Histogram;
use super::stats::{RunStats, is_counter, labels};
use crate::output::duration;

/// Formats the statistics.
pub(super) fn render(stats: &RunStats, format: StatsFormat) -> String {
    match format {
        StatsFormat::Text => text(stats),
        StatsFormat::Full => full(stats),
        StatsFormat::Json => format!("{}\n", stats.json()),
        StatsFormat::Prometheus => prometheus(stats),
    }
}

/// Prints the statistics to standard error.
pub(crate) fn print(stats: &RunStats, format: StatsFormat) {
    // A closed standard error leaves no place to report this failure.
    let _ = std::io::stderr().write_all(render(stats, format).as_bytes());
}

/// Names of the values in the short text, in order.
const SHORT: [&str; 8] = [
    "dram_peak_bytes",
    "budget_bytes",
    "paged_peak_bytes",
    "swap_file_peak_bytes",
    "faults_major",
    "victim_buffer_hits",
    "bytes_read",
    "bytes_written",
];
/// Gauges that are 0 once every process has ended.
const GAUGES_NOW: [&str; 5] = ["paged_bytes", "dram_bytes", "unpaged_bytes", "swap_file_bytes", "processes"];

/// The short text of `--stats`: the values in [`SHORT`] and two latencies.
fn text(stats: &RunStats) -> String {
    let mut all: Vec<(String, String)> = vec![];
    for name in SHORT {
        all.extend(
            labels().iter().filter(|(named, _)| *named == name).map(|(name, label)| line(stats, name, label)),
        );
    }
    all.extend(latencies(stats, &[(0.5, "p50"), (0.99, "p99")]));
    note(stats).into_iter().map(|line| format!("{line}\n")).chain(lines(&all)).collect()
}

/// The text of `--stats=full`: every value. Gauges of the present are left out once every process has ended.
fn full(stats: &RunStats) -> String {
    let ended = stats.value("processes") == 0;
    let named = labels().into_iter().filter(|(name, _)| !(ended && GAUGES_NOW.contains(name)));
    let mut all: Vec<_> = named.map(|(name, label)| line(stats, name, label)).collect();
    let quantiles = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
    all.extend(latencies(stats, &quantiles));
    if let Some(mean) = stats.queue_depth.mean() {
        all.push((format!("{mean:.2}"), "Swap file reads in flight at submission, mean".into()));
    }
    if let Some(amplification) = stats.write_amplification() {
        let label = "Write amplification (bytes written per dirty byte evicted)";
        all.push((format!("{amplification:.3}"), label.into()));
    }
    if let Some((used, wasted)) = stats.readahead_shares() {
        all.push((format!("{:.1} %", used * 100.0), "Readahead windows used, share".into()));
        all.push((format!("{:.1} %", wasted * 100.0), "Readahead windows evicted unused, share".into()));
    }
    note(stats).into_iter().map(|line| format!("{line}\n")).chain(lines(&all)).collect()
}

/// A first line for a run that paged no memory or evicted no page.
fn note(stats: &RunStats) -> Option<&'static str> {
    if stats.value("paged_peak_bytes") == 0 {
        Some("no memory was paged: no process of the run had memory that deepram pages")
    } else if stats.value("evicted_pages") == 0 {
        Some("no page was evicted: all memory fitted in the DRAM budget")
    } else {
        None
    }
}

fn line(stats: &RunStats, name: &str, label: &str) -> (String, String) {
    let value = stats.value(name);
    let bytes = name.ends_with("_bytes") || name.starts_with("bytes_");
    (if bytes { Bytes(value).to_string() } else { value.to_string() }, label.into())
}

fn latencies<'a>(
    stats: &'a RunStats,
    quantiles: &'a [(f64, &str)],
) -> impl Iterator<Item = (String, String)> + 'a {
    quantiles.iter().filter_map(|(share, name)| {
        let ns = stats.fault_latency.quantile(*share)?;
        Some((duration(Duration::from_nanos(ns)), format!("Page fault latency, {name}")))
    })
}

fn lines(all: &[(String, String)]) -> impl Iterator<Item = String> + '_ {
    all.iter().map(|(value, label)| format!("{value:>14}  {label}\n"))
}

/// Upper ends of the Prometheus buckets of fault latency, nanoseconds: powers of two times 1 us, each the end of a bucket of
/// the underlying histogram.
fn latency_ends() -> impl Iterator<Item = u64> {
    (1..=24).map(|n| 1000 << n)
}

/// The Prometheus text format, version 0.0.4. Every number is an integer; times are in nanoseconds.
fn prometheus(stats: &RunStats) -> String {
    let mut all = String::new();
    for (name, label) in labels() {
        let (kind, suffix) = if is_counter(name) { ("counter", "_total") } else { ("gauge", "") };
        let _ = writeln!(
            all,
            "# HELP deepram_{name}{suffix} {label}\n# TYPE deepram_{name}{suffix} {kind}\ndeepram_{name}{suffix} {}",
            stats.value(name)
        );
    }
    let label = "Page fault latency, nanoseconds";
    histogram(&mut all, "deepram_fault_nanoseconds", label, &stats.fault_latency, latency_ends());
    let label = "Swap file reads in flight when a read is submitted, that read included";
    histogram(&mut all, "deepram_queue_depth", label, &stats.queue_depth, (0..6).map(|n| 1 << n));
    all
}

fn histogram(all: &mut String, name: &str, label: &str, values: &Histogram, ends: impl Iterator<Item = u64>) {
    let _ = writeln!(all, "# HELP {name} {label}\n# TYPE {name} histogram");
    for end in ends {
        let _ = writeln!(all, "{name}_bucket{{le=\"{end}\"}} {}", values.up_to(end));
    }
    let (count, sum) = (values.count(), values.sum);
    let _ = writeln!(all, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
}

/// The line that `--live` redraws while the program runs.
#[derive(Default)]
pub(super) struct LiveLine {
    last: Option<RunStats>,
}

impl LiveLine {
    /// Redraws the line from the statistics of this moment.
    pub(super) fn update(&mut self, now: &RunStats) {
        let before = self.last.replace(now.clone());
        let interval = before.map_or_else(|| now.clone(), |before| now.since(&before));
        let seconds = interval.time.as_secs_f64().max(1e-9);
        let rate = |name: &str| interval.value(name) as f64 / seconds;
        let line = format!(
            "deepram: DRAM {} of {}, paged {}; {:.0} major faults/s, {:.0} victim buffer hits/s; read {:.1} MB/s, written {:.1} MB/s",
            Bytes(now.value("dram_bytes")),
            Bytes(now.value("budget_bytes")),
            Bytes(now.value("paged_bytes")),
            rate("faults_major"),
            rate("victim_buffer_hits"),
            rate("bytes_read") / 1e6,
            rate("written_back_pages") * PAGE as f64 / 1e6,
        );
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::stats::tests::sample;

    #[test]
    fn the_full_text_has_the_tail_latencies_and_the_derived_values() {
        let text = full(&sample());
        for line in [
            "            10  Page faults on fresh pages (never written)",
            "       64.0 µs  Page fault latency, p50",
            "       64.0 µs  Page fault latency, p99.9",
            "         26.67  Swap file reads in flight at submission, mean",
            "         1.250  Write amplification (bytes written per dirty byte evicted)",
            "        75.0 %  Readahead windows used, share",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_short_text_has_ten_lines_and_peaks() {
        let short = text(&sample());
        assert_eq!(short.lines().count(), 10, "{short}");
        assert!(short.contains("        36 KiB  DRAM in use, peak, bytes\n"), "{short}");
    }

    #[test]
    fn after_the_end_the_text_has_peaks_and_no_present_gauges() {
        let mut stats = sample();
        assert!(full(&stats).contains("  DRAM in use, bytes\n"));
        stats.members.clear();
        stats.values.insert("processes".into(), 0);
        let ended = full(&stats);
        assert!(
            !ended.contains("  DRAM in use, bytes\n") && ended.contains("Paged memory, peak, bytes"),
            "{ended}"
        );
    }

    #[test]
    fn a_first_line_says_that_no_memory_was_paged_or_no_page_was_evicted() {
        let mut stats = sample();
        let first = |stats: &RunStats| text(stats).lines().next().map(str::to_owned);
        stats.values.insert("evicted_pages".into(), 0);
        let wanted = "no page was evicted: all memory fitted in the DRAM budget";
        assert_eq!(first(&stats).as_deref(), Some(wanted));
        stats.values.insert("paged_peak_bytes".into(), 0);
        assert!(first(&stats).is_some_and(|line| line.starts_with("no memory was paged")));
    }

    #[test]
    fn prometheus_buckets_hold_whole_histogram_buckets() {
        let text = prometheus(&sample());
        for line in [
            "deepram_fault_nanoseconds_bucket{le=\"2000\"} 10",
            "deepram_fault_nanoseconds_bucket{le=\"32000\"} 10",
            "deepram_fault_nanoseconds_bucket{le=\"64000\"} 40",
            "deepram_fault_nanoseconds_sum 1500001",
            "deepram_fault_nanoseconds_count 40",
            "deepram_queue_depth_bucket{le=\"32\"} 10",
            "deepram_queue_depth_bucket{le=\"+Inf\"} 15",
            "deepram_queue_depth_sum 400",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
