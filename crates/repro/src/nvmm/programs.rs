//! Programs used by more than one experiment.

use std::sync::Arc;

use deepram_sim::SimError;
use deepram_sim::paging::Backing;
use deepram_sim::processor::ThreadReferences;
use deepram_trace::workload::Rng;
use deepram_trace::{MemRef, MemoryAccess};

use super::machine::{MachineConfig, Program, ProgramThreads};

/// Distance in bytes between stores while a table is filled: small enough to dirty every page in DRAM
/// soon, and a quarter of the time to simulate.
pub(super) const FILL_STRIDE: u64 = 256;

/// Instructions to copy a line to or from a buffer: eight loads and eight stores (assumed).
pub(super) const LINE_COPY: u32 = 16;

/// GUPS: the threads store to the whole table, then make `updates` random updates among them, each a
/// load and a store of one word. Updates do not depend on each other.
pub(super) fn gups(base: &MachineConfig, threads: u32, updates: u64, seed: u64) -> Program {
    let (data, gap) = (base.data, base.gap);
    random(
        format!("gups of {data} B, {updates} updates, {threads} threads, gap {gap}, seed {seed}"),
        false,
        move || Ok(fill_then_random(data, gap, threads, updates, seed, true)),
    )
}

/// MMAP: `reads` loads, shared by the threads, at random positions of a mapped file that is initially
/// not in memory. The paper logs the beginning and the end of every access, so each completes before the
/// next begins.
pub(super) fn mmap(base: &MachineConfig, threads: u32, reads: u64, seed: u64) -> Program {
    let (data, gap) = (base.data, base.gap);
    random(format!("mmap of {data} B, {reads} reads, {threads} threads, gap {gap}, seed {seed}"), true, {
        move || Ok(fill_then_random(data, gap, threads, reads, seed, false))
    })
}

fn random<F>(text: String, file: bool, threads: F) -> Program
where
    F: Fn() -> Result<ProgramThreads, SimError> + Send + Sync + 'static,
{
    let backing = if file { Backing::File } else { Backing::Swap };
    Program { text, backing, blocking: file, threads: Arc::new(threads) }
}

/// With `update`, all data are stored to first, and each random load is followed by a store.
fn fill_then_random(
    data: u64,
    gap: u32,
    threads: u32,
    accesses: u64,
    seed: u64,
    update: bool,
) -> ProgramThreads {
    let count = u64::from(threads);
    let filled_first = if update { data } else { 0 };
    let references = (0..count).map(|number| {
        let filled = fill(filled_first, gap, number, count);
        let mine = accesses / count + u64::from(number < accesses % count);
        let mut random = Rng::new(seed, &format!("thread {number}"));
        let accesses = (0..mine).flat_map(move |_| {
            let addr = random.below(data / 8) * 8;
            let store = update.then(|| reference(addr, MemoryAccess::Store, gap));
            std::iter::once(reference(addr, MemoryAccess::Load, gap)).chain(store)
        });
        Box::new(filled.chain(accesses).map(Ok::<_, SimError>)) as ThreadReferences<'static>
    });
    ProgramThreads { references: references.collect(), warm_up: filled_first / FILL_STRIDE }
}

/// The stores with which thread `number` of `count` fills its part of `data` bytes, one per
/// [`FILL_STRIDE`].
pub(super) fn fill(data: u64, gap: u32, number: u64, count: u64) -> impl Iterator<Item = MemRef> {
    let all = data / FILL_STRIDE;
    let mine = (all * number / count)..(all * (number + 1) / count);
    mine.map(move |at| reference(at * FILL_STRIDE, MemoryAccess::Store, gap))
}

pub(super) fn reference(addr: u64, access: MemoryAccess, gap: u32) -> MemRef {
    MemRef { gap, addr, size: 8, access }
}
