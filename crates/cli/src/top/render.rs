//! The text of `deepram top`: all statistics of one run, or one line for each of several runs.

use std::time::Duration;

use deepram_core::Bytes;

use super::Observation;
use crate::output::{Table, count, duration};
use crate::run::RunStats;

/// Width of the DRAM bar, characters.
const BAR: u64 = 30;
/// Most processes listed.
const PROCESSES: usize = 12;
/// Width of the column of commands, characters.
const COMMAND: usize = 40;
const NONE: &str = "-";

/// Lines of the screen.
pub(super) fn screen(all: &[Observation]) -> Vec<String> {
    match all {
        [] => vec!["no run of this user is active".into()],
        [one] => full(one),
        several => table(several),
    }
}

fn full(observation: &Observation) -> Vec<String> {
    let Observation { now, interval } = observation;
    let per_second = |name: &str| rate(interval, interval.value(name));
    let bytes = |name: &str| Bytes(now.value(name)).to_string();
    let faults = interval.all_faults();
    let mut lines = vec![
        format!("{} ({}), running for {} s", now.command, now.pid, now.time.as_secs()),
        String::new(),
        format!(
            "DRAM    {} {} of {}, peak {}",
            bar(now),
            bytes("dram_bytes"),
            bytes("budget_bytes"),
            bytes("dram_peak_bytes")
        ),
        format!(
            "memory  {} paged, {} in swap files, {} {}",
            bytes("paged_bytes"),
            bytes("swap_file_bytes"),
            now.value("processes"),
            if now.value("processes") == 1 { "process" } else { "processes" }
        ),
        String::new(),
        format!(
            "faults  {:>10} /s   p50 {}, p99 {}, p99.9 {}, max {}",
            rate(interval, faults),
            time(interval, 0.5),
            time(interval, 0.99),
            time(interval, 0.999),
            time(interval, 1.0)
        ),
    ];
    for (name, label) in [
        ("faults_major", "major (read from the swap file)"),
        ("victim_buffer_hits", "victim buffer hits"),
        ("faults_fresh", "fresh pages"),
        ("faults_write_protected", "write protection (first write to a clean page)"),
    ] {
        let share = interval.value(name) as f64 / faults.max(1) as f64 * 100.0;
        lines.push(format!("        {:>10} /s {share:5.1} % {label}", per_second(name)));
    }
    let share = |(used, wasted): (f64, f64)| {
        format!("windows used {:.0} %, wasted {:.0} %", used * 100.0, wasted * 100.0)
    };
    lines.extend([
        format!(
            "readahead {:>8} /s   {}",
            per_second("readahead_pages"),
            interval.readahead_shares().map_or(NONE.into(), share)
        ),
        format!(
            "evicted {:>10} /s   {} /s dirty, {} /s stalls",
            per_second("evicted_pages"),
            per_second("evicted_dirty_pages"),
            per_second("eviction_stalls")
        ),
        String::new(),
        format!(
            "swap    read {} MB/s, written {} MB/s, write amplification {}",
            megabytes(interval, "bytes_read"),
            megabytes(interval, "bytes_written"),
            number(interval.write_amplification())
        ),
        format!(
            "queue   {} reads in flight at submission, p99 {}",
            number(interval.queue_depth.mean()),
            interval.queue_depth.quantile(0.99).map_or(NONE.into(), |n| n.to_string())
        ),
    ]);
    if now.value("io_errors") > 0 {
        lines.push(format!("        {} failed swap file transfers", count(now.value("io_errors"))));
    }
    lines.push(String::new());
    let mut processes = now.members.clone();
    processes.sort_unstable_by_key(|(pid, bytes)| (u64::MAX - bytes, *pid));
    for (pid, bytes) in processes.iter().take(PROCESSES) {
        lines.push(format!("{:>8}  {:>12}  {}", pid, Bytes(*bytes).to_string(), name(*pid)));
    }
    lines
}

fn table(several: &[Observation]) -> Vec<String> {
    let mut table = Table::new(&[
        "PID",
        "DRAM",
        "budget",
        "faults/s",
        "p50",
        "p99",
        "queue",
        "read MB/s",
        "write MB/s",
        "processes",
        "<command",
    ]);
    for Observation { now, interval } in several {
        table.row(vec![
            now.pid.to_string(),
            Bytes(now.value("dram_bytes")).to_string(),
            Bytes(now.value("budget_bytes")).to_string(),
            rate(interval, interval.all_faults()),
            time(interval, 0.5),
            time(interval, 0.99),
            number(interval.queue_depth.mean()),
            megabytes(interval, "bytes_read"),
            megabytes(interval, "bytes_written"),
            now.value("processes").to_string(),
            now.command.chars().take(COMMAND).collect(),
        ]);
    }
    table.render().lines().map(str::to_owned).collect()
}

fn seconds(interval: &RunStats) -> f64 {
    interval.time.as_secs_f64().max(1e-9)
}

fn rate(interval: &RunStats, n: u64) -> String {
    count((n as f64 / seconds(interval)).round() as u64)
}

fn megabytes(interval: &RunStats, name: &str) -> String {
    format!("{:.1}", interval.value(name) as f64 / seconds(interval) / 1e6)
}

fn time(interval: &RunStats, share: f64) -> String {
    interval.fault_latency.quantile(share).map_or(NONE.into(), |ns| duration(Duration::from_nanos(ns)))
}

fn number(number: Option<f64>) -> String {
    number.map_or(NONE.into(), |number| format!("{number:.2}"))
}

fn bar(now: &RunStats) -> String {
    let (used, most) = (now.value("dram_bytes"), now.value("budget_bytes").max(1));
    let full = ((u128::from(used) * u128::from(BAR) / u128::from(most)) as u64).min(BAR);
    format!("[{}{}]", "#".repeat(full as usize), "-".repeat((BAR - full) as usize))
}

/// The name of a process's program.
fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::sample;

    fn observation() -> Observation {
        Observation { now: sample(), interval: sample() }
    }

    #[test]
    fn one_run_is_shown_in_full_and_each_of_several_in_a_line() {
        assert!(screen(&[])[0].contains("no run of this user"));
        let one = screen(&[observation()]).join("\n");
        for part in [
            "a program (10)",
            "p99 64.0 µs",
            "75.0 % major (read from the swap file)",
            "windows used 75 %, wasted 12 %",
            "26.67 reads in flight",
            "write amplification 1.25",
        ] {
            assert!(one.contains(part), "{part}\n{one}");
        }
        let two = screen(&[observation(), observation()]);
        assert_eq!(two.len(), 3, "{two:?}");
    }

    #[test]
    fn the_bar_is_as_full_as_the_dram() {
        assert_eq!(bar(&sample()), format!("[{}]", "-".repeat(30)));
        assert!(bar(&sample()).len() == 32);
    }

    #[test]
    fn a_run_without_faults_shows_no_invented_values() {
        let nothing = Observation { interval: sample().since(&sample()), now: sample() };
        let text = screen(&[nothing]).join("\n");
        assert!(text.contains("p50 -, p99 -") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
