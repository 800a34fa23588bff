//! The examples of the documentation are run: what a reader copies works, and prints what the page
//! says, but for numbers.
//!
//! A block that begins with ```` ```console run ```` is a session in an empty folder: lines after
//! `$ ` are commands, the others what they print; `...` stands for any lines.

use std::path::{Path, PathBuf};

use crate::common::{deepram, folder};

/// The sessions of a page.
fn sessions(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("```console run\n") {
        let (session, tail) = after.split_once("\n```").expect("a block has an end");
        found.push(session.to_owned());
        rest = tail;
    }
    found
}

/// A line without what differs from run to run: every number, date and identifier is `#`.
fn shape(line: &str) -> String {
    let word = |word: &str| {
        let plain = word.trim_end_matches([',', ';', ':', ')']);
        let varies = plain.contains(|c: char| c.is_ascii_digit())
            || ["µs", "ms", "s", "B", "KiB", "MiB"].contains(&plain);
        if varies { "#".to_owned() } else { word.to_owned() }
    };
    let words: Vec<String> = line.split_whitespace().map(word).collect();
    let mut words = words;
    words.dedup_by(|a, b| a == "#" && b == "#");
    words.join(" ")
}

fn matches(expected: &[&str], printed: &[&str]) -> bool {
    match expected {
        [] => printed.is_empty(),
        ["...", rest @ ..] => (0..=printed.len()).any(|n| matches(rest, &printed[n..])),
        [line, rest @ ..] => {
            printed.first().is_some_and(|p| shape(p) == shape(line)) && matches(rest, &printed[1..])
        }
    }
}

fn run_session(session: &str, folder: &Path) {
    let mut lines = session.lines().peekable();
    while let Some(line) = lines.next() {
        let command =
            line.strip_prefix("$ deepram ").unwrap_or_else(|| panic!("not a deepram command: {line}"));
        let mut expected = Vec::new();
        while let Some(output) = lines.next_if(|l| !l.starts_with("$ ")) {
            expected.push(output);
        }
        let run = deepram(folder, &command.split_whitespace().collect::<Vec<_>>());
        let text = format!("{}{}", run.out, run.err);
        let printed: Vec<&str> = text.lines().collect();
        assert!(
            matches(&expected, &printed),
            "{line}\nthe page says:\n{}\nit prints:\n{text}",
            expected.join("\n")
        );
    }
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("reading the documentation") {
        let path = entry.expect("reading the documentation").path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_session_in_the_documentation_runs_as_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = pages(&root.join("docs"));
    all.push(root.join("README.md"));
    let mut run = 0;
    for page in all {
        for session in sessions(&std::fs::read_to_string(&page).expect("reading a page")) {
            run_session(&session, folder().path());
            run += 1;
        }
    }
    assert!(run > 0, "the README has a session");
}

#[test]
fn a_page_that_says_something_else_is_found_out() {
    assert_eq!(shape("memory   4 MiB, 0 B allocated"), "memory # allocated");
    assert!(matches(&["a 1", "...", "z"], &["a 2", "b", "z"]));
    assert!(!matches(&["a 1", "z"], &["a 2", "b", "z"]));
    assert!(!matches(&["rolled back"], &["rolled over"]));
}

#[test]
fn every_file_that_a_page_links_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = pages(&root.join("docs"));
    all.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    for page in all {
        let text = std::fs::read_to_string(&page).expect("reading a page");
        for (at, _) in text.match_indices("](") {
            let target = &text[at + 2..];
            let target = &target[..target.find(')').expect("a link has an end")];
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let path = page.parent().expect("a page is in a folder").join(file);
            assert!(path.exists(), "{} links to {target}", page.display());
        }
    }
}
