//! What paging did, for people and for machines.

use std::io::Write;

use deepram_core::Bytes;
use deepram_pool::pager::{PAGE, PagerStats, SharedBudget};
use serde_json::{Map, Value};

use super::Form;

/// Each number with its name and what it is.
fn figures(budget: &SharedBudget, dram: u64) -> Vec<(&'static str, u64, String)> {
    let names = PagerStats::default();
    // What the budget knows for all processes together is told by it.
    let own = ["dram_bytes", "budget_bytes"];
    let counters = names.entries().into_iter().zip(budget.counters());
    let mut all: Vec<_> = counters
        .filter(|((name, ..), _)| !own.contains(name))
        .map(|((name, _, about), value)| (name, value, about.trim().trim_end_matches('.').to_owned()))
        .collect();
    all.push(("dram_bytes", budget.used() * PAGE as u64, "Bytes of DRAM in use".into()));
    all.push(("dram_peak_bytes", budget.peak() * PAGE as u64, "Most bytes of DRAM in use at once".into()));
    all.push(("budget_bytes", dram, "Most bytes of DRAM that there may be".into()));
    all.push(("processes", budget.processes() as u64, "Processes whose memory is paged".into()));
    all
}

pub(super) fn print(budget: &SharedBudget, dram: u64, form: Form) {
    let all = figures(budget, dram);
    let text = match form {
        Form::Text => {
            let shown = |name: &str, value: u64| {
                if name.ends_with("_bytes") || name.starts_with("bytes_") {
                    Bytes(value).to_string()
                } else {
                    value.to_string()
                }
            };
            let lines =
                all.iter().map(|(name, value, about)| format!("{:>14}  {about}\n", shown(name, *value)));
            lines.collect()
        }
        Form::Json => {
            let map: Map<String, Value> =
                all.iter().map(|(name, value, _)| ((*name).to_owned(), Value::from(*value))).collect();
            format!("{}\n", Value::Object(map))
        }
        Form::Prometheus => {
            let counted = |name: &str| !name.ends_with("_bytes") && name != "processes";
            let lines = all.iter().map(|(name, value, about)| {
                let kind = if counted(name) { "counter" } else { "gauge" };
                let name = format!("deepram_{name}{}", if counted(name) { "_total" } else { "" });
                format!("# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {value}\n")
            });
            lines.collect()
        }
    };
    // Nobody is left to tell if this fails.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The line that is renewed while the program runs.
pub(super) struct Live {
    dram: u64,
    last: Vec<u64>,
    at: std::time::Instant,
}

impl Live {
    pub(super) fn new(dram: u64) -> Self {
        Self { dram, last: Vec::new(), at: std::time::Instant::now() }
    }

    pub(super) fn renew(&mut self, budget: &SharedBudget) {
        let all = figures(budget, self.dram);
        let seconds = self.at.elapsed().as_secs_f64();
        let value =
            |wanted: &str| all.iter().find(|(name, ..)| *name == wanted).map_or(0, |(_, value, _)| *value);
        let now: Vec<u64> = ["faults_read", "faults_returned", "bytes_read", "written"].map(value).to_vec();
        let rate = |n: usize| {
            let before = self.last.get(n).copied().unwrap_or(0);
            now[n].saturating_sub(before) as f64 / seconds
        };
        let line = format!(
            "deepram: {} of {} in DRAM, {} managed; {:.0} faults/s, {:.0} returned/s; read {:.1} MB/s, written {:.1} MB/s",
            Bytes(value("dram_bytes")),
            Bytes(self.dram),
            Bytes(value("managed_bytes")),
            rate(0),
            rate(1),
            rate(2) / 1e6,
            rate(3) * PAGE as f64 / 1e6,
        );
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
        (self.last, self.at) = (now, std::time::Instant::now());
    }

    pub(super) fn end(&self) {
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
}
