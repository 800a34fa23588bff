//! Options of the simulated pool and of the simulated pager: sizes, and software costs of the machine.

use deepram_core::units::{Bytes, Picos};
use deepram_media::Dimension;
use serde::Serialize;

use crate::settings::OptionKey;

/// What is behind the DRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolBacking {
    /// The journaled store of a pool ([`super::PoolModel`]).
    #[default]
    Journal,
    /// The swap file of `deepram run` ([`crate::swap_model::SwapModel`]).
    Swap,
}

/// Sizes of the pool, and software costs of the machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolModelOptions {
    /// What is behind the DRAM.
    pub backing: PoolBacking,
    /// Size of the data, bytes; 0 for the span over which the preset was measured.
    #[serde(serialize_with = "crate::quantity::bytes")]
    pub data: Bytes,
    /// DRAM, bytes; 0 for a quarter of the data. A pool uses all of it for segments, whereas a pager's tables and buffers are
    /// a part of it, as in the option of `deepram run`.
    #[serde(serialize_with = "crate::quantity::bytes")]
    pub dram: Bytes,
    /// Journal: the pool's budget, of which `dram` is the part that tables and buffers leave; 0 if that is all. Windows and
    /// the handlers' buffers follow it.
    #[serde(serialize_with = "crate::quantity::bytes")]
    pub budget: Bytes,
    /// Size of a segment, bytes.
    #[serde(serialize_with = "crate::quantity::bytes")]
    pub segment: Bytes,
    /// Time of an access to a resident segment.
    #[serde(rename = "hit_ps", serialize_with = "crate::quantity::picos")]
    pub hit: Picos,
    /// Software time of a fault on a missing segment: trap, handler, installing, return.
    #[serde(rename = "fault_ps", serialize_with = "crate::quantity::picos")]
    pub fault: Picos,
    /// Time of the first store into a clean segment: trap, handler, unprotecting, return.
    #[serde(rename = "protect_ps", serialize_with = "crate::quantity::picos")]
    pub protect: Picos,
    /// Processor time of writing one segment back.
    #[serde(rename = "flush_ps", serialize_with = "crate::quantity::picos")]
    pub flush: Picos,
    /// Processor time of installing one more segment: one that was read ahead, or a fresh neighbour.
    #[serde(rename = "install_ps", serialize_with = "crate::quantity::picos")]
    pub install: Picos,
    /// Processor time of staging one more segment of a chunk of 2 MiB, which arrives as a huge page.
    #[serde(rename = "stage_ps", serialize_with = "crate::quantity::picos")]
    pub stage: Picos,
    /// Swap file: software time of a fault on a fresh page.
    #[serde(rename = "fresh_ps", serialize_with = "crate::quantity::picos")]
    pub fresh: Picos,
    /// Swap file: software time of a fault on a page in the victim buffer.
    #[serde(rename = "second_chance_ps", serialize_with = "crate::quantity::picos")]
    pub second_chance: Picos,
    /// Swap file: processor time of evicting one page.
    #[serde(rename = "evict_ps", serialize_with = "crate::quantity::picos")]
    pub evict: Picos,
    /// Threads that serve faults, one for each processor.
    pub handlers: u32,
    /// Whether a missed segment or page is read with its neighbours where these are used.
    pub fault_around: bool,
    /// Whether streams move as huge pages.
    pub huge_pages: bool,
    /// Swap file: the address at which the data begin, a multiple of 4 KiB. Blocks, chunks and regions begin at multiples of
    /// their sizes.
    #[serde(rename = "address_bytes", serialize_with = "crate::quantity::bytes")]
    pub address: Bytes,
}

impl Default for PoolModelOptions {
    fn default() -> Self {
        Self {
            backing: PoolBacking::Journal,
            data: Bytes(0),
            dram: Bytes(0),
            budget: Bytes(0),
            segment: Bytes(4096),
            hit: Picos(96_000),
            fault: Picos(33_000_000),
            protect: Picos(21_000_000),
            flush: Picos(6_600_000),
            install: Picos(1_000_000),
            // An estimate, unlike the others: two checksums of 4 KiB. `deepram bench predict` measures it.
            stage: Picos(200_000),
            fresh: Picos(10_000_000),
            second_chance: Picos(10_000_000),
            evict: Picos(1_000_000),
            handlers: 2,
            fault_around: true,
            huge_pages: true,
            address: Bytes(0),
        }
    }
}

impl PoolModelOptions {
    /// The options of the pager of `deepram run` over its swap file, with the software costs that were measured for it on the
    /// machine of the preset `virtual-ssd`.
    #[must_use]
    pub fn swap() -> Self {
        Self {
            backing: PoolBacking::Swap,
            fault: Picos(10_000_000),
            protect: Picos(6_500_000),
            flush: Picos(2_000_000),
            fresh: Picos(6_500_000),
            ..Self::default()
        }
    }
}

/// The keys of `--set pool.key=value`.
pub(crate) const POOL_KEYS: &[OptionKey<PoolModelOptions>] = &[
    OptionKey {
        key: "data",
        dimension: Dimension::Size,
        help: "size of the data; the preset's span if not given",
        set: |options, value| options.data.0 = value,
    },
    OptionKey {
        key: "budget",
        dimension: Dimension::Size,
        help: "journal: DRAM with tables and buffers; as much as --dram if not given",
        set: |options, value| options.budget.0 = value,
    },
    OptionKey {
        key: "segment",
        dimension: Dimension::Size,
        help: "size of a segment, a power of two of at most 1 MiB",
        set: |options, value| options.segment.0 = value,
    },
    OptionKey {
        key: "hit",
        dimension: Dimension::Time,
        help: "time of an access to a resident segment",
        set: |options, value| options.hit.0 = value,
    },
    OptionKey {
        key: "fault",
        dimension: Dimension::Time,
        help: "software time of a fault on a missing segment",
        set: |options, value| options.fault.0 = value,
    },
    OptionKey {
        key: "first_store",
        dimension: Dimension::Time,
        help: "time of the first store into a clean segment",
        set: |options, value| options.protect.0 = value,
    },
    OptionKey {
        key: "write_back",
        dimension: Dimension::Time,
        help: "processor time of writing one segment back",
        set: |options, value| options.flush.0 = value,
    },
    OptionKey {
        key: "install",
        dimension: Dimension::Time,
        help: "processor time of installing one more segment: read ahead, or a fresh neighbour",
        set: |options, value| options.install.0 = value,
    },
    OptionKey {
        key: "stage",
        dimension: Dimension::Time,
        help: "processor time of staging one more segment of a huge page",
        set: |options, value| options.stage.0 = value,
    },
    OptionKey {
        key: "fresh",
        dimension: Dimension::Time,
        help: "swap file: software time of a fault on a fresh page",
        set: |options, value| options.fresh.0 = value,
    },
    OptionKey {
        key: "second_chance",
        dimension: Dimension::Time,
        help: "swap file: software time of a fault on a page in the victim buffer",
        set: |options, value| options.second_chance.0 = value,
    },
    OptionKey {
        key: "evict",
        dimension: Dimension::Time,
        help: "swap file: processor time of evicting one page",
        set: |options, value| options.evict.0 = value,
    },
    OptionKey {
        key: "fault_around",
        dimension: Dimension::Flag,
        help: "whether a missed segment or page is read with its neighbours where these are used",
        set: |options, value| options.fault_around = value != 0,
    },
    OptionKey {
        key: "huge_pages",
        dimension: Dimension::Flag,
        help: "whether streams move as huge pages",
        set: |options, value| options.huge_pages = value != 0,
    },
];
