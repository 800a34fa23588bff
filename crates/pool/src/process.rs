//! Identifies the process that opened a pool. A child made by `fork` has a copy of every handle of its parent, but
//! none of the threads behind it, so it must not use these handles.

use std::io;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// Size of the smallest mapping, in bytes.
const PAGE: usize = 4096;

/// The generation of this process, in a page that the kernel clears in a child (`MADV_WIPEONFORK`), however the child
/// was made. Null before the first use.
static GENERATION: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// The last generation in use. A child counts on from its parent, so that the generation of an ancestor never occurs
/// again.
static LAST: AtomicU64 = AtomicU64::new(0);

/// This process was forked from the one that opened the pool, and cannot use the inherited handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pool was opened by process {opener}; process {here}, forked from it, cannot use it: open the pool here when \
     process {opener} has closed it or has ended"
)]
pub struct ForkedChild {
    /// The process that opened the pool.
    pub opener: u32,
    /// This process.
    pub here: u32,
}

/// Identity of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    generation: u64,
    pid: u32,
}

impl Owner {
    /// Returns the identity of this process.
    ///
    /// # Errors
    /// No memory is available for a page.
    pub(crate) fn here() -> io::Result<Self> {
        let word = generation_word()?;
        let mut generation = word.load(Relaxed);
        if generation == 0 {
            let new = LAST.fetch_add(1, Relaxed) + 1;
            generation = word.compare_exchange(0, new, Relaxed, Relaxed).map_or_else(|other| other, |_| new);
        }
        Ok(Self { generation, pid: std::process::id() })
    }

    /// Returns whether this process is that one.
    pub(crate) fn is_here(self) -> bool {
        // SAFETY: the page was mapped when `self` was made, and is never unmapped; a child has a copy of the pointer
        // and of the mapping.
        unsafe { GENERATION.load(Acquire).as_ref() }.is_some_and(|word| word.load(Relaxed) == self.generation)
    }

    /// Returns an error in any other process.
    pub(crate) fn check(self) -> Result<(), ForkedChild> {
        if self.is_here() { Ok(()) } else { Err(ForkedChild { opener: self.pid, here: std::process::id() }) }
    }
}

/// Returns the word of [`GENERATION`]. It takes no lock: a child forked while another thread held the lock would wait
/// for ever.
fn generation_word() -> io::Result<&'static AtomicU64> {
    // SAFETY: null, or a page that is never unmapped.
    if let Some(word) = unsafe { GENERATION.load(Acquire).as_ref() } {
        return Ok(word);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping, which replaces none.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: unmaps the page mapped above, which no other thread has seen.
    let unmap = || unsafe { libc::munmap(page, PAGE) };
    // SAFETY: the page was mapped above and holds nothing yet.
    if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        unmap();
        return Err(error);
    }
    let word = match GENERATION.compare_exchange(ptr::null_mut(), page.cast(), AcqRel, Acquire) {
        Ok(_) => page.cast(),
        Err(other) => {
            unmap();
            other
        }
    };
    // SAFETY: a page of this process that is never unmapped, aligned and zero at first.
    Ok(unsafe { &*word })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_another_process_even_with_the_same_number() {
        let owner = Owner::here().unwrap();
        assert_eq!(Owner::here().unwrap(), owner);
        assert!(owner.is_here() && owner.check().is_ok());
        // SAFETY: the child calls no function that takes a lock, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let new = Owner::here();
            let differs = !owner.is_here()
                && owner.check().is_err()
                && new.is_ok_and(|new| new.is_here() && new.generation != owner.generation);
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(!differs)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(owner.is_here());
    }
}
