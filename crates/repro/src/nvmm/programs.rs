//! The programs that more than one experiment runs.

use std::sync::Arc;

use deepram_sim::SimError;
use deepram_sim::paging::Backing;
use deepram_sim::processor::ThreadReferences;
use deepram_trace::workload::Rng;
use deepram_trace::{Access, MemRef};

use super::machine::{Base, Program, Threads};

/// Bytes from one store to the next while a table is filled: enough for every page to be dirty in DRAM soon,
/// and a quarter of the time to simulate.
pub(super) const FILL_STRIDE: u64 = 256;

/// Instructions for a line that is copied to or from a buffer: eight loads and eight stores. Assumed.
pub(super) const LINE_COPY: u32 = 16;

/// The threads store to all of a table, then make `updates` updates of random words among them: load,
/// then store. Updates do not depend on each other.
pub(super) fn gups(base: &Base, threads: u32, updates: u64, seed: u64) -> Program {
    let (data, gap) = (base.data, base.gap);
    random(
        format!("gups of {data} B, {updates} updates, {threads} threads, gap {gap}, seed {seed}"),
        false,
        move || Ok(fill_then_random(data, gap, threads, updates, seed, true)),
    )
}

/// Loads at random places of a mapped file that is not in memory at the beginning, `reads` between the
/// threads. The paper logs the beginning and the end of every single access, so each is over before the next
/// begins.
pub(super) fn mmap(base: &Base, threads: u32, reads: u64, seed: u64) -> Program {
    let (data, gap) = (base.data, base.gap);
    random(format!("mmap of {data} B, {reads} reads, {threads} threads, gap {gap}, seed {seed}"), true, {
        move || Ok(fill_then_random(data, gap, threads, reads, seed, false))
    })
}

fn random<F>(text: String, file: bool, threads: F) -> Program
where
    F: Fn() -> Result<Threads, SimError> + Send + Sync + 'static,
{
    let backing = if file { Backing::File } else { Backing::Swap };
    Program { text, backing, blocking: file, threads: Arc::new(threads) }
}

/// `update`: all of the data are stored to first, and each random load is followed by a store.
fn fill_then_random(data: u64, gap: u32, threads: u32, accesses: u64, seed: u64, update: bool) -> Threads {
    let count = u64::from(threads);
    let filled_first = if update { data } else { 0 };
    let references = (0..count).map(|number| {
        let filled = fill(filled_first, gap, number, count);
        let mine = accesses / count + u64::from(number < accesses % count);
        let mut random = Rng::new(seed, &format!("thread {number}"));
        let accesses = (0..mine).flat_map(move |_| {
            let addr = random.below(data / 8) * 8;
            let store = update.then(|| reference(addr, Access::Store, gap));
            std::iter::once(reference(addr, Access::Load, gap)).chain(store)
        });
        Box::new(filled.chain(accesses).map(Ok::<_, SimError>)) as ThreadReferences<'static>
    });
    Threads { references: references.collect(), warm_up: filled_first / FILL_STRIDE }
}

/// The stores with which thread `number` of `count` fills its part of `data` bytes, one for each
/// [`FILL_STRIDE`].
pub(super) fn fill(data: u64, gap: u32, number: u64, count: u64) -> impl Iterator<Item = MemRef> {
    let all = data / FILL_STRIDE;
    let mine = (all * number / count)..(all * (number + 1) / count);
    mine.map(move |at| reference(at * FILL_STRIDE, Access::Store, gap))
}

pub(super) fn reference(addr: u64, access: Access, gap: u32) -> MemRef {
    MemRef { gap, addr, size: 8, access }
}
