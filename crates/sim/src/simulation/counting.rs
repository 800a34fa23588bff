//! Counts the requests that reach the simulator, for errors and notes about unusual inputs.

use std::cell::Cell;

use deepram_trace::{Item, ObjectPlacement, Op, Request, TraceError};

use crate::error::SimError;
use crate::run::requests;

/// Requests between two reports of progress.
const STEP: u64 = 1 << 14;

/// Counts of the requests that reach the simulator.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    requests: Cell<u64>,
    /// Latest arrival time so far.
    last_ps: Cell<u64>,
    /// Requests with an earlier arrival time than a request before them.
    late: Cell<u64>,
    /// Reads and writes of zero bytes.
    empty: Cell<u64>,
}

impl RequestCounts {
    fn add(&self, request: &Request) -> u64 {
        if let Some(time) = request.time_ps {
            if time < self.last_ps.get() {
                self.late.set(self.late.get() + 1);
            }
            self.last_ps.set(time.max(self.last_ps.get()));
        }
        if request.len == 0 && matches!(request.op, Op::Read | Op::Write) {
            self.empty.set(self.empty.get() + 1);
        }
        self.requests.set(self.requests.get() + 1);
        self.requests.get()
    }

    /// The records as requests, counted; `observe` is called now and then with the number so far, and ends the simulation
    /// by `false`.
    pub(super) fn counted<'a, I>(
        &'a self,
        items: I,
        objects: ObjectPlacement,
        observe: &'a dyn Fn(u64) -> bool,
    ) -> impl Iterator<Item = Result<Request, SimError>> + 'a
    where
        I: Iterator<Item = Result<Item, TraceError>> + 'a,
    {
        requests(items, objects).map(move |request| {
            let request = request?;
            let n = self.add(&request);
            if n.is_multiple_of(STEP) && !observe(n) {
                return Err(SimError::Stopped { requests: n });
            }
            Ok(request)
        })
    }

    /// Notes on unusual requests.
    ///
    /// # Errors
    /// No request was measured.
    pub(super) fn check(&self, workload: &str, warm_up: u64, closed: bool) -> Result<Vec<String>, SimError> {
        let all = self.requests.get();
        if all == 0 {
            return Err(SimError::NoRequests { input: workload.to_owned() });
        }
        if all <= warm_up {
            return Err(SimError::Options(format!(
                "--warm-up {warm_up} covers all {all} requests: none is left to measure"
            )));
        }
        let mut notes = Vec::new();
        if self.late.get() > 0 && !closed {
            notes.push(format!(
                "{} of {all} requests have an earlier arrival time than a request before them and arrive with that request",
                self.late.get()
            ));
        }
        if self.empty.get() > 0 {
            notes.push(format!("{} of {all} requests have zero bytes and take no time", self.empty.get()));
        }
        Ok(notes)
    }
}
