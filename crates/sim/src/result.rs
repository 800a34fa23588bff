//! The result of a simulation: one JSON object, a table for people, and the time series as CSV.
//!
//! Keys carry their units. Floating-point numbers are summed in program order, so the same run gives the
//! same bytes.

use std::fmt::Write as _;

use deepram_media::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::dram::DramCounts;
use crate::flash::FlashCounts;
use crate::host::HostResult;
use crate::metrics::{Interval, LatencySummary};
use crate::processor::{LINE_BYTES, ProcessorResult};

/// Defines a structure of monotonic counters with a method `since`, which subtracts an earlier moment's
/// counters.
macro_rules! counts {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$what:meta])* pub $field:ident: u64,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
        pub struct $name { $($(#[$what])* pub $field: u64,)* }

        impl $name {
            /// The counts after `base`, an earlier moment of the same counters.
            #[must_use]
            pub fn since(&self, base: &Self) -> Self {
                Self { $($field: self.$field - base.$field,)* }
            }
        }
    };
}
pub(crate) use counts;

/// Flash operations as they are reported.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlashResult {
    /// All pages read.
    pub reads: u64,
    /// All pages programmed.
    pub programs: u64,
    /// All blocks erased.
    pub erases: u64,
    /// All programs divided by the programs that the host's writes needed.
    pub write_amplification: f64,
    /// Pages moved by reclamation and wear levelling.
    pub page_movements: u64,
    /// Size of a flash page, bytes.
    pub page_bytes: u64,
    /// All operations by cause.
    pub by_cause: FlashCounts,
}

impl FlashResult {
    pub(crate) fn new(counts: FlashCounts, page: Bytes) -> Self {
        Self {
            reads: counts.reads(),
            programs: counts.programs(),
            erases: counts.erases,
            write_amplification: counts.write_amplification(),
            page_movements: counts.move_programs,
            page_bytes: page.0,
            by_cause: counts,
        }
    }
}

/// The hit ratio of one level of the hierarchy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HitRatio {
    /// The level's name.
    pub level: String,
    /// Lookups that hit.
    pub hits: u64,
    /// All lookups.
    pub lookups: u64,
    /// Hits divided by lookups; 0 without lookups.
    pub ratio: f64,
}

impl HitRatio {
    pub(crate) fn new(level: &str, hits: u64, lookups: u64) -> Self {
        let ratio = if lookups == 0 { 0.0 } else { hits as f64 / lookups as f64 };
        Self { level: level.into(), hits, lookups, ratio }
    }
}

/// Energy of one component.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyPart {
    /// The component's name.
    pub component: String,
    /// Energy of operations.
    pub dynamic_nj: f64,
    /// Energy of leakage, standby and refresh over the measured time.
    pub static_nj: f64,
    /// Mean power: dynamic and static energy divided by the measured time.
    pub mean_power_mw: f64,
}

impl EnergyPart {
    pub(crate) fn new(component: &str, dynamic_pj: f64, static_pj: f64) -> Self {
        Self {
            component: component.into(),
            dynamic_nj: dynamic_pj / 1e3,
            static_nj: static_pj / 1e3,
            mean_power_mw: 0.0,
        }
    }
}

/// Wear of the flash since the start of the run, warm-up included.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wear {
    /// Mean erases per block.
    pub mean_erases: f64,
    /// Standard deviation of the erases per block.
    pub deviation_erases: f64,
    /// Maximum erases of a block.
    pub most_erases: u32,
    /// Rated endurance: erases that a block withstands.
    pub endurance: u64,
    /// Retired blocks.
    pub retired_blocks: u64,
    /// Years until the endurance is used up at the run's rate of erases, evenly spread; `None` if
    /// nothing was erased.
    pub lifetime_years: Option<f64>,
}

/// The price of the memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// US dollars.
    pub usd: f64,
    /// The year of the price quotation.
    pub year: Option<u64>,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResult {
    /// The system's name.
    pub system: String,
    /// The preset's name.
    pub preset: String,
    /// The workload's name.
    pub workload: String,
    /// The full resolved configuration.
    pub config: serde_json::Value,
    /// SHA-256 of the resolved configuration.
    pub config_digest: String,
    /// The seed of the run.
    pub seed: u64,
    /// The version of deepram.
    pub version: String,
    /// Requests measured, after the warm-up.
    pub requests: u64,
    /// Measured virtual time.
    pub simulated_time_ns: f64,
    /// Requests a second of virtual time.
    pub throughput_requests_per_s: f64,
    /// Bytes a second of virtual time.
    pub throughput_bytes_per_s: f64,
    /// Latency of requests, from arrival to completion.
    pub latency: LatencySummary,
    /// The host's measurements; all zero if a processor ran instead.
    pub host: HostResult,
    /// The processor's measurements, if a processor ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<ProcessorResult>,
    /// The system's own counters, by name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub counters: Map<String, Value>,
    /// Hit ratios by level.
    pub hit_ratios: Vec<HitRatio>,
    /// Flash operations, if there is flash.
    pub flash: Option<FlashResult>,
    /// DRAM operations, if there is DRAM.
    pub dram: Option<DramCounts>,
    /// Energy by component.
    pub energy: Vec<EnergyPart>,
    /// Energy of all components.
    pub energy_total_nj: f64,
    /// Wear, if there is flash.
    pub wear: Option<Wear>,
    /// Cost, if the preset has a price.
    pub cost: Option<Cost>,
    /// The time series, if one was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

impl RunResult {
    pub(crate) fn from_measured(mut host: HostResult) -> Self {
        let intervals = std::mem::take(&mut host.intervals);
        Self {
            system: String::new(),
            preset: String::new(),
            workload: String::new(),
            config: serde_json::Value::Null,
            config_digest: String::new(),
            seed: 0,
            version: env!("CARGO_PKG_VERSION").into(),
            requests: host.measured,
            simulated_time_ns: host.time_ns,
            throughput_requests_per_s: host.requests_per_s,
            throughput_bytes_per_s: host.bytes_per_s,
            latency: host.response.clone(),
            hit_ratios: Vec::new(),
            flash: None,
            dram: None,
            energy: Vec::new(),
            energy_total_nj: 0.0,
            wear: None,
            cost: None,
            intervals,
            host,
            processor: None,
            counters: Map::new(),
        }
    }

    /// The result of a processor's run: references count as requests, waits for memory as latency.
    pub(crate) fn from_executed(executed: ProcessorResult) -> Self {
        let seconds = executed.time_ns * 1e-9;
        let rate = if seconds > 0.0 { executed.references as f64 / seconds } else { 0.0 };
        Self {
            requests: executed.references,
            simulated_time_ns: executed.time_ns,
            throughput_requests_per_s: rate,
            throughput_bytes_per_s: rate * LINE_BYTES as f64,
            latency: executed.read.clone(),
            processor: Some(executed),
            ..Self::from_measured(HostResult::default())
        }
    }

    /// The result as one JSON object, with keys in a fixed order.
    ///
    /// # Errors
    /// Results of runs always serialize; an error comes from the serializer itself.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The time series as CSV, with a header whose names carry units.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = format!(
            "# deepram {} config {} seed {}\nend_ns,completed,bytes,mean_ns,max_ns,flash_programs,flash_erases\n",
            self.version, self.config_digest, self.seed
        );
        for i in &self.intervals {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{}",
                i.end_ns, i.completed, i.bytes, i.mean_ns, i.max_ns, i.flash_programs, i.flash_erases
            );
        }
        text
    }

    /// The result as a table of labels and values for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut rows: Vec<(String, String)> = vec![
            ("system".into(), format!("{} ({})", self.system, self.preset)),
            ("workload".into(), self.workload.clone()),
            ("requests".into(), self.requests.to_string()),
            ("simulated time".into(), time(self.simulated_time_ns)),
            (
                "throughput".into(),
                format!(
                    "{:.0} requests/s, {:.1} MB/s",
                    self.throughput_requests_per_s,
                    self.throughput_bytes_per_s / 1e6
                ),
            ),
        ];
        for (name, summary) in
            [("latency", &self.latency), ("  reads", &self.host.read), ("  writes", &self.host.write)]
        {
            if summary.count > 0 {
                rows.push((
                    name.into(),
                    format!(
                        "mean {}, p50 {}, p99 {}, p99.9 {}, max {}",
                        time(summary.mean_ns),
                        time(summary.p50_ns),
                        time(summary.p99_ns),
                        time(summary.p999_ns),
                        time(summary.max_ns)
                    ),
                ));
            }
        }
        if let Some(processor) = &self.processor {
            let [computing, stalled, software, asleep, runnable] = processor.time_shares().map(|s| s * 100.0);
            rows.push((
                "processor".into(),
                format!("{:.4} instructions per cycle, {} threads", processor.ipc, processor.threads.len()),
            ));
            rows.push((
                "  threads' time".into(),
                format!(
                    "computing {computing:.1}%, stalled on memory {stalled:.1}%, software {software:.1}%, asleep {asleep:.1}%, runnable {runnable:.1}%"
                ),
            ));
        }
        for hit in &self.hit_ratios {
            rows.push((
                format!("{} hits", hit.level),
                format!("{:.2}% of {}", hit.ratio * 100.0, hit.lookups),
            ));
        }
        if let Some(flash) = &self.flash {
            rows.push((
                "flash".into(),
                format!(
                    "{} reads, {} programs, {} erases, write amplification {:.3}",
                    flash.reads, flash.programs, flash.erases, flash.write_amplification
                ),
            ));
        }
        if let Some(wear) = &self.wear {
            let life =
                wear.lifetime_years.map_or_else(String::new, |years| format!(", lifetime {years:.1} years"));
            rows.push((
                "wear".into(),
                format!("{:.2} erases per block, maximum {}{life}", wear.mean_erases, wear.most_erases),
            ));
        }
        rows.push(("energy".into(), format!("{:.3} mJ", self.energy_total_nj / 1e6)));
        for part in self.energy.iter().filter(|part| part.dynamic_nj + part.static_nj > 0.0) {
            let energy = (part.dynamic_nj + part.static_nj) / 1e6;
            rows.push((
                format!("  {}", part.component),
                format!("{energy:.3} mJ, {:.3} mW on average", part.mean_power_mw),
            ));
        }
        if let Some(cost) = &self.cost {
            rows.push((
                "cost".into(),
                format!(
                    "{:.0} USD{}",
                    cost.usd,
                    cost.year.map_or_else(String::new, |year| format!(" ({year})"))
                ),
            ));
        }
        rows.push((
            "configuration".into(),
            format!(
                "{} (seed {}, deepram {})",
                &self.config_digest.chars().take(16).collect::<String>(),
                self.seed,
                self.version
            ),
        ));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name:<width$}  {value}");
            text
        })
    }
}

/// Formats a time in the largest unit that keeps it at 1 or above.
fn time(ns: f64) -> String {
    for (unit, size) in [("s", 1e9), ("ms", 1e6), ("us", 1e3)] {
        if ns >= size {
            return format!("{:.2} {unit}", ns / size);
        }
    }
    format!("{ns:.1} ns")
}
