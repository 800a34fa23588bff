//! `deepram pool info`: properties, state and wear of a pool.

use std::time::{SystemTime, UNIX_EPOCH};

use deepram_core::Bytes;
use deepram_pool::memory::MemoryInfo;
use deepram_pool::{Endurance, History, Info, Pool, Retention};
use serde::Serialize;

use super::names;
use crate::cli::Target;
use crate::output::{count, date, emit_json, emit_text, pairs};

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
    redundancy: Option<String>,
    column_bytes: u64,
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
    written_bytes: u64,
    user_bytes: u64,
    written_since_ns: u64,
    write_amplification: Option<f64>,
    written_per_day_bytes: Option<f64>,
    rated_tbw_bytes: Option<u64>,
    days_left: Option<f64>,
    writes_per_day_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory: Vec<MemoryJson>,
}

/// A memory controller.
#[derive(Serialize)]
struct MemoryJson {
    device: String,
    kind: &'static str,
    controller: usize,
    size_bytes: u64,
    allocated_bytes: u64,
    regions: usize,
    base_address: u64,
}

/// Prints the properties, state and wear of a pool. `done` precedes the pool's names; `rated_tbw` replaces the rating
/// that the pool was created with.
pub(super) fn show(target: &Target, done: &str, rated_tbw: Option<Bytes>) -> anyhow::Result<()> {
    let found = Pool::inspect(&target.paths)?;
    let info: Info = found.info();
    let journaled = info.devices.len();
    let tokens = found.history();
    let last = tokens.last();
    let (keep_tokens, keep_segments, kept) = match info.retention {
        Retention::KeepLast(n) => (Some(n), None, format!("the last {}", count(u64::from(n)))),
        Retention::Segments(n) => (None, Some(n), format!("those that hold up to {} segments", count(n))),
    };
    let endurance = info.endurance;
    let rated = rated_tbw.or(endurance.rated);
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let days_left = rated.and_then(|rated| endurance.days_left(rated, now_ns));
    let memory: Vec<MemoryJson> = (journaled..).zip(&info.memory).map(memory_json).collect();
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
            redundancy: info.redundancy.map(|redundancy| redundancy.to_string()),
            column_bytes: info.column.0,
            keep_tokens,
            keep_segments,
            base_address: info.base,
            open_epoch: info.open_epoch.0,
            tokens: tokens.len(),
            last_token: last.map(|t| t.token.0),
            closed_in_order: found.clean,
            replayed_batches: found.batches,
            written_bytes: endurance.written.0,
            user_bytes: endurance.user.0,
            written_since_ns: endurance.since_ns,
            write_amplification: endurance.write_amplification(),
            written_per_day_bytes: endurance.written_per_day(now_ns),
            rated_tbw_bytes: rated.map(|rated| rated.0),
            days_left,
            writes_per_day_bytes: endurance.writes_per_day.map(|limit| limit.0),
            memory,
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
    let mut lines = vec![
        ("devices", info.devices.join(", ")),
        ("uuid", info.uuid.to_string()),
        ("memory", format!("{}, {} allocated", info.size, info.allocated)),
        ("flash", format!("{}, {} in use, room for {} more", info.flash, info.flash_used, info.flash_room)),
        ("line log", line_log),
        ("segment", format!("{}, in blocks of {}", Bytes(info.segment.bytes()), info.block)),
        ("redundancy", redundancy(&info)),
        ("tokens", format!("{}, keeping {kept}", count(tokens.len() as u64))),
        ("last token", last.map_or("-".into(), last_token)),
        ("mapped at", format!("{:#x}", info.base)),
        ("state", state),
        ("written", written(&endurance)),
    ];
    if let Some(rated) = rated {
        lines.push(("lifetime", lifetime(&endurance, rated, days_left)));
    }
    if let Some(limit) = endurance.writes_per_day {
        lines.push(("day limit", format!("{limit} for each device; above that, background writes wait")));
    }
    lines.extend(memory.iter().map(|memory| ("in place", memory_line(memory))));
    text += &pairs(&lines);
    emit_text(&text)
}

fn memory_json((controller, memory): (usize, &MemoryInfo)) -> MemoryJson {
    MemoryJson {
        device: memory.device.clone(),
        kind: memory.kind.name(),
        controller,
        size_bytes: memory.size.0,
        allocated_bytes: memory.allocated.0,
        regions: memory.regions.len(),
        base_address: memory.base,
    }
}

/// Describes a memory controller.
fn memory_line(memory: &MemoryJson) -> String {
    format!(
        "{} ({}), controller {}: {}, {} allocated, mapped at {:#x}",
        memory.device,
        memory.kind,
        memory.controller,
        Bytes(memory.size_bytes),
        Bytes(memory.allocated_bytes),
        memory.base_address
    )
}

fn last_token(token: &History) -> String {
    match token.wall_ns {
        0 => format!("{}, the empty pool", token.token),
        wall_ns => format!("{}, made {}", token.token, date(wall_ns)),
    }
}

/// Describes the bytes written since the pool was created.
fn written(endurance: &Endurance) -> String {
    let amplification = endurance
        .write_amplification()
        .map_or(String::new(), |factor| format!(", write amplification {factor:.2}"));
    format!("{} since {}{amplification}", endurance.written, date(endurance.since_ns))
}

/// Describes how much of the rated bytes is used, and how long the rest lasts.
fn lifetime(endurance: &Endurance, rated: Bytes, days_left: Option<f64>) -> String {
    let used = endurance.most_written.0 as f64 / rated.0.max(1) as f64 * 100.0;
    let used = format!("{used:.2} % of {rated} used");
    match days_left {
        None => used,
        Some(days) if days < 730.0 => format!("{used}; the rest lasts {days:.1} days at the mean rate"),
        Some(days) => format!("{used}; the rest lasts {:.1} years at the mean rate", days / 365.25),
    }
}

/// Describes what is repaired.
fn redundancy(info: &Info) -> String {
    let Some(redundancy) = info.redundancy else { return "none: damage is detected only".into() };
    let columns = match redundancy.parity() {
        1 => "one column".into(),
        parity => format!("{parity} columns"),
    };
    format!("{redundancy}: {columns} of each block, {} each, can be rebuilt", info.column)
}
