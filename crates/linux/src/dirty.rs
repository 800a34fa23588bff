//! The pages of a mapping to which a program has stored, from the kernel's page table.
//!
//! Pages are write-protected through a userfaultfd that resolves its faults by itself (`WP_ASYNC`): the first store to
//! a page costs a page fault in the kernel, and no thread handles it. `PAGEMAP_SCAN` lists the pages that are not
//! protected, and protects them again in the same step. Any memory can be watched, that of DAX files included. A scan
//! walks the page table of its range: see `docs/adr/0036` for its cost and for the list of faults that avoids it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use linux_raw_sys::general as raw;

use crate::userfault;

/// `_IOWR('f', 16, struct pm_scan_arg)`; linux-raw-sys has the structure but not the number.
const PAGEMAP_SCAN: u32 = 0xC060_6610;
/// Runs of pages that one call reports.
const RUNS: usize = 64;

const _: () = assert!(size_of::<raw::pm_scan_arg>() == 0x60, "the ioctl number holds the size");

/// The reason why stored-to pages cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum DirtyError {
    /// The process may not use userfaultfd, or the kernel has none.
    #[error(
        "dirty pages cannot be found: userfaultfd is not available ({0}); run as root or with CAP_SYS_PTRACE, set \
         vm.unprivileged_userfaultfd=1, or give access to /dev/userfaultfd"
    )]
    Userfaultfd(io::Error),
    /// The kernel is too old.
    #[error(
        "dirty pages cannot be found: this kernel's userfaultfd lacks WP_ASYNC; Linux 6.7 or later is needed"
    )]
    Asynchronous,
    /// `/proc/self/pagemap` cannot be opened.
    #[error("dirty pages cannot be found: opening /proc/self/pagemap failed: {0}")]
    Pagemap(io::Error),
    /// The kernel has no `PAGEMAP_SCAN`.
    #[error("dirty pages cannot be found: this kernel lacks PAGEMAP_SCAN (Linux 6.7 or later has it): {0}")]
    Scan(io::Error),
    /// The memory cannot be watched.
    #[error("dirty pages cannot be found: {call} failed on the memory: {source}")]
    Watch {
        /// The call.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Bytes of a page of this machine.
#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: reads a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Finds the pages to which this process has stored, in ranges that it watches. Dropping it ends the watch.
#[derive(Debug)]
pub struct DirtyPages {
    uffd: OwnedFd,
    pagemap: OwnedFd,
}

impl DirtyPages {
    /// Watches no memory yet.
    ///
    /// # Errors
    /// The kernel lacks a feature, or the process the right to use it; the error names it.
    pub fn new() -> Result<Self, DirtyError> {
        let features = raw::UFFD_FEATURE_WP_ASYNC | raw::UFFD_FEATURE_WP_UNPOPULATED;
        let uffd = userfault::open(true, None).map_err(DirtyError::Userfaultfd)?;
        userfault::handshake(&uffd, u64::from(features)).map_err(|_| DirtyError::Asynchronous)?;
        let pagemap = std::fs::File::open("/proc/self/pagemap").map_err(DirtyError::Pagemap)?.into();
        let dirty = Self { uffd, pagemap };
        // An empty range tells whether the kernel knows the call.
        dirty.examine(0..0, false, &mut |_| {}).map_err(DirtyError::Scan)?;
        Ok(dirty)
    }

    /// The descriptors that this value keeps open.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [self.uffd.as_raw_fd(), self.pagemap.as_raw_fd()].into_iter()
    }

    /// Watches a range of whole pages, all of which are clean at first. The range must be mapped. Mappings with huge
    /// pages count a huge page as dirty whole.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn watch(&self, range: Range<usize>) -> Result<(), DirtyError> {
        let (start, len) = (range.start, range.len());
        let refused = |call| move |source| DirtyError::Watch { call, source };
        userfault::register(&self.uffd, start, len, raw::UFFDIO_REGISTER_MODE_WP)
            .map_err(refused("UFFDIO_REGISTER"))?;
        userfault::write_protect(&self.uffd, start, len, true).map_err(refused("UFFDIO_WRITEPROTECT"))
    }

    /// Reports the dirty pages of a watched range of whole pages to `found`, as runs of addresses in ascending order.
    /// With `clear` they are clean from then on; looking and clearing is one step for each page, and no translation
    /// that a processor caches hides a later store.
    ///
    /// # Errors
    /// The kernel's error, `EPERM` for memory that is not watched. The pages reported before it may be cleared.
    pub fn examine(
        &self,
        range: Range<usize>,
        clear: bool,
        found: &mut dyn FnMut(Range<usize>),
    ) -> io::Result<()> {
        let flags = if clear { raw::PM_SCAN_WP_MATCHING | raw::PM_SCAN_CHECK_WPASYNC } else { 0 };
        let written = u64::from(raw::PAGE_IS_WRITTEN);
        let mut runs = [raw::page_region { start: 0, end: 0, categories: 0 }; RUNS];
        let mut start = range.start as u64;
        loop {
            let mut request = raw::pm_scan_arg {
                size: size_of::<raw::pm_scan_arg>() as u64,
                flags: u64::from(flags),
                start,
                end: range.end as u64,
                walk_end: 0,
                vec: runs.as_mut_ptr().expose_provenance() as u64,
                vec_len: RUNS as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: written,
                category_anyof_mask: 0,
                return_mask: written,
            };
            // SAFETY: the request takes this structure, which outlives the call and names a buffer of this many runs.
            let n = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut request) };
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            for run in &runs[..n as usize] {
                found(run.start as usize..run.end as usize);
            }
            if n == 0 || request.walk_end >= range.end as u64 {
                return Ok(());
            }
            start = request.walk_end;
        }
    }
}

#[cfg(test)]
mod tests;
