//! One replay of a trace on a drive behind a write buffer.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, run};
use deepram_trace::Request;
use serde_json::json;

use super::sources::{Requests, Source, failed, trace_error};
use crate::error::ReproError;
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const PROCEDURE: &str = "ssd buffer replay";

/// The buffer of DRAM alone, with which all others are compared.
pub(super) const BASELINE: &str = "42";
/// The buffers of DRAM and PCM, by MB of each; the order of Table V.
pub(super) const HYBRIDS: [&str; 6] = ["12-72", "6-36", "4-80", "3-18", "2-40", "1-20"];

/// How a hybrid buffer is organised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Flat, victims of DRAM to the SSD.
    Ts,
    /// Flat, victims of DRAM to PCM.
    Tp,
    /// Two levels.
    TwoLevel,
}

impl Scheme {
    pub(super) const ALL: [Self; 3] = [Self::Ts, Self::Tp, Self::TwoLevel];
    /// The paper's own.
    pub(super) const FLAT: [Self; 2] = [Self::Ts, Self::Tp];

    /// The word of the preset's key `scheme`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ts => "ts",
            Self::Tp => "tp",
            Self::TwoLevel => "2l",
        }
    }

    /// The name for readers.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Ts => "TS",
            Self::Tp => "TP",
            Self::TwoLevel => "2L",
        }
    }
}

/// Writes that a cell of PCM withstands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endurance {
    /// 10^7.
    Low,
    /// 10^8.
    High,
}

impl Endurance {
    pub(super) const ALL: [Self; 2] = [Self::Low, Self::High];

    pub(super) fn writes(self) -> u64 {
        match self {
            Self::Low => 10_000_000,
            Self::High => 100_000_000,
        }
    }

    /// The name in names of metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Low => "1e7",
            Self::High => "1e8",
        }
    }
}

/// A hybrid buffer's policy, with what it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) scheme: Scheme,
    /// Two levels have no wear control: only their lifetime depends on it.
    pub(super) endurance: Endurance,
}

/// Arrival times of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Arrivals {
    /// Those of the source.
    #[default]
    Source,
    /// At equal distances, at the source's mean rate.
    Even,
}

/// Settings that all replays share unless the sensitivity study changes them.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    /// Requests of each trace; `None` for all.
    pub(super) most: Option<u64>,
    pub(super) arrivals: Arrivals,
    /// Replays the trace twice and measures the second time.
    pub(super) warm: bool,
    /// Overrides of all buffers and of their drive, `key=value`.
    pub(super) all: Vec<String>,
    /// Overrides of the flat buffers.
    pub(super) flat: Vec<String>,
    /// Overrides of the two-level buffers.
    pub(super) levels: Vec<String>,
    pub(super) seed: u64,
}

/// A replay.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    /// Name, unique in its experiment.
    pub(super) name: String,
    pub(super) source: Source,
    /// Name of the buffer, such as `4-80`.
    pub(super) buffer: &'static str,
    /// Overrides of the preset, `key=value`.
    pub(super) overrides: Vec<String>,
    pub(super) most: Option<u64>,
    pub(super) arrivals: Arrivals,
    pub(super) warm: bool,
    pub(super) seed: u64,
}

impl Replay {
    /// A replay on the baseline, or on a hybrid buffer under a policy.
    pub(super) fn new(
        source: &Source,
        buffer: &'static str,
        policy: Option<Policy>,
        conditions: &Conditions,
    ) -> Self {
        let mut overrides = conditions.all.clone();
        if let Some(Policy { scheme, endurance }) = policy {
            overrides.push(format!("scheme={}", scheme.word()));
            overrides.push(format!("pcm.endurance={}", endurance.writes()));
            let own = if scheme == Scheme::TwoLevel { &conditions.levels } else { &conditions.flat };
            overrides.extend(own.iter().cloned());
        }
        Self {
            name: name(source, buffer, policy),
            source: source.clone(),
            buffer,
            overrides,
            most: conditions.most,
            arrivals: conditions.arrivals,
            warm: conditions.warm,
            seed: conditions.seed,
        }
    }

    fn config(&self) -> SystemConfig {
        SystemConfig {
            preset: format!("hybrid-{}", self.buffer),
            overrides: self.overrides.clone(),
            ..SystemConfig::new(System::SsdBuffer)
        }
    }

    /// The run; [`summary`] has its metrics.
    ///
    /// # Errors
    /// The preset or an override cannot be resolved.
    pub(super) fn run(&self, registry: &Arc<Registry>) -> Result<SimulationRun, ReproError> {
        let config = self.config();
        let presets = config
            .digests(registry)
            .map_err(|source| ReproError::Config { what: self.name.clone(), source: Box::new(source) })?;
        let identity = json!({
            "buffer": config.preset, "overrides": config.overrides, "presets": presets,
            "source": self.source.identity(), "most": self.most, "arrivals": format!("{:?}", self.arrivals),
            "warm": self.warm, "seed": self.seed,
        });
        let (replay, registry) = (self.clone(), Arc::clone(registry));
        Ok(SimulationRun::new(self.name.clone(), PROCEDURE, identity, move || {
            let mut options =
                RunOptions { seed: replay.seed, workload: replay.source.title(), ..RunOptions::default() };
            let requests = replay.requests(&mut options.host.warm_up).map_err(failed(&replay.name))?;
            let result =
                run(&registry, &replay.config(), requests, &options).map_err(failed(&replay.name))?;
            summary(&result).ok_or_else(|| ReproError::Run {
                run: replay.name.clone(),
                why: "no request was measured".into(),
            })
        }))
    }

    /// The requests as they arrive, and how many of them are not measured.
    fn requests(&self, warm_up: &mut u64) -> Result<Requests, SimError> {
        let open = || self.source.requests(self.seed, self.most);
        if self.arrivals == Arrivals::Source && !self.warm {
            return open();
        }
        let (mut count, mut end) = (0u64, 0u64);
        for request in open()? {
            count += 1;
            end = end.max(request?.time_ps.unwrap_or(0));
        }
        if count < 2 {
            return Err(trace_error(&"fewer than two requests"));
        }
        let even = self.arrivals == Arrivals::Even;
        let gap = end / (count - 1);
        let pass = move |requests: Requests, start: u64| {
            requests.zip(0u64..).map(move |(request, number)| {
                request.map(|request| {
                    let time = if even { number * gap } else { request.time_ps.unwrap_or(0) };
                    Request { time_ps: Some(start + time), ..request }
                })
            })
        };
        let first = pass(open()?, 0);
        if !self.warm {
            return Ok(Box::new(first));
        }
        *warm_up = count;
        Ok(Box::new(first.chain(pass(open()?, end + gap))))
    }
}

/// Name of a replay.
pub(super) fn name(source: &Source, buffer: &str, policy: Option<Policy>) -> String {
    let label = source.label();
    match policy {
        None => format!("{label}.{buffer}"),
        Some(Policy { scheme: Scheme::TwoLevel, .. }) => format!("{label}.{buffer}.2l"),
        Some(Policy { scheme, endurance }) => {
            format!("{label}.{buffer}.{}.{}", scheme.word(), endurance.word())
        }
    }
}

/// The metrics of a replay; `None` without measured requests.
fn summary(result: &RunResult) -> Option<Metrics> {
    let mut metrics = Metrics::new();
    if result.requests == 0 || result.simulated_time_ns <= 0.0 {
        return None;
    }
    metrics.set("requests", result.requests as f64);
    metrics.set("seconds", result.simulated_time_ns * 1e-9);
    metrics.set("response.mean_us", result.latency.mean_ns / 1e3);
    metrics.set("response.p99_us", result.latency.p99_ns / 1e3);
    metrics.set("response.read_us", result.host.read.mean_ns / 1e3);
    metrics.set("response.write_us", result.host.write.mean_ns / 1e3);
    for part in result.energy.iter().filter(|part| part.component.starts_with("buffer ")) {
        let name = part.component.replace(' ', ".");
        metrics.set(format!("{name}.dynamic_mj"), part.dynamic_nj / 1e6);
        metrics.set(format!("{name}.static_mj"), part.static_nj / 1e6);
    }
    for hits in &result.hit_ratios {
        metrics.set(format!("hit_ratio.{}", hits.level.replace(' ', ".")), hits.ratio);
    }
    if let Some(flash) = &result.flash {
        metrics.set("flash.programs", flash.programs as f64);
        metrics.set("flash.erases", flash.erases as f64);
        metrics.set("flash.write_amplification", flash.write_amplification);
    }
    let count = |name: &str| result.counters.get(name).and_then(serde_json::Value::as_f64);
    for name in [
        "page_writes",
        "page_reads",
        "bypasses",
        "promotions",
        "demotions",
        "destages_dram",
        "destages_pcm",
        "waits_for_queue",
        "pcm_page_writes",
        "periods",
        "periods_closed",
        "hotness_sum",
        "coolness_sum",
    ] {
        metrics.set(name, count(name)?);
    }
    let at_risk = result.counters.get("at_risk")?;
    for name in ["max_bytes", "mean_bytes"] {
        metrics.set(format!("at_risk.{name}"), at_risk.get(name)?.as_f64()?);
    }
    Some(metrics)
}
