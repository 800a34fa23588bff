//! Laws of the whole system: no thread waits for what another one will do later, no resource is busy for
//! longer than time has passed, and nothing is left under way at the end.

use deepram_media::{Bytes, NandOp};
use deepram_trace::workload::Rng;
use proptest::prelude::*;

use super::*;
use crate::host::Event;

#[path = "../../tests/it/flatflash/small.rs"]
mod small;

use small::preset;

fn options(frames: u64, cpu_cache: bool) -> FlatOptions {
    FlatOptions { memory: Bytes(frames * PAGE), cpu_cache, verify: true, ..FlatOptions::default() }
}

/// The commands of a thread.
type Program<'p> = Box<dyn FnMut() -> Option<Command> + 'p>;

/// Runs threads, one core each, until all have ended and nothing is under way. Thread n begins after n x
/// `think` / threads, and thinks `think` after each command. Returns the times of each thread's commands.
fn run(memory: &mut FlatMemory, mut programs: Vec<Program<'_>>, think: Time) -> Vec<Vec<Time>> {
    let mut context = Context::new();
    let mut began = vec![0; programs.len()];
    let mut times = vec![Vec::new(); programs.len()];
    for thread in 0..programs.len() {
        let start = thread as u64 * think / programs.len() as u64;
        context.queue.push(Picos(start), Event::Driver(thread as u32));
    }
    while let Some((now, event)) = context.queue.pop() {
        match event {
            Event::Device(event) => memory.handle(event, &mut context).unwrap(),
            Event::Driver(thread) => {
                if let Some(command) = programs[thread as usize]() {
                    began[thread as usize] = now.0;
                    context.core = Some(thread);
                    memory.submit(thread, command, &mut context).unwrap();
                }
            }
            Event::Arrive | Event::Complete(_) => {}
        }
        while let Some(slot) = context.done.pop() {
            times[slot as usize].push(now.0 - began[slot as usize]);
            context.queue.push(now + Picos(think), Event::Driver(slot));
        }
    }
    assert_eq!(context.queue.late(), 0);
    times
}

/// Checks what holds when nothing is under way.
fn check_end(memory: &FlatMemory) {
    memory.check().unwrap();
    assert!(memory.tasks.is_empty() && memory.posted.is_empty() && memory.evicted.is_empty());
    assert!(memory.fills.is_empty() && memory.faults.is_empty() && memory.promotions.is_empty());
    assert!(memory.flash.array.is_quiet());
    check_busy_times(memory);
}

/// Checks that no bus was busy for longer than time has passed, and that the busy times add up to the
/// times of all transfers.
fn check_busy_times(memory: &FlatMemory) {
    let (counts, now) = (&memory.counts, memory.now);
    let busy = memory.busy_times();
    for bus in [busy.link_to_host, busy.link_to_drive].iter().chain(&busy.dram).chain(&busy.flash) {
        assert!(bus.0 <= now, "{busy:?} in {now} ps");
    }
    let to_host = counts.line_reads * memory.line_span + counts.pages_to_host * memory.page_span;
    let to_drive = counts.line_writes * memory.line_span + counts.pages_to_drive * memory.page_span;
    assert_eq!((busy.link_to_host.0, busy.link_to_drive.0), (to_host, to_drive));
    let did = memory.dram.all_counts();
    let bursts = (did.read_bursts + did.write_bursts) * memory.preset.dram.burst_span().0;
    assert_eq!(busy.dram.iter().map(|bus| bus.0).sum::<u64>(), bursts);
    let (nand, did) = (&memory.preset.nand, memory.flash.counts());
    let page = nand.page_transfer().0;
    let flash = did.reads()
        * (nand.command_time(NandOp::Read, 1).0 + nand.read_setup.map_or(0, |t| t.0) + page)
        + did.programs() * (nand.command_time(NandOp::Program, 1).0 + page)
        + did.erases * nand.command_time(NandOp::Erase, 1).0;
    assert_eq!(busy.flash.iter().map(|bus| bus.0).sum::<u64>(), flash);
}

fn line(op: Op, page: u64, line: u64) -> Command {
    Command { op, offset: page * PAGE + line * 64, len: 64 }
}

/// A thread that uses random lines of one page.
fn user<'p>(op: Op, page: u64, count: u32) -> Program<'p> {
    let (mut stream, mut left) = (Rng::new(page, "test"), count);
    Box::new(move || {
        left = left.checked_sub(1)?;
        Some(line(op, page, stream.below(LINES)))
    })
}

/// A thread that loads one line of each page in turn, from page 64 on.
fn scanner<'p>(count: u64) -> Program<'p> {
    let mut next = 0;
    Box::new(move || {
        next += 1;
        (next <= count).then(|| line(Op::Read, 64 + next % 128, 0))
    })
}

fn mean(times: &[Vec<Time>]) -> f64 {
    // The first accesses of a thread bring its page.
    let all: Vec<Time> = times.iter().flat_map(|times| times[20..].iter().copied()).collect();
    all.iter().sum::<Time>() as f64 / all.len() as f64
}

#[test]
fn hits_in_dram_take_the_same_time_while_another_thread_faults_all_the_time() {
    // With one latency for all rows, the lines that 16 threads use find their rows as one thread's do.
    for (mode, flat) in [(AccessMode::Page, true), (AccessMode::Stack, true), (AccessMode::Page, false)] {
        let set: &[&str] = if flat { &["dram.flat_read=50ns"] } else { &[] };
        let mean_of = |threads: u64, faults: u64| {
            let mut memory = FlatMemory::new(&preset(set), mode, &options(40, false), 1).unwrap();
            let mut programs: Vec<Program<'_>> =
                (0..threads).map(|page| user(Op::Read, page, 4000)).collect();
            programs.push(scanner(faults));
            let times = run(&mut memory, programs, 1_000_000);
            assert!(memory.counts.faults >= threads + faults * 9 / 10);
            check_end(&memory);
            mean(&times[..threads as usize])
        };
        let (alone, many) = (mean_of(if flat { 1 } else { 16 }, 0), mean_of(16, 80));
        assert!((many / alone - 1.0).abs() < 0.01, "{mode:?}: {many} ps, {alone} ps without faults");
    }
}

#[test]
fn lines_of_the_device_buffer_take_the_same_time_while_another_thread_waits_for_flash() {
    let preset = preset(&["max_threshold=255", "buffer_share=60%"]);
    let mut memory = FlatMemory::new(&preset, AccessMode::Promote, &options(8, false), 1).unwrap();
    let times = run(&mut memory, vec![user(Op::Read, 0, 200), scanner(80)], 1_000_000);
    assert!(memory.flash.counts().host_reads > 60);
    check_end(&memory);
    // A line of the other thread at most is on the link.
    let line_read = preset.line_read.0;
    assert!(times[0][20..].iter().all(|time| (line_read..=line_read + memory.line_span).contains(time)
        || *time == line_read + preset.look_aside_lookup.0
        || *time <= line_read + preset.look_aside_lookup.0 + memory.line_span));
}

#[test]
fn accesses_to_a_page_that_is_read_from_flash_wait_for_the_same_read() {
    let preset = preset(&["max_threshold=255"]);
    for mode in [AccessMode::Promote, AccessMode::Page] {
        let mut memory = FlatMemory::new(&preset, mode, &options(8, false), 1).unwrap();
        let programs: Vec<Program<'_>> = (0..8).map(|_| user(Op::Read, 3, 1)).collect();
        let times = run(&mut memory, programs, 8_000);
        let counts = memory.counts;
        assert_eq!(
            (memory.flash.counts().host_reads, counts.faults),
            (1, u64::from(mode == AccessMode::Page))
        );
        let first = times[0][0];
        for (thread, times) in times.iter().enumerate() {
            // Thread n comes n ns after the first, and its line or burst follows that of the others.
            let late = 8 * memory.line_span + 200_000;
            assert!((first - thread as u64 * 1_000..=first + late).contains(&times[0]), "{mode:?} {times:?}");
        }
        check_end(&memory);
    }
}

#[test]
fn a_miss_merges_with_one_under_way_and_ends_with_it() {
    let preset = preset(&["max_threshold=255"]);
    let mut memory = FlatMemory::new(&preset, AccessMode::Promote, &options(8, true), 1).unwrap();
    // The page is in the device buffer and translated. Then two cores load a line 2.4 us apart.
    let one = |lines: &'static [u64]| -> Program<'_> {
        let mut lines = lines.iter();
        Box::new(move || lines.next().map(|number| line(Op::Read, 0, *number)))
    };
    let times = run(&mut memory, vec![one(&[1, 2, 3]), one(&[1, 4, 3])], 4_800_000);
    assert_eq!(memory.counts.line_reads, 4, "line 3 crosses the link once");
    let whole = times[0][2];
    assert!(times[1][2] < whole && times[1][2] > preset.cpu_cache_hit.0, "{times:?}");
    check_end(&memory);
}

#[test]
fn a_promotion_that_finds_no_frame_raises_no_count() {
    // The device buffer has one frame. While its page is promoted, the page in the only frame of DRAM
    // cannot leave it.
    let overrides = ["buffer_share=0.01%", "buffer_ways=1", "max_threshold=2"];
    let mut memory =
        FlatMemory::new(&preset(&overrides), AccessMode::Promote, &options(1, false), 1).unwrap();
    assert_eq!(memory.buffer_frames.len(), 1);
    let mut pages = [0, 0, 1, 1, 1, 1, 1, 1, 0].into_iter();
    let program: Program<'_> = Box::new(move || pages.next().map(|page| line(Op::Write, page, 0)));
    run(&mut memory, vec![program], 50_000_000);
    check_end(&memory);
    assert_eq!((memory.counts.promotions, memory.counts.dram_lines), (1, 1));
    // Two uses of eight belong to a promoted page.
    assert_eq!(memory.threshold.promoted_share(), 0.25);
}

#[test]
fn each_core_has_a_tlb_and_a_page_that_moves_leaves_all() {
    // Each of three cores uses 16 pages in turn, as many as its TLB holds.
    let preset = preset(&["tlb_ways=16", "max_threshold=255"]);
    let mut memory = FlatMemory::new(&preset, AccessMode::Promote, &options(40, false), 1).unwrap();
    let program = |core: u64| -> Program<'_> {
        let mut next = 0;
        Box::new(move || {
            next += 1;
            (next <= 160).then(|| line(Op::Read, core * 16 + next % 16, next % LINES))
        })
    };
    run(&mut memory, (0..3).map(program).collect(), 1_000_000);
    let counts = memory.counts;
    assert_eq!(counts.tlb_lookups - counts.tlb_hits, 3 * 16, "{counts:?}");
    // Three cores use the same page; its promotion removes its translation from all three TLBs.
    let preset = self::preset(&["max_threshold=12"]);
    let mut memory = FlatMemory::new(&preset, AccessMode::Promote, &options(40, false), 1).unwrap();
    let times = run(&mut memory, (0..3).map(|_| user(Op::Read, 7, 100)).collect(), 1_000_000);
    let counts = memory.counts;
    assert_eq!((counts.promotions, counts.tlb_lookups - counts.tlb_hits), (1, 6), "{counts:?}");
    check_end(&memory);
    // Lines written back by a cache need no translation.
    let mut context = Context::new();
    context.core = None;
    memory.submit(0, line(Op::Write, 7, 0), &mut context).unwrap();
    assert_eq!(memory.counts.tlb_lookups, counts.tlb_lookups);
    assert_eq!(times.len(), 3);
}

#[test]
fn a_flush_waits_for_its_stores_and_reads_once() {
    let preset = preset(&["posted_writes=1"]);
    let persistent = FlatOptions { regions: std::iter::once(0..16 * PAGE).collect(), ..options(8, true) };
    let mut memory = FlatMemory::new(&preset, AccessMode::Promote, &persistent, 1).unwrap();
    let flush = Command { op: Op::Flush, offset: 0, len: 0 };
    // The lines are of three pages that are not in the device buffer, and the write buffer has one place.
    let commands = [line(Op::Write, 0, 1), line(Op::Write, 1, 1), line(Op::Write, 2, 1), flush];
    let mut commands = commands.iter();
    let times = run(&mut memory, vec![Box::new(move || commands.next().copied())], 1_000_000);
    // Each store leaves its place when flash has been read; pages 0 and 2 are on one die.
    let read = 20_000_000;
    let flushed = times[0][3];
    assert!(
        flushed > 2 * read && flushed <= 3 * read + 4 * preset.line_write.0 + preset.line_read.0,
        "{flushed}"
    );
    let counts = memory.counts;
    assert_eq!((counts.line_reads, counts.line_writes, counts.posted_waits), (1, 3, 1), "{counts:?}");
    check_end(&memory);
}

#[test]
fn durable_pages_take_the_drives_latency_and_wait_for_its_write_queue() {
    let persistent = FlatOptions { regions: std::iter::once(0..64 * PAGE).collect(), ..options(8, true) };
    let writes = |queue: &str, write: &str, mode| {
        // No batch of moved pages is due, whose interrupt a write would wait for.
        let preset = preset(&[queue, write, "remap_batch=1000"]);
        let mut memory = FlatMemory::new(&preset, mode, &persistent, 1).unwrap();
        let mut page = 0;
        let program: Program<'_> = Box::new(move || {
            page += 1;
            (page <= 12).then(|| Command { op: Op::Write, offset: page * PAGE, len: PAGE })
        });
        let times = run(&mut memory, vec![program], 0);
        check_end(&memory);
        (times[0].clone(), preset.nand.program.0)
    };
    for mode in [AccessMode::Promote, AccessMode::Page] {
        for (key, time) in [("page_write=20us", 20_000_000), ("page_write=16us", 16_000_000)] {
            assert_eq!(writes("write_queue=64", key, mode).0, [time; 12], "{mode:?}");
        }
    }
    // With room for one program, two dies program one page each at a time.
    let (times, program) = writes("write_queue=1", "page_write=20us", AccessMode::Page);
    let rest: Time = times[4..].iter().sum();
    let fair = program * 8 / 2;
    assert!(rest >= fair * 9 / 10 && rest <= fair * 12 / 10, "{rest} of {fair}: {times:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn threads_that_do_everything_at_once_break_no_law_and_do_the_same_again(
        seed in any::<u64>(),
        threads in 1u64..9,
        frames in 1u64..20,
        ways in 1u64..5,
        cpu_cache in any::<bool>(),
        posted in 1u64..4,
        queue in 1u64..4,
        threshold in 1u64..5,
        persist in any::<bool>(),
        slow in any::<bool>(),
    ) {
        let overrides = [
            format!("buffer_ways={ways}"),
            format!("posted_writes={posted}"),
            format!("write_queue={queue}"),
            format!("max_threshold={threshold}"),
            format!("look_aside={}", 1 + seed % 4),
            format!("page_writes={}", 1 + seed % 3),
            (if slow { "promote=300us" } else { "promote=1us" }).to_owned(),
            (if seed % 2 == 0 { "nand.suspend_program=5us" } else { "nand.suspend_program=1s" }).to_owned(),
        ];
        let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
        let preset = preset(&overrides);
        let regions = if persist { vec![4096..3 * 4096, 40 * 4096..50 * 4096] } else { Vec::new() };
        let options = FlatOptions { regions, ..options(frames, cpu_cache) };
        for mode in [AccessMode::Promote, AccessMode::Page, AccessMode::Stack] {
            let once = || {
                let mut memory = FlatMemory::new(&preset, mode, &options, seed).unwrap();
                let programs = (0..threads).map(|thread| -> Program<'_> {
                    let (mut stream, mut left) = (Rng::new(seed ^ thread, "test"), 200u32);
                    Box::new(move || {
                        left = left.checked_sub(1)?;
                        let page = if stream.below(2) == 0 { stream.below(6) } else { stream.below(192) };
                        let offset = page * PAGE + stream.below(LINES) * 64;
                        Some(match stream.below(40) {
                            0 => Command { op: Op::Flush, offset: 0, len: 0 },
                            1 => Command { op: Op::Flush, offset: page * PAGE, len: PAGE },
                            2 => Command { op: Op::Write, offset: page * PAGE, len: PAGE },
                            3 => Command { op: Op::Read, offset: page * PAGE, len: PAGE },
                            4..=10 => Command { op: Op::Write, offset: offset + 8, len: 8 },
                            11..=20 => Command { op: Op::Write, offset, len: 64 },
                            _ => Command { op: Op::Read, offset, len: 64 },
                        })
                    })
                });
                let times = run(&mut memory, programs.collect(), seed % 3 * 1_000_000);
                check_end(&memory);
                assert!(times.iter().all(|times| times.len() == 200));
                (times, memory.flat_counts(), memory.flash.counts())
            };
            prop_assert_eq!(once(), once());
        }
    }
}
