//! `deepram trace record`: runs a program as `deepram run` does and writes its page faults as a trace.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::fault_merge::merge;
use tempfile::TempDir;

use crate::output::{count, emit_text};
use crate::run::{PagingArgs, PreparedProgram, Record, all_faults, exit_code, leave_outer_run, print};

/// Options of `deepram trace record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Trace file, which must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Record nearly all uses of pages: few pages are accessible at a time, and a use of any other one is a fault. The program
    /// runs slower
    #[arg(long)]
    accesses: bool,
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
    let recording = Recording::new("--out", &args.out)?;
    let record = Record { folder: recording.folder(), accesses: args.accesses };
    let prepared = PreparedProgram::new(&args.paging, Some(record))?;
    let source = prepared.stats_source();
    let status = prepared.run(|| ())?;
    let stats = source.read();
    let written = recording.finish()?;
    let shown = args.out.display();
    let missing = all_faults(&stats).saturating_sub(written);
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

/// A trace that will be made of records, which are written in a hidden folder beside it meanwhile. Dropping it removes the folder.
pub(crate) struct Recording {
    out: PathBuf,
    records: TempDir,
}

impl Recording {
    /// Prepares a trace in the file that this option names.
    ///
    /// # Errors
    /// The file exists, or no folder can be made beside it.
    pub(crate) fn new(option: &str, out: &Path) -> anyhow::Result<Self> {
        let shown = out.display();
        if out.symlink_metadata().is_ok() {
            bail!("{option} {shown} exists already: remove it or give another name");
        }
        let parent = match out.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let folder = std::fs::canonicalize(parent).with_context(|| format!("{option} {shown}"))?;
        let records = tempfile::Builder::new()
            .prefix(".deepram-record-")
            .tempdir_in(&folder)
            .with_context(|| format!("creating a folder for the records beside {shown}"))?;
        Ok(Self { out: out.to_owned(), records })
    }

    /// The folder for the records.
    pub(crate) fn folder(&self) -> &Path {
        self.records.path()
    }

    /// Writes the trace. Returns the number of faults.
    pub(crate) fn finish(self) -> anyhow::Result<u64> {
        write(self.records.path(), &self.out)
    }
}

/// Makes a trace of the records in a folder.
pub(super) fn merge_folder(records: &Path, out: &Path) -> anyhow::Result<()> {
    let written = write(records, out)?;
    emit_text(&format!("{} page faults are in {}\n", count(written), out.display()))
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
