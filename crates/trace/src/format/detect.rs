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
    let unrecognised = |why: &str| TraceError::Unrecognised {
        trace: String::new(),
        text: shorten(prefix, 60),
        why: why.to_string(),
    };
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
    let mut nearest = Partly::default();
    let mut alone = true;
    for info in FORMATS {
        match accepts(info.format, prefix, whole, options) {
            Fit::Whole => return Ok(info.format),
            Fit::Not => {}
            Fit::Partly(fit) if (fit.records, fit.lines) == (nearest.records, nearest.lines) => alone = false,
            Fit::Partly(fit) if (fit.records, fit.lines) > (nearest.records, nearest.lines) => {
                (nearest, alone) = (Partly { name: info.name, ..fit }, true);
            }
            Fit::Partly(_) => {}
        }
    }
    let Partly { name, records, lines, place, why } = nearest;
    Err(if records > 0 || (lines > 0 && alone) {
        unrecognised(&format!("up to line {} it is {name}, but line {place} is not: {why}", place - 1))
    } else {
        unrecognised("its first lines fit no text format")
    })
}

/// How far the lines of a trace are of a format.
#[derive(Default)]
struct Partly {
    name: &'static str,
    /// Lines that hold a request.
    records: usize,
    /// Lines that are of the format.
    lines: usize,
    /// The first line that is not, from 1.
    place: usize,
    /// What is wrong with it.
    why: String,
}

enum Fit {
    /// All lines fit and one holds a request.
    Whole,
    /// The lines before one.
    Partly(Partly),
    /// No line, or there is no request.
    Not,
}

fn accepts(format: Format, prefix: &[u8], whole: bool, options: &ReadOptions) -> Fit {
    let Some(mut parser) = line_parser(format, options) else {
        return Fit::Not;
    };
    let (mut records, mut accepted) = (0, 0);
    let mut lines = prefix.split(|b| *b == b'\n').take(LINES).zip(1..).peekable();
    while let Some((line, place)) = lines.next() {
        let cut_off = lines.peek().is_none() && !whole;
        let line = trim(line);
        if line.is_empty() || cut_off {
            continue;
        }
        match parser.line(line) {
            Ok(Parsed::Skip) => {}
            Ok(Parsed::One(_) | Parsed::Two(..)) => records += 1,
            Err(_) if accepted == 0 => return Fit::Not,
            Err(why) => return Fit::Partly(Partly { name: "", records, lines: accepted, place, why }),
        }
        accepted += 1;
    }
    if records > 0 { Fit::Whole } else { Fit::Not }
}
