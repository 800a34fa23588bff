//! The options of core's disk cache from the preset.

use deepram_core::disk_cache::{DiskCacheOptions, ReclaimScope};
use deepram_core::reliability::{
    AccessTimes, Controller, Density, FlashShape, ReliabilityPolicy, Retirement, WearWeights,
};
use deepram_media::{
    Bytes, Cell, DiskCacheServer, FlashController, FlashRegions, NandOp, ReclaimedBlocks, RetiredUnit,
};

use crate::error::SimError;
use crate::ssd::serial::checked_u32;

/// The options of the cache of a server.
pub(super) fn options(server: &DiskCacheServer) -> Result<DiskCacheOptions, SimError> {
    let slots = checked_u32("slc.pages_per_block", server.slc.pages_per_block)?;
    let slots = u16::try_from(slots).unwrap_or(u16::MAX);
    let pages = 2 * u64::from(slots);
    Ok(DiskCacheOptions {
        dram_pages: checked_u32("dram_cache", server.dram_cache.0 / server.mlc.page.0)?,
        shape: FlashShape { blocks: checked_u32("flash", server.blocks())?, slots },
        write_share: (server.regions == FlashRegions::Split).then_some(server.write_share.0),
        reclaim: match server.reclaim {
            ReclaimedBlocks::Greedy => ReclaimScope::Greedy,
            ReclaimedBlocks::All => ReclaimScope::All,
        },
        least_dead: (server.least_dead.0 * pages as f64).ceil().max(1.0) as u16,
        low_blocks: checked_u32("low_blocks", server.low_blocks)?,
        age_reads: server.age_reads,
        policy: policy(server),
    })
}

/// The reliability policy of a server. `check` of the preset bounds strengths and counts.
fn policy(server: &DiskCacheServer) -> ReliabilityPolicy {
    let page = server.mlc.page;
    let read = |nand: &deepram_media::Nand| nand.idle_latency(NandOp::Read, 1).0;
    let strongest = server.strongest();
    ReliabilityPolicy {
        controller: match server.controller {
            FlashController::Fixed => Controller::Fixed,
            FlashController::Programmable => Controller::Programmable,
        },
        strength: server.strength as u8,
        strongest: strongest as u8,
        density: if server.density == Cell::Slc { Density::Slc } else { Density::Mlc },
        margin: server.margin as u8,
        hot_limit: server.migrate_hot.then_some(server.hot_limit as u16),
        retirement: match server.retirement {
            RetiredUnit::Block => Retirement::Block,
            RetiredUnit::Page => Retirement::Page,
        },
        weights: WearWeights { strength: server.wear_strength.0, single: server.wear_single.0 },
        wear_difference: server.wear_swap.then_some(server.wear_difference.0),
        times: AccessTimes {
            mlc: read(&server.mlc),
            slc: read(&server.slc),
            disk: server.disk.random(Bytes(page.0), false).0,
            decode: (0..=strongest).map(|strength| server.ecc.decode(page, strength).0).collect(),
        },
    }
}
