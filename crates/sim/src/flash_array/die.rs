//! The work of dies: groups in the array and in the registers, and suspension.
//!
//! 1. A group occupies a register from its command until it ends: a read when its data have left, a
//!    program or an erase with its array work. A suspended group occupies none.
//! 2. Data of a read wait in the second register. Those of the next read wait in the array's own
//!    register until the first have left.
//! 3. Data to program that arrive while the array works wait in the second register.

use deepram_media::NandOp;

use super::{BusData, ChannelEvent, Channels, Die, Notice, OpId, OperationClass, OperationGroup};
use super::{NONE, OperationState, READS, Target, WAITED_FOR};
use crate::engine::Time;

impl Channels {
    /// Sends a group's command over the bus, behind those of the target's other dies, with the data to
    /// program, and schedules the die's array work after it.
    pub(super) fn command(&mut self, target: u32, die: u32, head: OpId, count: u32, now: Time) {
        let first = self.operations[head as usize];
        let op = first.class.op();
        let planes = u64::from(count);
        if planes > 1 {
            self.counts.multi_plane += 1;
            match op {
                NandOp::Read => self.counts.multi_plane_reads += planes,
                NandOp::Program => self.counts.multi_plane_programs += planes,
                NandOp::Erase => {}
            }
        }
        let times = self.command_times[count as usize - 1];
        let mut time = times[op as usize];
        if op == NandOp::Program {
            let mut id = head;
            while id != NONE {
                let bytes = self.operations[id as usize].bytes;
                time += self.transfer_time(bytes);
                self.bytes += u64::from(bytes);
                if self.rules.transfer_notices {
                    self.notices.push(Notice::ProgramTransferStarted(id));
                }
                id = self.operations[id as usize].next;
            }
        }
        let mut work = first.array_time.unwrap_or(self.array_times[op as usize]);
        if first.copy_back {
            time += times[NandOp::Program as usize];
            work += self.array_times[NandOp::Program as usize];
        }
        self.array_busy += work;
        let channel = self.targets[target as usize].channel;
        let bus = &mut self.channels[channel as usize];
        bus.busy += time;
        bus.until = bus.until.max(now) + time;
        let begin = bus.until;
        let number = self.new_group(OperationGroup {
            head,
            left: count,
            die,
            target,
            op,
            copy_back: first.copy_back,
            begin,
            end: begin + work,
            generation: 0,
            order: first.sequence,
        });
        self.targets[target as usize].groups += 1;
        let state = self.dies[die as usize];
        // With a second register, a read that comes before the data have arrived may still go first.
        if op == NandOp::Program && self.shape.registers > 1 && !self.rules.pipelined {
            self.dies[die as usize].loaded = number;
            self.dies[die as usize].entering = true;
            let bus = &mut self.channels[channel as usize];
            bus.awaited = true;
            bus.carries = Some(BusData::In(die));
            self.events.push((bus.until, ChannelEvent::Bus(channel)));
            return;
        }
        if state.active == NONE {
            self.dies[die as usize].active = number;
        } else {
            self.dies[die as usize].loaded = number;
            let begin = begin.max(self.groups[state.active as usize].end);
            let group = &mut self.groups[number as usize];
            (group.begin, group.end) = (begin, begin + work);
        }
        self.await_array(number);
    }

    fn await_array(&mut self, number: u32) {
        let OperationGroup { end, generation, .. } = self.groups[number as usize];
        self.events.push((end, ChannelEvent::Array(number, generation)));
    }

    #[inline]
    fn new_group(&mut self, group: OperationGroup) -> u32 {
        if let Some(number) = self.spare_groups.pop() {
            let place = &mut self.groups[number as usize];
            let generation = place.generation.wrapping_add(1);
            *place = group;
            place.generation = generation;
            return number;
        }
        self.groups.push(group);
        (self.groups.len() - 1) as u32
    }

    /// Ends a group, whose register is then free.
    fn end_group(&mut self, number: u32, target: u32) {
        let group = &mut self.groups[number as usize];
        group.generation = group.generation.wrapping_add(1);
        self.spare_groups.push(number);
        self.targets[target as usize].groups -= 1;
    }

    fn done(&mut self, id: OpId, target: u32) {
        self.inside -= 1;
        self.targets[target as usize].inside -= 1;
        self.notices.push(Notice::Done(id));
    }

    /// Handles the end of a group's array work. Returns the target.
    pub(super) fn array_done(&mut self, number: u32, now: Time) -> u32 {
        let OperationGroup { head, die, target, op, copy_back, .. } = self.groups[number as usize];
        let state = &mut self.dies[die as usize];
        state.active = NONE;
        if self.rules.pipelined {
            state.active = std::mem::replace(&mut state.loaded, NONE);
        }
        if op == NandOp::Read && !copy_back {
            if self.rules.turns {
                self.groups[number as usize].order = self.sequence;
                self.sequence += u64::from(self.groups[number as usize].left);
            }
            if state.leaving == NONE {
                state.leaving = number;
                self.offer_data(number, target);
            } else {
                state.holding = number;
            }
        } else {
            self.end_group(number, target);
            let mut id = head;
            while id != NONE {
                self.done(id, target);
                id = self.operations[id as usize].next;
            }
        }
        self.start_waiting(target, now);
        self.suspend(target, now);
        target
    }

    /// Offers the data of a group to the bus.
    fn offer_data(&mut self, number: u32, target: u32) {
        let OperationGroup { head, mut order, .. } = self.groups[number as usize];
        let channel = self.targets[target as usize].channel;
        let mut id = head;
        while id != NONE {
            let operation = &mut self.operations[id as usize];
            operation.group = number;
            let class = match operation.class {
                OperationClass::MapRead => 0,
                OperationClass::Demand => 1,
                _ => 2,
            };
            self.channels[channel as usize].out.push((class, order, id));
            order += 1;
            id = operation.next;
        }
    }

    /// Handles the end of the data transfer of a read.
    pub(super) fn data_left(&mut self, id: OpId, now: Time) {
        let OperationState { target, die, group, .. } = self.operations[id as usize];
        self.groups[group as usize].left -= 1;
        if self.groups[group as usize].left == 0 {
            self.end_group(group, target);
            let state = &mut self.dies[die as usize];
            let next = std::mem::replace(&mut state.holding, NONE);
            state.leaving = next;
            if next != NONE {
                self.offer_data(next, target);
            }
            self.start_waiting(target, now);
            self.suspend(target, now);
        }
        self.done(id, target);
    }

    /// If no read that goes first is queued, continues suspended work, or else starts the program whose
    /// data wait in the second register of an idle array.
    #[inline]
    pub(super) fn start_waiting(&mut self, target: u32, now: Time) {
        if self.suspends || !self.rules.pipelined {
            self.start_suspended_or_loaded(target, now);
        }
    }

    fn start_suspended_or_loaded(&mut self, target: u32, now: Time) {
        let Target { waiting, groups, suspended, .. } = self.targets[target as usize];
        if suspended {
            let idle = self.dies_of(target).all(|die| self.dies[die as usize].active == NONE);
            let room = groups < self.shape.registers && waiting & WAITED_FOR == 0;
            if idle && room && now >= self.ready[target as usize] {
                self.resume(target, now);
            }
            return;
        }
        if self.rules.pipelined || waiting & READS != 0 {
            return;
        }
        let die = self.dies_of(target).start;
        let Die { active, loaded, leaving, entering, .. } = self.dies[die as usize];
        if active == NONE && leaving == NONE && loaded != NONE && !entering {
            self.dies[die as usize].active = loaded;
            self.dies[die as usize].loaded = NONE;
            let group = &mut self.groups[loaded as usize];
            (group.begin, group.end) = (now, now + (group.end - group.begin));
            self.await_array(loaded);
        }
    }

    /// Suspends the programs and erases of a target, if a read is waited for, the part can, and that
    /// saves time.
    #[inline]
    pub(super) fn suspend(&mut self, target: u32, now: Time) {
        if self.suspends {
            self.suspend_dies(target, now);
        }
    }

    fn suspend_dies(&mut self, target: u32, now: Time) {
        let (program, erase) = (self.rules.suspend_program, self.rules.suspend_erase);
        let state = self.targets[target as usize];
        if state.suspended || state.groups == 0 || state.waiting & WAITED_FOR == 0 {
            return;
        }
        let (mut cost, mut working) = (0, 0);
        for die in self.dies_of(target) {
            let die = self.dies[die as usize];
            let Some(group) = self.groups.get(die.active as usize) else { continue };
            let time = match group.op {
                NandOp::Read => None,
                NandOp::Program => program,
                NandOp::Erase => erase,
            };
            let Some(time) = time else { return };
            if group.begin > now {
                self.events.push((group.begin, ChannelEvent::Suspend(target)));
                return;
            }
            let committed = self.rules.pipelined && die.loaded != NONE;
            if committed || group.copy_back || group.end - now <= time {
                return;
            }
            working += 1;
            cost = cost.max(time);
        }
        if working == 0 || state.groups - working >= self.shape.registers {
            return;
        }
        for die in self.dies_of(target) {
            let die = &mut self.dies[die as usize];
            if let Some(group) = self.groups.get_mut(die.active as usize) {
                die.suspended = std::mem::replace(&mut die.active, NONE);
                group.end -= now;
                group.generation = group.generation.wrapping_add(1);
                self.counts.suspensions += 1;
            }
        }
        let state = &mut self.targets[target as usize];
        state.groups -= working;
        state.suspended = true;
        self.ready[target as usize] = now + cost;
        self.events.push((now + cost, ChannelEvent::Suspend(target)));
    }

    /// Resumes suspended work of a target.
    fn resume(&mut self, target: u32, now: Time) {
        self.targets[target as usize].suspended = false;
        for die in self.dies_of(target) {
            let number = std::mem::replace(&mut self.dies[die as usize].suspended, NONE);
            if let Some(group) = self.groups.get_mut(number as usize) {
                group.begin = now;
                group.end += now;
                self.dies[die as usize].active = number;
                self.targets[target as usize].groups += 1;
                self.await_array(number);
            }
        }
    }
}
