//! Reasons for missed claims: what each kind states, and where the report shows it.

use deepram_repro::{Ends, Options, Paper, Reason, ReasonKind, Report, ReproError, html, reproduce};

use crate::common::{SETTINGS, counting, small};

const MISSED: &str = "sum-outside";
const MET: &str = "sum-inside";

/// The small paper with a reason for one of its claims.
fn with_reason(id: &str, reason: Reason) -> Paper {
    let (_, hook) = counting();
    let mut paper = small(&hook, true);
    let claim = paper.claims.iter_mut().find(|claim| claim.id == id).expect("the claim exists");
    *claim = claim.clone().because(reason);
    paper
}

fn reproduced(paper: &Paper, only: &[&str]) -> Result<Report, ReproError> {
    let out = tempfile::tempdir().unwrap();
    let only = only.iter().map(|id| (*id).into()).collect();
    reproduce(paper, &SETTINGS, &Options { out: out.path().into(), only, jobs: 1 }, &|_| {})
}

/// Kind and text of the reason for a claim.
fn stated(report: &Report, id: &str) -> Option<(ReasonKind, String)> {
    let row = report.rows.iter().find(|row| row.id == id).expect("a row for each claim");
    row.reason.clone().map(|reason| (reason.kind, reason.text))
}

#[test]
fn each_kind_states_its_text() {
    let readings = [("the first two", &["square.2"][..]), ("all of them", &["sum"][..])];
    for (reason, kind, text) in [
        (Reason::ModelDeparts("We add."), ReasonKind::ModelDeparts, "We add."),
        (
            Reason::CannotBeHad("The traces are not available."),
            ReasonKind::CannotBeHad,
            "The traces are not available.",
        ),
        (
            Reason::ContradictsItself { quote: "eighty", arithmetic: "1 + 4 + 9 + 16 is 30." },
            ReasonKind::ContradictsItself,
            "“eighty” 1 + 4 + 9 + 16 is 30.",
        ),
        (
            Reason::LeftOpen { choice: "the squares", ends: Ends::Readings(readings) },
            ReasonKind::LeftOpen,
            "the squares. the first two: 4 µs (outside); all of them: 30 µs (outside).",
        ),
        (
            Reason::LeftOpen { choice: "the factor", ends: Ends::Parameter("factor") },
            ReasonKind::LeftOpen,
            "the factor. 0.5: 15 µs (outside); 3: 90 µs (inside).",
        ),
    ] {
        let report = reproduced(&with_reason(MISSED, reason), &[]).unwrap();
        assert_eq!(stated(&report, MISSED), Some((kind, text.into())));
        let page = html::page(&report);
        assert!(page.contains(kind.words()) && page.contains(&html::escape(text)), "{kind:?}");
    }
}

#[test]
fn without_the_study_the_ends_of_its_parameter_are_not_shown() {
    let reason = Reason::LeftOpen { choice: "the factor", ends: Ends::Parameter("factor") };
    let report = reproduced(&with_reason(MISSED, reason), &["sums"]).unwrap();
    let (_, text) = stated(&report, MISSED).expect("the claim is missed");
    assert!(text.contains("the factor") && text.contains("was not run"), "{text}");
}

#[test]
fn a_claim_that_is_met_shows_no_reason() {
    let report = reproduced(&with_reason(MET, Reason::ModelDeparts("A stale reason.")), &[]).unwrap();
    assert_eq!(stated(&report, MET), None);
    assert!(!html::page(&report).contains("A stale reason."));
    assert!(!report.to_json().unwrap().contains("A stale reason."));
}

#[test]
fn a_missed_claim_without_a_reason_is_shown_as_such() {
    let (_, hook) = counting();
    let report = reproduced(&small(&hook, true), &[]).unwrap();
    let shown: Vec<(&str, &str)> =
        report.rows.iter().filter_map(|row| Some((row.id.as_str(), row.reason_words()?))).collect();
    assert_eq!(shown, [(MISSED, "no reason recorded")]);
    assert_eq!(html::page(&report).matches("no reason recorded").count(), 1);
}

#[test]
fn a_misspelt_metric_or_parameter_is_an_error() {
    let readings = [("one", &["sum"][..]), ("other", &["som"][..])];
    // A reason of a claim that is met is checked, too.
    for (id, ends, missing) in [
        (MISSED, Ends::Readings(readings), "som"),
        (MET, Ends::Readings(readings), "som"),
        (MISSED, Ends::Parameter("factory"), "factory"),
    ] {
        let paper = with_reason(id, Reason::LeftOpen { choice: "a choice", ends });
        let error = reproduced(&paper, &[]).unwrap_err().to_string();
        assert!(error.contains(missing) && error.contains(id), "{error}");
    }
}
