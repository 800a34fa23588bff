//! Power and energy of the memory system: all-DRAM, flash main memory and paging from an SSD, 8 GB and 1 TB of
//! each (NVMM, Performance, Power, and Energy Comparisons).
//!
//! 1. Requests come at one rate to every system, since the paper holds the bandwidth constant: as many bytes as
//!    the flash channels of the presets could carry even if nothing were cached. So the time is the same, and
//!    energy differs as power does; beside that stands the energy of the work at each system's own pace.
//! 2. What requests take is of the simulator: bursts, rows opened, flash operations. DRAM is simulated at its
//!    size, flash behind the scaled cache of the other experiments, one simulation for both sizes.
//! 3. What stands is of the parts at their size. DRAM: ranks that hold data have a row open (IDD3N) and are
//!    refreshed, the others refresh themselves (IDD6). Of flash, the dies that the bandwidth takes stand by,
//!    equally many in both sizes.
//! 4. The DRAM of NVMM and of the SSD system is 1/32 of the flash, the paper's 32 GB for 1 TB, in whole ranks;
//!    data are four times that, as they are for the simulated cache. The page table has devices of its own.

use std::sync::Arc;

use deepram_media::{Background, Bytes, Dram, Nand, Nvmm, Registry};
use deepram_sim::host::HostOptions;
use deepram_sim::paging::PagingOptions;
use deepram_sim::{RunOptions, System, SystemConfig};

use super::machine::{Base, Technology};
use crate::chart::{Axis, Bars, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::run::Run;
use crate::simulate;

/// Bytes of a request, and the time from one to the next: 6.4 GB/s, 16 channels of 400 MB/s.
const REQUEST: u64 = 4096;
const INTERVAL_NS: u64 = 640;

/// Requests under way at once where each system has its own pace: the paper's many threads.
const THREADS: u32 = 16;

/// DRAM of the systems with flash, for each byte of flash: the paper's 32 GB for 1 TB.
const FLASH_OVER_DRAM: u64 = 32;

/// Bytes of page-table entries for a page of 64 KiB: one for the page and three for older versions, 16 B each.
/// The SSD's table, an entry of 4 B for each 4 KiB, takes as many.
const TABLE_BYTES: u64 = 64;
const PAGE: u64 = 64 << 10;

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

/// Name, label, what it is, and the flash.
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

/// By component, in the order of [`COMPONENTS`].
type Parts = [f64; COMPONENTS.len()];

/// The parts that the closed forms need.
#[derive(Debug, Clone)]
pub(super) struct Models {
    /// One for each size.
    dram: [Dram; 2],
    /// Of the systems with flash.
    cache: Dram,
    nand: Nand,
    packages: u64,
}

pub(super) fn models(registry: &Registry, base: &Base) -> Result<Models, ReproError> {
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

/// Watts of DRAM whose first ranks are in use and whose others are in `rest`, and that of its refresh. Self
/// refresh is counted as background.
fn standing(dram: &Dram, ranks: u64, used: u64, rest: Background) -> (f64, f64) {
    let all = dram.background_power(Background::Active, used).0 + dram.background_power(rest, ranks - used).0;
    let own = if rest == Background::SelfRefresh { used } else { ranks };
    let refresh = dram.refresh_power(own).0;
    (all - refresh, refresh)
}

/// Ranks of all-DRAM that hold data: a share of all, but bursts go round the channels, so one of each at least.
fn used_ranks(dram: &Dram, base: &Base) -> u64 {
    let share = base.data as f64 / (base.dram * FLASH_OVER_DRAM) as f64;
    ((dram.total_ranks() as f64 * share).ceil() as u64).clamp(dram.channels, dram.total_ranks())
}

/// Watts of all-DRAM that stand.
fn dram_standing(dram: &Dram, base: &Base, rest: Background) -> Parts {
    let (background, refresh) = standing(dram, dram.total_ranks(), used_ranks(dram, base), rest);
    [background, refresh, 0.0, 0.0, 0.0, 0.0, 0.0]
}

/// Watts of a system with flash that stand.
fn flash_standing(models: &Models, size: &Size) -> Parts {
    let dram = &models.cache;
    let ranks = dram.ranks_for(Bytes(size.bytes / FLASH_OVER_DRAM));
    let (background, refresh) = standing(dram, ranks, ranks, Background::Active);
    // Its page table takes whole devices, of which a rank has some.
    let devices = dram.bus_width / dram.device_width;
    let table = (size.bytes / PAGE * TABLE_BYTES).div_ceil(dram.rank_capacity().0 / devices);
    let share = table as f64 / devices as f64;
    let (one, its) = standing(dram, 1, 1, Background::Active);
    let standby = models.nand.standby_power().0 * models.packages as f64;
    [background + one * share, refresh + its * share, 0.0, 0.0, 0.0, standby, 0.0]
}

/// Nanojoules that the requests of a run took, of its figures.
fn dynamic<F>(figure: F, dram: &Dram, system: System) -> Result<Parts, ReproError>
where
    F: Fn(&str) -> Result<f64, ReproError>,
{
    let [reads, writes, rows] =
        [figure("dram.read_bursts")?, figure("dram.write_bursts")?, figure("dram.activations")?];
    let bursts = reads * dram.burst_energy(false).0 + writes * dram.burst_energy(true).0;
    let mut parts: Parts = [0.0, 0.0, rows * dram.row_energy().0, bursts, 0.0, 0.0, 0.0];
    let mut moved = (reads + writes) * dram.burst_bytes().0 as f64;
    if system != System::Dram {
        for part in ["read", "program", "erase"] {
            parts[4] += figure(&format!("energy.flash {part}.dynamic_nj"))? * 1e3;
        }
        let pages = figure("flash.reads")? + figure("flash.programs")?;
        moved += pages * figure("flash.page_bytes")?;
    }
    match system {
        // Entries of the page table: a row and a burst each.
        System::Nvmm => {
            let lookups = figure("flash.by_cause.mapping_misses")?;
            parts[2] += lookups * dram.row_energy().0;
            parts[3] += lookups * dram.burst_energy(false).0;
        }
        System::SsdPaging => parts[6] += figure("energy.link.dynamic_nj")? * 1e3,
        _ => {}
    }
    parts[6] += moved * 8.0 * PagingOptions::default().link_pj_per_bit;
    Ok(parts.map(|picojoules| picojoules / 1e3))
}

fn sum(parts: &Parts) -> f64 {
    parts.iter().sum()
}

/// Background and refresh.
fn idle(parts: &Parts) -> f64 {
    parts[0] + parts[1]
}

fn config(system: System, preset: &str, technology: &Technology, base: &Base) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    config.preset = preset.into();
    config.memory = "nvmm-host".into();
    config.software = technology.software.into();
    match system {
        System::Nvmm => {
            config.overrides.clone_from(&base.flash);
            config.nvmm = base.nvmm.clone();
            config.nvmm.cache = Bytes(base.dram);
        }
        System::SsdPaging => {
            config.overrides.clone_from(&base.drive);
            config.paging = base.paging.clone();
            config.paging.memory = Bytes(base.dram);
        }
        _ => {}
    }
    config
}

/// The requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Nanoseconds from one to the next where all systems have the same rate.
    pub(super) interval_ns: u64,
    /// Share of reads.
    pub(super) read: f64,
    /// Of the popularity of blocks (Zipf).
    pub(super) theta: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self { interval_ns: INTERVAL_NS, read: 0.7, theta: 0.99 }
    }
}

/// The runs: each system at the common rate, and at its own pace.
fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &Base,
    load: Load,
    (sizes, flash): (&[Size], &[Flash]),
) -> Result<Vec<Run>, ReproError> {
    let dram = |size: &Size| {
        (format!("dram.{}", size.name), config(System::Dram, size.dram, &Technology::SLC, base))
    };
    let flash = flash.iter().map(|(name, _, system, technology)| {
        let preset = if *system == System::Nvmm { technology.nvmm } else { technology.drive };
        ((*name).to_owned(), config(*system, preset, technology, base))
    });
    let (warm_up, measured) = settings.pick((150_000, 100_000), (20_000, 20_000));
    let spec = format!(
        "zipf:theta={},span={},size={REQUEST},read={},count={},arrival=fixed,interval={}ns",
        load.theta,
        base.data,
        load.read,
        warm_up + measured,
        load.interval_ns,
    );
    let mut runs = Vec::new();
    for (name, config) in sizes.iter().map(dram).chain(flash) {
        for (pace, closed) in [("rate", false), ("own", true)] {
            let host = HostOptions { warm_up, closed, threads: THREADS, ..HostOptions::default() };
            let options = RunOptions { seed: settings.seed, host, ..RunOptions::default() };
            let name = format!("{name}.{pace}");
            runs.push(simulate::workload(&name, registry, config.clone(), &spec, options)?);
        }
    }
    Ok(runs)
}

/// What the sensitivity study runs again: 8 GB, all-DRAM and NVMM with SLC.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &Base,
    load: Load,
) -> Result<Vec<Run>, ReproError> {
    runs(settings, registry, base, load, (&SIZES[..1], &FLASH[..1]))
}

/// The figures of 8 GB that claims are about.
pub(super) fn study_figures(
    finished: &Finished<'_>,
    models: &Models,
    base: &Base,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let (size, dram) = (&SIZES[0], &models.dram[0]);
    let resting = dram_standing(dram, base, Background::SelfRefresh);
    let all = measure(finished, "dram.8gb", ("dram", "all-DRAM"), (dram, System::Dram), resting)?;
    let (name, label, system, _) = FLASH[0];
    let standing = flash_standing(models, size);
    let nvmm = measure(finished, name, (name, label), (&models.cache, system), standing)?;
    let figures = &mut outcome.figures;
    figures.set("nvmm_over_dram.8gb.power", sum(&nvmm.watts) / sum(&all.watts));
    figures.set("nvmm_over_dram.8gb.energy", nvmm.joules / all.joules);
    figures.set("dram.8gb.background_percent", share(&all.watts));
    Ok(())
}

/// A system of a size: what its requests take at the common rate and at its own pace, and what stands.
struct Measured {
    name: &'static str,
    label: &'static str,
    /// Watts at the common rate.
    watts: Parts,
    /// Watts that stand.
    standing: f64,
    /// Joules of the measured requests.
    joules: f64,
    /// The same at its own pace.
    own_joules: f64,
    /// Bytes a second that came, of those that were sent.
    kept_up: f64,
}

fn measure(
    finished: &Finished<'_>,
    run: &str,
    (name, label): (&'static str, &'static str),
    (dram, system): (&Dram, System),
    standing: Parts,
) -> Result<Measured, ReproError> {
    let at = |pace: &str| {
        let run = format!("{run}.{pace}");
        let seconds = finished.figure(&run, "simulated_time_ns")? * 1e-9;
        let parts =
            dynamic(|name| finished.figure(&run, name), dram, system)?.map(|nanojoules| nanojoules * 1e-9);
        Ok::<_, ReproError>((seconds, parts))
    };
    let ((seconds, joules), (own_seconds, own)) = (at("rate")?, at("own")?);
    let watts = std::array::from_fn(|part| joules[part] / seconds + standing[part]);
    let came = finished.figure(&format!("{run}.rate"), "throughput_requests_per_s")?;
    Ok(Measured {
        name,
        label,
        watts,
        standing: sum(&standing),
        joules: sum(&watts) * seconds,
        own_joules: sum(&own) + sum(&standing) * own_seconds,
        kept_up: came * INTERVAL_NS as f64 * 1e-9,
    })
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let base = Base::default();
    let models = models(registry, &base)?;
    let about = format!(
        "Requests of 4 KiB, 70 % of them reads, Zipf 0.99 over 256 MiB behind 64 MiB of DRAM, come at 6.4 GB/s to \
         every system: the bandwidth is held constant (a system that cannot follow is later; the table has what it \
         kept up). The paper names neither workload nor rate; these are \
         assumed, the rate as what 16 flash channels carry. Dynamic energy is simulated at that scale; what \
         stands is computed for the true sizes: ranks with data (an eighth of all-DRAM) have a row open, the \
         others refresh themselves; 8 GB and 1 TB of flash have 256 MB and 32 GB of DRAM, in whole ranks, and \
         equally many dies. Lines and pages that cross a bus take {} pJ a bit everywhere, the figure of a PCI \
         Express transmitter, assumed for the others. Controllers and processors are not in it. Claims are \
         judged with SLC.",
        base.paging.link_pj_per_bit
    );
    Ok(Experiment::new(
        "power",
        "Power and energy of 8 GB and 1 TB",
        about,
        runs(settings, registry, &base, Load::default(), (&SIZES, &FLASH))?,
        move |finished| evaluate(finished, &models, &base),
    ))
}

fn evaluate(finished: &Finished<'_>, models: &Models, base: &Base) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (size, dram) in SIZES.iter().zip(&models.dram) {
        let run = format!("dram.{}", size.name);
        let with = |rest| {
            let standing = dram_standing(dram, base, rest);
            measure(finished, &run, ("dram", "all-DRAM"), (dram, System::Dram), standing)
        };
        let mut systems = vec![with(Background::SelfRefresh)?];
        for (name, label, system, _) in FLASH {
            let standing = flash_standing(models, size);
            systems.push(measure(finished, name, (name, label), (&models.cache, system), standing)?);
        }
        let all = &systems[0];
        let figures = &mut outcome.figures;
        for system in &systems {
            let (name, of) = (system.name, size.name);
            figures.set(format!("{name}.{of}.power_w"), sum(&system.watts));
            figures.set(format!("{name}.{of}.background_percent"), share(&system.watts));
            figures.set(format!("{name}.{of}.kept_up"), system.kept_up);
            if name != all.name {
                let over = |what: &str| format!("{name}_over_dram.{of}.{what}");
                figures.set(over("power"), sum(&system.watts) / sum(&all.watts));
                figures.set(over("energy"), system.joules / all.joules);
                figures.set(over("energy_own_pace"), system.own_joules / all.own_joules);
            }
            rows.push(row(size, system));
        }
        for (what, rest) in [("power_down", Background::PowerDown), ("all_awake", Background::Standby)] {
            figures.set(format!("dram.{}.power_{what}_w", size.name), sum(&with(rest)?.watts));
        }
        outcome.charts.push(stack(size, &systems));
        if let Some(nvmm) = systems.get(1) {
            for system in [all, nvmm] {
                lines.push(Series::new(&format!("{}, {}", system.label, size.label), over_rates(system)));
            }
            if let Some(at) = half_background(all) {
                figures.set(format!("dram.{}.half_background_gb_s", size.name), at);
            }
        }
    }
    outcome.charts.push(Chart {
        title: "Power over the bandwidth".into(),
        about: "What stands, and what each byte takes at the measured mix, times the bandwidth.".into(),
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
    headings.extend(["all, W", "rate kept, %", "energy, mJ", "at its own pace, mJ"].map(String::from));
    outcome.tables.push(Table {
        title: "Power by component, and energy of the requests".into(),
        headings,
        rows,
    });
    Ok(outcome)
}

/// Background and refresh of all power, in per cent.
fn share(watts: &Parts) -> f64 {
    idle(watts) / sum(watts) * 100.0
}

fn row(size: &Size, system: &Measured) -> Vec<String> {
    let mut row = vec![format!("{}, {}", system.label, size.label)];
    row.extend(system.watts.iter().map(|watts| format!("{watts:.3}")));
    row.push(format!("{:.3}", sum(&system.watts)));
    row.push(format!("{:.1}", system.kept_up * 100.0));
    row.extend([system.joules, system.own_joules].map(|joules| format!("{:.1}", joules * 1e3)));
    row
}

fn stack(size: &Size, systems: &[Measured]) -> Chart {
    let of = |part: usize| systems.iter().map(|system| system.watts[part]).collect();
    Chart {
        title: format!("Power of {}", size.label),
        about: "Mean power of the memory system by component, at one bandwidth for all.".into(),
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

/// Power over bandwidths around the common one: what stands, and the rest in proportion.
fn over_rates(system: &Measured) -> Vec<(f64, f64)> {
    let moving = sum(&system.watts) - system.standing;
    [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
        .iter()
        .map(|&at| (at, system.standing + moving * at / rate()))
        .collect()
}

/// The bandwidth in GB/s at which half of the power is background and refresh.
fn half_background(system: &Measured) -> Option<f64> {
    let moving = sum(&system.watts) - system.standing;
    (moving > 0.0).then(|| idle(&system.watts) * rate() / moving)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> (Models, Base) {
        let base = Base::default();
        (models(&Registry::builtin().unwrap(), &base).unwrap(), base)
    }

    #[test]
    fn what_stands_of_dram_is_its_ranks_times_their_currents() {
        let (models, base) = all();
        let dram = &models.dram[1];
        assert_eq!((dram.total_ranks(), dram.total_capacity().0), (256, 1 << 40));
        // 1/8 of them are in use.
        let used = 32.0;
        let rank = |amperes: f64| dram.supply.0 * amperes * 8.0;
        let refresh = |ranks: u64| dram.refresh_power(ranks).0;
        for (rest, watts, its) in [
            (Background::SelfRefresh, rank(dram.idd6.0), refresh(32)),
            (Background::PowerDown, rank(dram.idd2p.0), refresh(256)),
            (Background::Standby, rank(dram.idd2n.0), refresh(256)),
        ] {
            let parts = dram_standing(dram, &base, rest);
            let background = used * rank(dram.idd3n.0) + (256.0 - used) * watts;
            assert!((parts[0] / background - 1.0).abs() < 1e-12, "{rest:?}: {} {background}", parts[0]);
            assert!((parts[1] / its - 1.0).abs() < 1e-12, "{rest:?}: {} {its}", parts[1]);
        }
        // Of two ranks on two channels none is left to sleep.
        let small = &models.dram[0];
        assert_eq!(small.total_capacity().0, 8 << 30);
        let one = |rest| sum(&dram_standing(small, &base, rest));
        assert_eq!(one(Background::SelfRefresh), one(Background::Standby));
    }

    #[test]
    fn what_stands_of_flash_is_its_cache_its_page_table_and_its_dies() {
        let (models, _) = all();
        let rank = models.cache.background_power(Background::Active, 1).0;
        let standby = 256.0 * 3.3 * 0.08e-3;
        // 256 MB take a rank, 32 GB eight; the page tables one device of 512 MiB, and two.
        for (size, ranks) in SIZES.iter().zip([1.0 + 1.0 / 8.0, 8.0 + 2.0 / 8.0]) {
            let expected = ranks * rank + standby;
            let found = sum(&flash_standing(&models, size));
            assert!((found / expected - 1.0).abs() < 1e-12, "{}: {found} {expected}", size.label);
        }
    }

    #[test]
    fn half_of_the_power_stands_at_the_bandwidth_that_is_said_to() {
        let watts = [3.0, 1.0, 0.5, 0.25, 0.0, 0.0, 0.25];
        let system = Measured {
            name: "",
            label: "",
            watts,
            standing: 4.0,
            joules: 1.0,
            own_joules: 1.0,
            kept_up: 1.0,
        };
        let at = half_background(&system).unwrap();
        assert!((at - 4.0 * rate()).abs() < 1e-12);
        let points = over_rates(&system);
        assert!((points[6].1 - 5.0).abs() < 1e-12 && points[6].0 == 6.4, "{points:?}");
        assert!((share(&watts) - 80.0).abs() < 1e-12);
    }

    #[test]
    fn the_parts_are_what_the_simulator_has_and_dram_keeps_up() {
        let registry = Arc::new(Registry::builtin().unwrap());
        let settings = Settings { quick: true, seed: 1 };
        let (models, base) = all();
        for run in runs(&settings, &registry, &base, Load::default(), (&SIZES, &FLASH)).unwrap() {
            let name = run.name.clone();
            let figures = run.execute().unwrap();
            let of = |what: &str| figures.0[what];
            let system = match FLASH.iter().find(|(system, ..)| name.starts_with(&format!("{system}."))) {
                Some((_, _, system, _)) => *system,
                None => System::Dram,
            };
            let size = usize::from(name.starts_with("dram.1tb"));
            let dram = if system == System::Dram { &models.dram[size] } else { &models.cache };
            let parts = dynamic(|what| Ok(of(what)), dram, system).unwrap();
            let said = |link: bool| -> f64 {
                let dynamic = figures.0.iter().filter(|(what, _)| {
                    what.starts_with("energy.")
                        && what.ends_with(".dynamic_nj")
                        && what.contains("link") == link
                });
                dynamic.map(|(_, value)| value).sum()
            };
            let near = (sum(&parts) - parts[6] - said(false)).abs() < 1e-9 * said(false);
            assert!(near && said(false) > 0.0, "{name}: {parts:?}, not {}", said(false));
            assert!(parts[6] > said(true) && (said(true) > 0.0) == (system == System::SsdPaging), "{name}");
            let kept_up = of("throughput_requests_per_s") * INTERVAL_NS as f64 * 1e-9;
            if name.ends_with(".rate") {
                // Before the first that is measured, many may have waited for a system that lags.
                let least = if system == System::Dram { 0.99 } else { 0.1 };
                assert!(kept_up > least && kept_up < 1.02, "{name}: {kept_up}");
            } else if system == System::Dram {
                assert!(kept_up > 1.0, "{name} is no faster on its own: {kept_up}");
            }
        }
    }
}
