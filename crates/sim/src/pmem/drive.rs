//! The drive below the page cache: an SSD or a hard disk, and the users of its requests.

use std::collections::VecDeque;

use deepram_media::{Bytes, DataStore, Picos, Platform, Ssd};
use deepram_trace::Op;

use crate::engine::Time;
use crate::error::SimError;
use crate::flash::FlashCounts;
use crate::hard_disk::{DiskUser, HardDisk};
use crate::host::{Command, Device, Slot};
use crate::nested::NestedDevice;
use crate::slab::Slab;
use crate::ssd::{ParallelSsd, SsdOptions};

/// Block of the file system, bytes.
pub(super) const BLOCK: u64 = 4096;
/// Bytes at the drive's end that are the journal.
const JOURNAL: u64 = 128 << 20;

/// The user of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriveUser {
    /// A request of the host waits for it.
    Host(Slot),
    /// The write-back of dirty pages.
    WriteBack,
    /// A page that left the page cache dirty.
    Victim,
    /// The journal's commit.
    Commit,
}

enum Kind {
    Ssd(Box<NestedDevice<ParallelSsd>>),
    Disk(Box<HardDisk>),
}

/// A drive.
pub(super) struct Drive {
    kind: Kind,
    users: Slab<DriveUser>,
    /// Commands that wait for room in the SSD's queue, and the number of those inside.
    waiting: VecDeque<(Slot, Command)>,
    inside: u64,
    blocks: u64,
    journal_at: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) blocks_read: u64,
    pub(super) blocks_written: u64,
}

impl Drive {
    /// The drive of a platform; `None` if its data are in memory.
    ///
    /// # Errors
    /// The SSD's figures do not fit together.
    pub(super) fn new(platform: &Platform, ssd: &Ssd, seed: u64) -> Result<Option<Self>, SimError> {
        let (kind, bytes) = match platform.store {
            DataStore::Pmfs | DataStore::Tmpfs => return Ok(None),
            DataStore::Ext4Ssd => {
                let ssd = ParallelSsd::new(ssd, &SsdOptions::default(), seed)?;
                let bytes = ssd.capacity().0;
                (Kind::Ssd(Box::new(NestedDevice::new(ssd))), bytes)
            }
            DataStore::Ext4Disk => {
                let disk = HardDisk::new(&platform.disk, BLOCK, None);
                (Kind::Disk(Box::new(disk)), platform.disk.capacity.0)
            }
        };
        if bytes < 2 * JOURNAL {
            return Err(SimError::config(
                "drive",
                format!("must be {} B at least, to hold a journal", 2 * JOURNAL),
            ));
        }
        Ok(Some(Self {
            kind,
            users: Slab::new(),
            waiting: VecDeque::new(),
            inside: 0,
            blocks: bytes / BLOCK,
            journal_at: 0,
            reads: 0,
            writes: 0,
            blocks_read: 0,
            blocks_written: 0,
        }))
    }

    /// Bytes for data.
    pub(super) fn data_bytes(&self) -> u64 {
        self.blocks * BLOCK - JOURNAL
    }

    /// Sends a request for blocks of data. Returns the users of requests that complete at once.
    pub(super) fn request(
        &mut self,
        (first, blocks): (u64, u64),
        write: bool,
        user: DriveUser,
        now: Time,
    ) -> Result<Vec<DriveUser>, SimError> {
        if write {
            self.writes += 1;
            self.blocks_written += blocks;
        } else {
            self.reads += 1;
            self.blocks_read += blocks;
        }
        let number = self.users.add(user);
        match &mut self.kind {
            Kind::Disk(disk) => {
                disk.request(first, blocks, write, number);
                Ok(Vec::new())
            }
            Kind::Ssd(_) => {
                let op = if write { Op::Write } else { Op::Read };
                self.waiting.push_back((number, Command { op, offset: first * BLOCK, len: blocks * BLOCK }));
                self.fill(now)
            }
        }
    }

    /// Appends blocks to the journal, which lies at the drive's end and wraps around.
    pub(super) fn append_journal(&mut self, blocks: u64, now: Time) -> Result<Vec<DriveUser>, SimError> {
        let all = JOURNAL / BLOCK;
        if self.journal_at + blocks > all {
            self.journal_at = 0;
        }
        let first = self.blocks - all + self.journal_at;
        self.journal_at += blocks;
        self.request((first, blocks), true, DriveUser::Commit, now)
    }

    /// Time after which a write at the end of the last one can begin, when that has become durable: a revolution of a disk.
    pub(super) fn turn(&self, platform: &Platform) -> Time {
        match self.kind {
            Kind::Disk(_) => 2 * platform.disk.rotational_latency().0,
            Kind::Ssd(_) => 0,
        }
    }

    /// Runs what is due. Returns the users of the requests that have completed.
    pub(super) fn advance(&mut self, now: Time) -> Result<Vec<DriveUser>, SimError> {
        match &mut self.kind {
            Kind::Disk(disk) => {
                let ended = disk.end(now);
                Ok(match ended {
                    Some(DiskUser::WaitedFor(number)) => self.users.take(number).into_iter().collect(),
                    Some(DiskUser::Flush) | None => Vec::new(),
                })
            }
            Kind::Ssd(ssd) => {
                let done: Vec<Slot> = ssd.advance(Picos(now))?.to_vec();
                let mut users = self.take(&done);
                users.extend(self.fill(now)?);
                Ok(users)
            }
        }
    }

    /// The time of the next event; for a disk, starts its next request and returns that one's end.
    pub(super) fn next(&mut self, now: Time) -> Option<Time> {
        match &mut self.kind {
            Kind::Disk(disk) => disk.start(now),
            Kind::Ssd(ssd) => ssd.next().map(|time| time.0),
        }
    }

    fn take(&mut self, done: &[Slot]) -> Vec<DriveUser> {
        self.inside -= done.len() as u64;
        done.iter().filter_map(|number| self.users.take(*number)).collect()
    }

    fn fill(&mut self, now: Time) -> Result<Vec<DriveUser>, SimError> {
        let mut users = Vec::new();
        while let Kind::Ssd(ssd) = &mut self.kind
            && self.inside < ssd.device().queue_limit()
            && let Some((number, command)) = self.waiting.pop_front()
        {
            self.inside += 1;
            let done: Vec<Slot> = ssd.submit(number, command, Picos(now))?.to_vec();
            users.extend(self.take(&done));
        }
        Ok(users)
    }

    /// True if no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.users.is_empty()
    }

    /// The flash operations of an SSD.
    pub(super) fn flash(&self) -> FlashCounts {
        match &self.kind {
            Kind::Ssd(ssd) => ssd.device().counts(),
            Kind::Disk(_) => FlashCounts::default(),
        }
    }

    /// # Errors
    /// [`SimError::Conservation`].
    pub(super) fn check(&self) -> Result<(), SimError> {
        match &self.kind {
            Kind::Ssd(ssd) => ssd.check(),
            Kind::Disk(_) => Ok(()),
        }
    }

    /// The capacity that a platform with this drive offers.
    pub(super) fn capacity(&self, platform: &Platform) -> Bytes {
        Bytes(platform.capacity.0.min(self.data_bytes()))
    }
}
