//! The trace formats: their names, recognition and parsers.
//!
//! Each format has one file with one parser. A text parser receives a line, a binary parser a
//! record of fixed size; both return its [`Item`]s or the reason why it is invalid. This module
//! lists the formats and their shared options.

mod arc;
mod blkparse;
mod cachelib;
mod csv;
mod detect;
mod disksim;
mod fio;
mod lackey;
mod lirs;
mod mqsim;
mod msr;
mod oracle;
mod reader;
mod spc;
mod spec_ls;
mod twitter;
mod vscsi;

pub use reader::{ReaderStats, TraceReader};

use crate::error::TraceError;
use crate::record::Item;
use crate::text_fields::Reason;
use deepram_core::suggest::nearest;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// deepram's own format ([`crate::deepram_format`]).
    Deepram,
    /// MSR Cambridge: `filetime,host,disk,Read|Write,offset,size,response`.
    Msr,
    /// SPC (UMass repository): `asu,lba,bytes,R|W,seconds`.
    Spc,
    /// blkparse's default text.
    Blkparse,
    /// fio I/O log, version 2.
    FioV2,
    /// fio I/O log, version 3.
    FioV3,
    /// MQSim's and SSDsim's ASCII: `time_ns device lba sectors op`, op 1 is a read.
    Mqsim,
    /// DiskSim's ASCII: `time_ms device lba sectors flags`, flag bit 0 is a read.
    DiskSim,
    /// libCacheSim's oracleGeneral: binary records of 24 bytes.
    OracleGeneral,
    /// CSV whose first line names the columns, as libCacheSim exports and imports it.
    Csv,
    /// Twitter's cache traces: `time,key,key size,value size,client,operation,ttl`.
    Twitter,
    /// CacheLib's block-storage traces, CSV with their own header.
    CacheLib,
    /// VMware vscsiStats as libCacheSim keeps it, version 1 or 2: binary.
    Vscsi,
    /// Megiddo and Modha's ARC traces: `start count 0 sequence`.
    Arc,
    /// The LIRS authors' traces: one block number a line.
    Lirs,
    /// valgrind's lackey with `--trace-mem=yes`.
    Lackey,
    /// SPEC loads and stores: `l|s 0xADDR instructions`.
    SpecLs,
}

/// Description of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatInfo {
    /// The format.
    pub format: Format,
    /// Name for `--format`.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Form of a record, with units.
    pub description: &'static str,
    /// Definition of the format.
    pub source: &'static str,
    /// Whether [`crate::TraceWriter`] can write the format.
    pub writable: bool,
    /// Size of one address unit in bytes, where addresses count sectors or blocks;
    /// [`ReadOptions::unit_bytes`] overrides it.
    pub unit_bytes: Option<u64>,
}

macro_rules! formats {
    ($($format:ident $name:literal $aliases:tt $writable:literal $unit:expr, $description:literal, $source:literal;)*) => {
        /// All formats, in the order in which recognition tries them.
        pub const FORMATS: &[FormatInfo] = &[$(FormatInfo {
            format: Format::$format,
            name: $name,
            aliases: &$aliases,
            description: $description,
            source: $source,
            writable: $writable,
            unit_bytes: $unit,
        }),*];
    };
}

formats! {
    Deepram "deepram" ["compact"] true None,
        "binary, delta-coded, checksummed; any kind of record", "module deepram_format of deepram-trace";
    FioV2 "fio2" ["fio-v2"] true None,
        "'fio version 2 iolog', then: file action [offset length], bytes; waits in us", "fio documentation, trace file format v2";
    FioV3 "fio3" ["fio-v3"] true None,
        "'fio version 3 iolog', then: time_us file action [offset length], bytes", "fio iolog.c";
    CacheLib "cachelib" ["meta"] false None,
        "op_time,block_id,block_id_size,io_size,io_offset,...,op_name,op_count,...", "CacheLib documentation, block storage traces";
    Csv "csv" ["libcachesim-csv"] true Some(512),
        "header of column names: time[_ns|_us|_ms], op, size, and one of lbn, offset, object; device", "libCacheSim csv reader";
    Msr "msr" ["msr-cambridge"] true None,
        "filetime (100 ns),host,disk,Read|Write,offset,size,response", "SNIA IOTTA, MSR Cambridge traces";
    Twitter "twitter" [] false None,
        "time (s),key,key size,value size,client,operation,ttl", "github.com/twitter/cache-trace";
    Spc "spc" ["umass"] true Some(512),
        "asu,lba,bytes,R|W,time (s)", "SPC trace file format specification 1.0.1";
    Blkparse "blkparse" ["blktrace"] false Some(512),
        "maj,min cpu sequence time (s) pid action rwbs sector + sectors [process]; Q events are read", "blkparse(1), default output";
    Mqsim "mqsim" ["ssdsim"] true Some(512),
        "time (ns) device lba sectors op (1 read, 0 write)", "MQSim README, ASCII trace definition";
    DiskSim "disksim" [] true Some(512),
        "time (ms) device lba sectors flags (bit 0: read)", "DiskSim 4.0 manual, ASCII trace";
    SpecLs "spec-ls" ["ls"] true None,
        "l|s 0xADDR instructions since the previous access", "caffeine simulator, memory address traces";
    Lackey "lackey" ["valgrind"] true None,
        "I|L|S|M address,size", "valgrind manual, lackey --trace-mem=yes";
    Arc "arc" ["lis"] false Some(512),
        "first block, number of blocks, ignored, sequence", "Megiddo and Modha, FAST 2003, trace notes";
    Lirs "lirs" [] false Some(4096),
        "one block number a line; '*' marks a phase", "caffeine simulator, LIRS traces";
    Vscsi "vscsi" [] true Some(512),
        "binary records of 32 (version 1) or 40 bytes (version 2)", "libCacheSim vscsi reader";
    OracleGeneral "oracle" ["oracleGeneral"] true None,
        "binary records of 24 bytes: u32 time (s), u64 id, u32 size, i64 next", "libCacheSim oracleGeneral reader";
}

impl Format {
    /// Description of the format.
    pub fn info(self) -> &'static FormatInfo {
        FORMATS.iter().find(|f| f.format == self).unwrap_or(&FORMATS[0])
    }

    /// Name for `--format`.
    pub fn name(self) -> &'static str {
        self.info().name
    }
}

impl std::str::FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Format, TraceError> {
        let known = || FORMATS.iter().flat_map(|f| std::iter::once(f.name).chain(f.aliases.iter().copied()));
        FORMATS
            .iter()
            .find(|f| {
                f.name.eq_ignore_ascii_case(name) || f.aliases.iter().any(|a| a.eq_ignore_ascii_case(name))
            })
            .map(|f| f.format)
            .ok_or_else(|| TraceError::UnknownFormat {
                name: name.chars().take(40).collect(),
                near: nearest(name, known()),
            })
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Names of all formats, for messages.
pub(crate) fn names() -> String {
    FORMATS.iter().map(|f| f.name).collect::<Vec<_>>().join(", ")
}

/// Options of a [`TraceReader`]. The default recognises the format and uses each format's own
/// units.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// The format; `None` recognises it by content.
    pub format: Option<Format>,
    /// Size of one address unit in bytes, instead of [`FormatInfo::unit_bytes`].
    pub unit_bytes: Option<u64>,
    /// Counts time from the first record in every format, not only in those with an absolute clock
    /// (MSR, vscsi, CacheLib, Twitter, oracleGeneral).
    pub rebase: bool,
    /// Size of a memory reference in bytes, in formats that lack it (SPEC loads and stores).
    /// Default 8: a 64-bit word, assumed.
    pub access_bytes: u32,
    /// Returns instruction fetches where the trace has them. Otherwise they count towards the next
    /// reference's instruction gap.
    pub fetches: bool,
    /// The blkparse action that counts as the request: `Q` (queued, the default), `D` (issued), ...
    pub blkparse_action: u8,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            format: None,
            unit_bytes: None,
            rebase: false,
            access_bytes: 8,
            fetches: true,
            blkparse_action: b'Q',
        }
    }
}

impl ReadOptions {
    fn unit(&self, format: Format) -> u64 {
        self.unit_bytes.or(format.info().unit_bytes).unwrap_or(1)
    }
}

/// Result of parsing a line or record.
pub(crate) enum Parsed {
    /// No record: a comment, a header, or another kind of event.
    Skip,
    /// One record.
    One(Item),
    /// Two records, in this order.
    Two(Item, Item),
}

/// Parser of a text format.
pub(crate) trait LineParser: Send {
    /// Parses a line, which is not empty and has no blanks at its ends.
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason>;

    /// Number of records with a time before the first record's; their time was set to zero.
    fn clamped(&self) -> u64 {
        0
    }
}

/// Parser of a binary format with records of fixed size.
pub(crate) trait RecordParser: Send {
    /// Size of a record, in bytes.
    fn size(&self) -> usize;

    /// Parses a record of [`RecordParser::size`] bytes.
    fn record(&mut self, record: &[u8]) -> Result<Parsed, Reason>;

    /// See [`LineParser::clamped`].
    fn clamped(&self) -> u64 {
        0
    }
}

/// Converts a trace's clock to picoseconds from zero.
pub(crate) struct Clock {
    rebase: bool,
    base: Option<u128>,
    clamped: u64,
}

impl Clock {
    /// Creates a clock, which counts from the first record if the format's clock is `absolute` or
    /// the options ask for it.
    pub(crate) fn new(options: &ReadOptions, absolute: bool) -> Clock {
        Clock { rebase: absolute || options.rebase, base: None, clamped: 0 }
    }

    pub(crate) fn at(&mut self, ps: u128) -> Result<Option<u64>, Reason> {
        let base = if self.rebase { *self.base.get_or_insert(ps) } else { 0 };
        if ps < base {
            self.clamped += 1;
        }
        u64::try_from(ps.saturating_sub(base)).map(Some).map_err(|_| {
            let advice = if self.rebase { "" } else { "; count from the first record (option rebase)" };
            format!("time {ps} ps passes 2^64 ps (213 days){advice}")
        })
    }
}

/// Creates the parser of a text format; `None` for a binary format.
fn line_parser(format: Format, options: &ReadOptions) -> Option<Box<dyn LineParser>> {
    Some(match format {
        Format::Msr => Box::new(msr::Msr::new(options)),
        Format::Spc => Box::new(spc::Spc::new(options)),
        Format::Blkparse => Box::new(blkparse::Blkparse::new(options)),
        Format::FioV2 => Box::new(fio::Fio::new(options, 2)),
        Format::FioV3 => Box::new(fio::Fio::new(options, 3)),
        Format::Mqsim => Box::new(mqsim::Mqsim::new(options)),
        Format::DiskSim => Box::new(disksim::DiskSim::new(options)),
        Format::Csv => Box::new(csv::Csv::new(options)),
        Format::Twitter => Box::new(twitter::Twitter::new(options)),
        Format::CacheLib => Box::new(cachelib::CacheLib::new(options)),
        Format::Arc => Box::new(arc::Arc::new(options)),
        Format::Lirs => Box::new(lirs::Lirs::new(options)),
        Format::Lackey => Box::new(lackey::Lackey::new(options)),
        Format::SpecLs => Box::new(spec_ls::SpecLs::new(options)),
        Format::Deepram | Format::OracleGeneral | Format::Vscsi => return None,
    })
}
