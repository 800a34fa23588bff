//! One simulation from its configuration to its result.

use deepram_media::{
    AllocationPool, Dram, NandOp, Picos, Registry, Sheet, Ssd, lifetime_seconds, nearest, power_energy,
};
use deepram_trace::{Item, ObjectPlacement, Request, TraceError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::dram::DramMemory;
use crate::error::SimError;
use crate::host::{HostOptions, Measured, drive};
use crate::result::{Cost, EnergyPart, FlashResult, HitRatio, RunResult, Wear};
use crate::ssd::{ParallelSsd, SerialSsd, SsdOptions};

/// The systems that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// All-DRAM memory.
    Dram,
    /// A solid-state drive.
    Ssd,
}

impl System {
    /// All systems.
    pub const ALL: [System; 2] = [System::Dram, System::Ssd];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Dram => "dram",
            System::Ssd => "ssd",
        }
    }

    /// The preset used if none is named.
    #[must_use]
    pub fn default_preset(self) -> &'static str {
        match self {
            System::Dram => "ddr4-2400",
            System::Ssd => "tlc",
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
    /// Figures of the preset set anew, as `key=value`.
    pub overrides: Vec<String>,
    /// Options of a drive.
    pub ssd: SsdOptions,
}

impl SystemConfig {
    /// The system with its default preset and options.
    #[must_use]
    pub fn new(system: System) -> Self {
        Self { system, preset: String::new(), overrides: Vec::new(), ssd: SsdOptions::default() }
    }

    /// The preset's name.
    #[must_use]
    pub fn preset_name(&self) -> &str {
        if self.preset.is_empty() { self.system.default_preset() } else { &self.preset }
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
    let overrides: Vec<&str> = config.overrides.iter().map(String::as_str).collect();
    let name = format!("{}.{}", config.system.name(), config.preset_name());
    let sheet = registry
        .sheet_with(&name, &overrides)
        .or_else(|error| registry.sheet_with(config.preset_name(), &overrides).map_err(|_| error))?;
    let mut result = match config.system {
        System::Dram => run_dram(&sheet.model::<Dram>()?, workload, options)?,
        System::Ssd => run_ssd(&sheet.model::<Ssd>()?, &config.ssd, workload, options)?,
    };
    let time_ns = result.simulated_time_ns;
    if time_ns > 0.0 {
        for part in &mut result.energy {
            part.mean_power_mw = (part.dynamic_nj + part.static_nj) / time_ns * 1e3;
        }
    }
    result.energy_total_nj = result.energy.iter().map(|part| part.dynamic_nj + part.static_nj).sum();
    describe(&mut result, config, &sheet, options)?;
    Ok(result)
}

/// Fills in what was simulated: names, resolved figures, digest.
fn describe(
    result: &mut RunResult,
    config: &SystemConfig,
    sheet: &Sheet,
    options: &RunOptions,
) -> Result<(), SimError> {
    let mut figures = Map::new();
    for row in sheet.rows()? {
        let value = if row.unit.is_empty() { row.value } else { format!("{} {}", row.value, row.unit) };
        figures.insert(row.key, Value::String(value));
    }
    let to_value = |error: serde_json::Error| SimError::config("configuration", error.to_string());
    let host = serde_json::to_value(&options.host).map_err(to_value)?;
    let ssd = serde_json::to_value(&config.ssd).map_err(to_value)?;
    result.system = config.system.name().into();
    result.preset = config.preset_name().into();
    result.workload = options.workload.clone();
    result.seed = options.seed;
    let mut resolved = json!({ "preset": sheet.full_name(), "figures": figures, "host": host });
    if config.system == System::Ssd
        && let Some(object) = resolved.as_object_mut()
    {
        object.insert("options".into(), ssd);
    }
    let mut hash = Sha256::new();
    hash.update(sheet.digest());
    hash.update(resolved.to_string());
    result.config_digest = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    result.config = resolved;
    Ok(())
}

fn run_dram<W>(dram: &Dram, workload: W, options: &RunOptions) -> Result<RunResult, SimError>
where
    W: Iterator<Item = Result<Request, SimError>>,
{
    let mut memory = DramMemory::new(dram)?;
    let measured = drive(&mut memory, workload, &options.host)?;
    let energy = memory.energy_pj(measured.time_ps);
    let counts = memory.dram_counts();
    let mut result = RunResult::from_measured(measured);
    result.hit_ratios.push(HitRatio::new(
        "dram row",
        counts.row_hits,
        counts.read_bursts + counts.write_bursts,
    ));
    result
        .energy
        .extend(energy.map(|(component, dynamic, fixed)| EnergyPart::new(component, dynamic, fixed)));
    result.dram = Some(counts);
    result.cost = dram.price.map(|price| Cost {
        usd: price.0 * dram.total_capacity().0 as f64,
        year: dram.price_year.map(|year| year.0),
    });
    Ok(result)
}

fn run_ssd<W>(
    ssd: &Ssd,
    ssd_options: &SsdOptions,
    workload: W,
    options: &RunOptions,
) -> Result<RunResult, SimError>
where
    W: Iterator<Item = Result<Request, SimError>>,
{
    match ssd.allocation_pool {
        AllocationPool::Package => {
            let mut device = SerialSsd::new(ssd)?;
            let measured = drive(&mut device, workload, &options.host)?;
            let erased: Vec<u32> = device.erased().collect();
            Ok(ssd_result(ssd, measured, &erased, 0))
        }
        AllocationPool::Plane => {
            let mut device = ParallelSsd::new(ssd, ssd_options, options.seed)?;
            let measured = drive(&mut device, workload, &options.host)?;
            let erased: Vec<u32> = device.erased().collect();
            let retired = device.retired();
            Ok(ssd_result(ssd, measured, &erased, retired))
        }
        AllocationPool::Device => Err(SimError::config(
            "allocation_pool",
            "a pool of the whole device is not simulated; use plane or package",
        )),
    }
}

fn ssd_result(ssd: &Ssd, measured: Measured, erased: &[u32], retired: u64) -> RunResult {
    let counts = measured.counts;
    let time = Picos(measured.time_ps);
    let nand = &ssd.nand;
    let cost = |op: NandOp, count: u64| nand.energy(op).times(count).0;
    let reads = cost(NandOp::Read, counts.reads());
    let programs = cost(NandOp::Program, counts.programs());
    let erases = cost(NandOp::Erase, counts.erases);
    let standby = power_energy(nand.standby(), time).0 * ssd.packages() as f64;
    let page = nand.page;
    let mut result = RunResult::from_measured(measured);
    result.energy.push(EnergyPart::new("flash read", reads, 0.0));
    result.energy.push(EnergyPart::new("flash program", programs, 0.0));
    result.energy.push(EnergyPart::new("flash erase", erases, 0.0));
    result.energy.push(EnergyPart::new("flash standby", 0.0, standby));
    if counts.mapping_hits + counts.mapping_misses > 0 {
        result.hit_ratios.push(HitRatio::new(
            "mapping cache",
            counts.mapping_hits,
            counts.mapping_hits + counts.mapping_misses,
        ));
    }
    let used = erased.len().max(1) as f64;
    let total: u64 = erased.iter().map(|erases| u64::from(*erases)).sum();
    let mean = total as f64 / used;
    let variance = erased.iter().map(|erases| (f64::from(*erases) - mean).powi(2)).sum::<f64>() / used;
    let rate = counts.erases as f64 * nand.block_bytes().0 as f64 / time.seconds();
    result.wear = Some(Wear {
        mean_erases: mean,
        deviation_erases: variance.sqrt(),
        most_erases: erased.iter().copied().max().unwrap_or(0),
        endurance: nand.endurance,
        retired_blocks: retired,
        lifetime_years: (counts.erases > 0 && time.0 > 0)
            .then(|| lifetime_seconds(ssd.raw_bytes(), nand.endurance, rate, 1.0, 1.0) / (365.25 * 86_400.0)),
    });
    result.flash = Some(FlashResult::new(counts, page));
    result.cost = nand.price.map(|price| Cost {
        usd: price.0 * ssd.raw_bytes().0 as f64,
        year: nand.price_year.map(|year| year.0),
    });
    result
}
