//! The write buffer of an SSD, made of a DRAM and a PCM partition (hybrid SSD cache, section V).
//!
//! ```text
//!            TS, TP                                   2L
//!   write miss --> PCM --hot--> DRAM        write miss --> DRAM --victim--> PCM --victim--> flash
//!     | cold        |            |
//!     v             v            v victim: TS to flash; TP to PCM, or to flash if it is cold
//!   flash <-- victim
//! ```
//!
//! Contract: the driver reports each page that the host writes ([`HybridBuffer::write`]) or reads
//! ([`HybridBuffer::read`]), and performs the actions that a write appends, in order. The buffer's state
//! changes at once; the data follow when the driver performs the actions.
//!
//! 1. Both partitions are fully associative with LRU replacement. A page is in one of them at most. A
//!    read that hits is a use of the page, and changes no counter; a read that misses changes nothing.
//! 2. Each page has the set of its valid sectors. All valid sectors are dirty, because reads do not
//!    allocate, so each victim costs a write of flash.
//! 3. The thresholds change only at the end of a period ([`migration`](crate::migration)).
//! 4. A write evicts at most one page to flash.

mod options;

pub use options::{Coolness, Hotness, HybridOptions, Memory, Scheme};

use alloc::vec;
use alloc::vec::Vec;

use crate::cache::KeyLists;
use crate::migration::{
    BloomFilter, CoolnessForm, CoolnessThreshold, HotnessForm, HotnessThreshold, PageHash, SaturatingCounter,
    WearBalance, WriteAdmission,
};

/// Work that follows from a write. Pages are logical page numbers, sectors a bit mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferAction {
    /// Read the sectors of the written page from flash, then write them to `to`.
    Fetch {
        /// The memory that receives them.
        to: Memory,
        /// The sectors.
        sectors: u32,
    },
    /// Write the host's data to this memory.
    Write(Memory),
    /// Write the host's data to flash.
    Bypass,
    /// Move the sectors of the written page from PCM to DRAM, off the critical path.
    Promote {
        /// The sectors that the page had in PCM.
        sectors: u32,
    },
    /// Move a victim of DRAM to PCM.
    Demote {
        /// Its valid sectors.
        sectors: u32,
    },
    /// Read a victim from this memory and write it to flash.
    Destage {
        /// The victim.
        page: u64,
        /// Its valid sectors.
        sectors: u32,
        /// The memory that it leaves.
        from: Memory,
    },
    /// Read a page from flash and write it there again: padding of a victim block.
    Pad {
        /// The page.
        page: u64,
    },
    /// Nothing: a clean victim has left.
    Drop {
        /// The victim.
        page: u64,
    },
}

/// The outcome of a write of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferWrite {
    /// The page was in this memory.
    Hit(Memory),
    /// The page was not in the buffer and has entered this memory.
    Filled(Memory),
    /// The page is not in the buffer, and the write goes to flash.
    Bypassed,
}

/// The outcome of a read of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferRead {
    /// All sectors are in this memory.
    Hit(Memory),
    /// These of the sectors are in the memory; the others are on flash.
    Partial(Memory, u32),
    /// The page was not in the buffer and enters this memory: read all of it from flash.
    Filled(Memory),
    /// The page is not in the buffer.
    Miss,
}

/// The state of a page in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferedPage {
    /// The memory that holds it.
    pub memory: Memory,
    /// Its count of writes, 1 to 8.
    pub count: u8,
    /// Its valid sectors.
    pub sectors: u32,
}

/// The thresholds in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Hotness threshold: count at which a page of PCM moves to DRAM.
    pub hotness: u8,
    /// Coolness threshold: count from which on a page may enter the PCM.
    pub coolness: u8,
    /// No page may enter the PCM.
    pub closed: bool,
}

const MEMORIES: [Memory; 2] = [Memory::Dram, Memory::Pcm];

/// The buffer; see the module.
#[derive(Debug, Clone)]
pub struct HybridBuffer {
    options: HybridOptions,
    /// The pages of both memories: the list's number is that of the memory, the slot's count is the
    /// page's counter.
    pages: KeyLists<u64>,
    /// Valid sectors of the page in each slot.
    sectors: Vec<u32>,
    /// Valid sectors of all pages of each memory.
    valid_sectors: [u64; 2],
    hotness: HotnessThreshold,
    coolness: CoolnessThreshold,
    admission: WriteAdmission,
    balance: WearBalance,
    thresholds: Thresholds,
    /// Accesses in the present period, and its pages written to PCM and to the SSD.
    period_accesses: u32,
    period_writes: [u64; 2],
    periods: u64,
}

const PCM: usize = 0;
const SSD: usize = 1;

impl HybridBuffer {
    /// An empty buffer. A partition that the scheme uses and that has no page counts as one of a page.
    #[must_use]
    pub fn new(options: &HybridOptions) -> Self {
        let options = HybridOptions {
            dram_pages: options.dram_pages.max(1),
            pcm_pages: options.pcm_pages.max(1),
            period: options.period.max(1),
            ..*options
        };
        let (form, scaled, hotness) = match options.hotness {
            Hotness::Adaptive(form) => (form, false, 1),
            Hotness::Scaled(form) => (form, true, 1),
            Hotness::Fixed(threshold) => (HotnessForm::default(), false, threshold),
        };
        let cool = match options.coolness {
            Coolness::Adaptive(form) => form,
            Coolness::Off => CoolnessForm::default(),
        };
        let filter = BloomFilter::new(options.filter_bytes, options.filter_hashes);
        let capacity = options.dram_pages as usize + options.pcm_pages as usize + 1;
        Self {
            pages: KeyLists::new(capacity),
            sectors: vec![0; 16],
            valid_sectors: [0; 2],
            hotness: HotnessThreshold::new(form, scaled, options.dram_pages.into(), filter.clone()),
            coolness: CoolnessThreshold::new(cool),
            admission: WriteAdmission::new(options.decay, &filter),
            balance: WearBalance::new(options.expected, options.endurance_ratio, options.period),
            thresholds: Thresholds { hotness, coolness: 1, closed: false },
            period_accesses: 0,
            period_writes: [0; 2],
            periods: 0,
            options,
        }
    }

    /// Records that the host writes these sectors of a page, and appends the actions that follow.
    #[inline]
    pub fn write(&mut self, page: u64, sectors: u32, actions: &mut Vec<BufferAction>) -> BufferWrite {
        let written = match self.pages.find(page) {
            Some(slot) => BufferWrite::Hit(self.write_hit(page, slot, sectors, actions)),
            None => self.write_miss(page, sectors, actions),
        };
        if self.options.scheme.is_flat() {
            self.count_access();
        }
        written
    }

    /// Returns the memory that the page was in.
    fn write_hit(&mut self, page: u64, slot: u32, sectors: u32, actions: &mut Vec<BufferAction>) -> Memory {
        let before = SaturatingCounter::new(self.pages.count(slot));
        let counter = before.incremented();
        let old = self.sectors[slot as usize];
        let memory = self.memory_of(slot);
        self.sectors[slot as usize] = old | sectors;
        self.valid_sectors[memory as usize] += u64::from((sectors & !old).count_ones());
        self.pages.set_count(slot, counter.count());
        let scheme = self.options.scheme;
        if scheme.is_flat() {
            self.hotness.record(PageHash::of(page), Some(before), counter);
            self.coolness.record(counter.count());
        }
        let moves = memory == Memory::Pcm
            && match scheme {
                Scheme::TwoLevel => self.options.write_hit_moves,
                Scheme::ToSsd | Scheme::ToPcm => counter.count() >= self.thresholds.hotness,
                Scheme::DramOnly | Scheme::PcmOnly => false,
            };
        if !moves {
            self.pages.move_to_newest(slot, memory as u32);
            self.period_writes[PCM] += u64::from(memory == Memory::Pcm);
            actions.push(BufferAction::Write(memory));
            return memory;
        }
        let copied = match self.options.promoting_write {
            Memory::Dram => old,
            Memory::Pcm => {
                self.period_writes[PCM] += 1;
                actions.push(BufferAction::Write(Memory::Pcm));
                old | sectors
            }
        };
        self.move_page(slot, Memory::Dram);
        self.make_room(Memory::Dram, actions);
        if self.options.promoting_write == Memory::Dram {
            actions.push(BufferAction::Write(Memory::Dram));
        }
        actions.push(BufferAction::Promote { sectors: copied });
        memory
    }

    fn write_miss(&mut self, page: u64, sectors: u32, actions: &mut Vec<BufferAction>) -> BufferWrite {
        let scheme = self.options.scheme;
        let mut count = 1;
        if scheme.is_flat() {
            let hash = PageHash::of(page);
            count = self.admission.count(hash);
            self.hotness.record(hash, None, SaturatingCounter::new(count));
            self.coolness.record(count);
            let Thresholds { coolness, closed, .. } = self.thresholds;
            if !self.admission.admit(hash, count, coolness, closed) {
                self.period_writes[SSD] += 1;
                actions.push(BufferAction::Bypass);
                return BufferWrite::Bypassed;
            }
        }
        let memory = scheme.entry();
        let full = self.options.full_page();
        let fetched = if self.options.fetch_on_write { full & !sectors } else { 0 };
        let slot = self.pages.push(memory as u32, page);
        self.pages.set_count(slot, count);
        if self.sectors.len() <= slot as usize {
            let more = (2 * self.sectors.len()).max(slot as usize + 1);
            self.sectors.resize(more, 0);
        }
        self.sectors[slot as usize] = sectors | fetched;
        self.valid_sectors[memory as usize] += u64::from((sectors | fetched).count_ones());
        self.make_room(memory, actions);
        if fetched != 0 {
            actions.push(BufferAction::Fetch { to: memory, sectors: fetched });
        }
        self.period_writes[PCM] += u64::from(memory == Memory::Pcm);
        actions.push(BufferAction::Write(memory));
        BufferWrite::Filled(memory)
    }

    /// Evicts the least recently used page of a memory that holds a page too many.
    #[inline]
    fn make_room(&mut self, memory: Memory, actions: &mut Vec<BufferAction>) {
        if self.pages.len(memory as u32) > self.capacity(memory) as usize {
            self.evict(memory, actions);
        }
    }

    /// Evicts the least recently used page of a memory. Does nothing if the memory holds none.
    pub fn evict(&mut self, memory: Memory, actions: &mut Vec<BufferAction>) {
        let Some(slot) = self.pages.oldest(memory as u32) else { return };
        let sectors = self.sectors[slot as usize];
        if memory == Memory::Dram && self.retires_to_pcm(slot) {
            self.move_page(slot, Memory::Pcm);
            self.make_room(Memory::Pcm, actions);
            self.period_writes[PCM] += 1;
            actions.push(BufferAction::Demote { sectors });
            return;
        }
        self.valid_sectors[memory as usize] -= u64::from(sectors.count_ones());
        let page = self.pages.remove(slot);
        self.period_writes[SSD] += 1;
        actions.push(BufferAction::Destage { page, sectors, from: memory });
    }

    /// True if a victim of DRAM moves to PCM.
    fn retires_to_pcm(&self, slot: u32) -> bool {
        let Thresholds { coolness, closed, .. } = self.thresholds;
        match self.options.scheme {
            Scheme::TwoLevel => true,
            Scheme::ToPcm => !closed && self.pages.count(slot) >= coolness,
            Scheme::DramOnly | Scheme::PcmOnly | Scheme::ToSsd => false,
        }
    }

    /// Makes a page the most recently used one of the other memory.
    fn move_page(&mut self, slot: u32, to: Memory) {
        let count = if self.options.move_resets_count { 1 } else { self.pages.count(slot) };
        let sectors = u64::from(self.sectors[slot as usize].count_ones());
        self.valid_sectors[self.memory_of(slot) as usize] -= sectors;
        self.valid_sectors[to as usize] += sectors;
        self.pages.move_to_list(slot, to as u32);
        self.pages.set_count(slot, count);
    }

    /// Records that the host reads these sectors of a page.
    #[inline]
    pub fn read(&mut self, page: u64, sectors: u32) -> BufferRead {
        let found = self.pages.find(page);
        if self.options.reads_end_periods && self.options.scheme.is_flat() {
            self.count_access();
        }
        let Some(slot) = found else { return BufferRead::Miss };
        let memory = self.memory_of(slot);
        let valid = self.sectors[slot as usize] & sectors;
        if valid == 0 {
            return BufferRead::Miss;
        }
        self.pages.move_to_newest(slot, memory as u32);
        if valid == sectors { BufferRead::Hit(memory) } else { BufferRead::Partial(memory, valid) }
    }

    /// Removes a page whose data are no longer needed. Returns false if the buffer does not hold it.
    pub fn discard(&mut self, page: u64) -> bool {
        let Some(slot) = self.pages.find(page) else { return false };
        let sectors = u64::from(self.sectors[slot as usize].count_ones());
        self.valid_sectors[self.memory_of(slot) as usize] -= sectors;
        self.pages.remove(slot);
        true
    }

    /// True if a write of this page would evict a page to flash. (A write that ends its period is decided
    /// by the thresholds before its end.)
    #[must_use]
    pub fn write_destages(&self, page: u64) -> bool {
        let is_full = |memory: Memory| self.pages.len(memory as u32) >= self.capacity(memory) as usize;
        let retires = || self.pages.oldest(Memory::Dram as u32).is_some_and(|slot| self.retires_to_pcm(slot));
        let scheme = self.options.scheme;
        let Some(slot) = self.pages.find(page) else {
            return match scheme {
                Scheme::DramOnly => is_full(Memory::Dram),
                Scheme::PcmOnly => is_full(Memory::Pcm),
                Scheme::TwoLevel => is_full(Memory::Dram) && is_full(Memory::Pcm),
                Scheme::ToSsd | Scheme::ToPcm => {
                    let Thresholds { coolness, closed, .. } = self.thresholds;
                    let admitted = !closed && self.admission.count(PageHash::of(page)) >= coolness;
                    admitted && is_full(Memory::Pcm)
                }
            };
        };
        // A page that moves from PCM to DRAM leaves room in PCM.
        let hot = self.pages.count(slot).saturating_add(1) >= self.thresholds.hotness;
        scheme.is_flat() && self.memory_of(slot) == Memory::Pcm && hot && is_full(Memory::Dram) && !retires()
    }

    /// Counts an access of a page, and ends the period after the last one.
    #[inline]
    fn count_access(&mut self) {
        self.period_accesses += 1;
        if self.period_accesses >= self.options.period {
            self.end_period();
        }
    }

    fn end_period(&mut self) {
        self.period_accesses = 0;
        self.periods += 1;
        self.hotness.end_period(self.len() as u64);
        if !matches!(self.options.hotness, Hotness::Fixed(_)) {
            self.thresholds.hotness = self.hotness.threshold();
        }
        let [pcm, ssd] = core::mem::take(&mut self.period_writes);
        self.balance.end_period(pcm, ssd);
        if self.options.coolness != Coolness::Off {
            let (disparity, wanted) = (self.balance.disparity(), self.balance.ssd_writes());
            self.coolness.end_period(disparity, wanted, self.thresholds.hotness);
            self.thresholds.coolness = self.coolness.threshold();
            self.thresholds.closed = self.coolness.is_closed();
        }
        self.admission.end_period();
    }

    fn memory_of(&self, slot: u32) -> Memory {
        MEMORIES[self.pages.list(slot) as usize & 1]
    }

    fn capacity(&self, memory: Memory) -> u32 {
        match memory {
            Memory::Dram => self.options.dram_pages,
            Memory::Pcm => self.options.pcm_pages,
        }
    }

    /// The state of a page; `None` if the buffer does not hold it.
    #[must_use]
    pub fn page(&self, page: u64) -> Option<BufferedPage> {
        let slot = self.pages.find(page)?;
        let sectors = self.sectors[slot as usize];
        Some(BufferedPage { memory: self.memory_of(slot), count: self.pages.count(slot), sectors })
    }

    /// Pages in a memory.
    #[must_use]
    pub fn pages_in(&self, memory: Memory) -> usize {
        self.pages.len(memory as u32)
    }

    /// Dirty sectors in a memory.
    #[must_use]
    #[inline]
    pub fn dirty_sectors(&self, memory: Memory) -> u64 {
        self.valid_sectors[memory as usize]
    }

    /// Pages in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages_in(Memory::Dram) + self.pages_in(Memory::Pcm)
    }

    /// True if the buffer holds no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The thresholds in force.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Number of periods that have ended.
    #[must_use]
    #[inline]
    pub fn periods(&self) -> u64 {
        self.periods
    }

    /// Actual less expected SSD writes of all periods: `WriteDisparity`.
    #[must_use]
    pub fn write_disparity(&self) -> f64 {
        self.balance.disparity()
    }

    /// Memory of the buffer's tables, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.pages.memory_bytes()
            + self.sectors.capacity() * size_of::<u32>()
            + self.admission.memory_bytes()
            + self.options.filter_bytes as usize
    }
}
