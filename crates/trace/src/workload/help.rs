//! Renders the catalogue for a terminal: each workload with its keys and defaults, then the meaning
//! of each key. The reference page of workloads adds the sources.

use super::catalogue::WORKLOADS;
use super::params::{ARRIVAL, COMMON, Param, ValueKind, WorkloadInfo};

/// Maximum width of a line, in columns.
const WIDTH: usize = 98;

/// Groups consecutive workloads with the same keys: YCSB's six, filebench's four, the graphs.
fn families() -> impl Iterator<Item = &'static [WorkloadInfo]> {
    WORKLOADS.chunk_by(|a, b| {
        let names = |w: &WorkloadInfo| w.params.iter().map(|p| p.name);
        names(a).eq(names(b))
    })
}

/// Wraps words into lines of at most [`WIDTH`] columns, each indented by `indent`.
fn wrapped(text: &mut String, words: impl Iterator<Item = String>, indent: usize) {
    let mut column = 0;
    for word in words {
        if column > 0 && column + 1 + word.len() <= WIDTH {
            text.push(' ');
            column += 1 + word.len();
        } else {
            text.push_str(if column > 0 { "\n" } else { "" });
            text.push_str(&" ".repeat(indent));
            column = indent + word.len();
        }
        text.push_str(&word);
    }
    text.push('\n');
}

/// A key with its default; where the defaults of a family differ, all of them in order.
fn with_default(family: &[WorkloadInfo], at: usize) -> String {
    let own = |w: &WorkloadInfo| w.params.get(at).map_or("", |p| p.default);
    let Some(key) = family.first().and_then(|w| w.params.get(at)) else { return String::new() };
    let shared = family.iter().all(|w| own(w) == key.default);
    let default = match (shared, key.default) {
        (true, default) => default.to_string(),
        (false, _) => family.iter().map(own).collect::<Vec<_>>().join("|"),
    };
    format!("{}={default}", key.name)
}

/// The list of workloads as text for `--help`.
pub fn help() -> String {
    let mut text = String::from(
        "Workloads: SPEC is NAME[:key=value,...], such as \
         zipf:theta=0.9,span=4GiB,read=70%,count=1M.\nEach name is followed by its keys and their defaults \
         (a|b|... where the workloads listed together differ).\n",
    );
    for family in families() {
        text.push('\n');
        for w in family {
            text.push_str(&format!("  {:<12} {}\n", w.name, w.description));
        }
        let keys = family.first().map_or(0, |w| w.params.len());
        wrapped(&mut text, (0..keys).map(|at| with_default(family, at)), 15);
    }
    let listed = |params: &[Param]| {
        params.iter().map(|p| format!("{}={}", p.name, p.default)).collect::<Vec<_>>().join(" ")
    };
    text.push_str(&format!("\n  all workloads also have  {}\n", listed(COMMON)));
    text.push_str(&format!("  block workloads have     {}\n", listed(ARRIVAL)));
    text.push_str("\nKeys:\n");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let own = WORKLOADS.iter().flat_map(|w| w.params);
    for p in own.chain(COMMON).chain(ARRIVAL) {
        if !seen.contains(&(p.name, p.description)) {
            seen.push((p.name, p.description));
            let (kind, words) = match p.kind {
                ValueKind::Choice(words) => ("word".to_string(), format!(" ({})", words.join("|"))),
                kind => (kind.to_string(), String::new()),
            };
            text.push_str(&format!("  {:<13} {kind:<11} {}{words}\n", p.name, p.description));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_workload_and_key_once_a_family_on_lines_that_fit() {
        let text = help();
        for w in WORKLOADS {
            assert_eq!(
                text.matches(&format!("\n  {:<12} {}\n", w.name, w.description)).count(),
                1,
                "{}",
                w.name
            );
            for p in w.all_params() {
                assert!(text.contains(&format!("{}=", p.name)), "{}", p.name);
                assert!(
                    text.contains(&format!("\n  {:<13} ", p.name)) && text.contains(p.description),
                    "{}",
                    p.name
                );
            }
        }
        assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
        // A longer help text would not be read.
        assert!(text.lines().count() < 170, "{} lines", text.lines().count());
    }
}
