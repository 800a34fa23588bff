//! Promotion of pages in use from the SSD-Cache (device buffer) of a byte-addressable SSD to the host's
//! DRAM (FlatFlash, sections 3.3 and 3.4).
//!
//! | module | decision |
//! |---|---|
//! | [`plb`] | which copy of a line is valid while its page is being promoted |
//! | [`promotion_threshold`] | after how many uses a page is promoted |

pub mod plb;
pub mod promotion_threshold;

pub use plb::{InboundLine, LineRoute, Plb, PlbEntry, PlbError, PromotionStart};
pub use promotion_threshold::{EpochReset, PromotionThreshold, PromotionTrigger, ThresholdOptions};
