//! The structures of the file system in the memory of the pool. All numbers are little-endian; an address of 0 is none.
//!
//! ```text
//! superblock, 64 KiB, behind the root "files":
//! 0 magic │ 8 version u64 │ 16 inodes made u64 │ 24 first free inode u64 │ 32 first orphan u64 │ 40 inodes in use u64
//! 1024 addresses of the pages of the inode table, 8064 × u64
//!
//! inode, 256 bytes, 256 in a page of the table:
//! 0 mode u32 (0: free) │ 4 links u32 │ 8 uid u32 │ 12 gid u32 │ 16 size u64 │ 24 mtime i64 │ 32 ctime i64 │ 40 atime i64
//! 48 rdev u32 │ 52 generation u32 │ 56 pages u64 │ 64 next u64 │ 72 parent u64 │ 80 entries u64 │ 88 reserved u64
//! 96 addresses of pages 0 to 17, 18 × u64 │ 240 address of an index page │ 248 address of a page of index pages
//!
//! index page, 64 KiB: 8192 × u64, addresses of pages
//!
//! entry of a directory, 264 bytes, in the directory's pages:
//! 0 inode u32 (0: free) │ 4 type u8 (mode >> 12) │ 5 length of name u8 │ 6..261 name │ 261..264 reserved
//! ```

use deepram_core::units::PAGE_BYTES;

/// Name of the pool's root that has the superblock.
pub(crate) const ROOT: &str = "files";
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"deepram\x0f");
pub(crate) const VERSION: u64 = 1;

pub(crate) const MAGIC_AT: u64 = 0;
pub(crate) const VERSION_AT: u64 = 8;
pub(crate) const MADE_AT: u64 = 16;
pub(crate) const FREE_AT: u64 = 24;
pub(crate) const ORPHAN_AT: u64 = 32;
pub(crate) const USED_AT: u64 = 40;
pub(crate) const TABLE_AT: u64 = 1024;
/// Most pages of the inode table.
pub(crate) const TABLE_PAGES: u64 = (PAGE_BYTES - TABLE_AT) / 8;

pub(crate) const INODE: usize = 256;
pub(crate) const INODES_PER_PAGE: u64 = PAGE_BYTES / INODE as u64;
pub(crate) const DIRECT: usize = 18;
/// Addresses in an index page.
pub(crate) const FANOUT: u64 = PAGE_BYTES / 8;
/// Most pages of a file.
pub(crate) const FILE_PAGES: u64 = DIRECT as u64 + FANOUT + FANOUT * FANOUT;
const MTIME_AT: usize = 24;
const DIRECT_AT: usize = 96;
const SINGLE_AT: usize = DIRECT_AT + 8 * DIRECT;
const DOUBLE_AT: usize = SINGLE_AT + 8;
const _: () = assert!(DOUBLE_AT + 8 == INODE);

pub(crate) const ENTRY: usize = 264;
/// Longest name, bytes.
pub(crate) const NAME: usize = 255;
const NAME_AT: usize = 6;

/// An inode as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// Times in nanoseconds since 1970.
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) atime: i64,
    pub(crate) rdev: u32,
    pub(crate) generation: u32,
    /// Allocated pages, index pages included.
    pub(crate) pages: u64,
    /// Next inode of the list of free inodes or of orphans.
    pub(crate) next: u64,
    /// Of a directory: the directory that has it.
    pub(crate) parent: u64,
    /// Of a directory: number of entries.
    pub(crate) entries: u64,
    pub(crate) direct: [u64; DIRECT],
    pub(crate) single: u64,
    pub(crate) double: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

impl Inode {
    pub(crate) fn decode(bytes: &[u8; INODE]) -> Self {
        Self {
            mode: half(bytes, 0),
            links: half(bytes, 4),
            uid: half(bytes, 8),
            gid: half(bytes, 12),
            size: word(bytes, 16),
            mtime: word(bytes, MTIME_AT).cast_signed(),
            ctime: word(bytes, 32).cast_signed(),
            atime: word(bytes, 40).cast_signed(),
            rdev: half(bytes, 48),
            generation: half(bytes, 52),
            pages: word(bytes, 56),
            next: word(bytes, 64),
            parent: word(bytes, 72),
            entries: word(bytes, 80),
            direct: std::array::from_fn(|n| word(bytes, DIRECT_AT + 8 * n)),
            single: word(bytes, SINGLE_AT),
            double: word(bytes, DOUBLE_AT),
        }
    }

    pub(crate) fn encode(&self) -> [u8; INODE] {
        let mut bytes = [0; INODE];
        let halves = [(0, self.mode), (4, self.links), (8, self.uid), (12, self.gid)];
        for (at, value) in halves.into_iter().chain([(48, self.rdev), (52, self.generation)]) {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let times = [self.mtime, self.ctime, self.atime].map(i64::cast_unsigned);
        let words = [(16, self.size), (MTIME_AT, times[0]), (32, times[1]), (40, times[2]), (56, self.pages)];
        let more = [(64, self.next), (72, self.parent), (80, self.entries)];
        let ends = [(SINGLE_AT, self.single), (DOUBLE_AT, self.double)];
        let direct = self.direct.iter().enumerate().map(|(n, &address)| (DIRECT_AT + 8 * n, address));
        for (at, value) in words.into_iter().chain(more).chain(direct).chain(ends) {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    pub(crate) fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// The times of an inode of which a store to a file changes two: where they are, and their bytes.
pub(crate) fn touched(now: i64) -> (u64, [u8; 16]) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&now.to_le_bytes());
    bytes[8..].copy_from_slice(&now.to_le_bytes());
    (MTIME_AT as u64, bytes)
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) inode: u64,
    /// Type of the file, as in its mode.
    pub(crate) kind: u32,
    pub(crate) name: Vec<u8>,
}

impl Entry {
    /// The entry in these bytes; none if they are free.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let inode = u64::from(half(bytes, 0));
        let name = bytes[NAME_AT..NAME_AT + usize::from(bytes[5])].to_vec();
        (inode != 0).then(|| Self { inode, kind: u32::from(bytes[4]) << 12, name })
    }

    pub(crate) fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..4].copy_from_slice(&(self.inode as u32).to_le_bytes());
        bytes[4] = (self.kind >> 12) as u8;
        bytes[5] = self.name.len() as u8;
        bytes[NAME_AT..NAME_AT + self.name.len()].copy_from_slice(&self.name);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_read_as_it_was_written() {
        let inode = Inode {
            mode: libc::S_IFREG | 0o644,
            links: 1,
            uid: 2,
            gid: 3,
            size: 4,
            mtime: -5,
            ctime: 6,
            atime: 7,
            rdev: 8,
            generation: 9,
            pages: 10,
            next: 11,
            parent: 12,
            entries: 13,
            direct: std::array::from_fn(|n| 100 + n as u64),
            single: 14,
            double: 15,
        };
        assert_eq!(Inode::decode(&inode.encode()), inode);
        let (at, bytes) = touched(-99);
        let mut stored = inode.encode();
        stored[at as usize..at as usize + 16].copy_from_slice(&bytes);
        assert_eq!(Inode::decode(&stored), Inode { mtime: -99, ctime: -99, ..inode });
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_with_the_longest_name() {
        let entry = Entry { inode: 1 << 20, kind: libc::S_IFSOCK, name: vec![b'n'; NAME] };
        assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        assert_eq!(Entry::decode(&[0; ENTRY]), None);
    }
}
