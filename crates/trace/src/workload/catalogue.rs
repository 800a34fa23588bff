//! The catalogue of workloads: the one place that names their keys, defaults and sources.

use super::table::{Kind, Param, WorkloadInfo, p};

const EMIT: Kind = Kind::Choice(&["block", "mem"]);

const SPAN: Param = p("span", Kind::Bytes, "1GiB", "bytes that are accessed", "");
const SIZE: Param = p("size", Kind::Bytes, "4KiB", "bytes of one access", "");
const ALIGN: Param = p("align", Kind::Bytes, "0", "accesses begin at multiples of this; 0: of size", "");
const READ: Param = p("read", Kind::Ratio, "1", "share of reads, the rest writes", "");
const BASE: Param = p("base", Kind::Bytes, "0", "first byte of the span", "");
const EMITS: Param = p("emit", EMIT, "block", "block requests, or loads and stores", "");

const THETA: Param = p("theta", Kind::Number, "0.99", "skew; 0 is uniform", "YCSB, zipfian constant");

macro_rules! ycsb {
    ($name:literal, $what:literal, $request:literal) => {
        WorkloadInfo {
            name: $name,
            what: $what,
            source: "YCSB core workloads (brianfrankcooper/YCSB)",
            params: &[
                p("records", Kind::Count, "1M", "records at the start", "assumed; the load decides in YCSB"),
                p("record", Kind::Bytes, "1000B", "bytes of a record", "YCSB: 10 fields of 100 bytes"),
                p("field", Kind::Bytes, "100B", "bytes of a field", "YCSB: fieldlength"),
                p(
                    "update",
                    Kind::Choice(&["field", "record"]),
                    "field",
                    "what an update writes",
                    "YCSB: writeallfields=false",
                ),
                p(
                    "request",
                    Kind::Choice(&["zipfian", "uniform", "latest"]),
                    $request,
                    "which records are asked for",
                    "YCSB: requestdistribution",
                ),
                p("theta", Kind::Ratio, "0.99", "skew, below 1", "YCSB, zipfian constant"),
                p(
                    "order",
                    Kind::Choice(&["hashed", "ordered"]),
                    "hashed",
                    "how keys lie in storage",
                    "YCSB: insertorder",
                ),
                p(
                    "page",
                    Kind::Bytes,
                    "4KiB",
                    "records do not cross a page of this size unless larger",
                    "assumed",
                ),
                p(
                    "scan",
                    Kind::Count,
                    "100",
                    "longest scan in records, lengths uniform from 1",
                    "YCSB: workload E",
                ),
            ],
            arrival: true,
        }
    };
}

macro_rules! filebench {
    ($name:literal, $what:literal, $files:literal, $size:literal, $threads:literal, $prealloc:literal) => {
        WorkloadInfo {
            name: $name,
            what: $what,
            source: "filebench workloads directory (filebench/filebench)",
            params: &[
                p("files", Kind::Count, $files, "entries of the file set", "filebench: nfiles"),
                p("filesize", Kind::Bytes, $size, "bytes of a file at the start", "filebench: meanfilesize"),
                p(
                    "append",
                    Kind::Bytes,
                    "16KiB",
                    "greatest append, lengths uniform from 1",
                    "filebench: meanappendsize",
                ),
                p(
                    "io",
                    Kind::Bytes,
                    "1MiB",
                    "greatest single request of a whole-file read or write",
                    "filebench: iosize",
                ),
                p(
                    "threads",
                    Kind::Count,
                    $threads,
                    "loops that run interleaved, one operation each in turn",
                    "filebench: nthreads",
                ),
                p(
                    "prealloc",
                    Kind::Ratio,
                    $prealloc,
                    "share of the files that exist at the start",
                    "filebench: prealloc",
                ),
                p(
                    "meta",
                    Kind::Bytes,
                    "256B",
                    "bytes of an inode, read at open and stat, written at create, append, delete; 0: none",
                    "FlatFlash: inodes have 8 to 256 B",
                ),
                p(
                    "log",
                    Kind::Bytes,
                    "64MiB",
                    "webserver: bytes of the log file before it starts over",
                    "assumed",
                ),
            ],
            arrival: true,
        }
    };
}

const GRAIN: Param =
    p("grain", Kind::Choice(&["page", "row"]), "page", "what an access to a row touches", "");
const PAGE: Param = p("page", Kind::Bytes, "8KiB", "bytes of a database page", "assumed");
const LOG: Param = p("log", Kind::Bytes, "256MiB", "bytes of the log before it starts over", "assumed");
const HEADER: Param =
    p("logheader", Kind::Bytes, "64B", "log bytes of a transaction besides its changed rows", "assumed");
const MOST: Param =
    p("logmost", Kind::Bytes, "0", "most log bytes of a transaction; 0: all of its changed rows", "");
const FLUSH: Param =
    p("flush", Kind::Count, "1", "transactions a flush of the log commits together; 0: never", "assumed");

macro_rules! graph {
    ($name:literal, $what:literal, $source:literal, $rounds:literal) => {
        WorkloadInfo {
            name: $name,
            what: $what,
            source: $source,
            params: &[
                p("scale", Kind::Count, "16", "2^scale vertices", "assumed"),
                p("edgefactor", Kind::Count, "16", "edges a vertex", "Graph500"),
                p("a", Kind::Ratio, "0.57", "R-MAT: share of the first quarter", "Graph500"),
                p("b", Kind::Ratio, "0.19", "R-MAT: share of the second quarter", "Graph500"),
                p(
                    "c",
                    Kind::Ratio,
                    "0.19",
                    "R-MAT: share of the third; the rest is the fourth's",
                    "Graph500",
                ),
                p(
                    "file",
                    Kind::Path,
                    "",
                    "edge list to read instead: 'source target' a line, # comments",
                    "",
                ),
                p(
                    "rounds",
                    Kind::Count,
                    $rounds,
                    "iterations; cc ends earlier when nothing changes; 0: no limit",
                    "assumed",
                ),
                p("gap", Kind::Count, "4", "instructions a reference counts", "assumed"),
            ],
            arrival: false,
        }
    };
}

/// Every workload.
pub const WORKLOADS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "uniform",
        what: "addresses all equally likely",
        source: "textbook",
        params: &[SPAN, SIZE, ALIGN, READ, BASE, EMITS],
        arrival: true,
    },
    WorkloadInfo {
        name: "zipf",
        what: "the r-th most popular address is drawn with weight r^-theta",
        source: "Hoermann and Derflinger 1996 (exact); Gray et al. 1994 (gray)",
        params: &[
            THETA,
            p(
                "method",
                Kind::Choice(&["exact", "gray"]),
                "exact",
                "gray: the approximation that YCSB uses, theta below 1",
                "",
            ),
            p(
                "layout",
                Kind::Choice(&["shuffled", "ranked"]),
                "shuffled",
                "popular addresses spread over the span, or at its start",
                "",
            ),
            SPAN,
            SIZE,
            ALIGN,
            READ,
            BASE,
            EMITS,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "exponential",
        what: "the density of addresses falls as e^(-lambda x), x from 0 to 1 over the span",
        source: "textbook; the flash disk cache paper's micro-traces",
        params: &[
            p("lambda", Kind::Number, "7", "rate of the fall, above 0", "assumed"),
            p(
                "layout",
                Kind::Choice(&["shuffled", "ranked"]),
                "ranked",
                "popular addresses spread over the span, or at its start",
                "",
            ),
            SPAN,
            SIZE,
            ALIGN,
            READ,
            BASE,
            EMITS,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "sequential",
        what: "one access after another, starting over at the end",
        source: "textbook",
        params: &[
            SPAN,
            SIZE,
            p("stride", Kind::Bytes, "0", "from one access to the next; 0: size", ""),
            READ,
            BASE,
            EMITS,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "mixed",
        what: "each access is random with this chance, else follows the one before",
        source: "NVMM study, degree of randomness",
        params: &[
            p("random", Kind::Ratio, "50%", "share of random accesses", ""),
            SPAN,
            SIZE,
            ALIGN,
            READ,
            BASE,
            EMITS,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "gups",
        what: "HPCC RandomAccess: a load and a store of a random 8-byte word",
        source: "HPC Challenge RandomAccess (icl-utk-edu/hpcc)",
        params: &[
            p("table", Kind::Bytes, "1GiB", "bytes of the table, a power of two", ""),
            p("updates", Kind::Count, "0", "updates; 0: four times the table's words", "HPCC: NUPDATE"),
            p(
                "streams",
                Kind::Count,
                "1",
                "interleaved streams, each a share of the sequence (HPCC's code has 128)",
                "HPCC: scalar equivalent",
            ),
            p("start", Kind::Count, "0", "place in the sequence to start at", "HPCC: HPCC_starts"),
            BASE,
            p("gap", Kind::Count, "4", "instructions a reference counts", "assumed"),
        ],
        arrival: false,
    },
    WorkloadInfo {
        name: "mmap-random",
        what: "loads at uniformly random places of a mapped file",
        source: "NVMM study, MMAP: 10,000 random reads of a file larger than DRAM",
        params: &[
            SPAN,
            p("size", Kind::Bytes, "8B", "bytes of one load", "assumed"),
            p("reads", Kind::Count, "10000", "loads; 0: for ever", "NVMM study"),
            BASE,
            p("gap", Kind::Count, "4", "instructions a reference counts", "assumed"),
        ],
        arrival: false,
    },
    WorkloadInfo {
        name: "dd-read",
        what: "reads a file from its start to its end",
        source: "coreutils dd",
        params: &[SPAN, p("bs", Kind::Bytes, "512B", "bytes of one request", "dd: default block size"), BASE],
        arrival: true,
    },
    WorkloadInfo {
        name: "dd-write",
        what: "writes a file from its start to its end",
        source: "coreutils dd",
        params: &[
            SPAN,
            p("bs", Kind::Bytes, "512B", "bytes of one request", "dd: default block size"),
            BASE,
            p(
                "sync",
                Kind::Choice(&["none", "end", "each"]),
                "none",
                "flush never, at the end (conv=fsync), after each write (oflag=dsync)",
                "dd: default",
            ),
        ],
        arrival: true,
    },
    ycsb!("ycsb-a", "50% reads, 50% updates", "zipfian"),
    ycsb!("ycsb-b", "95% reads, 5% updates", "zipfian"),
    ycsb!("ycsb-c", "reads only", "zipfian"),
    ycsb!("ycsb-d", "95% reads, 5% inserts", "latest"),
    ycsb!("ycsb-e", "95% scans, 5% inserts", "zipfian"),
    ycsb!("ycsb-f", "50% reads, 50% read-modify-writes", "zipfian"),
    filebench!(
        "fileserver",
        "create and write, append, read, delete, stat of whole files",
        "10000",
        "128KiB",
        "50",
        "80%"
    ),
    filebench!(
        "varmail",
        "delete; create, append, fsync; read, append, fsync; read",
        "1000",
        "16KiB",
        "16",
        "80%"
    ),
    filebench!("webserver", "ten whole-file reads, one log append", "1000", "16KiB", "100", "100%"),
    filebench!("webproxy", "delete; create, append; five whole-file reads", "10000", "16KiB", "100", "80%"),
    WorkloadInfo {
        name: "oltp",
        what: "random small reads of data files, background writers, a log writer",
        source: "filebench workloads/oltp.f",
        params: &[
            p("files", Kind::Count, "10", "data files", "filebench: nfiles"),
            p("filesize", Kind::Bytes, "10MiB", "bytes of a data file", "filebench: filesize"),
            p("io", Kind::Bytes, "2KiB", "bytes of a data read or write", "filebench: iosize"),
            p("logio", Kind::Bytes, "256KiB", "bytes of a log write", "filebench: lgwr iosize"),
            p("log", Kind::Bytes, "10MiB", "bytes of the log file", "filebench: logfilesize"),
            p(
                "batch",
                Kind::Count,
                "100",
                "data writes a database writer sends together",
                "filebench: dbwr iters",
            ),
            p(
                "readsperbatch",
                Kind::Count,
                "1000",
                "reads that wake a database writer",
                "filebench: dbwr-block",
            ),
            p("readsperlog", Kind::Count, "3200", "reads that wake the log writer", "filebench: lg-block"),
        ],
        arrival: true,
    },
    super::metadata::INFO,
    WorkloadInfo {
        name: "tpcc",
        what: "TPC-C as accesses to pages or rows, and a log",
        source: "TPC-C 5.11: tables 1.2, NURand 2.1.6; mix 45/43/4/4/4 (benchbase)",
        params: &[
            p("warehouses", Kind::Count, "100", "warehouses", "NVMM application study: 100"),
            PAGE,
            GRAIN,
            LOG,
            HEADER,
            MOST,
            FLUSH,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "tpcb",
        what: "TPC-B as accesses to pages or rows, and a log: three updates and an insert",
        source: "TPC-B 2.0: 1 branch, 10 tellers, 100,000 accounts; rows of 100 bytes, history 50; pgbench script",
        params: &[
            p("branches", Kind::Count, "100", "branches (scale)", "assumed"),
            PAGE,
            GRAIN,
            LOG,
            HEADER,
            MOST,
            FLUSH,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "tatp",
        what: "TATP as accesses to pages or rows, and a log",
        source: "TATP benchmark description; mix 35/10/35/2/14/2/2 (benchbase)",
        params: &[
            p("subscribers", Kind::Count, "100000", "subscribers", "TATP: smallest population"),
            p("row", Kind::Bytes, "100B", "bytes of a row of any of the four tables", "assumed"),
            PAGE,
            GRAIN,
            LOG,
            HEADER,
            MOST,
            FLUSH,
        ],
        arrival: true,
    },
    graph!(
        "pagerank",
        "PageRank, each vertex pulling from its in-neighbours",
        "Page et al. 1998; R-MAT: Chakrabarti et al. 2004",
        "10"
    ),
    graph!(
        "cc",
        "connected components by label propagation",
        "textbook; R-MAT: Chakrabarti et al. 2004",
        "0"
    ),
];
