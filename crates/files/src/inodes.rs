//! The superblock and the table of inodes: the list of free ones, and the list of orphans, which have no name any more but are
//! still in use.

use deepram_core::units::PAGE_BYTES;
use deepram_pool::{Addr, Lifetime, Pool, PoolError};

use crate::error::{FilesError, Result};
use crate::layout::{
    FREE_AT, INODE, INODES_PER_PAGE, Inode, MADE_AT, MAGIC, MAGIC_AT, ORPHAN_AT, ROOT, TABLE_AT, TABLE_PAGES,
    USED_AT, VERSION, VERSION_AT,
};
use crate::memory::{Change, Memory};
use crate::tree;

/// Inode of the topmost directory. Inode 0 does not exist.
pub const TOP: u64 = 1;

/// The inodes of a file system.
pub(crate) struct Inodes {
    pub(crate) memory: Memory,
    superblock: Addr,
}

impl Inodes {
    /// Opens the file system of a pool, or makes an empty one if there is none and the pool may be written to.
    pub(crate) fn open(memory: Memory, top: &Inode) -> Result<Self> {
        if let Some(superblock) = memory.superblock()? {
            let inodes = Self { memory, superblock };
            if inodes.word(MAGIC_AT)? != MAGIC {
                return Err(FilesError::Damaged(format!("{superblock} has no superblock")));
            }
            return match inodes.word(VERSION_AT)? {
                VERSION => Ok(inodes),
                found => Err(FilesError::Version { found, known: VERSION }),
            };
        }
        if !memory.is_writable() {
            return Err(FilesError::NoFiles(memory.token().map(|token| token.0)));
        }
        let superblock = make(memory.pool())?;
        let inodes = Self { memory, superblock };
        let mut change = inodes.memory.change()?;
        change.write_word(inodes.at(MAGIC_AT)?, MAGIC)?;
        change.write_word(inodes.at(VERSION_AT)?, VERSION)?;
        change.write_word(inodes.at(MADE_AT)?, TOP)?;
        let number = inodes.alloc(&mut change, top)?;
        debug_assert_eq!(number, TOP);
        change.commit()?;
        Ok(inodes)
    }

    fn at(&self, offset: u64) -> Result<Addr> {
        Ok(self.superblock.offset_by(offset).map_err(PoolError::from)?)
    }

    fn word(&self, offset: u64) -> Result<u64> {
        self.memory.read_word(self.at(offset)?)
    }

    /// Files and directories.
    pub(crate) fn used(&self) -> Result<u64> {
        self.word(USED_AT)
    }

    /// Most files and directories.
    pub(crate) const fn most() -> u64 {
        TABLE_PAGES * INODES_PER_PAGE - 1
    }

    /// The address of an inode that was made.
    pub(crate) fn address(&self, number: u64) -> Result<Addr> {
        if number == 0 || number >= self.word(MADE_AT)? {
            return Err(FilesError::Stale(number));
        }
        self.slot(number)
    }

    fn slot(&self, number: u64) -> Result<Addr> {
        let page = Addr::from_raw(self.word(TABLE_AT + 8 * (number / INODES_PER_PAGE))?);
        Ok(page.offset_by(number % INODES_PER_PAGE * INODE as u64).map_err(PoolError::from)?)
    }

    fn read(&self, number: u64) -> Result<Inode> {
        let mut bytes = [0; INODE];
        self.memory.read(self.address(number)?, &mut bytes)?;
        Ok(Inode::decode(&bytes))
    }

    /// Reads an inode that is in use.
    ///
    /// # Errors
    /// [`FilesError::Stale`].
    pub(crate) fn get(&self, number: u64) -> Result<Inode> {
        let inode = self.read(number)?;
        if inode.mode == 0 { Err(FilesError::Stale(number)) } else { Ok(inode) }
    }

    pub(crate) fn put(&self, change: &mut Change<'_>, number: u64, inode: &Inode) -> Result<()> {
        change.write(self.address(number)?, &inode.encode())
    }

    /// Takes a free inode. Returns its number.
    pub(crate) fn alloc(&self, change: &mut Change<'_>, inode: &Inode) -> Result<u64> {
        let free = self.word(FREE_AT)?;
        let (number, generation) = if free == 0 {
            let made = self.word(MADE_AT)?;
            if made > Self::most() {
                return Err(FilesError::TooManyFiles(Self::most()));
            }
            let table = self.at(TABLE_AT + 8 * (made / INODES_PER_PAGE))?;
            if self.memory.read_word(table)? == 0 {
                let page = change.alloc(1)?;
                change.write_word(table, page.raw())?;
            }
            change.write_word(self.at(MADE_AT)?, made + 1)?;
            (made, 0)
        } else {
            let old = self.read(free)?;
            change.write_word(self.at(FREE_AT)?, old.next)?;
            (free, old.generation.wrapping_add(1))
        };
        change.write_word(self.at(USED_AT)?, self.used()? + 1)?;
        self.put(change, number, &Inode { generation, ..inode.clone() })?;
        Ok(number)
    }

    /// Frees an inode and its pages.
    pub(crate) fn free(&self, change: &mut Change<'_>, number: u64, inode: &Inode) -> Result<()> {
        let mut inode = inode.clone();
        tree::cut(change, &mut inode, 0)?;
        let next = self.word(FREE_AT)?;
        let free = Inode { generation: inode.generation, next, ..Inode::default() };
        self.put(change, number, &free)?;
        change.write_word(self.at(FREE_AT)?, number)?;
        change.write_word(self.at(USED_AT)?, self.used()?.saturating_sub(1))
    }

    /// Enters an inode without a name in the list of orphans.
    pub(crate) fn orphan(&self, change: &mut Change<'_>, number: u64, inode: &mut Inode) -> Result<()> {
        inode.next = self.word(ORPHAN_AT)?;
        self.put(change, number, inode)?;
        change.write_word(self.at(ORPHAN_AT)?, number)
    }

    /// The numbers of the orphans.
    pub(crate) fn orphans(&self) -> Result<Vec<u64>> {
        let (mut found, mut next) = (Vec::new(), self.word(ORPHAN_AT)?);
        let most = self.word(MADE_AT)?;
        while next != 0 {
            if found.len() as u64 >= most {
                return Err(FilesError::Damaged("the list of orphans has a loop".into()));
            }
            found.push(next);
            next = self.get(next)?.next;
        }
        Ok(found)
    }

    /// Takes an inode off the list of orphans and frees it.
    pub(crate) fn free_orphan(&self, change: &mut Change<'_>, number: u64) -> Result<()> {
        let orphans = self.orphans()?;
        let inode = self.get(number)?;
        match orphans.iter().position(|&orphan| orphan == number) {
            None => return Err(FilesError::Damaged(format!("inode {number} has no name and is no orphan"))),
            Some(0) => change.write_word(self.at(ORPHAN_AT)?, inode.next)?,
            Some(n) => {
                let before = self.get(orphans[n - 1])?;
                self.put(change, orphans[n - 1], &Inode { next: inode.next, ..before })?;
            }
        }
        self.free(change, number, &inode)
    }
}

/// Allocates the superblock and gives it its name.
fn make(pool: &Pool) -> Result<Addr> {
    let superblock = pool.alloc(PAGE_BYTES, Lifetime::Permanent)?;
    if let Err(error) = pool.set_root(ROOT, superblock, PAGE_BYTES) {
        // The caller gets the first error.
        let _ = pool.free(superblock, PAGE_BYTES);
        return Err(error.into());
    }
    Ok(superblock)
}
