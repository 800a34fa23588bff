//! One simulation, from its configuration to its result.

use deepram_core::suggest::nearest;
use deepram_media::{
    DiskCacheServer, Dram, Hierarchy, MeasuredFile, MediaError, Nvmm, Platform, PresetKind, Registry,
    ResolvedPreset, Software, Ssd, WriteBuffer,
};
use deepram_trace::{Item, ObjectPlacement, Request, TraceError, Workload};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::clients::{ClientOptions, Clients};
use crate::error::SimError;
use crate::flatflash::{AccessMode, FlatOptions};
use crate::host::HostOptions;
use crate::nvmm::NvmmOptions;
use crate::paging::PagingOptions;
use crate::pmem::PmemOptions;
use crate::pool_model::PoolModelOptions;
use crate::processor::{ProcessorOptions, ThreadReferences};
use crate::result::RunResult;
use crate::settings::{Target, set_pool_option, unknown_key};
use crate::ssd::SsdOptions;
use crate::systems::{self, FrontEnd, Requests, Threads};

/// The systems that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// All-DRAM memory.
    Dram,
    /// Journaled flash main memory behind a DRAM cache (NVMM).
    Nvmm,
    /// A solid-state drive.
    Ssd,
    /// A server with a disk cache of DRAM and flash in front of a hard disk (flash disk cache).
    DiskCache,
    /// A server with persistent memory, tmpfs, or ext4 on a drive (NVMM application study).
    Pmem,
    /// A solid-state drive behind a write buffer of DRAM and PCM (hybrid SSD cache).
    SsdBuffer,
    /// DRAM main memory, and a drive behind an operating system's paging (NVMM's comparison system).
    SsdPaging,
    /// This project's pool on a measured file or block device.
    Pool,
    /// DRAM, and a drive whose lines the processor loads and stores (FlatFlash).
    #[serde(rename = "flatflash")]
    FlatFlash,
    /// DRAM, and the same drive behind paging with one table for all translation (FlatFlash's
    /// UnifiedMMap).
    #[serde(rename = "unified-mmap")]
    UnifiedMMap,
    /// DRAM, and the same drive behind an operating system's storage stack (FlatFlash's
    /// TraditionalStack).
    TraditionalStack,
}

impl System {
    /// All systems.
    pub const ALL: [System; 11] = [
        System::Dram,
        System::Nvmm,
        System::Ssd,
        System::SsdBuffer,
        System::DiskCache,
        System::Pmem,
        System::SsdPaging,
        System::Pool,
        System::FlatFlash,
        System::UnifiedMMap,
        System::TraditionalStack,
    ];

    /// The system's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Dram => "dram",
            System::Nvmm => "nvmm",
            System::Ssd => "ssd",
            System::SsdBuffer => "ssd-buffer",
            System::DiskCache => "disk-cache",
            System::Pmem => "pmem",
            System::SsdPaging => "ssd-paging",
            System::Pool => "pool",
            System::FlatFlash => "flatflash",
            System::UnifiedMMap => "unified-mmap",
            System::TraditionalStack => "traditional-stack",
        }
    }

    /// The access mode of a system that is built from a [`Hierarchy`] preset; `None` for the others.
    #[must_use]
    pub fn access_mode(self) -> Option<AccessMode> {
        match self {
            System::FlatFlash => Some(AccessMode::Promote),
            System::UnifiedMMap => Some(AccessMode::Page),
            System::TraditionalStack => Some(AccessMode::Stack),
            System::Dram
            | System::Nvmm
            | System::Ssd
            | System::SsdBuffer
            | System::DiskCache
            | System::Pmem
            | System::SsdPaging
            | System::Pool => None,
        }
    }

    /// The name of the preset used if none is given.
    #[must_use]
    pub fn default_preset(self) -> &'static str {
        match self {
            System::Dram => "ddr4-2400",
            System::Nvmm => "nvmm-slc",
            System::Ssd => "tlc",
            System::SsdBuffer => "hybrid-4-80",
            System::DiskCache => "flash-256m-1g",
            System::Pmem => "nvmm-raw",
            System::SsdPaging => "paging-slc",
            System::Pool => "virtual-ssd",
            System::FlatFlash | System::UnifiedMMap | System::TraditionalStack => "p3700",
        }
    }

    /// The kind of the system's main preset.
    pub(crate) fn preset_kind(self) -> PresetKind {
        match self {
            System::Dram => PresetKind::Dram,
            System::Nvmm => PresetKind::Nvmm,
            System::Ssd | System::SsdPaging => PresetKind::Ssd,
            System::SsdBuffer => PresetKind::WriteBuffer,
            System::DiskCache => PresetKind::Server,
            System::Pmem => PresetKind::Platform,
            System::Pool => PresetKind::File,
            System::FlatFlash | System::UnifiedMMap | System::TraditionalStack => PresetKind::Hierarchy,
        }
    }

    /// The system called `name` on the command line.
    ///
    /// # Errors
    /// No system has this name. The error names the nearest one and lists all.
    pub fn parse(name: &str) -> Result<System, SimError> {
        Self::ALL.into_iter().find(|system| system.name() == name).ok_or_else(|| {
            let near = nearest(name, Self::ALL.iter().map(|system| system.name()))
                .map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
            let known: Vec<&str> = Self::ALL.iter().map(|system| system.name()).collect();
            SimError::config(
                "system",
                format!("there is no system {name:?}{near}; known: {}", known.join(", ")),
            )
        })
    }
}

/// The configuration of a simulated system.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// The system.
    pub system: System,
    /// The preset's name; the system's default preset if empty.
    pub preset: String,
    /// Overrides of the preset's figures, as `key=value`. For `ssd-paging`, `memory.key=value` overrides
    /// its DRAM and `software.key=value` its operating system; for `ssd-buffer` and `pmem`, `drive.key=value`
    /// overrides the SSD; for `pool`, `pool.key=value` sets its options.
    pub overrides: Vec<String>,
    /// Options of a drive, for `ssd`, `ssd-buffer` and `ssd-paging`.
    pub ssd: SsdOptions,
    /// Options of `nvmm`.
    pub nvmm: NvmmOptions,
    /// Options of `ssd-paging`.
    pub paging: PagingOptions,
    /// Options of `pool`.
    pub pool: PoolModelOptions,
    /// Options of `flatflash`, `unified-mmap` and `traditional-stack`.
    pub flat: FlatOptions,
    /// The DRAM preset of `ssd-paging`.
    pub memory: String,
    /// The operating-system preset of `ssd-paging`.
    pub software: String,
    /// Options of `pmem`.
    pub pmem: PmemOptions,
    /// The SSD preset of `ssd-buffer` and `pmem`.
    pub drive: String,
}

/// The default DRAM preset of `ssd-paging`.
const MEMORY: &str = "ddr3-1600";
/// The default operating-system preset of `ssd-paging`.
const SOFTWARE: &str = "linux-slc";
/// The default drive preset of `ssd-buffer`.
const DRIVE: &str = "hybrid-buffer";
/// The default SSD preset of `pmem`.
const PMEM_DRIVE: &str = "sata-mlc";

impl SystemConfig {
    /// The configuration of a system with its default preset and options.
    #[must_use]
    pub fn new(system: System) -> Self {
        Self {
            system,
            preset: String::new(),
            overrides: Vec::new(),
            ssd: SsdOptions::default(),
            nvmm: NvmmOptions::default(),
            paging: PagingOptions::default(),
            pool: PoolModelOptions::default(),
            flat: FlatOptions::default(),
            memory: MEMORY.into(),
            software: SOFTWARE.into(),
            pmem: PmemOptions::default(),
            drive: if system == System::Pmem { PMEM_DRIVE } else { DRIVE }.into(),
        }
    }

    /// The system's presets, with all overrides applied.
    fn sheets(&self, registry: &Registry) -> Result<Sheets, SimError> {
        let (mut own, mut memory, mut software, mut drive) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for text in &self.overrides {
            match Target::split(self.system, text) {
                (Target::Preset, text) => own.push(text),
                (Target::Memory, text) => memory.push(text),
                (Target::Software, text) => software.push(text),
                (Target::Drive, text) => drive.push(text),
                (Target::Pool, _) => {}
            }
        }
        let main = registry
            .resolve_of(self.system.preset_kind(), self.preset_name(), &own)
            .map_err(|error| self.of_override(Target::Preset, error))?;
        let part = |target, name: String, set: &[&str]| {
            let sheet = registry.resolve_with(&name, set).map_err(|error| self.of_override(target, error))?;
            Ok::<_, SimError>((target, sheet))
        };
        let beside = match self.system {
            System::SsdPaging => vec![
                part(Target::Memory, format!("dram.{}", self.memory), &memory)?,
                part(Target::Software, format!("software.{}", self.software), &software)?,
            ],
            System::SsdBuffer | System::Pmem => {
                vec![part(Target::Drive, format!("ssd.{}", self.drive), &drive)?]
            }
            _ => Vec::new(),
        };
        Ok(Sheets { main, beside })
    }

    /// Adds the nearest key of the whole system to the error of an override with an unknown key.
    fn of_override(&self, target: Target, error: MediaError) -> SimError {
        match error {
            MediaError::UnknownKey { at, key, .. } if at.file == "--set" => {
                unknown_key(self.system, target, &key)
            }
            other => SimError::Media(other),
        }
    }

    /// The options of the drive of `ssd-buffer`: all of its pages count as written.
    fn drive_options(&self) -> SsdOptions {
        SsdOptions { reads_assume_written: true, writes_assume_written: true, ..self.ssd.clone() }
    }

    /// The options of `pool`, with all overrides applied.
    fn pool_options(&self) -> Result<PoolModelOptions, SimError> {
        let mut options = self.pool.clone();
        for text in &self.overrides {
            if let (Target::Pool, text) = Target::split(self.system, text) {
                set_pool_option(&mut options, text)?;
            }
        }
        Ok(options)
    }

    /// The digests of the system's presets, with all overrides applied.
    ///
    /// # Errors
    /// A preset or one of its figures does not exist or is invalid.
    pub fn digests(&self, registry: &Registry) -> Result<Vec<String>, SimError> {
        let sheets = self.sheets(registry)?;
        let all = std::iter::once(&sheets.main).chain(sheets.beside.iter().map(|(_, sheet)| sheet));
        Ok(all.map(|sheet| sheet.digest()).collect())
    }

    /// The name of the preset that is used.
    #[must_use]
    pub fn preset_name(&self) -> &str {
        if self.preset.is_empty() { self.system.default_preset() } else { &self.preset }
    }
}

/// The resolved presets of a system: its main one, and those of its other parts.
struct Sheets {
    main: ResolvedPreset,
    beside: Vec<(Target, ResolvedPreset)>,
}

impl Sheets {
    fn part(&self, target: Target) -> Result<&ResolvedPreset, SimError> {
        let found = self.beside.iter().find(|(other, _)| *other == target);
        let sheet = found.map(|(_, sheet)| sheet);
        sheet.ok_or_else(|| SimError::config(target.prefix(), "the system has no preset of this name"))
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The seed of all random streams of the system.
    pub seed: u64,
    /// The workload's name in the result.
    pub workload: String,
    /// Options of the host that issues the requests.
    pub host: HostOptions,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { seed: 1, workload: String::new(), host: HostOptions::default() }
    }
}

/// Turns records of a trace or a generated workload into requests: memory references become reads and
/// writes of their bytes, objects accesses of their places in `objects`.
pub fn requests<I, E>(items: I, objects: ObjectPlacement) -> impl Iterator<Item = Result<Request, SimError>>
where
    I: Iterator<Item = Result<Item, E>>,
    E: Into<TraceError>,
{
    items.map(move |item| match item {
        Ok(item) => Ok(item.to_request(&objects)),
        Err(error) => Err(SimError::Trace(error.into())),
    })
}

/// Simulates a system under a workload of requests.
///
/// # Errors
/// The configuration or the workload is invalid, the device runs full, or a conservation law is
/// violated.
pub fn run<W>(
    registry: &Registry,
    config: &SystemConfig,
    workload: W,
    options: &RunOptions,
) -> Result<RunResult, SimError>
where
    W: Iterator<Item = Result<Request, SimError>>,
{
    let host = serde_json::to_value(&options.host).map_err(unreadable)?;
    simulate(registry, config, Requests(workload, &options.host), options, ("host", host))
}

/// Simulates a processor whose threads use the system as their memory.
///
/// # Errors
/// As [`run`]. [`System::Ssd`] is refused because a drive is no memory, and [`System::Pool`] because its
/// measured times already contain the processor's.
pub fn run_threads(
    registry: &Registry,
    config: &SystemConfig,
    threads: Vec<ThreadReferences<'_>>,
    processor: &ProcessorOptions,
    options: &RunOptions,
) -> Result<RunResult, SimError> {
    if matches!(config.system, System::Ssd | System::SsdBuffer | System::DiskCache) {
        return Err(SimError::config(
            "system",
            "a processor cannot use a drive as its memory; use dram, nvmm or ssd-paging",
        ));
    }
    if config.system == System::Pool {
        return Err(SimError::config(
            "system",
            "a pool's measured times already contain the processor's, which would count twice; leave the processor \
             out, or use dram, nvmm or ssd-paging",
        ));
    }
    let identity = serde_json::to_value(processor).map_err(unreadable)?;
    // The simulated processor has a cache of its own.
    let flat = FlatOptions { cpu_cache: false, ..config.flat.clone() };
    let pmem = PmemOptions { cpu_cache: false, ..config.pmem.clone() };
    let config = SystemConfig { flat, pmem, ..config.clone() };
    simulate(registry, &config, Threads(threads, processor), options, ("processor", identity))
}

/// Simulates database clients on a system. Where the system has persistent regions, the workload's log
/// is one.
///
/// # Errors
/// As [`run`], and for a workload that has no log.
pub fn run_clients(
    registry: &Registry,
    config: &SystemConfig,
    workload: Workload,
    clients: &ClientOptions,
    options: &RunOptions,
) -> Result<RunResult, SimError> {
    let identity = serde_json::to_value(clients).map_err(unreadable)?;
    let mut config = config.clone();
    let access_mode = config.system.access_mode();
    if let (Some(_), Some(log)) = (access_mode, workload.log()) {
        config.flat.regions.push(log);
    }
    config.pmem.log_start = workload.log().map(|log| log.start);
    let front = Clients::new(workload, access_mode == Some(AccessMode::Promote), clients)?;
    simulate(registry, &config, front, options, ("clients", identity))
}

fn unreadable(error: serde_json::Error) -> SimError {
    SimError::config("configuration", error.to_string())
}

fn simulate<F: FrontEnd>(
    registry: &Registry,
    config: &SystemConfig,
    front: F,
    options: &RunOptions,
    identity: (&str, Value),
) -> Result<RunResult, SimError> {
    let sheets = config.sheets(registry)?;
    let sheet = &sheets.main;
    let seed = options.seed;
    let mut result = match config.system {
        System::Dram => systems::dram(&sheet.model::<Dram>()?, front)?,
        System::Nvmm => systems::nvmm(&sheet.model::<Nvmm>()?, &config.nvmm, front, seed)?,
        System::Ssd => systems::ssd(&sheet.model::<Ssd>()?, &config.ssd, front, seed)?,
        System::SsdBuffer => {
            let drive = sheets.part(Target::Drive)?.model::<Ssd>()?;
            systems::ssd_buffer(&sheet.model::<WriteBuffer>()?, &drive, &config.drive_options(), front, seed)?
        }
        System::DiskCache => systems::disk_cache(&sheet.model::<DiskCacheServer>()?, front, seed)?,
        System::Pmem => {
            let drive = sheets.part(Target::Drive)?.model::<Ssd>()?;
            systems::pmem(&sheet.model::<Platform>()?, &drive, &config.pmem, front, seed)?
        }
        System::SsdPaging => {
            let dram = sheets.part(Target::Memory)?.model::<Dram>()?;
            let software = sheets.part(Target::Software)?.model::<Software>()?;
            systems::paging(&dram, &sheet.model::<Ssd>()?, &software, config, front, seed)?
        }
        System::Pool => systems::pool(&sheet.model::<MeasuredFile>()?, &config.pool_options()?, front)?,
        System::FlatFlash | System::UnifiedMMap | System::TraditionalStack => {
            let access_mode = config.system.access_mode().unwrap_or(AccessMode::Promote);
            systems::flatflash(&sheet.model::<Hierarchy>()?, access_mode, &config.flat, front, seed)?
        }
    };
    let time_ns = result.simulated_time_ns;
    if time_ns > 0.0 {
        for part in &mut result.energy {
            part.mean_power_mw = (part.dynamic_nj + part.static_nj) / time_ns * 1e3;
        }
    }
    result.energy_total_nj =
        result.energy.iter().fold(0.0, |sum, part| sum + part.dynamic_nj + part.static_nj);
    describe(&mut result, config, &sheets, options, identity)?;
    Ok(result)
}

/// Fills in the result's description of the run: names, resolved configuration, digest.
fn describe(
    result: &mut RunResult,
    config: &SystemConfig,
    sheets: &Sheets,
    options: &RunOptions,
    (front, identity): (&str, Value),
) -> Result<(), SimError> {
    result.system = config.system.name().into();
    result.preset = config.preset_name().into();
    result.workload = options.workload.clone();
    result.seed = options.seed;
    let mut resolved = Map::new();
    let sheet = &sheets.main;
    resolved.insert("preset".into(), sheet.full_name().into());
    resolved.insert("figures".into(), figures(sheet)?);
    for (target, sheet) in &sheets.beside {
        resolved.insert(target.prefix().into(), figures(sheet)?);
    }
    resolved.insert(front.into(), identity);
    let mut option = |key: &str, value: serde_json::Result<Value>| {
        resolved.insert(key.into(), value.map_err(unreadable)?);
        Ok::<_, SimError>(())
    };
    match config.system {
        System::Dram | System::DiskCache => {}
        System::Nvmm => option("options", serde_json::to_value(&config.nvmm))?,
        System::Ssd => option("options", serde_json::to_value(&config.ssd))?,
        System::Pmem => option("options", serde_json::to_value(&config.pmem))?,
        System::SsdBuffer => option("drive_options", serde_json::to_value(config.drive_options()))?,
        System::SsdPaging => {
            option("options", serde_json::to_value(&config.paging))?;
            option("drive_options", serde_json::to_value(&config.ssd))?;
        }
        System::Pool => option("options", serde_json::to_value(config.pool_options()?))?,
        System::FlatFlash | System::UnifiedMMap | System::TraditionalStack => {
            option("options", serde_json::to_value(&config.flat))?;
        }
    }
    let resolved = Value::Object(resolved);
    let mut hash = Sha256::new();
    hash.update(sheet.digest());
    hash.update(resolved.to_string());
    result.config_digest = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    result.config = resolved;
    Ok(())
}

/// The figures of a preset, each as text with its unit.
fn figures(sheet: &ResolvedPreset) -> Result<Value, SimError> {
    let mut figures = Map::new();
    for row in sheet.rows()? {
        let value = if row.unit.is_empty() { row.value } else { format!("{} {}", row.value, row.unit) };
        figures.insert(row.key, Value::String(value));
    }
    Ok(Value::Object(figures))
}
