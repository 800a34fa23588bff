//! The records that traces and workloads are made of.

use crate::text::mix64;

/// What a block request or an object access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Discard data (trim, unmap, delete).
    Trim,
    /// Make everything written before durable (flush, sync).
    Flush,
}

impl Op {
    /// All operations, in the order of their numbers in the compact format.
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

/// What a memory reference does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Load data.
    Load,
    /// Store data.
    Store,
    /// Fetch an instruction.
    Fetch,
}

impl Access {
    /// All accesses, in the order of their numbers in the compact format.
    pub const ALL: [Access; 3] = [Access::Load, Access::Store, Access::Fetch];

    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Load => "load",
            Access::Store => "store",
            Access::Fetch => "fetch",
        }
    }
}

/// One request to a block device.
///
/// `offset + len` never passes 2^64 in a request that a reader or a generator yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Arrival in picoseconds after the trace's zero; `None` where the trace has no time
    /// (closed loop: send it when the one before has been accepted).
    pub time_ps: Option<u64>,
    /// Which device (numbered as in the trace, or in order of appearance where it names them).
    pub device: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub len: u64,
    /// What to do.
    pub op: Op,
}

/// One reference to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemRef {
    /// Instructions completed since the previous reference (this one's included).
    pub gap: u32,
    /// Address of the first byte.
    pub addr: u64,
    /// Number of bytes.
    pub size: u32,
    /// What to do.
    pub access: Access,
}

/// One access to a named object of a cache trace: the id has no place on any device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// Arrival in picoseconds after the trace's zero, if known.
    pub time_ps: Option<u64>,
    /// The object, as numbered in the trace (or the 64-bit FNV-1a hash of its name).
    pub id: u64,
    /// The object's bytes.
    pub size: u64,
    /// What to do.
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

/// How objects, which have a name but no address, are laid out on a device.
///
/// Object `id` is given slot `hash(id) mod slots`. Two objects can share a slot, so counts of
/// distinct objects must be taken from the ids themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPlacement {
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Number of slots.
    pub slots: u64,
}

impl ObjectPlacement {
    /// The first byte of the object's slot (0 if the placement has no slots).
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

    /// The record as a block request: a load or fetch is a read of its bytes, a store a write,
    /// an object is read or written where `objects` places it (cut to its slot).
    pub fn to_request(&self, objects: &ObjectPlacement) -> Request {
        match *self {
            Item::Block(r) => r,
            Item::Mem(m) => Request {
                time_ps: None,
                device: 0,
                offset: m.addr,
                len: u64::from(m.size).min(u64::MAX - m.addr),
                op: match m.access {
                    Access::Load | Access::Fetch => Op::Read,
                    Access::Store => Op::Write,
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
        let mem = MemRef { gap: 0, addr: u64::MAX - 1, size: 8, access: Access::Store };
        let request = Item::Mem(mem).to_request(&ObjectPlacement { slot_bytes: 0, slots: 0 });
        assert_eq!((request.len, request.op), (1, Op::Write));
    }
}
