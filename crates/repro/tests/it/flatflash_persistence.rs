//! The case studies of FlatFlash's persistence, from end to end on small workloads.

use crate::common::assert_metrics;
use deepram_repro::{Options, Report, Settings, Verdict, paper, reproduce};

const QUICK: Settings = Settings { quick: true, seed: 1 };

fn report(only: &[&str]) -> Report {
    let out = tempfile::tempdir().unwrap();
    let only = only.iter().map(|id| (*id).into()).collect();
    let options = Options { out: out.path().into(), only, jobs: 2 };
    reproduce(&paper("flatflash", &QUICK).unwrap(), &QUICK, &options, &|_| {}).unwrap()
}

#[test]
fn every_claim_about_persistence_gets_its_figures() {
    assert_metrics(&report(&["filesystem"]), &["filesystem"], 27);
    assert_metrics(&report(&["database"]), &["database"], 14);
}

#[test]
fn a_claim_is_judged_by_the_experiments_figures() {
    let report = report(&["filesystem"]);
    let claims = paper("flatflash", &QUICK).unwrap().claims;
    for row in report.rows.iter().filter(|row| row.experiment == "filesystem") {
        let claim = claims.iter().find(|claim| claim.id == row.id).unwrap();
        let ours: Vec<f64> = claim.metrics.iter().map(|name| row.metrics.0[*name]).collect();
        assert_eq!(claim.judge(&ours).verdict, row.verdict, "{}", row.id);
        assert_ne!(row.verdict, Verdict::Unavailable);
    }
    // The ends of a range are the minimum and the maximum of its parts.
    let end = |id: &str| {
        let row = report.rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("no claim {id}"));
        *row.metrics.0.values().next().unwrap()
    };
    for what in ["fs-ext4", "fs-xfs", "fs-btrfs", "fs-create", "fs-webserver", "fs-mkdir-life"] {
        assert!(end(&format!("{what}-least")) <= end(&format!("{what}-most")), "{what}");
    }
    let most = ["fs-ext4-most", "fs-xfs-most", "fs-btrfs-most"].map(end).into_iter().fold(0.0, f64::max);
    assert_eq!(most, end("fs-most"));
}

#[test]
fn the_study_explains_what_is_missed_and_changes_only_what_it_says() {
    let paper = paper("flatflash", &QUICK).unwrap();
    let study = paper.sensitivity.expect("a study");
    let base: Vec<&str> = study.parameters.iter().map(|parameter| parameter.base.as_str()).collect();
    assert!(study.parameters.iter().zip(base).all(|(p, base)| p.low != base || p.high != base));
    // An end of a parameter's range that equals the base adds no run; every other end adds at least one run.
    let digests: std::collections::BTreeSet<_> = study.runs().map(|run| run.digest.clone()).collect();
    let ends = study.parameters.iter().flat_map(|p| [p.low != p.base, p.high != p.base]);
    let changed = ends.filter(|changed| *changed).count();
    assert!(digests.len() > study.runs().count() / (2 * study.parameters.len() + 1) + changed);
}
