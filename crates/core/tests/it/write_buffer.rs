//! Every write-buffer policy against a plain one, and against the examples of the publications.

use std::collections::{BTreeMap, BTreeSet};

use crate::write_buffer_models::plain;
use deepram_core::cache::{self, AccessOutcome, Replacement};
use deepram_core::hybrid_buffer::{
    BufferAction, BufferRead, BufferWrite, Coolness, Hotness, HybridBuffer, HybridOptions, Memory, Scheme,
};
use deepram_core::migration::{ExpectedWrites, FilterDecay};
use deepram_core::write_buffer::{
    Bplru, BufferAccess, Cflru, Evicted, Fab, Lru, PageState, SectorBuffer, WriteBuffer, WriteBufferOptions,
    WriteBufferPolicy,
};
use proptest::prelude::*;

/// Pages of the random streams.
const PAGES: u64 = 160;

#[derive(Debug, Clone)]
enum Step {
    Write(u64),
    Read(u64),
    /// Writes of this number of pages, in order.
    Run(u64, u64),
    Discard(u64),
    /// An eviction on the driver's demand, if the buffer is full.
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Half of the accesses go to a tenth of the pages, so that pages and blocks are used again.
    let page = || prop_oneof![0..PAGES / 10, 0..PAGES];
    let step = prop_oneof![
        20 => page().prop_map(Step::Write),
        20 => page().prop_map(Step::Read),
        3 => (0..PAGES, 1..12u64).prop_map(|(first, count)| Step::Run(first, count)),
        2 => page().prop_map(Step::Discard),
        1 => Just(Step::Evict),
    ];
    prop::collection::vec(step, 0..600)
}

fn options() -> impl Strategy<Value = WriteBufferOptions> {
    (
        prop_oneof![0..10usize, 10..60usize],
        prop_oneof![6 => 0..10u32, 1 => 60..70u32, 1 => 128..140u32],
        prop_oneof![2 => Just(None), 1 => any::<bool>().prop_map(Some)],
        prop::option::of(0..62usize),
        any::<bool>(),
    )
        .prop_map(|(capacity, block, keep_reads, window, padding)| WriteBufferOptions {
            keep_reads,
            clean_first_pages: window,
            padding,
            ..WriteBufferOptions::new(capacity, block)
        })
}

/// Runs the policy and its plain counterpart; every answer and the states of all pages must be equal. At the
/// end the buffer is emptied, and every dirty page must come out once.
fn same(
    policy: WriteBufferPolicy,
    options: &WriteBufferOptions,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut buffer = policy.build(options);
    let mut model = plain(policy, options);
    let (mut evicted, mut expected) = (Evicted::default(), Evicted::default());
    for (n, step) in steps.iter().enumerate() {
        let accesses = match *step {
            Step::Write(page) => vec![(page, true)],
            Step::Read(page) => vec![(page, false)],
            Step::Run(first, count) => (first..first + count).map(|page| (page, true)).collect(),
            Step::Discard(page) => {
                prop_assert_eq!(buffer.discard(page), model.discard(page), "step {} {:?}", n, step);
                vec![]
            }
            Step::Evict => {
                if buffer.len() == buffer.capacity() {
                    buffer.evict(&mut evicted);
                    model.evict(&mut expected);
                }
                vec![]
            }
        };
        for (page, write) in accesses {
            let outcome =
                if write { buffer.write(page, &mut evicted) } else { buffer.read(page, &mut evicted) };
            prop_assert_eq!(outcome, model.access(page, write, &mut expected), "step {} {:?}", n, step);
        }
        prop_assert_eq!(&evicted, &expected, "{} step {} {:?}", policy, n, step);
        evicted.clear();
        expected.clear();
        let held = model.pages();
        prop_assert_eq!(buffer.len(), held.len(), "step {} {:?}", n, step);
        let dirty = held.iter().filter(|(_, dirty)| *dirty).count();
        prop_assert_eq!(buffer.dirty_len(), dirty, "step {} {:?}", n, step);
        prop_assert!(buffer.len() <= buffer.capacity() && buffer.is_empty() == held.is_empty());
    }
    let mut dirty: Vec<u64> =
        (0..2 * PAGES).filter(|page| buffer.state(*page) == Some(PageState::Dirty)).collect();
    for page in 0..2 * PAGES {
        prop_assert_eq!(buffer.state(page), model.state(page), "page {}", page);
    }
    while !buffer.is_empty() {
        buffer.evict(&mut evicted);
    }
    buffer.evict(&mut evicted);
    // A padded block is written whole, its clean pages too.
    evicted.writes.retain(|page| model.state(*page) == Some(PageState::Dirty));
    evicted.writes.sort_unstable();
    dirty.sort_unstable();
    prop_assert_eq!((evicted.writes, buffer.dirty_len()), (dirty, 0));
    Ok(())
}

macro_rules! against_model {
    ($($name:ident: $policy:ident;)*) => { proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        $(
            #[test]
            fn $name(steps in steps(), options in options()) {
                same(WriteBufferPolicy::$policy, &options, &steps)?;
            }
        )*
    } };
}

against_model! {
    lru_evicts_what_the_plain_list_does: Lru;
    cflru_evicts_what_the_plain_list_does: Cflru;
    lru_wsr_evicts_what_the_plain_list_does: LruWsr;
    ccf_lru_evicts_what_the_plain_lists_do: CcfLru;
    fab_evicts_what_the_plain_groups_do: Fab;
    bplru_evicts_what_the_plain_groups_do: Bplru;
}

/// Applies `(page, write)` in order; returns all that was evicted.
fn apply(buffer: &mut impl WriteBuffer, accesses: impl IntoIterator<Item = (u64, bool)>) -> Evicted {
    let mut evicted = Evicted::default();
    for (page, write) in accesses {
        if write {
            buffer.write(page, &mut evicted)
        } else {
            buffer.read(page, &mut evicted)
        };
    }
    evicted
}

fn writes(pages: impl IntoIterator<Item = u64>) -> impl Iterator<Item = (u64, bool)> {
    pages.into_iter().map(|page| (page, true))
}

#[test]
fn cflru_evicts_clean_pages_of_the_window_first_then_dirty_ones() {
    // The publication's example: P8 is the oldest page; P6 and P8 are dirty; the window holds P5 to P8.
    let mut cflru =
        Cflru::new(&WriteBufferOptions { clean_first_pages: Some(4), ..WriteBufferOptions::new(8, 1) });
    apply(&mut cflru, (1..9).rev().map(|page| (page, page == 6 || page == 8)));
    let mut order: Vec<u64> = vec![];
    for _ in 0..4 {
        let mut evicted = Evicted::default();
        cflru.evict(&mut evicted);
        order.extend(evicted.dropped.iter().chain(&evicted.writes));
    }
    assert_eq!(order, [7, 5, 8, 6]);
}

#[test]
fn lru_misses_as_often_as_the_replacement_policy_of_that_name() {
    let mut state = 42_u64;
    let mut buffer =
        Lru::new(&WriteBufferOptions { keep_reads: Some(true), ..WriteBufferOptions::new(100, 64) });
    let mut policy = cache::Lru::<u64>::new(100);
    let mut evicted = Evicted::default();
    for _ in 0..100_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (state >> 33) % 128 * ((state >> 45) % 128);
        let outcome =
            if state >> 63 == 0 { buffer.read(page, &mut evicted) } else { buffer.write(page, &mut evicted) };
        assert_eq!(outcome == BufferAccess::Hit, policy.access(page) == AccessOutcome::Hit);
    }
    assert!(!evicted.writes.is_empty() && !evicted.dropped.is_empty() && evicted.padding.is_empty());
}

#[test]
fn fab_evicts_the_largest_block_and_of_equals_the_one_used_least_recently() {
    let mut fab = Fab::new(&WriteBufferOptions::new(6, 4));
    // Block 0 has two pages, block 1 three (one of them clean), block 2 one.
    apply(&mut fab, [(4, true), (5, false), (7, true), (0, true), (1, true), (8, true)]);
    let evicted = apply(&mut fab, writes([12]));
    assert_eq!(evicted, Evicted { writes: vec![4, 7], dropped: vec![5], padding: vec![] });
    // Blocks 0 and 2 have two pages each. A read of block 0 leaves block 2 as the least recently used.
    apply(&mut fab, [(9, true), (0, false), (16, true)]);
    assert_eq!(apply(&mut fab, writes([20])).writes, [8, 9]);
}

#[test]
fn bplru_pads_the_least_recently_written_block_and_evicts_a_stream_first() {
    let mut bplru = Bplru::new(&WriteBufferOptions::new(6, 4));
    apply(&mut bplru, writes([1, 4]));
    // A read neither keeps its page nor changes the order.
    assert_eq!(apply(&mut bplru, [(1, false), (2, false)]), Evicted::default());
    assert_eq!(bplru.state(2), None);
    // Blocks 0 and 1 are older, but block 2 is written from end to end.
    let evicted = apply(&mut bplru, writes([8, 9, 10, 11, 12]));
    assert_eq!(evicted, Evicted { writes: vec![8, 9, 10, 11], ..Evicted::default() });
    // Out of order it is no stream: block 0 leaves, with its other pages as padding.
    let evicted = apply(&mut bplru, writes([17, 16, 18, 19]));
    assert_eq!(evicted, Evicted { writes: vec![1], padding: vec![0, 2, 3], dropped: vec![] });
}

#[test]
fn memory_is_bounded_by_the_capacity_whatever_comes() {
    // Bytes for each page of capacity: key, index and lists; the block policies also have two bits for each
    // page of a block, and at most as many blocks as pages.
    let capacity = 5_000;
    for (policy, bytes) in WriteBufferPolicy::ALL.into_iter().zip([41, 41, 41, 41, 41 + 150, 41 + 100]) {
        let mut buffer = policy.build(&WriteBufferOptions::new(capacity, 256));
        let mut evicted = Evicted::default();
        for key in 0..200_000_u64 {
            let page = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            buffer.write(page, &mut evicted);
            buffer.read(page ^ 1, &mut evicted);
            evicted.clear();
        }
        assert!(buffer.len() > capacity / 2 && buffer.len() <= capacity, "{policy}");
        let limit = bytes * capacity + 4096;
        assert!(buffer.memory_bytes() <= limit, "{policy}: {} of {limit} bytes", buffer.memory_bytes());
        assert!(policy.build(&WriteBufferOptions::new(usize::MAX, 256)).memory_bytes() < 3000, "{policy}");
    }
}

#[test]
fn the_largest_page_numbers_are_evicted_without_padding_beyond_them() {
    for policy in WriteBufferPolicy::ALL {
        let mut buffer = policy.build(&WriteBufferOptions::new(2, 7));
        let mut evicted = Evicted::default();
        buffer.write(u64::MAX, &mut evicted);
        buffer.evict(&mut evicted);
        assert_eq!(evicted.writes, [u64::MAX], "{policy}");
        let first = u64::MAX / 7 * 7;
        let padding = if policy == WriteBufferPolicy::Bplru { (first..u64::MAX).collect() } else { vec![] };
        assert_eq!(evicted.padding, padding, "{policy}");
    }
}

/// A hybrid buffer of DRAM alone.
fn dram_only(dram_pages: u32, fetch_on_write: bool) -> HybridBuffer {
    HybridBuffer::new(&HybridOptions {
        scheme: Scheme::DramOnly,
        dram_pages,
        pcm_pages: 1,
        page_sectors: 4,
        period: 16,
        reads_end_periods: false,
        hotness: Hotness::Fixed(1),
        coolness: Coolness::Off,
        endurance_ratio: 1.0,
        expected: ExpectedWrites::OfActual,
        decay: FilterDecay::Reset,
        filter_bytes: 8,
        filter_hashes: 1,
        promoting_write: Memory::Dram,
        write_hit_moves: false,
        move_resets_count: false,
        fetch_on_write,
    })
}

proptest! {
    /// Sectors, fetches and destages under LRU are those of the hybrid buffer, which shares no code with it
    /// but the lists. A read of sectors that are not valid is a use of its page here only, so reads ask for
    /// pages that are whole or absent.
    #[test]
    fn lru_with_sectors_acts_as_a_hybrid_buffer_of_dram_alone(
        stream in prop::collection::vec((0..12u64, 1..16u32, 0..8u8), 0..400),
        capacity in 1..9u32,
        fetch in any::<bool>(),
    ) {
        let mut hybrid = dram_only(capacity, fetch);
        let pages = WriteBufferPolicy::Lru.build(&WriteBufferOptions::new(capacity as usize, 4));
        let mut policy = SectorBuffer::new(pages, 4, fetch);
        let (mut ours, mut expected) = (vec![], vec![]);
        for (page, sectors, kind) in stream {
            match kind {
                0 => prop_assert_eq!(policy.discard(page), hybrid.discard(page)),
                1 | 2 if hybrid.page(page).is_none_or(|held| held.sectors & sectors != 0) => {
                    prop_assert_eq!(policy.read(page, sectors, &mut ours), hybrid.read(page, sectors));
                }
                _ => {
                    let predicted = policy.write_evicts(page);
                    prop_assert_eq!(predicted, hybrid.write_destages(page));
                    let outcome = policy.write(page, sectors, &mut ours);
                    prop_assert_eq!(outcome, hybrid.write(page, sectors, &mut expected));
                }
            }
            // The order of a fetch and a destage is the same, too.
            prop_assert_eq!(&ours, &expected);
            prop_assert_eq!(policy.dirty_sectors(), hybrid.dirty_sectors(Memory::Dram));
            prop_assert_eq!((policy.len(), policy.contains(page)), (hybrid.len(), hybrid.page(page).is_some()));
            ours.clear();
            expected.clear();
        }
    }

    /// Under every policy, the dirty sectors are those of the dirty pages, counted page by page.
    #[test]
    fn dirty_sectors_are_those_that_a_plain_map_counts(
        stream in prop::collection::vec((0..24u64, 1..16u32, 0..8u8), 0..400),
        policy in prop::sample::select(WriteBufferPolicy::ALL.to_vec()),
        fetch in any::<bool>(),
    ) {
        let mut buffer = SectorBuffer::new(policy.build(&WriteBufferOptions::new(6, 4)), 4, fetch);
        let mut dirty = BTreeMap::new();
        let mut clean = BTreeSet::new();
        let mut actions = vec![];
        for (page, sectors, kind) in stream {
            match kind {
                0 => {
                    buffer.discard(page);
                    dirty.remove(&page);
                    clean.remove(&page);
                }
                1..=3 => {
                    if buffer.read(page, sectors, &mut actions) == BufferRead::Filled(Memory::Dram) {
                        clean.insert(page);
                    }
                }
                _ => {
                    let hit = matches!(buffer.write(page, sectors, &mut actions), BufferWrite::Hit(_));
                    let valid = match dirty.get(&page) {
                        Some(valid) if hit => valid | sectors,
                        _ if hit || fetch => 0b1111,
                        _ => sectors,
                    };
                    clean.remove(&page);
                    // A victim of this write that is the page itself cannot be: it was not in the buffer.
                    dirty.insert(page, valid);
                }
            }
            for action in actions.drain(..) {
                match action {
                    BufferAction::Destage { page, sectors, .. } => {
                        prop_assert_eq!(dirty.remove(&page), Some(sectors));
                    }
                    BufferAction::Drop { page } => prop_assert!(clean.remove(&page)),
                    BufferAction::Pad { page } => prop_assert!(policy == WriteBufferPolicy::Bplru && page < 24),
                    BufferAction::Fetch { .. } => prop_assert!(fetch),
                    other => prop_assert_eq!(other, BufferAction::Write(Memory::Dram)),
                }
            }
            let count: u32 = dirty.values().map(|valid: &u32| valid.count_ones()).sum();
            prop_assert_eq!(buffer.dirty_sectors(), u64::from(count));
            prop_assert_eq!((buffer.dirty_pages(), buffer.len()), (dirty.len(), dirty.len() + clean.len()));
        }
    }
}
