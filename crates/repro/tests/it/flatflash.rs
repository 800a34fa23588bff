//! Sections 5.1 to 5.4 and Tables 1 to 3 of the FlatFlash paper, from end to end on small workloads.

use crate::common::{assert_metrics, flatflash};
use deepram_repro::{Class, Report, Settings, Verdict, paper};

/// Returns the figures of all claims of a report, by name.
fn metrics(report: &Report) -> std::collections::BTreeMap<String, f64> {
    report.rows.iter().flat_map(|row| row.metrics.0.clone()).collect()
}

#[test]
fn the_exact_claims_are_met() {
    let report = flatflash(&["constants", "cost-identity"]);
    let exact: Vec<_> = report.rows.iter().filter(|row| row.class == Class::Exact).collect();
    assert_eq!(exact.len(), 6);
    for row in exact {
        assert_eq!(row.verdict, Verdict::Inside, "{}: {:?}", row.id, row.metrics);
    }
}

#[test]
fn every_claim_about_random_access_gets_its_figures() {
    let report = flatflash(&["latency", "gups"]);
    assert_metrics(&report, &["latency"], 6);
    assert_metrics(&report, &["gups"], 10);
    let metrics = metrics(&report);
    for metric in ["random", "gups.time"] {
        for end in ["least", "most"] {
            let over = |baseline: &str| metrics[&format!("{metric}.over_{baseline}.{end}")];
            assert!(over("stack") > over("unified"), "{metric}: the stack only adds to a fault");
        }
    }
    // A page used once stays on the drive in FlatFlash. Paging would move the page to DRAM and back.
    assert!(metrics["gups.moved.over_unified"] > 1.0);
}

#[test]
fn every_claim_about_programs_gets_its_figures() {
    let report = flatflash(&["graph", "redis"]);
    assert_metrics(&report, &["graph"], 14);
    assert_metrics(&report, &["redis"], 11);
    let metrics = metrics(&report);
    for name in ["pagerank.time", "cc.time", "redis.mean"] {
        for baseline in ["unified", "stack"] {
            let of = |end: &str| metrics[&format!("{name}.over_{baseline}.{end}")];
            assert!(of("least") <= of("most"), "{name}");
        }
        assert!(metrics[&format!("{name}.over_stack.most")] >= metrics[&format!("{name}.over_unified.most")]);
    }
}

#[test]
fn promotion_and_slowdowns_get_their_figures() {
    let report = flatflash(&["promotion", "cost"]);
    assert_metrics(&report, &["promotion"], 2);
    assert_metrics(&report, &["cost"], 6);
    for (name, value) in metrics(&report).iter().filter(|(name, _)| name.starts_with("slowdown")) {
        assert!(*value > 1.0, "{name}: {value}, faster than DRAM alone");
    }
}

#[test]
fn every_row_of_the_facts_about_flatflash_is_there() {
    let paper = paper("flatflash", &Settings { quick: true, seed: 1 }).unwrap();
    let of = |class: Class| paper.claims.iter().filter(|claim| claim.class == class).count();
    // The claims are rows S1 of facts.md section 6: sections 5.1 to 5.4 and the tables. No parameter is calibrated.
    assert!(of(Class::Exact) >= 6 && of(Class::Magnitude) >= 40 && of(Class::Trend) >= 7);
    assert_eq!(of(Class::Calibrated), 0);
    for claim in &paper.claims {
        let found = paper.experiments.iter().any(|experiment| experiment.id == claim.experiment);
        assert!(found, "{} names an unknown experiment: {}", claim.id, claim.experiment);
    }
}
