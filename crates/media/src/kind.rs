//! The kinds of presets, and how each kind's typed form is reached from its name.

use crate::array::Array;
use crate::disk::Disk;
use crate::dram::Dram;
use crate::error::MediaError;
use crate::file::File;
use crate::hierarchy::Hierarchy;
use crate::link::Link;
use crate::model::{KeySpec, Model};
use crate::nand::Nand;
use crate::nvmm::Nvmm;
use crate::pcm::Pcm;
use crate::pmem::Pmem;
use crate::processor::Processor;
use crate::sheet::Sheet;
use crate::software::Software;
use crate::ssd::Ssd;

macro_rules! kinds {
    ($($(#[$meta:meta])* $variant:ident = $model:ty,)*) => {
        /// A kind of preset: what the first word in `[nand.slc]` says.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$meta])* $variant,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$variant,)*];

            /// The word in preset files.
            pub const fn word(self) -> &'static str {
                match self { $(Kind::$variant => <$model as Model>::KIND,)* }
            }

            /// Every key that a preset of this kind can have, in the order of `media show`.
            pub fn keys(self) -> Vec<KeySpec> {
                let mut keys = Vec::new();
                match self { $(Kind::$variant => <$model as Model>::keys("", &mut keys),)* }
                keys
            }

            fn parts(self) -> &'static [(&'static str, &'static str)] {
                match self { $(Kind::$variant => <$model as Model>::parts(),)* }
            }

            /// Builds and checks the typed form, and gives the values that follow from its figures.
            pub(crate) fn derived(self, sheet: &Sheet) -> Result<Vec<(String, f64)>, MediaError> {
                match self { $(Kind::$variant => Ok(sheet.model::<$model>()?.derived()),)* }
            }
        }
    };
}

kinds! {
    /// Dynamic memory with its banks, currents and refresh.
    Dram = Dram,
    /// Phase-change memory.
    Pcm = Pcm,
    /// NAND flash packages.
    Nand = Nand,
    /// On-device DRAM and PCM arrays with leakage.
    Array = Array,
    /// Hard disks.
    Disk = Disk,
    /// Real files and block devices, measured.
    File = File,
    /// Buses and host links.
    Link = Link,
    /// Measured persistent memory.
    Pmem = Pmem,
    /// Processors with their last-level cache.
    Processor = Processor,
    /// Whole solid-state drives.
    Ssd = Ssd,
    /// Operating systems: the software path of a page fault.
    Software = Software,
    /// Flash main memories.
    Nvmm = Nvmm,
    /// DRAM and a drive that the processor addresses.
    Hierarchy = Hierarchy,
}

impl Kind {
    /// The kind of that name.
    pub fn from_word(word: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// The kind of a part: `nand` of an SSD.
    pub(crate) fn part(self, part: &str) -> Option<Kind> {
        self.parts().iter().find(|(name, _)| *name == part).and_then(|(_, kind)| Kind::from_word(kind))
    }
}
