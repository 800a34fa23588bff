//! Power and energy of the memory system: all-DRAM, flash main memory and paging from an SSD, 8 GB and 1
//! TB each (NVMM, Performance, Power, and Energy Comparisons).
//!
//! 1. Requests of 64 bytes, the paper's size of an access, arrive at the same rate on every system,
//!    since the paper holds the bandwidth constant. It names no bandwidth. Power is static power plus an
//!    energy per byte, so it is given over a range of bandwidths, and what depends on the bandwidth alone
//!    has no verdict. The simulated rate is what the presets' flash channels could carry without a cache.
//!    The time is the same, and energy differs as power does. The energy of the same work in a closed
//!    loop is given as well.
//! 2. Dynamic energy comes from the simulator: bursts, row activations, flash operations. DRAM is
//!    simulated at full size, flash behind the scaled cache of the other experiments, with one
//!    simulation for both sizes.
//! 3. Static power is computed for the parts at full size. DRAM ranks that hold data keep a row open
//!    (IDD3N) and are refreshed; the other ranks are in self-refresh (IDD6). Flash has as many dies in
//!    standby as the bandwidth needs, the same number at both sizes.
//! 4. The DRAM of NVMM and of the SSD system is 1/32 of the flash (the paper's 32 GB for 1 TB), in whole
//!    ranks. The data are one and a half times the DRAM, as for the simulated cache. The page table has
//!    its own devices.

use std::sync::Arc;

use deepram_media::{Background, Bytes, Dram, Nand, Nvmm, Registry};
use deepram_sim::host::HostOptions;
use deepram_sim::paging::PagingOptions;
use deepram_sim::{RunOptions, System, SystemConfig};
use deepram_trace::{MemoryAccess, Op, Request};

use super::machine::{MachineConfig, Technology};
use super::workloads::PageVisits;
use crate::chart::{Axis, Bars, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// Size of a request in bytes, and interval between requests: 6.4 GB/s, 16 channels of 400 MB/s.
const REQUEST: u64 = 64;
const INTERVAL_NS: u64 = 10;

/// Bandwidths of the sweep, in GB/s.
const RATES: [f64; 7] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4];

/// Divisor of the simulated capacities.
const SCALE: u64 = 8;

/// Concurrent requests in the closed loop, for the paper's many threads.
const THREADS: u32 = 16;

/// Flash per byte of DRAM in the systems with flash: the paper's 1 TB and 32 GB.
const FLASH_OVER_DRAM: u64 = 32;

/// Page-table bytes per page of 64 KiB: one entry for the page and three for older versions, 16 B each.
/// The SSD's mapping table, 4 B per 4 KiB, has the same size.
const TABLE_BYTES: u64 = 64;
const PAGE: u64 = 64 << 10;
/// Page of popularity and of paging.
const OS_PAGE: u64 = 4096;

struct Size {
    name: &'static str,
    label: &'static str,
    bytes: u64,
    dram: &'static str,
}

const SIZES: [Size; 2] = [
    Size { name: "8gb", label: "8 GB", bytes: 8 << 30, dram: "nvmm-8gib" },
    Size { name: "1tb", label: "1 TB", bytes: 1 << 40, dram: "nvmm-1tib" },
];

/// Name, label, system and flash.
type Flash = (&'static str, &'static str, System, Technology);

/// The systems with flash.
const FLASH: [Flash; 4] = [
    ("nvmm", "NVMM, SLC", System::Nvmm, Technology::SLC),
    ("ssd", "SSD, SLC", System::SsdPaging, Technology::SLC),
    ("nvmm_mlc", "NVMM, MLC", System::Nvmm, Technology::MLC_75),
    ("ssd_mlc", "SSD, MLC", System::SsdPaging, Technology::MLC_75),
];

const COMPONENTS: [&str; 7] =
    ["background", "refresh", "activate", "burst", "flash array", "flash standby", "I/O"];

/// Values by component, in the order of [`COMPONENTS`].
type Parts = [f64; COMPONENTS.len()];

/// Models of the parts for static power.
#[derive(Debug, Clone)]
pub(super) struct Models {
    /// One per size.
    dram: [Dram; 2],
    /// DRAM of the systems with flash.
    cache: Dram,
    nand: Nand,
    packages: u64,
}

pub(super) fn models(registry: &Registry, base: &MachineConfig) -> Result<Models, ReproError> {
    let wrong = |error: deepram_media::MediaError| ReproError::Config {
        what: "power".into(),
        source: Box::new(error.into()),
    };
    let overrides: Vec<&str> = base.flash.iter().map(String::as_str).collect();
    let nvmm: Nvmm = registry
        .resolve_with(&format!("nvmm.{}", Technology::SLC.nvmm), &overrides)
        .and_then(|sheet| sheet.model())
        .map_err(wrong)?;
    let dram = |size: &Size| registry.get(&format!("dram.{}", size.dram)).map_err(wrong);
    Ok(Models {
        dram: [dram(&SIZES[0])?, dram(&SIZES[1])?],
        packages: nvmm.channels * nvmm.packages_per_channel,
        cache: nvmm.dram.clone(),
        nand: nvmm.nand,
    })
}

/// Background and refresh power of DRAM in watts, with `used` ranks in use and the others in state
/// `rest`. Self-refresh counts as background.
fn static_watts(dram: &Dram, ranks: u64, used: u64, rest: Background) -> (f64, f64) {
    let all = dram.background_power(Background::Active, used).0 + dram.background_power(rest, ranks - used).0;
    let own = if rest == Background::SelfRefresh { used } else { ranks };
    let refresh = dram.refresh_power(own).0;
    (all - refresh, refresh)
}

/// Ranks of all-DRAM that hold data. Bursts rotate over the channels, so there is at least one per
/// channel.
fn used_ranks(dram: &Dram, base: &MachineConfig) -> u64 {
    let share = base.data as f64 / (base.dram * FLASH_OVER_DRAM) as f64;
    ((dram.total_ranks() as f64 * share).ceil() as u64).clamp(dram.channels, dram.total_ranks())
}

/// Static power of all-DRAM, in watts.
fn dram_static_watts(dram: &Dram, base: &MachineConfig, rest: Background) -> Parts {
    let (background, refresh) = static_watts(dram, dram.total_ranks(), used_ranks(dram, base), rest);
    [background, refresh, 0.0, 0.0, 0.0, 0.0, 0.0]
}

/// Static power of a system with flash, in watts.
fn flash_static_watts(models: &Models, size: &Size) -> Parts {
    let dram = &models.cache;
    let ranks = dram.ranks_for(Bytes(size.bytes / FLASH_OVER_DRAM));
    let (background, refresh) = static_watts(dram, ranks, ranks, Background::Active);
    // The page table takes whole devices; a rank has several.
    let devices = dram.bus_width / dram.device_width;
    let table = (size.bytes / PAGE * TABLE_BYTES).div_ceil(dram.rank_capacity().0 / devices);
    let share = table as f64 / devices as f64;
    let (one, its) = static_watts(dram, 1, 1, Background::Active);
    let standby = models.nand.standby_power().0 * models.packages as f64;
    [background + one * share, refresh + its * share, 0.0, 0.0, 0.0, standby, 0.0]
}

/// Dynamic energy of a run's requests in nanojoules, from its metrics.
fn dynamic<F>(metric: F, dram: &Dram, system: System) -> Result<Parts, ReproError>
where
    F: Fn(&str) -> Result<f64, ReproError>,
{
    let [reads, writes, rows] =
        [metric("dram.read_bursts")?, metric("dram.write_bursts")?, metric("dram.activations")?];
    let bursts = reads * dram.burst_energy(false).0 + writes * dram.burst_energy(true).0;
    let mut parts: Parts = [0.0, 0.0, rows * dram.row_energy().0, bursts, 0.0, 0.0, 0.0];
    let mut moved = (reads + writes) * dram.burst_bytes().0 as f64;
    if system != System::Dram {
        for part in ["read", "program", "erase"] {
            parts[4] += metric(&format!("energy.flash {part}.dynamic_nj"))? * 1e3;
        }
        let pages = metric("flash.reads")? + metric("flash.programs")?;
        moved += pages * metric("flash.page_bytes")?;
    }
    match system {
        // Page-table lookups: one row activation and one burst each.
        System::Nvmm => {
            let lookups = metric("flash.by_cause.mapping_misses")?;
            parts[2] += lookups * dram.row_energy().0;
            parts[3] += lookups * dram.burst_energy(false).0;
        }
        System::SsdPaging => parts[6] += metric("energy.link.dynamic_nj")? * 1e3,
        _ => {}
    }
    parts[6] += moved * 8.0 * PagingOptions::default().link_pj_per_bit;
    Ok(parts.map(|picojoules| picojoules / 1e3))
}

fn sum(parts: &Parts) -> f64 {
    parts.iter().sum()
}

/// Power of background and refresh.
fn background_and_refresh(parts: &Parts) -> f64 {
    parts[0] + parts[1]
}

fn config(system: System, preset: &str, technology: &Technology, base: &MachineConfig) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    config.preset = preset.into();
    config.memory = "nvmm-host".into();
    config.software = technology.software.into();
    match system {
        System::Nvmm => {
            config.overrides.clone_from(&base.flash);
            config.nvmm = base.nvmm.clone();
            config.nvmm.cache = Bytes(base.dram);
            config.nvmm.prefilled = true;
        }
        System::SsdPaging => {
            config.overrides.clone_from(&base.drive);
            config.paging = base.paging.clone();
            config.paging.memory = Bytes(base.dram);
            config.paging.existing = Bytes(base.data);
            config.paging.resident = true;
        }
        _ => {}
    }
    config
}

/// The request stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLoad {
    /// Interval between requests in nanoseconds, at the common rate.
    pub(super) interval_ns: u64,
    /// Share of reads.
    pub(super) read: f64,
    /// Zipf exponent of block popularity.
    pub(super) theta: f64,
}

impl Default for RequestLoad {
    fn default() -> Self {
        Self { interval_ns: INTERVAL_NS, read: 0.7, theta: 0.99 }
    }
}

impl RequestLoad {
    /// Requests of a line each to pages chosen by popularity, several adjacent lines of a page in turn.
    fn requests(self, data: u64, count: u64, seed: u64) -> impl Iterator<Item = Request> {
        let mut visits = PageVisits::new(0, data / OS_PAGE, (self.theta, 1.0 - self.read), "power", seed);
        (0..count).map(move |number| {
            let reference = visits.next(0);
            let op = if reference.access == MemoryAccess::Store { Op::Write } else { Op::Read };
            let time_ps = Some(number * self.interval_ns * 1000);
            Request { time_ps, device: 0, offset: reference.addr, len: REQUEST, op }
        })
    }
}

/// Builds the runs of each system, at the common rate and in a closed loop.
fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &MachineConfig,
    load: RequestLoad,
    (sizes, flash): (&[Size], &[Flash]),
) -> Result<Vec<SimulationRun>, ReproError> {
    let base = &base.clone().scaled(SCALE);
    let dram = |size: &Size| {
        (format!("dram.{}", size.name), config(System::Dram, size.dram, &Technology::SLC, base))
    };
    let flash = flash.iter().map(|(name, _, system, technology)| {
        let preset = if *system == System::Nvmm { technology.nvmm } else { technology.drive };
        ((*name).to_owned(), config(*system, preset, technology, base))
    });
    let (warm_up, measured) = settings.pick((800_000, 800_000), (100_000, 100_000));
    let (data, seed) = (base.data, settings.seed);
    let what = format!("visits to pages, {load:?}, {data} B, {warm_up} and {measured} requests, seed {seed}");
    let mut runs = Vec::new();
    for (name, config) in sizes.iter().map(dram).chain(flash) {
        for (pace, closed) in [("rate", false), ("closed_loop", true)] {
            let host = HostOptions { warm_up, closed, threads: THREADS, ..HostOptions::default() };
            let options = RunOptions { seed: settings.seed, host, ..RunOptions::default() };
            let name = format!("{name}.{pace}");
            runs.push(simulate::stream(&name, registry, config.clone(), &what, options, move || {
                load.requests(data, warm_up + measured, seed)
            })?);
        }
    }
    Ok(runs)
}

/// Builds the runs of the sensitivity study: all-DRAM and NVMM with SLC, 8 GB.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &MachineConfig,
    load: RequestLoad,
) -> Result<Vec<SimulationRun>, ReproError> {
    runs(settings, registry, base, load, (&SIZES[..1], &FLASH[..1]))
}

/// Sets the metrics of the claims about 8 GB.
pub(super) fn study_metrics(
    finished: &FinishedRuns<'_>,
    models: &Models,
    base: &MachineConfig,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let (size, dram) = (&SIZES[0], &models.dram[0]);
    let resting = dram_static_watts(dram, base, Background::SelfRefresh);
    let all = measure(finished, "dram.8gb", ("dram", "all-DRAM"), (dram, System::Dram), resting)?;
    let (name, label, system, _) = FLASH[0];
    let static_watts = flash_static_watts(models, size);
    let nvmm = measure(finished, name, (name, label), (&models.cache, system), static_watts)?;
    let metrics = &mut outcome.metrics;
    metrics.set("nvmm_over_dram.8gb.power", sum(&nvmm.watts) / sum(&all.watts));
    metrics.set("nvmm_over_dram.8gb.energy", nvmm.joules / all.joules);
    metrics.set("dram.8gb.background_percent", share(&all.watts));
    Ok(())
}

/// Power and energy of a system of one size.
struct Measured {
    name: &'static str,
    label: &'static str,
    /// Power at the common rate, in watts.
    watts: Parts,
    /// Static power, in watts.
    static_watts: f64,
    /// Energy of the measured requests at the common rate, in joules.
    joules: f64,
    /// Energy of the measured requests in a closed loop, in joules.
    closed_loop_joules: f64,
    /// Achieved share of the common rate.
    rate_achieved: f64,
}

fn measure(
    finished: &FinishedRuns<'_>,
    run: &str,
    (name, label): (&'static str, &'static str),
    (dram, system): (&Dram, System),
    static_watts: Parts,
) -> Result<Measured, ReproError> {
    let at = |pace: &str| {
        let run = format!("{run}.{pace}");
        let seconds = finished.metric(&run, "simulated_time_ns")? * 1e-9;
        let parts =
            dynamic(|name| finished.metric(&run, name), dram, system)?.map(|nanojoules| nanojoules * 1e-9);
        Ok::<_, ReproError>((seconds, parts))
    };
    let ((seconds, joules), (own_seconds, own)) = (at("rate")?, at("closed_loop")?);
    let watts = std::array::from_fn(|part| joules[part] / seconds + static_watts[part]);
    let came = finished.metric(&format!("{run}.rate"), "throughput_requests_per_s")?;
    Ok(Measured {
        name,
        label,
        watts,
        static_watts: sum(&static_watts),
        joules: sum(&watts) * seconds,
        closed_loop_joules: sum(&own) + sum(&static_watts) * own_seconds,
        rate_achieved: came * INTERVAL_NS as f64 * 1e-9,
    })
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let base = MachineConfig::default();
    let models = models(registry, &base)?;
    let about = format!(
        "Requests of 64 B, 70 % of them reads, in visits of sixteen adjacent lines to pages chosen by Zipf \
         0.99 from 96 MiB behind 64 MiB of DRAM, which begins full and clean, arrive at 6.4 GB/s on every \
         system, because the paper holds the bandwidth constant. (A slower system falls behind; the table \
         gives the share of the rate it achieved.) The paper names neither workload nor rate; both are \
         assumed, the rate as what 16 flash channels carry. Claims whose verdict would hang on the rate \
         alone have none; a table shows them at rates from 0.1 to 6.4 GB/s. Dynamic energy is simulated at \
         this scale. Static power is computed for the true sizes: ranks with data (3/64 of all-DRAM) \
         keep a row open, the others are in self-refresh; 8 GB and 1 TB of flash have 256 MB and 32 GB of \
         DRAM, in whole ranks, and the same number of dies. Transfers over any bus take {} pJ per bit, a \
         value for a PCI Express transmitter that is assumed for the other buses. Controllers and \
         processors are not included. Claims are judged with SLC.",
        base.paging.link_pj_per_bit
    );
    Ok(Experiment::new(
        "power",
        "Power and energy of 8 GB and 1 TB",
        about,
        runs(settings, registry, &base, RequestLoad::default(), (&SIZES, &FLASH))?,
        move |finished| evaluate(finished, &models, &base),
    ))
}

fn evaluate(
    finished: &FinishedRuns<'_>,
    models: &Models,
    base: &MachineConfig,
) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    let mut bandwidths = Vec::new();
    let mut lines = Vec::new();
    for (size, dram) in SIZES.iter().zip(&models.dram) {
        let run = format!("dram.{}", size.name);
        let with = |rest| {
            let static_watts = dram_static_watts(dram, base, rest);
            measure(finished, &run, ("dram", "all-DRAM"), (dram, System::Dram), static_watts)
        };
        let mut systems = vec![with(Background::SelfRefresh)?];
        for (name, label, system, _) in FLASH {
            let static_watts = flash_static_watts(models, size);
            systems.push(measure(finished, name, (name, label), (&models.cache, system), static_watts)?);
        }
        let all = &systems[0];
        let metrics = &mut outcome.metrics;
        for system in &systems {
            let (name, of) = (system.name, size.name);
            metrics.set(format!("{name}.{of}.power_w"), sum(&system.watts));
            metrics.set(format!("{name}.{of}.background_percent"), share(&system.watts));
            metrics.set(format!("{name}.{of}.rate_achieved"), system.rate_achieved);
            if name != all.name {
                let over = |what: &str| format!("{name}_over_dram.{of}.{what}");
                metrics.set(over("power"), sum(&system.watts) / sum(&all.watts));
                metrics.set(over("energy"), system.joules / all.joules);
                metrics.set(over("energy_closed_loop"), system.closed_loop_joules / all.closed_loop_joules);
            }
            rows.push(row(size, system));
        }
        for (what, rest) in [("power_down", Background::PowerDown), ("all_awake", Background::Standby)] {
            metrics.set(format!("dram.{}.power_{what}_w", size.name), sum(&with(rest)?.watts));
        }
        outcome.charts.push(stack(size, &systems));
        if let Some(nvmm) = systems.get(1) {
            for system in [all, nvmm] {
                lines.push(Series::new(&format!("{}, {}", system.label, size.label), over_rates(system)));
            }
            for (at, [ratio, background]) in by_bandwidth(all, nvmm) {
                metrics.set(format!("nvmm_over_dram.{}.power_at_{at}_gb_s", size.name), ratio);
                metrics.set(format!("dram.{}.background_percent_at_{at}_gb_s", size.name), background);
                bandwidths.push(vec![
                    size.label.into(),
                    format!("{at}"),
                    format!("{ratio:.3}"),
                    format!("{background:.1}"),
                ]);
            }
            if let Some(at) = half_background(all) {
                metrics.set(format!("dram.{}.half_background_gb_s", size.name), at);
            }
        }
    }
    outcome.charts.push(Chart {
        title: "Power by bandwidth".into(),
        about: "Static power, plus the energy per byte of the measured mix times the bandwidth.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("bandwidth", "GB/s"),
            y: Axis::log("power", "W"),
            series: lines,
            area: false,
        },
        references: Vec::new(),
    });
    let mut headings = vec!["system".to_owned()];
    headings.extend(COMPONENTS.map(|name| format!("{name}, W")));
    headings.extend(["all, W", "rate achieved, %", "energy, mJ", "closed loop, mJ"].map(String::from));
    outcome.tables.push(Table {
        title: "By bandwidth: power of NVMM over all-DRAM, and the share of background and refresh".into(),
        headings: ["", "GB/s", "NVMM over all-DRAM", "background of all-DRAM, %"].map(Into::into).into(),
        rows: bandwidths,
    });
    outcome.tables.push(Table {
        title: "Power by component, and energy of the requests".into(),
        headings,
        rows,
    });
    Ok(outcome)
}

/// Background and refresh in percent of all power.
fn share(watts: &Parts) -> f64 {
    background_and_refresh(watts) / sum(watts) * 100.0
}

fn row(size: &Size, system: &Measured) -> Vec<String> {
    let mut row = vec![format!("{}, {}", system.label, size.label)];
    row.extend(system.watts.iter().map(|watts| format!("{watts:.3}")));
    row.push(format!("{:.3}", sum(&system.watts)));
    row.push(format!("{:.1}", system.rate_achieved * 100.0));
    row.extend([system.joules, system.closed_loop_joules].map(|joules| format!("{:.1}", joules * 1e3)));
    row
}

fn stack(size: &Size, systems: &[Measured]) -> Chart {
    let of = |part: usize| systems.iter().map(|system| system.watts[part]).collect();
    Chart {
        title: format!("Power of {}", size.label),
        about: "Mean power of the memory system by component, at the same bandwidth for all.".into(),
        drawing: Drawing::Bars {
            axis: Axis::linear("power", "W"),
            groups: systems.iter().map(|system| system.label.to_owned()).collect(),
            series: COMPONENTS.iter().enumerate().map(|(part, name)| Bars::new(name, of(part))).collect(),
            stacked: true,
        },
        references: Vec::new(),
    }
}

/// The common rate, in GB/s.
fn rate() -> f64 {
    REQUEST as f64 / INTERVAL_NS as f64
}

/// Power at bandwidths around the common rate: static power, and dynamic power in proportion.
fn over_rates(system: &Measured) -> Vec<(f64, f64)> {
    let moving = sum(&system.watts) - system.static_watts;
    // A system that falls behind moves fewer bytes in the time.
    let moved = rate() * system.rate_achieved;
    RATES.iter().map(|&at| (at, system.static_watts + moving * at / moved)).collect()
}

/// At each bandwidth, the power of NVMM over that of all-DRAM, and the share of background and refresh in
/// all-DRAM's, in percent.
fn by_bandwidth(dram: &Measured, nvmm: &Measured) -> Vec<(f64, [f64; 2])> {
    let background = background_and_refresh(&dram.watts) * 100.0;
    let both = over_rates(dram).into_iter().zip(over_rates(nvmm));
    both.map(|((at, dram), (_, nvmm))| (at, [nvmm / dram, background / dram])).collect()
}

/// Bandwidth in GB/s at which half of the power is background and refresh.
fn half_background(system: &Measured) -> Option<f64> {
    let moving = sum(&system.watts) - system.static_watts;
    let moved = rate() * system.rate_achieved;
    (moving > 0.0).then(|| background_and_refresh(&system.watts) * moved / moving)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> (Models, MachineConfig) {
        let base = MachineConfig::default();
        (models(&Registry::builtin().unwrap(), &base).unwrap(), base)
    }

    #[test]
    fn static_power_of_dram_is_its_ranks_times_their_currents() {
        let (models, base) = all();
        let dram = &models.dram[1];
        assert_eq!((dram.total_ranks(), dram.total_capacity().0), (256, 1 << 40));
        // 3/64 of the ranks are in use.
        let used = 12.0;
        let rank = |amperes: f64| dram.supply.0 * amperes * 8.0;
        let refresh = |ranks: u64| dram.refresh_power(ranks).0;
        for (rest, watts, its) in [
            (Background::SelfRefresh, rank(dram.idd6.0), refresh(12)),
            (Background::PowerDown, rank(dram.idd2p.0), refresh(256)),
            (Background::Standby, rank(dram.idd2n.0), refresh(256)),
        ] {
            let parts = dram_static_watts(dram, &base, rest);
            let background = used * rank(dram.idd3n.0) + (256.0 - used) * watts;
            assert!((parts[0] / background - 1.0).abs() < 1e-12, "{rest:?}: {} {background}", parts[0]);
            assert!((parts[1] / its - 1.0).abs() < 1e-12, "{rest:?}: {} {its}", parts[1]);
        }
        // With two ranks on two channels, no rank is unused.
        let small = &models.dram[0];
        assert_eq!(small.total_capacity().0, 8 << 30);
        let one = |rest| sum(&dram_static_watts(small, &base, rest));
        assert_eq!(one(Background::SelfRefresh), one(Background::Standby));
    }

    #[test]
    fn static_power_of_flash_is_its_cache_its_page_table_and_its_dies() {
        let (models, _) = all();
        let rank = models.cache.background_power(Background::Active, 1).0;
        let standby = 256.0 * 3.3 * 0.08e-3;
        // 256 MB take one rank, 32 GB take eight; the page tables take one device of 512 MiB, and two.
        for (size, ranks) in SIZES.iter().zip([1.0 + 1.0 / 8.0, 8.0 + 2.0 / 8.0]) {
            let expected = ranks * rank + standby;
            let found = sum(&flash_static_watts(&models, size));
            assert!((found / expected - 1.0).abs() < 1e-12, "{}: {found} {expected}", size.label);
        }
    }

    #[test]
    fn half_of_the_power_is_background_and_refresh_at_the_bandwidth_computed() {
        let watts = [3.0, 1.0, 0.5, 0.25, 0.0, 0.0, 0.25];
        let system = Measured {
            name: "",
            label: "",
            watts,
            static_watts: 4.0,
            joules: 1.0,
            closed_loop_joules: 1.0,
            rate_achieved: 1.0,
        };
        // A system that moves half of the bytes with the same power takes twice the energy for each.
        for (achieved, half, most) in [(1.0, 4.0, 5.0), (0.5, 2.0, 6.0)] {
            let system = Measured { rate_achieved: achieved, ..system };
            let at = half_background(&system).unwrap();
            assert!((at - half * rate()).abs() < 1e-12);
            let points = over_rates(&system);
            assert!((points[6].1 - most).abs() < 1e-12 && points[6].0 == 6.4, "{points:?}");
        }
        assert!((share(&watts) - 80.0).abs() < 1e-12);
    }

    #[test]
    fn the_parts_are_what_the_simulator_has_and_dram_keeps_up() {
        let registry = Arc::new(Registry::builtin().unwrap());
        let settings = Settings { quick: true, seed: 1 };
        let (models, base) = all();
        for run in runs(&settings, &registry, &base, RequestLoad::default(), (&SIZES, &FLASH)).unwrap() {
            let name = run.name.clone();
            let metrics = run.execute().unwrap();
            let of = |what: &str| metrics.0[what];
            let system = match FLASH.iter().find(|(system, ..)| name.starts_with(&format!("{system}."))) {
                Some((_, _, system, _)) => *system,
                None => System::Dram,
            };
            let size = usize::from(name.starts_with("dram.1tb"));
            let dram = if system == System::Dram { &models.dram[size] } else { &models.cache };
            let parts = dynamic(|what| Ok(of(what)), dram, system).unwrap();
            let said = |link: bool| -> f64 {
                let dynamic = metrics.0.iter().filter(|(what, _)| {
                    what.starts_with("energy.")
                        && what.ends_with(".dynamic_nj")
                        && what.contains("link") == link
                });
                dynamic.map(|(_, value)| value).sum()
            };
            let near = (sum(&parts) - parts[6] - said(false)).abs() < 1e-9 * said(false);
            assert!(near && said(false) > 0.0, "{name}: {parts:?}, not {}", said(false));
            assert!(parts[6] > said(true) && (said(true) > 0.0) == (system == System::SsdPaging), "{name}");
            let rate_achieved = of("throughput_requests_per_s") * INTERVAL_NS as f64 * 1e-9;
            if name.ends_with(".rate") {
                // A slow system can have a backlog before the first measured request. Paging reads 4 KiB
                // for each visit of 1 KiB that misses, in sixteen requests.
                let least = if system == System::Dram { 0.99 } else { 0.02 };
                assert!(rate_achieved > least && rate_achieved < 1.02, "{name}: {rate_achieved}");
            } else if system == System::Dram {
                assert!(rate_achieved > 1.0, "{name} is no faster on its own: {rate_achieved}");
            }
        }
    }
}
