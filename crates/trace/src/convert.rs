//! Converts a trace into another format.

use crate::error::TraceError;
use crate::record::Item;
use crate::writer::TraceWriter;
use std::io::Write;

/// Result of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Records written.
    pub records: u64,
}

/// Writes records one at a time until the input ends, an error occurs, or `limit` records are
/// written. Call [`TraceWriter::finish`] afterwards. `progress` receives the number of records from
/// time to time.
///
/// # Errors
/// A record cannot be read or cannot be expressed in the writer's format.
pub fn convert<W: Write>(
    records: impl IntoIterator<Item = Result<Item, TraceError>>,
    writer: &mut TraceWriter<W>,
    limit: Option<u64>,
    mut progress: impl FnMut(u64),
) -> Result<Converted, TraceError> {
    let mut done = Converted::default();
    let mut records = records.into_iter();
    while limit.is_none_or(|limit| done.records < limit) {
        let Some(item) = records.next() else { break };
        writer.write(&item?)?;
        done.records += 1;
        if done.records.is_multiple_of(1 << 16) {
            progress(done.records);
        }
    }
    progress(done.records);
    Ok(done)
}
