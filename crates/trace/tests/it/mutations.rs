//! No parser panics, hangs or runs out of memory on randomly damaged samples.

use deepram_trace::workload::{Rng, Spec, WORKLOADS};
use traces::{TARGETS, sample};

#[path = "../../../../fuzz/traces.rs"]
mod traces;

fn mutate(data: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(data.len() as u64 + 1) as usize;
        match rng.below(7) {
            0 if at < data.len() => data[at] ^= 1 << rng.below(8),
            1 if at < data.len() => data[at] = rng.bits() as u8,
            2 => data.truncate(at),
            3 => data.insert(at, [0, b'9', b'-', b'.', b',', b' ', b'\n', 0xff][rng.below(8) as usize]),
            4 => {
                let digits = b"18446744073709551615";
                data.splice(at..at, digits[..1 + rng.below(20) as usize].iter().copied());
            }
            5 if at < data.len() => drop(data.remove(at)),
            _ => {
                let copy = data.clone();
                data.extend_from_slice(&copy[at..]);
                data.truncate(1 << 16);
            }
        }
    }
}

/// Returns a setting from the environment: DEEPRAM_SEED, or DEEPRAM_MUTATIONS, the number of mutations of each sample.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

#[test]
fn mutations_of_each_sample_are_survived() {
    let seed = setting("DEEPRAM_SEED", 20_000);
    println!("seed {seed}: rerun with DEEPRAM_SEED={seed}");
    for (name, parse) in TARGETS {
        let clean = sample(name);
        parse(&clean);
        let mut rng = Rng::new(seed, name);
        for _ in 0..setting("DEEPRAM_MUTATIONS", 10_000) {
            let mut data = clean.clone();
            mutate(&mut data, &mut rng);
            parse(&data);
        }
    }
}

#[test]
fn mutated_workload_texts_of_every_name_are_survived() {
    let seed = setting("DEEPRAM_SEED", 1);
    println!("seed {seed}: rerun with DEEPRAM_SEED={seed}");
    let mut rng = Rng::new(seed, "specs");
    let parse = TARGETS.iter().find(|(name, _)| *name == "workload").expect("there is such a target").1;
    for w in WORKLOADS {
        let spec: Spec = w.name.parse().unwrap();
        let clean = spec.to_string().into_bytes();
        for _ in 0..500 {
            let mut data = clean.clone();
            mutate(&mut data, &mut rng);
            parse(&data);
        }
    }
}

#[test]
fn every_format_has_a_target_and_so_has_every_binary_of_the_fuzz_workspace() {
    let manifest = include_str!("../../../../fuzz/Cargo.toml");
    let binaries: Vec<&str> =
        manifest.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    for (name, _) in TARGETS {
        assert!(binaries.contains(name), "fuzz/Cargo.toml has no target {name}");
    }
    let of_formats = TARGETS.iter().filter(|(name, _)| {
        name.starts_with("trace_") && !["any", "gzip", "zstd", "compact_sound"].contains(&&name[6..])
    });
    assert_eq!(of_formats.count(), deepram_trace::FORMATS.len());
}
