//! The reliability policy and its tables: against a direct transcription of the rules, and in size.

use deepram_core::disk_cache::{DiskCache, NoErrors};
use deepram_core::reliability::*;
use proptest::prelude::*;

use crate::disk_cache::options;

/// A policy with the times of the paper's flash, in picoseconds.
pub(crate) fn policy(controller: Controller) -> ReliabilityPolicy {
    let us = 1_000_000;
    ReliabilityPolicy {
        controller,
        strength: 1,
        strongest: 12,
        density: Density::Mlc,
        margin: 1,
        hot_limit: Some(64),
        retirement: Retirement::Block,
        weights: WearWeights { strength: 0.1, single: 0.5 },
        wear_difference: None,
        times: AccessTimes {
            mlc: 50 * us,
            slc: 25 * us,
            disk: 4_200 * us,
            decode: (0..=12).map(|t| (26_900 + 31_100 * t) * 1_000).collect(),
        },
    }
}

/// A page of this strength and density.
fn status(strength: u8, density: Density, reads: u16) -> PageStatus {
    let mut table = PageStatusTable::new(2, strength, density);
    table.fill(FlashPage(0), false, reads);
    table.get(FlashPage(0))
}

/// The rules of trigger 1 in floating point, as section 3.3 and the header of the policy state them.
fn transcribed(policy: &ReliabilityPolicy, page: PageStatus, faults: u32, seen: Activity) -> Reconfiguration {
    if policy.controller == Controller::Fixed {
        return if faults > page.strength().into() { Reconfiguration::Retire } else { Reconfiguration::Keep };
    }
    let wanted = faults + u32::from(policy.margin);
    if faults == 0 || wanted <= page.strength().into() {
        return Reconfiguration::Keep;
    }
    let at_limit = wanted > policy.strongest.into();
    if page.density() == Density::Slc {
        return if at_limit { Reconfiguration::Retire } else { Reconfiguration::Strengthen(wanted as u8) };
    }
    if at_limit {
        return Reconfiguration::ToSlc;
    }
    let decode = |strength: u32| policy.times.decode[strength as usize] as f64;
    let reads = f64::from(seen.reads);
    let wear = 1.0 + f64::from(wanted) / f64::from(policy.strongest);
    let code = reads * (decode(wanted) - decode(page.strength().into())) * wear;
    let lost_page = seen.misses as f64 / seen.pages as f64 * policy.times.disk as f64;
    let single = lost_page - reads * (policy.times.mlc - policy.times.slc) as f64;
    if single < code { Reconfiguration::ToSlc } else { Reconfiguration::Strengthen(wanted as u8) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn trigger_1_is_the_transcribed_rule(
        strength in 1u8..=12,
        slc in any::<bool>(),
        fixed in any::<bool>(),
        faults in 0u32..20,
        margin in 0u8..3,
        reads in 0u16..200,
        misses in 0u64..100_000,
        pages in 1u64..10_000,
    ) {
        let controller = if fixed { Controller::Fixed } else { Controller::Programmable };
        let policy = ReliabilityPolicy { margin, ..policy(controller) };
        let density = if slc { Density::Slc } else { Density::Mlc };
        let seen = Activity { reads, misses, pages };
        let page = status(strength, density, reads);
        let expected = transcribed(&policy, page, faults, seen);
        prop_assert_eq!(policy.reconfigure(page, faults, seen), expected);
    }
}

#[test]
fn a_hot_page_gets_single_level_cells_and_a_cold_one_a_stronger_code() {
    let policy = policy(Controller::Programmable);
    let seen = |reads| Activity { reads, misses: 1000, pages: 10_000 };
    let page = |reads| status(1, Density::Mlc, reads);
    assert_eq!(policy.reconfigure(page(0), 1, seen(0)), Reconfiguration::Strengthen(2));
    assert_eq!(policy.reconfigure(page(100), 1, seen(100)), Reconfiguration::ToSlc);
    // Transient errors, which are not consistent, change nothing.
    assert_eq!(policy.reconfigure(page(100), 0, seen(100)), Reconfiguration::Keep);
    assert!(policy.is_suspect(page(0), 1) && !policy.is_suspect(page(0), 0));
    assert!(
        policy.is_hot(page(64)) && !policy.is_hot(page(63)) && !policy.is_hot(status(1, Density::Slc, 99))
    );
}

#[test]
fn wear_is_erases_plus_weighted_strength_and_single_level_slots() {
    let mut blocks = BlockStatusTable::new(2, 8);
    let weights = WearWeights { strength: 0.25, single: 2.0 };
    let block = blocks.open(Region::Read).unwrap();
    blocks.add_strength(block, 3);
    blocks.add_strength(block, 1);
    blocks.change_single(block, 2);
    assert_eq!(blocks.wear(block, weights), 1.0 + 0.25 * 4.0 + 2.0 * 2.0);
}

#[test]
fn the_four_tables_take_less_than_two_percent_of_the_flash() {
    for (blocks, slots) in [(512, 64), (4096, 64), (1024, 256)] {
        let mut cache = DiskCache::new(&options(1024, blocks, slots, Some(0.1))).unwrap();
        let pages = FlashShape { blocks, slots }.pages();
        let mut steps = Vec::new();
        // Full of data.
        for page in 0..pages + 1000 {
            cache.read(page, &mut NoErrors, &mut steps);
            steps.clear();
        }
        let share = cache.flash().table_bytes() as f64 / (f64::from(pages) * 2048.0);
        assert!(share < 0.02 && share > 0.005, "{blocks} blocks of {slots} slots: {share}");
        assert!(f64::from(cache.flash().len()) > 0.85 * f64::from(pages), "{}", cache.flash().len());
    }
}
