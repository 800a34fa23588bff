//! Files that go with the process that opened them. A lock on a file lasts as long as any process has the descriptor: a
//! child made by `fork` closes its copy at once.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr};

use crate::process::Owner;

const NONE: RawFd = -1;

/// A place for a descriptor. Places are never freed, but used again.
#[derive(Debug)]
struct Place {
    fd: AtomicI32,
    next: Option<&'static Place>,
}

/// The places, in a list that only grows: a child reads it without a lock, which another thread of its parent could have
/// held.
static FIRST: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// An open file of this process. In a forked child it is closed, and dropping it does nothing.
#[derive(Debug)]
pub struct OwnFile {
    fd: ManuallyDrop<OwnedFd>,
    place: &'static Place,
    owner: Owner,
}

impl OwnFile {
    /// The file behind this descriptor.
    ///
    /// # Errors
    /// There is no memory for what forks need.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        let owner = Owner::here()?;
        if !REGISTERED.load(Acquire) {
            // Two threads may both do it: the second call finds nothing left to close.
            // SAFETY: the handler calls nothing that a child of a process with threads must not call.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            REGISTERED.store(true, Release);
        }
        let raw = fd.as_raw_fd();
        let taken = places().find(|place| place.fd.compare_exchange(NONE, raw, AcqRel, Relaxed).is_ok());
        Ok(Self { fd: ManuallyDrop::new(fd), place: taken.unwrap_or_else(|| add(raw)), owner })
    }

    /// Gives the file up: the descriptor stays open, but can neither be read nor written. Refused only where there is no
    /// descriptor left, and then the file stays open until this is dropped.
    pub(super) fn detach(&self) {
        if let Ok(nothing) = std::fs::File::open("/dev/null") {
            // SAFETY: the number stays open and owned by `self`; what it stands for is replaced at once.
            unsafe { libc::dup3(nothing.as_raw_fd(), self.fd.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }
}

impl AsFd for OwnFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // Closed already: the number may be another file's.
            return;
        }
        // In this order no child that is made meanwhile is left with a copy, nor closes another file.
        self.detach();
        self.place.fd.store(NONE, Release);
        // SAFETY: dropped once, here, and not used any more.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

fn first() -> Option<&'static Place> {
    // SAFETY: null, or a place, which is never freed nor changed but for its number.
    unsafe { FIRST.load(Acquire).as_ref() }
}

fn places() -> impl Iterator<Item = &'static Place> {
    std::iter::successors(first(), |place| place.next)
}

fn add(fd: RawFd) -> &'static Place {
    loop {
        let next = first();
        let before = next.map_or(ptr::null_mut(), |place| ptr::from_ref(place).cast_mut());
        let place = Box::into_raw(Box::new(Place { fd: AtomicI32::new(fd), next }));
        match FIRST.compare_exchange(before, place, AcqRel, Acquire) {
            // SAFETY: just made, and never freed.
            Ok(_) => return unsafe { &*place },
            // SAFETY: just made, and nobody else knows it.
            Err(_) => drop(unsafe { Box::from_raw(place) }),
        }
    }
}

/// In a child, whose only thread this is.
extern "C" fn close_all() {
    for place in places() {
        let fd = place.fd.swap(NONE, AcqRel);
        if fd != NONE {
            // SAFETY: the child's copy, which nothing in the child uses ([`Owner`]).
            unsafe { libc::close(fd) };
        }
    }
}
