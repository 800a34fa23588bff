//! The registry as users see it: lists, overrides, digests, and errors that say what would be right.

use deepram_media::*;

fn builtin() -> Registry {
    Registry::builtin().unwrap_or_else(|error| panic!("{error}"))
}

fn add(text: &str) -> String {
    let mut registry = builtin();
    let before = registry.list();
    let message = registry.add("my.toml", text).expect_err(text).to_string();
    assert_eq!(registry.list(), before, "a refused file changes nothing");
    message
}

const FAST: &str = r#"
[nand.fast]
about = "ours"
base = "slc"
read = { value = 5, unit = "us", condition = "25 C", source = "our bench" }
"#;

#[test]
fn a_user_file_adds_a_preset_that_starts_from_a_shipped_one() {
    let mut registry = builtin();
    registry.add("my.toml", FAST).unwrap();
    let fast: Nand = registry.get("fast").unwrap();
    let slc: Nand = registry.get("slc").unwrap();
    assert_eq!(fast, Nand { read: Picos::from_us(5), ..slc });
    let sheet = registry.resolve("nand.fast").unwrap();
    assert_eq!(sheet.figure("read").unwrap().location, SourceLocation { file: "my.toml".into(), line: 5 });
    assert_eq!((sheet.about(), sheet.name(), sheet.kind()), ("ours", "fast", PresetKind::Nand));
    let rows = registry.show("fast").unwrap();
    let read = rows.iter().find(|row| row.key == "read").unwrap();
    assert_eq!((read.value.as_str(), read.unit.as_str()), ("5", "us"));
    assert_eq!((read.condition.as_deref(), read.source.as_str()), (Some("25 C"), "our bench"));
    let power = rows.iter().find(|row| row.key == "erase_power").unwrap();
    assert_eq!((power.value.as_str(), power.unit.as_str()), ("115.5", "mW"));
    assert!(power.source.starts_with("derived: "));
}

#[test]
fn an_unknown_key_is_an_error_with_the_nearest_valid_one() {
    let message = add(&FAST.replace("read =", "raed ="));
    assert_eq!(message, "my.toml:5: unknown key `nand.fast.raed`; did you mean `read`?");
    let message = add(&FAST.replace("[nand.fast]", "[nadn.fast]"));
    assert_eq!(message, "my.toml:2: unknown key `nadn`; did you mean `nand`?");
    let message = add(&FAST.replace("unit =", "units ="));
    assert_eq!(message, "my.toml:5: unknown key `nand.fast.read.units`; did you mean `unit`?");
    let message = add(&FAST.replace("read =", "zzzzzzzzzzzz ="));
    assert_eq!(message, "my.toml:5: unknown key `nand.fast.zzzzzzzzzzzz`");
    let message = add(
        "[ssd.x]\nbase = \"tlc\"\n[ssd.x.nand]\nbase = \"slc\"\npgae = { value = 8, unit = \"KiB\", source = \"s\" }\n",
    );
    assert_eq!(message, "my.toml:5: unknown key `ssd.x.nand.pgae`; did you mean `page`?");
}

#[test]
fn a_unit_of_another_dimension_is_an_error_that_lists_the_right_ones() {
    let message = add(&FAST.replace("\"us\"", "\"MB\""));
    assert_eq!(message, "my.toml:5: `nand.fast.read` has the unit `MB`; expected ps, ns, us, ms or s");
}

#[test]
fn a_value_that_cannot_be_the_figure_is_an_error() {
    for (value, expected) in [
        ("-5", "`-5` is not a non-negative decimal number"),
        ("nan", "`nan` is not a non-negative decimal number"),
        ("inf", "`inf` is not a non-negative decimal number"),
        ("0.0000001", "0.0000001 us is not a whole number of ps"),
        ("9000000000000000", "9000000000000000 us is out of range; the largest valid value is 1000000 s"),
        ("\"5\"", "expected a decimal number, found string"),
        ("true", "expected a decimal number, found boolean"),
        ("0x10", "expected a decimal number, found integer"),
        ("[1]", "expected a decimal number, found array"),
    ] {
        let message = add(&FAST.replace("value = 5", &format!("value = {value}")));
        assert_eq!(message, format!("my.toml:5: `nand.fast.read`: {expected}"));
    }
    let message = add("[nand.x]\nbase = \"slc\"\nplanes = { value = 0, unit = \"count\", source = \"s\" }\n");
    assert_eq!(message, "my.toml:3: `nand.x.planes`: must be at least 1");
    let message =
        add("[nand.x]\nbase = \"slc\"\ncell = { value = \"qlc\", unit = \"name\", source = \"s\" }\n");
    assert_eq!(message, "my.toml:3: `nand.x.cell`: `qlc` is not valid; expected one of slc, mlc, tlc");
    let message = add("[nand.x]\nbase = \"slc\"\nread = 5\n");
    assert!(message.starts_with("my.toml:3: `nand.x.read`: expected { value"), "{message}");
    let message = add("[nand]\nslc = 5\n");
    assert_eq!(message, "my.toml:2: `nand.slc`: expected a table of figures");
}

#[test]
fn a_figure_needs_its_value_unit_and_source_and_a_preset_its_figures() {
    let message = add(&FAST.replace(", source = \"our bench\"", ""));
    assert!(message.starts_with("my.toml:5: `nand.fast.read.source` is missing"), "{message}");
    let message = add(&FAST.replace("our bench", " "));
    assert!(message.starts_with("my.toml:5: `nand.fast.read.source` is missing"), "{message}");
    let message = add(&FAST.replace("unit = \"us\", ", ""));
    assert!(message.starts_with("my.toml:5: `nand.fast.read.unit` is missing"), "{message}");
    let message = add(&FAST.replace("base = \"slc\"", ""));
    assert!(message.starts_with("my.toml:2: `nand.fast.cell` is missing: Bits a cell"), "{message}");
}

#[test]
fn a_stated_value_that_does_not_follow_is_an_error() {
    let text = format!("{FAST}page_transfer = {{ value = 10, unit = \"us\", source = \"s\" }}\n");
    assert_eq!(
        add(&text),
        "my.toml:6: `nand.fast.page_transfer` is stated as 10 us, but bytes of a page on the bus over \
         the bandwidth gives 10.24 us"
    );
    let text = text.replace("value = 10,", "value = 10.25,");
    let mut registry = builtin();
    registry.add("my.toml", &text).unwrap();
    let link = "[link.x]\nbase = \"pcie3-x1\"\nbandwidth = { value = 1, unit = \"GB/s\", source = \"s\" }\n";
    assert!(add(link).contains("gives 984.6154 MB/s"), "{}", add(link));
}

#[test]
fn broken_toml_and_broken_bases_say_where() {
    assert!(add("[nand.x]\nbase = \n").starts_with("my.toml:2: "));
    let message = add("[nand.x]\nbase = \"slk\"\n");
    assert_eq!(message, "my.toml:2: there is no nand preset `slk`; did you mean `slc`?");
    let message = add("[nand.x]\nbase = \"y\"\n[nand.y]\nbase = \"x\"\n");
    assert!(message.contains("is based on itself"), "{message}");
    let message = add("[nand.X]\nbase = \"slc\"\n");
    assert!(message.contains("a-z, 0-9 and -"), "{message}");
    let long = format!("# {}\n", "x".repeat(1 << 20));
    assert!(add(&long).contains("longer than"));
    // When a preset is replaced, the presets based on it are checked again.
    let message = add(
        "[link.pcie3-x1]\nbase = \"sata-6\"\nlanes = { value = 99999, unit = \"count\", source = \"s\" }\n",
    );
    assert!(message.contains("must be at most 65536"), "{message}");
}

#[test]
fn names_are_found_alone_or_with_their_kind_and_near_misses_are_named() {
    let registry = builtin();
    let error = |name: &str| registry.resolve(name).expect_err(name).to_string();
    assert!(error("slcc").ends_with("there is no preset `slcc`; did you mean `slc`?"));
    assert!(error("nand.slcc").ends_with("did you mean `nand.slc`?"));
    assert!(error("ddr3-1600").ends_with("did you mean `dram.ddr3-1600` or `link.ddr3-1600`?"));
    assert!(registry.get::<Dram>("ddr3-1600").is_ok(), "the type selects the kind of preset");
    assert!(registry.get::<Link>("ddr3-1600").is_ok());
    let of = |kind, name| registry.resolve_of(kind, name, &[]).map(|preset| preset.full_name());
    assert_eq!(of(PresetKind::Link, "ddr3-1600").unwrap(), "link.ddr3-1600");
    assert_eq!(of(PresetKind::Nand, "dram.ddr3-1600").unwrap(), "dram.ddr3-1600");
    assert_eq!(of(PresetKind::Nand, "slcc").unwrap_err().to_string(), error("nand.slcc"));
    let message = registry.get::<Nand>("dram.ddr3-1600").unwrap_err().to_string();
    assert_eq!(message, "`dram.ddr3-1600` is a preset of kind `dram`, not `nand`");
}

#[test]
fn overrides_are_checked_as_presets_are() {
    let registry = builtin();
    let error = |set: &str| registry.resolve_with("mqsim-def", &[set]).expect_err(set).to_string();
    assert_eq!(error("nand.raed=5us"), "--set:1: unknown key `nand.raed`; did you mean `nand.read`?");
    assert_eq!(error("nand.read=5"), "--set:1: `nand.read` has no unit; expected ps, ns, us, ms or s");
    assert_eq!(
        error("nand.read=5MB"),
        "--set:1: `nand.read` has the unit `MB`; expected ps, ns, us, ms or s"
    );
    assert_eq!(error("channels"), "--set:1: `channels`: expected key=value, as in nand.read=30us");
    assert!(error("victim=greedyy").contains("expected one of greedy, greedy-of-random"));
    assert_eq!(
        error("over_provisioning=1"),
        "--set:1: `ssd.mqsim-def.over_provisioning`: must be less than 1, or no capacity is left for the host"
    );
    assert_eq!(
        error("over_provisioning=107%"),
        "--set:1: `over_provisioning`: 107 % exceeds 1; expected a share from 0 to 1"
    );
    assert!(error("nand.base=slk").ends_with("did you mean `slc`?"));
    assert!(error("raw_capacity=1TiB").contains("is stated as 1 TiB, but"));
    let ssd: Ssd = registry
        .get_with("mqsim-def", &["channels=16", "victim=cost-benefit", "write_cache=false", "nand.read=30us"])
        .unwrap();
    assert_eq!((ssd.channels, ssd.victim, ssd.write_cache), (16, VictimChoice::CostBenefit, false));
    assert_eq!(ssd.nand.read, Picos::from_us(30));
    assert_eq!(ssd.raw_bytes(), Bytes(1 << 40));
    let ssd: Ssd = registry.get_with("tlc", &["nand.base=z-nand", "link.base=pcie4-x4"]).unwrap();
    assert_eq!(ssd.nand, registry.get::<Nand>("z-nand").unwrap());
    assert_eq!(ssd.link, registry.get::<Link>("pcie4-x4").unwrap());
}

#[test]
fn the_digest_is_of_the_values_and_of_nothing_else() {
    let registry = builtin();
    let digest = |name: &str, set: &[&str]| registry.resolve_with(name, set).unwrap().digest();
    let plain = digest("slc", &[]);
    assert_eq!(plain.len(), 64);
    assert_eq!(plain, digest("slc", &["read=25000ns"]), "another unit, another source");
    assert_eq!(
        plain,
        digest("mlc-75us", &["cell=slc", "read=25us", "program=200us", "erase=1.5ms", "endurance=100000"])
    );
    assert_ne!(plain, digest("slc", &["read=25001ns"]));
    assert_ne!(digest("mqsim-def", &[]), digest("mqsim-def", &["nand.read=76us"]));
    let all: std::collections::BTreeSet<String> =
        registry.list().iter().map(|e| digest(&format!("{}.{}", e.kind.word(), e.name), &[])).collect();
    // Some digests are equal: configurations of the hybrid cache share arrays, and the FlatFlash DRAM differs only in price.
    assert!(all.len() >= registry.list().len() - 3, "{} of {}", all.len(), registry.list().len());
}

#[test]
fn the_list_is_in_order_and_complete() {
    let list = builtin().list();
    let names: Vec<_> = list.iter().map(|e| format!("{}.{}", e.kind.word(), e.name)).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    for name in [
        "dram.ddr3-1600",
        "dram.ddr4-2400",
        "pcm.pcm-optimistic",
        "pcm.pcm-expected",
        "nand.slc",
        "nand.slc-2",
        "nand.slc-4",
        "nand.slc-8",
        "nand.mlc-50us",
        "nand.mlc-75us",
        "nand.flash-cache-slc",
        "nand.flash-cache-mlc",
        "nand.z-nand",
        "nand.tlc-3d",
        "nand.hybrid",
        "array.hybrid-42-dram",
        "array.hybrid-1-20-pcm",
        "disk.barracuda-7200-7",
        "disk.ultrastar-15k450",
        "disk.flash-cache-ide",
        "link.ddr3-1600",
        "link.onfi-800",
        "link.pcie1-x1",
        "link.pcie5-x16",
        "link.sata-1-5",
        "link.disksim-pcie-x8",
        "pmem.optane",
        "ssd.disksim-ssd",
        "ssd.mqsim-def",
        "ssd.mqsim-s8",
        "ssd.z-ssd",
        "ssd.tlc",
        "ssd.hybrid",
    ] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
    for kind in PresetKind::ALL {
        assert_eq!(PresetKind::from_word(kind.word()), Some(*kind));
        assert!(list.iter().any(|e| e.kind == *kind), "{kind:?}");
    }
}
