//! What the NVMM paper claims (facts.md section 6, rows S0; section 8 item 4 for wear), and the names of the
//! figures that the experiments have to yield for it.
//!
//! Names of figures: `gups.speedup.t1.75us` is NVMM over the SSD system, user instructions per cycle, one thread,
//! 75 µs of read latency; `t16` sixteen threads; `prefetch16` NVMM fetching the next sixteen blocks.

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};

const OVERHEAD: &str = "The Software Overhead of SSDs, table";
const PERFORMANCE: &str = "Performance, Power, and Energy Comparisons";
const LATENCY: &str = "Latency Sensitivity";

/// A trend that only the text of the earlier draft has.
const fn ghost(
    id: &'static str,
    experiment: &'static str,
    what: &'static str,
    expected: (&'static str, Expected),
    figures: &'static [&'static str],
) -> Claim {
    let place = "earlier draft, within the figures";
    Claim { ghost: true, ..trend(id, experiment, place, what, expected, figures).guest() }
}

/// A number that the page table's description fixes.
const fn exact(
    id: &'static str,
    place: &'static str,
    what: &'static str,
    (paper, value): (&'static str, f64),
    figures: &'static [&'static str],
    unit: &'static str,
) -> Claim {
    magnitude(id, "page-table", place, what, (paper, Expected::Value(value)), figures)
        .held_to(Class::Exact, Tolerance::None)
        .unit(unit)
}

/// A cell of the software-overhead table.
const fn overhead(
    id: &'static str,
    what: &'static str,
    (paper, value): (&'static str, f64),
    figures: &'static [&'static str],
    unit: &'static str,
) -> Claim {
    magnitude(id, "overhead", OVERHEAD, what, (paper, Expected::Value(value)), figures)
        .held_to(Class::Calibrated, Tolerance::Relative(0.05))
        .unit(unit)
        .guest()
}

const MANY: &str = "sixteen threads; the text does not say whether NVMM prefetches here: read as not";
const NEARLY: &str = "\"approaches\" is read as the best of the realistic workloads";
const ROUGHLY: &str = "\"roughly equivalent\" is read as within a factor of two";
const FAR_BELOW: &str = "\"significantly lower\" is read as at most half";

/// All of them.
pub const CLAIMS: [Claim; 47] = [
    // Page table.
    exact("entry-size", "Page Table", "Size of a page-table entry", ("16 B", 16.0), &["entry.bytes"], "B"),
    exact(
        "bit-vector-examples",
        "Use of the Bit Vector's Sub-Page Valid Bits",
        "Examples of bit vectors that come out bit for bit: whole page, two worn flash pages, \
         two dirty segments",
        ("3 of 3", 3.0),
        &["vector.examples_right"],
        "",
    )
    .noted("placed by the code that the pool and the simulator use"),
    exact(
        "bit-vector-distances",
        "Use of the Bit Vector's Sub-Page Valid Bits",
        "Distances of segments 2 and 5 that one entry can hold, with the vectors of the list",
        ("7 of 7", 7.0),
        &["vector.distances_right"],
        "",
    )
    .noted("all distances from 1 to 31 are tried: one more or fewer than the list would show"),
    // Software overhead.
    overhead("overhead-slc-total", "SLC: whole access, mean", ("85.4 µs", 85.4), &["slc.total_us"], "µs"),
    overhead(
        "overhead-slc-total-sd",
        "SLC: whole access, deviation",
        ("33.8 µs", 33.8),
        &["slc.total_sd_us"],
        "µs",
    ),
    overhead("overhead-slc-hw", "SLC: hardware part, mean", ("38.9 µs", 38.9), &["slc.hw_us"], "µs"),
    overhead("overhead-slc-hw-sd", "SLC: hardware part, deviation", ("6.7 µs", 6.7), &["slc.hw_sd_us"], "µs"),
    overhead("overhead-slc-sw", "SLC: software part, mean", ("46.5 µs", 46.5), &["slc.sw_us"], "µs"),
    overhead("overhead-slc-share", "SLC: software's share", ("54 %", 54.0), &["slc.sw_percent"], "%"),
    overhead("overhead-mlc-total", "MLC: whole access, mean", ("162.2 µs", 162.2), &["mlc.total_us"], "µs"),
    overhead(
        "overhead-mlc-total-sd",
        "MLC: whole access, deviation",
        ("61.1 µs", 61.1),
        &["mlc.total_sd_us"],
        "µs",
    ),
    overhead("overhead-mlc-hw", "MLC: hardware part, mean", ("88.8 µs", 88.8), &["mlc.hw_us"], "µs"),
    overhead(
        "overhead-mlc-hw-sd",
        "MLC: hardware part, deviation",
        ("13.0 µs", 13.0),
        &["mlc.hw_sd_us"],
        "µs",
    ),
    overhead("overhead-mlc-sw", "MLC: software part, mean", ("73.4 µs", 73.4), &["mlc.sw_us"], "µs"),
    overhead("overhead-mlc-share", "MLC: software's share", ("45 %", 45.0), &["mlc.sw_percent"], "%"),
    // Technologies.
    magnitude(
        "nvmm-over-ssd",
        "technology",
        PERFORMANCE,
        "NVMM over the SSD system, mean of all workloads",
        ("1.5 to 2", Expected::Range(1.5, 2.0)),
        &["nvmm_over_ssd.mean"],
    )
    .guest(),
    magnitude(
        "within-dram",
        "technology",
        PERFORMANCE,
        "All-DRAM over NVMM, mean of all workloads",
        ("at most 2", Expected::AtMost(2.0)),
        &["dram_over_nvmm.mean"],
    )
    .guest(),
    magnitude(
        "slc-single",
        "technology",
        PERFORMANCE,
        "NVMM with SLC, share of all-DRAM, realistic single-threaded workloads",
        ("about 95 %", Expected::Value(95.0)),
        &["slc.single_thread_percent"],
    )
    .guest()
    .unit("%")
    .noted(NEARLY),
    magnitude(
        "slc-multi",
        "technology",
        PERFORMANCE,
        "NVMM with SLC, share of all-DRAM, some realistic multi-threaded workloads",
        ("80 %", Expected::Value(80.0)),
        &["slc.multi_thread_percent"],
    )
    .guest()
    .unit("%")
    .noted(NEARLY),
    // GUPS.
    magnitude(
        "gups-1",
        "gups",
        LATENCY,
        "GUPS at 75 µs, one thread: NVMM over SSD",
        ("3", Expected::Value(3.0)),
        &["gups.speedup.t1.75us"],
    )
    .guest(),
    magnitude(
        "gups-1-prefetch",
        "gups",
        LATENCY,
        "GUPS at 75 µs, one thread, prefetching sixteen: NVMM over SSD",
        ("3.7", Expected::Value(3.7)),
        &["gups.speedup.t1.prefetch16.75us"],
    )
    .guest(),
    magnitude(
        "gups-many",
        "gups",
        LATENCY,
        "GUPS at 75 µs, many threads: NVMM over SSD",
        ("4.7", Expected::Value(4.7)),
        &["gups.speedup.t16.75us"],
    )
    .guest()
    .noted(MANY),
    trend(
        "gups-prefetch-hurts",
        "gups",
        LATENCY,
        "GUPS at 750 µs, one thread: NVMM with prefetch over without",
        ("below 1", Expected::AtMost(1.0)),
        &["gups.prefetch_gain.t1.750us"],
    )
    .guest(),
    // MMAP.
    magnitude(
        "mmap-1",
        "mmap",
        LATENCY,
        "MMAP at 75 µs, one thread: NVMM over SSD",
        ("about 1", Expected::Value(1.0)),
        &["mmap.speedup.t1.75us"],
    )
    .guest(),
    magnitude(
        "mmap-1-prefetch",
        "mmap",
        LATENCY,
        "MMAP at 75 µs, one thread, prefetching sixteen: NVMM over SSD",
        ("1.6", Expected::Value(1.6)),
        &["mmap.speedup.t1.prefetch16.75us"],
    )
    .guest(),
    magnitude(
        "mmap-many",
        "mmap",
        LATENCY,
        "MMAP at 75 µs, many threads: NVMM over SSD",
        ("3", Expected::Value(3.0)),
        &["mmap.speedup.t16.75us"],
    )
    .guest(),
    magnitude(
        "mmap-many-prefetch",
        "mmap",
        LATENCY,
        "MMAP at 75 µs, many threads, prefetching sixteen: NVMM over SSD",
        ("7", Expected::Value(7.0)),
        &["mmap.speedup.t16.prefetch16.75us"],
    )
    .guest(),
    trend(
        "mmap-crossover",
        "mmap",
        LATENCY,
        "MMAP at 150 µs, one thread, no prefetch: the SSD is ahead",
        ("below 1", Expected::AtMost(1.0)),
        &["mmap.speedup.t1.150us"],
    )
    .guest(),
    trend(
        "mmap-crossover-far",
        "mmap",
        LATENCY,
        "MMAP at 750 µs, one thread, no prefetch: the SSD is ahead",
        ("below 1", Expected::AtMost(1.0)),
        &["mmap.speedup.t1.750us"],
    )
    .guest(),
    ghost(
        "mmap-crossover-prefetch",
        "mmap",
        "MMAP at 750 µs, one thread, prefetching: NVMM is still ahead",
        ("above 1", Expected::AtLeast(1.0)),
        &["mmap.speedup.t1.prefetch16.750us"],
    ),
    ghost(
        "mmap-crossover-many",
        "mmap",
        "MMAP at 750 µs, many threads: NVMM is still ahead",
        ("above 1", Expected::AtLeast(1.0)),
        &["mmap.speedup.t16.750us"],
    ),
    // Filebench.
    ghost(
        "filebench-oltp",
        "filebench",
        "OLTP: NVMM over SSD",
        ("1.1", Expected::AtLeast(1.0)),
        &["oltp.speedup"],
    ),
    ghost(
        "filebench-varmail",
        "filebench",
        "Varmail: NVMM over SSD",
        ("3", Expected::AtLeast(1.0)),
        &["varmail.speedup"],
    ),
    ghost(
        "filebench-fileserver",
        "filebench",
        "FileServer: NVMM over SSD",
        ("below 1", Expected::AtMost(1.0)),
        &["fileserver.speedup"],
    ),
    ghost(
        "filebench-webproxy",
        "filebench",
        "WebProxy: NVMM over SSD",
        ("below 1", Expected::AtMost(1.0)),
        &["webproxy.speedup"],
    ),
    ghost(
        "filebench-webserver",
        "filebench",
        "WebServer: NVMM over SSD",
        ("below 1", Expected::AtMost(1.0)),
        &["webserver.speedup"],
    ),
    // Randomness and prefetch.
    ghost(
        "randomness-grows",
        "randomness",
        "NVMM over SSD grows from 10 % to 100 % random accesses",
        ("2, then 5", Expected::Rising),
        &["speedup.random10", "speedup.random100"],
    ),
    ghost(
        "prefetch-dd-read",
        "prefetch",
        "dd reading, MLC: best prefetch window over none",
        ("up to 6", Expected::Range(1.0, 6.0)),
        &["dd_read.gain"],
    ),
    ghost(
        "prefetch-dd-write",
        "prefetch",
        "dd writing, MLC: prefetch window of sixteen over none",
        ("nearly 3", Expected::AtLeast(1.0)),
        &["dd_write.gain16"],
    ),
    // Power and energy.
    trend(
        "power-8g",
        "power",
        PERFORMANCE,
        "Power of NVMM over all-DRAM, 8 GB",
        ("about 1", Expected::Range(0.5, 2.0)),
        &["nvmm_over_dram.8gb.power"],
    )
    .noted(ROUGHLY),
    trend(
        "energy-8g",
        "power",
        PERFORMANCE,
        "Energy of NVMM over all-DRAM, 8 GB",
        ("about 1", Expected::Range(0.5, 2.0)),
        &["nvmm_over_dram.8gb.energy"],
    )
    .guest()
    .noted(ROUGHLY),
    trend(
        "power-1t",
        "power",
        PERFORMANCE,
        "Power of NVMM over all-DRAM, 1 TB",
        ("well below 1", Expected::AtMost(0.5)),
        &["nvmm_over_dram.1tb.power"],
    )
    .noted(FAR_BELOW),
    trend(
        "energy-1t",
        "power",
        PERFORMANCE,
        "Energy of NVMM over all-DRAM, 1 TB",
        ("well below 1", Expected::AtMost(0.5)),
        &["nvmm_over_dram.1tb.energy"],
    )
    .guest()
    .noted(FAR_BELOW),
    trend(
        "power-dram-1t",
        "power",
        PERFORMANCE,
        "Power of 1 TB of DRAM, unused ranks in low-power modes",
        ("below 100 W", Expected::AtMost(100.0)),
        &["dram.1tb.power_w"],
    )
    .unit("W")
    .noted("the paper gives 100 W as where it would be without these modes"),
    trend(
        "background-8g",
        "power",
        PERFORMANCE,
        "Background and refresh, share of the power of 8 GB of DRAM",
        ("small", Expected::AtMost(50.0)),
        &["dram.8gb.background_percent"],
    )
    .unit("%"),
    trend(
        "background-1t",
        "power",
        PERFORMANCE,
        "Background and refresh, share of the power of 1 TB of DRAM",
        ("dominates", Expected::AtLeast(50.0)),
        &["dram.1tb.background_percent"],
    )
    .unit("%"),
    // Lifetime.
    trend(
        "wear-order",
        "lifetime",
        "NVMM's figure of the architecture, text below it",
        "Time to half of one 8 Gb device, to all of it; to half of a thousand, to all of them",
        ("2 and 3 days; 2 to 3 and 4 to 5 years", Expected::Rising),
        &["one.half_days", "one.gone_days", "thousand.half_days", "thousand.gone_days"],
    )
    .unit("days")
    .noted("a trend only: a thousand times two and three days are 5.5 and 8.2 years, not the paper's"),
];
