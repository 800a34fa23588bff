//! Opening after a crash takes time in proportion to what was written since the last checkpoint,
//! not to the pool.

use std::time::Duration;

use clap::Args;
use deepram_core::Bytes;
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};
use serde::Serialize;

use super::{Common, Scratch, Series, mix, shown, timed};

const SEGMENT: u64 = 4096;

/// Options of `deepram bench open`.
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    common: Common,
    /// Sizes of the pools
    #[arg(long, value_delimiter = ',', default_value = "1G,4G", value_name = "SIZE,...")]
    sizes: Vec<Bytes>,
    /// What is written, synced and not covered by a checkpoint when the crash comes
    #[arg(long, value_delimiter = ',', default_value = "0,16M,64M,192M", value_name = "SIZE,...")]
    log: Vec<Bytes>,
}

#[derive(Serialize)]
struct Row {
    size_bytes: u64,
    log_bytes: u64,
    open: Series,
    read_bytes: u64,
}

pub(super) fn run(args: &OpenArgs) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for size in &args.sizes {
        for log in &args.log {
            rows.push(measure(args, size.0, log.0)?);
        }
    }
    if args.common.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!(
        "{:>10}  {:>14}  {:>10}  {:>10}  {:>10}  {:>12}",
        "pool", "log", "median ms", "min", "max", "read"
    );
    for row in &rows {
        println!(
            "{:>10}  {:>14}  {:>10.2}  {:>10.2}  {:>10.2}  {:>12}",
            shown(row.size_bytes),
            shown(row.log_bytes),
            row.open.median,
            row.open.min,
            row.open.max,
            shown(row.read_bytes)
        );
    }
    Ok(())
}

/// Fills a pool, closes it in order, writes `log` bytes more and opens it as after a crash.
fn measure(args: &OpenArgs, size: u64, log: u64) -> anyhow::Result<Row> {
    let scratch = Scratch::new(&args.common.dir)?;
    let file = scratch.file("pool");
    let options = OpenOptions::new(512 << 20).mapping(Mapping::Off);
    Pool::create(&[&file], &CreateOptions::new(size))?;
    let pool = Pool::open(&[&file], &options)?;
    let addr = pool.alloc(size, Lifetime::Permanent)?;
    pool.set_root("data", addr, size)?;
    let piece = vec![0x5A; 1 << 20];
    for at in (0..size).step_by(piece.len()) {
        pool.write(addr.offset_by(at)?, &piece)?;
    }
    pool.close()?;
    let mut times: Vec<Duration> = Vec::new();
    let mut read_bytes = 0;
    for round in 0..args.common.repeats as u64 {
        let pool = Pool::open(&[&file], &options)?;
        for n in 0..log / SEGMENT {
            let segment = mix(round << 32 | n) % (size / SEGMENT);
            pool.write(addr.offset_by(segment * SEGMENT)?, &n.to_le_bytes())?;
            if n % 256 == 255 {
                pool.sync()?;
            }
        }
        pool.sync()?;
        pool.abandon()?;
        let (pool, time) = timed(|| Pool::open(&[&file], &options));
        let pool = pool?;
        times.push(time);
        read_bytes = pool.stats().bytes_read;
        pool.abandon()?;
    }
    Ok(Row { size_bytes: size, log_bytes: log, open: Series::milliseconds("open", &times), read_bytes })
}
