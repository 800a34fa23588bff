//! Files and overrides from anywhere give errors, never panics, hangs or nonsense.

use std::sync::LazyLock;

use deepram_media::*;
use proptest::prelude::*;

static BUILTIN: LazyLock<Registry> = LazyLock::new(|| Registry::builtin().unwrap());

const SAMPLE: &str = r#"# a user's file
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

/// Reads it; whatever is accepted must also be shown, digested and computed with.
fn swallow(text: &str) {
    let mut registry = BUILTIN.clone();
    if let Err(error) = registry.add("hostile.toml", text) {
        let message = error.to_string();
        assert!(!message.is_empty() && message.len() < 2_000 && !message.contains('\n'), "{message}");
        return;
    }
    for entry in registry.list().iter().filter(|entry| entry.name == "mine") {
        let name = format!("{}.{}", entry.kind.word(), entry.name);
        registry.show(&name).unwrap();
        registry.sheet(&name).unwrap().digest();
        if let Ok(ssd) = registry.get::<Ssd>(&name) {
            let _ = (ssd.idle_read(), ssd.host_bytes(), ssd.mapping_bytes(), ssd.planes());
            let _ = ssd.nand.interleaved(NandOp::Program, u64::MAX);
            let _ = ssd.nand.single(NandOp::Read, u64::MAX);
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

#[test]
fn the_sample_that_is_mutated_is_sound() {
    let mut registry = BUILTIN.clone();
    registry.add("sample.toml", SAMPLE).unwrap();
    let ssd: Ssd = registry.get("ssd.mine").unwrap();
    assert_eq!((ssd.nand.planes, ssd.nand.read), (4, Picos::from_us(5)));
    swallow(SAMPLE);
}

/// One change of a text: bytes at a place replaced by others.
fn mutation() -> impl Strategy<Value = (usize, usize, String)> {
    let scraps = prop_oneof![
        Just(String::new()),
        "\\PC{0,4}",
        Just("\0".to_owned()),
        Just("\n".to_owned()),
        Just("[".repeat(300)),
        Just("{a=".repeat(200)),
        Just("18446744073709551615".to_owned()),
        Just("1e308".to_owned()),
        Just("-0".to_owned()),
        Just("nan".to_owned()),
        Just("0.000000000000000000000001".to_owned()),
        Just("1099511627776".to_owned()),
        Just("[ssd.mine]\n".to_owned()),
        Just("base = \"mine\"\n".to_owned()),
        Just("nand".to_owned()),
        Just("\"".to_owned()),
        Just("'''".to_owned()),
    ];
    (0..SAMPLE.len(), 0usize..20, scraps)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn mutated_files_never_panic(changes in prop::collection::vec(mutation(), 1..4)) {
        let mut text = SAMPLE.to_owned();
        for (at, length, scrap) in changes {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, &scrap);
            }
        }
        swallow(&text);
    }

    #[test]
    fn mutated_numbers_never_panic(key in 0usize..6, value in "[0-9]{1,20}(\\.[0-9]{1,6})?(e[0-9]{1,2})?") {
        let old = ["value = 5,", "value = 4,", "value = 1.8,", "value = 12.5,", "value = 1.6e1,", "value = 5400,"][key];
        swallow(&SAMPLE.replace(old, &format!("value = {value},")));
    }

    #[test]
    fn overrides_from_anywhere_never_panic(key in "[a-z_.]{0,20}", value in "\\PC{0,12}", pick in any::<prop::sample::Index>()) {
        let keys = Kind::Ssd.keys();
        let real = &keys[pick.index(keys.len())].key;
        for name in ["mqsim-def", "disksim-ssd"] {
            let _ = BUILTIN.sheet_with(name, &[&format!("{key}={value}")]);
            let _ = BUILTIN.sheet_with(name, &[&format!("{real}={value}")]);
            let _ = BUILTIN.sheet_with(name, &[&value]);
        }
        let _ = BUILTIN.sheet(&value);
    }
}
