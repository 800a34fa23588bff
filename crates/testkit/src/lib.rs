//! Devices that tear, lose, reorder and flip, the reference model of a pool, and the build of the workspace. For tests only.
//!
//! A crash test is written like this:
//!
//! ```
//! use deepram_pool::device::Device;
//! use deepram_testkit::{Crash, FaultyDevice, seeds};
//!
//! // Stands for a pool: two blocks, the second of which says that the first is complete.
//! fn save(device: &FaultyDevice) -> std::io::Result<()> {
//!     let block = deepram_testkit::AlignedBuf::filled(4096, 7);
//!     device.write(0, &block)?;
//!     device.flush()?; // without this line the assertion below fails
//!     device.write(4096, &block)?;
//!     device.flush()
//! }
//!
//! let whole = FaultyDevice::new(1 << 20);
//! save(&whole).unwrap();
//! for op in 1..=whole.ops() {
//!     let device = FaultyDevice::new(1 << 20);
//!     device.crash_after(op);
//!     save(&device).unwrap_err();
//!     seeds::each(20, |seed| {
//!         let image = device.crash_image(Crash::Random(seed));
//!         let reopened = FaultyDevice::from_image(image).durable_image().to_vec();
//!         if reopened[4096] == 7 {
//!             assert_eq!(reopened[..4096], [7; 4096]);
//!         }
//!     });
//! }
//! ```
//!
//! `deepram-pool` has this crate as a dev-dependency, and this crate implements `deepram-pool`'s
//! [`Device`](deepram_pool::device::Device). Cargo therefore builds the pool twice for the pool's
//! own unit tests, and [`FaultyDevice`] implements the other copy's trait: use it from
//! `crates/pool/tests/`, not from `#[cfg(test)]` modules inside `crates/pool/src/`.

#![forbid(unsafe_code)]

mod buf;
mod crash;
pub mod device;
mod image;
mod kernel;
mod model;
pub mod seeds;
mod workspace;

pub use buf::AlignedBuf;
pub use crash::{Crash, CrashImages, EveryCrash};
pub use device::{Failure, FaultyDevice, Op, POWER_CUT, Stats};
pub use image::{Image, PAGE};
pub use kernel::FaultyKernel;
pub use model::{Mismatch, Model};
pub use workspace::build_workspace;

/// Compiles the Rust blocks of the documentation as documentation tests. They are here because this crate is not published: a
/// package holds no file from outside of its crate.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/tutorial.md")]
    struct Tutorial;
    #[doc = include_str!("../../../docs/how-to/add-a-policy.md")]
    struct AddAPolicy;
    #[doc = include_str!("../../../docs/how-to/checkpoint-a-computation.md")]
    struct CheckpointAComputation;
    #[doc = include_str!("../../../docs/how-to/persist-small-updates.md")]
    struct PersistSmallUpdates;
}
