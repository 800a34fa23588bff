//! An allowance of writes for a day: it decides when writes that nobody waits for must be deferred, so that
//! flash lasts as long as planned.
//!
//! The allowance grows evenly with time, up to an hour's share. Every written byte is charged, also those of
//! writes that cannot wait; such writes may take the allowance below zero, by a day's share at most.

/// Seconds in a day.
const DAY_S: u128 = 24 * 60 * 60;
/// Nanoseconds in a second.
const NS_PER_S: u128 = 1_000_000_000;
/// The allowance holds at most one part in this many of a day's bytes.
const BURST_SHARE: u128 = 24;

/// The bytes that may be written now.
#[derive(Debug, Clone)]
pub struct WriteAllowance {
    bytes_per_day: u64,
    /// Left to be written, in bytes x [`DAY_S`] x [`NS_PER_S`] / `bytes_per_day`: nanoseconds of the day's rate,
    /// so that no remainder is lost.
    left_ns: i128,
    /// Time of the last update, in nanoseconds.
    at_ns: u64,
    /// Bytes written until the last update.
    written: u64,
    deferring: bool,
}

/// A change of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowanceChange {
    /// From now on, writes that can wait are deferred.
    Deferring,
    /// Such writes may be made again.
    Allowed,
}

impl WriteAllowance {
    /// An allowance of `bytes_per_day`, above zero, that begins full at time `now_ns`, when `written` bytes have
    /// been written.
    #[must_use]
    pub fn new(bytes_per_day: u64, now_ns: u64, written: u64) -> Self {
        let bytes_per_day = bytes_per_day.max(1);
        let full = (DAY_S * NS_PER_S / BURST_SHARE) as i128;
        Self { bytes_per_day, left_ns: full, at_ns: now_ns, written, deferring: false }
    }

    /// The bytes that may be written in a day.
    #[must_use]
    pub fn bytes_per_day(&self) -> u64 {
        self.bytes_per_day
    }

    /// True while writes that can wait are deferred.
    #[must_use]
    pub fn is_deferring(&self) -> bool {
        self.deferring
    }

    /// Updates the allowance: the time is `now_ns`, and `written` bytes have been written in total. Returns the
    /// change of the decision, if it has changed. Neither number may become smaller.
    pub fn update(&mut self, now_ns: u64, written: u64) -> Option<AllowanceChange> {
        let day = (DAY_S * NS_PER_S) as i128;
        let bytes = i128::from(written.saturating_sub(self.written));
        let charged = bytes.saturating_mul(day) / i128::from(self.bytes_per_day);
        // A charge of less than a nanosecond is left for the next update.
        if charged > 0 || bytes == 0 {
            self.written = written;
        }
        let gained = i128::from(now_ns.saturating_sub(self.at_ns));
        self.at_ns = self.at_ns.max(now_ns);
        let full = day / BURST_SHARE as i128;
        self.left_ns = (self.left_ns + gained).min(full).saturating_sub(charged).max(-day);
        let before = self.deferring;
        // Writes begin again with half of an hour's share, so that the decision does not change at every update.
        self.deferring = if before { self.left_ns < full / 2 } else { self.left_ns <= 0 };
        match (before, self.deferring) {
            (false, true) => Some(AllowanceChange::Deferring),
            (true, false) => Some(AllowanceChange::Allowed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3_600_000_000_000;

    #[test]
    fn an_hours_share_may_be_written_at_once_and_no_more() {
        let mut allowance = WriteAllowance::new(24_000, 5, 100);
        assert_eq!(allowance.update(5, 1_099), None);
        assert_eq!(allowance.update(5, 1_100), Some(AllowanceChange::Deferring));
        assert_eq!(allowance.update(5 + HOUR_NS / 2 - 1, 1_100), None);
        assert_eq!(allowance.update(5 + HOUR_NS / 2, 1_100), Some(AllowanceChange::Allowed));
    }

    #[test]
    fn writing_whenever_it_is_allowed_comes_to_the_days_bytes() {
        for per_day in [7_u64, 1 << 20, 1 << 43] {
            let mut allowance = WriteAllowance::new(per_day, 0, 0);
            let (mut now, mut written) = (0, 0_u64);
            let days = 10;
            while now < days * 24 * HOUR_NS {
                if !allowance.is_deferring() {
                    written += (per_day / 1000).max(1);
                }
                now += 10_000_000_000;
                allowance.update(now, written);
            }
            let wanted = per_day * days;
            let slack = per_day / 24 + per_day / 500 + 1;
            assert!(written.abs_diff(wanted) <= slack, "{written} of {wanted} bytes");
        }
    }

    #[test]
    fn writes_that_cannot_wait_cost_a_day_at_most() {
        let mut allowance = WriteAllowance::new(1_000, 0, 0);
        assert_eq!(allowance.update(0, u64::MAX), Some(AllowanceChange::Deferring));
        assert_eq!(allowance.update(24 * HOUR_NS, u64::MAX), None);
        assert_eq!(allowance.update(25 * HOUR_NS, u64::MAX), Some(AllowanceChange::Allowed));
    }
}
