//! Serving the faults of the mapped address. A handler takes a fault as far as it gets without waiting
//! ([`Cache::begin_fault`]); what has to wait, for a frame, for room on flash, for a sync to copy what is frozen, is an errand
//! of threads that do nothing else, so that no read under way waits behind it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use deepram_core::Status;

use super::rights::is_refusal;
use super::{Access, Cache, DIRTY, FROZEN, Index, LOADING, POISONED, RESIDENT, Right, State};
use crate::error::PoolError;
use crate::lock::lock;
use crate::readahead::Window;
use crate::stats::add;

/// How far a fault got.
pub(super) enum Begun {
    /// Whoever waits goes on, or will by somebody else's doing.
    Served,
    /// It is loading now, and has to be read; the cache's generation at that moment.
    Read(u64),
    /// It has to wait.
    Later,
}

/// Faults that have to wait for something.
#[derive(Default)]
pub(super) struct Errands {
    queue: Mutex<Queue>,
    ready: Condvar,
}

#[derive(Default)]
struct Queue {
    faults: VecDeque<(Index, Access)>,
    stopped: bool,
}

impl Errands {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    pub(super) fn push(&self, index: Index, access: Access) {
        self.lock().faults.push_back((index, access));
        self.ready.notify_one();
    }

    /// Has the threads end. Who waits for what is left is told when the pool is shut.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.ready.notify_all();
    }

    /// The next one; waits for it. `None` at the end.
    fn next(&self) -> Option<(Index, Access)> {
        let mut queue = self.lock();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(fault) = queue.faults.pop_front() {
                return Some(fault);
            }
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Cache {
    /// Body of a thread that does errands, with memory for a segment.
    pub(super) fn run_errands(&self, buffer: &mut [u8]) {
        while let Some((index, access)) = self.errands.next() {
            self.serve(index, access, buffer);
        }
    }

    /// Whether a fault finds its segment in DRAM, as far as can be told before it is served.
    pub(super) fn is_resident(&self, index: Index) -> bool {
        self.lock().flags[index as usize] & RESIDENT != 0
    }

    /// Takes a fault as far as it gets without waiting, and says what is to be read ahead.
    pub(super) fn begin_fault(
        &self,
        index: Index,
        right: Right,
    ) -> Result<(Begun, Option<Window>), PoolError> {
        let access = right.access;
        if !self.permit(index, access)? {
            return Ok((Begun::Served, None));
        }
        let mut state = self.lock();
        self.confirm(&state, index, right)?;
        let flags = state.flags[index as usize];
        // The end of the pool wakes the thread, which then gets its signal; a loader's install wakes it too: if it
        // needs more, it faults again.
        if state.stopping || flags & LOADING != 0 {
            return Ok((Begun::Served, None));
        }
        if flags & RESIDENT == 0 {
            match self.begin_load(&mut state, index, access) {
                Ok(true) => {}
                Ok(false) | Err(PoolError::NoSpace { .. }) => return Ok((Begun::Later, None)),
                Err(error) => return Err(error),
            }
            add(&self.counters.faults_missing, 1);
            let window = self.follow(&mut state, index);
            let there = self.load_buffered(&mut state, index, access)?;
            return Ok((if there { Begun::Served } else { Begun::Read(state.generation) }, window));
        }
        let begun = match self.settle_resident(&mut state, index, access) {
            Ok(true) => Begun::Served,
            Ok(false) | Err(PoolError::NoSpace { .. }) => Begun::Later,
            Err(error) => return Err(error),
        };
        Ok((begun, None))
    }

    /// Gives a fault on a resident segment what it needs. False if a store has to wait for a change.
    fn settle_resident(&self, state: &mut State, index: Index, access: Access) -> Result<bool, PoolError> {
        if access == Access::Read {
            return self.wake(index).map(|()| true);
        }
        let flags = state.flags[index as usize];
        // Dirty and protected still: left so by a write-back that failed.
        if !self.make_dirty(state, index)? {
            return Ok(false);
        }
        if flags & DIRTY == 0 || flags & FROZEN != 0 {
            add(&self.counters.faults_write_protected, 1);
        }
        state.policy.touch(index);
        Ok(true)
    }

    /// Serves a fault, however long that takes.
    fn serve(&self, index: Index, access: Access, buffer: &mut [u8]) {
        let right = self.right(access);
        let settled = match self.permit(index, access) {
            // What is dirty is written and older tokens give way before a store fails. Another thread may take
            // the room that comes of it; where there is none to be had, `relieve` says so.
            Ok(true) => loop {
                match self.settle(index, right, buffer) {
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
        if let Ok(()) = self.check(index, access) {
            return Ok(true);
        }
        // Once more, so that what is shown is what the tables say.
        let state = self.lock();
        match self.check(index, access) {
            Err(error) if is_refusal(&error) => {}
            other => return other.map(|()| true),
        }
        let (store, page, _) = self.store_of(index);
        let status = store.status(page)?;
        let shown = if status.allocated() { status } else { Status::default() };
        self.set_access(&state, index / self.stride, page, 1, shown)?;
        self.wake(index).map(|()| false)
    }

    /// Lets who waits for a segment try again.
    pub(super) fn wake(&self, index: Index) -> Result<(), PoolError> {
        self.region
            .wake(self.offset(index), self.segment_bytes)
            .map_err(|source| self.store_of(index).0.device_error("UFFDIO_WAKE", source))
    }

    fn settle(&self, index: Index, right: Right, buffer: &mut [u8]) -> Result<(), PoolError> {
        let access = right.access;
        loop {
            let mut state = self.lock();
            self.confirm(&state, index, right)?;
            // As in `begin_fault`.
            let flags = state.flags[index as usize];
            if state.stopping || flags & LOADING != 0 {
                return Ok(());
            }
            if flags & RESIDENT == 0 {
                self.load(state, index, right, buffer)?;
                if self.lock().flags[index as usize] & (RESIDENT | LOADING) != 0 {
                    add(&self.counters.faults_missing, 1);
                    return Ok(());
                }
                continue;
            }
            if self.settle_resident(&mut state, index, access)? {
                return Ok(());
            }
            drop(self.wait(state));
        }
    }

    /// A fault that cannot be served: the thread gets a signal, the pool remembers why. If it has lost its right
    /// meanwhile, it tries again and is told then.
    pub(super) fn refuse(&self, index: Index, error: PoolError) {
        let mut state = self.lock();
        if is_refusal(&error) {
            return self.wake_or_halt(&mut state, index);
        }
        eprintln!("deepram: an access through the mapped address failed: {error}");
        if let PoolError::NoSpace { .. } = error {
            // Loads go on, stores raise SIGSEGV until there is room again.
            self.bar(&mut state, index);
            state.remember(error);
            return self.wake_or_halt(&mut state, index);
        }
        match state.flags[index as usize] {
            0 => {
                state.flags[index as usize] = POISONED;
                let poisoned = self.region.poison(self.offset(index), self.segment_bytes);
                self.must(&mut state, "UFFDIO_POISON", index, poisoned);
            }
            // Its frame cannot be made to raise a signal, and without one the thread would wait for ever.
            flags if flags & RESIDENT != 0 => self.halt(&mut state, &error.to_string()),
            // Whoever loads it wakes the thread.
            _ => {}
        }
        state.remember(error);
    }

    /// Lets who waits for a segment try again; the pool stops where the kernel does not do so.
    pub(super) fn wake_or_halt(&self, state: &mut State, index: Index) {
        let woken = self.region.wake(self.offset(index), self.segment_bytes);
        self.must(state, "UFFDIO_WAKE", index, woken);
    }
}
