//! The paper's figures beside the measured ones: text, JSON and a page.

use std::collections::BTreeMap;

use deepram_linux::slow_memory::Machine;
use deepram_repro::chart::Table as PageTable;
use deepram_repro::html::{ChartSection, charts_page};
use serde::Serialize;

use super::Measured;
use super::workload::YCSB;
use crate::output::Table;

/// A statement of the study and what was measured here.
#[derive(Debug, Clone, Serialize)]
struct Compared {
    figure: &'static str,
    what: String,
    paper: &'static str,
    /// Ratio of two throughputs; none if one of them was not measured.
    ours: Option<f64>,
    /// Whether the ratio is as the study says; none where the study gives no figure.
    agrees: Option<bool>,
}

/// The report of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    quick: bool,
    /// Latency of this machine's memory; emulated reads take twice as long.
    machine_read_ns: f64,
    compared: Vec<Compared>,
    measured: Vec<Measured>,
    skipped: Vec<String>,
}

/// A ratio of two configurations, with the bounds in which it agrees.
struct Claim {
    figure: &'static str,
    app: &'static str,
    above: &'static str,
    below: &'static str,
    paper: &'static str,
    bounds: Option<(f64, f64)>,
    /// Workloads: those that write, those that do not, or all.
    writes: Option<bool>,
}

const INFINITE: f64 = f64::INFINITY;

/// The study's statements that these stores can answer. LMDB syncs its mapped file with every write, as MongoDB does in
/// FSYNC_SAFE mode; SQLite writes a log, as MongoDB does in JOURNALED mode.
const CLAIMS: [Claim; 9] = [
    claim("Fig. 8", "lmdb", "NVMM-WOF", "NVMM-Raw", "a little above 1", Some((0.95, 3.0)), Some(true)),
    claim(
        "Fig. 8",
        "lmdb",
        "NVMM-Opt",
        "NVMM-Raw",
        "far above 1 (log scale)",
        Some((3.0, INFINITE)),
        Some(true),
    ),
    claim("Fig. 8", "lmdb", "NVMM-Opt", "PDRAM", "about 1 without writes", Some((0.9, 1.1)), Some(false)),
    claim("Fig. 9", "lmdb", "NVMM-Opt", "ext4", "far above 1 (SSD)", Some((1.5, INFINITE)), Some(true)),
    claim(
        "Fig. 9",
        "lmdb",
        "NVMM-Raw",
        "ext4",
        "below 1 where writes are many (SSD)",
        Some((0.0, 1.0)),
        Some(true),
    ),
    claim("Fig. 10", "sqlite", "NVMM-Opt", "DRAM", "0.99 to 1.16", Some((0.94, 1.21)), None),
    claim("section IV", "lmdb", "PM-BW", "PDRAM", "0.9 to 1", Some((0.9, 1.05)), None),
    claim("Fig. 12", "memcached", "NVMM-Raw", "DRAM", "0.77", Some((0.69, 0.85)), None),
    claim("Fig. 12", "redis", "NVMM-Raw", "DRAM", "not measured (Memcached 0.77)", None, None),
];

const fn claim(
    figure: &'static str,
    app: &'static str,
    above: &'static str,
    below: &'static str,
    paper: &'static str,
    bounds: Option<(f64, f64)>,
    writes: Option<bool>,
) -> Claim {
    Claim { figure, app, above, below, paper, bounds, writes }
}

impl Claim {
    fn concerns(&self, workload: &str) -> bool {
        let ycsb = YCSB.iter().find(|one| workload == format!("YCSB {}", one.name));
        self.writes.is_none_or(|writes| ycsb.is_some_and(|one| one.writes() == writes))
    }
}

impl Report {
    pub(super) fn new(quick: bool, machine: &Machine, measured: Vec<Measured>, skipped: Vec<String>) -> Self {
        let compared = CLAIMS.iter().flat_map(|claim| compare(claim, &measured)).collect();
        Self { quick, machine_read_ns: machine.memory_ps as f64 / 1e3, compared, measured, skipped }
    }

    fn comparisons(&self) -> Vec<Vec<String>> {
        let sign = |row: &Compared| match row.agrees {
            Some(true) => "agrees",
            Some(false) => "differs",
            None => "-",
        };
        let ratio =
            |row: &Compared| row.ours.map_or_else(|| "not measured".into(), |ratio| format!("{ratio:.2}"));
        let cells = |row: &Compared| {
            vec![row.figure.into(), row.what.clone(), row.paper.into(), ratio(row), sign(row).into()]
        };
        self.compared.iter().map(cells).collect()
    }

    /// Throughputs by workload: one row each, one column a configuration.
    fn throughputs(&self) -> Vec<Vec<String>> {
        let mut rows: BTreeMap<(&str, &str), BTreeMap<&str, f64>> = BTreeMap::new();
        for one in &self.measured {
            rows.entry((one.app, &one.workload)).or_default().insert(one.config, one.per_second);
        }
        let cells = |((app, workload), values): ((&str, &str), BTreeMap<&str, f64>)| {
            let value =
                |name: &str| values.get(name).map_or_else(|| "-".into(), |value| format!("{value:.0}"));
            let configs = super::CONFIGS.iter().map(|config| value(config.name));
            [app.into(), workload.into()].into_iter().chain(configs).collect()
        };
        rows.into_iter().map(cells).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "A read from this machine's memory takes {:.0} ns; emulated reads take twice as long, as the 300 ns of the study to \
             its 150 ns. All rows hang on hardware.",
            self.machine_read_ns
        )];
        let meanings = super::CONFIGS.iter().filter(|config| !config.meaning.is_empty());
        let meanings: Vec<String> =
            meanings.map(|config| format!("{}: {}", config.name, config.meaning)).collect();
        notes.push(format!(
            "{}; the others: memory emulated as in Table IV, files in it.",
            meanings.join("; ")
        ));
        if self.quick {
            notes.push("Quick runs, to check that everything works: the ratios have no meaning.".into());
        }
        notes.extend(self.skipped.iter().map(|why| format!("skipped: {why}")));
        notes
    }

    pub(super) fn text(&self) -> String {
        let mut compared = Table::new(&["<figure", "<ratio of throughputs", "<paper", "ours", "<verdict"]);
        self.comparisons().into_iter().for_each(|row| compared.row(row));
        let names: Vec<&str> = ["<store", "<workload"]
            .into_iter()
            .chain(super::CONFIGS.iter().map(|config| config.name))
            .collect();
        let mut throughputs = Table::new(&names);
        self.throughputs().into_iter().for_each(|row| throughputs.row(row));
        let notes = self.notes().join("\n");
        format!("{}\noperations a second\n{}\n{notes}\n", compared.render(), throughputs.render())
    }

    pub(super) fn page(&self) -> String {
        let table = |title: &str, headings: Vec<&str>, rows| PageTable {
            title: title.into(),
            headings: headings.into_iter().map(str::to_owned).collect(),
            rows,
        };
        let names = ["store", "workload"].into_iter().chain(super::CONFIGS.iter().map(|config| config.name));
        let tables = vec![
            table(
                "The study beside this machine",
                vec!["figure", "ratio", "paper", "ours", "verdict"],
                self.comparisons(),
            ),
            table("Operations a second", names.collect(), self.throughputs()),
        ];
        let section = ChartSection { title: "Applications".into(), charts: Vec::new(), tables };
        charts_page("NVMM application study, run for real", &self.notes(), &[section])
    }
}

fn compare(claim: &Claim, measured: &[Measured]) -> Vec<Compared> {
    let value = |workload: &str, config: &str| {
        let mut all = measured.iter();
        all.find(|one| (one.app, one.workload.as_str(), one.config) == (claim.app, workload, config))
            .map(|one| one.per_second)
    };
    let mut workloads: Vec<&str> =
        measured.iter().filter(|one| one.app == claim.app).map(|one| one.workload.as_str()).collect();
    workloads.sort_unstable();
    workloads.dedup();
    let row = |workload: &str| {
        let ours = value(workload, claim.above)
            .zip(value(workload, claim.below))
            .map(|(above, below)| above / below);
        Compared {
            figure: claim.figure,
            what: format!("{} {workload}: {} / {}", claim.app, claim.above, claim.below),
            paper: claim.paper,
            ours,
            agrees: claim.bounds.zip(ours).map(|((least, most), ours)| (least..=most).contains(&ours)),
        }
    };
    workloads.into_iter().filter(|workload| claim.concerns(workload)).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(config: &'static str, workload: &str, per_second: f64) -> Measured {
        Measured { app: "lmdb", workload: workload.into(), config, per_second, runs: vec![per_second] }
    }

    #[test]
    fn ratios_are_compared_for_the_workloads_that_a_claim_concerns() {
        let all = vec![
            measured("NVMM-Raw", "YCSB A", 100.0),
            measured("NVMM-Opt", "YCSB A", 900.0),
            measured("NVMM-Raw", "YCSB C", 100.0),
            measured("NVMM-Opt", "YCSB C", 100.0),
        ];
        let rows = compare(&CLAIMS[1], &all);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!((rows[0].ours, rows[0].agrees), (Some(9.0), Some(true)));
        let missing = compare(&CLAIMS[3], &all);
        assert_eq!((missing[0].ours, missing[0].agrees), (None, None));
    }
}
