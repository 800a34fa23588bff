//! The claims, experiments and procedures of the real papers.

use deepram_repro::{Class, Options, PAPERS, ReproError, Settings, Verdict, paper, reproduce};

const QUICK: Settings = Settings { quick: true, seed: 1 };

#[test]
fn every_paper_is_free_of_contradictions() {
    for name in PAPERS {
        let paper = paper(name, &QUICK).unwrap();
        assert_eq!(paper.name, name);
        paper.check().unwrap();
        assert!(!paper.claims.is_empty());
    }
    assert!(matches!(paper("nvm", &QUICK), Err(ReproError::Unknown { .. })));
}

#[test]
fn the_exact_claims_of_nvmm_are_met() {
    let out = tempfile::tempdir().unwrap();
    let paper = paper("nvmm", &QUICK).unwrap();
    let only = vec!["page-table".into()];
    let options = Options { out: out.path().into(), only, jobs: 1 };
    let report = reproduce(&paper, &QUICK, &options, &|_| {}).unwrap();
    let exact: Vec<_> = report.rows.iter().filter(|row| row.class == Class::Exact).collect();
    assert_eq!(exact.len(), 3);
    for row in exact {
        assert_eq!(row.verdict, Verdict::Inside, "{}: {:?}", row.id, row.ours);
    }
}

#[test]
fn every_row_of_the_facts_about_nvmm_is_there() {
    let paper = paper("nvmm", &QUICK).unwrap();
    let of = |class: Class| paper.claims.iter().filter(|claim| claim.class == class).count();
    // facts.md section 6: 3 exact, the table's 12 cells, 4 + 3 + 4 magnitudes, the others trends. The size of
    // GUPS' table is calibrated on one of the magnitudes.
    assert_eq!([Class::Exact, Class::Calibrated, Class::Magnitude].map(of), [3, 13, 10]);
    let ghosts = paper.claims.iter().filter(|claim| claim.draft_only);
    assert!(ghosts.clone().count() >= 8 && ghosts.clone().all(|claim| claim.class == Class::Trend));
}

#[test]
fn the_exact_claims_of_the_ssd_buffer_are_met_and_every_claim_about_traces_is_named_synthetic() {
    let out = tempfile::tempdir().unwrap();
    let paper = paper("ssd-buffer", &QUICK).unwrap();
    let options = Options { out: out.path().into(), only: vec!["table-v".into()], jobs: 1 };
    let report = reproduce(&paper, &QUICK, &options, &|_| {}).unwrap();
    let table_v: Vec<_> = report.rows.iter().filter(|row| row.experiment == "table-v").collect();
    assert_eq!(table_v.len(), 6);
    for row in table_v {
        assert_eq!(row.verdict, Verdict::Inside, "{}: {:?}", row.id, row.ours);
    }
    for row in &report.rows {
        assert_eq!(row.synthetic, row.experiment != "table-v", "{}", row.id);
        assert_eq!(row.verdict_words().contains("synthetic"), row.synthetic, "{}", row.id);
    }
}

#[test]
fn every_experiment_of_the_ssd_buffer_gives_its_claims_their_figures() {
    let out = tempfile::tempdir().unwrap();
    let paper = paper("ssd-buffer", &QUICK).unwrap();
    // The study and the fixed thresholds, 3,000 runs, are left to `deepram repro ssd-buffer --quick`.
    let only = ["traffic", "locality", "working-set", "hit-ratio", "energy", "lifetime", "response"];
    let options = Options { out: out.path().into(), only: only.map(String::from).into(), jobs: 2 };
    let report = reproduce(&paper, &QUICK, &options, &|_| {}).unwrap();
    for row in report.rows.iter().filter(|row| only.contains(&row.experiment.as_str())) {
        assert_ne!(row.verdict, Verdict::Unavailable, "{}", row.id);
    }
    assert!(report.write(out.path()).is_ok());
}

#[test]
fn every_experiment_of_the_disk_cache_gives_its_claims_their_figures() {
    let out = tempfile::tempdir().unwrap();
    let paper = paper("disk-cache", &QUICK).unwrap();
    // The study, 300 runs, is left to `deepram repro disk-cache --quick`.
    let only: Vec<String> = paper.experiments.iter().map(|experiment| experiment.id.clone()).collect();
    let options = Options { out: out.path().into(), only, jobs: 2 };
    let report = reproduce(&paper, &QUICK, &options, &|_| {}).unwrap();
    for row in &report.rows {
        assert_ne!(row.verdict, Verdict::Unavailable, "{}", row.id);
    }
    assert!(report.write(out.path()).is_ok());
}

#[test]
fn every_experiment_of_the_persistent_memory_study_gives_its_claims_their_figures() {
    let out = tempfile::tempdir().unwrap();
    let paper = paper("pmem", &QUICK).unwrap();
    // The study is left to `deepram repro pmem --quick`.
    let only: Vec<String> = paper.experiments.iter().map(|experiment| experiment.id.clone()).collect();
    let options = Options { out: out.path().into(), only, jobs: 2 };
    let report = reproduce(&paper, &QUICK, &options, &|_| {}).unwrap();
    for row in &report.rows {
        assert_ne!(row.verdict, Verdict::Unavailable, "{}", row.id);
    }
    assert!(report.write(out.path()).is_ok());
}

#[test]
fn the_validation_runs_from_end_to_end_and_then_not_again() {
    let out = tempfile::tempdir().unwrap();
    let options = Options { out: out.path().into(), only: Vec::new(), jobs: 2 };
    let validation = paper("validation", &QUICK).unwrap();
    let report = reproduce(&validation, &QUICK, &options, &|_| {}).unwrap();
    for row in &report.rows {
        // DiskSim's exact figures need full-size runs; all other claims hold for small runs too.
        let allowed = row.class == Class::Exact || row.verdict == Verdict::TrendHolds;
        assert!(allowed, "{}: {:?} {:?}", row.id, row.verdict, row.metrics);
        assert_ne!(row.verdict, Verdict::Unavailable);
    }
    let effects = report.sensitivity.as_ref().expect("the study ran");
    assert_eq!(effects.rows[0].parameter.key, "nand.read", "the flash read time has the largest effect");
    let page = report.write(out.path()).unwrap();
    assert!(page.ends_with("index.html"));
    let counted = std::sync::atomic::AtomicUsize::new(0);
    let again = reproduce(&validation, &QUICK, &options, &|event| {
        if matches!(event, deepram_repro::Progress::Finished(_)) {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    assert_eq!(counted.into_inner(), 0);
    assert_eq!(again.unwrap().to_json().unwrap(), report.to_json().unwrap());
}

#[test]
fn another_seed_or_size_is_another_run() {
    let digests = |settings: &Settings| -> Vec<String> {
        let paper = paper("validation", settings).unwrap();
        paper.experiments.iter().flat_map(|e| e.runs.iter().map(|run| run.digest.clone())).collect()
    };
    let base = digests(&QUICK);
    for other in [Settings { seed: 2, ..QUICK }, Settings { quick: false, ..QUICK }] {
        assert!(digests(&other).iter().all(|digest| !base.contains(digest)));
    }
    assert_eq!(digests(&QUICK), base);
}
