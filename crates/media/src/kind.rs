//! The kinds of presets, and the typed model of each kind.

use crate::array::Array;
use crate::bit_errors::BitErrors;
use crate::disk::Disk;
use crate::disk_cache::DiskCacheServer;
use crate::dram::Dram;
use crate::ecc::Ecc;
use crate::error::MediaError;
use crate::hierarchy::Hierarchy;
use crate::link::Link;
use crate::measured_file::MeasuredFile;
use crate::model::{KeySpec, Model};
use crate::nand::Nand;
use crate::nvmm::Nvmm;
use crate::pcm::Pcm;
use crate::platform::Platform;
use crate::pmem::Pmem;
use crate::processor::Processor;
use crate::resolved::ResolvedPreset;
use crate::software::Software;
use crate::ssd::Ssd;
use crate::write_buffer::WriteBuffer;

macro_rules! kinds {
    ($($(#[$meta:meta])* $variant:ident = $model:ty,)*) => {
        /// A kind of preset: the first word in `[nand.slc]`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum PresetKind { $($(#[$meta])* $variant,)* }

        impl PresetKind {
            /// Every kind.
            pub const ALL: &[PresetKind] = &[$(PresetKind::$variant,)*];

            /// The kind's name in preset files.
            pub const fn word(self) -> &'static str {
                match self { $(PresetKind::$variant => <$model as Model>::KIND,)* }
            }

            /// All keys of this kind of preset, in the order of `media show`.
            pub fn keys(self) -> Vec<KeySpec> {
                let mut keys = Vec::new();
                match self { $(PresetKind::$variant => <$model as Model>::keys("", &mut keys),)* }
                keys
            }

            fn parts(self) -> &'static [(&'static str, &'static str)] {
                match self { $(PresetKind::$variant => <$model as Model>::parts(),)* }
            }

            /// Builds and checks the typed model; returns the values derived from its figures.
            pub(crate) fn derived(self, resolved: &ResolvedPreset) -> Result<Vec<(String, f64)>, MediaError> {
                match self { $(PresetKind::$variant => Ok(resolved.model::<$model>()?.derived()),)* }
            }
        }
    };
}

kinds! {
    /// DRAM with banks, currents and refresh.
    Dram = Dram,
    /// Phase-change memory.
    Pcm = Pcm,
    /// NAND flash packages.
    Nand = Nand,
    /// Bit errors of flash cells.
    BitErrors = BitErrors,
    /// Error-correcting codes.
    Ecc = Ecc,
    /// DRAM and PCM arrays inside a device, with leakage.
    Array = Array,
    /// Hard disks.
    Disk = Disk,
    /// Real files and block devices, measured.
    File = MeasuredFile,
    /// Buses and host links.
    Link = Link,
    /// Measured persistent memory.
    Pmem = Pmem,
    /// Processors with their last-level cache.
    Processor = Processor,
    /// Whole solid-state drives.
    Ssd = Ssd,
    /// Write buffers of solid-state drives.
    WriteBuffer = WriteBuffer,
    /// The operating system's software path of a page fault.
    Software = Software,
    /// Flash main memories.
    Nvmm = Nvmm,
    /// DRAM and a byte-addressable SSD.
    Hierarchy = Hierarchy,
    /// Servers with a disk cache of DRAM and flash.
    Server = DiskCacheServer,
    /// Servers with persistent memory.
    Platform = Platform,
}

impl PresetKind {
    /// The kind with this name.
    pub fn from_word(word: &str) -> Option<PresetKind> {
        PresetKind::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// The kind of a part: `nand` of an SSD.
    pub(crate) fn part(self, part: &str) -> Option<PresetKind> {
        self.parts().iter().find(|(name, _)| *name == part).and_then(|(_, kind)| PresetKind::from_word(kind))
    }
}
