//! Records a process's page faults in a file, from which `deepram trace record` makes a trace.
//!
//! The file has a header of 16 bytes (`deepramF`, the version and the process number, four bytes each), then 16 bytes
//! for each fault: its time on the system's monotonic clock in nanoseconds, and the page's address with the kind of
//! fault in its low bits, all little-endian. Faults are in order of time. They are buffered and written out when 64 KiB
//! are full and whenever counters are published, ten times a second: a record of a killed process keeps what was
//! written, and may end in the middle of a fault.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::budget_memory::now_ns;
use super::stats::add;
use super::{Inner, PAGE, PagerOptions};
use crate::descriptors::open_high;
use crate::lock::lock;
use crate::message::write_line;

const MAGIC: [u8; 8] = *b"deepramF";
const VERSION: u32 = 1;
const HEADER: usize = 16;
const RECORD: usize = 16;
/// Bytes of the buffer.
const BUFFER_BYTES: usize = 64 << 10;
/// The low bits of an address hold the kind of fault, and this bit if the access was a store.
const WRITE: u64 = 1 << 2;
/// Largest number of records of one process: each `exec` begins another one, and a process may call `exec` often.
const FILES: u32 = 1 << 20;

/// Kind of a page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The page had never been stored to.
    Fresh,
    /// The page had to be read from the swap file.
    Read,
    /// The page came back from the victim buffer.
    VictimBufferHit,
    /// The page was in memory and clean, and this was its first store.
    FirstStore,
}

impl FaultKind {
    const ALL: [FaultKind; 4] =
        [FaultKind::Fresh, FaultKind::Read, FaultKind::VictimBufferHit, FaultKind::FirstStore];
}

/// A recorded page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Time in nanoseconds of the system's monotonic clock.
    pub time_ns: u64,
    /// Address of the page.
    pub page: u64,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Whether the access was a store.
    pub write: bool,
}

impl Fault {
    fn bytes(self) -> [u8; RECORD] {
        let write = if self.write { WRITE } else { 0 };
        let what = self.page | self.kind as u64 | write;
        (u128::from(what) << 64 | u128::from(self.time_ns)).to_le_bytes()
    }

    fn of(bytes: [u8; RECORD]) -> Option<Self> {
        let both = u128::from_le_bytes(bytes);
        let (what, time_ns) = ((both >> 64) as u64, both as u64);
        let (page, bits) = (what & !(PAGE as u64 - 1), what & (PAGE as u64 - 1));
        let kind = *FaultKind::ALL.get((bits & !WRITE) as usize)?;
        Some(Self { time_ns, page, kind, write: bits & WRITE != 0 })
    }
}

/// The record that a pager writes.
#[derive(Debug)]
pub(super) struct Recorder {
    descriptor: i32,
    buffer: Mutex<RecordBuffer>,
}

#[derive(Debug)]
struct RecordBuffer {
    /// `None` once a write has failed: no more faults are recorded.
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Recorder {
    /// Creates the recorder that the options ask for, if they do and if the file can be created.
    pub(super) fn from_options(options: &PagerOptions) -> Option<Self> {
        let result = Self::create(options.record_faults_to.as_deref()?);
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::NotFound
        {
            write_line(format_args!(
                "deepram: page faults are not recorded ({error}); the program continues"
            ));
        }
        // The directory is gone: the record is no longer wanted.
        result.ok()
    }

    /// Creates a new record in this directory.
    fn create(folder: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let (name, mut file) = (0..FILES)
            .find_map(|n| {
                let name = folder.join(format!("{pid}-{n}"));
                match open_high(|| File::create_new(&name)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                    result => Some(result.map(|file| (name, File::from(file)))),
                }
            })
            .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
        let mut header = MAGIC.to_vec();
        header.extend([VERSION, pid].map(u32::to_le_bytes).as_flattened());
        file.write_all(&header)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", name.display())))?;
        let bytes = Vec::with_capacity(BUFFER_BYTES);
        Ok(Self {
            descriptor: file.as_raw_fd(),
            buffer: Mutex::new(RecordBuffer { file: Some(file), bytes }),
        })
    }

    /// Descriptor of the file, which must stay open.
    pub(super) fn descriptor(&self) -> i32 {
        self.descriptor
    }

    fn record(&self, page: usize, kind: FaultKind, write: bool) -> MutexGuard<'_, RecordBuffer> {
        let mut buffer = lock(&self.buffer);
        // The time is taken under the lock, so that records are in order of time.
        let fault = Fault { time_ns: now_ns(), page: page as u64, kind, write };
        if buffer.file.is_some() {
            buffer.bytes.extend(fault.bytes());
        }
        if buffer.bytes.len() == BUFFER_BYTES {
            buffer.write_back_victims();
        }
        buffer
    }

    /// Writes out the buffer. No fault is recorded or counted until the guard is dropped.
    pub(super) fn flush(&self) -> impl Drop {
        let mut buffer = lock(&self.buffer);
        buffer.write_back_victims();
        buffer
    }
}

impl RecordBuffer {
    fn write_back_victims(&mut self) {
        let Some(file) = &mut self.file else { return };
        if self.bytes.is_empty() {
            return;
        }
        // The file has been deleted: writing to it would fill the disk unseen.
        let gone = rustix::fs::fstat(&*file).is_ok_and(|stat| stat.st_nlink == 0);
        let result = if gone { Ok(()) } else { file.write_all(&self.bytes) };
        if let Err(error) = &result {
            write_line(format_args!(
                "deepram: page faults are no longer recorded ({error}); the program continues"
            ));
        }
        if gone || result.is_err() {
            self.file = None;
        }
        self.bytes.clear();
    }
}

impl Inner {
    /// Counts a fault that was served, and records it if faults are recorded. Several fresh pages at once are one
    /// fault, on the page that was touched.
    pub(super) fn count_fault(&self, page: usize, kind: FaultKind, write: bool) {
        let _recorded = self.record.as_ref().map(|record| record.record(page, kind, write));
        let counter = match kind {
            FaultKind::Fresh => &self.counters.faults_fresh,
            FaultKind::Read => &self.counters.faults_read,
            FaultKind::VictimBufferHit => &self.counters.faults_returned,
            FaultKind::FirstStore => &self.counters.faults_stored,
        };
        add(counter, 1);
    }
}

/// Reads the record of a process. Iterates over the faults in order of time.
#[derive(Debug)]
pub struct FaultLog {
    file: BufReader<File>,
    process: u32,
}

impl FaultLog {
    /// Opens a record. Returns `None` if it has no header: the process may have been killed at once.
    ///
    /// # Errors
    /// The file cannot be read, or is not a record of this version.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let mut file = BufReader::with_capacity(16 << 10, File::open(path)?);
        let mut header = [0; HEADER];
        if !fill(&mut file, &mut header)? {
            return Ok(None);
        }
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..8] != MAGIC || number(8) != VERSION {
            let why = format!("{}: not a record of page faults of this version", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Some(Self { file, process: number(12) }))
    }

    /// Number of the recorded process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }
}

impl Iterator for FaultLog {
    type Item = io::Result<Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = [0; RECORD];
        match fill(&mut self.file, &mut bytes) {
            Ok(false) => None,
            Ok(true) => Some(Fault::of(bytes).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{bytes:?} is not a recorded page fault"))
            })),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Returns `false` if the file ends before `bytes` is full.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(folder: &Path) -> Vec<Vec<Fault>> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let log = |name: &std::path::PathBuf| {
            let log = FaultLog::open(name).unwrap().expect("the record has a header");
            assert_eq!(log.process(), std::process::id());
            log.map(Result::unwrap).collect()
        };
        names.iter().map(log).collect()
    }

    #[test]
    fn recorded_faults_are_read_back_in_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let recorders = [(); 2].map(|()| Recorder::create(folder.path()).unwrap());
        let what = |n: usize| (n * 7 % 1000 * PAGE, FaultKind::ALL[n % 4], n.is_multiple_of(3));
        // More faults than the buffer holds.
        for n in 0..10_000 {
            let (page, kind, write) = what(n);
            drop(recorders[0].record(page, kind, write));
        }
        drop(recorders[0].flush());
        let all = read(folder.path());
        assert_eq!((all.len(), all[0].len(), all[1].len()), (2, 10_000, 0));
        assert!(all[0].is_sorted_by_key(|fault| fault.time_ns));
        for (n, fault) in all[0].iter().enumerate() {
            assert_eq!((fault.page as usize, fault.kind, fault.write), what(n));
        }
    }

    #[test]
    fn a_record_that_was_cut_off_is_read_to_its_last_whole_fault() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path()).unwrap();
        (0..5).for_each(|n| drop(recorder.record(n * PAGE, FaultKind::Read, false)));
        drop(recorder.flush());
        let name = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let whole = std::fs::read(&name).unwrap();
        for len in (0..whole.len()).rev() {
            std::fs::write(&name, &whole[..len]).unwrap();
            let faults = FaultLog::open(&name).unwrap().map(Iterator::count);
            assert_eq!(faults, (len >= HEADER).then(|| (len - HEADER) / RECORD), "{len}");
        }
    }

    #[test]
    fn a_file_that_is_not_a_record_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("x");
        std::fs::write(&name, [b'x'; 64]).unwrap();
        assert_eq!(FaultLog::open(&name).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0, 0, 0, 9, 0, 0, 0]);
        bytes.extend([0xff; RECORD]);
        std::fs::write(&name, bytes).unwrap();
        let mut log = FaultLog::open(&name).unwrap().unwrap();
        assert_eq!((log.process(), log.next().unwrap().unwrap_err().kind()), (9, io::ErrorKind::InvalidData));
    }

    #[test]
    fn a_deleted_record_takes_no_more_disk_space() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path()).unwrap();
        folder.close().unwrap();
        drop(recorder.record(0, FaultKind::Fresh, true));
        drop(recorder.flush());
        assert!(lock(&recorder.buffer).file.is_none());
    }
}
