//! Write-buffer policies on real block traces: every count equals that of a plain buffer, which is searched
//! from end to end.

use std::path::PathBuf;

use deepram_core::write_buffer::{BufferAccess, Evicted, WriteBufferOptions, WriteBufferPolicy};
use deepram_media::Registry;
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, run};
use deepram_trace::{Item, Op, ReadOptions, Request, TraceReader};

#[path = "../../../core/tests/it/write_buffer_models.rs"]
mod models;

const PAGE: u64 = 8192;

/// The page accesses of a trace's reads, writes and trims, `most` or a few more.
fn accesses(name: &str, most: usize) -> Option<Vec<(u64, Op)>> {
    let folder = std::env::var_os("DEEPRAM_TRACES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    let path = folder.join("block").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there (set DEEPRAM_TRACES)", path.display());
        return None;
    }
    let mut accesses = vec![];
    for item in TraceReader::open(path, &ReadOptions::default()).unwrap() {
        let Item::Block(request) = item.unwrap() else { continue };
        if request.len > 0 && request.op != Op::Flush {
            let last = (request.offset + request.len - 1) / PAGE;
            accesses.extend((request.offset / PAGE..=last).map(|page| (page, request.op)));
        }
        if accesses.len() >= most {
            break;
        }
    }
    Some(accesses)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    write_hits: u64,
    read_hits: u64,
    fills: u64,
    flash_writes: usize,
    padding_reads: usize,
    dropped: usize,
    /// A digest of all evicted pages in order.
    digest: u64,
}

/// Performs the accesses by `access`, which returns `None` for a trim.
fn count(
    accesses: &[(u64, Op)],
    mut access: impl FnMut(u64, Op, &mut Evicted) -> Option<BufferAccess>,
) -> Counts {
    let mut counts = Counts::default();
    let mut evicted = Evicted::default();
    for &(page, op) in accesses {
        let outcome = access(page, op, &mut evicted);
        counts.write_hits += u64::from(outcome == Some(BufferAccess::Hit) && op == Op::Write);
        counts.read_hits += u64::from(outcome == Some(BufferAccess::Hit) && op == Op::Read);
        counts.fills += u64::from(outcome == Some(BufferAccess::Filled));
        counts.flash_writes += evicted.writes.len() + evicted.padding.len();
        counts.padding_reads += evicted.padding.len();
        counts.dropped += evicted.dropped.len();
        for page in evicted.writes.iter().chain(&evicted.padding).chain(&evicted.dropped) {
            counts.digest = (counts.digest ^ page).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        evicted.clear();
    }
    counts
}

#[test]
fn on_real_traces_every_policy_counts_what_a_plain_buffer_counts() {
    for name in [
        "fin1_first10k.ssdsim.ascii.zst",
        "mqsim_tpcc_small.ssdsim.ascii.zst",
        "mqsim_wsrch_small.ssdsim.ascii.zst",
        "disksim_ssd_iozone_100k.disksim.ascii.zst",
        "cloudPhysicsIO.vscsi.zst",
        "llm_opt7b_512tok.mqsim.zst",
    ] {
        let Some(accesses) = accesses(name, 40_000) else { continue };
        assert!(accesses.len() > 1000, "{name}");
        let mut flash_writes = vec![];
        for policy in WriteBufferPolicy::ALL {
            let options = WriteBufferOptions::new(384, 64);
            let mut buffer = policy.build(&options);
            let mut model = models::plain(policy, &options);
            let ours = count(&accesses, |page, op, evicted| match op {
                Op::Write => Some(buffer.write(page, evicted)),
                Op::Read => Some(buffer.read(page, evicted)),
                _ => buffer.discard(page).and(None),
            });
            let plain = count(&accesses, |page, op, evicted| match op {
                Op::Write | Op::Read => Some(model.access(page, op == Op::Write, evicted)),
                _ => model.discard(page).and(None),
            });
            assert_eq!(ours, plain, "{name} {policy}");
            // Every written page is in the buffer, was overwritten there, or went to flash.
            let written = accesses.iter().filter(|(_, op)| *op == Op::Write).count();
            let own_writes = ours.flash_writes - ours.padding_reads;
            assert!(buffer.dirty_len() + own_writes <= written, "{name} {policy}");
            flash_writes.push((policy.name(), own_writes, ours.padding_reads));
        }
        println!("{name}: {} page accesses; flash writes and padding: {flash_writes:?}", accesses.len());
    }
}

/// Runs the accesses, one page a request, on `ssd-buffer` with 3 MiB (384 pages) of DRAM under the policy.
fn simulated(policy: WriteBufferPolicy, accesses: &[(u64, Op)]) -> RunResult {
    let overrides = vec!["dram.size=3MiB".to_owned(), format!("policy={policy}")];
    let config =
        SystemConfig { preset: "hybrid-42".into(), overrides, ..SystemConfig::new(System::SsdBuffer) };
    // 10 ms between requests: nothing waits for the destage queue.
    let requests = accesses.iter().zip(0..).map(|(&(page, op), index)| {
        let time_ps = Some(index * 10_000_000_000);
        Ok::<_, SimError>(Request { time_ps, device: 0, offset: page * PAGE, len: PAGE, op })
    });
    run(&Registry::builtin().unwrap(), &config, requests, &RunOptions::default()).unwrap()
}

#[test]
fn the_simulated_buffer_programs_and_reads_the_pages_that_a_plain_buffer_evicts() {
    let Some(mut accesses) = accesses("fin1_first10k.ssdsim.ascii.zst", usize::MAX) else { return };
    // Pages within the drive, at most.
    accesses.retain(|(page, op)| *page < 1 << 24 && *op != Op::Trim);
    for policy in WriteBufferPolicy::ALL {
        let result = simulated(policy, &accesses);
        // The drive's erase blocks have 256 pages.
        let mut model = models::plain(policy, &WriteBufferOptions::new(384, 256));
        let plain = count(&accesses, |page, op, evicted| Some(model.access(page, op == Op::Write, evicted)));
        let counter = |key: &str| result.counters[key].as_u64().unwrap();
        let hits = (counter("write_hits_dram"), counter("read_hits_dram"));
        assert_eq!(hits, (plain.write_hits, plain.read_hits), "{policy}");
        assert_eq!(counter("fills_dram") + counter("read_fills"), plain.fills, "{policy}");
        assert_eq!(counter("padding"), plain.padding_reads as u64, "{policy}");
        assert_eq!(counter("clean_evictions"), plain.dropped as u64, "{policy}");
        let flash_writes = counter("destages_dram") + counter("padding");
        assert_eq!(flash_writes, plain.flash_writes as u64, "{policy}");
        assert!(counter("destages_dram") > 1000, "{policy}");
    }
}

#[test]
fn a_policy_needs_a_buffer_of_dram_alone_and_a_known_name() {
    for (preset, set, expected) in [
        ("hybrid-4-80", "policy=fab", "scheme dram-only"),
        ("hybrid-4-80", "keep_reads=always", "scheme dram-only"),
        ("hybrid-42", "policy=clc", "bplru"),
        ("hybrid-42", "polcy=fab", "did you mean `policy`"),
    ] {
        let overrides = vec![set.to_owned()];
        let config =
            SystemConfig { preset: preset.into(), overrides, ..SystemConfig::new(System::SsdBuffer) };
        let none = std::iter::empty::<Result<Request, SimError>>();
        let error = run(&Registry::builtin().unwrap(), &config, none, &RunOptions::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{set}: {error}");
    }
}
