//! The hard disk of `disk-cache` and `pmem`: one request at a time, those that are waited for first.
//!
//! A request at the end of the last one needs no seek. Writes of neighbouring pages that wait one behind
//! the other are one request.

use std::collections::VecDeque;

use deepram_media::{Bytes, Disk, Picos, power_energy};

use crate::engine::Time;

/// The user of a disk request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskUser {
    /// A request that somebody waits for, by its number.
    WaitedFor(u32),
    /// A write in the background.
    Flush,
}

#[derive(Debug, Clone, Copy)]
struct DiskRequest {
    first: u64,
    pages: u64,
    write: bool,
    user: DiskUser,
}

/// Times and requests of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskTotals {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) pages_written: u64,
    pub(crate) sequential: u64,
    pub(crate) spin_ups: u64,
    /// Time of seeks, of transfers, and of standing still.
    pub(crate) seeking: Time,
    pub(crate) moving: Time,
    pub(crate) standing: Time,
}

impl DiskTotals {
    pub(crate) fn since(&self, base: &Self) -> Self {
        Self {
            reads: self.reads - base.reads,
            writes: self.writes - base.writes,
            pages_written: self.pages_written - base.pages_written,
            sequential: self.sequential - base.sequential,
            spin_ups: self.spin_ups - base.spin_ups,
            seeking: self.seeking - base.seeking,
            moving: self.moving - base.moving,
            standing: self.standing - base.standing,
        }
    }
}

/// A disk in time.
pub(crate) struct HardDisk {
    disk: Disk,
    page: u64,
    /// Idle time after which it stops, and the time to start it again.
    standby: Option<(Time, Time)>,
    waited_for: VecDeque<DiskRequest>,
    background: VecDeque<DiskRequest>,
    active: Option<DiskRequest>,
    /// The page behind the last request.
    head: Option<u64>,
    idle_since: Time,
    totals: DiskTotals,
}

impl HardDisk {
    pub(crate) fn new(disk: &Disk, page: u64, standby: Option<(Picos, Picos)>) -> Self {
        Self {
            disk: disk.clone(),
            page,
            standby: standby.map(|(after, start)| (after.0, start.0)),
            waited_for: VecDeque::new(),
            background: VecDeque::new(),
            active: None,
            head: None,
            idle_since: 0,
            totals: DiskTotals::default(),
        }
    }

    pub(crate) fn fetch(&mut self, page: u32, user: u32) {
        self.request(page.into(), 1, false, user);
    }

    /// Queues a request of whole pages, for which `user` waits.
    pub(crate) fn request(&mut self, first: u64, pages: u64, write: bool, user: u32) {
        self.totals.pages_written += if write { pages } else { 0 };
        self.waited_for.push_back(DiskRequest { first, pages, write, user: DiskUser::WaitedFor(user) });
    }

    pub(crate) fn write(&mut self, page: u32) {
        let first = u64::from(page);
        self.totals.pages_written += 1;
        if let Some(last) = self.background.back_mut()
            && last.first + last.pages == first
        {
            last.pages += 1;
            return;
        }
        self.background.push_back(DiskRequest { first, pages: 1, write: true, user: DiskUser::Flush });
    }

    /// Starts the next request if the disk is free. Returns its end.
    pub(crate) fn start(&mut self, now: Time) -> Option<Time> {
        if self.active.is_some() {
            return None;
        }
        let request = self.waited_for.pop_front().or_else(|| self.background.pop_front())?;
        let mut start = now;
        if let Some((after, spin_up)) = self.standby
            && now - self.idle_since > after
        {
            self.totals.standing += now - self.idle_since - after;
            self.totals.spin_ups += 1;
            self.totals.moving += spin_up;
            start += spin_up;
        }
        let sequential = self.head == Some(request.first);
        let seek = if sequential { 0 } else { self.disk.position(request.write).0 };
        let rest = self.disk.sequential(Bytes(request.pages * self.page)).0;
        self.totals.seeking += seek;
        self.totals.moving += rest;
        self.totals.sequential += u64::from(sequential);
        if request.write {
            self.totals.writes += 1;
        } else {
            self.totals.reads += 1;
        }
        self.head = Some(request.first + request.pages);
        self.active = Some(request);
        Some(start + seek + rest)
    }

    /// Ends the active request. Returns its user.
    pub(crate) fn end(&mut self, now: Time) -> Option<DiskUser> {
        self.idle_since = now;
        self.active.take().map(|request| request.user)
    }

    /// True if nothing waits or is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_none() && self.waited_for.is_empty() && self.background.is_empty()
    }

    /// Requests and times since the start.
    pub(crate) fn totals(&self) -> DiskTotals {
        self.totals
    }

    /// Energy of accesses, and of idle and standby time, over `time`, picojoules.
    pub(crate) fn energy_pj(&self, did: &DiskTotals, time: Picos) -> (f64, f64) {
        let access = power_energy(self.disk.seek, Picos(did.seeking))
            + power_energy(self.disk.operating, Picos(did.moving));
        let idle = time.0.saturating_sub(did.seeking + did.moving + did.standing);
        let rest =
            power_energy(self.disk.idle, Picos(idle)) + power_energy(self.disk.standby, Picos(did.standing));
        (access.0, rest.0)
    }
}
