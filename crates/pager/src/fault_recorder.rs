//! Records the page faults of a process or of a pool in a file, from which `deepram trace record` and `deepram trace merge`
//! make a trace.
//!
//! The file is a header of 16 bytes (`deepramF`, then the version and the process id, four bytes each), followed by
//! 16 bytes for each fault: the time on the system's monotonic clock in nanoseconds, and the address of the page with
//! the fault's kind in its low bits; all integers are little-endian. Faults are in order of time. The recorder buffers
//! faults and writes them out when 64 KiB are full and each time the counters are published, ten times a second. The
//! file of a killed process keeps everything written until then and may end in the middle of a fault.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;

use super::stats::add;
use super::{Inner, PAGE, PagerOptions};
use deepram_linux::clock::monotonic_ns;
use deepram_linux::descriptors::open_high;
use deepram_linux::lock::lock;
use deepram_linux::message::write_line;

const MAGIC: [u8; 8] = *b"deepramF";
const VERSION: u32 = 1;
const HEADER: usize = 16;
const RECORD: usize = 16;
/// Size of the buffer, bytes.
const BUFFER: usize = 64 << 10;
/// Set in an address if the access was a write. The bits below hold the [`FaultKind`].
const WRITE: u64 = 1 << 2;
/// Most files of one process: each `exec` starts a new file.
const FILES: u32 = 1 << 20;

/// Kinds of page fault. The discriminants are part of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The page is fresh: never written.
    Fresh,
    /// Major fault: the page was read from the swap file or from the pool's devices.
    Major,
    /// The page came back from the victim buffer.
    SecondChance,
    /// First write to a clean page in memory.
    WriteProtected,
}

impl FaultKind {
    const ALL: [FaultKind; 4] =
        [FaultKind::Fresh, FaultKind::Major, FaultKind::SecondChance, FaultKind::WriteProtected];
}

/// One recorded page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Time on the system's monotonic clock, nanoseconds.
    pub time_ns: u64,
    /// Address of the page.
    pub page: u64,
    /// Kind of fault.
    pub kind: FaultKind,
    /// Whether the access was a write.
    pub write: bool,
}

impl Fault {
    fn bytes(self) -> [u8; RECORD] {
        let write = if self.write { WRITE } else { 0 };
        let address = self.page | self.kind as u64 | write;
        (u128::from(address) << 64 | u128::from(self.time_ns)).to_le_bytes()
    }

    /// `None` if the kind is unknown.
    fn from_bytes(bytes: [u8; RECORD]) -> Option<Self> {
        let both = u128::from_le_bytes(bytes);
        let (address, time_ns) = ((both >> 64) as u64, both as u64);
        let (page, bits) = (address & !(PAGE as u64 - 1), address & (PAGE as u64 - 1));
        let kind = *FaultKind::ALL.get((bits & !WRITE) as usize)?;
        Some(Self { time_ns, page, kind, write: bits & WRITE != 0 })
    }
}

/// Records the page faults of one pager or pool.
#[derive(Debug)]
pub struct Recorder {
    descriptor: i32,
    buffered: Mutex<Buffered>,
}

#[derive(Debug)]
struct Buffered {
    /// `None` after a failed write: the recorder drops every later fault.
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Recorder {
    /// Creates the recorder that the options ask for. `None` if they ask for none, or, with a message, if its file cannot
    /// be created.
    pub(super) fn from_options(options: &PagerOptions) -> Option<Self> {
        let result = Self::create(options.record_faults_to.as_deref()?);
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::NotFound
        {
            write_line(format_args!("deepram: page faults are not recorded: {error}; the program continues"));
        }
        // A missing folder means that `deepram trace record` has ended: no message.
        result.ok()
    }

    /// Creates a new file in this folder.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(folder: &Path) -> io::Result<Self> {
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
        let bytes = Vec::with_capacity(BUFFER);
        Ok(Self { descriptor: file.as_raw_fd(), buffered: Mutex::new(Buffered { file: Some(file), bytes }) })
    }

    /// Descriptor of the file. The process must keep it open.
    pub(super) fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// Buffers one fault. The caller counts the fault before it drops the guard, so that counters and file agree.
    pub fn record(&self, page: usize, kind: FaultKind, write: bool) -> impl Drop + use<'_> {
        let mut buffered = lock(&self.buffered);
        // The time is taken under the lock, so that faults are in order of time.
        let fault = Fault { time_ns: monotonic_ns(), page: page as u64, kind, write };
        if buffered.file.is_some() {
            buffered.bytes.extend(fault.bytes());
        }
        if buffered.bytes.len() == BUFFER {
            buffered.write_out();
        }
        buffered
    }

    /// Writes out the buffered faults. No fault is recorded or counted until the caller drops the guard.
    pub fn flush(&self) -> impl Drop + use<'_> {
        let mut buffered = lock(&self.buffered);
        buffered.write_out();
        buffered
    }
}

impl Buffered {
    fn write_out(&mut self) {
        let Some(file) = &mut self.file else { return };
        if self.bytes.is_empty() {
            return;
        }
        // `deepram trace record` has ended and removed the file: further writes would fill the disk unseen.
        let gone = rustix::fs::fstat(&*file).is_ok_and(|stat| stat.st_nlink == 0);
        let result = if gone { Ok(()) } else { file.write_all(&self.bytes) };
        if let Err(error) = &result {
            write_line(format_args!(
                "deepram: recording of page faults stopped: {error}; the program continues"
            ));
        }
        if gone || result.is_err() {
            self.file = None;
        }
        self.bytes.clear();
    }
}

impl Inner {
    /// Counts a fault that was served and records it where a recorder is active. A window of fresh pages is one fault, on the
    /// page that the program accessed.
    pub(super) fn count_fault(&self, page: usize, kind: FaultKind, write: bool) {
        let _recorded = self.record.as_ref().map(|record| record.record(page, kind, write));
        let counter = match kind {
            FaultKind::Fresh => &self.counters.faults_fresh,
            FaultKind::Major => &self.counters.faults_major,
            FaultKind::SecondChance => &self.counters.victim_buffer_hits,
            FaultKind::WriteProtected => &self.counters.faults_write_protected,
        };
        add(counter, 1);
    }
}

/// Reads the recorded faults of one process, in order of time.
#[derive(Debug)]
pub struct FaultLog {
    file: BufReader<File>,
    process: u32,
}

impl FaultLog {
    /// Opens a file of recorded faults. `None` if the file ends within its header: the process was killed at once.
    ///
    /// # Errors
    /// The file cannot be read, has another format, or is of another version.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let mut file = BufReader::with_capacity(16 << 10, File::open(path)?);
        let mut header = [0; HEADER];
        if !fill(&mut file, &mut header)? {
            return Ok(None);
        }
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..8] != MAGIC || number(8) != VERSION {
            let why = format!("{}: not a page fault record of version {VERSION}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Some(Self { file, process: number(12) }))
    }

    /// The process id.
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
            Ok(true) => Some(Fault::from_bytes(bytes).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{bytes:?}: unknown kind of page fault"))
            })),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Reads until `bytes` is full; `false` if the file ends first.
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
            let log = FaultLog::open(name).unwrap().expect("it has a header");
            assert_eq!(log.process(), std::process::id());
            log.map(Result::unwrap).collect()
        };
        names.iter().map(log).collect()
    }

    #[test]
    fn recorded_faults_are_read_back_in_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let recorders = [(); 2].map(|()| Recorder::create(folder.path()).unwrap());
        let expected = |n: usize| (n * 7 % 1000 * PAGE, FaultKind::ALL[n % 4], n.is_multiple_of(3));
        // More than the buffer holds.
        for n in 0..10_000 {
            let (page, kind, write) = expected(n);
            drop(recorders[0].record(page, kind, write));
        }
        drop(recorders[0].flush());
        let all = read(folder.path());
        assert_eq!((all.len(), all[0].len(), all[1].len()), (2, 10_000, 0));
        assert!(all[0].is_sorted_by_key(|fault| fault.time_ns));
        for (n, fault) in all[0].iter().enumerate() {
            assert_eq!((fault.page as usize, fault.kind, fault.write), expected(n));
        }
    }

    #[test]
    fn a_truncated_record_is_read_to_its_last_whole_fault() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path()).unwrap();
        (0..5).for_each(|n| drop(recorder.record(n * PAGE, FaultKind::Major, false)));
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
    fn a_file_in_another_format_is_an_error() {
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
    fn a_removed_record_takes_no_more_disk_space() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path()).unwrap();
        folder.close().unwrap();
        drop(recorder.record(0, FaultKind::Fresh, true));
        drop(recorder.flush());
        assert!(lock(&recorder.buffered).file.is_none());
    }
}
