//! Reads against background work, the write queue, reclamation, and the rates of a drive.

use super::*;
use crate::engine::EventQueue;
use crate::flash_array::ChannelEvent;
use deepram_core::units::Picos;
use deepram_media::Registry;

/// One die of 8 blocks.
fn flash(suspend: &str) -> (Hierarchy, DriveFlash) {
    let registry = Registry::builtin().unwrap();
    let overrides = [
        "channels=1",
        "packages_per_channel=1",
        "nand.planes=1",
        "nand.blocks_per_plane=8",
        "nand.pages_per_block=4",
        "over_provisioning=50%",
        "write_queue=2",
        suspend,
    ];
    let preset: Hierarchy = registry.get_with("hierarchy.p3700", &overrides).unwrap();
    let flash = DriveFlash::new(&preset, false).unwrap();
    (preset, flash)
}

/// Runs the array's events up to `until`; returns the time at which each page read came.
fn run(flash: &mut DriveFlash, queue: &mut EventQueue<ChannelEvent>, until: Time) -> Vec<(u32, Time)> {
    let mut read = Vec::new();
    loop {
        for (time, event) in flash.array.events.drain(..) {
            queue.push(Picos(time), event);
        }
        read.extend(flash.pages_read.drain(..).map(|page| (page, queue.now().0)));
        if queue.peek().is_none_or(|time| time.0 > until) {
            return read;
        }
        if let Some((now, event)) = queue.pop() {
            flash.handle(event, now.0);
        }
    }
}

const END: Time = 1 << 60;

#[test]
fn a_read_waits_for_a_program_or_its_suspension_and_not_for_one_that_is_over() {
    for (suspend, pause) in [("nand.suspend_program=20us", 20_000_000), ("nand.suspend_program=1s", 0)] {
        let (preset, mut flash) = flash(suspend);
        let mut queue = EventQueue::new();
        let read = preset.nand.idle_latency(NandOp::Read, 1).0;
        let program = preset.nand.idle_latency(NandOp::Program, 1).0;
        assert_eq!(read, 20_000_000);
        let reads_at = |flash: &mut DriveFlash, queue: &mut EventQueue<ChannelEvent>, now| {
            assert_eq!(run(flash, queue, now), []);
            flash.read(0, now);
            run(flash, queue, now + 3 * program)[0].1
        };
        assert_eq!(reads_at(&mut flash, &mut queue, 5), 5 + read);
        let now = 10_000_000_000;
        let written = flash.write(1, 0, now, &|_| true, &mut None).unwrap();
        assert!(flash.has_accepted(written.ticket));
        // A microsecond of the program's array time has passed.
        let later = now + preset.nand.page_transfer().0 + 1_000_000;
        let left = if pause > 0 { pause } else { preset.nand.program.0 - 1_000_000 };
        assert_eq!(reads_at(&mut flash, &mut queue, later), later + left + read);
        assert_eq!(flash.counts().suspensions, u64::from(pause > 0));
        assert_eq!(reads_at(&mut flash, &mut queue, END / 2), END / 2 + read);
        flash.check().unwrap();
    }
}

#[test]
fn a_write_waits_until_the_pages_up_to_it_are_within_the_queue() {
    let (preset, mut flash) = flash("write_queue=2");
    let mut queue = EventQueue::new();
    let write = |flash: &mut DriveFlash| flash.write(1, 0, 0, &|_| true, &mut None).unwrap().ticket;
    let tickets = [0; 4].map(|_| write(&mut flash));
    assert_eq!(tickets.map(|ticket| flash.has_accepted(ticket)), [true, true, false, false]);
    let second = tickets[3];
    // Waits that end do so in the order of the claims, whichever came first.
    assert!(flash.wait(second, Waiter::Task(3)) && flash.wait(tickets[2], Waiter::Task(2)));
    let first = preset.nand.idle_latency(NandOp::Program, 1).0;
    run(&mut flash, &mut queue, first - 1);
    assert!(flash.accepted.is_empty());
    run(&mut flash, &mut queue, first);
    assert!(matches!(flash.accepted.pop_front(), Some((Waiter::Task(2), 0))) && flash.accepted.is_empty());
    // The next program's data crossed the channel while the array was busy.
    run(&mut flash, &mut queue, first + preset.nand.program.0);
    assert!(matches!(flash.accepted.pop_front(), Some((Waiter::Task(3), 0))));
    assert!(!flash.wait(second, Waiter::Task(3)));
}

#[test]
fn the_work_of_reclamation_is_done_to_the_last_operation() {
    let (_, mut flash) = flash("write_queue=2");
    let mut queue = EventQueue::new();
    let mut stream = deepram_trace::workload::Rng::new(3, "test");
    let mut now = 0;
    for _ in 0..400 {
        let page = stream.below(u64::from(flash.pages())) as u32;
        flash.write(page, 0, now, &|_| true, &mut None).unwrap();
        now += stream.below(3) * 1_000_000_000;
        run(&mut flash, &mut queue, now);
        queue.push(Picos(now), ChannelEvent::Bus(0));
        run(&mut flash, &mut queue, now);
    }
    run(&mut flash, &mut queue, END);
    let (counts, die) = (flash.counts(), &flash.dies[0]);
    assert!(counts.move_programs > 0 && counts.erases > 0, "{counts:?}");
    assert_eq!((die.backlog, die.written, die.programmed), (0, 400, 400));
    assert!(flash.array.is_quiet() && flash.array.bus_busy() <= queue.now().0);
    flash.check().unwrap();
}

#[test]
fn the_p3700_writes_at_the_rates_of_its_data_sheet() {
    // A ninth of the drive's channels, with few blocks.
    let overrides = ["channels=2", "nand.blocks_per_plane=32"];
    let preset: Hierarchy = Registry::builtin().unwrap().get_with("hierarchy.p3700", &overrides).unwrap();
    // Pages a second of a writer that waits for the write queue only, in the second half of `count`.
    let rate = |count: u64, next: &mut dyn FnMut(u64) -> u64| {
        let mut flash = DriveFlash::new(&preset, false).unwrap();
        let pages = u64::from(flash.pages());
        let mut queue = EventQueue::new();
        let mut half = 0;
        for turn in 0..count {
            if turn == count / 2 {
                half = queue.now().0;
            }
            let page = next(pages) as u32;
            let written = flash.write(page, 0, queue.now().0, &|_| true, &mut None).unwrap();
            if flash.wait(written.ticket, Waiter::Task(0)) {
                while flash.accepted.pop_front().is_none() {
                    let soon = queue.peek().map_or(0, |time| time.0);
                    run(&mut flash, &mut queue, soon);
                }
            }
        }
        (count - count / 2) as f64 / ((queue.now().0 - half) as f64 * 1e-12)
    };
    let mut at = 0;
    let sequential = 9.0
        * rate(600_000, &mut |pages| {
            at = (at + 1) % pages;
            at
        });
    let bytes = sequential * 4096.0;
    assert!((bytes / 2e9 - 1.0).abs() < 0.03, "{bytes} B/s");
    let mut stream = deepram_trace::workload::Rng::new(5, "test");
    let random = 9.0 * rate(600_000, &mut |pages| stream.below(pages));
    assert!(random > 175e3, "{random} pages/s");
}
