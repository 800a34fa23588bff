//! The flash array of every simulated system: channels, targets, dies, planes and their registers.
//!
//! ```text
//!   queues of the target --command, data in over the bus--> array --data out over the bus--> done
//!                         <----------- one register: one group at a time ----------->
//!                                        two registers: one group in the array, one in transfer
//! ```
//!
//! 1. A *target* accepts one command at a time: a die, or a package of which only some dies work at once.
//!    A *group* is the work that one command starts in a die: operations on pages of the same number in
//!    several planes. Targets with several dies have one register.
//! 2. A bus makes one transfer at a time: a command, a command with data to program, or data out. The
//!    [`Rules`] give the order of its users (`bus`).
//! 3. Operations of one class go in the order of arrival. Reads go before programs, programs before
//!    erases. Reclamation yields to the host unless its target is marked urgent (`bus`).
//! 4. With two registers, data move while the array works (`die`).
//! 5. A read that is waited for suspends the programs and erases of its target, where the part can and
//!    more work is left than the suspension takes. The suspended work continues when no such read of the
//!    target is queued. Reads of reclamation do not suspend. The bus is free while an array suspends.
//!
//! The array knows nothing of its owner. The owner submits operations under numbers of its own, passes
//! on the events that the array asks for, and takes the notices. `blocks` keeps what the planes hold.

pub(crate) mod blocks;
mod bus;
mod die;
mod interface;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use deepram_media::{Bytes, Nand, NandOp};

use crate::engine::Time;

pub(crate) use interface::{
    ArrayCounts, ChannelEvent, DataOut, Notice, OpId, Operation, OperationClass, Rules, Shape,
};
use interface::{READS, WAITED_FOR};

/// No operation, no group.
const NONE: u32 = u32::MAX;

/// An operation under way.
#[derive(Debug, Clone, Copy)]
struct OperationState {
    class: OperationClass,
    die: u32,
    target: u32,
    copy_back: bool,
    bytes: u32,
    array_time: Option<Time>,
    /// The next operation of the same group.
    next: u32,
    group: u32,
    /// Order of arrival.
    sequence: u64,
}

/// A queued operation, with the data that the choice of a group needs.
#[derive(Debug, Clone, Copy)]
struct QueuedOperation {
    id: OpId,
    die: u32,
    /// The page's number within its block, and whether the operation is a copy-back; equal within a
    /// group.
    page: (u32, bool),
    plane_bit: u8,
    blocked: bool,
}

/// A queue that can be searched as a slice and allows removal from the middle.
#[derive(Debug, Clone, Default)]
struct Queue {
    items: Vec<QueuedOperation>,
    first: usize,
}

impl Queue {
    #[inline]
    fn waiting(&self) -> &[QueuedOperation] {
        &self.items[self.first..]
    }

    fn waiting_mut(&mut self) -> &mut [QueuedOperation] {
        &mut self.items[self.first..]
    }

    #[inline]
    fn push(&mut self, waiting: QueuedOperation) {
        if self.first == self.items.len() {
            self.items.clear();
            self.first = 0;
        } else if self.first > 32 && self.first * 2 > self.items.len() {
            self.items.drain(..self.first);
            self.first = 0;
        }
        self.items.push(waiting);
    }

    #[inline]
    fn remove(&mut self, index: usize) -> QueuedOperation {
        if index == 0 {
            self.first += 1;
            self.items[self.first - 1]
        } else {
            self.items.remove(self.first + index)
        }
    }
}

/// The state of a target that the choice of the next command scans, and so is stored compactly.
#[derive(Debug, Clone, Copy, Default)]
struct Target {
    /// The non-empty queues, one bit each.
    waiting: u8,
    /// Groups that occupy a register.
    groups: u32,
    /// Reclamation goes before the host.
    urgent: bool,
    /// Work of the target is suspended.
    suspended: bool,
    channel: u32,
    /// Operations queued or under way.
    inside: u32,
}

/// The groups of a die; [`NONE`] where there is none.
#[derive(Debug, Clone, Copy)]
struct Die {
    /// In the array, or on the way to it.
    active: u32,
    /// Next in the array: in the other register, or on the way to it.
    loaded: u32,
    /// Its data leave over the bus.
    leaving: u32,
    /// Its data wait until those of `leaving` have left.
    holding: u32,
    suspended: u32,
    /// The data of `loaded` are being transferred.
    entering: bool,
}

#[derive(Debug, Clone, Copy)]
struct OperationGroup {
    /// The group's first operation; the others follow by `next`.
    head: u32,
    /// Operations that are not complete.
    left: u32,
    die: u32,
    target: u32,
    op: NandOp,
    copy_back: bool,
    /// Start and end of the array work. While the work is suspended, `end` is its remaining time.
    begin: Time,
    end: Time,
    /// Distinguishes the group's array work from earlier work under the same number: the event at the
    /// end of suspended work is ignored.
    generation: u32,
    /// The order of the group's data among those of its class that wait for the bus.
    order: u64,
}

#[derive(Debug, Clone, Default)]
struct Channel {
    /// The end of the present transfer.
    until: Time,
    /// An event is scheduled at the end of the present transfer.
    awaited: bool,
    /// Time of all transfers, each counted whole from its start.
    busy: Time,
    /// The data out that the bus carries, or the die whose data in it carries and that others wait for.
    carries: Option<BusData>,
    /// The target whose turn it is.
    turn: u32,
    /// Queued operations of the channel's targets.
    queued: u32,
    /// Operations whose data wait for the bus: class, order, operation.
    out: Vec<(u8, u64, OpId)>,
}

#[derive(Debug, Clone, Copy)]
enum BusData {
    Out(OpId),
    In(u32),
}

/// The target, die and number within the die of a plane.
#[derive(Debug, Clone, Copy)]
struct Home {
    target: u32,
    die: u32,
    bit: u8,
}

/// The channels with their targets, dies and planes.
pub(crate) struct Channels {
    nand: Nand,
    shape: Shape,
    rules: Rules,
    /// Reads suspend programs or erases.
    suspends: bool,
    /// No target of a free bus has work that can start, once the bus has been served. (In turns, a target
    /// starts one command, and with a second register it may have another one.)
    greedy: bool,
    /// Bus times of the commands of a read, a program and an erase, by the number of planes less one.
    command_times: Vec<[Time; 3]>,
    array_times: [Time; 3],
    homes: Vec<Home>,
    channels: Vec<Channel>,
    targets: Vec<Target>,
    queues: Vec<[Queue; OperationClass::COUNT]>,
    /// The time from which the arrays of a suspended target accept commands.
    ready: Vec<Time>,
    dies: Vec<Die>,
    groups: Vec<OperationGroup>,
    spare_groups: Vec<u32>,
    operations: Vec<OperationState>,
    /// Operations that wait for room in their target's queues.
    held: VecDeque<(u32, OperationClass, QueuedOperation)>,
    /// The channel to serve once the owner has handled the notices, and whether its transfer has ended.
    unserved: Option<(u32, bool)>,
    sequence: u64,
    /// Operations queued or under way.
    inside: u64,
    bytes: u64,
    array_busy: Time,
    /// Bytes and time of the last transfer, and of a whole page.
    transfer: [(u32, Time); 2],
    counts: ArrayCounts,
    /// Events to schedule and notices for the owner since the last call.
    pub(crate) events: Vec<(Time, ChannelEvent)>,
    pub(crate) notices: Vec<Notice>,
}

impl Channels {
    /// `planes` planes of packages like `nand`, each a target of its own; plane p is on channel p modulo
    /// `channels`. Commands of reads go first, then data out, then programs, then erases; in each the
    /// most urgent and then the oldest operation (NVMM, Architecture).
    pub(crate) fn new(nand: &Nand, channels: u32, planes: u32) -> Self {
        let shape = Shape {
            channels,
            targets_per_channel: planes.div_ceil(channels),
            dies_per_target: 1,
            units: 1,
            planes_per_die: 1,
            registers: if nand.registers == Some(1) { 1 } else { 2 },
        };
        let rules = Rules {
            data_out: DataOut::AfterReads,
            turns: false,
            pipelined: false,
            moves_before_programs: true,
            moves_first: false,
            suspend_program: nand.suspend_program.map(|time| time.0),
            suspend_erase: nand.suspend_erase.map(|time| time.0),
            die_queue: 0,
            transfer_notices: true,
        };
        let mut array = Self::with(nand, shape, rules);
        array.homes = (0..planes)
            .map(|plane| plane % channels * shape.targets_per_channel + plane / channels)
            .map(|target| Home { target, die: target, bit: 0 })
            .collect();
        array
    }

    /// An array of any shape and rules, whose planes are numbered channel by channel.
    pub(crate) fn with(nand: &Nand, shape: Shape, rules: Rules) -> Self {
        let targets = shape.channels * shape.targets_per_channel;
        let dies = targets * shape.dies_per_target;
        let homes = (0..dies * shape.planes_per_die).map(|plane| {
            let die = plane / shape.planes_per_die;
            Home { target: die / shape.dies_per_target, die, bit: (plane % shape.planes_per_die) as u8 }
        });
        let idle = Die {
            active: NONE,
            loaded: NONE,
            leaving: NONE,
            holding: NONE,
            suspended: NONE,
            entering: false,
        };
        let ops = [NandOp::Read, NandOp::Program, NandOp::Erase];
        let command_times =
            (1..=u64::from(shape.planes_per_die)).map(|planes| ops.map(|op| nand.command_time(op, planes).0));
        let page = (nand.page.0 as u32, nand.page_transfer().0);
        Self {
            nand: nand.clone(),
            shape,
            suspends: rules.suspend_program.is_some() || rules.suspend_erase.is_some(),
            greedy: !rules.turns || shape.registers == 1,
            command_times: command_times.collect(),
            array_times: ops.map(|op| nand.array_time(op).0),
            homes: homes.collect(),
            channels: vec![Channel::default(); shape.channels as usize],
            targets: (0..targets)
                .map(|target| Target {
                    urgent: rules.moves_first,
                    channel: target / shape.targets_per_channel,
                    ..Target::default()
                })
                .collect(),
            rules,
            queues: vec![Default::default(); targets as usize],
            ready: vec![0; targets as usize],
            dies: vec![idle; dies as usize],
            groups: Vec::new(),
            spare_groups: Vec::new(),
            operations: Vec::new(),
            held: VecDeque::new(),
            unserved: None,
            sequence: 0,
            inside: 0,
            bytes: 0,
            array_busy: 0,
            transfer: [page; 2],
            counts: ArrayCounts::default(),
            events: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Bytes whose transfer over the channels has ended or begun.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Busy time of each channel's bus: each transfer counts whole from its start.
    pub(crate) fn bus_times(&self) -> impl Iterator<Item = Time> + '_ {
        self.channels.iter().map(|channel| channel.busy)
    }

    /// Busy time of the buses, summed over the channels.
    pub(crate) fn bus_busy(&self) -> Time {
        self.bus_times().sum()
    }

    /// Busy time of the arrays, summed over the dies: the work of a group counts whole from its command.
    pub(crate) fn array_busy(&self) -> Time {
        self.array_busy
    }

    pub(crate) fn counts(&self) -> ArrayCounts {
        self.counts
    }

    /// Programs and erases suspended for a read.
    pub(crate) fn suspensions(&self) -> u64 {
        self.counts.suspensions
    }

    /// True if no operation is queued or under way on a target of one plane.
    pub(crate) fn is_idle(&self, plane: u32) -> bool {
        self.targets[self.homes[plane as usize].target as usize].inside == 0
    }

    /// True if no operation is queued or under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.inside == 0
    }

    /// Time from the start of a read's transfer until its first `bytes` bytes have crossed the channel.
    pub(crate) fn time_to_transfer(&self, bytes: u64) -> Time {
        self.nand.read_setup.unwrap_or_default().0 + self.nand.transfer(Bytes(bytes)).0
    }

    /// Lets reclamation go before the host in the target of a plane, or not.
    pub(crate) fn set_urgent(&mut self, plane: u32, urgent: bool) {
        let target = self.homes[plane as usize].target;
        self.targets[target as usize].urgent = urgent || self.rules.moves_first;
    }

    /// The planes of the target that a plane belongs to.
    pub(crate) fn planes_of_target(&self, plane: u32) -> std::ops::Range<u32> {
        let planes = self.shape.dies_per_target * self.shape.planes_per_die;
        let first = plane / planes * planes;
        first..first + planes
    }

    /// Queues an operation on a whole page or a block.
    pub(crate) fn submit(&mut self, id: OpId, class: OperationClass, plane: u32, now: Time) {
        let bytes = if class == OperationClass::Erase { 0 } else { self.transfer[1].0 };
        let whole = Operation {
            class,
            plane,
            page: 0,
            bytes,
            array_time: None,
            copy_back: false,
            blocked: false,
            limited: false,
        };
        self.submit_operation(id, whole, now);
    }

    /// Queues an operation. A limited one waits while its target's queues are full, and so do those
    /// behind it.
    pub(crate) fn submit_operation(&mut self, id: OpId, operation: Operation, now: Time) {
        let Home { target, die, bit } = self.homes[operation.plane as usize];
        let state = OperationState {
            class: operation.class,
            die,
            target,
            copy_back: operation.copy_back,
            bytes: operation.bytes,
            array_time: operation.array_time,
            next: NONE,
            group: NONE,
            sequence: self.sequence,
        };
        self.sequence += 1;
        self.inside += 1;
        self.targets[target as usize].inside += 1;
        if self.operations.len() <= id as usize {
            self.operations.resize(id as usize + 1, state);
        }
        self.operations[id as usize] = state;
        let waiting = QueuedOperation {
            id,
            die,
            page: (operation.page, operation.copy_back),
            plane_bit: bit,
            blocked: operation.blocked,
        };
        if operation.limited && self.rules.die_queue > 0 {
            self.held.push_back((target, operation.class, waiting));
            self.admit_held(now);
        } else {
            self.queue(target, operation.class, waiting, now);
        }
    }

    /// Queues the limited operations that have room.
    fn admit_held(&mut self, now: Time) {
        let limit = self.rules.die_queue as usize * self.shape.dies_per_target as usize;
        while let Some((target, class, waiting)) = self.held.front().copied() {
            let queues = &self.queues[target as usize];
            let queued = |class: OperationClass| queues[class.index()].waiting().len();
            if queued(OperationClass::Demand) + queued(OperationClass::Program) >= limit {
                break;
            }
            self.held.pop_front();
            self.queue(target, class, waiting, now);
        }
    }

    fn queue(&mut self, target: u32, class: OperationClass, waiting: QueuedOperation, now: Time) {
        if !waiting.blocked && self.is_idle_target(target, now) {
            return self.start_alone(target, waiting.die, waiting.id, now);
        }
        self.queue_at(target, class, waiting);
        self.suspend(target, now);
        let Target { groups, channel, .. } = self.targets[target as usize];
        if groups == 0 || self.shape.registers > 1 {
            self.request_bus(channel, now);
        }
    }

    fn queue_at(&mut self, target: u32, class: OperationClass, waiting: QueuedOperation) {
        self.queues[target as usize][class.index()].push(waiting);
        let state = &mut self.targets[target as usize];
        state.waiting |= class.bit();
        self.channels[state.channel as usize].queued += 1;
    }

    /// Takes an operation out of a queue of a target.
    fn unqueue(&mut self, target: u32, class: usize, index: usize) -> QueuedOperation {
        let queue = &mut self.queues[target as usize][class];
        let taken = queue.remove(index);
        let state = &mut self.targets[target as usize];
        if queue.waiting().is_empty() {
            state.waiting &= !(1 << class);
        }
        self.channels[state.channel as usize].queued -= 1;
        taken
    }

    /// Turns a queued prefetch read into a demand read. Has no effect once the read has left its queue.
    pub(crate) fn promote(&mut self, id: OpId, plane: u32, now: Time) {
        let target = self.homes[plane as usize].target;
        let ahead = OperationClass::Ahead.index();
        let queue = self.queues[target as usize][ahead].waiting();
        let Some(index) = queue.iter().position(|waiting| waiting.id == id) else { return };
        let waiting = self.unqueue(target, ahead, index);
        self.operations[id as usize].class = OperationClass::Demand;
        self.queue_at(target, OperationClass::Demand, waiting);
        self.request_bus(self.targets[target as usize].channel, now);
    }

    /// Continues an operation that is no longer blocked.
    pub(crate) fn wake(&mut self, id: OpId, now: Time) {
        let OperationState { target, class, .. } = self.operations[id as usize];
        let queued = self.queues[target as usize][class.index()].waiting_mut();
        let held = self.held.iter_mut().map(|(_, _, waiting)| waiting);
        if let Some(waiting) = queued.iter_mut().chain(held).find(|waiting| waiting.id == id) {
            waiting.blocked = false;
        }
        self.request_bus(self.targets[target as usize].channel, now);
    }

    fn dies_of(&self, target: u32) -> std::ops::Range<u32> {
        target * self.shape.dies_per_target..(target + 1) * self.shape.dies_per_target
    }

    /// Handles an event that is due, and gives the bus to its next user before the owner handles the
    /// notices.
    pub(crate) fn handle(&mut self, event: ChannelEvent, now: Time) {
        self.advance(event, now);
        self.settle(now);
    }

    /// Handles an event that is due. The owner handles the notices and then calls [`Self::settle`], so
    /// that the operations which it submits compete for the bus with those that wait.
    pub(crate) fn advance(&mut self, event: ChannelEvent, now: Time) {
        match event {
            ChannelEvent::Bus(channel) => {
                match self.channels[channel as usize].carries.take() {
                    Some(BusData::Out(id)) => self.data_left(id, now),
                    Some(BusData::In(die)) => {
                        self.dies[die as usize].entering = false;
                        self.start_waiting(self.groups[self.dies[die as usize].loaded as usize].target, now);
                    }
                    None => {}
                }
                self.unserved = Some((channel, true));
            }
            ChannelEvent::Array(group, generation) => {
                if self.groups[group as usize].generation == generation {
                    let target = self.array_done(group, now);
                    self.unserved = Some((self.targets[target as usize].channel, false));
                }
            }
            ChannelEvent::Suspend(target) => {
                self.suspend(target, now);
                self.unserved = Some((self.targets[target as usize].channel, false));
            }
        }
    }

    /// Gives the bus of the event to its next user.
    pub(crate) fn settle(&mut self, now: Time) {
        if let Some((channel, ended)) = self.unserved.take() {
            self.channels[channel as usize].awaited &= !ended;
            self.request_bus(channel, now);
            if !self.held.is_empty() {
                self.admit_held(now);
            }
        }
    }
}
