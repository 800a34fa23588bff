//! The processor front against closed forms and a reference model of its instruction window, on devices simple
//! enough to be correct by inspection.

use deepram_media::{Bytes, Picos, Processor, Registry, RowState};
use deepram_sim::dram::DramMemory;
use deepram_sim::processor::{
    LINE_BYTES, ProcessorOptions, ProcessorResult, ThreadReferences, ThreadResult, ThreadStep, execute,
    execute_with_faults, memory_references, warm_up_first, workload_threads,
};
use deepram_trace::workload::Rng;
use deepram_trace::{MemRef, MemoryAccess, ObjectPlacement, Op, ReadOptions, TraceReader};
use fake::{Chaos, Fake};
use proptest::prelude::*;

pub(crate) mod fake;

/// One core without a cache, with one instruction per nanosecond and limits that are never reached.
fn plain() -> ProcessorOptions {
    let processor: Processor = Registry::builtin().unwrap().get("nvmm-host").unwrap();
    ProcessorOptions {
        cores: 1,
        cycle: Picos(1000),
        width: 1,
        llc: Bytes(0),
        llc_hit_cycles: 10,
        mshrs: 1 << 20,
        window: 1 << 20,
        write_buffer: 1 << 20,
        quantum: Picos(1 << 50),
        ..ProcessorOptions::new(&processor).unwrap()
    }
}

fn reference(gap: u32, line: u64, access: MemoryAccess) -> MemRef {
    MemRef { gap, addr: line * LINE_BYTES, size: 8, access }
}

fn thread(references: Vec<MemRef>) -> ThreadReferences<'static> {
    steps(references.into_iter().map(ThreadStep::Access).collect())
}

fn steps(steps: Vec<ThreadStep>) -> ThreadReferences<'static> {
    Box::new(steps.into_iter().map(Ok))
}

/// Makes loads, each of a different line.
fn loads(gaps: impl IntoIterator<Item = u32>, base: u64) -> ThreadReferences<'static> {
    let all = gaps.into_iter().zip(base..).map(|(gap, line)| reference(gap, line, MemoryAccess::Load));
    thread(all.collect())
}

fn one(device: &mut Fake, references: Vec<MemRef>, options: &ProcessorOptions) -> ProcessorResult {
    execute(device, vec![thread(references)], options).unwrap()
}

#[test]
fn dependent_loads_take_their_gaps_and_latencies() {
    let options = ProcessorOptions { blocking: true, ..plain() };
    let mut device = Fake::stalling(70_500);
    let run = execute(&mut device, vec![loads([3, 1, 40, 7], 0)], &options).unwrap();
    assert_eq!(run.time.0, 51_000 + 4 * 70_500);
    assert_eq!((run.instructions, run.references, run.lines.misses), (51, 4, 4));
    let [computing, stalled, software, asleep, runnable] = run.time_shares().map(|s| s * run.time.0 as f64);
    assert!((computing - 51_000.0).abs() < 1e-6 && (stalled - 282_000.0).abs() < 1e-6);
    assert_eq!((software, asleep, runnable), (0.0, 0.0, 0.0));
    assert!((run.ipc - 51.0 / (333_000.0 / 1000.0)).abs() < 1e-12);
}

#[test]
fn fractions_of_a_picosecond_are_carried_from_reference_to_reference() {
    // 3 instructions a cycle of 1000 ps: 333 1/3 ps each.
    let options = ProcessorOptions { width: 3, llc: Bytes(1 << 20), llc_hit_cycles: 0, ..plain() };
    let stores: Vec<MemRef> = (0..3001).map(|_| reference(1, 5, MemoryAccess::Store)).collect();
    let run = one(&mut Fake::stalling(1), stores, &options);
    assert_eq!(run.time.0, 3001 * 1000 / 3);
}

/// A reference model, instruction by instruction: the times of issue, of a load's data, and of retirement.
fn scoreboard(gaps: &[u32], latency: u64, options: &ProcessorOptions) -> u64 {
    let (window, mshrs) = (options.window, options.mshrs as usize);
    let mut retired: Vec<u64> = Vec::new();
    let mut done: Vec<u64> = Vec::new();
    let mut time = 0;
    for gap in gaps {
        for k in 1..=*gap {
            let number = retired.len() as u64;
            if options.blocking {
                time = time.max(retired.last().copied().unwrap_or(0));
            }
            time += options.cycle.0;
            if let Some(before) = number.checked_sub(window) {
                time = time.max(retired[before as usize]);
            }
            let mut over = time;
            if k == *gap {
                if let Some(before) = done.len().checked_sub(mshrs) {
                    time = time.max(done[before]);
                }
                over = time + latency;
                done.push(over);
            }
            let last = retired.last().copied().unwrap_or(0);
            retired.push(over.max(last));
        }
    }
    retired.last().copied().unwrap_or(0)
}

proptest! {
    #[test]
    fn the_window_and_the_mshrs_bind_as_in_a_model_of_every_instruction(
        gaps in prop::collection::vec(1u32..30, 1..60),
        latency in 1u64..80_000,
        window in 1u64..40,
        mshrs in 1u32..8,
        blocking in any::<bool>(),
    ) {
        let options = ProcessorOptions { window, mshrs, blocking, ..plain() };
        let mut device = Fake::stalling(latency);
        let run = execute(&mut device, vec![loads(gaps.clone(), 0)], &options).unwrap();
        prop_assert_eq!(run.time.0, scoreboard(&gaps, latency, &options));
        prop_assert!(device.most <= u64::from(mshrs));
    }

    #[test]
    fn whatever_the_device_does_all_threads_end_and_their_time_is_accounted_for(
        seed in any::<u64>(),
        threads in 1usize..9,
        cores in 1u32..4,
        limit in 1u64..20,
        llc in 0u64..3,
        mshrs in 1u32..5,
        write_buffer in 1u32..4,
        quantum in 1u64..5_000,
        faults in any::<bool>(),
        blocking in any::<bool>(),
        barrier in any::<bool>(),
    ) {
        let mut random = Rng::new(seed, "chaos");
        let mut wanted = (0, 0);
        let parts: Vec<ThreadReferences<'static>> = (0..threads)
            .map(|_| {
                let count = random.below(60);
                let mut all: Vec<ThreadStep> = (0..count)
                    .map(|_| {
                        if random.below(20) == 0 {
                            return ThreadStep::Sync;
                        }
                        let access = if random.below(3) == 0 { MemoryAccess::Store } else { MemoryAccess::Load };
                        let gap = random.below(12) as u32;
                        let size = 1 + random.below(200) as u32;
                        ThreadStep::Access(MemRef { gap, addr: random.below(100 * 64), size, access })
                    })
                    .collect();
                let from = if barrier { random.below(count + 1) as usize } else { 0 };
                for step in &all[from..] {
                    if let ThreadStep::Access(reference) = step {
                        wanted.0 += 1;
                        wanted.1 += u64::from(reference.gap);
                    }
                }
                if barrier {
                    all.insert(from, ThreadStep::Barrier);
                }
                steps(all)
            })
            .collect();
        let options = ProcessorOptions {
            cores,
            llc: Bytes(llc * 1024),
            llc_ways: 4,
            mshrs,
            write_buffer,
            quantum: Picos(quantum),
            switch: Picos(random.below(3) * 500),
            window: 1 + random.below(50),
            blocking,
            ..plain()
        };
        let mut device = Chaos { random, limit, inside: 0 };
        let run = execute_with_faults(&mut device, parts, &options, |_, command| {
            faults && command.offset % 128 == 0
        });
        // `execute_with_faults` checks the accounting laws itself.
        let run = run.unwrap();
        prop_assert_eq!((run.references, run.instructions), wanted);
        prop_assert_eq!(device.inside, 0);
    }

    #[test]
    fn one_dependent_thread_sees_the_cache_that_lists_of_lines_describe(
        uses in prop::collection::vec((0u64..60, any::<bool>()), 0..300),
        ways in 1u64..4,
        sets in 1u64..5,
    ) {
        let options = ProcessorOptions { llc: Bytes(ways * sets * 64), llc_ways: ways, blocking: true, ..plain() };
        let access = |store| if store { MemoryAccess::Store } else { MemoryAccess::Load };
        // The references are so far apart that each line arrives before the next reference.
        let references = uses.iter().map(|(line, store)| reference(1000, *line, access(*store))).collect();
        let mut device = Fake::stalling(100);
        let run = one(&mut device, references, &options);
        let mut model: Vec<Vec<(u64, bool)>> = vec![Vec::new(); sets as usize];
        let (mut hits, mut commands) = (0, Vec::new());
        for (line, store) in uses {
            let set = &mut model[(line % sets) as usize];
            let mut dirty = store;
            if let Some(at) = set.iter().position(|entry| entry.0 == line) {
                hits += 1;
                dirty |= set.remove(at).1;
            } else {
                commands.push((Op::Read, line));
                if set.len() as u64 == ways && let Some((victim, true)) = set.pop() {
                    commands.push((Op::Write, victim));
                }
            }
            set.insert(0, (line, dirty));
        }
        prop_assert_eq!(run.lines.hits, hits);
        let found: Vec<(Op, u64)> = device.log.iter().map(|(_, c)| (c.op, c.offset / 64)).collect();
        prop_assert_eq!(found, commands);
    }
}

#[test]
fn misses_of_a_core_are_as_many_as_its_mshrs_and_no_more() {
    for mshrs in [1, 4, 10] {
        let options = ProcessorOptions { mshrs, ..plain() };
        let mut device = Fake::stalling(1_000_000);
        let run = execute(&mut device, vec![loads([1; 100], 0)], &options).unwrap();
        assert_eq!(device.most, u64::from(mshrs));
        // The loads proceed in rounds of `mshrs` loads, a nanosecond apart; each round takes one latency.
        let (rounds, rest) = (100 / u64::from(mshrs), 100 % u64::from(mshrs));
        let last = if rest == 0 { u64::from(mshrs) } else { rest };
        assert_eq!(
            run.time.0,
            rounds.div_ceil(1) * 1_000_000 + last * 1000 + u64::from(rest > 0) * 1_000_000
        );
    }
}

#[test]
fn references_to_a_line_under_way_are_one_miss_and_a_store_among_them_makes_it_dirty() {
    let options = ProcessorOptions { llc: Bytes(64), llc_ways: 1, mshrs: 1, ..plain() };
    let access = [MemoryAccess::Load, MemoryAccess::Load, MemoryAccess::Store, MemoryAccess::Load];
    let mut references: Vec<MemRef> = access.iter().map(|access| reference(1, 9, *access)).collect();
    references.push(reference(1, 10, MemoryAccess::Load));
    let mut device = Fake::stalling(100_000);
    let run = one(&mut device, references, &options);
    let lines: Vec<(u64, Op, u64)> = device.log.iter().map(|(t, c)| (*t, c.op, c.offset / 64)).collect();
    // The second line arrives at 201 ns, and evicts the first.
    assert_eq!(lines, [(1000, Op::Read, 9), (101_000, Op::Read, 10), (201_000, Op::Write, 9)]);
    assert_eq!((run.lines.misses, run.lines.merged, run.lines.written), (2, 3, 1));
    assert_eq!(run.time.0, 201_000 + options.llc_hit_cycles * 1000);
}

#[test]
fn stores_do_not_stall_until_the_mshrs_are_out() {
    let options = ProcessorOptions { llc: Bytes(1 << 16), llc_ways: 16, mshrs: 4, window: 2, ..plain() };
    let stores = |count| (0..count).map(|line| reference(1, line, MemoryAccess::Store)).collect::<Vec<_>>();
    let run = one(&mut Fake::stalling(1_000_000), stores(4), &options);
    assert_eq!((run.time.0, run.lines.mshr_waits), (4000, 0));
    let run = one(&mut Fake::stalling(1_000_000), stores(5), &options);
    assert_eq!((run.time.0, run.lines.mshr_waits), (1_001_000, 1));
}

#[test]
fn lines_that_leave_are_at_most_the_write_buffer_and_then_keep_an_mshr() {
    let options = ProcessorOptions { llc: Bytes(64), llc_ways: 1, mshrs: 2, write_buffer: 1, ..plain() };
    let stores: Vec<MemRef> = (0..6).map(|line| reference(1, line, MemoryAccess::Store)).collect();
    let mut device = Fake { write: 1_000_000, ..Fake::stalling(10_000) };
    let run = one(&mut device, stores, &options);
    assert_eq!((device.most_writes, run.lines.written), (1, 5));
    let sent: Vec<(u64, Op)> = device.log.iter().map(|(time, command)| (*time, command.op)).collect();
    let (read, write) = (Op::Read, Op::Write);
    // Lines 0 and 1 are requested at 1 and 2 ns, and arrive at 11 and 12 ns: line 2 is requested, line 0 is evicted, line 3
    // is requested. At 21 ns the victim 1 finds the write buffer full and keeps an MSHR; at 22 ns the victim 2 does. The
    // write buffer frees one entry each microsecond.
    assert_eq!(
        sent,
        [
            (1000, read),
            (2000, read),
            (11_000, read),
            (12_000, write),
            (12_000, read),
            (1_012_000, write),
            (1_012_000, read),
            (2_012_000, write),
            (2_012_000, read),
            (3_012_000, write),
            (4_012_000, write),
        ]
    );
    assert_eq!(run.time.0, 2_012_000);
}

#[test]
fn without_a_cache_stores_go_to_the_device_through_the_write_buffer() {
    let options = ProcessorOptions { write_buffer: 2, ..plain() };
    let stores: Vec<MemRef> = (0..5).map(|_| reference(1, 7, MemoryAccess::Store)).collect();
    let mut device = Fake::stalling(100_000);
    let run = one(&mut device, stores, &options);
    assert_eq!((device.reads(), device.most_writes, run.lines.written), (0, 2, 5));
    // Writes start at 1 and 2 ns, then as earlier writes complete: at 101, 102 and 201 ns.
    assert_eq!(run.time.0, 201_000);
}

#[test]
fn a_reference_across_lines_is_one_for_each() {
    let all = vec![MemRef { gap: 3, addr: 60, size: 72, access: MemoryAccess::Load }];
    let mut device = Fake::stalling(5000);
    let run = one(&mut device, all, &plain());
    let sent: Vec<(u64, u64)> = device.log.iter().map(|(t, c)| (*t, c.offset)).collect();
    assert_eq!(sent, [(3000, 0), (3000, 64), (3000, 128)]);
    assert_eq!((run.time.0, run.references, run.instructions), (8000, 1, 3));
}

#[test]
fn two_threads_on_a_core_overlap_as_far_as_the_core_allows() {
    let options = ProcessorOptions { blocking: true, ..plain() };
    // Each thread computes for 10 ns, runs 5 ns of software, sleeps, and runs 20 ns of software.
    for (sleep, expected) in [
        // Both threads sleep at the same time: the second wakes at 130 ns, while the first runs its software until 135 ns.
        (100, 155),
        // The first thread wakes at 25 ns, while the second is on the core until 30 ns.
        (10, 70),
        // The second thread wakes at 31 ns (15 + 15 + 1), while the first runs from 30 to 50 ns.
        (1, 70),
    ] {
        let mut device = Fake::sleeping(5_000, sleep * 1000, 20_000);
        let threads = vec![loads([10], 0), loads([10], 100)];
        let run = execute(&mut device, threads, &options).unwrap();
        assert_eq!(run.time.0, expected * 1000, "sleep of {sleep} ns");
        let shares: f64 = run.threads.iter().map(|t| t.software_ns).sum();
        assert_eq!(shares, 40.0);
    }
    let mut device = Fake::sleeping(5_000, 100_000, 20_000);
    let run = execute(&mut device, vec![loads([10], 0), loads([10], 100)], &options).unwrap();
    let parts = |t: &ThreadResult| [t.computing_ns, t.stalled_ns, t.software_ns, t.asleep_ns, t.runnable_ns];
    let found: Vec<[f64; 5]> = run.threads.iter().map(parts).collect();
    assert_eq!(found, [[10.0, 5.0, 20.0, 100.0, 0.0], [10.0, 5.0, 20.0, 100.0, 20.0]]);
    // On two cores the threads do not delay each other.
    let two = ProcessorOptions { cores: 2, ..options };
    let mut device = Fake::sleeping(5_000, 100_000, 20_000);
    let run = execute(&mut device, vec![loads([10], 0), loads([10], 100)], &two).unwrap();
    assert_eq!((run.time.0, run.lines.switches), (135_000, 0));
}

#[test]
fn a_sleeper_goes_on_with_the_instructions_that_it_had_left() {
    // The load at 10 ns sleeps from 15 to 115 ns. The next load, due at 30 ns, has 15 ns of computing left after 20 ns of
    // software.
    let mut device = Fake::sleeping(5_000, 100_000, 20_000);
    let run = execute(&mut device, vec![loads([10, 20], 0)], &plain()).unwrap();
    let sent: Vec<u64> = device.log.iter().map(|(time, _)| *time).collect();
    assert_eq!(sent, [10_000, 150_000]);
    assert_eq!(run.time.0, 150_000 + 125_000);
}

#[test]
fn switches_cost_what_they_are_said_to() {
    let options = ProcessorOptions { blocking: true, switch: Picos(3000), ..plain() };
    let mut device = Fake::sleeping(5_000, 1_000_000, 20_000);
    let run = execute(&mut device, vec![loads([10], 0), loads([10], 100)], &options).unwrap();
    // The core switches to the second thread when the first sleeps, back to the first, and to the second again.
    assert_eq!(run.lines.switches, 3);
    assert_eq!(run.threads.iter().map(|t| t.software_ns).sum::<f64>(), 40.0 + 9.0);
}

#[test]
fn threads_that_never_sleep_take_turns_by_quanta() {
    let options = ProcessorOptions { quantum: Picos(50_000), llc: Bytes(1 << 16), ..plain() };
    let stores = |line| thread((0..100).map(|_| reference(10, line, MemoryAccess::Store)).collect());
    let run = execute(&mut Fake::stalling(1), vec![stores(1), stores(2)], &options).unwrap();
    assert_eq!(run.time.0, 2_000_000);
    // Each thread takes 20 quanta; its last reference falls at the start of the next quantum.
    for thread in &run.threads {
        assert_eq!((thread.preemptions, thread.runnable_ns, thread.computing_ns), (20, 1000.0, 1000.0));
    }
}

#[test]
fn a_page_fault_waits_for_older_loads_and_nothing_passes_it() {
    let run = |precise: bool| {
        let mut device = Fake::sleeping(5_000, 100_000, 20_000);
        let threads = vec![loads([1; 8], 0)];
        let run = execute_with_faults(&mut device, threads, &plain(), |_, _| precise).unwrap();
        (run.time.0, device.most, run.lines.faults)
    };
    // With precise faults, one access follows the other.
    assert_eq!(run(true), (8 * (1_000 + 125_000), 1, 8));
    // The accesses of the first 5 ns are under way when the first access sleeps; later accesses start when it ends.
    let (time, most, faults) = run(false);
    assert!(time < 8 * 125_000 && most > 1 && faults == 0, "{time} {most}");
}

#[test]
fn the_cross_over_of_sleeping_and_stalling_is_where_the_closed_form_says() {
    let options = ProcessorOptions { blocking: true, ..plain() };
    let (gap, before, after, count) = (50u64, 12_000u64, 30_000u64, 200u64);
    let work = |threads: u64| -> Vec<ThreadReferences<'static>> {
        (0..threads).map(|n| loads(vec![gap as u32; count as usize], n << 20)).collect()
    };
    let stalling =
        |threads, latency| execute(&mut Fake::stalling(latency), work(threads), &options).unwrap().time.0;
    let sleep = 400_000;
    for threads in [1, 16] {
        let mut device = Fake::sleeping(before, sleep, after);
        let sleeping = execute(&mut device, work(threads), &options).unwrap().time.0;
        // Core time of each access.
        let busy = gap * 1000 + before + after;
        // A single thread also waits for the sleep; with 16 threads the others' core time exceeds the sleep.
        let each = if threads == 1 { busy + sleep } else { busy };
        assert!((threads - 1) * busy > sleep || threads == 1);
        let bare = threads * count * each;
        assert!((bare..=bare + sleep + busy).contains(&sleeping), "{threads}: {sleeping} {bare}");
        // An access with a stall of H takes gap + H: stalling and sleeping are equal at H = each - gap.
        let cross = each - gap * 1000;
        assert!(stalling(threads, cross * 97 / 100) < sleeping, "{threads} threads below");
        assert!(stalling(threads, cross * 103 / 100) > sleeping, "{threads} threads above");
    }
}

#[test]
fn a_lost_access_is_an_error_and_never_a_result() {
    for sleep in [0, 1000] {
        let mut device = Fake { lose: Some(3), sleep, ..Fake::stalling(10_000) };
        let error = execute(&mut device, vec![loads([1; 8], 0)], &plain()).unwrap_err().to_string();
        assert!(error.contains("every access sent to the device completes"), "{error}");
    }
}

#[test]
fn addresses_past_the_end_are_errors_unless_they_wrap() {
    let far = || vec![loads([1], 100)];
    let device = || Fake { capacity: 64 * 64, ..Fake::stalling(10) };
    let error = execute(&mut device(), far(), &plain()).unwrap_err().to_string();
    assert!(error.contains("outside the device"), "{error}");
    let mut small = device();
    execute(&mut small, far(), &ProcessorOptions { wrap: true, ..plain() }).unwrap();
    assert_eq!(small.log[0].1.offset, (100 % 64) * 64);
}

#[test]
fn options_that_cannot_be_are_named() {
    let wrong = |options: ProcessorOptions| {
        execute(&mut Fake::stalling(1), vec![loads([1], 0)], &options).unwrap_err().to_string()
    };
    assert!(wrong(ProcessorOptions { cores: 0, ..plain() }).contains("cores"));
    assert!(wrong(ProcessorOptions { quantum: Picos(0), ..plain() }).contains("quantum_ps"));
    assert!(wrong(ProcessorOptions { llc: Bytes(100), ..plain() }).contains("llc"));
    assert!(execute(&mut Fake::stalling(1), Vec::new(), &plain()).is_err());
}

#[test]
fn what_comes_before_the_warm_up_is_over_is_not_measured() {
    let options = ProcessorOptions { blocking: true, ..plain() };
    let work = || vec![loads([10; 100], 0)];
    let whole = execute(&mut Fake::stalling(5000), work(), &options).unwrap();
    let part = execute(&mut Fake::stalling(5000), warm_up_first(work(), 40), &options).unwrap();
    assert_eq!((part.references, part.instructions, part.lines.misses), (60, 600, 60));
    // The measurement begins when the data of the 40th reference have arrived.
    assert_eq!(part.time.0, whole.time.0 - 40 * 15_000);
    let none = execute(&mut Fake::stalling(5000), warm_up_first(work(), 200), &options).unwrap();
    assert_eq!((none.references, none.instructions, none.time.0), (0, 0, 0));
}

#[test]
fn no_thread_goes_on_before_the_slowest_has_warmed_up() {
    const MEASURED: u64 = 1 << 20;
    let latency = 100_000;
    for (cores, llc) in [(3, 0), (1, 1 << 16)] {
        let options = ProcessorOptions { cores, llc: Bytes(llc), llc_ways: 16, ..plain() };
        let work = |number: u64, gap, warm_up, measured| {
            let lines = number * 1000..number * 1000 + warm_up;
            // Without a cache no thread waits for its stores.
            let access = if llc > 0 { MemoryAccess::Store } else { MemoryAccess::Load };
            let before = lines.map(move |line| reference(gap, line, access));
            let lines = MEASURED + number * 1000..MEASURED + number * 1000 + measured;
            let after = lines.map(|line| reference(1, line, MemoryAccess::Load));
            let all = before.map(ThreadStep::Access).chain([ThreadStep::Barrier]);
            steps(all.chain(after.map(ThreadStep::Access)).collect())
        };
        // The third thread has nothing to warm up, and the fourth ends without a barrier.
        let threads =
            vec![work(0, 1, 5, 20), work(1, 5000, 40, 20), work(2, 1, 0, 20), loads([7; 9], 500_000)];
        let mut device = Fake::stalling(latency);
        let run = execute(&mut device, threads, &options).unwrap();
        assert_eq!(run.references, 60);
        let measured = |command: &&(u64, deepram_sim::host::Command)| command.1.offset >= MEASURED * 64;
        let first = device.log.iter().find(measured).unwrap().0;
        let last = device.log.iter().rfind(|command| !measured(command)).unwrap().0;
        // All warm-up accesses are sent, and the last has ended, before the first measured load.
        assert!(first >= last + latency, "{cores} cores: measured from {first} ps, warm-up to {last} ps");
        // On one core the thread without a barrier is the last to end, once its data have passed the cache, too.
        assert_eq!(run.time.0, device.log.last().unwrap().0 - last, "{cores} cores");
    }
}

#[test]
fn a_sync_flushes_the_device_once_all_dirty_lines_are_there() {
    let options =
        ProcessorOptions { llc: Bytes(1 << 16), llc_ways: 16, write_buffer: 2, cores: 2, ..plain() };
    let store = |line| ThreadStep::Access(reference(1, line, MemoryAccess::Store));
    let load = |line| ThreadStep::Access(reference(1, line, MemoryAccess::Load));
    let first = vec![store(1), store(2), store(3), load(4), ThreadStep::Sync, store(5), ThreadStep::Sync];
    // A sync without dirty lines flushes the device, too.
    let second = vec![ThreadStep::Sync, ThreadStep::Sync];
    let mut device = Fake { write: 50_000, ..Fake::stalling(10_000) };
    let run = execute(&mut device, vec![steps(first)], &options).unwrap();
    let sent: Vec<(u64, Op, u64)> = device.log.iter().map(|(t, c)| (*t, c.op, c.offset / 64)).collect();
    let (read, write, flush) = (Op::Read, Op::Write, Op::Flush);
    // The load's data arrive at 14 ns and are there for the thread 10 ns later. Two lines are written at once.
    assert_eq!(
        sent,
        [
            (1000, read, 1),
            (2000, read, 2),
            (3000, read, 3),
            (4000, read, 4),
            (24_000, write, 1),
            (24_000, write, 2),
            (74_000, write, 3),
            (124_000, flush, 0),
            (135_000, read, 5),
            (145_000, write, 5),
            (195_000, flush, 0),
        ]
    );
    assert_eq!((run.time.0, run.lines.syncs, run.lines.synced, run.synced.count), (205_000, 2, 4, 2));
    let mut device = Fake::stalling(10_000);
    let run = execute(&mut device, vec![steps(second)], &options).unwrap();
    assert_eq!((run.time.0, run.lines.syncs, run.lines.written), (20_000, 2, 0));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let processor: Processor = Registry::builtin().unwrap().get("nvmm-host").unwrap();
    let options =
        ProcessorOptions { cores: 3, llc: Bytes(1 << 16), ..ProcessorOptions::new(&processor).unwrap() };
    let run = |seed| {
        let threads =
            workload_threads("uniform:span=1GiB,read=60%,count=20k,size=64B", seed, 16, 20).unwrap();
        let mut device = Fake::sleeping(1_000_000, 60_000_000, 3_000_000);
        serde_json::to_string(&execute(&mut device, threads, &options).unwrap()).unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn dependent_loads_of_dram_take_its_closed_form() {
    let registry = Registry::builtin().unwrap();
    let dram: deepram_media::Dram = registry.get("ddr4-2400").unwrap();
    let row = dram.row_bytes().0 * dram.banks * dram.total_ranks();
    let options = ProcessorOptions { blocking: true, ..plain() };
    // The loads alternate between two rows of one bank, before the first refresh and more than t_ras apart.
    let all = (0..20u64).map(|n| MemRef { gap: 100, addr: n % 2 * row, size: 8, access: MemoryAccess::Load });
    let mut memory = DramMemory::new(&dram).unwrap();
    let run = execute(&mut memory, vec![thread(all.collect())], &options).unwrap();
    let closed = dram.access(RowState::Closed, false).0;
    let conflict = dram.access(RowState::Conflict, false).0;
    assert_eq!(run.time.0, 20 * 100_000 + closed + 19 * conflict);
}

#[test]
fn many_cores_streaming_from_dram_get_its_bandwidth_and_twice_the_ipc_of_half_of_it() {
    let registry = Registry::builtin().unwrap();
    let processor: Processor = registry.get("nvmm-host").unwrap();
    let options =
        ProcessorOptions { cores: 6, llc: Bytes(1 << 18), ..ProcessorOptions::new(&processor).unwrap() };
    let run = |channels: &str| {
        let dram: deepram_media::Dram = registry.get_with("ddr4-2400", &[channels]).unwrap();
        // With a flat latency, the bus is the only limit.
        let dram = deepram_media::Dram { flat_read: Some(deepram_media::Picos::from_ns(50)), ..dram };
        let threads = workload_threads("dd-read:span=48MiB,bs=4KiB", 1, 6, 2).unwrap();
        let executed = execute(&mut DramMemory::new(&dram).unwrap(), threads, &options).unwrap();
        (executed.references as f64 * 64.0 / (executed.time_ns * 1e-9) / dram.peak_bandwidth().0, executed)
    };
    let (one, slow) = run("channels=1");
    assert!((0.99..=1.001).contains(&one), "{one} of the bus");
    let (two, fast) = run("channels=2");
    assert!((0.97..=1.001).contains(&two), "{two} of the bus");
    assert!((fast.normalised_to(&slow) / 2.0 - 1.0).abs() < 0.03);
}

#[test]
fn a_lackey_trace_runs_with_its_instructions_counted() {
    let text = "I  4000,3\n L 1000,8\nI  4003,5\nI  4008,5\n M 1008,8\nI  400d,2\n S 2000,4\n";
    let options = ReadOptions { fetches: false, ..ReadOptions::default() };
    let reader = TraceReader::new(text.as_bytes(), &options).unwrap();
    let none = ObjectPlacement { slot_bytes: 0, slots: 0 };
    let references: ThreadReferences<'_> = Box::new(memory_references(reader, 1, none));
    let processor = ProcessorOptions { llc: Bytes(1 << 16), ..plain() };
    let mut device = Fake::stalling(100);
    let run = execute(&mut device, vec![references], &processor).unwrap();
    assert_eq!((run.instructions, run.references, device.reads()), (4, 4, 2));
}
