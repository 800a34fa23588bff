//! Measured persistent memory: idle latencies and what a module can move.
//!
//! The module works on lines of its own (256 B) behind a small write buffer, so a smaller access still
//! costs one of them in bandwidth. Write latency by size is three numbers fitted to seven measurements:
//! the first line, each further line, and each whole module line.
//!
//! The study has two figures for a fenced write of one line, 90 and 125 ns (ntstore), in two
//! experiments whose data do not say what sets them apart. Both are kept: [`Pmem::lone_line`] is the
//! one called best case, [`Pmem::write`] the series over sizes, taken to be a run of writes (assumed).

use deepram_core::units::{Bytes, Picos};

use crate::model::{Fault, kind, words};
use crate::value::Bandwidth;

words! {
    /// How software makes a write durable.
    WriteMethod {
        /// Non-temporal stores and a fence.
        NtStore = "ntstore",
        /// Stores, a write-back of each line, and a fence.
        Clwb = "clwb",
    }
}

kind! {
    /// One persistent-memory module, and how many of them are interleaved.
    Pmem = "pmem";
    parts {}
    fields {
        /// Bytes of the processor's line.
        line: Bytes,
        /// Bytes that the module works on at once.
        module_line: Bytes,
        /// Modules that addresses are interleaved over.
        modules: u64,
        /// Idle read of a line that follows the last one.
        read_sequential: Picos,
        /// Idle read of a line somewhere else.
        read_random: Picos,
        /// Bytes a second that one thread reads in order.
        thread_read: Bandwidth,
        /// One line alone by non-temporal store, fenced, on an idle module.
        lone_ntstore: Picos,
        /// One line alone by store and write-back, fenced, on an idle module.
        lone_clwb: Picos,
        /// In a run of fenced writes by non-temporal stores: the first line of each.
        ntstore_first: Picos,
        /// In such a run: each further line.
        ntstore_line: Picos,
        /// In such a run: each whole module line.
        ntstore_module_line: Picos,
        /// In a run of fenced writes by store and write-back: the first line of each.
        clwb_first: Picos,
        /// In such a run: each further line.
        clwb_line: Picos,
        /// In such a run: each whole module line.
        clwb_module_line: Picos,
        /// Bytes a second that one module reads in whole module lines.
        module_read: Bandwidth,
        /// Bytes a second that one module takes by non-temporal stores in whole module lines.
        module_ntstore: Bandwidth,
        /// Bytes a second that one module takes by store and write-back in whole module lines.
        module_clwb: Bandwidth,
    }
    derived {
        /// modules x what one of them reads
        peak_read: Bandwidth = |p| p.module_read.0 * p.modules as f64,
        /// modules x what one of them takes by non-temporal stores
        peak_ntstore: Bandwidth = |p| p.module_ntstore.0 * p.modules as f64,
    }
}

impl Pmem {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.line.0 == 0 || self.line.0 > 1 << 20 {
            return Err(Fault::new("line", "must be 1 B to 1 MiB"));
        }
        if self.module_line.0 == 0 || !self.module_line.0.is_multiple_of(self.line.0) {
            return Err(Fault::new("module_line", "must be a multiple of the line"));
        }
        if self.thread_read.0 < 1.0 {
            return Err(Fault::new("thread_read", "must be at least 1 B/s"));
        }
        Ok(())
    }

    /// Idle read of `bytes` by one thread: the first line as measured, the others at the pace of one
    /// thread's stream.
    pub fn read(&self, bytes: Bytes, sequential: bool) -> Picos {
        let lines = bytes.0.div_ceil(self.line.0);
        if lines == 0 {
            return Picos(0);
        }
        let first = if sequential { self.read_sequential } else { self.read_random };
        let others = (lines - 1) as f64 * self.line.0 as f64 / self.thread_read.0 * 1e12;
        first + Picos(others.round() as u64)
    }

    /// One fenced line, alone on an idle module. In a run of writes a line costs more: see
    /// [`Pmem::write`].
    pub fn lone_line(&self, method: WriteMethod) -> Picos {
        match method {
            WriteMethod::NtStore => self.lone_ntstore,
            WriteMethod::Clwb => self.lone_clwb,
        }
    }

    /// One fenced write of `bytes` in a run of such writes by one thread.
    pub fn write(&self, method: WriteMethod, bytes: Bytes) -> Picos {
        let (first, line, module_line) = match method {
            WriteMethod::NtStore => (self.ntstore_first, self.ntstore_line, self.ntstore_module_line),
            WriteMethod::Clwb => (self.clwb_first, self.clwb_line, self.clwb_module_line),
        };
        let lines = bytes.0.div_ceil(self.line.0);
        if lines == 0 {
            return Picos(0);
        }
        first + line.times(lines - 1) + module_line.times(bytes.0 / self.module_line.0)
    }

    /// Bytes a second that the modules read in accesses of `bytes` at random places: whole module lines
    /// cross the media, and only `bytes` of them are wanted.
    pub fn read_bandwidth(&self, bytes: Bytes) -> f64 {
        self.module_read.0 * self.modules as f64 * self.wanted(bytes)
    }

    /// Bytes a second that the modules take in writes of `bytes` at random places.
    pub fn write_bandwidth(&self, method: WriteMethod, bytes: Bytes) -> f64 {
        let module = match method {
            WriteMethod::NtStore => self.module_ntstore,
            WriteMethod::Clwb => self.module_clwb,
        };
        module.0 * self.modules as f64 * self.wanted(bytes)
    }

    /// Share of the module lines' bytes that an aligned access of `bytes` wants.
    fn wanted(&self, bytes: Bytes) -> f64 {
        let moved = bytes.0.div_ceil(self.module_line.0).saturating_mul(self.module_line.0);
        if moved == 0 { 0.0 } else { bytes.0 as f64 / moved as f64 }
    }
}
