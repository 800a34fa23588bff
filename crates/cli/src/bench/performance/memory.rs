//! The questions of the performance page that the memory benches answer: gups, zipf, scan and gather.

use deepram_repro::chart::{Axis, Bars};
use deepram_repro::number::plain;
use serde_json::Value;

use super::charts::bars;
use super::goals::find;
use super::page::{Quantity, Row, Section};
use super::sections::{Files, list, median, newest_file, number, text};
use crate::results::ResultFile;

/// The device under the files of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Device {
    Flash,
    /// A compressed disk in memory, whose reads take a few microseconds.
    Zram,
}

impl Device {
    fn is_of(self, file: &ResultFile) -> bool {
        let zram = file.machine.device.as_ref().is_some_and(|device| device.starts_with("/dev/zram"));
        zram == (self == Self::Zram)
    }
}

/// One workload at one number of threads.
struct Case {
    bench: &'static str,
    /// Workload in the results.
    workload: &'static str,
    title: &'static str,
    threads: u64,
}

impl Case {
    const fn new(bench: &'static str, workload: &'static str, title: &'static str, threads: u64) -> Self {
        Self { bench, workload, title, threads }
    }

    fn name(&self) -> String {
        match self.threads {
            1 => format!("{}, 1 thread", self.title),
            n => format!("{}, {n} threads", self.title),
        }
    }

    /// Goal of this case: `stem` and the number of threads.
    fn goal_id(&self) -> String {
        format!("{}-{}", self.workload, self.threads)
    }

    /// The newest file of this case on this device with every one of these peers, and data larger than DRAM as `larger` says.
    fn newest<'a>(
        &self,
        files: &'a Files,
        device: Device,
        peers: &[&str],
        larger: bool,
    ) -> Option<(&'a str, &'a ResultFile)> {
        newest_file(files, self.bench, |file| {
            let results = &file.results;
            let size = |key: &str| results[key].as_u64();
            device.is_of(file)
                && text(results, "workload") == self.workload
                && results["threads"] == self.threads
                && (size("size_bytes") > size("dram_bytes")) == larger
                && peers.iter().all(|name| peer(results, name).is_some())
        })
    }
}

const CASES: [Case; 12] = [
    Case::new("gups", "reads", "uniform reads", 1),
    Case::new("gups", "reads", "uniform reads", 4),
    Case::new("gups", "reads", "uniform reads", 16),
    Case::new("gups", "updates", "uniform updates", 1),
    Case::new("gups", "updates", "uniform updates", 4),
    Case::new("gups", "updates", "uniform updates", 16),
    Case::new("zipf", "zipf", "Zipf reads", 1),
    Case::new("zipf", "zipf", "Zipf reads", 4),
    Case::new("zipf", "zipf", "Zipf reads", 16),
    Case::new("scan", "scan", "scan", 1),
    Case::new("scan", "scan", "scan", 4),
    Case::new("scan", "scan", "scan", 16),
];
const GATHER: Case = Case::new("gather", "gather", "gather of 1,024", 1);

fn peer<'a>(results: &'a Value, name: &str) -> Option<&'a Value> {
    list(&results["peers"]).iter().find(|row| text(row, "peer") == name)
}

fn rate(results: &Value, name: &str) -> Option<f64> {
    median(&peer(results, name)?["rate"])
}

fn unit(case: &Case) -> &'static str {
    if case.workload == "scan" { "MB/s" } else { "k/s" }
}

/// Ratio of two peers: the series `field` of the first one if the results have it, else the ratio of the medians.
fn ratio(results: &Value, ours: &str, field: &str, theirs: &str) -> Option<f64> {
    median(&peer(results, ours)?[field]).or_else(|| Some(rate(results, ours)? / rate(results, theirs)?))
}

/// The device's own rate for this case.
fn device(results: &Value, case: &Case) -> Option<String> {
    let (bytes, depth) = match case.workload {
        "scan" => (1 << 20, None),
        "gather" => (4096, Some(32)),
        _ => (4096, Some(case.threads)),
    };
    let written = case.workload == "updates";
    let fits =
        |rate: &&Value| rate["bytes"] == bytes && depth.is_none_or(|depth| rate["queue_depth"] == depth);
    let found: Vec<_> = list(&results["device"]).iter().filter(fits).collect();
    // A file without the rate beside writes has the rate of reads alone.
    let best = found.iter().max_by_key(|rate| {
        ((rate["written"] == written), median(rate).map_or(0, |value| (value * 1e3) as u64))
    })?;
    let value = match (median(best), number(best, "min"), number(best, "max")) {
        (Some(median), ..) => plain(median),
        (None, Some(min), Some(max)) => format!("{} to {}", plain(min), plain(max)),
        _ => return None,
    };
    let what = if bytes == 4096 { "4 KiB reads" } else { "1 MiB reads" };
    let depth = depth.map_or(String::new(), |depth| format!(", depth {depth}"));
    let writes = if best["written"] == true { ", the same bytes written" } else { "" };
    Some(format!("{} {} ({what}{depth}{writes})", value, unit(case)))
}

/// Rates of these peers.
fn peers(results: &Value, names: &[&str]) -> Vec<(String, f64)> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), rate(results, name)?))).collect()
}

/// The pager of `deepram run` against swap and mmap.
pub(super) fn paging(files: &Files) -> Option<Section<'_>> {
    let mut compared = compare(files, Device::Flash);
    gathers(files, &mut compared);
    Some(compared.section(
        "Memory larger than DRAM",
        "`deepram bench gups`, `zipf`, `scan` and `gather`: 2 GiB of data in 512 MiB of DRAM. Ours is the pager of \
         `deepram run`; each peer has the same memory limit. An access that hits makes a rate larger than the device's.",
        ("memory", "Rate of the pager over that of swap"),
    ))
}

/// The same on zram.
pub(super) fn paging_on_zram(files: &Files) -> Option<Section<'_>> {
    Some(compare(files, Device::Zram).section(
        "Memory larger than DRAM, on zram",
        "The same benches with all files on a compressed disk in memory, whose reads take a few microseconds: nearly all of the time \
         is that of software.",
        ("memory-zram", "Rate of the pager over that of swap, on zram"),
    ))
}

/// The pager and its peers on one device.
#[derive(Default)]
struct Compared<'a> {
    rows: Vec<Row>,
    sources: Vec<(&'a str, &'a ResultFile)>,
    /// Names of the cases, and the rate of the pager over that of swap in each.
    groups: Vec<String>,
    over_swap: Vec<Option<f64>>,
}

impl<'a> Compared<'a> {
    /// The section with these comparisons; `chart`: stem of the file name, and title.
    fn section(self, title: &'static str, about: &'static str, chart: (&'static str, &str)) -> Section<'a> {
        let series = vec![Bars { name: "pager / swap".into(), values: self.over_swap }];
        let (name, chart_title) = chart;
        Section {
            title,
            about,
            rows: self.rows,
            chart: bars(
                name,
                chart_title,
                Axis::log("ratio", "×"),
                self.groups,
                series,
                Some(("equal", 1.0)),
            ),
            sources: self.sources,
        }
    }
}

/// All cases of this device.
fn compare(files: &Files, on: Device) -> Compared<'_> {
    let mut compared = Compared::default();
    for case in &CASES {
        let Some(source) = case.newest(files, on, &["pager", "swap"], true) else { continue };
        compared.sources.push(source);
        let results = &source.1.results;
        let swap = ratio(results, "pager", "over_swap", "swap");
        compared.groups.push(case.name());
        compared.over_swap.push(swap);
        let row = Row {
            name: case.name(),
            ours: rate(results, "pager").map(|rate| Quantity::new(rate, unit(case))),
            peers: peers(results, &["swap", "mmap", "mmap-random"]),
            device: device(results, case),
            ..Row::default()
        };
        if case.workload == "scan" {
            compared.rows.extend(scan_rows(results, row));
            continue;
        }
        compared.rows.push(Row {
            goal: find(&case.goal_id()),
            ratio: swap.map(|ratio| Quantity::new(ratio, "× swap")),
            ..row
        });
        compared.rows.extend(updates_tail(results, case));
        compared.rows.extend(processor_time(results, case, on));
        if case.workload == "reads" && case.threads == 1 {
            compared.rows.extend(fault_service(results, on));
        }
    }
    compared
}

/// A scan against mmap and against the device; `row` is the rest of both rows.
fn scan_rows(results: &Value, row: Row) -> [Row; 2] {
    let over_mmap = ratio(results, "pager", "over_mmap", "mmap");
    let over_device = peer(results, "pager").and_then(|pager| median(&pager["over_device"]));
    let of_device = Row {
        name: format!("{}, of the device", row.name),
        goal: find("scan-device"),
        ratio: over_device.map(|ratio| Quantity::new(ratio, "× device")),
        peers: Vec::new(),
        ..row.clone()
    };
    let of_mmap =
        Row { goal: find("scan"), ratio: over_mmap.map(|ratio| Quantity::new(ratio, "× mmap")), ..row };
    [of_mmap, of_device]
}

/// The slowest updates.
fn updates_tail(results: &Value, case: &Case) -> Option<Row> {
    let tail = |name: &str| median(&peer(results, name)?["p999_us"]);
    let (ours, theirs) = (tail("pager")?, tail("swap")?);
    (case.workload == "updates").then(|| Row {
        name: format!("{}, p99.9", case.name()),
        goal: find("updates-tail"),
        ours: Some(Quantity::new(ours, "µs")),
        peers: vec![("swap".into(), theirs)],
        ratio: Some(Quantity::new(ours / theirs, "× swap")),
        device: None,
    })
}

/// Processor time of a miss of Zipf reads by four threads, where accesses that hit take little of it.
fn processor_time(results: &Value, case: &Case, on: Device) -> Option<Row> {
    let of = |name: &str| median(&peer(results, name)?["processor_us_per_miss"]);
    let ours = of("pager").filter(|_| case.workload == "zipf" && case.threads == 4)?;
    let theirs = ["swap", "mmap-random"].into_iter().filter_map(|name| Some((name.to_owned(), of(name)?)));
    Some(Row {
        name: format!("{}, processor time a miss", case.name()),
        goal: find("processor-time").filter(|_| on == Device::Zram),
        ours: Some(Quantity::new(ours, "µs")),
        peers: theirs.collect(),
        ..Row::default()
    })
}

/// Gathers against the device and against a plain loop.
fn gathers<'a>(files: &'a Files, compared: &mut Compared<'a>) {
    let Some(source) = GATHER.newest(files, Device::Flash, &["pager"], true) else { return };
    compared.sources.push(source);
    let results = &source.1.results;
    let over_device = peer(results, "pager").and_then(|pager| median(&pager["over_device"]));
    let row = Row {
        name: GATHER.name(),
        goal: find("gather-device"),
        ours: rate(results, "pager").map(|rate| Quantity::new(rate, "k/s")),
        peers: peers(results, &["mmap-random", "swap"]),
        ratio: over_device.map(|ratio| Quantity::new(ratio, "× device")),
        device: device(results, &GATHER),
    };
    let plain_loop = newest_file(files, "gather", |file| {
        let results = &file.results;
        Device::Flash.is_of(file) && results["hints"] == false && peer(results, "mmap-random").is_some()
    });
    let plain_rate = plain_loop.and_then(|(_, file)| rate(&file.results, "mmap-random"));
    if let (Some(ours), Some(theirs)) = (row.ours.clone(), plain_rate) {
        compared.sources.extend(plain_loop);
        compared.rows.push(Row {
            name: format!("{}, over a plain loop", row.name),
            goal: find("gather"),
            peers: vec![("mmap-random, plain loop".into(), theirs)],
            ratio: Some(Quantity::new(ours.value / theirs, "× plain loop")),
            device: None,
            ours: Some(ours),
        });
    }
    compared.rows.push(row);
}

/// Time of a fault above that of the device's read, from the rate and the misses of uniform reads by one thread.
fn fault_service(results: &Value, on: Device) -> Option<Row> {
    let pager = peer(results, "pager")?;
    let misses = median(&pager["misses_per_access"])?;
    let is_read =
        |rate: &&Value| rate["bytes"] == 4096 && rate["queue_depth"] == 1 && rate["written"] != true;
    let device = median(list(&results["device"]).iter().find(is_read)?)?;
    let service = 1e3 / rate(results, "pager")? / misses - 1e3 / device;
    Some(Row {
        name: "fault service above the device's time, 1 thread".into(),
        goal: find(if on == Device::Zram { "fault-service-zram" } else { "fault-service" }),
        ours: Some(Quantity::new(service, "µs")),
        device: Some(format!("4 KiB read {} µs", plain(1e3 / device))),
        ..Row::default()
    })
}

/// The mapped pool against the pager.
pub(super) fn mapped_pool(files: &Files) -> Option<Section<'_>> {
    let (mut rows, mut sources) = (Vec::new(), Vec::new());
    for case in &CASES {
        let Some(source) = case.newest(files, Device::Flash, &["pool", "pager"], true) else { continue };
        sources.push(source);
        let results = &source.1.results;
        rows.push(Row {
            name: case.name(),
            goal: None,
            ours: rate(results, "pool").map(|rate| Quantity::new(rate, unit(case))),
            peers: peers(results, &["pager", "swap", "mmap-random"]),
            ratio: ratio(results, "pool", "over_pager", "pager").map(|ratio| Quantity::new(ratio, "× pager")),
            device: device(results, case),
        });
    }
    Some(Section {
        title: "A mapped pool larger than DRAM",
        about: "The same benches with a mapped pool, which journals every change, against the pager, which does not.",
        rows,
        chart: None,
        sources,
    })
}

/// Loads by call of a pool, with and without promotion.
pub(super) fn loads_by_call(files: &Files) -> Option<Section<'_>> {
    let (mut rows, mut sources) = (Vec::new(), Vec::new());
    for case in CASES.iter().chain([&GATHER]) {
        let Some(source) = case.newest(files, Device::Flash, &["pool-load"], true) else { continue };
        sources.push(source);
        let results = &source.1.results;
        let over_unpromoted = median(&peer(results, "pool-load")?["over_unpromoted"]);
        let over_loop = ratio(results, "pool-load", "over_mmap_random", "mmap-random");
        let (ratio, unit_of_ratio, goal) = match case.workload {
            "gather" => (over_loop, "× plain loop", find("gather")),
            _ => (over_unpromoted, "× without promotion", None),
        };
        rows.push(Row {
            name: case.name(),
            goal,
            ours: rate(results, "pool-load").map(|rate| Quantity::new(rate, unit(case))),
            peers: peers(results, &["pool-load-unpromoted", "mmap-random", "swap"]),
            ratio: ratio.map(|ratio| Quantity::new(ratio, unit_of_ratio)),
            device: device(results, case),
        });
    }
    Some(Section {
        title: "Loads by call",
        about: "`Pool::load` and `gather` read a cold segment into the device buffer and promote it to the DRAM cache once it is \
                hot. The peers of the gather read in a plain loop.",
        rows,
        chart: None,
        sources,
    })
}

/// Data that fits in DRAM: the pager against plain memory.
pub(super) fn in_dram(files: &Files) -> Option<Section<'_>> {
    let (mut rows, mut sources) = (Vec::new(), Vec::new());
    for case in &CASES {
        let Some(source) = case.newest(files, Device::Flash, &["pager"], false) else { continue };
        let results = &source.1.results;
        let Some(ratio) = ratio(results, "pager", "over_plain", "plain") else { continue };
        sources.push(source);
        rows.push(Row {
            name: case.name(),
            goal: find("in-dram"),
            ours: rate(results, "pager").map(|rate| Quantity::new(rate, unit(case))),
            peers: peers(results, &["plain"]),
            ratio: Some(Quantity::new(ratio, "× plain memory")),
            device: None,
        });
    }
    Some(Section {
        title: "Data that fits in DRAM",
        about: "The same benches with 256 MiB of data in 512 MiB of DRAM: paged memory against plain memory.",
        rows,
        chart: None,
        sources,
    })
}

#[cfg(test)]
mod tests {
    use super::super::page::reached;
    use super::*;
    use serde_json::json;

    fn file(results: Value) -> (String, ResultFile) {
        let text = json!({
            "bench": "gups", "machine": {}, "commit": null, "command": "", "load": null, "date": "2026-01-01",
            "version": "0.1.0", "results": results,
        });
        ("gups-x.json".into(), serde_json::from_value(text).unwrap())
    }

    #[test]
    fn a_run_of_updates_gives_its_ratio_and_its_tail() {
        let peer = |name: &str, rate: f64, tail: f64| json!({"peer": name, "rate": {"median": rate}, "p999_us": {"median": tail}, "over_swap": {"median": rate / 20.0}});
        let results = |size: u64| {
            json!({
                "workload": "updates", "threads": 1, "size_bytes": size, "dram_bytes": 512 << 20,
                "device": [
                    {"bytes": 4096, "queue_depth": 1, "written": false, "median": 30.0},
                    {"bytes": 4096, "queue_depth": 1, "written": true, "median": 10.0},
                ],
                "peers": [peer("pager", 40.0, 100.0), peer("swap", 20.0, 400.0)],
            })
        };
        let files = [file(results(2 << 30))];
        let section = paging(&files).unwrap();
        assert_eq!(section.rows.len(), 2);
        let [rate, tail] = &section.rows[..] else { panic!("two rows") };
        assert_eq!((rate.ours.clone(), reached(rate)), (Some(Quantity::new(40.0, "k/s")), Some(true)));
        assert_eq!(rate.device.as_deref(), Some("10 k/s (4 KiB reads, depth 1, the same bytes written)"));
        assert_eq!((tail.ratio.clone(), reached(tail)), (Some(Quantity::new(0.25, "× swap")), Some(true)));
        let fits = [file(results(256 << 20))];
        assert!(paging(&fits).unwrap().rows.is_empty(), "data that fit in DRAM answer another question");
    }

    #[test]
    fn zram_has_a_table_of_its_own_with_the_processor_time_of_a_miss() {
        let peer = |name: &str, rate: f64, processor: f64| json!({"peer": name, "rate": {"median": rate}, "processor_us_per_miss": {"median": processor}});
        let results = json!({
            "workload": "zipf", "threads": 4, "size_bytes": 2u64 << 30, "dram_bytes": 512 << 20,
            "peers": [peer("pager", 340.0, 25.0), peer("swap", 200.0, 15.0)],
        });
        let (name, mut on_zram) = file(results);
        (on_zram.bench, on_zram.machine.device) = ("zipf".into(), Some("/dev/zram1".into()));
        let files = [(name, on_zram)];
        assert!(paging(&files).unwrap().rows.is_empty());
        let section = paging_on_zram(&files).unwrap();
        let [rate, processor] = &section.rows[..] else { panic!("two rows") };
        assert_eq!((rate.ratio.clone(), reached(rate)), (Some(Quantity::new(1.7, "× swap")), Some(true)));
        assert_eq!(
            (processor.ours.clone(), reached(processor)),
            (Some(Quantity::new(25.0, "µs")), Some(false))
        );
        assert_eq!(processor.peers, [("swap".to_owned(), 15.0)]);
    }

    #[test]
    fn the_time_of_a_fault_above_the_device_follows_from_rate_and_misses() {
        let results = json!({
            "device": [{"bytes": 4096, "queue_depth": 1, "written": false, "median": 20.0}],
            "peers": [{"peer": "pager", "rate": {"median": 25.0}, "misses_per_access": {"median": 0.75}}],
        });
        let row = fault_service(&results, Device::Flash).unwrap();
        let service = row.ours.unwrap().value;
        assert!((service - (40.0 / 0.75 - 50.0)).abs() < 1e-9, "{service}");
    }
}
