//! The replacement policies that the pagers support: a checked subset of [`crate::cache`].

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use crate::cache::{AddressOrderClock, Key, Policy, Replacement, UnknownPolicy};

/// The policies that the pager supports, in the order of [`PagerPolicy::ALL`].
const SUPPORTED: [Policy; 7] = [
    Policy::S3Fifo,
    Policy::Fifo,
    Policy::Lru,
    Policy::Sieve,
    Policy::Clock2,
    Policy::Gclock,
    Policy::AddressOrderClock,
];

/// Replacement policy: which page is evicted when frames are needed ([`crate::cache`]). The pager does not see
/// accesses to pages in memory. It tells the policy about a page that comes back from the victim buffer: such a page
/// counts as touched as often as its heat, which doubles each time it comes back.
///
/// | name | victim |
/// |---|---|
/// | `s3fifo` | the oldest page of a small queue of new pages, or of the main queue of pages that came back |
/// | `fifo` | the page that has been in memory longest |
/// | `lru` | the page whose last return is longest ago |
/// | `sieve` | the oldest page that has not come back, found by a moving hand |
/// | `clock2` | the oldest page, after one extra round for each return, up to 3 |
/// | `gclock` | as `clock2`, with up to 16 extra rounds |
/// | `sweep` (the default) | the next page in address order, after one extra round for each return, up to 16 |
///
/// `sweep` measured best (docs/performance.md): pages that leave together are neighbours, which one call protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagerPolicy(Policy);

impl PagerPolicy {
    /// All policies that the pager supports.
    pub const ALL: [Self; 7] = {
        let mut all = [Self(SUPPORTED[0]); 7];
        let mut index = 1;
        while index < all.len() {
            all[index] = Self(SUPPORTED[index]);
            index += 1;
        }
        all
    };

    /// The policy's name in options and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Creates an empty policy for `frames` frames.
    #[must_use]
    pub fn build<K: Key + Ord + Send + 'static>(self, frames: usize) -> Box<dyn Replacement<K> + Send> {
        // Every supported policy takes keys of any type, so the default is never substituted.
        self.0.build_for(frames).unwrap_or_else(|| Box::new(AddressOrderClock::new(frames)))
    }
}

impl Default for PagerPolicy {
    fn default() -> Self {
        Self(Policy::AddressOrderClock)
    }
}

impl fmt::Display for PagerPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PagerPolicy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Policy::parse_among(name, &SUPPORTED).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_pager_supports_seven_policies_by_name_and_refuses_the_others() {
        for policy in PagerPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(policy.build::<u64>(7).capacity(), 7);
        }
        for name in ["clock", "arc", "best"] {
            assert!(name.parse::<PagerPolicy>().unwrap_err().to_string().contains("known: s3fifo, fifo"));
        }
        assert_eq!(PagerPolicy::default().name(), "sweep");
    }
}
