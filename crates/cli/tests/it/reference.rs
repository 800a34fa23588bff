//! The reference in docs/ agrees with the code: generated pages are up to date, every file that a page names exists, every
//! command in the table of the papers works, and every statistic is listed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use deepram_pager::PagerStats;
use deepram_pool::Stats;
use serde_json::Value;

use crate::common::{deepram, folder};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect("reading a page")
}

/// Returns the files below a folder that have one of these extensions.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("reading a folder") {
        let path = entry.expect("reading a folder").path();
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
            found.push(path);
        }
    }
    found
}

/// Returns the texts between backticks outside of fenced blocks.
fn quoted(page: &str) -> Vec<&str> {
    let outside = page.split("\n```").step_by(2);
    outside.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

/// Compares a generated page with the committed page; with UPDATE_DOCS=1 writes the page instead.
fn is_up_to_date(generator: &str, file: &str) {
    let docs = root().join("docs");
    let arguments = ["reference", generator, "--docs", docs.to_str().expect("the path is text")];
    let generated = deepram(folder().path(), &arguments).good();
    let path = docs.join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).expect("writing the page");
    }
    let committed = std::fs::read_to_string(&path).expect("reading the page");
    assert!(
        committed == generated,
        "docs/{file} is out of date: UPDATE_DOCS=1 cargo test -p deepram reference"
    );
}

#[test]
fn the_page_of_the_command_line_is_what_the_command_says() {
    is_up_to_date("command-line", "reference/command-line.md");
}

#[test]
fn the_page_of_presets_is_what_the_registry_says() {
    is_up_to_date("presets", "reference/presets.md");
}

#[test]
fn the_tables_of_claims_are_those_of_the_newest_results() {
    is_up_to_date("reproduction", "explanation/reproduction.md");
}

#[test]
fn every_source_file_that_the_documentation_names_exists() {
    let sources: Vec<String> = files(&root().join("crates"), &["rs", "toml"])
        .iter()
        .map(|path| format!("/{}", path.strip_prefix(root()).expect("below the root").display()))
        .collect();
    let mut missing = Vec::new();
    for page in files(&root().join("docs"), &["md"]) {
        let text = std::fs::read_to_string(&page).expect("reading a page");
        for name in quoted(&text) {
            let is_path = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
            let is_source = name.ends_with(".rs") || (name.ends_with(".toml") && name.contains('/'));
            let is_crate = name.starts_with("crates/") && !name.ends_with(".rs");
            if is_path && is_source && !sources.iter().any(|path| path.ends_with(&format!("/{name}")))
                || is_path && is_crate && !root().join(name).exists()
            {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_type_and_function_that_the_documentation_names_exists() {
    let mut words = BTreeSet::new();
    for path in files(&root().join("crates"), &["rs"]) {
        let text = std::fs::read_to_string(&path).expect("reading a source");
        words.extend(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).map(str::to_owned));
    }
    let mut missing = Vec::new();
    for page in files(&root().join("docs"), &["md"]) {
        let text = std::fs::read_to_string(&page).expect("reading a page");
        for name in quoted(&text) {
            let path = name.split('(').next().unwrap_or_default();
            let is_item =
                path.contains("::") && path.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
            if is_item && !path.split("::").all(|word| words.contains(word)) {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Returns the rows of the tables of papers.md: mechanism, file, command, status. A table of figures has no section.
fn papers() -> Vec<[String; 4]> {
    let text = page("reference/papers.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| name here"));
    let cells = rows.map(|line| {
        let line =
            line.strip_prefix('|').and_then(|line| line.strip_suffix('|')).expect("a row ends with a bar");
        line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    });
    cells
        .filter(|cells| cells.len() > 2 && cells[0] != "mechanism" && !cells[0].starts_with("figure,"))
        .map(|cells| {
            let [.., file, command, status] = &cells[..] else { panic!("a short row: {cells:?}") };
            [cells[0].clone(), file.clone(), command.clone(), status.clone()]
        })
        .collect()
}

#[test]
fn a_mechanism_that_works_has_a_file_and_a_command_or_says_why_not() {
    for [mechanism, file, command, status] in papers() {
        let known = ["works", "partly", "planned", "no computation"];
        assert!(known.iter().any(|word| status.starts_with(word)), "{mechanism}: {status}");
        if status.starts_with("works") {
            assert!(!file.is_empty(), "{mechanism} has no file");
            assert!(!command.is_empty() || status == "works as a formula", "{mechanism} has no command");
        }
    }
}

#[test]
fn mechanisms_of_the_papers_are_found_by_name() {
    let all: Vec<String> = papers().into_iter().map(|row| row[0].to_lowercase()).collect();
    for name in [
        "page-table entry",
        "version chain",
        "bit vector",
        "longest chains",
        "rollback",
        "sync",
        "worn pages",
        "prefetch",
        "dram cache",
        "ssd-cache",
        "look-aside buffer",
        "algorithm 1: adaptive promotion",
        "write-verify read",
        "create_pmem_region",
        "per-transaction logging",
        "lazy remap",
        "read-modify-write",
        "fcht",
        "fpst",
        "fbst",
        "wear-aware replacement",
        "trigger 1",
        "bch",
        "l_read",
        "selective flushing",
        "m_flush",
        "algorithm 2: hotness",
        "algorithm 3: coolness",
        "algorithm 4",
        "endurance ratio",
        "stack distance",
    ] {
        assert!(all.iter().any(|mechanism| mechanism.contains(name)), "papers.md lacks {name}");
    }
}

/// Runs the command of a row on a small workload. Commands that measure or take minutes are only parsed.
fn works(folder: &Path, command: &str) {
    let mut words: Vec<&str> = command.split_whitespace().skip(1).collect();
    match words[..] {
        // The processor takes its threads' references from the workload, so the workload is made short.
        ["sim", ..] if words.contains(&"--processor") => {}
        ["sim", ..] => {
            if let Some(at) = words.iter().position(|word| *word == "--requests") {
                words.drain(at..at + 2);
            }
            words.extend(["--requests", "100"]);
        }
        ["repro", paper, "--only", id] => {
            let known = deepram(folder, &["repro", paper, "--only", "unknown"]).error(2);
            let (_, known) = known.split_once("expected one of: ").expect("the error lists what is known");
            assert!(known.trim().split(", ").any(|name| name == id), "{paper} has no {id}");
            return;
        }
        ["demo" | "bench", ..] => words.push("--help"),
        ["pool" | "media" | "trace", ..] => {}
        _ => panic!("no rule for {command}"),
    }
    let run = deepram(folder, &words);
    assert_eq!(run.status, 0, "{command}: {run:?}");
}

#[test]
fn every_command_in_the_table_of_the_papers_works() {
    let folder = folder();
    let commands: Vec<String> = papers()
        .into_iter()
        .map(|row| row[2].trim_matches('`').to_owned())
        .filter(|command| !command.is_empty())
        .collect();
    let mut done = BTreeSet::new();
    for command in commands.iter().filter(|command| done.insert((*command).clone())) {
        works(folder.path(), command);
    }
    assert!(done.len() > 60, "{}", done.len());
}

/// Returns the names in the first cells of the tables of a section.
fn listed(section: &str) -> BTreeSet<String> {
    let text = page("reference/metrics.md");
    let (_, after) = text.split_once(&format!("## {section}\n")).expect("the section is there");
    let rows = after.split("\n## ").next().unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    let first = rows.map(|row| row.trim_matches('|').split(" | ").next().unwrap_or_default().to_owned());
    first.flat_map(|cell| quoted(&cell).into_iter().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn every_statistic_of_a_run_is_listed() {
    let listed = listed("Statistics of a run");
    for (name, ..) in PagerStats::default().entries() {
        assert!(listed.contains(name), "metrics.md lacks {name}");
    }
}

#[test]
fn every_statistic_of_a_pool_is_listed() {
    let names: BTreeSet<String> =
        Stats::default().entries().iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(listed("Statistics of a pool"), names);
}

/// Returns the keys of a result, without the configuration. Of a list it takes the keys of the first element.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| *key != "config" && *key != "options") {
                found.insert(key.clone());
                keys(value, &format!("{path}.{key}"), found);
            }
        }
        Value::Array(values) => values.first().into_iter().for_each(|first| keys(first, path, found)),
        _ => {}
    }
}

#[test]
fn every_key_of_a_simulation_is_listed() {
    let listed = listed("Results of a simulation");
    let gups = "gups:table=8MiB,count=500";
    for arguments in [
        "ssd --workload uniform:count=500,read=0.5,span=64MiB",
        &format!("dram --workload {gups}"),
        &format!("nvmm --workload {gups}"),
        &format!("ssd-paging --workload {gups}"),
        &format!("flatflash --workload {gups}"),
        &format!("traditional-stack --workload {gups}"),
        "flatflash --workload tpcb:branches=1,grain=row,log=16MiB --clients 2 --requests 100",
        &format!("pool --preset virtual-ssd --workload {gups}"),
        &format!("pool --swap --preset virtual-ssd --workload {gups}"),
        &format!("nvmm --processor nvmm-host --workload {gups}"),
        &format!("dram --workload {gups} --interval 10us"),
    ] {
        let words: Vec<&str> =
            ["sim"].into_iter().chain(arguments.split_whitespace()).chain(["--json"]).collect();
        let mut found = BTreeSet::new();
        keys(&deepram(folder().path(), &words).json(), "", &mut found);
        // The phases of the operating system share one row of the table.
        let phase = |key: &str| key.starts_with("software_") && listed.contains("software_PHASE_ns");
        let missing: Vec<&String> =
            found.iter().filter(|key| !listed.contains(*key) && !phase(key)).collect();
        assert!(missing.is_empty(), "{arguments}: metrics.md lacks {missing:?}");
    }
}
