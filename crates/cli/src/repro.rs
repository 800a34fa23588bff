//! `deepram repro`: a paper's published figures, computed anew.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use deepram_repro::report::{Options, Report, reproduce};
use deepram_repro::{PAPERS, Progress, ReproError, Settings, paper};

use crate::Usage;
use crate::output::{Table, emit_json, emit_text, progress};

/// Options of `deepram repro`.
#[derive(Debug, Args)]
pub(crate) struct ReproArgs {
    /// What to reproduce; `all` for one after the other
    #[arg(value_name = "PAPER", value_parser = PossibleValuesParser::new(PAPERS.into_iter().chain([ALL])))]
    paper: String,
    /// Folder for the report and for finished runs; repro-PAPER if not given. For `all`, a folder of such folders
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only this experiment, this claim's experiment, or the sensitivity study; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Small runs, to see that everything works; verdicts mean little
    #[arg(long)]
    quick: bool,
    /// Simulations at a time; one for each processor if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do finished runs again
    #[arg(long)]
    fresh: bool,
    /// Print one JSON object, what results.json holds; for `all` a list of them
    #[arg(long)]
    json: bool,
}

/// All papers.
const ALL: &str = "all";

/// Runs what is missing, writes the report, prints the verdicts: of one paper, or of all.
pub(crate) fn run(args: &ReproArgs) -> anyhow::Result<()> {
    let folder = |paper: &str| PathBuf::from(format!("repro-{paper}"));
    if args.paper != ALL {
        let out = args.out.clone().unwrap_or_else(|| folder(&args.paper));
        let report = reproduced(args, &args.paper, &out)?;
        return if args.json { emit_json(&report) } else { show(&report, &out) };
    }
    if !args.only.is_empty() {
        return Err(Usage("--only names a part of one paper; name the paper instead of all".into()).into());
    }
    let mut reports = Vec::new();
    for paper in PAPERS {
        let out = args.out.clone().unwrap_or_default().join(folder(paper));
        let report = reproduced(args, paper, &out)?;
        if args.json {
            reports.push(report);
        } else {
            emit_text(&format!("{paper}\n\n"))?;
            show(&report, &out)?;
        }
    }
    if args.json { emit_json(&reports) } else { Ok(()) }
}

fn show(report: &Report, out: &Path) -> anyhow::Result<()> {
    emit_text(&table(report))?;
    emit_text(&format!("\n{}\n", out.join("index.html").display()))
}

fn reproduced(args: &ReproArgs, name: &str, out: &Path) -> anyhow::Result<Report> {
    let settings = Settings { quick: args.quick, seed: args.seed };
    let jobs = args
        .jobs
        .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), usize::from);
    let options = Options { out: out.into(), only: args.only.clone(), jobs, fresh: args.fresh };
    let bar = progress("simulating");
    let observe = |event: Progress<'_>| match event {
        Progress::Planned { missing, kept } => {
            bar.set_length((missing + kept) as u64);
            bar.set_position(kept as u64);
        }
        Progress::Begun(run) => bar.set_message(run.name.clone()),
        Progress::Done(_) => bar.inc(1),
    };
    let report = paper(name, &settings)
        .and_then(|paper| reproduce(&paper, &settings, &options, &observe))
        .map_err(usage_or_failure);
    bar.finish_and_clear();
    let report = report?;
    report.write(out)?;
    Ok(report)
}

/// A name that is not known is the command line's fault.
fn usage_or_failure(error: ReproError) -> anyhow::Error {
    match error {
        ReproError::Unknown { .. } => Usage(error.to_string()).into(),
        error => error.into(),
    }
}

fn table(report: &Report) -> String {
    let mut table = Table::new(&["<claim", "<class", "paper", "ours", "difference", "<verdict"]);
    for row in &report.rows {
        table.row(vec![
            row.id.clone(),
            row.class.name().into(),
            row.paper.clone(),
            row.ours_words(),
            row.difference_words(),
            format!("{} {}", row.verdict.sign(), row.verdict.words()),
        ]);
    }
    let mut text = table.render();
    for row in report.rows.iter().filter(|row| row.verdict.missed()) {
        text.push_str(&format!("\n{}: {}", row.id, row.why));
    }
    let counts: Vec<String> =
        report.summary.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    text.push_str(&format!("\n{} claims: {}\n", report.rows.len(), counts.join(", ")));
    text
}
