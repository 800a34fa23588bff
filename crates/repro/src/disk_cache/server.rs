//! Power and bandwidth of a server with and without flash (Figure 8), and its throughput over the strength of the code
//! (Figure 9).

use std::sync::Arc;

use deepram_media::{Picos, Registry};
use deepram_sim::host::HostOptions;
use deepram_sim::{RunOptions, System, SystemConfig};

use super::SERVER;
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::simulate;
use crate::simulation_run::SimulationRun;

/// Name and title of the workloads.
const WORKLOADS: [(&str, &str); 2] = [("oltp", "database (dbt2)"), ("web", "web server (SPECWeb99)")];
/// Data of the workloads, MiB: those of the ISCA 2008 study as recalled, 2 GB of database and 1.8 GB of files.
const DATA: [u64; 2] = [2048, 1800];
/// Requests that fill the flash, and measured ones.
const REQUESTS: (u64, u64) = (300_000, 100_000);
/// Servers: preset, DRAM and flash in MiB. The second is the one that claims compare with.
const SERVERS: [(&str, u64, u64); 3] = [(SERVER, 256, 1024), ("dram-512m", 512, 0), ("dram-1g", 1024, 0)];
/// Strengths of Figure 9.
const STRENGTHS: [u32; 9] = [1, 4, 8, 12, 15, 20, 30, 40, 50];

/// What a study of servers in time runs.
#[derive(Debug, Clone)]
pub(super) struct PowerStudy {
    /// Settings of all servers.
    pub(super) set: Vec<String>,
    /// Clients in a closed loop.
    pub(super) clients: u32,
    /// Time between an answer and the client's next request, picoseconds.
    pub(super) think_ps: u64,
    /// Exponent and share of reads of the database.
    pub(super) database: (String, String),
    /// Exponent of the web server.
    pub(super) web: String,
    /// Preset of the server without flash that claims compare with.
    pub(super) without: String,
    /// Whether all three servers are run, or only two.
    all: bool,
    /// DRAM, flash, data and requests are divided by it.
    shortened: u64,
    /// Requests that fill the flash, and measured ones.
    requests: (u64, u64),
}

impl PowerStudy {
    /// The study of the report.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            set: Vec::new(),
            clients: 16,
            think_ps: 0,
            database: ("0.9".into(), "0.7".into()),
            web: "1.1".into(),
            without: SERVERS[1].0.into(),
            all: true,
            shortened: 1,
            requests: settings.pick(REQUESTS, (2_000, 2_000)),
        }
    }

    /// A study of two servers with less of everything but time.
    pub(super) fn shorten(&mut self, settings: &Settings) {
        (self.all, self.shortened) = (false, 16);
        self.requests = settings.pick((REQUESTS.0 / 16, REQUESTS.1 / 16), (200, 200));
    }

    fn workload(&self, name: &str) -> String {
        let [database, files] = DATA.map(|data| data / self.shortened);
        if name == "oltp" {
            let (theta, read) = &self.database;
            format!("zipf:theta={theta},span={database}MiB,read={read},size=8KiB")
        } else {
            format!("zipf:theta={},span={files}MiB,read=0.98,size=16KiB", self.web)
        }
    }

    fn run(
        &self,
        settings: &Settings,
        registry: &Arc<Registry>,
        name: &str,
        (preset, own): (&str, &[String]),
        workload: &str,
    ) -> Result<SimulationRun, ReproError> {
        let (warm_up, measured) = self.requests;
        let overrides = self.set.iter().chain(own).cloned().collect();
        let config =
            SystemConfig { preset: preset.into(), overrides, ..SystemConfig::new(System::DiskCache) };
        let think = Picos(self.think_ps);
        let host = HostOptions { threads: self.clients, warm_up, think, ..HostOptions::default() };
        let workload = self.workload(workload);
        let spec = format!("{workload},count={}", warm_up + measured);
        let options = RunOptions { seed: settings.seed, workload, host };
        simulate::workload(name, registry, config, &spec, options)
    }

    fn servers(&self) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
        let runs = move |preset: &str| self.all || preset == SERVER || preset == self.without;
        SERVERS.into_iter().filter(move |(preset, ..)| runs(preset))
    }

    /// The runs of all servers and workloads.
    pub(super) fn runs(
        &self,
        settings: &Settings,
        registry: &Arc<Registry>,
    ) -> Result<Vec<SimulationRun>, ReproError> {
        let mut runs = Vec::new();
        for (name, _) in WORKLOADS {
            for (preset, dram, flash) in self.servers() {
                let mut own = Vec::new();
                if self.shortened > 1 {
                    own.push(format!("dram_cache={}MiB", dram / self.shortened));
                    own.push(format!("flash={}MiB", flash / self.shortened));
                }
                let role = if preset == SERVER || self.all { preset } else { "without" };
                runs.push(self.run(settings, registry, &format!("{name}.{role}"), (preset, &own), name)?);
            }
        }
        Ok(runs)
    }
}

/// The metrics that claims use: gain of throughput and saving of power by workload.
pub(super) fn metrics(
    study: &PowerStudy,
    finished: &FinishedRuns<'_>,
    outcome: &mut Outcome,
) -> Result<(), ReproError> {
    let without = if study.all { study.without.as_str() } else { "without" };
    for (name, _) in WORKLOADS {
        let of = |preset: &str, what: &str| {
            finished.metric(&format!("{name}.{preset}"), &format!("counters.{what}"))
        };
        let watts = |preset: &str| {
            Ok::<_, ReproError>(of(preset, "memory_power_w")? + of(preset, "disk_access_power_w")?)
        };
        let gain = of(SERVER, "network_bytes_per_s")? / of(without, "network_bytes_per_s")?;
        let power = watts(SERVER)? / watts(without)?;
        outcome.metrics.set(format!("{name}.throughput_gain_percent"), 100.0 * (gain - 1.0));
        outcome.metrics.set(format!("{name}.power_saving_percent"), 100.0 * (1.0 - power));
    }
    Ok(())
}

/// Builds the experiment of Figure 8.
pub(super) fn power(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let study = PowerStudy::new(settings);
    let runs = study.runs(settings, registry)?;
    let about = "Sixteen clients in a closed loop, after 300,000 requests of warm-up. Memory is DRAM and flash. The disk counts \
                 by its accesses alone, and with its idle power beside that.";
    Ok(Experiment::new(
        "power",
        "Power and bandwidth with and without flash (Figure 8)",
        about,
        runs,
        move |finished| {
            let mut outcome = Outcome::default();
            metrics(&study, finished, &mut outcome)?;
            let mut rows = Vec::new();
            for (name, title) in WORKLOADS {
                for (preset, ..) in study.servers() {
                    let of = |what: &str| {
                        finished.metric(&format!("{name}.{preset}"), &format!("counters.{what}"))
                    };
                    rows.push(vec![
                        title.into(),
                        preset.into(),
                        plain(of("network_bytes_per_s")? / 1e6),
                        plain(of("memory_power_w")?),
                        plain(of("disk_access_power_w")?),
                        plain(of("disk_power_w")?),
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
    let study = PowerStudy::new(settings);
    let mut runs = Vec::new();
    for (name, _) in WORKLOADS {
        for strength in STRENGTHS {
            let set = [
                "controller=fixed".to_owned(),
                format!("strength={strength}"),
                "check_spare=false".into(),
                "errors.base=none".into(),
            ];
            runs.push(study.run(settings, registry, &format!("{name}.{strength}"), (SERVER, &set), name)?);
        }
    }
    let about = "All pages have the same code, in multi-level cells, and no bit fails. The decoding time is affine in the \
                 strength (26.9 µs + 31.1 µs a bit). The check bits need not fit into the spare bytes.";
    Ok(Experiment::new("strength", "Throughput over code strength (Figure 9)", about, runs, |finished| {
        let mut outcome = Outcome::default();
        let mut series = Vec::new();
        for (name, title) in WORKLOADS {
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
