//! The keys of the workload.

use crate::workload::table::{Kind, WorkloadInfo, p};

/// The workload as the catalogue has it.
pub(in crate::workload) const INFO: WorkloadInfo = WorkloadInfo {
    name: "metadata",
    what: "what a file system writes to make changes of its metadata durable, by blocks or by lines",
    source: "the file systems' formats on disk (docs/metadata.md); FlatFlash, sections 3.5 and 5.5",
    params: &[
        p("fs", Kind::Choice(&["ext4", "xfs", "btrfs"]), "ext4", "file system", ""),
        p(
            "op",
            Kind::Choice(&["create", "rename", "mkdir", "varmail", "webserver"]),
            "create",
            "what is done over and over",
            "",
        ),
        p(
            "grain",
            Kind::Choice(&["block", "byte"]),
            "block",
            "journal or copied nodes by blocks, or lines in place",
            "",
        ),
        p(
            "fence",
            Kind::Choice(&["each", "once"]),
            "each",
            "by bytes: a flush behind each structure, or behind all of a change",
            "FlatFlash, section 3.5: writes in order; assumed of all structures",
        ),
        p("ops", Kind::Count, "0", "changes of metadata; 0: for ever", ""),
        p("dirs", Kind::Count, "1000", "directories", "assumed"),
        p("perdir", Kind::Count, "100", "files of a directory", "filebench: meandirwidth of createfiles"),
        p(
            "journal",
            Kind::Bytes,
            "128MiB",
            "bytes of the journal, or of the free space that BtrFS writes in turn",
            "kernel documentation, ext4: 128 MiB; assumed of the others",
        ),
        p("batch", Kind::Count, "1", "changes that become durable together", "assumed: each by itself"),
        p(
            "filesize",
            Kind::Bytes,
            "16KiB",
            "a sixteenth of a file's greatest size",
            "filebench: meanfilesize",
        ),
        p(
            "append",
            Kind::Bytes,
            "16KiB",
            "greatest append, lengths uniform from 1",
            "filebench: meanappendsize",
        ),
        p("log", Kind::Bytes, "64MiB", "webserver: bytes of the log file before it starts over", "assumed"),
        p(
            "atime",
            Kind::Choice(&["strict", "relative"]),
            "strict",
            "webserver: whether each read changes its file's time of access",
            "assumed",
        ),
        p(
            "btrfs",
            Kind::Choice(&["commit", "log"]),
            "commit",
            "BtrFS: a commit of all trees but for fsync, or the log tree always",
            "assumed",
        ),
    ],
    arrival: true,
};
