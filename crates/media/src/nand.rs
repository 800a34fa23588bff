//! NAND flash: geometry, timing, energy and wear of one package, and its closed forms.
//!
//! A die has planes that work at the same time on one multi-plane command; each plane has two registers,
//! so that the array can work on one page while the bus moves another (NVMM, Architecture). The bus is
//! shared: transfers never overlap each other, array work of different dies does.

use deepram_core::units::{Bytes, Picos};

use crate::energy::{Energy, current_energy};
use crate::model::{Fault, kind, words};
use crate::value::{Amperes, Bandwidth, Price, TransferRate, Volts, Watts, Year};

words! {
    /// How many bits a cell holds.
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
    /// One flash package and the bus it hangs on.
    Nand = "nand";
    parts {}
    fields {
        /// Bits a cell holds: slc 1, mlc 2, tlc 3.
        cell: Cell,
        /// Data bytes of a page.
        page: Bytes,
        /// Spare bytes of a page, beside the data.
        spare: Bytes,
        /// Pages that are erased at once.
        pages_per_block: u64,
        /// Blocks of a plane.
        blocks_per_plane: u64,
        /// Planes of a die.
        planes: u64,
        /// Dies of a package.
        dies: u64,
        /// Page registers of a plane: with 2 the bus moves one page while the array works on the next; 1
        /// if not stated.
        registers: Option<u64>,
        /// Array time of a page read.
        read: Picos,
        /// Array time of a page program.
        program: Picos,
        /// Array time of a block erase.
        erase: Picos,
        /// Transfers a second on the bus.
        bus_rate: TransferRate,
        /// Width of the bus in bits.
        bus_width: u64,
        /// Time of one bus transfer where it is not one over the rate (a modelled device that rounds).
        bus_cycle: Option<Picos>,
        /// Spare bytes that cross the bus with a page's data; 0 if the package corrects errors itself.
        spare_on_bus: Bytes,
        /// Bus time of a read command and its address.
        read_command: Option<Picos>,
        /// Bus time before data come out.
        read_setup: Option<Picos>,
        /// Bus time of a program command and its address.
        program_command: Option<Picos>,
        /// Bus time of an erase command and its address.
        erase_command: Option<Picos>,
        /// What `read_command` grows by with each further plane.
        read_command_plane: Option<Picos>,
        /// What `read_setup` grows by with each further plane.
        read_setup_plane: Option<Picos>,
        /// What `program_command` grows by with each further plane.
        program_command_plane: Option<Picos>,
        /// What `erase_command` grows by with each further plane.
        erase_command_plane: Option<Picos>,
        /// Time to suspend a running program; absent if the part cannot.
        suspend_program: Option<Picos>,
        /// Time to suspend a running erase; absent if the part cannot.
        suspend_erase: Option<Picos>,
        /// Supply voltage.
        supply: Volts,
        /// Supply current of a die while it reads.
        read_current: Amperes,
        /// Supply current of a die while it programs.
        program_current: Amperes,
        /// Supply current of a die while it erases.
        erase_current: Amperes,
        /// Supply current of a die that does nothing.
        standby_current: Amperes,
        /// Program and erase cycles that a block is good for.
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
        bandwidth: Bandwidth = |n| n.bus_bandwidth(),
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
    /// Page from the array into a register.
    Read,
    /// Page from a register into the array.
    Program,
    /// Block erase.
    Erase,
}

impl Nand {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let package = [self.pages_per_block, self.blocks_per_plane, self.planes, self.dies]
            .iter()
            .try_fold(self.page.0, |bytes, n| bytes.checked_mul(*n));
        if self.page.0 == 0 || self.page.0 > 1 << 24 || self.spare.0 > 1 << 24 {
            return Err(Fault::new("page", "page and spare must be at most 16 MiB, the page not 0"));
        }
        if self.spare_on_bus > self.spare {
            return Err(Fault::new("spare_on_bus", "must not exceed the spare bytes of a page"));
        }
        if package.is_none_or(|bytes| bytes > 1 << 60) {
            return Err(Fault::new("blocks_per_plane", "the package would exceed 2^60 bytes"));
        }
        if !matches!(self.registers, None | Some(1 | 2)) {
            return Err(Fault::new("registers", "must be 1 or 2"));
        }
        if !matches!(self.bus_width, 8 | 16 | 32) {
            return Err(Fault::new("bus_width", "must be 8, 16 or 32 bit"));
        }
        if let Some(cycle) = self.bus_cycle {
            let nominal = 1e12 / self.bus_rate.0 as f64;
            if (cycle.0 as f64 - nominal).abs() > 0.05 * nominal {
                return Err(Fault::new(
                    "bus_cycle",
                    format!("more than 5% from one over bus_rate, {nominal:.0} ps"),
                ));
            }
        }
        if self.price.is_some() != self.price_year.is_some() {
            return Err(Fault::new("price_year", "a price needs its year, and a year its price"));
        }
        Ok(())
    }

    /// Data bytes of a block.
    pub fn block_bytes(&self) -> Bytes {
        Bytes(self.page.0 * self.pages_per_block)
    }

    /// Data bytes of a package.
    pub fn package_capacity(&self) -> Bytes {
        Bytes(self.block_bytes().0 * self.blocks_per_plane * self.planes * self.dies)
    }

    /// Bytes of a page that cross the bus.
    pub fn page_on_bus(&self) -> Bytes {
        Bytes(self.page.0 + self.spare_on_bus.0)
    }

    /// Bytes a second on the bus.
    pub fn bus_bandwidth(&self) -> f64 {
        let bytes = self.bus_width as f64 / 8.0;
        match self.bus_cycle {
            Some(cycle) if cycle.0 > 0 => bytes * 1e12 / cycle.0 as f64,
            _ => bytes * self.bus_rate.0 as f64,
        }
    }

    /// Time of `bytes` on the bus, rounded up to a whole transfer and then to the nearest picosecond.
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

    /// Time of a page on the bus.
    pub fn page_transfer(&self) -> Picos {
        self.transfer(self.page_on_bus())
    }

    /// Array time of an operation, the same for one plane and for several at once.
    pub fn array(&self, op: NandOp) -> Picos {
        match op {
            NandOp::Read => self.read,
            NandOp::Program => self.program,
            NandOp::Erase => self.erase,
        }
    }

    /// Bus time of a command over `planes` planes, without data.
    pub fn command(&self, op: NandOp, planes: u64) -> Picos {
        let (first, further) = match op {
            NandOp::Read => (self.read_command, self.read_command_plane),
            NandOp::Program => (self.program_command, self.program_command_plane),
            NandOp::Erase => (self.erase_command, self.erase_command_plane),
        };
        first.unwrap_or_default() + further.unwrap_or_default().times(planes.saturating_sub(1))
    }

    /// Bus time of the data of `planes` planes: a page each, and for a read the set-up before it.
    pub fn data(&self, op: NandOp, planes: u64) -> Picos {
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

    /// Time of one operation over `planes` planes on an idle bus and die, from the command's first
    /// cycle until the data are out (read), in the array (program) or gone (erase): the commands and the
    /// data of the planes cross the bus one after another, the array works on all of them at once.
    pub fn single(&self, op: NandOp, planes: u64) -> Picos {
        self.command(op, planes) + self.array(op) + self.data(op, planes)
    }

    /// Time of `pages` page reads or programs of one plane that use both registers: while the array
    /// works on one page, the bus moves the next or the previous. Erases follow each other.
    ///
    /// With t the bus time and a the array time of a page, min(t, a) + pages x max(t, a), each command
    /// counted with its bus time.
    pub fn interleaved(&self, op: NandOp, pages: u64) -> Picos {
        if pages == 0 {
            return Picos(0);
        }
        let (bus, array) = (self.bus(op), self.array(op));
        if op == NandOp::Erase {
            return (bus + array).times(pages);
        }
        bus.min(array) + bus.max(array).times(pages)
    }

    /// Pages a second of a bus with `dies` dies of which each uses one register: limited by the bus, or
    /// by the dies' own cycle. For erases, blocks a second.
    pub fn rate(&self, op: NandOp, dies: u64) -> f64 {
        let bus = self.bus(op).seconds();
        let cycle = bus + self.array(op).seconds();
        per_second(dies as f64 / cycle, bus)
    }

    /// The same with both registers in use.
    pub fn rate_interleaved(&self, op: NandOp, dies: u64) -> f64 {
        let bus = self.bus(op).seconds();
        let cycle = match op {
            NandOp::Erase => bus + self.array(op).seconds(),
            _ => bus.max(self.array(op).seconds()),
        };
        per_second(dies as f64 / cycle, bus)
    }

    fn bus(&self, op: NandOp) -> Picos {
        self.command(op, 1) + self.data(op, 1)
    }

    /// Energy of one operation of one plane: supply x current x array time. Bus energy is not in it.
    pub fn energy(&self, op: NandOp) -> Energy {
        let current = match op {
            NandOp::Read => self.read_current,
            NandOp::Program => self.program_current,
            NandOp::Erase => self.erase_current,
        };
        current_energy(self.supply, current, self.array(op))
    }

    /// Power of a package that does nothing.
    pub fn standby(&self) -> Watts {
        Watts(self.supply.0 * self.standby_current.0 * self.dies as f64)
    }
}

fn per_second(dies_limit: f64, bus: f64) -> f64 {
    if bus > 0.0 { dies_limit.min(1.0 / bus) } else { dies_limit }
}
