//! Derives the digest of the sources that the metrics of a run depend on: a result in the cache of runs belongs to one
//! state of the code.
//!
//! Files that only judge or show finished runs are left out: a changed text of a claim or of the
//! page leaves the results valid.

#[path = "src/source_digest.rs"]
mod source_digest;
#[path = "source_roots.rs"]
mod source_roots;

use std::error::Error;

/// Files of this crate without influence on the metrics of a run.
const WITHOUT: [&str; 7] = [
    "repro/src/html/",
    "repro/src/svg/",
    "repro/src/nvmm/claims",
    "repro/src/flatflash/claims",
    "repro/src/ssd_buffer/claims",
    "repro/src/disk_cache/claims",
    "repro/src/pmem/claims",
];

fn main() -> Result<(), Box<dyn Error>> {
    let sources = source_roots::sources("repro", &["media", "trace", "sim"])?;
    let digest = source_digest::digest(&sources, &WITHOUT)?;
    println!("cargo::rustc-env=DEEPRAM_REPRO_SOURCES={digest}");
    Ok(())
}
