//! A kernel whose files are faulty devices. Beneath [`FileDevice`] and its queues it loses, shortens and fails
//! transfers, so that crash tests run the code that runs on real devices.
//!
//! A transfer on a ring takes place when its completion is waited for or polled, and not in the order of submission.
//! Code that relies on an earlier completion therefore loses data in a simulated crash.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deepram_pool::device::kernel::{FileKind, FileStat, Kernel, Ring, SysResult, Transfer, TransferBuffer};
use deepram_pool::device::{Device, FileDevice};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::device::FaultyDevice;

/// The first descriptor of an open file, far above real descriptors.
const FIRST_FD: RawFd = 1 << 30;

/// A file system in memory with one directory and injected faults.
///
/// A clone is another handle of the same kernel. The contents of the files, and the faults of their transfers, are
/// set through their [`FaultyDevice`]s.
#[derive(Clone, Debug, Default)]
pub struct FaultyKernel {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Entry>,
    /// Open files by their descriptor.
    open: BTreeMap<RawFd, Arc<Mutex<Inode>>>,
    opened: RawFd,
    no_dsync: bool,
    /// Number of `fsync` calls until one fails.
    failing_fsync: Option<u32>,
    refused_submissions: u32,
}

/// A name in the directory.
#[derive(Clone, Debug)]
struct Entry {
    inode: Arc<Mutex<Inode>>,
    /// Whether the directory was synced since the name was made.
    is_durable: bool,
}

#[derive(Debug)]
struct Inode {
    /// `None`: an empty file.
    device: Option<FaultyDevice>,
    /// Whether the length survives a power cut.
    is_durable: bool,
    locked_by: Option<RawFd>,
}

/// An open file of a [`FaultyKernel`].
#[derive(Debug)]
pub struct FaultyFile {
    kernel: FaultyKernel,
    fd: RawFd,
    /// `None`: the directory.
    inode: Option<Arc<Mutex<Inode>>>,
    writable: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn call<T>(result: Result<T, i32>) -> SysResult<T> {
    result.map_err(Errno::from_raw_os_error)
}

impl FaultyKernel {
    /// Makes a kernel with a durable file for each of these devices, under the names that [`FaultyKernel::path`]
    /// returns.
    pub fn with(devices: &[FaultyDevice]) -> Self {
        let kernel = Self::default();
        for (n, device) in devices.iter().enumerate() {
            let inode = Inode { device: Some(device.clone()), is_durable: true, locked_by: None };
            let entry = Entry { inode: Arc::new(Mutex::new(inode)), is_durable: true };
            kernel.state().files.insert(Self::path(n), entry);
        }
        kernel
    }

    /// Returns the name of the file of the `n`-th device.
    pub fn path(n: usize) -> PathBuf {
        format!("device {n}").into()
    }

    /// Opens these devices as files of one kernel, as the pool does.
    ///
    /// # Panics
    /// If a device cannot be opened, which is a defect.
    pub fn file_devices(devices: &[FaultyDevice]) -> Vec<Arc<dyn Device>> {
        let kernel = Self::with(devices);
        let open =
            |n| FileDevice::open_in(kernel.clone(), &Self::path(n), true).expect("a file that is there");
        (0..devices.len()).map(|n| Arc::new(open(n)) as Arc<dyn Device>).collect()
    }

    /// Returns the device of a file that has a length.
    pub fn device(&self, path: &Path) -> Option<FaultyDevice> {
        let inode = Arc::clone(&self.state().files.get(path)?.inode);
        locked(&inode).device.clone()
    }

    /// Returns the state after a power cut: the files whose name is durable; a file is empty if its length is not
    /// durable.
    pub fn after_power_cut(&self) -> Self {
        let after = Self::default();
        for (path, entry) in self.state().files.iter().filter(|(_, entry)| entry.is_durable) {
            let inode = locked(&entry.inode);
            let device = inode.device.as_ref().filter(|_| inode.is_durable);
            let device = device.map(|device| FaultyDevice::from_image(device.durable_image()));
            let inode = Arc::new(Mutex::new(Inode { device, is_durable: true, locked_by: None }));
            after.state().files.insert(path.clone(), Entry { inode, is_durable: true });
        }
        after
    }

    /// Refuses `RWF_DSYNC`, as some file systems do.
    pub fn refuse_dsync(&self) {
        self.state().no_dsync = true;
    }

    /// Fails the `n`-th `fsync` from now with `EIO`; 1 is the next one.
    pub fn fail_fsync(&self, n: u32) {
        self.state().failing_fsync = Some(n);
    }

    /// Refuses the next `count` submissions of rings, as a kernel that is short of memory does.
    pub fn refuse_submissions(&self, count: u32) {
        self.state().refused_submissions = count;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn perform(&self, transfer: Transfer) -> i32 {
        let inode = self.state().open.get(&transfer.fd).cloned();
        let Some(device) = inode.and_then(|inode| locked(&inode).device.clone()) else {
            return -Errno::BADF.raw_os_error();
        };
        let done = match transfer.bytes {
            TransferBuffer::Out(bytes) => device.pwrite(transfer.offset, bytes, false),
            TransferBuffer::In(bytes) => device.pread(transfer.offset, bytes),
        };
        done.map_or_else(|errno| -errno, |bytes| bytes as i32)
    }
}

impl FaultyFile {
    fn device(&self) -> SysResult<FaultyDevice> {
        let inode = locked(self.inode.as_ref().ok_or(Errno::ISDIR)?);
        inode.device.clone().ok_or(Errno::INVAL)
    }

    fn set_len(&self, len: u64) -> SysResult<()> {
        let mut inode = locked(self.inode.as_ref().ok_or(Errno::ISDIR)?);
        inode.device = Some(FaultyDevice::new(len));
        inode.is_durable = false;
        Ok(())
    }

    fn sync(&self) -> SysResult<()> {
        let mut inode = locked(self.inode.as_ref().ok_or(Errno::ISDIR)?);
        if let Some(device) = &inode.device {
            call(device.fdatasync())?;
        }
        inode.is_durable = true;
        Ok(())
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        self.kernel.state().open.remove(&self.fd);
        if let Some(inode) = &self.inode {
            let mut inode = locked(inode);
            inode.locked_by = inode.locked_by.filter(|by| *by != self.fd);
        }
    }
}

impl Kernel for FaultyKernel {
    type File = FaultyFile;

    fn open(&self, path: &Path, flags: OFlags, _mode: Mode) -> SysResult<FaultyFile> {
        let mut state = self.state();
        let inode = if flags.contains(OFlags::DIRECTORY) {
            None
        } else if flags.contains(OFlags::CREATE) {
            if state.files.contains_key(path) {
                return Err(Errno::EXIST);
            }
            let inode = Inode { device: None, is_durable: false, locked_by: None };
            let inode = Arc::new(Mutex::new(inode));
            let entry = Entry { inode: Arc::clone(&inode), is_durable: false };
            state.files.insert(path.to_owned(), entry);
            Some(inode)
        } else {
            Some(Arc::clone(&state.files.get(path).ok_or(Errno::NOENT)?.inode))
        };
        state.opened += 1;
        let fd = FIRST_FD + state.opened;
        if let Some(inode) = &inode {
            state.open.insert(fd, Arc::clone(inode));
        }
        Ok(FaultyFile { kernel: self.clone(), fd, inode, writable: flags.contains(OFlags::RDWR) })
    }

    fn unlink(&self, path: &Path) -> SysResult<()> {
        self.state().files.remove(path).map(drop).ok_or(Errno::NOENT)
    }

    fn stat(&self, file: &FaultyFile) -> SysResult<FileStat> {
        let mode = Mode::RUSR | Mode::WUSR;
        let Some(inode) = &file.inode else {
            return Ok(FileStat { kind: FileKind::Other, len: 0, links: 1, mode });
        };
        let named = |entry: &Entry| Arc::ptr_eq(&entry.inode, inode);
        let links = self.state().files.values().filter(|entry| named(entry)).count() as u64;
        let len = locked(inode).device.as_ref().map_or(0, FaultyDevice::len);
        Ok(FileStat { kind: FileKind::Regular, len, links, mode })
    }

    fn fchmod(&self, _file: &FaultyFile, _mode: Mode) -> SysResult<()> {
        Ok(())
    }

    fn detach(&self, file: &FaultyFile) {
        self.state().open.remove(&file.fd);
    }

    fn direct_unit(&self, file: &FaultyFile) -> Option<usize> {
        file.device().ok().map(|device| device.unit())
    }

    fn flock(&self, file: &FaultyFile, operation: FlockOperation) -> SysResult<()> {
        let mut inode = locked(file.inode.as_ref().ok_or(Errno::ISDIR)?);
        match operation {
            FlockOperation::NonBlockingLockExclusive if inode.locked_by.is_none_or(|by| by == file.fd) => {
                inode.locked_by = Some(file.fd);
                Ok(())
            }
            FlockOperation::NonBlockingLockExclusive => Err(Errno::WOULDBLOCK),
            FlockOperation::Unlock | FlockOperation::NonBlockingUnlock => {
                inode.locked_by = inode.locked_by.filter(|by| *by != file.fd);
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn fallocate(&self, file: &FaultyFile, len: u64) -> SysResult<()> {
        file.set_len(len)
    }

    fn ftruncate(&self, file: &FaultyFile, len: u64) -> SysResult<()> {
        file.set_len(len)
    }

    fn fsync(&self, file: &FaultyFile) -> SysResult<()> {
        let mut state = self.state();
        if let Some(n) = &mut state.failing_fsync {
            *n -= 1;
            if *n == 0 {
                state.failing_fsync = None;
                return Err(Errno::IO);
            }
        }
        if file.inode.is_none() {
            state.files.values_mut().for_each(|entry| entry.is_durable = true);
            return Ok(());
        }
        drop(state);
        file.sync()
    }

    fn fdatasync(&self, file: &FaultyFile) -> SysResult<()> {
        file.sync()
    }

    fn pread(&self, file: &FaultyFile, buf: &mut [u8], offset: u64) -> SysResult<usize> {
        call(file.device()?.pread(offset, buf))
    }

    fn pwritev2(
        &self,
        file: &FaultyFile,
        buf: &[u8],
        offset: u64,
        flags: ReadWriteFlags,
    ) -> SysResult<usize> {
        let durable = flags.contains(ReadWriteFlags::DSYNC);
        if !file.writable {
            return Err(Errno::BADF);
        }
        if !(ReadWriteFlags::DSYNC.contains(flags)) || (durable && self.state().no_dsync) {
            return Err(Errno::OPNOTSUPP);
        }
        call(file.device()?.pwrite(offset, buf, durable))
    }

    fn fd(&self, file: &FaultyFile) -> RawFd {
        file.fd
    }

    fn ring(&self, entries: u32, _quiet: bool) -> Option<Box<dyn Ring>> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let (pushed, under_way, ended) = (Vec::new(), Vec::new(), Vec::new());
        Some(Box::new(FaultyRing { kernel: self.clone(), entries, pushed, under_way, ended, turn: 0, ready }))
    }
}

/// A ring that performs transfers late and in another order.
struct FaultyRing {
    kernel: FaultyKernel,
    entries: u32,
    pushed: Vec<Transfer>,
    under_way: Vec<Transfer>,
    ended: Vec<(u64, i32)>,
    /// Counts the calls to the ring; determines the next transfer to perform.
    turn: usize,
    /// Readable while a transfer is in flight or completed.
    ready: OwnedFd,
}

impl FaultyRing {
    /// Performs one transfer, if one is in flight.
    fn perform(&mut self) {
        if !self.under_way.is_empty() {
            let transfer = self.under_way.remove(self.turn * 7 % self.under_way.len());
            let id = transfer.id;
            self.ended.push((id, self.kernel.perform(transfer)));
        }
    }

    fn signal(&mut self) {
        // Writing to an eventfd that is already readable changes nothing.
        let _ = if self.under_way.is_empty() && self.ended.is_empty() {
            rustix::io::read(&self.ready, &mut [0; 8])
        } else {
            rustix::io::write(&self.ready, &1_u64.to_ne_bytes())
        };
    }
}

impl Ring for FaultyRing {
    fn push(&mut self, transfer: Transfer) -> bool {
        let room = self.pushed.len() + self.under_way.len() < self.entries as usize;
        if room {
            self.pushed.push(transfer);
        }
        room
    }

    fn submit(&mut self, want: usize) -> io::Result<usize> {
        let mut state = self.kernel.state();
        if state.refused_submissions > 0 {
            state.refused_submissions -= 1;
            return Err(Errno::AGAIN.into());
        }
        drop(state);
        self.turn += 1;
        let started = self.pushed.len();
        self.under_way.append(&mut self.pushed);
        while self.ended.len() < want && !self.under_way.is_empty() {
            self.perform();
        }
        self.signal();
        Ok(started)
    }

    fn take_in(&mut self) -> usize {
        self.turn += 1;
        self.perform();
        self.signal();
        0
    }

    fn ended(&mut self) -> Option<(u64, i32)> {
        self.turn += 1;
        if self.ended.is_empty() && self.turn.is_multiple_of(2) {
            self.perform();
        }
        let ended = self.ended.pop();
        self.signal();
        ended
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
