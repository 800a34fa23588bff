//! `deepram run`: a program with more memory than there is DRAM for it.

mod address;
mod bound;
mod histogram;
mod listen;
mod program;
mod reading;
mod report;
mod signals;
mod start;

use anyhow::bail;
use clap::{Args, ValueEnum};

pub(crate) use address::Address;
pub(crate) use bound::{WithinArgs, within};
pub(crate) use program::CannotStart;
pub(crate) use reading::Reading;
#[cfg(test)]
pub(crate) use reading::tests;
pub(crate) use report::print;
pub(crate) use start::{Paging, Prepared, exit_code, leave_outer};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Answer requests for /metrics (Prometheus), /stats.json and /stats at this address of this machine, as long
    /// as the program runs: unix:PATH, or HOST:PORT with a loopback address
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
    /// Show what paging does while the program runs, in one line on the terminal
    #[arg(long)]
    live: bool,
    /// Keep the program's memory under this name: not there yet
    #[arg(long, value_name = "NAME", hide = true)]
    persist: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

/// How figures are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people: the figures that matter most.
    Text,
    /// For people: all figures.
    Full,
    /// One object.
    Json,
    /// The text format of Prometheus.
    Prometheus,
}

/// Ends the process with the program's status, as a shell tells it: 128 and the signal, if it was one.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    leave_outer()?;
    let code = status(args)?;
    std::process::exit(code)
}

/// Runs the program. What has to be undone at the end is undone when this returns.
fn status(args: &RunArgs) -> anyhow::Result<i32> {
    if let Some(name) = &args.persist {
        bail!(
            "memory that outlives its program (--persist {name}) is not there yet: `deepram pool` keeps data"
        );
    }
    let prepared = Prepared::new(&args.paging, None)?;
    let source = prepared.source();
    let _listening =
        args.listen.as_ref().map(|address| listen::start(address, source.clone())).transpose()?;
    let mut line = args.live.then(report::Live::default);
    let status = prepared.run(|| {
        if let Some(line) = &mut line {
            line.renew(&source.read());
        }
    });
    if let Some(line) = line {
        line.end();
    }
    let status = status?;
    if let Some(form) = args.paging.stats {
        print(&source.read(), form);
    }
    Ok(exit_code(status))
}
