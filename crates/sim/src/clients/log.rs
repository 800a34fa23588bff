//! The log writes of database clients: one central log, or one log for each client (FlatFlash, section
//! 3.5 and Figure 7: per-transaction logging).

use deepram_core::units::Picos;
use std::collections::VecDeque;

use deepram_trace::Op;

use super::{ClientStage, Clients, Logging, PAGE};
use crate::error::SimError;
use crate::host::{Command, Context, Device, Event, Slot};
use crate::processor::LINE_BYTES;
use crate::result::counts;

counts! {
    /// Commits and log writes.
    pub struct LogCounts {
        /// Transactions with a log record.
        pub commits: u64,
        /// Bytes of the log records.
        pub log_bytes: u64,
        /// Log writes.
        pub log_writes: u64,
        /// Bytes of the log writes.
        pub log_written_bytes: u64,
    }
}

/// The central log. Positions count the bytes appended since the start.
#[derive(Debug, Default)]
pub(super) struct CentralLog {
    pub(super) locked: bool,
    pub(super) queue: VecDeque<usize>,
    pub(super) inserted: u64,
    pub(super) durable: u64,
    /// The end of the log write under way.
    pub(super) writing: Option<u64>,
    /// The log write is complete and its flush is under way.
    pub(super) flushing: bool,
    pub(super) waiting: VecDeque<usize>,
}

impl Clients {
    /// Grants the central log's lock, if it is free, to the client that requested it first.
    pub(super) fn grant_lock<E: Copy>(&mut self, context: &mut Context<E>) {
        if self.central.locked {
            return;
        }
        let Some(client) = self.central.queue.pop_front() else { return };
        self.central.locked = true;
        self.clients[client].stage = ClientStage::Insert;
        context.queue.push(Picos(context.now().0 + self.options.lock.0), Event::Driver(client as u32));
    }

    /// Size of each log, bytes.
    pub(super) fn bytes_per_log(&self) -> u64 {
        let logs = if self.logging == Logging::Own { self.clients.len() as u64 } else { 1 };
        (self.log.end - self.log.start) / logs / PAGE * PAGE
    }

    /// The write that extends a log from `from` bytes to `to` bytes, in whole write units, up to the
    /// log's end at most.
    fn log_write(&self, log: u64, from: u64, to: u64) -> Command {
        let bytes_per_log = self.bytes_per_log();
        let first = from % bytes_per_log / self.write_unit * self.write_unit;
        let last = first + (from % self.write_unit + (to - from)).next_multiple_of(self.write_unit);
        Command { op: Op::Write, offset: self.log.start + log * bytes_per_log + first, len: last - first }
    }

    /// The next write of a client's own log, and the log's position after it.
    pub(super) fn own_log_write(&self, client: usize) -> (Command, u64) {
        let of = &self.clients[client];
        let bytes_per_log = self.bytes_per_log();
        let mut from = of.logged;
        if self.write_unit == LINE_BYTES {
            from = from.next_multiple_of(LINE_BYTES);
        }
        // A record does not wrap around the end of the log.
        if from % bytes_per_log + of.record > bytes_per_log {
            from = from.next_multiple_of(bytes_per_log);
        }
        (self.log_write(client as u64, from, from + of.record), from + of.record)
    }

    /// Writes the content of the central log's buffer, unless a log write is under way or everything is
    /// durable.
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
        context.core = Some(slot as u32);
        device.submit(slot as Slot, command, context)
    }

    /// The central log's write or flush is complete.
    pub(super) fn central_done<D: Device>(
        &mut self,
        device: &mut D,
        context: &mut Context<D::Event>,
    ) -> Result<(), SimError> {
        let writer = self.clients.len();
        if !self.central.flushing {
            self.central.flushing = true;
            context.core = Some(writer as u32);
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
