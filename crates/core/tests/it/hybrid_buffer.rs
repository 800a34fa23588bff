//! The hybrid write buffer against a plain model of it, over random streams and options.

use deepram_core::hybrid_buffer::{
    BufferAction, BufferWrite, Coolness, Hotness, HybridBuffer, HybridOptions, Memory, Scheme,
};
use deepram_core::migration::{CoolnessForm, ExpectedWrites, FilterDecay, HotnessForm};
use proptest::prelude::*;

use crate::hybrid_model::ModelBuffer;

/// Options with a filter so large that it never errs on these streams.
fn options(scheme: Scheme) -> HybridOptions {
    HybridOptions {
        scheme,
        dram_pages: 3,
        pcm_pages: 6,
        page_sectors: 4,
        period: 16,
        reads_end_periods: false,
        hotness: Hotness::Adaptive(HotnessForm::Corrected),
        coolness: Coolness::Adaptive(CoolnessForm::Corrected),
        endurance_ratio: 0.8,
        expected: ExpectedWrites::OfActual,
        decay: FilterDecay::Reset,
        filter_bytes: 1 << 17,
        filter_hashes: 4,
        promoting_write: Memory::Dram,
        write_hit_moves: false,
        move_resets_count: false,
        fetch_on_write: false,
    }
}

prop_compose! {
    fn any_options()(
        scheme in prop::sample::select(vec![
            Scheme::DramOnly, Scheme::PcmOnly, Scheme::TwoLevel, Scheme::ToSsd, Scheme::ToPcm,
        ]),
        (dram_pages, pcm_pages, period) in (1u32..8, 1u32..12, 4u32..40),
        hotness in prop::sample::select(vec![
            Hotness::Adaptive(HotnessForm::Corrected),
            Hotness::Adaptive(HotnessForm::Literal),
            Hotness::Scaled(HotnessForm::Corrected),
            Hotness::Fixed(2),
            Hotness::Fixed(5),
        ]),
        coolness in prop::sample::select(vec![
            Coolness::Adaptive(CoolnessForm::Corrected), Coolness::Adaptive(CoolnessForm::Literal), Coolness::Off,
        ]),
        ratio in prop::sample::select(vec![0.1, 0.8, 4.5]),
        flags in any::<[bool; 7]>(),
    ) -> HybridOptions {
        HybridOptions {
            dram_pages, pcm_pages, period, hotness, coolness,
            endurance_ratio: ratio,
            reads_end_periods: flags[0],
            expected: if flags[1] { ExpectedWrites::OfPeriod } else { ExpectedWrites::OfActual },
            decay: if flags[2] { FilterDecay::Shift } else { FilterDecay::Reset },
            promoting_write: if flags[3] { Memory::Pcm } else { Memory::Dram },
            write_hit_moves: flags[4],
            move_resets_count: flags[5],
            fetch_on_write: flags[6],
            ..options(scheme)
        }
    }
}

/// The buffer holds the same lines with the same counts and sectors as the model.
fn assert_same_state(buffer: &HybridBuffer, model: &ModelBuffer) {
    for (memory, lines) in [Memory::Dram, Memory::Pcm].into_iter().zip(&model.lines) {
        assert_eq!(buffer.pages_in(memory), lines.len());
        for line in lines {
            let found = buffer.page(line.page).expect("a page of the model");
            assert_eq!((found.memory, found.count, found.sectors), (memory, line.count, line.sectors));
        }
        let dirty: u32 = lines.iter().map(|line| line.sectors.count_ones()).sum();
        assert_eq!(buffer.dirty_sectors(memory), u64::from(dirty));
    }
    let thresholds = buffer.thresholds();
    assert_eq!(thresholds.hotness, model.hot.threshold);
    assert_eq!((thresholds.coolness, thresholds.closed), (model.cool.threshold, model.cool.closed));
    assert!((buffer.write_disparity() - model.cool.disparity).abs() < 1e-9);
}

proptest! {
    #[test]
    fn every_action_and_state_is_that_of_the_plain_model(
        options in any_options(),
        stream in prop::collection::vec((0u64..40, 1u32..16, 0u8..4), 0..600),
    ) {
        let mut buffer = HybridBuffer::new(&options);
        let mut model = ModelBuffer::new(&options);
        let mut actions = Vec::new();
        for (page, sectors, kind) in stream {
            // Small page numbers are frequent.
            let page = if page % 3 == 0 { page % 7 } else { page };
            if kind == 0 {
                prop_assert_eq!(buffer.read(page, sectors), model.read(page, sectors));
            } else {
                let predicted = buffer.write_destages(page);
                let was = buffer.page(page).map(|page| page.memory);
                actions.clear();
                let outcome = buffer.write(page, sectors, &mut actions);
                prop_assert_eq!(&actions, &model.write(page, sectors));
                let destaged =
                    actions.iter().filter(|action| matches!(action, BufferAction::Destage { .. })).count();
                prop_assert_eq!(destaged, usize::from(predicted), "{:?}", actions);
                let expected = match (was, actions.contains(&BufferAction::Bypass)) {
                    (Some(memory), _) => BufferWrite::Hit(memory),
                    (None, true) => BufferWrite::Bypassed,
                    (None, false) => BufferWrite::Filled(buffer.page(page).expect("the page").memory),
                };
                prop_assert_eq!(outcome, expected);
            }
            assert_same_state(&buffer, &model);
        }
    }

    #[test]
    fn evictions_without_a_write_and_discards_leave_the_other_pages_as_they_were(
        options in any_options(),
        stream in prop::collection::vec((0u64..30, 0u8..8), 0..200),
    ) {
        let mut buffer = HybridBuffer::new(&options);
        let mut actions = Vec::new();
        for (page, kind) in stream {
            actions.clear();
            let before = buffer.len();
            match kind {
                0 => {
                    let held = buffer.page(page).is_some();
                    prop_assert_eq!(buffer.discard(page), held);
                    prop_assert!(buffer.page(page).is_none());
                    prop_assert_eq!(buffer.len(), before - usize::from(held));
                }
                1 => {
                    let dram = buffer.pages_in(Memory::Dram);
                    buffer.evict(Memory::Dram, &mut actions);
                    prop_assert_eq!(buffer.pages_in(Memory::Dram), dram.saturating_sub(1));
                    let destaged = actions.iter().filter(|action| matches!(action, BufferAction::Destage { .. }));
                    prop_assert_eq!(before - buffer.len(), destaged.count());
                }
                _ => {
                    buffer.write(page, 0b11, &mut actions);
                }
            }
            prop_assert!(buffer.pages_in(Memory::Dram) <= options.dram_pages as usize);
            prop_assert!(buffer.pages_in(Memory::Pcm) <= options.pcm_pages as usize);
        }
    }
}

#[test]
fn a_hot_page_moves_to_dram_and_its_victim_goes_where_the_scheme_says() {
    for (scheme, expected) in [
        (Scheme::ToSsd, BufferAction::Destage { page: 0, sectors: 0b1111, from: Memory::Dram }),
        (Scheme::ToPcm, BufferAction::Demote { sectors: 0b1111 }),
    ] {
        let options = HybridOptions {
            hotness: Hotness::Fixed(2),
            coolness: Coolness::Off,
            dram_pages: 1,
            ..options(scheme)
        };
        let mut buffer = HybridBuffer::new(&options);
        let mut actions = Vec::new();
        buffer.write(0, 0b0011, &mut actions);
        assert_eq!(actions, [BufferAction::Write(Memory::Pcm)]);
        actions.clear();
        buffer.write(0, 0b1100, &mut actions);
        assert_eq!(actions, [BufferAction::Write(Memory::Dram), BufferAction::Promote { sectors: 0b0011 }]);
        buffer.write(1, 0b1111, &mut actions);
        actions.clear();
        buffer.write(1, 0b0001, &mut actions);
        let moved = BufferAction::Promote { sectors: 0b1111 };
        assert_eq!(actions, [expected, BufferAction::Write(Memory::Dram), moved], "{scheme:?}");
    }
}

#[test]
fn memory_is_bounded_by_the_capacity_whatever_comes() {
    let options =
        HybridOptions { dram_pages: 100, pcm_pages: 900, filter_bytes: 1024, ..options(Scheme::ToPcm) };
    let mut buffer = HybridBuffer::new(&options);
    let mut actions = Vec::new();
    let mut after_fill = 0;
    for step in 0..200_000u64 {
        actions.clear();
        buffer.write(step * 7919 % 50_000, 1, &mut actions);
        buffer.write(step % 50, 1, &mut actions);
        if step == 20_000 {
            after_fill = buffer.memory_bytes();
        }
    }
    assert_eq!(buffer.memory_bytes(), after_fill);
    assert!(after_fill < 1000 * 64 + 8 * 1024, "{after_fill}");
}
