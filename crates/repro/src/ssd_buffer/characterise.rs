//! The characterisation of one trace as metrics.

use deepram_trace::Item;
use deepram_trace::characterize::{
    AddressWindow, Characterization, CharacterizeOptions, Characterizer, Counted, Denominator, SpatialSetting,
};
use serde_json::json;

use super::sources::{Source, Sources, failed, trace_error};
use crate::error::ReproError;
use crate::experiment::Settings;
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const PROCEDURE: &str = "ssd buffer characterisation";

/// Capacities of LRU caches, pages of 8 KiB: powers of two, and the 10,000 pages that section IV-B names.
pub(super) fn capacities() -> Vec<u64> {
    let mut all: Vec<u64> = (0..=24).map(|power| 1 << power).collect();
    all.extend([10_000, pages_of_mb(40.0), pages_of_mb(80.0), pages_of_mb(160.0)]);
    all.sort_unstable();
    all
}

/// Pages of 8 KiB in a number of MiB.
pub(super) fn pages_of_mb(mb: f64) -> u64 {
    (mb * 128.0) as u64
}

/// The hit ratios for which Figure 10 has the least cache, percent.
pub(super) const HIT_RATIOS: [u32; 4] = [60, 70, 80, 90];

/// Bins of the address space in the charts of the working set.
pub(super) const BINS: u64 = 64;

/// The reading of accesses by which hit ratios are taken, with its name in names of metrics: all accesses, writes in a
/// stack that all accesses move, all but first accesses.
pub(super) const READINGS: [(&str, Counted, Denominator); 3] = [
    ("all", Counted::All, Denominator::AllAccesses),
    ("write", Counted::Writes, Denominator::AllAccesses),
    ("again", Counted::All, Denominator::Rereferences),
];

/// Name of the characterisation of a source.
pub(super) fn name(source: &Source) -> String {
    format!("characterise.{}", source.label())
}

/// A characterisation of each source.
pub(super) fn runs(settings: &Settings, sources: &Sources) -> Vec<SimulationRun> {
    let most = settings.pick(None, Some(20_000));
    sources.all().map(|source| run(source, settings.seed, most)).collect()
}

fn run(source: &Source, seed: u64, most: Option<u64>) -> SimulationRun {
    let config = json!({ "source": source.identity(), "seed": seed, "most": most });
    let (name, source) = (name(source), source.clone());
    SimulationRun::new(name.clone(), PROCEDURE, config, move || {
        let failed = failed(&name);
        let options = CharacterizeOptions { write_only_stack: true, ..CharacterizeOptions::default() };
        let mut trace = Characterizer::new(&options).map_err(|error| failed(trace_error(&error)))?;
        for request in source.requests(seed, most).map_err(&failed)? {
            let request = request.map_err(&failed)?;
            trace.add(&Item::Block(request)).map_err(|error| failed(trace_error(&error)))?;
        }
        let report = trace.finish().map_err(|error| failed(trace_error(&error)))?;
        metrics(&report)
            .ok_or_else(|| ReproError::Run { run: name.clone(), why: "the trace has no requests".into() })
    })
}

fn metrics(report: &Characterization) -> Option<Metrics> {
    let mut metrics = Metrics::new();
    metrics.set("requests", report.all.requests as f64);
    metrics.set("write_percent", 100.0 * report.write_share?);
    for (name, traffic) in [("all", &report.all), ("read", &report.read), ("write", &report.write)] {
        // The paper's GB are 10^6 KB.
        metrics.set(format!("{name}.gb"), traffic.bytes as f64 / (1024.0 * 1e6));
        metrics.set(format!("{name}.kb"), traffic.mean_bytes().unwrap_or(0.0) / 1024.0);
        metrics.set(format!("{name}.page_accesses"), traffic.page_accesses as f64);
        metrics.set(format!("{name}.unique_pages"), traffic.unique_pages as f64);
    }
    metrics.set("unique.gb", report.all.unique_pages as f64 * report.page_bytes as f64 / (1024.0 * 1e6));
    metrics.set("seconds", report.times.map_or(0.0, |times| (times.last_ps - times.first_ps) as f64 * 1e-12));
    for spatial in &report.spatial {
        let SpatialSetting { stride_pages, rod } = spatial.setting;
        for (name, shares) in [("all", spatial.all), ("read", spatial.read), ("write", spatial.write)] {
            let shares = shares.unwrap_or_default();
            for (class, share) in ["overlapped", "sequential", "strided", "random"].into_iter().zip(shares) {
                metrics.set(format!("spatial.{stride_pages}-{rod}.{name}.{class}_percent"), 100.0 * share);
            }
        }
    }
    let distances = report.distances.as_ref()?;
    for (name, counted, over) in READINGS {
        for pages in capacities() {
            let ratio = distances.hit_ratio(pages, counted, over).unwrap_or(0.0);
            metrics.set(format!("lru.{name}.{pages}"), 100.0 * ratio);
        }
        for percent in HIT_RATIOS {
            if let Some(pages) = distances.capacity_for(f64::from(percent) / 100.0, counted, over) {
                metrics.set(format!("least.{name}.{percent}.mb"), pages as f64 / 128.0);
            }
        }
    }
    if let Some(distances) = &report.distances_of_writes {
        for percent in HIT_RATIOS {
            let share = f64::from(percent) / 100.0;
            if let Some(pages) = distances.capacity_for(share, Counted::Writes, Denominator::AllAccesses) {
                metrics.set(format!("least.write_only.{percent}.mb"), pages as f64 / 128.0);
            }
        }
    }
    // Windows of 10,000 requests, or the longest that a short trace has.
    let window = report.working_sets.iter().rev().find(|set| set.window_requests <= 10_000);
    metrics.set("working_set.pages", window.map_or(0.0, |set| set.mean_pages));
    phases(report, &mut metrics);
    Some(metrics)
}

/// Accesses by bin of the address space in each phase, and how much of the accesses two consecutive phases have in
/// common: the sum over all bins of the smaller of the two shares.
fn phases(report: &Characterization, metrics: &mut Metrics) {
    let windows = &report.addresses.phases;
    let end = windows.iter().flat_map(|window| &window.bins).map(|bin| bin.first_page + bin.pages).max();
    let Some(end) = end else { return };
    let width = end.div_ceil(BINS);
    metrics.set("phase.bin_gb", width as f64 * report.page_bytes as f64 / (1024.0 * 1e6));
    let shares: Vec<Vec<f64>> = windows.iter().map(shares).collect();
    let fine = windows.iter().map(|window| {
        let bins = window.bins.iter().map(|bin| (bin.device, bin.first_page));
        bins.collect::<Vec<_>>()
    });
    let fine: Vec<_> = fine.collect();
    let mut common = Vec::new();
    for at in 1..windows.len() {
        let mut sum = 0.0;
        for (bin, share) in fine[at].iter().zip(&shares[at]) {
            if let Some(before) = fine[at - 1].iter().position(|other| other == bin) {
                sum += share.min(shares[at - 1][before]);
            }
        }
        common.push(100.0 * sum);
    }
    metrics.set("phase.common_percent", crate::statistics::mean(&common).unwrap_or(100.0));
    for (phase, window) in windows.iter().enumerate() {
        let mut bins = vec![[0u64; 2]; BINS as usize];
        for bin in &window.bins {
            let at = &mut bins[(bin.first_page / width) as usize];
            at[0] += bin.reads;
            at[1] += bin.writes;
        }
        for (at, [reads, writes]) in bins.into_iter().enumerate().filter(|(_, count)| *count != [0; 2]) {
            metrics.set(format!("phase.{phase}.read.{at}"), reads as f64);
            metrics.set(format!("phase.{phase}.write.{at}"), writes as f64);
        }
    }
}

/// Share of each bin in the accesses of its window.
fn shares(window: &AddressWindow) -> Vec<f64> {
    let all: u64 = window.bins.iter().map(|bin| bin.reads + bin.writes).sum();
    window.bins.iter().map(|bin| (bin.reads + bin.writes) as f64 / all.max(1) as f64).collect()
}
