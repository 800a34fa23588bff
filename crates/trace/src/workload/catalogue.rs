//! The catalogue of workloads: the single definition of their keys, defaults and sources.

use super::params::{Param, ValueKind, WorkloadInfo, param};

const EMIT: ValueKind = ValueKind::Choice(&["block", "mem"]);

const SPAN: Param = param("span", ValueKind::Bytes, "1GiB", "size of the accessed range", "");
const SIZE: Param = param("size", ValueKind::Bytes, "4KiB", "size of one access", "");
const ALIGN: Param = param("align", ValueKind::Bytes, "0", "alignment of accesses; 0: size", "");
const READ: Param = param("read", ValueKind::Ratio, "1", "share of reads; all other accesses are writes", "");
const BASE: Param = param("base", ValueKind::Bytes, "0", "start of the accessed range", "");
const EMITS: Param = param("emit", EMIT, "block", "block requests, or loads and stores", "");

const THETA: Param =
    param("theta", ValueKind::Number, "0.99", "Zipf exponent; 0 is uniform", "YCSB, zipfian constant");

macro_rules! ycsb {
    ($name:literal, $description:literal, $request:literal) => {
        WorkloadInfo {
            name: $name,
            description: $description,
            source: "YCSB core workloads (brianfrankcooper/YCSB)",
            params: &[
                param(
                    "records",
                    ValueKind::Count,
                    "1M",
                    "initial number of records",
                    "assumed; in YCSB \
                    set by the load phase",
                ),
                param(
                    "record",
                    ValueKind::Bytes,
                    "1000B",
                    "size of a record",
                    "YCSB: 10 fields of 100 bytes",
                ),
                param("field", ValueKind::Bytes, "100B", "size of a field", "YCSB: fieldlength"),
                param(
                    "update",
                    ValueKind::Choice(&["field", "record"]),
                    "field",
                    "unit written by an update",
                    "YCSB: writeallfields=false",
                ),
                param(
                    "request",
                    ValueKind::Choice(&["zipfian", "uniform", "latest"]),
                    $request,
                    "distribution of requested records",
                    "YCSB: requestdistribution",
                ),
                param("theta", ValueKind::Ratio, "0.99", "Zipf exponent, below 1", "YCSB, zipfian constant"),
                param(
                    "order",
                    ValueKind::Choice(&["hashed", "ordered"]),
                    "hashed",
                    "placement of keys in storage",
                    "YCSB: insertorder",
                ),
                param(
                    "page",
                    ValueKind::Bytes,
                    "4KiB",
                    "page size; records do not cross a page boundary unless larger",
                    "assumed",
                ),
                param(
                    "scan",
                    ValueKind::Count,
                    "100",
                    "maximum scan length in records; lengths are uniform from 1",
                    "YCSB: workload E",
                ),
            ],
            arrival: true,
        }
    };
}

macro_rules! filebench {
    ($name:literal, $description:literal, $files:literal, $size:literal, $threads:literal, $prealloc:literal) => {
        WorkloadInfo {
            name: $name,
            description: $description,
            source: "filebench workloads directory (filebench/filebench)",
            params: &[
                param("files", ValueKind::Count, $files, "entries of the file set", "filebench: nfiles"),
                param("filesize", ValueKind::Bytes, $size, "initial file size", "filebench: meanfilesize"),
                param(
                    "append",
                    ValueKind::Bytes,
                    "16KiB",
                    "maximum append size; sizes are uniform from 1",
                    "filebench: meanappendsize",
                ),
                param(
                    "io",
                    ValueKind::Bytes,
                    "1MiB",
                    "maximum request size of a whole-file read or write",
                    "filebench: iosize",
                ),
                param(
                    "threads",
                    ValueKind::Count,
                    $threads,
                    "interleaved loops, which alternate after each operation",
                    "filebench: nthreads",
                ),
                param(
                    "prealloc",
                    ValueKind::Ratio,
                    $prealloc,
                    "share of the files that exist initially",
                    "filebench: prealloc",
                ),
                param(
                    "meta",
                    ValueKind::Bytes,
                    "256B",
                    "size of an inode, read at open and stat, written at create, append, delete; 0: no \
                     inodes",
                    "FlatFlash: inodes have 8 to 256 B",
                ),
                param(
                    "log",
                    ValueKind::Bytes,
                    "64MiB",
                    "webserver: size of the log file before it wraps around",
                    "assumed",
                ),
            ],
            arrival: true,
        }
    };
}

const GRAIN: Param =
    param("grain", ValueKind::Choice(&["page", "row"]), "page", "unit that a row access touches", "");
const PAGE: Param = param("page", ValueKind::Bytes, "8KiB", "size of a database page", "assumed");
const LOG: Param =
    param("log", ValueKind::Bytes, "256MiB", "size of the log before it wraps around", "assumed");
const HEADER: Param = param(
    "logheader",
    ValueKind::Bytes,
    "64B",
    "log bytes per transaction besides its changed rows",
    "assumed",
);
const MOST: Param = param(
    "logmost",
    ValueKind::Bytes,
    "0",
    "maximum log bytes per transaction; 0: all of its changed rows",
    "",
);
const FLUSH: Param = param(
    "flush",
    ValueKind::Count,
    "1",
    "transactions committed together by a log flush; 0: no flushes",
    "assumed",
);

macro_rules! graph {
    ($name:literal, $description:literal, $source:literal, $rounds:literal) => {
        WorkloadInfo {
            name: $name,
            description: $description,
            source: $source,
            params: &[
                param(
                    "scale",
                    ValueKind::Count,
                    "16",
                    "binary logarithm of the number of vertices",
                    "assumed",
                ),
                param("edgefactor", ValueKind::Count, "16", "edges per vertex", "Graph500"),
                param("a", ValueKind::Ratio, "0.57", "R-MAT: probability of the first quadrant", "Graph500"),
                param("b", ValueKind::Ratio, "0.19", "R-MAT: probability of the second quadrant", "Graph500"),
                param(
                    "c",
                    ValueKind::Ratio,
                    "0.19",
                    "R-MAT: probability of the third quadrant; the rest is the fourth's",
                    "Graph500",
                ),
                param(
                    "file",
                    ValueKind::Path,
                    "",
                    "edge list to read instead: 'source target' per line, # comments",
                    "",
                ),
                param(
                    "rounds",
                    ValueKind::Count,
                    $rounds,
                    "maximum iterations; cc stops when nothing changes; 0: no limit",
                    "assumed",
                ),
                param("gap", ValueKind::Count, "4", "instructions per reference", "assumed"),
            ],
            arrival: false,
        }
    };
}

/// Every workload.
pub const WORKLOADS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "uniform",
        description: "uniformly distributed addresses",
        source: "textbook",
        params: &[SPAN, SIZE, ALIGN, READ, BASE, EMITS],
        arrival: true,
    },
    WorkloadInfo {
        name: "zipf",
        description: "Zipf-distributed addresses: the r-th most popular has weight r^-theta",
        source: "Hoermann and Derflinger 1996 (exact); Gray et al. 1994 (gray)",
        params: &[
            THETA,
            param(
                "method",
                ValueKind::Choice(&["exact", "gray"]),
                "exact",
                "sampling; gray: the approximation that YCSB uses, theta below 1",
                "",
            ),
            param(
                "layout",
                ValueKind::Choice(&["shuffled", "ranked"]),
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
        description: "exponentially distributed addresses: density e^(-lambda x), x from 0 to 1 over the \
                      span",
        source: "textbook; the flash disk cache paper's micro-traces",
        params: &[
            param("lambda", ValueKind::Number, "7", "rate of the exponential, above 0", "assumed"),
            param(
                "layout",
                ValueKind::Choice(&["shuffled", "ranked"]),
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
        description: "sequential accesses, wrapping around at the end",
        source: "textbook",
        params: &[
            SPAN,
            SIZE,
            param("stride", ValueKind::Bytes, "0", "distance between accesses; 0: size", ""),
            READ,
            BASE,
            EMITS,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "mixed",
        description: "each access is random with this probability, otherwise follows the previous one",
        source: "NVMM study, degree of randomness",
        params: &[
            param("random", ValueKind::Ratio, "50%", "share of random accesses", ""),
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
        description: "HPCC RandomAccess: a load and a store of a random 8-byte word",
        source: "HPC Challenge RandomAccess (icl-utk-edu/hpcc)",
        params: &[
            param("table", ValueKind::Bytes, "1GiB", "size of the table, a power of two", ""),
            param(
                "updates",
                ValueKind::Count,
                "0",
                "number of updates; 0: four times the table's words",
                "HPCC: NUPDATE",
            ),
            param(
                "streams",
                ValueKind::Count,
                "1",
                "interleaved streams, each a part of the sequence (HPCC's code has 128)",
                "HPCC: scalar equivalent",
            ),
            param("start", ValueKind::Count, "0", "start position in the sequence", "HPCC: HPCC_starts"),
            BASE,
            param("gap", ValueKind::Count, "4", "instructions per reference", "assumed"),
        ],
        arrival: false,
    },
    WorkloadInfo {
        name: "mmap-random",
        description: "loads at uniformly distributed positions of a mapped file",
        source: "NVMM study, MMAP: 10,000 random reads of a file larger than DRAM",
        params: &[
            SPAN,
            param("size", ValueKind::Bytes, "8B", "size of a load", "assumed"),
            param("reads", ValueKind::Count, "10000", "number of loads; 0: unlimited", "NVMM study"),
            BASE,
            param("gap", ValueKind::Count, "4", "instructions per reference", "assumed"),
        ],
        arrival: false,
    },
    WorkloadInfo {
        name: "dd-read",
        description: "reads a file from beginning to end",
        source: "coreutils dd",
        params: &[
            SPAN,
            param("bs", ValueKind::Bytes, "512B", "size of one request", "dd: default block size"),
            BASE,
        ],
        arrival: true,
    },
    WorkloadInfo {
        name: "dd-write",
        description: "writes a file from beginning to end",
        source: "coreutils dd",
        params: &[
            SPAN,
            param("bs", ValueKind::Bytes, "512B", "size of one request", "dd: default block size"),
            BASE,
            param(
                "sync",
                ValueKind::Choice(&["none", "end", "each"]),
                "none",
                "flushes: none, at the end (conv=fsync), after each write (oflag=dsync)",
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
        "whole files: create and write, append, read, delete, stat",
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
        description: "small random reads of data files, background writers, a log writer",
        source: "filebench workloads/oltp.f",
        params: &[
            param("files", ValueKind::Count, "10", "data files", "filebench: nfiles"),
            param("filesize", ValueKind::Bytes, "10MiB", "size of a data file", "filebench: filesize"),
            param("io", ValueKind::Bytes, "2KiB", "size of a data read or write", "filebench: iosize"),
            param("logio", ValueKind::Bytes, "256KiB", "size of a log write", "filebench: lgwr iosize"),
            param("log", ValueKind::Bytes, "10MiB", "size of the log file", "filebench: logfilesize"),
            param(
                "batch",
                ValueKind::Count,
                "100",
                "data writes per wake-up of a database writer",
                "filebench: dbwr iters",
            ),
            param(
                "readsperbatch",
                ValueKind::Count,
                "1000",
                "reads per wake-up of a database writer",
                "filebench: dbwr-block",
            ),
            param(
                "readsperlog",
                ValueKind::Count,
                "3200",
                "reads per wake-up of the log writer",
                "filebench: lg-block",
            ),
        ],
        arrival: true,
    },
    super::metadata::INFO,
    WorkloadInfo {
        name: "tpcc",
        description: "TPC-C as accesses to pages or rows, and a log",
        source: "TPC-C 5.11: tables 1.2, NURand 2.1.6; mix 45/43/4/4/4 (benchbase)",
        params: &[
            param("warehouses", ValueKind::Count, "100", "warehouses", "NVMM application study: 100"),
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
        description: "TPC-B as accesses to pages or rows, and a log: three updates and an insert",
        source: "TPC-B 2.0: 1 branch, 10 tellers, 100,000 accounts; rows of 100 bytes, history 50; pgbench script",
        params: &[
            param("branches", ValueKind::Count, "100", "branches (the scale of TPC-B)", "assumed"),
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
        description: "TATP as accesses to pages or rows, and a log",
        source: "TATP benchmark description; mix 35/10/35/2/14/2/2 (benchbase)",
        params: &[
            param("subscribers", ValueKind::Count, "100000", "subscribers", "TATP: smallest population"),
            param("row", ValueKind::Bytes, "100B", "size of a row of any of the four tables", "assumed"),
            PAGE,
            GRAIN,
            LOG,
            HEADER,
            MOST,
            FLUSH,
        ],
        arrival: true,
    },
    super::standin::INFOS[0],
    super::standin::INFOS[1],
    super::standin::INFOS[2],
    super::standin::INFOS[3],
    super::standin::INFOS[4],
    super::standin::INFOS[5],
    super::standin::INFOS[6],
    super::standin::INFOS[7],
    graph!(
        "pagerank",
        "PageRank, in which each vertex pulls from its in-neighbours",
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
