//! Tables of docs/explanation/reproduction.md, made from the newest result file of each paper.
//!
//! A line `<!-- repro claims PAPER EXPERIMENT...: begin -->` begins a table of claims, and the next line
//! `<!-- repro: end -->` ends it. Without experiments the table has all claims of the paper. `reasons` in place of `claims`
//! makes the table of missed claims, `sensitivity` that of the parameters with the largest influence.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use deepram_repro::Report;
use deepram_repro::number::{list_with_unit, plain};
use deepram_repro::report::ClaimResult;

use crate::results::{ResultFile, read_all};

const BEGIN: (&str, &str) = ("<!-- repro ", ": begin -->");
const END: &str = "<!-- repro: end -->";
/// Number of parameters in the table of the sensitivity study, and of values that the table shows for each.
const STRONGEST: usize = 5;
const VALUES: usize = 2;

/// A recorded reproduction.
struct Record {
    /// Name of the result file.
    name: String,
    file: ResultFile,
    report: Report,
}

/// Returns a page with all its tables made anew from the result files in `results`.
///
/// # Errors
/// A file cannot be read, a mark is not understood, or there are no results of a paper.
pub(crate) fn fill(page: &Path, results: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))?;
    let mut lines = text.lines();
    let mut out = String::new();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let mark = line.strip_prefix(BEGIN.0).and_then(|rest| rest.strip_suffix(BEGIN.1));
        let Some(mark) = mark else { continue };
        ensure!(lines.any(|line| line == END), "{}: no {END} after {line}", page.display());
        let table = table(mark, results).with_context(|| format!("{}: {line}", page.display()))?;
        let _ = writeln!(out, "{table}{END}");
    }
    Ok(out)
}

/// The newest record of a paper in a folder of result files.
fn newest(paper: &str, results: &Path) -> anyhow::Result<Record> {
    let bench = format!("repro-{paper}");
    let found = read_all(results)?.into_iter().find(|(_, file)| file.bench == bench);
    let (name, mut file) =
        found.with_context(|| format!("no result file of deepram repro {paper} in {}", results.display()))?;
    let report = Report::from_json(file.results.take()).with_context(|| name.clone())?;
    ensure!(!report.quick, "{name} is of quick runs");
    Ok(Record { name, file, report })
}

fn table(mark: &str, results: &Path) -> anyhow::Result<String> {
    let words: Vec<&str> = mark.split(' ').collect();
    let [kind, paper, experiments @ ..] = &words[..] else { bail!("a mark names a table and a paper") };
    let record = newest(paper, results)?;
    for experiment in experiments {
        let known = record.report.rows.iter().any(|row| row.experiment == *experiment);
        ensure!(known, "{} has no claims of experiment {experiment}", record.name);
    }
    let rows = record.report.rows.iter();
    let rows = rows.filter(|row| experiments.is_empty() || experiments.contains(&row.experiment.as_str()));
    Ok(match *kind {
        "claims" => claims(&record, &rows.collect::<Vec<_>>()),
        "reasons" => reasons(&rows.filter(|row| row.verdict.missed()).collect::<Vec<_>>()),
        "sensitivity" => sensitivity(&record.report)?,
        _ => bail!("{kind} is no table; the tables are claims, reasons and sensitivity"),
    })
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('<', "&lt;").replace('|', "\\|").replace('*', "\\*")
}

fn claims(record: &Record, rows: &[&ClaimResult]) -> String {
    let count = |verdict: &dyn Fn(&ClaimResult) -> bool| rows.iter().filter(|row| verdict(row)).count();
    let met = count(&|row| row.verdict.met());
    let trends = count(&|row| row.verdict == deepram_repro::Verdict::TrendHolds);
    let missed = count(&|row| row.verdict.missed());
    let mut text = format!(
        "Of {} claims {met} are met: {} inside, {trends} trends. {missed} are missed.",
        rows.len(),
        met - trends
    );
    if met + missed < rows.len() {
        let _ = write!(text, " {} have no verdict.", rows.len() - met - missed);
    }
    let commit = record.file.commit.as_ref().map_or(String::new(), |commit| format!(" at commit {commit}"));
    let _ = writeln!(
        text,
        "\n[Results](../results/{}) of {}{commit}, deepram {}.\n",
        record.name, record.file.date, record.file.version
    );
    text += "| claim | class | paper | ours | verdict |\n|---|---|---|---|---|\n";
    for row in rows {
        let letters: String = row.letters().iter().map(|letter| format!(" {letter}")).collect();
        let verdict = row.verdict_words();
        let verdict = if row.verdict.missed() { format!("**{verdict}**") } else { verdict };
        let class = row.class.name();
        let (paper, ours) = (cell(&row.paper), row.ours_words());
        let _ = writeln!(text, "| `{}` | {class}{letters} | {paper} | {ours} | {verdict} |", row.id);
    }
    text
}

fn reasons(missed: &[&ClaimResult]) -> String {
    let mut text =
        "| claim | reason | nearest parameter of the study: ours, change, then |\n|---|---|---|\n".to_owned();
    for row in missed {
        let reason = row.reason_text().unwrap_or_default();
        let nearest = row.driver.as_ref().map_or("–".to_owned(), |driver| {
            format!(
                "{}, {} (`{}`: {}), {} ({})",
                list_with_unit(&driver.ours_base, &row.unit),
                driver.value,
                driver.parameter,
                driver.base,
                list_with_unit(&driver.ours, &row.unit),
                driver.verdict.words()
            )
        });
        let _ = writeln!(text, "| `{}` | {} | {} |", row.id, cell(&reason), cell(&nearest));
    }
    text
}

/// The parameters with the largest influence, and the values that each moves most.
fn sensitivity(report: &Report) -> anyhow::Result<String> {
    let study = report.sensitivity.as_ref().context("the sensitivity study was not run")?;
    let mut text = "| parameter | low, base, high | what it moves |\n|---|---|---|\n".to_owned();
    for row in study.rows.iter().take(STRONGEST) {
        let parameter = &row.parameter;
        let mut moved: Vec<usize> = (0..study.headlines.len()).filter(|&at| row.effects[at] > 0.0).collect();
        moved.sort_by(|&one, &other| row.effects[other].total_cmp(&row.effects[one]));
        let moved: Vec<String> = moved
            .into_iter()
            .take(VALUES)
            .map(|at| {
                let headline = &study.headlines[at];
                let values = [&row.low.metrics, &study.base, &row.high.metrics].map(|metrics| {
                    metrics.0.get(&headline.metric).map_or("–".to_owned(), |&value| plain(value))
                });
                format!("{}: {}", headline.title, values.join(", "))
            })
            .collect();
        let _ = writeln!(
            text,
            "| {} (`{}`) | {}, {}, {} | {} |",
            cell(&parameter.description),
            parameter.key,
            parameter.low,
            parameter.base,
            parameter.high,
            cell(&moved.join("; "))
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use deepram_repro::reason::disagreements;
    use deepram_repro::{Settings, paper};

    use super::*;

    fn docs() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    #[test]
    fn the_recorded_results_and_the_reasons_beside_the_claims_agree() {
        let settings = Settings { quick: true, seed: 1 };
        for name in ["nvmm", "flatflash"] {
            let record = newest(name, &docs().join("results")).unwrap();
            // Results recorded by hand are older than reasons.
            if record.file.recorded {
                continue;
            }
            let wrong = disagreements(&paper(name, &settings).unwrap().claims, &record.report);
            assert_eq!(wrong, Vec::<String>::new(), "{}", record.name);
        }
    }

    /// Fills a page in a folder with one small result file.
    fn filled(page: &str) -> anyhow::Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let row = |id: &str, experiment: &str, value: f64, verdict: &str| {
            serde_json::json!({
                "id": id, "source": "", "statement": "", "paper": "a|b", "expected": { "value": 2.0 }, "unit": "µs",
                "tolerance": { "relative": 0.2 }, "tolerance_words": "±20 %", "class": "H", "comparison": "magnitude",
                "hardware_dependent": true, "draft_only": false, "experiment": experiment, "metrics": {},
                "ours": value, "verdict": verdict, "difference": null, "why": "", "note": "",
                "reason": { "kind": "cannot_be_had", "text": "Nobody has it." },
                "driver": {
                    "parameter": "key", "description": "a key", "base": "1", "value": "2", "ours_base": [3.0],
                    "ours": [2.0], "verdict": "inside", "difference": 0.0,
                },
            })
        };
        let end =
            |value: &str, metric: f64| serde_json::json!({ "value": value, "metrics": { "m": metric } });
        let results = serde_json::json!({
            "paper": "small", "title": "", "about": "", "version": "1", "quick": false, "seed": 1, "summary": {},
            "rows": [row("near", "sums", 2.1, "inside"), row("far", "sums", 3.0, "outside"),
                row("else", "others", 2.0, "inside")],
            "sensitivity": {
                "headlines": [{ "metric": "m", "title": "The sum" }],
                "base": { "m": 3.0 },
                "rows": [{
                    "parameter": { "key": "key", "description": "a key", "low": "1", "base": "1", "high": "2",
                        "why": "" },
                    "low": end("1", 3.0), "high": end("2", 2.0), "effects": [0.5], "overall": 0.5,
                }],
            },
        });
        for (paper, date) in [("small", "2026-11-24"), ("other", "2026-11-25")] {
            let file = serde_json::json!({
                "bench": format!("repro-{paper}"), "machine": {}, "commit": "abcdef0", "command": "", "load": null,
                "date": date, "version": "1", "results": results,
            });
            fs::write(folder.path().join(format!("{paper}.json")), file.to_string()).unwrap();
        }
        let path = folder.path().join("page.md");
        fs::write(&path, page).unwrap();
        fill(&path, folder.path())
    }

    #[test]
    fn tables_are_made_between_their_marks_and_only_there() {
        let page = "before\n<!-- repro claims small sums: begin -->\nold\n<!-- repro: end -->\nafter\n";
        let expected = "\
before
<!-- repro claims small sums: begin -->
Of 2 claims 1 are met: 1 inside, 0 trends. 1 are missed.
[Results](../results/small.json) of 2026-11-24 at commit abcdef0, deepram 1.

| claim | class | paper | ours | verdict |
|---|---|---|---|---|
| `near` | M H | a\\|b | 2.1 µs | inside |
| `far` | M H | a\\|b | 3 µs | **outside** |
<!-- repro: end -->
after
";
        assert_eq!(filled(page).unwrap(), expected);
        assert_eq!(filled(expected).unwrap(), expected);
        let whole = filled("<!-- repro claims small: begin -->\n<!-- repro: end -->\n").unwrap();
        assert!(whole.contains("Of 3 claims 2 are met") && whole.contains("| `else` |"), "{whole}");
        let reasons = filled("<!-- repro reasons small: begin -->\n<!-- repro: end -->\n").unwrap();
        let line = "| `far` | cannot be had: Nobody has it. | 3 µs, 2 (`key`: 1), 2 µs (inside) |\n";
        assert!(reasons.contains(line) && !reasons.contains("near`"), "{reasons}");
        let study = filled("<!-- repro sensitivity small: begin -->\n<!-- repro: end -->\n").unwrap();
        assert!(study.contains("| a key (`key`) | 1, 1, 2 | The sum: 3, 3, 2 |\n"), "{study}");
    }

    #[test]
    fn a_mark_that_is_not_understood_is_an_error_that_says_why() {
        for (mark, said) in [
            ("claims", "a table and a paper"),
            ("charts small", "charts is no table"),
            ("claims large", "no result file of deepram repro large"),
            ("claims small nothing", "no claims of experiment nothing"),
        ] {
            let error = filled(&format!("<!-- repro {mark}: begin -->\n<!-- repro: end -->\n")).unwrap_err();
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
        let error = filled("<!-- repro claims small: begin -->\ntext\n").unwrap_err().to_string();
        assert!(error.contains("no <!-- repro: end -->"), "{error}");
    }
}
