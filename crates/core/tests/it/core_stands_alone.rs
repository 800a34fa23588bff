//! The compiler enforces that the crate is a pure state machine. This test checks that the crate turns that
//! enforcement on.

use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_crate_depends_on_nothing() {
    let manifest = read("Cargo.toml");
    let mut section = "";
    let mut sections = Vec::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line;
            sections.push(line);
        } else if section.contains("dependencies") {
            assert_eq!(section, "[dev-dependencies]", "{line}");
        }
    }
    assert!(sections.contains(&"[dependencies]"));
    for section in sections.iter().filter(|section| section.contains("dependencies")) {
        assert!(["[dependencies]", "[dev-dependencies]"].contains(section), "{section}");
    }
    assert!(!Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs").exists());
}

#[test]
fn the_crate_is_without_std_and_without_unsafe() {
    let root = read("src/lib.rs");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        assert!(root.lines().any(|line| line == attribute), "{attribute}");
    }
    assert!(!root.contains("extern crate std"));
}
