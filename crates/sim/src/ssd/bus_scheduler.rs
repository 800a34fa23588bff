//! The scheduling of buses, targets and dies (rules 2 and 3 of `parallel`).
//!
//! A *target* accepts one command at a time: a die, or a package of which only some dies work at once. A
//! *group* is the work that one command starts in a die: operations on pages of the same number in
//! several planes.
//!
//! ```text
//!   queues of the target --command, data in over the bus--> array --data out over the bus--> done
//!                         <----------- one register: one group at a time ----------->
//!                                        two registers: one group in the array, one in transfer
//! ```

use deepram_core::units::Picos;
use std::collections::VecDeque;

use deepram_media::{Nand, NandOp};

use super::operation::{Operation, OperationSource};
use super::parallel::{ParallelEvent, ParallelSsd};
use super::planes::NONE;
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Context;

/// The queues of a target; each is first come, first served.
const MAP_READ: usize = 0;
const HOST_READ: usize = 1;
const MOVE_READ: usize = 2;
const MAP_WRITE: usize = 3;
const HOST_WRITE: usize = 4;
const MOVE_WRITE: usize = 5;
const ERASE: usize = 6;

#[derive(Debug, Clone, Copy)]
struct OperationGroup {
    /// The group's first operation; the others follow by `next`.
    head: u32,
    /// Operations that are not complete.
    left: u32,
    die: u32,
    op: NandOp,
    copy_back: bool,
    /// The times at which the array work begins and ends.
    begin: Time,
    end: Time,
    /// The generation of the group's array work, which distinguishes it from earlier work under the same
    /// number: the end event of suspended work is then ignored.
    work: u32,
}

#[derive(Debug, Clone, Copy)]
struct Die {
    /// The group whose array work is under way or starts next.
    active: u32,
    /// The group that occupies the other register and waits for the array.
    loaded: u32,
    suspended: u32,
}

/// A queued operation, with the data that the choice of a group needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QueuedOperation {
    number: u32,
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
    fn remove(&mut self, index: usize) {
        if index == 0 {
            self.first += 1;
        } else {
            self.items.remove(self.first + index);
        }
    }
}

#[derive(Debug, Clone)]
struct Target {
    queues: [Queue; 7],
    /// Groups that occupy a register.
    groups: u32,
    suspended: bool,
}

#[derive(Debug, Clone)]
struct Bus {
    /// The end of the present transfer.
    until: Time,
    /// An event is scheduled at the end of the present transfer.
    awaited: bool,
    turn: u32,
    /// Operations whose data wait in registers: of mapping, host, reclamation.
    out: [VecDeque<u32>; 3],
    out_count: u32,
}

/// All buses with their targets and dies.
#[derive(Debug, Clone)]
pub(super) struct BusScheduler {
    buses: Vec<Bus>,
    targets: Vec<Target>,
    /// The non-empty queues of each target, one bit each; stored compactly for the scan.
    waiting: Vec<u8>,
    dies: Vec<Die>,
    groups: Vec<OperationGroup>,
    spare_groups: Vec<u32>,
    nand: Nand,
    held_back: VecDeque<u32>,
    /// Targets per bus, dies per target, dies of a target that work at once, registers per plane.
    per_bus: u32,
    dies_per_target: u32,
    units: u32,
    registers: u32,
    planes_per_die: u32,
    pub(super) bus_busy_ps: u64,
    pub(super) array_busy_ps: u64,
    pub(super) bus_bytes: u64,
    /// The bus rate: bytes of a page, and picoseconds of its transfer.
    page_bytes: u64,
    page_ps: u64,
    /// The time that a suspension adds to the first command after it.
    delay: Time,
}

/// The shape of the buses.
#[derive(Debug, Clone, Copy)]
pub(super) struct BusShape {
    pub(super) buses: u32,
    pub(super) targets_per_bus: u32,
    pub(super) dies_per_target: u32,
    pub(super) units: u32,
    pub(super) registers: u32,
    pub(super) planes_per_die: u32,
}

impl BusScheduler {
    pub(super) fn new(nand: &Nand, shape: BusShape) -> Self {
        let target = Target { queues: Default::default(), groups: 0, suspended: false };
        let bus = Bus { until: 0, awaited: false, turn: 0, out: Default::default(), out_count: 0 };
        let targets = (shape.buses * shape.targets_per_bus) as usize;
        let die = Die { active: NONE, loaded: NONE, suspended: NONE };
        Self {
            buses: vec![bus; shape.buses as usize],
            targets: vec![target; targets],
            waiting: vec![0; targets],
            dies: vec![die; targets * shape.dies_per_target as usize],
            groups: Vec::new(),
            spare_groups: Vec::new(),
            nand: nand.clone(),
            held_back: VecDeque::new(),
            per_bus: shape.targets_per_bus,
            dies_per_target: shape.dies_per_target,
            units: shape.units,
            registers: shape.registers,
            planes_per_die: shape.planes_per_die,
            bus_busy_ps: 0,
            array_busy_ps: 0,
            bus_bytes: 0,
            page_bytes: nand.page.0.max(1),
            page_ps: nand.page_transfer().0,
            delay: 0,
        }
    }

    fn bytes_ps(&self, bytes: u32) -> Time {
        if u64::from(bytes) == self.page_bytes {
            return self.page_ps;
        }
        match u64::from(bytes).checked_mul(self.page_ps) {
            Some(product) => product / self.page_bytes,
            None => (u128::from(bytes) * u128::from(self.page_ps) / u128::from(self.page_bytes)) as Time,
        }
    }

    fn waits(&self, target: u32, queue: usize) -> bool {
        self.waiting[target as usize] >> queue & 1 != 0
    }

    fn bus_of(&self, target: u32) -> u32 {
        target / self.per_bus
    }

    fn dies_of(&self, target: u32) -> std::ops::Range<u32> {
        target * self.dies_per_target..(target + 1) * self.dies_per_target
    }

    fn new_group(&mut self, group: OperationGroup) -> u32 {
        match self.spare_groups.pop() {
            Some(number) => {
                let work = self.groups[number as usize].work + 1;
                self.groups[number as usize] = OperationGroup { work, ..group };
                number
            }
            None => {
                self.groups.push(group);
                (self.groups.len() - 1) as u32
            }
        }
    }

    /// Ends a group, whose register is then free.
    fn end_group(&mut self, number: u32, target: u32) {
        self.groups[number as usize].work += 1;
        self.spare_groups.push(number);
        self.targets[target as usize].groups -= 1;
    }

    fn take(&mut self, target: u32, queue: usize, index: usize) {
        let queue_of = &mut self.targets[target as usize].queues[queue];
        queue_of.remove(index);
        if queue_of.waiting().is_empty() {
            self.waiting[target as usize] &= !(1 << queue);
        }
    }
}

fn queue_of(operation: &Operation) -> usize {
    match (operation.op, operation.source) {
        (NandOp::Read, OperationSource::Mapping) => MAP_READ,
        (NandOp::Read, OperationSource::Host | OperationSource::Buffer | OperationSource::Merge) => HOST_READ,
        (NandOp::Read, OperationSource::Move) => MOVE_READ,
        (NandOp::Program, OperationSource::Mapping) => MAP_WRITE,
        (NandOp::Program, OperationSource::Move) => MOVE_WRITE,
        (NandOp::Program, _) => HOST_WRITE,
        (NandOp::Erase, _) => ERASE,
    }
}

impl ParallelSsd {
    /// Queues an operation at its target. If the targets' queues are limited, host operations pass
    /// through one queue of the translation layer, whose head blocks the others while its target's queue
    /// is full.
    pub(super) fn enqueue(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        if self.options.die_queue > 0
            && matches!(self.operations.get(number).source, OperationSource::Host | OperationSource::Buffer)
        {
            self.bus.held_back.push_back(number);
            return self.dispatch_held(context);
        }
        self.queue_operation(number, context)
    }

    fn dispatch_held(&mut self, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let limit = self.options.die_queue as usize * self.bus.dies_per_target as usize;
        while let Some(number) = self.bus.held_back.front().copied() {
            let target = &self.bus.targets[self.operations.get(number).target as usize];
            let waiting = |queue: usize| target.queues[queue].waiting().len();
            if waiting(HOST_READ) + waiting(HOST_WRITE) >= limit {
                break;
            }
            self.bus.held_back.pop_front();
            self.queue_operation(number, context)?;
        }
        Ok(())
    }

    #[inline]
    fn queue_operation(&mut self, number: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let operation = self.operations.get(number);
        let (target, queue) = (operation.target, queue_of(operation));
        let Operation { page, die, plane_bit, copy_back, .. } = *operation;
        let waiting = QueuedOperation { number, die, page: (page, copy_back), plane_bit };
        self.bus.targets[target as usize].queues[queue].push(waiting);
        self.bus.waiting[target as usize] |= 1 << queue;
        let may_start = self.bus.targets[target as usize].groups == 0
            || self.bus.registers > 1
            || self.options.suspend_programs
            || self.options.suspend_erases;
        if may_start {
            self.request_bus(self.bus.bus_of(target), context);
        }
        Ok(())
    }

    /// Continues an operation that is no longer blocked.
    pub(super) fn wake(&mut self, number: u32, context: &mut Context<ParallelEvent>) {
        self.request_bus(self.bus.bus_of(self.operations.get(number).target), context);
    }

    /// Requests the bus: serves it now if it is free, else at the end of its transfer.
    #[inline]
    fn request_bus(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        let state = &mut self.bus.buses[bus as usize];
        if state.awaited {
            return;
        }
        if state.until > context.now().0 {
            state.awaited = true;
            context.schedule(Picos(state.until), ParallelEvent::BusFree(bus));
            return;
        }
        self.serve_bus(bus, context);
    }

    /// Handles the end of a bus transfer that others wait for.
    pub(super) fn bus_free(
        &mut self,
        bus: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        self.bus.buses[bus as usize].awaited = false;
        self.serve_bus(bus, context);
        self.dispatch_held(context)
    }

    /// Gives a free bus to waiting data or to commands.
    fn serve_bus(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        if self.options.commands_first {
            self.serve_commands(bus, context);
            self.serve_data(bus, context);
        } else {
            self.serve_data(bus, context);
            self.serve_commands(bus, context);
        }
        // Work that only lacks the bus is served at the end of the transfer.
        let state = &self.bus.buses[bus as usize];
        if state.awaited || state.until <= context.now().0 {
            return;
        }
        let first = bus * self.bus.per_bus;
        let wanted = state.out_count > 0
            || (first..first + self.bus.per_bus).any(|target| {
                (self.bus.waiting[target as usize] != 0 || self.bus.targets[target as usize].suspended)
                    && (self.bus.registers > 1 || self.bus.targets[target as usize].groups == 0)
            });
        if wanted {
            let state = &mut self.bus.buses[bus as usize];
            state.awaited = true;
            context.schedule(Picos(state.until), ParallelEvent::BusFree(bus));
        }
    }

    fn serve_data(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        let now = context.now().0;
        let state = &mut self.bus.buses[bus as usize];
        if state.out_count == 0 || state.awaited || state.until > now {
            return;
        }
        let Some(number) = state.out.iter_mut().find_map(VecDeque::pop_front) else { return };
        state.out_count -= 1;
        let bytes = self.operations.get(number).bytes;
        let time = self.bus.nand.read_setup.map_or(0, |t| t.0) + self.bus.bytes_ps(bytes);
        self.bus.bus_busy_ps += time;
        self.bus.bus_bytes += u64::from(bytes);
        let state = &mut self.bus.buses[bus as usize];
        state.until = now + time;
        // The end of a data transfer is always an event.
        state.awaited = true;
        context.schedule(Picos(state.until), ParallelEvent::TransferDone(number));
    }

    fn serve_commands(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        let per_bus = self.bus.per_bus;
        for _ in 0..per_bus {
            let state = &mut self.bus.buses[bus as usize];
            if state.awaited || state.until > context.now().0 {
                return;
            }
            let turn = state.turn;
            state.turn = if turn + 1 == per_bus { 0 } else { turn + 1 };
            let target = bus * per_bus + turn;
            if self.bus.waiting[target as usize] != 0 || self.bus.targets[target as usize].suspended {
                self.serve_target(target, context);
            }
        }
    }

    /// Starts the next work of a target.
    fn serve_target(&mut self, target: u32, context: &mut Context<ParallelEvent>) {
        let waits = |queue| self.bus.waits(target, queue);
        if self.bus.targets[target as usize].groups > 0 {
            if self.bus.registers > 1 && self.load_ahead(target, context) {
                return;
            }
            if self.bus.waits(target, MAP_READ) || self.bus.waits(target, HOST_READ) {
                self.suspend(target, context);
            }
            return;
        }
        let urgent = self.is_urgent(target);
        let moving = waits(MOVE_WRITE) || waits(ERASE);
        let reads = match (waits(MAP_READ), waits(HOST_READ), waits(MOVE_READ)) {
            (true, _, true) if urgent => Some((MAP_READ, MOVE_READ)),
            (true, true, _) => Some((MAP_READ, HOST_READ)),
            (true, false, _) => Some((MAP_READ, MOVE_READ)),
            (_, _, true) if urgent => Some((MOVE_READ, HOST_READ)),
            (_, true, _) if !urgent || !moving => Some((HOST_READ, MOVE_READ)),
            // Reclamation reads when the host has no write.
            (_, false, true) if !waits(HOST_WRITE) && !waits(MAP_WRITE) => Some((MOVE_READ, MOVE_READ)),
            _ => None,
        };
        if let Some((first, second)) = reads
            && self.start(target, first, second, context)
        {
            return;
        }
        if self.bus.targets[target as usize].suspended {
            self.resume(target, context);
            return;
        }
        let order = if urgent {
            [
                (MAP_WRITE, MOVE_WRITE),
                (MOVE_WRITE, HOST_WRITE),
                (ERASE, ERASE),
                (HOST_WRITE, HOST_WRITE),
                (HOST_READ, HOST_READ),
            ]
        } else {
            [
                (MAP_WRITE, HOST_WRITE),
                (HOST_WRITE, MOVE_WRITE),
                (MOVE_WRITE, MOVE_WRITE),
                (MOVE_READ, MOVE_READ),
                (ERASE, ERASE),
            ]
        };
        for (first, second) in order {
            if self.start(target, first, second, context) {
                return;
            }
        }
    }

    /// Fills the second register of a busy target with work of the same kind: reads while data leave the
    /// first register, program data while the array works. Returns false if there is no such work or no
    /// register.
    fn load_ahead(&mut self, target: u32, context: &mut Context<ParallelEvent>) -> bool {
        let state = &self.bus.targets[target as usize];
        if state.groups >= self.bus.registers || state.suspended {
            return false;
        }
        let die = self.bus.dies[target as usize];
        let op = match self.bus.groups.get(die.active as usize) {
            Some(group) if group.copy_back => return false,
            Some(group) => group.op,
            // The array is idle and the data of a read are leaving.
            None => NandOp::Read,
        };
        let reads = self.bus.waits(target, MAP_READ) || self.bus.waits(target, HOST_READ);
        let order: &[(usize, usize)] = match op {
            NandOp::Read => &[(MAP_READ, HOST_READ), (HOST_READ, MOVE_READ), (MOVE_READ, MOVE_READ)],
            NandOp::Program if !reads => {
                &[(MAP_WRITE, HOST_WRITE), (HOST_WRITE, MOVE_WRITE), (MOVE_WRITE, MOVE_WRITE)]
            }
            NandOp::Program | NandOp::Erase => &[],
        };
        order.iter().any(|(first, second)| self.start(target, *first, *second, context))
    }

    /// True if reclamation has priority over the host in this target: always if the options say so, else
    /// where a plane has nearly no free block.
    fn is_urgent(&self, target: u32) -> bool {
        if self.options.reclaim_first {
            return true;
        }
        if self.planes.lowest() >= self.urgent_below {
            return false;
        }
        let planes = self.bus.dies_per_target * self.bus.planes_per_die;
        (target * planes..(target + 1) * planes).any(|plane| self.planes.free(plane) < self.urgent_below)
    }

    /// Starts operations of two queues on the dies of a target. Returns false if none can start.
    fn start(
        &mut self,
        target: u32,
        first: usize,
        second: usize,
        context: &mut Context<ParallelEvent>,
    ) -> bool {
        if !self.bus.waits(target, first) && !self.bus.waits(target, second) {
            return false;
        }
        let head = self.bus.targets[target as usize].queues[first]
            .waiting()
            .iter()
            .find(|waiting| !self.operations.get(waiting.number).blocked);
        let Some(head) = head else { return false };
        let dies = self.bus.dies_of(target);
        let mut die = head.die;
        let mut started = 0;
        for _ in dies.clone() {
            if started == self.bus.units {
                break;
            }
            let busy = self.bus.registers == 1 && self.bus.dies[die as usize].active != NONE;
            if !busy && let Some((head, count)) = self.choose_group(target, die, first, second) {
                started += 1;
                self.command(target, die, head, count, context);
            }
            die = if die + 1 == dies.end { dies.start } else { die + 1 };
        }
        started > 0
    }

    /// Takes a group from two queues for a die: the first operation that can start, and operations on
    /// the page of the same number in other planes. Returns the first operation, and the number of
    /// operations.
    fn choose_group(&mut self, target: u32, die: u32, first: usize, second: usize) -> Option<(u32, u32)> {
        let mut chosen: Option<(u32, u32)> = None;
        let (mut planes, mut count, mut page) = (0u64, 0, (0, false));
        for queue in [first, second] {
            if queue == second && first == second && chosen.is_some() {
                break;
            }
            let mut index = 0;
            while count < self.bus.planes_per_die {
                let waiting = self.bus.targets[target as usize].queues[queue].waiting();
                let fits = |waiting: &QueuedOperation| {
                    waiting.die == die
                        && planes >> waiting.plane_bit & 1 == 0
                        && (count == 0 || waiting.page == page)
                        && !self.operations.get(waiting.number).blocked
                };
                let Some(found) = waiting[index..].iter().position(fits) else { break };
                index += found;
                let QueuedOperation { number, page: its_page, plane_bit, .. } = waiting[index];
                planes |= 1 << plane_bit;
                page = its_page;
                count += 1;
                chosen = match chosen {
                    None => Some((number, number)),
                    Some((head, last)) => {
                        self.operations.get_mut(last).next = number;
                        Some((head, number))
                    }
                };
                self.bus.take(target, queue, index);
            }
        }
        chosen.map(|(head, _)| (head, count))
    }

    /// Sends a group's command over the bus, behind those of the target's other dies, and schedules the
    /// die's array work after it.
    fn command(
        &mut self,
        target: u32,
        die: u32,
        head: u32,
        count: u32,
        context: &mut Context<ParallelEvent>,
    ) {
        let now = context.now().0;
        let first = *self.operations.get(head);
        let planes = u64::from(count);
        if planes > 1 {
            self.counts.multi_plane += 1;
            match first.op {
                NandOp::Read => self.counts.multi_plane_reads += planes,
                NandOp::Program => self.counts.multi_plane_programs += planes,
                NandOp::Erase => {}
            }
        }
        let mut time = self.bus.nand.command_time(first.op, planes).0 + std::mem::take(&mut self.bus.delay);
        if first.op == NandOp::Program {
            let mut number = head;
            while number != NONE {
                let Operation { bytes, next, .. } = *self.operations.get(number);
                time += self.bus.bytes_ps(bytes);
                self.bus.bus_bytes += u64::from(bytes);
                number = next;
            }
        }
        let mut work = self.bus.nand.array_time(first.op).0;
        if first.copy_back {
            time += self.bus.nand.command_time(NandOp::Program, planes).0;
            work += self.bus.nand.array_time(NandOp::Program).0;
        }
        self.bus.bus_busy_ps += time;
        self.bus.array_busy_ps += work;
        let bus = self.bus.bus_of(target);
        let bus = &mut self.bus.buses[bus as usize];
        bus.until = bus.until.max(now) + time;
        let mut begin = bus.until;
        let active = self.bus.dies[die as usize].active;
        if let Some(active) = self.bus.groups.get(active as usize) {
            begin = begin.max(active.end);
        }
        let end = begin + work;
        let (op, copy_back) = (first.op, first.copy_back);
        let group = OperationGroup { head, left: count, die, op, copy_back, begin, end, work: 0 };
        let group = self.bus.new_group(group);
        let state = &mut self.bus.dies[die as usize];
        if state.active == NONE {
            state.active = group;
        } else {
            state.loaded = group;
        }
        self.bus.targets[target as usize].groups += 1;
        context.schedule(Picos(end), ParallelEvent::ArrayDone(group, self.bus.groups[group as usize].work));
    }

    /// Handles the end of a group's array work.
    pub(super) fn array_done(
        &mut self,
        number: u32,
        work: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let group = self.bus.groups[number as usize];
        if group.work != work {
            return Ok(());
        }
        let die = &mut self.bus.dies[group.die as usize];
        die.active = std::mem::replace(&mut die.loaded, NONE);
        let target = group.die / self.bus.dies_per_target;
        let bus = self.bus.bus_of(target);
        let mut next = group.head;
        if group.op == NandOp::Read && !group.copy_back {
            let state = &mut self.bus.buses[bus as usize];
            while next != NONE {
                let operation = self.operations.get_mut(next);
                let class = match operation.source {
                    OperationSource::Mapping => 0,
                    OperationSource::Host | OperationSource::Buffer | OperationSource::Merge => 1,
                    OperationSource::Move => 2,
                };
                state.out[class].push_back(next);
                state.out_count += 1;
                // From now on `next` holds the operation's group.
                next = std::mem::replace(&mut operation.next, number);
            }
        } else {
            self.bus.end_group(number, target);
            while next != NONE {
                let operation = *self.operations.get(next);
                if operation.source == OperationSource::Buffer {
                    self.release_buffer(operation.owner);
                }
                self.finish(next, context)?;
                next = operation.next;
            }
        }
        self.request_bus(bus, context);
        self.dispatch_held(context)
    }

    /// Handles the end of the data transfer of a read.
    pub(super) fn data_out(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let Operation { target, next: group, .. } = *self.operations.get(number);
        let left = &mut self.bus.groups[group as usize].left;
        *left -= 1;
        if *left == 0 {
            self.bus.end_group(group, target);
        }
        // The bus counts as busy while dependent operations are queued.
        self.finish(number, context)?;
        let bus = self.bus.bus_of(target);
        self.bus.buses[bus as usize].awaited = false;
        self.serve_bus(bus, context);
        self.dispatch_held(context)
    }

    /// Suspends programs and erases of a target for reads, where the part and the options allow it.
    fn suspend(&mut self, target: u32, context: &mut Context<ParallelEvent>) {
        if !self.options.suspend_programs && !self.options.suspend_erases {
            return;
        }
        let now = context.now().0;
        if self.bus.targets[target as usize].suspended {
            return;
        }
        let (mut cost, mut working) = (0, 0);
        for die in
            &self.bus.dies[self.bus.dies_of(target).start as usize..self.bus.dies_of(target).end as usize]
        {
            let Some(group) = self.bus.groups.get(die.active as usize) else { continue };
            let time = match group.op {
                NandOp::Program if self.options.suspend_programs => self.bus.nand.suspend_program,
                NandOp::Erase if self.options.suspend_erases => self.bus.nand.suspend_erase,
                _ => None,
            };
            let Some(time) = time else { return };
            if group.copy_back || group.begin > now || group.end.saturating_sub(now) <= time.0 {
                return;
            }
            working += 1;
            cost = cost.max(time.0);
        }
        // A group that occupies its register without array work leaves no room for a read.
        if working == 0 || working != self.bus.targets[target as usize].groups {
            return;
        }
        for die in self.bus.dies_of(target) {
            let die = &mut self.bus.dies[die as usize];
            if let Some(group) = self.bus.groups.get_mut(die.active as usize) {
                die.suspended = std::mem::replace(&mut die.active, NONE);
                // While suspended, `end` holds the remaining work.
                group.end -= now;
                group.begin = 0;
                group.work += 1;
                self.counts.suspensions += 1;
            }
        }
        let state = &mut self.bus.targets[target as usize];
        state.groups = 0;
        state.suspended = true;
        // The suspension's time passes before the first command after it.
        self.bus.delay = cost;
        let started = self.start(target, MAP_READ, HOST_READ, context)
            || self.start(target, HOST_READ, HOST_READ, context);
        self.bus.delay = 0;
        if !started {
            self.resume(target, context);
        }
    }

    /// Resumes suspended work of a target.
    fn resume(&mut self, target: u32, context: &mut Context<ParallelEvent>) {
        let now = context.now().0;
        self.bus.targets[target as usize].suspended = false;
        for die in self.bus.dies_of(target) {
            let die = &mut self.bus.dies[die as usize];
            let number = std::mem::replace(&mut die.suspended, NONE);
            if let Some(group) = self.bus.groups.get_mut(number as usize) {
                die.active = number;
                group.begin = now;
                group.end += now;
                group.work += 1;
                self.bus.targets[target as usize].groups += 1;
                context.schedule(Picos(group.end), ParallelEvent::ArrayDone(number, group.work));
            }
        }
    }
}
