//! The cases that other simulators were measured on: ours, theirs, the difference.

use std::path::PathBuf;

use clap::Args;
use deepram_media::Registry;
use deepram_sim::peers::{CASES, run_case, set_up_case};
use serde::Serialize;

use super::timed;
use crate::output::{Table, emit_json, emit_text, progress};

/// Options of `deepram bench sim-peers`.
#[derive(Debug, Args)]
pub(crate) struct SimPeersArgs {
    /// Only the cases whose name contains this
    #[arg(default_value = "", value_name = "NAME")]
    which: String,
    /// Folder with the traces that some cases need; those are left out without it
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    case: String,
    figure: String,
    ours: f64,
    theirs: f64,
    difference_percent: f64,
    verdict: &'static str,
    why: String,
    requests: u64,
    /// Without the set-up.
    requests_per_s: f64,
    set_up_s: f64,
}

pub(super) fn run(args: &SimPeersArgs) -> anyhow::Result<()> {
    let registry = Registry::builtin()?;
    let folder = args.traces.clone().unwrap_or_default();
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(&args.which)) {
        let bar = progress("simulating");
        let (set_up, before) = timed(|| set_up_case(&registry, case));
        set_up?;
        let (outcome, time) = timed(|| run_case(&registry, case, &folder));
        let simulating = time.saturating_sub(before).as_secs_f64().max(1e-9);
        bar.finish_and_clear();
        let (result, figures) = match outcome {
            Ok(outcome) => outcome,
            Err(error) if args.traces.is_none() => {
                left_out.push(format!("{}: {error}", case.name));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for figure in figures {
            rows.push(Row {
                case: case.name.into(),
                figure: format!("{:?}", figure.figure),
                ours: figure.ours,
                theirs: figure.theirs,
                difference_percent: figure.difference * 100.0,
                verdict: if figure.inside { "inside" } else { "outside" },
                why: figure.why.to_string(),
                requests: result.requests,
                requests_per_s: result.requests as f64 / simulating,
                set_up_s: before.as_secs_f64(),
            });
        }
    }
    for text in left_out {
        eprintln!("left out (give --traces): {text}");
    }
    if args.json {
        return emit_json(&rows);
    }
    let mut table = Table::new(&[
        "<case",
        "<figure",
        "ours",
        "theirs",
        "difference %",
        "<verdict",
        "M requests/s",
        "<why",
    ]);
    for row in rows {
        table.row(vec![
            row.case,
            row.figure,
            format!("{:.3}", row.ours),
            format!("{:.3}", row.theirs),
            format!("{:+.4}", row.difference_percent),
            row.verdict.into(),
            format!("{:.2}", row.requests_per_s / 1e6),
            row.why,
        ]);
    }
    emit_text(&table.render())
}
