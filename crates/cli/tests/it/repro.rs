//! `deepram repro` on the command line. The tests of the reproductions themselves are in `crates/repro`.

use std::path::Path;

use serde_json::Value;

use crate::common::{deepram, folder};

#[test]
fn every_paper_and_all_of_them_can_be_named_and_a_part_belongs_to_one() {
    let folder = folder();
    let help = deepram(folder.path(), &["repro", "--help"]);
    assert!(help.out.contains("nvmm, flatflash, disk-cache, ssd-buffer, pmem, validation, all"), "{help:?}");
    let part = deepram(folder.path(), &["repro", "all", "--only", "gups"]);
    assert!(part.status == 2 && part.err.contains("give the paper"), "{part:?}");
    let former = deepram(folder.path(), &["repro", "ground"]);
    assert!(former.status == 2 && former.err.contains("deepram repro validation"), "{former:?}");
    let unknown = deepram(folder.path(), &["repro", "flatflash", "--only", "gubs"]);
    assert!(unknown.status == 2 && unknown.err.contains("gups"), "{unknown:?}");
    for (arguments, said) in [
        (["repro", "nvmm", "--trace", "fin1=a.spc"], "is an option of ssd-buffer"),
        (["repro", "ssd-buffer", "--trace", "fin1"], "expected NAME=FILE"),
        (["repro", "ssd-buffer", "--trace", "fin3=a.spc"], "fin1, fin2"),
    ] {
        let wrong = deepram(folder.path(), &arguments).error(2);
        assert!(wrong.contains(said), "{arguments:?}: {wrong}");
    }
    let missing = deepram(folder.path(), &["repro", "ssd-buffer", "--trace", "fin1=a.spc"]).error(1);
    assert!(missing.contains("a.spc"), "{missing}");
}

#[test]
fn the_costs_of_flatflash_come_out_as_the_paper_has_them() {
    let folder = folder();
    let arguments = ["repro", "flatflash", "--quick", "--only", "constants", "--json"];
    let report = deepram(folder.path(), &arguments).json();
    assert_eq!(report["paper"], "flatflash");
    let rows = report["rows"].as_array().unwrap();
    let inside: Vec<&str> =
        rows.iter().filter(|row| row["verdict"] == "inside").map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(inside, ["cost-read", "cost-write", "cost-promote", "cost-entry", "cost-walk"]);
    assert!(folder.path().join("repro-flatflash/index.html").exists());
}

/// Writes a changed results.json of the NVMM paper's page table to `name`.
fn write_changed(folder: &Path, name: &str, change: impl FnOnce(&mut Value)) {
    let mut report: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("out/results.json")).unwrap()).unwrap();
    change(&mut report);
    std::fs::write(folder.join(name), report.to_string()).unwrap();
}

#[test]
fn claims_that_differ_from_earlier_results_are_listed() {
    let folder = folder();
    let arguments = ["repro", "nvmm", "--only", "page-table", "--out", "out"];
    deepram(folder.path(), &[&arguments[..], &["--results", "recorded"]].concat()).good();
    let compared = |file: &str| deepram(folder.path(), &[&arguments[..], &["--compare", file]].concat());
    let same = compared("out/results.json").good();
    assert!(same.starts_with("0 of 3 claims differ\n"), "{same}");

    // A result file is compared like a results.json.
    let recorded = std::fs::read_dir(folder.path().join("recorded")).unwrap().next().unwrap().unwrap().path();
    let file: Value = serde_json::from_str(&std::fs::read_to_string(&recorded).unwrap()).unwrap();
    assert_eq!((&file["bench"], &file["results"]["paper"]), (&"repro-nvmm".into(), &"nvmm".into()));
    assert!(file["results"].get("runs").is_none() && file["machine"]["cores"].as_u64() > Some(0));
    assert!(compared(recorded.to_str().unwrap()).good().starts_with("0 of 3 claims differ"));

    write_changed(folder.path(), "older.json", |report| {
        report["rows"][0]["ours"] = 15.0.into();
        report["rows"][0]["verdict"] = "outside".into();
    });
    let differs = compared("older.json").good();
    let line =
        differs.lines().find(|line| line.starts_with("entry-size")).unwrap_or_else(|| panic!("{differs}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..9], ["entry-size", "15", "B", "✗", "outside", "16", "B", "✓", "inside"], "{line}");
    assert!(differs.contains("1 of 3 claims differ"), "{differs}");
}

#[test]
fn earlier_results_that_cannot_be_compared_are_errors_that_name_the_file() {
    let folder = folder();
    let arguments = ["repro", "nvmm", "--only", "page-table", "--out", "out"];
    deepram(folder.path(), &arguments).good();
    write_changed(folder.path(), "other.json", |report| report["paper"] = "flatflash".into());
    write_changed(folder.path(), "quick.json", |report| report["quick"] = true.into());
    write_changed(folder.path(), "unknown.json", |report| report["rows"][0]["colour"] = "red".into());
    std::fs::write(folder.path().join("text.json"), "no JSON").unwrap();
    std::fs::write(folder.path().join("bench.json"), r#"{"bench": "gups", "results": []}"#).unwrap();
    for (file, status, said) in [
        ("other.json", 2, "results of flatflash, not of nvmm"),
        ("quick.json", 2, "quick runs"),
        ("unknown.json", 1, "colour"),
        ("text.json", 1, "neither a results.json nor a result file"),
        ("bench.json", 1, "neither a results.json nor a result file"),
        ("missing.json", 1, "missing.json"),
    ] {
        let error = deepram(folder.path(), &[&arguments[..], &["--compare", file]].concat()).error(status);
        assert!(error.contains(said) && error.contains(file), "{file}: {error}");
    }
    let all = deepram(folder.path(), &["repro", "all", "--compare", "other.json"]).error(2);
    assert!(all.contains("give the paper"), "{all}");
}

/// Part of a recording: 400 requests in DiskSim's text format (time in ms, device, sector, sectors, 1 for a read).
fn recording() -> String {
    (0..400u32)
        .map(|n| {
            format!("{} 0 {} {} {}\n", f64::from(n) * 0.5, n % 40 * 16, 8 + n % 9, u32::from(n % 4 == 0))
        })
        .collect()
}

#[test]
fn a_recording_is_shown_beside_the_stand_ins_which_are_named_synthetic() {
    let folder = folder();
    std::fs::write(folder.path().join("fin1.txt"), recording()).unwrap();
    let arguments =
        ["repro", "ssd-buffer", "--quick", "--only", "locality", "--trace", "fin1=fin1.txt", "--out", "out"];
    let shown = deepram(folder.path(), &arguments).good();
    assert!(shown.contains("synthetic traces"), "{shown}");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("out/results.json")).unwrap())
            .unwrap();
    let rows = report["rows"].as_array().unwrap();
    let synthetic = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap()["synthetic"].as_bool();
    assert_eq!((synthetic("random-far-read"), synthetic("leakage-1-20")), (Some(true), None));
    let locality = report["experiments"].as_array().unwrap().iter().find(|e| e["id"] == "locality").unwrap();
    let tables = locality["outcome"]["tables"].as_array().unwrap();
    let both =
        tables.iter().find(|table| table["title"].as_str().unwrap().contains("fin1 (recorded)")).unwrap();
    let row = both["rows"].as_array().unwrap().iter().find(|row| row[0] == "random-far-read").unwrap();
    assert_ne!(row[2], row[4], "the recording has no effect: {row}");
    let page = std::fs::read_to_string(folder.path().join("out/index.html")).unwrap();
    assert!(page.contains("fin1 (synthetic)") && page.contains("fin1 (recorded)"));
}
