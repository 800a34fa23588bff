//! The interface of the array: operations, events, notices, rules and shape.

use deepram_media::NandOp;

use crate::engine::Time;

/// The class of an operation, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationClass {
    /// A read of a mapping page: an access waits for it.
    MapRead,
    /// A demand read: an access waits for it.
    Demand,
    /// A prefetch read.
    Ahead,
    /// A read of reclamation.
    Move,
    MapProgram,
    Program,
    /// A program of reclamation.
    MoveProgram,
    Erase,
}

impl OperationClass {
    pub(super) const COUNT: usize = 8;

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }

    pub(super) fn op(self) -> NandOp {
        match self {
            Self::MapRead | Self::Demand | Self::Ahead | Self::Move => NandOp::Read,
            Self::MapProgram | Self::Program | Self::MoveProgram => NandOp::Program,
            Self::Erase => NandOp::Erase,
        }
    }
}

/// The reads that suspend programs and erases.
pub(super) const WAITED_FOR: u8 =
    OperationClass::MapRead.bit() | OperationClass::Demand.bit() | OperationClass::Ahead.bit();
pub(super) const READS: u8 = WAITED_FOR | OperationClass::Move.bit();

/// The number of an operation, assigned by the owner: a small number, which may be reused once the
/// operation is done.
pub(crate) type OpId = u32;

/// An operation on one page or block of a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) class: OperationClass,
    pub(crate) plane: u32,
    /// The number of the page within its block.
    pub(crate) page: u32,
    /// Bytes transferred over the bus.
    pub(crate) bytes: u32,
    /// Array time, if it differs from the part's: the density of the page's cells differs. The first
    /// operation of a group gives the time of the group.
    pub(crate) array_time: Option<Time>,
    /// A read and a program in one, without the bus.
    pub(crate) copy_back: bool,
    /// The operation must not start before [`super::Channels::wake`].
    pub(crate) blocked: bool,
    /// The operation waits outside its target's queues while [`Rules::die_queue`] operations are in
    /// them.
    pub(crate) limited: bool,
}

/// A notice to the owner of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The transfer of read data over the channel has begun.
    ReadTransferStarted(OpId),
    /// The transfer of data to program has begun.
    ProgramTransferStarted(OpId),
    /// The operation is complete: read data have left the channel, or the program or erase has ended.
    Done(OpId),
}

/// An event that the owner passes to [`super::Channels::handle`] at its time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChannelEvent {
    /// A transfer of the channel that something waits for has ended.
    Bus(u32),
    /// The array work of a group has ended, unless the group's generation has changed since.
    Array(u32, u32),
    /// The target has suspended its work, or work that a read suspends has begun.
    Suspend(u32),
}

/// The place of data out among the users of a bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataOut {
    /// Before all commands.
    First,
    /// After all commands.
    Last,
    /// After the commands of reads, so that an array starts its next read before the last one's data
    /// leave, and before programs and erases.
    AfterReads,
}

/// The rules of the array.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) data_out: DataOut,
    /// The targets of a bus take turns. Otherwise the most urgent class goes first, and within a class
    /// the oldest operation.
    pub(crate) turns: bool,
    /// With two registers, an array that works accepts the command of its next read, and programs whose
    /// data have arrived start in the order of arrival. Otherwise an array that works accepts data to
    /// program only, and reads pass data that wait in the register.
    pub(crate) pipelined: bool,
    /// Reads of reclamation go before programs. Otherwise they wait until no program of the host is
    /// queued.
    pub(crate) moves_before_programs: bool,
    /// Reclamation goes before the host in every target, not only in urgent ones.
    pub(crate) moves_first: bool,
    /// Times to suspend a program and an erase; `None` if that is impossible.
    pub(crate) suspend_program: Option<Time>,
    pub(crate) suspend_erase: Option<Time>,
    /// Maximum number of demand reads and programs queued for each die; 0 for no limit. Further limited
    /// operations wait in one queue, whose head blocks the others.
    pub(crate) die_queue: u32,
    /// Notices of the starts of transfers.
    pub(crate) transfer_notices: bool,
}

/// The shape of the array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) channels: u32,
    pub(crate) targets_per_channel: u32,
    pub(crate) dies_per_target: u32,
    /// Dies of a target that work at once.
    pub(crate) units: u32,
    pub(crate) planes_per_die: u32,
    pub(crate) registers: u32,
}

/// Counts of an array since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ArrayCounts {
    /// Groups of several planes, and the pages that they read and programmed.
    pub(crate) multi_plane: u64,
    pub(crate) multi_plane_reads: u64,
    pub(crate) multi_plane_programs: u64,
    /// Programs and erases suspended for a read.
    pub(crate) suspensions: u64,
}
