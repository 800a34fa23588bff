//! In every format that can be written, a written trace reads back unchanged.

use deepram_trace::{
    Compression, FORMATS, Format, Item, MemRef, MemoryAccess, ObjectRef, Op, ReadOptions, Request,
    TraceError, TraceReader, TraceWriter, WriteOptions, convert,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::io::Cursor;

fn write(format: Format, items: &[Item]) -> Result<Vec<u8>, TraceError> {
    let mut writer = TraceWriter::new(Vec::new(), format, WriteOptions::default())?;
    for item in items {
        writer.write(item)?;
    }
    writer.finish()
}

fn read(format: Option<Format>, data: Vec<u8>) -> Result<Vec<Item>, TraceError> {
    let options = ReadOptions { format, ..ReadOptions::default() };
    TraceReader::new(Cursor::new(data), &options)?.collect()
}

/// Draws numbers of every magnitude up to `bits` bits.
fn number(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits, any::<u64>()).prop_map(|(b, x)| if b == 0 { 0 } else { x >> (64 - b) })
}

fn op() -> impl Strategy<Value = Op> {
    prop::sample::select(Op::ALL.to_vec())
}

fn read_write() -> impl Strategy<Value = Op> {
    prop::sample::select(vec![Op::Read, Op::Write])
}

fn any_block() -> impl Strategy<Value = Item> {
    (option::of(number(64)), number(32), number(64), number(64), op()).prop_map(
        |(time_ps, device, offset, len, op)| {
            let len = len.min(u64::MAX - offset);
            Item::Block(Request { time_ps, device: device as u32, offset, len, op })
        },
    )
}

fn any_mem() -> impl Strategy<Value = Item> {
    (number(32), number(64), number(32), prop::sample::select(MemoryAccess::ALL.to_vec())).prop_map(
        |(gap, addr, size, access)| Item::Mem(MemRef { gap: gap as u32, addr, size: size as u32, access }),
    )
}

fn any_object() -> impl Strategy<Value = Item> {
    (option::of(number(64)), number(64), number(64), op())
        .prop_map(|(time_ps, id, size, op)| Item::Object(ObjectRef { time_ps, id, size, op }))
}

/// Draws requests of whole sectors whose times start at zero and are multiples of `unit`.
fn sectors(unit: u64, devices: u32, ops: impl Strategy<Value = Op>) -> impl Strategy<Value = Vec<Item>> {
    vec((0..1u64 << 20, 0..devices, number(50), number(20), ops), 1..100).prop_map(move |rows| {
        let mut time = 0;
        let mut items = Vec::new();
        for (i, (gap, device, lba, count, op)) in rows.into_iter().enumerate() {
            time += if i == 0 { 0 } else { gap * unit };
            let (offset, len) = if op == Op::Flush { (0, 0) } else { (lba * 512, count * 512) };
            items.push(Item::Block(Request { time_ps: Some(time), device, offset, len, op }));
        }
        items
    })
}

proptest! {
    #[test]
    fn compact_keeps_any_records(items in vec(prop_oneof![any_block(), any_mem(), any_object()], 0..300)) {
        prop_assert_eq!(read(None, write(Format::Deepram, &items).unwrap()).unwrap(), items);
    }

    #[test]
    fn block_formats_keep_what_they_can_express(
        ns in sectors(1_000, 1 << 20, read_write()),
        ps in sectors(1, 1 << 20, read_write()),
        ticks in sectors(100_000, 256, read_write()),
        us in sectors(1_000_000, 1, op()),
        any_op in sectors(1, 1 << 20, op()),
    ) {
        for (format, items) in [
            (Format::Mqsim, &ns),
            (Format::DiskSim, &ps),
            (Format::Spc, &ps),
            (Format::Msr, &ticks),
            (Format::FioV3, &us),
            (Format::Vscsi, &us),
            (Format::Csv, &any_op),
        ] {
            prop_assert_eq!(&read(Some(format), write(format, items).unwrap()).unwrap(), items, "{}", format);
        }
        let untimed: Vec<Item> = us.iter().map(|item| match *item {
            Item::Block(r) => Item::Block(Request { time_ps: None, ..r }),
            other => other,
        }).collect();
        prop_assert_eq!(read(None, write(Format::FioV2, &untimed).unwrap()).unwrap(), untimed);
    }

    #[test]
    fn object_formats_keep_what_they_can_express(rows in vec((0..1000u64, any::<u64>(), any::<u32>(), op()), 1..100)) {
        let mut time = 0;
        let items: Vec<Item> = rows.iter().enumerate().map(|(i, (gap, id, size, op))| {
            time += if i == 0 { 0 } else { gap * 1_000_000_000_000 };
            Item::Object(ObjectRef { time_ps: Some(time), id: *id, size: (*size).into(), op: *op })
        }).collect();
        prop_assert_eq!(&read(None, write(Format::Csv, &items).unwrap()).unwrap(), &items);
        let reads: Vec<Item> = items.iter().map(|item| match *item {
            Item::Object(o) => Item::Object(ObjectRef { op: Op::Read, ..o }),
            other => other,
        }).collect();
        prop_assert_eq!(read(Some(Format::OracleGeneral), write(Format::OracleGeneral, &reads).unwrap()).unwrap(), reads);
    }

    #[test]
    fn memory_formats_keep_what_they_can_express(rows in vec((any::<u32>(), any::<u64>(), any::<u32>(), 0..3usize), 1..100)) {
        let lackey: Vec<Item> = rows.iter().map(|(_, addr, size, a)| {
            let access = MemoryAccess::ALL[*a];
            Item::Mem(MemRef { gap: u32::from(access == MemoryAccess::Fetch), addr: *addr, size: *size, access })
        }).collect();
        prop_assert_eq!(&read(Some(Format::Lackey), write(Format::Lackey, &lackey).unwrap()).unwrap(), &lackey);
        let spec: Vec<Item> = rows.iter().map(|(gap, addr, _, a)| {
            Item::Mem(MemRef { gap: *gap, addr: *addr, size: 8, access: MemoryAccess::ALL[a % 2] })
        }).collect();
        prop_assert_eq!(read(None, write(Format::SpecLs, &spec).unwrap()).unwrap(), spec);
    }

    #[test]
    fn any_flipped_bit_of_a_compact_file_is_found(
        items in vec(prop_oneof![any_block(), any_mem(), any_object()], 1..50), at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let mut data = write(Format::Deepram, &items).unwrap();
        let at = at.index(data.len());
        data[at] ^= 1 << bit;
        prop_assert!(read(Some(Format::Deepram), data).is_err());
    }

    #[test]
    fn a_compact_file_cut_anywhere_or_prolonged_is_an_error(items in vec(any_block(), 0..50), at in any::<prop::sample::Index>()) {
        let data = write(Format::Deepram, &items).unwrap();
        let cut = at.index(data.len());
        prop_assert!(read(Some(Format::Deepram), data[..cut].to_vec()).is_err());
        let mut longer = data;
        longer.push(0);
        prop_assert!(read(Some(Format::Deepram), longer).is_err());
    }
}

#[test]
fn many_blocks_of_records_come_back() {
    let items: Vec<Item> = (0..200_000u64)
        .map(|i| {
            Item::Block(Request {
                time_ps: Some(i * 7),
                device: 0,
                offset: i * 4096,
                len: 4096,
                op: Op::Write,
            })
        })
        .collect();
    let data = write(Format::Deepram, &items).unwrap();
    // A sequential write at a steady rate takes three bytes: tag, time, offset.
    assert!(data.len() < 200_000 * 3 + 4 * 13 + 100, "{}", data.len());
    assert_eq!(read(None, data.clone()).unwrap(), items);
    let zst = zstd::encode_all(&data[..], 1).unwrap();
    let reader = TraceReader::new(Cursor::new(zst), &ReadOptions::default()).unwrap();
    assert_eq!((reader.format(), reader.compression()), (Format::Deepram, Compression::Zstd));
    assert!(reader.map(Result::unwrap).eq(items));
}

#[test]
fn a_block_of_hostile_size_is_refused_before_it_is_read() {
    let mut data = write(Format::Deepram, &[]).unwrap();
    data.truncate(16);
    data.push(b'B');
    data.extend(1u32.to_le_bytes());
    data.extend(u32::MAX.to_le_bytes());
    data.extend([0; 4]);
    let message = read(Some(Format::Deepram), data).unwrap_err().to_string();
    assert!(message.contains("are allowed"), "{message}");
}

#[test]
fn a_loss_is_refused_unless_it_is_asked_for() {
    let item =
        Item::Block(Request { time_ps: Some(1_234_567), device: 0, offset: 100, len: 1000, op: Op::Write });
    let message = write(Format::Mqsim, &[item]).unwrap_err().to_string();
    assert!(
        message.starts_with("record 1 can't be written as mqsim") && message.contains("lossy"),
        "{message}"
    );
    let lossy = WriteOptions { lossy: true, ..WriteOptions::default() };
    let mut writer = TraceWriter::new(Vec::new(), Format::Mqsim, lossy).unwrap();
    writer.write(&item).unwrap();
    assert_eq!(writer.finish().unwrap(), b"1234 0 0 3 0\n");
    let trim = Item::Block(Request { time_ps: Some(0), device: 0, offset: 0, len: 512, op: Op::Trim });
    assert!(write(Format::Mqsim, &[trim]).unwrap_err().to_string().contains("trim"));
    assert!(write(Format::Arc, &[]).unwrap_err().to_string().contains("only read"));
}

#[test]
fn every_format_said_to_be_writable_is_and_no_other() {
    for info in FORMATS {
        assert_eq!(write(info.format, &[]).is_ok(), info.writable, "{}", info.name);
    }
}

#[test]
fn a_converted_trace_has_the_same_records_up_to_the_limit() {
    let text = b"0 0 1 8 1\n5 0 9 8 0\n7 0 9 8 0\n";
    let reader = TraceReader::new(&text[..], &ReadOptions::default()).unwrap();
    let mut writer = TraceWriter::new(Vec::new(), Format::Deepram, WriteOptions::default()).unwrap();
    assert_eq!(convert(reader, &mut writer, Some(2), |_| ()).unwrap().records, 2);
    let items = read(None, writer.finish().unwrap()).unwrap();
    assert_eq!(items, read(Some(Format::Mqsim), text.to_vec()).unwrap()[..2]);
}
