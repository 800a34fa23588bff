//! Turning one trace into another.

use crate::error::TraceError;
use crate::record::Item;
use crate::write::TraceWriter;
use std::io::Write;

/// What a conversion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Records written.
    pub records: u64,
}

/// Writes every record, one at a time, until the end, the first error, or `limit` records.
/// Call [`TraceWriter::finish`] afterwards. `progress` is told the number of records now and then.
///
/// # Errors
/// A record can't be read or is not expressible in the writer's format.
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
