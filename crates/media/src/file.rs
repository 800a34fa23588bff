//! A real file or block device, as `deepram media measure` found it: a closed box of which only times
//! are known.
//!
//! Two figures for each size and direction say what matters: how long one request takes by itself, and
//! how much time passes from one completion to the next when 32 are under way. Their ratio is how many
//! the device works on at once. Between sizes both are taken as linear in the bytes, beyond the largest
//! as its share.

use deepram_core::units::{Bytes, Picos};

use crate::model::{Fault, kind};

/// Requests under way where the intervals are measured.
pub const MEASURED_DEPTH: u64 = 32;

kind! {
    /// One file or block device, measured through direct I/O.
    File = "file";
    parts {}
    fields {
        /// Bytes that were measured over.
        span: Bytes,
        /// A read of 4 KiB by itself.
        read_4k: Picos,
        /// A read of 16 KiB by itself.
        read_16k: Picos,
        /// A read of 64 KiB by itself.
        read_64k: Picos,
        /// A read of 1 MiB by itself.
        read_1m: Picos,
        /// From one read of 4 KiB to the next, 32 under way.
        read_4k_interval: Picos,
        /// From one read of 16 KiB to the next, 32 under way.
        read_16k_interval: Picos,
        /// From one read of 64 KiB to the next, 32 under way.
        read_64k_interval: Picos,
        /// From one read of 1 MiB to the next, 32 under way.
        read_1m_interval: Picos,
        /// A write of 4 KiB by itself.
        write_4k: Picos,
        /// A write of 16 KiB by itself.
        write_16k: Picos,
        /// A write of 64 KiB by itself.
        write_64k: Picos,
        /// A write of 1 MiB by itself.
        write_1m: Picos,
        /// From one write of 4 KiB to the next, 32 under way.
        write_4k_interval: Picos,
        /// From one write of 16 KiB to the next, 32 under way.
        write_16k_interval: Picos,
        /// From one write of 64 KiB to the next, 32 under way.
        write_64k_interval: Picos,
        /// From one write of 1 MiB to the next, 32 under way.
        write_1m_interval: Picos,
        /// A write of 4 KiB by itself that is durable when it returns.
        durable_write_4k: Picos,
    }
    derived {
        /// reads of 4 KiB that the device works on at once: alone over interval, 1 to 32
        read_width: u64 = |f| f.width(false, Bytes(4096)) as f64,
        /// writes of 4 KiB that the device works on at once: alone over interval, 1 to 32
        write_width: u64 = |f| f.width(true, Bytes(4096)) as f64,
    }
}

/// The sizes measured.
pub const MEASURED_SIZES: [u64; 4] = [4 << 10, 16 << 10, 64 << 10, 1 << 20];

impl File {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        for (key, write, alone) in [
            ("read_4k", false, true),
            ("read_4k_interval", false, false),
            ("write_4k", true, true),
            ("write_4k_interval", true, false),
        ] {
            if self.figures(write, alone).contains(&0) {
                return Err(Fault::new(key, "no size may take no time"));
            }
        }
        Ok(())
    }

    fn figures(&self, write: bool, alone: bool) -> [u64; 4] {
        let of = match (write, alone) {
            (false, true) => [self.read_4k, self.read_16k, self.read_64k, self.read_1m],
            (false, false) => {
                [self.read_4k_interval, self.read_16k_interval, self.read_64k_interval, self.read_1m_interval]
            }
            (true, true) => [self.write_4k, self.write_16k, self.write_64k, self.write_1m],
            (true, false) => [
                self.write_4k_interval,
                self.write_16k_interval,
                self.write_64k_interval,
                self.write_1m_interval,
            ],
        };
        of.map(|time| time.0)
    }

    fn at(&self, write: bool, alone: bool, bytes: Bytes) -> Picos {
        let times = self.figures(write, alone);
        let first = MEASURED_SIZES[0];
        let last = MEASURED_SIZES.len() - 1;
        if bytes.0 <= first {
            return Picos(times[0]);
        }
        let upper = MEASURED_SIZES.iter().position(|size| bytes.0 <= *size);
        let Some(upper) = upper else {
            // Beyond the largest: its share, in bytes.
            return Picos(
                (u128::from(times[last]) * u128::from(bytes.0) / u128::from(MEASURED_SIZES[last])) as u64,
            );
        };
        let (from, to) = (MEASURED_SIZES[upper - 1], MEASURED_SIZES[upper]);
        let part = (bytes.0 - from) as f64 / (to - from) as f64;
        let (low, high) = (times[upper - 1] as f64, times[upper] as f64);
        Picos((low + part * (high - low)).round() as u64)
    }

    /// Time of a request of `bytes` by itself.
    pub fn alone(&self, write: bool, bytes: Bytes) -> Picos {
        self.at(write, true, bytes)
    }

    /// Time from one completion to the next with [`MEASURED_DEPTH`] requests of `bytes` under way.
    pub fn interval(&self, write: bool, bytes: Bytes) -> Picos {
        self.at(write, false, bytes)
    }

    /// How many requests of `bytes` the device works on at once.
    pub fn width(&self, write: bool, bytes: Bytes) -> u64 {
        let interval = self.interval(write, bytes).0.max(1);
        ((self.alone(write, bytes).0 + interval / 2) / interval).clamp(1, MEASURED_DEPTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    fn file() -> File {
        let figures: String = ["read", "write"]
            .iter()
            .flat_map(|op| {
                [("4k", 40, 10), ("16k", 52, 20), ("64k", 100, 50), ("1m", 1060, 800)].map(|f| (op, f))
            })
            .map(|(op, (size, alone, interval))| {
                format!(
                    "{op}_{size} = {{ value = {alone}, unit = \"us\", source = \"test\" }}\n\
                     {op}_{size}_interval = {{ value = {interval}, unit = \"us\", source = \"test\" }}\n"
                )
            })
            .collect();
        let text = format!(
            "[file.test]\nabout = \"a test\"\nspan = {{ value = 1, unit = \"GiB\", source = \"test\" }}\n\
             durable_write_4k = {{ value = 90, unit = \"us\", source = \"test\" }}\n{figures}"
        );
        let mut registry = Registry::builtin().unwrap();
        registry.add("test.toml", &text).unwrap();
        registry.get("test").unwrap()
    }

    #[test]
    fn between_the_sizes_times_are_linear_and_beyond_them_proportional() {
        let file = file();
        let us = |n: u64| Picos(n * 1_000_000);
        for (bytes, alone, interval) in [
            (1, 40, 10),
            (4096, 40, 10),
            (10 << 10, 46, 15),
            (16 << 10, 52, 20),
            (40 << 10, 76, 35),
            (1 << 20, 1060, 800),
            (4 << 20, 4240, 3200),
        ] {
            for write in [false, true] {
                assert_eq!(file.alone(write, Bytes(bytes)), us(alone), "{bytes}");
                assert_eq!(file.interval(write, Bytes(bytes)), us(interval), "{bytes}");
            }
        }
        assert_eq!((file.width(false, Bytes(4096)), file.width(true, Bytes(1 << 20))), (4, 1));
    }
}
