//! What can go wrong with a trace.

use std::fmt;

/// Where in a trace something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a text trace; the first is 1.
    Line(u64),
    /// A record of a binary trace; the first is 1.
    Record(u64),
    /// A byte of the (decompressed) trace; the first is 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(n) => write!(f, "line {n}"),
            Place::Record(n) => write!(f, "record {n}"),
            Place::Byte(n) => write!(f, "byte {n}"),
        }
    }
}

/// An error of reading, recognising or writing a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file can't be opened, read or written, or its compression is damaged.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the file's name or the place where it is known.
        what: String,
        /// The system's or the decompressor's reason.
        source: std::io::Error,
    },
    /// A line or record doesn't follow the format.
    #[error("{}{format} trace, {place}: {why}{}", Named(trace), Quoted(text))]
    Parse {
        /// The trace's name; empty where it has none.
        trace: String,
        /// The format's name.
        format: &'static str,
        /// Where.
        place: Place,
        /// The offending text, shortened and with control bytes escaped; may be empty.
        text: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// No format fits the content.
    #[error(
        "{}can't recognise the trace's format{}: {why}; name it, one of: {}",
        Named(trace),
        Quoted(text),
        crate::format::names()
    )]
    Unrecognised {
        /// The trace's name; empty where it has none.
        trace: String,
        /// The beginning of the content, shortened.
        text: String,
        /// What was tried.
        why: String,
    },
    /// A format's name is unknown.
    #[error("there is no trace format {name:?}{}; known: {}", suggestion(near), crate::format::names())]
    UnknownFormat {
        /// The name given.
        name: String,
        /// The nearest known name, if one is near.
        near: Option<&'static str>,
    },
    /// A record can't be expressed in the format being written.
    #[error("record {record} can't be written as {format}: {why}")]
    Unwritable {
        /// The format's name.
        format: &'static str,
        /// The record; the first is 1.
        record: u64,
        /// What the format lacks, and what to do.
        why: String,
    },
}

impl TraceError {
    /// The same error of a trace that has a name.
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
