//! The Pareto front of a sweep as a page with charts.

use std::collections::BTreeSet;
use std::path::Path;

use deepram_repro::chart::{Axis, Chart, Drawing, Series, Table};
use deepram_repro::html::{ChartSection, charts_page};
use deepram_sim::sweep::{Summary, Sweep};

use super::{figures, front};

/// Values further apart than this are drawn on a logarithmic scale.
const WIDE: f64 = 20.0;
/// Most marks of points that are not on the front.
const OTHERS: usize = 2000;

pub(super) fn page(file: &Path, sweep: &Sweep, summary: &Summary) -> String {
    let (headings, rows) = front(sweep, summary);
    let first = summary.objectives.first();
    let charts = summary.objectives.iter().skip(1).zip(first.into_iter().cycle());
    let section = ChartSection {
        title: "Pareto front".into(),
        charts: charts.map(|(y, x)| chart(summary, x, y)).collect(),
        tables: vec![Table { title: "Points on the front".into(), headings, rows }],
    };
    let notes = vec![
        format!("{} points, {} failed.", summary.points, summary.failed),
        format!(
            "On the front are the points that no other point betters in one of these figures without being worse in \
             another: {}.",
            summary.objectives.join(", ")
        ),
    ];
    charts_page(&format!("Sweep {}", file.display()), &notes, &[section])
}

/// The chart of two figures: the front, and all other points.
fn chart(summary: &Summary, x: &str, y: &str) -> Chart {
    let all = figures(summary, x, y);
    let front: BTreeSet<usize> = summary.front.iter().copied().collect();
    let of = |on_front: bool| {
        let points = all.iter().filter(|(point, ..)| front.contains(point) == on_front);
        let mut points: Vec<(f64, f64)> = points.map(|(_, x, y)| (*x, *y)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        points.dedup();
        points
    };
    let mut others = of(false);
    let step = others.len().div_ceil(OTHERS).max(1);
    if step > 1 {
        others = others.into_iter().step_by(step).collect();
    }
    Chart {
        title: format!("{y} over {x}"),
        about:
            "One mark for each point of the sweep. With more than two figures, a point of the front may look \
                bettered here: it is better in a figure that this chart does not show."
                .into(),
        drawing: Drawing::Points {
            x: axis(x, all.iter().map(|(_, x, _)| *x)),
            y: axis(y, all.iter().map(|(.., y)| *y)),
            series: vec![Series::new("on the front", of(true)), Series::new("others", others)],
        },
        references: Vec::new(),
    }
}

/// The axis of a figure, with its unit from the end of its name.
fn axis(name: &str, values: impl Iterator<Item = f64> + Clone) -> Axis {
    let units =
        [("_ns", "ns"), ("_bytes", "B"), ("_nj", "nJ"), ("_mw", "mW"), ("_years", "years"), (".usd", "USD")];
    let unit = units.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit);
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    if least > 0.0 && most / least > WIDE { Axis::log(name, unit) } else { Axis::linear(name, unit) }
}
