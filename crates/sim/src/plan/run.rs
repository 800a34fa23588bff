//! Simulates the hierarchies of a plan, several at once, and puts the plan together.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use deepram_core::units::Bytes;
use deepram_media::Registry;
use deepram_trace::{Item, ObjectPlacement, TraceError};

use super::choice::{Choice, settle};
use super::figures::{Figures, Prices};
use super::goal::Goals;
use super::grid::{Point, Use, grid};
use super::layout::Layout;
use super::profile::Profile;
use super::sample::Sample;
use super::{Estimate, front};
use crate::error::SimError;
use crate::run::{RunOptions, requests, run};

/// Opens the trace; called once for each pass over it.
pub type TraceSource<'a> =
    dyn Fn() -> Result<Box<dyn Iterator<Item = Result<Item, TraceError>>>, TraceError> + Sync + 'a;

/// Part of the requests, from the first on, that fill the caches and are not measured: one of this many.
const WARM_UP_PART: u64 = 5;

/// Options of a plan.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// The goals; without any, nothing is chosen.
    pub goals: Goals,
    /// The use of the requests; `None` for memory if the trace has loads and stores, storage otherwise.
    pub of: Option<Use>,
    /// Data that the hierarchies hold; `None` for the distinct pages of the trace.
    pub data: Option<Bytes>,
    /// Prices of memory.
    pub prices: Prices,
    /// Requests with which all hierarchies are simulated; 0 for the whole trace.
    pub sample: u64,
    /// Threads of a trace without arrival times.
    pub threads: u32,
    /// Ignores arrival times: the next request comes when one has completed.
    pub closed: bool,
    /// Places of the objects of an object trace.
    pub objects: ObjectPlacement,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Simultaneous simulations; 0 counts as 1.
    pub jobs: usize,
}

/// Progress of [`plan`].
#[derive(Debug, Clone, Copy)]
pub enum PlanProgress {
    /// This many simulations were added to those to do.
    Added(usize),
    /// A simulation has finished.
    Finished,
}

/// The largest deviations of the sample's figures from those of the whole trace, over the hierarchies that
/// were simulated with both, as shares of the latter.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct SampleError {
    /// Hierarchies simulated with both.
    pub hierarchies: usize,
    /// Of the mean latency.
    pub mean: f64,
    /// Of the 99th percentile of the latency.
    pub p99: f64,
    /// Of the energy of a request.
    pub energy: f64,
}

/// A plan.
#[derive(Debug)]
pub struct Plan {
    /// The trace.
    pub profile: Profile,
    /// The use that the plan is for.
    pub of: Use,
    /// Data that the hierarchies hold.
    pub data: Bytes,
    /// The hierarchies.
    pub points: Vec<Point>,
    /// The figures of each.
    pub estimates: Vec<Estimate>,
    /// Positions of the Pareto front.
    pub front: Vec<usize>,
    /// The choice, if there are goals.
    pub choice: Option<Choice>,
    /// Requests of the sample; all of the trace's if the sample is the whole.
    pub sample_requests: u64,
    /// Requests of a whole run that are not measured.
    pub warm_up: u64,
    /// The error of the sample; `None` if no hierarchy was simulated with a sample and the whole.
    pub sample_error: Option<SampleError>,
    /// Whether the addresses of the trace were laid out anew.
    pub new_layout: bool,
}

/// Makes a plan for a trace.
///
/// # Errors
/// The trace cannot be read, has no reads and writes, or does not fit in the hierarchies; a simulation
/// fails.
pub fn plan(
    registry: &Registry,
    trace: &TraceSource<'_>,
    options: &PlanOptions,
    progress: &(dyn Fn(PlanProgress) + Sync),
) -> Result<Plan, SimError> {
    let profile = Profile::of(trace()?, options.objects)?;
    let default_use = if profile.memory_references { Use::Memory } else { Use::Storage };
    let of = options.of.unwrap_or(default_use);
    let data = options.data.unwrap_or(profile.data());
    if data < profile.data() {
        let why = format!("{data} are less than the data of the trace, {}", profile.data());
        return Err(SimError::config("data", why));
    }
    let points = grid(registry, &profile, of, data, &options.prices)?;
    let smallest = points.iter().map(|point| point.capacity.0).min().unwrap_or(0);
    let layout = profile.pieces.layout(smallest).ok_or_else(|| {
        let pieces = Bytes(profile.pieces.bytes());
        let why = format!("uses {pieces} in pieces of 256 KiB; the smallest device has {}", Bytes(smallest));
        SimError::config("trace", why)
    })?;
    let simulator = Simulator { registry, trace, options, layout: &layout, points: &points, progress };
    let sample = Sample::new(profile.requests, options.sample);
    let all: Vec<usize> = (0..points.len()).collect();
    let sampled = simulator.measure(&all, sample)?;
    let whole = |figures| sample.is_whole().then_some(figures);
    let mut estimates: Vec<Estimate> =
        sampled.into_iter().map(|f| Estimate { sampled: f, whole: whole(f) }).collect();
    let everything = Sample::whole(profile.requests);
    let choice = (!options.goals.is_empty())
        .then(|| settle(&mut estimates, &options.goals, |at| simulator.measure(at, everything)))
        .transpose()?;
    let figures: Vec<Figures> = estimates.iter().map(|estimate| *estimate.figures()).collect();
    Ok(Plan {
        of,
        data,
        front: front(&figures),
        sample_error: (!sample.is_whole()).then(|| sample_error(&estimates)).flatten(),
        sample_requests: sample.requests(),
        warm_up: everything.requests() / WARM_UP_PART,
        new_layout: layout.is_new(),
        profile,
        points,
        estimates,
        choice,
    })
}

fn sample_error(estimates: &[Estimate]) -> Option<SampleError> {
    let both: Vec<(Figures, Figures)> =
        estimates.iter().filter_map(|estimate| Some((estimate.sampled, estimate.whole?))).collect();
    let largest = |of: fn(&Figures) -> f64| {
        both.iter().map(|(sampled, whole)| (of(sampled) / of(whole) - 1.0).abs()).fold(0.0, f64::max)
    };
    (!both.is_empty()).then(|| SampleError {
        hierarchies: both.len(),
        mean: largest(|f| f.mean_ns),
        p99: largest(|f| f.p99_ns),
        energy: largest(|f| f.energy_nj),
    })
}

/// Simulates hierarchies under a trace.
struct Simulator<'a> {
    registry: &'a Registry,
    trace: &'a TraceSource<'a>,
    options: &'a PlanOptions,
    layout: &'a Layout,
    points: &'a [Point],
    progress: &'a (dyn Fn(PlanProgress) + Sync),
}

impl Simulator<'_> {
    /// The figures of the hierarchies at `positions` under a sample of the trace.
    fn measure(&self, positions: &[usize], sample: Sample) -> Result<Vec<Figures>, SimError> {
        (self.progress)(PlanProgress::Added(positions.len()));
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<Result<Figures, SimError>>>> =
            positions.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.clamp(1, positions.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(&position), Some(slot)) = (positions.get(at), results.get(at)) else {
                            return;
                        };
                        let result = self.simulate(&self.points[position], sample);
                        if result.is_err() {
                            // No further simulation starts.
                            next.store(positions.len(), Ordering::Relaxed);
                        }
                        *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
                        (self.progress)(PlanProgress::Finished);
                    }
                });
            }
        });
        let mut figures = Vec::new();
        let mut unfinished = false;
        for slot in results {
            match slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
                Some(result) => figures.push(result?),
                None => unfinished = true,
            }
        }
        if unfinished {
            return Err(SimError::config("plan", "a simulation did not finish"));
        }
        Ok(figures)
    }

    fn simulate(&self, point: &Point, sample: Sample) -> Result<Figures, SimError> {
        let mut options = RunOptions { seed: self.options.seed, ..RunOptions::default() };
        options.host.threads = self.options.threads;
        options.host.closed = self.options.closed;
        options.host.warm_up = sample.requests() / WARM_UP_PART;
        let layout = self.layout;
        let placed = requests((self.trace)()?, self.options.objects)
            .map(|request| request.map(|request| layout.place(request)));
        let result = run(self.registry, &point.config, sample.of(placed), &options)?;
        Ok(point.parts.figures(&result, &self.options.prices))
    }
}
