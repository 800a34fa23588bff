//! Times, energies and wear against arithmetic written out in the tests.

use deepram_media::*;
use proptest::prelude::*;

fn registry() -> Registry {
    Registry::builtin().unwrap_or_else(|error| panic!("{error}"))
}

fn nand(name: &str, overrides: &[&str]) -> Nand {
    registry().get_with(name, overrides).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_single_read_program_and_erase_take_array_plus_bus_time() {
    let slc = nand("slc", &[]);
    // 4 KiB at 2.5 ns a byte = 10.24 us.
    assert_eq!(slc.page_transfer(), Picos(10_240_000));
    assert_eq!(slc.idle_latency(NandOp::Read, 1), Picos(35_240_000));
    assert_eq!(slc.idle_latency(NandOp::Program, 1), Picos(210_240_000));
    assert_eq!(slc.idle_latency(NandOp::Erase, 1), Picos(1_500_000_000));
    // An 8 KiB page: 20.48 us.
    assert_eq!(nand("slc", &["page=8KiB"]).page_transfer(), Picos(20_480_000));
}

#[test]
fn a_multi_plane_operation_overlaps_the_arrays_and_queues_the_transfers() {
    let slc = nand("slc", &[]);
    assert_eq!(slc.idle_latency(NandOp::Read, 2), Picos(25_000_000 + 2 * 10_240_000));
    assert_eq!(slc.idle_latency(NandOp::Program, 2), Picos(200_000_000 + 2 * 10_240_000));
    assert_eq!(slc.idle_latency(NandOp::Erase, 2), Picos(1_500_000_000));
}

#[test]
fn mqsim_flash_charges_its_command_cycles_too() {
    let flash = nand("mqsim", &[]);
    let ns = Picos::from_ns;
    assert_eq!(flash.idle_latency(NandOp::Read, 1), ns(290 + 75_000 + 30 + 24_576));
    assert_eq!(flash.idle_latency(NandOp::Read, 2), ns(940 + 75_000 + 610 + 2 * 24_576));
    assert_eq!(flash.idle_latency(NandOp::Program, 1), ns(361 + 24_576 + 750_000));
    assert_eq!(flash.idle_latency(NandOp::Program, 2), ns(1_177 + 2 * 24_576 + 750_000));
    assert_eq!(flash.idle_latency(NandOp::Erase, 1), ns(220 + 3_800_000));
    assert_eq!(flash.idle_latency(NandOp::Erase, 2), ns(920 + 3_800_000));
}

/// Simulates two registers, one array and one bus, page by page.
fn two_registers(op: NandOp, pages: u64, bus: u64, array: u64) -> u64 {
    let (mut bus_free, mut array_free) = (0u64, 0u64);
    let mut register_free = [0u64; 2];
    for page in 0..pages {
        let register = &mut register_free[(page % 2) as usize];
        if op == NandOp::Read {
            array_free = array_free.max(*register) + array;
            bus_free = bus_free.max(array_free) + bus;
            *register = bus_free;
        } else {
            bus_free = bus_free.max(*register) + bus;
            array_free = array_free.max(bus_free) + array;
            *register = array_free;
        }
    }
    bus_free.max(array_free)
}

proptest! {
    #[test]
    fn the_two_register_formula_is_what_two_registers_do(
        pages in 0u64..40, read_ns in 1u64..100_000, program_ns in 1u64..2_000_000, rate in 10u64..2_000,
    ) {
        let flash = nand("slc", &[
            &format!("read={read_ns}ns"), &format!("program={program_ns}ns"), &format!("bus_rate={rate}MT/s"),
        ]);
        let bus = flash.page_transfer().0;
        for (op, array) in [(NandOp::Read, flash.read.0), (NandOp::Program, flash.program.0)] {
            prop_assert_eq!(flash.interleaved_time(op, pages).0, two_registers(op, pages, bus, array));
        }
        prop_assert_eq!(flash.interleaved_time(NandOp::Read, 1), flash.idle_latency(NandOp::Read, 1));
    }

    #[test]
    fn transfers_add_up_to_the_bandwidth(bytes in 1u64..1 << 40, lanes in 1u64..17) {
        let link: Link = registry()
            .get_with("link.pcie3-x1", &[&format!("lanes={lanes}")])
            .unwrap();
        let exact = bytes as f64 * 130.0 * 1e12 / (lanes as f64 * 8e9 * 128.0 / 8.0);
        let exact = exact.max(1.0);
        prop_assert!((link.occupancy(Bytes(bytes)).0 as f64 - exact).abs() <= 0.5 + exact * 1e-12);
    }
}

#[test]
fn a_saturated_channel_moves_what_the_bus_moves_and_a_lone_die_what_its_cycle_allows() {
    let slc = nand("slc", &[]);
    let bus = 1.0 / 10.24e-6;
    // A read takes 25 + 10.24 us: four dies would need 40.96 us of bus time in each 35.24 us.
    assert!((slc.throughput(NandOp::Read, 4) - bus).abs() < 1e-6 * bus);
    assert!((slc.throughput(NandOp::Read, 1) - 1.0 / 35.24e-6).abs() < 1e-3);
    assert!((slc.throughput(NandOp::Read, 3) - 3.0 / 35.24e-6).abs() < 1e-2);
    // Two registers hide the transfer behind the array.
    assert!((slc.throughput_interleaved(NandOp::Read, 1) - 1.0 / 25e-6).abs() < 1e-3);
    assert!((slc.throughput_interleaved(NandOp::Program, 100) - bus).abs() < 1e-6 * bus);
    assert!((bus * 4096.0 - 400e6).abs() < 1.0);
}

#[test]
fn dram_latency_is_the_sum_of_the_commands_that_the_row_state_needs() {
    let ddr3: Dram = registry().get("ddr3-1600").unwrap();
    // CL 13.75 + burst 5; tRCD and tRP 13.75 each.
    assert_eq!(ddr3.access(RowState::Hit, false), Picos(18_750));
    assert_eq!(ddr3.access(RowState::Closed, false), Picos(32_500));
    assert_eq!(ddr3.access(RowState::Conflict, false), Picos(46_250));
    // CWL 10.
    assert_eq!(ddr3.access(RowState::Hit, true), Picos(15_000));
    assert_eq!(ddr3.row_cycle(), Picos(48_750));
    // 64 B a burst, 16 bursts for 1 KiB.
    assert_eq!(ddr3.stream(RowState::Closed, false, Bytes(1024)), Picos(32_500 + 15 * 5_000));
    assert_eq!(ddr3.stream(RowState::Hit, false, Bytes(0)), Picos(0));
    assert_eq!(ddr3.total_capacity(), Bytes(8 << 30));
    let ddr4: Dram = registry().get("ddr4-2400").unwrap();
    assert_eq!(ddr4.access(RowState::Closed, false), Picos(2 * 16 * 833 + 3_333));
    assert_eq!(ddr4.total_capacity(), Bytes(8 << 30));
}

#[test]
fn dram_refresh_takes_its_share_of_time_and_power_in_proportion_to_capacity() {
    let d: Dram = registry().get("ddr3-1600").unwrap();
    assert!((d.refresh_share() - 260.0 / 7800.0).abs() < 1e-12);
    assert!((d.refresh_wait() - 260_000.0 / 7800.0 * 260.0 / 2.0).abs() < 1e-6);
    // (235 - 38) mA x 1.35 V x 8 devices x 260 ns.
    assert!((d.refresh_energy().0 - 0.197 * 1.35 * 8.0 * 260_000.0).abs() < 1e-6);
    let small = d.refresh_power(d.ranks_for(Bytes(8 << 30))).0;
    let large = d.refresh_power(d.ranks_for(Bytes(1 << 40))).0;
    assert!((large / small - 128.0).abs() < 1e-9);
    // NVMM paper: a terabyte of DRAM needs nearly 100 W without power-down, and less with it.
    let ranks = d.ranks_for(Bytes(1 << 40));
    assert_eq!(ranks, 256);
    let awake = d.background_power(Background::Standby, ranks).0;
    let asleep = d.background_power(Background::PowerDown, ranks).0;
    assert!((90.0..=120.0).contains(&awake), "{awake}");
    assert!(asleep < 100.0 && asleep < awake, "{asleep}");
}

#[test]
fn dram_operations_cost_what_their_currents_exceed_standby_by() {
    let d: Dram = registry().get("ddr3-1600").unwrap();
    // mA x V x ns = pJ, eight devices.
    let row = (55.0 * 48.75 - 38.0 * 35.0 - 32.0 * 13.75) * 1.35 * 8.0;
    assert!((d.row_energy().0 - row).abs() < 1e-6, "{} {row}", d.row_energy().0);
    assert!((d.burst_energy(false).0 - (157.0 - 38.0) * 1.35 * 5.0 * 8.0).abs() < 1e-6);
    assert!((d.burst_energy(true).0 - (125.0 - 38.0) * 1.35 * 5.0 * 8.0).abs() < 1e-6);
    let own = d.background_power(Background::SelfRefresh, 1).0;
    assert!((own - 1.35 * 0.020 * 8.0).abs() < 1e-12);
}

#[test]
fn links_move_bytes_at_rate_times_line_code() {
    let r = registry();
    let link = |name: &str| r.get::<Link>(name).unwrap();
    assert_eq!(link("disksim-pcie-x8").transfer(Bytes(4096)), Picos(8 * 238_400));
    assert_eq!(link("disksim-pcie-x8").transfer(Bytes(513)), Picos(2 * 238_400));
    assert_eq!(link("disksim-sata-300").transfer(Bytes(512)), Picos(1_627_600));
    assert_eq!(link("onfi-400").transfer(Bytes(4096)), Picos(10_240_000));
    assert_eq!(link("onfi-800").transfer(Bytes(4096)), Picos(5_120_000));
    assert_eq!(link("ddr3-1600").transfer(Bytes(64)), Picos(5_000));
    assert_eq!(link("sata-3").transfer(Bytes(300)), Picos(1_000_000));
    assert_eq!(link("pcie1-x4").transfer(Bytes(1000)), Picos(1_000_000));
    // 16 lanes x 8 GT/s x 128/130: 15.754 GB/s.
    assert_eq!(link("pcie3-x16").transfer(Bytes(16 << 10)), Picos(1_040_000));
    assert_eq!(link("mqsim-pcie-x4").transfer(Bytes(4096)), Picos(1_024_000));
    assert_eq!(link("pcie5-x16").transfer(Bytes(0)), Picos(0));
}

#[test]
fn pcie_doubles_with_each_generation_and_each_lane_doubling() {
    let r = registry();
    for generation in 1..=5 {
        for lanes in [1u64, 2, 4, 8, 16] {
            let link: Link = r.get(&format!("pcie{generation}-x{lanes}")).unwrap();
            let per_lane = [0.25e9, 0.5e9, 8e9 / 8.0, 2e9, 4e9][generation - 1];
            let code = if generation < 3 { 1.0 } else { 128.0 / 130.0 };
            let expected = per_lane * code * lanes as f64;
            assert!((link.payload_bandwidth().0 - expected).abs() < 1.0);
        }
    }
}

#[test]
fn a_disk_seeks_turns_and_transfers() {
    let d: Disk = registry().get("ultrastar-15k450").unwrap();
    assert_eq!(d.rotational_latency(), Picos::from_us(2_000));
    let read = d.random(Bytes(120_000), false);
    assert_eq!(read, Picos::from_us(100 + 3_300 + 2_000 + 1_000));
    assert_eq!(d.random(Bytes(0), true), Picos::from_us(100 + 3_800 + 2_000));
    assert_eq!(d.sequential(Bytes(120_000)), Picos::from_us(1_100));
    let ide: Disk = registry().get("flash-cache-ide").unwrap();
    assert_eq!(ide.position(true), Picos::from_us(4_200));
    // 1 s with 0.2 s of seeks and 0.3 s of transfers: 12.5 x .2 + 12 x .3 + 7.5 x .5.
    let s = 1_000_000_000_000;
    let e = ide.energy(Picos(s), Picos(s / 5), Picos(s * 3 / 10));
    assert!((e.joules() - 9.85).abs() < 1e-9);
}

#[test]
fn energy_is_operations_times_cost_plus_leakage_times_time() {
    let slc = nand("slc", &[]);
    // 3.3 V x 15 mA x 25 us, 3.3 V x 35 mA x 200 us and x 1.5 ms.
    assert!((slc.energy(NandOp::Read).0 - 1_237_500.0).abs() < 1e-3);
    assert!((slc.energy(NandOp::Program).0 - 23_100_000.0).abs() < 1e-3);
    assert!((slc.energy(NandOp::Erase).0 - 173_250_000.0).abs() < 1e-2);
    assert!((slc.standby_power().0 - 3.3 * 0.08e-3).abs() < 1e-12);
    let a: Array = registry().get("hybrid-12-72-pcm").unwrap();
    // 1000 reads x .042 uJ + 100 writes x 11.049 uJ + (38.325 + 72 x .25) mW x 2 s.
    let e = a.energy(1000, 100, Picos(2_000_000_000_000));
    let expected = 1000.0 * 0.042e-6 + 100.0 * 11.049e-6 + 2.0 * 56.325e-3;
    assert!((e.joules() - expected).abs() < 1e-12, "{}", e.joules());
    let p: Pcm = registry().get("pcm-optimistic").unwrap();
    assert!((p.energy_of_read(Bytes(1)).0 - 512.0 * 2.0).abs() < 1e-9);
    assert!((p.energy_of_write(Bytes(64), 0.25).0 - 512.0 * (0.25 * 2.8 + 0.75 * 4.8)).abs() < 1e-9);
    assert_eq!(p.access(Bytes(65), true), Picos(300_000));
    assert_eq!(bit_energy(PicojoulesPerBit(2.0), Bytes(64)).0, 1024.0);
}

fn saving(config: &str, power: impl Fn(&Array) -> f64) -> f64 {
    let r = registry();
    let of = |name: String| power(&r.get::<Array>(&name).unwrap());
    let both = of(format!("hybrid-{config}-dram")) + of(format!("hybrid-{config}-pcm"));
    100.0 * (1.0 - both / of("hybrid-42-dram".into()))
}

#[test]
fn the_leakage_of_table_v_gives_the_savings_of_the_hybrid_cache() {
    for (config, cells, with_tags) in
        [("1-20", 83.7, 80.9), ("2-40", 71.1, 65.2), ("3-18", 69.9, 68.2), ("12-72", 2.9, -5.7)]
    {
        let bare = saving(config, |a| a.leakage.0);
        let tags = saving(config, |a| a.static_power().0);
        assert!((bare - cells).abs() < 0.05, "{config} {bare}");
        assert!((tags - with_tags).abs() < 0.05, "{config} {tags}");
    }
}

#[test]
fn pcm_and_flash_wear_evenly_at_the_published_split() {
    let r = registry();
    let flash: Nand = r.get("nand.hybrid").unwrap();
    // The paper says 512 GB, but its published split follows from the geometry's 512 GiB.
    let ssd: Ssd = r.get("ssd.hybrid").unwrap();
    for (config, low, high) in [
        ("12-72", 351, 92),
        ("6-36", 417, 156),
        ("4-80", 339, 84),
        ("3-18", 459, 239),
        ("2-40", 408, 145),
        ("1-20", 454, 225),
    ] {
        let pcm: Array = r.get(&format!("hybrid-{config}-pcm")).unwrap();
        for (endurance, expected) in [(10_000_000, low), (100_000_000, high)] {
            let ratio = endurance_ratio((pcm.size, endurance), (ssd.raw_bytes(), flash.endurance));
            let writes = ssd_writes(512, ratio).round() as i64;
            assert!((writes - expected).abs() <= 1, "{config} {endurance}: {writes}");
        }
    }
}

#[test]
fn lifetime_is_what_the_medium_bears_over_what_is_written_to_it() {
    // 1 GiB x 1000 cycles at 1 MiB/s doubled: 512,000 s; half of that with uneven wear.
    let mib = 1024.0 * 1024.0;
    assert_eq!(lifetime_seconds(Bytes(1 << 30), 1000, Bandwidth(mib), 2.0, 1.0), 512_000.0);
    assert_eq!(lifetime_seconds(Bytes(1 << 30), 1000, Bandwidth(mib), 2.0, 0.5), 256_000.0);
    assert_eq!(lifetime_seconds(Bytes(1 << 30), 1000, Bandwidth(0.0), 2.0, 1.0), f64::INFINITY);
    assert_eq!(endurance_ratio((Bytes(1), 1), (Bytes(0), 1)), 0.0);
    assert_eq!(ssd_writes(512, 0.0), 512.0);
}

#[test]
fn a_capacity_costs_its_price() {
    let d: Dram = registry().get("ddr4-2400").unwrap();
    let price = d.price.unwrap();
    assert!((price.per_gb() - 17.48).abs() < 1e-9);
    // FlatFlash: 512 GB cost 8,950 dollars.
    assert!((cost(Bytes(512_000_000_000), price) - 8_950.0).abs() < 1.0);
    assert!((total_cost(&[(Bytes(1_000_000_000), price)], 1_500.0) - 1_517.48).abs() < 1e-9);
    // FlatFlash, Table 3: saving, slowdown, effectiveness.
    for (saving, slowdown, effectiveness) in [
        (14.6, 8.9, 1.6),
        (14.6, 11.0, 1.3),
        (14.6, 6.9, 2.1),
        (15.0, 6.1, 2.5),
        (15.0, 5.5, 2.7),
        (2.4, 1.4, 1.7),
        (2.6, 1.9, 1.4),
        (4.5, 1.2, 3.8),
    ] {
        assert!((cost_effectiveness(saving, slowdown) - effectiveness).abs() <= 0.05 + 1e-9);
    }
}
