//! Writes of file systems for a metadata change: closed forms of blocks, lines and flushes.

use deepram_trace::{Item, Op, Request, Workload};

const PAGE: u64 = 4096;

fn requests(spec: &str) -> Vec<Request> {
    let items = Workload::new(spec, 3).unwrap_or_else(|error| panic!("{spec}: {error}"));
    items
        .map(|item| match item {
            Item::Block(request) => request,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Returns requests as text: `w` and a number of pages, `l` and a number of lines for a write of no whole page, `F` for a flush.
fn shape(requests: &[Request]) -> String {
    let word = |request: &Request| match request.op {
        Op::Flush => "F".to_string(),
        Op::Write if request.offset.is_multiple_of(PAGE) && request.len.is_multiple_of(PAGE) => {
            format!("w{}", request.len / PAGE)
        }
        Op::Write => {
            assert_eq!((request.offset % 64, request.len % 64), (0, 0), "{request:?}");
            format!("l{}", request.len / 64)
        }
        other => panic!("{other:?}"),
    };
    requests.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn one(fs: &str, op: &str, grain: &str) -> String {
    // With one directory, the number of blocks does not depend on random choices.
    shape(&requests(&format!("metadata:fs={fs},op={op},grain={grain},dirs=1,perdir=50,ops=1")))
}

#[test]
fn ext4_writes_descriptor_and_blocks_then_the_commit_block_with_a_flush_behind_each() {
    // The six blocks are the descriptor, bitmap, group descriptors, inodes, entries, and the block with the directory's inode:
    // a block holds 16 inodes.
    assert_eq!(one("ext4", "create", "block"), "w6 F w1 F");
    // A mkdir adds another bitmap and the new directory's block.
    assert_eq!(one("ext4", "mkdir", "block"), "w8 F w1 F");
    // A rename writes entries, the directory's inode and the file's inode; the two inodes may share a block.
    assert!(["w4 F w1 F", "w3 F w1 F"].contains(&one("ext4", "rename", "block").as_str()));
}

#[test]
fn xfs_writes_a_record_of_its_log_between_two_flushes() {
    for op in ["create", "mkdir", "rename"] {
        assert_eq!(one("xfs", op, "block"), "F w1 F", "{op}");
    }
}

#[test]
fn btrfs_copies_the_path_of_its_tree_and_writes_three_super_blocks() {
    // The file system has one leaf of files and one of directories. A create copies two leaves, a root and four space nodes.
    assert_eq!(one("btrfs", "create", "block"), "w28 F w1 w1 w1 F");
    let logged = "metadata:fs=btrfs,btrfs=log,dirs=1,perdir=50,ops=1";
    assert_eq!(shape(&requests(logged)), "w8 F w1 F");
}

#[test]
fn btrfs_copies_as_many_levels_as_the_tree_has() {
    // 400,000 files make some 11,400 leaves, 24 nodes above them, and a root. A change of two or three leaves copies as
    // many nodes of the next level, or fewer if the leaves share a node.
    for request in requests("metadata:fs=btrfs,dirs=4000,perdir=100,ops=500").chunks(6) {
        let nodes = request[0].len / PAGE / 4;
        assert!((2 + 1 + 1 + 4..=3 + 3 + 1 + 4).contains(&nodes), "{nodes} nodes");
    }
}

#[test]
fn by_lines_each_structure_is_flushed_by_itself() {
    // A create writes a bitmap word, a descriptor, an inode of 256 B, an entry, and 160 B of the directory's inode.
    assert_eq!(one("ext4", "create", "byte"), "l1 F l1 F l4 F l1 F l3 F");
    assert_eq!(one("ext4", "mkdir", "byte"), "l1 F l1 F l1 F l4 F l1 F l1 F l3 F");
    // A create writes the group header, records of two trees, an inode of 176 B, an entry, a hash, and the directory's inode.
    assert_eq!(one("xfs", "create", "byte"), "l1 F l1 F l1 F l3 F l1 F l1 F l3 F");
    let once = "metadata:grain=byte,fence=once,dirs=1,perdir=50,ops=1";
    assert_eq!(shape(&requests(once)), "l1 l1 l4 l1 l3 F");
    // Items may be anywhere in their leaf, so an item that crosses a line border takes one line more.
    let btrfs = one("btrfs", "create", "byte");
    assert_eq!(btrfs.matches('F').count(), 5, "{btrfs}");
    for (op, structures) in [("ext4", 4), ("xfs", 6), ("btrfs", 7)] {
        assert_eq!(one(op, "rename", "byte").matches('F').count(), structures, "{op}");
    }
}

#[test]
fn a_journal_that_is_full_is_written_in_place_once_a_block() {
    // A journal of 128 blocks holds 18 creates of 7 blocks; the 19th create does not fit.
    let all = requests("metadata:dirs=1,perdir=50,journal=512KiB,ops=19");
    let text = shape(&all);
    // 50 inodes and the directory's take four blocks; bitmap, descriptors and entries take one block each. The 18 files
    // created have their inodes in two of the blocks.
    let in_place = "w1 w1 w1 w1 w1 w1 F w1 F";
    let before = ["w6 F w1 F"; 18].join(" ");
    assert_eq!(text, format!("{before} {in_place} w6 F w1 F"));
    let places: Vec<u64> = all[72..78].iter().map(|request| request.offset).collect();
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
}

#[test]
fn changes_that_become_durable_together_share_blocks() {
    let text = shape(&requests("metadata:dirs=1,perdir=50,ops=8,batch=8"));
    assert_eq!(text, "w6 F w1 F");
}

#[test]
fn both_ways_write_the_same_data() {
    for op in ["varmail", "webserver"] {
        for fs in ["ext4", "xfs", "btrfs"] {
            let all = |grain: &str| {
                requests(&format!("metadata:fs={fs},op={op},grain={grain},dirs=2,perdir=40,ops=600"))
            };
            // With grain=byte, only file data is written in pages; file data lies behind all metadata.
            let pages = |all: Vec<Request>, from: u64| -> Vec<(u64, u64)> {
                let whole = |r: &Request| r.len >= PAGE && r.len.is_multiple_of(PAGE) && r.offset >= from;
                all.iter().filter(|r| whole(r)).map(|r| (r.offset, r.len)).collect()
            };
            let byte = pages(all("byte"), 0);
            let block = pages(all("block"), byte.iter().map(|(offset, _)| *offset).min().unwrap());
            assert!(!block.is_empty() && block == byte, "{op} on {fs}: {} {}", block.len(), byte.len());
        }
    }
}

#[test]
fn whatever_is_written_by_lines_is_much_less() {
    for fs in ["ext4", "xfs", "btrfs"] {
        for op in ["create", "rename", "mkdir"] {
            let bytes = |grain: &str| -> u64 {
                let spec = format!("metadata:fs={fs},op={op},grain={grain},journal=1MiB,ops=2000");
                requests(&spec).iter().map(|request| request.len).sum()
            };
            let (block, byte) = (bytes("block"), bytes("byte"));
            assert!(block > 10 * byte, "{fs} {op}: {block} and {byte}");
        }
    }
}

#[test]
fn values_that_cannot_be_are_errors() {
    for spec in
        ["metadata:fs=ext5", "metadata:dirs=0", "metadata:dirs=16M,perdir=1M", "metadata:journal=4KiB"]
    {
        assert!(Workload::new(spec, 1).is_err(), "{spec}");
    }
}

/// Returns the mean numbers of flushes, pages and lines of metadata for one step of an operation's loop, over many changes.
fn mean(fs: &str, (op, step, steps): (&str, usize, usize), grain: &str) -> [f64; 3] {
    let spec = |ops: usize| {
        format!("metadata:fs={fs},op={op},grain={grain},dirs=4000,filesize=4KiB,journal=2GiB,ops={ops}")
    };
    // With grain=byte, only file data is written in pages; file data lies behind all metadata.
    let by_lines = requests(&spec(3000).replace("grain=block", "grain=byte"));
    let data = by_lines.iter().filter(|r| r.len.is_multiple_of(PAGE) && r.len > 0).map(|r| r.offset).min();
    let all = requests(&spec(3000));
    // Each change ends with a flush, and all changes of a step have the same number of flushes.
    let of_one = |at: usize| {
        let flushes = |ops| requests(&spec(ops)).iter().filter(|r| r.op == Op::Flush).count();
        flushes(at + 1) - if at == 0 { 0 } else { flushes(at) }
    };
    let each: Vec<usize> = (0..steps).map(of_one).collect();
    let (mut sums, mut changes, mut turn, mut left) = ([0.0; 3], 0.0, 0, each[0]);
    for request in all {
        let flush = request.op == Op::Flush;
        if turn == step && data.is_none_or(|data| request.offset < data) {
            sums[0] += f64::from(u8::from(flush));
            sums[1] += request.len as f64 / PAGE as f64;
            sums[2] += request.len as f64 / 64.0;
        }
        left -= usize::from(flush);
        if left == 0 {
            changes += f64::from(u8::from(turn == step));
            turn = (turn + 1) % steps;
            left = each[turn];
        }
    }
    sums.map(|sum| sum / changes)
}

#[test]
fn the_page_has_what_is_written_for_each_change() {
    let page = include_str!("../../../../docs/reference/metadata-workload.md");
    let rows = [
        ("create a file", ("create", 0, 1)),
        ("create a directory", ("mkdir", 0, 1)),
        ("rename within a directory", ("rename", 0, 1)),
        ("delete", ("varmail", 0, 6)),
        ("append (fsync)", ("varmail", 2, 6)),
        ("time of access", ("varmail", 3, 6)),
    ];
    for (name, of) in rows {
        let show = |value: f64| format!("{}", (value * 10.0).round() / 10.0);
        let block = ["ext4", "xfs", "btrfs"].map(|fs| {
            let [flushes, pages, _] = mean(fs, of, "block");
            format!("{}, {}", show(pages), show(flushes))
        });
        let byte = ["ext4", "xfs", "btrfs"].map(|fs| {
            let [flushes, _, lines] = mean(fs, of, "byte");
            format!("{}, {}", show(flushes), show(lines))
        });
        let row = format!("| {name} | {} | {} |\n", block.join(" | "), byte.join(" | "));
        assert!(page.contains(&row), "docs/reference/metadata-workload.md lacks\n{row}");
    }
}
