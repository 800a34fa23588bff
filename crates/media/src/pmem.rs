//! Measured persistent-memory modules: idle latencies and bandwidths.
//!
//! A module works on module lines (256 B) behind a small write buffer, so a smaller access still takes
//! the bandwidth of a whole module line. The write latency by size has three parameters, fitted to seven
//! measurements: the first line, each further line, and each whole module line.
//!
//! The study reports two latencies for a fenced write of one line, 90 and 125 ns (ntstore), from two
//! experiments whose data do not explain the difference. Both are modelled: [`Pmem::lone_line`] is the
//! paper's best case, [`Pmem::write`] the series over sizes, taken as a run of writes (assumed).

use deepram_core::units::{Bytes, Picos};

use crate::model::{InvalidFigure, kind, words};
use crate::value::{Bandwidth, Factor};

words! {
    /// Instructions that make a write durable.
    WriteMethod {
        /// Non-temporal stores and a fence.
        NtStore = "ntstore",
        /// Stores, a write-back of each line (clwb), and a fence.
        Clwb = "clwb",
    }
}

kind! {
    /// Interleaved persistent-memory modules.
    Pmem = "pmem";
    parts {}
    fields {
        /// Size of the processor's line.
        line: Bytes,
        /// Size of a module line: the module's unit of access.
        module_line: Bytes,
        /// Number of interleaved modules.
        modules: u64,
        /// Idle read latency of the line after the last one.
        read_sequential: Picos,
        /// Idle read latency of a random line.
        read_random: Picos,
        /// Sequential read bandwidth of one thread.
        thread_read: Bandwidth,
        /// Latency of one isolated, fenced line by non-temporal store on an idle module.
        lone_ntstore: Picos,
        /// Latency of one isolated, fenced line by store and write-back on an idle module.
        lone_clwb: Picos,
        /// Run of fenced writes by non-temporal stores: time of the first line of each write.
        ntstore_first: Picos,
        /// Run of fenced writes by non-temporal stores: time of each further line.
        ntstore_line: Picos,
        /// Run of fenced writes by non-temporal stores: additional time of each whole module line.
        ntstore_module_line: Picos,
        /// Run of fenced writes by store and write-back: time of the first line of each write.
        clwb_first: Picos,
        /// Run of fenced writes by store and write-back: time of each further line.
        clwb_line: Picos,
        /// Run of fenced writes by store and write-back: additional time of each whole module line.
        clwb_module_line: Picos,
        /// Read bandwidth of one module, in whole module lines.
        module_read: Bandwidth,
        /// Write bandwidth of one module by non-temporal stores, in whole module lines.
        module_ntstore: Bandwidth,
        /// Write bandwidth of one module by store and write-back, in whole module lines.
        module_clwb: Bandwidth,
        /// Write bandwidth of one module in single lines at random by store and write-back.
        module_clwb_line: Bandwidth,
        /// Accesses of all threads under way in all modules, for accesses of `interleave` bytes.
        outstanding: Factor,
        /// Consecutive bytes of one module.
        interleave: Bytes,
        /// Exponent with which the accesses under way grow as their size differs from `interleave`, to either side.
        outstanding_growth: Factor,
    }
    derived {
        /// modules x module_read
        peak_read: Bandwidth = |p| p.module_read.0 * p.modules as f64,
        /// modules x module_ntstore
        peak_ntstore: Bandwidth = |p| p.module_ntstore.0 * p.modules as f64,
    }
}

impl Pmem {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if self.line.0 == 0 || self.line.0 > 1 << 20 {
            return Err(InvalidFigure::new("line", "must be 1 B to 1 MiB"));
        }
        if self.module_line.0 == 0 || !self.module_line.0.is_multiple_of(self.line.0) {
            return Err(InvalidFigure::new("module_line", "must be a multiple of the line"));
        }
        if self.interleave.0 == 0 || self.outstanding.0 < 1.0 || self.outstanding_growth.0 > 2.0 {
            return Err(InvalidFigure::new(
                "outstanding",
                "must be at least 1, with an interleave of 1 B or more and a growth of at most 2",
            ));
        }
        if self.thread_read.0 < 1.0 {
            return Err(InvalidFigure::new("thread_read", "must be at least 1 B/s"));
        }
        Ok(())
    }

    /// Idle latency of a read of `bytes` by one thread: the first line as measured, the others at the
    /// thread's sequential bandwidth.
    pub fn read(&self, bytes: Bytes, sequential: bool) -> Picos {
        let lines = bytes.0.div_ceil(self.line.0);
        if lines == 0 {
            return Picos(0);
        }
        let first = if sequential { self.read_sequential } else { self.read_random };
        let others = (lines - 1) as f64 * self.line.0 as f64 / self.thread_read.0 * 1e12;
        first + Picos(others.round() as u64)
    }

    /// Latency of one isolated, fenced line on an idle module. A line in a run of writes takes longer:
    /// see [`Pmem::write`].
    pub fn lone_line(&self, method: WriteMethod) -> Picos {
        match method {
            WriteMethod::NtStore => self.lone_ntstore,
            WriteMethod::Clwb => self.lone_clwb,
        }
    }

    /// Time of one fenced write of `bytes` in a run of such writes by one thread.
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

    /// Read bandwidth of all modules in random accesses of `bytes`: the media
    /// transfer whole module lines, of which only `bytes` are used.
    pub fn read_bandwidth(&self, bytes: Bytes) -> Bandwidth {
        Bandwidth(self.module_read.0 * self.spread(bytes) * self.used_share(bytes))
    }

    /// Write bandwidth of all modules in random writes of `bytes`.
    pub fn write_bandwidth(&self, method: WriteMethod, bytes: Bytes) -> Bandwidth {
        let module = match method {
            WriteMethod::NtStore => self.module_ntstore,
            WriteMethod::Clwb if bytes <= self.line => {
                let used = bytes.0 as f64 / self.line.0 as f64;
                return Bandwidth(self.module_clwb_line.0 * self.spread(bytes) * used);
            }
            WriteMethod::Clwb => self.module_clwb,
        };
        Bandwidth(module.0 * self.spread(bytes) * self.used_share(bytes))
    }

    /// Modules that work on average under random accesses of `bytes`. Modules and accesses are a balanced closed queueing
    /// network: of n accesses under way and m modules, mn / (m + n - 1) modules are busy.
    fn spread(&self, bytes: Bytes) -> f64 {
        let (modules, ratio) = (self.modules as f64, bytes.0.max(1) as f64 / self.interleave.0 as f64);
        let under_way = self.outstanding.0 * ratio.max(1.0 / ratio).powf(self.outstanding_growth.0);
        modules * under_way / (modules + under_way - 1.0)
    }

    /// Share of the module lines' bytes that an aligned access of `bytes` uses.
    fn used_share(&self, bytes: Bytes) -> f64 {
        let moved = bytes.0.div_ceil(self.module_line.0).saturating_mul(self.module_line.0);
        if moved == 0 { 0.0 } else { bytes.0 as f64 / moved as f64 }
    }
}
