//! What FlatFlash claims in sections 3.4 and 5.1 to 5.4 and in Tables 1 to 3 (facts.md section 6, rows S1), and the
//! names of the figures that the experiments have to yield for it.
//!
//! A range of the paper stands for all settings that it shows, so that each range is two claims: our least ratio and
//! our greatest must both lie in it.

pub(super) mod memory;
pub(super) mod programs;
pub(super) mod tables;

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude};

const TABLE_1: &str = "Table 1";
const PAGES: &str = "UnifiedMMap's pages programmed over FlatFlash's, of all settings together";
const STAND_IN: &str =
    "a generated graph and a plain pull over its edges stand in for GraphChi and its graphs";
const PAIRS: &str = "pairs in pages stand in for Redis";

/// A cost of Table 2, to the digit given.
const fn constant(
    id: &'static str,
    what: &'static str,
    (paper, us): (&'static str, f64),
    figures: &'static [&'static str],
) -> Claim {
    magnitude(id, "constants", "Table 2", what, (paper, Expected::Value(us)), figures)
        .held_to(Class::Exact, Tolerance::Absolute(0.05))
        .unit("µs")
        .noted("half of the last digit given")
}
