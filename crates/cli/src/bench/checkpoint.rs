//! Checkpoints: sync and rollback of a pool against msync of a mapping and against a direct write of the same bytes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use deepram_core::Bytes;
use deepram_peers::{DirectFile, MappedFile};
use deepram_pool::{CreateOptions, Lifetime, OpenOptions, Pool, Retention, Words};
use deepram_trace::workload::mix64;
use serde::Serialize;

use super::{CommonArgs, Report, Scratch, Series, device_written, series_table, timed};

const SEGMENT: u64 = 4096;
const WORDS: u64 = SEGMENT / 8;
/// Dirty segments of the small checkpoint, as in published measurements of msync.
const FEW: u64 = 52;
/// Segments that the storing thread writes to while its longest stop is measured.
const HOT: u64 = 64;

/// Names of the series in the JSON, which the performance page looks up.
pub(super) const DIRECT_WRITE: &str = "direct write of the same bytes";
pub(super) const SYNC: &str = "sync";
pub(super) const WRITTEN: &str = "sync, bytes written / dirty bytes";
pub(super) const SYNC_FEW: &str = "sync, 52 segments dirty";
pub(super) const LONGEST_STOP: &str = "longest stop of a storing thread";
pub(super) const ROLLBACK: &str = "rollback of the same segments";
pub(super) const MSYNC_PLAIN: &str = "msync, plain mapping";
pub(super) const MSYNC_RANDOM: &str = "msync, MADV_RANDOM mapping";

/// Options of `deepram bench checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Memory of the pool, and size of each mapped file
    #[arg(long, default_value = "2G", value_name = "SIZE")]
    size: Bytes,
    /// DRAM of the pool [default: enough for the whole pool, as the page cache holds the whole files]
    #[arg(long, value_name = "SIZE")]
    dram: Option<Bytes>,
    /// Share of the segments that is dirty, percent
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT")]
    dirty: f64,
}

#[derive(Serialize)]
struct CheckpointReport {
    size_bytes: u64,
    dram_bytes: u64,
    dirty_segments: u64,
    dirty_bytes: u64,
    series: Vec<Series>,
    sync_over_direct_write: f64,
    written_over_dirty: f64,
    msync_over_sync: f64,
    msync_random_over_sync: f64,
}

/// Dirties `count` random segments; each round chooses other segments.
fn dirty(words: &[AtomicU64], count: u64, round: u64) {
    let segments = words.len() as u64 / WORDS;
    for n in 0..count {
        let segment = mix64(round << 32 | n) % segments;
        words[(segment * WORDS) as usize].fetch_add(1, Relaxed);
    }
}

pub(super) fn run(args: &CheckpointArgs) -> anyhow::Result<Report> {
    let size = args.size.0;
    let dram = args.dram.unwrap_or(Bytes(size + size / 8 + (64 << 20))).0;
    let count = (size as f64 / SEGMENT as f64 * args.dirty / 100.0) as u64;
    anyhow::ensure!(count > 0, "--dirty {}: no segment would be dirty; give a larger share", args.dirty);
    let scratch = Scratch::new(&args.common.dir)?;
    let pool_file = scratch.file("pool");
    let create = CreateOptions { retention: Retention::KeepLast(3), ..CreateOptions::new(size) };
    Pool::create(&[&pool_file], &create)?;
    let pool = Pool::open(&[&pool_file], &OpenOptions::new(dram))?;
    let addr = pool.alloc(size, Lifetime::Permanent)?;
    let words = pool.words(addr, (size / 8) as usize)?;
    let plain = MappedFile::create(&scratch.file("plain"), size as usize, false)?;
    let random = MappedFile::create(&scratch.file("random"), size as usize, true)?;
    let direct = DirectFile::create(&scratch.file("direct"), count * SEGMENT)?;
    // Two fills, so that every block of the file has been written before: a file system records the
    // first write to each extent.
    for _ in 0..2 {
        fill(&words);
        pool.sync()?;
    }
    fill(plain.words());
    plain.sync()?;
    fill(random.words());
    random.sync()?;

    let mut rounds = Rounds::default();
    for round in 0..args.common.repeats as u64 {
        rounds.direct.push(timed(|| direct.write(count * SEGMENT)).1);
        rounds.pool(&pool, &words, count, round)?;
        let dir = &args.common.dir;
        msync(&mut rounds.plain, &mut rounds.plain_bytes, &plain, count, round, dir)?;
        msync(&mut rounds.random, &mut rounds.random_bytes, &random, count, round, dir)?;
    }
    pool.close()?;

    let series = rounds.series();
    let of = |name: &str| series.iter().find(|s| s.name == name).map_or(f64::NAN, |s| s.median);
    let sync = of(SYNC);
    let report = CheckpointReport {
        size_bytes: size,
        dram_bytes: dram,
        dirty_segments: count,
        dirty_bytes: count * SEGMENT,
        sync_over_direct_write: sync / of(DIRECT_WRITE),
        written_over_dirty: of(WRITTEN),
        msync_over_sync: of(MSYNC_PLAIN) / sync,
        msync_random_over_sync: of(MSYNC_RANDOM) / sync,
        series,
    };
    let text = format!(
        "pool of {} with {} of DRAM, {count} random segments ({}) dirty\n\n{}\n\
         sync / direct write of the same bytes: {:.2} x; bytes written / dirty bytes: {:.3} x;\n\
         msync / sync: plain mapping {:.1} x, MADV_RANDOM mapping {:.1} x\n",
        Bytes(size),
        Bytes(dram),
        Bytes(count * SEGMENT),
        series_table(&report.series),
        report.sync_over_direct_write,
        report.written_over_dirty,
        report.msync_over_sync,
        report.msync_random_over_sync
    );
    Report::new(&report, text)
}

/// Writes one word of each segment.
fn fill(words: &[AtomicU64]) {
    for (n, word) in (0_u64..).zip(words).step_by(WORDS as usize) {
        word.store(mix64(n), Relaxed);
    }
}

/// Measurements of every round.
#[derive(Default)]
struct Rounds {
    direct: Vec<Duration>,
    sync: Vec<Duration>,
    written: Vec<f64>,
    few: Vec<Duration>,
    busy: Vec<Duration>,
    stopped: Vec<Duration>,
    rollback: Vec<Duration>,
    plain: Vec<Duration>,
    plain_bytes: Vec<f64>,
    random: Vec<Duration>,
    random_bytes: Vec<f64>,
}

impl Rounds {
    fn pool(&mut self, pool: &Pool, words: &Words, count: u64, round: u64) -> anyhow::Result<()> {
        dirty(words, count, 2 * round);
        let before = pool.stats().bytes_written;
        let (token, time) = timed(|| pool.sync());
        let token = token?;
        self.sync.push(time);
        self.written.push((pool.stats().bytes_written - before) as f64 / (count * SEGMENT) as f64);

        dirty(words, FEW, 2 * round + 1);
        let (result, time) = timed(|| pool.sync());
        result?;
        self.few.push(time);

        dirty(words, count, 2 * round + 1);
        let (time, stopped) = sync_under_stores(pool, words)?;
        self.busy.push(time);
        self.stopped.push(stopped);

        let (result, time) = timed(|| pool.rollback(token));
        result?;
        self.rollback.push(time);
        Ok(())
    }

    fn series(&self) -> Vec<Series> {
        vec![
            Series::milliseconds(DIRECT_WRITE, &self.direct),
            Series::milliseconds(SYNC, &self.sync),
            Series::new(WRITTEN, "x", self.written.clone()),
            Series::milliseconds(SYNC_FEW, &self.few),
            Series::milliseconds("sync while a thread stores", &self.busy),
            Series::milliseconds(LONGEST_STOP, &self.stopped),
            Series::milliseconds(ROLLBACK, &self.rollback),
            Series::milliseconds(MSYNC_PLAIN, &self.plain),
            Series::new("msync, plain: bytes to the device / dirty bytes", "x", self.plain_bytes.clone()),
            Series::milliseconds(MSYNC_RANDOM, &self.random),
            Series::new(
                "msync, MADV_RANDOM: bytes to the device / dirty bytes",
                "x",
                self.random_bytes.clone(),
            ),
        ]
    }
}

/// Syncs while another thread stores without pause. Returns the time of the sync and the longest time
/// between two of the thread's stores.
fn sync_under_stores(pool: &Pool, words: &Words) -> anyhow::Result<(Duration, Duration)> {
    let stop = AtomicBool::new(false);
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let storer = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            let mut last = Instant::now();
            for n in 0_u64.. {
                words[(mix64(n) % HOT * WORDS) as usize].store(n, Relaxed);
                let now = Instant::now();
                if ready.load(Relaxed) {
                    longest = longest.max(now - last);
                } else if n > 4 * HOT {
                    // All its segments are dirty: from here on only the sync stops the thread.
                    ready.store(true, Relaxed);
                }
                last = now;
                if stop.load(Relaxed) {
                    break;
                }
            }
            longest
        });
        while !ready.load(Relaxed) {
            std::thread::yield_now();
        }
        let (result, time) = timed(|| pool.sync());
        stop.store(true, Relaxed);
        let longest = storer.join().map_err(|_| anyhow::anyhow!("the storing thread failed"))?;
        result?;
        Ok((time, longest))
    })
}

/// Dirties a mapping and measures its msync: time, and bytes that reach the device for each dirty byte.
fn msync(
    times: &mut Vec<Duration>,
    bytes: &mut Vec<f64>,
    file: &MappedFile,
    count: u64,
    round: u64,
    dir: &Path,
) -> anyhow::Result<()> {
    dirty(file.words(), count, 2 * round);
    let before = device_written(dir);
    let (result, time) = timed(|| file.sync());
    result?;
    times.push(time);
    if let (Some(before), Some(after)) = (before, device_written(dir)) {
        bytes.push((after - before) as f64 / (count * SEGMENT) as f64);
    }
    Ok(())
}
