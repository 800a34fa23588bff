//! Reports are read back, recorded and compared.

use deepram_repro::compare::{Change, State, compare};
use deepram_repro::reason::disagreements;
use deepram_repro::{Claim, Expected, Options, Paper, Reason, Report, Settings, Verdict, reproduce};
use serde_json::{Value, json};

use crate::common::{SETTINGS, claim, counting, small};

fn reproduced(paper: &Paper, settings: &Settings, only: &[&str]) -> Report {
    let out = tempfile::tempdir().unwrap();
    let only = only.iter().map(|id| (*id).into()).collect();
    reproduce(paper, settings, &Options { out: out.path().into(), only, jobs: 1 }, &|_| {}).unwrap()
}

fn paper() -> Paper {
    small(&counting().1, true)
}

fn report() -> Report {
    reproduced(&paper(), &SETTINGS, &[])
}

fn json_of(report: &Report) -> Value {
    serde_json::from_str(&report.to_json().unwrap()).unwrap()
}

#[test]
fn a_report_is_read_back_without_experiments_and_runs() {
    let report = report();
    let mut read = Report::from_json(json_of(&report)).unwrap();
    assert_eq!(read.rows[2].verdict, Verdict::TrendHolds, "a trend is a trend again");
    assert!(read.experiments.is_empty() && read.runs.is_empty());
    read.experiments = report.experiments.clone();
    read.runs = report.runs.clone();
    assert_eq!(read.to_json().unwrap(), report.to_json().unwrap());
}

#[test]
fn a_record_has_every_claim_and_headline_and_no_digest() {
    let report = report();
    let text = report.record().to_json().unwrap();
    for run in &report.runs {
        assert!(!text.contains(&run.digest));
    }
    let read = Report::from_json(serde_json::from_str(&text).unwrap()).unwrap();
    for (row, of_report) in read.rows.iter().zip(&report.rows) {
        assert_eq!((&row.id, row.verdict, row.ours), (&of_report.id, of_report.verdict, of_report.ours));
    }
    let (study, full) = (read.sensitivity.unwrap(), report.sensitivity.unwrap());
    assert_eq!(study.rows[0].low.metrics.0.keys().collect::<Vec<_>>(), ["sum"]);
    assert_eq!(study.rows[0].low.metrics.0["sum"], full.rows[0].low.metrics.0["sum"]);
    assert!(full.rows[0].low.metrics.0.len() > 1);
}

#[test]
fn results_of_an_older_form_are_read_and_those_of_an_unknown_form_are_not() {
    let whole = json_of(&report());
    let mut older = whole.clone();
    for row in older["rows"].as_array_mut().unwrap() {
        row.as_object_mut().unwrap().remove("reason");
    }
    assert_eq!(Report::from_json(older).unwrap().rows.len(), 4);
    type Break = fn(&mut Value);
    let broken: [(&str, Break); 4] = [
        ("colour", |value| value["colour"] = json!(1)),
        ("colour", |value| value["rows"][0]["colour"] = json!(1)),
        ("verdict", |value| {
            value["rows"][1].as_object_mut().unwrap().remove("verdict");
        }),
        ("perhaps", |value| value["rows"][1]["verdict"] = json!("perhaps")),
    ];
    for (named, breaks) in broken {
        let mut value = whole.clone();
        breaks(&mut value);
        let error = Report::from_json(value).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

/// Our value and the verdict.
fn state(ours: &str, verdict: Verdict) -> Option<State> {
    Some(State { ours: ours.into(), verdict })
}

#[test]
fn equal_reports_differ_in_nothing_and_claims_that_were_not_run_are_not_compared() {
    let comparison = compare(&report(), &report()).unwrap();
    assert_eq!((comparison.changes, comparison.same), (Vec::new(), 3));
    assert_eq!(comparison.not_run, ["elsewhere"]);
    let nothing = reproduced(&paper(), &SETTINGS, &["elsewhere"]);
    let comparison = compare(&report(), &nothing).unwrap();
    assert_eq!((comparison.changes.len(), comparison.same, comparison.not_run.len()), (0, 0, 4));
}

#[test]
fn changed_new_and_removed_claims_are_listed() {
    let before = report();
    let mut paper = paper();
    // Removed, expected elsewhere, and new.
    paper.claims.remove(0);
    paper.claims[0].expected = Expected::Value(30.0);
    paper.claims[0].paper = "thirty";
    paper.claims.push(claim("new", Expected::AtLeast(100.0), &["square.4"]));
    let after = reproduced(&paper, &SETTINGS, &[]);
    let comparison = compare(&before, &after).unwrap();
    assert_eq!(comparison.same, 1, "the order");
    let change =
        |id: &str, before, after, why: &str| Change { id: id.into(), before, after, why: why.into() };
    assert_eq!(
        comparison.changes,
        [
            change(
                "sum-outside",
                state("30 µs", Verdict::Outside),
                state("30 µs", Verdict::Inside),
                "the paper's value was as expected (±20 %), is thirty (±20 %)"
            ),
            change("new", None, state("16 µs", Verdict::Outside), "a new claim; no reason recorded"),
            change("sum-inside", state("30 µs", Verdict::Inside), None, "the claim no longer exists"),
        ]
    );
}

#[test]
fn a_changed_value_is_listed_with_the_kind_of_reason() {
    let mut before = report();
    before.rows[1].ours = Some(31.0);
    before.rows[0].ours = Some(30.001);
    let mut paper = paper();
    paper.claims[1].reason = Some(Reason::CannotBeHad("The traces are not available."));
    let comparison = compare(&before, &reproduced(&paper, &SETTINGS, &[])).unwrap();
    let [change] = &comparison.changes[..] else { panic!("30.001 is shown as 30: {comparison:?}") };
    assert_eq!((change.id.as_str(), change.why.as_str()), ("sum-outside", "cannot be had"));
    assert_eq!(change.before, state("31 µs", Verdict::Outside));
    assert_eq!(change.after, state("30 µs", Verdict::Outside));
}

#[test]
fn another_paper_and_another_size_cannot_be_compared() {
    let whole = report();
    let quick = reproduced(&paper(), &Settings { quick: true, ..SETTINGS }, &[]);
    let other = Report { paper: "other".into(), ..report() };
    for (before, after, said) in [
        (&other, &whole, "results of other, not of small"),
        (&quick, &whole, "quick runs"),
        (&whole, &quick, "full runs"),
    ] {
        let error = compare(before, after).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_record_must_agree_with_the_reasons_beside_the_claims() {
    const TRACES: Reason = Reason::CannotBeHad("The traces are not available.");
    let mut with = paper();
    with.claims[1].reason = Some(TRACES);
    let record = reproduced(&with, &SETTINGS, &[]).record();
    assert_eq!(disagreements(&with.claims, &record), Vec::<String>::new());

    let wrong = |changes: fn(&mut Vec<Claim>)| {
        let mut claims = with.claims.clone();
        changes(&mut claims);
        let wrong = disagreements(&claims, &record);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        wrong.concat()
    };
    assert!(wrong(|claims| claims[1].reason = None).contains("sum-outside is missed"));
    assert!(wrong(|claims| claims[0].reason = Some(TRACES)).contains("sum-inside is inside"));
    // A claim that was not run is not missed.
    assert!(wrong(|claims| claims[3].reason = Some(TRACES)).contains("elsewhere is unavailable"));
    let other = |claims: &mut Vec<Claim>| claims[1].reason = Some(Reason::CannotBeHad("The drive is gone."));
    assert!(wrong(other).contains("sum-outside has another reason"));
    let kind = |claims: &mut Vec<Claim>| {
        claims[1].reason = Some(Reason::ModelDeparts("The traces are not available."));
    };
    assert!(wrong(kind).contains("sum-outside has another reason"));
    assert!(wrong(|claims| claims.truncate(3)).contains("elsewhere is only in the record"));
    let new = |claims: &mut Vec<Claim>| claims.push(claim("new", Expected::Value(30.0), &["sum"]));
    assert!(wrong(new).contains("new is not in the record"));
}
