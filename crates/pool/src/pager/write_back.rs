//! Writes of one evictor: those of a batch are under way together, by io_uring where the kernel allows it.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::PAGE;
use super::store::Store;
use crate::ring::{self, PAUSE, TRIES, is_passing};

/// Writes under way at once.
const DEPTH: usize = 64;

/// Neighbouring slots of the own file, from `first` on, and the pages that go there.
pub(super) struct Run<'a> {
    pub(super) first: u32,
    pub(super) pages: Vec<&'a [u8]>,
}

/// The way in which an evictor writes.
pub(super) struct Writes {
    ring: Option<IoUring>,
    /// The kernel does not let it be used any more. Its descriptor stays.
    refused: bool,
}

impl Writes {
    /// By a ring of its own, if the kernel allows it.
    pub(super) fn new(ring: bool) -> Self {
        Self { ring: if ring { ring::plain(DEPTH as u32).ok() } else { None }, refused: false }
    }

    /// The ring's descriptor.
    pub(super) fn raw_fd(&self) -> Option<i32> {
        self.ring.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Writes the runs, and tells of each whether it is on the store.
    pub(super) fn write(&mut self, store: &Store, runs: &[Run<'_>]) -> Vec<io::Result<()>> {
        let mut whole = vec![false; runs.len()];
        if let Some(ring) = self.ring.as_mut().filter(|_| runs.len() > 1) {
            for (n, batch) in runs.chunks(DEPTH).enumerate() {
                // What a ring has not started it must not start later.
                self.refused = self.refused || !together(ring, store, batch, &mut whole[n * DEPTH..]);
            }
        }
        let plainly =
            |(run, whole): (&Run<'_>, bool)| if whole { Ok(()) } else { store.write(run.first, &run.pages) };
        runs.iter().zip(whole).map(plainly).collect()
    }
}

/// Writes runs, at most as many as the ring takes, and marks those that were written whole. `false` if the kernel refuses to start
/// what is left.
fn together(ring: &mut IoUring, store: &Store, runs: &[Run<'_>], whole: &mut [bool]) -> bool {
    let vectors: Vec<Vec<libc::iovec>> =
        runs.iter().map(|run| run.pages.iter().map(vector).collect()).collect();
    let mut under_way = 0;
    for (n, (run, vectors)) in runs.iter().zip(&vectors).enumerate() {
        if vectors.len() > libc::UIO_MAXIOV as usize {
            continue;
        }
        let (fd, offset) = store.place(store.slot(run.first));
        let entry = opcode::Writev::new(types::Fd(fd), vectors.as_ptr(), vectors.len() as u32);
        let entry = entry.offset(offset).build().user_data(n as u64);
        // SAFETY: the vectors and the pages outlive this call, which does not return before all writes that were
        // started have ended, and the ring is not used again if some were not; the descriptor is the store's.
        under_way += usize::from(unsafe { ring.submission().push(&entry) }.is_ok());
    }
    let mut refusals = 0;
    while under_way > 0 {
        if let Err(error) = ring.submit_and_wait(1) {
            refusals += 1;
            if ring.submission().len() == under_way && (!is_passing(&error) || refusals > TRIES) {
                return false;
            }
            // What was started ends by itself.
            std::thread::sleep(PAUSE);
        }
        for entry in ring.completion() {
            under_way -= 1;
            let n = entry.user_data() as usize;
            whole[n] = usize::try_from(entry.result()) == Ok(runs[n].pages.len() * PAGE);
        }
    }
    true
}

fn vector(page: &&[u8]) -> libc::iovec {
    libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: page.len() }
}
