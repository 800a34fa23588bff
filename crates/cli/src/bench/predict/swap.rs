//! The pager of `deepram run` over its swap file: what its parts cost, an array under it, and the same array simulated.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, ensure};
use deepram_core::Bytes;
use deepram_media::{MeasuredFile, Picos};
use deepram_pager::{PagerOptions, PagerStats};
use deepram_peers::{Memory, Paged};
use deepram_sim::host::{HostOptions, drive};
use deepram_sim::pool_model::PoolModelOptions;
use deepram_sim::swap_model::SwapModel;
use deepram_trace::Op;
use serde::Serialize;

use super::workload::{Workload, request};
use super::{Counts, Device, Outcome, PAGE};
use crate::bench::timed;

/// Pages on which the costs are measured.
const PAGES: u64 = 8192;

/// Software costs of the pager, nanoseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct SwapCosts {
    pub(super) hit_ns: f64,
    /// Of a fault that reads, without the device's time; negative where polling for the read saves more than the fault costs.
    fault_ns: f64,
    pub(super) second_chance_ns: f64,
    fresh_ns: f64,
    install_ns: f64,
    evict_ns: f64,
    write_back_ns: f64,
    /// Of one more page of a huge page.
    stage_ns: f64,
}

impl SwapCosts {
    /// The median of each cost.
    pub(super) fn median(all: &[Self]) -> Self {
        let of = |cost: fn(&Self) -> f64| super::median(all.iter().map(cost).collect());
        Self {
            hit_ns: of(|costs| costs.hit_ns),
            fault_ns: of(|costs| costs.fault_ns),
            second_chance_ns: of(|costs| costs.second_chance_ns),
            fresh_ns: of(|costs| costs.fresh_ns),
            install_ns: of(|costs| costs.install_ns),
            evict_ns: of(|costs| costs.evict_ns),
            write_back_ns: of(|costs| costs.write_back_ns),
            stage_ns: of(|costs| costs.stage_ns),
        }
    }

    /// The costs as one line of text.
    pub(super) fn shown(&self) -> String {
        format!(
            "swap file: fault {:.1} µs, second chance {:.1} µs, fresh page {:.1} µs; a page more {:.2} µs, {:.3} µs in a huge page, \
             evicted {:.2} µs, written back {:.2} µs",
            self.fault_ns / 1e3,
            self.second_chance_ns / 1e3,
            self.fresh_ns / 1e3,
            self.install_ns / 1e3,
            self.stage_ns / 1e3,
            self.evict_ns / 1e3,
            self.write_back_ns / 1e3
        )
    }

    /// A simulated pager with these costs.
    pub(super) fn model(
        &self,
        file: &MeasuredFile,
        data: u64,
        dram: u64,
        huge_pages: bool,
    ) -> anyhow::Result<SwapModel> {
        let picos = |ns: f64| Picos((ns * 1e3) as u64);
        let options = PoolModelOptions {
            data: Bytes(data),
            dram: Bytes(dram),
            hit: picos(self.hit_ns),
            fault: picos(self.fault_ns),
            second_chance: picos(self.second_chance_ns),
            fresh: picos(self.fresh_ns),
            install: picos(self.install_ns),
            evict: picos(self.evict_ns),
            flush: picos(self.write_back_ns),
            stage: picos(self.stage_ns),
            huge_pages,
            ..PoolModelOptions::swap()
        };
        Ok(SwapModel::new(&super::polled(file, self.fault_ns), &options)?)
    }
}

/// Memory under the pager.
fn paged(dir: &Path, data: u64, dram: u64, huge_pages: bool) -> anyhow::Result<Paged> {
    let mut options = PagerOptions::new(dram, dir);
    options.pin_faulting_threads = true;
    options.huge_pages = huge_pages;
    Paged::new(data as usize, options).with_context(|| format!("{} under the pager", Bytes(data)))
}

fn store(paged: &Paged, page: u64) {
    paged.words()[(page * PAGE / 8) as usize].store(page, Relaxed);
}

fn load(paged: &Paged, page: u64) {
    black_box(paged.words()[(page * PAGE / 8) as usize].load(Relaxed));
}

/// Nanoseconds for each of `count`.
fn each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// Measures the costs: those of a step by repeating the step alone, those of a fault under device reads and of a page that is
/// read ahead by random loads and by scans, without huge pages and with them, at a size of DRAM that is not predicted.
pub(super) fn costs(
    dir: &Path,
    device: &Device,
    hit_ns: f64,
    data: u64,
    accesses: u64,
) -> anyhow::Result<SwapCosts> {
    let memory = paged(dir, 3 * PAGES * PAGE, 8 * PAGES * PAGE, false)?;
    // Where every other page is touched each fault brings in one page, in order up to 64.
    let ((), alone) = timed(|| (PAGES..3 * PAGES).step_by(2).for_each(|page| store(&memory, page)));
    let faults = memory.pager().stats().faults_fresh;
    ensure!(faults == PAGES, "{PAGES} fresh pages had {faults} faults: the time of one is not known");
    let fresh_ns = (each(alone, PAGES) - hit_ns).max(0.0);
    let ((), upwards) = timed(|| (0..PAGES).for_each(|page| store(&memory, page)));
    let install_ns = (each(upwards, PAGES) - fresh_ns / 64.0).max(0.0);
    let start = memory.words().as_ptr().addr();
    let evict = || timed(|| memory.pager().evict_range(start, (PAGES * PAGE) as usize)).1;
    let dirty = each(evict(), PAGES);
    // All of them come back from the victim buffer.
    let returns = super::time_apart(PAGES, |page| load(&memory, page));
    let second_chance_ns = (returns - hit_ns).max(0.0);
    let evict_ns = each(evict(), PAGES);
    // A batch is written at a time.
    let write = device.file.latency(true, Bytes(64 * PAGE)).0 as f64 / 1e3 / 64.0;
    let write_back_ns = (dirty - evict_ns - write).max(0.0);
    drop(memory);
    let [dram, small] =
        [super::CALIBRATION, super::CALIBRATION_OF_PAGES].map(|ratio| data / ratio / PAGE * PAGE);
    let (ran, file) = device.beside(|| measure(dir, data, dram, Workload::Reads, accesses, true))?;
    let costs = SwapCosts {
        hit_ns,
        fault_ns: super::fault_ns(&file, &ran, hit_ns, second_chance_ns)?,
        second_chance_ns,
        fresh_ns,
        install_ns,
        evict_ns,
        write_back_ns,
        stage_ns: 0.0,
    };
    let of_scan = |dram, huge_pages, costs: &dyn Fn(f64) -> SwapCosts| {
        let (ran, file) = device.beside(|| measure(dir, data, dram, Workload::Scan, accesses, huge_pages))?;
        super::cost_of_rate(ran.per_s, |cost| {
            Ok(simulate(&file, &costs(cost), data, dram, Workload::Scan, accesses, huge_pages)?.per_s)
        })
    };
    let install_ns = of_scan(small, false, &|install_ns| SwapCosts { install_ns, ..costs })?;
    let stage_ns = of_scan(dram, true, &|stage_ns| SwapCosts { install_ns, stage_ns, ..costs })?;
    Ok(SwapCosts { install_ns, stage_ns, ..costs })
}

fn counts(before: &PagerStats, after: &PagerStats, accesses: u64) -> Counts {
    let each = |count: fn(&PagerStats) -> u64| (count(after) - count(before)) as f64 / accesses as f64;
    Counts {
        misses: each(|stats| stats.faults_major),
        second_chances: each(|stats| stats.victim_buffer_hits),
        first_stores: each(|stats| stats.faults_write_protected),
        read_ahead: each(|stats| stats.readahead_pages),
        written: each(|stats| stats.written_back_pages),
    }
}

/// Runs an array under the pager.
pub(super) fn measure(
    dir: &Path,
    data: u64,
    dram: u64,
    work: Workload,
    accesses: u64,
    huge_pages: bool,
) -> anyhow::Result<Outcome> {
    let memory = paged(dir, data, dram, huge_pages)?;
    let words = memory.words();
    (0..data / PAGE).for_each(|page| store(&memory, page));
    let count = work.count(data, accesses);
    let mut all = work.words(data);
    let mut access = |count: u64| {
        for (n, at) in (0..).zip(all.by_ref().take(count as usize)) {
            let word = &words[at as usize];
            if work.writes() {
                word.fetch_xor(n, Relaxed);
            } else {
                black_box(word.load(Relaxed));
            }
        }
    };
    access(count);
    let before = memory.pager().stats();
    let ((), time) = timed(|| access(count));
    let after = memory.pager().stats();
    // Threads that start later may run on any processor.
    memory.end_pinning();
    Ok(Outcome {
        per_s: count as f64 / time.as_secs_f64(),
        counts: counts(&before, &after, count),
        frames: None,
    })
}

/// Simulates the same array: the fill, the warm-up and the measurement.
pub(super) fn simulate(
    file: &MeasuredFile,
    costs: &SwapCosts,
    data: u64,
    dram: u64,
    work: Workload,
    accesses: u64,
    huge_pages: bool,
) -> anyhow::Result<Outcome> {
    let mut model = costs.model(file, data, dram, huge_pages)?;
    let count = work.count(data, accesses);
    let fill = (0..data / PAGE).map(|page| Ok(request(page * PAGE, Op::Write)));
    let host = HostOptions { warm_up: data / PAGE + count, ..HostOptions::default() };
    let simulated = drive(&mut model, fill.chain(work.requests(data, 2 * count)), &host)?;
    Ok(Outcome { per_s: simulated.requests_per_s, counts: simulated_counts(&model, count), frames: None })
}

/// The counts of a simulated pager for each of `accesses`.
pub(super) fn simulated_counts(model: &SwapModel, accesses: u64) -> Counts {
    let counts = model.swap_counts();
    let each = |count: u64| count as f64 / accesses as f64;
    Counts {
        misses: each(counts.faults_major),
        second_chances: each(counts.victim_buffer_hits),
        first_stores: each(counts.faults_write_protected),
        read_ahead: each(counts.readahead_pages),
        written: each(counts.written_back_pages),
    }
}
