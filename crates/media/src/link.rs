//! Links: transfer time of bytes over a bus or host link.
//!
//! A link is described either by lanes, width, rate and line code, or by the time of a block of bytes,
//! as in DiskSim (0.2384 us per 512 B); never by both.

use deepram_core::units::{Bytes, Picos};

use crate::model::{InvalidFigure, kind};
use crate::value::{Bandwidth, Fraction, TransferRate};

kind! {
    /// One direction of a bus or host link.
    Link = "link";
    parts {}
    fields {
        /// Parallel lanes.
        lanes: Option<u64>,
        /// Bits of a lane's transfer.
        width: Option<u64>,
        /// Transfer rate of a lane.
        rate: Option<TransferRate>,
        /// Data bits of a code word: 8 of 10, or 128 of 130.
        data_bits: Option<u64>,
        /// Bits of a code word on the lane.
        coded_bits: Option<u64>,
        /// Transfer granularity: bytes of a block.
        block: Option<Bytes>,
        /// Transfer time of a block.
        block_time: Option<Picos>,
        /// Payload share of the data bits, without packet headers; 1 if not stated.
        payload: Option<Fraction>,
        /// Fixed latency of every transfer.
        latency: Picos,
    }
    derived {
        /// lanes x width x rate x data bits / coded bits x payload / 8, or block over block time
        bandwidth: Bandwidth = |l| l.payload_bandwidth().0,
    }
}

impl Link {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let wires = [
            self.lanes.is_some(),
            self.width.is_some(),
            self.rate.is_some(),
            self.data_bits.is_some(),
            self.coded_bits.is_some(),
        ];
        let blocks = [self.block.is_some(), self.block_time.is_some()];
        let described = matches!(
            (wires, blocks),
            ([true, true, true, true, true], [false, false])
                | ([false, false, false, false, false], [true, true])
        );
        if !described {
            return Err(InvalidFigure::new(
                "rate",
                "state either lanes, width, rate, data_bits and coded_bits, or block and block_time",
            ));
        }
        if self.data_bits > self.coded_bits {
            return Err(InvalidFigure::new("data_bits", "must not exceed coded_bits"));
        }
        for (key, value, limit) in [
            ("lanes", self.lanes, 1 << 16),
            ("width", self.width, 1 << 16),
            ("coded_bits", self.coded_bits, 1 << 16),
        ] {
            if value.is_some_and(|value| value > limit) {
                return Err(InvalidFigure::new(key, format!("must be at most {limit}")));
            }
        }
        if self.block == Some(Bytes(0)) || self.block_time == Some(Picos(0)) {
            return Err(InvalidFigure::new("block", "block and block_time must not be 0"));
        }
        if self.payload.is_some_and(|payload| payload.0 <= 0.0) {
            return Err(InvalidFigure::new("payload", "must be more than 0"));
        }
        Ok(())
    }

    /// Payload bandwidth.
    pub fn payload_bandwidth(&self) -> Bandwidth {
        let payload = self.payload.map_or(1.0, |payload| payload.0);
        Bandwidth(match (self.block, self.block_time) {
            (Some(block), Some(time)) => block.0 as f64 * 1e12 / time.0 as f64 * payload,
            _ => {
                let wires = self.lanes.unwrap_or(1) as f64 * self.width.unwrap_or(1) as f64;
                let rate = self.rate.unwrap_or(TransferRate(1)).0 as f64;
                let code = self.data_bits.unwrap_or(1) as f64 / self.coded_bits.unwrap_or(1) as f64;
                wires * rate * code / 8.0 * payload
            }
        })
    }

    /// Time for which `bytes` occupy the link, without its latency, to the nearest picosecond; a partial
    /// block takes the time of a whole one.
    pub fn occupancy(&self, bytes: Bytes) -> Picos {
        let exact = match (self.block, self.block_time) {
            (Some(block), Some(time)) => u128::from(bytes.0.div_ceil(block.0)) * u128::from(time.0),
            _ => {
                // At most 2^56 x 8 x 2^16 x 10^12 < 2^116.
                let bits = u128::from(bytes.0.min(1 << 56)) * 8;
                let wires = u128::from(self.lanes.unwrap_or(1)) * u128::from(self.width.unwrap_or(1));
                let below = wires
                    * u128::from(self.rate.unwrap_or(TransferRate(1)).0)
                    * u128::from(self.data_bits.unwrap_or(1));
                let above = bits * u128::from(self.coded_bits.unwrap_or(1)) * 1_000_000_000_000;
                (above + below / 2) / below
            }
        };
        let whole = u64::try_from(exact).unwrap_or(u64::MAX);
        match self.payload {
            Some(payload) => Picos((whole as f64 / payload.0).round() as u64),
            None => Picos(whole),
        }
    }

    /// Time of one transfer of `bytes` on an idle link.
    pub fn transfer(&self, bytes: Bytes) -> Picos {
        self.latency + self.occupancy(bytes)
    }
}
