//! The logs: one of all, or one of each client.

use std::collections::VecDeque;

use deepram_trace::Op;

use super::{ClientStage, Clients, Logging, PAGE};
use crate::error::SimError;
use crate::host::{Command, Context, Device, Event, Slot};
use crate::processor::LINE_BYTES;
use crate::result::counts;

counts! {
    /// What became of the log.
    pub struct LogCounts {
        /// Transactions that changed something.
        pub commits: u64,
        /// Bytes of their records.
        pub log_bytes: u64,
        /// Writes of a log.
        pub log_writes: u64,
        /// Bytes written to logs.
        pub log_written_bytes: u64,
    }
}

/// The central log, in bytes that it has had so far.
#[derive(Debug, Default)]
pub(super) struct CentralLog {
    pub(super) locked: bool,
    pub(super) queue: VecDeque<usize>,
    pub(super) inserted: u64,
    pub(super) durable: u64,
    /// Where the write under way ends.
    pub(super) writing: Option<u64>,
    /// It is written, and being flushed.
    pub(super) flushing: bool,
    pub(super) waiting: VecDeque<usize>,
}

impl Clients {
    /// Gives the lock of the central log to who has asked first.
    pub(super) fn grant_lock<E: Copy>(&mut self, context: &mut Context<E>) {
        if self.central.locked {
            return;
        }
        let Some(client) = self.central.queue.pop_front() else { return };
        self.central.locked = true;
        self.clients[client].stage = ClientStage::Insert;
        context.queue.push(context.now() + self.options.lock_ps, Event::Driver(client as u32));
    }

    /// Bytes of each log.
    pub(super) fn bytes_per_log(&self) -> u64 {
        let logs = if self.logging == Logging::Own { self.clients.len() as u64 } else { 1 };
        (self.log.end - self.log.start) / logs / PAGE * PAGE
    }

    /// The write of a log that has had `from` bytes and is to have `to`, in whole grains; not beyond its end.
    fn log_write(&self, log: u64, from: u64, to: u64) -> Command {
        let bytes_per_log = self.bytes_per_log();
        let first = from % bytes_per_log / self.write_unit * self.write_unit;
        let last = first + (from % self.write_unit + (to - from)).next_multiple_of(self.write_unit);
        Command { op: Op::Write, offset: self.log.start + log * bytes_per_log + first, len: last - first }
    }

    /// What a client writes of its own log, and the bytes that this has had then.
    pub(super) fn own_log_write(&self, client: usize) -> (Command, u64) {
        let of = &self.clients[client];
        let bytes_per_log = self.bytes_per_log();
        let mut from = of.logged;
        if self.write_unit == LINE_BYTES {
            from = from.next_multiple_of(LINE_BYTES);
        }
        // A record does not go on at the beginning.
        if from % bytes_per_log + of.record > bytes_per_log {
            from = from.next_multiple_of(bytes_per_log);
        }
        (self.log_write(client as u64, from, from + of.record), from + of.record)
    }

    /// Writes what the central log's buffer has, unless a write is under way or all is durable.
    pub(super) fn write_central<D: Device>(
        &mut self,
        device: &mut D,
        context: &mut Context<D::Event>,
    ) -> Result<(), SimError> {
        let CentralLog { inserted, durable, writing, .. } = self.central;
        if writing.is_some() || inserted == durable {
            return Ok(());
        }
        let lap = (durable / self.bytes_per_log() + 1) * self.bytes_per_log();
        let to = inserted.min(lap);
        self.central.writing = Some(to);
        let command = self.log_write(0, durable, to);
        self.submit_log(self.clients.len(), command, device, context)
    }

    pub(super) fn submit_log<D: Device>(
        &mut self,
        slot: usize,
        command: Command,
        device: &mut D,
        context: &mut Context<D::Event>,
    ) -> Result<(), SimError> {
        self.counts.log_writes += 1;
        self.counts.log_written_bytes += command.len;
        self.flushes[slot] = Command { op: Op::Flush, ..command };
        device.submit(slot as Slot, command, context)
    }

    /// The central log's write or its flush is done.
    pub(super) fn central_done<D: Device>(
        &mut self,
        device: &mut D,
        context: &mut Context<D::Event>,
    ) -> Result<(), SimError> {
        let writer = self.clients.len();
        if !self.central.flushing {
            self.central.flushing = true;
            return device.submit(writer as Slot, self.flushes[writer], context);
        }
        self.central.flushing = false;
        self.central.durable = self.central.writing.take().unwrap_or(self.central.durable);
        while let Some(&client) = self.central.waiting.front() {
            if !matches!(self.clients[client].stage, ClientStage::Durable(end) if end <= self.central.durable)
            {
                break;
            }
            self.central.waiting.pop_front();
            self.end_transaction(client, device, context);
        }
        self.write_central(device, context)
    }
}
