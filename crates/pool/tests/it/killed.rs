//! A real process that stores through the mapped address and syncs, or persists and commits transactions, is
//! killed with SIGKILL at random moments, repeatedly; its pool is reopened and compared.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use deepram_pool::log::TransactionLog;
use deepram_pool::{CreateOptions, Epoch, Lifetime, Mapping, OpenOptions, Pool};
use deepram_testkit::seeds;
use rand::RngExt;

use crate::scratch::{MIB, Scratch, mappable, mix};

const BYTES: u64 = 8 * MIB;
const WORDS: u64 = BYTES / 8;
/// Less than the data, so that segments are written back and evicted between syncs.
const DRAM: u64 = 14 * MIB;
/// Stores of a round, before its sync.
const STORES: u64 = 300;
const KILLS: usize = 200;
const LONGEST_MS: u64 = 120;
/// Lines that the persisting child uses in turn.
const LINES: u64 = 512;

/// The stores of a round: word, value. Word 0 holds the round.
fn stores(round: u64) -> impl Iterator<Item = (usize, u64)> {
    let scattered =
        (1..STORES).map(move |n| (1 + (mix(round << 16 | n) % (WORDS - 1)) as usize, mix(n ^ round)));
    scattered.chain([(0, round)])
}

#[test]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os("DEEPRAM_TEST_KILLED") else { return };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let pool = Pool::open(&[path], &OpenOptions::new(DRAM)).unwrap();
    let addr = pool.root("data").unwrap().addr;
    let words = pool.words(addr, WORDS as usize).unwrap();
    let mut out = std::io::stdout().lock();
    for round in words[0].load(Relaxed) + 1.. {
        for (at, value) in stores(round) {
            words[at].store(value, Relaxed);
        }
        let token = pool.sync().unwrap();
        // The test runner leaves its own line unfinished.
        writeln!(out, "\nsynced {round} {token}").unwrap();
        out.flush().unwrap();
    }
}

/// Persists and commits without a sync; slots of the region are used in turn.
#[test]
fn child_that_persists() {
    let Some(path) = std::env::var_os("DEEPRAM_TEST_KILLED") else { return };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let pool = Pool::open(&[path], &OpenOptions::new(DRAM)).unwrap();
    let addr = pool.root("data").unwrap().addr;
    let words = pool.words(addr, (LINES * 8) as usize).unwrap();
    let log = TransactionLog::open(&pool, "log").unwrap();
    let mut out = std::io::stdout().lock();
    for n in words.iter().step_by(8).map(|word| word.load(Relaxed)).max().unwrap() + 1.. {
        let line = n % LINES;
        words[line as usize * 8 + 1].store(mix(n), Relaxed);
        words[line as usize * 8].store(n, Relaxed);
        pool.persist(addr.offset_by(line * 64).unwrap(), 64).unwrap();
        let mut transaction = log.begin();
        transaction.append(&n.to_le_bytes());
        transaction.append(&vec![n as u8; (n % 700) as usize]);
        let sequence = transaction.commit().unwrap();
        if n % 50 == 0 {
            log.truncate(sequence.saturating_sub(20)).unwrap();
        }
        writeln!(out, "\nsynced {n} {sequence}").unwrap();
        out.flush().unwrap();
    }
}

/// Returns the last round that a child reported before it was killed, if any. The time `after` counts from
/// the child's start or, if `begun`, from the first round that it reports, which may take long on a slow
/// machine.
fn run_and_kill(child: &str, path: &Path, begun: bool, after: Duration) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("killed::{child}"), "--nocapture", "--test-threads=1"])
        .env("DEEPRAM_TEST_KILLED", path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = lines.map_while(Result::ok).filter_map(|line| {
        let mut parts = line.split_whitespace();
        (parts.next() == Some("synced")).then(|| parts.next()?.parse().ok()).flatten()
    });
    let first = if begun { told.next() } else { None };
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    told.last().or(first)
}

/// The expected contents of the pool, round by round, and those after rolling back.
struct Expected {
    words: Vec<u64>,
    round: u64,
    undo: VecDeque<Vec<(usize, u64)>>,
}

impl Expected {
    fn advance_to(&mut self, round: u64) {
        while self.round < round {
            self.round += 1;
            let undo =
                stores(self.round).map(|(at, value)| (at, std::mem::replace(&mut self.words[at], value)));
            self.undo.push_back(undo.collect());
            if self.undo.len() > 8 {
                self.undo.pop_front();
            }
        }
    }

    fn step_back(&mut self) -> bool {
        let Some(undo) = self.undo.pop_back() else { return false };
        for (at, value) in undo.into_iter().rev() {
            self.words[at] = value;
        }
        self.round -= 1;
        true
    }

    fn compare(&self, pool: &Pool, when: &str) {
        let addr = pool.root("data").unwrap().addr;
        let mut bytes = vec![0; BYTES as usize];
        pool.read(addr, &mut bytes).unwrap();
        let differing = bytes
            .chunks_exact(8)
            .zip(&self.words)
            .position(|(found, expected)| found != expected.to_le_bytes());
        assert_eq!(differing, None, "first word that differs, {when}, round {}", self.round);
    }
}

#[test]
fn whatever_moment_a_process_is_killed_at_its_last_sync_is_there() {
    if !mappable() {
        return;
    }
    let options = OpenOptions::new(DRAM).mapping(Mapping::Off);
    seeds::each(1, |seed| {
        let mut rng = seeds::rng(seed);
        let scratch = Scratch::new(&CreateOptions::new(BYTES));
        let pool = scratch.open(DRAM);
        let addr = pool.alloc(BYTES, Lifetime::Permanent).unwrap();
        pool.set_root("data", addr, BYTES).unwrap();
        pool.close().unwrap();
        let mut expected = Expected { words: vec![0; WORDS as usize], round: 0, undo: VecDeque::new() };
        let (mut synced, mut further) = (0, 0);
        for kill in 0..KILLS {
            let told = run_and_kill(
                "child_that_is_killed",
                &scratch.path(),
                kill % 2 == 0,
                Duration::from_millis(rng.random_range(0..LONGEST_MS)),
            );
            let pool = Pool::open(&[scratch.path()], &options).unwrap();
            let mut first = [0; 8];
            pool.read(addr, &mut first).unwrap();
            let found = u64::from_le_bytes(first);
            let told = told.unwrap_or(expected.round);
            // The sync in flight may have become durable just before the kill.
            assert!(
                found == told || found == told + 1,
                "kill {kill}: found round {found}, but a sync returned for {told}"
            );
            synced += u64::from(found > expected.round);
            further += u64::from(found > told);
            expected.advance_to(found);
            expected.compare(&pool, "after a kill");
            if kill % 10 == 9 {
                let tokens: Vec<Epoch> = pool.history().unwrap().iter().map(|h| h.token).collect();
                if tokens.len() > 2 && expected.undo.len() > 1 && expected.step_back() {
                    pool.rollback(tokens[tokens.len() - 2]).unwrap();
                    expected.compare(&pool, "after a rollback");
                }
                let report = pool.check(&mut |_, _| {}).unwrap();
                assert!(report.is_sound(), "kill {kill}: {report:?}");
            }
            pool.abandon().unwrap();
        }
        eprintln!(
            "{KILLS} kills: {synced} after at least one sync, {further} with one sync more than was reported"
        );
        assert!(synced >= KILLS as u64 / 2, "too few children reached a sync");
    });
}

#[test]
fn whatever_moment_a_process_is_killed_at_what_it_persisted_is_there() {
    if !mappable() {
        return;
    }
    let options = OpenOptions::new(DRAM).mapping(Mapping::Off);
    seeds::each(1, |seed| {
        let mut rng = seeds::rng(seed);
        let scratch = Scratch::new(&CreateOptions::new(BYTES));
        let pool = scratch.open(DRAM);
        let addr = pool.alloc(LINES * 64, Lifetime::Permanent).unwrap();
        pool.set_root("data", addr, LINES * 64).unwrap();
        pool.create_pmem_region(addr, LINES * 64).unwrap();
        drop(TransactionLog::create(&pool, "log", 1 << 18).unwrap());
        pool.close().unwrap();
        let mut last = 0;
        let mut further = 0;
        for kill in 0..KILLS / 4 {
            let after = Duration::from_millis(rng.random_range(0..LONGEST_MS));
            let committed = run_and_kill("child_that_persists", &scratch.path(), kill % 2 == 0, after);
            let told = committed.unwrap_or(last);
            let pool = Pool::open(&[scratch.path()], &options).unwrap();
            let mut bytes = vec![0; (LINES * 64) as usize];
            pool.read(addr, &mut bytes).unwrap();
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let found = (0..LINES as usize).map(|line| word(line * 64)).max().unwrap();
            assert!(
                found == told || found == told + 1,
                "kill {kill}: found {found}, but {told} was persisted"
            );
            for n in found.saturating_sub(LINES - 1).max(1)..=found {
                let at = (n % LINES) as usize * 64;
                assert_eq!((word(at), word(at + 8)), (n, mix(n)), "kill {kill}, line of {n}");
            }
            let log = TransactionLog::open(&pool, "log").unwrap();
            let numbers: Vec<u64> = log
                .committed()
                .unwrap()
                .iter()
                .map(|t| u64::from_le_bytes(t.records[0][..].try_into().unwrap()))
                .collect();
            assert!(
                committed.is_none_or(|n| numbers.contains(&n)),
                "kill {kill}: {committed:?} in {numbers:?}"
            );
            assert!(numbers.iter().all(|&n| n <= found), "kill {kill}: {numbers:?}");
            further += u64::from(found > last);
            last = found;
            assert!(pool.check(&mut |_, _| {}).unwrap().is_sound(), "kill {kill}");
            pool.abandon().unwrap();
        }
        assert!(further >= KILLS as u64 / 8, "too few children reached a persist");
    });
}
