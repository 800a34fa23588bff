//! The sub-page bit vector (NVMM, Use of the Bit Vector's Sub-Page Valid Bits).
//!
//! Bit `position × segments per page + segment` is set if that segment is that many slots after the
//! entry's starting slot. The paper's distances are `position × segments per page`: 0, 8, 16 and 24 for
//! segments of 8 KiB. A segment therefore has several alternative positions, all in one block: a write
//! can skip a worn slot and use scattered free slots. A valid vector has at most one bit for each
//! segment.

use core::fmt;

use crate::units::SegmentSize;

/// The segments of one version and their distances, in slots, from the version's starting slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BitVector(pub u32);

impl BitVector {
    /// The vector with one bit for each (segment, distance from the starting slot).
    ///
    /// `None` if a distance is not a position of its segment, or a segment occurs twice.
    #[must_use]
    pub fn from_distances(size: SegmentSize, placed: &[(u8, u8)]) -> Option<Self> {
        let mut vector = Self::default();
        for &(segment, distance) in placed {
            if distance >= 32
                || distance % size.per_page() != segment
                || vector.distance(size, segment).is_some()
            {
                return None;
            }
            vector.0 |= 1 << distance;
        }
        Some(vector)
    }

    /// True if no segment has more than one bit set.
    #[must_use]
    pub fn is_valid(self, size: SegmentSize) -> bool {
        (0..size.per_page()).all(|segment| (self.0 & Self::positions(size, segment)).count_ones() <= 1)
    }

    /// The bits of all positions of a segment.
    const fn positions(size: SegmentSize, segment: u8) -> u32 {
        let every = match size {
            SegmentSize::K4 => 0x0001_0001,
            SegmentSize::K8 => 0x0101_0101,
            SegmentSize::K16 => 0x1111_1111_u32,
        };
        every << segment
    }

    /// The segment's distance from the starting slot, in slots; `None` if this version lacks the
    /// segment.
    #[must_use]
    pub const fn distance(self, size: SegmentSize, segment: u8) -> Option<u8> {
        match self.0 & Self::positions(size, segment) {
            0 => None,
            bit => Some(bit.trailing_zeros() as u8),
        }
    }

    /// The vector without the segment.
    #[must_use]
    pub const fn without(self, size: SegmentSize, segment: u8) -> Self {
        Self(self.0 & !Self::positions(size, segment))
    }

    /// The segments of this version with their distances, in the order of distance.
    pub fn iter(self, size: SegmentSize) -> impl Iterator<Item = (u8, u8)> {
        (0..32_u8).filter(move |bit| self.0 >> bit & 1 == 1).map(move |bit| (bit % size.per_page(), bit))
    }

    /// True if this version has no segment.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Prints the vector as the paper does: bit 0 first, and a space after every 8 bits.
impl fmt::Display for BitVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bit in 0..32 {
            if bit > 0 && bit % 8 == 0 {
                f.write_str(" ")?;
            }
            write!(f, "{}", self.0 >> bit & 1)?;
        }
        Ok(())
    }
}

impl fmt::Debug for BitVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BitVector({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    const K8: SegmentSize = SegmentSize::K8;

    /// Puts each segment at its first free and writable position, as the paper's controller does.
    fn first_free(start: u32, segments: &[u8], taken: &[u32]) -> BitVector {
        let placed: Vec<(u8, u8)> = segments
            .iter()
            .map(|&s| {
                let position = (0..4).map(|k| s + 8 * k).find(|&d| !taken.contains(&(start + u32::from(d))));
                (s, position.expect("a free position"))
            })
            .collect();
        BitVector::from_distances(K8, &placed).expect("valid")
    }

    #[test]
    fn a_page_written_whole_takes_eight_consecutive_slots() {
        let vector = first_free(0, &[0, 1, 2, 3, 4, 5, 6, 7], &[]);
        assert_eq!(vector.to_string(), "11111111 00000000 00000000 00000000");
    }

    #[test]
    fn worn_pages_56_and_59_send_their_segments_to_64_and_75() {
        // Start 53; flash pages 56 and 59 are worn, 67 holds data already.
        let vector = first_free(53, &[0, 1, 2, 3, 4, 5, 6, 7], &[56, 59, 67]);
        assert_eq!(vector.to_string(), "11101101 00010000 00000010 00000000");
        assert_eq!(vector.distance(K8, 3), Some(64 - 53));
        assert_eq!(vector.distance(K8, 6), Some(75 - 53));
    }

    #[test]
    fn two_dirty_segments_starting_at_17_lie_at_19_and_22() {
        let vector = first_free(17, &[2, 5], &[]);
        assert_eq!(vector.to_string(), "00100100 00000000 00000000 00000000");
        assert_eq!(vector.distance(K8, 2), Some(19 - 17));
        assert_eq!(vector.distance(K8, 5), Some(22 - 17));
    }

    #[test]
    fn segments_2_and_5_can_be_at_seven_distances_and_no_other() {
        let printed = [
            (3, "00100100 00000000 00000000 00000000"),
            (5, "00000100 00100000 00000000 00000000"),
            (11, "00100000 00000100 00000000 00000000"),
            (13, "00000100 00000000 00100000 00000000"),
            (19, "00100000 00000000 00000100 00000000"),
            (21, "00000100 00000000 00000000 00100000"),
            (27, "00100000 00000000 00000000 00000100"),
        ];
        let mut distances = BTreeSet::new();
        for a in 0..4 {
            for b in 0..4 {
                let (two, five) = (2 + 8 * a, 5 + 8 * b);
                let vector =
                    BitVector::from_distances(K8, &[(2, two), (5, five)]).expect("both positions exist");
                let distance = two.abs_diff(five);
                distances.insert(distance);
                // Those the paper prints start as early as they can.
                if a.min(b) == 0 {
                    let (_, text) = printed.iter().find(|(d, _)| *d == distance).expect("printed");
                    assert_eq!(vector.to_string(), *text);
                    // The hidden condition: 5, 13 and 21 start from segment 5.
                    assert_eq!(five < two, [5, 13, 21].contains(&distance));
                }
            }
        }
        assert_eq!(distances, printed.iter().map(|(d, _)| *d).collect());
    }

    #[test]
    fn every_segment_of_every_size_has_all_its_places_and_no_more() {
        for size in [SegmentSize::K4, SegmentSize::K8, SegmentSize::K16] {
            for segment in 0..size.per_page() {
                let positions: Vec<u8> =
                    (0..32).filter(|&d| BitVector::from_distances(size, &[(segment, d)]).is_some()).collect();
                assert_eq!(positions.len(), usize::from(size.positions()));
                for d in positions {
                    let vector = BitVector(1 << d);
                    assert_eq!(vector.distance(size, segment), Some(d));
                    assert_eq!(vector.iter(size).collect::<Vec<_>>(), [(segment, d)]);
                    assert!(vector.without(size, segment).is_empty());
                }
            }
        }
    }

    #[test]
    fn a_segment_in_two_places_is_not_valid() {
        assert!(!BitVector(0x0000_0101).is_valid(K8));
        assert!(BitVector(0x0000_0101).is_valid(SegmentSize::K4));
        assert_eq!(BitVector::from_distances(K8, &[(0, 0), (0, 8)]), None);
        assert_eq!(BitVector::from_distances(K8, &[(1, 0)]), None);
    }
}
