//! The memory file of a shared budget, which several processes map, and read-only views of it for other programs.
//!
//! The memory begins with a magic number, a fingerprint of its counters, and its size: a library, or a `deepram top`,
//! of another version detects the difference instead of misreading the values. The size is sealed, so that a process
//! that has mapped the file cannot lose the memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::FdFlags;

use super::PagerStats;
use super::budget::BudgetMemory;
use super::budget_members::{self, SharedBudget};
use super::stats::FINGERPRINT;
use deepram_linux::descriptors::{self, OpenGuard, open_high};

/// Name of the memory file, as `/proc/PID/fd` shows it.
pub const BUDGET_NAME: &str = "deepram-budget";

/// First words of the memory: `deepramB`, the fingerprint, the size.
const HEADER: [u64; 3] = [u64::from_le_bytes(*b"deepramB"), FINGERPRINT, size_of::<BudgetMemory>() as u64];
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The state of a run, for all of its processes together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BudgetReading {
    /// Frames in use.
    pub used: u64,
    /// Largest number of frames in use at once.
    pub peak: u64,
    /// DRAM budget, bytes.
    pub dram: u64,
    /// Time at which the budget was created, in nanoseconds of the system's monotonic clock.
    pub began_ns: u64,
    /// Live processes, with the frames that each uses.
    pub processes: Vec<(u32, u64)>,
    /// Counters of all processes, including those that have ended; gauges of live processes.
    pub stats: PagerStats,
    /// Largest value of each gauge, summed over all processes; all counters are 0.
    pub peaks: PagerStats,
}

impl SharedBudget {
    /// Creates a budget of `dram` bytes of DRAM, in a memory file. Other processes open it as `/proc/PID/fd/N`, where N
    /// is the first of its descriptors, or by the number N alone where they have inherited it. It lives as long as the
    /// process.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn create(dram: u64) -> io::Result<&'static Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = open_high(|| rustix::fs::memfd_create(BUDGET_NAME, flags))?;
        rustix::fs::ftruncate(&memory, size_of::<BudgetMemory>() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SEALS)?;
        // SAFETY: a new mapping of the whole of a file that keeps its size, never unmapped; a budget consists of
        // atomics, for which zeros are valid values.
        let budget: &'static BudgetMemory = unsafe { map(memory.as_fd(), true)?.as_ref() };
        budget.init(dram, now_ns());
        for (word, value) in budget.header.iter().zip(HEADER) {
            word.store(value, Relaxed);
        }
        let new = Self::new(budget, memory)?;
        new.lock_creator_byte();
        Ok(new)
    }

    /// The descriptor by which this process has inherited the budget at `path`, if it has.
    #[must_use]
    pub fn inherited_number(path: &Path) -> Option<RawFd> {
        let number: RawFd = path.file_name()?.to_str()?.parse().ok()?;
        let named = rustix::fs::readlink(format!("/proc/self/fd/{number}"), Vec::new()).ok()?;
        named.to_bytes().strip_prefix(b"/memfd:")?.starts_with(BUDGET_NAME.as_bytes()).then_some(number)
    }

    /// Opens the budget that another process has created and announced by this path: the inherited descriptor with the
    /// number at the end of the path, if that is a budget, or else the file at the path.
    ///
    /// # Errors
    /// Neither can be opened and mapped, or neither is a budget of this version.
    pub fn open(path: &Path) -> io::Result<&'static Self> {
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<RawFd>().ok());
        if let Some((budget, memory)) = number.and_then(inherited) {
            return Self::new(budget, memory);
        }
        let opening = OpenGuard::acquire();
        let memory = File::options().read(true).write(true).open(path)?;
        let budget = open_checked(memory.as_fd())?;
        let memory = match number.and_then(|number| at_number(memory.as_fd(), number)) {
            Some(duplicate) => {
                drop(memory);
                duplicate
            }
            None => opening.move_high(memory),
        };
        drop(opening);
        Self::new(budget, memory)
    }
}

/// Duplicates the file to the descriptor `number`, which programs that this process starts are told; `None` if the
/// number is taken.
fn at_number(memory: BorrowedFd<'_>, number: RawFd) -> Option<OwnedFd> {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(memory, number).ok()?;
    (duplicate.as_raw_fd() == number).then_some(())?;
    rustix::io::fcntl_setfd(&duplicate, FdFlags::empty()).ok()?;
    descriptors::set_own(number, true);
    Some(duplicate)
}

/// The budget behind an inherited descriptor, if the descriptor is one.
fn inherited(number: RawFd) -> Option<(&'static BudgetMemory, OwnedFd)> {
    if number < 0 {
        return None;
    }
    // SAFETY: only used for calls that fail if the number is not open.
    let memory = unsafe { BorrowedFd::borrow_raw(number) };
    let budget = open_checked(memory).ok()?;
    // SAFETY: the descriptor of a budget belongs to this library alone.
    Some((budget, unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Maps a budget for reading and writing, and checks it.
fn open_checked(memory: BorrowedFd<'_>) -> io::Result<&'static BudgetMemory> {
    check_size(memory)?;
    // SAFETY: as in `create`; any bytes are valid values of atomics, and the size was checked and is sealed.
    let budget: &'static BudgetMemory = unsafe { map(memory, true)?.as_ref() };
    check_header(budget)?;
    Ok(budget)
}

/// A read-only view of the budget of another run.
#[derive(Debug)]
pub struct BudgetView {
    memory: NonNull<BudgetMemory>,
    file: File,
}

// SAFETY: the only access through it is to load atomics.
unsafe impl Send for BudgetView {}

impl BudgetView {
    /// Opens the budget in this file, given by its path in `/proc/PID/fd`.
    ///
    /// # Errors
    /// The file cannot be opened and mapped, or is not a budget of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        check_size(file.as_fd())?;
        let view = Self { memory: map(file.as_fd(), false)?, file };
        check_header(view.budget())?;
        Ok(view)
    }

    /// Reads the current values.
    #[must_use]
    pub fn read(&self) -> BudgetReading {
        self.budget().read(|member| budget_members::lock_holder(self.file.as_raw_fd(), member))
    }

    /// The process that created the budget, as long as it lives; 0 if it has no number in this PID namespace. `None` in
    /// the creator itself.
    #[must_use]
    pub fn creator(&self) -> Option<u32> {
        budget_members::lock_holder(self.file.as_raw_fd(), budget_members::CREATOR_BYTE)
    }

    fn budget(&self) -> &BudgetMemory {
        // SAFETY: mapped until `self` is dropped, of a size that was checked and is sealed; any bytes are valid values
        // of atomics. The memory is only read: the mapping allows no stores.
        unsafe { self.memory.as_ref() }
    }
}

impl Drop for BudgetView {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length, unmapped once; no reference outlives `self`.
        unsafe { libc::syscall(libc::SYS_munmap, self.memory.as_ptr(), size_of::<BudgetMemory>()) };
    }
}

pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn not_a_budget(why: &str) -> io::Error {
    let why = format!("not a budget of a `deepram run` of this version: {why}");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn check_size(memory: BorrowedFd<'_>) -> io::Result<()> {
    let size = rustix::fs::fstat(memory)?.st_size.cast_unsigned();
    if size != size_of::<BudgetMemory>() as u64 {
        return Err(not_a_budget(&format!("{size} bytes, not {}", size_of::<BudgetMemory>())));
    }
    let sealed = rustix::fs::fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS));
    if sealed { Ok(()) } else { Err(not_a_budget("its size is not sealed")) }
}

fn check_header(budget: &BudgetMemory) -> io::Result<()> {
    let found = budget.header.each_ref().map(|number| number.load(Relaxed));
    if found == HEADER { Ok(()) } else { Err(not_a_budget("its header differs")) }
}

/// Maps the whole file. By number, because a library may interpose `mmap` itself.
fn map(memory: BorrowedFd<'_>, writable: bool) -> io::Result<NonNull<BudgetMemory>> {
    let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // All arguments are as wide as a register: the upper half of a narrower one would be undefined.
    let (at, len, offset) = (0_usize, size_of::<BudgetMemory>(), 0_usize);
    let [prot, flags, fd] = [prot, libc::MAP_SHARED, memory.as_raw_fd()].map(i64::from);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, fd, offset) };
    if at == -1 {
        return Err(io::Error::last_os_error());
    }
    let at = std::ptr::with_exposed_provenance_mut(at as usize);
    NonNull::new(at).ok_or_else(|| io::Error::other("the kernel mapped it at address 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: RawFd) -> std::path::PathBuf {
        format!("/proc/self/fd/{number}").into()
    }

    #[test]
    fn a_view_shows_what_the_budget_holds() {
        let budget = SharedBudget::create(7 << 20).unwrap();
        let [file, _] = budget.descriptors();
        let view = BudgetView::open(&path(file)).unwrap();
        assert_eq!(view.read(), budget.read());
        assert_eq!(view.read().dram, 7 << 20);
        assert!(view.read().began_ns > 0);
    }

    #[test]
    fn a_budget_is_opened_by_its_number_and_otherwise_by_its_path() {
        let budget = SharedBudget::create(7 << 20).unwrap();
        let inherited = budget.inherit().unwrap();
        let nowhere = format!("/nowhere/{inherited}");
        assert_eq!(SharedBudget::open(nowhere.as_ref()).unwrap().descriptors()[0], inherited);
        let link = tempfile::tempdir().unwrap();
        let link = link.path().join("0");
        std::os::unix::fs::symlink(path(inherited), &link).unwrap();
        let opened = SharedBudget::open(&link).unwrap();
        assert!(opened.descriptors()[0] >= descriptors::first_number());
        assert_eq!(opened.read(), budget.read());
        for nothing in ["/nowhere/0", "/nowhere/-1", "/nowhere/99999", "/nowhere/x", "/"] {
            assert!(SharedBudget::open(nothing.as_ref()).is_err(), "{nothing}");
        }
    }

    #[test]
    fn a_budget_of_another_version_is_refused() {
        let budget = SharedBudget::create(7 << 20).unwrap();
        let file = budget.descriptors()[0];
        for (word, right) in budget.memory().header.iter().zip(HEADER) {
            word.store(right ^ 1, Relaxed);
            for error in [BudgetView::open(&path(file)).err(), SharedBudget::open(&path(file)).err()] {
                assert_eq!(error.unwrap().kind(), io::ErrorKind::InvalidData);
            }
            word.store(right, Relaxed);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let other = rustix::fs::memfd_create(BUDGET_NAME, flags).unwrap();
        for size in [0, 8, size_of::<BudgetMemory>() as u64] {
            rustix::fs::ftruncate(&other, size).unwrap();
            assert!(BudgetView::open(&path(other.as_raw_fd())).is_err(), "{size} bytes that may go away");
        }
        rustix::fs::fcntl_add_seals(&other, SEALS).unwrap();
        assert!(BudgetView::open(&path(other.as_raw_fd())).is_err(), "only zeros");
    }
}
