//! `deepram pool check` and `deepram pool scrub`: find and repair damage.

use std::time::{Duration, Instant};

use anyhow::bail;
use deepram_core::Bytes;
use deepram_pool::{Epoch, Mapping, OpenOptions, Pool, PoolError, Report};
use serde::Serialize;

use super::{names, open};
use crate::cli::Target;
use crate::output::{count, duration, emit_json, emit_text, progress};

/// Most damaged segments listed; further ones are counted.
const LISTED: usize = 50;

/// Checks a pool without changing it.
pub(super) fn check(target: &Target) -> anyhow::Result<()> {
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
    /// Damaged segments, batch headers and tables rewritten from parity.
    rebuilt: u64,
    /// Blocks whose parity was written anew.
    parity_rewritten: u64,
}

/// Scrubs a pool.
pub(super) fn scrub(target: &Target, dram: Bytes) -> anyhow::Result<()> {
    let pool = open(&target.paths, dram)?;
    let has_parity = pool.info()?.redundancy.is_some();
    let bar = progress("scrubbing");
    let started = Instant::now();
    let report = pool.scrub(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let took = started.elapsed();
    let rebuilt = pool.stats().segments_repaired;
    // A scrub is durable when it returns. Closing the pool would add a token.
    pool.abandon()?;
    if target.json {
        emit_json(&serde_json::json!({
            "sound": report.check.is_sound(),
            "redundancy": has_parity,
            "slots_read": report.slots,
            "segments_checked": report.check.segments,
            "line_records_read": report.check.records,
            "rebuilt": rebuilt,
            "lost": report.lost,
            "parity_rewritten": report.parity_rewritten,
            "damaged_segments": damaged_json(&report.check),
            "problems": report.check.problems,
            "scrub_ns": took.as_nanos() as u64,
        }))?;
        return verdict(target, &report.check);
    }
    let mut text = if has_parity {
        let read = count(report.slots);
        format!(
            "{read} slots and their parity read in {}, {} damaged slots rebuilt\n",
            duration(took),
            count(rebuilt)
        )
    } else {
        let read = count(report.check.segments);
        format!("{read} segments read in {}; the pool has no parity to repair damage from\n", duration(took))
    };
    if report.parity_rewritten > 0 {
        text += &format!("parity of {} blocks written anew\n", count(report.parity_rewritten));
    }
    if report.lost > 0 {
        text += &format!("{} damaged slots cannot be rebuilt\n", count(report.lost));
    }
    text += &findings(&report.check);
    emit_text(&text)?;
    verdict(target, &report.check)
}

/// Repairs and checks a pool.
pub(super) fn repair(target: &Target, at_token: Option<Epoch>, dram: Bytes) -> anyhow::Result<()> {
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
    let scrubbed = pool.scrub(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let rebuilt = pool.stats().segments_repaired;
    // Opening has made the repair durable. Closing the pool would add a token.
    pool.abandon()?;
    let log_damage = damaged.map(|(_, error)| error.to_string());
    let repair = RepairResult {
        at_token: at_token.map(|token| token.0),
        log_damage,
        copies_written,
        rebuilt,
        parity_rewritten: scrubbed.parity_rewritten,
    };
    show_report(target, &scrubbed.check, Some(&repair), started.elapsed())?;
    verdict(target, &scrubbed.check)
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
        return emit_json(&serde_json::json!({
            "sound": report.is_sound(),
            "segments_read": report.segments,
            "line_records_read": report.records,
            "damaged_segments": damaged_json(report),
            "problems": report.problems,
            "damaged_copies": report.damaged_copies,
            "repairable": report.repairable,
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
    if let Some(RepairResult { at_token, log_damage, copies_written, rebuilt, parity_rewritten }) = repair {
        if let Some(damage) = log_damage {
            text += &format!("{damage}\n");
        }
        if let Some(token) = at_token {
            text += &format!("the pool is at token {token}\n");
        }
        if *copies_written > 0 {
            text += &format!("{} damaged copies rewritten\n", count(*copies_written));
        }
        if *rebuilt > 0 {
            text += &format!("{} damaged slots rebuilt from parity\n", count(*rebuilt));
        }
        if *parity_rewritten > 0 {
            text += &format!("parity of {} blocks written anew\n", count(*parity_rewritten));
        }
    }
    text += &format!("{} segments{lines} read in {}\n", count(report.segments), duration(took));
    text += &findings(report);
    emit_text(&text)
}

fn damaged_json(report: &Report) -> Vec<serde_json::Value> {
    let each = report.damaged.iter().map(|damaged| {
        serde_json::json!({
            "device": damaged.device,
            "address": damaged.address.raw(),
            "epoch": damaged.epoch.0,
            "offset_bytes": damaged.offset,
        })
    });
    each.collect()
}

/// Describes what a check found.
fn findings(report: &Report) -> String {
    let mut text = String::new();
    if report.repairable > 0 {
        let slots = count(report.repairable);
        text +=
            &format!("{slots} damaged slots can be rebuilt from parity; scrub or --repair rewrites them\n");
    }
    if report.damaged_copies > 0 {
        let copies = count(report.damaged_copies);
        text += &format!("{copies} batch headers have one damaged copy; --repair rewrites it\n");
    } else if report.is_sound() && report.repairable == 0 {
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
    text
}
