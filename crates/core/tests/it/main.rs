//! Tests of the mechanisms through their public interface: closed forms, reference models, enumerated small cases.

mod blocks;
mod cache;
mod cache_models;
mod clock;
mod core_stands_alone;
mod disk_cache;
mod disk_cache_model;
mod hybrid_buffer;
mod hybrid_model;
mod interleavings;
mod look_aside;
mod mapping;
mod paging;
mod paging_segments;
mod persist;
mod placement;
mod reliability;
mod rig;
mod rrip;
mod threshold;
mod volume;
mod volume_hostile;
mod volume_model;
mod wear_thresholds;
mod write_buffer;
mod write_buffer_models;
