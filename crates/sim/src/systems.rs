//! Builds each system from its presets, runs it under a front end (requests, threads or clients), and
//! fills in the result: energy, hit ratios, flash operations, wear, cost.

use deepram_media::{
    AllocationPool, Cell, DiskCacheServer, Dram, Hierarchy, MeasuredFile, Nand, Nvmm, Picos, Platform, Price,
    Software, Ssd, WriteBuffer, Year, lifetime_seconds,
};
use deepram_trace::Request;
use serde::Serialize;
use serde_json::Value;

use crate::clients::Clients;
use crate::disk_cache::DiskCacheDevice;
use crate::dram::DramMemory;
use crate::error::SimError;
use crate::flash::FlashCounts;
use crate::flatflash::{AccessMode, FlatMemory, FlatOptions};
use crate::host::{Command, Device, HostOptions, drive};
use crate::nvmm::{NvmmMemory, NvmmOptions};
use crate::paging::PagedMemory;
use crate::pmem::{PmemDevice, PmemOptions};
use crate::pool_model::{PoolBacking, PoolModel, PoolModelOptions};
use crate::processor::{ProcessorOptions, ThreadReferences, execute_with_faults};
use crate::result::{Cost, EnergyPart, FlashResult, HitRatio, RunResult, Wear};
use crate::run::SystemConfig;
use crate::ssd::{ParallelSsd, SerialSsd, SsdOptions};
use crate::ssd_buffer::BufferedSsd;
use crate::swap_model::SwapModel;

/// The outcome of a run as the front end measured it; the caller adds the device's own counts.
pub(crate) struct FrontEndRun {
    result: RunResult,
    counts: FlashCounts,
    time: Picos,
}

/// The source of a device's load: a host's requests, a processor's threads, or database clients.
pub(crate) trait FrontEnd {
    /// Runs the load on the device. `faults` returns true for an access that would be a page fault if
    /// sent now.
    fn run_on<D: Device>(
        self,
        device: &mut D,
        faults: impl Fn(&D, &Command) -> bool,
    ) -> Result<FrontEndRun, SimError>;
}

/// Requests of a host.
pub(crate) struct Requests<'a, W>(pub(crate) W, pub(crate) &'a HostOptions);

/// Threads of a processor.
pub(crate) struct Threads<'a>(pub(crate) Vec<ThreadReferences<'a>>, pub(crate) &'a ProcessorOptions);

impl<W: Iterator<Item = Result<Request, SimError>>> FrontEnd for Requests<'_, W> {
    fn run_on<D: Device>(
        self,
        device: &mut D,
        _: impl Fn(&D, &Command) -> bool,
    ) -> Result<FrontEndRun, SimError> {
        let measured = drive(device, self.0, self.1)?;
        let (counts, time) = (measured.counts, measured.time);
        Ok(FrontEndRun { result: RunResult::from_measured(measured), counts, time })
    }
}

impl FrontEnd for Threads<'_> {
    fn run_on<D: Device>(
        self,
        device: &mut D,
        faults: impl Fn(&D, &Command) -> bool,
    ) -> Result<FrontEndRun, SimError> {
        let executed = execute_with_faults(device, self.0, self.1, faults)?;
        let (counts, time) = (executed.counts, executed.time);
        Ok(FrontEndRun { result: RunResult::from_executed(executed), counts, time })
    }
}

impl FrontEnd for Clients {
    fn run_on<D: Device>(
        self,
        device: &mut D,
        _: impl Fn(&D, &Command) -> bool,
    ) -> Result<FrontEndRun, SimError> {
        let (measured, log) = self.run(device)?;
        let (counts, time) = (measured.counts, measured.time);
        let mut result = RunResult::from_measured(measured);
        counters(&mut result, &log)?;
        Ok(FrontEndRun { result, counts, time })
    }
}

fn no_faults<D>(_: &D, _: &Command) -> bool {
    false
}

/// All-DRAM memory.
pub(crate) fn dram<F: FrontEnd>(dram: &Dram, front: F) -> Result<RunResult, SimError> {
    let mut memory = DramMemory::new(dram)?;
    let FrontEndRun { mut result, time, .. } = front.run_on(&mut memory, no_faults)?;
    rows_and_energy(&mut result, &memory, memory.energy_pj(time));
    result.cost = cost(dram.price, dram.price_year, dram.total_capacity().0);
    Ok(result)
}

/// A solid-state drive on its own.
pub(crate) fn ssd<F: FrontEnd>(
    ssd: &Ssd,
    options: &SsdOptions,
    front: F,
    seed: u64,
) -> Result<RunResult, SimError> {
    let (ran, erased, retired) = match ssd.allocation_pool {
        AllocationPool::Package => {
            let mut device = SerialSsd::new(ssd)?;
            let ran = front.run_on(&mut device, no_faults)?;
            (ran, device.erased().collect::<Vec<_>>(), 0)
        }
        AllocationPool::Plane => {
            let mut device = ParallelSsd::new(ssd, options, seed)?;
            let ran = front.run_on(&mut device, no_faults)?;
            (ran, device.erased().collect(), device.retired())
        }
        AllocationPool::Device => {
            return Err(SimError::config(
                "allocation_pool",
                "an allocation pool of the whole device is not simulated; use plane or package",
            ));
        }
    };
    let FrontEndRun { mut result, counts, time } = ran;
    let nand = &ssd.nand;
    add_energy(&mut result, counts.energy_pj(nand, ssd.packages(), time));
    flash(&mut result, nand, ssd.raw_bytes().0, &counts, time, (&erased, retired));
    result.cost = cost(nand.price, nand.price_year, ssd.raw_bytes().0);
    Ok(result)
}

/// A drive behind a write buffer of DRAM and PCM.
pub(crate) fn ssd_buffer<F: FrontEnd>(
    preset: &WriteBuffer,
    ssd: &Ssd,
    options: &SsdOptions,
    front: F,
    seed: u64,
) -> Result<RunResult, SimError> {
    let mut device = BufferedSsd::new(preset, ssd, options, seed)?;
    let FrontEndRun { mut result, counts, time } = front.run_on(&mut device, no_faults)?;
    add_energy(&mut result, device.energy_pj(time));
    let nand = &ssd.nand;
    add_energy(&mut result, counts.energy_pj(nand, ssd.packages(), time));
    let did = device.buffer_counts();
    let write_hits = did.write_hits_dram + did.write_hits_pcm;
    let read_hits = did.read_hits_dram + did.read_hits_pcm;
    result.hit_ratios.push(HitRatio::new("buffer write", write_hits, did.page_writes));
    result.hit_ratios.push(HitRatio::new("buffer read", read_hits, did.page_reads));
    counters(&mut result, &did)?;
    counters(&mut result, &device.report(time))?;
    let erased: Vec<u32> = device.drive().erased().collect();
    flash(&mut result, nand, ssd.raw_bytes().0, &counts, time, (&erased, device.drive().retired()));
    result.cost = cost(nand.price, nand.price_year, ssd.raw_bytes().0);
    Ok(result)
}

/// A server with a disk cache of DRAM and flash in front of a disk.
pub(crate) fn disk_cache<F: FrontEnd>(
    server: &DiskCacheServer,
    front: F,
    seed: u64,
) -> Result<RunResult, SimError> {
    let mut device = DiskCacheDevice::new(server, seed)?;
    let FrontEndRun { mut result, counts, time } = front.run_on(&mut device, no_faults)?;
    add_energy(&mut result, device.energy_pj(time));
    let did = device.cache_counts();
    result.hit_ratios.push(HitRatio::new("dram read", did.dram_hits, did.page_reads));
    result.hit_ratios.push(HitRatio::new("dram write", did.write_hits, did.page_writes));
    result.hit_ratios.push(HitRatio::new("flash read", did.flash_hits, did.flash_hits + did.misses));
    counters(&mut result, &did)?;
    counters(&mut result, &device.report(time))?;
    result.dram = Some(device.dram_counts());
    let dram = &server.dram;
    let nand = if server.density == Cell::Slc { &server.slc } else { &server.mlc };
    if server.blocks() > 0 {
        let erased: Vec<u32> = device.erased().collect();
        let retired = device.cache().flash().blocks().retired().into();
        flash(&mut result, nand, server.flash.0, &counts, time, (&erased, retired));
    }
    result.cost = cost(dram.price, dram.price_year, dram.total_capacity().0);
    Ok(result)
}

/// A server with persistent memory, tmpfs, or ext4 on a drive.
pub(crate) fn pmem<F: FrontEnd>(
    platform: &Platform,
    ssd: &Ssd,
    options: &PmemOptions,
    front: F,
    seed: u64,
) -> Result<RunResult, SimError> {
    let mut device = PmemDevice::new(platform, ssd, options, seed)?;
    let FrontEndRun { mut result, time, .. } = front.run_on(&mut device, no_faults)?;
    let did = device.pmem_counts();
    result.hit_ratios.push(HitRatio::new(
        "cpu cache",
        did.lines - did.nt_lines - did.missing_lines,
        did.lines - did.nt_lines,
    ));
    result.hit_ratios.push(HitRatio::new("page cache", did.page_hits, did.page_lookups));
    counters(&mut result, &did)?;
    counters(&mut result, &device.report(time))?;
    Ok(result)
}

/// Journaled flash main memory behind a DRAM cache (NVMM).
pub(crate) fn nvmm<F: FrontEnd>(
    preset: &Nvmm,
    options: &NvmmOptions,
    front: F,
    seed: u64,
) -> Result<RunResult, SimError> {
    let mut memory = NvmmMemory::new(preset, options, seed)?;
    let FrontEndRun { mut result, counts, time } = front.run_on(&mut memory, no_faults)?;
    add_energy(&mut result, memory.energy_pj(time));
    let did = memory.nvmm_counts();
    result.hit_ratios.push(HitRatio::new("dram cache", did.hits, did.hits + did.misses));
    counters(&mut result, &did)?;
    let nand = preset.package();
    let raw = preset.channels * preset.packages_per_channel * nand.package_capacity().0;
    let erased: Vec<u32> = memory.erased().collect();
    flash(&mut result, &nand, raw, &counts, time, (&erased, memory.retired()));
    result.dram = Some(memory.dram_counts());
    let dram = &preset.dram;
    result.cost = add_costs(
        cost(dram.price, dram.price_year, dram.total_capacity().0),
        cost(nand.price, nand.price_year, raw),
    );
    Ok(result)
}

/// DRAM main memory, and a drive behind an operating system's paging (NVMM's comparison system).
pub(crate) fn paging<F: FrontEnd>(
    dram: &Dram,
    ssd: &Ssd,
    software: &Software,
    config: &SystemConfig,
    front: F,
    seed: u64,
) -> Result<RunResult, SimError> {
    let mut memory = PagedMemory::new(dram, ssd, software, &config.paging, &config.ssd, seed)?;
    let FrontEndRun { mut result, counts, time } = front.run_on(&mut memory, PagedMemory::would_fault)?;
    add_energy(&mut result, memory.energy_pj(time));
    counters(&mut result, &memory.paging_counts())?;
    for (phase, spent) in memory.software_times() {
        result.counters.insert(format!("software_{}_ns", phase.name().replace(' ', "_")), ns(spent));
    }
    let times = memory.fault_times();
    let moments =
        serde_json::to_value(times).map_err(|error| SimError::config("result", error.to_string()))?;
    result.counters.insert("fault_times".into(), moments);
    let erased: Vec<u32> = memory.drive().erased().collect();
    let retired = memory.drive().retired();
    flash(&mut result, &ssd.nand, ssd.raw_bytes().0, &counts, time, (&erased, retired));
    result.dram = Some(memory.dram().dram_counts());
    result.cost = add_costs(
        cost(dram.price, dram.price_year, dram.total_capacity().0),
        cost(ssd.nand.price, ssd.nand.price_year, ssd.raw_bytes().0),
    );
    Ok(result)
}

/// The three systems of FlatFlash: DRAM and a drive that the processor addresses, or that the system
/// pages from.
pub(crate) fn flatflash<F: FrontEnd>(
    preset: &Hierarchy,
    access_mode: AccessMode,
    options: &FlatOptions,
    front: F,
    seed: u64,
) -> Result<RunResult, SimError> {
    let mut memory = FlatMemory::new(preset, access_mode, options, seed)?;
    let FrontEndRun { mut result, counts, time } = front.run_on(&mut memory, FlatMemory::would_fault)?;
    add_energy(&mut result, memory.energy_pj(time));
    let did = memory.flat_counts();
    for (level, hits, lookups) in [
        ("cpu cache", did.cpu_hits, did.cpu_lookups),
        ("tlb", did.tlb_hits, did.tlb_lookups),
        ("host dram", did.dram_lines, did.memory_lines),
        ("device buffer", did.buffer_hits, did.buffer_lookups),
    ] {
        result.hit_ratios.push(HitRatio::new(level, hits, lookups));
    }
    counters(&mut result, &did)?;
    result.counters.insert("page_movements".into(), did.page_movements().into());
    if access_mode == AccessMode::Promote {
        let (threshold, epochs) = memory.threshold();
        result.counters.insert("threshold".into(), threshold.into());
        result.counters.insert("threshold_epochs".into(), epochs.into());
    }
    let nand = &preset.nand;
    let raw = preset.raw_bytes().0;
    let erased: Vec<u32> = memory.erased().collect();
    flash(&mut result, nand, raw, &counts, time, (&erased, 0));
    result.dram = Some(memory.dram().dram_counts());
    let dram = &preset.dram;
    result.cost = add_costs(
        cost(dram.price, dram.price_year, dram.total_capacity().0),
        cost(nand.price, nand.price_year, raw),
    );
    Ok(result)
}

/// The model of this project's pool, or of its pager over a swap file, on a measured device.
pub(crate) fn pool<F: FrontEnd>(
    file: &MeasuredFile,
    options: &PoolModelOptions,
    front: F,
) -> Result<RunResult, SimError> {
    if options.backing == PoolBacking::Swap {
        let mut swap_model = SwapModel::new(file, options)?;
        let FrontEndRun { mut result, .. } = front.run_on(&mut swap_model, no_faults)?;
        let did = swap_model.swap_counts();
        let missing = did.faults_fresh + did.faults_major + did.victim_buffer_hits;
        result.hit_ratios.push(HitRatio::new("memory", did.accesses.saturating_sub(missing), did.accesses));
        counters(&mut result, &did)?;
        return Ok(result);
    }
    let mut pool_model = PoolModel::new(file, options)?;
    let FrontEndRun { mut result, .. } = front.run_on(&mut pool_model, no_faults)?;
    let did = pool_model.pool_counts();
    result.hit_ratios.push(HitRatio::new(
        "dram cache",
        did.accesses.saturating_sub(did.missing),
        did.accesses,
    ));
    counters(&mut result, &did)?;
    Ok(result)
}

fn ns(time: Picos) -> Value {
    Value::from(time.0 as f64 / 1e3)
}

/// Adds a system's counters to its result, each under its field name.
fn counters<T: Serialize>(result: &mut RunResult, of: &T) -> Result<(), SimError> {
    let value = serde_json::to_value(of).map_err(|error| SimError::config("result", error.to_string()))?;
    if let Value::Object(fields) = value {
        result.counters.extend(fields);
    }
    Ok(())
}

fn add_energy<'a>(result: &mut RunResult, parts: impl IntoIterator<Item = (&'a str, f64, f64)>) {
    result
        .energy
        .extend(parts.into_iter().map(|(name, dynamic, fixed)| EnergyPart::new(name, dynamic, fixed)));
}

fn rows_and_energy(result: &mut RunResult, memory: &DramMemory, parts: [(&str, f64, f64); 5]) {
    let counts = memory.dram_counts();
    let bursts = counts.read_bursts + counts.write_bursts;
    result.hit_ratios.push(HitRatio::new("dram row", counts.row_hits, bursts));
    add_energy(result, parts);
    result.dram = Some(counts);
}

/// Adds flash operations, wear and lifetime to the result. `erased` holds the erases of each block.
fn flash(
    result: &mut RunResult,
    nand: &Nand,
    raw_bytes: u64,
    counts: &FlashCounts,
    time: Picos,
    (erased, retired): (&[u32], u64),
) {
    if counts.mapping_hits + counts.mapping_misses > 0 {
        let lookups = counts.mapping_hits + counts.mapping_misses;
        result.hit_ratios.push(HitRatio::new("mapping cache", counts.mapping_hits, lookups));
    }
    let used = erased.len().max(1) as f64;
    let total: u64 = erased.iter().map(|erases| u64::from(*erases)).sum();
    let mean = total as f64 / used;
    let variance = erased.iter().map(|erases| (f64::from(*erases) - mean).powi(2)).sum::<f64>() / used;
    let rate = counts.erases as f64 * nand.block_bytes().0 as f64 / time.seconds();
    let lifetime = || {
        let raw = deepram_media::Bytes(raw_bytes);
        lifetime_seconds(raw, nand.endurance, deepram_media::Bandwidth(rate), 1.0, 1.0) / (365.25 * 86_400.0)
    };
    result.wear = Some(Wear {
        mean_erases: mean,
        deviation_erases: variance.sqrt(),
        most_erases: erased.iter().copied().max().unwrap_or(0),
        endurance: nand.endurance,
        retired_blocks: retired,
        lifetime_years: (counts.erases > 0 && time.0 > 0).then(lifetime),
    });
    result.flash = Some(FlashResult::new(*counts, nand.page));
}

fn cost(price: Option<Price>, year: Option<Year>, bytes: u64) -> Option<Cost> {
    price.map(|price| Cost { usd: price.0 * bytes as f64, year: year.map(|year| year.0) })
}

/// The cost of two parts together; `None` unless both have a price. The year is that of the newer price.
fn add_costs(one: Option<Cost>, other: Option<Cost>) -> Option<Cost> {
    let (one, other) = (one?, other?);
    Some(Cost { usd: one.usd + other.usd, year: one.year.max(other.year) })
}
