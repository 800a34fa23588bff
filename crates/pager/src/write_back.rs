//! Write-back of dirty pages by one evictor: the writes of a batch are in flight together, by io_uring where the kernel
//! allows it.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::PAGE;
use super::swap_file::SwapFile;
use deepram_linux::uring::{self, RETRY_PAUSE, SUBMIT_RETRIES, is_transient};

/// Largest number of writes in flight at once.
const DEPTH: usize = 64;

/// A write of pages to neighbouring slots of the process's own swap file, from `first` on.
pub(super) struct WriteRun<'a> {
    pub(super) first: u32,
    pub(super) pages: Vec<&'a [u8]>,
}

/// Writes for an evictor, through a ring if there is one.
pub(super) struct WriteBack {
    ring: Option<IoUring>,
    /// The kernel no longer allows this ring. Its descriptor stays open.
    refused: bool,
}

impl WriteBack {
    /// Creates a ring if `ring` is set and the kernel allows one; writes are synchronous otherwise.
    pub(super) fn new(ring: bool) -> Self {
        Self { ring: if ring { uring::standard(DEPTH as u32).ok() } else { None }, refused: false }
    }

    /// Descriptor of the ring.
    pub(super) fn raw_fd(&self) -> Option<i32> {
        self.ring.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Writes the runs. Returns the result of each.
    pub(super) fn write(&mut self, swap_file: &SwapFile, runs: &[WriteRun<'_>]) -> Vec<io::Result<()>> {
        let mut complete = vec![false; runs.len()];
        if let Some(ring) = self.ring.as_mut().filter(|_| runs.len() > 1) {
            for (n, batch) in runs.chunks(DEPTH).enumerate() {
                // The ring must not start these writes later.
                self.refused =
                    self.refused || !write_batch(ring, swap_file, batch, &mut complete[n * DEPTH..]);
            }
        }
        let write_synchronously = |(run, complete): (&WriteRun<'_>, bool)| {
            if complete { Ok(()) } else { swap_file.write(run.first, &run.pages) }
        };
        runs.iter().zip(complete).map(write_synchronously).collect()
    }
}

/// Writes at most as many runs as the ring takes, and marks those that were written completely. Returns `false` if the
/// kernel refuses to start the others.
fn write_batch(
    ring: &mut IoUring,
    swap_file: &SwapFile,
    runs: &[WriteRun<'_>],
    complete: &mut [bool],
) -> bool {
    let vectors: Vec<Vec<libc::iovec>> =
        runs.iter().map(|run| run.pages.iter().map(vector).collect()).collect();
    let mut in_flight = 0;
    for (n, (run, vectors)) in runs.iter().zip(&vectors).enumerate() {
        if vectors.len() > libc::UIO_MAXIOV as usize {
            continue;
        }
        let (fd, offset) = swap_file.location(swap_file.slot(run.first));
        let entry = opcode::Writev::new(types::Fd(fd), vectors.as_ptr(), vectors.len() as u32);
        let entry = entry.offset(offset).build().user_data(n as u64);
        // SAFETY: the vectors and the pages outlive this call, which returns only after all writes that were started
        // have completed, and the ring is not used again if some were not started; the descriptor is the swap file's.
        in_flight += usize::from(unsafe { ring.submission().push(&entry) }.is_ok());
    }
    let mut refusals = 0;
    while in_flight > 0 {
        if let Err(error) = ring.submit_and_wait(1) {
            refusals += 1;
            if ring.submission().len() == in_flight && (!is_transient(&error) || refusals > SUBMIT_RETRIES) {
                return false;
            }
            // Started writes complete by themselves.
            std::thread::sleep(RETRY_PAUSE);
        }
        for entry in ring.completion() {
            in_flight -= 1;
            let n = entry.user_data() as usize;
            complete[n] = usize::try_from(entry.result()) == Ok(runs[n].pages.len() * PAGE);
        }
    }
    true
}

fn vector(page: &&[u8]) -> libc::iovec {
    libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: page.len() }
}
