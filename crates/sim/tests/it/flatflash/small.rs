//! A small machine. The unit tests of `flatflash` include this file.

use deepram_media::{Hierarchy, Registry};

/// 192 pages on two dies, 16 of them in the SSD-Cache (device buffer).
const SMALL: [&str; 13] = [
    "channels=2",
    "packages_per_channel=1",
    "nand.planes=1",
    "nand.blocks_per_plane=16",
    "nand.pages_per_block=8",
    "over_provisioning=25%",
    "buffer_share=9%",
    "buffer_ways=4",
    "tlb_entries=16",
    "tlb_ways=4",
    "cpu_cache=4KiB",
    "cpu_cache_ways=4",
    "remap_batch=4",
];

pub(crate) fn preset(overrides: &[&str]) -> Hierarchy {
    let all: Vec<&str> = SMALL.iter().chain(overrides).copied().collect();
    Registry::builtin().unwrap().get_with("hierarchy.p3700", &all).unwrap()
}
