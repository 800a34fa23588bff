//! Claims about latency and GUPS: sections 5.1 and 5.2, and their rows of Table 1.

use super::reasons::{GUPS_MEMORY, GUPS_MOVED, GUPS_THREADS_STACK, GUPS_THREADS_UNIFIED, LIFETIME};
use super::{PAGES, TABLE_1};
use crate::claim::{Claim, Expected, magnitude, trend};

use Expected::{AtLeast, Range, Rising, Value};

const LATENCY: &str = "section 5.1, Figure 8";
const GUPS: &str = "section 5.2, Figure 9";

/// The claims.
pub(in super::super) const CLAIMS: &[Claim] = &[
    magnitude(
        "random-unified-least",
        "latency",
        LATENCY,
        "Random access latency of UnifiedMMap over FlatFlash, least over drive sizes",
        ("1.2 to 1.4", Range(1.2, 1.4)),
        &["random.over_unified.least"],
    ),
    magnitude(
        "random-unified-most",
        "latency",
        LATENCY,
        "Random access latency of UnifiedMMap over FlatFlash, greatest over drive sizes",
        ("1.2 to 1.4", Range(1.2, 1.4)),
        &["random.over_unified.most"],
    ),
    magnitude(
        "random-stack-least",
        "latency",
        LATENCY,
        "Random access latency of TraditionalStack over FlatFlash, least over drive sizes",
        ("1.8 to 2.1", Range(1.8, 2.1)),
        &["random.over_stack.least"],
    ),
    magnitude(
        "random-stack-most",
        "latency",
        LATENCY,
        "Random access latency of TraditionalStack over FlatFlash, greatest over drive sizes",
        ("1.8 to 2.1", Range(1.8, 2.1)),
        &["random.over_stack.most"],
    ),
    magnitude(
        "sequential-unified",
        "latency",
        LATENCY,
        "Sequential access latency of UnifiedMMap over FlatFlash, mean over drive sizes",
        ("about 1", Value(1.0)),
        &["sequential.over_unified.mean"],
    ),
    trend(
        "sequential-stack",
        "latency",
        LATENCY,
        "Sequential access latency of TraditionalStack over FlatFlash, mean over drive sizes",
        ("well above 1", AtLeast(1.0)),
        &["sequential.over_stack.mean"],
    ),
    magnitude(
        "gups-unified-least",
        "gups",
        GUPS,
        "GUPS time of UnifiedMMap over FlatFlash, least over drive sizes",
        ("1.5 to 1.6", Range(1.5, 1.6)),
        &["gups.time.over_unified.least"],
    )
    .because(GUPS_THREADS_UNIFIED),
    magnitude(
        "gups-unified-most",
        "gups",
        GUPS,
        "GUPS time of UnifiedMMap over FlatFlash, greatest over drive sizes",
        ("1.5 to 1.6", Range(1.5, 1.6)),
        &["gups.time.over_unified.most"],
    )
    .because(GUPS_THREADS_UNIFIED),
    magnitude(
        "gups-stack-least",
        "gups",
        GUPS,
        "GUPS time of TraditionalStack over FlatFlash, least over drive sizes",
        ("2.5 to 2.7", Range(2.5, 2.7)),
        &["gups.time.over_stack.least"],
    )
    .because(GUPS_THREADS_STACK),
    magnitude(
        "gups-stack-most",
        "gups",
        GUPS,
        "GUPS time of TraditionalStack over FlatFlash, greatest over drive sizes",
        ("2.5 to 2.7", Range(2.5, 2.7)),
        &["gups.time.over_stack.most"],
    )
    .because(GUPS_THREADS_STACK),
    magnitude(
        "gups-moved-unified",
        "gups",
        GUPS,
        "GUPS page movements of UnifiedMMap over FlatFlash",
        ("1.3 to 1.5", Range(1.3, 1.5)),
        &["gups.moved.over_unified"],
    )
    .because(GUPS_MOVED),
    magnitude(
        "gups-moved-stack",
        "gups",
        GUPS,
        "GUPS page movements of TraditionalStack over FlatFlash",
        ("1.3 to 1.5", Range(1.3, 1.5)),
        &["gups.moved.over_stack"],
    )
    .because(GUPS_MOVED),
    trend(
        "gups-memory-unified",
        "gups",
        GUPS,
        "GUPS speedup over UnifiedMMap with 1/4, 1/2, 1, 2 and 4 times the SSD-Cache",
        ("rising", Rising),
        &[
            "gups.memory.x0.25.over_unified",
            "gups.memory.x0.5.over_unified",
            "gups.memory.x1.over_unified",
            "gups.memory.x2.over_unified",
            "gups.memory.x4.over_unified",
        ],
    ),
    trend(
        "gups-memory-stack",
        "gups",
        GUPS,
        "GUPS speedup over TraditionalStack with 1/4, 1/2, 1, 2 and 4 times the SSD-Cache",
        ("rising", Rising),
        &[
            "gups.memory.x0.25.over_stack",
            "gups.memory.x0.5.over_stack",
            "gups.memory.x1.over_stack",
            "gups.memory.x2.over_stack",
            "gups.memory.x4.over_stack",
        ],
    )
    .because(GUPS_MEMORY),
    magnitude(
        "gups-mean",
        "gups",
        TABLE_1,
        "GUPS mean speedup over UnifiedMMap",
        ("1.6", Value(1.6)),
        &["gups.time.over_unified.mean"],
    )
    .because(GUPS_THREADS_UNIFIED),
    magnitude(
        "gups-lifetime",
        "gups",
        TABLE_1,
        "GUPS lifetime of the drive relative to UnifiedMMap",
        ("1.3", Value(1.3)),
        &["gups.programs.over_unified"],
    )
    .noted(PAGES)
    .because(LIFETIME),
];
