//! filebench personalities as requests: each thread runs its loop, and the threads take turns after
//! each operation.

use super::RecordSource;
use super::address_streams::FLUSH;
use super::fileset::{FileSet, MAX_FILES};
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::{Item, Op, Request};
use std::collections::VecDeque;

/// One operation of a loop (filebench: flowop). A thread has one file open at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    Create,
    WriteWhole,
    Open,
    Append,
    ReadWhole,
    Fsync,
    Close,
    Delete,
    Stat,
    AppendLog,
}

use Flow::{Append, AppendLog, Close, Create, Delete, Fsync, Open, ReadWhole, Stat, WriteWhole};

const FILESERVER: &[Flow] =
    &[Create, WriteWhole, Close, Open, Append, Close, Open, ReadWhole, Close, Delete, Stat];
const VARMAIL: &[Flow] =
    &[Delete, Create, Append, Fsync, Close, Open, ReadWhole, Append, Fsync, Close, Open, ReadWhole, Close];
const WEBPROXY: &[Flow] = &[
    Delete, Create, Append, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close,
    Open, ReadWhole, Close, Open, ReadWhole, Close,
];
const WEBSERVER: &[Flow] = &[
    Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open,
    ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open,
    ReadWhole, Close, Open, ReadWhole, Close, AppendLog,
];

struct Thread {
    at: usize,
    file: Option<u32>,
}

pub(super) struct Filebench {
    flow: &'static [Flow],
    set: FileSet,
    threads: Vec<Thread>,
    turn: usize,
    queue: VecDeque<Item>,
    filesize: u64,
    append: u64,
    io: u64,
    meta: u64,
    log_start: u64,
    log_bytes: u64,
    log_at: u64,
    rng: Rng,
}

impl Filebench {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Filebench, SpecFault> {
        let flow = match spec.name() {
            "fileserver" => FILESERVER,
            "varmail" => VARMAIL,
            "webproxy" => WEBPROXY,
            _ => WEBSERVER,
        };
        let files = spec.int_in("files", 1..=MAX_FILES)?;
        let filesize = spec.int_in("filesize", 1..=1 << 40)?;
        let meta = spec.int_in("meta", 0..=1 << 20)?;
        let set = FileSet::new(files, filesize, meta, spec.real("prealloc"))
            .ok_or_else(|| SpecFault::Values("the files take more than 2^62 bytes".to_string()))?;
        let io = spec.int_in("io", 1..=u64::MAX)?;
        if set.region() / io > 1 << 20 {
            return Err(SpecFault::value(
                "io",
                "at least a millionth of a file's region (16 times filesize)",
            ));
        }
        let threads = spec.int_in("threads", 1..=1 << 16)?;
        // Without any file, a loop would never produce a request.
        if (files as f64 * spec.real("prealloc")).round() < 1.0 {
            return Err(SpecFault::value("prealloc", "a share that leaves at least one file"));
        }
        let log_bytes = spec.int_in("log", 1..=1 << 60)?;
        let append = spec.int_in("append", 1..=set.region().min(log_bytes))?;
        Ok(Filebench {
            flow,
            log_start: set.end(),
            set,
            threads: (0..threads).map(|_| Thread { at: 0, file: None }).collect(),
            turn: 0,
            queue: VecDeque::new(),
            filesize,
            append,
            io,
            meta,
            log_bytes,
            log_at: 0,
            rng: Rng::new(seed, "filebench"),
        })
    }

    fn push(&mut self, offset: u64, len: u64, op: Op) {
        if len > 0 {
            self.queue.push_back(Item::Block(Request { time_ps: None, device: 0, offset, len, op }));
        }
    }

    fn chunks(&mut self, start: u64, bytes: u64, op: Op) {
        let mut done = 0;
        while done < bytes {
            let len = self.io.min(bytes - done);
            self.push(start + done, len, op);
            done += len;
        }
    }

    fn inode(&mut self, file: u32, op: Op) {
        self.push(self.set.inode(file), self.meta, op);
    }

    fn append_to(&mut self, file: u32) {
        let len = self.rng.between(1, self.append);
        let mut bytes = self.set.bytes(file);
        if bytes + len > self.set.region() {
            self.push(self.set.start(file), bytes, Op::Trim);
            bytes = 0;
        }
        self.chunks(self.set.start(file) + bytes, len, Op::Write);
        self.set.set_bytes(file, bytes + len);
        self.inode(file, Op::Write);
    }

    /// Runs one operation of the current thread.
    fn run(&mut self) {
        let turn = self.turn;
        self.turn = (turn + 1) % self.threads.len();
        let (at, file) = (self.threads[turn].at, self.threads[turn].file);
        self.threads[turn].at = (at + 1) % self.flow.len();
        match (self.flow[at], file) {
            (Create, _) => {
                let created = self.set.create(&mut self.rng);
                if let Some(file) = created {
                    self.inode(file, Op::Write);
                }
                self.threads[turn].file = created;
            }
            (Open, _) => {
                let opened = self.set.open(&mut self.rng);
                if let Some(file) = opened {
                    self.inode(file, Op::Read);
                }
                self.threads[turn].file = opened;
            }
            (Delete, _) => {
                if let Some((file, bytes)) = self.set.delete(&mut self.rng) {
                    self.push(self.set.start(file), bytes, Op::Trim);
                    self.inode(file, Op::Write);
                }
            }
            (Stat, _) => {
                if let Some(file) = self.set.any(&mut self.rng) {
                    self.inode(file, Op::Read);
                }
            }
            (AppendLog, _) => {
                let len = self.rng.between(1, self.append);
                if self.log_at + len > self.log_bytes {
                    self.log_at = 0;
                }
                self.push(self.log_start + self.log_at, len, Op::Write);
                self.log_at += len;
            }
            (WriteWhole, Some(file)) => {
                self.chunks(self.set.start(file), self.filesize, Op::Write);
                self.set.set_bytes(file, self.filesize);
                self.inode(file, Op::Write);
            }
            (Append, Some(file)) => self.append_to(file),
            (ReadWhole, Some(file)) => self.chunks(self.set.start(file), self.set.bytes(file), Op::Read),
            (Fsync, Some(_)) => self.queue.push_back(FLUSH),
            (Close, Some(file)) => {
                self.set.close(file);
                self.threads[turn].file = None;
            }
            // No file could be created or opened, so the file's operations do nothing, as in
            // filebench when a file set is exhausted.
            (WriteWhole | Append | ReadWhole | Fsync | Close, None) => {}
        }
    }
}

impl RecordSource for Filebench {
    fn next(&mut self) -> Option<Item> {
        // A round of all loops yields a request unless the values exclude every request (all files
        // empty, no inodes). In that case the stream ends.
        let mut patience = self.threads.len() * self.flow.len() * 2;
        loop {
            if let Some(item) = self.queue.pop_front() {
                return Some(item);
            }
            patience = patience.checked_sub(1)?;
            self.run();
        }
    }
}

/// filebench's oltp: readers, and writers that are woken by reads. The log writer writes at random
/// offsets, too, as in filebench's personality.
pub(super) struct Oltp {
    files: u64,
    filesize: u64,
    io: u64,
    log_io: u64,
    log: u64,
    batch: u64,
    reads_per_batch: u64,
    reads_per_log: u64,
    reads: u64,
    writes_due: u64,
    log_due: bool,
    flush_due: bool,
    rng: Rng,
}

impl Oltp {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Oltp, SpecFault> {
        let files = spec.int_in("files", 1..=1 << 20)?;
        let filesize = spec.int_in("filesize", 1..=1 << 40)?;
        let log = spec.int_in("log", 1..=1 << 40)?;
        Ok(Oltp {
            files,
            filesize,
            io: spec.int_in("io", 1..=filesize)?,
            log_io: spec.int_in("logio", 1..=log)?,
            log,
            batch: spec.int("batch"),
            reads_per_batch: spec.int_in("readsperbatch", 1..=u64::MAX)?,
            reads_per_log: spec.int_in("readsperlog", 1..=u64::MAX)?,
            reads: 0,
            writes_due: 0,
            log_due: false,
            flush_due: false,
            rng: Rng::new(seed, "oltp"),
        })
    }

    fn data(&mut self, op: Op) -> Option<Item> {
        let file = self.rng.below(self.files);
        let offset = file * self.filesize + self.rng.below(self.filesize / self.io) * self.io;
        Some(Item::Block(Request { time_ps: None, device: 0, offset, len: self.io, op }))
    }
}

impl RecordSource for Oltp {
    fn next(&mut self) -> Option<Item> {
        if self.writes_due > 0 {
            self.writes_due -= 1;
            self.flush_due |= self.writes_due == 0;
            return self.data(Op::Write);
        }
        if std::mem::take(&mut self.flush_due) {
            return Some(FLUSH);
        }
        if std::mem::take(&mut self.log_due) {
            let places = self.log / self.log_io;
            let offset = self.files * self.filesize + self.rng.below(places) * self.log_io;
            self.flush_due = true;
            return Some(Item::Block(Request {
                time_ps: None,
                device: 0,
                offset,
                len: self.log_io,
                op: Op::Write,
            }));
        }
        self.reads += 1;
        if self.reads.is_multiple_of(self.reads_per_batch) {
            self.writes_due = self.batch;
        }
        self.log_due = self.reads.is_multiple_of(self.reads_per_log);
        self.data(Op::Read)
    }
}
