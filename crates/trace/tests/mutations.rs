//! Random damage to a small sample of every format never panics, hangs or runs out of memory.

use deepram_trace::fuzz::ENTRY_POINTS;
use deepram_trace::workload::{Rng, WORKLOADS};
use deepram_trace::{Format, Item, ObjectRef, Op, Request, TraceWriter, WriteOptions};

fn written(format: Format, objects: bool) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), format, WriteOptions::default()).unwrap();
    for i in 0..6u64 {
        let time_ps = Some(i * 1_000_000_000_000);
        let item = if objects {
            Item::Object(ObjectRef { time_ps, id: i, size: 100 * i, op: Op::Read })
        } else {
            Item::Block(Request {
                time_ps,
                device: 0,
                offset: i << 12,
                len: 4096,
                op: if i & 1 == 0 { Op::Read } else { Op::Write },
            })
        };
        writer.write(&item).unwrap();
    }
    writer.finish().unwrap()
}

/// A small valid sample for each entry point.
fn sample(name: &str) -> Vec<u8> {
    match name {
        "Compact" | "any" => written(Format::Compact, false),
        "Vscsi" => written(Format::Vscsi, false),
        "OracleGeneral" => written(Format::OracleGeneral, true),
        "Msr" => written(Format::Msr, false),
        "Spc" => written(Format::Spc, false),
        "FioV2" => b"fio version 2 iolog\n/a add\n/a open\n/a read 0 512\n/a wait 5 0\n/a sync 0 0\n".to_vec(),
        "FioV3" => written(Format::FioV3, false),
        "Mqsim" => written(Format::Mqsim, false),
        "DiskSim" => written(Format::DiskSim, false),
        "Csv" => written(Format::Csv, false),
        "Blkparse" => b"  8,0 3 1 0.000000000 697 Q W 223490 + 8 [k]\n  8,0 3 2 0.000001 697 Q FN [k]\nCPU0 (8,0):\n".to_vec(),
        "Twitter" => b"0,key,3,304,1,get,0\n5,k,1,2,1,set,60\n".to_vec(),
        "CacheLib" => b"op_time,block_id,block_id_size,io_size,io_offset,u,n,op_name,op_count\n1,ab,40,4096,0,1,2,getChunk,1\n".to_vec(),
        "Arc" => b"230027 8 0 0\n1842745 64 0 1\n".to_vec(),
        "Lirs" => b"*\n1\n2\n3\n".to_vec(),
        "Lackey" => b"==1==\nI  04000f80,3\n S 1ffe,8\n M 0421,4\n".to_vec(),
        "SpecLs" => b"s 0x1fffff50 1\nl 0x1fffff88 6\n".to_vec(),
        "workload" => b"zipf:theta=0.99,span=1GiB,read=0.7,count=1M,size=4KiB,arrival=poisson,rate=20k".to_vec(),
        other => panic!("no sample for {other}"),
    }
}

fn mutate(data: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(data.len() as u64 + 1) as usize;
        match rng.below(7) {
            0 if at < data.len() => data[at] ^= 1 << rng.below(8),
            1 if at < data.len() => data[at] = rng.bits() as u8,
            2 => data.truncate(at),
            3 => data.insert(at, [0, b'9', b'-', b'.', b',', b' ', b'\n', 0xff][rng.below(8) as usize]),
            4 => {
                let digits = b"18446744073709551615";
                data.splice(at..at, digits[..1 + rng.below(20) as usize].iter().copied());
            }
            5 if at < data.len() => drop(data.remove(at)),
            _ => {
                let copy = data.clone();
                data.extend_from_slice(&copy[at..]);
                data.truncate(1 << 16);
            }
        }
    }
}

#[test]
fn twenty_thousand_mutations_of_each_sample_are_survived() {
    let seed: u64 = std::env::var("DEEPRAM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_000);
    println!("seed {seed}: rerun with DEEPRAM_SEED={seed}");
    for (name, parse) in ENTRY_POINTS {
        let clean = sample(name);
        parse(&clean);
        let mut rng = Rng::new(seed, name);
        for _ in 0..20_000 {
            let mut data = clean.clone();
            mutate(&mut data, &mut rng);
            parse(&data);
        }
    }
}

#[test]
fn mutated_workload_texts_of_every_name_are_survived() {
    let mut rng = Rng::new(1, "specs");
    for w in WORKLOADS {
        let spec: deepram_trace::workload::Spec = w.name.parse().unwrap();
        let clean = spec.to_string().into_bytes();
        for _ in 0..500 {
            let mut data = clean.clone();
            mutate(&mut data, &mut rng);
            deepram_trace::fuzz::fuzz_workload(&data);
        }
    }
}

#[test]
fn compressed_samples_damaged_at_random_are_survived() {
    let mut rng = Rng::new(2, "zstd");
    let clean = zstd::encode_all(&written(Format::Mqsim, false)[..], 1).unwrap();
    for _ in 0..5_000 {
        let mut data = clean.clone();
        mutate(&mut data, &mut rng);
        deepram_trace::fuzz::fuzz_any(&data);
    }
}
