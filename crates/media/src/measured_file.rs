//! A real file or block device as measured by `deepram media measure`: a black box with known request
//! times.
//!
//! Each request size and direction has two figures: the latency of one request at queue depth 1, and the
//! interval between completions at queue depth 32 (of sequential requests: 4). Their ratio is the device's parallelism. Between the
//! measured sizes both figures are interpolated linearly; beyond the largest size they are proportional
//! to the bytes.

use deepram_core::units::{Bytes, Picos};

use crate::model::{InvalidFigure, kind};

/// Queue depth of the measured completion intervals of requests in random order: the largest of all.
pub const MEASURED_DEPTH: u64 = 32;

kind! {
    /// One file or block device, measured through direct I/O.
    MeasuredFile = "file";
    parts {}
    fields {
        /// Size of the measured range.
        span: Bytes,
        /// Latency of a read of 4 KiB at queue depth 1.
        read_4k: Picos,
        /// Latency of a read of 16 KiB at queue depth 1.
        read_16k: Picos,
        /// Latency of a read of 64 KiB at queue depth 1.
        read_64k: Picos,
        /// Latency of a read of 1 MiB at queue depth 1.
        read_1m: Picos,
        /// Interval between completions of reads of 4 KiB at queue depth 32.
        read_4k_interval: Picos,
        /// Interval between completions of reads of 16 KiB at queue depth 32.
        read_16k_interval: Picos,
        /// Interval between completions of reads of 64 KiB at queue depth 32.
        read_64k_interval: Picos,
        /// Interval between completions of reads of 1 MiB at queue depth 32.
        read_1m_interval: Picos,
        /// Latency of a write of 4 KiB at queue depth 1.
        write_4k: Picos,
        /// Latency of a write of 16 KiB at queue depth 1.
        write_16k: Picos,
        /// Latency of a write of 64 KiB at queue depth 1.
        write_64k: Picos,
        /// Latency of a write of 1 MiB at queue depth 1.
        write_1m: Picos,
        /// Interval between completions of writes of 4 KiB at queue depth 32.
        write_4k_interval: Picos,
        /// Interval between completions of writes of 16 KiB at queue depth 32.
        write_16k_interval: Picos,
        /// Interval between completions of writes of 64 KiB at queue depth 32.
        write_64k_interval: Picos,
        /// Interval between completions of writes of 1 MiB at queue depth 32.
        write_1m_interval: Picos,
        /// Latency of a durable write of 4 KiB at queue depth 1.
        durable_write_4k: Picos,
    }
    derived {
        /// parallelism of reads of 4 KiB: latency over interval, 1 to 32
        read_width: u64 = |f| f.parallelism(false, Bytes(4096)) as f64,
        /// parallelism of writes of 4 KiB: latency over interval, 1 to 32
        write_width: u64 = |f| f.parallelism(true, Bytes(4096)) as f64,
    }
}

/// The measured request sizes.
pub const MEASURED_SIZES: [Bytes; 4] = [Bytes(4 << 10), Bytes(16 << 10), Bytes(64 << 10), Bytes(1 << 20)];

impl MeasuredFile {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        for (key, write, latency) in [
            ("read_4k", false, true),
            ("read_4k_interval", false, false),
            ("write_4k", true, true),
            ("write_4k_interval", true, false),
        ] {
            if self.times(write, latency).contains(&0) {
                return Err(InvalidFigure::new(key, "the times of all sizes must be more than 0"));
            }
        }
        Ok(())
    }

    fn times(&self, write: bool, latency: bool) -> [u64; 4] {
        let of = match (write, latency) {
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

    fn at(&self, write: bool, latency: bool, bytes: Bytes) -> Picos {
        let times = self.times(write, latency);
        let first = MEASURED_SIZES[0].0;
        let last = MEASURED_SIZES.len() - 1;
        if bytes.0 <= first {
            return Picos(times[0]);
        }
        let upper = MEASURED_SIZES.iter().position(|size| bytes <= *size);
        let Some(upper) = upper else {
            // Beyond the largest size: proportional to the bytes.
            return Picos(
                (u128::from(times[last]) * u128::from(bytes.0) / u128::from(MEASURED_SIZES[last].0)) as u64,
            );
        };
        let (from, to) = (MEASURED_SIZES[upper - 1].0, MEASURED_SIZES[upper].0);
        let part = (bytes.0 - from) as f64 / (to - from) as f64;
        let (low, high) = (times[upper - 1] as f64, times[upper] as f64);
        Picos((low + part * (high - low)).round() as u64)
    }

    /// Latency of a request of `bytes` at queue depth 1.
    pub fn latency(&self, write: bool, bytes: Bytes) -> Picos {
        self.at(write, true, bytes)
    }

    /// The device as a host sees it whose single reads complete this much earlier: one that polls, where the measuring host slept.
    #[must_use]
    pub fn with_earlier_reads(mut self, by: Picos) -> Self {
        for time in [&mut self.read_4k, &mut self.read_16k, &mut self.read_64k, &mut self.read_1m] {
            time.0 = time.0.saturating_sub(by.0).max(1);
        }
        self
    }

    /// The device at another time, at which a read of 4 KiB took `small`, and one of 1 MiB `large`: the other latencies of reads up to
    /// 64 KiB change as that of 4 KiB, the interval between reads of 1 MiB as their latency.
    #[must_use]
    pub fn with_reads(mut self, small: Picos, large: Picos) -> Self {
        let scale = |time: &mut Picos, now: Picos, before: Picos| {
            time.0 = (u128::from(time.0) * u128::from(now.0) / u128::from(before.0.max(1))).max(1) as u64;
        };
        let (of_small, of_large) = (self.read_4k, self.read_1m);
        for time in [&mut self.read_4k, &mut self.read_16k, &mut self.read_64k] {
            scale(time, small, of_small);
        }
        for time in [&mut self.read_1m, &mut self.read_1m_interval] {
            scale(time, large, of_large);
        }
        self
    }

    /// Interval between completions of requests of `bytes` with many in flight (queue depth [`MEASURED_DEPTH`] in random order).
    pub fn completion_interval(&self, write: bool, bytes: Bytes) -> Picos {
        self.at(write, false, bytes)
    }

    /// Parallelism: the number of requests of `bytes` that the device works on at once, 1 to
    /// [`MEASURED_DEPTH`].
    pub fn parallelism(&self, write: bool, bytes: Bytes) -> u64 {
        let interval = self.completion_interval(write, bytes).0.max(1);
        ((self.latency(write, bytes).0 + interval / 2) / interval).clamp(1, MEASURED_DEPTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    fn file() -> MeasuredFile {
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
                assert_eq!(file.latency(write, Bytes(bytes)), us(alone), "{bytes}");
                assert_eq!(file.completion_interval(write, Bytes(bytes)), us(interval), "{bytes}");
            }
        }
        assert_eq!((file.parallelism(false, Bytes(4096)), file.parallelism(true, Bytes(1 << 20))), (4, 1));
    }

    #[test]
    fn reads_at_another_time_change_with_their_size_and_writes_do_not() {
        let us = |n: u64| Picos(n * 1_000_000);
        let (before, file) = (file(), file().with_reads(us(60), us(530)));
        let sizes = [4 << 10, 16 << 10, 64 << 10, 1 << 20].map(Bytes);
        assert_eq!(sizes.map(|bytes| file.latency(false, bytes)), [60, 78, 150, 530].map(us));
        assert_eq!(sizes.map(|bytes| file.completion_interval(false, bytes)), [10, 20, 50, 400].map(us));
        for bytes in sizes {
            assert_eq!(file.latency(true, bytes), before.latency(true, bytes));
            assert_eq!(file.completion_interval(true, bytes), before.completion_interval(true, bytes));
        }
    }
}
