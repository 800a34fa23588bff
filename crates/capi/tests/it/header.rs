//! The header and the list of the library's symbols are those of the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Compares a generated file with the committed one; with UPDATE_HEADER=1 writes it instead.
fn is_up_to_date(path: &Path, generated: &str) {
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(path, generated).expect("writing the file");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == generated,
        "{} is out of date: UPDATE_HEADER=1 cargo test -p deepram-capi header",
        path.display()
    );
}

fn header() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("the configuration");
    let mut text = Vec::new();
    let builder = cbindgen::Builder::new().with_config(config).with_src(folder().join("src/lib.rs"));
    builder.generate().expect("generating the header").write(&mut text);
    String::from_utf8(text).expect("a header is text")
}

#[test]
fn the_header_is_what_the_code_says() {
    is_up_to_date(&folder().join("include/deepram.h"), &header());
}

/// The declarations of the header without comments, one a line: what a change of the interface changes.
fn declarations(header: &str) -> String {
    let body = header.split_once("*/").map_or(header, |(_, body)| body);
    let is_code =
        |line: &&str| !["//", "#", "/*", "extern \"C\""].iter().any(|start| line.starts_with(start));
    let code: Vec<&str> = body.lines().map(str::trim).filter(is_code).collect();
    let code = code.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines = BTreeSet::new();
    for part in code.split(';') {
        if let Some(at) = part.find("deepram_").filter(|_| part.contains('(') && part.ends_with(')')) {
            let start = part[..at].rfind(['}', '{', '/']).map_or(0, |at| at + 1);
            lines.insert(format!("{};", part[start..].trim()));
        }
    }
    lines.into_iter().fold(String::new(), |text, line| text + &line + "\n")
}

#[test]
fn the_listing_of_the_c_interface_is_what_the_header_says() {
    let path = folder().join("../../docs/reference/public-api/c.txt");
    // The page's folder is not part of the package.
    if path.parent().is_some_and(Path::exists) {
        is_up_to_date(&path, &declarations(&header()));
    }
}

#[test]
fn every_function_of_the_sources_is_declared() {
    let declared = declarations(&header());
    let mut functions = 0;
    for entry in std::fs::read_dir(folder().join("src")).expect("the sources") {
        let source = std::fs::read_to_string(entry.expect("a source").path()).expect("a source is text");
        for rest in source.split("extern \"C\" fn ").skip(1) {
            let name = rest.split('(').next().expect("a name");
            assert!(declared.contains(&format!("{name}(")), "{name} is not in the header");
            functions += 1;
        }
    }
    assert_eq!(declared.lines().count(), functions);
}
