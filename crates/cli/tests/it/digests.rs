//! Simulated results stay the same unless a change means to change them.
//!
//! `digests/simulated.txt` lists runs of `deepram sim` and a digest of the values that each prints. The digest covers every
//! number and truth value but no name, so a renamed key does not change it. `DEEPRAM_RECORD=1 cargo test -p deepram --test it
//! digests` records the digests anew; a commit that does so says which results changed, and why.

use crate::common::{deepram, folder};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/digests/simulated.txt");

/// Returns the FNV-1a digest of the numbers and truth values in `json`, in sorted order. Strings are left out.
fn digest_of_values(json: &str) -> u64 {
    let mut values = Vec::new();
    for (index, part) in json.split('"').enumerate() {
        assert!(!part.ends_with('\\'), "the digest does not understand an escaped quote");
        if index % 2 == 0 {
            let separates = |c: char| c.is_whitespace() || "{}[]:,".contains(c);
            values.extend(part.split(separates).filter(|value| !value.is_empty() && *value != "null"));
        }
    }
    values.sort_unstable();
    let bytes = values.iter().flat_map(|value| value.bytes().chain([b',']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn simulated_results_are_the_recorded_ones() {
    let folder = folder();
    let recorded = std::fs::read_to_string(RECORDED).expect("the list of runs");
    let mut now = String::new();
    for line in recorded.lines() {
        let (_, arguments) = line.split_once("  ").expect("a digest, two spaces, arguments");
        let all: Vec<&str> = ["sim"].into_iter().chain(arguments.split(' ')).chain(["--json"]).collect();
        let result = deepram(folder.path(), &all).good();
        now.push_str(&format!("{:016x}  {arguments}\n", digest_of_values(&result)));
    }
    if std::env::var_os("DEEPRAM_RECORD").is_some() {
        std::fs::write(RECORDED, &now).expect("writing the digests");
    }
    assert_eq!(recorded, now, "results changed: if they should, record them (see the head of this file)");
}
