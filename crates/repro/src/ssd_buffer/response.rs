//! Response time of the whole drive (Figure 13), by collection of traces: the mean over a collection's traces of
//! each trace's mean response time, relative to that with 42 MB of DRAM.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_trace::workload::standin::Collection;

use super::energy::conditions;
use super::grid::{self, Grid, policies};
use super::on_traces;
use super::replay::{BASELINE, Endurance, HYBRIDS, Policy, Scheme};
use super::sources::{GROUPS, Source, Sources, group_key};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::statistics::mean;

const METRIC: &str = "response.mean_us";

impl Grid<'_> {
    /// Response time of a collection relative to the baseline's: ratio of the means over its traces.
    pub(super) fn response(
        &self,
        group: Collection,
        buffer: &str,
        policy: Policy,
    ) -> Result<f64, ReproError> {
        let ours = self.group_mean(group, |source| self.metric(source, buffer, Some(policy), METRIC))?;
        Ok(ours / self.group_mean(group, |source| self.metric(source, BASELINE, None, METRIC))?)
    }

    /// The same as the mean of each trace's ratio.
    fn response_by_trace(&self, group: Collection, buffer: &str, policy: Policy) -> Result<f64, ReproError> {
        self.group_mean(group, |source| self.relative(source, buffer, policy, METRIC))
    }
}

/// Sets the metrics of the claims. The limits are those of TS and TP; two levels are compared with them.
pub(super) fn metrics(grid: Grid<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    let metrics = &mut outcome.metrics;
    let (mut faster, mut all) = (0u32, 0u32);
    for endurance in Endurance::ALL {
        for buffer in HYBRIDS {
            // Relative response times by collection: ratio of means, and mean of ratios.
            let (mut of_means, mut of_ratios) = (Vec::new(), Vec::new());
            for (group, _) in GROUPS {
                let levels = grid.response(group, buffer, Policy { scheme: Scheme::TwoLevel, endurance })?;
                let mut flat = Vec::new();
                for scheme in Scheme::FLAT {
                    let policy = Policy { scheme, endurance };
                    flat.push(grid.response(group, buffer, policy)?);
                    of_ratios.push(grid.response_by_trace(group, buffer, policy)?);
                }
                all += 1;
                faster += u32::from(flat.iter().all(|flat| levels < *flat));
                of_means.extend(flat);
            }
            let name = format!("{}.{buffer}", endurance.word());
            for (reading, values) in [("", &of_means), (".of_ratios", &of_ratios)] {
                let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                let most = values.iter().copied().fold(0.0, f64::max);
                let farthest = if most - 1.0 > 1.0 - least { most } else { least };
                metrics.set(format!("penalty.{name}{reading}.worst_percent"), 100.0 * (most - 1.0));
                metrics.set(format!("gain.{name}{reading}.best_percent"), 100.0 * (1.0 - least));
                metrics.set(format!("response.{name}{reading}.farthest"), farthest);
                metrics.set(format!("response.{name}{reading}.mean"), mean(values).unwrap_or(f64::NAN));
            }
        }
    }
    metrics.set("two_levels.faster_percent", 100.0 * f64::from(faster) / f64::from(all));
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(
    settings: &Settings,
    registry: &Arc<Registry>,
    sources: &Sources,
) -> Result<Experiment, ReproError> {
    let head = [
        "response",
        "Response time of the drive (Figure 13)",
        "Mean time from a request's arrival to its completion, reads and writes, queueing included, relative to that with \
         42 MB of DRAM. The value of a collection is the ratio of the means over its traces; the tables have each trace.",
    ];
    let runs = grid::runs(sources.all(), &conditions(settings), registry)?;
    Ok(on_traces(head, runs, sources, evaluate))
}

fn evaluate(finished: &FinishedRuns<'_>, sources: &[Source]) -> Result<Outcome, ReproError> {
    let grid = Grid { finished, sources };
    let mut outcome = Outcome::default();
    metrics(grid, &mut outcome)?;
    for endurance in Endurance::ALL {
        for (group, title) in GROUPS {
            let value = |buffer: &str, policy| grid.response(group, buffer, policy);
            outcome.charts.push(by_buffer(
                ("Response time relative to 42 MB of DRAM", title, endurance),
                Axis::linear("response time relative to 42 MB of DRAM", ""),
                1.0,
                &value,
            )?);
            for buffer in HYBRIDS {
                for scheme in Scheme::ALL {
                    let name =
                        format!("{}.{buffer}.{}.{}", endurance.word(), scheme.word(), group_key(group));
                    outcome
                        .metrics
                        .set(format!("response.{name}"), value(buffer, Policy { scheme, endurance })?);
                }
            }
        }
    }
    let value = |source: &Source, buffer: &'static str, policy| grid.relative(source, buffer, policy, METRIC);
    outcome.tables.push(by_trace(
        "Response time relative to 42 MB of DRAM, by policy and endurance",
        sources,
        &Scheme::ALL,
        &value,
    )?);
    outcome.tables.push(baseline(grid)?);
    Ok(outcome)
}

/// The baseline's figures under each trace.
fn baseline(grid: Grid<'_>) -> Result<Table, ReproError> {
    let columns = [
        ("mean response, µs", METRIC),
        ("reads, µs", "response.read_us"),
        ("writes, µs", "response.write_us"),
        ("99th percentile, µs", "response.p99_us"),
        ("write hits", "hit_ratio.buffer.write"),
        ("read hits", "hit_ratio.buffer.read"),
        ("flash programs", "flash.programs"),
        ("write amplification", "flash.write_amplification"),
    ];
    let rows = grid.sources.iter().map(|source| {
        let mut row = vec![source.title()];
        for (_, metric) in columns {
            row.push(plain(grid.metric(source, BASELINE, None, metric)?));
        }
        Ok(row)
    });
    let mut headings = vec!["trace".to_owned()];
    headings.extend(columns.map(|(heading, _)| heading.to_owned()));
    Ok(Table { title: "42 MB of DRAM".into(), headings, rows: rows.collect::<Result<_, ReproError>>()? })
}

/// A chart of one collection: a group of bars for each hybrid buffer, a bar for each policy.
pub(super) fn by_buffer(
    (what, group, endurance): (&str, &str, Endurance),
    axis: Axis,
    baseline: f64,
    value: &dyn Fn(&str, Policy) -> Result<f64, ReproError>,
) -> Result<Chart, ReproError> {
    let series = Scheme::ALL.map(|scheme| {
        let of = |buffer: &&str| value(buffer, Policy { scheme, endurance });
        Ok(Bars::new(scheme.title(), HYBRIDS.iter().map(of).collect::<Result<_, ReproError>>()?))
    });
    Ok(Chart {
        title: format!("{what}: {group}, {}", endurance.word()),
        about: format!("{what} by buffer and policy, with PCM of {} writes a cell.", endurance.writes()),
        drawing: Drawing::Bars {
            axis,
            groups: HYBRIDS.map(String::from).into(),
            series: series.into_iter().collect::<Result<_, ReproError>>()?,
            stacked: false,
        },
        references: vec![Reference { name: "42 MB of DRAM".into(), value: baseline }],
    })
}

/// A table with a row for each hybrid buffer, policy and endurance, and a column for each trace, the mean and the
/// maximum.
pub(super) fn by_trace(
    title: &str,
    sources: &[Source],
    schemes: &[Scheme],
    value: &dyn Fn(&Source, &'static str, Policy) -> Result<f64, ReproError>,
) -> Result<Table, ReproError> {
    let mut rows = Vec::new();
    for buffer in HYBRIDS {
        for policy in policies(schemes) {
            let values = sources.iter().map(|source| value(source, buffer, policy));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let mut row = vec![format!("{buffer}, {}, {}", policy.scheme.title(), policy.endurance.word())];
            row.extend(values.iter().map(|value| plain(*value)));
            row.push(mean(&values).map_or_else(|| "–".into(), plain));
            row.push(plain(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
            rows.push(row);
        }
    }
    let mut headings = vec!["buffer, policy, endurance".to_owned()];
    headings.extend(sources.iter().map(Source::title));
    headings.extend(["mean".to_owned(), "max".to_owned()]);
    Ok(Table { title: title.into(), headings, rows })
}
