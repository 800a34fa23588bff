//! Tells the build scripts of the crates that depend on this crate the folder of its sources, and derives the digest of
//! the sources that results depend on: an outcome in the journal of a sweep belongs to one state of the code.
//!
//! The sources are those of this crate and of deepram's crates that it uses, with the presets. Cargo.lock stands for all
//! other crates.

#[path = "source_digest.rs"]
mod source_digest;

use std::env;
use std::error::Error;
use std::path::PathBuf;

/// The crates whose build scripts tell the folder of their sources. The core crate has no build script; it lies beside
/// them, in the workspace as well as in a registry.
const CRATES: [&str; 2] = ["media", "trace"];

fn main() -> Result<(), Box<dyn Error>> {
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=root={}", own.display());
    let mut roots = vec![("sim", own.clone())];
    for name in CRATES {
        let root = env::var(format!("DEP_DEEPRAM_{}_ROOT", name.to_uppercase()))?;
        roots.push((name, PathBuf::from(root)));
    }
    let beside = roots[1].1.parent().ok_or("the folder of deepram-media has no parent")?;
    let names = ["core".to_owned(), format!("deepram-core-{}", env::var("CARGO_PKG_VERSION")?)];
    let core = names.iter().map(|name| beside.join(name)).find(|root| root.join("src/lib.rs").exists());
    roots.push(("core", core.ok_or_else(|| format!("{}: no folder {names:?}", beside.display()))?));
    let mut sources = Vec::new();
    for (name, root) in roots {
        sources.extend(["src", "presets"].map(|folder| (format!("{name}/{folder}"), root.join(folder))));
    }
    // The workspace has one lock file; a packaged crate has its own.
    sources.push(("workspace/Cargo.lock".into(), own.join("../../Cargo.lock")));
    sources.push(("package/Cargo.lock".into(), own.join("Cargo.lock")));
    sources.retain(|(_, path)| path.exists());
    for (_, path) in &sources {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=DEEPRAM_SIM_SOURCES={}", source_digest::digest(&sources, &[])?);
    Ok(())
}
