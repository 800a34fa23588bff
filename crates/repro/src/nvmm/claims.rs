//! Claims of the NVMM paper, and the names of the metrics that judge them. The published figures have no
//! numbers, so a claim names its section and the figure or table there.
//!
//! Metric names: `gups.speedup.t1.75us` is the time of the SSD system over that of NVMM with one thread
//! and 75 µs read latency; `t16` is sixteen threads, `prefetch16` NVMM prefetching the next sixteen
//! blocks.

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};
use crate::reason::{Ends, Reason};

const OVERHEAD: &str = "The Software Overhead of SSDs, table of access times";
const PERFORMANCE: &str = "Performance, Power, and Energy Comparisons, figure of performance";
const POWER: &str = "Performance, Power, and Energy Comparisons, figures of power and energy";
const GUPS: &str = "Latency Sensitivity, figure of GUPS";
const MMAP: &str = "Latency Sensitivity, figure of MMAP";

/// A trend that stands only in the earlier draft.
const fn draft_trend(
    id: &'static str,
    experiment: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    let source = "earlier draft, text inside the published figures";
    Claim {
        draft_only: true,
        ..trend(id, experiment, source, statement, expected, metrics).hardware_dependent()
    }
}

/// An exact value, fixed by the description of the page table.
const fn exact(
    id: &'static str,
    source: &'static str,
    statement: &'static str,
    (paper, value): (&'static str, f64),
    metrics: &'static [&'static str],
    unit: &'static str,
) -> Claim {
    magnitude(id, "page-table", source, statement, (paper, Expected::Value(value)), metrics)
        .held_to(Class::Exact, Tolerance::None)
        .unit(unit)
}

/// A cell of the table of access times.
const fn overhead(
    id: &'static str,
    statement: &'static str,
    (paper, value): (&'static str, f64),
    metrics: &'static [&'static str],
    unit: &'static str,
) -> Claim {
    magnitude(id, "overhead", OVERHEAD, statement, (paper, Expected::Value(value)), metrics)
        .held_to(Class::Calibrated, Tolerance::Relative(0.05))
        .unit(unit)
        .hardware_dependent()
}

const MANY: &str = "Sixteen threads. The paper does not say whether NVMM prefetches here; we assume that \
                    it does not.";
const SOME: &str = "We read \"80 % for some\" as: some are within ten points of 80 %, the others above.";
const NEARLY: &str = "We read \"approaches\" as the best of the realistic workloads.";
const ANY_RATE: &str = "No verdict: the value hangs on the bandwidth alone, which the paper holds constant but does \
                        not name. The experiment shows it from 0.1 to 6.4 GB/s.";
const FAR_BELOW: &str = "We read \"significantly lower\" as at most half.";

/// The table of access times names no load.
const OTHERS: Reason = Reason::LeftOpen {
    choice: "the load on the drive while its accesses were timed; alone, every read takes the same time",
    ends: Ends::Parameter("overhead.others"),
};
const PROGRAMS: Reason = Reason::CannotBeHad(
    "The programs: eight of eleven are models, whose intensity is assumed. Compared with the ends of the \
     figures' axes, the light mix is too light.",
);
const RATES: Reason = Reason::CannotBeHad(
    "The programs: no rate is published for the video server, the slowest of ours, whose intensity is \
     assumed.",
);
const UPDATES: Reason = Reason::LeftOpen {
    choice: "the number of instructions of an update, which decides how many loads of a thread are outstanding",
    ends: Ends::Parameter("gap"),
};

/// All claims of the paper.
pub const CLAIMS: [Claim; 47] = [
    // Page table.
    exact("entry-size", "Page Table", "Size of a page-table entry", ("16 B", 16.0), &["entry.bytes"], "B"),
    exact(
        "bit-vector-examples",
        "Use of the Bit Vector's Sub-Page Valid Bits",
        "Examples of bit vectors reproduced bit for bit: whole page, two worn flash pages, two dirty \
         segments",
        ("3 of 3", 3.0),
        &["vector.examples_right"],
        "",
    )
    .noted("Computed by the code that the pool and the simulator use."),
    exact(
        "bit-vector-distances",
        "Use of the Bit Vector's Sub-Page Valid Bits",
        "Distances between segments 2 and 5 that one entry can hold, with the vectors listed",
        ("7 of 7", 7.0),
        &["vector.distances_right"],
        "",
    )
    .noted(
        "All distances from 1 to 31 are tried; a missing or an additional distance would change the \
            count.",
    ),
    // Software overhead.
    overhead(
        "overhead-slc-total",
        "SLC: total access time, mean",
        ("85.4 µs", 85.4),
        &["slc.total_us"],
        "µs",
    ),
    overhead(
        "overhead-slc-total-sd",
        "SLC: total access time, standard deviation",
        ("33.8 µs", 33.8),
        &["slc.total_sd_us"],
        "µs",
    ),
    overhead("overhead-slc-hw", "SLC: hardware time, mean", ("38.9 µs", 38.9), &["slc.hw_us"], "µs"),
    overhead(
        "overhead-slc-hw-sd",
        "SLC: hardware time, standard deviation",
        ("6.7 µs", 6.7),
        &["slc.hw_sd_us"],
        "µs",
    )
    .because(OTHERS),
    overhead("overhead-slc-sw", "SLC: software time, mean", ("46.5 µs", 46.5), &["slc.sw_us"], "µs"),
    overhead("overhead-slc-share", "SLC: share of software time", ("54 %", 54.0), &["slc.sw_percent"], "%"),
    overhead(
        "overhead-mlc-total",
        "MLC: total access time, mean",
        ("162.2 µs", 162.2),
        &["mlc.total_us"],
        "µs",
    ),
    overhead(
        "overhead-mlc-total-sd",
        "MLC: total access time, standard deviation",
        ("61.1 µs", 61.1),
        &["mlc.total_sd_us"],
        "µs",
    ),
    overhead("overhead-mlc-hw", "MLC: hardware time, mean", ("88.8 µs", 88.8), &["mlc.hw_us"], "µs"),
    overhead(
        "overhead-mlc-hw-sd",
        "MLC: hardware time, standard deviation",
        ("13.0 µs", 13.0),
        &["mlc.hw_sd_us"],
        "µs",
    )
    .because(OTHERS),
    overhead("overhead-mlc-sw", "MLC: software time, mean", ("73.4 µs", 73.4), &["mlc.sw_us"], "µs"),
    overhead("overhead-mlc-share", "MLC: share of software time", ("45 %", 45.0), &["mlc.sw_percent"], "%"),
    // Technologies.
    magnitude(
        "nvmm-over-ssd",
        "technology",
        PERFORMANCE,
        "Speedup of NVMM over the SSD system, mean of all workloads",
        ("1.5 to 2", Expected::Range(1.5, 2.0)),
        &["nvmm_over_ssd.mean"],
    )
    .hardware_dependent()
    .because(PROGRAMS),
    magnitude(
        "within-dram",
        "technology",
        PERFORMANCE,
        "Speedup of all-DRAM over NVMM, mean of all workloads",
        ("at most 2", Expected::AtMost(2.0)),
        &["dram_over_nvmm.mean"],
    )
    .hardware_dependent(),
    magnitude(
        "slc-single",
        "technology",
        PERFORMANCE,
        "Performance of NVMM with SLC relative to all-DRAM, realistic single-threaded workloads",
        ("about 95 %", Expected::Value(95.0)),
        &["slc.single_thread_percent"],
    )
    .hardware_dependent()
    .unit("%")
    .noted(NEARLY),
    magnitude(
        "slc-multi",
        "technology",
        PERFORMANCE,
        "Performance of NVMM with SLC relative to all-DRAM, the worst of the realistic multi-threaded \
         workloads",
        ("80 %", Expected::Value(80.0)),
        &["slc.multi_thread_least_percent"],
    )
    .held_to(Class::Magnitude, Tolerance::Absolute(10.0))
    .hardware_dependent()
    .unit("%")
    .noted(SOME)
    .because(RATES),
    // GUPS.
    magnitude(
        "gups-1",
        "gups",
        GUPS,
        "GUPS at 75 µs, one thread: speedup of NVMM over the SSD system",
        ("3", Expected::Value(3.0)),
        &["gups.speedup.t1.75us"],
    )
    .hardware_dependent()
    .because(UPDATES),
    magnitude(
        "gups-1-prefetch",
        "gups",
        GUPS,
        "GUPS at 75 µs, one thread, prefetching 16 blocks: speedup of NVMM over the SSD system",
        ("3.7", Expected::Value(3.7)),
        &["gups.speedup.t1.prefetch16.75us"],
    )
    .held_to(Class::Calibrated, Tolerance::Relative(0.2))
    .hardware_dependent()
    .noted(
        "The size of the table was calibrated on the ratio of this value to the one without prefetching, \
            3.7 / 3.",
    )
    .because(UPDATES),
    magnitude(
        "gups-many",
        "gups",
        GUPS,
        "GUPS at 75 µs, many threads: speedup of NVMM over the SSD system",
        ("4.7", Expected::Value(4.7)),
        &["gups.speedup.t16.75us"],
    )
    .hardware_dependent()
    .noted(MANY)
    .because(UPDATES),
    trend(
        "gups-prefetch-hurts",
        "gups",
        GUPS,
        "GUPS at 750 µs, one thread: speedup of NVMM by prefetching",
        ("below 1", Expected::AtMost(1.0)),
        &["gups.prefetch_gain.t1.750us"],
    )
    .hardware_dependent(),
    // MMAP.
    magnitude(
        "mmap-1",
        "mmap",
        MMAP,
        "MMAP at 75 µs, one thread: speedup of NVMM over the SSD system",
        ("about 1", Expected::Value(1.0)),
        &["mmap.speedup.t1.75us"],
    )
    .hardware_dependent()
    .because(Reason::LeftOpen { choice: "the size of the file", ends: Ends::Parameter("data") }),
    magnitude(
        "mmap-1-prefetch",
        "mmap",
        MMAP,
        "MMAP at 75 µs, one thread, prefetching 16 blocks: speedup of NVMM over the SSD system",
        ("1.6", Expected::Value(1.6)),
        &["mmap.speedup.t1.prefetch16.75us"],
    )
    .hardware_dependent(),
    magnitude(
        "mmap-many",
        "mmap",
        MMAP,
        "MMAP at 75 µs, many threads: speedup of NVMM over the SSD system",
        ("3", Expected::Value(3.0)),
        &["mmap.speedup.t16.75us"],
    )
    .hardware_dependent(),
    magnitude(
        "mmap-many-prefetch",
        "mmap",
        MMAP,
        "MMAP at 75 µs, many threads, prefetching 16 blocks: speedup of NVMM over the SSD system",
        ("7", Expected::Value(7.0)),
        &["mmap.speedup.t16.prefetch16.75us"],
    )
    .hardware_dependent()
    .because(Reason::ContradictsItself {
        quote: "1.6x",
        arithmetic: "for one thread, and 3 without and 7 with prefetching for many is a gain of 2.3 for the \
                     same reads, although more threads leave less of the channels to prefetches.",
    }),
    trend(
        "mmap-crossover",
        "mmap",
        MMAP,
        "MMAP at 150 µs, one thread, no prefetching: the SSD system is faster",
        ("below 1", Expected::AtMost(1.0)),
        &["mmap.speedup.t1.150us"],
    )
    .hardware_dependent(),
    trend(
        "mmap-crossover-far",
        "mmap",
        MMAP,
        "MMAP at 750 µs, one thread, no prefetching: the SSD system is faster",
        ("below 1", Expected::AtMost(1.0)),
        &["mmap.speedup.t1.750us"],
    )
    .hardware_dependent(),
    draft_trend(
        "mmap-crossover-prefetch",
        "mmap",
        "MMAP at 750 µs, one thread, prefetching: NVMM is still faster",
        ("above 1", Expected::AtLeast(1.0)),
        &["mmap.speedup.t1.prefetch16.750us"],
    )
    .because(Reason::ContradictsItself {
        quote: "roughly the same",
        arithmetic: "time at 75 µs means that readahead gains 162 / 88 = 1.84. At 750 µs the SSD system then \
                     takes 837 / 1.84 = 455 µs, and NVMM with its gain of 1.6 takes 763 / 1.6 = 477 µs: a \
                     ratio of 0.95.",
    }),
    draft_trend(
        "mmap-crossover-many",
        "mmap",
        "MMAP at 750 µs, many threads: NVMM is still faster",
        ("above 1", Expected::AtLeast(1.0)),
        &["mmap.speedup.t16.750us"],
    ),
    // Filebench.
    draft_trend(
        "filebench-oltp",
        "filebench",
        "OLTP: speedup of NVMM over the SSD system",
        ("1.1", Expected::AtLeast(1.0)),
        &["oltp.speedup"],
    )
    .because(Reason::LeftOpen {
        choice: "the number of threads",
        ends: Ends::Parameter("filebench.threads"),
    }),
    draft_trend(
        "filebench-varmail",
        "filebench",
        "Varmail: speedup of NVMM over the SSD system",
        ("3", Expected::AtLeast(1.0)),
        &["varmail.speedup"],
    )
    .because(Reason::LeftOpen {
        choice: "whether NVMM prefetches",
        ends: Ends::Parameter("filebench.prefetch"),
    }),
    draft_trend(
        "filebench-fileserver",
        "filebench",
        "FileServer: speedup of NVMM over the SSD system",
        ("below 1", Expected::AtMost(1.0)),
        &["fileserver.speedup"],
    ),
    draft_trend(
        "filebench-webproxy",
        "filebench",
        "WebProxy: speedup of NVMM over the SSD system",
        ("below 1", Expected::AtMost(1.0)),
        &["webproxy.speedup"],
    ),
    draft_trend(
        "filebench-webserver",
        "filebench",
        "WebServer: speedup of NVMM over the SSD system",
        ("below 1", Expected::AtMost(1.0)),
        &["webserver.speedup"],
    ),
    // Randomness and prefetch.
    draft_trend(
        "randomness-grows",
        "randomness",
        "Speedup of NVMM over the SSD system grows from 10 % to 100 % random accesses",
        ("2, then 5", Expected::Rising),
        &["speedup.random10", "speedup.random100"],
    ),
    draft_trend(
        "prefetch-dd-read",
        "prefetch",
        "dd reading, MLC: speedup by the best prefetch window",
        ("up to 6", Expected::Range(1.0, 6.0)),
        &["dd_read.gain"],
    )
    .because(Reason::LeftOpen {
        choice: "the planes of consecutive blocks",
        ends: Ends::Parameter("nvmm.stripe"),
    }),
    draft_trend(
        "prefetch-dd-write",
        "prefetch",
        "dd writing, MLC: speedup by a prefetch window of 16 blocks",
        ("nearly 3", Expected::AtLeast(1.0)),
        &["dd_write.gain16"],
    ),
    // Power and energy.
    trend(
        "power-8g",
        "power",
        POWER,
        "Power of NVMM relative to all-DRAM, 8 GB",
        ("about 1", Expected::Range(0.5, 2.0)),
        &[],
    )
    .noted(ANY_RATE),
    trend(
        "energy-8g",
        "power",
        POWER,
        "Energy of NVMM relative to all-DRAM, 8 GB",
        ("about 1", Expected::Range(0.5, 2.0)),
        &[],
    )
    .hardware_dependent()
    .noted(ANY_RATE),
    trend(
        "power-1t",
        "power",
        POWER,
        "Power of NVMM relative to all-DRAM, 1 TB",
        ("well below 1", Expected::AtMost(0.5)),
        &["nvmm_over_dram.1tb.power"],
    )
    .noted(FAR_BELOW),
    trend(
        "energy-1t",
        "power",
        POWER,
        "Energy of NVMM relative to all-DRAM, 1 TB",
        ("well below 1", Expected::AtMost(0.5)),
        &["nvmm_over_dram.1tb.energy"],
    )
    .hardware_dependent()
    .noted(FAR_BELOW),
    trend(
        "power-dram-1t",
        "power",
        POWER,
        "Power of 1 TB of DRAM with unused ranks in low-power modes",
        ("below 100 W", Expected::AtMost(100.0)),
        &["dram.1tb.power_w"],
    )
    .unit("W")
    .noted("The paper says that the power would approach 100 W without these modes."),
    trend(
        "background-8g",
        "power",
        POWER,
        "Background and refresh power as a share of all power, 8 GB of DRAM",
        ("small", Expected::AtMost(50.0)),
        &[],
    )
    .unit("%")
    .noted(ANY_RATE),
    trend(
        "background-1t",
        "power",
        POWER,
        "Background and refresh power as a share of all power, 1 TB of DRAM",
        ("dominates", Expected::AtLeast(50.0)),
        &["dram.1tb.background_percent"],
    )
    .unit("%"),
    // Lifetime.
    trend(
        "wear-order",
        "lifetime",
        "Nonvolatile Main Memory System Architecture, figure of the architecture",
        "Time until half and all capacity of one 8 Gb device is worn out, then of a thousand devices",
        ("2 and 3 days; 2 to 3 and 4 to 5 years", Expected::Rising),
        &["one.half_days", "one.gone_days", "thousand.half_days", "thousand.gone_days"],
    )
    .unit("days")
    .noted("Trend only: a thousand times two and three days is 5.5 and 8.2 years, not the paper's value."),
];
