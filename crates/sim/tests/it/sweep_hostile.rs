//! Specifications of sweeps from anywhere give errors of one line with their place, never panics or hangs.

use std::path::Path;

use deepram_sim::sweep::Sweep;
use proptest::prelude::*;
use sweeps::SAMPLE;

#[path = "../../../../fuzz/sweeps.rs"]
mod sweeps;

fn parse(text: &str) -> Result<Sweep, String> {
    Sweep::parse("s.toml", text, Path::new("")).map_err(|error| error.to_string())
}

#[test]
fn the_sample_that_is_mutated_is_sound() {
    let sweep = parse(SAMPLE).unwrap();
    // Depths 2 to 16 with one thread and 4 to 16 with two; the reads of 10 us and 32 us.
    assert_eq!(sweep.len(), 2 * 3 * (4 + 3) * 2 * 2);
    for (target, fuzz) in sweeps::TARGETS {
        fuzz(&sweeps::sample(target));
    }
}

#[test]
fn an_error_names_line_and_key_and_what_would_be_right() {
    let head = "system = \"ssd\"\nworkload = \"uniform:span=1MiB,count=9\"\n";
    let cases: &[(&str, &[&str])] = &[
        ("", &["s.toml:1:", "`system` is missing"]),
        ("system = \"sdd\"\nworkload = \"uniform\"", &["s.toml:1:", "did you mean ssd?"]),
        ("system = \"ssd\"", &["neither workload nor trace"]),
        ("system = [\"ssd\"]\nworkload = \"uniform\"", &["below [axes]"]),
        ("system = \"ssd\"\n[axes\n", &["s.toml:2:"]),
        ("HEADdepht = 3", &["s.toml:3:", "did you mean `depth`?"]),
        ("HEAD[axis]\ndepth = [1]", &["s.toml:3:", "did you mean `axes`?"]),
        ("HEAD[axes]\ndepth = 1", &["s.toml:4:", "has one value"]),
        ("HEAD[axes]\ndepht = [1]", &["s.toml:4:", "did you mean `depth`?"]),
        ("HEAD[axes]\ndepth = []", &["s.toml:4:", "no values"]),
        ("HEAD[axes]\ndepth = [1, 2, 1]", &["the value 1 twice"]),
        ("HEADdepth = 1\n[axes]\ndepth = [1]", &["s.toml:5:", "already given on line 3"]),
        ("HEAD[axes]\ndepth = { from = 1, to = 9, stp = 2 }", &["did you mean `step`?"]),
        ("HEAD[axes]\ndepth = { from = 1, to = 9, scale = \"lgo\" }", &["did you mean `log`?"]),
        ("HEAD[axes]\ndepth = { from = 9, to = 1 }", &["s.toml:4:", "axis `depth`", "exchange them"]),
        ("HEAD[axes]\nset.nand.raed = [\"1us\"]", &["s.toml:4:", "did you mean `set.nand.read`?"]),
        ("HEAD[set]\nchanels = 4", &["s.toml:4:", "did you mean `set.channels`?"]),
        ("HEAD[axes]\nworkload.reed = [0.5]", &["s.toml:4:", "did you mean `workload.read`?"]),
        ("HEAD[axes]\nworkload.span = [\"1MiB\"]", &["already in the workload"]),
        (
            "HEAD[axes]\nseed = { from = 1, to = 2000 }\ndepth = { from = 1, to = 2000 }",
            &["1000000 combinations"],
        ),
        ("HEADprocessor = \"nvmm-host\"\ndepth = 4", &["exclude each other"]),
        ("HEADlogging = \"own\"", &["needs clients"]),
        ("HEADconstraints = [\"depht < 4\"]\n[axes]\ndepth = [1]", &["s.toml:3:", "did you mean `depth`?"]),
        ("HEADconstraints = [\"depth < 1\"]\n[axes]\ndepth = [1]", &["none of 1 combinations"]),
        ("HEADconstraints = [\"depth < 1us\"]\n[axes]\ndepth = [1]", &["different units"]),
        ("HEADconstraints = \"depth < 4\"", &["is a list"]),
        ("HEADdepth = 0x10", &["decimal number"]),
        ("HEADconfig = \"nowhere.toml\"", &["s.toml:3:", "nowhere.toml"]),
        ("HEAD[pareto]\nminimise = [\"latency.p99_ns\"]", &["did you mean `minimize`?"]),
    ];
    for (text, parts) in cases {
        let error = parse(&text.replace("HEAD", head)).map(|sweep| sweep.len()).unwrap_err();
        for part in *parts {
            assert!(error.contains(part), "{text:?}: {error:?} does not contain {part:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn mutated_specifications_never_panic(
        changes in prop::collection::vec(
            (0..SAMPLE.len(), 0usize..20, prop_oneof![
                Just(String::new()),
                "\\PC{0,4}",
                Just("\n".to_owned()),
                Just("[axes]\n".to_owned()),
                Just("[".repeat(300)),
                Just("a.".repeat(200)),
                Just("18446744073709551615".to_owned()),
                Just("1e308".to_owned()),
                Just("-1".to_owned()),
                Just("nan".to_owned()),
                Just("\"0.000000000001ps\"".to_owned()),
            ]),
            1..4,
        )
    ) {
        let mut text = SAMPLE.to_owned();
        for (at, length, scrap) in changes {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, &scrap);
            }
        }
        sweeps::sweep(&text);
    }

    #[test]
    fn ranges_from_anywhere_never_panic(
        from in "[0-9]{1,20}(\\.[0-9]{1,4})?(us|MiB|%|GT/s)?",
        to in "[0-9]{1,20}(\\.[0-9]{1,4})?(us|MiB|%|GT/s)?",
        points in 0..20u32,
        scale in "linear|log|powers-of-two",
        key in "seed|depth|dram|think|set.nand.read|set.channels|workload.span|workload.rate",
    ) {
        let text = format!(
            "system = \"ssd\"\nworkload = \"uniform:count=9\"\n[axes]\n\
             {key} = {{ from = \"{from}\", to = \"{to}\", points = {points}, scale = \"{scale}\" }}\n"
        );
        sweeps::sweep(&text);
        sweeps::sweep(&text.replace(&format!("points = {points}, "), ""));
    }
}
