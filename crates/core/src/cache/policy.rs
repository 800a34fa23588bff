//! The replacement policies by name: parsing, printing and construction, in one place for simulator, pager
//! and command line.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::{AddressOrderClock, Arc, Clock, Clock2, Fifo, Gclock, Key, Lru, Replacement, S3Fifo, Sieve};

/// A replacement policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// [`Lru`]
    Lru,
    /// [`Fifo`]
    Fifo,
    /// [`Clock`]
    Clock,
    /// [`Clock2`]
    Clock2,
    /// [`Gclock`]
    Gclock,
    /// [`AddressOrderClock`], named `sweep`
    AddressOrderClock,
    /// [`Sieve`]
    Sieve,
    /// [`S3Fifo`]
    S3Fifo,
    /// [`Arc`]
    Arc,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 9] = [
        Self::Lru,
        Self::Fifo,
        Self::Clock,
        Self::Clock2,
        Self::Gclock,
        Self::AddressOrderClock,
        Self::Sieve,
        Self::S3Fifo,
        Self::Arc,
    ];

    /// The policy's name in options and output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::Clock2 => "clock2",
            Self::Gclock => "gclock",
            Self::AddressOrderClock => "sweep",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3fifo",
            Self::Arc => "arc",
        }
    }

    /// The policy called `name` among those of `known`.
    ///
    /// # Errors
    /// No policy of `known` has this name.
    pub fn parse_among(name: &str, known: &'static [Self]) -> Result<Self, UnknownPolicy> {
        let found = known.iter().copied().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy { name: name.to_owned(), known })
    }

    /// An empty cache of `capacity` densely numbered keys under this policy.
    #[must_use]
    pub fn build(self, capacity: usize) -> Box<dyn Replacement + Send> {
        self.build_for(capacity).unwrap_or_else(|| Box::new(Clock::new(capacity)))
    }

    /// An empty cache of `capacity` keys of any type under this policy. `None` for [`Policy::Clock`], whose
    /// keys are dense numbers.
    #[must_use]
    pub fn build_for<K: Key + Ord + Send + 'static>(
        self,
        capacity: usize,
    ) -> Option<Box<dyn Replacement<K> + Send>> {
        Some(match self {
            Self::Lru => Box::new(Lru::new(capacity)),
            Self::Fifo => Box::new(Fifo::new(capacity)),
            Self::Clock => return None,
            Self::Clock2 => Box::new(Clock2::new(capacity)),
            Self::Gclock => Box::new(Gclock::new(capacity)),
            Self::AddressOrderClock => Box::new(AddressOrderClock::new(capacity)),
            Self::Sieve => Box::new(Sieve::new(capacity)),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Arc => Box::new(Arc::new(capacity)),
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::parse_among(name, &Self::ALL)
    }
}

/// The error of a name that no policy has, among those that are supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy<P: 'static = Policy> {
    /// The name.
    pub name: String,
    /// The supported policies.
    pub known: &'static [P],
}

impl<P: fmt::Display> fmt::Display for UnknownPolicy<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no policy '{}'; known: ", self.name)?;
        for (index, policy) in self.known.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{policy}")?;
        }
        Ok(())
    }
}

impl<P: fmt::Debug + fmt::Display> core::error::Error for UnknownPolicy<P> {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_policy_is_parsed_from_its_name_and_builds_a_cache_of_its_capacity() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(policy.build(7).capacity(), 7, "{policy}");
            let any_key = policy.build_for::<u64>(7);
            assert_eq!(any_key.is_none(), policy == Policy::Clock);
        }
    }

    #[test]
    fn an_unknown_or_unsupported_name_lists_the_supported_ones() {
        const TWO: &[Policy] = &[Policy::Lru, Policy::Sieve];
        for name in ["lfu", "arc", ""] {
            let error = Policy::parse_among(name, TWO).unwrap_err().to_string();
            assert_eq!(error, alloc::format!("there is no policy '{name}'; known: lru, sieve"));
        }
    }
}
