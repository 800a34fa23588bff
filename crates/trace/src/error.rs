//! Errors of reading, recognising and writing traces.

use std::fmt;

/// Position of an error in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePosition {
    /// Line of a text trace, from 1.
    Line(u64),
    /// Record of a binary trace, from 1.
    Record(u64),
    /// Byte of the decompressed trace, from 0.
    Byte(u64),
}

impl fmt::Display for TracePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TracePosition::Line(n) => write!(f, "line {n}"),
            TracePosition::Record(n) => write!(f, "record {n}"),
            TracePosition::Byte(n) => write!(f, "byte {n}"),
        }
    }
}

/// An error of reading, recognising or writing a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened, read or written, or its compressed data are damaged.
    #[error("{what}: {source}")]
    Io {
        /// The failed operation, with the file name or position where known.
        what: String,
        /// Cause, from the system or the decompressor.
        source: std::io::Error,
    },
    /// A line or record does not follow the format.
    #[error("{}{format} trace, {place}: {why}{}", Named(trace), Quoted(text))]
    Parse {
        /// Name of the trace; empty if it has none.
        trace: String,
        /// Name of the format.
        format: &'static str,
        /// Position of the error.
        place: TracePosition,
        /// The invalid text, shortened and with control bytes escaped; may be empty.
        text: String,
        /// What is wrong and what is expected.
        why: String,
    },
    /// No format matches the content.
    #[error(
        "{}unrecognised trace format{}: {why}; name it, one of: {}",
        Named(trace),
        Quoted(text),
        crate::format::names()
    )]
    Unrecognised {
        /// Name of the trace; empty if it has none.
        trace: String,
        /// Beginning of the content, shortened.
        text: String,
        /// Why each candidate failed.
        why: String,
    },
    /// The name of a format is unknown.
    #[error("unknown trace format {name:?}{}; expected one of: {}", suggestion(near), crate::format::names())]
    UnknownFormat {
        /// The name given.
        name: String,
        /// The most similar known name, if one is similar enough.
        near: Option<&'static str>,
    },
    /// The columns of requests in memory have different lengths.
    #[error("{column}: {len} values for {requests} requests; each request has one")]
    Columns {
        /// The column with another length than the first.
        column: &'static str,
        /// Its length.
        len: usize,
        /// The length of the first column.
        requests: usize,
    },
    /// A record cannot be expressed in the format being written.
    #[error("record {record} can't be written as {format}: {why}")]
    Unwritable {
        /// Name of the format.
        format: &'static str,
        /// Number of the record, from 1.
        record: u64,
        /// What the format lacks, and the alternative.
        why: String,
    },
}

impl TraceError {
    /// Adds the name of the trace.
    pub(crate) fn of(mut self, name: &str) -> Self {
        if let Self::Parse { trace, .. } | Self::Unrecognised { trace, .. } = &mut self {
            *trace = name.to_string();
        }
        self
    }
}

struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " in \"{}\"", self.0) }
    }
}

fn suggestion(near: &Option<&'static str>) -> String {
    near.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
