//! Enumerates every interleaving of a pool's threads over one segment of its DRAM cache: two threads of a program, two fault
//! handlers, write-back, syncs and the evictor. No store is lost, no stale segment is mapped, no fault waits for ever, and a
//! sync writes the contents of the moment of its cut. With any one rule of the driver broken, the enumeration must find it.

use deepram_core::paging::SegmentState;
use deepram_core::paging::segment_state::SegmentFault;

use crate::interleavings::{Interleaved, Thread, explore};

const THREADS: usize = 2;
const HANDLERS: usize = 2;

/// The rule of the driver that is broken in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A segment that was filled for a load is installed without write protection.
    InstallsWritable,
    /// A sync does not protect the segments of its cut.
    CutsUnprotected,
    /// A store to a frozen segment does not copy it first.
    SkipsStagedCopy,
    /// Write-back copies a segment that it has not protected.
    CopiesUnprotected,
    /// The evictor drops a segment that is being written.
    DropsWriting,
    /// A fill does not wake the threads whose faults were dropped.
    ForgetsDroppedFaults,
    /// A segment whose write failed counts as clean.
    ForgetsFailedWrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Handler {
    Idle,
    /// The segment is being filled: it is read next, then installed.
    Reads {
        write: bool,
    },
    HasRead {
        write: bool,
        version: u8,
    },
    /// A store waits until the frozen segment has been copied, because no frame is free for a staged copy.
    Deferred,
}

/// The thread that holds the log: write-back, or a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Writer {
    Idle,
    /// The segment has been taken or, by a sync, cut at this version; it is copied next.
    Copies {
        cut: Option<u8>,
    },
    /// The copy is written next, and published.
    Writes {
        version: u8,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    state: SegmentState,
    /// The segment's version in its frame, and whether it is write-protected.
    mapped: Option<(u8, bool)>,
    /// The version that the program must see.
    newest: u8,
    /// The version that the tables name.
    flash: u8,
    /// The copy that a thread has made of the frozen segment before its store.
    staged: Option<u8>,
    /// Whether a frame is free for a staged copy.
    staging: bool,
    threads: [Thread; THREADS],
    handlers: [Handler; HANDLERS],
    writer: Writer,
    accesses: u8,
    writes: u8,
    evictions: u8,
    failures: u8,
}

impl World {
    fn new([accesses, writes, evictions, failures]: [u8; 4], staging: bool) -> Self {
        Self {
            state: SegmentState::ABSENT,
            mapped: None,
            newest: 0,
            flash: 0,
            staged: None,
            staging,
            threads: [Thread::Runs; THREADS],
            handlers: [Handler::Idle; HANDLERS],
            writer: Writer::Idle,
            accesses,
            writes,
            evictions,
            failures,
        }
    }

    fn wake(&mut self) {
        self.threads = [Thread::Runs; THREADS];
    }

    fn protect(&mut self, protected: bool) {
        if let Some((_, now)) = &mut self.mapped {
            *now = protected;
        }
    }

    fn access(&mut self, thread: usize, write: bool) -> Result<(), String> {
        self.accesses -= 1;
        match &mut self.mapped {
            Some((version, protected)) if !(write && *protected) => {
                if *version != self.newest {
                    return Err(format!("version {version} is mapped, not {}", self.newest));
                }
                *version += u8::from(write);
                self.newest += u8::from(write);
            }
            _ => self.threads[thread] = Thread::Faulted { write, taken: false },
        }
        Ok(())
    }

    /// Serves a store to the resident segment. Returns `false` if it has to wait.
    fn store(&mut self, broken: Broken) -> bool {
        if self.state.needs_copy() {
            if !self.staging {
                return false;
            }
            if broken != Broken::SkipsStagedCopy {
                self.staged = self.mapped.map(|(version, _)| version);
            }
            self.state.copied();
        }
        self.protect(false);
        self.state.make_dirty();
        self.wake();
        true
    }

    fn serve(&mut self, handler: usize, write: bool, broken: Broken) {
        self.handlers[handler] = match self.state.fault() {
            SegmentFault::Dropped => Handler::Idle,
            SegmentFault::Fill => {
                self.state.begin_fill();
                Handler::Reads { write }
            }
            SegmentFault::Resident if write => {
                if self.store(broken) {
                    Handler::Idle
                } else {
                    Handler::Deferred
                }
            }
            SegmentFault::Resident => {
                self.wake();
                Handler::Idle
            }
        };
    }

    fn advance_handler(&mut self, handler: usize, broken: Broken) {
        self.handlers[handler] = match self.handlers[handler] {
            Handler::Idle => Handler::Idle,
            Handler::Reads { write } => Handler::HasRead { write, version: self.flash },
            Handler::HasRead { write, version } => {
                self.mapped = Some((version, !write && broken != Broken::InstallsWritable));
                self.state.end_fill();
                if write {
                    self.state.make_dirty();
                }
                if broken == Broken::ForgetsDroppedFaults {
                    // The thread whose fault began the fill is woken alone; both threads may have the same access.
                    let mine = Thread::Faulted { write, taken: true };
                    if let Some(thread) = self.threads.iter().position(|thread| *thread == mine) {
                        self.threads[thread] = Thread::Runs;
                    }
                } else {
                    self.wake();
                }
                Handler::Idle
            }
            Handler::Deferred => return self.serve(handler, true, broken),
        };
    }

    /// Write-back takes the dirty segment, or a sync cuts it.
    fn begin_write(&mut self, sync: bool, broken: Broken) {
        self.writes -= 1;
        if !self.state.is_dirty() || !self.state.may_be_taken() {
            return;
        }
        if sync {
            self.state.cut();
            self.protect(broken != Broken::CutsUnprotected);
            self.writer = Writer::Copies { cut: Some(self.newest) };
        } else {
            self.state.take();
            self.writer = Writer::Copies { cut: None };
        }
    }

    fn advance_writer(&mut self, fails: bool, broken: Broken) -> Result<(), String> {
        self.writer = match self.writer {
            Writer::Idle => Writer::Idle,
            _ if fails => {
                self.failures -= 1;
                self.staged = None;
                if self.state.write_failed() && broken != Broken::ForgetsFailedWrite {
                    self.protect(false);
                    self.state.make_dirty();
                }
                Writer::Idle
            }
            Writer::Copies { cut } => {
                if self.state.is_protected_to_copy() && broken != Broken::CopiesUnprotected {
                    self.protect(true);
                }
                let version = match self.staged.take() {
                    Some(version) => version,
                    None => {
                        self.state.copied();
                        self.mapped.ok_or("a segment that is being written has no frame")?.0
                    }
                };
                if cut.is_some_and(|cut| cut != version) {
                    return Err(format!("a sync that cut {cut:?} writes {version}"));
                }
                Writer::Writes { version }
            }
            Writer::Writes { version } => {
                self.flash = version;
                self.state.written();
                Writer::Idle
            }
        };
        Ok(())
    }

    fn evict(&mut self, broken: Broken) {
        self.evictions -= 1;
        let drops = if broken == Broken::DropsWriting {
            self.state.is_resident() && !self.state.is_dirty()
        } else {
            self.state.may_drop()
        };
        if drops {
            self.mapped = None;
            self.state.clear();
        }
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
                step(&|world| world.access(thread, false))?;
                step(&|world| world.access(thread, true))?;
            }
        }
        for handler in 0..HANDLERS {
            if self.handlers[handler] != Handler::Idle {
                step(&|world| {
                    world.advance_handler(handler, broken);
                    Ok(())
                })?;
                continue;
            }
            for (thread, now) in self.threads.into_iter().enumerate() {
                if let Thread::Faulted { write, taken: false } = now {
                    step(&|world| {
                        world.threads[thread] = Thread::Faulted { write, taken: true };
                        world.serve(handler, write, broken);
                        Ok(())
                    })?;
                }
            }
        }
        if self.writer != Writer::Idle {
            step(&|world| world.advance_writer(false, broken))?;
            if self.failures > 0 {
                step(&|world| world.advance_writer(true, broken))?;
            }
        } else if self.writes > 0 {
            for sync in [false, true] {
                step(&|world| {
                    world.begin_write(sync, broken);
                    Ok(())
                })?;
            }
        }
        if self.evictions > 0 {
            step(&|world| {
                world.evict(broken);
                Ok(())
            })?;
        }
        Ok(all)
    }

    fn check(&self) -> Result<(), String> {
        let fail = |what: &str| Err(format!("{what}\n{self:#?}"));
        if self.state.is_resident() != self.mapped.is_some() {
            return fail("a segment is mapped if and only if it is resident");
        }
        match self.mapped {
            Some((version, _)) if version != self.newest => return fail("a stale segment is mapped"),
            None if self.flash != self.newest => return fail("the newest version is not on flash"),
            Some((_, protected)) if self.state.may_drop() && !(protected && self.flash == self.newest) => {
                return fail("a clean segment can be stored to unseen, or is not on flash");
            }
            _ => {}
        }
        let idle = self.writer == Writer::Idle;
        if idle && (self.state.is_writing() || self.state.needs_copy() || self.staged.is_some()) {
            return fail("a segment waits for a write that nobody makes");
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.threads == [Thread::Runs; THREADS]
    }
}

#[test]
fn in_no_order_does_the_cache_lose_a_store_or_a_sync_write_another_moment() {
    for staging in [true, false] {
        for limits in [[6, 2, 2, 0], [5, 3, 1, 1]] {
            let states = explore(World::new(limits, staging), Broken::Nothing).unwrap();
            assert!(states > 3_000, "{states} states with {limits:?}");
        }
    }
}

#[test]
fn each_broken_rule_of_the_cache_is_found_in_some_order() {
    let start = World::new([6, 2, 2, 1], true);
    explore(start.clone(), Broken::Nothing).unwrap();
    for broken in [
        Broken::InstallsWritable,
        Broken::CutsUnprotected,
        Broken::SkipsStagedCopy,
        Broken::CopiesUnprotected,
        Broken::DropsWriting,
        Broken::ForgetsDroppedFaults,
        Broken::ForgetsFailedWrite,
    ] {
        let found = explore(start.clone(), broken);
        assert!(found.is_err(), "{broken:?} was not found in {found:?} states");
    }
}
