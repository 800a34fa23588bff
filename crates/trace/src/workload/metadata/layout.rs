//! Layout of the metadata of EXT4, XFS and BtrFS, and the number of bytes that operations change in
//! them.
//!
//! Sizes are those of the on-disk formats: for EXT4 the kernel's Documentation/filesystems/ext4, for XFS
//! fs/xfs/libxfs/xfs_format.h, for BtrFS its developer documentation (On-disk-format). The reference
//! page of this workload has the resulting table.
//!
//! 1. Files and their inodes are laid out directory by directory. A file's directory entry has the same
//!    position in its directory as the inode.
//! 2. The number of a structure determines its position. A tree that keeps records in order is modelled
//!    as an area of records, divided into leaves. Areas begin at multiples of 16 KiB.

/// Size of a page and of a file-system block, in bytes.
pub(super) const PAGE: u64 = 4096;
/// Size of XFS's inode clusters and of BtrFS's nodes, in bytes.
pub(super) const WIDE: u64 = 16 << 10;

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fs {
    Ext4,
    Xfs,
    Btrfs,
}

/// A metadata change of a numbered file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create(u64),
    /// Create a directory at the position of a file.
    Mkdir(u64),
    /// Rename within the directory; the new entry is at the position of the second file.
    Rename(u64, u64),
    Unlink(u64),
    /// Size, times and blocks of a file that has grown.
    Append(u64),
    /// Time of the last access.
    MemoryAccess(u64),
}

/// The changed bytes of a structure, and the size of the block in which they are written unless written
/// separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) block: u64,
    /// An inode, which XFS logs by field.
    pub(super) inode: bool,
}

/// Records of one size, in leaves that hold a fixed number of them.
#[derive(Clone, Copy, Debug)]
struct Area {
    start: u64,
    record: u64,
    leaf: u64,
    per_leaf: u64,
}

impl Area {
    /// Offset of the record's leaf, and of the record within the leaf.
    fn place(&self, number: u64) -> (u64, u64) {
        (self.start + number / self.per_leaf * self.leaf, number % self.per_leaf)
    }

    fn at(&self, number: u64) -> u64 {
        let (leaf, place) = self.place(number);
        leaf + place * self.record
    }
}

/// Inodes and blocks of an EXT4 block group (blocks of 4 KiB, with one bit each in a bitmap of one
/// block; one inode per 16 KiB).
const GROUP_INODES: u64 = 8192;
const GROUP_BLOCKS: u64 = 32768;
/// Allocation groups of XFS: as many as it creates on a drive of 1.6 TB.
const XFS_GROUPS: u64 = 4;
/// Inodes of an XFS chunk, which is one record of its inode trees.
const XFS_CHUNK: u64 = 64;
/// Size of the block headers of XFS and BtrFS, and of BtrFS's item header, in bytes.
const XFS_HEADER: u64 = 56;
/// Hash and position of an XFS directory entry.
const XFS_HASH: u64 = 8;
pub(super) const BTRFS_HEADER: u64 = 101;
const BTRFS_ITEM: u64 = 25;

/// Bytes of a name in a directory entry (assumed).
const NAME: u64 = 16;
/// EXT4: 8 bytes and the name, aligned to 4; a checksum at the end of the block.
const EXT4_ENTRY: u64 = (8 + NAME).next_multiple_of(4);
const EXT4_TAIL: u64 = 12;
/// XFS: 12 bytes and the name, aligned to 8, its hash in the same block, and the other fields of a
/// directory block.
const XFS_ENTRY: u64 = (12 + NAME).next_multiple_of(8) + XFS_HASH;
const XFS_DIRECTORY: u64 = 64;
/// BtrFS: an inode item with its reference; a directory entry or index item.
const BTRFS_INODE: u64 = 160 + 10 + NAME + 2 * BTRFS_ITEM;
const BTRFS_ENTRY: u64 = 30 + NAME + BTRFS_ITEM;

/// The layout; see the module.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    fs: Fs,
    files: u64,
    per_directory: u64,
    inodes: Area,
    entries: Area,
    /// EXT4: inode bitmaps, block bitmaps, group descriptors, blocks of new directories. XFS: headers of
    /// allocation groups (inodes, space), records of its two inode trees and its two free-space trees.
    /// BtrFS: checksums.
    others: Vec<Area>,
    end: u64,
}

impl Layout {
    pub(super) fn new(fs: Fs, directories: u64, per_directory: u64) -> Layout {
        let files = directories * per_directory;
        let mut end = 0;
        // Positions of directory entries, in whole blocks per directory.
        let places =
            |record: u64, header: u64| directories * per_directory.next_multiple_of((PAGE - header) / record);
        let mut area = |record: u64, leaf: u64, header: u64, records: u64| {
            let per_leaf = (leaf - header) / record;
            let area = Area { start: end, record, leaf, per_leaf };
            end += (records.div_ceil(per_leaf) * leaf).next_multiple_of(WIDE);
            area
        };
        let all = files + directories;
        let (inodes, entries, others) = match fs {
            Fs::Ext4 => {
                let groups = all.div_ceil(GROUP_INODES);
                let bitmap = PAGE;
                (
                    area(256, PAGE, 0, all),
                    area(EXT4_ENTRY, PAGE, EXT4_TAIL, places(EXT4_ENTRY, EXT4_TAIL)),
                    vec![
                        area(bitmap, PAGE, 0, groups),
                        area(bitmap, PAGE, 0, groups),
                        area(64, PAGE, 0, groups),
                        area(PAGE, PAGE, 0, files),
                    ],
                )
            }
            Fs::Xfs => (
                area(512, WIDE, 0, all),
                area(XFS_ENTRY, PAGE, XFS_DIRECTORY, places(XFS_ENTRY, XFS_DIRECTORY)),
                vec![
                    area(PAGE, PAGE, 0, XFS_GROUPS),
                    area(PAGE, PAGE, 0, XFS_GROUPS),
                    area(16, PAGE, XFS_HEADER, all.div_ceil(XFS_CHUNK)),
                    area(16, PAGE, XFS_HEADER, all.div_ceil(XFS_CHUNK)),
                    area(8, PAGE, XFS_HEADER, files),
                    area(8, PAGE, XFS_HEADER, files),
                ],
            ),
            Fs::Btrfs => (
                // The items of a file are adjacent: inode, reference, extent.
                area(BTRFS_INODE + 53 + BTRFS_ITEM, WIDE, BTRFS_HEADER, files),
                // The items of a directory are adjacent, too: inode, entries, index items; they continue
                // in the next leaf.
                area(1, WIDE, BTRFS_HEADER, directories * btrfs_directory(per_directory)),
                vec![area(4 + BTRFS_ITEM, WIDE, BTRFS_HEADER, files)],
            ),
        };
        Layout { fs, files, per_directory, inodes, entries, others, end }
    }

    /// Size of all metadata, in bytes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Number of leaves in all areas, as a single tree would have.
    pub(super) fn leaves(&self) -> u64 {
        self.end / WIDE
    }

    pub(super) fn parts(&self, change: Change) -> Vec<Part> {
        match self.fs {
            Fs::Ext4 => self.ext4(change),
            Fs::Xfs => self.xfs(change),
            Fs::Btrfs => self.btrfs(change),
        }
    }

    /// Number of a file's directory entry. EXT4 and XFS directories have their own blocks.
    fn entry(&self, file: u64) -> u64 {
        let places = self.per_directory.next_multiple_of(self.entries.per_leaf);
        file / self.per_directory * places + file % self.per_directory
    }

    /// Inode of a file's directory.
    fn directory(&self, file: u64) -> u64 {
        self.files + file / self.per_directory
    }

    fn ext4(&self, change: Change) -> Vec<Part> {
        let part = |at, bytes, inode| Part { at, bytes, block: PAGE, inode };
        // The fields of an inode precede its attributes.
        let inode = |number| part(self.inodes.at(number), 160, true);
        let entry = |file| part(self.entries.at(self.entry(file)), self.entries.record, false);
        let group = |file: u64| file / GROUP_INODES;
        let inode_bit =
            |file: u64| part(self.others[0].at(group(file)) + file % GROUP_INODES / 64 * 8, 8, false);
        let block_bit = |file: u64| {
            let block = file % GROUP_INODES * (GROUP_BLOCKS / GROUP_INODES);
            part(self.others[1].at(group(file)) + block / 64 * 8, 8, false)
        };
        let descriptor = |file: u64| part(self.others[2].at(group(file)), 64, false);
        let whole = |number| part(self.inodes.at(number), 256, true);
        match change {
            Change::Create(file) => {
                vec![inode_bit(file), descriptor(file), whole(file), entry(file), inode(self.directory(file))]
            }
            Change::Mkdir(file) => vec![
                inode_bit(file),
                block_bit(file),
                descriptor(file),
                whole(file),
                // Entries for the directory itself and its parent.
                part(self.others[3].at(file), 24, false),
                entry(file),
                inode(self.directory(file)),
            ],
            Change::Rename(file, to) => {
                vec![entry(to), entry(file), inode(file), inode(self.directory(file))]
            }
            Change::Unlink(file) => vec![
                entry(file),
                inode(self.directory(file)),
                inode(file),
                inode_bit(file),
                block_bit(file),
                descriptor(file),
            ],
            Change::Append(file) => vec![block_bit(file), descriptor(file), inode(file)],
            Change::MemoryAccess(file) => vec![inode(file)],
        }
    }

    fn xfs(&self, change: Change) -> Vec<Part> {
        let part = |at, bytes| Part { at, bytes, block: PAGE, inode: false };
        let inode = |number| Part { at: self.inodes.at(number), bytes: 176, block: WIDE, inode: true };
        let entry = |file| {
            let (leaf, place) = self.entries.place(self.entry(file));
            part(leaf + place * (self.entries.record - XFS_HASH), self.entries.record - XFS_HASH)
        };
        // The hashes are at the end of the block.
        let hash = |file| {
            let (leaf, place) = self.entries.place(self.entry(file));
            part(leaf + PAGE - (self.entries.per_leaf - place) * XFS_HASH, XFS_HASH)
        };
        let group = |file: u64| file * XFS_GROUPS / self.files;
        let header = |which: usize, file: u64| part(self.others[which].at(group(file)), 64);
        let chunk = |which: usize, file: u64| part(self.others[which].at(file / XFS_CHUNK), 16);
        let free = |which: usize, file: u64| part(self.others[which].at(file), 8);
        match change {
            // A small directory is stored in its inode and has no block of its own.
            Change::Create(file) | Change::Mkdir(file) => vec![
                header(0, file),
                chunk(2, file),
                chunk(3, file),
                inode(file),
                entry(file),
                hash(file),
                inode(self.directory(file)),
            ],
            Change::Rename(file, to) => {
                vec![entry(to), hash(to), entry(file), hash(file), inode(file), inode(self.directory(file))]
            }
            Change::Unlink(file) => vec![
                entry(file),
                hash(file),
                inode(self.directory(file)),
                inode(file),
                header(0, file),
                chunk(2, file),
                chunk(3, file),
                header(1, file),
                free(4, file),
                free(5, file),
            ],
            Change::Append(file) => vec![header(1, file), free(4, file), free(5, file), inode(file)],
            Change::MemoryAccess(file) => vec![inode(file)],
        }
    }

    fn btrfs(&self, change: Change) -> Vec<Part> {
        let part = |at, bytes| Part { at, bytes, block: WIDE, inode: false };
        let inode = |file| part(self.inodes.at(file), 160);
        let reference = |file| part(self.inodes.at(file) + 160 + BTRFS_ITEM, 10 + NAME);
        let extent = |file| part(self.inodes.at(file) + BTRFS_INODE, 53);
        let checksum = |file| part(self.others[0].at(file), 4);
        let within = |file: u64, byte| {
            let directory = file / self.per_directory;
            self.entries.at(directory * btrfs_directory(self.per_directory) + byte)
        };
        let directory = |file| part(within(file, 0), 160);
        let entry =
            |file: u64| part(within(file, BTRFS_INODE + file % self.per_directory * BTRFS_ENTRY), 30 + NAME);
        let index = |file: u64| {
            let place = self.per_directory + file % self.per_directory;
            part(within(file, BTRFS_INODE + place * BTRFS_ENTRY), 30 + NAME)
        };
        match change {
            Change::Create(file) | Change::Mkdir(file) => {
                vec![inode(file), reference(file), entry(file), index(file), directory(file)]
            }
            Change::Rename(file, to) => vec![
                entry(to),
                index(to),
                entry(file),
                index(file),
                reference(file),
                inode(file),
                directory(file),
            ],
            Change::Unlink(file) => vec![
                entry(file),
                index(file),
                reference(file),
                inode(file),
                extent(file),
                checksum(file),
                directory(file),
            ],
            Change::Append(file) => vec![extent(file), checksum(file), inode(file)],
            Change::MemoryAccess(file) => vec![inode(file)],
        }
    }
}

/// Size of a directory's items, in bytes.
fn btrfs_directory(files: u64) -> u64 {
    BTRFS_INODE + 2 * files * BTRFS_ENTRY
}
