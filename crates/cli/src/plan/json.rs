//! A plan as one JSON object.

use deepram_sim::plan::{Choice, Estimate, Figures, Goals, Parts, Prices, Profile, SampleError, Use};
use serde::Serialize;

use super::Described;

#[derive(Serialize)]
pub(super) struct PlanJson<'a> {
    version: &'static str,
    trace: &'a str,
    profile: &'a Profile,
    planned_as: Use,
    data_bytes: u64,
    goals: &'a Goals,
    prices_usd_per_gb: Prices,
    seed: u64,
    threads: u32,
    closed: bool,
    sample_requests: u64,
    sample_error: Option<SampleError>,
    warm_up_requests: u64,
    new_layout: bool,
    hierarchies: Vec<PointJson<'a>>,
    /// The positions in `hierarchies` of the Pareto front.
    front: &'a [usize],
    choice: Option<&'a Choice>,
}

#[derive(Serialize)]
struct PointJson<'a> {
    system: &'static str,
    store: &'a str,
    memory: &'a str,
    /// Options of `deepram sim`; null if it cannot simulate the hierarchy as the plan does.
    sim_options: Option<String>,
    parts: Parts,
    /// Whether the figures are those of the whole trace, not of a sample.
    whole_trace: bool,
    #[serde(flatten)]
    figures: Figures,
}

pub(super) fn json<'a>(described: &'a Described<'a>) -> PlanJson<'a> {
    let Described { plan, trace, options } = described;
    let point = |(point, estimate): (&'a deepram_sim::plan::Point, &Estimate)| PointJson {
        system: point.config.system.name(),
        store: &point.store,
        memory: &point.memory,
        sim_options: point.sim_options(),
        parts: point.parts,
        whole_trace: estimate.whole.is_some(),
        figures: *estimate.figures(),
    };
    PlanJson {
        version: env!("CARGO_PKG_VERSION"),
        trace,
        profile: &plan.profile,
        planned_as: plan.of,
        data_bytes: plan.data.0,
        goals: &options.goals,
        prices_usd_per_gb: options.prices,
        seed: options.seed,
        threads: options.threads,
        closed: options.closed,
        sample_requests: plan.sample_requests,
        sample_error: plan.sample_error,
        warm_up_requests: plan.warm_up,
        new_layout: plan.new_layout,
        hierarchies: plan.points.iter().zip(&plan.estimates).map(point).collect(),
        front: &plan.front,
        choice: plan.choice.as_ref(),
    }
}
