//! `deepram trace record`: the page faults of a program as a trace, which `trace info` and the simulator read.

use std::path::Path;

use crate::common::paged::{library, program};
use crate::common::{deepram, folder};
use serde_json::Value;

/// Records a program. Returns the exit status and the standard error.
fn record(folder: &Path, options: &[&str], command: &[&str]) -> (i32, String) {
    assert!(library().is_file());
    let start = ["trace", "record", "--dram", "16MiB", "--out", "x.trace"];
    let run = deepram(folder, &[&start[..], options, &["--"], command].concat());
    (run.status, run.err)
}

fn files(folder: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("a file").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the sum of all faults in the statistics at the end of the run.
fn counted(said: &str) -> u64 {
    let line =
        said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no statistics: {said}"));
    let all: Value = serde_json::from_str(line).expect("JSON");
    ["faults_fresh", "faults_major", "victim_buffer_hits", "faults_write_protected"]
        .map(|name| all[name].as_u64().expect("a number"))
        .iter()
        .sum()
}

#[test]
fn every_fault_that_is_counted_is_in_the_trace_and_the_simulator_takes_it() {
    let Some(scan) = program("scan") else { return };
    let folder = folder();
    let scan = scan.to_str().expect("UTF-8");
    let (status, said) = record(folder.path(), &["--stats", "json"], &[scan, "24", "1"]);
    assert_eq!(status, 0, "{said}");
    let info = deepram(folder.path(), &["trace", "info", "x.trace", "--json"]).json();
    assert_eq!(info["records"].as_u64(), Some(counted(&said)), "{said}\n{info}");
    assert!(said.contains("page faults are in x.trace\n"), "all of them: {said}");
    assert_eq!((&info["size_min_bytes"], &info["size_max_bytes"]), (&4096.into(), &4096.into()));
    // Most pages are read with others, without a fault of their own. No offset lies beyond the accessed memory.
    let footprint = info["footprint_bytes"].as_u64().expect("a number");
    assert!((256 << 10..64 << 20).contains(&footprint), "{footprint}");
    assert_eq!(info["out_of_order"], 0);
    let ratio = info["write_ratio"].as_f64().expect("a number");
    assert!(ratio > 0.0 && ratio < 1.0, "{info}");
    let simulated = ["sim", "ssd-paging", "--trace", "x.trace", "--dram", "16MiB", "--json"];
    let result = deepram(folder.path(), &simulated).json();
    assert!(result.is_object(), "{result}");
    assert_eq!(files(folder.path()), ["x.trace"], "nothing else is left");
}

#[test]
fn nearly_every_use_of_a_page_is_recorded_on_request() {
    let Some(scan) = program("scan") else { return };
    let folder = folder();
    // It writes each page in turn, and reads each twice.
    let uses = 3 * (24 << 8);
    let (status, said) = record(folder.path(), &["--accesses"], &[scan.to_str().expect("UTF-8"), "24", "2"]);
    assert_eq!(status, 0, "{said}");
    let info = deepram(folder.path(), &["trace", "info", "x.trace", "--json"]).json();
    let records = info["records"].as_u64().expect("a number");
    // A few pages were used before the pager started; the program uses memory of its own beside the array.
    assert!((uses * 95 / 100..uses * 115 / 100).contains(&records), "{records} of {uses}");
}

#[test]
fn processes_of_a_program_are_in_one_trace() {
    let Some(scan) = program("scan") else { return };
    let folder = folder();
    let scan = scan.to_str().expect("UTF-8");
    let script = "\"$0\" 8 1 & \"$0\" 8 1 & \"$0\" 8 1; wait; exit 7";
    let (status, said) = record(folder.path(), &["--stats", "json"], &["/bin/sh", "-c", script, scan]);
    assert_eq!(status, 7, "{said}");
    let info = deepram(folder.path(), &["trace", "info", "x.trace", "--json"]).json();
    assert_eq!(info["records"].as_u64(), Some(counted(&said)), "{said}");
    assert_eq!(info["out_of_order"], 0);
}

#[test]
fn what_a_killed_process_has_written_is_kept() {
    let Some(scan) = program("scan") else { return };
    let folder = folder();
    let scan = scan.to_str().expect("UTF-8");
    // The program would run for ever. In one second it writes its buffered records about ten times.
    let script = "\"$0\" 24 1000000000 & sleep 1; kill -9 $!; wait $!; exit 3";
    let (status, said) = record(folder.path(), &[], &["/bin/sh", "-c", script, scan]);
    assert_eq!(status, 3, "{said}");
    let info = deepram(folder.path(), &["trace", "info", "x.trace", "--json"]).json();
    assert!(info["records"].as_u64() > Some(100), "{info}");
    assert_eq!(files(folder.path()), ["x.trace"]);
}

#[test]
fn faults_of_a_pool_become_a_trace_that_the_simulator_takes() {
    use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};
    const SEGMENT: usize = 4096;
    let folder = folder();
    let (path, records) = (folder.path().join("a.pool"), folder.path().join("records"));
    Pool::create(&[&path], &CreateOptions::new(64 << 20)).expect("created");
    let mut options = OpenOptions::new(8 << 20).mapping(Mapping::Off);
    options.record_faults_to = Some(records.clone());
    let refused = Pool::open(&[&path], &options).err().expect("there is no such folder");
    assert!(refused.to_string().contains("record_faults_to"), "{refused}");
    std::fs::create_dir(&records).expect("a folder");

    let pool = Pool::open(&[&path], &options).expect("opened");
    let addr = pool.alloc(32 << 20, Lifetime::Permanent).expect("allocated");
    let at = |n: usize| addr.offset_by((n % 8192 * SEGMENT) as u64).expect("in the pool");
    let before = pool.stats().fills;
    // Writes all, four times the DRAM; then reads segments and writes each at once.
    (0..8192).for_each(|n| pool.write(at(n), &[n as u8; 64]).expect("written"));
    pool.sync().expect("durable");
    let mut byte = [0];
    for n in 0..500 {
        pool.read(at(n * 1237), &mut byte).expect("read");
        pool.write(at(n * 1237), &[1]).expect("written");
    }
    let filled = pool.stats().fills - before;
    pool.close().expect("closed");

    let merged = deepram(folder.path(), &["trace", "merge", "records", "x.trace"]);
    assert_eq!(merged.status, 0, "{merged:?}");
    let info = deepram(folder.path(), &["trace", "info", "x.trace", "--json"]).json();
    let recorded = info["records"].as_u64().expect("a number");
    assert_eq!(recorded, filled + 500, "fills, and first writes to clean segments");
    assert_eq!(info["out_of_order"], 0);
    assert_eq!(info["footprint_bytes"].as_u64().map(|bytes| bytes >> 20), Some(32), "{info}");
    let simulated = ["sim", "pool", "--closed", "--dram", "8MiB", "--trace", "x.trace", "--json"];
    let result = deepram(folder.path(), &simulated).json();
    let counter = |name: &str| result["counters"][name].as_u64().expect("a number");
    assert_eq!(counter("accesses"), recorded, "{result}");
    // Most of the writes in order are read ahead.
    assert!(counter("missing") > 400 && counter("missing") < recorded, "{result}");
    let again = deepram(folder.path(), &["trace", "merge", "records", "x.trace"]);
    assert!(again.status == 1 && again.err.contains("x.trace"), "{again:?}");
}

#[test]
fn a_failure_leaves_nothing_behind() {
    if deepram_pager::available().is_err() {
        eprintln!("skipped: memory cannot be paged here");
        return;
    }
    let folder = folder();
    let (status, said) = record(folder.path(), &[], &["no-such-program-here"]);
    assert!(status == 127 && said.contains("no such program"), "{said}");
    let (status, said) = record(folder.path(), &["--dram", "1MiB"], &["/bin/true"]);
    assert!(status == 2 && said.contains("--dram"), "given twice: {said}");
    assert_eq!(files(folder.path()), Vec::<String>::new());
    std::fs::write(folder.path().join("x.trace"), "mine").expect("written");
    let (status, said) = record(folder.path(), &[], &["/bin/true"]);
    assert!(status == 1 && said.contains("exists already"), "{said}");
    assert_eq!(std::fs::read(folder.path().join("x.trace")).expect("it is there"), b"mine");
    let nowhere = ["trace", "record", "--out", "no/such/x.trace", "--", "/bin/true"];
    let run = deepram(folder.path(), &nowhere);
    assert!(run.status == 1 && run.err.contains("no/such/x.trace"), "{run:?}");
}
