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
fn a_chase_through_memory_is_slowed_down_by_the_ratio_of_the_latencies() {
    let (cost, _) = window(MACHINE, 300_000, 1_000_000);
    let cost = cost.expect("a long loop");
    let ratio = cost.emulated_ps as f64 / cost.dram_ps as f64;
    assert!((2.5..=3.0).contains(&ratio), "{cost:?}");
    assert!(cost.bytes >= 100 * LINE_BYTES, "{cost:?}");
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
