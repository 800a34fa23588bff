//! The two papers' systems and their baselines on hardware of today: latency, rate, lifetime and price.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use deepram_core::units::Bytes;
use deepram_media::{Dram, Hierarchy, Nand, Nvmm, Registry, Ssd, lifetime_seconds};
use deepram_sim::{RunOptions, RunResult, System, SystemConfig, requests, run as simulate};
use deepram_trace::{ObjectPlacement, Workload};
use serde::{Deserialize, Serialize};

use super::{OutputArgs, Report};
use crate::output::{Table, progress};

/// Options of `deepram bench hardware`.
#[derive(Debug, Args)]
pub(crate) struct HardwareArgs {
    /// Run only the systems whose name and preset contain TEXT, such as cxl or nvmm
    #[arg(default_value = "", value_name = "TEXT")]
    filter: String,
    /// Page whose tables are replaced by those of this run
    #[arg(long, value_name = "FILE", conflicts_with = "filter")]
    page: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Data of the workloads, bytes.
const DATA: u64 = 8 << 30;
/// Part of the data that fits in the host's DRAM.
const DRAM_SHARE: f64 = 1.0 / 8.0;
const THREADS: u32 = 16;
/// Accesses that fill the DRAM, and those measured.
const WARM_UP: u64 = 1_200_000;
const MEASURED: u64 = 300_000;

/// Title and specification of each workload.
const WORKLOADS: [(&str, &str); 3] = [
    ("Random reads of 8 bytes", "uniform:span=8GiB,size=8,emit=mem"),
    ("Random updates: a load and a store of 8 bytes (GUPS)", "gups:table=8GiB"),
    ("Zipf: 90 % loads, 10 % stores of 8 bytes", "zipf:span=8GiB,theta=0.99,size=8,read=0.9,emit=mem"),
];

/// Each system, and its presets from the newest to the papers'.
const SYSTEMS: [(System, &[&str]); 6] = [
    (System::Dram, &["ddr5-64gib"]),
    (System::FlatFlash, &["cxl-xl-flash", "kioxia-fl6", "micron-9550-max", "p3700"]),
    (System::UnifiedMMap, &["cxl-xl-flash", "kioxia-fl6", "micron-9550-max", "p3700"]),
    (System::TraditionalStack, &["cxl-xl-flash", "kioxia-fl6", "micron-9550-max", "p3700"]),
    (System::Nvmm, &["nvmm-xl-flash", "nvmm-tlc-232", "nvmm-slc"]),
    (System::SsdPaging, &["kioxia-fl6", "micron-9550-max", "paging-slc"]),
];

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    workload: String,
    system: String,
    preset: String,
    mean_ns: f64,
    p99_ns: f64,
    accesses_per_s: f64,
    flash_reads: u64,
    flash_programs: u64,
    /// Years until this rate of programs has used up the endurance of the whole drive, without reclamation; `None` if nothing was
    /// programmed.
    lifetime_years: Option<f64>,
    /// Price of a GiB of data with its share of DRAM.
    usd_per_gib: Option<f64>,
}

pub(super) fn run(args: &HardwareArgs) -> anyhow::Result<Report> {
    let registry = Registry::builtin()?;
    let bar = progress("simulating");
    let (registry, filter) = (&registry, &args.filter);
    let one = |(title, spec)| {
        let all = SYSTEMS.iter().flat_map(|(system, of)| of.iter().map(move |preset| (*system, *preset)));
        let some = all.filter(|(system, preset)| format!("{} {preset}", system.name()).contains(filter));
        some.map(|(system, preset)| row(registry, title, spec, system, preset)).collect()
    };
    // The workloads run beside one another; a run does not depend on the machine's time.
    let runs: Vec<anyhow::Result<Vec<Row>>> = std::thread::scope(|scope| {
        let threads = WORKLOADS.map(|workload| scope.spawn(move || one(workload)));
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    anyhow::ensure!(runs.len() == WORKLOADS.len(), "a run has panicked");
    let rows = runs.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat();
    bar.finish_and_clear();
    if let Some(page) = &args.page {
        replace_tables(page, &rows)?;
    }
    Report::new(&rows, text(&rows))
}

fn row(registry: &Registry, title: &str, spec: &str, system: System, preset: &str) -> anyhow::Result<Row> {
    let drive = Drive::new(registry, system, preset)?;
    let mut config = SystemConfig::new(system);
    preset.clone_into(&mut config.preset);
    config.overrides.clone_from(&drive.overrides);
    let dram = Bytes((DATA as f64 * DRAM_SHARE) as u64);
    (config.nvmm.cache, config.paging.memory, config.flat.memory) = (dram, dram, dram);
    // Only flatflash and its baselines have a model of the processor's cache.
    config.flat.cpu_cache = false;
    if preset != "paging-slc" {
        (config.memory, config.software) = ("ddr5-64gib".into(), "linux-nvme".into());
    }
    let mut options = RunOptions { workload: spec.into(), ..RunOptions::default() };
    options.host.threads = THREADS;
    options.host.warm_up = WARM_UP;
    options.host.requests = WARM_UP + MEASURED;
    let objects = ObjectPlacement { slot_bytes: 4096, slots: 1 };
    let items = Workload::new(spec, options.seed)?.map(Ok::<_, deepram_trace::TraceError>);
    let result = simulate(registry, &config, requests(items, objects), &options)
        .with_context(|| format!("{} {preset}", system.name()))?;
    Ok(drive.row(title, system, preset, &result))
}

/// What of a preset the lifetime and the price need.
struct Drive {
    nand: Option<Nand>,
    raw: Bytes,
    usd_per_gib: Option<f64>,
    overrides: Vec<String>,
}

impl Drive {
    fn new(registry: &Registry, system: System, preset: &str) -> anyhow::Result<Self> {
        let gib = (1_u64 << 30) as f64;
        let price = |dram: &Dram| Some(dram.price?.0 * gib);
        let (nand, raw, host, dram, overrides) = match system {
            System::Dram => {
                let usd_per_gib = price(&registry.get(preset)?);
                return Ok(Self { nand: None, raw: Bytes(0), usd_per_gib, overrides: Vec::new() });
            }
            System::Nvmm => {
                let sheet: Nvmm = registry.get(&format!("nvmm.{preset}"))?;
                (sheet.package(), sheet.raw_bytes(), sheet.host_bytes(), price(&sheet.dram), Vec::new())
            }
            System::SsdPaging => {
                let sheet: Ssd = registry.get(&format!("ssd.{preset}"))?;
                let dram: Dram =
                    registry.get(if preset == "paging-slc" { "ddr3-1600" } else { "ddr5-64gib" })?;
                (sheet.nand.clone(), sheet.raw_bytes(), sheet.host_bytes(), price(&dram), Vec::new())
            }
            _ => {
                let sheet: Hierarchy = registry.get(&format!("hierarchy.{preset}"))?;
                // A full drive's buffer for its data is as large a share of these data.
                let share = sheet.buffer_share.0 * DATA as f64 / sheet.host_bytes().0 as f64;
                let buffer = vec![format!("buffer_share={:.8}%", share * 100.0)];
                (sheet.nand.clone(), sheet.raw_bytes(), sheet.host_bytes(), price(&sheet.dram), buffer)
            }
        };
        let flash = nand.price.map(|price| price.0 * gib * raw.0 as f64 / host.0 as f64);
        let usd_per_gib = dram.zip(flash).map(|(dram, flash)| dram * DRAM_SHARE + flash);
        Ok(Self { nand: Some(nand), raw, usd_per_gib, overrides })
    }

    fn row(&self, title: &str, system: System, preset: &str, result: &RunResult) -> Row {
        let (reads, programs) = result.flash.as_ref().map_or((0, 0), |flash| (flash.reads, flash.programs));
        let lifetime_years = self.nand.as_ref().filter(|_| programs > 0).map(|nand| {
            let rate = programs as f64 * nand.page.0 as f64 / (result.simulated_time_ns / 1e9);
            let bandwidth = deepram_media::Bandwidth(rate);
            lifetime_seconds(self.raw, nand.endurance, bandwidth, 1.0, 1.0) / (365.25 * 86_400.0)
        });
        Row {
            workload: title.into(),
            system: system.name().into(),
            preset: preset.into(),
            mean_ns: result.latency.mean_ns,
            p99_ns: result.latency.p99_ns,
            accesses_per_s: result.throughput_requests_per_s,
            flash_reads: reads,
            flash_programs: programs,
            lifetime_years,
            usd_per_gib: self.usd_per_gib,
        }
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let none = || "–".to_owned();
        let life = |years: f64| if years >= 100.0 { "> 100".into() } else { digits(years) };
        vec![
            self.system.clone(),
            self.preset.clone(),
            digits(self.mean_ns / 1e3),
            digits(self.p99_ns / 1e3),
            digits(self.accesses_per_s / 1e6),
            self.lifetime_years.map_or_else(none, life),
            self.usd_per_gib.map_or_else(none, |usd| format!("{usd:.2}")),
        ]
    }
}

/// A number with three significant digits.
fn digits(value: f64) -> String {
    let whole = if value < 1.0 { 0 } else { value.log10().floor() as usize + 1 };
    let small = if value > 0.0 && value < 0.1 { (-value.log10()).floor() as usize } else { 0 };
    format!("{value:.*}", 3_usize.saturating_sub(whole) + small)
}

const HEADINGS: [&str; 7] =
    ["<system", "<preset", "mean µs", "p99 µs", "M accesses/s", "lifetime, years", "USD/GiB"];

fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for group in rows.chunk_by(|a, b| a.workload == b.workload) {
        let mut table = Table::new(&HEADINGS);
        group.iter().for_each(|row| table.row(row.cells()));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\n{}", group[0].workload, table.render());
    }
    text
}

/// The tables of the page.
fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for group in rows.chunk_by(|a, b| a.workload == b.workload) {
        let _ = writeln!(text, "\n### {}\n", group[0].workload);
        let _ = writeln!(text, "| {} |", HEADINGS.map(|name| name.trim_start_matches('<')).join(" | "));
        let _ = writeln!(text, "|---|---|--:|--:|--:|--:|--:|");
        for row in group {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
    }
    text
}

const BEGIN: &str = "<!-- Tables by `deepram bench hardware`. Do not edit. -->\n";
const END: &str = "\n<!-- End of the tables. -->";

/// The text before the tables, the tables, and the text after them.
fn split(page: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (tables, after) = rest.split_once(END)?;
    Some((before, tables, after))
}

fn replace_tables(page: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let name = || page.display().to_string();
    let text = std::fs::read_to_string(page).with_context(name)?;
    let (before, _, after) =
        split(&text).with_context(|| format!("{}: the marks of the tables are missing", page.display()))?;
    std::fs::write(page, [before, BEGIN, &tables(rows), END, after].concat()).with_context(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_page_are_those_of_the_newest_result_file() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let files = crate::results::read_all(&docs.join("results")).unwrap();
        let (_, newest) = files.iter().find(|(_, file)| file.bench == "hardware").unwrap();
        let rows: Vec<Row> = serde_json::from_value(newest.results.clone()).unwrap();
        let page = std::fs::read_to_string(docs.join("explanation/hardware-of-today.md")).unwrap();
        assert_eq!(split(&page).unwrap().1, tables(&rows), "run the command of the page again");
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let texts = [0.0, 0.012_34, 0.1234, 1.234, 12.34, 123.4, 1234.5].map(digits);
        assert_eq!(texts, ["0.000", "0.0123", "0.123", "1.23", "12.3", "123", "1234"]);
    }
}
