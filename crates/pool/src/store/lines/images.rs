//! Shadow copies of recently persisted memory since the last cut, so that a persist omits unchanged lines.

use std::collections::HashMap;

use super::LINE;

/// Lines in a shadow copy.
const LINES: u64 = 64;
const BYTES: usize = LINES as usize * LINE;
/// Largest number of shadow copies. Lines without a shadow copy are written whether they have changed or not.
const MOST: usize = 256;

/// Largest size of all shadow copies in DRAM, in bytes.
pub(super) const MOST_BYTES: usize = MOST * (BYTES + 64);

struct Image {
    bytes: Box<[u8; BYTES]>,
    /// The lines that the shadow copy holds, one bit for each.
    known: u64,
}

/// Shadow copies, by the number of the aligned range of [`LINES`] lines that they cover.
#[derive(Default)]
pub(super) struct Images(HashMap<u64, Image>);

impl Images {
    /// Drops all shadow copies: a commit covers the current memory, which may be newer than them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether the line may differ from its last persisted version.
    pub(super) fn differs(&self, line: u64, bytes: &[u8]) -> bool {
        let (n, at) = place(line);
        self.0
            .get(&n)
            .is_none_or(|image| image.known >> (at / LINE) & 1 == 0 || image.bytes[at..at + LINE] != *bytes)
    }

    /// Records a line that is being persisted. A new shadow copy is made only if the line is one of `several`: a
    /// caller that persists a single line knows that it has changed.
    pub(super) fn note(&mut self, line: u64, bytes: &[u8], several: bool) {
        let (n, at) = place(line);
        if several && !self.0.contains_key(&n) {
            if self.0.len() == MOST {
                self.0.clear();
            }
            self.0.insert(n, Image { bytes: Box::new([0; BYTES]), known: 0 });
        }
        if let Some(image) = self.0.get_mut(&n) {
            image.bytes[at..at + LINE].copy_from_slice(bytes);
            image.known |= 1 << (at / LINE);
        }
    }
}

/// Returns the number of the range that holds a line, and the line's first byte in it.
fn place(line: u64) -> (u64, usize) {
    (line / LINES, (line % LINES) as usize * LINE)
}
