//! Sections of the benches that measure instructions rather than a device: codes, characterisation, flushes of memory, parity.

use serde_json::Value;

use super::goals::find;
use super::page::{Quantity, Row, Section};
use super::sections::{Files, list, median, newest, number, text};
use deepram_core::Bytes;

/// Rates of the fastest kernel beside bchlib's.
pub(super) fn codes(files: &Files) -> Option<Section<'_>> {
    let is_peer = |row: &&Value| text(row, "kernel") == "bchlib";
    let source = newest(files, "ecc", |results| list(&results["rows"]).iter().any(|row| is_peer(&row)))?;
    let all = list(&source.1.results["rows"]);
    let shown = |row: &&Value| [512, 4096].iter().any(|size| row["data_bytes"] == *size) && row["t"] != 1;
    let mut rows = Vec::new();
    for peer in all.iter().filter(is_peer).filter(shown) {
        let same = |row: &&Value| row["data_bytes"] == peer["data_bytes"] && row["t"] == peer["t"];
        for (figure, name) in [
            ("encode", "encode"),
            ("decode_clean", "decode, no error"),
            ("decode_errors", "decode, t errors"),
        ] {
            let rate = |row: &Value| number(row, figure);
            let ours = all.iter().filter(same).filter(|row| !is_peer(row)).filter_map(rate).reduce(f64::max);
            let (Some(ours), Some(theirs)) = (ours, rate(peer)) else { continue };
            let (t, size) = (peer["t"].as_u64()?, Bytes(peer["data_bytes"].as_u64()?));
            let errors = figure == "decode_errors";
            let goal = if errors { find("ecc-errors").filter(|_| t >= 12) } else { find("ecc-rate") };
            rows.push(Row {
                name: format!("{size}, t = {t}, {name}"),
                goal,
                ours: Some(Quantity::new(ours / 1e3, "GB/s")),
                peers: vec![("bchlib".into(), theirs / 1e3)],
                ratio: Some(Quantity::new(ours / theirs, "× bchlib")),
                device: None,
            });
        }
    }
    let portable = all.iter().filter(|row| text(row, "kernel") == "portable");
    let least = portable
        .flat_map(|row| ["encode", "decode_clean", "decode_errors"].map(|key| number(&row["ratio"], key)))
        .flatten()
        .reduce(f64::min);
    rows.extend(least.map(|least| Row {
        name: "the portable kernel's lowest ratio".into(),
        goal: find("ecc-portable"),
        ratio: Some(Quantity::new(least, "× bchlib")),
        ..Row::default()
    }));
    Some(Section {
        title: "Error-correcting codes",
        about: "`deepram bench ecc --peer`: BCH codes of flash pages, the fastest kernel of the processor, beside bchlib, which \
                wraps the code of the Linux kernel; bytes of data, one core. The result file also has \
                1 KiB, 2 KiB and t = 1.",
        rows,
        chart: None,
        sources: vec![source],
    })
}

/// The characterisation of a trace beside libCacheSim.
pub(super) fn characterisation(files: &Files) -> Option<Section<'_>> {
    let compared = |row: &&Value| row["peer_misses"].is_u64();
    let source = newest(files, "characterize", |results| {
        list(&results["capacities"]).iter().any(|row| compared(&row))
    })?;
    let results = &source.1.results;
    let capacities: Vec<_> = list(&results["capacities"]).iter().filter(compared).collect();
    let equal = capacities.iter().filter(|row| row["misses"] == row["peer_misses"]).count();
    let peers = capacities.iter().filter_map(|row| {
        let name = format!("libCacheSim, {} pages alone", row["capacity_pages"].as_u64()?);
        Some((name, number(row, "peer_requests_per_s")? / 1e6))
    });
    let rows = vec![
        Row {
            name: "stack distances, spatial classes, working sets and all others, one pass".into(),
            goal: find("characterize"),
            ours: number(results, "requests_per_s").map(|rate| Quantity::new(rate / 1e6, "M/s")),
            peers: peers.collect(),
            ..Row::default()
        },
        Row {
            name: "equal miss counts".into(),
            goal: find("characterize-counts"),
            ratio: Some(Quantity::new(equal as f64 / capacities.len() as f64, "of all counts")),
            ..Row::default()
        },
    ];
    Some(Section {
        title: "Characterisation of a trace",
        about: "`deepram bench characterize --peer`: ten million requests to a million pages by Zipf's law, exponent 0.5; the peer \
                simulates one cache size at a time.",
        rows,
        chart: None,
        sources: vec![source],
    })
}

/// Durability on byte-addressable memory: flush instructions, persists beside libpmem, flushes by range size.
pub(super) fn memory_flushes(files: &Files) -> Option<Section<'_>> {
    let mut sources = Vec::new();
    let mut rows = Vec::new();
    if let Some(source) = newest(files, "flush", |results| results["line_bytes"].is_u64()) {
        for row in list(&source.1.results["rows"]).iter().filter(|row| row["threads"] == 1) {
            let (Some(dirty), Some(clean)) =
                (number(row, "dirty_ns_per_line"), number(row, "clean_ns_per_line"))
            else {
                continue;
            };
            rows.push(Row {
                name: format!("`{}` of a dirty line, 1 thread", text(row, "method")),
                ours: Some(Quantity::new(dirty, "ns")),
                peers: vec![("of a clean line".into(), clean)],
                ..Row::default()
            });
        }
        sources.push(source);
    }
    if let Some(source) = newest(files, "flush", |results| results["goals"].is_array()) {
        for row in list(&source.1.results["rows"]) {
            let size = Bytes(row["size_bytes"].as_u64()?);
            let pool = number(row, "pool_ns").map(|ns| Quantity::new(ns, "ns"));
            for (peer, key, goal) in
                [("bare instructions", "over_bare", "pmem-bare"), ("libpmem", "over_libpmem", "pmem-libpmem")]
            {
                let Some(ratio) = number(row, key) else { continue };
                let time = if key == "over_bare" { "bare_ns" } else { "libpmem_ns" };
                rows.push(Row {
                    name: format!("persist of {size} in a memory controller"),
                    goal: find(goal),
                    ours: pool.clone(),
                    peers: number(row, time).map(|time| (peer.into(), time)).into_iter().collect(),
                    ratio: Some(Quantity::new(ratio, &format!("× {peer}"))),
                    device: None,
                });
            }
        }
        sources.push(source);
    }
    if let Some(source) = newest(files, "msync", |_| true) {
        let shown = |curve: &&Value| text(curve, "byte") == "same" && text(curve, "selective") != "off";
        for curve in list(&source.1.results["curves"]).iter().filter(shown) {
            let selective = text(curve, "selective");
            let gain = number(curve, "gain_at_100_mb");
            rows.push(Row {
                name: format!("msync of one byte, `{}`, selective {selective}", text(curve, "method")),
                goal: find("msync-flat").filter(|_| selective == "list"),
                ours: number(curve, "slowest_over_fastest")
                    .map(|ratio| Quantity::new(ratio, "× over all sizes")),
                ratio: gain.map(|gain| Quantity::new(gain, "× at 100 MB, of every line")),
                ..Row::default()
            });
        }
        sources.push(source);
    }
    (!sources.is_empty()).then_some(Section {
        title: "Byte-addressable memory",
        about: "`deepram bench flush`, `flush --peer` and `msync --full`: flush instructions; persists in place beside bare \
                instructions and PMDK's libpmem, on shared memory; a flush of ranges from 1 B to 8 GiB in which one byte has \
                changed.",
        rows,
        chart: None,
        sources,
    })
}

/// The cost of parity.
pub(super) fn parity(files: &Files) -> Option<Section<'_>> {
    let source = newest(files, "parity", |_| true)?;
    let all = list(&source.1.results);
    let without = all.iter().find(|row| row["redundancy"].is_null())?;
    let mut rows = Vec::new();
    for row in all.iter().filter(|row| !row["redundancy"].is_null()) {
        for (name, key, unit) in [
            ("writing all memory", "fill", "MB/s"),
            ("a sync of 16 segments", "small_sync", "ms"),
            ("reading all memory", "read", "MB/s"),
        ] {
            let (Some(ours), Some(theirs)) = (median(&row[key]), median(&without[key])) else { continue };
            rows.push(Row {
                name: format!("{name}, redundancy {}", text(row, "redundancy")),
                ours: Some(Quantity::new(ours, unit)),
                peers: vec![("without".into(), theirs)],
                ratio: Some(Quantity::new(ours / theirs, "× without")),
                ..Row::default()
            });
        }
        rows.push(Row {
            name: format!(
                "reading all memory after the loss of a column, redundancy {}",
                text(row, "redundancy")
            ),
            ours: median(&row["read_after_loss"]).map(|rate| Quantity::new(rate, "MB/s")),
            ..Row::default()
        });
        rows.push(Row {
            name: format!("bytes to the device, redundancy {}", text(row, "redundancy")),
            ours: number(row, "write_amplification").map(|ratio| Quantity::new(ratio, "× segments")),
            peers: number(without, "write_amplification")
                .map(|x| ("without".into(), x))
                .into_iter()
                .collect(),
            ..Row::default()
        });
    }
    Some(Section {
        title: "Parity",
        about: "`deepram bench parity`: a pool with parity columns against one without.",
        rows,
        chart: None,
        sources: vec![source],
    })
}
