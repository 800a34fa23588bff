//! A device that was measured from outside ([`MeasuredFile`]), in virtual time.
//!
//! The device takes the requests of a direction one behind another, each for the measured interval between completions,
//! and completes each after the rest of its measured latency. So a request alone takes the latency, many at once are
//! completed at the measured rate, and requests of different sizes share the device by their intervals. Reads and writes
//! do not delay each other: what they take from each other was not measured.

use deepram_core::units::{Bytes, Picos};
use deepram_media::MeasuredFile;

use crate::engine::Time;

/// A measured device.
#[derive(Debug, Clone)]
pub(crate) struct MeasuredDevice {
    file: MeasuredFile,
    /// The times from which on the device takes the next read, and the next write.
    free: [Time; 2],
}

impl MeasuredDevice {
    pub(crate) fn new(file: &MeasuredFile) -> Self {
        Self { file: file.clone(), free: [0; 2] }
    }

    /// Sends a request of `bytes` at the time `from`. Returns the time of its completion.
    pub(crate) fn request(&mut self, from: Time, write: bool, bytes: u64) -> Time {
        let Picos(latency) = self.file.latency(write, Bytes(bytes));
        let Picos(interval) = self.file.completion_interval(write, Bytes(bytes));
        let free = &mut self.free[usize::from(write)];
        let begin = from.max(*free);
        *free = begin + interval;
        begin + latency.max(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_media::Registry;

    #[test]
    fn one_request_takes_the_latency_and_many_are_completed_at_the_measured_rate() {
        let file: MeasuredFile = Registry::builtin().unwrap().get("virtual-ssd").unwrap();
        for (write, bytes) in [(false, 4096), (false, 256 << 10), (true, 64 << 10)] {
            let mut device = MeasuredDevice::new(&file);
            let latency = file.latency(write, Bytes(bytes)).0;
            let interval = file.completion_interval(write, Bytes(bytes)).0;
            assert_eq!(device.request(1000, write, bytes), 1000 + latency.max(interval));
            let last = (1..100).map(|_| device.request(1000, write, bytes)).max();
            assert_eq!(last, Some(1000 + 99 * interval + latency.max(interval)));
            // The other direction is free.
            assert_eq!(device.request(1000, !write, 4096), 1000 + file.latency(!write, Bytes(4096)).0);
        }
    }
}
