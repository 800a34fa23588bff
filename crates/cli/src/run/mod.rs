//! `deepram run`: runs an unmodified program whose memory exceeds its DRAM budget, or whose memory behaves like another kind.

mod cgroup_limit;
mod media;
mod program;
mod report;
mod signals;
mod start;
mod stats;

use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use deepram_metrics::{ListenAddress, Server};

use stats::StatsSource;

pub(crate) use cgroup_limit::{ExecArgs, exec};
pub(crate) use media::{MediaProgram, MediaSpec};
pub(crate) use program::CannotStart;
pub(crate) use report::print;
pub(crate) use start::{PagingArgs, PreparedProgram, Record, exit_code, leave_outer_run};
#[cfg(test)]
pub(crate) use stats::tests;
pub(crate) use stats::{RUN_STATISTICS, all_faults, from_budget};

/// Options of `deepram run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Serve /metrics (Prometheus), /stats.json and /stats over HTTP while the program runs. ADDRESS is unix:PATH, or
    /// HOST:PORT with a loopback address
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<ListenAddress>,
    /// Show paging statistics in one line on the terminal while the program runs
    #[arg(long)]
    live: bool,
    /// Keep the program's memory under this name (not implemented)
    #[arg(long, value_name = "NAME", hide = true)]
    persist: Option<String>,
    /// Do not page the program's memory but let it behave like slower, persistent memory:
    /// pmem[:read=TIME,bandwidth=SHARE,wbarrier=TIME,flush=METHOD,selective=on]. read: latency of a read from memory;
    /// bandwidth: 1/8 of this machine's, or 4GB/s; wbarrier, flush (clflush, clflushopt, clwb, wof), selective: what msync and
    /// fsync of mapped files cost
    #[arg(long, value_name = "MEMORY", conflicts_with_all = ["dram", "memory", "store", "store_limit", "policy", "stats", "listen", "live"])]
    media: Option<MediaSpec>,
    #[command(flatten)]
    paging: PagingArgs,
}

/// Output formats of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// Text with the ten main values
    Text,
    /// Text with every value
    Full,
    /// One JSON object
    Json,
    /// Prometheus text format
    Prometheus,
}

/// Runs the program and ends this process with its exit status, which is 128 plus the signal's number if a signal ended the
/// program.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    leave_outer_run()?;
    let code = status(args)?;
    std::process::exit(code)
}

/// Serves the statistics of the run.
fn listen(address: &ListenAddress, source: &StatsSource) -> anyhow::Result<Server> {
    let source = source.clone();
    let server = Server::start(address, Arc::new(move || source.read()));
    let server = server.with_context(|| format!("--listen {address}"))?;
    if server.address() != address {
        eprintln!("deepram run: listening on {}", server.address());
    }
    Ok(server)
}

/// Runs the program and returns its exit status. Every resource of the run is released before this function returns.
fn status(args: &RunArgs) -> anyhow::Result<i32> {
    if let Some(name) = &args.persist {
        bail!(
            "--persist {name}: deepram cannot keep the memory of a program yet; store data in a pool (`deepram pool`)"
        );
    }
    if let Some(spec) = &args.media {
        let status = MediaProgram::new(spec, &args.paging.command)?.run()?;
        return Ok(exit_code(status));
    }
    let prepared = PreparedProgram::new(&args.paging, None)?;
    let source = prepared.stats_source();
    let _listening = args.listen.as_ref().map(|address| listen(address, &source)).transpose()?;
    let mut line = args.live.then(report::LiveLine::default);
    let status = prepared.run(|| {
        if let Some(line) = &mut line {
            line.update(&source.read());
        }
    });
    if let Some(line) = line {
        line.clear();
    }
    let status = status?;
    if let Some(format) = args.paging.stats {
        print(&source.read(), format);
    }
    Ok(exit_code(status))
}
