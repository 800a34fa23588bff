//! Power and bandwidth of a server with and without flash (Figure 8), and its throughput over the strength of the code
//! (Figure 9).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::host::HostOptions;
use deepram_sim::{RunOptions, System, SystemConfig};

use super::SERVER;
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::number::plain;
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// Name, title and workload. Sizes are those of the ISCA 2008 study as recalled: 2 GB of database, 1.8 GB of files.
const WORKLOADS: [(&str, &str, &str); 2] = [
    ("oltp", "database (dbt2)", "zipf:theta=0.9,span=2GiB,read=0.7,size=8KiB"),
    ("web", "web server (SPECWeb99)", "zipf:theta=1.1,span=1800MiB,read=0.98,size=16KiB"),
];
const CLIENTS: u32 = 16;
/// Requests that fill the flash, and measured ones.
const REQUESTS: (u64, u64) = (300_000, 100_000);
const WITHOUT: &str = "dram-512m";
/// Strengths of Figure 9.
const STRENGTHS: [u32; 9] = [1, 4, 8, 12, 15, 20, 30, 40, 50];

fn run(
    settings: &Settings,
    registry: &Arc<Registry>,
    name: &str,
    (preset, set): (&str, Vec<String>),
    workload: &str,
) -> Result<SimulationRun, ReproError> {
    let (warm_up, measured) = settings.pick(REQUESTS, (2_000, 2_000));
    let config =
        SystemConfig { preset: preset.into(), overrides: set, ..SystemConfig::new(System::DiskCache) };
    let host = HostOptions { threads: CLIENTS, warm_up, ..HostOptions::default() };
    let options = RunOptions { seed: settings.seed, workload: workload.into(), host };
    let spec = format!("{workload},count={}", warm_up + measured);
    simulate::workload(name, registry, config, &spec, options)
}

/// Builds the experiment of Figure 8.
pub(super) fn power(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    for (name, _, workload) in WORKLOADS {
        for preset in [SERVER, WITHOUT, "dram-1g"] {
            runs.push(run(settings, registry, &format!("{name}.{preset}"), (preset, Vec::new()), workload)?);
        }
    }
    let about = "Sixteen clients in a closed loop, after 300,000 requests of warm-up. Memory is DRAM and flash. The disk counts \
                 by its accesses alone, and with its idle power beside that.";
    Ok(Experiment::new(
        "power",
        "Power and bandwidth with and without flash (Figure 8)",
        about,
        runs,
        |finished| {
            let mut outcome = Outcome::default();
            let mut rows = Vec::new();
            for (name, title, _) in WORKLOADS {
                let of = |preset: &str, what: &str| {
                    finished.metric(&format!("{name}.{preset}"), &format!("counters.{what}"))
                };
                let watts = |preset: &str| {
                    Ok::<_, ReproError>(of(preset, "memory_power_w")? + of(preset, "disk_access_power_w")?)
                };
                let with = (of(SERVER, "network_bytes_per_s")?, watts(SERVER)?);
                let without = (of(WITHOUT, "network_bytes_per_s")?, watts(WITHOUT)?);
                outcome
                    .metrics
                    .set(format!("{name}.throughput_gain_percent"), 100.0 * (with.0 / without.0 - 1.0));
                outcome
                    .metrics
                    .set(format!("{name}.power_saving_percent"), 100.0 * (1.0 - with.1 / without.1));
                for preset in [SERVER, WITHOUT, "dram-1g"] {
                    rows.push(vec![
                        title.into(),
                        preset.into(),
                        plain(of(preset, "network_bytes_per_s")? / 1e6),
                        plain(of(preset, "memory_power_w")?),
                        plain(of(preset, "disk_access_power_w")?),
                        plain(of(preset, "disk_power_w")?),
                    ]);
                }
            }
            outcome.tables.push(Table {
                title: "Power and network bandwidth".into(),
                headings: [
                    "workload",
                    "server",
                    "MB/s",
                    "memory, W",
                    "disk accesses, W",
                    "disk with idle time, W",
                ]
                .map(String::from)
                .into(),
                rows,
            });
            Ok(outcome)
        },
    ))
}

/// Builds the experiment of Figure 9.
pub(super) fn strength(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let mut runs = Vec::new();
    for (name, _, workload) in WORKLOADS {
        for strength in STRENGTHS {
            let set = [
                "controller=fixed".to_owned(),
                format!("strength={strength}"),
                "check_spare=false".into(),
                "errors.base=none".into(),
            ];
            runs.push(run(
                settings,
                registry,
                &format!("{name}.{strength}"),
                (SERVER, set.into()),
                workload,
            )?);
        }
    }
    let about = "All pages have the same code, in multi-level cells, and no bit fails. The decoding time is affine in the \
                 strength (26.9 µs + 31.1 µs a bit). The check bits need not fit into the spare bytes.";
    Ok(Experiment::new("strength", "Throughput over code strength (Figure 9)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        let mut series = Vec::new();
        for (name, title, _) in WORKLOADS {
            let of = |strength: u32| {
                finished.metric(&format!("{name}.{strength}"), "counters.network_bytes_per_s")
            };
            let first = of(STRENGTHS[0])?;
            let mut points = Vec::new();
            for strength in STRENGTHS {
                let relative = of(strength)? / first;
                outcome.metrics.set(format!("{name}.at.{strength}"), relative);
                points.push((f64::from(strength), relative));
            }
            series.push(Series::new(title, points));
        }
        outcome.charts.push(Chart {
            title: "Network bandwidth over the strength of the code".into(),
            about: "Relative to a code of one bit.".into(),
            drawing: Drawing::Lines {
                x: Axis::linear("code strength", "bits"),
                y: Axis::linear("relative bandwidth", ""),
                series,
                area: false,
            },
            references: Vec::new(),
        });
        Ok(outcome)
    }))
}
