//! The `deepram` command.

#![forbid(unsafe_code)]

mod bench;
mod cgroups;
mod cli;
mod demo;
mod docs;
mod measure;
mod media;
mod output;
mod plan;
mod pool;
mod reference;
mod renamed;
mod repro;
mod repro_real;
mod results;
mod run;
mod sim;
mod sweep;
mod top;
mod trace;

use std::process::ExitCode;

use clap::Parser;
use deepram_media::MediaError;
use deepram_pool::PoolError;
use deepram_sim::SimError;
use deepram_sim::sweep::SweepError;
use deepram_trace::workload::SpecError;

use cli::{Cli, Command};

/// Exit status of failed work.
const FAILED: u8 = 1;
/// Exit status of a wrong command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(error) = renamed::error(&arguments) {
        eprintln!("error: {error}");
        return ExitCode::from(USAGE);
    }
    // A command line that clap cannot parse ends the process here, with status 2.
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", one_line(&error));
            ExitCode::from(exit_status(&error))
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::DemoWorker(args) => demo::worker::run(&args),
        Command::Pool { command } => pool::run(command),
        Command::Sim(args) => sim::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::RunExec(args) => run::exec(&args),
        Command::Top(args) => top::run(&args),
        Command::Repro(args) => repro::run(&args),
        Command::Trace { command } => trace::run(command),
        Command::Media { command } => media::run(command),
        Command::Bench { command } => bench::run(command),
        Command::Completions { shell } => docs::completions(shell),
        Command::Man { out } => docs::man(out.as_deref()),
        Command::Reference { page, docs } => reference::print(page, &docs),
    }
}

fn exit_status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<run::CannotStart>() {
        Some(cannot) => cannot.status,
        None if is_usage(error) => USAGE,
        None => FAILED,
    }
}

/// An error in a command line that clap accepts.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Whether an error comes from the command line and not from a file or a device.
fn is_usage(error: &anyhow::Error) -> bool {
    let of_media = |error: &MediaError| match error {
        MediaError::UnknownPreset { at, .. } => at.as_ref().is_none_or(|at| at.file == "--set"),
        MediaError::WrongKind { .. } => true,
        MediaError::Toml { at, .. }
        | MediaError::UnknownKey { at, .. }
        | MediaError::Missing { at, .. }
        | MediaError::Unit { at, .. }
        | MediaError::Value { at, .. }
        | MediaError::Derived { at, .. }
        | MediaError::Cycle { at, .. } => at.file == "--set",
        _ => false,
    };
    if let Some(SimError::Media(error)) = error.downcast_ref() {
        return of_media(error);
    }
    let of_workload = |error: &SpecError| !matches!(error, SpecError::File { .. });
    if let Some(SimError::Workload(error)) = error.downcast_ref() {
        return of_workload(error);
    }
    error.is::<Usage>()
        || error.downcast_ref().is_some_and(of_media)
        || matches!(error.downcast_ref(), Some(PoolError::Option { .. }))
        || matches!(error.downcast_ref(), Some(SweepError::NoPoint { .. }))
        || matches!(error.downcast_ref(), Some(SimError::Config { .. } | SimError::Options(_)))
        || error.downcast_ref().is_some_and(of_workload)
}

/// An error and its causes in one line. A cause that the text already contains is left out.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string().replace('\n', " ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_error_is_one_line_with_each_cause_once() {
        let source = io::Error::other("no medium");
        let inner = PoolError::Device { device: "a.pool".into(), operation: "reading", source };
        let error = anyhow::Error::from(inner).context("verifying");
        assert_eq!(one_line(&error), "verifying: a.pool: reading failed: no medium");
        assert_eq!(one_line(&anyhow::anyhow!("two\nlines")), "two lines");
    }
}
