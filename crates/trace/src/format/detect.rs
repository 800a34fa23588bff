//! Telling a trace's format by its content.
//!
//! Our own magic decides at once. Content with NUL bytes is binary and is tried as vscsi, then
//! as oracleGeneral, by what their fields can hold. Anything else is text: the first lines are
//! given to each parser in turn, and the first that accepts all of them and finds a request in
//! them is the format.

use super::{FORMATS, Format, Parsed, ReadOptions, line_parser, oracle, vscsi};
use crate::compact;
use crate::error::TraceError;
use crate::text::{shorten, trim};

/// How much is looked at, in bytes: any line fits.
pub(super) const PREFIX: usize = crate::input::MAX_LINE_BYTES + 1024;

/// How many lines are tried.
const LINES: usize = 64;

pub(super) fn detect(prefix: &[u8], whole: bool, options: &ReadOptions) -> Result<Format, TraceError> {
    if prefix.starts_with(&compact::MAGIC) {
        return Ok(Format::Compact);
    }
    let unrecognised =
        |why: &str| TraceError::Unrecognised { text: shorten(prefix, 60), why: why.to_string() };
    if prefix.is_empty() {
        return Err(unrecognised("it is empty"));
    }
    if prefix.contains(&0) {
        return if vscsi::Version::of(prefix).is_some() {
            Ok(Format::Vscsi)
        } else if oracle::plausible(prefix) {
            Ok(Format::OracleGeneral)
        } else {
            Err(unrecognised("it is binary, but neither vscsi nor oracleGeneral nor ours"))
        };
    }
    FORMATS
        .iter()
        .map(|info| info.format)
        .find(|format| accepts(*format, prefix, whole, options))
        .ok_or_else(|| unrecognised("its first lines fit no text format"))
}

fn accepts(format: Format, prefix: &[u8], whole: bool, options: &ReadOptions) -> bool {
    let Some(mut parser) = line_parser(format, options) else {
        return false;
    };
    let mut found = false;
    let mut lines = prefix.split(|b| *b == b'\n').take(LINES).peekable();
    while let Some(line) = lines.next() {
        let cut_off = lines.peek().is_none() && !whole;
        let line = trim(line);
        if line.is_empty() || cut_off {
            continue;
        }
        match parser.line(line) {
            Ok(Parsed::Skip) => {}
            Ok(Parsed::One(_) | Parsed::Two(..)) => found = true,
            Err(_) => return false,
        }
    }
    found
}
