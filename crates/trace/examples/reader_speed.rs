//! Measures the reading speed of traces on one thread, in million records per second, and prints
//! their summaries. `cargo run --release -p deepram-trace --example reader_speed FILE...`

use deepram_trace::{ReadOptions, Summary, TraceReader};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let mut reader = TraceReader::open(&path, &ReadOptions::default())?;
        let records = reader.by_ref().try_fold(0u64, |n, item| item.map(|_| n + 1))?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{path}: {}, {:.2} M/s", reader.format(), records as f64 / seconds / 1e6);
        print!("{}", Summary::of(TraceReader::open(&path, &ReadOptions::default())?)?);
    }
    Ok(())
}
