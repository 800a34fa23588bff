//! What a paper claims, and how a figure of ours is judged by it.
//!
//! A verdict compares ours with what is expected and the claim's tolerance, nothing else. Bounds belong to
//! what they bound. A claim whose figures are not there is not run, whatever its class.

use serde::Serialize;

/// How close a reproduction has to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Class {
    /// Follows from the specification: must be met to the digits given.
    #[serde(rename = "E")]
    Exact,
    /// A measured magnitude: ±20 % of a number, inside a range ±20 % at its ends.
    #[serde(rename = "M")]
    Ratio,
    /// A direction or an order.
    #[serde(rename = "T")]
    Trend,
    /// The figures that parameters were fitted to: shown, but no evidence.
    #[serde(rename = "calibrate")]
    Calibrated,
}

impl Class {
    /// As results and tables name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "E",
            Class::Ratio => "M",
            Class::Trend => "T",
            Class::Calibrated => "calibrate",
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Ratio => "magnitude",
            Class::Trend => "trend",
            Class::Calibrated => "calibrated on",
        }
    }
}

/// What the figures must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// This number.
    Value(f64),
    /// From the first to the second.
    Range(f64, f64),
    /// No more.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
    /// Each of the claim's figures greater than the one before.
    Rising,
}

/// How far off is still right.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// Not at all.
    None,
    /// A share of the expected value: 0.2 is ±20 %.
    Relative(f64),
    /// In the claim's unit.
    Absolute(f64),
}

impl Tolerance {
    /// The slack at an expected value, a little more for the rounding of the arithmetic.
    fn at(self, value: f64) -> f64 {
        let slack = match self {
            Tolerance::None => 0.0,
            Tolerance::Relative(share) => share * value.abs(),
            Tolerance::Absolute(slack) => slack,
        };
        slack + 1e-9 * value.abs()
    }
}

/// One thing that a paper says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// A short name, unique in the paper.
    pub id: &'static str,
    /// The experiment that yields its figures.
    pub experiment: &'static str,
    /// Where the paper says so.
    pub place: &'static str,
    /// What is claimed, in our words.
    pub what: &'static str,
    /// The paper's value as it gives it.
    pub paper: &'static str,
    /// The same for the judge.
    pub expected: Expected,
    /// The figures of the experiment: one, or for an order at least two.
    pub figures: &'static [&'static str],
    /// The unit of the figures; empty for ratios and counts.
    pub unit: &'static str,
    /// How far off is still right.
    pub tolerance: Tolerance,
    /// How close it has to come.
    pub class: Class,
    /// Depends on hardware or guest software that is not to be had (the H of facts.md).
    pub guest: bool,
    /// From text of an earlier draft that only the extraction of the figures carries (`[G]` of facts.md).
    pub ghost: bool,
    /// What a reader should know: reading of the claim, assumption behind it.
    pub note: &'static str,
}

/// A measured magnitude, within a fifth.
pub(crate) const fn magnitude(
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

/// A direction or an order.
pub(crate) const fn trend(
    id: &'static str,
    experiment: &'static str,
    place: &'static str,
    what: &'static str,
    expected: (&'static str, Expected),
    figures: &'static [&'static str],
) -> Claim {
    magnitude(id, experiment, place, what, expected, figures).held_to(Class::Trend, Tolerance::None)
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// Within the tolerance.
    #[serde(rename = "inside")]
    Inside,
    /// Beyond it.
    #[serde(rename = "outside")]
    Outside,
    /// The trend is as claimed.
    #[serde(rename = "trend holds")]
    Holds,
    /// It is not.
    #[serde(rename = "trend does not hold")]
    Fails,
    /// Its figures are not there.
    #[serde(rename = "not run")]
    NotRun,
}

impl Verdict {
    /// All, in the order of a summary.
    pub const ALL: [Verdict; 5] =
        [Verdict::Inside, Verdict::Holds, Verdict::Outside, Verdict::Fails, Verdict::NotRun];

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Inside => "inside",
            Verdict::Outside => "outside",
            Verdict::Holds => "trend holds",
            Verdict::Fails => "trend does not hold",
            Verdict::NotRun => "not run",
        }
    }

    /// A sign that tells it without colour.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Verdict::Inside | Verdict::Holds => '✓',
            Verdict::Outside | Verdict::Fails => '✗',
            Verdict::NotRun => '–',
        }
    }

    /// Whether the claim was judged and not met.
    #[must_use]
    pub fn missed(self) -> bool {
        matches!(self, Verdict::Outside | Verdict::Fails)
    }

    /// Whether the claim was judged and met.
    #[must_use]
    pub fn met(self) -> bool {
        matches!(self, Verdict::Inside | Verdict::Holds)
    }
}

/// A verdict with the distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Distance to the nearest expected value as a share of it: 0 within, 0.1 for 10 % above, -0.1 for
    /// 10 % below. None of an order, of a bound at 0, and where nothing was run.
    pub difference: Option<f64>,
}

impl Claim {
    /// The same, but to come so close.
    pub(crate) const fn held_to(self, class: Class, tolerance: Tolerance) -> Self {
        Self { class, tolerance, ..self }
    }

    /// The same with figures in a unit.
    pub(crate) const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// The same with a note.
    pub(crate) const fn noted(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// The same, but on hardware, programs or data that are not to be had.
    pub(crate) const fn guest(self) -> Self {
        Self { guest: true, ..self }
    }

    /// Judges figures, in the order of [`Claim::figures`].
    #[must_use]
    pub fn judge(&self, ours: &[f64]) -> Judged {
        let wanted = if self.expected == Expected::Rising { 2 } else { 1 };
        let (Some(&first), true) = (ours.first(), ours.len() >= wanted) else {
            return Judged { verdict: Verdict::NotRun, difference: None };
        };
        if ours.iter().any(|figure| !figure.is_finite()) {
            return Judged { verdict: Verdict::NotRun, difference: None };
        }
        let (least, most) = match self.expected {
            Expected::Value(value) => (value, value),
            Expected::Range(low, high) => (low, high),
            Expected::AtMost(most) => (f64::NEG_INFINITY, most),
            Expected::AtLeast(least) => (least, f64::INFINITY),
            Expected::Rising => {
                let rising = ours.windows(2).all(|pair| pair[0] < pair[1]);
                return Judged { verdict: self.words(rising), difference: None };
            }
        };
        let nearest = first.clamp(least, most);
        let within = (first - nearest).abs() <= self.tolerance.at(nearest) || first == nearest;
        let difference = if first == nearest {
            Some(0.0)
        } else {
            (nearest != 0.0).then(|| (first - nearest) / nearest.abs())
        };
        Judged { verdict: self.words(within), difference }
    }

    fn words(&self, met: bool) -> Verdict {
        match (self.class, met) {
            (Class::Trend, true) => Verdict::Holds,
            (Class::Trend, false) => Verdict::Fails,
            (_, true) => Verdict::Inside,
            (_, false) => Verdict::Outside,
        }
    }

    /// The tolerance for people.
    #[must_use]
    pub fn tolerance_words(&self) -> String {
        let ends = if matches!(self.expected, Expected::Range(..)) { " at the ends" } else { "" };
        match (self.expected, self.tolerance) {
            (Expected::Rising, _) => "order".into(),
            (_, Tolerance::None) => if self.class == Class::Trend { "direction" } else { "none" }.into(),
            (_, Tolerance::Relative(share)) => {
                format!("±{} %{ends}", crate::number::plain(share * 100.0))
            }
            (_, Tolerance::Absolute(slack)) => {
                format!("±{} {}{ends}", crate::number::plain(slack), self.unit).trim_end().into()
            }
        }
    }
}
