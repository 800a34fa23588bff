//! `deepram pool`: creates, inspects, checks and repairs pools.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use deepram_core::Bytes;
use deepram_pool::{
    CreateOptions, Epoch, History, Info, Mapping, OpenOptions, Pool, PoolError, Report, Retention,
    SegmentSize,
};
use serde::Serialize;

use crate::cli::{PoolCommand, Target};
use crate::output::{Table, count, date, duration, emit_json, emit_text, pairs, progress, size};

/// Most damaged segments listed; further ones are counted.
const LISTED: usize = 50;

/// Runs a command.
pub(crate) fn run(command: PoolCommand) -> anyhow::Result<()> {
    match command {
        PoolCommand::Create { pool, size, flash, pmem, segment, keep, base, force } => {
            let options = CreateOptions {
                size: size.0,
                flash: flash.map(|f| f.0),
                pmem: pmem.0,
                segment: SegmentSize::from(segment),
                retention: Retention::KeepLast(keep),
                base,
                overwrite: force,
            };
            Pool::create(&pool.paths, &options)?;
            show_info(&pool, "created")
        }
        PoolCommand::Info { pool } => show_info(&pool, ""),
        PoolCommand::History { pool } => history(&pool),
        PoolCommand::Rollback { pool, token, dram } => rollback(&pool, Epoch(token), dram),
        PoolCommand::Check { pool, repair: false, .. } => check(&pool),
        PoolCommand::Check { pool, at_token, dram, .. } => repair(&pool, at_token.map(Epoch), dram),
        PoolCommand::Compact { pool, dram } => compact(&pool, dram),
    }
}

#[derive(Serialize)]
struct InfoJson {
    uuid: String,
    devices: Vec<String>,
    size_bytes: u64,
    allocated_bytes: u64,
    flash_bytes: u64,
    flash_used_bytes: u64,
    flash_room_bytes: u64,
    line_log_bytes: u64,
    segment_bytes: u64,
    block_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_segments: Option<u64>,
    base_address: u64,
    open_epoch: u64,
    tokens: usize,
    last_token: Option<u64>,
    closed_in_order: bool,
    replayed_batches: usize,
}

fn show_info(target: &Target, done: &str) -> anyhow::Result<()> {
    let found = Pool::inspect(&target.paths)?;
    let info: Info = found.info();
    let tokens = found.history();
    let last = tokens.last();
    let (keep_tokens, keep_segments, kept) = match info.retention {
        Retention::KeepLast(n) => (Some(n), None, format!("the last {}", count(u64::from(n)))),
        Retention::Segments(n) => (None, Some(n), format!("those that hold up to {} segments", count(n))),
    };
    if target.json {
        return emit_json(&InfoJson {
            uuid: info.uuid.to_string(),
            devices: info.devices,
            size_bytes: info.size.0,
            allocated_bytes: info.allocated.0,
            flash_bytes: info.flash.0,
            flash_used_bytes: info.flash_used.0,
            flash_room_bytes: info.flash_room.0,
            line_log_bytes: info.line_log.0,
            segment_bytes: info.segment.bytes(),
            block_bytes: info.block.0,
            keep_tokens,
            keep_segments,
            base_address: info.base,
            open_epoch: info.open_epoch.0,
            tokens: tokens.len(),
            last_token: last.map(|t| t.token.0),
            closed_in_order: found.clean,
            replayed_batches: found.batches,
        });
    }
    let state = if found.clean {
        "closed in order".into()
    } else {
        format!("not closed: opening goes through {} log batches", count(found.batches as u64))
    };
    let mut text = String::new();
    if !done.is_empty() {
        text = format!("{done} {}\n", names(&target.paths));
    }
    let line_log = match info.line_log {
        Bytes(0) => "none: there is no persist region".into(),
        bytes => bytes.to_string(),
    };
    text += &pairs(&[
        ("devices", info.devices.join(", ")),
        ("uuid", info.uuid.to_string()),
        ("memory", format!("{}, {} allocated", info.size, info.allocated)),
        ("flash", format!("{}, {} in use, room for {} more", info.flash, info.flash_used, info.flash_room)),
        ("line log", line_log),
        ("segment", format!("{}, in blocks of {}", Bytes(info.segment.bytes()), info.block)),
        ("tokens", format!("{}, keeping {kept}", count(tokens.len() as u64))),
        ("last token", last.map_or("-".into(), last_token)),
        ("mapped at", format!("{:#x}", info.base)),
        ("state", state),
    ]);
    emit_text(&text)
}

fn last_token(token: &History) -> String {
    match token.wall_ns {
        0 => format!("{}, the empty pool", token.token),
        wall_ns => format!("{}, made {}", token.token, date(wall_ns)),
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
