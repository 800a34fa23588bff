//! Counts of the real traces in the project's shared folder.

use deepram_trace::{Compression, Format, Item, Op, ReadOptions, Summary, TraceReader};
use std::path::PathBuf;

pub(crate) fn trace(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("DEEPRAM_TRACES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there (set DEEPRAM_TRACES)", path.display());
        return None;
    }
    Some(path)
}

fn summary(name: &str, format: Format) -> Option<Summary> {
    let reader = TraceReader::open(trace(name)?, &ReadOptions::default()).unwrap();
    assert_eq!(reader.format(), format, "{name}");
    assert_ne!(reader.compression(), Compression::Plain);
    Some(Summary::of(reader).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Checks a trace's numbers of records, writes, bytes and distinct pages.
fn check(name: &str, format: Format, records: u64, writes: u64, bytes: u128, pages: u128) {
    let Some(s) = summary(name, format) else {
        return;
    };
    assert_eq!(s.records, records, "{name}");
    assert_eq!(s.block[Op::Write as usize].count, writes, "{name}");
    assert_eq!(s.bytes(), bytes, "{name}");
    assert_eq!(s.footprint_pages(), pages, "{name}");
    assert_eq!(s.out_of_order, 0, "{name}");
}

#[test]
fn block_traces_have_their_published_counts() {
    // The counts come from an independent script, and agree with the README of the shared folder:
    // 59.23% writes, 0.051 GiB, 0.028 GiB unique; 37.4%; 0.02%; 100%, 34.3 GiB, 1.04 GiB unique.
    check(
        "block/fin1_first10k.ssdsim.ascii.zst",
        Format::Mqsim,
        10_000,
        5_923,
        55_279_104,
        29_990_912 / 4096,
    );
    check(
        "block/mqsim_tpcc_small.ssdsim.ascii.zst",
        Format::Mqsim,
        6_999,
        2_618,
        59_718_656,
        83_845_120 / 4096,
    );
    check(
        "block/mqsim_wsrch_small.ssdsim.ascii.zst",
        Format::Mqsim,
        24_783,
        4,
        382_117_888,
        381_046_784 / 4096,
    );
    check(
        "block/llm_opt7b_512tok.mqsim.zst",
        Format::Mqsim,
        36_873,
        5_000,
        5_578_792_960,
        5_578_579_968 / 4096,
    );
    check(
        "block/disksim_ssd_iozone_100k.disksim.ascii.zst",
        Format::DiskSim,
        100_000,
        100_000,
        36_855_717_888,
        1_111_326_720 / 4096,
    );
    check(
        "block/cloudPhysicsIO.vscsi.zst",
        Format::Vscsi,
        113_872,
        66_898,
        4_205_978_112,
        1_102_684_160 / 4096,
    );
    check("block/cloudPhysicsIO.csv.zst", Format::Csv, 113_872, 66_898, 4_205_978_112, 1_102_684_160 / 4096);
}

#[test]
fn the_same_workload_in_vscsi_and_csv_gives_the_same_requests() {
    let (Some(a), Some(b)) = (trace("block/cloudPhysicsIO.vscsi.zst"), trace("block/cloudPhysicsIO.csv.zst"))
    else {
        return;
    };
    let requests = |path| {
        TraceReader::open(path, &ReadOptions::default()).unwrap().map(|item| match item.unwrap() {
            Item::Block(r) => (r.offset, r.len, r.op),
            other => panic!("{other:?}"),
        })
    };
    assert!(requests(a).eq(requests(b)));
}

#[test]
fn cachelib_rows_are_all_read() {
    let Some(s) = summary("block/meta_cachelib_block_traces_1.csv.zst", Format::CacheLib) else {
        return;
    };
    assert_eq!(
        (s.records, s.block[Op::Read as usize].count, s.block[Op::Write as usize].count),
        (999, 599, 400)
    );
}

#[test]
fn arc_traces_have_their_published_pages() {
    let Some(path) = trace("cache/arc_OLTP.lis.zst") else {
        return;
    };
    let pages = ReadOptions { unit_bytes: Some(4096), ..ReadOptions::default() };
    let s = Summary::of(TraceReader::open(path, &pages).unwrap()).unwrap();
    assert_eq!((s.records, s.footprint_pages()), (914_145, 186_880));
    let path = trace("cache/arc_P3.lis.zst").unwrap();
    let s = Summary::of(TraceReader::open(path, &pages).unwrap()).unwrap();
    assert_eq!((s.records, s.bytes() / 4096, s.footprint_pages()), (238_578, 3_912_296, 762_543));
}

#[test]
fn the_twitter_trace_has_a_million_requests() {
    let Some(s) = summary("cache/twitter_cluster52_1M.csv.zst", Format::Csv) else {
        return;
    };
    assert_eq!((s.records, s.bytes(), s.distinct_objects()), (1_000_000, 204_308_503, 143_542));
}

#[test]
fn lirs_traces_have_as_many_references_as_numbers() {
    for (name, records, pages) in [
        ("2_pools", 100_000, 9_939),
        ("cpp", 9_047, 1_223),
        ("gli", 6_015, 2_529),
        ("multi1", 15_858, 2_606),
        ("multi2", 26_311, 5_684),
        ("multi3", 30_241, 7_454),
        ("ps", 10_448, 3_083),
        ("sprite", 133_996, 7_075),
    ] {
        let Some(s) = summary(&format!("cache/lirs_{name}.trace.gz"), Format::Lirs) else {
            return;
        };
        assert_eq!((s.records, s.footprint_pages()), (records, pages), "{name}");
    }
    let Some(cs) = summary("cache/lirs_cs.trace.gz", Format::Lirs) else {
        return;
    };
    let Some(looping) = summary("cache/lirs_loop.trace.gz", Format::Lirs) else {
        return;
    };
    assert_eq!((cs.records, looping.records), (6_781, 505_500));
    assert_eq!(looping.footprint_pages(), 1_011);
}

#[test]
fn spec_traces_have_as_many_loads_and_stores_as_lines() {
    let mut total = (0, 0);
    for (name, records) in
        [("gcc", 515_683), ("gzip", 481_044), ("mcf", 727_230), ("swim", 303_193), ("twolf", 482_824)]
    {
        let Some(s) = summary(&format!("memory/spec_ls_{name}.trace.gz"), Format::SpecLs) else {
            return;
        };
        assert_eq!(s.records, records, "{name}");
        total = (total.0 + s.mem[0].count, total.1 + s.mem[1].count);
    }
    assert_eq!(total, (1_216_681, 1_293_293));
}
