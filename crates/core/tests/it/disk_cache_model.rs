//! The disk cache against a plain model of it, over random streams: hits, misses, evictions, reclamations.
//!
//! The model keeps lists that it searches from end to end. It has one density and no errors.

use deepram_core::disk_cache::*;
use proptest::prelude::*;

use crate::disk_cache::{Uniform, options};

#[derive(Clone, Default)]
struct ModelBlock {
    /// Disk page of each place, and whether it is dirty; `None` for a dead place.
    places: Vec<Option<(u32, bool)>>,
    erases: u32,
    /// 0: read, 1: write; `None` for a free block.
    region: Option<usize>,
}

struct Model {
    blocks: Vec<ModelBlock>,
    pages: usize,
    quota: [usize; 2],
    unified: bool,
    least_dead: usize,
    open: [Option<usize>; 2],
    /// Blocks in the order of use, the oldest first.
    order: Vec<usize>,
    dram: Vec<(u32, bool)>,
    dram_pages: usize,
    /// Evicted and reclaimed blocks, programs, disk writes.
    counts: [u64; 4],
}

impl Model {
    fn find(&self, key: u32) -> Option<(usize, usize)> {
        self.blocks.iter().enumerate().find_map(|(block, state)| {
            let at = state.places.iter().position(|place| place.is_some_and(|(page, _)| page == key))?;
            Some((block, at))
        })
    }

    fn touch(&mut self, block: usize) {
        self.order.retain(|other| *other != block);
        self.order.push(block);
    }

    fn used(&self, region: usize) -> usize {
        self.blocks.iter().filter(|block| block.region == Some(region)).count()
    }

    fn free(&self) -> Vec<usize> {
        (0..self.blocks.len()).filter(|block| self.blocks[*block].region.is_none()).collect()
    }

    fn open(&mut self, region: usize) {
        let least = self.free().into_iter().min_by_key(|block| (self.blocks[*block].erases, *block));
        if let Some(block) = least {
            self.blocks[block].erases += 1;
            self.blocks[block].region = Some(region);
            self.touch(block);
        }
        self.open[region] = least;
    }

    /// Appends to the open block, if it has room.
    fn append(&mut self, region: usize, entry: (u32, bool)) -> bool {
        let Some(block) = self.open[region] else { return false };
        if self.blocks[block].places.len() == self.pages {
            self.open[region] = None;
            return false;
        }
        self.blocks[block].places.push(Some(entry));
        self.counts[2] += 1;
        true
    }

    fn place(&mut self, region: usize, entry: (u32, bool)) {
        while !self.append(region, entry) {
            if self.used(region) < self.quota[region] && self.free().len() > 1 {
                self.open(region);
            } else {
                self.make_room(region);
            }
        }
        let block = self.open[region].unwrap();
        self.touch(block);
    }

    fn dead(&self, block: usize) -> usize {
        self.blocks[block].places.iter().filter(|place| place.is_none()).count()
    }

    fn victim(&self, region: usize) -> Option<usize> {
        if region == 0 && !self.unified {
            return None;
        }
        let fits = |block: &usize| {
            self.blocks[*block].region == Some(region)
                && self.open[region] != Some(*block)
                && self.dead(*block) >= self.least_dead
        };
        (0..self.blocks.len()).filter(fits).max_by_key(|block| (self.dead(*block), usize::MAX - *block))
    }

    fn erase(&mut self, block: usize) {
        self.blocks[block].places.clear();
        self.blocks[block].region = None;
        self.order.retain(|other| *other != block);
    }

    fn reclaim(&mut self, region: usize) -> bool {
        let Some(victim) = self.victim(region) else { return false };
        self.counts[1] += 1;
        for entry in std::mem::take(&mut self.blocks[victim].places).into_iter().flatten() {
            if !self.append(region, entry) {
                self.open(region);
                assert!(self.append(region, entry));
            }
        }
        self.erase(victim);
        true
    }

    fn make_room(&mut self, region: usize) {
        if self.reclaim(region) {
            return;
        }
        let closed =
            |block: &usize| self.blocks[*block].region == Some(region) && self.open[region] != Some(*block);
        let victim = self.order.iter().copied().find(closed).unwrap();
        self.counts[0] += 1;
        let dirty = self.blocks[victim].places.iter().flatten().filter(|(_, dirty)| *dirty).count();
        self.counts[3] += dirty as u64;
        self.erase(victim);
    }

    fn vacate(&mut self, key: u32) {
        if let Some((block, at)) = self.find(key) {
            self.blocks[block].places[at] = None;
        }
    }

    fn write_back(&mut self, key: u32) {
        self.vacate(key);
        self.place(if self.unified { 0 } else { 1 }, (key, true));
    }

    fn enter(&mut self, key: u32, dirty: bool) {
        if self.dram.len() == self.dram_pages {
            let (victim, dirty) = self.dram.remove(0);
            if dirty {
                self.write_back(victim);
            }
        }
        self.dram.push((key, dirty));
    }

    /// Returns 0 for DRAM, 1 for flash, 2 for the disk.
    fn read(&mut self, key: u32) -> usize {
        if let Some(at) = self.dram.iter().position(|(page, _)| *page == key) {
            let entry = self.dram.remove(at);
            self.dram.push(entry);
            return 0;
        }
        let level = match self.find(key) {
            Some((block, _)) => {
                self.touch(block);
                1
            }
            None => {
                self.place(0, (key, false));
                2
            }
        };
        self.enter(key, false);
        level
    }

    fn write(&mut self, key: u32) {
        match self.dram.iter().position(|(page, _)| *page == key) {
            Some(at) => {
                self.dram.remove(at);
                self.dram.push((key, true));
            }
            None => self.enter(key, true),
        }
    }

    fn flush(&mut self) {
        for place in self.blocks.iter_mut().flat_map(|block| block.places.iter_mut().flatten()) {
            self.counts[3] += u64::from(place.1);
            place.1 = false;
        }
    }
}

/// Evicted and reclaimed blocks, programs, disk writes.
fn counted(steps: &mut Vec<Step>) -> [u64; 4] {
    let mut counts = [0; 4];
    for step in steps.drain(..) {
        match step {
            Step::Note(Note::Evict { .. }) => counts[0] += 1,
            Step::Note(Note::Reclaim { .. }) => counts[1] += 1,
            Step::Program { .. } | Step::Move { .. } => counts[2] += 1,
            Step::Flush { .. } | Step::DiskWrite(_) => counts[3] += 1,
            _ => {}
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn hits_evictions_and_reclamations_are_those_of_the_plain_model(
        seed in any::<u64>(),
        blocks in 5u32..12,
        slots in 1u16..6,
        share in prop::option::of(0.2f64..0.8),
        least_dead in 1u16..4,
        dram_pages in 1u32..6,
    ) {
        let mut options = options(dram_pages, blocks, slots, share);
        (options.least_dead, options.policy.hot_limit) = (least_dead, None);
        let mut cache = DiskCache::new(&options).unwrap();
        let usable = blocks as usize - 1;
        let write = share.map_or(0, |share| ((share * usable as f64).round() as usize).clamp(2, usable - 2));
        let mut model = Model {
            blocks: vec![ModelBlock::default(); blocks as usize],
            pages: 2 * usize::from(slots),
            quota: [usable - write, write],
            unified: share.is_none(),
            least_dead: least_dead.into(),
            open: [None; 2],
            order: Vec::new(),
            dram: Vec::new(),
            dram_pages: dram_pages as usize,
            counts: [0; 4],
        };
        let mut random = Uniform(seed);
        let mut steps = Vec::new();
        let span = u64::from(blocks) * u64::from(slots) * 3;
        for number in 0..1500 {
            let page = random.below(if number % 3 == 0 { span.div_ceil(4) } else { span }) as u32;
            let before = model.counts;
            match random.below(100) {
                0..=54 => {
                    let level = match cache.read(page, &mut NoErrors, &mut steps) {
                        ReadOutcome::Dram => 0,
                        ReadOutcome::Flash(_) => 1,
                        ReadOutcome::Disk { .. } => 2,
                    };
                    prop_assert_eq!(level, model.read(page), "operation {}", number);
                }
                55..=98 => {
                    cache.write(page, &mut NoErrors, &mut steps);
                    model.write(page);
                }
                _ => {
                    cache.flush(u32::MAX, &mut NoErrors, &mut steps);
                    model.flush();
                }
            }
            let did: Vec<u64> = model.counts.iter().zip(before).map(|(now, then)| now - then).collect();
            prop_assert_eq!(counted(&mut steps).to_vec(), did, "operation {}", number);
        }
        let wear: Vec<u32> = cache.flash().blocks().all_cycles().collect();
        let expected: Vec<u32> = model.blocks.iter().map(|block| block.erases).collect();
        prop_assert_eq!(wear, expected);
    }
}
