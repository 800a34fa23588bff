//! How often it is put in doubt that a page that was stored to will be again. Such pages come back writable, which saves the fault of
//! their first store, and so are written to the store each time they leave. One that is in doubt comes back protected: the fault tells
//! that it is stored to still, or it leaves clean and has cost no write. Where most doubts are wrong there are fewer.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Of the departures of such pages, one in so many at most, and at first, and at least.
const OFTEN: u32 = 4;
const FIRST: u32 = 8;
const SELDOM: u32 = 64;
/// Outcomes after which it is chosen anew.
const ROUND: u32 = 64;
/// Of these, wrong ones from which on there are fewer doubts, or else as many as there were.
const FEWER: u32 = 40;
const STAY: u32 = 28;

/// What became of the doubts of late. Who counts at the same time may count past each other: these are estimates.
#[derive(Debug)]
pub(super) struct Doubts {
    one_in: AtomicU32,
    departures: AtomicU32,
    right: AtomicU32,
    wrong: AtomicU32,
}

impl Default for Doubts {
    fn default() -> Self {
        let [departures, right, wrong] = [const { AtomicU32::new(0) }; 3];
        Self { one_in: AtomicU32::new(FIRST), departures, right, wrong }
    }
}

impl Doubts {
    /// A page that was stored to leaves: whether that is in doubt from now on.
    pub(super) fn raise(&self) -> bool {
        let departures = self.departures.fetch_add(1, Relaxed);
        departures.is_multiple_of(self.one_in.load(Relaxed))
    }

    /// The page left clean.
    pub(super) fn was_right(&self) {
        self.right.fetch_add(1, Relaxed);
        self.learn();
    }

    /// The page was stored to again.
    pub(super) fn was_wrong(&self) {
        self.wrong.fetch_add(1, Relaxed);
        self.learn();
    }

    fn learn(&self) {
        let (right, wrong) = (self.right.load(Relaxed), self.wrong.load(Relaxed));
        if right + wrong < ROUND {
            return;
        }
        self.right.store(0, Relaxed);
        self.wrong.store(0, Relaxed);
        let one_in = self.one_in.load(Relaxed);
        let new = match wrong {
            FEWER.. => (one_in * 2).min(SELDOM),
            STAY.. => one_in,
            _ => (one_in / 2).max(OFTEN),
        };
        self.one_in.store(new, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubts among so many departures of a page that is, or is not, stored to each time.
    fn doubts(doubts: &Doubts, departures: usize, stored_to: bool) -> usize {
        let raised = (0..departures).filter(|_| doubts.raise());
        raised.inspect(|_| if stored_to { doubts.was_wrong() } else { doubts.was_right() }).count()
    }

    #[test]
    fn doubts_are_as_many_as_are_worth_it() {
        let all = Doubts::default();
        assert_eq!(doubts(&all, 8 * 64, true), 64);
        doubts(&all, 10_000, true);
        assert_eq!(doubts(&all, 6_400, true), 100, "one in 64");
        doubts(&all, 64 * 256, false);
        assert_eq!(doubts(&all, 400, false), 100, "one in 4");
        doubts(&all, 10_000, true);
        assert_eq!(doubts(&all, 6_400, true), 100, "and back");
    }
}
