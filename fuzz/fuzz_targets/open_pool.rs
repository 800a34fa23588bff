//! The fuzz target that opens a hostile pool; see `harness.rs`. Run it from the repository's root with
//! `cargo +nightly fuzz run open_pool`.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../harness.rs"]
mod harness;

static BASES: OnceLock<Vec<harness::Base>> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    harness::run(BASES.get_or_init(harness::bases), input);
});
