//! SQLite and LMDB through their Python packages. A commit takes much longer than a call from Python, so Python does not
//! distort the result.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use super::super::latency::Latency;
use super::super::{Scratch, device_written};
use super::{PersistArgs, Sample, sample};

/// Names of the methods.
pub(super) const NAMES: [&str; 2] = ["sqlite-wal-full", "lmdb"];

const PROGRAM: &str = include_str!("peer.py");

#[derive(Deserialize)]
struct ScriptOutput {
    seconds: f64,
    nanoseconds: Vec<u64>,
}

/// Runs one method with `threads` threads.
///
/// # Errors
/// The method cannot run on this machine; the message gives the reason.
pub(super) fn measure(
    name: &str,
    args: &PersistArgs,
    scratch: &Scratch,
    threads: usize,
) -> anyhow::Result<Sample> {
    let folder = scratch.file(name);
    if !folder.exists() {
        std::fs::create_dir(&folder)?;
    }
    let before = device_written(&args.common.dir);
    let output = run(&args.python, name, &folder, threads, args.seconds, args.size.0)?;
    let written = before.zip(device_written(&args.common.dir)).map(|(before, after)| after - before);
    let mut times = Latency::new()?;
    output.nanoseconds.into_iter().for_each(|ns| times.add(Duration::from_nanos(ns)));
    sample(&times, Duration::from_secs_f64(output.seconds), written)
}

fn run(
    python: &Path,
    name: &str,
    folder: &Path,
    threads: usize,
    seconds: f64,
    size: u64,
) -> anyhow::Result<ScriptOutput> {
    let mut command = Command::new(python);
    command.args(["-c", PROGRAM, name]).arg(folder);
    command.args([threads.to_string(), seconds.to_string(), size.to_string()]);
    let output = command.output().with_context(|| format!("cannot start {}", python.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("{}", said.lines().last().unwrap_or("the script failed without a message"));
    }
    serde_json::from_slice(&output.stdout).context("unexpected output of the script")
}
