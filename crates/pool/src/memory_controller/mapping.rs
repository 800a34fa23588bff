//! A file of byte-addressable memory in the address space.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use crate::process::Owner;

/// `f_type` of the file systems whose files are memory and nothing else.
const MEMORY_FILE_SYSTEMS: [i64; 2] = [0x0102_1994, 0x9584_58F6];

/// The memory behind a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Persistent memory, mapped past the page cache (DAX): a line that is written back survives a power cut.
    Dax,
    /// Ordinary memory of a file in `/dev/shm`, of a memfd or of hugetlbfs, which emulates persistent memory: it survives
    /// the process, but no power cut.
    Emulated,
}

impl MemoryKind {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dax => "dax",
            Self::Emulated => "emulated",
        }
    }
}

/// A shared mapping of a whole file. Dropping it unmaps it.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut u8,
    len: usize,
    owner: Owner,
}

// SAFETY: a mapping is an address range; those that access its bytes know the rules.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file at `base`, or anywhere. A child made by `fork` does not get the mapping.
    ///
    /// # Errors
    /// `AddrInUse` if something else is mapped there; `Unsupported` for a file that a page cache is in front of; the
    /// kernel's error.
    pub(super) fn of_file(file: &File, len: usize, base: Option<usize>) -> io::Result<(Self, MemoryKind)> {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let (start, kind) = map_as_memory(file, len, base, writable)?;
        let mapping = Self { start, len, owner: Owner::here()? };
        if base.is_some_and(|base| base != start.addr()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        mapping.advise(libc::MADV_DONTFORK)?;
        Ok((mapping, kind))
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn address(&self) -> usize {
        self.start.addr()
    }

    /// Gives the kernel this advice (`MADV_*`), which must not change any contents.
    pub(super) fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping, and the advice changes no contents.
        match unsafe { libc::madvise(self.start.cast(), self.len, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A forked child does not have the mapping, and may have mapped something else there.
        if self.owner.is_here() {
            // SAFETY: `of_file` mapped the range, and it is unmapped once. The documentation of the controller says that
            // pointers into it become invalid.
            unsafe { libc::munmap(self.start.cast(), self.len) };
        }
    }
}

/// Finds out the kind of memory that a file is, which need not be writable.
///
/// # Errors
/// As for [`Mapping::of_file`].
pub(super) fn kind_of(file: &File) -> io::Result<MemoryKind> {
    let len = deepram_linux::dirty::page_bytes();
    let (start, kind) = map_as_memory(file, len, None, libc::PROT_READ)?;
    drop(Mapping { start, len, owner: Owner::here()? });
    Ok(kind)
}

fn map_as_memory(
    file: &File,
    len: usize,
    base: Option<usize>,
    protection: i32,
) -> io::Result<(*mut u8, MemoryKind)> {
    match map(file, len, base, protection, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
        Ok(start) => return Ok((start, MemoryKind::Dax)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {}
        Err(error) => return Err(error),
    }
    let kind = rustix::fs::fstatfs(file)?.f_type;
    if !MEMORY_FILE_SYSTEMS.contains(&(kind as i64)) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system keeps it in a page cache, and flushed lines would not be durable; give a file on a file \
             system mounted with -o dax, or in /dev/shm to emulate persistent memory",
        ));
    }
    Ok((map(file, len, base, protection, libc::MAP_SHARED)?, MemoryKind::Emulated))
}

fn map(file: &File, len: usize, base: Option<usize>, protection: i32, flags: i32) -> io::Result<*mut u8> {
    let fixed = if base.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
    let want = ptr::with_exposed_provenance_mut(base.unwrap_or(0));
    // SAFETY: a new mapping, which never replaces an existing one.
    let start = unsafe { libc::mmap(want, len, protection, flags | fixed, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        let is_taken = error.raw_os_error() == Some(libc::EEXIST);
        return Err(if is_taken { io::ErrorKind::AddrInUse.into() } else { error });
    }
    Ok(start.cast())
}
