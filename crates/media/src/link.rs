//! Links: how long bytes take on a wire.
//!
//! A link is described by lanes, width, rate and line code, or by the time of a block of bytes, as
//! DiskSim describes it (0.2384 us per 512 B). Never by both.

use deepram_core::units::{Bytes, Picos};

use crate::model::{Fault, kind};
use crate::value::{Bandwidth, Fraction, TransferRate};

kind! {
    /// A bus or a host link, one direction of it.
    Link = "link";
    parts {}
    fields {
        /// Lanes that carry data side by side.
        lanes: Option<u64>,
        /// Bits that a lane moves in one transfer.
        width: Option<u64>,
        /// Transfers a second of a lane.
        rate: Option<TransferRate>,
        /// Data bits of a code word; 8 of 10, 128 of 130.
        data_bits: Option<u64>,
        /// Bits of a code word on the wire.
        coded_bits: Option<u64>,
        /// Bytes that are charged for at once.
        block: Option<Bytes>,
        /// Time of such a block.
        block_time: Option<Picos>,
        /// Share of the data bits that is payload, packet headers taken off; 1 if not stated.
        payload: Option<Fraction>,
        /// Time that every transfer takes beside its bytes.
        latency: Picos,
    }
    derived {
        /// lanes x width x rate x data bits / coded bits x payload / 8, or block over block time
        bandwidth: Bandwidth = |l| l.bytes_per_second(),
    }
}

impl Link {
    pub(crate) fn check(&self) -> Result<(), Fault> {
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
            return Err(Fault::new(
                "rate",
                "state either lanes, width, rate, data_bits and coded_bits, or block and block_time",
            ));
        }
        if self.data_bits > self.coded_bits {
            return Err(Fault::new("data_bits", "must not exceed coded_bits"));
        }
        for (key, value, limit) in [
            ("lanes", self.lanes, 1 << 16),
            ("width", self.width, 1 << 16),
            ("coded_bits", self.coded_bits, 1 << 16),
        ] {
            if value.is_some_and(|value| value > limit) {
                return Err(Fault::new(key, format!("must be at most {limit}")));
            }
        }
        if self.block == Some(Bytes(0)) || self.block_time == Some(Picos(0)) {
            return Err(Fault::new("block", "block and block_time must not be 0"));
        }
        if self.payload.is_some_and(|payload| payload.0 <= 0.0) {
            return Err(Fault::new("payload", "must be more than 0"));
        }
        Ok(())
    }

    /// Payload bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        let payload = self.payload.map_or(1.0, |payload| payload.0);
        match (self.block, self.block_time) {
            (Some(block), Some(time)) => block.0 as f64 * 1e12 / time.0 as f64 * payload,
            _ => {
                let wires = self.lanes.unwrap_or(1) as f64 * self.width.unwrap_or(1) as f64;
                let rate = self.rate.unwrap_or(TransferRate(1)).0 as f64;
                let code = self.data_bits.unwrap_or(1) as f64 / self.coded_bits.unwrap_or(1) as f64;
                wires * rate * code / 8.0 * payload
            }
        }
    }

    /// Time of `bytes` on the link without its latency, to the nearest picosecond; a block that is
    /// begun is charged for whole.
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
