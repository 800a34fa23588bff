use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use proptest::prelude::*;

use super::*;

/// Memory that is shared as that of a file in `/dev/shm` is.
struct Shared {
    start: *mut u8,
    len: usize,
}

// SAFETY: the tests access the memory through atomics.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(pages: usize) -> Self {
        let len = pages * page_bytes();
        // SAFETY: a new file without a name.
        let fd = unsafe { libc::memfd_create(c"dirty".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: sets the size of the new file, maps it at a free place, and closes the descriptor.
        let start = unsafe {
            assert_eq!(libc::ftruncate(fd, len as libc::off_t), 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd, 0);
            libc::close(fd);
            start
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start.cast(), len }
    }

    fn range(&self) -> Range<usize> {
        self.start.addr()..self.start.addr() + self.len
    }

    fn word(&self, page: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the mapping.
        unsafe { AtomicU64::from_ptr(self.start.add(page * page_bytes()).cast()) }
    }

    /// The dirty pages among these, by number.
    fn dirty(&self, dirty: &DirtyPages, pages: Range<usize>, clear: bool) -> Vec<usize> {
        let at = |page| self.start.addr() + page * page_bytes();
        let mut found = Vec::new();
        let mut add = |run: Range<usize>| {
            let number = |address| (address - self.start.addr()) / page_bytes();
            found.extend(number(run.start)..number(run.end));
        };
        dirty.examine(at(pages.start)..at(pages.end), clear, &mut add).unwrap();
        found
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

fn pages(of: usize) -> Option<(DirtyPages, Shared)> {
    let shared = Shared::new(of);
    match DirtyPages::new() {
        Ok(dirty) => {
            dirty.watch(shared.range()).unwrap();
            Some((dirty, shared))
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn pages_are_dirty_from_a_store_until_they_are_cleared() {
    const PAGES: usize = 300;
    let Some((dirty, shared)) = pages(PAGES) else { return };
    proptest!(ProptestConfig::with_cases(64), |(
        steps in proptest::collection::vec((0usize..PAGES, 0usize..PAGES, 0u8..3), 1..200),
    )| {
        shared.dirty(&dirty, 0..PAGES, true);
        let mut expected = std::collections::BTreeSet::new();
        for (a, b, step) in steps {
            let range = a.min(b)..a.max(b) + 1;
            let within: Vec<usize> = expected.range(range.clone()).copied().collect();
            match step {
                0 => {
                    shared.word(a).fetch_add(1, Relaxed);
                    expected.insert(a);
                }
                1 => prop_assert_eq!(shared.dirty(&dirty, range, false), within),
                _ => {
                    prop_assert_eq!(shared.dirty(&dirty, range.clone(), true), within);
                    expected.retain(|page| !range.contains(page));
                }
            }
        }
    });
}

#[test]
fn more_runs_than_one_call_reports_are_all_found_and_cleared() {
    let Some((dirty, shared)) = pages(1000) else { return };
    let odd: Vec<usize> = (0..1000).filter(|page| page % 2 == 1).collect();
    odd.iter().for_each(|&page| shared.word(page).store(1, Relaxed));
    assert_eq!(shared.dirty(&dirty, 0..1000, true), odd);
    assert_eq!(shared.dirty(&dirty, 0..1000, false), Vec::<usize>::new());
}

#[test]
fn no_store_of_another_thread_is_hidden_by_clearing() {
    let Some((dirty, shared)) = pages(4) else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Relaxed) {
                n += 1;
                shared.word(n as usize % 4).store(n, SeqCst);
            }
        });
        // The values at the last time that each page was clear, before the look.
        let mut seen = [0; 4];
        for round in 0..20_000 {
            let before = shared.dirty(&dirty, 0..4, true);
            let values = [0, 1, 2, 3].map(|page| shared.word(page).load(SeqCst));
            for page in 0..4 {
                // A page that changed since the value was read must be dirty at the next look.
                assert!(
                    before.contains(&page) || values[page] == seen[page] || {
                        // The store fell between the look and the read: the next look finds it.
                        shared.dirty(&dirty, page..page + 1, false) == [page]
                    },
                    "round {round}, page {page}"
                );
            }
            seen = values;
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn memory_that_is_not_watched_is_refused() {
    let Some((dirty, shared)) = pages(1) else { return };
    let other = Shared::new(1);
    let error = dirty.examine(other.range(), true, &mut |_| {}).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    drop(shared);
    let error = dirty.watch(0..page_bytes()).unwrap_err().to_string();
    assert!(
        error.starts_with("dirty pages cannot be found: UFFDIO_REGISTER failed on the memory: "),
        "{error}"
    );
}
