//! Shadow copies of recently persisted memory since the last cut, so that a persist omits unchanged lines.

use std::collections::HashMap;

use super::LINE;

/// Lines in a shadow copy.
const LINES: u64 = 64;
const BYTES: usize = LINES as usize * LINE;
/// Largest number of shadow copies. Lines without a shadow copy are written whether they have changed or not.
const MAX_COPIES: usize = 256;

/// Largest size of all shadow copies in DRAM, in bytes.
pub(super) const MAX_BYTES: usize = MAX_COPIES * (BYTES + 64);

struct ShadowCopy {
    bytes: Box<[u8; BYTES]>,
    /// The lines that the shadow copy holds, one bit for each.
    known: u64,
}

/// Shadow copies, by the number of the aligned range of [`LINES`] lines that they cover.
#[derive(Default)]
pub(super) struct ShadowCopies(HashMap<u64, ShadowCopy>);

impl ShadowCopies {
    /// Drops all shadow copies: a commit covers the current memory, which may be newer than them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether the line may differ from its last persisted version.
    pub(super) fn may_differ(&self, line: u64, bytes: &[u8]) -> bool {
        let (n, at) = position_of(line);
        self.0
            .get(&n)
            .is_none_or(|copy| copy.known >> (at / LINE) & 1 == 0 || copy.bytes[at..at + LINE] != *bytes)
    }

    /// Records a line that is being persisted. A new shadow copy is made only if the line is one of `several`: a
    /// caller that persists a single line knows that it has changed.
    pub(super) fn note(&mut self, line: u64, bytes: &[u8], several: bool) {
        let (n, at) = position_of(line);
        if several && !self.0.contains_key(&n) {
            if self.0.len() == MAX_COPIES {
                self.0.clear();
            }
            self.0.insert(n, ShadowCopy { bytes: Box::new([0; BYTES]), known: 0 });
        }
        if let Some(copy) = self.0.get_mut(&n) {
            copy.bytes[at..at + LINE].copy_from_slice(bytes);
            copy.known |= 1 << (at / LINE);
        }
    }
}

/// Returns the number of the range that holds a line, and the line's first byte in it.
fn position_of(line: u64) -> (u64, usize) {
    (line / LINES, (line % LINES) as usize * LINE)
}
