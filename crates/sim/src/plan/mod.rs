//! From a trace to a decision: which memory hierarchy keeps the goals at the least price.
//!
//! [`plan`] takes these steps:
//!
//! 1. One pass over the trace gives its [`Profile`]: its use, its data, and the DRAM sizes that raise the hit
//!    ratio.
//! 2. [`grid()`] lists the hierarchies that fit the trace.
//! 3. Each is simulated with a sample of the trace ([`sample`]), or with the whole trace if it is short.
//! 4. [`settle`] chooses the cheapest hierarchy that keeps the goals. It simulates the chosen one and its
//!    neighbours with the whole trace and chooses again, until the choice rests on whole runs.
//! 5. [`front`] is the Pareto front of latency, energy, lifetime and price.
//!
//! Equal inputs give equal plans, whatever the number of threads.

mod choice;
mod figures;
pub mod goal;
mod grid;
mod layout;
mod pareto;
mod profile;
mod run;
pub mod sample;

pub use choice::{CHEAPER_NEIGHBOURS, Choice, Rejected, choose, settle};
pub use figures::{Figures, Parts, Prices, Store};
pub use goal::{Goals, Metric, Shortfall};
pub use grid::{Point, Use, grid};
pub use pareto::{dominates, front};
pub use profile::{DramSize, Profile};
pub use run::{Plan, PlanOptions, PlanProgress, SampleError, TraceSource, plan};

/// The figures of a hierarchy from a sample of the trace and from the whole trace; one of them at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Figures from the sample, or from the whole trace if the sample is the whole.
    pub sampled: Figures,
    /// Figures from the whole trace.
    pub whole: Option<Figures>,
}

impl Estimate {
    /// The best figures that there are: those of the whole trace if it was simulated.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        self.whole.as_ref().unwrap_or(&self.sampled)
    }
}
