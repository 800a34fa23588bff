//! Input of traces: opens files and streams, decompresses them, and cuts them into lines or records
//! of bounded size.
//!
//! Compression is recognised by the first bytes, not by the file name. Memory is bounded by a
//! decompressor's window (at most 128 MiB, zstd's default limit) and one line of at most
//! [`MAX_LINE_BYTES`]. A decompression bomb therefore costs time in proportion to the bytes
//! consumed, and no memory.

use crate::error::TraceError;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

/// Maximum length of a line in a text trace, in bytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Binary logarithm of the largest window that a zstd frame may request.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

const BUFFER: usize = 128 << 10;

/// Compression of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// None.
    Plain,
    /// gzip (RFC 1952), one or more members.
    Gzip,
    /// Zstandard (RFC 8878), one or more frames.
    Zstd,
}

impl Compression {
    /// Recognises the compression by the first bytes (at least four).
    pub fn of(prefix: &[u8]) -> Compression {
        match prefix {
            [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::Plain,
        }
    }
}

/// Decompressed bytes, from the first byte of the trace.
pub(crate) type Input = Box<dyn BufRead + Send>;

pub(crate) fn open(path: &Path) -> Result<(Input, Compression), TraceError> {
    let io = |source| TraceError::Io { what: format!("can't read {}", path.display()), source };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.is_dir() {
        return Err(io(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    decompress(file).map_err(io)
}

/// Decompresses the input if it is compressed.
pub(crate) fn decompress(mut raw: impl Read + Send + 'static) -> io::Result<(Input, Compression)> {
    let prefix = read_up_to(&mut raw, 4)?;
    let compression = Compression::of(&prefix);
    let whole: Chain<Cursor<Vec<u8>>, _> = Cursor::new(prefix).chain(raw);
    let input: Input = match compression {
        Compression::Plain => Box::new(BufReader::with_capacity(BUFFER, whole)),
        Compression::Gzip => Box::new(BufReader::with_capacity(
            BUFFER,
            flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole)),
        )),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(whole)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(BufReader::with_capacity(BUFFER, decoder))
        }
    };
    Ok((input, compression))
}

/// Reads up to `n` bytes ahead; returns them, and the input from its beginning.
pub(crate) fn peek(mut input: Input, n: usize) -> io::Result<(Vec<u8>, Input)> {
    let prefix = read_up_to(&mut input, n)?;
    Ok((prefix.clone(), Box::new(Cursor::new(prefix).chain(input))))
}

/// Reads `n` bytes, or fewer at the end of the input.
pub(crate) fn read_up_to(input: &mut impl Read, n: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.by_ref().take(n as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Splits a text into lines.
pub(crate) struct Lines {
    input: Input,
    buffer: Vec<u8>,
    /// Number of the line last returned, from 1.
    pub(crate) number: u64,
}

/// Result of reading a line.
pub(crate) enum Line<'a> {
    /// A line without its line terminator.
    Text(&'a [u8]),
    /// The beginning of a line longer than [`MAX_LINE_BYTES`].
    TooLong(&'a [u8]),
    /// End of the input.
    End,
}

impl Lines {
    pub(crate) fn new(input: Input) -> Lines {
        Lines { input, buffer: Vec::new(), number: 0 }
    }

    pub(crate) fn next(&mut self) -> io::Result<Line<'_>> {
        self.buffer.clear();
        self.number += 1;
        let limit = MAX_LINE_BYTES as u64 + 1;
        self.input.by_ref().take(limit).read_until(b'\n', &mut self.buffer)?;
        match self.buffer.as_slice() {
            [] => Ok(Line::End),
            [text @ .., b'\n'] => Ok(Line::Text(text.strip_suffix(b"\r").unwrap_or(text))),
            text if text.len() > MAX_LINE_BYTES => Ok(Line::TooLong(text)),
            text => Ok(Line::Text(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn text(input: Input) -> Vec<u8> {
        let mut input = input;
        let mut out = Vec::new();
        input.read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn plain_gzip_and_zstd_give_the_same_bytes() {
        let data = b"one\ntwo\nthree\n".repeat(1000);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&data).unwrap();
        let mut members = gz.finish().unwrap();
        let again = members.clone();
        members.extend(again);
        let zst = zstd::encode_all(&data[..], 1).unwrap();
        for (bytes, compression, copies) in [
            (data.clone(), Compression::Plain, 1),
            (members, Compression::Gzip, 2),
            (zst, Compression::Zstd, 1),
        ] {
            let (input, found) = decompress(Cursor::new(bytes)).unwrap();
            assert_eq!(found, compression);
            assert_eq!(text(input), data.repeat(copies));
        }
    }

    #[test]
    fn a_line_over_the_limit_is_reported_without_reading_it_whole() {
        let (input, _) = decompress(io::repeat(b'x')).unwrap();
        let mut lines = Lines::new(input);
        assert!(matches!(lines.next().unwrap(), Line::TooLong(t) if t.len() == MAX_LINE_BYTES + 1));
    }

    #[test]
    fn line_ends_of_both_kinds_are_removed_and_the_last_may_lack_one() {
        let (input, _) = decompress(&b"a\r\nb\nc"[..]).unwrap();
        let mut lines = Lines::new(input);
        for expected in [b"a", b"b", b"c"] {
            assert!(matches!(lines.next().unwrap(), Line::Text(t) if t == expected));
        }
        assert!(matches!(lines.next().unwrap(), Line::End));
        assert_eq!(lines.number, 4);
    }
}
