//! Metadata changes on the three systems of FlatFlash: closed forms of blocks and lines, flash pages programmed, and
//! durability of the last stores.

use deepram_media::{Hierarchy, Registry};
use deepram_sim::{RunOptions, RunResult, System, SystemConfig, requests, run};
use deepram_trace::{ObjectPlacement, TraceError, Workload};

const SYSTEMS: [System; 3] = [System::FlatFlash, System::UnifiedMMap, System::TraditionalStack];

/// Time in which a page is durable, microseconds: the drive's latency.
const PAGE: f64 = 20.0;

fn simulate(system: System, spec: &str, warm_up: u64, overrides: &[&str]) -> RunResult {
    let mut config = SystemConfig::new(system);
    config.preset = "p3700-32gib".into();
    config.overrides = overrides.iter().map(|text| (*text).into()).collect();
    config.flat.verify = true;
    config.flat.regions = std::iter::once(0..16 << 30).collect();
    let items = Workload::new(spec, 3).unwrap().map(Ok::<_, TraceError>);
    let mut options = RunOptions::default();
    options.host.warm_up = warm_up;
    let nowhere = ObjectPlacement { slot_bytes: 0, slots: 0 };
    run(&Registry::builtin().unwrap(), &config, requests(items, nowhere), &options)
        .unwrap_or_else(|error| panic!("{spec} on {}: {error}", system.name()))
}

fn counter(result: &RunResult, name: &str) -> u64 {
    result.counters[name].as_u64().unwrap_or_else(|| panic!("{name} is not a count"))
}

/// Returns the mean time of 1000 creates, microseconds.
fn create(system: System, fs: &str, grain: &str, overrides: &[&str]) -> f64 {
    let text = |ops| format!("metadata:fs={fs},grain={grain},dirs=1,perdir=48,ops={ops}");
    // After the warm-up, the SSD-Cache holds the structures that are written in place.
    let before = Workload::new(&text(200), 3).unwrap().count() as u64;
    simulate(system, &text(1200), before, overrides).simulated_time_ns / 1e6
}

fn near(found: f64, expected: f64, share: f64, what: &str) {
    assert!((found - expected).abs() <= share * expected, "{what}: {found} us, not {expected}");
}

#[test]
fn a_create_takes_its_blocks_one_after_the_other_or_its_lines_and_a_read_behind_each_structure() {
    // The tolerance covers the drive's occasional messages about moved pages.
    near(create(System::UnifiedMMap, "ext4", "block", &[]), 7.0 * PAGE, 0.003, "EXT4's seven blocks");
    near(create(System::UnifiedMMap, "xfs", "block", &[]), PAGE, 0.003, "a record of XFS's log");
    // Two leaves, a root and four nodes of 16 KiB; three super blocks.
    near(create(System::UnifiedMMap, "btrfs", "block", &[]), (28.0 + 3.0) * PAGE, 0.003, "BtrFS's blocks");
    // Ten lines of five structures; the lines go through the processor's cache.
    near(create(System::FlatFlash, "ext4", "byte", &[]), 10.0 * 0.6 + 5.0 * 4.8, 0.02, "EXT4's lines");
    near(create(System::FlatFlash, "xfs", "byte", &[]), 11.0 * 0.6 + 7.0 * 4.8, 0.02, "XFS's lines");
}

#[test]
fn the_stack_adds_its_software_to_each_request_and_blocks_of_one_may_go_together() {
    let no_wait = ["software.wait=0us"];
    let preset: Hierarchy = Registry::builtin().unwrap().get_with("hierarchy.p3700-32gib", &no_wait).unwrap();
    let path = preset.software.path().0 as f64 / 1e6;
    let stack = create(System::TraditionalStack, "ext4", "block", &no_wait);
    let added = stack - 7.0 * PAGE;
    // A create makes two requests. A write takes no page fault, so it takes less than the whole software path.
    assert!((1.0 * path..=2.0 * path).contains(&added), "{added} us of {path}");
    let together = create(System::UnifiedMMap, "ext4", "block", &["page_writes=32"]);
    let link = preset.link.occupancy(deepram_media::Bytes(4096)).0 as f64 / 1e6;
    assert!((2.0 * PAGE..=2.0 * PAGE + 7.0 * link).contains(&together), "{together} us, link {link}");
}

#[test]
fn a_block_that_was_acknowledged_is_written_to_flash_once_or_stays_in_the_drives_memory() {
    let spec = "metadata:dirs=10,perdir=50,journal=1MiB,ops=500";
    for system in [System::UnifiedMMap, System::TraditionalStack] {
        let through = simulate(system, spec, 0, &[]);
        let programs = through.flash.as_ref().unwrap().programs;
        assert_eq!(programs, counter(&through, "written_blocks"), "{}", system.name());
        assert_eq!(programs * 4096, through.host.write_bytes, "{}", system.name());
        let kept = simulate(system, spec, 0, &["flushed=buffer"]);
        assert_eq!(kept.flash.unwrap().programs, 0, "all written data fits into the drive's memory");
    }
    let lines = simulate(System::FlatFlash, &format!("{spec},grain=byte"), 0, &[]);
    assert_eq!(lines.flash.as_ref().unwrap().programs, 0);
    assert_eq!(counter(&lines, "flushed_lines") * 64, lines.host.write_bytes);
}

#[test]
fn all_that_is_made_durable_is_what_was_stored_last_on_all_systems() {
    // The drive's memory has few pages, so that most durable data is on flash.
    let small = ["buffer_share=0.0002%", "buffer_ways=4", "cpu_cache=64KiB", "cpu_cache_ways=16"];
    for system in SYSTEMS {
        for fs in ["ext4", "xfs", "btrfs"] {
            for op in ["create", "rename", "mkdir", "varmail", "webserver"] {
                for grain in ["block", "byte"] {
                    let spec = format!(
                        "metadata:fs={fs},op={op},grain={grain},dirs=20,perdir=50,journal=1MiB,ops=300"
                    );
                    let result = simulate(system, &spec, 0, &small);
                    assert!(result.flash.unwrap().programs > 0, "{spec}");
                }
            }
        }
    }
}
