//! `deepram pool`: creates, inspects, checks, repairs and mounts pools.

mod info;
pub(crate) mod mount;
mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use deepram_core::Bytes;
use deepram_pool::{CreateOptions, Epoch, History, Mapping, OpenOptions, Pool, Retention, SegmentSize};
use serde::Serialize;

use crate::cli::{PoolCommand, Target};
use crate::output::{Table, count, date, duration, emit_json, emit_text, progress, size};

/// Runs a command.
pub(crate) fn run(command: PoolCommand) -> anyhow::Result<()> {
    match command {
        PoolCommand::Create {
            pool,
            size,
            flash,
            pmem,
            segment,
            keep,
            base,
            redundancy,
            limits,
            memory,
            force,
        } => {
            let options = CreateOptions {
                size: size.0,
                flash: flash.map(|f| f.0),
                pmem: pmem.0,
                segment: SegmentSize::from(segment),
                retention: Retention::KeepLast(keep),
                base,
                overwrite: force,
                redundancy,
                rated_tbw: limits.rated_tbw.map(|bytes| bytes.0),
                writes_per_day: limits.writes_per_day.map(|bytes| bytes.0),
                memory,
            };
            Pool::create(&pool.paths, &options)?;
            let memory = options.memory.into_iter().map(|file| file.path);
            let paths = pool.paths.into_iter().chain(memory).collect();
            info::show(&Target { paths, ..pool }, "created", None)
        }
        PoolCommand::Info { pool, rated_tbw } => info::show(&pool, "", rated_tbw),
        PoolCommand::History { pool } => history(&pool),
        PoolCommand::Rollback { pool, token, dram } => rollback(&pool, Epoch(token), dram),
        PoolCommand::Check { pool, repair: false, .. } => report::check(&pool),
        PoolCommand::Check { pool, at_token, dram, .. } => report::repair(&pool, at_token.map(Epoch), dram),
        PoolCommand::Scrub { pool, dram } => report::scrub(&pool, dram),
        PoolCommand::Compact { pool, dram } => compact(&pool, dram),
        PoolCommand::Mount(args) => mount::mount(&args),
        PoolCommand::Umount(args) => mount::umount(&args),
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
