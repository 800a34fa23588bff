//! What FlatFlash claims in sections 5.1 to 5.4 and 5.7 and in Tables 1 to 3 (facts.md section 6, rows S1), and the
//! names of the figures that the experiments have to yield for it.

use crate::claim::{Claim, Class, Expected, Tolerance};

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

/// A number that follows from others that the paper gives.
pub(super) const fn exact(
    id: &'static str,
    experiment: &'static str,
    place: &'static str,
    what: &'static str,
    (paper, value): (&'static str, f64),
    figures: &'static [&'static str],
) -> Claim {
    Claim {
        tolerance: Tolerance::None,
        class: Class::Exact,
        ..magnitude(id, experiment, place, what, (paper, Expected::Value(value)), figures)
    }
}

/// The claims.
pub(super) const CLAIMS: &[Claim] = &[exact(
    "cost-identity",
    "cost",
    "Table 3",
    "Rows whose cost-effectiveness is the saving over the slowdown, to the digit given",
    ("8 of 8", 8.0),
    &["cost.rows_right"],
)];
