//! A plan as a page with charts.

use std::collections::BTreeMap;

use deepram_repro::chart::{Axis, Chart, Drawing, Reference, Series, Table};
use deepram_repro::html::{ChartSection, charts_page};
use deepram_sim::plan::{Figures, Metric, Plan};

use super::Described;
use super::text::{HEADINGS, by_price, decision, facts, row};

/// Takes one figure.
type Figure = fn(&Figures) -> f64;

pub(super) fn page(described: &Described<'_>) -> String {
    let plan = described.plan;
    let all = by_price(plan, (0..plan.points.len()).collect());
    let table = |title: &str, positions: Vec<usize>| Table {
        title: title.into(),
        headings: HEADINGS.iter().skip(1).map(|name| name.trim_start_matches('<').to_owned()).collect(),
        rows: positions.into_iter().map(|at| row(plan, at).split_off(1)).collect(),
    };
    let front: Vec<usize> = all.iter().copied().filter(|at| plan.front.contains(at)).collect();
    let mut notes: Vec<String> =
        facts(described).into_iter().map(|(label, value)| format!("{label}: {value}")).collect();
    notes.extend(decision(described));
    let section = ChartSection {
        title: "Hierarchies".into(),
        charts: charts(described),
        tables: vec![table("Pareto front", front), table("All hierarchies", all)],
    };
    charts_page(&format!("Memory hierarchies for {}", described.trace), &notes, &[section])
}

/// The charts over the price: p99 and mean latency, energy, lifetime.
fn charts(described: &Described<'_>) -> Vec<Chart> {
    let plan = described.plan;
    let shown: [(&str, &str, Option<Metric>, Figure, bool); 4] = [
        ("99th percentile of the latency", "µs", Some(Metric::P99), |f| f.p99_ns / 1e3, false),
        ("Mean latency", "µs", Some(Metric::Mean), |f| f.mean_ns / 1e3, false),
        ("Energy of a request", "nJ", None, |f| f.energy_nj, false),
        ("Lifetime", "years", Some(Metric::Years), |f| f.years.unwrap_or(100.0).min(100.0), true),
    ];
    shown
        .into_iter()
        .map(|(title, unit, metric, of, more_is_better)| {
            let scale = if unit == "µs" { 1e-3 } else { 1.0 };
            let bound = metric.and_then(|metric| described.options.goals.bound(metric));
            let series = best_by_price(plan, of, more_is_better);
            Chart {
                title: format!("{title} over price"),
                about: format!(
                    "For each system, the hierarchies that no cheaper one of the same system betters in this figure.{}",
                    if more_is_better { " Lifetimes above 100 years are shown as 100." } else { "" }
                ),
                drawing: Drawing::Lines {
                    x: Axis::log("Price", "USD"),
                    y: Axis::log(title, unit),
                    series,
                    area: false,
                },
                references: bound
                    .map(|bound| Reference { name: "goal".into(), value: bound * scale })
                    .into_iter()
                    .collect(),
            }
        })
        .collect()
}

/// For each system the points (price, figure) that better those at lower prices, ordered by price.
fn best_by_price(plan: &Plan, of: Figure, more_is_better: bool) -> Vec<Series> {
    let mut systems: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for at in by_price(plan, (0..plan.points.len()).collect()) {
        let figures = plan.estimates[at].figures();
        let (usd, value) = (figures.usd, of(figures));
        let points = systems.entry(plan.points[at].config.system.name()).or_default();
        let better = |last: f64| if more_is_better { value > last } else { value < last };
        match points.last_mut() {
            Some(last) if !better(last.1) => {}
            Some(last) if last.0 == usd => last.1 = value,
            _ => points.push((usd, value)),
        }
    }
    systems.into_iter().map(|(name, points)| Series::new(name, points)).collect()
}
