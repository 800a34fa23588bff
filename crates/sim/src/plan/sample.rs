//! Samples of a trace in time: windows of consecutive requests, evenly spread over the trace.
//!
//! The gaps between windows are removed: the first request of a window arrives as long after the last
//! request of the window before as it arrived after its own predecessor.

use deepram_trace::Request;

use crate::error::SimError;

/// Windows of a sample.
const WINDOWS: u64 = 16;

/// A part of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Requests of the trace.
    all: u64,
    /// Requests from the start of a window to that of the next.
    stride: u64,
    /// Requests of a window.
    window: u64,
}

impl Sample {
    /// A sample of about `most` of `all` requests; all of them if they are not more.
    #[must_use]
    pub fn new(all: u64, most: u64) -> Self {
        if most == 0 || all <= most {
            return Self::whole(all);
        }
        let stride = all.div_ceil(WINDOWS);
        Self { all, stride, window: (most / WINDOWS).clamp(1, stride) }
    }

    /// All requests.
    #[must_use]
    pub fn whole(all: u64) -> Self {
        Self { all, stride: all.max(1), window: all.max(1) }
    }

    /// Whether the sample has all requests.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.window == self.stride
    }

    /// The requests of the sample.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.all / self.stride * self.window + (self.all % self.stride).min(self.window)
    }

    /// The requests of the sample from those of the trace.
    pub fn of<'a, I>(self, requests: I) -> impl Iterator<Item = Result<Request, SimError>> + 'a
    where
        I: Iterator<Item = Result<Request, SimError>> + 'a,
    {
        let (mut before, mut last_kept, mut removed) = (0, 0, 0_u64);
        requests.enumerate().filter_map(move |(number, request)| {
            let mut request = match request {
                Ok(request) => request,
                error => return Some(error),
            };
            let time = request.time_ps;
            let position = number as u64 % self.stride;
            let kept = (position < self.window).then(|| {
                if position == 0 {
                    removed += u64::saturating_sub(before, last_kept);
                }
                last_kept = time.unwrap_or(0);
                request.time_ps = time.map(|time| time.saturating_sub(removed));
                Ok(request)
            });
            before = time.unwrap_or(0);
            kept
        })
    }
}

#[cfg(test)]
mod tests {
    use deepram_trace::Op;

    use super::*;

    fn trace(times: impl IntoIterator<Item = Option<u64>>) -> Vec<Result<Request, SimError>> {
        let request = |(n, time_ps)| Request { time_ps, device: 0, offset: n, len: 1, op: Op::Read };
        (0..).zip(times).map(|item| Ok(request(item))).collect()
    }

    fn kept(sample: Sample, times: Vec<Option<u64>>) -> Vec<(u64, Option<u64>)> {
        sample.of(trace(times).into_iter()).map(|r| r.map(|r| (r.offset, r.time_ps)).unwrap()).collect()
    }

    #[test]
    fn a_sample_has_windows_over_the_whole_trace_without_the_time_between_them() {
        let sample = Sample::new(100, 32);
        let requests = kept(sample, (0..100).map(|n| Some(n * 10)).collect());
        let numbers: Vec<u64> = requests.iter().map(|r| r.0).collect();
        let expected: Vec<u64> = (0..100).filter(|n| n % 7 < 2).collect();
        assert_eq!(numbers, expected);
        let times: Vec<u64> = requests.iter().map(|r| r.1.unwrap()).collect();
        assert_eq!(times, (0..numbers.len() as u64).map(|n| n * 10).collect::<Vec<_>>());
    }

    #[test]
    fn the_number_of_requests_is_that_of_the_sample() {
        for all in 1..300 {
            for most in [0, 1, 15, 16, 17, 40, 160, 299, 400] {
                let sample = Sample::new(all, most);
                let untimed = kept(sample, vec![None; all as usize]);
                assert_eq!(untimed.len() as u64, sample.requests(), "{all} {most}");
                assert_eq!(sample.is_whole(), untimed.len() as u64 == all, "{all} {most}");
            }
        }
    }
}
