//! What the device gives past all caches: the limit of whatever reads it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use rustix::fs::OFlags;
use serde::Serialize;

use super::super::{BLOCK, Series, aligned, mix};
use super::interrupts::Interrupts;

const LARGE: usize = 1 << 20;
/// Requests under way of random reads; that of the run's threads is added.
const DEPTHS: [u32; 3] = [1, 4, 32];
/// A device that stands still is not waited for longer than this.
const LONGEST: Duration = Duration::from_secs(10);

/// Bytes of a write beside reads: as many pages as leave memory together.
const WRITE: usize = 256 << 10;
/// Bytes that reads beside writes may be ahead of them.
const AHEAD: u64 = 2 << 20;
/// Between two looks of whoever waits for the others.
const MOMENT: Duration = Duration::from_micros(20);

/// A figure: how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Way {
    bytes: usize,
    under_way: u32,
    /// As many bytes are written beside, in order.
    written: bool,
}

/// One figure, over the rounds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rate {
    #[serde(flatten)]
    way: Way,
    /// Requests of 4 KiB in thousand a second; of 1 MiB in MB/s.
    #[serde(flatten)]
    pub(super) series: Series,
}

/// A file on the device, read directly.
pub(super) struct Device {
    path: PathBuf,
    span: u64,
    seed: u64,
    rates: Vec<(Way, Vec<f64>)>,
}

impl Device {
    /// Writes a file of so many bytes to read. With `updates` it is written as well, as it is for whoever stores to what it misses.
    pub(super) fn create(
        path: PathBuf,
        span: u64,
        threads: u32,
        updates: bool,
        seed: u64,
        interrupts: &Interrupts,
    ) -> anyhow::Result<Self> {
        write(&path, span, interrupts).with_context(|| path.display().to_string())?;
        let mut depths: Vec<u32> = DEPTHS.into_iter().chain([threads]).collect();
        depths.sort_unstable();
        depths.dedup();
        let random = depths.into_iter().map(|under_way| Way { bytes: BLOCK, under_way, written: false });
        let updated = updates.then_some(Way { bytes: BLOCK, under_way: threads, written: true });
        let large = [1, 4].map(|under_way| Way { bytes: LARGE, under_way, written: false });
        let rates = random.chain(updated).chain(large).map(|way| (way, Vec::new())).collect();
        Ok(Self { path, span, seed, rates })
    }

    /// One more round of all figures, each for `time`.
    pub(super) fn round(&mut self, time: Duration, interrupts: &Interrupts) -> anyhow::Result<()> {
        for at in 0..self.rates.len() {
            interrupts.check()?;
            let rate = self.measure(self.rates[at].0, time)?;
            self.rates[at].1.push(rate);
        }
        Ok(())
    }

    /// The figures.
    pub(super) fn rates(&self) -> Vec<Rate> {
        let rate = |(way, values): &(Way, Vec<f64>)| {
            let (what, unit) = match way.bytes {
                BLOCK => {
                    let beside = if way.written { ", as many bytes written" } else { "" };
                    (format!("4 KiB random reads, {} under way{beside}", way.under_way), "k/s")
                }
                _ => (format!("1 MiB sequential reads, {} under way", way.under_way), "MB/s"),
            };
            Rate { way: *way, series: Series::new(what, unit, values.clone()) }
        };
        self.rates.iter().map(rate).collect()
    }

    /// Random reads with so many under way, in each round: thousand a second. With `written` as many bytes are written beside.
    pub(super) fn random(&self, under_way: u32, written: bool) -> &[f64] {
        let way = Way { bytes: BLOCK, under_way, written };
        self.rates.iter().find(|(have, _)| *have == way).map_or(&[], |(_, values)| values)
    }

    /// The fastest way to read it from end to end, in each round: MB/s.
    pub(super) fn sequential(&self) -> Vec<f64> {
        let ways: Vec<_> = self.rates.iter().filter(|(way, _)| way.bytes == LARGE).collect();
        let rounds = ways.iter().map(|(_, values)| values.len()).min().unwrap_or(0);
        (0..rounds).map(|n| ways.iter().map(|(_, values)| values[n]).fold(0.0, f64::max)).collect()
    }

    fn measure(&self, way: Way, time: Duration) -> anyhow::Result<f64> {
        let file = open(&self.path, way.written)?;
        let places = self.span / way.bytes as u64;
        ensure!(places > 0, "{}: holds no {} bytes", self.path.display(), way.bytes);
        let (next, written, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let start = Barrier::new(way.under_way as usize + 1);
        // Another place in each round: what the device keeps in a cache of its own is not read again at once.
        let round = self.rates.first().map_or(0, |(_, values)| values.len()) as u64;
        let reader = || -> std::io::Result<u64> {
            let mut memory = vec![0u8; way.bytes + BLOCK];
            let buffer = aligned(&mut memory);
            start.wait();
            let mut done = 0;
            while !stop.load(Relaxed) {
                let n = next.fetch_add(1, Relaxed);
                while way.written && n * BLOCK as u64 > written.load(Relaxed) + AHEAD && !stop.load(Relaxed) {
                    std::thread::sleep(MOMENT);
                }
                let place = if way.bytes == BLOCK { mix(self.seed ^ round << 40 ^ n) } else { n };
                file.read_exact_at(buffer, place % places * way.bytes as u64)?;
                done += 1;
            }
            Ok(done)
        };
        let writer = || -> std::io::Result<()> {
            let mut memory = vec![0u8; WRITE + BLOCK];
            let buffer = aligned(&mut memory);
            for (index, word) in (0u64..).zip(buffer.chunks_exact_mut(8)) {
                word.copy_from_slice(&mix(index).to_le_bytes());
            }
            let places = (self.span / WRITE as u64).max(1);
            while !stop.load(Relaxed) {
                let so_far = written.load(Relaxed);
                if so_far >= next.load(Relaxed) * BLOCK as u64 {
                    std::thread::sleep(MOMENT);
                    continue;
                }
                file.write_all_at(buffer, so_far / WRITE as u64 % places * WRITE as u64)?;
                written.fetch_add(WRITE as u64, Relaxed);
            }
            Ok(())
        };
        let (done, elapsed) = std::thread::scope(|scope| -> anyhow::Result<(u64, Duration)> {
            let readers: Vec<_> = (0..way.under_way).map(|_| scope.spawn(reader)).collect();
            let writing = way.written.then(|| scope.spawn(writer));
            start.wait();
            let began = Instant::now();
            std::thread::sleep(time);
            // A mean of fewer would say nothing.
            while next.load(Relaxed) < 4 * u64::from(way.under_way) && began.elapsed() < LONGEST {
                std::thread::sleep(time / 4);
            }
            stop.store(true, Relaxed);
            let mut done = 0;
            for reader in readers {
                let read = reader.join().map_err(|_| anyhow!("a reading thread failed"))?;
                done += read.with_context(|| self.path.display().to_string())?;
            }
            if let Some(writing) = writing {
                let wrote = writing.join().map_err(|_| anyhow!("a writing thread failed"))?;
                wrote.with_context(|| self.path.display().to_string())?;
            }
            // What was under way at the end is counted, and so is the time it took.
            Ok((done, began.elapsed()))
        })?;
        ensure!(done > 0, "{}: nothing was read within {time:?}", self.path.display());
        let per_second = done as f64 / elapsed.as_secs_f64();
        Ok(if way.bytes == BLOCK { per_second / 1e3 } else { per_second * way.bytes as f64 / 1e6 })
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

/// Writes all of a new file, so that no read finds a hole; no two blocks alike, as a device that shares or
/// compresses them would look too fast. It does not stay in the page cache.
fn write(path: &Path, span: u64, interrupts: &Interrupts) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut chunk = vec![0u8; LARGE];
    for at in (0..span).step_by(LARGE) {
        interrupts.check()?;
        for (index, word) in (0u64..).zip(chunk.chunks_exact_mut(8)) {
            word.copy_from_slice(&mix(at + index).to_le_bytes());
        }
        let bytes = (span - at).min(LARGE as u64) as usize;
        file.write_all_at(&chunk[..bytes], at)?;
    }
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}
