//! How long a thread looks for something without sleeping: a processor that has gone to sleep takes longer to wake than
//! a device takes to answer (docs/adr/0016).

use std::time::{Duration, Instant};

/// How long it looks.
const SPIN: Duration = Duration::from_micros(150);
/// Between two looks somebody else had the processor if they are further apart than this.
const LATE: Duration = Duration::from_micros(50);
/// Sleeps before a crowded processor is tried again.
const SLEEPS: u32 = 64;

/// One thread's.
pub(crate) struct Patience {
    /// Somebody else wants this processor: so many times more the thread sleeps rather than look.
    crowded: u32,
    since: Instant,
    looked: Instant,
}

impl Patience {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { crowded: 0, since: now, looked: now }
    }

    /// Something was found, or the thread has slept.
    pub(crate) fn begin(&mut self) {
        self.since = Instant::now();
        self.looked = self.since;
    }

    /// Nothing was found; whether to look again. If not, the thread sleeps.
    pub(crate) fn lasts(&mut self) -> bool {
        if self.crowded == 0 && self.since.elapsed() < SPIN {
            if self.looked.elapsed() > LATE {
                self.crowded = SLEEPS;
            }
            self.looked = Instant::now();
            std::hint::spin_loop();
            return true;
        }
        self.crowded = self.crowded.saturating_sub(1);
        false
    }
}
