//! Pools on faulty devices.

use std::sync::Arc;

use deepram_core::{Redundancy, SegmentSize};
use deepram_pool::device::Device;
use deepram_pool::{CreateOptions, Mapping, OpenOptions, Pool, PoolError, Result, Retention};
use deepram_testkit::{FaultyDevice, FaultyKernel, Image};

use super::world::World;
use super::{MIB, PAGE};

/// The configuration of a test's pool.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub segment: SegmentSize,
    pub controllers: usize,
    /// Pages of memory.
    pub pages: u64,
    /// Flash of each controller in bytes; `None`: the pool's default.
    pub flash: Option<u64>,
    /// Number of tokens kept.
    pub keep: u32,
    /// DRAM of each controller, in bytes.
    pub dram: u64,
    pub redundancy: Option<Redundancy>,
}

impl Shape {
    pub fn small(segment: SegmentSize) -> Self {
        // Minimal flash with a little spare: blocks of 64 slots, half of them for the pool itself.
        let flash = MIB + 28 * 64 * segment.bytes();
        let dram = 10 * MIB + 600 * segment.bytes();
        Self { segment, controllers: 1, pages: 8, flash: Some(flash), keep: 3, dram, redundancy: None }
    }

    /// As [`Shape::small`], with redundancy, and room for the parity and for a few more blocks.
    pub fn with_parity(segment: SegmentSize, redundancy: &str) -> Self {
        let redundancy = Some(redundancy.parse().expect("a redundancy"));
        let flash = MIB + 40 * 100 * segment.bytes();
        Self { redundancy, flash: Some(flash), ..Self::small(segment) }
    }

    /// The same configuration with the least DRAM that the pool can be opened with.
    pub fn least_dram(self) -> Self {
        let (images, _) = self.create();
        let opened = Self { dram: MIB, ..self }.open(&devices(&images));
        let Err(PoolError::Budget { least, .. }) = opened else {
            panic!("1 MiB of DRAM should be too little")
        };
        // The tables grow slightly.
        Self { dram: least.0 / self.controllers as u64 + 64 * 1024, ..self }
    }

    pub fn options(&self) -> CreateOptions {
        CreateOptions {
            segment: self.segment,
            flash: self.flash,
            retention: Retention::KeepLast(self.keep),
            redundancy: self.redundancy,
            ..CreateOptions::new(self.pages * PAGE)
        }
    }

    pub fn open_options(&self) -> OpenOptions {
        OpenOptions::new(self.dram * self.controllers as u64).mapping(Mapping::Off)
    }

    pub fn device_bytes(&self) -> u64 {
        self.flash.unwrap_or(4 * self.pages * PAGE + 20 * MIB)
    }

    /// Returns the images of a new pool, and its world.
    pub fn create(&self) -> (Vec<Image>, World) {
        let devices: Vec<FaultyDevice> =
            (0..self.controllers).map(|_| FaultyDevice::new(self.device_bytes())).collect();
        Pool::create_on(handles(&devices), &self.options()).expect("creating a pool");
        let images = devices.iter().map(FaultyDevice::durable_image).collect();
        (images, World::new(1, self.keep as usize))
    }

    pub fn open(&self, devices: &[FaultyDevice]) -> Result<Pool> {
        Pool::open_on(handles(devices), &self.open_options())
    }
}

/// The devices as the pool sees them: files with their queues, on a simulated kernel that passes all faults
/// on.
pub fn handles(devices: &[FaultyDevice]) -> Vec<Arc<dyn Device>> {
    FaultyKernel::file_devices(devices)
}

pub fn devices(images: &[Image]) -> Vec<FaultyDevice> {
    images.iter().map(|image| FaultyDevice::from_image(image.clone())).collect()
}
