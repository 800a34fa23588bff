//! DRAM: geometry, bank timing, refresh, and energy from data-sheet currents.
//!
//! Energies follow the usual method for data-sheet currents: the energy of an operation is its current
//! minus the standby current of the state it happens in. The currents are those of one device; all
//! devices of a rank work together. Termination and the controller's side of the bus are not included.

use deepram_core::units::{Bytes, Picos};

use crate::energy::Energy;
use crate::model::{InvalidFigure, check_price, kind};
use crate::value::{Amperes, Bandwidth, Price, TransferRate, Volts, Watts, Year};

kind! {
    /// A DRAM memory of one or more channels.
    Dram = "dram";
    parts {}
    fields {
        /// Channels, each with its own bus.
        channels: u64,
        /// Ranks of a channel.
        ranks: u64,
        /// Banks of a device, of all bank groups together.
        banks: u64,
        /// Bank groups of a device.
        bank_groups: u64,
        /// Rows of a bank.
        rows: u64,
        /// Columns of a row, each `device_width` wide.
        columns: u64,
        /// Data bits of a device.
        device_width: u64,
        /// Data bits of the channel.
        bus_width: u64,
        /// Burst length, in transfers.
        burst: u64,
        /// Transfer rate of each data wire.
        rate: TransferRate,
        /// Clock period.
        t_ck: Picos,
        /// Read command to first data.
        t_cl: Picos,
        /// Write command to first data.
        t_cwl: Picos,
        /// Activate to read or write command.
        t_rcd: Picos,
        /// Precharge to activate.
        t_rp: Picos,
        /// Activate to precharge.
        t_ras: Picos,
        /// End of write data to precharge.
        t_wr: Picos,
        /// Column command to column command in one bank group.
        t_ccd: Picos,
        /// Activate to activate of different banks.
        t_rrd: Picos,
        /// Window in which at most four activates are allowed.
        t_faw: Picos,
        /// Duration of a refresh command.
        t_rfc: Picos,
        /// Interval between refresh commands.
        t_refi: Picos,
        /// Supply voltage.
        supply: Volts,
        /// IDD0: one bank activated and precharged repeatedly.
        idd0: Amperes,
        /// IDD2P: precharge power-down.
        idd2p: Amperes,
        /// IDD2N: precharge standby.
        idd2n: Amperes,
        /// IDD3N: active standby.
        idd3n: Amperes,
        /// IDD4R: continuous burst read.
        idd4r: Amperes,
        /// IDD4W: continuous burst write.
        idd4w: Amperes,
        /// IDD5: continuous refresh.
        idd5: Amperes,
        /// IDD6: self refresh.
        idd6: Amperes,
        /// Fixed read latency, if a study states one for the whole memory.
        flat_read: Option<Picos>,
        /// Fixed write latency, if a study states one for the whole memory.
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
        bandwidth: Bandwidth = |d| d.peak_bandwidth().0,
        /// burst over rate
        burst_time: Picos = |d| d.burst_span().0 as f64,
        /// t_ras + t_rp
        t_rc: Picos = |d| d.row_cycle().0 as f64,
        /// refresh energy over t_refi, of all ranks
        refresh_power: Watts = |d| d.refresh_power(d.total_ranks()).0,
    }
}

/// The state of the row buffer when a request reaches its bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowState {
    /// The request's row is open.
    Hit,
    /// No row is open.
    Closed,
    /// Another row is open and must be precharged first.
    Conflict,
}

/// The state of an unused rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Background {
    /// A row open (IDD3N).
    Active,
    /// All rows closed (IDD2N).
    Standby,
    /// Powered down (IDD2P).
    PowerDown,
    /// Self refresh (IDD6); the current includes the refresh.
    SelfRefresh,
}

impl Dram {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if !matches!(self.device_width, 4 | 8 | 16 | 32) {
            return Err(InvalidFigure::new("device_width", "must be 4, 8, 16 or 32 bit"));
        }
        if !self.bus_width.is_multiple_of(self.device_width) || self.bus_width > 1024 {
            return Err(InvalidFigure::new(
                "bus_width",
                format!("must be a multiple of the device width, {} bit, up to 1024", self.device_width),
            ));
        }
        if !self.banks.is_multiple_of(self.bank_groups) {
            return Err(InvalidFigure::new("bank_groups", "must divide the banks"));
        }
        if self.burst > 64 {
            return Err(InvalidFigure::new("burst", "must be at most 64 transfers"));
        }
        let clock = 2e12 / self.rate.0 as f64;
        if self.t_ck.0 == 0 || (self.t_ck.0 as f64 - clock).abs() > 0.002 * clock {
            return Err(InvalidFigure::new("t_ck", format!("two transfers a clock make {clock:.0} ps")));
        }
        if self.t_refi <= self.t_rfc {
            return Err(InvalidFigure::new("t_refi", "must be longer than t_rfc"));
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
                return Err(InvalidFigure::new(
                    key,
                    "must not be below the standby current that it includes",
                ));
            }
        }
        let row = self.columns.checked_mul(self.bus_width / 8);
        let total = [self.channels, self.ranks, self.banks, self.rows]
            .iter()
            .try_fold(row.unwrap_or(u64::MAX), |bytes, n| bytes.checked_mul(*n));
        if total.is_none_or(|bytes| bytes > 1 << 60) {
            return Err(InvalidFigure::new("rows", "the memory would exceed 2^60 bytes"));
        }
        check_price(self.price, self.price_year)
    }

    /// Size of a row across the devices of a rank.
    pub fn row_bytes(&self) -> Bytes {
        Bytes(self.columns * self.bus_width / 8)
    }

    /// Capacity of a rank.
    pub fn rank_capacity(&self) -> Bytes {
        Bytes(self.row_bytes().0 * self.banks * self.rows)
    }

    /// Capacity of all channels.
    pub fn total_capacity(&self) -> Bytes {
        Bytes(self.rank_capacity().0 * self.total_ranks())
    }

    /// Number of ranks of all channels.
    pub fn total_ranks(&self) -> u64 {
        self.channels * self.ranks
    }

    /// Number of ranks of a memory of `capacity` bytes, rounded up.
    pub fn ranks_for(&self, capacity: Bytes) -> u64 {
        capacity.0.div_ceil(self.rank_capacity().0)
    }

    /// Peak bandwidth of all channels.
    pub fn peak_bandwidth(&self) -> Bandwidth {
        Bandwidth(self.channels as f64 * self.bus_width as f64 / 8.0 * self.rate.0 as f64)
    }

    /// Size of a burst.
    pub fn burst_bytes(&self) -> Bytes {
        Bytes(self.burst * self.bus_width / 8)
    }

    /// Bus time of a burst, to the nearest picosecond.
    pub fn burst_span(&self) -> Picos {
        let rate = u128::from(self.rate.0);
        let ps = (u128::from(self.burst) * 1_000_000_000_000 + rate / 2) / rate;
        Picos(ps as u64)
    }

    /// Activate to activate of the same bank (t_RC).
    pub fn row_cycle(&self) -> Picos {
        self.t_ras + self.t_rp
    }

    /// Latency of one burst on an idle channel, from its first command to the end of its data.
    pub fn access(&self, row: RowState, write: bool) -> Picos {
        let column = if write { self.t_cwl } else { self.t_cl } + self.burst_span();
        match row {
            RowState::Hit => column,
            RowState::Closed => self.t_rcd + column,
            RowState::Conflict => self.t_rp + self.t_rcd + column,
        }
    }

    /// Latency of `bytes` from one row: the first burst as [`Dram::access`], then the other bursts at
    /// the bus rate.
    pub fn stream(&self, row: RowState, write: bool, bytes: Bytes) -> Picos {
        let bursts = bytes.0.div_ceil(self.burst_bytes().0);
        if bursts == 0 {
            return Picos(0);
        }
        // t_ccd of one bank group can be longer than a burst on the bus.
        let pace = self.burst_span().max(self.t_ccd);
        self.access(row, write) + pace.times(bursts - 1)
    }

    /// Share of time in which a rank is refreshing.
    pub fn refresh_share(&self) -> f64 {
        self.t_rfc.0 as f64 / self.t_refi.0 as f64
    }

    /// Mean wait of a request for a refresh to end, in picoseconds, with a random arrival time: the
    /// share of time in refresh x half its duration.
    pub fn refresh_wait(&self) -> f64 {
        self.refresh_share() * self.t_rfc.0 as f64 / 2.0
    }

    fn devices(&self) -> f64 {
        (self.bus_width / self.device_width) as f64
    }

    /// Energy of `current` through every device of a rank over `time`.
    fn draw(&self, current: f64, time: Picos) -> Energy {
        Energy(self.supply.0 * current * self.devices() * time.0 as f64)
    }

    /// Energy of activating and precharging a row of a rank: IDD0 over t_rc minus IDD3N over t_ras and
    /// IDD2N over t_rp.
    pub fn row_energy(&self) -> Energy {
        let standby = self.draw(self.idd3n.0, self.t_ras) + self.draw(self.idd2n.0, self.t_rp);
        // A part whose IDD0 is below this mix of standby currents has a row energy of 0, never a
        // negative one.
        Energy((self.draw(self.idd0.0, self.row_cycle()).0 - standby.0).max(0.0))
    }

    /// Energy of one burst above active standby.
    pub fn burst_energy(&self, write: bool) -> Energy {
        let current = if write { self.idd4w } else { self.idd4r };
        self.draw(current.0 - self.idd3n.0, self.burst_span())
    }

    /// Energy of one refresh command of a rank above active standby.
    pub fn refresh_energy(&self) -> Energy {
        self.draw(self.idd5.0 - self.idd3n.0, self.t_rfc)
    }

    /// Refresh power of `ranks` ranks.
    pub fn refresh_power(&self, ranks: u64) -> Watts {
        Watts(self.refresh_energy().0 / self.t_refi.0 as f64 * ranks as f64)
    }

    /// Power of `ranks` unused ranks, refresh included.
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
