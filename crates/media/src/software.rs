//! Operating systems: software time of the phases of a page fault (NVMM, Software Overhead).
//!
//! In a major fault, the phases `entry` to `driver` precede the drive's command, and `interrupt` to
//! `map` follow the arrival of the data in memory; `switch_away` overlaps the drive's work. A minor
//! fault, whose page is in memory, takes `entry`, `lookup` and `map`.

use deepram_core::units::Picos;

use crate::model::{InvalidFigure, kind};

kind! {
    /// The software path of a page fault.
    Software = "software";
    parts {}
    fields {
        /// Exception entry, and the lookup of the address's mapping.
        entry: Picos,
        /// Lookup of the page in the page cache or the swap cache.
        lookup: Picos,
        /// Allocating (if necessary reclaiming) a page frame, and its insertion into the cache.
        allocation: Picos,
        /// Building the request, and the block layer.
        block: Picos,
        /// Driver: DMA mapping, command, doorbell.
        driver: Picos,
        /// Context switch away from the thread, while the drive works.
        switch_away: Picos,
        /// Interrupt delivery and handler entry.
        interrupt: Picos,
        /// Completion of the request: driver, block layer, unlocking of the page.
        completion: Picos,
        /// Wake-up and scheduling of the thread.
        wake: Picos,
        /// Mean of an additional, exponentially distributed wait: soft interrupts, kernel threads,
        /// locks.
        wait: Picos,
        /// Whether the thread occupies its core during the wait.
        wait_on_core: bool,
        /// Context switch back to the thread.
        switch_back: Picos,
        /// Setting the page-table entry, and return from the exception.
        map: Picos,
        /// Each further page of a request: its frame, insertion into the cache, and completion.
        extra_page: Picos,
    }
    derived {
        /// all phases of a major fault, without switch_away and wait
        path: Picos = |s| s.path().0 as f64,
        /// path + wait: mean software time of a major fault
        total: Picos = |s| s.total().0 as f64,
    }
}

impl Software {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if self.total().0 > 1_000_000_000_000 {
            return Err(InvalidFigure::new(
                "wait",
                "the software time of one fault must be at most one second",
            ));
        }
        Ok(())
    }

    /// Software time before the drive receives the command.
    pub fn submission(&self) -> Picos {
        self.entry + self.lookup + self.allocation + self.block + self.driver
    }

    /// Fixed software time of a major fault, without `switch_away`, which overlaps the drive's work.
    pub fn path(&self) -> Picos {
        self.submission() + self.interrupt + self.completion + self.wake + self.switch_back + self.map
    }

    /// Mean software time of a major fault. Its standard deviation is `wait`.
    pub fn total(&self) -> Picos {
        self.path() + self.wait
    }

    /// Software time of a major fault that polls the drive.
    pub fn polled(&self) -> Picos {
        self.submission() + self.completion + self.map
    }

    /// Software time of a minor fault.
    pub fn minor(&self) -> Picos {
        self.entry + self.lookup + self.map
    }

    /// The same software path with another mean wait; with 0 every fault takes the same time.
    #[must_use]
    pub fn with_wait(&self, wait: Picos) -> Self {
        Self { wait, ..self.clone() }
    }
}
