//! `deepram media measure`: times a real file or block device and writes what it found as a preset.

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
use rustix::fs::OFlags;
use serde::Serialize;

use crate::bench::{BLOCK, aligned, mix};
use crate::output::{Table, emit_json, emit_text, progress};

/// Options of `deepram media measure`.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// A folder on the device to measure, a file, or a block device
    ///
    /// In a folder a file is made and removed again. A file or block device that exists is only
    /// read unless --overwrite is given.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Bytes to spread the requests over; more than the device's own cache, if it has one
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    span: Bytes,
    /// Seconds for each of the figures
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    seconds: f64,
    /// Let the contents of an existing file or device be overwritten
    #[arg(long)]
    overwrite: bool,
    /// The preset's name
    #[arg(long, default_value = "measured", value_name = "NAME")]
    name: String,
    /// Write the preset here; for `--config` of `deepram sim` and `deepram media`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    key: String,
    /// From one completion to the next with so many under way.
    time_us: f64,
    under_way: u64,
    requests: u64,
    bytes: u64,
}

impl MeasureArgs {
    /// A file in a folder, so many seconds a figure.
    pub(crate) fn folder(path: &Path, span: Bytes, seconds: f64) -> Self {
        let (path, name) = (path.to_path_buf(), "measured".to_owned());
        Self { path, span, seconds, overwrite: false, name, out: None, json: false }
    }
}

/// What is measured, and whether it is ours to remove.
struct Target {
    path: PathBuf,
    span: u64,
    writable: bool,
    temporary: bool,
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.temporary {
            // What cannot be removed says by its name whose it is.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Requests that a figure is the mean of, at least.
const LEAST: u64 = 8;

impl Target {
    fn open(args: &MeasureArgs) -> anyhow::Result<Self> {
        let shown = args.path.display();
        let kind = std::fs::metadata(&args.path).with_context(|| shown.to_string())?.file_type();
        let span = args.span.0 / (1 << 20) * (1 << 20);
        ensure!(span >= 64 << 20, "--span {}: at least 64 MiB are needed", args.span);
        if kind.is_dir() {
            let path = args.path.join(format!("deepram-measure-{}", std::process::id()));
            let target = Self { path, span, writable: true, temporary: true };
            target.fill()?;
            return Ok(target);
        }
        ensure!(
            kind.is_file() || kind.is_block_device(),
            "{shown}: neither a folder, a file nor a block device"
        );
        let mut file = File::open(&args.path).with_context(|| shown.to_string())?;
        let length = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
        let span = span.min(length / (1 << 20) * (1 << 20));
        ensure!(span >= 64 << 20, "{shown}: has {} only; at least 64 MiB are needed", Bytes(length));
        Ok(Self { path: args.path.clone(), span, writable: args.overwrite, temporary: false })
    }

    /// Writes all of a new file, so that no read finds a hole.
    fn fill(&self) -> anyhow::Result<()> {
        let bar = progress("writing the file");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.path)
            .with_context(|| self.path.display().to_string())?;
        let mut chunk = vec![0u8; 1 << 20];
        for at in (0..self.span).step_by(1 << 20) {
            // No two blocks alike: a device that compresses or shares them would look too fast.
            for (index, word) in chunk.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&mix(at + index as u64).to_le_bytes());
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

    /// Random requests of `bytes`, `under_way` at once, for about `time`.
    fn figure(
        &self,
        key: &str,
        write: bool,
        durable: bool,
        bytes: u64,
        under_way: u64,
        time: Duration,
    ) -> anyhow::Result<Figure> {
        let file = self.handle(write, durable)?;
        let (done, stop, start) =
            (AtomicU64::new(0), AtomicBool::new(false), Barrier::new(under_way as usize + 1));
        let places = self.span / bytes;
        let worker = |number: u64| -> std::io::Result<()> {
            let mut memory = vec![0u8; bytes as usize + BLOCK];
            let buffer = aligned(&mut memory);
            for (index, word) in buffer.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&mix(number << 32 | index as u64).to_le_bytes());
            }
            start.wait();
            let mut draw = mix(number + 1);
            while !stop.load(Ordering::Relaxed) {
                draw = mix(draw);
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
            let workers: Vec<_> = (0..under_way).map(|number| scope.spawn(move || worker(number))).collect();
            start.wait();
            // The first requests are slower: clocks wake up, tables are loaded.
            std::thread::sleep(time / 10);
            let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
            let counted = loop {
                std::thread::sleep(time);
                let counted = (began.elapsed(), done.load(Ordering::Relaxed) - before);
                // A mean of fewer says nothing; a device that stands still is not waited for.
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
        Ok(Figure { key: key.into(), time_us, under_way, requests, bytes })
    }
}

/// Measures: the figures, and the preset file that they make.
pub(crate) fn measure(args: &MeasureArgs) -> anyhow::Result<(Vec<Figure>, String)> {
    ensure!(args.seconds > 0.0 && args.seconds < 3600.0, "--seconds {}: 0 to 3600", args.seconds);
    ensure!(
        !args.name.is_empty()
            && args.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
        "--name {}: lower-case letters, digits and - only",
        args.name
    );
    let target = Target::open(args)?;
    ensure!(
        target.writable,
        "{}: writes are measured too, over its contents; give --overwrite if they may go, or a folder",
        args.path.display()
    );
    let time = Duration::from_secs_f64(args.seconds);
    let mut figures = Vec::new();
    for (write, op) in [(false, "read"), (true, "write")] {
        for Bytes(bytes) in MEASURED_SIZES {
            let size =
                if bytes < 1 << 20 { format!("{}k", bytes >> 10) } else { format!("{}m", bytes >> 20) };
            for (suffix, under_way) in [("", 1), ("_interval", MEASURED_DEPTH)] {
                let key = format!("{op}_{size}{suffix}");
                let bar = progress("measuring").with_message(key.clone());
                figures.push(target.figure(&key, write, false, bytes, under_way, time)?);
                bar.finish_and_clear();
            }
        }
    }
    figures.push(target.figure("durable_write_4k", true, true, BLOCK as u64, 1, time)?);
    let text = preset(args, &target, &figures);
    // What is written must be readable again.
    Registry::builtin()?.add("the preset measured", &text)?;
    Ok((figures, text))
}

pub(crate) fn run(args: &MeasureArgs) -> anyhow::Result<()> {
    let (figures, text) = measure(args)?;
    if let Some(out) = &args.out {
        std::fs::write(out, &text).with_context(|| out.display().to_string())?;
    }
    if args.json {
        return emit_json(&figures);
    }
    let mut table = Table::new(&["<figure", "bytes", "under way", "µs", "requests/s", "MB/s"]);
    for figure in &figures {
        table.row(vec![
            figure.key.clone(),
            figure.bytes.to_string(),
            figure.under_way.to_string(),
            format!("{:.1}", figure.time_us),
            format!("{:.0}", 1e6 / figure.time_us),
            format!("{:.1}", figure.bytes as f64 / figure.time_us),
        ]);
    }
    emit_text(&table.render())?;
    match &args.out {
        Some(out) => emit_text(&format!("\nfile.{} is in {}\n", args.name, out.display())),
        None => emit_text(&format!("\n{text}")),
    }
}

/// The figures as a preset file.
fn preset(args: &MeasureArgs, target: &Target, figures: &[Figure]) -> String {
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
    for Figure { key, time_us, under_way, .. } in figures {
        let _ = writeln!(
            text,
            "{key} = {{ value = {time_us:.3}, unit = \"us\", condition = \"random, direct, {under_way} under way, mean of {} s\", source = \"{source}\" }}",
            args.seconds
        );
    }
    text
}

/// A path inside a TOML string.
fn quoted(path: &Path) -> String {
    path.display().to_string().replace(['"', '\\'], "_")
}
