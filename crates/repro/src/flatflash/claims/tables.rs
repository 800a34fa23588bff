//! Promotion (section 3.4), Table 2 and Table 3.

use super::{PAIRS, STAND_IN, constant};
use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};

use Expected::{AtLeast, Value};

const TABLE_3: &str = "Table 3";

/// The claims.
pub(in super::super) const CLAIMS: &[Claim] = &[
    trend(
        "adaptive-over-fixed",
        "promotion",
        "section 3.4",
        "Latency with the best fixed threshold over that with the adaptive one, mean over patterns",
        ("above 1", AtLeast(1.0)),
        &["promotion.best_fixed"],
    ),
    trend(
        "adaptive-over-hardly-ever",
        "promotion",
        "section 3.4",
        "Latency with a threshold of 255 uses over that with the adaptive one, mean over patterns",
        ("above 1", AtLeast(1.0)),
        &["promotion.hardly_ever"],
    ),
    constant("cost-read", "Line read from the SSD-Cache", ("4.8 µs", 4.8), &["cost_us.read"]),
    constant("cost-write", "Line written to it", ("0.6 µs", 0.6), &["cost_us.write"]),
    constant("cost-promote", "Page promoted", ("12.1 µs", 12.1), &["cost_us.promote"]),
    constant("cost-entry", "Page-table and TLB entry changed", ("1.4 µs", 1.4), &["cost_us.entry"]),
    constant("cost-walk", "Walk of the page table", ("0.7 µs", 0.7), &["cost_us.walk"]),
    magnitude(
        "cost-identity",
        "cost",
        TABLE_3,
        "Rows whose cost-effectiveness is the saving over the slowdown, to the digit given",
        ("8 of 8", Value(8.0)),
        &["cost.rows_right"],
    )
    .held_to(Class::Exact, Tolerance::None),
    magnitude(
        "slowdown-gups",
        "cost",
        TABLE_3,
        "GUPS, FlatFlash over DRAM alone",
        ("8.9", Value(8.9)),
        &["slowdown.gups"],
    ),
    magnitude(
        "slowdown-pagerank",
        "cost",
        TABLE_3,
        "PageRank, FlatFlash over DRAM alone",
        ("11.0", Value(11.0)),
        &["slowdown.pagerank"],
    )
    .guest()
    .noted(STAND_IN),
    magnitude(
        "slowdown-cc",
        "cost",
        TABLE_3,
        "Connected components, FlatFlash over DRAM alone",
        ("6.9", Value(6.9)),
        &["slowdown.cc"],
    )
    .guest()
    .noted(STAND_IN),
    magnitude(
        "slowdown-ycsb-b",
        "cost",
        TABLE_3,
        "YCSB B, FlatFlash over DRAM alone",
        ("6.1", Value(6.1)),
        &["slowdown.ycsb-b"],
    )
    .guest()
    .noted(PAIRS),
    magnitude(
        "slowdown-ycsb-d",
        "cost",
        TABLE_3,
        "YCSB D, FlatFlash over DRAM alone",
        ("5.5", Value(5.5)),
        &["slowdown.ycsb-d"],
    )
    .guest()
    .noted(PAIRS),
];
