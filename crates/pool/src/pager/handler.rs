//! The threads that serve faults. Each takes faults as they come, starts the reads that they need, and
//! installs pages as reads end; none waits for one read before it starts the next.
//!
//! On machines with few processors there is one handler for each, and stays there: a fault is then served by
//! the processor that the faulting thread has just left. Waking another one costs more than the device read
//! on a virtual machine. While reads are under way a handler looks for their ends without sleeping, for a
//! while; where others want its processor, it sleeps.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLockReadGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::fatal::{call_failed, fatal};
use super::fault::{Coming, Watched};
use super::jobs::Job;
use super::ranges::Trigger;
use super::reads::{Berth, Done, Reads};
use super::stats::add;
use super::{Ground, Inner, PAGE};
use crate::crew::{Crew, Member, Seat};
use crate::lock::lock;
use crate::message::Cause as Why;
use crate::serving::{self, FEW, Serve};

/// Handlers where reads cannot be under way without a thread each, for each processor.
const BLOCKING: usize = 4;
/// Between two questions for faults while reads are under way: asking takes a lock that faults need.
const PERIOD: Duration = Duration::from_micros(4);
/// Faults taken before reads that have ended are looked at.
const TAKEN: usize = 16;

/// The threads.
pub(super) struct Handlers {
    threads: Vec<Option<JoinHandle<()>>>,
}

impl Handlers {
    pub(super) fn start(inner: &Arc<Inner>, begun: &mpsc::Sender<()>) -> io::Result<Self> {
        let processors = serving::processors();
        let ring = inner.options.ring;
        let runs = Reads::runs(inner.dram.load(Relaxed));
        let first = Reads::new(ring, runs);
        let many = first.are_many();
        let count = match inner.options.handlers {
            0 if many => processors.len().min(FEW),
            0 => (processors.len() * BLOCKING).clamp(8, 32),
            count => count,
        };
        let each = many && count == processors.len();
        inner.buffers.store(count * Reads::most_bytes(runs), Relaxed);
        let all = std::iter::once(first).chain(std::iter::repeat_with(|| Reads::new(ring, runs)));
        let all: Vec<Reads> = all.take(count).collect();
        let home = |n: usize| each.then(|| processors[n]);
        let members = all.iter().enumerate().map(|(n, reads)| {
            let (jobs, stop) = (inner.jobs.ready(), inner.jobs.stopped());
            Ok(Member { poll: serving::interests(jobs, stop, reads.as_fd())?, home: home(n) })
        });
        let members = members.collect::<io::Result<_>>()?;
        let on_failure = Box::new(|call, error: &_| fatal(format_args!("{call} failed ({})", Why(error))));
        let crew = Crew::new(members, inner.read().watch.as_fd(), inner.options.keep, on_failure)?;
        let rings = all.iter().filter_map(Reads::as_fd).map(|ring| ring.as_raw_fd());
        lock(&inner.descriptors).extend(crew.descriptors().chain(rings));
        // Once for each pager.
        let _ = inner.crew.set(crew);
        let mut threads = Vec::with_capacity(count);
        for (n, reads) in all.into_iter().enumerate() {
            let (own, begun) = (Arc::clone(inner), begun.clone());
            threads.push(inner.spawn(format!("deepram-page-{n}"), move || {
                let inner = own;
                let seat = inner.seat(n);
                seat.begin();
                let mut handler = Handler::new(&inner, reads, seat);
                tell(&begun);
                serving::run(&mut handler);
            })?);
        }
        Ok(Self { threads })
    }

    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn join(self) {
        for thread in self.threads.into_iter().flatten() {
            // Its panic was reported by the runtime already.
            let _ = thread.join();
        }
    }
}

impl Inner {
    /// Place of the handler of this number. There from when the handlers start.
    pub(super) fn seat(&self, n: usize) -> Seat<'_> {
        let Some(crew) = self.crew.get() else { unreachable!("handlers come after their crew") };
        Seat::new(crew, n)
    }
}

/// Says that a thread of the pager has begun.
pub(super) fn tell(begun: &mpsc::Sender<()>) {
    // Nobody waits if the others could not be started.
    let _ = begun.send(());
}

/// A read under way.
struct Flight {
    /// Pages at neighbouring slots.
    pages: Vec<Coming>,
    cause: Cause,
}

/// Why pages are read.
enum Cause {
    /// A fault of this thread, taken then, and of how many pages its block is.
    Fault(i32, Instant, usize),
    /// They are read ahead of use.
    Ahead(Option<Watched>),
}

/// One handler.
pub(super) struct Handler<'a> {
    inner: &'a Inner,
    seat: Seat<'a>,
    /// Held while anything is under way.
    ground: Option<RwLockReadGuard<'a, Ground>>,
    reads: Reads,
    flights: Vec<(Berth, Flight)>,
    /// Pages that are to come ahead of use and have no berth yet; the last first.
    waiting: Vec<(Vec<Coming>, Option<Watched>)>,
    /// When faults and jobs were last asked for.
    asked: Instant,
}

impl<'a> Handler<'a> {
    pub(super) fn new(inner: &'a Inner, reads: Reads, seat: Seat<'a>) -> Self {
        Self {
            inner,
            seat,
            ground: None,
            reads,
            flights: Vec::new(),
            waiting: Vec::new(),
            asked: Instant::now(),
        }
    }

    /// Does what can be done now; whether that was anything. Leaves the ground if nothing is under way.
    pub(super) fn step(&mut self) -> bool {
        let mut busy = false;
        // Whoever waits for the ground to be at rest is not kept waiting by new faults.
        let quiet = self.inner.writers.load(Relaxed) > 0;
        if self.flights.is_empty() || (!quiet && self.asked.elapsed() >= PERIOD) {
            self.asked = Instant::now();
            busy |= self.take_faults();
            busy |= self.take_jobs();
        }
        self.reads.submit();
        while let Some(done) = self.reads.next() {
            self.arrive(done);
            busy = true;
        }
        if self.flights.is_empty() && self.waiting.is_empty() {
            self.ground = None;
        }
        busy
    }

    fn take_faults(&mut self) -> bool {
        for taken in 0..TAKEN {
            if !self.seat.is_on_duty() {
                return taken > 0;
            }
            let Some(berth) = self.reads.berth(1, false) else { return true };
            let inner = self.inner;
            let ground = self.ground.get_or_insert_with(|| enter(inner, &mut self.seat));
            let next = ground.watch.next().unwrap_or_else(|error| {
                self.seat.failed("read of the userfaultfd", &error);
                None
            });
            let Some(fault) = next else {
                self.reads.give_back(berth);
                return taken > 0;
            };
            let begun = Instant::now();
            // A thread that waits for a read is kept while it is under way, others before they are woken.
            let alone = self.seat.saw(fault.thread);
            if alone && !self.seat.keeps(fault.thread) && !inner.needs_read(ground, fault) {
                self.seat.keep(fault.thread);
            }
            let served = inner.begin(ground, fault);
            if let Some(window) = served.window {
                inner.follow(ground, window);
            }
            if let Some(coming) = served.read {
                let (block, beside) = inner.beside(ground, coming.page);
                self.start(
                    berth,
                    Flight { pages: vec![coming], cause: Cause::Fault(fault.thread, begun, block) },
                );
                self.wait(&beside, inner.probe(&beside));
                if alone {
                    // While the device is at work.
                    self.reads.submit();
                    self.seat.keep(fault.thread);
                }
            } else {
                self.reads.give_back(berth);
                if !served.waits {
                    self.seat.woke(Some(fault.thread));
                }
                inner.counters.count_latency(begun.elapsed());
            }
        }
        true
    }

    fn take_jobs(&mut self) -> bool {
        let mut busy = false;
        loop {
            while let Some((pages, watched)) = self.waiting.pop() {
                let Some(berth) = self.reads.berth(pages.len(), true) else {
                    self.waiting.push((pages, watched));
                    return busy;
                };
                self.start(berth, Flight { pages, cause: Cause::Ahead(watched) });
                busy = true;
            }
            let Some(job) = self.inner.jobs.pop() else { return busy };
            let inner = self.inner;
            let ground = self.ground.get_or_insert_with(|| enter(inner, &mut self.seat));
            let (pages, watched) = match job {
                Job::Window(window, which) => (
                    inner.coming(ground, which.map(|n| window.page(n))),
                    Some((window.first, Trigger::Window)),
                ),
                Job::Pages(pages) => (inner.coming(ground, pages.into_iter()), None),
            };
            self.wait(&pages, watched);
        }
    }

    /// These are to be read as berths allow, neighbours on the store together.
    fn wait(&mut self, pages: &[Coming], watched: Option<Watched>) {
        let follow =
            |a: &Coming, b: &Coming| a.slot.file == b.slot.file && a.slot.number + 1 == b.slot.number;
        self.waiting.extend(pages.chunk_by(follow).rev().map(|run| (run.to_vec(), watched)));
    }

    fn start(&mut self, berth: Berth, flight: Flight) {
        let inner = self.inner;
        let ground = self.ground.get_or_insert_with(|| enter(inner, &mut self.seat));
        self.reads.start(&ground.store, flight.pages[0].slot, berth, flight.pages.len());
        self.flights.push((berth, flight));
        inner.counters.read_begins();
    }

    /// A read has ended: what it brought goes into memory.
    fn arrive(&mut self, Done { berth, whole }: Done) {
        let Some(at) = self.flights.iter().position(|(of, _)| *of == berth) else { return };
        let (_, Flight { pages, cause }) = self.flights.swap_remove(at);
        let inner = self.inner;
        let ground = self.ground.get_or_insert_with(|| enter(inner, &mut self.seat));
        let bytes = self.reads.bytes(berth, pages.len());
        inner.counters.read_ends();
        let read = if whole { Ok(()) } else { inner.read_again(ground, pages[0].slot, bytes) };
        add(&inner.counters.reads, 1);
        add(&inner.counters.bytes_read, bytes.len() as u64);
        match (read, cause) {
            (Ok(()), Cause::Fault(thread, begun, block)) => {
                let window = inner.came(ground, pages[0], block, bytes);
                self.seat.woke(Some(thread));
                self.seat.took(begun.elapsed());
                if let Some(window) = window {
                    inner.follow(ground, window);
                }
                inner.counters.count_latency(begun.elapsed());
            }
            (Ok(()), Cause::Ahead(watched)) => {
                if inner.came_ahead(ground, &pages, bytes, watched) {
                    self.seat.woke(None);
                }
            }
            (Err(error), Cause::Fault(..)) => call_failed("pread", pages[0].page, PAGE, &error),
            // Whoever wants them reads them again, and is told then.
            (Err(_), Cause::Ahead(_)) => inner.did_not_come(ground, &pages),
        }
        self.reads.give_back(berth);
    }
}

/// The ground, for reading. Who waits for it keeps nobody: whoever holds it may want that.
fn enter<'a>(inner: &'a Inner, seat: &mut Seat<'_>) -> RwLockReadGuard<'a, Ground> {
    inner.ground.try_read().unwrap_or_else(|_| {
        seat.rest();
        inner.read()
    })
}

impl<'a> Serve<'a> for Handler<'a> {
    fn step(&mut self, _: bool) -> bool {
        self.step()
    }

    fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    fn seat(&mut self) -> &mut Seat<'a> {
        &mut self.seat
    }
}
