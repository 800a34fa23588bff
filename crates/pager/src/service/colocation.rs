//! Decides whether several faulting threads share the processor of the leading handler (docs/adr/0058).
//!
//! Each change of threads between two processors costs more than the service of the fault itself, in processor time. So
//! threads that mostly wait for faults run on one processor together, with their handler and the evictors, as long as
//! their own computing leaves enough of it.

use std::time::{Duration, Instant};

/// Time over which faults and processor time are counted. A thread without a fault in a whole window is forgotten.
pub(super) const WINDOW: Duration = Duration::from_millis(20);
/// Share of one processor that the faulting threads compute in a window: up to the first they are brought together, above
/// the second they run anywhere again.
const LOW_SHARE: f64 = 0.33;
const HIGH_SHARE: f64 = 0.5;
/// Windows with a low share before threads are brought together.
const LOW_WINDOWS: u32 = 2;
/// Fewest faults in a window; with fewer, there is little to gain.
const LEAST_FAULTS: f64 = 64.0;
/// More threads run anywhere: their faults may keep one processor busy, although they compute little.
const MOST_THREADS: usize = 4;

/// The threads that have faulted in this window or the one before, and their processor time.
#[derive(Debug)]
pub(super) struct FaultingThreads {
    threads: Vec<FaultingThread>,
    /// Whether there are more than [`MOST_THREADS`].
    overflowed: bool,
    since: Instant,
    faults: u32,
    /// Consecutive windows with a low share, at most [`LOW_WINDOWS`].
    low_windows: u32,
}

#[derive(Debug)]
struct FaultingThread {
    id: i32,
    /// Its processor time when the window began, or at its first fault.
    cpu_ns: u64,
    faulted: bool,
}

impl FaultingThreads {
    pub(super) fn new(now: Instant) -> Self {
        Self { threads: Vec::new(), overflowed: false, since: now, faults: 0, low_windows: 0 }
    }

    /// Counts a fault. `cpu_ns` reads the processor time of a thread of this process. Returns whether a window has ended.
    pub(super) fn count_fault(
        &mut self,
        thread: i32,
        now: Instant,
        cpu_ns: impl Fn(i32) -> Option<u64>,
    ) -> bool {
        self.faults += 1;
        if let Some(known) = self.threads.iter_mut().find(|known| known.id == thread) {
            known.faulted = true;
        } else if self.threads.len() == MOST_THREADS {
            self.overflowed = true;
        } else if let Some(cpu_ns) = cpu_ns(thread) {
            self.threads.push(FaultingThread { id: thread, cpu_ns, faulted: true });
        }
        let ended = now.saturating_duration_since(self.since) >= WINDOW;
        if ended {
            self.end_window(now, cpu_ns);
        }
        ended
    }

    fn end_window(&mut self, now: Instant, cpu_ns: impl Fn(i32) -> Option<u64>) {
        let elapsed = now.saturating_duration_since(self.since).as_nanos() as f64;
        let mut used = 0;
        for thread in &mut self.threads {
            let cpu_ns = cpu_ns(thread.id).unwrap_or(thread.cpu_ns);
            used += cpu_ns.saturating_sub(thread.cpu_ns);
            thread.cpu_ns = cpu_ns;
        }
        self.threads.retain_mut(|thread| std::mem::take(&mut thread.faulted));
        let faults = f64::from(self.faults) * WINDOW.as_nanos() as f64 / elapsed;
        let share = used as f64 / elapsed;
        let limit = if self.together() { HIGH_SHARE } else { LOW_SHARE };
        let low = !self.overflowed && self.threads.len() > 1 && faults >= LEAST_FAULTS && share <= limit;
        self.low_windows = if low { (self.low_windows + 1).min(LOW_WINDOWS) } else { 0 };
        (self.since, self.faults, self.overflowed) = (now, 0, false);
    }

    /// Whether the threads share a processor.
    pub(super) fn together(&self) -> bool {
        self.low_windows == LOW_WINDOWS
    }

    /// Whether the thread has faulted in the last window.
    pub(super) fn contains(&self, thread: i32) -> bool {
        self.threads.iter().any(|known| known.id == thread)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Threads that fault by turns: in each window, `faults` faults of `threads` threads, which compute `share` of a
    /// processor together.
    struct Windows {
        faulting: FaultingThreads,
        now: Instant,
        cpu_ns: Cell<u64>,
    }

    impl Windows {
        fn new() -> Self {
            let now = Instant::now();
            Self { faulting: FaultingThreads::new(now), now, cpu_ns: Cell::new(0) }
        }

        fn pass(&mut self, threads: i32, faults: u32, share: f64) -> bool {
            let step = WINDOW / faults + Duration::from_nanos(1);
            for n in 0..faults {
                self.now += step;
                let computed = share * step.as_nanos() as f64 / f64::from(threads);
                self.cpu_ns.set(self.cpu_ns.get() + computed as u64);
                self.faulting.count_fault(n as i32 % threads + 1, self.now, |_| Some(self.cpu_ns.get()));
            }
            self.faulting.together()
        }
    }

    #[test]
    fn threads_that_mostly_wait_are_brought_together_after_two_windows() {
        let mut windows = Windows::new();
        assert!(!windows.pass(4, 400, 0.2));
        assert!(windows.pass(4, 400, 0.2));
        assert!(windows.pass(4, 400, 0.45), "they compute more, and one processor is still enough");
        assert!(!windows.pass(4, 400, 0.55));
        assert!(!windows.pass(4, 400, 0.45) && !windows.pass(4, 400, 0.45), "they were not together before");
        assert!(!windows.pass(4, 400, 0.3));
        assert!(windows.pass(4, 400, 0.3));
    }

    #[test]
    fn one_thread_few_faults_or_too_many_threads_are_not_brought_together() {
        for (threads, faults, because) in
            [(1, 400, "one"), (4, 40, "few"), (MOST_THREADS as i32 + 1, 400, "many")]
        {
            let mut windows = Windows::new();
            assert!((0..5).all(|_| !windows.pass(threads, faults, 0.1)), "{because}");
        }
        let mut windows = Windows::new();
        windows.pass(4, 400, 0.1);
        windows.pass(4, 400, 0.1);
        assert!(!windows.pass(4, 50, 0.1), "few faults are no longer worth a shared processor");
    }

    #[test]
    fn a_thread_without_a_fault_in_a_window_is_forgotten() {
        let mut windows = Windows::new();
        windows.pass(3, 300, 0.1);
        assert!(windows.pass(3, 300, 0.1) && windows.faulting.contains(3));
        windows.pass(2, 300, 0.1);
        assert!(windows.faulting.contains(2) && !windows.faulting.contains(3));
    }

    #[test]
    fn threads_of_other_processes_are_not_observed() {
        let now = Instant::now();
        let mut faulting = FaultingThreads::new(now);
        for n in 0..1_000 {
            faulting.count_fault(1 + n % 4, now + WINDOW / 100 * n as u32, |_| None);
        }
        assert!(!faulting.together() && !faulting.contains(1));
    }
}
