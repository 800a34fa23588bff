//! `deepram bench performance`, which `make performance` runs: makes docs/performance.md and its charts from result files.
//!
//! The page has one table for each question, with the same columns: goal, ours, peers, ratio, the device's own rate. A table
//! uses the newest result file that answers its question. The page is a function of the result files alone, so a test compares
//! the committed page with the committed results.

mod charts;
mod goals;
mod memory;
mod page;
mod processor;
mod sections;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::output::emit_text;
use crate::results::read_all;

/// Options of `deepram bench performance`.
#[derive(Debug, Args)]
pub(crate) struct PerformanceArgs {
    /// Folder of the result files; the charts are written there
    #[arg(long, default_value = "docs/results", value_name = "DIR")]
    results: PathBuf,
    /// The page
    #[arg(long, default_value = "docs/performance.md", value_name = "FILE")]
    page: PathBuf,
    /// Folder for the charts, if not that of the result files
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
}

pub(super) fn run(args: &PerformanceArgs) -> anyhow::Result<()> {
    let files = read_all(&args.results)?;
    let sections = sections::all(&files);
    let charts = args.charts.as_ref().unwrap_or(&args.results);
    let mut written = vec![args.page.clone()];
    std::fs::write(&args.page, page::render(&sections)).with_context(|| args.page.display().to_string())?;
    for chart in sections.iter().filter_map(|section| section.chart.as_ref()) {
        let path = charts.join(chart.file_name());
        std::fs::write(&path, charts::svg(chart)).with_context(|| path.display().to_string())?;
        written.push(path);
    }
    let lines: Vec<_> = written.iter().map(|path| format!("{}\n", path.display())).collect();
    emit_text(&lines.concat())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::goals::GOALS;
    use super::*;

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    #[test]
    fn the_committed_page_and_charts_are_made_from_the_committed_results() {
        let folder = tempfile::tempdir().unwrap();
        let args = PerformanceArgs {
            results: docs().join("results"),
            page: folder.path().join("performance.md"),
            charts: Some(folder.path().to_path_buf()),
        };
        run(&args).unwrap();
        let committed = |name: &str| match name {
            "performance.md" => docs().join(name),
            name => docs().join("results").join(name),
        };
        let mut made = 0;
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
            let equal = read(&entry.path()) == read(&committed(&name));
            assert!(equal, "{name} is not what `make performance` makes; run it and commit the result");
            made += 1;
        }
        let charts = std::fs::read_dir(docs().join("results")).unwrap().flatten();
        let charts = charts.filter(|entry| entry.path().extension().is_some_and(|end| end == "svg"));
        assert_eq!(made, 1 + charts.count(), "no chart of an earlier page is left");
    }

    #[test]
    fn every_goal_is_that_of_a_row_of_the_committed_page() {
        let files = read_all(&docs().join("results")).unwrap();
        let sections = sections::all(&files);
        let rows = || sections.iter().flat_map(|section| &section.rows);
        for goal in GOALS {
            let row = rows().find(|row| row.goal.is_some_and(|found| found.id == goal.id));
            let row = row.unwrap_or_else(|| panic!("no row has the goal {}", goal.id));
            assert!(page::reached(row).is_some(), "{}: {row:?}", goal.id);
        }
        assert!(rows().all(|row| row.goal.is_none() || page::reached(row).is_some()), "a value is missing");
    }
}
