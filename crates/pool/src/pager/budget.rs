//! How many frames there may be.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use super::seats::SharedBudget;
use super::shared::BudgetReading;
use super::stats::{GAUGES, PagerStats, ROW_LEN, Row, TOTALS};

/// Processes that can share a budget at once.
pub(super) const PROCESSES: usize = 512;
/// Frames that there are for what is paged, whatever tables take.
const LEAST: usize = 256;
/// Pages that a process keeps even though all DRAM is taken by what is not paged: one instruction of each of its threads may
/// need several pages at once, and would never end if each that comes drove out another.
const FLOOR: usize = 64;
/// How often a reading is begun anew because a process is just leaving. One that is killed while it leaves
/// must not stop all readings for good.
const TRIES: usize = 100;

/// What processes that share a budget know of each other, in memory that all of them map, zeroed at first. What is
/// looked at often lies together, so that the rest takes no memory until it is used.
#[derive(Debug)]
#[repr(C)]
pub(super) struct BudgetMemory {
    /// What this memory is (`shared.rs`).
    pub(super) header: [AtomicU64; 3],
    /// Bytes.
    dram: AtomicU64,
    began_ns: AtomicU64,
    /// Frames in use by all.
    used: AtomicI64,
    /// Most frames that were ever in use.
    peak: AtomicI64,
    /// Times that a seat began to be, and has been, given up: while they differ, totals are on the move.
    leaving: AtomicU64,
    left: AtomicU64,
    /// Times that a seat was taken, or became a reservation.
    pub(super) joined: AtomicU64,
    /// A bit for each [`super::seats::Notice`] that a process of the run has printed.
    pub(super) noticed: AtomicU64,
    /// Most that each gauge was for all processes together.
    peaks: [AtomicU64; GAUGES.len()],
    /// Who has which seat, by its own number for itself; 0: nobody. Whether it lives its lock tells (`seats.rs`). Negative: the
    /// seat is not a process's but a reservation that the process of this number has made.
    pub(super) pids: [AtomicI32; PROCESSES],
    /// Frames in use by each.
    frames: [AtomicI64; PROCESSES],
    /// Totals of processes that have ended.
    ended: [AtomicU64; TOTALS],
    rows: [[AtomicU64; ROW_LEN]; PROCESSES],
}

impl BudgetMemory {
    /// Sets what a new one is.
    pub(super) fn begin(&self, dram: u64, now_ns: u64) {
        self.dram.store(dram, Relaxed);
        self.began_ns.store(now_ns, Relaxed);
    }

    /// What is there now, with processes by the numbers that the caller knows for who has a seat, if not 0. Stores nothing.
    pub(super) fn read(&self, number: impl Fn(usize) -> Option<u32>) -> BudgetReading {
        let row = (0..TRIES).find_map(|_| self.steady_sum()).unwrap_or_else(|| self.sum());
        let positive = |number: &AtomicI64| u64::try_from(number.load(Relaxed)).unwrap_or(0);
        let pid = |seat: usize| match number(seat) {
            None | Some(0) => self.pids[seat].load(Relaxed).unsigned_abs(),
            Some(pid) => pid,
        };
        BudgetReading {
            used: positive(&self.used),
            peak: positive(&self.peak),
            dram: self.dram.load(Relaxed),
            began_ns: self.began_ns.load(Relaxed),
            processes: self.seats().map(|seat| (pid(seat), positive(&self.frames[seat]))).collect(),
            stats: PagerStats::from_row(&row),
            peaks: PagerStats::from_peaks(self.peaks.each_ref().map(|peak| peak.load(Relaxed))),
        }
    }

    /// Seats that are somebody's.
    pub(super) fn seats(&self) -> impl Iterator<Item = usize> {
        (0..PROCESSES).filter(|seat| self.pids[*seat].load(Relaxed) != 0)
    }

    /// Bytes of DRAM that there may be.
    pub(super) fn dram(&self) -> u64 {
        self.dram.load(Relaxed)
    }

    /// How often the seats have changed.
    fn changes(&self) -> u64 {
        self.joined.load(SeqCst).wrapping_add(self.left.load(SeqCst))
    }

    /// Frames that are reserved, and how many processes share the others.
    pub(super) fn reserved(&self) -> (usize, usize) {
        self.seats().fold((0, 0), |(reserved, sharers), seat| {
            if self.pids[seat].load(Relaxed) < 0 {
                (reserved + self.frames[seat].load(Relaxed).max(0) as usize, sharers)
            } else {
                (reserved, sharers + 1)
            }
        })
    }

    /// Takes note of what all gauges together are now.
    fn note_peaks(&self) {
        for (n, peak) in self.peaks.iter().enumerate() {
            let now = self.seats().map(|seat| self.rows[seat][TOTALS + n].load(Relaxed)).sum();
            peak.fetch_max(now, Relaxed);
        }
    }

    /// The sum of all rows, unless a seat was given up meanwhile.
    fn steady_sum(&self) -> Option<Row> {
        let left = self.left.load(SeqCst);
        let row = self.sum();
        if self.leaving.load(SeqCst) == left {
            return Some(row);
        }
        std::thread::yield_now();
        None
    }

    fn sum(&self) -> Row {
        let mut sum = [0; ROW_LEN];
        let mut plus = |row: &[AtomicU64]| {
            sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += number.load(Relaxed));
        };
        plus(&self.ended);
        self.seats().for_each(|seat| plus(&self.rows[seat]));
        sum
    }

    /// Frames in use by all.
    pub(super) fn used(&self) -> i64 {
        self.used.load(Relaxed)
    }

    /// Counts frames as used by who has the seat.
    pub(super) fn take(&self, seat: usize, n: i64) {
        self.frames[seat].fetch_add(n, Relaxed);
        let now = self.used.fetch_add(n, Relaxed) + n;
        if now > self.peak.load(Relaxed) {
            self.peak.fetch_max(now, Relaxed);
        }
    }

    /// Takes back what the process on this seat had. Whoever calls has locked the seat.
    pub(super) fn vacate(&self, seat: usize) {
        self.leaving.fetch_add(1, SeqCst);
        let used = self.frames[seat].swap(0, Relaxed);
        self.used.fetch_sub(used, Relaxed);
        for (n, number) in self.rows[seat].iter().enumerate() {
            let number = number.swap(0, Relaxed);
            if let Some(ended) = self.ended.get(n) {
                ended.fetch_add(number, Relaxed);
            }
        }
        self.pids[seat].store(0, Relaxed);
        self.left.fetch_add(1, SeqCst);
    }
}

/// What a process has of a shared budget.
#[derive(Debug)]
struct Share {
    budget: &'static SharedBudget,
    seat: AtomicUsize,
}

/// The frames of one process.
#[derive(Debug)]
pub(super) struct Frames {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Of these, how many are no frames but memory that is not paged.
    beside: AtomicUsize,
    /// And how many are frames of the room that no page is in.
    idle: AtomicUsize,
    /// And how many are pages of the pager's own tables.
    tables: AtomicUsize,
    shared: Option<Share>,
    /// Processes that share the budget, as far as was known when last looked.
    sharers: AtomicU32,
    /// Frames of the budget that nested runs have reserved, as far as was known then.
    reserved: AtomicUsize,
    /// Changes of the seats ([`BudgetMemory::changes`]) by then.
    changes: AtomicU64,
}

impl Frames {
    pub(super) fn new(limit: usize, shared: Option<&'static SharedBudget>) -> Self {
        // With too many processes the last ones have a budget of their own.
        let shared = shared.and_then(|budget| Some(Share { budget, seat: budget.join()?.into() }));
        let [used, beside, idle, tables] = [const { AtomicUsize::new(0) }; 4];
        let (sharers, reserved, changes) = (AtomicU32::new(1), AtomicUsize::new(0), AtomicU64::new(0));
        let limit = AtomicUsize::new(limit);
        Self { limit, used, beside, idle, tables, shared, sharers, reserved, changes }
    }

    /// The descriptors that it needs.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.shared.iter().flat_map(|share| share.budget.descriptors())
    }

    #[inline]
    fn shared(&self) -> Option<(&'static BudgetMemory, usize)> {
        self.shared.as_ref().map(|share| (share.budget.memory(), share.seat.load(Relaxed)))
    }

    /// Counts frames as used, whether there are any or not.
    pub(super) fn take(&self, n: usize) {
        self.used.fetch_add(n, Relaxed);
        if let Some((budget, seat)) = self.shared() {
            budget.take(seat, n as i64);
        }
    }

    /// Counts them as free again.
    pub(super) fn give(&self, n: usize) {
        self.used.fetch_sub(n, Relaxed);
        if let Some((budget, seat)) = self.shared() {
            budget.frames[seat].fetch_sub(n as i64, Relaxed);
            budget.used.fetch_sub(n as i64, Relaxed);
        }
    }

    /// Counts so many pages that are not paged as used, instead of as many as before.
    pub(super) fn set_beside(&self, pages: usize) {
        self.change(&self.beside, pages);
    }

    /// Counts so many frames of the room as used though no page is in them, instead of as many as before: they have memory.
    pub(super) fn set_idle(&self, frames: usize) {
        self.change(&self.idle, frames);
    }

    /// Counts so many pages of tables as used, instead of as many as before: as far as they leave frames for what is paged.
    pub(super) fn set_tables(&self, pages: usize) {
        self.change(&self.tables, pages.min(self.limit().saturating_sub(LEAST)));
    }

    fn change(&self, part: &AtomicUsize, now: usize) {
        let before = part.swap(now, Relaxed);
        if now > before {
            self.take(now - before);
        } else if now < before {
            self.give(before - now);
        }
    }

    /// Frames that a page is in.
    pub(super) fn paged(&self) -> usize {
        self.used().saturating_sub(self.beside() + self.idle.load(Relaxed) + self.tables.load(Relaxed))
    }

    pub(super) fn beside(&self) -> usize {
        self.beside.load(Relaxed)
    }

    /// Most frames of what is paged.
    pub(super) fn most_paged(&self) -> usize {
        self.limit().saturating_sub(self.beside() + self.tables.load(Relaxed))
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Frames that this process has if all that share the budget have as many.
    pub(super) fn share(&self) -> usize {
        self.most_paged().saturating_sub(self.reserved.load(Relaxed))
            / self.sharers.load(Relaxed).max(1) as usize
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit.max(LEAST), Relaxed);
    }

    /// By how many frames this process is above what it may use, if `more` are to be free; [`FLOOR`] pages stay. Where processes
    /// share the budget, one that has less than its part of it may keep what it has.
    pub(super) fn excess(&self, more: usize) -> usize {
        let (used, limit, may_leave) = (self.used(), self.limit(), self.paged().saturating_sub(FLOOR));
        let Some((budget, _)) = self.shared() else {
            return (used + more).saturating_sub(limit).min(may_leave);
        };
        if self.changes.load(Relaxed) != budget.changes() {
            self.look();
        }
        let unreserved = limit.saturating_sub(self.reserved.load(Relaxed));
        let part = unreserved / self.sharers.load(Relaxed).max(1) as usize;
        (budget.used().max(0) as usize + more)
            .saturating_sub(limit)
            .min(used.saturating_sub(part.saturating_sub(more)))
            .min(may_leave)
    }

    /// Shows the process's figures, and looks who else is there.
    pub(super) fn show(&self, row: &Row) {
        let Some(Share { budget, seat }) = &self.shared else { return };
        // Without a seat it goes on as it did, and tries again.
        if let Err(Some(new)) = budget.keep(seat.load(Relaxed)) {
            seat.store(new, Relaxed);
            budget.memory().take(new, self.used() as i64);
        }
        let seat = seat.load(Relaxed);
        for (shown, number) in budget.memory().rows[seat].iter().zip(row) {
            shown.store(*number, Relaxed);
        }
        budget.memory().note_peaks();
        budget.reap_after(seat);
        self.look();
    }

    /// Looks who shares the budget.
    fn look(&self) {
        let Some((budget, _)) = self.shared() else { return };
        self.changes.store(budget.changes(), Relaxed);
        let (reserved, sharers) = budget.reserved();
        self.reserved.store(reserved, Relaxed);
        self.sharers.store(sharers as u32, Relaxed);
    }

    /// Those of a forked child: as many, less those that it leaves to its parent; counted once more.
    pub(super) fn inherited(&self, left: usize) -> Self {
        let frames = Self::new(self.limit(), self.shared.as_ref().map(|share| share.budget.in_child()));
        frames.look();
        // What is beside them, and what is idle, the child counts itself.
        frames.take(self.paged().saturating_sub(left));
        frames
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(Share { budget, seat }) = &self.shared {
            budget.leave(seat.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> &'static SharedBudget {
        SharedBudget::create(100 << 12).unwrap()
    }

    #[test]
    fn a_process_alone_has_the_whole_budget() {
        let frames = Frames::new(100, None);
        frames.take(90);
        assert_eq!((frames.excess(0), frames.excess(20)), (0, 10));
    }

    #[test]
    fn memory_beside_the_paged_takes_frames_from_it() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        let frames = Frames::new(1000, Some(budget));
        frames.take(500);
        frames.set_beside(400);
        assert_eq!((frames.excess(200), frames.most_paged(), budget.read().used), (100, 600, 900));
        frames.set_beside(100);
        assert_eq!((frames.excess(200), frames.used(), budget.read().used), (0, 600, 600));
    }

    #[test]
    fn a_few_pages_stay_though_all_dram_is_taken_by_what_is_not_paged() {
        for frames in
            [Frames::new(1000, None), Frames::new(1000, Some(SharedBudget::create(1000 << 12).unwrap()))]
        {
            frames.take(FLOOR + 3);
            frames.set_beside(2000);
            assert_eq!(frames.excess(1), 3);
            frames.give(3);
            assert_eq!(frames.excess(1), 0);
        }
    }

    #[test]
    fn a_child_counts_what_it_has_of_the_paged() {
        let frames = Frames::new(100, None);
        frames.take(50);
        frames.set_beside(10);
        frames.set_idle(7);
        assert_eq!((frames.used(), frames.paged()), (67, 50));
        frames.set_tables(5);
        assert_eq!((frames.used(), frames.paged()), (67, 50), "of so few frames none is left for tables");
        let child = frames.inherited(5);
        assert_eq!((child.used(), child.beside(), child.limit()), (45, 0, 100));
    }

    #[test]
    fn tables_of_all_processes_count_for_each() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        let (one, other) = (Frames::new(1000, Some(budget)), Frames::new(1000, Some(budget)));
        one.take(800);
        one.set_tables(90);
        other.set_tables(130);
        [&one, &other].iter().for_each(|frames| frames.show(&[0; ROW_LEN]));
        assert_eq!((one.excess(0), one.paged(), budget.read().used), (20, 800, 1020));
        other.set_tables(110);
        assert_eq!((one.excess(0), other.most_paged()), (0, 890));
    }

    #[test]
    fn whoever_has_more_than_its_part_gives_way() {
        let budget = shared();
        let (large, small) = (Frames::new(100, Some(budget)), Frames::new(100, Some(budget)));
        large.take(90);
        small.take(20);
        for frames in [&large, &small] {
            frames.show(&[7; ROW_LEN]);
        }
        assert_eq!((large.excess(0), small.excess(0)), (10, 0));
        let both = budget.read();
        assert_eq!(both.processes.iter().map(|(_, used)| *used).collect::<Vec<_>>(), [90, 20]);
        assert_eq!(
            (both.stats.faults_fresh, both.stats.queue_depth_sum, both.stats.swap_file_bytes),
            (14, 14, 14)
        );
        drop(large);
        let one = budget.read();
        assert_eq!((one.used, one.processes.len(), one.peak), (20, 1, 110));
        assert_eq!((one.stats.faults_fresh, one.stats.queue_depth_sum), (14, 14), "what ended still counts");
        assert_eq!(one.stats.swap_file_bytes, 7, "a store ends with its process");
        assert_eq!((one.stats.fault_latency.len(), one.stats.queue_depth.len()), (128, 64));
        drop(small);
        assert_eq!(budget.read().used, 0);
    }

    #[test]
    fn a_process_that_joins_has_its_part_at_once() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        let first = Frames::new(1000, Some(budget));
        first.show(&[0; ROW_LEN]);
        first.take(990);
        let second = Frames::new(1000, Some(budget));
        second.take(100);
        assert_eq!((first.excess(0), second.excess(0)), (90, 0));
        assert!(budget.reserve(100 << 12));
        assert_eq!(first.excess(0), 190);
        drop(second);
        assert_eq!((first.excess(0), first.share()), (90, 900));
    }

    #[test]
    fn one_killed_while_it_left_does_not_stop_readings() {
        let budget = shared();
        budget.memory().leaving.store(1, SeqCst);
        budget.memory().ended[0].store(9, Relaxed);
        assert_eq!(budget.read().stats.faults_fresh, 9);
    }
}
