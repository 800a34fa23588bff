//! Errors in a trace, preset, workload or option name the file, line or key, and say what would be right.
//! Wrong usage ends with status 2, a wrong file with status 1.

use std::io::Write;
use std::path::Path;

use crate::common::{deepram, folder};

/// Runs a command that must fail with this status and whose error must contain all of `named`. Errors of
/// clap may have any number of lines.
fn fails(folder: &Path, arguments: &[&str], status: i32, named: &[&str]) {
    let run = deepram(folder, arguments);
    assert_eq!(run.status, status, "{arguments:?}: {run:?}");
    assert!(run.err.starts_with("error: ") && !run.err.contains("panicked"), "{arguments:?}: {run:?}");
    for text in named {
        assert!(run.err.contains(text), "{arguments:?} does not contain {text:?}: {run:?}");
    }
}

const RIGHT: &[u8] = b"0 0 303567 7 0\n26214000 1 240840 6 1\n";

fn compressed(tool: &str) -> Vec<u8> {
    let mut lines = Vec::new();
    for n in 0..5000 {
        writeln!(lines, "{n} 0 {} 8 1", n * 77_777 % 10_000_000).expect("writing to memory");
    }
    match tool {
        "gzip" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(&lines).expect("writing to memory");
            out.finish().expect("writing to memory")
        }
        _ => zstd::encode_all(&lines[..], 1).expect("writing to memory"),
    }
}

#[test]
fn a_broken_trace_is_named_with_its_line_and_what_is_wrong_there() {
    let folder = folder();
    let cut = |tool| {
        let mut bytes = compressed(tool);
        bytes.truncate(bytes.len() / 2);
        bytes
    };
    let files: &[(&str, Vec<u8>, &[&str])] = &[
        ("empty", Vec::new(), &["it is empty", "name it, one of: deepram,"]),
        ("binary", [0, 159, 146, 150].repeat(50), &["it is binary"]),
        ("minus", b"0 0 303567 7 0\n5 1 -24 6 1\n".to_vec(), &["line 2", "lba is \"-24\"", "a whole number"]),
        ("huge", b"0 0 3 7 0\n5 1 99999999999999999999 6 1\n".to_vec(), &["line 2", "below 2^64"]),
        ("bytes", b"0 0 3 7 0\n\xff\xfe 1 2 3 4\n".to_vec(), &["line 2", "\\xff\\xfe"]),
        ("cut.gz", cut("gzip"), &["gzip data end early", "cut off"]),
        ("cut.zst", cut("zstd"), &["zstd data end early", "cut off"]),
    ];
    for (name, bytes, named) in files {
        std::fs::write(folder.path().join(name), bytes).expect("writing a trace");
        let mut named = named.to_vec();
        named.push(name);
        fails(folder.path(), &["trace", "info", name], 1, &named);
        fails(folder.path(), &["trace", "convert", name, "out"], 1, &named);
        fails(folder.path(), &["sim", "ssd", "--trace", name], 1, &named);
        assert!(!folder.path().join("out").exists(), "an incomplete trace is left behind");
    }
    std::fs::write(folder.path().join("right"), RIGHT).expect("writing a trace");
    for (format, named) in
        [("msr", "line 1: 1 fields, expected 7"), ("compact", "byte 0: expected the magic")]
    {
        fails(folder.path(), &["trace", "info", "right", "--format", format], 1, &["right: ", named]);
    }
    fails(folder.path(), &["trace", "info", "right", "--format", "mqism"], 2, &["did you mean mqsim?"]);
    fails(folder.path(), &["trace", "info", "right", "--unit", "0"], 2, &["at least one byte"]);
    fails(folder.path(), &["trace", "info", "right", "--unit", "-3"], 2, &["--unit", "4KiB"]);
    fails(
        folder.path(),
        &["trace", "convert", "right", "right"],
        1,
        &["creating right", "give another name"],
    );
    fails(
        folder.path(),
        &["sim", "ssd", "--trace", "empty", "--format", "mqsim"],
        1,
        &["empty has no requests"],
    );
}

#[test]
fn line_ends_of_windows_change_nothing() {
    let folder = folder();
    std::fs::write(folder.path().join("unix"), RIGHT).expect("writing a trace");
    let windows = String::from_utf8_lossy(RIGHT).replace('\n', "\r\n");
    std::fs::write(folder.path().join("windows"), windows).expect("writing a trace");
    let info = |name| deepram(folder.path(), &["trace", "info", name]).good();
    assert_eq!(info("unix"), info("windows"));
}

#[test]
fn what_the_simulator_takes_for_granted_of_a_trace_is_told() {
    let folder = folder();
    std::fs::write(folder.path().join("t"), "5000 0 1 8 1\n3000 0 2 8 1\n6000 0 9 0 1\n")
        .expect("writing a trace");
    let run = deepram(folder.path(), &["sim", "ssd", "--trace", "t"]);
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.err.contains("1 of 3 requests have an earlier arrival time"), "{run:?}");
    assert!(run.err.contains("1 of 3 requests have zero bytes"), "{run:?}");
}

#[test]
fn a_wrong_workload_is_wrong_usage_and_names_the_key() {
    let folder = folder();
    let cases: &[(&str, &[&str])] = &[
        ("", &["there is no workload", "zipf"]),
        ("zpif:count=10", &["did you mean zipf?"]),
        ("zipf:thetta=0.9,count=10", &["\"thetta\"", "did you mean theta?"]),
        ("zipf:count=10,count=20", &["count=20", "twice"]),
        ("zipf:count", &["no key=value"]),
        ("zipf:count=-1", &["count=\"-1\"", "10k"]),
        ("zipf:count=1e30", &["count=\"1e30\""]),
        ("zipf:count=10,span=1KiB", &["size=\"4KiB\"", "1 to 1024", "default"]),
        ("zipf:count=10,arrival=poison", &["did you mean poisson?"]),
        ("zipf:count=10,arrival=poisson", &["needs rate"]),
        ("zipf:count=10,rate=20k", &["not used"]),
        ("uniform", &["endless", "count=N"]),
        ("mmap-random:reads=0", &["endless", "count=N"]),
    ];
    for (spec, named) in cases {
        fails(folder.path(), &["sim", "ssd", "--workload", spec], 2, named);
    }
    let file = ["sim", "ssd", "--workload", "cc:file=none,count=9"];
    fails(folder.path(), &file, 1, &["can't read none"]);
    std::fs::write(folder.path().join("none"), "1 2\n1 x\n").expect("writing a file");
    fails(folder.path(), &file, 1, &["edge list none", "line 2", "\"x\""]);
}

#[test]
fn options_that_cannot_be_or_mean_nothing_are_wrong_usage() {
    let folder = folder();
    let workload = ["--workload", "uniform:span=1MiB,count=10"];
    let cases: &[(&[&str], &[&str])] = &[
        (&["ssd", "--preset", "tcl"], &["did you mean `ssd.tlc`?"]),
        (&["ssd", "--preset", "nand.slc"], &["a preset of kind `nand`"]),
        (&["ssd", "--set", "chanels=3"], &["did you mean `channels`?"]),
        (&["ssd", "--set", "channels=-1"], &["`channels`", "non-negative"]),
        (&["ssd", "--set", "nand.read=30"], &["`nand.read` has no unit; expected ps, ns, us"]),
        (&["ssd", "--set", "nand.read=1us", "--set", "nand.read=2us"], &["nand.read", "twice"]),
        (&["ssd", "--threads", "0"], &["--threads"]),
        (&["ssd", "--depth", "-1"], &["--depth"]),
        (&["ssd", "--think", "5xs"], &["--think", "10us"]),
        (&["ssd", "--interval", "0"], &["--interval", "longer than 0"]),
        (&["ssd", "--filled", "0.5"], &["--precondition"]),
        (&["ssd", "--precondition", "steady", "--filled", "2"], &["--filled", "0 to 1"]),
        (&["ssd", "--precondition", "empty", "--filled", "0.5"], &["--filled"]),
        (&["ssd", "--warm-up", "10"], &["--warm-up 10", "10 requests"]),
        (&["ssd", "--format", "mqsim"], &["--format"]),
        (&["ssd", "--object-slots", "5"], &["--object-slots"]),
        (&["dram", "--precondition", "steady"], &["--precondition is for ssd"]),
        (&["dram", "--suspend"], &["--suspend is for ssd"]),
        (&["sdd"], &["did you mean ssd?"]),
    ];
    for (arguments, named) in cases {
        fails(folder.path(), &[&["sim"], *arguments, &workload].concat(), 2, named);
    }
    fails(folder.path(), &["media", "show", "slcc"], 2, &["there is no preset `slcc`; did you mean `slc`?"]);
    fails(folder.path(), &["media", "show", "slc", "--set", "raed=3us"], 2, &["did you mean `read`?"]);
    let think = |time| {
        deepram(folder.path(), &[&["sim", "ssd", "--json", "--think", time][..], &workload].concat()).json()
    };
    assert_eq!(think("5"), think("5us"), "a bare number counts microseconds");
    assert_ne!(think("5"), think("5ms"));
}

#[test]
fn a_wrong_file_of_presets_is_named_with_line_and_key() {
    let folder = folder();
    let cases: &[(&[u8], &[&str])] = &[
        (b"[ssd.mine]\nbase=\"tlcc\"\n", &["c.toml:2", "did you mean `tlc`?"]),
        (b"[ssd.mine]\nbase=\"tlc\"\nbase=\"slc\"\n", &["c.toml:3", "duplicate key", "base=\"slc\""]),
        (b"[sdd.mine]\nbase=\"tlc\"\n", &["c.toml:1", "did you mean `ssd`?"]),
        (b"[ssd.mine]\nbase=\"tlc\"\nchanels=3\n", &["c.toml:3", "did you mean `channels`?"]),
        (
            b"[ssd.mine]\nbase=\"tlc\"\nvictim={value=\"greddy\",unit=\"name\",source=\"x\"}\n",
            &["c.toml:3", "did you mean `greedy`?"],
        ),
        (
            b"[ssd.mine]\nbase=\"tlc\"\nchannels={value=1e30,unit=\"count\",source=\"x\"}\n",
            &["c.toml:3", "ssd.mine.channels", "largest valid value"],
        ),
        (b"[ssd.mine]\nbase=\"tlc\"\n\xff\n", &["c.toml:3", "not UTF-8"]),
        (b"[ssd.mine\n", &["c.toml:1", "expected `]`"]),
    ];
    for (text, named) in cases {
        std::fs::write(folder.path().join("c.toml"), text).expect("writing presets");
        let sim = [
            "sim",
            "ssd",
            "--workload",
            "uniform:span=1MiB,count=10",
            "--config",
            "c.toml",
            "--preset",
            "mine",
        ];
        fails(folder.path(), &sim, 1, named);
        fails(folder.path(), &["media", "list", "--config", "c.toml"], 1, named);
        fails(folder.path(), &["media", "show", "ssd.mine", "--config", "c.toml"], 1, named);
    }
    let right = "[ssd.mine]\r\nbase=\"tlc\"\r\ncontroller={value=3,unit=\"us\",source=\"x\"}\r\n";
    std::fs::write(folder.path().join("c.toml"), right).expect("writing presets");
    let shown = deepram(folder.path(), &["media", "show", "mine", "--config", "c.toml"]).good();
    assert!(shown.contains("controller") && shown.contains("ssd.mine"), "{shown}");
}
