//! The text of `deepram top`: all statistics of one run or pool, or one line for each of several.

use std::time::Duration;

use deepram_core::Bytes;
use deepram_metrics::{Kind, Statistics};
use deepram_pool::POOL_STATISTICS;

use super::Observation;
use crate::output::{Table, count, duration};
use crate::run::{RUN_STATISTICS, all_faults};

/// Width of the DRAM bar, characters.
const BAR: u64 = 30;
/// Most processes listed.
const PROCESSES: usize = 12;
/// Width of the column of commands, characters.
const COMMAND: usize = 40;
const NONE: &str = "-";

/// Said where nothing is to be shown.
pub(super) const NOTHING: &str = "no run of this user is active, and no pool is open";

/// Lines of the screen.
pub(super) fn screen(all: &[Observation]) -> Vec<String> {
    let of = |kind: &Kind| all.iter().filter(|one| one.now.kind == kind).collect::<Vec<_>>();
    match (&of(&RUN_STATISTICS)[..], &of(&POOL_STATISTICS)[..]) {
        ([], []) => vec![NOTHING.into()],
        ([run], []) => full_run(run),
        ([], [pool]) => full_pool(pool),
        ([], pools) => pool_table(pools),
        (runs, []) => run_table(runs),
        (runs, pools) => [run_table(runs), vec![String::new()], pool_table(pools)].concat(),
    }
}

fn full_run(observation: &Observation) -> Vec<String> {
    let Observation { now, interval } = observation;
    let per_second = |name: &str| rate(interval, interval.value(name));
    let bytes = |name: &str| Bytes(now.value(name)).to_string();
    let faults = all_faults(interval);
    let mut lines = vec![
        format!("{} ({}), running for {} s", now.name, now.pid, now.time.as_secs()),
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
        faults_line(interval, faults),
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
    let shares = ["readahead_used_share", "readahead_wasted_share"].map(|name| interval.derived(name));
    let windows = match shares {
        [Some(used), Some(wasted)] => {
            format!("windows used {:.0} %, wasted {:.0} %", used * 100.0, wasted * 100.0)
        }
        _ => NONE.into(),
    };
    lines.extend([
        format!("readahead {:>8} /s   {windows}", per_second("readahead_pages")),
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
            number(interval.derived("write_amplification"))
        ),
        queue_line(interval),
    ]);
    if now.value("io_errors") > 0 {
        lines.push(format!("        {} failed swap file transfers", count(now.value("io_errors"))));
    }
    lines.push(String::new());
    let mut processes = now.processes.clone();
    processes.sort_unstable_by_key(|(pid, bytes)| (u64::MAX - bytes, *pid));
    for (pid, bytes) in processes.iter().take(PROCESSES) {
        lines.push(format!("{:>8}  {:>12}  {}", pid, Bytes(*bytes).to_string(), name(*pid)));
    }
    lines
}

/// Faults of the mapped memory of a pool, of both kinds.
fn pool_faults(stats: &Statistics) -> u64 {
    stats.value("faults_missing") + stats.value("faults_write_protected")
}

fn full_pool(Observation { now, interval }: &Observation) -> Vec<String> {
    let per_second = |name: &str| rate(interval, interval.value(name));
    let bytes = |name: &str| Bytes(now.value(name)).to_string();
    let program = name(now.pid);
    let mut lines = vec![
        format!("{} ({} {program}), open for {} s", now.name, now.pid, now.time.as_secs()),
        String::new(),
        format!("DRAM    {} {} of {}", bar(now), bytes("dram_bytes"), bytes("budget_bytes")),
        format!(
            "cache   {} segments, {} of them dirty; {} in the device buffer",
            count(now.value("resident_segments")),
            count(now.value("dirty_segments")),
            count(now.value("buffered_segments"))
        ),
        String::new(),
        faults_line(interval, pool_faults(interval)),
        format!("        {:>10} /s absent segments", per_second("faults_missing")),
        format!(
            "        {:>10} /s write protection (first store to a clean segment)",
            per_second("faults_write_protected")
        ),
        format!(
            "filled  {:>10} /s   {} /s read ahead, {} /s huge pages",
            per_second("fills"),
            per_second("readahead_segments"),
            per_second("huge_pages")
        ),
        format!("evicted {:>10} /s   {} /s written back", per_second("evictions"), per_second("write_backs")),
        String::new(),
        format!(
            "syncs   {:>10} /s   {} lines persisted /s in {} writes /s",
            per_second("syncs"),
            per_second("lines_persisted"),
            per_second("line_records")
        ),
        format!(
            "device  read {} MB/s, written {} MB/s, write amplification {}",
            megabytes(interval, "bytes_read"),
            megabytes(interval, "bytes_written"),
            number(interval.derived("write_amplification"))
        ),
        queue_line(interval),
    ];
    for (name, label) in [
        ("damaged_reads", "reads failed their checksum"),
        ("parity_failures", "blocks have no parity, as it could not be written"),
        ("write_deferrals", "times writes waited for the day's limit"),
    ] {
        if now.value(name) > 0 {
            lines.push(format!("        {} {label}", count(now.value(name))));
        }
    }
    lines
}

fn faults_line(interval: &Statistics, faults: u64) -> String {
    format!(
        "faults  {:>10} /s   p50 {}, p99 {}, p99.9 {}, max {}",
        rate(interval, faults),
        time(interval, 0.5),
        time(interval, 0.99),
        time(interval, 0.999),
        time(interval, 1.0)
    )
}

fn queue_line(interval: &Statistics) -> String {
    format!(
        "queue   {} reads in flight at submission, p99 {}",
        number(interval.queue_depth.mean()),
        interval.queue_depth.quantile(0.99).map_or(NONE.into(), |n| n.to_string())
    )
}

fn pool_table(several: &[&Observation]) -> Vec<String> {
    let mut table = Table::new(&[
        "PID",
        "DRAM",
        "budget",
        "dirty",
        "faults/s",
        "p50",
        "p99",
        "read MB/s",
        "write MB/s",
        "write ampl.",
        "syncs/s",
        "persists/s",
        "<pool",
    ]);
    for Observation { now, interval } in several {
        table.row(vec![
            now.pid.to_string(),
            Bytes(now.value("dram_bytes")).to_string(),
            Bytes(now.value("budget_bytes")).to_string(),
            count(now.value("dirty_segments")),
            rate(interval, pool_faults(interval)),
            time(interval, 0.5),
            time(interval, 0.99),
            megabytes(interval, "bytes_read"),
            megabytes(interval, "bytes_written"),
            number(interval.derived("write_amplification")),
            rate(interval, interval.value("syncs")),
            rate(interval, interval.value("lines_persisted")),
            now.name.clone(),
        ]);
    }
    table.render().lines().map(str::to_owned).collect()
}

fn run_table(several: &[&Observation]) -> Vec<String> {
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
            rate(interval, all_faults(interval)),
            time(interval, 0.5),
            time(interval, 0.99),
            number(interval.queue_depth.mean()),
            megabytes(interval, "bytes_read"),
            megabytes(interval, "bytes_written"),
            now.value("processes").to_string(),
            now.name.chars().take(COMMAND).collect(),
        ]);
    }
    table.render().lines().map(str::to_owned).collect()
}

fn seconds(interval: &Statistics) -> f64 {
    interval.time.as_secs_f64().max(1e-9)
}

fn rate(interval: &Statistics, n: u64) -> String {
    count((n as f64 / seconds(interval)).round() as u64)
}

fn megabytes(interval: &Statistics, name: &str) -> String {
    format!("{:.1}", interval.value(name) as f64 / seconds(interval) / 1e6)
}

fn time(interval: &Statistics, share: f64) -> String {
    interval.fault_latency.quantile(share).map_or(NONE.into(), |ns| duration(Duration::from_nanos(ns)))
}

fn number(number: Option<f64>) -> String {
    number.map_or(NONE.into(), |number| format!("{number:.2}"))
}

fn bar(now: &Statistics) -> String {
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
    fn pools_have_a_screen_and_a_table_of_their_own() {
        let values = [("faults_missing", 30), ("dirty_segments", 5), ("bytes_user", 4), ("bytes_written", 5)];
        let pool = || {
            let now = Statistics {
                kind: &POOL_STATISTICS,
                name: "/a/pool".into(),
                values: values.map(|(name, value)| (name.to_owned(), value)).into(),
                ..sample()
            };
            Observation { interval: now.clone(), now }
        };
        let one = screen(&[pool()]).join("\n");
        for part in
            ["/a/pool (10 ", "5 of them dirty", "20 /s absent segments", "p99 64.0 µs", "amplification 1.25"]
        {
            assert!(one.contains(part), "{part}\n{one}");
        }
        let mixed = screen(&[observation(), pool(), pool()]);
        assert_eq!(mixed.len(), 2 + 1 + 3, "{mixed:?}");
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
