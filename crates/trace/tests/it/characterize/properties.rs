//! Properties on random streams.

use deepram_trace::characterize::{
    Page, PageIndex, PageRange, Precedence, SpatialClass, SpatialClassifier, SpatialSetting, StackDistances,
};
use proptest::prelude::*;

use super::brute_force::{Request, spatial_classes, stack_distances};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn stack_distances_equal_a_list_that_is_searched(
        pages in prop::collection::vec((0u32..7, 0u32..900), 1..3000),
    ) {
        // Some pages are used often, most seldom.
        let pages: Vec<u32> = pages.into_iter().map(|(kind, page)| if kind < 3 { page % 8 } else { page }).collect();
        let mut stack = StackDistances::new();
        let ours: Vec<_> = pages.iter().map(|page| stack.touch(*page)).collect();
        prop_assert_eq!(ours, stack_distances(pages));
    }

    #[test]
    fn classes_equal_a_comparison_with_every_earlier_request(
        requests in prop::collection::vec((0u64..400, 0u32..40, any::<bool>(), 0u32..2), 1..300),
        spread in 1u64..2000,
        settings in prop::collection::vec((0u32..40, 1u32..80), 1..4),
        order in 0usize..6,
        same_direction in any::<bool>(),
    ) {
        let requests: Vec<Request> = requests
            .into_iter()
            .map(|(first, length, write, device)| {
                // Lengths from 1 page to 2^9, mostly short.
                let (first, length) = (first * spread, 1u64 << length.saturating_sub(30));
                let range = PageRange { device, first, last: first + length - 1 };
                Request { range, bytes: 1, write, time_ps: None }
            })
            .collect();
        let settings: Vec<_> =
            settings.into_iter().map(|(stride_pages, rod)| SpatialSetting { stride_pages, rod }).collect();
        let names = ["overlapped", "sequential", "strided"];
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let precedence: Precedence = orders[order].map(|at| names[at]).join(",").parse().unwrap();
        let mut classifier = SpatialClassifier::new(&settings, precedence, same_direction);
        for request in &requests {
            classifier.add(request.range, request.write);
        }
        for (setting, counts) in settings.iter().zip(classifier.counts()) {
            let classes = spatial_classes(&requests, *setting, precedence, same_direction);
            for class in SpatialClass::ALL {
                let count = |write| {
                    requests.iter().zip(&classes).filter(|(r, c)| r.write == write && **c == class).count() as u64
                };
                prop_assert_eq!(counts.read[class as usize], count(false), "reads, {:?}", class);
                prop_assert_eq!(counts.write[class as usize], count(true), "writes, {:?}", class);
            }
        }
    }

    #[test]
    fn an_index_numbers_pages_like_a_map_through_growth_and_removals(
        steps in prop::collection::vec((0u64..3000, 0u32..3, 0u8..4), 1..6000),
    ) {
        let mut index = PageIndex::new();
        let mut model = std::collections::HashMap::new();
        for (number, device, what) in steps {
            let page = Page { number: number << 20, device };
            if what == 0 {
                index.remove(page);
                model.remove(&page);
            } else {
                let id = index.number(page).unwrap();
                prop_assert_eq!(*model.entry(page).or_insert(id), id);
            }
            prop_assert_eq!(index.len() as usize, model.len());
        }
        let ids: std::collections::HashSet<_> = model.values().collect();
        prop_assert_eq!(ids.len(), model.len(), "each page has a number of its own");
    }
}

#[test]
fn stack_distances_hold_through_many_compactions_and_removals() {
    // More pages than the smallest bit vector has times, in loops of growing length with jumps.
    let mut stack = StackDistances::new();
    let mut pages = Vec::new();
    let mut state = 1u64;
    for round in 1..60u32 {
        for page in 0..round * 5 {
            state = deepram_trace::workload::mix64(state);
            pages.push(if state % 5 == 0 { (state >> 32) as u32 % 400 } else { page });
        }
    }
    for _ in 0..4 {
        let again = pages.clone();
        pages.extend(again);
    }
    assert!(pages.len() > 100_000);
    let ours: Vec<_> = pages.iter().map(|page| stack.touch(*page)).collect();
    assert_eq!(ours, stack_distances(pages));
    let before = stack.len();
    stack.remove(3);
    stack.remove(3);
    stack.remove(1 << 20);
    assert_eq!(stack.len(), before - 1);
    assert_eq!(stack.touch(3), None);
    assert_eq!(stack.touch(3), Some(0));
}
