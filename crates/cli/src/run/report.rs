//! What paging did, for people and for machines.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use deepram_core::Bytes;
use deepram_pool::pager::PAGE;

use super::Form;
use super::histogram::Histogram;
use super::reading::{Reading, counts, names};
use crate::output::duration;

/// The reading in this form.
pub(super) fn render(reading: &Reading, form: Form) -> String {
    match form {
        Form::Text => text(reading),
        Form::Full => full(reading),
        Form::Json => format!("{}\n", reading.json()),
        Form::Prometheus => prometheus(reading),
    }
}

pub(crate) fn print(reading: &Reading, form: Form) {
    // Nobody is left to tell if this fails.
    let _ = std::io::stderr().write_all(render(reading, form).as_bytes());
}

/// The figures that matter most, by their names.
const SHORT: [&str; 8] = [
    "dram_peak_bytes",
    "budget_bytes",
    "managed_peak_bytes",
    "store_peak_bytes",
    "faults_read",
    "faults_returned",
    "bytes_read",
    "bytes_written",
];
/// Figures that are 0 once all processes have ended.
const NOW: [&str; 5] = ["managed_bytes", "dram_bytes", "beside_bytes", "store_bytes", "processes"];

/// The figures that matter most.
fn text(reading: &Reading) -> String {
    let mut all: Vec<(String, String)> = vec![];
    for name in SHORT {
        all.extend(
            names()
                .iter()
                .filter(|(named, _)| *named == name)
                .map(|(name, about)| line(reading, name, about)),
        );
    }
    all.extend(times(reading, &[(0.5, "p50"), (0.99, "p99")]));
    nothing(reading).into_iter().map(|line| format!("{line}\n")).chain(lines(&all)).collect()
}

/// All figures; what is there now as long as there are processes.
fn full(reading: &Reading) -> String {
    let ended = reading.figure("processes") == 0;
    let named = names().into_iter().filter(|(name, _)| !(ended && NOW.contains(name)));
    let mut all: Vec<_> = named.map(|(name, about)| line(reading, name, about)).collect();
    all.extend(times(reading, &[(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")]));
    if let Some(mean) = reading.depths.mean() {
        all.push((format!("{mean:.2}"), "Reads under way when one was submitted, mean".into()));
    }
    if let Some(amplification) = reading.write_amplification() {
        let about = "Bytes written to the store for each byte of pages that left dirty";
        all.push((format!("{amplification:.3}"), about.into()));
    }
    if let Some((used, wasted)) = reading.ahead() {
        all.push((format!("{:.1} %", used * 100.0), "Of the windows read ahead, used".into()));
        all.push((format!("{:.1} %", wasted * 100.0), "Of the windows read ahead, dropped unused".into()));
    }
    nothing(reading).into_iter().map(|line| format!("{line}\n")).chain(lines(&all)).collect()
}

/// Says so if nothing was paged.
fn nothing(reading: &Reading) -> Option<&'static str> {
    if reading.figure("managed_peak_bytes") == 0 {
        Some("nothing was paged: no process of the run had memory that can be")
    } else if reading.figure("left") == 0 {
        Some("nothing left DRAM: all of the memory fitted")
    } else {
        None
    }
}

fn line(reading: &Reading, name: &str, about: &str) -> (String, String) {
    let value = reading.figure(name);
    let bytes = name.ends_with("_bytes") || name.starts_with("bytes_");
    (if bytes { Bytes(value).to_string() } else { value.to_string() }, about.into())
}

fn times<'a>(reading: &'a Reading, shares: &'a [(f64, &str)]) -> impl Iterator<Item = (String, String)> + 'a {
    shares.iter().filter_map(|(share, name)| {
        let ns = reading.faults.at(*share)?;
        Some((duration(Duration::from_nanos(ns)), format!("Time to serve a fault, {name}")))
    })
}

fn lines(all: &[(String, String)]) -> impl Iterator<Item = String> + '_ {
    all.iter().map(|(value, about)| format!("{value:>14}  {about}\n"))
}

/// Upper ends of the fault times' buckets in nanoseconds: those of whole intervals, twice as long each.
fn time_ends() -> impl Iterator<Item = u64> {
    (1..=24).map(|n| 1000 << n)
}

/// The text format, version 0.0.4. Numbers are whole: times are in nanoseconds.
fn prometheus(reading: &Reading) -> String {
    let mut all = String::new();
    for (name, about) in names() {
        let (kind, suffix) = if counts(name) { ("counter", "_total") } else { ("gauge", "") };
        let _ = writeln!(
            all,
            "# HELP deepram_{name}{suffix} {about}\n# TYPE deepram_{name}{suffix} {kind}\ndeepram_{name}{suffix} {}",
            reading.figure(name)
        );
    }
    let about = "Time from when a fault is taken to when its page is there";
    histogram(&mut all, "deepram_fault_nanoseconds", about, &reading.faults, time_ends());
    let about = "Reads of the store under way when one was submitted, itself included";
    histogram(&mut all, "deepram_queue_depth", about, &reading.depths, (0..6).map(|n| 1 << n));
    all
}

fn histogram(all: &mut String, name: &str, about: &str, values: &Histogram, ends: impl Iterator<Item = u64>) {
    let _ = writeln!(all, "# HELP {name} {about}\n# TYPE {name} histogram");
    for end in ends {
        let _ = writeln!(all, "{name}_bucket{{le=\"{end}\"}} {}", values.up_to(end));
    }
    let (count, sum) = (values.count(), values.sum);
    let _ = writeln!(all, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
}

/// The line that is renewed while the program runs.
#[derive(Default)]
pub(super) struct Live {
    last: Option<Reading>,
}

impl Live {
    pub(super) fn renew(&mut self, now: &Reading) {
        let before = self.last.replace(now.clone());
        let between = before.map_or_else(|| now.clone(), |before| now.since(&before));
        let seconds = between.time.as_secs_f64().max(1e-9);
        let rate = |name: &str| between.figure(name) as f64 / seconds;
        let line = format!(
            "deepram: {} of {} in DRAM, {} managed; {:.0} faults/s, {:.0} returned/s; read {:.1} MB/s, written {:.1} MB/s",
            Bytes(now.figure("dram_bytes")),
            Bytes(now.figure("budget_bytes")),
            Bytes(now.figure("managed_bytes")),
            rate("faults_read"),
            rate("faults_returned"),
            rate("bytes_read") / 1e6,
            rate("written") * PAGE as f64 / 1e6,
        );
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
    }

    pub(super) fn end(&self) {
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::reading::tests::reading;

    #[test]
    fn the_full_text_tells_the_tail_and_the_derived_figures() {
        let text = full(&reading());
        for line in [
            "            10  Faults on pages never stored to",
            "       64.0 µs  Time to serve a fault, p50",
            "       64.0 µs  Time to serve a fault, p99.9",
            "         26.67  Reads under way when one was submitted, mean",
            "         1.250  Bytes written to the store for each byte of pages that left dirty",
            "        75.0 %  Of the windows read ahead, used",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_short_text_has_ten_lines_and_peaks() {
        let short = text(&reading());
        assert_eq!(short.lines().count(), 10, "{short}");
        assert!(short.contains("        36 KiB  Most bytes of DRAM in use at once\n"), "{short}");
    }

    #[test]
    fn after_the_end_there_are_peaks_and_no_zeros() {
        let mut reading = reading();
        assert!(full(&reading).contains("  Bytes of DRAM in use\n"));
        reading.processes.clear();
        reading.figures.insert("processes".into(), 0);
        let ended = full(&reading);
        assert!(
            !ended.contains("  Bytes of DRAM in use\n") && ended.contains("Most bytes managed at once"),
            "{ended}"
        );
    }

    #[test]
    fn it_is_said_when_nothing_was_paged_or_nothing_left() {
        let mut reading = reading();
        let first = |reading: &Reading| text(reading).lines().next().map(str::to_owned);
        reading.figures.insert("left".into(), 0);
        assert_eq!(first(&reading).as_deref(), Some("nothing left DRAM: all of the memory fitted"));
        reading.figures.insert("managed_peak_bytes".into(), 0);
        assert!(first(&reading).is_some_and(|line| line.starts_with("nothing was paged")));
    }

    #[test]
    fn buckets_of_prometheus_hold_whole_intervals() {
        let text = prometheus(&reading());
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
