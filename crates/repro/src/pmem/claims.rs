//! Claims of the NVMM application study.

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};
use crate::reason::{Ends, Reason};

const FIGURE_5: &str = "section III, Figure 5";
const FIGURE_6: &str = "section IV-A, Figure 6";
const FIGURE_7: &str = "section IV-A, Figure 7";
const FIGURE_8: &str = "section IV-B, Figure 8";
const FIGURE_9: &str = "section IV-B, Figure 9";
const FIGURE_10: &str = "section IV-B, Figure 10";
const FIGURE_11: &str = "section IV-C, Figure 11";
const FIGURE_12: &str = "section IV-D, Figure 12";

/// The reason of misses of FileServer and WebServer.
const MEMORY_BOUND: Reason = Reason::CannotBeHad(
    "The processor time of filebench and of the kernel on the authors' machine. Our threads move data as fast as DRAM, so that they \
     are bound by an eighth of its bandwidth; equal throughput in all configurations means that theirs were not.",
);
/// The reason of misses of memcached.
const SERVER_TIME: Reason = Reason::LeftOpen {
    choice: "the processor time of an operation of the server",
    ends: Ends::Parameter("memcached.program"),
};

/// A trend that hangs on the platform.
const fn measured(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    trend(id, experiment, source, statement, expected, metrics).hardware_dependent()
}

/// A percentage, within a fifth of it.
const fn percentage(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, experiment, source, statement, expected, metrics)
        .hardware_dependent()
        .unit("%")
        .noted("The applications are generated workloads with assumed processor times. Tolerance: 20 % of the published change.")
}

/// All claims of the paper, in the order of its figures.
#[must_use]
pub fn claims() -> Vec<Claim> {
    vec![
        magnitude(
            "latency-floor",
            "latency",
            "section III-A, Figure 2",
            "Load latency configured below 150 ns stays at that of DRAM",
            ("150 ns", Expected::Value(150.0)),
            &["ns.0"],
        )
        .held_to(Class::Exact, Tolerance::Relative(0.01))
        .unit("ns"),
        trend(
            "latency-close",
            "latency",
            "section III-A, Figure 2",
            "Load latency stays close to the configured one from 150 to 600 ns",
            ("close", Expected::AtMost(10.0)),
            &["worst_percent"],
        )
        .unit("%")
        .noted("The paper gives no number; a tenth is our reading of close. The paper states no accuracy above 600 ns."),
        trend(
            "bandwidth-accurate",
            "bandwidth",
            "section III-A, Figure 3",
            "Read and write bandwidth are the configured share of the full one",
            ("accurate", Expected::AtMost(10.0)),
            &["worst_percent"],
        )
        .unit("%")
        .noted("The paper gives no number; a tenth is our reading of accurate."),
        magnitude(
            "barrier-slope",
            "barrier",
            "section III-B, Figure 4",
            "The latency of a store and its msync rises with that of the barrier, one for one",
            ("1", Expected::Value(1.0)),
            &["slope"],
        )
        .held_to(Class::Exact, Tolerance::Relative(0.01)),
        trend(
            "msync-linear",
            "msync",
            FIGURE_5,
            "From 10 to 100 MB, the cost of msync with clflush rises with the size of the range: ten times",
            ("linear", Expected::AtLeast(9.0)),
            &["default.growth.10_to_100_mb"],
        ),
        trend(
            "msync-order",
            "msync",
            FIGURE_5,
            "At 100 MB, WOF and clwb flush faster than clflush, and selective flushing faster than both",
            ("SPF, clwb, clflush", Expected::Rising),
            &["spf.ms.100_mb", "clwb.ms.100_mb", "default.ms.100_mb"],
        ),
        measured(
            "msync-clflushopt",
            "msync",
            FIGURE_5,
            "clflushopt is no faster than clflush: ratio of their times at 100 MB to the disk's is above 1 for both",
            ("above 1", Expected::AtLeast(1.0)),
            &["clflushopt.over.hdd.100_mb"],
        )
        .noted("The platform is older than the instruction; the preset executes it as clflush."),
        measured(
            "msync-crossing",
            "msync",
            FIGURE_5,
            "Beyond 10 MB, msync with clflush can be slower than on the disk",
            ("10 to 100 MB", Expected::Range(10.0, 100.0)),
            &["default.crossing_mb"],
        )
        .unit("MB"),
        measured(
            "msync-wof-disk",
            "msync",
            FIGURE_5,
            "msync with WOF approaches the disk at 100 MB: within a factor of 3 below it",
            ("approaching", Expected::Range(1.0 / 3.0, 1.0)),
            &["wof.over.hdd.100_mb"],
        )
        .noted("The paper gives no number; a factor of 3 is our reading of approaching."),
        measured(
            "msync-clwb-disk",
            "msync",
            FIGURE_5,
            "msync with clwb approaches the disk at 100 MB: within a factor of 3 below it",
            ("approaching", Expected::Range(1.0 / 3.0, 1.0)),
            &["clwb.over.hdd.100_mb"],
        )
        .noted("The paper gives no number; a factor of 3 is our reading of approaching."),
        trend(
            "msync-spf-flat",
            "msync",
            FIGURE_5,
            "The cost of msync with selective flushing does not grow with the range: at 100 MB it is below a hundredth of that of \
             WOF",
            ("flat", Expected::AtLeast(100.0)),
            &["spf.saving.100_mb"],
        )
        .noted("Our walk over the page table costs 2 ns a page, so that the time does grow; spf.growth.1_byte_to_100_mb has it."),
        trend(
            "msync-drives-flat",
            "msync",
            FIGURE_5,
            "On the disk, msync takes the same time for all sizes",
            ("constant", Expected::AtMost(1.05)),
            &["hdd.growth.1_byte_to_100_mb"],
        ),
        percentage(
            "varmail-latency",
            "filebench",
            FIGURE_6,
            "Throughput of Varmail with doubled latency, relative to PDRAM",
            ("-12 %", Expected::Value(-12.0)),
            &["varmail.pm-lat.change_percent"],
        )
        .because(Reason::LeftOpen { choice: "the missing lines that a core fetches at once", ends: Ends::Parameter("all.overlap") }),
        measured(
            "fileserver-similar",
            "filebench",
            FIGURE_6,
            "FileServer is similar in all configurations",
            ("similar", Expected::AtMost(5.0)),
            &["fileserver.largest_change_percent"],
        )
        .because(MEMORY_BOUND)
        .unit("%")
        .noted("The paper gives no number; 5 % is our reading of similar."),
        measured(
            "webserver-similar",
            "filebench",
            FIGURE_6,
            "WebServer is similar in all configurations",
            ("similar", Expected::AtMost(5.0)),
            &["webserver.largest_change_percent"],
        )
        .because(MEMORY_BOUND)
        .unit("%")
        .noted("The paper gives no number; 5 % is our reading of similar."),
        measured(
            "fileserver-media",
            "filebench",
            FIGURE_7,
            "FileServer on NVMM-Raw is faster than on the SSD, and there than on the disk",
            ("faster", Expected::Rising),
            &["fileserver.ext4-disk.over.tmpfs", "fileserver.ext4-ssd.over.tmpfs", "fileserver.nvmm-raw.over.tmpfs"],
        )
        .because(MEMORY_BOUND),
        measured(
            "webserver-ssd",
            "filebench",
            FIGURE_7,
            "WebServer on NVMM-Raw is faster than on the SSD",
            ("faster", Expected::AtLeast(1.0)),
            &["webserver.nvmm-raw.over.ext4-ssd"],
        )
        .because(MEMORY_BOUND),
        measured(
            "varmail-media",
            "filebench",
            FIGURE_7,
            "Varmail is faster from disk to SSD to NVMM-Raw to DRAM",
            ("disk, SSD, NVMM, DRAM", Expected::Rising),
            &[
                "varmail.ext4-disk.over.tmpfs",
                "varmail.ext4-ssd.over.tmpfs",
                "varmail.nvmm-raw.over.tmpfs",
                "varmail.tmpfs.over.tmpfs",
            ],
        ),
        percentage(
            "fileserver-dram",
            "filebench",
            FIGURE_7,
            "FileServer on NVMM over DRAM",
            ("+32 %", Expected::Value(32.0)),
            &["fileserver.nvmm.over_dram_percent"],
        )
        .because(MEMORY_BOUND),
        measured(
            "fsync-safe-wof",
            "fsync-safe",
            FIGURE_8,
            "WOF improves on NVMM-Raw in every workload that writes",
            ("improves", Expected::AtLeast(1.0)),
            &["wof.over.raw.least"],
        ),
        measured(
            "fsync-safe-order",
            "fsync-safe",
            FIGURE_8,
            "In YCSB A, WOF improves a little on NVMM-Raw, selective flushing a lot",
            ("WOF, then SPF", Expected::Rising),
            &["ycsb-a.nvmm-wof.over.nvmm-raw", "ycsb-a.nvmm-opt.over.nvmm-raw"],
        ),
        measured(
            "fsync-safe-opt",
            "fsync-safe",
            FIGURE_8,
            "Selective flushing is a significant gain in every workload that writes: 1.5 times or more",
            ("significant", Expected::AtLeast(1.5)),
            &["opt.over.raw.least"],
        )
        .noted("The paper gives no number; 1.5 is our reading of significant on a logarithmic axis."),
        measured(
            "fsync-safe-reads",
            "fsync-safe",
            FIGURE_8,
            "YCSB C, which only reads, gains nothing from selective flushing",
            ("absent", Expected::AtMost(1.01)),
            &["ycsb-c.nvmm-opt.over.nvmm-raw"],
        ),
        measured(
            "fsync-safe-raw-ssd",
            "fsync-safe",
            FIGURE_9,
            "NVMM-Raw is slower than the SSD for write-intensive workloads (A and F)",
            ("slower", Expected::AtMost(1.0)),
            &["write_intensive.raw.over.ssd.most"],
        ),
        measured(
            "fsync-safe-raw-disk",
            "fsync-safe",
            FIGURE_9,
            "NVMM-Raw is slower than the disk for write-intensive workloads (A and F)",
            ("slower", Expected::AtMost(1.0)),
            &["write_intensive.raw.over.disk.most"],
        ),
        measured(
            "fsync-safe-opt-drives",
            "fsync-safe",
            FIGURE_9,
            "NVMM-Opt outperforms the SSD significantly in YCSB A",
            ("significantly", Expected::AtLeast(1.5)),
            &["ycsb-a.nvmm-opt.over.ext4-ssd"],
        )
        .noted("The paper gives no number; 1.5 is our reading of significant."),
        magnitude(
            "journaled-dram-least",
            "journaled",
            FIGURE_10,
            "NVMM-Opt in JOURNALED mode is at most 1 % below DRAM",
            ("-1 %", Expected::AtLeast(-1.0)),
            &["opt.over_dram_percent.least"],
        )
        .hardware_dependent()
        .unit("%"),
        magnitude(
            "journaled-dram-most",
            "journaled",
            FIGURE_10,
            "NVMM-Opt in JOURNALED mode is up to 16 % above DRAM",
            ("16 %", Expected::Value(16.0)),
            &["opt.over_dram_percent.most"],
        )
        .because(Reason::CannotBeHad("The processor time and the copies of MongoDB. Ours computes for most of an operation, and the paper does not \
             say why NVMM is faster than DRAM."))
        .hardware_dependent()
        .unit("%")
        .noted("Tolerance: 20 % of the published change."),
        measured(
            "journaled-gap",
            "journaled",
            FIGURE_10,
            "The gain over the SSD is smaller than in FSYNC_SAFE mode: less than 1.5 times in YCSB A",
            ("smaller", Expected::AtMost(1.5)),
            &["ycsb-a.opt.over.ssd"],
        )
        .noted("The claim on FSYNC_SAFE mode has at least 1.5 times."),
        magnitude(
            "tpcc-ssd",
            "tpcc",
            FIGURE_11,
            "TPC-C on NVMM over the SSD",
            ("1.8", Expected::Value(1.8)),
            &["tpcc.nvmm-opt.over.ext4-ssd"],
        )
        .hardware_dependent(),
        magnitude(
            "tpcc-disk",
            "tpcc",
            FIGURE_11,
            "TPC-C on NVMM over the disk",
            ("28", Expected::Value(28.0)),
            &["tpcc.nvmm-opt.over.ext4-disk"],
        )
        .because(Reason::LeftOpen { choice: "the processor time before an access to a row", ends: Ends::Parameter("tpcc.program") })
        .hardware_dependent(),
        percentage(
            "tpcc-dram",
            "tpcc",
            FIGURE_11,
            "TPC-C on NVMM relative to DRAM",
            ("-10 %", Expected::Value(-10.0)),
            &["opt.over_dram_percent"],
        )
        .because(Reason::LeftOpen { choice: "the missing lines that a core fetches at once", ends: Ends::Parameter("all.overlap") }),
        measured(
            "tpcc-bandwidth",
            "tpcc",
            FIGURE_11,
            "Bandwidth costs TPC-C more than latency",
            ("bandwidth above latency", Expected::Rising),
            &["latency.loss_percent", "bandwidth.loss_percent"],
        )
        .because(Reason::CannotBeHad("The memory traffic of MySQL on each page. Our database moves the bytes of its pages and of its log once.")),
        percentage(
            "tpcc-spf",
            "tpcc",
            FIGURE_11,
            "Selective flushing improves TPC-C over NVMM-Raw",
            ("7 %", Expected::Value(7.0)),
            &["always.opt.over_raw_percent"],
        )
        .because(Reason::CannotBeHad("The ranges that the platform's kernel flushes at an fsync of a log that is not mapped. Flushing the lines written \
             since the last one leaves little to save."))
        .noted(
            "NVMM-Opt over NVMM-Raw, where an fsync flushes the written lines of unmapped files, too: otherwise no line is flushed. \
             Tolerance: 20 % of the published change.",
        ),
        percentage(
            "memcached-1-6",
            "memcached",
            FIGURE_12,
            "Loss of throughput of NVMM-Raw relative to DRAM at 1 set to 6 gets",
            ("23 %", Expected::Value(23.0)),
            &["1-6.loss_percent"],
        )
        .because(SERVER_TIME),
        percentage(
            "memcached-1-30",
            "memcached",
            FIGURE_12,
            "Loss of throughput of NVMM-Raw relative to DRAM at 1 set to 30 gets",
            ("23 %", Expected::Value(23.0)),
            &["1-30.loss_percent"],
        )
        .because(SERVER_TIME),
        measured(
            "memcached-order",
            "memcached",
            FIGURE_12,
            "Throughput falls with higher latency and with lower bandwidth",
            ("falling", Expected::Rising),
            &["1-6.pm-bw.over.tmpfs", "1-6.pm-lat.over.tmpfs", "1-6.pdram.over.tmpfs"],
        ),
    ]
}
