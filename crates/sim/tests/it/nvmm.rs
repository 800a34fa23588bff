//! Flash main memory: closed forms, the cache against a reference, conservation over random
//! configurations, versions of lines through eviction, reclamation, sync and rollback.

use deepram_core::Epoch;
use deepram_core::cache::SetAssociative;
use deepram_media::{Bytes, NandOp, Nvmm, Picos, Registry};
use deepram_sim::SimError;
use deepram_sim::flash::FlashCounts;
use deepram_sim::host::{Command, Context, Device, HostOptions, HostResult, Slot, drive};
use deepram_sim::nvmm::{NvmmEvent, NvmmMemory, NvmmOptions, Prefetch};
use deepram_trace::{Op, Request};
use proptest::prelude::*;

/// 2 channels, 4 planes, 64 blocks of 256 KiB in each: 64 MiB.
const SMALL: [&str; 6] = [
    "channels=2",
    "packages_per_channel=1",
    "stripe=2",
    "spare=25%",
    "nand.blocks_per_plane=64",
    "nand.capacity=32MiB",
];
const SEGMENT: u64 = 4096;

fn preset(name: &str, extra: &[&str]) -> Nvmm {
    let set: Vec<&str> = SMALL.into_iter().chain(extra.iter().copied()).collect();
    Registry::builtin().unwrap().get_with(name, &set).unwrap()
}

fn options() -> NvmmOptions {
    NvmmOptions {
        cache: Bytes(1 << 20),
        critical_first: true,
        write_back_above: 1.0,
        verify: true,
        ..NvmmOptions::default()
    }
}

fn request(op: Op, offset: u64, len: u64) -> Request {
    Request { time_ps: None, device: 0, offset, len, op }
}

fn at(time_us: u64, request: Request) -> Request {
    Request { time_ps: Some(time_us * 1_000_000), ..request }
}

fn apply(memory: &mut NvmmMemory, requests: &[Request], host: &HostOptions) -> Result<HostResult, SimError> {
    drive(memory, requests.iter().copied().map(Ok), host)
}

/// The memory without the reset of its counters after the warm-up.
struct Whole<'a>(&'a mut NvmmMemory);

impl Device for Whole<'_> {
    type Event = NvmmEvent;

    fn capacity(&self) -> Bytes {
        self.0.capacity()
    }

    fn queue_limit(&self) -> u64 {
        self.0.queue_limit()
    }

    fn submit(
        &mut self,
        slot: Slot,
        command: Command,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        self.0.submit(slot, command, context)
    }

    fn handle(&mut self, event: NvmmEvent, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        self.0.handle(event, context)
    }

    fn counts(&self) -> FlashCounts {
        self.0.counts()
    }

    fn check(&self) -> Result<(), SimError> {
        self.0.check()
    }
}

/// Returns the response time of the last request, picoseconds.
fn last_response(memory: &mut NvmmMemory, requests: &[Request]) -> u64 {
    let host = HostOptions { warm_up: requests.len() as u64 - 1, ..HostOptions::default() };
    let measured = drive(&mut Whole(memory), requests.iter().copied().map(Ok), &host).unwrap();
    assert_eq!(measured.measured, 1);
    (measured.response.max_ns * 1000.0).round() as u64
}

/// Compares latencies, which histograms keep to three digits.
#[track_caller]
fn near(found: u64, expected: u64) {
    let error = found.abs_diff(expected) as f64 / expected as f64;
    assert!(error < 0.002, "{found} ps, not {expected}");
}

#[test]
fn a_hit_takes_tags_and_a_line_and_a_miss_ends_when_its_line_has_crossed_the_channel() {
    for name in ["nvmm-slc", "nvmm-slc-8", "nvmm-mlc-75us", "nvmm-pcm-expected", "nvmm-dram"] {
        let nvmm = preset(name, &[]);
        let miss = nvmm.idle_miss().0 + nvmm.mapping_miss.0;
        let read = |time, offset| at(time, request(Op::Read, offset, 64));
        let fresh = |options: &NvmmOptions| NvmmMemory::new(&nvmm, options, 1).unwrap();
        near(last_response(&mut fresh(&options()), &[read(0, 640)]), miss);
        near(last_response(&mut fresh(&options()), &[read(0, 640), read(500, 64)]), nvmm.idle_hit().0);
        // The second miss is in the same page, whose mapping is cached by then.
        let known = [read(0, 640), read(500, SEGMENT)];
        near(last_response(&mut fresh(&options()), &known), nvmm.idle_miss().0);
        // Without critical-line-first transfer, the whole block crosses the channel before the miss ends.
        let package = nvmm.package();
        let late = NvmmOptions { critical_first: false, ..options() };
        let whole = miss - package.transfer(deepram_media::Bytes(64)).0 + package.page_transfer().0;
        near(last_response(&mut fresh(&late), &[read(0, 640)]), whole);
    }
}

#[test]
fn the_read_latency_alone_can_be_swept() {
    for us in [1, 10, 100, 750] {
        let nvmm = preset("nvmm-slc", &[&format!("nand.read={us}us")]);
        let mut memory = NvmmMemory::new(&nvmm, &options(), 1).unwrap();
        let found = last_response(&mut memory, &[at(0, request(Op::Read, 0, 64))]);
        near(found, nvmm.idle_tags().0 + nvmm.mapping_miss.0 + us * 1_000_000 + 160_000);
    }
}

#[test]
fn all_technologies_of_the_paper_have_presets_and_only_flash_is_erased() {
    let reads = [
        ("nvmm-dram", 50),
        ("nvmm-pcm-optimistic", 50),
        ("nvmm-pcm-expected", 125),
        ("nvmm-slc-8", 3125),
        ("nvmm-slc-4", 6250),
        ("nvmm-slc-2", 12_500),
        ("nvmm-slc", 25_000),
        ("nvmm-mlc-50us", 50_000),
        ("nvmm-mlc-75us", 75_000),
    ];
    for (name, ns) in reads {
        let nvmm = preset(name, &[]);
        assert_eq!(nvmm.package().read.0, ns * 1000, "{name}");
        let mut memory = NvmmMemory::new(&nvmm, &options(), 1).unwrap();
        let writes: Vec<Request> =
            (0..20_000).map(|n| request(Op::Write, n * 7919 % 11_000 * SEGMENT, SEGMENT)).collect();
        let end = apply(&mut memory, &writes, &HostOptions::default());
        assert!(end.is_ok(), "{name} {end:?} {:?} {:?}", memory.nvmm_counts(), memory.counts());
        assert!(memory.nvmm_counts().blocks_reclaimed > 0, "{name}");
        assert_eq!(memory.counts().erases > 0, nvmm.is_flash(), "{name}");
    }
}

#[test]
fn a_prefetched_block_is_a_hit_and_one_never_used_is_wasted() {
    let nvmm = preset("nvmm-slc", &[]);
    let next = NvmmOptions { prefetch: Prefetch::Next(1), ..options() };
    let mut memory = NvmmMemory::new(&nvmm, &next, 1).unwrap();
    let read = |time, segment: u64| at(time, request(Op::Read, segment * SEGMENT, 64));
    near(last_response(&mut memory, &[read(0, 0), read(900, 1)]), nvmm.idle_hit().0);
    let counts = memory.nvmm_counts();
    assert_eq!((counts.misses, counts.hits, counts.prefetches, counts.prefetches_used), (1, 1, 1, 1));

    // A scan that prefetches the next 16 blocks has one miss per 17 blocks.
    let next = NvmmOptions { prefetch: Prefetch::Next(16), ..options() };
    let mut memory = NvmmMemory::new(&nvmm, &next, 1).unwrap();
    let scan: Vec<Request> = (0..170).map(|n| read(n * 2000, n)).collect();
    apply(&mut memory, &scan, &HostOptions::default()).unwrap();
    assert_eq!((memory.nvmm_counts().misses, memory.nvmm_counts().prefetches_used), (10, 160));

    // A stream prefetcher has one miss, then stays four blocks ahead.
    let streams = NvmmOptions { prefetch: Prefetch::STREAMS, ..options() };
    let mut memory = NvmmMemory::new(&nvmm, &streams, 1).unwrap();
    apply(&mut memory, &scan, &HostOptions::default()).unwrap();
    assert_eq!((memory.nvmm_counts().misses, memory.nvmm_counts().prefetches), (1, 173));

    // In a single set of two ways, prefetched blocks are evicted unused.
    let small = NvmmOptions { prefetch: Prefetch::Next(1), cache: Bytes(2 * SEGMENT), ..options() };
    let mut memory = NvmmMemory::new(&preset("nvmm-slc", &["ways=2"]), &small, 1).unwrap();
    apply(&mut memory, &[read(0, 0), read(900, 100), read(1800, 200)], &HostOptions::default()).unwrap();
    let counts = memory.nvmm_counts();
    assert_eq!((counts.misses, counts.prefetches, counts.prefetches_wasted), (3, 3, 2));
}

#[test]
fn a_prefetch_that_somebody_comes_to_wait_for_is_not_read_twice() {
    let nvmm = preset("nvmm-slc", &["stripe=1", "spare=40%"]);
    let next = NvmmOptions { prefetch: Prefetch::Next(8), ..options() };
    let mut memory = NvmmMemory::new(&nvmm, &next, 1).unwrap();
    // All eight prefetches are on one plane. The prefetch of block 8 overtakes the others once a request waits for it.
    let reads = [at(0, request(Op::Read, 0, 64)), at(1, request(Op::Read, 8 * SEGMENT, 64))];
    let found = last_response(&mut memory, &reads);
    let (array, bus) = (nvmm.nand.read.0, nvmm.nand.page_transfer().0);
    let plain = nvmm.idle_miss().0 + nvmm.mapping_miss.0;
    // The request came 1 us later; it waits for the first read's array time, then for its own read.
    near(found, plain - 1_000_000 + array);
    assert!(bus < array);
    let counts = memory.nvmm_counts();
    assert_eq!((counts.merged, counts.prefetches_used, memory.counts().host_reads), (1, 1, 9));
}

#[test]
fn a_dirty_block_leaves_beside_the_read_and_its_data_answer_until_they_are_programmed() {
    let nvmm = preset("nvmm-slc", &["ways=2"]);
    let small = NvmmOptions { cache: Bytes(2 * SEGMENT), ..options() };
    let write = |time, page: u64| at(time, request(Op::Write, page << 16, 64));
    let read = |time, page: u64| at(time, request(Op::Read, page << 16, 64));
    let mut memory = NvmmMemory::new(&nvmm, &small, 1).unwrap();
    // The write-back does not delay the read: the read goes first.
    let three = [write(0, 1), read(1000, 2), read(2000, 3)];
    near(last_response(&mut memory, &three), nvmm.idle_miss().0 + nvmm.mapping_miss.0);
    let (counts, flash) = (memory.nvmm_counts(), memory.counts());
    assert_eq!((counts.evictions, counts.written_evicted, flash.host_programs), (1, 1, 1));
    assert_eq!((flash.host_reads, memory.channel_bytes()), (3, 4 * SEGMENT));

    // A block requested during its program is served from the controller's buffer.
    let mut memory = NvmmMemory::new(&nvmm, &small, 1).unwrap();
    let back = [write(0, 1), read(1000, 2), read(2000, 3), read(2100, 1)];
    let found = last_response(&mut memory, &back);
    assert!(found < nvmm.nand.read.0, "{found}");
    assert_eq!((memory.counts().buffer_read_hits, memory.counts().host_reads), (1, 3));

    // Dirty blocks of one page are written back together, as one version.
    let mut memory = NvmmMemory::new(
        &preset("nvmm-slc", &["ways=8"]),
        &NvmmOptions { cache: Bytes(8 * SEGMENT), ..options() },
        1,
    )
    .unwrap();
    let mut requests: Vec<Request> = (0..4).map(|n| request(Op::Write, n * SEGMENT, 64)).collect();
    requests.extend((1..6).map(|page| request(Op::Read, page << 16, 64)));
    apply(&mut memory, &requests, &HostOptions::default()).unwrap();
    let counts = memory.nvmm_counts();
    assert_eq!((counts.versions, counts.written_evicted, counts.written_with_evicted), (1, 1, 3));
}

#[test]
fn a_sync_ends_when_the_last_program_has() {
    let nvmm = preset("nvmm-slc", &[]);
    let mut memory = NvmmMemory::new(&nvmm, &options(), 1).unwrap();
    let requests = [at(0, request(Op::Write, 0, 64)), at(1000, request(Op::Flush, 0, 0))];
    near(last_response(&mut memory, &requests), nvmm.package().idle_latency(NandOp::Program, 1).0);
    assert_eq!((memory.nvmm_counts().written_sync, memory.dirty_blocks()), (1, 0));
    assert_eq!(memory.tokens(), [Epoch(1)]);
    // A store in flight when the sync arrives belongs to the sync, and the sync waits for it.
    let mut memory = NvmmMemory::new(&nvmm, &options(), 1).unwrap();
    let host = HostOptions { threads: 2, closed: true, ..HostOptions::default() };
    apply(&mut memory, &[request(Op::Write, 0, 64), request(Op::Flush, 0, 0)], &host).unwrap();
    assert_eq!(memory.nvmm_counts().syncs, 1);
}

#[test]
fn idle_channels_write_back_what_was_not_used_lately() {
    let nvmm = preset("nvmm-slc", &["ways=4"]);
    let early = NvmmOptions { write_back_above: 0.25, cache: Bytes(64 * SEGMENT), ..options() };
    let writes: Vec<Request> = (0..640).map(|n| at(n * 1500, request(Op::Write, n * SEGMENT, 64))).collect();
    let mut memory = NvmmMemory::new(&nvmm, &early, 1).unwrap();
    apply(&mut memory, &writes, &HostOptions::default()).unwrap();
    let counts = memory.nvmm_counts();
    assert!(counts.written_idle > 500 && counts.written_evicted == 0, "{counts:?}");
    // Three blocks of each set of four are dirty, more than a quarter of the cache, but none of them is the next victim.
    let mut memory = NvmmMemory::new(&nvmm, &early, 1).unwrap();
    apply(&mut memory, &writes[..48], &HostOptions::default()).unwrap();
    assert_eq!((memory.nvmm_counts().written_idle, memory.dirty_blocks()), (0, 48));
    // With write_back_cold at 0.5, half of a set counts as cold.
    let half = NvmmOptions { write_back_cold: 0.5, ..early.clone() };
    let mut memory = NvmmMemory::new(&nvmm, &half, 1).unwrap();
    apply(&mut memory, &writes[..48], &HostOptions::default()).unwrap();
    assert!(memory.nvmm_counts().written_idle > 0);
    let never = NvmmOptions { write_back_above: 1.0, ..early };
    let mut memory = NvmmMemory::new(&nvmm, &never, 1).unwrap();
    apply(&mut memory, &writes, &HostOptions::default()).unwrap();
    assert_eq!(memory.nvmm_counts().written_idle, 0);
}

proptest! {
    #[test]
    fn the_set_associative_cache_is_lru_in_each_set(
        sets in 1u32..5,
        ways in 1u16..6,
        steps in prop::collection::vec((0u32..40, 0u8..8), 0..400),
    ) {
        let mut cache = SetAssociative::new(sets, ways);
        // Each set of the model lists its keys from the newest to the oldest.
        let mut model: Vec<Vec<u32>> = vec![Vec::new(); sets as usize];
        for (key, what) in steps {
            let set = &mut model[(key % sets) as usize];
            let held = set.iter().position(|k| *k == key);
            prop_assert_eq!(cache.find(key).is_some(), held.is_some());
            if let Some(frame) = cache.find(key) {
                prop_assert_eq!(cache.key(frame), Some(key));
                prop_assert_eq!(cache.age(frame), held.unwrap());
                set.remove(held.unwrap());
                if what == 0 {
                    cache.remove(frame);
                } else {
                    cache.touch(frame);
                    set.insert(0, key);
                }
                continue;
            }
            // In some steps one key is not evictable.
            let kept = (what == 1).then(|| set.last().copied()).flatten();
            let found = cache.fill_target(key, |frame| cache.key(frame) != kept);
            let full = set.len() == usize::from(ways);
            let leaves = if full { set.iter().rev().copied().find(|k| Some(*k) != kept) } else { None };
            let Some(target) = found else {
                prop_assert!(full && leaves.is_none());
                continue;
            };
            prop_assert_eq!(target.victim, leaves);
            set.retain(|k| Some(*k) != leaves);
            cache.insert(key, target.frame);
            set.insert(0, key);
            prop_assert_eq!(cache.len(), model.iter().map(Vec::len).sum::<usize>());
        }
        prop_assert_eq!(cache.iter().count(), cache.len());
    }

    #[test]
    fn hits_misses_and_write_backs_are_those_of_a_reference_cache(
        accesses in prop::collection::vec((0u64..60, any::<bool>()), 1..300),
        ways in 1u64..5,
        sets in 1u64..4,
    ) {
        let nvmm = preset("nvmm-slc", &[&format!("ways={ways}")]);
        let set = NvmmOptions { cache: Bytes(ways * sets * SEGMENT), ..options() };
        let mut memory = NvmmMemory::new(&nvmm, &set, 1).unwrap();
        // Each block is in a page of its own, so no other block is written back with it.
        let requests: Vec<Request> = accesses
            .iter()
            .map(|(page, write)| request(if *write { Op::Write } else { Op::Read }, page << 16, 64))
            .collect();
        // One request at a time: each starts when the previous block has been transferred completely.
        let host = HostOptions { think: Picos(1_000_000_000), ..HostOptions::default() };
        apply(&mut memory, &requests, &host).unwrap();
        let mut model: Vec<Vec<(u64, bool)>> = vec![Vec::new(); sets as usize];
        let (mut hits, mut written) = (0, 0);
        for (page, write) in accesses {
            let set = &mut model[(page * 16 % sets) as usize];
            let held = set.iter().position(|(p, _)| *p == page);
            hits += u64::from(held.is_some());
            let dirty = held.is_some_and(|at| set.remove(at).1);
            if held.is_none() && set.len() == ways as usize {
                written += u64::from(set.pop().unwrap().1);
            }
            set.insert(0, (page, dirty || write));
        }
        let counts = memory.nvmm_counts();
        prop_assert_eq!((counts.hits, counts.merged), (hits, 0));
        prop_assert_eq!(counts.written_evicted, written);
    }
}

/// Draws a configuration at random.
fn any_options() -> impl Strategy<Value = (NvmmOptions, Vec<String>, HostOptions)> {
    let prefetch = prop_oneof![
        Just(Prefetch::None),
        (1u32..20).prop_map(Prefetch::Next),
        Just(Prefetch::STREAMS),
        Just(Prefetch::Streams { streams: 2, depth: 3 }),
    ];
    let first = (prefetch, any::<[bool; 3]>(), 0.0..1.0f64, 1u32..4, 1u32..3, 1u64..40);
    let second = (0usize..3, 0usize..3, 1u64..9, 1u64..20, 0usize..4, 1u32..9, 1u64..3);
    (first, second).prop_map(|(first, second)| {
        let (prefetch, flags, above, tokens, at_once, sets) = first;
        let (segment, stripe, ways, buffer, technology, threads, registers) = second;
        let segment = [4096u64, 8192, 16384][segment];
        let options = NvmmOptions {
            capacity: Bytes(20 << 20),
            cache: Bytes(sets * ways * segment),
            prefetch,
            critical_first: flags[0],
            order_in_tags: flags[1],
            populated: flags[2],
            prefilled: above < 0.5,
            write_back_above: above,
            tokens,
            reclaim_at_once: at_once,
            wear_spread: 4,
            queue: 16,
            bad_share: if flags[0] { 0.02 } else { 0.0 },
            verify: true,
            ..NvmmOptions::default()
        };
        let stripe = [1u64, 2, 4][stripe];
        // The drive has only a few blocks more than the minimum, so that reclamation starts early.
        let blocks = ((20u64 << 20) / segment / (64 * stripe) + 16) * stripe / 4 + 2;
        let set = vec![
            format!("segment={segment}B"),
            format!("stripe={stripe}"),
            format!("ways={ways}"),
            format!("write_buffer={buffer}"),
            format!("nand.registers={registers}"),
            format!("nand.page={segment}B"),
            format!("nand.blocks_per_plane={blocks}"),
            format!("nand.capacity={}B", blocks * 2 * 64 * segment),
            format!("nand.page_transfer={}ps", segment * 2500),
            "mapping_entries=32".into(),
            "spare=1%".into(),
            ["nand.read=25us", "nand.read=50ns", "nand.program=50ns", "nand.erase=1us"][technology].into(),
        ];
        let host = HostOptions { threads, ..HostOptions::default() };
        (options, set, host)
    })
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Read(u64, u64),
    Write(u64, u64),
    Sync,
}

fn any_steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    // A few pages are hot and the others cold; most accesses are one line, some are longer.
    let place = prop_oneof![3 => 0u64..(1 << 18), 1 => 0u64..(20 << 20) - 20_000];
    let len = prop_oneof![4 => Just(64u64), 1 => 1u64..20_000];
    let step = prop_oneof![
        10 => (place.clone(), len.clone()).prop_map(|(offset, len)| Step::Read(offset, len)),
        20 => (place, len).prop_map(|(offset, len)| Step::Write(offset, len)),
        1 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 1..most)
}

fn requests(steps: &[Step]) -> Vec<Request> {
    let request = |step: &Step| match *step {
        Step::Read(offset, len) => request(Op::Read, offset, len),
        Step::Write(offset, len) => request(Op::Write, offset, len),
        Step::Sync => request(Op::Flush, 0, 0),
    };
    steps.iter().map(request).collect()
}

/// Reads the whole memory: the model compares each line with the last store.
fn read_all(memory: &mut NvmmMemory, bytes: u64) -> Result<(), SimError> {
    let all: Vec<Request> = (0..bytes / 16384).map(|n| request(Op::Read, n * 16384, 16384)).collect();
    apply(memory, &all, &HostOptions::default()).map(|_| ())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_configuration_laws_hold_and_every_line_is_the_one_stored_last(
        (options, set, host) in any_options(),
        steps in any_steps(800),
        seed in any::<u64>(),
    ) {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let nvmm = preset("nvmm-slc", &set);
        let mut memory = NvmmMemory::new(&nvmm, &options, seed).unwrap();
        apply(&mut memory, &requests(&steps), &host).unwrap();
        memory.check_store().unwrap();
        read_all(&mut memory, 20 << 20).unwrap();
        // The same work again on the used memory: the laws hold from any state.
        apply(&mut memory, &requests(&steps), &host).unwrap();
        memory.check_store().unwrap();
    }

    #[test]
    fn a_rollback_brings_back_what_the_sync_saw(
        (options, set, host) in any_options(),
        batches in prop::collection::vec((any_steps(120), any::<prop::sample::Index>(), any::<bool>()), 1..6),
    ) {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let nvmm = preset("nvmm-slc", &set);
        let mut memory = NvmmMemory::new(&nvmm, &NvmmOptions { tokens: 4, ..options }, 1).unwrap();
        for (steps, which, back) in batches {
            apply(&mut memory, &requests(&steps), &host).unwrap();
            let tokens = memory.tokens();
            let token = *which.get(&tokens);
            if back {
                match memory.rollback(token) {
                    Ok(()) => prop_assert_eq!(memory.tokens().last().copied(), Some(token)),
                    // The token belongs to a state that the controller made itself, not to a sync.
                    Err(error) => prop_assert!(error.to_string().contains("no sync made this token"), "{error}"),
                }
            }
            memory.check_store().unwrap();
            read_all(&mut memory, 20 << 20).unwrap();
        }
    }
}

#[test]
fn long_overwriting_reclaims_spreads_wear_and_loses_nothing() {
    let nvmm = preset("nvmm-slc", &[]);
    let set = NvmmOptions { capacity: Bytes(40 << 20), wear_spread: 8, ..options() };
    let mut memory = NvmmMemory::new(&nvmm, &set, 1).unwrap();
    // A tenth of the pages gets all stores: 1.5 GB into 64 MiB of flash.
    let hot = 4 << 20;
    let writes = |n: u64| {
        let place = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % (hot / SEGMENT);
        Ok(request(Op::Write, place * SEGMENT, SEGMENT))
    };
    drive(&mut memory, (0..400_000).map(writes), &HostOptions::default()).unwrap();
    let counts = memory.nvmm_counts();
    assert!(counts.blocks_reclaimed > 1000, "{counts:?}");
    let erased: Vec<u32> = memory.erased().collect();
    let (least, most) = (erased.iter().min().unwrap(), erased.iter().max().unwrap());
    // Without wear levelling, the blocks of the cold nine tenths would never be erased.
    assert!(counts.wear_moves > 0 && most - least <= 12, "{least} to {most}");
    assert_eq!(u64::from(erased.iter().sum::<u32>()), counts.blocks_reclaimed);
    assert!(memory.counts().write_amplification() < 2.0, "{}", memory.counts().write_amplification());
    memory.check_store().unwrap();
    read_all(&mut memory, 40 << 20).unwrap();
}

#[test]
fn segments_wear_out_one_by_one_and_the_rest_of_their_blocks_goes_on() {
    let nvmm = preset("nvmm-slc", &["nand.endurance=20"]);
    let set = NvmmOptions { capacity: Bytes(16 << 20), wear_deviation: 0.3, wear_spread: 4, ..options() };
    let mut memory = NvmmMemory::new(&nvmm, &set, 7).unwrap();
    let writes = |n: u64| {
        let place = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % 4096;
        Ok(request(Op::Write, place * SEGMENT, SEGMENT))
    };
    let end = drive(&mut memory, (0..150_000).map(writes), &HostOptions::default());
    assert!(end.is_ok(), "{end:?} {} {} {:?}", memory.bad_segments(), memory.retired(), memory.nvmm_counts());
    assert!(memory.bad_segments() > 100, "{}", memory.bad_segments());
    memory.check_store().unwrap();
    read_all(&mut memory, 16 << 20).unwrap();
}

#[test]
fn what_a_sync_made_is_never_given_up_not_even_for_room() {
    let nvmm = preset("nvmm-slc", &[]);
    let set = NvmmOptions { capacity: Bytes(44 << 20), ..options() };
    let mut memory = NvmmMemory::new(&nvmm, &set, 1).unwrap();
    let all = |n: u64| request(Op::Write, n % (11 << 10) * SEGMENT, SEGMENT);
    let mut requests: Vec<Request> = (0..11 << 10).map(all).collect();
    requests.push(request(Op::Flush, 0, 0));
    apply(&mut memory, &requests, &HostOptions::default()).unwrap();
    // Without another sync, both the synced and the current versions must be kept, and they do not fit.
    let error = apply(&mut memory, &requests[..11 << 10], &HostOptions::default()).unwrap_err();
    assert!(matches!(error, SimError::Full { .. }), "{error}");
}

#[test]
fn the_same_run_gives_the_same_result() {
    let run = || {
        let nvmm = preset("nvmm-slc", &[]);
        let set = NvmmOptions { prefetch: Prefetch::Next(4), write_back_above: 0.05, ..options() };
        let mut memory = NvmmMemory::new(&nvmm, &set, 3).unwrap();
        let requests: Vec<Request> = (0..20_000u64)
            .map(|n| {
                let op = if n % 3 == 0 { Op::Write } else { Op::Read };
                request(op, (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (40 << 20)) & !63, 64)
            })
            .collect();
        let host = HostOptions { threads: 8, ..HostOptions::default() };
        let measured = apply(&mut memory, &requests, &host).unwrap();
        (measured, memory.nvmm_counts(), memory.energy_pj(Picos(1 << 40)))
    };
    assert_eq!(run(), run());
}

#[test]
fn energy_is_the_operations_times_their_cost() {
    let nvmm = preset("nvmm-slc", &["channel_energy=3pJ/bit"]);
    let mut memory = NvmmMemory::new(&nvmm, &options(), 1).unwrap();
    let requests: Vec<Request> = (0..500).map(|n| request(Op::Write, n << 16, 64)).collect();
    let measured = apply(&mut memory, &requests, &HostOptions::default()).unwrap();
    let parts = memory.energy_pj(Picos(measured.time.0));
    let of = |name: &str| parts.iter().find(|part| part.0 == name).map(|part| part.1 + part.2).unwrap();
    let flash = memory.counts();
    let close =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    // 15 mA at 3.3 V for 25 us; 35 mA for 200 us; 2 packages of one die standing by with 0.08 mA.
    close(of("flash read"), flash.reads() as f64 * 0.015 * 3.3 * 25e6);
    close(of("flash program"), flash.programs() as f64 * 0.035 * 3.3 * 200e6);
    close(of("flash standby"), 2.0 * 0.000_08 * 3.3 * measured.time.0 as f64);
    close(of("flash io"), memory.channel_bytes() as f64 * 8.0 * 3.0);
    assert!(of("dram tags") > 0.0 && of("dram data") > 0.0 && of("dram mapping") > 0.0);
}

#[test]
fn options_that_cannot_be_say_what_would_be_right() {
    let nvmm = preset("nvmm-slc", &[]);
    let error = |options: NvmmOptions| match NvmmMemory::new(&nvmm, &options, 1) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let plain = NvmmOptions::default;
    assert!(
        error(NvmmOptions { cache: Bytes(4096), ..plain() }).starts_with("cache: must have one set of 64")
    );
    assert!(
        error(NvmmOptions { capacity: Bytes(1 << 30), ..plain() }).starts_with("capacity: must be 64 KiB to")
    );
    assert!(error(NvmmOptions { bad_share: 2.0, ..plain() }).contains("must be 0 to 1"));
    assert_eq!(error(plain()), "");
}

#[test]
fn random_updates_over_a_tebibyte_take_memory_for_what_they_touch() {
    let nvmm: Nvmm = Registry::builtin().unwrap().get("nvmm-slc").unwrap();
    let bytes = nvmm.host_bytes().0;
    let random = |n: u64| ((n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (n >> 7)) % bytes) & !63;
    let mut memory = NvmmMemory::new(&nvmm, &NvmmOptions::default(), 1).unwrap();
    let host = HostOptions { threads: 16, ..HostOptions::default() };
    let updates = (0..40_000).map(|n: u64| {
        let op = if n.is_multiple_of(2) { Op::Read } else { Op::Write };
        Ok(request(op, random(n / 2), 64))
    });
    assert_eq!(drive(&mut memory, updates, &host).unwrap().completed, 40_000);
    // The whole page table of a tebibyte would take a gibibyte.
    assert!(memory.memory_bytes() < 256 << 20, "{} MiB", memory.memory_bytes() >> 20);
}
