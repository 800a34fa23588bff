//! For real: a process that stores through the mapped address and syncs is killed with SIGKILL at
//! random moments, again and again, and its pool is reopened and compared word by word.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use deepram_pool::{CreateOptions, Epoch, Lifetime, Mapping, OpenOptions, Pool};
use deepram_testkit::seeds;
use rand::RngExt;

mod scratch;
use scratch::{MIB, Scratch, mappable, mix};

const BYTES: u64 = 8 * MIB;
const WORDS: u64 = BYTES / 8;
/// Less than the data, so that segments are written back and evicted between syncs.
const DRAM: u64 = 14 * MIB;
/// Stores of a round; then comes a sync.
const STORES: u64 = 300;
const KILLS: usize = 200;
const LONGEST_MS: u64 = 120;

/// The stores of a round: word, value. Word 0 tells the round.
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

/// The last round that a child told of before it was killed, if any.
fn run_and_kill(path: &Path, after: Duration) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--nocapture", "--test-threads=1"])
        .env("DEEPRAM_TEST_KILLED", path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    let told = output.lines().map_while(Result::ok).filter_map(|line| {
        let mut parts = line.split_whitespace();
        (parts.next() == Some("synced")).then(|| parts.next()?.parse().ok()).flatten()
    });
    told.last()
}

/// What the pool must hold, round by round, and the way back.
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
            let told = run_and_kill(&scratch.path(), Duration::from_millis(rng.random_range(0..LONGEST_MS)));
            let pool = Pool::open(&[scratch.path()], &options).unwrap();
            let mut first = [0; 8];
            pool.read(addr, &mut first).unwrap();
            let found = u64::from_le_bytes(first);
            let told = told.unwrap_or(expected.round);
            // The sync that was under way may have become durable just before the kill.
            assert!(
                found == told || found == told + 1,
                "kill {kill}: round {found} is there, {told} was synced"
            );
            synced += u64::from(found > expected.round);
            further += u64::from(found > told);
            expected.advance_to(found);
            expected.compare(&pool, "after a kill");
            if kill % 10 == 9 {
                let tokens: Vec<Epoch> = pool.history().iter().map(|h| h.token).collect();
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
            "{KILLS} kills: {synced} after at least one sync, {further} with one sync more than was told"
        );
        assert!(synced > KILLS as u64 / 4, "the children came to sync");
    });
}
