//! `deepram media measure`: measures a real file or block device and writes the result as a preset.

mod target;

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use deepram_core::Bytes;
use deepram_media::{MEASURED_DEPTH, MEASURED_SIZES, Registry};
use serde::Serialize;

pub(crate) use self::target::{Load, Order, Target};
use crate::bench::BLOCK;
use crate::output::{Table, emit_json, emit_text, progress};

/// Options of `deepram media measure`.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Folder on the device to measure, or a file or block device
    ///
    /// In a folder the command creates a file and removes it at the end. An existing file or block device needs
    /// --overwrite, because writes are measured too.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Range of the requests, larger than the cache of the device
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    span: Bytes,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    seconds: f64,
    /// Send the requests of 1 MiB to neighbouring places, at queue depths 1 and 4, as readahead and write-back do
    #[arg(long)]
    sequential: bool,
    /// Overwrite the contents of an existing file or device
    #[arg(long)]
    overwrite: bool,
    /// Name of the preset
    #[arg(long, default_value = "measured", value_name = "NAME")]
    name: String,
    /// File for the preset, for `--config` of `deepram sim` and `deepram media`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurement {
    key: String,
    /// Mean time between two completions, us.
    time_us: f64,
    queue_depth: u64,
    order: Order,
    requests: u64,
    bytes: u64,
}

impl Measurement {
    fn of(target: &Target, key: String, load: Load, time: Duration) -> anyhow::Result<Self> {
        let bar = progress("measuring").with_message(key.clone());
        let (time_us, requests) = target.measure(load, time).with_context(|| key.clone())?;
        bar.finish_and_clear();
        let Load { queue_depth, order, bytes, .. } = load;
        Ok(Self { key, time_us, queue_depth, order, requests, bytes })
    }
}

impl MeasureArgs {
    /// Options for a temporary file in a folder under a pager, `seconds` for each measurement.
    pub(crate) fn of_pager(path: &Path, span: Bytes, seconds: f64) -> Self {
        let (path, name) = (path.to_path_buf(), "measured".to_owned());
        Self { path, span, seconds, sequential: true, overwrite: false, name, out: None, json: false }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.seconds > 0.0 && self.seconds < 3600.0,
            "--seconds {}: expected more than 0 and less than 3600",
            self.seconds
        );
        ensure!(
            !self.name.is_empty()
                && self.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "--name {}: expected lower-case letters, digits and - only",
            self.name
        );
        Ok(())
    }

    /// Requests of this size that are under way at once while the interval between completions is measured.
    fn depth(&self, bytes: u64) -> u64 {
        match self.order(bytes) {
            Order::Random => MEASURED_DEPTH,
            Order::Sequential => SEQUENTIAL_DEPTH,
        }
    }

    /// The order in which requests of this size go to the places of the file.
    pub(crate) fn order(&self, bytes: u64) -> Order {
        if self.sequential && bytes >= SEQUENTIAL_BYTES { Order::Sequential } else { Order::Random }
    }
}

/// Size from which on `--sequential` concerns requests.
const SEQUENTIAL_BYTES: u64 = 1 << 20;
/// Sequential requests that are under way at once: about as many as readahead and write-back send.
const SEQUENTIAL_DEPTH: u64 = 4;

/// Opens the file or device that the options name, or creates a file in the folder that they name.
pub(crate) fn open(args: &MeasureArgs) -> anyhow::Result<Target> {
    args.check()?;
    let shown = args.path.display();
    let kind = std::fs::metadata(&args.path).with_context(|| shown.to_string())?.file_type();
    let span = args.span.0 / (1 << 20) * (1 << 20);
    ensure!(span >= 64 << 20, "--span {}: expected at least 64 MiB", args.span);
    if kind.is_dir() {
        let path = args.path.join(format!("deepram-measure-{}", std::process::id()));
        return Target::create(path, span, || Ok(()));
    }
    ensure!(kind.is_file() || kind.is_block_device(), "{shown}: expected a folder, a file or a block device");
    ensure!(
        args.overwrite,
        "{shown}: the measurement overwrites its contents; give --overwrite to allow this, or give a folder"
    );
    let mut file = File::open(&args.path).with_context(|| shown.to_string())?;
    let length = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
    let span = span.min(length / (1 << 20) * (1 << 20));
    ensure!(span >= 64 << 20, "{shown}: {} long; expected at least 64 MiB", Bytes(length));
    Ok(Target::existing(args.path.clone(), span))
}

/// Measures an open file or device. Returns the measurements and the text of the preset file.
pub(crate) fn measure(args: &MeasureArgs, target: &Target) -> anyhow::Result<(Vec<Measurement>, String)> {
    let time = Duration::from_secs_f64(args.seconds);
    let mut measurements = Vec::new();
    for (write, op) in [(false, "read"), (true, "write")] {
        for Bytes(bytes) in MEASURED_SIZES {
            let size =
                if bytes < 1 << 20 { format!("{}k", bytes >> 10) } else { format!("{}m", bytes >> 20) };
            for (suffix, queue_depth) in [("", 1), ("_interval", args.depth(bytes))] {
                let load = Load { write, ..Load::reads(args.order(bytes), bytes, queue_depth) };
                measurements.push(Measurement::of(target, format!("{op}_{size}{suffix}"), load, time)?);
            }
        }
    }
    let durable = Load { write: true, durable: true, ..Load::reads(Order::Random, BLOCK as u64, 1) };
    measurements.push(Measurement::of(target, "durable_write_4k".into(), durable, time)?);
    let text = preset(args, target, &measurements);
    // The preset must parse.
    Registry::builtin()?.add("the measured preset", &text)?;
    Ok((measurements, text))
}

pub(crate) fn run(args: &MeasureArgs) -> anyhow::Result<()> {
    let (measurements, text) = measure(args, &open(args)?)?;
    if let Some(out) = &args.out {
        std::fs::write(out, &text).with_context(|| out.display().to_string())?;
    }
    if args.json {
        return emit_json(&measurements);
    }
    let mut table = Table::new(&["<key", "bytes", "queue depth", "µs", "requests/s", "MB/s"]);
    for measurement in &measurements {
        table.row(vec![
            measurement.key.clone(),
            measurement.bytes.to_string(),
            measurement.queue_depth.to_string(),
            format!("{:.1}", measurement.time_us),
            format!("{:.0}", 1e6 / measurement.time_us),
            format!("{:.1}", measurement.bytes as f64 / measurement.time_us),
        ]);
    }
    emit_text(&table.render())?;
    match &args.out {
        Some(out) => emit_text(&format!("\nfile.{} written to {}\n", args.name, out.display())),
        None => emit_text(&format!("\n{text}")),
    }
}

/// The preset file of the measurements.
fn preset(args: &MeasureArgs, target: &Target, measurements: &[Measurement]) -> String {
    let release = rustix::system::uname();
    let machine = format!(
        "{} {}, {} processors",
        release.sysname().to_string_lossy(),
        release.release().to_string_lossy(),
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    let day = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    let source = format!("deepram media measure {}, {day}, {machine}", quoted(&args.path));
    let mut text = format!(
        "[file.{}]\nabout = \"{}, measured\"\nspan = {{ value = {}, unit = \"MiB\", source = \"{source}\" }}\n",
        args.name,
        quoted(&args.path),
        target.span() >> 20
    );
    for Measurement { key, time_us, queue_depth, order, .. } in measurements {
        let order: &str = (*order).into();
        let _ = writeln!(
            text,
            "{key} = {{ value = {time_us:.3}, unit = \"us\", condition = \"{order}, direct, queue depth {queue_depth}, mean of {} s\", source = \"{source}\" }}",
            args.seconds
        );
    }
    text
}

/// A path with the characters replaced that a TOML string cannot hold.
fn quoted(path: &Path) -> String {
    path.display().to_string().replace(['"', '\\'], "_")
}
