//! Programs used by more than one experiment.

use std::sync::Arc;

use deepram_sim::SimError;
use deepram_sim::paging::Backing;
use deepram_sim::processor::{ThreadReferences, ThreadStep, equal_share};
use deepram_trace::workload::Rng;
use deepram_trace::{MemRef, MemoryAccess};

use super::machine::{InitialDram, MachineConfig, Program, StartState};

/// Distance in bytes between stores while a table is filled: small enough to dirty every page in DRAM
/// soon, and a quarter of the time to simulate.
const FILL_STRIDE: u64 = 256;

/// Instructions to copy a line to or from a buffer: eight loads and eight stores (assumed).
pub(super) const LINE_COPY: u32 = 16;

/// GUPS: `updates` random updates of a table, shared by the threads, each a load and a store of one
/// word. Updates do not depend on each other.
pub(super) fn gups(base: &MachineConfig, threads: u32, updates: u64, seed: u64) -> Program {
    let (words, gap) = (base.data / 8, base.gap);
    let text = format!("gups, {updates} updates, seed {seed}");
    of_table(base, text, threads, move |number| {
        let mut random = Rng::new(seed, &format!("thread {number}"));
        (0..equal_share(updates, number.into(), threads.into()))
            .flat_map(move |_| update(random.below(words) * 8, gap))
    })
}

/// MMAP: `reads` loads, shared by the threads, at random positions of a mapped file. The paper logs the
/// beginning and the end of every access, so each completes before the next begins.
pub(super) fn mmap(base: &MachineConfig, threads: u32, reads: u64, seed: u64) -> Program {
    let (data, gap) = (base.data, base.gap);
    let steps = move |number: u32| {
        let mut random = Rng::new(seed, &format!("thread {number}"));
        let reads = (0..equal_share(reads, number.into(), threads.into()))
            .map(move |_| reference(random.below(data / 8) * 8, MemoryAccess::Load, gap));
        Box::new(reads.map(|read| Ok::<_, SimError>(read.into()))) as ThreadReferences<'static>
    };
    Program {
        text: format!("mmap of {data} B, {reads} reads, {threads} threads, gap {gap}, seed {seed}"),
        backing: Backing::File,
        initial: if base.start == StartState::Data {
            InitialDram::Data(data)
        } else {
            InitialDram::Outside(data)
        },
        blocking: true,
        threads: Arc::new(move || Ok((0..threads).map(steps).collect())),
    }
}

/// A program that updates a table: the updates of thread `number` are `updates(number)`. With
/// [`StartState::Filled`] the threads first store to their parts of the table and wait for each other.
pub(super) fn of_table<F, I>(base: &MachineConfig, text: String, threads: u32, updates: F) -> Program
where
    F: Fn(u32) -> I + Send + Sync + 'static,
    I: Iterator<Item = MemRef> + 'static,
{
    let (data, gap, start) = (base.data, base.gap, base.start);
    let make = move |number: u32| {
        let filled = if start == StartState::Filled { data / FILL_STRIDE } else { 0 };
        let mine = part(filled, number, threads)
            .map(move |at| reference(at * FILL_STRIDE, MemoryAccess::Store, gap));
        let barrier = (filled > 0).then_some(ThreadStep::Barrier);
        let steps =
            mine.map(ThreadStep::Access).chain(barrier).chain(updates(number).map(ThreadStep::Access));
        Box::new(steps.map(Ok::<_, SimError>)) as ThreadReferences<'static>
    };
    Program {
        text: format!("{text} of {data} B, {threads} threads, gap {gap}, {start:?}"),
        backing: Backing::Swap,
        initial: match start {
            StartState::Clean => InitialDram::Outside(data),
            StartState::Data => InitialDram::Data(data),
            StartState::Filled => InitialDram::Empty,
        },
        blocking: false,
        threads: Arc::new(move || Ok((0..threads).map(&make).collect())),
    }
}

/// Part `number` of `count` equal parts of 0 to `all`.
fn part(all: u64, number: u32, count: u32) -> std::ops::Range<u64> {
    let start = |number: u32| all * u64::from(number) / u64::from(count);
    start(number)..start(number + 1)
}

/// A load and a store of one word.
pub(super) fn update(addr: u64, gap: u32) -> [MemRef; 2] {
    [MemoryAccess::Load, MemoryAccess::Store].map(|access| reference(addr, access, gap))
}

pub(super) fn reference(addr: u64, access: MemoryAccess, gap: u32) -> MemRef {
    MemRef { gap, addr, size: 8, access }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvmm::machine::{Machine, RunSpec, Technology};
    use deepram_media::Registry;

    #[test]
    fn no_page_is_touched_first_after_the_barrier() {
        let registry = Arc::new(Registry::builtin().unwrap());
        let mut base = MachineConfig { start: StartState::Filled, ..MachineConfig::default() }.scaled(64);
        // Without a cache of the processor a page is dirty as soon as it is stored to. With one, a page
        // whose stores are still there counts as clean, and can be dropped and filled with zeros again.
        base.processor.push("llc=0B".into());
        for threads in [1, 2, 16] {
            let run = |program: Program, machine| {
                let base = base.clone().with_cores(threads);
                let technology = Technology::MLC_75;
                let spec = RunSpec { name: "run".into(), machine, technology, program, base, seed: 3 };
                spec.run(&registry).unwrap().execute().unwrap().0
            };
            // A thread that has more to fill than the others is the last at the barrier.
            let mut uneven = of_table(&base, "uneven".into(), threads, |_| std::iter::empty());
            let data = base.data;
            uneven.threads = Arc::new(move || {
                let steps = (0..threads).map(|number| {
                    let end = if number == 0 { data } else { 0 };
                    let fill = (0..end).step_by(4096).map(|addr| reference(addr, MemoryAccess::Store, 5));
                    let mut random = Rng::new(3, &format!("thread {number}"));
                    let updates = (0..500).flat_map(move |_| update(random.below(data / 8) * 8, 5));
                    let barrier = [ThreadStep::Barrier];
                    let all = fill.map(ThreadStep::Access).chain(barrier).chain(updates.map(Into::into));
                    Box::new(all.map(Ok)) as ThreadReferences<'static>
                });
                Ok(steps.collect())
            });
            for program in [gups(&base, threads, 1000, 3), uneven] {
                let metrics = run(program, Machine::Ssd);
                assert_eq!(metrics["counters.zero_faults"], 0.0, "{threads} threads");
                assert!(metrics["counters.major_faults"] > 100.0, "{threads} threads");
            }
        }
    }

    #[test]
    fn dram_holds_a_part_of_the_data_at_first_only_if_it_is_said_to() {
        let registry = Arc::new(Registry::builtin().unwrap());
        let at = |start| MachineConfig { start, ..MachineConfig::default() }.scaled(64);
        for (start, third) in [(StartState::Data, 1.0), (StartState::Clean, 3.0)] {
            let base = at(start);
            for program in [gups(&base, 1, 300, 5), mmap(&base, 1, 300, 5)] {
                for machine in [Machine::Nvmm(0), Machine::Ssd] {
                    let mut base = base.clone();
                    base.paging.readahead_most = 0;
                    base.paging.swap_cluster = 1;
                    let (program, technology) = (program.clone(), Technology::MLC_75);
                    let spec = RunSpec { name: "run".into(), machine, technology, program, base, seed: 5 };
                    let metrics = spec.run(&registry).unwrap().execute().unwrap().0;
                    let misses = match machine {
                        Machine::Ssd => metrics["counters.major_faults"],
                        _ => metrics["counters.misses"],
                    };
                    // A third of the data is never in DRAM at first. Of 3072 pages some are met twice.
                    let expected = 100.0 * third;
                    let near = (misses - expected).abs() < 25.0;
                    assert!(near, "{start:?}, {machine:?}, {:?}: {misses}, not {expected}", spec.program);
                }
            }
        }
    }

    #[test]
    fn shares_and_parts_cover_everything_once() {
        for (all, count) in [(5000, 16), (7, 3), (2, 5), (0, 2)] {
            assert_eq!(
                (0..count).map(|number| equal_share(all, number.into(), count.into())).sum::<u64>(),
                all
            );
            let parts: Vec<u64> = (0..count).flat_map(|number| part(all, number, count)).collect();
            assert_eq!(parts, (0..all).collect::<Vec<_>>());
        }
    }
}
