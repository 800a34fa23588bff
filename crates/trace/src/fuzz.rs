//! Entry points for fuzzing: one function a parser. Each takes any bytes, must return, must not
//! panic, and must not use more than bounded memory; what the parser says of them is ignored.

use crate::format::{Format, ReadOptions, TraceReader};
use crate::workload::Workload;
use std::io::Cursor;

/// How many records a run takes at most: a bomb that is valid would go on for hours.
const LIMIT: usize = 100_000;

fn parse(format: Option<Format>, data: &[u8]) {
    let options = ReadOptions { format, ..ReadOptions::default() };
    if let Ok(reader) = TraceReader::new(Cursor::new(data.to_vec()), &options) {
        for item in reader.take(LIMIT) {
            if let Err(error) = item {
                let _ = error.to_string();
            }
        }
    }
}

/// The bytes as a trace whose format is to be recognised (compressed ones too).
pub fn fuzz_any(data: &[u8]) {
    parse(None, data);
}

/// The bytes as a workload's SPEC; what parses yields a thousand records.
pub fn fuzz_workload(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // Anything that allocates by its parameters, or reads files, is checked without being built.
    match text.parse::<crate::workload::Spec>() {
        Ok(spec) if spec.is_cheap() => {
            if let Ok(workload) = Workload::from_spec(&spec, 1) {
                let _ = workload.take(1000).count();
            }
        }
        Ok(_) => {}
        Err(error) => {
            let _ = error.to_string();
        }
    }
}

macro_rules! entry_points {
    ($($name:ident $format:ident),* $(,)?) => {
        $(
            #[doc = concat!("The bytes as a trace of format [`Format::", stringify!($format), "`].")]
            pub fn $name(data: &[u8]) {
                parse(Some(Format::$format), data);
            }
        )*
        /// Every entry point with its name.
        pub const ENTRY_POINTS: &[(&str, fn(&[u8]))] = &[
            ("any", fuzz_any),
            ("workload", fuzz_workload),
            $((stringify!($format), $name)),*
        ];
    };
}

entry_points! {
    fuzz_compact Compact,
    fuzz_msr Msr,
    fuzz_spc Spc,
    fuzz_blkparse Blkparse,
    fuzz_fio_v2 FioV2,
    fuzz_fio_v3 FioV3,
    fuzz_mqsim Mqsim,
    fuzz_disksim DiskSim,
    fuzz_oracle OracleGeneral,
    fuzz_csv Csv,
    fuzz_twitter Twitter,
    fuzz_cachelib CacheLib,
    fuzz_vscsi Vscsi,
    fuzz_arc Arc,
    fuzz_lirs Lirs,
    fuzz_lackey Lackey,
    fuzz_spec_ls SpecLs,
}
