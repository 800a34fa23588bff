//! The order of the users of a bus, and the choice of a target's next work.
//!
//! 1. Data out: of mapping pages, then of the host, then the others; within each the data that came
//!    first, or of the operation that came first, as the rules say.
//! 2. Commands: targets in turn, or the most urgent and oldest operation of any target.
//! 3. A target: mapping before host before reclamation; reads before programs before erases.

use std::ops::Range;

use deepram_media::NandOp;

use super::{BusData, ChannelEvent, Channels, DataOut, Notice, OpId, OperationClass, QueuedOperation};
use super::{READS, Target, WAITED_FOR};
use crate::engine::Time;

const MAP_READ: usize = OperationClass::MapRead.index();
const DEMAND: usize = OperationClass::Demand.index();
const AHEAD: usize = OperationClass::Ahead.index();
const MOVE: usize = OperationClass::Move.index();
const MAP_PROGRAM: usize = OperationClass::MapProgram.index();
const PROGRAM: usize = OperationClass::Program.index();
const MOVE_PROGRAM: usize = OperationClass::MoveProgram.index();
const ERASE: usize = OperationClass::Erase.index();

/// Two queues whose operations may form a group; the first one has an operation that can start.
type Pair = (usize, usize);

const PROGRAMS: &[Pair] = &[(MAP_PROGRAM, PROGRAM), (PROGRAM, MOVE_PROGRAM), (MOVE_PROGRAM, MOVE_PROGRAM)];
const READS_WAITED_FOR: &[Pair] = &[(MAP_READ, DEMAND), (DEMAND, MOVE), (AHEAD, AHEAD)];
const READS_AHEAD: &[Pair] = &[(MAP_READ, DEMAND), (DEMAND, MOVE), (AHEAD, AHEAD), (MOVE, MOVE)];
/// The order where the host goes first, after the reads.
const HOST_FIRST: &[Pair] = &[
    (MAP_PROGRAM, PROGRAM),
    (PROGRAM, MOVE_PROGRAM),
    (MOVE_PROGRAM, MOVE_PROGRAM),
    (MOVE, MOVE),
    (ERASE, ERASE),
];
/// The order where reclamation goes first, after the reads.
const MOVES_FIRST: &[Pair] = &[
    (MAP_PROGRAM, MOVE_PROGRAM),
    (MOVE_PROGRAM, PROGRAM),
    (ERASE, ERASE),
    (PROGRAM, PROGRAM),
    (DEMAND, DEMAND),
];

/// Which commands may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commands {
    All,
    OfReads,
    OfOthers,
}

impl Channels {
    /// Requests the bus: serves it now if it is free, else at the end of its transfer.
    #[inline]
    pub(super) fn request_bus(&mut self, channel: u32, now: Time) {
        let bus = &mut self.channels[channel as usize];
        if bus.awaited {
            return;
        }
        if bus.until > now {
            bus.awaited = true;
            self.events.push((bus.until, ChannelEvent::Bus(channel)));
            return;
        }
        self.serve_bus(channel, now);
    }

    /// Gives a free bus to waiting data or to commands.
    fn serve_bus(&mut self, channel: u32, now: Time) {
        match self.rules.data_out {
            DataOut::First => {
                if !self.send_data(channel, now) {
                    self.send_commands(channel, Commands::All, now);
                }
            }
            DataOut::Last => {
                self.send_commands(channel, Commands::All, now);
                self.send_data(channel, now);
            }
            DataOut::AfterReads => {
                self.send_commands(channel, Commands::OfReads, now);
                self.send_data(channel, now);
                self.send_commands(channel, Commands::OfOthers, now);
            }
        }
        // Work that only lacks the bus is served at the end of the transfer.
        let bus = &self.channels[channel as usize];
        if bus.awaited || bus.until <= now {
            return;
        }
        let range = self.targets_of(channel);
        let mut targets = self.targets[range.start as usize..range.end as usize].iter();
        let may_start =
            |target: &Target| target.waiting != 0 && (self.shape.registers > 1 || target.groups == 0);
        if !bus.out.is_empty() || bus.queued > 0 && targets.any(may_start) {
            let bus = &mut self.channels[channel as usize];
            bus.awaited = true;
            self.events.push((bus.until, ChannelEvent::Bus(channel)));
        }
    }

    /// True if an operation of the target can start at once and no other operation goes first: neither
    /// the target nor its bus has other work, and no bus is to be served after an event.
    #[inline]
    pub(super) fn is_idle_target(&self, target: u32, now: Time) -> bool {
        let Target { waiting, groups, suspended, channel, .. } = self.targets[target as usize];
        let idle = waiting == 0 && groups == 0 && !suspended && self.greedy && self.unserved.is_none();
        idle && self.is_free(channel, now) && self.channels[channel as usize].out.is_empty()
    }

    /// Starts an operation whose target and bus are idle.
    pub(super) fn start_alone(&mut self, target: u32, die: u32, id: OpId, now: Time) {
        let channel = self.targets[target as usize].channel;
        let targets = self.targets_of(channel);
        let next = if target + 1 == targets.end { 0 } else { target + 1 - targets.start };
        self.command(target, die, id, 1, now);
        if !self.is_free(channel, now) {
            self.channels[channel as usize].turn = next;
        }
    }

    fn targets_of(&self, channel: u32) -> Range<u32> {
        channel * self.shape.targets_per_channel..(channel + 1) * self.shape.targets_per_channel
    }

    fn is_free(&self, channel: u32, now: Time) -> bool {
        let bus = &self.channels[channel as usize];
        !bus.awaited && bus.until <= now
    }

    /// Sends the most urgent data out over a free bus. Returns false if no data wait. The end of the
    /// transfer is always an event.
    fn send_data(&mut self, channel: u32, now: Time) -> bool {
        if self.channels[channel as usize].out.is_empty() || !self.is_free(channel, now) {
            return false;
        }
        let out = &mut self.channels[channel as usize].out;
        let first = |&index: &usize| (out[index].0, out[index].1);
        let next = if out.len() == 1 { 0 } else { (0..out.len()).min_by_key(first).unwrap_or(0) };
        let (_, _, id) = out.swap_remove(next);
        let bytes = self.operations[id as usize].bytes;
        let time = self.nand.read_setup.map_or(0, |setup| setup.0) + self.transfer_time(bytes);
        self.bytes += u64::from(bytes);
        let bus = &mut self.channels[channel as usize];
        bus.busy += time;
        bus.until = now + time;
        bus.awaited = true;
        bus.carries = Some(BusData::Out(id));
        self.events.push((bus.until, ChannelEvent::Bus(channel)));
        if self.rules.transfer_notices {
            self.notices.push(Notice::ReadTransferStarted(id));
        }
        true
    }

    /// Sends commands until the bus is busy or no target has work that can start.
    fn send_commands(&mut self, channel: u32, which: Commands, now: Time) {
        if self.channels[channel as usize].queued == 0 || !self.is_free(channel, now) {
            return;
        }
        let targets = self.targets_of(channel);
        if self.rules.turns {
            let first = targets.start + self.channels[channel as usize].turn;
            for part in [first..targets.end, targets.start..first] {
                let mut next = part.start;
                while let Some(target) = self.next_ready(next..part.end) {
                    next = target + 1;
                    if let Some(pair) = self.next_work(target, which, now) {
                        self.start(target, pair, now);
                        if !self.is_free(channel, now) {
                            let turn = if next == targets.end { 0 } else { next - targets.start };
                            self.channels[channel as usize].turn = turn;
                            return;
                        }
                    }
                }
            }
            return;
        }
        while self.channels[channel as usize].queued > 0 && self.is_free(channel, now) {
            let works = targets.clone().filter_map(|target| {
                let pair = self.next_work(target, which, now)?;
                let id = self.queues[target as usize][pair.0].waiting().first()?.id;
                Some(((rank(pair.0), self.operations[id as usize].sequence), target, pair))
            });
            let Some((_, target, pair)) = works.min_by_key(|(key, ..)| *key) else { return };
            self.start(target, pair, now);
        }
    }

    /// The first of the targets that has an operation queued and a register free.
    #[inline]
    fn next_ready(&self, targets: Range<u32>) -> Option<u32> {
        let states = &self.targets[targets.start as usize..targets.end as usize];
        let ready = |state: &Target| state.waiting != 0 && state.groups < self.shape.registers;
        Some(targets.start + states.iter().position(ready)? as u32)
    }

    /// The next work of a target, if it can accept a command.
    #[inline]
    fn next_work(&self, target: u32, which: Commands, now: Time) -> Option<Pair> {
        let state = self.targets[target as usize];
        let wanted = match which {
            Commands::All => state.waiting,
            Commands::OfReads => state.waiting & READS,
            Commands::OfOthers => state.waiting & !READS,
        };
        if wanted == 0 || state.groups >= self.shape.registers {
            return None;
        }
        let pair = self.choose_work(target, state, now)?;
        match which {
            Commands::All => Some(pair),
            Commands::OfReads => (pair.0 <= MOVE).then_some(pair),
            Commands::OfOthers => (pair.0 > MOVE).then_some(pair),
        }
    }

    fn choose_work(&self, target: u32, state: Target, now: Time) -> Option<Pair> {
        if state.suspended && now < self.ready[target as usize] {
            return None;
        }
        if state.groups > 0 {
            return self.choose_ahead(target, state);
        }
        let has = |queue: usize| state.waiting >> queue & 1 != 0;
        let urgent = state.urgent && !state.suspended;
        let moving = has(MOVE_PROGRAM) || has(ERASE);
        let yields = (has(PROGRAM) || has(MAP_PROGRAM)) && !self.rules.moves_before_programs;
        let reads = match (has(MAP_READ), has(DEMAND), has(MOVE)) {
            (true, _, true) if urgent => Some((MAP_READ, MOVE)),
            (true, true, _) => Some((MAP_READ, DEMAND)),
            (true, false, _) => Some((MAP_READ, MOVE)),
            (_, _, true) if urgent => Some((MOVE, DEMAND)),
            (_, true, _) if !urgent || !moving => Some((DEMAND, MOVE)),
            _ if has(AHEAD) => Some((AHEAD, AHEAD)),
            (_, false, true) if !yields && !state.suspended => Some((MOVE, MOVE)),
            _ => None,
        };
        if let Some(pair) = reads
            && self.can_start(target, pair.0)
        {
            return Some(pair);
        }
        if state.suspended {
            return None;
        }
        let order = if urgent { MOVES_FIRST } else { HOST_FIRST };
        order.iter().find(|pair| has(pair.0) && self.can_start(target, pair.0)).copied()
    }

    /// Work for the second register of a busy die: reads while data leave the first register, data to
    /// program while the array works.
    fn choose_ahead(&self, target: u32, state: Target) -> Option<Pair> {
        let die = self.dies[target as usize];
        let Target { waiting, suspended, .. } = state;
        let before = if self.rules.moves_before_programs { READS } else { WAITED_FOR };
        let reads = if suspended { READS_WAITED_FOR } else { READS_AHEAD };
        let order = match self.groups.get(die.active as usize) {
            // The array is idle, and the data of a read are leaving or a loaded program lets reads pass.
            None => reads,
            Some(group) if group.copy_back => return None,
            Some(group) if group.op == NandOp::Read && self.rules.pipelined => reads,
            Some(group) => {
                let next = group.op == NandOp::Program || !self.rules.pipelined;
                if suspended || waiting & before != 0 || !next {
                    return None;
                }
                PROGRAMS
            }
        };
        let found = |pair: &&Pair| waiting >> pair.0 & 1 != 0 && self.can_start(target, pair.0);
        order.iter().find(found).copied()
    }

    /// True if a queue of a target holds an operation that is not blocked.
    fn can_start(&self, target: u32, queue: usize) -> bool {
        self.queues[target as usize][queue].waiting().iter().any(|waiting| !waiting.blocked)
    }

    /// Starts operations of two queues on the dies of a target: the die of the first operation that can
    /// start, then the others, as many as may work at once.
    fn start(&mut self, target: u32, (first, second): Pair, now: Time) {
        let queue = self.queues[target as usize][first].waiting();
        let Some(at) = queue.iter().position(|waiting| !waiting.blocked) else { return };
        let die = queue[at].die;
        let (head, count) = self.take_group(target, (first, second), at);
        self.command(target, die, head, count, now);
        let dies = self.dies_of(target);
        let (mut other, mut started) = (die, 1);
        for _ in 1..dies.len() {
            if started == self.shape.units {
                break;
            }
            other = if other + 1 == dies.end { dies.start } else { other + 1 };
            let fits = |waiting: &QueuedOperation| waiting.die == other && !waiting.blocked;
            let found = [first, second].into_iter().find_map(|queue| {
                let at = self.queues[target as usize][queue].waiting().iter().position(fits)?;
                Some((queue, at))
            });
            if let Some((queue, at)) = found {
                let (head, count) = self.take_group(target, (queue, second), at);
                self.command(target, other, head, count, now);
                started += 1;
            }
        }
    }

    /// Takes a group from two queues: the operation at `at` of the first one, and operations on the page
    /// of the same number in other planes of its die. Returns the first operation, and the number of
    /// operations.
    fn take_group(&mut self, target: u32, (first, second): Pair, at: usize) -> (OpId, u32) {
        let head = self.unqueue(target, first, at);
        if self.targets[target as usize].waiting >> first & 1 == 0
            && self.targets[target as usize].waiting >> second & 1 == 0
        {
            return (head.id, 1);
        }
        let (mut last, mut count) = (head.id, 1);
        let (mut planes, mut queue, mut index) = (1u64 << head.plane_bit, first, at);
        while count < self.shape.planes_per_die {
            let waiting = &self.queues[target as usize][queue].waiting()[index..];
            let fits = |waiting: &QueuedOperation| {
                waiting.page == head.page
                    && waiting.die == head.die
                    && planes >> waiting.plane_bit & 1 == 0
                    && !waiting.blocked
            };
            if let Some(found) = waiting.iter().position(fits) {
                index += found;
                let next = self.unqueue(target, queue, index);
                self.operations[last as usize].next = next.id;
                planes |= 1 << next.plane_bit;
                (last, count) = (next.id, count + 1);
            } else if queue == second {
                break;
            } else {
                (queue, index) = (second, 0);
            }
        }
        (head.id, count)
    }

    /// The bus time of a number of bytes. The last result is kept: sizes repeat.
    pub(super) fn transfer_time(&mut self, bytes: u32) -> Time {
        let [last, page] = self.transfer;
        if bytes == page.0 {
            return page.1;
        }
        if bytes != last.0 {
            let (count, whole) = (u64::from(bytes), u64::from(page.0.max(1)));
            let time = match count.checked_mul(page.1) {
                Some(product) => product / whole,
                None => (u128::from(count) * u128::from(page.1) / u128::from(whole)) as Time,
            };
            self.transfer[0] = (bytes, time);
        }
        self.transfer[0].1
    }
}

/// The rank of a queue's commands among those of other targets: lower goes first.
fn rank(queue: usize) -> u8 {
    match queue {
        MAP_READ | DEMAND => 0,
        AHEAD | MOVE => 1,
        ERASE => 3,
        _ => 2,
    }
}
