//! Entries of directories. They are in the directory's pages, each at a place of its own, which it keeps as long as it exists.
//! An index of hashes in DRAM finds the place of a name; it is made when a name is looked up for the first time.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use deepram_core::units::PAGE_BYTES;
use deepram_linux::lock::lock;
use deepram_pool::{Addr, PoolError};

use crate::error::{FilesError, Result};
use crate::inodes::Inodes;
use crate::layout::{ENTRY, Entry, Inode, NAME};
use crate::memory::Change;
use crate::tree;

/// Entries that are read at once.
const BATCH: u64 = 62;
/// Most entries in the indexes of all directories together, but for that of one directory; 24 bytes each.
const INDEXED: usize = 1 << 20;

/// The places of a directory's entries.
#[derive(Default)]
struct Index {
    /// Hash of a name, and place.
    places: BTreeSet<(u64, u64)>,
    free: BTreeSet<u64>,
}

/// The indexes of directories, by inode.
#[derive(Default)]
pub(crate) struct Directories {
    indexes: Mutex<HashMap<u64, Index>>,
}

/// An entry and its place.
pub(crate) type Placed = (u64, Entry);

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Checks a name.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME {
        return Err(FilesError::NameTooLong { bytes: name.len(), most: NAME });
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(FilesError::Invalid(
            "a name is not empty, not \".\" or \"..\", and has no \"/\" or zero byte",
        ));
    }
    Ok(())
}

/// Copies `to.len()` bytes at `offset` out of the pages of a directory, which has no holes.
fn read_bytes(inodes: &Inodes, directory: &Inode, offset: u64, to: &mut [u8]) -> Result<()> {
    let mut done = 0;
    for page in
        tree::pages(&inodes.memory, directory, offset / PAGE_BYTES, pages_of(offset, to.len() as u64))?
    {
        let within = (offset + done as u64) % PAGE_BYTES;
        let n = ((PAGE_BYTES - within) as usize).min(to.len() - done);
        inodes.memory.read(inside(page, within)?, &mut to[done..done + n])?;
        done += n;
    }
    Ok(())
}

/// Pages that `len` bytes at `offset` touch.
fn pages_of(offset: u64, len: u64) -> u64 {
    (offset + len).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES
}

/// The address inside of a page that is not a hole.
fn inside(page: u64, within: u64) -> Result<Addr> {
    if page == 0 {
        return Err(FilesError::Damaged("a directory has a hole".into()));
    }
    Ok(Addr::from_raw(page).offset_by(within).map_err(PoolError::from)?)
}

/// Number of places of a directory.
fn places(directory: &Inode) -> u64 {
    directory.size / ENTRY as u64
}

/// Calls `each` with the entries from place `first` on until it returns `false`.
pub(crate) fn for_each(
    inodes: &Inodes,
    directory: &Inode,
    first: u64,
    each: &mut dyn FnMut(u64, Option<Entry>) -> bool,
) -> Result<()> {
    let end = places(directory);
    let mut bytes = vec![0; BATCH as usize * ENTRY];
    for start in (first..end).step_by(BATCH as usize) {
        let n = BATCH.min(end - start) as usize;
        read_bytes(inodes, directory, start * ENTRY as u64, &mut bytes[..n * ENTRY])?;
        for (place, entry) in (start..).zip(bytes[..n * ENTRY].chunks_exact(ENTRY)) {
            if !each(place, Entry::decode(entry)) {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Directories {
    /// Calls `f` with the index of a directory, which is made if it is not there.
    fn with<T>(
        &self,
        inodes: &Inodes,
        number: u64,
        directory: &Inode,
        f: impl FnOnce(&mut Index) -> T,
    ) -> Result<T> {
        let mut indexes = lock(&self.indexes);
        if !indexes.contains_key(&number) {
            let mut index = Index::default();
            for_each(inodes, directory, 0, &mut |place, entry| {
                match entry {
                    Some(entry) => index.places.insert((hash(&entry.name), place)),
                    None => index.free.insert(place),
                };
                true
            })?;
            let entries: usize = indexes.values().map(|index| index.places.len()).sum();
            if entries + index.places.len() > INDEXED {
                indexes.clear();
            }
            indexes.insert(number, index);
        }
        Ok(f(indexes.entry(number).or_default()))
    }

    /// Forgets all indexes, after a change that was taken back.
    pub(crate) fn forget(&self) {
        lock(&self.indexes).clear();
    }

    /// Finds the entry of a name.
    pub(crate) fn find(
        &self,
        inodes: &Inodes,
        number: u64,
        directory: &Inode,
        name: &[u8],
    ) -> Result<Option<Placed>> {
        let key = hash(name);
        let found: Vec<u64> = self.with(inodes, number, directory, |index| {
            index.places.range((key, 0)..=(key, u64::MAX)).map(|&(_, place)| place).collect()
        })?;
        for place in found {
            let mut bytes = [0; ENTRY];
            read_bytes(inodes, directory, place * ENTRY as u64, &mut bytes)?;
            if let Some(entry) = Entry::decode(&bytes).filter(|entry| entry.name == name) {
                return Ok(Some((place, entry)));
            }
        }
        Ok(None)
    }

    /// Adds an entry, whose name the directory does not have.
    pub(crate) fn add(
        &self,
        inodes: &Inodes,
        change: &mut Change<'_>,
        number: u64,
        directory: &mut Inode,
        entry: &Entry,
    ) -> Result<()> {
        let end = places(directory);
        let place = self.with(inodes, number, directory, |index| index.free.first().copied())?.unwrap_or(end);
        let offset = place * ENTRY as u64;
        let pages = tree::map(change, directory, offset / PAGE_BYTES, pages_of(offset, ENTRY as u64))?;
        write_entry(change, &pages, offset, &entry.encode())?;
        directory.size = directory.size.max(offset + ENTRY as u64);
        directory.entries += 1;
        self.with(inodes, number, directory, |index| {
            index.free.remove(&place);
            index.places.insert((hash(&entry.name), place));
        })
    }

    /// Replaces the inode of an entry.
    pub(crate) fn replace(
        &self,
        inodes: &Inodes,
        change: &mut Change<'_>,
        directory: &Inode,
        (place, entry): &Placed,
    ) -> Result<()> {
        let offset = place * ENTRY as u64;
        let count = pages_of(offset, ENTRY as u64);
        let pages = tree::pages(&inodes.memory, directory, offset / PAGE_BYTES, count)?;
        write_entry(change, &pages, offset, &entry.encode())
    }

    /// Removes an entry. A directory without entries gives its pages back.
    pub(crate) fn remove(
        &self,
        inodes: &Inodes,
        change: &mut Change<'_>,
        number: u64,
        directory: &mut Inode,
        (place, entry): &Placed,
    ) -> Result<()> {
        directory.entries = directory.entries.saturating_sub(1);
        if directory.entries == 0 {
            tree::cut(change, directory, 0)?;
            directory.size = 0;
            lock(&self.indexes).remove(&number);
            return Ok(());
        }
        let offset = place * ENTRY as u64;
        let count = pages_of(offset, ENTRY as u64);
        let pages = tree::pages(&inodes.memory, directory, offset / PAGE_BYTES, count)?;
        write_entry(change, &pages, offset, &[0; ENTRY])?;
        self.with(inodes, number, directory, |index| {
            index.places.remove(&(hash(&entry.name), *place));
            index.free.insert(*place);
        })
    }

    /// Forgets the index of a directory that is removed.
    pub(crate) fn removed(&self, number: u64) {
        lock(&self.indexes).remove(&number);
    }
}

/// Writes the bytes of an entry, which may lie in two pages.
fn write_entry(change: &mut Change<'_>, pages: &[u64], offset: u64, bytes: &[u8; ENTRY]) -> Result<()> {
    let mut done = 0;
    for &page in pages {
        let within = (offset + done as u64) % PAGE_BYTES;
        let n = ((PAGE_BYTES - within) as usize).min(ENTRY - done);
        change.write(inside(page, within)?, &bytes[done..done + n])?;
        done += n;
    }
    Ok(())
}
