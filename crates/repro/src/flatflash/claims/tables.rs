//! Claims about promotion (section 3.4), Table 2 and Table 3.

use super::reasons::SLOWDOWN;
use super::{PAIRS, STAND_IN, constant};
use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};

use Expected::{AtLeast, Value};

const TABLE_3: &str = "Table 3";

/// The claims.
pub(in super::super) const CLAIMS: &[Claim] = &[
    trend(
        "adaptive-over-fixed",
        "promotion",
        "section 3.4, Algorithm 1",
        "Latency with the best fixed promotion threshold over that with the adaptive threshold, mean over \
         access patterns",
        ("above 1", AtLeast(1.0)),
        &["promotion.best_fixed"],
    ),
    trend(
        "adaptive-over-hardly-ever",
        "promotion",
        "section 3.4, Algorithm 1",
        "Latency with a promotion threshold of 255 accesses over that with the adaptive threshold, mean \
         over access patterns",
        ("above 1", AtLeast(1.0)),
        &["promotion.hardly_ever"],
    ),
    constant("cost-read", "Read of a line from the SSD-Cache", ("4.8 µs", 4.8), &["cost_us.read"]),
    constant("cost-write", "Write of a line to the SSD-Cache", ("0.6 µs", 0.6), &["cost_us.write"]),
    constant("cost-promote", "Promotion of a page", ("12.1 µs", 12.1), &["cost_us.promote"]),
    constant("cost-entry", "Update of a page-table and a TLB entry", ("1.4 µs", 1.4), &["cost_us.entry"]),
    constant("cost-walk", "Page-table walk", ("0.7 µs", 0.7), &["cost_us.walk"]),
    magnitude(
        "cost-identity",
        "cost",
        TABLE_3,
        "Rows whose cost-effectiveness equals saving over slowdown, to the digit given",
        ("8 of 8", Value(8.0)),
        &["cost.rows_right"],
    )
    .held_to(Class::Exact, Tolerance::None),
    magnitude(
        "slowdown-gups",
        "cost",
        TABLE_3,
        "Slowdown of GUPS on FlatFlash relative to all-DRAM",
        ("8.9", Value(8.9)),
        &["slowdown.gups"],
    )
    .because(SLOWDOWN),
    magnitude(
        "slowdown-pagerank",
        "cost",
        TABLE_3,
        "Slowdown of PageRank on FlatFlash relative to all-DRAM",
        ("11.0", Value(11.0)),
        &["slowdown.pagerank"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "slowdown-cc",
        "cost",
        TABLE_3,
        "Slowdown of connected components on FlatFlash relative to all-DRAM",
        ("6.9", Value(6.9)),
        &["slowdown.cc"],
    )
    .hardware_dependent()
    .noted(STAND_IN)
    .because(SLOWDOWN),
    magnitude(
        "slowdown-ycsb-b",
        "cost",
        TABLE_3,
        "Slowdown of YCSB B on FlatFlash relative to all-DRAM",
        ("6.1", Value(6.1)),
        &["slowdown.ycsb-b"],
    )
    .hardware_dependent()
    .noted(PAIRS)
    .because(SLOWDOWN),
    magnitude(
        "slowdown-ycsb-d",
        "cost",
        TABLE_3,
        "Slowdown of YCSB D on FlatFlash relative to all-DRAM",
        ("5.5", Value(5.5)),
        &["slowdown.ycsb-d"],
    )
    .hardware_dependent()
    .noted(PAIRS)
    .because(SLOWDOWN),
];
