//! Configuration of a server whose programs keep their data in byte-addressable persistent memory, in DRAM, or in files
//! on a drive (NVMM application study). The simulator implements the system.

use deepram_core::units::{Bytes, Picos};

use crate::disk::Disk;
use crate::model::{InvalidFigure, kind, words};
use crate::value::{Bandwidth, Factor, Fraction};

words! {
    /// Where the data are, and the file system above them.
    DataStore {
        /// Persistent memory with a file system that maps it directly.
        Pmfs = "pmfs",
        /// DRAM with a file system of pages, which loses everything at power loss.
        Tmpfs = "tmpfs",
        /// A solid-state drive with a journaling file system and a page cache.
        Ext4Ssd = "ext4-ssd",
        /// A hard disk with a journaling file system and a page cache.
        Ext4Disk = "ext4-disk",
    }
}

words! {
    /// The way in which a line is written back from the processor's caches.
    LineFlush {
        /// clflush: one line after the other; the line leaves the caches.
        Clflush = "clflush",
        /// clflushopt: overlapped; the line leaves the caches.
        Clflushopt = "clflushopt",
        /// clwb: overlapped; the line stays in the caches.
        Clwb = "clwb",
        /// Weakly ordered flush as the platform emulates it: a read and a non-temporal write; the line leaves the caches.
        Wof = "wof",
    }
}

words! {
    /// The lines of a range that a flush writes back.
    FlushedLines {
        /// All lines.
        Every = "every",
        /// Those of pages whose dirty bit is set (selective persistence flushing).
        Selective = "selective",
    }
}

words! {
    /// The files whose lines an fsync writes back on persistent memory.
    FsyncFlush {
        /// Mapped ones: data written by calls bypass the caches.
        Mapped = "mapped",
        /// All files.
        Always = "always",
    }
}

words! {
    /// What a program does at a store to its mapped data.
    Durability {
        /// Nothing.
        None = "none",
        /// It flushes all mapped data and waits.
        FsyncSafe = "fsync-safe",
        /// It first writes a record to a journal file.
        Journaled = "journaled",
    }
}

kind! {
    /// A server with persistent memory, DRAM, and a drive.
    Platform = "platform";
    parts {
        /// The hard disk of ext4-disk.
        disk: Disk,
    }
    fields {
        /// Where the data are.
        store: DataStore,
        /// Bytes of data that can be addressed.
        capacity: Bytes,
        /// Load latency of DRAM; also the least load latency of persistent memory.
        dram_latency: Picos,
        /// Bandwidth of DRAM, reads and writes together.
        dram_bandwidth: Bandwidth,
        /// Configured load latency of persistent memory (L_READ).
        read_latency: Picos,
        /// Bandwidth of persistent memory at full rate: reads, writes and flushes together.
        bandwidth: Bandwidth,
        /// Share of that bandwidth that is available (Th_BW), 1/16 to 1.
        throttle: Factor,
        /// Latency of a write barrier (L_WBAR).
        barrier: Picos,
        /// Way in which a line is written back (M_FLUSH).
        flush: LineFlush,
        /// Lines of a range that a flush writes back (M_SYNC).
        flushed: FlushedLines,
        /// Files whose lines an fsync writes back.
        fsync_flush: FsyncFlush,
        /// Number of cores.
        cores: u64,
        /// Caches of the processor, as one; 0 for none.
        cache: Bytes,
        /// Ways of the cache.
        cache_ways: u64,
        /// Time from a load to its data on a hit.
        cache_hit: Picos,
        /// Missing lines that a core fetches at once.
        overlap: u64,
        /// Rate at which a core moves bytes that are in its caches.
        copy: Bandwidth,
        /// Core time of a line written by non-temporal stores.
        nt_line: Picos,
        /// Time of a clflush, whether the line is in the caches or not.
        clflush: Picos,
        /// Whether clflushopt executes as clflush does.
        serial_clflushopt: bool,
        /// Time of a store fence.
        fence: Picos,
        /// Size of a page with a dirty bit.
        page: Bytes,
        /// Time to look at the dirty bit of a page.
        walk: Picos,
        /// Time to invalidate translations on all cores, once for each flush that clears dirty bits.
        shootdown: Picos,
        /// Time of a system call on a file, without data.
        call: Picos,
        /// Time of a page fault on a mapped page of a file on a drive.
        fault: Picos,
        /// Time that a file system with pages needs to find or to allocate a page of 4 KiB.
        page_lookup: Picos,
        /// Copies of the data that a call makes on tmpfs.
        tmpfs_copies: u64,
        /// Lines of metadata that a changing call on pmfs writes and flushes.
        metadata_lines: u64,
        /// Barriers of such a call.
        metadata_barriers: u64,
        /// Page cache of ext4.
        page_cache: Bytes,
        /// Bytes from address 0 that the drive holds at the start; all other data are in the page cache.
        stored: Bytes,
        /// Whether the page cache holds as many of these as it can at the start.
        warm: bool,
        /// Share of the page cache above which dirty pages are written in the background.
        background_dirty: Fraction,
        /// Share of the page cache above which writes wait for that.
        most_dirty: Fraction,
        /// Kernel time of a request to the drive.
        block_call: Picos,
        /// Blocks of 4 KiB of a journal commit before its commit block.
        commit_blocks: u64,
        /// Program's processor time before each request.
        program: Picos,
        /// Bytes from address 0 that the program has mapped; it accesses all others by system calls.
        mapped: Bytes,
        /// Bytes from address 0 that a flush without a range makes durable: the program's mapped files.
        sync: Bytes,
        /// What the program does at a store to mapped data.
        durability: Durability,
        /// Bytes of a journal record besides the stored ones.
        record_header: Bytes,
        /// Size of the journal file, which lies behind the mapped data.
        journal: Bytes,
        /// Interval at which the journal is made durable, which stores wait for; 0: a store waits until its record is written.
        group_commit: Picos,
        /// Buffer pool of a database in DRAM, below the log; 0 for none.
        pool: Bytes,
        /// Page of the buffer pool.
        pool_page: Bytes,
    }
    derived {
        /// bandwidth x throttle
        available_bandwidth: Bandwidth = |p| p.available_bandwidth().0,
        /// the larger of read_latency and dram_latency
        load_latency: Picos = |p| p.load_latency().0 as f64,
    }
}

impl Platform {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let fail = |key, message: &str| Err(InvalidFigure::new(key, message));
        if !(self.throttle.0 > 0.0 && self.throttle.0 <= 1.0) {
            return fail("throttle", "must be more than 0 and at most 1");
        }
        for (key, rate) in [
            ("bandwidth", self.available_bandwidth()),
            ("dram_bandwidth", self.dram_bandwidth),
            ("copy", self.copy),
        ] {
            // A line then takes at most 6.4 s, and no sum of times overflows.
            if rate.0 < 10.0 {
                return fail(key, "must be at least 10 B/s, after the throttle");
            }
        }
        if self.cores > 4096 || self.overlap > 4096 {
            return fail("cores", "cores and overlap must be at most 4096");
        }
        if !self.page.0.is_power_of_two() || self.page.0 < 4096 || self.page.0 > 1 << 30 {
            return fail("page", "must be a power of two, 4 KiB to 1 GiB");
        }
        if self.capacity.0 < 1 << 20 || self.capacity.0 > 1 << 44 {
            return fail("capacity", "must be 1 MiB to 16 TiB");
        }
        if self.page_cache.0 < 1 << 20 || self.page_cache.0 > 1 << 40 {
            return fail("page_cache", "must be 1 MiB to 1 TiB");
        }
        if self.background_dirty.0 > self.most_dirty.0 || self.most_dirty.0 > 0.9 {
            return fail("most_dirty", "must be at least background_dirty and at most 90 %");
        }
        if self.tmpfs_copies > 16 || self.commit_blocks > 1 << 16 {
            return fail("tmpfs_copies", "tmpfs_copies must be at most 16, commit_blocks at most 65536");
        }
        if self.metadata_lines > 1 << 16 || self.metadata_barriers > 1 << 16 {
            return fail("metadata_lines", "metadata_lines and metadata_barriers must be at most 65536");
        }
        if self.mapped.0 > self.capacity.0 || self.stored.0 > self.capacity.0 || self.sync.0 > self.capacity.0
        {
            return fail("mapped", "mapped, sync and stored must be at most the capacity");
        }
        let record = self.record_header.0 + 4096;
        if self.durability == Durability::Journaled
            && (self.journal.0 < record || self.mapped.0.saturating_add(self.journal.0) > self.capacity.0)
        {
            return fail("journal", "must hold a record, and fit behind the mapped data into the capacity");
        }
        let page = self.pool_page.0;
        if self.pool.0 > 0
            && (page < 4096 || !page.is_multiple_of(4096) || page > self.pool.0 || page > 1 << 20)
        {
            return fail("pool_page", "must be a multiple of 4 KiB, at most 1 MiB and at most the pool");
        }
        Ok(())
    }

    /// The bandwidth of persistent memory under its throttle.
    pub fn available_bandwidth(&self) -> Bandwidth {
        Bandwidth(self.bandwidth.0 * self.throttle.0)
    }

    /// The load latency of persistent memory: as configured, but not below that of DRAM, of which it is made
    /// (section III-A).
    pub fn load_latency(&self) -> Picos {
        Picos(self.read_latency.0.max(self.dram_latency.0))
    }

    /// Whether the data are on a drive.
    pub fn on_drive(&self) -> bool {
        matches!(self.store, DataStore::Ext4Ssd | DataStore::Ext4Disk)
    }
}
