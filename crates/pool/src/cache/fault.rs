//! Serving the faults of the mapped address: a few threads, each of which takes one fault at a
//! time from the userfaultfd, so that as many device reads are under way as threads are faulting
//! (up to their number).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use deepram_core::Status;
use deepram_core::cache::Replacement;
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::{Access, Cache, DIRTY, FROZEN, Index, LOADING, POISONED, RESIDENT};
use crate::buffer::AlignedBuf;
use crate::error::PoolError;
use crate::stats::add;
use crate::uffd::{Fault, Uffd};

/// Threads that serve faults: two for each processor, since most of their time is device time.
fn handler_count() -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    (processors * 2).clamp(4, 32)
}

/// The threads that serve faults. Dropping it stops and joins them.
pub(crate) struct Handlers {
    stop: OwnedFd,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    /// Bytes that the handlers' buffers take.
    pub(crate) fn memory_bytes(segment: usize) -> usize {
        handler_count() * segment
    }

    pub(crate) fn start(cache: &Arc<Cache>) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut handlers = Self { stop, threads: Vec::new() };
        let Some(watch) = cache.region.watcher().map(Uffd::raw_fd) else { return Ok(handlers) };
        for n in 0..handler_count() {
            let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            // SAFETY: the descriptor lives as long as the region, which `cache` keeps.
            let watch = unsafe { BorrowedFd::borrow_raw(watch) };
            // Exclusive: a fault wakes one idle handler, not all of them.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&poll, watch, epoll::EventData::new_u64(FAULT), flags)?;
            epoll::add(&poll, &handlers.stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
            let cache = Arc::clone(cache);
            let thread = std::thread::Builder::new()
                .name(format!("deepram-fault-{n}"))
                .spawn(move || serve(&cache, &poll))?;
            handlers.threads.push(thread);
        }
        Ok(handlers)
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // Eight bytes into an eventfd always fit.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

const FAULT: u64 = 0;
const STOP: u64 = 1;

fn serve(cache: &Cache, poll: &OwnedFd) {
    let mut buffer = AlignedBuf::zeroed(cache.segment_bytes());
    let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(FAULT) };
    let mut events = [empty; 2];
    loop {
        let n = match epoll::wait(poll, &mut events, None) {
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        };
        if events[..n].iter().any(|e| e.data.u64() == STOP) {
            return;
        }
        while let Ok(Some((offset, fault))) = cache.region.next_fault() {
            cache.serve(offset, fault, &mut buffer);
        }
    }
}

impl Cache {
    fn serve(&self, offset: usize, fault: Fault, buffer: &mut [u8]) {
        let index = (offset / self.segment_bytes) as Index;
        let access = if fault.write { Access::Write } else { Access::Read };
        let settled = match self.permit(index, access) {
            // What is dirty is written and older tokens give way before a store fails. Another thread may take
            // the room that comes of it; where there is none to be had, `relieve` says so.
            Ok(true) => loop {
                match self.settle(index, access, buffer) {
                    Err(PoolError::NoSpace { .. }) => {
                        if let Err(error) = self.relieve(index) {
                            break Err(error);
                        }
                    }
                    settled => break settled,
                }
            },
            Ok(false) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = settled {
            self.refuse(index, error);
        }
    }

    /// Whether the page allows the access. If not, its protection is set so that the thread gets
    /// SIGSEGV when it tries again.
    fn permit(&self, index: Index, access: Access) -> Result<bool, PoolError> {
        let (store, page, _) = self.store_of(index);
        let status = store.status(page)?;
        let allowed = status.allocated()
            && match access {
                Access::Read => status.readable(),
                Access::Write => status.writable(),
            };
        if !allowed {
            let shown = if status.allocated() { status } else { Status::default() };
            self.set_access(index / self.stride, page, 1, shown)?;
            self.wake(index)?;
        }
        Ok(allowed)
    }

    fn wake(&self, index: Index) -> Result<(), PoolError> {
        self.region
            .wake(self.offset(index), self.segment_bytes)
            .map_err(|source| self.store_of(index).0.device_error("UFFDIO_WAKE", source))
    }

    fn settle(&self, index: Index, access: Access, buffer: &mut [u8]) -> Result<(), PoolError> {
        loop {
            let mut state = self.lock();
            if state.stopping {
                // The end of the pool wakes the thread, which then gets its signal.
                return Ok(());
            }
            let flags = state.flags[index as usize];
            if flags & LOADING != 0 {
                // The loader's install wakes the thread; if it needs more, it faults again.
                return Ok(());
            }
            if flags & RESIDENT == 0 {
                add(&self.counters.faults_missing, 1);
                self.load(state, index, access, buffer)?;
                if self.lock().flags[index as usize] & (RESIDENT | LOADING) != 0 {
                    return Ok(());
                }
                continue;
            }
            if access == Access::Read {
                drop(state);
                return self.wake(index);
            }
            if flags & DIRTY == 0 || flags & FROZEN != 0 {
                add(&self.counters.faults_write_protected, 1);
            }
            // Dirty and protected still: left so by a write-back that failed.
            match self.make_dirty(state, index)? {
                Some(guard) => state = guard,
                None => continue,
            }
            state.clock.touch(index);
            return Ok(());
        }
    }

    /// A fault that cannot be served: the thread gets a signal, the pool remembers why.
    fn refuse(&self, index: Index, error: PoolError) {
        let mut state = self.lock();
        let offset = self.offset(index);
        if let PoolError::NoSpace { .. } = error {
            // Loads go on, stores raise SIGSEGV until there is room again.
            let len = self.per_page as usize * self.segment_bytes;
            let page = offset / len * len;
            let first = index / self.per_page * self.per_page;
            if self.region.set_access(page, len, true, false).is_ok() {
                state.refused.push(first);
            }
            eprintln!("deepram: a store through the mapped address failed: {error}");
            state.remember(error);
            drop(state);
            // A failure here leaves the thread waiting; the message above says why.
            let _ = self.region.wake(offset, self.segment_bytes);
            return;
        }
        eprintln!("deepram: an access through the mapped address failed: {error}");
        state.remember(error);
        if state.flags[index as usize] == 0 {
            state.flags[index as usize] = POISONED;
            let poisoned = self.region.poison(offset, self.segment_bytes);
            debug_assert!(poisoned.is_ok(), "{poisoned:?}");
        }
    }

    /// Allows stores again where the full device had made pages read-only.
    pub(crate) fn readmit(&self) {
        let mut state = self.lock();
        let len = self.per_page as usize * self.segment_bytes;
        for first in std::mem::take(&mut state.refused) {
            // If it stays read-only the next store faults and is judged anew.
            let _ = self.region.set_access(self.offset(first), len, true, true);
        }
    }
}
