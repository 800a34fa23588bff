//! The records of traces and workloads.

use crate::text_fields::mix64;

/// Operation of a block request or an object access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Discard data (trim, unmap, delete).
    Trim,
    /// Make all earlier writes durable (flush, sync).
    Flush,
}

impl Op {
    /// All operations, in the order of their codes in the deepram format.
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::Flush];

    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Trim => "trim",
            Op::Flush => "flush",
        }
    }
}

/// Kind of a memory reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryAccess {
    /// Load data.
    Load,
    /// Store data.
    Store,
    /// Fetch an instruction.
    Fetch,
}

impl MemoryAccess {
    /// All kinds, in the order of their codes in the deepram format.
    pub const ALL: [MemoryAccess; 3] = [MemoryAccess::Load, MemoryAccess::Store, MemoryAccess::Fetch];

    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryAccess::Load => "load",
            MemoryAccess::Store => "store",
            MemoryAccess::Fetch => "fetch",
        }
    }
}

/// One request to a block device.
///
/// Readers and generators guarantee that `offset + len` is at most 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Arrival time in picoseconds from the start of the trace. `None` if the trace has no times: a
    /// closed loop, in which a request is sent once the previous one has been accepted.
    pub time_ps: Option<u64>,
    /// Number of the device, as in the trace, or in order of appearance if the trace has names.
    pub device: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// Operation.
    pub op: Op,
}

/// One memory reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemRef {
    /// Instructions completed since the previous reference, this one included.
    pub gap: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub size: u32,
    /// Operation.
    pub access: MemoryAccess,
}

/// One access to a named object of a cache trace. An object has no address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// Arrival time in picoseconds from the start of the trace, if known.
    pub time_ps: Option<u64>,
    /// Number of the object in the trace, or the 64-bit FNV-1a hash of its name.
    pub id: u64,
    /// Size of the object, in bytes.
    pub size: u64,
    /// Operation.
    pub op: Op,
}

/// One record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// A block request.
    Block(Request),
    /// A memory reference.
    Mem(MemRef),
    /// An access to an object.
    Object(ObjectRef),
}

/// Layout on a device of objects, which have a name but no address.
///
/// Object `id` is placed in slot `hash(id) mod slots`. Two objects can share a slot, so distinct
/// objects must be counted by their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPlacement {
    /// Size of a slot, in bytes.
    pub slot_bytes: u64,
    /// Number of slots.
    pub slots: u64,
}

impl ObjectPlacement {
    /// Offset of the object's slot; 0 if there are no slots.
    pub fn offset(&self, id: u64) -> u64 {
        if self.slots == 0 {
            return 0;
        }
        let slot = ((u128::from(mix64(id)) * u128::from(self.slots)) >> 64) as u64;
        slot.saturating_mul(self.slot_bytes)
    }
}

impl Item {
    /// Arrival time in picoseconds, if the record has one.
    pub fn time_ps(&self) -> Option<u64> {
        match self {
            Item::Block(r) => r.time_ps,
            Item::Object(o) => o.time_ps,
            Item::Mem(_) => None,
        }
    }

    /// Converts the record to a block request. A load or fetch reads its bytes, a store writes
    /// them. An object is read or written where `objects` places it, truncated to its slot.
    pub fn to_request(&self, objects: &ObjectPlacement) -> Request {
        match *self {
            Item::Block(r) => r,
            Item::Mem(m) => Request {
                time_ps: None,
                device: 0,
                offset: m.addr,
                len: u64::from(m.size).min(u64::MAX - m.addr),
                op: match m.access {
                    MemoryAccess::Load | MemoryAccess::Fetch => Op::Read,
                    MemoryAccess::Store => Op::Write,
                },
            },
            Item::Object(o) => {
                let offset = objects.offset(o.id);
                Request {
                    time_ps: o.time_ps,
                    device: 0,
                    offset,
                    len: o.size.min(objects.slot_bytes).min(u64::MAX - offset),
                    op: o.op,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_inside_its_own_slot() {
        let place = ObjectPlacement { slot_bytes: 4096, slots: 1000 };
        for id in 0..5000 {
            let object = ObjectRef { time_ps: Some(3), id, size: 9999, op: Op::Read };
            let request = Item::Object(object).to_request(&place);
            assert_eq!(request.offset % 4096, 0);
            assert!(request.offset + request.len <= 4096 * 1000);
            assert_eq!((request.len, request.time_ps), (4096, Some(3)));
        }
    }

    #[test]
    fn a_reference_at_the_end_of_the_address_space_does_not_overflow() {
        let mem = MemRef { gap: 0, addr: u64::MAX - 1, size: 8, access: MemoryAccess::Store };
        let request = Item::Mem(mem).to_request(&ObjectPlacement { slot_bytes: 0, slots: 0 });
        assert_eq!((request.len, request.op), (1, Op::Write));
    }
}
