//! Power and lifetime of the NVMM paper, from end to end and small.

use deepram_repro::{Options, Report, Settings, Verdict, paper, reproduce};

const QUICK: Settings = Settings { quick: true, seed: 1 };

fn report(only: &str) -> Report {
    let out = tempfile::tempdir().unwrap();
    let options = Options { out: out.path().into(), only: vec![only.into()], jobs: 2, fresh: false };
    reproduce(&paper("nvmm", &QUICK).unwrap(), &QUICK, &options, &|_| {}).unwrap()
}

#[test]
fn every_claim_about_power_and_lifetime_gets_its_figures() {
    for (id, claims) in [("power", 7), ("lifetime", 1)] {
        let report = report(id);
        let rows: Vec<_> = report.rows.iter().filter(|row| row.experiment == id).collect();
        assert_eq!(rows.len(), claims);
        for row in rows {
            assert_ne!(row.verdict, Verdict::NotRun, "{}", row.id);
            assert!(!row.figures.0.is_empty(), "{}", row.id);
            for (name, value) in &row.figures.0 {
                assert!(value.is_finite() && *value > 0.0, "{name} is {value}");
            }
        }
    }
}

#[test]
fn a_thousand_devices_last_a_thousand_times_as_long_and_half_of_them_fails_first() {
    let report = report("lifetime");
    let row = report.rows.iter().find(|row| row.id == "wear-order").unwrap();
    let of = |name: &str| row.figures.0[name];
    for what in ["half_days", "gone_days"] {
        let ratio = of(&format!("thousand.{what}")) / of(&format!("one.{what}"));
        assert!((ratio - 1000.0).abs() < 1e-9, "{what}: {ratio}");
    }
    assert!(of("one.half_days") < of("one.gone_days"));
}
