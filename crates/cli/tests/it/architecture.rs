//! Checks the permitted dependencies between the crates (docs/explanation/architecture.md), and the crates that may use `unsafe`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each crate of the workspace, with the workspace crates that it may depend on.
const MAY_USE: &[(&str, &[&str])] = &[
    ("deepram-core", &[]),
    ("deepram-ecc", &[]),
    ("deepram-media", &["deepram-core"]),
    ("deepram-trace", &["deepram-core"]),
    ("deepram-sim", &["deepram-core", "deepram-media", "deepram-trace"]),
    ("deepram-repro", &["deepram-core", "deepram-media", "deepram-trace", "deepram-sim"]),
    ("deepram-linux", &["deepram-core"]),
    ("deepram-pager", &["deepram-core", "deepram-linux"]),
    ("deepram-metrics", &["deepram-core", "deepram-linux"]),
    ("deepram-pool", &["deepram-core", "deepram-linux", "deepram-metrics", "deepram-pager", "deepram-media"]),
    ("deepram-peers", &["deepram-linux", "deepram-pager", "deepram-pool"]),
    ("deepram-preload", &["deepram-core", "deepram-linux", "deepram-pager"]),
    ("deepram-files", &["deepram-core", "deepram-linux", "deepram-pool"]),
    ("deepram-capi", &["deepram-pool"]),
    ("deepram-python", &["deepram-core", "deepram-media", "deepram-sim", "deepram-pool", "deepram-trace"]),
    (
        "deepram",
        &[
            "deepram-core",
            "deepram-ecc",
            "deepram-files",
            "deepram-linux",
            "deepram-media",
            "deepram-metrics",
            "deepram-trace",
            "deepram-sim",
            "deepram-pager",
            "deepram-peers",
            "deepram-pool",
            "deepram-repro",
        ],
    ),
    ("deepram-testkit", &["deepram-core", "deepram-pool"]),
];

/// The crates that access memory by address, that with vector instructions, and those with a C or Python interface.
const MAY_BE_UNSAFE: &[&str] = &[
    "deepram-linux",
    "deepram-pager",
    "deepram-pool",
    "deepram-peers",
    "deepram-preload",
    "deepram-ecc",
    "deepram-capi",
    "deepram-python",
];

/// Returns one line for each dependency of a workspace that is not permitted.
fn broken_arrows(metadata: &Value) -> Vec<String> {
    let rules: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut broken = Vec::new();
    for package in packages(metadata) {
        let name = text(package, "name");
        let Some(allowed) = rules.get(name) else {
            broken.push(format!("{name} is new: add its permitted dependencies to MAY_USE"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("a list") {
            let used = text(dependency, "name");
            let for_tests = dependency["kind"] == "dev";
            if for_tests || !rules.contains_key(used) {
                continue;
            }
            if !allowed.contains(&used) {
                broken.push(format!("{name} depends on {used}"));
            }
        }
        let outside = |d: &Value| d["kind"] != "dev" && !rules.contains_key(text(d, "name"));
        if name == "deepram-core" && package["dependencies"].as_array().expect("a list").iter().any(outside) {
            broken.push(format!("{name} depends on external crates: it must have none"));
        }
    }
    broken
}

fn packages(metadata: &Value) -> &Vec<Value> {
    metadata["packages"].as_array().expect("cargo metadata lists packages")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is a string in {value}"))
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("running cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn root_file(package: &Value) -> PathBuf {
    let folder = Path::new(text(package, "manifest_path")).parent().expect("a manifest is in a folder");
    let library = folder.join("src/lib.rs");
    if library.exists() { library } else { folder.join("src/main.rs") }
}

#[test]
fn crates_depend_only_on_what_the_design_allows() {
    assert_eq!(broken_arrows(&metadata()), Vec::<String>::new());
}

#[test]
fn an_arrow_that_points_the_wrong_way_is_found() {
    let wrong = serde_json::json!({ "packages": [
        { "name": "deepram-core", "dependencies": [
            { "name": "deepram-pool", "kind": null },
            { "name": "deepram-testkit", "kind": "dev" },
            { "name": "log", "kind": null },
        ] },
        { "name": "deepram-pool", "dependencies": [{ "name": "deepram-testkit", "kind": null }] },
        { "name": "deepram-else", "dependencies": [] },
    ] });
    let broken = broken_arrows(&wrong);
    assert_eq!(broken.len(), 4, "{broken:?}");
}

#[test]
fn unsafe_code_is_forbidden_but_where_memory_is_touched_by_address() {
    for package in packages(&metadata()) {
        let name = text(package, "name");
        let source = std::fs::read_to_string(root_file(package)).expect("reading the crate's root");
        let forbidden = source.lines().any(|line| line == "#![forbid(unsafe_code)]");
        assert!(
            forbidden || MAY_BE_UNSAFE.contains(&name),
            "{name} neither forbids unsafe code nor is in MAY_BE_UNSAFE, the list of crates that need it"
        );
    }
}

#[test]
fn core_has_no_standard_library() {
    let metadata = metadata();
    let core = packages(&metadata).iter().find(|p| p["name"] == "deepram-core").expect("there is a core");
    let source = std::fs::read_to_string(root_file(core)).expect("reading the crate's root");
    assert!(source.lines().any(|line| line == "#![no_std]"));
    assert!(!source.contains("extern crate std"));
}
