//! From the costs of windows to the stalls of a thread.

use super::LINE_BYTES;

/// The newest windows count most: when as many are in the sums, both are halved.
const WINDOWS: u32 = 64;
/// Largest credit of a thread, picoseconds: the cost of looking at a program that must not be stalled is given up beyond.
const CREDIT: i64 = 20_000_000_000;

/// The cost of one window of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowCost {
    /// Time on this machine's memory, picoseconds.
    pub dram_ps: u64,
    /// Time with the emulated read latency, picoseconds.
    pub emulated_ps: u64,
    /// Bytes moved between the caches and memory.
    pub bytes: u64,
}

/// Sums over the newest windows of a thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Estimate {
    sum: WindowCost,
    windows: u32,
}

impl Estimate {
    /// No window yet: nothing is slowed down.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: WindowCost { dram_ps: 0, emulated_ps: 0, bytes: 0 }, windows: 0 }
    }

    /// Adds a window.
    pub fn add(&mut self, window: WindowCost) {
        if self.windows >= WINDOWS {
            self.windows /= 2;
            self.sum.dram_ps /= 2;
            self.sum.emulated_ps /= 2;
            self.sum.bytes /= 2;
        }
        self.windows += 1;
        self.sum.dram_ps += window.dram_ps;
        self.sum.emulated_ps += window.emulated_ps;
        self.sum.bytes += window.bytes;
    }

    /// Number of windows in the sums.
    #[must_use]
    pub const fn windows(&self) -> u32 {
        self.windows
    }

    /// The stall that the read latency adds to a run time, picoseconds.
    #[must_use]
    pub fn stall_ps(&self, run_ps: u64) -> u64 {
        let more = self.sum.emulated_ps.saturating_sub(self.sum.dram_ps);
        scale(run_ps, more, self.sum.dram_ps)
    }

    /// Bytes moved in a run time.
    #[must_use]
    pub fn bytes(&self, run_ps: u64) -> u64 {
        scale(run_ps, self.sum.bytes, self.sum.dram_ps)
    }
}

fn scale(value: u64, by: u64, of: u64) -> u64 {
    if of == 0 {
        return 0;
    }
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

/// The stall that a thread owes. Time spent on looking at the program is part of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Debt(i64);

impl Debt {
    /// Nothing is owed.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a stall, picoseconds.
    pub fn owe(&mut self, stall_ps: u64) {
        self.0 = self.0.saturating_add(i64::try_from(stall_ps).unwrap_or(i64::MAX));
    }

    /// Counts time in which the thread has stood still, picoseconds.
    pub fn pay(&mut self, stood_ps: u64) {
        let stood = i64::try_from(stood_ps).unwrap_or(i64::MAX);
        self.0 = self.0.saturating_sub(stood).max(-CREDIT);
    }

    /// The stall that is due, picoseconds.
    #[must_use]
    pub const fn due_ps(&self) -> u64 {
        if self.0 > 0 { self.0.unsigned_abs() } else { 0 }
    }
}

/// The time until which the capped memory is busy, in picoseconds of a clock that all threads of the run share. The cap
/// holds for reads, writes and flushes of all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BusClock(pub u64);

impl BusClock {
    /// The clock after a thread has moved `bytes` since `begin_ps`, at a cap of `line_ps` for each line. The thread must be
    /// stalled until then. Time before `begin_ps` in which nobody moved bytes is lost.
    #[must_use]
    pub fn after(self, begin_ps: u64, bytes: u64, line_ps: u64) -> Self {
        Self(self.0.max(begin_ps).saturating_add(scale(bytes, line_ps, LINE_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_in_proportion_to_the_run_time() {
        let mut estimate = Estimate::new();
        assert_eq!((estimate.stall_ps(1000), estimate.bytes(1000)), (0, 0));
        estimate.add(WindowCost { dram_ps: 100, emulated_ps: 250, bytes: 6400 });
        assert_eq!((estimate.stall_ps(4_000), estimate.bytes(50)), (6_000, 3200));
        estimate.add(WindowCost { dram_ps: 100, emulated_ps: 100, bytes: 0 });
        assert_eq!((estimate.stall_ps(4_000), estimate.bytes(50)), (3_000, 1600));
        assert!(estimate.stall_ps(u64::MAX) > 1 << 62);
    }

    #[test]
    fn old_windows_are_forgotten() {
        let mut estimate = Estimate::new();
        for _ in 0..1000 {
            estimate.add(WindowCost { dram_ps: 1000, emulated_ps: 3000, bytes: 64 });
        }
        assert_eq!(estimate.stall_ps(1000), 2000);
        for _ in 0..1000 {
            estimate.add(WindowCost { dram_ps: 1000, emulated_ps: 1000, bytes: 0 });
        }
        assert!(estimate.stall_ps(1000) < 10 && estimate.windows() <= WINDOWS, "{estimate:?}");
    }

    #[test]
    fn time_spent_on_looking_is_part_of_the_stall() {
        let mut debt = Debt::new();
        debt.pay(3_000);
        debt.owe(10_000);
        assert_eq!(debt.due_ps(), 7_000);
        debt.pay(8_000);
        assert_eq!(debt.due_ps(), 0);
        debt.owe(1_500);
        assert_eq!(debt.due_ps(), 500);
        debt.pay(u64::MAX);
        debt.owe(CREDIT as u64 + 5);
        assert_eq!(debt.due_ps(), 5, "a credit is bounded");
    }

    #[test]
    fn threads_that_share_a_cap_move_as_many_bytes_as_it_allows() {
        // Two threads that want 10 bytes/ps each, at a cap of 1 byte/ps.
        let (mut clock, mut now, mut bytes) = (BusClock::default(), [0_u64; 2], 0);
        for step in 0..1000 {
            let thread = step % 2;
            let begin = now[thread];
            clock = clock.after(begin, 1_000, LINE_BYTES);
            bytes += 1_000;
            now[thread] = (begin + 100).max(clock.0);
        }
        assert_eq!(now[0].max(now[1]), bytes);
        // Unused time is not saved.
        assert_eq!(BusClock(5).after(1_000, 2 * LINE_BYTES, 10), BusClock(1_020));
    }
}
