//! Damaged and hostile tables and snapshots: each is refused or survived, without a panic or an endless loop.

use deepram_core::bit_vector::BitVector;
use deepram_core::ftl::{BlockInfo, BlockState};
use deepram_core::page_table::CHUNK_BYTES;
use deepram_core::{
    BlockId, ChunkId, Entry, Epoch, PageId, Retention, SegmentSize, Slot, Stamp, Status, TokenInfo, Volume,
    VolumeConfig, VolumeError, VolumeSnapshot,
};
use proptest::prelude::*;

const CONFIG: VolumeConfig = VolumeConfig {
    segment: SegmentSize::K8,
    pages: 300,
    upper: 500,
    blocks: 4,
    slots_per_block: 64,
    stamp_limit: 40,
    retention: Retention::KeepLast(2),
};
const UPPER: u32 = 512;
const RW: Status = Status::new(false, true, true);

type Chunks = Vec<(ChunkId, [u8; CHUNK_BYTES])>;

/// A sound volume, as its driver would have stored it.
fn sound() -> (VolumeSnapshot, Chunks) {
    let mut volume = Volume::new(CONFIG).unwrap();
    for block in 0..3 {
        volume.blocks_mut().open_at(BlockId(block), 0, 1).unwrap();
        volume.blocks_mut().set_used(BlockId(block), 64).unwrap();
    }
    for (n, page) in [0, 1, 257, 299].into_iter().map(PageId).enumerate() {
        volume.set_status(page, RW).unwrap();
        for step in 0..5_u8 {
            let first = 40 * n as u64 + 8 * u64::from(step);
            let placed = [(step % 2, Slot(first + u64::from(step % 2))), (5, Slot(first + 5))];
            if first < 180 {
                volume.apply(page, &placed).unwrap();
            }
            volume.close_epoch(3).unwrap();
        }
    }
    volume.delete(PageId(1)).unwrap();
    while let Some(token) = volume.expired() {
        volume.drop_token(token).unwrap();
        volume.prune_step(usize::from(token.0 % 3 != 0)).unwrap();
    }
    assert_eq!(volume.check().unwrap(), []);
    assert!(volume.prune_pending() > 0);
    let chunks = (0..volume.table().chunk_count()).map(ChunkId);
    (volume.snapshot(), chunks.filter_map(|c| Some((c, volume.table().bytes(c)?))).collect())
}

/// Calls every operation. The results do not matter; only that each call returns.
fn exercise(volume: &mut Volume) {
    let pages = [0, 1, 2, 255, 256, 257, 299].map(PageId);
    let _ = volume.check();
    let _ = volume.snapshot();
    let tokens: Vec<Epoch> = volume.tokens().iter().map(|t| t.epoch).take(4).collect();
    for page in pages {
        for segment in 0..8 {
            let _ = volume.lookup(page, segment);
            let _ = volume.is_live(page, segment, Slot(40));
            for token in &tokens {
                let _ = volume.lookup_at(*token, page, segment);
                let _ = volume.status_at(*token, page);
            }
        }
        if let Ok(plan) = volume.coalesce_plan(page) {
            for (stamp, segments) in plan {
                let placed: Vec<_> = segments.iter().map(|&(s, _)| (s, Slot(200 + u64::from(s)))).collect();
                let _ = volume.relocate(page, stamp, &placed);
            }
        }
        for stamp in [0, 3, 40, u32::MAX] {
            let _ = volume.relocate(page, Stamp(stamp), &[(0, Slot(60)), (3, Slot(63))]);
        }
        let _ = volume.set_status(page, RW);
        let _ = volume.apply(page, &[(0, Slot(130)), (5, Slot(135))]);
        let _ = volume.delete(page);
        let _ = volume.set_status(page, RW);
        let _ = volume.apply(page, &[(2, Slot(150))]);
    }
    let _ = volume.longest_chain();
    let _ = volume.prune_step(100);
    let _ = volume.close_epoch(u64::MAX);
    let _ = volume.expired();
    for token in &tokens {
        let _ = volume.changed_since(*token);
        let _ = volume.drop_token(*token);
        let _ = volume.prune_step(100);
        let _ = volume.apply(pages[0], &[(2, Slot(158))]);
        let _ = volume.rollback(*token);
    }
    let _ = volume.renumber();
    let _ = volume.discard_open();
    if let Some(last) = volume.tokens().last().map(|t| t.epoch) {
        let _ = volume.rollback(last);
    }
    let _ = volume.close_epoch(0);
    let _ = volume.blocks_mut().release_dead();
    let _ = volume.find_free(20);
    let _ = volume.check();
}

/// Restores and loads the volume. Makes the counts of entries in use consistent, so that more damage passes
/// the first checks.
fn restore(mut snapshot: VolumeSnapshot, chunks: &Chunks) -> Option<Volume> {
    for (chunk, bytes) in chunks {
        if let Some(upper) = chunk.0.checked_sub(UPPER / 256) {
            let used = bytes.chunks_exact(16).filter(|entry| entry[15] & 0x80 != 0).count();
            *snapshot.upper_counts.get_mut(upper as usize)? = used as u16;
        }
    }
    let on_flash: Vec<ChunkId> = chunks.iter().map(|(chunk, _)| *chunk).collect();
    let mut volume = Volume::restore(CONFIG, snapshot, &on_flash).ok()?;
    let loaded = chunks.iter().all(|(chunk, bytes)| volume.load_chunk(*chunk, bytes).is_ok());
    if !loaded {
        // Refused chunks count as not loaded: operations that need one say so.
        exercise(&mut volume);
        return None;
    }
    Some(volume)
}

/// Returns an entry that passes the checks of a single entry and may be wrong in every other way.
fn wild_entry() -> impl Strategy<Value = Entry> {
    let previous = prop_oneof![Just(0), UPPER..UPPER + 20, UPPER..UPPER + 512];
    let vector = prop_oneof![Just(0), any::<u32>()];
    (0..230_u64, previous, vector, 0..45_u32, 0..16_u8).prop_map(|(start, previous, bits, stamp, status)| {
        let status = Status::from_bits(status | 1).unwrap();
        let mut vector = BitVector(0);
        for distance in (0..26).filter(|d| bits >> d & 1 == 1) {
            if vector.distance(SegmentSize::K8, distance % 8).is_none() {
                vector.0 |= 1 << distance;
            }
        }
        let status = if bits == 0 && stamp % 3 == 0 { Status::default() } else { status };
        Entry::new(Slot(start), previous, vector, Stamp(stamp), status)
    })
}

fn block_info() -> impl Strategy<Value = BlockInfo> {
    let state = prop::sample::select(vec![
        BlockState::Open(0),
        BlockState::Closed,
        BlockState::Meta,
        BlockState::Sealed,
        BlockState::Free,
    ]);
    (state, 0..70_u16, 0..70_u16, any::<u32>(), any::<u64>())
        .prop_map(|(state, used, live, uses, sequence)| BlockInfo { state, used, live, uses, sequence })
}

/// Changes one field of a snapshot.
#[derive(Debug, Clone)]
enum Damage {
    Open(u64),
    OpenStamp(u32),
    Token(usize, u64, u32, u64),
    DropToken(usize),
    Changed(usize, Vec<u32>),
    DropChanged(usize),
    OpenChanged(Vec<u32>),
    OpenSegments(u64),
    ToPrune(Vec<u32>),
    Block(usize, BlockInfo),
    Blocks(usize),
    Allocated(usize, u64),
    AllocatedWords(usize),
    UpperCount(usize, u16),
    UpperCounts(usize),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..45_u64, any::<u64>(), Just(u64::MAX), Just(u64::MAX / 2), Just(u64::from(u32::MAX))]
}

fn pages() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![9 => 0..300_u32, 1 => any::<u32>()], 0..8)
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        number().prop_map(Damage::Open),
        number().prop_map(|n| Damage::OpenStamp(n as u32)),
        (any::<usize>(), number(), number(), number())
            .prop_map(|(n, e, s, w)| Damage::Token(n, e, s as u32, w)),
        any::<usize>().prop_map(Damage::DropToken),
        (any::<usize>(), pages()).prop_map(|(n, pages)| Damage::Changed(n, pages)),
        any::<usize>().prop_map(Damage::DropChanged),
        pages().prop_map(Damage::OpenChanged),
        number().prop_map(Damage::OpenSegments),
        pages().prop_map(Damage::ToPrune),
        (any::<usize>(), block_info()).prop_map(|(n, info)| Damage::Block(n, info)),
        (0..6_usize).prop_map(Damage::Blocks),
        (any::<usize>(), any::<u64>()).prop_map(|(n, word)| Damage::Allocated(n, word)),
        (0..8_usize).prop_map(Damage::AllocatedWords),
        (any::<usize>(), any::<u16>()).prop_map(|(n, count)| Damage::UpperCount(n, count % 300)),
        (0..4_usize).prop_map(Damage::UpperCounts),
    ]
}

fn harm(s: &mut VolumeSnapshot, damage: &Damage) {
    let lists = s.changed.len().max(1);
    let tokens = s.tokens.len().max(1);
    match damage.clone() {
        Damage::Open(open) => s.open = Epoch(open),
        Damage::OpenStamp(stamp) => s.open_stamp = Stamp(stamp),
        Damage::Token(n, epoch, stamp, written) => {
            if let Some(token) = s.tokens.get_mut(n % tokens) {
                *token = TokenInfo {
                    epoch: Epoch(epoch),
                    stamp: Stamp(stamp),
                    segments_written: written,
                    ..*token
                };
            }
        }
        Damage::DropToken(n) if !s.tokens.is_empty() => {
            s.tokens.remove(n % tokens);
            if n % 2 == 0 && !s.changed.is_empty() {
                s.changed.remove(0);
            }
        }
        Damage::Changed(n, pages) => {
            if let Some(list) = s.changed.get_mut(n % lists) {
                *list = pages;
            }
        }
        Damage::DropChanged(n) if !s.changed.is_empty() => {
            s.changed.remove(n % lists);
        }
        Damage::DropToken(_) | Damage::DropChanged(_) => {}
        Damage::OpenChanged(pages) => s.open_changed = pages,
        Damage::OpenSegments(n) => s.open_segments = n,
        Damage::ToPrune(pages) => s.to_prune = pages,
        Damage::Block(n, info) => {
            let blocks = s.blocks.len().max(1);
            if let Some(block) = s.blocks.get_mut(n % blocks) {
                *block = info;
            }
        }
        Damage::Blocks(n) => s.blocks.resize(n, BlockInfo::default()),
        Damage::Allocated(n, word) => {
            let words = s.allocated.len().max(1);
            if let Some(place) = s.allocated.get_mut(n % words) {
                *place = word;
            }
        }
        Damage::AllocatedWords(n) => s.allocated.resize(n, 0),
        Damage::UpperCount(n, count) => {
            let counts = s.upper_counts.len().max(1);
            if let Some(place) = s.upper_counts.get_mut(n % counts) {
                *place = count;
            }
        }
        Damage::UpperCounts(n) => s.upper_counts.resize(n, 0),
    }
}

proptest! {
    #[test]
    fn random_bytes_are_no_chunk(bytes in prop::array::uniform32(any::<u8>()), chunk in 0..4_u32) {
        let (snapshot, mut chunks) = sound();
        chunks.retain(|(other, _)| other.0 != chunk);
        let mut chunk_bytes = [0; CHUNK_BYTES];
        chunk_bytes[4000..4032].copy_from_slice(&bytes);
        chunks.push((ChunkId(chunk), chunk_bytes));
        prop_assert!(restore(snapshot, &chunks).is_none());
    }

    #[test]
    fn chunks_with_bits_flipped_are_refused_or_survived(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..16_usize, 0..8_u32), 1..12),
    ) {
        let (snapshot, mut chunks) = sound();
        // Damages the table if it has an entry to damage.
        let used: Vec<(usize, usize)> = chunks
            .iter()
            .enumerate()
            .flat_map(|(n, (_, bytes))| {
                (0..CHUNK_BYTES).step_by(16).filter(|&at| bytes[at + 15] != 0).map(move |at| (n, at))
            })
            .collect();
        for (entry, byte, bit) in flips {
            let (chunk, at) = *entry.get(&used);
            chunks[chunk].1[at + byte] ^= 1_u8 << bit;
        }
        if let Some(mut volume) = restore(snapshot, &chunks) {
            exercise(&mut volume);
        }
    }

    #[test]
    fn chains_that_loop_share_and_contradict_end_in_errors(
        entries in prop::collection::vec(wild_entry(), 20),
        heads in prop::collection::vec((prop::sample::select(vec![0, 1, 2, 255, 256, 257, 299]), wild_entry()), 1..8),
        damage in prop::collection::vec(damage(), 0..2),
    ) {
        let (mut snapshot, _) = sound();
        let mut table = [[0; CHUNK_BYTES]; 4];
        let upper = entries.iter().enumerate().map(|(n, entry)| (UPPER + n as u32, entry));
        for (index, entry) in upper.chain(heads.iter().map(|(page, entry)| (*page, entry))) {
            let at = index as usize % 256 * 16;
            table[index as usize / 256][at..at + 16].copy_from_slice(&entry.to_bytes());
        }
        for damage in &damage {
            harm(&mut snapshot, damage);
        }
        let chunks = (0..).map(ChunkId).zip(table).collect();
        if let Some(mut volume) = restore(snapshot, &chunks) {
            exercise(&mut volume);
        }
    }

    #[test]
    fn damaged_snapshots_are_refused_or_survived(damage in prop::collection::vec(damage(), 1..4)) {
        let (mut snapshot, chunks) = sound();
        for damage in &damage {
            harm(&mut snapshot, damage);
        }
        if let Some(mut volume) = restore(snapshot, &chunks) {
            exercise(&mut volume);
            exercise(&mut volume);
        }
    }
}

#[test]
fn a_sound_volume_passes_all_this() {
    let (snapshot, chunks) = sound();
    let mut volume = restore(snapshot, &chunks).unwrap();
    assert_eq!(volume.check().unwrap(), []);
    exercise(&mut volume);
}

#[test]
fn a_chain_that_loops_is_reported_wherever_it_is_read() {
    let (snapshot, _) = sound();
    let mut table = [[0; CHUNK_BYTES]; 4];
    let entry = |previous| Entry::new(Slot(40), previous, BitVector(0), Stamp(1), RW).to_bytes();
    table[0][..16].copy_from_slice(&entry(UPPER));
    table[2][..16].copy_from_slice(&entry(UPPER + 1));
    table[2][16..32].copy_from_slice(&entry(UPPER));
    let chunks = (0..).map(ChunkId).zip(table).collect();
    let mut volume = restore(snapshot, &chunks).unwrap();
    let page = PageId(0);
    let broken = Err(VolumeError::BrokenChain(page));
    assert_eq!(volume.lookup(page, 0).map(drop), broken);
    assert_eq!(volume.apply(page, &[(0, Slot(40))]), broken);
    assert_eq!(volume.set_status(page, RW), broken);
    assert_eq!(volume.coalesce_plan(page).map(drop), broken);
    let problems = volume.check().unwrap();
    assert!(problems.iter().any(|p| p.to_string().contains("chain")), "{problems:?}");
}

#[test]
fn a_tombstone_with_segments_is_refused() {
    let (snapshot, _) = sound();
    let mut bytes = [0; CHUNK_BYTES];
    let entry = Entry::new(Slot(40), 0, BitVector(1), Stamp(1), Status::default());
    bytes[..16].copy_from_slice(&entry.to_bytes());
    let mut volume =
        Volume::restore(CONFIG, VolumeSnapshot { upper_counts: vec![0; 2], ..snapshot }, &[ChunkId(0)])
            .unwrap();
    let error = volume.load_chunk(ChunkId(0), &bytes).unwrap_err();
    assert_eq!((error.index, error.problem), (0, "it holds segments of a page that is not allocated"));
    assert_eq!(volume.lookup(PageId(0), 0), Err(VolumeError::NotLoaded(ChunkId(0))));
}

#[test]
fn an_epoch_that_leaves_nothing_to_count_on_is_refused() {
    let (snapshot, chunks) = sound();
    let far = VolumeSnapshot { open: Epoch(u64::MAX), ..snapshot };
    assert!(restore(far, &chunks).is_none());
}
