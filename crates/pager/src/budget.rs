//! Counts the frames that a process uses against its DRAM budget, which several processes may share.

use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use super::budget_members::SharedBudget;
use super::budget_memory::BudgetReading;
use super::stats::{GAUGES, PagerStats, ROW_LEN, Row, TOTALS};
use deepram_core::paging::SwapWatermarks;

/// Largest number of members of a shared budget at once.
pub(super) const MAX_MEMBERS: usize = 512;
/// Smallest number of frames left to paged memory, however large the tables are.
const MIN_FRAMES: usize = 256;
/// Divisor of the budget: frames that [`BudgetMemory::set_in_dram`] frees at once because several members are charged for them.
const LENDING_SHARE: i64 = 64;
/// Divisor of the budget: frames that may be charged although the kernel counts no anonymous memory for them.
const UNUSED_SHARE: i64 = 32;
/// How often a reading is repeated because a process is just leaving. A process that is killed while it leaves must not
/// block all readings for good.
const TRIES: usize = 100;

/// The memory of a shared budget, which all members map; zeroed at first. Frequently used fields lie together, so that
/// the rest takes no DRAM until it is used.
#[derive(Debug)]
#[repr(C)]
pub(super) struct BudgetMemory {
    /// Identifies this memory and its version (`budget_memory.rs`).
    pub(super) header: [AtomicU64; 3],
    /// The budget in bytes.
    dram: AtomicU64,
    began_ns: AtomicU64,
    /// Frames that a member frees before it forks, for what the fork brings before it is charged.
    pub(super) fork_room: AtomicUsize,
    /// Frames in use by all members.
    used: AtomicI64,
    /// Largest value of `used` so far.
    peak: AtomicI64,
    /// Number of times that a member began to leave, and finished. While the two differ, totals are being moved.
    leaving: AtomicU64,
    left: AtomicU64,
    /// Number of times that a process became a member, or that a member became a reservation.
    pub(super) joined: AtomicU64,
    /// One bit for each [`super::budget_members::Notice`] that a process of the run has printed.
    pub(super) noticed: AtomicU64,
    /// Pages in DRAM that no member has been charged for. Negative: frames that are free again because several members have
    /// been charged for the same ones, which forked processes share ([`SharedBudget::set_in_dram`]).
    uncharged: AtomicI64,
    /// Value of `uncharged` by the last measurement alone.
    measured: AtomicI64,
    /// Number of measurements; 0 where nobody measures.
    measurements: AtomicU64,
    /// Largest sum of each gauge over all members so far.
    peaks: [AtomicU64; GAUGES.len()],
    /// Process of each member, by its number in its own namespace; 0: no process. A lock shows whether the process is
    /// alive (`budget_members.rs`). Negative: the entry is a reservation made by the process of this number.
    pub(super) pids: [AtomicI32; MAX_MEMBERS],
    /// Frames in use by each member.
    pub(super) frames: [AtomicI64; MAX_MEMBERS],
    /// Part of `frames`: pages of the files behind shared memory, each of which is charged to one member only.
    file_frames: [AtomicI64; MAX_MEMBERS],
    /// Part of `frames`: those for which the kernel has given no memory yet, of pages that are on their way into memory and of huge
    /// pages ([`Frames::populate`]).
    unpopulated: [AtomicI64; MAX_MEMBERS],
    /// Number of times that each member's evictors were woken; a futex.
    pub(super) wake_ups: [AtomicU32; MAX_MEMBERS],
    /// Totals of processes that have ended.
    ended: [AtomicU64; TOTALS],
    rows: [[AtomicU64; ROW_LEN]; MAX_MEMBERS],
}

impl BudgetMemory {
    /// Sets the initial values.
    pub(super) fn init(&self, dram: u64, now_ns: u64) {
        self.dram.store(dram, Relaxed);
        self.began_ns.store(now_ns, Relaxed);
    }

    /// Reads the current values without storing anything. `number` gives the process number that the caller knows for a
    /// member, where it is not 0.
    pub(super) fn read(&self, number: impl Fn(usize) -> Option<u32>) -> BudgetReading {
        let row = (0..TRIES).find_map(|_| self.steady_sum()).unwrap_or_else(|| self.sum());
        let positive = |number: &AtomicI64| u64::try_from(number.load(Relaxed)).unwrap_or(0);
        let pid = |member: usize| match number(member) {
            None | Some(0) => self.pids[member].load(Relaxed).unsigned_abs(),
            Some(pid) => pid,
        };
        BudgetReading {
            used: positive(&self.used),
            peak: positive(&self.peak),
            dram: self.dram.load(Relaxed),
            began_ns: self.began_ns.load(Relaxed),
            processes: self.members().map(|member| (pid(member), positive(&self.frames[member]))).collect(),
            stats: PagerStats::from_row(&row),
            peaks: PagerStats::from_peaks(self.peaks.each_ref().map(|peak| peak.load(Relaxed))),
        }
    }

    /// Indices of the members in use.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        (0..MAX_MEMBERS).filter(|member| self.pids[*member].load(Relaxed) != 0)
    }

    /// The budget in bytes.
    pub(super) fn dram(&self) -> u64 {
        self.dram.load(Relaxed)
    }

    /// Number of changes of the membership.
    fn changes(&self) -> u64 {
        self.joined.load(SeqCst).wrapping_add(self.left.load(SeqCst))
    }

    /// Number of reserved frames, and of members that share the other frames.
    pub(super) fn reserved(&self) -> (usize, usize) {
        self.members().fold((0, 0), |(reserved, sharers), member| {
            if self.pids[member].load(Relaxed) < 0 {
                (reserved + self.frames[member].load(Relaxed).max(0) as usize, sharers)
            } else {
                (reserved, sharers + 1)
            }
        })
    }

    /// Updates the largest sum of each gauge.
    fn note_peaks(&self) {
        for (n, peak) in self.peaks.iter().enumerate() {
            let now = self.members().map(|member| self.rows[member][TOTALS + n].load(Relaxed)).sum();
            peak.fetch_max(now, Relaxed);
        }
    }

    /// The sum of all rows, or `None` if a member left meanwhile.
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
        self.members().for_each(|member| plus(&self.rows[member]));
        sum
    }

    /// Frames in use by all members.
    #[cfg(test)]
    pub(super) fn used(&self) -> i64 {
        self.used.load(Relaxed)
    }

    /// Frames in use by all members, corrected by what the kernel counts.
    pub(super) fn in_use(&self) -> i64 {
        (self.used.load(Relaxed) + self.uncharged.load(Relaxed)).max(0)
    }

    /// Sum of the charges that a budget of `limit` frames allows: less where memory takes frames that no member has been charged
    /// for, and more where several members have been charged for the same frames.
    fn chargeable(&self, limit: usize) -> usize {
        usize::try_from(limit as i64 - self.uncharged.load(Relaxed)).unwrap_or(0)
    }

    /// Records the memory of the run in pages, as the kernel counts it: anonymous memory, shared memory without that of the
    /// pager's files, and `other` memory that the budget has to leave room for. Members that have more than their equal part free
    /// the excess; a quarter of the budget stays for paged memory. Shared memory may belong to files of the program, so it shows
    /// only that less is in DRAM than was charged.
    /// Fewer uncharged frames count, and frames that are charged more than once are free again, if two calls in a row find so: memory
    /// that a process unmaps is gone a moment before its charge. Each call lends at most one part in [`LENDING_SHARE`] of the budget
    /// more, since forked processes that store soon need them.
    pub(super) fn set_in_dram(&self, anonymous: i64, shared: i64, other: i64) {
        let limit = (self.dram() / super::PAGE as u64) as i64;
        let most = limit - limit / super::unpaged_memory::PAGED_SHARE as i64;
        let before = self.uncharged.load(Relaxed);
        let used = self.used.load(Relaxed);
        let all = |frames: &[AtomicI64; MAX_MEMBERS]| -> i64 {
            self.members().map(|member| frames[member].load(Relaxed)).sum()
        };
        let found = anonymous + all(&self.file_frames) + all(&self.unpopulated) + other;
        let uncharged = if found >= used {
            found - used
        } else {
            // Reserved frames are charged before a nested run uses them.
            let unused = self.reserved().0 as i64 + limit / UNUSED_SHARE;
            (found + shared + unused - used).min(0)
        };
        let least = self.measured.swap(uncharged, Relaxed).max(before.min(0) - limit / LENDING_SHARE);
        self.measurements.fetch_add(1, Relaxed);
        // A member that leaves meanwhile, or that is charged for unpaged memory, changes the value, and what was measured no longer
        // holds.
        let _ = self.uncharged.compare_exchange(before, uncharged.max(least).min(most), Relaxed, Relaxed);
        if self.in_use() > limit {
            let (reserved, sharers) = self.reserved();
            self.wake_members_above(equal_part(self.chargeable(limit as usize), reserved, sharers), None);
        }
    }

    /// Counts more uncharged frames, or fewer, as a member was charged for memory that had been measured. Without measurements none
    /// is counted.
    fn move_measured(&self, pages: i64) {
        if self.measurements.load(Relaxed) > 0 {
            self.measured.fetch_add(pages, Relaxed);
            self.uncharged.fetch_add(pages, Relaxed);
        }
    }

    /// Charges `n` frames to a member.
    pub(super) fn charge(&self, member: usize, n: i64) {
        self.frames[member].fetch_add(n, Relaxed);
        self.note_peak(self.used.fetch_add(n, Relaxed) + n);
    }

    /// Charges `n` frames to a member if the budget has that many left.
    fn try_charge(&self, member: usize, n: i64, limit: i64) -> bool {
        let left = limit - self.uncharged.load(Relaxed);
        let charged =
            self.used.fetch_update(Relaxed, Relaxed, |used| Some(used + n).filter(|now| *now <= left));
        let Ok(before) = charged else { return false };
        self.frames[member].fetch_add(n, Relaxed);
        self.note_peak(before + n);
        true
    }

    fn note_peak(&self, now: i64) {
        if now > self.peak.load(Relaxed) {
            self.peak.fetch_max(now, Relaxed);
        }
    }

    /// Takes back all that a member was charged, and moves its totals to `ended`. The frames of a process that has ended were
    /// found free before, so as many are no longer lent. The caller has locked the member's byte.
    pub(super) fn clear_member(&self, member: usize) {
        self.leaving.fetch_add(1, SeqCst);
        let used = self.frames[member].swap(0, Relaxed);
        let _ =
            self.uncharged.fetch_update(Relaxed, Relaxed, |lent| (lent < 0).then(|| (lent + used).min(0)));
        self.used.fetch_sub(used, Relaxed);
        self.file_frames[member].store(0, Relaxed);
        self.unpopulated[member].store(0, Relaxed);
        for (n, number) in self.rows[member].iter().enumerate() {
            let number = number.swap(0, Relaxed);
            if let Some(ended) = self.ended.get(n) {
                ended.fetch_add(number, Relaxed);
            }
        }
        self.pids[member].store(0, Relaxed);
        self.left.fetch_add(1, SeqCst);
    }
}

/// This process's membership of a shared budget.
#[derive(Debug)]
struct BudgetShare {
    budget: &'static SharedBudget,
    member: AtomicUsize,
}

/// The frame accounting of one process.
#[derive(Debug)]
pub(super) struct Frames {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Part of `used`: pages of unpaged memory.
    unpaged: AtomicUsize,
    /// Part of `used`: frames of the victim buffer that hold no page but are backed by memory.
    idle: AtomicUsize,
    /// Part of `used`: pages of the pager's own tables.
    tables: AtomicUsize,
    /// Part of `used`: pages of the files behind shared memory.
    files: AtomicUsize,
    /// Part of `used`: frames that have no memory yet.
    unpopulated: AtomicUsize,
    shared: Option<BudgetShare>,
    /// Number of members that share the budget, at the last refresh.
    sharers: AtomicU32,
    /// Frames that nested runs have reserved, at the last refresh.
    reserved: AtomicUsize,
    /// Value of [`BudgetMemory::changes`] at the last refresh.
    changes: AtomicU64,
    /// Wake-ups of the evictors, where no budget is shared; a futex.
    own_wake_ups: AtomicU32,
    /// Frames of the other members after the last wait for them that failed.
    pub(super) kept_by_others: AtomicI64,
}

impl Frames {
    pub(super) fn new(limit: usize, shared: Option<&'static SharedBudget>) -> Self {
        // With too many processes, the last ones have a budget of their own.
        let shared = shared.and_then(|budget| Some(BudgetShare { budget, member: budget.join()?.into() }));
        let [used, unpaged, idle, tables, files, unpopulated] = [const { AtomicUsize::new(0) }; 6];
        let (sharers, reserved, changes) = (AtomicU32::new(1), AtomicUsize::new(0), AtomicU64::new(0));
        let limit = AtomicUsize::new(limit);
        let (own_wake_ups, kept_by_others) = (AtomicU32::new(0), AtomicI64::new(i64::MAX));
        Self {
            limit,
            used,
            unpaged,
            idle,
            tables,
            files,
            unpopulated,
            shared,
            sharers,
            reserved,
            changes,
            own_wake_ups,
            kept_by_others,
        }
    }

    /// Descriptors that must stay open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.shared.iter().flat_map(|share| share.budget.descriptors())
    }

    #[inline]
    pub(super) fn shared(&self) -> Option<(&'static BudgetMemory, usize)> {
        self.shared.as_ref().map(|share| (share.budget.memory(), share.member.load(Relaxed)))
    }

    pub(super) fn wake_up_counter(&self) -> &AtomicU32 {
        self.shared().map_or(&self.own_wake_ups, |(budget, member)| &budget.wake_ups[member])
    }

    /// Charges `n` frames, whether any are free or not.
    pub(super) fn charge(&self, n: usize) {
        self.used.fetch_add(n, Relaxed);
        if let Some((budget, member)) = self.shared() {
            budget.charge(member, n as i64);
        }
    }

    /// Charges `n` frames if the budget has that many left, those of other members included.
    pub(super) fn try_charge(&self, n: usize) -> bool {
        let limit = self.limit();
        match self.shared() {
            Some((budget, member)) => {
                let charged = budget.try_charge(member, n as i64, limit as i64);
                if charged {
                    self.used.fetch_add(n, Relaxed);
                }
                charged
            }
            None => self
                .used
                .fetch_update(Relaxed, Relaxed, |used| Some(used + n).filter(|now| *now <= limit))
                .is_ok(),
        }
    }

    /// Charges `n` frames and calls `populate`, which obtains their memory from the kernel.
    ///
    /// # Errors
    /// The budget has too few free frames (`OutOfMemory`), or `populate` fails; then nothing stays charged.
    pub(super) fn populate(&self, n: usize, populate: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.change_unpopulated(n, 0);
        let populated = if self.try_charge(n) {
            populate().inspect_err(|_| self.release(n))
        } else {
            Err(io::ErrorKind::OutOfMemory.into())
        };
        self.change_unpopulated(0, n);
        populated
    }

    /// Adds `more` frames to those that are charged and have no memory yet, and removes `fewer`. The kernel counts less than was
    /// charged meanwhile, and [`BudgetMemory::set_in_dram`] adds these frames to what it counts.
    pub(super) fn change_unpopulated(&self, more: usize, fewer: usize) {
        self.unpopulated.fetch_add(more.wrapping_sub(fewer), Relaxed);
        if let Some((budget, member)) = self.shared() {
            budget.unpopulated[member].fetch_add(more as i64 - fewer as i64, Relaxed);
        }
    }

    /// Releases `n` frames.
    pub(super) fn release(&self, n: usize) {
        self.used.fetch_sub(n, Relaxed);
        if let Some((budget, member)) = self.shared() {
            budget.frames[member].fetch_sub(n as i64, Relaxed);
            budget.used.fetch_sub(n as i64, Relaxed);
        }
    }

    /// Replaces the charge for unpaged memory. Where the memory of the run is measured, that memory was measured before: only what
    /// members are charged for changes, not what is in use.
    pub(super) fn set_unpaged(&self, pages: usize) {
        let more = pages as i64 - self.unpaged() as i64;
        let move_measured = |pages: i64| self.shared().inspect(|(budget, _)| budget.move_measured(pages));
        // In this order a measurement in between finds too much in use, not too little.
        move_measured(-more.max(0));
        self.change(&self.unpaged, pages);
        move_measured(-more.min(0));
    }

    /// Replaces the charge for frames of the victim buffer that hold no page but are backed by memory.
    pub(super) fn set_idle(&self, frames: usize) {
        self.change(&self.idle, frames);
    }

    /// Replaces the charge for tables, as far as that leaves frames for paged memory.
    pub(super) fn set_tables(&self, pages: usize) {
        self.change(&self.tables, pages.min(self.limit().saturating_sub(MIN_FRAMES)));
    }

    /// Charges `more` pages of the files behind shared memory and releases `fewer`.
    pub(super) fn change_files(&self, more: usize, fewer: usize) {
        self.files.fetch_add(more, Relaxed);
        self.files.fetch_sub(fewer, Relaxed);
        if let Some((budget, member)) = self.shared() {
            budget.file_frames[member].fetch_add(more as i64 - fewer as i64, Relaxed);
        }
        self.charge(more);
        self.release(fewer);
    }

    fn change(&self, part: &AtomicUsize, now: usize) {
        let before = part.swap(now, Relaxed);
        if now > before {
            self.charge(now - before);
        } else if now < before {
            self.release(before - now);
        }
    }

    /// Frames that hold a page.
    pub(super) fn paged(&self) -> usize {
        self.used().saturating_sub(self.unpaged() + self.idle.load(Relaxed) + self.tables.load(Relaxed))
    }

    pub(super) fn unpaged(&self) -> usize {
        self.unpaged.load(Relaxed)
    }

    /// Frames that are charged and have no memory yet.
    pub(super) fn unpopulated(&self) -> usize {
        self.unpopulated.load(Relaxed)
    }

    /// Largest number of frames for paged memory.
    pub(super) fn paged_limit(&self) -> usize {
        self.limit().saturating_sub(self.unpaged() + self.tables.load(Relaxed))
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Frames of this process if all members use equally many.
    pub(super) fn fair_share(&self) -> usize {
        self.part_of(self.paged_limit())
    }

    /// Part of this process in frames of which all members have equally many.
    fn part_of(&self, frames: usize) -> usize {
        equal_part(frames, self.reserved.load(Relaxed), self.sharers.load(Relaxed) as usize)
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit.max(MIN_FRAMES), Relaxed);
    }

    /// Number of frames that this process must free so that `more` frames are free; [`SwapWatermarks::LEAST_PAGED`] pages stay. A member
    /// of a shared budget that uses less than its equal part need not free any.
    pub(super) fn excess(&self, more: usize) -> usize {
        let (used, paged) = (self.used(), self.paged());
        let watermarks = SwapWatermarks { frames: self.limit() };
        let Some((budget, _)) = self.shared() else { return watermarks.excess(used, paged, more) };
        if self.changes.load(Relaxed) != budget.changes() {
            self.refresh_members();
        }
        let above_part = used.saturating_sub(self.equal_part().saturating_sub(more));
        watermarks.excess(budget.in_use() as usize, paged, more).min(above_part)
    }

    /// Whether the budget has `n` free frames, whichever member they are for.
    pub(super) fn are_free(&self, n: usize) -> bool {
        let in_use = self.shared().map_or(self.used(), |(budget, _)| budget.in_use() as usize);
        in_use + n <= self.limit()
    }

    /// Frames to free before a fork.
    pub(super) fn fork_room(&self) -> usize {
        self.shared().map_or(0, |(budget, _)| budget.fork_room.load(Relaxed))
    }

    /// Frames that each member may be charged for if all are charged for equally many.
    pub(super) fn equal_part(&self) -> usize {
        let limit = self.limit();
        self.part_of(self.shared().map_or(limit, |(budget, _)| budget.chargeable(limit)))
    }

    /// Publishes the process's counters, and refreshes what it knows about the other members.
    pub(super) fn publish(&self, row: &Row) {
        let Some(BudgetShare { budget, member }) = &self.shared else { return };
        // If all member entries are taken, the process continues as before and tries again later.
        if let Err(Some(new)) = budget.renew(member.load(Relaxed)) {
            member.store(new, Relaxed);
            budget.memory().charge(new, self.used() as i64);
            budget.memory().file_frames[new].store(self.files.load(Relaxed) as i64, Relaxed);
            budget.memory().unpopulated[new].store(self.unpopulated.load(Relaxed) as i64, Relaxed);
        }
        let member = member.load(Relaxed);
        for (shown, number) in budget.memory().rows[member].iter().zip(row) {
            shown.store(*number, Relaxed);
        }
        budget.memory().note_peaks();
        if budget.memory().uncharged.load(Relaxed) != 0 && !budget.has_creator() {
            // Nobody measures any more.
            budget.memory().measurements.store(0, Relaxed);
            budget.memory().uncharged.store(0, Relaxed);
        }
        budget.reap_after(member);
        self.refresh_members();
    }

    /// Reads how many members share the budget.
    fn refresh_members(&self) {
        let Some((budget, _)) = self.shared() else { return };
        self.changes.store(budget.changes(), Relaxed);
        let (reserved, sharers) = budget.reserved();
        self.reserved.store(reserved, Relaxed);
        self.sharers.store(sharers as u32, Relaxed);
    }

    /// The accounting of a forked child: it is charged for the same frames again, except the `left` frames that it
    /// leaves to its parent.
    pub(super) fn inherited(&self, left: usize) -> Self {
        let frames = Self::new(self.limit(), self.shared.as_ref().map(|share| share.budget.in_child()));
        frames.refresh_members();
        // The child counts its unpaged memory and its idle frames itself.
        frames.charge(self.paged().saturating_sub(left));
        frames
    }
}

/// Part of each of `sharers` members in the frames that are not reserved.
fn equal_part(frames: usize, reserved: usize, sharers: usize) -> usize {
    frames.saturating_sub(reserved) / sharers.max(1)
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(BudgetShare { budget, member }) = &self.shared {
            budget.leave(member.load(Relaxed));
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
        frames.charge(90);
        assert_eq!((frames.excess(0), frames.excess(20)), (0, 10));
    }

    #[test]
    fn unpaged_memory_takes_frames_from_paged_memory() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        let frames = Frames::new(1000, Some(budget));
        frames.charge(500);
        frames.set_unpaged(400);
        assert_eq!((frames.excess(200), frames.paged_limit(), budget.read().used), (100, 600, 900));
        frames.set_unpaged(100);
        assert_eq!((frames.excess(200), frames.used(), budget.read().used), (0, 600, 600));
    }

    #[test]
    fn a_few_pages_stay_although_unpaged_memory_takes_all_dram() {
        for frames in
            [Frames::new(1000, None), Frames::new(1000, Some(SharedBudget::create(1000 << 12).unwrap()))]
        {
            frames.charge(SwapWatermarks::LEAST_PAGED + 3);
            frames.set_unpaged(2000);
            assert_eq!(frames.excess(1), 3);
            frames.release(3);
            assert_eq!(frames.excess(1), 0);
        }
    }

    #[test]
    fn a_child_is_charged_for_its_paged_frames() {
        let frames = Frames::new(100, None);
        frames.charge(50);
        frames.set_unpaged(10);
        frames.set_idle(7);
        assert_eq!((frames.used(), frames.paged()), (67, 50));
        frames.set_tables(5);
        assert_eq!((frames.used(), frames.paged()), (67, 50), "of so few frames none is left for tables");
        let child = frames.inherited(5);
        assert_eq!((child.used(), child.unpaged(), child.limit()), (45, 0, 100));
    }

    #[test]
    fn tables_of_all_processes_count_for_each() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        let (one, other) = (Frames::new(1000, Some(budget)), Frames::new(1000, Some(budget)));
        one.charge(800);
        one.set_tables(90);
        other.set_tables(130);
        [&one, &other].iter().for_each(|frames| frames.publish(&[0; ROW_LEN]));
        assert_eq!((one.excess(0), one.paged(), budget.read().used), (20, 800, 1020));
        other.set_tables(110);
        assert_eq!((one.excess(0), other.paged_limit()), (0, 890));
    }

    #[test]
    fn a_member_above_its_equal_part_frees_frames() {
        let budget = shared();
        let (large, small) = (Frames::new(100, Some(budget)), Frames::new(100, Some(budget)));
        large.charge(90);
        small.charge(20);
        for frames in [&large, &small] {
            frames.publish(&[7; ROW_LEN]);
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
        assert_eq!(
            (one.stats.faults_fresh, one.stats.queue_depth_sum),
            (14, 14),
            "ended processes still count"
        );
        assert_eq!(one.stats.swap_file_bytes, 7, "a swap file ends with its process");
        assert_eq!((one.stats.fault_latency.len(), one.stats.queue_depth.len()), (128, 64));
        drop(small);
        assert_eq!(budget.read().used, 0);
    }

    #[test]
    fn a_process_that_joins_has_its_part_at_once() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        let first = Frames::new(1000, Some(budget));
        first.publish(&[0; ROW_LEN]);
        first.charge(990);
        let second = Frames::new(1000, Some(budget));
        second.charge(100);
        assert_eq!((first.excess(0), second.excess(0)), (90, 0));
        assert!(budget.reserve(100 << 12));
        assert_eq!(first.excess(0), 190);
        drop(second);
        assert_eq!((first.excess(0), first.fair_share()), (90, 900));
    }

    #[test]
    fn memory_that_forked_processes_share_is_counted_once_after_a_while() {
        let budget = SharedBudget::create(640 << 12).unwrap();
        let members = [0; 4].map(|_| Frames::new(640, Some(budget)));
        members.iter().for_each(|frames| frames.charge(200));
        assert_eq!(members.each_ref().map(|frames| frames.try_charge(1)), [false; 4]);
        // 800 pages are charged. The kernel counts 500, as the members share 100.
        let in_use = [0; 32].map(|_| {
            budget.set_in_dram(500 << 12, 0, 0);
            budget.memory().in_use()
        });
        assert_eq!((in_use[0], in_use[1], in_use[28], in_use[31]), (800, 790, 520, 520));
        assert_eq!((members[0].excess(0), members[0].equal_part()), (0, (640 + 280) / 4));
        assert!(members[0].try_charge(120));
        assert!(!members[1].try_charge(1));
        // They store: at once each has its own.
        budget.set_in_dram(920 << 12, 0, 0);
        assert_eq!(budget.memory().in_use(), 920);
        members[0].release(120);
        // Shared memory was charged as well, and so was what a nested run has reserved.
        let settled = |anonymous: u64, shared: u64| {
            (0..100).for_each(|_| budget.set_in_dram(anonymous << 12, shared << 12, 0));
            budget.memory().in_use()
        };
        assert_eq!(
            [settled(300, 0), settled(300, 200), settled(300, 600), settled(900, 0)],
            [320, 520, 800, 900]
        );
        assert!(budget.reserve(50 << 12));
        assert_eq!(settled(300, 0), 370);
        // Pages of the pager's files are charged once, and the kernel counts them neither as anonymous nor as shared memory.
        members[0].change_files(150, 0);
        members[0].change_files(0, 50);
        assert_eq!(settled(300, 0), 470);
        let [first, ..] = members;
        drop(first);
        assert_eq!(settled(300, 0), 370);
    }

    #[test]
    fn members_make_room_for_memory_that_none_is_charged_for() {
        let budget = SharedBudget::create(640 << 12).unwrap();
        let frames = Frames::new(640, Some(budget));
        frames.publish(&[0; ROW_LEN]);
        frames.charge(600);
        // A process without a pager has 30 pages; 50 are to be left to the page cache.
        budget.set_in_dram(630 << 12, 0, 50 << 12);
        assert_eq!((frames.excess(0), frames.excess(10), frames.equal_part()), (40, 50, 560));
        frames.release(40);
        budget.set_in_dram(590 << 12, 0, 50 << 12);
        assert_eq!((frames.excess(0), frames.try_charge(1)), (0, false));
        // The program unmaps 60 pages, which stay charged for a moment: what it stores to next has no free frames yet.
        budget.set_in_dram(530 << 12, 0, 50 << 12);
        frames.release(60);
        assert_eq!((frames.try_charge(60), frames.try_charge(1)), (true, false));
        // Less is in DRAM than was charged, but not so much less.
        (0..100).for_each(|_| budget.set_in_dram(400 << 12, 0, 50 << 12));
        assert_eq!(budget.memory().in_use(), 470, "with a thirty-second that may be charged before use");
    }

    #[test]
    fn charges_for_unpaged_memory_do_not_change_what_was_measured() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        let frames = Frames::new(1000, Some(budget));
        frames.charge(500);
        budget.set_in_dram(700 << 12, 0, 100 << 12);
        let reading = |frames: &Frames| (budget.memory().in_use(), frames.used(), frames.excess(300));
        assert_eq!(reading(&frames), (800, 500, 100));
        frames.set_unpaged(200);
        assert_eq!(reading(&frames), (800, 700, 100));
        // Paged memory that is not charged for yet seems to be unpaged.
        frames.set_unpaged(290);
        frames.charge(60);
        assert_eq!(reading(&frames), (860, 850, 160));
        frames.set_unpaged(200);
        assert_eq!(reading(&frames), (860, 760, 160));
        budget.set_in_dram(760 << 12, 0, 100 << 12);
        assert_eq!(reading(&frames), (860, 760, 160));
    }

    #[test]
    fn memory_of_a_process_that_ends_is_not_lent() {
        let budget = SharedBudget::create(640 << 12).unwrap();
        let [ending, other] = [0; 2].map(|_| Frames::new(640, Some(budget)));
        [&ending, &other].iter().for_each(|frames| frames.charge(300));
        // The memory is gone, and the charge is not yet.
        let in_use = [0; 3].map(|_| {
            budget.set_in_dram(300 << 12, 0, 0);
            budget.memory().in_use()
        });
        assert_eq!(in_use, [600, 590, 580], "one measurement alone lends nothing");
        drop(ending);
        assert_eq!(budget.memory().in_use(), 300);
        assert!(!other.try_charge(350));
        budget.set_in_dram(300 << 12, 0, 0);
        budget.set_in_dram(300 << 12, 0, 0);
        assert_eq!(budget.memory().in_use(), 300);
    }

    #[test]
    fn frames_that_the_kernel_has_not_given_yet_are_not_lent() {
        let budget = SharedBudget::create(1280 << 12).unwrap();
        let frames = Frames::new(1280, Some(budget));
        frames.charge(640);
        let measured = |pages: u64| {
            (0..100).for_each(|_| budget.set_in_dram(pages << 12, 0, 0));
            budget.memory().in_use()
        };
        let populated = frames.populate(512, || {
            assert_eq!(measured(640), 640 + 512);
            assert_eq!(measured(700), 700 + 512, "memory that no member is charged for comes on top");
            assert_eq!(measured(500), 500 + 512 + 40, "others are lent but for a thirty-second");
            Ok(())
        });
        assert!(populated.is_ok());
        assert_eq!(measured(640), 640 + 40, "the kernel counts less afterwards: the pages are shared");
        assert_eq!(measured(640 + 512), 640 + 512);
        // Without free frames, or where the kernel has none, nothing stays charged.
        assert!(frames.populate(512, || unreachable!("the budget is used up")).is_err());
        assert!(frames.populate(100, || Err(io::ErrorKind::OutOfMemory.into())).is_err());
        assert_eq!((frames.used(), budget.read().used), (640 + 512, 640 + 512));
    }

    #[test]
    fn one_killed_while_it_left_does_not_stop_readings() {
        let budget = shared();
        budget.memory().leaving.store(1, SeqCst);
        budget.memory().ended[0].store(9, Relaxed);
        assert_eq!(budget.read().stats.faults_fresh, 9);
    }
}
