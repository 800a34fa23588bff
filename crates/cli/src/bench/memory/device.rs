//! Measures the device with direct I/O. Its rates bound every peer that reads it.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::super::{BLOCK, Series};
use super::stop_signals::StopSignals;
use crate::measure::{Load, Order, Target};

/// Size of a sequential read, bytes.
const LARGE: usize = 1 << 20;
/// Queue depths of random reads; the number of threads of the bench is added.
const DEPTHS: [u32; 3] = [1, 4, 32];

/// An access pattern of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct AccessPattern {
    /// Size of a read, bytes.
    bytes: usize,
    queue_depth: u32,
    /// Whether a writer writes the same number of bytes sequentially at the same time.
    written: bool,
}

/// The rate of one access pattern over the rounds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DeviceRate {
    #[serde(flatten)]
    pattern: AccessPattern,
    /// Thousand reads per second for 4 KiB reads, MB/s for 1 MiB reads.
    #[serde(flatten)]
    pub(super) series: Series,
}

/// A file on the device, accessed with direct I/O.
pub(super) struct Device {
    target: Target,
    rates: Vec<(AccessPattern, Vec<f64>)>,
}

impl Device {
    /// Writes the file of `span` bytes. With `updates` reads with concurrent writes are measured too, the load of a peer that
    /// evicts dirty pages.
    pub(super) fn create(
        path: PathBuf,
        span: u64,
        threads: u32,
        updates: bool,
        signals: &StopSignals,
    ) -> anyhow::Result<Self> {
        let target = Target::create(path, span, || signals.check())?;
        let mut depths: Vec<u32> = DEPTHS.into_iter().chain([threads]).collect();
        depths.sort_unstable();
        depths.dedup();
        let pattern = |bytes, written| move |queue_depth| AccessPattern { bytes, queue_depth, written };
        let random = depths.into_iter().map(pattern(BLOCK, false));
        let updated = updates.then_some(threads).map(pattern(BLOCK, true));
        let large = [1, 4].map(pattern(LARGE, false));
        let rates = random.chain(updated).chain(large).map(|pattern| (pattern, Vec::new())).collect();
        Ok(Self { target, rates })
    }

    /// Measures every access pattern once, each for `time`.
    pub(super) fn round(&mut self, time: Duration, signals: &StopSignals) -> anyhow::Result<()> {
        for at in 0..self.rates.len() {
            signals.check()?;
            let rate = self.measure(self.rates[at].0, time)?;
            self.rates[at].1.push(rate);
        }
        Ok(())
    }

    /// Rates of every access pattern.
    pub(super) fn rates(&self) -> Vec<DeviceRate> {
        let rate = |(pattern, values): &(AccessPattern, Vec<f64>)| {
            let depth = pattern.queue_depth;
            let (name, unit) = match pattern.bytes {
                BLOCK => {
                    let writes = if pattern.written { ", the same bytes written" } else { "" };
                    (format!("4 KiB random reads, queue depth {depth}{writes}"), "k/s")
                }
                _ => (format!("1 MiB sequential reads, queue depth {depth}"), "MB/s"),
            };
            DeviceRate { pattern: *pattern, series: Series::new(name, unit, values.clone()) }
        };
        self.rates.iter().map(rate).collect()
    }

    /// Thousand random reads per second at this queue depth, in each round; with `written`, beside concurrent writes.
    pub(super) fn random(&self, queue_depth: u32, written: bool) -> &[f64] {
        let wanted = AccessPattern { bytes: BLOCK, queue_depth, written };
        self.rates.iter().find(|(pattern, _)| *pattern == wanted).map_or(&[], |(_, values)| values)
    }

    /// MB/s of the fastest sequential pattern, in each round.
    pub(super) fn sequential(&self) -> Vec<f64> {
        let patterns: Vec<_> = self.rates.iter().filter(|(pattern, _)| pattern.bytes == LARGE).collect();
        let rounds = patterns.iter().map(|(_, values)| values.len()).min().unwrap_or(0);
        (0..rounds).map(|n| patterns.iter().map(|(_, values)| values[n]).fold(0.0, f64::max)).collect()
    }

    /// Runs one access pattern for `time`; thousand reads per second or MB/s.
    fn measure(&self, pattern: AccessPattern, time: Duration) -> anyhow::Result<f64> {
        let AccessPattern { bytes, queue_depth, written } = pattern;
        let order = if bytes == BLOCK { Order::Random } else { Order::Sequential };
        let reads = Load::reads(order, bytes as u64, u64::from(queue_depth));
        let (time_us, _) = self.target.measure(Load { beside_writes: written, ..reads }, time)?;
        Ok(if bytes == BLOCK { 1e3 / time_us } else { bytes as f64 / time_us })
    }
}
