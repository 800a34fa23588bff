//! The on-disk format: headers, log batches, line records, the root record. `docs/reference/pool-format.md` describes
//! every byte. The parsers here accept hostile input.

pub(crate) mod batch;
pub(crate) mod codec;
pub(crate) mod header;
pub(crate) mod line;
pub(crate) mod parity;
pub(crate) mod root;

pub use codec::FormatError;
pub use header::VERSION;
