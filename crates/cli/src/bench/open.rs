//! Opening a pool after a crash: the time depends on the bytes written since the last checkpoint, not on the
//! size of the pool.

use std::time::Duration;

use clap::Args;
use deepram_core::Bytes;
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};
use deepram_trace::workload::mix64;
use serde::Serialize;

use super::{CommonArgs, Report, Scratch, Series, timed};
use crate::output::Table;

const SEGMENT: u64 = 4096;

/// Options of `deepram bench open`.
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Sizes of the pools
    #[arg(long, value_delimiter = ',', default_value = "1G,4G", value_name = "SIZE,...")]
    sizes: Vec<Bytes>,
    /// Bytes synced since the last checkpoint at the moment of the crash
    #[arg(long, value_delimiter = ',', default_value = "0,16M,64M,192M", value_name = "SIZE,...")]
    log: Vec<Bytes>,
}

#[derive(Serialize)]
struct OpenRow {
    size_bytes: u64,
    log_bytes: u64,
    open: Series,
    read_bytes: u64,
}

pub(super) fn run(args: &OpenArgs) -> anyhow::Result<Report> {
    let mut rows = Vec::new();
    for size in &args.sizes {
        for log in &args.log {
            rows.push(measure(args, size.0, log.0)?);
        }
    }
    let mut table = Table::new(&["pool", "log", "median ms", "min", "max", "bytes read"]);
    for row in &rows {
        table.row(vec![
            Bytes(row.size_bytes).to_string(),
            Bytes(row.log_bytes).to_string(),
            format!("{:.2}", row.open.median),
            format!("{:.2}", row.open.min),
            format!("{:.2}", row.open.max),
            Bytes(row.read_bytes).to_string(),
        ]);
    }
    Report::new(&rows, table.render())
}

/// Fills a pool, closes it, syncs `log` bytes more, abandons it as a crash would, and measures opening it.
fn measure(args: &OpenArgs, size: u64, log: u64) -> anyhow::Result<OpenRow> {
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
            let segment = mix64(round << 32 | n) % (size / SEGMENT);
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
    Ok(OpenRow { size_bytes: size, log_bytes: log, open: Series::milliseconds("open", &times), read_bytes })
}
