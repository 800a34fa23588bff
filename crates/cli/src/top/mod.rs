//! `deepram top`: what programs under `deepram run` are doing, as it happens.

mod client;
mod find;
mod screen;
mod show;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use self::find::{Run, find};
use self::screen::{Screen, Wish};
use crate::output::{emit_json, emit_text};
use crate::run::{Address, Reading};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// One run, by the number of its process or of one of its program's; all of your runs if not given
    #[arg(value_name = "PID", conflicts_with = "listen_address")]
    pid: Option<u32>,
    /// The run that listens there, as its --listen says
    #[arg(long, value_name = "ADDRESS")]
    listen_address: Option<Address>,
    /// Print the figures of one interval and end, as when the output is no terminal
    #[arg(long)]
    once: bool,
    /// Print them as one JSON object: `now` since the start of the run, `interval` those of the interval alone
    #[arg(long)]
    json: bool,
    /// From one reading to the next, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if (0.1..=3600.0).contains(&seconds) => Ok(time),
        _ => Err("0.1 to 3600 seconds".into()),
    }
}

/// A run now, and what it did in the last interval.
struct Shown {
    now: Reading,
    between: Reading,
}

/// The runs that are looked at.
enum Looked {
    All,
    One(Run),
    Listening(Address),
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let looked = match (args.pid, &args.listen_address) {
        (Some(pid), _) => Looked::One(find::of(pid)?),
        (_, Some(address)) => Looked::Listening(address.clone()),
        _ => Looked::All,
    };
    if args.once || args.json || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return once(&looked, args);
    }
    let screen = Screen::open()?;
    let mut before = HashMap::new();
    let result = loop {
        let begun = Instant::now();
        let all = match looked.read() {
            Ok(all) => all,
            Err(error) => break Err(error),
        };
        screen.show(&show::screen(&shown(all, &mut before)))?;
        let left = args.interval.saturating_sub(begun.elapsed());
        if screen.wait(left)? == Wish::End {
            break Ok(());
        }
    };
    drop(screen);
    result
}

fn once(looked: &Looked, args: &TopArgs) -> anyhow::Result<()> {
    let mut before = HashMap::new();
    if shown(looked.read()?, &mut before).is_empty() && !args.json {
        bail!("no `deepram run` is running that you may look at");
    }
    std::thread::sleep(args.interval);
    let all = shown(looked.read()?, &mut before);
    if !args.json {
        return emit_text(&show::screen(&all).join("\n")).and_then(|()| emit_text("\n"));
    }
    let runs: Vec<_> = all
        .iter()
        .map(|shown| {
            let Shown { now, between } = shown;
            json!({"pid": now.pid, "command": now.command, "now": now.json(), "interval": between.json()})
        })
        .collect();
    emit_json(&json!({ "runs": runs }))
}

impl Looked {
    fn read(&self) -> anyhow::Result<Vec<Reading>> {
        match self {
            Self::All => Ok(find()?.iter().filter_map(|run| run.read().ok()).collect()),
            Self::One(run) => Ok(vec![run.read()?]),
            Self::Listening(address) => {
                let reading = client::get(address).and_then(|text| Reading::parse(&text));
                Ok(vec![reading.with_context(|| format!("asking {address}"))?])
            }
        }
    }
}

/// Each reading with what came after the one before; of a run seen for the first time that is all of it.
fn shown(all: Vec<Reading>, before: &mut HashMap<u32, Reading>) -> Vec<Shown> {
    let last = std::mem::take(before);
    all.into_iter()
        .map(|now| {
            before.insert(now.pid, now.clone());
            let between = last.get(&now.pid).map_or_else(|| now.clone(), |last| now.since(last));
            Shown { now, between }
        })
        .collect()
}
