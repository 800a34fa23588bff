//! The translation layer of one element: a package that is one pool of blocks, written through one
//! active block a plane: that of the SSD extension of DiskSim (Agrawal et al.).
//!
//! 1. Block `b` of the pool is block `b % blocks` of plane `b / blocks`.
//! 2. At the start every logical page is mapped, in order, over the blocks of all planes in turn; the
//!    reserved blocks at each plane's end are free, but for one that is active.
//! 3. A page goes to the plane with the most free pages whose active block is younger than the page's
//!    present copy (so that the newest of two copies is told by block age), searched from the plane
//!    after the one written last.
//! 4. If blocks end in a summary, their last page holds it, programmed with the page before.
//! 5. A plane with too few free blocks is cleaned before the next request is served: the closed block
//!    with the fewest live pages, of equals the last, moves to the same plane's active block.
//!
//! Costs are times of the element, which does one thing at a time.

use crate::error::SimError;
use crate::flash::{FlashCounts, law};

const NONE: u32 = u32::MAX;
/// Set in the live count of a block that is not closed: it is then never the smallest.
const OPEN: u16 = 1 << 15;
/// The live count without that mark.
const LIVE: u16 = OPEN - 1;

/// What an element is made of, and what its operations cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElementShape {
    pub(crate) planes: u32,
    pub(crate) blocks_per_plane: u32,
    pub(crate) pages_per_block: u32,
    /// Whether the last page of a block is its summary.
    pub(crate) summary: bool,
    /// Blocks of a plane that are free at the start, beside the active one.
    pub(crate) reserved_per_plane: u32,
    /// Free blocks of a plane at or below which it is cleaned.
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
    /// The block being filled, or filled last.
    active: u32,
    /// The next page to write in it; as many as a block's data pages if it is full.
    next: u32,
    free: u32,
    /// Where the search for a free block goes on.
    search: u32,
    /// Blocks that are not free, one bit each.
    used: Vec<u64>,
}

/// Where a plane is written: what the choice of a plane looks at, kept close together.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// The age of the block being filled.
    age: u32,
    /// The next physical page in it.
    page: u32,
    /// Free pages of the plane, as the choice counts them.
    room: u32,
}

/// The state of one element.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    shape: ElementShape,
    planes: Vec<Plane>,
    heads: Vec<Head>,
    /// Physical page of each logical page.
    forward: Vec<u32>,
    /// Logical page that each physical page was last written with; it is live if `forward` agrees.
    backward: Vec<u32>,
    /// Live pages of each block, with [`OPEN`] unless it is closed.
    live: Vec<u16>,
    age: Vec<u32>,
    erased: Vec<u32>,
    next_age: u32,
    next_write: u32,
    next_clean: u32,
    pub(crate) counts: FlashCounts,
}

impl Element {
    pub(crate) fn new(shape: ElementShape) -> Result<Self, SimError> {
        let ElementShape { planes, blocks_per_plane: blocks, pages_per_block: pages, .. } = shape;
        let total = u64::from(planes) * u64::from(blocks) * u64::from(pages);
        if total >= u64::from(NONE) || pages > u32::from(LIVE) {
            return Err(SimError::config(
                "nand.blocks_per_plane",
                "an element must have less than 2^32 pages",
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
        let count = (planes * blocks) as usize;
        let mut element = Self {
            shape,
            planes: Vec::with_capacity(planes as usize),
            heads: Vec::with_capacity(planes as usize),
            forward: vec![NONE; shape.logical_pages() as usize],
            backward: vec![NONE; total as usize],
            live: vec![OPEN; count],
            age: vec![0; count],
            erased: vec![0; count],
            next_age: 1,
            next_write: 0,
            next_clean: 0,
            counts: FlashCounts::default(),
        };
        element.fill();
        Ok(element)
    }

    /// Maps every logical page (2 above).
    fn fill(&mut self) {
        let ElementShape { planes, blocks_per_plane: blocks, pages_per_block: pages, .. } = self.shape;
        let usable = blocks - self.shape.reserved_per_plane;
        let data = self.shape.data_pages();
        for plane in 0..planes {
            let mut used = vec![0u64; (blocks as usize).div_ceil(64)];
            for index in 0..=usable {
                used[index as usize / 64] |= 1 << (index % 64);
            }
            self.planes.push(Plane {
                active: plane * blocks + usable,
                next: 0,
                free: self.shape.reserved_per_plane - 1,
                search: 0,
                used,
            });
        }
        let mut logical = 0;
        for index in 0..usable {
            for plane in 0..planes {
                let block = plane * blocks + index;
                self.age[block as usize] = self.next_age;
                self.next_age += 1;
                self.live[block as usize] = data as u16;
                for page in 0..data {
                    let physical = block * pages + page;
                    self.forward[logical as usize] = physical;
                    self.backward[physical as usize] = logical;
                    logical += 1;
                }
            }
        }
        // The peer never closes the very last block that it fills; it stays out of reclamation.
        if let Some(last) = self.live.get_mut(((planes - 1) * blocks + usable - 1) as usize) {
            *last |= OPEN;
        }
        for plane in 0..planes {
            self.age[(plane * blocks + usable) as usize] = self.next_age;
            self.next_age += 1;
            self.heads.push(Head { age: 0, page: 0, room: 0 });
            self.note(plane);
        }
    }

    /// Brings a plane's head up to date.
    #[inline]
    fn note(&mut self, plane: u32) {
        let pages = self.shape.pages_per_block;
        let state = &self.planes[plane as usize];
        self.heads[plane as usize] = Head {
            age: self.age[state.active as usize],
            page: state.active * pages + state.next,
            room: state.free * pages + pages - state.next,
        };
    }

    /// True if no data page is left at the plane's active position.
    fn is_full(&self, plane: u32) -> bool {
        self.planes[plane as usize].next == self.shape.data_pages()
    }

    /// The plane to write logical page `logical` to (3 above).
    fn choose(&self, logical: u32) -> Option<u32> {
        let pages = self.shape.pages_per_block;
        let present = self.forward[logical as usize];
        let age = if present == NONE { 0 } else { self.age[(present / pages) as usize] };
        let mut best: Option<(u32, u32)> = None;
        let planes = self.shape.planes;
        let mut plane = self.next_write;
        for _ in 0..planes {
            // A full block stands for its plane until another is opened.
            let head = self.heads[plane as usize];
            let younger = head.age > age || (head.age == age && head.page > present);
            // The summary's page is no room.
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

    /// Makes a free block of the plane active.
    fn open(&mut self, plane: u32) -> Result<(), SimError> {
        let blocks = self.shape.blocks_per_plane;
        let state = &mut self.planes[plane as usize];
        let found = find_zero(&state.used, blocks, state.search);
        let Some(index) = found else {
            return Err(SimError::Full { time_ps: 0, what: format!("plane {plane} has no free block") });
        };
        state.search = (index + 1) % blocks;
        state.used[index as usize / 64] |= 1 << (index % 64);
        state.free -= 1;
        let block = plane * blocks + index;
        state.active = block;
        state.next = 0;
        self.age[block as usize] = self.next_age;
        self.next_age += 1;
        Ok(())
    }

    /// Puts `logical` at the plane's active page; the time of the programs, transfers of the page's own
    /// data not included.
    fn put(&mut self, logical: u32, plane: u32) -> Result<u64, SimError> {
        if self.is_full(plane) {
            self.open(plane)?;
        }
        let pages = self.shape.pages_per_block;
        let present = self.forward[logical as usize];
        if present != NONE {
            self.drop_page(present);
        }
        let state = &mut self.planes[plane as usize];
        let block = state.active;
        let physical = block * pages + state.next;
        state.next += 1;
        let full = state.next == self.shape.data_pages();
        self.forward[logical as usize] = physical;
        self.backward[physical as usize] = logical;
        self.live[block as usize] += 1;
        let mut cost = self.shape.program_ps;
        if full {
            self.live[block as usize] &= LIVE;
            if self.shape.summary {
                cost += self.shape.summary_bus_ps + self.shape.program_ps;
                self.counts.summary_programs += 1;
            }
        }
        self.note(plane);
        Ok(cost)
    }

    /// Makes a physical page dead.
    #[inline]
    fn drop_page(&mut self, physical: u32) {
        self.live[(physical / self.shape.pages_per_block) as usize] -= 1;
    }

    /// Writes a page for the host; its time without the transfer of its data.
    pub(crate) fn write(&mut self, logical: u32) -> Result<(u64, u32), SimError> {
        let Some(plane) = self.choose(logical) else {
            return Err(SimError::Full { time_ps: 0, what: "no plane has a younger block to write".into() });
        };
        let cost = self.put(logical, plane)?;
        self.next_write = (plane + 1) % self.shape.planes;
        self.counts.host_programs += 1;
        self.counts.host_pages += 1;
        Ok((cost, plane))
    }

    /// The plane that a logical page is in, if it is mapped.
    pub(crate) fn plane_of(&self, logical: u32) -> Option<u32> {
        let physical = self.forward[logical as usize];
        (physical != NONE).then(|| physical / self.shape.pages_per_block / self.shape.blocks_per_plane)
    }

    /// Forgets a logical page.
    pub(crate) fn trim(&mut self, logical: u32) {
        let present = std::mem::replace(&mut self.forward[logical as usize], NONE);
        if present != NONE {
            self.drop_page(present);
            self.counts.trimmed_pages += 1;
        }
    }

    /// Cleans one block of a plane of `planes` that has too few free ones; the time it takes, or `None` if
    /// no plane needs it.
    pub(crate) fn clean(&mut self, planes: std::ops::Range<u32>) -> Result<Option<u64>, SimError> {
        let (first, count) = (planes.start, planes.end - planes.start);
        let start = if planes.contains(&self.next_clean) { self.next_clean } else { first };
        for step in 0..count {
            let plane = first + (start - first + step) % count;
            if self.planes[plane as usize].free <= self.shape.clean_at
                && let Some(block) = self.emptiest(plane)
            {
                self.next_clean = first + (plane - first + 1) % count;
                return self.clean_block(plane, block).map(Some);
            }
        }
        Ok(None)
    }

    /// The closed block of a plane with the fewest live pages, of equals the last; none if nothing could
    /// be gained.
    fn emptiest(&self, plane: u32) -> Option<u32> {
        let first = plane * self.shape.blocks_per_plane;
        let live = &self.live[first as usize..(first + self.shape.blocks_per_plane) as usize];
        let fewest = live.iter().copied().min()?;
        if u32::from(fewest) >= self.shape.data_pages() {
            return None;
        }
        live.iter().rposition(|live| *live == fewest).map(|index| first + index as u32)
    }

    fn clean_block(&mut self, plane: u32, block: u32) -> Result<u64, SimError> {
        let pages = self.shape.pages_per_block;
        let index = block % self.shape.blocks_per_plane;
        let mut cost = 0;
        for page in 0..pages {
            let physical = block * pages + page;
            let logical = self.backward[physical as usize];
            if logical != NONE && self.forward[logical as usize] == physical {
                cost += self.shape.read_ps + self.put(logical, plane)?;
                self.counts.move_reads += 1;
                self.counts.move_programs += 1;
            }
        }
        law("an erased block holds no live page", u64::from(self.live[block as usize]), 0)?;
        self.backward[(block * pages) as usize..((block + 1) * pages) as usize].fill(NONE);
        self.live[block as usize] = OPEN;
        let state = &mut self.planes[plane as usize];
        state.used[index as usize / 64] &= !(1 << (index % 64));
        state.free += 1;
        self.erased[block as usize] += 1;
        self.counts.erases += 1;
        self.note(plane);
        Ok(cost + self.shape.erase_ps)
    }

    /// Erase counts of all blocks.
    pub(crate) fn erased(&self) -> &[u32] {
        &self.erased
    }

    /// Checks the books: each logical page in one place, that place knowing it, live counts and free
    /// counts as they are.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let mut mapped = 0u64;
        for (logical, physical) in (0u32..).zip(&self.forward) {
            if *physical != NONE {
                mapped += 1;
                if self.backward[*physical as usize] != logical {
                    return Err(SimError::Conservation {
                        law: "a logical page is where the flash says it is",
                        found: format!(
                            "page {logical} at {physical}, which holds {}",
                            self.backward[*physical as usize]
                        ),
                    });
                }
            }
        }
        let pages = self.shape.pages_per_block as usize;
        for (block, live) in self.live.iter().enumerate() {
            let held = (block * pages..(block + 1) * pages)
                .filter(|page| {
                    let logical = self.backward[*page];
                    logical != NONE && self.forward[logical as usize] as usize == *page
                })
                .count() as u64;
            law("a block's live count is that of its live pages", u64::from(live & LIVE), held)?;
        }
        law("live counts add up", self.live.iter().map(|live| u64::from(live & LIVE)).sum(), mapped)?;
        for (number, plane) in (0u32..).zip(&self.planes) {
            let used: u64 = plane.used.iter().map(|word| u64::from(word.count_ones())).sum();
            law("free blocks add up", used + u64::from(plane.free), u64::from(self.shape.blocks_per_plane))?;
            for index in 0..self.shape.blocks_per_plane {
                let block = number * self.shape.blocks_per_plane + index;
                if plane.used[index as usize / 64] >> (index % 64) & 1 == 0 {
                    law(
                        "no logical page is in an erased block",
                        u64::from(self.live[block as usize] & LIVE),
                        0,
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// The first clear bit at `start` or after it, around the end of `len` bits.
fn find_zero(words: &[u64], len: u32, start: u32) -> Option<u32> {
    let scan = |from: u32, to: u32| {
        let mut bit = from;
        while bit < to {
            let word = !words[bit as usize / 64] >> (bit % 64);
            if word == 0 {
                bit += 64 - bit % 64;
                continue;
            }
            let found = bit + word.trailing_zeros();
            return (found < to).then_some(found);
        }
        None
    };
    scan(start, len).or_else(|| scan(0, start))
}
