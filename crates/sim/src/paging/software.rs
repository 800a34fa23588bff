//! The times of the operating system's software: phases of fixed length, and one random wait for each
//! fault that sleeps (NVMM, table Software Overhead).
//!
//! The wait is exponential, so a fault's software time has a gamma distribution of shape 1, shifted by
//! the path. The study gives two moments of its software, which determine the two parameters. A
//! lognormal would fit as well, but only this distribution leaves nearly the same path under both drives
//! (13.4 and 13.7 us), as one kernel must have.

use deepram_media::Software;
use serde::Serialize;

use crate::engine::Time;
use deepram_trace::workload::Rng;

/// A phase of the software; [`Software`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// `entry`
    Entry,
    /// `lookup`
    Lookup,
    /// `allocation`, and `extra_page` for each further page
    Allocation,
    /// `block`
    Block,
    /// `driver`
    Driver,
    /// `switch_away`
    SwitchAway,
    /// `interrupt`
    Interrupt,
    /// `completion`
    Completion,
    /// `wake`
    Wake,
    /// `wait`, as drawn
    Wait,
    /// `switch_back`
    SwitchBack,
    /// `map`
    Map,
    /// Time of kernel threads for write-back commands; no thread of the workload waits for it.
    WriteBack,
}

impl Phase {
    /// All phases, in the order in which a fault passes through them.
    pub const ALL: [Self; 13] = [
        Self::Entry,
        Self::Lookup,
        Self::Allocation,
        Self::Block,
        Self::Driver,
        Self::SwitchAway,
        Self::Interrupt,
        Self::Completion,
        Self::Wake,
        Self::Wait,
        Self::SwitchBack,
        Self::Map,
        Self::WriteBack,
    ];

    /// The phase's name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Lookup => "lookup",
            Self::Allocation => "allocation",
            Self::Block => "block",
            Self::Driver => "driver",
            Self::SwitchAway => "switch away",
            Self::Interrupt => "interrupt",
            Self::Completion => "completion",
            Self::Wake => "wake",
            Self::Wait => "wait",
            Self::SwitchBack => "switch back",
            Self::Map => "map",
            Self::WriteBack => "write-back",
        }
    }
}

/// Returns the times of software phases and accumulates them.
pub(crate) struct SoftwareTimer {
    costs: Software,
    stream: Rng,
    spent: [Time; Phase::ALL.len()],
}

impl SoftwareTimer {
    pub(crate) fn new(software: &Software, seed: u64) -> Self {
        let stream = Rng::new(seed, "paging software");
        Self { costs: software.clone(), stream, spent: [0; Phase::ALL.len()] }
    }

    pub(super) fn wait_on_core(&self) -> bool {
        self.costs.wait_on_core
    }

    /// Time spent in each phase so far.
    pub(super) fn spent(&self) -> [(Phase, Time); Phase::ALL.len()] {
        Phase::ALL.map(|phase| (phase, self.spent[phase as usize]))
    }

    /// Returns the time of a phase, and adds it to the time spent.
    pub(super) fn phase(&mut self, phase: Phase) -> Time {
        let costs = &self.costs;
        let time = match phase {
            Phase::Entry => costs.entry.0,
            Phase::Lookup => costs.lookup.0,
            Phase::Allocation => costs.allocation.0,
            Phase::Block => costs.block.0,
            Phase::Driver => costs.driver.0,
            Phase::SwitchAway => costs.switch_away.0,
            Phase::Interrupt => costs.interrupt.0,
            Phase::Completion => costs.completion.0,
            Phase::Wake => costs.wake.0,
            Phase::Wait => (costs.wait.0 as f64 * exponential(&mut self.stream)).round() as Time,
            Phase::SwitchBack => costs.switch_back.0,
            Phase::Map => costs.map.0,
            Phase::WriteBack => (costs.block + costs.driver + costs.interrupt + costs.completion).0,
        };
        self.spent[phase as usize] += time;
        time
    }

    pub(crate) fn phases(&mut self, phases: &[Phase]) -> Time {
        phases.iter().map(|phase| self.phase(*phase)).sum()
    }

    /// Returns the time for `pages` further pages of a request, and adds it to the time spent.
    pub(super) fn extra_pages(&mut self, pages: u64) -> Time {
        let time = self.costs.extra_page.0 * pages;
        self.spent[Phase::Allocation as usize] += time;
        time
    }
}

/// Draws an exponential number of mean 1 by comparisons alone, so it is the same on every machine.
///
/// J. von Neumann, "Various techniques used in connection with random digits", 1951: the length of the
/// descending run that begins with x is odd with probability e^-x.
fn exponential(stream: &mut Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = stream.unit();
        let (mut last, mut odd) = (first, true);
        loop {
            let next = stream.unit();
            if next > last {
                break;
            }
            last = next;
            odd = !odd;
        }
        if odd {
            return whole + first;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_are_exponential() {
        let mut stream = Rng::new(1, "test");
        let draws: Vec<f64> = (0..200_000).map(|_| exponential(&mut stream)).collect();
        let n = draws.len() as f64;
        // Standard errors of these are below 0.01.
        for k in 1..=3 {
            let moment = draws.iter().map(|x| x.powi(k)).sum::<f64>() / n;
            let expected = (1..=k).product::<i32>() as f64;
            assert!((moment / expected - 1.0).abs() < 0.04, "moment {k}: {moment}");
        }
        for x in [0.1, 0.5, 1.0, 2.0, 4.0] {
            let above = draws.iter().filter(|draw| **draw > x).count() as f64 / n;
            assert!((above - (-x).exp()).abs() < 0.005, "P(> {x}) = {above}");
        }
    }
}
