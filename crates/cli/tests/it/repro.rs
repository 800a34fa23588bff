//! `deepram repro` on the command line. The tests of the reproductions themselves are in `crates/repro`.

use crate::common::{deepram, folder};

#[test]
fn every_paper_and_all_of_them_can_be_named_and_a_part_belongs_to_one() {
    let folder = folder();
    let help = deepram(folder.path(), &["repro", "--help"]);
    assert!(help.out.contains("nvmm, flatflash, validation, all"), "{help:?}");
    let part = deepram(folder.path(), &["repro", "all", "--only", "gups"]);
    assert!(part.status == 2 && part.err.contains("give the paper"), "{part:?}");
    let former = deepram(folder.path(), &["repro", "ground"]);
    assert!(former.status == 2 && former.err.contains("deepram repro validation"), "{former:?}");
    let unknown = deepram(folder.path(), &["repro", "flatflash", "--only", "gubs"]);
    assert!(unknown.status == 2 && unknown.err.contains("gups"), "{unknown:?}");
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
