//! Records where the process has mapped which files as shared memory.

use libc::{c_int, c_void};

use super::spin_lock::SpinLock;
use super::{dirty, sync};
use crate::{kernel, memory::round_to_pages};

/// Device and number of a file.
pub(super) type FileId = (u64, u64);

/// A mapped part of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped {
    pub(super) start: usize,
    pub(super) end: usize,
    file: FileId,
    /// Whether the memory may be stored to.
    pub(super) writable: bool,
}

static MAPPED: SpinLock<Vec<Mapped>> = SpinLock::new(Vec::new());

pub(super) fn lock_for_fork() {
    MAPPED.acquire();
}

pub(super) fn unlock_after_fork() {
    MAPPED.release();
}

/// Device and number of the file, and whether it is in memory (tmpfs); `None` for a descriptor that is not open.
pub(super) fn identify(fd: c_int) -> Option<(FileId, bool)> {
    /// `TMPFS_MAGIC`, `RAMFS_MAGIC` and `HUGETLBFS_MAGIC` of the kernel.
    const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
    let mut about = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let mut system = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    if kernel::fstat(fd, about.as_mut_ptr()) != 0 {
        return None;
    }
    // SAFETY: the kernel fills the structure; zeros are a valid value.
    let (about, kind) = unsafe {
        libc::fstatfs(fd, system.as_mut_ptr());
        (about.assume_init(), system.assume_init().f_type)
    };
    Some(((about.st_dev, about.st_ino), IN_MEMORY.contains(&kind)))
}

/// Records a new mapping. Returns `at`.
pub(crate) fn note_mapped(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int) -> *mut c_void {
    if !super::is_enabled() || at == libc::MAP_FAILED {
        return at;
    }
    let (start, end) = (at.addr(), at.addr() + round_to_pages(len));
    let is_shared = matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    let file = (is_shared && flags & libc::MAP_ANONYMOUS == 0).then(|| identify(fd)).flatten();
    let writable = prot & libc::PROT_WRITE != 0;
    MAPPED.with(|all| {
        cut(all, start, end);
        all.extend(file.map(|(file, _)| Mapped { start, end, file, writable }));
    });
    if file.is_some() && writable {
        dirty::watch(start, end);
    }
    at
}

/// Forgets what was mapped in a range.
pub(crate) fn note_unmapped(start: usize, len: usize) {
    if super::is_enabled() {
        MAPPED.with(|all| cut(all, start, start.saturating_add(round_to_pages(len))));
    }
}

/// Records that a mapping has moved, or has another length now. Returns `to`.
pub(crate) fn note_moved(from: usize, len: usize, to: *mut c_void, new_len: usize) -> *mut c_void {
    if super::is_enabled() && to != libc::MAP_FAILED {
        let (start, end) = (to.addr(), to.addr() + round_to_pages(new_len));
        let old = MAPPED.with(|all| {
            let old = all.iter().find(|one| one.start <= from && from < one.end).copied();
            cut(all, from, from + round_to_pages(len));
            cut(all, start, end);
            all.extend(old.map(|old| Mapped { start, end, ..old }));
            old
        });
        if old.is_some_and(|old| old.writable) {
            sync::flush_moved(start, end);
            dirty::watch(start, end);
        }
    }
    to
}

/// Takes a range out of the mappings.
fn cut(all: &mut Vec<Mapped>, start: usize, end: usize) {
    for n in (0..all.len()).rev() {
        let one = all[n];
        if one.end <= start || end <= one.start {
            continue;
        }
        all.swap_remove(n);
        all.extend((one.start < start).then_some(Mapped { end: start, ..one }));
        all.extend((end < one.end).then_some(Mapped { start: end, ..one }));
    }
}

/// All mappings.
pub(super) fn all() -> Vec<Mapped> {
    MAPPED.with(|all| all.clone())
}

/// The mappings of a file.
pub(super) fn of_file(file: FileId) -> Vec<Mapped> {
    MAPPED.with(|all| all.iter().filter(|one| one.file == file).copied().collect())
}

/// The mapping of which the range is a part.
pub(super) fn at(start: usize, len: usize) -> Option<Mapped> {
    MAPPED.with(|all| all.iter().find(|one| one.start <= start && start + len <= one.end).copied())
}
