//! The members of a shared budget: the processes that take part in it.
//!
//! Each member holds a lock on one byte of the budget's file. The kernel releases the lock when the process ends, and
//! when it executes another program, as that closes a descriptor of the file; a child does not inherit the lock. So an
//! entry whose byte is unlocked is free, whatever the process number in it, and in every PID namespace: the number
//! alone may belong to another process, or to none in this namespace. The kernel also releases the lock when the
//! process closes any descriptor of the file: so a member renews its lock regularly, and takes another entry if its own
//! is taken by then.

use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::PAGE;
use super::budget::{BudgetMemory, MAX_MEMBERS};
use super::budget_memory::BudgetReading;
use deepram_linux::descriptors::OpenGuard;
use deepram_linux::lock::lock;
use deepram_linux::sealed_memory::{lock_byte, lock_holder, unlock_byte};

/// Index of the byte that the creator of the budget has locked.
pub(super) const CREATOR_BYTE: usize = MAX_MEMBERS;

/// Messages that are printed once for all processes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A process runs without paging.
    UnpagedProcess,
    /// Unpaged memory takes more DRAM than is left for it.
    UnpagedMemory,
    /// A process without the preload library uses memory.
    UntrackedProcess,
}

/// A shared budget, as one of its members uses it.
#[derive(Debug)]
pub struct SharedBudget {
    memory: &'static BudgetMemory,
    /// Descriptor of the budget's file. Programs that this process starts inherit it.
    file: RawFd,
    /// A duplicate that is closed when the process executes another program: closing any descriptor of a file releases
    /// all locks of the process on it.
    until_exec: RawFd,
    /// Entries of this process: it would find their bytes unlocked itself.
    own: Mutex<[bool; MAX_MEMBERS]>,
}

impl SharedBudget {
    /// Creates the member side of a budget. It lives as long as the process, and so do its descriptors.
    pub(super) fn new(memory: &'static BudgetMemory, file: OwnedFd) -> io::Result<&'static Self> {
        let until_exec = OpenGuard::acquire().duplicate(file.as_fd())?.into_raw_fd();
        let file = file.into_raw_fd();
        Ok(Box::leak(Box::new(Self { memory, file, until_exec, own: Mutex::new([false; MAX_MEMBERS]) })))
    }

    /// The same budget in a forked child, which is not a member yet.
    pub(super) fn in_child(&self) -> &'static Self {
        Box::leak(Box::new(Self { own: Mutex::new([false; MAX_MEMBERS]), ..*self }))
    }

    /// Locks the byte that shows that the creator of the budget is alive.
    pub(super) fn lock_creator_byte(&self) {
        lock_byte(self.file, CREATOR_BYTE);
    }

    /// Whether the creator of the budget, which is another process, is alive.
    pub(super) fn has_creator(&self) -> bool {
        lock_holder(self.file, CREATOR_BYTE).is_some()
    }

    pub(super) fn memory(&self) -> &'static BudgetMemory {
        self.memory
    }

    /// Its descriptors; the first one is inherited by programs that this process starts.
    #[must_use]
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.file, self.until_exec]
    }

    /// Lets programs that this process starts inherit the budget. Returns the number of the descriptor.
    ///
    /// # Errors
    /// The kernel refuses to change the descriptor.
    pub fn inherit(&self) -> io::Result<RawFd> {
        // SAFETY: the descriptor belongs to this value and stays open.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(self.file) };
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
        Ok(self.file)
    }

    /// Returns whether this process is the first of the run to print the notice; the others must not print it.
    pub fn is_first_notice(&self, notice: Notice) -> bool {
        let bit = 1 << notice as u64;
        self.memory.noticed.fetch_or(bit, Relaxed) & bit == 0
    }

    /// The DRAM budget in bytes.
    #[must_use]
    pub fn dram(&self) -> u64 {
        self.memory.dram()
    }

    /// Sets the memory that a member frees before it forks, in bytes: a fork brings memory that is charged later.
    pub fn set_fork_room(&self, bytes: u64) {
        self.memory.fork_room.store((bytes / PAGE as u64) as usize, Relaxed);
    }

    /// Number of processes that take part, without those that have reserved memory for a nested run.
    #[must_use]
    pub fn members(&self) -> usize {
        self.memory.reserved().1
    }

    /// Bytes of the budget that no nested run has reserved.
    #[must_use]
    pub fn unreserved(&self) -> u64 {
        self.dram().saturating_sub((self.memory.reserved().0 * PAGE) as u64)
    }

    /// Takes `bytes` from the members of the budget until this process ends, for a run inside this one. Returns `false`
    /// if all entries are taken.
    pub fn reserve(&self, bytes: u64) -> bool {
        let Some(member) = self.join() else { return false };
        self.memory.pids[member].store(-std::process::id().cast_signed(), Relaxed);
        self.memory.charge(member, (bytes / PAGE as u64) as i64);
        self.memory.joined.fetch_add(1, SeqCst);
        true
    }

    /// Records how much anonymous and shared memory all processes of the run have, in bytes, as the kernel counts it, and how
    /// much `other` memory the budget has to leave room for. What no member has been charged for counts against the budget, too.
    /// Memory that several members have been charged for, because they share it since a fork, counts once after a while. Called
    /// every 10 ms.
    pub fn set_in_dram(&self, anonymous: u64, shared: u64, other: u64) {
        let [anonymous, shared, other] = [anonymous, shared, other].map(|bytes| (bytes / PAGE as u64) as i64);
        self.memory.set_in_dram(anonymous, shared, other);
    }

    /// Reads the current values. Stores nothing.
    #[must_use]
    pub fn read(&self) -> BudgetReading {
        self.memory.read(|member| lock_holder(self.file, member))
    }

    /// Releases what processes held that have ended without leaving.
    pub fn reap(&self) {
        let own = lock(&self.own);
        self.memory.members().filter(|member| !own[*member]).for_each(|member| self.reap_member(member));
    }

    /// As [`SharedBudget::reap`], for the next member after this one only: as every member does this, all are checked,
    /// each by one other.
    pub(super) fn reap_after(&self, member: usize) {
        let own = lock(&self.own);
        let next =
            self.memory.members().find(|other| *other > member).or_else(|| self.memory.members().next());
        next.filter(|member| !own[*member]).inspect(|member| self.reap_member(*member));
    }

    /// Frees the entry of another process, if its byte is unlocked.
    fn reap_member(&self, member: usize) {
        if lock_byte(self.file, member) {
            // Another process may have freed it already.
            if self.memory.pids[member].load(Relaxed) != 0 {
                self.memory.clear_member(member);
            }
            unlock_byte(self.file, member);
        }
    }

    /// Becomes a member; `None` if all entries are taken.
    pub(super) fn join(&self) -> Option<usize> {
        self.reap();
        let mut own = lock(&self.own);
        let free = |member: &usize| self.memory.pids[*member].load(Relaxed) == 0;
        let member = (0..MAX_MEMBERS).filter(free).find(|member| lock_byte(self.file, *member))?;
        self.occupy(&mut own, member);
        Some(member)
    }

    /// Makes an entry, whose byte is locked, this process's own. Its former owner may have left something in it.
    fn occupy(&self, own: &mut [bool; MAX_MEMBERS], member: usize) {
        self.memory.clear_member(member);
        own[member] = true;
        self.memory.pids[member].store(std::process::id().cast_signed(), Relaxed);
        self.memory.joined.fetch_add(1, SeqCst);
    }

    /// Renews the lock on the process's entry. If the lock was lost meanwhile, returns the entry that the process has
    /// now, with nothing charged to it; `None` if all entries are taken.
    pub(super) fn renew(&self, member: usize) -> Result<(), Option<usize>> {
        let mut own = lock(&self.own);
        if !lock_byte(self.file, member) {
            own[member] = false;
            drop(own);
            return Err(self.join());
        }
        if self.memory.pids[member].load(Relaxed) == std::process::id().cast_signed() {
            return Ok(());
        }
        self.occupy(&mut own, member);
        Err(Some(member))
    }

    /// Stops being a member.
    pub(super) fn leave(&self, member: usize) {
        let mut own = lock(&self.own);
        // The entry may belong to another process by now.
        if std::mem::take(&mut own[member]) {
            self.memory.clear_member(member);
            unlock_byte(self.file, member);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Starts another process that becomes a member, is charged 50 frames, and lives until its standard input ends.
    fn other(budget: &SharedBudget) -> Child {
        let (_, module) = module_path!().split_once("::").unwrap();
        let test = format!("{module}::joins_for_another_test");
        let path = format!("/proc/{}/fd/{}", std::process::id(), budget.inherit().unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", &test]).env("DEEPRAM_TEST_BUDGET", path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        while budget.memory.used() != 50 {
            assert_eq!(child.try_wait().unwrap(), None, "the process has ended early");
            std::thread::yield_now();
        }
        child
    }

    #[test]
    #[ignore = "run by the tests below, in a process of its own"]
    fn joins_for_another_test() {
        let path = std::env::var_os("DEEPRAM_TEST_BUDGET").expect("the test that starts it sets it");
        let budget = SharedBudget::open(path.as_ref()).unwrap();
        let member = budget.join().unwrap();
        budget.memory.charge(member, 50);
        io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
        budget.leave(member);
    }

    #[test]
    fn frames_of_a_killed_process_are_released_and_not_before() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let mut other = other(budget);
        // The process number in the entry does not matter.
        budget.memory.pids[0].store(i32::MAX, Relaxed);
        budget.reap();
        assert_eq!(budget.read().processes, [(other.id(), 50)]);
        other.kill().unwrap();
        other.wait().unwrap();
        budget.reap();
        assert_eq!((budget.read().used, budget.read().processes.len()), (0, 0));
    }

    #[test]
    fn an_entry_belongs_to_one_process_at_a_time() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let mut other = other(budget);
        let members = [budget.join().unwrap(), budget.join().unwrap()];
        assert_eq!(members, [1, 2]);
        budget.reap();
        assert_eq!(budget.read().processes.len(), 3, "the process's own entries stay");
        budget.leave(1);
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        assert_eq!(budget.memory.members().collect::<Vec<_>>(), [2]);
        assert_eq!(budget.join(), Some(0));
    }

    #[test]
    fn frames_are_released_when_the_process_executes_another_program() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let member = budget.join().unwrap();
        budget.memory.charge(member, 30);
        // The former program's memory is gone without its destructors, and so are its locks.
        budget.in_child().reap();
        assert_eq!((budget.read().used, budget.read().processes.len()), (0, 0));
    }

    #[test]
    fn a_lost_entry_is_renewed_or_replaced_if_it_is_taken() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let lose = || drop(std::fs::File::open(format!("/proc/self/fd/{}", budget.file)).unwrap());
        let member = budget.join().unwrap();
        budget.memory.charge(member, 30);
        assert_eq!(budget.renew(member), Ok(()));
        lose();
        assert_eq!(
            (budget.renew(member), budget.memory.used()),
            (Ok(()), 30),
            "no other process had taken it"
        );
        lose();
        budget.in_child().reap();
        assert_eq!((budget.renew(member), budget.memory.used()), (Err(Some(0)), 0));
        lose();
        budget.memory.pids[0].store(0, Relaxed);
        let mut other = other(budget);
        assert_eq!(budget.renew(member), Err(Some(1)));
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        assert_eq!(budget.memory.members().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn each_member_reaps_the_next() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        let mut other = other(budget);
        let members = [budget.join().unwrap(), budget.join().unwrap()];
        other.kill().unwrap();
        other.wait().unwrap();
        budget.reap_after(members[0]);
        assert_eq!(budget.memory.members().collect::<Vec<_>>(), [0, 1, 2], "it reaps only the next member");
        budget.reap_after(members[1]);
        assert_eq!(budget.memory.members().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn reserved_frames_belong_to_no_member_until_their_owner_ends() {
        let budget = SharedBudget::create(1000 << 12).unwrap();
        assert!(budget.reserve(400 << 12));
        assert_eq!((budget.unreserved(), budget.memory.reserved()), (600 << 12, (400, 0)));
        assert_eq!(budget.read().processes, [(std::process::id(), 400)]);
        let frames = super::super::budget::Frames::new(1000, Some(budget));
        frames.charge(700);
        frames.publish(&[0; super::super::stats::ROW_LEN]);
        assert_eq!((frames.excess(0), frames.fair_share()), (100, 600));
        // As if the process had ended: no other process holds a lock.
        budget.in_child().reap();
        assert_eq!(budget.unreserved(), 1000 << 12);
    }

    #[test]
    fn a_notice_is_first_only_once() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        assert!(
            budget.is_first_notice(Notice::UnpagedMemory) && budget.is_first_notice(Notice::UntrackedProcess)
        );
        assert!(
            !budget.in_child().is_first_notice(Notice::UnpagedMemory)
                && budget.is_first_notice(Notice::UnpagedProcess)
        );
    }

    #[test]
    fn all_entries_can_be_taken() {
        let budget = SharedBudget::create(100 << 12).unwrap();
        for member in 0..MAX_MEMBERS {
            assert_eq!(budget.join(), Some(member));
        }
        assert_eq!(budget.join(), None);
        budget.leave(77);
        assert_eq!(budget.join(), Some(77));
    }
}
