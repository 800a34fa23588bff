//! `deepram trace record`: runs a program as `deepram run` does and writes its page faults as a trace.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::fault_merge::merge;
use crate::output::count;
use crate::run::{PagingArgs, PreparedProgram, exit_code, leave_outer_run, print};

/// Options of `deepram trace record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Trace file, which must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    paging: PagingArgs,
}

/// Runs the program, writes the trace, and ends this process with the program's exit status.
pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    leave_outer_run()?;
    let code = status(args)?;
    std::process::exit(code)
}

/// Runs the program and writes the trace. The record files of its processes are removed before this function returns.
fn status(args: &RecordArgs) -> anyhow::Result<i32> {
    let shown = args.out.display();
    if args.out.symlink_metadata().is_ok() {
        bail!("--out {shown} exists already: remove it or give another name");
    }
    let parent = match args.out.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let folder = std::fs::canonicalize(parent).with_context(|| format!("--out {shown}"))?;
    let records = tempfile::Builder::new()
        .prefix(".deepram-record-")
        .tempdir_in(&folder)
        .with_context(|| format!("creating a folder for the records beside {shown}"))?;
    let prepared = PreparedProgram::new(&args.paging, Some(records.path()))?;
    let source = prepared.stats_source();
    let status = prepared.run(|| ())?;
    let stats = source.read();
    let written = write(records.path(), &args.out)?;
    let missing = stats.all_faults().saturating_sub(written);
    let missing_note = match missing {
        0 => String::new(),
        n => {
            format!("; {} more faults are missing: their processes were killed or could not write", count(n))
        }
    };
    eprintln!("deepram: {} page faults are in {shown}{missing_note}", count(written));
    if let Some(format) = args.paging.stats {
        print(&stats, format);
    }
    Ok(exit_code(status))
}

/// Writes a trace from the records in the folder. Returns the number of faults.
fn write(records: &Path, out: &Path) -> anyhow::Result<u64> {
    let file = File::create_new(out).with_context(|| format!("creating {}", out.display()))?;
    let result = (|| {
        let mut file = BufWriter::new(file);
        let written = merge(records, &mut file)?;
        file.flush()?;
        anyhow::Ok(written)
    })();
    if result.is_err() {
        // A partial trace is useless; the first error is the one to report.
        let _ = std::fs::remove_file(out);
    }
    result
}
