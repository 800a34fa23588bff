//! Working sets (Figure 7), stack distances (Figure 8) and the cache that a hit ratio needs (Figure 10).

use deepram_trace::workload::standin::Collection;

use super::characterise::{self, BINS, HIT_RATIOS, READINGS, capacities, name, pages_of_mb};
use super::on_traces;
use super::sources::{Source, Sources};
use crate::chart::{Axis, Chart, Drawing, Series, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::statistics::mean;

/// The traces of which section IV-B says that they have little temporal locality.
const LITTLE: [&str; 3] = ["stg", "tpcc", "tpce"];
/// The trace of Figure 7.
const SHOWN: &str = "wdev";
/// The phases that are shown, of five.
const PHASES: [usize; 3] = [0, 2, 4];

/// Builds the experiment of Figure 7.
pub(super) fn working_set(settings: &Settings, sources: &Sources) -> Experiment {
    let head = [
        "working-set",
        "Working sets over time (Figure 7)",
        "Accesses over the address space in the last 10,000 requests of each of five equal phases, and the pages that \
         10,000 requests touch. The similarity of two phases is the share of accesses that they have in common, by bin of \
         the address space.",
    ];
    on_traces(head, characterise::runs(settings, sources), sources, evaluate_working_set)
}

fn evaluate_working_set(finished: &FinishedRuns<'_>, sources: &[Source]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    let mut of_mse = f64::INFINITY;
    for source in sources {
        let of = |metric: &str| finished.metric(&name(source), metric);
        let (pages, common) = (of("working_set.pages")?, of("phase.common_percent")?);
        rows.push(vec![source.title(), plain(pages), plain(common)]);
        if source.group() == Collection::Mse {
            of_mse = of_mse.min(pages);
        }
        if source.target.trace == SHOWN {
            outcome.metrics.set("working_set.wdev.pages", pages);
            outcome.metrics.set("phases.wdev.common_percent", common);
            for operation in ["read", "write"] {
                outcome.charts.push(phases(finished, source, operation)?);
            }
        }
    }
    outcome.metrics.set("working_set.mse.least_pages", of_mse);
    outcome.tables.push(Table {
        title: "Working set of 10,000 requests, and similarity of consecutive phases".into(),
        headings: ["trace", "pages, mean", "common accesses, %"].map(String::from).into(),
        rows,
    });
    Ok(outcome)
}

fn phases(finished: &FinishedRuns<'_>, source: &Source, operation: &str) -> Result<Chart, ReproError> {
    let metrics = finished.run(&name(source))?;
    let width = finished.metric(&name(source), "phase.bin_gb")?;
    let series = PHASES.map(|phase| {
        let points = (0..BINS).filter_map(|bin| {
            let accesses = *metrics.0.get(&format!("phase.{phase}.{operation}.{bin}"))?;
            (accesses > 0.0).then_some(((bin as f64 + 0.5) * width, accesses))
        });
        Series::new(&format!("phase {}", phase + 1), points.collect())
    });
    Ok(Chart {
        title: format!("Figure 7: {operation}s of {} by address", source.title()),
        about: "Accesses to each part of the address space at the end of three phases.".into(),
        drawing: Drawing::Lines {
            x: Axis::linear("address", "GB"),
            y: Axis::log("accesses", ""),
            series: series.into_iter().filter(|series| !series.points.is_empty()).collect(),
            area: false,
        },
        references: Vec::new(),
    })
}

/// Builds the experiment of Figures 8 and 10.
pub(super) fn hit_ratio(settings: &Settings, sources: &Sources) -> Experiment {
    let head = [
        "hit-ratio",
        "Stack distances and the cache that a hit ratio needs (Figures 8 and 10)",
        "Hit ratio of an LRU cache of pages of 8 KiB that reads and writes enter, from the stack distances. First accesses \
         count as misses; the curves without them stand beside. The stand-ins were fitted to the published hit ratios.",
    ];
    on_traces(head, characterise::runs(settings, sources), sources, evaluate_hit_ratio)
}

fn evaluate_hit_ratio(finished: &FinishedRuns<'_>, sources: &[Source]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let of = |source: &Source, reading: &str, pages: u64| {
        finished.metric(&name(source), &format!("lru.{reading}.{pages}"))
    };
    for (reading, title) in [("all", "all accesses"), ("again", "without first accesses")] {
        let series = sources.iter().map(|source| {
            let point = |pages: u64| Ok((pages as f64, of(source, reading, pages)?));
            let points = capacities().into_iter().map(point).collect::<Result<Vec<_>, ReproError>>()?;
            Ok(Series::new(&source.title(), points))
        });
        outcome.charts.push(Chart {
            title: format!("Figure 8: hit ratio by stack distance, {title}"),
            about: "Share of accesses with at most this stack distance: the hit ratio of an LRU cache of as many pages."
                .into(),
            drawing: Drawing::Lines {
                x: Axis::log("pages", ""),
                y: Axis::linear("hit ratio", "%"),
                series: series.collect::<Result<_, ReproError>>()?,
                area: false,
            },
            references: Vec::new(),
        });
        let at_10_000 = |little: bool| {
            let sources = sources.iter().filter(|source| LITTLE.contains(&source.target.trace) == little);
            sources.map(|source| of(source, reading, 10_000)).collect::<Result<Vec<_>, _>>()
        };
        let least = at_10_000(false)?.into_iter().fold(f64::INFINITY, f64::min);
        let most = at_10_000(true)?.into_iter().fold(0.0, f64::max);
        outcome.metrics.set(format!("hit_ratio.{reading}.others.least_percent"), least);
        outcome.metrics.set(format!("hit_ratio.{reading}.little.most_percent"), most);
    }
    for (reading, ..) in READINGS {
        let at = |mb: f64| {
            let values = sources.iter().map(|source| of(source, reading, pages_of_mb(mb)));
            values.collect::<Result<Vec<_>, _>>()
        };
        let [at_40, at_80, at_160] = [at(40.0)?, at(80.0)?, at(160.0)?];
        let above = at_80.iter().filter(|ratio| **ratio > 70.0).count();
        outcome.metrics.set(format!("above_70.{reading}.traces"), above as f64);
        let mean = |values: &[f64]| mean(values).unwrap_or(f64::NAN);
        outcome.metrics.set(format!("doubling.{reading}.to_80_points"), mean(&at_80) - mean(&at_40));
        outcome.metrics.set(format!("doubling.{reading}.to_160_points"), mean(&at_160) - mean(&at_80));
    }
    outcome.tables.push(least_caches(finished, sources)?);
    Ok(outcome)
}

/// Figure 10 as a table.
fn least_caches(finished: &FinishedRuns<'_>, sources: &[Source]) -> Result<Table, ReproError> {
    let readings = [
        ("write", "writes"),
        ("all", "reads and writes"),
        ("write_only", "writes, in a cache that only writes enter"),
        ("again", "reads and writes without first accesses"),
    ];
    let mut rows = Vec::new();
    for (reading, title) in readings {
        for source in sources {
            let metrics = finished.run(&name(source))?;
            let mut row = vec![format!("{title}, {}", source.title())];
            row.extend(HIT_RATIOS.map(|percent| {
                let least = metrics.0.get(&format!("least.{reading}.{percent}.mb"));
                least.map_or_else(|| "none".into(), |mb| plain(*mb))
            }));
            rows.push(row);
        }
    }
    let mut headings = vec!["accesses, trace".to_owned()];
    headings.extend(HIT_RATIOS.map(|percent| format!("{percent} %")));
    Ok(Table { title: "Figure 10: least LRU cache for a hit ratio, MB".into(), headings, rows })
}
