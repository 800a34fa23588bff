//! Makes metadata changes durable: by block, in the way of each file system, or by line.
//!
//! 1. EXT4 (data=ordered): a descriptor block, each changed block, a flush, the commit block, a flush.
//!    XFS: a log record between two flushes. If the log lacks space for the next transaction, all blocks
//!    in it are first written in place, each once, and the log starts over.
//! 2. BtrFS: new copies of the leaves and of all nodes above them, a leaf of each space-accounting tree,
//!    a flush, the super blocks, a flush. For fsync: a leaf of the log tree, its root's leaf, a flush,
//!    one super block, a flush.
//! 3. By line: the lines of each structure, followed by a flush.

use std::collections::{BTreeSet, VecDeque};

use super::super::address_streams::FLUSH;
use super::layout::{BTRFS_HEADER, Fs, Layout, PAGE, Part, WIDE};
use crate::record::{Item, Op, Request};

const LINE: u64 = 64;
/// Tags of 16 bytes in a descriptor block, besides header, UUID and checksum.
const TAGS: u64 = (PAGE - 12 - 16 - 4) / 16;
/// XFS's log: size of a record header; of a transaction besides its items; of an item's format and two
/// headers; logging granularity of buffers.
const RECORD: u64 = 512;
const TRANSACTION: u64 = 64;
const INODE_ITEM: u64 = 56 + 176 + 2 * 12;
const BUFFER_ITEM: u64 = 28 + 2 * 12;
const CHUNK: u64 = 128;
/// Children of a BtrFS node: key pointers of 33 bytes.
const FAN_OUT: u64 = (WIDE - BTRFS_HEADER) / 33;
/// Nodes of a commit besides the path to the change: leaf and root of the extent tree, a leaf of the
/// free-space tree, a leaf of the root tree (each assumed to change in one place).
const SPACE_NODES: u64 = 4;
/// Nodes of an fsync: a leaf of the log tree, a leaf of the log root tree.
const LOG_NODES: u64 = 2;
/// Super blocks of a commit, at 64 KiB, 64 MiB and 256 GiB.
const SUPERS: u64 = 3;

/// Cyclically used area for everything that is not metadata in place: the journal, or BtrFS's free
/// space; super blocks follow it.
#[derive(Clone, Copy, Debug)]
struct Log {
    start: u64,
    pages: u64,
    at: u64,
}

pub(super) enum Persist {
    /// A flush after each structure, or one after all.
    Lines(bool),
    Journal(Journal),
    Tree(Tree),
}

pub(super) struct Journal {
    fs: Fs,
    log: Log,
    /// Blocks not yet written in place: offset, length.
    behind: BTreeSet<(u64, u64)>,
}

pub(super) struct Tree {
    log: Log,
    /// Leaves of the file-system tree, or of the area that represents it.
    leaves: u64,
}

impl Persist {
    /// Creates a log of `log` bytes, or none in the `lines` mode, with a flush after each structure or
    /// after all. The second result is the offset after everything, equal in both modes.
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

    /// Appends the requests that make the parts durable to the queue. `fsync`: for a single file.
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
    /// Writes `pages` pages at the next positions, which must not exceed the end.
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
        // Pages before and after the first flush.
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
            // The journal's super block records where it begins; XFS's next record does so.
            write(queue, self.log.supers(), PAGE);
            queue.push_back(FLUSH);
        }
        self.log.at = 0;
    }
}

/// Size of XFS's log record, in bytes.
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

    /// Changed leaves and all nodes above them.
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
