//! The access counter of a page in the buffer: counts from 1 to 8 and stays there (hybrid SSD cache,
//! section V-B).

/// The largest count: the number of registers of the hotness threshold's algorithm (section V-C).
pub const MAX_COUNT: u8 = 8;

/// A saturating counter of 1 to [`MAX_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaturatingCounter(u8);

impl SaturatingCounter {
    /// A counter with this count, brought into the range of 1 to [`MAX_COUNT`].
    #[must_use]
    #[inline]
    pub fn new(count: u8) -> Self {
        Self(count.clamp(1, MAX_COUNT))
    }

    /// The count.
    #[must_use]
    #[inline]
    pub fn count(self) -> u8 {
        self.0
    }

    /// True if the count is the largest, which further accesses leave unchanged.
    #[must_use]
    #[inline]
    pub fn is_saturated(self) -> bool {
        self.0 == MAX_COUNT
    }

    /// The counter after one more access.
    #[must_use]
    #[inline]
    pub fn incremented(self) -> Self {
        Self::new(self.0 + 1)
    }
}
