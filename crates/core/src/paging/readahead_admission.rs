//! Decides whether pages that were read ahead enter the victim buffer when they leave memory (ADR 20). The pages of a scan
//! do not: they were used once, so they are dropped, as they are in the swap file already.

use super::PackedState;

/// One return in this many departures pays for copying all of them: reading pages of a stream again is cheap.
const DEPARTURES_PER_RETURN: u32 = 8;
/// One page in this many is admitted in any case, so that a change is seen.
const SAMPLE_EVERY: u32 = 16;
/// Outcomes after which older outcomes count half.
const HISTORY: u16 = 1024;

/// Outcomes of pages that were read ahead and admitted to the victim buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ReadaheadAdmission {
    /// Pages that came back into memory, and that left the buffer for the swap file; older ones count less.
    returned: u16,
    departed: u16,
    /// Pages that were refused or sampled.
    asked: u32,
}

impl PackedState for ReadaheadAdmission {
    fn to_word(self) -> u64 {
        u64::from(self.returned) | u64::from(self.departed) << 16 | u64::from(self.asked) << 32
    }

    fn from_word(word: u64) -> Self {
        Self { returned: word as u16, departed: (word >> 16) as u16, asked: (word >> 32) as u32 }
    }
}

impl ReadaheadAdmission {
    /// Whether to admit the next such page.
    pub fn admit(&mut self) -> bool {
        if u32::from(self.returned) * DEPARTURES_PER_RETURN >= self.departed.into() {
            return true;
        }
        let sampled = self.asked.is_multiple_of(SAMPLE_EVERY);
        self.asked = self.asked.wrapping_add(1);
        sampled
    }

    /// Records that a page came back into memory.
    pub fn page_returned(&mut self) {
        self.returned += 1;
        self.age();
    }

    /// Records that a page left the victim buffer for the swap file.
    pub fn page_departed(&mut self) {
        self.departed += 1;
        self.age();
    }

    fn age(&mut self) {
        if self.returned + self.departed > HISTORY {
            self.returned /= 2;
            self.departed /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn admitted(admission: &mut ReadaheadAdmission) -> usize {
        (0..160).filter(|_| admission.admit()).count()
    }

    #[test]
    fn pages_are_admitted_as_long_as_some_come_back() {
        let mut admission = ReadaheadAdmission::default();
        assert_eq!(admitted(&mut admission), 160, "nothing is known yet");
        for _ in 0..100_000 {
            admission.page_departed();
        }
        assert_eq!(admitted(&mut admission), 10, "a sample");
        for _ in 0..300 {
            admission.page_returned();
            admission.page_departed();
        }
        assert_eq!(admitted(&mut admission), 160, "the past does not weigh for ever");
    }

    proptest! {
        /// Compares the decision with the share of returns among all outcomes, each of which counts half for every 512 to 1024
        /// outcomes since.
        #[test]
        fn a_lasting_share_of_returns_decides(per_mille in 0u32..1000, first in any::<bool>()) {
            let mut admission = ReadaheadAdmission::default();
            let mut sum = 0;
            // The opposite first, then the share.
            for _ in 0..3000 {
                if first { admission.page_returned() } else { admission.page_departed() }
            }
            for _ in 0..20_000 {
                sum += per_mille;
                if sum >= 1000 {
                    sum -= 1000;
                    admission.page_returned();
                } else {
                    admission.page_departed();
                }
                prop_assert_eq!(ReadaheadAdmission::from_word(admission.to_word()), admission);
            }
            let admitted = admitted(&mut admission);
            match per_mille {
                ..100 => prop_assert_eq!(admitted, 10),
                125.. => prop_assert_eq!(admitted, 160),
                _ => prop_assert!(admitted == 10 || admitted == 160),
            }
        }
    }
}
