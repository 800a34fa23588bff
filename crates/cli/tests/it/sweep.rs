//! `deepram sweep`: the same bytes of results after a kill and with any number of jobs, exit statuses, errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{deepram, folder};

/// A thousand small simulations.
const THOUSAND: &str = r#"
system = "ssd"
workload = "zipf:span=1MiB,count=100"

[axes]
preset = ["z-ssd", "tlc"]
depth = { from = 1, to = 16, scale = "powers-of-two" }
workload.theta = [0.5, 0.99]
set.nand.read = { from = "10us", to = "50us", step = "10us" }
seed = { from = 1, to = 10 }

[pareto]
minimize = ["latency.p99_ns", "energy_total_nj"]
"#;

fn lines(journal: &Path) -> usize {
    fs::read(journal).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

fn results(out: &Path) -> [Vec<u8>; 2] {
    ["results.jsonl", "results.parquet"].map(|name| fs::read(out.join(name)).expect("the results"))
}

#[test]
fn a_sweep_of_a_thousand_points_killed_half_way_has_the_bytes_of_an_undisturbed_one() {
    let folder = folder();
    fs::write(folder.path().join("s.toml"), THOUSAND).expect("writing the sweep");
    let undisturbed = deepram(folder.path(), &["sweep", "s.toml", "--out", "whole", "--json"]).json();
    assert_eq!((&undisturbed["points"], &undisturbed["failed"]), (&1000.into(), &0.into()));
    let expected = results(&folder.path().join("whole"));
    assert_eq!(expected[0].iter().filter(|byte| **byte == b'\n').count(), 1000);
    for jobs in ["1", "2"] {
        let out = folder.path().join(jobs);
        let mut child = Command::new(env!("CARGO_BIN_EXE_deepram"))
            .args(["sweep", "s.toml", "--out", jobs, "--jobs", jobs])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starting the sweep");
        let begun = Instant::now();
        while lines(&out.join("journal.jsonl")) < 500 {
            assert!(child.try_wait().expect("asking for the child").is_none(), "the sweep ended by itself");
            assert!(begun.elapsed() < Duration::from_secs(300), "the sweep makes no progress");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().expect("killing the sweep");
        child.wait().expect("waiting for the child");
        let left = lines(&out.join("journal.jsonl"));
        assert!((500..1000).contains(&left), "{left} points were finished");
        assert!(!out.join("results.jsonl").exists());
        let resumed =
            deepram(folder.path(), &["sweep", "s.toml", "--out", jobs, "--jobs", jobs, "--json"]).json();
        assert_eq!(resumed["known"], left);
        assert_eq!(resumed["front"], undisturbed["front"]);
        assert!(results(&out) == expected, "the results of the resumed sweep with {jobs} jobs differ");
    }
}

#[test]
fn a_point_alone_has_the_line_of_the_sweep() {
    let folder = folder();
    let text = THOUSAND.replace("to = 10 }", "to = 1 }");
    fs::write(folder.path().join("s.toml"), text).expect("writing the sweep");
    let shown = deepram(folder.path(), &["sweep", "s.toml"]).good();
    assert!(shown.contains("points   100\n") && shown.contains("Pareto front"), "{shown}");
    let page = fs::read_to_string(folder.path().join("s.results/pareto.html")).expect("the page");
    assert!(page.contains("<svg") && page.contains("on the front"));
    let all = fs::read_to_string(folder.path().join("s.results/results.jsonl")).expect("the results");
    for point in [0, 57, 99] {
        let line = deepram(folder.path(), &["sweep", "s.toml", "--point", &point.to_string()]).good();
        assert_eq!(Some(line.trim_end()), all.lines().nth(point));
    }
    let listed = deepram(folder.path(), &["sweep", "s.toml", "--list"]).good();
    assert_eq!(listed.lines().count(), 101);
    let error = deepram(folder.path(), &["sweep", "s.toml", "--point", "100"]).error(2);
    assert!(error.contains("no point 100") && error.contains("0 to 99"), "{error}");
}

#[test]
fn a_failed_point_ends_the_sweep_with_status_1_after_all_others() {
    let folder = folder();
    let text =
        "system = \"ssd\"\nworkload = \"uniform:span=1MiB,count=9\"\n[axes]\npreset = [\"tcl\", \"tlc\"]\n";
    fs::write(folder.path().join("s.toml"), text).expect("writing the sweep");
    let error = deepram(folder.path(), &["sweep", "s.toml"]).error(1);
    assert!(error.contains("1 of 2 points failed") && error.contains("did you mean `ssd.tlc`?"), "{error}");
    let all = fs::read_to_string(folder.path().join("s.results/results.jsonl")).expect("the results");
    let status: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&status[0]["status"], &status[1]["status"]), (&"failed".into(), &"done".into()));
}

#[test]
fn a_wrong_specification_is_named_with_its_line() {
    let folder = folder();
    for (text, part) in [
        (
            &b"system = \"ssd\"\nworklaod = \"x\"\n"[..],
            "s.toml:2: a sweep has no key `worklaod`; did you mean `workload`?",
        ),
        (b"system = \"ssd\"\n\xff\n", "s.toml:2: not UTF-8"),
    ] {
        fs::write(folder.path().join("s.toml"), text).expect("writing the sweep");
        let error = deepram(folder.path(), &["sweep", "s.toml"]).error(1);
        assert!(error.contains(part), "{error}");
        assert!(!folder.path().join("s.results").exists());
    }
    let error = deepram(folder.path(), &["sweep", "none.toml"]).error(1);
    assert!(error.contains("none.toml: reading failed"), "{error}");
}
