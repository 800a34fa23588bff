//! Recognises the format of a trace by its content.
//!
//! deepram's own magic number decides immediately. Content with NUL bytes is binary and is tried as
//! vscsi, then as oracleGeneral, by the plausibility of the fields. All other content is text: each
//! parser in turn receives the first lines, and the first parser that accepts all of them and finds
//! a request determines the format.

use super::{FORMATS, Format, Parsed, ReadOptions, line_parser, oracle, vscsi};
use crate::deepram_format;
use crate::error::TraceError;
use crate::text_fields::{shorten, trim};

/// Number of bytes examined: at least one whole line.
pub(super) const PREFIX: usize = crate::input_stream::MAX_LINE_BYTES + 1024;

/// Number of lines tried.
const LINES: usize = 64;

pub(super) fn detect(prefix: &[u8], whole: bool, options: &ReadOptions) -> Result<Format, TraceError> {
    if prefix.starts_with(&deepram_format::MAGIC) {
        return Ok(Format::Deepram);
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
            Err(unrecognised("it is binary, but not vscsi, oracleGeneral or deepram"))
        };
    }
    let mut nearest = PartialMatch::default();
    let mut alone = true;
    for info in FORMATS {
        match accepts(info.format, prefix, whole, options) {
            FormatMatch::Full => return Ok(info.format),
            FormatMatch::None => {}
            FormatMatch::Partial(fit) if (fit.records, fit.lines) == (nearest.records, nearest.lines) => {
                alone = false
            }
            FormatMatch::Partial(fit) if (fit.records, fit.lines) > (nearest.records, nearest.lines) => {
                (nearest, alone) = (PartialMatch { name: info.name, ..fit }, true);
            }
            FormatMatch::Partial(_) => {}
        }
    }
    let PartialMatch { name, records, lines, place, why } = nearest;
    Err(if records > 0 || (lines > 0 && alone) {
        unrecognised(&format!("lines up to {} are {name}, but line {place} is not: {why}", place - 1))
    } else {
        unrecognised("its first lines match no text format")
    })
}

/// The part of a trace that matches a format.
#[derive(Default)]
struct PartialMatch {
    name: &'static str,
    /// Number of lines with a request.
    records: usize,
    /// Number of lines that match.
    lines: usize,
    /// Number of the first line that does not match, from 1.
    place: usize,
    /// Why that line does not match.
    why: String,
}

enum FormatMatch {
    /// All lines match, and at least one holds a request.
    Full,
    /// Only the lines before one match.
    Partial(PartialMatch),
    /// No line matches, or no line holds a request.
    None,
}

fn accepts(format: Format, prefix: &[u8], whole: bool, options: &ReadOptions) -> FormatMatch {
    let Some(mut parser) = line_parser(format, options) else {
        return FormatMatch::None;
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
            Err(_) if accepted == 0 => return FormatMatch::None,
            Err(why) => {
                return FormatMatch::Partial(PartialMatch { name: "", records, lines: accepted, place, why });
            }
        }
        accepted += 1;
    }
    if records > 0 { FormatMatch::Full } else { FormatMatch::None }
}
