//! Database clients that make their transactions durable through a log (FlatFlash, sections 3.5 and
//! 5.6).
//!
//! 1. Each client has a core. It takes the next transaction of the workload and performs its accesses
//!    one after another: first the processor's work, then the memory access. A transaction that changed
//!    nothing ends there.
//! 2. Central log: a client copies its record into one buffer in host memory under a lock, which is
//!    granted in the order of requests. One log write is under way at a time. It writes everything in
//!    the buffer at its start, and all transactions that it covers end with it (group commit).
//! 3. Own logs: each client writes its records into a log of its own. Clients delay each other in the
//!    memory system only.
//! 4. The system determines the unit of log writes: lines and a flush of them where the drive accepts
//!    lines (records then begin at line boundaries), whole pages elsewhere, each rewritten until it is
//!    full.

mod log;

use deepram_core::units::Picos;
use std::collections::VecDeque;
use std::ops::Range;

use deepram_trace::{Item, ObjectPlacement, Op, Workload};
use serde::Serialize;

use crate::engine::Time;
use crate::error::SimError;
use crate::flash::FlashCounts;
use crate::host::{Command, Context, Device, Event, HostResult, Slot};
use crate::metrics::Latencies;
use crate::processor::LINE_BYTES;
use log::CentralLog;
pub use log::LogCounts;

const PAGE: u64 = 4096;

/// The number of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Logging {
    /// One log for all clients.
    Central,
    /// One log for each client.
    Own,
}

/// Options of the clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientOptions {
    /// Number of clients.
    pub clients: u32,
    /// The number of logs; `None` for the system's default: one log per client where the drive accepts
    /// lines, else a central log.
    pub logging: Option<Logging>,
    /// Processor time before each access, in picoseconds.
    #[serde(rename = "work_ps", serialize_with = "crate::quantity::picos")]
    pub work: Picos,
    /// Time for which the central log's lock is held per record, in picoseconds.
    #[serde(rename = "lock_ps", serialize_with = "crate::quantity::picos")]
    pub lock: Picos,
    /// Transactions to measure; more are measured if the last ones end together.
    pub transactions: u64,
    /// Transactions before measuring begins.
    pub warm_up: u64,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            clients: 1,
            logging: None,
            work: Picos(10_000_000),
            lock: Picos(1_000_000),
            transactions: 10_000,
            warm_up: 0,
        }
    }
}

/// The stage of a client's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStage {
    Idle,
    Work,
    Access,
    /// The client holds the central log's lock.
    Insert,
    /// The client waits until the central log is durable up to this byte.
    Durable(u64),
    Write,
    Flush,
}

#[derive(Debug, Clone)]
struct Client {
    stage: ClientStage,
    accesses: VecDeque<Command>,
    /// Size of the transaction's log record, bytes; 0 if there is none.
    record: u64,
    begun: Time,
    /// Bytes written to the client's own log so far.
    logged: u64,
}

/// The clients of a workload.
pub(crate) struct Clients {
    workload: Workload,
    next: Option<Command>,
    options: ClientOptions,
    logging: Logging,
    /// The unit of log writes, bytes.
    write_unit: u64,
    /// The whole pages of the workload's log.
    log: Range<u64>,
    /// Start of the workload's log: a write at or after this address is part of a log record.
    records: u64,
    clients: Vec<Client>,
    /// The flush that follows each client's log write, and the central log's (last).
    flushes: Vec<Command>,
    central: CentralLog,
    begun: u64,
    ended: u64,
    latencies: Latencies,
    start: Time,
    end: Time,
    base: FlashCounts,
    counts: LogCounts,
    counts_base: LogCounts,
}

impl Clients {
    /// Builds the clients of a workload. `lines` is true if the drive accepts lines.
    ///
    /// # Errors
    /// The workload has no log, or its log is too small.
    pub(crate) fn new(workload: Workload, lines: bool, options: &ClientOptions) -> Result<Self, SimError> {
        let wrong = |key: &str, why: String| Err(SimError::config(key, why));
        let name = workload.spec().name();
        let Some(log) = workload.log() else {
            return wrong("workload", format!("{name} has no log; tpcc, tpcb and tatp have one"));
        };
        let clients = u64::from(options.clients);
        if clients == 0 || options.transactions == 0 {
            return wrong("clients", "clients and transactions must be at least 1".into());
        }
        let logging = options.logging.unwrap_or(if lines { Logging::Own } else { Logging::Central });
        let start = log.start.next_multiple_of(PAGE);
        let logs = if logging == Logging::Own { clients } else { 1 };
        if log.end.saturating_sub(start) / logs < 16 * PAGE {
            return wrong(
                "log",
                format!("{} bytes of log are less than 64 KiB per log", log.end - log.start),
            );
        }
        let idle =
            Client { stage: ClientStage::Idle, accesses: VecDeque::new(), record: 0, begun: 0, logged: 0 };
        Ok(Self {
            workload,
            next: None,
            options: options.clone(),
            logging,
            write_unit: if lines { LINE_BYTES } else { PAGE },
            log: start..log.end / PAGE * PAGE,
            records: log.start,
            clients: vec![idle; clients as usize],
            flushes: vec![Command { op: Op::Flush, offset: 0, len: 0 }; clients as usize + 1],
            central: CentralLog::default(),
            begun: 0,
            ended: 0,
            latencies: Latencies::new()?,
            start: 0,
            end: 0,
            base: FlashCounts::default(),
            counts: LogCounts::default(),
            counts_base: LogCounts::default(),
        })
    }

    /// Runs the clients until the requested number of transactions has ended.
    ///
    /// # Errors
    /// Errors of the device; a violated conservation law.
    pub(crate) fn run<D: Device>(mut self, device: &mut D) -> Result<(HostResult, LogCounts), SimError> {
        let (end, capacity) = (self.log.end, device.capacity().0);
        // The log lies after all tables, so its end bounds all addresses.
        if end > capacity {
            return Err(SimError::OutOfRange { number: 1, offset: self.log.start, end, capacity });
        }
        let context = &mut Context::new();
        let total = self.options.warm_up + self.options.transactions;
        if self.options.warm_up == 0 {
            self.begin_measuring(device, 0);
        }
        for client in 0..self.clients.len() {
            self.begin_transaction(client, context);
        }
        while self.ended < total {
            let Some((Picos(now), event)) = context.queue.pop() else { break };
            match event {
                Event::Device(event) => device.handle(event, context)?,
                Event::Driver(client) => self.timer(client as usize, device, context)?,
                Event::Complete(slot) => context.done.push(slot),
                Event::Arrive => {}
            }
            context.asleep.clear();
            while let Some((slot, software)) = context.resumed.pop() {
                context.queue.push(Picos(now + software), Event::Complete(slot));
            }
            while let Some(slot) = context.done.pop() {
                self.command_done(slot as usize, device, context)?;
            }
        }
        if context.queue.late() != 0 {
            return Err(SimError::Conservation {
                law: "no event is scheduled into the past",
                found: format!("{} were", context.queue.late()),
            });
        }
        self.finish(device, total)
    }

    /// Takes the next transaction from the workload: its accesses, and the size of its log record in
    /// bytes.
    fn transaction(&mut self) -> Result<(VecDeque<Command>, u64), SimError> {
        let nowhere = ObjectPlacement { slot_bytes: 0, slots: 0 };
        let mut accesses: VecDeque<Command> = self.next.take().into_iter().collect();
        let mut of = if accesses.is_empty() { None } else { Some(self.workload.transactions()) };
        let mut record = 0;
        loop {
            let Some(item) = self.workload.next() else {
                return Err(SimError::config("workload", "ends before the requested number of transactions"));
            };
            let request = Item::to_request(&item, &nowhere);
            let command = Command { op: request.op, offset: request.offset, len: request.len };
            let number = self.workload.transactions();
            if *of.get_or_insert(number) != number {
                self.next = Some(command);
                return Ok((accesses, record));
            }
            match command.op {
                Op::Read | Op::Write if command.offset < self.records => accesses.push_back(command),
                Op::Write => record += command.len,
                Op::Read | Op::Flush | Op::Trim => {}
            }
        }
    }

    /// Starts the client's next transaction.
    fn begin_transaction<E: Copy>(&mut self, client: usize, context: &mut Context<E>) {
        self.begun += 1;
        self.clients[client].begun = context.now().0;
        self.clients[client].stage = ClientStage::Idle;
        context.queue.push(context.now(), Event::Driver(client as u32));
    }

    /// A client's timer expired: its processor work is done, or it has held the lock long enough.
    fn timer<D: Device>(
        &mut self,
        client: usize,
        device: &mut D,
        context: &mut Context<D::Event>,
    ) -> Result<(), SimError> {
        match self.clients[client].stage {
            ClientStage::Idle => {
                let (accesses, record) = self.transaction()?;
                let of = &mut self.clients[client];
                (of.accesses, of.record) = (accesses, record);
                self.continue_transaction(client, device, context)
            }
            ClientStage::Work => {
                let of = &mut self.clients[client];
                let Some(command) = of.accesses.pop_front() else { return Ok(()) };
                of.stage = ClientStage::Access;
                context.core = Some(client as u32);
                device.submit(client as Slot, command, context)
            }
            ClientStage::Insert => {
                self.central.inserted += self.clients[client].record;
                self.clients[client].stage = ClientStage::Durable(self.central.inserted);
                self.central.waiting.push_back(client);
                self.central.locked = false;
                self.grant_lock(context);
                self.write_central(device, context)
            }
            ClientStage::Access | ClientStage::Durable(_) | ClientStage::Write | ClientStage::Flush => Ok(()),
        }
    }

    /// Continues with the next access of the transaction, or with its commit.
    fn continue_transaction<D: Device>(
        &mut self,
        client: usize,
        device: &mut D,
        context: &mut Context<D::Event>,
    ) -> Result<(), SimError> {
        let of = &mut self.clients[client];
        if !of.accesses.is_empty() {
            of.stage = ClientStage::Work;
            context.queue.push(Picos(context.now().0 + self.options.work.0), Event::Driver(client as u32));
            return Ok(());
        }
        if of.record == 0 {
            self.end_transaction(client, device, context);
            return Ok(());
        }
        let record = of.record;
        self.counts.commits += 1;
        self.counts.log_bytes += record;
        if record > self.bytes_per_log() {
            return Err(SimError::config(
                "log",
                format!("a record of {record} bytes does not fit into a log"),
            ));
        }
        match self.logging {
            Logging::Central => {
                self.central.queue.push_back(client);
                self.grant_lock(context);
                Ok(())
            }
            Logging::Own => {
                let (command, logged) = self.own_log_write(client);
                self.clients[client].logged = logged;
                self.clients[client].stage = ClientStage::Write;
                self.submit_log(client, command, device, context)
            }
        }
    }

    /// A command of a client or of the central log is complete.
    fn command_done<D: Device>(
        &mut self,
        slot: usize,
        device: &mut D,
        context: &mut Context<D::Event>,
    ) -> Result<(), SimError> {
        let Some(client) = self.clients.get_mut(slot) else { return self.central_done(device, context) };
        match client.stage {
            ClientStage::Access => self.continue_transaction(slot, device, context),
            ClientStage::Write => {
                client.stage = ClientStage::Flush;
                context.core = Some(slot as u32);
                device.submit(slot as Slot, self.flushes[slot], context)
            }
            ClientStage::Flush => {
                self.end_transaction(slot, device, context);
                Ok(())
            }
            stage => Err(SimError::Conservation {
                law: "a command that is done is one that its client waits for",
                found: format!("client {slot} at {stage:?}"),
            }),
        }
    }

    /// Ends the client's transaction and starts its next one.
    fn end_transaction<D: Device>(&mut self, client: usize, device: &mut D, context: &mut Context<D::Event>) {
        let now = context.now().0;
        self.ended += 1;
        if self.ended > self.options.warm_up {
            self.latencies.add(Picos(now - self.clients[client].begun));
        }
        if self.ended == self.options.warm_up {
            self.begin_measuring(device, now);
        }
        self.end = now;
        self.begin_transaction(client, context);
    }

    fn begin_measuring<D: Device>(&mut self, device: &mut D, now: Time) {
        device.begin_measuring();
        self.start = now;
        self.base = device.counts();
        self.counts_base = self.counts;
    }

    fn finish<D: Device>(self, device: &D, total: u64) -> Result<(HostResult, LogCounts), SimError> {
        let under_way = self.clients.len() as u64;
        if self.ended < total || self.begun != self.ended + under_way {
            return Err(SimError::Conservation {
                law: "every transaction ends, except one per client that is under way",
                found: format!("{} begun, {} ended, of {total}", self.begun, self.ended),
            });
        }
        device.check()?;
        let time_ps = self.end - self.start;
        let measured = self.latencies.count();
        let seconds = time_ps as f64 * 1e-12;
        let counts = self.counts.since(&self.counts_base);
        let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let measured = HostResult {
            issued: self.begun,
            completed: self.ended,
            measured,
            time_ns: time_ps as f64 / 1e3,
            requests_per_s: rate(measured),
            bytes_per_s: rate(counts.log_bytes),
            response: self.latencies.summary(),
            counts: device.counts().since(&self.base),
            time: Picos(time_ps),
            most_outstanding: under_way,
            ..HostResult::default()
        };
        Ok((measured, counts))
    }
}
