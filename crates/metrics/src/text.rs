//! Statistics as text and in the format of Prometheus.

use std::fmt::Write as _;
use std::time::Duration;

use deepram_core::Bytes;

use crate::histogram::Histogram;
use crate::statistics::{Derived, Form, Metric, Statistics};

/// A time in the unit that gives one to three digits before the point.
#[must_use]
pub fn duration(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns} ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    if value < 10.0 { format!("{value:.2} {unit}") } else { format!("{value:.1} {unit}") }
}

/// Lines of values with their labels.
#[must_use]
pub fn lines(all: &[(String, String)]) -> String {
    all.iter().map(|(value, label)| format!("{value:>14}  {label}\n")).collect()
}

/// Upper ends of the Prometheus buckets of fault latency, nanoseconds: powers of two times 1 us, each the end of a bucket of
/// the underlying histogram.
fn latency_ends() -> impl Iterator<Item = u64> {
    (1..=24).map(|n| 1000 << n)
}

impl Statistics {
    /// The value of a counter or gauge and its label.
    #[must_use]
    pub fn line(&self, metric: &Metric) -> (String, String) {
        let value = self.value(metric.name);
        let bytes = metric.name.ends_with("_bytes") || metric.name.starts_with("bytes_");
        (if bytes { Bytes(value).to_string() } else { value.to_string() }, metric.label.into())
    }

    /// Quantiles of the page fault latency, given by share and name, and their labels. There are none without faults.
    #[must_use]
    pub fn latencies(&self, quantiles: &[(f64, &str)]) -> Vec<(String, String)> {
        let found = quantiles.iter().filter_map(|(share, name)| {
            let ns = self.fault_latency.quantile(*share)?;
            Some((duration(Duration::from_nanos(ns)), format!("Page fault latency, {name}")))
        });
        found.collect()
    }

    /// Text with every value.
    #[must_use]
    pub fn full_text(&self) -> String {
        let hidden = (self.kind.hidden)(self);
        let shown = (self.kind.metrics)().into_iter().filter(|metric| !hidden.contains(&metric.name));
        let mut all: Vec<_> = shown.map(|metric| self.line(&metric)).collect();
        let quantiles = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
        all.extend(self.latencies(&quantiles));
        if let Some(mean) = self.queue_depth.mean() {
            all.push((format!("{mean:.2}"), format!("{} in flight at submission, mean", self.kind.reads)));
        }
        all.extend((self.kind.derived)(self).into_iter().filter_map(
            |Derived { label, form, value, .. }| {
                let text = match form {
                    Form::Ratio => format!("{:.3}", value?),
                    Form::Share => format!("{:.1} %", value? * 100.0),
                };
                Some((text, label.to_owned()))
            },
        ));
        self.note() + &lines(&all)
    }

    /// The line that precedes the text; empty if there is none.
    #[must_use]
    pub fn note(&self) -> String {
        (self.kind.note)(self).map_or_else(String::new, |note| format!("{note}\n"))
    }

    /// The Prometheus text format, version 0.0.4. Every number is an integer; times are in nanoseconds.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut all = String::new();
        let prefix = self.kind.prefix;
        for Metric { name, label, is_counter } in (self.kind.metrics)() {
            let (kind, suffix) = if is_counter { ("counter", "_total") } else { ("gauge", "") };
            let _ = writeln!(
                all,
                "# HELP {prefix}_{name}{suffix} {label}\n# TYPE {prefix}_{name}{suffix} {kind}\n{prefix}_{name}{suffix} {}",
                self.value(name)
            );
        }
        let label = "Page fault latency, nanoseconds";
        let name = format!("{prefix}_fault_nanoseconds");
        histogram(&mut all, &name, label, &self.fault_latency, latency_ends());
        let label = format!("{} in flight when a read is submitted, that read included", self.kind.reads);
        let name = format!("{prefix}_queue_depth");
        histogram(&mut all, &name, &label, &self.queue_depth, (0..6).map(|n| 1 << n));
        all
    }
}

fn histogram(all: &mut String, name: &str, label: &str, values: &Histogram, ends: impl Iterator<Item = u64>) {
    let _ = writeln!(all, "# HELP {name} {label}\n# TYPE {name} histogram");
    for end in ends {
        let _ = writeln!(all, "{name}_bucket{{le=\"{end}\"}} {}", values.up_to(end));
    }
    let (count, sum) = (values.count(), values.sum);
    let _ = writeln!(all, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
}

#[cfg(test)]
mod tests {
    use crate::statistics::tests::sample;

    #[test]
    fn the_full_text_has_the_tail_latencies_and_the_derived_values() {
        let text = sample().full_text();
        for line in [
            "            40  Page faults",
            "        28 KiB  DRAM in use, bytes",
            "       64.0 µs  Page fault latency, p50",
            "       64.0 µs  Page fault latency, p99.9",
            "         26.67  Reads in flight at submission, mean",
            "         1.250  Bytes read for each fault",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn prometheus_buckets_hold_whole_histogram_buckets() {
        let text = sample().prometheus();
        for line in [
            "deepram_sample_faults_total 40",
            "deepram_sample_dram_bytes 28672",
            "deepram_sample_fault_nanoseconds_bucket{le=\"2000\"} 10",
            "deepram_sample_fault_nanoseconds_bucket{le=\"32000\"} 10",
            "deepram_sample_fault_nanoseconds_bucket{le=\"64000\"} 40",
            "deepram_sample_fault_nanoseconds_sum 1500001",
            "deepram_sample_fault_nanoseconds_count 40",
            "deepram_sample_queue_depth_bucket{le=\"32\"} 10",
            "deepram_sample_queue_depth_bucket{le=\"+Inf\"} 15",
            "deepram_sample_queue_depth_sum 400",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
