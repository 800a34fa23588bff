//! Write-buffer policies on real block traces: every count equals that of a plain buffer, which is searched
//! from end to end.

use std::path::PathBuf;

use deepram_core::write_buffer::{BufferAccess, Evicted, WriteBufferOptions, WriteBufferPolicy};
use deepram_trace::{Item, Op, ReadOptions, TraceReader};

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
