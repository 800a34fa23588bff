//! Closed forms of single operations and properties of any schedule.

use super::*;
use crate::engine::EventQueue;
use deepram_media::{Picos, Registry};
use proptest::prelude::*;

fn run(channels: &mut Channels, mut left: Vec<(Time, OpId, OperationClass, u32)>) -> Vec<(OpId, Time)> {
    left.sort_by_key(|op| op.0);
    let mut queue = EventQueue::new();
    for (time, id, class, plane) in left {
        queue.push(Picos(time), Err((id, class, plane)));
    }
    let mut over = Vec::new();
    while let Some((Picos(now), event)) = queue.pop() {
        match event {
            Ok(event) => channels.handle(event, now),
            Err((id, class, plane)) => channels.submit(id, class, plane, now),
        }
        for (time, event) in channels.events.drain(..) {
            queue.push(Picos(time), Ok(event));
        }
        for notice in channels.notices.drain(..) {
            if let Notice::Done(id) = notice {
                over.push((id, now));
            }
        }
    }
    assert!(channels.is_quiet() && channels.targets.iter().all(|target| target.groups == 0));
    over
}

fn slc(registers: u64) -> Nand {
    let set = format!("registers={registers}");
    Registry::builtin().unwrap().get_with("slc", &[&set, "read_command=200ns"]).unwrap()
}

#[test]
fn an_operation_with_an_array_time_of_its_own_takes_that_time() {
    let nand = slc(2);
    for (class, op) in [
        (OperationClass::Demand, NandOp::Read),
        (OperationClass::Program, NandOp::Program),
        (OperationClass::Erase, NandOp::Erase),
    ] {
        for extra in [0, 1_000_000, 700_000_000] {
            let mut array = Channels::new(&nand, 1, 1);
            let bytes = if op == NandOp::Erase { 0 } else { nand.page.0 as u32 };
            let array_time = (extra > 0).then(|| nand.array_time(op).0 + extra);
            let operation = Operation {
                class,
                plane: 0,
                page: 0,
                bytes,
                array_time,
                copy_back: false,
                blocked: false,
                limited: false,
            };
            array.submit_operation(0, operation, 0);
            let mut queue = EventQueue::new();
            let mut end = 0;
            loop {
                array.events.drain(..).for_each(|(time, event)| queue.push(Picos(time), event));
                let Some((Picos(now), event)) = queue.pop() else { break };
                array.handle(event, now);
                end = now;
            }
            assert_eq!(end, nand.idle_latency(op, 1).0 + extra, "{class:?}");
        }
    }
}

fn last(over: &[(OpId, Time)]) -> Time {
    over.iter().map(|(_, time)| *time).max().unwrap()
}

#[test]
fn operations_of_one_plane_take_the_times_of_the_closed_forms() {
    for class in [OperationClass::Demand, OperationClass::Program, OperationClass::Erase] {
        let op = class.op();
        for count in [1, 2, 7] {
            let over = |registers, command| {
                let nand = Nand { read_command: Some(Picos(command)), ..slc(registers) };
                let all = (0..count as u32).map(|id| (0, id, class, 0)).collect();
                let found = last(&run(&mut Channels::new(&nand, 1, 1), all));
                (nand, found)
            };
            let (nand, two) = over(2, 0);
            assert_eq!(two, nand.interleaved_time(op, count).0, "{class:?} {count}");
            let (nand, one) = over(1, 200_000);
            assert_eq!(one, nand.idle_latency(op, 1).0 * count, "{class:?} {count}");
            if class == OperationClass::Demand {
                // An array takes its next command when it is free, and data cross meanwhile.
                let (nand, found) = over(2, 200_000);
                assert_eq!(found, (nand.read.0 + 200_000) * count + nand.page_transfer().0);
            }
        }
    }
}

#[test]
fn planes_of_a_channel_share_its_bus_and_planes_of_different_channels_share_nothing() {
    let nand = slc(2);
    // Commands go first: all four arrays work at once, and their data follow one another.
    let mut channel = Channels::new(&nand, 1, 4);
    let over = run(&mut channel, (0..4).map(|id| (0, id, OperationClass::Demand, id)).collect());
    let data = nand.data_time(NandOp::Read, 1).0;
    assert_eq!(last(&over), nand.idle_latency(NandOp::Read, 1).0 + 3 * data);
    let mut apart = Channels::new(&nand, 4, 4);
    let over = run(&mut apart, (0..4).map(|id| (0, id, OperationClass::Demand, id)).collect());
    assert_eq!(over.iter().map(|o| o.1).collect::<Vec<_>>(), [nand.idle_latency(NandOp::Read, 1).0; 4]);
    assert_eq!(apart.bytes(), 4 * nand.page.0);
}

#[test]
fn what_is_waited_for_goes_before_the_rest_and_erases_go_last() {
    let nand = slc(2);
    let order = [
        OperationClass::Erase,
        OperationClass::Program,
        OperationClass::Move,
        OperationClass::Ahead,
        OperationClass::Demand,
    ];
    let mut channels = Channels::new(&nand, 1, 1);
    // A read keeps the plane busy while the others come.
    let mut ops = vec![(0, 9, OperationClass::Demand, 0)];
    ops.extend((0..).zip(order).map(|(id, class)| (1_000_000, id, class, 0)));
    let over: Vec<OpId> = run(&mut channels, ops).into_iter().map(|(id, _)| id).collect();
    assert_eq!(over, [9, 4, 3, 2, 1, 0]);
}

/// The ends of a program or erase that starts at 0 and of a read that comes at `at`, and the
/// suspensions.
fn interrupted(nand: &Nand, work: OperationClass, read: OperationClass, at: Time) -> (Time, Time, u64) {
    let mut channels = Channels::new(nand, 1, 1);
    let over = run(&mut channels, vec![(0, 0, work, 0), (at, 1, read, 0)]);
    let end = |id| over.iter().find(|o| o.0 == id).unwrap().1;
    (end(0), end(1), channels.suspensions())
}

#[test]
fn a_read_that_is_waited_for_suspends_a_program_or_erase_and_the_rest_follows_it() {
    let pause = Picos(20_000_000);
    for registers in [1, 2] {
        let without = slc(registers);
        let nand = Nand { suspend_program: Some(pause), suspend_erase: Some(pause), ..slc(registers) };
        let read = nand.idle_latency(NandOp::Read, 1).0;
        for (class, op) in
            [(OperationClass::Program, NandOp::Program), (OperationClass::Erase, NandOp::Erase)]
        {
            let alone = nand.idle_latency(op, 1).0;
            for class_of_read in [OperationClass::Demand, OperationClass::Ahead] {
                let at = alone / 2;
                let (work_end, read_end, suspensions) = interrupted(&nand, class, class_of_read, at);
                assert_eq!((read_end, suspensions), (at + pause.0 + read, 1), "{op:?} {registers}");
                // With one register the data of the read must leave before the work continues.
                let data = if registers == 1 { nand.data_time(NandOp::Read, 1).0 } else { 0 };
                let held = nand.command_time(NandOp::Read, 1).0 + nand.read.0 + data;
                assert_eq!(work_end, alone + pause.0 + held);
            }
            let waits = (alone, alone + read, 0);
            // Near the end, and where the part cannot suspend, the read waits. So does reclamation.
            assert_eq!(interrupted(&nand, class, OperationClass::Demand, alone - pause.0), waits);
            assert_eq!(interrupted(&without, class, OperationClass::Demand, alone / 2), waits);
            assert_eq!(interrupted(&nand, class, OperationClass::Move, alone / 2), waits);
        }
    }
}

#[test]
fn a_read_that_comes_during_the_data_of_a_program_suspends_it_at_its_start_or_goes_first() {
    let pause = 20_000_000;
    let nand = |registers| Nand { suspend_program: Some(Picos(pause)), ..slc(registers) };
    let (program, data) = (slc(1).program.0, slc(1).page_transfer().0);
    let read = slc(1).idle_latency(NandOp::Read, 1).0;
    // The only register holds the program's data.
    let found = interrupted(&nand(1), OperationClass::Program, OperationClass::Demand, data / 2);
    assert_eq!(found, (data + pause + read + program, data + pause + read, 1));
    // The data wait in the second register.
    let found = interrupted(&nand(2), OperationClass::Program, OperationClass::Demand, data / 2);
    assert_eq!(found, (data + read + program, data + read, 0));
}

#[test]
fn the_bus_is_free_while_an_array_suspends() {
    let pause = 20_000_000;
    let nand = Nand { suspend_program: Some(Picos(pause)), ..slc(2) };
    let at = nand.idle_latency(NandOp::Program, 1).0 / 2;
    let mut channels = Channels::new(&nand, 1, 2);
    let over = run(
        &mut channels,
        vec![
            (0, 0, OperationClass::Program, 0),
            (at, 1, OperationClass::Demand, 0),
            (at, 2, OperationClass::Demand, 1),
        ],
    );
    let read = nand.idle_latency(NandOp::Read, 1).0;
    assert_eq!(over[0], (2, at + read));
    assert_eq!(over[1], (1, at + pause + read));
}

#[test]
fn a_suspended_program_continues_when_the_last_read_has_left_the_array() {
    let pause = 20_000_000;
    let nand = Nand { suspend_program: Some(Picos(pause)), ..slc(2) };
    let mut channels = Channels::new(&nand, 1, 1);
    let at = nand.idle_latency(NandOp::Program, 1).0 / 2;
    let mut ops = vec![(0, 0, OperationClass::Program, 0), (0, 1, OperationClass::Program, 0)];
    ops.extend((2..5).map(|id| (at, id, OperationClass::Demand, 0)));
    ops.push((at, 5, OperationClass::Move, 0));
    let over = run(&mut channels, ops);
    assert_eq!(channels.suspensions(), 1);
    // The second program's data occupy the register, so each read leaves before the next one starts.
    let read = nand.idle_latency(NandOp::Read, 1).0;
    let end = |id| over.iter().find(|o: &&(OpId, Time)| o.0 == id).unwrap().1;
    assert_eq!([end(2), end(3), end(4)], [1, 2, 3].map(|n| at + pause + n * read));
    assert_eq!(end(0), nand.idle_latency(NandOp::Program, 1).0 + pause + 3 * read);
    assert_eq!(end(5), end(0) + read);
    assert_eq!(end(1), end(5) + nand.program.0);
}

proptest! {
    #[test]
    fn everything_ends_once_and_no_plane_or_channel_is_used_twice_at_a_time(
        ops in prop::collection::vec((0u64..3_000_000_000, 0usize..5, 0u32..6), 1..120),
        channels in 1u32..4,
        registers in 1u64..3,
        suspend in prop::option::of(0u64..2_000_000_000),
    ) {
        let classes = [OperationClass::Demand, OperationClass::Ahead, OperationClass::Move, OperationClass::Program, OperationClass::Erase];
        let suspend = suspend.map(Picos);
        let nand = Nand { suspend_program: suspend, suspend_erase: suspend, ..slc(registers) };
        let mut machine = Channels::new(&nand, channels, 6);
        let all = (0..).zip(&ops).map(|(id, (time, class, plane))| (*time, id, classes[*class], *plane));
        let over = run(&mut machine, all.collect());
        let mut ids: Vec<OpId> = over.iter().map(|o| o.0).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..ops.len() as u32).collect::<Vec<_>>());
        let moved = ops.iter().filter(|op| op.1 < 4).count() as u64;
        prop_assert_eq!(machine.bytes(), moved * nand.page.0);
        // The arrays and the bus are busy one thing at a time, so the end is not before their sums.
        for plane in 0..6 {
            let busy: Time =
                ops.iter().filter(|op| op.2 == plane).map(|op| nand.array_time(classes[op.1].op()).0).sum();
            prop_assert!(last(&over) >= busy);
        }
        prop_assert!(last(&over) * u64::from(channels) >= machine.bus_busy());
        for (id, time) in &over {
            let (from, class, _) = ops[*id as usize];
            prop_assert!(*time >= from + nand.idle_latency(classes[class].op(), 1).0);
        }
    }
}

#[test]
fn reads_of_one_page_number_in_the_planes_of_a_die_are_one_group() {
    let nand: Nand = Registry::builtin().unwrap().get("mqsim").unwrap();
    let shape = Shape {
        channels: 1,
        targets_per_channel: 1,
        dies_per_target: 1,
        units: 1,
        planes_per_die: 2,
        registers: 1,
    };
    let rules = Rules {
        data_out: DataOut::First,
        turns: true,
        pipelined: true,
        moves_before_programs: false,
        moves_first: false,
        suspend_program: None,
        suspend_erase: None,
        die_queue: 0,
        transfer_notices: false,
    };
    let operation = |class, plane, page| Operation {
        class,
        plane,
        page,
        bytes: if class == OperationClass::Erase { 0 } else { nand.page.0 as u32 },
        array_time: None,
        copy_back: false,
        blocked: false,
        limited: false,
    };
    for (page, groups) in [(3, 1), (4, 2)] {
        let mut array = Channels::with(&nand, shape, rules.clone());
        // An erase keeps the die busy until both reads are queued.
        array.submit_operation(0, operation(OperationClass::Erase, 0, 0), 0);
        array.submit_operation(1, operation(OperationClass::Demand, 0, 3), 0);
        array.submit_operation(2, operation(OperationClass::Demand, 1, page), 0);
        let mut queue = EventQueue::new();
        let mut last = 0;
        loop {
            for (time, event) in array.events.drain(..) {
                queue.push(Picos(time), event);
            }
            let Some((Picos(now), event)) = queue.pop() else { break };
            array.handle(event, now);
            last = now;
        }
        assert_eq!(array.notices.len(), 3);
        assert_eq!(array.counts().multi_plane, u64::from(groups == 1));
        let arrays = nand.command_time(NandOp::Read, 3 - groups).0 + nand.read.0;
        let erase = nand.idle_latency(NandOp::Erase, 1).0;
        assert_eq!(last, erase + groups * arrays + 2 * nand.data_time(NandOp::Read, 1).0);
    }
}

/// What happens to an array from outside.
#[derive(Debug, Clone, Copy)]
enum Step {
    Array(ChannelEvent),
    Submit(OpId),
    Wake(OpId),
}

const CLASSES: [OperationClass; OperationClass::COUNT] = [
    OperationClass::MapRead,
    OperationClass::Demand,
    OperationClass::Ahead,
    OperationClass::Move,
    OperationClass::MapProgram,
    OperationClass::Program,
    OperationClass::MoveProgram,
    OperationClass::Erase,
];

prop_compose! {
    fn any_operation(planes: u32)(
        class in 0..OperationClass::COUNT,
        plane in 0..planes,
        page in 0u32..3,
        bytes in 1u32..9,
        copy_back in any::<bool>(),
        blocked in any::<bool>(),
        limited in any::<bool>(),
    ) -> Operation {
        let class = CLASSES[class];
        let op = class.op();
        Operation {
            class, plane, page, limited,
            bytes: if op == NandOp::Erase { 0 } else { bytes * 512 },
            array_time: None,
            copy_back: copy_back && class == OperationClass::Move,
            // Only programs wait for another operation.
            blocked: blocked && op == NandOp::Program,
        }
    }
}

prop_compose! {
    fn any_shape()(
        channels in 1u32..4,
        targets_per_channel in 1u32..3,
        dies_per_target in 1u32..4,
        units in 1u32..4,
        planes_per_die in 1u32..4,
        registers in 1u32..3,
    ) -> Shape {
        let (dies_per_target, units) = if registers > 1 { (1, 1) } else { (dies_per_target, units) };
        Shape { channels, targets_per_channel, dies_per_target, units, planes_per_die, registers }
    }
}

prop_compose! {
    fn any_rules()(
        data_out in prop::sample::select(vec![DataOut::First, DataOut::Last, DataOut::AfterReads]),
        turns in any::<bool>(),
        pipelined in any::<bool>(),
        moves_before_programs in any::<bool>(),
        moves_first in any::<bool>(),
        suspend_program in prop::option::of(0u64..300_000_000),
        suspend_erase in prop::option::of(0u64..2_000_000_000),
        die_queue in 0u32..4,
        transfer_notices in any::<bool>(),
    ) -> Rules {
        Rules {
            data_out, turns, pipelined, moves_before_programs, moves_first, suspend_program, suspend_erase,
            die_queue, transfer_notices,
        }
    }
}

proptest! {
    #[test]
    fn an_array_of_any_shape_and_rules_does_everything_once_and_nothing_at_the_same_time(
        shape in any_shape(),
        rules in any_rules(),
        commands in any::<bool>(),
        ops in prop::collection::vec((0u64..3_000_000_000, 0u64..1_000_000_000, any_operation(6)), 1..120),
    ) {
        let planes = shape.channels * shape.targets_per_channel * shape.dies_per_target * shape.planes_per_die;
        let command = commands.then_some(Picos(300_000));
        let nand =
            Nand { read_command: command, program_command: command, erase_command: command, ..slc(1) };
        let ops: Vec<_> = ops
            .into_iter()
            .map(|(at, wait, op)| (at, wait, Operation { plane: op.plane % planes, ..op }))
            .collect();
        let mut array = Channels::with(&nand, shape, rules);
        let mut queue = EventQueue::new();
        for (id, (at, wait, op)) in (0..).zip(&ops) {
            queue.push(Picos(*at), Step::Submit(id));
            if op.blocked {
                queue.push(Picos(at + wait), Step::Wake(id));
            }
        }
        let mut done = vec![None; ops.len()];
        let mut last = 0;
        while let Some((Picos(now), step)) = queue.pop() {
            match step {
                Step::Array(event) => array.handle(event, now),
                Step::Submit(id) => array.submit_operation(id, ops[id as usize].2, now),
                Step::Wake(id) => array.wake(id, now),
            }
            for (time, event) in array.events.drain(..) {
                queue.push(Picos(time), Step::Array(event));
            }
            for notice in array.notices.drain(..) {
                if let Notice::Done(id) = notice {
                    prop_assert_eq!(done[id as usize].replace(now), None);
                    last = now;
                }
            }
            let registers = shape.registers * shape.dies_per_target;
            prop_assert!(array.targets.iter().all(|target| target.groups <= registers));
        }
        prop_assert_eq!(queue.late(), 0);
        prop_assert!(array.is_quiet());
        let bytes: u64 =
            ops.iter().filter(|op| !op.2.copy_back).map(|(.., op)| u64::from(op.bytes)).sum();
        prop_assert_eq!(array.bytes(), bytes);
        // Each bus and each array does one thing at a time.
        let dies = array.dies.len() as u64;
        prop_assert!(array.bus_busy() <= last * u64::from(shape.channels));
        prop_assert!(array.array_busy() <= last * dies);
        for ((at, wait, op), end) in ops.iter().zip(&done) {
            let from = if op.blocked { at + wait } else { *at };
            let work = nand.array_time(op.class.op()).0;
            prop_assert!(end.is_some_and(|end| end >= from + work), "{op:?} {from} {end:?}");
        }
    }
}
