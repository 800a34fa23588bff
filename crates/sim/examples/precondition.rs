//! Time and memory of bringing a 64 GiB drive into its steady state, and of a long run.

use deepram_media::{Picos, Registry, Ssd};
use deepram_sim::host::{Device, HostOptions, drive};
use deepram_sim::peers::Uniform;
use deepram_sim::ssd::{ParallelSsd, Precondition, SsdOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let overrides = ["nand.blocks_per_plane=4096", "raw_capacity=64GiB"];
    let ssd: Ssd = Registry::builtin()?.get_with("mqsim-s8", &overrides)?;
    for (name, state) in
        [("sequential", Precondition::Sequential(1.0)), ("steady", Precondition::Steady(0.7))]
    {
        let start = std::time::Instant::now();
        let options = SsdOptions { precondition: state, ..SsdOptions::default() };
        let device = ParallelSsd::new(&ssd, &options, 1)?;
        println!("{name}: {:.3} s for {} GiB", start.elapsed().as_secs_f64(), device.capacity().0 >> 30);
    }
    let requests: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let small: Ssd = Registry::builtin()?.get("mqsim-s8")?;
    let options = SsdOptions { precondition: Precondition::Steady(0.7), ..SsdOptions::default() };
    let mut device = ParallelSsd::new(&small, &options, 1)?;
    let pages = device.capacity().0 / small.nand.page.0;
    let start = std::time::Instant::now();
    let host = HostOptions { per_thread: 16, interval: Picos(1_000_000_000), ..HostOptions::default() };
    let workload = Uniform::new(requests, pages, small.nand.page.0, small.nand.page.0, 0.0, 1);
    let measured = drive(&mut device, workload.map(Ok), &host)?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "{} requests in {:.2} s, write amplification {:.3}, {peak}",
        measured.completed,
        start.elapsed().as_secs_f64(),
        measured.counts.write_amplification()
    );
    Ok(())
}
