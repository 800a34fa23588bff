//! Tests of the protocol between the paging system and its driver: which thread holds a core, and when.

use deepram_core::units::Bytes;
use std::collections::HashMap;

use deepram_media::{Picos, Registry};
use proptest::prelude::*;

use super::*;
use crate::host::Event;
use deepram_trace::workload::Rng;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    Slept(Time),
    Resumed(Time, Time),
    Completed(Time),
}

fn machine(options: &PagingOptions, seed: u64) -> PagedMemory {
    let registry = Registry::builtin().unwrap();
    let ssd = registry.get_with(
        "paging-slc",
        &[
            "channels=2",
            "packages_per_channel=1",
            "nand.blocks_per_plane=64",
            "nand.capacity=32MiB",
            "raw_capacity=64MiB",
        ],
    );
    let dram = registry.get("dram.ddr3-1600").unwrap();
    let software = registry.get("software.linux-slc").unwrap();
    PagedMemory::new(&dram, &ssd.unwrap(), &software, options, &SsdOptions::default(), seed).unwrap()
}

/// Drives the system by hand with `threads` threads, each of which starts its next access when the last
/// one is complete. Checks the invariants at every event, and returns the driver calls that each access
/// caused.
fn run(machine: &mut PagedMemory, threads: u32, accesses: &[Command]) -> Vec<Vec<Seen>> {
    let mut context = Context::new();
    let mut left = accesses.iter().enumerate();
    let mut under_way: HashMap<Slot, usize> = HashMap::new();
    let mut seen = vec![Vec::new(); accesses.len()];
    let mut idle: Vec<Slot> = (0..threads).collect();
    // The pages that were dirty when a flush was requested: when it completes, the drive must have their
    // data or later ones.
    let mut promised: HashMap<Slot, Vec<(u32, u32)>> = HashMap::new();
    loop {
        while let Some(slot) = idle.pop() {
            let Some((number, access)) = left.next() else { break };
            under_way.insert(slot, number);
            if access.op == Op::Flush && !machine.swap {
                let pages =
                    machine.locations.resident().map(|(page, _)| (page, machine.locations.version(page)));
                promised.insert(slot, pages.collect());
            }
            machine.submit(slot, *access, &mut context).unwrap();
        }
        let now = context.now().0;
        for slot in std::mem::take(&mut context.asleep) {
            seen[under_way[&slot]].push(Seen::Slept(now));
        }
        for (slot, software) in std::mem::take(&mut context.resumed) {
            seen[under_way[&slot]].push(Seen::Resumed(now, software));
            context.queue.push(Picos(now + software), Event::Complete(slot));
        }
        for slot in std::mem::take(&mut context.done) {
            let number = under_way.remove(&slot).unwrap();
            let Command { offset, len, op } = accesses[number];
            seen[number].push(Seen::Completed(now));
            if op != Op::Flush && len > 0 {
                // Only the return from the operating system lies between the touch and this completion.
                assert!(machine.accesses[slot as usize].at == offset + len, "access {number} is not over");
            }
            for (page, version) in promised.remove(&slot).unwrap_or_default() {
                assert!(machine.locations.version_at(page) >= version, "page {page} is not on the drive");
            }
            idle.push(slot);
        }
        if !idle.is_empty() && left.len() > 0 {
            continue;
        }
        let Some((_, event)) = context.queue.pop() else { break };
        match event {
            Event::Device(event) => machine.handle(event, &mut context).unwrap(),
            Event::Complete(slot) => context.done.push(slot),
            _ => {}
        }
    }
    assert!(under_way.is_empty() && context.queue.late() == 0);
    machine.check().unwrap();
    seen
}

fn read(page: u64) -> Command {
    Command { op: Op::Read, offset: page * PAGE, len: 64 }
}

#[test]
fn a_fault_sleeps_once_after_the_doorbell_and_comes_back_with_switch_and_map_to_do() {
    let mut machine = machine(&PagingOptions { read_around: false, ..PagingOptions::default() }, 1);
    let costs: Software = Registry::builtin().unwrap().get("software.linux-slc").unwrap();
    let costs = costs.with_wait(Picos(0));
    machine.software = SoftwareTimer::new(&costs, 1);
    let seen = run(&mut machine, 1, &[read(100), read(100)]);
    let slept = costs.submission() + costs.switch_away;
    // 64 bursts at the pace of 5 ns, the last of which takes 50 ns; then the line.
    let filled = costs.submission().0 + machine.ssd.idle_read().0 + 63 * 5_000 + 50_000;
    let touched = filled + (costs.interrupt + costs.completion + costs.wake).0 + 50_000;
    let out = (costs.switch_back + costs.map).0;
    let expected = vec![Seen::Slept(slept.0), Seen::Resumed(touched, out), Seen::Completed(touched + out)];
    assert_eq!(seen[0], expected);
    assert_eq!(seen[1], [Seen::Completed(touched + out + 50_000)]);
}

#[test]
fn a_thread_that_polls_never_sleeps_over_its_read() {
    let options =
        PagingOptions { completion: Completion::Polling, read_around: false, ..PagingOptions::default() };
    let mut machine = machine(&options, 1);
    let accesses: Vec<Command> = (0..200).map(|n| read(n * 37 % 8000)).collect();
    for seen in run(&mut machine, 4, &accesses) {
        assert!(matches!(seen[..], [Seen::Completed(_)]), "{seen:?}");
    }
    assert_eq!(machine.paging_counts().major_faults, 200);
}

#[test]
fn threads_that_want_a_page_on_its_way_wait_for_the_one_read() {
    let mut machine = machine(&PagingOptions { read_around: false, ..PagingOptions::default() }, 1);
    run(&mut machine, 8, &[read(5000); 8]);
    let counts = machine.paging_counts();
    assert_eq!((counts.major_faults, counts.waiting_faults, counts.pages_read), (1, 7, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// `run` calls `check` for the conservation laws: versions, frames, one read for each fault, one
    /// write for each dirty page. This test adds that sleeping and waking pair up, whichever resource is
    /// short.
    #[test]
    fn who_sleeps_is_resumed_and_who_is_resumed_slept(
        seed in 0u64..1 << 32,
        frames in 8u64..80,
        threads in 1u32..20,
        swap: bool,
        polls: bool,
        span in 10u64..600,
        writes in 0u64..=10,
        runs in 0u64..=10,
        long in 1u64..4,
        cluster in 1u32..9,
        most in 0u32..33,
        limit in 0.05f64..0.5,
        queue in 1u64..40,
    ) {
        let options = PagingOptions {
            memory: Bytes(frames * PAGE),
            backing: if swap { Backing::Swap } else { Backing::File },
            completion: if polls { Completion::Polling } else { Completion::Interrupt },
            swap_cluster: cluster,
            readahead_most: most,
            read_around: seed.is_multiple_of(2),
            dirty_background: limit / 2.0,
            dirty_limit: limit,
            queue,
            ..PagingOptions::default()
        };
        let mut machine = machine(&options, seed);
        let mut random = Rng::new(seed, "workload");
        let mut at = 0;
        let accesses: Vec<Command> = (0..600).map(|_| {
            at = if random.below(10) < runs { at + 64 * (1 + random.below(70)) } else { random.below(span * PAGE) };
            at %= span * PAGE;
            let len = (1 + random.below(long * PAGE)).min(span * PAGE - at);
            match random.below(50) {
                0 => Command { op: Op::Flush, offset: 0, len: 0 },
                _ if random.below(10) < writes => Command { op: Op::Write, offset: at, len },
                _ => Command { op: Op::Read, offset: at, len },
            }
        }).collect();
        for (number, seen) in run(&mut machine, threads, &accesses).into_iter().enumerate() {
            let sound = match seen[..] {
                [Seen::Completed(_)] => true,
                [Seen::Slept(slept), Seen::Resumed(resumed, software), Seen::Completed(over)] =>
                    slept <= resumed && over == resumed + software,
                _ => false,
            };
            prop_assert!(sound, "access {}: {:?}", number, seen);
        }
        let counts = machine.paging_counts();
        prop_assert_eq!(counts.accesses, 600 - accesses.iter().filter(|a| a.len == 0 && a.op != Op::Flush).count() as u64);
        prop_assert_eq!(machine.counts().host_pages, counts.pages_written);
    }
}
