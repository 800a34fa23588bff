//! Accesses over the address space, in windows of requests: the temporal working set distribution of the hybrid SSD cache
//! paper (section IV-A, figure 7).

use serde::Serialize;

use super::page_index::Page;

/// Bins of a device's address space.
const BINS: usize = 256;
/// Most windows that are kept.
const MOST_KEPT: usize = 256;
/// Equal phases of a trace; the last whole window of each is reported.
pub const PHASES: usize = 5;

/// Page accesses of a bin of a device's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AddressBin {
    /// Number of the device.
    pub device: u32,
    /// First page of the bin.
    pub first_page: u64,
    /// Pages of the bin.
    pub pages: u64,
    /// Page accesses that read.
    pub reads: u64,
    /// Page accesses that write.
    pub writes: u64,
}

/// The accesses of one window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddressWindow {
    /// Number of the window's first request, from 0.
    pub first_request: u64,
    /// The bins with accesses, ordered by device and address.
    pub bins: Vec<AddressBin>,
}

/// Accesses over the address space in the last whole window of each of five equal phases. In a trace of more than 256
/// windows, every second, fourth, ... is kept, and the last kept one of a phase is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddressDistribution {
    /// Length of a window, in requests.
    pub window_requests: u64,
    /// One window for each phase; fewer if the trace has fewer windows.
    pub phases: Vec<AddressWindow>,
}

#[derive(Clone, Debug)]
struct Device {
    device: u32,
    /// A bin has 2^shift pages.
    shift: u32,
    bins: Vec<[u64; 2]>,
}

impl Device {
    #[inline]
    fn add(&mut self, page: u64, write: bool) {
        while page >> self.shift >= BINS as u64 {
            self.shift += 1;
            for at in 0..BINS {
                let pair = [2 * at, 2 * at + 1].map(|at| self.bins.get(at).copied().unwrap_or_default());
                self.bins[at] = std::array::from_fn(|operation| pair[0][operation] + pair[1][operation]);
            }
        }
        self.bins[(page >> self.shift) as usize][usize::from(write)] += 1;
    }
}

/// Counts the accesses of each window.
#[derive(Clone, Debug)]
pub(super) struct AddressMap {
    window_requests: u64,
    devices: Vec<Device>,
    /// The device of the last access.
    last: usize,
    window: u64,
    keep: u64,
    kept: Vec<AddressWindow>,
}

impl AddressMap {
    pub(super) fn new(window_requests: u64) -> Self {
        Self { window_requests, devices: Vec::new(), last: 0, window: 0, keep: 1, kept: Vec::new() }
    }

    /// Counts an access of request number `request`, from 0.
    #[inline]
    pub(super) fn add(&mut self, page: Page, write: bool, request: u64) {
        let window = request / self.window_requests;
        if window != self.window {
            self.close(window);
        }
        if self.devices.get(self.last).is_none_or(|device| device.device != page.device) {
            self.last =
                self.devices.iter().position(|device| device.device == page.device).unwrap_or_else(|| {
                    self.devices.push(Device { device: page.device, shift: 0, bins: vec![[0; 2]; BINS] });
                    self.devices.len() - 1
                });
        }
        self.devices[self.last].add(page.number, write);
    }

    /// Keeps the current window and begins `next`.
    fn close(&mut self, next: u64) {
        if self.window.is_multiple_of(self.keep) && self.kept.len() == MOST_KEPT {
            self.keep *= 2;
            let length = self.keep * self.window_requests;
            self.kept.retain(|kept| kept.first_request.is_multiple_of(length));
        }
        if self.window.is_multiple_of(self.keep) {
            let mut bins: Vec<_> = self.devices.iter().flat_map(Device::filled).collect();
            bins.sort_by_key(|bin| (bin.device, bin.first_page));
            self.kept.push(AddressWindow { first_request: self.window * self.window_requests, bins });
        }
        for device in &mut self.devices {
            device.bins.fill([0; 2]);
        }
        self.window = next;
    }

    pub(super) fn finish(mut self, requests: u64) -> AddressDistribution {
        let whole = requests / self.window_requests;
        if self.window < whole || whole == 0 {
            self.close(whole);
        }
        let mut phases: Vec<AddressWindow> = Vec::new();
        for phase in 1..=PHASES as u64 {
            let end = u128::from(requests) * u128::from(phase) / PHASES as u128;
            let within = |kept: &&AddressWindow| {
                whole == 0 || u128::from(kept.first_request + self.window_requests) <= end
            };
            if let Some(last) = self.kept.iter().rev().find(within)
                && phases.last() != Some(last)
            {
                phases.push(last.clone());
            }
        }
        AddressDistribution {
            window_requests: self.window_requests,
            phases: phases_in_same_bins(phases, &self.devices),
        }
    }
}

impl Device {
    fn filled(&self) -> impl Iterator<Item = AddressBin> + '_ {
        let filled = self.bins.iter().enumerate().filter(|(_, count)| **count != [0; 2]);
        filled.map(|(at, &[reads, writes])| AddressBin {
            device: self.device,
            first_page: (at as u64) << self.shift,
            pages: 1 << self.shift,
            reads,
            writes,
        })
    }
}

/// Merges the bins of earlier windows, which may be smaller, into those of the end.
fn phases_in_same_bins(mut phases: Vec<AddressWindow>, devices: &[Device]) -> Vec<AddressWindow> {
    for window in &mut phases {
        let mut merged: Vec<AddressBin> = Vec::new();
        for bin in &window.bins {
            let shift =
                devices.iter().find(|device| device.device == bin.device).map_or(0, |device| device.shift);
            let first_page = bin.first_page >> shift << shift;
            match merged.last_mut().filter(|last| (last.device, last.first_page) == (bin.device, first_page))
            {
                Some(last) => {
                    last.reads += bin.reads;
                    last.writes += bin.writes;
                }
                None => merged.push(AddressBin { first_page, pages: 1 << shift, ..*bin }),
            }
        }
        window.bins = merged;
    }
    phases
}
