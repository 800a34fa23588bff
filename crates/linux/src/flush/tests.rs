use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn flushers() -> Vec<Flusher> {
    Method::ALL.into_iter().filter_map(|method| Flusher::new(method).ok()).collect()
}

/// Places at which ranges are flushed, so far apart that no prefetcher brings one for another.
const PLACES: usize = 64;
/// Lines from one place to the next.
const APART: usize = 67;

#[test]
fn names_are_read_back_and_others_are_refused() {
    for method in Method::ALL {
        assert_eq!(method.name().parse(), Ok(method));
    }
    let error = "clflushx".parse::<Method>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"clflushx\" is not a flush method; give clflush, clflushopt, clwb or wof"
    );
}

#[test]
fn a_processor_has_the_methods_that_it_reports() {
    assert!(Method::best().is_available());
    for method in Method::ALL {
        match Flusher::new(method) {
            Ok(flusher) => assert!(method.is_available() && flusher.line().is_power_of_two()),
            Err(error) => {
                assert!(!method.is_available());
                assert!(error.to_string().starts_with(&format!("this processor has no {method}; it has ")));
            }
        }
    }
}

#[test]
fn a_range_of_any_alignment_is_flushed_and_keeps_its_bytes() {
    proptest!(|(offset in 0usize..130, len in 0usize..5000)| {
        let memory: Vec<u8> = (0..8192u32).map(|n| (n * 31 % 251) as u8).collect();
        for flusher in flushers() {
            // SAFETY: all lines lie within `memory`.
            unsafe { flusher.persist(memory.as_ptr().wrapping_add(1024 + offset), len) };
        }
        prop_assert!((0..8192u32).all(|n| memory[n as usize] == (n * 31 % 251) as u8));
    });
}

#[test]
fn lines_of_a_range_leave_the_caches_and_their_neighbours_stay() {
    // `clwb` may leave a line in the caches.
    for flusher in flushers().into_iter().filter(|flusher| flusher.method() != Method::Clwb) {
        // Other programs may empty the caches, so that loads of all lines take long.
        let told_apart = (0..50).any(|_| {
            let [before, first, second, after] = load_times(flusher);
            first.min(second) > before.max(after)
        });
        assert!(told_apart, "{}", flusher.method());
    }
}

/// Times of loads from the line before a flushed range, its two lines, and the line after it, at all places.
fn load_times(flusher: Flusher) -> [Duration; 4] {
    let in_line = flusher.line() / 8;
    let words: Vec<AtomicU64> = (0..((PLACES + 1) * APART * in_line) as u64).map(AtomicU64::new).collect();
    let first = words.as_ptr().align_offset(flusher.line());
    let word = |place: usize, line: usize| &words[first + (place * APART + line) * in_line];
    // The least of several times, as an interrupt may fall into any.
    let load_time = |line: usize| {
        let once = || {
            for place in 0..PLACES {
                (8..12).for_each(|line| word(place, line).store(1, Relaxed));
                // The last byte of line 9 and the first of line 10.
                let start = std::ptr::from_ref(word(place, 10)).cast::<u8>().wrapping_sub(1);
                // SAFETY: within `words`.
                unsafe { flusher.persist(start, 2) };
            }
            let begin = Instant::now();
            let sum: u64 = (0..PLACES).map(|place| word(place, line).load(Relaxed)).sum();
            assert_eq!(sum, PLACES as u64);
            begin.elapsed()
        };
        (0..20).map(|_| once()).min().unwrap()
    };
    [8, 9, 10, 11].map(load_time)
}

#[test]
fn an_empty_range_needs_no_memory() {
    for flusher in flushers() {
        // SAFETY: no byte is flushed.
        unsafe { flusher.persist(std::ptr::without_provenance(4096), 0) };
    }
}

#[test]
fn a_barrier_takes_its_delay() {
    let flusher = Flusher::new(Method::Clflush).unwrap().with_barrier(Duration::from_millis(3));
    let begin = Instant::now();
    flusher.barrier();
    assert!(begin.elapsed() >= Duration::from_millis(3));
}

#[test]
fn each_line_of_a_range_is_flushed_once_and_stores_stay_within_the_range() {
    const LINE: usize = 64;
    for start in 0..2 * LINE {
        for len in 0..5 * LINE {
            let mut next = start / LINE;
            for part in parts(start, len, LINE).into_iter().filter(|part| part.lines > 0) {
                let first = start / LINE + part.skip;
                assert_eq!(first, next, "{len} bytes at {start}");
                next += part.lines;
                let within = first * LINE >= start && next * LINE <= start + len;
                assert_eq!(part.method == Method::NonTemporal, within, "{len} bytes at {start}");
                assert!(within || part.lines == 1, "{len} bytes at {start}");
            }
            let end = if len == 0 { start / LINE } else { (start + len).div_ceil(LINE) };
            assert_eq!(next, end, "{len} bytes at {start}");
            assert_eq!(lines_of(start, len, LINE), end - start / LINE, "{len} bytes at {start}");
        }
    }
}
