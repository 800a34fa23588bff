//! Times of an otherwise idle device against the closed forms of its preset.

use deepram_media::{Dram, NandOp, Registry, RowState, Ssd};
use deepram_sim::dram::DramMemory;
use deepram_sim::host::{HostOptions, HostResult, drive};
use deepram_sim::ssd::{ParallelSsd, SerialSsd, SsdOptions};
use deepram_sim::{RunOptions, SimError, System, SystemConfig, run};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

fn request(time_ps: Option<u64>, offset: u64, len: u64, op: Op) -> Result<Request, SimError> {
    Ok(Request { time_ps, device: 0, offset, len, op })
}

/// A drive without write cache, data cache and static wear levelling.
fn drive_of(overrides: &[&str]) -> Ssd {
    let mut all = vec!["write_cache=false", "data_cache=0B", "static_wear_levelling=false"];
    all.extend_from_slice(overrides);
    Registry::builtin().unwrap().get_with("mqsim-s8", &all).unwrap()
}

fn measure(ssd: &Ssd, requests: Vec<Result<Request, SimError>>, depth: u32) -> HostResult {
    let mut device = ParallelSsd::new(ssd, &SsdOptions::default(), 1).unwrap();
    let options = HostOptions { per_thread: depth, ..HostOptions::default() };
    drive(&mut device, requests.into_iter(), &options).unwrap()
}

#[test]
fn a_single_read_and_a_single_program_take_the_idle_time_of_the_drive() {
    let ssd = drive_of(&[]);
    let page = ssd.nand.page.0;
    let write = measure(&ssd, vec![request(None, 0, page, Op::Write)], 1);
    assert_eq!(write.time.0, ssd.idle_program().0);
    let both = measure(&ssd, vec![request(None, 0, page, Op::Write), request(None, 0, page, Op::Read)], 1);
    assert_eq!(both.time.0, ssd.idle_program().0 + ssd.idle_read().0);
}

#[test]
fn two_planes_of_a_die_take_the_time_of_one_multi_plane_command() {
    // Pages are allocated plane first: with only one die, pages 2n and 2n + 1 are in the die's two planes.
    let one = ["spread=pcwd", "channels=1", "packages_per_channel=1", "raw_capacity=1GiB"];
    let ssd = drive_of(&one);
    let page = ssd.nand.page.0;
    // The first page's command is sent before the second page is known, so both are programmed alone. The last two
    // pages have the same page number in their planes, and share a multi-plane command.
    let pair = |n: u64| request(None, n * 2 * page, 2 * page, Op::Write);
    let measured = measure(&ssd, vec![pair(0), pair(1)], 2);
    let link = ssd.link.transfer(deepram_media::Bytes(2 * page)).0;
    let expected =
        link + 2 * ssd.nand.idle_latency(NandOp::Program, 1).0 + ssd.nand.idle_latency(NandOp::Program, 2).0;
    assert_eq!((measured.time.0, measured.counts.multi_plane), (expected, 1));
}

#[test]
fn packages_of_one_channel_take_turns_on_the_bus_and_work_side_by_side() {
    let ssd = drive_of(&["spread=wcdp", "channels=1", "packages_per_channel=4", "raw_capacity=4GiB"]);
    let page = ssd.nand.page.0;
    let write = measure(&ssd, vec![request(None, 0, 4 * page, Op::Write)], 1);
    let link = ssd.link.transfer(deepram_media::Bytes(4 * page)).0;
    let bus = (ssd.nand.command_time(NandOp::Program, 1) + ssd.nand.data_time(NandOp::Program, 1)).0;
    assert_eq!(write.time.0, link + 4 * bus + ssd.nand.program.0);
    // Reads take one command time, as the four arrays work in parallel; the four data transfers follow one another.
    let all = vec![request(None, 0, 4 * page, Op::Write), request(None, 0, 4 * page, Op::Read)];
    let both = measure(&ssd, all, 1);
    let (command, data) = (ssd.nand.command_time(NandOp::Read, 1).0, ssd.nand.data_time(NandOp::Read, 1).0);
    let read = command + ssd.nand.read.0 + 4 * data + link;
    assert_eq!(both.time.0 - write.time.0, read);
}

#[test]
fn dies_of_a_package_work_side_by_side_unless_the_package_works_on_one_at_a_time() {
    let two = ["spread=cdwp", "channels=1", "packages_per_channel=1", "nand.dies=2", "raw_capacity=2GiB"];
    let time = |units: &str| {
        let ssd = drive_of(&[&two[..], &[units]].concat());
        let page = ssd.nand.page.0;
        (measure(&ssd, vec![request(None, 0, 2 * page, Op::Write)], 1).time.0, ssd)
    };
    let (together, ssd) = time("parallel_units=2");
    let link = ssd.link.transfer(deepram_media::Bytes(2 * ssd.nand.page.0)).0;
    let bus = (ssd.nand.command_time(NandOp::Program, 1) + ssd.nand.data_time(NandOp::Program, 1)).0;
    assert_eq!(together, link + 2 * bus + ssd.nand.program.0);
    assert_eq!(time("parallel_units=1").0, link + 2 * (bus + ssd.nand.program.0));
}

#[test]
fn a_second_register_hides_the_transfer_behind_the_array_or_the_array_behind_the_transfer() {
    let one = ["channels=1", "packages_per_channel=1", "nand.planes=1", "raw_capacity=512MiB"];
    let time = |registers: &str, op: Op| {
        let ssd = drive_of(&[&one[..], &[registers]].concat());
        let page = ssd.nand.page.0;
        (measure(&ssd, vec![request(None, 0, 8 * page, op)], 1).time.0, ssd)
    };
    let (single, ssd) = time("nand.registers=1", Op::Write);
    let link = ssd.link.transfer(deepram_media::Bytes(8 * ssd.nand.page.0)).0;
    let bus_in = (ssd.nand.command_time(NandOp::Program, 1) + ssd.nand.data_time(NandOp::Program, 1)).0;
    let program = ssd.nand.program.0;
    assert!(bus_in < program);
    assert_eq!(single, link + 8 * (bus_in + program));
    // The next page's data are transferred while the array works, so only the first transfer adds time.
    assert_eq!(time("nand.registers=2", Op::Write).0, link + bus_in + 8 * program);
    let (command, data) = (ssd.nand.command_time(NandOp::Read, 1).0, ssd.nand.data_time(NandOp::Read, 1).0);
    let read = ssd.nand.read.0;
    assert!(command + data < read);
    assert_eq!(time("nand.registers=1", Op::Read).0, link + 8 * (command + read + data));
    // While the array works, the next command is sent and the previous page's data are transferred.
    assert_eq!(time("nand.registers=2", Op::Read).0, link + command + 8 * read + data);
}

#[test]
fn two_registers_need_dies_that_work_by_themselves() {
    let ssd = drive_of(&["nand.dies=2", "parallel_units=1", "nand.registers=2", "raw_capacity=16GiB"]);
    let error = ParallelSsd::new(&ssd, &SsdOptions::default(), 1).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("set parallel_units to 2")), "{error:?}");
}

#[test]
fn a_saturated_channel_moves_what_its_bus_can() {
    // Many packages with fast arrays on one channel: the bus is the limit.
    let ssd = drive_of(&[
        "channels=1",
        "packages_per_channel=16",
        "nand.read=5us",
        "link.rate=800GT/s",
        "raw_capacity=16GiB",
    ]);
    let page = ssd.nand.page.0;
    let mut random = Rng::new(3, "test");
    let pages = ssd.host_bytes().0 / page;
    let reads: Vec<_> =
        (0..40_000).map(|_| request(None, random.below(pages) * page, page, Op::Read)).collect();
    let measured = measure(&ssd, reads, 256);
    let bus = (ssd.nand.command_time(NandOp::Read, 1) + ssd.nand.data_time(NandOp::Read, 1)).0 as f64 * 1e-12;
    let share = measured.requests_per_s * bus;
    assert!((0.99..=1.001).contains(&share), "{share} of the bus");
}

#[test]
fn poisson_reads_of_one_element_wait_as_in_an_m_d_1_queue() {
    // The drive has one element with a fixed service time, and the link takes no time.
    let ssd: Ssd = Registry::builtin()
        .unwrap()
        .get_with(
            "disksim-ssd",
            &["channels=1", "queue=1000000", "link.block_time=1ps", "nand.blocks_per_plane=64"],
        )
        .unwrap();
    let service = (ssd.nand.read.0 + ssd.nand.page_transfer().0) as f64;
    for load in [0.3, 0.5, 0.7] {
        let mut random = Rng::new(11, "test");
        let mut now = 0.0;
        let requests = (0..3_000_000u64).map(|_| {
            now += -(1.0 - random.unit()).ln() * service / load;
            request(Some(now as u64), 0, 4096, Op::Read)
        });
        let mut device = SerialSsd::new(&ssd).unwrap();
        let measured = drive(&mut device, requests, &HostOptions::default()).unwrap();
        // Pollaczek-Khinchine with constant service: W = rho S / 2 (1 - rho).
        let wait = load * service / (2.0 * (1.0 - load));
        let found = measured.response.mean_ns * 1e3 - service;
        assert!((found / wait - 1.0).abs() < 0.01, "load {load}: {found} instead of {wait}");
    }
}

#[test]
fn a_read_suspends_an_erase_only_where_it_may() {
    let ssd = drive_of(&[
        "channels=1",
        "packages_per_channel=1",
        "nand.planes=1",
        "nand.blocks_per_plane=16",
        "raw_capacity=16MiB",
    ]);
    let page = ssd.nand.page.0;
    let pages = ssd.host_bytes().0 / page;
    let mut random = Rng::new(5, "test");
    let requests: Vec<_> = (0..20_000)
        .map(|n| {
            request(
                Some(n * 1_500_000_000),
                random.below(pages * 3 / 5) * page,
                page,
                if n % 4 == 0 { Op::Read } else { Op::Write },
            )
            .unwrap()
        })
        .collect();
    let count = |suspend| {
        let options = SsdOptions { suspend_erases: suspend, ..SsdOptions::default() };
        let mut device = ParallelSsd::new(&ssd, &options, 1).unwrap();
        let measured = drive(&mut device, requests.iter().copied().map(Ok), &HostOptions::default()).unwrap();
        (measured.counts.suspensions, measured.read.mean_ns)
    };
    let (never, plain) = count(false);
    let (often, suspended) = count(true);
    assert_eq!(never, 0);
    assert!(often > 0 && suspended < plain, "{often} suspensions, {suspended} ns instead of {plain} ns");
}

#[test]
fn energy_is_operations_times_cost_plus_standby_times_time() {
    let registry = Registry::builtin().unwrap();
    let mut config = SystemConfig::new(System::Ssd);
    config.preset = "mqsim-s8".into();
    let ssd: Ssd = registry.get("mqsim-s8").unwrap();
    let page = ssd.nand.page.0;
    let mut random = Rng::new(5, "test");
    let requests: Vec<_> = (0..5_000)
        .map(|n| {
            request(None, random.below(100_000) * page, page, if n % 2 == 0 { Op::Read } else { Op::Write })
        })
        .collect();
    let result = run(&registry, &config, requests.into_iter(), &RunOptions::default()).unwrap();
    let flash = result.flash.as_ref().unwrap();
    let expected = (ssd.nand.energy(NandOp::Read).0 * flash.reads as f64
        + ssd.nand.energy(NandOp::Program).0 * flash.programs as f64
        + ssd.nand.energy(NandOp::Erase).0 * flash.erases as f64
        + ssd.nand.standby_power().0 * ssd.packages() as f64 * result.simulated_time_ns * 1e3)
        / 1e3;
    assert!((result.energy_total_nj / expected - 1.0).abs() < 1e-12);
    let powers: f64 = result.energy.iter().map(|part| part.mean_power_mw).sum();
    assert!((powers / (expected / result.simulated_time_ns * 1e3) - 1.0).abs() < 1e-12, "{powers} mW");
}

#[test]
fn energy_of_dram_is_its_components() {
    let registry = Registry::builtin().unwrap();
    let dram: Dram = registry.get("ddr4-2400").unwrap();
    let burst = dram.burst_bytes().0;
    let mut random = Rng::new(5, "test");
    let requests: Vec<_> = (0..5_000)
        .map(|n| {
            let op = if n % 3 == 0 { Op::Read } else { Op::Write };
            request(Some(n * 100_000), random.below(1 << 20) * burst, burst, op)
        })
        .collect();
    let config = SystemConfig::new(System::Dram);
    let result = run(&registry, &config, requests.into_iter(), &RunOptions::default()).unwrap();
    let counts = result.dram.unwrap();
    let part = |name: &str| result.energy.iter().find(|part| part.component == name).unwrap();
    let expected = |energy: f64| energy / 1e3;
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
    near(part("dram read bursts").dynamic_nj, expected(1667.0 * dram.burst_energy(false).0));
    near(part("dram write bursts").dynamic_nj, expected(3333.0 * dram.burst_energy(true).0));
    near(part("dram rows").dynamic_nj, expected(counts.activations as f64 * dram.row_energy().0));
    let time_ps = result.simulated_time_ns * 1e3;
    let ranks = dram.total_ranks();
    near(part("dram refresh").static_nj, expected(dram.refresh_power(ranks).0 * time_ps));
    let all = dram.background_power(deepram_media::Background::Active, ranks).0 * time_ps;
    near(part("dram background").static_nj + part("dram refresh").static_nj, expected(all));
}

#[test]
fn a_lone_dram_access_takes_the_time_of_its_row_state() {
    let dram: Dram = Registry::builtin().unwrap().get("ddr4-2400").unwrap();
    let burst = dram.burst_bytes().0;
    let closed = dram.access(RowState::Closed, false).0;
    let hit = dram.access(RowState::Hit, false).0;
    let conflict = dram.access(RowState::Conflict, false).0;
    // The requests are so far apart that they do not overlap, and all come before the first refresh.
    let far = 500_000;
    let row = burst * dram.channels * (dram.row_bytes().0 / burst) * dram.banks * dram.ranks;
    let requests = vec![
        request(Some(0), 0, burst, Op::Read),
        request(Some(far), burst * dram.channels, burst, Op::Read),
        request(Some(2 * far), row, burst, Op::Read),
    ];
    let mut memory = DramMemory::new(&dram).unwrap();
    let measured = drive(&mut memory, requests.into_iter(), &HostOptions::default()).unwrap();
    let mean = (closed + hit + conflict) as f64 / 3.0 / 1e3;
    assert!((measured.response.mean_ns - mean).abs() < 1e-9, "{} {mean}", measured.response.mean_ns);
    assert_eq!((memory.dram_counts().row_hits, memory.dram_counts().activations), (1, 2));
}
