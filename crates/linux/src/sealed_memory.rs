//! Memory files of a fixed size in which a process publishes numbers to others.
//!
//! The memory begins with a magic number, a fingerprint of its layout, and its size: a program of another version
//! detects the difference instead of misreading the values. The size is sealed, so that a process that has mapped the
//! file cannot lose the memory. Locks on single bytes of the file tell which processes live: the kernel releases them
//! when a process ends, and when it closes any of its descriptors of the file.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::descriptors::open_high;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What a memory file contains.
///
/// # Safety
/// Any bytes are a valid value, and other processes may change them at any time: the type consists of atomics.
pub unsafe trait Shared: Sized + 'static {
    /// Name of the file, as `/proc/PID/fd` shows it.
    const NAME: &'static str;
    /// The first words: a magic number, the fingerprint of the layout, the size.
    const HEADER: [u64; 3];
    /// What the file is, for messages.
    const WHAT: &'static str;
    /// Index of the byte that the creator of the file has locked.
    const CREATOR_BYTE: usize;
    /// The first words of the memory.
    fn header(&self) -> &[AtomicU64; 3];
}

/// FNV-1a hash of the names of the numbers in a memory file, and of their count.
#[must_use]
pub const fn fingerprint(names: &str, count: usize) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ count as u64;
    let mut at = 0;
    while at < names.len() {
        hash = (hash ^ names.as_bytes()[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// The label that a published number's documentation gives: the text without its leading space and final full stop.
#[must_use]
pub fn label(doc: &'static str) -> &'static str {
    doc.trim().trim_end_matches('.')
}

/// A mapped memory file. Dropping it removes the mapping.
#[derive(Debug)]
pub struct SealedMemory<T: Shared>(NonNull<T>);

// SAFETY: the only access through it is to atomics.
unsafe impl<T: Shared> Send for SealedMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for SealedMemory<T> {}

impl<T: Shared> SealedMemory<T> {
    /// Creates a memory file of zeros, and calls `init` before other processes accept it. The descriptor has a high
    /// number and is marked as the library's own.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn create(init: impl FnOnce(&T)) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = open_high(|| rustix::fs::memfd_create(T::NAME, flags))?;
        rustix::fs::ftruncate(&file, size_of::<T>() as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let memory = Self::map(file.as_fd(), true)?;
        init(&memory);
        for (word, value) in memory.header().iter().zip(T::HEADER) {
            word.store(value, Relaxed);
        }
        Ok((memory, file))
    }

    /// Maps a memory file and checks it.
    ///
    /// # Errors
    /// The file cannot be mapped, or is none of this version.
    pub fn open(file: BorrowedFd<'_>, writable: bool) -> io::Result<Self> {
        let size = rustix::fs::fstat(file)?.st_size.cast_unsigned();
        if size != size_of::<T>() as u64 {
            return Err(wrong::<T>(&format!("{size} bytes, not {}", size_of::<T>())));
        }
        if !rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(wrong::<T>("its size is not sealed"));
        }
        let memory = Self::map(file, writable)?;
        let found = memory.header().each_ref().map(|number| number.load(Relaxed));
        if found == T::HEADER { Ok(memory) } else { Err(wrong::<T>("its header differs")) }
    }

    /// Keeps the mapping until the process ends.
    #[must_use]
    pub fn leak(self) -> &'static T {
        let at = self.0;
        std::mem::forget(self);
        // SAFETY: mapped and never unmapped; a value of `T` is valid whatever its bytes are.
        unsafe { at.as_ref() }
    }

    /// Maps the whole file. By number, because a library may interpose `mmap` itself.
    fn map(file: BorrowedFd<'_>, writable: bool) -> io::Result<Self> {
        let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // All arguments are as wide as a register: the upper half of a narrower one would be undefined.
        let (at, len, offset) = (0_usize, size_of::<T>(), 0_usize);
        let [prot, flags, fd] = [prot, libc::MAP_SHARED, file.as_raw_fd()].map(i64::from);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, fd, offset) };
        if at == -1 {
            return Err(io::Error::last_os_error());
        }
        let at = std::ptr::with_exposed_provenance_mut(at as usize);
        NonNull::new(at).map(Self).ok_or_else(|| io::Error::other("the kernel mapped it at address 0"))
    }
}

impl<T: Shared> Deref for SealedMemory<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped until `self` is dropped, of a size that is sealed; a value of `T` is valid whatever its bytes
        // are. A view is only read: its mapping allows no stores.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Shared> Drop for SealedMemory<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped once; no reference outlives `self`.
        unsafe { libc::syscall(libc::SYS_munmap, self.0.as_ptr(), size_of::<T>()) };
    }
}

fn wrong<T: Shared>(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not {} of this version: {why}", T::WHAT))
}

/// A read-only view of the memory file of another process.
#[derive(Debug)]
pub struct SealedView<T: Shared> {
    memory: SealedMemory<T>,
    file: File,
}

impl<T: Shared> SealedView<T> {
    /// Opens the memory file, given by its path in `/proc/PID/fd`.
    ///
    /// # Errors
    /// The file cannot be opened and mapped, or is none of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { memory: SealedMemory::open(file.as_fd(), false)?, file })
    }

    /// The process that created the file, as long as it lives; 0 if it has no number in this PID namespace. `None` in the
    /// creator itself.
    #[must_use]
    pub fn creator(&self) -> Option<u32> {
        self.holder(T::CREATOR_BYTE)
    }

    /// The process that has locked this byte ([`lock_holder`]).
    #[must_use]
    pub fn holder(&self, byte: usize) -> Option<u32> {
        lock_holder(self.file.as_raw_fd(), byte)
    }
}

impl<T: Shared> Deref for SealedView<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.memory
    }
}

fn byte_lock(byte: usize, kind: i32) -> libc::flock {
    let whence = libc::SEEK_SET as i16;
    libc::flock { l_type: kind as i16, l_whence: whence, l_start: byte as i64, l_len: 1, l_pid: 0 }
}

/// Locks a byte of the file for this process. Returns false if another process has locked it.
pub fn lock_byte(file: RawFd, byte: usize) -> bool {
    set_lock(file, byte, libc::F_WRLCK)
}

/// Unlocks a byte of the file.
pub fn unlock_byte(file: RawFd, byte: usize) {
    set_lock(file, byte, libc::F_UNLCK);
}

fn set_lock(file: RawFd, byte: usize, kind: i32) -> bool {
    let lock = byte_lock(byte, kind);
    // SAFETY: the call reads a lock that lives until it returns.
    unsafe { libc::fcntl(file, libc::F_SETLK, &raw const lock) == 0 }
}

/// The process that has locked a byte of the file, if it is another process; 0 if it has no number in this PID
/// namespace.
#[must_use]
pub fn lock_holder(file: RawFd, byte: usize) -> Option<u32> {
    let mut lock = byte_lock(byte, libc::F_WRLCK);
    // SAFETY: the call reads and stores a lock that lives until it returns.
    let queried = unsafe { libc::fcntl(file, libc::F_GETLK, &raw mut lock) == 0 };
    let locked = queried && i32::from(lock.l_type) != libc::F_UNLCK;
    locked.then(|| u32::try_from(lock.l_pid).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[repr(C)]
    struct Numbers {
        header: [AtomicU64; 3],
        value: AtomicU64,
    }

    // SAFETY: atomics.
    unsafe impl Shared for Numbers {
        const NAME: &'static str = "deepram-test-numbers";
        const HEADER: [u64; 3] = [7, fingerprint("value", 1), size_of::<Self>() as u64];
        const WHAT: &'static str = "numbers";
        const CREATOR_BYTE: usize = 0;

        fn header(&self) -> &[AtomicU64; 3] {
            &self.header
        }
    }

    fn path(number: RawFd) -> std::path::PathBuf {
        format!("/proc/self/fd/{number}").into()
    }

    #[test]
    fn a_view_shows_what_is_stored_and_refuses_other_files() {
        let (memory, file) =
            SealedMemory::<Numbers>::create(|numbers| numbers.value.store(5, Relaxed)).unwrap();
        let path_of_file = path(file.as_raw_fd());
        let view = SealedView::<Numbers>::open(&path_of_file).unwrap();
        assert_eq!(view.value.load(Relaxed), 5);
        memory.value.store(6, Relaxed);
        assert_eq!(view.value.load(Relaxed), 6);
        for (word, right) in memory.header.iter().zip(Numbers::HEADER) {
            word.store(right ^ 1, Relaxed);
            let error = SealedView::<Numbers>::open(&path_of_file).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            word.store(right, Relaxed);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let other = rustix::fs::memfd_create(Numbers::NAME, flags).unwrap();
        for size in [0, 8, size_of::<Numbers>() as u64] {
            rustix::fs::ftruncate(&other, size).unwrap();
            let opened = SealedView::<Numbers>::open(&path(other.as_raw_fd()));
            assert!(opened.is_err(), "{size} bytes that may go away");
        }
        rustix::fs::fcntl_add_seals(&other, SEALS).unwrap();
        assert!(SealedView::<Numbers>::open(&path(other.as_raw_fd())).is_err(), "only zeros");
    }
}
