//! A process whose threads store, persist, allocate, free, roll back and sync is killed with SIGKILL at
//! random moments, repeatedly. The model is in this process: the child reports, through a pipe, each
//! operation that it begins and each that has returned, and after each kill the pool must be in a state that
//! these reports allow.
//!
//! Each thread works in numbered steps, from 1 on, and records its last step in a word that the step stores
//! last. The locations and values of a step's stores follow from its number, the thread and the branch; a
//! branch is the period between two openings or rollbacks. So the number of the last step determines the
//! expected value of every word of the thread.
//!
//! `DEEPRAM_KILLS` sets the number of kills: `DEEPRAM_KILLS=1000 cargo test -p deepram-pool --test it
//! killed_threads::`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::RwLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use deepram_pool::{Addr, CreateOptions, Epoch, Lifetime, Mapping, OpenOptions, Pool, PoolError, Words};
use deepram_testkit::seeds;
use rand::RngExt;

mod model;
use crate::scratch::{MIB, Scratch, mappable, mix};
use model::Model;

const PAGE: u64 = 1 << 16;
const BYTES: u64 = 12 * MIB;
/// Less than the data and the pool's own needs, so that segments are written back and evicted between syncs.
const DRAM: u64 = 13 * MIB;
const KILLS: usize = 60;
const LONGEST_MS: u64 = 150;

/// The threads: two that store, one that persists, one that allocates and frees.
const THREADS: usize = 4;
const PERSISTER: usize = 2;
const ALLOCATOR: usize = 3;

/// Words of a storing thread, and stores of a step.
const WORDS: u64 = 1 << 18;
const STORES: u64 = 20;
/// Odd, so that the stores of a thread reach every word in turn.
const STRIDE: u64 = 0x9E37_79B9;
/// Lines of the persisting thread, and objects of the allocating thread.
const LINES: u64 = 512;
const OBJECTS: u64 = 24;

// One allocation: the words of both storing threads, the numbers of last steps, lines, the table of objects.
const COUNTERS: u64 = 2 * WORDS * 8;
const LINES_AT: u64 = COUNTERS + PAGE;
const TABLE: u64 = LINES_AT + PAGE;
const AREA: u64 = TABLE + PAGE;

/// The value of a step's `i`-th store.
fn value(thread: usize, step: u64, branch: u64, i: u64) -> u64 {
    let check = mix(step << 20 ^ branch << 8 ^ (thread as u64) << 5 ^ i) & 0xFF;
    step << 28 | branch << 8 | check
}

fn step_of(value: u64) -> u64 {
    value >> 28
}

/// The word of a thread's `m`-th store, and the number of the store, up to `WORDS`, that reaches a given
/// word.
fn place(m: u64) -> u64 {
    m.wrapping_mul(STRIDE) % WORDS
}

fn turn(word: u64) -> u64 {
    // The inverse of an odd number modulo 2^64, by Newton's method.
    let inverse = (0..6).fold(1_u64, |x, _| x.wrapping_mul(2_u64.wrapping_sub(STRIDE.wrapping_mul(x))));
    word.wrapping_mul(inverse) % WORDS
}

/// Returns the step that made the object, if it exists after this step: each step makes or removes one
/// object.
fn object(number: u64, step: u64) -> Option<u64> {
    let last = (1..=step).rev().take(OBJECTS as usize).find(|n| n % OBJECTS == number)?;
    (last / OBJECTS).is_multiple_of(2).then_some(last)
}

// -- The child ---------------------------------------------------------------------------------

struct Child {
    pool: Pool,
    base: Addr,
    words: Words,
    branch: AtomicU64,
    begun: [AtomicU64; THREADS],
    ended: [AtomicU64; THREADS],
    /// Held for writing during a rollback, when no thread may use the memory.
    quiet: RwLock<()>,
}

fn tell(line: &str) {
    // A single write, which is in the kernel when it returns. The test runner leaves its own line unfinished.
    std::io::stdout().lock().write_all(format!("\n@{line}\n").as_bytes()).unwrap();
}

fn numbers(of: &[AtomicU64]) -> String {
    of.iter().map(|n| n.load(SeqCst).to_string()).collect::<Vec<_>>().join(" ")
}

impl Child {
    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[(at / 8) as usize]
    }

    /// Reads the last step of each thread, frees pages that no object's entry names, and begins a branch.
    fn begin(&self, branch: u64, what: &str) {
        let last_line = (0..LINES).map(|n| step_of(self.word(LINES_AT + n * 64).load(SeqCst))).max();
        for thread in 0..THREADS {
            let counter = self.word(COUNTERS + thread as u64 * 64).load(SeqCst);
            let last = if thread == PERSISTER { last_line.unwrap() } else { counter };
            self.begun[thread].store(last, SeqCst);
            self.ended[thread].store(last, SeqCst);
        }
        for page in stray_pages(&self.pool, self.base, &|at| self.word(at).load(SeqCst)) {
            self.pool.free(page, PAGE).unwrap();
        }
        self.branch.store(branch, SeqCst);
        tell(&format!("{what} {branch} {}", numbers(&self.ended)));
    }

    fn run(&self, thread: usize) {
        loop {
            let quiet = self.quiet.read().unwrap();
            let step = self.begun[thread].fetch_add(1, SeqCst) + 1;
            let branch = self.branch.load(SeqCst);
            match thread {
                PERSISTER => {
                    let at = LINES_AT + step % LINES * 64;
                    self.word(at + 8).store(value(thread, step, branch, 1), SeqCst);
                    self.word(at).store(value(thread, step, branch, 0), SeqCst);
                    loop {
                        match self.pool.persist(self.base.offset_by(at).unwrap(), 64) {
                            Ok(()) => break tell(&format!("persisted {step}")),
                            // The thread that syncs empties the log.
                            Err(PoolError::LineLogFull { .. }) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
                ALLOCATOR => {
                    self.change_object(step);
                    self.word(COUNTERS + thread as u64 * 64).store(step, SeqCst);
                }
                _ => {
                    for i in 0..STORES {
                        let word = place((step - 1) * STORES + i);
                        let at = (thread as u64 * WORDS + word) * 8;
                        self.word(at).store(value(thread, step, branch, i), SeqCst);
                    }
                    self.word(COUNTERS + thread as u64 * 64).store(step, SeqCst);
                }
            }
            self.ended[thread].store(step, SeqCst);
            drop(quiet);
        }
    }

    /// Makes or removes the object of this step, unless an interrupted attempt at the step has already done
    /// so.
    fn change_object(&self, step: u64) {
        let entry = self.word(TABLE + step % OBJECTS * 8);
        let now = entry.load(SeqCst);
        if object(step % OBJECTS, step).is_some() {
            if now == 0 {
                let addr = self.pool.alloc(PAGE, Lifetime::Permanent).unwrap();
                for at in (0..PAGE).step_by(512) {
                    self.pool.write(addr.offset_by(at).unwrap(), &mix(step ^ at).to_le_bytes()).unwrap();
                }
                entry.store(addr.raw(), SeqCst);
            }
        } else if now != 0 {
            entry.store(0, SeqCst);
            self.pool.free(Addr::from_raw(now), PAGE).unwrap();
        }
    }

    fn sync_and_roll_back(&self, first_branch: u64) {
        let mut branch = first_branch;
        for round in 1_u64.. {
            tell(&format!("syncing {}", numbers(&self.ended)));
            let token = self.pool.sync().unwrap();
            tell(&format!("synced {} {}", token.0, numbers(&self.begun)));
            if mix(first_branch << 16 | round).is_multiple_of(6) {
                let history = self.pool.history().unwrap();
                let back = mix(round ^ first_branch) % history.len().min(3) as u64;
                let token = history[history.len() - 1 - back as usize].token;
                let _quiet = self.quiet.write().unwrap();
                tell(&format!("returning {}", token.0));
                match self.pool.rollback(token) {
                    Ok(()) => {
                        branch += 1;
                        self.begin(branch, "returned");
                    }
                    // The token was given up since.
                    Err(PoolError::Token { .. }) => tell("stayed"),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// Returns the allocated pages that belong neither to the area nor to an object.
fn stray_pages(pool: &Pool, base: Addr, word: &dyn Fn(u64) -> u64) -> Vec<Addr> {
    let known: Vec<u64> = (0..OBJECTS).map(|n| word(TABLE + n * 8)).collect();
    let area = base.raw()..base.raw() + AREA;
    let pages = (1..=BYTES / PAGE).map(|n| n * PAGE);
    let strays = pages.filter(|page| !area.contains(page) && !known.contains(page)).map(Addr::from_raw);
    strays.filter(|&page| pool.permissions(page).is_ok()).collect()
}

#[test]
fn child_with_threads() {
    let Some(path) = std::env::var_os("DEEPRAM_TEST_KILLED") else { return };
    let branch: u64 = std::env::var("DEEPRAM_TEST_BRANCH").unwrap().parse().unwrap();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let pool = Pool::open(&[path], &OpenOptions::new(DRAM)).unwrap();
    let base = pool.root("area").unwrap().addr;
    let words = pool.words(base, (AREA / 8) as usize).unwrap();
    let child = Child {
        pool,
        base,
        words,
        branch: AtomicU64::new(0),
        begun: Default::default(),
        ended: Default::default(),
        quiet: RwLock::new(()),
    };
    child.begin(branch, "started");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let child = &child;
            scope.spawn(move || child.run(thread));
        }
        child.sync_and_roll_back(branch);
    });
}

// -- The kills ---------------------------------------------------------------------------------

/// Starts the child, kills it, and passes all of its reports to the model.
fn run_and_kill(path: &Path, branch: u64, begun: bool, after: Duration, model: &mut Model) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_threads::child_with_threads", "--nocapture", "--test-threads=1"])
        .env("DEEPRAM_TEST_KILLED", path)
        .env("DEEPRAM_TEST_BRANCH", branch.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    // The child is killed while it works, or at any moment of its opening.
    let mut line = String::new();
    while begun && !line.starts_with("@synced") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the child ended by itself, after {lines:?}");
        lines.push(line.clone());
    }
    let pid = rustix::process::Pid::from_child(&child);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    });
    // Read while the child runs: a full pipe would block it.
    lines.extend(out.lines().map_while(Result::ok));
    killer.join().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "the child ended: {status}");
    lines.iter().filter_map(|line| line.trim().strip_prefix('@')).for_each(|line| model.hear(line));
}

#[test]
fn whatever_threads_do_when_they_are_killed_the_pool_is_in_a_state_that_was() {
    if !mappable() {
        return;
    }
    let kills =
        std::env::var("DEEPRAM_KILLS").map_or(KILLS, |n| n.parse().expect("DEEPRAM_KILLS is a number"));
    let options = OpenOptions::new(DRAM).mapping(Mapping::Off);
    seeds::each(1, |seed| {
        let mut rng = seeds::rng(seed);
        let scratch = Scratch::new(&CreateOptions { pmem: PAGE, ..CreateOptions::new(BYTES) });
        let pool = scratch.open(DRAM);
        let base = pool.alloc(AREA, Lifetime::Permanent).unwrap();
        pool.set_root("area", base, AREA).unwrap();
        pool.create_pmem_region(base.offset_by(LINES_AT).unwrap(), PAGE).unwrap();
        let token = pool.sync().unwrap().0;
        pool.abandon().unwrap();
        let mut model = Model::new(token);
        let mut steps = [0; THREADS];
        for kill in 0..kills {
            let context = format!("kill {kill}");
            let after = Duration::from_millis(rng.random_range(0..LONGEST_MS));
            run_and_kill(&scratch.path(), (kill as u64 + 1) << 6, kill % 3 > 0, after, &mut model);
            let pool = Pool::open(&[scratch.path()], &options).unwrap();
            let history: Vec<Epoch> = pool.history().unwrap().iter().map(|h| h.token).collect();
            let bounds = model.newest(history.last().unwrap().0);
            let read = |at: u64, to: &mut [u8]| pool.read(base.offset_by(at).unwrap(), to).unwrap();
            let now = model.compare(&read, bounds, &context);
            model.compare_objects(&pool, base, now[ALLOCATOR], &context);
            if kill % 5 == 4 {
                for &token in history.iter().rev().take(4) {
                    let Some(bounds) = model.tokens.get(&token.0) else { continue };
                    let read = |at: u64, to: &mut [u8]| {
                        pool.read_at(token, base.offset_by(at).unwrap(), to).unwrap()
                    };
                    model.compare(&read, *bounds, &format!("{context}, token {token}"));
                }
                let report = pool.check(&mut |_, _| {}).unwrap();
                assert!(report.is_sound(), "{context}: {report:?}");
            }
            pool.abandon().unwrap();
            steps = std::array::from_fn(|n| now[n].max(steps[n]));
        }
        let (syncs, rollbacks) = (model.syncs, model.rollbacks);
        eprintln!("{kills} kills: {syncs} syncs, {rollbacks} rollbacks, steps up to {steps:?}");
        assert!(
            syncs > kills as u64 && rollbacks > 0 && steps.iter().all(|&n| n > OBJECTS),
            "the threads must have made progress"
        );
    });
}
