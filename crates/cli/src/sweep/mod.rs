//! `deepram sweep`: simulates every point of a grid.

mod page;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, value_parser};
use deepram_repro::number::plain;
use deepram_sim::sweep::{Cell, Journal, Progress, Summary, Sweep, execute, write_results};
use serde::Serialize;

use crate::output::{Table, count, emit_json, emit_text, pairs, progress};

/// Rows of the Pareto front that the text shows.
const SHOWN: usize = 50;

/// Options of `deepram sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Specification of the sweep, a TOML file
    file: PathBuf,
    /// Folder for the journal and the results [default: FILE with the ending .results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of simultaneous simulations [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Compute one point, counted from 0, and print its line of results.jsonl; nothing is written
    #[arg(long, value_name = "N", conflicts_with_all = ["out", "jobs", "json", "list"])]
    point: Option<usize>,
    /// List the points with their values, without simulating
    #[arg(long, conflicts_with_all = ["out", "jobs", "json"])]
    list: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The summary of a sweep as JSON.
#[derive(Serialize)]
struct SummaryJson<'a> {
    version: &'static str,
    sweep: String,
    results: PathBuf,
    points: usize,
    failed: usize,
    /// Points that an earlier run had computed.
    known: usize,
    objectives: &'a [String],
    /// The numbers of the points on the Pareto front.
    front: &'a [usize],
}

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<()> {
    let sweep = Sweep::load(&args.file)?;
    if let Some(point) = args.point {
        return emit_text(&format!("{}\n", sweep.line(point, &sweep.outcome(point)?)?));
    }
    if args.list {
        return list(&sweep);
    }
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("results"));
    let jobs = args
        .jobs
        .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), usize::from);
    let journal = Journal::open(&out)?;
    let bar = progress("simulating");
    let known = std::sync::atomic::AtomicUsize::new(0);
    let done = execute(&sweep, &journal, jobs, &|event| match event {
        Progress::Planned { missing, known: before } => {
            bar.set_length(missing as u64);
            known.store(before, std::sync::atomic::Ordering::Relaxed);
        }
        Progress::Finished => bar.inc(1),
    });
    bar.finish_and_clear();
    done?;
    let summary = write_results(&sweep, &journal, &out)?;
    if !summary.objectives.is_empty() {
        let file = out.join("pareto.html");
        std::fs::write(&file, page::page(&args.file, &sweep, &summary))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    let known = known.into_inner();
    if args.json {
        emit_json(&SummaryJson {
            version: env!("CARGO_PKG_VERSION"),
            sweep: args.file.display().to_string(),
            results: out.clone(),
            points: summary.points,
            failed: summary.failed,
            known,
            objectives: &summary.objectives,
            front: &summary.front,
        })?;
    } else {
        emit_text(&text(&args.file, &out, &sweep, &summary, known))?;
    }
    if let Some((point, error)) = &summary.first_failure {
        anyhow::bail!(
            "{} of {} points failed, the first being point {point}: {error}",
            summary.failed,
            summary.points
        );
    }
    Ok(())
}

/// Prints the points with their values.
fn list(sweep: &Sweep) -> anyhow::Result<()> {
    let names: Vec<String> = sweep.axes().iter().map(|axis| format!("<{}", axis.name())).collect();
    let headings: Vec<&str> = std::iter::once("point").chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headings);
    for point in 0..sweep.len() {
        let values = sweep.values(point)?.into_iter().map(str::to_owned);
        table.row(std::iter::once(point.to_string()).chain(values).collect());
    }
    emit_text(&table.render())
}

/// The summary for a terminal: facts, and the Pareto front.
fn text(file: &Path, out: &Path, sweep: &Sweep, summary: &Summary, known: usize) -> String {
    let axes: Vec<String> =
        sweep.axes().iter().map(|axis| format!("{} ({})", axis.name(), axis.values().len())).collect();
    let mut points = count(summary.points as u64);
    if known > 0 {
        let _ = write!(points, ", {} of them known before", count(known as u64));
    }
    if summary.failed > 0 {
        let _ = write!(points, ", {} failed", count(summary.failed as u64));
    }
    let mut text = pairs(&[
        ("sweep", file.display().to_string()),
        ("axes", axes.join(", ")),
        ("points", points),
        ("results", format!("{}, results.parquet", out.join("results.jsonl").display())),
    ]);
    if summary.objectives.is_empty() {
        return text;
    }
    let (headings, rows) = front(sweep, summary);
    let left = |heading: &String| {
        if sweep.axes().iter().any(|axis| axis.name() == *heading) {
            format!("<{heading}")
        } else {
            heading.clone()
        }
    };
    let headings: Vec<String> = headings.iter().map(left).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let more = rows.len().saturating_sub(SHOWN);
    rows.into_iter().take(SHOWN).for_each(|row| table.row(row));
    let _ =
        write!(text, "\nPareto front, also in {}:\n\n{}", out.join("pareto.html").display(), table.render());
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

/// The Pareto front as a table: point, values of the axes, figures; ordered by the first figure.
fn front(sweep: &Sweep, summary: &Summary) -> (Vec<String>, Vec<Vec<String>>) {
    let mut headings = vec!["point".to_owned()];
    headings.extend(sweep.axes().iter().map(deepram_sim::sweep::Axis::name));
    headings.extend(summary.objectives.iter().cloned());
    let number = |point: usize, name: &str| summary.table.column(name)?.cells.get(point)?.as_ref()?.number();
    let mut points = summary.front.clone();
    if let Some(first) = summary.objectives.first() {
        points.sort_by(|a, b| {
            let of = |point: usize| number(point, first).unwrap_or(f64::NAN);
            of(*a).total_cmp(&of(*b)).then(a.cmp(b))
        });
    }
    let row = |point: &usize| {
        let mut row = vec![point.to_string()];
        row.extend(sweep.values(*point).unwrap_or_default().into_iter().map(str::to_owned));
        row.extend(summary.objectives.iter().map(|name| match number(*point, name) {
            Some(number) => plain(number),
            None => "–".into(),
        }));
        row
    };
    (headings, points.iter().map(row).collect())
}

/// The figures of all points that have both, by the names of their columns: (point, x, y).
fn figures(summary: &Summary, x: &str, y: &str) -> Vec<(usize, f64, f64)> {
    let (Some(x), Some(y)) = (summary.table.column(x), summary.table.column(y)) else { return Vec::new() };
    let number = |cell: &Option<Cell>| cell.as_ref().and_then(Cell::number);
    let pairs = x.cells.iter().zip(&y.cells).enumerate();
    pairs.filter_map(|(point, (x, y))| Some((point, number(x)?, number(y)?))).collect()
}
