use super::*;
use crate::step::tests::{Area, call_of, end};

/// Figures that no machine has: every line beyond the first-level cache is a miss, or none is.
const MACHINE: Machine = Machine {
    ticks_per_ms: 2_600_000,
    probe_ticks: 0,
    cycle_ps: 300,
    near_ps: 1,
    memory_ps: 100_000,
    thread_line_ps: 6_000,
    thread_copy_ps: 4_000,
    line_ps: 3_000,
};

extern "C" fn chase(mut at: *const u64, count: u64, _: u64) -> u64 {
    for _ in 0..count {
        // SAFETY: each word is the address of another.
        at = unsafe { std::ptr::with_exposed_provenance(at.read_volatile() as usize) };
    }
    at.addr() as u64
}

/// A cycle through lines that are far apart.
fn cycle(lines: usize) -> Vec<u64> {
    const APART: usize = 8 * 67;
    let mut words = vec![0_u64; lines * APART];
    let start = words.as_ptr().expose_provenance();
    for line in 0..lines {
        words[line * APART] = (start + (line + 1) % lines * APART * 8) as u64;
    }
    words
}

fn window(machine: Machine, read_ps: u64, loads: u64) -> (Option<WindowCost>, Registers) {
    let words = cycle(5000);
    let mut stack = vec![0_u64; 1 << 16];
    let start = words.as_ptr().expose_provenance() as u64;
    let mut registers = call_of(chase as *const () as usize, [start, loads, 0], &mut stack);
    let (mut sampler, mut area) = (Sampler::new(machine, read_ps).expect("a page"), Area::new());
    // SAFETY: the registers are those of a call of the function.
    (unsafe { sampler.window(&mut registers, area.state()) }, registers)
}

#[test]
fn each_read_of_a_chase_through_memory_takes_longer_by_the_difference_of_the_latencies() {
    let machine = Machine { memory_ps: 2, ..MACHINE };
    let (cost, _) = window(machine, 300_002, 1_000_000);
    let cost = cost.expect("a long loop");
    let (lines, longer) = (cost.bytes / LINE_BYTES, cost.emulated_ps - cost.dram_ps);
    assert!(lines >= 100, "{cost:?}");
    // The read under way when the window begins, and the one when it ends, count in part.
    assert!(longer.abs_diff(lines * 300_000) <= 2 * 300_000, "{cost:?}");
}

#[test]
fn a_read_from_memory_takes_longer_and_a_line_of_the_third_level_keeps_its_proportion() {
    let sampler = Sampler::new(MACHINE, 300_000).expect("a page");
    // The machine's memory takes 100 ns: 120 is a busy one, 40 a line of the third level.
    assert_eq!([100_000, 120_000, 40_000].map(|ps| sampler.emulated_ps(ps)), [300_000, 320_000, 120_000]);
}

#[test]
fn a_chase_that_hits_the_caches_is_not_slowed_down() {
    let near = Machine { near_ps: FAULT_PS, memory_ps: FAULT_PS, ..MACHINE };
    let (cost, _) = window(near, 2 * FAULT_PS, 1_000_000);
    let cost = cost.expect("a long loop");
    assert_eq!((cost.emulated_ps, cost.bytes), (cost.dram_ps, 0));
}

#[test]
fn a_window_that_ends_early_leaves_the_thread_where_it_ended() {
    let (cost, registers) = window(MACHINE, 300_000, 3);
    assert_eq!(cost, None);
    assert_eq!(registers.rip, end(), "the function has returned");
}
