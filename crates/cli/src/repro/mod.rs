//! `deepram repro`: reproduces the published results of a paper.

mod compare;
mod page;

pub(crate) use page::fill;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use deepram_repro::report::{Options, Report, reproduce};
use deepram_repro::{PAPERS, Progress, ReproError, Settings, TraceFile, paper_on};

use crate::Usage;
use crate::output::{Table, emit_json, emit_text, progress};
use crate::repro_real::{self, RealOptions};
use crate::results::RunContext;

/// Options of `deepram repro`.
#[derive(Debug, Args)]
pub(crate) struct ReproArgs {
    /// Paper to reproduce, or `all`
    #[arg(value_name = "PAPER", value_parser = PossibleValuesParser::new(papers()))]
    paper: String,
    /// Folder for the report and the finished runs; for `all`, the folder of one such folder for each paper [default:
    /// repro-PAPER]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only this experiment, the experiment of this claim, or `sensitivity`; with --real only this store (`lmdb`), or stores
    /// on this configuration only (`"pool on disk"`); may be given again
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Run the study's applications for real, on memory that `deepram run --media` emulates, instead of simulating them: only
    /// for pmem. Needs Debian's packages, which are unpacked into the folder and removed at the end
    #[arg(long, conflicts_with_all = ["jobs", "traces", "compare"])]
    real: bool,
    /// Small runs as a smoke test; their verdicts have no meaning
    #[arg(long)]
    quick: bool,
    /// Number of simultaneous simulations [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also run `ssd-buffer` with this recording in place of the stand-in for the paper's trace of this name, and show
    /// both; may be given again
    #[arg(long = "trace", value_name = "NAME=FILE")]
    traces: Vec<String>,
    /// Print the claims whose value, to the digits shown, or verdict differs from these earlier results, instead of all
    /// claims: a results.json, or a file that --results wrote
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    compare: Option<PathBuf>,
    /// Print the JSON object of results.json; for `all`, an array of such objects
    #[arg(long)]
    json: bool,
    /// Also write the claims and the headlines of the sensitivity study, with machine, commit, command, load and date, to a
    /// new file repro-PAPER-DATE-COMMIT.json in this folder
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

/// Name that stands for all papers.
const ALL: &str = "all";
/// The paper that takes recordings.
const TRACES: &str = "ssd-buffer";

/// Reproduces one paper or all: runs the missing simulations, writes the report, prints the verdicts.
pub(crate) fn run(args: &ReproArgs) -> anyhow::Result<()> {
    let folder = |paper: &str| PathBuf::from(format!("repro-{paper}"));
    if args.real {
        return real(args);
    }
    if !args.traces.is_empty() && args.paper != TRACES && args.paper != ALL {
        return Err(
            Usage(format!("--trace is an option of {TRACES}: {} replays no traces", args.paper)).into()
        );
    }
    if args.paper != ALL {
        let out = args.out.clone().unwrap_or_else(|| folder(&args.paper));
        let earlier = args.compare.as_deref().map(|file| compare::earlier(file, &args.paper, args.quick));
        let earlier = earlier.transpose()?;
        let report = reproduced(args, &args.paper, &out)?;
        return match earlier {
            Some(earlier) => emit_text(&compare::text(&earlier, &report)?),
            None if args.json => emit_json(&report),
            None => show(&report, &out),
        };
    }
    if args.compare.is_some() {
        return Err(
            Usage("--compare takes the results of one paper: give the paper instead of all".into()).into()
        );
    }
    if !args.only.is_empty() {
        return Err(Usage("--only selects a part of one paper: give the paper instead of all".into()).into());
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

/// Names that the command accepts.
fn papers() -> Vec<&'static str> {
    let mut all: Vec<&str> = PAPERS.into_iter().chain([repro_real::PAPER, ALL]).collect();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|name| seen.insert(*name));
    all
}

/// Runs the applications of a study.
fn real(args: &ReproArgs) -> anyhow::Result<()> {
    if args.paper != repro_real::PAPER {
        let message =
            format!("--real is an option of {}: no other study's programs run here", repro_real::PAPER);
        return Err(Usage(message).into());
    }
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("repro-{}-real", args.paper)));
    repro_real::run(&RealOptions {
        out: &out,
        quick: args.quick,
        seed: args.seed,
        only: &args.only,
        json: args.json,
        results: args.results.as_deref(),
    })
}

fn show(report: &Report, out: &Path) -> anyhow::Result<()> {
    emit_text(&table(report))?;
    emit_text(&format!("\n{}\n", out.join("index.html").display()))
}

/// Reproduces one paper and writes its report and result file.
fn reproduced(args: &ReproArgs, name: &str, out: &Path) -> anyhow::Result<Report> {
    let context = args.results.is_some().then(|| RunContext::begin(format!("repro-{name}"), None));
    let settings = Settings { quick: args.quick, seed: args.seed };
    let jobs = args
        .jobs
        .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), usize::from);
    let options = Options { out: out.into(), only: args.only.clone(), jobs };
    let bar = progress("simulating");
    let observe = |event: Progress<'_>| match event {
        Progress::Planned { missing, cached } => {
            bar.set_length((missing + cached) as u64);
            bar.set_position(cached as u64);
        }
        Progress::Started(run) => bar.set_message(run.name.clone()),
        Progress::Finished(_) => bar.inc(1),
    };
    let traces = if name == TRACES { traces(args)? } else { Vec::new() };
    let report = paper_on(name, &settings, &traces)
        .and_then(|paper| reproduce(&paper, &settings, &options, &observe))
        .map_err(usage_or_failure);
    bar.finish_and_clear();
    let report = report?;
    report.write(out)?;
    if let (Some(context), Some(folder)) = (context, &args.results) {
        let path = context.write(folder, serde_json::to_value(report.record())?)?;
        eprintln!("results: {}", path.display());
    }
    Ok(report)
}

/// The recordings of `--trace`.
fn traces(args: &ReproArgs) -> anyhow::Result<Vec<TraceFile>> {
    let file = |text: &String| {
        let (name, path) = text.split_once('=').ok_or_else(|| {
            Usage(format!("--trace {text}: expected NAME=FILE, such as fin1=Financial1.spc"))
        })?;
        Ok(TraceFile { name: name.into(), path: path.into() })
    };
    args.traces.iter().map(file).collect()
}

/// An unknown name is an error of the command line.
fn usage_or_failure(error: ReproError) -> anyhow::Error {
    match error {
        ReproError::Unknown { .. } => Usage(error.to_string()).into(),
        error => error.into(),
    }
}

fn table(report: &Report) -> String {
    let mut table = Table::new(&["<claim", "<class", "paper", "ours", "difference", "<verdict"]);
    for row in &report.rows {
        let mut verdict = format!("{} {}", row.verdict.sign(), row.verdict_words());
        if let Some(reason) = row.reason_words() {
            verdict.push_str(&format!(", {reason}"));
        }
        table.row(vec![
            row.id.clone(),
            row.class.name().into(),
            row.paper.clone(),
            row.ours_words(),
            row.difference_words(),
            verdict,
        ]);
    }
    let mut text = table.render();
    for row in report.rows.iter().filter(|row| row.verdict.missed()) {
        let reason = row.reason.as_ref().map_or("", |reason| reason.text.as_str());
        text.push_str(&format!("\n{}: {}", row.id, format!("{reason} {}", row.why).trim_start()));
    }
    let counts: Vec<String> =
        report.summary.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    text.push_str(&format!("\n{} claims: {}\n", report.rows.len(), counts.join(", ")));
    text
}
