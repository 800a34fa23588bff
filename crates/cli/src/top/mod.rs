//! `deepram top`: shows live statistics of programs under `deepram run` and of open pools.

mod discovery;
mod http_client;
mod render;
mod terminal;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use deepram_metrics::{Kind, ListenAddress, Statistics};
use deepram_pool::POOL_STATISTICS;
use serde_json::json;

use self::discovery::{Observed, find_all, find_of};
use self::terminal::{Terminal, UserAction};
use crate::output::{emit_json, emit_text};
use crate::run::RUN_STATISTICS;

/// Options of `deepram top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Process id of a run, of a process of its program, or of a process that has a pool open [default: all runs and open pools
    /// of this user]
    #[arg(value_name = "PID", conflicts_with = "listen_address")]
    pid: Option<u32>,
    /// Address of a run or a pool, as given to its --listen
    #[arg(long, value_name = "ADDRESS")]
    listen_address: Option<ListenAddress>,
    /// Print the statistics of one interval and exit; the default where the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one JSON object and exit, with lists of `runs` and `pools`: `now` since the start of the run or the opening of the
    /// pool, `interval` for the interval alone
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

/// Statistics of one run or pool: since its start, and for the last interval.
struct Observation {
    now: Statistics,
    interval: Statistics,
}

/// What to observe.
enum Target {
    All,
    Some(Vec<Observed>),
    Served(ListenAddress),
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let target = match (args.pid, &args.listen_address) {
        (Some(pid), _) => Target::Some(find_of(pid)?),
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
        bail!("{}", render::NOTHING);
    }
    std::thread::sleep(args.interval);
    let all = observe(target.read()?, &mut before);
    if !args.json {
        return emit_text(&render::screen(&all).join("\n")).and_then(|()| emit_text("\n"));
    }
    let list = |kind: &Kind| -> Vec<_> {
        let of_kind = all.iter().filter(|observation| observation.now.kind == kind);
        let object = |Observation { now, interval }: &Observation| json!({"pid": now.pid, kind.name_key: now.name, "now": now.json(), "interval": interval.json()});
        of_kind.map(object).collect()
    };
    emit_json(&json!({ "runs": list(&RUN_STATISTICS), "pools": list(&POOL_STATISTICS) }))
}

impl Target {
    fn read(&self) -> anyhow::Result<Vec<Statistics>> {
        match self {
            Self::All => Ok(find_all()?.iter().filter_map(|one| one.read().ok()).collect()),
            Self::Some(found) => found.iter().map(Observed::read).collect(),
            Self::Served(address) => {
                let kinds = [&RUN_STATISTICS, &POOL_STATISTICS];
                let reading =
                    http_client::get_stats(address).and_then(|text| Ok(Statistics::parse(&text, &kinds)?));
                Ok(vec![reading.with_context(|| format!("request to {address}"))?])
            }
        }
    }
}

/// Statistics of the previous reading, by key of the name, process and name.
type Previous = HashMap<(&'static str, u32, String), Statistics>;

/// Pairs each reading with the statistics of the interval since the previous call. For a run or pool seen for the first time the
/// interval is the whole time.
fn observe(all: Vec<Statistics>, before: &mut Previous) -> Vec<Observation> {
    let last = std::mem::take(before);
    all.into_iter()
        .map(|now| {
            let key = (now.kind.name_key, now.pid, now.name.clone());
            // A pool that was opened anew counts from 0 again.
            let last = last.get(&key).filter(|last| last.time <= now.time);
            let interval = last.map_or_else(|| now.clone(), |last| now.since(last));
            before.insert(key, now.clone());
            Observation { now, interval }
        })
        .collect()
}
