//! Files that a forked child closes at once. A lock on a file lasts as long as any process has the descriptor, so the
//! lock must not survive in a child of the process that opened the file.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr};

use crate::process::Owner;

const NONE: RawFd = -1;

/// A list entry for a descriptor. Entries are never freed, but reused.
#[derive(Debug)]
struct FileEntry {
    fd: AtomicI32,
    next: Option<&'static FileEntry>,
}

/// The list of entries, which only grows: a child reads it without a lock, because another thread of its parent could
/// have held that lock.
static FIRST: AtomicPtr<FileEntry> = AtomicPtr::new(ptr::null_mut());
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// An open file of this process. In a forked child the file is closed, and dropping this value does nothing.
#[derive(Debug)]
pub struct ProcessFile {
    fd: ManuallyDrop<OwnedFd>,
    entry: &'static FileEntry,
    owner: Owner,
}

impl ProcessFile {
    /// Takes ownership of a descriptor.
    ///
    /// # Errors
    /// No memory is available for the fork handler.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        let owner = Owner::here()?;
        if !REGISTERED.load(Acquire) {
            // Two threads may both register the handler: its second call finds nothing left to close.
            // SAFETY: the handler only calls functions that a forked child of a process with threads may call.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            REGISTERED.store(true, Release);
        }
        let raw = fd.as_raw_fd();
        let taken = entries().find(|entry| entry.fd.compare_exchange(NONE, raw, AcqRel, Relaxed).is_ok());
        Ok(Self { fd: ManuallyDrop::new(fd), entry: taken.unwrap_or_else(|| add(raw)), owner })
    }

    /// Releases the file: the descriptor stays open, but can neither be read nor written. If no descriptor is free
    /// for that, the file stays open until this value is dropped.
    pub(super) fn detach(&self) {
        if let Ok(nothing) = std::fs::File::open("/dev/null") {
            // SAFETY: the number stays open and owned by `self`; the file that it refers to is replaced atomically.
            unsafe { libc::dup3(nothing.as_raw_fd(), self.fd.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }
}

impl AsFd for ProcessFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ProcessFile {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // The descriptor is closed already, and its number may refer to another file.
            return;
        }
        // In this order, a child that is forked meanwhile neither keeps a copy nor closes another file.
        self.detach();
        self.entry.fd.store(NONE, Release);
        // SAFETY: dropped only here, and not used any more.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

fn first() -> Option<&'static FileEntry> {
    // SAFETY: null, or an entry that is never freed and of which only the number changes.
    unsafe { FIRST.load(Acquire).as_ref() }
}

fn entries() -> impl Iterator<Item = &'static FileEntry> {
    std::iter::successors(first(), |entry| entry.next)
}

fn add(fd: RawFd) -> &'static FileEntry {
    loop {
        let next = first();
        let before = next.map_or(ptr::null_mut(), |entry| ptr::from_ref(entry).cast_mut());
        let entry = Box::into_raw(Box::new(FileEntry { fd: AtomicI32::new(fd), next }));
        match FIRST.compare_exchange(before, entry, AcqRel, Acquire) {
            // SAFETY: made above and never freed.
            Ok(_) => return unsafe { &*entry },
            // SAFETY: made above, and no other thread has seen it.
            Err(_) => drop(unsafe { Box::from_raw(entry) }),
        }
    }
}

/// Closes the parent's files in a forked child, which has only this thread.
extern "C" fn close_all() {
    for entry in entries() {
        let fd = entry.fd.swap(NONE, AcqRel);
        if fd != NONE {
            // SAFETY: the child's copy of the descriptor, which the child does not use ([`Owner`]).
            unsafe { libc::close(fd) };
        }
    }
}
