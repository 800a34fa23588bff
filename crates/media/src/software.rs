//! Operating systems: what the phases of a page fault take in software.
//!
//! Of a fault that goes to the drive, `entry` to `driver` come before the drive has the command,
//! `interrupt` to `map` after the data are in memory. `switch_away` runs while the drive works. One that
//! finds its page in memory takes `entry`, `lookup` and `map`.

use deepram_core::units::Picos;

use crate::model::{Fault, kind};

kind! {
    /// The software path of a page fault.
    Software = "software";
    parts {}
    fields {
        /// Exception, and the handler up to the mapping that the address belongs to.
        entry: Picos,
        /// Looking the page up in the page cache or the swap cache.
        lookup: Picos,
        /// Taking a page frame, reclaiming one if need be, and entering it in the cache.
        allocation: Picos,
        /// Building the request and passing it through the block layer.
        block: Picos,
        /// Driver: mapping for DMA, command, doorbell.
        driver: Picos,
        /// Switching away from the thread, while the drive works.
        switch_away: Picos,
        /// Delivery of the interrupt, and its handler's entry.
        interrupt: Picos,
        /// Completing the request: driver, block layer, page unlocked.
        completion: Picos,
        /// Making the thread runnable and choosing it.
        wake: Picos,
        /// Mean of an exponentially distributed wait beside the phases: soft interrupts, kernel threads,
        /// locks.
        wait: Picos,
        /// Whether the thread holds its core during the wait.
        wait_on_core: bool,
        /// Switching back to the thread.
        switch_back: Picos,
        /// Setting the page-table entry, and return.
        map: Picos,
        /// Each further page of a request: its frame, its place in the cache, its completion.
        extra_page: Picos,
    }
    derived {
        /// all phases of a fault that sleeps, without switch_away and wait
        path: Picos = |s| s.path().0 as f64,
        /// path + wait: mean software time of a fault that sleeps
        total: Picos = |s| s.total().0 as f64,
    }
}

impl Software {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.total().0 > 1_000_000_000_000 {
            return Err(Fault::new("wait", "the software of one fault would take more than a second"));
        }
        Ok(())
    }

    /// Software before the drive has the command.
    pub fn way_in(&self) -> Picos {
        self.entry + self.lookup + self.allocation + self.block + self.driver
    }

    /// Fixed software time of a fault that sleeps; `switch_away` is not in it, for the drive works then.
    pub fn path(&self) -> Picos {
        self.way_in() + self.interrupt + self.completion + self.wake + self.switch_back + self.map
    }

    /// Mean software time of a fault that sleeps. Its standard deviation is `wait`.
    pub fn total(&self) -> Picos {
        self.path() + self.wait
    }

    /// Software time of a fault that waits for the drive on its core, asking again and again.
    pub fn polled(&self) -> Picos {
        self.way_in() + self.completion + self.map
    }

    /// Software time of a fault that finds its page in memory.
    pub fn minor(&self) -> Picos {
        self.entry + self.lookup + self.map
    }

    /// The same software with another wait; none makes every fault alike.
    #[must_use]
    pub fn with_wait(&self, wait: Picos) -> Self {
        Self { wait, ..self.clone() }
    }
}
