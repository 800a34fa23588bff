//! Memory of DRAM alone: channels, ranks, banks with open rows, refresh.
//!
//! 1. Bursts go round the channels; in a channel, neighbouring bursts share a row, then come banks,
//!    ranks, rows.
//! 2. A channel serves its bursts in order. A bank whose row is open answers after the column time;
//!    otherwise the row is opened first, and another row closed before that, not earlier than the
//!    part allows. The data bus carries one burst at a time.
//! 3. Every rank is refreshed each t_refi for t_rfc; commands wait for it. Ranks take turns.
//! 4. A part whose study gives one latency for all (`flat_read`, `flat_write`) answers after it, at the
//!    pace of the bus.

use deepram_media::{Background, Dram};
use deepram_trace::Op;

use crate::engine::Time;
use crate::error::SimError;
use crate::flash::FlashCounts;
use crate::host::{Command, Context, Device, Slot};

#[derive(Debug, Clone, Copy)]
struct Bank {
    row: u64,
    open: bool,
    /// Earliest next column command, row close, row open.
    column: Time,
    close: Time,
    activate: Time,
}

/// What a DRAM did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct DramCounts {
    /// Bursts read.
    pub read_bursts: u64,
    /// Bursts written.
    pub write_bursts: u64,
    /// Bursts that found their row open.
    pub row_hits: u64,
    /// Rows opened.
    pub activations: u64,
}

/// The machine.
pub struct DramMemory {
    dram: Dram,
    banks: Vec<Bank>,
    bus_free: Vec<Time>,
    last_activate: Vec<Time>,
    burst: u64,
    bursts_per_row: u64,
    span: Time,
    counts: DramCounts,
}

impl DramMemory {
    /// The memory that a preset describes.
    ///
    /// # Errors
    /// The preset has more banks than can be held.
    pub fn new(dram: &Dram) -> Result<Self, SimError> {
        let banks = dram.channels * dram.ranks * dram.banks;
        if banks > 1 << 24 {
            return Err(SimError::config("banks", format!("{banks} banks are too many: at most 2^24")));
        }
        let bank = Bank { row: 0, open: false, column: 0, close: 0, activate: 0 };
        let burst = dram.burst_bytes().0.max(1);
        Ok(Self {
            banks: vec![bank; banks as usize],
            bus_free: vec![0; dram.channels as usize],
            last_activate: vec![0; (dram.channels * dram.ranks) as usize],
            burst,
            bursts_per_row: (dram.row_bytes().0 / burst).max(1),
            span: dram.burst_span().0,
            counts: DramCounts::default(),
            dram: dram.clone(),
        })
    }

    /// What it did.
    #[must_use]
    pub fn dram_counts(&self) -> DramCounts {
        self.counts
    }

    /// Dynamic and static energy over `time` by component, in picojoules: bursts, rows opened, a row open
    /// in each rank all the time, and refresh.
    #[must_use]
    pub fn energy_pj(&self, time: Time) -> [(&'static str, f64, f64); 5] {
        let (dram, counts) = (&self.dram, &self.counts);
        let ranks = dram.total_ranks();
        let refresh = dram.refresh_power(ranks).0;
        let background = dram.background_power(Background::Active, ranks).0 - refresh;
        [
            ("dram read bursts", dram.burst_energy(false).0 * counts.read_bursts as f64, 0.0),
            ("dram write bursts", dram.burst_energy(true).0 * counts.write_bursts as f64, 0.0),
            ("dram rows", dram.row_energy().0 * counts.activations as f64, 0.0),
            ("dram background", 0.0, background * time as f64),
            ("dram refresh", 0.0, refresh * time as f64),
        ]
    }

    /// The first moment at or after `time` at which the rank is not refreshing.
    fn past_refresh(&self, rank: u64, time: Time) -> Time {
        let (period, length) = (self.dram.t_refi.0, self.dram.t_rfc.0);
        if length == 0 || period == 0 {
            return time;
        }
        // The first refresh of rank r of n is at (r + 1) / n of the period.
        let offset = (rank + 1) * period / self.dram.total_ranks().max(1);
        if time < offset {
            return time;
        }
        let phase = (time - offset) % period;
        if phase < length { time + (length - phase) } else { time }
    }

    /// Serves one burst; when its data are over.
    fn serve(&mut self, number: u64, write: bool, now: Time) -> Time {
        let d = &self.dram;
        let channel = number % d.channels;
        let mut rest = number / d.channels / self.bursts_per_row;
        let bank_index = rest % d.banks;
        rest /= d.banks;
        let rank = rest % d.ranks;
        let row = rest / d.ranks;
        if write {
            self.counts.write_bursts += 1;
        } else {
            self.counts.read_bursts += 1;
        }
        let flat = if write { d.flat_write } else { d.flat_read };
        if let Some(flat) = flat {
            let start = now.max(self.bus_free[channel as usize]);
            self.bus_free[channel as usize] = start + self.span;
            return start + flat.0.max(self.span);
        }
        let global_rank = channel * d.ranks + rank;
        let bank = self.banks[(global_rank * d.banks + bank_index) as usize];
        let latency = if write { d.t_cwl.0 } else { d.t_cl.0 };
        let (column, opened) = if bank.open && bank.row == row {
            self.counts.row_hits += 1;
            (self.past_refresh(global_rank, now.max(bank.column)), None)
        } else {
            let mut start = now.max(bank.activate);
            if bank.open {
                start = self.past_refresh(global_rank, now.max(bank.close)) + d.t_rp.0;
                start = start.max(bank.activate);
            }
            start = start.max(self.last_activate[global_rank as usize]);
            let activate = self.past_refresh(global_rank, start);
            self.counts.activations += 1;
            self.last_activate[global_rank as usize] = activate + d.t_rrd.0;
            (activate + d.t_rcd.0, Some(activate))
        };
        let data = (column + latency).max(self.bus_free[channel as usize]);
        let end = data + self.span;
        self.bus_free[channel as usize] = end;
        let column = data - latency;
        let bank = &mut self.banks[(global_rank * d.banks + bank_index) as usize];
        if let Some(activate) = opened {
            bank.open = true;
            bank.row = row;
            bank.close = activate + d.t_ras.0;
            bank.activate = activate + d.t_ras.0 + d.t_rp.0;
        }
        bank.column = column + d.t_ccd.0;
        bank.close = bank.close.max(if write { end + d.t_wr.0 } else { column + self.span });
        end
    }
}

impl Device for DramMemory {
    type Event = Slot;

    fn capacity(&self) -> u64 {
        self.dram.total_capacity().0
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    fn submit(&mut self, slot: Slot, command: Command, context: &mut Context<Slot>) -> Result<(), SimError> {
        let now = context.now();
        let mut end = now;
        if matches!(command.op, Op::Read | Op::Write) && command.len > 0 {
            let last = (command.offset + command.len - 1) / self.burst;
            for number in command.offset / self.burst..=last {
                end = end.max(self.serve(number, command.op == Op::Write, now));
            }
        }
        context.schedule(end, slot);
        Ok(())
    }

    fn handle(&mut self, slot: Slot, context: &mut Context<Slot>) -> Result<(), SimError> {
        context.complete(slot);
        Ok(())
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts::default()
    }

    fn check(&self) -> Result<(), SimError> {
        Ok(())
    }
}
