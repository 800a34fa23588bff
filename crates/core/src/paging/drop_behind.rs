//! Drops the chunks of a scan behind it, where the scan is repeated and does not fit into memory (ADR 46).
//!
//! A clock evicts what a scan used first, which the next scan needs first: every page of a repeated scan is missed, even
//! if nearly all of the memory that it goes through fits. So a chunk that a stream brings in again, before as many
//! pages have been evicted as memory holds, leaves memory again behind the stream: it makes room for the next chunk of the
//! stream, and the rest of memory stays. One such chunk in eight is left to the clock, which evicts something else in its
//! place: memory that is no longer used leaves in the end.

use alloc::collections::VecDeque;

/// One chunk in this many is left to the replacement policy.
const KEPT: u64 = 8;
/// Chunks that a stream has brought in last and may still be using.
const IN_USE: usize = 4;

/// The chunks that are to leave behind streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DropBehind {
    /// Addresses, in the order of arrival.
    chunks: VecDeque<usize>,
    /// Number of chunks that came back soon.
    came_back: u64,
}

impl DropBehind {
    /// Records that a stream has brought in a chunk, after `evictions` pages have left a memory of `frames` frames since the
    /// chunk was evicted.
    pub fn chunk_arrived(&mut self, chunk: usize, evictions: u64, frames: usize) {
        if evictions > frames as u64 {
            return;
        }
        self.came_back += 1;
        if !self.came_back.is_multiple_of(KEPT) {
            self.chunks.push_back(chunk);
        }
    }

    /// Takes the next chunk to evict, if a stream has left it behind. It may have left memory already.
    pub fn victim(&mut self) -> Option<usize> {
        if self.chunks.len() > IN_USE { self.chunks.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::huge_pages::{CHUNK_BYTES, CHUNK_PAGES};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Misses of each of `passes` scans of `all` chunks in a memory of `room` chunks, whose clock evicts the oldest.
    fn misses(all: usize, room: usize, passes: usize, mut drop_behind: Option<DropBehind>) -> Vec<usize> {
        let (mut memory, mut left) = (VecDeque::new(), alloc::vec![None; all]);
        let mut evictions = 0;
        let pass = |_| {
            let mut misses = 0;
            for n in 0..all {
                if memory.contains(&n) {
                    continue;
                }
                misses += 1;
                if memory.len() == room {
                    let chunk =
                        drop_behind.as_mut().and_then(DropBehind::victim).map(|chunk| chunk / CHUNK_BYTES);
                    let chosen = chunk.and_then(|chunk| memory.iter().position(|n| *n == chunk));
                    let victim = memory.remove(chosen.unwrap_or(0)).unwrap();
                    evictions += CHUNK_PAGES as u64;
                    left[victim] = Some(evictions);
                }
                memory.push_back(n);
                if let Some((drop_behind, at)) = drop_behind.as_mut().zip(left[n]) {
                    drop_behind.chunk_arrived(n * CHUNK_BYTES, evictions - at, room * CHUNK_PAGES);
                }
            }
            misses
        };
        (0..passes).map(pass).collect()
    }

    #[test]
    fn a_repeated_scan_misses_little_more_than_what_does_not_fit() {
        for (all, room) in [(100, 80), (120, 80), (140, 80)] {
            assert!(misses(all, room, 9, None).iter().all(|misses| *misses == all), "the clock alone");
            let found = misses(all, room, 9, Some(DropBehind::default()));
            assert_eq!(found[0], all);
            // What does not fit and what may be in use, and for every seven of these one that is kept.
            let kept = KEPT as usize;
            let most = (all - room + IN_USE) * kept / (kept - 1) + 2;
            assert!(found[1..].iter().all(|misses| (all - room..=most).contains(misses)), "{found:?}");
        }
        assert_eq!(misses(80, 80, 3, Some(DropBehind::default())), [80, 0, 0]);
    }

    proptest! {
        /// Compares with a list of all arrivals.
        #[test]
        fn chunks_that_come_back_soon_leave_in_order(
            steps in proptest::collection::vec(proptest::option::of((0usize..1000, 0u64..200)), 0..500),
        ) {
            let (mut drop_behind, mut soon, mut taken) = (DropBehind::default(), Vec::new(), 0);
            for step in steps {
                match step {
                    Some((chunk, evictions)) => {
                        drop_behind.chunk_arrived(chunk, evictions, 100);
                        soon.extend((evictions <= 100).then_some(chunk));
                    }
                    None => {
                        let leave = soon.iter().zip(1..).filter(|(_, n)| n % KEPT != 0).map(|(chunk, _)| *chunk);
                        let leave: Vec<usize> = leave.collect();
                        let expected = leave.get(taken).filter(|_| leave.len() - taken > IN_USE).copied();
                        prop_assert_eq!(drop_behind.victim(), expected);
                        taken += usize::from(expected.is_some());
                    }
                }
            }
        }
    }
}
