//! Filebench, shares of random accesses and prefetch windows of the NVMM paper, from end to end on small workloads.

use crate::common::{assert_metrics, nvmm};

#[test]
fn every_claim_about_files_randomness_and_prefetch_gets_its_figures() {
    let experiments = ["filebench", "randomness", "prefetch"];
    assert_metrics(&nvmm(&experiments), &experiments, 8);
}

#[test]
fn a_sequential_reader_never_loses_by_prefetching() {
    let report = nvmm(&["prefetch"]);
    let row = report.rows.iter().find(|row| row.id == "prefetch-dd-read").unwrap();
    // Every prefetch window is read in full, so that a window of n blocks costs at most one miss: the speed-up is at most n.
    let gain = row.metrics.0["dd_read.gain"];
    assert!((1.0..=17.0).contains(&gain), "{gain}");
}
