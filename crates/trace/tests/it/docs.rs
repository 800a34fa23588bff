//! docs/reference/workloads.md lists every workload and key of the catalogue, docs/reference/trace-formats.md every format.
//! `UPDATE_DOCS=1` writes the tables of both pages anew.

use std::path::{Path, PathBuf};

use deepram_trace::format::FORMATS;
use deepram_trace::workload::{ARRIVAL, COMMON, Param, WORKLOADS, WorkloadInfo};

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name)
}

/// Escapes the text of a table cell: a bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const KEYS: &str = "| key | takes | default | meaning | default's source |\n|---|---|---|---|---|\n";

fn rows(params: &[Param]) -> String {
    let mut text = KEYS.to_owned();
    for p in params {
        let default = if p.default.is_empty() { String::new() } else { format!("`{}`", p.default) };
        let kind = cell(&p.kind.to_string());
        text += &format!(
            "| `{}` | {kind} | {default} | {} | {} |\n",
            p.name,
            cell(p.description),
            cell(p.source)
        );
    }
    text
}

/// Returns the tables of the page: the keys common to all workloads, then the item and keys of each workload, in the catalogue's
/// order. A family whose members share all keys and defaults has one table, after its last member.
fn tables() -> Vec<String> {
    let mut found = vec![rows(COMMON), rows(ARRIVAL)];
    let same = |a: &WorkloadInfo, b: &WorkloadInfo| rows(a.params) == rows(b.params);
    for family in WORKLOADS.chunk_by(same) {
        for w in family {
            found.push(format!("- `{}`: {}. Rule: {}.\n", w.name, w.description, w.source));
        }
        found.push(rows(family[0].params));
    }
    found
}

fn formats() -> String {
    let mut text =
        "| name | other names | written | address unit | record | source |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for f in FORMATS {
        let aliases: Vec<String> = f.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let written = if f.writable { "yes" } else { "no" };
        let unit = f.unit_bytes.map_or_else(String::new, |bytes| format!("{bytes} B"));
        text += &format!(
            "| `{}` | {} | {written} | {unit} | {} | {} |\n",
            f.name,
            aliases.join(", "),
            cell(f.description),
            cell(f.source)
        );
    }
    text
}

/// Returns the page with its tables that begin with `heads`, and its items that begin with "- `" before such tables, replaced by
/// `blocks` in their order.
fn with_blocks(page: &str, heads: &[&str], blocks: &[String]) -> String {
    let mut blocks = blocks.iter();
    let mut new = String::new();
    let mut lines = page.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        if heads.iter().any(|head| head.starts_with(line)) {
            while lines.next_if(|line| line.starts_with('|')).is_some() {}
        } else if !line.starts_with("- `") {
            new += line;
            continue;
        }
        new += blocks.next().expect("the page has no more tables and items than the code");
    }
    assert_eq!(blocks.next(), None, "the page lacks a table or an item: add one with its head alone");
    new
}

fn update(name: &str, heads: &[&str], blocks: &[String]) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let old = std::fs::read_to_string(page(name)).expect("reading the page");
        std::fs::write(page(name), with_blocks(&old, heads, blocks)).expect("writing the page");
    }
}

#[test]
fn the_page_and_the_catalogue_list_the_same_workloads_and_keys() {
    update("workloads.md", &[KEYS], &tables());
    let page = std::fs::read_to_string(page("workloads.md")).expect("reading the page");
    let mut rest = &page[..];
    for table in tables() {
        let at = rest.find(&table).unwrap_or_else(|| {
            panic!("docs/reference/workloads.md lacks, or has elsewhere (UPDATE_DOCS=1 writes it):\n{table}")
        });
        rest = &rest[at + table.len()..];
    }
    // The page lists no unknown workload and no unknown key.
    let own = |line: &&str| line.starts_with("- `") || line.starts_with("| `");
    let expected: usize = tables().iter().map(|t| t.lines().filter(own).count()).sum();
    assert_eq!(page.lines().filter(own).count(), expected);
}

#[test]
fn the_page_and_the_code_list_the_same_trace_formats() {
    let page = page("trace-formats.md");
    let text = std::fs::read_to_string(&page).expect("reading the page");
    let table = formats();
    let head = table.lines().next().expect("a table has a head");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let (before, after) = text.split_once(head).expect("the page has the table");
        let after: String =
            after[1..].split_inclusive('\n').skip_while(|line| line.starts_with('|')).collect();
        std::fs::write(&page, format!("{before}{table}{after}")).expect("writing the page");
    }
    let text = std::fs::read_to_string(&page).expect("reading the page");
    assert!(
        text.contains(&format!("{table}\n")),
        "docs/reference/trace-formats.md lacks (UPDATE_DOCS=1 writes it):\n{table}"
    );
}
