//! All-DRAM memory: channels, ranks, banks with open rows, refresh. The upper bound of the NVMM paper's
//! comparison, and the DRAM part of every other system.
//!
//! 1. Consecutive bursts go to the channels in turn. Within a channel, neighbouring bursts share a row;
//!    then banks, ranks and rows change.
//! 2. A channel serves its bursts in order. A bank whose row is open answers after the column time.
//!    Otherwise its row is opened first, and an open row closed before that, no earlier than the part
//!    allows (t_ras, t_wr, t_rrd, and four rows of a rank per t_faw). The data bus carries one burst at
//!    a time and turns from writing to reading without a pause, since presets have no t_wtr.
//! 3. Every rank is refreshed each t_refi for t_rfc. Commands wait for the refresh, which closes the
//!    rank's rows. Ranks are refreshed in turn.
//! 4. A part whose study gives a single latency (`flat_read`, `flat_write`) answers after that latency,
//!    at the rate of the bus. Its rows are opened and closed as well, which takes energy but no extra
//!    time.

use deepram_core::units::{Bytes, Picos};
use deepram_media::{Background, Dram};
use deepram_trace::Op;

use crate::engine::Time;
use crate::error::SimError;
use crate::flash::FlashCounts;
use crate::host::{Command, Context, Device, Slot};
use crate::result::counts;

#[derive(Debug, Clone, Copy)]
struct Bank {
    row: u64,
    open: bool,
    /// Refreshes of the bank's rank that had begun when the row was opened. A later refresh has closed
    /// the row.
    refreshes: u64,
    /// Earliest times of the next column command, row close and row open.
    column: Time,
    close: Time,
    activate: Time,
}

/// The times at which a rank's last four rows were opened, as a ring.
#[derive(Debug, Clone, Copy, Default)]
struct Activations {
    times: [Option<Time>; 4],
    next: usize,
}

counts! {
    /// Operations of a DRAM.
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
}

/// A simulated DRAM.
pub struct DramMemory {
    dram: Dram,
    banks: Vec<Bank>,
    bus_free: Vec<Time>,
    /// Busy time of each channel's data bus.
    bus_busy: Vec<Time>,
    activations: Vec<Activations>,
    burst: u64,
    bursts_per_row: u64,
    span: Time,
    counts: DramCounts,
    /// The counts when measuring began.
    base: DramCounts,
}

impl DramMemory {
    /// Builds the memory of a preset.
    ///
    /// # Errors
    /// The preset has more than 2^24 banks.
    pub fn new(dram: &Dram) -> Result<Self, SimError> {
        let banks = dram.channels * dram.ranks * dram.banks;
        if banks > 1 << 24 {
            return Err(SimError::config("banks", format!("{banks} banks are too many: at most 2^24")));
        }
        let bank = Bank { row: 0, open: false, refreshes: 0, column: 0, close: 0, activate: 0 };
        let burst = dram.burst_bytes().0.max(1);
        Ok(Self {
            banks: vec![bank; banks as usize],
            bus_free: vec![0; dram.channels as usize],
            bus_busy: vec![0; dram.channels as usize],
            activations: vec![Activations::default(); (dram.channels * dram.ranks) as usize],
            burst,
            bursts_per_row: (dram.row_bytes().0 / burst).max(1),
            span: dram.burst_span().0,
            counts: DramCounts::default(),
            base: DramCounts::default(),
            dram: dram.clone(),
        })
    }

    /// Operations since measuring began.
    #[must_use]
    pub fn dram_counts(&self) -> DramCounts {
        self.counts.since(&self.base)
    }

    /// Busy time of each channel's data bus since the start of the run.
    pub fn bus_times(&self) -> impl Iterator<Item = Picos> + '_ {
        self.bus_busy.iter().copied().map(Picos)
    }

    /// Operations since the start of the run.
    pub(crate) fn all_counts(&self) -> DramCounts {
        self.counts
    }

    /// Energy since measuring began, over `time`, by component, in picojoules, dynamic and static:
    /// bursts, rows opened, one open row per rank all the time, and refresh.
    #[must_use]
    pub fn energy_pj(&self, time: Picos) -> [(&'static str, f64, f64); 5] {
        let (dram, counts) = (&self.dram, &self.dram_counts());
        let ranks = dram.total_ranks();
        let refresh = dram.refresh_power(ranks).0;
        let background = dram.background_power(Background::Active, ranks).0 - refresh;
        [
            ("dram read bursts", dram.burst_energy(false).0 * counts.read_bursts as f64, 0.0),
            ("dram write bursts", dram.burst_energy(true).0 * counts.write_bursts as f64, 0.0),
            ("dram rows", dram.row_energy().0 * counts.activations as f64, 0.0),
            ("dram background", 0.0, background * time.0 as f64),
            ("dram refresh", 0.0, refresh * time.0 as f64),
        ]
    }

    /// The time of the rank's first refresh. Ranks are refreshed in turn: that of rank r of n is at (r +
    /// 1) / n of the period.
    fn first_refresh(&self, rank: u64) -> Time {
        (rank + 1) * self.dram.t_refi.0 / self.dram.total_ranks().max(1)
    }

    /// Refreshes of the rank that have begun by `time`.
    fn refreshes(&self, rank: u64, time: Time) -> u64 {
        let (period, offset) = (self.dram.t_refi.0, self.first_refresh(rank));
        if self.dram.t_rfc.0 == 0 || period == 0 || time < offset {
            return 0;
        }
        (time - offset) / period + 1
    }

    /// The earliest time, not before `time`, at which the part allows the rank to open another row.
    fn past_activations(&self, rank: u64, time: Time) -> Time {
        let Activations { times, next } = self.activations[rank as usize];
        let after = |index: usize, wait: Time| times[index % 4].map_or(0, |opened| opened + wait);
        time.max(after(next + 3, self.dram.t_rrd.0)).max(after(next, self.dram.t_faw.0))
    }

    /// The earliest time, not before `time`, at which the rank is not being refreshed.
    fn past_refresh(&self, rank: u64, time: Time) -> Time {
        let (period, length) = (self.dram.t_refi.0, self.dram.t_rfc.0);
        if length == 0 || period == 0 {
            return time;
        }
        let offset = self.first_refresh(rank);
        if time < offset {
            return time;
        }
        let phase = (time - offset) % period;
        if phase < length { time + (length - phase) } else { time }
    }

    /// Counts a hit of an open row, or opens the row; takes no time.
    fn open_row(&mut self, global_rank: u64, bank: u64, row: u64, now: Time) {
        let refreshes = self.refreshes(global_rank, now);
        let bank = &mut self.banks[(global_rank * self.dram.banks + bank) as usize];
        if bank.open && bank.row == row && bank.refreshes == refreshes {
            self.counts.row_hits += 1;
        } else {
            self.counts.activations += 1;
            (bank.open, bank.row, bank.refreshes) = (true, row, refreshes);
        }
    }

    /// Serves one burst. Returns the time at which its data transfer ends.
    pub(crate) fn serve(&mut self, number: u64, write: bool, now: Time) -> Time {
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
        self.bus_busy[channel as usize] += self.span;
        let global_rank = channel * d.ranks + rank;
        let flat = if write { d.flat_write } else { d.flat_read };
        if let Some(flat) = flat {
            let start = now.max(self.bus_free[channel as usize]);
            self.bus_free[channel as usize] = start + self.span;
            let end = start + flat.0.max(self.span);
            self.open_row(global_rank, bank_index, row, start);
            return end;
        }
        let bank = self.banks[(global_rank * d.banks + bank_index) as usize];
        let latency = if write { d.t_cwl.0 } else { d.t_cl.0 };
        // The column command need not precede the moment from which its data find the bus free.
        let earliest = self.bus_free[channel as usize].saturating_sub(latency);
        let ready = self.past_refresh(global_rank, now.max(bank.column).max(earliest));
        let open = bank.open && self.refreshes(global_rank, ready) == bank.refreshes;
        let (column, opened) = if open && bank.row == row {
            self.counts.row_hits += 1;
            (ready, None)
        } else {
            let mut start = now.max(bank.activate);
            if open {
                start = start.max(self.past_refresh(global_rank, now.max(bank.close)) + self.dram.t_rp.0);
            }
            let (activate, column) = loop {
                let activate = self.past_refresh(global_rank, self.past_activations(global_rank, start));
                let opened = activate + self.dram.t_rcd.0;
                let column = earliest.max(opened);
                let begun = self.refreshes(global_rank, column);
                // A refresh does not close a row before its first use.
                if column == opened || begun == self.refreshes(global_rank, activate) {
                    break (activate, column);
                }
                // The refresh would close a row that waits for the bus: open that row after the refresh.
                start =
                    self.first_refresh(global_rank) + (begun - 1) * self.dram.t_refi.0 + self.dram.t_rfc.0;
            };
            self.counts.activations += 1;
            let ring = &mut self.activations[global_rank as usize];
            ring.times[ring.next] = Some(activate);
            ring.next = (ring.next + 1) % 4;
            (column, Some(activate))
        };
        let data = (column + latency).max(self.bus_free[channel as usize]);
        let end = data + self.span;
        self.bus_free[channel as usize] = end;
        let column = data - latency;
        let d = &self.dram;
        let refreshes = opened.map_or(0, |activate| self.refreshes(global_rank, activate));
        let bank = &mut self.banks[(global_rank * d.banks + bank_index) as usize];
        if let Some(activate) = opened {
            bank.open = true;
            bank.refreshes = refreshes;
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

    fn capacity(&self) -> Bytes {
        self.dram.total_capacity()
    }

    fn queue_limit(&self) -> u64 {
        u64::MAX
    }

    fn submit(&mut self, slot: Slot, command: Command, context: &mut Context<Slot>) -> Result<(), SimError> {
        let now = context.now().0;
        let mut end = now;
        if matches!(command.op, Op::Read | Op::Write) && command.len > 0 {
            let last = (command.offset + command.len - 1) / self.burst;
            for number in command.offset / self.burst..=last {
                end = end.max(self.serve(number, command.op == Op::Write, now));
            }
        }
        context.schedule(Picos(end), slot);
        Ok(())
    }

    fn handle(&mut self, slot: Slot, context: &mut Context<Slot>) -> Result<(), SimError> {
        context.complete(slot);
        Ok(())
    }

    fn begin_measuring(&mut self) {
        self.base = self.counts;
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts::default()
    }

    fn check(&self) -> Result<(), SimError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_media::{Registry, RowState};

    fn part(overrides: &[&str]) -> Dram {
        Registry::builtin().unwrap().get_with("ddr4-2400", overrides).unwrap()
    }

    /// Bursts from one row of a bank to the same row of the next, and to the next row of the same bank.
    fn strides(dram: &Dram) -> (u64, u64) {
        let bank = dram.row_bytes().0 / dram.burst_bytes().0 * dram.channels;
        (bank, bank * dram.banks * dram.ranks)
    }

    #[test]
    fn a_lone_burst_takes_its_closed_form_in_each_row_state_and_direction() {
        let dram = part(&[]);
        let (_, row) = strides(&dram);
        for write in [false, true] {
            let mut memory = DramMemory::new(&dram).unwrap();
            let mut now = 0;
            for (number, state) in [(0, RowState::Closed), (1, RowState::Hit), (row, RowState::Conflict)] {
                let time = memory.serve(number, write, now) - now;
                assert_eq!(time, dram.access(state, write).0, "{state:?} {write}");
                now += 500_000;
            }
        }
    }

    #[test]
    fn a_part_of_one_latency_opens_rows_that_take_energy_and_no_time() {
        let dram: Dram = Registry::builtin().unwrap().get("dram.ddr3-1600").unwrap();
        let flat = dram.flat_read.unwrap().0;
        let (_, next_row) = strides(&dram);
        let row = dram.row_bytes().0 / dram.burst_bytes().0;
        let mut memory = DramMemory::new(&dram).unwrap();
        let mut serve = |number, now| {
            assert_eq!(memory.serve(number, false, now), now + flat, "burst {number}");
            (memory.dram_counts().row_hits, memory.dram_counts().activations)
        };
        // All of a row, then two rows of its bank in turn, before the first refresh of the rank.
        let mut now = 0;
        for burst in 0..row {
            assert_eq!(serve(burst, now), (burst, 1));
            now += dram.burst_span().0;
        }
        for turn in 1..=40 {
            assert_eq!(serve((turn % 2) * next_row, now), (row - 1, 1 + turn));
            now += dram.burst_span().0;
        }
        assert!(now < dram.t_refi.0 / dram.total_ranks());
        // The row is open until a refresh closes it.
        assert_eq!(serve(0, now), (row, 41));
        assert_eq!(serve(0, now + dram.t_refi.0), (row, 42));
        let energy = memory.energy_pj(Picos(now));
        let of = |name: &str| energy.iter().find(|part| part.0 == name).unwrap().1;
        assert!((of("dram rows") / (42.0 * dram.row_energy().0) - 1.0).abs() < 1e-12);
        let bursts = (row + 42) as f64 * dram.burst_energy(false).0;
        assert!((of("dram read bursts") / bursts - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_row_stays_open_for_t_ras_and_until_t_wr_after_written_data() {
        let dram = part(&[]);
        let (_, row) = strides(&dram);
        let reopen = dram.access(RowState::Conflict, false).0;
        let mut memory = DramMemory::new(&dram).unwrap();
        memory.serve(0, false, 0);
        let read = dram.t_rcd.0 + dram.burst_span().0;
        assert_eq!(memory.serve(row, false, 0), dram.t_ras.0.max(read) + reopen);
        let mut memory = DramMemory::new(&dram).unwrap();
        let end = memory.serve(0, true, 0);
        assert_eq!(memory.serve(row, false, 0), end + dram.t_wr.0 + reopen);
    }

    #[test]
    fn a_read_behind_a_write_of_its_row_follows_it_on_the_bus() {
        let dram = part(&[]);
        let mut memory = DramMemory::new(&dram).unwrap();
        let written = memory.serve(0, true, 0);
        let column = written - dram.burst_span().0 - dram.t_cwl.0;
        let expected = (column + dram.t_ccd.0 + dram.t_cl.0).max(written) + dram.burst_span().0;
        assert_eq!(memory.serve(1, false, 0), expected);
    }

    #[test]
    fn banks_open_their_rows_side_by_side_t_rrd_apart_and_four_in_t_faw() {
        // On the second part, the window of four is what bounds.
        for dram in [part(&[]), part(&["t_faw=40ns"])] {
            let (bank, _) = strides(&dram);
            let mut memory = DramMemory::new(&dram).unwrap();
            let (mut opened, mut bus): (Vec<u64>, u64) = (Vec::new(), 0);
            for n in 0..12 {
                let mut at = opened.last().map_or(0, |last| last + dram.t_rrd.0);
                if n >= 4 {
                    at = at.max(opened[n - 4] + dram.t_faw.0);
                }
                opened.push(at);
                bus = bus.max(at + dram.t_rcd.0 + dram.t_cl.0) + dram.burst_span().0;
                assert_eq!(memory.serve(n as u64 * bank, false, 0), bus, "bank {n}");
            }
            // One after the other they would take four times as long.
            assert!(bus * 4 < 12 * (dram.row_cycle().0));
        }
    }

    #[test]
    fn a_saturated_channel_moves_what_its_bus_can_in_the_time_that_refresh_leaves() {
        for (overrides, write) in [(vec![], false), (vec!["channels=2"], false), (vec![], true)] {
            let dram = part(&overrides);
            let mut memory = DramMemory::new(&dram).unwrap();
            let bursts = 400_000u64;
            let end = (0..bursts).map(|number| memory.serve(number, write, 0)).max().unwrap();
            // Column commands of one bank are t_ccd apart, where that is longer than a burst.
            let (span, pace) = (dram.burst_span().0, dram.t_ccd.0.max(dram.burst_span().0));
            let row = dram.row_bytes().0 / dram.burst_bytes().0;
            let bus = bursts / row / dram.channels * (span + (row - 1) * pace);
            let ratio = end as f64 * (1.0 - dram.refresh_share()) / bus as f64;
            assert!((1.0..1.01).contains(&ratio), "{overrides:?} {write}: {ratio}");
        }
    }

    #[test]
    fn a_refresh_takes_its_share_of_time_closes_the_rows_and_delays_by_its_mean_wait() {
        let dram = part(&["ranks=2"]);
        let (bank, _) = strides(&dram);
        for rank in 0..2 {
            let (mut wait, steps) = (0, 40_000u64);
            let mut refreshing = 0;
            for step in 0..steps {
                // Far apart, at every phase of the period.
                let now = (10 + step) * 10 * dram.t_refi.0 + step * dram.t_refi.0 / steps;
                let mut memory = DramMemory::new(&dram).unwrap();
                let number = rank * bank * dram.banks;
                memory.serve(number, false, now - 9 * dram.t_refi.0);
                let time = memory.serve(number, false, now) - now;
                assert_eq!(memory.dram_counts().row_hits, 0, "refreshes closed the row");
                let late = time - dram.access(RowState::Closed, false).0;
                wait += late;
                refreshing += u64::from(late > 0);
            }
            let share = refreshing as f64 / steps as f64;
            assert!((share / dram.refresh_share() - 1.0).abs() < 1e-3, "{share}");
            let mean = wait as f64 / steps as f64;
            assert!((mean / dram.refresh_wait() - 1.0).abs() < 1e-3, "{mean} {}", dram.refresh_wait());
        }
    }
}
