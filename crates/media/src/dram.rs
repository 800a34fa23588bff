//! DRAM: geometry, bank timing, refresh, and energy from data-sheet currents.
//!
//! Energies follow the usual method for data-sheet currents: what an operation draws beyond the standby
//! current of the state it happens in. The currents are those of one device; a rank's devices work
//! together. Termination and the controller's side of the bus are not in it.

use deepram_core::units::{Bytes, Picos};

use crate::energy::Energy;
use crate::model::{Fault, kind};
use crate::value::{Amperes, Bandwidth, Price, TransferRate, Volts, Watts, Year};

kind! {
    /// A memory of DRAM channels.
    Dram = "dram";
    parts {}
    fields {
        /// Channels, each with a bus of its own.
        channels: u64,
        /// Ranks on a channel.
        ranks: u64,
        /// Banks of a device, those of all bank groups together.
        banks: u64,
        /// Bank groups of a device.
        bank_groups: u64,
        /// Rows of a bank.
        rows: u64,
        /// Columns of a row, each as wide as the device.
        columns: u64,
        /// Data bits of a device.
        device_width: u64,
        /// Data bits of the channel.
        bus_width: u64,
        /// Transfers of a burst.
        burst: u64,
        /// Transfers a second on each data wire.
        rate: TransferRate,
        /// Clock period.
        t_ck: Picos,
        /// Column command to first data of a read.
        t_cl: Picos,
        /// Column command to first data of a write.
        t_cwl: Picos,
        /// Row open to column command.
        t_rcd: Picos,
        /// Row close to row open.
        t_rp: Picos,
        /// Row open to row close.
        t_ras: Picos,
        /// End of write data to row close.
        t_wr: Picos,
        /// Column command to column command, same bank group.
        t_ccd: Picos,
        /// Row open to row open, different banks.
        t_rrd: Picos,
        /// Window of at most four row opens.
        t_faw: Picos,
        /// Time of a refresh command.
        t_rfc: Picos,
        /// Time between refresh commands.
        t_refi: Picos,
        /// Supply voltage.
        supply: Volts,
        /// IDD0: one bank opened and closed over and over.
        idd0: Amperes,
        /// IDD2P: all banks closed, powered down.
        idd2p: Amperes,
        /// IDD2N: all banks closed, standing by.
        idd2n: Amperes,
        /// IDD3N: a row open, standing by.
        idd3n: Amperes,
        /// IDD4R: reading without pause.
        idd4r: Amperes,
        /// IDD4W: writing without pause.
        idd4w: Amperes,
        /// IDD5: refreshing without pause.
        idd5: Amperes,
        /// IDD6: self refresh.
        idd6: Amperes,
        /// The one read latency that a study gives for the whole memory, if it does.
        flat_read: Option<Picos>,
        /// The one write latency that a study gives for the whole memory, if it does.
        flat_write: Option<Picos>,
        /// Price of the capacity.
        price: Option<Price>,
        /// Year of the price.
        price_year: Option<Year>,
    }
    derived {
        /// columns x bus width
        row_size: Bytes = |d| d.row_bytes().0 as f64,
        /// channels x ranks x banks x rows x row size
        capacity: Bytes = |d| d.total_capacity().0 as f64,
        /// channels x bus width x rate
        bandwidth: Bandwidth = |d| d.peak_bandwidth(),
        /// burst over rate
        burst_time: Picos = |d| d.burst_span().0 as f64,
        /// t_ras + t_rp
        t_rc: Picos = |d| d.row_cycle().0 as f64,
        /// refresh energy over t_refi, of all ranks
        refresh_power: Watts = |d| d.refresh_power(d.total_ranks()).0,
    }
}

/// What a request finds in its bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowState {
    /// Its row is open.
    Hit,
    /// No row is open.
    Closed,
    /// Another row is open and must be closed first.
    Conflict,
}

/// What a rank does while nobody uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Background {
    /// A row open (IDD3N).
    Active,
    /// All rows closed (IDD2N).
    Standby,
    /// Powered down (IDD2P).
    PowerDown,
    /// Self refresh (IDD6), which includes its refresh.
    SelfRefresh,
}

impl Dram {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if !matches!(self.device_width, 4 | 8 | 16 | 32) {
            return Err(Fault::new("device_width", "must be 4, 8, 16 or 32 bit"));
        }
        if !self.bus_width.is_multiple_of(self.device_width) || self.bus_width > 1024 {
            return Err(Fault::new(
                "bus_width",
                format!("must be a multiple of the device width, {} bit, up to 1024", self.device_width),
            ));
        }
        if !self.banks.is_multiple_of(self.bank_groups) {
            return Err(Fault::new("bank_groups", "must divide the banks"));
        }
        if self.burst > 64 {
            return Err(Fault::new("burst", "must be at most 64 transfers"));
        }
        let clock = 2e12 / self.rate.0 as f64;
        if self.t_ck.0 == 0 || (self.t_ck.0 as f64 - clock).abs() > 0.002 * clock {
            return Err(Fault::new("t_ck", format!("two transfers a clock make {clock:.0} ps")));
        }
        if self.t_refi <= self.t_rfc {
            return Err(Fault::new("t_refi", "must be longer than t_rfc"));
        }
        for (key, more, less) in [
            ("idd0", self.idd0, self.idd2n),
            ("idd3n", self.idd3n, self.idd2n),
            ("idd2n", self.idd2n, self.idd2p),
            ("idd4r", self.idd4r, self.idd3n),
            ("idd4w", self.idd4w, self.idd3n),
            ("idd5", self.idd5, self.idd3n),
        ] {
            if more.0 < less.0 {
                return Err(Fault::new(key, "is below the standby current that it includes"));
            }
        }
        let row = self.columns.checked_mul(self.bus_width / 8);
        let total = [self.channels, self.ranks, self.banks, self.rows]
            .iter()
            .try_fold(row.unwrap_or(u64::MAX), |bytes, n| bytes.checked_mul(*n));
        if total.is_none_or(|bytes| bytes > 1 << 60) {
            return Err(Fault::new("rows", "the memory would exceed 2^60 bytes"));
        }
        if self.price.is_some() != self.price_year.is_some() {
            return Err(Fault::new("price_year", "a price needs its year, and a year its price"));
        }
        Ok(())
    }

    /// Bytes of a row across the devices of a rank.
    pub fn row_bytes(&self) -> Bytes {
        Bytes(self.columns * self.bus_width / 8)
    }

    /// Bytes of a rank.
    pub fn rank_capacity(&self) -> Bytes {
        Bytes(self.row_bytes().0 * self.banks * self.rows)
    }

    /// Bytes of all channels.
    pub fn total_capacity(&self) -> Bytes {
        Bytes(self.rank_capacity().0 * self.total_ranks())
    }

    /// Ranks of all channels.
    pub fn total_ranks(&self) -> u64 {
        self.channels * self.ranks
    }

    /// Ranks that a memory of `capacity` bytes is built of, rounded up.
    pub fn ranks_for(&self, capacity: Bytes) -> u64 {
        capacity.0.div_ceil(self.rank_capacity().0)
    }

    /// Bytes a second of all channels.
    pub fn peak_bandwidth(&self) -> f64 {
        self.channels as f64 * self.bus_width as f64 / 8.0 * self.rate.0 as f64
    }

    /// Bytes of a burst.
    pub fn burst_bytes(&self) -> Bytes {
        Bytes(self.burst * self.bus_width / 8)
    }

    /// Time of a burst on the bus, to the nearest picosecond.
    pub fn burst_span(&self) -> Picos {
        let rate = u128::from(self.rate.0);
        let ps = (u128::from(self.burst) * 1_000_000_000_000 + rate / 2) / rate;
        Picos(ps as u64)
    }

    /// Row open to next row open of the same bank.
    pub fn row_cycle(&self) -> Picos {
        self.t_ras + self.t_rp
    }

    /// Time of one burst on an idle channel, from its first command to the end of its data.
    pub fn access(&self, row: RowState, write: bool) -> Picos {
        let column = if write { self.t_cwl } else { self.t_cl } + self.burst_span();
        match row {
            RowState::Hit => column,
            RowState::Closed => self.t_rcd + column,
            RowState::Conflict => self.t_rp + self.t_rcd + column,
        }
    }

    /// Time of `bytes` from one row: the first burst as [`Dram::access`], the others behind it at the
    /// pace of the bus.
    pub fn stream(&self, row: RowState, write: bool, bytes: Bytes) -> Picos {
        let bursts = bytes.0.div_ceil(self.burst_bytes().0);
        if bursts == 0 {
            return Picos(0);
        }
        // Column commands of one bank group may be slower than the bus.
        let pace = self.burst_span().max(self.t_ccd);
        self.access(row, write) + pace.times(bursts - 1)
    }

    /// Share of time in which a rank is refreshing.
    pub fn refresh_share(&self) -> f64 {
        self.t_rfc.0 as f64 / self.t_refi.0 as f64
    }

    /// Mean wait of a request that arrives at a random moment for a refresh to end, in picoseconds:
    /// the share of time in refresh x half its length.
    pub fn refresh_wait(&self) -> f64 {
        self.refresh_share() * self.t_rfc.0 as f64 / 2.0
    }

    fn devices(&self) -> f64 {
        (self.bus_width / self.device_width) as f64
    }

    /// `current` of every device of a rank over `time`.
    fn draw(&self, current: f64, time: Picos) -> Energy {
        Energy(self.supply.0 * current * self.devices() * time.0 as f64)
    }

    /// Energy of opening and closing a row of a rank: IDD0 over t_rc less IDD3N over t_ras and IDD2N
    /// over t_rp.
    pub fn row_energy(&self) -> Energy {
        let standby = self.draw(self.idd3n.0, self.t_ras) + self.draw(self.idd2n.0, self.t_rp);
        // A part whose IDD0 is below its standby mix spends nothing more on the row, and never less.
        Energy((self.draw(self.idd0.0, self.row_cycle()).0 - standby.0).max(0.0))
    }

    /// Energy of one burst beyond standby with an open row.
    pub fn burst_energy(&self, write: bool) -> Energy {
        let current = if write { self.idd4w } else { self.idd4r };
        self.draw(current.0 - self.idd3n.0, self.burst_span())
    }

    /// Energy of one refresh command of a rank beyond standby.
    pub fn refresh_energy(&self) -> Energy {
        self.draw(self.idd5.0 - self.idd3n.0, self.t_rfc)
    }

    /// Refresh power of `ranks` ranks; it grows with the capacity.
    pub fn refresh_power(&self, ranks: u64) -> Watts {
        Watts(self.refresh_energy().0 / self.t_refi.0 as f64 * ranks as f64)
    }

    /// Power of `ranks` ranks that nobody uses, refresh included.
    pub fn background_power(&self, state: Background, ranks: u64) -> Watts {
        let current = match state {
            Background::Active => self.idd3n,
            Background::Standby => self.idd2n,
            Background::PowerDown => self.idd2p,
            Background::SelfRefresh => self.idd6,
        };
        let standing = self.supply.0 * current.0 * self.devices() * ranks as f64;
        match state {
            Background::SelfRefresh => Watts(standing),
            _ => Watts(standing + self.refresh_power(ranks).0),
        }
    }
}
