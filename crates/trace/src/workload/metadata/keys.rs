//! Keys of the `metadata` workload.

use crate::workload::params::{ValueKind, WorkloadInfo, param};

/// The workload's entry in the catalogue.
pub(in crate::workload) const INFO: WorkloadInfo = WorkloadInfo {
    name: "metadata",
    description: "file-system writes that make metadata changes durable, by block or by line",
    source: "the file systems' on-disk formats; FlatFlash, sections 3.5 and 5.5",
    params: &[
        param("fs", ValueKind::Choice(&["ext4", "xfs", "btrfs"]), "ext4", "file system", ""),
        param(
            "op",
            ValueKind::Choice(&["create", "rename", "mkdir", "varmail", "webserver"]),
            "create",
            "operation that is repeated",
            "",
        ),
        param(
            "grain",
            ValueKind::Choice(&["block", "byte"]),
            "block",
            "block: journal blocks or copied tree nodes; byte: lines in place",
            "",
        ),
        param(
            "fence",
            ValueKind::Choice(&["each", "once"]),
            "each",
            "grain=byte: a flush after each structure, or after a whole change",
            "FlatFlash, section 3.5: ordered writes; assumed for all structures",
        ),
        param("ops", ValueKind::Count, "0", "metadata changes; 0: unlimited", ""),
        param("dirs", ValueKind::Count, "1000", "directories", "assumed"),
        param(
            "perdir",
            ValueKind::Count,
            "100",
            "files per directory",
            "filebench: meandirwidth of createfiles",
        ),
        param(
            "journal",
            ValueKind::Bytes,
            "128MiB",
            "size of the journal, or of the free space that BtrFS writes cyclically",
            "kernel documentation, ext4: 128 MiB; assumed for the others",
        ),
        param(
            "batch",
            ValueKind::Count,
            "1",
            "changes made durable together",
            "assumed: each \
            separately",
        ),
        param(
            "filesize",
            ValueKind::Bytes,
            "16KiB",
            "1/16 of a file's maximum size",
            "filebench: meanfilesize",
        ),
        param(
            "append",
            ValueKind::Bytes,
            "16KiB",
            "maximum append size; sizes are uniform from 1",
            "filebench: meanappendsize",
        ),
        param(
            "log",
            ValueKind::Bytes,
            "64MiB",
            "webserver: size of the log file before it wraps around",
            "assumed",
        ),
        param(
            "atime",
            ValueKind::Choice(&["strict", "relative"]),
            "strict",
            "webserver: whether each read updates its file's access time",
            "assumed",
        ),
        param(
            "btrfs",
            ValueKind::Choice(&["commit", "log"]),
            "commit",
            "BtrFS: a commit of all trees except for fsync, or always the log tree",
            "assumed",
        ),
    ],
    arrival: true,
};
