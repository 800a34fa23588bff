//! The secondary disk cache: placement of pages in regions, blocks and cells.
//!
//! Each region fills one block at a time, its *frontier*, page by page. A page in single-level cells takes
//! the place of two. Where the frontier is at the second of two such places, that place waits for the
//! next page of multi-level cells. One free block is kept back for pages that move.

use alloc::vec::Vec;

use super::Run;
use super::options::{DiskCacheOptions, FEWEST_BLOCKS, FEWEST_SPLIT_BLOCKS, ReclaimScope};
use super::step::{Cause, Note, PhysicalPage, ReadErrors, Step};
use crate::ftl::BlockState;
use crate::reliability::{
    BlockStatusTable, Density, FlashCacheHashTable, FlashPage, FlashShape, GlobalStatus, Level, PageStatus,
    PageStatusTable, Region, ReliabilityPolicy,
};

/// The block that a region fills.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frontier {
    pub(super) block: u32,
    /// A place that was left out for a page of multi-level cells.
    pub(super) waiting: Option<FlashPage>,
}

/// A page with consistent faults, for trigger 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewFaults {
    pub(super) page: FlashPage,
    /// The density at which they were found.
    pub(super) density: Density,
    pub(super) consistent: u32,
    pub(super) reads: u16,
}

/// The secondary cache.
#[derive(Debug, Clone)]
pub struct FlashCache {
    pub(super) shape: FlashShape,
    pub(super) policy: ReliabilityPolicy,
    pub(super) reclaim: ReclaimScope,
    pub(super) least_dead: u16,
    pub(super) low_blocks: u32,
    age_reads: u64,
    reads: u64,
    write_share: Option<f64>,
    pub(super) pages: PageStatusTable,
    pub(super) keys: FlashCacheHashTable,
    pub(super) blocks: BlockStatusTable,
    status: GlobalStatus,
    pub(super) frontiers: [Option<Frontier>; 2],
    pub(super) new_faults: Vec<NewFaults>,
    pub(super) hot: Vec<(FlashPage, u32)>,
    pub(super) dead: bool,
}

impl FlashCache {
    pub(super) fn new(options: &DiskCacheOptions) -> Self {
        let (shape, policy) = (options.shape, options.policy.clone());
        let mut blocks = BlockStatusTable::new(shape.blocks, shape.pages_per_block() as u16);
        if policy.density == Density::Slc {
            (0..shape.blocks).for_each(|block| blocks.change_single(block, shape.slots as i16));
        }
        Self {
            pages: PageStatusTable::new(shape.pages(), policy.strength, policy.density),
            keys: FlashCacheHashTable::new(shape.pages()),
            blocks,
            status: GlobalStatus::default(),
            shape,
            policy,
            reclaim: options.reclaim,
            least_dead: options.least_dead.max(1),
            low_blocks: options.low_blocks,
            age_reads: options.age_reads,
            reads: 0,
            write_share: options.write_share,
            frontiers: [None; 2],
            new_faults: Vec::new(),
            hot: Vec::new(),
            dead: shape.blocks == 0,
        }
    }

    /// The flash page that holds a disk page.
    #[must_use]
    pub fn find(&self, page: u32) -> Option<PhysicalPage> {
        self.keys.find(page).map(|page| self.physical(page))
    }

    /// The status of a flash page.
    #[must_use]
    pub fn page(&self, page: FlashPage) -> PageStatus {
        self.pages.get(page)
    }

    /// The status of the blocks.
    #[must_use]
    pub fn blocks(&self) -> &BlockStatusTable {
        &self.blocks
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> FlashShape {
        self.shape
    }

    /// Pages that hold data.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.keys.len()
    }

    /// True if no page holds data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True if too few blocks are in service for a cache.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// The region of a block that is in use.
    #[must_use]
    pub fn region_of(&self, block: u32) -> Option<Region> {
        self.blocks.region(block)
    }

    /// Pages of all blocks in service at their present density.
    #[must_use]
    pub fn capacity_pages(&self) -> u64 {
        let in_service =
            (0..self.shape.blocks).filter(|block| self.blocks.state(*block) != BlockState::Retired);
        in_service.map(|block| self.pages_in(block)).sum()
    }

    /// Pages of a block at their present density.
    fn pages_in(&self, block: u32) -> u64 {
        let places = self.shape.pages_of(block).filter(|page| {
            let status = self.pages.get(*page);
            !status.is_bad() && (status.density() == Density::Mlc || page.first() == *page)
        });
        places.count() as u64
    }

    /// How fast the cache satisfies requests.
    #[must_use]
    pub fn status(&self) -> &GlobalStatus {
        &self.status
    }

    /// The global status, to add times to.
    pub fn status_mut(&mut self) -> &mut GlobalStatus {
        &mut self.status
    }

    /// Memory of the four tables, bytes.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.keys.memory_bytes()
            + self.pages.memory_bytes()
            + self.blocks.memory_bytes()
            + size_of::<GlobalStatus>()
    }

    /// True if reads and writes share one region.
    pub(super) fn is_unified(&self) -> bool {
        self.write_share.is_none() || self.blocks.in_service() < FEWEST_SPLIT_BLOCKS
    }

    pub(super) fn region(&self, wanted: Region) -> Region {
        if self.is_unified() { Region::Read } else { wanted }
    }

    /// Blocks that a region may use. One block in service is kept back.
    fn quota(&self, region: Region) -> u32 {
        let usable = self.blocks.in_service().saturating_sub(1);
        match self.write_share {
            Some(share) if !self.is_unified() => {
                let write = ((share * f64::from(usable) + 0.5) as u32).clamp(2, usable - 2);
                if region == Region::Write { write } else { usable - write }
            }
            _ => usable,
        }
    }

    /// Blocks that a region can open.
    pub(super) fn openable(&self, region: Region) -> u32 {
        let quota = self.quota(region).saturating_sub(self.blocks.in_region(region));
        quota.min(self.blocks.free().saturating_sub(1))
    }

    pub(super) fn physical(&self, page: FlashPage) -> PhysicalPage {
        let status = self.pages.get(page);
        let block = self.shape.block(page);
        PhysicalPage { page, block, density: status.density(), strength: status.strength() }
    }

    /// Reads a flash page. Returns its errors if the code corrects them, and queues new faults.
    pub(super) fn read_errors(
        &mut self,
        page: FlashPage,
        run: &mut Run<'_>,
    ) -> Result<ReadErrors, PhysicalPage> {
        let physical = self.physical(page);
        let found = run.reads.read(physical, self.blocks.cycles(physical.block));
        let status = self.pages.get(page);
        let corrected = found.errors <= u32::from(status.strength());
        let suspect = self.policy.is_suspect(status, found.errors);
        if suspect && corrected && found.errors > 0 {
            run.steps.push(Step::Read(physical));
        }
        if suspect || !corrected {
            let (consistent, reads) = (found.consistent, status.reads());
            self.new_faults.push(NewFaults { page, density: physical.density, consistent, reads });
        }
        if corrected {
            return Ok(found);
        }
        run.note(Note::Uncorrectable);
        Err(physical)
    }

    /// Reads a disk page from flash: `None` if it is not there, an error if its code cannot correct it. The
    /// page then leaves the cache.
    pub(super) fn read(&mut self, key: u32, run: &mut Run<'_>) -> Option<Result<PhysicalPage, PhysicalPage>> {
        let page = self.keys.find(key)?;
        let physical = self.physical(page);
        self.age();
        self.pages.count_read(page);
        self.blocks.touch(physical.block);
        if let Err(failed) = self.read_errors(page, run) {
            self.lose(page, run);
            return Some(Err(failed));
        }
        self.status.count(Level::Flash);
        if self.policy.is_hot(self.pages.get(page)) {
            self.hot.push((page, key));
        }
        Some(Ok(physical))
    }

    fn age(&mut self) {
        self.reads += 1;
        if self.age_reads > 0 && self.reads.is_multiple_of(self.age_reads) {
            self.pages.age();
            self.status.age();
        }
    }

    /// Drops a page whose data cannot be read.
    pub(super) fn lose(&mut self, page: FlashPage, run: &mut Run<'_>) {
        if self.pages.get(page).is_dirty() {
            run.note(Note::Lost);
        }
        self.vacate(page);
    }

    /// A page that was read from the disk enters the read region.
    pub(super) fn fill(&mut self, key: u32, run: &mut Run<'_>) {
        self.place(key, Region::Read, false, Cause::Fill, run);
    }

    /// A page that was written enters the write region.
    pub(super) fn write_back(&mut self, key: u32, run: &mut Run<'_>) {
        if let Some(page) = self.keys.find(key) {
            self.vacate(page);
        }
        if !self.place(key, Region::Write, true, Cause::WriteBack, run) {
            run.steps.push(Step::DiskWrite(key));
        }
    }

    /// Programs a disk page into a region. Returns false if the region has no place for it.
    fn place(&mut self, key: u32, wanted: Region, dirty: bool, cause: Cause, run: &mut Run<'_>) -> bool {
        let region = self.region(wanted);
        let Some(page) = self.allocate(region, false, run) else { return false };
        self.occupy(page, key, dirty, 0);
        self.blocks.touch(self.shape.block(page));
        run.steps.push(Step::Program { to: self.physical(page), disk: key, cause });
        true
    }

    /// Enters data in a page that was allocated.
    pub(super) fn occupy(&mut self, page: FlashPage, key: u32, dirty: bool, reads: u16) {
        self.keys.insert(key, page);
        self.pages.fill(page, dirty, reads);
        self.blocks.programmed_page(self.shape.block(page), dirty);
    }

    /// Empties a page. Returns its disk page.
    pub(super) fn vacate(&mut self, page: FlashPage) -> Option<u32> {
        let key = self.keys.remove(page)?;
        let dirty = self.pages.get(page).is_dirty();
        self.pages.empty(page);
        self.blocks.emptied_page(self.shape.block(page), dirty);
        Some(key)
    }

    pub(super) fn discard(&mut self, key: u32) -> bool {
        self.keys.find(key).and_then(|page| self.vacate(page)).is_some()
    }

    /// The pages of a block that hold data.
    pub(super) fn valid_pages(&self, block: u32) -> Vec<FlashPage> {
        self.shape.pages_of(block).filter(|page| self.pages.get(*page).is_valid()).collect()
    }

    /// An empty page of a region, in single-level cells if wanted. Makes room if there is none.
    pub(super) fn allocate(&mut self, region: Region, single: bool, run: &mut Run<'_>) -> Option<FlashPage> {
        // Each round takes a page, opens a block or empties one.
        for _ in 0..4 * self.shape.blocks + 4 {
            if self.dead {
                return None;
            }
            if let Some(page) = self.take(region, single, run) {
                return Some(page);
            }
            if self.openable(region) == 0 {
                if !self.make_room(region, run) {
                    return None;
                }
                continue;
            }
            self.open(region);
        }
        None
    }

    /// An empty page for data that move, from the block that is kept back if need be.
    pub(super) fn allocate_move(
        &mut self,
        region: Region,
        single: bool,
        run: &mut Run<'_>,
    ) -> Option<FlashPage> {
        self.take(region, single, run).or_else(|| {
            self.open(region);
            self.take(region, single, run)
        })
    }

    fn open(&mut self, region: Region) {
        let opened = self.blocks.open(region);
        self.frontiers[region as usize] = opened.map(|block| Frontier { block, waiting: None });
    }

    /// The next page of a region's frontier.
    fn take(&mut self, region: Region, single: bool, run: &mut Run<'_>) -> Option<FlashPage> {
        let mut frontier = self.frontiers[region as usize]?;
        let page = self.take_from(&mut frontier, single, run);
        self.frontiers[region as usize] = if page.is_some() {
            Some(frontier)
        } else {
            self.blocks.close(frontier.block);
            None
        };
        page
    }

    /// The next page of a block that is being filled.
    pub(super) fn take_from(
        &mut self,
        frontier: &mut Frontier,
        single: bool,
        run: &mut Run<'_>,
    ) -> Option<FlashPage> {
        if !single && let Some(page) = frontier.waiting.take() {
            return Some(page);
        }
        loop {
            let page = self.shape.page(frontier.block, self.blocks.take(frontier.block)?);
            let status = self.pages.get(page);
            let second = page.first() != page;
            if status.is_bad() || (second && status.density() == Density::Slc) {
                continue;
            }
            if !single || status.density() == Density::Slc {
                return Some(page);
            }
            if second {
                frontier.waiting = Some(page);
                continue;
            }
            self.make_single(page);
            run.note(Note::HotToSlc);
            return Some(page);
        }
    }

    /// Turns the cells of two empty pages to single-level cells.
    pub(super) fn make_single(&mut self, page: FlashPage) {
        let (first, second) = (page.first(), page.first().neighbour());
        let (one, other) = (self.pages.get(first).strength(), self.pages.get(second).strength());
        let block = self.shape.block(page);
        self.pages.set_density(first, Density::Slc);
        if other > one {
            self.pages.set_strength(first, other);
            self.blocks.add_strength(block, other - one);
        }
        self.blocks.change_single(block, 1);
        self.forget_waiting(first);
    }

    /// The cells of a page are no longer as they were when a place in them was left out.
    pub(super) fn forget_waiting(&mut self, page: FlashPage) {
        for frontier in self.frontiers.iter_mut().flatten() {
            frontier.waiting = frontier.waiting.filter(|waiting| waiting.first() != page.first());
        }
    }

    /// Takes the flash out of service if too few blocks are left.
    pub(super) fn check_alive(&mut self, run: &mut Run<'_>) {
        if !self.dead && self.blocks.in_service() < FEWEST_BLOCKS {
            self.dead = true;
            for block in 0..self.shape.blocks {
                self.drop_pages(block, run);
            }
            run.note(Note::Dead);
        }
    }
}
