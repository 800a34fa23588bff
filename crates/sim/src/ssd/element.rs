//! The translation layer of one element: a package that is one pool of blocks, with one active block per
//! plane, as in the SSD extension of DiskSim (Agrawal et al.).
//!
//! 1. Block `b` of the pool is block `b % blocks` of plane `b / blocks`.
//! 2. Initially every logical page is mapped, in order, over the blocks of all planes in turn. The
//!    reserved blocks at each plane's end are free, except one that is active.
//! 3. A page is written to the plane with the most free pages whose active block is younger than the
//!    page's present copy (so block age tells the newest of two copies), searched from the plane after
//!    the one written last.
//! 4. If blocks end in a summary, their last page holds it and is programmed with the page before.
//! 5. A plane with too few free blocks is cleaned before the next request is served: the live pages of
//!    the closed block with the fewest of them (of equals the last block) move to the same plane's
//!    active block.
//!
//! Costs are times of the element, which performs one operation at a time.

use deepram_core::BlockId;
use deepram_core::ftl::{BlockInfo, BlockState, Blocks, Greedy, PageMap, TieBreak, VictimPolicy, any_block};

use crate::error::SimError;
use crate::flash::{FlashCounts, law};
use crate::flash_array::blocks::{NONE, block_error, erases};

/// The geometry of an element, and the times of its operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElementShape {
    pub(crate) planes: u32,
    pub(crate) blocks_per_plane: u32,
    pub(crate) pages_per_block: u32,
    /// True if the last page of a block is its summary.
    pub(crate) summary: bool,
    /// Blocks of a plane, including the active one, that hold no page at the start.
    pub(crate) reserved_per_plane: u32,
    /// A plane with this number of free blocks or fewer is cleaned.
    pub(crate) clean_at: u32,
    /// Array time of a read, a program and an erase, and time of a summary on the bus.
    pub(crate) read_ps: u64,
    pub(crate) program_ps: u64,
    pub(crate) erase_ps: u64,
    pub(crate) summary_bus_ps: u64,
}

impl ElementShape {
    pub(crate) fn data_pages(&self) -> u32 {
        self.pages_per_block - u32::from(self.summary)
    }

    /// Pages that the element offers the host.
    pub(crate) fn logical_pages(&self) -> u64 {
        let blocks = u64::from(self.planes) * u64::from(self.blocks_per_plane - self.reserved_per_plane);
        blocks * u64::from(self.data_pages())
    }
}

#[derive(Debug, Clone)]
struct Plane {
    /// The plane's blocks. A block's slots are its data pages, its sequence number is its age.
    blocks: Blocks,
    /// The active block, its age, and the next page in it. A full block remains active until another is
    /// opened, even if it is cleaned meanwhile.
    active: BlockId,
    age: u32,
    next: u32,
    /// The position of the search for a free block.
    search: u32,
}

/// The write position of a plane: the data that the choice of a plane needs, stored compactly.
#[derive(Debug, Clone, Copy)]
struct WriteFrontier {
    /// The age of the active block.
    age: u32,
    /// The next physical page of the active block.
    page: u32,
    /// Free pages of the plane as the choice of a plane counts them.
    room: u32,
}

/// The state of one element.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    shape: ElementShape,
    planes: Vec<Plane>,
    frontiers: Vec<WriteFrontier>,
    /// The physical page of each logical page.
    forward: PageMap<u32>,
    /// The logical page last written to each physical page; the page is live if `forward` agrees.
    backward: Vec<u32>,
    next_age: u32,
    next_write: u32,
    next_clean: u32,
    pub(crate) counts: FlashCounts,
}

impl Element {
    pub(crate) fn new(shape: ElementShape) -> Result<Self, SimError> {
        let ElementShape { planes, blocks_per_plane: blocks, pages_per_block: pages, .. } = shape;
        let total = u64::from(planes) * u64::from(blocks) * u64::from(pages);
        if total >= u64::from(NONE) || pages >= u32::from(u16::MAX) {
            return Err(SimError::config(
                "nand.blocks_per_plane",
                "an element must have less than 2^32 pages, in blocks of less than 65535",
            ));
        }
        if shape.reserved_per_plane < 2 || shape.reserved_per_plane >= blocks {
            return Err(SimError::config(
                "over_provisioning",
                format!("must reserve at least 2 of a plane's {blocks} blocks and leave one"),
            ));
        }
        if shape.clean_at + 1 >= shape.reserved_per_plane {
            return Err(SimError::config("reclaim_below", "must be less than over_provisioning"));
        }
        let mut element = Self {
            shape,
            planes: Vec::with_capacity(planes as usize),
            frontiers: Vec::with_capacity(planes as usize),
            forward: PageMap::full(shape.logical_pages() as u32, NONE),
            backward: vec![NONE; total as usize],
            next_age: 1,
            next_write: 0,
            next_clean: 0,
            counts: FlashCounts::default(),
        };
        element.fill()?;
        Ok(element)
    }

    /// Maps every logical page (2 above).
    fn fill(&mut self) -> Result<(), SimError> {
        let ElementShape { planes, blocks_per_plane: blocks, pages_per_block: pages, .. } = self.shape;
        let usable = blocks - self.shape.reserved_per_plane;
        let data = self.shape.data_pages();
        let mut infos = vec![vec![BlockInfo::default(); blocks as usize]; planes as usize];
        let mut logical = 0;
        for index in 0..usable {
            for plane in 0..planes {
                infos[plane as usize][index as usize] = BlockInfo {
                    state: BlockState::Closed,
                    used: data as u16,
                    live: data as u16,
                    uses: 1,
                    sequence: self.next_age.into(),
                };
                self.next_age += 1;
                for page in 0..data {
                    let physical = (plane * blocks + index) * pages + page;
                    self.forward.set(logical, physical);
                    self.backward[physical as usize] = logical;
                    logical += 1;
                }
            }
        }
        // DiskSim never closes the last block that it fills, so that block is never cleaned.
        if let Some(last) = infos.last_mut().and_then(|plane| plane.get_mut(usable as usize - 1)) {
            last.state = BlockState::Open(0);
        }
        for (plane, infos) in (0..planes).zip(infos) {
            let mut blocks = Blocks::restore(data as u16, infos).map_err(block_error)?.without_quarantine();
            let active = BlockId(usable);
            blocks.open_at(active, 0, self.next_age.into()).map_err(block_error)?;
            self.planes.push(Plane { blocks, active, age: self.next_age, next: 0, search: 0 });
            self.next_age += 1;
            self.frontiers.push(WriteFrontier { age: 0, page: 0, room: 0 });
            self.update_frontier(plane);
        }
        Ok(())
    }

    /// Updates a plane's write position.
    #[inline]
    fn update_frontier(&mut self, plane: u32) {
        let pages = self.shape.pages_per_block;
        let Plane { blocks, active, age, next, .. } = &self.planes[plane as usize];
        self.frontiers[plane as usize] = WriteFrontier {
            age: *age,
            page: (plane * self.shape.blocks_per_plane + active.0) * pages + next,
            room: blocks.free() * pages + pages - next,
        };
    }

    /// The plane and block of a physical page.
    #[inline]
    fn block_of(&self, physical: u32) -> (u32, BlockId) {
        let block = physical / self.shape.pages_per_block;
        let plane = block / self.shape.blocks_per_plane;
        (plane, BlockId(block - plane * self.shape.blocks_per_plane))
    }

    /// The plane to write logical page `logical` to (3 above).
    fn choose_plane(&self, logical: u32) -> Option<u32> {
        let present = self.forward.get(logical);
        let mut age = 0;
        if present != NONE {
            let (plane, block) = self.block_of(present);
            age = self.planes[plane as usize].blocks.info(block).sequence as u32;
        }
        let mut best: Option<(u32, u32)> = None;
        let planes = self.shape.planes;
        let mut plane = self.next_write;
        for _ in 0..planes {
            // A full block remains active until another is opened.
            let head = self.frontiers[plane as usize];
            let younger = head.age > age || (head.age == age && head.page > present);
            // The page of the summary does not count as free.
            let room = head.room > self.shape.pages_per_block - self.shape.data_pages();
            if younger && room && best.is_none_or(|(most, _)| head.room > most) {
                best = Some((head.room, plane));
            }
            plane += 1;
            if plane == planes {
                plane = 0;
            }
        }
        best.map(|(_, plane)| plane)
    }

    /// Makes the plane's next free block active, in the order of block numbers, cyclically.
    fn open(&mut self, plane: u32) -> Result<(), SimError> {
        let count = self.shape.blocks_per_plane;
        let state = &mut self.planes[plane as usize];
        let found = (state.search..count)
            .chain(0..state.search)
            .find(|index| state.blocks.info(BlockId(*index)).state == BlockState::Free);
        let Some(index) = found else {
            return Err(SimError::Full { time_ps: 0, what: format!("plane {plane} has no free block") });
        };
        state.search = (index + 1) % count;
        state.active = BlockId(index);
        state.age = self.next_age;
        state.next = 0;
        state.blocks.open_at(state.active, 0, self.next_age.into()).map_err(block_error)?;
        self.next_age += 1;
        Ok(())
    }

    /// Programs `logical` into the plane's active block. Returns the time of the programs, without the
    /// transfer of the page's own data.
    fn program_page(&mut self, logical: u32, plane: u32) -> Result<u64, SimError> {
        if self.planes[plane as usize].next == self.shape.data_pages() {
            self.open(plane)?;
        }
        let state = &mut self.planes[plane as usize];
        let block = state.active;
        let Some(page) = state.blocks.take(block) else {
            return Err(SimError::Full { time_ps: 0, what: format!("plane {plane} has no free page") });
        };
        state.next = u32::from(page) + 1;
        let full = state.next == self.shape.data_pages();
        let first = (plane * self.shape.blocks_per_plane + block.0) * self.shape.pages_per_block;
        let physical = first + u32::from(page);
        let present = self.forward.set(logical, physical);
        if present != NONE {
            self.drop_page(present)?;
        }
        self.backward[physical as usize] = logical;
        let mut cost = self.shape.program_ps;
        if full {
            self.planes[plane as usize].blocks.close(block).map_err(block_error)?;
            if self.shape.summary {
                cost += self.shape.summary_bus_ps + self.shape.program_ps;
                self.counts.summary_programs += 1;
            }
        }
        self.update_frontier(plane);
        Ok(cost)
    }

    /// Marks a physical page dead.
    #[inline]
    fn drop_page(&mut self, physical: u32) -> Result<(), SimError> {
        let (plane, block) = self.block_of(physical);
        self.planes[plane as usize].blocks.sub_live(block, 1).map_err(block_error)
    }

    /// Writes a page for the host. Returns the time without the transfer of its data, and the plane.
    pub(crate) fn write(&mut self, logical: u32) -> Result<(u64, u32), SimError> {
        let Some(plane) = self.choose_plane(logical) else {
            return Err(SimError::Full { time_ps: 0, what: "no plane has a younger block to write".into() });
        };
        let cost = self.program_page(logical, plane)?;
        self.next_write = (plane + 1) % self.shape.planes;
        self.counts.host_programs += 1;
        self.counts.host_pages += 1;
        Ok((cost, plane))
    }

    /// The plane of a logical page, if the page is mapped.
    pub(crate) fn plane_of(&self, logical: u32) -> Option<u32> {
        let physical = self.forward.get(logical);
        (physical != NONE).then(|| self.block_of(physical).0)
    }

    /// Prefetches the page's mapping entry into the processor's caches.
    #[inline]
    pub(crate) fn prefetch(&self, logical: u32) {
        self.forward.prefetch(logical);
    }

    /// Unmaps a logical page.
    pub(crate) fn trim(&mut self, logical: u32) -> Result<(), SimError> {
        let present = self.forward.set(logical, NONE);
        if present != NONE {
            self.drop_page(present)?;
            self.counts.trimmed_pages += 1;
        }
        Ok(())
    }

    /// Cleans one block of a plane of `planes` that has too few free blocks. Returns the time that it
    /// takes; `None` if no plane needs cleaning.
    pub(crate) fn clean(&mut self, planes: std::ops::Range<u32>) -> Result<Option<u64>, SimError> {
        let (first, count) = (planes.start, planes.end - planes.start);
        let start = if planes.contains(&self.next_clean) { self.next_clean } else { first };
        for step in 0..count {
            let plane = first + (start - first + step) % count;
            let blocks = &self.planes[plane as usize].blocks;
            // Of equals the last block, as in DiskSim's scan.
            if blocks.free() <= self.shape.clean_at
                && let Some(block) = (Greedy { ties: TieBreak::Highest }).pick(blocks, 0, &mut any_block)
            {
                self.next_clean = first + (plane - first + 1) % count;
                return self.clean_block(plane, block).map(Some);
            }
        }
        Ok(None)
    }

    fn clean_block(&mut self, plane: u32, block: BlockId) -> Result<u64, SimError> {
        let pages = self.shape.pages_per_block;
        let first = (plane * self.shape.blocks_per_plane + block.0) * pages;
        let mut cost = 0;
        for physical in first..first + pages {
            let logical = self.backward[physical as usize];
            if logical != NONE && self.forward.get(logical) == physical {
                cost += self.shape.read_ps + self.program_page(logical, plane)?;
                self.counts.move_reads += 1;
                self.counts.move_programs += 1;
            }
        }
        self.planes[plane as usize].blocks.erase(block).map_err(block_error)?;
        self.backward[first as usize..(first + pages) as usize].fill(NONE);
        self.counts.erases += 1;
        self.update_frontier(plane);
        Ok(cost + self.shape.erase_ps)
    }

    /// Erase counts of all blocks.
    pub(crate) fn erased(&self) -> impl Iterator<Item = u32> + '_ {
        self.planes.iter().flat_map(|plane| plane.blocks.infos().iter().map(erases))
    }

    /// Checks the conservation laws: each logical page is in one place, and that place refers back to
    /// it; live and free counts are correct.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let mut mapped = 0u64;
        for (logical, physical) in self.forward.iter() {
            mapped += 1;
            let held = self.backward[physical as usize];
            if held != logical {
                return Err(SimError::Conservation {
                    law: "a logical page is where the flash says it is",
                    found: format!("page {logical} at {physical}, which holds {held}"),
                });
            }
        }
        let pages = self.shape.pages_per_block as usize;
        let infos = self.planes.iter().flat_map(|plane| plane.blocks.infos());
        for (first, (info, held)) in (0u32..).step_by(pages).zip(infos.zip(self.backward.chunks(pages))) {
            let live = (first..)
                .zip(held)
                .filter(|(physical, logical)| **logical != NONE && self.forward.get(**logical) == *physical);
            law("a block's live count is that of its live pages", info.live.into(), live.count() as u64)?;
            if info.state == BlockState::Free {
                law("no logical page is in an erased block", info.live.into(), 0)?;
            }
        }
        let live = self.planes.iter().map(|plane| plane.blocks.live_slots()).sum();
        law("live counts add up", live, mapped)
    }
}
