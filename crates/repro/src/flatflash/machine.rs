//! The machine of FlatFlash's section 5 at simulated scale: as FlatFlash, as the two baselines and as
//! all-DRAM.
//!
//! 1. A run names the paper's sizes of drive and DRAM and a scale. Everything that holds data or stands
//!    for a share of them is divided by the scale: the data, DRAM, the SSD-Cache (device buffer, 0.125 %
//!    of the drive), the processor's cache, the TLB, the queues of programs in the drive, the epoch of
//!    Algorithm 1 (its accesses are compared with the uses of the pages in the SSD-Cache; at least 500, so
//!    that the threshold can adapt) and the protection epoch of the paper's platform.
//! 2. Times are not scaled, so rates are not either, nor the number of things that work at once: threads,
//!    channels and dies, the link and its write buffer. With fewer dies, a thread would find a slower
//!    drive than the paper's. The promotion look-aside buffer (PLB) is one of these, but takes at most a
//!    16th of DRAM.
//! 3. A drive has at least 32 GiB of flash. Below that size only the SSD-Cache shrinks.
//! 4. Requests form a closed loop: a thread sends its next request when the last one is complete. The
//!    paper's emulator blocks the thread at each access to the drive in the same way. All threads wait
//!    for each other between warm-up and measurement.
//! 5. All-DRAM is `unified-mmap` with enough DRAM for everything. Each page is touched once before
//!    anything else.

use std::sync::Arc;

use deepram_core::units::Bytes;
use deepram_media::Registry;
use deepram_sim::host::HostOptions;
use deepram_sim::{RunOptions, System, SystemConfig};
use deepram_trace::workload::Spec;
use deepram_trace::{ObjectPlacement, Op, Request, Workload};

use crate::error::ReproError;
use crate::experiment::{FinishedRuns, Settings};
use crate::simulate;
use crate::simulation_run::{Metrics, SimulationRun};
use crate::statistics::mean;

pub(super) const GIB: u64 = 1 << 30;

/// Host DRAM of sections 5.1 and 5.2, in bytes.
pub(super) const DRAM: u64 = 2 * GIB;

/// Size of the smallest simulated drive in bytes, its blocks per plane and its package size.
const MIN_DRIVE: u64 = 32 * GIB;
const MIN_DRIVE_BLOCKS: u64 = 177;
const MIN_DRIVE_PACKAGE_MIB: u64 = 354;
/// Sets of the processor's 30 MiB cache, 20 lines each.
const CPU_SETS: u64 = 24_576;
const CPU_SET_BYTES: u64 = 20 * 64;
/// Entries and ways of the TLB.
const TLB: u64 = 1024;
const TLB_WAYS: u64 = 8;
/// Queued programs of a die.
const WRITE_QUEUE: u64 = 64;
/// Accesses of an epoch of Algorithm 1, and the fewest after scaling: the threshold needs 28 uses of pages that are
/// promoted to fall from 7 to 1, and an epoch must have many times as many.
const RESET_EPOCH: u64 = 10_000;
const MIN_EPOCH: u64 = 500;
/// Entries of the PLB, and frames of DRAM for each at least.
const LOOK_ASIDE: u64 = 64;
const FRAMES_PER_LOOK_ASIDE: u64 = 16;
/// Size of the SSD-Cache, in percent of the drive.
const BUFFER_SHARE: f64 = 0.125;

/// Settings that all simulations share unless the sensitivity study changes them.
#[derive(Debug, Clone, Default)]
pub(super) struct MachineConfig {
    /// Preset overrides, `key=value`.
    pub(super) overrides: Vec<String>,
    /// Preset overrides for FlatFlash alone: lines over the link, promotion.
    pub(super) flat: Vec<String>,
    /// Preset overrides for TraditionalStack alone.
    pub(super) stack: Vec<String>,
    /// Factor on the size of the SSD-Cache; `None` is 1.
    pub(super) buffer_times: Option<f64>,
    /// Factor on the size of the processor's cache; `None` is 1.
    pub(super) cpu_times: Option<f64>,
    /// Protection epoch of the paper's platform before scaling, in nanoseconds, for FlatFlash alone;
    /// `None` is the hardware of section 3, which has none.
    pub(super) platform_epoch_ns: Option<u64>,
}

/// The simulated system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// The processor loads and stores lines of the drive; frequently used pages are promoted.
    FlatFlash,
    /// UnifiedMMap: a page moves to DRAM at its first access; one merged translation layer.
    Unified,
    /// TraditionalStack: the same behind an operating system's storage stack.
    Stack,
    /// All-DRAM.
    Dram,
}

/// The three systems, by their names in metrics.
pub(super) const MACHINES: [(&str, Machine); 3] =
    [("flatflash", Machine::FlatFlash), ("unified", Machine::Unified), ("stack", Machine::Stack)];

/// The three systems and all-DRAM, for the sensitivity study.
pub(super) const ALL: [(&str, Machine); 4] = [MACHINES[0], MACHINES[1], MACHINES[2], SLOWDOWN_MACHINES[1]];

/// FlatFlash and all-DRAM, to compute slowdowns.
pub(super) const SLOWDOWN_MACHINES: [(&str, Machine); 2] =
    [("flatflash", Machine::FlatFlash), ("dram", Machine::Dram)];

/// What the runs of an experiment share, and the machines that each run is repeated on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunContext<'a> {
    pub(super) settings: &'a Settings,
    pub(super) registry: &'a Arc<Registry>,
    pub(super) base: &'a MachineConfig,
    pub(super) machines: &'a [(&'static str, Machine)],
}

/// No overrides.
static PLAIN: MachineConfig = MachineConfig {
    overrides: Vec::new(),
    flat: Vec::new(),
    stack: Vec::new(),
    buffer_times: None,
    cpu_times: None,
    platform_epoch_ns: None,
};

impl<'a> RunContext<'a> {
    /// The three systems without overrides.
    pub(super) fn plain(settings: &'a Settings, registry: &'a Arc<Registry>) -> Self {
        Self { settings, registry, base: &PLAIN, machines: &MACHINES }
    }
}

/// One simulation.
#[derive(Debug, Clone)]
pub(super) struct RunSpec<'a> {
    /// Name, unique in its experiment.
    pub(super) name: String,
    pub(super) machine: Machine,
    /// Size of the drive in the paper, in bytes.
    pub(super) drive: u64,
    /// Size of DRAM in the paper, in bytes.
    pub(super) dram: u64,
    /// Divisor of all sizes.
    pub(super) scale: u64,
    pub(super) threads: u32,
    /// Number of requests before the measured ones.
    pub(super) warm_up: u64,
    pub(super) base: &'a MachineConfig,
    pub(super) seed: u64,
}

impl RunSpec<'_> {
    /// The system's configuration. `data` is the number of bytes used, from address 0; only all-DRAM
    /// depends on it.
    fn config(&self, data: u64) -> SystemConfig {
        let mut config = SystemConfig::new(match self.machine {
            Machine::FlatFlash => System::FlatFlash,
            Machine::Unified | Machine::Dram => System::UnifiedMMap,
            Machine::Stack => System::TraditionalStack,
        });
        let drive = self.drive / self.scale;
        let times = (drive / MIN_DRIVE).max(1);
        let share = drive as f64 / (times * MIN_DRIVE) as f64;
        let buffer = BUFFER_SHARE * share * self.base.buffer_times.unwrap_or(1.0);
        let cpu = (CPU_SETS as f64 / self.scale as f64 * self.base.cpu_times.unwrap_or(1.0)) as u64;
        let tlb = (TLB / self.scale / TLB_WAYS).max(1) * TLB_WAYS;
        let scale = self.scale;
        let scaled = |full: u64| (full / scale).max(1);
        let look_aside = (self.dram / scale / 4096 / FRAMES_PER_LOOK_ASIDE).clamp(1, LOOK_ASIDE);
        config.preset = "p3700-32gib".into();
        config.overrides = vec![
            format!("nand.blocks_per_plane={}", MIN_DRIVE_BLOCKS * times),
            format!("nand.capacity={}MiB", MIN_DRIVE_PACKAGE_MIB * times),
            format!("buffer_share={buffer}%"),
            format!("cpu_cache={}B", cpu.max(1) * CPU_SET_BYTES),
            format!("tlb_entries={tlb}"),
            format!("write_queue={}", scaled(WRITE_QUEUE)),
        ];
        if self.machine == Machine::FlatFlash {
            config.overrides.push(format!("reset_epoch={}", scaled(RESET_EPOCH).max(MIN_EPOCH)));
            config.overrides.push(format!("look_aside={look_aside}"));
            if let Some(epoch) = self.base.platform_epoch_ns {
                config.overrides.push(format!("platform_epoch={}ns", scaled(epoch)));
            }
        }
        let own = match self.machine {
            Machine::FlatFlash => &self.base.flat[..],
            Machine::Stack => &self.base.stack[..],
            Machine::Unified | Machine::Dram => &[],
        };
        config.overrides.extend(self.base.overrides.iter().chain(own).cloned());
        config.flat.memory = Bytes(if self.machine == Machine::Dram {
            data.next_multiple_of(4096)
        } else {
            self.dram / self.scale
        });
        config
    }

    /// The run under `requests`, which use the first `data` bytes. `what` identifies the requests
    /// completely.
    pub(super) fn run<S, I>(
        &self,
        registry: &Arc<Registry>,
        what: &str,
        data: u64,
        requests: S,
    ) -> Result<SimulationRun, ReproError>
    where
        S: Fn() -> I + Send + Sync + 'static,
        I: Iterator<Item = Request> + 'static,
    {
        let filled = if self.machine == Machine::Dram { data.div_ceil(4096) } else { 0 };
        let warm_up = self.warm_up + filled;
        let host = HostOptions { threads: self.threads, warm_up, barrier: true, ..HostOptions::default() };
        let options = RunOptions { seed: self.seed, workload: what.into(), host };
        let what = format!("{filled} pages, then {what}");
        simulate::stream(&self.name, registry, self.config(data), &what, options, move || {
            (0..filled).map(|page| load(page * 4096, 64)).chain(requests())
        })
    }

    /// The run under `before` and then a generated workload.
    pub(super) fn workload<S, I>(
        &self,
        registry: &Arc<Registry>,
        spec: &str,
        data: u64,
        before: S,
    ) -> Result<SimulationRun, ReproError>
    where
        S: Fn() -> I + Send + Sync + 'static,
        I: Iterator<Item = Request> + 'static,
    {
        // The workload is generated when the run starts, because a graph takes time to build.
        let spec = spec.parse::<Spec>().map_err(|error| ReproError::Config {
            what: self.name.clone(),
            source: Box::new(simulate::workload_error(&error)),
        })?;
        let full = spec.to_string();
        let (spec, seed) = (full.clone(), self.seed);
        self.run(registry, &full, data, move || {
            let none = ObjectPlacement { slot_bytes: 0, slots: 0 };
            // The text has been parsed above.
            let items = Workload::new(&spec, seed).into_iter().flatten();
            before().chain(items.map(move |item| item.to_request(&none)))
        })
    }
}

/// A load of `len` bytes at `offset`.
pub(super) fn load(offset: u64, len: u64) -> Request {
    Request { time_ps: None, device: 0, offset, len, op: Op::Read }
}

/// A store of `len` bytes at `offset`.
pub(super) fn store(offset: u64, len: u64) -> Request {
    Request { op: Op::Write, ..load(offset, len) }
}

/// Numbers below `count` in the order in which `threads` threads pass through equal shares of them side
/// by side.
pub(super) fn shares(count: u64, threads: u32) -> impl Iterator<Item = u64> {
    let threads = u64::from(threads);
    let share = count.div_ceil(threads);
    (0..share)
        .flat_map(move |position| (0..threads).map(move |thread| thread * share + position))
        .filter(move |number| *number < count)
}

/// Reads one metric of each system, in the order of [`MACHINES`]; `name` gives the run of a machine.
pub(super) fn each(
    finished: &FinishedRuns<'_>,
    metric: &str,
    name: impl Fn(&str) -> String,
) -> Result<[f64; 3], ReproError> {
    let mut values = [0.0; 3];
    for (value, (machine, _)) in values.iter_mut().zip(MACHINES) {
        *value = finished.metric(&name(machine), metric)?;
    }
    Ok(values)
}

/// Mean, over runs, of FlatFlash's time over that of all-DRAM.
pub(super) fn slowdown(
    finished: &FinishedRuns<'_>,
    names: impl Iterator<Item = [String; 2]>,
) -> Result<f64, ReproError> {
    let time = |name: &str| finished.metric(name, "simulated_time_ns");
    let ratios: Vec<f64> =
        names.map(|[flat, dram]| Ok(time(&flat)? / time(&dram)?)).collect::<Result<_, ReproError>>()?;
    Ok(mean(&ratios).unwrap_or(f64::NAN))
}

/// Sets the least, the greatest and the mean of ratios.
pub(super) fn spread(metrics: &mut Metrics, name: &str, ratios: &[f64]) {
    metrics.set(format!("{name}.least"), ratios.iter().copied().fold(f64::INFINITY, f64::min));
    metrics.set(format!("{name}.most"), ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    metrics.set(format!("{name}.mean"), mean(ratios).unwrap_or(f64::NAN));
}

/// Ratios of the baselines' metrics to FlatFlash's, one per run.
#[derive(Debug, Default)]
pub(super) struct BaselineRatios {
    pub(super) unified: Vec<f64>,
    pub(super) stack: Vec<f64>,
}

impl BaselineRatios {
    /// Adds the metrics of one comparison.
    pub(super) fn push(&mut self, [flat, unified, stack]: [f64; 3]) {
        self.unified.push(unified / flat);
        self.stack.push(stack / flat);
    }

    /// Sets the least, the greatest and the mean of both ratios.
    pub(super) fn set(&self, metrics: &mut Metrics, name: &str) {
        spread(metrics, &format!("{name}.over_unified"), &self.unified);
        spread(metrics, &format!("{name}.over_stack"), &self.stack);
    }
}

/// Sets the ratios of the baselines' sums to FlatFlash's, for pages moved or programmed in all runs. A
/// sum of 0 counts as 1; if that is FlatFlash's, the ratio is a lower bound.
pub(super) fn totals(metrics: &mut Metrics, name: &str, settings: &[[f64; 3]]) {
    let sum = |at: usize| settings.iter().map(|values| values[at]).sum::<f64>().max(1.0);
    let flat = sum(0);
    metrics.set(format!("{name}.over_unified"), sum(1) / flat);
    metrics.set(format!("{name}.over_stack"), sum(2) / flat);
}

/// Bytes with a unit, such as `32 GiB`.
pub(super) fn words(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
