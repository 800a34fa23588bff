//! Volumes against a model of the state that every token must see, with random sequences of all operations.

use crate::rig::{Op, Rig, config, op, seen};
use deepram_core::{Retention, SegmentSize, VolumeConfig};
use proptest::prelude::*;

fn worn() -> impl Strategy<Value = Vec<(u32, u16)>> {
    prop::collection::vec((0..32u32, 0..64u16), 0..60)
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..70)
}

fn retention() -> impl Strategy<Value = Retention> {
    prop_oneof![(1..6u32).prop_map(Retention::KeepLast), (0..60u64).prop_map(Retention::Segments)]
}

fn run(config: VolumeConfig, worn: &[(u32, u16)], ops: &[Op]) {
    let mut rig = Rig::new(config, worn, true);
    for op in ops {
        rig.step(op);
        rig.verify();
    }
    rig.prune(usize::MAX);
    rig.verify();
}

proptest! {
    #[test]
    fn every_token_sees_its_state_with_4_kib_segments(ops in ops(), worn in worn(), retention in retention()) {
        run(VolumeConfig { retention, ..config(SegmentSize::K4) }, &worn, &ops);
    }

    #[test]
    fn every_token_sees_its_state_with_8_kib_segments(ops in ops(), worn in worn(), retention in retention()) {
        run(VolumeConfig { retention, ..config(SegmentSize::K8) }, &worn, &ops);
    }

    #[test]
    fn every_token_sees_its_state_with_16_kib_segments(ops in ops(), worn in worn(), retention in retention()) {
        run(VolumeConfig { retention, ..config(SegmentSize::K16) }, &worn, &ops);
    }

    #[test]
    fn without_room_for_older_versions_what_does_not_fit_changes_nothing(ops in ops()) {
        run(VolumeConfig { upper: 0, ..config(SegmentSize::K8) }, &[], &ops);
    }

    #[test]
    fn a_device_that_is_full_keeps_what_it_has(ops in ops(), blocks in 1..5u32) {
        run(VolumeConfig { blocks, ..config(SegmentSize::K4) }, &[], &ops);
    }

    #[test]
    fn what_tokens_see_does_not_depend_on_when_pruning_runs(
        ops in ops(),
        size in prop::sample::select(vec![SegmentSize::K4, SegmentSize::K8, SegmentSize::K16]),
        schedule in prop::collection::vec(0..4usize, 1..20),
    ) {
        // Stamps never run out and no block is reused, so every log can be replayed.
        let config = VolumeConfig { blocks: 2000, stamp_limit: 1 << 20, ..config(size) };
        let mut rig = Rig::new(config, &[], false);
        for op in ops.iter().filter(|op| !matches!(op, Op::Renumber | Op::Restore(_))) {
            rig.step(op);
        }
        let expected = seen(&rig.volume);
        for schedule in [&schedule[..], &[0], &[usize::MAX]] {
            let mut replayed = rig.replayed(schedule);
            prop_assert_eq!(&seen(&replayed), &expected);
            while replayed.prune_step(usize::MAX).unwrap() > 0 {}
            rig.prune(usize::MAX);
            prop_assert_eq!(&seen(&replayed), &expected);
            prop_assert_eq!(&seen(&rig.volume), &expected);
            prop_assert_eq!(replayed.blocks().infos(), rig.volume.blocks().infos());
            prop_assert_eq!(replayed.check().unwrap(), []);
        }
    }
}
