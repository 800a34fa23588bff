//! Tests of the simulated systems: closed forms, reference models, conservation, peers' figures.

mod cache;
mod clients;
mod closed_forms;
mod codec;
mod conservation;
mod disk_cache;
mod flatflash;
mod flatflash_platform;
mod hardware;
mod measuring;
mod metadata;
mod nvmm;
mod pager;
mod paging;
mod peers;
mod plan;
mod pmem;
mod presets;
mod processor;
mod queueing;
mod ssd_buffer;
mod sweep;
mod sweep_hostile;
mod systems;
mod write_amplification;
mod write_buffer;
