//! The order of the users of a bus, and the choice of a target's next work.
//!
//! 1. Data out: of mapping pages, then of the host, then the others; within each the data that came
//!    first, or of the operation that came first, as the rules say.
//! 2. Commands: targets in turn, or the most urgent and oldest operation of any target.
//! 3. A target: mapping before host before reclamation; reads before programs before erases.

use std::ops::Range;

use deepram_media::NandOp;

use super::{BusData, ChannelEvent, Channels, DataOut, Notice, OpId, OperationClass, QueuedOperation};
use super::{READS, WAITED_FOR};
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
                self.send_data(channel, now);
                self.send_commands(channel, Commands::All, now);
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
        let may_start = |target: u32| {
            self.waiting[target as usize] != 0
                && (self.shape.registers > 1 || self.targets[target as usize].groups == 0)
        };
        if !bus.out.is_empty() || bus.queued > 0 && self.targets_of(channel).any(may_start) {
            let bus = &mut self.channels[channel as usize];
            bus.awaited = true;
            self.events.push((bus.until, ChannelEvent::Bus(channel)));
        }
    }

    fn targets_of(&self, channel: u32) -> Range<u32> {
        channel * self.shape.targets_per_channel..(channel + 1) * self.shape.targets_per_channel
    }

    fn is_free(&self, channel: u32, now: Time) -> bool {
        let bus = &self.channels[channel as usize];
        !bus.awaited && bus.until <= now
    }

    /// Sends the most urgent data out. The end of the transfer is always an event.
    fn send_data(&mut self, channel: u32, now: Time) {
        if !self.is_free(channel, now) {
            return;
        }
        let out = &mut self.channels[channel as usize].out;
        let next = (0..out.len()).min_by_key(|&index| (out[index].0, out[index].1));
        let Some((_, _, id)) = next.map(|index| out.swap_remove(index)) else { return };
        let bytes = self.operations[id as usize].bytes;
        let time = self.nand.read_setup.map_or(0, |setup| setup.0) + self.transfer_time(bytes);
        self.bus_busy += time;
        self.bytes += u64::from(bytes);
        let bus = &mut self.channels[channel as usize];
        bus.until = now + time;
        bus.awaited = true;
        bus.carries = Some(BusData::Out(id));
        self.events.push((bus.until, ChannelEvent::Bus(channel)));
        if self.rules.transfer_notices {
            self.notices.push(Notice::ReadTransferStarted(id));
        }
    }

    /// Sends commands until the bus is busy or no target has work that can start.
    fn send_commands(&mut self, channel: u32, which: Commands, now: Time) {
        let targets = self.targets_of(channel);
        if self.rules.turns {
            if self.channels[channel as usize].queued == 0 {
                return;
            }
            for _ in targets.clone() {
                if !self.is_free(channel, now) {
                    return;
                }
                let turn = self.channels[channel as usize].turn;
                let next = turn + 1;
                self.channels[channel as usize].turn = if next == targets.len() as u32 { 0 } else { next };
                if let Some(pair) = self.next_work(targets.start + turn, which, now) {
                    self.start(targets.start + turn, pair, now);
                }
            }
            return;
        }
        while self.channels[channel as usize].queued > 0 && self.is_free(channel, now) {
            let works = targets.clone().filter_map(|target| {
                let pair = self.next_work(target, which, now)?;
                let id = self.targets[target as usize].queues[pair.0].waiting().first()?.id;
                Some(((rank(pair.0), self.operations[id as usize].sequence), target, pair))
            });
            let Some((_, target, pair)) = works.min_by_key(|(key, ..)| *key) else { return };
            self.start(target, pair, now);
        }
    }

    /// The next work of a target, if it can accept a command.
    #[inline]
    fn next_work(&self, target: u32, which: Commands, now: Time) -> Option<Pair> {
        let waiting = self.waiting[target as usize];
        let allowed = match which {
            Commands::All => waiting != 0,
            Commands::OfReads => waiting & READS != 0,
            Commands::OfOthers => waiting & !READS != 0,
        };
        if !allowed {
            return None;
        }
        let pair = self.choose_work(target, waiting, now)?;
        match which {
            Commands::All => Some(pair),
            Commands::OfReads => (pair.0 <= MOVE).then_some(pair),
            Commands::OfOthers => (pair.0 > MOVE).then_some(pair),
        }
    }

    fn choose_work(&self, target: u32, waiting: u8, now: Time) -> Option<Pair> {
        let state = &self.targets[target as usize];
        if state.groups >= self.shape.registers || state.suspended && now < state.ready {
            return None;
        }
        if state.groups > 0 {
            return self.choose_ahead(target, waiting);
        }
        let has = |queue: usize| waiting >> queue & 1 != 0;
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
    fn choose_ahead(&self, target: u32, waiting: u8) -> Option<Pair> {
        let die = self.dies[target as usize];
        let suspended = self.targets[target as usize].suspended;
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
        let queue = self.targets[target as usize].queues[queue].waiting();
        queue.iter().any(|waiting| !self.operations[waiting.id as usize].blocked)
    }

    /// Starts operations of two queues on the dies of a target: the die of the first operation that can
    /// start, then the others, as many as may work at once.
    fn start(&mut self, target: u32, (first, second): Pair, now: Time) {
        let queue = self.targets[target as usize].queues[first].waiting();
        let head = queue.iter().find(|waiting| !self.operations[waiting.id as usize].blocked);
        let Some(head) = head else { return };
        let dies = self.dies_of(target);
        let mut die = head.die;
        let mut started = 0;
        for _ in dies.clone() {
            if started == self.shape.units {
                break;
            }
            if let Some((head, count)) = self.take_group(target, die, first, second) {
                started += 1;
                self.command(target, die, head, count, now);
            }
            die = if die + 1 == dies.end { dies.start } else { die + 1 };
        }
    }

    /// Takes a group from two queues for a die: the first operation that can start, and operations on
    /// the page of the same number in other planes. Returns the first operation, and the number of
    /// operations.
    fn take_group(&mut self, target: u32, die: u32, first: usize, second: usize) -> Option<(OpId, u32)> {
        let mut chosen: Option<(OpId, OpId)> = None;
        let (mut planes, mut count, mut page) = (0u64, 0, (0, false));
        for queue in [first, second] {
            if queue == second && first == second && chosen.is_some() {
                break;
            }
            let mut index = 0;
            while count < self.shape.planes_per_die {
                let waiting = self.targets[target as usize].queues[queue].waiting();
                let fits = |waiting: &QueuedOperation| {
                    waiting.die == die
                        && planes >> waiting.plane_bit & 1 == 0
                        && (count == 0 || waiting.page == page)
                        && !self.operations[waiting.id as usize].blocked
                };
                let Some(found) = waiting[index..].iter().position(fits) else { break };
                index += found;
                let QueuedOperation { id, page: its_page, plane_bit, .. } =
                    self.unqueue(target, queue, index);
                planes |= 1 << plane_bit;
                page = its_page;
                count += 1;
                chosen = match chosen {
                    None => Some((id, id)),
                    Some((head, last)) => {
                        self.operations[last as usize].next = id;
                        Some((head, id))
                    }
                };
            }
        }
        chosen.map(|(head, _)| (head, count))
    }

    /// The bus time of a number of bytes. The last result is kept: sizes repeat.
    pub(super) fn transfer_time(&mut self, bytes: u32) -> Time {
        let [last, page] = self.transfer;
        if bytes == page.0 {
            return page.1;
        }
        if bytes != last.0 {
            let (bytes_of, pages) = (u128::from(bytes), u128::from(page.0.max(1)));
            self.transfer[0] = (bytes, (bytes_of * u128::from(page.1) / pages) as Time);
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
