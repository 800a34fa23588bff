//! Claims of the FlatFlash paper, sections 3.4 and 5.1 to 5.6 and Tables 1 to 3, and the names of the
//! metrics that judge them.
//!
//! A range in the paper covers all settings of an experiment. It becomes two claims: our least and our
//! greatest ratio must both lie in the range.

pub(super) mod memory;
pub(super) mod persistence;
pub(super) mod programs;
mod reasons;
pub(super) mod tables;

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude};

const TABLE_1: &str = "Table 1";
const PAGES: &str = "Flash pages programmed by UnifiedMMap over those of FlatFlash, summed over all \
                     settings.";
const STAND_IN: &str =
    "A generated graph and a simple pull over its edges stand in for GraphChi and its graphs.";
const PAIRS: &str = "Key-value pairs stored in pages stand in for Redis.";

/// A cost in Table 2, exact to the digit given.
const fn constant(
    id: &'static str,
    statement: &'static str,
    (paper, us): (&'static str, f64),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, "constants", "Table 2", statement, (paper, Expected::Value(us)), metrics)
        .held_to(Class::Exact, Tolerance::Absolute(0.05))
        .unit("µs")
        .noted("Tolerance: half of the last digit given.")
}
