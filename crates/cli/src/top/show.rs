//! What a screen of `deepram top` says: one run in full, or a line for each of several.

use std::time::Duration;

use deepram_core::Bytes;

use super::Shown;
use crate::output::{Table, count, duration};
use crate::run::Reading;

/// Characters of the bar of DRAM.
const BAR: u64 = 30;
/// Processes that are listed.
const PROCESSES: usize = 12;
/// Characters of a command in a line.
const COMMAND: usize = 40;
const NONE: &str = "-";

/// The lines of a screen.
pub(super) fn screen(all: &[Shown]) -> Vec<String> {
    match all {
        [] => vec!["no `deepram run` is running that you may look at".into()],
        [one] => full(one),
        several => table(several),
    }
}

fn full(shown: &Shown) -> Vec<String> {
    let Shown { now, between } = shown;
    let per_second = |name: &str| rate(between, between.figure(name));
    let bytes = |name: &str| Bytes(now.figure(name)).to_string();
    let faults = between.all_faults();
    let mut lines = vec![
        format!("{} ({}), for {} s", now.command, now.pid, now.time.as_secs()),
        String::new(),
        format!(
            "DRAM    {} {} of {}, at most {}",
            bar(now),
            bytes("dram_bytes"),
            bytes("budget_bytes"),
            bytes("dram_peak_bytes")
        ),
        format!(
            "memory  {} managed, {} on the store, {} {}",
            bytes("managed_bytes"),
            bytes("store_bytes"),
            now.figure("processes"),
            if now.figure("processes") == 1 { "process" } else { "processes" }
        ),
        String::new(),
        format!(
            "faults  {:>10} /s   p50 {}, p99 {}, p99.9 {}, max {}",
            rate(between, faults),
            time(between, 0.5),
            time(between, 0.99),
            time(between, 0.999),
            time(between, 1.0)
        ),
    ];
    for (name, about) in [
        ("faults_read", "read from the store"),
        ("faults_returned", "back from the waiting room"),
        ("faults_fresh", "on fresh memory"),
        ("faults_stored", "first stores to clean pages"),
    ] {
        let share = between.figure(name) as f64 / faults.max(1) as f64 * 100.0;
        lines.push(format!("        {:>10} /s {share:5.1} % {about}", per_second(name)));
    }
    let share = |(used, wasted): (f64, f64)| {
        format!("windows used {:.0} %, wasted {:.0} %", used * 100.0, wasted * 100.0)
    };
    lines.extend([
        format!(
            "ahead   {:>10} /s   {}",
            per_second("read_ahead"),
            between.ahead().map_or(NONE.into(), share)
        ),
        format!(
            "left    {:>10} /s   {} /s dirty, {} /s stalls",
            per_second("left"),
            per_second("left_dirty"),
            per_second("stalls")
        ),
        String::new(),
        format!(
            "store   read {} MB/s, written {} MB/s, {} written per byte that left dirty",
            megabytes(between, "bytes_read"),
            megabytes(between, "bytes_written"),
            number(between.write_amplification())
        ),
        format!(
            "queue   {} reads under way when one was submitted, p99 {}",
            number(between.depths.mean()),
            between.depths.at(0.99).map_or(NONE.into(), |n| n.to_string())
        ),
    ]);
    if now.figure("failures") > 0 {
        lines.push(format!("        {} transfers failed", count(now.figure("failures"))));
    }
    lines.push(String::new());
    let mut processes = now.processes.clone();
    processes.sort_unstable_by_key(|(pid, bytes)| (u64::MAX - bytes, *pid));
    for (pid, bytes) in processes.iter().take(PROCESSES) {
        lines.push(format!("{:>8}  {:>12}  {}", pid, Bytes(*bytes).to_string(), name(*pid)));
    }
    lines
}

fn table(several: &[Shown]) -> Vec<String> {
    let mut table = Table::new(&[
        "PID",
        "DRAM",
        "of",
        "faults/s",
        "p50",
        "p99",
        "queue",
        "read MB/s",
        "write MB/s",
        "processes",
        "<command",
    ]);
    for Shown { now, between } in several {
        table.row(vec![
            now.pid.to_string(),
            Bytes(now.figure("dram_bytes")).to_string(),
            Bytes(now.figure("budget_bytes")).to_string(),
            rate(between, between.all_faults()),
            time(between, 0.5),
            time(between, 0.99),
            number(between.depths.mean()),
            megabytes(between, "bytes_read"),
            megabytes(between, "bytes_written"),
            now.figure("processes").to_string(),
            now.command.chars().take(COMMAND).collect(),
        ]);
    }
    table.render().lines().map(str::to_owned).collect()
}

fn seconds(between: &Reading) -> f64 {
    between.time.as_secs_f64().max(1e-9)
}

fn rate(between: &Reading, n: u64) -> String {
    count((n as f64 / seconds(between)).round() as u64)
}

fn megabytes(between: &Reading, name: &str) -> String {
    format!("{:.1}", between.figure(name) as f64 / seconds(between) / 1e6)
}

fn time(between: &Reading, share: f64) -> String {
    between.faults.at(share).map_or(NONE.into(), |ns| duration(Duration::from_nanos(ns)))
}

fn number(number: Option<f64>) -> String {
    number.map_or(NONE.into(), |number| format!("{number:.2}"))
}

fn bar(now: &Reading) -> String {
    let (used, most) = (now.figure("dram_bytes"), now.figure("budget_bytes").max(1));
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
    use crate::run::tests::reading;

    fn shown() -> Shown {
        Shown { now: reading(), between: reading() }
    }

    #[test]
    fn one_run_is_told_in_full_and_several_in_a_line_each() {
        assert!(screen(&[])[0].contains("no `deepram run`"));
        let one = screen(&[shown()]).join("\n");
        for part in [
            "a program (10)",
            "p99 64.0 µs",
            "75.0 % read from the store",
            "windows used 75 %, wasted 12 %",
            "26.67 reads under way",
            "1.25 written per byte",
        ] {
            assert!(one.contains(part), "{part}\n{one}");
        }
        let two = screen(&[shown(), shown()]);
        assert_eq!(two.len(), 3, "{two:?}");
    }

    #[test]
    fn the_bar_is_as_full_as_the_dram() {
        assert_eq!(bar(&reading()), format!("[{}]", "-".repeat(30)));
        assert!(bar(&reading()).len() == 32);
    }

    #[test]
    fn a_run_without_faults_has_no_figures_made_up() {
        let nothing = Shown { between: reading().since(&reading()), now: reading() };
        let text = screen(&[nothing]).join("\n");
        assert!(text.contains("p50 -, p99 -") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
