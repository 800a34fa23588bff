//! Filebench, shares of random accesses and prefetch windows of the NVMM paper, from end to end and small.

use deepram_repro::{Options, Report, Settings, Verdict, paper, reproduce};

const QUICK: Settings = Settings { quick: true, seed: 1 };
const IDS: [&str; 3] = ["filebench", "randomness", "prefetch"];

fn report(settings: &Settings, only: &[&str]) -> Report {
    let out = tempfile::tempdir().unwrap();
    let only = only.iter().map(|id| (*id).into()).collect();
    let options = Options { out: out.path().into(), only, jobs: 2, fresh: false };
    reproduce(&paper("nvmm", settings).unwrap(), settings, &options, &|_| {}).unwrap()
}

#[test]
fn every_claim_about_files_randomness_and_prefetch_gets_its_figures() {
    let report = report(&QUICK, &IDS);
    let rows: Vec<_> = report.rows.iter().filter(|row| IDS.contains(&row.experiment.as_str())).collect();
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert_ne!(row.verdict, Verdict::NotRun, "{}", row.id);
        assert!(!row.figures.0.is_empty(), "{}", row.id);
        for (name, value) in &row.figures.0 {
            assert!(value.is_finite() && *value > 0.0, "{name} is {value}");
        }
    }
}

#[test]
fn a_sequential_reader_never_loses_by_prefetching() {
    let report = report(&QUICK, &["prefetch"]);
    let row = report.rows.iter().find(|row| row.id == "prefetch-dd-read").unwrap();
    // All windows are read in full: at most one miss for a window's blocks, so at most as many times faster.
    let gain = row.figures.0["dd_read.gain"];
    assert!((1.0..=17.0).contains(&gain), "{gain}");
}
