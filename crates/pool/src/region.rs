//! The mapped region of a pool, and the userfaultfd that watches it.
//!
//! A region is private anonymous memory at a stable address. Its pages are the frames of the DRAM cache: a page is
//! resident or absent, and a resident page is writable or write-protected. All such changes go through this module;
//! [`crate::cache`] decides them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{io, ptr};

use deepram_linux::stage_memory::{self, move_chunk};
use deepram_linux::uffd::{self, Fault, Refusal, Uffd, WatchMode};

/// The unit of copies that must not tear.
const WORD: usize = size_of::<u64>();

/// Reason why a pool cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel has no userfaultfd, or this process may not use it.
    #[error(
        "mapped access needs userfaultfd, which this process may not use ({source}); enable it by \
         one of: `sysctl vm.unprivileged_userfaultfd=1`, the capability CAP_SYS_PTRACE, read and \
         write access to /dev/userfaultfd, or Mapping::UserOnly (system calls on pool memory then \
         fail with EFAULT where it is not resident); read and write work without it"
    )]
    Unavailable {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel is too old for a required feature.
    #[error(
        "mapped access needs the userfaultfd features {needed}, which this kernel lacks: Linux 5.7 or later has them"
    )]
    Features {
        /// Names of the missing features.
        needed: &'static str,
    },
    /// The stable address is taken.
    #[error(
        "the pool's address range {start:#x}..{end:#x} is taken in this process ({source}); open it with another base address"
    )]
    Address {
        /// First address of the range.
        start: usize,
        /// End of the range, exclusive.
        end: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call on the range failed.
    #[error("{what} failed on the pool's address range: {source}")]
    System {
        /// The system call.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The mapped range. Dropping it unmaps the range.
pub(crate) struct Region {
    base: *mut u8,
    len: usize,
    watch: Option<Uffd>,
}

// SAFETY: a region is an address range. Every access to its bytes goes through methods whose callers hold the cache's
// lock, or through raw pointers whose users know the rules.
unsafe impl Send for Region {}
// SAFETY: as above; the methods themselves only make system calls or copy bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes at `base`, or at any address if `None`.
    pub(crate) fn map(base: Option<usize>, len: usize) -> Result<Self, WatchError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let fixed = if base.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let want = base.unwrap_or(0);
        // SAFETY: a new anonymous mapping; MAP_FIXED_NOREPLACE never replaces an existing one.
        let got = unsafe {
            libc::mmap(
                ptr::with_exposed_provenance_mut(want),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | fixed,
                -1,
                0,
            )
        };
        let taken = |source| WatchError::Address { start: want, end: want.saturating_add(len), source };
        if got == libc::MAP_FAILED {
            return Err(taken(io::Error::last_os_error()));
        }
        let region = Self { base: got.cast(), len, watch: None };
        if base.is_some() && got.addr() != want {
            return Err(taken(io::ErrorKind::AddrInUse.into()));
        }
        // With huge pages one fault would bring in 2 MiB. A forked child would see zeros without MADV_DONTFORK.
        region.advise(0, len, libc::MADV_NOHUGEPAGE, "madvise(MADV_NOHUGEPAGE)")?;
        region.advise(0, len, libc::MADV_DONTFORK, "madvise(MADV_DONTFORK)")?;
        Ok(region)
    }

    /// Starts to report absent and write-protected pages through userfaultfd.
    pub(crate) fn watch(&mut self, mode: WatchMode) -> Result<(), WatchError> {
        let watch = Uffd::new(mode).map_err(|refusal| match refusal {
            Refusal::Unavailable(source) => WatchError::Unavailable { source },
            Refusal::Features => WatchError::Features { needed: "write protection (PAGEFAULT_FLAG_WP)" },
        })?;
        watch
            .register(self.address(0), self.len)
            .map_err(|source| WatchError::System { what: "UFFDIO_REGISTER", source })?;
        self.watch = Some(watch);
        Ok(())
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Returns the userfaultfd, if the region is watched.
    pub(crate) fn watcher(&self) -> Option<&Uffd> {
        self.watch.as_ref()
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn address(&self, offset: usize) -> usize {
        self.base.addr() + offset
    }

    /// Returns the next waiting page fault of the region, if any.
    pub(crate) fn next_fault(&self) -> io::Result<Option<Fault>> {
        let Some(watch) = &self.watch else { return Ok(None) };
        Ok(watch.next_fault()?.filter(|fault| self.offset_of(fault.address) < self.len))
    }

    /// Returns the offset of an address in the region, in bytes.
    pub(crate) fn offset_of(&self, address: usize) -> usize {
        address.wrapping_sub(self.base.addr())
    }

    /// Makes an absent range resident with `bytes`, write-protected if `protect`, and wakes the threads that wait for
    /// it. In an unwatched region the bytes are simply stored.
    pub(crate) fn install(&self, offset: usize, bytes: &[u8], protect: bool) -> io::Result<()> {
        debug_assert!(offset + bytes.len() <= self.len);
        match &self.watch {
            Some(watch) => watch.copy(self.address(offset), bytes, protect).1,
            None => {
                self.copy_in(offset, bytes);
                Ok(())
            }
        }
    }

    /// Write-protects the resident pages of the range, so that stores cause page faults.
    pub(crate) fn protect(&self, offset: usize, len: usize) -> io::Result<()> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch.protect(self.address(offset), len))
    }

    /// Removes the write protection of the range, and wakes the threads that wait for that.
    pub(crate) fn unprotect(&self, offset: usize, len: usize) -> io::Result<()> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch.unprotect(self.address(offset), len))
    }

    /// Wakes the threads that wait on the range, so that they retry their access.
    pub(crate) fn wake(&self, offset: usize, len: usize) -> io::Result<()> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch.wake(self.address(offset), len))
    }

    /// Stops reporting page faults; waiting threads retry their access.
    pub(crate) fn unregister(&self) -> io::Result<()> {
        self.watch.as_ref().map_or(Ok(()), |watch| watch.unregister(self.address(0), self.len))
    }

    /// Makes every access to the absent range raise SIGBUS, until [`Region::discard`]. On a kernel without that
    /// feature (before Linux 6.6) accesses raise SIGSEGV instead.
    pub(crate) fn poison(&self, offset: usize, len: usize) -> io::Result<()> {
        let Some(watch) = &self.watch else { return Ok(()) };
        if !watch.poison(self.address(offset), len)? {
            self.set_protection(offset, len, false, false)?;
        }
        self.wake(offset, len)
    }

    /// Drops the frames of these ranges (offset, length), which are absent afterwards.
    pub(crate) fn discard(&self, ranges: &[(usize, usize)]) -> io::Result<()> {
        let ranges: Vec<_> = ranges.iter().map(|&(offset, len)| (self.address(offset), len)).collect();
        // SAFETY: the ranges lie in the region, and the cache has written back the data that it must keep.
        unsafe { uffd::discard(&ranges) }
    }

    /// Moves a chunk of 2 MiB, whose segments are absent, from a stage into memory. Returns the number of bytes moved, from
    /// the first one on. They can be stored to, and no thread is woken.
    pub(crate) fn move_in(&self, offset: usize, stage: usize) -> usize {
        let Some(watch) = &self.watch else { return 0 };
        // SAFETY: no page is present at the offset.
        unsafe { move_chunk(watch, self.address(offset), stage) }.0
    }

    /// Moves a chunk out of memory into a stage without a page. Returns the number of bytes moved.
    pub(crate) fn move_out(&self, offset: usize, stage: usize) -> usize {
        let Some(watch) = &self.watch else { return 0 };
        // SAFETY: no page is present in the stage.
        unsafe { move_chunk(watch, stage, self.address(offset)) }.0
    }

    /// Has the kernel divide the huge page at the offset into pages that can be discarded one by one.
    pub(crate) fn split_huge_page(&self, offset: usize) {
        stage_memory::split_huge_page(self.address(offset));
    }

    /// The bytes of resident, readable pages.
    ///
    /// # Safety
    /// The pages stay resident, and no thread stores to them, as long as the bytes are used.
    pub(crate) unsafe fn stable_bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.len, "a part of the region");
        // SAFETY: the range lies in the region; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add(offset), len) }
    }

    /// Sets the protection of the range (`mprotect`).
    pub(crate) fn set_protection(
        &self,
        offset: usize,
        len: usize,
        read: bool,
        write: bool,
    ) -> io::Result<()> {
        let mut prot = libc::PROT_NONE;
        if read || write {
            // x86 has no write-only pages.
            prot |= libc::PROT_READ;
        }
        if write {
            prot |= libc::PROT_WRITE;
        }
        // SAFETY: the range lies in the region; no reference to its bytes exists.
        let result = unsafe { libc::mprotect(self.base.add(offset).cast(), len, prot) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The bytes of the region.
    fn span(&self) -> Span {
        Span::new(self.base, self.len)
    }

    /// Copies out of resident pages, so that a concurrent store tears no aligned word. The caller holds the cache
    /// lock, so that the pages stay resident and readable.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) {
        self.span().copy_out(offset, to);
    }

    /// Copies into resident, writable pages. The caller holds the cache lock, as for [`Region::copy_out`]. In a
    /// partially covered word, the other bytes keep the values that other threads store meanwhile.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        self.span().copy_in(offset, from);
    }

    fn advise(&self, offset: usize, len: usize, advice: i32, what: &'static str) -> Result<(), WatchError> {
        // SAFETY: the range lies in the region, which holds no data yet.
        let result = unsafe { libc::madvise(self.base.add(offset).cast(), len, advice) };
        if result == 0 {
            Ok(())
        } else {
            Err(WatchError::System { what, source: io::Error::last_os_error() })
        }
    }
}

/// Whole pages of mapped memory, whose words several threads may access. Its owner keeps the pages mapped and accessible
/// during each copy.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    base: *mut u8,
    len: usize,
}

impl Span {
    pub(crate) fn new(base: *mut u8, len: usize) -> Self {
        Self { base, len }
    }

    /// Returns the word at an offset, which must be a multiple of 8.
    fn word<'a>(self, offset: usize) -> &'a AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset < self.len, "a word of the memory");
        // SAFETY: the word lies inside the memory, which consists of whole pages. It is aligned, because the memory
        // starts at a page. Its owner keeps it mapped while it uses the span. Rust code accesses the memory only through
        // atomics (these copies and `Words`) or through raw pointers whose users know the rules.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    /// Copies out of readable pages, so that a concurrent store tears no aligned word.
    pub(crate) fn copy_out(self, offset: usize, to: &mut [u8]) {
        if offset.is_multiple_of(WORD) && to.len().is_multiple_of(WORD) {
            self.copy_words_out(offset, to);
            return;
        }
        let mut done = 0;
        while done < to.len() {
            let (start, within, n) = split_at_word(offset + done, to.len() - done);
            let word = self.word(start).load(Relaxed).to_ne_bytes();
            to[done..done + n].copy_from_slice(&word[within..within + n]);
            done += n;
        }
    }

    /// Copies whole words.
    fn copy_words_out(self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.len, "words of the memory");
        // One instruction copies cold memory at more than twice the rate of a loop of atomic loads, one for each word.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the words lie inside the memory, which its owner keeps mapped, and `to` has room for them. The instruction
        // repeats a load and a store of eight bytes. Both are whole for an aligned word, as an atomic load is. It ascends, as
        // the direction flag is clear by the ABI.
        unsafe {
            std::arch::asm!(
                "rep movsq",
                inout("rcx") to.len() / WORD => _,
                inout("rsi") self.base.add(offset) => _,
                inout("rdi") to.as_mut_ptr() => _,
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        for (n, bytes) in to.chunks_exact_mut(WORD).enumerate() {
            bytes.copy_from_slice(&self.word(offset + n * WORD).load(Relaxed).to_ne_bytes());
        }
    }

    /// Copies into writable pages. In a partially covered word, the other bytes keep the values that other threads store
    /// meanwhile.
    pub(crate) fn copy_in(self, offset: usize, from: &[u8]) {
        if offset.is_multiple_of(WORD) && from.len().is_multiple_of(WORD) {
            for (n, bytes) in from.chunks_exact(WORD).enumerate() {
                let value = u64::from_ne_bytes(bytes.try_into().expect("a word's bytes"));
                self.word(offset + n * WORD).store(value, Relaxed);
            }
            return;
        }
        let mut done = 0;
        while done < from.len() {
            let (start, within, n) = split_at_word(offset + done, from.len() - done);
            let part = &from[done..done + n];
            // The update always succeeds, because the closure always returns a value.
            let _ = self.word(start).fetch_update(Relaxed, Relaxed, |old| {
                let mut word = old.to_ne_bytes();
                word[within..within + n].copy_from_slice(part);
                Some(u64::from_ne_bytes(word))
            });
            done += n;
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `map` mapped the range, and it is unmapped once. The documentation of the pool says that pointers
        // into it become invalid.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Splits an access of `len` bytes at `offset` at the next word boundary. Returns the offset of the first word, the
/// position of the first byte in it, and the number of bytes.
fn split_at_word(offset: usize, len: usize) -> (usize, usize, usize) {
    let within = offset % WORD;
    (offset - within, within, len.min(WORD - within))
}
