//! Options and properties of memory controllers.

use std::time::Duration;

use deepram_core::Bytes;
use deepram_linux::flush::Method as FlushMethod;
use uuid::Uuid;

use super::mapping::MemoryKind;
use super::regions::MemoryRegion;

/// How a flush finds the lines that it writes back (`M_SYNC` of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Selective {
    /// Every line of the range.
    #[default]
    Off,
    /// The lines of dirty pages (selective persistence flushing): by [`Selective::List`] where it works, else by
    /// [`Selective::Scan`], else every line; [`MemoryController::search`](super::MemoryController::search) tells which.
    Auto,
    /// The lines of dirty pages, found by a walk over the page table of the range (`PAGEMAP_SCAN`, Linux 6.7): 15 us for
    /// 100 MB. The first store to a clean page takes about 1 us longer.
    Scan,
    /// The lines of dirty pages, from a list: a flush looks at no clean page. The first store to a clean page waits for a
    /// thread, 10 us and more. Memory of DAX files cannot be watched so; the process needs the right to use userfaultfd.
    List,
}

impl Selective {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Auto, Self::Scan, Self::List];

    /// The name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::Scan => "scan",
            Self::List => "list",
        }
    }
}

/// How a memory controller makes memory durable. It is a property of the opening, not of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOptions {
    /// The instruction that writes a line back (`M_FLUSH`). With [`FlushMethod::NonTemporal`] no thread may store to the
    /// range of a flush or persist during the call, or its store can be lost.
    pub method: FlushMethod,
    /// How [`MemoryController::flush`](super::MemoryController::flush) finds the lines to write back.
    pub selective: Selective,
    /// Delay after each fence, which stands for the time in which a memory controller without power-fail protection
    /// empties its buffers (`L_WBAR`).
    pub barrier: Duration,
}

impl Default for MemoryOptions {
    /// The best instruction of the processor, every line, no delay.
    fn default() -> Self {
        Self { method: FlushMethod::best(), selective: Selective::Off, barrier: Duration::ZERO }
    }
}

/// Properties and usage of a memory controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Name of the file.
    pub device: String,
    /// The memory behind the file.
    pub kind: MemoryKind,
    /// Identity of the pool that the controller belongs to; nil for a controller by itself.
    pub pool: Uuid,
    /// Memory that can be allocated.
    pub size: Bytes,
    /// Allocated memory.
    pub allocated: Bytes,
    /// Address at which the file is mapped.
    pub base: u64,
    /// The regions in order of their offsets.
    pub regions: Vec<MemoryRegion>,
}
