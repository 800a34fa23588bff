//! Who takes part in a shared budget.
//!
//! A process that does has a lock on a byte of the budget's file, its seat's. The kernel takes the lock away when the process
//! ends, and when it becomes another program, as that closes a descriptor of the file; a child does not inherit it. So what others
//! find unlocked is free, whichever number the process has, and in whichever namespace: a number alone may be another's, or
//! nobody's here. The kernel also takes it away when the process closes any descriptor of the file: so whoever has a seat locks
//! it again now and then, and takes another if it is somebody else's by then.

use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::PAGE;
use super::budget::{BudgetMemory, PROCESSES};
use super::shared::BudgetReading;
use crate::descriptors::Low;
use crate::lock::lock;

/// The byte that the maker has locked.
pub(super) const MAKER: usize = PROCESSES;

/// What the processes of a run say once for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A process runs without paging.
    Unpaged,
    /// Memory that cannot be paged takes more than there is for it.
    Beside,
    /// A process that the library is not in takes memory.
    Escaped,
}

/// A budget that processes share, as one of them has it.
#[derive(Debug)]
pub struct SharedBudget {
    memory: &'static BudgetMemory,
    /// Its file. What this process starts inherits it.
    file: RawFd,
    /// The same, and closed when the process becomes another program. Whoever closes any of a file's descriptors
    /// loses all locks on it.
    until_exec: RawFd,
    /// Seats of this process. It would find them unlocked itself.
    own: Mutex<[bool; PROCESSES]>,
}

impl SharedBudget {
    /// It lives as long as the process, and so do its descriptors.
    pub(super) fn new(memory: &'static BudgetMemory, file: OwnedFd) -> io::Result<&'static Self> {
        let until_exec = Low::hold().duplicate(file.as_fd())?.into_raw_fd();
        let file = file.into_raw_fd();
        Ok(Box::leak(Box::new(Self { memory, file, until_exec, own: Mutex::new([false; PROCESSES]) })))
    }

    /// The same in a forked child, which has no seat yet.
    pub(super) fn in_child(&self) -> &'static Self {
        Box::leak(Box::new(Self { own: Mutex::new([false; PROCESSES]), ..*self }))
    }

    /// Shows that this process lives, which has made the budget.
    pub(super) fn sign(&self) {
        set(self.file, MAKER, libc::F_WRLCK);
    }

    pub(super) fn memory(&self) -> &'static BudgetMemory {
        self.memory
    }

    /// Its descriptors, the one that children inherit first.
    #[must_use]
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.file, self.until_exec]
    }

    /// Lets what this process starts inherit the budget, and returns the descriptor's number.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn inherit(&self) -> io::Result<RawFd> {
        // SAFETY: a descriptor of ours, which stays open.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.file) };
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
        Ok(self.file)
    }

    /// Whether this process is the first of the run to say it: the others keep quiet.
    pub fn is_news(&self, notice: Notice) -> bool {
        let bit = 1 << notice as u64;
        self.memory.noticed.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Bytes of DRAM that there may be.
    #[must_use]
    pub fn dram(&self) -> u64 {
        self.memory.dram()
    }

    /// Bytes of the budget that nobody has reserved.
    #[must_use]
    pub fn unreserved(&self) -> u64 {
        self.dram().saturating_sub((self.memory.reserved().0 * PAGE) as u64)
    }

    /// Takes so many bytes away from the processes that share the budget, until this process ends: a run within this one has
    /// them. Whether there was a seat for it.
    pub fn reserve(&self, bytes: u64) -> bool {
        let Some(seat) = self.join() else { return false };
        self.memory.pids[seat].store(-std::process::id().cast_signed(), Relaxed);
        self.memory.take(seat, (bytes / PAGE as u64) as i64);
        self.memory.joined.fetch_add(1, SeqCst);
        true
    }

    /// What is there now. Stores nothing.
    #[must_use]
    pub fn read(&self) -> BudgetReading {
        self.memory.read(|seat| holder(self.file, seat))
    }

    /// Takes back what processes had that have ended without a word.
    pub fn reap(&self) {
        let own = lock(&self.own);
        self.memory.seats().filter(|seat| !own[*seat]).for_each(|seat| self.reap_seat(seat));
    }

    /// The same for the next seat after this one alone: as all do it, all are looked after, and each only once.
    pub(super) fn reap_after(&self, seat: usize) {
        let own = lock(&self.own);
        let next = self.memory.seats().find(|other| *other > seat).or_else(|| self.memory.seats().next());
        next.filter(|seat| !own[*seat]).inspect(|seat| self.reap_seat(*seat));
    }

    /// Empties the seat of another, if it is unlocked.
    fn reap_seat(&self, seat: usize) {
        if set(self.file, seat, libc::F_WRLCK) {
            // Another may have been faster.
            if self.memory.pids[seat].load(Relaxed) != 0 {
                self.memory.vacate(seat);
            }
            set(self.file, seat, libc::F_UNLCK);
        }
    }

    /// Takes a seat, unless all are taken.
    pub(super) fn join(&self) -> Option<usize> {
        self.reap();
        let mut own = lock(&self.own);
        let free = |seat: &usize| self.memory.pids[*seat].load(Relaxed) == 0;
        let seat = (0..PROCESSES).filter(free).find(|seat| set(self.file, *seat, libc::F_WRLCK))?;
        self.sit(&mut own, seat);
        Some(seat)
    }

    /// Makes the seat, which is locked, this process's. Whoever had it before may have left something.
    fn sit(&self, own: &mut [bool; PROCESSES], seat: usize) {
        self.memory.vacate(seat);
        own[seat] = true;
        self.memory.pids[seat].store(std::process::id().cast_signed(), Relaxed);
        self.memory.joined.fetch_add(1, SeqCst);
    }

    /// Locks the seat again. If it was lost meanwhile: the seat that the process has now, with nothing in it, unless all are
    /// taken.
    pub(super) fn keep(&self, seat: usize) -> Result<(), Option<usize>> {
        let mut own = lock(&self.own);
        if !set(self.file, seat, libc::F_WRLCK) {
            own[seat] = false;
            drop(own);
            return Err(self.join());
        }
        if self.memory.pids[seat].load(Relaxed) == std::process::id().cast_signed() {
            return Ok(());
        }
        self.sit(&mut own, seat);
        Err(Some(seat))
    }

    /// Leaves the seat.
    pub(super) fn leave(&self, seat: usize) {
        let mut own = lock(&self.own);
        // It may be another's by now.
        if std::mem::take(&mut own[seat]) {
            self.memory.vacate(seat);
            set(self.file, seat, libc::F_UNLCK);
        }
    }
}

fn byte(seat: usize, kind: i32) -> libc::flock {
    let whence = libc::SEEK_SET as i16;
    libc::flock { l_type: kind as i16, l_whence: whence, l_start: seat as i64, l_len: 1, l_pid: 0 }
}

/// Locks the seat or unlocks it, and returns whether that was possible.
fn set(file: RawFd, seat: usize, kind: i32) -> bool {
    let byte = byte(seat, kind);
    // SAFETY: the call reads a lock that lives until it returns.
    unsafe { libc::fcntl(file, libc::F_SETLK, &raw const byte) == 0 }
}

/// The process that has locked the seat, if another has; 0 if it has no number here.
pub(super) fn holder(file: RawFd, seat: usize) -> Option<u32> {
    let mut byte = byte(seat, libc::F_WRLCK);
    // SAFETY: the call reads and stores a lock that lives until it returns.
    let told = unsafe { libc::fcntl(file, libc::F_GETLK, &raw mut byte) == 0 };
    let locked = told && i32::from(byte.l_type) != libc::F_UNLCK;
    locked.then(|| u32::try_from(byte.l_pid).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Another process that takes a seat and has 50 frames, and lives until its standard input ends.
    fn other(budget: &SharedBudget) -> Child {
        let test = "pager::seats::tests::takes_a_seat_for_another_test";
        let path = format!("/proc/{}/fd/{}", std::process::id(), budget.inherit().unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", test]).env("DEEPRAM_TEST_BUDGET", path);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        while budget.memory.used() != 50 {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    #[ignore = "run by the tests below, in a process of its own"]
    fn takes_a_seat_for_another_test() {
        let path = std::env::var_os("DEEPRAM_TEST_BUDGET").expect("the test that starts it sets it");
        let budget = SharedBudget::open(path.as_ref()).unwrap();
        let seat = budget.join().unwrap();
        budget.memory.take(seat, 50);
        io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
        budget.leave(seat);
    }

    #[test]
    fn what_a_killed_process_had_comes_back_and_not_before() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let mut other = other(budget);
        // Whatever number it has for itself.
        budget.memory.pids[0].store(i32::MAX, Relaxed);
        budget.reap();
        assert_eq!(budget.read().processes, [(other.id(), 50)]);
        other.kill().unwrap();
        other.wait().unwrap();
        budget.reap();
        assert_eq!((budget.read().used, budget.read().processes.len()), (0, 0));
    }

    #[test]
    fn a_seat_is_one_processs_at_a_time() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let mut other = other(budget);
        let seats = [budget.join().unwrap(), budget.join().unwrap()];
        assert_eq!(seats, [1, 2]);
        budget.reap();
        assert_eq!(budget.read().processes.len(), 3, "one's own seats stay");
        budget.leave(1);
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        assert_eq!(budget.memory.seats().collect::<Vec<_>>(), [2]);
        assert_eq!(budget.join(), Some(0));
    }

    #[test]
    fn what_a_process_had_is_taken_back_when_it_is_another_program() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let seat = budget.join().unwrap();
        budget.memory.take(seat, 30);
        // The former program's memory is gone without its destructors, and so are its locks.
        budget.in_child().reap();
        assert_eq!((budget.read().used, budget.read().processes.len()), (0, 0));
    }

    #[test]
    fn a_lost_seat_is_taken_again_or_another_if_it_is_somebodys() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let lose = || drop(std::fs::File::open(format!("/proc/self/fd/{}", budget.file)).unwrap());
        let seat = budget.join().unwrap();
        budget.memory.take(seat, 30);
        assert_eq!(budget.keep(seat), Ok(()));
        lose();
        assert_eq!((budget.keep(seat), budget.memory.used()), (Ok(()), 30), "nobody had seen it");
        lose();
        budget.in_child().reap();
        assert_eq!((budget.keep(seat), budget.memory.used()), (Err(Some(0)), 0));
        lose();
        budget.memory.pids[0].store(0, Relaxed);
        let mut other = other(budget);
        assert_eq!(budget.keep(seat), Err(Some(1)));
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        assert_eq!(budget.memory.seats().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn each_looks_after_the_next() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let mut other = other(budget);
        let seats = [budget.join().unwrap(), budget.join().unwrap()];
        other.kill().unwrap();
        other.wait().unwrap();
        budget.reap_after(seats[0]);
        assert_eq!(budget.memory.seats().collect::<Vec<_>>(), [0, 1, 2], "that one is not its next");
        budget.reap_after(seats[1]);
        assert_eq!(budget.memory.seats().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_is_reserved_is_nobodys_part_until_its_maker_ends() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        assert!(budget.reserve(400 << 12));
        assert_eq!((budget.unreserved(), budget.memory.reserved()), (600 << 12, (400, 0)));
        assert_eq!(budget.read().processes, [(std::process::id(), 400)]);
        let frames = super::super::budget::Frames::new(1000, Some(budget));
        frames.take(700);
        frames.show(&[0; super::super::stats::ROW_LEN]);
        assert_eq!((frames.excess(0), frames.share()), (100, 600));
        // As if it had ended: nobody else has a lock.
        budget.in_child().reap();
        assert_eq!(budget.unreserved(), 1000 << 12);
    }

    #[test]
    fn a_notice_is_news_once() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        assert!(budget.is_news(Notice::Beside) && budget.is_news(Notice::Escaped));
        assert!(!budget.in_child().is_news(Notice::Beside) && budget.is_news(Notice::Unpaged));
    }

    #[test]
    fn all_seats_can_be_taken() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        for seat in 0..PROCESSES {
            assert_eq!(budget.join(), Some(seat));
        }
        assert_eq!(budget.join(), None);
        budget.leave(77);
        assert_eq!(budget.join(), Some(77));
    }
}
