//! Opens traces, recognises their format and iterates over their records.

use super::{Format, LineParser, Parsed, ReadOptions, RecordParser, detect, line_parser, oracle, vscsi};
use crate::deepram_format::DeepramReader;
use crate::error::{TraceError, TracePosition};
use crate::input_stream::{self, Compression, Input, Line, Lines, MAX_LINE_BYTES};
use crate::record::Item;
use crate::text_fields::{shorten, trim};
use std::io::{self, Read};
use std::path::Path;

/// Maximum number of consecutive lines without a record. A decompression bomb of blank lines ends
/// in an error instead of a reader that seems to hang.
const MAX_SKIPPED: u64 = 10_000_000;

/// Counters of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderStats {
    /// Number of records returned so far.
    pub records: u64,
    /// Number of lines or records without a request: headers, comments, blank lines, other events.
    pub skipped: u64,
    /// Number of records with a time before the first record's; their time was set to zero.
    pub clamped: u64,
}

enum Source {
    Lines(Lines, Box<dyn LineParser>),
    Records { input: Input, parser: Box<dyn RecordParser>, buffer: Vec<u8>, number: u64 },
    Deepram(DeepramReader<Input>),
    Done,
}

/// Iterates over the records of a trace in constant memory. The iterator ends after the first
/// error.
pub struct TraceReader {
    format: Format,
    compression: Compression,
    source: Source,
    pending: Option<Item>,
    stats: ReaderStats,
    skipped_in_a_row: u64,
    name: String,
}

impl TraceReader {
    /// Opens a trace file, compressed or not.
    ///
    /// # Errors
    /// The file cannot be read, its format is not recognised, or its header is invalid.
    pub fn open(path: impl AsRef<Path>, options: &ReadOptions) -> Result<TraceReader, TraceError> {
        let path = path.as_ref();
        let (input, compression) = input_stream::open(path)?;
        TraceReader::build(input, compression, path.display().to_string(), options)
    }

    /// Reads a trace from a stream, compressed or not.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn new(stream: impl Read + Send + 'static, options: &ReadOptions) -> Result<TraceReader, TraceError> {
        let (input, compression) = input_stream::decompress(stream)
            .map_err(|source| TraceError::Io { what: "can't read the stream".to_string(), source })?;
        TraceReader::build(input, compression, String::new(), options)
    }

    fn build(
        input: Input,
        compression: Compression,
        name: String,
        options: &ReadOptions,
    ) -> Result<TraceReader, TraceError> {
        let (prefix, input) =
            input_stream::peek(input, detect::PREFIX).map_err(|e| unreadable(&name, "", compression, e))?;
        let format = match options.format {
            Some(format) => format,
            None => {
                detect::detect(&prefix, prefix.len() < detect::PREFIX, options).map_err(|e| e.of(&name))?
            }
        };
        let records = |parser: Box<dyn RecordParser>, input| Source::Records {
            buffer: vec![0; parser.size()],
            input,
            parser,
            number: 0,
        };
        let source = match format {
            Format::Deepram => Source::Deepram(DeepramReader::new(input).map_err(|e| e.of(&name))?),
            Format::OracleGeneral => records(Box::new(oracle::Oracle::new(options)), input),
            Format::Vscsi => records(Box::new(vscsi::Vscsi::new(options, &prefix)), input),
            text => match line_parser(text, options) {
                Some(parser) => Source::Lines(Lines::new(input), parser),
                None => Source::Done,
            },
        };
        let (pending, stats, skipped_in_a_row) = (None, ReaderStats::default(), 0);
        Ok(TraceReader { format, compression, source, pending, stats, skipped_in_a_row, name })
    }

    /// The format, given or recognised.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Compression of the trace.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Counters so far.
    pub fn stats(&self) -> ReaderStats {
        let clamped = match &self.source {
            Source::Lines(_, parser) => parser.clamped(),
            Source::Records { parser, .. } => parser.clamped(),
            Source::Deepram(_) | Source::Done => self.stats.clamped,
        };
        ReaderStats { clamped, ..self.stats }
    }

    fn step(&mut self) -> Result<Option<Parsed>, TraceError> {
        let name = self.format.name();
        let io = |source: io::Error, place: TracePosition| {
            unreadable(&self.name, &format!(" at {place}"), self.compression, source)
        };
        match &mut self.source {
            Source::Done => Ok(None),
            Source::Deepram(reader) => {
                reader.read().map(|item| item.map(Parsed::One)).map_err(|e| e.of(&self.name))
            }
            Source::Lines(lines, parser) => {
                let number = lines.number + 1;
                let place = TracePosition::Line(number);
                let wrong = |text: &[u8], why| TraceError::Parse {
                    trace: self.name.clone(),
                    format: name,
                    place,
                    text: shorten(text, 60),
                    why,
                };
                match lines.next().map_err(|e| io(e, place))? {
                    Line::End => Ok(None),
                    Line::TooLong(text) => {
                        Err(wrong(text, format!("the line is longer than {MAX_LINE_BYTES} bytes")))
                    }
                    Line::Text(text) => match trim(text) {
                        [] => Ok(Some(Parsed::Skip)),
                        text => parser.line(text).map(Some).map_err(|why| wrong(text, why)),
                    },
                }
            }
            Source::Records { input, parser, buffer, number } => {
                *number += 1;
                let place = TracePosition::Record(*number);
                let wrong = |bytes: &[u8], why| TraceError::Parse {
                    trace: self.name.clone(),
                    format: name,
                    place,
                    text: shorten(bytes, 40),
                    why,
                };
                let mut filled = 0;
                while filled < buffer.len() {
                    match input.read(&mut buffer[filled..]) {
                        Ok(0) => break,
                        Ok(n) => filled += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(io(e, place)),
                    }
                }
                match filled {
                    0 => Ok(None),
                    n if n < buffer.len() => {
                        Err(wrong(&buffer[..n], format!("cut off after {n} of its {} bytes", buffer.len())))
                    }
                    _ => parser.record(buffer).map(Some).map_err(|why| wrong(buffer, why)),
                }
            }
        }
    }

    fn finish(&mut self) {
        self.stats = self.stats();
        self.source = Source::Done;
    }
}

/// The error of the system or a decompressor, with the name of the trace and a clear message where
/// the data end early.
fn unreadable(name: &str, place: &str, compression: Compression, source: io::Error) -> TraceError {
    let name = if name.is_empty() { "the stream" } else { name };
    let packed = match compression {
        Compression::Plain => None,
        Compression::Gzip => Some("gzip"),
        Compression::Zstd => Some("zstd"),
    };
    let source = match (packed, source.kind()) {
        (Some(packed), io::ErrorKind::UnexpectedEof) => {
            io::Error::new(source.kind(), format!("the {packed} data end early: the file is cut off"))
        }
        (Some(packed), _) if source.raw_os_error().is_none() => {
            io::Error::new(source.kind(), format!("the {packed} data are damaged: {source}"))
        }
        _ => source,
    };
    TraceError::Io { what: format!("can't read {name}{place}"), source }
}

impl Iterator for TraceReader {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(item) = self.pending.take() {
            self.stats.records += 1;
            return Some(Ok(item));
        }
        loop {
            let item = match self.step() {
                Ok(Some(Parsed::One(item))) => item,
                Ok(Some(Parsed::Two(first, second))) => {
                    self.pending = Some(second);
                    first
                }
                Ok(Some(Parsed::Skip)) => {
                    self.stats.skipped += 1;
                    self.skipped_in_a_row += 1;
                    if self.skipped_in_a_row < MAX_SKIPPED {
                        continue;
                    }
                    let place = match &self.source {
                        Source::Lines(lines, _) => TracePosition::Line(lines.number),
                        _ => TracePosition::Record(self.stats.skipped + self.stats.records),
                    };
                    self.finish();
                    let why = format!("{MAX_SKIPPED} lines or records in a row hold no request");
                    return Some(Err(TraceError::Parse {
                        trace: self.name.clone(),
                        format: self.format.name(),
                        place,
                        text: String::new(),
                        why,
                    }));
                }
                Ok(None) => {
                    self.finish();
                    return None;
                }
                Err(error) => {
                    self.finish();
                    return Some(Err(error));
                }
            };
            self.skipped_in_a_row = 0;
            self.stats.records += 1;
            return Some(Ok(item));
        }
    }
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReader")
            .field("name", &self.name)
            .field("format", &self.format)
            .field("compression", &self.compression)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
