//! Tells the build scripts of the crates that depend on this crate the folder of its sources, and derives the digest of
//! the sources that results depend on: an outcome in the journal of a sweep belongs to one state of the code.

#[path = "source_digest.rs"]
mod source_digest;
#[path = "source_roots.rs"]
mod source_roots;

use std::env;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::metadata=root={}", env::var("CARGO_MANIFEST_DIR")?);
    let sources = source_roots::sources("sim", &["media", "trace"])?;
    println!("cargo::rustc-env=DEEPRAM_SIM_SOURCES={}", source_digest::digest(&sources, &[])?);
    Ok(())
}
