//! Tells the build scripts of the crates that depend on this crate the folder of its sources.

fn main() -> Result<(), std::env::VarError> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=root={}", std::env::var("CARGO_MANIFEST_DIR")?);
    Ok(())
}
