//! The path of a reference: last-level cache, miss handling, device, completion.

use super::llc::LINE_BYTES;
use super::machine::Machine;
use super::thread::{LoadData, PendingLines, WaitReason};
use super::{Command, Device, SimError};
use crate::engine::Time;
use crate::host::Slot;
use deepram_core::units::Picos;
use deepram_trace::Op;

/// A line read from the device, or written to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceAccess {
    pub(super) line: u64,
    pub(super) op: Op,
    /// The thread of the access; `None` for lines written back from the cache.
    pub(super) thread: Option<u32>,
    /// The core whose MSHR the access occupies.
    pub(super) core: Option<u32>,
    /// The core that translates the address; `None` for lines written back from the cache.
    origin: Option<u32>,
    began: Time,
    /// The line was stored to while it was being fetched.
    dirty: bool,
    /// The access is in the device.
    inside: bool,
    pub(super) asleep: bool,
    pub(super) slept: bool,
}

/// The outcome of issuing a line of a reference.
pub(super) enum IssueOutcome {
    /// The line needs no device access.
    WithoutDevice,
    /// A device access has been sent.
    Sent,
    /// A device access must be sent when the present reaches the front.
    NotYet,
    /// The thread must wait.
    Blocked(WaitReason),
}

impl<D: Device, F: Fn(&D, &Command) -> bool> Machine<'_, '_, D, F> {
    /// Issues one line of a reference at the thread's front.
    #[inline]
    pub(super) fn issue(
        &mut self,
        number: u32,
        core: u32,
        pending: PendingLines,
    ) -> Result<IssueOutcome, SimError> {
        let thread = &mut self.threads[number as usize];
        if let Some(llc) = &mut self.llc
            && llc.touch(pending.line, pending.store)
        {
            self.lines.hits += 1;
            if !pending.store {
                thread.load(LoadData::At(thread.front + self.hit_ps));
            }
            return Ok(IssueOutcome::WithoutDevice);
        }
        self.miss(number, core, pending)
    }

    fn miss(&mut self, number: u32, core: u32, pending: PendingLines) -> Result<IssueOutcome, SimError> {
        let now = self.context.now().0;
        let cached = self.llc.is_some();
        let thread = &mut self.threads[number as usize];
        let asked = thread.lines.iter().find(|(line, _)| *line == pending.line).map(|(_, slot)| *slot);
        if let Some(slot) = asked
            && (cached || !pending.store)
        {
            self.lines.merged += 1;
            if pending.store {
                self.accesses[slot as usize].dirty = true;
            } else {
                thread.load(LoadData::Of(slot));
            }
            return Ok(IssueOutcome::WithoutDevice);
        }
        if thread.front > now {
            return Ok(IssueOutcome::NotYet);
        }
        let op = if pending.store && !cached { Op::Write } else { Op::Read };
        let command = Command { op, offset: pending.line * LINE_BYTES, len: LINE_BYTES };
        let fault = (self.faults)(self.device, &command);
        if fault {
            if !thread.drain() {
                return Ok(IssueOutcome::Blocked(WaitReason::Load));
            }
            if thread.front > now {
                return Ok(IssueOutcome::NotYet);
            }
        } else if op == Op::Write {
            if self.writes_under_way == self.options.write_buffer {
                self.lines.write_waits += 1;
                return Ok(IssueOutcome::Blocked(WaitReason::WriteBuffer));
            }
            self.post_write(pending.line, Some(core));
            return Ok(IssueOutcome::Sent);
        }
        if self.cores[core as usize].misses >= self.options.mshrs {
            self.lines.mshr_waits += 1;
            return Ok(IssueOutcome::Blocked(WaitReason::Mshr));
        }
        self.cores[core as usize].misses += 1;
        self.lines.misses += 1;
        let access = DeviceAccess {
            line: pending.line,
            op,
            thread: Some(number),
            core: Some(core),
            origin: Some(core),
            began: now,
            dirty: pending.store,
            inside: false,
            asleep: false,
            slept: false,
        };
        let slot = self.open_access(access);
        let thread = &mut self.threads[number as usize];
        thread.lines.push((pending.line, slot));
        if fault {
            self.lines.faults += 1;
            thread.fault = Some(slot);
        } else if !pending.store {
            thread.load(LoadData::Of(slot));
        }
        Ok(IssueOutcome::Sent)
    }

    /// Writes a line to the device; no thread waits for it.
    fn post_write(&mut self, line: u64, origin: Option<u32>) {
        self.writes_under_way += 1;
        self.lines.written += 1;
        let began = self.context.now().0;
        self.open_access(DeviceAccess {
            line,
            op: Op::Write,
            thread: None,
            core: None,
            origin,
            began,
            dirty: false,
            inside: false,
            asleep: false,
            slept: false,
        });
    }

    /// Assigns a slot to an access, which goes to the device as soon as the device has room.
    fn open_access(&mut self, access: DeviceAccess) -> Slot {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.accesses[slot as usize] = access;
                slot
            }
            None => {
                self.accesses.push(access);
                (self.accesses.len() - 1) as Slot
            }
        };
        self.unsent.push_back(slot);
        slot
    }

    /// Sends the access that has waited longest for room in the device.
    pub(super) fn send_next(&mut self) -> Result<(), SimError> {
        let Some(slot) = self.unsent.pop_front() else { return Ok(()) };
        self.inside += 1;
        self.accesses[slot as usize].inside = true;
        let DeviceAccess { line, op, origin, .. } = self.accesses[slot as usize];
        self.context.core = origin;
        let command = Command { op, offset: line * LINE_BYTES, len: LINE_BYTES };
        self.device.submit(slot, command, &mut self.context)
    }

    /// Removes an access from the device's queue.
    pub(super) fn leave_device(&mut self, slot: Slot) {
        self.inside -= u64::from(std::mem::take(&mut self.accesses[slot as usize].inside));
    }

    /// Completes an access.
    pub(super) fn complete(&mut self, slot: Slot) {
        let now = self.context.now().0;
        if self.accesses[slot as usize].asleep {
            // The device completed the access without resuming its thread.
            self.context.resumed.push((slot, 0));
            return;
        }
        self.leave_device(slot);
        let access = self.accesses[slot as usize];
        self.free.push(slot);
        let Some(number) = access.thread else {
            self.times.written.add(Picos(now - access.began));
            self.writes_under_way -= 1;
            match self.waiting_writes.pop_front() {
                Some((line, core)) => {
                    self.post_write(line, None);
                    if let Some(core) = core {
                        self.free_mshr(core);
                    }
                }
                None => self.unblock_writers(),
            }
            return;
        };
        let times = if access.slept { &mut self.times.slept } else { &mut self.times.read };
        times.add(Picos(now - access.began));
        let thread = &mut self.threads[number as usize];
        thread.lines.retain(|(_, other)| *other != slot);
        thread.arrived(slot, now + self.hit_ps);
        if thread.fault == Some(slot) {
            thread.fault = None;
        }
        let victim = self.llc.as_mut().and_then(|llc| llc.insert(access.line, access.dirty));
        match victim {
            Some(line) if self.writes_under_way == self.options.write_buffer => {
                self.lines.write_waits += 1;
                self.waiting_writes.push_back((line, access.core));
            }
            victim => {
                if let Some(line) = victim {
                    self.post_write(line, None);
                }
                if let Some(core) = access.core {
                    self.free_mshr(core);
                }
            }
        }
        self.unblock(number, WaitReason::Load);
    }
}
