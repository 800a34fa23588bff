//! Operations of a drive on flash, each on one page or block, and the table of those under way.

use deepram_media::NandOp;

use super::planes::{NONE, PageAddress};

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
    /// The operation must not start yet.
    pub(super) blocked: bool,
    /// The operation is a copy-back: a read and a program in one, without the bus.
    pub(super) copy_back: bool,
    /// The number of the operation's plane within its die.
    pub(super) plane_bit: u8,
    /// The address of the page, or of the block's first page.
    pub(super) address: PageAddress,
    /// The page's number within its block.
    pub(super) page: u32,
    pub(super) target: u32,
    pub(super) die: u32,
    /// Logical page, mapping page, or block.
    pub(super) key: u32,
    /// Bytes transferred over the bus.
    pub(super) bytes: u32,
    /// The command of the operation, or the operation that waits for it.
    pub(super) owner: u32,
    /// The next operation of the same group; once the group's array work has ended, the group.
    pub(super) next: u32,
}

/// The target and die of a plane, and its number within the die.
#[derive(Debug, Clone, Copy)]
struct PlaneAddress {
    target: u32,
    die: u32,
    bit: u8,
}

/// The operations under way, by reusable numbers.
#[derive(Debug, Clone)]
pub(super) struct Operations {
    table: Vec<Operation>,
    spare: Vec<u32>,
    homes: Vec<PlaneAddress>,
    pages: u32,
}

impl Operations {
    /// An empty table for a drive of `planes` planes, with `planes_per_die` planes per die,
    /// `dies_per_target` dies per target, and blocks of `pages` pages.
    pub(super) fn new(planes: u32, planes_per_die: u32, dies_per_target: u32, pages: u32) -> Self {
        let homes = (0..planes).map(|plane| {
            let die = plane / planes_per_die;
            PlaneAddress { target: die / dies_per_target, die, bit: (plane % planes_per_die) as u8 }
        });
        Self { table: Vec::new(), spare: Vec::new(), homes: homes.collect(), pages }
    }

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
        let PlaneAddress { target, die, bit } = self.homes[address.plane as usize];
        let operation = Operation {
            op,
            source,
            blocked: false,
            copy_back: false,
            plane_bit: bit,
            address,
            page: address.physical - address.block * self.pages,
            target,
            die,
            key,
            bytes,
            owner,
            next: NONE,
        };
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
