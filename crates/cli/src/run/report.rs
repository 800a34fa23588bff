//! Prints the paging statistics of a run at its end, and the live line of `deepram run --live`.

use std::io::Write as _;

use deepram_core::Bytes;
use deepram_metrics::{Statistics, lines};
use deepram_pager::PAGE;

use super::StatsFormat;

/// Formats the statistics.
fn render(stats: &Statistics, format: StatsFormat) -> String {
    match format {
        StatsFormat::Text => text(stats),
        StatsFormat::Full => stats.full_text(),
        StatsFormat::Json => format!("{}\n", stats.json()),
        StatsFormat::Prometheus => stats.prometheus(),
    }
}

/// Prints the statistics to standard error.
pub(crate) fn print(stats: &Statistics, format: StatsFormat) {
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
/// The short text of `--stats`: the values in [`SHORT`] and two latencies.
fn text(stats: &Statistics) -> String {
    let metrics = (stats.kind.metrics)();
    let found = SHORT.iter().filter_map(|name| metrics.iter().find(|metric| metric.name == *name));
    let mut all: Vec<_> = found.map(|metric| stats.line(metric)).collect();
    all.extend(stats.latencies(&[(0.5, "p50"), (0.99, "p99")]));
    stats.note() + &lines(&all)
}

/// The line that `--live` redraws while the program runs.
#[derive(Default)]
pub(super) struct LiveLine {
    last: Option<Statistics>,
}

impl LiveLine {
    /// Redraws the line from the statistics of this moment.
    pub(super) fn update(&mut self, now: &Statistics) {
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
    fn the_short_text_has_ten_lines_and_peaks() {
        let short = text(&sample());
        assert_eq!(short.lines().count(), 10, "{short}");
        assert!(short.contains("        36 KiB  DRAM in use, peak, bytes\n"), "{short}");
    }

    #[test]
    fn after_the_end_the_text_has_peaks_and_no_present_gauges() {
        let mut stats = sample();
        assert!(stats.full_text().contains("  DRAM in use, bytes\n"));
        stats.processes.clear();
        stats.values.insert("processes".into(), 0);
        let ended = stats.full_text();
        assert!(
            !ended.contains("  DRAM in use, bytes\n") && ended.contains("Paged memory, peak, bytes"),
            "{ended}"
        );
    }

    #[test]
    fn a_first_line_says_that_no_memory_was_paged_or_no_page_was_evicted() {
        let mut stats = sample();
        let first = |stats: &Statistics| text(stats).lines().next().map(str::to_owned);
        stats.values.insert("evicted_pages".into(), 0);
        let wanted = "no page was evicted: all memory fitted in the DRAM budget";
        assert_eq!(first(&stats).as_deref(), Some(wanted));
        stats.values.insert("paged_peak_bytes".into(), 0);
        assert!(first(&stats).is_some_and(|line| line.starts_with("no memory was paged")));
    }
}
