//! The calls of the operating system that [`super::FileDevice`] and the queues make, one method for each. [`Linux`]
//! passes them on; tests put a kernel beneath the same code that loses, shortens and fails them.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::inherited::OwnFile;
use crate::uring::{self, RETRY_PAUSE, SUBMIT_RETRIES, is_transient};

/// The result of a call: its error is the number that the kernel gives.
pub type Call<T> = Result<T, Errno>;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Anything else.
    Other,
}

/// What is known of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub len: u64,
    /// Names that it has.
    pub links: u64,
    /// Who may do what with it.
    pub mode: Mode,
}

/// The calls, with the meaning, the flags and the errors of their manual pages.
pub trait Kernel: fmt::Debug + Send + Sync + 'static {
    /// An open file; closed when it is dropped.
    type File: fmt::Debug + Send + Sync;

    /// `open`.
    ///
    /// # Errors
    /// Those of the call, as for every other method.
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Call<Self::File>;
    /// `unlink`.
    ///
    /// # Errors
    /// As above.
    fn unlink(&self, path: &Path) -> Call<()>;
    /// What the file is.
    ///
    /// # Errors
    /// As above.
    fn stat(&self, file: &Self::File) -> Call<Found>;
    /// The unit of direct transfers in bytes, where the kernel names one.
    fn direct_unit(&self, file: &Self::File) -> Option<usize>;
    /// `flock`.
    ///
    /// # Errors
    /// As above.
    fn flock(&self, file: &Self::File, operation: FlockOperation) -> Call<()>;
    /// `fchmod`.
    ///
    /// # Errors
    /// As above.
    fn fchmod(&self, file: &Self::File, mode: Mode) -> Call<()>;
    /// Gives the file up, and with it every lock and claim: its number stays taken, but transfers by it fail.
    fn detach(&self, file: &Self::File);
    /// `fallocate` of `len` bytes from the beginning.
    ///
    /// # Errors
    /// As above.
    fn fallocate(&self, file: &Self::File, len: u64) -> Call<()>;
    /// `ftruncate`.
    ///
    /// # Errors
    /// As above.
    fn ftruncate(&self, file: &Self::File, len: u64) -> Call<()>;
    /// `fsync`, of a directory too.
    ///
    /// # Errors
    /// As above.
    fn fsync(&self, file: &Self::File) -> Call<()>;
    /// `fdatasync`.
    ///
    /// # Errors
    /// As above.
    fn fdatasync(&self, file: &Self::File) -> Call<()>;
    /// `pread`: may read less than asked for.
    ///
    /// # Errors
    /// As above.
    fn pread(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> Call<usize>;
    /// `pwritev2` of one buffer: may write less than asked for.
    ///
    /// # Errors
    /// As above.
    fn pwritev2(&self, file: &Self::File, buf: &[u8], offset: u64, flags: ReadWriteFlags) -> Call<usize>;
    /// The number by which a [`Ring`] knows the file.
    fn fd(&self, file: &Self::File) -> RawFd;
    /// A queue of so many transfers, if the kernel allows one. A `quiet` one interrupts nobody: see [`Ring::take_in`].
    fn ring(&self, entries: u32, quiet: bool) -> Option<Box<dyn Ring>>;
}

/// A transfer for a [`Ring`].
#[derive(Debug)]
pub struct Transfer {
    /// As [`Kernel::fd`] gives it.
    pub fd: RawFd,
    /// Told with the end of the transfer.
    pub id: u64,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The memory. The ring has it until the end of the transfer has been taken in.
    pub bytes: Bytes,
}

/// The memory of a transfer, which says its direction.
#[derive(Debug)]
pub enum Bytes {
    /// To be written to the file.
    Out(&'static [u8]),
    /// To be filled from the file.
    In(&'static mut [u8]),
}

/// Transfers under way at once (io_uring).
pub trait Ring: Send {
    /// Adds a transfer to those that the next submission starts; false if there is no place for it.
    fn push(&mut self, transfer: Transfer) -> bool;
    /// Starts what was pushed, and waits until at least so many transfers have ended. Returns how many it has started.
    ///
    /// # Errors
    /// Interrupted, or short of memory for a moment: what is under way stays so.
    fn submit(&mut self, want: usize) -> io::Result<usize>;
    /// Takes in, without waiting, what has ended on a quiet ring. Returns how many transfers it has started besides.
    fn take_in(&mut self) -> usize;
    /// The next transfer that has ended: its identity, and the bytes transferred or a negative error number.
    fn ended(&mut self) -> Option<(u64, i32)>;
    /// Readable when a transfer has ended.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

/// The kernel that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Kernel for Linux {
    type File = OwnFile;

    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Call<OwnFile> {
        let fd: OwnedFd = rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?;
        OwnFile::new(fd).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
    }

    fn unlink(&self, path: &Path) -> Call<()> {
        rustix::fs::unlink(path)
    }

    fn stat(&self, file: &OwnFile) -> Call<Found> {
        let found = rustix::fs::fstat(file)?;
        let (kind, len) = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => (Kind::Regular, found.st_size.cast_unsigned()),
            FileType::BlockDevice => (Kind::Block, rustix::fs::seek(file, SeekFrom::End(0))?),
            _ => (Kind::Other, 0),
        };
        Ok(Found { kind, len, links: found.st_nlink, mode: Mode::from_raw_mode(found.st_mode) })
    }

    fn direct_unit(&self, file: &OwnFile) -> Option<usize> {
        let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let named = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        named.then_some(found.stx_dio_offset_align as usize)
    }

    fn flock(&self, file: &OwnFile, operation: FlockOperation) -> Call<()> {
        rustix::fs::flock(file, operation)
    }

    fn fchmod(&self, file: &OwnFile, mode: Mode) -> Call<()> {
        rustix::fs::fchmod(file, mode)
    }

    fn detach(&self, file: &OwnFile) {
        file.detach();
    }

    fn fallocate(&self, file: &OwnFile, len: u64) -> Call<()> {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)
    }

    fn ftruncate(&self, file: &OwnFile, len: u64) -> Call<()> {
        rustix::fs::ftruncate(file, len)
    }

    fn fsync(&self, file: &OwnFile) -> Call<()> {
        rustix::fs::fsync(file)
    }

    fn fdatasync(&self, file: &OwnFile) -> Call<()> {
        rustix::fs::fdatasync(file)
    }

    fn pread(&self, file: &OwnFile, buf: &mut [u8], offset: u64) -> Call<usize> {
        rustix::io::pread(file, buf, offset)
    }

    fn pwritev2(&self, file: &OwnFile, buf: &[u8], offset: u64, flags: ReadWriteFlags) -> Call<usize> {
        rustix::io::pwritev2(file.as_fd(), &[IoSlice::new(buf)], offset, flags)
    }

    fn fd(&self, file: &OwnFile) -> RawFd {
        file.as_fd().as_raw_fd()
    }

    fn ring(&self, entries: u32, quiet: bool) -> Option<Box<dyn Ring>> {
        let ring = if quiet { uring::coop_taskrun(entries) } else { uring::standard(entries).ok() }?;
        Some(Box::new(OwnRing { ring, unsent: VecDeque::new(), under_way: 0, refused: false }))
    }
}

/// A ring of this kernel. If the kernel starts nothing any more, what it has not started ends without a byte transferred: whoever
/// wants it goes on in the plain way.
struct OwnRing {
    ring: IoUring,
    /// What was pushed and not started, in that order.
    unsent: VecDeque<u64>,
    /// What was started and has not ended.
    under_way: usize,
    refused: bool,
}

impl OwnRing {
    fn sent(&mut self, count: usize) -> usize {
        self.under_way += self.unsent.drain(..count.min(self.unsent.len())).count();
        count
    }
}

impl Ring for OwnRing {
    fn push(&mut self, transfer: Transfer) -> bool {
        if self.refused {
            return false;
        }
        let fd = types::Fd(transfer.fd);
        let entry: squeue::Entry = match transfer.bytes {
            Bytes::Out(bytes) => {
                opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32).offset(transfer.offset).build()
            }
            Bytes::In(bytes) => {
                opcode::Read::new(fd, bytes.as_mut_ptr(), bytes.len() as u32).offset(transfer.offset).build()
            }
        };
        // SAFETY: the memory lives as long as its type says; the maker of the transfer keeps everybody else from it
        // until its end has been taken in.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(transfer.id)) }.is_ok();
        self.unsent.extend(pushed.then_some(transfer.id));
        pushed
    }

    fn submit(&mut self, want: usize) -> io::Result<usize> {
        for _ in 0..SUBMIT_RETRIES {
            if self.refused {
                // What was started ends by itself.
                if want > 0 && self.unsent.is_empty() {
                    std::thread::sleep(RETRY_PAUSE);
                }
                return Ok(0);
            }
            match self.ring.submit_and_wait(want) {
                Ok(count) => return Ok(self.sent(count)),
                Err(error) if !is_transient(&error) => self.refused = true,
                // The end of what is under way is the next time.
                Err(error) if self.under_way > 0 => return Err(error),
                Err(_) => std::thread::sleep(RETRY_PAUSE),
            }
        }
        self.refused = true;
        Ok(0)
    }

    fn take_in(&mut self) -> usize {
        if self.refused {
            return 0;
        }
        let count = uring::run_deferred_completions(&mut self.ring);
        self.sent(count)
    }

    fn ended(&mut self) -> Option<(u64, i32)> {
        if let Some(entry) = self.ring.completion().next() {
            self.under_way -= 1;
            return Some((entry.user_data(), entry.result()));
        }
        // The ring must not start it later.
        if self.refused { self.unsent.pop_front().map(|id| (id, 0)) } else { None }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the ring, which stays as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
