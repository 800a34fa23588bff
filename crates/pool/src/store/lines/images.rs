//! What was last persisted of a stretch of memory since the last cut, so that lines that have not changed
//! since are not written again.

use std::collections::HashMap;

use super::LINE;

/// Lines of an image.
const LINES: u64 = 64;
const BYTES: usize = LINES as usize * LINE;
/// Images kept, at most. Without one, lines are written whether they have changed or not.
const MOST: usize = 256;

/// DRAM that images may come to take, in bytes.
pub(super) const MOST_BYTES: usize = MOST * (BYTES + 64);

struct Image {
    bytes: Box<[u8; BYTES]>,
    /// Which lines are known.
    known: u64,
}

/// Images by the number of their stretch.
#[derive(Default)]
pub(super) struct Images(HashMap<u64, Image>);

impl Images {
    /// Forgets everything: a commit has taken over what memory holds, which may be newer than the images.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the line may differ from what was last persisted of it.
    pub(super) fn differs(&self, line: u64, bytes: &[u8]) -> bool {
        let (n, at) = place(line);
        self.0
            .get(&n)
            .is_none_or(|image| image.known >> (at / LINE) & 1 == 0 || image.bytes[at..at + LINE] != *bytes)
    }

    /// The line is being persisted. A new image is made if it is one of `several`: of single lines the caller
    /// knows that they have changed.
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

/// Number of the stretch that a line is in, and its first byte there.
fn place(line: u64) -> (u64, usize) {
    (line / LINES, (line % LINES) as usize * LINE)
}
