//! Requests in columns, as programs that work on arrays have them.

use std::fmt;

use crate::error::TraceError;
use crate::record::{Item, Op, Request};

/// Block requests in columns of equal length: a source of records that is in memory already.
///
/// ```
/// use deepram_trace::{Columns, Op};
///
/// let columns = Columns::new(vec![0, 8192], vec![4096; 2], vec![Op::Read, Op::Write], None)?;
/// assert_eq!(columns.items().count(), 2);
/// # Ok::<(), deepram_trace::TraceError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Columns {
    offsets: Vec<u64>,
    lens: Vec<u64>,
    ops: Vec<Op>,
    times_ps: Option<Vec<u64>>,
}

impl Columns {
    /// Takes columns: first bytes, lengths in bytes, operations, and arrival times in picoseconds, if there are any.
    ///
    /// # Errors
    /// The columns have different lengths.
    pub fn new(
        offsets: Vec<u64>,
        lens: Vec<u64>,
        ops: Vec<Op>,
        times_ps: Option<Vec<u64>>,
    ) -> Result<Self, TraceError> {
        let requests = offsets.len();
        let times = times_ps.as_ref().map_or(requests, Vec::len);
        for (column, len) in [("lengths", lens.len()), ("operations", ops.len()), ("times", times)] {
            if len != requests {
                return Err(TraceError::Columns { column, len, requests });
            }
        }
        Ok(Self { offsets, lens, ops, times_ps })
    }

    /// Number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The requests in order, as records of device 0.
    pub fn items(&self) -> impl Iterator<Item = Item> + Send + '_ {
        (0..self.len()).map(|at| {
            Item::Block(Request {
                time_ps: self.times_ps.as_ref().map(|times| times[at]),
                device: 0,
                offset: self.offsets[at],
                len: self.lens[at],
                op: self.ops[at],
            })
        })
    }
}

impl fmt::Debug for Columns {
    /// Shows the number of requests alone: there may be millions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Columns").field("requests", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_columns() {
        let ops = vec![Op::Write, Op::Read];
        let columns = Columns::new(vec![4096, 0], vec![512, 8192], ops, Some(vec![5, 9])).unwrap();
        let wanted = [(5, 4096, 512, Op::Write), (9, 0, 8192, Op::Read)];
        let wanted = wanted.map(|(time, offset, len, op)| {
            Item::Block(Request { time_ps: Some(time), device: 0, offset, len, op })
        });
        assert_eq!(columns.items().collect::<Vec<_>>(), wanted);
        assert_eq!(format!("{columns:?}"), "Columns { requests: 2, .. }");
    }

    #[test]
    fn columns_of_different_lengths_are_an_error_that_names_the_column() {
        let two = || vec![0, 0];
        for (lens, ops, times, named) in [
            (vec![0], vec![Op::Read; 2], None, "lengths"),
            (two(), vec![Op::Read; 3], None, "operations"),
            (two(), vec![Op::Read; 2], Some(vec![]), "times"),
        ] {
            let error = Columns::new(two(), lens, ops, times).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("2 requests"), "{error}");
        }
    }
}
