//! What FlatFlash claims in sections 3.4 and 5.1 to 5.4 and in Tables 1 to 3 (facts.md section 6, rows S1), and the
//! names of the figures that the experiments have to yield for it.
//!
//! A range of the paper stands for all settings that it shows, so that each range is two claims: our least ratio and
//! our greatest must both lie in it.

pub(super) mod memory;
pub(super) mod programs;
pub(super) mod tables;

use crate::claim::{Claim, Class, Expected, Tolerance};

const TABLE_1: &str = "Table 1";
const PAGES: &str = "UnifiedMMap's pages programmed over FlatFlash's, of all settings together";
const STAND_IN: &str =
    "a generated graph and a plain pull over its edges stand in for GraphChi and its graphs";
const PAIRS: &str = "pairs in pages stand in for Redis";

/// A measured magnitude, within a fifth.
pub(super) const fn magnitude(
    id: &'static str,
    experiment: &'static str,
    place: &'static str,
    what: &'static str,
    (paper, expected): (&'static str, Expected),
    figures: &'static [&'static str],
) -> Claim {
    Claim {
        id,
        experiment,
        place,
        what,
        paper,
        expected,
        figures,
        unit: "",
        tolerance: Tolerance::Relative(0.2),
        class: Class::Ratio,
        guest: false,
        ghost: false,
        note: "",
    }
}

/// One that depends on programs and data that are not to be had; `note` says what stands in.
const fn guest(claim: Claim, note: &'static str) -> Claim {
    Claim { guest: true, note, ..claim }
}

/// A direction.
pub(super) const fn trend(
    id: &'static str,
    experiment: &'static str,
    place: &'static str,
    what: &'static str,
    (paper, expected): (&'static str, Expected),
    figures: &'static [&'static str],
) -> Claim {
    Claim {
        tolerance: Tolerance::None,
        class: Class::Trend,
        ..magnitude(id, experiment, place, what, (paper, expected), figures)
    }
}

/// A cost of Table 2, to the digit given.
const fn constant(
    id: &'static str,
    what: &'static str,
    (paper, us): (&'static str, f64),
    figures: &'static [&'static str],
) -> Claim {
    Claim {
        unit: "µs",
        tolerance: Tolerance::Absolute(0.05),
        class: Class::Exact,
        note: "half of the last digit given",
        ..magnitude(id, "constants", "Table 2", what, (paper, Expected::Value(us)), figures)
    }
}
