//! The algorithms of the hybrid SSD cache as a reader of the paper would write them first: sets instead of Bloom filters,
//! vectors searched from end to end.

use std::collections::HashSet;

use deepram_core::hybrid_buffer::{
    BufferAction, BufferRead, Coolness, Hotness, HybridOptions, Memory, Scheme,
};
use deepram_core::migration::{CoolnessForm, ExpectedWrites, FilterDecay, HotnessForm};

/// Algorithm 2, line by line. Bucket 0 is not used.
#[derive(Clone, Default)]
pub(crate) struct Algorithm2 {
    pub(crate) seen: HashSet<u64>,
    pub(crate) bucket: [i64; 9],
    pub(crate) threshold: u8,
}

impl Algorithm2 {
    pub(crate) fn access(&mut self, page: u64, before: Option<u8>, count: u8, form: HotnessForm) {
        let found = self.seen.contains(&page);
        let index = count as usize;
        if form == HotnessForm::Literal {
            if found {
                self.bucket[index - 1] -= 1;
            } else {
                self.seen.insert(page);
                self.bucket[index] += 1;
            }
            self.bucket[0] = 0;
            return;
        }
        self.seen.insert(page);
        if found && before == Some(8) {
            return;
        }
        if found && index > 1 && self.bucket[index - 1] > 0 {
            self.bucket[index - 1] -= 1;
        }
        self.bucket[index] += 1;
    }

    pub(crate) fn period_end(&mut self, dram: u64, resident: u64, scaled: bool) {
        // In whole numbers: the registers' pages over the period's pages, times the resident pages.
        let pages = self.seen.len().max(1) as i64;
        let (times, over) = if scaled { (resident as i64, pages) } else { (1, 1) };
        let mut index = 8;
        let mut sum = 0;
        while sum * times < dram as i64 * over && index > 0 {
            sum += self.bucket[index];
            self.threshold = index as u8;
            index -= 1;
        }
        self.bucket = [0; 9];
        self.seen.clear();
    }
}

/// Algorithm 3, line by line, with the disparity.
#[derive(Clone, Default)]
pub(crate) struct Algorithm3 {
    pub(crate) frequency: [u64; 5],
    pub(crate) threshold: u8,
    pub(crate) closed: bool,
    pub(crate) disparity: f64,
}

impl Algorithm3 {
    pub(crate) fn access(&mut self, count: u8) {
        if count <= 4 {
            self.frequency[count as usize] += 1;
        }
    }

    pub(crate) fn period_end(&mut self, ssd_writes: f64, hotness: u8, form: CoolnessForm) {
        let mut requests = self.disparity;
        let mut threshold = 1;
        while requests < ssd_writes && threshold < 5 {
            requests += self.frequency[threshold as usize] as f64;
            threshold += 1;
        }
        if form == CoolnessForm::Literal {
            if requests < ssd_writes {
                threshold = hotness;
            }
            self.closed = threshold == hotness;
        } else {
            self.closed = requests < ssd_writes;
            self.frequency = [0; 5];
        }
        self.threshold = threshold;
    }
}

/// Algorithm 4, line by line. Filter 0 is not used.
#[derive(Clone, Default)]
pub(crate) struct Algorithm4 {
    pub(crate) filter: [HashSet<u64>; 5],
}

impl Algorithm4 {
    pub(crate) fn count(&self, page: u64) -> u8 {
        let mut count = 1;
        while count <= 4 && self.filter[count].contains(&page) {
            count += 1;
        }
        count as u8
    }

    pub(crate) fn is_cached(&mut self, page: u64, threshold: u8, closed: bool) -> bool {
        let count = self.count(page);
        if !closed && count >= threshold {
            return true;
        }
        if count <= 4 {
            self.filter[count as usize].insert(page);
        }
        false
    }

    pub(crate) fn period_end(&mut self, decay: FilterDecay) {
        if decay == FilterDecay::Shift {
            for filter in 1..4 {
                self.filter[filter] = self.filter[filter + 1].clone();
            }
            self.filter[4].clear();
        } else {
            self.filter.iter_mut().for_each(HashSet::clear);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) page: u64,
    pub(crate) count: u8,
    pub(crate) sectors: u32,
}

/// The buffer: each memory is a vector of lines, the least recently used first.
pub(crate) struct ModelBuffer {
    pub(crate) options: HybridOptions,
    pub(crate) lines: [Vec<Line>; 2],
    pub(crate) hot: Algorithm2,
    pub(crate) cool: Algorithm3,
    pub(crate) bloom: Algorithm4,
    accesses: u32,
    pcm_writes: u64,
    ssd_writes: u64,
}

const DRAM: usize = 0;
const PCM: usize = 1;

impl ModelBuffer {
    pub(crate) fn new(options: &HybridOptions) -> Self {
        let hotness = if let Hotness::Fixed(fixed) = options.hotness { fixed } else { 1 };
        Self {
            options: *options,
            lines: [Vec::new(), Vec::new()],
            hot: Algorithm2 { threshold: hotness, ..Algorithm2::default() },
            cool: Algorithm3 { threshold: 1, ..Algorithm3::default() },
            bloom: Algorithm4::default(),
            accesses: 0,
            pcm_writes: 0,
            ssd_writes: 0,
        }
    }

    fn flat(&self) -> bool {
        matches!(self.options.scheme, Scheme::ToSsd | Scheme::ToPcm)
    }

    fn form(&self) -> HotnessForm {
        match self.options.hotness {
            Hotness::Adaptive(form) | Hotness::Scaled(form) => form,
            Hotness::Fixed(_) => HotnessForm::Corrected,
        }
    }

    pub(crate) fn place(&self, page: u64) -> Option<(usize, usize)> {
        (0..2)
            .find_map(|memory| Some((memory, self.lines[memory].iter().position(|line| line.page == page)?)))
    }

    fn evict(&mut self, memory: usize, actions: &mut Vec<BufferAction>) {
        let victim = self.lines[memory].remove(0);
        let to_pcm = memory == DRAM
            && match self.options.scheme {
                Scheme::TwoLevel => true,
                Scheme::ToPcm => !self.cool.closed && victim.count >= self.cool.threshold,
                _ => false,
            };
        if to_pcm {
            let count = if self.options.move_resets_count { 1 } else { victim.count };
            self.lines[PCM].push(Line { count, ..victim });
            self.pcm_writes += 1;
            if self.lines[PCM].len() > self.options.pcm_pages as usize {
                self.evict(PCM, actions);
            }
            actions.push(BufferAction::Demote { sectors: victim.sectors });
        } else {
            let from = if memory == DRAM { Memory::Dram } else { Memory::Pcm };
            self.ssd_writes += 1;
            actions.push(BufferAction::Destage { page: victim.page, sectors: victim.sectors, from });
        }
    }

    pub(crate) fn write(&mut self, page: u64, sectors: u32) -> Vec<BufferAction> {
        let mut actions = Vec::new();
        let capacity = [self.options.dram_pages as usize, self.options.pcm_pages as usize];
        if let Some((memory, at)) = self.place(page) {
            let old = self.lines[memory].remove(at);
            let count = (old.count + 1).min(8);
            if self.flat() {
                let form = self.form();
                self.hot.access(page, Some(old.count), count, form);
                self.cool.access(count);
            }
            let line = Line { page, count, sectors: old.sectors | sectors };
            let moves = memory == PCM
                && match self.options.scheme {
                    Scheme::TwoLevel => self.options.write_hit_moves,
                    Scheme::ToSsd | Scheme::ToPcm => count >= self.hot.threshold,
                    _ => false,
                };
            if moves {
                let first = self.options.promoting_write == Memory::Pcm;
                if first {
                    self.pcm_writes += 1;
                    actions.push(BufferAction::Write(Memory::Pcm));
                }
                let count = if self.options.move_resets_count { 1 } else { count };
                self.lines[DRAM].push(Line { count, ..line });
                if self.lines[DRAM].len() > capacity[DRAM] {
                    self.evict(DRAM, &mut actions);
                }
                if !first {
                    actions.push(BufferAction::Write(Memory::Dram));
                }
                actions
                    .push(BufferAction::Promote { sectors: if first { line.sectors } else { old.sectors } });
            } else {
                self.lines[memory].push(line);
                if memory == PCM {
                    self.pcm_writes += 1;
                }
                actions.push(BufferAction::Write(if memory == PCM { Memory::Pcm } else { Memory::Dram }));
            }
        } else {
            let mut count = 1;
            let mut enters = true;
            if self.flat() {
                count = self.bloom.count(page);
                let form = self.form();
                self.hot.access(page, None, count, form);
                self.cool.access(count);
                enters = self.bloom.is_cached(page, self.cool.threshold, self.cool.closed);
            }
            if enters {
                let dram_first = matches!(self.options.scheme, Scheme::DramOnly | Scheme::TwoLevel);
                let (memory, name) = if dram_first { (DRAM, Memory::Dram) } else { (PCM, Memory::Pcm) };
                let rest = if self.options.fetch_on_write { self.options.full_page() & !sectors } else { 0 };
                self.lines[memory].push(Line { page, count, sectors: sectors | rest });
                if self.lines[memory].len() > capacity[memory] {
                    self.evict(memory, &mut actions);
                }
                if rest != 0 {
                    actions.push(BufferAction::Fetch { to: name, sectors: rest });
                }
                if memory == PCM {
                    self.pcm_writes += 1;
                }
                actions.push(BufferAction::Write(name));
            } else {
                self.ssd_writes += 1;
                actions.push(BufferAction::Bypass);
            }
        }
        self.access();
        actions
    }

    fn access(&mut self) {
        if !self.flat() {
            return;
        }
        self.accesses += 1;
        if self.accesses < self.options.period {
            return;
        }
        self.accesses = 0;
        if let Hotness::Adaptive(_) | Hotness::Scaled(_) = self.options.hotness {
            let resident = (self.lines[DRAM].len() + self.lines[PCM].len()) as u64;
            let scaled = matches!(self.options.hotness, Hotness::Scaled(_));
            self.hot.period_end(self.options.dram_pages.into(), resident, scaled);
        }
        let ratio = self.options.endurance_ratio;
        let ssd_writes = f64::from(self.options.period) * (1.0 / (ratio + 1.0));
        let expected = match self.options.expected {
            ExpectedWrites::OfActual => (self.pcm_writes + self.ssd_writes) as f64 * (1.0 / (ratio + 1.0)),
            ExpectedWrites::OfPeriod => ssd_writes,
        };
        self.cool.disparity += self.ssd_writes as f64 - expected;
        (self.pcm_writes, self.ssd_writes) = (0, 0);
        if let Coolness::Adaptive(form) = self.options.coolness {
            self.cool.period_end(ssd_writes, self.hot.threshold, form);
        }
        self.bloom.period_end(self.options.decay);
    }

    pub(crate) fn read(&mut self, page: u64, sectors: u32) -> BufferRead {
        let place = self.place(page);
        if self.options.reads_end_periods {
            self.access();
        }
        let Some((memory, at)) = place else { return BufferRead::Miss };
        let valid = self.lines[memory][at].sectors & sectors;
        if valid == 0 {
            return BufferRead::Miss;
        }
        let line = self.lines[memory].remove(at);
        self.lines[memory].push(line);
        let name = if memory == PCM { Memory::Pcm } else { Memory::Dram };
        if valid == sectors { BufferRead::Hit(name) } else { BufferRead::Partial(name, valid) }
    }
}
