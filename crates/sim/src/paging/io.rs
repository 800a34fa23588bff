//! Commands between memory and drive: queueing, doorbell, DMA.

use deepram_core::units::Picos;
use deepram_trace::Op;

use super::page_locations::NONE;
use super::{PAGE, PagedMemory, PagingEvent, frame_line};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::{Command, Context, Slot};

/// The kind of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandKind {
    Read,
    /// A write-back, with the number of the last flush request that it belongs to, or of the next one.
    Write(u64),
    /// A flush, for the request in this slot.
    Flush(Slot),
}

#[derive(Debug, Clone)]
pub(super) struct DriveCommand {
    pub(super) kind: CommandKind,
    /// The first drive page.
    pub(super) first: u32,
    /// The frames of the drive pages from `first` on.
    pub(super) frames: Vec<u32>,
    /// The page versions that are written.
    pub(super) versions: Vec<u32>,
    /// The time at which the command was submitted to the drive's queue.
    pub(super) rung: Time,
    /// The command belongs to background write-back, whose commands are limited in number.
    pub(super) background: bool,
}

impl PagedMemory {
    pub(super) fn new_io(&mut self, kind: CommandKind, first: u32) -> u32 {
        let number = match self.idle_ios.pop() {
            Some(number) => number,
            None => {
                let frames = Vec::new();
                let versions = Vec::new();
                self.ios.push(DriveCommand { kind, first, frames, versions, rung: 0, background: false });
                (self.ios.len() - 1) as u32
            }
        };
        let io = &mut self.ios[number as usize];
        (io.kind, io.first, io.background) = (kind, first, false);
        number
    }

    pub(super) fn free_io(&mut self, number: u32) {
        let io = &mut self.ios[number as usize];
        io.frames.clear();
        io.versions.clear();
        self.idle_ios.push(number);
    }

    /// Transfers the frame's page between DRAM and link. Returns the time at which the transfer ends.
    pub(super) fn dma(&mut self, frame: u32, write: bool, now: Time) -> Time {
        let first = frame_line(frame, 0, self.burst);
        let last = frame_line(frame, PAGE - 1, self.burst);
        (first..=last).fold(now, |end, number| end.max(self.dram.serve(number, write, now)))
    }

    /// Submits the command to the drive's queue as soon as the queue has room.
    pub(super) fn ring_doorbell(
        &mut self,
        number: u32,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        self.ios[number as usize].rung = context.now().0;
        self.queue.push_back(number);
        self.fill_drive_queue(context)
    }

    /// Submits commands while the drive's queue has room, and handles commands that complete meanwhile.
    fn fill_drive_queue(&mut self, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        while self.inside < self.depth
            && let Some(number) = self.queue.pop_front()
        {
            let io = &self.ios[number as usize];
            let (offset, len) = (u64::from(io.first) * PAGE, io.frames.len() as u64 * PAGE);
            let command = match io.kind {
                CommandKind::Read => Command { op: Op::Read, offset, len },
                CommandKind::Write(_) => Command { op: Op::Write, offset, len },
                CommandKind::Flush(_) => Command { op: Op::Flush, offset: 0, len: 0 },
            };
            self.inside += 1;
            self.link_bytes += command.len;
            let done = self.drive.submit(number, command, context.now())?;
            self.finished.extend(done);
            self.handle_completions(context)?;
        }
        Ok(())
    }

    /// Runs the drive's events that are due.
    pub(super) fn advance(&mut self, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        let done = self.drive.advance(context.now())?;
        self.finished.extend(done);
        self.handle_completions(context)?;
        self.fill_drive_queue(context)
    }

    fn handle_completions(&mut self, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        while let Some(number) = self.finished.pop_front() {
            self.inside -= 1;
            self.completed(number, context)?;
        }
        if let Some(next) = self.drive.next()
            && self.due.is_none_or(|due| next < due || due <= context.now())
        {
            self.due = Some(next);
            context.schedule(next, PagingEvent::Drive);
        }
        Ok(())
    }

    fn completed(&mut self, number: u32, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        let now = context.now().0;
        match self.ios[number as usize].kind {
            CommandKind::Read => {
                // The drive has sent the last byte; DRAM receives the pages at its own rate.
                let mut end = now;
                for at in 0..self.ios[number as usize].frames.len() {
                    let frame = self.ios[number as usize].frames[at];
                    end = end.max(self.dma(frame, true, now));
                }
                context.schedule(Picos(end), PagingEvent::Filled(number));
                Ok(())
            }
            CommandKind::Write(_) => self.write_done(number, context),
            CommandKind::Flush(slot) => {
                self.free_io(number);
                self.flushed(slot, context);
                Ok(())
            }
        }
    }

    /// Reads drive pages into their frames: one command for each run of neighbours, the run that
    /// contains `first` before the others. The software starts at `from`. Returns the times at which the
    /// software of all commands, and of the first command, ends.
    pub(super) fn read(
        &mut self,
        drive_pages: &[(u32, u32)],
        first: u32,
        from: Time,
        context: &mut Context<PagingEvent>,
    ) -> (Time, Time) {
        let rows: Vec<&[(u32, u32)]> = drive_pages.chunk_by(|a, b| a.0 + 1 == b.0).collect();
        let leading =
            rows.iter().position(|row| row.iter().any(|(drive_page, _)| *drive_page == first)).unwrap_or(0);
        let (mut time, mut first_end) = (from, from);
        let order = std::iter::once(leading).chain((0..rows.len()).filter(|row| *row != leading));
        for (nth, row) in order.filter_map(|row| rows.get(row)).enumerate() {
            let number =
                self.new_io(CommandKind::Read, row.first().map_or(NONE, |(drive_page, _)| *drive_page));
            self.ios[number as usize].frames.extend(row.iter().map(|(_, frame)| *frame));
            self.counts.read_commands += 1;
            self.counts.pages_read += row.len() as u64;
            time += self.command_software();
            if nth == 0 {
                first_end = time;
            }
            context.schedule(Picos(time), PagingEvent::Doorbell(number));
        }
        (time, first_end)
    }
}
