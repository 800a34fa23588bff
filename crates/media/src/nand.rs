//! NAND flash: geometry, timing, energy and wear of one package, and its closed forms.
//!
//! The planes of a die work in parallel on one multi-plane command. Each plane has two registers, so
//! that the array works on one page while the bus transfers another (NVMM, Architecture). The dies share
//! the bus: transfers never overlap, array operations of different dies do.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, current_energy};
use crate::model::{InvalidFigure, check_price, kind, words};
use crate::value::{Amperes, Bandwidth, Price, TransferRate, Volts, Watts, Year};

words! {
    /// Density: bits of a cell.
    Cell {
        /// One bit.
        Slc = "slc",
        /// Two bits.
        Mlc = "mlc",
        /// Three bits.
        Tlc = "tlc",
    }
}

kind! {
    /// One flash package and its bus.
    Nand = "nand";
    parts {}
    fields {
        /// Bits a cell holds: slc 1, mlc 2, tlc 3.
        cell: Cell,
        /// Data bytes of a page.
        page: Bytes,
        /// Spare bytes of a page, in addition to the data.
        spare: Bytes,
        /// Pages of a block: the unit of erasure.
        pages_per_block: u64,
        /// Blocks of a plane.
        blocks_per_plane: u64,
        /// Planes of a die.
        planes: u64,
        /// Dies of a package.
        dies: u64,
        /// Page registers of a plane: with 2 the bus transfers one page while the array works on the
        /// next; 1 if not stated.
        registers: Option<u64>,
        /// Array time of a page read.
        read: Picos,
        /// Array time of a page program.
        program: Picos,
        /// Array time of a block erase.
        erase: Picos,
        /// Transfer rate of the bus.
        bus_rate: TransferRate,
        /// Width of the bus in bits.
        bus_width: u64,
        /// Time of one bus transfer, if it differs from one over the rate (a modelled device that
        /// rounds).
        bus_cycle: Option<Picos>,
        /// Spare bytes transferred with a page's data; 0 if the package corrects errors itself.
        spare_on_bus: Bytes,
        /// Bus time of a read command and its address.
        read_command: Option<Picos>,
        /// Bus time before the data of a read.
        read_setup: Option<Picos>,
        /// Bus time of a program command and its address.
        program_command: Option<Picos>,
        /// Bus time of an erase command and its address.
        erase_command: Option<Picos>,
        /// Increase of `read_command` for each further plane.
        read_command_plane: Option<Picos>,
        /// Increase of `read_setup` for each further plane.
        read_setup_plane: Option<Picos>,
        /// Increase of `program_command` for each further plane.
        program_command_plane: Option<Picos>,
        /// Increase of `erase_command` for each further plane.
        erase_command_plane: Option<Picos>,
        /// Time to suspend a program; absent if the part cannot suspend it.
        suspend_program: Option<Picos>,
        /// Time to suspend an erase; absent if the part cannot suspend it.
        suspend_erase: Option<Picos>,
        /// Supply voltage.
        supply: Volts,
        /// Supply current of a die while it reads.
        read_current: Amperes,
        /// Supply current of a die while it programs.
        program_current: Amperes,
        /// Supply current of a die while it erases.
        erase_current: Amperes,
        /// Supply current of an idle die.
        standby_current: Amperes,
        /// Endurance of a block, in program/erase cycles.
        endurance: u64,
        /// Price of the capacity.
        price: Option<Price>,
        /// Year of the price.
        price_year: Option<Year>,
    }
    derived {
        /// dies x planes x blocks x pages x page
        capacity: Bytes = |n| n.package_capacity().0 as f64,
        /// bus rate x bus width, or bus width over bus cycle
        bandwidth: Bandwidth = |n| n.bus_bandwidth().0,
        /// bytes of a page on the bus over the bandwidth
        page_transfer: Picos = |n| n.page_transfer().0 as f64,
        /// supply x read current
        read_power: Watts = |n| n.supply.0 * n.read_current.0,
        /// supply x program current
        program_power: Watts = |n| n.supply.0 * n.program_current.0,
        /// supply x erase current
        erase_power: Watts = |n| n.supply.0 * n.erase_current.0,
        /// supply x standby current
        standby_power: Watts = |n| n.supply.0 * n.standby_current.0,
    }
}

/// An array operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NandOp {
    /// Reads a page from the array into a register.
    Read,
    /// Programs a page from a register into the array.
    Program,
    /// Erases a block.
    Erase,
}

impl Nand {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let package = [self.pages_per_block, self.blocks_per_plane, self.planes, self.dies]
            .iter()
            .try_fold(self.page.0, |bytes, n| bytes.checked_mul(*n));
        if self.page.0 == 0 || self.page.0 > 1 << 24 || self.spare.0 > 1 << 24 {
            return Err(InvalidFigure::new("page", "page and spare must be at most 16 MiB, the page not 0"));
        }
        if self.spare_on_bus > self.spare {
            return Err(InvalidFigure::new("spare_on_bus", "must not exceed the spare bytes of a page"));
        }
        if package.is_none_or(|bytes| bytes > 1 << 60) {
            return Err(InvalidFigure::new("blocks_per_plane", "the package would exceed 2^60 bytes"));
        }
        if !matches!(self.registers, None | Some(1 | 2)) {
            return Err(InvalidFigure::new("registers", "must be 1 or 2"));
        }
        if !matches!(self.bus_width, 8 | 16 | 32) {
            return Err(InvalidFigure::new("bus_width", "must be 8, 16 or 32 bit"));
        }
        if let Some(cycle) = self.bus_cycle {
            let nominal = 1e12 / self.bus_rate.0 as f64;
            if (cycle.0 as f64 - nominal).abs() > 0.05 * nominal {
                return Err(InvalidFigure::new(
                    "bus_cycle",
                    format!("must be within 5 % of one over bus_rate, {nominal:.0} ps"),
                ));
            }
        }
        check_price(self.price, self.price_year)
    }

    /// Data bytes of a block.
    pub fn block_bytes(&self) -> Bytes {
        Bytes(self.page.0 * self.pages_per_block)
    }

    /// Data bytes of a package.
    pub fn package_capacity(&self) -> Bytes {
        Bytes(self.block_bytes().0 * self.blocks_per_plane * self.planes * self.dies)
    }

    /// Capacity of `channels` channels of `packages` packages each; `None` if it exceeds 2^64 bytes.
    pub fn capacity_of(&self, channels: u64, packages: u64) -> Option<Bytes> {
        self.package_capacity().0.checked_mul(channels)?.checked_mul(packages).map(Bytes)
    }

    /// Bytes of a page that the bus transfers.
    pub fn page_on_bus(&self) -> Bytes {
        Bytes(self.page.0 + self.spare_on_bus.0)
    }

    /// Bus bandwidth.
    pub fn bus_bandwidth(&self) -> Bandwidth {
        let bytes = self.bus_width as f64 / 8.0;
        Bandwidth(match self.bus_cycle {
            Some(cycle) if cycle.0 > 0 => bytes * 1e12 / cycle.0 as f64,
            _ => bytes * self.bus_rate.0 as f64,
        })
    }

    /// Bus time of `bytes`, rounded up to whole transfers and then to the nearest picosecond.
    pub fn transfer(&self, bytes: Bytes) -> Picos {
        let transfers = (u128::from(bytes.0) * 8).div_ceil(u128::from(self.bus_width));
        let ps = match self.bus_cycle {
            Some(cycle) => transfers * u128::from(cycle.0),
            None => {
                let rate = u128::from(self.bus_rate.0);
                (transfers * 1_000_000_000_000 + rate / 2) / rate
            }
        };
        Picos(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Bus time of a page.
    pub fn page_transfer(&self) -> Picos {
        self.transfer(self.page_on_bus())
    }

    /// Array time of an operation, the same for one plane and for several in parallel.
    pub fn array_time(&self, op: NandOp) -> Picos {
        match op {
            NandOp::Read => self.read,
            NandOp::Program => self.program,
            NandOp::Erase => self.erase,
        }
    }

    /// Bus time of a command for `planes` planes, without data.
    pub fn command_time(&self, op: NandOp, planes: u64) -> Picos {
        let (first, further) = match op {
            NandOp::Read => (self.read_command, self.read_command_plane),
            NandOp::Program => (self.program_command, self.program_command_plane),
            NandOp::Erase => (self.erase_command, self.erase_command_plane),
        };
        first.unwrap_or_default() + further.unwrap_or_default().times(planes.saturating_sub(1))
    }

    /// Bus time of the data of `planes` planes: one page each, and for a read the set-up time.
    pub fn data_time(&self, op: NandOp, planes: u64) -> Picos {
        match op {
            NandOp::Read => {
                self.read_setup.unwrap_or_default()
                    + self.read_setup_plane.unwrap_or_default().times(planes.saturating_sub(1))
                    + self.page_transfer().times(planes)
            }
            NandOp::Program => self.page_transfer().times(planes),
            NandOp::Erase => Picos(0),
        }
    }

    /// Latency of one operation on `planes` planes with idle bus and die, from the command's first cycle
    /// until the data are transferred (read), programmed or erased. The planes' commands and data take
    /// the bus one after the other; their arrays work in parallel.
    pub fn idle_latency(&self, op: NandOp, planes: u64) -> Picos {
        self.command_time(op, planes) + self.array_time(op) + self.data_time(op, planes)
    }

    /// Time of `pages` page reads or programs of one plane with both registers in use: the bus transfers
    /// the next or the previous page while the array works. Erases do not overlap.
    ///
    /// With bus time t (command included) and array time a of a page: min(t, a) + pages x max(t, a).
    pub fn interleaved_time(&self, op: NandOp, pages: u64) -> Picos {
        if pages == 0 {
            return Picos(0);
        }
        let (bus, array) = (self.bus_time(op), self.array_time(op));
        if op == NandOp::Erase {
            return (bus + array).times(pages);
        }
        bus.min(array) + bus.max(array).times(pages)
    }

    /// Throughput of a bus with `dies` dies that use one register each, in pages a second (for erases,
    /// blocks a second). The limit is the bus or the dies' cycle time.
    pub fn throughput(&self, op: NandOp, dies: u64) -> f64 {
        let bus = self.bus_time(op).seconds();
        let cycle = bus + self.array_time(op).seconds();
        per_second(dies as f64 / cycle, bus)
    }

    /// As [`Nand::throughput`], with both registers in use.
    pub fn throughput_interleaved(&self, op: NandOp, dies: u64) -> f64 {
        let bus = self.bus_time(op).seconds();
        let cycle = match op {
            NandOp::Erase => bus + self.array_time(op).seconds(),
            _ => bus.max(self.array_time(op).seconds()),
        };
        per_second(dies as f64 / cycle, bus)
    }

    fn bus_time(&self, op: NandOp) -> Picos {
        self.command_time(op, 1) + self.data_time(op, 1)
    }

    /// Energy of one operation of one plane, without the bus: supply x current x array time.
    pub fn energy(&self, op: NandOp) -> Energy {
        let current = match op {
            NandOp::Read => self.read_current,
            NandOp::Program => self.program_current,
            NandOp::Erase => self.erase_current,
        };
        current_energy(self.supply, current, self.array_time(op))
    }

    /// Power of an idle package.
    pub fn standby_power(&self) -> Watts {
        Watts(self.supply.0 * self.standby_current.0 * self.dies as f64)
    }
}

fn per_second(dies_limit: f64, bus: f64) -> f64 {
    if bus > 0.0 { dies_limit.min(1.0 / bus) } else { dies_limit }
}
