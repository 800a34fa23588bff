//! A paper's claims, and the rule that turns our metrics into verdicts.
//!
//! A verdict depends only on our value, the expected value and the claim's tolerance. Bounds are
//! inclusive. A claim without metrics is unavailable, whatever its class.

use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// Class of a claim, which decides how close our value must come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Follows from the specification; must match to the digits given.
    #[serde(rename = "exact")]
    Exact,
    /// A measured magnitude: within ±20 % of a number, or inside a range extended by 20 % at each end.
    #[serde(rename = "magnitude")]
    Magnitude,
    /// A direction or an order, without a magnitude.
    #[serde(rename = "trend")]
    Trend,
    /// Parameters were fitted to this value: shown for completeness, not evidence.
    #[serde(rename = "calibrated")]
    Calibrated,
}

impl Class {
    /// The short name used in tables: `E`, `M`, `T` or `calibrate`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "E",
            Class::Magnitude => "M",
            Class::Trend => "T",
            Class::Calibrated => "calibrate",
        }
    }

    /// The name shown to readers.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Magnitude => "magnitude",
            Class::Trend => "trend",
            Class::Calibrated => "calibrated",
        }
    }
}

/// The value that the paper reports, in a form that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// Exactly this number.
    Value(f64),
    /// A range: lowest value, highest value.
    Range(f64, f64),
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
    /// Each metric of the claim is greater than the one before it.
    Rising,
}

/// How far our value may lie from the expected value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// No deviation.
    None,
    /// A fraction of the expected value: 0.2 is ±20 %.
    Relative(f64),
    /// An absolute deviation, in the claim's unit.
    Absolute(f64),
}

impl Tolerance {
    /// Allowed deviation from `value`, plus a margin of 1e-9 for rounding in the comparison.
    fn at(self, value: f64) -> f64 {
        let slack = match self {
            Tolerance::None => 0.0,
            Tolerance::Relative(share) => share * value.abs(),
            Tolerance::Absolute(slack) => slack,
        };
        slack + 1e-9 * value.abs()
    }
}

/// One claim of a paper, with everything needed to judge it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// Short name, unique in the paper; used by `--only` and in links.
    pub id: &'static str,
    /// Name of the experiment that produces the metrics.
    pub experiment: &'static str,
    /// The paper's section, figure or table that makes the claim.
    pub source: &'static str,
    /// The claim in our words.
    pub statement: &'static str,
    /// The paper's value as printed, for readers.
    pub paper: &'static str,
    /// The paper's value in comparable form.
    pub expected: Expected,
    /// Names of the metrics that are judged: one, or at least two for [`Expected::Rising`].
    pub metrics: &'static [&'static str],
    /// Unit of the metrics; empty for ratios and counts.
    pub unit: &'static str,
    /// How far our value may lie from the expected value.
    pub tolerance: Tolerance,
    /// Class of the claim.
    pub class: Class,
    /// The paper's value depends on hardware or guest software that is not available here (class H).
    pub hardware_dependent: bool,
    /// Our value comes from synthetic stand-ins for traces of the paper.
    pub synthetic: bool,
    /// The claim stands only in an earlier draft, whose text the figures of the extracted paper still
    /// carry.
    pub draft_only: bool,
    /// How the claim is read, and assumptions behind our value; empty if there are none.
    pub note: &'static str,
    /// Why the recorded results miss the claim; `None` for a claim that they meet.
    #[serde(skip)]
    pub reason: Option<Reason>,
}

/// A claim of a measured magnitude, judged within ±20 %.
pub(crate) const fn magnitude(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    (paper, expected): (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    Claim {
        id,
        experiment,
        source,
        statement,
        paper,
        expected,
        metrics,
        unit: "",
        tolerance: Tolerance::Relative(0.2),
        class: Class::Magnitude,
        hardware_dependent: false,
        synthetic: false,
        draft_only: false,
        note: "",
        reason: None,
    }
}

/// A claim of a direction or an order, judged without a tolerance.
pub(crate) const fn trend(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, experiment, source, statement, expected, metrics).held_to(Class::Trend, Tolerance::None)
}

/// Outcome of judging a claim. `results.json` has three values: a trend that holds is `inside`, one that
/// does not hold is `outside`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "VerdictResult")]
pub enum Verdict {
    /// The value is within the tolerance.
    #[serde(rename = "inside")]
    Inside,
    /// The value is beyond the tolerance.
    #[serde(rename = "outside")]
    Outside,
    /// The trend is the one claimed.
    #[serde(rename = "inside")]
    TrendHolds,
    /// The trend is not the one claimed.
    #[serde(rename = "outside")]
    TrendFails,
    /// The experiment was not run, or does not exist.
    #[serde(rename = "unavailable")]
    Unavailable,
}

/// A verdict as `results.json` has it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum VerdictResult {
    Inside,
    Outside,
    Unavailable,
}

impl From<VerdictResult> for Verdict {
    /// The verdict on a claim that is no trend.
    fn from(result: VerdictResult) -> Self {
        match result {
            VerdictResult::Inside => Self::Inside,
            VerdictResult::Outside => Self::Outside,
            VerdictResult::Unavailable => Self::Unavailable,
        }
    }
}

impl Verdict {
    /// All verdicts, in the order of the report's summary.
    pub const ALL: [Verdict; 5] =
        [Verdict::Inside, Verdict::TrendHolds, Verdict::Outside, Verdict::TrendFails, Verdict::Unavailable];

    /// The name shown to readers.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Inside => "inside",
            Verdict::Outside => "outside",
            Verdict::TrendHolds => "trend holds",
            Verdict::TrendFails => "trend does not hold",
            Verdict::Unavailable => "unavailable",
        }
    }

    /// The value in `results.json`: `inside`, `outside` or `unavailable`.
    #[must_use]
    pub fn result(self) -> &'static str {
        match self {
            Verdict::Inside | Verdict::TrendHolds => "inside",
            Verdict::Outside | Verdict::TrendFails => "outside",
            Verdict::Unavailable => "unavailable",
        }
    }

    /// The same verdict on a claim of this class.
    pub(crate) fn of(self, class: Class) -> Self {
        match (class, self) {
            (_, Self::Unavailable) => self,
            (Class::Trend, verdict) => {
                if verdict.met() {
                    Self::TrendHolds
                } else {
                    Self::TrendFails
                }
            }
            (_, verdict) => {
                if verdict.met() {
                    Self::Inside
                } else {
                    Self::Outside
                }
            }
        }
    }

    /// A mark that distinguishes the verdict without colour.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Verdict::Inside | Verdict::TrendHolds => '✓',
            Verdict::Outside | Verdict::TrendFails => '✗',
            Verdict::Unavailable => '–',
        }
    }

    /// Whether the claim was judged and missed.
    #[must_use]
    pub fn missed(self) -> bool {
        matches!(self, Verdict::Outside | Verdict::TrendFails)
    }

    /// Whether the claim was judged and met.
    #[must_use]
    pub fn met(self) -> bool {
        matches!(self, Verdict::Inside | Verdict::TrendHolds)
    }
}

/// A verdict and the distance from the expected value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Relative distance from the nearest expected value: 0 within the range, 0.1 for 10 % above, -0.1
    /// for 10 % below. `None` for an order, for a bound at 0, and without metrics.
    pub difference: Option<f64>,
}

impl Claim {
    /// Replaces class and tolerance.
    pub(crate) const fn held_to(self, class: Class, tolerance: Tolerance) -> Self {
        Self { class, tolerance, ..self }
    }

    /// Sets the unit of the metrics.
    pub(crate) const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Sets the note.
    pub(crate) const fn noted(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// States why the recorded results miss the claim.
    #[must_use]
    pub const fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Marks the claim as dependent on hardware or guest software that is not available.
    pub(crate) const fn hardware_dependent(self) -> Self {
        Self { hardware_dependent: true, ..self }
    }

    /// Marks our value as that of synthetic stand-ins for the paper's traces.
    pub(crate) const fn synthetic(self) -> Self {
        Self { synthetic: true, ..self }
    }

    /// Class in `results.json`: `H` for a claim that depends on unavailable hardware or guest software,
    /// otherwise the letter of its class. A calibrated value counts as a magnitude.
    #[must_use]
    pub fn class_letter(&self) -> &'static str {
        match self.class {
            _ if self.hardware_dependent => "H",
            Class::Calibrated => Class::Magnitude.name(),
            class => class.name(),
        }
    }

    /// Judges our values, given in the order of [`Claim::metrics`].
    #[must_use]
    pub fn judge(&self, ours: &[f64]) -> Judgement {
        let wanted = if self.expected == Expected::Rising { 2 } else { 1 };
        let (Some(&first), true) = (ours.first(), ours.len() >= wanted) else {
            return Judgement { verdict: Verdict::Unavailable, difference: None };
        };
        if ours.iter().any(|metric| !metric.is_finite()) {
            return Judgement { verdict: Verdict::Unavailable, difference: None };
        }
        let (least, most) = match self.expected {
            Expected::Value(value) => (value, value),
            Expected::Range(low, high) => (low, high),
            Expected::AtMost(most) => (f64::NEG_INFINITY, most),
            Expected::AtLeast(least) => (least, f64::INFINITY),
            Expected::Rising => {
                let rising = ours.windows(2).all(|pair| pair[0] < pair[1]);
                return Judgement { verdict: self.verdict(rising), difference: None };
            }
        };
        let nearest = first.clamp(least, most);
        let within = (first - nearest).abs() <= self.tolerance.at(nearest) || first == nearest;
        let difference = if first == nearest {
            Some(0.0)
        } else {
            (nearest != 0.0).then(|| (first - nearest) / nearest.abs())
        };
        Judgement { verdict: self.verdict(within), difference }
    }

    fn verdict(&self, met: bool) -> Verdict {
        if met { Verdict::Inside } else { Verdict::Outside }.of(self.class)
    }

    /// The tolerance as text, such as `±20 % at the ends`.
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
