//! Stages: 2 MiB frames outside the program's memory, through which chunks enter and leave memory as huge pages (ADR 21).
//!
//! A stage has a huge page, or none. An incoming chunk is read into the huge page of a stage, which is then moved to the
//! chunk's address: no bytes are copied, and one call serves 512 pages. A leaving chunk is moved into a stage without a page
//! and written from there; its page stays with the stage for the next incoming chunk.
//!
//! ```text
//!          claim          order             begin            ready           take
//!   free ────────► busy ────────► ordered ────────► busy ────────► ready ────────► busy
//!     ▲              │               │                │                             │
//!     └──────────────┴───────────────┴──── release ───┴─────────────────────────────┘
//! ```
//!
//! A busy stage belongs to one thread. Times are those of the driver's clock since any moment.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::huge_pages::CHUNK_PAGES;

/// Largest number of stages: four streams of reads with four chunks each in flight or ready.
const MAX_STAGES: usize = 16;
/// Smallest number of stages; where these would take too much of the budget, there are none.
const MIN_STAGES: usize = 2;
/// One more stage for this many chunks of the budget.
const CHUNKS_PER_STAGE: usize = 16;
/// Chunks of the smallest budget that has stages: with fewer, pages evicted for a chunk are missed before the chunk has been
/// used.
const MIN_CHUNKS: usize = 32;
/// Stages hold at most one in this many of the frames of the process.
const STAGE_SHARE: usize = 8;
/// Largest number of threads that fill stages: each computes checksums of what it has read, so with fewer threads the device is
/// idle while several streams are read.
pub const STAGERS: usize = 8;
/// Time after which a stage that is ready and unused is given to another chunk.
pub const STALE_AFTER: Duration = Duration::from_millis(50);
/// Time after which a stage that is ready or free and unused returns its memory.
pub const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Number of stages for a budget of `frames` frames; `None` if it is too small for huge pages.
#[must_use]
pub fn stages_of(frames: usize) -> Option<usize> {
    let chunks = frames / CHUNK_PAGES;
    (chunks >= MIN_CHUNKS).then(|| (chunks / CHUNKS_PER_STAGE).clamp(MIN_STAGES, MAX_STAGES))
}

/// Whether chunks are staged in a process whose part of the budget is `share` frames now: many processes may share the
/// budget, and much memory may be unpaged.
#[must_use]
pub fn share_suffices(share: usize) -> bool {
    share >= MIN_CHUNKS / 4 * 3 * CHUNK_PAGES
}

/// An order to bring a chunk into memory through a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StageOrder {
    /// Number of the stage.
    pub stage: usize,
    /// The chunk, as the driver names it: its address or its number.
    pub chunk: usize,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum StageState {
    /// In no use.
    Free,
    /// Assigned to a chunk that is to be brought in, by the order of this number.
    Ordered(u64),
    /// A thread is working with it.
    Busy,
    /// The chunk's bytes have arrived; the value is the checksum of bytes that were read.
    Ready(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stage {
    state: StageState,
    /// Whether the stage has a huge page, which is charged.
    has_page: bool,
    /// The chunk, if one is assigned.
    chunk: usize,
    /// Time of the last change of state.
    since: Duration,
}

/// All stages of a pager, and the orders that no thread has begun.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StageTable {
    stages: Vec<Stage>,
    orders: VecDeque<StageOrder>,
    orders_queued: u64,
}

impl StageTable {
    /// A table of `count` free stages without pages.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let free = Stage { state: StageState::Free, has_page: false, chunk: 0, since: Duration::ZERO };
        Self { stages: (0..count).map(|_| free).collect(), orders: VecDeque::new(), orders_queued: 0 }
    }

    fn set(&mut self, stage: usize, state: StageState, now: Duration) {
        (self.stages[stage].state, self.stages[stage].since) = (state, now);
    }

    /// Claims a free stage for the caller, preferably one with a page.
    pub fn claim(&mut self, now: Duration) -> Option<usize> {
        let free = |stage: &Stage| stage.state == StageState::Free;
        let with_page = self.stages.iter().position(|stage| free(stage) && stage.has_page);
        let stage = with_page.or_else(|| self.stages.iter().position(free))?;
        self.set(stage, StageState::Busy, now);
        Some(stage)
    }

    /// Claims a free stage whose page has not been used for longer than `age`.
    pub fn claim_idle(&mut self, age: Duration, now: Duration) -> Option<usize> {
        let idle = |stage: &Stage| {
            stage.state == StageState::Free && stage.has_page && now.saturating_sub(stage.since) > age
        };
        let stage = self.stages.iter().position(idle)?;
        self.set(stage, StageState::Busy, now);
        Some(stage)
    }

    /// The stage that has been ready and unused longest, and for longer than `age`, with its chunk.
    #[must_use]
    pub fn stale(&self, age: Duration, now: Duration) -> Option<(usize, usize)> {
        let ready = self.stages.iter().enumerate().filter(|(_, stage)| {
            matches!(stage.state, StageState::Ready(_)) && now.saturating_sub(stage.since) > age
        });
        ready.min_by_key(|(_, stage)| stage.since).map(|(n, stage)| (n, stage.chunk))
    }

    /// Queues an order to bring a chunk in through a stage that the caller has claimed.
    pub fn queue_order(&mut self, stage: usize, chunk: usize, now: Duration) {
        self.orders_queued += 1;
        let number = self.orders_queued;
        self.set(stage, StageState::Ordered(number), now);
        self.stages[stage].chunk = chunk;
        self.orders.push_back(StageOrder { stage, chunk, number });
    }

    /// The next order, if one is queued.
    pub fn next_order(&mut self) -> Option<StageOrder> {
        self.orders.pop_front()
    }

    /// Whether orders are queued.
    #[must_use]
    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Begins an order: the stage belongs to the caller, unless the order was withdrawn.
    #[must_use]
    pub fn begin_order(&mut self, order: StageOrder, now: Duration) -> bool {
        let valid = self.stages[order.stage].state == StageState::Ordered(order.number);
        if valid {
            self.set(order.stage, StageState::Busy, now);
        }
        valid
    }

    /// Records that the chunk's bytes are in its stage; `checksum` is that of bytes that were read.
    pub fn mark_ready(&mut self, stage: usize, checksum: u64, now: Duration) {
        self.set(stage, StageState::Ready(checksum), now);
    }

    /// Claims a ready stage for the caller. Returns the checksum of its bytes.
    pub fn take_ready(&mut self, stage: usize, now: Duration) -> Option<u64> {
        let StageState::Ready(checksum) = self.stages[stage].state else { return None };
        self.set(stage, StageState::Busy, now);
        Some(checksum)
    }

    /// Frees a stage. An order for it that has not begun is withdrawn.
    pub fn release(&mut self, stage: usize, now: Duration) {
        self.set(stage, StageState::Free, now);
    }

    /// Whether the stage has a huge page.
    #[must_use]
    pub fn has_page(&self, stage: usize) -> bool {
        self.stages[stage].has_page
    }

    /// Records that a stage has a huge page from now on, or none.
    pub fn set_has_page(&mut self, stage: usize, has_page: bool) {
        self.stages[stage].has_page = has_page;
    }

    /// Frames that the stages hold.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.stages.iter().filter(|stage| stage.has_page).count() * CHUNK_PAGES
    }

    /// Whether a claimed stage may be used by a process whose part of the budget is `share` frames: it has a page already, or
    /// one more is within the stages' share.
    #[must_use]
    pub fn may_use(&self, stage: usize, share: usize) -> bool {
        self.has_page(stage) || self.frames() + CHUNK_PAGES <= share / STAGE_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_number_of_stages_follows_the_budget() {
        let chunks = [31, 32, 64, 320, 10_000].map(|chunks| stages_of(chunks * CHUNK_PAGES));
        assert_eq!(chunks, [None, Some(2), Some(4), Some(16), Some(16)]);
        assert_eq!([24 * CHUNK_PAGES - 1, 24 * CHUNK_PAGES].map(share_suffices), [false, true]);
    }

    #[test]
    fn stages_hold_an_eighth_of_the_frames_at_most() {
        let mut table = StageTable::new(4);
        let share = 24 * CHUNK_PAGES;
        for expected in [true, true, true, false] {
            let stage = table.claim(MS).unwrap();
            assert_eq!(table.may_use(stage, share), expected);
            table.set_has_page(stage, expected);
        }
        assert!(table.may_use(0, 0), "it has a page already");
        assert_eq!(table.frames(), 3 * CHUNK_PAGES);
    }

    #[test]
    fn the_stage_that_waited_longest_is_stale_and_a_free_one_returns_its_page() {
        let mut table = StageTable::new(2);
        for (chunk, ready) in [(10, 7), (20, 5)] {
            let stage = table.claim(MS).unwrap();
            table.set_has_page(stage, true);
            table.queue_order(stage, chunk, MS);
            let order = table.next_order().unwrap();
            assert!(table.begin_order(order, 2 * MS));
            table.mark_ready(stage, chunk as u64, ready * MS);
        }
        assert_eq!(table.stale(STALE_AFTER, 55 * MS), None);
        assert_eq!(table.stale(STALE_AFTER, 58 * MS), Some((1, 20)));
        assert_eq!((table.take_ready(1, 60 * MS), table.take_ready(1, 60 * MS)), (Some(20), None));
        table.release(1, 61 * MS);
        assert_eq!(table.claim_idle(IDLE_AFTER, 1061 * MS), None);
        assert_eq!(table.claim_idle(IDLE_AFTER, 1062 * MS), Some(1));
    }

    #[derive(Debug, Clone, PartialEq)]
    enum Use {
        Mine,
        Ordered(StageOrder),
        Ready(u64),
    }

    proptest! {
        /// Compares the table with a map of the stages in use: a stage belongs to one user at a time, and an order is begun
        /// once, unless its stage was released before.
        #[test]
        fn a_stage_belongs_to_one_user_at_a_time(steps in proptest::collection::vec((0u8..7, 0usize..4), 0..300)) {
            let mut table = StageTable::new(4);
            let (mut in_use, mut pages) = (BTreeMap::new(), [false; 4]);
            let mut taken: Vec<StageOrder> = Vec::new();
            for ((what, n), time) in steps.into_iter().zip(1..) {
                let now = time * MS;
                let mine: Vec<usize> = in_use.iter().filter(|(_, of)| **of == Use::Mine).map(|(stage, _)| *stage).collect();
                let one_of_mine = mine.get(n % mine.len().max(1)).copied();
                match (what, one_of_mine) {
                    (0, _) => {
                        let free: Vec<usize> = (0..4).filter(|stage| !in_use.contains_key(stage)).collect();
                        let expected = free.iter().find(|stage| pages[**stage]).or(free.first()).copied();
                        prop_assert_eq!(table.claim(now), expected);
                        in_use.extend(expected.map(|stage| (stage, Use::Mine)));
                    }
                    (1, Some(stage)) => {
                        table.queue_order(stage, n, now);
                        let order = StageOrder { stage, chunk: n, number: table.orders_queued };
                        in_use.insert(stage, Use::Ordered(order));
                    }
                    (2, _) => taken.extend(table.next_order()),
                    (3, _) if !taken.is_empty() => {
                        let order = taken.remove(n % taken.len());
                        let expected = in_use.get(&order.stage) == Some(&Use::Ordered(order));
                        prop_assert_eq!(table.begin_order(order, now), expected);
                        if expected {
                            in_use.insert(order.stage, Use::Mine);
                        }
                    }
                    (4, Some(stage)) => {
                        table.mark_ready(stage, n as u64, now);
                        in_use.insert(stage, Use::Ready(n as u64));
                    }
                    (5, _) => {
                        let expected = if let Some(Use::Ready(checksum)) = in_use.get(&n) { Some(*checksum) } else { None };
                        prop_assert_eq!(table.take_ready(n, now), expected);
                        if expected.is_some() {
                            in_use.insert(n, Use::Mine);
                        }
                    }
                    (6, _) if in_use.contains_key(&n) => {
                        pages[n] = !pages[n];
                        table.set_has_page(n, pages[n]);
                        table.release(n, now);
                        in_use.remove(&n);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.frames(), pages.iter().filter(|page| **page).count() * CHUNK_PAGES);
            }
        }
    }
}
