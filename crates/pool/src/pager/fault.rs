//! Bringing pages in: handler threads that take faults, and pages to be read ahead, one at a time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, epoll, eventfd};

use super::ahead::Window;
use super::ranges::{Layout, Place, Slot, lock};
use super::stats::add;
use super::watch::Fault;
use super::{Ground, Inner, PAGE};
use crate::buffer::AlignedBuf;

/// Pages of one transfer ahead of use, and of one fault on fresh memory at most.
const BATCH: usize = 64;
/// Stack of a handler: it needs little, and there are many.
const STACK: usize = 256 << 10;
/// Tries of a read that fails, before the program is ended.
const TRIES: usize = 3;

/// Pages to be read ahead.
pub(super) struct Jobs {
    queue: Mutex<VecDeque<Window>>,
    /// Readable while there are jobs.
    ready: OwnedFd,
    stop: OwnedFd,
}

impl Jobs {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let ready = eventfd(0, flags | EventfdFlags::SEMAPHORE)?;
        Ok(Self { queue: Mutex::default(), ready, stop: eventfd(0, flags)? })
    }

    fn push(&self, window: Window) {
        lock(&self.queue).push_back(window);
        // Fails only at 2^64 - 1 jobs.
        let _ = rustix::io::write(&self.ready, &1_u64.to_ne_bytes());
    }

    fn pop(&self) -> Option<Window> {
        let mut count = [0; 8];
        // Nothing to read: another handler was faster.
        let _ = rustix::io::read(&self.ready, &mut count);
        lock(&self.queue).pop_front()
    }

    pub(super) fn stop(&self) {
        // Eight bytes into an eventfd always fit.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    pub(super) fn descriptors(&self) -> [i32; 2] {
        [self.ready.as_raw_fd(), self.stop.as_raw_fd()]
    }
}

/// The threads.
pub(super) struct Handlers {
    threads: Vec<JoinHandle<()>>,
}

/// What a handler owns.
pub(super) struct Scratch {
    bytes: AlignedBuf,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self { bytes: AlignedBuf::zeroed(BATCH * PAGE) }
    }
}

const FAULT: u64 = 0;
const STOP: u64 = 1;
const JOB: u64 = 2;

impl Handlers {
    pub(super) fn start(inner: &Arc<Inner>, begun: &mpsc::Sender<()>) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let count = match inner.options.handlers {
            0 => (processors * 4).clamp(8, 32),
            count => count,
        };
        let mut threads = Vec::with_capacity(count);
        for n in 0..count {
            let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            // SAFETY: the descriptor lives as long as the ground, which `inner` keeps.
            let watch = unsafe { BorrowedFd::borrow_raw(inner.read().watch.raw_fd()) };
            // Exclusive: a fault wakes one idle handler, not all of them.
            let once = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&poll, watch, epoll::EventData::new_u64(FAULT), once)?;
            epoll::add(&poll, inner.jobs.ready.as_fd(), epoll::EventData::new_u64(JOB), once)?;
            let stop = inner.jobs.stop.as_fd();
            epoll::add(&poll, stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
            lock(&inner.descriptors).push(poll.as_raw_fd());
            let (inner, begun) = (Arc::clone(inner), begun.clone());
            let thread = std::thread::Builder::new()
                .name(format!("deepram-page-{n}"))
                .stack_size(STACK)
                .spawn(move || {
                    inner.begin_thread(&begun);
                    inner.handle(&poll);
                })?;
            threads.push(thread);
        }
        Ok(Self { threads })
    }

    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn join(self) {
        for thread in self.threads {
            // Its panic was reported by the runtime already.
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// What every thread does first.
    pub(super) fn begin_thread(&self, begun: &mpsc::Sender<()>) {
        self.options.on_thread.iter().for_each(|begin| begin());
        // Nobody waits if the others could not be started.
        let _ = begun.send(());
    }

    fn handle(&self, poll: &OwnedFd) {
        let mut scratch = Scratch::new();
        let empty =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(FAULT) };
        let mut events = [empty; 3];
        loop {
            let n = match epoll::wait(poll, &mut events, None) {
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            for event in &events[..n] {
                match event.data.u64() {
                    STOP => return,
                    JOB => {
                        if let Some(window) = self.jobs.pop() {
                            self.read_ahead(window, &mut scratch);
                        }
                    }
                    _ => self.serve_waiting(&mut scratch),
                }
            }
        }
    }

    /// Serves the faults that wait.
    pub(super) fn serve_waiting(&self, scratch: &mut Scratch) {
        while let Some(fault) = self.next_fault() {
            let begun = Instant::now();
            self.serve(fault, scratch);
            self.counters.latency(begun.elapsed());
        }
    }

    fn next_fault(&self) -> Option<Fault> {
        // An error means that the descriptor is unusable, and the end of all faults.
        self.read().watch.next().ok().flatten()
    }

    fn serve(&self, fault: Fault, scratch: &mut Scratch) {
        let page = fault.address / PAGE * PAGE;
        let window = {
            let ground = self.read();
            if ground.layout.contains(page) {
                self.bring(&ground, page, fault.write, scratch)
            } else {
                // Unmapped meanwhile: the thread gets its signal.
                let _ = ground.watch.wake(page, PAGE);
                None
            }
        };
        if let Some(window) = window {
            self.order(window);
        }
    }

    /// Has a window read in pieces, by several handlers.
    fn order(&self, window: Window) {
        add(&self.counters.windows, 1);
        let mut done = 0;
        while done < window.count {
            let count = (window.count - done).min(BATCH);
            let first = window.first.wrapping_add_signed(window.stride.wrapping_mul(done.cast_signed()));
            self.jobs.push(Window { first, count, ..window });
            done += count;
        }
    }

    /// Serves a fault on a managed page. Returns what is to be read ahead.
    fn bring(&self, ground: &Ground, page: usize, write: bool, scratch: &mut Scratch) -> Option<Window> {
        let (mut chunk, at) = ground.layout.chunk(page)?;
        let state = &mut chunk[at];
        match state.place {
            Place::Fresh => {
                let count = fresh_window(&chunk, at, page, &ground.layout);
                chunk[at..at + count].iter_mut().for_each(|page| page.place = Place::Coming);
                drop(chunk);
                add(&self.counters.faults_fresh, 1);
                self.reserve(ground, count);
                scratch.bytes[..count * PAGE].fill(0);
                let installed = ground.watch.install(page, &scratch.bytes[..count * PAGE], false);
                self.settle(ground, page, (installed, count), Place::Dirty, Place::Fresh);
                None
            }
            Place::Stored(slot) => {
                state.stored_to |= write;
                let writable = state.stored_to;
                state.place = Place::Coming;
                drop(chunk);
                add(&self.counters.faults_read, 1);
                self.reserve(ground, 1);
                if let Err(error) = self.fetch(ground, slot, &mut scratch.bytes[..PAGE]) {
                    fail(page, &error);
                }
                let installed = ground.watch.install(page, &scratch.bytes[..PAGE], !writable);
                let place = if writable { Place::Dirty } else { Place::Clean(slot) };
                if installed == 1 && writable {
                    ground.store.give_up(slot);
                }
                self.settle(ground, page, (installed, 1), place, Place::Stored(slot));
                if self.options.ahead { lock(&self.runs).miss(page) } else { None }
            }
            Place::Waiting(number) => {
                let trigger = std::mem::take(&mut state.trigger);
                state.stored_to |= write;
                let writable = state.stored_to;
                state.place = Place::Coming;
                drop(chunk);
                self.come_back(ground, page, number, writable);
                if trigger {
                    add(&self.counters.windows_used, 1);
                    return lock(&self.runs).used(page);
                }
                None
            }
            Place::Clean(slot) if write => {
                let unprotected = ground.watch.unprotect(page, PAGE);
                debug_assert!(unprotected.is_ok(), "{unprotected:?}");
                ground.store.give_up(slot);
                state.place = Place::Dirty;
                state.stored_to = true;
                add(&self.counters.faults_stored, 1);
                None
            }
            Place::Clean(_) | Place::Dirty => {
                // Served for another thread meanwhile, or protected beside a page that was.
                let _ =
                    if write { ground.watch.unprotect(page, PAGE) } else { ground.watch.wake(page, PAGE) };
                None
            }
            Place::Coming | Place::Leaving => {
                state.wanted = true;
                None
            }
        }
    }

    /// From the waiting room into memory. The page is `Coming`, and so its frame is ours.
    fn come_back(&self, ground: &Ground, page: usize, number: u32, writable: bool) {
        add(&self.counters.faults_returned, 1);
        let (bytes, slot) = {
            let mut room = lock(&self.room);
            (room.bytes(number), room.frame(number).slot)
        };
        // SAFETY: a frame of the room, which is not given to anybody else before `leave` below; whoever
        // writes it to the store only reads it as well.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, PAGE) };
        // Not on the store yet: dirty, whatever becomes of the write.
        let writable = writable || slot.is_none();
        self.frames.take(1);
        let installed = ground.watch.install(page, bytes, !writable);
        let mut room = lock(&self.room);
        let frame = room.frame(number);
        let written = frame.slot.filter(|_| slot.is_none());
        if frame.state == super::room::FrameState::Writing {
            frame.state = super::room::FrameState::Left;
        } else {
            room.leave(number);
            self.frames.give(1);
        }
        drop(room);
        if let Some(written) = written {
            // Just now, and too late: the page is dirty.
            ground.store.give_up(written);
        }
        let place = match slot {
            Some(slot) if !writable => Place::Clean(slot),
            Some(slot) => {
                ground.store.give_up(slot);
                Place::Dirty
            }
            None => Place::Dirty,
        };
        // A page that cannot be installed has been unmapped behind our back: its bytes are gone with it.
        self.settle(ground, page, (installed, 1), place, Place::Fresh);
    }

    /// Ends the coming of pages: so many of so many are at `place`, the others back where they were.
    fn settle(
        &self,
        ground: &Ground,
        page: usize,
        (came, count): (usize, usize),
        place: Place,
        before: Place,
    ) {
        if let Some((mut chunk, at)) = ground.layout.chunk(page) {
            for (n, state) in chunk[at..at + count].iter_mut().enumerate() {
                state.place = if n < came { place } else { before };
                if std::mem::take(&mut state.wanted) {
                    // Its fault came in between, and may be about more than was done.
                    let _ = ground.watch.wake(page + n * PAGE, PAGE);
                }
            }
        }
        let mut policy = lock(&self.policy);
        (0..came).for_each(|n| policy.insert((page / PAGE + n) as u64));
        drop(policy);
        if came < count {
            let _ = ground.watch.wake(page + came * PAGE, (count - came) * PAGE);
            self.frames.give(count - came);
        }
    }

    fn fetch(&self, ground: &Ground, slot: Slot, to: &mut [u8]) -> io::Result<()> {
        let mut result = Ok(());
        for _ in 0..TRIES {
            result = ground.store.read(slot, to);
            if result.is_ok() {
                add(&self.counters.reads, 1);
                add(&self.counters.bytes_read, to.len() as u64);
                return result;
            }
            add(&self.counters.failures, 1);
        }
        result
    }

    /// Counts frames as used, making room first where there is none.
    fn reserve(&self, ground: &Ground, count: usize) {
        self.frames.take(count);
        if self.frames.excess(0) > 0 && !self.overcommitted.load(Relaxed) {
            add(&self.counters.stalls, 1);
            self.make_room_now(ground, count);
        }
        if self.frames.excess(self.headroom()) > 0 {
            self.nudge();
        }
    }

    /// Reads pages of a window that are on the store. The first of a window that is to be seen used goes to
    /// the waiting room.
    fn read_ahead(&self, window: Window, scratch: &mut Scratch) {
        let ground = self.read();
        let mut pages: Vec<(usize, Slot, bool)> = Vec::with_capacity(window.count);
        for n in 0..window.count {
            let page = window.first.wrapping_add_signed(window.stride.wrapping_mul(n.cast_signed()));
            if !ground.layout.contains(page) {
                continue;
            }
            let Some((mut chunk, at)) = ground.layout.chunk(page) else { continue };
            if let Place::Stored(slot) = chunk[at].place {
                pages.push((page, slot, chunk[at].stored_to));
                chunk[at].place = Place::Coming;
            }
        }
        if pages.is_empty() {
            return;
        }
        add(&self.counters.read_ahead, pages.len() as u64);
        self.reserve(&ground, pages.len());
        pages.sort_unstable();
        let slots_follow = |a: &(usize, Slot, bool), b: &(usize, Slot, bool)| {
            a.1.file == b.1.file && a.1.number + 1 == b.1.number
        };
        for run in pages.chunk_by(slots_follow) {
            let bytes = &mut scratch.bytes[..run.len() * PAGE];
            if self.fetch(&ground, run[0].1, bytes).is_err() {
                for (page, slot, _) in run {
                    self.settle(&ground, *page, (0, 1), Place::Fresh, Place::Stored(*slot));
                }
                continue;
            }
            self.arrive(&ground, run, bytes, window);
        }
    }

    /// Installs pages read ahead, neighbours together.
    fn arrive(&self, ground: &Ground, run: &[(usize, Slot, bool)], bytes: &[u8], window: Window) {
        let mut done = 0;
        let together = |a: &(usize, Slot, bool), b: &(usize, Slot, bool)| {
            let triggers = self.triggers(a.0, window) || self.triggers(b.0, window);
            a.0 + PAGE == b.0 && a.2 == b.2 && !triggers && b.0 < Layout::chunk_end(a.0)
        };
        for part in run.chunk_by(together) {
            let (page, slot, stored_to) = part[0];
            let here = &bytes[done * PAGE..(done + part.len()) * PAGE];
            done += part.len();
            if self.triggers(page, window) && self.set_trigger(ground, page, slot, here) {
                continue;
            }
            let installed = ground.watch.install(page, here, !stored_to);
            if let Some((mut chunk, at)) = ground.layout.chunk(page) {
                for (n, (state, (page, slot, _))) in chunk[at..].iter_mut().zip(part).enumerate() {
                    state.place = match n < installed {
                        true if stored_to => Place::Dirty,
                        true => Place::Clean(*slot),
                        false => Place::Stored(*slot),
                    };
                    if state.place == Place::Dirty {
                        ground.store.give_up(*slot);
                    }
                    if std::mem::take(&mut state.wanted) {
                        let _ = ground.watch.wake(*page, PAGE);
                    }
                }
            }
            self.frames.give(part.len() - installed);
            let mut policy = lock(&self.policy);
            part[..installed].iter().for_each(|(page, ..)| policy.insert((page / PAGE) as u64));
        }
    }

    /// Whether the page's use is to have the next window read: it is the first of a whole window, of which
    /// this may be a piece.
    fn triggers(&self, page: usize, window: Window) -> bool {
        page == window.first && lock(&self.runs).awaits(page)
    }

    /// Puts a trigger into the waiting room; `false` if there is no room.
    fn set_trigger(&self, ground: &Ground, page: usize, slot: Slot, bytes: &[u8]) -> bool {
        let Some((mut chunk, at)) = ground.layout.chunk(page) else { return false };
        let mut room = lock(&self.room);
        let Some(number) = room.admit(page, Some(slot), super::room::FrameState::Waiting) else {
            return false;
        };
        // SAFETY: the frame was free; nobody knows of it before the place below names it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.bytes(number), PAGE) };
        drop(room);
        let state = &mut chunk[at];
        state.place = Place::Waiting(number);
        state.trigger = true;
        if std::mem::take(&mut state.wanted) {
            let _ = ground.watch.wake(page, PAGE);
        }
        true
    }

    /// Has what is stored of a range brought in.
    pub(super) fn will_need(&self, start: usize, len: usize) {
        let stride = PAGE.cast_signed();
        let spans = self.read().layout.within(start / PAGE * PAGE, start + len);
        for (from, to) in spans {
            let count = (to - from).div_ceil(PAGE);
            self.order(Window { first: from, stride, count });
        }
    }
}

/// How many fresh pages one fault brings: as many as were touched one after the other before it.
fn fresh_window(chunk: &[super::ranges::Page], at: usize, page: usize, layout: &Layout) -> usize {
    let before = chunk[..at].iter().rev().take(BATCH);
    let touched = before.take_while(|page| !matches!(page.place, Place::Fresh)).count();
    let end = layout.within(page, page + BATCH * PAGE).first().map_or(page, |(_, end)| *end);
    let most = ((end - page) / PAGE).clamp(1, touched.max(1));
    chunk[at..].iter().take(most).take_while(|page| page.place == Place::Fresh).count().max(1)
}

/// A page that cannot be had: the thread that waits must not go on with other bytes.
pub(super) fn fail(page: usize, error: &io::Error) -> ! {
    eprintln!("deepram: the memory at {page:#x} is lost ({error}); the program cannot go on");
    std::process::abort()
}
