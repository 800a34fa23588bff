//! The cost of parity: rate and bytes of syncs with each redundancy in one run, of a scrub, and of reading a pool that has
//! lost a column of each block.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use clap::Args;
use deepram_core::Bytes;
use deepram_pool::{CreateOptions, Info, Lifetime, Mapping, OpenOptions, Pool, Redundancy, Retention};
use deepram_trace::workload::mix64;
use serde::Serialize;

use super::{CommonArgs, Report, Scratch, Series, timed};
use crate::output::Table;

const SEGMENT: u64 = 4096;
/// Bytes written between two syncs of the fill.
const SYNC_EVERY: u64 = 64 << 20;
/// Segments of a small sync.
const FEW: u64 = 16;
/// Small syncs in a round.
const SMALL_SYNCS: u64 = 200;

/// Options of `deepram bench parity`.
#[derive(Debug, Args)]
pub(crate) struct ParityArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Memory of each pool
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    size: Bytes,
    /// DRAM of each pool
    #[arg(long, default_value = "256M", value_name = "SIZE")]
    dram: Bytes,
    /// Redundancies, in addition to none
    #[arg(long, value_delimiter = ',', default_value = "8+1,4+1,8+2", value_name = "P+Q,...")]
    redundancy: Vec<Redundancy>,
}

#[derive(Serialize)]
struct Row {
    redundancy: Option<String>,
    /// Size of the device beyond that of the data columns, as a share of these.
    space_overhead: f64,
    /// Rate of writing all memory, with a sync for every 64 MiB.
    fill: Series,
    /// Bytes written to the device for each byte of segments, and the part of it that is parity.
    write_amplification: f64,
    parity_share: f64,
    /// Latency of a sync of 16 random segments.
    small_sync: Series,
    /// Rate of a scrub, by the bytes that it reads.
    scrub: Series,
    /// Rate of reading all memory.
    read: Series,
    /// The same after the loss of the first column of every block; `None` without redundancy.
    read_after_loss: Option<Series>,
}

pub(super) fn run(args: &ParityArgs) -> anyhow::Result<Report> {
    let all = std::iter::once(None).chain(args.redundancy.iter().copied().map(Some));
    let rows = all.map(|redundancy| measure(args, redundancy)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut table = Table::new(&[
        "parity",
        "space",
        "fill MB/s",
        "written",
        "parity",
        "small sync ms",
        "scrub MB/s",
        "read MB/s",
        "damaged",
    ]);
    for row in &rows {
        table.row(vec![
            row.redundancy.clone().unwrap_or("none".into()),
            format!("+{:.1} %", row.space_overhead * 100.0),
            format!("{:.0}", row.fill.median),
            format!("{:.3} x", row.write_amplification),
            format!("{:.1} %", row.parity_share * 100.0),
            format!("{:.3}", row.small_sync.median),
            format!("{:.0}", row.scrub.median),
            format!("{:.0}", row.read.median),
            row.read_after_loss.as_ref().map_or("-".into(), |rate| format!("{:.0}", rate.median)),
        ]);
    }
    Report::new(&rows, table.render())
}

fn measure(args: &ParityArgs, redundancy: Option<Redundancy>) -> anyhow::Result<Row> {
    let scratch = Scratch::new(&args.common.dir)?;
    let file = scratch.file("pool");
    let size = args.size.0;
    let create = CreateOptions { redundancy, retention: Retention::KeepLast(2), ..CreateOptions::new(size) };
    Pool::create(&[&file], &create)?;
    let options = OpenOptions::new(args.dram.0).mapping(Mapping::Off);
    let pool = Pool::open(&[&file], &options)?;
    let addr = pool.alloc(size, Lifetime::Permanent)?;
    let piece: Vec<u8> = (0..1_u64 << 17).flat_map(|n| mix64(n).to_le_bytes()).collect();
    let fill = || -> anyhow::Result<()> {
        for at in (0..size).step_by(piece.len()) {
            pool.write(addr.offset_by(at)?, &piece[..piece.len().min((size - at) as usize)])?;
            if at % SYNC_EVERY == 0 {
                pool.sync()?;
            }
        }
        pool.sync()?;
        Ok(())
    };
    // The first fill is not measured: a file system records the first write to each extent.
    fill()?;
    let before = pool.stats();
    let (mut fills, mut small) = (Vec::new(), Vec::new());
    for round in 0..args.common.repeats as u64 {
        let (done, time) = timed(fill);
        done?;
        fills.push(size as f64 / time.as_secs_f64() / 1e6);
        for sync in 0..SMALL_SYNCS {
            for n in 0..FEW {
                let segment = mix64((round * SMALL_SYNCS + sync) * FEW + n) % (size / SEGMENT);
                pool.write(addr.offset_by(segment * SEGMENT)?, &n.to_le_bytes())?;
            }
            let (done, time) = timed(|| pool.sync());
            done?;
            small.push(time);
        }
    }
    let after = pool.stats();
    let info = pool.info()?;
    pool.close()?;
    let of = |count: fn(&deepram_pool::Stats) -> u64| (count(&after) - count(&before)) as f64;
    let written = of(|stats| stats.bytes_written);
    let rates = rates(args, &file, addr, size)?;
    let read_after_loss = match redundancy {
        None => None,
        Some(_) => {
            lose_columns(&file, &info)?;
            Some(read_rate(args, &file, addr, size)?)
        }
    };
    Ok(Row {
        redundancy: redundancy.map(|redundancy| redundancy.to_string()),
        space_overhead: info.block_with_parity.0 as f64 / info.block.0 as f64 - 1.0,
        fill: Series::new("fill", "MB/s", fills),
        write_amplification: written / of(|stats| stats.bytes_user),
        parity_share: of(|stats| stats.bytes_parity) / written,
        small_sync: Series::milliseconds("small sync", &small),
        scrub: rates.0,
        read: rates.1,
        read_after_loss,
    })
}

/// Measures scrubbing and reading.
fn rates(
    args: &ParityArgs,
    file: &Path,
    addr: deepram_pool::Addr,
    size: u64,
) -> anyhow::Result<(Series, Series)> {
    let options = OpenOptions::new(args.dram.0).mapping(Mapping::Off);
    let mut scrubs = Vec::new();
    for _ in 0..args.common.repeats {
        let pool = Pool::open(&[file], &options)?;
        let before = pool.stats().bytes_read;
        let (report, time) = timed(|| pool.scrub(&mut |_, _| {}));
        anyhow::ensure!(report?.check.is_sound(), "the scrub of an intact pool finds damage");
        scrubs.push((pool.stats().bytes_read - before) as f64 / time.as_secs_f64() / 1e6);
        pool.abandon()?;
    }
    Ok((Series::new("scrub", "MB/s", scrubs), read_rate(args, file, addr, size)?))
}

/// Measures reading all memory of a pool once.
fn read_rate(args: &ParityArgs, file: &Path, addr: deepram_pool::Addr, size: u64) -> anyhow::Result<Series> {
    let pool = Pool::open(&[file], &OpenOptions::new(args.dram.0).mapping(Mapping::Off))?;
    let mut piece = vec![0; 1 << 20];
    let (read, time) = timed(|| -> anyhow::Result<()> {
        for at in (0..size).step_by(piece.len()) {
            let len = piece.len().min((size - at) as usize);
            pool.read(addr.offset_by(at)?, &mut piece[..len])?;
        }
        Ok(())
    });
    read?;
    pool.abandon()?;
    Ok(Series::new("read", "MB/s", vec![size as f64 / time.as_secs_f64() / 1e6]))
}

/// Offset of the first block, in bytes.
const FIRST_BLOCK: u64 = 1 << 20;

/// Overwrites the first column of every block.
fn lose_columns(file: &Path, info: &Info) -> anyhow::Result<()> {
    let file = File::options().write(true).open(file)?;
    let garbage = vec![0xA5; info.column.0 as usize];
    for at in (FIRST_BLOCK..info.flash.0).step_by(info.block_with_parity.0 as usize) {
        file.write_all_at(&garbage, at)?;
    }
    file.sync_all()?;
    Ok(())
}
