//! Checkpoints: sync and rollback against msync, and against writing as many bytes directly.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use deepram_core::Bytes;
use deepram_pool::peer::{DirectFile, MappedFile};
use deepram_pool::{CreateOptions, Lifetime, OpenOptions, Pool, Retention, Words};
use serde::Serialize;

use super::{Common, Scratch, Series, device_written, mix, print, shown, timed};

const SEGMENT: u64 = 4096;
const WORDS: u64 = SEGMENT / 8;
/// Dirty segments of the small checkpoint (peers measured 52).
const FEW: u64 = 52;
/// Pages that the thread stores to that is watched for being stopped.
const HOT: u64 = 64;

/// Options of `deepram bench checkpoint`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    common: Common,
    /// Memory of the pool, and bytes of the mapped files
    #[arg(long, default_value = "2G", value_name = "SIZE")]
    size: Bytes,
    /// DRAM of the pool; by default enough to hold all of it, as the page cache holds the files
    #[arg(long, value_name = "SIZE")]
    dram: Option<Bytes>,
    /// Part of the segments that is dirty, in percent
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT")]
    dirty: f64,
}

#[derive(Serialize)]
struct Outcome {
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

/// Anything with words to dirty and a way to make them durable.
fn dirty(words: &[AtomicU64], count: u64, round: u64) {
    let segments = words.len() as u64 / WORDS;
    for n in 0..count {
        let segment = mix(round << 32 | n) % segments;
        words[(segment * WORDS) as usize].fetch_add(1, Relaxed);
    }
}

pub(super) fn run(args: &CheckpointArgs) -> anyhow::Result<()> {
    let size = args.size.0;
    let dram = args.dram.unwrap_or(Bytes(size + size / 8 + (64 << 20))).0;
    let count = (size as f64 / SEGMENT as f64 * args.dirty / 100.0) as u64;
    anyhow::ensure!(count > 0, "--dirty {} leaves no segment to write", args.dirty);
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
    // Twice, so that every block of the file has been written before: a file system records the
    // first write to each extent.
    for _ in 0..2 {
        fill(&words);
        pool.sync()?;
    }
    fill(plain.words());
    plain.sync()?;
    fill(random.words());
    random.sync()?;

    let mut runs = Runs::default();
    for round in 0..args.common.repeats as u64 {
        runs.direct.push(timed(|| direct.write(count * SEGMENT)).1);
        runs.pool(&pool, &words, count, round)?;
        let dir = &args.common.dir;
        msync(&mut runs.plain, &mut runs.plain_bytes, &plain, count, round, dir)?;
        msync(&mut runs.random, &mut runs.random_bytes, &random, count, round, dir)?;
    }
    pool.close()?;

    let series = runs.series();
    let of = |what: &str| series.iter().find(|s| s.what == what).map_or(f64::NAN, |s| s.median);
    let sync = of("sync");
    let outcome = Outcome {
        size_bytes: size,
        dram_bytes: dram,
        dirty_segments: count,
        dirty_bytes: count * SEGMENT,
        sync_over_direct_write: sync / of("direct write of as many bytes"),
        written_over_dirty: of("sync, bytes written / dirty bytes"),
        msync_over_sync: of("msync, plain mapping") / sync,
        msync_random_over_sync: of("msync, MADV_RANDOM mapping") / sync,
        series,
    };
    if args.common.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
        return Ok(());
    }
    println!(
        "{} in {} of DRAM, {count} segments ({}) dirty at random\n",
        shown(size),
        shown(dram),
        shown(count * SEGMENT)
    );
    print(&outcome.series);
    println!(
        "\nsync takes {:.2} x a direct write of as many bytes, writes {:.3} x what is dirty;\n\
         msync of a plain mapping takes {:.1} x as long, of a MADV_RANDOM one {:.1} x",
        outcome.sync_over_direct_write,
        outcome.written_over_dirty,
        outcome.msync_over_sync,
        outcome.msync_random_over_sync
    );
    Ok(())
}

fn fill(words: &[AtomicU64]) {
    for (n, word) in (0_u64..).zip(words).step_by(WORDS as usize) {
        word.store(mix(n), Relaxed);
    }
}

#[derive(Default)]
struct Runs {
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

impl Runs {
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
            Series::milliseconds("direct write of as many bytes", &self.direct),
            Series::milliseconds("sync", &self.sync),
            Series::new("sync, bytes written / dirty bytes", "x", self.written.clone()),
            Series::milliseconds(format!("sync, {FEW} segments dirty"), &self.few),
            Series::milliseconds("sync while a thread stores", &self.busy),
            Series::milliseconds("longest stop of that thread", &self.stopped),
            Series::milliseconds("rollback of as much", &self.rollback),
            Series::milliseconds("msync, plain mapping", &self.plain),
            Series::new("msync, plain: bytes to the device / dirty bytes", "x", self.plain_bytes.clone()),
            Series::milliseconds("msync, MADV_RANDOM mapping", &self.random),
            Series::new(
                "msync, MADV_RANDOM: bytes to the device / dirty bytes",
                "x",
                self.random_bytes.clone(),
            ),
        ]
    }
}

/// A sync while another thread stores without pause; how long it took, and the longest time that
/// passed between two of the thread's stores.
fn sync_under_stores(pool: &Pool, words: &Words) -> anyhow::Result<(Duration, Duration)> {
    let stop = AtomicBool::new(false);
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let storer = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            let mut last = Instant::now();
            for n in 0_u64.. {
                words[(mix(n) % HOT * WORDS) as usize].store(n, Relaxed);
                let now = Instant::now();
                if ready.load(Relaxed) {
                    longest = longest.max(now - last);
                } else if n > 4 * HOT {
                    // All its pages are dirty: from here on it is stopped by the sync alone.
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
