//! The machine of FlatFlash's section 5 in the size that is simulated, as each of the three systems and as DRAM alone.
//!
//! 1. A setting names the paper's sizes of drive and DRAM and a scale. What data and caches share is divided by the
//!    scale: DRAM, the drive's memory (0.125 % of the drive), the processor's cache, translations held. Times,
//!    thresholds and the look-aside buffer stay.
//! 2. A drive has no less than 32 GiB of flash, in as many dies as the paper's: below that only its memory shrinks.
//! 3. Requests are a closed loop: a thread sends the next when one is over. The paper's emulator holds a thread up at
//!    each access to the drive.
//! 4. All-DRAM is `unified-mmap` with room for everything, each page of which is used once before anything else.

use std::sync::Arc;

use deepram_core::units::Bytes;
use deepram_media::Registry;
use deepram_sim::host::HostOptions;
use deepram_sim::{RunOptions, System, SystemConfig};
use deepram_trace::workload::Spec;
use deepram_trace::{ObjectPlacement, Op, Request, Workload};

use crate::curve::mean;
use crate::error::ReproError;
use crate::experiment::{Finished, Settings};
use crate::run::{Figures, Run};
use crate::simulate;

pub(super) const GIB: u64 = 1 << 30;

/// Host DRAM of sections 5.1 and 5.2.
pub(super) const DRAM: u64 = 2 * GIB;

/// The smallest drive that is simulated, its blocks a plane, and its package.
const LEAST: u64 = 32 * GIB;
const LEAST_BLOCKS: u64 = 177;
const LEAST_PACKAGE_MIB: u64 = 354;
/// Sets of 20 lines in the processor's cache of 30 MiB.
const CPU_SETS: u64 = 24_576;
const CPU_SET_BYTES: u64 = 20 * 64;
/// Translations held, and their ways.
const TLB: u64 = 1024;
const TLB_WAYS: u64 = 8;
/// The drive's memory as a share of the drive, in percent.
const BUFFER_SHARE: f64 = 0.125;

/// What all simulations share unless a study changes it.
#[derive(Debug, Clone, Default)]
pub(super) struct Base {
    /// Figures of the machine set anew.
    pub(super) overrides: Vec<String>,
    /// The same of what only FlatFlash uses: lines over the link, promotion.
    pub(super) flat: Vec<String>,
    /// And of what only the storage stack uses.
    pub(super) stack: Vec<String>,
    /// The drive's memory is so many times as large as its share says, if not once.
    pub(super) buffer_times: Option<f64>,
    /// The processor's cache is so many times as large, if not once.
    pub(super) cpu_times: Option<f64>,
}

/// Which system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// The processor loads and stores lines of the drive; pages used often are promoted.
    FlatFlash,
    /// Pages are moved when they are first used; one translation.
    Unified,
    /// The same behind an operating system's storage stack.
    Stack,
    /// Everything is in DRAM.
    Dram,
}

/// The three systems, by the name that figures use.
pub(super) const MACHINES: [(&str, Machine); 3] =
    [("flatflash", Machine::FlatFlash), ("unified", Machine::Unified), ("stack", Machine::Stack)];

/// The same with all-DRAM, for the study.
pub(super) const ALL: [(&str, Machine); 4] = [MACHINES[0], MACHINES[1], MACHINES[2], SLOWED[1]];

/// FlatFlash and all-DRAM, for slowdowns.
pub(super) const SLOWED: [(&str, Machine); 2] = [("flatflash", Machine::FlatFlash), ("dram", Machine::Dram)];

/// What the simulations of an experiment have in common, and the machines that each of them is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bench<'a> {
    pub(super) settings: &'a Settings,
    pub(super) registry: &'a Arc<Registry>,
    pub(super) base: &'a Base,
    pub(super) machines: &'a [(&'static str, Machine)],
}

/// Nothing set anew.
static PLAIN: Base =
    Base { overrides: Vec::new(), flat: Vec::new(), stack: Vec::new(), buffer_times: None, cpu_times: None };

impl<'a> Bench<'a> {
    /// The three systems, nothing set anew.
    pub(super) fn plain(settings: &'a Settings, registry: &'a Arc<Registry>) -> Self {
        Self { settings, registry, base: &PLAIN, machines: &MACHINES }
    }
}

/// One simulation.
#[derive(Debug, Clone)]
pub(super) struct Setting<'a> {
    /// Unique in its experiment.
    pub(super) name: String,
    pub(super) machine: Machine,
    /// Bytes of the drive as the paper has them.
    pub(super) drive: u64,
    /// Bytes of DRAM as the paper has them.
    pub(super) dram: u64,
    /// What all sizes are divided by.
    pub(super) scale: u64,
    pub(super) threads: u32,
    /// Requests before the measured ones.
    pub(super) warm_up: u64,
    pub(super) base: &'a Base,
    pub(super) seed: u64,
}

impl Setting<'_> {
    /// `data`: bytes from 0 on that are used, of which only all-DRAM wants to know.
    fn config(&self, data: u64) -> SystemConfig {
        let mut config = SystemConfig::new(match self.machine {
            Machine::FlatFlash => System::FlatFlash,
            Machine::Unified | Machine::Dram => System::UnifiedMMap,
            Machine::Stack => System::TraditionalStack,
        });
        let drive = self.drive / self.scale;
        let times = (drive / LEAST).max(1);
        let share = drive as f64 / (times * LEAST) as f64;
        let buffer = BUFFER_SHARE * share * self.base.buffer_times.unwrap_or(1.0);
        let cpu = (CPU_SETS as f64 / self.scale as f64 * self.base.cpu_times.unwrap_or(1.0)) as u64;
        let tlb = (TLB / self.scale / TLB_WAYS).max(1) * TLB_WAYS;
        config.preset = "p3700-32gib".into();
        config.overrides = vec![
            format!("nand.blocks_per_plane={}", LEAST_BLOCKS * times),
            format!("nand.capacity={}MiB", LEAST_PACKAGE_MIB * times),
            format!("buffer_share={buffer}%"),
            format!("cpu_cache={}B", cpu.max(1) * CPU_SET_BYTES),
            format!("tlb_entries={tlb}"),
        ];
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

    /// The simulation under `requests`, that go to the first `data` bytes and that `what` names in full.
    pub(super) fn run<S, I>(
        &self,
        registry: &Arc<Registry>,
        what: &str,
        data: u64,
        requests: S,
    ) -> Result<Run, ReproError>
    where
        S: Fn() -> I + Send + Sync + 'static,
        I: Iterator<Item = Request> + 'static,
    {
        let filled = if self.machine == Machine::Dram { data.div_ceil(4096) } else { 0 };
        let warm_up = self.warm_up + filled;
        let host = HostOptions { threads: self.threads, warm_up, ..HostOptions::default() };
        let options = RunOptions { seed: self.seed, workload: what.into(), host };
        let what = format!("{filled} pages, then {what}");
        simulate::stream(&self.name, registry, self.config(data), &what, options, move || {
            (0..filled).map(|page| load(page * 4096, 64)).chain(requests())
        })
    }

    /// The simulation under a workload of ours.
    pub(super) fn workload(
        &self,
        registry: &Arc<Registry>,
        spec: &str,
        data: u64,
    ) -> Result<Run, ReproError> {
        let wrong = |error: &dyn std::fmt::Display| ReproError::Config {
            what: self.name.clone(),
            source: Box::new(deepram_sim::SimError::Config {
                key: "workload".into(),
                why: error.to_string(),
            }),
        };
        // Its parts are made when it is run: a graph takes time.
        let full = spec.parse::<Spec>().map_err(|error| wrong(&error))?.to_string();
        let (spec, seed) = (full.clone(), self.seed);
        self.run(registry, &full, data, move || {
            let none = ObjectPlacement { slot_bytes: 0, slots: 0 };
            // The text has just been understood.
            let items = Workload::new(&spec, seed).into_iter().flatten();
            items.map(move |item| item.to_request(&none))
        })
    }
}

/// A load of some bytes.
pub(super) fn load(offset: u64, len: u64) -> Request {
    Request { time_ps: None, device: 0, offset, len, op: Op::Read }
}

/// A figure of each system, in the order of [`MACHINES`]; runs are named by `name`.
pub(super) fn each(
    finished: &Finished<'_>,
    figure: &str,
    name: impl Fn(&str) -> String,
) -> Result<[f64; 3], ReproError> {
    let mut values = [0.0; 3];
    for (value, (machine, _)) in values.iter_mut().zip(MACHINES) {
        *value = finished.figure(&name(machine), figure)?;
    }
    Ok(values)
}

/// The mean over settings of how many times as long FlatFlash takes as DRAM alone.
pub(super) fn slowdown(
    finished: &Finished<'_>,
    names: impl Iterator<Item = [String; 2]>,
) -> Result<f64, ReproError> {
    let time = |name: &str| finished.figure(name, "simulated_time_ns");
    let ratios: Vec<f64> =
        names.map(|[flat, dram]| Ok(time(&flat)? / time(&dram)?)).collect::<Result<_, ReproError>>()?;
    Ok(mean(&ratios).unwrap_or(f64::NAN))
}

/// The least of ratios over settings, the greatest, and the mean.
pub(super) fn spread(figures: &mut Figures, name: &str, ratios: &[f64]) {
    figures.set(format!("{name}.least"), ratios.iter().copied().fold(f64::INFINITY, f64::min));
    figures.set(format!("{name}.most"), ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    figures.set(format!("{name}.mean"), mean(ratios).unwrap_or(f64::NAN));
}

/// Figures of the baselines over FlatFlash's, in each setting.
#[derive(Debug, Default)]
pub(super) struct Over {
    pub(super) unified: Vec<f64>,
    pub(super) stack: Vec<f64>,
}

impl Over {
    /// Adds a setting.
    pub(super) fn push(&mut self, [flat, unified, stack]: [f64; 3]) {
        self.unified.push(unified / flat);
        self.stack.push(stack / flat);
    }

    /// Sets least, greatest and mean of both.
    pub(super) fn set(&self, figures: &mut Figures, name: &str) {
        spread(figures, &format!("{name}.over_unified"), &self.unified);
        spread(figures, &format!("{name}.over_stack"), &self.stack);
    }
}

/// Sums of the baselines over FlatFlash's: of pages moved or programmed in all settings. Who has none counts as having
/// one: where that is FlatFlash the ratio is a lower bound.
pub(super) fn totals(figures: &mut Figures, name: &str, settings: &[[f64; 3]]) {
    let sum = |at: usize| settings.iter().map(|values| values[at]).sum::<f64>().max(1.0);
    let flat = sum(0);
    figures.set(format!("{name}.over_unified"), sum(1) / flat);
    figures.set(format!("{name}.over_stack"), sum(2) / flat);
}

/// Bytes for people: 32 GiB.
pub(super) fn words(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
