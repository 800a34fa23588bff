//! Devices that tear, lose, reorder and flip bytes, and a reference model of a pool. For tests only.
//!
//! A crash test has this form:
//!
//! ```
//! use deepram_pool::device::Device;
//! use deepram_testkit::{Crash, FaultyDevice, seeds};
//!
//! // In place of a pool: two blocks, where the second shows that the first is complete.
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

pub use buf::AlignedBuf;
pub use crash::{Crash, CrashImages, EveryCrash};
pub use device::{Failure, FaultyDevice, Op, POWER_CUT, Stats};
pub use image::{Image, PAGE};
pub use kernel::FaultyKernel;
pub use model::{Mismatch, Model};

/// Compiles the examples of the README as documentation tests. This item is in an unpublished crate, because a package
/// contains no file from outside its crate.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
