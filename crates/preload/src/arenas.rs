//! Arenas, from which `malloc` allocates all blocks except large ones. A block is at most 24 bytes larger than asked for, and
//! freed neighbours join, so that blocks of any size can use their memory: an allocator with size classes takes up to a
//! quarter more, which is DRAM that the data then lack (ADR 60). Each arena allocates by best fit (dlmalloc) from a range of
//! addresses of its own.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use deepram_core::paging::huge_pages::CHUNK_BYTES;
use deepram_pager::PAGE;
use dlmalloc::{Allocator, Dlmalloc};
use libc::c_void;

use crate::address_range::AddressRange;
use crate::{advise, kernel, memory};

/// Threads allocate from different arenas, so that they seldom wait for each other.
const ARENAS: usize = 8;
/// Smallest and largest step by which the mapped part of an arena grows, and the step's share of that part.
const MIN_STEP: usize = memory::MIN_PAGED;
const MAX_STEP: usize = 64 << 20;
const STEP_SHARE: usize = 8;
/// An arena with this many bytes in use grows by whole chunks.
const GROWN: usize = 4 << 20;

/// The addresses of all arenas, of which each has an equal part.
static SPACE: AddressRange =
    AddressRange::new(512 << 30, 2 * ARENAS * CHUNK_BYTES, 2, libc::PROT_NONE, CHUNK_BYTES);

type Arena = Dlmalloc<ArenaSpace>;

static ALL: [Mutex<Arena>; ARENAS] =
    [arena(0), arena(1), arena(2), arena(3), arena(4), arena(5), arena(6), arena(7)];

const fn arena(number: usize) -> Mutex<Arena> {
    Mutex::new(Dlmalloc::new_with_allocator(ArenaSpace {
        number,
        mapped: Cell::new(0),
        used: Cell::new(0),
        touched: Cell::new(0),
    }))
}

/// Bytes of each arena's addresses, whole chunks.
fn arena_len() -> usize {
    SPACE.len() / ARENAS / CHUNK_BYTES * CHUNK_BYTES
}

/// The addresses of one arena.
struct ArenaSpace {
    number: usize,
    /// Bytes that are mapped.
    mapped: Cell<usize>,
    /// Bytes that are dlmalloc's.
    used: Cell<usize>,
    /// Bytes that have been dlmalloc's since memory was last returned to the kernel.
    touched: Cell<usize>,
}

impl ArenaSpace {
    fn start(&self) -> usize {
        SPACE.start() + self.number * arena_len()
    }

    /// Maps at least the first `len` bytes. Returns whether that succeeded.
    fn map(&self, len: usize) -> bool {
        let mapped = self.mapped.get();
        let step = (mapped / STEP_SHARE).clamp(MIN_STEP, MAX_STEP);
        let target = len.max(mapped + step).next_multiple_of(MIN_STEP);
        if target > arena_len() {
            return false;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let at = std::ptr::with_exposed_provenance_mut(self.start() + mapped);
        let is_mapped =
            memory::mmap(at, target - mapped, kernel::READ_WRITE, flags, -1, 0) != libc::MAP_FAILED;
        if is_mapped {
            self.mapped.set(target);
        }
        is_mapped
    }

    /// Returns unused memory at the end of the arena to the kernel. The arena keeps an eighth of its used memory, or
    /// [`GROWN`], and returns the rest once it is larger than that: a program that frees and allocates by turns would
    /// otherwise fault on this memory each time.
    fn return_unused(&self) {
        let kept = (self.used.get() + (self.used.get() / STEP_SHARE).max(GROWN)).next_multiple_of(PAGE);
        let unused = self.touched.get().saturating_sub(kept);
        if unused > kept - self.used.get() {
            let from = std::ptr::with_exposed_provenance_mut(self.start() + kept);
            advise::madvise(from, unused, libc::MADV_DONTNEED);
            self.touched.set(kept);
        }
    }
}

// SAFETY: each call returns mapped addresses of the arena that are not in use.
unsafe impl Allocator for ArenaSpace {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let used = self.used.get();
        let failed = (std::ptr::null_mut(), 0, 0);
        if size > arena_len() - used {
            return failed;
        }
        // dlmalloc stores to the end of what it gets. The next chunk must stay untouched to become a huge page.
        let size = if used < GROWN { size } else { (used + size).next_multiple_of(CHUNK_BYTES) - used };
        if used + size > self.mapped.get() && !self.map(used + size) {
            return failed;
        }
        self.used.set(used + size);
        self.touched.set(self.touched.get().max(used + size));
        (std::ptr::with_exposed_provenance_mut(self.start() + used), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, at: *mut u8, len: usize, new_len: usize) -> bool {
        if at.addr() + len != self.start() + self.used.get() {
            return false;
        }
        let used = self.used.get() - (len - new_len);
        self.used.set(used);
        self.return_unused();
        true
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// Reserves the addresses of all arenas, while the process has a single thread: at its first call of `malloc`, or as the library
/// is loaded. Returns whether there are any.
pub(crate) fn reserve() -> bool {
    SPACE.reserve().is_some()
}

fn lock(arena: &'static Mutex<Arena>) -> MutexGuard<'static, Arena> {
    arena.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks an arena for an allocation: number `own`, or another one while a thread has locked that.
fn lock_any(own: usize) -> MutexGuard<'static, Arena> {
    let mut in_turn = (own..own + ARENAS).map(|n| &ALL[n % ARENAS]);
    let free = in_turn.find_map(|arena| match arena.try_lock() {
        Ok(arena) => Some(arena),
        Err(TryLockError::Poisoned(arena)) => Some(arena.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    });
    free.unwrap_or_else(|| lock(&ALL[own % ARENAS]))
}

fn number_of(at: usize) -> usize {
    (at - SPACE.start()) / arena_len()
}

/// Allocates a block, from arena number `own` (modulo their number) if it is free; null if no arena has room.
pub(crate) fn allocate(own: usize, size: usize, align: usize) -> *mut c_void {
    if !reserve() {
        return std::ptr::null_mut();
    }
    // SAFETY: the alignment is a power of two, as callers of malloc's family guarantee.
    let allocate = |mut arena: MutexGuard<Arena>| unsafe { arena.c_memalign(align, size) };
    let block = allocate(lock_any(own));
    let others = || ALL.iter().map(|arena| allocate(lock(arena))).find(|block| !block.is_null());
    let block = if block.is_null() { others().unwrap_or(block) } else { block };
    block.cast()
}

/// Whether the address is in an arena.
pub(crate) fn owns(at: usize) -> bool {
    SPACE.owns(at)
}

/// Word before a block in which dlmalloc keeps its size, this word included.
const HEADER: usize = size_of::<usize>();
/// Sizes, header included, are multiples of this, and so are the addresses of blocks.
pub(crate) const UNIT: usize = 16;
/// Size of the smallest block with its header.
const LEAST: usize = 32;

/// Bytes that a block of this size takes, header included.
pub(crate) const fn bytes_for(size: usize) -> usize {
    let bytes = (size + HEADER).next_multiple_of(UNIT);
    if bytes < LEAST { LEAST } else { bytes }
}

/// Bytes that a block takes, header included.
///
/// # Safety
/// The block is in an arena and in use.
pub(crate) unsafe fn bytes_of(at: *mut c_void) -> usize {
    // SAFETY: the header is before the block; its lowest bits are flags.
    unsafe { at.cast::<usize>().sub(1).read() & !(UNIT - 1) }
}

/// Usable bytes of a block.
///
/// # Safety
/// As [`bytes_of`].
pub(crate) unsafe fn usable_size(at: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { bytes_of(at) - HEADER }
}

/// Frees blocks.
///
/// # Safety
/// The blocks are in arenas and in use, and no longer needed.
pub(crate) unsafe fn free(blocks: impl Iterator<Item = *mut c_void>) {
    let mut locked: Option<(usize, MutexGuard<Arena>)> = None;
    for at in blocks {
        let number = number_of(at.addr());
        let (_, mut arena) = match locked.take() {
            Some((of, arena)) if of == number => (of, arena),
            other => {
                drop(other);
                (number, lock(&ALL[number]))
            }
        };
        // SAFETY: the caller's promise.
        unsafe { arena.c_free(at.cast()) };
        locked = Some((number, arena));
    }
}

/// Resizes a block, which moves if it must; null if its arena has no room.
///
/// # Safety
/// The block is in an arena and in use.
pub(crate) unsafe fn resize(at: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        if bytes_of(at) == bytes_for(size) {
            return at;
        }
        lock(&ALL[number_of(at.addr())]).c_realloc(at.cast(), size).cast()
    }
}

/// All arenas, locked for a fork.
pub(crate) struct ArenasGuard(
    #[expect(dead_code, reason = "dropped to let go")] [MutexGuard<'static, Arena>; ARENAS],
);

pub(crate) fn lock_for_fork() -> ArenasGuard {
    ArenasGuard(ALL.each_ref().map(lock))
}
