//! How much a pool has written to its devices, and how long they last at that rate.

use std::sync::Arc;

use deepram_core::Bytes;

use crate::store::Store;

/// Seconds in a day.
const DAY_S: f64 = 86_400.0;

/// Bytes written to the devices since the pool was created, as of the last checkpoint where the pool is not open, and
/// the limits on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endurance {
    /// Bytes written to all devices.
    pub written: Bytes,
    /// Bytes of segments written for the user.
    pub user: Bytes,
    /// Bytes written to the device to which the pool has written most.
    pub most_written: Bytes,
    /// Time at which the counts began, in nanoseconds since 1970: the creation of the pool, or its first opening for
    /// writing by a build that counts.
    pub since_ns: u64,
    /// Bytes that may be written to each device in its life, as the maker of the device rates it (TBW).
    pub rated: Option<Bytes>,
    /// Bytes written to each device in a day, above which background writes wait.
    pub writes_per_day: Option<Bytes>,
    /// Whether background writes wait now. Always false for a pool that is not open.
    pub deferring: bool,
}

impl Endurance {
    pub(crate) fn of(stores: &[Arc<Store>]) -> Self {
        let wear: Vec<_> = stores.iter().map(|store| store.wear()).collect();
        let limits = stores[0].wear_limits();
        let limit = |bytes: u64| (bytes > 0).then_some(Bytes(bytes));
        Self {
            written: Bytes(wear.iter().map(|counts| counts.written).sum()),
            user: Bytes(wear.iter().map(|counts| counts.user).sum()),
            most_written: Bytes(wear.iter().map(|counts| counts.written).max().unwrap_or(0)),
            since_ns: wear[0].since_ns,
            rated: limit(limits.rated),
            writes_per_day: limit(limits.per_day),
            deferring: false,
        }
    }

    /// Returns the write amplification: bytes written to the devices for each byte of segments that was written for
    /// the user. `None` before the first write.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user.0 > 0).then(|| self.written.0 as f64 / self.user.0 as f64)
    }

    /// Returns the mean of the bytes written in a day to the device with the most writes, at the time `now_ns` in
    /// nanoseconds since 1970. `None` if no time has passed.
    #[must_use]
    pub fn written_per_day(&self, now_ns: u64) -> Option<f64> {
        let elapsed_s = now_ns.saturating_sub(self.since_ns) as f64 / 1e9;
        (elapsed_s > 0.0).then(|| self.most_written.0 as f64 / elapsed_s * DAY_S)
    }

    /// Returns the days until a device rated for `rated` bytes has received them, if the pool goes on to write at its
    /// mean rate and nothing else writes to the device. 0 where they have been written already; `None` before the
    /// first write.
    #[must_use]
    pub fn days_left(&self, rated: Bytes, now_ns: u64) -> Option<f64> {
        let left = rated.0.saturating_sub(self.most_written.0) as f64;
        self.written_per_day(now_ns).filter(|rate| *rate > 0.0).map(|rate| left / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: u64 = 86_400_000_000_000;

    fn endurance(written: u64, user: u64) -> Endurance {
        Endurance {
            written: Bytes(2 * written),
            user: Bytes(user),
            most_written: Bytes(written),
            since_ns: DAY_NS,
            rated: None,
            writes_per_day: None,
            deferring: false,
        }
    }

    #[test]
    fn the_device_with_the_most_writes_decides_the_lifetime() {
        let used = endurance(40, 20);
        assert_eq!(used.write_amplification(), Some(4.0));
        assert_eq!(used.written_per_day(5 * DAY_NS), Some(10.0));
        assert_eq!(used.days_left(Bytes(140), 5 * DAY_NS), Some(10.0));
        assert_eq!(used.days_left(Bytes(39), 5 * DAY_NS), Some(0.0));
    }

    #[test]
    fn nothing_is_projected_before_the_first_write_or_at_the_same_moment() {
        assert_eq!(endurance(0, 0).write_amplification(), None);
        assert_eq!(endurance(0, 0).days_left(Bytes(1), 2 * DAY_NS), None);
        assert_eq!(endurance(7, 7).days_left(Bytes(9), DAY_NS), None);
    }
}
