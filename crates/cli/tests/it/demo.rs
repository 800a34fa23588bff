//! `deepram demo` on little memory.

use crate::common::{deepram, folder};

#[test]
fn the_demo_loses_nothing_that_was_synced_and_leaves_nothing_behind() {
    let folder = folder();
    let arguments = ["demo", "--size", "64M", "--dram", "32M", "--seconds", "1", "--json"];
    let found = deepram(folder.path(), &arguments).json();
    assert_eq!(found["verification_errors"], 0);
    let tokens = found["tokens"].as_array().unwrap();
    assert!(tokens.len() >= 3, "{found}");
    let last = &found["last_token"];
    assert!(last["token"].as_u64() >= tokens.last().unwrap()["token"].as_u64(), "{found}");
    assert!(found["earlier_token"]["token"].as_u64() < last["token"].as_u64(), "{found}");
    assert!(last["updates"].as_u64().unwrap() > 0 && found["lost_updates"].as_u64().unwrap() > 0, "{found}");
    let resident = found["resident_max_bytes"].as_u64().unwrap();
    assert!(resident <= 32 << 20, "{found}");
    // The table exceeds the DRAM, so its pages have been written to the flash and read back.
    assert!(found["update"]["read_bytes"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_pool_that_is_kept_is_sound_and_at_the_token_rolled_back_to() {
    let folder = folder();
    let arguments = ["demo", "--size", "16M", "--dram", "32M", "--seconds", "1", "--keep"];
    let text = deepram(folder.path(), &arguments).good();
    assert!(text.contains("verification errors  0 of 2,097,152 words"), "{text}");
    let check = deepram(folder.path(), &["pool", "check", "deepram-demo.pool", "--json"]).json();
    assert_eq!(check["sound"], true);
    let rolled_back = text.lines().find(|line| line.starts_with("rollback")).unwrap();
    let token = rolled_back.split_whitespace().nth(3).unwrap();
    let info = deepram(folder.path(), &["pool", "info", "deepram-demo.pool", "--json"]).json();
    assert_eq!(info["last_token"].to_string(), token, "{text}");
}

#[test]
fn a_folder_that_is_not_there_is_said_before_anything_is_done() {
    let folder = folder();
    let error = deepram(folder.path(), &["demo", "--dir", "nowhere"]).error(1);
    assert!(error.contains("nowhere: not a folder"), "{error}");
    let error = deepram(folder.path(), &["demo", "--size", "8P", "--dram", "1G"]).error(1);
    assert!(error.contains("which has") && error.contains("--size"), "{error}");
}

#[test]
fn the_worker_does_nothing_for_anybody_but_the_demo() {
    let folder = folder();
    let arguments = ["--pool", "x", "--words", "8", "--dram", "1", "--threads", "1", "--round", "1"];
    let error =
        deepram(folder.path(), &[&["demo-worker"], &arguments[..], &["--parent", "1"]].concat()).error(1);
    assert!(error.contains("only `deepram demo` starts this command"), "{error}");
}
