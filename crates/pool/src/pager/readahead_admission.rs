//! Whether pages that were read ahead come back from the waiting room. Those of a scan do not: they were used once,
//! and go straight to the store, where they are already.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A return for so many departures pays for copying all of them: reading what was in order again is cheap.
const SHARE: u32 = 8;
/// One in so many waits in any case, so that a change is seen.
const SAMPLE: u32 = 16;
/// Outcomes after which older ones count half.
const MEMORY: u32 = 1024;

/// What became of pages read ahead that were let into the room.
#[derive(Debug, Default)]
pub(super) struct Returns {
    returned: AtomicU32,
    departed: AtomicU32,
    asked: AtomicU32,
}

impl Returns {
    /// Whether the next one is to wait in the room.
    pub(super) fn worth_waiting(&self) -> bool {
        let (returned, departed) = (self.returned.load(Relaxed), self.departed.load(Relaxed));
        returned.saturating_mul(SHARE) >= departed || self.asked.fetch_add(1, Relaxed).is_multiple_of(SAMPLE)
    }

    /// One came back into memory.
    pub(super) fn returned(&self) {
        self.count(&self.returned);
    }

    /// One left for the store.
    pub(super) fn departed(&self) {
        self.count(&self.departed);
    }

    /// Two threads that halve at once do so twice: these are estimates.
    fn count(&self, what: &AtomicU32) {
        what.fetch_add(1, Relaxed);
        let (returned, departed) = (self.returned.load(Relaxed), self.departed.load(Relaxed));
        if returned.saturating_add(departed) > MEMORY {
            self.returned.store(returned / 2, Relaxed);
            self.departed.store(departed / 2, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(returns: &Returns) -> usize {
        (0..160).filter(|_| returns.worth_waiting()).count()
    }

    #[test]
    fn pages_wait_as_long_as_some_come_back() {
        let returns = Returns::default();
        assert_eq!(waiting(&returns), 160, "nothing is known yet");
        for _ in 0..100_000 {
            returns.departed();
        }
        assert_eq!(waiting(&returns), 10, "a sample");
        for _ in 0..300 {
            returns.returned();
            returns.departed();
        }
        assert_eq!(waiting(&returns), 160, "the past does not weigh for ever");
    }
}
