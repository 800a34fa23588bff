//! One target for every parser, each a binary of its own out of this file: the binary's name says which.
//! `cargo +nightly fuzz list` names them.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "samples are for seeds and tests")]
#[path = "../presets.rs"]
mod presets;
#[expect(dead_code, reason = "samples are for seeds and tests")]
#[path = "../traces.rs"]
mod traces;

static PARSER: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env!("CARGO_BIN_NAME");
    let mut targets = traces::TARGETS.iter().chain(presets::TARGETS);
    targets.find(|(target, _)| *target == name).expect("the binary has the name of a target").1
});

fuzz_target!(|input: &[u8]| PARSER(input));
