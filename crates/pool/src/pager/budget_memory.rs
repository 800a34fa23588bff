//! A shared budget as memory that several processes map, and how one looks at another's.
//!
//! The memory begins with what it is, which set of figures, and its size: a library, or a `deepram top`, of
//! another version finds that out instead of misreading it. Its size is sealed, so that whoever has mapped it
//! cannot lose it.

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
use super::seats::{self, SharedBudget};
use super::stats::FINGERPRINT;
use crate::descriptors::{self, Low, raised};

/// The name of the memory, as `/proc/PID/fd` shows it.
pub const BUDGET_NAME: &str = "deepram-budget";

/// What the memory begins with: `deepramB`, the figures, its size.
const HEADER: [u64; 3] = [u64::from_le_bytes(*b"deepramB"), FINGERPRINT, size_of::<BudgetMemory>() as u64];
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What a run is doing, all of its processes together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BudgetReading {
    /// Frames in use.
    pub used: u64,
    /// Most frames that were in use at once.
    pub peak: u64,
    /// Bytes of DRAM that there may be.
    pub dram: u64,
    /// When it was made, in nanoseconds of the system's monotonic clock.
    pub began_ns: u64,
    /// Processes that live, with the frames that each uses.
    pub processes: Vec<(u32, u64)>,
    /// Counters of all processes, those that have ended included; gauges of those that live.
    pub stats: PagerStats,
    /// The most that each gauge was for all processes together; all else is 0.
    pub peaks: PagerStats,
}

impl SharedBudget {
    /// A new one of so many bytes of DRAM, in memory of its own, which other processes open by `/proc/PID/fd/N`, where N is
    /// the first of its descriptors, or by that alone where they have inherited it. It lives as long as the process.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn create(dram: u64) -> io::Result<&'static Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = raised(|| rustix::fs::memfd_create(BUDGET_NAME, flags))?;
        rustix::fs::ftruncate(&memory, size_of::<BudgetMemory>() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SEALS)?;
        // SAFETY: a new mapping of the whole of a file that keeps its size, never undone; a budget is made of
        // atomics, for which zeros are values.
        let budget: &'static BudgetMemory = unsafe { map(memory.as_fd(), true)?.as_ref() };
        budget.begin(dram, now_ns());
        for (place, value) in budget.header.iter().zip(HEADER) {
            place.store(value, Relaxed);
        }
        let new = Self::new(budget, memory)?;
        new.sign();
        Ok(new)
    }

    /// The descriptor by which this process has inherited the budget that is told by this path, if it has.
    #[must_use]
    pub fn inherited_number(path: &Path) -> Option<RawFd> {
        let number: RawFd = path.file_name()?.to_str()?.parse().ok()?;
        let named = rustix::fs::readlink(format!("/proc/self/fd/{number}"), Vec::new()).ok()?;
        named.to_bytes().strip_prefix(b"/memfd:")?.starts_with(BUDGET_NAME.as_bytes()).then_some(number)
    }

    /// The budget that another process has created and tells by this path: the descriptor of that number where this process has
    /// inherited it, or else what the path leads to.
    ///
    /// # Errors
    /// Neither can be opened and mapped, or holds a budget of this version.
    pub fn open(path: &Path) -> io::Result<&'static Self> {
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<RawFd>().ok());
        if let Some((budget, memory)) = number.and_then(inherited) {
            return Self::new(budget, memory);
        }
        let low = Low::hold();
        let memory = File::options().read(true).write(true).open(path)?;
        let budget = check(memory.as_fd())?;
        let memory = match number.and_then(|number| placed(memory.as_fd(), number)) {
            Some(placed) => {
                drop(memory);
                placed
            }
            None => low.raise(memory),
        };
        drop(low);
        Self::new(budget, memory)
    }
}

/// The same file by this number, which what the process starts is told of; none if it is taken.
fn placed(memory: BorrowedFd<'_>, number: RawFd) -> Option<OwnedFd> {
    let placed = rustix::io::fcntl_dupfd_cloexec(memory, number).ok()?;
    (placed.as_raw_fd() == number).then_some(())?;
    rustix::io::fcntl_setfd(&placed, FdFlags::empty()).ok()?;
    descriptors::note(number, true);
    Some(placed)
}

/// What this number stands for, if that is a budget.
fn inherited(number: RawFd) -> Option<(&'static BudgetMemory, OwnedFd)> {
    if number < 0 {
        return None;
    }
    // SAFETY: only used for calls that fail if the number stands for nothing.
    let memory = unsafe { BorrowedFd::borrow_raw(number) };
    let budget = check(memory).ok()?;
    // SAFETY: a budget's descriptor is nobody's but this library's.
    Some((budget, unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Maps a budget to take part in.
fn check(memory: BorrowedFd<'_>) -> io::Result<&'static BudgetMemory> {
    check_size(memory)?;
    // SAFETY: as in `create`; any bytes are values of atomics, and the size was checked and is sealed.
    let budget: &'static BudgetMemory = unsafe { map(memory, true)?.as_ref() };
    check_header(budget)?;
    Ok(budget)
}

/// A look at the budget of another process, which it cannot change.
#[derive(Debug)]
pub struct BudgetView {
    memory: NonNull<BudgetMemory>,
    file: File,
}

// SAFETY: all that is done through it is to load atomics.
unsafe impl Send for BudgetView {}

impl BudgetView {
    /// Looks at the budget in this file, by its path in `/proc/PID/fd`.
    ///
    /// # Errors
    /// The file cannot be opened and mapped, or holds no budget of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        check_size(file.as_fd())?;
        let view = Self { memory: map(file.as_fd(), false)?, file };
        check_header(view.budget())?;
        Ok(view)
    }

    /// What is there now.
    #[must_use]
    pub fn read(&self) -> BudgetReading {
        self.budget().read(|seat| seats::holder(self.file.as_raw_fd(), seat))
    }

    /// The process that has made it, as long as it lives; 0 if it has no number here. None for the maker itself.
    #[must_use]
    pub fn maker(&self) -> Option<u32> {
        seats::holder(self.file.as_raw_fd(), seats::MAKER)
    }

    fn budget(&self) -> &BudgetMemory {
        // SAFETY: mapped until `self` is dropped, of a size that was checked and is sealed; atomics take any
        // bytes. It is only read: the mapping takes no stores.
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

fn stranger(why: &str) -> io::Error {
    let why = format!("no budget of a `deepram run` of this version: {why}");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn check_size(memory: BorrowedFd<'_>) -> io::Result<()> {
    let size = rustix::fs::fstat(memory)?.st_size.cast_unsigned();
    if size != size_of::<BudgetMemory>() as u64 {
        return Err(stranger(&format!("{size} bytes, not {}", size_of::<BudgetMemory>())));
    }
    let sealed = rustix::fs::fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS));
    if sealed { Ok(()) } else { Err(stranger("its size is not sealed")) }
}

fn check_header(budget: &BudgetMemory) -> io::Result<()> {
    let found = budget.header.each_ref().map(|number| number.load(Relaxed));
    if found == HEADER { Ok(()) } else { Err(stranger("it begins with something else")) }
}

/// Maps the whole of the file. By number, for a library that stands before `mmap` itself.
fn map(memory: BorrowedFd<'_>, writable: bool) -> io::Result<NonNull<BudgetMemory>> {
    let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // All of them as wide as a register: of a narrower one the upper half would be left to chance.
    let (at, len, offset) = (0_usize, size_of::<BudgetMemory>(), 0_usize);
    let [prot, flags, fd] = [prot, libc::MAP_SHARED, memory.as_raw_fd()].map(i64::from);
    // SAFETY: a new mapping at a place of the kernel's choice.
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
        assert!(opened.descriptors()[0] >= descriptors::first());
        assert_eq!(opened.read(), budget.read());
        for nothing in ["/nowhere/0", "/nowhere/-1", "/nowhere/99999", "/nowhere/x", "/"] {
            assert!(SharedBudget::open(nothing.as_ref()).is_err(), "{nothing}");
        }
    }

    #[test]
    fn what_another_version_made_is_refused() {
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
