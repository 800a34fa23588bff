//! The expected contents of a pool whose process was killed (`killed_threads.rs`), derived from the process's
//! reports.

use std::collections::BTreeMap;

use deepram_pool::{Addr, Pool};

use super::*;

/// The least and the greatest last step that a state may have, by thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) least: [u64; THREADS],
    pub(crate) most: [u64; THREADS],
}

/// The operation that the child had begun when it was killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    Nothing,
    Sync([u64; THREADS]),
    Rollback(u64),
}

pub(crate) struct Model {
    /// Branch numbers, each with the last step of each thread before the branch.
    branches: Vec<(u64, [u64; THREADS])>,
    /// The bounds on the state of each token.
    pub(crate) tokens: BTreeMap<u64, Bounds>,
    /// The last token that a sync returned, or that the pool was rolled back to.
    last: u64,
    pending: Pending,
    /// The last step persisted since that token.
    persisted: u64,
    pub(crate) syncs: u64,
    pub(crate) rollbacks: u64,
}

impl Model {
    /// The model of a pool at this token, before any step.
    pub(crate) fn new(token: u64) -> Self {
        let nothing = Bounds { least: [0; THREADS], most: [0; THREADS] };
        Self {
            branches: Vec::new(),
            tokens: BTreeMap::from([(token, nothing)]),
            last: token,
            pending: Pending::Nothing,
            persisted: 0,
            syncs: 0,
            rollbacks: 0,
        }
    }

    pub(crate) fn hear(&mut self, line: &str) {
        let mut parts = line.split_whitespace();
        let what = parts.next().unwrap();
        let numbers: Vec<u64> = parts.map(|n| n.parse().unwrap()).collect();
        let steps = |from: usize| -> [u64; THREADS] { numbers[from..].try_into().unwrap() };
        match what {
            "started" => self.branches.push((numbers[0], steps(1))),
            "syncing" => self.pending = Pending::Sync(steps(0)),
            "synced" => {
                let Pending::Sync(least) = self.pending else { panic!("{line}") };
                self.tokens.insert(numbers[0], Bounds { least, most: steps(1) });
                (self.last, self.pending) = (numbers[0], Pending::Nothing);
                self.syncs += 1;
            }
            "returning" => self.pending = Pending::Rollback(numbers[0]),
            "stayed" => self.pending = Pending::Nothing,
            "returned" => {
                let Pending::Rollback(token) = self.pending else { panic!("{line}") };
                self.settle_at(token);
                let now = steps(1);
                let Bounds { least, most } = self.tokens[&token];
                let allowed = (0..THREADS).all(|n| (least[n]..=most[n]).contains(&now[n]));
                assert!(allowed, "a rollback to {token} brought {now:?}, not {least:?} to {most:?}");
                self.branches.push((numbers[0], now));
                self.rollbacks += 1;
            }
            "persisted" => self.persisted = numbers[0],
            other => panic!("the child says {other}"),
        }
    }

    /// The pool is at this token, and the younger tokens are gone.
    fn settle_at(&mut self, token: u64) {
        self.tokens.split_off(&(token + 1));
        (self.last, self.pending, self.persisted) = (token, Pending::Nothing, 0);
    }

    /// Returns the branch that made a step of the pool's current state.
    fn branch_of(&self, thread: usize, step: u64) -> u64 {
        let of = self.branches.iter().rev().find(|(_, before)| before[thread] < step);
        of.unwrap_or_else(|| panic!("step {step} of thread {thread} belongs to no branch")).0
    }

    /// Returns the bounds on the pool's newest state, and records the token `found` as current.
    pub(crate) fn newest(&mut self, found: u64) -> Bounds {
        let persisted = self.persisted;
        let bounds = match self.pending {
            Pending::Sync(least) if found > self.last => {
                let bounds = Bounds { least, most: [u64::MAX; THREADS] };
                self.tokens.insert(found, bounds);
                bounds
            }
            Pending::Rollback(token) if found == token => {
                self.settle_at(token);
                return Bounds { most: [u64::MAX; THREADS], ..self.tokens[&token] };
            }
            _ => {
                assert_eq!(found, self.last, "the newest token; the child had begun {:?}", self.pending);
                self.tokens[&found]
            }
        };
        self.settle_at(found);
        let Bounds { mut least, mut most } = bounds;
        // Persisted steps are replayed on top of the token.
        least[PERSISTER] = least[PERSISTER].max(persisted);
        most[PERSISTER] = u64::MAX;
        Bounds { least, most }
    }

    /// Compares a state with the model. Returns the last steps.
    pub(crate) fn compare(
        &self,
        read: &dyn Fn(u64, &mut [u8]),
        bounds: Bounds,
        context: &str,
    ) -> [u64; THREADS] {
        let mut bytes = vec![0; AREA as usize];
        read(0, &mut bytes);
        let word = |at: u64| u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap());
        let mut last = [0; THREADS].map(|_: u64| 0);
        for (thread, last) in last.iter_mut().enumerate() {
            *last = match thread {
                PERSISTER => (0..LINES).map(|n| step_of(word(LINES_AT + n * 64))).max().unwrap(),
                _ => word(COUNTERS + thread as u64 * 64),
            };
            let (least, most) = (bounds.least[thread], bounds.most[thread]);
            assert!(
                (least..=most).contains(last),
                "{context}: thread {thread} is at step {last}, not {least} to {most}"
            );
        }
        for (thread, &step) in last.iter().enumerate().take(PERSISTER) {
            self.compare_stores(thread, step, &|n| word((thread as u64 * WORDS + n) * 8), context);
        }
        let step = last[PERSISTER];
        for line in 0..LINES {
            let before = (1..=step).rev().take(LINES as usize).find(|n| n % LINES == line);
            for i in 0..2 {
                let found = word(LINES_AT + line * 64 + i * 8);
                let expected = before.map_or(0, |n| value(PERSISTER, n, self.branch_of(PERSISTER, n), i));
                // An interrupted next step has stored its second word first.
                let next = i == 1 && (step + 1) % LINES == line && self.is_of(PERSISTER, step + 1, 1, found);
                assert!(
                    found == expected || next,
                    "{context}: line {line}, word {i} is {found:#x}, not {expected:#x}"
                );
            }
        }
        last
    }

    /// Returns whether some branch stored this value in this step.
    fn is_of(&self, thread: usize, step: u64, i: u64, found: u64) -> bool {
        self.branches.iter().any(|(branch, _)| value(thread, step, *branch, i) == found)
    }

    fn compare_stores(&self, thread: usize, step: u64, word: &dyn Fn(u64) -> u64, context: &str) {
        let made = step * STORES;
        // The next step may have begun: the words then hold its first stores.
        let mut reached = true;
        for i in 0..STORES {
            let is_next = self.is_of(thread, step + 1, i, word(place(made + i)));
            assert!(
                reached || !is_next,
                "{context}: thread {thread}, store {i} of step {} without the store before it",
                step + 1
            );
            reached = reached && is_next;
        }
        for n in 0..WORDS {
            let turn = turn(n);
            let found = word(n);
            let since = made.checked_sub(turn + 1).map(|left| left / WORDS * WORDS + turn);
            let expected = since.map_or(0, |m| {
                let step = m / STORES + 1;
                value(thread, step, self.branch_of(thread, step), m % STORES)
            });
            let next = (turn + WORDS - made % WORDS) % WORDS;
            let is_next = next < STORES && self.is_of(thread, step + 1, next, found);
            assert!(
                found == expected || is_next,
                "{context}: thread {thread}, word {n} is {found:#x}, not {expected:#x}"
            );
        }
    }

    /// Checks the objects of the newest state: each is complete, and at most the page of an interrupted step
    /// is allocated besides.
    pub(crate) fn compare_objects(&self, pool: &Pool, base: Addr, step: u64, context: &str) {
        let word = |at: u64| {
            let mut bytes = [0; 8];
            pool.read(base.offset_by(at).unwrap(), &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        for number in 0..OBJECTS {
            let entry = word(TABLE + number * 8);
            let [now, next] = [step, step + 1].map(|step| object(number, step));
            let is_next = (step + 1) % OBJECTS == number;
            let there = entry != 0;
            assert!(
                there == now.is_some() || (is_next && there == next.is_some()),
                "{context}: object {number} at step {step}: exists is {there}"
            );
            if there {
                let made = if now.is_some() { now } else { next }.unwrap();
                for at in (0..PAGE).step_by(512) {
                    let mut found = [0; 8];
                    let addr = Addr::from_raw(entry).offset_by(at).unwrap();
                    pool.read(addr, &mut found)
                        .unwrap_or_else(|error| panic!("{context}: object {number}: {error}"));
                    assert_eq!(
                        u64::from_le_bytes(found),
                        mix(made ^ at),
                        "{context}: object {number}, byte {at}"
                    );
                }
            }
        }
        let strays = stray_pages(pool, base, &word);
        assert!(strays.len() <= 1, "{context}: {strays:?} are allocated but belong to no object");
    }
}
