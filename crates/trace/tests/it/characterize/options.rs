//! Options that are refused, and records at the edges.

use deepram_core::cache::Policy;
use deepram_trace::characterize::{
    CharacterizeError, CharacterizeOptions, Characterizer, OPTIMUM, Precedence, Sampling, SpatialSetting,
};
use deepram_trace::{Item, ObjectRef, Op, Request};

fn block(offset: u64, len: u64, op: Op) -> Item {
    Item::Block(Request { time_ps: None, device: 0, offset, len, op })
}

#[test]
fn wrong_options_are_refused_with_the_reason() {
    let base = CharacterizeOptions::default;
    let policies = vec![Policy::Lru];
    for (options, part) in [
        (CharacterizeOptions { page_bytes: 0, ..base() }, "page size is 0"),
        (CharacterizeOptions { window_requests: 0, ..base() }, "0 requests"),
        (CharacterizeOptions { address_window_requests: 0, ..base() }, "0 requests"),
        (CharacterizeOptions { sampling: Sampling::Rate(0.0), ..base() }, "above 0 and at most 1"),
        (CharacterizeOptions { sampling: Sampling::Rate(1.5), ..base() }, "above 0 and at most 1"),
        (CharacterizeOptions { sampling: Sampling::Rate(f64::NAN), ..base() }, "above 0 and at most 1"),
        (CharacterizeOptions { sampling: Sampling::Pages(63), ..base() }, "at least 64"),
        (
            CharacterizeOptions { sampling: Sampling::Pages(64), policies: policies.clone(), ..base() },
            "give a rate",
        ),
        (CharacterizeOptions { sampling: Sampling::Pages(64), optimum: true, ..base() }, "give a rate"),
        (CharacterizeOptions { optimum: true, cache_bytes: vec![], ..base() }, "no cache size"),
        (
            CharacterizeOptions { sampling: Sampling::Rate(0.1), write_only_stack: true, ..base() },
            "cannot be combined",
        ),
        (CharacterizeOptions { policies: policies.clone(), cache_bytes: vec![], ..base() }, "no cache size"),
        (
            CharacterizeOptions { policies: policies.clone(), cache_bytes: vec![8191], ..base() },
            "smaller than a page",
        ),
        (CharacterizeOptions { policies, cache_bytes: vec![1 << 60], ..base() }, "at most"),
    ] {
        let error = Characterizer::new(&options).err().expect(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_optimal_replacement_stands_behind_the_policies() {
    let pages = 8192;
    let options = CharacterizeOptions {
        page_bytes: pages,
        policies: vec![Policy::Lru],
        optimum: true,
        cache_bytes: vec![2 * pages],
        ..CharacterizeOptions::default()
    };
    let mut trace = Characterizer::new(&options).unwrap();
    // A loop over three pages in a cache of two.
    for page in (0..3).cycle().take(9) {
        trace.add(&block(page * pages, 1, if page == 0 { Op::Write } else { Op::Read })).unwrap();
    }
    let points = trace.finish().unwrap().policies;
    let figures: Vec<_> = points.iter().map(|p| (p.policy, p.capacity_pages, p.misses)).collect();
    assert_eq!(figures, [("lru", 2, 9), (OPTIMUM, 2, 6)]);
    assert_eq!((points[0].write, points[1].all), (Some(0.0), Some(1.0 - 6.0 / 9.0)));
}

#[test]
fn settings_and_orders_are_parsed_or_refused() {
    assert_eq!("16/64".parse(), Ok(SpatialSetting { stride_pages: 16, rod: 64 }));
    for text in ["", "2", "2/0", "2/4097", "x/1", "-1/1", "65537/1", "2/1/3", "2/"] {
        let error = text.parse::<SpatialSetting>().unwrap_err();
        assert!(error.contains("expected"), "{text}: {error}");
    }
    let order: Precedence = "strided, sequential,overlapped".parse().unwrap();
    assert_eq!(order.to_string(), "strided,sequential,overlapped");
    for text in ["", "overlapped", "overlapped,sequential,sequential", "random,sequential,strided", "a,b,c,d"]
    {
        assert!(text.parse::<Precedence>().is_err(), "{text}");
    }
}

#[test]
fn records_at_the_ends_of_the_address_space_are_characterised() {
    for page_bytes in [1, 512, 8192, u64::MAX] {
        let options = CharacterizeOptions { page_bytes, ..CharacterizeOptions::default() };
        let mut characterizer = Characterizer::new(&options).unwrap();
        for offset in [0, u64::MAX, 1 << 63, 0] {
            characterizer.add(&block(offset, 1, Op::Write)).unwrap();
            characterizer.add(&block(offset, 0, Op::Read)).unwrap();
        }
        characterizer.add(&block(0, 0, Op::Flush)).unwrap();
        characterizer.add(&block(0, 4096, Op::Trim)).unwrap();
        let object = ObjectRef { time_ps: Some(u64::MAX), id: u64::MAX, size: 0, op: Op::Read };
        characterizer.add(&Item::Object(object)).unwrap();
        let figures = characterizer.finish().unwrap();
        assert_eq!((figures.all.requests, figures.empty, figures.flushes, figures.trims), (5, 4, 1, 1));
    }
}

#[test]
fn a_request_of_too_many_pages_is_an_error_that_names_its_record() {
    let mut characterizer = Characterizer::new(&CharacterizeOptions::default()).unwrap();
    characterizer.add(&block(0, 1, Op::Read)).unwrap();
    let error = characterizer.add(&block(0, u64::MAX, Op::Read)).unwrap_err();
    assert!(matches!(error, CharacterizeError::RequestTooLong { record: 2, .. }), "{error}");
    assert!(error.to_string().contains("check the unit"), "{error}");
}

#[test]
fn a_trace_without_requests_has_no_shares() {
    let figures = Characterizer::new(&CharacterizeOptions::default()).unwrap().finish().unwrap();
    assert_eq!((figures.write_share, figures.times, figures.sizes.all), (None, None, None));
    assert!(figures.lru.is_empty() && figures.spatial.is_empty() && figures.working_sets.is_empty());
}
