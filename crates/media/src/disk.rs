//! Hard disks: seek, rotation, transfer, and power by what the disk is doing.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, power_energy};
use crate::model::{Fault, kind};
use crate::value::{Bandwidth, Price, Rpm, Watts, Year};

kind! {
    /// One hard disk.
    Disk = "disk";
    parts {}
    fields {
        /// Bytes of the disk.
        capacity: Bytes,
        /// Revolutions a minute.
        rotation: Rpm,
        /// Mean seek before a read.
        seek_read: Picos,
        /// Mean seek before a write.
        seek_write: Picos,
        /// Bytes a second under the head, the mean over the surface.
        sustained: Bandwidth,
        /// Time of the controller on each request.
        overhead: Picos,
        /// The one access time that a study gives instead of seek and rotation, if it does.
        flat_access: Option<Picos>,
        /// Power while it spins and waits.
        idle: Watts,
        /// Power while it reads or writes.
        operating: Watts,
        /// Power while it seeks.
        seek: Watts,
        /// Power while it stands still.
        standby: Watts,
        /// Price of the capacity.
        price: Option<Price>,
        /// Year of the price.
        price_year: Option<Year>,
    }
    derived {
        /// half a revolution
        rotational_latency: Picos = |d| d.half_turn().0 as f64,
    }
}

impl Disk {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.sustained.0 < 1.0 {
            return Err(Fault::new("sustained", "must be at least 1 B/s"));
        }
        if self.price.is_some() != self.price_year.is_some() {
            return Err(Fault::new("price_year", "a price needs its year, and a year its price"));
        }
        Ok(())
    }

    /// Half a revolution, the mean rotational latency.
    pub fn half_turn(&self) -> Picos {
        Picos(30_000_000_000_000 / self.rotation.0)
    }

    /// Time of `bytes` under the head.
    pub fn transfer(&self, bytes: Bytes) -> Picos {
        // A float beyond the range becomes the largest span, which is what saturation means here.
        Picos((bytes.0 as f64 / self.sustained.0 * 1e12).round() as u64)
    }

    /// Mean time from a request's start to the head being over its first byte.
    pub fn position(&self, write: bool) -> Picos {
        let seek = if write { self.seek_write } else { self.seek_read };
        self.flat_access.unwrap_or(seek + self.half_turn())
    }

    /// Mean time of a request somewhere else on the disk.
    pub fn random(&self, bytes: Bytes, write: bool) -> Picos {
        self.overhead + self.position(write) + self.transfer(bytes)
    }

    /// Time of a request that goes on where the last one ended.
    pub fn sequential(&self, bytes: Bytes) -> Picos {
        self.overhead + self.transfer(bytes)
    }

    /// Energy of a time in which the disk spent `seeking` on seeks and `moving` on transfers, and idled
    /// for the rest. If the two exceed the time, nothing is left to idle.
    pub fn energy(&self, time: Picos, seeking: Picos, moving: Picos) -> Energy {
        let idle = time.0.saturating_sub(seeking.0).saturating_sub(moving.0);
        power_energy(self.seek, seeking)
            + power_energy(self.operating, moving)
            + power_energy(self.idle, Picos(idle))
    }
}
