//! docs/workloads.md has every workload and every key, as the catalogue has them.

use deepram_trace::workload::{ARRIVAL, COMMON, Param, WORKLOADS, WorkloadInfo};

/// A cell of a table: a bar would end it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn rows(params: &[Param]) -> String {
    let mut text =
        String::from("| key | takes | default | meaning | default's source |\n|---|---|---|---|---|\n");
    for p in params {
        let default = if p.default.is_empty() { String::new() } else { format!("`{}`", p.default) };
        let kind = cell(&p.kind.to_string());
        text += &format!("| `{}` | {kind} | {default} | {} | {} |\n", p.name, cell(p.what), cell(p.source));
    }
    text
}

/// The keys that all have, then what the page says of each workload, in the catalogue's order; a family whose members share all keys
/// and defaults has one table, after its last member.
fn tables() -> Vec<String> {
    let mut found = vec![rows(COMMON), rows(ARRIVAL)];
    let same = |a: &WorkloadInfo, b: &WorkloadInfo| rows(a.params) == rows(b.params);
    for family in WORKLOADS.chunk_by(same) {
        for w in family {
            found.push(format!("- `{}`: {}. Rule: {}.\n", w.name, w.what, w.source));
        }
        found.push(rows(family[0].params));
    }
    found
}

#[test]
fn the_page_and_the_catalogue_list_the_same_workloads_and_keys() {
    let page = include_str!("../../../../docs/workloads.md");
    let mut rest = page;
    for table in tables() {
        let at = rest
            .find(&table)
            .unwrap_or_else(|| panic!("docs/workloads.md lacks, or has elsewhere:\n{table}"));
        rest = &rest[at + table.len()..];
    }
    // And nothing beside: no workload and no key that there is not.
    let own = |line: &&str| line.starts_with("- `") || line.starts_with("| `");
    let expected: usize = tables().iter().map(|t| t.lines().filter(own).count()).sum();
    assert_eq!(page.lines().filter(own).count(), expected);
}
