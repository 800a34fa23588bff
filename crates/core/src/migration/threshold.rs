//! After how many uses a page of the drive's memory is promoted to the host's: a threshold that adapts to how
//! much pages are used again (FlatFlash, section 3.4, Algorithm 1).
//!
//! Each use of a page counts. A page whose count has reached the threshold is promoted. Of all uses, the share
//! that belonged to pages promoted says how much pages are used again: where it is low the threshold goes up by
//! one, where it is high a promotion brings it down by one. Each epoch begins with the largest threshold, and
//! with the uses that the pages still held have had.
//!
//! The algorithm as printed does not do this, in two places; both are options ([`Trigger`], [`Reset`]) so that
//! the difference can be measured:
//!
//! - It promotes where the count *equals* the threshold. A page that has passed a threshold which is lowered
//!   afterwards is never promoted, however often it is used.
//! - It begins an epoch where the number of uses *equals* the epoch's length, and then sets that number to the
//!   uses of the pages held. Where none of them has left, that is the epoch's length again: the next use takes it
//!   past, and there is no further epoch. (With "at least" in its place, every use would begin one.) So the uses
//!   since the last epoch began have a count of their own here.
//!
//! 1. `net` is the sum of the counts of the pages held. The caller reports each page that leaves
//!    ([`Threshold::leave`]), promoted or evicted.
//! 2. A count stays at 255; a use that no longer changes it is not added to `net`.

/// Which pages are promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trigger {
    /// Those whose count is at least the threshold.
    #[default]
    AtLeast,
    /// As printed: those whose count equals the threshold at this use.
    Exactly,
}

/// When an epoch is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reset {
    /// After so many uses.
    #[default]
    Uses,
    /// As printed: when the number of uses that the share is taken of equals the epoch's length.
    AccessCount,
}

/// Constants of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdOptions {
    /// At or below this share the threshold goes up.
    pub low: f64,
    /// At or above this share a promotion brings it down.
    pub high: f64,
    /// The largest threshold, with which each epoch begins; at least 1.
    pub most: u8,
    /// Uses in an epoch.
    pub epoch: u64,
    /// Which pages are promoted.
    pub trigger: Trigger,
    /// When an epoch is over.
    pub reset: Reset,
}

impl Default for ThresholdOptions {
    /// The constants of Algorithm 1.
    fn default() -> Self {
        Self { low: 0.25, high: 0.75, most: 7, epoch: 10_000, trigger: Trigger::AtLeast, reset: Reset::Uses }
    }
}

impl ThresholdOptions {
    /// The algorithm as printed.
    #[must_use]
    pub fn literal() -> Self {
        Self { trigger: Trigger::Exactly, reset: Reset::AccessCount, ..Self::default() }
    }
}

/// The state of the algorithm; see the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    options: ThresholdOptions,
    current: u8,
    /// `NetAggCnt`.
    net: u64,
    /// `AccessCnt`.
    uses: u64,
    /// `AggPromotedCnt`.
    promoted: u64,
    /// Uses since the epoch began.
    since: u64,
    epochs: u64,
}

impl Threshold {
    /// The state before the first use. A largest threshold of 0 counts as 1.
    #[must_use]
    pub fn new(options: ThresholdOptions) -> Self {
        let options = ThresholdOptions { most: options.most.max(1), ..options };
        Self { options, current: options.most, net: 0, uses: 0, promoted: 0, since: 0, epochs: 0 }
    }

    /// A page is used (`UPDATE`): counts it in `count`, the page's. True if the page is to be promoted, which
    /// is never so where it may not be: it is on its way already, or there is no room for its promotion.
    #[inline]
    pub fn update(&mut self, count: &mut u8, may: bool) -> bool {
        self.net += u64::from(*count < u8::MAX);
        *count = count.saturating_add(1);
        self.uses += 1;
        self.since += 1;
        let reached = match self.options.trigger {
            Trigger::AtLeast => *count >= self.current,
            Trigger::Exactly => *count == self.current,
        };
        let promote = reached && may;
        if promote {
            self.promoted += u64::from(*count);
        }
        let share = self.share();
        if share <= self.options.low {
            self.current = self.current.saturating_add(1).min(self.options.most);
        } else if share >= self.options.high && promote {
            self.current = self.current.saturating_sub(1).max(1);
        }
        let over = match self.options.reset {
            Reset::Uses => self.since >= self.options.epoch,
            Reset::AccessCount => self.uses == self.options.epoch,
        };
        if over {
            self.uses = self.net;
            self.promoted = 0;
            self.current = self.options.most;
            self.since = 0;
            self.epochs += 1;
        }
        promote
    }

    /// A page with that count is no longer held (`ADJUST_CNT`).
    pub fn leave(&mut self, count: u8) {
        self.net -= u64::from(count).min(self.net);
    }

    /// The threshold.
    #[must_use]
    pub fn current(&self) -> u8 {
        self.current
    }

    /// The share of the uses that belonged to pages promoted; 0 before the first.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.uses == 0 { 0.0 } else { self.promoted as f64 / self.uses as f64 }
    }

    /// The sum of the counts of the pages held.
    #[must_use]
    pub fn net(&self) -> u64 {
        self.net
    }

    /// Epochs that are over.
    #[must_use]
    pub fn epochs(&self) -> u64 {
        self.epochs
    }
}
