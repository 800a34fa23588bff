//! `deepram pool`: creates, inspects, checks and repairs pools.

mod info;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use deepram_core::Bytes;
use deepram_pool::{
    CreateOptions, Epoch, History, Mapping, OpenOptions, Pool, PoolError, Report, Retention, SegmentSize,
};
use serde::Serialize;

use crate::cli::{PoolCommand, Target};
use crate::output::{Table, count, date, duration, emit_json, emit_text, progress, size};

/// Most damaged segments listed; further ones are counted.
const LISTED: usize = 50;

/// Runs a command.
pub(crate) fn run(command: PoolCommand) -> anyhow::Result<()> {
    match command {
        PoolCommand::Create { pool, size, flash, pmem, segment, keep, base, limits, force } => {
            let options = CreateOptions {
                size: size.0,
                flash: flash.map(|f| f.0),
                pmem: pmem.0,
                segment: SegmentSize::from(segment),
                retention: Retention::KeepLast(keep),
                base,
                overwrite: force,
                rated_tbw: limits.rated_tbw.map(|bytes| bytes.0),
                writes_per_day: limits.writes_per_day.map(|bytes| bytes.0),
            };
            Pool::create(&pool.paths, &options)?;
            info::show(&pool, "created", None)
        }
        PoolCommand::Info { pool, rated_tbw } => info::show(&pool, "", rated_tbw),
        PoolCommand::History { pool } => history(&pool),
        PoolCommand::Rollback { pool, token, dram } => rollback(&pool, Epoch(token), dram),
        PoolCommand::Check { pool, repair: false, .. } => check(&pool),
        PoolCommand::Check { pool, at_token, dram, .. } => repair(&pool, at_token.map(Epoch), dram),
        PoolCommand::Compact { pool, dram } => compact(&pool, dram),
    }
}

#[derive(Serialize)]
struct TokenJson {
    token: u64,
    wall_ns: u64,
    pages_changed: u64,
    segments_written: u64,
    written_bytes: u64,
}

fn history(target: &Target) -> anyhow::Result<()> {
    let found = Pool::inspect(&target.paths)?;
    let segment = found.info().segment.bytes();
    let tokens = found.history();
    if target.json {
        let tokens: Vec<TokenJson> = tokens.iter().map(|t| token_json(t, segment)).collect();
        return emit_json(&serde_json::json!({ "tokens": tokens }));
    }
    let mut table = Table::new(&["token", "<made", "pages changed", "written"]);
    for token in &tokens {
        table.row(vec![
            token.token.to_string(),
            date(token.wall_ns),
            count(token.pages_changed),
            size(token.segments_written * segment),
        ]);
    }
    emit_text(&table.render())
}

fn token_json(token: &History, segment: u64) -> TokenJson {
    TokenJson {
        token: token.token.0,
        wall_ns: token.wall_ns,
        pages_changed: token.pages_changed,
        segments_written: token.segments_written,
        written_bytes: token.segments_written * segment,
    }
}

fn open(paths: &[PathBuf], dram: Bytes) -> anyhow::Result<Pool> {
    // These commands make no load or store by address.
    Ok(Pool::open(paths, &OpenOptions::new(dram.0).mapping(Mapping::Off))?)
}

fn rollback(target: &Target, token: Epoch, dram: Bytes) -> anyhow::Result<()> {
    let pool = open(&target.paths, dram)?;
    let before = pool.history()?;
    let started = Instant::now();
    pool.rollback(token)?;
    let took = started.elapsed();
    // A rollback is durable when it returns. Closing the pool would add a token.
    pool.abandon()?;
    let later: Vec<u64> = before.iter().map(|t| t.token.0).filter(|&t| t > token.0).collect();
    if target.json {
        return emit_json(&serde_json::json!({
            "token": token.0,
            "tokens_discarded": later,
            "rollback_ns": took.as_nanos() as u64,
        }));
    }
    let list: Vec<String> = later.iter().map(u64::to_string).collect();
    let discarded = match list.len() {
        0 => "there was no later token".into(),
        1 => format!("token {} is gone", list[0]),
        _ => format!("tokens {} are gone", list.join(", ")),
    };
    emit_text(&format!(
        "rolled {} back to token {token} in {}; {discarded}\n",
        names(&target.paths),
        duration(took)
    ))
}

fn check(target: &Target) -> anyhow::Result<()> {
    let found = Pool::inspect(&target.paths)?;
    let bar = progress("checking");
    let started = Instant::now();
    let report = found.check(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    show_report(target, &report, None, started.elapsed())?;
    verdict(target, &report)
}

/// Result of a repair.
#[derive(Serialize)]
struct RepairResult {
    /// Token that the pool was rolled back to; `None` if the log was not damaged.
    at_token: Option<u64>,
    /// The damage of the log.
    log_damage: Option<String>,
    copies_written: u64,
}

fn repair(target: &Target, at_token: Option<Epoch>, dram: Bytes) -> anyhow::Result<()> {
    let started = Instant::now();
    let damaged = match Pool::inspect(&target.paths) {
        Ok(_) => None,
        Err(error @ (PoolError::LogDamaged { kept, .. } | PoolError::LineLogDamaged { kept, .. })) => {
            Some((kept, error))
        }
        Err(error) => return Err(error.into()),
    };
    let at_token = at_token.or(damaged.as_ref().map(|(kept, _)| *kept));
    let mut options = OpenOptions::new(dram.0).mapping(Mapping::Off);
    options.at_token = at_token;
    let pool = Pool::open(&target.paths, &options)?;
    let copies_written = pool.repair_headers()?;
    let bar = progress("checking");
    let report = pool.check(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    // Opening has made the repair durable. Closing the pool would add a token.
    pool.abandon()?;
    let log_damage = damaged.map(|(_, error)| error.to_string());
    let repair = RepairResult { at_token: at_token.map(|token| token.0), log_damage, copies_written };
    show_report(target, &report, Some(&repair), started.elapsed())?;
    verdict(target, &report)
}

fn verdict(target: &Target, report: &Report) -> anyhow::Result<()> {
    if report.is_sound() {
        return Ok(());
    }
    bail!(
        "{} is damaged: {} segments fail their checksum, {} structures are inconsistent",
        names(&target.paths),
        count(report.damaged.len() as u64),
        count(report.problems.len() as u64)
    )
}

fn show_report(
    target: &Target,
    report: &Report,
    repair: Option<&RepairResult>,
    took: Duration,
) -> anyhow::Result<()> {
    if target.json {
        let damaged: Vec<_> = report
            .damaged
            .iter()
            .map(|d| {
                serde_json::json!({
                    "device": d.device,
                    "address": d.address.raw(),
                    "epoch": d.epoch.0,
                    "offset_bytes": d.offset,
                })
            })
            .collect();
        return emit_json(&serde_json::json!({
            "sound": report.is_sound(),
            "segments_read": report.segments,
            "line_records_read": report.records,
            "damaged_segments": damaged,
            "problems": report.problems,
            "damaged_copies": report.damaged_copies,
            "repair": repair,
            "check_ns": took.as_nanos() as u64,
        }));
    }
    let lines = if report.records > 0 {
        format!(" and {} line records", count(report.records))
    } else {
        String::new()
    };
    let mut text = String::new();
    if let Some(RepairResult { at_token, log_damage, copies_written }) = repair {
        if let Some(damage) = log_damage {
            text += &format!("{damage}\n");
        }
        if let Some(token) = at_token {
            text += &format!("the pool is at token {token}\n");
        }
        if *copies_written > 0 {
            text += &format!("{} damaged copies rewritten\n", count(*copies_written));
        }
    }
    text += &format!("{} segments{lines} read in {}\n", count(report.segments), duration(took));
    if report.damaged_copies > 0 {
        let copies = count(report.damaged_copies);
        text += &format!("{copies} batch headers have one damaged copy; --repair rewrites it\n");
    } else if report.is_sound() {
        text += "sound: every structure and every segment is as it was written\n";
    }
    for problem in &report.problems {
        text += &format!("{problem}\n");
    }
    for damaged in report.damaged.iter().take(LISTED) {
        text += &format!(
            "{}: the segment at address {} written in epoch {} is damaged (device offset {})\n",
            damaged.device, damaged.address, damaged.epoch, damaged.offset
        );
    }
    if report.damaged.len() > LISTED {
        text += &format!("and {} more segments\n", count((report.damaged.len() - LISTED) as u64));
    }
    emit_text(&text)
}

fn compact(target: &Target, dram: Bytes) -> anyhow::Result<()> {
    let pool = open(&target.paths, dram)?;
    let before = pool.info()?;
    let bar = progress("compacting");
    let started = Instant::now();
    let freed = pool.compact(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let took = started.elapsed();
    let stats = pool.stats();
    let block = before.block.0;
    // Compaction ends with a checkpoint. Closing the pool would add a token.
    pool.abandon()?;
    if target.json {
        return emit_json(&serde_json::json!({
            "blocks_freed": freed,
            "freed_bytes": freed * block,
            "moved_bytes": stats.bytes_moved,
            "compact_ns": took.as_nanos() as u64,
        }));
    }
    emit_text(&format!(
        "freed {} blocks ({}), moved {}, in {}\n",
        count(freed),
        size(freed * block),
        size(stats.bytes_moved),
        duration(took)
    ))
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| Path::display(p).to_string()).collect::<Vec<_>>().join(", ")
}
