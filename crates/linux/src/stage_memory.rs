//! Memory of stages: 2 MiB frames outside of paged memory, through which chunks enter and leave it as huge pages
//! (docs/adr/0021). Core decides which stage is used for what: `deepram_core::paging::stages`.

use std::{io, ptr};

use deepram_core::paging::huge_pages::CHUNK_BYTES;

use crate::descriptors::OpenGuard;
use crate::uffd::{Uffd, discard};

/// The first Linux that keeps the write protection of zero pages when it splits a huge page.
const MIN_LINUX: (u32, u32) = (6, 18);

/// The memory of a number of stages, of one more for chunks that leave (the exit stage), and of areas in which huge pages are
/// allocated. A forked child does not have it.
#[derive(Debug)]
pub struct StageMemory {
    /// The mapping as (start, length), and the address of its first aligned 2 MiB.
    mapping: (usize, usize),
    first: usize,
    count: usize,
    /// Whether the system gives huge pages to all fresh memory, without advice.
    always: bool,
}

impl StageMemory {
    /// Maps memory for `count` stages; `None` where the kernel cannot move huge pages, or the system forbids them.
    #[must_use]
    pub fn new(uffd: &Uffd, count: usize) -> Option<Self> {
        let supported = uffd.can_move() && linux().is_some_and(|version| version >= MIN_LINUX);
        let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
        let read = |_opening| std::fs::read_to_string(enabled).unwrap_or_default();
        let setting = if supported { read(OpenGuard::acquire()) } else { String::new() };
        let always = setting.contains("[always]");
        if !always && !setting.contains("[madvise]") {
            return None;
        }
        let (mapping, first) = map(uffd, count).ok()?;
        Some(Self { mapping, first, count, always })
    }

    /// Whether the system gives huge pages to all fresh memory.
    #[must_use]
    pub fn always(&self) -> bool {
        self.always
    }

    /// Number of stages, without the exit stage. This is also the number of the exit stage.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Address of a stage.
    ///
    /// # Panics
    /// There is no such stage.
    #[must_use]
    pub fn address(&self, stage: usize) -> usize {
        assert!(stage <= self.count, "stage {stage} of {}", self.count);
        self.first + stage * CHUNK_BYTES
    }

    /// The bytes of a stage.
    ///
    /// # Panics
    /// There is no such stage.
    #[must_use]
    pub fn bytes(&self, stage: usize) -> *mut [u8] {
        ptr::slice_from_raw_parts_mut(ptr::with_exposed_provenance_mut(self.address(stage)), CHUNK_BYTES)
    }

    /// Gives a stage without a page a page of zeros: a huge page, if the kernel has one.
    ///
    /// # Errors
    /// The kernel has no memory, or refuses the move; the stage has no page then.
    pub fn populate(&self, uffd: &Uffd, stage: usize) -> io::Result<()> {
        // A fault on a page missing from a stage would never be served: the page is allocated in memory that is not
        // registered, and moved from there.
        let populate_area = self.first + (self.count + 1 + stage) * CHUNK_BYTES;
        // SAFETY: memory of the stages that belongs to the caller and holds nothing.
        unsafe { discard(&[(populate_area, CHUNK_BYTES)]) }?;
        // SAFETY: as above.
        let result = unsafe {
            libc::syscall(libc::SYS_madvise, populate_area, CHUNK_BYTES, libc::MADV_POPULATE_WRITE)
        };
        let populated = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the stage is empty.
        let moved =
            populated.and_then(|()| unsafe { move_chunk(uffd, self.address(stage), populate_area) }.1);
        if moved.is_err() {
            // SAFETY: as above; the contents of both ranges are not needed.
            unsafe { discard(&[(populate_area, CHUNK_BYTES), (self.address(stage), CHUNK_BYTES)]) }?;
        }
        moved
    }

    /// Returns the memory of a stage to the kernel.
    ///
    /// # Errors
    /// The kernel refuses the call.
    pub fn discard(&self, stage: usize) -> io::Result<()> {
        // SAFETY: the stage belongs to the caller, and its contents are not needed.
        unsafe { discard(&[(self.address(stage), CHUNK_BYTES)]) }
    }
}

impl Drop for StageMemory {
    fn drop(&mut self) {
        let (start, len) = self.mapping;
        // SAFETY: mapped in `map` with this length, unmapped once; no stage is in use any more.
        unsafe { libc::syscall(libc::SYS_munmap, start, len) };
    }
}

/// Moves the pages of a chunk to the missing range at `to`, as one huge page if they are one. Returns the number of
/// bytes moved, with the error that stopped the move.
///
/// # Safety
/// No page is present at `to`.
pub unsafe fn move_chunk(uffd: &Uffd, to: usize, from: usize) -> (usize, io::Result<()>) {
    // A fault, even one that installed nothing, leaves a page-table page behind, which keeps a huge page from moving
    // there. Dropping the empty range removes it (Linux 6.14); on older kernels, 512 4 KiB pages are moved.
    // SAFETY: the caller's promise.
    if let Err(error) = unsafe { discard(&[(to, CHUNK_BYTES)]) } {
        return (0, Err(error));
    }
    uffd.move_pages(to, from, CHUNK_BYTES)
}

/// Has the kernel divide the huge page at this address into pages that can be dropped one by one. Where the kernel does not,
/// because something else refers to the huge page, its memory becomes free when all of its pages have left.
pub fn split_huge_page(address: usize) {
    // Advice about a part makes the kernel split the huge page.
    // SAFETY: changes no contents.
    unsafe { libc::syscall(libc::SYS_madvise, address, 4096, libc::MADV_COLD) };
}

/// The version of the kernel.
fn linux() -> Option<(u32, u32)> {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_str().ok()?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Maps memory for `count` stages, for the exit stage, and for `count` areas in which pages are allocated. Returns the
/// mapping, and the address of the first stage.
fn map(uffd: &Uffd, count: usize) -> io::Result<((usize, usize), usize)> {
    let stages = (count + 1) * CHUNK_BYTES;
    let bytes = stages + count * CHUNK_BYTES;
    let len = bytes + CHUNK_BYTES;
    // SAFETY: a new anonymous mapping. By number, because a library may interpose `mmap` itself.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::syscall(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if start == -1 {
        return Err(io::Error::last_os_error());
    }
    let start = start as usize;
    let first = start.next_multiple_of(CHUNK_BYTES);
    let prepare = || {
        for (at, len, advice) in [
            (first, bytes, libc::MADV_DONTFORK),
            (first, stages, libc::MADV_NOHUGEPAGE),
            (first + stages, count * CHUNK_BYTES, libc::MADV_HUGEPAGE),
        ] {
            // SAFETY: memory of the new mapping, which no thread uses yet.
            if unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // Without write protection: pages that are moved in may be marked as protected.
        uffd.register_missing(first, stages)
    };
    match prepare() {
        Ok(()) => Ok(((start, len), first)),
        Err(error) => {
            // SAFETY: the new mapping, no longer used.
            unsafe { libc::syscall(libc::SYS_munmap, start, len) };
            Err(error)
        }
    }
}
