//! Fuzz functions for every parser of `deepram-trace`. For any bytes a parser returns in bounded memory, without a
//! panic. A trace that a reader accepts must survive a round trip through the compact format, and a workload's
//! printed form must mean the same as its text.
//!
//! The fuzz targets and `crates/trace/tests/mutations.rs` share this file.

use std::io::{Cursor, Write};

use deepram_trace::workload::Spec;
use deepram_trace::{
    Format, Item, ObjectRef, Op, ReadOptions, Request, TraceReader, TraceWriter, Workload, WriteOptions,
};

/// Largest number of records in a run: a valid decompression bomb would run for hours.
const LIMIT: usize = 100_000;
/// Largest number of records in a round trip.
const AGAIN: usize = 1000;

/// A function that a fuzz target calls with arbitrary bytes.
pub(crate) type Target = fn(&[u8]);

/// Every target of this file: its name and its function.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("trace_any", |data| read(None, data)),
    ("trace_gzip", |data| read(Some(Format::Mqsim), &[&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], data].concat())),
    ("trace_zstd", |data| read(Some(Format::Mqsim), &[&[0x28, 0xb5, 0x2f, 0xfd], data].concat())),
    ("trace_compact", |data| read(Some(Format::Deepram), data)),
    ("trace_compact_sound", |data| read(Some(Format::Deepram), &sound(data))),
    ("trace_msr", |data| read(Some(Format::Msr), data)),
    ("trace_spc", |data| read(Some(Format::Spc), data)),
    ("trace_blkparse", |data| read(Some(Format::Blkparse), data)),
    ("trace_fio_v2", |data| read(Some(Format::FioV2), data)),
    ("trace_fio_v3", |data| read(Some(Format::FioV3), data)),
    ("trace_mqsim", |data| read(Some(Format::Mqsim), data)),
    ("trace_disksim", |data| read(Some(Format::DiskSim), data)),
    ("trace_oracle", |data| read(Some(Format::OracleGeneral), data)),
    ("trace_csv", |data| read(Some(Format::Csv), data)),
    ("trace_twitter", |data| read(Some(Format::Twitter), data)),
    ("trace_cachelib", |data| read(Some(Format::CacheLib), data)),
    ("trace_vscsi", |data| read(Some(Format::Vscsi), data)),
    ("trace_arc", |data| read(Some(Format::Arc), data)),
    ("trace_lirs", |data| read(Some(Format::Lirs), data)),
    ("trace_lackey", |data| read(Some(Format::Lackey), data)),
    ("trace_spec_ls", |data| read(Some(Format::SpecLs), data)),
    ("workload", workload),
];

fn read(format: Option<Format>, data: &[u8]) {
    let options = ReadOptions { format, ..ReadOptions::default() };
    let reader = match TraceReader::new(Cursor::new(data.to_vec()), &options) {
        Ok(reader) => reader,
        Err(error) => return message(&error),
    };
    let mut items = Vec::new();
    for item in reader.take(LIMIT) {
        match item {
            Ok(item) if items.len() < AGAIN => items.push(item),
            Ok(_) => {}
            Err(error) => message(&error),
        }
    }
    let written = write(Format::Deepram, &items);
    let again = TraceReader::new(Cursor::new(written), &ReadOptions::default()).expect("our own format");
    let again: Vec<Item> = again.collect::<Result<_, _>>().expect("our own format");
    assert_eq!(again, items);
}

/// Checks that an error message is one line that a terminal can show.
fn message(error: &dyn std::error::Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 2000 && !text.contains(char::is_control), "{text:?}");
}

fn write(format: Format, items: &[Item]) -> Vec<u8> {
    let mut writer =
        TraceWriter::new(Vec::new(), format, WriteOptions::default()).expect("it can be written");
    for item in items {
        writer.write(item).expect("writing what was read");
    }
    writer.finish().expect("writing to memory")
}

/// Makes the bytes one block of the compact format with matching checksums: the header of a sound file, a record
/// count from the first byte, and the remaining bytes unchanged.
fn sound(data: &[u8]) -> Vec<u8> {
    let (records, payload) = data.split_first().map_or((1, data), |(n, rest)| (u32::from(*n), rest));
    let mut file = write(Format::Deepram, &[])[..16].to_vec();
    let mut head = vec![b'B'];
    head.extend(records.to_le_bytes());
    head.extend((payload.len() as u32).to_le_bytes());
    let sum = |parts: &[&[u8]]| {
        let mut digest = flate2::Crc::new();
        parts.iter().for_each(|part| digest.update(part));
        digest.sum()
    };
    let check = sum(&[&head, payload]);
    file.extend(&head);
    file.extend(check.to_le_bytes());
    file.extend(payload);
    file
}

/// Parses the bytes as a workload's SPEC; an accepted workload must yield a thousand records.
fn workload(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let spec = match text.parse::<Spec>() {
        Ok(spec) => spec,
        Err(error) => return message(&error),
    };
    let again: Spec = spec.to_string().parse().expect("what is printed can be read");
    assert_eq!(again.to_string(), spec.to_string());
    // A workload that allocates by its parameters, or reads files, is checked without being built.
    if spec.is_cheap() {
        match Workload::from_spec(&spec, 1) {
            Ok(workload) => drop(workload.take(1000).count()),
            Err(error) => message(&error),
        }
    }
}

fn sample_of(format: Format, objects: bool) -> Vec<u8> {
    let item = |i: u64| {
        let time_ps = Some(i * 1_000_000_000_000);
        if objects {
            return Item::Object(ObjectRef { time_ps, id: i, size: 100 * i, op: Op::Read });
        }
        let op = if i & 1 == 0 { Op::Read } else { Op::Write };
        Item::Block(Request { time_ps, device: 0, offset: i << 12, len: 4096, op })
    };
    write(format, &(0..6).map(item).collect::<Vec<_>>())
}

/// Returns a small valid input for each target: the start of mutations, and the seed of the fuzz corpus.
pub(crate) fn sample(target: &str) -> Vec<u8> {
    let text: &[u8] = match target {
        "trace_compact" | "trace_any" => return sample_of(Format::Deepram, false),
        "trace_compact_sound" => {
            let mut bytes = sample_of(Format::Deepram, false)[16 + 13..].to_vec();
            bytes.truncate(bytes.len() - 13);
            return [&[6][..], &bytes].concat();
        }
        "trace_gzip" => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&sample_of(Format::Mqsim, false)).expect("writing to memory");
            return gzip.finish().expect("writing to memory").split_off(10);
        }
        "trace_zstd" => {
            let plain = sample_of(Format::Mqsim, false);
            return zstd::encode_all(&plain[..], 1).expect("writing to memory").split_off(4);
        }
        "trace_vscsi" => return sample_of(Format::Vscsi, false),
        "trace_oracle" => return sample_of(Format::OracleGeneral, true),
        "trace_msr" => return sample_of(Format::Msr, false),
        "trace_spc" => return sample_of(Format::Spc, false),
        "trace_fio_v3" => return sample_of(Format::FioV3, false),
        "trace_mqsim" => return sample_of(Format::Mqsim, false),
        "trace_disksim" => return sample_of(Format::DiskSim, false),
        "trace_csv" => return sample_of(Format::Csv, false),
        "trace_fio_v2" => {
            b"fio version 2 iolog\n/a add\n/a open\n/a read 0 512\n/a wait 5 0\n/a sync 0 0\n"
        }
        "trace_blkparse" => {
            b"  8,0 3 1 0.000000000 697 Q W 223490 + 8 [k]\n  8,0 3 2 0.000001 697 Q FN [k]\nCPU0 (8,0):\n"
        }
        "trace_twitter" => b"0,key,3,304,1,get,0\n5,k,1,2,1,set,60\n",
        "trace_cachelib" => {
            b"op_time,block_id,block_id_size,io_size,io_offset,u,n,op_name,op_count\n1,ab,40,4096,0,1,2,getChunk,1\n"
        }
        "trace_arc" => b"230027 8 0 0\n1842745 64 0 1\n",
        "trace_lirs" => b"*\n1\n2\n3\n",
        "trace_lackey" => b"==1==\nI  04000f80,3\n S 1ffe,8\n M 0421,4\n",
        "trace_spec_ls" => b"s 0x1fffff50 1\nl 0x1fffff88 6\n",
        "workload" => b"zipf:theta=0.99,span=1GiB,read=0.7,count=1M,size=4KiB,arrival=poisson,rate=20k",
        other => panic!("no sample for {other}"),
    };
    text.to_vec()
}
