//! Triggers of a pool: pages that were read ahead and are kept apart from memory, so that a fault shows their first use.
//!
//! The first page of a readahead window is a trigger, and so is the probe among the pages that come with a missed one
//! ([`FaultAround`]). The driver keeps the bytes `B` of each. When a trigger is displaced by newer ones, its use counts as not
//! seen.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::PAGE;
use super::fault_around::{Block, FaultAround};
use super::readahead::{Streams, Window};

/// Largest number of triggers.
const MOST: usize = 64;

/// Why the first use of a page that was read ahead is to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// It opens the next readahead window.
    Window,
    /// It shows whether the neighbours of missed pages are used.
    Probe,
    /// It shows whether the neighbours of pages that come back from the victim buffer are used.
    ReturnProbe,
}

/// The triggers of a pool, by the number of their segment, oldest first, and the block sizes of misses. Segments are the pages of
/// fault-around here.
#[derive(Debug)]
pub struct Triggers<B> {
    kept: VecDeque<(u32, Trigger, B)>,
    fault_around: FaultAround,
}

impl<B> Default for Triggers<B> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), fault_around: FaultAround::of_pool() }
    }
}

impl<B> Triggers<B> {
    /// Number of triggers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether the segment is a trigger.
    #[must_use]
    pub fn holds(&self, segment: u32) -> bool {
        self.kept.iter().any(|(kept, ..)| *kept == segment)
    }

    /// The triggers among these segments.
    pub fn within(&self, segments: Range<u32>) -> impl Iterator<Item = u32> {
        self.kept.iter().map(|(kept, ..)| *kept).filter(move |kept| segments.contains(kept))
    }

    /// Displaces the oldest trigger if there is no room for one more. Returns its bytes.
    pub fn displace(&mut self) -> Option<B> {
        if self.kept.len() < MOST { None } else { self.remove(0, false) }
    }

    /// Keeps a trigger, for which [`Triggers::displace`] has made room.
    pub fn keep(&mut self, segment: u32, trigger: Trigger, bytes: B) {
        self.kept.push_back((segment, trigger, bytes));
    }

    /// Takes the bytes of a trigger: it is used, or its contents are void.
    pub fn take(&mut self, segment: u32) -> Option<B> {
        let at = self.kept.iter().position(|(kept, ..)| *kept == segment)?;
        self.remove(at, true)
    }

    /// Takes the bytes of the newest trigger, because its memory is needed.
    pub fn give_up(&mut self) -> Option<B> {
        self.kept.pop_back().map(|(.., bytes)| bytes)
    }

    fn remove(&mut self, at: usize, used: bool) -> Option<B> {
        let (segment, trigger, bytes) = self.kept.remove(at)?;
        if trigger == Trigger::Probe {
            self.fault_around.probe_ended(place(segment), used);
        }
        Some(bytes)
    }

    /// Records a miss of a segment of `bytes` bytes that is no trigger. Returns the aligned block of segments to read, of one
    /// segment if no `is_room` for more, and the window to read ahead.
    pub fn record_miss(
        &mut self,
        streams: &mut Streams,
        segment: u32,
        bytes: usize,
        is_room: impl FnOnce(usize) -> bool,
    ) -> (Range<u32>, Option<Window>) {
        let Block { first, pages } = self.fault_around.record_fault(place(segment), is_room);
        let first = (first / PAGE) as u32;
        let block = first..first + pages as u32;
        let at = |segment: u32| segment as usize * bytes;
        let window = streams.record_use(at(segment));
        let edges = (at(block.start), at(block.end - 1));
        let window = window.or_else(|| streams.record_block_miss(at(segment), edges));
        (block, window)
    }

    /// The index of the probe among `neighbours` segments that are read with the missed `segment`.
    pub fn choose_probe(&mut self, segment: u32, neighbours: usize) -> Option<usize> {
        self.fault_around.choose_probe(place(segment), neighbours)
    }
}

fn place(segment: u32) -> usize {
    segment as usize * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_oldest_trigger_is_displaced_and_the_newest_given_up() {
        let mut triggers = Triggers::default();
        let mut keep = |n: u32| {
            let displaced = triggers.displace();
            triggers.keep(n, Trigger::Window, n * 10);
            displaced
        };
        let displaced: Vec<Option<u32>> = (0..MOST as u32 + 2).map(&mut keep).collect();
        assert!(displaced[..MOST].iter().all(Option::is_none));
        assert_eq!(displaced[MOST..], [Some(0), Some(10)]);
        assert_eq!((triggers.take(1), triggers.take(7), triggers.holds(7)), (None, Some(70), false));
        assert_eq!(triggers.give_up(), Some((MOST as u32 + 1) * 10));
        assert!(triggers.within(0..5).eq([2, 3, 4]));
        assert_eq!(triggers.len(), MOST - 2);
    }

    /// One miss in 32 tries a block of two; the block grows to eight where all probes are used, and shrinks where none is.
    #[test]
    fn blocks_grow_while_probes_are_used_and_shrink_while_they_are_displaced() {
        let mut triggers = Triggers::default();
        let mut misses = |used: bool, misses: usize| {
            let mut longest = 0;
            for n in 0..misses {
                let (block, _) = triggers.record_miss(&mut Streams::new(8), 0, PAGE, |_| true);
                if triggers.choose_probe(0, block.len() - 1).is_some() {
                    let probe = 1 + n as u32;
                    triggers.displace();
                    triggers.keep(probe, Trigger::Probe, ());
                    if used {
                        triggers.take(probe);
                    }
                }
                longest = block.len();
            }
            longest
        };
        assert_eq!(misses(true, 31), 1);
        assert_eq!(misses(true, 16 * 32 + 64), 8);
        // 64 probes wait, unused, before the first one is displaced.
        assert_eq!(misses(false, 64 + 16), 8);
        assert_eq!(misses(false, 16), 4);
    }
}
