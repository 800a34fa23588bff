//! `deepram bench gups|zipf|scan|gather` on little memory: every peer that the machine supports takes part, the reported
//! figures are plausible, and no process, file, swap or cgroup is left. Speed is not tested.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{deepram, folder};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PEERS: &str = "pager,pool,pool-load,pool-load-unpromoted,mmap,mmap-random,swap,plain";
const DRAM: u64 = 16 << 20;
/// Time limit of a run, far more than any run takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(folder: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_deepram"))
        .arg("bench")
        .args(arguments)
        .args(["--size", "64MiB", "--dram", "16MiB", "--device-seconds", "0.02", "--json", "--repeats", "1"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("running deepram")
}

/// Returns the command lines of the worker processes of a bench in this folder.
fn workers(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().expect("the folder is there");
    let folder = folder.to_str().expect("a plain name");
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains("memory-worker") && line.contains(folder))
        .collect()
}

/// Returns the cgroups, in the hierarchy below `below`, of the bench that had this process number.
fn groups(below: &Path, process: u32) -> Vec<String> {
    let name = format!("deepram-bench-{process}-");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().starts_with(&name) {
                found.push(entry.path().display().to_string());
            }
            found.extend(groups(&entry.path(), process));
        }
    }
    found
}

/// Returns the files, swap files, cgroups and workers that are left of the bench that had this process number.
fn left(folder: &Path, process: u32) -> Vec<String> {
    let files = std::fs::read_dir(folder).expect("the folder is there").flatten();
    let mut left: Vec<String> = files.map(|file| file.path().display().to_string()).collect();
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let folder_name = folder.canonicalize().expect("the folder is there");
    let ours = |line: &&str| line.contains(folder_name.to_str().expect("a plain name"));
    left.extend(swaps.lines().filter(ours).map(str::to_owned));
    left.extend(groups(Path::new("/sys/fs/cgroup"), process));
    left.extend(workers(folder));
    left
}

fn measured(arguments: &[&str]) -> Value {
    let folder = folder();
    let child = start(folder.path(), &[arguments, &["--peers", PEERS, "--seconds", "0.2"]].concat());
    let process = child.id();
    let output = child.wait_with_output().expect("waiting for deepram");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {err}");
    assert_eq!(left(folder.path(), process), Vec::<String>::new(), "{arguments:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let mut names = BTreeSet::new();
    for skipped in report["skipped"].as_array().unwrap() {
        eprintln!("{arguments:?}: {} skipped: {}", skipped["peer"], skipped["reason"]);
        names.insert(skipped["peer"].as_str().unwrap());
    }
    for peer in report["peers"].as_array().unwrap() {
        names.insert(peer["peer"].as_str().unwrap());
        assert!(peer["rate"]["median"].as_f64().unwrap() > 0.0, "{peer}");
        assert!(peer["rounds"][0]["accesses"].as_u64().unwrap() > 0, "{peer}");
        let at = |quantile: &str| peer[quantile]["median"].as_f64().unwrap();
        assert!(at("p50_us") <= at("p99_us") && at("p99_us") <= at("p999_us"), "{peer}");
        assert!(at("p999_us") <= 60e6, "{peer}");
        let round = |key: &str| peer["rounds"][0][key].as_f64().unwrap();
        assert!(round("processor_s") > 0.0, "{peer}");
        let per_miss = peer["processor_us_per_miss"]["median"].as_f64();
        let has_misses = round("misses") > 0.0 && report["workload"] != "scan";
        let expected = has_misses.then(|| round("processor_s") * 1e6 / round("misses"));
        assert_eq!(per_miss, expected, "{peer}");
    }
    assert_eq!(names, PEERS.split(',').collect(), "each peer takes part or is skipped with a reason");
    // The peer `plain` needs no feature of the machine, so it must not be skipped.
    assert!(report["peers"].as_array().unwrap().iter().any(|peer| peer["peer"] == "plain"));
    let device = report["device"].as_array().unwrap();
    assert!(device.len() >= 5 && device.iter().all(|rate| rate["median"].as_f64().unwrap() > 0.0));
    report
}

#[test]
fn random_updates_miss_as_often_as_the_limit_on_memory_makes_them_and_are_all_there() {
    let report = measured(&["gups"]);
    for peer in report["peers"].as_array().unwrap() {
        let name = peer["peer"].as_str().unwrap();
        let misses = peer["misses_per_access"]["median"].as_f64().unwrap();
        assert!(peer["rounds"][0]["words_compared"].as_u64().unwrap() > 0, "{peer}");
        match name {
            "plain" => assert_eq!(misses, 0.0, "{peer}"),
            // A miss of plain mmap may read a large part of the file.
            "mmap" => assert!(misses > 0.0, "{peer}"),
            // A quarter of the data fits into DRAM; the kernel's readahead of swap saves some misses.
            _ => assert!((0.2..=1.0).contains(&misses), "{peer}"),
        }
        if let ("pager" | "pool", Some(peak)) = (name, peer["peak_bytes"].as_u64()) {
            assert!(peak > DRAM / 2 && peak <= DRAM + (16 << 20), "{peer}");
        }
    }
    // The device's rate with writes bounds random updates.
    let device = report["device"].as_array().unwrap();
    assert_eq!(device.iter().filter(|rate| rate["written"] == true).count(), 1, "{device:?}");
}

#[test]
fn reads_by_several_threads_zipf_scans_and_gathers_run_too() {
    for arguments in [
        &["gups", "--read", "--threads", "3"][..],
        &["zipf"],
        &["rows"],
        &["scan", "--threads", "2"],
        &["gather"],
    ] {
        measured(arguments);
    }
}

#[test]
fn a_number_of_accesses_is_what_is_measured() {
    let folder = folder();
    let arguments = ["gups", "--peers", "plain", "--accesses", "1000", "--threads", "2", "--no-latency"];
    let output = start(folder.path(), &arguments).wait_with_output().expect("waiting for deepram");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!(report["peers"][0]["rounds"][0]["accesses"], 1000);
    assert!(report["peers"][0]["p50_us"].is_null());
}

#[test]
fn what_is_asked_to_end_puts_everything_away() {
    let folder = folder();
    let mut child = start(folder.path(), &["gups", "--peers", "swap,plain", "--seconds", "3600"]);
    let process = child.id();
    let until = Instant::now() + PATIENCE;
    while workers(folder.path()).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "ended too early: {:?}", child.wait_with_output());
        assert!(Instant::now() < until, "no worker was started");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!left(folder.path(), process).is_empty());
    kill_process(Pid::from_child(&child), Signal::TERM).expect("asking it to end");
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().expect("killing it");
            panic!("deepram did not end after SIGTERM");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("it has ended");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(left(folder.path(), process), Vec::<String>::new());
}

#[test]
fn what_cannot_be_measured_is_said() {
    let folder = folder();
    for (arguments, text) in [
        (&["--size", "1000"][..], "--size 1000 B: expected a multiple of 4 KiB"),
        (&["--dram", "1MiB"], "--dram 1 MiB: expected at least 8 MiB"),
        (&["--seconds", "0"], "--seconds 0"),
        (&["--policy", "best"], "known: s3fifo, fifo"),
    ] {
        let error = deepram(folder.path(), &[&["bench", "gups"], arguments].concat()).error(2);
        assert!(error.contains(text), "{arguments:?}: {error}");
    }
    // The pool's tables alone exceed this budget. The results of the other peers are still printed.
    let few = [
        "--size",
        "1GiB",
        "--dram",
        "8MiB",
        "--seconds",
        "0.02",
        "--repeats",
        "1",
        "--device-seconds",
        "0.02",
    ];
    let run = deepram(folder.path(), &[&["bench", "scan", "--peers", "pool,plain"], &few[..]].concat());
    assert!(run.out.contains("plain ") && run.out.contains("pool failed: "), "{run:?}");
    assert!(run.error(1).contains("budget of 8 MiB is too small"));
    let error = deepram(folder.path(), &["bench", "scan", "--dir", "nowhere"]).error(1);
    assert!(error.contains("nowhere"), "{error}");
    let error = deepram(folder.path(), &["bench", "memory-worker", "{}"]).error(1);
    assert!(error.contains("only `deepram bench` starts this command"), "{error}");
    assert_eq!(left(folder.path(), 0), Vec::<String>::new());
}
