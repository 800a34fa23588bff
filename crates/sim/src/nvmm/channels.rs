//! Channels of flash and the planes on them: who moves and who works when.
//!
//! 1. A plane works on one operation at a time, reads before programs before erases, each kind in the
//!    order of arrival; reads that somebody waits for before other reads.
//! 2. A channel carries one command or one segment at a time: commands first (so that an array starts on
//!    its next read before the last one's data leave: NVMM, Architecture), then data of reads that
//!    somebody waits for, of other reads, to be programmed, and erase commands. Of equals the oldest.
//! 3. A plane has two registers. One belongs to the array. The other takes the data of a read that wait
//!    for the channel, or data to be programmed that have come before the array is free. With one
//!    register the array waits.

use std::collections::VecDeque;

use deepram_media::{Bytes, Nand, NandOp};

use crate::engine::Time;

/// What an operation is done for, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A read that somebody waits for.
    Demand,
    /// A read ahead of need.
    Ahead,
    /// A read of reclamation.
    Move,
    Program,
    Erase,
}

impl Class {
    const COUNT: usize = 5;

    fn index(self) -> usize {
        self as usize
    }

    fn op(self) -> NandOp {
        match self {
            Class::Demand | Class::Ahead | Class::Move => NandOp::Read,
            Class::Program => NandOp::Program,
            Class::Erase => NandOp::Erase,
        }
    }
}

/// An operation: its number is the owner's.
pub(super) type OpId = u32;

/// Something that the owner wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// The data of a read have begun to cross the channel.
    Leaving(OpId),
    /// Data to be programmed have begun to cross.
    Entering(OpId),
    /// The data of a read are out, a program or an erase is over.
    Done(OpId),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ChannelEvent {
    /// What the channel carried is over.
    Bus(u32),
    /// The array of a plane is done.
    Array(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Op {
    id: OpId,
    class: Class,
    /// Order of arrival.
    sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Array {
    #[default]
    Idle,
    /// A command or, with one register, data are on their way to it.
    Starting,
    Busy(Op),
    /// Read data for which there is no other register.
    Holding(Op),
    /// The same, on the channel.
    Leaving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Register {
    #[default]
    Free,
    Out(Op),
    Leaving,
    Entering,
    In(Op),
}

#[derive(Default)]
struct Plane {
    queues: [VecDeque<Op>; Class::COUNT],
    array: Array,
    register: Register,
    /// Operations queued or under way.
    inside: u32,
}

impl Plane {
    /// The read that goes next.
    fn read(&self) -> Option<&Op> {
        self.queues[..Class::Program.index()].iter().find_map(VecDeque::front)
    }
}

#[derive(Debug, Clone, Copy)]
enum Carry {
    Command(Op),
    /// Data of a read; whether they come from the second register.
    Out(Op, bool),
    /// Data to be programmed; whether they go to the second register.
    In(Op, bool),
}

#[derive(Default)]
struct Channel {
    /// Planes with something to do.
    active: Vec<u32>,
    carrying: Option<(u32, Carry)>,
}

/// The machine.
pub(super) struct Channels {
    nand: Nand,
    channels: Vec<Channel>,
    planes: Vec<Plane>,
    two_registers: bool,
    sequence: u64,
    bytes: u64,
    bus_busy: Time,
    /// Since the last call: events to schedule and notices for the owner.
    pub(super) events: Vec<(Time, ChannelEvent)>,
    pub(super) notices: Vec<Notice>,
}

impl Channels {
    /// `planes` planes of such packages, the planes going round the channels.
    pub(super) fn new(nand: &Nand, channels: u32, planes: u32) -> Self {
        Self {
            nand: nand.clone(),
            channels: (0..channels).map(|_| Channel::default()).collect(),
            planes: (0..planes).map(|_| Plane::default()).collect(),
            two_registers: nand.registers != Some(1),
            sequence: 0,
            bytes: 0,
            bus_busy: 0,
            events: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn channel_of(&self, plane: u32) -> u32 {
        plane % self.channels.len() as u32
    }

    /// Bytes that have crossed the channels, or begun to.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time in which channels carried something, summed over them.
    pub(super) fn bus_busy(&self) -> Time {
        self.bus_busy
    }

    /// Whether nothing at all is queued or under way on a plane.
    pub(super) fn is_idle(&self, plane: u32) -> bool {
        self.planes[plane as usize].inside == 0
    }

    /// Whether nothing at all is queued or under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.channels.iter().all(|channel| channel.active.is_empty() && channel.carrying.is_none())
    }

    /// Queues an operation.
    pub(super) fn submit(&mut self, id: OpId, class: Class, plane: u32, now: Time) {
        let channel = self.channel_of(plane);
        let at = &mut self.planes[plane as usize];
        at.queues[class.index()].push_back(Op { id, class, sequence: self.sequence });
        self.sequence += 1;
        at.inside += 1;
        if at.inside == 1 {
            self.channels[channel as usize].active.push(plane);
        }
        self.serve(channel, now);
    }

    /// Makes a read ahead one that somebody waits for. Nothing happens if it has left its queue.
    pub(super) fn promote(&mut self, id: OpId, plane: u32, now: Time) {
        let channel = self.channel_of(plane);
        let queues = &mut self.planes[plane as usize].queues;
        let ahead = &mut queues[Class::Ahead.index()];
        let Some(at) = ahead.iter().position(|op| op.id == id) else { return };
        let Some(op) = ahead.remove(at) else { return };
        queues[Class::Demand.index()].push_back(Op { class: Class::Demand, ..op });
        self.serve(channel, now);
    }

    /// What is due.
    pub(super) fn handle(&mut self, event: ChannelEvent, now: Time) {
        match event {
            ChannelEvent::Bus(channel) => {
                if let Some((plane, carry)) = self.channels[channel as usize].carrying.take() {
                    self.arrived(plane, carry, now);
                }
                self.serve(channel, now);
            }
            ChannelEvent::Array(plane) => {
                let at = &mut self.planes[plane as usize];
                if let Array::Busy(op) = at.array {
                    match (op.class.op(), at.register) {
                        (NandOp::Read, Register::Free) if self.two_registers => {
                            at.register = Register::Out(op);
                            at.array = Array::Idle;
                        }
                        (NandOp::Read, _) => at.array = Array::Holding(op),
                        (NandOp::Program | NandOp::Erase, _) => {
                            at.array = Array::Idle;
                            self.over(plane, op);
                            self.start_loaded(plane, now);
                        }
                    }
                }
                self.serve(self.channel_of(plane), now);
            }
        }
    }

    fn over(&mut self, plane: u32, op: Op) {
        let channel = self.channel_of(plane) as usize;
        let at = &mut self.planes[plane as usize];
        at.inside -= 1;
        if at.inside == 0 {
            self.channels[channel].active.retain(|&p| p != plane);
        }
        self.notices.push(Notice::Done(op.id));
    }

    fn start(&mut self, plane: u32, op: Op, now: Time) {
        self.planes[plane as usize].array = Array::Busy(op);
        self.events.push((now + self.nand.array_time(op.class.op()).0, ChannelEvent::Array(plane)));
    }

    /// Data that wait in the second register go to the array once that is free and no read wants it.
    fn start_loaded(&mut self, plane: u32, now: Time) {
        let at = &mut self.planes[plane as usize];
        if at.array == Array::Idle
            && at.read().is_none()
            && let Register::In(op) = at.register
        {
            at.register = Register::Free;
            self.start(plane, op, now);
        }
    }

    fn arrived(&mut self, plane: u32, carry: Carry, now: Time) {
        match carry {
            Carry::Command(op) | Carry::In(op, false) => self.start(plane, op, now),
            Carry::In(op, true) => {
                self.planes[plane as usize].register = Register::In(op);
                self.start_loaded(plane, now);
            }
            Carry::Out(op, from_register) => {
                let at = &mut self.planes[plane as usize];
                if from_register {
                    at.register = Register::Free;
                    if let Array::Holding(next) = at.array {
                        at.register = Register::Out(next);
                        at.array = Array::Idle;
                    }
                } else {
                    at.array = Array::Idle;
                    self.start_loaded(plane, now);
                }
                self.over(plane, op);
            }
        }
    }

    /// What a plane would have its channel carry next, and how urgent that is.
    fn wish(&self, plane: u32) -> Option<((u8, u64), Carry)> {
        let at = &self.planes[plane as usize];
        let read = at.read();
        let program = at.queues[Class::Program.index()].front();
        if at.array == Array::Idle
            && at.register != Register::Entering
            && let Some(op) = read
        {
            return Some(((u8::from(op.class != Class::Demand), op.sequence), Carry::Command(*op)));
        }
        let waiting = match (at.register, at.array) {
            (Register::Out(op), _) => Some((op, true)),
            (Register::Leaving, _) => None,
            (_, Array::Holding(op)) => Some((op, false)),
            _ => None,
        };
        if let Some((op, from_register)) = waiting {
            let rank = if op.class == Class::Demand { 2 } else { 3 };
            return Some(((rank, op.sequence), Carry::Out(op, from_register)));
        }
        // Reads go before: nothing is loaded that would take a register from one that waits.
        if read.is_some() || at.register != Register::Free {
            return None;
        }
        if let Some(op) = program {
            let busy = matches!(at.array, Array::Busy(_));
            return match (self.two_registers, at.array == Array::Idle) {
                (true, idle) if idle || busy => Some(((4, op.sequence), Carry::In(*op, true))),
                (false, true) => Some(((4, op.sequence), Carry::In(*op, false))),
                _ => None,
            };
        }
        let erase = at.queues[Class::Erase.index()].front()?;
        (at.array == Array::Idle).then_some(((5, erase.sequence), Carry::Command(*erase)))
    }

    /// Gives the channel to the most urgent wish, if it is free.
    fn serve(&mut self, channel: u32, now: Time) {
        while self.channels[channel as usize].carrying.is_none() {
            let planes = &self.channels[channel as usize].active;
            let best = planes.iter().filter_map(|&p| self.wish(p).map(|(rank, carry)| (rank, p, carry)));
            let Some((_, plane, carry)) = best.min_by_key(|(rank, _, _)| *rank) else { return };
            self.carry(channel, plane, carry, now);
        }
    }

    fn carry(&mut self, channel: u32, plane: u32, carry: Carry, now: Time) {
        let (nand, at) = (&self.nand, &mut self.planes[plane as usize]);
        let time = match carry {
            Carry::Command(op) => {
                at.queues[op.class.index()].pop_front();
                at.array = Array::Starting;
                nand.command_time(op.class.op(), 1).0
            }
            Carry::Out(op, from_register) => {
                if from_register {
                    at.register = Register::Leaving;
                } else {
                    at.array = Array::Leaving;
                }
                self.notices.push(Notice::Leaving(op.id));
                self.bytes += nand.page.0;
                nand.data_time(NandOp::Read, 1).0
            }
            Carry::In(op, to_register) => {
                at.queues[op.class.index()].pop_front();
                if to_register {
                    at.register = Register::Entering;
                } else {
                    at.array = Array::Starting;
                }
                self.notices.push(Notice::Entering(op.id));
                self.bytes += nand.page.0;
                nand.command_time(NandOp::Program, 1).0 + nand.data_time(NandOp::Program, 1).0
            }
        };
        self.bus_busy += time;
        if time == 0 {
            self.arrived(plane, carry, now);
        } else {
            self.channels[channel as usize].carrying = Some((plane, carry));
            self.events.push((now + time, ChannelEvent::Bus(channel)));
        }
    }

    /// From when the data of a read begin to cross until the first `bytes` of them have.
    pub(super) fn until(&self, bytes: u64) -> Time {
        self.nand.read_setup.unwrap_or_default().0 + self.nand.transfer(Bytes(bytes)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EventQueue;
    use deepram_media::{Picos, Registry};
    use proptest::prelude::*;

    fn run(channels: &mut Channels, mut left: Vec<(Time, OpId, Class, u32)>) -> Vec<(OpId, Time)> {
        left.sort_by_key(|op| op.0);
        let mut queue = EventQueue::new();
        for (time, id, class, plane) in left {
            queue.push(time, Err((id, class, plane)));
        }
        let mut over = Vec::new();
        while let Some((now, event)) = queue.pop() {
            match event {
                Ok(event) => channels.handle(event, now),
                Err((id, class, plane)) => channels.submit(id, class, plane, now),
            }
            for (time, event) in channels.events.drain(..) {
                queue.push(time, Ok(event));
            }
            for notice in channels.notices.drain(..) {
                if let Notice::Done(id) = notice {
                    over.push((id, now));
                }
            }
        }
        assert!(channels.is_quiet() && channels.planes.iter().all(|p| p.array == Array::Idle));
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
        for class in [Class::Demand, Class::Program, Class::Erase] {
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
                if class == Class::Demand {
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
        // Commands first: the arrays of all four work at once, the data follow each other.
        let mut channel = Channels::new(&nand, 1, 4);
        let over = run(&mut channel, (0..4).map(|id| (0, id, Class::Demand, id)).collect());
        let data = nand.data_time(NandOp::Read, 1).0;
        assert_eq!(last(&over), nand.idle_latency(NandOp::Read, 1).0 + 3 * data);
        let mut apart = Channels::new(&nand, 4, 4);
        let over = run(&mut apart, (0..4).map(|id| (0, id, Class::Demand, id)).collect());
        assert_eq!(over.iter().map(|o| o.1).collect::<Vec<_>>(), [nand.idle_latency(NandOp::Read, 1).0; 4]);
        assert_eq!(apart.bytes(), 4 * nand.page.0);
    }

    #[test]
    fn what_is_waited_for_goes_before_the_rest_and_erases_go_last() {
        let nand = slc(2);
        let order = [Class::Erase, Class::Program, Class::Move, Class::Ahead, Class::Demand];
        let mut channels = Channels::new(&nand, 1, 1);
        // A read keeps the plane busy while the others come.
        let mut ops = vec![(0, 9, Class::Demand, 0)];
        ops.extend((0..).zip(order).map(|(id, class)| (1_000_000, id, class, 0)));
        let over: Vec<OpId> = run(&mut channels, ops).into_iter().map(|(id, _)| id).collect();
        assert_eq!(over, [9, 4, 3, 2, 1, 0]);
    }

    proptest! {
        #[test]
        fn everything_ends_once_and_no_plane_or_channel_is_used_twice_at_a_time(
            ops in prop::collection::vec((0u64..3_000_000_000, 0usize..5, 0u32..6), 1..120),
            channels in 1u32..4,
            registers in 1u64..3,
        ) {
            let classes = [Class::Demand, Class::Ahead, Class::Move, Class::Program, Class::Erase];
            let nand = slc(registers);
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
