//! A flush that fails, at every point: the kernel reports a lost write once, to one caller. Data written
//! before that flush is durable only once it has been written again, whatever later flushes return.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use deepram_core::{Addr, Epoch, SegmentSize};
use deepram_pool::device::Device;
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, Result};
use deepram_testkit::{Failure, FaultyDevice, Image, Op};

const PAGE: u64 = 1 << 16;
const PAGES: u64 = 12;
const REGION: u64 = 4 * PAGE;
/// Attempts of an operation before its error counts; only one flush fails.
const TRIES: usize = 3;
/// Longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device without its own durable writes: the trait's default, a write and a flush.
struct Plain(FaultyDevice);

impl Device for Plain {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn name(&self) -> String {
        "plain".into()
    }
}

fn create_options() -> CreateOptions {
    CreateOptions { segment: SegmentSize::K4, flash: Some(18 << 20), ..CreateOptions::new(24 * PAGE) }
}

fn open(device: Arc<dyn Device>) -> Result<Pool> {
    Pool::open_on(vec![device], &OpenOptions::new(16 << 20).mapping(Mapping::Off))
}

/// The acknowledged state that must survive a power cut.
#[derive(Clone, Default)]
struct Acknowledged {
    token: Option<Epoch>,
    /// The bytes that fill the memory and the region.
    memory: u8,
    region: u8,
}

struct Run {
    device: FaultyDevice,
    pool: Pool,
    memory: Addr,
    region: Addr,
    acknowledged: Acknowledged,
    failures: usize,
    context: String,
}

impl Run {
    fn new(plain: bool, context: String) -> Self {
        let device = FaultyDevice::new(64 << 20);
        let handle: Arc<dyn Device> =
            if plain { Arc::new(Plain(device.clone())) } else { Arc::new(device.clone()) };
        Pool::create_on(vec![Arc::clone(&handle)], &create_options()).unwrap();
        let pool = open(handle).unwrap();
        let memory = pool.alloc(PAGES * PAGE, Lifetime::Permanent).unwrap();
        let region = pool.alloc(REGION, Lifetime::Permanent).unwrap();
        let acknowledged = Acknowledged::default();
        Self { device, pool, memory, region, acknowledged, failures: 0, context }
    }

    /// Retries an operation until it succeeds.
    fn until_done<T>(&mut self, what: &str, operation: impl Fn(&Pool) -> Result<T>) -> T {
        for tried in 1.. {
            match operation(&self.pool) {
                Ok(value) => return value,
                Err(error) if tried == TRIES => panic!("{}, {what}: {error}", self.context),
                Err(_) => self.failures += 1,
            }
        }
        unreachable!("it returns or panics")
    }

    /// Stores to all of the memory, and has it written back without a flush.
    fn dirty(&mut self, value: u8) {
        let memory = self.memory;
        self.pool.write(memory, &vec![value; (PAGES * PAGE) as usize]).unwrap();
        self.until_done("writing back", |pool| pool.evict_range(memory, PAGES * PAGE));
    }

    fn sync(&mut self, memory: u8, region: u8) {
        let token = self.until_done("sync", Pool::sync);
        self.acknowledged = Acknowledged { token: Some(token), memory, region };
        self.check("sync");
    }

    fn persist(&mut self, value: u8) {
        let region = self.region;
        self.pool.write(region, &vec![value; REGION as usize]).unwrap();
        self.until_done("persist", |pool| pool.persist(region, REGION));
        self.acknowledged.region = value;
        self.check("persist");
    }

    /// Checks that a power cut at this moment loses no acknowledged data.
    fn check(&self, after: &str) {
        verify(self.device.durable_image(), self.memory, (self.region, REGION), &self.acknowledged)
            .unwrap_or_else(|what| panic!("{}, a power cut after {after}: {what}", self.context));
    }

    fn work(&mut self) {
        self.dirty(1);
        self.sync(1, 0);
        self.dirty(2);
        let region = self.region;
        // Creating a region is a sync too; its token is the last of the history.
        self.until_done("create_pmem_region", |pool| pool.create_pmem_region(region, REGION));
        let token = self.pool.history().unwrap().last().unwrap().token;
        self.acknowledged = Acknowledged { token: Some(token), memory: 2, region: 0 };
        self.check("create_pmem_region");
        self.dirty(3);
        self.persist(1);
        self.sync(3, 1);
        self.dirty(4);
        // These persists make the ring grow.
        for value in 2..9 {
            self.persist(value);
        }
        self.sync(4, 8);
        self.dirty(5);
        self.until_done("compact", |pool| pool.compact(&mut |_, _| {}));
        self.sync(5, 8);
        self.dirty(6);
        self.persist(9);
        self.sync(6, 9);
    }
}

fn verify(
    image: Image,
    memory: Addr,
    region: (Addr, u64),
    want: &Acknowledged,
) -> std::result::Result<(), String> {
    let pool =
        open(Arc::new(FaultyDevice::from_image(image))).map_err(|error| format!("opening: {error}"))?;
    let last = pool.history().unwrap().last().map(|history| history.token);
    if last < want.token {
        return Err(format!("the token is {last:?}, {:?} was returned", want.token));
    }
    for (what, addr, len, value) in
        [("memory", memory, PAGES * PAGE, want.memory), ("region", region.0, region.1, want.region)]
    {
        let mut found = vec![0; len as usize];
        pool.read(addr, &mut found).map_err(|error| format!("reading the {what}: {error}"))?;
        if let Some(at) = found.iter().position(|byte| *byte != value) {
            return Err(format!("{} instead of {value} at {at} of the {what}", found[at]));
        }
    }
    Ok(())
}

fn each_flush(plain: bool) {
    let mut clean = Run::new(plain, "no failure".into());
    let before = clean.device.stats().flushes;
    clean.work();
    assert!(clean.pool.stats().line_log_compactions > 0, "the ring must have grown");
    let flushes = clean.device.stats().flushes - before;
    let mut failures = 0;
    for n in 1..=flushes + 2 {
        let mut run = Run::new(plain, format!("flush {n} of {flushes} fails, plain: {plain}"));
        run.device.fail_nth(Op::Flush, n, Failure::EIO);
        run.work();
        failures += run.failures;
    }
    assert!(failures > 0, "no failure was ever reported");
}

#[test]
fn each_flush_that_fails_leaves_nothing_acknowledged_that_was_lost() {
    each_flush(false);
}

#[test]
fn each_flush_that_fails_where_a_durable_write_is_a_write_and_a_flush_does_so_too() {
    each_flush(true);
}

/// The thread whose flush executes first, and fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Persist,
    Sync,
}

#[derive(Default)]
struct Meeting {
    /// The thread whose flush fails; `None`: flushes are not intercepted.
    first: Option<First>,
    persist_came: bool,
    executed: usize,
    /// The pool's write-back thread flushed in between, perhaps in place of one of the two.
    disturbed: bool,
}

/// A plain device on which the flushes of a persist and of a sync overlap: the flush that executes first
/// loses the written data, and returns its error last.
struct Meets {
    device: FaultyDevice,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

impl Meets {
    fn until(&self, what: &str, condition: impl Fn(&Meeting) -> bool) {
        let meeting = self.meeting.lock().unwrap();
        let wait = self.changed.wait_timeout_while(meeting, PATIENCE, |m| !condition(m) && !m.disturbed);
        assert!(!wait.unwrap().1.timed_out(), "{what} did not happen");
    }

    fn note(&self, change: impl FnOnce(&mut Meeting)) {
        change(&mut self.meeting.lock().unwrap());
        self.changed.notify_all();
    }

    /// Runs one of the two overlapping flushes; a third flush is unaffected.
    fn meet(&self, who: First, first: First) -> io::Result<()> {
        if who == First::Persist {
            self.note(|m| m.persist_came = true);
        }
        if who == first {
            self.device.fail_nth(Op::Flush, 1, Failure::EIO);
            let result = self.device.flush();
            self.note(|m| m.executed = 1);
            self.until("the second flush", |m| m.executed == 2);
            return result;
        }
        self.until("the first flush", |m| m.executed > 0);
        let result = self.device.flush();
        self.note(|m| m.executed = 2);
        result
    }
}

/// A handle on the device; recognizes the two threads by their names.
struct Met(Arc<Meets>);

impl Device for Met {
    fn len(&self) -> u64 {
        self.0.device.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.device.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.device.write(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        let meeting = self.0.meeting.lock().unwrap();
        let watched = meeting.first.filter(|_| meeting.executed < 2 && !meeting.disturbed);
        drop(meeting);
        let Some(first) = watched else { return self.0.device.flush() };
        match std::thread::current().name() {
            Some("persist") => self.0.meet(First::Persist, first),
            Some("sync") => self.0.meet(First::Sync, first),
            _ => {
                self.0.note(|m| m.disturbed = true);
                self.0.device.flush()
            }
        }
    }

    fn name(&self) -> String {
        "two flushes meet".into()
    }
}

/// Attempts until the write-back thread does not flush in between.
const ATTEMPTS: usize = 20;

fn two_flushes_meet(first: First) {
    let met = (0..ATTEMPTS).any(|_| two_flushes_meet_once(first));
    assert!(met, "the write-back thread flushed in between in each of {ATTEMPTS} attempts");
}

/// Returns whether the two flushes met.
fn two_flushes_meet_once(first: First) -> bool {
    let device = FaultyDevice::new(64 << 20);
    let meets =
        Arc::new(Meets { device: device.clone(), meeting: Mutex::default(), changed: Condvar::new() });
    Pool::create_on(vec![Arc::new(Met(Arc::clone(&meets)))], &create_options()).unwrap();
    let pool = open(Arc::new(Met(Arc::clone(&meets)))).unwrap();
    let memory = pool.alloc(PAGES * PAGE, Lifetime::Permanent).unwrap();
    let region = pool.alloc(REGION, Lifetime::Permanent).unwrap();
    pool.create_pmem_region(region, PAGE).unwrap();
    pool.write(memory, &vec![1; (PAGES * PAGE) as usize]).unwrap();
    pool.evict_range(memory, PAGES * PAGE).unwrap();
    pool.write(region, &[1; PAGE as usize]).unwrap();
    meets.note(|m| m.first = Some(first));
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    let other = pool.clone();
    let persist = named("persist").spawn(move || other.persist(region, PAGE)).unwrap();
    match first {
        First::Persist => meets.until("the persist's flush", |m| m.executed == 1),
        First::Sync => meets.until("the persist's flush", |m| m.persist_came),
    }
    let other = pool.clone();
    let synced = named("sync").spawn(move || other.sync()).unwrap().join().unwrap();
    let persisted = persist.join().unwrap();
    if meets.meeting.lock().unwrap().disturbed {
        return false;
    }
    assert!(synced.is_err() || persisted.is_err(), "neither call reported the failed flush");
    let mut want = Acknowledged { token: synced.as_ref().ok().copied(), ..Acknowledged::default() };
    if synced.is_ok() {
        (want.memory, want.region) = (1, 1);
    }
    if persisted.is_ok() {
        want.region = 1;
    }
    verify(device.durable_image(), memory, (region, PAGE), &want)
        .unwrap_or_else(|what| panic!("{first:?}, sync {synced:?}, persist {persisted:?}: {what}"));
    // Whichever call reported it, the next sync makes all data durable.
    let token = Some(pool.sync().unwrap());
    verify(device.durable_image(), memory, (region, PAGE), &Acknowledged { token, memory: 1, region: 1 })
        .unwrap();
    true
}

#[test]
fn a_sync_whose_flush_meets_a_failing_persist_does_not_rely_on_it() {
    two_flushes_meet(First::Persist);
}

#[test]
fn a_persist_whose_flush_meets_a_failing_sync_does_not_rely_on_it() {
    two_flushes_meet(First::Sync);
}
