//! Wear-out of flash whose pages differ in endurance (NVMM, Nonvolatile Main Memory System
//! Architecture).
//!
//! 1. The endurance of a page is lognormal: its median is the preset's, its logarithmic standard
//!    deviation σ.
//! 2. Writes have a constant rate and perfect levelling: all working pages have been written equally
//!    often. A page that reaches its endurance is retired.
//! 3. After w writes per page, the share S(w) of pages with a greater endurance remains. One more write
//!    of each of them takes S(w) times all pages divided by the rate. Capacity therefore falls faster
//!    the less of it remains.

use std::f64::consts::TAU;
use std::sync::Arc;

use deepram_media::{Nand, Registry};
use serde_json::json;

use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const PROCEDURE: &str = "nvmm lifetime";

/// Size of the paper's device, 8 Gbit, in bytes.
const DEVICE_BYTES: f64 = (1u64 << 30) as f64;
const DEVICES: [(&str, f64); 2] = [("one", 1.0), ("thousand", 1000.0)];

/// Write rate in bytes per second. The paper gives no rate, only 32 GB of cache and a moderate to light
/// load. Assumed: the rate of one 8-bit channel at 400 MB/s, a sixteenth of all channels in the presets.
/// (One SLC device programs only 41 MB/s; the paper does not consider how its one device absorbs the
/// writes of a system.)
const RATE: f64 = 400e6;

/// Logarithmic standard deviations considered for pages: 0, 5, 10, 20 %.
const DEVIATIONS: [f64; 4] = [0.0, 0.05, 0.1, 0.2];
/// Index of the deviation that is judged: the widest, because the paper says that some pages withstand
/// many times the writes of others.
const JUDGED: usize = 3;

/// Share of pages left that counts as worn out, because a lognormal distribution never ends.
const GONE: f64 = 0.01;

/// Step in σ and extent of the computed curve: beyond 8 σ lies a share of 10^-15.
const STEP: f64 = 1.0 / 256.0;
const REACH: f64 = 8.0;

/// Computes the remaining capacity: time, relative to the time in which all pages are written as often
/// as their median endurance, and share of pages left.
fn curve(deviation: f64) -> Vec<(f64, f64)> {
    if deviation == 0.0 {
        return vec![(0.0, 1.0), (1.0, 1.0), (1.0, 0.0)];
    }
    let density = |z: f64| (-z * z / 2.0).exp() / TAU.sqrt();
    let writes = |z: f64| (deviation * z).exp();
    let (mut left, mut time) = (1.0, writes(-REACH));
    let mut curve = vec![(0.0, 1.0), (time, left)];
    for step in 0..(2.0 * REACH / STEP) as u32 {
        let z = f64::from(step) * STEP - REACH;
        let next = z + STEP;
        let then = left - STEP * (density(z) + density(next)) / 2.0;
        time += (writes(next) - writes(z)) * (left + then) / 2.0;
        left = then.max(0.0);
        curve.push((time, left));
    }
    curve
}

/// Time at which the share left falls to `share`.
fn falls_to(curve: &[(f64, f64)], share: f64) -> Option<f64> {
    curve.windows(2).find_map(|pair| {
        let ((from, more), (to, less)) = (pair[0], pair[1]);
        (more > share && less <= share).then(|| from + (to - from) * (more - share) / (more - less))
    })
}

/// Time in seconds to write a device as often as its median endurance.
fn device_seconds(endurance: u64) -> f64 {
    DEVICE_BYTES * endurance as f64 / RATE
}

/// Builds the experiment.
pub(super) fn experiment(_: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let sheet = registry
        .resolve_with("nand.slc", &[])
        .and_then(|sheet| Ok((sheet.model::<Nand>()?, sheet.digest())))
        .map_err(|error| ReproError::Config { what: "lifetime".into(), source: Box::new(error.into()) })?;
    let (nand, digest) = sheet;
    let days = device_seconds(nand.endurance) / 86_400.0;
    let runs = DEVIATIONS
        .iter()
        .map(|&deviation| {
            let name = format!("deviation.{deviation}");
            let config = json!({
                "deviation": deviation, "days": days, "preset": digest, "step": STEP, "reach": REACH, "gone": GONE,
            });
            SimulationRun::new(name.clone(), PROCEDURE, config, move || {
                let curve = curve(deviation);
                let mut metrics = Metrics::new();
                for (what, share) in [("half_days", 0.5), ("gone_days", GONE)] {
                    let at = falls_to(&curve, share).ok_or_else(|| ReproError::Run {
                        run: name.clone(),
                        why: format!("the capacity curve does not fall to {share}"),
                    })?;
                    metrics.set(what, at * days);
                }
                Ok(metrics)
            })
        })
        .collect();
    let about = format!(
        "Levelled writes at {} MB/s wear out the SLC pages of 8 Gbit devices, whose median endurance is {} \
         writes. The paper gives no write rate; we assume that of one flash channel. Endurance is \
         lognormal with a deviation of {} %, the widest of those considered. The remaining pages take all \
         writes, so wear accelerates. A device counts as worn out with {} % of its pages left. A thousand \
         devices under the same writes last a thousand times as long.",
        RATE / 1e6,
        nand.endurance,
        DEVIATIONS[JUDGED] * 100.0,
        GONE * 100.0,
    );
    Ok(Experiment::new(
        "lifetime",
        "Wear-out of one device and of a thousand",
        about,
        runs,
        move |finished| evaluate(finished, days),
    ))
}

/// `days` is the time to write a device as often as its median endurance.
fn evaluate(finished: &FinishedRuns<'_>, days: f64) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    for (at, deviation) in DEVIATIONS.iter().enumerate() {
        let of = |what: &str| finished.metric(&format!("deviation.{deviation}"), what);
        let (half, gone) = (of("half_days")?, of("gone_days")?);
        let mut row = vec![format!("{} %", deviation * 100.0)];
        for (name, devices) in DEVICES {
            row.extend([half, gone].map(|days| format!("{:.2}", days * devices)));
            if at == JUDGED {
                outcome.metrics.set(format!("{name}.half_days"), half * devices);
                outcome.metrics.set(format!("{name}.gone_days"), gone * devices);
            }
        }
        rows.push(row);
    }
    outcome.tables.push(Table {
        title: "Days until half and 1 % of the capacity remain, by deviation of endurance".into(),
        headings: ["deviation", "one: half", "one: 1 %", "thousand: half", "thousand: 1 %"]
            .map(String::from)
            .to_vec(),
        rows,
    });
    let left = drawn(DEVIATIONS[JUDGED]);
    let series = DEVICES
        .iter()
        .map(|(name, devices)| {
            let points = left.iter().map(|(time, share)| (time * days * devices, share * 100.0)).collect();
            Series::new(name, points)
        })
        .collect();
    outcome.charts.push(Chart {
        title: "Remaining capacity".into(),
        about: "Share of working pages, over days of constant writing.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("time", "days"),
            y: Axis::linear("capacity", "%"),
            series,
            area: true,
        },
        references: Vec::new(),
    });
    Ok(outcome)
}

/// Points of the curve for a chart with a logarithmic time axis: none at 0, a few hundred in all.
fn drawn(deviation: f64) -> Vec<(f64, f64)> {
    let mut points = vec![(0.1, 1.0)];
    points.extend(curve(deviation).into_iter().filter(|(time, _)| *time > 0.1).step_by(8));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_media::{Bandwidth, Bytes, lifetime_seconds};
    use deepram_trace::workload::Rng;

    #[test]
    fn without_a_spread_all_pages_leave_when_the_medium_is_written_through() {
        let curve = curve(0.0);
        let all = lifetime_seconds(Bytes(DEVICE_BYTES as u64), 100_000, Bandwidth(RATE), 1.0, 1.0);
        for share in [0.99, 0.5, GONE] {
            let seconds = falls_to(&curve, share).unwrap() * device_seconds(100_000);
            assert!((seconds / all - 1.0).abs() < 1e-12, "{share}: {seconds} {all}");
        }
    }

    #[test]
    fn in_the_end_every_page_has_been_written_as_often_as_it_bears() {
        // Mean of a lognormal distribution with median 1.
        for deviation in [0.05, 0.2, 0.7] {
            let curve = curve(deviation);
            let (time, left) = curve[curve.len() - 1];
            let mean = (deviation * deviation / 2.0).exp();
            assert!((time / mean - 1.0).abs() < 1e-4 && left < 1e-9, "{deviation}: {time} {mean} {left}");
            assert!(curve.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 >= pair[1].1));
        }
    }

    /// Simulates page by page: each write goes to the next working page in turn.
    fn simulated(deviation: f64, pages: usize, median: f64, share: f64, seed: u64) -> f64 {
        let mut random = Rng::new(seed, "endurance");
        let mut left: Vec<u64> = (0..pages)
            .map(|_| {
                let (length, angle) = (1.0 - random.unit(), random.unit() * TAU);
                let normal = (-2.0 * length.ln()).sqrt() * angle.cos();
                (median * (deviation * normal).exp()).round() as u64
            })
            .collect();
        let (mut writes, mut round) = (0u64, 0);
        while left.len() as f64 > share * pages as f64 {
            writes += left.len() as u64;
            round += 1;
            left.retain(|endurance| *endurance > round);
        }
        writes as f64 / (pages as f64 * median)
    }

    #[test]
    fn the_curve_is_that_of_pages_written_one_after_the_other() {
        for (seed, deviation) in [(1, 0.05), (2, 0.2), (3, 0.5)] {
            let curve = curve(deviation);
            for share in [0.9, 0.5, 0.1, GONE] {
                let expected = falls_to(&curve, share).unwrap();
                let found = simulated(deviation, 20_000, 2_000.0, share, seed);
                let near = (found / expected - 1.0).abs() < 0.01;
                assert!(near, "seed {seed}, deviation {deviation}, {share}: {found}, integral {expected}");
            }
        }
    }
}
