//! A file or block device under requests with direct I/O.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use deepram_core::Bytes;
use deepram_linux::buffer::AlignedBuf;
use deepram_trace::workload::mix64;
use rustix::fs::{Advice, OFlags, fadvise};
use serde::Serialize;

use crate::output::progress;

/// Size of a concurrent write, bytes: a write-back batch of the pager.
const WRITE: u64 = 256 << 10;
/// Most bytes by which reads may be ahead of concurrent writes.
const AHEAD: u64 = 2 << 20;
/// Interval at which readers and the writer poll each other.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
/// Memory of the requests that are counted. They use all of it by turns, as a pager does: into some MiB of a virtual machine's memory the
/// device reads half as fast as into others (docs/adr/0014).
const MEMORY: u64 = 64 << 20;
/// Memory of concurrent writes.
const WRITE_MEMORY: u64 = 4 << 20;
/// Least number of requests of a measurement at each queue depth.
const LEAST: u64 = 8;
/// Bytes that are written at a time when the file is filled.
const FILL: usize = 1 << 20;

/// The order in which requests go to the places of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "&str")]
pub(crate) enum Order {
    Random,
    Sequential,
}

impl From<Order> for &str {
    fn from(order: Order) -> Self {
        match order {
            Order::Random => "random",
            Order::Sequential => "sequential",
        }
    }
}

/// What requests are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) write: bool,
    pub(crate) durable: bool,
    /// Whether as many bytes as are read are written at the same time, in sequence.
    pub(crate) beside_writes: bool,
    pub(crate) order: Order,
    pub(crate) bytes: u64,
    pub(crate) queue_depth: u64,
}

impl Load {
    /// Reads alone.
    pub(crate) const fn reads(order: Order, bytes: u64, queue_depth: u64) -> Self {
        Self { write: false, durable: false, beside_writes: false, order, bytes, queue_depth }
    }
}

/// The measured file or device.
pub(crate) struct Target {
    path: PathBuf,
    span: u64,
    /// Whether the file is removed at the end.
    temporary: bool,
    /// Number of the next request. Each goes to another place: a cache of the device would serve a place again.
    next: AtomicU64,
    /// [`MEMORY`], then [`WRITE_MEMORY`]; in huge pages, as streams are read.
    memory: Mutex<AlignedBuf>,
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.temporary {
            // The name of a file that cannot be removed tells which process made it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Target {
    /// An existing file or device, of which the first `span` bytes are measured.
    pub(crate) fn existing(path: PathBuf, span: u64) -> Self {
        Self::new(path, span, false)
    }

    fn new(path: PathBuf, span: u64, temporary: bool) -> Self {
        let mut memory = AlignedBuf::zeroed((MEMORY + WRITE_MEMORY) as usize).in_huge_pages();
        randomize(&mut memory, u64::MAX / 2);
        Self { path, span, temporary, next: AtomicU64::new(0), memory: Mutex::new(memory) }
    }

    /// Writes a new file, which is removed at the end; `check` ends this with an error.
    pub(crate) fn create(
        path: PathBuf,
        span: u64,
        check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        let target = Self::new(path, span, true);
        fill(&file, span, check).with_context(|| target.path.display().to_string())?;
        Ok(target)
    }

    /// Bytes of the measured range.
    pub(crate) const fn span(&self) -> u64 {
        self.span
    }

    fn handle(&self, load: Load) -> anyhow::Result<File> {
        let mut flags = OFlags::DIRECT;
        if load.durable {
            flags |= OFlags::DSYNC;
        }
        OpenOptions::new()
            .read(true)
            .write(load.write || load.beside_writes)
            .custom_flags(flags.bits().cast_signed())
            .open(&self.path)
            .with_context(|| format!("{}: cannot be opened for direct I/O", self.path.display()))
    }

    /// Measures requests for about `time`. Returns the mean time between two completions, us, and the number of requests.
    pub(crate) fn measure(&self, load: Load, time: Duration) -> anyhow::Result<(f64, u64)> {
        let file = self.handle(load)?;
        let places = self.span / load.bytes;
        ensure!(places > 0, "{}: the file has fewer than {}", self.path.display(), Bytes(load.bytes));
        let (begun, done, written) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (stop, start) = (AtomicBool::new(false), Barrier::new(load.queue_depth as usize + 1));
        let worker = |memory: &mut [u8]| -> std::io::Result<()> {
            let slots = memory.len() as u64 / load.bytes;
            start.wait();
            for slot in (0..slots).cycle() {
                if stop.load(Relaxed) {
                    break;
                }
                let read = begun.fetch_add(1, Relaxed) * load.bytes;
                while load.beside_writes && read > written.load(Relaxed) + AHEAD && !stop.load(Relaxed) {
                    std::thread::sleep(POLL_INTERVAL);
                }
                let next = self.next.fetch_add(1, Relaxed);
                let place = match load.order {
                    Order::Random => mix64(next),
                    Order::Sequential => next,
                };
                let (buffer, offset) = (part(memory, slot, load.bytes), place % places * load.bytes);
                if load.write {
                    file.write_all_at(buffer, offset)?;
                } else {
                    file.read_exact_at(buffer, offset)?;
                }
                done.fetch_add(1, Relaxed);
            }
            Ok(())
        };
        let writer = |memory: &mut [u8]| -> std::io::Result<()> {
            let places = (self.span / WRITE).max(1);
            while !stop.load(Relaxed) {
                let so_far = written.load(Relaxed);
                if so_far >= begun.load(Relaxed) * load.bytes {
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
                let buffer = part(memory, so_far / WRITE % (WRITE_MEMORY / WRITE), WRITE);
                file.write_all_at(buffer, so_far / WRITE % places * WRITE)?;
                written.fetch_add(WRITE, Relaxed);
            }
            Ok(())
        };
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (of_workers, of_writer) = memory.split_at_mut(MEMORY as usize);
        // A whole number of requests for each worker.
        let of_worker = MEMORY / load.queue_depth / load.bytes * load.bytes;
        ensure!(
            of_worker > 0,
            "{} requests of {} at once: at most {}",
            load.queue_depth,
            Bytes(load.bytes),
            Bytes(MEMORY)
        );
        let counted = std::thread::scope(|scope| -> anyhow::Result<(Duration, u64)> {
            let parts = of_workers.chunks_exact_mut(of_worker as usize).take(load.queue_depth as usize);
            let mut threads: Vec<_> = parts.map(|memory| scope.spawn(move || worker(memory))).collect();
            start.wait();
            threads.extend(load.beside_writes.then(|| scope.spawn(move || writer(of_writer))));
            // The first requests are slower and do not count.
            std::thread::sleep(time / 10);
            let (before, began) = (done.load(Relaxed), Instant::now());
            let counted = loop {
                std::thread::sleep(time);
                let counted = (began.elapsed(), done.load(Relaxed) - before);
                // The mean of fewer requests means nothing; a stalled device ends the measurement.
                if counted.1 >= LEAST || counted.0 > time * 20 + Duration::from_secs(5) {
                    break counted;
                }
            };
            stop.store(true, Relaxed);
            for thread in threads {
                match thread.join() {
                    Ok(outcome) => outcome.with_context(|| self.path.display().to_string())?,
                    Err(_) => bail!("a measuring thread panicked"),
                }
            }
            Ok(counted)
        })?;
        let (elapsed, requests) = counted;
        ensure!(
            requests > 0,
            "{}: no request completed within {time:?}; give more --seconds",
            self.path.display()
        );
        Ok((elapsed.as_secs_f64() * 1e6 / requests as f64, requests))
    }
}

/// Part `number` of `bytes` bytes of a memory.
fn part(memory: &mut [u8], number: u64, bytes: u64) -> &mut [u8] {
    &mut memory[(number * bytes) as usize..][..bytes as usize]
}

/// Gives each word of a buffer another value: a device that compresses or deduplicates equal blocks would look too fast.
fn randomize(buffer: &mut [u8], first: u64) {
    for (index, word) in (first..).zip(buffer.chunks_exact_mut(8)) {
        word.copy_from_slice(&mix64(index).to_le_bytes());
    }
}

/// Writes a whole new file, so that no read finds a hole, and drops it from the page cache.
fn fill(file: &File, span: u64, mut check: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let bar = progress("writing the file");
    let mut chunk = vec![0_u8; FILL];
    for at in (0..span).step_by(FILL) {
        check()?;
        randomize(&mut chunk, at);
        let bytes = (span - at).min(FILL as u64) as usize;
        file.write_all_at(&chunk[..bytes], at)?;
    }
    file.sync_all()?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    bar.finish_and_clear();
    Ok(())
}
