//! A shadow of the system for verified runs: tracks the version of each line as last stored, and in the
//! processor's cache, DRAM, the device buffer and flash. A line of version 0 was never stored.

use std::collections::HashMap;
use std::hash::Hash;

use crate::error::SimError;

/// Lines of a page.
pub(super) const LINES: usize = 64;

type Page = Box<[u64; LINES]>;

/// The line versions of every level.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    last: u64,
    truth: HashMap<u64, u64>,
    /// The version in transfer: to be stored, or just loaded.
    pub(super) value: u64,
    pub(super) cpu: HashMap<u64, u64>,
    dram: HashMap<u32, Page>,
    buffer: HashMap<usize, Page>,
    flash: HashMap<u32, Page>,
}

fn blank() -> Page {
    Box::new([0; LINES])
}

/// A copy of a page's line versions; version 0 where nothing is recorded.
fn page_of<K: Eq + Hash>(pages: &HashMap<K, Page>, place: K) -> Page {
    pages.get(&place).cloned().unwrap_or_else(blank)
}

impl Shadow {
    /// Records a store of a line; its new version becomes the one in transfer.
    pub(super) fn new_version(&mut self, line: u64) {
        self.last += 1;
        self.value = self.last;
        self.truth.insert(line, self.last);
    }

    /// The version last stored to a line.
    pub(super) fn expected(&self, line: u64) -> u64 {
        self.truth.get(&line).copied().unwrap_or(0)
    }

    /// Checks that the version in transfer is the one stored last.
    pub(super) fn loaded(&self, line: u64) -> Result<(), SimError> {
        self.same("a line loaded is the line stored last", line, self.value)
    }

    fn same(&self, law: &'static str, line: u64, found: u64) -> Result<(), SimError> {
        let expected = self.expected(line);
        if found == expected {
            return Ok(());
        }
        Err(SimError::Conservation { law, found: format!("line {line} at version {found}, not {expected}") })
    }

    pub(super) fn dram(&mut self, frame: u32, line: u8, store: bool) {
        let place = &mut self.dram.entry(frame).or_insert_with(blank)[usize::from(line)];
        if store { *place = self.value } else { self.value = *place }
    }

    pub(super) fn buffer(&mut self, buffer_frame: usize, line: u8, store: bool) {
        let place = &mut self.buffer.entry(buffer_frame).or_insert_with(blank)[usize::from(line)];
        if store { *place = self.value } else { self.value = *place }
    }

    /// Records the arrival of a line of a page in flight.
    pub(super) fn inbound(&mut self, buffer_frame: usize, frame: u32, line: u8) {
        let version = self.buffer.get(&buffer_frame).map_or(0, |page| page[usize::from(line)]);
        self.dram.entry(frame).or_insert_with(blank)[usize::from(line)] = version;
    }

    pub(super) fn buffer_to_dram(&mut self, buffer_frame: usize, frame: u32) {
        let page = page_of(&self.buffer, buffer_frame);
        self.dram.insert(frame, page);
    }

    pub(super) fn flash_to_dram(&mut self, place: u32, frame: u32) {
        let page = page_of(&self.flash, place);
        self.dram.insert(frame, page);
    }

    pub(super) fn dram_to_buffer(&mut self, frame: u32, buffer_frame: usize) {
        let page = page_of(&self.dram, frame);
        self.buffer.insert(buffer_frame, page);
    }

    pub(super) fn flash_to_buffer(&mut self, place: u32, buffer_frame: usize) {
        let page = page_of(&self.flash, place);
        self.buffer.insert(buffer_frame, page);
    }

    pub(super) fn buffer_to_flash(&mut self, buffer_frame: usize, place: u32) {
        let page = page_of(&self.buffer, buffer_frame);
        self.flash.insert(place, page);
    }

    pub(super) fn flash_to_flash(&mut self, from: u32, to: u32) {
        if let Some(page) = self.flash.get(&from).cloned() {
            self.flash.insert(to, page);
        } else {
            self.flash.remove(&to);
        }
    }

    pub(super) fn erase(&mut self, place: u32) {
        self.flash.remove(&place);
    }

    /// Checks after a flush that the drive holds a version of the line, or a later one, in the device
    /// buffer or on flash.
    pub(super) fn durable(
        &self,
        line: u64,
        version: u64,
        buffer_frame: Option<usize>,
        place: u32,
    ) -> Result<(), SimError> {
        let page = match buffer_frame {
            Some(buffer_frame) => self.buffer.get(&buffer_frame),
            None => self.flash.get(&place),
        };
        let found = page.map_or(0, |page| page[(line % LINES as u64) as usize]);
        if found >= version {
            return Ok(());
        }
        Err(SimError::Conservation {
            law: "a flushed line is at the drive as it was when the flush began, or newer",
            found: format!("line {line} at version {found}, not {version}"),
        })
    }
}
