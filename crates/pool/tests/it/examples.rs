//! The programs in `examples/` give the documented output, at their first run and at the next.

use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: [&str; 5] = ["checkpoint", "counter", "hash_table", "time_travel", "transaction_log"];

/// Returns the folder of the compiled examples.
fn built() -> PathBuf {
    deepram_testkit::build_workspace(env!("CARGO_TARGET_TMPDIR")).join("examples")
}

/// Returns a program's output at its first run and at its second, on the same pool.
fn two_runs(name: &str) -> [String; 2] {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    [(); 2].map(|()| {
        let output = Command::new(built().join(name))
            .arg("its.pool")
            .current_dir(folder.path())
            .output()
            .expect("the example runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {} {said}", output.status);
        String::from_utf8(output.stdout).expect("the output is text")
    })
}

#[test]
fn every_example_is_tested_here_and_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("there are examples") {
        let path = entry.expect("a file").path();
        let lines = std::fs::read_to_string(&path).expect("a source").lines().count();
        assert!(lines < 120, "{} has {lines} lines", path.display());
        found.push(path.file_stem().expect("a name").to_string_lossy().into_owned());
    }
    found.sort();
    assert_eq!(found, EXAMPLES);
}

#[test]
fn a_computation_that_crashed_continues_at_its_last_checkpoint_and_ends_as_one_that_did_not() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(built().join("checkpoint"));
        let output = command.args(arguments).current_dir(folder.path()).output().expect("the example runs");
        (output.status.success(), String::from_utf8(output.stdout).expect("the output is text"))
    };
    let (crashed, (ended, text)) = (run(&["rod.pool", "30"]), run(&["rod.pool"]));
    assert!(!crashed.0 && ended, "{crashed:?} {text}");
    assert!(crashed.1.starts_with("start at step 0\nstep 20: checkpoint, token "), "{}", crashed.1);
    assert!(text.starts_with("start at step 20\nstep 40: checkpoint, token "), "{text}");
    let (_, whole) = run(&["other.pool"]);
    assert!(whole.starts_with("start at step 0\n"), "{whole}");
    assert_eq!(text.lines().last(), whole.lines().last());
    // A crash before the first checkpoint leaves an empty pool, which the next run fills.
    assert!(!run(&["early.pool", "5"]).0);
    let (_, text) = run(&["early.pool"]);
    assert!(text.starts_with("start at step 0\n"), "{text}");
}

#[test]
fn the_counter_goes_on_where_the_last_run_ended() {
    let [first, second] = two_runs("counter");
    assert_eq!(first, "run 1, durable as token 2\n");
    assert!(second.starts_with("run 2, durable as token "), "{second}");
}

#[test]
fn the_hash_table_keeps_good_batches_and_loses_the_wrong_ones() {
    let [first, second] = two_runs("hash_table");
    let sizes = "32 MiB in at most 16 MiB of DRAM\n";
    let text =
        |[a, b, c, d]: [u64; 4]| format!("found: {a}\nupdated: {b}\nwrong: {c}\nrolled back: {d}\n{sizes}");
    assert_eq!(first, text([0, 10_000, 5_000_005_000, 10_000]));
    assert_eq!(second, text([10_000, 20_000, 5_000_010_000, 20_000]));
}

#[test]
fn the_log_has_every_committed_transfer_though_the_pool_was_never_closed() {
    let [first, second] = two_runs("transaction_log");
    assert_eq!(first, "found: [1000, 0] after 0 transfers\ntransfer 1: [993, 7]\n");
    assert_eq!(second, "found: [993, 7] after 1 transfers\ntransfer 2: [986, 14]\n");
}

#[test]
fn time_travel_reads_versions_and_returns_to_one() {
    let versions = two_runs("time_travel").map(|text| {
        let texts = text.lines().map(|line| line.split_once(": ").expect("a name and a text").1.to_owned());
        texts.collect::<Vec<_>>()
    });
    let [draft, better, worse] = ["a first draft", "a better draft", "a draft that nobody likes"];
    assert_eq!(versions[0], [draft, better, worse, better]);
    // Closing the first run made a token of its own; none has the draft that was rolled back.
    assert_eq!(versions[1], [draft, better, better, better, worse, better]);
}
