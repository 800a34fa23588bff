//! The fuzz targets of all parsers and of the error-correcting codes: each is a separate binary built from this file,
//! which selects the function by the binary's name. `cargo +nightly fuzz list` lists them.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "samples are for seeds and tests")]
#[path = "../ecc.rs"]
mod ecc;
#[expect(dead_code, reason = "samples are for seeds and tests")]
#[path = "../presets.rs"]
mod presets;
#[expect(dead_code, reason = "samples are for seeds and tests")]
#[path = "../sweeps.rs"]
mod sweeps;
#[expect(dead_code, reason = "samples are for seeds and tests")]
#[path = "../traces.rs"]
mod traces;

static PARSER: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env!("CARGO_BIN_NAME");
    let mut targets = traces::TARGETS.iter().chain(presets::TARGETS).chain(ecc::TARGETS).chain(sweeps::TARGETS);
    targets.find(|(target, _)| *target == name).expect("the binary has the name of a target").1
});

fuzz_target!(|input: &[u8]| PARSER(input));
