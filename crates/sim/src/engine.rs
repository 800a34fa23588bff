//! The event queue of a simulation.
//!
//! 1. Time is whole picoseconds since the start of the run ([`Picos`]).
//! 2. Events are taken out in the order of (time, sequence): of two events at the same time, the one
//!    scheduled first. A run is therefore a function of its inputs alone.
//! 3. The queue holds future events only. An event scheduled in the past is moved to the present and
//!    counted ([`EventQueue::late`]); a correct model schedules none.

use std::collections::VecDeque;

use deepram_core::units::Picos;

/// A moment of virtual time, or a span of it, in picoseconds: the number that models compute with. The
/// crate's public signatures use [`Picos`].
pub(crate) type Time = u64;

/// A priority queue of events of type `E`: a sorted ring.
///
/// Simulated devices keep tens of events and schedule most of them near the end, so a push is a binary
/// search and a short move. On the DiskSim and MQSim cases the ring takes fewer instructions than a
/// radix heap, and a radix heap fewer than a heap with four children (callgrind). With n pending events
/// a push moves n/2 entries at worst; with thousands pending it stays short as long as new events are
/// late ones.
#[derive(Debug, Clone)]
pub struct EventQueue<E> {
    /// Ordered by time; events of one time are in the order of scheduling.
    events: VecDeque<(Picos, E)>,
    now: Picos,
    late: u64,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue at time 0.
    #[must_use]
    pub fn new() -> Self {
        Self { events: VecDeque::with_capacity(64), now: Picos(0), late: 0 }
    }

    /// The present: the time of the event taken out last.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// The number of pending events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if no event is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The number of events that were scheduled in the past.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Schedules `event` at `time`, or at the present if `time` is past.
    #[inline]
    pub fn push(&mut self, time: Picos, event: E) {
        let time = if time < self.now {
            self.late += 1;
            self.now
        } else {
            time
        };
        if self.events.back().is_none_or(|(last, _)| *last <= time) {
            self.events.push_back((time, event));
        } else {
            self.events.insert(self.place_of(time), (time, event));
        }
    }

    /// The number of events up to `time`; the last event is later. Most events that are not the last are
    /// among the first, so the search begins there, with steps that double.
    #[inline]
    fn place_of(&self, time: Picos) -> usize {
        let (mut low, mut step) = (0, 1);
        while low + step < self.events.len() && self.events[low + step - 1].0 <= time {
            low += step;
            step *= 2;
        }
        let mut high = (low + step - 1).min(self.events.len() - 1);
        while low < high {
            let middle = low.midpoint(high);
            if self.events[middle].0 <= time {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The time of the next event; `None` if no event is pending.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<Picos> {
        self.events.front().map(|(time, _)| *time)
    }

    /// Takes out the next event and advances the present to its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(Picos, E)> {
        let next = self.events.pop_front()?;
        self.now = next.0;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_leave_in_the_order_of_time_and_then_of_scheduling(times in prop::collection::vec(0u64..50, 0..200)) {
            let mut queue = EventQueue::new();
            for (index, time) in times.iter().enumerate() {
                queue.push(Picos(*time), index);
            }
            let mut expected: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
            expected.sort_unstable();
            let found: Vec<(u64, usize)> =
                std::iter::from_fn(|| queue.pop()).map(|(time, index)| (time.0, index)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn time_never_runs_backwards_while_events_schedule_others(seeds in prop::collection::vec(0u64..1000, 1..100)) {
            let mut queue = EventQueue::new();
            for seed in &seeds {
                queue.push(Picos(*seed), *seed);
            }
            let mut last = Picos(0);
            let mut steps = 0;
            while let Some((time, seed)) = queue.pop() {
                prop_assert!(time >= last && queue.now() == time);
                last = time;
                steps += 1;
                if steps < 1000 && seed % 3 != 0 {
                    queue.push(time + Picos(seed % 17), seed / 2);
                }
            }
            prop_assert_eq!(queue.late(), 0);
        }
    }

    #[test]
    fn what_is_scheduled_into_the_past_happens_now_and_is_counted() {
        let mut queue = EventQueue::new();
        queue.push(Picos(10), 'a');
        assert_eq!(queue.pop(), Some((Picos(10), 'a')));
        queue.push(Picos(3), 'b');
        assert_eq!((queue.peek(), queue.late()), (Some(Picos(10)), 1));
    }
}
