//! Compares the claims of two reports of a paper: before and after a change of the model.

use serde::Serialize;

use crate::claim::Verdict;
use crate::report::{ClaimResult, Report};

/// Our value of a claim and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct State {
    /// Our value as text.
    pub ours: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// A claim whose value, verdict or wording differs between two reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Name of the claim.
    pub id: String,
    /// Before; `None` for a new claim.
    pub before: Option<State>,
    /// After; `None` for a claim that no longer exists.
    pub after: Option<State>,
    /// A changed expectation, and the kind of reason for a claim that is now missed; otherwise empty.
    pub why: String,
}

/// The claims that differ between two reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The claims, in the order of the later report; claims that no longer exist come last.
    pub changes: Vec<Change>,
    /// Number of claims without a difference.
    pub same: usize,
    /// Names of the claims that one of the reports has no value for. They are not compared.
    pub not_run: Vec<String>,
}

/// Compares two reports of a paper. Values are compared as they are shown, to three digits.
///
/// # Errors
/// The reports are of different papers, or only one is of quick runs.
pub fn compare(before: &Report, after: &Report) -> Result<Comparison, String> {
    comparable(before, &after.paper, after.quick)?;
    let mut comparison = Comparison { changes: Vec::new(), same: 0, not_run: Vec::new() };
    for row in &after.rows {
        let old = before.rows.iter().find(|old| old.id == row.id);
        if [Some(row), old].into_iter().flatten().any(|row| row.verdict == Verdict::Unavailable) {
            comparison.not_run.push(row.id.clone());
        } else if let Some(change) = change(old, row) {
            comparison.changes.push(change);
        } else {
            comparison.same += 1;
        }
    }
    for old in before.rows.iter().filter(|old| after.rows.iter().all(|row| row.id != old.id)) {
        let why = "the claim no longer exists".into();
        comparison.changes.push(Change { id: old.id.clone(), before: Some(state(old)), after: None, why });
    }
    Ok(comparison)
}

/// Checks that an earlier report can be compared with one of this paper and size.
///
/// # Errors
/// It is of another paper, or only one is of quick runs.
pub fn comparable(before: &Report, paper: &str, quick: bool) -> Result<(), String> {
    if before.paper != paper {
        return Err(format!("these are results of {}, not of {paper}", before.paper));
    }
    match (before.quick, quick) {
        (true, false) => {
            Err("these are results of quick runs; add --quick or name results of full runs".into())
        }
        (false, true) => {
            Err("these are results of full runs; omit --quick or name results of quick runs".into())
        }
        _ => Ok(()),
    }
}

fn change(old: Option<&ClaimResult>, row: &ClaimResult) -> Option<Change> {
    let mut why = Vec::new();
    match old {
        None => why.push("a new claim".to_owned()),
        Some(old) => {
            if old.statement != row.statement || old.metrics.0.keys().ne(row.metrics.0.keys()) {
                why.push("the claim is about another quantity".into());
            }
            if (&old.paper, &old.tolerance_words, old.expected)
                != (&row.paper, &row.tolerance_words, row.expected)
            {
                why.push(format!(
                    "the paper's value was {} ({}), is {} ({})",
                    old.paper, old.tolerance_words, row.paper, row.tolerance_words
                ));
            }
        }
    }
    let (before, after) = (old.map(state), state(row));
    if why.is_empty() && before.as_ref() == Some(&after) {
        return None;
    }
    why.extend(row.reason_words().map(str::to_owned));
    Some(Change { id: row.id.clone(), before, after: Some(after), why: why.join("; ") })
}

fn state(row: &ClaimResult) -> State {
    State { ours: row.ours_words(), verdict: row.verdict }
}
