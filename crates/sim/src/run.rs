//! One simulation from its configuration to its result.

use deepram_core::suggest::nearest;
use deepram_media::{Dram, Hierarchy, MeasuredFile, Nvmm, Registry, ResolvedPreset, Software, Ssd};
use deepram_trace::{Item, ObjectPlacement, Request, TraceError, Workload};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::clients::{ClientOptions, Clients};
use crate::error::SimError;
use crate::flatflash::{FlatOptions, Way};
use crate::host::HostOptions;
use crate::nvmm::NvmmOptions;
use crate::pager::PagerOptions;
use crate::paging::PagingOptions;
use crate::processor::{ProcessorOptions, References};
use crate::result::RunResult;
use crate::ssd::SsdOptions;
use crate::systems::{self, Front, Requests, Threads};

/// The systems that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// All-DRAM memory.
    Dram,
    /// Journaled flash main memory behind a DRAM cache.
    Nvmm,
    /// A solid-state drive.
    Ssd,
    /// DRAM main memory, and a drive behind an operating system's paging.
    SsdPaging,
    /// The real pool of this project on a measured file or block device.
    Pool,
    /// DRAM, and a drive whose lines the processor loads and stores.
    #[serde(rename = "flatflash")]
    FlatFlash,
    /// DRAM, and the same drive behind paging with one table for all translation.
    #[serde(rename = "unified-mmap")]
    UnifiedMMap,
    /// DRAM, and the same drive behind an operating system's storage stack.
    TraditionalStack,
}

impl System {
    /// All systems.
    pub const ALL: [System; 8] = [
        System::Dram,
        System::Nvmm,
        System::Ssd,
        System::SsdPaging,
        System::Pool,
        System::FlatFlash,
        System::UnifiedMMap,
        System::TraditionalStack,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Dram => "dram",
            System::Nvmm => "nvmm",
            System::Ssd => "ssd",
            System::SsdPaging => "ssd-paging",
            System::Pool => "pool",
            System::FlatFlash => "flatflash",
            System::UnifiedMMap => "unified-mmap",
            System::TraditionalStack => "traditional-stack",
        }
    }

    /// How a page of the drive is used, of the systems that have a [`Hierarchy`].
    #[must_use]
    pub fn way(self) -> Option<Way> {
        match self {
            System::FlatFlash => Some(Way::Promote),
            System::UnifiedMMap => Some(Way::Page),
            System::TraditionalStack => Some(Way::Stack),
            System::Dram | System::Nvmm | System::Ssd | System::SsdPaging | System::Pool => None,
        }
    }

    /// The preset used if none is named.
    #[must_use]
    pub fn default_preset(self) -> &'static str {
        match self {
            System::Dram => "ddr4-2400",
            System::Nvmm => "nvmm-slc",
            System::Ssd => "tlc",
            System::SsdPaging => "paging-slc",
            System::Pool => "virtual-ssd",
            System::FlatFlash | System::UnifiedMMap | System::TraditionalStack => "p3700",
        }
    }

    /// The kind of its preset.
    fn kind(self) -> &'static str {
        match self {
            System::Dram => "dram",
            System::Nvmm => "nvmm",
            System::Ssd | System::SsdPaging => "ssd",
            System::Pool => "file",
            System::FlatFlash | System::UnifiedMMap | System::TraditionalStack => "hierarchy",
        }
    }

    /// The system of that name.
    ///
    /// # Errors
    /// There is none; the error names the nearest and all.
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

/// What is simulated.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// Which system.
    pub system: System,
    /// The preset's name; the system's default if empty.
    pub preset: String,
    /// Figures of the preset set anew, as `key=value`; for `ssd-paging` those of its DRAM as
    /// `memory.key=value`, those of its operating system as `software.key=value`; for `pool` its options as
    /// `pool.key=value`.
    pub overrides: Vec<String>,
    /// Options of a drive, by itself or behind paging.
    pub ssd: SsdOptions,
    /// Options of `nvmm`.
    pub nvmm: NvmmOptions,
    /// Options of `ssd-paging`.
    pub paging: PagingOptions,
    /// Options of `pool`.
    pub pool: PagerOptions,
    /// Options of `flatflash`, `unified-mmap` and `traditional-stack`.
    pub flat: FlatOptions,
    /// Presets of `ssd-paging` beside the drive: its DRAM and its operating system.
    pub memory: String,
    /// The operating system's preset.
    pub software: String,
}

/// What the presets of `ssd-paging` beside the drive are called where figures are set anew.
const MEMORY_KEY: &str = "memory";
const SOFTWARE_KEY: &str = "software";

/// The DRAM of `ssd-paging` if nothing else is named.
const MEMORY: &str = "ddr3-1600";
/// Its operating system.
const SOFTWARE: &str = "linux-slc";

impl SystemConfig {
    /// The system with its default preset and options.
    #[must_use]
    pub fn new(system: System) -> Self {
        Self {
            system,
            preset: String::new(),
            overrides: Vec::new(),
            ssd: SsdOptions::default(),
            nvmm: NvmmOptions::default(),
            paging: PagingOptions::default(),
            pool: PagerOptions::default(),
            flat: FlatOptions::default(),
            memory: MEMORY.into(),
            software: SOFTWARE.into(),
        }
    }

    /// Its presets, with everything set anew that is.
    fn sheets(&self, registry: &Registry) -> Result<Sheets, SimError> {
        let parts = match self.system {
            System::SsdPaging => vec![
                (MEMORY_KEY, format!("dram.{}", self.memory)),
                (SOFTWARE_KEY, format!("software.{}", self.software)),
            ],
            _ => Vec::new(),
        };
        let (mut own, mut others) = (Vec::new(), vec![Vec::new(); parts.len()]);
        for text in &self.overrides {
            let part = text.split_once('.').and_then(|(key, rest)| {
                let at = parts.iter().position(|(name, _)| *name == key)?;
                Some((at, rest))
            });
            match part {
                Some((at, rest)) => others[at].push(rest),
                None if self.pool_option(text).is_some() => {}
                None => own.push(text.as_str()),
            }
        }
        let name = format!("{}.{}", self.system.kind(), self.preset_name());
        let main = registry
            .resolve_with(&name, &own)
            .or_else(|error| registry.resolve_with(self.preset_name(), &own).map_err(|_| error))?;
        let beside = parts
            .into_iter()
            .zip(others)
            .map(|((key, name), set)| Ok((key, registry.resolve_with(&name, &set)?)))
            .collect::<Result<_, SimError>>()?;
        Ok(Sheets { main, beside })
    }

    /// What is set anew among the options of `pool`: key and value.
    fn pool_option<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let rest = text.strip_prefix("pool.").filter(|_| self.system == System::Pool)?;
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        Some((key.trim(), value.trim()))
    }

    /// The options of `pool`, with everything set anew that is.
    fn pool_options(&self) -> Result<PagerOptions, SimError> {
        let mut options = self.pool.clone();
        for (key, value) in self.overrides.iter().filter_map(|text| self.pool_option(text)) {
            options.set(key, value)?;
        }
        Ok(options)
    }

    /// The digests of its presets, with everything set anew that is.
    ///
    /// # Errors
    /// A preset or a figure of it is not there, or wrong.
    pub fn digests(&self, registry: &Registry) -> Result<Vec<String>, SimError> {
        let sheets = self.sheets(registry)?;
        let all = std::iter::once(&sheets.main).chain(sheets.beside.iter().map(|(_, sheet)| sheet));
        Ok(all.map(|sheet| sheet.digest()).collect())
    }

    /// The preset's name.
    #[must_use]
    pub fn preset_name(&self) -> &str {
        if self.preset.is_empty() { self.system.default_preset() } else { &self.preset }
    }
}

/// The resolved presets of a system.
struct Sheets {
    main: ResolvedPreset,
    beside: Vec<(&'static str, ResolvedPreset)>,
}

impl Sheets {
    fn beside(&self, key: &str) -> Result<&ResolvedPreset, SimError> {
        let found = self.beside.iter().find(|(name, _)| *name == key);
        found.map(|(_, sheet)| sheet).ok_or_else(|| SimError::config(key, "the system has no such part"))
    }
}

/// How it is run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The seed of every random stream of the system.
    pub seed: u64,
    /// What the workload is called in the result.
    pub workload: String,
    /// The host's side.
    pub host: HostOptions,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { seed: 1, workload: String::new(), host: HostOptions::default() }
    }
}

/// Records of a trace or a generated workload as requests; memory references as reads and writes of their
/// bytes, objects where they are placed.
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

/// Simulates the system under the workload.
///
/// # Errors
/// The configuration or the workload is wrong, the device runs full, or a law of conservation is violated.
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

/// Simulates a processor whose threads refer to the system's memory.
///
/// # Errors
/// As [`run`]; [`System::Ssd`] is no memory, and [`System::Pool`] has a processor of its own: the measured one.
pub fn run_threads(
    registry: &Registry,
    config: &SystemConfig,
    threads: Vec<References<'_>>,
    processor: &ProcessorOptions,
    options: &RunOptions,
) -> Result<RunResult, SimError> {
    if config.system == System::Ssd {
        return Err(SimError::config(
            "system",
            "a drive is no memory that a processor refers to; use dram, nvmm or ssd-paging",
        ));
    }
    if config.system == System::Pool {
        return Err(SimError::config(
            "system",
            "the times of a pool are measured with its processor, which would count twice; leave the processor \
             out, or use dram, nvmm or ssd-paging",
        ));
    }
    let identity = serde_json::to_value(processor).map_err(unreadable)?;
    // The processor brings its cache.
    let flat = FlatOptions { cpu_cache: false, ..config.flat.clone() };
    let config = SystemConfig { flat, ..config.clone() };
    simulate(registry, &config, Threads(threads, processor), options, ("processor", identity))
}

/// Simulates clients of a database on the system. Where the system has persistent regions, the workload's log is one.
///
/// # Errors
/// As [`run`]; the workload has no log.
pub fn run_clients(
    registry: &Registry,
    config: &SystemConfig,
    workload: Workload,
    clients: &ClientOptions,
    options: &RunOptions,
) -> Result<RunResult, SimError> {
    let identity = serde_json::to_value(clients).map_err(unreadable)?;
    let mut config = config.clone();
    let way = config.system.way();
    if let (Some(_), Some(log)) = (way, workload.log()) {
        config.flat.regions.push(log);
    }
    let front = Clients::new(workload, way == Some(Way::Promote), clients)?;
    simulate(registry, &config, front, options, ("clients", identity))
}

fn unreadable(error: serde_json::Error) -> SimError {
    SimError::config("configuration", error.to_string())
}

fn simulate<F: Front>(
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
        System::SsdPaging => {
            let dram = sheets.beside(MEMORY_KEY)?.model::<Dram>()?;
            let software = sheets.beside(SOFTWARE_KEY)?.model::<Software>()?;
            systems::paging(&dram, &sheet.model::<Ssd>()?, &software, config, front, seed)?
        }
        System::Pool => systems::pool(&sheet.model::<MeasuredFile>()?, &config.pool_options()?, front)?,
        System::FlatFlash | System::UnifiedMMap | System::TraditionalStack => {
            let way = config.system.way().unwrap_or(Way::Promote);
            systems::flat(&sheet.model::<Hierarchy>()?, way, &config.flat, front, seed)?
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

/// Fills in what was simulated: names, resolved figures, digest.
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
    for (key, sheet) in &sheets.beside {
        resolved.insert((*key).into(), figures(sheet)?);
    }
    resolved.insert(front.into(), identity);
    let mut option = |key: &str, value: serde_json::Result<Value>| {
        resolved.insert(key.into(), value.map_err(unreadable)?);
        Ok::<_, SimError>(())
    };
    match config.system {
        System::Dram => {}
        System::Nvmm => option("options", serde_json::to_value(&config.nvmm))?,
        System::Ssd => option("options", serde_json::to_value(&config.ssd))?,
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

/// The figures of a preset, with their units.
fn figures(sheet: &ResolvedPreset) -> Result<Value, SimError> {
    let mut figures = Map::new();
    for row in sheet.rows()? {
        let value = if row.unit.is_empty() { row.value } else { format!("{} {}", row.value, row.unit) };
        figures.insert(row.key, Value::String(value));
    }
    Ok(Value::Object(figures))
}
