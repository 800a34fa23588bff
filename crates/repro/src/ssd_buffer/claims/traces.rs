//! Claims about the traces: Table III and Figures 4 to 8 and 10. The stand-ins were fitted to them.

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};

const TABLE_III: &str = "section IV, Table III";

/// A figure that the stand-ins were fitted to.
const fn fitted(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, experiment, source, statement, expected, metrics)
        .held_to(Class::Calibrated, Tolerance::None)
        .synthetic()
}

/// A column of Table III: the largest difference of a stand-in from the table.
const fn column(id: &'static str, statement: &'static str, metrics: &'static [&'static str]) -> Claim {
    fitted(id, "traffic", TABLE_III, statement, ("0 %", Expected::AtMost(0.0)), metrics)
        .held_to(Class::Calibrated, Tolerance::Absolute(5.0))
        .unit("%")
}

/// A mean share of random requests.
const fn random(
    id: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    fitted(id, "locality", source, statement, expected, metrics)
        .held_to(Class::Calibrated, Tolerance::Absolute(5.0))
        .unit("%")
}

/// A trend of the traces themselves, which the stand-ins were fitted to as well.
const fn shape(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    trend(id, experiment, source, statement, expected, metrics).synthetic().noted(
        "The stand-ins were fitted to the published characterisation, so this shows that the fit holds, and no more.",
    )
}

/// The claims.
pub(super) const CLAIMS: &[Claim] = &[
    // Table III.
    column("requests", "Requests: largest difference of a stand-in", &["requests.farthest_percent"]),
    column(
        "write-share",
        "Share of writes: largest difference of a stand-in",
        &["write_share.farthest_percent"],
    ),
    column("total-traffic", "Traffic: largest difference of a stand-in", &["traffic.farthest_percent"]),
    column(
        "write-traffic",
        "Write traffic: largest difference of a stand-in",
        &["write_traffic.farthest_percent"],
    ),
    column(
        "read-traffic",
        "Read traffic: largest difference of a stand-in",
        &["read_traffic.farthest_percent"],
    ),
    column("request-size", "Size of a request: largest difference of a stand-in", &["size.farthest_percent"]),
    column(
        "write-size",
        "Size of a write: largest difference of a stand-in",
        &["write_size.farthest_percent"],
    ),
    column("read-size", "Size of a read: largest difference of a stand-in", &["read_size.farthest_percent"]),
    column("unique-data", "Unique data: largest difference of a stand-in", &["unique.farthest_percent"]),
    // Spatial locality.
    random(
        "random-near-read",
        "section IV-A, Figure 4",
        "Stride 2, order 1: random reads, mean",
        ("83 %", Expected::Value(83.0)),
        &["random.2-1.read.mean_percent"],
    ),
    random(
        "random-near-write",
        "section IV-A, Figure 4",
        "Stride 2, order 1: random writes, mean",
        ("90 %", Expected::Value(90.0)),
        &["random.2-1.write.mean_percent"],
    ),
    shape(
        "random-dominates",
        "locality",
        "section IV-A, Figure 4",
        "Stride 2, order 1: least share of random requests of a trace",
        ("dominant", Expected::AtLeast(50.0)),
        &["random.2-1.all.least_percent"],
    )
    .unit("%"),
    random(
        "random-order-read",
        "section IV-A, Figure 5",
        "Stride 2, order 64: random reads, mean",
        ("less than 46 %", Expected::AtMost(46.0)),
        &["random.2-64.read.mean_percent"],
    ),
    random(
        "random-order-write",
        "section IV-A, Figure 5",
        "Stride 2, order 64: random writes, mean",
        ("less than 53 %", Expected::AtMost(53.0)),
        &["random.2-64.write.mean_percent"],
    ),
    random(
        "random-far-read",
        "section IV-A, Figure 6",
        "Stride 16, order 64: random reads, mean",
        ("less than 37 %", Expected::AtMost(37.0)),
        &["random.16-64.read.mean_percent"],
    ),
    random(
        "random-far-write",
        "section IV-A, Figure 6",
        "Stride 16, order 64: random writes, mean",
        ("less than 48 %", Expected::AtMost(48.0)),
        &["random.16-64.write.mean_percent"],
    ),
    random(
        "random-far-read-six",
        "section IV-A, Figure 6",
        "Stride 16, order 64: random reads without tpcc and tpce, mean",
        ("less than 17 %", Expected::AtMost(17.0)),
        &["random.16-64.read.without_mse_percent"],
    ),
    random(
        "random-far-write-six",
        "section IV-A, Figure 6",
        "Stride 16, order 64: random writes without tpcc and tpce, mean",
        ("less than 31 %", Expected::AtMost(31.0)),
        &["random.16-64.write.without_mse_percent"],
    ),
    shape(
        "overlapped-writes",
        "locality",
        "section IV-A, Figure 6",
        "Stride 16, order 64: overlapped writes, most of tpcc and tpce, then least of the others",
        ("rising", Expected::Rising),
        &["overlapped.16-64.mse.most_percent", "overlapped.16-64.others.least_percent"],
    )
    .unit("%"),
    // Working sets.
    shape(
        "working-set-spread",
        "working-set",
        "section IV-A, Figure 7",
        "Pages that 10,000 requests touch: wdev, then tpcc or tpce, whichever has fewer",
        ("rising", Expected::Rising),
        &["working_set.wdev.pages", "working_set.mse.least_pages"],
    ),
    shape(
        "phases-similar",
        "working-set",
        "section IV-A, Figure 7",
        "Accesses that consecutive phases of wdev have in common",
        ("highly similar", Expected::AtLeast(50.0)),
        &["phases.wdev.common_percent"],
    )
    .unit("%")
    .noted("We read \"highly similar\" as at least half of the accesses. The stand-ins were fitted to it."),
    // Stack distances and cache sizes.
    fitted(
        "hit-ratio-10k",
        "hit-ratio",
        "section IV-B, Figure 8",
        "Hit ratio with 10,000 pages, least of rsrch, wdev, ts, fin1, fin2",
        ("near or above 80 %", Expected::AtLeast(80.0)),
        &["hit_ratio.all.others.least_percent"],
    )
    .held_to(Class::Calibrated, Tolerance::Absolute(5.0))
    .unit("%"),
    shape(
        "little-locality",
        "hit-ratio",
        "section IV-B, Figure 8",
        "Hit ratio with 10,000 pages: most of stg, tpcc, tpce, then least of the others",
        ("much lower", Expected::Rising),
        &["hit_ratio.all.little.most_percent", "hit_ratio.all.others.least_percent"],
    )
    .unit("%"),
    fitted(
        "cache-size-all",
        "hit-ratio",
        "section VI-B, Figure 10",
        "Traces with a hit ratio above 70 % in 80 MB, reads and writes",
        ("most of 8", Expected::AtLeast(5.0)),
        &["above_70.all.traces"],
    ),
    fitted(
        "cache-size-write",
        "hit-ratio",
        "section VI-B, Figure 10",
        "Traces with a hit ratio above 70 % in 80 MB, writes",
        ("most of 8", Expected::AtLeast(5.0)),
        &["above_70.write.traces"],
    ),
    shape(
        "cache-size-diminishes",
        "hit-ratio",
        "section VI-B, Figure 10",
        "Gain in mean hit ratio from 80 to 160 MB, then from 40 to 80 MB",
        ("greatly diminishes", Expected::Rising),
        &["doubling.all.to_160_points", "doubling.all.to_80_points"],
    )
    .unit("points"),
];
