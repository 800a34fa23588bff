//! Buses, targets and dies: who works when ([`super::parallel`], 2 and 3).
//!
//! A *target* is what takes commands as one: a die, or a package of which only some dies work at once.
//! A *group* is what one command starts in a die: operations on pages of the same number in several
//! planes.
//!
//! ```text
//!   queues of the target --command, data in over the bus--> array --data out over the bus--> done
//!                         <----------- one register: one group at a time ----------->
//!                                        two registers: one group in the array, one on its way
//! ```

use std::collections::VecDeque;

use deepram_media::{Nand, NandOp};

use super::operation::{Operation, Source};
use super::parallel::{ParallelEvent, ParallelSsd};
use super::planes::NONE;
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Context;

/// The queues of a target, first served first within each.
const MAP_READ: usize = 0;
const HOST_READ: usize = 1;
const MOVE_READ: usize = 2;
const MAP_WRITE: usize = 3;
const HOST_WRITE: usize = 4;
const MOVE_WRITE: usize = 5;
const ERASE: usize = 6;

#[derive(Debug, Clone, Copy)]
struct Group {
    /// The first of its operations; the others follow by `next`.
    head: u32,
    /// Operations that are not over.
    left: u32,
    die: u32,
    op: NandOp,
    copy_back: bool,
    /// When its array work begins and ends.
    begin: Time,
    end: Time,
    /// Told apart from earlier works of the same number, so that the end of a suspended one is not
    /// mistaken for another's.
    work: u32,
}

#[derive(Debug, Clone, Copy)]
struct Die {
    /// The group whose array work is under way or comes next.
    active: u32,
    /// The group that has the other register and waits for the array.
    loaded: u32,
    suspended: u32,
}

/// An operation that waits, with what the choice of a die looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    number: u32,
    die: u32,
    /// The page in its block, and whether it is a copy-back: what a group has in common.
    page: (u32, bool),
    plane_bit: u8,
}

/// First come, first served, but for what is taken from the middle: a slice to look through.
#[derive(Debug, Clone, Default)]
struct Queue {
    items: Vec<Waiting>,
    first: usize,
}

impl Queue {
    #[inline]
    fn waiting(&self) -> &[Waiting] {
        &self.items[self.first..]
    }

    #[inline]
    fn push(&mut self, waiting: Waiting) {
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
    /// Groups that have a register.
    groups: u32,
    suspended: bool,
}

#[derive(Debug, Clone)]
struct Bus {
    /// Until when it moves something.
    until: Time,
    /// An event at its end is under way.
    awaited: bool,
    turn: u32,
    /// Data in registers: of mapping, host, reclamation.
    out: [VecDeque<u32>; 3],
    out_count: u32,
}

/// All buses and what hangs on them.
#[derive(Debug, Clone)]
pub(super) struct Buses {
    buses: Vec<Bus>,
    targets: Vec<Target>,
    /// Which queues of a target have something, one bit each; kept together for the scan.
    waiting: Vec<u8>,
    dies: Vec<Die>,
    groups: Vec<Group>,
    spare_groups: Vec<u32>,
    nand: Nand,
    held: VecDeque<u32>,
    /// Targets of a bus, dies of a target, dies of a target that work at once, registers of a plane.
    per_bus: u32,
    dies_per_target: u32,
    units: u32,
    registers: u32,
    planes_per_die: u32,
    pub(super) bus_busy_ps: u64,
    pub(super) array_busy_ps: u64,
    pub(super) bus_bytes: u64,
    /// Time of a byte on the bus, as bytes and picoseconds of a page.
    page_bytes: u64,
    page_ps: u64,
    /// What a suspension adds to the first command after it.
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

impl Buses {
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
            held: VecDeque::new(),
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

    fn new_group(&mut self, group: Group) -> u32 {
        match self.spare_groups.pop() {
            Some(number) => {
                let work = self.groups[number as usize].work + 1;
                self.groups[number as usize] = Group { work, ..group };
                number
            }
            None => {
                self.groups.push(group);
                (self.groups.len() - 1) as u32
            }
        }
    }

    /// The group's register is free.
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
        (NandOp::Read, Source::Mapping) => MAP_READ,
        (NandOp::Read, Source::Host | Source::Buffer | Source::Merge) => HOST_READ,
        (NandOp::Read, Source::Move) => MOVE_READ,
        (NandOp::Program, Source::Mapping) => MAP_WRITE,
        (NandOp::Program, Source::Move) => MOVE_WRITE,
        (NandOp::Program, _) => HOST_WRITE,
        (NandOp::Erase, _) => ERASE,
    }
}

impl ParallelSsd {
    /// Puts an operation into its target's queue, by way of the one queue of the translation layer if
    /// the targets' queues are limited: its head holds up all others when its target's queue is full.
    pub(super) fn enqueue(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        if self.options.die_queue > 0
            && matches!(self.operations.get(number).source, Source::Host | Source::Buffer)
        {
            self.bus.held.push_back(number);
            return self.let_through(context);
        }
        self.hand_over(number, context)
    }

    fn let_through(&mut self, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let limit = self.options.die_queue as usize * self.bus.dies_per_target as usize;
        while let Some(number) = self.bus.held.front().copied() {
            let target = &self.bus.targets[self.operations.get(number).target as usize];
            let waiting = |queue: usize| target.queues[queue].waiting().len();
            if waiting(HOST_READ) + waiting(HOST_WRITE) >= limit {
                break;
            }
            self.bus.held.pop_front();
            self.hand_over(number, context)?;
        }
        Ok(())
    }

    #[inline]
    fn hand_over(&mut self, number: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let operation = self.operations.get(number);
        let (target, queue) = (operation.target, queue_of(operation));
        let Operation { page, die, plane_bit, copy_back, .. } = *operation;
        let waiting = Waiting { number, die, page: (page, copy_back), plane_bit };
        self.bus.targets[target as usize].queues[queue].push(waiting);
        self.bus.waiting[target as usize] |= 1 << queue;
        let may_start = self.bus.targets[target as usize].groups == 0
            || self.bus.registers > 1
            || self.options.suspend_programs
            || self.options.suspend_erases;
        if may_start {
            self.ask_bus(self.bus.bus_of(target), context);
        }
        Ok(())
    }

    /// An operation may start now.
    pub(super) fn wake(&mut self, number: u32, context: &mut Context<ParallelEvent>) {
        self.ask_bus(self.bus.bus_of(self.operations.get(number).target), context);
    }

    /// Somebody may want the bus: now if it is free, else at its end.
    #[inline]
    fn ask_bus(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        let state = &mut self.bus.buses[bus as usize];
        if state.awaited {
            return;
        }
        if state.until > context.now() {
            state.awaited = true;
            context.schedule(state.until, ParallelEvent::BusFree(bus));
            return;
        }
        self.serve_bus(bus, context);
    }

    /// The bus has moved what it moved, and somebody waits for it.
    pub(super) fn bus_free(
        &mut self,
        bus: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        self.bus.buses[bus as usize].awaited = false;
        self.serve_bus(bus, context);
        self.let_through(context)
    }

    /// Gives a free bus to data that wait, or to commands.
    fn serve_bus(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        if self.options.commands_first {
            self.serve_commands(bus, context);
            self.serve_data(bus, context);
        } else {
            self.serve_data(bus, context);
            self.serve_commands(bus, context);
        }
        // Whoever could go on at once but for the bus is served at its end.
        let state = &self.bus.buses[bus as usize];
        if state.awaited || state.until <= context.now() {
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
            context.schedule(state.until, ParallelEvent::BusFree(bus));
        }
    }

    fn serve_data(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        let now = context.now();
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
        // The end of the transfer is an event in any case.
        state.awaited = true;
        context.schedule(state.until, ParallelEvent::Moved(number));
    }

    fn serve_commands(&mut self, bus: u32, context: &mut Context<ParallelEvent>) {
        let per_bus = self.bus.per_bus;
        for _ in 0..per_bus {
            let state = &mut self.bus.buses[bus as usize];
            if state.awaited || state.until > context.now() {
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

    /// Starts what a target can start.
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
            // Reclamation reads when the host has nothing to write.
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

    /// Fills the second register of a target at work with more of the same: reads while data leave the
    /// first, data to program while the array works. False if there is nothing, or no register.
    fn load_ahead(&mut self, target: u32, context: &mut Context<ParallelEvent>) -> bool {
        let state = &self.bus.targets[target as usize];
        if state.groups >= self.bus.registers || state.suspended {
            return false;
        }
        let die = self.bus.dies[target as usize];
        let op = match self.bus.groups.get(die.active as usize) {
            Some(group) if group.copy_back => return false,
            Some(group) => group.op,
            // The array is idle: data of a read leave.
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

    /// True if reclamation goes before the host in this target: always if the options say so, else where
    /// a plane has nearly no free block.
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

    /// Starts operations of two queues on the dies of a target; false if none may start.
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
            if !busy && let Some((head, count)) = self.choose(target, die, first, second) {
                started += 1;
                self.command(target, die, head, count, context);
            }
            die = if die + 1 == dies.end { dies.start } else { die + 1 };
        }
        started > 0
    }

    /// Takes from two queues what a die can do with one command: the first operation that may start, and
    /// those on the page of the same number in other planes.
    fn choose(&mut self, target: u32, die: u32, first: usize, second: usize) -> Option<(u32, u32)> {
        let mut chosen: Option<(u32, u32)> = None;
        let (mut planes, mut count, mut page) = (0u64, 0, (0, false));
        for queue in [first, second] {
            if queue == second && first == second && chosen.is_some() {
                break;
            }
            let mut index = 0;
            while count < self.bus.planes_per_die {
                let waiting = self.bus.targets[target as usize].queues[queue].waiting();
                let fits = |waiting: &Waiting| {
                    waiting.die == die
                        && planes >> waiting.plane_bit & 1 == 0
                        && (count == 0 || waiting.page == page)
                        && !self.operations.get(waiting.number).blocked
                };
                let Some(found) = waiting[index..].iter().position(fits) else { break };
                index += found;
                let Waiting { number, page: its_page, plane_bit, .. } = waiting[index];
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

    /// Sends a group's command over the bus, behind those of other dies of the target, and lets the die
    /// work then.
    fn command(
        &mut self,
        target: u32,
        die: u32,
        head: u32,
        count: u32,
        context: &mut Context<ParallelEvent>,
    ) {
        let now = context.now();
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
        let group = Group { head, left: count, die, op, copy_back, begin, end, work: 0 };
        let group = self.bus.new_group(group);
        let state = &mut self.bus.dies[die as usize];
        if state.active == NONE {
            state.active = group;
        } else {
            state.loaded = group;
        }
        self.bus.targets[target as usize].groups += 1;
        context.schedule(end, ParallelEvent::Worked(group, self.bus.groups[group as usize].work));
    }

    /// The array work of a group is over.
    pub(super) fn worked(
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
                    Source::Mapping => 0,
                    Source::Host | Source::Buffer | Source::Merge => 1,
                    Source::Move => 2,
                };
                state.out[class].push_back(next);
                state.out_count += 1;
                // From now on it names its group.
                next = std::mem::replace(&mut operation.next, number);
            }
        } else {
            self.bus.end_group(number, target);
            while next != NONE {
                let operation = *self.operations.get(next);
                if operation.source == Source::Buffer {
                    self.release_buffer(operation.owner);
                }
                self.finish(next, context)?;
                next = operation.next;
            }
        }
        self.ask_bus(bus, context);
        self.let_through(context)
    }

    /// The data of a read are out.
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
        // The bus is still this transfer's while what depends on it is queued.
        self.finish(number, context)?;
        let bus = self.bus.bus_of(target);
        self.bus.buses[bus as usize].awaited = false;
        self.serve_bus(bus, context);
        self.let_through(context)
    }

    /// Suspends programs and erases for reads, where the part and the options allow it.
    fn suspend(&mut self, target: u32, context: &mut Context<ParallelEvent>) {
        if !self.options.suspend_programs && !self.options.suspend_erases {
            return;
        }
        let now = context.now();
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
        // A group that has its register and does not work leaves no room.
        if working == 0 || working != self.bus.targets[target as usize].groups {
            return;
        }
        for die in self.bus.dies_of(target) {
            let die = &mut self.bus.dies[die as usize];
            if let Some(group) = self.bus.groups.get_mut(die.active as usize) {
                die.suspended = std::mem::replace(&mut die.active, NONE);
                // What is left of the work, until it goes on.
                group.end -= now;
                group.begin = 0;
                group.work += 1;
                self.counts.suspensions += 1;
            }
        }
        let state = &mut self.bus.targets[target as usize];
        state.groups = 0;
        state.suspended = true;
        // The suspension is answered before the first command after it.
        self.bus.delay = cost;
        let started = self.start(target, MAP_READ, HOST_READ, context)
            || self.start(target, HOST_READ, HOST_READ, context);
        self.bus.delay = 0;
        if !started {
            self.resume(target, context);
        }
    }

    /// Lets suspended work go on.
    fn resume(&mut self, target: u32, context: &mut Context<ParallelEvent>) {
        let now = context.now();
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
                context.schedule(group.end, ParallelEvent::Worked(number, group.work));
            }
        }
    }
}
