//! The memory file of a shared budget, which several processes map, and read-only views of it for other programs
//! ([`sealed_memory`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use rustix::io::FdFlags;

use super::PagerStats;
use super::budget::BudgetMemory;
use super::budget_members::{CREATOR_BYTE, SharedBudget};
use super::stats::FINGERPRINT;
use deepram_linux::clock;
use deepram_linux::descriptors::{self, OpenGuard};
use deepram_linux::sealed_memory::{SealedMemory, SealedView, Shared};

/// Name of the memory file, as `/proc/PID/fd` shows it.
pub const BUDGET_NAME: &str = BudgetMemory::NAME;

// SAFETY: a budget consists of atomics.
unsafe impl Shared for BudgetMemory {
    const NAME: &'static str = "deepram-budget";
    const HEADER: [u64; 3] = [u64::from_le_bytes(*b"deepramB"), FINGERPRINT, size_of::<Self>() as u64];
    const WHAT: &'static str = "a budget of a `deepram run`";
    const CREATOR_BYTE: usize = CREATOR_BYTE;

    fn header(&self) -> &[AtomicU64; 3] {
        &self.header
    }
}

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
        let (budget, memory) =
            SealedMemory::<BudgetMemory>::create(|budget| budget.init(dram, clock::monotonic_ns()))?;
        let new = Self::new(budget.leak(), memory)?;
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
    SealedMemory::open(memory, true).map(SealedMemory::leak)
}

/// A read-only view of the budget of another run.
#[derive(Debug)]
pub struct BudgetView(SealedView<BudgetMemory>);

impl BudgetView {
    /// Opens the budget in this file, given by its path in `/proc/PID/fd`.
    ///
    /// # Errors
    /// The file cannot be opened and mapped, or is not a budget of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        SealedView::open(path).map(Self)
    }

    /// Reads the current values.
    #[must_use]
    pub fn read(&self) -> BudgetReading {
        self.0.read(|member| self.0.holder(member))
    }

    /// The process that created the budget, as long as it lives; 0 if it has no number in this PID namespace. `None` in
    /// the creator itself.
    #[must_use]
    pub fn creator(&self) -> Option<u32> {
        self.0.creator()
    }
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
}
