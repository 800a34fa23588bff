//! Write amplification of uniform random writes under greedy reclamation against published analysis.
//!
//! L. Xiang and B. M. Kurkoski, "An Improved Analytic Expression for Write Amplification in NAND Flash",
//! arXiv:1110.4245. The paper uses Lambert's W. Without it, the live share u of a reclaimed block is the
//! solution of (u - 1) / ln u = rho, with rho the share of live pages, and the amplification is 1 / (1 - u).
//! The paper's check value is 2.36 at an over-provisioning factor of 0.3 (rho = 1 / 1.3); its simulation
//! gives 2.35. With finite blocks, greedy reclamation does slightly better.

use deepram_media::{Registry, Ssd};
use deepram_sim::host::{HostOptions, drive};
use deepram_sim::ssd::{ParallelSsd, SsdOptions};
use deepram_trace::workload::Rng;
use deepram_trace::{Op, Request};

/// Returns the share u of live pages in a reclaimed block, in the limit of large blocks: (u - 1) / ln u = rho.
fn limit(rho: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-12);
    for _ in 0..200 {
        let u: f64 = (low + high) / 2.0;
        if (u - 1.0) / u.ln() < rho { low = u } else { high = u }
    }
    low
}

#[test]
fn the_closed_form_has_its_published_check_value() {
    assert!((1.0 / (1.0 - limit(1.0 / 1.3)) - 2.36).abs() < 0.005);
}

#[test]
fn uniform_random_writes_amplify_as_the_analysis_says() {
    let pages_per_block = 256u64;
    for spare in [0.12, 0.2, 0.28, 0.4] {
        let over = format!("over_provisioning={spare}");
        let ssd: Ssd = Registry::builtin()
            .unwrap()
            .get_with(
                "mqsim-s8",
                &[
                    over.as_str(),
                    "channels=1",
                    "packages_per_channel=1",
                    "nand.planes=1",
                    "nand.blocks_per_plane=1024",
                    "nand.pages_per_block=256",
                    "raw_capacity=2GiB",
                    "reclaim_below=0.002",
                    "reclaim_hard_below=0.001",
                    "nand.read=1us",
                    "nand.program=1us",
                    "nand.erase=1us",
                ],
            )
            .unwrap();
        let options = SsdOptions {
            precondition: deepram_sim::ssd::Precondition::Sequential(1.0),
            write_reserve: 2,
            ..SsdOptions::default()
        };
        let mut device = ParallelSsd::new(&ssd, &options, 1).unwrap();
        let pages = deepram_sim::host::Device::capacity(&device).0 / ssd.nand.page.0;
        let mut random = Rng::new(9, "test");
        let count = 8 * pages;
        let requests = (0..count).map(|_| {
            let offset = random.below(pages) * ssd.nand.page.0;
            Ok(Request { time_ps: None, device: 0, offset, len: ssd.nand.page.0, op: Op::Write })
        });
        let host = HostOptions { warm_up: 5 * pages, ..HostOptions::default() };
        let measured = drive(&mut device, requests, &host).unwrap();
        let found = measured.counts.write_amplification();
        // All blocks hold data except the reserve of free blocks and the write frontiers.
        let blocks = ssd.nand.blocks_per_plane as f64 - 4.0;
        let rho = pages as f64 / (blocks * pages_per_block as f64);
        let expected = 1.0 / (1.0 - limit(rho));
        eprintln!("spare {spare}: rho {rho:.4}, found {found:.4}, analysis {expected:.4}");
        assert!((found / expected - 1.0).abs() < 0.03, "spare {spare}: {found} instead of {expected}");
    }
}
