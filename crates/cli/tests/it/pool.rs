//! The pool commands, run as a user runs them.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{deepram, folder};
use deepram_pool::{Lifetime, Mapping, Pool};

/// Makes a pool with four tokens, and does not close it. Before each token a segment was filled with the token's number.
fn pool_with_tokens(folder: &Path) -> Vec<u64> {
    deepram(folder, &["pool", "create", "a.pool", "--size", "4M", "--keep", "8"]).good();
    let options = deepram_pool::OpenOptions::new(32 << 20).mapping(Mapping::Off);
    let pool = Pool::open(&[folder.join("a.pool")], &options).unwrap();
    let addr = pool.alloc(1 << 20, Lifetime::Permanent).unwrap();
    let tokens = (1..=4_u8)
        .map(|n| {
            pool.write(addr, &vec![n; 100_000]).unwrap();
            pool.sync().unwrap().0
        })
        .collect();
    pool.abandon().unwrap();
    tokens
}

#[test]
fn info_tells_people_and_programs_the_same() {
    let folder = folder();
    let tokens = pool_with_tokens(folder.path());
    let text = deepram(folder.path(), &["pool", "info", "a.pool"]).good();
    assert!(text.contains("4 MiB, 1 MiB allocated"), "{text}");
    assert!(text.contains("not closed: opening goes through"), "{text}");
    let info = deepram(folder.path(), &["pool", "info", "a.pool", "--json"]).json();
    assert_eq!(info["size_bytes"], 4 << 20);
    assert_eq!(info["allocated_bytes"], 1 << 20);
    assert_eq!(info["segment_bytes"], 4096);
    assert_eq!(info["keep_tokens"], 8);
    assert_eq!(info["last_token"], *tokens.last().unwrap());
    assert_eq!(info["closed_in_order"], false);
}

#[test]
fn create_takes_each_option_and_refuses_a_file_that_is_there() {
    let folder = folder();
    let arguments =
        ["pool", "create", "a.pool", "b.pool", "--size", "8M", "--flash", "64M", "--segment", "16K"];
    let more = ["--keep", "3", "--base", "0x300000000000", "--json"];
    let info = deepram(folder.path(), &[&arguments[..], &more[..]].concat()).json();
    assert_eq!(info["segment_bytes"], 16384);
    assert_eq!(info["keep_tokens"], 3);
    assert_eq!(info["base_address"], 0x3000_0000_0000_u64);
    assert_eq!(info["size_bytes"], 16 << 20);
    assert_eq!(info["devices"].as_array().unwrap().len(), 2);
    let error = deepram(folder.path(), &["pool", "create", "a.pool", "--size", "8M"]).error(1);
    assert!(error.contains("a.pool exists already"), "{error}");
    let error = deepram(folder.path(), &["pool", "info", "a.pool"]).error(1);
    assert!(error.contains("2 devices"), "{error}");
}

#[test]
fn a_rollback_goes_back_and_says_which_tokens_are_gone() {
    let folder = folder();
    let tokens = pool_with_tokens(folder.path());
    let listed = |folder: &Path| -> Vec<u64> {
        let history = deepram(folder, &["pool", "history", "a.pool", "--json"]).json();
        history["tokens"].as_array().unwrap().iter().map(|t| t["token"].as_u64().unwrap()).collect()
    };
    assert!(listed(folder.path()).ends_with(&tokens));
    let token = tokens[1].to_string();
    let text = deepram(folder.path(), &["pool", "rollback", "a.pool", "--token", &token]).good();
    assert!(text.contains(&format!("tokens {}, {} are gone", tokens[2], tokens[3])), "{text}");
    assert_eq!(listed(folder.path()).last(), Some(&tokens[1]));
    let gone = tokens[3].to_string();
    let error = deepram(folder.path(), &["pool", "rollback", "a.pool", "--token", &gone]).error(1);
    assert!(error.contains(&gone), "{error}");
    let options = deepram_pool::OpenOptions::new(32 << 20).mapping(Mapping::Off);
    let pool = Pool::open(&[folder.path().join("a.pool")], &options).unwrap();
    let mut byte = [0];
    pool.read(deepram_pool::Addr::new(0, 1, 0).unwrap(), &mut byte).unwrap();
    assert_eq!(byte, [2]);
}

#[test]
fn looking_changes_nothing() {
    let folder = folder();
    pool_with_tokens(folder.path());
    let before = std::fs::read(folder.path().join("a.pool")).unwrap();
    for command in ["info", "history", "check"] {
        deepram(folder.path(), &["pool", command, "a.pool"]).good();
    }
    assert!(std::fs::read(folder.path().join("a.pool")).unwrap() == before);
}

#[test]
fn a_check_finds_a_flipped_byte_and_fails() {
    let folder = folder();
    pool_with_tokens(folder.path());
    // Closing the pool writes a checkpoint: damage to the newest commit is repaired only while no checkpoint has followed.
    let options = deepram_pool::OpenOptions::new(32 << 20).mapping(Mapping::Off);
    Pool::open(&[folder.path().join("a.pool")], &options).unwrap().close().unwrap();
    let report = deepram(folder.path(), &["pool", "check", "a.pool", "--json"]).json();
    assert_eq!(report["sound"], true);
    assert!(report["segments_read"].as_u64().unwrap() >= 100, "{report}");
    // The data of the last token is a segment whose bytes are all 4.
    let bytes = std::fs::read(folder.path().join("a.pool")).unwrap();
    let at = bytes.chunks(4096).rposition(|s| s.iter().all(|&b| b == 4)).unwrap() as u64 * 4096;
    let file = OpenOptions::new().write(true).open(folder.path().join("a.pool")).unwrap();
    file.write_all_at(&[5], at + 77).unwrap();
    let run = deepram(folder.path(), &["pool", "check", "a.pool", "--json"]);
    assert_eq!(run.status, 1);
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["damaged_segments"][0]["offset_bytes"], at);
    assert!(run.err.contains("1 segments fail their checksum"), "{}", run.err);
}

#[test]
fn a_scrub_repairs_damage_with_parity_and_reports_it_without() {
    let folder = folder();
    for (name, redundancy) in [("a.pool", Some("4+1")), ("b.pool", None)] {
        let path = folder.path().join(name);
        let mut create = vec!["pool", "create", name, "--size", "8M", "--json"];
        create.extend(redundancy.map(|columns| ["--redundancy", columns]).into_iter().flatten());
        let info = deepram(folder.path(), &create).json();
        assert_eq!(info["redundancy"].as_str(), redundancy);
        let options = deepram_pool::OpenOptions::new(32 << 20).mapping(Mapping::Off);
        let pool = Pool::open(&[&path], &options).unwrap();
        let addr = pool.alloc(2 << 20, Lifetime::Permanent).unwrap();
        pool.write(addr, &vec![0x3C; 2 << 20]).unwrap();
        pool.close().unwrap();
        // The first segment of data in the file.
        let bytes = std::fs::read(&path).unwrap();
        let slots = bytes.chunks_exact(4096).enumerate().skip(256);
        let (at, _) = slots.into_iter().find(|(_, slot)| slot.iter().all(|byte| *byte == 0x3C)).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xA5; 4096], at as u64 * 4096).unwrap();
        if redundancy.is_some() {
            let check = deepram(folder.path(), &["pool", "check", name, "--json"]).json();
            assert_eq!((&check["repairable"], &check["sound"]), (&1.into(), &true.into()), "{check}");
            let scrub = deepram(folder.path(), &["pool", "scrub", name, "--json"]).json();
            assert_eq!((&scrub["rebuilt"], &scrub["lost"]), (&1.into(), &0.into()), "{scrub}");
            let text = deepram(folder.path(), &["pool", "scrub", name]).good();
            assert!(text.contains(" 0 damaged slots rebuilt") && text.contains("sound"), "{text}");
            file.write_all_at(&[0xA5; 4096], at as u64 * 4096).unwrap();
            let repaired = deepram(folder.path(), &["pool", "check", name, "--repair", "--json"]).json();
            assert_eq!(repaired["repair"]["rebuilt"], 1, "{repaired}");
        } else {
            let error = deepram(folder.path(), &["pool", "scrub", name]).error(1);
            assert!(error.contains("is damaged: 1 segments fail their checksum"), "{error}");
        }
    }
}

#[test]
fn info_projects_the_lifetime_from_the_rating_of_the_device() {
    let folder = folder();
    let create =
        ["pool", "create", "a.pool", "--size", "4M", "--rated-tbw", "1TB", "--writes-per-day", "2GiB"];
    let text = deepram(folder.path(), &create).good();
    assert!(text.contains("% of 931.32 GiB used; the rest lasts"), "{text}");
    assert!(text.contains("2 GiB for each device; above that, background writes wait"), "{text}");
    let info = deepram(folder.path(), &["pool", "info", "a.pool", "--json", "--rated-tbw", "2TB"]).json();
    assert_eq!(info["rated_tbw_bytes"], 2_000_000_000_000_u64);
    assert_eq!(info["writes_per_day_bytes"], 2_u64 << 30);
    let (days, rate) = (info["days_left"].as_f64().unwrap(), info["written_per_day_bytes"].as_f64().unwrap());
    let left = 2e12 - info["written_bytes"].as_f64().unwrap();
    assert!((days * rate / left - 1.0).abs() < 1e-6, "{info}");
}

#[test]
fn a_repair_gives_up_what_follows_damage_to_the_log_and_says_so() {
    let folder = folder();
    let tokens = pool_with_tokens(folder.path());
    let path = folder.path().join("a.pool");
    let bytes = std::fs::read(&path).unwrap();
    let last_one = bytes.chunks(4096).rposition(|s| s.iter().all(|&b| b == 1)).unwrap();
    let behind = bytes.chunks(4096).skip(last_one).position(|s| s.starts_with(b"DRB1")).unwrap();
    // The header of the first batch of the second token.
    let header = (last_one + behind) * 4096;
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    // One damaged bit is repaired from the header's other copy.
    file.write_all_at(&[bytes[header + 41] ^ 4], header as u64 + 41).unwrap();
    let last = deepram(folder.path(), &["pool", "info", "a.pool", "--json"]).json()["last_token"].clone();
    assert_eq!(last, *tokens.last().unwrap());
    // A header that is damaged in both copies cannot be repaired.
    file.write_all_at(&[0xA5; 4096], header as u64).unwrap();
    for command in ["info", "check", "history"] {
        let error = deepram(folder.path(), &["pool", command, "a.pool"]).error(1);
        assert!(error.contains(&format!("tokens {} to {} are lost", tokens[1], tokens[3])), "{error}");
        assert!(error.contains("--repair"), "{error}");
    }
    let usage = deepram(folder.path(), &["pool", "check", "a.pool", "--at-token", "2"]);
    assert!(usage.status == 2 && usage.err.contains("--repair"), "{usage:?}");
    let too_late = tokens[3].to_string();
    let error =
        deepram(folder.path(), &["pool", "check", "a.pool", "--repair", "--at-token", &too_late]).error(1);
    assert!(error.contains(&too_late), "{error}");
    let text = deepram(folder.path(), &["pool", "check", "a.pool", "--repair"]).good();
    assert!(text.contains(&format!("the pool is at token {}", tokens[0])), "{text}");
    assert!(text.contains("sound"), "{text}");
    let info = deepram(folder.path(), &["pool", "info", "a.pool", "--json"]).json();
    assert_eq!(info["last_token"], tokens[0]);
    let report = deepram(folder.path(), &["pool", "check", "a.pool", "--json"]).json();
    assert_eq!((&report["sound"], &report["damaged_copies"]), (&true.into(), &0.into()));
}

#[test]
fn compact_leaves_every_token_readable() {
    let folder = folder();
    let tokens = pool_with_tokens(folder.path());
    let done = deepram(folder.path(), &["pool", "compact", "a.pool", "--json"]).json();
    assert!(done["compact_ns"].as_u64().unwrap() > 0);
    let history = deepram(folder.path(), &["pool", "history", "a.pool"]).good();
    for token in tokens {
        assert!(history.lines().any(|line| line.trim_start().starts_with(&token.to_string())), "{history}");
    }
    deepram(folder.path(), &["pool", "check", "a.pool"]).good();
}

#[test]
fn what_is_no_pool_and_what_is_in_use_are_said_so() {
    let folder = folder();
    std::fs::write(folder.path().join("letter.txt"), vec![b'x'; 2 << 20]).unwrap();
    let error = deepram(folder.path(), &["pool", "info", "letter.txt"]).error(1);
    assert!(error.contains("letter.txt is not a deepram pool"), "{error}");
    let error = deepram(folder.path(), &["pool", "check", "nowhere.pool"]).error(1);
    assert!(error.contains("nowhere.pool: opening failed: No such file"), "{error}");
    pool_with_tokens(folder.path());
    let options = deepram_pool::OpenOptions::new(32 << 20).mapping(Mapping::Off);
    let open = Pool::open(&[folder.path().join("a.pool")], &options).unwrap();
    let error = deepram(folder.path(), &["pool", "history", "a.pool"]).error(1);
    assert!(error.contains("open as a pool in another process"), "{error}");
    open.close().unwrap();
}

#[test]
fn wrong_usage_has_a_status_of_its_own() {
    let folder = folder();
    for arguments in [
        &["pool", "create", "a.pool"][..],
        &["pool", "create", "a.pool", "--size", "some"],
        &["pool", "create", "a.pool", "--size", "0"],
        &["pool", "create", "a.pool", "--size", "4M", "--segment", "5K"],
        &["pool", "create", "a.pool", "--size", "4M", "--keep", "0"],
        &["pool", "rollback", "a.pool"],
        &["demo", "--size", "1000M"],
        &["paint"],
    ] {
        let run = deepram(folder.path(), arguments);
        assert_eq!(run.status, 2, "{arguments:?}: {run:?}");
        assert!(!run.err.is_empty() && run.out.is_empty(), "{arguments:?}: {run:?}");
    }
    assert!(!folder.path().join("a.pool").exists());
}

#[test]
fn manual_and_completions_know_every_command() {
    let folder = folder();
    let script = deepram(folder.path(), &["completions", "bash"]).good();
    let page = deepram(folder.path(), &["man"]).good();
    deepram(folder.path(), &["man", "--out", "pages"]).good();
    for command in ["demo", "pool", "completions", "man"] {
        assert!(script.contains(command) && page.contains(command), "{command}");
        let file = folder.path().join(format!("pages/deepram-{command}.1"));
        assert!(file.exists(), "{}", file.display());
    }
    assert!(folder.path().join("pages/deepram-pool-rollback.1").exists());
}

#[test]
fn a_device_that_holds_a_pool_is_overwritten_with_force_alone() {
    let folder = folder();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let losetup = std::process::Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
    let Some(device) = losetup.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: no loop device can be made here (losetup, as root)");
        return;
    };
    let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
    let create = |more: &[&str]| {
        deepram(folder.path(), &[&["pool", "create", &device, "--size", "4M"], more].concat())
    };
    let (first, second, forced) = (create(&[]), create(&[]), create(&["--force"]));
    let _ = std::process::Command::new("losetup").args(["--detach", &device]).status();
    assert!(first.good().starts_with(&format!("created {device}")));
    let error = second.error(1);
    assert!(error.contains("a deepram pool") && error.contains("--force"), "{error}");
    forced.good();
}

#[test]
fn a_pool_is_created_and_shown_with_its_memory_controllers() {
    let folder = folder();
    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = shared.path().join("a.mem").display().to_string();
    let run = |arguments: &[&str]| deepram(folder.path(), &[&["pool"], arguments].concat());
    let memory = format!("{file}=1M");
    let text = run(&["create", "a.pool", "--size", "4M", "--memory", &memory]).good();
    assert!(text.contains(&format!("{file} (emulated), controller 1: 1 MiB, 0 B allocated")), "{text}");
    let info = run(&["info", "a.pool", &file, "--json"]).json();
    assert_eq!(info["memory"][0]["size_bytes"], 1 << 20);
    assert_eq!(info["memory"][0]["kind"], "emulated");
    assert_eq!(info["size_bytes"], 4 << 20, "that of the journaled controllers");
    run(&["check", "a.pool", &file]).good();
    let error = run(&["rollback", "a.pool", &file, "--token", "0"]).error(1);
    assert!(error.contains("open the pool without its memory controllers"), "{error}");
    run(&["rollback", "a.pool", "--token", "0"]).good();
    let error = run(&["create", "b.pool", "--size", "4M", "--memory", &memory]).error(1);
    assert!(error.contains("a.mem exists already"), "{error}");
    assert!(!folder.path().join("b.pool").exists());
    for wrong in ["1M", "=1M", "b.mem=much", "b.mem"] {
        let error = run(&["create", "b.pool", "--size", "4M", "--memory", wrong]).error(2);
        assert!(error.contains("PATH=SIZE") || error.contains("the size of b.mem"), "{error}");
    }
}
