//! A shadow of the memory for verified runs: tracks the version of each line as last stored, in each
//! cache block and in each flash slot. A line of version 0 was never stored.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use deepram_core::{Epoch, Slot};

use crate::error::SimError;

/// The line versions of the address space, the cache and the flash.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    last: u64,
    truth: HashMap<u64, u64>,
    cache: HashMap<usize, Box<[u64]>>,
    flash: HashMap<u64, Box<[u64]>>,
    /// The versions of all lines at each token's sync.
    states: BTreeMap<Epoch, HashMap<u64, u64>>,
}

impl Shadow {
    /// Records stores to `lines` of the block in `frame`, whose first line in the address space is
    /// `first`.
    pub(super) fn store(&mut self, frame: usize, first: u64, lines: Range<u32>, per_block: u32) {
        let block = self.cache.entry(frame).or_insert_with(|| vec![0; per_block as usize].into_boxed_slice());
        for line in lines {
            self.last += 1;
            self.truth.insert(first + u64::from(line), self.last);
            if let Some(held) = block.get_mut(line as usize) {
                *held = self.last;
            }
        }
    }

    /// Checks loads of `lines` of a block.
    /// # Errors
    /// [`SimError::Conservation`] if a loaded line is not the one stored last.
    pub(super) fn load(&self, frame: usize, first: u64, lines: Range<u32>) -> Result<(), SimError> {
        for line in lines {
            let number = first + u64::from(line);
            let expected = self.truth.get(&number).copied().unwrap_or(0);
            let found = self.cache.get(&frame).and_then(|block| block.get(line as usize)).copied();
            if found != Some(expected) {
                return Err(SimError::Conservation {
                    law: "a line read is the line stored last",
                    found: format!("line {number} is version {found:?}, not {expected}"),
                });
            }
        }
        Ok(())
    }

    /// Records a fill of a cache block, from a flash slot or, if there is none, with lines never stored.
    pub(super) fn fill(&mut self, frame: usize, slot: Option<Slot>, per_block: u32) {
        let held = slot.and_then(|slot| self.flash.get(&slot.0)).cloned();
        self.cache.insert(frame, held.unwrap_or_else(|| vec![0; per_block as usize].into_boxed_slice()));
    }

    pub(super) fn forget(&mut self, frame: usize) {
        self.cache.remove(&frame);
    }

    /// Records the write of a cache block to a flash slot.
    pub(super) fn save(&mut self, slot: Slot, frame: usize) {
        if let Some(block) = self.cache.get(&frame) {
            self.flash.insert(slot.0, block.clone());
        }
    }

    /// Records the copy of a flash slot.
    pub(super) fn copy(&mut self, from: Slot, to: Slot) {
        match self.flash.get(&from.0).cloned() {
            Some(held) => self.flash.insert(to.0, held),
            None => self.flash.remove(&to.0),
        };
    }

    pub(super) fn erase(&mut self, slots: Range<u64>) {
        for slot in slots {
            self.flash.remove(&slot);
        }
    }

    /// Keeps the present state for a token, and drops the states of tokens before `oldest`.
    pub(super) fn note(&mut self, token: Epoch, oldest: Epoch) {
        self.states.insert(token, self.truth.clone());
        self.states = self.states.split_off(&oldest);
    }

    /// True if the state of a token is known: a sync made the token, or it stands for the start of the
    /// run.
    pub(super) fn knows(&self, token: Epoch) -> bool {
        token == Epoch(0) || self.states.contains_key(&token)
    }

    pub(super) fn return_to(&mut self, token: Epoch) {
        // The token of the start of the run has no state: nothing was stored.
        self.truth = self.states.get(&token).cloned().unwrap_or_default();
        let _ = self.states.split_off(&Epoch(token.0 + 1));
    }
}
