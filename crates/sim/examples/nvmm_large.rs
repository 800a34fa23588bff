//! A million requests to a flash main memory of a tebibyte: speed and memory.

use std::time::Instant;

use deepram_media::{Nvmm, Registry};
use deepram_sim::host::{HostOptions, drive};
use deepram_sim::nvmm::{NvmmMemory, NvmmOptions, Prefetch};
use deepram_trace::{Op, Request};

const COUNT: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nvmm: Nvmm = Registry::builtin()?.get("nvmm-slc")?;
    let bytes = nvmm.host_bytes().0;
    let random = |n: u64| ((n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (n >> 7)) % bytes) & !63;
    let next = NvmmOptions { prefetch: Prefetch::Next(16), ..NvmmOptions::default() };
    for (name, options, updates) in [
        ("updates", NvmmOptions::default(), true),
        ("updates, next 16", next.clone(), true),
        ("scan, next 16", next, false),
    ] {
        let begun = Instant::now();
        let mut memory = NvmmMemory::new(&nvmm, &options, 1)?;
        let made = begun.elapsed();
        let requests = (0..COUNT).map(|n| {
            let (op, offset) = match (updates, n.is_multiple_of(2)) {
                (true, false) => (Op::Write, random(n / 2)),
                (true, true) => (Op::Read, random(n / 2)),
                (false, _) => (Op::Read, n * 64),
            };
            Ok(Request { time_ps: None, device: 0, offset, len: 64, op })
        });
        let host = HostOptions { threads: 16, ..HostOptions::default() };
        let measured = drive(&mut memory, requests, &host)?;
        let took = begun.elapsed() - made;
        println!(
            "{name}: made in {made:?}; {:.0} requests/s, mean {:.0} ns; tables {} MiB",
            COUNT as f64 / took.as_secs_f64(),
            measured.response.mean_ns,
            memory.memory_bytes() >> 20
        );
    }
    Ok(())
}
