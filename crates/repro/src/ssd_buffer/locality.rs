//! Traffic (Table III) and spatial locality (Figures 4 to 6) of the traces.

use deepram_trace::workload::standin::Collection;

use super::characterise::{self, name};
use super::on_traces;
use super::sources::{Source, Sources};
use crate::chart::{Axis, Bars, Chart, Drawing, Table};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::number::plain;
use crate::statistics::mean;

/// The settings of Figures 4, 5 and 6: figure, stride length and request order difference in names of metrics.
const FIGURES: [(u32, &str); 3] = [(4, "2-1"), (5, "2-64"), (6, "16-64")];

const CLASSES: [&str; 4] = ["overlapped", "sequential", "strided", "random"];

/// Builds the experiment of Table III.
pub(super) fn traffic(settings: &Settings, sources: &Sources) -> Experiment {
    let head = [
        "traffic",
        "Requests, traffic and unique data (Table III)",
        "The stand-ins' figures beside the published ones, to which they were fitted. GB are 10^6 KB, as the table's own \
         figures require.",
    ];
    on_traces(head, characterise::runs(settings, sources), sources, evaluate_traffic)
}

/// A column of Table III: heading, metric of the characterisation, name in names of metrics, published value.
type Column = (&'static str, &'static str, &'static str, fn(&Source) -> f64);

const COLUMNS: [Column; 9] = [
    ("requests", "requests", "requests", |source| source.target.requests as f64),
    ("writes, %", "write_percent", "write_share", |source| 100.0 * source.target.write_share),
    ("traffic, GB", "all.gb", "traffic", |source| gb(source, [true, true])),
    ("write traffic, GB", "write.gb", "write_traffic", |source| gb(source, [false, true])),
    ("read traffic, GB", "read.gb", "read_traffic", |source| gb(source, [true, false])),
    ("request, KB", "all.kb", "size", |source| {
        gb(source, [true, true]) * 1e6 / source.target.requests as f64
    }),
    ("write, KB", "write.kb", "write_size", |source| source.target.write_bytes / 1024.0),
    ("read, KB", "read.kb", "read_size", |source| source.target.read_bytes / 1024.0),
    ("unique, GB", "unique.gb", "unique", |source| source.target.unique_pages() as f64 * 8.0 / 1e6),
];

/// Traffic that the published counts and sizes make, reads and writes as chosen, GB.
fn gb(source: &Source, [reads, writes]: [bool; 2]) -> f64 {
    let target = source.target;
    let of = |counted: bool, share: f64, bytes: f64| if counted { share * bytes } else { 0.0 };
    let mean = of(reads, 1.0 - target.write_share, target.read_bytes)
        + of(writes, target.write_share, target.write_bytes);
    target.requests as f64 * mean / (1024.0 * 1e6)
}

fn evaluate_traffic(finished: &FinishedRuns<'_>, sources: &[Source]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    for source in sources {
        let mut row = vec![source.title()];
        for (_, metric, ..) in COLUMNS {
            row.push(plain(finished.metric(&name(source), metric)?));
        }
        let mut published = vec![format!("{}, published", source.target.trace)];
        published.extend(COLUMNS.iter().map(|(.., value)| plain(value(source))));
        rows.extend([row, published]);
    }
    for (_, metric, key, published) in COLUMNS {
        let mut farthest = 0.0f64;
        for source in sources {
            let ratio = finished.metric(&name(source), metric)? / published(source);
            farthest = farthest.max(100.0 * (ratio - 1.0).abs());
        }
        outcome.metrics.set(format!("{key}.farthest_percent"), farthest);
    }
    let mut headings = vec!["trace".to_owned()];
    headings.extend(COLUMNS.map(|(heading, ..)| heading.to_owned()));
    outcome.tables.push(Table { title: "Table III".into(), headings, rows });
    Ok(outcome)
}

/// Builds the experiment of Figures 4 to 6.
pub(super) fn experiment(settings: &Settings, sources: &Sources) -> Experiment {
    let head = [
        "locality",
        "Spatial locality (Figures 4 to 6)",
        "Each request is overlapped, sequential, strided or random with respect to the requests before it, in pages of \
         8 KiB, for three settings of stride length and request order difference. Requests of both directions are compared, \
         and the first class that applies counts, in this order. Means are over traces. The stand-ins were fitted to these \
         shares.",
    ];
    on_traces(head, characterise::runs(settings, sources), sources, evaluate)
}

fn evaluate(finished: &FinishedRuns<'_>, sources: &[Source]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    for (figure, setting) in FIGURES {
        let share = |source: &Source, operation: &str, class: &str| {
            finished.metric(&name(source), &format!("spatial.{setting}.{operation}.{class}_percent"))
        };
        for operation in ["read", "write"] {
            let of = |wanted: &dyn Fn(Collection) -> bool| {
                let sources = sources.iter().filter(|source| wanted(source.group()));
                let values = sources.map(|source| share(source, operation, "random"));
                Ok::<_, ReproError>(mean(&values.collect::<Result<Vec<_>, _>>()?).unwrap_or(f64::NAN))
            };
            let metric = format!("random.{setting}.{operation}");
            outcome.metrics.set(format!("{metric}.mean_percent"), of(&|_| true)?);
            outcome
                .metrics
                .set(format!("{metric}.without_mse_percent"), of(&|group| group != Collection::Mse)?);
            let series = CLASSES.map(|class| {
                let values = sources.iter().map(|source| share(source, operation, class));
                Ok(Bars::new(class, values.collect::<Result<_, ReproError>>()?))
            });
            outcome.charts.push(Chart {
                title: format!(
                    "Figure {figure}: {operation} requests, stride/order {}",
                    setting.replace('-', "/")
                ),
                about: "Share of each class by trace.".into(),
                drawing: Drawing::Bars {
                    axis: Axis::linear("share of requests", "%"),
                    groups: sources.iter().map(Source::title).collect(),
                    series: series.into_iter().collect::<Result<_, ReproError>>()?,
                    stacked: true,
                },
                references: Vec::new(),
            });
        }
        let values = sources.iter().map(|source| share(source, "all", "random"));
        let least = values.collect::<Result<Vec<_>, _>>()?.into_iter().fold(f64::INFINITY, f64::min);
        outcome.metrics.set(format!("random.{setting}.all.least_percent"), least);
        let overlapped = |mse: bool| {
            let sources = sources.iter().filter(move |source| (source.group() == Collection::Mse) == mse);
            sources.map(|source| share(source, "write", "overlapped")).collect::<Result<Vec<_>, _>>()
        };
        let most_of_mse = overlapped(true)?.into_iter().fold(0.0, f64::max);
        let least_of_others = overlapped(false)?.into_iter().fold(f64::INFINITY, f64::min);
        outcome.metrics.set(format!("overlapped.{setting}.mse.most_percent"), most_of_mse);
        outcome.metrics.set(format!("overlapped.{setting}.others.least_percent"), least_of_others);
    }
    Ok(outcome)
}
