//! A record of a process's page faults, in a file that `deepram trace record` makes a trace of.
//!
//! The file is a head of 16 bytes (`deepramF`, the version and the process's number, four bytes each), then
//! 16 bytes for each fault: its time on the system's monotonic clock in nanoseconds, and the page's address
//! with what happened in its low bits, all little-endian. Faults are in order of time. They are
//! gathered in memory and written out when 64 KiB are full and whenever counters are shown, ten times a
//! second: what a killed process had written is kept, and may end in the middle of a fault.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::shared::now_ns;
use super::stats::add;
use super::{Inner, PAGE, PagerOptions};
use crate::descriptors::raised;
use crate::lock::lock;
use crate::message::write_line;

const MAGIC: [u8; 8] = *b"deepramF";
const VERSION: u32 = 1;
const HEAD: usize = 16;
const RECORD: usize = 16;
/// Bytes that are gathered.
const GATHERED: usize = 64 << 10;
/// The low bits of an address: what happened, and whether it was a store.
const WRITE: u64 = 1 << 2;
/// Records of one process: it becomes another program with `exec`, and may do so often.
const FILES: u32 = 1 << 20;

/// What a fault found, or what kind of fault it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The page had never been stored to.
    Fresh,
    /// The page had to be read from the store.
    Read,
    /// The page came back from the waiting room.
    Returned,
    /// The page was in memory and clean, and this was its first store.
    Stored,
}

impl FaultKind {
    const ALL: [FaultKind; 4] = [FaultKind::Fresh, FaultKind::Major, FaultKind::SecondChance, FaultKind::WriteProtected];
}

/// A fault of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Nanoseconds of the system's monotonic clock.
    pub time_ns: u64,
    /// Address of the page.
    pub page: u64,
    /// What it found.
    pub kind: FaultKind,
    /// Whether it was a store.
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

/// Where a pager records.
#[derive(Debug)]
pub(super) struct Recorder {
    descriptor: i32,
    gathered: Mutex<Gathered>,
}

#[derive(Debug)]
struct Gathered {
    /// None once writing has failed: nothing more is recorded.
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Recorder {
    /// The recorder that the options ask for, if they do and if it can be had.
    pub(super) fn wanted(options: &PagerOptions) -> Option<Self> {
        let result = Self::create(options.record.as_deref()?);
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::NotFound
        {
            write_line(format_args!(
                "deepram: page faults cannot be recorded ({error}); the program goes on"
            ));
        }
        // The folder is gone: nobody wants the record any more.
        result.ok()
    }

    /// A new file in this folder.
    fn create(folder: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let (name, mut file) = (0..FILES)
            .find_map(|n| {
                let name = folder.join(format!("{pid}-{n}"));
                match raised(|| File::create_new(&name)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                    result => Some(result.map(|file| (name, File::from(file)))),
                }
            })
            .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
        let mut head = MAGIC.to_vec();
        head.extend([VERSION, pid].map(u32::to_le_bytes).as_flattened());
        file.write_all(&head)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", name.display())))?;
        let bytes = Vec::with_capacity(GATHERED);
        Ok(Self { descriptor: file.as_raw_fd(), gathered: Mutex::new(Gathered { file: Some(file), bytes }) })
    }

    /// The file's, which must stay open.
    pub(super) fn descriptor(&self) -> i32 {
        self.descriptor
    }

    fn take(&self, page: usize, kind: FaultKind, write: bool) -> MutexGuard<'_, Gathered> {
        let mut gathered = lock(&self.gathered);
        // Under the lock, so that records are in order of time.
        let fault = Fault { time_ns: now_ns(), page: page as u64, kind, write };
        if gathered.file.is_some() {
            gathered.bytes.extend(fault.bytes());
        }
        if gathered.bytes.len() == GATHERED {
            gathered.write_out();
        }
        gathered
    }

    /// Writes out what is gathered. Until the guard is dropped nothing is recorded or counted.
    pub(super) fn flush(&self) -> impl Drop {
        let mut gathered = lock(&self.gathered);
        gathered.write_out();
        gathered
    }
}

impl Gathered {
    fn write_out(&mut self) {
        let Some(file) = &mut self.file else { return };
        if self.bytes.is_empty() {
            return;
        }
        // Whoever wanted the record has gone, and its files with it: to go on would fill the disk unseen.
        let gone = rustix::fs::fstat(&*file).is_ok_and(|stat| stat.st_nlink == 0);
        let result = if gone { Ok(()) } else { file.write_all(&self.bytes) };
        if let Err(error) = &result {
            write_line(format_args!(
                "deepram: page faults cannot be recorded any more ({error}); the program goes on"
            ));
        }
        if gone || result.is_err() {
            self.file = None;
        }
        self.bytes.clear();
    }
}

impl Inner {
    /// Counts a fault that was served, and records it if faults are recorded. A window of fresh pages is one
    /// fault, on the page that was touched.
    pub(super) fn served(&self, page: usize, kind: FaultKind, write: bool) {
        let _recorded = self.record.as_ref().map(|record| record.take(page, kind, write));
        let counter = match kind {
            FaultKind::Fresh => &self.counters.faults_fresh,
            FaultKind::Major => &self.counters.faults_major,
            FaultKind::SecondChance => &self.counters.victim_buffer_hits,
            FaultKind::WriteProtected => &self.counters.faults_write_protected,
        };
        add(counter, 1);
    }
}

/// Reads the record of a process; faults come in order of time.
#[derive(Debug)]
pub struct FaultLog {
    file: BufReader<File>,
    process: u32,
}

impl FaultLog {
    /// Opens a record. A process that was killed at once may have written no head: then there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is no record of this version.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let mut file = BufReader::with_capacity(16 << 10, File::open(path)?);
        let mut head = [0; HEAD];
        if !fill(&mut file, &mut head)? {
            return Ok(None);
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..8] != MAGIC || number(8) != VERSION {
            let why = format!("{}: no record of page faults of this version", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Some(Self { file, process: number(12) }))
    }

    /// The number of the process.
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
                io::Error::new(io::ErrorKind::InvalidData, format!("{bytes:?} is no page fault"))
            })),
            Err(error) => Some(Err(error)),
        }
    }
}

/// `false` if the file ends before.
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
            let log = FaultLog::open(name).unwrap().expect("it has a head");
            assert_eq!(log.process(), std::process::id());
            log.map(Result::unwrap).collect()
        };
        names.iter().map(log).collect()
    }

    #[test]
    fn what_is_recorded_is_read_back_in_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let recorders = [(); 2].map(|()| Recorder::create(folder.path()).unwrap());
        let what = |n: usize| (n * 7 % 1000 * PAGE, FaultKind::ALL[n % 4], n.is_multiple_of(3));
        // More than is gathered at once.
        for n in 0..10_000 {
            let (page, kind, write) = what(n);
            drop(recorders[0].take(page, kind, write));
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
        (0..5).for_each(|n| drop(recorder.take(n * PAGE, FaultKind::Major, false)));
        drop(recorder.flush());
        let name = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let whole = std::fs::read(&name).unwrap();
        for len in (0..whole.len()).rev() {
            std::fs::write(&name, &whole[..len]).unwrap();
            let faults = FaultLog::open(&name).unwrap().map(Iterator::count);
            assert_eq!(faults, (len >= HEAD).then(|| (len - HEAD) / RECORD), "{len}");
        }
    }

    #[test]
    fn what_is_no_record_is_an_error() {
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
    fn a_record_that_was_removed_takes_no_more_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path()).unwrap();
        folder.close().unwrap();
        drop(recorder.take(0, FaultKind::Fresh, true));
        drop(recorder.flush());
        assert!(lock(&recorder.gathered).file.is_none());
    }
}
