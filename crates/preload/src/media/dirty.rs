//! The dirty pages of mapped files, for selective flushing.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use deepram_core::persist::{FlushStep, Geometry, RangeFlush, SyncMode};
use deepram_linux::descriptors::replace_own;
use deepram_linux::dirty::{DirtyPages, page_bytes};
use deepram_linux::flush::{Flusher, Method};

use super::spin_lock::SpinLock;
use super::{files, settings};
use crate::setup;

static DIRTY: SpinLock<Option<DirtyPages>> = SpinLock::new(None);

/// Watches a range from now on, if flushes are selective: its pages are clean at first.
pub(super) fn watch(start: usize, end: usize) {
    if !settings().is_some_and(|settings| settings.selective) {
        return;
    }
    let watched = DIRTY.with(|dirty| {
        if dirty.is_none() {
            let new = DirtyPages::new().map_err(|error| error.to_string())?;
            replace_own(&new.descriptors().collect::<Vec<_>>());
            *dirty = Some(new);
        }
        let pages = dirty.as_ref().map_or(Ok(()), |dirty| dirty.watch(start..end));
        pages.map_err(|error| error.to_string())
    });
    if let Err(error) = watched {
        report(&error);
    }
}

fn report(error: &str) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Relaxed) {
        setup::report(&format!("selective=on: every line of some mapped files is flushed: {error}"));
    }
}

/// Takes the lock, for the time of a fork.
pub(super) fn lock_for_fork() {
    DIRTY.acquire();
}

pub(super) fn unlock_after_fork() {
    DIRTY.release();
}

/// Watches all mapped files anew: what the parent has opened shows the parent's pages.
pub(super) fn begin_in_child() {
    let watched = DIRTY.with(|dirty| dirty.take().is_some());
    if watched {
        for one in files::all().into_iter().filter(|one| one.writable) {
            watch(one.start, one.end);
        }
    }
}

/// Flushes the dirty pages of a watched range, and the barrier that completes it. One flush takes place at a time, so none
/// returns before another has made durable what both would have found dirty. Returns `false` if the range is not watched.
pub(super) fn flush(flusher: Flusher, start: usize, end: usize) -> bool {
    let Ok(geometry) = Geometry::new(page_bytes() as u64, flusher.line() as u64) else { return false };
    let page = geometry.page_bytes() as usize;
    DIRTY.with(|dirty| {
        let Some(dirty) = dirty else { return false };
        let mut flush = RangeFlush::new(geometry, SyncMode::Selective, start as u64..end as u64);
        let stores = flusher.method() == Method::NonTemporal;
        let mut is_cleared = false;
        while let Some(step) = flush.next_step() {
            match step {
                FlushStep::Examine { pages, clear } => {
                    is_cleared = clear;
                    let range = pages.start as usize * page..pages.end as usize * page;
                    let mut found = |run: std::ops::Range<usize>| {
                        flush.found_dirty((run.start / page) as u64..run.end.div_ceil(page) as u64)
                    };
                    if dirty.examine(range, clear, &mut found).is_err() {
                        return false;
                    }
                }
                FlushStep::WriteBack(bytes) => {
                    let from: *const u8 = std::ptr::with_exposed_provenance(bytes.start as usize);
                    // SAFETY: the pages were found dirty, so they are mapped and in memory; the method stores only if the
                    // caller found that safe.
                    unsafe { flusher.flush(from, (bytes.end - bytes.start) as usize) };
                    // Write once flush has stored to the pages, which made them dirty. No other store falls in between: this
                    // method is for processes without other threads.
                    if stores && is_cleared {
                        let range = bytes.start as usize..bytes.end as usize;
                        let _ = dirty.examine(range, true, &mut |_| {});
                    }
                }
                FlushStep::Barrier => flusher.barrier(),
            }
        }
        true
    })
}
