//! Cases of other simulators: results that agree with theirs must stay in agreement. The large cases run with `--ignored`.

use std::path::PathBuf;

use deepram_media::Registry;
use deepram_sim::peers::{PeerWorkload, cases, run_case};

/// Returns the folder of the traces; None if they are not on this machine.
fn traces() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder =
        PathBuf::from(std::env::var("DEEPRAM_TRACES").unwrap_or_else(|_| default.into())).join("block");
    folder.is_dir().then_some(folder)
}

fn check(name: &str) {
    let folder = traces();
    let registry = Registry::builtin().unwrap();
    let case = cases().find(|case| case.name == name).unwrap();
    if folder.is_none() && matches!(case.workload, PeerWorkload::Trace(_)) {
        eprintln!("skipped: the traces are not here; set DEEPRAM_TRACES");
        return;
    }
    let (_, rows) = run_case(&registry, case, &folder.unwrap_or_default()).unwrap();
    assert_eq!(rows.len(), case.figures.len());
    for row in rows {
        assert!(row.inside || !row.why.is_empty(), "{row:?}");
    }
}

#[test]
fn disksim_sequential_reads_agree_in_every_digit() {
    check("disksim sequential reads");
}

#[test]
fn disksim_random_reads_agree_in_every_digit() {
    check("disksim random reads");
}

#[test]
fn disksim_sequential_writes_agree_in_every_digit() {
    check("disksim sequential writes");
}

#[test]
fn disksim_random_writes_agree_in_every_digit() {
    check("disksim random writes");
}

#[test]
fn disksim_five_million_random_writes_with_cleaning_agree_in_every_digit() {
    check("disksim 5M random writes");
}

#[test]
fn disksim_iozone_agrees_in_every_digit_at_device_and_driver() {
    check("disksim iozone");
}

#[test]
fn mqsim_writes_agree() {
    check("mqsim def 200k 4 KiB writes");
}

#[test]
fn mqsim_reads_agree() {
    check("mqsim def 200k 8 KiB reads");
}

#[test]
fn mqsim_traces_agree() {
    check("mqsim def tpcc");
    check("mqsim def wsrch");
}

#[test]
fn mqsim_under_reclamation_agrees() {
    check("mqsim s8 300k 8 KiB writes");
}
