//! Reasons for claims that the recorded results miss. A parameter named here is one of the sensitivity
//! study's.

use crate::reason::{Ends, Reason};

const fn open(choice: &'static str, parameter: &'static str) -> Reason {
    Reason::LeftOpen { choice, ends: Ends::Parameter(parameter) }
}

pub(super) const STACK_SOFTWARE: Reason =
    open("the time of the storage stack's software", "stack.software.wait");
pub(super) const GUPS_THREADS_UNIFIED: Reason = Reason::LeftOpen {
    choice: "the number of threads",
    ends: Ends::Readings([
        ("1 thread", &["gups.t1.time.over_unified"]),
        ("8 threads", &["gups.t8.time.over_unified"]),
    ]),
};
pub(super) const GUPS_THREADS_STACK: Reason = Reason::LeftOpen {
    choice: "the number of threads",
    ends: Ends::Readings([
        ("1 thread", &["gups.t1.time.over_stack"]),
        ("8 threads", &["gups.t8.time.over_stack"]),
    ]),
};
pub(super) const GUPS_MEMORY: Reason = Reason::CannotBeHad(
    "The number of threads behind the sweep. With 24 the dies are busy, and the points differ by a sixth at \
     most.",
);
pub(super) const GUPS_MOVED: Reason = Reason::ContradictsItself {
    quote: "reduces page movement by 1.3-1.5×",
    arithmetic: "The 1 TB drive's SSD-Cache holds 4 % of the table's 8.4 million pages, so a page has 0.04 \
                 further uniform updates before it is evicted. Of such pages Algorithm 1, whose threshold \
                 every epoch sets to 7, promotes none, and UnifiedMMap moves a page for nearly every update.",
};
pub(super) const GRAPHS: Reason = Reason::CannotBeHad(
    "GraphChi's own passes over its partitions, and the sizes of DRAM: a pull over the edges of a generated \
     graph stands in for them.",
);
pub(super) const REDIS_SETS: Reason =
    open("the distribution's parameter, with which the paper sets the working set", "redis.theta");
pub(super) const REDIS_TAIL: Reason = Reason::ContradictsItself {
    quote: "2.2× and 2.5× on average",
    arithmetic: "Figure 11's caption has the two baselines the other way round. With the paper's own times a \
                 fault of UnifiedMMap takes 0.7 + 20 + 12.1 + 1.4, 34 µs, and a line of flash 0.7 + 20 + \
                 4.8, 26 µs: 1.3.",
};
pub(super) const YCSB_MEAN: Reason = Reason::ContradictsItself {
    quote: "up to 3.2× and 1.4×",
    arithmetic: "Section 5.4 gives 1.4 as the greatest gain in average latency over UnifiedMMap, so Table 1's \
                 average of 2.1 and 2.2 can only be of the tail, and is judged by the 99th percentile.",
};
pub(super) const LIFETIME: Reason = Reason::CannotBeHad(
    "How the paper derives a lifetime from its runs: it names the drive's writes, not how long it ran nor \
     what its drive kept in memory. Our runs count programmed pages.",
);
pub(super) const SLOWDOWN: Reason = Reason::CannotBeHad(
    "The programs' own work. Table 3 with Table 2 implies it: a GUPS update on FlatFlash takes at least 20 + \
     4.8 µs of 94 % of the pages, so 8.9 means 2.6 µs for an update in DRAM, where our machine takes a \
     tenth of a microsecond.",
);
pub(super) const FILES: Reason = open("the file sets", "fs.dirs");
pub(super) const BTRFS: Reason = open("what BtrFS writes for a change without fsync", "fs.btrfs");
pub(super) const BATCH: Reason = open("the number of changes that one journal transaction holds", "fs.batch");
pub(super) const FLUSHED: Reason = open(
    "whether the baselines' drive programs an acknowledged page at once or keeps it in its memory",
    "flushed",
);
pub(super) const ENGINE: Reason = open("the engine's own work between two accesses", "db.work");
pub(super) const SHORE: Reason = Reason::CannotBeHad(
    "Shore-MT: its lock of the log, its index pages and its buffer manager. Our clients access rows.",
);
