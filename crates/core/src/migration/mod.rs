//! Movement of pages between memories, and the thresholds that decide about it: promotion from the
//! SSD-Cache (device buffer) of a byte-addressable SSD to the host's DRAM (FlatFlash, sections 3.3 and
//! 3.4), and the choice between DRAM, PCM and flash in a hybrid write buffer (hybrid SSD cache, section
//! V-C).
//!
//! | module | decision |
//! |---|---|
//! | [`plb`] | which copy of a line is valid while its page is being promoted |
//! | [`promotion_threshold`] | after how many uses a page is promoted |
//! | [`saturating_counter`] | how often a page of the write buffer was written |
//! | [`hotness_threshold`] | after how many writes a page moves from PCM to DRAM |
//! | [`coolness_threshold`] | from which write on a page may enter the PCM |
//! | [`write_admission`] | whether a page that is not in the buffer enters it now |
//! | [`wear_balance`] | how many writes the SSD must take so that PCM and flash wear out together |
//! | [`bloom_filter`] | whether a page was seen in the present period |

pub mod bloom_filter;
pub mod coolness_threshold;
pub mod hotness_threshold;
pub mod plb;
pub mod promotion_threshold;
pub mod saturating_counter;
pub mod wear_balance;
pub mod write_admission;

pub use bloom_filter::{BloomFilter, PageHash};
pub use coolness_threshold::{CoolnessForm, CoolnessThreshold};
pub use hotness_threshold::{HotnessForm, HotnessThreshold};
pub use plb::{InboundLine, LineRoute, Plb, PlbEntry, PlbError, PromotionStart};
pub use promotion_threshold::{EpochReset, PromotionThreshold, PromotionTrigger, ThresholdOptions};
pub use saturating_counter::{MAX_COUNT, SaturatingCounter};
pub use wear_balance::{ExpectedWrites, WearBalance};
pub use write_admission::{FilterDecay, WriteAdmission};
