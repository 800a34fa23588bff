//! `deepram top`: shows live paging statistics of programs under `deepram run`.

mod discovery;
mod http_client;
mod render;
mod terminal;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use self::discovery::{ObservedRun, find_runs, run_of};
use self::terminal::{Terminal, UserAction};
use crate::output::{emit_json, emit_text};
use crate::run::{ListenAddress, RunStats};

/// Options of `deepram top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Process id of a run, or of a process of its program [default: all runs of this user]
    #[arg(value_name = "PID", conflicts_with = "listen_address")]
    pid: Option<u32>,
    /// Address of a run, as given to its --listen
    #[arg(long, value_name = "ADDRESS")]
    listen_address: Option<ListenAddress>,
    /// Print the statistics of one interval and exit; the default where the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one JSON object and exit: `now` since the start of the run, `interval` for the interval alone
    #[arg(long)]
    json: bool,
    /// Interval between two readings, seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if (0.1..=3600.0).contains(&seconds) => Ok(time),
        _ => Err("expected 0.1 to 3600 seconds".into()),
    }
}

/// Statistics of one run: since its start, and for the last interval.
struct Observation {
    now: RunStats,
    interval: RunStats,
}

/// The runs to observe.
enum Target {
    All,
    One(ObservedRun),
    Served(ListenAddress),
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let target = match (args.pid, &args.listen_address) {
        (Some(pid), _) => Target::One(run_of(pid)?),
        (_, Some(address)) => Target::Served(address.clone()),
        _ => Target::All,
    };
    if args.once || args.json || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return once(&target, args);
    }
    let terminal = Terminal::open()?;
    let mut before = HashMap::new();
    let result = loop {
        let begun = Instant::now();
        let all = match target.read() {
            Ok(all) => all,
            Err(error) => break Err(error),
        };
        terminal.draw(&render::screen(&observe(all, &mut before)))?;
        let left = args.interval.saturating_sub(begun.elapsed());
        if terminal.wait(left)? == UserAction::Quit {
            break Ok(());
        }
    };
    drop(terminal);
    result
}

fn once(target: &Target, args: &TopArgs) -> anyhow::Result<()> {
    let mut before = HashMap::new();
    if observe(target.read()?, &mut before).is_empty() && !args.json {
        bail!("no run of this user is active");
    }
    std::thread::sleep(args.interval);
    let all = observe(target.read()?, &mut before);
    if !args.json {
        return emit_text(&render::screen(&all).join("\n")).and_then(|()| emit_text("\n"));
    }
    let runs: Vec<_> = all
        .iter()
        .map(|observation| {
            let Observation { now, interval } = observation;
            json!({"pid": now.pid, "command": now.command, "now": now.json(), "interval": interval.json()})
        })
        .collect();
    emit_json(&json!({ "runs": runs }))
}

impl Target {
    fn read(&self) -> anyhow::Result<Vec<RunStats>> {
        match self {
            Self::All => Ok(find_runs()?.iter().filter_map(|run| run.read().ok()).collect()),
            Self::One(run) => Ok(vec![run.read()?]),
            Self::Served(address) => {
                let reading = http_client::get_stats(address).and_then(|text| RunStats::parse(&text));
                Ok(vec![reading.with_context(|| format!("request to {address}"))?])
            }
        }
    }
}

/// Pairs the statistics of each run with those of the interval since the previous call. For a run seen for the first time the
/// interval is the whole run.
fn observe(all: Vec<RunStats>, before: &mut HashMap<u32, RunStats>) -> Vec<Observation> {
    let last = std::mem::take(before);
    all.into_iter()
        .map(|now| {
            before.insert(now.pid, now.clone());
            let interval = last.get(&now.pid).map_or_else(|| now.clone(), |last| now.since(last));
            Observation { now, interval }
        })
        .collect()
}
