//! Operations of a drive on flash, each on one page or block, and the table of those under way.

use deepram_media::NandOp;

use crate::flash_array::blocks::PageAddress;
use crate::flash_array::{Operation as ArrayOperation, OperationClass};

/// The cause of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationSource {
    Host,
    Buffer,
    Merge,
    Move,
    Mapping,
}

/// An operation on one page or block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) op: NandOp,
    pub(super) source: OperationSource,
    /// The operation is a copy-back: a read and a program in one, without the bus.
    pub(super) copy_back: bool,
    /// The operation must not start before the read that it waits for.
    pub(super) blocked: bool,
    /// The address of the page, or of the block's first page.
    pub(super) address: PageAddress,
    /// Logical page, mapping page, or block.
    pub(super) key: u32,
    /// Bytes transferred over the bus.
    pub(super) bytes: u32,
    /// The command of the operation, or the operation that waits for it.
    pub(super) owner: u32,
}

impl Operation {
    /// The operation as the array sees it. Blocks have `pages` pages.
    pub(super) fn for_array(&self, pages: u32) -> ArrayOperation {
        let class = match (self.op, self.source) {
            (NandOp::Read, OperationSource::Mapping) => OperationClass::MapRead,
            (NandOp::Read, OperationSource::Move) => OperationClass::Move,
            (NandOp::Read, _) => OperationClass::Demand,
            (NandOp::Program, OperationSource::Mapping) => OperationClass::MapProgram,
            (NandOp::Program, OperationSource::Move) => OperationClass::MoveProgram,
            (NandOp::Program, _) => OperationClass::Program,
            (NandOp::Erase, _) => OperationClass::Erase,
        };
        ArrayOperation {
            class,
            plane: self.address.plane,
            page: self.address.physical - self.address.block * pages,
            bytes: self.bytes,
            copy_back: self.copy_back,
            blocked: self.blocked,
            limited: matches!(self.source, OperationSource::Host | OperationSource::Buffer),
        }
    }
}

/// The operations under way, by reusable numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations {
    table: Vec<Operation>,
    spare: Vec<u32>,
}

impl Operations {
    /// The number of operations under way.
    pub(super) fn under_way(&self) -> usize {
        self.table.len() - self.spare.len()
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &Operation {
        &self.table[number as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Operation {
        &mut self.table[number as usize]
    }

    /// Adds an operation that transfers `bytes` over the bus; it is neither blocked nor a copy-back.
    #[inline]
    pub(super) fn begin(
        &mut self,
        op: NandOp,
        source: OperationSource,
        address: PageAddress,
        key: u32,
        bytes: u32,
        owner: u32,
    ) -> u32 {
        let operation =
            Operation { op, source, copy_back: false, blocked: false, address, key, bytes, owner };
        match self.spare.pop() {
            Some(number) => {
                self.table[number as usize] = operation;
                number
            }
            None => {
                self.table.push(operation);
                (self.table.len() - 1) as u32
            }
        }
    }

    /// Removes an operation; its number may be reused.
    #[inline]
    pub(super) fn end(&mut self, number: u32) -> Operation {
        self.spare.push(number);
        self.table[number as usize]
    }
}
