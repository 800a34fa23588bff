//! Hard disks: seek time, rotational latency, transfer time, and power by state.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, power_energy};
use crate::model::{InvalidFigure, check_price, kind};
use crate::value::{Bandwidth, Price, Rpm, Watts, Year};

kind! {
    /// One hard disk.
    Disk = "disk";
    parts {}
    fields {
        /// Capacity.
        capacity: Bytes,
        /// Rotational speed.
        rotation: Rpm,
        /// Mean seek time of a read.
        seek_read: Picos,
        /// Mean seek time of a write.
        seek_write: Picos,
        /// Sustained transfer rate, the mean over the surface.
        sustained: Bandwidth,
        /// Controller time of each request.
        overhead: Picos,
        /// Fixed access time, if a study states one instead of seek and rotation.
        flat_access: Option<Picos>,
        /// Power while the disk spins idle.
        idle: Watts,
        /// Power while the disk reads or writes.
        operating: Watts,
        /// Power while the disk seeks.
        seek: Watts,
        /// Power in standby: the platters do not spin.
        standby: Watts,
        /// Price of the capacity.
        price: Option<Price>,
        /// Year of the price.
        price_year: Option<Year>,
    }
    derived {
        /// half a revolution
        rotational_latency: Picos = |d| d.rotational_latency().0 as f64,
    }
}

impl Disk {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if self.sustained.0 < 1.0 {
            return Err(InvalidFigure::new("sustained", "must be at least 1 B/s"));
        }
        check_price(self.price, self.price_year)
    }

    /// The mean rotational latency: half a revolution.
    pub fn rotational_latency(&self) -> Picos {
        Picos(30_000_000_000_000 / self.rotation.0)
    }

    /// Transfer time of `bytes`, without seek and rotation.
    pub fn transfer(&self, bytes: Bytes) -> Picos {
        // The conversion of a float saturates at the longest duration.
        Picos((bytes.0 as f64 / self.sustained.0 * 1e12).round() as u64)
    }

    /// Mean access time: from a request's start until the head is over its first byte.
    pub fn position(&self, write: bool) -> Picos {
        let seek = if write { self.seek_write } else { self.seek_read };
        self.flat_access.unwrap_or(seek + self.rotational_latency())
    }

    /// Mean time of a request at a random location.
    pub fn random(&self, bytes: Bytes, write: bool) -> Picos {
        self.overhead + self.position(write) + self.transfer(bytes)
    }

    /// Time of a request that continues at the end of the last one.
    pub fn sequential(&self, bytes: Bytes) -> Picos {
        self.overhead + self.transfer(bytes)
    }

    /// Energy over `time`, of which the disk spent `seeking` on seeks, `moving` on transfers, and the
    /// rest idle. If `seeking` and `moving` exceed `time`, the idle time is 0.
    pub fn energy(&self, time: Picos, seeking: Picos, moving: Picos) -> Energy {
        let idle = time.0.saturating_sub(seeking.0).saturating_sub(moving.0);
        power_energy(self.seek, seeking)
            + power_energy(self.operating, moving)
            + power_energy(self.idle, Picos(idle))
    }
}
