//! The list of planted defects matches the sources: `make planted` finds the place of each edit.

use std::path::Path;

use toml::Table;

#[test]
fn every_planted_defect_has_exactly_one_place() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = std::fs::read_to_string(crate_root.join("tests/planted/defects.toml")).unwrap();
    let list: Table = list.parse().unwrap();
    let defects = list["defect"].as_array().unwrap();
    assert!(defects.len() > 20);
    for defect in defects {
        for edit in defect["edit"].as_array().unwrap() {
            let [file, before, after] = ["file", "before", "after"].map(|key| edit[key].as_str().unwrap());
            let source = std::fs::read_to_string(crate_root.join("../..").join(file))
                .unwrap_or_else(|error| panic!("{file}: {error}"));
            let places = source.matches(before).count();
            assert_eq!(
                places,
                1,
                "{}: {file} has the text in {places} places:\n{before}",
                defect["name"].as_str().unwrap()
            );
            assert_ne!(before, after);
        }
    }
}
