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
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use deepram_media::{Bytes, Nand, NandOp};

use crate::engine::Time;

/// No operation, no group.
const NONE: u32 = u32::MAX;

/// The class of an operation, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationClass {
    /// A read of a mapping page: an access waits for it.
    MapRead,
    /// A demand read: an access waits for it.
    Demand,
    /// A prefetch read.
    Ahead,
    /// A read of reclamation.
    Move,
    MapProgram,
    Program,
    /// A program of reclamation.
    MoveProgram,
    Erase,
}

impl OperationClass {
    const COUNT: usize = 8;

    const fn index(self) -> usize {
        self as usize
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn op(self) -> NandOp {
        match self {
            Self::MapRead | Self::Demand | Self::Ahead | Self::Move => NandOp::Read,
            Self::MapProgram | Self::Program | Self::MoveProgram => NandOp::Program,
            Self::Erase => NandOp::Erase,
        }
    }
}

/// The reads that suspend programs and erases.
const WAITED_FOR: u8 =
    OperationClass::MapRead.bit() | OperationClass::Demand.bit() | OperationClass::Ahead.bit();
const READS: u8 = WAITED_FOR | OperationClass::Move.bit();

/// The number of an operation, assigned by the owner: a small number, which may be reused once the
/// operation is done.
pub(crate) type OpId = u32;

/// An operation on one page or block of a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) class: OperationClass,
    pub(crate) plane: u32,
    /// The number of the page within its block.
    pub(crate) page: u32,
    /// Bytes transferred over the bus.
    pub(crate) bytes: u32,
    /// A read and a program in one, without the bus.
    pub(crate) copy_back: bool,
    /// The operation must not start before [`Channels::wake`].
    pub(crate) blocked: bool,
    /// The operation waits outside its target's queues while [`Rules::die_queue`] operations are in
    /// them.
    pub(crate) limited: bool,
}

/// A notice to the owner of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The transfer of read data over the channel has begun.
    ReadTransferStarted(OpId),
    /// The transfer of data to program has begun.
    ProgramTransferStarted(OpId),
    /// The operation is complete: read data have left the channel, or the program or erase has ended.
    Done(OpId),
}

/// An event that the owner passes to [`Channels::handle`] at its time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChannelEvent {
    /// A transfer of the channel that something waits for has ended.
    Bus(u32),
    /// The array work of a group has ended, unless the group's generation has changed since.
    Array(u32, u32),
    /// The target has suspended its work, or work that a read suspends has begun.
    Suspend(u32),
}

/// The place of data out among the users of a bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataOut {
    /// Before all commands.
    First,
    /// After all commands.
    Last,
    /// After the commands of reads, so that an array starts its next read before the last one's data
    /// leave, and before programs and erases.
    AfterReads,
}

/// The rules of the array.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) data_out: DataOut,
    /// The targets of a bus take turns. Otherwise the most urgent class goes first, and within a class
    /// the oldest operation.
    pub(crate) turns: bool,
    /// With two registers, an array that works accepts the command of its next read, and programs whose
    /// data have arrived start in the order of arrival. Otherwise an array that works accepts data to
    /// program only, and reads pass data that wait in the register.
    pub(crate) pipelined: bool,
    /// Reads of reclamation go before programs. Otherwise they wait until no program of the host is
    /// queued.
    pub(crate) moves_before_programs: bool,
    /// Reclamation goes before the host in every target, not only in urgent ones.
    pub(crate) moves_first: bool,
    /// Times to suspend a program and an erase; `None` if that is impossible.
    pub(crate) suspend_program: Option<Time>,
    pub(crate) suspend_erase: Option<Time>,
    /// Maximum number of demand reads and programs queued for each die; 0 for no limit. Further limited
    /// operations wait in one queue, whose head blocks the others.
    pub(crate) die_queue: u32,
    /// Notices of the starts of transfers.
    pub(crate) transfer_notices: bool,
}

/// The shape of the array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) channels: u32,
    pub(crate) targets_per_channel: u32,
    pub(crate) dies_per_target: u32,
    /// Dies of a target that work at once.
    pub(crate) units: u32,
    pub(crate) planes_per_die: u32,
    pub(crate) registers: u32,
}

/// Counts of an array since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ArrayCounts {
    /// Groups of several planes, and the pages that they read and programmed.
    pub(crate) multi_plane: u64,
    pub(crate) multi_plane_reads: u64,
    pub(crate) multi_plane_programs: u64,
    /// Programs and erases suspended for a read.
    pub(crate) suspensions: u64,
}

/// An operation under way.
#[derive(Debug, Clone, Copy)]
struct OperationState {
    class: OperationClass,
    blocked: bool,
    copy_back: bool,
    /// The number of the operation's plane within its die.
    plane_bit: u8,
    die: u32,
    target: u32,
    page: u32,
    bytes: u32,
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

#[derive(Debug, Clone, Default)]
struct Target {
    queues: [Queue; OperationClass::COUNT],
    /// Operations queued or under way.
    inside: u32,
    /// Groups that occupy a register.
    groups: u32,
    /// Reclamation goes before the host.
    urgent: bool,
    /// Work of the target is suspended; the arrays accept commands from `ready` on.
    suspended: bool,
    ready: Time,
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
    op: NandOp,
    copy_back: bool,
    /// The times at which the array work begins and ends. While it is suspended, `end` is what is left.
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
    homes: Vec<Home>,
    channels: Vec<Channel>,
    targets: Vec<Target>,
    /// The non-empty queues of each target, one bit each; stored compactly for the scan.
    waiting: Vec<u8>,
    dies: Vec<Die>,
    groups: Vec<OperationGroup>,
    spare_groups: Vec<u32>,
    operations: Vec<OperationState>,
    /// Operations that wait for room in their target's queues.
    held: VecDeque<OpId>,
    /// The channel to serve once the owner has handled the notices, and whether its transfer has ended.
    unserved: Option<(u32, bool)>,
    sequence: u64,
    /// Operations queued or under way.
    inside: u64,
    bytes: u64,
    bus_busy: Time,
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
        let page = (nand.page.0 as u32, nand.page_transfer().0);
        Self {
            nand: nand.clone(),
            shape,
            homes: homes.collect(),
            channels: vec![Channel::default(); shape.channels as usize],
            targets: vec![Target { urgent: rules.moves_first, ..Target::default() }; targets as usize],
            rules,
            waiting: vec![0; targets as usize],
            dies: vec![idle; dies as usize],
            groups: Vec::new(),
            spare_groups: Vec::new(),
            operations: Vec::new(),
            held: VecDeque::new(),
            unserved: None,
            sequence: 0,
            inside: 0,
            bytes: 0,
            bus_busy: 0,
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

    /// Busy time of the channels, summed over the channels: each transfer counts whole from its start.
    pub(crate) fn bus_busy(&self) -> Time {
        self.bus_busy
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
        let whole =
            Operation { class, plane, page: 0, bytes, copy_back: false, blocked: false, limited: false };
        self.submit_operation(id, whole, now);
    }

    /// Queues an operation. A limited one waits while its target's queues are full, and so do those
    /// behind it.
    pub(crate) fn submit_operation(&mut self, id: OpId, operation: Operation, now: Time) {
        let Home { target, die, bit } = self.homes[operation.plane as usize];
        let state = OperationState {
            class: operation.class,
            blocked: operation.blocked,
            copy_back: operation.copy_back,
            plane_bit: bit,
            die,
            target,
            page: operation.page,
            bytes: operation.bytes,
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
        if operation.limited && self.rules.die_queue > 0 {
            self.held.push_back(id);
            self.admit_held(now);
        } else {
            self.queue(id, now);
        }
    }

    /// Queues the limited operations that have room.
    fn admit_held(&mut self, now: Time) {
        let limit = self.rules.die_queue as usize * self.shape.dies_per_target as usize;
        while let Some(id) = self.held.front().copied() {
            let queues = &self.targets[self.operations[id as usize].target as usize].queues;
            let queued = |class: OperationClass| queues[class.index()].waiting().len();
            if queued(OperationClass::Demand) + queued(OperationClass::Program) >= limit {
                break;
            }
            self.held.pop_front();
            self.queue(id, now);
        }
    }

    fn queue(&mut self, id: OpId, now: Time) {
        let OperationState { class, target, die, page, copy_back, plane_bit, .. } =
            self.operations[id as usize];
        self.queue_at(target, class, QueuedOperation { id, die, page: (page, copy_back), plane_bit });
        self.suspend(target, now);
        if self.targets[target as usize].groups == 0 || self.shape.registers > 1 {
            self.request_bus(self.channel_of(target), now);
        }
    }

    fn queue_at(&mut self, target: u32, class: OperationClass, waiting: QueuedOperation) {
        self.targets[target as usize].queues[class.index()].push(waiting);
        self.waiting[target as usize] |= class.bit();
        let channel = self.channel_of(target);
        self.channels[channel as usize].queued += 1;
    }

    /// Takes an operation out of a queue of a target.
    fn unqueue(&mut self, target: u32, class: usize, index: usize) -> QueuedOperation {
        let queue = &mut self.targets[target as usize].queues[class];
        let taken = queue.remove(index);
        if queue.waiting().is_empty() {
            self.waiting[target as usize] &= !(1 << class);
        }
        let channel = self.channel_of(target);
        self.channels[channel as usize].queued -= 1;
        taken
    }

    /// Turns a queued prefetch read into a demand read. Has no effect once the read has left its queue.
    pub(crate) fn promote(&mut self, id: OpId, plane: u32, now: Time) {
        let target = self.homes[plane as usize].target;
        let ahead = OperationClass::Ahead.index();
        let queue = self.targets[target as usize].queues[ahead].waiting();
        let Some(index) = queue.iter().position(|waiting| waiting.id == id) else { return };
        let waiting = self.unqueue(target, ahead, index);
        self.operations[id as usize].class = OperationClass::Demand;
        self.queue_at(target, OperationClass::Demand, waiting);
        self.request_bus(self.channel_of(target), now);
    }

    /// Continues an operation that is no longer blocked.
    pub(crate) fn wake(&mut self, id: OpId, now: Time) {
        self.operations[id as usize].blocked = false;
        self.request_bus(self.channel_of(self.operations[id as usize].target), now);
    }

    fn channel_of(&self, target: u32) -> u32 {
        target / self.shape.targets_per_channel
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
                        self.start_waiting(die / self.shape.dies_per_target, now);
                    }
                    None => {}
                }
                self.unserved = Some((channel, true));
            }
            ChannelEvent::Array(group, generation) => {
                if self.groups[group as usize].generation == generation {
                    let target = self.array_done(group, now);
                    self.unserved = Some((self.channel_of(target), false));
                }
            }
            ChannelEvent::Suspend(target) => {
                self.suspend(target, now);
                self.unserved = Some((self.channel_of(target), false));
            }
        }
    }

    /// Gives the bus of the event to its next user.
    pub(crate) fn settle(&mut self, now: Time) {
        if let Some((channel, ended)) = self.unserved.take() {
            self.channels[channel as usize].awaited &= !ended;
            self.request_bus(channel, now);
            self.admit_held(now);
        }
    }
}
