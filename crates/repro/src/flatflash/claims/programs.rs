//! Claims about graph analytics and the key-value store: sections 5.3 and 5.4, and their rows of Table
//! 1.

use super::reasons::{GRAPHS, LIFETIME, REDIS_SETS, REDIS_TAIL, STACK_SOFTWARE, YCSB_MEAN};
use super::{PAGES, PAIRS, STAND_IN, TABLE_1};
use crate::claim::{Claim, Expected, magnitude, trend};

use Expected::{Range, Rising, Value};

const GRAPH: &str = "section 5.3, Figure 10";
const REDIS: &str = "section 5.4, Figures 11 and 12";
const TAIL: &str = "Judged on the 99th percentile, because the mean latencies of Figure 12 do not give the value in Table \
     1.";

/// The claims.
pub(in super::super) const CLAIMS: &[Claim] = &[
    magnitude(
        "pagerank-unified-least",
        "graph",
        GRAPH,
        "PageRank time of UnifiedMMap over FlatFlash, least over graphs and DRAM sizes",
        ("1.1 to 1.6", Range(1.1, 1.6)),
        &["pagerank.time.over_unified.least"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "pagerank-unified-most",
        "graph",
        GRAPH,
        "PageRank time of UnifiedMMap over FlatFlash, greatest over graphs and DRAM sizes",
        ("1.1 to 1.6", Range(1.1, 1.6)),
        &["pagerank.time.over_unified.most"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "pagerank-stack-least",
        "graph",
        GRAPH,
        "PageRank time of TraditionalStack over FlatFlash, least over graphs and DRAM sizes",
        ("1.2 to 3.3", Range(1.2, 3.3)),
        &["pagerank.time.over_stack.least"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "pagerank-stack-most",
        "graph",
        GRAPH,
        "PageRank time of TraditionalStack over FlatFlash, greatest over graphs and DRAM sizes",
        ("1.2 to 3.3", Range(1.2, 3.3)),
        &["pagerank.time.over_stack.most"],
    )
    .hardware_dependent()
    .noted(STAND_IN)
    .because(GRAPHS),
    trend(
        "pagerank-dram",
        "graph",
        GRAPH,
        "PageRank speedup over UnifiedMMap with the most and with the least DRAM",
        ("rising", Rising),
        &["pagerank.dram4096mib.over_unified", "pagerank.dram512mib.over_unified"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "pagerank-mean",
        "graph",
        TABLE_1,
        "PageRank mean speedup over UnifiedMMap",
        ("1.3", Value(1.3)),
        &["pagerank.time.over_unified.mean"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "pagerank-lifetime",
        "graph",
        TABLE_1,
        "PageRank lifetime of the drive relative to UnifiedMMap",
        ("1.5", Value(1.5)),
        &["pagerank.programs.over_unified"],
    )
    .hardware_dependent()
    .noted(PAGES)
    .because(LIFETIME),
    magnitude(
        "cc-unified-least",
        "graph",
        GRAPH,
        "Connected components time of UnifiedMMap over FlatFlash, least over graphs and DRAM sizes",
        ("1.1 to 2.3", Range(1.1, 2.3)),
        &["cc.time.over_unified.least"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "cc-unified-most",
        "graph",
        GRAPH,
        "Connected components time of UnifiedMMap over FlatFlash, greatest over graphs and DRAM sizes",
        ("1.1 to 2.3", Range(1.1, 2.3)),
        &["cc.time.over_unified.most"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "cc-stack-least",
        "graph",
        GRAPH,
        "Connected components time of TraditionalStack over FlatFlash, least over graphs and DRAM sizes",
        ("1.3 to 4.8", Range(1.3, 4.8)),
        &["cc.time.over_stack.least"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "cc-stack-most",
        "graph",
        GRAPH,
        "Connected components time of TraditionalStack over FlatFlash, greatest over graphs and DRAM sizes",
        ("1.3 to 4.8", Range(1.3, 4.8)),
        &["cc.time.over_stack.most"],
    )
    .hardware_dependent()
    .noted(STAND_IN)
    .because(GRAPHS),
    trend(
        "cc-dram",
        "graph",
        GRAPH,
        "Connected components speedup over UnifiedMMap with the most and with the least DRAM",
        ("rising", Rising),
        &["cc.dram4096mib.over_unified", "cc.dram512mib.over_unified"],
    )
    .hardware_dependent()
    .noted(STAND_IN),
    magnitude(
        "cc-mean",
        "graph",
        TABLE_1,
        "Connected components mean speedup over UnifiedMMap",
        ("1.5", Value(1.5)),
        &["cc.time.over_unified.mean"],
    )
    .hardware_dependent()
    .noted(STAND_IN)
    .because(GRAPHS),
    magnitude(
        "cc-lifetime",
        "graph",
        TABLE_1,
        "Connected components lifetime of the drive relative to UnifiedMMap",
        ("1.9", Value(1.9)),
        &["cc.programs.over_unified"],
    )
    .hardware_dependent()
    .noted(PAGES)
    .because(LIFETIME),
    magnitude(
        "redis-mean-unified-least",
        "redis",
        REDIS,
        "Redis mean latency of UnifiedMMap over FlatFlash, least over workloads and working sets",
        ("1.1 to 1.4", Range(1.1, 1.4)),
        &["redis.mean.over_unified.least"],
    )
    .hardware_dependent()
    .noted(PAIRS),
    magnitude(
        "redis-mean-unified-most",
        "redis",
        REDIS,
        "Redis mean latency of UnifiedMMap over FlatFlash, greatest over workloads and working sets",
        ("1.1 to 1.4", Range(1.1, 1.4)),
        &["redis.mean.over_unified.most"],
    )
    .hardware_dependent()
    .noted(PAIRS)
    .because(REDIS_SETS),
    magnitude(
        "redis-mean-stack-least",
        "redis",
        REDIS,
        "Redis mean latency of TraditionalStack over FlatFlash, least over workloads and working sets",
        ("1.2 to 3.2", Range(1.2, 3.2)),
        &["redis.mean.over_stack.least"],
    )
    .hardware_dependent()
    .noted(PAIRS),
    magnitude(
        "redis-mean-stack-most",
        "redis",
        REDIS,
        "Redis mean latency of TraditionalStack over FlatFlash, greatest over workloads and working sets",
        ("1.2 to 3.2", Range(1.2, 3.2)),
        &["redis.mean.over_stack.most"],
    )
    .hardware_dependent()
    .noted(PAIRS)
    .because(REDIS_SETS),
    magnitude(
        "redis-tail-unified",
        "redis",
        REDIS,
        "Redis 99th percentile latency of UnifiedMMap over FlatFlash, mean",
        ("2.2", Value(2.2)),
        &["redis.p99.over_unified.mean"],
    )
    .hardware_dependent()
    .noted(PAIRS)
    .because(REDIS_TAIL),
    magnitude(
        "redis-tail-stack",
        "redis",
        REDIS,
        "Redis 99th percentile latency of TraditionalStack over FlatFlash, mean",
        ("2.5", Value(2.5)),
        &["redis.p99.over_stack.mean"],
    )
    .hardware_dependent()
    .noted(PAIRS)
    .because(STACK_SOFTWARE),
    magnitude(
        "redis-moved",
        "redis",
        REDIS,
        "Pages moved under YCSB B with a working set of 16 times the DRAM, TraditionalStack over FlatFlash",
        ("3.9 M over 2.7 M", Value(3.9 / 2.7)),
        &["ycsb-b.moved.x16.over_stack"],
    )
    .hardware_dependent()
    .noted(PAIRS)
    .because(REDIS_SETS),
    magnitude(
        "ycsb-b-mean",
        "redis",
        TABLE_1,
        "YCSB B mean speedup over UnifiedMMap",
        ("2.1", Value(2.1)),
        &["ycsb-b.p99.over_unified.mean"],
    )
    .hardware_dependent()
    .noted(TAIL)
    .because(YCSB_MEAN),
    magnitude(
        "ycsb-b-lifetime",
        "redis",
        TABLE_1,
        "YCSB B lifetime of the drive relative to UnifiedMMap",
        ("1.3", Value(1.3)),
        &["ycsb-b.programs.over_unified"],
    )
    .hardware_dependent()
    .noted(PAGES),
    magnitude(
        "ycsb-d-mean",
        "redis",
        TABLE_1,
        "YCSB D mean speedup over UnifiedMMap",
        ("2.2", Value(2.2)),
        &["ycsb-d.p99.over_unified.mean"],
    )
    .hardware_dependent()
    .noted(TAIL),
    magnitude(
        "ycsb-d-lifetime",
        "redis",
        TABLE_1,
        "YCSB D lifetime of the drive relative to UnifiedMMap",
        ("1.3", Value(1.3)),
        &["ycsb-d.programs.over_unified"],
    )
    .hardware_dependent()
    .noted(PAGES)
    .because(LIFETIME),
];
