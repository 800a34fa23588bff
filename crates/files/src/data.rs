//! The contents of files.

use deepram_core::units::PAGE_BYTES;
use deepram_pool::{Addr, PoolError};

use crate::attributes::now;
use crate::error::{FilesError, Result};
use crate::files::Files;
use crate::layout::{Inode, touched};
use crate::memory::{Change, UNIT};
use crate::tree::{self, MOST_BYTES};

/// A part of an access that lies in one run of neighbouring pages, or in a run of holes.
struct Part {
    /// Address of the first byte; none: a hole.
    addr: Option<Addr>,
    len: usize,
}

/// Divides `len` bytes at `offset` of a file with these pages.
fn parts(pages: &[u64], offset: u64, len: usize) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut done, mut before) = (0, None);
    for &page in pages {
        let within = (offset + done as u64) % PAGE_BYTES;
        let n = ((PAGE_BYTES - within) as usize).min(len - done);
        done += n;
        let follows = before.is_some_and(|before| match before {
            0 => page == 0,
            _ => page == before + PAGE_BYTES,
        });
        match parts.last_mut() {
            Some(part) if follows => part.len += n,
            _ => {
                let addr = (page != 0).then(|| Addr::from_raw(page).offset_by(within)).transpose();
                parts.push(Part { addr: addr.map_err(PoolError::from)?, len: n });
            }
        }
        before = Some(page);
    }
    Ok(parts)
}

/// First page of a range of bytes, and number of pages.
fn pages_of(offset: u64, len: u64) -> (u64, u64) {
    let first = offset / PAGE_BYTES;
    (first, (offset + len).div_ceil(PAGE_BYTES) - first)
}

fn ensure_file(inode: &Inode) -> Result<()> {
    if inode.is_directory() {
        return Err(FilesError::IsADirectory);
    }
    if inode.is_file() { Ok(()) } else { Err(FilesError::Invalid("the file is not a regular file")) }
}

impl Files {
    /// Reads up to `len` bytes at `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// [`FilesError::Stale`], [`FilesError::Pool`], [`FilesError::IsADirectory`]; [`FilesError::Invalid`] for what has no
    /// contents.
    pub fn read(&self, number: u64, offset: u64, len: usize) -> Result<Vec<u8>> {
        let _shared = self.shared()?;
        let inode = self.inodes.get(number)?;
        ensure_file(&inode)?;
        self.read_inode(&inode, offset, len)
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    /// [`FilesError::Stale`], [`FilesError::Pool`]; [`FilesError::Invalid`] for anything but a symbolic link.
    pub fn read_link(&self, number: u64) -> Result<Vec<u8>> {
        let _shared = self.shared()?;
        let inode = self.inodes.get(number)?;
        if inode.mode & libc::S_IFMT != libc::S_IFLNK {
            return Err(FilesError::Invalid("the file is not a symbolic link"));
        }
        self.read_inode(&inode, 0, inode.size as usize)
    }

    fn read_inode(&self, inode: &Inode, offset: u64, len: usize) -> Result<Vec<u8>> {
        let len = len.min(usize::try_from(inode.size.saturating_sub(offset)).unwrap_or(usize::MAX));
        if len == 0 {
            return Ok(Vec::new());
        }
        // The last page of a file is whole, so a read at its end may be one of whole units.
        let whole = len.next_multiple_of(UNIT);
        let read = if offset.is_multiple_of(UNIT as u64) { whole } else { len };
        let mut bytes = vec![0; read];
        let (first, count) = pages_of(offset, read as u64);
        let pages = tree::pages(&self.inodes.memory, inode, first, count)?;
        let mut done = 0;
        for part in parts(&pages, offset, read)? {
            if let Some(addr) = part.addr {
                self.inodes.memory.read_many(addr, &mut bytes[done..done + part.len])?;
            }
            done += part.len;
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Writes bytes at `offset`, and extends the file if they end beyond its end. Changes the times of the file.
    ///
    /// # Errors
    /// [`FilesError::Stale`], [`FilesError::ReadOnly`], [`FilesError::TooLarge`], [`FilesError::IsADirectory`],
    /// [`FilesError::Invalid`]; [`FilesError::Pool`], for example for a full device: bytes before the old end of the file may
    /// have been written.
    pub fn write(&self, number: u64, offset: u64, from: &[u8]) -> Result<()> {
        self.write_at(number, offset, from, true)
    }

    /// [`Files::write`], which changes the times if `touch`.
    pub(crate) fn write_at(&self, number: u64, offset: u64, from: &[u8], touch: bool) -> Result<()> {
        if !self.is_writable() {
            return Err(FilesError::ReadOnly);
        }
        let end = offset.checked_add(from.len() as u64).filter(|&end| end <= MOST_BYTES);
        let end = end.ok_or(FilesError::TooLarge { most: MOST_BYTES })?;
        if from.is_empty() || self.overwrite(number, offset, from, touch)? {
            return Ok(());
        }
        self.change(|change| {
            let mut inode = self.inodes.get(number)?;
            ensure_file(&inode)?;
            self.put_bytes(change, &mut inode, offset, from)?;
            inode.size = inode.size.max(end);
            if touch {
                (inode.mtime, inode.ctime) = (now(), now());
            }
            self.inodes.put(change, number, &inode)
        })
    }

    /// Writes bytes if they replace others, which changes no structure but times. Returns whether it has.
    fn overwrite(&self, number: u64, offset: u64, from: &[u8], touch: bool) -> Result<bool> {
        let _shared = self.shared()?;
        let memory = &self.inodes.memory;
        let inode = self.inodes.get(number)?;
        ensure_file(&inode)?;
        let len = from.len() as u64;
        if offset + len > inode.size {
            return Ok(false);
        }
        let (first, count) = pages_of(offset, len);
        let pages = tree::pages(memory, &inode, first, count)?;
        if pages.contains(&0) {
            return Ok(false);
        }
        let mut done = 0;
        for Part { addr, len } in parts(&pages, offset, from.len())? {
            addr.map_or(Ok(()), |addr| memory.write(addr, &from[done..done + len]))?;
            done += len;
        }
        if touch {
            let (at, times) = touched(now());
            memory.write(self.inodes.address(number)?.offset_by(at).map_err(PoolError::from)?, &times)?;
        }
        self.changed();
        Ok(true)
    }

    /// Writes bytes into a file's pages, which are allocated; extends no file.
    pub(crate) fn put_bytes(
        &self,
        change: &mut Change<'_>,
        inode: &mut Inode,
        offset: u64,
        from: &[u8],
    ) -> Result<()> {
        if offset > inode.size {
            self.clear(change, inode, inode.size, offset)?;
        }
        let (first, count) = pages_of(offset, from.len() as u64);
        let pages = tree::map(change, inode, first, count)?;
        let mut done = 0;
        for Part { addr, len } in parts(&pages, offset, from.len())? {
            addr.map_or(Ok(()), |addr| self.inodes.memory.write(addr, &from[done..done + len]))?;
            done += len;
        }
        Ok(())
    }

    /// Fills the bytes from `from` up to `to`, or to the end of the page of `from`, with zeros where that page is no hole. The
    /// bytes of a page beyond the end of the file are anything until then.
    fn clear(&self, change: &mut Change<'_>, inode: &Inode, from: u64, to: u64) -> Result<()> {
        let end = ((from / PAGE_BYTES + 1) * PAGE_BYTES).min(to);
        let page = tree::pages(&self.inodes.memory, inode, from / PAGE_BYTES, 1)?[0];
        if from >= end || page == 0 {
            return Ok(());
        }
        let addr = Addr::from_raw(page).offset_by(from % PAGE_BYTES).map_err(PoolError::from)?;
        change.write(addr, &vec![0; (end - from) as usize])
    }

    /// Cuts or extends a file.
    pub(crate) fn resize(&self, change: &mut Change<'_>, inode: &mut Inode, size: u64) -> Result<()> {
        ensure_file(inode)?;
        if size > MOST_BYTES {
            return Err(FilesError::TooLarge { most: MOST_BYTES });
        }
        if size > inode.size {
            self.clear(change, inode, inode.size, size)?;
        } else {
            tree::cut(change, inode, size.div_ceil(PAGE_BYTES))?;
        }
        inode.size = size;
        (inode.mtime, inode.ctime) = (now(), now());
        Ok(())
    }

    /// Reserves memory of the pool for a range of a file, which is extended to its end.
    ///
    /// # Errors
    /// The errors of [`Files::write`].
    pub fn allocate(&self, number: u64, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|&end| end <= MOST_BYTES);
        let end = end.ok_or(FilesError::TooLarge { most: MOST_BYTES })?;
        self.change(|change| {
            let mut inode = self.inodes.get(number)?;
            ensure_file(&inode)?;
            if end > inode.size {
                self.clear(change, &inode, inode.size, end)?;
            }
            let (first, count) = pages_of(offset, len);
            tree::map(change, &mut inode, first, count)?;
            inode.size = inode.size.max(end);
            (inode.mtime, inode.ctime) = (now(), now());
            self.inodes.put(change, number, &inode)
        })
    }

    /// Fills a range with zeros and frees its pages where it has whole ones; the size stays.
    ///
    /// # Errors
    /// The errors of [`Files::write`].
    pub fn punch_hole(&self, number: u64, offset: u64, len: u64) -> Result<()> {
        self.change(|change| {
            let mut inode = self.inodes.get(number)?;
            ensure_file(&inode)?;
            let end = offset.saturating_add(len).min(inode.size);
            if offset < end {
                // The bytes of the last page beyond the end of the file count as whole.
                let first = offset.div_ceil(PAGE_BYTES);
                let last = if end == inode.size { end.div_ceil(PAGE_BYTES) } else { end / PAGE_BYTES };
                if offset < first * PAGE_BYTES {
                    self.clear(change, &inode, offset, end)?;
                }
                if first < last {
                    tree::punch(change, &mut inode, first, last - first)?;
                }
                if first <= last && last * PAGE_BYTES < end {
                    self.clear(change, &inode, last * PAGE_BYTES, end)?;
                }
            }
            (inode.mtime, inode.ctime) = (now(), now());
            self.inodes.put(change, number, &inode)
        })
    }
}
