//! Cases of other simulators: results that agree with theirs must stay in agreement. The large cases run with `--ignored`.

use std::path::PathBuf;

use deepram_media::Registry;
use deepram_sim::peers::{PeerWorkload, cases, run_case};
use deepram_sim::{RunOptions, RunResult, System, SystemConfig, requests, run};
use deepram_trace::{ObjectPlacement, TraceError, Workload};

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
        eprintln!("{name}: {row:?}");
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

#[test]
fn skybyte_waits_as_long_for_its_drive_within_the_stated_differences() {
    check("skybyte ycsb-a");
    check("skybyte ycsb-b");
    check("skybyte bc");
}

/// A scan line by line of SkyByte's drive with 2 GiB of DRAM, as in its published runs with promotion.
fn promoting(overrides: &[&str]) -> RunResult {
    let mut config = SystemConfig::new(System::FlatFlash);
    config.preset = "skybyte".into();
    config.overrides = overrides.iter().map(|&text| text.to_owned()).collect();
    config.flat.memory = deepram_core::units::Bytes(2 << 30);
    config.flat.cpu_cache = false;
    let workload = Workload::new("sequential:span=4GiB,size=64,emit=mem,count=2M", 1).unwrap();
    let objects = ObjectPlacement { slot_bytes: 4096, slots: 1 };
    let requests = requests(workload.map(Ok::<_, TraceError>), objects);
    run(&Registry::builtin().unwrap(), &config, requests, &RunOptions::default()).unwrap()
}

/// SkyByte divides the promoted by the used lines as whole numbers, so that its ratio is 0 below 1 and its
/// threshold never leaves the maximum. The same in our model: a ratio below 1 counts as low.
#[test]
fn the_whole_number_ratio_of_skybyte_keeps_the_threshold_at_its_maximum() {
    let (ours, theirs) = (promoting(&[]), promoting(&["low_ratio=99.999%", "high_ratio=100%"]));
    for (name, result) in [("ratio", &ours), ("whole-number ratio", &theirs)] {
        let counter = |key: &str| result.counters.get(key).cloned().unwrap_or_default();
        eprintln!(
            "{name}: threshold {}, epochs {}, promotions {}, mean {:.0} ns",
            counter("threshold"),
            counter("threshold_epochs"),
            counter("promotions"),
            result.latency.mean_ns
        );
    }
    assert_eq!(theirs.counters["threshold"], 7);
    assert_ne!(ours.counters["threshold"], 7);
}
