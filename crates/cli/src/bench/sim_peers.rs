//! The simulator on the cases on which MQSim, DiskSim and SkyByte were measured: our values, theirs, the difference.

use std::path::PathBuf;

use clap::Args;
use deepram_media::Registry;
use deepram_sim::peers::{cases, run_case, set_up_case};
use serde::Serialize;

use super::{OutputArgs, Report, timed};
use crate::output::{Table, progress};

/// Options of `deepram bench sim-peers`.
#[derive(Debug, Args)]
pub(crate) struct SimPeersArgs {
    /// Run only the cases whose name contains NAME
    #[arg(default_value = "", value_name = "NAME")]
    filter: String,
    /// Folder with the traces that some cases need; without it these cases are skipped
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Serialize)]
struct PeerRow {
    case: String,
    figure: String,
    ours: f64,
    theirs: f64,
    difference_percent: f64,
    verdict: &'static str,
    why: String,
    requests: u64,
    /// Requests simulated per second, set-up excluded.
    requests_per_s: f64,
    set_up_s: f64,
}

pub(super) fn run(args: &SimPeersArgs) -> anyhow::Result<Report> {
    let registry = Registry::builtin()?;
    let folder = args.traces.clone().unwrap_or_default();
    let mut rows = Vec::new();
    let mut skipped = Vec::new();
    for case in cases().filter(|case| case.name.contains(&args.filter)) {
        let bar = progress("simulating");
        let (set_up, before) = timed(|| set_up_case(&registry, case));
        set_up?;
        let (outcome, time) = timed(|| run_case(&registry, case, &folder));
        let simulating = time.saturating_sub(before).as_secs_f64().max(1e-9);
        bar.finish_and_clear();
        let (result, figures) = match outcome {
            Ok(outcome) => outcome,
            Err(error) if args.traces.is_none() => {
                skipped.push(format!("{}: {error}", case.name));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for figure in figures {
            rows.push(PeerRow {
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
    for text in skipped {
        eprintln!("skipped, needs --traces: {text}");
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
    for row in &rows {
        table.row(vec![
            row.case.clone(),
            row.figure.clone(),
            format!("{:.3}", row.ours),
            format!("{:.3}", row.theirs),
            format!("{:+.4}", row.difference_percent),
            row.verdict.into(),
            format!("{:.2}", row.requests_per_s / 1e6),
            row.why.clone(),
        ]);
    }
    Report::new(&rows, table.render())
}
