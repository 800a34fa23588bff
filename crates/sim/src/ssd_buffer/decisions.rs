//! The buffer's decisions: core's hybrid buffer, or a buffer of DRAM alone under a write-buffer policy.

use deepram_core::hybrid_buffer::{BufferAction, BufferRead, BufferWrite, HybridBuffer, Memory, Thresholds};
use deepram_core::write_buffer::SectorBuffer;

/// The buffer; see the module. Its methods are those of [`HybridBuffer`].
pub(super) enum Decisions {
    Hybrid(Box<HybridBuffer>),
    Policy(SectorBuffer),
}

impl Decisions {
    #[inline]
    pub(super) fn write(&mut self, page: u64, sectors: u32, actions: &mut Vec<BufferAction>) -> BufferWrite {
        match self {
            Self::Hybrid(buffer) => buffer.write(page, sectors, actions),
            Self::Policy(buffer) => buffer.write(page, sectors, actions),
        }
    }

    #[inline]
    pub(super) fn read(&mut self, page: u64, sectors: u32, actions: &mut Vec<BufferAction>) -> BufferRead {
        match self {
            Self::Hybrid(buffer) => buffer.read(page, sectors),
            Self::Policy(buffer) => buffer.read(page, sectors, actions),
        }
    }

    /// True if a write of this page could evict a page to flash.
    #[inline]
    pub(super) fn write_destages(&self, page: u64) -> bool {
        match self {
            Self::Hybrid(buffer) => buffer.write_destages(page),
            Self::Policy(buffer) => buffer.write_evicts(page),
        }
    }

    /// Evicts a victim of DRAM for a flush. Returns false if DRAM has no dirty page.
    pub(super) fn evict_for_flush(&mut self, actions: &mut Vec<BufferAction>) -> bool {
        match self {
            Self::Hybrid(buffer) if buffer.pages_in(Memory::Dram) > 0 => buffer.evict(Memory::Dram, actions),
            Self::Policy(buffer) if buffer.dirty_pages() > 0 => buffer.evict(actions),
            Self::Hybrid(_) | Self::Policy(_) => return false,
        }
        true
    }

    /// Removes a page; returns the memory that held it.
    pub(super) fn discard(&mut self, page: u64) -> Option<Memory> {
        match self {
            Self::Hybrid(buffer) => {
                let held = buffer.page(page)?;
                buffer.discard(page);
                Some(held.memory)
            }
            Self::Policy(buffer) => buffer.discard(page).then_some(Memory::Dram),
        }
    }

    pub(super) fn pages_in(&self, memory: Memory) -> usize {
        match self {
            Self::Hybrid(buffer) => buffer.pages_in(memory),
            Self::Policy(buffer) if memory == Memory::Dram => buffer.len(),
            Self::Policy(_) => 0,
        }
    }

    #[inline]
    pub(super) fn dirty_sectors(&self, memory: Memory) -> u64 {
        match self {
            Self::Hybrid(buffer) => buffer.dirty_sectors(memory),
            Self::Policy(buffer) if memory == Memory::Dram => buffer.dirty_sectors(),
            Self::Policy(_) => 0,
        }
    }

    /// The thresholds in force; those of a buffer that admits every page where there are none.
    pub(super) fn thresholds(&self) -> Thresholds {
        match self {
            Self::Hybrid(buffer) => buffer.thresholds(),
            Self::Policy(_) => Thresholds { hotness: 1, coolness: 1, closed: false },
        }
    }

    #[inline]
    pub(super) fn periods(&self) -> u64 {
        match self {
            Self::Hybrid(buffer) => buffer.periods(),
            Self::Policy(_) => 0,
        }
    }

    pub(super) fn write_disparity(&self) -> f64 {
        match self {
            Self::Hybrid(buffer) => buffer.write_disparity(),
            Self::Policy(_) => 0.0,
        }
    }
}
