//! Measures the speed of the workload generators on one thread, in million records per second, and
//! prints a digest of the records. `cargo run --release -p deepram-trace --example generator_speed
//! [records [spec...]]`

use deepram_trace::workload::WORKLOADS;
use deepram_trace::{Item, Workload};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let records: u64 = std::env::args().nth(1).map_or(Ok(20_000_000), |n| n.parse())?;
    let extra = [
        "zipf:span=64GiB,theta=0.99",
        "zipf:span=64GiB,theta=1.2",
        "zipf:span=64GiB,method=gray",
        "uniform:read=0.7,arrival=poisson,rate=1M",
    ];
    let mut specs: Vec<String> = std::env::args().skip(2).collect();
    if specs.is_empty() {
        specs.extend(WORKLOADS.iter().map(|w| w.name).chain(extra).map(String::from));
    }
    for spec in &specs {
        let mut digest = 0u64;
        let mut count = 0u64;
        let workload = Workload::new(spec, 1)?;
        let start = Instant::now();
        for item in workload.take(records as usize) {
            let value = match item {
                Item::Block(r) => r.offset ^ r.len << 40 ^ (r.op as u64) << 60,
                Item::Mem(m) => m.addr ^ (m.access as u64) << 60,
                Item::Object(o) => o.id,
            };
            digest = (digest ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            count += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{spec:<44} {:8.1} M/s  {count} records, digest {digest:016x}",
            count as f64 / seconds / 1e6
        );
    }
    Ok(())
}
