//! The accesses that commands make to memory, one page or segment at a time.

use deepram_trace::Op;

use crate::host::{Command, Slot};

/// The progress of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryAccess {
    pub(crate) write: bool,
    /// The next byte to access.
    pub(crate) at: u64,
    end: u64,
}

/// The accesses of all slots.
#[derive(Debug, Clone)]
pub(crate) struct MemoryAccesses {
    /// Bytes of a page or segment.
    unit: u64,
    slots: Vec<MemoryAccess>,
}

impl MemoryAccesses {
    /// Accesses by units of `unit` bytes.
    pub(crate) fn new(unit: u64) -> Self {
        Self { unit, slots: Vec::new() }
    }

    /// Begins the access of a command. Returns `false` if the command accesses no memory.
    pub(crate) fn begin(&mut self, slot: Slot, command: Command) -> bool {
        if !matches!(command.op, Op::Read | Op::Write) || command.len == 0 {
            return false;
        }
        let (write, at) = (command.op == Op::Write, command.offset);
        let access = MemoryAccess { write, at, end: at + command.len };
        if self.slots.len() <= slot as usize {
            self.slots.resize(slot as usize + 1, access);
        }
        self.slots[slot as usize] = access;
        true
    }

    /// The access of a slot.
    pub(crate) fn get(&self, slot: Slot) -> MemoryAccess {
        self.slots[slot as usize]
    }

    /// Goes on to the next unit. Returns `false` if the access has ended.
    pub(crate) fn advance(&mut self, slot: Slot) -> bool {
        let access = &mut self.slots[slot as usize];
        access.at = (access.at / self.unit + 1) * self.unit;
        access.at < access.end
    }
}
