//! Small samples of every format, with the records that they hold and the errors that they give.

use deepram_trace::{
    Format, Item, MemRef, MemoryAccess, ObjectRef, Op, ReadOptions, Request, TraceError, TraceReader,
};
use std::io::Cursor;

fn options(format: Option<Format>) -> ReadOptions {
    ReadOptions { format, ..ReadOptions::default() }
}

fn read_with(data: &[u8], options: &ReadOptions) -> Result<(Format, Vec<Item>), TraceError> {
    let reader = TraceReader::new(Cursor::new(data.to_vec()), options)?;
    let format = reader.format();
    Ok((format, reader.collect::<Result<_, _>>()?))
}

/// Reads a trace without naming its format. The reader must recognise `format`.
fn read(format: Format, data: &[u8]) -> Vec<Item> {
    let (found, items) = read_with(data, &options(None)).unwrap();
    assert_eq!(found, format);
    items
}

fn error(format: Format, data: &[u8]) -> String {
    read_with(data, &options(Some(format))).unwrap_err().to_string()
}

fn block(time_ps: Option<u64>, device: u32, offset: u64, len: u64, op: Op) -> Item {
    Item::Block(Request { time_ps, device, offset, len, op })
}

const MS: u64 = 1_000_000_000;

#[test]
fn msr_counts_time_from_the_first_record_and_keeps_disk_numbers() {
    let text = b"128166372003061629,hm,1,Read,383496192,32768,413\n128166372003061729,hm,0,Write,0,512,9\n";
    assert_eq!(
        read(Format::Msr, text),
        [block(Some(0), 1, 383_496_192, 32_768, Op::Read), block(Some(10_000_000), 0, 0, 512, Op::Write)]
    );
}

#[test]
fn a_record_earlier_than_the_first_is_set_to_zero_and_counted() {
    let text = b"200,hm,1,Read,0,1,0\n100,hm,1,Read,0,1,0\n";
    let mut reader = TraceReader::new(&text[..], &options(None)).unwrap();
    assert!(reader.by_ref().all(|item| item.unwrap().time_ps() == Some(0)));
    assert_eq!((reader.stats().records, reader.stats().clamped), (2, 1));
}

#[test]
fn spc_addresses_are_blocks_of_512_bytes_and_times_are_seconds() {
    let text = b"0,20941264,8192,W,0.551706\n3,1,512,r,0.554041,extra\n";
    assert_eq!(
        read(Format::Spc, text),
        [
            block(Some(551_706_000_000), 0, 20_941_264 * 512, 8192, Op::Write),
            block(Some(554_041_000_000), 3, 512, 512, Op::Read)
        ]
    );
}

#[test]
fn blkparse_takes_queue_events_and_stops_at_the_summary() {
    let text = b"  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
                 \x20 8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]\n\
                 \x20 8,1    3        3     0.000002000   697  Q  FN [kjournald]\n\
                 \x20 8,0    3        4     0.000003000   697  Q  RA 8 + 16 [a b]\n\
                 \x20 8,0    3        5     0.000004000   697  Q  DS 0 + 2048 [fstrim]\n\
                 CPU0 (8,0):\n Reads Queued:           1,        4KiB\n";
    let device = 8 << 20;
    assert_eq!(
        read(Format::Blkparse, text),
        [
            block(Some(1_829_000), device, 223_490 * 512, 4096, Op::Write),
            block(Some(2_000_000), device | 1, 0, 0, Op::Flush),
            block(Some(3_000_000), device, 4096, 8192, Op::Read),
            block(Some(4_000_000), device, 0, 1 << 20, Op::Trim),
        ]
    );
    let generated = ReadOptions { blkparse_action: b'G', ..options(Some(Format::Blkparse)) };
    assert_eq!(read_with(text, &generated).unwrap().1.len(), 1);
}

#[test]
fn fio_version_2_adds_up_waits() {
    let text = b"fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 4096 512\n/dev/b wait 250 0\n\
                 /dev/b write 0 8192\n/dev/a wait 50 0\n/dev/a datasync 0 0\n/dev/a trim 0 4096\n/dev/a close\n";
    assert_eq!(
        read(Format::FioV2, text),
        [
            block(None, 0, 4096, 512, Op::Read),
            block(Some(250_000_000), 1, 0, 8192, Op::Write),
            block(Some(300_000_000), 0, 0, 0, Op::Flush),
            block(Some(300_000_000), 0, 0, 4096, Op::Trim),
        ]
    );
}

#[test]
fn fio_version_3_has_a_time_on_every_line() {
    let text = b"fio version 3 iolog\n0 /dev/a add\n1 /dev/a open\n7 /dev/a write 512 1024\n9 /dev/a sync 0 0\n10 /dev/a close\n";
    assert_eq!(
        read(Format::FioV3, text),
        [block(Some(7_000_000), 0, 512, 1024, Op::Write), block(Some(9_000_000), 0, 0, 0, Op::Flush)]
    );
    assert!(error(Format::FioV3, b"fio version 3 iolog\n5 /dev/a wait 3 0\n").contains("line 2"));
}

#[test]
fn whole_number_times_are_mqsims_nanoseconds_and_decimals_are_disksims_milliseconds() {
    assert_eq!(
        read(Format::Mqsim, b"26214000 1 240840 6 1\n"),
        [block(Some(26_214_000_000), 1, 240_840 * 512, 3072, Op::Read)]
    );
    assert_eq!(
        read(Format::DiskSim, b"5265.313 0 6357144 8 0\n"),
        [block(Some(5265 * MS + 313_000_000), 0, 6_357_144 * 512, 4096, Op::Write)]
    );
    let whole = ReadOptions { rebase: true, ..options(Some(Format::DiskSim)) };
    let (_, items) = read_with(b"5 0 0 1 1\n6.5 0 0 1 1\n", &whole).unwrap();
    assert_eq!(items[1].time_ps(), Some(MS + MS / 2));
}

#[test]
fn arc_and_lirs_have_neither_time_nor_operation() {
    assert_eq!(read(Format::Arc, b"230027 8 0 0\n"), [block(None, 0, 230_027 * 512, 4096, Op::Read)]);
    assert_eq!(read(Format::Lirs, b"*\n7\n\n"), [block(None, 0, 7 * 4096, 4096, Op::Read)]);
    let pages = ReadOptions { unit_bytes: Some(16384), ..options(None) };
    assert_eq!(read_with(b"7\n", &pages).unwrap().1, [block(None, 0, 7 * 16384, 16384, Op::Read)]);
}

fn mem(gap: u32, addr: u64, size: u32, access: MemoryAccess) -> Item {
    Item::Mem(MemRef { gap, addr, size, access })
}

#[test]
fn lackey_counts_instructions_and_a_modify_is_a_load_and_a_store() {
    let text =
        b"==123== Lackey\nI  04000f80,3\n S 1ffeffe7e8,8\nI  04000f83,3\nI  04000f86,2\n M 0421c7cc,4\n";
    assert_eq!(
        read(Format::Lackey, text),
        [
            mem(1, 0x0400_0f80, 3, MemoryAccess::Fetch),
            mem(0, 0x1f_feff_e7e8, 8, MemoryAccess::Store),
            mem(1, 0x0400_0f83, 3, MemoryAccess::Fetch),
            mem(1, 0x0400_0f86, 2, MemoryAccess::Fetch),
            mem(0, 0x0421_c7cc, 4, MemoryAccess::Load),
            mem(0, 0x0421_c7cc, 4, MemoryAccess::Store),
        ]
    );
    let data_only = ReadOptions { fetches: false, ..options(None) };
    assert_eq!(
        read_with(text, &data_only).unwrap().1,
        [
            mem(1, 0x1f_feff_e7e8, 8, MemoryAccess::Store),
            mem(2, 0x0421_c7cc, 4, MemoryAccess::Load),
            mem(0, 0x0421_c7cc, 4, MemoryAccess::Store)
        ]
    );
}

#[test]
fn spec_loads_and_stores_take_their_size_from_the_options() {
    assert_eq!(
        read(Format::SpecLs, b"s 0x1fffff50 1\nl 0x1fffff88 6\n"),
        [mem(1, 0x1fff_ff50, 8, MemoryAccess::Store), mem(6, 0x1fff_ff88, 8, MemoryAccess::Load)]
    );
}

fn object(time_ps: Option<u64>, id: u64, size: u64, op: Op) -> Item {
    Item::Object(ObjectRef { time_ps, id, size, op })
}

#[test]
fn oracle_general_records_are_24_bytes_and_recognised_without_a_name() {
    let mut data = Vec::new();
    for (time, id, size, next) in [(100u32, 7u64, 512u32, 2i64), (100, u64::MAX, 4096, -1), (103, 7, 512, -1)]
    {
        data.extend(time.to_le_bytes());
        data.extend(id.to_le_bytes());
        data.extend(size.to_le_bytes());
        data.extend(next.to_le_bytes());
    }
    assert_eq!(
        read(Format::OracleGeneral, &data),
        [
            object(Some(0), 7, 512, Op::Read),
            object(Some(0), u64::MAX, 4096, Op::Read),
            object(Some(3000 * MS), 7, 512, Op::Read)
        ]
    );
    data.truncate(60);
    let message = error(Format::OracleGeneral, &data);
    assert!(message.contains("record 3") && message.contains("cut off after 12"), "{message}");
}

#[test]
fn csv_columns_are_found_by_name() {
    assert_eq!(
        read(
            Format::Csv,
            b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,12,96,0\n1,5633899,28,1024,8\n"
        ),
        [
            block(Some(5_633_898_000 * MS), 0, 42_932_745 * 512, 512, Op::Write),
            block(Some(5_633_899_000 * MS), 0, 4096, 1024, Op::Read)
        ]
    );
    assert_eq!(
        read(Format::Csv, b"# time, object, size, next_access_vtime\n0, 13053225291711363978, 737, 13\n"),
        [object(Some(0), 13_053_225_291_711_363_978, 737, Op::Read)]
    );
    assert!(error(Format::Csv, b"time,lbn\n1,2\n").contains("must name columns"));
    assert!(error(Format::Csv, b"size,lbn,offset\n").contains("two columns"));
    assert!(error(Format::Csv, b"size,lbn\n1\n").contains("1 fields, expected 2"));
}

#[test]
fn twitter_keys_become_ids_and_operations_reads_or_writes() {
    let items = read(
        Format::Twitter,
        b"0,nz:u:eeW511W3dcH3de3d15ec,22,304,1,get,0\n5,k,1,2,1,set,60\n6,k,1,2,1,delete,0\n",
    );
    let [Item::Object(get), Item::Object(set), Item::Object(delete)] = items[..] else { panic!() };
    assert_eq!((get.size, get.op, set.time_ps, set.op), (326, Op::Read, Some(5000 * MS), Op::Write));
    assert_eq!((set.id, delete.op), (delete.id, Op::Trim));
}

#[test]
fn cachelib_blocks_keep_their_inner_offsets_together() {
    let header = "op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,op_name,op_count,host_name,rs_shard_id\n";
    let text = format!(
        "{header}10,ab-cd,40,4096,8192,1,2,getChunkData.Permanent,1,3,4\n12,ab-cd,40,100,0,1,2,putChunk.Permanent,1,3,4\n"
    );
    let items = read(Format::CacheLib, text.as_bytes());
    let [Item::Block(get), Item::Block(put)] = items[..] else { panic!() };
    assert_eq!(get.offset - put.offset, 8192);
    assert_eq!((get.op, put.op, put.time_ps), (Op::Read, Op::Write, Some(2000 * MS)));
}

#[test]
fn vscsi_versions_are_told_apart() {
    let mut v2 = Vec::new();
    for (code, block) in [(0x28u16, 8u64), (0x12, 0), (0x2a, 16)] {
        v2.extend(code.to_le_bytes());
        v2.extend(0x0200u16.to_le_bytes());
        for field in [1u32, 4096, 1] {
            v2.extend(field.to_le_bytes());
        }
        v2.extend(block.to_le_bytes());
        v2.extend(1_000_000u64.to_le_bytes());
        v2.extend(9u64.to_le_bytes());
    }
    assert_eq!(
        read(Format::Vscsi, &v2),
        [block(Some(0), 0, 4096, 4096, Op::Read), block(Some(0), 0, 8192, 4096, Op::Write)]
    );
}

#[test]
fn errors_name_the_line_quote_it_shortened_and_say_what_is_right() {
    let message = error(Format::Mqsim, b"0 0 1 8 1\n0 0 1 8 7\n");
    assert_eq!(message, "mqsim trace, line 2: op is \"7\", expected 1 (read) or 0 (write) in \"0 0 1 8 7\"");
    let long = format!("0 0 {} 8 1\n", "9".repeat(500));
    let message = error(Format::Mqsim, long.as_bytes());
    assert!(message.contains("below 2^64") && message.len() < 300, "{message}");
    assert!(error(Format::Mqsim, b"0 0 18446744073709551615 8 1").contains("passes 2^64"));
    assert!(error(Format::Mqsim, b"99999999999999999999 0 0 8 1").contains("2^64"));
    assert!(error(Format::Mqsim, b"0 4294967296 0 8 1").contains("2^32"));
    assert!(error(Format::Mqsim, b"18446744073709551615 0 0 8 1").contains("213 days"));
    assert!(error(Format::Mqsim, b"0 0 \0 8 1").contains("\\x00"));
}

#[test]
fn hostile_lines_and_streams_end_in_an_error_not_in_memory() {
    assert!(error(Format::Lirs, &vec![b'1'; 1 << 20]).contains("longer than"));
    let bomb = zstd::encode_all(std::io::Read::take(std::io::repeat(b'7'), 1 << 28), 1).unwrap();
    assert!(bomb.len() < 1 << 20);
    assert!(error(Format::Lirs, &bomb).contains("longer than"));
    let blank = zstd::encode_all(std::io::Read::take(std::io::repeat(b'\n'), 1 << 26), 1).unwrap();
    assert!(error(Format::Lirs, &blank).contains("in a row hold no request"));
}

#[test]
fn damaged_compression_is_an_error_with_its_place() {
    let text = b"26214000 1 240840 6 1\n".repeat(100_000);
    let mut zst = zstd::encode_all(&text[..], 1).unwrap();
    zst.truncate(zst.len() / 2);
    let message = error(Format::Mqsim, &zst);
    assert!(message.contains("can't read"), "{message}");
}

#[test]
fn unknown_content_and_names_are_refused_with_advice() {
    let message = read_with(b"hello world\n", &options(None)).unwrap_err().to_string();
    assert!(message.contains("name it, one of") && message.contains("hello world"), "{message}");
    assert!(read_with(b"", &options(None)).unwrap_err().to_string().contains("empty"));
    assert!(read_with(&[0; 7], &options(None)).unwrap_err().to_string().contains("binary"));
    let message = "mqsm".parse::<Format>().unwrap_err().to_string();
    assert!(message.contains("did you mean mqsim?"), "{message}");
    assert!(matches!(TraceReader::open("/nonexistent/x", &options(None)), Err(TraceError::Io { .. })));
}
