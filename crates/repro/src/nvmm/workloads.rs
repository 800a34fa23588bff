//! Workloads of the technology comparison (NVMM, Performance, Power, and Energy Comparisons).
//!
//! The paper names eleven programs and describes three of them: dd and mmap use a file larger than DRAM,
//! and the light mix fits into memory. Traces of the others are not available. Each program is modelled
//! as a slice from the middle of its run:
//!
//! 1. Its threads have already used some memory. They keep using it in visits: a page chosen by
//!    popularity (Zipf), sixteen of its lines in sequence.
//! 2. From time to time they reach a page that was never used and go through it line by line. An
//!    operating system fills such a page with zeros. In NVMM it is in the DRAM cache, which begins full,
//!    unless it is read from a file. How often this happens is the number of the program's instructions
//!    divided by its pages.
//! 3. The stream contains only references that miss the two inner caches; all others count as
//!    instructions.

use std::sync::Arc;

use deepram_sim::SimError;
use deepram_sim::paging::Backing;
use deepram_sim::processor::{LINE_BYTES, ThreadReferences, ThreadStep};
use deepram_trace::workload::{Permutation, Rng, Zipf};
use deepram_trace::{MemRef, MemoryAccess};

use super::machine::{CORES, InitialDram, MachineConfig, Program};
use super::programs::{self, LINE_COPY};
use crate::chart::Table;
use crate::experiment::Settings;

const PAGE: u64 = 4096;
const PAGE_LINES: u64 = PAGE / LINE_BYTES;
/// Lines of a page per visit. Assumed: 1 KiB, a few adjacent objects.
const VISIT_LINES: u64 = 16;
/// Zipf exponent of page popularity. Assumed: YCSB's.
const THETA: f64 = 0.99;

/// Access pattern of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AccessPattern {
    /// A modelled program.
    ProgramModel(ProgramModel),
    /// Each thread goes once through a file of its own; together the files are larger than DRAM, in
    /// which nothing of them is at first.
    Stream {
        /// Loads or stores.
        access: MemoryAccess,
        /// Instructions per line.
        gap: u32,
    },
    /// Loads at random positions of a file larger than DRAM.
    Mmap,
}

/// A slice of a program's run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProgramModel {
    /// Instructions between references that miss the inner caches.
    pub(super) gap: u32,
    /// Memory used by all threads before the slice, in bytes.
    pub(super) used: u64,
    /// Each thread has its own part of this memory, as separate programs do.
    pub(super) apart: bool,
    /// Instructions between first touches of new pages; `None` if there are no new pages.
    pub(super) page_instructions: Option<u64>,
    /// New pages are read from a file; otherwise they are fresh memory, which an operating system fills
    /// with zeros.
    pub(super) input: bool,
}

/// A workload of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BenchmarkProgram {
    /// Name in metrics.
    pub(super) name: &'static str,
    /// Name in the paper.
    pub(super) title: &'static str,
    pub(super) threads: u32,
    pub(super) kind: AccessPattern,
    /// Whether the paper's "realistic" applies: not a pure file-system test.
    pub(super) realistic: bool,
    /// One program with several threads, as opposed to several programs with one thread each.
    pub(super) parallel: bool,
    /// Source of the parameters.
    pub(super) source: &'static str,
}

const PARSEC: &str = "instructions and pages: Bienia et al., The PARSEC Benchmark Suite, PACT 2008, input \
                      simlarge, recalled, not verified here (its memory with input native: patches of \
                      Linux DAMON, table of resident sets); gap assumed, in the order of its off-chip \
                      traffic";

/// Share of stores in visits (assumed).
const STORES: f64 = 0.3;

const fn model(gap: u32, used: u64, page_instructions: u64, input: bool) -> AccessPattern {
    AccessPattern::ProgramModel(ProgramModel {
        gap,
        used,
        apart: false,
        page_instructions: Some(page_instructions),
        input,
    })
}

const fn parsec(name: &'static str, title: &'static str, kind: AccessPattern) -> BenchmarkProgram {
    BenchmarkProgram { name, title, threads: CORES, kind, realistic: true, parallel: true, source: PARSEC }
}

/// All workloads, in the order of the paper's setup.
pub(super) const WORKLOADS: [BenchmarkProgram; 11] = [
    BenchmarkProgram {
        name: "light_mix",
        title: "Light Mix",
        threads: 4,
        kind: AccessPattern::ProgramModel(ProgramModel {
            gap: 500,
            used: 16 << 20,
            apart: true,
            page_instructions: Some(830_000),
            input: false,
        }),
        realistic: true,
        parallel: false,
        source: "fits into memory: NVMM, Latency Sensitivity; otherwise assumed: four concurrent programs \
                 like Freqmine and Fluidanimate",
    },
    BenchmarkProgram {
        name: "heavy_mix",
        title: "Heavy Mix",
        threads: 8,
        kind: AccessPattern::ProgramModel(ProgramModel {
            gap: 500,
            used: 768 << 20,
            apart: true,
            page_instructions: None,
            input: false,
        }),
        realistic: true,
        parallel: false,
        source: "assumed: eight programs as in the light mix, sharing one and a half times the DRAM",
    },
    BenchmarkProgram {
        name: "pnum",
        title: "PNum",
        threads: 1,
        kind: model(2_000, 1 << 20, 1_230_000, false),
        realistic: true,
        parallel: false,
        source: "assumed: trial division for primes near 10^7, kept in a list: 512 primes per page, 16 \
                 candidates per prime, 50 divisions of three instructions per candidate",
    },
    BenchmarkProgram {
        name: "dd_read",
        title: "DD_Read",
        threads: 1,
        kind: AccessPattern::Stream { access: MemoryAccess::Load, gap: LINE_COPY },
        realistic: false,
        parallel: false,
        source: "larger than DRAM: NVMM, Performance Comparisons; 16 instructions per line assumed: eight \
                 loads, eight stores",
    },
    BenchmarkProgram {
        name: "dd_write",
        title: "DD_Write",
        threads: 1,
        kind: AccessPattern::Stream { access: MemoryAccess::Store, gap: LINE_COPY },
        realistic: false,
        parallel: false,
        source: "as DD_Read",
    },
    BenchmarkProgram {
        name: "mmap",
        title: "MMap",
        threads: 1,
        kind: AccessPattern::Mmap,
        realistic: false,
        parallel: false,
        source: "larger than DRAM, 10,000 reads: NVMM, Latency Sensitivity",
    },
    // 14.11 G instructions over 5,630 KiB, measured by DAMON's authors with input native; assumed equal
    // with simlarge.
    parsec("swaptions", "Swaptions", model(2_000, 4 << 20, 10_000_000, false)),
    // 33.45 G instructions over 32 MiB of transactions and a tree of 128 MiB.
    parsec("freqmine", "Freqmine", model(500, 16 << 20, 817_000, false)),
    // 23.97 G instructions over a database of 64 MiB, read from files.
    parsec("ferret", "Ferret", model(200, 16 << 20, 1_460_000, true)),
    // 14.06 G instructions over 64 MiB of particles.
    parsec("fluidanimate", "Fluidanimate", model(300, 16 << 20, 858_000, false)),
    BenchmarkProgram {
        name: "videoserver",
        title: "Videoserver",
        threads: 4,
        kind: AccessPattern::Stream { access: MemoryAccess::Load, gap: 64 },
        realistic: true,
        parallel: true,
        source: "highly sequential: NVMM, Performance Comparisons; assumed: four streams, one instruction \
                 per byte to copy it twice and compute a checksum",
    },
];

impl BenchmarkProgram {
    /// The same program with one thread.
    pub(super) fn alone(self) -> Self {
        Self { threads: 1, ..self }
    }

    /// Multiplies the instructions between references by `times`. The instructions per new page, where
    /// known, do not change.
    pub(super) fn with_work(self, times: f64) -> Self {
        let more = |gap: u32| (f64::from(gap) * times).round().max(1.0) as u32;
        let kind = match self.kind {
            AccessPattern::ProgramModel(model) => {
                AccessPattern::ProgramModel(ProgramModel { gap: more(model.gap), ..model })
            }
            AccessPattern::Stream { access, gap } => AccessPattern::Stream { access, gap: more(gap) },
            AccessPattern::Mmap => AccessPattern::Mmap,
        };
        Self { kind, ..self }
    }

    /// The machine settings for this workload. Streams have all capacities divided by `scale`, which is
    /// faster.
    pub(super) fn base(&self, settings: &Settings, from: &MachineConfig, scale: u64) -> MachineConfig {
        let mut base = from.clone();
        // dd, Ferret and the video server read by system calls, which do not read around a page.
        base.paging.read_around &= self.kind == AccessPattern::Mmap;
        match self.kind {
            AccessPattern::Stream { .. } => base.scaled(scale),
            AccessPattern::ProgramModel(_) => base.scaled(shrink(settings)),
            AccessPattern::Mmap => base,
        }
    }

    /// The program on machines with these settings.
    pub(super) fn program(&self, settings: &Settings, base: &MachineConfig) -> Program {
        let (data, threads, seed) = (base.data, self.threads, settings.seed);
        match self.kind {
            AccessPattern::Mmap => programs::mmap(base, threads, settings.pick(10_000, 500), seed),
            AccessPattern::Stream { access, gap } => Program {
                text: format!("{threads} streams over {data} B, {access:?}, gap {gap}"),
                backing: Backing::File,
                initial: InitialDram::Empty,
                blocking: false,
                threads: Arc::new(move || Ok(streams(data, threads, access, gap))),
            },
            AccessPattern::ProgramModel(model) => {
                let model = ProgramModel { used: model.used / shrink(settings), ..model };
                let lines = settings.pick(160_000, 16_000);
                let dram = base.dram;
                Program {
                    text: format!(
                        "{model:?}, {lines} lines, {threads} threads, visits of {VISIT_LINES}, theta {THETA}, \
                         stores {STORES}, seed {seed}"
                    ),
                    backing: if model.input { Backing::File } else { Backing::Swap },
                    initial: if base.resident { InitialDram::Memory } else { InitialDram::Empty },
                    blocking: false,
                    threads: Arc::new(move || Ok(model.threads(u64::from(threads), lines, dram, seed))),
                }
            }
        }
    }

    fn row(&self) -> Vec<String> {
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let (gap, used, fresh) = match self.kind {
            AccessPattern::ProgramModel(model) => (
                model.gap.to_string(),
                mib(model.used),
                model.page_instructions.map_or_else(
                    || "none".into(),
                    |count| format!("{count}, {}", if model.input { "a file's" } else { "zeros" }),
                ),
            ),
            AccessPattern::Stream { gap, .. } => {
                (gap.to_string(), "none".into(), format!("{}, a file's", u64::from(gap) * PAGE_LINES))
            }
            AccessPattern::Mmap => ("5".into(), "none".into(), "at random, a file's".into()),
        };
        vec![self.title.into(), self.threads.to_string(), gap, used, fresh, self.source.into()]
    }
}

/// Divisor of all memory sizes in quick runs.
fn shrink(settings: &Settings) -> u64 {
    settings.pick(1, 4)
}

/// The table of all parameters.
pub(super) fn table() -> Table {
    let headings = [
        "",
        "threads",
        "instructions per line",
        "memory in use before",
        "instructions per new page",
        "source",
    ];
    Table {
        title: "Workloads".into(),
        headings: headings.map(Into::into).into(),
        rows: WORKLOADS.iter().map(BenchmarkProgram::row).collect(),
    }
}

/// Each thread goes once through its part of the data, line by line.
fn streams(data: u64, threads: u32, access: MemoryAccess, gap: u32) -> Vec<ThreadReferences<'static>> {
    let part = data / LINE_BYTES / u64::from(threads);
    let references = (0..u64::from(threads)).map(|number| {
        let lines =
            (number * part..(number + 1) * part).map(move |line| Ok(of_line(line, access, gap).into()));
        Box::new(lines) as ThreadReferences<'static>
    });
    references.collect()
}

fn of_line(line: u64, access: MemoryAccess, gap: u32) -> MemRef {
    MemRef { gap, addr: line * LINE_BYTES, size: LINE_BYTES as u32, access }
}

impl ProgramModel {
    /// Lines from the first line of one new page to the first line of the next.
    fn period(&self) -> Option<u64> {
        self.page_instructions.map(|count| (count / u64::from(self.gap)).max(PAGE_LINES))
    }

    /// References of `count` threads: one to each page in use, then warm-up references (a third of the measured
    /// number), then `lines` measured references. The pages of a file lie behind the first `dram` bytes.
    fn threads(self, count: u64, lines: u64, dram: u64, seed: u64) -> Vec<ThreadReferences<'static>> {
        let pages = self.used / PAGE;
        let mine = lines * 4 / 3 / count;
        let new_pages = self.period().map_or(0, |period| mine.div_ceil(period));
        let first_new = if self.input { pages.max(dram / PAGE) } else { pages };
        let references = (0..count).map(|number| {
            let (first, end) = (pages * number / count, pages * (number + 1) / count);
            let fill_with = if self.input { MemoryAccess::Load } else { MemoryAccess::Store };
            let filled = (first..end).map(move |page| of_line(page * PAGE_LINES, fill_with, 1));
            let (first, end) = if self.apart { (first, end) } else { (0, pages) };
            let name = format!("thread {number}");
            let mut visits = PageVisits::new(first, end - first, (THETA, STORES), &name, seed);
            let mut page = first_new + number * new_pages;
            let period = self.period();
            let work = (0..mine).map(move |at| match period.map(|period| at % period) {
                Some(line) if line < PAGE_LINES => {
                    let line = page * PAGE_LINES + line;
                    page += u64::from((line + 1).is_multiple_of(PAGE_LINES));
                    of_line(line, fill_with, self.gap)
                }
                _ => visits.next(self.gap),
            });
            let mut work = work.map(ThreadStep::Access);
            let warm_up: Vec<ThreadStep> = work.by_ref().take((lines / 3 / count) as usize).collect();
            let steps =
                filled.map(ThreadStep::Access).chain(warm_up).chain([ThreadStep::Barrier]).chain(work);
            Box::new(steps.map(Ok::<_, SimError>)) as ThreadReferences<'static>
        });
        references.collect()
    }
}

/// Visits to pages, chosen by popularity.
pub(super) struct PageVisits {
    random: Rng,
    stores: f64,
    popularity: Zipf,
    places: Permutation,
    first: u64,
    line: u64,
    left: u64,
}

impl PageVisits {
    /// Visits to `pages` pages from page `first` on, with this Zipf exponent and share of stores.
    pub(super) fn new(first: u64, pages: u64, (theta, stores): (f64, f64), name: &str, seed: u64) -> Self {
        let (popularity, places) = (Zipf::new(pages, theta), Permutation::new(pages, seed));
        Self { random: Rng::new(seed, name), stores, popularity, places, first, line: 0, left: 0 }
    }

    pub(super) fn next(&mut self, gap: u32) -> MemRef {
        if self.left == 0 {
            let rank = self.popularity.sample(&mut self.random);
            let start = self.random.below(PAGE_LINES / VISIT_LINES) * VISIT_LINES;
            self.line = (self.first + self.places.at(rank)) * PAGE_LINES + start;
            self.left = VISIT_LINES;
        }
        let access = if self.random.chance(self.stores) { MemoryAccess::Store } else { MemoryAccess::Load };
        let reference = of_line(self.line, access, gap);
        self.line += 1;
        self.left -= 1;
        reference
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const FULL: Settings = Settings { quick: false, seed: 7 };

    fn address(step: Result<ThreadStep, SimError>) -> Option<u64> {
        match step.unwrap() {
            ThreadStep::Access(reference) => Some(reference.addr),
            ThreadStep::Sync | ThreadStep::Barrier => None,
        }
    }

    #[test]
    fn modelled_programs_have_the_pages_and_instructions_of_the_table() {
        for workload in &WORKLOADS {
            let AccessPattern::ProgramModel(model) = workload.kind else { continue };
            let (count, lines) = (u64::from(workload.threads), 160_000);
            let dram = MachineConfig::default().dram;
            let used_pages = model.used / PAGE;
            let (mut new, mut old, mut instructions) = (BTreeSet::new(), BTreeSet::new(), 0);
            let (mut references, mut warm_up) = (0u64, 0u64);
            for thread in model.threads(count, lines, dram, FULL.seed) {
                let first = references;
                for step in thread {
                    let ThreadStep::Access(reference) = step.unwrap() else {
                        warm_up += references - first;
                        continue;
                    };
                    let page = reference.addr / PAGE;
                    // New pages are not shared between threads.
                    let line = reference.addr / LINE_BYTES;
                    if page < used_pages {
                        old.insert(page);
                    } else {
                        assert!(new.insert(line), "{}: line {line} is new twice", workload.name);
                    }
                    instructions += u64::from(reference.gap);
                    references += 1;
                }
            }
            assert!(warm_up.abs_diff(used_pages + lines / 3) <= count, "{}: {warm_up}", workload.name);
            let measured = references - warm_up;
            assert!(measured.abs_diff(lines) <= 3 * count, "{}: {measured} lines", workload.name);
            assert_eq!(old.len() as u64, used_pages, "{}: all pages are used", workload.name);
            let pages = new.len() as u64 / PAGE_LINES;
            let expected = model.page_instructions.map_or(0, |each| (instructions - used_pages) / each);
            assert!(
                pages.abs_diff(expected) <= count,
                "{}: {pages} new pages, not {expected}",
                workload.name
            );
            let bytes = model.used + pages * PAGE;
            assert_eq!(bytes <= dram, workload.name != "heavy_mix", "{}: fits", workload.name);
        }
    }

    #[test]
    fn programs_side_by_side_do_not_share() {
        for workload in &WORKLOADS {
            let AccessPattern::ProgramModel(model) = workload.kind else { continue };
            let dram = MachineConfig::default().dram;
            let made = model.threads(2, 8_000, dram, FULL.seed).into_iter();
            let pages: Vec<BTreeSet<u64>> =
                made.map(|thread| thread.filter_map(address).map(|addr| addr / PAGE).collect()).collect();
            assert_eq!(pages[0].is_disjoint(&pages[1]), model.apart, "{}", workload.name);
        }
    }

    #[test]
    fn streams_touch_each_line_once() {
        let made = streams(1 << 20, 4, MemoryAccess::Load, 3);
        let mut lines: Vec<u64> =
            made.into_iter().flatten().filter_map(address).map(|addr| addr / LINE_BYTES).collect();
        lines.sort_unstable();
        assert_eq!(lines, (0..1 << 14).collect::<Vec<u64>>());
    }
}
