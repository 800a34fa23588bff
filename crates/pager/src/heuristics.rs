//! The heuristics of the pager, each of which can be turned off: `deepram bench ablate` measures what each gives.

use std::fmt;
use std::str::FromStr;

use super::PagerOptions;

/// A part of the pager that only makes programs faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heuristic {
    /// One handler serves a thread that faults alone, or threads that mostly wait for faults, on their processor (ADR 22,
    /// ADR 58).
    Leader,
    /// Handlers poll for completed reads for a while before they sleep (ADR 16).
    Polling,
    /// Sequential and strided misses start readahead (ADR 20).
    Readahead,
    /// Misses read the block of pages around them (ADR 25).
    FaultAround,
    /// The victim buffer is larger than writing back needs, so that pages come back from it (ADR 16).
    SecondChance,
    /// Memory that is used in order moves as huge pages (ADR 21).
    HugePages,
}

impl Heuristic {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Leader,
        Self::Polling,
        Self::Readahead,
        Self::FaultAround,
        Self::SecondChance,
        Self::HugePages,
    ];

    /// Its name in options and output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Polling => "polling",
            Self::Readahead => "readahead",
            Self::FaultAround => "fault-around",
            Self::SecondChance => "second-chance",
            Self::HugePages => "huge-pages",
        }
    }
}

impl fmt::Display for Heuristic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Heuristic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|heuristic| heuristic.name() == text);
        found.ok_or_else(|| format!("\"{text}\" is no heuristic of the pager; there are {names}"))
    }
}

/// A set of heuristics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heuristics(u16);

impl Heuristics {
    /// Whether the set has this one.
    #[must_use]
    pub const fn contains(self, one: Heuristic) -> bool {
        self.0 & 1 << one as u16 != 0
    }
}

impl PagerOptions {
    /// These options with a record of nearly all uses of pages. Nothing that brings in pages before their use is on.
    #[must_use]
    pub fn recording_accesses(mut self) -> Self {
        self.record_accesses = true;
        let hiding = [Heuristic::Readahead, Heuristic::FaultAround];
        hiding.into_iter().fold(self, Self::without)
    }

    /// These options with a heuristic turned off.
    #[must_use]
    pub fn without(mut self, off: Heuristic) -> Self {
        match off {
            Heuristic::Leader => self.pin_faulting_threads = false,
            Heuristic::Readahead => self.readahead = false,
            Heuristic::HugePages => self.huge_pages = false,
            off => self.off.0 |= 1 << off as u16,
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for one in Heuristic::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!("victims".parse::<Heuristic>().unwrap_err().contains("there are leader, polling"));
    }

    #[test]
    fn each_turns_off_something_of_its_own() {
        let all = PagerOptions { pin_faulting_threads: true, ..PagerOptions::new(1 << 30, "/") };
        let state = |options: &PagerOptions| {
            (options.pin_faulting_threads, options.readahead, options.huge_pages, options.off)
        };
        let mut seen = vec![state(&all)];
        for one in Heuristic::ALL {
            let now = state(&all.clone().without(one));
            assert!(!seen.contains(&now), "{one}");
            seen.push(now);
        }
    }
}
