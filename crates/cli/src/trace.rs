//! `deepram trace`: inspects, converts and records traces.

mod characterize;
mod fault_merge;
pub(crate) mod record;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use deepram_core::units::{Bytes, parse_count};
use deepram_trace::{
    FORMATS, Format, MemoryAccess, Op, OpStats, ReadOptions, Summary, TraceError, TraceReader, TraceWriter,
    WriteOptions,
};
use serde::Serialize;

use crate::output::{Table, count, emit_json, emit_text, progress};

/// Commands on traces.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Summarise a trace: operations, sizes, footprint, times
    #[command(allow_negative_numbers = true)]
    Info {
        #[command(flatten)]
        source: TraceInput,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Characterise traces: traffic, unique data, spatial and temporal locality, working sets, distributions
    ///
    /// Reads each trace once. Several traces stand side by side. The pages and the three settings of the spatial classes
    /// are those of the hybrid SSD cache paper.
    ///
    /// Example: deepram trace characterize --policies all --html report.html a.csv b.csv.zst
    #[command(allow_negative_numbers = true)]
    Characterize(characterize::CharacterizeArgs),
    /// Convert a trace to another format
    ///
    /// A record that the new format cannot hold completely is an error, unless --lossy is given.
    #[command(allow_negative_numbers = true)]
    Convert {
        #[command(flatten)]
        source: TraceInput,
        /// New file, which must not exist
        output: PathBuf,
        /// Format of the new file, as listed by `deepram trace formats`
        #[arg(long, default_value = "compact", value_name = "FORMAT")]
        to: Format,
        /// Drop fields that the new format cannot hold
        #[arg(long)]
        lossy: bool,
        /// Most records to convert: 1000, 10k, 2.5M
        #[arg(long, value_name = "N", value_parser = parse_count)]
        limit: Option<u64>,
    },
    /// List the trace formats
    Formats,
    /// Run a program as `deepram run` does and record its page faults as a trace
    ///
    /// Records the page faults of the program and all its descendants: on fresh pages, major faults, victim buffer hits,
    /// and write-protection faults. Each record is a read or write of a 4 KiB page with its time. The exit status is the
    /// program's own.
    ///
    /// Example: deepram trace record --dram 512MiB --out sort.trace -- sort -S 2G big.txt
    Record(record::RecordArgs),
    /// Make a trace of the page fault records that pools have written into a folder (`OpenOptions::record_faults_to`)
    ///
    /// Each record is a read or write of a 4 KiB page with its time.
    Merge {
        /// Folder with the records, and nothing else
        #[arg(value_name = "FOLDER")]
        records: PathBuf,
        /// Trace file, which must not exist
        output: PathBuf,
    },
}

/// The trace to read.
#[derive(Debug, Args)]
pub(crate) struct TraceInput {
    /// Trace file: plain, gzip or zstd
    input: PathBuf,
    /// Format of the trace [default: recognised from its content]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Size of the address unit of a format that counts in sectors or blocks: 512, 4KiB
    #[arg(long, value_name = "SIZE", value_parser = unit)]
    unit: Option<u64>,
}

fn unit(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Bytes(0)) => Err("a unit is at least one byte".into()),
        Ok(Bytes(bytes)) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

impl TraceInput {
    pub(crate) fn new(input: PathBuf, format: Option<Format>) -> Self {
        Self { input, format, unit: None }
    }

    fn with_unit(self, unit: Option<u64>) -> Self {
        Self { unit, ..self }
    }

    pub(crate) fn open(&self) -> anyhow::Result<TraceReader> {
        Ok(self.reader()?)
    }

    pub(crate) fn reader(&self) -> Result<TraceReader, TraceError> {
        let options = ReadOptions { format: self.format, unit_bytes: self.unit, ..ReadOptions::default() };
        TraceReader::open(&self.input, &options)
    }
}

/// Runs a command.
pub(crate) fn run(command: TraceCommand) -> anyhow::Result<()> {
    match command {
        TraceCommand::Info { source, json } => info(&source, json),
        TraceCommand::Convert { source, output, to, lossy, limit } => {
            convert(&source, &output, to, lossy, limit)
        }
        TraceCommand::Characterize(args) => characterize::run(&args),
        TraceCommand::Formats => formats(),
        TraceCommand::Record(args) => record::run(&args),
        TraceCommand::Merge { records, output } => record::merge_folder(&records, &output),
    }
}

#[derive(Serialize)]
struct OpJson {
    kind: &'static str,
    op: &'static str,
    count: u64,
    bytes: u128,
}

#[derive(Serialize)]
struct InfoJson {
    format: &'static str,
    records: u64,
    ops: Vec<OpJson>,
    instructions: u64,
    devices: usize,
    size_mean_bytes: Option<f64>,
    size_min_bytes: Option<u64>,
    size_max_bytes: Option<u64>,
    footprint_bytes: u128,
    objects: u64,
    object_bytes: u128,
    write_ratio: Option<f64>,
    sequential: u64,
    first_ps: Option<u64>,
    last_ps: Option<u64>,
    interarrival_mean_ps: Option<f64>,
    out_of_order: u64,
}

fn info(source: &TraceInput, json: bool) -> anyhow::Result<()> {
    let mut reader = source.open()?;
    let bar = progress("reading");
    let mut summary = Summary::default();
    for item in &mut reader {
        summary.add(&item?);
        if summary.records.is_multiple_of(1 << 16) {
            bar.set_position(summary.records);
        }
    }
    bar.finish_and_clear();
    let format = reader.format().name();
    if !json {
        return emit_text(&format!("format           {format}\n{summary}"));
    }
    let mut ops = Vec::new();
    let mut take = |kind, op, stats: &OpStats| {
        if stats.count > 0 {
            ops.push(OpJson { kind, op, count: stats.count, bytes: stats.bytes });
        }
    };
    for (op, stats) in Op::ALL.iter().zip(&summary.block) {
        take("block", op.name(), stats);
    }
    for (op, stats) in Op::ALL.iter().zip(&summary.object) {
        take("object", op.name(), stats);
    }
    for (access, stats) in MemoryAccess::ALL.iter().zip(&summary.mem) {
        take("memory", access.name(), stats);
    }
    emit_json(&InfoJson {
        format,
        records: summary.records,
        ops,
        instructions: summary.instructions,
        devices: summary.devices.len(),
        size_mean_bytes: summary.mean_size(),
        size_min_bytes: summary.size.map(|s| s.0),
        size_max_bytes: summary.size.map(|s| s.1),
        footprint_bytes: summary.footprint_bytes(),
        objects: summary.distinct_objects(),
        object_bytes: summary.distinct_object_bytes(),
        write_ratio: summary.write_ratio(),
        sequential: summary.sequential,
        first_ps: summary.time_ps.map(|t| t.0),
        last_ps: summary.time_ps.map(|t| t.1),
        interarrival_mean_ps: summary.mean_interarrival_ps(),
        out_of_order: summary.out_of_order,
    })
}

fn convert(
    source: &TraceInput,
    output: &PathBuf,
    to: Format,
    lossy: bool,
    limit: Option<u64>,
) -> anyhow::Result<()> {
    use anyhow::Context;
    let reader = source.open()?;
    let file = File::create_new(output).with_context(|| match output.exists() {
        true => format!("creating {}: the file exists; remove it or give another name", output.display()),
        false => format!("creating {}", output.display()),
    })?;
    let bar = progress("converting");
    let result = (|| {
        let mut writer =
            TraceWriter::new(BufWriter::new(&file), to, WriteOptions { lossy, ..WriteOptions::default() })?;
        let done = deepram_trace::convert(reader, &mut writer, limit, |n| bar.set_position(n))?;
        writer.finish()?.flush()?;
        anyhow::Ok(done.records)
    })();
    bar.finish_and_clear();
    match result {
        Ok(records) => emit_text(&format!("{} records written to {}\n", count(records), output.display())),
        Err(error) => {
            // A partial trace is useless; the first error is the one to report.
            let _ = std::fs::remove_file(output);
            Err(error)
        }
    }
}

fn formats() -> anyhow::Result<()> {
    let mut table = Table::new(&["<format", "<writable", "<record"]);
    for format in FORMATS {
        let written = if format.writable { "yes" } else { "" };
        table.row(vec![format.name.into(), written.into(), format.description.into()]);
    }
    emit_text(&table.render())
}
