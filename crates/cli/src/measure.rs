//! `deepram media measure`: measures a real file or block device and writes the result as a preset.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use deepram_core::Bytes;
use deepram_media::{MEASURED_DEPTH, MEASURED_SIZES, Registry};
use deepram_trace::workload::mix64;
use rustix::fs::OFlags;
use serde::Serialize;

use crate::bench::{BLOCK, aligned};
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
    /// Send the requests of 1 MiB to neighbouring places one after another, as readahead and write-back do, not to random ones
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

    /// The order in which requests of this size go to the places of the file.
    fn order(&self, bytes: u64) -> Order {
        if self.sequential && bytes >= SEQUENTIAL_BYTES { Order::Sequential } else { Order::Random }
    }
}

/// Size from which on `--sequential` concerns requests.
const SEQUENTIAL_BYTES: u64 = 1 << 20;

/// The order in which requests go to the places of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Random,
    Sequential,
}

impl Order {
    const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
        }
    }
}

/// What requests are measured.
#[derive(Debug, Clone, Copy)]
struct Kind {
    write: bool,
    durable: bool,
    order: Order,
    bytes: u64,
    queue_depth: u64,
}

/// The measured file or device.
pub(crate) struct Target {
    path: PathBuf,
    span: u64,
    writable: bool,
    /// Whether the file is removed at the end.
    temporary: bool,
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.temporary {
            // The name of a file that cannot be removed tells which process made it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Least number of requests of a measurement.
const LEAST: u64 = 8;

impl Target {
    pub(crate) fn open(args: &MeasureArgs) -> anyhow::Result<Self> {
        args.check()?;
        let shown = args.path.display();
        let kind = std::fs::metadata(&args.path).with_context(|| shown.to_string())?.file_type();
        let span = args.span.0 / (1 << 20) * (1 << 20);
        ensure!(span >= 64 << 20, "--span {}: expected at least 64 MiB", args.span);
        if kind.is_dir() {
            let path = args.path.join(format!("deepram-measure-{}", std::process::id()));
            let target = Self { path, span, writable: true, temporary: true };
            target.fill()?;
            return Ok(target);
        }
        ensure!(
            kind.is_file() || kind.is_block_device(),
            "{shown}: expected a folder, a file or a block device"
        );
        let mut file = File::open(&args.path).with_context(|| shown.to_string())?;
        let length = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
        let span = span.min(length / (1 << 20) * (1 << 20));
        ensure!(span >= 64 << 20, "{shown}: {} long; expected at least 64 MiB", Bytes(length));
        Ok(Self { path: args.path.clone(), span, writable: args.overwrite, temporary: false })
    }

    /// Writes a whole new file, so that no read finds a hole.
    fn fill(&self) -> anyhow::Result<()> {
        let bar = progress("writing the file");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.path)
            .with_context(|| self.path.display().to_string())?;
        let mut chunk = vec![0u8; 1 << 20];
        for at in (0..self.span).step_by(1 << 20) {
            // All blocks differ: a device that compresses or deduplicates equal blocks would look too fast.
            for (index, word) in chunk.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&mix64(at + index as u64).to_le_bytes());
            }
            file.write_all_at(&chunk, at).with_context(|| self.path.display().to_string())?;
        }
        file.sync_all()?;
        bar.finish_and_clear();
        Ok(())
    }

    fn handle(&self, write: bool, durable: bool) -> anyhow::Result<File> {
        let mut flags = OFlags::DIRECT;
        if durable {
            flags |= OFlags::DSYNC;
        }
        OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(flags.bits() as i32)
            .open(&self.path)
            .with_context(|| format!("{}: cannot be opened for direct I/O", self.path.display()))
    }

    /// Mean time of one read of `bytes` at a time, as `args` asks for it, measured for about `time`, us.
    pub(crate) fn read_us(&self, args: &MeasureArgs, bytes: u64, time: Duration) -> anyhow::Result<f64> {
        let order = args.order(bytes);
        let read = Kind { write: false, durable: false, order, bytes, queue_depth: 1 };
        Ok(self.measure("read", read, time)?.time_us)
    }

    /// Measures requests for about `time`.
    fn measure(&self, key: &str, kind: Kind, time: Duration) -> anyhow::Result<Measurement> {
        let Kind { write, durable, order, bytes, queue_depth } = kind;
        let file = self.handle(write, durable)?;
        let (done, stop, start) =
            (AtomicU64::new(0), AtomicBool::new(false), Barrier::new(queue_depth as usize + 1));
        let next = AtomicU64::new(0);
        let places = self.span / bytes;
        let worker = |number: u64| -> std::io::Result<()> {
            let mut memory = vec![0u8; bytes as usize + BLOCK];
            let buffer = aligned(&mut memory);
            for (index, word) in buffer.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&mix64(number << 32 | index as u64).to_le_bytes());
            }
            start.wait();
            let mut draw = mix64(number + 1);
            while !stop.load(Ordering::Relaxed) {
                draw = match order {
                    Order::Random => mix64(draw),
                    Order::Sequential => next.fetch_add(1, Ordering::Relaxed),
                };
                let offset = draw % places * bytes;
                if write {
                    file.write_all_at(buffer, offset)?
                } else {
                    file.read_exact_at(buffer, offset)?
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let (elapsed, requests) = std::thread::scope(|scope| -> anyhow::Result<(Duration, u64)> {
            let workers: Vec<_> =
                (0..queue_depth).map(|number| scope.spawn(move || worker(number))).collect();
            start.wait();
            // The first requests are slower and do not count.
            std::thread::sleep(time / 10);
            let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
            let counted = loop {
                std::thread::sleep(time);
                let counted = (began.elapsed(), done.load(Ordering::Relaxed) - before);
                // The mean of fewer requests means nothing; a stalled device ends the measurement.
                if counted.1 >= LEAST || counted.0 > time * 20 + Duration::from_secs(5) {
                    break counted;
                }
            };
            stop.store(true, Ordering::Relaxed);
            for worker in workers {
                match worker.join() {
                    Ok(outcome) => outcome.with_context(|| format!("{}: {key}", self.path.display()))?,
                    Err(_) => bail!("{key}: a measuring thread panicked"),
                }
            }
            Ok(counted)
        })?;
        ensure!(requests > 0, "{key}: no request completed within {time:?}; give more --seconds");
        let time_us = elapsed.as_secs_f64() * 1e6 / requests as f64;
        Ok(Measurement { key: key.into(), time_us, queue_depth, order, requests, bytes })
    }
}

/// Measures an open file or device. Returns the measurements and the text of the preset file.
pub(crate) fn measure(args: &MeasureArgs, target: &Target) -> anyhow::Result<(Vec<Measurement>, String)> {
    ensure!(
        target.writable,
        "{}: the measurement overwrites its contents; give --overwrite to allow this, or give a folder",
        args.path.display()
    );
    let time = Duration::from_secs_f64(args.seconds);
    let mut measurements = Vec::new();
    for (write, op) in [(false, "read"), (true, "write")] {
        for Bytes(bytes) in MEASURED_SIZES {
            let size =
                if bytes < 1 << 20 { format!("{}k", bytes >> 10) } else { format!("{}m", bytes >> 20) };
            for (suffix, queue_depth) in [("", 1), ("_interval", MEASURED_DEPTH)] {
                let key = format!("{op}_{size}{suffix}");
                let bar = progress("measuring").with_message(key.clone());
                let kind = Kind { write, durable: false, order: args.order(bytes), bytes, queue_depth };
                measurements.push(target.measure(&key, kind, time)?);
                bar.finish_and_clear();
            }
        }
    }
    let bytes = BLOCK as u64;
    let durable = Kind { write: true, durable: true, order: Order::Random, bytes, queue_depth: 1 };
    measurements.push(target.measure("durable_write_4k", durable, time)?);
    let text = preset(args, target, &measurements);
    // The preset must parse.
    Registry::builtin()?.add("the measured preset", &text)?;
    Ok((measurements, text))
}

pub(crate) fn run(args: &MeasureArgs) -> anyhow::Result<()> {
    let (measurements, text) = measure(args, &Target::open(args)?)?;
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
        target.span >> 20
    );
    for Measurement { key, time_us, queue_depth, order, .. } in measurements {
        let order = order.name();
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
