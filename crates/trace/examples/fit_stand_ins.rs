//! Fits the stand-ins for the hybrid SSD cache paper's traces to its published characterisation, and prints their
//! parameters as `src/workload/standin/parameters.rs` has them. `cargo run --release -p deepram-trace --example
//! fit_stand_ins [trace...]`; `--check` only prints goals and values of the committed parameters.
//!
//! The search begins at the committed parameters. It changes one parameter at a time by a step, then all at once by random
//! parts of their steps, keeps what lowers the loss, and halves the steps when nothing does. A trial has at most [`TRIAL`] requests. Hit ratios of so few requests differ from
//! those of the whole stand-in, so the whole is characterised before each round, and the goals of the trials are shifted by
//! the difference. Of all rounds the parameters with the least loss of the whole stand-in are printed. All seeds are fixed:
//! the same program prints the same parameters on every machine.

use deepram_trace::characterize::CharacterizeError;
use deepram_trace::workload::Rng;
use deepram_trace::workload::standin::fit::{Measured, SEED, characterize, locality, loss, table_iii};
use deepram_trace::workload::standin::{Model, PARAMETERS, PUBLISHED, PublishedTrace, StandIn};

/// Requests of a trial.
const TRIAL: u64 = 200_000;
/// Rounds of search, each with goals shifted anew.
const ROUNDS: usize = 3;
/// Trials of a round, at most.
const TRIALS: usize = 600;
/// Random directions that are tried before the steps are halved.
const DIRECTIONS: usize = 30;
/// Smallest steps, in parts of the first ones.
const LEAST_STEP: f64 = 1.0 / 16.0;

/// First steps of the parameters in the order of [`Model::values`]; that of the hot pages is relative.
const STEPS: [f64; PARAMETERS] = {
    let mut steps = [0.08; PARAMETERS];
    steps[12] = 0.3;
    steps[13] = 0.1;
    steps
};

fn measured(
    trace: &'static PublishedTrace,
    model: Model,
    most: u64,
) -> Result<Vec<Measured>, CharacterizeError> {
    Ok(locality(trace, &characterize(StandIn::with_model(trace, model, SEED), most)?))
}

/// The loss of a trial whose values are shifted by the differences between whole and trial.
fn trial_loss(
    trace: &'static PublishedTrace,
    model: Model,
    shifts: &[f64],
) -> Result<f64, CharacterizeError> {
    let mut trial = measured(trace, model, TRIAL)?;
    for (one, shift) in trial.iter_mut().zip(shifts) {
        one.value += shift;
    }
    Ok(loss(&trial))
}

/// A parameter after a step.
fn moved(at: usize, value: f64, step: f64) -> f64 {
    if at == 12 { value * (1.0 + step) } else { value + step }
}

/// The parameters with one of them a step further.
fn stepped(model: &Model, at: usize, step: f64) -> Model {
    let mut values = model.values();
    values[at] = moved(at, values[at], step);
    Model::nearest(&values)
}

/// Searches from `model` under these shifts.
fn search(
    trace: &'static PublishedTrace,
    mut model: Model,
    shifts: &[f64],
    mut scale: f64,
) -> Result<Model, CharacterizeError> {
    let mut least = trial_loss(trace, model, shifts)?;
    let mut trials = 1;
    let mut rng = Rng::new(SEED, "directions");
    while scale >= LEAST_STEP && trials < TRIALS {
        let mut lowered = false;
        for (at, step) in STEPS.iter().enumerate() {
            for step in [step * scale, -step * scale] {
                let candidate = stepped(&model, at, step);
                if candidate == model {
                    continue;
                }
                let found = trial_loss(trace, candidate, shifts)?;
                trials += 1;
                if found < least {
                    (model, least, lowered) = (candidate, found, true);
                    break;
                }
            }
        }
        for _ in 0..if lowered { 0 } else { DIRECTIONS } {
            let values = model.values();
            let steps = STEPS.map(|step| step * scale * (2.0 * rng.unit() - 1.0));
            let candidate = Model::nearest(&std::array::from_fn(|at| moved(at, values[at], steps[at])));
            let found = trial_loss(trace, candidate, shifts)?;
            trials += 1;
            if found < least {
                (model, least, lowered) = (candidate, found, true);
                break;
            }
        }
        if !lowered {
            scale /= 2.0;
        }
    }
    eprintln!("{}: {trials} trials, loss {least:.3}", trace.trace);
    Ok(model)
}

/// The parameters of least loss, with the loss.
fn fit(trace: &'static PublishedTrace) -> Result<(Model, f64), CharacterizeError> {
    let mut model = trace.fitted().model;
    let mut best: Option<(Model, f64)> = None;
    for round in 0..=ROUNDS {
        let whole = measured(trace, model, u64::MAX)?;
        let found = loss(&whole);
        eprintln!("{}: round {round}, loss of the whole {found:.3}", trace.trace);
        if best.is_none_or(|(_, least)| found < least) {
            best = Some((model, found));
        }
        if round < ROUNDS {
            let trial = measured(trace, model, TRIAL)?;
            let shifts: Vec<f64> =
                whole.iter().zip(&trial).map(|(whole, trial)| whole.value - trial.value).collect();
            model = search(trace, model, &shifts, if round == 0 { 1.0 } else { 0.25 })?;
        }
    }
    Ok(best.unwrap_or((model, f64::INFINITY)))
}

/// The line of `parameters.rs`.
fn line(trace: &PublishedTrace, model: &Model, loss: f64) -> String {
    let values = model.values();
    let list = |part: &[f64]| part.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
    let (read, write) = (list(&values[..6]), list(&values[6..12]));
    format!(
        "    fitted(\"{}\", [{read}], [{write}], {}, {:?}, {loss:?}),",
        trace.trace, model.hot_pages, model.theta
    )
}

/// Prints goals and values of the committed parameters.
fn check(trace: &'static PublishedTrace) -> Result<(), CharacterizeError> {
    let report = characterize(StandIn::new(trace, SEED), u64::MAX)?;
    let locality = locality(trace, &report);
    println!("{}: loss {:?}, committed {:?}", trace.trace, loss(&locality), trace.fitted().loss);
    for one in table_iii(trace, &report).iter().chain(&locality) {
        let met = if one.is_met() { "" } else { "  outside" };
        println!("  {:<36} {:>14.3} {:>14.3}{met}", one.what, one.goal, one.value);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|text| text.starts_with("--"));
    if let Some(unknown) = options.iter().find(|option| *option != "--check") {
        return Err(format!("there is no option {unknown}; there is --check").into());
    }
    if let Some(unknown) = names.iter().find(|name| PublishedTrace::named(name).is_none()) {
        let known = PUBLISHED.each_ref().map(|trace| trace.trace).join(", ");
        return Err(format!("there is no trace {unknown}; there are {known}").into());
    }
    for trace in &PUBLISHED {
        if !names.is_empty() && !names.iter().any(|name| name == trace.trace) {
            continue;
        }
        if options.is_empty() {
            let (model, loss) = fit(trace)?;
            println!("{}", line(trace, &model, loss));
        } else {
            check(trace)?;
        }
    }
    Ok(())
}
