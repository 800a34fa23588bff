//! The sources that the results of a crate depend on. Build scripts include this file.

use std::env;
use std::error::Error;
use std::path::PathBuf;

/// The sources of this crate, called `own`, and of deepram's crates that it uses, with the presets, each with the name that stands
/// for its path. Cargo.lock stands for all other crates. Cargo runs the build script again when one of them changes.
///
/// The build scripts of the crates in `used` tell the folder of their sources. The core crate has no build script; it lies beside
/// them, in the workspace as well as in a registry.
pub(crate) fn sources(own: &str, used: &[&str]) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut roots = vec![(own, here.clone())];
    for name in used {
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
    sources.push(("workspace/Cargo.lock".into(), here.join("../../Cargo.lock")));
    sources.push(("package/Cargo.lock".into(), here.join("Cargo.lock")));
    sources.retain(|(_, path)| path.exists());
    println!("cargo::rerun-if-changed=build.rs");
    for (_, path) in &sources {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Ok(sources)
}
