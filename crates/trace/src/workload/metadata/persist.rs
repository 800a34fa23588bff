//! How changes of metadata become durable: by blocks, in each file system's own way, or by lines.
//!
//! 1. EXT4 (data=ordered): a descriptor, each changed block, a flush, the commit block, a flush. XFS: a record of the
//!    log between two flushes. Where the log has no room for the next transaction, all blocks that it has are written
//!    in place, each once, and it begins anew.
//! 2. BtrFS: new copies of the leaves and of all nodes above them, a leaf of each tree that tells of space, a flush, the
//!    super blocks, a flush. For fsync a leaf of the log tree, its root's leaf, a flush, one super block, a flush.
//! 3. By lines: the lines of each structure, and a flush behind each.

use std::collections::{BTreeSet, VecDeque};

use super::super::streams::FLUSH;
use super::layout::{BTRFS_HEADER, Fs, Layout, PAGE, Part, WIDE};
use crate::record::{Item, Op, Request};

const LINE: u64 = 64;
/// Tags of 16 bytes that a descriptor block holds beside header, UUID and checksum.
const TAGS: u64 = (PAGE - 12 - 16 - 4) / 16;
/// XFS's log: a record's header; what a transaction has beside its items; of an item, its format and two headers; bytes
/// that buffers are logged by.
const RECORD: u64 = 512;
const TRANSACTION: u64 = 64;
const INODE_ITEM: u64 = 56 + 176 + 2 * 12;
const BUFFER_ITEM: u64 = 28 + 2 * 12;
const CHUNK: u64 = 128;
/// Children of a node of BtrFS: key pointers of 33 bytes.
const FAN_OUT: u64 = (WIDE - BTRFS_HEADER) / 33;
/// Nodes of a commit beside the path to what changed: leaf and root of the extent tree, a leaf of the free-space tree,
/// a leaf of the tree of roots (each assumed to be changed in one place).
const SPACE_NODES: u64 = 4;
/// Nodes of an fsync: a leaf of the log tree, a leaf of the tree of log roots.
const LOG_NODES: u64 = 2;
/// Super blocks of a commit, at 64 KiB, 64 MiB and 256 GiB.
const SUPERS: u64 = 3;

/// Where what is not metadata in place goes: the journal, or BtrFS's free space, used in turn; then super blocks.
#[derive(Clone, Copy, Debug)]
struct Log {
    start: u64,
    pages: u64,
    at: u64,
}

pub(super) enum Persist {
    /// A flush behind each structure, or one behind all.
    Lines(bool),
    Journal(Journal),
    Tree(Tree),
}

pub(super) struct Journal {
    fs: Fs,
    log: Log,
    /// Blocks that are not yet in place: first byte, bytes.
    behind: BTreeSet<(u64, u64)>,
}

pub(super) struct Tree {
    log: Log,
    /// Leaves of the tree of files, or of what stands for it.
    leaves: u64,
}

impl Persist {
    /// A log of `log` bytes, unless it is done by `lines`: with a flush behind each structure, or behind all. The byte
    /// after all of it is the second result, the same on both ways.
    pub(super) fn new(fs: Fs, layout: &Layout, lines: Option<bool>, log: u64) -> (Persist, u64) {
        let start = layout.end();
        let log = Log { start, pages: log / PAGE, at: 0 };
        let end = start + (log.pages + SUPERS) * PAGE;
        let persist = match (lines, fs) {
            (Some(each), _) => Persist::Lines(each),
            (None, Fs::Btrfs) => Persist::Tree(Tree { log, leaves: layout.leaves() }),
            (None, _) => Persist::Journal(Journal { fs, log, behind: BTreeSet::new() }),
        };
        (persist, end)
    }

    /// Makes the parts durable, behind what is in the queue. `fsync`: for the sake of one file.
    pub(super) fn commit(&mut self, parts: &[Part], fsync: bool, queue: &mut VecDeque<Item>) {
        match self {
            Persist::Lines(each) => {
                for (turn, part) in parts.iter().enumerate() {
                    let first = part.at / LINE * LINE;
                    write(queue, first, (part.at + part.bytes).next_multiple_of(LINE) - first);
                    if *each || turn + 1 == parts.len() {
                        queue.push_back(FLUSH);
                    }
                }
            }
            Persist::Journal(journal) => journal.commit(parts, queue),
            Persist::Tree(tree) => tree.commit(parts, fsync, queue),
        }
    }
}

fn write(queue: &mut VecDeque<Item>, offset: u64, len: u64) {
    queue.push_back(Item::Block(Request { time_ps: None, device: 0, offset, len, op: Op::Write }));
}

fn blocks(parts: &[Part]) -> BTreeSet<(u64, u64)> {
    parts.iter().map(|part| (part.at / part.block * part.block, part.block)).collect()
}

impl Log {
    /// Writes so many pages at the next places; they do not reach beyond the end.
    fn append(&mut self, pages: u64, queue: &mut VecDeque<Item>) {
        if self.at + pages > self.pages {
            self.at = 0;
        }
        write(queue, self.start + self.at * PAGE, pages * PAGE);
        self.at += pages;
    }

    fn supers(&self) -> u64 {
        self.start + self.pages * PAGE
    }
}

impl Journal {
    fn commit(&mut self, parts: &[Part], queue: &mut VecDeque<Item>) {
        let blocks = blocks(parts);
        let count = blocks.len() as u64;
        // Pages before the first flush, and behind it.
        let (first, second) = match self.fs {
            Fs::Ext4 => (count.div_ceil(TAGS) + count, 1),
            _ => (0, record(parts).div_ceil(PAGE)),
        };
        if self.log.at + first + second > self.log.pages {
            self.write_in_place(queue);
        }
        if first > 0 {
            self.log.append(first, queue);
        }
        queue.push_back(FLUSH);
        self.log.append(second, queue);
        queue.push_back(FLUSH);
        self.behind.extend(blocks);
    }

    fn write_in_place(&mut self, queue: &mut VecDeque<Item>) {
        for (at, bytes) in std::mem::take(&mut self.behind) {
            write(queue, at, bytes);
        }
        queue.push_back(FLUSH);
        if self.fs == Fs::Ext4 {
            // The journal's super block says where it begins; XFS's next record does.
            write(queue, self.log.supers(), PAGE);
            queue.push_back(FLUSH);
        }
        self.log.at = 0;
    }
}

/// Bytes of the record of XFS's log.
fn record(parts: &[Part]) -> u64 {
    let item = |part: &Part| {
        if part.inode {
            return INODE_ITEM;
        }
        let chunks = (part.at + part.bytes).div_ceil(CHUNK) - part.at / CHUNK;
        BUFFER_ITEM + chunks * CHUNK
    };
    RECORD + TRANSACTION + parts.iter().map(item).sum::<u64>()
}

impl Tree {
    fn commit(&mut self, parts: &[Part], fsync: bool, queue: &mut VecDeque<Item>) {
        let (nodes, supers) = if fsync { (LOG_NODES, 1) } else { (self.path(parts) + SPACE_NODES, SUPERS) };
        self.log.append(nodes * (WIDE / PAGE), queue);
        queue.push_back(FLUSH);
        for copy in 0..supers {
            write(queue, self.log.supers() + copy * PAGE, PAGE);
        }
        queue.push_back(FLUSH);
    }

    /// Leaves that change and all nodes above them.
    fn path(&self, parts: &[Part]) -> u64 {
        let mut level: BTreeSet<u64> = parts.iter().map(|part| part.at / WIDE).collect();
        let (mut nodes, mut width) = (level.len() as u64, self.leaves);
        while width > 1 {
            level = level.iter().map(|node| node / FAN_OUT).collect();
            nodes += level.len() as u64;
            width = width.div_ceil(FAN_OUT);
        }
        nodes
    }
}
