//! The schedule of flash channels and their planes (NVMM, section Architecture).
//!
//! 1. A plane performs one operation at a time: reads before programs before erases, demand reads before
//!    other reads, operations of one class in the order of arrival.
//! 2. A channel carries one command or one segment at a time. Commands go first, so an array starts its
//!    next read before the last one's data leave (NVMM, Architecture); then data of demand reads, of
//!    other reads, data to program, and erase commands. Within a rank the oldest goes first.
//! 3. A plane has two registers. One belongs to the array. The other holds read data that wait for the
//!    channel, or data to program that arrived before the array is free. With one register the array
//!    waits.
//! 4. A demand or prefetch read suspends the program or erase that its plane performs, where the part can
//!    (`suspend_program`, `suspend_erase`) and more work is left than the suspension takes. The suspended
//!    work continues when no such read of the plane is queued. Reads of reclamation do not suspend.
//!    The bus is free while an array suspends.

use std::collections::VecDeque;

use deepram_media::{Bytes, Nand, NandOp};

use crate::engine::Time;

/// The class of an operation, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationClass {
    /// A demand read: an access waits for it.
    Demand,
    /// A prefetch read.
    Ahead,
    /// A read of reclamation.
    Move,
    Program,
    Erase,
}

impl OperationClass {
    const COUNT: usize = 5;

    fn index(self) -> usize {
        self as usize
    }

    fn op(self) -> NandOp {
        match self {
            OperationClass::Demand | OperationClass::Ahead | OperationClass::Move => NandOp::Read,
            OperationClass::Program => NandOp::Program,
            OperationClass::Erase => NandOp::Erase,
        }
    }
}

/// The number of an operation, assigned by the owner.
pub(crate) type OpId = u32;

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

#[derive(Debug, Clone, Copy)]
pub(crate) enum ChannelEvent {
    /// The channel's transfer has ended.
    Bus(u32),
    /// The plane's array operation, or the suspension of one, has ended, unless the plane's generation
    /// has changed since.
    Array(u32, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlaneOperation {
    id: OpId,
    class: OperationClass,
    /// Order of arrival.
    sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ArrayState {
    #[default]
    Idle,
    /// A command or, with one register, data are being transferred to the array.
    Starting,
    Busy(PlaneOperation),
    /// A program or erase is being suspended.
    Suspending,
    /// The array holds read data because the other register is occupied or absent.
    Holding(PlaneOperation),
    /// Read data leave the array over the channel.
    Leaving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RegisterState {
    #[default]
    Free,
    Out(PlaneOperation),
    Leaving,
    Entering,
    In(PlaneOperation),
}

#[derive(Default)]
struct Plane {
    queues: [VecDeque<PlaneOperation>; OperationClass::COUNT],
    array: ArrayState,
    /// The end of the array's present work, and the number that its event has.
    end: Time,
    generation: u32,
    /// A suspended operation and the rest of its array time.
    suspended: Option<(PlaneOperation, Time)>,
    register: RegisterState,
    /// Operations queued or under way.
    inside: u32,
}

impl Plane {
    /// The next read to perform. Reads of reclamation wait for the end of a suspended operation.
    fn next_read(&self) -> Option<&PlaneOperation> {
        let classes = if self.suspended.is_some() { OperationClass::Move } else { OperationClass::Program };
        self.queues[..classes.index()].iter().find_map(VecDeque::front)
    }
}

#[derive(Debug, Clone, Copy)]
enum BusTransfer {
    Command(PlaneOperation),
    /// Read data, and whether they come from the second register.
    Out(PlaneOperation, bool),
    /// Data to program, and whether they go to the second register.
    In(PlaneOperation, bool),
}

#[derive(Default)]
struct Channel {
    /// Planes with operations.
    active: Vec<u32>,
    transfer_under_way: Option<(u32, BusTransfer)>,
}

/// The channels and planes of the memory.
pub(crate) struct Channels {
    nand: Nand,
    channels: Vec<Channel>,
    planes: Vec<Plane>,
    two_registers: bool,
    sequence: u64,
    bytes: u64,
    bus_busy: Time,
    suspensions: u64,
    /// Events to schedule and notices for the owner since the last call.
    pub(crate) events: Vec<(Time, ChannelEvent)>,
    pub(crate) notices: Vec<Notice>,
}

impl Channels {
    /// `planes` planes of packages like `nand`; plane p is on channel p modulo `channels`.
    pub(crate) fn new(nand: &Nand, channels: u32, planes: u32) -> Self {
        Self {
            nand: nand.clone(),
            channels: (0..channels).map(|_| Channel::default()).collect(),
            planes: (0..planes).map(|_| Plane::default()).collect(),
            two_registers: nand.registers != Some(1),
            sequence: 0,
            bytes: 0,
            bus_busy: 0,
            suspensions: 0,
            events: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn channel_of(&self, plane: u32) -> u32 {
        plane % self.channels.len() as u32
    }

    /// Bytes whose transfer over the channels has ended or begun.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Busy time of the channels, summed over the channels.
    pub(crate) fn bus_busy(&self) -> Time {
        self.bus_busy
    }

    /// Programs and erases suspended for a read.
    pub(crate) fn suspensions(&self) -> u64 {
        self.suspensions
    }

    /// True if no operation is queued or under way on a plane.
    pub(crate) fn is_idle(&self, plane: u32) -> bool {
        self.planes[plane as usize].inside == 0
    }

    /// True if no operation is queued or under way on any plane.
    pub(crate) fn is_quiet(&self) -> bool {
        self.channels.iter().all(|channel| channel.active.is_empty() && channel.transfer_under_way.is_none())
    }

    /// Queues an operation.
    pub(crate) fn submit(&mut self, id: OpId, class: OperationClass, plane: u32, now: Time) {
        let channel = self.channel_of(plane);
        let at = &mut self.planes[plane as usize];
        at.queues[class.index()].push_back(PlaneOperation { id, class, sequence: self.sequence });
        self.sequence += 1;
        at.inside += 1;
        if at.inside == 1 {
            self.channels[channel as usize].active.push(plane);
        }
        self.suspend(plane, now);
        self.serve(channel, now);
    }

    /// Turns a queued prefetch read into a demand read. Has no effect once the read has left its queue.
    pub(crate) fn promote(&mut self, id: OpId, plane: u32, now: Time) {
        let channel = self.channel_of(plane);
        let queues = &mut self.planes[plane as usize].queues;
        let ahead = &mut queues[OperationClass::Ahead.index()];
        let Some(at) = ahead.iter().position(|op| op.id == id) else { return };
        let Some(op) = ahead.remove(at) else { return };
        queues[OperationClass::Demand.index()]
            .push_back(PlaneOperation { class: OperationClass::Demand, ..op });
        self.serve(channel, now);
    }

    /// Handles an event that is due.
    pub(crate) fn handle(&mut self, event: ChannelEvent, now: Time) {
        match event {
            ChannelEvent::Bus(channel) => {
                if let Some((plane, transfer)) = self.channels[channel as usize].transfer_under_way.take() {
                    self.transfer_ended(plane, transfer, now);
                }
                self.serve(channel, now);
            }
            ChannelEvent::Array(plane, generation) => {
                let at = &mut self.planes[plane as usize];
                if at.generation != generation {
                    return;
                }
                if at.array == ArrayState::Suspending {
                    at.array = ArrayState::Idle;
                } else if let ArrayState::Busy(op) = at.array {
                    match (op.class.op(), at.register) {
                        (NandOp::Read, RegisterState::Free) if self.two_registers => {
                            at.register = RegisterState::Out(op);
                            at.array = ArrayState::Idle;
                            self.start_waiting(plane, now);
                        }
                        (NandOp::Read, _) => at.array = ArrayState::Holding(op),
                        (NandOp::Program | NandOp::Erase, _) => {
                            at.array = ArrayState::Idle;
                            self.operation_ended(plane, op);
                            self.start_waiting(plane, now);
                        }
                    }
                }
                self.serve(self.channel_of(plane), now);
            }
        }
    }

    fn operation_ended(&mut self, plane: u32, op: PlaneOperation) {
        let channel = self.channel_of(plane) as usize;
        let at = &mut self.planes[plane as usize];
        at.inside -= 1;
        if at.inside == 0 {
            self.channels[channel].active.retain(|&p| p != plane);
        }
        self.notices.push(Notice::Done(op.id));
    }

    fn start(&mut self, plane: u32, op: PlaneOperation, now: Time) {
        self.work(plane, ArrayState::Busy(op), now + self.nand.array_time(op.class.op()).0);
        self.suspend(plane, now);
    }

    /// Occupies the array of a plane until `end`.
    fn work(&mut self, plane: u32, state: ArrayState, end: Time) {
        let at = &mut self.planes[plane as usize];
        (at.array, at.end, at.generation) = (state, end, at.generation.wrapping_add(1));
        self.events.push((end, ChannelEvent::Array(plane, at.generation)));
    }

    /// Suspends the program or erase that a plane performs, if a read is waited for, the part can, and
    /// that saves time.
    fn suspend(&mut self, plane: u32, now: Time) {
        let at = &mut self.planes[plane as usize];
        let ArrayState::Busy(op) = at.array else { return };
        if at.queues[..OperationClass::Move.index()].iter().all(VecDeque::is_empty) {
            return;
        }
        let time = match op.class.op() {
            NandOp::Read => None,
            NandOp::Program => self.nand.suspend_program,
            NandOp::Erase => self.nand.suspend_erase,
        };
        if let Some(time) = time
            && at.end.saturating_sub(now) > time.0
        {
            at.suspended = Some((op, at.end - now));
            self.suspensions += 1;
            self.work(plane, ArrayState::Suspending, now + time.0);
        }
    }

    /// If the array is idle and no read is queued, continues a suspended operation, or else starts the
    /// program whose data wait in the second register.
    fn start_waiting(&mut self, plane: u32, now: Time) {
        let at = &mut self.planes[plane as usize];
        if at.array != ArrayState::Idle || at.next_read().is_some() {
            return;
        }
        if let Some((op, rest)) = at.suspended.take() {
            self.work(plane, ArrayState::Busy(op), now + rest);
        } else if let RegisterState::In(op) = at.register {
            at.register = RegisterState::Free;
            self.start(plane, op, now);
        }
    }

    fn transfer_ended(&mut self, plane: u32, transfer: BusTransfer, now: Time) {
        match transfer {
            BusTransfer::Command(op) | BusTransfer::In(op, false) => self.start(plane, op, now),
            BusTransfer::In(op, true) => {
                self.planes[plane as usize].register = RegisterState::In(op);
                self.start_waiting(plane, now);
            }
            BusTransfer::Out(op, from_register) => {
                let at = &mut self.planes[plane as usize];
                if from_register {
                    at.register = RegisterState::Free;
                    if let ArrayState::Holding(next) = at.array {
                        at.register = RegisterState::Out(next);
                        at.array = ArrayState::Idle;
                    }
                } else {
                    at.array = ArrayState::Idle;
                }
                self.start_waiting(plane, now);
                self.operation_ended(plane, op);
            }
        }
    }

    /// The transfer that a plane needs next, with its rank: lower goes first.
    fn next_transfer(&self, plane: u32) -> Option<((u8, u64), BusTransfer)> {
        let at = &self.planes[plane as usize];
        let read = at.next_read();
        let program = at.queues[OperationClass::Program.index()].front();
        if at.array == ArrayState::Idle
            && at.register != RegisterState::Entering
            && let Some(op) = read
        {
            return Some((
                (u8::from(op.class != OperationClass::Demand), op.sequence),
                BusTransfer::Command(*op),
            ));
        }
        let waiting = match (at.register, at.array) {
            (RegisterState::Out(op), _) => Some((op, true)),
            (RegisterState::Leaving, _) => None,
            (_, ArrayState::Holding(op)) => Some((op, false)),
            _ => None,
        };
        if let Some((op, from_register)) = waiting {
            let rank = if op.class == OperationClass::Demand { 2 } else { 3 };
            return Some(((rank, op.sequence), BusTransfer::Out(op, from_register)));
        }
        // Reads go first: program data must not occupy a register that a waiting read needs.
        if read.is_some() || at.register != RegisterState::Free {
            return None;
        }
        if let Some(op) = program {
            let busy = matches!(at.array, ArrayState::Busy(_));
            return match (self.two_registers, at.array == ArrayState::Idle) {
                (true, idle) if idle || busy => Some(((4, op.sequence), BusTransfer::In(*op, true))),
                (false, true) => Some(((4, op.sequence), BusTransfer::In(*op, false))),
                _ => None,
            };
        }
        let erase = at.queues[OperationClass::Erase.index()].front()?;
        (at.array == ArrayState::Idle).then_some(((5, erase.sequence), BusTransfer::Command(*erase)))
    }

    /// Gives the channel, while it is free, to the most urgent transfer.
    fn serve(&mut self, channel: u32, now: Time) {
        while self.channels[channel as usize].transfer_under_way.is_none() {
            let planes = &self.channels[channel as usize].active;
            let best = planes
                .iter()
                .filter_map(|&p| self.next_transfer(p).map(|(rank, transfer)| (rank, p, transfer)));
            let Some((_, plane, transfer)) = best.min_by_key(|(rank, _, _)| *rank) else { return };
            self.start_transfer(channel, plane, transfer, now);
        }
    }

    fn start_transfer(&mut self, channel: u32, plane: u32, transfer: BusTransfer, now: Time) {
        let (nand, at) = (&self.nand, &mut self.planes[plane as usize]);
        let time = match transfer {
            BusTransfer::Command(op) => {
                at.queues[op.class.index()].pop_front();
                at.array = ArrayState::Starting;
                nand.command_time(op.class.op(), 1).0
            }
            BusTransfer::Out(op, from_register) => {
                if from_register {
                    at.register = RegisterState::Leaving;
                } else {
                    at.array = ArrayState::Leaving;
                }
                self.notices.push(Notice::ReadTransferStarted(op.id));
                self.bytes += nand.page.0;
                nand.data_time(NandOp::Read, 1).0
            }
            BusTransfer::In(op, to_register) => {
                at.queues[op.class.index()].pop_front();
                if to_register {
                    at.register = RegisterState::Entering;
                } else {
                    at.array = ArrayState::Starting;
                }
                self.notices.push(Notice::ProgramTransferStarted(op.id));
                self.bytes += nand.page.0;
                nand.command_time(NandOp::Program, 1).0 + nand.data_time(NandOp::Program, 1).0
            }
        };
        self.bus_busy += time;
        if time == 0 {
            self.transfer_ended(plane, transfer, now);
        } else {
            self.channels[channel as usize].transfer_under_way = Some((plane, transfer));
            self.events.push((now + time, ChannelEvent::Bus(channel)));
        }
    }

    /// Time from the start of a read's transfer until its first `bytes` bytes have crossed the channel.
    pub(crate) fn time_to_transfer(&self, bytes: u64) -> Time {
        self.nand.read_setup.unwrap_or_default().0 + self.nand.transfer(Bytes(bytes)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EventQueue;
    use deepram_media::{Picos, Registry};
    use proptest::prelude::*;

    fn run(channels: &mut Channels, mut left: Vec<(Time, OpId, OperationClass, u32)>) -> Vec<(OpId, Time)> {
        left.sort_by_key(|op| op.0);
        let mut queue = EventQueue::new();
        for (time, id, class, plane) in left {
            queue.push(Picos(time), Err((id, class, plane)));
        }
        let mut over = Vec::new();
        while let Some((Picos(now), event)) = queue.pop() {
            match event {
                Ok(event) => channels.handle(event, now),
                Err((id, class, plane)) => channels.submit(id, class, plane, now),
            }
            for (time, event) in channels.events.drain(..) {
                queue.push(Picos(time), Ok(event));
            }
            for notice in channels.notices.drain(..) {
                if let Notice::Done(id) = notice {
                    over.push((id, now));
                }
            }
        }
        assert!(channels.is_quiet() && channels.planes.iter().all(|p| p.array == ArrayState::Idle));
        over
    }

    fn slc(registers: u64) -> Nand {
        let set = format!("registers={registers}");
        Registry::builtin().unwrap().get_with("slc", &[&set, "read_command=200ns"]).unwrap()
    }

    fn last(over: &[(OpId, Time)]) -> Time {
        over.iter().map(|(_, time)| *time).max().unwrap()
    }

    #[test]
    fn operations_of_one_plane_take_the_times_of_the_closed_forms() {
        for class in [OperationClass::Demand, OperationClass::Program, OperationClass::Erase] {
            let op = class.op();
            for count in [1, 2, 7] {
                let over = |registers, command| {
                    let nand = Nand { read_command: Some(Picos(command)), ..slc(registers) };
                    let all = (0..count as u32).map(|id| (0, id, class, 0)).collect();
                    let found = last(&run(&mut Channels::new(&nand, 1, 1), all));
                    (nand, found)
                };
                let (nand, two) = over(2, 0);
                assert_eq!(two, nand.interleaved_time(op, count).0, "{class:?} {count}");
                let (nand, one) = over(1, 200_000);
                assert_eq!(one, nand.idle_latency(op, 1).0 * count, "{class:?} {count}");
                if class == OperationClass::Demand {
                    // An array takes its next command when it is free, and data cross meanwhile.
                    let (nand, found) = over(2, 200_000);
                    assert_eq!(found, (nand.read.0 + 200_000) * count + nand.page_transfer().0);
                }
            }
        }
    }

    #[test]
    fn planes_of_a_channel_share_its_bus_and_planes_of_different_channels_share_nothing() {
        let nand = slc(2);
        // Commands go first: all four arrays work at once, and their data follow one another.
        let mut channel = Channels::new(&nand, 1, 4);
        let over = run(&mut channel, (0..4).map(|id| (0, id, OperationClass::Demand, id)).collect());
        let data = nand.data_time(NandOp::Read, 1).0;
        assert_eq!(last(&over), nand.idle_latency(NandOp::Read, 1).0 + 3 * data);
        let mut apart = Channels::new(&nand, 4, 4);
        let over = run(&mut apart, (0..4).map(|id| (0, id, OperationClass::Demand, id)).collect());
        assert_eq!(over.iter().map(|o| o.1).collect::<Vec<_>>(), [nand.idle_latency(NandOp::Read, 1).0; 4]);
        assert_eq!(apart.bytes(), 4 * nand.page.0);
    }

    #[test]
    fn what_is_waited_for_goes_before_the_rest_and_erases_go_last() {
        let nand = slc(2);
        let order = [
            OperationClass::Erase,
            OperationClass::Program,
            OperationClass::Move,
            OperationClass::Ahead,
            OperationClass::Demand,
        ];
        let mut channels = Channels::new(&nand, 1, 1);
        // A read keeps the plane busy while the others come.
        let mut ops = vec![(0, 9, OperationClass::Demand, 0)];
        ops.extend((0..).zip(order).map(|(id, class)| (1_000_000, id, class, 0)));
        let over: Vec<OpId> = run(&mut channels, ops).into_iter().map(|(id, _)| id).collect();
        assert_eq!(over, [9, 4, 3, 2, 1, 0]);
    }

    /// The ends of a program or erase that starts at 0 and of a read that comes at `at`, and the
    /// suspensions.
    fn interrupted(nand: &Nand, work: OperationClass, read: OperationClass, at: Time) -> (Time, Time, u64) {
        let mut channels = Channels::new(nand, 1, 1);
        let over = run(&mut channels, vec![(0, 0, work, 0), (at, 1, read, 0)]);
        let end = |id| over.iter().find(|o| o.0 == id).unwrap().1;
        (end(0), end(1), channels.suspensions())
    }

    #[test]
    fn a_read_that_is_waited_for_suspends_a_program_or_erase_and_the_rest_follows_it() {
        let pause = Picos(20_000_000);
        for registers in [1, 2] {
            let without = slc(registers);
            let nand = Nand { suspend_program: Some(pause), suspend_erase: Some(pause), ..slc(registers) };
            let read = nand.idle_latency(NandOp::Read, 1).0;
            for (class, op) in
                [(OperationClass::Program, NandOp::Program), (OperationClass::Erase, NandOp::Erase)]
            {
                let alone = nand.idle_latency(op, 1).0;
                for class_of_read in [OperationClass::Demand, OperationClass::Ahead] {
                    let at = alone / 2;
                    let (work_end, read_end, suspensions) = interrupted(&nand, class, class_of_read, at);
                    assert_eq!((read_end, suspensions), (at + pause.0 + read, 1), "{op:?} {registers}");
                    // With one register the data of the read must leave before the work continues.
                    let data = if registers == 1 { nand.data_time(NandOp::Read, 1).0 } else { 0 };
                    let held = nand.command_time(NandOp::Read, 1).0 + nand.read.0 + data;
                    assert_eq!(work_end, alone + pause.0 + held);
                }
                let waits = (alone, alone + read, 0);
                // Near the end, and where the part cannot suspend, the read waits. So does reclamation.
                assert_eq!(interrupted(&nand, class, OperationClass::Demand, alone - pause.0), waits);
                assert_eq!(interrupted(&without, class, OperationClass::Demand, alone / 2), waits);
                assert_eq!(interrupted(&nand, class, OperationClass::Move, alone / 2), waits);
            }
        }
    }

    #[test]
    fn a_read_that_comes_during_the_data_of_a_program_suspends_it_at_its_start_or_goes_first() {
        let pause = 20_000_000;
        let nand = |registers| Nand { suspend_program: Some(Picos(pause)), ..slc(registers) };
        let (program, data) = (slc(1).program.0, slc(1).page_transfer().0);
        let read = slc(1).idle_latency(NandOp::Read, 1).0;
        // The only register holds the program's data.
        let found = interrupted(&nand(1), OperationClass::Program, OperationClass::Demand, data / 2);
        assert_eq!(found, (data + pause + read + program, data + pause + read, 1));
        // The data wait in the second register.
        let found = interrupted(&nand(2), OperationClass::Program, OperationClass::Demand, data / 2);
        assert_eq!(found, (data + read + program, data + read, 0));
    }

    #[test]
    fn a_suspended_program_continues_when_the_last_read_has_left_the_array() {
        let pause = 20_000_000;
        let nand = Nand { suspend_program: Some(Picos(pause)), ..slc(2) };
        let mut channels = Channels::new(&nand, 1, 1);
        let at = nand.idle_latency(NandOp::Program, 1).0 / 2;
        let mut ops = vec![(0, 0, OperationClass::Program, 0), (0, 1, OperationClass::Program, 0)];
        ops.extend((2..5).map(|id| (at, id, OperationClass::Demand, 0)));
        ops.push((at, 5, OperationClass::Move, 0));
        let over = run(&mut channels, ops);
        assert_eq!(channels.suspensions(), 1);
        // The second program's data occupy the register, so each read leaves before the next one starts.
        let read = nand.idle_latency(NandOp::Read, 1).0;
        let end = |id| over.iter().find(|o: &&(OpId, Time)| o.0 == id).unwrap().1;
        assert_eq!([end(2), end(3), end(4)], [1, 2, 3].map(|n| at + pause + n * read));
        assert_eq!(end(0), nand.idle_latency(NandOp::Program, 1).0 + pause + 3 * read);
        assert_eq!(end(5), end(0) + read);
        assert_eq!(end(1), end(5) + nand.program.0);
    }

    proptest! {
        #[test]
        fn everything_ends_once_and_no_plane_or_channel_is_used_twice_at_a_time(
            ops in prop::collection::vec((0u64..3_000_000_000, 0usize..5, 0u32..6), 1..120),
            channels in 1u32..4,
            registers in 1u64..3,
            suspend in prop::option::of(0u64..2_000_000_000),
        ) {
            let classes = [OperationClass::Demand, OperationClass::Ahead, OperationClass::Move, OperationClass::Program, OperationClass::Erase];
            let suspend = suspend.map(Picos);
            let nand = Nand { suspend_program: suspend, suspend_erase: suspend, ..slc(registers) };
            let mut machine = Channels::new(&nand, channels, 6);
            let all = (0..).zip(&ops).map(|(id, (time, class, plane))| (*time, id, classes[*class], *plane));
            let over = run(&mut machine, all.collect());
            let mut ids: Vec<OpId> = over.iter().map(|o| o.0).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..ops.len() as u32).collect::<Vec<_>>());
            let moved = ops.iter().filter(|op| op.1 < 4).count() as u64;
            prop_assert_eq!(machine.bytes(), moved * nand.page.0);
            // The arrays and the bus are busy one thing at a time, so the end is not before their sums.
            for plane in 0..6 {
                let busy: Time =
                    ops.iter().filter(|op| op.2 == plane).map(|op| nand.array_time(classes[op.1].op()).0).sum();
                prop_assert!(last(&over) >= busy);
            }
            prop_assert!(last(&over) * u64::from(channels) >= machine.bus_busy());
            for (id, time) in &over {
                let (from, class, _) = ops[*id as usize];
                prop_assert!(*time >= from + nand.idle_latency(classes[class].op(), 1).0);
            }
        }
    }
}
