//! `deepram trace record`: a program run as `deepram run` does, and its page faults as a trace.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::merge::merge;
use crate::output::count;
use crate::run::{Paging, Prepared, exit_code, leave_outer, print};

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The trace; it must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    paging: Paging,
}

/// Ends the process with the program's status, once the trace is written.
pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    leave_outer()?;
    let code = status(args)?;
    std::process::exit(code)
}

/// Runs the program and writes the trace. The records of its processes are gone when this returns.
fn status(args: &RecordArgs) -> anyhow::Result<i32> {
    let shown = args.out.display();
    if args.out.symlink_metadata().is_ok() {
        bail!("--out {shown} is there already: remove it, or name another file");
    }
    let beside = match args.out.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let folder = std::fs::canonicalize(beside).with_context(|| format!("--out {shown}"))?;
    let records = tempfile::Builder::new()
        .prefix(".deepram-record-")
        .tempdir_in(&folder)
        .with_context(|| format!("making a folder for the records beside {shown}"))?;
    let prepared = Prepared::new(&args.paging, Some(records.path()))?;
    let source = prepared.source();
    let status = prepared.run(|| ())?;
    let reading = source.read();
    let written = write(records.path(), &args.out)?;
    let missing = reading.all_faults().saturating_sub(written);
    let but = match missing {
        0 => String::new(),
        n => format!("; {} more are not, of processes that were killed or could not write", count(n)),
    };
    eprintln!("deepram: {} page faults are in {shown}{but}", count(written));
    if let Some(form) = args.paging.stats {
        print(&reading, form);
    }
    Ok(exit_code(status))
}

/// Makes a trace of the records in the folder. Returns how many faults it has.
fn write(records: &Path, out: &Path) -> anyhow::Result<u64> {
    let file = File::create_new(out).with_context(|| format!("creating {}", out.display()))?;
    let result = (|| {
        let mut file = BufWriter::new(file);
        let written = merge(records, &mut file)?;
        file.flush()?;
        anyhow::Ok(written)
    })();
    if result.is_err() {
        // Half a trace is of no use to anybody; the first error is the one to tell.
        let _ = std::fs::remove_file(out);
    }
    result
}
