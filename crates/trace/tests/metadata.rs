//! What file systems write for a change of metadata: blocks, lines and flushes in closed form.

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

/// Requests as text: `w` and pages, `l` and lines where it is no whole page, `F`.
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
    // One directory, so that the number of blocks does not hang on the draw.
    shape(&requests(&format!("metadata:fs={fs},op={op},grain={grain},dirs=1,perdir=50,ops=1")))
}

#[test]
fn ext4_writes_descriptor_and_blocks_then_the_commit_block_with_a_flush_behind_each() {
    // Bitmap, descriptors, inodes, entries, and with 16 inodes a block another for the directory's.
    assert_eq!(one("ext4", "create", "block"), "w6 F w1 F");
    // Another bitmap and the new directory's block.
    assert_eq!(one("ext4", "mkdir", "block"), "w8 F w1 F");
    // Entries, directory's inode, file's inode, which may be in the directory's block.
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
    // A file system of one leaf of files and one of directories: two leaves, a root, four nodes of space.
    assert_eq!(one("btrfs", "create", "block"), "w28 F w1 w1 w1 F");
    let logged = "metadata:fs=btrfs,btrfs=log,dirs=1,perdir=50,ops=1";
    assert_eq!(shape(&requests(logged)), "w8 F w1 F");
}

#[test]
fn btrfs_copies_as_many_levels_as_the_tree_has() {
    // 400,000 files: some 11,400 leaves, 24 nodes above them, a root. A change of two or three leaves copies as many
    // nodes of the next level, or fewer if they are neighbours.
    for request in requests("metadata:fs=btrfs,dirs=4000,perdir=100,ops=500").chunks(6) {
        let nodes = request[0].len / PAGE / 4;
        assert!((2 + 1 + 1 + 4..=3 + 3 + 1 + 4).contains(&nodes), "{nodes} nodes");
    }
}

#[test]
fn by_lines_each_structure_is_flushed_by_itself() {
    // Bitmap word, descriptor, inode of 256 B, entry, 160 B of the directory's inode.
    assert_eq!(one("ext4", "create", "byte"), "l1 F l1 F l4 F l1 F l3 F");
    assert_eq!(one("ext4", "mkdir", "byte"), "l1 F l1 F l1 F l4 F l1 F l1 F l3 F");
    // Group header, records of two trees, inode of 176 B, entry, hash, directory's inode.
    assert_eq!(one("xfs", "create", "byte"), "l1 F l1 F l1 F l3 F l1 F l1 F l3 F");
    let once = "metadata:grain=byte,fence=once,dirs=1,perdir=50,ops=1";
    assert_eq!(shape(&requests(once)), "l1 l1 l4 l1 l3 F");
    // Items stand anywhere in their leaf: a line more where they cross one.
    let btrfs = one("btrfs", "create", "byte");
    assert_eq!(btrfs.matches('F').count(), 5, "{btrfs}");
    for (op, structures) in [("ext4", 4), ("xfs", 6), ("btrfs", 7)] {
        assert_eq!(one(op, "rename", "byte").matches('F').count(), structures, "{op}");
    }
}

#[test]
fn a_journal_that_is_full_is_written_in_place_once_a_block() {
    // 128 blocks take 18 creates of 7; the 19th finds no room.
    let all = requests("metadata:dirs=1,perdir=50,journal=512KiB,ops=19");
    let text = shape(&all);
    // 50 inodes are in four blocks with that of the directory; bitmap, descriptors, entries: one each. Of the files
    // 18 were made, in two blocks.
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
            // By lines, only data are written by pages; they lie behind everything else.
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

/// Means over many changes of an operation at a place of its loop: flushes, pages, lines, of what is no data.
fn mean(fs: &str, (op, step, steps): (&str, usize, usize), grain: &str) -> [f64; 3] {
    let spec = |ops: usize| {
        format!("metadata:fs={fs},op={op},grain={grain},dirs=4000,filesize=4KiB,journal=2GiB,ops={ops}")
    };
    // By lines, only data are written by pages; they lie behind everything else.
    let by_lines = requests(&spec(3000).replace("grain=block", "grain=byte"));
    let data = by_lines.iter().filter(|r| r.len.is_multiple_of(PAGE) && r.len > 0).map(|r| r.offset).min();
    let all = requests(&spec(3000));
    // Each change ends with a flush, and the number of flushes of a change does not vary.
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
    let page = include_str!("../../../docs/reference/metadata-workload.md");
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
