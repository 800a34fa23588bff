//! Damaged files and overrides give errors, never panics, hangs or impossible values.

use deepram_media::*;
use presets::{BUILTIN, SAMPLE};
use proptest::prelude::*;

#[path = "../../../../fuzz/presets.rs"]
mod presets;

#[test]
fn the_sample_that_is_mutated_is_sound() {
    let mut registry = BUILTIN.clone();
    registry.add("sample.toml", SAMPLE).unwrap();
    let ssd: Ssd = registry.get("ssd.mine").unwrap();
    assert_eq!((ssd.nand.planes, ssd.nand.read), (4, Picos::from_us(5)));
    presets::presets(SAMPLE);
}

/// Draws one mutation of a text: an offset, the number of bytes to remove there, and the text to insert.
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
        presets::presets(&text);
    }

    #[test]
    fn mutated_numbers_never_panic(key in 0usize..6, value in "[0-9]{1,20}(\\.[0-9]{1,6})?(e[0-9]{1,2})?") {
        let old = ["value = 5,", "value = 4,", "value = 1.8,", "value = 12.5,", "value = 1.6e1,", "value = 5400,"][key];
        presets::presets(&SAMPLE.replace(old, &format!("value = {value},")));
    }

    #[test]
    fn overrides_from_anywhere_never_panic(key in "[a-z_.]{0,20}", value in "\\PC{0,12}", pick in any::<prop::sample::Index>()) {
        let keys = PresetKind::Ssd.keys();
        let real = &keys[pick.index(keys.len())].key;
        for name in ["mqsim-def", "disksim-ssd"] {
            let _ = BUILTIN.resolve_with(name, &[&format!("{key}={value}")]);
            let _ = BUILTIN.resolve_with(name, &[&format!("{real}={value}")]);
            let _ = BUILTIN.resolve_with(name, &[&value]);
        }
        let _ = BUILTIN.resolve(&value);
    }

    #[test]
    fn quantities_from_anywhere_never_panic(
        number in "[0-9._eE+-]{0,12}", blank in " {0,2}", unit in "([kKMGTPE]i?)?B?|[munp]?s|µs|%|/s|\\PC{0,4}"
    ) {
        presets::units(&format!("{number}{blank}{unit}"));
    }

    #[test]
    fn mutated_overrides_never_panic(cut in any::<prop::sample::Index>(), scrap in "\\PC{0,6}|\n") {
        for (target, parse) in presets::TARGETS {
            let mut text = presets::sample(target);
            let at = cut.index(text.len());
            text.splice(at..at, scrap.bytes());
            parse(&text);
        }
    }
}
