//! The host: takes requests from a workload, limits the requests inside the device, and measures them.
//!
//! ```text
//!   workload --arrival time--> waiting --(device has room)--> device --completion--> measured
//!            --thread free---^
//! ```
//!
//! - Open loop: requests arrive at the times that the workload gives, independent of the device.
//! - Closed loop: `threads` x `per_thread` slots. A slot takes the next request when its previous
//!   request has completed and the think time is over. Requests without arrival times run closed loop.
//!
//! The response time of a request counts from its arrival, the device time from when the device took it.

use deepram_core::units::{Bytes, Picos};
use std::collections::{BTreeMap, VecDeque};

use deepram_trace::{Op, Request};
use serde::Serialize;

use crate::engine::{EventQueue, Time};
use crate::error::SimError;
use crate::flash::FlashCounts;
use crate::metrics::{Interval, Latencies, LatencySummary, TimeSeries};

/// The number of an outstanding request; reused after its completion.
pub type Slot = u32;

/// A command to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub op: Op,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
}

/// An event of the host, of another driver, or of the device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<E> {
    Arrive,
    /// The request completes: the software between the device and its thread has run.
    Complete(Slot),
    /// An event of the driver, such as a thread that continues. The number is the driver's.
    Driver(u32),
    Device(E),
}

/// The interface of a device to its driver during a call: the present, scheduling of the device's
/// events, completion of requests.
#[derive(Debug)]
pub struct Context<E> {
    pub(crate) queue: EventQueue<Event<E>>,
    pub(crate) done: Vec<Slot>,
    /// Requests whose threads have been put to sleep, for drivers that model the processor.
    pub(crate) asleep: Vec<Slot>,
    /// Requests that complete after software on the thread's core: slot, picoseconds of software.
    pub(crate) resumed: Vec<(Slot, Time)>,
    /// The core of the command being submitted.
    pub(crate) core: Option<u32>,
}

impl<E: Copy> Context<E> {
    pub(crate) fn new() -> Self {
        Self {
            queue: EventQueue::new(),
            done: Vec::with_capacity(64),
            asleep: Vec::new(),
            resumed: Vec::new(),
            core: Some(0),
        }
    }

    /// The present virtual time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Picos {
        self.queue.now()
    }

    /// The core whose program makes the access of the command being submitted; `None` for a line that a
    /// processor's cache writes back.
    #[inline]
    #[must_use]
    pub fn core(&self) -> Option<u32> {
        self.core
    }

    /// Schedules an event of the device at `time`.
    #[inline]
    pub fn schedule(&mut self, time: Picos, event: E) {
        self.queue.push(time, Event::Device(event));
    }

    /// Reports that the request is complete.
    #[inline]
    pub fn complete(&mut self, slot: Slot) {
        self.done.push(slot);
    }

    /// Reports that the operating system has put the request's thread to sleep, so the thread needs no
    /// core until [`Context::resume`]. The device has already let the time of the software before the
    /// sleep pass. Without this call the thread keeps its core: it runs the software of the access, or
    /// waits for hardware.
    pub fn sleep(&mut self, slot: Slot) {
        self.asleep.push(slot);
    }

    /// Reports that the device is done with the request. The request completes after `software` of
    /// software (the return from the operating system), which runs on the thread's core when the thread
    /// has one.
    pub fn resume(&mut self, slot: Slot, software: Picos) {
        self.resumed.push((slot, software.0));
    }
}

/// A simulated device: a state machine driven by commands and by its own events.
///
/// The driver calls [`Device::submit`] for each command of the host, and [`Device::handle`] for each
/// event that the device scheduled when the event is due. `slot` may be reused once its request is
/// completed.
pub trait Device {
    /// The type of the device's events.
    type Event: Copy + std::fmt::Debug;

    /// Bytes that the host can address.
    fn capacity(&self) -> Bytes;

    /// The maximum number of commands in the device at once.
    fn queue_limit(&self) -> u64;

    /// Whether a flush concerns the range of its request alone. Otherwise requests are flushed without one.
    fn flushes_ranges(&self) -> bool {
        false
    }

    /// Hints at the next command before it is sent, so that the device can prefetch entries of large
    /// tables into the processor's caches. Has no effect on the simulation.
    fn prefetch(&self, command: &Command) {
        let _ = command;
    }

    /// Accepts a command.
    ///
    /// # Errors
    /// The device is full, or broken.
    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<Self::Event>,
    ) -> Result<(), SimError>;

    /// Handles an event that is due.
    ///
    /// # Errors
    /// The device is full, or broken.
    fn handle(&mut self, event: Self::Event, context: &mut Context<Self::Event>) -> Result<(), SimError>;

    /// Begins measuring: everything before is warm-up. From now on the device reports counters (other
    /// than [`Device::counts`]) and energy relative to this moment; its state stays. A device with such
    /// counters must implement this. The driver calls it at most once.
    fn begin_measuring(&mut self) {}

    /// Flash operations since the start of the run.
    fn counts(&self) -> FlashCounts;

    /// Checks the device's conservation laws, which hold at any time.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    fn check(&self) -> Result<(), SimError>;
}

/// The order in which requests that wait for room in the device are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatch {
    /// First come, first served.
    #[default]
    Fifo,
    /// The next higher address after the one last sent, then again from the lowest (C-LOOK).
    Cyclic,
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The run ends when all requests have completed.
    #[default]
    Drained,
    /// The run ends when the last request has arrived. Outstanding requests are not measured, as in
    /// DiskSim at the end of a trace.
    LastArrival,
}

/// Options of the host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostOptions {
    /// Closed loop: number of threads.
    pub threads: u32,
    /// Closed loop: outstanding requests per thread.
    pub per_thread: u32,
    /// Closed loop: think time from a completion to the slot's next request, in picoseconds.
    #[serde(rename = "think_ps", serialize_with = "crate::quantity::picos")]
    pub think: Picos,
    /// Ignores the workload's arrival times and runs closed loop.
    pub closed: bool,
    /// Closed loop of one slot: the time of a request is the think time before it, instead of [`HostOptions::think`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub think_times: bool,
    /// The order in which waiting requests are sent.
    pub dispatch: Dispatch,
    /// Maximum number of requests; 0 for all of the workload.
    pub requests: u64,
    /// Latest arrival time of a request, in picoseconds; 0 for no limit.
    #[serde(rename = "until_ps", serialize_with = "crate::quantity::picos")]
    pub until: Picos,
    /// Requests at the start that are simulated without being measured.
    pub warm_up: u64,
    /// Closed loop: a barrier of all threads behind the warm-up. No request is sent until every request of
    /// the warm-up has completed. Without it, a thread that is done with the warm-up goes on at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub barrier: bool,
    /// When the run ends.
    pub stop: Stop,
    /// Interval of the time series, in picoseconds; 0 for no time series.
    #[serde(rename = "interval_ps", serialize_with = "crate::quantity::picos")]
    pub interval: Picos,
    /// Wraps addresses past the device's end around instead of reporting an error.
    pub wrap: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            per_thread: 1,
            think: Picos(0),
            closed: false,
            think_times: false,
            dispatch: Dispatch::Fifo,
            requests: 0,
            until: Picos(0),
            warm_up: 0,
            barrier: false,
            stop: Stop::Drained,
            interval: Picos(0),
            wrap: false,
        }
    }
}

/// The host's measurements, after the warm-up.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HostResult {
    /// Requests taken from the workload, warm-up included.
    pub issued: u64,
    /// Requests completed, warm-up included.
    pub completed: u64,
    /// Requests measured: completed after the warm-up.
    pub measured: u64,
    /// Measured reads.
    pub reads: u64,
    /// Measured writes.
    pub writes: u64,
    /// Measured trims.
    pub trims: u64,
    /// Measured flushes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Measured virtual time.
    pub time_ns: f64,
    /// Requests a second of virtual time.
    pub requests_per_s: f64,
    /// Bytes a second of virtual time.
    pub bytes_per_s: f64,
    /// From arrival to completion.
    pub response: LatencySummary,
    /// Device time: from when the device took the request to its completion.
    pub device: LatencySummary,
    /// Response time of reads.
    pub read: LatencySummary,
    /// Response time of writes.
    pub write: LatencySummary,
    /// Maximum number of requests outstanding or waiting at once.
    pub most_outstanding: u64,
    /// The time series, if one was requested.
    #[serde(skip)]
    pub intervals: Vec<Interval>,
    /// Flash operations, after the warm-up.
    #[serde(skip)]
    pub counts: FlashCounts,
    /// Measured virtual time, exact.
    #[serde(skip)]
    pub time: Picos,
}

#[derive(Debug, Clone, Copy)]
struct OutstandingRequest {
    command: Command,
    /// The thread, which has a core of the same number. Requests that arrive at their own times are one
    /// thread's.
    thread: u32,
    arrived: Time,
    sent: Time,
    measured: bool,
}

struct DispatchQueue {
    order: Dispatch,
    fifo: VecDeque<Slot>,
    sorted: BTreeMap<(u64, u64), Slot>,
    sequence: u64,
    last: u64,
}

impl DispatchQueue {
    fn push(&mut self, slot: Slot, offset: u64) {
        match self.order {
            Dispatch::Fifo => self.fifo.push_back(slot),
            Dispatch::Cyclic => {
                self.sorted.insert((offset, self.sequence), slot);
                self.sequence += 1;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.fifo.is_empty() && self.sorted.is_empty()
    }

    fn pop(&mut self) -> Option<Slot> {
        match self.order {
            Dispatch::Fifo => self.fifo.pop_front(),
            Dispatch::Cyclic => {
                let key =
                    *self.sorted.range((self.last, 0)..).next().or_else(|| self.sorted.iter().next())?.0;
                self.last = key.0;
                self.sorted.remove(&key)
            }
        }
    }
}

struct Host<'a, W> {
    workload: W,
    options: &'a HostOptions,
    capacity: u64,
    /// Flushes keep the ranges of their requests.
    flushes_ranges: bool,
    next: Option<Request>,
    exhausted: bool,
    /// Closed loop: threads that take their next request immediately, one entry for each request.
    ready: VecDeque<u32>,
    issued: u64,
    completed: u64,
    inside: u64,
    outstanding: u64,
    most_outstanding: u64,
    open: Vec<OutstandingRequest>,
    free: Vec<Slot>,
    waiting: DispatchQueue,
    device: Latencies,
    read: Latencies,
    write: Latencies,
    other: Latencies,
    series: Option<TimeSeries>,
    start: Time,
    end: Time,
    base: FlashCounts,
    seen: FlashCounts,
    op_counts: [u64; 4],
    bytes: [u64; 2],
}

/// Runs `workload` on `device` and returns the measurements.
///
/// # Errors
/// Errors of the workload; a request outside the device; a full device; a violated conservation law.
pub fn drive<D: Device, W>(device: &mut D, workload: W, options: &HostOptions) -> Result<HostResult, SimError>
where
    W: Iterator<Item = Result<Request, SimError>>,
{
    if options.threads == 0 || options.per_thread == 0 {
        return Err(SimError::config("threads", "threads, and requests per thread, must be at least 1"));
    }
    if options.think_times && (!options.closed || (options.threads, options.per_thread) != (1, 1)) {
        return Err(SimError::config("think_times", "needs a closed loop of one thread with one request"));
    }
    let mut context = Context::new();
    let mut host = Host {
        workload,
        options,
        capacity: device.capacity().0,
        flushes_ranges: device.flushes_ranges(),
        next: None,
        exhausted: false,
        ready: VecDeque::new(),
        issued: 0,
        completed: 0,
        inside: 0,
        outstanding: 0,
        most_outstanding: 0,
        open: Vec::new(),
        free: Vec::new(),
        waiting: DispatchQueue {
            order: options.dispatch,
            fifo: VecDeque::new(),
            sorted: BTreeMap::new(),
            sequence: 0,
            last: 0,
        },
        device: Latencies::new()?,
        read: Latencies::new()?,
        write: Latencies::new()?,
        other: Latencies::new()?,
        series: (options.interval.0 > 0).then(|| TimeSeries::new(Picos(0), options.interval)),
        start: 0,
        end: 0,
        base: FlashCounts::default(),
        seen: FlashCounts::default(),
        op_counts: [0; 4],
        bytes: [0; 2],
    };
    host.begin(&mut context)?;
    host.run(device, &mut context)?;
    host.finish(device, &context)
}

impl<W> Host<'_, W>
where
    W: Iterator<Item = Result<Request, SimError>>,
{
    /// The next request of the workload, brought into the device's address range.
    fn next_request(&mut self) -> Result<Option<Request>, SimError> {
        if self.exhausted || (self.options.requests > 0 && self.issued == self.options.requests) {
            self.exhausted = true;
            return Ok(None);
        }
        let Some(request) = self.workload.next() else {
            self.exhausted = true;
            return Ok(None);
        };
        let mut request = request?;
        if self.options.until.0 > 0 && request.time_ps.is_some_and(|time| time > self.options.until.0) {
            self.exhausted = true;
            return Ok(None);
        }
        self.issued += 1;
        if request.op == Op::Flush && !self.flushes_ranges {
            request.len = 0;
            request.offset = 0;
        }
        let end = request.offset.saturating_add(request.len);
        if end > self.capacity {
            if !self.options.wrap || request.len > self.capacity {
                return Err(SimError::OutOfRange {
                    number: self.issued,
                    offset: request.offset,
                    end,
                    capacity: self.capacity,
                });
            }
            request.offset %= self.capacity;
            request.offset = request.offset.min(self.capacity - request.len);
        }
        Ok(Some(request))
    }

    fn begin<E: Copy>(&mut self, context: &mut Context<E>) -> Result<(), SimError> {
        self.next = self.next_request()?;
        let Some(first) = self.next else { return Ok(()) };
        match first.time_ps {
            Some(time) if !self.options.closed => context.queue.push(Picos(time), Event::Arrive),
            _ => {
                let slots = u64::from(self.options.threads) * u64::from(self.options.per_thread);
                for slot in 0..slots.min(1 << 20) {
                    let thread = (slot % u64::from(self.options.threads)) as u32;
                    context.queue.push(Picos(0), Event::Driver(thread));
                }
            }
        }
        Ok(())
    }

    fn run<D: Device>(&mut self, device: &mut D, context: &mut Context<D::Event>) -> Result<(), SimError> {
        let limit = device.queue_limit().max(1);
        while let Some((Picos(now), event)) = context.queue.pop() {
            match event {
                Event::Device(event) => device.handle(event, context)?,
                Event::Arrive => {
                    if let Some(request) = self.next.take() {
                        self.arrive(&request, 0, now);
                        self.next = self.next_request()?;
                        self.prefetch_next(device);
                        match self.next {
                            Some(next) => {
                                context
                                    .queue
                                    .push(Picos(next.time_ps.unwrap_or(now).max(now)), Event::Arrive);
                            }
                            None if self.options.stop == Stop::LastArrival => {
                                self.end = now;
                                return Ok(());
                            }
                            None => {}
                        }
                    }
                }
                Event::Complete(slot) => context.done.push(slot),
                Event::Driver(thread) => self.ready.push_back(thread),
            }
            if context.done.is_empty()
                && context.resumed.is_empty()
                && self.ready.is_empty()
                && self.waiting.is_empty()
            {
                context.asleep.clear();
                continue;
            }
            // A device may complete commands while it accepts one, which makes room for the next. This
            // driver has a core for every thread, so a sleeping thread delays no other.
            loop {
                context.asleep.clear();
                while let Some((slot, software)) = context.resumed.pop() {
                    context.queue.push(Picos(now + software), Event::Complete(slot));
                }
                while let Some(slot) = context.done.pop() {
                    self.complete(slot, device, context);
                }
                while !self.at_barrier()
                    && let Some(thread) = self.ready.pop_front()
                {
                    if let Some(request) = self.next.take() {
                        self.arrive(&request, thread, now);
                        self.next = self.next_request()?;
                        self.prefetch_next(device);
                    }
                }
                if self.inside >= limit {
                    break;
                }
                let Some(slot) = self.waiting.pop() else { break };
                self.inside += 1;
                let open = &mut self.open[slot as usize];
                open.sent = now;
                let command = open.command;
                context.core = Some(open.thread);
                device.submit(slot, command, context)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn prefetch_next<D: Device>(&self, device: &D) {
        if let Some(Request { op, offset, len, .. }) = self.next {
            device.prefetch(&Command { op, offset, len });
        }
    }

    /// True while threads wait at the barrier: the whole warm-up has been sent but not completed.
    fn at_barrier(&self) -> bool {
        // `issued` counts one request ahead.
        let sent = self.issued - u64::from(self.next.is_some());
        self.options.barrier && sent >= self.options.warm_up && self.completed < self.options.warm_up
    }

    fn arrive(&mut self, request: &Request, thread: u32, now: Time) {
        let command = Command { op: request.op, offset: request.offset, len: request.len };
        // Requests after the warm-up are measured. `issued` counts one request ahead.
        let measured = self.issued > self.options.warm_up;
        let open = OutstandingRequest { command, thread, arrived: now, sent: now, measured };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.open[slot as usize] = open;
                slot
            }
            None => {
                self.open.push(open);
                (self.open.len() - 1) as Slot
            }
        };
        self.outstanding += 1;
        self.most_outstanding = self.most_outstanding.max(self.outstanding);
        self.waiting.push(slot, command.offset);
    }

    fn begin_measuring<D: Device>(&mut self, device: &mut D, now: Time) {
        device.begin_measuring();
        self.start = now;
        self.base = device.counts();
        self.seen = self.base;
        if self.options.interval.0 > 0 {
            self.series = Some(TimeSeries::new(Picos(now), self.options.interval));
        }
    }

    fn complete<D: Device>(&mut self, slot: Slot, device: &mut D, context: &mut Context<D::Event>) {
        let now = context.queue.now().0;
        let open = self.open[slot as usize];
        self.free.push(slot);
        self.inside -= 1;
        self.outstanding -= 1;
        self.completed += 1;
        self.end = now;
        if self.completed == self.options.warm_up {
            self.begin_measuring(device, now);
        }
        if open.measured {
            let response = Picos(now - open.arrived);
            self.device.add(Picos(now - open.sent));
            if let Some(series) = &mut self.series {
                if series.is_due(Picos(now)) {
                    let counts = device.counts();
                    let delta = counts.since(&self.seen);
                    series.close(Picos(now), delta.programs(), delta.erases);
                    self.seen = counts;
                }
                series.add(response, open.command.len);
            }
            let kind = match open.command.op {
                Op::Read => {
                    self.read.add(response);
                    self.bytes[0] += open.command.len;
                    0
                }
                Op::Write => {
                    self.write.add(response);
                    self.bytes[1] += open.command.len;
                    1
                }
                Op::Trim => {
                    self.other.add(response);
                    2
                }
                Op::Flush => {
                    self.other.add(response);
                    3
                }
            };
            self.op_counts[kind] += 1;
        }
        let Some(next) = self.next.filter(|next| self.options.closed || next.time_ps.is_none()) else {
            return;
        };
        let own = next.time_ps.filter(|_| self.options.think_times);
        match own.unwrap_or(self.options.think.0) {
            0 => self.ready.push_back(open.thread),
            think => context.queue.push(Picos(now + think), Event::Driver(open.thread)),
        }
    }

    fn finish<D: Device>(
        mut self,
        device: &mut D,
        context: &Context<D::Event>,
    ) -> Result<HostResult, SimError> {
        if self.completed < self.options.warm_up {
            // The whole run was warm-up.
            self.begin_measuring(device, self.end);
        }
        if context.queue.late() != 0 {
            return Err(SimError::Conservation {
                law: "no event is scheduled into the past",
                found: format!("{} were", context.queue.late()),
            });
        }
        if self.options.stop == Stop::Drained && self.issued != self.completed {
            return Err(SimError::Conservation {
                law: "every request issued completes",
                found: format!("{} issued, {} completed", self.issued, self.completed),
            });
        }
        device.check()?;
        let counts = device.counts();
        let time_ps = self.end.saturating_sub(self.start);
        let seconds = time_ps as f64 * 1e-12;
        let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let mut response = self.other;
        response.merge(&self.read)?;
        response.merge(&self.write)?;
        let measured = response.count();
        let delta = counts.since(&self.seen);
        let intervals = self
            .series
            .take()
            .map_or_else(Vec::new, |series| series.finish(Picos(self.end), delta.programs(), delta.erases));
        Ok(HostResult {
            issued: self.issued,
            completed: self.completed,
            measured,
            reads: self.op_counts[0],
            writes: self.op_counts[1],
            trims: self.op_counts[2],
            flushes: self.op_counts[3],
            read_bytes: self.bytes[0],
            write_bytes: self.bytes[1],
            time_ns: time_ps as f64 / 1e3,
            requests_per_s: rate(measured),
            bytes_per_s: rate(self.bytes[0] + self.bytes[1]),
            response: response.summary(),
            device: self.device.summary(),
            read: self.read.summary(),
            write: self.write.summary(),
            most_outstanding: self.most_outstanding,
            intervals,
            counts: counts.since(&self.base),
            time: Picos(time_ps),
        })
    }
}
