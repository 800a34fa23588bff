//! Queueing against theory: open arrivals against Pollaczek-Khinchine, closed networks against exact mean-value
//! analysis, a finite population at a constant server against its embedded chain, and busy times against elapsed time.
//! Theory knows nothing of the simulator: each expected value is computed here from service times and loads alone.

use std::collections::VecDeque;

use deepram_media::{Bytes, Dram, Hierarchy, NandOp, Nvmm, Picos, Registry, Ssd};
use deepram_sim::SimError;
use deepram_sim::flash::FlashCounts;
use deepram_sim::flatflash::{AccessMode, FlatMemory, FlatOptions};
use deepram_sim::host::{Command, Context, Device, HostOptions, HostResult, Slot, drive};
use deepram_sim::nvmm::{NvmmMemory, NvmmOptions};
use deepram_sim::ssd::{ParallelSsd, Precondition, SerialSsd, SsdOptions};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

type Requests = Vec<Result<Request, SimError>>;

fn read(time_ps: Option<u64>, offset: u64, len: u64) -> Result<Request, SimError> {
    Ok(Request { time_ps, device: 0, offset, len, op: Op::Read })
}

fn exponential(random: &mut Rng, mean: f64) -> f64 {
    -(1.0 - random.unit()).ln() * mean
}

fn within(found: f64, expected: f64, share: f64, what: &str) {
    let error = found / expected - 1.0;
    eprintln!("{what}: {found:.4}, expected {expected:.4}, {:+.3} %", error * 100.0);
    assert!(error.abs() <= share, "{what}: {found} instead of {expected}");
}

/// Poisson arrivals at one server: the mean wait is load x service / 2 (1 - load).
fn m_d_1<D: Device>(
    what: &str,
    service_ps: f64,
    count: u64,
    mut device: impl FnMut() -> D,
    mut place: impl FnMut(&mut Rng) -> (u64, u64),
) {
    // One request after the other, none waits.
    let mut random = Rng::new(6, what);
    let requests = (0..20_000).map(|_| place(&mut random)).map(|(offset, len)| read(None, offset, len));
    let requests: Requests = requests.collect();
    let alone = closed(&mut device(), 1, 0, requests).response.mean_ns * 1e3;
    for load in [0.3, 0.6, 0.8] {
        let mut random = Rng::new(7, what);
        let mut now = 0.0;
        let requests = (0..count).map(|_| {
            now += exponential(&mut random, service_ps / load);
            let (offset, len) = place(&mut random);
            read(Some(now as u64), offset, len)
        });
        let wait =
            drive(&mut device(), requests, &HostOptions::default()).unwrap().response.mean_ns * 1e3 - alone;
        let expected = load * service_ps / (2.0 * (1.0 - load));
        within(wait, expected, 0.01, &format!("{what}, load {load}: wait, ps"));
    }
}

/// A byte-addressable drive whose link needs a microsecond for a line; the data are in its buffer.
fn linked() -> FlatMemory {
    let registry = Registry::builtin().unwrap();
    let slow = ["link.lanes=1", "link.width=1", "link.rate=512Mb/s", "link.data_bits=1", "link.coded_bits=1"];
    let mut all = vec!["walk=0ns", "promote=0ns"];
    all.extend(slow);
    let preset: Hierarchy = registry.get_with("hierarchy.p3700-32gib", &all).unwrap();
    assert_eq!(preset.link.occupancy(Bytes(64)), Picos::from_us(1));
    // The pages of a persistent region stay at the drive.
    let mut options = FlatOptions { cpu_cache: false, ..FlatOptions::default() };
    options.regions.push(0..4096);
    FlatMemory::new(&preset, AccessMode::Promote, &options, 1).unwrap()
}

#[test]
fn poisson_loads_over_a_link_wait_as_in_an_m_d_1_queue() {
    // The first load reads the page from flash, which is one of a million.
    m_d_1("link of flatflash", 1e6, 1_000_000, linked, |random| (random.below(64) * 64, 64));
}

/// A drive of one die with nothing but its bus and array, full of data.
fn one_die() -> ParallelSsd {
    let overrides = [
        "write_cache=false",
        "data_cache=0B",
        "static_wear_levelling=false",
        "channels=1",
        "packages_per_channel=1",
        "nand.planes=1",
        "nand.blocks_per_plane=16",
        "raw_capacity=16MiB",
        "link.rate=1000000GT/s",
    ];
    let ssd: Ssd = Registry::builtin().unwrap().get_with("mqsim-s8", &overrides).unwrap();
    let options = SsdOptions { precondition: Precondition::Sequential(0.5), ..SsdOptions::default() };
    ParallelSsd::new(&ssd, &options, 1).unwrap()
}

#[test]
fn poisson_reads_of_one_die_wait_as_in_an_m_d_1_queue() {
    let ssd: Ssd = Registry::builtin().unwrap().get("mqsim-s8").unwrap();
    let service = ssd.nand.idle_latency(NandOp::Read, 1).0 as f64;
    let page = ssd.nand.page.0;
    m_d_1("one die of ssd", service, 600_000, one_die, |random| (random.below(800) * page, page));
}

/// Flash main memory of one plane behind a cache that holds next to nothing.
fn one_plane() -> (NvmmMemory, f64) {
    let overrides = [
        "channels=1",
        "packages_per_channel=1",
        "nand.planes=1",
        "nand.blocks_per_plane=512",
        "stripe=1",
        "ways=1",
        "nand.registers=1",
    ];
    let preset: Nvmm = Registry::builtin().unwrap().get_with("nvmm-slc", &overrides).unwrap();
    let service = preset.package().idle_latency(NandOp::Read, 1).0 as f64;
    let options = NvmmOptions { cache: Bytes(64 << 10), critical_first: false, ..NvmmOptions::default() };
    (NvmmMemory::new(&preset, &options, 1).unwrap(), service)
}

#[test]
fn poisson_misses_of_nvmm_wait_for_one_plane_as_in_an_m_d_1_queue() {
    let (memory, service) = one_plane();
    let blocks = memory.capacity().0 / 4096;
    drop(memory);
    m_d_1(
        "one plane of nvmm",
        service,
        600_000,
        || one_plane().0,
        |random| (random.below(blocks) * 4096, 64),
    );
}

/// The measurements of `clients` that send their next request as soon as the last has ended and a think time
/// is over.
fn closed<D: Device>(device: &mut D, clients: u32, think: u64, requests: Requests) -> HostResult {
    let options =
        HostOptions { threads: clients, think: Picos(think), warm_up: 100, ..HostOptions::default() };
    drive(device, requests.into_iter(), &options).unwrap()
}

#[test]
fn a_constant_server_with_a_constant_think_time_is_busy_or_idle_as_its_bounds_say() {
    // Bounds of a closed system are exact where neither service nor think time varies.
    let service = 1.0e6;
    for (clients, think) in [(1, 0u64), (4, 0), (4, 10_000_000), (16, 10_000_000), (32, 3_000_000)] {
        let mut device = linked();
        let requests = (0..20_000u64).map(|n| read(None, n % 64 * 64, 64)).collect();
        let measured = closed(&mut device, clients, think, requests);
        // A load takes the latency of a line besides its transfer.
        let alone = measured.response.min_ns * 1e3;
        let cycle = (alone + think as f64).max(f64::from(clients) * service);
        let rate = f64::from(clients) / cycle * 1e12;
        // The clients' last requests run out one by one.
        within(measured.requests_per_s, rate, 0.01, &format!("{clients} clients, think {think} ps: loads/s"));
    }
}

#[test]
fn one_client_thinks_before_each_request_as_long_as_the_request_says() {
    // The first request is sent at once; its own time does not count.
    let thinks = [5_000_000_000_u64, 0, 7_000_000, 300, 0, 11_000_000];
    let options =
        |think_times| HostOptions { closed: true, think_times, think: Picos(9), ..HostOptions::default() };
    let run = |think_times| {
        let requests = thinks.iter().zip(0..).map(|(think, n)| read(Some(*think), n * 64, 64));
        drive(&mut linked(), requests, &options(think_times)).unwrap().time.0
    };
    let spread: u64 = thinks[1..].iter().sum();
    assert_eq!(run(true) - (run(false) - 5 * 9), spread);
    for wrong in [
        HostOptions { closed: false, ..options(true) },
        HostOptions { threads: 2, ..options(true) },
        HostOptions { per_thread: 2, ..options(true) },
    ] {
        let refused = drive(&mut linked(), std::iter::empty(), &wrong).unwrap_err();
        assert!(refused.to_string().contains("one thread with one request"), "{refused}");
    }
}

/// The distribution of a station's service.
#[derive(Clone, Copy)]
enum Service {
    Exponential(f64),
    Constant(f64),
}

/// A network of stations, each first come, first served, behind an exponential think time.
///
/// A request thinks, then visits the first station. With the probabilities of `routes` it goes from there to another
/// station and back to the first; otherwise it is done.
struct Network {
    think: f64,
    stations: Vec<Service>,
    routes: Vec<f64>,
    queues: Vec<VecDeque<Slot>>,
    busy: Vec<u64>,
    random: Rng,
}

#[derive(Debug, Clone, Copy)]
enum Moved {
    Thought(Slot),
    Served(usize, Slot),
}

impl Network {
    fn new(think: f64, stations: Vec<Service>, routes: Vec<f64>, seed: u64) -> Self {
        let queues = stations.iter().map(|_| VecDeque::new()).collect();
        let busy = vec![0; stations.len()];
        Self { think, stations, routes, queues, busy, random: Rng::new(seed, "network") }
    }

    fn enter(&mut self, station: usize, slot: Slot, context: &mut Context<Moved>) {
        self.queues[station].push_back(slot);
        if self.queues[station].len() == 1 {
            self.serve(station, context);
        }
    }

    fn serve(&mut self, station: usize, context: &mut Context<Moved>) {
        let Some(&slot) = self.queues[station].front() else { return };
        let time = match self.stations[station] {
            Service::Exponential(mean) => exponential(&mut self.random, mean) as u64,
            Service::Constant(time) => time as u64,
        };
        self.busy[station] += time;
        context.schedule(Picos(context.now().0 + time), Moved::Served(station, slot));
    }
}

impl Device for Network {
    type Event = Moved;

    fn capacity(&self) -> Bytes {
        Bytes(1 << 20)
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    fn submit(&mut self, slot: Slot, _: Command, context: &mut Context<Moved>) -> Result<(), SimError> {
        let time = if self.think > 0.0 { exponential(&mut self.random, self.think) as u64 } else { 0 };
        context.schedule(Picos(context.now().0 + time), Moved::Thought(slot));
        Ok(())
    }

    fn handle(&mut self, event: Moved, context: &mut Context<Moved>) -> Result<(), SimError> {
        match event {
            Moved::Thought(slot) => self.enter(0, slot, context),
            Moved::Served(station, slot) => {
                self.queues[station].pop_front();
                self.serve(station, context);
                let mut draw = self.random.unit();
                let next = self.routes.iter().position(|share| {
                    draw -= share;
                    draw < 0.0
                });
                match next {
                    Some(next) if station == 0 => self.enter(next + 1, slot, context),
                    _ if station > 0 => self.enter(0, slot, context),
                    _ => context.complete(slot),
                }
            }
        }
        Ok(())
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts::default()
    }

    fn check(&self) -> Result<(), SimError> {
        Ok(())
    }
}

/// Exact mean-value analysis: throughput of `clients` that think for `think` between passes through stations of these
/// demands (visits x mean service), each exponential and first come, first served.
fn mean_values(clients: u32, think: f64, demands: &[f64]) -> f64 {
    let mut queues = vec![0.0; demands.len()];
    let mut throughput = 0.0;
    for n in 1..=clients {
        let times: Vec<f64> =
            demands.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
        throughput = f64::from(n) / (think + times.iter().sum::<f64>());
        queues = times.iter().map(|time| throughput * time).collect();
    }
    throughput
}

#[test]
fn mean_values_of_one_station_and_of_equal_stations_are_those_of_their_closed_forms() {
    // One station without think time is always busy; m equal stations serve n clients at n / (n + m - 1) of their rate.
    assert!((mean_values(5, 0.0, &[2.0]) - 0.5).abs() < 1e-12);
    assert!((mean_values(6, 0.0, &[2.0; 4]) - 6.0 / 9.0 / 2.0).abs() < 1e-12);
}

#[test]
fn a_closed_network_of_exponential_stations_gives_what_mean_value_analysis_says() {
    let us = 1e6;
    for (clients, think) in [(1, 0.0), (3, 0.0), (8, 0.0), (8, 120.0 * us), (24, 200.0 * us)] {
        let stations = [4.0, 20.0, 30.0, 9.0].map(|mean| Service::Exponential(mean * us)).to_vec();
        let routes = vec![0.3, 0.15, 0.25];
        // The first station is visited until the rest, 0.3, comes up: 1 / 0.3 times.
        let visits = 1.0 / 0.3;
        let demands = [4.0, 20.0 * 0.3, 30.0 * 0.15, 9.0 * 0.25].map(|time| time * us * visits);
        let mut network = Network::new(think, stations, routes, 3);
        let requests = (0..1_600_000).map(|_| read(None, 0, 64)).collect();
        let measured = closed(&mut network, clients, 0, requests);
        let expected = mean_values(clients, think, &demands) * 1e12;
        within(measured.requests_per_s, expected, 0.01, &format!("{clients} clients: passes/s"));
        // Little: clients in the network are throughput x time.
        let inside = measured.requests_per_s * measured.response.mean_ns * 1e-9;
        within(inside, clients.into(), 0.01, &format!("{clients} clients: inside"));
        for (busy, demand) in network.busy.iter().zip(demands) {
            let share = *busy as f64 / (measured.time.0 as f64);
            assert!(share <= 1.01, "a station is busy {share} of the time");
            within(share, expected * demand * 1e-12, 0.015, &format!("{clients} clients: utilisation"));
        }
    }
}

/// Throughput of a finite population at one constant server, M/D/1//N: the chain of the numbers left behind by
/// departures. While one is served, each of the others that think arrives with probability 1 - exp(-service / think).
fn finite_population(clients: usize, think: f64, service: f64) -> f64 {
    let arrives = 1.0 - (-service / think).exp();
    let binomial = |n: usize| -> Vec<f64> {
        let mut row = vec![1.0];
        for _ in 0..n {
            let mut next = vec![0.0; row.len() + 1];
            for (k, share) in row.iter().enumerate() {
                next[k] += share * (1.0 - arrives);
                next[k + 1] += share * arrives;
            }
            row = next;
        }
        row
    };
    let mut left = vec![1.0 / clients as f64; clients];
    for _ in 0..20_000 {
        let mut next = vec![0.0; clients];
        for (behind, share) in left.iter().enumerate() {
            // An empty server waits for the first to arrive.
            let present = behind.max(1);
            for (new, chance) in binomial(clients - present).iter().enumerate() {
                next[present - 1 + new] += share * chance;
            }
        }
        left = next;
    }
    1.0 / (service + left[0] * think / clients as f64)
}

#[test]
fn a_finite_population_at_a_constant_server_is_served_as_its_embedded_chain_says() {
    // One client alternates: think, then service.
    assert!((finite_population(1, 3.0, 1.0) - 0.25).abs() < 1e-12);
    let us = 1e6;
    for (clients, think) in [(2, 30.0 * us), (5, 30.0 * us), (8, 100.0 * us), (12, 100.0 * us)] {
        let mut network = Network::new(think, vec![Service::Constant(10.0 * us)], Vec::new(), 5);
        let requests = (0..1_600_000).map(|_| read(None, 0, 64)).collect();
        let measured = closed(&mut network, clients, 0, requests);
        let expected = finite_population(clients as usize, think, 10.0 * us) * 1e12;
        within(measured.requests_per_s, expected, 0.01, &format!("{clients} clients: services/s"));
        let wait = measured.response.mean_ns * 1e3 - think;
        let time = f64::from(clients) / expected * 1e12 - think;
        within(wait, time, 0.01, &format!("{clients} clients: time at the server, ps"));
    }
}

/// Requests at random places, with or without arrival times, more than the device can serve at once.
fn storm(capacity: u64, count: u64, len: u64, open: bool) -> Requests {
    let mut random = Rng::new(9, "storm");
    let op = |n: u64| if n.is_multiple_of(3) { Op::Read } else { Op::Write };
    (0..count)
        .map(|n| {
            let offset = random.below(capacity / len) * len;
            Ok(Request { time_ps: open.then_some(n * 1_000_000), device: 0, offset, len, op: op(n) })
        })
        .collect()
}

#[test]
fn no_bus_or_array_of_a_drive_is_busy_for_longer_than_the_run() {
    let registry = Registry::builtin().unwrap();
    let few = ["nand.blocks_per_plane=64", "raw_capacity=1GiB"];
    let ssd: Ssd = registry.get_with("mqsim-s8", &few).unwrap();
    for open in [false, true] {
        let mut device = ParallelSsd::new(&ssd, &SsdOptions::default(), 1).unwrap();
        let requests = storm(device.capacity().0 / 2, 30_000, 8192, open);
        let options = HostOptions { per_thread: 64, ..HostOptions::default() };
        let time = drive(&mut device, requests.into_iter(), &options).unwrap().time.0;
        let (bus, array) = device.busy_times();
        let dies = ssd.packages() * ssd.nand.dies;
        assert!(bus.0 > 0 && bus.0 <= time * ssd.channels, "{} buses: {bus:?} of {time} ps", ssd.channels);
        assert!(array.0 > 0 && array.0 <= time * dies, "{dies} dies: {array:?} of {time} ps");
    }
    let serial: Ssd = registry.get_with("disksim-ssd", &["nand.blocks_per_plane=64"]).unwrap();
    let mut device = SerialSsd::new(&serial).unwrap();
    let requests = storm(device.capacity().0 / 2, 30_000, 4096, true);
    let time = drive(&mut device, requests.into_iter(), &HostOptions::default()).unwrap().time.0;
    let busy = device.busy_time().0;
    assert!(
        busy > 0 && busy <= time * serial.packages(),
        "{} elements: {busy} of {time} ps",
        serial.packages()
    );
}

#[test]
fn no_channel_of_nvmm_carries_more_than_the_run_lets_it() {
    let overrides = ["channels=2", "packages_per_channel=1", "nand.blocks_per_plane=512", "stripe=4"];
    let preset: Nvmm = Registry::builtin().unwrap().get_with("nvmm-slc", &overrides).unwrap();
    let options = NvmmOptions { cache: Bytes(1 << 20), ..NvmmOptions::default() };
    let mut memory = NvmmMemory::new(&preset, &options, 1).unwrap();
    let requests = storm(memory.capacity().0 / 4, 20_000, 64, true);
    let time = drive(&mut memory, requests.into_iter(), &HostOptions::default()).unwrap().time;
    let share = memory.channel_use(time);
    assert!(share > 0.05 && share <= 1.0, "the channels are busy {share} of the run");
}

#[test]
fn no_data_bus_of_dram_is_busy_for_longer_than_the_run() {
    let dram: Dram = Registry::builtin().unwrap().get("ddr4-2400").unwrap();
    let mut memory = deepram_sim::dram::DramMemory::new(&dram).unwrap();
    let requests = storm(1 << 30, 200_000, 64, false);
    let options = HostOptions { per_thread: 128, ..HostOptions::default() };
    let time = drive(&mut memory, requests.into_iter(), &options).unwrap().time;
    let counts = memory.dram_counts();
    let busy: Vec<Picos> = memory.bus_times().collect();
    assert!(busy.iter().all(|busy| busy.0 > 0 && *busy <= time), "{busy:?} in {time:?}");
    let bursts = counts.read_bursts + counts.write_bursts;
    assert_eq!(busy.into_iter().sum::<Picos>().0, bursts * dram.burst_span().0);
}

#[test]
fn no_bus_of_flatflash_or_its_baselines_is_busy_for_longer_than_the_run() {
    let registry = Registry::builtin().unwrap();
    let preset: Hierarchy = registry.get("hierarchy.p3700-32gib").unwrap();
    for mode in [AccessMode::Promote, AccessMode::Page, AccessMode::Stack] {
        let options = FlatOptions { memory: Bytes(4 << 20), cpu_cache: false, ..FlatOptions::default() };
        let mut memory = FlatMemory::new(&preset, mode, &options, 1).unwrap();
        let requests = storm(256 << 20, 100_000, 64, false);
        let host = HostOptions { threads: 64, ..HostOptions::default() };
        let time = drive(&mut memory, requests.into_iter(), &host).unwrap().time;
        let busy = memory.busy_times();
        let buses = [busy.link_to_host, busy.link_to_drive];
        // Little is promoted, so some channels of DRAM may have nothing to do.
        assert!(busy.dram.iter().any(|bus| bus.0 > 0), "{mode:?}: {busy:?}");
        assert!(buses.iter().chain(&busy.flash).all(|bus| bus.0 > 0), "{mode:?}: {busy:?}");
        for bus in buses.iter().chain(&busy.dram).chain(&busy.flash) {
            assert!(*bus <= time, "{mode:?}: {busy:?} in {time:?}");
        }
        let counts = memory.flat_counts();
        for (bus, bytes) in buses.iter().zip([counts.link_bytes_to_host, counts.link_bytes_to_drive]) {
            let (least, lines) = (preset.link.occupancy(Bytes(bytes)).0, bytes / 64);
            // The time of a line or a page is rounded to whole picoseconds.
            assert!(bus.0.abs_diff(least) <= lines, "{mode:?}: {bytes} bytes take {bus:?}, not {least} ps");
        }
    }
}
