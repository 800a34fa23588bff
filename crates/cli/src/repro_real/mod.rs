//! `deepram repro pmem --real`: the applications of the NVMM application study (section IV) run for real, unmodified, on memory
//! that `deepram run --media` makes behave like NVMM.

mod client;
mod packages;
mod pool;
mod report;
mod store;
mod workload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use deepram_linux::slow_memory::Machine;
use serde::Serialize;

use crate::Usage;
use crate::output::{emit_json, emit_text, progress};
use crate::results::RunContext;
use crate::run::MediaSpec;
use client::Connection;
use packages::Packages;
use pool::MountedPool;
use store::{App, Place, Store};
use workload::{Mix, YCSB};

/// The paper that this concerns.
pub(crate) const PAPER: &str = "pmem";

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct RealOptions<'a> {
    pub(crate) out: &'a Path,
    pub(crate) quick: bool,
    pub(crate) seed: u64,
    /// Names of stores and configurations; all if there is none of the kind.
    pub(crate) only: &'a [String],
    pub(crate) json: bool,
    pub(crate) results: Option<&'a Path>,
}

/// Where the files of a store are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    /// In shared memory (tmpfs).
    Memory,
    /// On the disk's own file system.
    Disk,
    /// In a pool whose file is in shared memory, mounted by `deepram pool mount`.
    PoolInMemory,
    /// In a pool whose file is on the disk, mounted likewise.
    PoolOnDisk,
}

/// A configuration of Table IV, or something to compare with.
struct Config {
    name: &'static str,
    /// What it is, for the report.
    meaning: &'static str,
    /// Keys of the emulated memory, but for the read latency; none: not emulated.
    keys: Option<&'static str>,
    /// Whether reads take twice as long, as the 300 ns of the study to its 150 ns.
    slow_reads: bool,
    files: Files,
}

const fn nvmm(name: &'static str, keys: &'static str, slow_reads: bool) -> Config {
    Config { name, meaning: "", keys: Some(keys), slow_reads, files: Files::Memory }
}

const fn plain(name: &'static str, meaning: &'static str, files: Files) -> Config {
    Config { name, meaning, keys: None, slow_reads: false, files }
}

const CONFIGS: [Config; 10] = [
    plain("DRAM", "this machine's memory, files in tmpfs", Files::Memory),
    plain("pool in memory", "files on a pool (`deepram pool mount`) in shared memory", Files::PoolInMemory),
    plain("ext4", "files on this machine's disk", Files::Disk),
    plain("pool on disk", "files on a pool on this machine's disk", Files::PoolOnDisk),
    nvmm("PDRAM", "flush=clflush", false),
    nvmm("PM-Lat", "flush=clflush", true),
    nvmm("PM-BW", "bandwidth=1/8,flush=clflush", true),
    nvmm("NVMM-Raw", "bandwidth=1/8,wbarrier=1us,flush=clflush", true),
    nvmm("NVMM-WOF", "bandwidth=1/8,wbarrier=1us,flush=wof", true),
    nvmm("NVMM-Opt", "bandwidth=1/8,wbarrier=1us,flush=wof,selective=on", true),
];
/// Configurations whose programs keep everything in memory: flushes and disks do not concern them.
const IN_MEMORY: [&str; 4] = ["DRAM", "PM-Lat", "PM-BW", "NVMM-Raw"];

impl Config {
    /// The emulated memory on a machine.
    fn media(&self, machine: &Machine) -> anyhow::Result<Option<MediaSpec>> {
        let Some(keys) = self.keys else { return Ok(None) };
        let read = if self.slow_reads { format!("read={}ps,", machine.memory_ps * 2) } else { String::new() };
        let spec = format!("pmem:{read}{keys}").parse().map_err(anyhow::Error::msg)?;
        Ok(Some(spec))
    }
}

/// Sizes of the runs.
struct Sizes {
    /// Operations of a YCSB run; the study has 1000.
    operations: u64,
    /// Requests of a memtier run.
    requests: u64,
    keys: u64,
    repeats: u64,
    fill_mib: u32,
}

const FULL: Sizes = Sizes { operations: 1000, requests: 100_000, keys: 1_000_000, repeats: 3, fill_mib: 64 };
const QUICK: Sizes = Sizes { operations: 50, requests: 2_000, keys: 2_000, repeats: 1, fill_mib: 1 };

/// A measured throughput.
#[derive(Debug, Clone, Serialize)]
struct Measured {
    app: &'static str,
    workload: String,
    config: &'static str,
    /// Median of the runs.
    per_second: f64,
    runs: Vec<f64>,
}

/// The stores and the configurations that the command line asks for.
fn selected(only: &[String]) -> anyhow::Result<(Vec<App>, Vec<&'static Config>)> {
    let stores: Vec<App> =
        App::ALL.into_iter().filter(|app| only.iter().any(|name| name == app.name())).collect();
    let configs: Vec<&Config> =
        CONFIGS.iter().filter(|config| only.iter().any(|name| name == config.name)).collect();
    let known = || App::ALL.iter().map(|app| app.name()).chain(CONFIGS.iter().map(|config| config.name));
    if let Some(name) = only.iter().find(|name| known().all(|known| known != name.as_str())) {
        let names: Vec<&str> = known().collect();
        return Err(Usage(format!("--only {name:?}: with --real give one of {}", names.join(", "))).into());
    }
    let stores = if stores.is_empty() { App::ALL.to_vec() } else { stores };
    Ok((stores, if configs.is_empty() { CONFIGS.iter().collect() } else { configs }))
}

/// Runs everything, writes `results.json` and `index.html` to the folder, and prints the comparison.
pub(crate) fn run(options: &RealOptions<'_>) -> anyhow::Result<()> {
    let (stores, configs) = selected(options.only)?;
    let context = options.results.map(|_| RunContext::begin("repro-pmem-real", Some(options.out)));
    std::fs::create_dir_all(options.out).with_context(|| options.out.display().to_string())?;
    let sizes = if options.quick { QUICK } else { FULL };
    let machine = Machine::measure().context("measuring this machine's memory")?;
    // Files of emulated memory are in memory; a folder of this process's own is removed at the end.
    let memory =
        tempfile::Builder::new().prefix("deepram-real-").tempdir_in("/dev/shm").context("/dev/shm")?;
    let disk = tempfile::Builder::new().prefix("deepram-real-").tempdir_in(options.out)?;
    let mut run = Run {
        sizes,
        seed: options.seed,
        machine,
        memory: memory.path().into(),
        disk: disk.path().into(),
        measured: Vec::new(),
        skipped: Vec::new(),
        interrupted: Arc::default(),
    };
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&run.interrupted)).context("handling signals")?;
    }
    let bar = progress("measuring");
    for app in stores {
        bar.set_message(app.name());
        let unpacked = disk.path().join(app.name());
        let packages = match app.packages() {
            [] => Ok(None),
            names => Packages::fetch(&unpacked, names).map(Some),
        };
        match packages {
            Ok(packages) => run.app(app, packages.as_ref(), &configs),
            Err(error) => run.skipped.push(format!("{}: {error:#}", app.name())),
        }
    }
    bar.finish_and_clear();
    ensure!(!run.is_interrupted(), "interrupted: no results are written");
    let Run { measured, skipped, .. } = run;
    let report = report::Report::new(options.quick, &machine, measured, skipped);
    std::fs::write(options.out.join("results.json"), serde_json::to_string_pretty(&report)?)?;
    std::fs::write(options.out.join("index.html"), report.page())?;
    if let (Some(context), Some(folder)) = (context, options.results) {
        eprintln!("results: {}", context.write(folder, serde_json::to_value(&report)?)?.display());
    }
    if options.json {
        return emit_json(&report);
    }
    emit_text(&report.text())?;
    emit_text(&format!("\n{}\n", options.out.join("index.html").display()))
}

struct Run {
    sizes: Sizes,
    seed: u64,
    machine: Machine,
    memory: PathBuf,
    disk: PathBuf,
    measured: Vec<Measured>,
    skipped: Vec<String>,
    /// Set by a signal: the run ends and removes its files.
    interrupted: Arc<AtomicBool>,
}

impl Run {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Measures a store on every configuration that concerns it.
    fn app(&mut self, app: App, packages: Option<&Packages>, configs: &[&Config]) {
        for config in configs.iter().filter(|config| app.has_file() || IN_MEMORY.contains(&config.name)) {
            if self.is_interrupted() {
                return;
            }
            if let Err(error) = self.config(app, packages, config) {
                self.skipped.push(format!("{} on {}: {error:#}", app.name(), config.name));
            }
        }
    }

    fn config(&mut self, app: App, packages: Option<&Packages>, config: &Config) -> anyhow::Result<()> {
        let media = config.media(&self.machine)?;
        // Unmounted, and its file removed, when the store has ended.
        let pool = match config.files {
            Files::PoolInMemory => Some(MountedPool::new(&self.memory)?),
            Files::PoolOnDisk => Some(MountedPool::new(&self.disk)?),
            Files::Memory | Files::Disk => None,
        };
        let folder = match (&pool, config.files) {
            (Some(pool), _) => pool.dir().to_path_buf(),
            (None, Files::Disk) => self.disk.clone(),
            (None, _) => self.memory.clone(),
        };
        let machine = self.machine;
        let place = Place {
            media: media.as_ref().map(|spec| (spec, &machine)),
            folder: &folder,
            fill_mib: if app.has_file() { self.sizes.fill_mib } else { 0 },
        };
        if !app.has_file() {
            for gets in [6, 30] {
                let mix = Mix { gets, keys: self.sizes.keys };
                let store = Store::start(app, packages, place, &[])?;
                workload::preload(store.port, app.protocol(), mix, self.seed)?;
                let runs = (0..self.sizes.repeats).map(|n| {
                    workload::memtier(store.port, app.protocol(), mix, self.sizes.requests, self.seed + n)
                });
                self.add(app, format!("memtier 1:{gets}"), config, runs.collect::<Result<_, _>>()?);
            }
            if app == App::Memcached {
                return Ok(());
            }
        }
        // Each run has records of its own, so inserts find their keys unused.
        let prefix = |name: &str, n: u64| format!("{}{n}-", name.to_lowercase());
        let repeats = self.sizes.repeats;
        let prefixes: Vec<String> =
            YCSB.iter().flat_map(|one| (0..repeats).map(move |n| prefix(one.name, n))).collect();
        let store = Store::start(app, packages, place, &prefixes)?;
        let mut connection = Connection::open(store.port, app.protocol())?;
        for prefix in prefixes.iter().filter(|_| !app.has_file()) {
            workload::load(&mut connection, prefix)?;
        }
        for one in YCSB {
            let runs = (0..repeats).map(|n| {
                let operations = self.sizes.operations;
                workload::ycsb(&mut connection, one, &prefix(one.name, n), operations, self.seed + n)
            });
            let runs = runs.collect::<Result<_, _>>()?;
            self.add(app, format!("YCSB {}", one.name), config, runs);
        }
        Ok(())
    }

    fn add(&mut self, app: App, workload: String, config: &Config, runs: Vec<f64>) {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let per_second = sorted[sorted.len() / 2];
        self.measured.push(Measured { app: app.name(), workload, config: config.name, per_second, runs });
    }
}
