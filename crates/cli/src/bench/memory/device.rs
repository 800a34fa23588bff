//! Measures the device with direct I/O. Its rates bound every peer that reads it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use deepram_trace::workload::mix64;
use rustix::fs::OFlags;
use serde::Serialize;

use super::super::{BLOCK, Series, aligned};
use super::stop_signals::StopSignals;

/// Size of a sequential read, bytes.
const LARGE: usize = 1 << 20;
/// Queue depths of random reads; the number of threads of the bench is added.
const DEPTHS: [u32; 3] = [1, 4, 32];
/// Longest measurement of a slow device.
const LONGEST: Duration = Duration::from_secs(10);

/// Size of a concurrent write, bytes: a write-back batch of the pager.
const WRITE: usize = 256 << 10;
/// Most bytes by which reads may be ahead of concurrent writes.
const AHEAD: u64 = 2 << 20;
/// Interval at which readers and the writer poll each other.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// An access pattern of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct AccessPattern {
    /// Size of a read, bytes.
    bytes: usize,
    queue_depth: u32,
    /// Whether a writer writes the same number of bytes sequentially at the same time.
    written: bool,
}

/// The rate of one access pattern over the rounds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DeviceRate {
    #[serde(flatten)]
    pattern: AccessPattern,
    /// Thousand reads per second for 4 KiB reads, MB/s for 1 MiB reads.
    #[serde(flatten)]
    pub(super) series: Series,
}

/// A file on the device, accessed with direct I/O.
pub(super) struct Device {
    path: PathBuf,
    span: u64,
    seed: u64,
    rates: Vec<(AccessPattern, Vec<f64>)>,
}

impl Device {
    /// Writes the file of `span` bytes. With `updates` reads with concurrent writes are measured too, the load of a peer that
    /// evicts dirty pages.
    pub(super) fn create(
        path: PathBuf,
        span: u64,
        threads: u32,
        updates: bool,
        seed: u64,
        signals: &StopSignals,
    ) -> anyhow::Result<Self> {
        write(&path, span, signals).with_context(|| path.display().to_string())?;
        let mut depths: Vec<u32> = DEPTHS.into_iter().chain([threads]).collect();
        depths.sort_unstable();
        depths.dedup();
        let pattern = |bytes, written| move |queue_depth| AccessPattern { bytes, queue_depth, written };
        let random = depths.into_iter().map(pattern(BLOCK, false));
        let updated = updates.then_some(threads).map(pattern(BLOCK, true));
        let large = [1, 4].map(pattern(LARGE, false));
        let rates = random.chain(updated).chain(large).map(|pattern| (pattern, Vec::new())).collect();
        Ok(Self { path, span, seed, rates })
    }

    /// Measures every access pattern once, each for `time`.
    pub(super) fn round(&mut self, time: Duration, signals: &StopSignals) -> anyhow::Result<()> {
        for at in 0..self.rates.len() {
            signals.check()?;
            let rate = self.measure(self.rates[at].0, time)?;
            self.rates[at].1.push(rate);
        }
        Ok(())
    }

    /// Rates of every access pattern.
    pub(super) fn rates(&self) -> Vec<DeviceRate> {
        let rate = |(pattern, values): &(AccessPattern, Vec<f64>)| {
            let depth = pattern.queue_depth;
            let (name, unit) = match pattern.bytes {
                BLOCK => {
                    let writes = if pattern.written { ", the same bytes written" } else { "" };
                    (format!("4 KiB random reads, queue depth {depth}{writes}"), "k/s")
                }
                _ => (format!("1 MiB sequential reads, queue depth {depth}"), "MB/s"),
            };
            DeviceRate { pattern: *pattern, series: Series::new(name, unit, values.clone()) }
        };
        self.rates.iter().map(rate).collect()
    }

    /// Thousand random reads per second at this queue depth, in each round; with `written`, beside concurrent writes.
    pub(super) fn random(&self, queue_depth: u32, written: bool) -> &[f64] {
        let wanted = AccessPattern { bytes: BLOCK, queue_depth, written };
        self.rates.iter().find(|(pattern, _)| *pattern == wanted).map_or(&[], |(_, values)| values)
    }

    /// MB/s of the fastest sequential pattern, in each round.
    pub(super) fn sequential(&self) -> Vec<f64> {
        let patterns: Vec<_> = self.rates.iter().filter(|(pattern, _)| pattern.bytes == LARGE).collect();
        let rounds = patterns.iter().map(|(_, values)| values.len()).min().unwrap_or(0);
        (0..rounds).map(|n| patterns.iter().map(|(_, values)| values[n]).fold(0.0, f64::max)).collect()
    }

    /// Runs one access pattern for `time`; thousand reads per second or MB/s.
    fn measure(&self, pattern: AccessPattern, time: Duration) -> anyhow::Result<f64> {
        let file = open(&self.path, pattern.written)?;
        let slots = self.span / pattern.bytes as u64;
        ensure!(slots > 0, "{}: the file has fewer than {} bytes", self.path.display(), pattern.bytes);
        let (next, written, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let start = Barrier::new(pattern.queue_depth as usize + 1);
        // Each round reads other offsets, so that the cache of the device does not serve them.
        let round = self.rates.first().map_or(0, |(_, values)| values.len()) as u64;
        let reader = || -> std::io::Result<u64> {
            let mut memory = vec![0u8; pattern.bytes + BLOCK];
            let buffer = aligned(&mut memory);
            start.wait();
            let mut done = 0;
            while !stop.load(Relaxed) {
                let n = next.fetch_add(1, Relaxed);
                while pattern.written
                    && n * BLOCK as u64 > written.load(Relaxed) + AHEAD
                    && !stop.load(Relaxed)
                {
                    std::thread::sleep(POLL_INTERVAL);
                }
                let slot = if pattern.bytes == BLOCK { mix64(self.seed ^ round << 40 ^ n) } else { n };
                file.read_exact_at(buffer, slot % slots * pattern.bytes as u64)?;
                done += 1;
            }
            Ok(done)
        };
        let writer = || -> std::io::Result<()> {
            let mut memory = vec![0u8; WRITE + BLOCK];
            let buffer = aligned(&mut memory);
            for (index, word) in (0u64..).zip(buffer.chunks_exact_mut(8)) {
                word.copy_from_slice(&mix64(index).to_le_bytes());
            }
            let slots = (self.span / WRITE as u64).max(1);
            while !stop.load(Relaxed) {
                let so_far = written.load(Relaxed);
                if so_far >= next.load(Relaxed) * BLOCK as u64 {
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
                file.write_all_at(buffer, so_far / WRITE as u64 % slots * WRITE as u64)?;
                written.fetch_add(WRITE as u64, Relaxed);
            }
            Ok(())
        };
        let (done, elapsed) = std::thread::scope(|scope| -> anyhow::Result<(u64, Duration)> {
            let readers: Vec<_> = (0..pattern.queue_depth).map(|_| scope.spawn(reader)).collect();
            let writing = pattern.written.then(|| scope.spawn(writer));
            start.wait();
            let began = Instant::now();
            std::thread::sleep(time);
            // The mean of fewer reads would mean nothing.
            while next.load(Relaxed) < 4 * u64::from(pattern.queue_depth) && began.elapsed() < LONGEST {
                std::thread::sleep(time / 4);
            }
            stop.store(true, Relaxed);
            let mut done = 0;
            for reader in readers {
                let read = reader.join().map_err(|_| anyhow!("a reading thread panicked"))?;
                done += read.with_context(|| self.path.display().to_string())?;
            }
            if let Some(writing) = writing {
                let wrote = writing.join().map_err(|_| anyhow!("a writing thread panicked"))?;
                wrote.with_context(|| self.path.display().to_string())?;
            }
            // Reads in flight at the end count, and so does their time.
            Ok((done, began.elapsed()))
        })?;
        ensure!(done > 0, "{}: no read completed within {time:?}", self.path.display());
        let per_second = done as f64 / elapsed.as_secs_f64();
        Ok(if pattern.bytes == BLOCK { per_second / 1e3 } else { per_second * pattern.bytes as f64 / 1e6 })
    }
}

fn open(path: &Path, write: bool) -> anyhow::Result<File> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(direct)
        .open(path)
        .with_context(|| format!("{}: cannot be opened for direct I/O", path.display()))
}

/// Writes a whole new file, so that no read finds a hole, and drops it from the page cache. All blocks differ, because a device
/// that compresses or deduplicates equal blocks would look too fast.
fn write(path: &Path, span: u64, signals: &StopSignals) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut chunk = vec![0u8; LARGE];
    for at in (0..span).step_by(LARGE) {
        signals.check()?;
        for (index, word) in (0u64..).zip(chunk.chunks_exact_mut(8)) {
            word.copy_from_slice(&mix64(at + index).to_le_bytes());
        }
        let bytes = (span - at).min(LARGE as u64) as usize;
        file.write_all_at(&chunk[..bytes], at)?;
    }
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}
