//! Buses, packages and dies: who works when ([`super::parallel`], 2 and 3).

use std::collections::VecDeque;

use deepram_media::{Nand, NandOp, Ssd};

use super::parallel::{Operation, ParallelEvent, ParallelSsd, Place, Source};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Context;

/// The queues of a package, first served first within each.
const MAP_READ: usize = 0;
const HOST_READ: usize = 1;
const MOVE_READ: usize = 2;
const MAP_WRITE: usize = 3;
const HOST_WRITE: usize = 4;
const MOVE_WRITE: usize = 5;
const ERASE: usize = 6;

#[derive(Debug, Clone, Default)]
struct Die {
    operations: Vec<u32>,
    /// When the array work under way ends.
    end: Time,
    working: bool,
    /// Counts array works, so that the end of a suspended one is not mistaken for another's.
    work: u32,
    suspended: Vec<u32>,
    remaining: Time,
}

#[derive(Debug, Clone)]
struct Package {
    /// Which queues have something, one bit each.
    waiting: u8,
    queues: [VecDeque<u32>; 7],
    dies: Vec<Die>,
    /// Dies whose commands wait for the bus or are on it, with their bus times.
    commands: VecDeque<(u32, Time)>,
    working: u32,
    /// Pages read that are not out yet.
    registers: u32,
    suspended: bool,
}

impl Package {
    fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.working == 0 && self.registers == 0
    }

    fn waits(&self, queue: usize) -> bool {
        self.waiting >> queue & 1 != 0
    }
}

#[derive(Debug, Clone, Default)]
struct Bus {
    busy: bool,
    turn: u32,
    /// Data in registers: of mapping, host, reclamation.
    out: [VecDeque<u32>; 3],
}

/// All buses and what hangs on them.
#[derive(Debug, Clone)]
pub(super) struct Buses {
    buses: Vec<Bus>,
    packages: Vec<Package>,
    nand: Nand,
    held: VecDeque<u32>,
    pub(super) bus_busy_ps: u64,
    pub(super) array_busy_ps: u64,
    /// Time of a byte on the bus, as bytes and picoseconds of a page.
    page_bytes: u64,
    page_ps: u64,
    /// What a suspension adds to the first command after it.
    delay: Time,
    /// A vector kept for its room.
    scratch: Vec<u32>,
}

impl Buses {
    pub(super) fn new(ssd: &Ssd, channels: u32, ways: u32, dies: u32) -> Self {
        let package = Package {
            waiting: 0,
            queues: Default::default(),
            dies: vec![Die::default(); dies as usize],
            commands: VecDeque::new(),
            working: 0,
            registers: 0,
            suspended: false,
        };
        Self {
            buses: vec![Bus::default(); channels as usize],
            packages: vec![package; (channels * ways) as usize],
            nand: ssd.nand.clone(),
            held: VecDeque::new(),
            bus_busy_ps: 0,
            array_busy_ps: 0,
            page_bytes: ssd.nand.page.0.max(1),
            page_ps: ssd.nand.page_transfer().0,
            delay: 0,
            scratch: Vec::new(),
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
}

impl ParallelSsd {
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

    /// Puts an operation into its package's queue, by way of the one queue of the translation layer if
    /// the packages' queues are limited: its head holds up all others when its package's queue is full.
    pub(super) fn enqueue(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let limit = self.options.die_queue as usize * self.dies as usize;
        let operation = self.operations[number as usize];
        if limit > 0 && matches!(operation.source, Source::Host | Source::Buffer) {
            self.bus.held.push_back(number);
            return self.let_through(context);
        }
        self.hand_over(number, context)
    }

    fn let_through(&mut self, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        if self.bus.held.is_empty() {
            return Ok(());
        }
        let limit = self.options.die_queue as usize * self.dies as usize;
        while let Some(number) = self.bus.held.front().copied() {
            let package = self.operations[number as usize].place.package;
            let waiting: usize = [HOST_READ, HOST_WRITE]
                .iter()
                .map(|q| self.bus.packages[package as usize].queues[*q].len())
                .sum();
            if waiting >= limit {
                break;
            }
            self.bus.held.pop_front();
            self.hand_over(number, context)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, number: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let operation = self.operations[number as usize];
        let package = operation.place.package;
        let queue = Self::queue_of(&operation);
        let state = &mut self.bus.packages[package as usize];
        state.queues[queue].push_back(number);
        state.waiting |= 1 << queue;
        self.serve_bus(package / self.ways, context)
    }

    /// An operation may start now.
    pub(super) fn wake(&mut self, number: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        let package = self.operations[number as usize].place.package;
        self.serve_bus(package / self.ways, context)
    }

    /// Gives a free bus to data that wait, or to commands.
    fn serve_bus(&mut self, channel: u32, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        if self.bus.buses[channel as usize].busy {
            return Ok(());
        }
        if self.options.commands_first {
            self.serve_commands(channel, context);
            self.serve_data(channel, context);
        } else {
            self.serve_data(channel, context);
            self.serve_commands(channel, context);
        }
        Ok(())
    }

    fn serve_data(&mut self, channel: u32, context: &mut Context<ParallelEvent>) {
        let bus = &mut self.bus.buses[channel as usize];
        if bus.busy {
            return;
        }
        let Some(number) = bus.out.iter_mut().find_map(VecDeque::pop_front) else { return };
        bus.busy = true;
        let bytes = self.operations[number as usize].bytes;
        let time = self.bus.nand.read_setup.map_or(0, |t| t.0) + self.bus.bytes_ps(bytes);
        self.bus.bus_busy_ps += time;
        context.schedule(context.now() + time, ParallelEvent::Moved(number));
    }

    fn serve_commands(&mut self, channel: u32, context: &mut Context<ParallelEvent>) {
        for _ in 0..self.ways {
            if self.bus.buses[channel as usize].busy {
                return;
            }
            let turn = self.bus.buses[channel as usize].turn;
            self.bus.buses[channel as usize].turn = if turn + 1 == self.ways { 0 } else { turn + 1 };
            self.serve_package(channel * self.ways + turn, context);
        }
    }

    /// Starts what a package can start.
    fn serve_package(&mut self, package: u32, context: &mut Context<ParallelEvent>) {
        let state = &self.bus.packages[package as usize];
        if state.waiting == 0 && !state.suspended {
            return;
        }
        if !state.is_idle() {
            if state.waits(MAP_READ) || state.waits(HOST_READ) {
                self.suspend(package, context);
            }
            return;
        }
        let urgent = self.is_urgent(package);
        let state = &self.bus.packages[package as usize];
        let moving = state.waits(MOVE_WRITE) || state.waits(ERASE);
        let reads = match (state.waits(MAP_READ), state.waits(HOST_READ), state.waits(MOVE_READ)) {
            (true, _, true) if urgent => Some((MAP_READ, MOVE_READ)),
            (true, true, _) => Some((MAP_READ, HOST_READ)),
            (true, false, _) => Some((MAP_READ, MOVE_READ)),
            (_, _, true) if urgent => Some((MOVE_READ, HOST_READ)),
            (_, true, _) if !urgent || !moving => Some((HOST_READ, MOVE_READ)),
            // Reclamation reads when the host has nothing to write.
            (_, false, true) if !state.waits(HOST_WRITE) && !state.waits(MAP_WRITE) => {
                Some((MOVE_READ, MOVE_READ))
            }
            _ => None,
        };
        if let Some((first, second)) = reads
            && self.start(package, first, second, context)
        {
            return;
        }
        if self.bus.packages[package as usize].suspended {
            self.resume(package, context);
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
            if self.start(package, first, second, context) {
                return;
            }
        }
    }

    /// True if reclamation goes before the host in this package: always if the options say so, else where
    /// a plane has nearly no free block.
    fn is_urgent(&self, package: u32) -> bool {
        if self.options.reclaim_first {
            return true;
        }
        if self.pool.lowest() >= self.urgent_below {
            return false;
        }
        let planes = self.dies * self.planes;
        (package * planes..(package + 1) * planes).any(|plane| self.pool.free(plane) < self.urgent_below)
    }

    /// Starts operations of two queues on all dies of an idle package; false if none may start.
    fn start(
        &mut self,
        package: u32,
        first: usize,
        second: usize,
        context: &mut Context<ParallelEvent>,
    ) -> bool {
        let state = &self.bus.packages[package as usize];
        if !state.waits(first) && !state.waits(second) {
            return false;
        }
        let Some(head) =
            state.queues[first].iter().find(|number| !self.operations[**number as usize].blocked)
        else {
            return false;
        };
        let first_die = u32::from(self.operations[*head as usize].place.die);
        let mut started = 0;
        for step in 0..self.dies {
            if started == self.units {
                break;
            }
            let die = (first_die + step) % self.dies;
            if !self.bus.packages[package as usize].dies[die as usize].operations.is_empty() {
                continue;
            }
            let mut chosen: Vec<u32> = std::mem::take(&mut self.bus.scratch);
            chosen.clear();
            let (mut planes, mut page) = (0u64, 0u32);
            for queue in [first, second] {
                if queue == second && first == second && !chosen.is_empty() {
                    break;
                }
                let mut index = 0;
                while index < self.bus.packages[package as usize].queues[queue].len() {
                    if chosen.len() == self.planes as usize {
                        break;
                    }
                    let number = self.bus.packages[package as usize].queues[queue][index];
                    let operation = &self.operations[number as usize];
                    let Place { plane, page: its_page, .. } = operation.place;
                    let fits = u32::from(operation.place.die) == die
                        && !operation.blocked
                        && planes >> plane & 1 == 0
                        && (chosen.is_empty() || its_page == page)
                        && chosen
                            .first()
                            .is_none_or(|n| self.operations[*n as usize].copy_back == operation.copy_back);
                    if fits {
                        planes |= 1 << plane;
                        page = its_page;
                        chosen.push(number);
                        let state = &mut self.bus.packages[package as usize];
                        state.queues[queue].remove(index);
                        if state.queues[queue].is_empty() {
                            state.waiting &= !(1 << queue);
                        }
                    } else {
                        index += 1;
                    }
                }
            }
            if chosen.is_empty() {
                self.bus.scratch = chosen;
                continue;
            }
            started += 1;
            self.command(package, die, &chosen, context);
            self.bus.packages[package as usize].dies[die as usize].operations.extend_from_slice(&chosen);
            self.bus.scratch = chosen;
        }
        started > 0
    }

    /// Queues the commands of a die for the bus, which is this package's until all are sent.
    fn command(&mut self, package: u32, die: u32, chosen: &[u32], context: &mut Context<ParallelEvent>) {
        let first = self.operations[chosen[0] as usize];
        let planes = chosen.len() as u64;
        if planes > 1 {
            self.counts.multi_plane += 1;
            match first.op {
                NandOp::Read => self.counts.multi_plane_reads += planes,
                NandOp::Program => self.counts.multi_plane_programs += planes,
                NandOp::Erase => {}
            }
        }
        let mut time = self.bus.nand.command(first.op, planes).0;
        if first.op == NandOp::Program {
            time +=
                chosen.iter().map(|n| self.bus.bytes_ps(self.operations[*n as usize].bytes)).sum::<Time>();
        }
        if first.copy_back {
            time += self.bus.nand.command(NandOp::Program, planes).0;
        }
        if self.bus.packages[package as usize].commands.is_empty() {
            time += std::mem::take(&mut self.bus.delay);
        }
        self.bus.bus_busy_ps += time;
        let state = &mut self.bus.packages[package as usize];
        state.commands.push_back((die, time));
        if state.commands.len() == 1 {
            self.bus.buses[(package / self.ways) as usize].busy = true;
            context.schedule(context.now() + time, ParallelEvent::Commanded(package));
        }
    }

    /// The first command of a package is sent: its die works.
    pub(super) fn commanded(
        &mut self,
        package: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let now = context.now();
        let Some((die, _)) = self.bus.packages[package as usize].commands.pop_front() else { return Ok(()) };
        let first =
            self.operations[self.bus.packages[package as usize].dies[die as usize].operations[0] as usize];
        let mut time = self.bus.nand.array(first.op).0;
        if first.copy_back {
            time += self.bus.nand.array(NandOp::Program).0;
        }
        self.bus.array_busy_ps += time;
        let state = &mut self.bus.packages[package as usize];
        let unit = &mut state.dies[die as usize];
        unit.working = true;
        unit.work += 1;
        unit.end = now + time;
        state.working += 1;
        context.schedule(now + time, ParallelEvent::Worked(package, die, unit.work));
        if let Some((_, time)) = state.commands.front() {
            context.schedule(now + time, ParallelEvent::Commanded(package));
            return Ok(());
        }
        let channel = package / self.ways;
        self.bus.buses[channel as usize].busy = false;
        self.serve_bus(channel, context)?;
        self.let_through(context)
    }

    /// The array work of a die is over.
    pub(super) fn worked(
        &mut self,
        package: u32,
        die: u32,
        work: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let state = &mut self.bus.packages[package as usize];
        let unit = &mut state.dies[die as usize];
        if !unit.working || unit.work != work {
            return Ok(());
        }
        unit.working = false;
        state.working -= 1;
        let channel = package / self.ways;
        let first = self.operations[unit.operations[0] as usize];
        if first.op == NandOp::Read && !first.copy_back {
            let count = unit.operations.len();
            state.registers += count as u32;
            for index in 0..count {
                let number = self.bus.packages[package as usize].dies[die as usize].operations[index];
                let class = match self.operations[number as usize].source {
                    Source::Mapping => 0,
                    Source::Host | Source::Buffer | Source::Merge => 1,
                    Source::Move => 2,
                };
                self.bus.buses[channel as usize].out[class].push_back(number);
            }
        } else {
            let done = std::mem::take(&mut unit.operations);
            for number in &done {
                let operation = self.operations[*number as usize];
                if operation.source == Source::Buffer {
                    self.release_buffer(operation.owner);
                }
                self.finish(*number, context)?;
            }
            let mut done = done;
            done.clear();
            let unit = &mut self.bus.packages[package as usize].dies[die as usize];
            if unit.operations.is_empty() {
                unit.operations = done;
            }
        }
        self.serve_bus(channel, context)?;
        self.let_through(context)
    }

    /// The data of a read are out.
    pub(super) fn data_out(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let Place { package, die, .. } = self.operations[number as usize].place;
        let channel = package / self.ways;
        let state = &mut self.bus.packages[package as usize];
        state.registers -= 1;
        state.dies[die as usize].operations.retain(|n| *n != number);
        // The bus is still this transfer's while what depends on it is queued.
        self.finish(number, context)?;
        self.bus.buses[channel as usize].busy = false;
        self.serve_bus(channel, context)?;
        self.let_through(context)
    }

    /// Suspends programs and erases for reads, where the part and the options allow it.
    fn suspend(&mut self, package: u32, context: &mut Context<ParallelEvent>) {
        let now = context.now();
        let state = &self.bus.packages[package as usize];
        if state.suspended || !state.commands.is_empty() || state.registers > 0 || state.working == 0 {
            return;
        }
        let mut cost = 0;
        for unit in state.dies.iter().filter(|unit| unit.working) {
            let operation = self.operations[unit.operations[0] as usize];
            let time = match operation.op {
                NandOp::Program if self.options.suspend_programs => self.bus.nand.suspend_program,
                NandOp::Erase if self.options.suspend_erases => self.bus.nand.suspend_erase,
                _ => None,
            };
            let Some(time) = time else { return };
            if operation.copy_back || unit.end.saturating_sub(now) <= time.0 {
                return;
            }
            cost = cost.max(time.0);
        }
        let state = &mut self.bus.packages[package as usize];
        for unit in state.dies.iter_mut().filter(|unit| unit.working) {
            unit.working = false;
            unit.remaining = unit.end - now;
            unit.suspended = std::mem::take(&mut unit.operations);
            self.counts.suspensions += 1;
        }
        state.working = 0;
        state.suspended = true;
        // The suspension is answered before the first command after it.
        self.bus.delay = cost;
        let started = self.start(package, MAP_READ, HOST_READ, context)
            || self.start(package, HOST_READ, HOST_READ, context);
        self.bus.delay = 0;
        if !started {
            self.resume(package, context);
        }
    }

    /// Lets suspended work go on.
    fn resume(&mut self, package: u32, context: &mut Context<ParallelEvent>) {
        let now = context.now();
        let state = &mut self.bus.packages[package as usize];
        state.suspended = false;
        for (die, unit) in (0u32..).zip(state.dies.iter_mut()) {
            if unit.suspended.is_empty() {
                continue;
            }
            unit.operations = std::mem::take(&mut unit.suspended);
            unit.working = true;
            unit.work += 1;
            unit.end = now + unit.remaining;
            state.working += 1;
            context.schedule(unit.end, ParallelEvent::Worked(package, die, unit.work));
        }
    }
}
