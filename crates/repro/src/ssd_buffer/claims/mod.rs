//! Claims of the hybrid SSD cache paper, and the names of the metrics that judge them. Figures 4 to 13 have captions
//! but no numbers in the text at hand, so the claims are those of the sections about them.
//!
//! In names of metrics `4-80` is the buffer of 4 MB of DRAM and 80 MB of PCM, `1e7` the endurance of a PCM cell, and
//! `2-64` the stride length and the request order difference of a figure.

mod buffers;
mod traces;

use crate::claim::Claim;

/// All claims of the paper, in the order of its sections.
#[must_use]
pub fn claims() -> Vec<Claim> {
    [traces::CLAIMS, buffers::CLAIMS].concat()
}
