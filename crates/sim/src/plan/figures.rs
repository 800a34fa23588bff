//! The figures by which hierarchies are compared, from the result of a simulation.
//!
//! A simulated device is as large as its preset; what is compared is the part of it that the data need.
//! Price, lifetime and standby power are those of this part ([`Parts`]), latency that of the whole device.

use deepram_core::units::Bytes;
use deepram_media::{Bandwidth, Cell, Dram, Price, Registry, lifetime_seconds};
use serde::Serialize;

use crate::error::SimError;
use crate::result::RunResult;

const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;
const HOURS_PER_YEAR: f64 = SECONDS_PER_YEAR / 3600.0;

/// The figures of a hierarchy under a trace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Mean latency of a request.
    pub mean_ns: f64,
    /// 99th percentile of the latency.
    pub p99_ns: f64,
    /// Energy of a request, with its share of the standby energy.
    pub energy_nj: f64,
    /// Mean power.
    pub watts: f64,
    /// Years until the first medium is worn out, at this rate of writes; `None` if nothing was written to
    /// media that wear. Without reclamation beyond that of the run, thus an upper bound.
    pub years: Option<f64>,
    /// Price, US dollars.
    pub usd: f64,
}

/// Prices of memory, US dollars per 10^9 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prices {
    /// DRAM.
    pub dram: f64,
    /// PCM.
    pub pcm: f64,
    /// Flash with one bit a cell. With more bits a cell it costs as many times less.
    pub slc: f64,
}

/// The price of PCM over that of DRAM, if none is given: assumed, since PCM is hardly sold. Intel's Optane
/// modules cost about half as much as DRAM in 2019.
const PCM_OVER_DRAM: f64 = 0.5;

impl Prices {
    /// The newest prices of the presets: `dram.ddr5-64gib` and `nand.xl-flash`; that of PCM is assumed to be
    /// half of DRAM's.
    ///
    /// # Errors
    /// A preset is missing, or has no price.
    pub fn of_presets(registry: &Registry) -> Result<Self, SimError> {
        let stated = |name: &str, price: Option<Price>| {
            price.map(Price::per_gb).ok_or_else(|| SimError::config(name, "has no price"))
        };
        let dram = stated("dram.ddr5-64gib", registry.get::<Dram>("dram.ddr5-64gib")?.price)?;
        let slc = stated("nand.xl-flash", registry.get::<deepram_media::Nand>("nand.xl-flash")?.price)?;
        Ok(Self { dram, pcm: dram * PCM_OVER_DRAM, slc })
    }

    /// The price of flash with cells of this kind.
    #[must_use]
    pub fn flash(&self, cell: Cell) -> f64 {
        self.slc
            / match cell {
                Cell::Slc => 1.0,
                Cell::Mlc => 2.0,
                Cell::Tlc => 3.0,
            }
    }
}

/// The memory that holds the data of a hierarchy: flash, or PCM in its place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Store {
    /// Bytes of the medium for the data, over-provisioning included.
    pub raw_bytes: u64,
    /// The data's part of the simulated device.
    pub share: f64,
    /// Price, US dollars per 10^9 bytes.
    pub usd_per_gb: f64,
    /// Writes that a byte withstands.
    pub endurance: u64,
}

/// The parts of a hierarchy that its data need.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parts {
    /// DRAM, bytes.
    pub dram_bytes: u64,
    /// Its part of the simulated DRAM; 1 for a buffer, which is simulated at its own size.
    pub dram_share: f64,
    /// PCM of a buffer, bytes.
    pub pcm_bytes: u64,
    /// The store; `None` if DRAM holds the data.
    pub store: Option<Store>,
}

impl Parts {
    /// The price, US dollars.
    #[must_use]
    pub fn usd(&self, prices: &Prices) -> f64 {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let store = self.store.map_or(0.0, |store| gb(store.raw_bytes) * store.usd_per_gb);
        gb(self.dram_bytes) * prices.dram + gb(self.pcm_bytes) * prices.pcm + store
    }

    /// The figures of a hierarchy of these parts whose simulation gave `result`.
    #[must_use]
    pub fn figures(&self, result: &RunResult, prices: &Prices) -> Figures {
        let energy_nj: f64 = result
            .energy
            .iter()
            .map(|part| part.dynamic_nj + part.static_nj * self.share_of(&part.component))
            .sum();
        let time_ns = result.simulated_time_ns;
        Figures {
            mean_ns: result.latency.mean_ns,
            p99_ns: result.latency.p99_ns,
            energy_nj: energy_nj / result.requests.max(1) as f64,
            watts: if time_ns > 0.0 { energy_nj / time_ns } else { 0.0 },
            years: self.years(result),
            usd: self.usd(prices),
        }
    }

    /// The part of a component's standby power that counts.
    fn share_of(&self, component: &str) -> f64 {
        if component.starts_with("dram") {
            self.dram_share
        } else if component.starts_with("flash") {
            self.store.map_or(1.0, |store| store.share)
        } else {
            1.0
        }
    }

    /// The lifetime of the medium that is worn out first.
    fn years(&self, result: &RunResult) -> Option<f64> {
        let seconds = result.simulated_time_ns / 1e9;
        let store = self.store.zip(result.flash.as_ref()).and_then(|(store, flash)| {
            let written = (flash.programs * flash.page_bytes) as f64;
            let life = || {
                let rate = Bandwidth(written / seconds);
                lifetime_seconds(Bytes(store.raw_bytes), store.endurance, rate, 1.0, 1.0) / SECONDS_PER_YEAR
            };
            (written > 0.0 && seconds > 0.0).then(life)
        });
        let hours = result.counters.get("lifetime").and_then(|lifetime| lifetime.get("pcm_hours")?.as_f64());
        let buffer = hours.map(|hours| hours / HOURS_PER_YEAR);
        [store, buffer].into_iter().flatten().reduce(f64::min)
    }
}
