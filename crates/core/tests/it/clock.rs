//! CLOCK against a plain implementation of the ring.

use std::collections::BTreeSet;

use deepram_core::cache::{Clock, Replacement};
use proptest::prelude::*;

fn evict(clock: &mut Clock) -> Option<u32> {
    clock.victim(&mut |_| true)
}

#[test]
fn keys_never_touched_leave_in_the_order_they_came() {
    let mut clock = Clock::new(4);
    for key in [30, 10, 20, u32::MAX] {
        clock.insert(key);
    }
    assert_eq!([(); 5].map(|()| evict(&mut clock)), [Some(30), Some(10), Some(20), Some(u32::MAX), None]);
}

#[test]
fn a_touched_key_gets_one_second_chance() {
    let mut clock = Clock::new(3);
    (0..3).for_each(|key| clock.insert(key));
    clock.touch(0);
    assert_eq!([(); 3].map(|()| evict(&mut clock)), [1, 2, 0].map(Some));
}

#[test]
fn a_new_key_is_the_last_the_hand_comes_to() {
    let mut clock = Clock::new(3);
    (0..3).for_each(|key| clock.insert(key));
    assert_eq!(evict(&mut clock), Some(0));
    clock.insert(3);
    assert_eq!([(); 3].map(|()| evict(&mut clock)), [1, 2, 3].map(Some));
}

#[test]
fn an_ineligible_key_is_passed_over_and_keeps_its_place() {
    let mut clock = Clock::new(3);
    (0..3).for_each(|key| clock.insert(key));
    assert_eq!(clock.victim(&mut |key| key == 1), Some(1));
    // The hand stands behind 1.
    assert_eq!([(); 2].map(|()| evict(&mut clock)), [2, 0].map(Some));
}

#[test]
fn the_search_ends_within_two_laps_if_nothing_is_eligible() {
    for keys in [0, 1, 63, 64, 65, 200] {
        let mut clock = Clock::new(keys);
        (0..keys as u32).for_each(|key| clock.insert(key));
        (0..keys as u32).step_by(3).for_each(|key| clock.touch(key));
        let mut asked = 0;
        let victim = clock.victim(&mut |_| {
            asked += 1;
            false
        });
        assert_eq!((victim, clock.len()), (None, keys));
        assert!(asked >= keys && asked <= 2 * keys + 64, "{asked} questions about {keys} keys");
    }
}

#[test]
fn an_eligible_key_is_found_even_if_all_are_touched() {
    let mut clock = Clock::new(100);
    (0..100).for_each(|key| clock.insert(key));
    for round in 0..100 {
        (0..100).for_each(|key| clock.touch(key));
        assert_eq!(clock.victim(&mut |key| key == round), Some(round));
    }
    assert!(clock.is_empty());
}

#[test]
fn a_key_inserted_again_counts_as_touched() {
    let mut clock = Clock::new(2);
    [5, 6, 5].into_iter().for_each(|key| clock.insert(key));
    assert_eq!(clock.len(), 2);
    assert_eq!([(); 2].map(|()| evict(&mut clock)), [6, 5].map(Some));
}

#[test]
fn unknown_keys_are_ignored() {
    let mut clock = Clock::new(2);
    clock.touch(1);
    clock.remove(1);
    clock.insert(2);
    clock.touch(1);
    clock.remove(1);
    assert_eq!((clock.len(), clock.contains(1), clock.contains(2)), (1, false, true));
}

#[test]
fn a_key_costs_at_most_eleven_bytes_at_the_capacity_and_no_more_when_keys_come_and_go() {
    let keys = 100_000u32;
    let mut clock = Clock::new(keys as usize);
    for key in 0..keys {
        clock.insert(key.wrapping_mul(0x9E37_79B9));
    }
    let full = clock.memory_bytes();
    assert!(full <= keys as usize * 11, "{full} bytes for {keys} keys");
    for key in keys..3 * keys {
        evict(&mut clock);
        clock.insert(key.wrapping_mul(0x9E37_79B9));
    }
    assert_eq!(clock.memory_bytes(), full);
    assert!(Clock::new(usize::MAX).memory_bytes() < 1000, "an empty ring takes no memory yet");
}

#[test]
fn more_keys_than_the_capacity_are_kept_too() {
    let mut clock = Clock::new(10);
    (0..1000).for_each(|key| clock.insert(key * 4096));
    assert_eq!(clock.len(), 1000);
    let out: BTreeSet<u32> = (0..1000).filter_map(|_| evict(&mut clock)).collect();
    assert_eq!(out.len(), 1000);
}

/// The ring as a list of positions, and a stack of the vacant ones with the last vacated on top.
#[derive(Default)]
struct Plain {
    places: Vec<Option<(u32, bool)>>,
    vacant: Vec<usize>,
    hand: usize,
}

impl Plain {
    fn find(&self, key: u32) -> Option<usize> {
        self.places.iter().position(|place| place.is_some_and(|(its, _)| its == key))
    }

    fn insert(&mut self, key: u32) {
        if self.find(key).is_some() {
            return self.touch(key);
        }
        let place = self.vacant.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some((key, false));
    }

    fn touch(&mut self, key: u32) {
        if let Some(place) = self.find(key) {
            self.places[place] = Some((key, true));
        }
    }

    fn remove(&mut self, key: u32) {
        if let Some(place) = self.find(key) {
            self.places[place] = None;
            self.vacant.push(place);
        }
    }

    fn victim(&mut self, eligible: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        let start = self.hand;
        for step in 0..2 * self.places.len() {
            let at = (start + step) % self.places.len();
            match self.places[at] {
                Some((key, false)) if eligible(key) => {
                    self.remove(key);
                    self.hand = at + 1;
                    return Some(key);
                }
                Some((key, _)) => self.places[at] = Some((key, false)),
                None => {}
            }
        }
        None
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u32),
    Touch(u32),
    Remove(u32),
    Victim(u32),
}

proptest! {
    #[test]
    fn every_eviction_is_that_of_the_plain_ring(
        spread in prop::sample::select(vec![1u32, 64, 0x0101_0101]),
        steps in prop::collection::vec(
            prop_oneof![
                5 => (0..200u32).prop_map(Step::Insert),
                3 => (0..200u32).prop_map(Step::Touch),
                2 => (0..200u32).prop_map(Step::Remove),
                3 => (1..5u32).prop_map(Step::Victim),
            ],
            0..600,
        ),
    ) {
        let (mut clock, mut plain) = (Clock::new(50), Plain::default());
        for step in steps {
            match step {
                Step::Insert(key) => {
                    clock.insert(key.wrapping_mul(spread));
                    plain.insert(key.wrapping_mul(spread));
                }
                Step::Touch(key) => {
                    clock.touch(key.wrapping_mul(spread));
                    plain.touch(key.wrapping_mul(spread));
                }
                Step::Remove(key) => {
                    clock.remove(key.wrapping_mul(spread));
                    plain.remove(key.wrapping_mul(spread));
                }
                Step::Victim(of) => {
                    let mut eligible = |key: u32| (key / spread).is_multiple_of(of);
                    prop_assert_eq!(clock.victim(&mut eligible), plain.victim(&mut eligible));
                }
            }
            prop_assert_eq!(clock.len(), plain.places.iter().flatten().count());
            for key in 0..200 {
                let key = key * spread;
                prop_assert_eq!(clock.contains(key), plain.find(key).is_some());
            }
        }
    }
}
