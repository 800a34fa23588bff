//! `deepram repro PAPER --compare FILE`: the claims that differ from earlier results.

use std::fs;
use std::path::Path;

use anyhow::Context;
use deepram_repro::Report;
use deepram_repro::compare::{Comparison, State, comparable, compare};
use serde_json::Value;

use crate::Usage;
use crate::output::Table;
use crate::results::ResultFile;

/// Reads a results.json, or a result file of `deepram repro --results`.
pub(super) fn read(file: &Path) -> anyhow::Result<Report> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let parse = || {
        let value: Value = serde_json::from_str(&text)?;
        if value.get("bench").is_some() {
            return Report::from_json(serde_json::from_value::<ResultFile>(value)?.results);
        }
        Report::from_json(value)
    };
    parse().with_context(|| {
        format!("{}: neither a results.json nor a result file of deepram repro PAPER", file.display())
    })
}

/// Reads earlier results, and checks that results of this paper and size can be compared with them.
pub(super) fn earlier(file: &Path, paper: &str, quick: bool) -> anyhow::Result<Report> {
    let report = read(file)?;
    comparable(&report, paper, quick).map_err(|why| Usage(format!("--compare {}: {why}", file.display())))?;
    Ok(report)
}

/// The comparison as text.
pub(super) fn text(before: &Report, after: &Report) -> anyhow::Result<String> {
    let Comparison { changes, same, not_run } = compare(before, after).map_err(anyhow::Error::msg)?;
    let mut table = Table::new(&["<claim", "before", "<", "after", "<", "<why"]);
    let cells = |state: &Option<State>| match state {
        Some(state) => [state.ours.clone(), format!("{} {}", state.verdict.sign(), state.verdict.words())],
        None => ["–".into(), String::new()],
    };
    let count = changes.len();
    for change in changes {
        let [before, verdict_before] = cells(&change.before);
        let [after, verdict_after] = cells(&change.after);
        table.row(vec![change.id, before, verdict_before, after, verdict_after, change.why]);
    }
    let mut text = if count == 0 { String::new() } else { table.render() + "\n" };
    text.push_str(&format!("{count} of {} claims differ\n", count + same));
    if !not_run.is_empty() {
        text.push_str(&format!("not run before or now: {}\n", not_run.join(", ")));
    }
    Ok(text)
}
