//! Names of files: looking up, making, removing, renaming, listing.

use crate::attributes::{Attributes, Status, now};
use crate::directory::{self, Placed, check_name};
use crate::error::{FilesError, Result};
use crate::files::Files;
use crate::inodes::TOP;
use crate::layout::{Entry, Inode};
use crate::memory::Change;

/// Longest target of a symbolic link, bytes.
const LINK_TARGET: usize = 4095;
/// Most names of a file.
const LINKS: u32 = 65_000;

/// Treatment of an entry that has the new name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// The entry is replaced.
    Yes,
    /// That is an error.
    No,
    /// The two entries exchange their names.
    Exchange,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Where a listing that follows this entry begins.
    pub next: u64,
    /// Inode number.
    pub inode: u64,
    /// Type of the file (`S_IFMT`).
    pub kind: u32,
    /// The name.
    pub name: Vec<u8>,
}

impl Files {
    fn directory(&self, number: u64) -> Result<Inode> {
        let inode = self.inodes.get(number)?;
        if inode.is_directory() { Ok(inode) } else { Err(FilesError::NotADirectory) }
    }

    /// A directory in which a name can be made.
    fn linked_directory(&self, number: u64) -> Result<Inode> {
        let inode = self.directory(number)?;
        if inode.links == 0 { Err(FilesError::NotFound) } else { Ok(inode) }
    }

    fn find(&self, number: u64, directory: &Inode, name: &[u8]) -> Result<Option<Placed>> {
        self.directories.find(&self.inodes, number, directory, name)
    }

    fn existing(&self, number: u64, directory: &Inode, name: &[u8]) -> Result<Placed> {
        self.find(number, directory, name)?.ok_or(FilesError::NotFound)
    }

    /// Finds the inode of a name in a directory.
    ///
    /// # Errors
    /// [`FilesError::NotFound`], [`FilesError::NotADirectory`], [`FilesError::NameTooLong`], [`FilesError::Stale`],
    /// [`FilesError::Pool`].
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Result<(u64, Status)> {
        let _shared = self.shared()?;
        check_name(name)?;
        let parent = self.directory(directory)?;
        let (_, entry) = self.existing(directory, &parent, name)?;
        Ok((entry.inode, Status::from(&self.inodes.get(entry.inode)?)))
    }

    /// [`Files::lookup`] that also holds the inode ([`Files::hold`]).
    pub(crate) fn lookup_and_hold(&self, directory: u64, name: &[u8]) -> Result<(u64, Status)> {
        let _shared = self.shared()?;
        check_name(name)?;
        let parent = self.directory(directory)?;
        let (_, entry) = self.existing(directory, &parent, name)?;
        let status = Status::from(&self.inodes.get(entry.inode)?);
        self.hold(entry.inode);
        Ok((entry.inode, status))
    }

    /// The directory that has a directory.
    ///
    /// # Errors
    /// [`FilesError::Stale`], [`FilesError::NotADirectory`], [`FilesError::Pool`].
    pub fn parent(&self, directory: u64) -> Result<u64> {
        let _shared = self.shared()?;
        Ok(self.directory(directory)?.parent)
    }

    /// Makes an empty file, directory, pipe, socket or device. Returns its inode.
    ///
    /// # Errors
    /// [`FilesError::Exists`], [`FilesError::NotADirectory`], [`FilesError::NameTooLong`], [`FilesError::Invalid`],
    /// [`FilesError::NotFound`] in a directory that was removed, [`FilesError::TooManyFiles`], [`FilesError::TooManyLinks`],
    /// [`FilesError::ReadOnly`], [`FilesError::Pool`].
    pub fn create(&self, directory: u64, name: &[u8], attributes: &Attributes) -> Result<(u64, Status)> {
        self.make(directory, name, attributes, b"", false)
    }

    /// Makes a symbolic link. Returns its inode.
    ///
    /// # Errors
    /// The errors of [`Files::create`].
    pub fn symlink(
        &self,
        directory: u64,
        name: &[u8],
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<(u64, Status)> {
        let attributes = link_attributes(target, uid, gid)?;
        self.make(directory, name, &attributes, target, false)
    }

    /// Makes a file with these bytes; also holds it if `hold`.
    pub(crate) fn make(
        &self,
        directory: u64,
        name: &[u8],
        made: &Attributes,
        bytes: &[u8],
        hold: bool,
    ) -> Result<(u64, Status)> {
        check_name(name)?;
        let kind = made.mode & libc::S_IFMT;
        let kinds = [libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK, libc::S_IFIFO, libc::S_IFSOCK];
        if !kinds.contains(&kind) && ![libc::S_IFCHR, libc::S_IFBLK].contains(&kind) {
            return Err(FilesError::Invalid("the mode has no type of a file"));
        }
        self.change(|change| {
            let mut parent = self.linked_directory(directory)?;
            if self.find(directory, &parent, name)?.is_some() {
                return Err(FilesError::Exists);
            }
            let mut inode = made.inode(&parent, directory);
            if !bytes.is_empty() {
                self.put_bytes(change, &mut inode, 0, bytes)?;
                inode.size = bytes.len() as u64;
            }
            let number = self.inodes.alloc(change, &inode)?;
            if inode.is_directory() {
                parent.links = more_links(parent.links)?;
            }
            let entry = Entry { inode: number, kind, name: name.to_vec() };
            self.add(change, directory, &mut parent, &entry)?;
            let status = Status::from(&self.inodes.get(number)?);
            if hold {
                self.hold(number);
            }
            Ok((number, status))
        })
    }

    fn add(&self, change: &mut Change<'_>, number: u64, directory: &mut Inode, entry: &Entry) -> Result<()> {
        self.directories.add(&self.inodes, change, number, directory, entry)?;
        (directory.mtime, directory.ctime) = (now(), now());
        self.inodes.put(change, number, directory)
    }

    fn remove(
        &self,
        change: &mut Change<'_>,
        number: u64,
        directory: &mut Inode,
        placed: &Placed,
    ) -> Result<()> {
        self.directories.remove(&self.inodes, change, number, directory, placed)?;
        (directory.mtime, directory.ctime) = (now(), now());
        self.inodes.put(change, number, directory)
    }

    /// Gives a file another name. Returns its attributes.
    ///
    /// # Errors
    /// [`FilesError::Exists`], [`FilesError::NotADirectory`]; [`FilesError::Invalid`] for a directory;
    /// [`FilesError::NotFound`] for a file without a name; [`FilesError::TooManyLinks`]; the errors of [`Files::create`].
    pub fn link(&self, number: u64, directory: u64, name: &[u8]) -> Result<Status> {
        check_name(name)?;
        self.change(|change| {
            let mut inode = self.inodes.get(number)?;
            if inode.is_directory() {
                return Err(FilesError::Invalid("a directory has one name only"));
            }
            if inode.links == 0 {
                return Err(FilesError::NotFound);
            }
            let mut parent = self.linked_directory(directory)?;
            if self.find(directory, &parent, name)?.is_some() {
                return Err(FilesError::Exists);
            }
            inode.links = more_links(inode.links)?;
            inode.ctime = now();
            self.inodes.put(change, number, &inode)?;
            let entry = Entry { inode: number, kind: inode.mode & libc::S_IFMT, name: name.to_vec() };
            self.add(change, directory, &mut parent, &entry)?;
            Ok(Status::from(&inode))
        })
    }

    /// Removes a name of a file. The file is removed with its last name, or when nobody holds it any more.
    ///
    /// # Errors
    /// [`FilesError::NotFound`], [`FilesError::NotADirectory`], [`FilesError::IsADirectory`], [`FilesError::ReadOnly`],
    /// [`FilesError::Pool`].
    pub fn unlink(&self, directory: u64, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.change(|change| {
            let mut parent = self.directory(directory)?;
            let placed = self.existing(directory, &parent, name)?;
            if self.inodes.get(placed.1.inode)?.is_directory() {
                return Err(FilesError::IsADirectory);
            }
            self.remove(change, directory, &mut parent, &placed)?;
            self.drop_link(change, placed.1.inode)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FilesError::NotEmpty`], [`FilesError::NotFound`], [`FilesError::NotADirectory`], [`FilesError::ReadOnly`],
    /// [`FilesError::Pool`].
    pub fn remove_directory(&self, directory: u64, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.change(|change| {
            let mut parent = self.directory(directory)?;
            let placed = self.existing(directory, &parent, name)?;
            let removed = self.directory(placed.1.inode)?;
            if removed.entries > 0 {
                return Err(FilesError::NotEmpty);
            }
            parent.links = parent.links.saturating_sub(1);
            self.remove(change, directory, &mut parent, &placed)?;
            self.drop_link(change, placed.1.inode)
        })
    }

    /// Takes one name from a file whose entry is gone; an empty directory loses all of its links.
    fn drop_link(&self, change: &mut Change<'_>, number: u64) -> Result<()> {
        let mut inode = self.inodes.get(number)?;
        inode.links = if inode.is_directory() { 0 } else { inode.links.saturating_sub(1) };
        inode.ctime = now();
        if inode.links > 0 {
            return self.inodes.put(change, number, &inode);
        }
        self.directories.removed(number);
        if self.is_held(number) {
            self.inodes.orphan(change, number, &mut inode)
        } else {
            self.inodes.free(change, number, &inode)
        }
    }

    /// Moves an entry to another name or directory.
    ///
    /// # Errors
    /// [`FilesError::NotFound`], [`FilesError::NotADirectory`], [`FilesError::IsADirectory`], [`FilesError::NotEmpty`];
    /// [`FilesError::Exists`] with [`Replace::No`]; [`FilesError::Invalid`] for a directory that would become part of itself;
    /// the errors of [`Files::create`].
    pub fn rename(&self, from: u64, name: &[u8], to: u64, new: &[u8], replace: Replace) -> Result<()> {
        check_name(name)?;
        check_name(new)?;
        self.change(|change| {
            let source = self.directory(from)?;
            let moved = self.existing(from, &source, name)?;
            let target = self.find(to, &self.linked_directory(to)?, new)?;
            self.ensure_outside(&moved.1, to)?;
            match (target, replace) {
                (Some(_), Replace::No) => Err(FilesError::Exists),
                (None, Replace::Exchange) => Err(FilesError::NotFound),
                // Two names of one file stay as they are.
                (Some(target), _) if target.1.inode == moved.1.inode => Ok(()),
                (Some(target), Replace::Exchange) => {
                    self.ensure_outside(&target.1, from)?;
                    self.exchange(change, (from, &moved), (to, &target))
                }
                (Some(target), Replace::Yes) => {
                    self.clear_target(change, to, &moved.1, &target)?;
                    self.move_entry(change, from, &moved, to, new)
                }
                (None, _) => self.move_entry(change, from, &moved, to, new),
            }
        })
    }

    /// Checks that a directory does not become part of itself.
    fn ensure_outside(&self, moved: &Entry, to: u64) -> Result<()> {
        if moved.kind != libc::S_IFDIR {
            return Ok(());
        }
        let mut at = to;
        for _ in 0..=self.inodes.used()? {
            if at == moved.inode {
                return Err(FilesError::Invalid("a directory cannot become part of itself"));
            }
            if at == TOP {
                return Ok(());
            }
            at = self.directory(at)?.parent;
        }
        Err(FilesError::Damaged("directories have each other".into()))
    }

    /// Removes the entry that a rename replaces.
    fn clear_target(&self, change: &mut Change<'_>, to: u64, moved: &Entry, target: &Placed) -> Result<()> {
        let replaced = self.inodes.get(target.1.inode)?;
        match (moved.kind == libc::S_IFDIR, replaced.is_directory()) {
            (true, false) => return Err(FilesError::NotADirectory),
            (false, true) => return Err(FilesError::IsADirectory),
            (true, true) if replaced.entries > 0 => return Err(FilesError::NotEmpty),
            _ => {}
        }
        let mut directory = self.directory(to)?;
        if replaced.is_directory() {
            directory.links = directory.links.saturating_sub(1);
        }
        self.remove(change, to, &mut directory, target)?;
        self.drop_link(change, target.1.inode)
    }

    fn move_entry(
        &self,
        change: &mut Change<'_>,
        from: u64,
        moved: &Placed,
        to: u64,
        new: &[u8],
    ) -> Result<()> {
        let entry = Entry { name: new.to_vec(), ..moved.1.clone() };
        let mut inode = self.inodes.get(entry.inode)?;
        let crosses = inode.is_directory() && from != to;
        let mut directory = self.directory(to)?;
        if crosses {
            directory.links = more_links(directory.links)?;
            inode.parent = to;
        }
        self.add(change, to, &mut directory, &entry)?;
        let mut directory = self.directory(from)?;
        if crosses {
            directory.links = directory.links.saturating_sub(1);
        }
        self.remove(change, from, &mut directory, moved)?;
        inode.ctime = now();
        self.inodes.put(change, entry.inode, &inode)
    }

    /// Exchanges the files of two entries.
    fn exchange(&self, change: &mut Change<'_>, one: (u64, &Placed), two: (u64, &Placed)) -> Result<()> {
        for ((number, placed), (_, other)) in [(one, two), (two, one)] {
            let (place, entry) = placed;
            let entry = Entry { name: entry.name.clone(), ..other.1.clone() };
            let mut directory = self.directory(number)?;
            self.directories.replace(&self.inodes, change, &directory, &(*place, entry))?;
            let is_directory = |kind: u32| u32::from(kind == libc::S_IFDIR);
            if one.0 != two.0 {
                let left = directory.links.saturating_sub(is_directory(placed.1.kind));
                directory.links = left + is_directory(other.1.kind);
            }
            (directory.mtime, directory.ctime) = (now(), now());
            self.inodes.put(change, number, &directory)?;
        }
        for (parent, moved) in [(two.0, &one.1.1), (one.0, &two.1.1)] {
            let mut inode = self.inodes.get(moved.inode)?;
            if inode.is_directory() {
                inode.parent = parent;
            }
            inode.ctime = now();
            self.inodes.put(change, moved.inode, &inode)?;
        }
        Ok(())
    }

    /// Calls `each` with the entries of a directory, from `first` on (0, or [`DirectoryEntry::next`]), until it returns `false`.
    /// An entry keeps its place as long as it exists, so a listing in parts shows each entry once.
    ///
    /// # Errors
    /// [`FilesError::NotADirectory`], [`FilesError::Stale`], [`FilesError::Pool`].
    pub fn list(
        &self,
        directory: u64,
        first: u64,
        each: &mut dyn FnMut(DirectoryEntry) -> bool,
    ) -> Result<()> {
        let _shared = self.shared()?;
        let inode = self.directory(directory)?;
        directory::for_each(&self.inodes, &inode, first, &mut |place, entry| {
            entry.is_none_or(|Entry { inode, kind, name }| {
                each(DirectoryEntry { next: place + 1, inode, kind, name })
            })
        })
    }
}

/// Attributes of a symbolic link with this target.
pub(crate) fn link_attributes(target: &[u8], uid: u32, gid: u32) -> Result<Attributes> {
    if target.is_empty() {
        return Err(FilesError::NotFound);
    }
    if target.len() > LINK_TARGET {
        return Err(FilesError::NameTooLong { bytes: target.len(), most: LINK_TARGET });
    }
    Ok(Attributes { mode: libc::S_IFLNK | 0o777, uid, gid, rdev: 0 })
}

fn more_links(links: u32) -> Result<u32> {
    if links >= LINKS { Err(FilesError::TooManyLinks) } else { Ok(links + 1) }
}
