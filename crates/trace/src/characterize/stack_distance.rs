//! LRU stack distances in O(log n) a use.
//!
//! Each page owns the time of its last use. A bit vector over time has a one at the last use of every page, so the stack
//! distance of a page, the number of other pages used since its last use, is the number of ones behind its bit. A use
//! moves the page's one to the end. Ones are counted in steps: within a word, among the eight words of a line (512 times),
//! and among 16 nodes a level above. A node stores for each child the ones in the children behind it: counting reads one
//! number a level, and removing a one decrements the numbers before it, all in one cache line.
//!
//! When time reaches the end of the bit vector, the ones are moved together ([`StackDistances::compact`]) and the vector
//! is made four times as long as there are pages. Memory therefore depends on the number of pages only.

/// Times in a line.
const LINE: usize = 512;
/// Words in a line.
const WORDS: usize = LINE / 64;
/// Children of a node.
const FANOUT: usize = 16;
/// Lines of the smallest bit vector.
const MIN_LINES: usize = 32;
/// Bits of a field of a line's packed counts; at most 448 ones are behind a word.
const FIELD: usize = 9;
/// The position of a page that is not on the stack.
const ABSENT: u32 = u32::MAX;

/// For word `w` of a line, packed counts with a one in each field before `w`.
const BEFORE: [u64; WORDS] = {
    let mut before = [0u64; WORDS];
    let mut word = 1;
    while word < WORDS {
        before[word] = before[word - 1] | 1 << (FIELD * (word - 1));
        word += 1;
    }
    before
};

/// For each child of a node, a one for each child below it.
const BELOW: [[u32; FANOUT]; FANOUT] = {
    let mut below = [[0; FANOUT]; FANOUT];
    let mut child = 1;
    while child < FANOUT {
        below[child] = below[child - 1];
        below[child][child - 1] = 1;
        child += 1;
    }
    below
};

/// The stack distance of each use of a page. Pages have small numbers, as given by order of first use; memory is about
/// 6 bytes for each number up to the largest.
///
/// ```
/// use deepram_trace::characterize::StackDistances;
///
/// let mut stack = StackDistances::new();
/// let distances: Vec<_> = [0, 1, 2, 0, 0, 1].map(|page| stack.touch(page)).into();
/// assert_eq!(distances, [None, None, None, Some(2), Some(0), Some(2)]);
/// ```
#[derive(Clone, Debug)]
pub struct StackDistances {
    /// Time of each page's last use, or [`ABSENT`].
    positions: Vec<u32>,
    /// Ones at the last uses.
    bits: Vec<u64>,
    /// For each line, eight fields: the ones in the words of the line behind each word.
    packed: Vec<u64>,
    /// For each level, from the lines up to the root, its nodes: the ones in the children behind each child. The open
    /// line's ones are not included.
    levels: Vec<Vec<[u32; FANOUT]>>,
    /// Time of the next use; its line is the open line.
    next: u32,
    /// Ones in the open line.
    open: u32,
    /// Pages on the stack.
    pages: u32,
}

impl Default for StackDistances {
    fn default() -> Self {
        Self::new()
    }
}

impl StackDistances {
    /// An empty stack.
    #[must_use]
    pub fn new() -> Self {
        let mut stack = Self {
            positions: Vec::new(),
            bits: Vec::new(),
            packed: Vec::new(),
            levels: Vec::new(),
            next: 0,
            open: 0,
            pages: 0,
        };
        stack.compact();
        stack
    }

    /// Number of pages on the stack.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.pages
    }

    /// True if no page is on the stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Brings what the stack knows of these pages into the processor's cache, so that the waits for memory overlap.
    pub(super) fn load(&self, pages: &[u32]) {
        let last = pages.iter().map(|&page| self.positions.get(page as usize).copied().unwrap_or(0));
        std::hint::black_box(last.fold(0, |all, last| all ^ last));
    }

    /// Uses a page: returns its stack distance, the number of other pages used since its last use (0 for the page used
    /// last), and moves it to the top. `None` for a page that is not on the stack, which enters it. An LRU cache of `n`
    /// pages hits exactly if the distance is below `n`.
    #[inline]
    pub fn touch(&mut self, page: u32) -> Option<u32> {
        let index = page as usize;
        if index >= self.positions.len() {
            self.positions.resize(index + 1, ABSENT);
        }
        let last = self.positions[index];
        let distance = match last {
            ABSENT => {
                self.pages += 1;
                None
            }
            // The page used last stays where it is.
            last if last + 1 == self.next => return Some(0),
            last => Some(self.take(last as usize)),
        };
        let now = self.next as usize;
        let word = now / 64;
        self.bits[word] |= 1 << (now % 64);
        let line = now / LINE;
        self.packed[line] += BEFORE[word % WORDS];
        self.open += 1;
        self.positions[index] = self.next;
        self.next += 1;
        if (self.next as usize).is_multiple_of(LINE) {
            self.close_line(line);
        }
        distance
    }

    /// Removes a page from the stack. Does nothing if it is not there.
    pub fn remove(&mut self, page: u32) {
        if let Some(position) = self.positions.get_mut(page as usize)
            && *position != ABSENT
        {
            let at = std::mem::replace(position, ABSENT) as usize;
            self.take(at);
            self.pages -= 1;
        }
    }

    /// Removes the one at a time; returns the number of ones behind it.
    #[inline]
    fn take(&mut self, at: usize) -> u32 {
        let behind = self.behind_in_line(at);
        let (word, mut node) = (at / 64, at / LINE);
        self.bits[word] &= !(1 << (at % 64));
        self.packed[node] -= BEFORE[word % WORDS];
        if node == self.next as usize / LINE {
            self.open -= 1;
            return behind;
        }
        let mut count = behind + self.open;
        for level in &mut self.levels {
            let child = node % FANOUT;
            node /= FANOUT;
            let numbers = &mut level[node];
            count += numbers[child];
            for (number, below) in numbers.iter_mut().zip(&BELOW[child]) {
                *number = number.wrapping_sub(*below);
            }
        }
        count
    }

    /// Number of ones behind a time, in its line.
    #[inline]
    fn behind_in_line(&self, at: usize) -> u32 {
        let word = at / 64;
        let behind = self.bits[word] >> (at % 64) >> 1;
        behind.count_ones() + (self.packed[at / LINE] >> (FIELD * (word % WORDS)) & 0x1ff) as u32
    }

    /// Adds the ones of the open line to the levels. Compacts if it was the last line.
    fn close_line(&mut self, line: usize) {
        let mut node = line;
        for level in &mut self.levels {
            let child = node % FANOUT;
            node /= FANOUT;
            for number in &mut level[node][..child] {
                *number += self.open;
            }
        }
        self.open = 0;
        if self.next as usize == self.bits.len() * 64 {
            self.compact();
        }
    }

    /// Moves the ones together, in order, to the beginning of a bit vector with four times as many times as pages.
    fn compact(&mut self) {
        // The ones before each line. All lines are closed.
        let mut before = 0;
        let lines_before: Vec<u32> = self
            .bits
            .chunks(WORDS)
            .map(|line| {
                let here = before;
                before += line.iter().map(|word| word.count_ones()).sum::<u32>();
                here
            })
            .collect();
        for position in self.positions.iter_mut().filter(|position| **position != ABSENT) {
            let at = *position as usize;
            let first = at / LINE * WORDS;
            let full: u32 = self.bits[first..at / 64].iter().map(|word| word.count_ones()).sum();
            let rest = (self.bits[at / 64] & !(!0 << (at % 64))).count_ones();
            *position = lines_before[at / LINE] + full + rest;
        }

        let pages = self.pages as usize;
        // Times are 32 bits, and a line is free.
        let lines = (4 * pages / LINE + 1).clamp(MIN_LINES, u32::MAX as usize / LINE);
        self.bits.clear();
        self.bits.resize(lines * WORDS, 0);
        self.bits[..pages / 64].fill(!0);
        self.bits[pages / 64] = !(!0 << (pages % 64));
        let ones = |from: usize, to: usize| pages.min(to).saturating_sub(pages.min(from)) as u32;
        self.packed.clear();
        self.packed.extend((0..lines).map(|line| {
            let end = (line + 1) * LINE;
            (0..WORDS).fold(0, |packed, word| {
                packed | u64::from(ones(line * LINE + (word + 1) * 64, end)) << (FIELD * word)
            })
        }));
        self.next = self.pages;
        self.open = ones(pages / LINE * LINE, pages);
        let closed = pages - self.open as usize;
        self.levels.clear();
        let (mut children, mut times) = (lines, LINE);
        while children > 1 {
            let nodes = children.div_ceil(FANOUT);
            let count = |node: usize, child: usize| {
                let end = closed.min((node + 1) * FANOUT * times);
                end.saturating_sub((node * FANOUT + child + 1) * times) as u32
            };
            let level = (0..nodes).map(|node| std::array::from_fn(|child| count(node, child)));
            self.levels.push(level.collect());
            (children, times) = (nodes, times * FANOUT);
        }
    }
}
