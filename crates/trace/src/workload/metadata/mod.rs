//! File operations as the writes with which EXT4, XFS and BtrFS make their metadata durable: journal
//! blocks or copied tree nodes, or lines in place (FlatFlash, section 3.5).
//!
//! 1. Each metadata change is made durable separately, or `batch` changes together. Reads are served
//!    from host memory and are not part of the stream.
//! 2. Directories and files are drawn uniformly. A file is created at its directory's next position,
//!    replacing any previous file.
//! 3. Data are written by whole pages in both modes, before the metadata that refer to them
//!    (data=ordered).

mod keys;
mod layout;
mod persist;

use std::collections::VecDeque;

use super::RecordSource;
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::{Item, Op, Request};
use layout::{Change, Fs, Layout, PAGE, Part};
use persist::Persist;

pub(super) use keys::INFO;

/// Reads of web pages between two appends to the log, as in filebench's webserver.
const READS: u64 = 10;

/// The repeated operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Rename,
    Mkdir,
    Varmail,
    Webserver,
}

pub(super) struct Metadata {
    operation: Operation,
    layout: Layout,
    persist: Persist,
    directories: u64,
    per_directory: u64,
    /// Next position of each directory.
    next: Vec<u32>,
    /// Size of each written file, in bytes.
    sizes: Vec<u32>,
    data: u64,
    region: u64,
    append: u64,
    log: u64,
    log_at: u64,
    strict: bool,
    logged: bool,
    batch: u64,
    waiting: Vec<Part>,
    waited: u64,
    /// Step and file of a loop with several operations.
    step: u64,
    file: u64,
    left: Option<u64>,
    queue: VecDeque<Item>,
    rng: Rng,
}

impl Metadata {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Metadata, SpecFault> {
        let fs = match spec.choice("fs") {
            "ext4" => Fs::Ext4,
            "xfs" => Fs::Xfs,
            _ => Fs::Btrfs,
        };
        let operation = match spec.choice("op") {
            "create" => Operation::Create,
            "rename" => Operation::Rename,
            "mkdir" => Operation::Mkdir,
            "varmail" => Operation::Varmail,
            _ => Operation::Webserver,
        };
        let directories = spec.int_in("dirs", 1..=1 << 24)?;
        let per_directory = spec.int_in("perdir", 1..=1 << 20)?;
        let files = directories * per_directory;
        if files > 1 << 26 {
            return Err(SpecFault::Values("dirs times perdir is above 2^26 files".to_string()));
        }
        let journal = spec.int_in("journal", 512 << 10..=1 << 40)?;
        let layout = Layout::new(fs, directories, per_directory);
        let lines = (spec.choice("grain") == "byte").then(|| spec.choice("fence") == "each");
        let (persist, end) = Persist::new(fs, &layout, lines, journal);
        let region = spec.int_in("filesize", 1..=1 << 24)?.max(PAGE).next_multiple_of(PAGE) * 16;
        let append = spec.int_in("append", 1..=region)?;
        let mails = operation == Operation::Varmail;
        Ok(Metadata {
            operation,
            layout,
            persist,
            directories,
            per_directory,
            next: vec![0; directories as usize],
            sizes: vec![0; if mails { files as usize } else { 0 }],
            data: end,
            region,
            append,
            log: spec.int_in("log", append..=1 << 40)?.next_multiple_of(PAGE),
            log_at: 0,
            strict: spec.choice("atime") == "strict",
            logged: spec.choice("btrfs") == "log",
            batch: spec.int_in("batch", 1..=64)?,
            waiting: Vec::new(),
            waited: 0,
            step: 0,
            file: 0,
            left: Some(spec.int("ops")).filter(|ops| *ops > 0),
            queue: VecDeque::new(),
            rng: Rng::new(seed, "metadata"),
        })
    }

    fn any_file(&mut self) -> u64 {
        self.rng.below(self.directories * self.per_directory)
    }

    /// Takes the next position of a random directory.
    fn fresh(&mut self) -> u64 {
        let directory = self.rng.below(self.directories);
        let next = &mut self.next[directory as usize];
        let place = u64::from(*next);
        *next = ((place + 1) % self.per_directory) as u32;
        directory * self.per_directory + place
    }

    fn change(&mut self, change: Change, fsync: bool) {
        self.waiting.extend(self.layout.parts(change));
        self.waited += 1;
        if self.waited >= self.batch {
            self.waited = 0;
            let parts = std::mem::take(&mut self.waiting);
            self.persist.commit(&parts, fsync || self.logged, &mut self.queue);
        }
    }

    /// Writes the pages of `bytes` bytes from an offset of an area.
    fn data(&mut self, area: u64, from: u64, len: u64) {
        let first = (area + from) / PAGE * PAGE;
        let len = (area + from + len).next_multiple_of(PAGE) - first;
        let op = Op::Write;
        self.queue.push_back(Item::Block(Request { time_ps: None, device: 0, offset: first, len, op }));
    }

    /// Appends to a file and makes the append durable.
    fn append_to(&mut self, file: u64) {
        let len = self.rng.between(1, self.append);
        let size = u64::from(self.sizes[file as usize]);
        let from = if size + len > self.region { 0 } else { size };
        self.data(self.data + file * self.region, from, len);
        self.sizes[file as usize] = (from + len) as u32;
        self.change(Change::Append(file), true);
    }

    fn varmail(&mut self) {
        match self.step % 6 {
            0 => {
                self.file = self.any_file();
                self.sizes[self.file as usize] = 0;
                self.change(Change::Unlink(self.file), false);
            }
            1 => self.change(Change::Create(self.file), false),
            2 => self.append_to(self.file),
            3 => {
                self.file = self.any_file();
                self.change(Change::MemoryAccess(self.file), false);
            }
            4 => self.append_to(self.file),
            _ => {
                let file = self.any_file();
                self.change(Change::MemoryAccess(file), false);
            }
        }
    }

    fn webserver(&mut self) {
        if self.strict && self.step % (READS + 1) < READS {
            let file = self.any_file();
            return self.change(Change::MemoryAccess(file), false);
        }
        let len = self.rng.between(1, self.append);
        if self.log_at + len > self.log {
            self.log_at = 0;
        }
        // The log is the first file; its data lie behind those of the others.
        let area = self.data + self.directories * self.per_directory * self.region;
        self.data(area, self.log_at, len);
        self.log_at += len;
        self.change(Change::Append(0), false);
    }
}

impl RecordSource for Metadata {
    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.queue.pop_front() {
                return Some(item);
            }
            if let Some(left) = &mut self.left {
                *left = left.checked_sub(1)?;
            }
            match self.operation {
                Operation::Create => {
                    let file = self.fresh();
                    self.change(Change::Create(file), false);
                }
                Operation::Mkdir => {
                    let file = self.fresh();
                    self.change(Change::Mkdir(file), false);
                }
                Operation::Rename => {
                    let file = self.any_file();
                    let first = file / self.per_directory * self.per_directory;
                    let to = first + self.rng.below(self.per_directory);
                    self.change(Change::Rename(file, to), false);
                }
                Operation::Varmail => self.varmail(),
                Operation::Webserver => self.webserver(),
            }
            self.step += 1;
        }
    }

    fn ends(&self) -> bool {
        self.left.is_some()
    }
}
