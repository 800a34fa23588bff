//! A volume with a driver and a reference model.
//!
//! The driver keeps flash as a map from slots to values; every write of a segment is a new value.
//! The model keeps whole states: for each live token, and for now, every page's status and the
//! value of each of its segments. It knows nothing of entries, stamps or slots.

use std::collections::{BTreeMap, BTreeSet};

use deepram_core::ftl::BlockState;
use deepram_core::page_table::{CHUNK_BYTES, PageTable};
use deepram_core::placement::{SegmentRef, place};
use deepram_core::{
    BlockId, ChunkId, Epoch, PageId, Retention, SegmentSize, Slot, Stamp, Status, Version, Volume,
    VolumeConfig, VolumeError, VolumeSnapshot,
};
use proptest::prelude::*;

/// The pages that tests use: some share a chunk of the table, others do not.
pub(crate) const PAGES: [u32; 6] = [0, 1, 255, 256, 511, 599];
pub(crate) const SLOTS: u16 = 64;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Pages (by position in [`PAGES`]), each with a mask of its segments; whether to open a new block.
    Write(Vec<(usize, u16)>, bool),
    SetStatus(usize, bool, bool, bool),
    Delete(usize),
    Sync,
    /// Gives up a token other than the last, by position.
    Drop(usize),
    /// Gives up the tokens that the retention no longer covers.
    Expire,
    Prune(usize),
    Rollback(usize),
    Discard,
    /// Moves one slot that the table refers to.
    Move(usize),
    /// Moves all live slots of a closed block.
    Reclaim(usize),
    Coalesce(usize),
    /// Saves and restores the volume, then loads the chunks of this mask.
    Restore(u8),
    Renumber,
    Read(usize, u8, usize),
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let page = 0..PAGES.len();
    let mask = prop_oneof![3 => any::<u16>(), 1 => Just(u16::MAX), 3 => (0..16u16).prop_map(|s| 1 << s)];
    let write = prop::collection::vec((page.clone(), mask), 1..4);
    prop_oneof![
        10 => (write, prop::bool::weighted(0.2)).prop_map(|(pages, new)| Op::Write(pages, new)),
        3 => (page.clone(), any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(p, a, b, c)| Op::SetStatus(p, a, b, c)),
        3 => page.clone().prop_map(Op::Delete),
        7 => Just(Op::Sync),
        3 => (0..8usize).prop_map(Op::Drop),
        2 => Just(Op::Expire),
        3 => (1..5usize).prop_map(Op::Prune),
        2 => (0..8usize).prop_map(Op::Rollback),
        1 => Just(Op::Discard),
        4 => any::<usize>().prop_map(Op::Move),
        2 => any::<usize>().prop_map(Op::Reclaim),
        3 => page.clone().prop_map(Op::Coalesce),
        2 => any::<u8>().prop_map(Op::Restore),
        1 => Just(Op::Renumber),
        2 => (page, 0..16u8, 0..8usize).prop_map(|(p, s, t)| Op::Read(p, s, t)),
    ]
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PageState {
    pub(crate) status: Status,
    pub(crate) segments: [Option<u64>; 16],
}

pub(crate) type State = BTreeMap<u32, PageState>;

pub(crate) fn page_of(state: &State, page: u32) -> PageState {
    state.get(&page).cloned().unwrap_or_default()
}

/// An entry of the simulated log; replaying the entries reproduces the volume.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Open(BlockId, u64),
    Used(BlockId, u16),
    Close(BlockId),
    Apply(PageId, Vec<(u8, Slot)>),
    Relocate(PageId, Stamp, Vec<(u8, Slot)>),
    SetStatus(PageId, Status),
    Delete(PageId),
    Sync,
    Drop(Epoch),
    Rollback(Epoch),
    Discard,
}

pub(crate) struct Rig {
    pub(crate) volume: Volume,
    pub(crate) current: State,
    pub(crate) tokens: Vec<(Epoch, State)>,
    pub(crate) log: Vec<Call>,
    open: Epoch,
    chunks: BTreeMap<ChunkId, [u8; CHUNK_BYTES]>,
    flash: BTreeMap<Slot, (SegmentRef, u64)>,
    bad: Vec<(BlockId, u16)>,
    head: Option<BlockId>,
    values: u64,
    sequence: u64,
    release: bool,
}

pub(crate) fn config(size: SegmentSize) -> VolumeConfig {
    VolumeConfig {
        segment: size,
        pages: 600,
        upper: 2000,
        blocks: 32,
        slots_per_block: SLOTS,
        stamp_limit: 9,
        retention: Retention::KeepLast(3),
    }
}

type Everything = (VolumeSnapshot, Vec<(ChunkId, Vec<u8>)>, Vec<ChunkId>);

/// Returns the complete state of a volume.
pub(crate) fn everything(volume: &Volume) -> Everything {
    let chunks = (0..volume.table().chunk_count()).map(ChunkId);
    let loaded = chunks.filter_map(|c| Some((c, volume.table().bytes(c)?.to_vec()))).collect();
    (volume.snapshot(), loaded, volume.dirty_chunks())
}

impl Rig {
    /// `release`: dead blocks are reused when no other block is free.
    pub(crate) fn new(config: VolumeConfig, worn: &[(u32, u16)], release: bool) -> Self {
        let mut rig = Self {
            volume: Volume::new(config).unwrap(),
            current: State::new(),
            tokens: vec![(Epoch(0), State::new())],
            log: Vec::new(),
            open: Epoch(1),
            chunks: BTreeMap::new(),
            flash: BTreeMap::new(),
            bad: worn.iter().map(|&(block, slot)| (BlockId(block % config.blocks), slot % SLOTS)).collect(),
            head: None,
            values: 0,
            sequence: 0,
            release,
        };
        rig.mark_bad();
        rig
    }

    fn mark_bad(&mut self) {
        for &(block, index) in &self.bad {
            self.volume.blocks_mut().mark_bad(block, index).unwrap();
        }
    }

    fn size(&self) -> SegmentSize {
        self.volume.config().segment
    }

    /// Runs an operation, loading the chunks that it asks for. An operation that fails must leave the volume
    /// unchanged.
    fn run<T>(&mut self, f: impl Fn(&mut Volume) -> Result<T, VolumeError>) -> Result<T, VolumeError> {
        loop {
            let before = everything(&self.volume);
            let result = f(&mut self.volume);
            let Err(error) = result else { return result };
            assert_eq!(before, everything(&self.volume), "{error} has changed something");
            let VolumeError::NotLoaded(chunk) = error else { return Err(error) };
            self.volume.load_chunk(chunk, &self.chunks[&chunk]).unwrap();
        }
    }

    /// As [`Rig::run`], but the operation may also fail because the table is full. Returns whether it
    /// succeeded.
    fn run_if_room(&mut self, f: impl Fn(&mut Volume) -> Result<(), VolumeError>) -> bool {
        match self.run(f) {
            Ok(()) => true,
            Err(VolumeError::TableFull { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn open_block(&mut self) -> Option<BlockId> {
        if self.volume.blocks().free() == 0 && self.release {
            self.volume.blocks_mut().release_dead();
        }
        self.sequence += 1;
        let block = self.volume.blocks_mut().open(0, self.sequence)?;
        let first = u64::from(block.0) * u64::from(SLOTS);
        self.flash.retain(|slot, _| slot.0 < first || slot.0 >= first + u64::from(SLOTS));
        self.log.push(Call::Open(block, self.sequence));
        self.head = Some(block);
        Some(block)
    }

    fn close_block(&mut self) {
        if let Some(block) = self.head.take() {
            self.volume.blocks_mut().close(block).unwrap();
            self.log.push(Call::Close(block));
        }
    }

    /// Writes segments, as a move of versions with `stamp` or as new versions, and enters them in the table;
    /// stops when flash is full.
    fn put(&mut self, items: &[(SegmentRef, u64)], stamp: Option<Stamp>) {
        let mut left = items.to_vec();
        while !left.is_empty() {
            let Some(block) = self.head.or_else(|| self.open_block()) else { return };
            let blocks = self.volume.blocks();
            let first = blocks.info(block).used;
            let segments: Vec<SegmentRef> = left.iter().map(|(segment, _)| *segment).collect();
            let usable = |index| blocks.usable(block, index);
            let placement = place(first, SLOTS, &usable, &segments, self.size());
            let end = placement.end(first);
            self.volume.blocks_mut().set_used(block, end).unwrap();
            self.log.push(Call::Used(block, end));
            let mut by_page: BTreeMap<PageId, Vec<(u8, Slot, u64)>> = BTreeMap::new();
            for ((segment, value), index) in left.iter().zip(&placement.slots) {
                if let Some(index) = index {
                    let slot = Slot(u64::from(block.0) * u64::from(SLOTS) + u64::from(*index));
                    self.flash.insert(slot, (*segment, *value));
                    by_page.entry(segment.page).or_default().push((segment.segment, slot, *value));
                }
            }
            for (page, written) in by_page {
                let placed: Vec<(u8, Slot)> = written.iter().map(|&(s, slot, _)| (s, slot)).collect();
                match stamp {
                    Some(stamp) => {
                        if self.run_if_room(|v| v.relocate(page, stamp, &placed)) {
                            self.log.push(Call::Relocate(page, stamp, placed));
                        }
                    }
                    None => {
                        if self.run_if_room(|v| v.apply(page, &placed)) {
                            let state = self.current.get_mut(&page.0).unwrap();
                            for (segment, _, value) in written {
                                state.segments[usize::from(segment)] = Some(value);
                            }
                            self.log.push(Call::Apply(page, placed));
                        }
                    }
                }
            }
            let mut fits = placement.slots.iter();
            left.retain(|_| fits.next().is_some_and(Option::is_none));
            if !left.is_empty() {
                self.close_block();
            }
        }
    }

    fn set_status(&mut self, page: u32, status: Status) -> bool {
        let done = self.run_if_room(|v| v.set_status(PageId(page), status));
        if done {
            self.current.entry(page).or_default().status = status;
            self.log.push(Call::SetStatus(PageId(page), status));
        }
        done
    }

    /// Returns all slots that the table refers to, each with its segment, its value and its stamp.
    fn referred(&mut self) -> Vec<(Slot, SegmentRef, u64, Stamp)> {
        let all: Vec<_> =
            self.flash.iter().map(|(&slot, &(segment, value))| (slot, segment, value)).collect();
        all.into_iter()
            .filter_map(|(slot, segment, value)| {
                let stamp = self.run(|v| v.is_live(segment.page, segment.segment, slot)).unwrap()?;
                Some((slot, segment, value, stamp))
            })
            .collect()
    }

    /// Moves versions as reclamation does: by page and stamp.
    fn move_all(&mut self, movers: &[(Slot, SegmentRef, u64, Stamp)]) {
        let mut movers = movers.to_vec();
        movers.sort_by_key(|&(_, segment, _, stamp)| (segment.page, stamp, segment.segment));
        let together = |a: &(Slot, SegmentRef, u64, Stamp), b: &(Slot, SegmentRef, u64, Stamp)| {
            (a.1.page, a.3) == (b.1.page, b.3)
        };
        for group in movers.chunk_by(together) {
            let items: Vec<_> = group.iter().map(|&(_, segment, value, _)| (segment, value)).collect();
            self.put(&items, Some(group[0].3));
        }
    }

    fn sync(&mut self) {
        if self.volume.needs_renumber() {
            assert_eq!(self.run(|v| v.close_epoch(0)), Err(VolumeError::StampsExhausted));
            self.expire();
            while self.tokens.len() >= self.volume.config().stamp_limit as usize {
                self.drop_token(0);
            }
            self.run(Volume::renumber).unwrap();
        }
        let closed = self.run(|v| v.close_epoch(7)).unwrap();
        assert_eq!(closed, self.open);
        self.tokens.push((closed, self.current.clone()));
        self.open = Epoch(closed.0 + 1);
        self.log.push(Call::Sync);
    }

    fn drop_token(&mut self, position: usize) {
        let (token, _) = self.tokens.remove(position);
        self.run(|v| v.drop_token(token)).unwrap();
        self.log.push(Call::Drop(token));
    }

    fn expire(&mut self) {
        while let Some(token) = self.volume.expired() {
            assert_eq!(token, self.tokens[0].0, "the oldest token expires first");
            self.drop_token(0);
        }
        if let Retention::KeepLast(n) = self.volume.config().retention {
            assert!(self.tokens.len() <= n as usize);
        }
    }

    pub(crate) fn prune(&mut self, most: usize) {
        for _ in 0..most {
            if self.run(|v| v.prune_step(1)).unwrap() == 0 {
                break;
            }
        }
    }

    pub(crate) fn step(&mut self, op: &Op) {
        match *op {
            Op::Write(ref pages, new_block) => {
                if new_block {
                    self.close_block();
                }
                let mut masks: BTreeMap<u32, u16> = BTreeMap::new();
                for &(page, mask) in pages {
                    let page = PAGES[page];
                    let there = page_of(&self.current, page).status.allocated();
                    if there || self.set_status(page, Status::new(false, true, true)) {
                        *masks.entry(page).or_default() |= mask;
                    }
                }
                let mut items = Vec::new();
                for (page, mask) in masks {
                    for segment in (0..self.size().per_page()).filter(|s| mask >> s & 1 == 1) {
                        self.values += 1;
                        items.push((SegmentRef { page: PageId(page), segment }, self.values));
                    }
                }
                self.put(&items, None);
            }
            Op::SetStatus(page, permanent, readable, writable) => {
                self.set_status(PAGES[page], Status::new(permanent, readable, writable));
            }
            Op::Delete(page) => {
                let page = PAGES[page];
                if !page_of(&self.current, page).status.allocated() {
                    let refused = Err(VolumeError::NotAllocated(PageId(page)));
                    assert_eq!(self.run(|v| v.delete(PageId(page))), refused);
                } else if self.run_if_room(|v| v.delete(PageId(page))) {
                    self.current.remove(&page);
                    self.log.push(Call::Delete(PageId(page)));
                }
            }
            Op::Sync => self.sync(),
            Op::Drop(position) if self.tokens.len() > 1 => {
                self.drop_token(position % (self.tokens.len() - 1));
            }
            Op::Drop(_) => {
                let last = self.tokens[0].0;
                assert_eq!(self.run(|v| v.drop_token(last)), Err(VolumeError::LastToken(last)));
            }
            Op::Expire => self.expire(),
            Op::Prune(most) => self.prune(most),
            Op::Rollback(position) => {
                let position = position % self.tokens.len();
                let token = self.tokens[position].0;
                let report = self.run(|v| v.rollback(token)).unwrap();
                self.tokens.truncate(position + 1);
                self.current = self.tokens[position].1.clone();
                self.open = Epoch(self.open.0 + 1);
                assert_eq!((report.token, report.open), (token, self.open));
                self.log.push(Call::Rollback(token));
            }
            Op::Discard => {
                self.run(Volume::discard_open).unwrap();
                self.current = self.tokens.last().unwrap().1.clone();
                self.log.push(Call::Discard);
            }
            Op::Move(which) => {
                let referred = self.referred();
                if !referred.is_empty() {
                    self.move_all(&[referred[which % referred.len()]]);
                }
            }
            Op::Reclaim(which) => {
                let closed: Vec<BlockId> = self.volume.blocks().reclaimable().map(|(_, b)| b).collect();
                if !closed.is_empty() && self.volume.blocks().free() > 0 {
                    let victim = closed[which % closed.len()];
                    let first = u64::from(victim.0) * u64::from(SLOTS);
                    let mut movers = self.referred();
                    movers.retain(|(slot, ..)| slot.0 >= first && slot.0 < first + u64::from(SLOTS));
                    self.move_all(&movers);
                }
            }
            Op::Coalesce(page) => {
                let page = PageId(PAGES[page]);
                for (stamp, segments) in self.run(|v| v.coalesce_plan(page)).unwrap() {
                    let items: Vec<_> = segments.iter().map(|(_, slot)| self.flash[slot]).collect();
                    for ((segment, slot), (item, _)) in segments.iter().zip(&items) {
                        assert_eq!((item.page, item.segment), (page, *segment), "slot {slot}");
                    }
                    self.put(&items, Some(stamp));
                }
            }
            Op::Restore(load) => self.restore(load),
            Op::Renumber => {
                let result = self.run(Volume::renumber);
                let room = self.tokens.len() < self.volume.config().stamp_limit as usize;
                assert_eq!(result, if room { Ok(()) } else { Err(VolumeError::StampsExhausted) });
            }
            Op::Read(page, segment, position) => {
                let segment = segment % self.size().per_page();
                let (token, state) = self.tokens[position % self.tokens.len()].clone();
                let page = PAGES[page];
                let found = self.run(|v| v.lookup_at(token, PageId(page), segment)).unwrap();
                let found = found.map(|version: Version| self.flash[&version.slot].1);
                assert_eq!(found, page_of(&state, page).segments[usize::from(segment)]);
            }
        }
    }

    fn restore(&mut self, load: u8) {
        // Only dirty chunks are written, so clean chunks must equal their last written bytes.
        for chunk in self.volume.dirty_chunks() {
            self.chunks.insert(chunk, self.volume.table().bytes(chunk).unwrap());
            self.volume.mark_chunk(chunk, false);
        }
        assert_eq!(self.volume.dirty_chunks(), []);
        for (chunk, written) in &self.chunks {
            assert!(self.volume.table().bytes(*chunk).is_none_or(|bytes| bytes == *written));
        }
        let on_flash: Vec<ChunkId> = self.chunks.keys().copied().collect();
        let snapshot = self.volume.snapshot();
        self.volume = Volume::restore(*self.volume.config(), snapshot.clone(), &on_flash).unwrap();
        assert_eq!(self.volume.snapshot(), snapshot);
        self.mark_bad();
        for (n, chunk) in on_flash.into_iter().enumerate() {
            if load >> (n % 8) & 1 == 1 {
                self.volume.load_chunk(chunk, &self.chunks[&chunk]).unwrap();
            }
        }
    }

    /// Returns a copy of the volume with its whole table loaded, so that reading the copy loads no chunk of
    /// the original.
    fn copy(&self) -> Volume {
        let chunks: BTreeMap<ChunkId, [u8; CHUNK_BYTES]> = (0..self.volume.table().chunk_count())
            .map(ChunkId)
            .filter_map(|chunk| {
                let stored = || self.chunks.get(&chunk).filter(|_| !self.volume.is_loaded(chunk)).copied();
                Some((chunk, self.volume.table().bytes(chunk).or_else(stored)?))
            })
            .collect();
        let on_flash: Vec<ChunkId> = chunks.keys().copied().collect();
        let mut copy = Volume::restore(*self.volume.config(), self.volume.snapshot(), &on_flash).unwrap();
        for (chunk, bytes) in &chunks {
            copy.load_chunk(*chunk, bytes).unwrap();
        }
        copy
    }

    /// Checks that the volume agrees with the model.
    pub(crate) fn verify(&self) {
        let volume = self.copy();
        assert_eq!(volume.check().unwrap(), []);
        assert_eq!(volume.open_epoch(), self.open);
        let (table, room) = (volume.table(), volume.table().upper_limit());
        assert_eq!(table.free_upper_entries(), room - table.upper_used(), "every free entry can be used");
        let tokens: Vec<Epoch> = volume.tokens().iter().map(|t| t.epoch).collect();
        assert_eq!(tokens, self.tokens.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>());

        let value = |version: Option<Version>| version.map(|v| self.flash[&v.slot].1);
        for page in PAGES {
            let now = page_of(&self.current, page);
            let page = PageId(page);
            assert_eq!(volume.status(page).unwrap(), now.status, "page {page}");
            assert_eq!(volume.is_allocated(page), now.status.allocated());
            for segment in 0..self.size().per_page() {
                let found = value(volume.lookup(page, segment).unwrap());
                assert_eq!(found, now.segments[usize::from(segment)], "page {page} segment {segment}");
            }
            for (token, state) in &self.tokens {
                let then = page_of(state, page.0);
                assert_eq!(volume.status_at(*token, page).unwrap(), then.status, "{page} at {token}");
                for segment in 0..self.size().per_page() {
                    let found = value(volume.lookup_at(*token, page, segment).unwrap());
                    let expected = then.segments[usize::from(segment)];
                    assert_eq!(found, expected, "page {page} segment {segment} at token {token}");
                }
                if then != now {
                    assert!(volume.changed_since(*token).unwrap().contains(&page));
                }
            }
            self.check_length(&volume, page);
        }
        let allocated = PAGES.map(|page| page_of(&self.current, page).status.allocated());
        assert_eq!(volume.allocated_pages() as usize, allocated.iter().filter(|a| **a).count());
        if volume.prune_pending() == 0 {
            // A slot is live only if a token or the current state sees its value.
            let mut seen = BTreeSet::new();
            for state in self.tokens.iter().map(|(_, state)| state).chain([&self.current]) {
                seen.extend(state.values().flat_map(|page| page.segments.iter().flatten().copied()));
            }
            assert_eq!(volume.blocks().live_slots(), seen.len() as u64, "live slots and visible values");
        }
        let filling = volume.blocks().infos().iter().filter(|i| matches!(i.state, BlockState::Open(_)));
        assert!(filling.count() <= 1);
    }

    /// Invariant 3 of a volume: a chain has at most one entry for each version of a segment, for each token,
    /// and for the open epoch.
    fn check_length(&self, volume: &Volume, page: PageId) {
        let table = volume.table();
        let (mut entries, mut versions) = (0, 0);
        let mut next = Some(PageTable::head(page));
        while let Some(index) = next {
            let entry = table.get(index).unwrap();
            entries += u32::from(entry.in_use());
            versions += entry.vector().0.count_ones();
            next = Some(entry.previous()).filter(|&previous| table.is_link(previous));
        }
        if volume.prune_pending() == 0 {
            let most = versions + self.tokens.len() as u32 + 1;
            assert!(entries <= most, "page {page}: {entries} entries, at most {most}");
        }
    }

    /// Replays the log on a new volume, which prunes as `schedule` says.
    pub(crate) fn replayed(&self, schedule: &[usize]) -> Volume {
        let mut volume = Volume::new(*self.volume.config()).unwrap();
        for (call, most) in self.log.iter().zip(schedule.iter().cycle()) {
            match call {
                Call::Open(block, sequence) => volume.blocks_mut().open_at(*block, 0, *sequence).unwrap(),
                Call::Used(block, used) => volume.blocks_mut().set_used(*block, *used).unwrap(),
                Call::Close(block) => volume.blocks_mut().close(*block).unwrap(),
                Call::Apply(page, placed) => volume.apply(*page, placed).unwrap(),
                Call::Relocate(page, stamp, placed) => volume.relocate(*page, *stamp, placed).unwrap(),
                Call::SetStatus(page, status) => volume.set_status(*page, *status).unwrap(),
                Call::Delete(page) => volume.delete(*page).unwrap(),
                Call::Sync => assert!(volume.close_epoch(7).is_ok()),
                Call::Drop(token) => volume.drop_token(*token).unwrap(),
                Call::Rollback(token) => assert!(volume.rollback(*token).is_ok()),
                Call::Discard => volume.discard_open().unwrap(),
            }
            volume.prune_step(*most).unwrap();
        }
        volume
    }
}

/// A page as a token sees it, or as it is now.
type Seen = (Option<Epoch>, PageId, Status, Vec<Option<Version>>);

/// Returns everything visible in a volume: every version, at every token and now.
pub(crate) fn seen(volume: &Volume) -> Vec<Seen> {
    let tokens = volume.tokens().iter().map(|t| Some(t.epoch)).chain([None]);
    let mut all = Vec::new();
    for token in tokens {
        for page in PAGES.map(PageId) {
            let segments = 0..volume.config().segment.per_page();
            let (status, versions) = match token {
                Some(token) => (
                    volume.status_at(token, page),
                    segments.map(|s| volume.lookup_at(token, page, s).unwrap()).collect(),
                ),
                None => (volume.status(page), segments.map(|s| volume.lookup(page, s).unwrap()).collect()),
            };
            all.push((token, page, status.unwrap(), versions));
        }
    }
    all
}
