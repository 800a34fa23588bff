//! A device that was measured from outside ([`MeasuredFile`]), in virtual time.
//!
//! The device takes the requests one behind another, reads and writes alike, each for the measured interval between
//! completions, and completes each after the rest of its measured latency. So a request alone takes the latency, many at
//! once are completed at the measured rate, requests of different sizes share the device by their intervals, and a read
//! waits behind the writes that were sent before it.

use std::collections::VecDeque;

use deepram_core::units::{Bytes, Picos};
use deepram_media::MeasuredFile;

use crate::engine::Time;

/// Number of busy periods that are kept: more than are still to come at any time.
const PERIODS: usize = 64;

/// A measured device.
#[derive(Debug, Clone)]
pub(crate) struct MeasuredDevice {
    file: MeasuredFile,
    /// The last periods (begin, end) in which the device takes requests, in order. A request may be announced before it is sent, while
    /// software prepares it; the device is free for others until then.
    busy: VecDeque<(Time, Time)>,
}

impl MeasuredDevice {
    pub(crate) fn new(file: &MeasuredFile) -> Self {
        Self { file: file.clone(), busy: VecDeque::new() }
    }

    /// Sends a request of `bytes` at the time `from`. Returns the time of its completion.
    pub(crate) fn request(&mut self, from: Time, write: bool, bytes: u64) -> Time {
        let Picos(latency) = self.file.latency(write, Bytes(bytes));
        let Picos(interval) = self.file.completion_interval(write, Bytes(bytes));
        let begin = self.take(from, interval);
        begin + latency.max(interval)
    }

    /// Takes the first `interval` from this time on in which the device takes no other request. Returns its beginning.
    fn take(&mut self, from: Time, interval: Time) -> Time {
        let mut begin = from;
        let mut next = self.busy.partition_point(|(_, end)| *end < from);
        while let Some((start, end)) = self.busy.get(next).copied()
            && start < begin + interval
        {
            begin = end;
            next += 1;
        }
        let end = begin + interval;
        match next.checked_sub(1).and_then(|last| self.busy.get_mut(last)) {
            Some(last) if last.1 == begin => last.1 = end,
            _ => self.busy.insert(next, (begin, end)),
        }
        if self.busy.len() > PERIODS {
            self.busy.pop_front();
        }
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_media::Registry;
    use proptest::prelude::*;

    fn virtual_ssd() -> MeasuredFile {
        Registry::builtin().unwrap().get("virtual-ssd").unwrap()
    }

    #[test]
    fn one_request_takes_the_latency_and_many_are_completed_at_the_measured_rate() {
        let file = virtual_ssd();
        for (write, bytes) in [(false, 4096), (false, 256 << 10), (true, 64 << 10)] {
            let mut device = MeasuredDevice::new(&file);
            let latency = file.latency(write, Bytes(bytes)).0;
            let interval = file.completion_interval(write, Bytes(bytes)).0;
            assert_eq!(device.request(1000, write, bytes), 1000 + latency.max(interval));
            let last = (1..100).map(|_| device.request(1000, write, bytes)).max();
            assert_eq!(last, Some(1000 + 99 * interval + latency.max(interval)));
            // The other direction waits behind all of them.
            let other = file.latency(!write, Bytes(4096)).0;
            assert_eq!(device.request(1000, !write, 4096), 1000 + 100 * interval + other);
        }
    }

    #[test]
    fn the_device_is_free_until_an_announced_request_is_sent() {
        let mut device = MeasuredDevice::new(&virtual_ssd());
        assert_eq!(
            [(100, 50), (0, 60), (0, 40), (0, 41), (90, 5)].map(|(from, time)| device.take(from, time)),
            [100, 0, 60, 150, 191]
        );
        assert_eq!(device.busy, [(0, 100), (100, 196)]);
    }

    proptest! {
        /// No two requests are taken at once, none before it is sent, and each as early as the others allow.
        #[test]
        fn requests_are_taken_one_at_a_time(all in proptest::collection::vec((0_u64..500, 1_u64..50), 1..40)) {
            let mut device = MeasuredDevice::new(&virtual_ssd());
            let mut taken = vec![false; 4000];
            for (from, interval) in all {
                let fits = |at: &u64| taken[*at as usize..(at + interval) as usize].iter().all(|taken| !taken);
                let first = (from..).find(fits).unwrap();
                prop_assert_eq!(device.take(from, interval), first);
                taken[first as usize..(first + interval) as usize].fill(true);
            }
        }
    }
}
