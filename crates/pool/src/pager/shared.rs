//! A shared budget as memory that several processes map, and how one looks at another's.
//!
//! The memory begins with what it is, which set of figures, and its size: a library, or a `deepram top`, of
//! another version finds that out instead of misreading it. Its size is sealed, so that whoever has mapped it
//! cannot lose it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{MemfdFlags, SealFlags};

use super::PagerStats;
use super::budget::SharedBudget;
use super::stats::FINGERPRINT;

/// The name of the memory, as `/proc/PID/fd` shows it.
pub const BUDGET_NAME: &str = "deepram-budget";

/// What the memory begins with: `deepramB`, the figures, its size.
const HEADER: [u64; 3] = [u64::from_le_bytes(*b"deepramB"), FINGERPRINT, size_of::<SharedBudget>() as u64];
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
}

impl SharedBudget {
    /// A new one of so many bytes of DRAM, in memory of its own, with the descriptor by which other processes
    /// open it (`/proc/PID/fd/N`). It is mapped for as long as the process lives.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn create(dram: u64) -> io::Result<(&'static Self, OwnedFd)> {
        let memory = rustix::fs::memfd_create(BUDGET_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memory, size_of::<Self>() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SEALS)?;
        // SAFETY: a new mapping of the whole of a file that keeps its size, never undone; a budget is made of
        // atomics, for which zeros are values.
        let budget: &'static Self = unsafe { map(memory.as_fd(), true)?.as_ref() };
        budget.begin(dram, now_ns());
        for (place, value) in budget.header.iter().zip(HEADER) {
            place.store(value, Relaxed);
        }
        Ok((budget, memory))
    }

    /// The budget that another process has created.
    ///
    /// # Errors
    /// The file cannot be opened and mapped, or holds no budget of this version.
    pub fn open(path: &Path) -> io::Result<&'static Self> {
        let memory = File::options().read(true).write(true).open(path)?;
        check_size(memory.as_fd())?;
        // SAFETY: as in `create`; any bytes are values of atomics, and the size was checked and is sealed.
        let budget: &'static Self = unsafe { map(memory.as_fd(), true)?.as_ref() };
        check_header(budget)?;
        Ok(budget)
    }
}

/// A look at the budget of another process, which it cannot change.
#[derive(Debug)]
pub struct BudgetView(NonNull<SharedBudget>);

// SAFETY: all that is done through it is to load atomics.
unsafe impl Send for BudgetView {}

impl BudgetView {
    /// Looks at the budget in this file, by its path in `/proc/PID/fd`.
    ///
    /// # Errors
    /// The file cannot be opened and mapped, or holds no budget of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let memory = File::open(path)?;
        check_size(memory.as_fd())?;
        let view = Self(map(memory.as_fd(), false)?);
        check_header(view.budget())?;
        Ok(view)
    }

    /// What is there now.
    #[must_use]
    pub fn read(&self) -> BudgetReading {
        self.budget().read()
    }

    fn budget(&self) -> &SharedBudget {
        // SAFETY: mapped until `self` is dropped, of a size that was checked and is sealed; atomics take any
        // bytes. It is only read: the mapping takes no stores.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for BudgetView {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length, unmapped once; no reference outlives `self`.
        unsafe { libc::syscall(libc::SYS_munmap, self.0.as_ptr(), size_of::<SharedBudget>()) };
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
    if size != size_of::<SharedBudget>() as u64 {
        return Err(stranger(&format!("{size} bytes, not {}", size_of::<SharedBudget>())));
    }
    let sealed = rustix::fs::fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS));
    if sealed { Ok(()) } else { Err(stranger("its size is not sealed")) }
}

fn check_header(budget: &SharedBudget) -> io::Result<()> {
    let found = budget.header.each_ref().map(|number| number.load(Relaxed));
    if found == HEADER { Ok(()) } else { Err(stranger("it begins with something else")) }
}

/// Maps the whole of the file. By number, for a library that stands before `mmap` itself.
fn map(memory: BorrowedFd<'_>, writable: bool) -> io::Result<NonNull<SharedBudget>> {
    let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // All of them as wide as a register: of a narrower one the upper half would be left to chance.
    let (at, len, offset) = (0_usize, size_of::<SharedBudget>(), 0_usize);
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

    fn path(memory: &OwnedFd) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", memory.as_raw_fd()).into()
    }

    #[test]
    fn a_view_shows_what_the_budget_holds() {
        let (budget, memory) = SharedBudget::create(7 << 20).unwrap();
        let view = BudgetView::open(&path(&memory)).unwrap();
        assert_eq!(view.read(), budget.read());
        assert_eq!(view.read().dram, 7 << 20);
        assert!(view.read().began_ns > 0);
        assert!(SharedBudget::open(&path(&memory)).is_ok());
    }

    #[test]
    fn what_another_version_made_is_refused() {
        let (budget, memory) = SharedBudget::create(7 << 20).unwrap();
        for (word, right) in budget.header.iter().zip(HEADER) {
            word.store(right ^ 1, Relaxed);
            for error in [BudgetView::open(&path(&memory)).err(), SharedBudget::open(&path(&memory)).err()] {
                assert_eq!(error.unwrap().kind(), io::ErrorKind::InvalidData);
            }
            word.store(right, Relaxed);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let other = rustix::fs::memfd_create(BUDGET_NAME, flags).unwrap();
        for size in [0, 8, size_of::<SharedBudget>() as u64] {
            rustix::fs::ftruncate(&other, size).unwrap();
            assert!(BudgetView::open(&path(&other)).is_err(), "{size} bytes that may go away");
        }
        rustix::fs::fcntl_add_seals(&other, SEALS).unwrap();
        assert!(BudgetView::open(&path(&other)).is_err(), "only zeros");
    }
}
