//! Fuzz functions for preset files, overrides and units. For any bytes the result is an error, or a value that can be
//! shown, digested and used in computations; never a panic.
//!
//! The fuzz targets and `crates/media/tests/hostile.rs` share this file.

use std::sync::LazyLock;

use deepram_core::units::{Bytes, ParseUnitError, Picos, parse_count, parse_rate, parse_share};
use deepram_media::{Disk, Dram, NandOp, Registry, RowState, Ssd};

/// A function that a fuzz target calls with arbitrary bytes.
pub(crate) type Target = fn(&[u8]);

/// Every target of this file: its name and its function.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("presets", |data| presets(&String::from_utf8_lossy(data))),
    ("overrides", |data| overrides(&String::from_utf8_lossy(data))),
    ("units", |data| units(&String::from_utf8_lossy(data))),
];

/// The built-in presets.
pub(crate) static BUILTIN: LazyLock<Registry> =
    LazyLock::new(|| Registry::builtin().expect("the shipped presets are sound"));

/// A user's file that uses most features of the format.
pub(crate) const SAMPLE: &str = r#"# a user's file
[nand.mine]
about = "ours"
base = "slc"
read = { value = 5, unit = "us", condition = "25 C", source = "bench" }
planes = { value = 4, unit = "count", source = "sheet" }
supply = { value = 1.8, unit = "V", source = "sheet" }
cell = { value = "mlc", unit = "name", source = "sheet" }

[ssd.mine]
base = "tlc"
channels = { value = 2, unit = "count", source = "sheet" }
over_provisioning = { value = 12.5, unit = "%", source = "sheet" }
write_cache = { value = false, unit = "flag", source = "sheet" }
[ssd.mine.nand]
base = "mine"
[ssd.mine.link]
base = "pcie4-x2"
rate = { value = 1.6e1, unit = "GT/s", source = "sheet" }

[dram.mine]
base = "ddr4-2400"
t_rfc = { value = 300, unit = "ns", source = "sheet" }

[disk.mine]
base = "barracuda-7200-7"
rotation = { value = 5400, unit = "rpm", source = "sheet" }
rotational_latency = { value = 5.556, unit = "ms", source = "sheet" }
"#;

/// Returns a small valid input for each target.
pub(crate) fn sample(target: &str) -> Vec<u8> {
    match target {
        "presets" => SAMPLE.into(),
        "overrides" => "mqsim-def\nchannels=16\nnand.read=30us\nvictim=cost-benefit\nnand.base=slc\n".into(),
        "units" => "1.5GiB".into(),
        other => panic!("no sample for {other}"),
    }
}

/// Checks that an error message is one line that a terminal can show.
fn message(error: &dyn std::error::Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 2000 && !text.contains(char::is_control), "{text:?}");
}

/// Parses the text as a preset file. Accepted presets are also shown, digested and used in computations.
pub(crate) fn presets(text: &str) {
    let mut registry = BUILTIN.clone();
    if let Err(error) = registry.add("hostile.toml", text) {
        return message(&error);
    }
    for entry in registry.list().iter().filter(|entry| entry.name == "mine") {
        let name = format!("{}.{}", entry.kind.word(), entry.name);
        registry.show(&name).expect("what was accepted can be shown");
        registry.resolve(&name).expect("what was accepted can be read").digest();
        if let Ok(ssd) = registry.get::<Ssd>(&name) {
            let _ = (ssd.idle_read(), ssd.host_bytes(), ssd.mapping_bytes(), ssd.planes());
            let _ = ssd.nand.interleaved_time(NandOp::Program, u64::MAX);
            let _ = ssd.nand.idle_latency(NandOp::Read, u64::MAX);
            let _ = ssd.link.transfer(Bytes(u64::MAX));
        }
        if let Ok(dram) = registry.get::<Dram>(&name) {
            let _ = dram.stream(RowState::Conflict, true, Bytes(u64::MAX));
            let _ = dram.ranks_for(Bytes(u64::MAX));
        }
        if let Ok(disk) = registry.get::<Disk>(&name) {
            let _ = disk.random(Bytes(u64::MAX), true);
        }
    }
}

/// Takes the first line as the name of a preset, and the other lines as overrides of it.
pub(crate) fn overrides(text: &str) {
    let mut lines = text.lines();
    let name = lines.next().unwrap_or("");
    let sets: Vec<&str> = lines.take(16).collect();
    match BUILTIN.resolve_with(name, &sets) {
        Ok(sheet) => drop((sheet.digest(), sheet.rows())),
        Err(error) => message(&error),
    }
}

/// Parses the text as each kind of quantity. An accepted quantity must survive being written in its base unit and
/// parsed again.
pub(crate) fn units(text: &str) {
    fn read<T>(result: Result<T, ParseUnitError>) -> Option<T> {
        if let Err(error) = &result {
            message(error);
        }
        result.ok()
    }
    if let Some(bytes) = read(text.parse::<Bytes>()) {
        assert_eq!(format!("{} B", bytes.0).parse(), Ok(bytes));
        assert!(!bytes.to_string().is_empty());
    }
    if let Some(time) = read(text.parse::<Picos>()) {
        assert_eq!(format!("{}ps", time.0).parse(), Ok(time));
    }
    if let Some(count) = read(parse_count(text)) {
        assert_eq!(parse_count(&count.to_string()), Ok(count));
    }
    if let Some(rate) = read(parse_rate(text)) {
        assert!(rate.is_finite() && rate > 0.0);
    }
    if let Some(share) = read(parse_share(text)) {
        assert!((0.0..=1.0).contains(&share));
    }
}
