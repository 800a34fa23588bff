//! The questions of the performance page, except those of the memory benches: the newest result file of each, as table rows.

use deepram_core::Bytes;
use deepram_repro::chart::{Axis, Bars};
use deepram_repro::number::plain;
use serde_json::Value;

use super::super::{checkpoint, predict as prediction};
use super::charts::bars;
use super::goals::{Bound, SIMULATOR_CASES, find};
use super::memory;
use super::page::{Quantity, Row, Section};
use super::processor;
use crate::results::ResultFile;

/// Result files with their names, newest first.
pub(super) type Files = [(String, ResultFile)];

/// Every section with at least one row.
pub(super) fn all(files: &Files) -> Vec<Section<'_>> {
    let sections = [
        sync(files),
        open(files),
        memory::paging(files),
        memory::paging_on_zram(files),
        memory::mapped_pool(files),
        memory::loads_by_call(files),
        memory::in_dram(files),
        persist(files),
        caches(files),
        simulator(files),
        predict(files),
        heuristics(files),
        pool_heuristics(files),
        processor::codes(files),
        processor::characterisation(files),
        processor::memory_flushes(files),
        processor::parity(files),
    ];
    sections.into_iter().flatten().filter(|section| !section.rows.is_empty()).collect()
}

/// The newest file of this bench whose results fit.
pub(super) fn newest<'a>(
    files: &'a Files,
    bench: &str,
    fits: impl Fn(&Value) -> bool,
) -> Option<(&'a str, &'a ResultFile)> {
    newest_file(files, bench, |file| fits(&file.results))
}

/// The newest file of this bench that fits.
pub(super) fn newest_file<'a>(
    files: &'a Files,
    bench: &str,
    fits: impl Fn(&ResultFile) -> bool,
) -> Option<(&'a str, &'a ResultFile)> {
    let found = files.iter().find(|(_, file)| file.bench == bench && fits(file));
    found.map(|(name, file)| (name.as_str(), file))
}

pub(super) fn number(value: &Value, key: &str) -> Option<f64> {
    value[key].as_f64()
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Median of a series.
pub(super) fn median(series: &Value) -> Option<f64> {
    number(series, "median")
}

/// Line of an upper or lower bound in a chart.
fn goal_line(id: &str) -> Option<(&'static str, f64)> {
    match find(id)?.bound {
        Bound::AtMost(bound) | Bound::AtLeast(bound) => Some(("goal", bound)),
        Bound::Within(..) => None,
    }
}

fn sync(files: &Files) -> Option<Section<'_>> {
    let source = newest(files, "checkpoint", |_| true)?;
    let results = &source.1.results;
    let of = |name: &str| {
        let series = list(&results["series"]).iter().find(|series| text(series, "name") == name)?;
        median(series)
    };
    let ms = |name: &str| of(name).map(|value| Quantity::new(value, "ms"));
    let msync = [checkpoint::MSYNC_PLAIN, checkpoint::MSYNC_RANDOM];
    let peers = msync.iter().filter_map(|name| Some(((*name).to_owned(), of(name)?))).collect();
    let over_write = number(results, "sync_over_direct_write").map(|x| Quantity::new(x, "× direct write"));
    let device = of(checkpoint::DIRECT_WRITE).map(|x| Quantity::new(x, "ms"));
    let written = of(checkpoint::WRITTEN).map(|x| Quantity::new(x, "× dirty bytes"));
    let row = |name: &str, goal: &str, ours: Option<Quantity>| Row {
        name: name.into(),
        goal: find(goal),
        ours,
        ..Row::default()
    };
    let rows = vec![
        Row {
            peers,
            ratio: over_write.clone(),
            device: device.as_ref().map(|time| format!("direct write {} ms", plain(time.value))),
            ..row("sync", "sync", ms(checkpoint::SYNC))
        },
        Row {
            ratio: over_write,
            ..row("sync over a direct write of the same bytes", "sync-over-write", None)
        },
        Row { ratio: written, ..row("bytes written by a sync", "written", None) },
        row("sync, 52 segments dirty", "sync-few", ms(checkpoint::SYNC_FEW)),
        row("longest stop of a storing thread", "longest-stop", ms(checkpoint::LONGEST_STOP)),
        row("rollback of the same segments", "rollback", ms(checkpoint::ROLLBACK)),
    ];
    let bar_names = [checkpoint::DIRECT_WRITE, checkpoint::SYNC, msync[1], msync[0]];
    let values = bar_names.iter().map(|name| of(name)).collect();
    let series = vec![Bars { name: "median".into(), values }];
    let groups = bar_names.iter().map(|name| (*name).to_owned()).collect();
    let title = "Sync of a 2 GiB pool, 1 % of the segments dirty";
    Some(Section {
        title: "Sync of 2 GiB",
        about: "`deepram bench checkpoint`: a pool of 2 GiB that fits in its DRAM, 1 % of its segments dirty at random; msync of \
                a mapping with the same dirty segments.",
        rows: rows.into_iter().filter(|row| row.ours.is_some() || row.ratio.is_some()).collect(),
        chart: bars("sync", title, Axis::log("time", "ms"), groups, series, goal_line("sync")),
        sources: vec![source],
    })
}

fn open(files: &Files) -> Option<Section<'_>> {
    let source = newest(files, "open", |_| true)?;
    let row = |row: &Value| {
        let bytes = |key: &str| row[key].as_u64().map(|bytes| Bytes(bytes).to_string());
        Some(Row {
            name: format!("pool of {}, {} in the log", bytes("size_bytes")?, bytes("log_bytes")?),
            ours: Some(Quantity::new(median(&row["open"])?, "ms")),
            ..Row::default()
        })
    };
    Some(Section {
        title: "Opening after a crash",
        about: "`deepram bench open`: time to open a pool that was not closed, by the bytes synced since its last checkpoint. \
                The time must follow the log, not the size of the pool.",
        rows: list(&source.1.results).iter().filter_map(row).collect(),
        chart: None,
        sources: vec![source],
    })
}

fn persist(files: &Files) -> Option<Section<'_>> {
    let source = newest(files, "persist", |results| {
        list(&results["rows"]).iter().any(|row| text(row, "method") == "persist")
    })?;
    let all = list(&source.1.results["rows"]);
    let of = |method: &str, threads: u64, key: &str| {
        let row = all.iter().find(|row| text(row, "method") == method && row["threads"] == threads)?;
        number(row, key)
    };
    let rate = |method: &str, threads: u64| of(method, threads, "per_s").map(|per_s| per_s / 1e3);
    let others =
        ["dsync-512", "dsync-4k", "overwrite-fdatasync", "append-fdatasync", "sqlite-wal-full", "lmdb"];
    let peers = |threads: u64| -> Vec<(String, f64)> {
        others.iter().filter_map(|method| Some(((*method).to_owned(), rate(method, threads)?))).collect()
    };
    // Each thread waits for one durable write at least, so `threads` times the rate of one thread is the most.
    let limit = |dsync: f64, threads: u64| {
        let bound = rate("dsync-512", 1).filter(|_| threads > 1).map_or_else(String::new, |one| {
            format!("; {threads} times the rate of one thread {:.0} k/s", one * threads as f64)
        });
        format!("O_DSYNC 512 B {dsync:.1} k/s{bound}")
    };
    let mut counts: Vec<u64> = all.iter().filter_map(|row| row["threads"].as_u64()).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut rows = Vec::new();
    for &threads in &counts {
        let named = |name: &str| match threads {
            1 => format!("{name}, 1 thread"),
            n => format!("{name}, {n} threads"),
        };
        let (over, unit) = match threads {
            1 => ("over_dsync_4k", "× O_DSYNC 4 KiB"),
            _ => ("over_dsync_512", "× O_DSYNC 512 B"),
        };
        rows.push(Row {
            name: named("persist"),
            goal: find(&format!("persist-{threads}")),
            ours: rate("persist", threads).map(|rate| Quantity::new(rate, "k/s")),
            peers: peers(threads),
            ratio: of("persist", threads, over).map(|ratio| Quantity::new(ratio, unit)),
            device: rate("dsync-512", threads).map(|rate| limit(rate, threads)),
        });
        for (method, name, goal) in [
            ("persist-async", "persist-async, 64 in flight for each thread", "persist-async"),
            ("transaction-log", "transaction log", ""),
        ] {
            rows.push(Row {
                name: named(name),
                goal: find(goal).filter(|_| threads == 1),
                ours: rate(method, threads).map(|rate| Quantity::new(rate, "k/s")),
                ..Row::default()
            });
        }
    }
    let bytes = |method: &str| of(method, 1, "device_bytes_each");
    rows.push(Row {
        name: "bytes to the device for each persist, 1 thread".into(),
        goal: find("persist-bytes"),
        ours: bytes("persist").map(|bytes| Quantity::new(bytes, "B")),
        peers: others.iter().filter_map(|method| Some(((*method).to_owned(), bytes(method)?))).collect(),
        ..Row::default()
    });
    let shown = ["persist", "dsync-512", "dsync-4k", "sqlite-wal-full", "lmdb"];
    let series = shown.map(|method| Bars {
        name: method.into(),
        values: counts.iter().map(|threads| rate(method, *threads)).collect(),
    });
    let groups =
        counts.iter().map(|n| if *n == 1 { "1 thread".into() } else { format!("{n} threads") }).collect();
    let title = "Durable updates of 64 bytes";
    Some(Section {
        title,
        about: "`deepram bench persist`: random updates of 64 bytes in 1 MiB, each durable before the next one of its thread. \
                SQLite and LMDB are called from Python.",
        rows: rows.into_iter().filter(|row| row.ours.is_some()).collect(),
        chart: bars("persist", title, Axis::log("rate", "k/s"), groups, series.into(), None),
        sources: vec![source],
    })
}

fn caches(files: &Files) -> Option<Section<'_>> {
    let source =
        newest(files, "caches", |results| list(&results["rows"]).iter().any(|row| row["peer"].is_object()))?;
    let all = list(&source.1.results["rows"]);
    let millions = |value: &Value, key: &str| number(value, key).map(|per_s| per_s / 1e6);
    let mut rows = Vec::new();
    for row in all.iter().filter(|row| row["peer"].is_object()) {
        let (policy, trace, peer) = (text(row, "policy"), text(row, "trace"), &row["peer"]);
        let speeds = [
            ("libCacheSim", millions(peer, "default_requests_per_s")),
            ("with a fitted table", millions(peer, "fitted_requests_per_s")),
        ];
        rows.push(Row {
            name: format!("`{policy}`, {trace}"),
            goal: find(&format!("cache-{policy}")).filter(|_| trace == "zipf"),
            ours: millions(row, "requests_per_s").map(|rate| Quantity::new(rate, "M/s")),
            peers: speeds.into_iter().filter_map(|(name, speed)| Some((name.to_owned(), speed?))).collect(),
            ratio: number(peer, "speedup").map(|ratio| Quantity::new(ratio, "× fitted")),
            device: None,
        });
    }
    let compared = rows.len();
    let equal =
        all.iter().filter(|row| row["peer"]["misses"].is_u64() && row["peer"]["misses"] == row["misses"]);
    rows.push(Row {
        name: "equal miss counts".into(),
        goal: find("cache-counts"),
        ratio: Some(Quantity::new(equal.count() as f64 / compared.max(1) as f64, "of all counts")),
        ..Row::default()
    });
    let zipf: Vec<_> =
        all.iter().filter(|row| text(row, "trace") == "zipf" && row["peer"].is_object()).collect();
    let series = vec![
        Bars {
            name: "deepram".into(),
            values: zipf.iter().map(|row| millions(row, "requests_per_s")).collect(),
        },
        Bars {
            name: "libCacheSim, fitted table".into(),
            values: zipf.iter().map(|row| millions(&row["peer"], "fitted_requests_per_s")).collect(),
        },
    ];
    let groups = zipf.iter().map(|row| text(row, "policy").to_owned()).collect();
    let title = "Cache policies on a Zipf trace";
    Some(Section {
        title: "Cache policies",
        about: "`deepram bench caches --peer`: policies on traces in memory, a cache of 50,000 objects, beside libCacheSim with its \
                default hash table and with one that fits the cache.",
        rows,
        chart: bars("caches", title, Axis::linear("rate", "M/s"), groups, series, None),
        sources: vec![source],
    })
}

fn simulator(files: &Files) -> Option<Section<'_>> {
    let source = newest(files, "sim-peers", |_| true)?;
    let all = list(&source.1.results);
    let rate = |case: &str| {
        let row = all.iter().find(|row| text(row, "case") == case)?;
        number(row, "requests_per_s").map(|per_s| per_s / 1e6)
    };
    let mut rows = Vec::new();
    for case in SIMULATOR_CASES {
        let Some(ours) = rate(case.case) else { continue };
        rows.push(Row {
            name: format!("{}, speed", case.case),
            goal: case.goal.and_then(find),
            ours: Some(Quantity::new(ours, "M/s")),
            peers: vec![(case.peer.into(), case.peer_per_s / 1e6)],
            ratio: Some(Quantity::new(ours * 1e6 / case.peer_per_s, &format!("× {}", case.peer))),
            device: None,
        });
    }
    for row in all {
        let (Some(ours), Some(theirs)) = (number(row, "ours"), number(row, "theirs")) else { continue };
        rows.push(Row {
            name: format!("{}, {}", text(row, "case"), text(row, "figure")),
            ours: Some(Quantity::new(ours, "")),
            peers: vec![("peer".into(), theirs)],
            ratio: number(row, "difference_percent").map(|percent| Quantity::new(percent, "% difference")),
            ..Row::default()
        });
    }
    let shown: Vec<_> = SIMULATOR_CASES.iter().filter(|case| rate(case.case).is_some()).collect();
    let series = vec![
        Bars { name: "deepram".into(), values: shown.iter().map(|case| rate(case.case)).collect() },
        Bars::new("peer", shown.iter().map(|case| case.peer_per_s / 1e6).collect()),
    ];
    let groups = shown.iter().map(|case| case.case.to_owned()).collect();
    let title = "Simulated requests per second";
    Some(Section {
        title: "Simulator against peers",
        about: "`deepram bench sim-peers`: the cases on which DiskSim and MQSim were measured, one thread, set-up excluded; \
                million requests per second.",
        rows,
        chart: bars("simulator", title, Axis::log("rate", "M/s"), groups, series, None),
        sources: vec![source],
    })
}

/// Loops over an array and recorded programs, each from the newest file that has them.
fn predict(files: &Files) -> Option<Section<'_>> {
    let mut sources: Vec<(&str, &ResultFile)> = Vec::new();
    let mut all: Vec<&Value> = Vec::new();
    for programs in [false, true] {
        let wanted = |row: &&Value| prediction::is_program(text(row, "workload")) == programs;
        let has = |results: &Value| list(&results["rows"]).iter().any(|row| wanted(&row));
        let Some(source) = newest(files, "predict", has) else { continue };
        all.extend(list(&source.1.results["rows"]).iter().filter(wanted));
        if sources.iter().all(|(name, _)| *name != source.0) {
            sources.push(source);
        }
    }
    if all.is_empty() {
        return None;
    }
    let thousands = |row: &Value, key: &str| number(row, key).map(|per_s| per_s / 1e3);
    let name = |row: &Value| {
        let dram = Bytes(row["dram_bytes"].as_u64().unwrap_or(0));
        match row["backing"].as_str() {
            Some(backing) => format!("{}, {backing}, {dram} of DRAM", text(row, "workload")),
            None => format!("{}, {dram} of DRAM", text(row, "workload")),
        }
    };
    let rows = all.iter().map(|row| Row {
        name: name(row),
        goal: find("predict"),
        ours: thousands(row, "predicted_per_s").map(|rate| Quantity::new(rate, "k/s")),
        peers: thousands(row, "measured_per_s").map(|rate| ("measured".into(), rate)).into_iter().collect(),
        ratio: number(row, "ratio").map(|ratio| Quantity::new(ratio, "× measured")),
        device: None,
    });
    let series = [("predicted", "predicted_per_s"), ("measured", "measured_per_s")].map(|(name, key)| Bars {
        name: name.into(),
        values: all.iter().map(|row| thousands(row, key)).collect(),
    });
    let groups = all.iter().map(|row| name(row)).collect();
    let title = "Predicted and measured rate of the pool";
    Some(Section {
        title: "Prediction against the real pool",
        about: "`deepram bench predict`: the simulator predicts the rate of a pool, and of `deepram run`, on the device that the same run \
                measures.",
        rows: rows.collect(),
        chart: bars("predict", title, Axis::linear("rate", "k/s"), groups, series.into(), None),
        sources,
    })
}

fn heuristics(files: &Files) -> Option<Section<'_>> {
    heuristics_of(
        files,
        "swap",
        "What each heuristic of the pager gives",
        "`deepram bench ablate`: time of a program under `deepram run` without one heuristic, over its time with all of \
         them in the same round; medians. The ratio is the largest of the programs.",
    )
}

/// What each heuristic of a pool gives.
fn pool_heuristics(files: &Files) -> Option<Section<'_>> {
    heuristics_of(
        files,
        "pool",
        "What each heuristic of a pool gives",
        "`deepram bench ablate --backing pool`: as above, for loops over an array in a mapped pool.",
    )
}

fn heuristics_of<'a>(
    files: &'a Files,
    backing: &str,
    title: &'static str,
    about: &'static str,
) -> Option<Section<'a>> {
    // Files without a name of the backing are of the pager.
    let of = |results: &Value| results["backing"].as_str().unwrap_or("swap") == backing;
    let source = newest(files, "ablate", of)?;
    let programs = list(&source.1.results["rows"]);
    let without = |program: &Value, n: usize| number(&program["without"][n], "median");
    let rows = list(&programs.first()?["without"]).iter().enumerate().map(|(n, heuristic)| {
        let times =
            programs.iter().filter_map(|program| Some((text(program, "program"), without(program, n)?)));
        let most = times.clone().max_by(|(_, a), (_, b)| a.total_cmp(b));
        Row {
            name: format!("without {}", text(heuristic, "heuristic")),
            goal: find("ablate"),
            ratio: most.map(|(program, time)| Quantity::new(time, &format!("× with it ({program})"))),
            peers: times.map(|(program, time)| (program.to_owned(), time)).collect(),
            ..Row::default()
        }
    });
    Some(Section { title, about, rows: rows.collect(), chart: None, sources: vec![source] })
}

#[cfg(test)]
mod tests {
    use super::super::page::reached;
    use super::*;
    use serde_json::json;

    fn file(bench: &str, date: &str, results: Value) -> (String, ResultFile) {
        let text = json!({
            "bench": bench, "machine": {}, "commit": "abc", "command": "deepram bench", "load": 0.1, "date": date,
            "version": "0.1.0", "results": results,
        });
        (format!("{bench}-{date}.json"), serde_json::from_value(text).unwrap())
    }

    #[test]
    fn the_newest_file_of_a_bench_makes_its_table() {
        let results = |sync: f64| {
            json!({
                "series": [
                    {"name": checkpoint::SYNC, "unit": "ms", "median": sync},
                    {"name": checkpoint::DIRECT_WRITE, "unit": "ms", "median": 8.0},
                ],
                "sync_over_direct_write": sync / 8.0,
            })
        };
        let files = [
            file("checkpoint", "2026-02-01", results(10.0)),
            file("checkpoint", "2026-01-01", results(90.0)),
        ];
        let sections = all(&files);
        assert_eq!(sections.len(), 1);
        let rows = &sections[0].rows;
        assert_eq!(rows[0].ours, Some(Quantity::new(10.0, "ms")));
        assert_eq!(reached(&rows[0]), Some(true));
        assert_eq!(rows.len(), 2, "values that the file lacks have no row");
        assert_eq!(sections[0].sources, [("checkpoint-2026-02-01.json", &files[0].1)]);
    }

    #[test]
    fn predictions_of_loops_and_of_programs_come_from_the_newest_file_that_has_them() {
        let results = |workloads: &[(&str, f64)]| {
            let row = |&(workload, ratio): &(&str, f64)| json!({"workload": workload, "backing": "swap", "dram_bytes": 4096, "ratio": ratio});
            json!({"rows": workloads.iter().map(row).collect::<Vec<_>>()})
        };
        let rows = |files: &Files| -> (Vec<Option<f64>>, usize) {
            let section = predict(files).unwrap();
            (
                section.rows.iter().map(|row| row.ratio.as_ref().map(|ratio| ratio.value)).collect(),
                section.sources.len(),
            )
        };
        let loops = file("predict", "2026-02-01", results(&[("scan", 1.1)]));
        let both = file("predict", "2026-01-01", results(&[("GNU sort", 1.3), ("scan", 1.2)]));
        assert_eq!(rows(&[loops, both.clone()]), (vec![Some(1.1), Some(1.3)], 2));
        assert_eq!(rows(&[both]), (vec![Some(1.2), Some(1.3)], 1));
    }

    #[test]
    fn every_simulator_case_exists_and_has_a_known_goal() {
        let names: Vec<_> = deepram_sim::peers::cases().map(|case| case.name).collect();
        for case in SIMULATOR_CASES {
            assert!(names.contains(&case.case), "{}", case.case);
            assert!(case.goal.is_none_or(|goal| find(goal).is_some()), "{}", case.case);
        }
    }
}
