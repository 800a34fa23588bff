//! Memory that processes share: `MAP_SHARED` and anonymous for the program, in truth the mapping of a file
//! without a name in the store's directory.
//!
//! The kernel keeps its pages in its page cache, gives every process that was forked the same ones, and
//! reads and writes the file: no page has a state here. What is decided here is which pages stay in DRAM
//! ([`sweep`]), and who accounts for them:
//!
//! 1. A file is given all its space when it is made, so that a full disk is an error of the mapping call and
//!    never a signal later. Whoever would take more than half of what the disk has left is refused, and the
//!    mapping stays the kernel's own.
//! 2. The pages of a file are counted once, by the process that holds the file's lock: its maker, and after
//!    that has unmapped it or ended, whichever process that still maps it looks first.
//! 3. Only addresses in `spans` are unmapped for a while to see whether they are used; the table changes
//!    under its lock together with the mapping itself.

mod ahead;
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
use crate::descriptors::{Own, raised};
use crate::lock::lock;
use crate::uffd;

/// What the hand passes at once. The kernel may cache up to so much in one piece, and drops no part of one.
const WINDOW: usize = 512 * PAGE;
/// Where in its file the memory begins; before it lies the page that processes talk by.
const DATA: usize = WINDOW;

/// The part of a file that its processes talk by.
#[repr(C)]
struct Control {
    /// Windows that the hand has passed, laps added up. Every process unmaps these.
    hand: AtomicU64,
}

/// A file, and what this process knows of it.
struct Segment {
    file: Own,
    /// The file's first page.
    control: &'static Control,
    /// Bytes of memory.
    len: usize,
    /// Pages of it that this process accounts for.
    counted: AtomicUsize,
    /// Its disk failed: what is in memory stays there.
    failed: AtomicBool,
}

/// Where a part of a file is mapped.
struct Span {
    end: usize,
    segment: Arc<Segment>,
    /// Of its start in the segment's memory.
    offset: usize,
}

/// What this process shares.
#[derive(Default)]
pub(super) struct Table {
    /// By start.
    spans: BTreeMap<usize, Span>,
    segments: Vec<Arc<Segment>>,
    /// There is a thread that sweeps.
    swept: bool,
}

/// The table, and how many spans are in it.
#[derive(Default)]
pub(super) struct Sharing {
    table: Mutex<Table>,
    count: AtomicUsize,
}

/// Whether shared memory can be paged to this directory.
///
/// # Errors
/// The kernel does not tell what it caches of a file (Linux 6.5), or the file system does not give space
/// ahead, or is in memory itself.
pub fn can_share(directory: &Path) -> io::Result<()> {
    Segment::create(directory, PAGE, u64::MAX).map(drop)
}

/// Whether the directory's files lie in memory (`tmpfs`, `ramfs`): what is written to them leaves no DRAM.
///
/// # Errors
/// There is no such directory.
pub fn is_in_memory(directory: &Path) -> io::Result<bool> {
    Ok(is_memory(&rustix::fs::statfs(directory)?))
}

fn is_memory(about: &rustix::fs::StatFs) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    [TMPFS, RAMFS].contains(&(about.f_type as u64))
}

impl Segment {
    fn create(directory: &Path, len: usize, limit: u64) -> io::Result<Self> {
        let size = DATA as u64 + len as u64;
        let refuse = |kind, why: &str| Err(io::Error::new(kind, why));
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| size > most) {
            return refuse(io::ErrorKind::FileTooLarge, "the process may not have files of this size");
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = Own::from(raised(|| rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR))?);
        let about = rustix::fs::fstatfs(&file)?;
        // What is in memory anyway cannot leave it for there.
        if is_memory(&about) {
            return refuse(io::ErrorKind::Unsupported, "the store's directory is in memory");
        }
        let free = about.f_bavail.saturating_mul(about.f_bsize.cast_unsigned());
        if size > limit || size > free / 2 {
            return refuse(
                io::ErrorKind::StorageFull,
                "it would take more than half of what the disk has left",
            );
        }
        rustix::fs::ftruncate(&file, size)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), DATA as u64, len as u64)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PAGE as u64)?;
        sweep::cached(&file, 0, PAGE)?;
        // SAFETY: a new shared mapping of the first page of a new file of ours, undone when the segment is
        // dropped; its atomics take any bytes as values.
        let control = unsafe {
            let both = ProtFlags::READ | ProtFlags::WRITE;
            let at = rustix::mm::mmap(std::ptr::null_mut(), PAGE, both, MapFlags::SHARED, &file, 0)?;
            &*at.cast::<Control>().cast_const()
        };
        let (counted, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let segment = Self { file, control, len, counted, failed };
        // The maker accounts for it from the first page on; nobody else can hold the lock yet.
        segment.accounts();
        Ok(segment)
    }

    /// The same file, in a forked child; whatever else there is of `self` must be forgotten.
    fn twin(&self) -> Self {
        // SAFETY: `self` is forgotten, and so the descriptor is the new one's alone.
        let file = Own::from(unsafe { OwnedFd::from_raw_fd(self.file.as_raw_fd()) });
        let &Self { control, len, .. } = self;
        let failed = AtomicBool::new(self.failed.load(Relaxed));
        Self { file, control, len, counted: AtomicUsize::new(0), failed }
    }

    /// Whether this process is the one that accounts for it.
    fn accounts(&self) -> bool {
        rustix::fs::fcntl_lock(&self.file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let at = std::ptr::from_ref(self.control).cast_mut().cast();
        // SAFETY: the mapping that `create` made; the reference ends here. Fails only if it is gone.
        let _ = unsafe { rustix::mm::munmap(at, PAGE) };
    }
}

impl Table {
    /// Takes addresses out of the table. They must not be swept from here on.
    fn remove(&mut self, start: usize, end: usize) -> Vec<(usize, Span)> {
        let before = self.spans.range(..start).next_back().filter(|(_, span)| span.end > start);
        let inside = self.spans.range(start..end.max(start));
        let touched: Vec<usize> = before.into_iter().chain(inside).map(|(at, _)| *at).collect();
        let mut out = Vec::new();
        for at in touched {
            let Some(Span { end: its_end, segment, offset }) = self.spans.remove(&at) else { continue };
            let part = |from: usize, to: usize| {
                let span = Span { end: to, segment: Arc::clone(&segment), offset: offset + (from - at) };
                (from, span)
            };
            if at < start {
                self.spans.extend([part(at, start)]);
            }
            if end < its_end {
                self.spans.extend([part(end, its_end)]);
            }
            out.push(part(at.max(start), its_end.min(end)));
        }
        out
    }
}

impl Sharing {
    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// For a forked child: the same mappings, but for those that the fork leaves out. Somebody else accounts
    /// for them.
    pub(super) fn inherited(mut table: MutexGuard<'_, Table>, left_out: &super::Spans) -> Self {
        let old = std::mem::take(&mut *table);
        // The lock of the parent's table is of no use here.
        std::mem::forget(table);
        let mut own = Table::default();
        let mut spans = old.spans;
        for segment in old.segments {
            // A new one: what the parent's sweeping thread holds of the old one is never given back here.
            let new = Arc::new(segment.twin());
            for span in spans.values_mut().filter(|span| Arc::ptr_eq(&span.segment, &segment)) {
                span.segment = Arc::clone(&new);
            }
            own.segments.push(new);
            std::mem::forget(segment);
        }
        own.spans = spans;
        for (start, end) in left_out.iter() {
            own.remove(start, end);
        }
        own.drop_unused();
        Self { count: AtomicUsize::new(own.spans.len()), table: Mutex::new(own) }
    }

    /// Pages that this process accounts for.
    pub(super) fn counted(table: &Table) -> usize {
        table.segments.iter().map(|segment| segment.counted.load(Relaxed)).sum()
    }

    /// The descriptors of its files.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.lock().segments.iter().map(|segment| segment.file.as_raw_fd()).collect()
    }
}

impl Table {
    /// Closes files that are mapped no more. Returns how many pages these were accounted with.
    fn drop_unused(&mut self) -> usize {
        let Self { spans, segments, .. } = self;
        let mut pages = 0;
        segments.retain(|segment| {
            let used = spans.values().any(|span| Arc::ptr_eq(&span.segment, segment));
            if !used {
                pages += segment.counted.swap(0, Relaxed);
            }
            used
        });
        pages
    }
}

impl Pager {
    /// Has memory mapped that processes share when they fork, and pages it. `map` maps so many bytes of a
    /// file, from an offset on, shared, and returns where; none if that fails.
    ///
    /// # Errors
    /// There can be no such file (see [`can_share`]), or no more space; then nothing was mapped.
    pub fn share(
        &self,
        len: usize,
        map: impl FnOnce(RawFd, usize) -> Option<usize>,
    ) -> io::Result<Option<usize>> {
        let options = &self.inner.options;
        let held: u64 = self.inner.sharing.lock().segments.iter().map(|segment| segment.len as u64).sum();
        let limit = options.store_limit.saturating_sub(held);
        let segment = Arc::new(Segment::create(&options.directory, len, limit)?);
        let mut table = self.inner.sharing.lock();
        let Some(start) = map(segment.file.as_raw_fd(), DATA) else { return Ok(None) };
        // The kernel would read 128 KiB and more for each page missed, which a tight budget drops unused.
        // SAFETY: changes what a fault reads, not contents.
        unsafe { libc::syscall(libc::SYS_madvise, start, len, libc::MADV_RANDOM) };
        table.remove(start, start + len);
        table.segments.push(Arc::clone(&segment));
        table.spans.insert(start, Span { end: start + len, segment, offset: 0 });
        self.inner.noted(&mut table);
        self.inner.start_sweeping(&mut table)?;
        Ok(Some(start))
    }

    /// Calls `change`, which unmaps the range or maps something else there, and forgets what was shared in it; none
    /// if it stays as it is.
    pub fn unshare<T>(&self, start: usize, len: usize, change: impl FnOnce() -> Option<T>) -> Option<T> {
        if !self.shares_any() {
            return change();
        }
        let mut table = self.inner.sharing.lock();
        let result = change();
        let mut gone = table.remove(start, start.saturating_add(len));
        if result.is_none() {
            // Some kernels unmap what was there before they refuse what was to be there instead.
            let stays = |(at, span): &mut (usize, Span)| uffd::is_mapped(*at, span.end - *at);
            table.spans.extend(gone.extract_if(.., stays));
        }
        self.inner.noted(&mut table);
        drop(table);
        // Files are closed here at the latest, when the table is nobody's.
        drop(gone);
        result
    }

    /// Calls `remap`, which moves a mapping of `len` bytes and makes it `new_len` bytes long; it returns the
    /// new start, or none if nothing happened. With `keep` the old addresses stay mapped.
    pub fn remap_shared(
        &self,
        from: usize,
        (len, new_len): (usize, usize),
        keep: bool,
        remap: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        if !self.shares_any() {
            return remap();
        }
        let mut table = self.inner.sharing.lock();
        let to = remap()?;
        // Of the mapping that it lies in, where the length says nothing: then it is mapped a second time.
        let moved = table.remove(from, from + len.max(PAGE));
        let replaced = table.remove(to, to + new_len);
        for (at, Span { end, segment, offset }) in moved {
            if keep || len == 0 {
                table.spans.insert(at, Span { end, segment: Arc::clone(&segment), offset });
            }
            // A mapping that grows goes on in the file, or beyond its end.
            let last = end - from >= len;
            let end = if last { to + new_len } else { (at - from + to + (end - at)).min(to + new_len) };
            if at - from < new_len {
                table.spans.insert(at - from + to, Span { end, segment, offset });
            }
        }
        self.inner.noted(&mut table);
        drop(table);
        drop(replaced);
        Some(to)
    }

    /// Whether any memory is shared.
    #[must_use]
    pub fn shares_any(&self) -> bool {
        self.inner.sharing.count.load(Relaxed) > 0
    }
}

impl Inner {
    /// The table has changed.
    fn noted(&self, table: &mut Table) {
        self.sharing.count.store(table.spans.len(), Relaxed);
        self.frames.give(table.drop_unused());
    }
}

#[cfg(test)]
mod tests {
    use super::super::PagerOptions;
    use super::*;
    use std::time::{Duration, Instant};

    const DRAM: usize = 8 << 20;

    /// A pager that can share memory; none, said so, where it cannot.
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
            // SAFETY: what `map` mapped, used no more.
            let result = unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), len) };
            (result == 0).then_some(())
        });
        unmapped.expect("it is mapped");
    }

    fn words(start: usize, len: usize) -> &'static [AtomicU64] {
        // SAFETY: what `map` mapped, as long as it is mapped.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), len / 8) }
    }

    /// Waits until it holds.
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
            let table = inner.sharing.lock();
            sweep::cached(&table.segments[0].file, 0, DATA + len).unwrap()
        };
        until("shared memory stays beyond the budget", || there() * PAGE <= DRAM);
        until("what is there is accounted for", || inner.frames.paged() == there());
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
        let spans = || -> Vec<(usize, usize, usize)> {
            let table = pager.inner.sharing.lock();
            table.spans.iter().map(|(at, span)| (*at, span.end, span.offset)).collect()
        };
        let rest = start + 2 * WINDOW;
        assert_eq!(spans(), [(start, start + WINDOW, 0), (rest, start + len, 2 * WINDOW)]);
        let (old, new) = (len - 2 * WINDOW, len);
        let to = pager.remap_shared(rest, (old, new), false, || {
            let at = std::ptr::with_exposed_provenance_mut(rest);
            // SAFETY: moves the mapping of this test.
            Some(unsafe { libc::mremap(at, old, new, libc::MREMAP_MAYMOVE) }.expose_provenance())
        });
        let to = to.unwrap();
        let mut wanted = [(start, start + WINDOW, 0), (to, to + new, 2 * WINDOW)];
        wanted.sort_unstable();
        assert_eq!(spans(), wanted);
        unmap(&pager, to, new);
        unmap(&pager, start, WINDOW);
        assert!(pager.inner.sharing.lock().segments.is_empty());
    }

    #[test]
    fn what_the_store_does_not_allow_is_refused_before_it_is_mapped() {
        let Some(pager) = pager(|options| options.store_limit = 1 << 20) else { return };
        let error = pager.share(2 << 20, |_, _| panic!("there is no file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(can_share(Path::new("/dev/shm")).is_err(), "memory is no place for what leaves memory");
    }
}
