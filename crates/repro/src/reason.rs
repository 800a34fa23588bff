//! Reasons for missed claims, stated beside the claims.
//!
//! A reason belongs to a claim that the recorded results miss. The report shows the reason only while the claim is
//! missed.

use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::number::list_with_unit;
use crate::report::Report;
use crate::sensitivity::{RangeEnd, SensitivityResult};
use crate::simulation_run::Metrics;

/// Reason for a missed claim. The texts are sentences of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Our model departs from the text: how, and why.
    ModelDeparts(&'static str),
    /// The paper leaves a choice open. The report shows our values at the two ends of the choice.
    LeftOpen {
        /// The choice, as a noun phrase: `the number of clients`.
        choice: &'static str,
        /// Source of our values at the two ends.
        ends: Ends,
    },
    /// The paper contradicts itself.
    ContradictsItself {
        /// A short quotation.
        quote: &'static str,
        /// The calculation that gives another value, as a sentence.
        arithmetic: &'static str,
    },
    /// The value depends on something that cannot be had: what is missing.
    CannotBeHad(&'static str),
}

/// Source of our values at the two ends of an open choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The claim's metrics at the low and the high end of this parameter of the sensitivity study.
    Parameter(&'static str),
    /// Two readings, each with the metrics of the claim's experiment that take the place of the claim's metrics.
    Readings([(&'static str, &'static [&'static str]); 2]),
}

/// Kind of a [`Reason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// [`Reason::ModelDeparts`].
    ModelDeparts,
    /// [`Reason::LeftOpen`].
    LeftOpen,
    /// [`Reason::ContradictsItself`].
    ContradictsItself,
    /// [`Reason::CannotBeHad`].
    CannotBeHad,
}

impl ReasonKind {
    /// The kind as readers see it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ModelDeparts => "our model departs from the text",
            Self::LeftOpen => "the paper leaves open",
            Self::ContradictsItself => "the paper contradicts itself",
            Self::CannotBeHad => "cannot be had",
        }
    }
}

/// Shown for a missed claim without a reason.
pub const NO_REASON: &str = "no reason recorded";

/// A reason as the report states it, our values included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatedReason {
    /// Its kind.
    pub kind: ReasonKind,
    /// Its text.
    pub text: String,
}

impl Reason {
    /// Kind of the reason.
    #[must_use]
    pub fn kind(&self) -> ReasonKind {
        match self {
            Self::ModelDeparts(_) => ReasonKind::ModelDeparts,
            Self::LeftOpen { .. } => ReasonKind::LeftOpen,
            Self::ContradictsItself { .. } => ReasonKind::ContradictsItself,
            Self::CannotBeHad(_) => ReasonKind::CannotBeHad,
        }
    }

    /// The part of the text that does not depend on our values.
    fn words(&self) -> String {
        match self {
            Self::ModelDeparts(text) | Self::CannotBeHad(text) => (*text).into(),
            Self::ContradictsItself { quote, arithmetic } => format!("“{quote}” {arithmetic}"),
            Self::LeftOpen { choice, .. } => format!("{choice}."),
        }
    }

    /// States the reason for `claim`. `metrics` are those of the claim's experiment, `study` is the sensitivity study
    /// if it was run.
    ///
    /// # Errors
    /// The name of the metric or parameter that is missing.
    pub(crate) fn state(
        &self,
        claim: &Claim,
        metrics: &Metrics,
        study: Option<&SensitivityResult>,
    ) -> Result<StatedReason, String> {
        let mut text = self.words();
        match *self {
            Self::LeftOpen { ends: Ends::Readings([one, other]), .. } => {
                let at = |(words, names): (&str, &[&str])| end(claim, words, metrics, names);
                text.push_str(&format!(" {}; {}.", at(one)?, at(other)?));
            }
            Self::LeftOpen { ends: Ends::Parameter(key), .. } => match study {
                None => text.push_str(" The sensitivity study, which has both ends, was not run."),
                Some(study) => {
                    let row = study.rows.iter().find(|row| row.parameter.key == key);
                    let row = row.ok_or_else(|| format!("parameter {key} of the sensitivity study"))?;
                    let at = |range: &RangeEnd| end(claim, &range.value, &range.metrics, claim.metrics);
                    text.push_str(&format!(" {}; {}.", at(&row.low)?, at(&row.high)?));
                }
            },
            Self::ModelDeparts(_) | Self::ContradictsItself { .. } | Self::CannotBeHad(_) => {}
        }
        Ok(StatedReason { kind: self.kind(), text })
    }
}

/// Compares the reasons beside claims with recorded results: one line for each missed claim without a reason, for each
/// claim that is met and has a reason, and for each claim or reason that the record has otherwise.
#[must_use]
pub fn disagreements(claims: &[Claim], record: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    for claim in claims {
        let id = claim.id;
        let Some(row) = record.rows.iter().find(|row| row.id == id) else {
            wrong.push(format!("{id} is not in the record: record the results anew"));
            continue;
        };
        match (&claim.reason, &row.reason) {
            (None, _) if row.verdict.missed() => wrong.push(format!("{id} is missed: state a reason")),
            (Some(_), _) if !row.verdict.missed() => {
                wrong.push(format!("{id} is {}: remove its reason", row.verdict.words()));
            }
            (Some(reason), stated) => {
                let recorded = |stated: &StatedReason| {
                    stated.kind == reason.kind() && stated.text.starts_with(&reason.words())
                };
                if !stated.as_ref().is_some_and(recorded) {
                    wrong.push(format!("{id} has another reason in the record: record the results anew"));
                }
            }
            (None, _) => {}
        }
    }
    let gone = record.rows.iter().filter(|row| claims.iter().all(|claim| claim.id != row.id));
    wrong.extend(gone.map(|row| format!("{} is only in the record: record the results anew", row.id)));
    wrong
}

/// Our values at one end of an open choice, with their verdict.
fn end(claim: &Claim, words: &str, metrics: &Metrics, names: &[&str]) -> Result<String, String> {
    let value = |name: &&str| metrics.0.get(*name).copied().ok_or_else(|| format!("metric {name}"));
    let values = names.iter().map(value).collect::<Result<Vec<f64>, String>>()?;
    let verdict = claim.judge(&values).verdict.words();
    Ok(format!("{words}: {} ({verdict})", list_with_unit(&values, claim.unit)))
}
