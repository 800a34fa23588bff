//! Derives the digest of the sources that the metrics of a run depend on: a result in the cache of runs belongs to one
//! state of the code.
//!
//! The sources are those of this crate and of deepram's crates that this crate uses, with the presets. Cargo.lock stands
//! for all other crates. Files that only judge or show finished runs are left out: a changed text of a claim or of the
//! page leaves the results valid.

#[path = "src/source_digest.rs"]
mod source_digest;

use std::env;
use std::error::Error;
use std::path::PathBuf;

/// The crates whose build scripts tell the folder of their sources. The core crate has no build script; it lies beside
/// them, in the workspace as well as in a registry.
const CRATES: [&str; 3] = ["media", "trace", "sim"];

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
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut roots = vec![("repro", own.clone())];
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
    println!("cargo::rerun-if-changed=build.rs");
    for (_, path) in &sources {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let digest = source_digest::digest(&sources, &WITHOUT)?;
    println!("cargo::rustc-env=DEEPRAM_REPRO_SOURCES={digest}");
    Ok(())
}
