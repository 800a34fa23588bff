//! The adaptive promotion threshold: decides after how many uses a page in the SSD-Cache (device buffer)
//! is promoted to the host's DRAM (FlatFlash, section 3.4, Algorithm 1).
//!
//! Each use increments the page's count. A page whose count has reached the threshold is promoted. The
//! promoted share (the paper's `currRatio`), the share of all uses that belonged to promoted pages,
//! measures reuse: while it is low each use raises the threshold by one; while it is high each promotion
//! lowers the threshold by one. Each epoch starts with the largest threshold, and counts the past uses
//! of the resident pages as its own.
//!
//! The algorithm as printed fails in two places. For each of them, the printed rule and the corrected
//! rule are options ([`PromotionTrigger`], [`EpochReset`]), so that the difference can be measured:
//!
//! - It promotes a page when its count *equals* the threshold. A page whose count exceeds a threshold
//!   that was lowered later is never promoted, however often it is used.
//! - It ends an epoch when the number of uses *equals* the epoch's length, and then sets that number to
//!   the sum of the resident pages' counts. If no page has left, this sum is the epoch's length again:
//!   the next use exceeds it, and no further epoch ends. (With "at least" instead of "equals", every use
//!   would end an epoch.) This implementation therefore counts the uses of an epoch separately.
//!
//! A page in flight is still used. `AccessCnt` counts every access to the SSD-Cache, so it counts these
//! uses. `AggPromotedCnt` is the sum of the counts that have reached the threshold, and a use in flight
//! increments such a count, so it counts these uses too. As printed, it does not: the count is past the
//! threshold then ([`PromotionThreshold::use_in_flight`]).
//!
//! Invariants:
//!
//! 1. `resident_count` is the sum of the counts of the resident pages. The caller reports each page that
//!    leaves, promoted or evicted ([`PromotionThreshold::adjust_count`]).
//! 2. A count saturates at 255; a use that leaves it unchanged is not added to `resident_count`.

/// The condition for promoting a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromotionTrigger {
    /// The page's count is at least the threshold.
    #[default]
    AtLeast,
    /// As printed: the page's count equals the threshold.
    Exactly,
}

/// The condition that ends an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EpochReset {
    /// The number of uses since the epoch's start reaches its length.
    #[default]
    Uses,
    /// As printed: `AccessCnt`, the denominator of the promoted share, equals the epoch's length.
    AccessCount,
}

/// The constants of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdOptions {
    /// `LwRatio`: a promoted share at or below it raises the threshold.
    pub low_ratio: f64,
    /// `HiRatio`: with a promoted share at or above it, a promotion lowers the threshold.
    pub high_ratio: f64,
    /// `MaxThreshold`: the largest threshold, with which each epoch starts; at least 1.
    pub max_threshold: u8,
    /// `ResetEpoch`: the length of an epoch, in uses.
    pub reset_epoch: u64,
    /// The condition for promoting a page.
    pub trigger: PromotionTrigger,
    /// The condition that ends an epoch.
    pub reset: EpochReset,
}

impl Default for ThresholdOptions {
    /// The constants of Algorithm 1.
    fn default() -> Self {
        Self {
            low_ratio: 0.25,
            high_ratio: 0.75,
            max_threshold: 7,
            reset_epoch: 10_000,
            trigger: PromotionTrigger::AtLeast,
            reset: EpochReset::Uses,
        }
    }
}

impl ThresholdOptions {
    /// The algorithm as printed.
    #[must_use]
    pub fn literal() -> Self {
        Self { trigger: PromotionTrigger::Exactly, reset: EpochReset::AccessCount, ..Self::default() }
    }
}

/// The state of the algorithm; see the module.
#[derive(Debug, Clone, PartialEq)]
pub struct PromotionThreshold {
    options: ThresholdOptions,
    current: u8,
    /// `NetAggCnt`.
    resident_count: u64,
    /// `AccessCnt`.
    accesses: u64,
    /// `AggPromotedCnt`.
    promoted_count: u64,
    /// Number of uses since the epoch's start.
    epoch_accesses: u64,
    epochs: u64,
}

impl PromotionThreshold {
    /// The state before the first use. A `max_threshold` of 0 counts as 1.
    #[must_use]
    pub fn new(options: ThresholdOptions) -> Self {
        let options = ThresholdOptions { max_threshold: options.max_threshold.max(1), ..options };
        Self {
            options,
            current: options.max_threshold,
            resident_count: 0,
            accesses: 0,
            promoted_count: 0,
            epoch_accesses: 0,
            epochs: 0,
        }
    }

    /// True if the next use of a page with this count reaches the threshold, so that
    /// [`PromotionThreshold::update`] promotes the page if it is allowed to.
    #[must_use]
    #[inline]
    pub fn next_use_reaches(&self, count: u8) -> bool {
        let count = count.saturating_add(1);
        match self.options.trigger {
            PromotionTrigger::AtLeast => count >= self.current,
            PromotionTrigger::Exactly => count == self.current,
        }
    }

    /// Records a use of a page (`UPDATE`) and increments `count`, the page's `pageCnt`. Returns true if
    /// the caller must promote the page. `allowed` is false if the page cannot be promoted now: the PLB
    /// is full, or no page of DRAM is available.
    #[inline]
    pub fn update(&mut self, count: &mut u8, allowed: bool) -> bool {
        let promote = self.next_use_reaches(*count) && allowed;
        self.record(count, promote, if promote { u64::from(count.saturating_add(1)) } else { 0 });
        promote
    }

    /// Records a use of a page that is being promoted since [`PromotionThreshold::update`] returned true
    /// (`UPDATE`), and increments `count`. The use belongs to a promoted page; see the module.
    #[inline]
    pub fn use_in_flight(&mut self, count: &mut u8) {
        let promoted = match self.options.trigger {
            PromotionTrigger::AtLeast => 1,
            PromotionTrigger::Exactly => 0,
        };
        self.record(count, false, promoted);
    }

    /// Records a use that promotes its page, if `promote`, and adds `promoted` uses to those of promoted
    /// pages.
    #[inline]
    fn record(&mut self, count: &mut u8, promote: bool, promoted: u64) {
        self.resident_count += u64::from(*count < u8::MAX);
        *count = count.saturating_add(1);
        self.accesses += 1;
        self.epoch_accesses += 1;
        self.promoted_count += promoted;
        let promoted_share = self.promoted_share();
        if promoted_share <= self.options.low_ratio {
            self.current = self.current.saturating_add(1).min(self.options.max_threshold);
        } else if promoted_share >= self.options.high_ratio && promote {
            self.current = self.current.saturating_sub(1).max(1);
        }
        let epoch_over = match self.options.reset {
            EpochReset::Uses => self.epoch_accesses >= self.options.reset_epoch,
            EpochReset::AccessCount => self.accesses == self.options.reset_epoch,
        };
        if epoch_over {
            self.accesses = self.resident_count;
            self.promoted_count = 0;
            self.current = self.options.max_threshold;
            self.epoch_accesses = 0;
            self.epochs += 1;
        }
    }

    /// Records that a page with this count has left the SSD-Cache (`ADJUST_CNT`).
    pub fn adjust_count(&mut self, count: u8) {
        self.resident_count -= u64::from(count).min(self.resident_count);
    }

    /// The current threshold: `CurrThreshold`.
    #[must_use]
    pub fn current(&self) -> u8 {
        self.current
    }

    /// The promoted share: uses of promoted pages over all uses; 0 before the first use.
    #[must_use]
    pub fn promoted_share(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.promoted_count as f64 / self.accesses as f64 }
    }

    /// The sum of the counts of the resident pages: `NetAggCnt`.
    #[must_use]
    pub fn resident_count(&self) -> u64 {
        self.resident_count
    }

    /// Number of epochs that have ended.
    #[must_use]
    pub fn epochs(&self) -> u64 {
        self.epochs
    }
}
