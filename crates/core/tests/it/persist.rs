//! Enumerates every interleaving of two threads that store to persistent memory and flush ranges of it: when a flush
//! returns, every store made before it began survives a crash. With any one rule broken, the enumeration must find a loss.

use std::collections::HashSet;
use std::ops::Range;

use deepram_core::persist::{FlushId, FlushStep, Geometry, InFlight, RangeFlush, SyncMode};
use proptest::prelude::*;

const THREADS: usize = 2;
const PAGES: usize = 2;
const LINES: usize = 4;
const LINE: u64 = 64;
const PAGE: u64 = 128;
/// The ranges that threads flush: all, both pages in part, one page and a part, a part of a line.
const RANGES: [Range<u64>; 4] = [0..256, 64..192, 64..256, 140..150];

fn geometry() -> Geometry {
    Geometry::new(PAGE, LINE).unwrap()
}

/// The rule that is broken in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Dirty bits are cleared after the lines have been written back.
    ClearsAfterWriteBack,
    /// A store falls between the look at a dirty bit and its clearing.
    LooksThenClears,
    /// The dirty bit of a page that is covered in part is cleared.
    ClearsEdges,
    /// The threads' cached translations still say that the page is dirty.
    KeepsTranslations,
    /// The last line of a run is not written back.
    SkipsLine,
    /// The barrier waits for nothing.
    NoBarrier,
    /// Pages that another flush has cleared count as clean.
    IgnoresOthers,
}

/// A flush under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flush {
    machine: RangeFlush,
    id: FlushId,
    range: Range<u64>,
    /// The version of each line when the flush began.
    promised: [u8; LINES],
    step: FlushStep,
    /// Number of pages or lines of the step that are done.
    done: u64,
    /// Whether the page has been looked at and found dirty, and its bit not yet been cleared.
    seen_dirty: Option<bool>,
    /// Pages whose bits are still to be cleared, with [`Broken::ClearsAfterWriteBack`].
    late: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Thread {
    flush: Option<Flush>,
    /// The version of each line that the thread has written back since its last barrier.
    written_back: [u8; LINES],
    /// Whether its cached translation of a page lets it store without setting the dirty bit.
    translation_dirty: [bool; PAGES],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    mode: SyncMode,
    /// Number of stores to each line: its newest version, in the cache.
    stored: [u8; LINES],
    /// The version that survives a crash.
    memory: [u8; LINES],
    /// The version that a flush which has returned has promised.
    durable: [u8; LINES],
    dirty: [bool; PAGES],
    in_flight: InFlight,
    /// The thread that looks at dirty bits.
    lock: Option<usize>,
    threads: [Thread; THREADS],
    stores: u8,
    flushes: u8,
}

impl World {
    fn new(mode: SyncMode, stores: u8, flushes: u8) -> Self {
        Self {
            mode,
            stored: [0; LINES],
            memory: [0; LINES],
            durable: [0; LINES],
            dirty: [false; PAGES],
            in_flight: InFlight::new(),
            lock: None,
            threads: [Thread::default(), Thread::default()],
            stores,
            flushes,
        }
    }

    fn store(&mut self, thread: usize, line: usize) {
        let page = line * LINE as usize / PAGE as usize;
        if !self.threads[thread].translation_dirty[page] {
            self.dirty[page] = true;
            self.threads[thread].translation_dirty[page] = true;
        }
        self.stored[line] += 1;
        self.stores -= 1;
    }

    fn begin(&mut self, thread: usize, range: Range<u64>) {
        let mut machine = RangeFlush::new(geometry(), self.mode, range.clone());
        let step = machine.next_step().unwrap();
        let promised = self.stored;
        let id = self.in_flight.begin();
        let flush = Flush { machine, id, range, promised, step, done: 0, seen_dirty: None, late: Vec::new() };
        self.threads[thread].flush = Some(flush);
        self.flushes -= 1;
    }

    fn clear(&mut self, page: u64, broken: Broken) {
        self.dirty[page as usize] = false;
        if broken != Broken::KeepsTranslations {
            self.threads.iter_mut().for_each(|thread| thread.translation_dirty[page as usize] = false);
        }
    }

    /// Looks at one page. Returns whether its part of the step is done.
    fn examine(&mut self, flush: &mut Flush, page: u64, clear: bool, broken: Broken) -> bool {
        let clear = clear || broken == Broken::ClearsEdges;
        let dirty = flush.seen_dirty.take().unwrap_or(self.dirty[page as usize]);
        if clear && broken == Broken::LooksThenClears && self.dirty[page as usize] != dirty {
            // The second half of the look: a store came in between.
            self.clear(page, broken);
        } else if clear && broken == Broken::ClearsAfterWriteBack {
            flush.late.push(page);
        } else if clear && dirty {
            self.clear(page, broken);
        }
        if dirty {
            flush.machine.found_dirty(page..page + 1);
            if clear {
                self.in_flight.enter(flush.id, page..page + 1);
            }
        }
        if broken != Broken::IgnoresOthers {
            self.in_flight.among(flush.id, page..page + 1).for_each(|run| flush.machine.found_dirty(run));
        }
        true
    }

    /// Carries out one atomic part of a thread's flush. Returns `false` if it must wait.
    fn advance(&mut self, thread: usize, broken: Broken) -> bool {
        let Some(mut flush) = self.threads[thread].flush.take() else { return false };
        let over = match flush.step.clone() {
            FlushStep::Examine { pages, clear } => {
                if self.lock.is_some_and(|holder| holder != thread) {
                    return false;
                }
                self.lock = Some(thread);
                let page = pages.start + flush.done;
                if clear && broken == Broken::LooksThenClears && flush.seen_dirty.is_none() {
                    flush.seen_dirty = Some(self.dirty[page as usize]);
                } else {
                    self.examine(&mut flush, page, clear, broken);
                    flush.done += 1;
                }
                let over = pages.start + flush.done == pages.end;
                if over {
                    self.lock = None;
                }
                over
            }
            FlushStep::WriteBack(bytes) => {
                let lines = geometry().lines_of(&bytes);
                let line = lines.start + flush.done;
                let last = line + 1 == lines.end;
                if !(last && broken == Broken::SkipsLine) {
                    self.threads[thread].written_back[line as usize] = self.stored[line as usize];
                }
                flush.done += 1;
                last
            }
            FlushStep::Barrier => {
                std::mem::take(&mut flush.late).into_iter().for_each(|page| self.clear(page, broken));
                if broken != Broken::NoBarrier {
                    for (memory, version) in self.memory.iter_mut().zip(self.threads[thread].written_back) {
                        *memory = version.max(*memory);
                    }
                }
                true
            }
        };
        if over {
            flush.done = 0;
            match flush.machine.next_step() {
                Some(step) => flush.step = step,
                None => return self.end(&flush),
            }
        }
        self.threads[thread].flush = Some(flush);
        true
    }

    fn end(&mut self, flush: &Flush) -> bool {
        self.in_flight.end(flush.id);
        for line in geometry().lines_of(&flush.range) {
            let line = line as usize;
            self.durable[line] = self.durable[line].max(flush.promised[line]);
        }
        true
    }

    fn successors(&self, broken: Broken) -> Vec<World> {
        let mut all = Vec::new();
        for thread in 0..THREADS {
            if self.threads[thread].flush.is_some() {
                let mut next = self.clone();
                if next.advance(thread, broken) {
                    all.push(next);
                }
                continue;
            }
            let mut step = |possible: bool, change: &dyn Fn(&mut World)| {
                if possible {
                    let mut next = self.clone();
                    change(&mut next);
                    all.push(next);
                }
            };
            for line in 0..LINES {
                step(self.stores > 0, &|world| world.store(thread, line));
            }
            for range in RANGES {
                step(self.flushes > 0, &|world| world.begin(thread, range.clone()));
            }
        }
        all
    }

    /// Checks a crash at this moment, at which no line has left the cache but by a flush: the others lose less.
    fn crash(&self) -> Result<(), String> {
        match (0..LINES).find(|&line| self.memory[line] < self.durable[line]) {
            Some(line) => Err(format!(
                "line {line} has version {} after a crash, although {} was flushed",
                self.memory[line], self.durable[line]
            )),
            None => Ok(()),
        }
    }
}

/// Returns the number of states reached, or the loss that was found.
fn explore(start: World, broken: Broken) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        world.crash()?;
        for next in world.successors(broken) {
            if !seen.contains(&next) {
                seen.insert(next.clone());
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn in_no_order_does_a_crash_lose_a_store_that_was_flushed() {
    for (mode, stores, flushes) in
        [(SyncMode::EveryLine, 2, 2), (SyncMode::Selective, 2, 2), (SyncMode::Selective, 1, 3)]
    {
        let states = explore(World::new(mode, stores, flushes), Broken::Nothing).unwrap();
        assert!(states > 10_000, "{states} states with {mode:?}");
    }
}

#[test]
fn each_broken_rule_loses_a_store_in_some_order() {
    for broken in [
        Broken::ClearsAfterWriteBack,
        Broken::LooksThenClears,
        Broken::ClearsEdges,
        Broken::KeepsTranslations,
        Broken::SkipsLine,
        Broken::NoBarrier,
        Broken::IgnoresOthers,
    ] {
        let found = explore(World::new(SyncMode::Selective, 2, 2), broken);
        assert!(found.is_err(), "{broken:?} was not found: {found:?}");
    }
    for broken in [Broken::SkipsLine, Broken::NoBarrier] {
        let found = explore(World::new(SyncMode::EveryLine, 1, 1), broken);
        assert!(found.is_err(), "{broken:?} was not found: {found:?}");
    }
}

/// Runs a flush in which these pages are dirty. Returns the lines written back, in order, and the pages cleared.
fn run(mode: SyncMode, range: Range<u64>, dirty: &[bool]) -> (Vec<u64>, Vec<u64>, RangeFlush) {
    let mut flush = RangeFlush::new(geometry(), mode, range);
    let (mut lines, mut cleared) = (Vec::new(), Vec::new());
    let mut ended = false;
    while let Some(step) = flush.next_step() {
        assert!(!ended, "a step follows the barrier");
        match step {
            FlushStep::Examine { pages, clear } => {
                for page in pages.filter(|&page| dirty[page as usize]) {
                    flush.found_dirty(page..page + 1);
                    if clear {
                        assert!(
                            !lines.iter().any(|line| line / (PAGE / LINE) == page),
                            "flushed before cleared"
                        );
                        cleared.push(page);
                    }
                }
            }
            FlushStep::WriteBack(bytes) => lines.extend(geometry().lines_of(&bytes)),
            FlushStep::Barrier => ended = true,
        }
    }
    assert!(ended, "no barrier");
    (lines, cleared, flush)
}

proptest! {
    #[test]
    fn a_flush_writes_back_the_lines_of_dirty_pages_and_clears_whole_pages_only(
        start in 0u64..6 * PAGE,
        len in 0u64..6 * PAGE,
        dirty in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let range = start..start + len;
        let all: Vec<u64> = (0..24).filter(|line| line * LINE < range.end && (line + 1) * LINE > range.start && len > 0).collect();
        let (lines, cleared, flush) = run(SyncMode::EveryLine, range.clone(), &dirty);
        prop_assert_eq!((&lines, cleared.len()), (&all, 0));
        prop_assert_eq!(flush.counts().lines_written_back, all.len() as u64);
        prop_assert_eq!(flush.counts().pages_examined, 0);

        let (lines, cleared, flush) = run(SyncMode::Selective, range.clone(), &dirty);
        let of_dirty: Vec<u64> = all.iter().copied().filter(|line| dirty[(line * LINE / PAGE) as usize]).collect();
        prop_assert_eq!(&lines, &of_dirty);
        let whole: Vec<u64> = (0..12u64)
            .filter(|page| page * PAGE >= range.start && (page + 1) * PAGE <= range.end && dirty[*page as usize])
            .collect();
        prop_assert_eq!(cleared, whole);
        let pages = (0..12u64).filter(|page| page * PAGE < range.end && (page + 1) * PAGE > range.start && len > 0);
        prop_assert_eq!(flush.counts().pages_examined, pages.clone().count() as u64);
        prop_assert_eq!(flush.counts().pages_dirty, pages.filter(|page| dirty[*page as usize]).count() as u64);
        prop_assert_eq!(flush.counts().lines_written_back, of_dirty.len() as u64);
    }
}

#[test]
fn a_range_up_to_the_last_address_is_flushed_whole() {
    let mut flush = RangeFlush::new(Geometry::PAPER, SyncMode::Selective, u64::MAX - 8191..u64::MAX);
    let last = u64::MAX >> 12;
    assert_eq!(flush.next_step(), Some(FlushStep::Examine { pages: last - 1..last, clear: true }));
    assert_eq!(flush.next_step(), Some(FlushStep::Examine { pages: last..last + 1, clear: false }));
    flush.found_dirty(0..u64::MAX);
    assert_eq!(flush.next_step(), Some(FlushStep::WriteBack(u64::MAX - 8191..u64::MAX)));
    assert_eq!((flush.next_step(), flush.next_step()), (Some(FlushStep::Barrier), None));
}

#[test]
fn sizes_that_are_no_powers_of_two_are_refused() {
    for (page, line) in [(4096, 48), (3000, 64), (64, 128), (0, 0)] {
        let error = Geometry::new(page, line).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("pages of {page} B with lines of {line} B; give powers of two")),
            "{error}"
        );
    }
    assert_eq!(Geometry::new(4096, 64), Ok(Geometry::PAPER));
}
