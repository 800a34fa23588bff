//! A plan as text for a terminal.

use std::fmt::Write as _;

use deepram_sim::plan::goal::{show_time, three_digits};
use deepram_sim::plan::{Figures, Plan, Rejected, Use};

use super::Described;
use crate::output::{Table, count, pairs, size};

/// Rejected hierarchies that are listed without a choice.
const NEAREST: usize = 3;

/// Headings of the table of hierarchies.
pub(super) const HEADINGS: [&str; 10] =
    ["", "<system", "<store", "<in front", "mean", "p99", "nJ/request", "W", "years", "USD"];

/// The sign of a hierarchy in tables: `>` for the chosen one, `*` for those of the Pareto front.
pub(super) fn sign(plan: &Plan, at: usize) -> &'static str {
    let chosen = plan.choice.as_ref().and_then(|choice| choice.chosen);
    match chosen == Some(at) {
        true => ">",
        false if plan.front.contains(&at) => "*",
        false => "",
    }
}

/// A row of the table of hierarchies; `~` marks figures of a sample.
pub(super) fn row(plan: &Plan, at: usize) -> Vec<String> {
    let (point, estimate) = (&plan.points[at], &plan.estimates[at]);
    let Figures { mean_ns, p99_ns, energy_nj, watts, years, usd } = *estimate.figures();
    let about = if estimate.whole.is_some() { "" } else { "~" };
    vec![
        sign(plan, at).into(),
        point.config.system.name().into(),
        point.store.clone(),
        point.memory.clone(),
        format!("{about}{}", show_time(mean_ns)),
        format!("{about}{}", show_time(p99_ns)),
        format!("{about}{}", three_digits(energy_nj)),
        format!("{about}{}", three_digits(watts)),
        years.map_or_else(|| "–".into(), |years| format!("{about}{}", lifetime(years))),
        format!("{usd:.2}"),
    ]
}

fn lifetime(years: f64) -> String {
    if years >= 100.0 { "> 100".into() } else { three_digits(years) }
}

/// The facts of the trace and of the runs, as label and value.
pub(super) fn facts(described: &Described<'_>) -> Vec<(&'static str, String)> {
    let Described { plan, trace, .. } = described;
    let profile = &plan.profile;
    let of = match plan.of {
        Use::Memory => "memory",
        Use::Storage => "storage",
    };
    let mut facts = vec![
        ("trace", trace.clone()),
        (
            "requests",
            format!(
                "{}, {:.1}% writes, {} of traffic",
                count(profile.requests),
                profile.write_share * 100.0,
                size(profile.traffic_bytes)
            ),
        ),
        ("data", format!("{} in distinct pages, planned as {of} of {}", profile.data(), plan.data)),
    ];
    if plan.of == Use::Memory {
        let sizes: Vec<String> = profile
            .dram
            .iter()
            .map(|dram| format!("{} {:.1}%", size(dram.bytes), dram.hit_ratio * 100.0))
            .collect();
        facts.push(("DRAM sizes", format!("LRU hit ratios {}", sizes.join(", "))));
    }
    let whole = plan.estimates.iter().filter(|estimate| estimate.whole.is_some()).count();
    let runs = if plan.sample_requests == profile.requests {
        format!("{} hierarchies, with the whole trace", plan.points.len())
    } else {
        format!(
            "{} hierarchies, with a sample of {} requests (~); {whole} also with the whole trace",
            plan.points.len(),
            count(plan.sample_requests)
        )
    };
    facts.push(("simulated", format!("{runs}; the first fifth of the requests warms up")));
    if let Some(error) = plan.sample_error {
        facts.push((
            "sample",
            format!(
                "off by at most {:.0}% in the mean, {:.0}% in p99, {:.0}% in energy, over {} hierarchies",
                error.mean * 100.0,
                error.p99 * 100.0,
                error.energy * 100.0,
                error.hierarchies
            ),
        ));
    }
    if plan.new_layout {
        facts.push(("addresses", "laid out anew, in pieces of 256 KiB in the order of the trace's".into()));
    }
    facts
}

/// The choice and the reasons against cheaper hierarchies, a sentence each; empty without goals.
pub(super) fn decision(described: &Described<'_>) -> Vec<String> {
    let Described { plan, trace, options } = described;
    let Some(choice) = &plan.choice else { return Vec::new() };
    let name =
        |at: usize| format!("{} ({:.2} USD)", plan.points[at].name(), plan.estimates[at].figures().usd);
    let reasons = |rejected: &Rejected| {
        let missed: Vec<String> = rejected.missed.iter().map(ToString::to_string).collect();
        format!("{}: {}", name(rejected.point), missed.join("; "))
    };
    let Some(chosen) = choice.chosen else {
        let mut lines = vec!["No hierarchy keeps all goals. The nearest:".to_owned()];
        lines.extend(choice.rejected.iter().take(NEAREST).map(reasons));
        return lines;
    };
    let mut lines = vec![format!("The cheapest hierarchy that keeps all goals: {}.", name(chosen))];
    match choice.rejected.first() {
        Some(next) => lines.push(format!("The next cheaper one fails. {}.", reasons(next))),
        None => lines.push("No simulated hierarchy is cheaper.".into()),
    }
    let sim = plan.points[chosen].sim_options().filter(|_| !plan.new_layout);
    if let Some(sim) = sim {
        let mut command = format!("deepram sim {sim} --trace {trace} --warm-up {}", plan.warm_up);
        if options.threads > 1 {
            let _ = write!(command, " --threads {}", options.threads);
        }
        if options.closed {
            command.push_str(" --closed");
        }
        if options.seed != 1 {
            let _ = write!(command, " --seed {}", options.seed);
        }
        lines.push(format!("To simulate it again: {command}"));
    }
    lines
}

/// The order of the table: by price, then by latency.
pub(super) fn by_price(plan: &Plan, mut positions: Vec<usize>) -> Vec<usize> {
    positions.sort_by(|&a, &b| {
        let (a, b) = (plan.estimates[a].figures(), plan.estimates[b].figures());
        a.usd.total_cmp(&b.usd).then(a.mean_ns.total_cmp(&b.mean_ns))
    });
    positions
}

/// The whole plan: facts, Pareto front, choice.
pub(super) fn text(described: &Described<'_>) -> String {
    let plan = described.plan;
    let mut table = Table::new(&HEADINGS);
    let mut shown = plan.front.clone();
    let chosen = plan.choice.as_ref().and_then(|choice| choice.chosen);
    shown.extend(chosen.filter(|chosen| !plan.front.contains(chosen)));
    by_price(plan, shown).into_iter().for_each(|at| table.row(row(plan, at)));
    let mut text = pairs(&facts(described));
    let _ = write!(text, "\nPareto front of latency, energy, lifetime and price:\n\n{}", table.render());
    let decision = decision(described);
    if !decision.is_empty() {
        let _ = write!(text, "\n{}\n", decision.join("\n"));
    }
    text
}
