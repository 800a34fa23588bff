//! `deepram run --media`: programs behave the same on emulated memory, and syncs take their barrier.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::paged::{library, program, text, within};

/// A folder in memory, or on the disk where there is none.
fn folder() -> tempfile::TempDir {
    let shared = tempfile::tempdir_in("/dev/shm");
    shared.or_else(|_| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))).expect("a folder")
}

fn run(media: &str, program: &Path, arguments: &[&str]) -> Output {
    assert!(library().is_file());
    let mut command = within(240, env!("CARGO_BIN_EXE_deepram"));
    command.args(["run", "--media", media, "--"]).arg(program).args(arguments);
    command.output().expect("timeout runs")
}

/// Nanoseconds of the shortest sync.
fn least_sync(media: &str) -> Option<u64> {
    let syncs = program("syncs")?;
    let folder = folder();
    let file = folder.path().join("file");
    let output = run(media, &syncs, &[file.to_str().expect("a path in ASCII")]);
    assert!(output.status.success(), "{media}: {} {}", output.status, text(&output.stderr));
    Some(text(&output.stdout).trim().parse().expect("a number"))
}

#[test]
fn a_sync_takes_at_least_the_barrier_in_every_mode() {
    for rest in ["", ",flush=wof", ",selective=on", ",flush=wof,selective=on"] {
        let media = format!("pmem:wbarrier=3ms{rest}");
        let Some(least) = least_sync(&media) else { return };
        assert!(least >= 3_000_000, "{media}: {least} ns");
    }
}

#[test]
fn a_program_computes_the_same_while_its_instructions_are_looked_at() {
    let Some(syncs) = program("syncs") else { return };
    let folder = folder();
    let file = folder.path().join("file");
    let arguments = [file.to_str().expect("a path in ASCII"), "threads"];
    let first = |output: &[u8]| text(output).lines().next().map(str::to_owned);
    let plain = Command::new(&syncs).args(arguments).output().expect("the program runs");
    let emulated = run("pmem:read=20us,bandwidth=1/2,selective=on", &syncs, &arguments);
    assert!(emulated.status.success(), "{} {}", emulated.status, text(&emulated.stderr));
    assert_eq!(text(&emulated.stderr), "");
    assert_eq!(first(&emulated.stdout), first(&plain.stdout));
}

#[test]
fn the_exit_status_is_the_programs() {
    assert!(library().is_file());
    let mut command = within(60, env!("CARGO_BIN_EXE_deepram"));
    let output = command.args(["run", "--media", "pmem", "--", "sh", "-c", "exit 7"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
}

#[test]
fn memory_that_cannot_be_is_an_error_that_says_what_would_be_right() {
    for (media, says) in [
        ("pmem:reed=300ns", "did you mean read?"),
        ("pmem:bandwidth=9/8", "between 0.001 and 1"),
        ("pmem:read=1ns", "this machine's own memory takes"),
    ] {
        let output = run(media, Path::new("true"), &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{media}: {said}");
    }
    let mut both = within(60, env!("CARGO_BIN_EXE_deepram"));
    let output =
        both.args(["run", "--media", "pmem", "--dram", "64MiB", "--", "true"]).output().expect("runs");
    assert!(!output.status.success() && text(&output.stderr).contains("--dram"), "{}", text(&output.stderr));
}
