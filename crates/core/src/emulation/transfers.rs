//! Counts the lines that a window of instructions moves between the caches and memory.
//!
//! A line is moved if its load was slow. A processor fetches the lines of a sequence ahead, so these loads are fast;
//! for a sequence the driver probes a line far ahead, which the processor has not fetched yet: if that one is slow, the whole
//! sequence comes from memory.

use alloc::vec;
use alloc::vec::Vec;

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;
/// Lines that the window may touch; further lines count as known.
const LINES: usize = 4096;
/// Sequences at the same time.
const STREAMS: usize = 16;
/// Largest distance of two lines of a sequence, lines.
const STRIDE: u64 = 4;
/// Lines of a sequence before it is taken for one.
const RUN: u32 = 3;
/// Distance of the probed line, lines: two pages, as the processor's prefetchers stay within a page or the next.
const LEAD: u64 = 128;
/// Lines after which a sequence is probed again.
const AGAIN: u64 = 64;

/// What an instruction does with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads from it.
    Load,
    /// Stores to it: the line is read, and written later.
    Store,
    /// Stores past the caches: the line is written only.
    NonTemporal,
}

/// What the driver must do about a line that an instruction touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Nothing: the window has touched the line before.
    Known,
    /// Measure the latency of the line and call [`Transfers::moved`]; if `lead` is given, first measure that line (its
    /// address divided by [`LINE_BYTES`]) and call [`Transfers::set_lead`].
    New {
        /// A line far ahead in the same sequence.
        lead: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    last: u64,
    down: bool,
    run: u32,
    /// Line at which the lead was probed.
    probed: Option<u64>,
    from_memory: bool,
    used: u64,
}

const UNUSED: Stream =
    Stream { last: u64::MAX, down: false, run: 0, probed: None, from_memory: false, used: 0 };

/// The lines of one window.
#[derive(Debug, Clone)]
pub struct Transfers {
    /// An open hash table of line numbers plus 1, with whether the line is moved and whether it has been stored to.
    lines: Vec<(u64, bool, bool)>,
    count: usize,
    streams: [Stream; STREAMS],
    /// Sequence of the newest line.
    current: usize,
    clock: u64,
    moved: u64,
    loaded: u64,
}

impl Default for Transfers {
    fn default() -> Self {
        Self::new()
    }
}

impl Transfers {
    /// No line has been touched.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lines: vec![(0, false, false); LINES],
            count: 0,
            streams: [UNUSED; STREAMS],
            current: 0,
            clock: 0,
            moved: 0,
            loaded: 0,
        }
    }

    /// Forgets all lines.
    pub fn clear(&mut self) {
        self.lines.fill((0, false, false));
        self.streams = [UNUSED; STREAMS];
        (self.count, self.current, self.clock) = (0, 0, 0);
        (self.moved, self.loaded) = (0, 0);
    }

    /// An instruction touches a line (its address divided by [`LINE_BYTES`]).
    pub fn touch(&mut self, line: u64, access: Access) -> Touch {
        let place = self.place(line);
        let (known, from_memory, stored) = self.lines[place];
        if known != 0 || self.count >= LINES / 2 {
            if known != 0 && access == Access::Store && from_memory && !stored {
                self.lines[place].2 = true;
                self.moved += 1;
            }
            return Touch::Known;
        }
        self.lines[place] = (line + 1, false, false);
        self.count += 1;
        let stream = self.stream(line);
        let due = stream.probed.is_none_or(|at| at.abs_diff(line) >= AGAIN);
        let lead = (stream.run >= RUN && due)
            .then(|| if stream.down { line.checked_sub(LEAD) } else { Some(line + LEAD) })
            .flatten();
        Touch::New { lead }
    }

    /// Notes whether the line ahead of the newest line's sequence was slow.
    pub fn set_lead(&mut self, slow: bool) {
        let stream = &mut self.streams[self.current];
        stream.probed = Some(stream.last);
        stream.from_memory = slow;
    }

    /// Counts the newest line's transfers, if it comes from memory: it was slow, or its sequence is. Returns whether it does.
    pub fn moved(&mut self, line: u64, access: Access, slow: bool) -> bool {
        let stream = &self.streams[self.current];
        let from_memory = slow || (stream.run >= RUN && stream.from_memory);
        if from_memory {
            let place = self.place(line);
            self.lines[place].1 = true;
            self.lines[place].2 = access != Access::Load;
            self.add_lines(1, access);
        }
        from_memory
    }

    /// Whether the newest line continues a sequence, which the processor fetches ahead: a program does not wait for it.
    #[must_use]
    pub fn is_sequence(&self) -> bool {
        self.streams[self.current].run >= RUN
    }

    /// Counts further lines that an access moves and that were not looked at.
    pub fn add_lines(&mut self, lines: u64, access: Access) {
        self.moved += lines * if access == Access::Store { 2 } else { 1 };
        self.loaded += if access == Access::Load { lines } else { 0 };
    }

    /// Lines that loads have moved so far.
    #[must_use]
    pub const fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Bytes moved so far.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.moved * LINE_BYTES
    }

    fn place(&self, line: u64) -> usize {
        let mut place = (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        while self.lines[place].0 != 0 && self.lines[place].0 != line + 1 {
            place = (place + 1) % LINES;
        }
        place
    }

    /// The sequence that the line continues, or a new one.
    fn stream(&mut self, line: u64) -> Stream {
        self.clock += 1;
        let continues = |stream: &Stream| {
            let near = stream.last != u64::MAX && (1..=STRIDE).contains(&stream.last.abs_diff(line));
            near && (stream.run < 2 || (line < stream.last) == stream.down)
        };
        let found = self.streams.iter().position(continues);
        let oldest = || (0..STREAMS).min_by_key(|&n| self.streams[n].used).unwrap_or(0);
        self.current = found.unwrap_or_else(oldest);
        let stream = &mut self.streams[self.current];
        if found.is_none() {
            *stream = UNUSED;
        } else {
            stream.down = line < stream.last;
        }
        stream.run += 1;
        stream.last = line;
        stream.used = self.clock;
        *stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Touches lines; `slow` says which of them are slow.
    fn run(
        all: impl IntoIterator<Item = u64>,
        access: Access,
        slow: impl Fn(u64) -> bool,
    ) -> (Transfers, u64) {
        let mut transfers = Transfers::new();
        let mut probes = 0;
        for line in all {
            if let Touch::New { lead } = transfers.touch(line, access) {
                if let Some(lead) = lead {
                    probes += 1;
                    transfers.set_lead(slow(lead));
                }
                transfers.moved(line, access, slow(line));
            }
        }
        (transfers, probes)
    }

    #[test]
    fn scattered_slow_lines_are_moved_once() {
        let lines = (0..100).chain(0..100).map(|n| n * 1000);
        assert_eq!(run(lines, Access::Load, |_| true).0.bytes(), 100 * LINE_BYTES);
        let fast = (0..100).map(|n| n * 1000);
        assert_eq!(run(fast, Access::Load, |_| false).0.bytes(), 0);
    }

    #[test]
    fn lines_fetched_ahead_count_if_the_line_far_ahead_is_slow() {
        // The processor has fetched what follows; the rest is slow.
        for down in [false, true] {
            let line = |n: u64| if down { 100_000 - n } else { 100_000 + n };
            let ahead = |at: u64| at.abs_diff(100_000) > 500;
            let (transfers, probes) = run((0..400).map(line), Access::Load, ahead);
            // Only a lead beyond the 500 lines is slow: from the probe at line 387 on.
            assert!(transfers.bytes() < 30 * LINE_BYTES, "{}", transfers.bytes());
            assert!((6..=8).contains(&probes), "{probes}");
            let always = |at: u64| at.abs_diff(100_000) >= LEAD;
            let (transfers, _) = run((0..100).map(line), Access::Load, always);
            assert_eq!(transfers.bytes(), 98 * LINE_BYTES, "all but those before the sequence is known");
        }
    }

    #[test]
    fn a_store_reads_and_writes_its_line_and_a_non_temporal_one_writes_it() {
        let lines = || (0..50).map(|n| n * 1000);
        assert_eq!(run(lines(), Access::Store, |_| true).0.bytes(), 100 * LINE_BYTES);
        assert_eq!(run(lines(), Access::NonTemporal, |_| true).0.bytes(), 50 * LINE_BYTES);
        let mut both = Transfers::new();
        both.touch(5, Access::Load);
        both.moved(5, Access::Load, true);
        both.touch(5, Access::Store);
        both.touch(5, Access::Store);
        assert_eq!(both.bytes(), 2 * LINE_BYTES);
    }

    #[test]
    fn more_lines_than_the_table_holds_are_ignored() {
        let (transfers, _) = run((0..10_000).map(|n| n * 1000), Access::Load, |_| true);
        assert_eq!(transfers.bytes(), LINES as u64 / 2 * LINE_BYTES);
    }

    #[test]
    fn lines_beside_each_other_are_a_sequence_and_scattered_ones_are_not() {
        assert!(run(0..3, Access::Load, |_| true).0.is_sequence());
        assert!(!run(0..2, Access::Load, |_| true).0.is_sequence());
        assert!(!run((0..50).map(|n| n * 7), Access::Load, |_| true).0.is_sequence());
    }

    #[test]
    fn cleared_transfers_are_new_ones() {
        let (mut transfers, _) = run((0..100).map(|n| n * 1000), Access::Load, |_| true);
        transfers.clear();
        assert_eq!(transfers.bytes(), 0);
        assert!(matches!(transfers.touch(0, Access::Load), Touch::New { lead: None }));
    }
}
