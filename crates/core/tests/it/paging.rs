//! Enumerates every interleaving of a driver's threads over one page of the pager: two threads of a program, two fault
//! handlers, an evictor and a drain of the victim buffer. No store is lost, no stale page is mapped, no fault waits for ever,
//! and every frame and slot is accounted for. With any one rule of the driver broken, the enumeration must find it.

use deepram_core::paging::{FaultAction, PageState, VictimBuffer};

use crate::interleavings::{Interleaved, Thread, explore};

const THREADS: usize = 2;
const HANDLERS: usize = 2;
const FRAMES: usize = 2;
const SLOTS: usize = 3;
/// Contents of a slot that is free, or of a frame without a page.
const NOTHING: u8 = u8::MAX;

/// The rule of the driver that is broken in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A page that can be stored to is copied before it is protected.
    CopiesBeforeProtecting,
    /// A clean page that can be stored to leaves as if it equalled its slot.
    LeavesUnverified,
    /// A slot is freed before its page has been read.
    FreesSlotEarly,
    /// A page that leaves does not wake the thread that has faulted on it meanwhile.
    ForgetsFaultOnLeavingPage,
    /// A page that arrives does not wake the thread that has faulted on it meanwhile.
    ForgetsFaultOnArrivingPage,
    /// The drain of the victim buffer takes a page without a look at its state.
    DrainsReturningPage,
    /// The drain forgets a page that is still on its way into the buffer.
    ForgetsLeavingPage,
    /// A page that came back while it was written counts as clean.
    TrustsLateWrite,
    /// A frame whose page has come back during its write is not released.
    LeaksFrame,
    /// Contents are dropped while the page is in transit.
    DiscardsInTransit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Access {
    Load,
    Store,
}

/// Where a handler goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Handler {
    Idle,
    Zeros,
    Reads {
        slot: u8,
        store: bool,
        trigger: bool,
    },
    HasRead {
        slot: u8,
        store: bool,
        trigger: bool,
        version: u8,
    },
    Returns {
        frame: u32,
        store: bool,
    },
    HasSlot {
        frame: u32,
        store: bool,
        slot: Option<u8>,
    },
    HasReturned {
        frame: u32,
        store: bool,
        slot: Option<u8>,
        checksum: Option<u8>,
    },
    /// The page is installed; its state is set next.
    Installed(Arrived),
}

/// The states in which an installation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Arrived {
    Dirty,
    Clean { slot: u8, checksum: Option<u8> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Evictor {
    Idle,
    /// Protect the page, copy it, verify the copy, unmap the page: steps 0 to 3; then set its state.
    Evicts {
        frame: u32,
        dirty: bool,
        step: u8,
    },
    /// The page is in the frame, and is written next.
    Writes {
        frame: u32,
    },
    HasWritten {
        frame: u32,
        slot: u8,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    state: PageState<u8>,
    /// The version with which a clean page arrived, if it can be stored to.
    checksum: Option<u8>,
    /// Whether clean pages arrive write-protected instead.
    protects_clean: bool,
    fault_waiting: bool,
    /// The page's version in memory, and whether it is write-protected.
    mapped: Option<(u8, bool)>,
    /// The version that the program must see: the number of its stores since the contents were dropped; 0 is zeros.
    newest: u8,
    buffer: VictimBuffer<u8>,
    frames: [u8; FRAMES],
    /// The version in each slot of the swap file, [`NOTHING`] in a free one.
    slots: [u8; SLOTS],
    charged: i8,
    threads: [Thread; THREADS],
    handlers: [Handler; HANDLERS],
    evictor: Evictor,
    drain: Option<u32>,
    /// What may still happen.
    accesses: u8,
    evictions: u8,
    discards: u8,
    failures: u8,
    readaheads: u8,
}

impl World {
    fn new([accesses, evictions, discards, failures, readaheads]: [u8; 5], protects_clean: bool) -> Self {
        Self {
            state: PageState::Fresh,
            checksum: None,
            protects_clean,
            fault_waiting: false,
            mapped: None,
            newest: 0,
            buffer: VictimBuffer::new(FRAMES),
            frames: [NOTHING; FRAMES],
            slots: [NOTHING; SLOTS],
            charged: 0,
            threads: [Thread::Runs; THREADS],
            handlers: [Handler::Idle; HANDLERS],
            evictor: Evictor::Idle,
            drain: None,
            accesses,
            evictions,
            discards,
            failures,
            readaheads,
        }
    }

    /// The kernel lets all threads that wait for the page retry.
    fn wake(&mut self) {
        self.threads = [Thread::Runs; THREADS];
    }

    fn install(&mut self, version: u8, protected: bool) -> Result<(), String> {
        if self.mapped.is_some() {
            return Err("a page is installed over another".into());
        }
        self.mapped = Some((version, protected));
        self.wake();
        Ok(())
    }

    /// Installs a dirty page, or a clean one: with its checksum, or write-protected.
    fn install_for(&mut self, dirty: bool, version: u8) -> Result<Option<u8>, String> {
        let protected = !dirty && self.protects_clean;
        self.install(version, protected)?;
        Ok((!dirty && !protected).then_some(version))
    }

    fn unprotect(&mut self) {
        if let Some((_, protected)) = &mut self.mapped {
            *protected = false;
        }
        self.wake();
    }

    fn free_slot(&mut self, slot: u8) -> Result<(), String> {
        let version = std::mem::replace(&mut self.slots[slot as usize], NOTHING);
        if version == NOTHING { Err(format!("slot {slot} is freed twice")) } else { Ok(()) }
    }

    fn access(&mut self, thread: usize, access: Access) -> Result<(), String> {
        self.accesses -= 1;
        let write = access == Access::Store;
        match &mut self.mapped {
            Some((version, protected)) if !(write && *protected) => {
                if *version != self.newest {
                    return Err(format!("version {version} is mapped, not {}", self.newest));
                }
                if write {
                    *version += 1;
                    self.newest += 1;
                }
            }
            _ => self.threads[thread] = Thread::Faulted { write, taken: false },
        }
        Ok(())
    }

    /// A handler takes the fault of a thread.
    fn take_fault(&mut self, handler: usize, thread: usize, write: bool) -> Result<(), String> {
        self.threads[thread] = Thread::Faulted { write, taken: true };
        self.handlers[handler] = match self.state.fault(write) {
            FaultAction::InstallZeros => Handler::Zeros,
            FaultAction::Read(slot) => Handler::Reads { slot, store: write, trigger: false },
            FaultAction::Return(frame) => Handler::Returns { frame, store: write },
            FaultAction::FirstStore(slot) => {
                self.unprotect();
                return self.free_slot(slot);
            }
            FaultAction::Retry { unprotect } => {
                if unprotect {
                    self.unprotect();
                }
                self.wake();
                return Ok(());
            }
            FaultAction::Wait => {
                self.fault_waiting = true;
                return Ok(());
            }
        };
        Ok(())
    }

    fn set_state(&mut self, state: PageState<u8>, wakes: bool) {
        self.state = state;
        if std::mem::take(&mut self.fault_waiting) && wakes {
            self.wake();
        }
    }

    fn advance_handler(&mut self, handler: usize, broken: Broken) -> Result<(), String> {
        self.handlers[handler] = match self.handlers[handler] {
            Handler::Idle => return Ok(()),
            Handler::Zeros => {
                self.charged += 1;
                self.install(0, false)?;
                Handler::Installed(Arrived::Dirty)
            }
            Handler::Reads { slot, store, trigger } => {
                self.charged += 1;
                if broken == Broken::FreesSlotEarly && store {
                    self.free_slot(slot)?;
                }
                let version = self.slots[slot as usize];
                Handler::HasRead { slot, store, trigger, version }
            }
            Handler::HasRead { slot, trigger: true, version, .. } => {
                if let Some(frame) = self.buffer.insert(0, Some(slot)) {
                    self.frames[frame as usize] = version;
                    self.set_state(
                        PageState::InVictimBuffer(frame),
                        broken != Broken::ForgetsFaultOnArrivingPage,
                    );
                    Handler::Idle
                } else {
                    Handler::HasRead { slot, store: false, trigger: false, version }
                }
            }
            Handler::HasRead { slot, store, version, .. } => {
                let checksum = self.install_for(store, version)?;
                if store && broken != Broken::FreesSlotEarly {
                    self.free_slot(slot)?;
                }
                Handler::Installed(if store { Arrived::Dirty } else { Arrived::Clean { slot, checksum } })
            }
            Handler::Returns { frame, store } => {
                let slot = self.buffer.slot(frame);
                Handler::HasSlot { frame, store, slot }
            }
            Handler::HasSlot { frame, store, slot } => {
                self.charged += 1;
                let checksum = self.install_for(store || slot.is_none(), self.frames[frame as usize])?;
                Handler::HasReturned { frame, store, slot, checksum }
            }
            Handler::HasReturned { frame, store, slot, checksum } => {
                let slot = if broken == Broken::TrustsLateWrite { self.buffer.slot(frame) } else { slot };
                let store = store && broken != Broken::TrustsLateWrite;
                let returned = self.buffer.returned(frame, slot, store);
                if returned.frame_freed {
                    self.free_frame(frame);
                }
                if let Some(slot) = returned.obsolete {
                    self.free_slot(slot)?;
                }
                let clean = |slot| Arrived::Clean { slot, checksum };
                Handler::Installed(returned.clean.map_or(Arrived::Dirty, clean))
            }
            Handler::Installed(arrived) => {
                let (state, checksum) = match arrived {
                    Arrived::Dirty => (PageState::Dirty, None),
                    Arrived::Clean { slot, checksum } => (PageState::Clean(slot), checksum),
                };
                self.checksum = checksum;
                self.set_state(state, broken != Broken::ForgetsFaultOnArrivingPage);
                Handler::Idle
            }
        };
        Ok(())
    }

    fn free_frame(&mut self, frame: u32) {
        self.frames[frame as usize] = NOTHING;
        self.charged -= 1;
    }

    /// Begins to evict the page, if it is in memory.
    fn begin_eviction(&mut self) {
        let Some(resident) = self.state.resident() else { return };
        let Some(frame) = self.buffer.insert(0, resident.slot()) else { return };
        self.state.evict();
        self.evictor = Evictor::Evicts { frame, dirty: resident.slot().is_none(), step: 0 };
    }

    fn advance_evictor(&mut self, fails: bool, broken: Broken) -> Result<(), String> {
        self.evictor = match self.evictor {
            Evictor::Idle => Evictor::Idle,
            Evictor::Evicts { frame, mut dirty, step: 2 } => {
                let changed = self.checksum.is_some_and(|checksum| checksum != self.frames[frame as usize]);
                if !dirty && changed && broken != Broken::LeavesUnverified {
                    let slot = self.buffer.write_back_changed(frame).ok_or("the page has no slot")?;
                    self.free_slot(slot)?;
                    dirty = true;
                }
                Evictor::Evicts { frame, dirty, step: 3 }
            }
            Evictor::Evicts { frame, dirty, step } if step < 4 => {
                let protects = if broken == Broken::CopiesBeforeProtecting { 1 } else { 0 };
                let (version, protected) =
                    self.mapped.as_mut().ok_or("a page that is evicted is not mapped")?;
                match step {
                    3 => self.mapped = None,
                    _ if step == protects => *protected |= dirty || self.checksum.is_some(),
                    _ => self.frames[frame as usize] = *version,
                }
                Evictor::Evicts { frame, dirty, step: step + 1 }
            }
            Evictor::Evicts { frame, dirty, .. } => {
                self.state.leave_memory(frame);
                self.set_state(self.state, broken != Broken::ForgetsFaultOnLeavingPage);
                if dirty { Evictor::Writes { frame } } else { Evictor::Idle }
            }
            Evictor::Writes { frame } if fails => {
                self.failures -= 1;
                let restored = self.state.is_in_frame(frame);
                if restored {
                    self.install(self.frames[frame as usize], false)?;
                    self.state = PageState::Dirty;
                    self.charged += 1;
                }
                if self.buffer.write_failed(frame, restored) {
                    self.free_frame(frame);
                }
                Evictor::Idle
            }
            Evictor::Writes { frame } => {
                let slot =
                    self.slots.iter().position(|version| *version == NOTHING).ok_or("no slot is free")?;
                self.slots[slot] = self.frames[frame as usize];
                Evictor::HasWritten { frame, slot: slot as u8 }
            }
            Evictor::HasWritten { frame, slot } => {
                if self.buffer.write_ended(frame, slot) {
                    if broken != Broken::LeaksFrame {
                        self.free_frame(frame);
                    }
                    self.free_slot(slot)?;
                }
                Evictor::Idle
            }
        };
        Ok(())
    }

    fn advance_drain(&mut self, broken: Broken) -> Result<(), String> {
        match self.drain.take() {
            None => self.drain = self.buffer.oldest().map(|leaving| leaving.frame),
            Some(frame) if self.state.is_leaving() && broken != Broken::ForgetsLeavingPage => {
                self.buffer.keep(frame);
            }
            Some(frame) if self.state.is_in_frame(frame) || broken == Broken::DrainsReturningPage => {
                if let Some(slot) = self.buffer.leave(frame) {
                    self.state = PageState::Stored(slot);
                    self.free_frame(frame);
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.handlers == [Handler::Idle; HANDLERS] && self.evictor == Evictor::Idle && self.drain.is_none()
    }

    /// Drops the page's contents.
    fn discard(&mut self) -> Result<(), String> {
        self.discards -= 1;
        // A page in transit keeps its state, and the driver's thread goes on.
        let Ok(discarded) = self.state.discard() else {
            (self.mapped, self.newest) = (None, 0);
            return Ok(());
        };
        if let Some(slot) = discarded.slot {
            self.free_slot(slot)?;
        }
        if let Some(frame) = discarded.frame {
            if let Some(slot) = self.buffer.take(frame) {
                self.free_slot(slot)?;
            }
            self.free_frame(frame);
        }
        self.charged -= i8::from(discarded.resident);
        (self.mapped, self.newest) = (None, 0);
        Ok(())
    }
}

impl Interleaved for World {
    type Broken = Broken;

    fn successors(&self, broken: Broken) -> Result<Vec<World>, String> {
        let mut all = Vec::new();
        let mut step = |change: &dyn Fn(&mut World) -> Result<(), String>| {
            let mut next = self.clone();
            change(&mut next).map_err(|what| format!("{what}\n{self:#?}"))?;
            all.push(next);
            Ok::<(), String>(())
        };
        for (thread, now) in self.threads.into_iter().enumerate() {
            if now == Thread::Runs && self.accesses > 0 {
                step(&|world| world.access(thread, Access::Load))?;
                step(&|world| world.access(thread, Access::Store))?;
            }
        }
        for handler in 0..HANDLERS {
            if self.handlers[handler] != Handler::Idle {
                step(&|world| world.advance_handler(handler, broken))?;
                continue;
            }
            for (thread, now) in self.threads.into_iter().enumerate() {
                if let Thread::Faulted { write, taken: false } = now {
                    step(&|world| world.take_fault(handler, thread, write))?;
                }
            }
            for trigger in [false, true].into_iter().filter(|_| self.readaheads > 0) {
                step(&|world| {
                    world.readaheads -= 1;
                    if let Some(slot) = world.state.claim() {
                        world.handlers[handler] = Handler::Reads { slot, store: false, trigger };
                    }
                    Ok(())
                })?;
            }
            if self.readaheads > 0 {
                step(&|world| {
                    world.readaheads -= 1;
                    if let Some(frame) = world.state.claim_buffered() {
                        world.handlers[handler] = Handler::Returns { frame, store: false };
                    }
                    Ok(())
                })?;
            }
        }
        match self.evictor {
            Evictor::Idle if self.evictions > 0 => {
                step(&|world| {
                    world.evictions -= 1;
                    world.begin_eviction();
                    Ok(())
                })?;
            }
            Evictor::Idle => {}
            _ => step(&|world| world.advance_evictor(false, broken))?,
        }
        if matches!(self.evictor, Evictor::Writes { .. }) && self.failures > 0 {
            step(&|world| world.advance_evictor(true, broken))?;
        }
        step(&|world| world.advance_drain(broken))?;
        let in_transit = matches!(self.state, PageState::Incoming | PageState::Evicting);
        let may_discard = if broken == Broken::DiscardsInTransit { in_transit } else { self.is_quiet() };
        if self.discards > 0 && may_discard {
            step(&World::discard)?;
        }
        Ok(all)
    }

    fn check(&self) -> Result<(), String> {
        let used = self.buffer.used_frames() as i8;
        let real = i8::from(self.mapped.is_some()) + used;
        // While a page is evicted, it is in memory and has a frame.
        let spare = i8::from(self.state == PageState::Evicting);
        let fail = |what: &str| Err(format!("{what}\n{self:#?}"));
        if real > self.charged + spare {
            return fail("more frames are in use than are charged");
        }
        let newest_is_at = |version: u8| version == self.newest;
        let there = match self.state {
            PageState::Fresh => self.newest == 0 && self.mapped.is_none(),
            PageState::Clean(slot) => {
                let stored = self.slots[slot as usize];
                match self.checksum {
                    Some(checksum) => {
                        stored == checksum && self.mapped.is_some_and(|(version, _)| newest_is_at(version))
                    }
                    None => newest_is_at(stored) && self.mapped == Some((self.newest, true)),
                }
            }
            PageState::Dirty => self.mapped.is_some_and(|(version, _)| newest_is_at(version)),
            PageState::InVictimBuffer(frame) => {
                let slot = self.buffer.stored_at(frame);
                self.mapped.is_none()
                    && newest_is_at(self.frames[frame as usize])
                    && slot.is_none_or(|slot| newest_is_at(self.slots[slot as usize]))
            }
            PageState::Stored(slot) => self.mapped.is_none() && newest_is_at(self.slots[slot as usize]),
            PageState::Incoming | PageState::Evicting => {
                self.mapped.is_none_or(|(version, _)| newest_is_at(version))
            }
        };
        if !there {
            return fail("the page's newest version is not where its state says");
        }
        if self.is_quiet() {
            if self.charged != real {
                return fail("a frame is charged that nothing uses");
            }
            let named = match self.state {
                PageState::Clean(slot) | PageState::Stored(slot) => Some(slot),
                PageState::InVictimBuffer(frame) => self.buffer.slot(frame),
                _ => None,
            };
            let in_use = self.slots.iter().filter(|version| **version != NOTHING).count();
            if in_use != usize::from(named.is_some()) {
                return fail("a slot is in use that nothing names");
            }
            if let PageState::InVictimBuffer(frame) = self.state
                && self.buffer.stored_at(frame).is_some()
                && self.buffer.clone().oldest().is_none_or(|oldest| oldest.frame != frame)
            {
                return fail("a page in the victim buffer never leaves it");
            }
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.threads == [Thread::Runs; THREADS]
    }
}

#[test]
fn in_no_order_is_a_store_lost_or_does_a_fault_wait_for_ever() {
    for limits in [[5, 2, 0, 0, 0], [4, 2, 0, 0, 1], [4, 1, 1, 0, 1], [4, 2, 0, 1, 0]] {
        for protects_clean in [false, true] {
            let states = explore(World::new(limits, protects_clean), Broken::Nothing).unwrap();
            assert!(states > 10_000, "{states} states with {limits:?}, protects clean: {protects_clean}");
        }
    }
}

#[test]
fn each_broken_rule_is_found_in_some_order() {
    let starts = [false, true].map(|protects_clean| World::new([5, 2, 1, 0, 0], protects_clean));
    for start in starts.clone() {
        explore(start, Broken::Nothing).unwrap();
    }
    for broken in [
        Broken::CopiesBeforeProtecting,
        Broken::LeavesUnverified,
        Broken::FreesSlotEarly,
        Broken::ForgetsFaultOnLeavingPage,
        Broken::ForgetsFaultOnArrivingPage,
        Broken::DrainsReturningPage,
        Broken::ForgetsLeavingPage,
        Broken::TrustsLateWrite,
        Broken::LeaksFrame,
        Broken::DiscardsInTransit,
    ] {
        let found = starts.clone().map(|start| explore(start, broken));
        assert!(found.iter().any(Result::is_err), "{broken:?} was not found in {found:?} states");
    }
}
