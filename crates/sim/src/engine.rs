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

/// The number of sorted lanes of an [`EventQueue`].
const LANES: usize = 4;

/// In place of the order of a lane's first event: the lane is empty.
const EMPTY: u128 = u128::MAX;

/// A priority queue of events of type `E`: a few sorted lanes.
///
/// The delays of a simulated device are few and mostly constant (a transfer, a read, a program), so the
/// events of one delay are scheduled in the order in which they happen. An event goes to the end of the
/// first lane whose last event is not later; the next event is the earliest of the lanes' first events.
/// The lanes thus separate the delays by themselves, and both steps take constant time. An event that
/// fits the end of no lane is inserted into the last lane, by binary search and a move of the events
/// before or behind it.
#[derive(Debug, Clone)]
pub struct EventQueue<E> {
    /// Each lane is sorted by the order of its events: time, then sequence, in one number.
    lanes: [VecDeque<(u128, E)>; LANES],
    /// The order of the first event of each lane; [`EMPTY`] without one.
    firsts: [u128; LANES],
    /// The order of the last event of each lane; 0 without one.
    lasts: [u128; LANES],
    sequence: u64,
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
        Self {
            lanes: std::array::from_fn(|_| VecDeque::with_capacity(64)),
            firsts: [EMPTY; LANES],
            lasts: [0; LANES],
            sequence: 0,
            now: Picos(0),
            late: 0,
        }
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
        self.lanes.iter().map(VecDeque::len).sum()
    }

    /// True if no event is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.firsts == [EMPTY; LANES]
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
        self.sequence += 1;
        let order = u128::from(time.0) << 64 | u128::from(self.sequence);
        match self.lasts.iter().position(|last| *last <= order) {
            Some(lane) => {
                self.firsts[lane] = self.firsts[lane].min(order);
                self.lasts[lane] = order;
                self.lanes[lane].push_back((order, event));
            }
            None => self.insert(order, event),
        }
    }

    /// Inserts an event into the last lane, which has later events.
    fn insert(&mut self, order: u128, event: E) {
        let lane = &mut self.lanes[LANES - 1];
        lane.insert(lane.partition_point(|(other, _)| *other < order), (order, event));
        self.firsts[LANES - 1] = self.firsts[LANES - 1].min(order);
    }

    /// The lane that has the next event, and the order of that event.
    #[inline]
    fn next(&self) -> (usize, u128) {
        let mut next = (0, self.firsts[0]);
        for lane in 1..LANES {
            if self.firsts[lane] < next.1 {
                next = (lane, self.firsts[lane]);
            }
        }
        next
    }

    /// The time of the next event; `None` if no event is pending.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<Picos> {
        let (_, order) = self.next();
        (order != EMPTY).then_some(Picos((order >> 64) as u64))
    }

    /// Takes out the next event and advances the present to its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(Picos, E)> {
        let (lane, _) = self.next();
        let (order, event) = self.lanes[lane].pop_front()?;
        match self.lanes[lane].front() {
            Some((first, _)) => self.firsts[lane] = *first,
            None => (self.firsts[lane], self.lasts[lane]) = (EMPTY, 0),
        }
        self.now = Picos((order >> 64) as u64);
        Some((self.now, event))
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
