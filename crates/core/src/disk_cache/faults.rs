//! The triggers: new faults and hot pages.
//!
//! They are handled after the operation that found them, one by one. Moving the data away can find more.

use super::Run;
use super::flash::{FlashCache, NewFaults};
use super::step::{Cause, Note, Step};
use crate::ftl::BlockState;
use crate::reliability::{Activity, FlashPage, Reconfiguration, Region, Retirement};

impl FlashCache {
    /// Handles all faults and hot pages that were found.
    pub(super) fn settle(&mut self, run: &mut Run<'_>) {
        loop {
            if let Some(found) = self.new_faults.pop() {
                self.handle_faults(found, run);
            } else if let Some((page, key)) = self.hot.pop() {
                self.handle_hot(page, key, run);
            } else {
                return;
            }
        }
    }

    fn handle_faults(&mut self, found: NewFaults, run: &mut Run<'_>) {
        let NewFaults { page, density, consistent, reads } = found;
        let (block, status) = (self.shape.block(page), self.pages.get(page));
        let changed = status.density() != density;
        if self.blocks.state(block) == BlockState::Retired || status.is_bad() || changed {
            return;
        }
        let activity = Activity { reads, misses: self.status().recent_misses(), pages: self.len().into() };
        match self.policy.reconfigure(status, consistent, activity) {
            Reconfiguration::Keep => {}
            Reconfiguration::Strengthen(strength) => {
                self.relocate(page, run);
                self.pages.set_strength(page, strength);
                self.blocks.add_strength(block, strength - status.strength());
                run.note(Note::Strengthen);
            }
            Reconfiguration::ToSlc => {
                self.relocate(page, run);
                self.relocate(page.neighbour(), run);
                self.make_single(page);
                run.note(Note::FaultToSlc);
            }
            Reconfiguration::Retire if self.policy.retirement == Retirement::Block => {
                self.retire_block(block, run);
            }
            Reconfiguration::Retire => self.retire_page(page, run),
        }
    }

    fn retire_block(&mut self, block: u32, run: &mut Run<'_>) {
        // Making room for the data may fill the block itself anew.
        for _ in 0..3 {
            self.leave_frontier(block);
            for page in self.valid_pages(block) {
                self.relocate(page, run);
            }
            self.leave_frontier(block);
            if self.blocks.retire(block) {
                run.note(Note::RetireBlock);
                break;
            }
        }
        self.check_alive(run);
    }

    fn retire_page(&mut self, page: FlashPage, run: &mut Run<'_>) {
        self.relocate(page, run);
        self.relocate(page.neighbour(), run);
        self.pages.set_bad(page);
        self.forget_waiting(page);
        run.note(Note::RetirePage);
        let block = self.shape.block(page);
        if self.shape.pages_of(block).all(|page| self.pages.get(page).is_bad()) {
            self.retire_block(block, run);
        }
    }

    fn handle_hot(&mut self, page: FlashPage, key: u32, run: &mut Run<'_>) {
        if self.keys.key(page) == Some(key) && self.policy.is_hot(self.pages.get(page)) {
            self.move_within_region(page, true, Cause::Hot, run);
        }
    }

    /// Moves the data of a page, if it has any, to another place of its region; out of the cache if there
    /// is none.
    fn relocate(&mut self, page: FlashPage, run: &mut Run<'_>) {
        let single = self.policy.stays_single(self.pages.get(page));
        if self.pages.get(page).is_valid() && !self.move_within_region(page, single, Cause::Fault, run) {
            self.drop_page(self.physical(page), run);
        }
    }

    /// Moves the data of a page. Returns false if its region has no place; the page is then as before.
    fn move_within_region(&mut self, page: FlashPage, single: bool, cause: Cause, run: &mut Run<'_>) -> bool {
        let key = self.keys.key(page);
        let from = self.physical(page);
        if let Err(failed) = self.read_errors(page, run) {
            run.steps.push(Step::Read(failed));
            self.lose(page, run);
            return true;
        }
        let wanted = self.blocks.region(from.block).unwrap_or(Region::Read);
        let region = self.region(wanted);
        let Some(to) = self.allocate(region, single, run) else { return false };
        // Making room may have evicted or moved the page itself. The place that was taken stays empty.
        if self.keys.key(page) == key {
            self.moved(from, to, cause, run);
        }
        true
    }
}
