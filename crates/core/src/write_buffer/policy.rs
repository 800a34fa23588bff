//! The write-buffer policies by name: parsing, printing and construction.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use super::{Bplru, CcfLru, Cflru, Fab, Lru, LruWsr, WriteBuffer, WriteBufferOptions};
use crate::cache::UnknownPolicy;

/// A write-buffer policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteBufferPolicy {
    /// [`Lru`]
    Lru,
    /// [`Cflru`]
    Cflru,
    /// [`LruWsr`]
    LruWsr,
    /// [`CcfLru`]
    CcfLru,
    /// [`Fab`]
    Fab,
    /// [`Bplru`]
    Bplru,
}

impl WriteBufferPolicy {
    /// All policies.
    pub const ALL: [Self; 6] = [Self::Lru, Self::Cflru, Self::LruWsr, Self::CcfLru, Self::Fab, Self::Bplru];

    /// The policy's name in options and output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Cflru => "cflru",
            Self::LruWsr => "lru-wsr",
            Self::CcfLru => "ccf-lru",
            Self::Fab => "fab",
            Self::Bplru => "bplru",
        }
    }

    /// An empty buffer under this policy.
    #[must_use]
    pub fn build(self, options: &WriteBufferOptions) -> Box<dyn WriteBuffer + Send> {
        match self {
            Self::Lru => Box::new(Lru::new(options)),
            Self::Cflru => Box::new(Cflru::new(options)),
            Self::LruWsr => Box::new(LruWsr::new(options)),
            Self::CcfLru => Box::new(CcfLru::new(options)),
            Self::Fab => Box::new(Fab::new(options)),
            Self::Bplru => Box::new(Bplru::new(options)),
        }
    }
}

impl fmt::Display for WriteBufferPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WriteBufferPolicy {
    type Err = UnknownPolicy<Self>;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy<Self>> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy { name: name.into(), known: &Self::ALL })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_policy_is_parsed_from_its_name_and_builds_a_buffer_of_its_capacity() {
        for policy in WriteBufferPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(policy.build(&WriteBufferOptions::new(7, 4)).capacity(), 7, "{policy}");
        }
    }

    #[test]
    fn an_unknown_name_lists_the_policies() {
        let error = "clc".parse::<WriteBufferPolicy>().unwrap_err().to_string();
        assert_eq!(error, "there is no policy 'clc'; known: lru, cflru, lru-wsr, ccf-lru, fab, bplru");
    }
}
