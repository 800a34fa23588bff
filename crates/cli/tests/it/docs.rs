//! Runs the commands in the documentation: each command that a reader copies works, and prints the page's output, up to numbers.
//!
//! The blocks of a page run from top to bottom in one folder, which is empty at the start:
//!
//! - ```` ```console run ```` is a session. `$ ` starts a command of the shell, which a final `\` continues on the next line. The
//!   lines up to the next command are its output; `...` stands for any number of lines, and at the end of a line for the rest of
//!   it. Every command must succeed.
//! - ```` ```console run fails ````: every command must fail.
//! - ```` ```console run paged ````: the commands need `deepram run`; skipped where memory cannot be paged.
//! - ```` ```console run installed ````: the commands compile C and C++ against an installed deepram; skipped without compilers.
//! - ```` ```console run mounted ````: the commands mount a pool and run sqlite3; skipped where that is not possible.
//! - ```` ```LANGUAGE file=NAME ```` is a file in that folder.
//!
//! `cargo run --release -p deepram-pool --example NAME -- ...` runs the example as the tests have compiled it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::folder;
use crate::common::paged::{binaries, within};

/// Time limit of a command: a command that takes longer is killed, and fails.
const LONGEST_SECONDS: u32 = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns every page: those in `docs`, and those at the root.
fn pages() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("reading the documentation") {
            let path = entry.expect("reading the documentation").path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    let mut found: Vec<_> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/programs/README.md"]
        .map(|name| root().join(name))
        .into();
    below(&root().join("docs"), &mut found);
    found.sort();
    found
}

/// A fenced block: the words after its fence, and its lines.
#[derive(Debug, PartialEq)]
struct Block<'a> {
    info: Vec<&'a str>,
    lines: Vec<&'a str>,
}

/// Splits a page into its fenced blocks and the lines outside of them.
fn split(page: &str) -> (Vec<Block<'_>>, Vec<&str>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            prose.push(line);
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let mut block = Block { info: info.split_whitespace().collect(), lines: Vec::new() };
        loop {
            let line = lines.next().expect("a fenced block ends");
            if line.trim() == "```" {
                break;
            }
            block.lines.push(line.get(indent..).unwrap_or_default());
        }
        blocks.push(block);
    }
    (blocks, prose)
}

/// Returns the commands of a session, each with the lines that the page shows as its output.
fn commands<'a>(lines: &[&'a str]) -> Vec<(String, Vec<&'a str>)> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        if let Some(first) = line.strip_prefix("$ ") {
            let mut command = first.to_owned();
            while command.ends_with('\\') {
                command.push('\n');
                command.push_str(lines.next().expect("a continued command goes on"));
            }
            found.push((command, Vec::new()));
        } else {
            found.last_mut().unwrap_or_else(|| panic!("output before any command: {line}")).1.push(line);
        }
    }
    found
}

/// Removes the differences between runs from a line: every number, date and identifier becomes `#`.
fn shape(line: &str) -> String {
    const UNITS: [&str; 12] = ["ns", "us", "µs", "ms", "s", "B", "KiB", "MiB", "GiB", "/s", "k/s", "M/s"];
    let word = |word: &str| {
        let plain = word.trim_end_matches([',', ';', ':', ')']);
        let varies = plain.contains(|c: char| c.is_ascii_digit()) || UNITS.contains(&plain);
        if varies { "#".to_owned() } else { word.to_owned() }
    };
    let mut words: Vec<String> = line.split_whitespace().map(word).collect();
    words.dedup_by(|a, b| a == "#" && b == "#");
    words.join(" ")
}

fn line_matches(expected: &str, printed: &str) -> bool {
    match expected.strip_suffix(" ...") {
        Some(start) => shape(printed).starts_with(&shape(start)),
        None => shape(printed) == shape(expected),
    }
}

fn matches(expected: &[&str], printed: &[&str]) -> bool {
    match expected {
        [] => printed.is_empty(),
        ["...", rest @ ..] => (0..=printed.len()).any(|n| matches(rest, &printed[n..])),
        [line, rest @ ..] => {
            printed.first().is_some_and(|p| line_matches(line, p)) && matches(rest, &printed[1..])
        }
    }
}

/// Returns the command as the tests run it: an example directly, any other command unchanged.
fn runnable(command: &str) -> String {
    match command.strip_prefix("cargo run --release -p deepram-pool --example ") {
        Some(rest) => {
            format!("{}/examples/{}", binaries().display(), rest.replacen(" -- ", " ", 1))
        }
        None => command.to_owned(),
    }
}

/// Installs deepram as `make install` does. Returns its prefix, or None and prints the reason where a tool is missing.
fn installed() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let prefix = PREFIX.get_or_init(|| {
        for tool in ["cc", "c++", "pkg-config", "strip"] {
            if Command::new(tool).arg("--version").output().is_err() {
                eprintln!("skipped: there is no {tool}");
                return None;
            }
        }
        let binaries = binaries();
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let mut layout = Command::new(root().join(".ci/layout"));
        layout.arg(binaries).arg(&prefix);
        assert!(layout.status().expect(".ci/layout runs").success(), "deepram cannot be installed");
        Some(prefix)
    });
    prefix.as_deref()
}

/// The environment in which an installed deepram is found.
fn environment() -> Vec<(&'static str, PathBuf)> {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
    vec![
        ("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
        ("LD_LIBRARY_PATH", prefix.join("lib")),
        ("CMAKE_PREFIX_PATH", prefix),
    ]
}

/// Runs a shell command. Returns whether it succeeded, and its standard output and error, interleaved as printed.
fn shell(folder: &Path, command: &str) -> (bool, String) {
    let bin = Path::new(env!("CARGO_BIN_EXE_deepram")).parent().expect("the command lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = within(LONGEST_SECONDS, "bash")
        .args(["-c", &format!("exec 2>&1\n{}", runnable(command))])
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("LC_ALL", "C")
        .envs(environment())
        .current_dir(folder)
        .output()
        .expect("bash runs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a session, and returns how many commands it has.
fn run_session(folder: &Path, block: &Block<'_>, name: &str) -> usize {
    let must_fail = block.info.contains(&"fails");
    let session = commands(&block.lines);
    for (command, expected) in &session {
        let (succeeded, text) = shell(folder, command);
        let printed: Vec<&str> = text.lines().collect();
        assert!(succeeded != must_fail, "{name}: $ {command}\nsucceeded: {succeeded}\n{text}");
        assert!(
            matches(expected, &printed),
            "{name}: $ {command}\nthe page says:\n{}\nit prints:\n{text}",
            expected.join("\n")
        );
    }
    session.len()
}

/// Runs the blocks of a page, and returns how many commands ran.
fn run_page(page: &str, name: &str) -> usize {
    let folder = folder();
    let mut run = 0;
    for block in split(page).0 {
        if let Some(file) = block.info.iter().find_map(|word| word.strip_prefix("file=")) {
            std::fs::write(folder.path().join(file), block.lines.join("\n") + "\n").expect("writing a file");
        }
        if !block.info.starts_with(&["console", "run"]) {
            continue;
        }
        if block.info.contains(&"paged") {
            if let Err(error) = deepram_pager::available() {
                eprintln!("{name}: a session is skipped: memory cannot be paged here ({error})");
                continue;
            }
            binaries();
        }
        if block.info.contains(&"installed") && installed().is_none() {
            continue;
        }
        if block.info.contains(&"mounted") {
            let has_sqlite = Command::new("sqlite3").arg("--version").output().is_ok();
            if !has_sqlite || !crate::mount::can_mount() {
                eprintln!("skipped: {name}: no pool can be mounted here, or there is no sqlite3");
                continue;
            }
        }
        run += run_session(folder.path(), &block, name);
    }
    run
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[test]
fn every_session_in_the_documentation_runs_as_shown() {
    let run: usize = pages()
        .iter()
        .map(|path| run_page(&std::fs::read_to_string(path).expect("reading a page"), &short(path)))
        .sum();
    assert!(run > 0, "the README has a session");
}

#[test]
fn every_how_to_and_the_tutorial_have_a_session_that_runs() {
    for path in pages() {
        let name = short(&path);
        if name != "docs/tutorial.md" && (!name.starts_with("docs/how-to/") || name.ends_with("README.md")) {
            continue;
        }
        let page = std::fs::read_to_string(&path).expect("reading a page");
        let runs = split(&page).0.iter().any(|block| block.info.starts_with(&["console", "run"]));
        assert!(runs, "{name} has no `console run` block");
    }
}

#[test]
fn a_page_that_says_something_else_is_found_out() {
    assert_eq!(shape("memory   4 MiB, 0 B allocated"), "memory # allocated");
    assert!(matches(&["a 1", "...", "z"], &["a 2", "b", "z"]));
    assert!(!matches(&["a 1", "z"], &["a 2", "b", "z"]));
    assert!(!matches(&["rolled back"], &["rolled over"]));
    assert!(matches(&["one of: ..."], &["one of: a, b"]) && !matches(&["none of: ..."], &["one of: a"]));
}

#[test]
fn a_page_is_split_into_blocks_and_a_session_into_commands() {
    let page =
        "text\n```toml file=a.toml\nx = 1\n```\n  ```console run\n  $ a \\\n    b\n  out\n  $ c\n  ```\nmore";
    let (blocks, prose) = split(page);
    assert_eq!(prose, ["text", "more"]);
    assert_eq!(blocks[0], Block { info: vec!["toml", "file=a.toml"], lines: vec!["x = 1"] });
    assert_eq!(commands(&blocks[1].lines), [("a \\\n  b".to_owned(), vec!["out"]), ("c".to_owned(), vec![])]);
}

#[test]
fn a_command_that_fails_or_succeeds_against_its_mark_is_found_out() {
    let passes = |page: &str| std::panic::catch_unwind(|| run_page(page, "a page")).is_ok();
    assert!(passes("```console run\n$ echo 1 && echo 2 >&2\n3\n4\n```\n"));
    assert!(!passes("```console run\n$ false\n```\n"));
    assert!(passes("```console run fails\n$ false\n```\n"));
    assert!(!passes("```console run fails\n$ true\n```\n"));
    assert!(passes("```text file=a\nx\n```\n```console run\n$ cat a\nx\n```\n"));
    assert!(!passes("```text file=a\nx\n```\n```console run\n$ cat a\ny\n```\n"));
}

/// Returns the targets of a page's links: Markdown links, and the `src`, `srcset` and `href` of HTML.
fn targets<'a>(prose: &[&'a str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for line in prose {
        for (mark, end) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')] {
            for (at, _) in line.match_indices(mark) {
                let rest = &line[at + mark.len()..];
                found.push(&rest[..rest.find(end).expect("a link ends on its line")]);
            }
        }
    }
    found
}

/// Returns the anchors of a page's headings. An anchor is the heading in lower case, without punctuation, with `-` for a space.
fn anchors(page: &str) -> HashSet<String> {
    let headings = split(page).1.into_iter().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    for path in pages() {
        let page = std::fs::read_to_string(&path).expect("reading a page");
        for target in targets(&split(&page).1) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = match file {
                "" => path.clone(),
                file => path.parent().expect("a page is in a folder").join(file),
            };
            if !linked.exists() {
                wrong.push(format!("{} links to {target}, which does not exist", short(&path)));
            } else if !anchor.is_empty()
                && linked.extension().is_some_and(|e| e == "md")
                && !anchors(&std::fs::read_to_string(&linked).expect("reading a page")).contains(anchor)
            {
                wrong.push(format!("{} links to {target}, a heading which does not exist", short(&path)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_and_headings_are_read_as_a_browser_reads_them() {
    let line = "[a](b.md#c-d) and <img src=\"x.svg\"> <source srcset=\"y.svg\"> <a href=\"z.md\">z</a>";
    assert_eq!(targets(&[line]), ["b.md#c-d", "x.svg", "y.svg", "z.md"]);
    assert!(anchors("# The `pool`, in short\n```\n# no\n```\n").contains("the-pool-in-short"));
    assert_eq!(anchors("```\n# no heading\n```\n").len(), 0);
}

#[test]
fn the_book_has_every_page_of_the_documentation() {
    let summary = root().join("docs/SUMMARY.md");
    let text = std::fs::read_to_string(&summary).expect("the book has a summary");
    let listed: HashSet<PathBuf> = targets(&text.lines().collect::<Vec<_>>())
        .into_iter()
        .map(|file| root().join("docs").join(file))
        .collect();
    for path in pages().iter().filter(|path| path.starts_with(root().join("docs")) && **path != summary) {
        assert!(listed.contains(path), "docs/SUMMARY.md does not list {}", short(path));
    }
}
