//! How many frames there may be.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Processes that can share a budget at once.
const PROCESSES: usize = 512;
/// Counters that each process shows the others.
pub const SHOWN: usize = 24;

/// A budget that processes share: it lies in memory that all of them map, zeroed at first.
#[derive(Debug)]
#[repr(C)]
pub struct SharedBudget {
    /// Frames in use by all.
    used: AtomicI64,
    /// Most frames that were ever in use.
    peak: AtomicI64,
    processes: [Member; PROCESSES],
    /// Counters of processes that have ended.
    ended: [AtomicU64; SHOWN],
}

/// What one process has of it.
#[derive(Debug)]
#[repr(C)]
struct Member {
    /// 0: nobody's.
    pid: AtomicI32,
    used: AtomicI64,
    counters: [AtomicU64; SHOWN],
}

impl SharedBudget {
    /// A new one in memory of its own, with the descriptor by which other processes map it
    /// (`/proc/PID/fd/N`). It is mapped for as long as the process lives.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn create() -> io::Result<(&'static Self, OwnedFd)> {
        let memory = rustix::fs::memfd_create("deepram-budget", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, size_of::<Self>() as u64)?;
        // SAFETY: a new shared mapping of the whole of a new file; the budget is made of atomics, for which
        // zeros are values, and the mapping is never undone.
        let budget = unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let at =
                libc::mmap(std::ptr::null_mut(), size_of::<Self>(), protection, flags, memory.as_raw_fd(), 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            &*at.cast::<Self>().cast_const()
        };
        Ok((budget, memory))
    }

    /// Frames in use by all processes.
    #[must_use]
    pub fn used(&self) -> u64 {
        u64::try_from(self.used.load(Relaxed)).unwrap_or(0)
    }

    /// Most frames that were in use at once.
    #[must_use]
    pub fn peak(&self) -> u64 {
        u64::try_from(self.peak.load(Relaxed)).unwrap_or(0)
    }

    /// Processes that live.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.processes.iter().filter(|member| member.pid.load(Relaxed) != 0).count()
    }

    /// Counters of all processes, those that have ended included, in the order of
    /// [`super::PagerStats::entries`].
    #[must_use]
    pub fn counters(&self) -> [u64; SHOWN] {
        let live = self.processes.iter().filter(|member| member.pid.load(Relaxed) != 0);
        let mut sum: [u64; SHOWN] = std::array::from_fn(|n| self.ended[n].load(Relaxed));
        for member in live {
            for (sum, counter) in sum.iter_mut().zip(&member.counters) {
                *sum += counter.load(Relaxed);
            }
        }
        sum
    }

    /// Takes back what processes had that have ended without a word.
    pub fn reap(&self) {
        for member in &self.processes {
            let pid = member.pid.load(Relaxed);
            // SAFETY: signal 0 is sent to nobody.
            let gone = pid != 0 && unsafe { libc::kill(pid, 0) } != 0;
            if gone && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
                self.leave(member, pid);
            }
        }
    }

    fn join(&self) -> Option<&Member> {
        let pid = std::process::id().cast_signed();
        self.reap();
        let free = |member: &&Member| member.pid.compare_exchange(0, pid, Relaxed, Relaxed).is_ok();
        self.processes.iter().find(free)
    }

    fn leave(&self, member: &Member, pid: i32) {
        let used = member.used.swap(0, Relaxed);
        let counters: [u64; SHOWN] = std::array::from_fn(|n| member.counters[n].swap(0, Relaxed));
        // Whoever frees the place accounts for what was in it; another may have been faster.
        self.used.fetch_sub(used, Relaxed);
        for (sum, counter) in self.ended.iter().zip(counters) {
            sum.fetch_add(counter, Relaxed);
        }
        let _ = member.pid.compare_exchange(pid, 0, Relaxed, Relaxed);
    }
}

/// The frames of one process.
#[derive(Debug)]
pub(super) struct Frames {
    limit: AtomicUsize,
    used: AtomicUsize,
    shared: Option<(&'static SharedBudget, &'static Member)>,
    /// Processes that share the budget, as far as was known when last looked.
    sharers: AtomicU32,
}

impl Frames {
    pub(super) fn new(limit: usize, shared: Option<&'static SharedBudget>) -> Self {
        // With too many processes the last ones have a budget of their own.
        let shared = shared.and_then(|budget| Some((budget, budget.join()?)));
        Self { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0), shared, sharers: AtomicU32::new(1) }
    }

    /// Counts frames as used, whether there are any or not.
    pub(super) fn take(&self, n: usize) {
        self.used.fetch_add(n, Relaxed);
        if let Some((budget, member)) = self.shared {
            member.used.fetch_add(n as i64, Relaxed);
            let now = budget.used.fetch_add(n as i64, Relaxed) + n as i64;
            if now > budget.peak.load(Relaxed) {
                budget.peak.fetch_max(now, Relaxed);
            }
        }
    }

    /// Counts them as free again.
    pub(super) fn give(&self, n: usize) {
        self.used.fetch_sub(n, Relaxed);
        if let Some((budget, member)) = self.shared {
            member.used.fetch_sub(n as i64, Relaxed);
            budget.used.fetch_sub(n as i64, Relaxed);
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// By how many frames this process is above what it may use, if `more` are to be free. Where processes
    /// share the budget, one that has less than its part of it may keep what it has.
    pub(super) fn excess(&self, more: usize) -> usize {
        let (used, limit) = (self.used(), self.limit());
        let Some((budget, _)) = self.shared else {
            return (used + more).saturating_sub(limit);
        };
        let part = limit / self.sharers.load(Relaxed).max(1) as usize;
        (budget.used() as usize + more)
            .saturating_sub(limit)
            .min(used.saturating_sub(part.saturating_sub(more)))
    }

    /// Shows the process's counters, and looks who else is there.
    pub(super) fn show(&self, counters: impl Iterator<Item = u64>) {
        if let Some((budget, member)) = self.shared {
            for (shown, counter) in member.counters.iter().zip(counters) {
                shown.store(counter, Relaxed);
            }
            budget.reap();
            self.sharers.store(budget.processes() as u32, Relaxed);
        }
    }

    /// Those of a forked child: as many, counted once more.
    pub(super) fn inherited(&self) -> Self {
        let frames = Self::new(self.limit(), self.shared.map(|(budget, _)| budget));
        frames.take(self.used());
        frames
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some((budget, member)) = self.shared {
            budget.leave(member, std::process::id().cast_signed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> &'static SharedBudget {
        // SAFETY: a budget is made of atomics, for which zeros are values.
        Box::leak(Box::new(unsafe { std::mem::zeroed::<SharedBudget>() }))
    }

    #[test]
    fn a_process_alone_has_the_whole_budget() {
        let frames = Frames::new(100, None);
        frames.take(90);
        assert_eq!((frames.excess(0), frames.excess(20)), (0, 10));
    }

    #[test]
    fn whoever_has_more_than_its_part_gives_way() {
        let budget = shared();
        let (large, small) = (Frames::new(100, Some(budget)), Frames::new(100, Some(budget)));
        large.take(90);
        small.take(20);
        for frames in [&large, &small] {
            frames.show(std::iter::once(7));
        }
        assert_eq!(budget.processes(), 2);
        assert_eq!((large.excess(0), small.excess(0)), (10, 0));
        assert_eq!(budget.counters()[0], 14);
        drop(large);
        assert_eq!((budget.used(), budget.processes(), budget.peak()), (20, 1, 110));
        assert_eq!(budget.counters()[0], 14, "what ended still counts");
        drop(small);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_a_killed_process_had_comes_back() {
        let budget = shared();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        child.wait().unwrap();
        budget.processes[0].pid.store(pid, Relaxed);
        budget.processes[0].used.store(50, Relaxed);
        budget.used.store(50, Relaxed);
        budget.reap();
        assert_eq!((budget.used(), budget.processes()), (0, 0));
    }
}
