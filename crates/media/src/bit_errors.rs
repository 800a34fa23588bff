//! Bit errors of flash that wears (flash disk cache, sections 3.2 and 3.3; facts that the paper leaves
//! open are assumed and settable).
//!
//! 1. A bit fails for good when its block has had as many program/erase cycles as the bit bears. These
//!    are *hard* errors: the bit is wrong at each read, whatever is stored.
//! 2. The cycles that the bits of a page bear are lognormal. A *factor* of the page, lognormal as well
//!    with a mean of 1, multiplies those of all of its bits: pages differ.
//! 3. The scale is set so that a page of factor 1 has `rated_strength` + 1 failed bits at the rated
//!    endurance of its cells: there a code that corrects `rated_strength` bits ends.
//! 4. *Transient* errors (noise, charge lost while data are kept, reads that disturb) differ from read to
//!    read. Their number is Poisson distributed; its mean grows with wear, storage time and reads.
//!
//! The model draws no random numbers: its caller passes uniform ones.

use crate::model::{InvalidFigure, kind};
use crate::normal::{Lognormal, normal_cdf, normal_quantile};
use crate::value::{Factor, Fraction};

kind! {
    /// Bit errors of flash cells.
    BitErrors = "errors";
    parts {}
    fields {
        /// Failed bits of a page that a code must correct until the rated endurance.
        rated_strength: u64,
        /// Standard deviation of the natural logarithm of the cycles that the bits of a page bear.
        bit_deviation: Factor,
        /// Standard deviation of the endurance of pages, as a share of its mean.
        page_deviation: Fraction,
        /// Probability that a bit of fresh cells is read wrong once.
        transient: Fraction,
        /// Increase of that probability at the rated endurance for a day of storage.
        retention_day: Fraction,
        /// Exponent of the storage time.
        retention_power: Factor,
        /// Increase of that probability at the rated endurance for each read of the block since it was erased.
        read_disturb: Fraction,
        /// Exponent of cycles over rated endurance in the growth of transient errors.
        wear_power: Factor,
    }
    derived {}
}

/// The use of a page between its program and a read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PageUse {
    /// Program/erase cycles of the page's block.
    pub cycles: f64,
    /// Days since the page was programmed.
    pub days: f64,
    /// Reads of the page's block since it was erased.
    pub reads: f64,
}

/// The bit errors of pages of one kind of cells: a [`BitErrors`] model with the cells' rated endurance and
/// the bits of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct PageErrors {
    model: BitErrors,
    endurance: f64,
    bits: u64,
    /// The quantile, in deviations, at which the scale is set.
    rated: f64,
}

impl BitErrors {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if self.rated_strength > 1024 {
            return Err(InvalidFigure::new("rated_strength", "must be at most 1024 bits of a page"));
        }
        for (key, factor, most) in [
            ("bit_deviation", self.bit_deviation, 10.0),
            ("retention_power", self.retention_power, 10.0),
            ("wear_power", self.wear_power, 100.0),
        ] {
            if factor.0 > most {
                return Err(InvalidFigure::new(key, format!("must be at most {most}")));
            }
        }
        Ok(())
    }

    /// The errors of pages of `bits` bits, at least two, whose cells are rated for `endurance` cycles.
    pub fn of_pages(&self, endurance: u64, bits: u64) -> PageErrors {
        let bits = bits.max(2);
        let rated = normal_quantile(order_share(self.rated_strength, bits));
        PageErrors { model: self.clone(), endurance: endurance as f64, bits, rated }
    }

    /// The distribution of the factors of pages.
    pub fn page_factors(&self) -> Lognormal {
        Lognormal::with_mean(1.0, self.page_deviation.0)
    }
}

/// The expected share of bits that fail before bit `strength` + 1 of `bits` does.
fn order_share(strength: u64, bits: u64) -> f64 {
    (strength + 1).min(bits) as f64 / (bits + 1) as f64
}

impl PageErrors {
    /// The cycles after which a page of this factor has more than `strength` failed bits, in the mean of
    /// the order of failures: the end of a code that corrects `strength` bits.
    pub fn cycles(&self, strength: u64, factor: f64) -> f64 {
        self.lifetime(order_share(strength, self.bits), factor)
    }

    /// The cycles after which a share `of_pages` of all pages has more than `strength` failed bits: what a
    /// whole memory tolerates (flash disk cache, Figure 5).
    pub fn tolerable_cycles(&self, strength: u64, of_pages: f64) -> f64 {
        self.cycles(strength, self.model.page_factors().quantile(of_pages))
    }

    /// The cycles after which a share `share` of the bits of a page of this factor has failed.
    pub fn lifetime(&self, share: f64, factor: f64) -> f64 {
        let deviations = normal_quantile(share) - self.rated;
        self.endurance * factor * (self.model.bit_deviation.0 * deviations).exp()
    }

    /// The expected number of failed bits of a page of this factor after `cycles` cycles.
    pub fn expected_hard(&self, cycles: f64, factor: f64) -> f64 {
        let relative = cycles / (self.endurance * factor);
        if self.model.bit_deviation.0 == 0.0 {
            return if relative >= 1.0 { self.bits as f64 } else { 0.0 };
        }
        self.bits as f64 * normal_cdf(relative.ln() / self.model.bit_deviation.0 + self.rated)
    }

    /// The expected number of transient errors of a read.
    pub fn expected_transient(&self, page: PageUse) -> f64 {
        let model = &self.model;
        let wear = (page.cycles / self.endurance).powf(model.wear_power.0);
        let aged = model.retention_day.0 * page.days.powf(model.retention_power.0);
        let probability = model.transient.0 + wear * (aged + model.read_disturb.0 * page.reads);
        self.bits as f64 * probability.min(0.5)
    }

    /// The bits of a page in the order in which they fail.
    pub fn failing_bits(&self) -> FailingBits {
        FailingBits { left: self.bits, log_intact: 0.0 }
    }
}

/// The bits of a page in the order in which they fail: order statistics, one at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailingBits {
    left: u64,
    /// Logarithm of the share above the last order statistic.
    log_intact: f64,
}

impl FailingBits {
    /// The share, for [`PageErrors::lifetime`], at which the next bit fails, drawn by `uniform`, a number
    /// in [0, 1). `None` if all bits have failed.
    pub fn next_share(&mut self, uniform: f64) -> Option<f64> {
        if self.left == 0 {
            return None;
        }
        self.log_intact += (-uniform).ln_1p() / self.left as f64;
        self.left -= 1;
        Some(-self.log_intact.exp_m1())
    }
}

/// Above this mean, [`poisson`] uses the normal distribution.
const LARGE_MEAN: f64 = 100.0;

/// A Poisson distributed number of this mean, drawn by `uniform`, a number in [0, 1).
pub fn poisson(mean: f64, uniform: f64) -> u64 {
    if mean > LARGE_MEAN {
        return (mean + mean.sqrt() * normal_quantile(uniform)).round().max(0.0) as u64;
    }
    let mut term = (-mean).exp();
    let (mut below, mut count) = (term, 0);
    while below <= uniform && term > 0.0 {
        count += 1;
        term *= mean / count as f64;
        below += term;
    }
    count
}
