//! Runs the cases of other simulators: ours, theirs, difference, speed. An argument selects by name.

use std::path::PathBuf;

use deepram_media::Registry;
use deepram_sim::peers::{cases, run_case, set_up_case};

/// Seconds of processor time used so far, by Linux's account.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: f64 = stat
        .rsplit(')')
        .next()
        .map(|rest| rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum())
        .unwrap_or(0.0);
    ticks / 100.0
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let which = std::env::args().nth(1).unwrap_or_default();
    let traces =
        PathBuf::from(std::env::var("DEEPRAM_TRACES").unwrap_or_else(|_| "/work/shared/traces".into()));
    let registry = Registry::builtin()?;
    for case in cases().filter(|case| case.name.contains(&which)) {
        let start = cpu_s();
        set_up_case(&registry, case)?;
        let set_up = cpu_s() - start;
        let start = cpu_s();
        let (result, rows) = run_case(&registry, case, &traces.join("block"))?;
        let used = cpu_s() - start - set_up;
        println!(
            "{}: {:.2} M requests/s of processor time after {set_up:.2} s of set-up, peak {:.0} MB",
            case.name,
            result.requests as f64 / used / 1e6,
            peak_mb()
        );
        for row in rows {
            println!(
                "  {:<22} ours {:>14.3}  theirs {:>14.3}  {:>+9.4}% {} {}",
                format!("{:?}", row.figure),
                row.ours,
                row.theirs,
                row.difference * 100.0,
                if row.inside { "inside" } else { "OUTSIDE" },
                row.why
            );
        }
    }
    Ok(())
}
