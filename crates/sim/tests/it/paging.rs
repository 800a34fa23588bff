//! DRAM with a drive behind the operating system's paging: closed forms, the study's table of software
//! overhead, replacement against a model, write-back, determinism.

use std::collections::{HashMap, VecDeque};

use deepram_media::{Bytes, Dram, Picos, Registry, Software, Ssd};
use deepram_sim::SimError;
use deepram_sim::host::{Device, HostOptions, HostResult, drive};
use deepram_sim::paging::{
    ActiveInactiveLists, Backing, Completion, FaultTimes, PAGE, PagedMemory, PagingCounts, PagingOptions,
    Phase,
};
use deepram_sim::ssd::SsdOptions;
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

const MIB: u64 = 1 << 20;
/// Time of a line from DRAM, picoseconds: the preset's flat latency.
const LINE: u64 = 50_000;
/// Time of a page transfer to DRAM, picoseconds: 63 bursts of 5 ns, and the latency of the last burst.
const DMA: u64 = 63 * 5_000 + LINE;

struct Setup {
    dram: Dram,
    ssd: Ssd,
    software: Software,
    options: PagingOptions,
}

impl Setup {
    fn new(ssd: &str, software: &str, overrides: &[&str]) -> Self {
        let registry = Registry::builtin().unwrap();
        let mut all = vec!["channels=4", "packages_per_channel=2", "raw_capacity=32GiB"];
        all.extend_from_slice(overrides);
        Self {
            dram: registry.get("dram.ddr3-1600").unwrap(),
            ssd: registry.get_with(ssd, &all).unwrap(),
            software: registry.get(software).unwrap(),
            options: PagingOptions { memory: Bytes(16 * MIB), ..PagingOptions::default() },
        }
    }

    /// A setup with fixed software times and without fault-around.
    fn alone() -> Self {
        let mut setup = Self::steady();
        setup.options.read_around = false;
        setup
    }

    /// A setup with fixed software times.
    fn steady() -> Self {
        let setup = Self::new("paging-slc", "linux-slc", &[]);
        Self { software: setup.software.with_wait(Picos(0)), ..setup }
    }

    fn machine(&self) -> PagedMemory {
        let ssd_options = SsdOptions::default();
        PagedMemory::new(&self.dram, &self.ssd, &self.software, &self.options, &ssd_options, 7).unwrap()
    }

    fn run(&self, threads: u32, requests: impl IntoIterator<Item = Request>) -> (PagedMemory, HostResult) {
        let mut machine = self.machine();
        let options = HostOptions { threads, ..HostOptions::default() };
        let measured = drive(&mut machine, requests.into_iter().map(Ok), &options).unwrap();
        (machine, measured)
    }

    /// Runs one thread. Returns the time, picoseconds, and the counts.
    fn one(&self, requests: &[Request]) -> (u64, PagingCounts) {
        let (machine, measured) = self.run(1, requests.iter().copied());
        (measured.time.0, machine.paging_counts())
    }
}

fn line(op: Op, page: u64) -> Request {
    Request { time_ps: None, device: 0, offset: page * PAGE, len: 64, op }
}

fn random_lines(count: u64, pages: u64, write_of_ten: u64) -> impl Iterator<Item = Request> {
    let mut random = Rng::new(3, "workload");
    (0..count).map(move |_| {
        let op = if random.below(10) < write_of_ten { Op::Write } else { Op::Read };
        Request { offset: random.below(pages * 64) * 64, ..line(op, 0) }
    })
}

#[test]
fn a_fault_takes_its_phases_the_drives_idle_read_and_the_dma() {
    let mut setup = Setup::alone();
    let fault = setup.software.path().0 + setup.ssd.idle_read().0 + DMA;
    let (time, counts) = setup.one(&[line(Op::Read, 1000)]);
    assert_eq!((time, counts.major_faults), (fault + LINE, 1));
    let (time, _) = setup.one(&[line(Op::Read, 1000), line(Op::Read, 1000), line(Op::Read, 5000)]);
    assert_eq!(time, 2 * (fault + LINE) + LINE);
    // A write first reads the page; the same fault also makes the page writable.
    let (time, counts) = setup.one(&[line(Op::Write, 1000), line(Op::Write, 1000)]);
    assert_eq!((time, counts.dirtied, counts.protection_faults), (fault + 2 * LINE, 1, 0));
    setup.options.completion = Completion::Polling;
    let (time, _) = setup.one(&[line(Op::Read, 1000)]);
    assert_eq!(time, setup.software.polled().0 + setup.ssd.idle_read().0 + DMA + LINE);
}

#[test]
fn switching_away_costs_the_fault_nothing_while_the_drive_is_slower_than_that() {
    let mut setup = Setup::alone();
    let (before, _) = setup.one(&[line(Op::Read, 1000)]);
    setup.software.switch_away = setup.ssd.idle_read();
    let (same, _) = setup.one(&[line(Op::Read, 1000)]);
    setup.software.switch_away = setup.ssd.idle_read() + Picos(DMA + 1_000_000);
    let (longer, _) = setup.one(&[line(Op::Read, 1000)]);
    assert_eq!((same - before, longer - before), (0, 1_000_000));
}

#[test]
fn sata_with_native_command_queueing_is_slower_by_its_wire() {
    let nvme = Setup::alone();
    let sata = Setup::new("paging-slc", "linux-slc", &["link.base=sata-6", "queue=32"]);
    let sata = Setup { software: nvme.software.clone(), options: nvme.options.clone(), ..sata };
    let wire = |setup: &Setup| setup.ssd.link.transfer(deepram_media::Bytes(PAGE)).0;
    let slower = wire(&sata) - wire(&nvme);
    let first = [line(Op::Read, 1000)];
    assert_eq!(sata.one(&first).0, nvme.one(&first).0 + slower);
    // 4 KiB at 6 Gb/s in 10 bits a byte, and at 16 x 8 Gb/s in 130 bits for 128.
    assert_eq!(slower, 6_826_667 - 260_000);
}

#[test]
fn pages_read_ahead_take_a_minor_fault_or_none_and_a_trigger_starts_the_next_window() {
    let setup = Setup::steady();
    let software = &setup.software;
    let one = |pages: &[u64]| {
        let requests: Vec<Request> = pages.iter().map(|page| line(Op::Read, *page)).collect();
        setup.one(&requests)
    };
    let (first, counts) = one(&[0]);
    assert_eq!((counts.pages_read, counts.readahead_pages, counts.read_commands), (4, 3, 1));
    // Fault-around mapped page 2 with page 0, as page 2 was in memory already.
    assert_eq!(one(&[0, 2]).0, first + LINE);
    // Page 1 is the readahead trigger: its fault requests eight more pages, and no thread waits for them.
    let (time, counts) = one(&[0, 1]);
    let ahead = (software.block + software.driver).0 + 8 * software.extra_page.0;
    assert_eq!(counts.minor_faults, 1);
    assert_eq!((counts.pages_read, counts.readahead_used, counts.read_commands), (12, 1, 2));
    // The run ends with the thread's last access; the readahead goes on.
    assert_eq!(time, first + software.minor().0 + ahead + LINE);
    let (machine, measured) = setup.run(1, [line(Op::Read, 0), line(Op::Read, 1)]);
    let seen = (measured.response.mean_ns * 2.0 * 1e3).round() as u64;
    let expected = first + software.minor().0 + ahead + LINE;
    assert!(seen.abs_diff(expected) < expected / 100, "{seen}, not {expected}");
    assert_eq!(machine.paging_counts().waiting_faults, 0);
    // The trigger works once: another fault of that page reads nothing.
    let (_, counts) = setup.one(&[line(Op::Read, 0), line(Op::Read, 1), line(Op::Write, 1)]);
    assert_eq!((counts.protection_faults, counts.pages_read), (1, 12));
}

#[test]
fn a_scan_reads_each_page_once_in_windows_that_double() {
    let setup = Setup::steady();
    let pages = 4 + 8 + 16 + 20 * 32;
    let scan = (0..pages * 4).map(|n| Request { offset: n * 1024, ..line(Op::Read, 0) });
    let (machine, _) = setup.run(1, scan);
    let counts = machine.paging_counts();
    assert_eq!(counts.major_faults, 1);
    // The last window is requested at the first page of the window before it.
    assert_eq!((counts.pages_read, counts.read_commands), (pages + 32, 3 + 20 + 1));
    assert_eq!(counts.readahead_used, pages - 1);
    // Without readahead, each page is a major fault.
    let none = Setup { options: PagingOptions { readahead_most: 0, ..setup.options }, ..Setup::steady() };
    let scan = (0..500).map(|page| line(Op::Read, page));
    assert_eq!(none.run(1, scan).0.paging_counts().major_faults, 500);
}

/// A brute-force model of the readahead rules. It follows one sequential stream, and evicts pages in FIFO order.
struct ReadAroundModel {
    memory: usize,
    /// For each page in memory: whether it is mapped, and whether it is a readahead trigger.
    held: HashMap<u64, (bool, bool)>,
    order: VecDeque<u64>,
    /// The last window: its trigger, the page behind it, its length.
    last: (u64, u64, u64),
    misses: u64,
    faults: u64,
    read: u64,
}

impl ReadAroundModel {
    fn load(&mut self, page: u64, map_around: u64) {
        let missing = !self.held.contains_key(&page);
        if missing {
            self.miss(page);
        } else if self.held[&page].1 {
            self.held.get_mut(&page).unwrap().1 = false;
            let hole = (page + 1..page + 33).find(|page| !self.held.contains_key(page)).unwrap_or(page + 33);
            let (trigger, end, len) = self.last;
            let (first, len) = if len > 0 && trigger == page { (end, len) } else { (hole, hole - page) };
            self.window(first, (2 * len).clamp(4, 32), first, page);
        }
        if !self.held[&page].0 && (!missing || map_around > 1) {
            let first = page - page % map_around;
            for near in first..first + map_around {
                if let Some((mapped @ false, trigger)) = self.held.get_mut(&near)
                    && (near == page || !*trigger)
                {
                    *mapped = true;
                    self.misses = self.misses.saturating_sub(1);
                }
            }
        }
        self.held.get_mut(&page).unwrap().0 = true;
    }

    fn miss(&mut self, page: u64) {
        self.faults += 1;
        let (_, end, len) = self.last;
        if end == page || page == 0 {
            let len = if end == page && len > 0 { (2 * len).min(32) } else { 4 };
            return self.window(page, len, page + 1, page);
        }
        self.misses = (self.misses + 1).min(1000);
        if self.misses > 100 {
            self.window(page, 1, u64::MAX, page);
            self.last = (0, page + 1, 0);
        } else {
            let first = page.saturating_sub(16);
            self.window(first, 32, first + 24, page);
        }
    }

    fn window(&mut self, first: u64, len: u64, trigger: u64, needed: u64) {
        self.last = (trigger, first + len, len);
        for page in (first..first + len).filter(|page| !self.held.contains_key(page)).collect::<Vec<_>>() {
            if self.order.len() == self.memory {
                let oldest = self.order.pop_front().unwrap();
                // The page that the fault waits for is not evicted.
                let leaves = if oldest == needed { self.order.pop_front().unwrap() } else { oldest };
                if leaves != oldest {
                    self.order.push_back(oldest);
                }
                self.held.remove(&leaves);
            }
            self.held.insert(page, (false, page == trigger && page != needed));
            self.order.push_back(page);
            self.read += 1;
        }
    }
}

#[test]
fn random_loads_of_a_file_are_read_around_as_long_as_that_is_of_use() {
    let (memory, pages) = (2048, 8192);
    for (map_around, alone) in [(1, true), (16, false)] {
        let mut setup = Setup::steady();
        setup.options.memory = Bytes(memory * PAGE);
        setup.options.map_around = map_around as u32;
        setup.options.readahead_runs = 1;
        let mut random = Rng::new(3, "loads");
        let loads: Vec<u64> = (0..20_000).map(|_| random.below(pages)).collect();
        let (machine, _) = setup.run(1, loads.iter().map(|page| line(Op::Read, *page)));
        let counts = machine.paging_counts();
        let mut model = ReadAroundModel {
            memory: memory as usize,
            held: HashMap::new(),
            order: VecDeque::new(),
            last: (u64::MAX, u64::MAX, 0),
            misses: 0,
            faults: 0,
            read: 0,
        };
        loads.iter().for_each(|page| model.load(*page, map_around));
        for (found, expected) in [(counts.major_faults, model.faults), (counts.pages_read, model.read)] {
            let ratio = found as f64 / expected as f64;
            assert!((ratio - 1.0).abs() < 0.05, "mapping {map_around} around: {found}, not {expected}");
        }
        assert_eq!(counts.pages_read < 2 * counts.major_faults, alone, "{counts:?}");
    }
}

/// Runs the study's experiment: one thread reads a mapped file larger than memory at random.
fn software_overhead(ssd: &str, software: &str) -> FaultTimes {
    let mut setup = Setup::new(ssd, software, &[]);
    setup.options.readahead_most = 0;
    let (machine, _) = setup.run(1, random_lines(10_000, 1024 * MIB / PAGE, 0));
    let times = machine.fault_times();
    assert!(times.total.count > 9_000);
    times
}

#[test]
fn totals_and_deviations_are_those_of_the_studys_table() {
    for (ssd, software, table) in [
        ("paging-slc", "linux-slc", [85.4, 33.8, 38.9, 46.5]),
        ("paging-mlc", "linux-mlc", [162.2, 61.1, 88.8, 73.4]),
    ] {
        let times = software_overhead(ssd, software);
        let found =
            [times.total.mean_ps, times.total.deviation_ps, times.hardware.mean_ps, times.software.mean_ps];
        for (found, expected) in found.into_iter().zip(table) {
            let ratio = found * 1e-6 / expected;
            assert!((ratio - 1.0).abs() < 0.05, "{ssd}: {:.2} us, not {expected}", found * 1e-6);
        }
    }
}

#[test]
fn anonymous_memory_is_zero_filled_at_first_and_read_back_after_eviction() {
    let mut setup = Setup::steady();
    setup.options = PagingOptions { backing: Backing::Swap, memory: Bytes(MIB), ..setup.options };
    let software = &setup.software;
    let (time, counts) = setup.one(&[line(Op::Write, 9)]);
    assert_eq!(time, software.minor().0 + software.allocation.0 + DMA + LINE);
    assert_eq!((counts.zero_faults, counts.major_faults), (1, 0));
    // 1 MiB holds 256 pages; pages of zeros that are only read are never written back.
    let (_, counts) = setup.one(&(0..1000).map(|n| line(Op::Read, n)).collect::<Vec<_>>());
    assert_eq!((counts.zero_faults, counts.pages_written, counts.pages_read), (1000, 0, 0));
    // Dirty pages are written in clusters to adjacent swap slots, independent of their page numbers.
    let twice = (0..2000).map(|n| line(Op::Write, n * 617 % 1000));
    let (machine, _) = setup.run(1, twice);
    let counts = machine.paging_counts();
    assert_eq!(counts.zero_faults, 1000);
    assert!(counts.major_faults + counts.readahead_used > 500, "{counts:?}");
    assert!(counts.pages_written > 4 * counts.write_commands, "{counts:?}");
    // Pages of random writes are evicted in the order of the reclaim scan, and so share write commands.
    let (machine, _) = setup.run(4, random_lines(5_000, 1024, 10));
    let counts = machine.paging_counts();
    assert!(counts.pages_written > 2 * counts.write_commands, "{counts:?}");
}

/// Returns the number of major faults of a thread that only reads, computed from the lists and watermarks alone.
fn model_faults(frames: u64, low: u64, high: u64, pages: impl Iterator<Item = u64>) -> u64 {
    let mut lists = ActiveInactiveLists::new(1);
    let mut frame_of: HashMap<u64, u32> = HashMap::new();
    let mut free: Vec<u32> = (0..frames as u32).rev().collect();
    let mut faults = 0;
    for page in pages {
        let frame = match frame_of.get(&page) {
            Some(frame) => *frame,
            None => {
                faults += 1;
                let frame = free.pop().unwrap();
                if (free.len() as u64) < low {
                    while (free.len() as u64) < high {
                        let victim = lists.candidate().unwrap();
                        lists.remove(victim);
                        frame_of.retain(|_, frame| *frame != victim);
                        free.push(victim);
                    }
                }
                lists.insert(frame, true);
                frame_of.insert(page, frame);
                frame
            }
        };
        lists.touch(frame);
    }
    faults
}

#[test]
fn replacement_is_that_of_the_two_lists() {
    let mut setup = Setup::steady();
    setup.options.readahead_most = 0;
    // The watermarks of such a small memory are an eighth and a sixth of it, 40 and 48 pages at most.
    for (frames, low, high) in [(64, 8, 10), (300, 37, 48), (1024, 40, 48)] {
        setup.options.memory = Bytes(frames * PAGE);
        let mut random = Rng::new(frames, "pages");
        let pages: Vec<u64> = (0..20_000)
            .map(|_| if random.below(3) > 0 { random.below(frames / 2) } else { random.below(frames * 4) })
            .collect();
        let (_, counts) = setup.one(&pages.iter().map(|page| line(Op::Read, *page)).collect::<Vec<_>>());
        assert_eq!(counts.major_faults, model_faults(frames, low, high, pages.into_iter()), "{frames}");
    }
}

#[test]
fn dirty_pages_are_written_once_with_their_neighbours_and_flushed_on_request() {
    let setup = Setup::steady();
    let dirty: Vec<Request> = (100..164).map(|page| line(Op::Write, page)).collect();
    let (_, counts) = setup.one(&dirty);
    assert_eq!((counts.dirtied, counts.pages_written), (64, 0));
    let flush = Request { len: 0, op: Op::Flush, ..line(Op::Read, 0) };
    let mut flushed = dirty.clone();
    flushed.push(flush);
    let (machine, _) = setup.run(1, flushed.iter().copied());
    let counts = machine.paging_counts();
    assert_eq!((counts.pages_written, counts.write_commands), (64, 2));
    assert_eq!(machine.counts().host_pages, 64);
    // A page is write-protected when it is written back: the next write faults, and makes it dirty again.
    flushed.extend([line(Op::Write, 100), line(Op::Write, 100), flush]);
    let (_, counts) = setup.one(&flushed);
    assert_eq!((counts.protection_faults, counts.dirtied, counts.pages_written), (1, 65, 65));
}

#[test]
fn too_many_dirty_pages_are_written_behind_and_make_writers_wait() {
    let mut setup = Setup::steady();
    let memory = setup.options.memory.0 / PAGE;
    let lines = || random_lines(20_000, 16 * 1024, 10);
    let (machine, _) = setup.run(8, lines());
    let counts = machine.paging_counts();
    assert!(counts.pages_written + memory / 10 + 1 >= counts.dirtied, "{counts:?}");
    assert!(counts.throttled > 100, "{counts:?}");
    setup.options.dirty_limit = 1.0;
    assert_eq!(setup.run(8, lines()).0.paging_counts().throttled, 0);
    // Anonymous memory has no dirty limit; its writers reclaim directly when no free page is left.
    setup.options = PagingOptions { backing: Backing::Swap, memory: Bytes(MIB), ..setup.options };
    let (machine, _) = setup.run(8, lines());
    let counts = machine.paging_counts();
    assert!(counts.throttled == 0 && counts.direct_reclaims > 100, "{counts:?}");
}

#[test]
fn a_queue_of_one_makes_faults_take_turns_and_a_deep_one_lets_them_overlap() {
    let mut setup = Setup::alone();
    let lines = || random_lines(2_000, 256 * MIB / PAGE, 0);
    let idle = setup.ssd.idle_read().0;
    let mut times = Vec::new();
    for queue in [1, 32, 0] {
        setup.options.queue = queue;
        let (machine, measured) = setup.run(16, lines());
        times.push(measured.time.0 as f64 / (machine.paging_counts().major_faults * idle) as f64);
    }
    // 16 faults of 52 us run at once, on a drive with four channels and eight packages.
    assert!(times[0] >= 1.0 && times[1] < 0.4 && times[2] < 0.4, "{times:?}");
}

#[test]
fn the_parts_of_energy_and_time_add_up() {
    let setup = Setup::new("paging-mlc", "linux-mlc", &[]);
    let (machine, measured) = setup.run(4, random_lines(20_000, 64 * MIB / PAGE, 5));
    let counts = machine.paging_counts();
    let parts: HashMap<_, _> = machine
        .energy_pj(Picos(measured.time.0))
        .into_iter()
        .map(|(name, dynamic, fixed)| (name, dynamic + fixed))
        .collect();
    assert_eq!(parts.len(), 10);
    assert!(parts.values().all(|energy| *energy >= 0.0), "{parts:?}");
    let bytes = (counts.pages_read + counts.pages_written) * PAGE;
    assert_eq!(machine.link_bytes(), bytes);
    assert!((parts["link"] / (bytes as f64 * 8.0 * 1.93) - 1.0).abs() < 1e-12);
    let nand = &setup.ssd.nand;
    let read = nand.energy(deepram_media::NandOp::Read).times(machine.counts().reads()).0;
    assert_eq!(parts["flash read"], read);
    let spent: HashMap<&str, u64> =
        machine.software_times().into_iter().map(|(phase, time)| (phase.name(), time.0)).collect();
    let faults = counts.major_faults + counts.waiting_faults + counts.minor_faults + counts.protection_faults;
    assert_eq!(spent.len(), Phase::ALL.len());
    assert!(spent["entry"] >= (faults - counts.repeated_faults) * setup.software.entry.0 / 2);
    assert_eq!(
        spent["write-back"],
        counts.write_commands
            * (setup.software.block
                + setup.software.driver
                + setup.software.interrupt
                + setup.software.completion)
                .0
    );
    let times = machine.fault_times();
    assert_eq!(times.total.count, counts.major_faults);
    assert!((times.hardware.mean_ps + times.software.mean_ps - times.total.mean_ps).abs() < 1.0);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let setup = Setup::new("paging-slc", "linux-slc", &[]);
    let run = |seed| {
        let ssd_options = SsdOptions::default();
        let mut machine =
            PagedMemory::new(&setup.dram, &setup.ssd, &setup.software, &setup.options, &ssd_options, seed)
                .unwrap();
        let options = HostOptions { threads: 4, ..HostOptions::default() };
        let requests = random_lines(3_000, 64 * MIB / PAGE, 3).map(Ok::<_, SimError>);
        let measured = drive(&mut machine, requests, &options).unwrap();
        (measured, machine.paging_counts(), machine.software_times())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0.time.0, run(2).0.time.0);
}

#[test]
fn what_can_not_be_is_refused_with_the_reason() {
    let setup = Setup::steady();
    for (options, needle) in [
        (PagingOptions { memory: Bytes(1 << 40), ..setup.options.clone() }, "more channels or ranks"),
        (PagingOptions { memory: Bytes(4096), ..setup.options.clone() }, "32 KiB"),
        (PagingOptions { dirty_limit: 20.0, ..setup.options.clone() }, "dirty_limit"),
    ] {
        let ssd_options = SsdOptions::default();
        let error =
            PagedMemory::new(&setup.dram, &setup.ssd, &setup.software, &options, &ssd_options, 1).err();
        assert!(error.is_some_and(|error| error.to_string().contains(needle)), "{needle}");
    }
}
