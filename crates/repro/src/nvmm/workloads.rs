//! The workloads of the technology comparison (NVMM, Performance, Power, and Energy Comparisons).
//!
//! The paper names eleven programs and describes three of them: dd and mmap run over a file larger than DRAM,
//! and the light mix fits into memory. Traces of the others are not to be had. Each is modelled as a slice out
//! of the middle of its run:
//!
//! 1. Its threads have used some memory before. They go on using it in visits: a page by its popularity
//!    (Zipf), sixteen lines of it one after the other.
//! 2. Now and then they come to a page that nobody used before, and go through it line by line. A system whose
//!    memory is large enough misses on nothing else. How often that happens is what a program's slowdown hangs
//!    on; it is the program's instructions over its pages.
//! 3. Only references that the two inner caches miss are there; the others are instructions.

use std::sync::Arc;

use deepram_sim::SimError;
use deepram_sim::paging::Backing;
use deepram_sim::processor::{LINE_BYTES, ThreadReferences};
use deepram_trace::workload::{Permutation, Rng, Zipf};
use deepram_trace::{Access, MemRef};

use super::machine::{Base, Program, Threads};
use super::programs::{self, LINE_COPY};
use crate::chart::Table;
use crate::experiment::Settings;

const PAGE: u64 = 4096;
const PAGE_LINES: u64 = PAGE / LINE_BYTES;
/// Lines of a page that a visit goes through. Assumed: 1 KiB, a few objects that lie together.
const VISIT_LINES: u64 = 16;
/// Of the pages' popularity. Assumed: YCSB's.
const THETA: f64 = 0.99;
/// Threads of a program that has several: one for each core of `processor.westmere`.
const CORES: u32 = 6;

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A program's own work.
    Guest(Guest),
    /// Each thread goes once through a file of its own, with so many instructions for a line; together the
    /// files are four times the DRAM.
    Stream {
        /// Loads or stores.
        access: Access,
        /// Instructions for a line.
        gap: u32,
    },
    /// Loads at random places of a file four times the DRAM.
    Mmap,
}

/// A slice of a program's run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guest {
    /// Instructions from one reference that the inner caches miss to the next.
    pub(super) gap: u32,
    /// Bytes that the threads, all together, used before the slice.
    pub(super) used: u64,
    /// Each thread has a part of these bytes for itself, as programs have that run side by side.
    pub(super) apart: bool,
    /// Instructions from one page that nobody used before to the next; none if all have been used.
    pub(super) page_instructions: Option<u64>,
    /// Such pages come from a file; if not, they are fresh memory, which an operating system fills with zeros.
    pub(super) input: bool,
}

/// One of the paper's workloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Workload {
    /// In the names of figures.
    pub(super) name: &'static str,
    /// As the paper has it.
    pub(super) title: &'static str,
    pub(super) threads: u32,
    pub(super) kind: Kind,
    /// Whether the paper's "realistic" covers it: not a test of the file system alone.
    pub(super) realistic: bool,
    /// A program with several threads, not several programs with one.
    pub(super) parallel: bool,
    /// Where its parameters come from.
    pub(super) source: &'static str,
}

const PARSEC: &str = "instructions and pages: Bienia et al., The PARSEC Benchmark Suite, PACT 2008, input simlarge, \
                      recalled, not at hand here (its memory with input native: patches of Linux DAMON, table of \
                      resident sets); gap assumed, in the order of its off-chip traffic";

/// Store share of visits. Assumed.
const STORES: f64 = 0.3;

const fn guest(gap: u32, used: u64, page_instructions: u64, input: bool) -> Kind {
    Kind::Guest(Guest { gap, used, apart: false, page_instructions: Some(page_instructions), input })
}

const fn parsec(name: &'static str, title: &'static str, kind: Kind) -> Workload {
    Workload { name, title, threads: CORES, kind, realistic: true, parallel: true, source: PARSEC }
}

/// All of them, in the order of the paper's setup.
pub(super) const WORKLOADS: [Workload; 11] = [
    Workload {
        name: "light_mix",
        title: "Light Mix",
        threads: 4,
        kind: Kind::Guest(Guest {
            gap: 500,
            used: 16 << 20,
            apart: true,
            page_instructions: Some(830_000),
            input: false,
        }),
        realistic: true,
        parallel: false,
        source: "fits into memory: NVMM, Latency Sensitivity; else assumed: four programs at a time like Freqmine and \
                 Fluidanimate",
    },
    Workload {
        name: "heavy_mix",
        title: "Heavy Mix",
        threads: 8,
        kind: Kind::Guest(Guest {
            gap: 500,
            used: 96 << 20,
            apart: true,
            page_instructions: None,
            input: false,
        }),
        realistic: true,
        parallel: false,
        source: "assumed: eight programs as in the light mix, with one and a half times the DRAM between them",
    },
    Workload {
        name: "pnum",
        title: "PNum",
        threads: 1,
        kind: guest(2_000, 1 << 20, 1_230_000, false),
        realistic: true,
        parallel: false,
        source: "assumed: trial division for primes near 10^7, kept in a list: 512 primes a page, 16 candidates a \
                 prime, 50 divisions of three instructions a candidate",
    },
    Workload {
        name: "dd_read",
        title: "DD_Read",
        threads: 1,
        kind: Kind::Stream { access: Access::Load, gap: LINE_COPY },
        realistic: false,
        parallel: false,
        source: "larger than DRAM: NVMM, Performance Comparisons; 16 instructions a line assumed: eight loads, eight \
                 stores",
    },
    Workload {
        name: "dd_write",
        title: "DD_Write",
        threads: 1,
        kind: Kind::Stream { access: Access::Store, gap: LINE_COPY },
        realistic: false,
        parallel: false,
        source: "as DD_Read",
    },
    Workload {
        name: "mmap",
        title: "MMap",
        threads: 1,
        kind: Kind::Mmap,
        realistic: false,
        parallel: false,
        source: "larger than DRAM, 10,000 reads: NVMM, Latency Sensitivity",
    },
    // 14.11 G instructions over 5,630 KiB, which DAMON's authors measured with input native; with simlarge assumed
    // to be the same.
    parsec("swaptions", "Swaptions", guest(2_000, 4 << 20, 10_000_000, false)),
    // 33.45 G instructions over 32 MiB of transactions and a tree of 128 MiB.
    parsec("freqmine", "Freqmine", guest(500, 16 << 20, 817_000, false)),
    // 23.97 G instructions over a database of 64 MiB, which is read from files.
    parsec("ferret", "Ferret", guest(200, 16 << 20, 1_460_000, true)),
    // 14.06 G instructions over 64 MiB of particles.
    parsec("fluidanimate", "Fluidanimate", guest(300, 16 << 20, 858_000, false)),
    Workload {
        name: "videoserver",
        title: "Videoserver",
        threads: 4,
        kind: Kind::Stream { access: Access::Load, gap: 64 },
        realistic: true,
        parallel: true,
        source: "highly sequential: NVMM, Performance Comparisons; assumed: four streams, an instruction a byte to copy \
                 it twice and add up a checksum",
    },
];

impl Workload {
    /// The same program with one thread.
    pub(super) fn alone(self) -> Self {
        Self { threads: 1, ..self }
    }

    /// With so many times the instructions from one reference to the next. What a page takes of a program that
    /// is known in instructions stays.
    pub(super) fn with_work(self, times: f64) -> Self {
        let more = |gap: u32| (f64::from(gap) * times).round().max(1.0) as u32;
        let kind = match self.kind {
            Kind::Guest(guest) => Kind::Guest(Guest { gap: more(guest.gap), ..guest }),
            Kind::Stream { access, gap } => Kind::Stream { access, gap: more(gap) },
            Kind::Mmap => Kind::Mmap,
        };
        Self { kind, ..self }
    }

    /// The machines' common part. Streams have smaller memories and a smaller file of `stream` bytes, which
    /// takes less time and comes to the same, since nothing is used twice: but caches must be as far apart as
    /// they are, or a line that was stored leaves the one when its page has left the other.
    pub(super) fn base(&self, settings: &Settings, from: &Base, stream: u64) -> Base {
        let mut base = from.clone();
        // dd, Ferret and the video server read by calls, which do not read around a page.
        base.paging.read_around &= self.kind == Kind::Mmap;
        match self.kind {
            Kind::Stream { .. } => {
                base.processor.push(format!("llc={}KiB", stream >> 16));
                Base { dram: stream / 4, data: stream, ..base }
            }
            Kind::Guest(_) => Base { dram: base.dram / shrink(settings), ..base },
            Kind::Mmap => base,
        }
    }

    /// What the threads do on machines of this common part.
    pub(super) fn program(&self, settings: &Settings, base: &Base) -> Program {
        let (data, threads, seed) = (base.data, self.threads, settings.seed);
        match self.kind {
            Kind::Mmap => programs::mmap(base, threads, settings.pick(10_000, 500), seed),
            Kind::Stream { access, gap } => Program {
                text: format!("{threads} streams over {data} B, {access:?}, gap {gap}"),
                backing: Backing::File,
                blocking: false,
                threads: Arc::new(move || Ok(streams(data, threads, access, gap))),
            },
            Kind::Guest(guest) => {
                let guest = Guest { used: guest.used / shrink(settings), ..guest };
                let lines = settings.pick(160_000, 16_000);
                Program {
                    text: format!(
                        "{guest:?}, {lines} lines, {threads} threads, visits of {VISIT_LINES}, theta {THETA}, \
                         stores {STORES}, seed {seed}"
                    ),
                    backing: if guest.input { Backing::File } else { Backing::Swap },
                    blocking: false,
                    threads: Arc::new(move || Ok(guest.threads(u64::from(threads), lines, seed))),
                }
            }
        }
    }

    fn row(&self) -> Vec<String> {
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let (gap, used, fresh) = match self.kind {
            Kind::Guest(guest) => (
                guest.gap.to_string(),
                mib(guest.used),
                guest.page_instructions.map_or_else(
                    || "none".into(),
                    |count| format!("{count}, {}", if guest.input { "a file's" } else { "zeros" }),
                ),
            ),
            Kind::Stream { gap, .. } => {
                (gap.to_string(), "none".into(), format!("{}, a file's", u64::from(gap) * PAGE_LINES))
            }
            Kind::Mmap => ("5".into(), "none".into(), "at random, a file's".into()),
        };
        vec![self.title.into(), self.threads.to_string(), gap, used, fresh, self.source.into()]
    }
}

/// By what quick runs have less memory, of both kinds.
fn shrink(settings: &Settings) -> u64 {
    settings.pick(1, 4)
}

/// All parameters.
pub(super) fn table() -> Table {
    let headings =
        ["", "threads", "instructions a line", "memory used before", "instructions a new page", "source"];
    Table {
        title: "The workloads".into(),
        headings: headings.map(Into::into).into(),
        rows: WORKLOADS.iter().map(Workload::row).collect(),
    }
}

/// Each thread once through its part of the data, line by line.
fn streams(data: u64, threads: u32, access: Access, gap: u32) -> Threads {
    let part = data / LINE_BYTES / u64::from(threads);
    let references = (0..u64::from(threads)).map(|number| {
        let lines = (number * part..(number + 1) * part).map(move |line| Ok(of_line(line, access, gap)));
        Box::new(lines) as ThreadReferences<'static>
    });
    Threads { references: references.collect(), warm_up: 0 }
}

fn of_line(line: u64, access: Access, gap: u32) -> MemRef {
    MemRef { gap, addr: line * LINE_BYTES, size: LINE_BYTES as u32, access }
}

impl Guest {
    /// Lines from the first of a page that nobody used before to the first of the next.
    fn period(&self) -> Option<u64> {
        self.page_instructions.map(|count| (count / u64::from(self.gap)).max(PAGE_LINES))
    }

    /// `lines` measured ones between `count` threads, after one of each page used before and a third as many
    /// as are measured.
    fn threads(self, count: u64, lines: u64, seed: u64) -> Threads {
        let pages = self.used / PAGE;
        let mine = lines * 4 / 3 / count;
        let new_pages = self.period().map_or(0, |period| mine.div_ceil(period));
        let references = (0..count).map(|number| {
            let (first, end) = (pages * number / count, pages * (number + 1) / count);
            let fill_with = if self.input { Access::Load } else { Access::Store };
            let filled = (first..end).map(move |page| of_line(page * PAGE_LINES, fill_with, 1));
            let (first, end) = if self.apart { (first, end) } else { (0, pages) };
            let mut visits = Visits::new(first, end - first, &format!("thread {number}"), seed);
            let mut page = pages + number * new_pages;
            let period = self.period();
            let work = (0..mine).map(move |at| match period.map(|period| at % period) {
                Some(line) if line < PAGE_LINES => {
                    let line = page * PAGE_LINES + line;
                    page += u64::from((line + 1).is_multiple_of(PAGE_LINES));
                    of_line(line, fill_with, self.gap)
                }
                _ => visits.next(self.gap),
            });
            Box::new(filled.chain(work).map(Ok::<_, SimError>)) as ThreadReferences<'static>
        });
        Threads { references: references.collect(), warm_up: pages + lines / 3 }
    }
}

/// Visits to pages by their popularity.
struct Visits {
    random: Rng,
    popularity: Zipf,
    places: Permutation,
    first: u64,
    line: u64,
    left: u64,
}

impl Visits {
    fn new(first: u64, pages: u64, name: &str, seed: u64) -> Self {
        let (popularity, places) = (Zipf::new(pages, THETA), Permutation::new(pages, seed));
        Self { random: Rng::new(seed, name), popularity, places, first, line: 0, left: 0 }
    }

    fn next(&mut self, gap: u32) -> MemRef {
        if self.left == 0 {
            let rank = self.popularity.sample(&mut self.random);
            let start = self.random.below(PAGE_LINES / VISIT_LINES) * VISIT_LINES;
            self.line = (self.first + self.places.at(rank)) * PAGE_LINES + start;
            self.left = VISIT_LINES;
        }
        let access = if self.random.chance(STORES) { Access::Store } else { Access::Load };
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

    #[test]
    fn guests_are_what_the_table_says() {
        for workload in &WORKLOADS {
            let Kind::Guest(guest) = workload.kind else { continue };
            let (count, lines) = (u64::from(workload.threads), 160_000);
            let made = guest.threads(count, lines, FULL.seed);
            let used_pages = guest.used / PAGE;
            assert_eq!(made.warm_up, used_pages + lines / 3, "{}", workload.name);
            let (mut new, mut old, mut instructions, mut references) =
                (BTreeSet::new(), BTreeSet::new(), 0, 0);
            for thread in made.references {
                for reference in thread {
                    let reference = reference.unwrap();
                    let page = reference.addr / PAGE;
                    // The threads share nothing that is new.
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
            let measured = references - made.warm_up;
            assert!(measured.abs_diff(lines) <= 2 * count, "{}: {measured} lines", workload.name);
            assert_eq!(old.len() as u64, used_pages, "{}: all pages are used", workload.name);
            let pages = new.len() as u64 / PAGE_LINES;
            let expected = guest.page_instructions.map_or(0, |each| (instructions - used_pages) / each);
            assert!(
                pages.abs_diff(expected) <= count,
                "{}: {pages} new pages, not {expected}",
                workload.name
            );
            let bytes = guest.used + pages * PAGE;
            assert_eq!(
                bytes <= Base::default().dram,
                workload.name != "heavy_mix",
                "{}: fits",
                workload.name
            );
        }
    }

    #[test]
    fn programs_side_by_side_do_not_share() {
        for workload in &WORKLOADS {
            let Kind::Guest(guest) = workload.kind else { continue };
            let made = guest.threads(2, 8_000, FULL.seed);
            let pages: Vec<BTreeSet<u64>> = made
                .references
                .into_iter()
                .map(|thread| thread.map(|r| r.unwrap().addr / PAGE).collect())
                .collect();
            assert_eq!(pages[0].is_disjoint(&pages[1]), guest.apart, "{}", workload.name);
        }
    }

    #[test]
    fn streams_touch_each_line_once() {
        let made = streams(1 << 20, 4, Access::Load, 3);
        let mut lines: Vec<u64> =
            made.references.into_iter().flatten().map(|r| r.unwrap().addr / LINE_BYTES).collect();
        lines.sort_unstable();
        assert_eq!(lines, (0..1 << 14).collect::<Vec<u64>>());
    }
}
