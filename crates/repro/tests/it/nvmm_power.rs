//! Power and lifetime of the NVMM paper, from end to end on small workloads.

use crate::common::{assert_metrics, nvmm};

#[test]
fn every_claim_about_power_and_lifetime_gets_its_figures() {
    assert_metrics(&nvmm(&["lifetime"]), &["lifetime"], 1);
    let mut report = nvmm(&["power"]);
    // These hang on the bandwidth alone, which the paper does not name.
    let open = ["power-8g", "energy-8g", "background-8g"];
    assert!(report.rows.iter().all(|row| !open.contains(&row.id.as_str()) || row.metrics.0.is_empty()));
    report.rows.retain(|row| !open.contains(&row.id.as_str()));
    assert_metrics(&report, &["power"], 4);
}

#[test]
fn a_thousand_devices_last_a_thousand_times_as_long_and_half_of_them_fails_first() {
    let report = nvmm(&["lifetime"]);
    let row = report.rows.iter().find(|row| row.id == "wear-order").unwrap();
    let of = |name: &str| row.metrics.0[name];
    for what in ["half_days", "gone_days"] {
        let ratio = of(&format!("thousand.{what}")) / of(&format!("one.{what}"));
        assert!((ratio - 1000.0).abs() < 1e-9, "{what}: {ratio}");
    }
    assert!(of("one.half_days") < of("one.gone_days"));
}
