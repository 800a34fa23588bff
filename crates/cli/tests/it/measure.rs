//! `deepram media measure` on a real file, and predictions from its result.

use serde_json::Value;

use crate::common::{deepram, folder};

#[test]
fn a_folder_is_measured_into_a_preset_that_can_be_shown_and_nothing_else_is_left() {
    let folder = folder();
    let arguments = [
        "media",
        "measure",
        ".",
        "--span",
        "64MiB",
        "--seconds",
        "0.02",
        "--sequential",
        "--out",
        "here.toml",
        "--json",
    ];
    let figures = deepram(folder.path(), &arguments).json();
    let figures = figures.as_array().unwrap();
    assert_eq!(figures.len(), 17);
    assert!(figures.iter().all(|figure| figure["time_us"].as_f64().unwrap() > 0.0));
    let large = |figure: &Value| figure["bytes"] == 1 << 20;
    assert!(figures.iter().all(|figure| (figure["order"] == "sequential") == large(figure)), "{figures:?}");
    let preset = std::fs::read_to_string(folder.path().join("here.toml")).unwrap();
    assert_eq!(preset.matches("sequential, direct").count(), 4, "{preset}");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["here.toml"]);
    let shown = deepram(folder.path(), &["media", "show", "file.measured", "--config", "here.toml"]).good();
    assert!(shown.contains("read_width") && shown.contains("MiB"), "{shown}");
}

#[test]
fn what_exists_is_not_overwritten_unasked_and_what_cannot_be_measured_is_said() {
    let folder = folder();
    let file = folder.path().join("data");
    std::fs::write(&file, vec![7u8; 64 << 20]).unwrap();
    for (arguments, text) in [
        (&["data"][..], "give --overwrite"),
        (&["nowhere"], "nowhere"),
        (&["data", "--span", "1MiB"], "at least 64 MiB"),
        (&["data", "--name", "No Name"], "lower-case"),
        (&["data", "--seconds", "0"], "--seconds 0"),
        (&["/dev/null"], "expected a folder, a file or a block device"),
    ] {
        let error = deepram(folder.path(), &[&["media", "measure"], arguments].concat()).error(1);
        assert!(error.contains(text), "{arguments:?}: {error}");
    }
    assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn what_is_predicted_misses_as_often_as_the_pool_and_the_pager_do() {
    let folder = folder();
    let small = ["--data", "64MiB", "--updates", "4000", "--seconds", "0.02", "--repeats", "1", "--json"];
    let arrays = ["bench", "predict", "--workloads", "reads,updates,zipf,scan"];
    let result = deepram(folder.path(), &[&arrays[..], &small].concat()).json();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 24);
    for row in rows {
        // Times depend on the machine. The number of device requests depends only on core's decisions, which both share.
        let (predicted, measured) =
            (row["predicted_misses"].as_f64().unwrap(), row["measured_misses"].as_f64().unwrap());
        assert!((predicted - measured).abs() < 0.05, "{row}");
        assert!(row["predicted_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["misses_within"].is_boolean() && row["rate_within"].is_boolean(), "{row}");
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "the bench left files behind");
}

#[test]
fn durable_updates_are_counted_for_every_method() {
    let folder = folder();
    let arguments = ["bench", "persist", "--threads", "1,3", "--seconds", "0.05", "--repeats", "1", "--json"];
    let result = deepram(folder.path(), &arguments).json();
    let rows = result["rows"].as_array().unwrap();
    for method in ["persist", "persist-async", "transaction-log", "dsync-512", "dsync-4k", "append-fdatasync"]
    {
        let mine: Vec<_> = rows.iter().filter(|row| row["method"] == method).collect();
        assert_eq!(mine.len(), 2, "{method}: {result}");
        for row in mine {
            assert!(row["per_s"].as_f64().unwrap() > 0.0 && row["p99_us"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    // The output names a peer that cannot run.
    let skipped = result["skipped"].to_string();
    for peer in ["sqlite-wal-full", "lmdb"] {
        assert!(rows.iter().any(|row| row["method"] == peer) || skipped.contains(peer), "{peer}: {result}");
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "the bench left files behind");
    let error = deepram(folder.path(), &["bench", "persist", "--methods", "none"]).error(1);
    assert!(error.contains("persist-async"), "{error}");
    let error = deepram(folder.path(), &["bench", "persist", "--ways", "none"]).error(2);
    assert!(error.contains("--ways is now --methods"), "{error}");
}

#[test]
fn a_bench_writes_its_results_to_a_new_file_at_each_run() {
    let folder = folder();
    let arguments =
        ["bench", "caches", "--requests", "1000", "--policies", "lru", "--repeats", "1", "--json"];
    let run = deepram(folder.path(), &[&arguments[..], &["--results", "out"]].concat());
    let said = run.err.clone();
    let printed = run.json();
    let files: Vec<_> = std::fs::read_dir(folder.path().join("out")).expect("a folder").flatten().collect();
    let [file] = &files[..] else { panic!("one file: {files:?}") };
    let name = file.file_name().into_string().expect("UTF-8");
    assert!(name.starts_with("caches-20") && name.ends_with(".json") && said.contains(&name), "{said}");
    let text = std::fs::read_to_string(file.path()).expect("a file");
    let written: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&written["bench"], &written["results"]), (&"caches".into(), &printed));
    for key in ["machine", "commit", "command", "load", "date", "version"] {
        assert!(written.get(key).is_some(), "{key}: {text}");
    }
    assert!(written["machine"]["cores"].as_u64() > Some(0), "{text}");
    assert!(
        written["command"].as_str().is_some_and(|line| line.starts_with("deepram bench caches ")),
        "{text}"
    );
}

#[test]
fn every_kernel_is_measured_for_every_code_and_an_absent_peer_is_named() {
    let folder = folder();
    let arguments = ["bench", "ecc", "--sizes", "64,512", "--strengths", "1,5", "--repeats", "1", "--json"];
    let result =
        deepram(folder.path(), &[&arguments[..], &["--milliseconds", "1", "--peer"]].concat()).json();
    let rows = result["rows"].as_array().unwrap();
    for kernel in ["portable", "table"] {
        let mine: Vec<_> = rows.iter().filter(|row| row["kernel"] == kernel).collect();
        assert_eq!(mine.len(), 4, "{result}");
        for row in mine {
            for rate in ["encode", "decode_clean", "decode_errors"] {
                assert!(row[rate].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }
    let with_peer = rows.iter().any(|row| row["kernel"] == "bchlib" && row["encode"].as_f64() > Some(0.0));
    assert!(with_peer || result["skipped"].to_string().contains("pip install bchlib"), "{result}");
    let error = deepram(folder.path(), &["bench", "ecc", "--sizes", "9000", "--strengths", "1"]).error(1);
    assert!(error.contains("at most 8189 bytes"), "{error}");
    let refused = deepram(folder.path(), &["bench", "ecc", "--kernels", "fast"]);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("portable, table, clmul"), "{refused:?}");
}

#[test]
fn a_changed_byte_is_made_durable_in_ranges_of_every_size_by_every_mode() {
    let folder = folder();
    let arguments = ["bench", "msync", "--sizes", "1,4KiB,100KiB,100MB", "--milliseconds", "2", "--json"];
    let result = deepram(folder.path(), &arguments).json();
    let rows = result["rows"].as_array().unwrap();
    let methods = rows.iter().filter(|row| row["selective"] == "off" && row["size_bytes"] == 1).count() / 2;
    assert!(methods >= 2, "{result}");
    let lines = |selective: &str, size: u64| {
        let of = |row: &&serde_json::Value| row["selective"] == selective && row["size_bytes"] == size;
        let found: Vec<f64> =
            rows.iter().filter(of).map(|row| row["lines_per_flush"].as_f64().unwrap()).collect();
        assert!(found.len() == 2 * methods || result["skipped"].to_string().contains(selective), "{result}");
        found
    };
    assert!(lines("off", 100_000_000).iter().all(|&lines| lines == 1_562_500.0), "{result}");
    for selective in ["scan", "list"] {
        assert!(lines(selective, 1).iter().all(|&lines| lines == 1.0), "{result}");
        // The pages that the flushes before have made dirty are few.
        assert!(lines(selective, 100_000_000).iter().all(|&lines| lines < 64.0 * 5000.0), "{result}");
    }
    let curves = result["curves"].as_array().unwrap();
    assert!(curves.iter().any(|curve| curve["selective"] == "off" && curve["flat"] == false), "{result}");
    let refused = deepram(folder.path(), &["bench", "msync", "--selective", "some"]);
    assert!(refused.status == 2 && refused.err.contains("off, auto, scan or list"), "{refused:?}");
    let error = deepram(folder.path(), &["bench", "msync", "--sizes", "0"]).error(1);
    assert!(error.contains("at least one byte"), "{error}");
}

#[test]
fn persists_in_place_are_compared_with_bare_instructions_and_an_absent_peer_is_named() {
    let folder = folder();
    let result = deepram(folder.path(), &["bench", "flush", "--peer", "--repeats", "3", "--json"]).json();
    let rows = result["rows"].as_array().unwrap();
    let sizes: Vec<_> = rows.iter().map(|row| row["size_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [64, 256, 1024, 4096, 16384, 65536]);
    for row in rows {
        assert!(row["bare_ns"].as_f64().unwrap() > 0.0 && row["over_bare"].as_f64().unwrap() > 0.0, "{row}");
        let with_peer = row["over_libpmem"].as_f64() > Some(0.0);
        assert!(with_peer || result["skipped"].to_string().contains("libpmem1"), "{result}");
    }
    let error = deepram(folder.path(), &["bench", "flush", "--peer", "--methods", "clflush,wof"]).error(1);
    assert!(error.contains("give one method"), "{error}");
}
