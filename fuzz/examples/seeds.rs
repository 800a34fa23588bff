//! Writes a first input for every fuzz target to `fuzz/corpus`, because a fuzzer makes faster progress from a sound
//! sample. `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.

use std::path::Path;

#[path = "../ecc.rs"]
mod ecc;
#[path = "../presets.rs"]
mod presets;
#[path = "../sweeps.rs"]
mod sweeps;
#[path = "../traces.rs"]
mod traces;

fn main() -> std::io::Result<()> {
    let write = |target: &str, sample: Vec<u8>| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("sample"), sample)
    };
    for (target, _) in traces::TARGETS {
        write(target, traces::sample(target))?;
    }
    for (target, _) in presets::TARGETS {
        write(target, presets::sample(target))?;
    }
    for (target, _) in ecc::TARGETS {
        write(target, ecc::sample(target))?;
    }
    for (target, _) in sweeps::TARGETS {
        write(target, sweeps::sample(target))?;
    }
    Ok(())
}
