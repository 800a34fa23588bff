//! Measures the memory of this machine.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;
use std::sync::Barrier;
use std::time::Instant;

use super::probe;
use crate::clock::thread_cpu_ns;

const LINE: usize = 64;
/// Memory of the pointer chase, bytes: beyond the caches of most machines.
const CHASE: usize = 512 << 20;
/// Loads of the pointer chase, and the number of parts whose median counts.
const LOADS: u32 = 300_000;
const PARTS: u32 = 15;
/// Memory of the chase in the second-level cache, bytes.
const NEAR: usize = 512 << 10;
/// Memory that each thread reads for the bandwidth, bytes, and the number of rounds.
const STREAM: usize = 256 << 20;
const ROUNDS: u32 = 3;

/// The figures of a machine that the emulation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Ticks of the time-stamp counter in a millisecond.
    pub ticks_per_ms: u64,
    /// Ticks of a timed load that hits the first-level cache.
    pub probe_ticks: u64,
    /// A processor's cycle, picoseconds.
    pub cycle_ps: u64,
    /// Latency of the second-level cache, picoseconds.
    pub near_ps: u64,
    /// Latency of an idle dependent read from memory, `L_DRAM`, picoseconds.
    pub memory_ps: u64,
    /// Time in which one thread reads a line of a sequence from memory, picoseconds.
    pub thread_line_ps: u64,
    /// Time in which one thread moves a line when it copies: each copied line is three lines, read, read and written.
    pub thread_copy_ps: u64,
    /// Time in which all processors together read a line from memory, picoseconds.
    pub line_ps: u64,
}

/// The memory could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The operating system refused memory.
    #[error("no memory of {0} bytes to measure with")]
    NoMemory(usize),
    /// A figure makes no sense.
    #[error("{0} measures as {1}: this machine's clock or its neighbours disturb the measurement")]
    Implausible(&'static str, u64),
}

impl Machine {
    /// Measures this machine for about a second, with all its processors.
    ///
    /// # Errors
    /// There is not enough memory, or the figures contradict each other.
    pub fn measure() -> Result<Self, MeasureError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let ticks_per_ms = ticks_per_ms();
        let (cycle_ps, near_ps) = (cycle_ps(), chase_ps(NEAR)?);
        let memory_ps = chase_ps(CHASE)?;
        let thread_line_ps = stream_ps(1, &|area| sum(area, 1), 1)?;
        let thread_copy_ps = stream_ps(1, &copy, 3)?;
        let line_ps = stream_ps(threads, &|area| sum(area, LINE / 8), 1)?;
        let new = Self {
            ticks_per_ms,
            probe_ticks: probe_ticks(),
            cycle_ps,
            near_ps,
            memory_ps,
            thread_line_ps,
            thread_copy_ps,
            line_ps: line_ps.min(thread_line_ps),
        };
        new.check()
    }

    fn check(self) -> Result<Self, MeasureError> {
        let ranges = [
            ("the time-stamp counter, in ticks a millisecond,", self.ticks_per_ms, 100_000..=100_000_000),
            ("a processor's cycle, in ps,", self.cycle_ps, 50..=5_000),
            ("a read from memory, in ps,", self.memory_ps, self.near_ps * 2..=10_000_000),
            ("a line of a sequence, in ps,", self.thread_line_ps, 1..=self.memory_ps),
            ("a line of a copy, in ps,", self.thread_copy_ps, 1..=self.memory_ps),
            ("a line that all processors read, in ps,", self.line_ps, 1..=self.memory_ps),
        ];
        match ranges.into_iter().find(|(_, value, range)| !range.contains(value)) {
            Some((name, value, _)) => Err(MeasureError::Implausible(name, value)),
            None => Ok(self),
        }
    }

    /// Picoseconds of a number of ticks.
    #[must_use]
    pub fn ps(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_ms.max(1))) as u64
    }

    /// Latency from which a load counts as one from memory, picoseconds: the geometric mean of the latencies of the
    /// second-level cache and of memory. The third level of a large server is nearer to memory.
    #[must_use]
    pub fn miss_ps(&self) -> u64 {
        ((self.near_ps as f64 * self.memory_ps as f64).sqrt()) as u64
    }

    fn fields(&self) -> [u64; 8] {
        let Self {
            ticks_per_ms,
            probe_ticks,
            cycle_ps,
            near_ps,
            memory_ps,
            thread_line_ps,
            thread_copy_ps,
            line_ps,
        } = *self;
        [ticks_per_ms, probe_ticks, cycle_ps, near_ps, memory_ps, thread_line_ps, thread_copy_ps, line_ps]
    }
}

impl fmt::Display for Machine {
    /// Eight numbers, which [`Machine::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fields().map(|value| value.to_string()).join(","))
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a machine: eight numbers with commas between them");
        let all: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
        match *all.map_err(|_| wrong())? {
            [
                ticks_per_ms,
                probe_ticks,
                cycle_ps,
                near_ps,
                memory_ps,
                thread_line_ps,
                thread_copy_ps,
                line_ps,
            ] => Ok(Self {
                ticks_per_ms,
                probe_ticks,
                cycle_ps,
                near_ps,
                memory_ps,
                thread_line_ps,
                thread_copy_ps,
                line_ps,
            }),
            _ => Err(wrong()),
        }
    }
}

fn ticks_per_ms() -> u64 {
    let (begin, ticks) = (Instant::now(), probe::now());
    while begin.elapsed().as_millis() < 20 {
        std::hint::spin_loop();
    }
    let ticks = u128::from(probe::now() - ticks);
    (ticks * 1_000_000 / begin.elapsed().as_nanos().max(1)) as u64
}

/// Median ticks of a timed load that hits the first-level cache.
fn probe_ticks() -> u64 {
    let value = black_box(7_u64);
    let at = std::ptr::from_ref(&value).expose_provenance() as u64;
    // SAFETY: the local variable.
    let mut all: Vec<u64> = (0..1001).map(|_| unsafe { probe::ticks(at) }).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Best of several: a third of a multiplication that depends on the one before. (Chains of additions are shortened by some
/// processors.)
fn cycle_ps() -> u64 {
    const MULTIPLICATIONS: u64 = 1 << 18;
    let once = || {
        let begin = thread_cpu_ns();
        let mut count = MULTIPLICATIONS / 8;
        // SAFETY: arithmetic on registers.
        unsafe {
            std::arch::asm!(
                "2:",
                "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}",
                "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}", "imul {x}, {x}",
                "dec {count}",
                "jnz 2b",
                x = inout(reg) 3_u64 => _,
                count = inout(reg) count,
                options(nomem, nostack),
            );
        }
        black_box(&mut count);
        (thread_cpu_ns() - begin) * 1000 / (3 * MULTIPLICATIONS)
    };
    (0..10).map(|_| once()).min().unwrap_or(0).max(1)
}

/// Memory of the measurement, with small pages unless the machine uses huge ones always.
struct Area {
    words: Vec<u64>,
}

impl Area {
    fn new(bytes: usize) -> Result<Self, MeasureError> {
        let mut words = Vec::new();
        words.try_reserve_exact(bytes / 8).map_err(|_| MeasureError::NoMemory(bytes))?;
        words.resize(bytes / 8, 1);
        Ok(Self { words })
    }
}

/// Time of a load that depends on the one before, in an area of this size, picoseconds.
fn chase_ps(bytes: usize) -> Result<u64, MeasureError> {
    let mut area = Area::new(bytes)?;
    let lines = bytes / LINE;
    // A full cycle through all lines: a linear congruence whose multiplier is 1 modulo 4, with an odd increment.
    let next = |line: usize| {
        line.wrapping_mul((0x9e37_79b9_7f4a_7c15 & !3) | 1).wrapping_add(0x5851_f42d) & (lines - 1)
    };
    for line in 0..lines {
        area.words[line * (LINE / 8)] = (next(line) * (LINE / 8)) as u64;
    }
    let mut at = 0;
    let warm = if lines < LOADS as usize { lines * 2 } else { lines / 4096 };
    for _ in 0..warm {
        at = area.words[at] as usize;
    }
    let mut part = || {
        let begin = thread_cpu_ns();
        for _ in 0..LOADS / PARTS {
            at = area.words[at] as usize;
        }
        black_box(at);
        (thread_cpu_ns() - begin) * 1000 / u64::from(LOADS / PARTS)
    };
    let mut all: Vec<u64> = (0..PARTS).map(|_| part()).collect();
    all.sort_unstable();
    Ok(all[all.len() / 2])
}

/// Adds every `step`th word. Returns the number of lines.
fn sum(area: &mut Area, step: usize) -> usize {
    black_box(area.words.iter().step_by(step).fold(0_u64, |sum, word| sum.wrapping_add(*word)));
    area.words.len() / (LINE / 8)
}

/// Copies half of the words to the other half. Returns the number of copied lines.
fn copy(area: &mut Area) -> usize {
    let (from, to) = area.words.split_at_mut(STREAM / 16);
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.wrapping_add(1);
    }
    black_box(to.len() / (LINE / 8))
}

/// Time in which this number of threads together move a line of a sequence, picoseconds, where each line that `work` counts is
/// `moves` lines between caches and memory.
fn stream_ps(
    threads: usize,
    work: &(dyn Fn(&mut Area) -> usize + Sync),
    moves: usize,
) -> Result<u64, MeasureError> {
    let areas: Result<Vec<Area>, _> = (0..threads).map(|_| Area::new(STREAM)).collect();
    let (areas, barrier) = (areas?, Barrier::new(threads));
    let lines_per_ns = |mut area: Area| {
        let mut round = || {
            barrier.wait();
            let begin = thread_cpu_ns();
            let lines = work(&mut area) * moves;
            lines as f64 / (thread_cpu_ns() - begin).max(1) as f64
        };
        (0..ROUNDS).map(|_| round()).fold(0.0, f64::max)
    };
    let rate: f64 = std::thread::scope(|scope| {
        let all: Vec<_> = areas.into_iter().map(|area| scope.spawn(move || lines_per_ns(area))).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    });
    Ok((1000.0 / rate) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        ticks_per_ms: 2_600_000,
        probe_ticks: 60,
        cycle_ps: 300,
        near_ps: 5_000,
        memory_ps: 180_000,
        thread_line_ps: 6_000,
        thread_copy_ps: 4_000,
        line_ps: 3_000,
    };

    #[test]
    fn a_machine_is_read_as_it_was_written() {
        assert_eq!(MACHINE.to_string().parse(), Ok(MACHINE));
        for wrong in ["", "1,2,3", "1,2,3,4,5,6,7,x", "1,2,3,4,5,6,7"] {
            assert!(wrong.parse::<Machine>().unwrap_err().contains("eight numbers"), "{wrong}");
        }
    }

    #[test]
    fn ticks_and_the_latency_of_a_miss_follow_from_the_figures() {
        assert_eq!(MACHINE.ps(2_600), 1_000_000);
        assert_eq!(MACHINE.miss_ps(), 30_000);
    }

    #[test]
    fn figures_that_contradict_each_other_are_refused() {
        let wrong = Machine { memory_ps: MACHINE.near_ps, ..MACHINE };
        assert!(wrong.check().unwrap_err().to_string().contains("a read from memory"));
        assert_eq!(MACHINE.check().ok(), Some(MACHINE));
    }
}
