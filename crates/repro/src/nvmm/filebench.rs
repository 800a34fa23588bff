//! Filebench personalities on files larger than DRAM (NVMM, earlier draft, section 4.4).
//!
//! 1. Files are accessed as memory on both systems: NVMM holds them in its main memory, the SSD system
//!    in its page cache.
//! 2. The threads take their requests from one sequence, in which the personality's own threads
//!    alternate, so that all systems do the same work.
//! 3. Files are laid out contiguously, as in a freshly filled file system. Data written beyond them get
//!    pages in the order of writing.
//! 4. fsync, and oltp's synchronous writes, reach the drive: the SSD system writes all dirty pages back,
//!    as ext3 in ordered mode does (the paper names ext3), and flushes the drive; NVMM performs its sync,
//!    which "flushes dirty cached data from all pages out to flash".

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::SimError;
use deepram_sim::paging::Backing;
use deepram_sim::processor::{FirstTouch, LINE_BYTES, ThreadReferences, ThreadStep, memory_references};
use deepram_trace::{MemoryAccess, ObjectPlacement, TraceError, Workload};

use super::machine::{InitialDram, Machine, MachineConfig, Program, RunSpec, Technology};
use super::programs::{LINE_COPY, reference};
use crate::chart::{Axis, Bars, Chart, Drawing, Reference};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulate::workload_error;
use crate::simulation_run::SimulationRun;

const PAGE: u64 = 4096;

/// A personality.
struct Personality {
    name: &'static str,
    /// Its own number of threads; for oltp 200 readers, ten database writers and a log writer.
    threads: u32,
    /// Its own mean file size, and share of files that exist initially; `None` for oltp, whose ten files
    /// share the bytes.
    files: Option<(u64, f64)>,
    /// Speedup in the draft, which gives no number for slowdowns.
    paper: Option<f64>,
}

const SMALL: u64 = 16 << 10;
const PERSONALITIES: [Personality; 5] = [
    Personality { name: "oltp", threads: 211, files: None, paper: Some(1.1) },
    Personality { name: "varmail", threads: 16, files: Some((SMALL, 0.8)), paper: Some(3.0) },
    Personality { name: "fileserver", threads: 50, files: Some((128 << 10, 0.8)), paper: None },
    Personality { name: "webproxy", threads: 100, files: Some((SMALL, 0.8)), paper: None },
    Personality { name: "webserver", threads: 100, files: Some((SMALL, 1.0)), paper: None },
];

/// Data files of oltp.
const OLTP_FILES: u64 = 10;

/// The generator's inode size, and the distance of its files in multiples of their initial size.
const INODE: u64 = 256;
const REGION: u64 = 16;

/// A chart: a technology and a number of threads.
#[derive(Debug, Clone, Copy)]
struct ChartVariant {
    /// Infix of metric names; empty for the metrics of claims.
    infix: &'static str,
    title: &'static str,
    technology: Technology,
    /// Program time in microseconds: ten times the read time, as in the draft.
    program_us: u32,
    /// One thread instead of the personality's own number.
    one: bool,
}

const MLC: ChartVariant =
    ChartVariant { infix: "", title: "MLC", technology: Technology::MLC_75, program_us: 750, one: false };
const VIEWS: [ChartVariant; 3] = [
    MLC,
    ChartVariant { infix: ".slc", title: "SLC", technology: Technology::SLC, program_us: 250, one: false },
    ChartVariant { infix: ".t1", title: "MLC, one thread", one: true, ..MLC },
];
/// Runs without scaling, of which only the metrics are shown.
const FULL_SIZE: ChartVariant = ChartVariant { infix: ".full", title: "MLC, full size", one: false, ..MLC };
const SSD: (&str, Machine) = ("ssd", Machine::Ssd);
const NVMM: (&str, Machine) = ("nvmm", Machine::Nvmm(0));
const AHEAD: (&str, Machine) = ("nvmm.prefetch16", Machine::Nvmm(16));

impl ChartVariant {
    fn threads(&self, personality: &Personality) -> u32 {
        if self.one { 1 } else { personality.threads }
    }

    fn machines(&self) -> &'static [(&'static str, Machine)] {
        if self.one || self.infix == FULL_SIZE.infix { &[SSD, NVMM] } else { &[SSD, NVMM, AHEAD] }
    }

    fn name(&self, personality: &Personality, machine: &str) -> String {
        format!("{}{}.{machine}", personality.name, self.infix)
    }
}

/// Number of references to lines of files.
#[derive(Debug, Clone, Copy)]
struct LineCounts {
    /// References before measurement, one per [`THINNED`] lines: enough to bring the pages in, and
    /// faster to simulate.
    warm_up: u64,
    measured: u64,
}

const THINNED: usize = 4;

impl Personality {
    /// Entries of the file set, for `data` bytes that exist initially.
    fn entries(&self, data: u64) -> u64 {
        self.files.map_or(OLTP_FILES, |(bytes, exist)| (data as f64 / bytes as f64 / exist).round() as u64)
    }

    /// Text of the generated workload.
    fn spec(&self, data: u64, threads: u32) -> String {
        let (name, entries) = (self.name, self.entries(data));
        match self.files {
            None => format!("{name}:files={entries},filesize={}B,log={}B", oltp_file(data), oltp_log(data)),
            Some((bytes, exist)) => format!(
                "{name}:files={entries},filesize={bytes}B,prealloc={exist},meta={INODE}B,threads={threads}"
            ),
        }
    }

    /// Addresses of the pages that exist initially, in their order on the drive.
    fn existing(&self, data: u64) -> Vec<u64> {
        let entries = self.entries(data);
        let pages = |start: u64, bytes: u64| (start..start + bytes).step_by(PAGE as usize);
        match self.files {
            None => pages(0, entries * oltp_file(data) + oltp_log(data)).collect(),
            Some((bytes, exist)) => {
                let inodes = (entries * INODE).next_multiple_of(PAGE);
                let files = (0..(entries as f64 * exist).round() as u64)
                    .flat_map(|file| pages(inodes + file * REGION * bytes, bytes));
                pages(0, inodes).chain(files).collect()
            }
        }
    }

    fn program(&self, data: u64, threads: u32, amount: LineCounts, cost: HostCost, seed: u64) -> Program {
        let spec = self.spec(data, threads);
        let existing = self.existing(data);
        let text =
            format!("{spec} as memory, {amount:?} of {THINNED}, {threads} threads, {cost:?}, seed {seed}");
        let make = move || {
            let shared = Rc::new(RefCell::new(SharedRequests::new(&spec, &existing, amount, cost, seed)?));
            let references = (0..threads).map(|_| {
                let shared = Rc::clone(&shared);
                let (mut steps, mut warm) = (VecDeque::new(), false);
                let next = std::iter::from_fn(move || {
                    if steps.is_empty() {
                        let mut shared = shared.borrow_mut();
                        if !warm && shared.left.warm_up == 0 {
                            warm = true;
                            return Some(Ok(ThreadStep::Barrier));
                        }
                        match shared.request() {
                            Ok(request) => steps = request,
                            Err(error) => return Some(Err(error)),
                        }
                    }
                    steps.pop_front().map(Ok)
                });
                Box::new(next) as ThreadReferences<'static>
            });
            Ok(references.collect())
        };
        Program {
            text,
            backing: Backing::File,
            initial: InitialDram::Empty,
            blocking: false,
            threads: Arc::new(make),
        }
    }
}

/// Size of one of oltp's files, in bytes.
fn oltp_file(data: u64) -> u64 {
    data / OLTP_FILES / PAGE * PAGE
}

/// Size of oltp's log, in bytes: its own 10 MiB for 2 GiB of files, and at least one write.
fn oltp_log(data: u64) -> u64 {
    (data / 2048 * 10).next_multiple_of(PAGE).max(256 << 10)
}

/// The costs of the host.
#[derive(Debug, Clone, Copy)]
struct HostCost {
    /// Instructions per line.
    line_copy: u32,
    /// fsync reaches the drive; otherwise it takes no time.
    sync: bool,
}

/// The sequence of requests that the threads share.
struct SharedRequests {
    workload: Workload,
    places: FirstTouch,
    /// References still to be handed out.
    left: LineCounts,
    cost: HostCost,
}

impl SharedRequests {
    fn new(
        spec: &str,
        existing: &[u64],
        amount: LineCounts,
        cost: HostCost,
        seed: u64,
    ) -> Result<Self, SimError> {
        let workload = Workload::new(spec, seed).map_err(|error| workload_error(&error))?;
        let mut places = FirstTouch::new(PAGE, 0)?;
        for page in existing {
            places.place(reference(*page, MemoryAccess::Load, 0));
        }
        Ok(Self { workload, places, left: amount, cost })
    }

    /// The steps of the next request: its lines, at their addresses, or a sync. Empty when all references
    /// are handed out.
    fn request(&mut self) -> Result<VecDeque<ThreadStep>, SimError> {
        let nothing = ObjectPlacement { slot_bytes: 0, slots: 0 };
        while self.left.warm_up + self.left.measured > 0 {
            let Some(item) = self.workload.next() else { break };
            let item = std::iter::once(Ok::<_, TraceError>(item));
            let (left, step) = match &mut self.left {
                LineCounts { warm_up: 0, measured } => (measured, 1),
                LineCounts { warm_up, .. } => (warm_up, THINNED),
            };
            let steps = memory_references(item, self.cost.line_copy, nothing).step_by(step);
            let mut taken = VecDeque::new();
            for next in steps.take(*left as usize) {
                match next? {
                    ThreadStep::Access(line) => {
                        *left -= 1;
                        taken.push_back(ThreadStep::Access(self.places.place(line)));
                    }
                    ThreadStep::Sync if self.cost.sync => taken.push_back(ThreadStep::Sync),
                    ThreadStep::Sync | ThreadStep::Barrier => {}
                }
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
        }
        Ok(VecDeque::new())
    }
}

/// Divisors of all capacities: in the experiment, and in quick runs.
const SCALE: u64 = 16;
const QUICK_SCALE: u64 = 128;

/// Builds the runs of a personality with all capacities divided by `scale`. The files take four times
/// the DRAM.
fn runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    (base, variant, scale): (&MachineConfig, Variant, u64),
    view: &ChartVariant,
    personality: &Personality,
    machines: &[(&str, Machine)],
) -> Result<Vec<SimulationRun>, ReproError> {
    let mut base = MachineConfig { data: base.dram * 4, ..base.clone() }.scaled(scale);
    let lines = base.dram / LINE_BYTES;
    let amount = LineCounts { warm_up: lines / THINNED as u64 * 3 / 2, measured: lines };
    let threads = view.threads(personality);
    let data = base.data;
    // Before the overrides of the sensitivity study, which take precedence.
    for overrides in [&mut base.flash, &mut base.drive] {
        overrides.insert(0, format!("nand.program={}us", view.program_us));
    }
    // Files are read by system calls, which do not read around a page. Each open file has a readahead
    // window, and each thread has one open file besides the log.
    base.paging.read_around = false;
    base.paging.readahead_runs = threads + 1;
    let run = |&(machine, kind): &(&str, Machine)| {
        let setting = RunSpec {
            name: view.name(personality, machine),
            machine: kind,
            technology: view.technology,
            program: personality.program(
                data,
                threads,
                amount,
                HostCost { line_copy: variant.line_copy, sync: variant.sync.includes(kind) },
                settings.seed,
            ),
            base: base.clone(),
            seed: settings.seed,
        };
        setting.run(registry)
    };
    machines.iter().map(run).collect()
}

/// Settings that the sensitivity study can change, besides those of the machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    /// One thread instead of the personality's own number.
    pub(super) one: bool,
    /// Blocks that NVMM prefetches.
    pub(super) prefetch: u32,
    /// Instructions per line.
    pub(super) line_copy: u32,
    /// The systems on which fsync makes data durable.
    pub(super) sync: SyncReach,
}

/// The systems on which fsync makes data durable; on others it takes no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncReach {
    Neither,
    Both,
    /// The SSD system alone: to a file system, NVMM is memory that needs no flush.
    Ssd,
}

impl SyncReach {
    fn includes(self, machine: Machine) -> bool {
        match self {
            SyncReach::Neither => false,
            SyncReach::Both => true,
            SyncReach::Ssd => machine == Machine::Ssd,
        }
    }
}

impl Default for Variant {
    fn default() -> Self {
        Self { one: false, prefetch: 0, line_copy: LINE_COPY, sync: SyncReach::Both }
    }
}

/// The personalities with numbers in the draft.
fn with_numbers() -> impl Iterator<Item = &'static Personality> {
    PERSONALITIES.iter().filter(|personality| personality.paper.is_some())
}

/// Builds the runs behind the speedups with numbers in the draft.
pub(super) fn study_runs(
    settings: &Settings,
    registry: &Arc<Registry>,
    base: &MachineConfig,
    variant: Variant,
) -> Result<Vec<SimulationRun>, ReproError> {
    let view = ChartVariant { one: variant.one, ..MLC };
    let machines = [SSD, ("nvmm", Machine::Nvmm(variant.prefetch))];
    let mut all = Vec::new();
    for personality in with_numbers() {
        let how = (base, variant, settings.pick(SCALE, QUICK_SCALE));
        all.extend(runs(settings, registry, how, &view, personality, &machines)?);
    }
    Ok(all)
}

/// Sets these speedups.
pub(super) fn study_metrics(finished: &FinishedRuns<'_>, outcome: &mut Outcome) -> Result<(), ReproError> {
    for personality in with_numbers() {
        let time = |machine| finished.metric(&MLC.name(personality, machine), "simulated_time_ns");
        let speedup = time(SSD.0)? / time(NVMM.0)?;
        outcome.metrics.set(format!("{}.speedup", personality.name), speedup);
    }
    Ok(())
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let views = settings.pick(&VIEWS[..], &VIEWS[..1]);
    let (base, variant) = (MachineConfig::default(), Variant::default());
    let how = (&base, variant, settings.pick(SCALE, QUICK_SCALE));
    let mut all = Vec::new();
    for view in views {
        for personality in &PERSONALITIES {
            all.extend(runs(settings, registry, how, view, personality, view.machines())?);
        }
    }
    let how = (&base, variant, settings.pick(1, QUICK_SCALE / 2));
    for personality in with_numbers() {
        all.extend(runs(settings, registry, how, &FULL_SIZE, personality, FULL_SIZE.machines())?);
    }
    Ok(Experiment::new(
        "filebench",
        "Filebench",
        "2 GiB of files behind 512 MiB of DRAM, all capacities divided by 16, warm; OLTP and Varmail are \
         run at full size, too. Flash of 25 µs (SLC) and 75 µs (MLC), with program times of ten times \
         that, as in the draft. Each personality has its own number of threads (the draft names none), on \
         six cores; a second chart has one thread. Files are accessed as memory on both systems, one line \
         of 64 bytes at a time, without the time of system calls and file-system code. fsync and \
         synchronous writes reach the drive: the SSD system writes all dirty pages and flushes the drive, \
         NVMM performs its sync. The SSD system reads a page before overwriting it, as NVMM does, and reads \
         the first page of a file separately, which Linux avoids.",
        all,
        move |finished| evaluate(finished, views),
    ))
}

fn evaluate(finished: &FinishedRuns<'_>, views: &[ChartVariant]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    for personality in with_numbers() {
        let time = |machine| finished.metric(&FULL_SIZE.name(personality, machine), "simulated_time_ns");
        let speedup = time(SSD.0)? / time(NVMM.0)?;
        outcome.metrics.set(format!("{}.full.speedup", personality.name), speedup);
    }
    for view in views {
        let (mut plain, mut ahead) = (Vec::new(), Vec::new());
        for personality in &PERSONALITIES {
            let time = |machine| finished.metric(&view.name(personality, machine), "simulated_time_ns");
            let ssd = time("ssd")?;
            for &(machine, kind) in view.machines() {
                let speedup = ssd / time(machine)?;
                let (of, suffix) = match kind {
                    Machine::Nvmm(0) => (&mut plain, ""),
                    Machine::Nvmm(_) => (&mut ahead, ".prefetch16"),
                    Machine::Ssd | Machine::Dram => continue,
                };
                of.push(speedup);
                let name = format!("{}{}.speedup{suffix}", personality.name, view.infix);
                outcome.metrics.set(name, speedup);
            }
        }
        let mut series = vec![Bars::new("no prefetch", plain)];
        if !view.one {
            series.push(Bars::new("prefetching 16 blocks", ahead));
        }
        if view.infix.is_empty() {
            let values = PERSONALITIES.iter().map(|personality| personality.paper).collect();
            series.push(Bars { name: "paper".into(), values });
        }
        outcome.charts.push(Chart {
            title: format!("Filebench, speedup of NVMM over the SSD system, {}", view.title),
            about: "Time of the SSD system over that of NVMM; below 1 the SSD system is faster.".into(),
            drawing: Drawing::Bars {
                axis: Axis::linear("speedup", ""),
                groups: PERSONALITIES.iter().map(|personality| personality.name.into()).collect(),
                series,
                stacked: false,
            },
            references: vec![Reference { name: "equal".into(), value: 1.0 }],
        });
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: HostCost = HostCost { line_copy: 1, sync: true };

    #[test]
    fn files_that_exist_have_places_before_anything_runs() {
        let data = 4 << 20;
        for personality in &PERSONALITIES {
            let existing = personality.existing(data);
            let spec = personality.spec(data, 3);
            let mut shared =
                SharedRequests::new(&spec, &existing, LineCounts { warm_up: 0, measured: 100_000 }, COST, 5)
                    .unwrap();
            let before = shared.places.bytes();
            assert_eq!(before, existing.len() as u64 * PAGE, "{spec}: a page is there twice");
            assert!(before >= data * 9 / 10 && before <= data + (12 << 20), "{spec}: {before} B");
            let (mut lines, mut new, mut syncs) = (0, 0, 0);
            loop {
                let request = shared.request().unwrap();
                if request.is_empty() {
                    break;
                }
                syncs += usize::from(request.contains(&ThreadStep::Sync));
                let Some(ThreadStep::Access(first)) = request.front() else { continue };
                lines += request.len();
                // A load never reaches an unwritten page.
                let grown = shared.places.bytes() - before;
                assert!(grown == new || first.access == MemoryAccess::Store, "{spec}");
                new = grown;
            }
            assert_eq!(lines, 100_000, "{spec}");
            assert_eq!(new > 0, personality.name != "oltp", "{spec}: files grow but for oltp's");
            let durable = ["oltp", "varmail"].contains(&personality.name);
            assert_eq!(syncs > 0, durable, "{spec}: {syncs} syncs");
        }
    }

    #[test]
    fn threads_share_one_sequence_of_requests() {
        let (data, seed) = (4 << 20, 9);
        let varmail = &PERSONALITIES[1];
        let amount = LineCounts { warm_up: 100, measured: 5000 };
        let program = varmail.program(data, 3, amount, COST, seed);
        let made = (program.threads)().unwrap();
        let addresses = |steps: &[ThreadStep]| -> Vec<u64> {
            let address = |step: &ThreadStep| match step {
                ThreadStep::Access(line) => Some(line.addr),
                ThreadStep::Sync | ThreadStep::Barrier => None,
            };
            steps.iter().filter_map(address).collect()
        };
        let mut dealt = Vec::new();
        for thread in made {
            let steps: Vec<ThreadStep> = thread.map(Result::unwrap).collect();
            let barriers = steps.iter().filter(|step| **step == ThreadStep::Barrier).count();
            assert_eq!(barriers, 1);
            dealt.extend(addresses(&steps));
        }
        let mut shared =
            SharedRequests::new(&varmail.spec(data, 3), &varmail.existing(data), amount, COST, seed).unwrap();
        let mut whole: Vec<u64> = Vec::new();
        while whole.len() < 5100 {
            whole.extend(addresses(shared.request().unwrap().make_contiguous()));
        }
        dealt.sort_unstable();
        whole.sort_unstable();
        assert_eq!(dealt, whole);
    }
}
