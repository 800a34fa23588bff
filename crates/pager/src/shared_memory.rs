//! Memory that processes share: for the program it is `MAP_SHARED` and anonymous, but it maps a file without a name in
//! the directory of the swap file.
//!
//! The kernel keeps the pages in its page cache, gives every forked process the same ones, and reads and writes the
//! file: these pages have no state in the page table. This module decides which pages stay in DRAM ([`sweep`]), and
//! which process is charged for them:
//!
//! 1. A file gets all its space when it is created, so that a full disk is an error of the mapping call and never a
//!    signal later. A request for more than half of the disk's free space is refused, and the mapping stays an ordinary
//!    one.
//! 2. The pages of a file are charged once, to the process that holds the file's lock: its creator, and after that
//!    process has unmapped the file or ended, whichever process that still maps the file locks it first.
//! 3. Only addresses in `mappings` are unmapped for a while to see whether they are used; the table changes under its
//!    lock, together with the mapping itself.

mod readahead;
mod sweep;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::{Inner, PAGE, Pager};
use deepram_linux::descriptors::{OwnDescriptor, open_high};
use deepram_linux::lock::lock;
use deepram_linux::uffd;

/// Bytes that the hand passes at once. The kernel may cache up to this much in one folio, and drops no part of a folio.
const WINDOW: usize = 512 * PAGE;
/// Offset in the file at which the memory begins; the control page lies before it.
const DATA: usize = WINDOW;

/// The part of a file through which its processes communicate.
#[repr(C)]
struct ControlPage {
    /// Number of windows that the hand has passed, over all laps. Every process unmaps these windows.
    hand: AtomicU64,
}

/// A file behind shared memory, as this process uses it.
struct SharedFile {
    file: OwnDescriptor,
    /// The file's first page.
    control: &'static ControlPage,
    /// Bytes of memory.
    len: usize,
    /// Pages of the file that this process is charged for.
    counted: AtomicUsize,
    /// Whether writing to the disk has failed: the pages then stay in memory.
    failed: AtomicBool,
}

/// A part of the address space that maps a part of a file.
struct SharedMapping {
    end: usize,
    shared_file: Arc<SharedFile>,
    /// Offset of its start in the file's memory.
    offset: usize,
}

/// The shared memory of this process.
#[derive(Default)]
pub(super) struct MappingTable {
    /// The mappings, by start address.
    mappings: BTreeMap<usize, SharedMapping>,
    files: Vec<Arc<SharedFile>>,
    /// Whether the sweeping thread has been started.
    swept: bool,
}

/// The table, and the number of its mappings.
#[derive(Default)]
pub(super) struct SharedMemory {
    table: Mutex<MappingTable>,
    count: AtomicUsize,
}

/// Checks whether shared memory can be paged to this directory.
///
/// # Errors
/// The kernel does not report which pages of a file it caches (Linux 6.5), or the file system does not allocate space
/// in advance, or is in memory itself.
pub fn can_share(directory: &Path) -> io::Result<()> {
    SharedFile::create(directory, PAGE, u64::MAX).map(drop)
}

/// Whether the directory's files are in memory (`tmpfs`, `ramfs`): writing to them frees no DRAM.
///
/// # Errors
/// The directory does not exist.
pub fn is_in_memory(directory: &Path) -> io::Result<bool> {
    Ok(is_memory(&rustix::fs::statfs(directory)?))
}

fn is_memory(about: &rustix::fs::StatFs) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    [TMPFS, RAMFS].contains(&(about.f_type as u64))
}

impl SharedFile {
    fn create(directory: &Path, len: usize, limit: u64) -> io::Result<Self> {
        let size = DATA as u64 + len as u64;
        let refuse = |kind, why: &str| Err(io::Error::new(kind, why));
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| size > most) {
            return refuse(io::ErrorKind::FileTooLarge, "the file would exceed RLIMIT_FSIZE");
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file =
            OwnDescriptor::from(open_high(|| rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR))?);
        let about = rustix::fs::fstatfs(&file)?;
        // Files in memory cannot take pages out of memory.
        if is_memory(&about) {
            return refuse(io::ErrorKind::Unsupported, "the directory of the swap file is in memory");
        }
        let free = about.f_bavail.saturating_mul(about.f_bsize.cast_unsigned());
        if size > limit || size > free / 2 {
            return refuse(
                io::ErrorKind::StorageFull,
                "the mapping would take more than half of the disk's free space",
            );
        }
        rustix::fs::ftruncate(&file, size)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), DATA as u64, len as u64)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PAGE as u64)?;
        sweep::cached(&file, 0, PAGE)?;
        // SAFETY: a new shared mapping of the first page of a new file, unmapped when this value is dropped; its
        // atomics accept any bytes as values.
        let control = unsafe {
            let both = ProtFlags::READ | ProtFlags::WRITE;
            let at = rustix::mm::mmap(std::ptr::null_mut(), PAGE, both, MapFlags::SHARED, &file, 0)?;
            &*at.cast::<ControlPage>().cast_const()
        };
        let (counted, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared_file = Self { file, control, len, counted, failed };
        // The creator is charged from the first page on; no other process can hold the lock yet.
        shared_file.is_accountant();
        Ok(shared_file)
    }

    /// The same file in a forked child; the caller must forget `self`.
    fn inherit(&self) -> Self {
        // SAFETY: `self` is forgotten, so the descriptor belongs to the new value alone.
        let file = OwnDescriptor::from(unsafe { OwnedFd::from_raw_fd(self.file.as_raw_fd()) });
        let &Self { control, len, .. } = self;
        let failed = AtomicBool::new(self.failed.load(Relaxed));
        Self { file, control, len, counted: AtomicUsize::new(0), failed }
    }

    /// Whether this process is charged for the file: takes the file's lock if it is free.
    fn is_accountant(&self) -> bool {
        rustix::fs::fcntl_lock(&self.file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let at = std::ptr::from_ref(self.control).cast_mut().cast();
        // SAFETY: the mapping that `create` made; the reference ends here. Fails only if the mapping is gone.
        let _ = unsafe { rustix::mm::munmap(at, PAGE) };
    }
}

impl MappingTable {
    /// Removes addresses from the table and returns their mappings. They must not be swept from here on.
    fn remove(&mut self, start: usize, end: usize) -> Vec<(usize, SharedMapping)> {
        let before = self.mappings.range(..start).next_back().filter(|(_, mapping)| mapping.end > start);
        let inside = self.mappings.range(start..end.max(start));
        let touched: Vec<usize> = before.into_iter().chain(inside).map(|(at, _)| *at).collect();
        let mut out = Vec::new();
        for at in touched {
            let Some(SharedMapping { end: its_end, shared_file, offset }) = self.mappings.remove(&at) else {
                continue;
            };
            let part = |from: usize, to: usize| {
                let mapping = SharedMapping {
                    end: to,
                    shared_file: Arc::clone(&shared_file),
                    offset: offset + (from - at),
                };
                (from, mapping)
            };
            if at < start {
                self.mappings.extend([part(at, start)]);
            }
            if end < its_end {
                self.mappings.extend([part(end, its_end)]);
            }
            out.push(part(at.max(start), its_end.min(end)));
        }
        out
    }
}

impl SharedMemory {
    pub(super) fn lock(&self) -> MutexGuard<'_, MappingTable> {
        lock(&self.table)
    }

    /// The table of a forked child: the same mappings, except those that the fork leaves out. Another process is
    /// charged for them.
    pub(super) fn inherited(mut table: MutexGuard<'_, MappingTable>, not_in_child: &super::Spans) -> Self {
        let old = std::mem::take(&mut *table);
        // The lock of the parent's table is not used in the child.
        std::mem::forget(table);
        let mut own = MappingTable::default();
        let mut mappings = old.mappings;
        for shared_file in old.files {
            // A new value: the references that the parent's sweeping thread holds are never dropped in the child.
            let new = Arc::new(shared_file.inherit());
            for mapping in
                mappings.values_mut().filter(|mapping| Arc::ptr_eq(&mapping.shared_file, &shared_file))
            {
                mapping.shared_file = Arc::clone(&new);
            }
            own.files.push(new);
            std::mem::forget(shared_file);
        }
        own.mappings = mappings;
        for (start, end) in not_in_child.iter() {
            own.remove(start, end);
        }
        own.drop_unused();
        Self { count: AtomicUsize::new(own.mappings.len()), table: Mutex::new(own) }
    }

    /// Pages that this process is charged for.
    pub(super) fn counted(table: &MappingTable) -> usize {
        table.files.iter().map(|shared_file| shared_file.counted.load(Relaxed)).sum()
    }

    /// The descriptors of the files.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.lock().files.iter().map(|shared_file| shared_file.file.as_raw_fd()).collect()
    }
}

impl MappingTable {
    /// Closes files that are no longer mapped. Returns the number of pages that were charged for them.
    fn drop_unused(&mut self) -> usize {
        let Self { mappings, files, .. } = self;
        let mut pages = 0;
        files.retain(|shared_file| {
            let used = mappings.values().any(|mapping| Arc::ptr_eq(&mapping.shared_file, shared_file));
            if !used {
                pages += shared_file.counted.swap(0, Relaxed);
            }
            used
        });
        pages
    }
}

impl Pager {
    /// Maps and pages memory that processes share when they fork. `map` maps `len` bytes of a file, from an offset on,
    /// as shared memory, and returns their address; `None` if that fails.
    ///
    /// # Errors
    /// The file cannot be created (see [`can_share`]), or the space is exhausted; nothing was mapped then.
    pub fn share(
        &self,
        len: usize,
        map: impl FnOnce(RawFd, usize) -> Option<usize>,
    ) -> io::Result<Option<usize>> {
        let options = &self.inner.options;
        let held: u64 =
            self.inner.shared_memory.lock().files.iter().map(|shared_file| shared_file.len as u64).sum();
        let limit = options.store_limit.saturating_sub(held);
        let shared_file = Arc::new(SharedFile::create(&options.directory, len, limit)?);
        let mut table = self.inner.shared_memory.lock();
        let Some(start) = map(shared_file.file.as_raw_fd(), DATA) else { return Ok(None) };
        // The kernel would read 128 KiB and more for each missed page, which a tight budget drops unused.
        // SAFETY: changes what a fault reads, not contents.
        unsafe { libc::syscall(libc::SYS_madvise, start, len, libc::MADV_RANDOM) };
        table.remove(start, start + len);
        table.files.push(Arc::clone(&shared_file));
        table.mappings.insert(start, SharedMapping { end: start + len, shared_file, offset: 0 });
        self.inner.table_changed(&mut table);
        self.inner.start_sweeping(&mut table)?;
        Ok(Some(start))
    }

    /// Calls `change`, which unmaps the range or replaces its mappings, and forgets the shared memory in the range;
    /// `None` from `change` means that the range stays as it is.
    pub fn unshare<T>(&self, start: usize, len: usize, change: impl FnOnce() -> Option<T>) -> Option<T> {
        if !self.shares_any() {
            return change();
        }
        let mut table = self.inner.shared_memory.lock();
        let result = change();
        let mut gone = table.remove(start, start.saturating_add(len));
        if result.is_none() {
            // Some kernels unmap the old mapping before they refuse the new one.
            let stays = |(at, mapping): &mut (usize, SharedMapping)| uffd::is_mapped(*at, mapping.end - *at);
            table.mappings.extend(gone.extract_if(.., stays));
        }
        self.inner.table_changed(&mut table);
        drop(table);
        // The files are closed here at the latest, after the table is unlocked.
        drop(gone);
        result
    }

    /// Calls `remap`, which moves a mapping of `len` bytes and makes it `new_len` bytes long; it returns the new start,
    /// or `None` if nothing happened. With `keep_old` the old addresses stay mapped.
    pub fn remap_shared(
        &self,
        from: usize,
        (len, new_len): (usize, usize),
        keep_old: bool,
        remap: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        if !self.shares_any() {
            return remap();
        }
        let mut table = self.inner.shared_memory.lock();
        let to = remap()?;
        // A length of 0 means the mapping that contains `from`: it is then mapped a second time.
        let moved = table.remove(from, from + len.max(PAGE));
        let replaced = table.remove(to, to + new_len);
        for (at, SharedMapping { end, shared_file, offset }) in moved {
            if keep_old || len == 0 {
                table
                    .mappings
                    .insert(at, SharedMapping { end, shared_file: Arc::clone(&shared_file), offset });
            }
            // A mapping that grows continues in the file, or beyond its end.
            let last = end - from >= len;
            let end = if last { to + new_len } else { (at - from + to + (end - at)).min(to + new_len) };
            if at - from < new_len {
                table.mappings.insert(at - from + to, SharedMapping { end, shared_file, offset });
            }
        }
        self.inner.table_changed(&mut table);
        drop(table);
        drop(replaced);
        Some(to)
    }

    /// Whether any memory is shared.
    #[must_use]
    pub fn shares_any(&self) -> bool {
        self.inner.shared_memory.count.load(Relaxed) > 0
    }
}

impl Inner {
    /// Updates the number of mappings and the charge after the table has changed.
    fn table_changed(&self, table: &mut MappingTable) {
        self.shared_memory.count.store(table.mappings.len(), Relaxed);
        self.frames.change_files(0, table.drop_unused());
    }
}

#[cfg(test)]
mod tests {
    use super::super::PagerOptions;
    use super::*;
    use std::time::{Duration, Instant};

    const DRAM: usize = 8 << 20;

    /// A pager that can share memory; `None`, with a message, where it cannot.
    fn pager(change: impl FnOnce(&mut PagerOptions)) -> Option<Pager> {
        let mut options = PagerOptions::new(DRAM as u64, "/var/tmp");
        if let Err(error) = can_share(&options.directory) {
            eprintln!("skipped: memory cannot be shared here ({error})");
            return None;
        }
        change(&mut options);
        Pager::new(options).inspect_err(|error| eprintln!("skipped: {error}")).ok()
    }

    fn map(file: RawFd, offset: usize, len: usize) -> Option<usize> {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), len, both, libc::MAP_SHARED, file, offset as i64) };
        (at != libc::MAP_FAILED).then(|| at.expose_provenance())
    }

    fn unmap(pager: &Pager, start: usize, len: usize) {
        let unmapped = pager.unshare(start, len, || {
            // SAFETY: mapped by `map`, no longer used.
            let result = unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), len) };
            (result == 0).then_some(())
        });
        unmapped.expect("it is mapped");
    }

    fn words(start: usize, len: usize) -> &'static [AtomicU64] {
        // SAFETY: mapped by `map`, and used only as long as it is mapped.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), len / 8) }
    }

    /// Waits until the condition holds.
    fn until(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn shared_memory_four_times_the_dram_keeps_its_values_and_leaves_dram() {
        let Some(pager) = pager(|_| {}) else { return };
        let len = 4 * DRAM;
        let start = pager.share(len, |file, offset| map(file, offset, len)).unwrap().unwrap();
        let memory = words(start, len);
        for round in 1..=2 {
            for (n, word) in memory.iter().enumerate() {
                word.store(n as u64 * round, Relaxed);
            }
            for (n, word) in memory.iter().enumerate().rev() {
                assert_eq!(word.load(Relaxed), n as u64 * round, "word {n}");
            }
        }
        let inner = &pager.inner;
        let there = || {
            let table = inner.shared_memory.lock();
            sweep::cached(&table.files[0].file, 0, DATA + len).unwrap()
        };
        until("shared memory stays beyond the budget", || there() * PAGE <= DRAM);
        until("resident pages are charged", || inner.frames.paged() == there());
        let other = pager.share(len, |_, _| None).unwrap();
        assert_eq!(other, None, "the mapping failed");
        unmap(&pager, start, len);
        assert!(!pager.shares_any());
        assert_eq!(inner.frames.paged(), 0);
    }

    #[test]
    fn parts_are_unmapped_and_moved_like_the_mapping() {
        let Some(pager) = pager(|_| {}) else { return };
        let len = 8 * WINDOW;
        let start = pager.share(len, |file, offset| map(file, offset, len)).unwrap().unwrap();
        unmap(&pager, start + WINDOW, WINDOW);
        let mappings = || -> Vec<(usize, usize, usize)> {
            let table = pager.inner.shared_memory.lock();
            table.mappings.iter().map(|(at, mapping)| (*at, mapping.end, mapping.offset)).collect()
        };
        let rest = start + 2 * WINDOW;
        assert_eq!(mappings(), [(start, start + WINDOW, 0), (rest, start + len, 2 * WINDOW)]);
        let (old, new) = (len - 2 * WINDOW, len);
        let to = pager.remap_shared(rest, (old, new), false, || {
            let at = std::ptr::with_exposed_provenance_mut(rest);
            // SAFETY: moves the mapping of this test.
            Some(unsafe { libc::mremap(at, old, new, libc::MREMAP_MAYMOVE) }.expose_provenance())
        });
        let to = to.unwrap();
        let mut wanted = [(start, start + WINDOW, 0), (to, to + new, 2 * WINDOW)];
        wanted.sort_unstable();
        assert_eq!(mappings(), wanted);
        unmap(&pager, to, new);
        unmap(&pager, start, WINDOW);
        assert!(pager.inner.shared_memory.lock().files.is_empty());
    }

    #[test]
    fn a_request_beyond_the_limit_is_refused_before_anything_is_mapped() {
        let Some(pager) = pager(|options| options.store_limit = 1 << 20) else { return };
        let error = pager.share(2 << 20, |_, _| panic!("no file was created")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(can_share(Path::new("/dev/shm")).is_err(), "a directory in memory frees no DRAM");
    }
}
